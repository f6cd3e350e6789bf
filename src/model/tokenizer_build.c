/* From a spec to a tokenizer: ids are checked here, once, so that encoding needs no checks. */
#include <stdlib.h>
#include <string.h>

#include "model/tokenizer_parts.h"

char *tokenizer_copy(const char *bytes, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, bytes, length);
        copy[length] = '\0';
    }
    return copy;
}

void tokenizer_spec_free(struct tokenizer_spec *spec)
{
    for (size_t i = 0; i < spec->vocabulary_count; i++)
        free(spec->vocabulary[i].token);
    for (size_t i = 0; i < spec->added_count; i++)
        free(spec->added[i].content);
    free(spec->vocabulary);
    free(spec->added);
    free(spec->unknown);
    free(spec->continuing);
    *spec = (struct tokenizer_spec){0};
}

static int compare_ids(const void *a, const void *b)
{
    const struct vocabulary_entry *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum status check_ids(struct tokenizer_spec *spec, struct err *err)
{
    if (spec->vocabulary_count == 0)
        return err_set(err, STATUS_BAD_INPUT, "%s: the vocabulary is empty", spec->file);
    qsort(spec->vocabulary, spec->vocabulary_count, sizeof *spec->vocabulary, compare_ids);
    for (size_t i = 1; i < spec->vocabulary_count; i++)
        if (spec->vocabulary[i - 1].id == spec->vocabulary[i].id)
            return err_set(err, STATUS_BAD_INPUT, "%s: two tokens of the vocabulary have the id %d", spec->file,
                           spec->vocabulary[i].id);
    return STATUS_OK;
}

static enum status build_vocabulary(const struct tokenizer_spec *spec, struct trie **out, struct err *err)
{
    struct trie_key *keys = calloc(spec->vocabulary_count, sizeof *keys);
    if (keys == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu tokens", spec->vocabulary_count);
    for (size_t i = 0; i < spec->vocabulary_count; i++) {
        const struct vocabulary_entry *entry = &spec->vocabulary[i];
        keys[i] = (struct trie_key){entry->token, strlen(entry->token), entry->id};
    }
    enum status status = trie_build(keys, spec->vocabulary_count, out, err);
    free(keys);
    return status;
}

static enum status build_model(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    enum status status = check_ids(spec, err);
    if (status != STATUS_OK)
        return status;
    tokenizer->vocabulary = (uint32_t)spec->vocabulary[spec->vocabulary_count - 1].id + 1;
    struct wordpiece *model = &tokenizer->model;
    status = build_vocabulary(spec, &model->vocabulary, err);
    if (status != STATUS_OK)
        return err_prefix(err, "%s: model.vocab", spec->file);
    model->unknown = trie_find(model->vocabulary, spec->unknown, strlen(spec->unknown));
    if (model->unknown == TRIE_NONE)
        return err_set(err, STATUS_BAD_INPUT, "%s: the unknown token \"%.100s\" (unk_token) is not in the vocabulary",
                       spec->file, spec->unknown);
    model->continuing = trie_walk(model->vocabulary, TRIE_ROOT, spec->continuing, strlen(spec->continuing));
    if (spec->max_characters > WORDPIECE_MAX_CHARACTERS)
        return err_set(err, STATUS_UNSUPPORTED, "%s: max_input_chars_per_word %u is above %d", spec->file,
                       spec->max_characters, WORDPIECE_MAX_CHARACTERS);
    model->max_characters = spec->max_characters;
    return STATUS_OK;
}

/* The package numbers added tokens itself, by the vocabulary and then upwards from its size. A file that says otherwise
 * is not what the model was trained with. */
static enum status check_added_ids(struct tokenizer *tokenizer, const struct tokenizer_spec *spec, struct err *err)
{
    int32_t next = (int32_t)(spec->vocabulary_count + spec->empty_tokens);
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        struct added_token *token = &tokenizer->added[i];
        int32_t id = trie_find(tokenizer->model.vocabulary, token->content, token->length);
        if (id == TRIE_NONE)
            id = next++;
        if (token->id < 0)
            token->id = id;
        if (token->id != id)
            return err_set(err, STATUS_BAD_INPUT, "%s: the added token \"%.100s\" says it is id %d but is numbered %d",
                           spec->file, token->content, token->id, id);
        if ((uint32_t)id >= tokenizer->vocabulary)
            tokenizer->vocabulary = (uint32_t)id + 1;
    }
    return STATUS_OK;
}

/* Builds one of the two sets; the patterns of the normalised one are normalised first, into `texts`. */
static enum status build_set(struct tokenizer *tokenizer, bool normalized, struct trie_key *keys, struct buffer *texts,
                             struct added_set *set, struct err *err)
{
    size_t count = 0;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        if (token->normalized != normalized)
            continue;
        keys[count] = (struct trie_key){token->content, token->length, (int32_t)i};
        if (normalized) {
            normalizer_text(tokenizer->normalizer, token->content, token->length, &texts[i]);
            if (!buffer_ok(&texts[i]))
                return err_set(err, STATUS_NO_MEMORY, "no memory for added tokens");
            keys[count].bytes = texts[i].data;
            keys[count].length = texts[i].length;
        }
        count++;
    }
    return added_set_build(set, tokenizer->added, keys, count, err);
}

static enum status build_sets(struct tokenizer *tokenizer, struct err *err)
{
    size_t count = tokenizer->added_count;
    struct trie_key *keys = calloc(count + 1, sizeof *keys);
    struct buffer *texts = calloc(count + 1, sizeof *texts);
    enum status status = STATUS_NO_MEMORY;
    if (keys != NULL && texts != NULL)
        status = build_set(tokenizer, false, keys, texts, &tokenizer->raw, err);
    else
        err_set(err, status, "no memory for %zu added tokens", count);
    if (status == STATUS_OK)
        status = build_set(tokenizer, true, keys, texts, &tokenizer->normalized, err);
    for (size_t i = 0; texts != NULL && i < count; i++)
        buffer_free(&texts[i]);
    free(texts);
    free(keys);
    return status;
}

static enum status check_specials(const struct tokenizer *tokenizer, const char *file, struct err *err)
{
    const struct tokenizer_template *specials = &tokenizer->specials;
    for (uint32_t i = 0; i < specials->before_count + specials->behind_count; i++) {
        uint32_t behind = i - specials->before_count;
        int32_t id = i < specials->before_count ? specials->before[i] : specials->behind[behind];
        if (id < 0 || (uint32_t)id >= tokenizer->vocabulary)
            return err_set(err, STATUS_BAD_INPUT, "%s: post_processor: the id %d is not below the vocabulary's %u",
                           file, id, tokenizer->vocabulary);
    }
    return STATUS_OK;
}

static enum status build_added(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    tokenizer->added = spec->added;
    tokenizer->added_count = spec->added_count;
    spec->added = NULL;
    spec->added_count = 0;
    enum status status = check_added_ids(tokenizer, spec, err);
    if (status == STATUS_OK && (status = build_sets(tokenizer, err)) != STATUS_OK)
        return err_prefix(err, "%s: added_tokens", spec->file);
    return status;
}

static enum status build_all(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    tokenizer->raw.only_start = tokenizer->normalized.only_start = -1;
    tokenizer->normalizer = normalizer_open(spec->normalizer);
    if (tokenizer->normalizer == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a normalizer");
    enum status status = build_model(tokenizer, spec, err);
    if (status == STATUS_OK)
        status = build_added(tokenizer, spec, err);
    if (status != STATUS_OK)
        return status;
    if (tokenizer->normalized.trie != NULL) {
        tokenizer->plain = normalizer_open((struct normalizer_options){0});
        if (tokenizer->plain == NULL)
            return err_set(err, STATUS_NO_MEMORY, "no memory for a normalizer");
    }
    tokenizer->specials = spec->specials;
    return check_specials(tokenizer, spec->file, err);
}

enum status tokenizer_build(struct tokenizer_spec *spec, struct tokenizer **out, struct err *err)
{
    *out = NULL;
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (tokenizer == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a tokenizer");
    enum status status = build_all(tokenizer, spec, err);
    if (status == STATUS_OK)
        *out = tokenizer;
    else
        tokenizer_close(tokenizer);
    return status;
}

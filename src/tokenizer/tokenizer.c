/* Encoding with WordPiece. The text is read in windows: each is checked to be UTF-8 and searched for added tokens, then
 * its characters go through the normalizer into one word at a time, whose ids go to the caller. Nothing is allocated,
 * and nothing beyond the last id that was asked for is read.
 *
 * A pipeline does the same in whole stretches of text if added tokens are also looked for in the normalised text, which
 * is rare, or if the places of the ids are asked for. */
#include "tokenizer/tokenizer.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spec.h"
#include "tokenizer/unicode.h"

enum { WINDOW_BYTES = 512 };

/* The word that is being read. */
struct splitter {
    const struct tokenizer *tokenizer;
    const struct normalizer *normalizer;
    struct id_sink *sink;
    size_t length;     /* bytes of it that are kept */
    size_t characters; /* counted even beyond the length that is kept */
    size_t run_start;  /* the start of the sorted marks that end the word at run_end */
    size_t run_end;
    char word[WORDPIECE_MAX_CHARACTERS * 4];
};

static void end_word(struct splitter *splitter)
{
    if (splitter->characters > 0) {
        wordpiece_encode(&splitter->tokenizer->wordpiece, splitter->word, splitter->length, splitter->characters,
                         splitter->sink);
    }
    splitter->length = splitter->characters = 0;
    splitter->run_end = SIZE_MAX;
}

static void add_character(struct splitter *splitter, struct normal_character character)
{
    if (++splitter->characters > splitter->tokenizer->wordpiece.max_characters) { return; }
    if (character.order == 0) {
        splitter->length += utf8_put(splitter->word + splitter->length, character.code_point);
        return;
    }
    if (splitter->run_end != splitter->length) { splitter->run_start = splitter->length; }
    splitter->length += normalizer_insert(splitter->word, splitter->run_start, splitter->length, character);
    splitter->run_end = splitter->length;
}

/* Feeds any character, using the tables. */
static void feed_slowly(struct splitter *splitter, uint32_t code_point)
{
    struct normal_character parts[NORMAL_MAX_CHARACTERS];
    size_t count = normalizer_expand(&splitter->normalizer->options, code_point, parts);
    for (size_t i = 0; i < count; i++) {
        if (parts[i].code_point == NORMAL_BREAK) {
            splitter->run_end = SIZE_MAX;
            continue;
        }
        uint8_t flags = unicode_lookup(parts[i].code_point)->flags;
        if (flags & (UNICODE_SPACE | UNICODE_PUNCTUATION)) { end_word(splitter); }
        if (!(flags & UNICODE_SPACE)) { add_character(splitter, parts[i]); }
        if (flags & UNICODE_PUNCTUATION) { end_word(splitter); }
    }
}

static void feed_entry(struct splitter *splitter, const struct normal_entry *entry)
{
    if (entry->kind != NORMAL_TEXT) { end_word(splitter); }
    if (entry->kind == NORMAL_SPACE) { return; }
    if (++splitter->characters <= splitter->tokenizer->wordpiece.max_characters) {
        memcpy(splitter->word + splitter->length, entry->bytes, sizeof entry->bytes);
        splitter->length += entry->length;
    }
    if (entry->kind == NORMAL_ISOLATED) { end_word(splitter); }
}

/* Splits text[from..until), valid UTF-8, until it ends or there are more ids than room. As part of its caller it is
 * slower by a fifth. */
__attribute__((noinline)) static void feed_splitter(struct splitter *splitter, const char *text, size_t from,
                                                    size_t until)
{
    const struct normal_entry *table = splitter->normalizer->table;
    while (from < until && !id_sink_full(splitter->sink)) {
        uint32_t code_point = utf8_next(text, &from);
        if (code_point >= NORMAL_TABLE || table[code_point].kind == NORMAL_COMPLEX) {
            feed_slowly(splitter, code_point);
        } else if (table[code_point].kind != NORMAL_NOTHING) {
            feed_entry(splitter, &table[code_point]);
        }
    }
}

/* The usual way: all added tokens are looked for in the text as it is. */
static enum status encode_stream(struct splitter *splitter, const char *text, size_t length, struct err *err)
{
    struct added_cuts cuts = {&splitter->tokenizer->raw, text, length};
    while (cuts.at < length && !id_sink_full(splitter->sink)) {
        size_t at = cuts.at, window = length - at < WINDOW_BYTES ? length - at : WINDOW_BYTES;
        size_t until = at + utf8_valid_prefix(text + at, window);
        if (until == at) { return err_set(err, STATUS_BAD_INPUT, "the text is not valid UTF-8 at byte %zu", at); }
        struct added_cut cut = added_cuts_next(&cuts, until);
        feed_splitter(splitter, text, cut.from, cut.until);
        if (!cut.token || id_sink_full(splitter->sink)) { continue; }
        end_word(splitter);
        id_sink_put_text(splitter->sink, cut.token->id, NULL, 0);
    }
    end_word(splitter);
    return STATUS_OK;
}

static enum status encode_words(const struct tokenizer *tokenizer, struct id_sink *sink, const char *text,
                                size_t length, struct err *err)
{
    struct splitter splitter; /* not zeroed: the word is large and written before it is read */
    splitter.tokenizer = tokenizer;
    splitter.normalizer = tokenizer->normalizer;
    splitter.sink = sink;
    splitter.length = splitter.characters = splitter.run_start = 0;
    splitter.run_end = SIZE_MAX;
    return encode_stream(&splitter, text, length, err);
}

enum status tokenizer_run_pipeline(const struct tokenizer *tokenizer, struct id_sink *sink, const char *text,
                                   size_t length, struct err *err)
{
    struct pipeline_run run = {.pipeline = &tokenizer->pipeline,
                               .raw = &tokenizer->raw,
                               .normalized = &tokenizer->normalized,
                               .encode = tokenizer->model->encode,
                               .tokenizer = tokenizer,
                               .sink = sink};
    enum status status = pipeline_encode(&run, text, length, err);
    pipeline_end(&run);
    return status;
}

static void put_ids(int32_t *ids, uint32_t *count, const int32_t *from, uint32_t from_count)
{
    if (from_count > 0) { memcpy(ids + *count, from, from_count * sizeof *ids); }
    *count += from_count;
}

static void put_specials(int32_t *ids, uint32_t *count, const struct special_ids *specials)
{
    put_ids(ids, count, specials->ids, specials->count);
}

static uint32_t count_specials(const struct special_ids *specials, size_t places)
{
    uint32_t count = 0;
    for (size_t i = 0; i < places; i++) { count += specials[i].count; }
    return count;
}

enum status tokenizer_check_known(const struct tokenizer *tokenizer, const int32_t *ids, uint32_t count,
                                  struct err *err)
{
    if (tokenizer->words == 0 || tokenizer->words >= tokenizer->vocabulary) { return STATUS_OK; }
    for (uint32_t i = 0; i < count; i++) {
        if ((uint32_t)ids[i] >= tokenizer->words) {
            return err_set(err, STATUS_BAD_INPUT, "the text has a token with the id %d, and the model has %u words",
                           ids[i], tokenizer->words);
        }
    }
    return STATUS_OK;
}

enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length, uint32_t max_tokens,
                             int32_t *ids, uint32_t *count, bool *truncated, struct err *err)
{
    const struct special_ids *single = tokenizer->specials.single;
    uint32_t fixed = count_specials(single, 2);
    *count = 0;
    *truncated = false;
    if (max_tokens < fixed) {
        return err_set(err, STATUS_BAD_INPUT, "max_tokens %u has no room for the %u special tokens", max_tokens, fixed);
    }
    put_specials(ids, count, &single[0]);
    struct id_sink sink = {.ids = ids + *count, .room = max_tokens - fixed};
    bool stream = tokenizer->normalizer && !tokenizer->normalized.trie;
    enum status status = stream ? encode_words(tokenizer, &sink, text, length, err)
                                : tokenizer_run_pipeline(tokenizer, &sink, text, length, err);
    if (status != STATUS_OK) {
        *count = 0;
        return status;
    }
    *truncated = id_sink_full(&sink);
    *count += (uint32_t)(*truncated ? sink.room : sink.count);
    put_specials(ids, count, &single[1]);
    status = tokenizer_check_known(tokenizer, ids, *count, err);
    if (status != STATUS_OK) { *count = 0; }
    return status;
}

static size_t bound_of_text(const struct tokenizer *tokenizer, size_t bytes)
{
    return bytes * tokenizer->growth + tokenizer->more;
}

size_t tokenizer_bound(const struct tokenizer *tokenizer, size_t bytes)
{
    return bound_of_text(tokenizer, bytes) + count_specials(tokenizer->specials.single, 2);
}

const char *tokenizer_type(const struct tokenizer *tokenizer)
{
    return tokenizer->model->type;
}

uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
    return tokenizer->vocabulary;
}

enum status tokenizer_fit(struct tokenizer *tokenizer, uint32_t words, struct err *err)
{
    if (tokenizer->own > words) {
        return err_set(err, STATUS_BAD_INPUT, "the tokenizer has %u entries, above vocab_size %u of config.json",
                       tokenizer->own, words);
    }
    for (int i = 0; i < 2; i++) {
        const struct special_ids *specials = &tokenizer->specials.single[i];
        for (uint32_t j = 0; j < specials->count; j++) {
            if ((uint32_t)specials->ids[j] < words) { continue; }
            return err_set(err, STATUS_BAD_INPUT,
                           "the tokenizer puts a token beside each text whose id %d is not below vocab_size %u of "
                           "config.json",
                           specials->ids[j], words);
        }
    }
    tokenizer->words = words;
    return STATUS_OK;
}

uint32_t tokenizer_max_tokens(const struct tokenizer *tokenizer)
{
    return tokenizer->max_tokens;
}

const char *tokenizer_class_of_model(const struct tokenizer *tokenizer)
{
    return tokenizer->class_name;
}

bool tokenizer_lowercases(const struct tokenizer *tokenizer)
{
    return pipeline_lowercases(&tokenizer->pipeline);
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer) { return; }
    for (size_t i = 0; i < tokenizer->added_count; i++) { free(tokenizer->added[i].content); }
    free(tokenizer->added);
    added_set_close(&tokenizer->raw);
    added_set_close(&tokenizer->normalized);
    trie_close(tokenizer->trie);
    decode_chain_free(&tokenizer->decode);
    decode_tokens_free(&tokenizer->tokens);
    pipeline_free(&tokenizer->pipeline);
    unigram_close(tokenizer->unigram);
    bpe_close(tokenizer->bpe);
    normalizer_close(tokenizer->normalizer);
    free(tokenizer);
}

/* From a spec to a tokenizer: ids are checked here, once, so that encoding needs no checks. */

void tokenizer_spec_free(struct tokenizer_spec *spec)
{
    for (size_t i = 0; i < spec->vocabulary_count; i++) { free(spec->vocabulary[i].token); }
    for (size_t i = 0; i < spec->added_count; i++) { free(spec->added[i].content); }
    free(spec->vocabulary);
    free(spec->added);
    free(spec->unknown);
    free(spec->continuing);
    free(spec->merges);
    free(spec->merge_text);
    pipeline_free(&spec->pipeline);
    decode_chain_free(&spec->decode);
    *spec = (struct tokenizer_spec){0};
}

static int compare_ids(const void *a, const void *b)
{
    const struct vocabulary_entry *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static enum status check_ids(struct tokenizer_spec *spec, struct err *err)
{
    if (spec->vocabulary_count == 0) {
        return err_set(err, STATUS_BAD_INPUT, "%s: the vocabulary is empty", spec->file);
    }
    qsort(spec->vocabulary, spec->vocabulary_count, sizeof *spec->vocabulary, compare_ids);
    for (size_t i = 1; i < spec->vocabulary_count; i++) {
        if (spec->vocabulary[i - 1].id == spec->vocabulary[i].id) {
            return err_set(err, STATUS_BAD_INPUT, "%s: two tokens of the vocabulary have the id %d", spec->file,
                           spec->vocabulary[i].id);
        }
    }
    return STATUS_OK;
}

struct trie_key *tokenizer_keys(const struct tokenizer_spec *spec)
{
    struct trie_key *keys = calloc(spec->vocabulary_count, sizeof *keys);
    for (size_t i = 0; keys && i < spec->vocabulary_count; i++) {
        const struct vocabulary_entry *entry = &spec->vocabulary[i];
        keys[i] = (struct trie_key){entry->token, strlen(entry->token), entry->id};
    }
    return keys;
}

enum status tokenizer_build_trie(struct tokenizer *tokenizer, const struct tokenizer_spec *spec, struct err *err)
{
    struct trie_key *keys = tokenizer_keys(spec);
    if (!keys) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu tokens", spec->vocabulary_count); }
    enum status status = trie_build(keys, spec->vocabulary_count, &tokenizer->trie, err);
    free(keys);
    return status == STATUS_OK ? STATUS_OK : err_prefix(err, "%s: model.vocab", spec->file);
}

static enum status build_wordpiece(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    struct wordpiece *model = &tokenizer->wordpiece;
    TRY(tokenizer_build_trie(tokenizer, spec, err));
    model->vocabulary = tokenizer->trie;
    model->unknown = trie_find(model->vocabulary, spec->unknown, strlen(spec->unknown));
    if (model->unknown == TRIE_NONE) {
        return err_set(err, STATUS_BAD_INPUT, "%s: the unknown token \"%.100s\" (unk_token) is not in the vocabulary",
                       spec->file, spec->unknown);
    }
    model->continuing = trie_walk(model->vocabulary, TRIE_ROOT, spec->continuing, strlen(spec->continuing));
    if (spec->max_characters > WORDPIECE_MAX_CHARACTERS) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: max_input_chars_per_word %u is above %d", spec->file,
                       spec->max_characters, WORDPIECE_MAX_CHARACTERS);
    }
    model->max_characters = spec->max_characters;
    tokenizer->normalizer = normalizer_open(spec->normalizer);
    return tokenizer->normalizer ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a normalizer");
}

static bool encode_word(const struct tokenizer *tokenizer, struct piece piece, struct buffer *scratch,
                        struct id_sink *sink)
{
    size_t characters = 0;
    (void)scratch;
    for (size_t at = 0; at < piece.length; characters++) { utf8_next(piece.bytes, &at); }
    wordpiece_encode(&tokenizer->wordpiece, piece.bytes, piece.length, characters, sink);
    return true;
}

const struct tokenizer_model tokenizer_wordpiece = {
    .type = "WordPiece", .read = tokenizer_json_wordpiece, .build = build_wordpiece, .encode = encode_word};

/* After ByteLevel, text is bytes, which only BPE accepts. */
static enum status check_byte_level(const struct tokenizer_spec *spec, struct err *err)
{
    const struct pipeline *pipeline = &spec->pipeline;
    bool bpe = spec->model == &tokenizer_bpe, there = false;
    for (size_t i = 0; i < pipeline->split_count; i++) {
        bool here = pipeline->split[i].kind == SPLIT_BYTE_LEVEL;
        if (there || (here && !bpe)) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: pre_tokenizer: ByteLevel must be the last step before BPE",
                           spec->file);
        }
        there = here;
    }
    if (bpe && !there && !spec->byte_fallback) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: BPE with neither ByteLevel nor byte_fallback is not supported",
                       spec->file);
    }
    return STATUS_OK;
}

static enum status build_model(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    TRY(check_byte_level(spec, err));
    TRY(check_ids(spec, err));
    tokenizer->vocabulary = tokenizer->own = (uint32_t)spec->vocabulary[spec->vocabulary_count - 1].id + 1;
    tokenizer->model = spec->model;
    tokenizer->pipeline = spec->pipeline;
    spec->pipeline = (struct pipeline){0};
    if (spec->model == &tokenizer_wordpiece) { TRY(pipeline_set_bert(&tokenizer->pipeline, &spec->normalizer, err)); }
    pipeline_prepare(&tokenizer->pipeline);
    return spec->model->build(tokenizer, spec, err);
}

/* Finds the ids that the vocabulary has for added tokens; -1 for the others. Shapes: ids [added_count].
 * Owns: the caller frees `*out`, the trie of the added tokens. */
static enum status find_added(const struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                              struct trie_key *keys, int32_t *ids, struct trie **out, struct err *err)
{
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        keys[i] = (struct trie_key){tokenizer->added[i].content, tokenizer->added[i].length, (int32_t)i};
        ids[i] = -1;
    }
    TRY(trie_build(keys, tokenizer->added_count, out, err));
    for (size_t i = 0; i < spec->vocabulary_count; i++) {
        const struct vocabulary_entry *entry = &spec->vocabulary[i];
        int32_t which = trie_find(*out, entry->token, strlen(entry->token));
        if (which != TRIE_NONE) { ids[which] = entry->id; }
    }
    return STATUS_OK;
}

/* The package numbers added tokens itself, by the vocabulary and then upwards from its size. A file with other ids is
 * not the one that the model was trained with. */
static enum status check_added_ids(struct tokenizer *tokenizer, const struct tokenizer_spec *spec, const int32_t *ids,
                                   struct err *err)
{
    int32_t next = (int32_t)(spec->vocabulary_count + spec->empty_tokens);
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        struct added_token *token = &tokenizer->added[i];
        int32_t id = ids[i] < 0 ? next++ : ids[i];
        if (token->id < 0) { token->id = id; }
        if (token->id != id) {
            return err_set(err, STATUS_BAD_INPUT, "the added token \"%.100s\" says it is id %d but is numbered %d",
                           token->content, token->id, id);
        }
        if ((uint32_t)id >= tokenizer->vocabulary) { tokenizer->vocabulary = (uint32_t)id + 1; }
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
        if (token->normalized != normalized) { continue; }
        keys[count] = (struct trie_key){token->content, token->length, (int32_t)i};
        if (normalized) {
            pipeline_normalize(&tokenizer->pipeline, token->content, token->length, &texts[i]);
            pipeline_prepare_token(&tokenizer->pipeline, token, texts[i].data, texts[i].length);
            if (!buffer_ok(&texts[i])) { return err_set(err, STATUS_NO_MEMORY, "no memory for added tokens"); }
            keys[count].bytes = texts[i].data;
            keys[count].length = texts[i].length;
        }
        size_t first = 0;
        if (keys[count].length > 0) { utf8_next(keys[count].bytes, &first); }
        tokenizer->letters |= first == keys[count].length;
        count++;
    }
    return added_set_build(set, tokenizer->added, keys, count, err);
}

static enum status build_added(struct tokenizer *tokenizer, const struct tokenizer_spec *spec, struct err *err)
{
    size_t count = tokenizer->added_count;
    struct trie_key *keys = calloc(count + 1, sizeof *keys);
    struct buffer *texts = calloc(count + 1, sizeof *texts);
    int32_t *ids = calloc(count + 1, sizeof *ids);
    struct trie *names = NULL;
    enum status status = STATUS_NO_MEMORY;
    if (keys && texts && ids) {
        status = find_added(tokenizer, spec, keys, ids, &names, err);
    } else {
        err_set(err, status, "no memory for %zu added tokens", count);
    }
    if (status == STATUS_OK) { status = check_added_ids(tokenizer, spec, ids, err); }
    if (status == STATUS_OK) { status = build_set(tokenizer, false, keys, texts, &tokenizer->raw, err); }
    if (status == STATUS_OK) { status = build_set(tokenizer, true, keys, texts, &tokenizer->normalized, err); }
    if (status == STATUS_OK) {
        status = decode_tokens_copy(spec, tokenizer->added, count, texts, names, &tokenizer->tokens, err);
    }
    trie_close(names);
    for (size_t i = 0; texts != NULL && i < count; i++) { buffer_free(&texts[i]); }
    free(texts);
    free(keys);
    free(ids);
    return status == STATUS_OK ? STATUS_OK : err_prefix(err, "%s: added_tokens", spec->file);
}

static enum status check_specials(const struct tokenizer *tokenizer, const struct special_ids *specials, size_t places,
                                  const char *file, struct err *err)
{
    for (size_t place = 0; place < places; place++) {
        for (uint32_t i = 0; i < specials[place].count; i++) {
            int32_t id = specials[place].ids[i];
            if (id < 0 || (uint32_t)id >= tokenizer->vocabulary) {
                return err_set(err, STATUS_BAD_INPUT, "%s: post_processor: the id %d is not below the vocabulary's %u",
                               file, id, tokenizer->vocabulary);
            }
        }
    }
    return STATUS_OK;
}

/* Sets the bound on the ids of a text. Every id of a pipeline's model stands for a character, or for a byte.
 * WordPiece: no character becomes more characters than it has bytes (make_unicode_tables.py checks it for each), and
 * every id stands for at least one character of the normalised text. Blanks around CJK, which the count leaves out, may
 * become ids if an added token is a blank: three for a character of at least three bytes. */
static void set_bound(struct tokenizer *tokenizer, const struct tokenizer_spec *spec)
{
    tokenizer->growth = 1;
    if (tokenizer->normalizer) { return; }
    bool bytes = spec->model == &tokenizer_bpe || spec->byte_fallback;
    tokenizer->more = pipeline_growth(&tokenizer->pipeline, bytes, tokenizer->letters, &tokenizer->growth);
}

static enum status build_all(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err)
{
    tokenizer->raw.only_start = tokenizer->normalized.only_start = -1;
    TRY(build_model(tokenizer, spec, err));
    tokenizer->added = spec->added;
    tokenizer->added_count = spec->added_count;
    spec->added = NULL;
    spec->added_count = 0;
    TRY(build_added(tokenizer, spec, err));
    set_bound(tokenizer, spec);
    tokenizer->decode = spec->decode;
    spec->decode = (struct decode_chain){0};
    tokenizer->specials = spec->around == AROUND_FILE
                              ? spec->specials
                              : tokenizer_template_around(spec->around, tokenizer->added[spec->first].id,
                                                          tokenizer->added[spec->last].id);
    tokenizer->specials.trim = spec->specials.trim;
    TRY(check_specials(tokenizer, tokenizer->specials.single, 2, spec->file, err));
    tokenizer->specials.pair_is_strange |=
        check_specials(tokenizer, tokenizer->specials.pair, 3, spec->file, NULL) != STATUS_OK;
    return STATUS_OK;
}

enum status tokenizer_build(struct tokenizer_spec *spec, struct tokenizer **out, struct err *err)
{
    *out = NULL;
    struct tokenizer *tokenizer = calloc(1, sizeof *tokenizer);
    if (!tokenizer) { return err_set(err, STATUS_NO_MEMORY, "no memory for a tokenizer"); }
    enum status status = build_all(tokenizer, spec, err);
    if (status == STATUS_OK) {
        *out = tokenizer;
    } else {
        tokenizer_close(tokenizer);
    }
    return status;
}

/* Opening a tokenizer's files. */

#define MAX_FILE_BYTES ((size_t)64 << 20)

static enum status read_merges(const char *directory, const struct buffer *merges, const struct tokenizer_class *class,
                               const struct tokenizer_files *files, struct tokenizer_spec *spec, struct err *err)
{
    cJSON *vocabulary = NULL;
    enum status status = json_read(directory, "vocab.json", MAX_FILE_BYTES, &vocabulary, err);
    if (status == STATUS_OK) {
        status = tokenizer_merges_parse(vocabulary, merges->data, merges->length, class, files, spec, err);
    }
    cJSON_Delete(vocabulary);
    return status;
}

/* Reads the first of the three files that exists. */
static enum status read_spec(const char *directory, const struct tokenizer_files *files, struct tokenizer_spec *spec,
                             struct err *err)
{
    enum { JSON, VOCAB, MERGES, FILES };
    static const char *const names[FILES] = {"tokenizer.json", "vocab.txt", "merges.txt"};
    const struct tokenizer_class *class = NULL;
    struct buffer text = {0};
    enum status status = STATUS_NOT_FOUND;
    int which = JSON;
    for (; which < FILES && status == STATUS_NOT_FOUND; which += status == STATUS_NOT_FOUND) {
        status = file_read_in(directory, names[which], MAX_FILE_BYTES, &text, err);
    }
    if (which == FILES) {
        status = err_set(err, status,
                         "%s has neither tokenizer.json, vocab.txt nor merges.txt (a SentencePiece model is not read: "
                         "save it as tokenizer.json, as transformers does)",
                         directory);
    }
    if (status == STATUS_OK) { status = tokenizer_class_find(files, which == JSON ? NULL : names[which], &class, err); }
    if (status == STATUS_OK && which == JSON) {
        status = tokenizer_json_parse(text.data, text.length, class, files, spec, err);
    } else if (status == STATUS_OK && which == VOCAB) {
        status = tokenizer_vocab_parse(text.data, text.length, class, files, spec, err);
    } else if (status == STATUS_OK) {
        status = read_merges(directory, &text, class, files, spec, err);
    }
    buffer_free(&text);
    return status;
}

enum status tokenizer_open(const char *directory, struct tokenizer **out, struct err *err)
{
    enum { CONFIG, MAP, ADDED, MODEL, FILES };
    static const char *const names[FILES] = {"tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
                                             "config.json"};
    cJSON *json[FILES] = {NULL};
    struct tokenizer_config config;
    struct tokenizer_spec spec = {0};
    enum status status = STATUS_OK;
    *out = NULL;
    for (int i = 0; i < FILES && status == STATUS_OK; i++) {
        status = json_read(directory, names[i], MAX_FILE_BYTES, &json[i], err);
        status = status == STATUS_NOT_FOUND ? STATUS_OK : status; /* it need not exist */
    }
    if (status == STATUS_OK) { status = tokenizer_config_parse(json[CONFIG], &config, err); }
    const struct tokenizer_files files = {json[CONFIG], json[MAP], json[ADDED], json[MODEL]};
    if (status == STATUS_OK) { status = read_spec(directory, &files, &spec, err); }
    if (status == STATUS_OK) { status = tokenizer_build(&spec, out, err); }
    if (status == STATUS_OK) {
        const char *named = json_field(json[CONFIG], "tokenizer_class")
                                ? NULL
                                : cJSON_GetStringValue(json_field(json[MODEL], "tokenizer_class"));
        snprintf((*out)->class_name, sizeof(*out)->class_name, "%s", named ? named : "");
        (*out)->max_tokens = config.max_tokens;
    }
    tokenizer_spec_free(&spec);
    for (int i = 0; i < FILES; i++) { cJSON_Delete(json[i]); }
    return status;
}

/* Pairs. The lengths are those of truncate_encodings in `tokenizers` 0.22: the longer text is cut until both are equal;
 * if the room is odd, the longer one, or the second one if they are equal, has one more. */
static void cut_longest_first(uint32_t room, uint32_t *query, uint32_t *text)
{
    uint32_t *less = *query > *text ? text : query, *more = *query > *text ? query : text;
    if (*less <= room && *more <= room - *less) { return; }
    if (*less <= room / 2) {
        *more = room - *less;
    } else {
        *less = room / 2;
        *more = *less + room % 2;
    }
}

enum status tokenizer_encode_whole(const struct tokenizer *tokenizer, const char *text, size_t length, int32_t **ids,
                                   uint32_t *count, struct err *err)
{
    size_t bound = tokenizer_bound(tokenizer, length);
    uint32_t most = bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
    bool truncated;
    *ids = malloc((most + (size_t)1) * sizeof **ids);
    if (!*ids) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", most); }
    enum status status = tokenizer_encode(tokenizer, text, length, most, *ids, count, &truncated, err);
    if (status != STATUS_OK) {
        free(*ids);
        *ids = NULL;
        return status;
    }
    *count -= count_specials(tokenizer->specials.single, 2);
    memmove(*ids, *ids + tokenizer->specials.single[0].count, *count * sizeof **ids);
    return STATUS_OK;
}

size_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text, size_t length)
{
    size_t first = length;
    for (size_t i = 0; i < tokenizer->added_count; i++) {
        const struct added_token *token = &tokenizer->added[i];
        if (!token->special || token->length == 0 || length == 0) { continue; }
        const char *at = memmem(text, length, token->content, token->length);
        if (at && (size_t)(at - text) < first) { first = (size_t)(at - text); }
    }
    return first;
}

size_t tokenizer_pair_bound(const struct tokenizer *tokenizer, uint32_t query_count, size_t bytes)
{
    return bound_of_text(tokenizer, bytes) + query_count + count_specials(tokenizer->specials.pair, 3);
}

bool tokenizer_pairs(const struct tokenizer *tokenizer, bool *types)
{
    *types = tokenizer->specials.pair_types;
    return !tokenizer->specials.pair_is_strange;
}

/* Reads only as much of the second text as decides which of the two is longer. */
enum status tokenizer_encode_pair(const struct tokenizer *tokenizer, const int32_t *query, uint32_t query_count,
                                  const char *text, size_t length, uint32_t max_tokens, int32_t *ids, uint32_t *count,
                                  uint32_t *second, bool *truncated, struct err *err)
{
    const struct tokenizer_template *specials = &tokenizer->specials;
    uint32_t fixed = count_specials(specials->single, 2), extra = count_specials(specials->pair, 3);
    *count = *second = 0;
    if (max_tokens < extra) {
        return err_set(err, STATUS_BAD_INPUT, "max_tokens %u has no room for the %u special tokens of a pair",
                       max_tokens, extra);
    }
    uint32_t room = max_tokens - extra;
    size_t bound = tokenizer_bound(tokenizer, length),
           look = (size_t)(room > query_count ? room : query_count) + 1 + fixed;
    uint32_t most = (uint32_t)(bound < look ? bound : look), own_count;
    int32_t *own = malloc((most + (size_t)1) * sizeof *own);
    if (!own) { return err_set(err, STATUS_NO_MEMORY, "no memory for %u ids", most); }
    bool more;
    enum status status = tokenizer_encode(tokenizer, text, length, most, own, &own_count, &more, err);
    if (status == STATUS_OK) {
        uint32_t kept = query_count, own_kept = own_count - fixed;
        cut_longest_first(room, &kept, &own_kept);
        *truncated = kept < query_count || own_kept < own_count - fixed;
        put_specials(ids, count, &specials->pair[0]);
        put_ids(ids, count, query, kept);
        *second = *count + specials->second;
        put_specials(ids, count, &specials->pair[1]);
        put_ids(ids, count, own + specials->single[0].count, own_kept);
        put_specials(ids, count, &specials->pair[2]);
    }
    free(own);
    return status;
}

/* Reads tokenizer.json. Every part that changes ids must be known here, field by field, or the file is refused.
 * `padding` and `truncation` are left to the caller; a `decoder` that is not known is refused when ids are decoded. */
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/spec.h"

#define JSON_FILE "tokenizer.json"
#define CONFIG_FILE "tokenizer_config.json"
#define VOCAB_FILE "vocab.txt"
#define MERGES_FILE "merges.txt"

enum status fields_need(const cJSON *object, const char *path, const char *field, const cJSON **value, struct err *err)
{
    *value = json_field(object, field);
    if (!*value) { return err_set(err, STATUS_BAD_INPUT, "%s: %s is missing", path, field); }
    return STATUS_OK;
}

enum status fields_bool(const cJSON *object, const char *path, const char *field, bool *value, struct err *err)
{
    const cJSON *found;
    TRY(fields_need(object, path, field, &found, err));
    return json_bool(object, path, field, value, err);
}

enum status fields_string(const cJSON *object, const char *path, const char *field, const char **value, struct err *err)
{
    const cJSON *found;
    TRY(fields_need(object, path, field, &found, err));
    return json_string(object, path, field, value, err);
}

enum status fields_id(const cJSON *value, const char *path, int32_t *id, struct err *err)
{
    uint64_t number;
    if (!json_whole(value, &number) || number >= INT32_MAX) {
        return err_set(err, STATUS_BAD_INPUT, "%s must be a whole number below %d", path, INT32_MAX);
    }
    *id = (int32_t)number;
    return STATUS_OK;
}

/* Refuses a part whose `type` is not the expected one; a part that is NULL has the type "null".
 * Errors: STATUS_UNSUPPORTED; STATUS_BAD_INPUT when there is no type. */
static enum status fields_type(const cJSON *object, const char *path, const char *expected, struct err *err)
{
    const char *type = "null";
    TRY(object ? fields_string(object, path, "type", &type, err) : STATUS_OK);
    if (strcmp(type, expected) != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported (%s is)", path, type, expected);
    }
    return STATUS_OK;
}

/* tokenizer_config.json, except the fields that the classes read (classes.c). */

static enum status read_switch(const cJSON *json, const char *field, int *value, struct err *err)
{
    bool on = false;
    *value = -1;
    TRY(json_bool(json, CONFIG_FILE, field, &on, err));
    if (json_field(json, field)) { *value = on; }
    return STATUS_OK;
}

/* Files without a limit say 1e30. */
static enum status read_limit(const cJSON *json, uint32_t *limit, struct err *err)
{
    /* The older name counts only if the newer one is absent; a null counts as present. */
    const char *field = cJSON_GetObjectItemCaseSensitive(json, "model_max_length") ? "model_max_length" : "max_len";
    double number = 0;
    TRY(json_double(json, CONFIG_FILE, field, &number, err));
    if (!json_field(json, field) || number >= INT32_MAX) { return STATUS_OK; }
    return json_u32(json, CONFIG_FILE, field, 1, INT32_MAX, limit, err);
}

/* Refuses settings that change ids in ways that are not supported. */
static enum status check_unsupported(const cJSON *json, struct err *err)
{
    const char *side = "right";
    int split = -1, basic = -1;
    TRY(json_string(json, CONFIG_FILE, "truncation_side", &side, err));
    if (strcmp(side, "right") != 0) {
        return err_set(err, STATUS_UNSUPPORTED, CONFIG_FILE ": truncation_side %.100s is not supported", side);
    }
    TRY(read_switch(json, "split_special_tokens", &split, err));
    if (split == 1) { return err_set(err, STATUS_UNSUPPORTED, CONFIG_FILE ": split_special_tokens is not supported"); }
    TRY(read_switch(json, "do_basic_tokenize", &basic, err));
    if (basic == 0) {
        return err_set(err, STATUS_UNSUPPORTED, CONFIG_FILE ": do_basic_tokenize false is not supported");
    }
    return STATUS_OK;
}

enum status tokenizer_config_parse(const cJSON *json, struct tokenizer_config *config, struct err *err)
{
    *config = (struct tokenizer_config){0};
    if (!json) { return STATUS_OK; }
    if (!cJSON_IsObject(json)) { return err_set(err, STATUS_BAD_INPUT, CONFIG_FILE " must be an object"); }
    TRY(read_limit(json, &config->max_tokens, err));
    return check_unsupported(json, err);
}

/* Templates. */

static struct tokenizer_template roberta_template(int32_t first, int32_t last)
{
    return (struct tokenizer_template){
        .single = {{{first}, 1}, {{last}, 1}}, .pair = {{{first}, 1}, {{last, last}, 2}, {{last}, 1}}, .second = 2};
}

static struct tokenizer_template bert_template(int32_t first, int32_t last)
{
    struct tokenizer_template specials = roberta_template(first, last);
    specials.pair[1].count = specials.second = 1;
    specials.pair_types = true;
    return specials;
}

struct tokenizer_template tokenizer_template_around(enum tokenizer_around around, int32_t first, int32_t last)
{
    return around == AROUND_BERT ? bert_template(first, last) : roberta_template(first, last);
}

/* The post-processor of tokenizer.json: the special tokens around a text and around those of a pair. */

static enum status put_special(struct special_ids *specials, int32_t id, struct err *err)
{
    if (specials->count == TOKENIZER_MAX_SPECIALS) {
        return err_set(err, STATUS_UNSUPPORTED, JSON_FILE ": post_processor has more than %d special tokens",
                       TOKENIZER_MAX_SPECIALS);
    }
    specials->ids[specials->count++] = id;
    return STATUS_OK;
}

/* One {"SpecialToken": {"id", "type_id"}}: its ids are in `special_tokens`. */
static enum status read_special_piece(const cJSON *piece, const cJSON *tokens, struct special_ids *specials,
                                      struct err *err)
{
    const char *path = JSON_FILE ": post_processor", *name = NULL;
    TRY(fields_string(piece, path, "id", &name, err));
    const cJSON *ids = json_field(json_field(tokens, name), "ids"), *child;
    if (!cJSON_IsArray(ids)) {
        return err_set(err, STATUS_BAD_INPUT, JSON_FILE ": post_processor.special_tokens has no ids for %.100s", name);
    }
    cJSON_ArrayForEach(child, ids)
    {
        int32_t id = 0;
        TRY(fields_id(child, JSON_FILE ": post_processor.special_tokens: ids", &id, err));
        TRY(put_special(specials, id, err));
    }
    return STATUS_OK;
}

/* Every token of a single text must have type 0: that is what the engine gives it. */
static enum status read_single(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = JSON_FILE ": post_processor.single", *name = NULL;
    const cJSON *single = json_field(part, "single"), *tokens = json_field(part, "special_tokens"), *child;
    bool behind = false;
    if (!cJSON_IsArray(single)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an array", path); }
    cJSON_ArrayForEach(child, single)
    {
        const cJSON *sequence = json_field(child, "Sequence"), *special = json_field(child, "SpecialToken");
        uint32_t type = 0;
        TRY(json_u32(sequence ? sequence : special, path, "type_id", 0, UINT32_MAX, &type, err));
        if (type != 0) { return err_set(err, STATUS_UNSUPPORTED, "%s: type_id %u is not supported", path, type); }
        if (special && !sequence) {
            TRY(read_special_piece(special, tokens, &spec->specials.single[behind], err));
            continue;
        }
        TRY(fields_string(sequence, path, "id", &name, err));
        if (behind || strcmp(name, "A") != 0) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: must have the sequence A once and no other", path);
        }
        behind = true;
    }
    return behind ? STATUS_OK : err_set(err, STATUS_UNSUPPORTED, "%s: has no place for the text", path);
}

/* Types must be 0, and from some place between the texts on they may be 1. Another kind of pair cannot be served, but
 * that matters only to rerankers. */
static enum status read_pair(const cJSON *part, struct tokenizer_template *specials, struct err *err)
{
    static const char *const names[] = {"A", "B"};
    const char *path = JSON_FILE ": post_processor.pair", *name = NULL;
    const cJSON *tokens = json_field(part, "special_tokens"), *child;
    uint32_t place = 0, type = 0, before = 0;
    cJSON_ArrayForEach(child, json_field(part, "pair"))
    {
        const cJSON *sequence = json_field(child, "Sequence"), *special = json_field(child, "SpecialToken");
        TRY(json_u32(sequence ? sequence : special, path, "type_id", 0, UINT32_MAX, &type, err));
        if (type != before) {
            specials->pair_is_strange |= type != 1 || place != 1;
            specials->pair_types = true;
            specials->second = specials->pair[1].count;
        }
        before = type;
        if (special && !sequence) {
            enum status status = read_special_piece(special, tokens, &specials->pair[place], err);
            if (status == STATUS_OK) { continue; }
            specials->pair_is_strange = true;
            return status == STATUS_UNSUPPORTED ? STATUS_OK : status;
        }
        TRY(fields_string(sequence, path, "id", &name, err));
        if (place == 2 || strcmp(name, names[place]) != 0) {
            specials->pair_is_strange = true;
            return STATUS_OK;
        }
        place++;
    }
    specials->pair_is_strange |= place != 2;
    return STATUS_OK;
}

/* BertProcessing and RobertaProcessing: "cls" and "sep" are pairs of a token and its id. */
static enum status read_end(const cJSON *part, const char *field, int32_t *id, struct err *err)
{
    const cJSON *end = json_field(part, field);
    if (!cJSON_IsArray(end) || cJSON_GetArraySize(end) != 2) {
        return err_set(err, STATUS_BAD_INPUT, JSON_FILE ": post_processor: %s must be [token, id]", field);
    }
    return fields_id(cJSON_GetArrayItem(end, 1), JSON_FILE ": post_processor: an id", id, err);
}

/* Notes that a step trims offsets. */
static enum status read_trim(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = JSON_FILE ": post_processor";
    bool trims = true, prefix = true;
    TRY(json_bool(part, path, "trim_offsets", &trims, err));
    TRY(json_bool(part, path, "add_prefix_space", &prefix, err));
    enum trim trim = prefix ? TRIM_BUT_FIRST : TRIM_ALL;
    if (trims) { spec->specials.trim = spec->specials.trim == TRIM_NOTHING ? trim : TRIM_TWICE; }
    return STATUS_OK;
}

/* ByteLevel only moves offsets, and a Sequence is one step after the other: besides ByteLevel it may have one step. */
static enum status read_processors(const cJSON *list, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = JSON_FILE ": post_processor.processors", *type = NULL;
    const cJSON *child, *only = NULL;
    if (!cJSON_IsArray(list)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an array", path); }
    cJSON_ArrayForEach(child, list)
    {
        TRY(fields_string(child, path, "type", &type, err));
        if (strcmp(type, "ByteLevel") == 0) {
            TRY(read_trim(child, spec, err));
            continue;
        }
        if (only || strcmp(type, "Sequence") == 0) {
            return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported there", path, type);
        }
        only = child;
    }
    return tokenizer_json_template(only, spec, err);
}

enum status tokenizer_json_template(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = JSON_FILE ": post_processor", *type = "ByteLevel"; /* which adds nothing */
    int32_t first = 0, last = 0;
    if (part) { TRY(fields_string(part, path, "type", &type, err)); }
    if (strcmp(type, "Sequence") == 0) { return read_processors(json_field(part, "processors"), spec, err); }
    spec->specials.pair_types = strcmp(type, "ByteLevel") == 0;
    if (spec->specials.pair_types) { return part ? read_trim(part, spec, err) : STATUS_OK; }
    if (strcmp(type, "TemplateProcessing") == 0) {
        TRY(read_single(part, spec, err));
        return read_pair(part, &spec->specials, err);
    }
    bool bert = strcmp(type, "BertProcessing") == 0;
    if (!bert && strcmp(type, "RobertaProcessing") != 0) {
        return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported", path, type);
    }
    TRY(read_end(part, "cls", &first, err));
    TRY(read_end(part, "sep", &last, err));
    if (!bert) { TRY(read_trim(part, spec, err)); }
    enum trim trim = spec->specials.trim;
    spec->specials = bert ? bert_template(first, last) : roberta_template(first, last);
    spec->specials.trim = trim;
    return STATUS_OK;
}

static enum status read_normalizer(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",          "clean_text", "handle_chinese_chars",
                                        "strip_accents", "lowercase",  NULL};
    const char *path = JSON_FILE ": normalizer";
    struct normalizer_options *options = &spec->normalizer;
    if (!part) { return STATUS_OK; }
    TRY(fields_type(part, path, "BertNormalizer", err));
    TRY(json_only(part, path, known, NULL, err));
    TRY(fields_bool(part, path, "clean_text", &options->clean_text, err));
    TRY(fields_bool(part, path, "handle_chinese_chars", &options->handle_chinese_chars, err));
    TRY(fields_bool(part, path, "lowercase", &options->lowercase, err));
    options->strip_accents = options->lowercase; /* the meaning of null */
    return json_bool(part, path, "strip_accents", &options->strip_accents, err);
}

static enum status read_pre_tokenizer(const cJSON *part, struct err *err)
{
    static const char *const known[] = {"type", NULL};
    const char *path = JSON_FILE ": pre_tokenizer";
    TRY(fields_type(part, path, "BertPreTokenizer", err));
    return json_only(part, path, known, NULL, err);
}

enum status tokenizer_put_token(struct tokenizer_spec *spec, const char *token, int32_t id, double score,
                                struct err *err)
{
    if (token[0] == '\0') {
        spec->empty_tokens++;
        return STATUS_OK;
    }
    struct vocabulary_entry entry = {strdup(token), id, score};
    if (!entry.token) { return err_set(err, STATUS_NO_MEMORY, JSON_FILE ": model.vocab: no memory for tokens"); }
    spec->vocabulary[spec->vocabulary_count++] = entry;
    return STATUS_OK;
}

enum status tokenizer_json_vocabulary(const cJSON *vocabulary, struct tokenizer_spec *spec, struct err *err)
{
    const char *path = JSON_FILE ": model.vocab";
    if (!cJSON_IsObject(vocabulary)) { return err_set(err, STATUS_BAD_INPUT, "%s must be an object", path); }
    size_t count = 0;
    const cJSON *child;
    cJSON_ArrayForEach(child, vocabulary) count++;
    spec->vocabulary = calloc(count + 1, sizeof *spec->vocabulary);
    if (!spec->vocabulary) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory for %zu tokens", path, count); }
    cJSON_ArrayForEach(child, vocabulary)
    {
        int32_t id = 0;
        if (child->string[0] != '\0' && fields_id(child, path, &id, err) != STATUS_OK) {
            return err_prefix(err, "the token %.100s", child->string);
        }
        TRY(tokenizer_put_token(spec, child->string, id, 0, err));
    }
    return STATUS_OK;
}

enum status tokenizer_json_wordpiece(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"type",  "unk_token", "continuing_subword_prefix", "max_input_chars_per_word",
                                        "vocab", NULL};
    const char *path = JSON_FILE ": model", *unknown = NULL, *continuing = NULL;
    const cJSON *value = NULL;
    TRY(json_only(part, path, known, NULL, err));
    TRY(fields_string(part, path, "unk_token", &unknown, err));
    TRY(fields_string(part, path, "continuing_subword_prefix", &continuing, err));
    TRY(fields_need(part, path, "max_input_chars_per_word", &value, err));
    TRY(json_u32(part, path, "max_input_chars_per_word", 0, UINT32_MAX, &spec->max_characters, err));
    TRY(fields_need(part, path, "vocab", &value, err));
    TRY(tokenizer_json_vocabulary(value, spec, err));
    spec->unknown = strdup(unknown);
    spec->continuing = strdup(continuing);
    return spec->unknown && spec->continuing ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

static enum status read_added_token(const cJSON *part, struct added_token *token, struct err *err)
{
    static const char *const known[] = {"id",     "content",    "single_word", "lstrip",
                                        "rstrip", "normalized", "special",     NULL};
    const char *path = JSON_FILE ": added_tokens", *content = NULL;
    TRY(json_only(part, path, known, NULL, err));
    TRY(fields_string(part, path, "content", &content, err));
    TRY(fields_id(json_field(part, "id"), JSON_FILE ": added_tokens: id", &token->id, err));
    TRY(fields_bool(part, path, "single_word", &token->single_word, err));
    TRY(fields_bool(part, path, "lstrip", &token->lstrip, err));
    TRY(fields_bool(part, path, "rstrip", &token->rstrip, err));
    TRY(fields_bool(part, path, "normalized", &token->normalized, err));
    TRY(fields_bool(part, path, "special", &token->special, err));
    token->length = strlen(content);
    token->content = strdup(content);
    return token->content ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "%s: no memory", path);
}

static enum status read_added(const cJSON *part, struct tokenizer_spec *spec, struct err *err)
{
    if (!part) { return STATUS_OK; }
    if (!cJSON_IsArray(part)) { return err_set(err, STATUS_BAD_INPUT, JSON_FILE ": added_tokens must be an array"); }
    size_t count = (size_t)cJSON_GetArraySize(part);
    spec->added = calloc(count + 1, sizeof *spec->added);
    if (!spec->added) { return err_set(err, STATUS_NO_MEMORY, JSON_FILE ": no memory for %zu added tokens", count); }
    const cJSON *child;
    cJSON_ArrayForEach(child, part)
    {
        TRY(read_added_token(child, &spec->added[spec->added_count], err));
        spec->added_count++;
    }
    return STATUS_OK;
}

/* The section itself is left to the caller, but truncation on the left would change the ids. */
static enum status check_truncation(const cJSON *part, struct err *err)
{
    const char *direction = "Right";
    TRY(json_string(part, JSON_FILE ": truncation", "direction", &direction, err));
    if (strcmp(direction, "Right") != 0) {
        return err_set(err, STATUS_UNSUPPORTED, JSON_FILE ": truncation: direction %.100s is not supported", direction);
    }
    return STATUS_OK;
}

/* The types of `model`. */
static const struct tokenizer_model *const models[] = {&tokenizer_wordpiece, &tokenizer_unigram, &tokenizer_bpe};

/* Files of 2020 have no type. */
static const char *guess_type(const cJSON *part)
{
    if (json_field(part, "merges")) { return "BPE"; }
    if (json_field(part, "max_input_chars_per_word")) { return "WordPiece"; }
    return cJSON_IsArray(json_field(part, "vocab")) ? "Unigram" : "null";
}

static enum status find_model(const cJSON *part, const struct tokenizer_model **model, struct err *err)
{
    const char *path = JSON_FILE ": model", *type = guess_type(part);
    TRY(json_string(part, path, "type", &type, err));
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        if (strcmp(type, models[i]->type) == 0) {
            *model = models[i];
            return STATUS_OK;
        }
    }
    return err_set(err, STATUS_UNSUPPORTED, "%s: type %.100s is not supported", path, type);
}

static enum status read_parts(cJSON *root, const struct tokenizer_class **class, const struct tokenizer_files *files,
                              struct tokenizer_spec *spec, struct err *err)
{
    static const char *const known[] = {"version",       "truncation",     "padding", "added_tokens", "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder", "model",        NULL};
    const char *version = "1.0";
    TRY(json_only(root, JSON_FILE, known, NULL, err));
    TRY(json_string(root, JSON_FILE, "version", &version, err));
    if (strcmp(version, "1.0") != 0) {
        return err_set(err, STATUS_UNSUPPORTED, JSON_FILE ": version %.100s is not supported", version);
    }
    TRY(check_truncation(json_field(root, "truncation"), err));
    TRY(find_model(json_field(root, "model"), &spec->model, err));
    TRY(tokenizer_class_rewrite(class, files, spec->model, root, err));
    bool streams = spec->model == &tokenizer_wordpiece;
    const cJSON *normalizer = json_field(root, "normalizer"), *pre_tokenizer = json_field(root, "pre_tokenizer");
    TRY(streams ? read_normalizer(normalizer, spec, err) : pipeline_read_normalizer(normalizer, spec, err));
    TRY(streams ? read_pre_tokenizer(pre_tokenizer, err) : pipeline_read_pre_tokenizer(pre_tokenizer, spec, err));
    TRY(spec->model->read(json_field(root, "model"), spec, err));
    TRY(read_added(json_field(root, "added_tokens"), spec, err));
    TRY(decode_chain_read(json_field(root, "decoder"), &spec->decode, err));
    return tokenizer_json_template(json_field(root, "post_processor"), spec, err);
}

enum status tokenizer_json_parse(const char *text, size_t length, const struct tokenizer_class *class,
                                 const struct tokenizer_files *files, struct tokenizer_spec *spec, struct err *err)
{
    cJSON *root = NULL;
    spec->file = JSON_FILE;
    class = tokenizer_class_of_json(class, text, length);
    enum status status = json_parse(text, length, JSON_FILE, &root, err);
    if (status == STATUS_OK) { status = read_parts(root, &class, files, spec, err); }
    cJSON_Delete(root);
    return status == STATUS_OK ? tokenizer_class_finish(class, files, spec, err) : status;
}

/* vocab.txt: one token per line, its id the line's number from 0 on; everything else comes from the class. */

static size_t count_lines(const char *text, size_t length)
{
    size_t count = 0;
    for (size_t at = 0; at < length; at++) { count += text[at] == '\n' || at + 1 == length; }
    return count;
}

static enum status read_line(const char *line, size_t length, size_t number, struct tokenizer_spec *spec,
                             struct err *err)
{
    length = added_space_before(line, 0, length);
    if (memchr(line, '\r', length)) {
        return err_set(err, STATUS_BAD_INPUT, VOCAB_FILE ": line %zu has a carriage return inside", number + 1);
    }
    if (length == 0) {
        spec->empty_tokens = 1; /* all empty lines are one entry */
        return STATUS_OK;
    }
    struct vocabulary_entry entry = {.token = strndup(line, length), .id = (int32_t)number};
    if (!entry.token) { return err_set(err, STATUS_NO_MEMORY, VOCAB_FILE ": no memory for tokens"); }
    spec->vocabulary[spec->vocabulary_count++] = entry;
    return STATUS_OK;
}

static int compare_tokens(const void *a, const void *b)
{
    const struct vocabulary_entry *x = a, *y = b;
    int order = strcmp(x->token, y->token);
    return order != 0 ? order : (x->id > y->id) - (x->id < y->id);
}

/* A token that occurs twice has the later id. */
static void drop_repeated(struct tokenizer_spec *spec)
{
    struct vocabulary_entry *entries = spec->vocabulary;
    size_t kept = 0;
    if (spec->vocabulary_count > 1) { qsort(entries, spec->vocabulary_count, sizeof *entries, compare_tokens); }
    for (size_t i = 0; i < spec->vocabulary_count; i++) {
        if (i + 1 < spec->vocabulary_count && strcmp(entries[i].token, entries[i + 1].token) == 0) {
            free(entries[i].token);
        } else {
            entries[kept++] = entries[i];
        }
    }
    spec->vocabulary_count = kept;
}

static enum status read_lines(const char *text, size_t length, struct tokenizer_spec *spec, struct err *err)
{
    size_t valid = utf8_valid_prefix(text, length);
    if (valid != length || memchr(text, '\0', length)) {
        return err_set(err, STATUS_BAD_INPUT, VOCAB_FILE ": byte %zu is not UTF-8, or there is a NUL", valid);
    }
    spec->vocabulary = calloc(count_lines(text, length) + 1, sizeof *spec->vocabulary);
    if (!spec->vocabulary) { return err_set(err, STATUS_NO_MEMORY, VOCAB_FILE ": no memory for tokens"); }
    size_t number = 0;
    for (size_t at = 0; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t until = end ? (size_t)(end - text) : length;
        TRY(read_line(text + at, until - at, number, spec, err));
        at = until + 1;
    }
    drop_repeated(spec);
    return STATUS_OK;
}

/* Reads a class's version of a tokenizer.json that has only an empty model of its type; the caller reads words and
 * merges. */
static enum status read_class(const struct tokenizer_class *class, const struct tokenizer_files *files,
                              const char *model, struct tokenizer_spec *spec, struct err *err)
{
    cJSON *root = cJSON_Parse(model);
    if (!root) { return err_set(err, STATUS_NO_MEMORY, "%s: no memory", spec->file); }
    enum status status = read_parts(root, &class, files, spec, err);
    cJSON_Delete(root);
    free(spec->vocabulary);
    free(spec->merges);
    free(spec->merge_text);
    spec->vocabulary = NULL;
    spec->merges = NULL;
    spec->merge_text = NULL;
    return status;
}

enum status tokenizer_vocab_parse(const char *text, size_t length, const struct tokenizer_class *class,
                                  const struct tokenizer_files *files, struct tokenizer_spec *spec, struct err *err)
{
    spec->file = VOCAB_FILE;
    TRY(read_class(class, files, "{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", spec, err));
    TRY(read_lines(text, length, spec, err));
    return tokenizer_class_finish(class, files, spec, err);
}

/* vocab.json and merges.txt: GPT-2's files. */

/* The first line is the version, each other one is a merge; its texts stay in a copy of the whole. */
static enum status read_merges(const char *text, size_t length, struct tokenizer_spec *spec, struct err *err)
{
    if (length == 0 || strncmp(text, "#version", strlen("#version")) != 0 || memchr(text, '\0', length) ||
        !utf8_valid(text, length)) {
        return err_set(err, STATUS_BAD_INPUT, MERGES_FILE " must begin with #version, and be UTF-8 without a NUL");
    }
    spec->merges = calloc(count_lines(text, length), sizeof *spec->merges);
    spec->merge_text = strndup(text, length);
    if (!spec->merges || !spec->merge_text) { return err_set(err, STATUS_NO_MEMORY, MERGES_FILE ": no memory"); }
    char *line = strchr(spec->merge_text, '\n');
    for (size_t number = 2; line && *++line; number++) {
        char *blank = strchr(line, ' '), *end = strchr(line, '\n');
        size_t size = end ? (size_t)(end - line) : strlen(line);
        size_t left = blank ? (size_t)(blank - line) : size;
        if (left == 0 || left + 1 >= size || memchr(blank + 1, ' ', size - left - 1)) {
            return err_set(err, STATUS_BAD_INPUT, MERGES_FILE ": line %zu must be two tokens and a blank", number);
        }
        spec->merges[spec->merge_count++] = (struct bpe_merge){line, blank + 1, left, size - left - 1};
        line = end;
    }
    return STATUS_OK;
}

enum status tokenizer_merges_parse(const cJSON *vocabulary, const char *text, size_t length,
                                   const struct tokenizer_class *class, const struct tokenizer_files *files,
                                   struct tokenizer_spec *spec, struct err *err)
{
    spec->file = MERGES_FILE;
    TRY(read_class(class, files, "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", spec, err));
    TRY(tokenizer_json_vocabulary(vocabulary, spec, err));
    TRY(read_merges(text, length, spec, err));
    return tokenizer_class_finish(class, files, spec, err);
}

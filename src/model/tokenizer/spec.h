/* What a tokenizer's files say. Private to this folder: files.c fills a tokenizer_spec, tokenizer.c checks it and makes
 * a tokenizer of it. */
#ifndef MODEL_TOKENIZER_SPEC_H
#define MODEL_TOKENIZER_SPEC_H

#include "model/tokenizer/added_tokens.h"
#include "model/tokenizer/normalizer.h"
#include "model/tokenizer/trie.h"
#include "model/tokenizer/wordpiece.h"

struct cJSON;

enum { TOKENIZER_MAX_SPECIALS = 16 };

/* The ids that the post-processor puts before and behind every text. */
struct tokenizer_template {
    int32_t before[TOKENIZER_MAX_SPECIALS], behind[TOKENIZER_MAX_SPECIALS];
    uint32_t before_count, behind_count;
};

/* One entry of the vocabulary. */
struct vocabulary_entry {
    char *token; /* not empty */
    int32_t id;
};

/* A tokenizer as its files say. All pointers are owned. */
struct tokenizer_spec {
    const char *file; /* for messages; a literal */
    struct normalizer_options normalizer;
    struct vocabulary_entry *vocabulary;
    size_t vocabulary_count;
    size_t
        empty_tokens; /* entries that can match nothing and are not listed, but count when added tokens are numbered */
    char *unknown;    /* the token, not the id */
    char *continuing;
    uint32_t max_characters;
    struct added_token *added; /* as in the file; id -1 where it does not say */
    size_t added_count;
    struct tokenizer_template specials;
};

/* What a spec becomes: read-only, so that every thread may encode with it. */
struct tokenizer {
    struct normalizer *normalizer;
    struct normalizer *plain; /* changes nothing: splits text that is normalised; NULL when `normalized` is empty */
    struct wordpiece model;
    struct added_token *added;
    size_t added_count;
    struct added_set raw, normalized;
    struct tokenizer_template specials;
    uint32_t vocabulary;
    uint32_t max_tokens;
};

/* Frees what a spec still holds and leaves an empty one. */
void tokenizer_spec_free(struct tokenizer_spec *spec);

/* Checks a spec and makes a tokenizer of it, taking what it needs out of it.
 * Owns: the caller ends both. Errors: STATUS_BAD_INPUT, STATUS_UNSUPPORTED, STATUS_NO_MEMORY; the message names the
 * file. */
MUST_CHECK enum status tokenizer_build(struct tokenizer_spec *spec, struct tokenizer **out, struct err *err);

/* Fills a zeroed spec from the text of a tokenizer.json (`text[length]` is a NUL).
 * Owns: the caller frees the spec, also after an error. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_json_parse(const char *text, size_t length, struct tokenizer_spec *spec,
                                            struct err *err);

/* Reads the part `post_processor` of a tokenizer.json, which may be NULL, into spec->specials. Errors: as
 * tokenizer_open. */
MUST_CHECK enum status tokenizer_json_template(const struct cJSON *part, struct tokenizer_spec *spec, struct err *err);

/* What tokenizer_config.json says. Read for both forms: beside a tokenizer.json it must not contradict it. */
struct tokenizer_config {
    int do_lower_case, strip_accents, tokenize_chinese_chars; /* 0, 1, or -1 where it does not say */
    uint32_t max_tokens;                                      /* 0: no limit */
    const struct cJSON *json;                                 /* borrowed; NULL when there is no such file */
};

/* Reads the config from its JSON, which may be NULL. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_config_parse(const struct cJSON *json, struct tokenizer_config *config,
                                              struct err *err);

/* Reads a token of the config: a string, which is matched literally, or an object with "content" and flags. Its
 * id is -1. Owns: the caller frees its content. Errors: STATUS_BAD_INPUT, naming `where`; STATUS_NO_MEMORY. */
MUST_CHECK enum status tokenizer_config_token(const struct cJSON *value, const char *where, struct added_token *token,
                                              struct err *err);

/* The id that an entry of added_tokens_decoder has as its key; INT32_MAX, which no token has, where it is none. */
int32_t tokenizer_config_id(const struct cJSON *entry);

/* Refuses a config that asks for another normalisation or other added tokens than the spec of a tokenizer.json has.
 * Errors: STATUS_UNSUPPORTED, or as tokenizer_config_token. */
MUST_CHECK enum status tokenizer_config_agrees(const struct tokenizer_config *config, const struct tokenizer_spec *spec,
                                               struct err *err);

/* Refuses what the older files beside a vocab.txt, special_tokens_map.json and added_tokens.json, would change.
 * Errors: STATUS_UNSUPPORTED, or as json_read_optional. */
MUST_CHECK enum status tokenizer_legacy_check(const char *directory, const struct tokenizer_config *config,
                                              struct err *err);

/* Fills a zeroed spec from the text of a vocab.txt and the config.
 * Owns: the caller frees the spec, also after an error. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_vocab_parse(const char *text, size_t length, const struct tokenizer_config *config,
                                             struct tokenizer_spec *spec, struct err *err);

#endif

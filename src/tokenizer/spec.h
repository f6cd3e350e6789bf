/* The content of a tokenizer's files. Private to this folder: files.c fills a tokenizer_spec, tokenizer.c checks it and
 * makes a tokenizer of it. */
#ifndef TOKENIZER_SPEC_H
#define TOKENIZER_SPEC_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/decode.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/trie.h"
#include "tokenizer/wordpiece.h"

struct cJSON;
struct tokenizer_class;
struct tokenizer_spec;
struct bpe;
struct bpe_merge;
struct unigram;

enum { TOKENIZER_MAX_SPECIALS = 16 };

/* The functions of one type of `model`. The table of all is in files.c. */
struct tokenizer_model {
    const char *type; /* as in the file */
    /* Reads the part `model` of a tokenizer.json into the spec. Errors: as tokenizer_open. */
    enum status (*read)(const struct cJSON *part, struct tokenizer_spec *spec, struct err *err);
    /* Makes the tokenizer's own model. Errors: as tokenizer_build. */
    enum status (*build)(struct tokenizer *tokenizer, struct tokenizer_spec *spec, struct err *err);
    piece_encoder *encode;
};

extern const struct tokenizer_model tokenizer_wordpiece, tokenizer_unigram, tokenizer_bpe;

/* Frees the tokenizer's own model of Unigram. NULL is allowed. */
void unigram_close(struct unigram *unigram);

/* Adjacent special tokens. */
struct special_ids {
    int32_t ids[TOKENIZER_MAX_SPECIALS];
    uint32_t count;
};

/* The blanks at the ends of tokens' texts that the post-processor takes off the places of tokens: all, or all but one
 * before the first token; it may say so twice, which is not served. */
enum trim { TRIM_NOTHING, TRIM_ALL, TRIM_BUT_FIRST, TRIM_TWICE };

/* The special tokens that the post-processor puts around a text, and around and between those of a pair. */
struct tokenizer_template {
    struct special_ids single[2], pair[3];
    uint32_t second;      /* this many of pair[1] have token type 0 */
    bool pair_types;      /* all tokens after them have type 1; false: all of a pair has type 0 */
    bool pair_is_strange; /* the file's pair is of another kind, which is not served */
    enum trim trim;
};

/* The template: the file's own post-processor, or one of two tokens. */
enum tokenizer_around { AROUND_FILE, AROUND_BERT, AROUND_ROBERTA };

/* One entry of the vocabulary. */
struct vocabulary_entry {
    char *token; /* not empty */
    int32_t id;
    double score; /* of Unigram */
};

/* A tokenizer as its files describe it. All pointers are owned. */
struct tokenizer_spec {
    const char *file; /* for messages; a literal */
    const struct tokenizer_model *model;
    struct normalizer_options normalizer; /* WordPiece */
    struct pipeline pipeline;             /* all others */
    struct vocabulary_entry *vocabulary;
    size_t vocabulary_count;
    size_t
        empty_tokens; /* entries that can match nothing and are not listed, but count when added tokens are numbered */
    char *unknown;    /* WordPiece: the token, not the id */
    char *continuing;
    uint32_t max_characters;
    int32_t unknown_id;       /* Unigram */
    bool byte_fallback;       /* Unigram, BPE */
    struct bpe_merge *merges; /* BPE; their texts are in merge_text */
    size_t merge_count;
    char *merge_text;
    bool drops_bytes; /* BPE: a byte without a token is left out */
    bool ignore_merges;
    struct added_token *added; /* as in the file; id -1 if the file has none */
    size_t added_count;
    struct tokenizer_template specials; /* AROUND_FILE */
    enum tokenizer_around around;
    size_t first, last; /* not AROUND_FILE: the indices in `added` of the tokens before and after a text */
    struct decode_chain decode;
};

/* The tokenizer made from a spec: read-only except unigram->met, so that every thread may encode with it. */
struct tokenizer {
    const struct tokenizer_model *model;
    struct trie *trie;             /* vocabulary, token -> id; NULL for BPE */
    struct normalizer *normalizer; /* WordPiece, which mostly reads without the pipeline */
    struct wordpiece wordpiece;
    struct pipeline pipeline;
    struct unigram *unigram;
    struct bpe *bpe;
    size_t growth, more; /* n bytes of text become at most n * growth + more ids */
    bool letters;        /* some added token is a single character */
    struct added_token *added;
    size_t added_count;
    struct added_set raw, normalized;
    struct decode_chain decode;
    struct decode_tokens tokens;
    struct tokenizer_template specials;
    uint32_t vocabulary; /* every id is below */
    uint32_t own;        /* every id of the vocabulary is below, not counting added tokens */
    uint32_t words;      /* words that the model has; 0: not known */
    uint32_t max_tokens;
    char class_name[64]; /* the class that only config.json names; "": it names none, or tokenizer_config.json does */
};

/* Appends the ids of a text, without special tokens, by the pipeline. Errors: as pipeline_encode. */
MUST_CHECK enum status tokenizer_run_pipeline(const struct tokenizer *tokenizer, struct id_sink *sink, const char *text,
                                              size_t length, struct err *err);

/* Refuses ids that the model has no vector for. */
MUST_CHECK enum status tokenizer_check_known(const struct tokenizer *tokenizer, const int32_t *ids, uint32_t count,
                                             struct err *err);

/* Frees the remaining contents of a spec and leaves an empty one. */
void tokenizer_spec_free(struct tokenizer_spec *spec);

/* Checks a spec and makes a tokenizer of it, taking over the parts that it needs.
 * Owns: the caller ends both. Errors: STATUS_BAD_INPUT, STATUS_UNSUPPORTED, STATUS_NO_MEMORY; the message names the
 * file. */
MUST_CHECK enum status tokenizer_build(struct tokenizer_spec *spec, struct tokenizer **out, struct err *err);

/* The files beside the vocabulary, as JSON, borrowed: tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json, and the model's config.json. NULL for a file that does not exist. */
struct tokenizer_files {
    const struct cJSON *config, *map, *added, *model;
};

/* The class that follows tokenizer.json in everything. */
extern const struct tokenizer_class *const tokenizer_class_of_file;

/* Finds the class of a directory: the config's, else config.json's, else the default of its model_type. `vocabulary` is
 * the file that is opened in place of a tokenizer.json, or NULL; that file's default class is the last resort. Errors:
 * STATUS_UNSUPPORTED (a class that is not known, or does not open that file), STATUS_BAD_INPUT. */
MUST_CHECK enum status tokenizer_class_find(const struct tokenizer_files *files, const char *vocabulary,
                                            const struct tokenizer_class **out, struct err *err);

/* The class that reads a tokenizer.json in place of `class`: a byte-level file of Llama 3 may name Llama 2's, which
 * makes no byte-level tokenizers. */
const struct tokenizer_class *tokenizer_class_of_json(const struct tokenizer_class *class, const char *text,
                                                      size_t length);

/* Rewrites a tokenizer.json as the class does. If its model is not the class's, where transformers fails, `*class`
 * becomes tokenizer_class_of_file. Errors: STATUS_UNSUPPORTED, STATUS_BAD_INPUT, STATUS_NO_MEMORY. */
MUST_CHECK enum status tokenizer_class_rewrite(const struct tokenizer_class **class,
                                               const struct tokenizer_files *files, const struct tokenizer_model *model,
                                               struct cJSON *root, struct err *err);

/* Adds the tokens that the files name to a spec, and sets its template. Errors: as above. */
MUST_CHECK enum status tokenizer_class_finish(const struct tokenizer_class *class, const struct tokenizer_files *files,
                                              struct tokenizer_spec *spec, struct err *err);

/* Fills a zeroed spec from the text of a tokenizer.json (`text[length]` is a NUL) and the files beside it.
 * Owns: the caller frees the spec, also after an error. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_json_parse(const char *text, size_t length, const struct tokenizer_class *class,
                                            const struct tokenizer_files *files, struct tokenizer_spec *spec,
                                            struct err *err);

/* --- readers of the parts of a tokenizer.json. `path` is an object's name for messages: the file's, a colon and the
 * path to the object. Values that are read stay the object's. Errors of all: STATUS_BAD_INPUT if a field is missing or
 * of another type, STATUS_UNSUPPORTED --- */

/* Reads a field of any type. */
MUST_CHECK enum status fields_need(const struct cJSON *object, const char *path, const char *field,
                                   const struct cJSON **value, struct err *err);

/* Reads a field that is true or false. */
MUST_CHECK enum status fields_bool(const struct cJSON *object, const char *path, const char *field, bool *value,
                                   struct err *err);

/* Reads a string. */
MUST_CHECK enum status fields_string(const struct cJSON *object, const char *path, const char *field,
                                     const char **value, struct err *err);

/* Reads a token's id: a whole number below INT32_MAX. */
MUST_CHECK enum status fields_id(const struct cJSON *value, const char *path, int32_t *id, struct err *err);

/* Appends a token to the vocabulary, which has room for it; an empty one is counted only. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status tokenizer_put_token(struct tokenizer_spec *spec, const char *token, int32_t id, double score,
                                           struct err *err);

/* Makes the trie of the vocabulary. Errors: STATUS_BAD_INPUT when a token occurs twice, STATUS_NO_MEMORY. */
MUST_CHECK enum status tokenizer_build_trie(struct tokenizer *tokenizer, const struct tokenizer_spec *spec,
                                            struct err *err);

/* The vocabulary as keys, in the spec's order; texts stay the spec's. Owns: the caller frees it. NULL: no memory. */
struct trie_key *tokenizer_keys(const struct tokenizer_spec *spec);

/* Reads the part `model` of type WordPiece. */
MUST_CHECK enum status tokenizer_json_wordpiece(const struct cJSON *part, struct tokenizer_spec *spec, struct err *err);

/* Reads an object {token: id} into the vocabulary. Errors: also STATUS_NO_MEMORY. */
MUST_CHECK enum status tokenizer_json_vocabulary(const struct cJSON *vocabulary, struct tokenizer_spec *spec,
                                                 struct err *err);

/* Reads the part `normalizer`, which may be NULL, into spec->pipeline. Errors: also STATUS_NO_MEMORY. */
MUST_CHECK enum status pipeline_read_normalizer(const struct cJSON *part, struct tokenizer_spec *spec, struct err *err);

/* The same for the part `pre_tokenizer`. */
MUST_CHECK enum status pipeline_read_pre_tokenizer(const struct cJSON *part, struct tokenizer_spec *spec,
                                                   struct err *err);

/* Reads the part `post_processor` of a tokenizer.json, which may be NULL, into spec->specials. Errors: as
 * tokenizer_open. */
MUST_CHECK enum status tokenizer_json_template(const struct cJSON *part, struct tokenizer_spec *spec, struct err *err);

/* The template of two tokens; not AROUND_FILE. */
struct tokenizer_template tokenizer_template_around(enum tokenizer_around around, int32_t first, int32_t last);

/* The settings of tokenizer_config.json that are not the tokenizer's own. */
struct tokenizer_config {
    uint32_t max_tokens; /* 0: no limit */
};

/* Reads the config from its JSON, which may be NULL. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_config_parse(const struct cJSON *json, struct tokenizer_config *config,
                                              struct err *err);

/* Fills a zeroed spec from the text of a vocab.txt, its class and the files beside it.
 * Owns: the caller frees the spec, also after an error. Errors: as tokenizer_open. */
MUST_CHECK enum status tokenizer_vocab_parse(const char *text, size_t length, const struct tokenizer_class *class,
                                             const struct tokenizer_files *files, struct tokenizer_spec *spec,
                                             struct err *err);

/* Fills a spec from a vocab.json and the text of a merges.txt (`text[length]` is a NUL), as tokenizer_vocab_parse. */
MUST_CHECK enum status tokenizer_merges_parse(const struct cJSON *vocabulary, const char *text, size_t length,
                                              const struct tokenizer_class *class, const struct tokenizer_files *files,
                                              struct tokenizer_spec *spec, struct err *err);

#endif

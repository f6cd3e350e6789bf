/* Turns text into token ids, and back, as the model's own files define: the facade over WordPiece, Unigram and BPE.
 *
 * Opened from `tokenizer.json`, else from `vocab.txt`, else from `vocab.json` and `merges.txt`, and from the files
 * beside them as transformers 5 does (classes.c). The ids are those that Hugging Face `tokenizers` gives for one text
 * with special tokens, right truncation to `max_tokens`, and no padding. */
#ifndef TOKENIZER_TOKENIZER_H
#define TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"

struct tokenizer;
struct tokenizer_stream;

/* Opens the tokenizer of a model directory.
 * Owns: the caller ends it with tokenizer_close. Errors: STATUS_NOT_FOUND, STATUS_BAD_INPUT, STATUS_UNSUPPORTED,
 * STATUS_NO_MEMORY; the message names file and field. Thread: one at a time in the process (cJSON); afterwards the
 * tokenizer is read-only. */
MUST_CHECK enum status tokenizer_open(const char *directory, struct tokenizer **out, struct err *err);

/* Frees it. NULL is allowed. */
void tokenizer_close(struct tokenizer *tokenizer);

/* The largest number of ids that a text of `bytes` bytes can become, special tokens included, before truncation. */
size_t tokenizer_bound(const struct tokenizer *tokenizer, size_t bytes);

/* Turns valid UTF-8 into at most `max_tokens` ids, special tokens included, and stops reading as soon as it has them.
 * Shapes: ids [max_tokens] int32, written. `*truncated`: the text had more.
 * Errors: STATUS_BAD_INPUT when the text that it read is not valid UTF-8 (text far beyond the last id is not read),
 * when it has a token that the model does not know (tokenizer_fit), or when max_tokens has no room for the special
 * tokens; STATUS_NO_MEMORY, but not from WordPiece, which allocates only if added tokens are looked for in normalised
 * text. Thread: any, on one tokenizer at once. */
MUST_CHECK enum status tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t length,
                                        uint32_t max_tokens, int32_t *ids, uint32_t *count, bool *truncated,
                                        struct err *err);

/* All ids of a text, without special tokens and not truncated. Owns: the caller frees `*ids`. Errors: as
 * tokenizer_encode. Thread: any. */
MUST_CHECK enum status tokenizer_encode_whole(const struct tokenizer *tokenizer, const char *text, size_t length,
                                              int32_t **ids, uint32_t *count, struct err *err);

/* A token of a text. */
struct tokenizer_token {
    int32_t id;
    uint32_t from, until; /* the bytes of the text that it stands for; 0 and 0 for a special one */
    bool special;         /* the post-processor has put it beside the text */
};

/* All tokens of a text, with or without special tokens and not truncated. Their places are the offsets that Hugging
 * Face `tokenizers` gives, in bytes; a token for a part of a character has the place of the character. Needs several
 * times the memory and time of tokenizer_encode. Owns: the caller frees `*tokens`. Errors: as tokenizer_encode;
 * STATUS_UNSUPPORTED when the files' post-processor changes places in a way that is not known; STATUS_NO_MEMORY.
 * Thread: any. */
MUST_CHECK enum status tokenizer_tokens(const struct tokenizer *tokenizer, const char *text, size_t length,
                                        bool specials, struct tokenizer_token **tokens, uint32_t *count,
                                        struct err *err);

/* The text of a token as its files have it, "" if there is no such token. Owns: the tokenizer. */
const char *tokenizer_token_name(const struct tokenizer *tokenizer, int32_t id, size_t *length);

/* Turns a pair into at most `max_tokens` ids: `query`, as tokenizer_encode_whole made it, and a text, with the special
 * tokens of the post-processor. A pair that is too long is cut as by the strategy `longest_first`.
 * Shapes: ids [max_tokens] int32, written. `*second`: the index from which token types are 1, if the tokenizer has such
 * pairs. Errors: as tokenizer_encode; STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status tokenizer_encode_pair(const struct tokenizer *tokenizer, const int32_t *query,
                                             uint32_t query_count, const char *text, size_t length, uint32_t max_tokens,
                                             int32_t *ids, uint32_t *count, uint32_t *second, bool *truncated,
                                             struct err *err);

/* The largest number of ids of a pair, given those of its first text and the bytes of its second, before it is cut. */
size_t tokenizer_pair_bound(const struct tokenizer *tokenizer, uint32_t query_count, size_t bytes);

/* True if tokenizer_encode_pair makes pairs as the tokenizer's files define them. `*types`: a part has token type 1. */
bool tokenizer_pairs(const struct tokenizer *tokenizer, bool *types);

/* Turns ids back into text, which it appends, as the `decoder` of the tokenizer's files defines: the text that Hugging
 * Face `tokenizers` gives, valid UTF-8, with U+FFFD for bytes that are none. An id without a token is left out, and
 * without `specials` a special token, too.
 * Errors: STATUS_UNSUPPORTED when the files have a decoder that is not known, which the message names;
 * STATUS_NO_MEMORY. Thread: any. */
MUST_CHECK enum status tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                                        bool specials, struct buffer *text, struct err *err);

/* Opens a decoder that takes one id after the other. `inside`: the ids continue a text, so the blank before the first
 * word stays. Owns: the caller ends it with tokenizer_stream_close, before the tokenizer. Errors: as tokenizer_decode.
 * Thread: one at a time. */
MUST_CHECK enum status tokenizer_stream_open(const struct tokenizer *tokenizer, bool specials, bool inside,
                                             struct tokenizer_stream **out, struct err *err);

/* Appends the text that is certain after this id: whole characters, often none. Joined, all pieces and the end's are
 * what tokenizer_decode makes of the ids. Errors: the buffer is broken when memory ran out. */
void tokenizer_stream_put(struct tokenizer_stream *stream, int32_t id, struct buffer *text);

/* Appends the text that was held back until the last id; nothing may be put afterwards. Errors: as above. */
void tokenizer_stream_end(struct tokenizer_stream *stream, struct buffer *text);

/* Frees it. NULL is allowed. */
void tokenizer_stream_close(struct tokenizer_stream *stream);

/* Finds the first place at which a text has the name of a special token; `length` if there is none. */
size_t tokenizer_find_special(const struct tokenizer *tokenizer, const char *text, size_t length);

/* Its model as tokenizer.json names it: "WordPiece", "Unigram", "BPE". */
const char *tokenizer_type(const struct tokenizer *tokenizer);

/* The number of entries in the vocabulary, added tokens included: every id is below it. */
uint32_t tokenizer_vocabulary(const struct tokenizer *tokenizer);

/* Sets the number of words that the model has. The ids of added tokens may be higher, as transformers allows, but a
 * text that has such a token is STATUS_BAD_INPUT. Errors: STATUS_BAD_INPUT when the vocabulary itself does not fit. */
MUST_CHECK enum status tokenizer_fit(struct tokenizer *tokenizer, uint32_t words, struct err *err);

/* The limit in tokenizer_config.json (`model_max_length`), or 0 if it has none. */
uint32_t tokenizer_max_tokens(const struct tokenizer *tokenizer);

/* The class that config.json names for it, "" if there is none or tokenizer_config.json names one: besides the model's
 * family, the only thing that a tokenizer takes from that file. */
const char *tokenizer_class_of_model(const struct tokenizer *tokenizer);

/* True if text is converted to lower case before it is split into words. */
bool tokenizer_lowercases(const struct tokenizer *tokenizer);

#endif

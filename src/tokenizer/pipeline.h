/* The steps between a text and a model that tokenizer.json lists as `normalizer` and `pre_tokenizer`, on whole
 * stretches of text. WordPiece mostly reads character by character instead (tokenizer.c). */
#ifndef TOKENIZER_PIPELINE_H
#define TOKENIZER_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"
#include "tokenizer/wordpiece.h"

struct tokenizer;

/* One step of the normaliser, named as in the file. */
enum normal_step_kind {
    STEP_REPLACE,        /* `pattern`, a string, by `content` */
    STEP_REPLACE_BLANKS, /* two blanks or more by `content` */
    STEP_STRIP,
    STEP_LOWERCASE,
    STEP_PREPEND,     /* `content` */
    STEP_PRECOMPILED, /* `map` */
    STEP_STRIP_ACCENTS,
    STEP_NMT,     /* drops controls, turns every space into a blank */
    STEP_CLEAN,   /* the same with BERT's characters; this and the next two are steps of BertNormalizer */
    STEP_PAD_CJK, /* a blank before and after each */
    STEP_STRIP_MARKS,
    STEP_UNICODE, /* `unicode` */
};

struct normal_step {
    enum normal_step_kind kind;
    char *pattern, *content;        /* owned */
    bool left, right;               /* STEP_STRIP */
    struct charsmap *map;           /* owned */
    struct unicode_normal *unicode; /* owned */
};

/* One step of the pre-tokenizer. */
enum split_step_kind {
    SPLIT_WHITESPACE, /* pieces end at white space, which is dropped */
    SPLIT_METASPACE,
    SPLIT_PATTERN,
    SPLIT_NUMBERS,
    SPLIT_BEHIND,      /* each `string` ends a piece */
    SPLIT_PUNCTUATION, /* each is a piece; a step of BertPreTokenizer */
    SPLIT_BYTE_LEVEL,  /* later steps and the model see bytes, which BPE needs */
};

enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };

struct split_step {
    enum split_step_kind kind;
    char mark[5];                /* SPLIT_METASPACE: the character that stands for a blank */
    enum prepend_scheme prepend; /* decides if a piece that does not begin with the mark gets one */
    bool split;                  /* each mark begins a piece */
    bool blank;                  /* SPLIT_BYTE_LEVEL: a piece that does not begin with a blank gets one */
    struct pattern *pattern;     /* SPLIT_PATTERN, SPLIT_NUMBERS, and SPLIT_BYTE_LEVEL unless NULL; owned */
    char *string;                /* owned */
};

enum { PIPELINE_MAX_STEPS = 12 };

/* Zero-initialise for none. */
struct pipeline {
    struct normal_step normal[PIPELINE_MAX_STEPS];
    struct split_step split[PIPELINE_MAX_STEPS];
    size_t normal_count, split_count;
    bool whole; /* some step looks across blanks between words, so a stretch must be processed as a whole */
    bool first; /* some step checks whether a piece begins where the text does */
};

/* A piece on its way through the split steps. */
struct piece {
    const char *bytes;
    size_t length;
    bool first; /* begins with the result of the text's first character; known only if pipeline.first is set */
};

/* Appends the ids of a piece, of at least one byte; may stop when the sink is full, and may overwrite `scratch`. False:
 * memory ran out. */
typedef bool piece_encoder(const struct tokenizer *tokenizer, struct piece piece, struct buffer *scratch,
                           struct id_sink *sink);

/* The places of the output of the normaliser's steps, of a stretch of the text, and of the output of each split step.
 */
enum pipeline_places {
    PLACES_NORMAL,
    PLACES_TEXT = 2,
    PLACES_PIECES,
    PLACES_COUNT = PLACES_PIECES + PIPELINE_MAX_STEPS
};

/* The state of encoding one text; ended by pipeline_end. */
struct pipeline_run {
    const struct pipeline *pipeline;
    const struct added_set *raw, *normalized; /* added tokens that are looked for in the text, and in its normal form */
    piece_encoder *encode;
    const struct tokenizer *tokenizer; /* the encoder's */
    struct id_sink *sink;
    struct buffer normal[2];                  /* input and output of a normaliser's step */
    struct buffer pieces[PIPELINE_MAX_STEPS]; /* output of each split step */
    struct buffer
        *places; /* [PLACES_COUNT]: those of their bytes, as spans, by enum pipeline_places; NULL: not asked for */
    struct buffer scratch; /* the encoder's */
};

/* Encodes all of a text, valid UTF-8 or not, into run->sink; stops when that is full.
 * Errors: STATUS_BAD_INPUT when the text that was read is not UTF-8, STATUS_NO_MEMORY. */
MUST_CHECK enum status pipeline_encode(struct pipeline_run *run, const char *text, size_t length, struct err *err);

/* Frees the run's memory. */
void pipeline_end(struct pipeline_run *run);

/* Appends the normalised form of valid UTF-8 to `out`. Errors: the buffer is broken. */
void pipeline_normalize(const struct pipeline *pipeline, const char *text, size_t length, struct buffer *out);

/* Sets the steps of BERT's tokenizers in an empty pipeline. Owns: pipeline_free ends them. Errors: STATUS_NO_MEMORY. */
MUST_CHECK enum status pipeline_set_bert(struct pipeline *pipeline, const struct normalizer_options *options,
                                         struct err *err);

/* Sets `whole` and `first` once all steps are there. */
void pipeline_prepare(struct pipeline *pipeline);

/* The same for an added token that is looked for in normalised text, as `token`; call it for each. */
void pipeline_prepare_token(struct pipeline *pipeline, const struct added_token *flags, const char *token,
                            size_t length);

/* The largest number of characters (`bytes` false) or bytes that a text becomes: `*growth` for each of its bytes, plus
 * the returned number. `letters`: some added token is a single character. */
size_t pipeline_growth(const struct pipeline *pipeline, bool bytes, bool letters, size_t *growth);

/* True if models get the bytes that files of byte-level BPE write in an alphabet of their own. */
bool pipeline_byte_level(const struct pipeline *pipeline);

/* True if it converts text to lower case. */
bool pipeline_lowercases(const struct pipeline *pipeline);

/* Frees the steps' contents and leaves an empty pipeline. */
void pipeline_free(struct pipeline *pipeline);

#endif

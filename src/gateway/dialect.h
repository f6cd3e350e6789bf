/* The dialects of HTTP: what a body asks of a queue, and how the answer looks. Pure functions, no I/O.
 *
 * A dialect is one file with its table of members and the functions that write its answers, and a row in dialect.c. */
#ifndef GATEWAY_DIALECT_H
#define GATEWAY_DIALECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "base/err.h"
#include "schedule/request.h"

enum {
    CALL_TEXTS_MAX = 2048, /* texts of a call: the limit of OpenAI's own server */
    CALL_NAME_MAX = 256,   /* bytes of a model's or a prompt's name */
};

/* Bytes that somebody else owns; none: {NULL, 0}. */
struct slice {
    const char *bytes;
    size_t length;
};

/* The uses of vectors; the words of each dialect have the same order. */
enum purpose { PURPOSE_DOCUMENT, PURPOSE_QUERY, PURPOSE_CLASSIFICATION, PURPOSE_CLUSTERING, PURPOSES };

bool slice_is(struct slice slice, const char *text);

/* What follows the last slash: people write sentence-transformers/all-MiniLM-L6-v2, and a folder has the last part. */
struct slice slice_last_part(struct slice name);

/* TASK_GENERATE: the numbers of a call that a queue reads; number_fields has the names of its fields. */
enum number { NUMBER_TEMPERATURE, NUMBER_TOP_K, NUMBER_TOP_P, NUMBER_MIN_P, NUMBER_PENALTY, NUMBER_SEED, NUMBERS };
extern const char *const number_fields[NUMBERS];

/* Forms of vectors in an answer, as bits; 0: the dialect's usual one. */
enum { FORM_FLOAT = 1, FORM_BASE64 = 2 };

/* What a body asks of a queue, whatever its dialect. Slices point into the body, which outlives the call, or into
 * `decoded`. */
struct call {
    const struct dialect *dialect;
    enum request_task task;
    struct slice *texts; /* [text_count] JSON strings with their quotes: strict JSON, UTF-8, not empty. NULL: no longer
                          * known; an answer is then without them. TASK_GENERATE: prompts, or, if it is a chat, one
                          * JSON array: its messages, which the worker reads */
    uint32_t text_count;
    bool chat;                  /* TASK_GENERATE */
    bool single;                /* the text was not in a list: so is the answer, where the dialect makes a difference */
    struct slice model, prompt; /* names, decoded; none: not given */
    struct slice query;         /* decoded; TASK_RERANK has one */
    uint32_t dims, top_n;       /* 0: not given */
    signed char normalize, truncate; /* -1: not given */
    signed char purpose;             /* enum purpose; -1: not given */
    signed char special_tokens;      /* -1: not given */
    signed char raw, return_texts;   /* 0 or 1 */
    unsigned forms;
    uint32_t max_tokens;           /* TASK_GENERATE; 0: as many as there is room for */
    struct slice numbers[NUMBERS]; /* as JSON has them; none: not given */
    struct slice stops;            /* a JSON array; none: not given */
    signed char stream;            /* 0 or 1: the answer is sent while it is written … */
    signed char stream_usage;      /* … and its tokens at the end */
    uint64_t given;                /* by number in the dialect's table: the members that the body has */
    struct buffer decoded;         /* strings that had escapes; its memory does not move */
};

/* Releases the memory of a call. */
void call_free(struct call *call);

/* Kinds of faults; the table in dialect.c has the status and the names of each. */
enum fault_kind {
    FAULT_BAD_REQUEST,
    FAULT_TOO_LONG,  /* a text has more tokens than the model takes */
    FAULT_TOO_LARGE, /* too many bytes or texts */
    FAULT_NO_KEY,
    FAULT_FORBIDDEN,
    FAULT_NOT_FOUND,
    FAULT_NO_MODEL,
    FAULT_WRONG_TASK, /* the model does something else */
    FAULT_CANCELLED,
    FAULT_POISON, /* it has crashed workers: a client must not send it again */
    FAULT_EXPIRED,
    FAULT_QUEUE_FULL,
    FAULT_RATE_LIMIT,
    FAULT_BACKEND, /* its run has failed, on several attempts */
    FAULT_UNAVAILABLE,
    FAULT_KINDS
};

/* An error answer. */
struct fault {
    enum fault_kind kind;
    int status;              /* of HTTP */
    const char *type;        /* in the words of the dialect */
    const char *code;        /* "model_not_found"; for OpenAI's dialect */
    const char *param;       /* the member that is wrong; NULL: none */
    unsigned retry_after_ms; /* 0: not known */
    char message[512];       /* UTF-8 */
};

/* Fills a fault in the words of a dialect; NULL: OpenAI's. Returns false, for the callers' own return. */
bool fault_set(struct fault *fault, const struct dialect *dialect, enum fault_kind kind, const char *param,
               const char *format, ...) PRINTF_LIKE(5, 6);

/* Fills the fault for a reply `error` of a queue: its code, its message and its info. The request had `count` of
 * the call's texts, from number `first` on; the message names the text and the member as the caller wrote them. A code
 * that this version does not know counts as `internal`. For a reply `cancelled` the code is "cancelled". */
void fault_from_reply(struct fault *fault, const struct call *call, struct slice code, struct slice message,
                      struct slice info, uint32_t first, uint32_t count);

/* Appends the headers of a fault, as whole lines: Retry-After, where it is known, and WWW-Authenticate. */
void fault_put_headers(const struct fault *fault, struct buffer *headers);

/* The result of a call. */
struct answer {
    const float *vectors; /* [text_count, dim], TASK_EMBED */
    const float *scores;  /* [text_count], TASK_RERANK, in the order of the texts */
    struct slice lists;   /* TASK_CLASSIFY, TASK_TOKENIZE: JSON, an array with an array for each text, of labels or
                             tokens: docs/protocol.md, Results. TASK_GENERATE: an array of what `put_choice` appends */
    uint32_t dim;
    uint64_t tokens;         /* of all texts together */
    uint64_t written_tokens; /* TASK_GENERATE: of what was written */
    uint64_t created_s;      /* unix time; TASK_GENERATE */
    const char *model;       /* the published name */
    const char *request_id;
};

/* Some text of an answer that is sent while it is written. */
struct chunk {
    uint32_t index;     /* of the text in the call */
    struct slice text;  /* what it adds */
    const char *finish; /* why the text has ended; NULL: it has not */
    bool first;         /* of this text */
};

/* How a dialect's errors look. Schemas are JSON for openapi.c, in which ' stands for ". */
struct fault_style {
    const char *name, *schema;
    void (*put)(const struct fault *fault, struct buffer *to);
    struct {
        int status;
        const char *type;
    } kinds[FAULT_KINDS];
};
extern const struct fault_style openai_faults, tei_faults, cohere_faults;

/* How a member is read. One that is null counts as not given. */
enum member_kind {
    MEMBER_INPUT,      /* a text or a list of texts */
    MEMBER_TEXTS,      /* a list of texts */
    MEMBER_SEQUENCES,  /* a text, [a text], or a list of such lists; a list of two would be a pair, which is refused */
    MEMBER_DOCUMENTS,  /* a list of texts, or of objects with a member `text` */
    MEMBER_SIMILARITY, /* an object with `source_sentence`, which becomes the first text, and a list of `sentences` */
    MEMBER_STRING,     /* a text, decoded, at `offset` */
    MEMBER_NAME,       /* the same, at most CALL_NAME_MAX bytes; may be empty, as if it were not given */
    MEMBER_COUNT,      /* a whole number from 1 on, at `offset` */
    MEMBER_FLAG,       /* true or false, at `offset` */
    MEMBER_WORD,       /* one of `words`: its number in the list as a bit, at `offset` */
    MEMBER_WORDS,      /* a list of them */
    MEMBER_CHOICE,     /* one of `words`: its number in the list, as a signed char at `offset` */
    MEMBER_CHECKED,    /* one of `words`, which all mean the same to us: nothing is kept */
    MEMBER_MESSAGES,   /* the messages of a chat: a list, which becomes the only text */
    MEMBER_NUMBER,     /* a number, as it is written, at `offset` */
    MEMBER_STOPS,      /* a text or a list of texts, as a JSON array at `offset` */
    MEMBER_STREAM_OPTIONS, /* an object: its member `include_usage`, true or false, at `offset` */
    MEMBER_REFUSED,        /* would change the result and is not supported: only null, false and the values in `words`,
                            * JSON without blanks, are taken */
};

/* The most words of a member. */
enum { MEMBER_WORDS_MAX = 8 };

/* A member that a dialect knows. */
struct member {
    const char *name;
    enum member_kind kind;
    size_t offset; /* in struct call, of a slice, uint32_t, signed char or unsigned */
    const char *words[MEMBER_WORDS_MAX + 1];
    bool required;
};

/* A path to which bodies are posted. */
struct dialect {
    const char *path;
    const char *summary, *schema; /* for openapi.c; schema: of an answer, as that of a fault */
    enum request_task task;
    const struct member *members; /* [member_count] */
    size_t member_count;
    bool (*finish)(struct call *call, struct fault *fault); /* the last checks and defaults; NULL: none */
    void (*render)(const struct call *call, const struct answer *answer, struct buffer *to);
    /* TASK_GENERATE: appends the JSON of one text that was written, and why it has ended. */
    void (*put_choice)(const struct call *call, uint32_t index, struct slice text, const char *finish,
                       struct buffer *to);
    /* TASK_GENERATE, of an answer that is sent while it is written: append an event with a chunk, and the last ones. */
    void (*put_chunk)(const struct call *call, const struct answer *answer, const struct chunk *chunk,
                      struct buffer *to);
    void (*put_end)(const struct call *call, const struct answer *answer, struct buffer *to);
    const struct fault_style *faults;
};

extern const struct dialect openai_embeddings, openai_completions, openai_chat, tei_root, tei_embed, tei_rerank,
    tei_predict, tei_similarity, tei_tokenize, cohere_rerank_v1, cohere_rerank, cohere_embed_v1, cohere_embed;

/* All dialects; [dialect_count]. */
extern const struct dialect *const dialects[];
extern const size_t dialect_count;

/* The dialect of a path; NULL: none. */
const struct dialect *dialect_find(const char *path);

/* Chooses the prompt of a call that says what its vectors are for, if it names none itself: the model's prompt for that
 * purpose, by the names that models give it. A model that has no such prompt uses its own. `facts`: `model_facts` of
 * the queue; empty: not known. It must outlive the call. */
void call_choose_prompt(struct call *call, struct slice facts);

/* Appends the body of an answer, for which `texts`, model, prompt and query need not be there. The buffer is broken if
 * memory ran out. */
void dialect_render(const struct call *call, const struct answer *answer, struct buffer *to);

/* Appends the body of a fault; NULL: in OpenAI's dialect. */
void dialect_render_fault(const struct dialect *dialect, const struct fault *fault, struct buffer *to);

/* --- For the dialects' own files --- */

/* The number of documents that an answer has. */
uint32_t answer_top(const struct call *call);

/* Appends a score or another float, with the digits of the workers' own JSON. */
void answer_put_float(float value, struct buffer *to);

/* Appends vector `i` as an array of numbers, with the digits of the workers' own JSON, or as a string of base64. */
void answer_put_vector(const struct answer *answer, uint32_t i, bool base64, struct buffer *to);

#endif

/* Reads the JSON body of a request by a table of members. As strict as the workers (schedule/inputs.h), so that what is
 * read here is not refused there. Unknown members are skipped, as the original servers do. */
#ifndef GATEWAY_BODY_H
#define GATEWAY_BODY_H

#include "gateway/dialect.h"

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
    MEMBER_REFUSED,    /* would change the result and is not supported: only null and false are taken */
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

/* Reads a body into a call, whose dialect is set. Errors: as dialect_parse. */
MUST_CHECK bool body_read(const char *body, size_t length, struct call *call, struct fault *fault);

#endif

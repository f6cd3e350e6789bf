/* WordPiece: splits one word into the longest vocabulary entries from left to right, or turns it into the unknown
 * token. */
#ifndef TOKENIZER_WORDPIECE_H
#define TOKENIZER_WORDPIECE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/origin.h"
#include "tokenizer/trie.h"

enum { WORDPIECE_MAX_CHARACTERS = 4096 };

/* The vocabulary and its properties; read-only. */
struct wordpiece {
    struct trie *vocabulary;
    int32_t continuing; /* the trie's node after the prefix of pieces inside a word; TRIE_NONE when no entry has it */
    int32_t unknown;    /* the id for a word that cannot be split into entries, or is too long */
    uint32_t max_characters; /* of a word; at most WORDPIECE_MAX_CHARACTERS */
};

struct placing;

/* Bytes and their places in the text. */
struct placed {
    const char *bytes;
    const struct span *places;
};

/* The destination of ids. `count` goes on beyond `room`, so that the owner sees that there were more. */
struct id_sink {
    int32_t *ids; /* [room] */
    size_t room;
    size_t count;
    struct placing *placing; /* takes the ids and what they stand for (places.c), and `room` is 0; NULL: nobody asks */
    struct placed placed;    /* with `placing`: ids stand for some of these bytes */
};

/* For sinks with `placing`: takes an id and the `length` bytes that it stands for. `own`: the token's text is these
 * bytes, whatever the vocabulary says. */
__attribute__((cold)) void placing_put(struct id_sink *sink, int32_t id, const char *bytes, size_t length, bool own);

/* Appends an id, which stands for these bytes; one beyond the room is only counted. `own` as in placing_put. */
static inline void id_sink_put_as(struct id_sink *sink, int32_t id, const char *bytes, size_t length, bool own)
{
    if (sink->count < sink->room) {
        sink->ids[sink->count] = id;
    } else if (sink->placing) {
        placing_put(sink, id, bytes, length, own);
    }
    sink->count++;
}

static inline void id_sink_put(struct id_sink *sink, int32_t id, const char *bytes, size_t length)
{
    id_sink_put_as(sink, id, bytes, length, false);
}

/* The same for an added or unknown token. */
static inline void id_sink_put_text(struct id_sink *sink, int32_t id, const char *bytes, size_t length)
{
    id_sink_put_as(sink, id, bytes, length, true);
}

/* True if there were more ids than room: the caller can stop. */
static inline int id_sink_full(const struct id_sink *sink)
{
    return sink->count > sink->room && !sink->placing;
}

/* Appends the ids of one word of `characters` characters. A longer word than max_characters needs no bytes. */
void wordpiece_encode(const struct wordpiece *model, const char *word, size_t length, size_t characters,
                      struct id_sink *sink);

#endif

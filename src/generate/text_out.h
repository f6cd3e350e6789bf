/* Lets a text out only as far as no stop string can have begun. It takes whole characters (a stream of
 * tokenizer.h makes them). */
#ifndef GENERATE_TEXT_OUT_H
#define GENERATE_TEXT_OUT_H

#include <stdbool.h>

#include "base/buffer.h"

/* All zero, with its stop strings, is a text without bytes. Owns: the caller ends it with buffer_free of `text`. */
struct text_out {
    const char *const *stops; /* [stop_count], none empty */
    unsigned stop_count;
    struct buffer text; /* append to it, and then call text_out_check */
    size_t ready;       /* the bytes of `text` that may be sent */
    bool stopped;       /* a stop string was complete: the text ends before it */
};

/* Looks for stop strings in what was appended; `last`: nothing more comes, so nothing is held back. Of several stop
 * strings the one that begins first counts. Errors: the buffer is broken. */
void text_out_check(struct text_out *out, bool last);

#endif

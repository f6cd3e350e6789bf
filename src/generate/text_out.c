#include "generate/text_out.h"

#include <string.h>

/* True if a stop string could begin with these bytes. */
static bool begins_stop(const struct text_out *out, const char *bytes, size_t length)
{
    for (unsigned i = 0; i < out->stop_count; i++) {
        if (strncmp(out->stops[i], bytes, length) == 0) { return true; }
    }
    return false;
}

/* True if a stop string is at the front of the bytes. */
static bool is_stop(const struct text_out *out, const char *bytes, size_t length)
{
    for (unsigned i = 0; i < out->stop_count; i++) {
        size_t stop = strlen(out->stops[i]);
        if (stop <= length && memcmp(out->stops[i], bytes, stop) == 0) { return true; }
    }
    return false;
}

void text_out_check(struct text_out *out, bool last)
{
    if (out->stopped || !buffer_ok(&out->text)) { return; }
    for (; out->ready < out->text.length; out->ready++) {
        const char *bytes = out->text.data + out->ready;
        size_t length = out->text.length - out->ready;
        if (is_stop(out, bytes, length)) {
            out->text.length = out->ready;
            out->stopped = true;
            return;
        }
        if (!last && begins_stop(out, bytes, length)) { return; }
    }
}

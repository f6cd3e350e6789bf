#include "redis/pause.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { MS_DIGITS = 13 }; /* of a unix time in ms, from 2001 to 2286 */

void pause_format(const struct pause *pause, char *value)
{
    snprintf(value, PAUSE_VALUE, "%" PRIu64 " %s%s%s", pause->since_ms, pause->by, pause->why[0] ? " " : "",
             pause->why);
}

/* Copies as much as there is room for; a byte that is not UTF-8 becomes U+FFFD. */
static void copy_text(const char *from, size_t length, char *to, size_t size)
{
    snprintf(to, size, "%.*s", (int)(length < size ? length : size), from);
    utf8_mend(to, size);
}

void pause_parse(const char *value, size_t length, struct pause *out)
{
    const char *end = value + length;
    size_t digits = strspn(value, "0123456789");
    bool ours = digits == MS_DIGITS || (digits == 1 && value[0] == '0');
    *out = (struct pause){.on = true};
    if (ours && (value + digits == end || value[digits] == ' ')) {
        out->since_ms = strtoull(value, NULL, 10);
        value += digits + (value + digits < end);
        size_t word = strcspn(value, " ");
        copy_text(value, word, out->by, sizeof out->by);
        value += word + (value[word] == ' ');
    }
    if (value < end) { copy_text(value, (size_t)(end - value), out->why, sizeof out->why); }
}

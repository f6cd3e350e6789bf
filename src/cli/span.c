#include "cli/span.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY_MS UINT64_C(86400000)

static const struct {
    const char *unit;
    uint64_t ms;
} units[] = {{"d", DAY_MS}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum { UNITS = sizeof units / sizeof units[0] };

bool span_parse(const char *text, uint64_t *ms)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) || strspn(text, "0123456789") > 12)
        return false;
    uint64_t number = strtoull(text, &end, 10);
    for (int i = 0; i < UNITS; i++)
        if (strcmp(end, units[i].unit) == 0 && number <= 3650 * DAY_MS / units[i].ms) {
            *ms = number * units[i].ms;
            return true;
        }
    return false;
}

bool span_is(const char *text)
{
    uint64_t ms;
    return span_parse(text, &ms);
}

const char *span_format(uint64_t ms, char text[SPAN_TEXT])
{
    int i = 0;
    while (i + 1 < UNITS && ms < 2 * units[i].ms)
        i++;
    snprintf(text, SPAN_TEXT, "%" PRIu64 "%s", ms / units[i].ms, units[i].unit);
    return text;
}

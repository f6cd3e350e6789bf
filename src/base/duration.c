#include "base/duration.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *unit;
    uint64_t ms;
} units[] = {{"d", DAY_MS}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};

enum { UNITS = sizeof units / sizeof units[0] };

bool duration_parse(const char *text, uint64_t *ms)
{
    char *end;
    if (!isdigit((unsigned char)text[0]) || strspn(text, "0123456789") > 12) { return false; }
    uint64_t number = strtoull(text, &end, 10);
    for (int i = 0; i < UNITS; i++) {
        if (strcmp(end, units[i].unit) == 0 && number <= 3650 * DAY_MS / units[i].ms) {
            *ms = number * units[i].ms;
            return true;
        }
    }
    return false;
}

bool duration_is(const char *text)
{
    uint64_t ms;
    return duration_parse(text, &ms);
}

const char *duration_format(uint64_t ms, char text[DURATION_TEXT])
{
    int i = 0;
    while (i + 1 < UNITS && ms < 2 * units[i].ms) { i++; }
    snprintf(text, DURATION_TEXT, "%" PRIu64 "%s", ms / units[i].ms, units[i].unit);
    return text;
}

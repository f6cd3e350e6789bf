/* The pause of a queue. It is the key `paused`, which has a TTL if the pause has an end: so it is Redis that ends it,
 * by its own clock and for every worker. */
#ifndef REDIS_PAUSE_H
#define REDIS_PAUSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PAUSE_BY = 160,  /* with the NUL */
    PAUSE_WHY = 201, /* with the NUL */
    PAUSE_VALUE = PAUSE_BY + PAUSE_WHY + 24,
};

struct pause {
    bool on;
    uint64_t since_ms;   /* Redis unix ms; 0: not known */
    uint64_t until_ms;   /* Redis unix ms; 0: until somebody resumes the queue */
    char by[PAUSE_BY];   /* user@host; "": not known */
    char why[PAUSE_WHY]; /* "": not said */
};

/* Writes the key's value, `<unix ms> <user>@<host> <why>`, in which the time is 0 if it is not known. Shapes: value
 * [PAUSE_VALUE]. */
void pause_format(const struct pause *pause, char *value);

/* Reads the key's value; `until_ms` is 0, because the value does not have it. Older versions write only the time. Any
 * other value is a pause, too, and the value is its reason. Shapes: value [length] and a NUL. */
void pause_parse(const char *value, size_t length, struct pause *out);

#endif

/* How many requests ended on a day: fields of the hash `stats`, which lua/pulse writes. A day begins at Redis' midnight
 * in UTC, and takes the field of the one DAYS_KEPT days before it. */
#ifndef REDIS_DAY_COUNTS_H
#define REDIS_DAY_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

enum { DAYS_KEPT = 91, DAY_FIELD = 24 };

/* Requests that ended on one day; errors: neither done nor cancelled. */
struct day_counts {
    uint64_t done, errors;
};

/* Writes the name of the field of a day. Units: days since 1970. Shapes: field [DAY_FIELD]. */
void day_field(uint64_t day, char *field);

/* Reads a field's value, `<day> <done> <errors>`. False: another shape. */
bool day_counts_parse(const char *text, uint64_t *day, struct day_counts *out);

#endif

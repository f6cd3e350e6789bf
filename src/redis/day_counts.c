#include "redis/day_counts.h"

#include <inttypes.h>
#include <stdio.h>

void day_field(uint64_t day, char *field)
{
    snprintf(field, DAY_FIELD, "day:%" PRIu64, day % DAYS_KEPT);
}

bool day_counts_parse(const char *text, uint64_t *day, struct day_counts *out)
{
    return sscanf(text, "%" SCNu64 " %" SCNu64 " %" SCNu64, day, &out->done, &out->errors) == 3;
}

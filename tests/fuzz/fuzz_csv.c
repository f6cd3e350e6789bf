/* Any bytes as CSV: every byte is in exactly one record, and reading piece by piece finds the same records. */
#include <stdlib.h>
#include <string.h>

#include "bulk/input/csv.h"
#include "fuzz.h"

static void check_fields(const uint8_t *data, const struct csv_record *record, char separator)
{
    struct csv_fields fields = {0};
    struct err err;
    char *copy = malloc(record->content + 1);
    memcpy(copy, data, record->content);
    FUZZ_CHECK(csv_split(copy, record->content, separator, &fields, &err) == STATUS_OK);
    FUZZ_CHECK(fields.count >= 1);
    size_t bytes = 0;
    for (uint32_t i = 0; i < fields.count; i++) {
        const struct value *value = &fields.values[i];
        FUZZ_CHECK(value->bytes >= copy && value->bytes + value->length <= copy + record->content);
        bytes += value->length;
    }
    FUZZ_CHECK(bytes + fields.count - 1 <= record->content);
    free(fields.values);
    free(copy);
}

/* Skipped in two pieces, the record ends at the same place, or is found to be broken in the same way. */
static void check_skip(const char *from, size_t size, const struct csv_record *record, char separator)
{
    struct csv_skip skip = {0};
    size_t used = csv_skip(&skip, from, size / 2, separator);
    used += csv_skip(&skip, from + used, size - used, separator);
    FUZZ_CHECK(record->broken == (skip.state == CSV_BROKEN));
    FUZZ_CHECK(record->open == (skip.state == CSV_QUOTED));
    FUZZ_CHECK(record->broken || (used == record->length && skip.here.line == record->lines));
    FUZZ_CHECK(!record->open || (skip.quote.line == record->quote.line && skip.quote.column == record->quote.column));
}

static void read_all(const uint8_t *data, size_t size, char separator)
{
    for (size_t at = 0; at < size;) {
        const char *from = (const char *)data + at;
        struct csv_record record, early;
        FUZZ_CHECK(csv_find(from, size - at, true, separator, &record));
        FUZZ_CHECK(record.length >= 1 && record.length <= size - at && record.content <= record.length);
        if (csv_find(from, size - at, false, separator, &early)) /* sure without the end: then it is the same */
            FUZZ_CHECK(early.length == record.length && early.broken == record.broken);
        for (size_t part = size - at > 12 ? size - at - 12 : 0; part < size - at; part++)
            if (csv_find(from, part, false, separator, &early))
                FUZZ_CHECK(early.length == record.length && early.content == record.content &&
                           early.broken == record.broken);
        check_skip(from, size - at, &record, separator);
        if (!record.broken && !record.open)
            check_fields(data + at, &record, separator);
        at += record.length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 14)
        return 0;
    read_all(data, size, ',');
    read_all(data, size, '\t');
    return 0;
}

/* Any bytes as CSV: every byte is in exactly one record, and reading piece by piece finds the same records. */
#include <stdlib.h>
#include <string.h>

#include "bulk/input/csv.h"
#include "fuzz.h"

static void check_fields(const uint8_t *data, size_t content, char separator)
{
    struct csv_fields fields = {0};
    struct err err;
    char *copy = malloc(content + 1);
    memcpy(copy, data, content);
    FUZZ_CHECK(csv_split(copy, content, separator, &fields, &err) == STATUS_OK);
    FUZZ_CHECK(fields.count >= 1);
    size_t bytes = 0;
    for (uint32_t i = 0; i < fields.count; i++) {
        const struct value *value = &fields.values[i];
        FUZZ_CHECK(value->bytes >= copy && value->bytes + value->length <= copy + content);
        bytes += value->length;
    }
    FUZZ_CHECK(bytes + fields.count - 1 <= content);
    free(fields.values);
    free(copy);
}

static void read_all(const uint8_t *data, size_t size, char separator)
{
    for (size_t at = 0; at < size;) {
        const char *from = (const char *)data + at;
        struct csv_scan scan = {0}, parts = {0};
        size_t length = csv_scan(&scan, from, size - at, separator);
        size_t used = csv_scan(&parts, from, (size - at) / 2, separator);
        used += csv_scan(&parts, from + used, size - at - used, separator);
        FUZZ_CHECK(length >= 1 && length <= size - at && csv_content(from, length) <= length);
        FUZZ_CHECK(used == length && parts.state == scan.state && parts.here.line == scan.here.line &&
                   parts.quote.line == scan.quote.line && parts.quote.column == scan.quote.column);
        if (scan.state != CSV_BROKEN && scan.state != CSV_QUOTED) {
            check_fields(data + at, csv_content(from, length), separator);
        }
        at += length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 1 << 14) { return 0; }
    read_all(data, size, ',');
    read_all(data, size, '\t');
    return 0;
}

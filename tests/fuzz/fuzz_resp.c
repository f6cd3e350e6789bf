/* Any bytes as the answers of a Redis, in two cuts: both give the same values, or both fail; and all values are within
 * memory. Values that could be stream entries are read as such, too. */
#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "redis/queue_entries.h"
#include "redis/resp.h"

enum { MAX_BYTES = 1 << 16, DEPTH = 12 };

/* Sums every byte of a value, so that two readings can be compared. */
static uint64_t sum(const struct resp_value *value, int depth)
{
    uint64_t total = (uint64_t)value->type * 31 + (uint64_t)value->integer;
    FUZZ_CHECK(depth < DEPTH && value->count <= MAX_BYTES && value->length <= MAX_BYTES);
    for (size_t i = 0; i < value->length; i++) { total = total * 131 + (unsigned char)value->bytes[i]; }
    for (size_t i = 0; i < value->count; i++) { total = total * 17 + sum(&value->items[i], depth + 1); }
    FUZZ_CHECK(!value->bytes || value->bytes[value->length] == '\0');
    return total;
}

static size_t touch_entries(const struct entries *entries)
{
    size_t total = 0;
    for (size_t i = 0; i < entries->count; i++) {
        const struct entry *entry = &entries->items[i];
        FUZZ_CHECK(entry->class < CLASS_COUNT && !(entry->vanished && entry->field_count));
        for (size_t f = 0; f < entry->field_count; f++) {
            total += strlen(entry->fields[f].name) + entry->fields[f].value_length;
        }
    }
    return total;
}

static void check_entries(const struct resp_value *value)
{
    static const char *const streams[CLASS_COUNT] = {"sluice:{q}:requests:a", "n", "l"};
    struct entries entries = {0};
    struct err err = {0};
    if (entries_from_claim(&entries, value, CLASS_NORMAL, &err) == STATUS_OK) {
        FUZZ_CHECK(touch_entries(&entries) <= MAX_BYTES);
    }
    if (entries_from_read(&entries, value, streams, MAX_BYTES / 4, &err) == STATUS_OK) {
        FUZZ_CHECK(touch_entries(&entries) <= MAX_BYTES);
    }
    entries_free(&entries);
}

static void check_value(const struct resp_value *value)
{
    struct err err = {0};
    struct resp_value *clone = resp_clone(value);
    FUZZ_CHECK(clone && sum(clone, 0) == sum(value, 0));
    FUZZ_CHECK((resp_check(value, &err) != STATUS_OK) == (value->type == RESP_ERROR));
    check_entries(clone);
    free(clone);
}

/* Feeds pieces of at most `cut` bytes; returns a sum over all values and how it ended. */
static uint64_t read_all(const uint8_t *data, size_t size, size_t cut, size_t drop, enum status *status)
{
    struct resp_reader *reader;
    struct err err;
    uint64_t total = 0;
    *status = resp_open(MAX_BYTES, drop, &reader, &err);
    FUZZ_CHECK(*status == STATUS_OK);
    for (size_t at = 0; at < size && *status == STATUS_OK; at += cut) {
        const struct resp_value *value = NULL;
        *status = resp_feed(reader, (const char *)data + at, size - at < cut ? size - at : cut, &err);
        do {
            if (*status == STATUS_OK) { *status = resp_next(reader, &value, &err); }
            if (*status == STATUS_OK && value) {
                check_value(value);
                total = total * 7 + sum(value, 0);
            }
        } while (*status == STATUS_OK && value);
    }
    resp_close(reader);
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum status whole, bytewise;
    if (size > MAX_BYTES / 4) { return 0; }
    uint64_t a = read_all(data, size, size ? size : 1, 0, &whole), b = read_all(data, size, 1, 0, &bytewise);
    if (whole != STATUS_UNSUPPORTED &&
        bytewise != STATUS_UNSUPPORTED) { /* unread bytes count, too: near the cap cuts differ */
        FUZZ_CHECK(whole == bytewise && a == b);
    }
    return 0;
}

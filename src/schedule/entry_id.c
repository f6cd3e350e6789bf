/* Names of classes, entry ids, and the names of requests made of them. It uses no printf, because each request reads
 * and writes one or two. */
#include <string.h>

#include "schedule/request.h"

const char *const class_names[CLASS_COUNT + 1] = {"high", "normal", "low", NULL};
const char *const class_streams[CLASS_COUNT] = {"requests:high", "requests", "requests:low"};
const char *const class_prefixes[CLASS_COUNT] = {"high:", "", "low:"};

int entry_id_compare(struct entry_id a, struct entry_id b)
{
    if (a.ms != b.ms) { return a.ms < b.ms ? -1 : 1; }
    if (a.seq != b.seq) { return a.seq < b.seq ? -1 : 1; }
    return 0;
}

bool entry_id_is_set(struct entry_id id)
{
    return id.ms > 0 || id.seq > 0;
}

static char *put_decimal(char *to, uint64_t value)
{
    char digits[20];
    size_t count = 0;
    do {
        digits[count++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    while (count > 0) { *to++ = digits[--count]; }
    return to;
}

void entry_id_format(struct entry_id id, char text[ENTRY_ID_TEXT])
{
    char *at = put_decimal(text, id.ms);
    *at++ = '-';
    *put_decimal(at, id.seq) = '\0';
}

bool entry_id_parse(const char *text, size_t length, struct entry_id *out)
{
    const char *dash = memchr(text, '-', length);
    if (!dash) { return false; }
    size_t before = (size_t)(dash - text);
    return decimal_parse(text, before, &out->ms) && decimal_parse(dash + 1, length - before - 1, &out->seq);
}

void request_name_format(enum request_class class, struct entry_id id, char text[REQUEST_NAME_MAX])
{
    size_t prefix = strlen(class_prefixes[class]);
    memcpy(text, class_prefixes[class], prefix);
    entry_id_format(id, text + prefix);
}

bool request_name_parse(const char *text, size_t length, enum request_class *class, struct entry_id *id)
{
    *class = CLASS_NORMAL;
    for (enum request_class c = CLASS_HIGH; c < CLASS_COUNT; c++) {
        size_t prefix = strlen(class_prefixes[c]);
        if (prefix > 0 && length > prefix && memcmp(text, class_prefixes[c], prefix) == 0) {
            *class = c;
            return entry_id_parse(text + prefix, length - prefix, id);
        }
    }
    return entry_id_parse(text, length, id);
}

/* Redis has made no entry id below this since 2001, so `12-34` is not a request's name. */
static const uint64_t NAME_MS_MIN = 1000000000000;

bool request_id_usable(const char *id, size_t length)
{
    if (length == 0 || length > REQUEST_ID_MAX) { return false; }
    for (size_t i = 0; i < length; i++) {
        if (id[i] < ' ' || id[i] > '~') { return false; }
    }
    enum request_class class;
    struct entry_id entry;
    return !request_name_parse(id, length, &class, &entry) || entry.ms < NAME_MS_MIN;
}

bool decimal_parse(const char *text, size_t length, uint64_t *out)
{
    uint64_t value = 0;
    if (length == 0 || length > 20) { return false; }
    for (size_t i = 0; i < length; i++) {
        unsigned digit = (unsigned)(unsigned char)text[i] - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) { return false; }
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

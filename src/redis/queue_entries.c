#include "redis/queue_entries.h"

#include <stdlib.h>

enum status entries_malformed(struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "Redis answered with stream entries of an unknown shape");
}

static bool grow_array(void **items, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity) { return true; }
    size_t more = wanted < 64 ? 64 : wanted + wanted / 2;
    void *bigger = realloc(*items, more * size);
    if (bigger) {
        *items = bigger;
        *capacity = more;
    }
    return bigger;
}

enum status entries_prepare(struct entries *entries, size_t count, size_t fields, struct err *err)
{
    void *items = entries->items, *field_items = entries->fields;
    bool ok = grow_array(&items, &entries->capacity, count, sizeof *entries->items);
    entries->items = items;
    ok = grow_array(&field_items, &entries->field_capacity, fields + 1, sizeof *entries->fields) && ok;
    entries->fields = field_items;
    entries->count = 0;
    entries->more = false;
    entries->last = entries->first = (struct entry_id){0};
    return ok ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for stream entries");
}

static bool read_fields(const struct resp_value *list, struct entry_field *to)
{
    for (size_t i = 0; i + 1 < list->count; i += 2) {
        const struct resp_value *name = &list->items[i], *value = &list->items[i + 1];
        if (name->type != RESP_STRING || value->type != RESP_STRING) { return false; }
        to[i / 2] = (struct entry_field){name->bytes, name->length, value->bytes, value->length};
    }
    return list->count % 2 == 0;
}

/* Adds up the entries of a list and their fields, which are item `at` of each entry. An entry of XREADGROUP (at 1) may
 * be cut. False: another shape. */
static bool count_fields(const struct resp_value *list, size_t at, size_t *count, size_t *fields)
{
    for (size_t i = 0; i < list->count; i++) {
        const struct resp_value *entry = &list->items[i];
        bool whole = entry->type == RESP_ARRAY && entry->count == at + 1;
        if (!whole && (at > 1 || entry->type != RESP_CUT)) { return false; }
        *fields += whole ? entry->items[at].count / 2 : 0;
    }
    *count += list->count;
    return true;
}

/* Returns CLASS_COUNT if it is not one of our streams. */
static enum request_class find_class(const struct resp_value *name, const char *const streams[CLASS_COUNT])
{
    int c = 0;
    while (c < CLASS_COUNT && !resp_equals(name, streams[c])) { c++; }
    return (enum request_class)c;
}

/* The bytes of an entry's fields, including dropped ones; `cut`: some were dropped. */
static uint64_t weigh_fields(const struct resp_value *fields, bool *cut)
{
    uint64_t bytes = fields->type == RESP_CUT ? fields->length : 0;
    *cut = fields->type == RESP_CUT;
    for (size_t i = 0; i < fields->count; i++) {
        bytes += fields->items[i].length;
        *cut = *cut || fields->items[i].type == RESP_CUT;
    }
    return bytes;
}

bool entry_weighed(const struct resp_value *from, struct entry_id *id, uint64_t *bytes)
{
    bool cut;
    if (from->type != RESP_ARRAY || from->count != 2 || !resp_entry_id(&from->items[0], id)) { return false; }
    *bytes = weigh_fields(&from->items[1], &cut);
    return true;
}

struct reading {
    struct entries *entries;
    struct entry_field *fields; /* the next free ones */
    uint64_t most_bytes;
};

/* Appends one entry, or sets `more` if it did not fit. False: another shape. */
static bool read_entry(struct reading *reading, const struct resp_value *from, enum request_class class)
{
    struct entries *entries = reading->entries;
    struct entry entry = {.class = class};
    bool cut = from->type == RESP_CUT || from->items[0].type == RESP_CUT;
    if (cut) {
        entries->more = true;
        return true;
    }
    const struct resp_value *own = &from->items[1];
    if (!resp_entry_id(&from->items[0], &entry.id)) { return false; }
    uint64_t bytes = weigh_fields(own, &cut);
    if (cut && bytes <= reading->most_bytes && entries->count > 0) {
        entries->more = true;
        return true;
    }
    entry.oversize = cut;
    entry.oversize_bytes = cut ? bytes : 0;
    entry.vanished = own->type == RESP_NIL;
    if (!cut && !entry.vanished) {
        if (own->type != RESP_ARRAY || !read_fields(own, reading->fields)) { return false; }
        entry.fields = reading->fields;
        entry.field_count = own->count / 2;
        reading->fields += entry.field_count;
    }
    entries->items[entries->count++] = entry;
    entries->last = entry.id;
    return true;
}

static bool is_stream(const struct resp_value *stream, const char *const streams[CLASS_COUNT])
{
    return stream->type == RESP_ARRAY && stream->count == 2 && find_class(&stream->items[0], streams) < CLASS_COUNT &&
           (stream->items[1].type == RESP_ARRAY || stream->items[1].type == RESP_CUT);
}

enum status entries_from_read(struct entries *entries, const struct resp_value *answer,
                              const char *const streams[CLASS_COUNT], uint64_t most_bytes, struct err *err)
{
    size_t count = 0, field_count = 0;
    bool cut = answer->type == RESP_CUT;
    if (answer->type != RESP_NIL && answer->type != RESP_ARRAY && !cut) { return entries_malformed(err); }
    for (size_t i = 0; i < answer->count; i++) {
        const struct resp_value *stream = &answer->items[i];
        if (stream->type != RESP_CUT &&
            (!is_stream(stream, streams) || !count_fields(&stream->items[1], 1, &count, &field_count))) {
            return entries_malformed(err);
        }
    }
    TRY(entries_prepare(entries, count, field_count, err));
    struct reading reading = {entries, entries->fields, most_bytes};
    entries->more = cut;
    for (size_t i = 0; i < answer->count && !entries->more; i++) {
        const struct resp_value *stream = &answer->items[i];
        if (stream->type == RESP_CUT || stream->items[1].type == RESP_CUT) {
            entries->more = true;
            break;
        }
        const struct resp_value *list = &stream->items[1];
        for (size_t at = 0; !entries->more && at < list->count; at++) {
            if (!read_entry(&reading, &list->items[at], find_class(&stream->items[0], streams))) {
                return entries_malformed(err);
            }
        }
    }
    return STATUS_OK;
}

static bool read_claimed(const struct resp_value *from, enum request_class class, struct entry_field *fields,
                         struct entry *to)
{
    *to = (struct entry){.class = class, .fields = fields, .field_count = from->items[3].count / 2};
    if (!resp_entry_id(&from->items[0], &to->id) || from->items[1].type != RESP_INTEGER ||
        from->items[2].type != RESP_INTEGER || from->items[3].type != RESP_ARRAY) {
        return false;
    }
    long long how = from->items[1].integer, runs = from->items[2].integer;
    to->origin = how ? ORIGIN_RECLAIMED : ORIGIN_RELEASED;
    to->urgent = how == 2;
    to->unread = how == 3;
    to->group_run = runs < 0;
    to->quarantine_runs = runs < 0 ? 0 : runs > 1000 ? 1000 : (uint32_t)runs;
    return read_fields(&from->items[3], fields);
}

/* Appends entries of which only the id is known. */
static bool read_ids(struct entries *entries, const struct resp_value *list, const struct entry *like)
{
    for (size_t i = 0; i < list->count; i++) {
        struct entry *entry = &entries->items[entries->count++];
        *entry = *like;
        if (!resp_entry_id(&list->items[i], &entry->id)) { return false; }
    }
    return true;
}

static bool is_claim(const struct resp_value *answer)
{
    bool ok = answer->type == RESP_ARRAY && answer->count >= 4 && answer->count <= 6;
    for (size_t i = 0; ok && i < 3; i++) { ok = answer->items[i].type == RESP_ARRAY; }
    return ok && answer->items[3].type == RESP_INTEGER;
}

enum status entries_from_claim(struct entries *entries, const struct resp_value *answer, enum request_class class,
                               struct err *err)
{
    size_t count = 0, field_count = 0;
    if (!is_claim(answer) || !count_fields(&answer->items[0], 3, &count, &field_count)) {
        return entries_malformed(err);
    }
    const struct resp_value *claimed = &answer->items[0], *vanished = &answer->items[1], *large = &answer->items[2];
    enum status status = entries_prepare(entries, count + vanished->count + large->count, field_count, err);
    struct entry_field *fields = entries->fields;
    bool ok = true;
    for (size_t i = 0; !status && ok && i < claimed->count; i++) {
        ok = read_claimed(&claimed->items[i], class, fields, &entries->items[entries->count]);
        fields += entries->items[entries->count++].field_count;
    }
    struct entry gone = {.class = class, .origin = ORIGIN_RECLAIMED, .vanished = true};
    struct entry unread = {.class = class, .origin = ORIGIN_RECLAIMED, .oversize = true};
    ok = ok && !status && read_ids(entries, vanished, &gone) && read_ids(entries, large, &unread);
    ok = ok &&
         (answer->count < 5 || answer->items[4].type == RESP_ARRAY || resp_entry_id(&answer->items[4], &entries->last));
    ok = ok && (answer->count < 6 || resp_entry_id(&answer->items[5], &entries->first));
    entries->more = answer->items[3].integer != 0;
    return status ? status : ok ? STATUS_OK : entries_malformed(err);
}

void entries_free(struct entries *entries)
{
    free(entries->items);
    free(entries->fields);
    *entries = (struct entries){0};
}

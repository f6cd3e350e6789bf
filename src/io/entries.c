/* Stream entries out of RESP. Redis is trusted with data, not with shape: every type is checked before it is used. */
#include "io/entries.h"

#include <stdlib.h>

static enum status malformed(struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT, "Redis answered with stream entries of an unknown shape");
}

static bool grow(void **items, size_t *capacity, size_t wanted, size_t size)
{
    if (wanted <= *capacity) {
        return true;
    }
    size_t more = wanted < 64 ? 64 : wanted + wanted / 2;
    void *bigger = realloc(*items, more * size);
    if (bigger) {
        *items = bigger;
        *capacity = more;
    }
    return bigger != NULL;
}

/* Makes room for all entries and fields first: entries point into the fields, which must not move (and are never NULL).
 */
static enum status prepare(struct entries *entries, size_t count, size_t fields, struct err *err)
{
    void *items = entries->items, *field_items = entries->fields, *vanished = entries->vanished;
    bool ok = grow(&items, &entries->capacity, count, sizeof *entries->items);
    entries->items = items;
    ok = grow(&field_items, &entries->field_capacity, fields + 1, sizeof *entries->fields) && ok;
    entries->fields = field_items;
    ok = grow(&vanished, &entries->vanished_capacity, count, sizeof *entries->vanished) && ok;
    entries->vanished = vanished;
    entries->count = entries->vanished_count = entries->given = 0;
    entries->last = (struct entry_id){0};
    return ok ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for stream entries");
}

static bool read_fields(const struct resp_value *list, struct entry_field *to)
{
    for (size_t i = 0; i + 1 < list->count; i += 2) {
        const struct resp_value *name = &list->items[i], *value = &list->items[i + 1];
        if (name->type != RESP_STRING || value->type != RESP_STRING) {
            return false;
        }
        to[i / 2] = (struct entry_field){name->bytes, name->length, value->bytes, value->length};
    }
    return list->count % 2 == 0;
}

static bool read_id(const struct resp_value *value, struct entry_id *id)
{
    return value->type == RESP_STRING && entry_id_parse(value->bytes, value->length, id);
}

/* Sums the fields of entries whose field list is the item number `at`. False when one has no such item. */
static bool count_fields(const struct resp_value *list, size_t at, size_t *fields)
{
    *fields = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct resp_value *entry = &list->items[i];
        if (entry->type != RESP_ARRAY || entry->count != at + 1) {
            return false;
        }
        *fields += entry->items[at].count / 2;
    }
    return true;
}

enum status entries_from_read(struct entries *entries, const struct resp_value *answer, enum request_class class,
                              enum entry_origin origin, struct err *err)
{
    if (answer->type == RESP_NIL) {
        return prepare(entries, 0, 0, err);
    }
    if (answer->type != RESP_ARRAY || answer->count != 1 || answer->items[0].type != RESP_ARRAY ||
        answer->items[0].count != 2 || answer->items[0].items[1].type != RESP_ARRAY) {
        return malformed(err);
    }
    const struct resp_value *list = &answer->items[0].items[1];
    size_t field_count;
    if (!count_fields(list, 1, &field_count)) {
        return malformed(err);
    }
    enum status status = prepare(entries, list->count, field_count, err);
    struct entry_field *fields = entries->fields;
    for (size_t i = 0; !status && i < list->count; i++) {
        const struct resp_value *fields_value = &list->items[i].items[1];
        struct entry_id id;
        if (!read_id(&list->items[i].items[0], &id)) {
            return malformed(err);
        }
        entries->last = id;
        entries->given++;
        if (fields_value->type == RESP_NIL) {
            entries->vanished[entries->vanished_count++] = id;
            continue;
        }
        if (fields_value->type != RESP_ARRAY || !read_fields(fields_value, fields)) {
            return malformed(err);
        }
        entries->items[entries->count++] = (struct entry){
            .class = class, .id = id, .origin = origin, .fields = fields, .field_count = fields_value->count / 2};
        fields += fields_value->count / 2;
    }
    return status;
}

static bool read_claimed(const struct resp_value *from, enum request_class class, struct entry_field *fields,
                         struct entry *to)
{
    *to = (struct entry){.class = class, .fields = fields, .field_count = from->items[3].count / 2};
    if (!read_id(&from->items[0], &to->id) || from->items[1].type != RESP_INTEGER ||
        from->items[2].type != RESP_INTEGER || from->items[3].type != RESP_ARRAY) {
        return false;
    }
    long long lonely = from->items[2].integer;
    to->origin = from->items[1].integer ? ORIGIN_RECLAIMED : ORIGIN_RELEASED;
    to->lonely_runs = lonely < 0 ? 0 : lonely > 1000 ? 1000 : (uint32_t)lonely;
    return read_fields(&from->items[3], fields);
}

enum status entries_from_reclaim(struct entries *entries, const struct resp_value *answer, enum request_class class,
                                 bool *more, struct err *err)
{
    size_t field_count;
    if (answer->type != RESP_ARRAY || answer->count != 4 || answer->items[0].type != RESP_ARRAY ||
        answer->items[1].type != RESP_ARRAY || answer->items[2].type != RESP_ARRAY ||
        !count_fields(&answer->items[0], 3, &field_count)) {
        return malformed(err);
    }
    const struct resp_value *claimed = &answer->items[0], *vanished = &answer->items[1], *large = &answer->items[2];
    enum status status = prepare(entries, claimed->count + vanished->count + large->count, field_count, err);
    struct entry_field *fields = entries->fields;
    bool ok = true;
    for (size_t i = 0; !status && ok && i < claimed->count; i++) {
        ok = read_claimed(&claimed->items[i], class, fields, &entries->items[entries->count]);
        fields += entries->items[entries->count++].field_count;
    }
    for (size_t i = 0; !status && ok && i < vanished->count; i++) {
        ok = read_id(&vanished->items[i], &entries->vanished[entries->vanished_count++]);
    }
    for (size_t i = 0; !status && ok && i < large->count; i++) {
        struct entry *entry = &entries->items[entries->count++];
        *entry = (struct entry){.class = class, .origin = ORIGIN_RECLAIMED, .oversize = true};
        ok = read_id(&large->items[i], &entry->id);
    }
    *more = answer->items[3].type == RESP_INTEGER && answer->items[3].integer;
    entries->given = entries->count + entries->vanished_count;
    return status ? status : ok ? STATUS_OK : malformed(err);
}

void entries_free(struct entries *entries)
{
    free(entries->items);
    free(entries->fields);
    free(entries->vanished);
    *entries = (struct entries){0};
}

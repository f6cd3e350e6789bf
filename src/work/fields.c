/* What a producer may say in a request, one row and one function per field (docs/protocol.md, "Request").
 *
 * Out of range, empty, doubled or not known here yet: refused by name, never clamped and never silently ignored,
 * because a field that is ignored is a promise that is broken. The order of the table is the order of the checks: name
 * and id come first, so that any error reply finds its reader. */
#include "work/fields.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

struct taking {
    const struct request_rules *rules;
    struct request *request;
    const char *name;                /* of the field at hand */
    const struct entry_field *field; /* never NULL */
    char *copy;                      /* where the next copied bytes go */
};

typedef void (*take_field)(struct taking *taking);

struct known_field {
    const char *name;
    take_field take;
};

static bool equals(const struct entry_field *field, const char *text)
{
    size_t length = strlen(text);
    return field->value_length == length && memcmp(field->value, text, length) == 0;
}

static bool take_number(struct taking *taking, uint64_t least, uint64_t most, uint64_t *out)
{
    if (decimal_parse(taking->field->value, taking->field->value_length, out) && *out >= least && *out <= most)
        return true;
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: must be a number from %" PRIu64 " to %" PRIu64, taking->name,
                 least, most);
    return false;
}

static char *copy_value(struct taking *taking)
{
    char *to = taking->copy;
    memcpy(to, taking->field->value, taking->field->value_length);
    taking->copy += taking->field->value_length;
    return to;
}

static void take_own_id(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    struct request *request = taking->request;
    enum request_class class;
    struct entry_id id;
    if (field->value_length >= REQUEST_NAME_MAX ||
        !request_name_parse(field->value, field->value_length, &class, &id)) {
        request_fail(request, CODE_BAD_REQUEST, "%s: fields that begin with _ are the daemon's", taking->name);
        return;
    }
    request_name_format(class, id, request->name);
    memcpy(request->id, request->name, sizeof(request->name));
    request->borrowed_name = true;
    request->first_ms = id.ms;
}

static void take_own_attempt(struct taking *taking)
{
    uint64_t attempt;
    if (take_number(taking, 1, 1000, &attempt))
        taking->request->attempt = (uint32_t)attempt;
}

static void take_own_first_at(struct taking *taking)
{
    uint64_t ms;
    if (take_number(taking, 0, UINT64_MAX / 2, &ms))
        taking->request->first_ms = ms;
}

static void take_id(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    if (!request_id_usable(field->value, field->value_length)) {
        request_fail(taking->request, CODE_BAD_ID,
                     "id: 1 to %d of A-Z a-z 0-9 . _ : -, and not of the shape of an entry id", REQUEST_ID_MAX);
        return;
    }
    memcpy(taking->request->id, field->value, field->value_length);
    taking->request->id[field->value_length] = '\0';
}

static void take_ttl(struct taking *taking)
{
    uint64_t seconds;
    if (take_number(taking, 1, taking->rules->max_ttl_s, &seconds))
        taking->request->ttl_s = (uint32_t)seconds;
}

static void take_notify(struct taking *taking)
{
    if (equals(taking->field, "1"))
        taking->request->notify = true;
    else if (!equals(taking->field, "0"))
        request_fail(taking->request, CODE_BAD_REQUEST, "notify: 0 or 1; stream:<name> is not supported yet");
}

static void take_meta(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    if (field->value_length == 0 || field->value_length > META_MAX_BYTES)
        request_fail(taking->request, CODE_BAD_REQUEST, "meta: must have 1 to %d bytes", META_MAX_BYTES);
    else if (!utf8_valid(field->value, field->value_length))
        request_fail(taking->request, CODE_BAD_UTF8, "meta: not valid UTF-8");
    else {
        taking->request->meta = copy_value(taking);
        taking->request->meta_bytes = (uint32_t)field->value_length;
    }
}

static void take_max_attempts(struct taking *taking)
{
    uint64_t attempts;
    if (take_number(taking, 1, 10, &attempts))
        taking->request->max_attempts = (uint32_t)attempts;
}

static void take_encoding(struct taking *taking)
{
    if (equals(taking->field, "json"))
        taking->request->encoding = ENCODING_JSON;
    else if (equals(taking->field, "f32"))
        taking->request->encoding = ENCODING_F32;
    else
        request_fail(taking->request, CODE_BAD_REQUEST, "encoding: json or f32 (f16 and base64 are not supported yet)");
}

static void take_truncate(struct taking *taking)
{
    if (equals(taking->field, "0") || equals(taking->field, "1"))
        taking->request->truncate = equals(taking->field, "1");
    else
        request_fail(taking->request, CODE_BAD_REQUEST, "truncate: 0 or 1");
}

static void take_task(struct taking *taking)
{
    if (!equals(taking->field, "embed"))
        request_fail(taking->request, CODE_UNKNOWN_TASK, "task: this queue does embed");
}

static void take_model(struct taking *taking)
{
    if (!equals(taking->field, taking->rules->model_name) && !equals(taking->field, taking->rules->model_id))
        request_fail(taking->request, CODE_WRONG_MODEL, "model: this queue serves %.80s (%.40s)",
                     taking->rules->model_name, taking->rules->model_id);
}

static void take_text(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    struct request *request = taking->request;
    if (field->value_length == 0)
        request_fail(request, CODE_BAD_REQUEST, "text: must not be empty");
    else if (field->value_length > taking->rules->max_text_bytes)
        request_fail(request, CODE_TOO_LARGE, "text: %zu bytes, at most %" PRIu32 " are taken", field->value_length,
                     taking->rules->max_text_bytes);
    else if (!utf8_valid(field->value, field->value_length))
        request_fail(request, CODE_BAD_UTF8, "text: not valid UTF-8 from byte %zu on",
                     utf8_valid_prefix(field->value, field->value_length));
    else {
        request->rows[0].text = copy_value(taking);
        request->rows[0].text_bytes = (uint32_t)field->value_length;
    }
}

static void take_nothing(struct taking *taking)
{
    (void)taking;
}

static void refuse(struct taking *taking)
{
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: not supported yet by this version", taking->name);
}

/* The first three rows are looked up by number, below. */
enum { FIELD_OWN_ID, FIELD_ID, FIELD_TEXT, FIELD_META };

static const struct known_field known_fields[] = {
    [FIELD_OWN_ID] = {"_id", take_own_id}, /* before `id`: it changes the name */
    [FIELD_ID] = {"id", take_id},
    [FIELD_TEXT] = {"text", take_text},
    [FIELD_META] = {"meta", take_meta},
    {"_attempt", take_own_attempt},
    {"_first_at", take_own_first_at},
    {"ttl", take_ttl},
    {"notify", take_notify},
    {"max_attempts", take_max_attempts},
    {"encoding", take_encoding},
    {"truncate", take_truncate},
    {"task", take_task},
    {"model", take_model},
    {"traceparent", take_nothing},
    {"inputs", refuse},
    {"query", refuse},
    {"pairs", refuse},
    {"cancel", refuse},
    {"delay", refuse},
    {"not_before", refuse},
    {"expires_in", refuse},
    {"expires_at", refuse},
    {"track", refuse},
    {"tenant", refuse},
    {"normalize", refuse},
    {"prompt", refuse},
    {"prefix", refuse},
    {"dims", refuse},
};

enum { KNOWN_FIELDS = sizeof(known_fields) / sizeof(known_fields[0]) };
_Static_assert((int)KNOWN_FIELDS <= (int)KNOWN_FIELDS_MAX, "struct fields has room for every known field");

static int field_find(const struct entry_field *field)
{
    for (int i = 0; i < KNOWN_FIELDS; i++)
        if (strlen(known_fields[i].name) == field->name_length &&
            memcmp(known_fields[i].name, field->name, field->name_length) == 0)
            return i;
    return -1;
}

/* A retry begins with the daemon's own fields; the producer's are behind them, and may be as many as at first. */
static size_t fields_most(const struct entry *entry)
{
    bool retry = entry->field_count > 0 && field_find(&entry->fields[0]) == FIELD_OWN_ID;
    return REQUEST_FIELDS_MAX + (retry ? RETRY_FIELDS : 0);
}

void fields_collect(struct fields *fields, const struct entry *entry)
{
    size_t most = fields_most(entry);
    *fields = (struct fields){.too_many = entry->field_count > most};
    size_t count = fields->too_many ? most : entry->field_count;
    for (size_t i = 0; i < count; i++) {
        const struct entry_field *field = &entry->fields[i];
        int at = field_find(field);
        bool users_own = field->name_length >= 2 && memcmp(field->name, "x-", 2) == 0;
        if (at < 0)
            fields->unknown += !users_own;
        else if (fields->known[at] == NULL)
            fields->known[at] = field;
        else if (fields->doubled == NULL)
            fields->doubled = known_fields[at].name;
    }
    for (int i = 0; fields->too_many && i < KNOWN_FIELDS; i++)
        if (i != FIELD_ID && i != FIELD_OWN_ID)
            fields->known[i] = NULL;
}

size_t fields_copied_bytes(const struct fields *fields, const struct request_rules *rules)
{
    const struct entry_field *text = fields->known[FIELD_TEXT], *meta = fields->known[FIELD_META];
    size_t bytes = 0;
    if (text != NULL && text->value_length <= rules->max_text_bytes)
        bytes += text->value_length;
    if (meta != NULL && meta->value_length <= META_MAX_BYTES)
        bytes += meta->value_length;
    return bytes;
}

void fields_apply(const struct fields *fields, const struct request_rules *rules, struct request *request, char *copy)
{
    struct taking taking = {.rules = rules, .request = request, .copy = copy};
    if (fields->too_many)
        request_fail(request, CODE_BAD_REQUEST, "more than %d fields", REQUEST_FIELDS_MAX);
    if (fields->doubled != NULL)
        request_fail(request, CODE_BAD_REQUEST, "%s: given more than once", fields->doubled);
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        if (fields->known[i] == NULL || fields->doubled == known_fields[i].name)
            continue;
        taking.name = known_fields[i].name;
        taking.field = fields->known[i];
        known_fields[i].take(&taking);
    }
    if (fields->known[FIELD_TEXT] == NULL)
        request_fail(request, CODE_BAD_REQUEST, "text: missing");
}

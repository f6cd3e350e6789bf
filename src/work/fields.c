/* What a producer may say in a request, one row and one function per field (docs/protocol.md, "Request").
 *
 * Out of range, empty, doubled or not known here yet: refused by name, never clamped and never silently ignored,
 * because a field that is ignored is a promise that is broken. The order of the table is the order of the checks: name
 * and id come first, so that any error reply finds its reader, and then what such a reply echoes. */
#include "work/fields.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"
#include "work/fields_take.h"

/* --- For the functions that take a field -------------------------------------------------------------------------- */

bool field_is(const struct taking *taking, const char *text)
{
    size_t length = strlen(text);
    return taking->field->value_length == length && memcmp(taking->field->value, text, length) == 0;
}

bool take_number(struct taking *taking, uint64_t least, uint64_t most, uint64_t *out)
{
    if (decimal_parse(taking->field->value, taking->field->value_length, out) && *out >= least && *out <= most)
        return true;
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: must be a number from %" PRIu64 " to %" PRIu64, taking->name,
                 least, most);
    return false;
}

bool take_switch(struct taking *taking, bool *out)
{
    *out = field_is(taking, "1");
    if (*out || field_is(taking, "0"))
        return true;
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: 0 or 1", taking->name);
    return false;
}

char *copy_value(struct taking *taking)
{
    char *to = taking->copy;
    memcpy(to, taking->field->value, taking->field->value_length);
    taking->copy += taking->field->value_length;
    return to;
}

bool take_utf8(struct taking *taking, size_t most, const char **slice)
{
    const struct entry_field *field = taking->field;
    if (field->value_length == 0 || field->value_length > most)
        request_fail(taking->request, CODE_BAD_REQUEST, "%s: must have 1 to %zu bytes", taking->name, most);
    else if (!utf8_valid(field->value, field->value_length))
        request_fail(taking->request, CODE_BAD_UTF8, "%s: not valid UTF-8", taking->name);
    else {
        *slice = copy_value(taking);
        return true;
    }
    return false;
}

bool take_word(struct taking *taking, const char *allowed, char *to, size_t most)
{
    const struct entry_field *field = taking->field;
    bool good = field->value_length >= 1 && field->value_length <= most;
    for (size_t i = 0; good && i < field->value_length; i++)
        good = memchr(allowed, field->value[i], strlen(allowed)) != NULL;
    if (good) {
        memcpy(to, field->value, field->value_length);
        to[field->value_length] = '\0';
    }
    return good;
}

/* --- The table ---------------------------------------------------------------------------------------------------- */

static void refuse(struct taking *taking)
{
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: not supported yet by this version", taking->name);
}

enum field {
    FIELD_OWN_ID,
    FIELD_OWN_FIRST_AT,
    FIELD_OWN_ATTEMPT,
    FIELD_OWN_LOST,
    FIELD_ID,
    FIELD_META,
    FIELD_TENANT,
    FIELD_TRACEPARENT,
    FIELD_CANCEL,
    FIELD_TEXT,
    FIELD_INPUTS,
    FIELD_TTL,
    FIELD_NOTIFY,
    FIELD_TRACK,
    FIELD_MAX_ATTEMPTS,
    FIELD_DELAY,
    FIELD_EXPIRES_IN,
    FIELD_ENCODING,
    FIELD_TRUNCATE,
    FIELD_NORMALIZE,
    FIELD_DIMS,
    FIELD_PROMPT,
    FIELD_PREFIX,
    FIELD_TASK,
    FIELD_MODEL,
    FIELD_QUERY,
    FIELD_PAIRS,
    KNOWN_FIELDS,
};
_Static_assert((int)KNOWN_FIELDS <= (int)KNOWN_FIELDS_MAX, "struct fields has room for every known field");

static const struct known_field {
    const char *name;
    take_field take;
} known_fields[KNOWN_FIELDS] = {
    [FIELD_OWN_ID] = {"_id", take_own_id},                   /* before `id`: it changes the name */
    [FIELD_OWN_FIRST_AT] = {"_first_at", take_own_first_at}, /* before the deadlines, which count from it */
    [FIELD_OWN_ATTEMPT] = {"_attempt", take_own_attempt},
    [FIELD_OWN_LOST] = {"_lost", take_own_lost},
    [FIELD_ID] = {"id", take_id},
    [FIELD_META] = {"meta", take_meta},
    [FIELD_TENANT] = {"tenant", take_tenant},
    [FIELD_TRACEPARENT] = {"traceparent", take_traceparent},
    [FIELD_CANCEL] = {"cancel", take_cancel},
    [FIELD_TEXT] = {"text", take_text},
    [FIELD_INPUTS] = {"inputs", take_inputs},
    [FIELD_TTL] = {"ttl", take_ttl},
    [FIELD_NOTIFY] = {"notify", take_notify},
    [FIELD_TRACK] = {"track", take_track},
    [FIELD_MAX_ATTEMPTS] = {"max_attempts", take_max_attempts},
    [FIELD_DELAY] = {"delay", take_delay},
    [FIELD_EXPIRES_IN] = {"expires_in", take_expires_in},
    [FIELD_ENCODING] = {"encoding", take_encoding},
    [FIELD_TRUNCATE] = {"truncate", take_truncate},
    [FIELD_NORMALIZE] = {"normalize", take_normalize},
    [FIELD_DIMS] = {"dims", take_dims},
    [FIELD_PROMPT] = {"prompt", take_prompt},
    [FIELD_PREFIX] = {"prefix", take_prefix},
    [FIELD_TASK] = {"task", take_task},
    [FIELD_MODEL] = {"model", take_model},
    [FIELD_QUERY] = {"query", refuse},
    [FIELD_PAIRS] = {"pairs", refuse},
};

/* Two ways to say one thing: only one of them. */
static const enum field either[][2] = {
    {FIELD_TEXT, FIELD_INPUTS},
    {FIELD_PROMPT, FIELD_PREFIX},
};

/* --- Collecting --------------------------------------------------------------------------------------------------- */

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

void fields_collect(struct fields *fields, const struct entry *entry, const struct request_rules *rules)
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
    const struct entry_field *inputs = fields->known[FIELD_INPUTS];
    if (inputs != NULL)
        fields->inputs = inputs_measure(inputs->value, inputs->value_length, rules->max_inputs, rules->max_text_bytes);
}

bool fields_cancel(const struct fields *fields)
{
    return fields->known[FIELD_CANCEL] != NULL;
}

uint32_t fields_rows(const struct fields *fields)
{
    if (fields->known[FIELD_TEXT] != NULL)
        return 1;
    bool readable = fields->known[FIELD_INPUTS] != NULL && fields->inputs.problem == INPUTS_OK;
    return readable ? fields->inputs.count : 0;
}

size_t fields_copied_bytes(const struct fields *fields, const struct request_rules *rules)
{
    const struct {
        enum field field;
        size_t most;
    } copied[] = {{FIELD_TEXT, rules->max_text_bytes},
                  {FIELD_META, META_MAX_BYTES},
                  {FIELD_PREFIX, PREFIX_MAX_BYTES},
                  {FIELD_TRACEPARENT, TRACEPARENT_MAX_BYTES}};
    size_t bytes =
        fields->known[FIELD_INPUTS] != NULL && fields->inputs.problem == INPUTS_OK ? fields->inputs.bytes : 0;
    for (size_t i = 0; i < sizeof(copied) / sizeof(copied[0]); i++) {
        const struct entry_field *field = fields->known[copied[i].field];
        if (field != NULL && field->value_length <= copied[i].most)
            bytes += field->value_length;
    }
    return bytes;
}

/* --- Applying ----------------------------------------------------------------------------------------------------- */

static void check_either(const struct fields *fields, struct request *request)
{
    for (size_t i = 0; i < sizeof(either) / sizeof(either[0]); i++)
        if (fields->known[either[i][0]] != NULL && fields->known[either[i][1]] != NULL)
            request_fail(request, CODE_BAD_REQUEST, "%s: not together with %s", known_fields[either[i][1]].name,
                         known_fields[either[i][0]].name);
}

/* A cancel is an errand, not a request with options. It may have been parked on its way (lua/mend). */
static void check_cancel_alone(const struct fields *fields, struct request *request)
{
    for (int i = 0; i < KNOWN_FIELDS; i++)
        if (i != FIELD_CANCEL && known_fields[i].name[0] != '_' && fields->known[i] != NULL)
            request_fail(request, CODE_BAD_REQUEST, "cancel: not together with %s", known_fields[i].name);
}

void fields_apply(const struct fields *fields, const struct request_rules *rules, struct request *request, char *copy)
{
    struct taking taking = {.rules = rules, .fields = fields, .request = request, .copy = copy};
    if (fields->too_many)
        request_fail(request, CODE_BAD_REQUEST, "more than %d fields", REQUEST_FIELDS_MAX);
    if (fields->doubled != NULL)
        request_fail(request, CODE_BAD_REQUEST, "%s: given more than once", fields->doubled);
    check_either(fields, request);
    if (fields->known[FIELD_CANCEL] != NULL)
        check_cancel_alone(fields, request);
    else if (fields->known[FIELD_TEXT] == NULL && fields->known[FIELD_INPUTS] == NULL &&
             fields->known[FIELD_QUERY] == NULL && fields->known[FIELD_PAIRS] == NULL &&
             fields->known[FIELD_OWN_LOST] == NULL)
        request_fail(request, CODE_BAD_REQUEST, "text: missing, and so is inputs");
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        if (fields->known[i] == NULL || fields->doubled == known_fields[i].name)
            continue;
        taking.name = known_fields[i].name;
        taking.field = fields->known[i];
        known_fields[i].take(&taking);
    }
}

/* What a producer may say in a request, one row and one function per field (docs/protocol.md, "Request").
 *
 * Out of range, empty, doubled or not known here yet: refused by name, never clamped and never silently ignored,
 * because a field that is ignored is a promise that is broken. The order of the table is the order of the checks: name
 * and id come first, so that any error reply finds its reader, and then what such a reply echoes. */
#include "work/fields.h"

#include <inttypes.h>
#include <string.h>

#include "base/utf8.h"

#define DAY_MS UINT64_C(86400000)
#define DELAY_MOST_MS (30 * DAY_MS)
#define EXPIRES_MOST_MS (366 * DAY_MS)

#define ID_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
#define RESULTS_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_.-"

/* One field on its way into its request. */
struct taking {
    const struct request_rules *rules;
    const struct fields *fields;
    struct request *request;
    const char *name;                /* of the field at hand */
    const struct entry_field *field; /* never NULL */
    char *copy;                      /* where the next copied bytes go */
};

/* Checks the field at hand and takes it over. Errors: the request has failed. */
typedef void (*take_field)(struct taking *taking);

/* --- For the functions that take a field -------------------------------------------------------------------------- */

/* Whether the value is this text. */
static bool field_is(const struct taking *taking, const char *text)
{
    size_t length = strlen(text);
    return taking->field->value_length == length && memcmp(taking->field->value, text, length) == 0;
}

/* Reads a number from `least` to `most`. False when it is none: the request has failed then. */
static bool take_number(struct taking *taking, uint64_t least, uint64_t most, uint64_t *out)
{
    if (decimal_parse(taking->field->value, taking->field->value_length, out) && *out >= least && *out <= most)
        return true;
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: must be a number from %" PRIu64 " to %" PRIu64, taking->name,
                 least, most);
    return false;
}

/* Reads 0 or 1. False when it is neither: the request has failed then. */
static bool take_switch(struct taking *taking, bool *out)
{
    *out = field_is(taking, "1");
    if (*out || field_is(taking, "0"))
        return true;
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: 0 or 1", taking->name);
    return false;
}

/* Copies the value as it is behind the request, and returns where. */
static char *copy_value(struct taking *taking)
{
    char *to = taking->copy;
    memcpy(to, taking->field->value, taking->field->value_length);
    taking->copy += taking->field->value_length;
    return to;
}

/* Copies 1 to `most` bytes of UTF-8 behind the request. False when they are not: the request has failed then. */
static bool take_utf8(struct taking *taking, size_t most, const char **slice)
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

/* Copies 1 to `most` characters of those that are allowed, with a NUL. Shapes: to [most + 1]. False when they are not:
 * the caller says to the request what may stand there. */
static bool take_word(struct taking *taking, const char *allowed, char *to, size_t most)
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

/* --- The daemon's own --------------------------------------------------------------------------------------------- */

static void refuse_own(struct taking *taking)
{
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: fields that begin with _ are the daemon's", taking->name);
}

static void take_own_id(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    struct request *request = taking->request;
    enum request_class class;
    struct entry_id id;
    if (field->value_length >= REQUEST_NAME_MAX ||
        !request_name_parse(field->value, field->value_length, &class, &id)) {
        refuse_own(taking);
        return;
    }
    request_name_format(class, id, request->name);
    memcpy(request->id, request->name, sizeof(request->name));
    request->borrowed_name = true;
    request_submitted(request, id.ms);
}

static void take_own_attempt(struct taking *taking)
{
    uint64_t attempt;
    if (!taking->request->borrowed_name)
        refuse_own(taking);
    else if (take_number(taking, 1, 1000, &attempt))
        taking->request->attempt = (uint32_t)attempt;
}

static void take_own_first_at(struct taking *taking)
{
    uint64_t ms;
    if (!taking->request->borrowed_name)
        refuse_own(taking);
    else if (take_number(taking, 0, UINT64_MAX, &ms))
        request_submitted(taking->request, ms);
}

/* lua/promote could not read the fields that belong to this name: running it again would not bring them back. */
static void take_own_lost(struct taking *taking)
{
    struct request *request = taking->request;
    if (!request->borrowed_name) {
        refuse_own(taking);
    } else if (request->code == CODE_NONE) {
        request_fail(request, CODE_INTERNAL, "its fields could not be read any more when it came back from `later`");
        request->retryable = false;
    }
}

/* --- Whose -------------------------------------------------------------------------------------------------------- */

static void take_id(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    if (!request_id_usable(field->value, field->value_length)) {
        request_fail(taking->request, CODE_BAD_ID,
                     "id: 1 to %d printable ASCII characters, and not what Redis calls an entry", REQUEST_ID_MAX);
        return;
    }
    memcpy(taking->request->id, field->value, field->value_length);
    taking->request->id[field->value_length] = '\0';
}

static void take_cancel(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    enum request_class class;
    struct entry_id id;
    if (field->value_length < REQUEST_NAME_MAX && request_name_parse(field->value, field->value_length, &class, &id))
        request_name_format(class, id, taking->request->target);
    else
        request_fail(taking->request, CODE_BAD_REQUEST,
                     "cancel: must be the name of a request: <entry id>, high:<entry id> or low:<entry id>");
}

static void take_meta(struct taking *taking)
{
    if (take_utf8(taking, META_MAX_BYTES, &taking->request->meta))
        taking->request->meta_bytes = (uint32_t)taking->field->value_length;
}

static void take_tenant(struct taking *taking)
{
    if (!take_word(taking, ID_CHARACTERS, taking->request->tenant, TENANT_MAX))
        request_fail(taking->request, CODE_BAD_REQUEST, "tenant: 1 to %d of A-Z a-z 0-9 . _ : -", TENANT_MAX);
}

/* Checked so far that it may stand in a log line; whether it is a good one is the tracer's affair. */
static void take_traceparent(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    bool good = field->value_length >= 1 && field->value_length <= TRACEPARENT_MAX_BYTES;
    for (size_t i = 0; good && i < field->value_length; i++)
        good = field->value[i] > ' ' && field->value[i] <= '~';
    if (!good) {
        request_fail(taking->request, CODE_BAD_REQUEST, "traceparent: 1 to %d visible ASCII characters",
                     TRACEPARENT_MAX_BYTES);
        return;
    }
    taking->request->traceparent = copy_value(taking);
    taking->request->traceparent_bytes = (uint32_t)field->value_length;
}

/* --- How it ends -------------------------------------------------------------------------------------------------- */

static void take_ttl(struct taking *taking)
{
    uint64_t seconds;
    if (take_number(taking, 1, taking->rules->max_ttl_s, &seconds))
        taking->request->ttl_s = (uint32_t)seconds;
}

static void take_notify(struct taking *taking)
{
    static const char stream[] = "stream:";
    enum { PREFIX = sizeof(stream) - 1 };
    struct request *request = taking->request;
    const struct entry_field *whole = taking->field;
    if (whole->value_length > PREFIX && memcmp(whole->value, stream, PREFIX) == 0) {
        struct entry_field name = {.value = whole->value + PREFIX, .value_length = whole->value_length - PREFIX};
        taking->field = &name;
        bool good = take_word(taking, RESULTS_CHARACTERS, request->results, RESULTS_NAME_MAX);
        taking->field = whole;
        if (good)
            return;
    }
    request->notify = field_is(taking, "1");
    if (!request->notify && !field_is(taking, "0"))
        request_fail(request, CODE_BAD_REQUEST, "notify: 0, 1 or stream:<name>, with 1 to %d of a-z 0-9 _ . -",
                     RESULTS_NAME_MAX);
}

static void take_track(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->track = on;
}

static void take_max_attempts(struct taking *taking)
{
    uint64_t attempts;
    if (take_number(taking, 1, 10, &attempts))
        taking->request->max_attempts = (uint32_t)attempts;
}

/* --- When it may run ---------------------------------------------------------------------------------------------- */

/* Counted from the first submission, also when this is a retry. */
static uint64_t from_first(const struct request *request, uint64_t ms)
{
    return request->first_ms > UINT64_MAX - ms ? UINT64_MAX : request->first_ms + ms;
}

static void take_delay(struct taking *taking)
{
    uint64_t ms;
    if (take_number(taking, 0, DELAY_MOST_MS, &ms) && ms > 0)
        taking->request->due_at_ms = from_first(taking->request, ms);
}

static void take_expires_in(struct taking *taking)
{
    uint64_t ms;
    if (take_number(taking, 1, EXPIRES_MOST_MS, &ms))
        taking->request->expires_at_ms = from_first(taking->request, ms);
}

/* --- What is to be computed, and how the vectors are to look ------------------------------------------------------ */

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

static void fail_inputs(struct taking *taking)
{
    const struct inputs *inputs = &taking->fields->inputs;
    struct request *request = taking->request;
    uint32_t bad = inputs->count;
    switch (inputs->problem) {
    case INPUTS_NOT_TEXT:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: element %" PRIu32 " is not a text", bad);
        break;
    case INPUTS_BAD_STRING:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: text %" PRIu32 " is no JSON string, at byte %zu", bad,
                         inputs->at);
        break;
    case INPUTS_BAD_UTF8:
        request_fail_row(request, bad, CODE_BAD_UTF8, "inputs: text %" PRIu32 " is not valid UTF-8, at byte %zu", bad,
                         inputs->at);
        break;
    case INPUTS_EMPTY_TEXT:
        request_fail_row(request, bad, CODE_BAD_REQUEST, "inputs: text %" PRIu32 " is empty", bad);
        break;
    case INPUTS_TOO_MANY:
        request_fail(request, CODE_TOO_MANY_INPUTS, "inputs: more than %" PRIu32 " texts", taking->rules->max_inputs);
        break;
    case INPUTS_TOO_LARGE:
        request_fail(request, CODE_TOO_LARGE, "inputs: more than %" PRIu32 " bytes of text",
                     taking->rules->max_text_bytes);
        break;
    case INPUTS_NO_TEXTS:
        request_fail(request, CODE_BAD_REQUEST, "inputs: must not be empty");
        break;
    case INPUTS_NOT_ARRAY:
        request_fail(request, CODE_BAD_REQUEST, "inputs: JSON, but not an array of texts");
        break;
    default:
        request_fail(request, CODE_BAD_REQUEST, "inputs: not JSON at byte %zu; it takes an array of texts", inputs->at);
    }
}

static void take_inputs(struct taking *taking)
{
    const struct entry_field *field = taking->field;
    const struct inputs *inputs = &taking->fields->inputs;
    taking->request->inputs = true;
    if (inputs->problem != INPUTS_OK) {
        fail_inputs(taking);
    } else if (taking->request->row_count == inputs->count) { /* not so beside a `text`, which is refused */
        inputs_decode(field->value, field->value_length, taking->copy, taking->request->rows);
        taking->copy += inputs->bytes;
    }
}

static void take_encoding(struct taking *taking)
{
    for (int i = 0; i < ENCODING_COUNT; i++)
        if (field_is(taking, encoding_name((enum encoding)i))) {
            taking->request->encoding = (enum encoding)i;
            return;
        }
    request_fail(taking->request, CODE_BAD_REQUEST, "encoding: json, f32, f16 or base64");
}

static void take_truncate(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->truncate = on;
}

static void take_normalize(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->normalize = on;
}

static void take_dims(struct taking *taking)
{
    uint64_t dims;
    if (take_number(taking, 1, taking->rules->dim, &dims))
        taking->request->dims = (uint32_t)dims;
}

static bool prompt_allowed(struct taking *taking)
{
    if (taking->rules->no_prompt)
        request_fail(taking->request, CODE_BAD_REQUEST,
                     "%s: this model pools without its prompt, which is not supported", taking->name);
    return !taking->rules->no_prompt;
}

static void take_prompt(struct taking *taking)
{
    const struct request_rules *rules = taking->rules;
    if (!prompt_allowed(taking))
        return;
    for (uint32_t i = 0; i < rules->prompt_count; i++)
        if (field_is(taking, rules->prompts[i].name)) {
            taking->request->prompt = rules->prompts[i].text;
            taking->request->prompt_bytes = (uint32_t)strlen(rules->prompts[i].text);
            return;
        }
    request_fail(taking->request, CODE_BAD_REQUEST, "prompt: the model has no prompt of this name");
}

static void take_prefix(struct taking *taking)
{
    if (prompt_allowed(taking) && take_utf8(taking, PREFIX_MAX_BYTES, &taking->request->prompt))
        taking->request->prompt_bytes = (uint32_t)taking->field->value_length;
}

static void take_task(struct taking *taking)
{
    if (!field_is(taking, "embed"))
        request_fail(taking->request, CODE_UNKNOWN_TASK, "task: this queue does embed");
}

static void take_model(struct taking *taking)
{
    const struct request_rules *rules = taking->rules;
    if (!field_is(taking, rules->model_name) && !field_is(taking, rules->model_id))
        request_fail(taking->request, CODE_WRONG_MODEL, "model: this queue serves %.80s (%.40s)", rules->model_name,
                     rules->model_id);
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

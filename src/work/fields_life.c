/* The fields that say whose a request is, when it may run, how often, and how its end is told. */
#include <inttypes.h>
#include <string.h>

#include "work/fields_take.h"

#define DAY_MS UINT64_C(86400000)
#define DELAY_MOST_MS (30 * DAY_MS)
#define EXPIRES_MOST_MS (366 * DAY_MS)

#define ID_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
#define RESULTS_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_.-"

/* --- The daemon's own --------------------------------------------------------------------------------------------- */

static void refuse_own(struct taking *taking)
{
    request_fail(taking->request, CODE_BAD_REQUEST, "%s: fields that begin with _ are the daemon's", taking->name);
}

void take_own_id(struct taking *taking)
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

void take_own_attempt(struct taking *taking)
{
    uint64_t attempt;
    if (!taking->request->borrowed_name)
        refuse_own(taking);
    else if (take_number(taking, 1, 1000, &attempt))
        taking->request->attempt = (uint32_t)attempt;
}

void take_own_first_at(struct taking *taking)
{
    uint64_t ms;
    if (!taking->request->borrowed_name)
        refuse_own(taking);
    else if (take_number(taking, 0, UINT64_MAX, &ms))
        request_submitted(taking->request, ms);
}

/* lua/promote could not read the fields that belong to this name: running it again would not bring them back. */
void take_own_lost(struct taking *taking)
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

void take_id(struct taking *taking)
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

void take_cancel(struct taking *taking)
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

void take_meta(struct taking *taking)
{
    if (take_utf8(taking, META_MAX_BYTES, &taking->request->meta))
        taking->request->meta_bytes = (uint32_t)taking->field->value_length;
}

void take_tenant(struct taking *taking)
{
    if (!take_word(taking, ID_CHARACTERS, taking->request->tenant, TENANT_MAX))
        request_fail(taking->request, CODE_BAD_REQUEST, "tenant: 1 to %d of A-Z a-z 0-9 . _ : -", TENANT_MAX);
}

/* Checked so far that it may stand in a log line; whether it is a good one is the tracer's affair. */
void take_traceparent(struct taking *taking)
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

void take_ttl(struct taking *taking)
{
    uint64_t seconds;
    if (take_number(taking, 1, taking->rules->max_ttl_s, &seconds))
        taking->request->ttl_s = (uint32_t)seconds;
}

void take_notify(struct taking *taking)
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

void take_track(struct taking *taking)
{
    bool on;
    if (take_switch(taking, &on))
        taking->request->track = on;
}

void take_max_attempts(struct taking *taking)
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

void take_delay(struct taking *taking)
{
    uint64_t ms;
    if (take_number(taking, 0, DELAY_MOST_MS, &ms) && ms > 0)
        taking->request->due_at_ms = from_first(taking->request, ms);
}

void take_expires_in(struct taking *taking)
{
    uint64_t ms;
    if (take_number(taking, 1, EXPIRES_MOST_MS, &ms))
        taking->request->expires_at_ms = from_first(taking->request, ms);
}

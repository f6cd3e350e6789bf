/* The fields that a producer may use in a request, one row and one function per field (docs/protocol.md, "Request").
 *
 * A field that is out of range, empty, doubled or not supported yet is refused by name, never clamped or silently
 * ignored: an ignored field is a broken promise. The order of the table is the order of the checks: name and id come
 * first, so that every error reply reaches its reader, then the fields that such a reply echoes.
 *
 * A request is one allocation: its rows and its copies of texts and meta follow it. */
#include "schedule/encodings.h"
#include "schedule/request.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/duration.h"
#include "base/edit_distance.h"
#include "base/utf8.h"
#include "schedule/inputs.h"
#include "schedule/reply.h"
#include "schedule/trace_context.h"

#define REPLY_MAX_BYTES ((size_t)512 << 20) /* Redis' proto-max-bulk-len */
#define DELAY_MAX_MS (30 * DAY_MS)
#define EXPIRES_MAX_MS (366 * DAY_MS)

#define ID_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-"
#define RESULTS_CHARACTERS "abcdefghijklmnopqrstuvwxyz0123456789_.-"

enum {
    REQUEST_FIELDS_MAX = 64,
    META_MAX_BYTES = 4096, /* no other value is longer, except texts */
    INTO_MAX_BYTES = 512,
    IGNORED_NAMES_MAX = 8,
    IGNORED_NAME_BYTES = 64,
    WRITING_TOKENS = 256, /* max_tokens, if it is not given */
    WRITING_MAX_TOKENS = 1 << 20,
    TOP_K_MOST = 1 << 30,
    LOGPROBS_MOST = 20,
    DECIMAL_MAX = 32, /* characters of a fraction, and the largest one */
    DECIMAL_MOST = 1000,
    RETRY_FIELDS = 3, /* _id, _attempt and _first_at, which lua/promote puts before a retry's own fields */
};

/* One field on its way into its request. */
struct parsing {
    const struct request_rules *rules;
    const struct inputs *inputs; /* measured */
    struct request *request;
    const char *name;                /* of the current field */
    const struct entry_field *field; /* never NULL */
    char *copy;                      /* the place for the next copied bytes */
};

/* Checks the current field and takes it over. Errors: the request has failed. */
typedef void (*parse_field)(struct parsing *parsing);

/* --- for the parsers --- */

/* Returns whether the value is this text. */
static bool field_is(const struct entry_field *field, const char *text)
{
    size_t length = strlen(text);
    return field->value_length == length && memcmp(field->value, text, length) == 0;
}

static bool value_is(const struct parsing *parsing, const char *text)
{
    return field_is(parsing->field, text);
}

/* Reads a number from `least` to `most`. False if it is not one: the request has failed. */
static bool parse_in_range(struct parsing *parsing, uint64_t least, uint64_t most, uint64_t *out)
{
    if (decimal_parse(parsing->field->value, parsing->field->value_length, out) && *out >= least && *out <= most) {
        return true;
    }
    request_fail(parsing->request, CODE_BAD_REQUEST, "%s: must be a number from %" PRIu64 " to %" PRIu64, parsing->name,
                 least, most);
    return false;
}

/* The same for a member of 32 bits, which a wrong number leaves as it is. */
static void parse_count(struct parsing *parsing, uint32_t least, uint32_t most, uint32_t *out)
{
    uint64_t number;
    if (parse_in_range(parsing, least, most, &number)) { *out = (uint32_t)number; }
}

/* Reads 0 or 1. If it is neither, the request has failed. */
static void parse_zero_or_one(struct parsing *parsing, bool *out)
{
    *out = value_is(parsing, "1");
    if (!*out && !value_is(parsing, "0")) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "%s: 0 or 1", parsing->name);
    }
}

/* Copies the value into the block after the request. */
static void copy_value(struct parsing *parsing, const char **to, uint32_t *bytes)
{
    *to = parsing->copy;
    *bytes = (uint32_t)parsing->field->value_length;
    memcpy(parsing->copy, parsing->field->value, parsing->field->value_length);
    parsing->copy += parsing->field->value_length;
}

/* Copies 1 to `most` allowed characters and a NUL. Shapes: to [most + 1]. False if the value is not of that kind: the
 * caller fails the request. */
static bool parse_word(struct parsing *parsing, const char *allowed, char *to, size_t most)
{
    const struct entry_field *field = parsing->field;
    bool good = field->value_length >= 1 && field->value_length <= most;
    for (size_t i = 0; good && i < field->value_length; i++) {
        good = memchr(allowed, field->value[i], strlen(allowed));
    }
    if (good) {
        memcpy(to, field->value, field->value_length);
        to[field->value_length] = '\0';
    }
    return good;
}

/* --- The daemon's own fields --- */

static void refuse_own(struct parsing *parsing)
{
    request_fail(parsing->request, CODE_BAD_REQUEST, "%s: fields that begin with _ are the daemon's", parsing->name);
}

static void parse_own_id(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    struct request *request = parsing->request;
    enum request_class class;
    struct entry_id id;
    if (field->value_length >= REQUEST_NAME_MAX ||
        !request_name_parse(field->value, field->value_length, &class, &id)) {
        refuse_own(parsing);
        return;
    }
    request_name_format(class, id, request->identity.name);
    memcpy(request->identity.id, request->identity.name, sizeof(request->identity.name));
    request->identity.borrowed_name = true;
    request_submitted(request, id.ms);
}

static void parse_own_attempt(struct parsing *parsing)
{
    if (!parsing->request->identity.borrowed_name) {
        refuse_own(parsing);
    } else {
        parse_count(parsing, 1, 1000, &parsing->request->retry.attempt);
    }
}

static void parse_own_first_at(struct parsing *parsing)
{
    uint64_t ms;
    if (!parsing->request->identity.borrowed_name) {
        refuse_own(parsing);
    } else if (parse_in_range(parsing, 0, UINT64_MAX, &ms)) {
        request_submitted(parsing->request, ms);
    }
}

/* lua/promote could not read the fields of this name, and another run would not bring them back. */
static void parse_own_lost(struct parsing *parsing)
{
    struct request *request = parsing->request;
    if (!request->identity.borrowed_name) {
        refuse_own(parsing);
    } else if (request->retry.code == CODE_NONE) {
        request_fail(request, CODE_INTERNAL, "its fields could not be read any more when it came back from `later`");
        request->retry.retryable = false;
    }
}

/* --- Identity --- */

static void parse_id(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    if (!request_id_usable(field->value, field->value_length)) {
        request_fail(parsing->request, CODE_BAD_ID,
                     "id: 1 to %d printable ASCII characters, and not what Redis calls an entry", REQUEST_ID_MAX);
        return;
    }
    memcpy(parsing->request->identity.id, field->value, field->value_length);
    parsing->request->identity.id[field->value_length] = '\0';
}

static void parse_cancel(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    enum request_class class;
    struct entry_id id;
    if (field->value_length < REQUEST_NAME_MAX && request_name_parse(field->value, field->value_length, &class, &id)) {
        request_name_format(class, id, parsing->request->identity.target);
    } else {
        request_fail(parsing->request, CODE_BAD_REQUEST,
                     "cancel: must be the name of a request: <entry id>, high:<entry id> or low:<entry id>");
    }
}

static void parse_meta(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    if (field->value_length == 0 || field->value_length > META_MAX_BYTES) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "meta: must have 1 to %d bytes", META_MAX_BYTES);
    } else if (!utf8_valid(field->value, field->value_length)) {
        request_fail(parsing->request, CODE_BAD_UTF8, "meta: not valid UTF-8");
    } else {
        copy_value(parsing, &parsing->request->identity.meta, &parsing->request->identity.meta_bytes);
    }
}

static void parse_tenant(struct parsing *parsing)
{
    if (!parse_word(parsing, ID_CHARACTERS, parsing->request->identity.tenant, TENANT_MAX)) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "tenant: 1 to %d of A-Z a-z 0-9 . _ : -", TENANT_MAX);
    }
}

/* A traceparent may come from the producer's own caller. By W3C Trace Context a malformed one counts as not given. */
static void parse_traceparent(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    if (!is_traceparent(field->value, field->value_length)) { return; }
    parsing->request->identity.sampled = strchr("13579bdf", field->value[54]);
    copy_value(parsing, &parsing->request->identity.traceparent, &parsing->request->identity.traceparent_bytes);
}

static void parse_tracestate(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    if (!parsing->request->identity.traceparent || !is_tracestate(field->value, field->value_length)) { return; }
    copy_value(parsing, &parsing->request->identity.tracestate, &parsing->request->identity.tracestate_bytes);
}

/* --- The end of the request --- */

static void parse_ttl(struct parsing *parsing)
{
    parse_count(parsing, 1, parsing->rules->max_ttl_s, &parsing->request->output.ttl_s);
}

static void parse_notify(struct parsing *parsing)
{
    static const char stream[] = "stream:";
    enum { PREFIX = sizeof(stream) - 1 };
    struct request *request = parsing->request;
    const struct entry_field *whole = parsing->field;
    if (whole->value_length > PREFIX && memcmp(whole->value, stream, PREFIX) == 0) {
        struct entry_field name = {.value = whole->value + PREFIX, .value_length = whole->value_length - PREFIX};
        parsing->field = &name;
        bool good = parse_word(parsing, RESULTS_CHARACTERS, request->output.results, RESULTS_NAME_MAX);
        parsing->field = whole;
        if (good) { return; }
    }
    request->output.notify = value_is(parsing, "1");
    if (!request->output.notify && !value_is(parsing, "0")) {
        request_fail(request, CODE_BAD_REQUEST, "notify: 0, 1 or stream:<name>, with 1 to %d of a-z 0-9 _ . -",
                     RESULTS_NAME_MAX);
    }
}

/* Any task may have it, so that whoever reads the stream learns of the error. */
static void parse_stream(struct parsing *parsing)
{
    struct request *request = parsing->request;
    if (!parse_word(parsing, RESULTS_CHARACTERS, request->output.stream, RESULTS_NAME_MAX)) {
        request_fail(request, CODE_BAD_REQUEST, "stream: 1 to %d of a-z 0-9 _ . -", RESULTS_NAME_MAX);
    } else if (request->task != TASK_GENERATE) {
        request_fail(request, CODE_BAD_REQUEST, "stream: not with task %s", task_names[request->task]);
    }
}

/* Returns whether one of the patterns matches. Keys of queues never match, whatever the patterns are. */
static bool may_go_into(const char *patterns, const char *key)
{
    char copy[INTO_MAX_BYTES + 1];
    if (strncmp(key, "sluice:", strlen("sluice:")) == 0) { return false; }
    while (patterns && *(patterns += strspn(patterns, " ")) != '\0') {
        size_t length = strcspn(patterns, " ");
        if (length <= INTO_MAX_BYTES) {
            memcpy(copy, patterns, length);
            copy[length] = '\0';
            if (fnmatch(copy, key, 0) == 0) { return true; }
        }
        patterns += length;
    }
    return false;
}

static void parse_into(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    char key[INTO_MAX_BYTES + 1] = "";
    if (field->value_length <= INTO_MAX_BYTES && !memchr(field->value, '\0', field->value_length)) {
        memcpy(key, field->value, field->value_length);
    }
    if (key[0] == '\0' || !may_go_into(parsing->rules->into_keys, key)) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "into: not among the keys that this queue's into_keys allow");
        return;
    }
    copy_value(parsing, &parsing->request->output.into, &parsing->request->output.into_bytes);
}

static void parse_into_field(struct parsing *parsing)
{
    size_t length = parsing->field->value_length;
    if (length == 0 || length > INTO_MAX_BYTES) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "into_field: must have 1 to %d bytes", INTO_MAX_BYTES);
        return;
    }
    copy_value(parsing, &parsing->request->output.into_field, &parsing->request->output.into_field_bytes);
}

static void parse_max_attempts(struct parsing *parsing)
{
    parse_count(parsing, 1, 10, &parsing->request->retry.max_attempts);
}

/* --- The time of its run --- */

/* Counts from the first submission, even for a retry. */
static uint64_t from_first(const struct request *request, uint64_t ms)
{
    return request->identity.first_ms > UINT64_MAX - ms ? UINT64_MAX : request->identity.first_ms + ms;
}

static void parse_delay(struct parsing *parsing)
{
    uint64_t ms;
    if (parse_in_range(parsing, 0, DELAY_MAX_MS, &ms) && ms > 0) {
        parsing->request->lifetime.due_at_ms = from_first(parsing->request, ms);
    }
}

static void parse_expires_in(struct parsing *parsing)
{
    uint64_t ms;
    if (parse_in_range(parsing, 1, EXPIRES_MAX_MS, &ms)) {
        parsing->request->lifetime.expires_at_ms = from_first(parsing->request, ms);
    }
}

/* --- The computation, and the form of the reply --- */

const char *const task_names[TASK_COUNT + 1] = {"embed", "rerank", "classify", "tokenize", "generate"};

bool head_does(const struct model_head *head, enum request_task task)
{
    uint32_t labels = head ? head->labels : 0;
    if (task == TASK_GENERATE || (head && head->generates)) { return task == TASK_GENERATE && head && head->generates; }
    return task == TASK_EMBED      ? labels == 0
           : task == TASK_RERANK   ? labels == 1
           : task == TASK_CLASSIFY ? labels > 0
                                   : false;
}

/* A model with one label does both rerank and classify: a regression or a filter takes a text, not a pair. */
static void parse_task(struct parsing *parsing)
{
    const struct request_rules *rules = parsing->rules;
    int task = 0;
    while (task < TASK_COUNT && !value_is(parsing, task_names[task])) { task++; }
    if (task == TASK_TOKENIZE || (task < TASK_COUNT && head_does(rules->head, (enum request_task)task))) {
        parsing->request->task = (enum request_task)task;
    } else {
        request_fail(parsing->request, CODE_UNKNOWN_TASK, "task: this queue does %s",
                     head_does(rules->head, TASK_EMBED)      ? "embed"
                     : head_does(rules->head, TASK_GENERATE) ? "generate"
                     : head_does(rules->head, TASK_RERANK)   ? "rerank and classify"
                                                             : "classify");
    }
}

/* Copies a text. If it is not one, the request has failed. */
static void copy_request_text(struct parsing *parsing, const char **to, uint32_t *bytes)
{
    const struct entry_field *field = parsing->field;
    struct request *request = parsing->request;
    if (field->value_length == 0) {
        request_fail(request, CODE_BAD_REQUEST, "%s: must not be empty", parsing->name);
    } else if (field->value_length > parsing->rules->max_text_bytes) {
        request_fail(request, CODE_TOO_LARGE, "%s: %zu bytes, at most %" PRIu32 " are taken", parsing->name,
                     field->value_length, parsing->rules->max_text_bytes);
    } else if (!utf8_valid(field->value, field->value_length)) {
        request_fail(request, CODE_BAD_UTF8, "%s: not valid UTF-8 from byte %zu on", parsing->name,
                     utf8_valid_prefix(field->value, field->value_length));
    } else {
        copy_value(parsing, to, bytes);
    }
}

static void parse_one_text(struct parsing *parsing)
{
    copy_request_text(parsing, &parsing->request->rows[0].text, &parsing->request->rows[0].text_bytes);
}

static void parse_query(struct parsing *parsing)
{
    copy_request_text(parsing, &parsing->request->query, &parsing->request->query_bytes);
}

static void fail_inputs(struct parsing *parsing)
{
    const struct inputs *inputs = parsing->inputs;
    struct request *request = parsing->request;
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
        request_fail(request, CODE_TOO_MANY_INPUTS, "inputs: more than %" PRIu32 " texts", parsing->rules->max_inputs);
        break;
    case INPUTS_TOO_LARGE:
        request_fail(request, CODE_TOO_LARGE, "inputs: more than %" PRIu32 " bytes of text",
                     parsing->rules->max_text_bytes);
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

static void parse_inputs(struct parsing *parsing)
{
    const struct entry_field *field = parsing->field;
    const struct inputs *inputs = parsing->inputs;
    parsing->request->inputs = true;
    if (inputs->problem != INPUTS_OK) {
        fail_inputs(parsing);
    } else if (parsing->request->row_count == inputs->count) { /* not equal beside a `text`, which is refused */
        inputs_decode(field->value, field->value_length, parsing->copy, parsing->request->rows);
        parsing->copy += inputs->bytes;
    }
}

static void parse_encoding(struct parsing *parsing)
{
    char known[128] = "";
    for (int i = 0; i < ENCODING_COUNT; i++) {
        const char *name = encoding_name((enum encoding)i);
        if (value_is(parsing, name)) {
            parsing->request->output.encoding = (enum encoding)i;
            return;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof(known) - used, "%s%s", i == 0 ? "" : ", ", name);
    }
    request_fail(parsing->request, CODE_BAD_REQUEST, "encoding: must be one of %s", known);
}

static void parse_truncate(struct parsing *parsing)
{
    parse_zero_or_one(parsing, &parsing->request->truncate);
}

static void parse_normalize(struct parsing *parsing)
{
    parse_zero_or_one(parsing, &parsing->request->output.normalize);
}

static void parse_raw(struct parsing *parsing)
{
    parse_zero_or_one(parsing, &parsing->request->output.raw);
}

static void parse_special_tokens(struct parsing *parsing)
{
    parse_zero_or_one(parsing, &parsing->request->output.specials);
}

static void parse_top_n(struct parsing *parsing)
{
    parse_count(parsing, 1, UINT32_MAX, &parsing->request->output.top_n);
}

static void parse_dims(struct parsing *parsing)
{
    parse_count(parsing, 1, parsing->rules->dim, &parsing->request->output.dims);
}

/* Of TASK_EMBED the name of a prompt, where an empty one means no prompt; of TASK_GENERATE the prompt. */
static void parse_prompt(struct parsing *parsing)
{
    const struct request_rules *rules = parsing->rules;
    if (parsing->request->task == TASK_GENERATE) {
        parse_one_text(parsing);
        return;
    }
    if (rules->no_prompt) {
        request_fail(parsing->request, CODE_BAD_REQUEST,
                     "prompt: this model pools without its prompt, which is not supported");
        return;
    }
    if (parsing->field->value_length == 0) {
        parsing->request->prompt = "";
        return;
    }
    for (uint32_t i = 0; i < rules->prompt_count; i++) {
        if (value_is(parsing, rules->prompts[i].name)) {
            parsing->request->prompt = rules->prompts[i].text;
            parsing->request->prompt_bytes = (uint32_t)strlen(rules->prompts[i].text);
            return;
        }
    }
    request_fail(parsing->request, CODE_BAD_REQUEST, "prompt: the model has no prompt of this name");
}

/* --- TASK_GENERATE --- */

static void parse_messages(struct parsing *parsing)
{
    parsing->request->writing->messages = true;
    parse_one_text(parsing);
}

static void parse_max_tokens(struct parsing *parsing)
{
    parse_count(parsing, 0, WRITING_MAX_TOKENS, &parsing->request->writing->max_tokens);
}

/* Reads a decimal number from 0 to DECIMAL_MOST. */
static void parse_decimal(struct parsing *parsing, double *out)
{
    char text[DECIMAL_MAX + 1], *end = text;
    double number = parse_word(parsing, "0123456789.eE+-", text, DECIMAL_MAX) ? strtod(text, &end) : 0;
    if (end == text || *end != '\0' || number < 0 || number > DECIMAL_MOST) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "%s: must be a number from 0 to %d", parsing->name,
                     DECIMAL_MOST);
        return;
    }
    *out = number;
}

static void parse_temperature(struct parsing *parsing)
{
    parse_decimal(parsing, &parsing->request->writing->sampling.temperature);
}

static void parse_top_p(struct parsing *parsing)
{
    parse_decimal(parsing, &parsing->request->writing->sampling.top_p);
}

static void parse_min_p(struct parsing *parsing)
{
    parse_decimal(parsing, &parsing->request->writing->sampling.min_p);
}

static void parse_repetition_penalty(struct parsing *parsing)
{
    parse_decimal(parsing, &parsing->request->writing->sampling.repetition_penalty);
}

static void parse_top_k(struct parsing *parsing)
{
    parse_count(parsing, 0, TOP_K_MOST, &parsing->request->writing->sampling.top_k);
}

static void parse_logprobs(struct parsing *parsing)
{
    parse_count(parsing, 0, LOGPROBS_MOST, &parsing->request->writing->top_logprobs);
}

static void parse_seed(struct parsing *parsing)
{
    struct writing *writing = parsing->request->writing;
    writing->seeded = parse_in_range(parsing, 0, INT64_MAX, &writing->sampling.seed);
}

static void add_stop(struct parsing *parsing, const char *text, size_t length)
{
    struct writing *writing = parsing->request->writing;
    if (length == 0 || length > STOP_MAX || memchr(text, '\0', length)) {
        request_fail(parsing->request, CODE_BAD_REQUEST, "%s: must have 1 to %d bytes, none of them NUL", parsing->name,
                     STOP_MAX);
    } else if (!utf8_valid(text, length)) {
        request_fail(parsing->request, CODE_BAD_UTF8, "%s: not valid UTF-8", parsing->name);
    } else {
        char *to = writing->stop_texts[writing->stop_count];
        memcpy(to, text, length);
        writing->stops[writing->stop_count++] = to;
    }
}

static void parse_stop(struct parsing *parsing)
{
    add_stop(parsing, parsing->field->value, parsing->field->value_length);
}

static void parse_stops(struct parsing *parsing)
{
    enum { BYTES = STOPS_MAX * STOP_MAX };
    const struct entry_field *field = parsing->field;
    struct inputs inputs = inputs_measure(field->value, field->value_length, STOPS_MAX, BYTES);
    char copy[BYTES];
    struct row rows[STOPS_MAX];
    if (inputs.problem != INPUTS_OK) {
        request_fail(parsing->request, CODE_BAD_REQUEST,
                     "stops: must be a JSON array of 1 to %d texts of 1 to %d bytes", STOPS_MAX, STOP_MAX);
        return;
    }
    inputs_decode(field->value, field->value_length, copy, rows);
    for (uint32_t i = 0; i < inputs.count; i++) { add_stop(parsing, rows[i].text, rows[i].text_bytes); }
}

/* --- The model --- */

static void parse_model(struct parsing *parsing)
{
    const struct request_rules *rules = parsing->rules;
    if (!value_is(parsing, rules->model_name) && !value_is(parsing, rules->model_id)) {
        request_fail(parsing->request, CODE_WRONG_MODEL, "model: this queue serves %.80s (%.40s)", rules->model_name,
                     rules->model_id);
    }
}

/* --- The table --- */

static void refuse_unsupported(struct parsing *parsing)
{
    request_fail(parsing->request, CODE_BAD_REQUEST, "%s: not supported yet by this version", parsing->name);
}

/* The tasks that have a field, as bits. */
enum {
    EMBED = 1 << TASK_EMBED,
    RERANK = 1 << TASK_RERANK,
    CLASSIFY = 1 << TASK_CLASSIFY,
    TOKENIZE = 1 << TASK_TOKENIZE,
    GENERATE = 1 << TASK_GENERATE,
    SCORES = RERANK | CLASSIFY,
    TEXTS = EMBED | CLASSIFY | TOKENIZE,
    PROMPTED = EMBED | TOKENIZE | GENERATE,
    COMPUTED = EMBED | RERANK | CLASSIFY,
    ENCODED = COMPUTED | TOKENIZE,
    ALL = ENCODED | GENERATE,
};

/* clang-format off */
/* FIELD(NAME, "name", parser, tasks), in the order in which they are parsed. */
#define FIELDS                                                                                                         \
    FIELD(OWN_ID, "_id", parse_own_id, ALL) /* before `id`: it changes the name */                                     \
    FIELD(OWN_FIRST_AT, "_first_at", parse_own_first_at, ALL) /* before the deadlines, which count from it */          \
    FIELD(OWN_ATTEMPT, "_attempt", parse_own_attempt, ALL)                                                             \
    FIELD(OWN_LOST, "_lost", parse_own_lost, ALL)                                                                      \
    FIELD(ID, "id", parse_id, ALL)                                                                                     \
    FIELD(META, "meta", parse_meta, ALL)                                                                               \
    FIELD(TENANT, "tenant", parse_tenant, ALL)                                                                         \
    FIELD(TRACEPARENT, "traceparent", parse_traceparent, ALL)                                                          \
    FIELD(TRACESTATE, "tracestate", parse_tracestate, ALL) /* after traceparent: it means nothing alone */             \
    FIELD(CANCEL, "cancel", parse_cancel, ALL)                                                                         \
    FIELD(TASK, "task", parse_task, ALL) /* before the fields that not every task has */                               \
    FIELD(TEXT, "text", parse_one_text, TEXTS)                                                                         \
    FIELD(QUERY, "query", parse_query, RERANK)                                                                         \
    FIELD(INPUTS, "inputs", parse_inputs, ENCODED)                                                                     \
    FIELD(TTL, "ttl", parse_ttl, ALL)                                                                                  \
    FIELD(NOTIFY, "notify", parse_notify, ALL)                                                                         \
    FIELD(STREAM, "stream", parse_stream, ALL)                                                                         \
    FIELD(MAX_ATTEMPTS, "max_attempts", parse_max_attempts, ALL)                                                       \
    FIELD(DELAY, "delay", parse_delay, ALL)                                                                            \
    FIELD(EXPIRES_IN, "expires_in", parse_expires_in, ALL)                                                             \
    FIELD(ENCODING, "encoding", parse_encoding, ENCODED)                                                               \
    FIELD(TRUNCATE, "truncate", parse_truncate, COMPUTED)                                                              \
    FIELD(NORMALIZE, "normalize", parse_normalize, EMBED)                                                              \
    FIELD(DIMS, "dims", parse_dims, EMBED)                                                                             \
    FIELD(PROMPT, "prompt", parse_prompt, PROMPTED)                                                                    \
    FIELD(SPECIAL_TOKENS, "special_tokens", parse_special_tokens, TOKENIZE)                                            \
    FIELD(MESSAGES, "messages", parse_messages, GENERATE)                                                              \
    FIELD(MAX_TOKENS, "max_tokens", parse_max_tokens, GENERATE)                                                        \
    FIELD(TEMPERATURE, "temperature", parse_temperature, GENERATE)                                                     \
    FIELD(TOP_K, "top_k", parse_top_k, GENERATE)                                                                       \
    FIELD(TOP_P, "top_p", parse_top_p, GENERATE)                                                                       \
    FIELD(MIN_P, "min_p", parse_min_p, GENERATE)                                                                       \
    FIELD(REPETITION_PENALTY, "repetition_penalty", parse_repetition_penalty, GENERATE)                                \
    FIELD(SEED, "seed", parse_seed, GENERATE)                                                                          \
    FIELD(LOGPROBS, "logprobs", parse_logprobs, GENERATE)                                                              \
    FIELD(STOP, "stop", parse_stop, GENERATE)                                                                          \
    FIELD(STOPS, "stops", parse_stops, GENERATE)                                                                       \
    FIELD(RAW, "raw", parse_raw, SCORES)                                                                               \
    FIELD(TOP_N, "top_n", parse_top_n, RERANK)                                                                         \
    FIELD(INTO, "into", parse_into, EMBED)                                                                             \
    FIELD(INTO_FIELD, "into_field", parse_into_field, EMBED)                                                           \
    FIELD(MODEL, "model", parse_model, ALL)                                                                            \
    FIELD(PAIRS, "pairs", refuse_unsupported, ALL)

enum field {
#define FIELD(id, name, parser, tasks) FIELD_##id,
    FIELDS
#undef FIELD
    KNOWN_FIELDS,
};

static const struct known_field {
    const char *name;
    parse_field parse;
    unsigned tasks;
} known_fields[KNOWN_FIELDS] = {
#define FIELD(id, name, parser, tasks) {name, parser, tasks},
    FIELDS
#undef FIELD
};
/* clang-format on */

/* --- Collecting --- */

/* An entry's fields, sorted: [i] is the value of known field i, or NULL. */
struct fields {
    const struct entry_field *known[KNOWN_FIELDS];
    const char *doubled; /* the first known field that came twice */
    bool too_many;
    const struct entry_field *ignored[IGNORED_NAMES_MAX]; /* the first unknown ones */
    uint32_t ignored_count;                               /* all unknown ones */
    struct inputs inputs;                                 /* of the field `inputs`, if it was given */
};

static int field_find(const struct entry_field *field)
{
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        if (strlen(known_fields[i].name) == field->name_length &&
            memcmp(known_fields[i].name, field->name, field->name_length) == 0) {
            return i;
        }
    }
    return -1;
}

/* A retry begins with the daemon's own fields; the producer's follow, as many as before. */
static size_t fields_max(const struct entry *entry)
{
    bool retry = entry->field_count > 0 && field_find(&entry->fields[0]) == FIELD_OWN_ID;
    return REQUEST_FIELDS_MAX + (retry ? RETRY_FIELDS : 0);
}

/* Sorts an entry's fields into known and unknown ones, adds the default task, and measures `inputs`. If a field is
 * doubled, the first counts; if there are too many fields, only the id is kept, so that the answer can be found. */
static void collect_fields(struct fields *fields, const struct entry *entry, const struct request_rules *rules)
{
    static const struct entry_field embed = {.value = "embed", .value_length = sizeof "embed" - 1};
    size_t most = fields_max(entry);
    *fields = (struct fields){.too_many = entry->field_count > most};
    size_t count = fields->too_many ? most : entry->field_count;
    for (size_t i = 0; i < count; i++) {
        const struct entry_field *field = &entry->fields[i];
        int at = field_find(field);
        bool users_own = field->name_length >= 2 && memcmp(field->name, "x-", 2) == 0;
        if (at < 0 && users_own) { continue; }
        if (at < 0) {
            if (fields->ignored_count < IGNORED_NAMES_MAX) { fields->ignored[fields->ignored_count] = field; }
            fields->ignored_count++;
        } else if (!fields->known[at]) {
            fields->known[at] = field;
        } else if (!fields->doubled) {
            fields->doubled = known_fields[at].name;
        }
    }
    for (int i = 0; fields->too_many && i < KNOWN_FIELDS; i++) {
        if (i != FIELD_ID && i != FIELD_OWN_ID) { fields->known[i] = NULL; }
    }
    if (!fields->known[FIELD_TASK] && !fields->known[FIELD_CANCEL]) { fields->known[FIELD_TASK] = &embed; }
    const struct entry_field *inputs = fields->known[FIELD_INPUTS];
    if (inputs) {
        fields->inputs = inputs_measure(inputs->value, inputs->value_length, rules->max_inputs, rules->max_text_bytes);
    }
}

static uint32_t count_texts(const struct fields *fields)
{
    const struct entry_field *task = fields->known[FIELD_TASK];
    bool generates = task && field_is(task, task_names[TASK_GENERATE]);
    bool prompt = generates && fields->known[FIELD_PROMPT];
    if (fields->known[FIELD_TEXT] || fields->known[FIELD_MESSAGES] || prompt) { return 1; }
    bool readable = fields->known[FIELD_INPUTS] && fields->inputs.problem == INPUTS_OK;
    return readable ? fields->inputs.count : 0;
}

/* The most bytes that apply_fields copies into the block after the request. It refuses a value that is longer than a
 * text, or `meta`, may be. */
static size_t copied_bytes(const struct fields *fields, const struct request_rules *rules)
{
    size_t bytes = fields->known[FIELD_INPUTS] && fields->inputs.problem == INPUTS_OK ? fields->inputs.bytes : 0;
    size_t most = rules->max_text_bytes > META_MAX_BYTES ? rules->max_text_bytes : META_MAX_BYTES;
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        const struct entry_field *field = fields->known[i];
        if (field && i != FIELD_INPUTS && field->value_length <= most) { bytes += field->value_length; }
    }
    for (uint32_t i = 0; i < fields->ignored_count && i < IGNORED_NAMES_MAX; i++) {
        bytes +=
            fields->ignored[i]->name_length < IGNORED_NAME_BYTES ? fields->ignored[i]->name_length : IGNORED_NAME_BYTES;
        bytes += sizeof ",..."; /* more than the separator of two names, or the end of the list */
    }
    return bytes;
}

/* --- Ignored fields --- */

/* Writes the beginning of a name; `?` replaces a comma, each byte that is not printable, and an empty name. Returns the
 * end of it. */
static char *put_field_name(const struct entry_field *field, char *to)
{
    const char *end = to + IGNORED_NAME_BYTES;
    if (field->name_length == 0) { *to++ = '?'; }
    for (size_t at = 0; at < field->name_length;) {
        size_t printable = utf8_printable(field->name + at, field->name_length - at);
        bool replaced = printable == 0 || field->name[at] == ',';
        size_t length = replaced ? 1 : printable;
        if (to + length > end) { break; }
        memcpy(to, replaced ? "?" : field->name + at, length);
        to += length;
        at += length;
    }
    return to;
}

/* Lists the unknown fields for the reply, because one of them may be a mistyped known one. Shapes: see copied_bytes. */
static void name_ignored(const struct fields *fields, struct request *request, char *to)
{
    if (fields->ignored_count == 0) { return; }
    request->identity.ignored = to;
    for (uint32_t i = 0; i < fields->ignored_count && i < IGNORED_NAMES_MAX; i++) {
        if (i > 0) { *to++ = ','; }
        to = put_field_name(fields->ignored[i], to);
    }
    if (fields->ignored_count > IGNORED_NAMES_MAX) {
        memcpy(to, ",...", 4);
        to += 4;
    }
    request->identity.ignored_bytes = (uint32_t)(to - request->identity.ignored);
}

struct request_echoes request_echoes(const struct request *request)
{
    const char *tenant = request->identity.tenant, *id = request->identity.id;
    bool own_id = strcmp(id, request->identity.name) != 0;
    return (struct request_echoes){{{"id", own_id ? id : NULL, own_id ? strlen(id) : 0},
                                    {"meta", request->identity.meta, request->identity.meta_bytes},
                                    {"tenant", tenant[0] ? tenant : NULL, strlen(tenant)},
                                    {"traceparent", request->identity.traceparent, request->identity.traceparent_bytes},
                                    {"tracestate", request->identity.tracestate, request->identity.tracestate_bytes},
                                    {"ignored", request->identity.ignored, request->identity.ignored_bytes}}};
}

const char *request_nearest_field(const char *name, size_t length)
{
    char word[IGNORED_NAME_BYTES];
    const char *nearest = NULL;
    unsigned least = 3;
    snprintf(word, sizeof word, "%.*s", (int)(length < sizeof word ? length : sizeof word - 1), name);
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        unsigned distance = edit_distance(known_fields[i].name, word);
        if (known_fields[i].name[0] != '_' && distance < least && 3 * distance <= strlen(word)) {
            least = distance;
            nearest = known_fields[i].name;
        }
    }
    return nearest;
}

/* --- Applying --- */

/* Checks that a cancel has no options. The daemon's own fields are allowed, because it may have been parked on its way
 * (lua/mend). */
static void check_cancel_alone(const struct fields *fields, struct request *request)
{
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        if (i != FIELD_CANCEL && known_fields[i].name[0] != '_' && fields->known[i]) {
            request_fail(request, CODE_BAD_REQUEST, "cancel: not together with %s", known_fields[i].name);
        }
    }
}

/* Checks the fields for a search index over hashes, which reads the bytes of one vector. */
static void check_into(const struct fields *fields, struct request *request)
{
    enum encoding encoding = request->output.encoding;
    if (!fields->known[FIELD_INTO]) {
        request_fail(request, CODE_BAD_REQUEST, "into_field: not without into");
    } else if (fields->known[FIELD_INPUTS]) {
        request_fail(request, CODE_BAD_REQUEST, "into: not with inputs");
    } else if (encoding != ENCODING_F32 && encoding != ENCODING_F16) {
        request_fail(request, CODE_BAD_REQUEST, "into: only with encoding f32 or f16");
    }
    if (!request->output.into_field) {
        request->output.into_field = "embedding";
        request->output.into_field_bytes = sizeof "embedding" - 1;
    }
}

/* Checks the fields that a task needs, and those that exclude each other. Labels, tokens and the best documents come
 * with names and numbers: they are JSON, whatever the default is. */
static void check_together(const struct fields *fields, struct request *request)
{
    if (request->task == TASK_GENERATE) {
        if (!fields->known[FIELD_PROMPT] && !fields->known[FIELD_MESSAGES]) {
            request_fail(request, CODE_BAD_REQUEST, "prompt: missing, and so is messages");
        } else if (fields->known[FIELD_PROMPT] && fields->known[FIELD_MESSAGES]) {
            request_fail(request, CODE_BAD_REQUEST, "messages: not together with prompt");
        } else if (fields->known[FIELD_STREAM] && request->writing->top_logprobs > 0) {
            request_fail(request, CODE_BAD_REQUEST, "logprobs: not together with stream");
        }
        return;
    }
    bool json_only = request->task == TASK_CLASSIFY || request->task == TASK_TOKENIZE || request->output.top_n > 0;
    if (request->task == TASK_RERANK && !fields->known[FIELD_QUERY]) {
        request_fail(request, CODE_BAD_REQUEST, "query: missing");
    }
    if (!fields->known[FIELD_TEXT] && !fields->known[FIELD_INPUTS]) {
        request_fail(request, CODE_BAD_REQUEST,
                     request->task == TASK_RERANK ? "inputs: missing" : "text: missing, and so is inputs");
    }
    if (json_only && fields->known[FIELD_ENCODING] && request->output.encoding != ENCODING_JSON) {
        request_fail(request, CODE_BAD_REQUEST, "encoding: only json with %s%s",
                     request->output.top_n > 0 ? "top_n" : "task ",
                     request->output.top_n > 0 ? "" : task_names[request->task]);
    }
    const char *needs = request->task != TASK_EMBED ? "task embed"
                        : request->output.encoding == ENCODING_INT8 && !request->output.normalize
                            ? "vectors of length 1"
                            : NULL;
    bool unfit = request->output.encoding >= ENCODING_INT8 && needs;
    if (unfit && fields->known[FIELD_ENCODING] && !json_only) {
        request_fail(request, CODE_BAD_REQUEST, "encoding: %s only with %s", encoding_name(request->output.encoding),
                     needs);
    }
    if (json_only || unfit) { request->output.encoding = ENCODING_JSON; }
    if (fields->known[FIELD_INTO] || fields->known[FIELD_INTO_FIELD]) { check_into(fields, request); }
}

/* Checks every field and takes it over; the first error becomes the request's code and message. Shapes: request->rows
 * [count_texts], copy [copied_bytes], both written; the request keeps slices of it. */
static void apply_fields(const struct fields *fields, const struct request_rules *rules, struct request *request,
                         char *copy)
{
    struct parsing parsing = {.rules = rules, .inputs = &fields->inputs, .request = request, .copy = copy};
    if (fields->too_many) { request_fail(request, CODE_BAD_REQUEST, "more than %d fields", REQUEST_FIELDS_MAX); }
    if (fields->doubled) { request_fail(request, CODE_BAD_REQUEST, "%s: given more than once", fields->doubled); }
    if (fields->known[FIELD_TEXT] && fields->known[FIELD_INPUTS]) {
        request_fail(request, CODE_BAD_REQUEST, "inputs: not together with text");
    }
    if (fields->known[FIELD_CANCEL]) { check_cancel_alone(fields, request); }
    for (int i = 0; i < KNOWN_FIELDS; i++) {
        if (!fields->known[i] || fields->doubled == known_fields[i].name) { continue; }
        if (!(known_fields[i].tasks >> request->task & 1)) {
            request_fail(request, CODE_BAD_REQUEST, "%s: not with task %s", known_fields[i].name,
                         task_names[request->task]);
            continue;
        }
        parsing.name = known_fields[i].name;
        parsing.field = fields->known[i];
        known_fields[i].parse(&parsing);
    }
    if (!fields->known[FIELD_CANCEL]) { check_together(fields, request); }
    name_ignored(fields, request, parsing.copy);
}

/* --- The request --- */

static void set_request_defaults(struct request *request, const struct request_rules *rules, const struct entry *entry)
{
    request->identity.class = entry->class;
    request->identity.entry = entry->id;
    request->identity.origin = entry->origin;
    request->identity.place = entry->place;
    request->retry.quarantine_runs = entry->quarantine_runs;
    request->retry.quarantined = entry->quarantine_runs > 0 || entry->group_run;
    request->retry.suspect =
        request->retry.quarantined || entry->origin == ORIGIN_RECLAIMED || entry->origin == ORIGIN_STRAY;
    request->retry.urgent = entry->urgent;
    request->lifetime.unread = entry->unread;
    request_name_format(entry->class, entry->id, request->identity.name);
    memcpy(request->identity.id, request->identity.name, sizeof(request->identity.name));
    request->identity.seen_ms = entry->redis_ms;
    request_submitted(request, entry->id.ms);
    request->output.encoding = rules->encoding;
    request->output.ttl_s = rules->default_ttl_s;
    request->retry.max_attempts = rules->default_max_attempts;
    request->retry.attempt = 1;
    request->truncate = rules->truncate;
    request->output.specials = true;
    request->head = rules->head;
    request->dim = request->output.dims = rules->dim;
    request->output.normalize = rules->normalize;
    request->max_tokens = rules->max_tokens;
    if (request->writing) {
        request->dim = request->output.dims = 0;
        request->writing->max_tokens = WRITING_TOKENS;
    }
}

/* Estimates the weight of the request until it ends. Tokens are a guess: an English word piece has about four bytes.
 * Bytes are a bound: apart from the special tokens, a text has no more tokens than bytes. A query's ids are made once,
 * whole. */
static void estimate_weight(struct request *request, size_t allocated)
{
    enum { BYTES_PER_TOKEN = 4, SPECIAL = 2, PAIR_SPECIAL = 4 };
    size_t ids = request->query_bytes, special = request->query ? PAIR_SPECIAL : SPECIAL;
    request->bytes = allocated;
    if (request->retry.code != CODE_NONE) { return; }
    for (uint32_t i = 0; i < request->row_count; i++) {
        size_t bytes = request->rows[i].text_bytes + (size_t)request->prompt_bytes + request->query_bytes;
        size_t most = request->max_tokens;
        request->tokens +=
            (uint32_t)(bytes / BYTES_PER_TOKEN + special < most ? bytes / BYTES_PER_TOKEN + special : most);
        ids += bytes + special < most ? bytes + special : most;
    }
    size_t floats = request->task == TASK_TOKENIZE ? 0 : (size_t)request->row_count * request->dim;
    size_t reply = reply_bound(request);
    if (reply > REPLY_MAX_BYTES) {
        request_fail(request, CODE_TOO_LARGE, "inputs: the %s of so many texts are more than Redis takes",
                     reply_field(request));
        return;
    }
    size_t streamed = request->writing && request->output.stream[0] ? 2 * reply : 0; /* its text once more, and ids */
    request->work_bytes = ids * sizeof(int32_t) + floats * sizeof(float) + reply + streamed;
    request->bytes += request->work_bytes;
}

/* Fails a request for errors of its entry that do not depend on the fields. */
static void judge_entry(struct request *request, const struct entry *entry, const struct fields *fields)
{
    if (entry->vanished) {
        request_fail(request, CODE_INTERNAL, "its message was deleted from the stream");
    } else if (entry->oversize) {
        request_fail(request, CODE_TOO_LARGE, "%s",
                     entry->undeliverable ? "Redis closes the connection on which this entry is read: it is larger "
                                            "than its client-output-buffer-limit (normal) or maxmemory-clients allows"
                                          : "the entry is larger than this worker reads");
    } else if (entry->unread) {
        request_fail(request, CODE_POISON, "every worker that took it over died before it was read");
    } else if (entry->origin == ORIGIN_SHED && !fields->known[FIELD_CANCEL]) {
        request_fail(request, CODE_QUEUE_FULL, "more requests wait than the queue takes; try again later");
    }
}

struct request *request_parse(const struct request_rules *rules, const struct entry *entry, uint64_t now_ns)
{
    struct fields fields;
    collect_fields(&fields, entry, rules);
    uint32_t row_count = count_texts(&fields);
    bool generates = head_does(rules->head, TASK_GENERATE);
    size_t rows = sizeof(struct request) + row_count * sizeof(struct row);
    size_t head = rows + (generates ? sizeof(struct writing) : 0);
    size_t size = head + copied_bytes(&fields, rules);
    struct request *request = malloc(size);
    if (!request) { return NULL; }
    memset(request, 0, head);
    request->rows = (struct row *)(request + 1);
    request->writing = generates ? (struct writing *)(void *)((char *)request + rows) : NULL;
    request->row_count = request->rows_left = row_count;
    for (uint32_t i = 0; i < row_count; i++) { request->rows[i].request = request; }
    request->lifetime.received_ns = now_ns;
    set_request_defaults(request, rules, entry);
    judge_entry(request, entry, &fields);
    apply_fields(&fields, rules, request, (char *)request + head);
    estimate_weight(request, size);
    return request;
}

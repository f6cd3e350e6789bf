#include "operator/answers.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/duration.h"
#include "base/float_text.h"
#include "base/json.h"
#include "base/utf8.h"
#include "schedule/encodings.h"

/* Writes a number, or null for one below `least`. */
static void put_number(FILE *to, long long number, long long least)
{
    if (number < least) {
        fputs("null", to);
    } else {
        fprintf(to, "%lld", number);
    }
}

/* ---- queues and workers ---- */

/* The number of requests to do now, as /depth of a daemon counts them. */
static long long count_depth(const struct queue_counts *counts)
{
    long long sum = counts->due;
    for (int c = 0; c < CLASS_COUNT; c++) { sum += counts->classes[c].unread + counts->classes[c].pending; }
    return sum;
}

static void put_days(FILE *to, const struct session *session, const struct queue_counts *counts)
{
    const char *between = "";
    fputs(",\"days\":[", to);
    for (uint64_t ago = DAYS_KEPT; ago-- > 0;) {
        const struct day_counts *day = &counts->days[ago];
        if (day->done + day->errors == 0) { continue; }
        fprintf(to, "%s{\"at\":%" PRIu64 ",\"done\":%" PRIu64 ",\"errors\":%" PRIu64 "}", between,
                (session->redis_ms / DAY_MS - ago) * DAY_MS, day->done, day->errors);
        between = ",";
    }
    putc(']', to);
}

static void put_totals(FILE *to, const struct queue_counts *counts)
{
    fprintf(to, ",\"died\":%" PRIu64 ",\"ignored\":%" PRIu64 ",\"since\":", counts->died, counts->ignored);
    put_number(to, (long long)counts->since_ms, 1);
    fputs(",\"ended\":{", to);
    for (int i = 0; i < CLASS_COUNT; i++) {
        fprintf(to, "%s\"%s\":{\"done\":%" PRIu64, i == 0 ? "" : ",", class_names[i], counts->ended[i][CODE_NONE]);
        for (int end = CODE_NONE + 1; end < ENDS; end++) {
            if (counts->ended[i][end] > 0) { fprintf(to, ",\"%s\":%" PRIu64, end_name(end), counts->ended[i][end]); }
        }
        putc('}', to);
    }
    putc('}', to);
}

void answer_put_pause(FILE *to, const struct pause *pause)
{
    fprintf(to, "\"paused\":%s,\"paused_since_ms\":", pause->on ? "true" : "false");
    put_number(to, (long long)pause->since_ms, 1);
    fputs(",\"paused_until_ms\":", to);
    put_number(to, (long long)pause->until_ms, 1);
    fputs(",\"paused_by\":", to);
    json_put_text(to, pause->by);
    fputs(",\"paused_why\":", to);
    json_put_text(to, pause->why);
}

void answer_put_counts(FILE *to, const struct session *session, const struct queue_counts *counts)
{
    fprintf(to, "\"queue\":\"%s\",", session->queue);
    answer_put_pause(to, &counts->pause);
    fputs(",\"classes\":{", to);
    for (int i = 0; i < CLASS_COUNT; i++) {
        fprintf(to, "%s\"%s\":{\"unread\":%lld,\"pending\":%lld,\"wait_ms\":", i == 0 ? "" : ",", class_names[i],
                counts->classes[i].unread, counts->classes[i].pending);
        put_number(to, counts->classes[i].wait_ms, 0);
        fputs(",\"cap\":", to);
        put_number(to, counts->classes[i].cap, 1);
        fprintf(to, ",\"above_cap\":%lld,\"oldest_ms\":", counts_above_cap(counts, i));
        put_number(to, counts->classes[i].oldest_ms, 0);
        putc('}', to);
    }
    fputs("},\"cap_later\":", to);
    put_number(to, counts->cap_later, 1);
    fprintf(to,
            ",\"depth\":%lld,\"later\":%lld,\"due\":%lld,\"dead\":%lld,\"dead_bytes\":%lld,\"workers\":%zu,"
            "\"quiet\":%zu,\"devices\":%lu,\"devices_lost\":%lu,\"tight\":%zu,\"reason\":",
            count_depth(counts), counts->later, counts->due, counts->dead, counts->dead_bytes, counts->workers,
            counts->quiet, counts->devices, counts->devices_lost, counts->tight);
    if (counts->tight == 0) {
        fputs("null", to);
    } else {
        fprintf(to, "\"memory:%lu%%\"", strtoul(counts->reason + strcspn(counts->reason, "0123456789"), NULL, 10));
    }
    fputs(",\"precisions\":{", to);
    for (size_t i = 0; i < PRECISIONS_MAX && counts->precisions[i].workers > 0; i++) {
        fputs(i == 0 ? "" : ",", to);
        json_put_string(to, counts->precisions[i].name, strlen(counts->precisions[i].name));
        fprintf(to, ":%zu", counts->precisions[i].workers);
    }
    fputs("},\"pinned_precision\":", to);
    json_put_text(to, counts->pinned);
    put_totals(to, counts);
    put_days(to, session, counts);
    fprintf(to, ",\"at\":%" PRIu64, session->redis_ms);
}

static void put_worker(FILE *to, const struct heartbeat_line *line)
{
    char value[64];
    fputs("{\"worker\":", to);
    json_put_text(to, line->worker);
    for (size_t i = 0; heartbeat_words[i]; i++) {
        heartbeat_value(line, heartbeat_words[i], value, sizeof value);
        fprintf(to, ",\"%s\":", heartbeat_words[i]);
        if (i == 0) {
            json_put_text(to, value);
        } else {
            double number = strtod(value, NULL);
            fprintf(to, "%.15g", isfinite(number) ? number : 0);
        }
    }
    for (size_t i = 0; heartbeat_more_words[i]; i++) {
        fprintf(to, ",\"%s\":", heartbeat_more_words[i]);
        json_put_text(to, heartbeat_value(line, heartbeat_more_words[i], value, sizeof value));
    }
    fprintf(to, ",\"spoke_ms_ago\":%" PRIu64 ",\"alive\":%s,\"ordered\":", line->age_ms,
            line->alive ? "true" : "false");
    json_put_text(to, line->command);
    putc('}', to);
}

void answer_put_workers(FILE *to, const struct session *session, const struct heartbeats *heartbeats)
{
    fprintf(to, "{\"queue\":\"%s\",\"workers\":[", session->queue);
    for (size_t i = 0; i < heartbeats->count; i++) {
        fputs(i == 0 ? "" : ",", to);
        put_worker(to, &heartbeats->lines[i]);
    }
    fputs("]}", to);
}

/* ---- dead letters and requests ---- */

static void put_field(FILE *to, const struct letter *letter, const char *key, const char *field)
{
    const struct resp_value *value = resp_field(letter->fields, field);
    fprintf(to, ",\"%s\":", key);
    if (value && value->bytes && value->length > 0) {
        json_put_string(to, value->bytes, value->length);
    } else {
        fputs("null", to);
    }
}

void answer_put_letter(FILE *to, const struct session *session, const struct letter *letter)
{
    const struct resp_value *attempts = resp_field(letter->fields, "_attempts");
    fprintf(to, "{\"queue\":\"%s\",\"letter\":\"%s\"", session->queue, letter->id);
    put_field(to, letter, "code", "_code");
    put_field(to, letter, "entry", "_entry");
    put_field(to, letter, "id", "id");
    put_field(to, letter, "tenant", "_tenant");
    fprintf(to, ",\"attempts\":%llu,\"age_ms\":%" PRIu64, strtoull(session_text(attempts), NULL, 10), letter->age_ms);
    put_field(to, letter, "message", "_message");
    putc('}', to);
}

void answer_put_place(FILE *to, const char *id, const struct place *place)
{
    fputs("{\"id\":", to);
    json_put_string(to, id, strlen(id));
    fprintf(to, ",\"status\":\"%s\"", place->status);
    if (place->name[0] != '\0') { fprintf(to, ",\"entry\":\"%s\"", place->name); }
    if (place->worker[0] != '\0') {
        fputs(",\"worker\":", to);
        json_put_string(to, place->worker, strlen(place->worker));
    }
    if (place->due_at > 0) { fprintf(to, ",\"due_at\":%.0f", place->due_at); }
    putc('}', to);
}

/* Shapes: floats [count] f32, little-endian bytes. */
static enum status put_floats(FILE *to, const char *floats, size_t count, size_t row, struct err *err)
{
    fputs(row > 0 ? "[[" : "[", to);
    for (size_t i = 0; i < count; i++) {
        float number;
        memcpy(&number, floats + i * sizeof number, sizeof number);
        if (!isfinite(number)) { return err_set(err, STATUS_BAD_INPUT, "it has a value that is not finite"); }
        char text[FLOAT_TEXT_MAX];
        const char *between = i == 0 ? "" : row > 0 && i % row == 0 ? "],[" : ",";
        fprintf(to, "%s%.*s", between, (int)float_text_put(text, number), text);
    }
    fputs(row > 0 ? "]]" : "]", to);
    return STATUS_OK;
}

static bool is_json_array(const struct resp_value *value)
{
    return value->bytes[0] == '[' && strspn(value->bytes, "[]0123456789+-.eE, ") == value->length;
}

/* Numbers per text in a reply to several texts (packed bits are fewer than `dim`); 0 in a reply to one text, and for
 * scores. */
static size_t numbers_per_text(const struct resp_value *reply, size_t numbers)
{
    const struct resp_value *count = resp_field(reply, "count");
    size_t texts = !count || !count->bytes || !resp_field(reply, "dim") ? 0 : strtoul(count->bytes, NULL, 10);
    return texts == 0 ? 0 : numbers / texts;
}

/* Writes embedding or scores of a reply, whatever their encoding, as a JSON array of numbers; an embedding of several
 * texts (with a `count`) becomes an array of arrays. Errors: STATUS_BAD_INPUT if it does not match the reply's
 * `encoding` and `dim`; STATUS_NO_MEMORY. */
static enum status put_numbers(FILE *to, const struct resp_value *reply, const struct resp_value *value,
                               struct err *err)
{
    const struct resp_value *named = resp_field(reply, "encoding");
    const char *encoding = !named || !named->bytes ? "json" : named->bytes;
    struct buffer floats = {0};
    if (strcmp(encoding, "json") == 0 && is_json_array(value)) {
        fwrite(value->bytes, 1, value->length, to);
        return STATUS_OK;
    }
    bool understood = encoding_read(encoding, value->bytes, value->length, &floats);
    enum status status = STATUS_OK;
    if (!buffer_ok(&floats)) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for a reply");
    } else if (!understood) {
        status = err_set(err, STATUS_BAD_INPUT, "it is not what its encoding %.20s says", encoding);
    } else {
        size_t numbers = floats.length / sizeof(float);
        status = put_floats(to, floats.data, numbers, numbers_per_text(reply, numbers), err);
    }
    buffer_free(&floats);
    return status;
}

/* Writes a value that is JSON already. Errors: STATUS_BAD_INPUT. */
static enum status put_json(FILE *to, const struct resp_value *value, struct err *err)
{
    if (!json_put_value(to, value->bytes, value->length)) { return err_set(err, STATUS_BAD_INPUT, "it is not JSON"); }
    return STATUS_OK;
}

/* True if it can be printed unquoted: digits with at most one point between them. */
static bool is_plain_number(const struct resp_value *value)
{
    static const char digits[] = "0123456789";
    const char *text = value->bytes;
    size_t whole = strspn(text, digits), fraction = text[whole] == '.' ? 1 + strspn(text + whole + 1, digits) : 0;
    bool leading_zero = whole > 1 && text[0] == '0';
    return whole > 0 && fraction != 1 && whole + fraction == value->length && !leading_zero;
}

static bool is_any(const struct resp_value *value, const char *const *names)
{
    while (*names && !resp_equals(value, *names)) { names++; }
    return *names;
}

/* Writes a field of a reply; `numbers`: its value is numbers in the reply's encoding. */
static enum status put_reply_field(FILE *to, const struct resp_value *reply, const struct resp_value *name,
                                   const struct resp_value *value, bool numbers, struct err *err)
{
    static const char *const counts[] = {"dim",      "tokens", "queued_ms", "compute_ms", "done_at",        "truncated",
                                         "attempts", "count",  "retryable", "index",      "retry_after_ms", NULL};
    static const char *const json[] = {"labels", "top", NULL};
    if (numbers) { return put_numbers(to, reply, value, err); }
    if (is_any(name, json)) { return put_json(to, value, err); }
    if (is_any(name, counts) && is_plain_number(value)) {
        fwrite(value->bytes, 1, value->length, to);
    } else {
        json_put_string(to, value->bytes, value->length);
    }
    return STATUS_OK;
}

enum status answer_put_reply(FILE *to, const char *id, const struct resp_value *reply, struct err *err)
{
    static const char *const encoded[] = {"embedding", "scores", NULL};
    fputs("{\"id\":", to);
    json_put_string(to, id, strlen(id));
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        const struct resp_value *name = &reply->items[i], *value = &reply->items[i + 1];
        bool numbers = is_any(name, encoded);
        if (!name->bytes || !value->bytes || (!numbers && !utf8_valid(value->bytes, value->length))) {
            return err_set(err, STATUS_BAD_INPUT, "%s: this is not a reply of Sluice", id);
        }
        if (resp_equals(name, "id")) { continue; }
        putc(',', to);
        json_put_string(to, name->bytes, name->length);
        putc(':', to);
        if (put_reply_field(to, reply, name, value, numbers, err) != STATUS_OK) {
            return err_prefix(err, "%s: %s", id, name->bytes);
        }
    }
    putc('}', to);
    return STATUS_OK;
}

/* ---- stories ---- */

static void put_if_text(FILE *to, const char *key, const char *text)
{
    if (text[0] == '\0') { return; }
    fprintf(to, ",\"%s\":", key);
    json_put_string(to, text, strlen(text));
}

static void put_if_number(FILE *to, const char *key, uint64_t number)
{
    if (number > 0) { fprintf(to, ",\"%s\":%" PRIu64, key, number); }
}

void answer_put_story(FILE *to, const struct session *session, const char *id, const struct story *story)
{
    fprintf(to, "{\"queue\":\"%s\"", session->queue);
    put_if_text(to, "id", id);
    put_if_text(to, "status", story->status);
    put_if_text(to, "name", story->name);
    put_if_text(to, "class", story->name[0] ? class_names[story->class] : "");
    for (size_t i = 1; i < story->unfinished.count; i++) {
        fprintf(to, "%s\"%s\"%s", i == 1 ? ",\"others\":[" : ",", story->unfinished.names[i],
                i + 1 == story->unfinished.count ? "]" : "");
    }
    if (story->unfinished.more) { fputs(",\"unsearched\":true", to); }
    put_if_text(to, "tenant", story->tenant);
    put_if_number(to, "at", story->now_ms);
    put_if_number(to, "submitted_at", story->first_ms);
    put_if_text(to, "worker", story->worker);
    put_if_text(to, "consumer", story->consumer);
    if (story->idle) { fputs(",\"worker_held_nothing\":true", to); }
    put_if_number(to, "held_since", story->held_ms);
    put_if_number(to, "worker_spoke_at", story->spoke_ms);
    put_if_number(to, "deliveries", story->deliveries);
    put_if_number(to, "due_at", story->due_ms);
    put_if_number(to, "attempts", story->attempts);
    put_if_number(to, "runs_alone", story->runs_alone);
    put_if_text(to, "open_runs", story->runs);
    put_if_number(to, "taken", story->taken);
    put_if_number(to, "done_at", story->done_ms);
    put_if_text(to, "code", story->code);
    put_if_text(to, "message", story->message);
    put_if_text(to, "ignored", story->ignored);
    put_if_text(to, "letter", story->letter);
    if (story->letter_gone) { fputs(",\"letter_gone\":true", to); }
    if (story->letters_left) { fputs(",\"letters_left\":true", to); }
    put_if_number(to, "expires_at", story->expires_ms);
    fputs(",\"events\":[", to);
    for (size_t i = 0; i < story->event_count; i++) {
        const struct story_event *event = &story->events[i];
        fprintf(to, "%s{\"at\":%" PRIu64, i == 0 ? "" : ",", event->at_ms);
        put_if_text(to, "event", event->name);
        put_if_text(to, "text", event->text);
        putc('}', to);
    }
    fputs("]}", to);
}

#include "batch/lines.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "bulk/input/stream.h"
#include "engine/vector.h"
#include "gateway/body.h"
#include "gateway/dialect.h"

/* The members of a line. */
enum { CUSTOM_ID, METHOD, URL, BODY, MEMBERS };
static const char *const names[MEMBERS] = {"custom_id", "method", "url", "body"};

/* A good line, as far as the writer needs it; it follows the ends of the texts in `kept`. */
struct line_head {
    uint64_t high, low; /* its hash */
    uint32_t dims;      /* of each vector */
    uint32_t forms;
    bool single, normalize, padding[6];
};

/* Finds the members of an object, which is valid JSON; of other values there are none. Returns the name of one that it
 * has twice, or NULL. */
static const char *find_members(const char *bytes, size_t length, struct slice found[MEMBERS])
{
    struct lexer lexer = {bytes, bytes + length};
    struct lexer_member member = {0};
    memset(found, 0, MEMBERS * sizeof *found);
    while (lexer_next_member(&lexer, &member)) {
        const char *value = lexer.at;
        if (!lexer_value(&lexer, 1)) { return NULL; }
        for (int i = 0; i < MEMBERS; i++) {
            if (!lexer_member_is(&member, names[i])) { continue; }
            if (found[i].bytes) { return names[i]; }
            found[i] = (struct slice){value, (size_t)(lexer.at - value)};
        }
    }
    return NULL;
}

/* Appends the text of a JSON string; false: it is not one, or is half of a surrogate pair. */
static bool put_decoded(struct buffer *to, struct slice string)
{
    return string.length >= 2 && string.bytes[0] == '"' && buffer_json_decode(to, string.bytes + 1, string.length - 2);
}

/* True if it is this string, however that is escaped: PHP writes a slash as \/. */
static bool is_string(struct slice value, const char *text, struct buffer *room)
{
    room->length = 0;
    return put_decoded(room, value) && room->length == strlen(text) && memcmp(room->data, text, room->length) == 0;
}

/* The decoded custom_id, or false. */
static bool read_custom_id(const struct slice found[MEMBERS], struct buffer *to)
{
    to->length = 0;
    return put_decoded(to, found[CUSTOM_ID]) && to->length > 0;
}

/* --- Reading --- */

/* Fails a line that is no request. */
PRINTF_LIKE(5, 6)
static bool fail_line(struct batch_lines *lines, struct document *out, enum row_code why, const char *code,
                      const char *format, ...)
{
    char message[256];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    out->code = why;
    buffer_json(&lines->message, "'response':null,'error':{'code':%s,'message':'line %" PRIu64 ": %.*s'}", code,
                out->line, (int)strlen(message), message);
    return false;
}

static void put_head(struct buffer *to, const struct line_head *head, int status)
{
    buffer_json(to, "'response':{'status_code':%d,'request_id':'req_%llx%llx','body':", status,
                (unsigned long long)head->high, (unsigned long long)head->low);
}

/* Appends the response of a request that has failed. */
static void put_fault(struct buffer *to, const struct line_head *head, const struct fault *fault)
{
    put_head(to, head, fault->status);
    dialect_render_fault(NULL, fault, to);
    buffer_string(to, "},\"error\":null");
}

/* Takes the model, the options and the texts of a body that was parsed. */
static bool take_call(struct batch_lines *lines, const struct call *call, struct document *out, struct line_head *head,
                      struct fault *fault)
{
    struct slice model = call->model, last = slice_last_part(model);
    const char *known[] = {lines->model, lines->queue ? lines->queue : lines->model};
    bool named = model.length == 0 || lines->any_model;
    for (int i = 0; i < 2; i++) { named = named || slice_is(model, known[i]) || slice_is(last, known[i]); }
    if (!named) {
        return fault_set(fault, NULL, FAULT_NO_MODEL, "model", "the model \"%.*s\" is not here, but \"%s\"",
                         (int)(model.length < 100 ? model.length : 100), model.bytes, lines->model);
    }
    if (call->dims > lines->dim) {
        return fault_set(fault, NULL, FAULT_BAD_REQUEST, "dimensions", "dimensions: %u, but the model has %u",
                         call->dims, lines->dim);
    }
    if (call->prompt.length > 0 || call->purpose >= 0) {
        return fault_set(fault, NULL, FAULT_BAD_REQUEST, call->prompt.length > 0 ? "prompt_name" : "input_type",
                         "prompt_name, input_type, task: a batch has one prompt, the model's");
    }
    if (call->truncate == 0) {
        return fault_set(fault, NULL, FAULT_BAD_REQUEST, "truncation",
                         "truncation: a batch cuts texts that are longer than the model takes");
    }
    for (uint32_t i = 0; i < call->text_count; i++) {
        size_t before = lines->text.length;
        if (!put_decoded(&lines->text, call->texts[i])) {
            return fault_set(fault, NULL, FAULT_BAD_REQUEST, "input", "input[%u] has a broken escape", i);
        }
        if (lines->text.length - before > lines->max_text_bytes) {
            return fault_set(fault, NULL, FAULT_TOO_LARGE, "input", "input[%u] has %zu bytes, and %zu are allowed", i,
                             lines->text.length - before, lines->max_text_bytes);
        }
        uint32_t end = (uint32_t)lines->text.length;
        buffer_append(&lines->kept, &end, sizeof end);
    }
    out->texts = call->text_count;
    head->dims = call->dims > 0 ? call->dims : lines->dim;
    head->forms = call->forms;
    head->single = call->single;
    head->normalize = call->normalize >= 0 ? call->normalize : lines->normalize;
    return true;
}

/* Reads a line; on false the message has its error. */
static bool read_request(struct batch_lines *lines, const char *bytes, size_t length, struct document *out,
                         struct line_head *head)
{
    static const char path[] = "/v1/embeddings";
    struct slice found[MEMBERS];
    size_t valid = utf8_valid_prefix(bytes, length);
    if (valid < length) {
        return fail_line(lines, out, ROW_BAD_UTF8, "invalid_json_line", "not UTF-8 at byte %zu", valid + 1);
    }
    if (!json_valid(bytes, length)) {
        return fail_line(lines, out, ROW_BAD_JSON, "invalid_json_line", "not JSON, or nested too deep");
    }
    const char *twice = find_members(bytes, length, found);
    struct buffer *id = &lines->body; /* the decoded one */
    if (read_custom_id(found, id)) {
        buffer_json_string(&lines->id, id->data, id->length);
        out->id = lines->id.data;
        out->id_bytes = lines->id.length;
    }
    if (twice) { return fail_line(lines, out, ROW_BAD_JSON, "invalid_json_line", "it has %s twice", twice); }
    for (int i = 0; i < MEMBERS; i++) {
        if (found[i].bytes) { continue; }
        return fail_line(lines, out, ROW_MISSING_FIELD, "missing_required_parameter", "%s is missing", names[i]);
    }
    if (!out->id) {
        return fail_line(lines, out, ROW_NOT_TEXT, "invalid_custom_id", "custom_id is no text, or is empty");
    }
    if (!is_string(found[METHOD], "POST", &lines->body)) {
        return fail_line(lines, out, ROW_REFUSED, "invalid_method", "method is not POST");
    }
    if (!is_string(found[URL], path, &lines->body)) {
        return fail_line(lines, out, ROW_REFUSED, "invalid_url", "url is not %s, the only one of a batch here", path);
    }
    struct call call;
    struct fault fault;
    bool good = body_parse(dialect_find(path), found[BODY].bytes, found[BODY].length, &call, &fault) &&
                take_call(lines, &call, out, head, &fault);
    call_free(&call);
    if (good) { return true; }
    out->code = ROW_REFUSED;
    put_fault(&lines->message, head, &fault);
    return false;
}

static enum status read_line(void *context, const char *bytes, size_t length, struct document *out, struct err *err)
{
    struct batch_lines *lines = context;
    XXH128_hash_t hash = XXH3_128bits_withSeed(bytes ? bytes : "", bytes ? length : 0, out->line);
    struct line_head head = {.high = hash.high64, .low = hash.low64};
    struct buffer *const used[] = {&lines->text, &lines->kept, &lines->id, &lines->message};
    for (int i = 0; i < 4; i++) { used[i]->length = 0; }
    if (!bytes) {
        fail_line(lines, out, ROW_TOO_LARGE, "line_too_long", "longer than 8 times --max-text-bytes");
    } else if (!read_request(lines, bytes, length, out, &head)) {
        out->texts = 0;
        lines->kept.length = lines->text.length = 0;
    }
    buffer_append(&lines->kept, &head, sizeof head);
    out->text = lines->text.data;
    out->text_bytes = lines->text.length;
    out->kept = lines->kept.data;
    out->kept_bytes = lines->kept.length;
    out->message = lines->message.data;
    out->message_bytes = lines->message.length;
    for (int i = 0; i < 4; i++) {
        if (!buffer_ok(used[i])) { return err_set(err, STATUS_NO_MEMORY, "no memory for a line of %zu bytes", length); }
    }
    return STATUS_OK;
}

/* --- Writing --- */

/* Fills the fault of a line of which one text has no vector. */
static void fault_of_text(const struct record_result *result, bool single, struct fault *fault)
{
    enum fault_kind kind = result->code == ROW_NON_FINITE ? FAULT_BACKEND : FAULT_BAD_REQUEST;
    if (single) {
        fault_set(fault, NULL, kind, "input", "input: %s", failure_text(result->code));
    } else {
        fault_set(fault, NULL, kind, "input", "input[%u]: %s", result->failed, failure_text(result->code));
    }
}

/* Cuts vectors and normalises them, as a worker does. NULL without memory. */
static const float *finish_vectors(struct buffer *room, const struct line_head *head,
                                   const struct record_result *result)
{
    room->length = 0;
    float *vectors = (float *)(void *)buffer_reserve(room, (size_t)result->count * head->dims * sizeof(float));
    for (uint32_t i = 0; vectors && i < result->count; i++) {
        float *to = vectors + (size_t)i * head->dims;
        memcpy(to, result->vectors + (size_t)i * result->stride, head->dims * sizeof(float));
        if (head->normalize) { vector_normalize(to, head->dims); }
    }
    return vectors;
}

static void put_answer(struct batch_lines *lines, const struct record_result *result, const struct line_head *head,
                       struct buffer *to)
{
    struct call call = {.dialect = dialect_find("/v1/embeddings"),
                        .text_count = result->count,
                        .single = head->single,
                        .dims = head->dims,
                        .forms = head->forms};
    struct answer answer = {.vectors = finish_vectors(&lines->vectors, head, result),
                            .dim = head->dims,
                            .tokens = result->tokens,
                            .model = lines->model};
    to->broken = to->broken || !answer.vectors;
    if (to->broken) { return; }
    put_head(to, head, 200);
    dialect_render(&call, &answer, to);
    buffer_string(to, "},\"error\":null");
}

static void write_line(void *context, const struct record_result *result, struct buffer *good, struct buffer *failures)
{
    struct batch_lines *lines = context;
    const struct document *document = result->document;
    bool failed = document->code != ROW_OK || result->code != ROW_OK;
    struct buffer *to = failed ? failures : good;
    struct line_head head;
    if (!lines->begun) {    /* files end where the earlier run left off, and lines are in order */
        struct err ignored; /* these counts are only shown, while the job runs */
        uint64_t before = 0;
        bool counted = lines->failures_path && batch_lines_count(lines->failures_path, &before, &ignored) == STATUS_OK;
        lines->failed_before = before;
        lines->answered_before = counted ? document->number - before : 0;
        lines->begun = true;
    }
    lines->failed += failed;
    lines->answered += !failed;
    memcpy(&head, document->kept + document->texts * sizeof(uint32_t), sizeof head);
    buffer_json(to, "{'id':'batch_req_%llx%llx','custom_id':", (unsigned long long)head.high,
                (unsigned long long)head.low);
    if (document->id) {
        buffer_append(to, document->id, document->id_bytes);
    } else {
        buffer_string(to, "null");
    }
    buffer_string(to, ",");
    if (document->code != ROW_OK) {
        buffer_append(to, document->message, document->message_bytes);
    } else if (failed) {
        struct fault fault;
        fault_of_text(result, head.single, &fault);
        put_fault(to, &head, &fault);
    } else {
        put_answer(lines, result, &head, to);
    }
    buffer_string(to, "}\n");
}

struct records batch_lines_records(struct batch_lines *lines)
{
    return (struct records){.context = lines, .read = read_line, .write = write_line};
}

void batch_lines_free(struct batch_lines *lines)
{
    buffer_free(&lines->text);
    buffer_free(&lines->kept);
    buffer_free(&lines->id);
    buffer_free(&lines->message);
    buffer_free(&lines->body);
    buffer_free(&lines->vectors);
}

/* --- Validation --- */

/* The custom_id of a line. */
struct seen {
    uint64_t low, high, line;
};

static int compare_seen(const void *left, const void *right)
{
    const struct seen *a = left, *b = right;
    if (a->high != b->high) { return a->high < b->high ? -1 : 1; }
    if (a->low != b->low) { return a->low < b->low ? -1 : 1; }
    return (a->line > b->line) - (a->line < b->line);
}

/* The next line that is a request; bytes NULL at the end. As in a job, lines of white space are none. */
static enum status next_line(struct reader *reader, struct record *out, struct err *err)
{
    for (;;) {
        TRY(reader_line(reader, out, err));
        size_t at = 0;
        while (at < out->length && (out->bytes[at] == ' ' || out->bytes[at] == '\t')) { at++; }
        if (!out->bytes || out->too_large || at < out->length) { return STATUS_OK; }
    }
}

static enum status note_lines(struct reader *reader, struct batch_findings *out, struct buffer *all, struct buffer *id,
                              struct err *err)
{
    for (;;) {
        struct record record;
        struct slice found[MEMBERS];
        TRY(next_line(reader, &record, err));
        if (!record.bytes) { return STATUS_OK; }
        out->lines++;
        if (out->most_lines > 0 && out->lines > out->most_lines) { return STATUS_OK; }
        if (record.too_large || !json_valid(record.bytes, record.length)) { continue; } /* the job says so */
        const char *twice = find_members(record.bytes, record.length, found);
        if (twice || !read_custom_id(found, id)) { continue; }
        XXH128_hash_t hash = XXH3_128bits(id->data, id->length);
        struct seen seen = {hash.low64, hash.high64, record.line};
        buffer_append(all, &seen, sizeof seen);
        if (out->model[0] == '\0' && found[BODY].bytes) {
            (void)json_member_text(found[BODY].bytes, found[BODY].length, "model", out->model, sizeof out->model);
        }
        if (!buffer_ok(all) || !buffer_ok(id)) {
            return err_set(err, STATUS_NO_MEMORY, "no memory for the custom_ids of a batch");
        }
    }
}

enum status batch_lines_check(const char *path, size_t line_bytes, struct batch_findings *out, struct err *err)
{
    struct reader reader = {0};
    struct buffer all = {0}, id = {0};
    TRY(reader_open(&reader, path, line_bytes, NULL, err));
    reader.most = out->most_bytes;
    enum status status = note_lines(&reader, out, &all, &id, err);
    reader_close(&reader);
    struct seen *seen = (struct seen *)(void *)all.data;
    size_t count = all.length / sizeof *seen;
    if (status == STATUS_OK && count > 1) { qsort(seen, count, sizeof *seen, compare_seen); }
    for (size_t i = 1, first = 0; status == STATUS_OK && i < count; i++) {
        if (seen[i].high != seen[first].high || seen[i].low != seen[first].low) {
            first = i;
            continue;
        }
        if (out->twice < TWINS_SHOWN) { out->twins[out->twice] = (struct twin){seen[i].line, seen[first].line}; }
        out->twice++;
    }
    buffer_free(&all);
    buffer_free(&id);
    return status;
}

enum status batch_lines_count(const char *path, uint64_t *lines, struct err *err)
{
    struct reader reader = {0};
    struct record record;
    *lines = 0;
    enum status status = reader_open(&reader, path, 1 << 16, NULL, err);
    if (status != STATUS_OK) { return status == STATUS_NOT_FOUND ? STATUS_OK : status; }
    while ((status = reader_line(&reader, &record, err)) == STATUS_OK && record.bytes) { ++*lines; }
    reader_close(&reader);
    return status;
}

/* --- The end of a batch whose time is over --- */

static enum status abandon_lines(struct batch_lines *lines, struct reader *reader, uint64_t skip, const char *code,
                                 const char *message, int fd, struct buffer *to, struct err *err)
{
    static const char name[] = "the file of errors";
    for (uint64_t number = 0;; number++) {
        struct record record;
        TRY(next_line(reader, &record, err));
        if (!record.bytes) { return file_put(fd, to->data ? to->data : "", to->length, name, err); }
        if (number < skip) { continue; }
        struct document document = {.number = number, .line = record.line};
        TRY(read_line(lines, record.too_large ? NULL : record.bytes, record.length, &document, err));
        if (document.code == ROW_OK) {
            (void)fail_line(lines, &document, ROW_REFUSED, code, "%s", message);
            document.message = lines->message.data;
            document.message_bytes = lines->message.length;
        }
        write_line(lines, &(struct record_result){.document = &document}, to, to);
        if (!buffer_ok(to) || !buffer_ok(&lines->message)) {
            return err_set(err, STATUS_NO_MEMORY, "no memory for a line of %zu bytes", record.length);
        }
        if (to->length > 1 << 20) {
            TRY(file_put(fd, to->data, to->length, name, err));
            to->length = 0;
        }
    }
}

enum status batch_lines_abandon(struct batch_lines *lines, const char *path, size_t most_bytes, uint64_t skip,
                                const char *code, const char *message, int fd, struct err *err)
{
    struct reader reader = {0};
    struct buffer to = {0};
    TRY(reader_open(&reader, path, most_bytes, NULL, err));
    enum status status = abandon_lines(lines, &reader, skip, code, message, fd, &to, err);
    reader_close(&reader);
    buffer_free(&to);
    return status;
}

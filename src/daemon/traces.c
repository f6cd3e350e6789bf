#include "daemon/traces.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/random.h"
#include "base/system.h"
#include "base/version.h"

enum {
    WAITING_MAX = 4 << 20, /* bytes of lines that wait for the disk */
    GATHER_MS = 200,       /* how long the thread waits for more lines */
    LINKS_MAX = 128,       /* per span: the OpenTelemetry specification's default */
};

/* Values of OTLP's Span. */
enum { TRACE_AT = 3, TRACE_HEX = 32, SPAN_AT = 36, SPAN_HEX = 16 }; /* in a traceparent */

enum { KIND_INTERNAL = 1, KIND_CONSUMER = 5, STATUS_ERROR = 2, SAMPLED = 1, REMOTE = 0x300 };

struct traces {
    const char *path;
    uint64_t seed; /* of this process's ids */
    struct buffer line;
    atomic_uint_least64_t spans, dropped;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct buffer waiting; /* under the lock, with `lines` and `closing` */
    uint64_t lines;
    bool closing;
    bool failing; /* only the thread uses it: the last write failed, and was logged */
};

/* ---- the thread ---- */

/* Opening a pipe without a reader does not block: it fails. */
static int open_file(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
}

/* Writes whole lines only. If a full disk cuts a line, the file is truncated to its earlier length, because the next
 * line would be appended to the cut one. */
static bool write_lines(const char *path, const struct buffer *lines)
{
    int fd = open_file(path);
    if (fd < 0) { return false; }
    off_t before = lseek(fd, 0, SEEK_END);
    size_t done = 0;
    for (ssize_t wrote = 1; done < lines->length && wrote > 0; done += wrote > 0 ? (size_t)wrote : 0) {
        do {
            wrote = write(fd, lines->data + done, lines->length - done);
        } while (wrote < 0 && errno == EINTR);
    }
    int why = errno;
    bool ok = done == lines->length;
    if (!ok && before >= 0) { (void)!ftruncate(fd, before); } /* if it fails, nothing can be done */
    close(fd);
    errno = why;
    return ok;
}

static void write_all(struct traces *traces, struct buffer *lines, uint64_t count)
{
    bool ok = write_lines(traces->path, lines);
    if (!ok) { atomic_fetch_add(&traces->dropped, count); }
    if (ok == traces->failing) {
        traces->failing = !ok;
        log_write(ok ? LOG_INFO : LOG_WARN,
                  &(struct log_line){ok ? "traces_written_again" : "traces_not_written",
                                     {log_str("file", traces->path), log_str("reason", ok ? "" : strerror(errno))}});
    }
    lines->length = 0;
}

/* Waits for more lines, under the lock, so that one write takes many. */
static void wait_for_lines(struct traces *traces)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += GATHER_MS * (long)NS_PER_MS;
    until.tv_sec += until.tv_nsec / (long)NS_PER_S;
    until.tv_nsec %= (long)NS_PER_S;
    while (!traces->closing && traces->waiting.length < WAITING_MAX / 4 &&
           pthread_cond_timedwait(&traces->wake, &traces->lock, &until) != ETIMEDOUT) {}
}

static void *write_traces(void *context)
{
    struct traces *traces = context;
    struct buffer lines = {0};
    pthread_setname_np(pthread_self(), "traces");
    pthread_mutex_lock(&traces->lock);
    while (!traces->closing || traces->waiting.length > 0) {
        while (!traces->closing && traces->waiting.length == 0) { pthread_cond_wait(&traces->wake, &traces->lock); }
        wait_for_lines(traces);
        struct buffer taken = traces->waiting;
        uint64_t count = traces->lines;
        traces->waiting = lines;
        traces->lines = 0;
        lines = taken;
        if (lines.length == 0) { continue; }
        pthread_mutex_unlock(&traces->lock);
        write_all(traces, &lines, count);
        pthread_mutex_lock(&traces->lock);
    }
    pthread_mutex_unlock(&traces->lock);
    buffer_free(&lines);
    return NULL;
}

static enum status start_trace_thread(struct traces *traces, struct err *err)
{
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&traces->lock, NULL);
    pthread_cond_init(&traces->wake, &clock);
    pthread_condattr_destroy(&clock);
    errno = thread_start(&traces->thread, write_traces, traces);
    if (errno == 0) { return STATUS_OK; }
    return err_set_errno(err, "cannot start a thread for traces");
}

enum status traces_open(const char *path, struct traces **out, struct err *err)
{
    struct stat is;
    int fd = open_file(path);
    if (fd < 0) { return err_set_errno(err, "traces: cannot open %s", path); }
    bool regular = fstat(fd, &is) == 0 && S_ISREG(is.st_mode);
    close(fd);
    if (!regular) { return err_set(err, STATUS_BAD_INPUT, "traces: %s is no regular file", path); }
    struct traces *traces = calloc(1, sizeof *traces);
    if (!traces) { return err_set(err, STATUS_NO_MEMORY, "no memory for traces"); }
    traces->path = path;
    if (getrandom(&traces->seed, sizeof traces->seed, 0) != (ssize_t)sizeof traces->seed) {
        traces->seed = clock_now_ns();
    }
    enum status status = start_trace_thread(traces, err);
    if (status != STATUS_OK) {
        free(traces);
        return status;
    }
    *out = traces;
    return STATUS_OK;
}

void traces_close(struct traces *traces)
{
    if (!traces) { return; }
    pthread_mutex_lock(&traces->lock);
    traces->closing = true;
    pthread_cond_signal(&traces->wake);
    pthread_mutex_unlock(&traces->lock);
    pthread_join(traces->thread, NULL);
    pthread_cond_destroy(&traces->wake);
    pthread_mutex_destroy(&traces->lock);
    buffer_free(&traces->waiting);
    buffer_free(&traces->line);
    free(traces);
}

void traces_counters(const struct traces *traces, uint64_t *spans, uint64_t *dropped)
{
    *spans = traces ? atomic_load(&traces->spans) : 0;
    *dropped = traces ? atomic_load(&traces->dropped) : 0;
}

/* Gives the line to the thread. */
static void give_line(struct traces *traces)
{
    struct buffer *line = &traces->line;
    pthread_mutex_lock(&traces->lock);
    size_t before = traces->waiting.length;
    bool room = buffer_ok(line) && before + line->length <= WAITING_MAX;
    if (room) { buffer_append(&traces->waiting, line->data, line->length); }
    room = room && buffer_ok(&traces->waiting);
    traces->waiting.broken = false; /* an append that fails adds nothing */
    traces->lines += room;
    if (room && (before == 0 || traces->waiting.length >= WAITING_MAX / 4)) { pthread_cond_signal(&traces->wake); }
    pthread_mutex_unlock(&traces->lock);
    atomic_fetch_add(&traces->spans, 1);
    if (!room) { atomic_fetch_add(&traces->dropped, 1); }
    if (!buffer_ok(line)) { buffer_free(line); }
}

/* ---- ids ---- */

/* Mixes a seed and two numbers to an id that is never 0. */
static uint64_t mix_id(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t state = seed ^ a;
    state = random_next(&state) ^ b;
    uint64_t id = random_next(&state);
    return id != 0 ? id : 1;
}

/* The id of a run: each run has its own entry. */
static uint64_t run_id(const struct traces *traces, const struct traces_of *of, const struct request *request)
{
    uint64_t place = request->identity.class;
    for (const char *c = of->queue; *c; c++) { place = place * 31 + (unsigned char)*c; }
    return mix_id(traces->seed + place, request->identity.entry.ms, request->identity.entry.seq);
}

/* Writes the ids of a batch, which is a trace of its own, because its requests belong to many traces. */
static void put_batch_ids(struct traces *traces, const struct traces_of *of, uint64_t number)
{
    uint64_t place = 0;
    for (const char *c = of->worker; *c; c++) { place = place * 31 + (unsigned char)*c; }
    buffer_json(&traces->line, "'traceId':'%016" PRIx64 "%016" PRIx64 "','spanId':'%016" PRIx64 "'",
                mix_id(traces->seed, place, 0), mix_id(traces->seed, place, 2 * number),
                mix_id(traces->seed, place, 2 * number + 1));
}

static void put_run_ids(struct traces *traces, const struct traces_of *of, const struct request *request)
{
    buffer_json(&traces->line, "'traceId':'%.*s','spanId':'%016" PRIx64 "'", TRACE_HEX,
                request->identity.traceparent + TRACE_AT, run_id(traces, of, request));
}

/* ---- OTLP ---- */

static void put_string(struct buffer *to, const char *key, const char *value)
{
    buffer_json(to, ",{'key':'%s','value':{'stringValue':'%s'}}", key, value);
}

/* 64-bit numbers are strings in Protobuf's JSON. */
static void put_integer(struct buffer *to, const char *key, uint64_t value)
{
    buffer_json(to, ",{'key':'%s','value':{'intValue':'%" PRIu64 "'}}", key, value);
}

/* Begins a line, up to the span's first member. */
static void begin_line(struct traces *traces, const struct traces_of *of)
{
    struct buffer *to = &traces->line;
    to->length = 0;
    buffer_json(to, "{'resourceSpans':[{'resource':{'attributes':[");
    put_string(to, "service.name", "sluice");
    put_string(to, "service.version", sluice_version);
    put_string(to, "service.instance.id", of->worker);
    buffer_json(to, "]},'scopeSpans':[{'scope':{'name':'sluice','version':'%s'},'spans':[{", sluice_version);
}

static void end_line(struct traces *traces)
{
    buffer_json(&traces->line, "}]}]}]}\n");
    give_line(traces);
}

/* A monotonic time as unix nanoseconds; `now` and `unix_now` are the same moment. */
struct moment {
    uint64_t now, unix_now;
};

static struct moment read_clocks(void)
{
    return (struct moment){clock_now_ns(), clock_unix_ns()};
}

static uint64_t unix_ns(const struct moment *moment, uint64_t ns)
{
    return moment->unix_now - (moment->now > ns ? moment->now - ns : 0);
}

static void put_times(struct buffer *to, const struct moment *moment, uint64_t from_ns, uint64_t to_ns)
{
    buffer_json(to, ",'startTimeUnixNano':'%" PRIu64 "','endTimeUnixNano':'%" PRIu64 "'", unix_ns(moment, from_ns),
                unix_ns(moment, to_ns));
}

static void put_event(struct buffer *to, const struct moment *moment, const char *name, uint64_t ns)
{
    if (ns != 0) { buffer_json(to, ",{'timeUnixNano':'%" PRIu64 "','name':'%s'}", unix_ns(moment, ns), name); }
}

static void put_status(struct buffer *to, const char *message)
{
    buffer_json(to, ",'status':{'code':%d,'message':'%s'}", STATUS_ERROR, message);
}

static const char *operation_of(enum request_task task)
{
    return task == TASK_EMBED ? "embeddings" : task_names[task];
}

static void put_work(struct buffer *to, const struct traces_of *of, enum request_task task, uint64_t tokens)
{
    put_string(to, "gen_ai.operation.name", operation_of(task));
    put_string(to, "gen_ai.provider.name", "sluice");
    put_string(to, "gen_ai.request.model", of->model);
    put_integer(to, "gen_ai.usage.input_tokens", tokens);
    put_string(to, "messaging.system", "redis");
}

/* ---- spans ---- */

static void put_request_attributes(struct traces *traces, const struct traces_of *of, const struct request *request)
{
    struct buffer *to = &traces->line;
    char entry[ENTRY_ID_TEXT];
    uint64_t tokens = 0, entry_ms = request->identity.entry.ms, seen_ms = request->identity.seen_ms;
    for (uint32_t i = 0; request->lifetime.prepared_ns != 0 && i < request->row_count; i++) {
        tokens += request->rows[i].tokens;
    }
    entry_id_format(request->identity.entry, entry);
    buffer_json(to, ",'attributes':[");
    put_work(to, of, request->task, tokens);
    if (request->task == TASK_EMBED) { put_integer(to, "gen_ai.embeddings.dimension.count", request->output.dims); }
    put_string(to, "messaging.operation.type", "process");
    put_string(to, "messaging.operation.name", "process");
    buffer_json(to, ",{'key':'messaging.destination.name','value':{'stringValue':'sluice:{%s}:%s'}}", of->queue,
                class_streams[request->identity.class]);
    put_string(to, "messaging.consumer.group.name", "sluice");
    put_string(to, "messaging.client.id", of->worker);
    put_string(to, "messaging.message.id", entry);
    put_string(to, "sluice.request", request->identity.name);
    put_string(to, "sluice.class", class_names[request->identity.class]);
    put_integer(to, "sluice.texts", request->row_count);
    put_integer(to, "sluice.attempt", request->retry.attempt);
    if (request->identity.tenant[0]) { put_string(to, "sluice.tenant", request->identity.tenant); }
    if (seen_ms != 0) {
        buffer_json(to, ",{'key':'sluice.queue_seconds','value':{'doubleValue':%.6g}}",
                    seen_ms > entry_ms ? (double)(seen_ms - entry_ms) / 1e3 : 0);
    }
    if (request->retry.code != CODE_NONE) { put_string(to, "error.type", reply_code_name(request->retry.code)); }
    buffer_json(to, "]");
}

/* True if a run has ended with a vector, an error or a retry. False if the request only waited, if another worker has
 * finished it, or if it cancels another. */
static bool has_run(const struct request *request)
{
    enum outcome outcome = request->lifetime.outcome;
    enum verdict verdict = request->lifetime.verdict;
    bool ours = verdict == VERDICT_DONE || (verdict == VERDICT_LATE && request->lifetime.repeated);
    return ours && outcome != OUTCOME_CANCEL && (outcome != OUTCOME_DEFER || request->retry.code != CODE_NONE);
}

void traces_request(struct traces *traces, const struct traces_of *of, const struct request *request)
{
    if (!request->identity.sampled || !has_run(request)) { return; }
    struct buffer *to = &traces->line;
    struct moment now = read_clocks();
    begin_line(traces, of);
    put_run_ids(traces, of, request);
    buffer_json(to, ",'parentSpanId':'%.*s','flags':%d,'name':'process sluice:{%s}:%s','kind':%d", SPAN_HEX,
                request->identity.traceparent + SPAN_AT, SAMPLED | REMOTE, of->queue,
                class_streams[request->identity.class], KIND_CONSUMER);
    if (request->identity.tracestate) {
        buffer_json(to, ",'traceState':%.*s", (int)request->identity.tracestate_bytes, request->identity.tracestate);
    }
    put_times(to, &now, request->lifetime.received_ns, now.now);
    put_request_attributes(traces, of, request);
    buffer_json(to, ",'events':[");
    put_event(to, &now, "tokenised", request->lifetime.prepared_ns);
    put_event(to, &now, "compute begins", request->lifetime.started_ns);
    put_event(to, &now, "computed", request->lifetime.computed_ns);
    buffer_json(to, "]");
    if (request->lifetime.batch != 0) {
        buffer_json(to, ",'links':[{");
        put_batch_ids(traces, of, request->lifetime.batch);
        buffer_json(to, "}]");
    }
    if (request->retry.code != CODE_NONE) { put_status(to, request->retry.message); }
    end_line(traces);
}

/* Collects the sampled requests of a batch, each once. Beyond LINKS_MAX it only counts rows. Shapes: requests
 * [LINKS_MAX]. */
static uint32_t sampled_requests(const struct batch *batch, const struct request **requests, uint32_t *rows_more)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            uint32_t at = 0;
            if (!row->request->identity.sampled) { continue; }
            while (at < count && requests[at] != row->request) { at++; }
            if (at < count) { continue; }
            if (count == LINKS_MAX) {
                ++*rows_more;
            } else {
                requests[count++] = row->request;
            }
        }
    }
    return count;
}

void traces_batch(struct traces *traces, const struct traces_of *of, const struct batch *batch)
{
    const struct request *requests[LINKS_MAX];
    uint32_t more = 0, count = sampled_requests(batch, requests, &more);
    struct buffer *to = &traces->line;
    struct moment now = read_clocks();
    if (count == 0 || batch->started_ns == 0) { return; }
    enum request_task task = requests[0]->task;
    begin_line(traces, of);
    put_batch_ids(traces, of, batch->number);
    buffer_json(to, ",'flags':%d,'name':'batch of %s','kind':%d", SAMPLED, operation_of(task), KIND_INTERNAL);
    put_times(to, &now, batch->started_ns, batch->finished_ns);
    buffer_json(to, ",'attributes':[");
    put_work(to, of, task, batch->tokens);
    put_integer(to, "sluice.batch.texts", batch->engine.rows);
    put_integer(to, "sluice.batch.computed_tokens", batch->engine.extent);
    if (batch->status != STATUS_OK) { put_string(to, "error.type", status_name(batch->status)); }
    buffer_json(to, "],'links':[");
    for (uint32_t i = 0; i < count; i++) {
        buffer_json(to, ",{");
        put_run_ids(traces, of, requests[i]);
        buffer_json(to, "}");
    }
    buffer_json(to, "]");
    if (more > 0) { buffer_json(to, ",'droppedLinksCount':%" PRIu32, more); }
    if (batch->status != STATUS_OK) { put_status(to, batch->err.message); }
    end_line(traces);
}

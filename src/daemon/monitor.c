/* Every answer but those of the admin API is made at once from the I/O thread's memory. Redis' counts of a queue come
 * with each pulse (redis/queue_look), so they are about a second old. */
#include "daemon/monitor.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/version.h"
#include "daemon/admin.h"
#include "daemon/admin_job.h"
#include "daemon/dashboard.h"
#include "daemon/gpus.h"
#include "daemon/history.h"
#include "daemon/metrics.h"
#include "http/server.h"

#define PLAIN "text/plain; charset=utf-8"

struct monitor {
    struct monitor_options of;
    struct http *http;
    struct admin *admin;
    struct gpus *gpus;                  /* NULL: there is no driver */
    struct history *histories;          /* [queue_count] */
    uint64_t opened_ms, opened_unix_ms; /* opened_ms: monotonic */
    unsigned seconds;                   /* since then */
};

/* ---- health ---- */

/* The reason why the queue is not served as it should be; NULL: it is. */
static const char *find_unready(const struct consumer *consumer)
{
    struct worker_stats stats = worker_stats(consumer->worker);
    const char *why_down = queue_why_down(consumer->queue);
    if (consumer->stopped) { return "it has ended"; }
    if (stats.draining) { return "draining"; }
    if (why_down) { return why_down; }
    return stats.memory_level > 0 ? "Redis' memory is nearly used up (maxmemory)" : NULL;
}

static double oldest_batch_s(const struct worker_stats *stats)
{
    uint64_t now_ns = clock_now_ns(), since_ns = stats->oldest_batch_ns;
    return since_ns != 0 && now_ns > since_ns ? (double)(now_ns - since_ns) / (double)NS_PER_S : 0;
}

/* The answer itself shows that the loop turns; this checks that batches move, too. */
static enum http_when answer_healthz(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    const struct monitor *monitor = context;
    struct buffer *body = &reply->body;
    for (size_t i = 0; i < monitor->of.queue_count; i++) {
        const struct consumer *consumer = &monitor->of.consumers[i];
        struct worker_stats stats = worker_stats(consumer->worker);
        double age_s = oldest_batch_s(&stats), most_s = (double)consumer->compute_timeout_ns / (double)NS_PER_S;
        if (most_s > 0 && age_s > most_s) {
            buffer_format(body, "queue %s: a batch has been computed for %.0f s\n", consumer->config->queue, age_s);
        }
    }
    if (body->length > 0) { reply->status = 503; }
    if (body->length == 0) { buffer_string(body, "ok\n"); }
    return HTTP_NOW;
}

static enum http_when answer_readyz(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    const struct monitor *monitor = context;
    struct buffer *body = &reply->body;
    for (size_t i = 0; i < monitor->of.queue_count; i++) {
        const char *why = find_unready(&monitor->of.consumers[i]);
        if (why) { buffer_format(body, "queue %s: %s\n", monitor->of.consumers[i].config->queue, why); }
    }
    if (body->length > 0) { reply->status = 503; }
    if (body->length == 0) { buffer_string(body, "ready\n"); }
    return HTTP_NOW;
}

/* ---- /depth ---- */

/* queue=NAME may be left out where there is only one. */
static const struct consumer *find_queue(const struct monitor *monitor, const char *query)
{
    bool named = strncmp(query, "queue=", 6) == 0;
    for (size_t i = 0; i < monitor->of.queue_count; i++) {
        if (named ? strcmp(query + 6, monitor->of.consumers[i].config->queue) == 0
                  : !*query && monitor->of.queue_count == 1) {
            return &monitor->of.consumers[i];
        }
    }
    return NULL;
}

static enum http_when answer_depth(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct consumer *consumer = find_queue(context, request->query);
    if (!consumer) { return http_error(reply, 400, "say ?queue=NAME, a queue that this daemon serves"); }
    const struct queue_look *look = queue_looked(consumer->queue);
    uint64_t unread = 0, running = 0;
    if (look->redis_ms == 0) { return http_error(reply, 503, "not known: Redis is away"); }
    for (int c = 0; c < CLASS_COUNT; c++) {
        unread += look->unread[c];
        running += look->pending[c];
    }
    buffer_json(&reply->body,
                "{'queue':%s,'depth':%" PRIu64 ",'unread':%" PRIu64 ",'running':%" PRIu64 ",'due':%" PRIu64 "}\n",
                consumer->config->queue, unread + running + look->due, unread, running, look->due);
    return HTTP_NOW;
}

/* ---- the samples of /metrics ---- */

static void sample_writer(struct writer *writer, struct queue_sample *sample)
{
    sample->texts_running = sample->texts_waiting = sample->kv_blocks = sample->kv_used = sample->prefix_hits = NAN;
    if (!writer) { return; }
    writer_counts(writer, &sample->writing);
    const struct generator_state *generator = &sample->writing.generator;
    sample->texts_running = generator->steps.running;
    sample->texts_waiting = generator->steps.waiting;
    sample->kv_blocks = generator->blocks;
    sample->kv_used = generator->used;
    sample->prefix_hits = (double)generator->steps.shared_tokens;
}

static struct queue_sample sample_queue(const struct consumer *consumer)
{
    const struct queue_look *look = queue_looked(consumer->queue);
    bool known = look->redis_ms != 0;
    struct queue_sample sample = {
        .queue = consumer->config->queue,
        .model = consumer->model->name,
        .revision = consumer->model->revision,
        .precision = precision_name(engine_precision(consumer->engine)),
        .backend = engine_backend(consumer->engine),
        .info = 1,
        .stats = worker_stats(consumer->worker),
        .histograms = *worker_histograms(consumer->worker),
        .counters = queue_counters(consumer->queue),
        .ready = find_unready(consumer) == NULL,
        .connected = queue_why_down(consumer->queue) == NULL,
        .later = known ? (double)look->later : NAN,
        .due = known ? (double)look->due : NAN,
        .dead = known ? (double)look->dead : NAN,
    };
    sample.oldest_batch_s = oldest_batch_s(&sample.stats);
    sample_writer(consumer->writer, &sample);
    sample.paused = sample.stats.paused;
    sample.paused_by = look->pause.by;
    sample.paused_why = look->pause.why;
    sample.pause_info = known && look->pause.on ? 1 : NAN;
    sample.pause_start_s = known && look->pause.since_ms > 0 ? (double)look->pause.since_ms / 1e3 : NAN;
    sample.pause_end_s = known && look->pause.until_ms > 0 ? (double)look->pause.until_ms / 1e3 : NAN;
    sample.housekeeper = sample.stats.housekeeper;
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint64_t oldest_ms = look->oldest[c].ms;
        bool older = oldest_ms != 0 && oldest_ms < look->redis_ms;
        sample.unread[c] = known ? (double)look->unread[c] : NAN;
        sample.pending[c] = known ? (double)look->pending[c] : NAN;
        sample.oldest_s[c] = !known ? NAN : older ? (double)(look->redis_ms - oldest_ms) / 1e3 : 0;
        sample.wait_s[c] = known && look->wait_ms[c] >= 0 ? (double)look->wait_ms[c] / 1e3 : NAN;
        sample.cap[c] = known && look->cap[c] > 0 ? (double)look->cap[c] : NAN;
    }
    return sample;
}

static struct model_sample sample_model(const struct monitor *monitor, unsigned number)
{
    const struct engine *engine = devices_engine(&monitor->of.models->devices, number);
    const struct engine_int8 *int8 = engine ? engine_int8(engine) : NULL;
    return (struct model_sample){.queue = monitor->of.models->items[number].config->queue,
                                 .model = monitor->of.models->items[number].model->name,
                                 .precision = engine ? precision_name(engine_precision(engine)) : "",
                                 .load_s = (double)monitor->of.models->items[number].load_ns / (double)NS_PER_S,
                                 .weight_bytes = engine ? (double)engine_weight_bytes(engine) : NAN,
                                 .int8_share = int8 ? (double)int8->total / int8->of : NAN};
}

static double resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    bool ok = file && fscanf(file, "%*s %llu", &pages) == 1;
    if (file) { fclose(file); }
    return ok ? (double)pages * (double)sysconf(_SC_PAGESIZE) : NAN;
}

static double open_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    double count = folder ? -3 : NAN; /* . and .. and the folder itself */
    while (folder && readdir(folder)) { count++; }
    if (folder) { closedir(folder); }
    return count;
}

static double ns_to_seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

static struct process_sample sample_process(const struct monitor *monitor)
{
    struct compute_state state = compute_state(monitor->of.compute);
    struct process_sample sample = {.version = sluice_version,
                                    .info = 1,
                                    .engine = devices_counters(&monitor->of.models->devices),
                                    .threads = state.threads,
                                    .devices = state.devices,
                                    .devices_lost = state.devices_lost,
                                    .resident_bytes = resident_bytes(),
                                    .started_s = (double)monitor->of.started_ms / 1e3,
                                    .open_files = open_files(),
                                    .log_dropped = log_dropped()};
    struct rusage usage;
    bool ok = getrusage(RUSAGE_SELF, &usage) == 0;
    sample.cpu_s = ok ? ns_to_seconds(usage.ru_utime) + ns_to_seconds(usage.ru_stime) : NAN;
    http_counters(monitor->http, &sample.http_answered, &sample.http_refused);
    traces_counters(monitor->of.shared->traces, &sample.spans, &sample.spans_dropped);
    return sample;
}

static enum http_when answer_metrics(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)request;
    const struct monitor *monitor = context;
    struct queue_sample *queues = calloc(monitor->of.queue_count, sizeof *queues);
    struct model_sample *models = calloc(monitor->of.models->count, sizeof *models);
    if (queues && models) {
        for (size_t i = 0; i < monitor->of.queue_count; i++) { queues[i] = sample_queue(&monitor->of.consumers[i]); }
        for (unsigned i = 0; i < monitor->of.models->count; i++) { models[i] = sample_model(monitor, i); }
        struct metrics_view view = {.process = sample_process(monitor),
                                    .queues = queues,
                                    .models = models,
                                    .queue_count = monitor->of.queue_count,
                                    .model_count = monitor->of.models->count};
        view.gpu_count = gpus_read(monitor->gpus, view.gpus);
        metrics_write(&view, &reply->body);
    }
    free(queues);
    free(models);
    if (reply->body.length == 0) { reply->status = 503; }
    return HTTP_NOW;
}

/* ---- the dashboard and its API ---- */

static struct history_sample sample_history(const struct monitor *monitor, const struct consumer *consumer)
{
    const struct queue_look *look = queue_looked(consumer->queue);
    const struct worker_histograms *histograms = worker_histograms(consumer->worker);
    struct worker_stats stats = worker_stats(consumer->worker);
    struct history_sample sample = {
        .at_ms = monitor->opened_unix_ms + (clock_now_ms() - monitor->opened_ms),
        .redis_ms = queue_why_down(consumer->queue) ? 0 : look->redis_ms,
        .done_today = look->today.done,
        .errors_today = look->today.errors,
        .busy_ns = stats.busy_ns,
        .batches = stats.batches,
        .rows = stats.rows,
        .tokens = stats.tokens,
        .computed_tokens = stats.computed_tokens,
        .commands = queue_counters(consumer->queue).commands,
        .threads = compute_state(monitor->of.compute).threads,
    };
    for (int c = 0; c < CLASS_COUNT; c++) {
        sample.unread += look->unread[c];
        sample.running += look->pending[c];
        for (int i = 0; i <= HISTOGRAM_BOUNDS; i++) { sample.request_ns[i] += histograms->total[c].counts[i]; }
    }
    return sample;
}

static enum http_when answer_page(void *context, const struct http_request *request, struct http_reply *reply)
{
    (void)context;
    const struct dashboard_file *file = dashboard_files;
    while (strcmp(file->path, request->path) != 0) { file++; }
    buffer_append(&reply->body, file->text, file->length);
    return HTTP_NOW;
}

static enum http_when answer_api(void *context, const struct http_request *request, struct http_reply *reply)
{
    const struct monitor *monitor = context;
    return admin_answer(monitor->admin, request, reply);
}

/* ---- the routes ---- */

static const struct http_limits limits = {
    .connections = 32, .body_bytes = ADMIN_BODY_BYTES, .receive_ms = 5000, .answer_ms = 15000};

/* A browser frames, stores and mixes nothing of this port. */
static const char headers[] =
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: default-src 'none'; "
    "script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n";

static const struct http_route routes[] = {
    {"/metrics", HTTP_GET, "text/plain; version=0.0.4; charset=utf-8", answer_metrics},
    {"/healthz", HTTP_GET, PLAIN, answer_healthz},
    {"/readyz", HTTP_GET, PLAIN, answer_readyz},
    {"/depth", HTTP_GET, "application/json", answer_depth},
    {"/", HTTP_GET, "text/html; charset=utf-8", answer_page, .guarded = true},
    {"/dashboard.js", HTTP_GET, "text/javascript; charset=utf-8", answer_page, .guarded = true},
    {"/dashboard.css", HTTP_GET, "text/css; charset=utf-8", answer_page, .guarded = true},
    {"/api/", HTTP_GET | HTTP_POST, "application/json", answer_api, .guarded = true},
};

static enum status open_admin(struct monitor *monitor, struct err *err)
{
    const struct monitor_options *of = &monitor->of;
    char *token;
    TRY(config_http_token(of->config, &token, err));
    struct admin_options options = {.address = &of->shared->address,
                                    .consumers = of->consumers,
                                    .queue_count = of->queue_count,
                                    .histories = monitor->histories,
                                    .token = token,
                                    .open = http_is_loopback(of->config->http),
                                    .wake_fd = loop_wake_fd(of->loop)};
    enum status status = admin_open(&options, &monitor->admin, err);
    if (token) { explicit_bzero(token, strlen(token)); }
    free(token);
    return status;
}

enum status monitor_open(const struct monitor_options *options, struct monitor **out, struct err *err)
{
    const char *address = options->config->http;
    *out = NULL;
    if (!address || address[0] == '\0') { return STATUS_OK; }
    struct monitor *monitor = calloc(1, sizeof *monitor);
    if (!monitor) { return err_set(err, STATUS_NO_MEMORY, "no memory for the HTTP port"); }
    monitor->of = *options;
    monitor->opened_ms = clock_now_ms();
    monitor->opened_unix_ms = clock_unix_ms();
    *out = monitor;
    monitor->histories = calloc(options->queue_count, sizeof *monitor->histories);
    if (!monitor->histories) { return err_set(err, STATUS_NO_MEMORY, "no memory for the history of the queues"); }
    TRY(gpus_open(&monitor->gpus, err));
    TRY(open_admin(monitor, err));
    const struct http_options http = {.address = address,
                                      .routes = routes,
                                      .route_count = sizeof routes / sizeof routes[0],
                                      .limits = limits,
                                      .headers = headers,
                                      .context = monitor};
    return http_open(loop_base(options->loop), &http, &monitor->http, err);
}

void monitor_take(struct monitor *monitor)
{
    if (monitor) { admin_take(monitor->admin, monitor->http); }
}

void monitor_second(struct monitor *monitor)
{
    if (!monitor || monitor->seconds++ % HISTORY_STEP_S != 0) { return; }
    for (size_t i = 0; i < monitor->of.queue_count; i++) {
        struct history_sample sample = sample_history(monitor, &monitor->of.consumers[i]);
        history_add(&monitor->histories[i], &sample);
    }
}

void monitor_close(struct monitor *monitor)
{
    if (!monitor) { return; }
    http_close(monitor->http);
    admin_close(monitor->admin);
    gpus_close(monitor->gpus);
    free(monitor->histories);
    free(monitor);
}

/* The metrics, one row each; counters of a worker have theirs in schedule/counters.inc. To add another, add its number
 * to a sample, a row here, and its line in docs/metrics.md (a test compares the two). */
#include "daemon/metrics.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum type { TYPE_COUNTER, TYPE_GAUGE, TYPE_HISTOGRAM };

/* The things for each of which a row has a line, and so the row's labels. CLASS and END: the member is an array. */
enum level {
    PROCESS,
    BUILD, /* the process, with its version */
    MODEL,
    GPU,
    QUEUE,
    INFO,  /* a queue, with its model */
    PAUSE, /* a queue, and who has paused it and why */
    CLASS, /* a queue and a class */
    END,   /* a queue, a class and how requests end */
};

enum kind { KIND_U32, KIND_U64, KIND_DOUBLE, KIND_HISTOGRAM };

struct metric {
    const char *name, *help;
    enum type type;
    enum level level;
    size_t offset; /* in the sample of its level */
    enum kind kind;
    double unit; /* of the number; 0: 1 */
};

#define KIND_OF(value)                                                                                                 \
    _Generic((value), uint32_t : KIND_U32, uint64_t : KIND_U64, double : KIND_DOUBLE, struct histogram : KIND_HISTOGRAM)
#define OF_SAMPLE(sample, member) offsetof(struct sample, member), KIND_OF(((struct sample *)0)->member)
#define OF_QUEUE(member) OF_SAMPLE(queue_sample, member)
#define OF_MODEL(member) OF_SAMPLE(model_sample, member)
#define OF_GPU(member) OF_SAMPLE(gpu_sample, member)
#define OF_PROCESS(member) OF_SAMPLE(process_sample, member)
#define NS 1e-9

/* clang-format off */
static const struct metric table[] = {
    /* what a worker counts */
#define COUNTER(name, help) {"sluice_" #name "_total", help, TYPE_COUNTER, QUEUE, OF_QUEUE(stats.name)},
#define ENDED(name, help)
#include "schedule/counters.inc"

    /* requests */
    {"sluice_requests_total", "Requests that were answered or cancelled; code: done, cancelled, or that of the error.", TYPE_COUNTER, END, OF_QUEUE(counters.ended[0][0])},
    {"sluice_request_seconds", "From XADD (after a delay: from its end; after retries: from the first one) to the reply, of requests that are done.", TYPE_HISTOGRAM, CLASS, OF_QUEUE(histograms.total[0])},
    {"sluice_request_queue_seconds", "From XADD until a worker read it.", TYPE_HISTOGRAM, CLASS, OF_QUEUE(histograms.queue[0])},
    {"sluice_request_prepare_seconds", "From there until it was tokenised.", TYPE_HISTOGRAM, CLASS, OF_QUEUE(histograms.prepare[0])},
    {"sluice_request_window_seconds", "From there until its first batch began.", TYPE_HISTOGRAM, CLASS, OF_QUEUE(histograms.window[0])},
    {"sluice_request_compute_seconds", "From there until its last batch ended.", TYPE_HISTOGRAM, CLASS, OF_QUEUE(histograms.compute[0])},

    /* batches */
    {"sluice_batch_rows", "Texts of a batch.", TYPE_HISTOGRAM, QUEUE, OF_QUEUE(histograms.batch_rows)},
    {"sluice_batch_tokens", "Tokens of a batch, without padding.", TYPE_HISTOGRAM, QUEUE, OF_QUEUE(histograms.batch_tokens)},
    {"sluice_batch_seconds_total", "Time of compute threads in batches that succeeded, without the background.", TYPE_COUNTER, QUEUE, OF_QUEUE(stats.busy_ns), NS},
    {"sluice_batch_predicted_seconds_total", "What the same batches were predicted to take.", TYPE_COUNTER, QUEUE, OF_QUEUE(stats.predicted_ns), NS},
    {"sluice_batch_prediction_error_ratio", "How far off predictions are lately.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.cost_error)},
    {"sluice_batch_oldest_seconds", "How long the oldest batch has been computed; 0: none is.", TYPE_GAUGE, QUEUE, OF_QUEUE(oldest_batch_s)},
    {"sluice_written_tokens_total", "Tokens that were drawn for texts, also for those that were cancelled.", TYPE_COUNTER, QUEUE, OF_QUEUE(writing.tokens)},
    {"sluice_generate_first_token_seconds", "From XADD (after retries: from the first one) to a text's first token.", TYPE_HISTOGRAM, QUEUE, OF_QUEUE(writing.first_token)},
    {"sluice_generate_inter_token_seconds", "Between two tokens of a text.", TYPE_HISTOGRAM, QUEUE, OF_QUEUE(writing.inter_token)},
    {"sluice_generate_running", "Texts that are being written.", TYPE_GAUGE, QUEUE, OF_QUEUE(texts_running)},
    {"sluice_generate_waiting", "Texts that wait for room in the pool of keys and values.", TYPE_GAUGE, QUEUE, OF_QUEUE(texts_waiting)},
    {"sluice_generate_kv_blocks", "Blocks of the pool, of 16 tokens each.", TYPE_GAUGE, QUEUE, OF_QUEUE(kv_blocks)},
    {"sluice_generate_kv_blocks_used", "Of these, those of texts that are being written.", TYPE_GAUGE, QUEUE, OF_QUEUE(kv_used)},
    {"sluice_generate_prefix_hit_tokens_total", "Tokens of prompts that were computed already, for an earlier text with the same beginning.", TYPE_COUNTER, QUEUE, OF_QUEUE(prefix_hits)},

    /* what this worker holds, and its state */
    {"sluice_held_requests", "Requests that are read and not ended.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.held)},
    {"sluice_held_tokens", "Their tokens.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.held_tokens)},
    {"sluice_held_bytes", "The memory that they may take.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.held_bytes)},
    {"sluice_waiting_rows", "Texts that wait for a batch.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.waiting)},
    {"sluice_batches_running", "Batches that are computed, or queued for it.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.computing)},
    {"sluice_worker_ready", "1 if /readyz would answer 200 for this queue.", TYPE_GAUGE, QUEUE, OF_QUEUE(ready)},
    {"sluice_worker_housekeeper", "1 if this worker does the chores of the queue.", TYPE_GAUGE, QUEUE, OF_QUEUE(housekeeper)},
    {"sluice_worker_info", "1; which model the queue has.", TYPE_GAUGE, INFO, OF_QUEUE(info)},

    /* the queue, as Redis counts it: the same from each worker */
    {"sluice_queue_unread", "Entries that nobody has read.", TYPE_GAUGE, CLASS, OF_QUEUE(unread[0])},
    {"sluice_queue_pending", "Entries that are with a worker.", TYPE_GAUGE, CLASS, OF_QUEUE(pending[0])},
    {"sluice_queue_oldest_seconds", "Age of the oldest pending entry, of the oldest unread one where none is pending; 0: there is none.", TYPE_GAUGE, CLASS, OF_QUEUE(oldest_s[0])},
    {"sluice_queue_wait_seconds", "Until a new entry would be read, as the workers estimate it.", TYPE_GAUGE, CLASS, OF_QUEUE(wait_s[0])},
    {"sluice_queue_cap", "Above so many unread entries the newest are refused.", TYPE_GAUGE, CLASS, OF_QUEUE(cap[0])},
    {"sluice_queue_later", "Requests that wait for their time: delayed, or to be retried.", TYPE_GAUGE, QUEUE, OF_QUEUE(later)},
    {"sluice_queue_due", "Those of them whose time has come.", TYPE_GAUGE, QUEUE, OF_QUEUE(due)},
    {"sluice_queue_dead_letters", "Dead letters that are kept.", TYPE_GAUGE, QUEUE, OF_QUEUE(dead)},
    {"sluice_queue_paused", "1 while the queue is paused.", TYPE_GAUGE, QUEUE, OF_QUEUE(paused)},
    {"sluice_queue_pause_info", "1 while it is; by whom and why.", TYPE_GAUGE, PAUSE, OF_QUEUE(pause_info)},
    {"sluice_queue_pause_start_time_seconds", "Unix time since which it is.", TYPE_GAUGE, QUEUE, OF_QUEUE(pause_start_s)},
    {"sluice_queue_pause_end_time_seconds", "Unix time at which it resumes by itself.", TYPE_GAUGE, QUEUE, OF_QUEUE(pause_end_s)},

    /* Redis */
    {"sluice_redis_connected", "1 while this worker is connected and has joined.", TYPE_GAUGE, QUEUE, OF_QUEUE(connected)},
    {"sluice_redis_connects_total", "Joins: the first one, and one after each loss.", TYPE_COUNTER, QUEUE, OF_QUEUE(counters.connects)},
    {"sluice_redis_commands_total", "Commands sent, calls of scripts too.", TYPE_COUNTER, QUEUE, OF_QUEUE(counters.commands)},
    {"sluice_redis_script_calls_total", "Calls of scripts that were answered.", TYPE_COUNTER, QUEUE, OF_QUEUE(counters.script_calls)},
    {"sluice_redis_script_seconds_total", "Their time from sending to the answer.", TYPE_COUNTER, QUEUE, OF_QUEUE(counters.script_ns), NS},
    {"sluice_redis_memory_bytes", "Memory that Redis uses.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.redis_used_bytes)},
    {"sluice_redis_memory_limit_bytes", "Its maxmemory; 0: none.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.redis_most_bytes)},
    {"sluice_redis_evicts", "1: its maxmemory-policy lets it drop requests and replies.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.redis_evicts)},
    {"sluice_redis_tight", "0: Redis has room; 1: little is held; 2: one small batch at a time.", TYPE_GAUGE, QUEUE, OF_QUEUE(stats.memory_level)},

    /* engine and models */
    {"sluice_engine_threads", "Batches that can be computed at a time.", TYPE_GAUGE, PROCESS, OF_PROCESS(threads)},
    {"sluice_engine_devices", "Devices that work; all CPU cores are one.", TYPE_GAUGE, PROCESS, OF_PROCESS(devices)},
    {"sluice_engine_devices_lost", "Devices that were lost.", TYPE_GAUGE, PROCESS, OF_PROCESS(devices_lost)},
    {"sluice_engine_rows_bf16_total", "Texts that f16 could not hold and bf16 could.", TYPE_COUNTER, PROCESS, OF_PROCESS(engine.rows_bf16)},
    {"sluice_engine_rows_f32_total", "Texts that only f32 could hold.", TYPE_COUNTER, PROCESS, OF_PROCESS(engine.rows_f32)},
    {"sluice_engine_rows_lost_total", "Texts that no precision could hold.", TYPE_COUNTER, PROCESS, OF_PROCESS(engine.rows_lost)},
    {"sluice_model_load_seconds", "Time to open it, calibration included.", TYPE_GAUGE, MODEL, OF_MODEL(load_s)},
    {"sluice_model_weight_bytes", "Its weights on the device.", TYPE_GAUGE, MODEL, OF_MODEL(weight_bytes)},
    {"sluice_model_int8_ratio", "Share of its layers' products that are in int8, where that is the precision.", TYPE_GAUGE, MODEL, OF_MODEL(int8_share)},

    {"sluice_gpu_busy_ratio", "Share of the time with a kernel on the GPU, whoever's.", TYPE_GAUGE, GPU, OF_GPU(busy)},
    {"sluice_gpu_memory_used_bytes", "Used memory of the GPU.", TYPE_GAUGE, GPU, OF_GPU(used_bytes)},
    {"sluice_gpu_memory_bytes", "All memory of the GPU.", TYPE_GAUGE, GPU, OF_GPU(total_bytes)},

    /* this process */
    {"sluice_build_info", "1; which version this is.", TYPE_GAUGE, BUILD, OF_PROCESS(info)},
    {"sluice_http_requests_total", "HTTP requests that were answered.", TYPE_COUNTER, PROCESS, OF_PROCESS(http_answered)},
    {"sluice_http_refused_total", "HTTP connections that were refused or cut off.", TYPE_COUNTER, PROCESS, OF_PROCESS(http_refused)},
    {"sluice_trace_spans_total", "Spans made of traced requests and their batches.", TYPE_COUNTER, PROCESS, OF_PROCESS(spans)},
    {"sluice_trace_spans_dropped_total", "Of these, those that the file of traces did not take.", TYPE_COUNTER, PROCESS, OF_PROCESS(spans_dropped)},
    {"sluice_log_lines_dropped_total", "Lines that the reader or the disk of the log did not take.", TYPE_COUNTER, PROCESS, OF_PROCESS(log_dropped)},
    {"process_resident_memory_bytes", "Resident memory.", TYPE_GAUGE, PROCESS, OF_PROCESS(resident_bytes)},
    {"process_cpu_seconds_total", "CPU time of all threads.", TYPE_COUNTER, PROCESS, OF_PROCESS(cpu_s)},
    {"process_start_time_seconds", "Unix time of the start.", TYPE_GAUGE, PROCESS, OF_PROCESS(started_s)},
    {"process_open_fds", "Open files and sockets.", TYPE_GAUGE, PROCESS, OF_PROCESS(open_files)},
};
/* clang-format on */

/* ---- labels ---- */

/* Appends name="value", after a comma if it is not the first. The format is UTF-8, and escapes quotes, backslashes and
 * line feeds. */
static void add_label(struct buffer *labels, const char *name, const char *value)
{
    buffer_string(labels, labels->length > 0 ? "," : "");
    buffer_string(labels, name);
    buffer_string(labels, "=\"");
    for (const char *at = value ? value : ""; *at;) {
        size_t plain = strcspn(at, "\"\\\n");
        buffer_utf8(labels, at, plain);
        at += plain;
        if (*at) { buffer_append(labels, *at == '\n' ? "\\n" : *at == '"' ? "\\\"" : "\\\\", 2); }
        at += *at != '\0';
    }
    buffer_string(labels, "\"");
}

/* ---- lines ---- */

/* Most lines are counts, which need no printf. */
static void write_number(struct buffer *to, double value)
{
    if (value < 0 || value != floor(value) || value >= 1e15) {
        buffer_format(to, " %.15g\n", value);
        return;
    }
    char text[32], *at = text + sizeof text;
    uint64_t left = (uint64_t)value;
    *--at = '\n';
    do {
        *--at = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    *--at = ' ';
    buffer_append(to, at, (size_t)(text + sizeof text - at));
}

static void write_line(struct buffer *to, const char *name, const char *suffix, const struct buffer *labels,
                       double value)
{
    buffer_string(to, name);
    buffer_string(to, suffix);
    if (labels->length > 0) {
        buffer_string(to, "{");
        buffer_append(to, labels->data, labels->length);
        buffer_string(to, "}");
    }
    write_number(to, value);
}

static void write_histogram(struct buffer *to, const char *name, struct buffer *labels,
                            const struct histogram *histogram)
{
    size_t length = labels->length;
    uint64_t count = 0;
    for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++) {
        count += histogram->counts[i];
        add_label(labels, "le", i < HISTOGRAM_BOUNDS ? histogram->bounds->buckets[i].shown : "+Inf");
        write_line(to, name, "_bucket", labels, (double)count);
        labels->length = length;
    }
    write_line(to, name, "_sum", labels, (double)histogram->sum * histogram->bounds->unit);
    write_line(to, name, "_count", labels, (double)count);
}

static void write_value(struct buffer *to, const struct metric *metric, struct buffer *labels, const void *sample,
                        size_t index)
{
    const void *at = (const char *)sample + metric->offset;
    double value = metric->kind == KIND_U32   ? ((const uint32_t *)at)[index]
                   : metric->kind == KIND_U64 ? (double)((const uint64_t *)at)[index]
                                              : 0;
    if (metric->kind == KIND_HISTOGRAM) {
        const struct histogram *histogram = (const struct histogram *)at + index;
        if (histogram->bounds) { write_histogram(to, metric->name, labels, histogram); }
        return;
    }
    if (metric->kind == KIND_DOUBLE) { value = ((const double *)at)[index]; }
    if (!isnan(value)) { write_line(to, metric->name, "", labels, metric->unit > 0 ? value * metric->unit : value); }
}

static void write_queue(struct buffer *to, const struct metric *metric, const struct queue_sample *queue)
{
    struct buffer labels = {0};
    add_label(&labels, "queue", queue->queue);
    if (metric->level == INFO) {
        add_label(&labels, "model", queue->model);
        add_label(&labels, "revision", queue->revision);
        add_label(&labels, "precision", queue->precision);
        add_label(&labels, "backend", queue->backend);
    }
    if (metric->level == PAUSE) {
        add_label(&labels, "by", queue->paused_by);
        add_label(&labels, "why", queue->paused_why);
    }
    if (metric->level >= QUEUE && metric->level < CLASS) { write_value(to, metric, &labels, queue, 0); }
    size_t length = labels.length;
    for (size_t c = 0; c < CLASS_COUNT && metric->level >= CLASS; c++, labels.length = length) {
        add_label(&labels, "class", class_names[c]);
        if (metric->level == CLASS) { write_value(to, metric, &labels, queue, c); }
        size_t behind = labels.length;
        for (size_t end = 0; end < ENDS && metric->level == END; end++, labels.length = behind) {
            add_label(&labels, "code", end_name((int)end));
            write_value(to, metric, &labels, queue, c * ENDS + end);
        }
    }
    buffer_free(&labels);
}

static void write_metric(struct buffer *to, const struct metric *metric, const struct metrics_view *view)
{
    static const char *const types[] = {
        [TYPE_COUNTER] = "counter", [TYPE_GAUGE] = "gauge", [TYPE_HISTOGRAM] = "histogram"};
    struct buffer labels = {0};
    buffer_format(to, "# HELP %s %s\n# TYPE %s %s\n", metric->name, metric->help, metric->name, types[metric->type]);
    for (size_t i = 0; i < view->queue_count && metric->level >= QUEUE; i++) {
        write_queue(to, metric, &view->queues[i]);
    }
    for (size_t i = 0; i < view->model_count && metric->level == MODEL; i++, labels.length = 0) {
        const struct model_sample *model = &view->models[i];
        add_label(&labels, "queue", model->queue);
        add_label(&labels, "model", model->model);
        add_label(&labels, "precision", model->precision);
        write_value(to, metric, &labels, model, 0);
    }
    for (size_t i = 0; i < view->gpu_count && metric->level == GPU; i++, labels.length = 0) {
        add_label(&labels, "gpu", view->gpus[i].number);
        write_value(to, metric, &labels, &view->gpus[i], 0);
    }
    if (metric->level == BUILD) { add_label(&labels, "version", view->process.version); }
    if (metric->level <= BUILD) { write_value(to, metric, &labels, &view->process, 0); }
    buffer_free(&labels);
}

void metrics_write(const struct metrics_view *view, struct buffer *to)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) { write_metric(to, &table[i], view); }
}

/* The text of /metrics, in Prometheus' format. The table is in metrics.c; docs/metrics.md explains it. */
#ifndef DAEMON_METRICS_H
#define DAEMON_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/buffer.h"
#include "compute/writer.h"
#include "daemon/gpus.h"
#include "engine/engine.h"
#include "redis/queue.h"
#include "redis/queue_look.h"
#include "schedule/worker.h"

/* The numbers of one queue. A double that is NaN is not known, and its line is left out. */
struct queue_sample {
    const char *queue, *model, *revision, *precision, *backend;
    double info;
    struct worker_stats stats;
    struct worker_histograms histograms;
    struct queue_counters counters;
    double ready, connected;
    double oldest_batch_s;
    struct writer_counts writing;                                         /* all zero: the model writes no texts … */
    double texts_running, texts_waiting, kv_blocks, kv_used, prefix_hits; /* … and these are not known */
    double unread[CLASS_COUNT], pending[CLASS_COUNT], oldest_s[CLASS_COUNT], wait_s[CLASS_COUNT], cap[CLASS_COUNT];
    double later, due, dead, paused, housekeeper;
    const char *paused_by, *paused_why;            /* "": not known */
    double pause_info, pause_start_s, pause_end_s; /* NaN: there is none, or it is not known */
};

/* The numbers of a model, which several queues may use; `queue` is the first of them. */
struct model_sample {
    const char *queue, *model, *precision;
    double load_s, weight_bytes, int8_share;
};

/* The numbers of this process. */
struct process_sample {
    const char *version;
    double info;
    struct engine_counters engine;
    uint32_t threads, devices, devices_lost;
    double resident_bytes, cpu_s, started_s, open_files;
    uint64_t http_answered, http_refused;
    uint64_t spans, spans_dropped, log_dropped;
};

/* The numbers of one scrape. */
struct metrics_view {
    struct process_sample process;
    const struct queue_sample *queues; /* [queue_count] */
    const struct model_sample *models; /* [model_count] */
    struct gpu_sample gpus[GPUS_MAX];  /* [gpu_count] */
    size_t queue_count, model_count, gpu_count;
};

/* Appends the text. */
void metrics_write(const struct metrics_view *view, struct buffer *to);

#endif

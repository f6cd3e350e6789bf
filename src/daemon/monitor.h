/* The daemon's HTTP answers (setting `http`): /metrics, /healthz, /readyz, /depth, the dashboard and its API. */
#ifndef DAEMON_MONITOR_H
#define DAEMON_MONITOR_H

#include "compute/compute.h"
#include "compute/models.h"
#include "config/config.h"
#include "daemon/consumer.h"
#include "daemon/loop.h"

struct monitor;

/* The parts that it reports on. All must outlive it. */
struct monitor_options {
    const struct config *config; /* of the process: the address to listen on, and the token */
    struct loop *loop;
    const struct shared *shared;
    const struct consumer *consumers; /* [queue_count] */
    size_t queue_count;
    const struct models *models;
    const struct compute *compute;
    uint64_t started_ms; /* unix time */
};

/* Listens. `*out` is NULL if the configuration names no address. Owns: the caller ends it with monitor_close, also
 * after an error. Errors: those of http_open, admin_open, gpus_open and config_http_token; STATUS_NO_MEMORY. */
MUST_CHECK enum status monitor_open(const struct monitor_options *options, struct monitor **out, struct err *err);

/* Gives the port the answers that the API's thread has finished. NULL is allowed. */
void monitor_take(struct monitor *monitor);

/* Call it each second: extends the history of the queues. NULL is allowed. */
void monitor_second(struct monitor *monitor);

/* Closes the port. NULL is allowed. */
void monitor_close(struct monitor *monitor);

#endif

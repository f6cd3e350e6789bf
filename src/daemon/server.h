/* The daemon: a consumer for each queue, and what they share: one event loop, one prep pool, one set of compute
 * threads, and each model once.
 *
 *   consumer ── ACTION_SUBMIT ──► shares (by weight) ──► compute threads ──┐
 *   consumer ── PREPARE, FORMAT ──► prep pool ─────────────────────────────┴─ channels ──► consumer
 *
 * The I/O thread owns everything, except requests and batches that a channel has handed to another thread. */
#ifndef DAEMON_SERVER_H
#define DAEMON_SERVER_H

#include <stdbool.h>

#include "compute/compute.h"
#include "compute/models.h"
#include "config/config.h"
#include "daemon/consumer.h"
#include "daemon/loop.h"
#include "daemon/monitor.h"

/* Lives in the frame of the serve command; only server.c looks inside. */
struct server {
    const struct config *config;
    const char *config_path; /* of the file, for a reload; NULL for none */
    struct config *configs;  /* [queue_count]: each queue's own */
    struct models models;
    struct loop *loop;
    struct compute *compute;
    struct shared shared;
    struct consumer *consumers; /* [queue_count] */
    struct monitor *monitor;    /* NULL: no port is asked for */
    uint64_t started_ms;        /* unix time */
    size_t queue_count;
    unsigned devices_lost; /* as the queues know */
    uint64_t rows_again;   /* rows that ran again in a wider precision, as last logged … */
    uint64_t told_ns;      /* … and when */
    bool told_ready;       /* the supervisor knows that the start is over */
    bool draining;         /* after a signal */
    bool ending;           /* one queue has ended, and the others are ending */
    bool clean;
    enum status ended_with; /* why it stopped; STATUS_OK after a drain */
};

/* Opens models, engines and threads; nothing is connected yet. `config` and `config_path` must outlive the server.
 * Owns: the caller ends it with server_close, also after an error. Errors: those of config_split, model_open,
 * engine_open and address_parse; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status server_open(struct server *server, const struct config *config, const char *config_path,
                                   struct err *err);

/* Serves until a signal, a fatal answer of Redis to one of the queues, or a lost device; then all queues end. It logs
 * the reason.
 * Errors: STATUS_OK after a clean drain; STATUS_TIMEOUT when work was left unfinished (others reclaim it); the status
 * of a refusal by Redis; STATUS_DEVICE_LOST, also for a batch that hangs. */
MUST_CHECK enum status server_run(struct server *server);

/* Ends threads and queues, and closes everything. Unfinished requests stay pending in Redis. */
void server_close(struct server *server);

#endif

/* The daemon, wired: one worker (work/), one queue (io/), the prep pool, the compute threads and the event loop.
 *
 *   queue ──events──► worker_step ──actions──► queue (Redis), prep (tokenise, format), compute (batches), timer
 *   prep, compute ──finished, through channels and one eventfd──► worker_step
 *
 * The I/O thread owns everything but what a channel has handed to another thread. This file decides nothing: it carries
 * events in and actions out. */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include <stdbool.h>

#include "io/address.h"
#include "io/queue.h"
#include "model/model.h"
#include "serve/compute.h"
#include "serve/config.h"
#include "serve/loop.h"
#include "serve/prep.h"
#include "work/worker.h"

/* Lives in the frame of the serve command; only server.c looks inside. */
struct server {
    const struct config *config;
    struct address address;
    struct model *model;
    struct engine *engine;
    unsigned threads;
    struct loop *loop;
    struct prep *prep;
    struct compute *compute;
    struct worker *worker;
    struct queue *queue;
    struct actions actions;
    bool draining, stopped, clean;
    bool was_ready;
    enum status ended_with; /* why it stopped; STATUS_OK after a drain */
};

/* Opens model, engine and threads; nothing is connected yet. `config` must outlive the server.
 * Owns: the caller ends it with server_close, also after an error. Errors: those of model_open, engine_open and
 * address_parse; STATUS_NO_MEMORY, STATUS_IO. */
MUST_CHECK enum status server_open(struct server *server, const struct config *config, struct err *err);

/* Serves until a signal, a fatal answer of Redis, or a lost device.
 * Errors: STATUS_OK after a clean drain; STATUS_TIMEOUT when it stopped with unfinished work (which others will
 * reclaim); what Redis said when it refuses us; STATUS_DEVICE_LOST. All have been logged. */
MUST_CHECK enum status server_run(struct server *server);

void server_close(struct server *server);

#endif

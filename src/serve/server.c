#include "serve/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "serve/password.h"
#include "serve/start.h"

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = clock_now_ns();
    return seed;
}

/* ---- events in, actions out ---- */

static void stop(struct server *server, enum status status, bool clean)
{
    server->stopped = true;
    server->clean = clean;
    server->ended_with = status != STATUS_OK || clean ? status : STATUS_TIMEOUT;
    loop_stop(server->loop);
}

static void execute(struct server *server, struct action *action)
{
    switch (action->kind) {
    case ACTION_PREPARE:
        prep_put(server->prep, PREP_PREPARE, &action->requests);
        break;
    case ACTION_FORMAT:
        prep_put(server->prep, PREP_FORMAT, &action->requests);
        break;
    case ACTION_SUBMIT:
        compute_put(server->compute, action->batch);
        break;
    case ACTION_EXIT:
        stop(server, action->exit.status, action->exit.clean);
        break;
    default:
        queue_execute(server->queue, action);
    }
}

/* One step of the worker. Nothing that executes an action calls back into here. */
static void step(struct server *server, const struct event *event)
{
    if (server->stopped)
        return;
    server->actions.count = 0;
    uint64_t deadline_ns = worker_step(server->worker, event, clock_now_ns(), &server->actions);
    for (size_t i = 0; i < server->actions.count; i++)
        execute(server, &server->actions.items[i]);
    loop_set_deadline(server->loop, deadline_ns);
}

static void step_requests(struct server *server, enum event_kind kind, const struct request_list *requests)
{
    struct event event = {.kind = kind, .requests = *requests};
    if (requests->count > 0)
        step(server, &event);
}

/* ---- callbacks of the loop ---- */

static void on_wake(void *context)
{
    struct server *server = context;
    struct batch *batch;
    while ((batch = compute_take(server->compute)) != NULL) {
        if (batch->status != STATUS_OK)
            log_warn("batch_failed", log_int("rows", batch->engine.rows), log_str("status", status_name(batch->status)),
                     log_str("message", batch->err.message));
        step(server, &(struct event){.kind = EVENT_BATCH, .batch = batch});
    }
    struct request_list done[PREP_KINDS] = {{0}};
    prep_take(server->prep, done);
    step_requests(server, EVENT_PREPARED, &done[PREP_PREPARE]);
    step_requests(server, EVENT_FORMATTED, &done[PREP_FORMAT]);
}

static void on_deadline(void *context)
{
    step(context, &(struct event){.kind = EVENT_TICK});
}

static void on_signal(void *context, int number)
{
    struct server *server = context;
    struct worker_stats stats = worker_stats(server->worker);
    log_info(server->draining ? "stopping" : "draining", log_str("signal", number == SIGTERM ? "TERM" : "INT"),
             log_int("held", stats.held));
    bool second = server->draining;
    server->draining = true;
    step(server, &(struct event){.kind = second ? EVENT_STOP : EVENT_DRAIN});
}

static void log_stats(const struct server *server, enum log_level level, const char *event)
{
    struct worker_stats s = worker_stats(server->worker);
    log_write(level, &(struct log_line){event,
                                        {log_int("received", (int64_t)s.received), log_int("done", (int64_t)s.done),
                                         log_int("errors", (int64_t)s.errors), log_int("dead", (int64_t)s.dead),
                                         log_int("deferred", (int64_t)s.deferred), log_int("late", (int64_t)s.late),
                                         log_int("reclaimed", (int64_t)s.reclaimed), log_int("held", s.held),
                                         log_int("batches", (int64_t)s.batches), log_int("rows", (int64_t)s.rows),
                                         log_int("tokens", (int64_t)s.tokens),
                                         log_int("computed_tokens", (int64_t)s.computed_tokens),
                                         log_int("rectangle_tokens", (int64_t)s.rectangle_tokens)}});
}

static void on_period(void *context)
{
    log_stats(context, LOG_DEBUG, "stats");
}

/* ---- callbacks of the queue ---- */

static void on_event(void *context, const struct event *event)
{
    struct server *server = context;
    if (event->kind == EVENT_CONNECTED && !server->was_ready) {
        server->was_ready = true; /* later connections are logged by the queue */
        log_info("ready", log_str("queue", server->config->queue), log_str("worker", queue_worker_name(server->queue)));
    }
    step(server, event);
}

static void on_fatal(void *context, const struct err *err)
{
    log_error("redis_refuses", log_str("status", status_name(err->status)), log_str("message", err->message));
    stop(context, err->status, false);
}

/* ---- opening, in the order in which parts need each other ---- */

static enum status open_address(struct server *server, struct err *err)
{
    return password_address(server->config, &server->address, err);
}

static enum status open_engine(struct server *server, struct err *err)
{
    enum status status = start_model(server->config, &server->model, err);
    return status == STATUS_OK ? start_engine(server->config, server->model, &server->engine, err) : status;
}

static enum status open_threads(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    struct loop_options loop = {.context = server,
                                .on_deadline = on_deadline,
                                .on_wake = on_wake,
                                .on_signal = on_signal,
                                .on_period = on_period,
                                .period_s = config->log_level == LOG_DEBUG ? (uint32_t)config->stats_s : 0};
    enum status status = loop_open(&loop, &server->loop, err);
    if (status != STATUS_OK)
        return status;
    int wake_fd = loop_wake_fd(server->loop);
    status = prep_open(server->model, (unsigned)config->prep_threads, wake_fd, &server->prep, err);
    if (status != STATUS_OK)
        return status;
    unsigned ahead = server->threads; /* the worker cuts one batch ahead for each thread */
    return compute_open(server->engine, server->threads, ahead, wake_fd, &server->compute, err);
}

static enum status open_worker(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    const struct model *model = server->model;
    struct worker_options options = {
        .rules = {.model_name = model->name,
                  .model_id = model->id,
                  .encoding = (enum encoding)config->default_encoding,
                  .dim = model->dim,
                  .max_tokens = model->max_tokens,
                  .max_text_bytes = (uint32_t)config->max_text_bytes,
                  .default_ttl_s = (uint32_t)config->default_ttl_s,
                  .max_ttl_s = (uint32_t)config->max_ttl_s,
                  .error_ttl_s = (uint32_t)config->error_ttl_s,
                  .default_max_attempts = (uint32_t)config->default_max_attempts,
                  .truncate = config->truncate},
        .layout = (enum batch_layout)config->layout,
        .max_batch_tokens = (uint32_t)config->max_batch_tokens,
        .max_batch_rows = (uint32_t)config->max_batch_rows,
        .window_ms = (uint32_t)config->window_ms,
        .window_fixed = config->window == WINDOW_FIXED,
        .engine_slots = server->threads,
        .credit_tokens = (uint32_t)config->credit_tokens,
        .credit_bytes = (uint64_t)config->credit_bytes,
        .lease_ms = (uint32_t)config->lease_ms,
        .read_block_ms = (uint32_t)config->read_block_ms,
        .backoff_ms = (uint32_t)config->backoff_ms,
        .backoff_cap_ms = (uint32_t)config->backoff_cap_ms,
        .shutdown_timeout_ms = (uint32_t)config->shutdown_timeout_ms,
        .seed = random_seed(),
    };
    return worker_open(&options, &server->worker, err);
}

static enum status open_queue(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    enum precision precision = engine_precision(server->engine);
    struct queue_options options = {
        .base = loop_base(server->loop),
        .address = &server->address,
        .name = config->queue,
        .model_name = server->model->name,
        .model_id = server->model->id,
        .revision = server->model->revision,
        .precision = precision == PRECISION_F32 ? NULL : precision_name(precision),
        .lease_ms = (uint32_t)config->lease_ms,
        .allow_eviction = config->allow_eviction,
        .seed = random_seed(),
        .context = server,
        .on_event = on_event,
        .on_fatal = on_fatal,
    };
    return queue_open(&options, &server->queue, err);
}

static void log_start(const struct server *server)
{
    const struct model *model = server->model;
    char address[ADDRESS_TEXT];
    address_print(&server->address, address);
    log_info("start", log_str("version", SLUICE_VERSION), log_str("model", model->name),
             log_str("revision", model->revision), log_int("dim", model->dim), log_int("max_tokens", model->max_tokens),
             log_str("backend", engine_backend(server->engine)),
             log_str("precision", precision_name(engine_precision(server->engine))),
             log_int("threads", server->threads), log_int("prep_threads", server->config->prep_threads),
             log_str("queue", server->config->queue), log_str("redis", address));
}

enum status server_open(struct server *server, const struct config *config, struct err *err)
{
    *server = (struct server){.config = config};
    server->threads = start_threads(config);
    enum status (*const steps[])(struct server *, struct err *) = {open_address, open_engine, open_threads, open_worker,
                                                                   open_queue};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0] && status == STATUS_OK; i++)
        status = steps[i](server, err);
    if (status == STATUS_OK)
        log_start(server);
    return status;
}

enum status server_run(struct server *server)
{
    queue_start(server->queue);
    loop_run(server->loop);
    log_stats(server, LOG_INFO, server->clean ? "drained" : "stopped");
    return server->ended_with;
}

/* Threads end first: from then on nobody but the worker refers to requests and batches, and it frees them. */
void server_close(struct server *server)
{
    prep_close(server->prep);
    compute_close(server->compute);
    queue_close(server->queue);
    worker_close(server->worker);
    actions_free(&server->actions);
    loop_close(server->loop);
    if (server->engine != NULL)
        engine_close(server->engine);
    if (server->model != NULL)
        model_close(server->model);
    address_free(&server->address);
}

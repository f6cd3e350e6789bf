#include "daemon/server.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "config/config.h"
#include "daemon/notify.h"

enum { DUMP_MAX = 1000 }; /* requests per queue that SIGUSR2 logs */

static void step_all(struct server *server, enum event_kind kind)
{
    for (size_t i = 0; i < server->queue_count; i++) {
        consumer_step(&server->consumers[i], &(struct event){.kind = kind});
    }
}

/* ---- after a step of any consumer ---- */

static void feed_compute(struct server *server)
{
    size_t who;
    struct batch *batch;
    while (
        (compute_has_room(server->compute, false) && (batch = shares_take(&server->shared.shares, &who))) ||
        (compute_has_room(server->compute, true) && (batch = shares_take(&server->shared.background_shares, &who)))) {
        consumer_starts(&server->consumers[who], batch);
        compute_put(server->compute, server->consumers[who].engine_number, &server->consumers[who], batch);
    }
}

static void look_at_ends(struct server *server)
{
    size_t stopped = 0;
    for (size_t i = 0; i < server->queue_count; i++) {
        const struct consumer *consumer = &server->consumers[i];
        stopped += consumer->stopped;
        if (consumer->stopped) { exclusive_end(&server->shared.exclusive, i, clock_now_ns()); }
        server->clean &= !consumer->stopped || consumer->clean;
        if (consumer->stopped && consumer->ended_with != STATUS_OK && !server->ending) {
            /* The daemon ends with its first queue, so that its supervisor sees why. The others give back what they
             * hold, or nothing when the device is lost. */
            server->ending = true;
            server->ended_with = consumer->ended_with;
            step_all(server, consumer->ended_with == STATUS_DEVICE_LOST ? EVENT_STOP : EVENT_DRAIN);
        }
    }
    if (stopped == server->queue_count) { loop_stop(server->loop); }
}

/* A stopped worker may have left a read unanswered, so it counts as at rest. */
static bool all_rest(const struct server *server)
{
    bool rest = true;
    for (size_t i = 0; i < server->queue_count; i++) {
        rest &= server->consumers[i].stopped || worker_rests(server->consumers[i].worker);
    }
    return rest;
}

/* Passes on turns: another worker may wait for the end of this step. That worker's step calls this function again. */
static void tell_turns(struct server *server)
{
    size_t who;
    struct event event = {.kind = EVENT_TURN};
    while (exclusive_next(&server->shared.exclusive, clock_now_ns(), all_rest(server), &who, &event.turn)) {
        consumer_step(&server->consumers[who], &event);
    }
}

/* The start is over when each queue has joined, or could not for now. So a supervisor that waits for the end of the
 * start sees that Redis refuses a daemon, and does not think that a daemon hangs which only waits for Redis. */
static void tell_ready(struct server *server)
{
    bool tried = !server->told_ready;
    for (size_t i = 0; tried && i < server->queue_count; i++) { tried = queue_tried(server->consumers[i].queue); }
    if (tried) { server->told_ready = notify_send("READY=1"); }
}

static void on_step(void *context)
{
    struct server *server = context;
    feed_compute(server);
    tell_turns(server);
    look_at_ends(server);
    tell_ready(server);
    uint64_t deadline_ns = exclusive_deadline(&server->shared.exclusive);
    for (size_t i = 0; i < server->queue_count; i++) {
        if (server->consumers[i].deadline_ns < deadline_ns) { deadline_ns = server->consumers[i].deadline_ns; }
    }
    loop_set_deadline(server->loop, deadline_ns);
}

/* ---- SIGHUP: the whole configuration is read and checked before any of it applies ---- */

/* Logs each setting of a queue that has changed and needs a restart. */
static void name_fixed(const struct config *now, const struct config *wanted)
{
    size_t count;
    const struct setting *table = config_settings(&count);
    for (size_t i = 0; i < count; i++) {
        if (!table[i].live && !setting_equal(&table[i], now, wanted)) {
            log_warn("reload_needs_restart", log_str("queue", now->queue), log_str("setting", table[i].key));
        }
    }
}

static const struct config *find_queue(const struct config *configs, size_t count, const char *queue)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(configs[i].queue, queue) == 0) { return &configs[i]; }
    }
    return NULL;
}

/* Gives each queue that is still in the configuration its new settings. */
static enum status take_over(struct server *server, const struct config *configs, size_t count, struct err *err)
{
    bool same_queues = count == server->queue_count;
    for (size_t i = 0; i < server->queue_count; i++) {
        struct consumer *consumer = &server->consumers[i];
        const struct config *wanted = find_queue(configs, count, consumer->config->queue);
        same_queues &= wanted != NULL;
        if (!wanted) { continue; }
        name_fixed(consumer->config, wanted);
        TRY(consumer_tune(consumer, wanted, err));
    }
    if (!same_queues) { log_warn("reload_needs_restart", log_str("setting", "queues")); }
    return STATUS_OK;
}

static void reload_config(struct server *server)
{
    struct config fresh;
    struct config *configs = NULL;
    size_t count = 0;
    struct err err;
    enum status status = config_reload(server->config, server->config_path, &fresh, &err);
    if (status == STATUS_OK) { status = config_split(&fresh, &configs, &count, &err); }
    if (status == STATUS_OK) { status = take_over(server, configs, count, &err); }
    if (status == STATUS_OK) {
        log_info("reloaded", log_str("file", server->config_path));
        log_set_level((enum log_level)fresh.log_level);
    } else {
        log_error("reload_refused", log_str("message", err.message),
                  log_str("effect", "the settings stay as they were"));
    }
    for (size_t i = 0; i < count; i++) { config_free(&configs[i]); }
    free(configs);
    config_free(&fresh);
}

/* ---- callbacks of the loop ---- */

/* The queues learn of a lost device before they get the batches that failed with it. */
static void look_at_devices(struct server *server)
{
    struct compute_state state = compute_state(server->compute);
    for (; server->devices_lost < state.devices_lost; server->devices_lost++) {
        for (size_t i = 0; i < server->queue_count; i++) {
            if (server->consumers[i].writer) { continue; }
            consumer_step(&server->consumers[i],
                          &(struct event){.kind = EVENT_DEVICE_LOST,
                                          .left = {.engine_slots = state.threads, .batches_out = state.batches}});
        }
    }
}

/* Logs how many rows f16 could not hold: the sums, at most once a second while batches come back, and once at the
 * end. */
static void log_rows_again(struct server *server, bool at_once)
{
    struct engine_counters sum = devices_counters(&server->models.devices);
    uint64_t rows = sum.rows_bf16 + sum.rows_f32 + sum.rows_lost, now_ns = clock_now_ns();
    bool just_told = server->told_ns != 0 && now_ns < server->told_ns + NS_PER_S;
    if (rows == server->rows_again || (just_told && !at_once)) { return; }
    server->rows_again = rows;
    server->told_ns = now_ns;
    log_warn("rows_not_finite", log_int("finite_in_bf16", (int64_t)sum.rows_bf16),
             log_int("finite_in_f32", (int64_t)sum.rows_f32), log_int("never_finite", (int64_t)sum.rows_lost));
}

static void log_failed(const struct consumer *consumer, const struct batch *batch)
{
    log_warn("batch_failed", log_str("queue", consumer->config->queue),
             log_str("worker", queue_worker_name(consumer->queue)), log_int("rows", batch->engine.rows),
             log_str("status", status_name(batch->status)), log_str("message", batch->err.message));
}

/* Takes the texts of a queue that are written. Those that were dropped, or whose time is over, are no failures. */
static void take_texts(struct consumer *consumer)
{
    struct batch *batch;
    while ((batch = writer_take(consumer->writer))) {
        bool ended = batch->status == STATUS_UNAVAILABLE || batch->status == STATUS_TIMEOUT;
        if (batch->status != STATUS_OK && !ended) { log_failed(consumer, batch); }
        queue_end_text(consumer->queue, batch);
        consumer_step(consumer, &(struct event){.kind = EVENT_BATCH, .batch = batch});
    }
}

static void on_wake(void *context)
{
    struct server *server = context;
    struct batch *batch;
    void *owner;
    for (size_t i = 0; i < server->queue_count; i++) {
        if (server->consumers[i].writer) { take_texts(&server->consumers[i]); }
    }
    while ((batch = compute_take(server->compute, &owner))) {
        look_at_devices(server);
        if (batch->status != STATUS_OK) { log_failed(owner, batch); }
        /* The queue of this batch steps first and submits its next batch. Otherwise another queue's batch would be
         * taken, whatever the weights. */
        consumer_step(owner, &(struct event){.kind = EVENT_BATCH, .batch = batch});
    }
    look_at_devices(server);
    log_rows_again(server, false);
    prep_take(server->shared.prep);
    for (size_t i = 0; i < server->queue_count; i++) { consumer_take_prepared(&server->consumers[i]); }
    monitor_take(server->monitor);
}

static void on_deadline(void *context)
{
    struct server *server = context;
    uint64_t now_ns = clock_now_ns();
    for (size_t i = 0; i < server->queue_count; i++) {
        if (server->consumers[i].deadline_ns <= now_ns) {
            consumer_step(&server->consumers[i], &(struct event){.kind = EVENT_TICK});
        }
    }
    on_step(server); /* sets the timer again if it was early */
}

static void drain_workers(struct server *server, int number)
{
    size_t held = 0;
    for (size_t i = 0; i < server->queue_count; i++) { held += worker_stats(server->consumers[i].worker).held; }
    log_info(server->draining ? "stopping" : "draining", log_str("signal", number == SIGTERM ? "TERM" : "INT"),
             log_int("held", (int64_t)held));
    bool second = server->draining;
    server->draining = true;
    (void)notify_send("STOPPING=1");
    step_all(server, second ? EVENT_STOP : EVENT_DRAIN);
}

static void on_signal(void *context, int number)
{
    struct server *server = context;
    switch (number) {
    case SIGTSTP:
        log_info("quiet", log_str("signal", "TSTP"));
        step_all(server, EVENT_QUIET);
        break;
    case SIGCONT:
        log_info("resumed", log_str("signal", "CONT"));
        step_all(server, EVENT_RESUME);
        break;
    case SIGUSR2:
        for (size_t i = 0; i < server->queue_count; i++) { consumer_log_held(&server->consumers[i], DUMP_MAX); }
        break;
    case SIGHUP:
        reload_config(server);
        break;
    default:
        drain_workers(server, number);
    }
}

static void on_second(void *context)
{
    struct server *server = context;
    monitor_second(server->monitor);
    tell_ready(server);
}

static void on_period(void *context)
{
    struct server *server = context;
    log_rows_again(server, true);
    for (size_t i = 0; i < server->queue_count; i++) { consumer_log_stats(&server->consumers[i], LOG_DEBUG, "stats"); }
}

/* ---- opening, in the order in which parts need each other ---- */

static enum status open_configs(struct server *server, struct err *err)
{
    TRY(config_address(server->config, &server->shared.address, err));
    TRY(config_split(server->config, &server->configs, &server->queue_count, err));
    server->consumers = calloc(server->queue_count, sizeof(struct consumer));
    if (!server->consumers) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu queues", server->queue_count); }
    return STATUS_OK;
}

static enum status open_models(struct server *server, struct err *err)
{
    TRY(models_open(&server->models, &server->configs[0], (unsigned)server->queue_count, err));
    for (size_t i = 0; i < server->queue_count; i++) {
        struct consumer *consumer = &server->consumers[i];
        consumer->config = &server->configs[i];
        consumer->number = i;
        TRY(models_find(&server->models, consumer->config, &consumer->engine_number, err));
        consumer->model = server->models.items[consumer->engine_number].model;
    }
    for (size_t i = 0; i < server->queue_count; i++) {
        struct consumer *consumer = &server->consumers[i];
        consumer->engine = devices_engine(&server->models.devices, consumer->engine_number);
        consumer->cost = &server->models.items[consumer->engine_number].cost;
    }
    return STATUS_OK;
}

static enum status open_threads(struct server *server, struct err *err)
{
    const struct config *config = server->config;
    struct loop_options loop = {.context = server,
                                .on_deadline = on_deadline,
                                .on_wake = on_wake,
                                .on_signal = on_signal,
                                .on_second = on_second,
                                .on_period = on_period,
                                .period_s = (uint32_t)config->stats_s};
    TRY(loop_open(&loop, &server->loop, err));
    int wake_fd = loop_wake_fd(server->loop);
    TRY(prep_open((unsigned)config->prep_threads, wake_fd, &server->shared.prep, err));
    struct compute_options compute = compute_configured(config, &server->models.devices, server->models.count);
    compute.wake_fd = wake_fd;
    TRY(compute_open(&compute, &server->compute, err));
    server->devices_lost = compute_state(server->compute).devices_lost;
    return STATUS_OK;
}

static enum status open_traces(struct server *server, struct err *err)
{
    const char *path = server->config->traces;
    return path && path[0] != '\0' ? traces_open(path, &server->shared.traces, err) : STATUS_OK;
}

static enum status open_consumers(struct server *server, struct err *err)
{
    struct shared *shared = &server->shared;
    shared->base = loop_base(server->loop);
    shared->capacity = compute_state(server->compute);
    shared->queues = server->queue_count;
    shared->context = server;
    shared->on_step = on_step;
    TRY(shares_open(&shared->shares, server->queue_count, shared->capacity.batches, err));
    TRY(shares_open(&shared->background_shares, server->queue_count, shared->capacity.batches, err));
    shared->exclusive = (struct exclusive){.workers = calloc(server->queue_count, sizeof(struct exclusive_worker)),
                                           .count = server->queue_count};
    if (!shared->exclusive.workers) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu queues", server->queue_count);
    }
    for (size_t i = 0; i < server->queue_count; i++) {
        struct consumer *consumer = &server->consumers[i];
        if (consumer->model->generates) {
            TRY(writer_open(devices_engine(&server->models.devices, consumer->engine_number), consumer->model,
                            config_threads(consumer->config), loop_wake_fd(server->loop), &consumer->writer, err));
        }
        TRY(consumer_open(consumer, shared, err));
    }
    return STATUS_OK;
}

static enum status open_monitor(struct server *server, struct err *err)
{
    struct monitor_options options = {.config = server->config,
                                      .loop = server->loop,
                                      .shared = &server->shared,
                                      .consumers = server->consumers,
                                      .queue_count = server->queue_count,
                                      .models = &server->models,
                                      .compute = server->compute,
                                      .started_ms = server->started_ms};
    return monitor_open(&options, &server->monitor, err);
}

static void log_start(const struct server *server)
{
    char address[ADDRESS_TEXT];
    const struct engine *engine = server->consumers[0].engine; /* all queues have the same backend */
    if (engine_passed_over(engine)[0] != '\0') {
        log_info("better_backend_passed_over", log_str("uses", engine_backend(engine)),
                 log_str("message", engine_passed_over(engine)));
    }
    address_print(&server->shared.address, address);
    for (size_t i = 0; i < server->queue_count; i++) {
        const struct consumer *consumer = &server->consumers[i];
        const struct model *model = consumer->model;
        log_info("start", log_str("version", sluice_version), log_str("model", model->name),
                 log_str("revision", model->revision), log_int("dim", model->dim),
                 log_int("max_tokens", model->max_tokens), log_str("backend", engine_backend(consumer->engine)),
                 log_str("precision", precision_name(engine_precision(consumer->engine))),
                 log_int("devices", server->shared.capacity.devices),
                 log_int("threads", server->shared.capacity.threads),
                 log_int("prep_threads", server->config->prep_threads), log_str("queue", consumer->config->queue),
                 log_int("weight", consumer->config->weight), log_str("redis", address),
                 log_str("device", engine_device(consumer->engine)));
    }
}

enum status server_open(struct server *server, const struct config *config, const char *config_path, struct err *err)
{
    *server =
        (struct server){.config = config, .config_path = config_path, .clean = true, .started_ms = clock_unix_ms()};
    enum status (*const steps[])(struct server *, struct err *) = {open_configs, open_models,    open_threads,
                                                                   open_traces,  open_consumers, open_monitor};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) { TRY(steps[i](server, err)); }
    log_start(server);
    return STATUS_OK;
}

enum status server_run(struct server *server)
{
    for (size_t i = 0; i < server->queue_count; i++) { queue_start(server->consumers[i].queue); }
    loop_run(server->loop);
    log_rows_again(server, true);
    for (size_t i = 0; i < server->queue_count; i++) {
        consumer_log_stats(&server->consumers[i], LOG_INFO, server->consumers[i].clean ? "drained" : "stopped");
    }
    return server->ended_with;
}

/* Threads end first. Then only the workers refer to requests and batches, and free them. */
void server_close(struct server *server)
{
    monitor_close(server->monitor);
    prep_close(server->shared.prep);
    compute_close(server->compute);
    for (size_t i = 0; server->consumers != NULL && i < server->queue_count; i++) {
        writer_close(server->consumers[i].writer);
    }
    for (size_t i = 0; server->consumers != NULL && i < server->queue_count; i++) {
        consumer_close(&server->consumers[i]);
    }
    traces_close(server->shared.traces);
    free(server->consumers);
    free(server->shared.exclusive.workers);
    shares_close(&server->shared.shares);
    shares_close(&server->shared.background_shares);
    loop_close(server->loop);
    models_close(&server->models);
    for (size_t i = 0; i < server->queue_count; i++) { config_free(&server->configs[i]); }
    free(server->configs);
    address_free(&server->shared.address);
}

#include "daemon/consumer.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"

static uint64_t random_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed) { seed = clock_now_ns(); }
    return seed;
}

/* ---- events in, actions out ---- */

static void stop_consumer(struct consumer *self, enum status status, bool clean)
{
    self->stopped = true;
    self->clean = clean;
    self->ended_with = status != STATUS_OK || clean ? status : STATUS_TIMEOUT;
    self->deadline_ns = UINT64_MAX;
}

/* A text with a stream of tokens begins when Redis has said how much of it was sent before: on_text. */
static void submit_text(struct consumer *self, struct batch *batch)
{
    if (batch->rows[0]->request->writing->stream) {
        batch->watched_ns = 0;
        queue_begin_text(self->queue, batch);
    } else {
        consumer_starts(self, batch);
        writer_put(self->writer, batch);
    }
}

static void execute_action(struct consumer *self, struct action *action)
{
    switch (action->kind) {
    case ACTION_PREPARE:
        prep_put(self->shared->prep, &self->client, PREP_PREPARE, &action->requests);
        break;
    case ACTION_FORMAT:
        prep_put(self->shared->prep, &self->client, PREP_FORMAT, &action->requests);
        break;
    case ACTION_SUBMIT:
        if (self->writer) {
            submit_text(self, action->batch);
            break;
        }
        action->batch->watched_ns = 0; /* the time in which it waits for other queues does not count */
        shares_put(action->batch->background ? &self->shared->background_shares : &self->shared->shares, self->number,
                   action->batch);
        break;
    case ACTION_EXIT:
        if (!action->exit.clean && action->exit.status == STATUS_TIMEOUT) {
            /* A batch does not come back: only a new process helps, whatever the cause. */
            log_error("compute_hangs", log_str("queue", self->config->queue),
                      log_str("worker", queue_worker_name(self->queue)),
                      log_int("compute_timeout_ms", self->config->compute_timeout_ms),
                      log_int("batches", worker_stats(self->worker).computing),
                      log_str("message", "a batch did not come back in time; this process ends, and others take over"));
            stop_consumer(self, STATUS_DEVICE_LOST, false);
        } else {
            stop_consumer(self, action->exit.status, action->exit.clean);
        }
        break;
    case ACTION_EXCLUSIVE:
        exclusive_ask(&self->shared->exclusive, self->number);
        break;
    case ACTION_TOGETHER:
        exclusive_end(&self->shared->exclusive, self->number, clock_now_ns());
        break;
    default:
        queue_execute(self->queue, action);
    }
}

/* Writes the spans of an event. Call it before the step, which frees the event's requests and batch. */
static void trace_request(const struct consumer *self, const struct event *event)
{
    struct traces *traces = self->shared->traces;
    struct traces_of of = {self->config->queue, queue_worker_name(self->queue), self->model->name};
    if (event->kind == EVENT_BATCH) {
        traces_batch(traces, &of, event->batch);
    } else if (event->kind == EVENT_SETTLED && !event->failed) {
        for (const struct request *request = event->requests.first; request != NULL; request = request->next) {
            traces_request(traces, &of, request);
        }
    }
}

/* Executing an action never calls this function again. */
void consumer_step(struct consumer *self, const struct event *event)
{
    if (self->stopped) { return; }
    if (self->shared->traces) { trace_request(self, event); }
    self->actions.count = 0;
    self->deadline_ns = worker_step(self->worker, event, clock_now_ns(), &self->actions);
    for (size_t i = 0; i < self->actions.count; i++) { execute_action(self, &self->actions.items[i]); }
    self->shared->on_step(self->shared->context);
}

void consumer_starts(struct consumer *self, struct batch *batch)
{
    uint64_t now_ns = clock_now_ns(), ends_ns = now_ns + self->compute_timeout_ns;
    batch->watched_ns = now_ns;
    if (self->compute_timeout_ns > 0 && !self->stopped && ends_ns < self->deadline_ns) { self->deadline_ns = ends_ns; }
}

void consumer_take_prepared(struct consumer *self)
{
    static const enum event_kind kinds[PREP_KINDS] = {[PREP_PREPARE] = EVENT_PREPARED, [PREP_FORMAT] = EVENT_FORMATTED};
    for (int i = 0; i < PREP_KINDS; i++) {
        struct event event = {.kind = kinds[i], .requests = self->client.done[i]};
        self->client.done[i] = (struct request_list){0};
        if (event.requests.count > 0) { consumer_step(self, &event); }
    }
}

/* ---- callbacks of the queue ---- */

static void on_event(void *context, const struct event *event)
{
    struct consumer *self = context;
    bool own = event->kind == EVENT_ENTRIES && event->entries.source == READ_OWN;
    uint64_t strays = own ? worker_stats(self->worker).strays : 0;
    if (event->kind == EVENT_CONNECTED && !self->was_ready) {
        self->was_ready = true; /* the queue logs later connections */
        log_info("ready", log_str("queue", self->config->queue), log_str("worker", queue_worker_name(self->queue)));
    }
    consumer_step(self, event);
    strays = own ? worker_stats(self->worker).strays - strays : 0;
    if (strays > 0) {
        log_warn("strays_found", log_str("queue", self->config->queue),
                 log_str("worker", queue_worker_name(self->queue)), log_int("entries", (int64_t)strays),
                 log_str("reason", "entries were pending in this worker's name that it did not hold"));
    }
}

static void on_text(void *context, struct batch *batch)
{
    struct consumer *self = context;
    consumer_starts(self, batch);
    writer_put(self->writer, batch);
    self->shared->on_step(self->shared->context);
}

static void on_fatal(void *context, const struct err *err)
{
    struct consumer *self = context;
    log_error("redis_refuses", log_str("queue", self->config->queue), log_str("worker", queue_worker_name(self->queue)),
              log_str("status", status_name(err->status)), log_str("message", err->message));
    stop_consumer(self, err->status, false);
    self->shared->on_step(self->shared->context);
}

/* ---- open and close ---- */

struct worker_options consumer_options(const struct config *config, const struct model *model,
                                       const struct engine *engine, const struct cost *cost,
                                       struct compute_state capacity)
{
    struct batch_size batch = devices_batch_size(config, engine);
    return (struct worker_options){
        .rules = {.model_name = model->name,
                  .model_id = model->id,
                  .encoding = (enum encoding)config->default_encoding,
                  .head = &model->head,
                  .dim = model->dim,
                  .max_tokens = model->max_tokens,
                  .max_text_bytes = (uint32_t)config->max_text_bytes,
                  .max_inputs = (uint32_t)config->max_inputs,
                  .default_ttl_s = (uint32_t)config->default_ttl_s,
                  .max_ttl_s = (uint32_t)config->max_ttl_s,
                  .error_ttl_s = (uint32_t)config->error_ttl_s,
                  .default_max_attempts = (uint32_t)config->default_max_attempts,
                  .truncate = config->truncate,
                  .into_keys = config->into_keys,
                  .normalize = model->normalize,
                  .prompts = model->prompts,
                  .prompt_count = model->prompt_count,
                  .no_prompt = !model->pool_prompt},
        .layout = (enum batch_layout)config->layout,
        .max_batch_tokens = batch.tokens,
        .max_batch_rows = batch.rows,
        .cost = *cost,
        .max_batch_ms = (uint32_t)config->max_batch_ms,
        .target_p99_ms = (uint32_t)config->target_p99_ms,
        .window_ms = (uint32_t)config->window_ms,
        .window_fixed = config->window == WINDOW_FIXED,
        .devices = capacity.devices + capacity.devices_lost,
        .devices_lost = capacity.devices_lost,
        .engine_slots = capacity.threads,
        .background_slots = capacity.background,
        .batches_out = capacity.batches,
        .lease_ms = (uint32_t)config->lease_ms,
        .backoff_ms = (uint32_t)config->backoff_ms,
        .backoff_cap_ms = (uint32_t)config->backoff_cap_ms,
        .shutdown_timeout_ms = (uint32_t)config->shutdown_timeout_ms,
        .compute_timeout_ms = (uint32_t)config->compute_timeout_ms,
        .queues = 1,
    };
}

static struct worker_options options_of(const struct consumer *self, const struct config *config)
{
    struct worker_options options =
        consumer_options(config, self->model, self->engine, self->cost, self->shared->capacity);
    options.rules.into_keys = self->config->into_keys; /* the string outlives the worker */
    options.queues = (uint32_t)self->shared->queues;
    if (self->writer) { /* a batch is one text */
        options.max_batch_rows = 1;
        options.max_batch_tokens = self->model->max_tokens;
        options.layout = LAYOUT_PACKED;
        options.devices = 1;
        options.devices_lost = options.background_slots = 0;
        options.engine_slots = options.batches_out = writer_texts();
    }
    options.seed = random_seed();
    return options;
}

/* Writes the field `model_facts` of docs/protocol.md. */
static void put_facts(struct buffer *to, const struct model *model, const char *engine)
{
    buffer_json(to, "{'tasks':[");
    for (int task = 0; task < TASK_COUNT; task++) {
        if (head_does(&model->head, (enum request_task)task)) { buffer_json(to, ",%s", task_names[task]); }
    }
    buffer_json(to, "],'dim':%u,'max_tokens':%u,'engine':%s,'prompts':[", model->dim, model->max_tokens, engine);
    for (uint32_t i = 0; i < model->prompt_count && model->pool_prompt; i++) {
        buffer_json(to, ",'%s'", model->prompts[i].name);
    }
    buffer_append(to, "]}", sizeof "]}");
}

static enum status open_queue(struct consumer *self, struct err *err)
{
    engine_kind(self->engine, self->kind);
    put_facts(&self->facts, self->model, self->kind);
    if (!buffer_ok(&self->facts)) { return err_set(err, STATUS_NO_MEMORY, "no memory for a queue"); }
    const struct config *config = self->config;
    const struct engine_int8 *int8 = engine_int8(self->engine);
    struct queue_options options = {
        .base = self->shared->base,
        .address = &self->shared->address,
        .name = config->queue,
        .model_name = self->model->name,
        .model_id = self->model->id,
        .model_facts = self->facts.data,
        .revision = self->model->revision,
        .precision = precision_name(engine_precision(self->engine)),
        .engine = self->kind,
        .int8_products = int8 ? int8->total : 0,
        .products = int8 ? int8->of : 0,
        .ttl_s = (uint32_t)config->default_ttl_s,
        .lease_ms = (uint32_t)config->lease_ms,
        .allow_eviction = config->allow_eviction,
        .seed = random_seed(),
        .look = config->http && config->http[0] != '\0',
        .context = self,
        .on_event = on_event,
        .on_fatal = on_fatal,
        .on_text = on_text,
    };
    return queue_open(&options, &self->queue, err);
}

enum status consumer_open(struct consumer *self, struct shared *shared, struct err *err)
{
    self->shared = shared;
    self->deadline_ns = UINT64_MAX;
    struct shares *const all[] = {&shared->shares, &shared->background_shares};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct share *share = &all[i]->items[self->number];
        share->weight = (uint32_t)self->config->weight;
        share->token_cost = models_token_cost(self->model);
    }
    prep_add(shared->prep, &self->client, self->model);
    struct worker_options options = options_of(self, self->config);
    self->compute_timeout_ns = options.compute_timeout_ms * NS_PER_MS;
    TRY(worker_open(&options, &self->worker, err));
    return open_queue(self, err);
}

void consumer_close(struct consumer *self)
{
    queue_close(self->queue);
    worker_close(self->worker);
    actions_free(&self->actions);
    buffer_free(&self->facts);
}

enum status consumer_tune(struct consumer *self, const struct config *config, struct err *err)
{
    struct worker_options options = options_of(self, config);
    enum status status = worker_tune(self->worker, &options, err);
    if (status != STATUS_OK) { return status; }
    self->compute_timeout_ns = options.compute_timeout_ms * NS_PER_MS;
    consumer_step(self, &(struct event){.kind = EVENT_TICK});
    return STATUS_OK;
}

/* ---- its log lines ---- */

void consumer_log_stats(const struct consumer *self, enum log_level level, const char *event)
{
    struct worker_stats s = worker_stats(self->worker);
    log_write(level, &(struct log_line){event,
                                        {log_str("queue", self->config->queue),
#define COUNTER(name, help) log_int(#name, (int64_t)s.name),
#include "schedule/counters.inc"
                                         log_int("held", s.held), log_int("busy_ms", (int64_t)(s.busy_ns / NS_PER_MS)),
                                         log_int("devices", s.devices), log_int("devices_lost", s.devices_lost),
                                         log_int("cost_error_percent", (int64_t)(100 * s.cost_error + 0.5)),
                                         log_int("p99_ms", s.p99_ms)}});
}

static void log_held(void *context, const struct request *request)
{
    static const char *const states[] = {
        [REQUEST_NEW] = "new",
        [REQUEST_PREPARING] = "preparing",
        [REQUEST_WAITING] = "waiting",
        [REQUEST_COMPUTING] = "computing",
        [REQUEST_FORMATTING] = "formatting",
        [REQUEST_READY] = "ready",
        [REQUEST_SETTLING] = "settling",
        [REQUEST_LEAVING] = "leaving",
    };
    const struct consumer *self = context;
    uint64_t age_ns = clock_now_ns() - request->lifetime.received_ns;
    log_info("held", log_str("queue", self->config->queue), log_str("name", request->identity.name),
             log_str("id", request->identity.id), log_str("state", states[request->lifetime.state]),
             log_int("age_ms", (int64_t)(age_ns / NS_PER_MS)), log_int("attempt", request->retry.attempt),
             log_int("quarantined", request->retry.quarantined),
             log_int("quarantine_runs", request->retry.quarantine_runs), log_int("tokens", request->tokens),
             log_int("bytes", (int64_t)request->bytes));
}

void consumer_log_held(struct consumer *self, uint32_t most)
{
    struct worker_stats stats = worker_stats(self->worker);
    log_info("in_flight", log_str("queue", self->config->queue), log_str("worker", queue_worker_name(self->queue)),
             log_int("held", stats.held), log_int("waiting", stats.waiting), log_int("batches", stats.computing),
             log_int("tokens", stats.held_tokens), log_int("bytes", (int64_t)stats.held_bytes),
             log_int("shown", stats.held < most ? stats.held : most));
    (void)worker_each_held(self->worker, most, self, log_held);
}

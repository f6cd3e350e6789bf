/* The step function: an event goes to its handler, then every stage advances as far as it can, then the next deadline
 * is computed. For the stages see worker_internal.h. */
#include "schedule/worker.h"

#include <stdlib.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* Checks the options. Errors: STATUS_BAD_INPUT, which names the first bad one. */
static enum status worker_check(const struct worker_options *options, struct err *err)
{
    const struct {
        bool ok;
        const char *name;
    } checks[] = {
        {options->max_batch_tokens > 0, "max_batch_tokens"},
        {options->max_batch_rows > 0 && options->max_batch_rows <= WINDOW_BATCH_ROWS, "max_batch_rows"},
        {options->devices > options->devices_lost, "devices"},
        {options->engine_slots > 0, "engine_slots"},
        {options->batches_out >= options->engine_slots, "batches_out"},
        {options->lease_ms >= 3, "lease_ms"},
        {options->backoff_ms > 0 && options->backoff_cap_ms >= options->backoff_ms, "backoff_ms"},
        {options->rules.dim > 0 && options->rules.max_tokens > 0, "rules"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        if (!checks[i].ok) { return err_set(err, STATUS_BAD_INPUT, "worker: %s is out of range", checks[i].name); }
    }
    return STATUS_OK;
}

enum { STARVED_MS = 10 }; /* after an allocation failed */

static void open_histograms(struct worker_histograms *histograms)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        histograms->total[c].bounds = histograms->queue[c].bounds = histograms->prepare[c].bounds =
            histograms->window[c].bounds = histograms->compute[c].bounds = &histogram_times;
    }
    histograms->batch_rows.bounds = histograms->batch_tokens.bounds = &histogram_sizes;
}

enum status worker_open(const struct worker_options *options, struct worker **out, struct err *err)
{
    TRY(worker_check(options, err));
    struct worker *worker = calloc(1, sizeof(*worker));
    if (!worker || held_open(&worker->held, err)) {
        free(worker);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the worker");
    }
    worker->options = *options;
    worker->random = options->seed;
    open_histograms(&worker->histograms);
    pace_open(worker);
    read_open(worker);
    own_open(worker);
    limits_open(worker);
    memory_open(worker);
    settle_open(worker);
    leave_open(worker);
    worker->stats.devices_lost = options->devices_lost;
    worker->wakes_at = NEVER;
    *out = worker;
    return STATUS_OK;
}

void worker_close(struct worker *worker)
{
    if (!worker) { return; }
    batch_list_free(&worker->cut.running);
    batch_list_free(&worker->rows.halves);
    window_close(&worker->window);
    held_close(&worker->held);
    free(worker);
}

struct action *worker_act(struct worker *worker, enum action_kind kind)
{
    struct actions *actions = worker->actions;
    if (actions->count == actions->capacity) {
        size_t capacity = actions->capacity == 0 ? 32 : actions->capacity * 2;
        struct action *items = realloc(actions->items, capacity * sizeof(*items));
        if (!items) {
            worker->starved = true;
            return NULL;
        }
        actions->items = items;
        actions->capacity = capacity;
    }
    struct action *action = &actions->items[actions->count++];
    *action = (struct action){.kind = kind};
    return action;
}

void worker_take_back(struct worker *worker)
{
    worker->actions->count--;
}

void worker_starve(struct worker *worker)
{
    worker->starved = true;
}

void actions_free(struct actions *actions)
{
    free(actions->items);
    *actions = (struct actions){0};
}

bool worker_may_call(const struct worker *worker)
{
    return worker->connected && worker->now >= worker->quiet_until;
}

void worker_call_failed(struct worker *worker)
{
    worker->quiet_until = worker->now + CALL_FAILED_PAUSE_MS * NS_PER_MS;
}

bool worker_takes_more(const struct worker *worker)
{
    return !worker->leave.draining && !worker->chores.lease_lost;
}

void worker_weigh(double *mean, double value)
{
    *mean += (value - *mean) / 32;
}

bool worker_claims(const struct worker *worker)
{
    bool let = worker->pulse.known && !worker->pulse.last.paused && !worker->quiet;
    return let && worker->quarantine.turn == TURN_TOGETHER && worker_takes_more(worker);
}

bool worker_keeps_house(const struct worker *worker)
{
    return worker->pulse.last.housekeeper && worker_claims(worker);
}

uint32_t worker_devices(const struct worker *worker)
{
    uint32_t devices = worker->options.devices, lost = worker->stats.devices_lost;
    return lost < devices ? devices - lost : 1;
}

bool worker_is_deep(const struct worker *worker)
{
    return worker->options.batches_out > 2 * worker->options.engine_slots;
}

uint64_t worker_after_ms(const struct worker *worker, uint64_t ms)
{
    return worker->now + ms * NS_PER_MS;
}

void worker_clock(struct worker *worker, uint64_t redis_ms)
{
    worker->redis_ms = redis_ms;
    worker->redis_ms_at = worker->now;
}

uint64_t worker_redis_ms(const struct worker *worker)
{
    return worker->redis_ms == 0 ? 0 : worker->redis_ms + (worker->now - worker->redis_ms_at) / NS_PER_MS;
}

uint64_t worker_ms_until(const struct worker *worker, uint64_t at_ms)
{
    uint64_t now_ms = worker_redis_ms(worker);
    return now_ms != 0 && at_ms > now_ms ? at_ms - now_ms : 0;
}

static void on_connected(struct worker *worker, const struct event *event)
{
    worker->connected = true;
    worker_clock(worker, event->connected.redis_ms);
    worker->quiet_until = 0;
    limits_connected(worker, event->connected.loss);
    settle_connected(worker, event->connected.loss);
    own_connected(worker);
    chores_connected(worker);
    pulse_connected(worker);
}

static void on_disconnected(struct worker *worker, const struct event *event)
{
    (void)event;
    worker->connected = false;
}

void worker_disconnected(struct worker *worker)
{
    worker->connected = false;
}

/* If no device is left, the worker only has to end, but it still divides by these. */
static void on_device_lost(struct worker *worker, const struct event *event)
{
    struct worker_options *options = &worker->options;
    options->engine_slots = event->left.engine_slots > 0 ? event->left.engine_slots : 1;
    options->batches_out = event->left.batches_out > 0 ? event->left.batches_out : 1;
    worker->stats.devices_lost++;
    pace_second(worker);
}

void worker_obey(struct worker *worker, enum event_kind kind)
{
    if (kind == EVENT_QUIET || kind == EVENT_RESUME) {
        worker->quiet = kind == EVENT_QUIET;
    } else if (kind == EVENT_DRAIN || kind == EVENT_STOP) {
        leave_drain(worker, kind == EVENT_DRAIN ? worker->options.shutdown_timeout_ms : 0, STATUS_OK);
    }
}

static void on_command(struct worker *worker, const struct event *event)
{
    worker_obey(worker, event->kind);
}

static void (*const handlers[])(struct worker *, const struct event *) = {
    [EVENT_CONNECTED] = on_connected, [EVENT_DISCONNECTED] = on_disconnected,
    [EVENT_ENTRIES] = read_entries,   [EVENT_PREPARED] = prep_queue_tokenised,
    [EVENT_BATCH] = cut_returned,     [EVENT_FORMATTED] = prep_queue_formatted,
    [EVENT_SETTLED] = settle_settled, [EVENT_RUN_RECORDED] = quarantine_recorded,
    [EVENT_TURN] = quarantine_turn,   [EVENT_DEVICE_LOST] = on_device_lost,
    [EVENT_LEASE] = chores_lease,     [EVENT_PROMOTED] = chores_promoted,
    [EVENT_MENDED] = chores_mended,   [EVENT_PULSE] = pulse_answered,
    [EVENT_OWN_LISTED] = own_listed,  [EVENT_RELEASED] = leave_released,
    [EVENT_QUIET] = on_command,       [EVENT_RESUME] = on_command,
    [EVENT_DRAIN] = on_command,       [EVENT_STOP] = on_command,
    [EVENT_TICK] = on_command,
};

/* The earliest deadline after now. An overdue one waits for an event, not for the clock. */
static uint64_t next_deadline(const struct worker *worker)
{
    uint64_t next = NEVER;
    uint64_t always[] = {watch_deadline(worker), worker->leave.drain_ends};
    uint64_t linked[] = {worker->quiet_until,
                         worker->chores.renew_at,
                         worker->chores.promote_at,
                         worker->chores.reclaim.at,
                         worker->chores.sweep.at,
                         pulse_due(worker),
                         worker->own.at,
                         worker->settle.refused_at,
                         worker->chores.mend_at,
                         worker->read.unblock_at,
                         fairness_deadline(worker)};
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++) {
        if (always[i] > worker->now && always[i] < next) { next = always[i]; }
    }
    for (size_t i = 0; worker->connected && i < sizeof(linked) / sizeof(linked[0]); i++) {
        if (linked[i] > worker->now && linked[i] < next) { next = linked[i]; }
    }
    if (worker->starved && worker->now + STARVED_MS * NS_PER_MS < next) { next = worker->now + STARVED_MS * NS_PER_MS; }
    return next;
}

/* Sends, in this order: formats, halves of failed batches, suspects or new batches, and texts. */
static void advance_work(struct worker *worker)
{
    if (watch_ends(worker)) { return; }
    prep_queue_send_formats(worker);
    rows_advance(worker);
    watch_advance(worker);
    if (quarantine_advance(worker)) { return; }
    cut_advance(worker);
    prep_queue_advance(worker);
}

uint64_t worker_step(struct worker *worker, const struct event *event, uint64_t now_ns, struct actions *actions)
{
    if (worker->leave.exited) { return NEVER; }
    worker->now = now_ns;
    worker->actions = actions;
    worker->starved = false;
    watch_slept(worker, now_ns > worker->wakes_at ? now_ns - worker->wakes_at : 0);
    handlers[event->kind](worker, event);
    static void (*const stages[])(struct worker *) = {advance_work,   settle_advance,   leave_advance,
                                                      chores_advance, fairness_advance, read_advance};
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]) && !worker->leave.exited; i++) { stages[i](worker); }
    worker->actions = NULL;
    worker->wakes_at = worker->leave.exited ? NEVER : next_deadline(worker);
    return worker->wakes_at;
}

bool worker_reads(const struct worker *worker)
{
    return worker->read.out || worker->own.reading || worker->chores.reclaim.out || worker->chores.sweep.out ||
           worker->fairness.calling;
}

bool worker_rests(const struct worker *worker)
{
    bool runs = worker->prep.out > 0 || worker->cut.running.count > 0 || worker->rows.halves.first ||
                worker->prep.to_format.first;
    return !worker_reads(worker) && !runs;
}

struct worker_stats worker_stats(const struct worker *worker)
{
    struct worker_stats stats = worker->stats;
    stats.held = worker->held.count;
    struct held_sum held = held_all(&worker->held);
    stats.held_tokens = (uint32_t)held.tokens;
    stats.held_bytes = held.bytes;
    double credit = read_credit_tokens(worker, CLASS_NORMAL);
    stats.credit_tokens = credit < UINT32_MAX ? (uint32_t)credit : UINT32_MAX;
    stats.waiting = worker->window.rows + worker->quarantine.waiting.count;
    for (int c = 0; c < CLASS_COUNT; c++) { stats.waiting += worker->quarantine.suspects[c].count; }
    stats.computing = worker->cut.running.count;
    stats.devices = worker->options.devices - stats.devices_lost;
    stats.batch_tokens = worker->pace.budget.tokens;
    stats.cost_error = worker->pace.cost.error;
    stats.p99_ms = worker->pace.tune.p99_ms;
    for (const struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
        bool older = stats.oldest_batch_ns == 0 || batch->watched_ns < stats.oldest_batch_ns;
        if (!batch->background && batch->watched_ns != 0 && older) { stats.oldest_batch_ns = batch->watched_ns; }
    }
    stats.memory_level = worker->memory.level;
    stats.redis_used_bytes = worker->pulse.last.used_bytes;
    stats.redis_most_bytes = worker->pulse.last.most_bytes;
    stats.redis_evicts = worker->pulse.last.evicts;
    stats.draining = worker->leave.draining;
    stats.quiet = worker->quiet;
    stats.paused = worker->pulse.last.paused;
    stats.housekeeper = worker->pulse.last.housekeeper;
    return stats;
}

const struct worker_histograms *worker_histograms(const struct worker *worker)
{
    return &worker->histograms;
}

/* --- what callers may read and change while the worker runs --- */

uint32_t worker_each_held(const struct worker *worker, uint32_t most, void *context,
                          void (*visit)(void *context, const struct request *request))
{
    const struct held *held = &worker->held;
    for (uint32_t i = 0; i <= held->mask; i++) {
        for (const struct request *at = held->buckets[i]; at != NULL && most > 0; at = at->chain, most--) {
            visit(context, at);
        }
    }
    return held->count;
}

enum status worker_tune(struct worker *worker, const struct worker_options *options, struct err *err)
{
    TRY(worker_check(options, err));
    struct worker_options old = worker->options;
    worker->options = *options;
    worker->options.layout = old.layout;
    worker->options.engine_slots = old.engine_slots; /* a device may have been lost */
    worker->options.batches_out = old.batches_out;
    worker->options.lease_ms = old.lease_ms;
    pace_retune(worker, &old);
    return STATUS_OK;
}

#include "bench/simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"

enum {
    EPOCH_MS = 1000000, /* Redis' clock is ahead of ours by this */
    START_MS = 1000,    /* by our clock, when requests begin to come: the workers have connected */
    HELPED_TOKENS =
        256, /* as in engine/cpu/backend_cpu.c: helpers share a batch of up to this many tokens, or of one text */
};

/* Time of Redis' main thread for calls without requests: docs/measurements/queue.md, "What looks at a queue". */
static const double pulse_ns = 26e3, call_ns = 6e3;

/* The parts of a request's cost in Redis: its XADD, its share of a read, its share of a settle. */
static const double add_part = 0.25, read_part = 0.25, settle_part = 0.5;

/* An action on its way to Redis and back, or at the prep threads. */
struct call {
    struct action action;
    size_t first, count; /* READ: the entries that it brings */
    uint64_t number;
};

enum kind { ADDED, AT_REDIS, ANSWERED, BLOCK_ENDS, BATCH_ENDS, BATCH_BACK, WAKES };

/* A future event of the simulation. */
struct happening {
    uint64_t at_ns, number; /* number: if times are equal, the one planned first happens first */
    enum kind kind;
    uint32_t site;
    union {
        struct call *call;   /* AT_REDIS, ANSWERED */
        struct batch *batch; /* BATCH_BACK */
        uint64_t version;    /* BATCH_ENDS: of the site's `runs` when it was planned; BLOCK_ENDS: the call's number */
    };
};

/* A batch on a compute thread. */
struct run {
    struct batch *batch;
    double left_ns;           /* as predicted without help */
    double wakes_ns;          /* until its thread, which slept, has woken and begins */
    bool helped, after_pause; /* after_pause: its thread slept before */
};

/* A worker and its machine. */
struct site {
    struct worker *worker;
    uint64_t wakes_at, wake_planned; /* when the worker asks to wake; the earliest wake-up planned */
    struct call *blocked;            /* the read that waits in Redis; NULL: none */
    uint64_t prep_free_ns;
    struct run *runs; /* [engine_slots] */
    uint32_t running;
    struct batch **queued; /* [batches_out] waiting for a compute thread */
    uint32_t queued_count;
    uint64_t advanced_ns; /* the time for which left_ns is right */
    uint64_t version;     /* of `runs` */
};

/* A request. */
struct simulated_request {
    uint64_t at_ns; /* of its XADD */
    const struct simulated_text *text;
    bool answered;
};

struct world {
    const struct simulation *simulation;
    struct simulated *out;
    uint64_t now_ns, half_ns, end_ns; /* half_ns to end_ns: the second half of the requests' time */
    uint64_t random, next_number;
    struct happening *heap; /* [heap_count] */
    size_t heap_count, heap_capacity;
    struct site *sites;
    uint32_t *waiting; /* [waiting_count] sites whose read waits, the longest first */
    uint32_t waiting_count;
    uint64_t redis_free_ns;
    struct simulated_request *requests; /* [added]; their entries have the same numbers */
    size_t added, read, capacity, answered;
    char *text; /* as long as the longest text */
    struct entry *entries;
    struct entry_field *fields; /* SIMULATION_FIELDS for each entry; both [entry_capacity] */
    size_t entry_capacity;
    struct actions actions;
    double busy_ns, redis_ns, rows, batches, done; /* in the second half */
    struct err err;                                /* the first error */
};

static void fail_world(struct world *world, enum status status, const char *what)
{
    if (world->err.status == STATUS_OK) { (void)err_set(&world->err, status, "simulation: %s", what); }
}

/* Returns the array, with room for one more item; NULL when memory ran out. */
static void *grow(struct world *world, void *items, size_t *capacity, size_t count, size_t each)
{
    if (count < *capacity) { return items; }
    size_t more = *capacity == 0 ? 1024 : 2 * *capacity;
    void *grown = realloc(items, more * each);
    if (!grown) {
        fail_world(world, STATUS_NO_MEMORY, "no memory");
        return NULL;
    }
    *capacity = more;
    return grown;
}

static bool counts(const struct world *world)
{
    return world->now_ns >= world->half_ns && world->now_ns < world->end_ns;
}

/* ---- future events: a heap ---- */

static bool earlier(const struct happening *a, const struct happening *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void plan_happening(struct world *world, double at_ns, struct happening what)
{
    struct happening *heap = grow(world, world->heap, &world->heap_capacity, world->heap_count, sizeof *world->heap);
    if (!heap) { return; }
    world->heap = heap;
    what.at_ns = (uint64_t)fmax(at_ns, (double)world->now_ns);
    what.number = world->next_number++;
    size_t at = world->heap_count++;
    for (size_t parent; at > 0 && earlier(&what, &world->heap[parent = (at - 1) / 2]); at = parent) {
        world->heap[at] = world->heap[parent];
    }
    world->heap[at] = what;
}

static struct happening next(struct world *world)
{
    struct happening first = world->heap[0], last = world->heap[--world->heap_count];
    size_t at = 0, count = world->heap_count;
    for (size_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && earlier(&world->heap[child + 1], &world->heap[child]);
        if (!earlier(&world->heap[child], &last)) { break; }
        world->heap[at] = world->heap[child];
    }
    world->heap[at] = last;
    return first;
}

static void plan_call(struct world *world, enum kind kind, uint32_t site, double at_ns, struct call *call)
{
    plan_happening(world, at_ns, (struct happening){.kind = kind, .site = site, .call = call});
}

/* ---- compute threads ---- */

/* The speed of a batch while `running` batches run; 1: as predicted without help. */
static double speed(const struct simulation *simulation, const struct run *run, uint32_t running)
{
    const struct simulated_costs *costs = &simulation->costs;
    double threads = simulation->options.engine_slots;
    double crowd = threads > 1 ? (running - 1) / (threads - 1) : !run->after_pause;
    double help = run->helped ? 1 + (1 - crowd) * (1 / simulation->options.cost.help - 1) : 1;
    return help / (costs->alone + crowd * (costs->crowded - costs->alone));
}

/* Brings all batches of a site up to now. */
static void advance(struct world *world, struct site *site)
{
    double passed_ns = (double)(world->now_ns - site->advanced_ns);
    for (uint32_t i = 0; i < site->running; i++) {
        struct run *run = &site->runs[i];
        double waking_ns = fmin(passed_ns, run->wakes_ns);
        run->wakes_ns -= waking_ns;
        run->left_ns -= (passed_ns - waking_ns) * speed(world->simulation, run, site->running);
    }
    world->busy_ns += counts(world) ? passed_ns * site->running : 0;
    site->advanced_ns = world->now_ns;
}

/* Plans the end of the batch that ends first. */
static void plan_end(struct world *world, struct site *site)
{
    double least_ns = INFINITY;
    for (uint32_t i = 0; i < site->running; i++) {
        const struct run *run = &site->runs[i];
        double left_ns = fmax(0, run->left_ns) / speed(world->simulation, run, site->running);
        least_ns = fmin(least_ns, run->wakes_ns + left_ns);
    }
    site->version++;
    if (site->running == 0) { return; }
    plan_happening(
        world, ceil((double)world->now_ns + least_ns),
        (struct happening){.kind = BATCH_ENDS, .site = (uint32_t)(site - world->sites), .version = site->version});
}

/* Lets another thread of the site's machine run for `takes_ns`. If a core is idle, that slows nothing down; otherwise
 * all batches lose the same time. */
static void interrupt(struct world *world, struct site *site, double takes_ns)
{
    const struct simulation *simulation = world->simulation;
    uint32_t slots = simulation->options.engine_slots, cores = simulation->costs.cores, busy = 0;
    if (cores == 0 || takes_ns <= 0) { return; }
    advance(world, site);
    for (uint32_t i = 0; i < site->running; i++) {
        const struct run *run = &site->runs[i];
        busy += run->wakes_ns > 0 ? 0 : run->helped ? slots : 1;
    }
    if ((busy < slots ? busy : slots) < cores) { return; }
    for (uint32_t i = 0; i < site->running; i++) {
        struct run *run = &site->runs[i];
        run->left_ns += takes_ns / cores * speed(simulation, run, site->running);
    }
    plan_end(world, site);
}

/* A thread takes a batch; `wakes`: it slept. */
static void begin_batch(struct world *world, struct site *site, struct batch *batch, bool wakes)
{
    const struct simulation *simulation = world->simulation;
    bool owned = false;
    for (uint32_t i = 0; i < site->running; i++) { owned |= site->runs[i].helped; }
    struct cost_shape shape = cost_shape_of(&batch->engine);
    bool wants = batch->engine.rows == 1 || batch->engine.extent <= HELPED_TOKENS;
    double left_ns = fmax(1, cost_predict_ns(&simulation->options.cost, shape));
    batch->helped = wants && !owned && site->running + 1 < simulation->options.engine_slots;
    batch->started_ns = world->now_ns;
    site->runs[site->running++] =
        (struct run){batch, left_ns, wakes ? simulation->costs.hop_ns : 0, batch->helped, wakes};
}

static void submit_batch(struct world *world, struct site *site, struct batch *batch)
{
    advance(world, site);
    if (site->running == world->simulation->options.engine_slots) {
        uint32_t at = batch->first ? 0 : site->queued_count;
        memmove(&site->queued[at + 1], &site->queued[at], (site->queued_count++ - at) * sizeof *site->queued);
        site->queued[at] = batch;
        return;
    }
    begin_batch(world, site, batch, true);
    plan_end(world, site);
}

static void end_batches(struct world *world, struct site *site, uint64_t version)
{
    if (version != site->version) { return; }
    advance(world, site);
    for (uint32_t i = 0; i < site->running;) {
        if (site->runs[i].left_ns > 0.5) {
            i++;
            continue;
        }
        struct batch *batch = site->runs[i].batch;
        site->runs[i] = site->runs[--site->running];
        batch->finished_ns = world->now_ns;
        batch->status = STATUS_OK;
        memset(batch->engine.output, 0, batch->engine.rows * world->simulation->options.rules.dim * sizeof(float));
        world->rows += counts(world) ? batch->engine.rows : 0;
        world->batches += counts(world);
        plan_happening(world, (double)world->now_ns + world->simulation->costs.hop_ns,
                       (struct happening){.kind = BATCH_BACK, .site = (uint32_t)(site - world->sites), .batch = batch});
    }
    while (site->queued_count > 0 && site->running < world->simulation->options.engine_slots) {
        begin_batch(world, site, site->queued[0], false);
        memmove(&site->queued[0], &site->queued[1], --site->queued_count * sizeof *site->queued);
    }
    plan_end(world, site);
}

/* ---- Redis: one thing at a time ---- */

/* The time at which Redis has finished work that takes `takes_ns`. */
static double redis_done(struct world *world, double takes_ns)
{
    world->redis_free_ns =
        (world->now_ns > world->redis_free_ns ? world->now_ns : world->redis_free_ns) + (uint64_t)takes_ns;
    world->redis_ns += counts(world) ? takes_ns : 0;
    return (double)world->redis_free_ns;
}

static void answer(struct world *world, uint32_t site, double takes_ns, struct call *call)
{
    plan_call(world, ANSWERED, site, redis_done(world, takes_ns) + world->simulation->costs.hop_ns, call);
}

static void answer_read(struct world *world, uint32_t site, struct call *call)
{
    size_t there = world->added - world->read, most = call->action.read.counts[CLASS_NORMAL];
    call->first = world->read;
    call->count = there < most ? there : most;
    world->read += call->count;
    interrupt(world, &world->sites[site], (double)call->count * add_part * world->simulation->costs.beside_ns);
    answer(world, site, call_ns + (double)call->count * read_part * world->simulation->costs.redis_ns, call);
}

/* Removes a site's read from those that wait. */
static struct call *stop_waiting(struct world *world, uint32_t site)
{
    struct call *call = world->sites[site].blocked;
    uint32_t at = 0;
    while (world->waiting[at] != site) { at++; }
    world->waiting_count--;
    memmove(&world->waiting[at], &world->waiting[at + 1], (world->waiting_count - at) * sizeof *world->waiting);
    world->sites[site].blocked = NULL;
    return call;
}

static void take_read(struct world *world, uint32_t site, struct call *call)
{
    const struct action *action = &call->action;
    bool normal = action->read.counts[CLASS_NORMAL] > 0;
    if (action->read.block_ms == 0 || (normal && world->read < world->added)) {
        answer_read(world, site, call);
        return;
    }
    world->sites[site].blocked = call;
    world->waiting[world->waiting_count++] = site;
    plan_happening(world, (double)world->now_ns + (double)action->read.block_ms * (double)NS_PER_MS,
                   (struct happening){.kind = BLOCK_ENDS, .site = site, .version = call->number});
}

/* Plans the next request of the Poisson process. */
static void plan_add(struct world *world)
{
    const struct simulation *simulation = world->simulation;
    double at_ns = (double)world->now_ns - log(1 - random_share(&world->random)) * (double)NS_PER_S / simulation->rate;
    if (at_ns < (double)world->end_ns) { plan_happening(world, at_ns, (struct happening){.kind = ADDED}); }
}

/* Handles an XADD that reaches Redis: the read that has waited longest gets its entry. */
static void add_request(struct world *world)
{
    const struct simulation *simulation = world->simulation;
    struct simulated_request *requests =
        grow(world, world->requests, &world->capacity, world->added, sizeof *world->requests);
    if (!requests) { return; }
    world->requests = requests;
    requests[world->added++] = (struct simulated_request){
        world->now_ns, &simulation->texts[random_next(&world->random) % simulation->text_count], false};
    (void)redis_done(world, add_part * simulation->costs.redis_ns);
    for (uint32_t i = 0; i < world->waiting_count; i++) {
        uint32_t site = world->waiting[i];
        if (world->sites[site].blocked->action.read.counts[CLASS_NORMAL] == 0) { continue; }
        answer_read(world, site, stop_waiting(world, site));
        break;
    }
    plan_add(world);
}

/* Adds a latency. The way from the producer to Redis is a hop, too. */
static void add_latency(struct world *world, size_t number, double answered_ns)
{
    double latency_ns = answered_ns - (double)world->requests[number].at_ns + world->simulation->costs.hop_ns;
    sample_add(&world->out->latency_ms, latency_ns / (double)NS_PER_MS);
}

static void settle_call(struct world *world, uint32_t site, struct call *call)
{
    const struct simulated_costs *costs = &world->simulation->costs;
    struct request_list *list = &call->action.requests;
    double done_ns = redis_done(world, call_ns + (double)list->count * settle_part * costs->redis_ns);
    interrupt(world, &world->sites[site], (double)list->count * (1 - add_part) * costs->beside_ns);
    for (struct request *request = list->first; request != NULL; request = request->next) {
        size_t number = request->identity.entry.seq;
        request->lifetime.verdict = VERDICT_DONE;
        world->requests[number].answered = true;
        world->answered++;
        world->done += counts(world);
        if (world->requests[number].at_ns >= world->half_ns) { add_latency(world, number, done_ns + costs->hop_ns); }
    }
    plan_call(world, ANSWERED, site, done_ns + costs->hop_ns, call);
}

static void reach_redis(struct world *world, uint32_t site, struct call *call)
{
    if (call->action.kind == ACTION_READ) {
        take_read(world, site, call);
    } else if (call->action.kind == ACTION_SETTLE) {
        settle_call(world, site, call);
    } else {
        answer(world, site, call->action.kind == ACTION_PULSE ? pulse_ns : call_ns, call);
    }
}

/* ---- prep threads ---- */

/* Gives a request's row its tokens: ids that no other request has. */
static void tokenize(struct world *world, struct request *request)
{
    const struct simulation *simulation = world->simulation;
    struct row *row = &request->rows[0];
    size_t number = request->identity.entry.seq;
    uint32_t dim = simulation->options.rules.dim, tokens = world->requests[number].text->tokens;
    float *work = calloc(dim + (size_t)tokens, sizeof *work);
    if (!work || request->row_count != 1) {
        free(work);
        fail_world(world, STATUS_NO_MEMORY, "no memory for a request");
        return;
    }
    request->work = work;
    row->output = work;
    row->ids = (int32_t *)(work + dim);
    row->ids[0] = (int32_t)number;
    row->tokens = tokens;
    row->hash = number * 0x9e3779b97f4a7c15u;
}

static void format(struct world *world, struct request *request)
{
    uint32_t bytes = world->simulation->costs.reply_bytes;
    if (!buffer_reserve(&request->output.reply, bytes)) {
        fail_world(world, STATUS_NO_MEMORY, "no memory for a reply");
        return;
    }
    request->output.reply.length = bytes;
}

static void put_prep(struct world *world, uint32_t number, struct call *call, double each_ns)
{
    const struct simulated_costs *costs = &world->simulation->costs;
    struct site *site = &world->sites[number];
    double arrives_ns = (double)world->now_ns + costs->hop_ns;
    double count = (double)call->action.requests.count, takes_ns = count * each_ns;
    double done_ns = fmax(arrives_ns, (double)site->prep_free_ns) + takes_ns / fmin(costs->prep_threads, count);
    site->prep_free_ns = (uint64_t)done_ns;
    interrupt(world, site, takes_ns + costs->wake_ns);
    plan_call(world, ANSWERED, number, done_ns + costs->hop_ns, call);
}

/* ---- the worker ---- */

static void execute(struct world *world, uint32_t number, const struct action *action)
{
    const struct simulated_costs *costs = &world->simulation->costs;
    struct site *site = &world->sites[number];
    struct call *call;
    switch (action->kind) {
    case ACTION_SUBMIT:
        submit_batch(world, site, action->batch);
        return;
    case ACTION_UNBLOCK:
        if (site->blocked) { answer(world, number, call_ns, stop_waiting(world, number)); }
        return;
    case ACTION_RECORD_RUN:
    case ACTION_EXCLUSIVE:
    case ACTION_TOGETHER:
    case ACTION_RELEASE:
    case ACTION_REJOIN:
    case ACTION_EXIT:
        fail_world(world, STATUS_INTERNAL, "a worker does what only faults lead to");
        return;
    default:
        break;
    }
    call = calloc(1, sizeof *call);
    if (!call) {
        fail_world(world, STATUS_NO_MEMORY, "no memory for a call");
        return;
    }
    call->action = *action;
    call->number = world->next_number++;
    if (action->kind == ACTION_PREPARE) {
        put_prep(world, number, call, costs->prepare_ns);
    } else if (action->kind == ACTION_FORMAT) {
        put_prep(world, number, call, costs->format_ns);
    } else {
        plan_call(world, AT_REDIS, number, (double)world->now_ns + costs->hop_ns, call);
    }
}

static void step_site(struct world *world, uint32_t number, const struct event *event)
{
    struct site *site = &world->sites[number];
    interrupt(world, site, world->simulation->costs.wake_ns);
    world->actions.count = 0;
    site->wakes_at = worker_step(site->worker, event, world->now_ns, &world->actions);
    for (size_t i = 0; i < world->actions.count; i++) { execute(world, number, &world->actions.items[i]); }
    if (site->wakes_at < site->wake_planned) {
        site->wake_planned = site->wakes_at;
        plan_happening(world, (double)site->wakes_at, (struct happening){.kind = WAKES, .site = number});
    }
}

static uint64_t redis_ms(const struct world *world)
{
    return EPOCH_MS + world->now_ns / NS_PER_MS;
}

size_t simulation_fields(const struct request_rules *rules, const char *text, size_t bytes,
                         struct entry_field out[SIMULATION_FIELDS])
{
    static const struct entry_field classify = {"task", 4, "classify", 8};
    size_t count = 0;
    if (rules->head && rules->head->labels > 0) { out[count++] = classify; }
    out[count++] = (struct entry_field){"text", 4, text, bytes};
    return count;
}

static bool make_entries(struct world *world, const struct call *call)
{
    size_t capacity = world->entry_capacity;
    if (call->count > capacity) {
        struct entry *entries = realloc(world->entries, call->count * sizeof *entries);
        world->entries = entries ? entries : world->entries;
        struct entry_field *fields = realloc(world->fields, call->count * SIMULATION_FIELDS * sizeof *fields);
        world->fields = fields ? fields : world->fields;
        if (!entries || !fields) {
            fail_world(world, STATUS_NO_MEMORY, "no memory for entries");
            return false;
        }
        world->entry_capacity = call->count;
    }
    for (size_t i = 0; i < call->count; i++) {
        size_t number = call->first + i;
        struct entry_field *fields = &world->fields[i * SIMULATION_FIELDS];
        world->entries[i] =
            (struct entry){.class = CLASS_NORMAL,
                           .id = {EPOCH_MS + world->requests[number].at_ns / NS_PER_MS, number},
                           .origin = ORIGIN_NEW,
                           .fields = fields,
                           .field_count = simulation_fields(&world->simulation->options.rules, world->text,
                                                            world->requests[number].text->bytes, fields)};
    }
    return true;
}

/* The event of an answer by Redis or a prep thread. The first worker is the housekeeper. */
static struct event event_of(struct world *world, uint32_t number, struct call *call)
{
    static const struct own_list nothing_pending = {.counts = {0}};
    const struct action *action = &call->action;
    switch (action->kind) {
    case ACTION_PREPARE:
        for (struct request *r = action->requests.first; r != NULL; r = r->next) { tokenize(world, r); }
        return (struct event){.kind = EVENT_PREPARED, .requests = action->requests};
    case ACTION_FORMAT:
        for (struct request *r = action->requests.first; r != NULL; r = r->next) { format(world, r); }
        return (struct event){.kind = EVENT_FORMATTED, .requests = action->requests};
    case ACTION_SETTLE:
        return (struct event){.kind = EVENT_SETTLED, .requests = action->requests};
    case ACTION_PULSE:
        return (struct event){.kind = EVENT_PULSE,
                              .pulse = {.redis_ms = redis_ms(world),
                                        .workers = world->simulation->workers,
                                        .housekeeper = number == 0,
                                        .depth = {[CLASS_NORMAL] = number == 0 ? world->added - world->read : 0}}};
    case ACTION_LIST_OWN:
        return (struct event){.kind = EVENT_OWN_LISTED, .own = &nothing_pending};
    case ACTION_RENEW:
        return (struct event){.kind = EVENT_LEASE, .lease_held = true};
    case ACTION_PROMOTE:
        return (struct event){.kind = EVENT_PROMOTED, .promoted = {UINT64_MAX}};
    case ACTION_MEND:
        return (struct event){.kind = EVENT_MENDED};
    default:
        break;
    }
    static const enum read_source sources[] = {
        [ACTION_READ] = READ_NEW,  [ACTION_READ_OWN] = READ_OWN, [ACTION_RECLAIM] = READ_RECLAIM,
        [ACTION_SHED] = READ_SHED, [ACTION_FAIR] = READ_FAIR,    [ACTION_SWEEP] = READ_SWEEP};
    size_t count = make_entries(world, call) ? call->count : 0;
    return (struct event){.kind = EVENT_ENTRIES,
                          .entries = {.source = sources[action->kind],
                                      .class = action->kind == ACTION_READ ? CLASS_NORMAL : action->read.class,
                                      .entries = world->entries,
                                      .count = count}};
}

static void happen(struct world *world, const struct happening *what)
{
    struct site *site = &world->sites[what->site];
    struct event event;
    switch (what->kind) {
    case ADDED:
        add_request(world);
        break;
    case AT_REDIS:
        reach_redis(world, what->site, what->call);
        break;
    case ANSWERED:
        event = event_of(world, what->site, what->call);
        if (world->err.status == STATUS_OK) { step_site(world, what->site, &event); }
        free(what->call);
        break;
    case BLOCK_ENDS: /* unless the read has been answered */
        if (site->blocked && site->blocked->number == what->version) {
            answer(world, what->site, call_ns, stop_waiting(world, what->site));
        }
        break;
    case BATCH_ENDS:
        end_batches(world, site, what->version);
        break;
    case BATCH_BACK:
        event = (struct event){.kind = EVENT_BATCH, .batch = what->batch};
        step_site(world, what->site, &event);
        break;
    case WAKES:
        if (what->at_ns != site->wake_planned) { break; } /* an earlier wake-up has happened since */
        site->wake_planned = UINT64_MAX;
        if (site->wakes_at <= world->now_ns) {
            step_site(world, what->site, &(struct event){.kind = EVENT_TICK});
        } else if (site->wakes_at != UINT64_MAX) {
            site->wake_planned = site->wakes_at;
            plan_happening(world, (double)site->wakes_at, (struct happening){.kind = WAKES, .site = what->site});
        }
        break;
    }
}

/* ---- the whole ---- */

static enum status open_site(struct world *world, uint32_t number, struct err *err)
{
    struct worker_options options = world->simulation->options;
    struct site *site = &world->sites[number];
    options.seed = random_next(&world->random);
    site->wakes_at = site->wake_planned = UINT64_MAX;
    site->runs = calloc(options.engine_slots, sizeof *site->runs);
    site->queued = calloc(options.batches_out, sizeof *site->queued);
    if (!site->runs || !site->queued) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u workers", world->simulation->workers);
    }
    return worker_open(&options, &site->worker, err);
}

static enum status open_world(struct world *world, struct err *err)
{
    const struct simulation *simulation = world->simulation;
    uint32_t longest = 0;
    for (size_t i = 0; i < simulation->text_count; i++) {
        longest = simulation->texts[i].bytes > longest ? simulation->texts[i].bytes : longest;
    }
    world->sites = calloc(simulation->workers, sizeof *world->sites);
    world->waiting = calloc(simulation->workers, sizeof *world->waiting);
    world->text = malloc((size_t)longest + 1);
    if (!world->sites || !world->waiting || !world->text) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for %u workers", simulation->workers);
    }
    memset(world->text, 'a', longest);
    for (uint32_t i = 0; i < simulation->workers; i++) { TRY(open_site(world, i, err)); }
    return STATUS_OK;
}

static void close_world(struct world *world)
{
    for (size_t i = 0; i < world->heap_count; i++) {
        enum kind kind = world->heap[i].kind;
        if (kind == AT_REDIS || kind == ANSWERED) { free(world->heap[i].call); }
    }
    for (uint32_t i = 0; world->sites && i < world->simulation->workers; i++) {
        worker_close(world->sites[i].worker);
        free(world->sites[i].blocked);
        free(world->sites[i].runs);
        free(world->sites[i].queued);
    }
    actions_free(&world->actions);
    free(world->sites);
    free(world->waiting);
    free(world->heap);
    free(world->requests);
    free(world->entries);
    free(world->fields);
    free(world->text);
}

/* Runs until all requests are answered, or for as long again as requests came. */
static void go(struct world *world)
{
    uint64_t stop_ns = world->end_ns + world->simulation->for_ns;
    for (uint32_t i = 0; i < world->simulation->workers; i++) {
        step_site(world, i, &(struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_ms(world)}});
    }
    plan_happening(world, START_MS * (double)NS_PER_MS, (struct happening){.kind = ADDED});
    while (world->err.status == STATUS_OK && world->heap_count > 0 && world->now_ns < stop_ns &&
           (world->now_ns < world->end_ns || world->answered < world->added)) {
        struct happening what = next(world);
        world->now_ns = what.at_ns;
        happen(world, &what);
    }
}

enum status simulation_run(const struct simulation *simulation, struct simulated *out, struct err *err)
{
    uint64_t start_ns = START_MS * NS_PER_MS, half_ns = simulation->for_ns / 2;
    struct world world = {.simulation = simulation,
                          .out = out,
                          .now_ns = 1,
                          .half_ns = start_ns + half_ns,
                          .end_ns = start_ns + simulation->for_ns,
                          .random = simulation->seed};
    *out = (struct simulated){0};
    enum status status = open_world(&world, err);
    if (status == STATUS_OK) {
        go(&world);
        for (size_t i = 0; i < world.added; i++) {
            bool late = !world.requests[i].answered && world.requests[i].at_ns >= world.half_ns;
            if (late) { add_latency(&world, i, (double)world.now_ns); }
        }
        if (out->latency_ms.broken) { fail_world(&world, STATUS_NO_MEMORY, "no memory for the latencies"); }
        *err = world.err;
        status = world.err.status;
    }
    double threads = (double)simulation->workers * simulation->options.engine_slots;
    out->requests_per_s = world.done / ((double)half_ns / NS_PER_S);
    out->busy_share = world.busy_ns / (double)half_ns / threads;
    out->redis_share = world.redis_ns / (double)half_ns;
    out->batch_rows = world.batches > 0 ? world.rows / world.batches : 0;
    close_world(&world);
    return status;
}

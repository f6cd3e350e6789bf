/* Thousands of histories of three workers on one queue, with kills, broken connections, lost answers, pauses past the
 * lease, restarts of Redis, drains, failing batches and poison; then a calm phase in which everything must come to its
 * end. */
#include <inttypes.h>

#include "world.h"

static void step(struct world *world, struct peer *peer, const struct event *event);
static void start(struct world *world, struct peer *peer);

static bool local(enum action_kind kind)
{
    return kind == ACTION_PREPARE || kind == ACTION_SUBMIT || kind == ACTION_FORMAT;
}

static void drop_call(struct peer *peer, int at)
{
    free(peer->calls[at]);
    peer->calls[at] = peer->calls[--peer->call_count];
}

/* The process is gone: what it had sent may still happen, what it held is freed with the worker. */
static void kill_peer(struct world *world, struct peer *peer)
{
    while (peer->call_count > 0) {
        struct call *call = peer->calls[0];
        if (!local(call->kind) && !call->ran && peer->connected && chance(world, 2) == 0)
            run_call(world, peer, call);
        drop_call(peer, 0);
    }
    worker_close(peer->worker);
    peer->worker = NULL;
    world->counts.kills++;
    start(world, peer);
}

static void start(struct world *world, struct peer *peer)
{
    struct err err;
    *peer = (struct peer){.name = world->names++};
    assert_true(world->names < 4096);
    struct worker_options options = world->options;
    options.seed = world->random;
    assert_int_equal(worker_open(&options, &peer->worker, &err), STATUS_OK);
    peer->connects_at = world->now + some_time(world);
    peer->wakes_at = UINT64_MAX;
}

static void connect_peer(struct world *world, struct peer *peer)
{
    peer->connected = true;
    peer->lease_lost = false;
    peer->connects_at = UINT64_MAX;
    world->alive_until[peer->name] = world->now + LEASE_MS * NS_PER_MS;
    peer->judges_at = world->now + LEASE_MS * NS_PER_MS;
    step(world, peer, &(struct event){.kind = EVENT_CONNECTED});
}

/* --- answers --- */

static void answer_entries(struct world *world, struct peer *peer, struct call *call)
{
    static struct entry entries[READ_CAP];
    static struct entry_field fields[READ_CAP][4];
    static char texts[READ_CAP][3][24];
    struct event event = {.kind = EVENT_ENTRIES, .failed = call->failed};
    event.entries.source = call->kind == ACTION_READ       ? READ_NEW
                           : call->kind == ACTION_READ_OWN ? READ_OWN
                           : call->kind == ACTION_SWEEP    ? READ_SWEEP
                                                           : READ_RECLAIM;
    for (int i = 0; i < call->got_count && !call->failed; i++) {
        int index = call->got[i] % ITEMS;
        const struct item *item = &world->items[index];
        snprintf(texts[i][0], 24, "%d", index);
        snprintf(texts[i][1], 24, "%d-0", (int)item->first);
        snprintf(texts[i][2], 24, "%u", item->attempt);
        fields[i][0] =
            (struct entry_field){item->kind == MALFORMED ? "txet" : "text", 4, texts[i][0], strlen(texts[i][0])};
        fields[i][1] = (struct entry_field){"max_attempts", 12, "3", 1};
        fields[i][2] = (struct entry_field){"_id", 3, texts[i][1], strlen(texts[i][1])};
        fields[i][3] = (struct entry_field){"_attempt", 8, texts[i][2], strlen(texts[i][2])};
        entries[i] = (struct entry){.class = CLASS_NORMAL,
                                    .id = {item->entry, 0},
                                    .origin = call->got[i] >= ITEMS ? ORIGIN_RECLAIMED : ORIGIN_RELEASED,
                                    .lonely_runs = (uint32_t)item->lonely_runs,
                                    .fields = fields[i],
                                    .field_count = item->attempt > 1 ? 4 : 2};
        event.entries.last = entries[i].id;
    }
    event.entries.entries = entries;
    event.entries.count = call->failed ? 0 : (size_t)call->got_count;
    event.entries.more = call->more;
    step(world, peer, &event);
}

static bool has_requests(enum action_kind kind)
{
    return kind == ACTION_PREPARE || kind == ACTION_FORMAT || kind == ACTION_SETTLE || kind == ACTION_CHARGE ||
           kind == ACTION_RELEASE;
}

static bool is_out(const struct peer *peer, const struct request *wanted)
{
    for (int i = 0; i < peer->call_count; i++)
        if (has_requests(peer->calls[i]->kind))
            for (const struct request *request = peer->calls[i]->action.requests.first; request;
                 request = request->next)
                if (request == wanted)
                    return true;
    return wanted != NULL && wanted->state == REQUEST_COMPUTING;
}

/* A lonely run ends when Redis has answered its settle, or when it never began. */
static void lonely_ended(struct peer *peer, const struct call *call)
{
    bool over = peer->draining || peer->lease_lost;
    for (const struct request *request = call->action.requests.first; request != NULL; request = request->next)
        if (request == peer->lonely &&
            (call->kind == ACTION_CHARGE ? request->verdict == VERDICT_LATE || (call->failed && over) : !call->failed))
            peer->lonely = NULL;
}

/* When the lease is gone, a suspect whose charge had failed is given up, too. */
static bool renewed(struct peer *peer, const struct call *call)
{
    if (!call->failed && !call->held) {
        peer->lease_lost = true;
        if (peer->lonely != NULL && !is_out(peer, peer->lonely))
            peer->lonely = NULL;
    }
    return call->held;
}

static void answer(struct world *world, struct peer *peer, struct call *call)
{
    static const enum event_kind events[] = {
        [ACTION_PREPARE] = EVENT_PREPARED, [ACTION_FORMAT] = EVENT_FORMATTED, [ACTION_SETTLE] = EVENT_SETTLED,
        [ACTION_CHARGE] = EVENT_CHARGED,   [ACTION_RENEW] = EVENT_LEASE,      [ACTION_PROMOTE] = EVENT_PROMOTED,
        [ACTION_RELEASE] = EVENT_RELEASED, [ACTION_SUBMIT] = EVENT_BATCH,     [ACTION_PULSE] = EVENT_PULSE,
    };
    if (call->kind == ACTION_READ || call->kind == ACTION_READ_OWN || call->kind == ACTION_RECLAIM ||
        call->kind == ACTION_SWEEP) {
        answer_entries(world, peer, call);
        return;
    }
    struct event event = {.kind = events[call->kind], .failed = call->failed};
    if (call->kind == ACTION_SUBMIT)
        event.batch = call->action.batch;
    else if (call->kind == ACTION_RENEW)
        event.lease_held = renewed(peer, call);
    else if (call->kind == ACTION_PULSE)
        event.pulse = (struct pulse){.redis_ms = world->now / NS_PER_MS};
    else if (call->kind == ACTION_PROMOTE)
        event.promoted.next_due_in_ms = call->next_due_ms;
    else
        event.requests = call->action.requests;
    if (call->kind == ACTION_SETTLE || call->kind == ACTION_RELEASE || call->kind == ACTION_CHARGE)
        lonely_ended(peer, call);
    step(world, peer, &event);
}

/* Everything that is out fails: what had been sent first may have happened. Then the event itself. */
static void disconnect(struct world *world, struct peer *peer)
{
    struct call *broken[CALLS];
    int count = 0;
    for (int i = 0; i < peer->call_count;) {
        if (local(peer->calls[i]->kind)) {
            i++;
            continue;
        }
        broken[count++] = peer->calls[i];
        peer->calls[i] = peer->calls[--peer->call_count];
    }
    int name = peer->name;
    world->counts.drops++;
    peer->connected = false;
    for (int i = 0; i < count; i++) {
        bool alive_still = peer->name == name && !peer->exited; /* a step may have started a poison text */
        if (alive_still && !broken[i]->ran && chance(world, 2) == 0)
            run_call(world, peer, broken[i]);
        broken[i]->failed = true;
        if (alive_still)
            answer(world, peer, broken[i]);
        free(broken[i]);
    }
    if (peer->name != name || peer->exited)
        return;
    step(world, peer, &(struct event){.kind = EVENT_DISCONNECTED});
    peer->connects_at = world->now + (chance(world, 4) == 0 ? 2 * LEASE_MS * NS_PER_MS : some_time(world));
}

/* --- actions, each checked against the contract --- */

static int out(const struct peer *peer, enum action_kind kind)
{
    int count = 0;
    for (int i = 0; i < peer->call_count; i++)
        count += peer->calls[i]->kind == kind;
    return count;
}

static void check_lists(const struct action *action, uint32_t most)
{
    size_t bytes = 0;
    uint32_t count = 0;
    for (const struct request *request = action->requests.first; request != NULL; request = request->next) {
        bytes += request->reply.length;
        count++;
    }
    assert_int_equal(count, action->requests.count);
    assert_in_range(count, action->kind == ACTION_RELEASE ? 0 : 1, most);
    assert_true(action->kind != ACTION_SETTLE || count == 1 || bytes <= 32 * 1024);
}

/* While a suspect runs nothing else may start, and it starts only charged and with nothing else running. */
static void check_lonely(struct peer *peer, const struct request *request)
{
    if (!request->alone) {
        assert_null(peer->lonely);
        return;
    }
    assert_ptr_equal(peer->lonely, request);
    assert_int_equal(out(peer, ACTION_SUBMIT), 0);
    assert_int_equal(out(peer, ACTION_PREPARE), 0);
}

static void check_start(struct peer *peer, const struct action *action)
{
    if (action->kind == ACTION_PREPARE)
        for (const struct request *request = action->requests.first; request != NULL; request = request->next)
            check_lonely(peer, request);
    else
        for (uint32_t i = 0; i < action->batch->engine.rows; i++)
            check_lonely(peer, action->batch->rows[i]->request);
}

static void check_action(struct world *world, struct peer *peer, const struct action *action)
{
    struct worker_stats stats = worker_stats(peer->worker);
    if (!local(action->kind) && action->kind != ACTION_EXIT)
        assert_true(peer->connected);
    switch (action->kind) {
    case ACTION_READ:
        assert_int_equal(out(peer, ACTION_READ) + out(peer, ACTION_READ_OWN), 0);
        assert_false(peer->draining);
        assert_true(
            action->read.counts[CLASS_NORMAL] == 0 || stats.held == 0 ||
            (stats.held_tokens < world->options.credit_tokens && stats.held_bytes < world->options.credit_bytes));
        assert_in_range(action->read.count, 1, READ_CAP);
        break;
    case ACTION_READ_OWN:
        assert_int_equal(out(peer, ACTION_READ) + out(peer, ACTION_READ_OWN), 0);
        break;
    case ACTION_RECLAIM:
        assert_int_equal(out(peer, ACTION_RECLAIM), 0);
        assert_true(!action->read.judge || world->now >= peer->judges_at);
        break;
    case ACTION_SUBMIT:
        assert_in_range(out(peer, ACTION_SUBMIT), 0, 2 * world->options.engine_slots - 1);
        assert_true(action->batch->engine.rows == 1 || action->batch->engine.extent <= world->options.max_batch_tokens);
        check_start(peer, action);
        break;
    case ACTION_PREPARE:
        check_lists(action, 64);
        check_start(peer, action);
        break;
    case ACTION_FORMAT:
        check_lists(action, 64);
        break;
    case ACTION_SETTLE:
        check_lists(action, 64);
        assert_in_range(out(peer, ACTION_SETTLE), 0, 4); /* the fifth is of one that Redis had refused */
        break;
    case ACTION_CHARGE:
        assert_true(peer->lonely == NULL || peer->lonely == action->requests.first);
        assert_int_equal(out(peer, ACTION_SUBMIT) + out(peer, ACTION_PREPARE), 0);
        check_lists(action, 1);
        break;
    case ACTION_RELEASE:
        check_lists(action, 256);
        assert_true(!action->last || (stats.held == 0 && peer->call_count == 0));
        break;
    case ACTION_REJOIN:
        assert_int_equal(stats.held, 0);
        assert_int_equal(peer->call_count, 0);
        break;
    default:
        break;
    }
}

static void enqueue_call(struct world *world, struct peer *peer, const struct action *action)
{
    assert_true(peer->call_count < CALLS);
    struct call *call = calloc(1, sizeof(*call));
    assert_non_null(call);
    call->kind = action->kind;
    call->action = *action;
    call->runs_at = world->now + some_time(world);
    call->answers_at = call->runs_at + some_time(world);
    call->failed = !local(action->kind) && happens(world, world->faults.script_error);
    if (action->kind == ACTION_CHARGE)
        peer->lonely = action->requests.first;
    peer->calls[peer->call_count++] = call;
}

static void unblock(struct world *world, struct peer *peer)
{
    for (int i = 0; i < peer->call_count; i++)
        if (peer->calls[i]->kind == ACTION_READ && !peer->calls[i]->ran)
            peer->calls[i]->ran = true, peer->calls[i]->answers_at = world->now + some_time(world);
}

static void rejoin(struct world *world, struct peer *peer)
{
    peer->connected = false;
    peer->name = world->names++;
    assert_true(world->names < 4096);
    peer->connects_at = world->now + some_time(world);
    world->counts.rejoins++;
}

/* Whether this start kills the process: a poison text does, wherever it runs. */
static bool deadly(struct world *world, struct peer *peer, const struct action *action)
{
    struct request *request = NULL;
    if (action->kind == ACTION_SUBMIT) {
        for (uint32_t i = 0; i < action->batch->engine.rows && request == NULL; i++)
            if (world->items[index_of(action->batch->rows[i]->request)].kind == POISON)
                request = action->batch->rows[i]->request;
    }
    if (request == NULL)
        return false;
    if (request == peer->lonely)
        world->items[index_of(request)].kills++;
    return true;
}

static void execute(struct world *world, struct peer *peer)
{
    for (size_t i = 0; i < world->actions.count; i++) {
        struct action *action = &world->actions.items[i];
        check_action(world, peer, action);
        if (action->kind == ACTION_EXIT) {
            assert_int_equal(i + 1, world->actions.count);
            peer->exited = true;
            world->counts.clean_exits += action->exit.clean;
        } else if (action->kind == ACTION_REJOIN) {
            rejoin(world, peer);
        } else if (action->kind == ACTION_UNBLOCK) {
            unblock(world, peer);
        } else if (deadly(world, peer, action)) {
            kill_peer(world, peer);
            return;
        } else {
            enqueue_call(world, peer, action);
        }
    }
}

static void replace(struct world *world, struct peer *peer)
{
    struct worker_stats stats = worker_stats(peer->worker);
    world->counts.bisected += stats.bisected;
    world->counts.out_of_memory += stats.out_of_memory;
    peer->connected = false;
    kill_peer(world, peer);
    world->counts.kills--;
}

static void step(struct world *world, struct peer *peer, const struct event *event)
{
    if (peer->exited)
        return;
    world->actions.count = 0;
    peer->wakes_at = worker_step(peer->worker, event, world->now, &world->actions);
    assert_true(peer->wakes_at > world->now);
    execute(world, peer);
}

/* --- time --- */

static bool readable(const struct world *world)
{
    for (int i = 0; i < world->added; i++)
        if (world->items[i].place == IN_STREAM)
            return true;
    return false;
}

static uint64_t call_time(const struct world *world, const struct call *call)
{
    if (call->ran)
        return call->answers_at;
    if (call->kind != ACTION_READ || readable(world))
        return call->runs_at;
    return call->runs_at + call->action.read.block_ms * NS_PER_MS;
}

static void advance_peer(struct world *world, struct peer *peer)
{
    if (peer->paused_until > world->now)
        return;
    if (!peer->connected && peer->connects_at <= world->now) {
        connect_peer(world, peer);
        return;
    }
    for (int i = 0; i < peer->call_count; i++) {
        struct call *call = peer->calls[i];
        if (call_time(world, call) > world->now)
            continue;
        if (!call->ran) {
            run_call(world, peer, call);
            if (call->answers_at < world->now)
                call->answers_at = world->now;
            continue;
        }
        peer->calls[i] = peer->calls[--peer->call_count];
        answer(world, peer, call);
        free(call);
        return;
    }
    if (peer->wakes_at <= world->now)
        step(world, peer, &(struct event){.kind = EVENT_TICK});
}

static uint64_t peer_time(const struct world *world, const struct peer *peer)
{
    uint64_t next = peer->wakes_at;
    if (!peer->connected && peer->connects_at < next)
        next = peer->connects_at;
    for (int i = 0; i < peer->call_count; i++) {
        uint64_t at = call_time(world, peer->calls[i]);
        next = at < next ? at : next;
    }
    next = next < world->now ? world->now : next;
    return next < peer->paused_until ? peer->paused_until : next;
}

/* The group is destroyed and made again at 0: what is unfinished is delivered once more, to anybody. */
static void regroup(struct world *world)
{
    for (int i = 0; i < world->added; i++)
        if (world->items[i].place == PENDING) {
            world->items[i].place = IN_STREAM;
            world->items[i].owner = NOBODY;
        }
    world->counts.regroups++;
}

static void inject(struct world *world)
{
    struct peer *peer = &world->peers[chance(world, WORKERS)];
    if (happens(world, world->faults.kill))
        kill_peer(world, peer);
    if (happens(world, world->faults.drop) && peer->connected)
        disconnect(world, peer);
    if (happens(world, world->faults.regroup))
        regroup(world);
    if (happens(world, world->faults.stall))
        peer->paused_until = world->now + 2 * LEASE_MS * NS_PER_MS;
    if (happens(world, world->faults.drain) && !peer->draining) {
        peer->draining = true;
        step(world, peer, &(struct event){.kind = EVENT_DRAIN});
    }
    if (happens(world, world->faults.restart)) {
        memset(world->alive_until, 0, sizeof(world->alive_until));
        for (int i = 0; i < WORKERS; i++)
            if (world->peers[i].connected)
                disconnect(world, &world->peers[i]);
    }
}

static void add_item(struct world *world)
{
    static const enum kind kinds[] = {HEALTHY, HEALTHY,   HEALTHY, HEALTHY, HEALTHY,  HEALTHY,
                                      HEALTHY, MALFORMED, GUILTY,  FLAKY,   INFINITE, POISON};
    struct item *item = &world->items[world->added];
    uint64_t entry = world->next_entry++;
    uint32_t pick = chance(world, 40);
    *item = (struct item){.kind = pick < 12 ? kinds[pick] : HEALTHY,
                          .tokens = 2 + chance(world, chance(world, 5) == 0 ? 60 : 12),
                          .entry = entry,
                          .first = entry,
                          .attempt = 1,
                          .lonely_by = NOBODY};
    world->added++;
}

static void run_until(struct world *world, uint64_t end)
{
    while (world->now < end) {
        uint64_t next = end;
        for (int i = 0; i < WORKERS; i++) {
            uint64_t at = peer_time(world, &world->peers[i]);
            next = at < next ? at : next;
        }
        world->now = next;
        for (int i = 0; i < WORKERS; i++)
            advance_peer(world, &world->peers[i]);
        for (int i = 0; i < WORKERS; i++)
            if (world->peers[i].exited)
                replace(world, &world->peers[i]);
        if (world->added < ITEMS && chance(world, 3) == 0)
            add_item(world);
        inject(world);
    }
}

static bool all_gone(const struct world *world)
{
    bool gone = world->added == ITEMS;
    for (int i = 0; i < world->added; i++)
        gone &= world->items[i].place == GONE;
    return gone;
}

static void check_ends(struct world *world)
{
    static const struct {
        enum outcome outcome;
        enum reply_code code;
    } ends[KINDS] = {
        [HEALTHY] = {OUTCOME_DONE, CODE_NONE},        [MALFORMED] = {OUTCOME_ERROR, CODE_BAD_REQUEST},
        [GUILTY] = {OUTCOME_DEAD, CODE_INTERNAL},     [FLAKY] = {OUTCOME_DONE, CODE_NONE},
        [INFINITE] = {OUTCOME_DEAD, CODE_NON_FINITE}, [POISON] = {OUTCOME_DEAD, CODE_POISON},
    };
    for (int i = 0; i < ITEMS; i++) {
        const struct item *item = &world->items[i];
        assert_int_equal(item->ends, 1);
        /* A worker that is killed or loses its lease inside a lonely run looks like one that the text killed. */
        bool others = world->faults.kill > 0 || world->faults.drop > 0 || world->faults.stall > 0;
        bool unlucky = others && item->code == CODE_POISON;
        if (!unlucky) {
            assert_int_equal(item->outcome, ends[item->kind].outcome);
            assert_int_equal(item->code, ends[item->kind].code);
        }
        world->counts.poisoned += item->code == CODE_POISON;
        if (item->kind == POISON)
            assert_in_range(item->kills, others ? 0 : 3, 3);
        if (item->kind == HEALTHY)
            assert_int_equal(item->attempt, 1);
    }
}

static struct worker_options options_for(struct world *world)
{
    struct worker_options options = {
        .rules = {.model_name = "m",
                  .model_id = "i",
                  .encoding = ENCODING_F32,
                  .dim = DIM,
                  .max_tokens = 64,
                  .max_text_bytes = 1000,
                  .default_ttl_s = 60,
                  .max_ttl_s = 100,
                  .error_ttl_s = 60,
                  .default_max_attempts = 4,
                  .truncate = true},
        .layout = chance(world, 4) == 0 ? LAYOUT_PADDED : LAYOUT_PACKED,
        .max_batch_tokens = 40 + chance(world, 200),
        .max_batch_rows = 1 + chance(world, 12),
        .window_ms = 5,
        .window_fixed = chance(world, 4) == 0,
        .engine_slots = 1 + chance(world, 2),
        .credit_tokens = 30 + chance(world, 500),
        .credit_bytes = 2000 + chance(world, 100000),
        .lease_ms = LEASE_MS,
        .read_block_ms = 200,
        .backoff_ms = 20,
        .backoff_cap_ms = 500,
        .shutdown_timeout_ms = 3000,
    };
    return options;
}

static void describe(struct world *world)
{
    for (int i = 0; i < world->added; i++) {
        const struct item *item = &world->items[i];
        if (item->place != GONE)
            fprintf(stderr, "item %d kind %d place %d owner %d attempt %u lonely %d kills %d\n", i, item->kind,
                    item->place, item->owner, item->attempt, item->lonely_runs, item->kills);
    }
    for (int i = 0; i < WORKERS; i++) {
        struct peer *peer = &world->peers[i];
        struct worker_stats stats = worker_stats(peer->worker);
        fprintf(stderr, "worker %d name %d connected %d held %u tokens %u waiting %u computing %u calls", i, peer->name,
                peer->connected, stats.held, stats.held_tokens, stats.waiting, stats.computing);
        for (int c = 0; c < peer->call_count; c++)
            fprintf(stderr, " %d", peer->calls[c]->kind);
        fprintf(stderr, "\n");
    }
}

static void finish(struct world *world)
{
    uint64_t limit = world->now + 120 * NS_PER_S;
    world->faults.on = false;
    while (!all_gone(world) && world->now < limit)
        run_until(world, world->now + 50 * NS_PER_MS);
    if (!all_gone(world))
        describe(world);
    assert_true(all_gone(world));
    run_until(world, world->now + 2 * NS_PER_S);
    uint64_t clean = world->counts.clean_exits;
    for (int i = 0; i < WORKERS; i++) {
        if (worker_stats(world->peers[i].worker).held != 0)
            describe(world);
        assert_int_equal(worker_stats(world->peers[i].worker).held, 0);
        assert_int_equal(worker_stats(world->peers[i].worker).held_tokens, 0);
        assert_int_equal(worker_stats(world->peers[i].worker).held_bytes, 0);
        world->peers[i].draining = true;
        step(world, &world->peers[i], &(struct event){.kind = EVENT_DRAIN});
    }
    run_until(world, world->now + NS_PER_S);
    assert_int_equal(world->counts.clean_exits - clean, WORKERS);
    check_ends(world);
}

static void run_history(struct world *world, uint64_t seed, struct faults faults)
{
    struct counts counts = world->counts;
    struct actions actions = world->actions;
    *world = (struct world){.now = 1000 * NS_PER_S,
                            .random = seed * 2654435761u + 12345,
                            .next_entry = 1000,
                            .faults = faults,
                            .actions = actions,
                            .counts = counts};
    for (int i = 0; i < 4; i++)
        (void)chance(world, 2);
    world->options = options_for(world);
    world->memory = 20 + chance(world, 200);
    for (int i = 0; i < WORKERS; i++)
        start(world, &world->peers[i]);
    run_until(world, world->now + (50 + chance(world, 1500)) * NS_PER_MS); /* the calm may find them in the middle */
    finish(world);
    for (int i = 0; i < WORKERS; i++) {
        struct peer *peer = &world->peers[i];
        while (peer->call_count > 0)
            drop_call(peer, 0);
        worker_close(peer->worker);
    }
}

#ifndef HISTORIES
#define HISTORIES 1000
#endif

static struct world world;

static void run_histories(struct faults faults)
{
    const char *one = getenv("SLUICE_SEED");
    world = (struct world){0};
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1, count = one != NULL ? 1 : HISTORIES;
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (getenv("SLUICE_VERBOSE") != NULL)
            fprintf(stderr, "seed %" PRIu64 "\n", seed);
        run_history(&world, seed, faults);
    }
    actions_free(&world.actions);
    const struct counts *counts = &world.counts;
    printf("kills %" PRIu64 " drops %" PRIu64 " rejoins %" PRIu64 " reclaimed %" PRIu64 " regroups %" PRIu64
           " poisoned %" PRIu64 " clean exits %" PRIu64 " bisected %" PRIu64 " out of memory %" PRIu64 "\n",
           counts->kills, counts->drops, counts->rejoins, counts->reclaimed, counts->regroups, counts->poisoned,
           counts->clean_exits, counts->bisected, counts->out_of_memory);
}

static void calm(void **state)
{
    (void)state;
    run_histories((struct faults){0});
}

static void broken_connections(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true, .drop = 30, .restart = 3, .script_error = 30, .again = 30});
    assert_true(world.counts.drops > 1000);
}

static void kills(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true, .kill = 3});
    assert_true(world.counts.kills > 300 && world.counts.reclaimed > 300);
}

static void pauses_past_the_lease(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true, .stall = 3});
    assert_true(world.counts.rejoins > 100);
}

static void lost_groups(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true, .regroup = 10, .drop = 5});
    assert_true(world.counts.regroups > 1000);
}

static void drains(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true, .drain = 10, .device_lost = 5});
    assert_true(world.counts.clean_exits > 300);
}

static void everything(void **state)
{
    (void)state;
    run_histories((struct faults){.on = true,
                                  .kill = 2,
                                  .drop = 10,
                                  .restart = 1,
                                  .regroup = 1,
                                  .stall = 2,
                                  .drain = 5,
                                  .script_error = 10,
                                  .again = 10,
                                  .device_lost = 2});
    assert_true(world.counts.kills > 200 && world.counts.drops > 200 && world.counts.rejoins > 50 &&
                world.counts.poisoned > 100 && world.counts.bisected > 100 && world.counts.out_of_memory > 50);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(calm),        cmocka_unit_test(broken_connections),
    cmocka_unit_test(kills),       cmocka_unit_test(pauses_past_the_lease),
    cmocka_unit_test(lost_groups), cmocka_unit_test(drains),
    cmocka_unit_test(everything),
};

TEST_MAIN(cases)

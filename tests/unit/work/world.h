/* A small world for the worker: a Redis that keeps entries, owners, leases, later and trouble; workers with an executor
 * each that answers in any order and late; and faults. One generator, one virtual clock: a seed is a whole history.
 *
 * The world keeps the rules of the scripts (the gate, who may judge, once per worker name), checks every action against
 * the contract of work/worker.h, and knows of each entry how it must end. */
#ifndef TESTS_WORLD_H
#define TESTS_WORLD_H

#include <stdlib.h>

#include "base/clock.h"
#include "harness.h"
#include "work/worker.h"

enum { ITEMS = 48, WORKERS = 3, CALLS = 64, DIM = 2, LEASE_MS = 400, READ_CAP = 600, NOBODY = -1, RELEASED = -2 };

/* What an entry is, and so how it must end. */
enum kind { HEALTHY, MALFORMED, GUILTY, FLAKY, INFINITE, POISON, KINDS };

enum place { IN_STREAM, PENDING, LATER, GONE };

struct item {
    enum kind kind;
    enum place place;
    uint32_t tokens;
    uint64_t entry; /* now */
    uint64_t first; /* original: the name */
    uint32_t attempt;
    int owner; /* a worker's name, or RELEASED */
    uint64_t due;
    int lonely_runs, lonely_by;
    int kills; /* workers that it killed in lonely runs */
    int ends;
    enum outcome outcome;
    enum reply_code code;
};

/* An action that is out. */
struct call {
    enum action_kind kind;
    struct action action;
    uint64_t runs_at, answers_at;
    bool ran, failed;
    int got[READ_CAP]; /* items, when it ran */
    int got_count;
    bool more, held;
    uint64_t next_due_ms;
};

struct peer {
    struct worker *worker;
    int name; /* consumer name; a new one for each incarnation */
    bool connected, draining, exited, lease_lost;
    uint64_t connects_at, judges_at, wakes_at, paused_until;
    struct call *calls[CALLS];
    int call_count;
    struct request *lonely; /* charged, and not yet settled: nothing else may start */
};

struct faults {
    bool on;
    uint32_t kill, drop, restart, regroup, stall, drain, script_error, again, device_lost; /* per mille, per chance */
};

/* Of all histories so far: a fault that never fired has tested nothing. */
struct counts {
    uint64_t kills, drops, rejoins, reclaimed, regroups, poisoned, clean_exits, bisected, out_of_memory;
};

struct world {
    uint64_t now, random;
    struct item items[ITEMS];
    int added;
    uint64_t next_entry;
    struct peer peers[WORKERS];
    int names;
    uint64_t alive_until[4096]; /* by name */
    struct faults faults;
    uint32_t memory; /* a batch of several rows and more tokens than this runs out of memory */
    struct worker_options options;
    struct actions actions;
    struct counts counts;
};

static inline uint32_t chance(struct world *world, uint32_t below)
{
    world->random = world->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((world->random >> 33) % below);
}

static inline bool happens(struct world *world, uint32_t per_mille)
{
    return world->faults.on && per_mille > 0 && chance(world, 1000) < per_mille;
}

/* Delays are uneven, so that answers overtake each other. */
static inline uint64_t some_time(struct world *world)
{
    uint64_t most = chance(world, 10) == 0 ? 30 * NS_PER_MS : 2 * NS_PER_MS;
    return 1000 + chance(world, (uint32_t)most);
}

static inline bool alive(const struct world *world, int name)
{
    return name >= 0 && world->alive_until[name] > world->now;
}

static inline struct item *item_of_entry(struct world *world, struct entry_id id)
{
    for (int i = 0; i < world->added; i++)
        if (world->items[i].entry == id.ms && world->items[i].place == PENDING)
            return &world->items[i];
    return NULL;
}

static inline int index_of(const struct request *request)
{
    int index = 0;
    for (uint32_t i = 0; i < request->rows[0].text_bytes; i++)
        index = index * 10 + request->rows[0].text[i] - '0';
    return index;
}

/* --- what the executor does with requests --- */

static inline void run_prepare(struct world *world, struct request *request)
{
    const struct item *item = &world->items[index_of(request)];
    request->work = malloc(DIM * sizeof(float) + item->tokens * sizeof(int32_t));
    assert_non_null(request->work);
    struct row *row = &request->rows[0];
    row->output = request->work;
    row->ids = (int32_t *)(row->output + DIM);
    row->tokens = item->tokens;
    for (uint32_t i = 0; i < item->tokens; i++)
        row->ids[i] = index_of(request) + 1;
}

static inline bool holds_kind(struct world *world, const struct batch *batch, enum kind kind)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++)
        if (world->items[batch->engine.ids[batch->engine.start[i]] - 1].kind == kind)
            return true;
    return false;
}

static inline bool flaky_now(struct world *world, const struct batch *batch)
{
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        const struct item *item = &world->items[batch->engine.ids[batch->engine.start[i]] - 1];
        if (item->kind == FLAKY && item->attempt < 3)
            return true;
    }
    return false;
}

static inline void run_batch(struct world *world, struct batch *batch)
{
    batch->started_ns = world->now;
    batch->finished_ns = world->now;
    bool infinite = false;
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        int item = batch->engine.ids[batch->engine.start[i]] - 1;
        assert_int_equal(batch->engine.length[i], world->items[item].tokens);
        bool bad = world->items[item].kind == INFINITE;
        infinite |= bad;
        batch->engine.output[i * DIM] = bad ? 1e30f * 1e30f : (float)item;
        batch->engine.output[i * DIM + 1] = (float)item + 0.5f;
    }
    if (happens(world, world->faults.device_lost))
        batch->status = STATUS_DEVICE_LOST;
    else if (batch->engine.rows > 1 && batch->engine.extent > world->memory)
        batch->status = STATUS_NO_MEMORY;
    else if (holds_kind(world, batch, GUILTY) || flaky_now(world, batch))
        batch->status = STATUS_INTERNAL;
    else
        batch->status = infinite ? STATUS_NON_FINITE : STATUS_OK;
}

/* The reply says which item it is of, so that a mixed-up vector is seen. */
static inline void run_format(struct request *request)
{
    const float *output = request->rows[0].output;
    if (output[0] > 1e30f)
        request_fail(request, CODE_NON_FINITE, "not finite");
    else
        buffer_append(&request->reply, output, DIM * sizeof(float));
}

/* --- what the scripts do --- */

static inline void end_item(struct item *item, const struct request *request)
{
    item->place = GONE;
    item->ends++;
    item->outcome = request->outcome;
    item->code = request->code;
    if (request->outcome == OUTCOME_DONE) {
        float value[DIM];
        assert_int_equal(request->reply.length, sizeof(value));
        memcpy(value, request->reply.data, sizeof(value));
        assert_true(value[0] == (float)index_of(request) && value[1] == (float)index_of(request) + 0.5f);
    }
}

static inline void settle_one(struct world *world, struct peer *peer, struct request *request)
{
    struct item *item = item_of_entry(world, request->entry);
    assert_int_equal(request->state, REQUEST_SETTLING);
    if (item == NULL || (item->owner != peer->name && request->outcome != OUTCOME_DONE)) {
        request->verdict = VERDICT_LATE;
    } else if (request->outcome == OUTCOME_DEFER) {
        assert_int_equal(request->attempt, item->attempt);
        assert_true(request->due_ms > 0);
        item->place = LATER;
        item->attempt++;
        item->due = world->now + request->due_ms * NS_PER_MS;
        item->lonely_runs = 0;
        item->lonely_by = NOBODY;
    } else {
        end_item(item, request);
    }
}

static inline void run_settle(struct world *world, struct peer *peer, struct call *call)
{
    for (struct request *request = call->action.requests.first; request != NULL; request = request->next)
        if (happens(world, world->faults.again))
            request->verdict = VERDICT_AGAIN;
        else
            settle_one(world, peer, request);
}

static inline void run_charge(struct world *world, struct peer *peer, struct request *request)
{
    struct item *item = item_of_entry(world, request->entry);
    if (item == NULL || item->owner != peer->name) {
        request->verdict = VERDICT_LATE;
        return;
    }
    if (item->lonely_by != peer->name)
        item->lonely_runs++;
    item->lonely_by = peer->name;
    request->lonely_runs = (uint32_t)item->lonely_runs;
}

static inline void take(struct world *world, struct call *call, struct peer *peer, int index)
{
    world->items[index].place = PENDING;
    world->items[index].owner = peer->name;
    call->got[call->got_count++] = index;
}

static inline void run_read(struct world *world, struct peer *peer, struct call *call)
{
    for (int i = 0; i < world->added && call->got_count < (int)call->action.read.counts[CLASS_NORMAL]; i++)
        if (world->items[i].place == IN_STREAM)
            take(world, call, peer, i);
}

/* In the order of entry ids, as Redis lists them. */
static inline void run_read_own(struct world *world, struct peer *peer, struct call *call)
{
    uint64_t after = call->action.read.after.ms;
    while (call->action.read.class == CLASS_NORMAL && call->got_count < (int)call->action.read.count) {
        int next = -1;
        for (int i = 0; i < world->added; i++)
            if (world->items[i].place == PENDING && world->items[i].owner == peer->name &&
                world->items[i].entry > after && (next < 0 || world->items[i].entry < world->items[next].entry))
                next = i;
        if (next < 0)
            break;
        call->got[call->got_count++] = next;
        after = world->items[next].entry;
    }
    call->more = call->got_count > 0 && call->got_count == (int)call->action.read.count;
}

static inline void run_reclaim(struct world *world, struct peer *peer, struct call *call)
{
    for (int i = 0; i < world->added && call->action.read.class == CLASS_NORMAL; i++) {
        struct item *item = &world->items[i];
        bool mine = item->owner == peer->name;
        bool takes = item->owner == RELEASED || (call->action.read.judge && !alive(world, item->owner));
        if (item->place != PENDING || mine || !takes)
            continue;
        if (call->got_count == (int)call->action.read.count) {
            call->more = true;
            return;
        }
        world->counts.reclaimed += item->owner != RELEASED;
        call->got[call->got_count] = item->owner == RELEASED ? i : i + ITEMS; /* + ITEMS: from a dead one */
        item->owner = peer->name;
        call->got_count++;
    }
}

static inline void run_promote(struct world *world, struct call *call)
{
    call->next_due_ms = UINT64_MAX;
    for (int i = 0; i < world->added; i++) {
        struct item *item = &world->items[i];
        if (item->place != LATER)
            continue;
        if (item->due <= world->now) {
            item->place = IN_STREAM;
            item->entry = world->next_entry++;
        } else {
            uint64_t in_ms = (item->due - world->now) / NS_PER_MS + 1;
            call->next_due_ms = in_ms < call->next_due_ms ? in_ms : call->next_due_ms;
        }
    }
}

static inline void run_release(struct world *world, struct peer *peer, struct call *call)
{
    for (struct request *request = call->action.requests.first; request != NULL; request = request->next) {
        struct item *item = item_of_entry(world, request->entry);
        if (item == NULL || item->owner != peer->name)
            continue;
        item->owner = RELEASED;
        if (item->lonely_by == peer->name) { /* this run of it has crashed nobody */
            item->lonely_by = NOBODY;
            item->lonely_runs--;
        }
    }
    for (int i = 0; call->action.last && i < world->added; i++)
        if (world->items[i].place == PENDING && world->items[i].owner == peer->name)
            world->items[i].owner = RELEASED;
    if (call->action.last)
        world->alive_until[peer->name] = 0;
}

static inline void run_call(struct world *world, struct peer *peer, struct call *call)
{
    call->ran = true;
    switch (call->kind) {
    case ACTION_READ:
        run_read(world, peer, call);
        break;
    case ACTION_READ_OWN:
        run_read_own(world, peer, call);
        break;
    case ACTION_RECLAIM:
        run_reclaim(world, peer, call);
        break;
    case ACTION_SETTLE:
        run_settle(world, peer, call);
        break;
    case ACTION_CHARGE:
        run_charge(world, peer, call->action.requests.first);
        break;
    case ACTION_RENEW:
        call->held = alive(world, peer->name);
        if (call->held)
            world->alive_until[peer->name] = world->now + LEASE_MS * NS_PER_MS;
        break;
    case ACTION_PROMOTE:
        run_promote(world, call);
        break;
    case ACTION_RELEASE:
        run_release(world, peer, call);
        break;
    case ACTION_SUBMIT:
        run_batch(world, call->action.batch);
        break;
    case ACTION_PREPARE:
        for (struct request *request = call->action.requests.first; request != NULL; request = request->next)
            run_prepare(world, request);
        break;
    case ACTION_FORMAT:
        for (struct request *request = call->action.requests.first; request != NULL; request = request->next)
            run_format(request);
        break;
    default:
        break;
    }
}

#endif

/* Thousands of histories of three workers on one queue, with everything that producers and operators may ask for, and
 * with kills, broken connections, lost answers, pauses past the lease, restarts of Redis, drains, failing batches,
 * hanging and poisonous texts; then a calm phase in which everything must come to its end.
 *
 * SLUICE_FAULT_SCALE=x runs x times as many, SLUICE_SEED=n one history, SLUICE_VERBOSE names the seeds.
 *
 * ctest-cost: 25 */
#include "world.h"

/* --- what happens to the world --- */

static void lose(struct item *item)
{
    if (item->place == IN_STREAM && item->deleted && item->owner == NOBODY) {
        item->place = GONE; /* no worker can know of it any more: the operator has ended it */
    }
}

/* The group is destroyed and made again at 0: unfinished entries are delivered once more, to any worker. */
static void regroup(void)
{
    for (int i = 0; i < world.added; i++) {
        if (world.items[i].place == IN_STREAM) {
            world.items[i].read = false;
            world.items[i].owner = NOBODY;
            lose(&world.items[i]);
        }
    }
    world.counts.regroups++;
}

static void restart_redis(void)
{
    memset(world.alive_until, 0, sizeof(world.alive_until));
    for (int i = 0; i < WORKERS; i++) {
        if (world.peers[i].connected && world.peers[i].paused_until <= world.now) {
            disconnect(&world.peers[i], LOSS_RESTART);
        }
    }
}

/* XDEL by hand. */
static void delete_message(void)
{
    struct item *item = world.added == 0 ? NULL : &world.items[chance((uint32_t)world.added)];
    if (item == NULL || item->place != IN_STREAM) { return; }
    item->deleted = true;
    lose(item);
}

/* XGROUP DELCONSUMER by hand: nobody holds its entries any more. */
static void delete_consumer(const struct peer *peer)
{
    for (int i = 0; i < world.added; i++) {
        if (world.items[i].place == IN_STREAM && world.items[i].owner == peer->name) {
            world.items[i].owner = NOBODY;
            lose(&world.items[i]);
        }
    }
}

/* A tool's XCLAIM, or a stream that is restored: an entry is pending under a worker's name, and nobody tells the
 * worker. */
static void misplace(const struct peer *peer)
{
    struct item *item = world.added == 0 ? NULL : &world.items[chance((uint32_t)world.added)];
    if (item == NULL || item->place != IN_STREAM || !peer->connected || item->owner == peer->name) { return; }
    item->owner = peer->name;
    item->read |= chance(2) == 0; /* or a read will deliver it as well */
    world.counts.misplaced++;
}

static void drain(struct peer *peer)
{
    if (peer->draining) { return; }
    peer->draining = true;
    step(peer, &(struct event){.kind = EVENT_DRAIN});
}

/* Loses one of several devices: its batches go on elsewhere. */
static void lose_a_device(struct peer *peer)
{
    uint32_t left = peer->devices - 1;
    int name = peer->name;
    if (left == 0) { return; }
    peer->slots = peer->slots * left / peer->devices;
    peer->batches_out = peer->batches_out * left / peer->devices;
    peer->devices = left;
    world.counts.devices_lost++;
    step(peer, &(struct event){.kind = EVENT_DEVICE_LOST,
                               .left = {.engine_slots = peer->slots, .batches_out = peer->batches_out}});
    if (!peer->exited && peer->name == name) { assert_int_equal(worker_stats(peer->worker).devices, left); }
}

static void inject_at_workers(struct peer *peer)
{
    if (happens(world.faults.kill)) { kill_peer(peer); }
    if (peer->paused_until > world.now) { /* a stopped worker receives nothing */
        return;
    }
    if (happens(world.faults.drop) && peer->connected) { disconnect(peer, LOSS_OTHER); }
    if (happens(world.faults.hang_up) && peer->connected) {
        disconnect(peer, chance(2) == 0 ? LOSS_READER : LOSS_WRITER);
    }
    if (happens(world.faults.stall)) {
        for (size_t lane = 0, first = (size_t)process_of(peer); lane < world.exclusive[first].count; lane++) {
            world.peers[first + lane].paused_until = world.now + 2 * LEASE_MS * NS_PER_MS;
        }
    }
    if (happens(world.faults.drain)) { drain(peer); }
    if (happens(world.faults.one_device_lost)) { lose_a_device(peer); }
    if (happens(world.faults.quiet)) {
        peer->quiet = chance(2) == 0;
        step(peer, &(struct event){.kind = peer->quiet ? EVENT_QUIET : EVENT_RESUME});
    }
}

/* Others write until this much of Redis is used, or delete what they have. They cannot exceed maxmemory. */
static void fill(uint32_t percent)
{
    uint64_t used = used_bytes(), wanted = world.most_bytes * percent / 100;
    if (percent == 0) {
        world.others_bytes = 0;
    } else if (wanted > used) {
        world.others_bytes += wanted - used;
    }
    world.counts.full += used_bytes() * 100 >= world.most_bytes * MEMORY_CRITICAL_PERCENT;
}

static void inject_at_redis(const struct peer *peer)
{
    if (happens(world.faults.regroup)) { regroup(); }
    if (happens(world.faults.delete_message)) { delete_message(); }
    if (happens(world.faults.delete_consumer)) { delete_consumer(peer); }
    if (happens(world.faults.misplace)) { misplace(peer); }
    if (happens(world.faults.pause)) {
        world.paused = !world.paused;
        world.counts.pauses++;
    }
    if (happens(world.faults.full)) { fill(chance(3) == 0 ? 0 : 80 + chance(21)); }
    if (happens(world.faults.cap)) {
        *(chance(4) == 0 ? &world.cap_later : &world.cap[chance(CLASS_COUNT)]) = chance(3) == 0 ? 0 : 1 + chance(8);
    }
    if (happens(world.faults.clock_jump)) {
        world.epoch_ms += chance(8000);
        world.epoch_ms -= chance(8000);
        world.counts.jumps++;
    }
    if (happens(world.faults.restart)) { restart_redis(); }
}

/* --- producers --- */

static enum kind some_kind(void)
{
    static const enum kind kinds[] = {MALFORMED, GUILTY, FLAKY, INFINITE, CANCEL, CANCEL, POISON, HANGING};
    uint32_t pick = chance(40);
    enum kind kind = pick < sizeof(kinds) / sizeof(kinds[0]) ? kinds[pick] : HEALTHY;
    if (kind == HEALTHY && chance(100) == 0) { kind = UNREADABLE; }
    if (kind == HEALTHY && world.faults.limits > 0 && chance(1000) < world.faults.limits) {
        kind = BULKY + (enum kind)chance(3);
    }
    if (kind == HEALTHY && chance(1000) < world.faults.bulky) { kind = BULKY; }
    return world.faults.gentle && (kind == POISON || kind == HANGING || kind == UNREADABLE) ? HEALTHY : kind;
}

static int some_item(int not_this)
{
    int item = (int)chance((uint32_t)world.added + 1);
    return item == world.added || item == not_this ? NOBODY : item;
}

static void wish(struct item *item)
{
    item->group = chance(8) == 0 ? (int)chance(GROUPS) : NOBODY;
    item->tenant = chance(3) == 0 ? chance(TENANTS) : 0;
    item->stubborn = chance(40) == 0;
    bool ahead = item->name_ms > redis_ms();
    if (chance(ahead ? 4 : 8) == 0) {
        item->delay_ms = 1 + chance(300);
        item->due_ms = redis_ms() + item->delay_ms;
        if (ahead) {
            item->due_ms -= item->delay_ms > 70 ? 70 : item->delay_ms - 1; /* by a clock that may be behind */
        }
    }
    if (chance(10) == 0 && !ahead) { /* else nobody knows when it begins */
        item->expires_ms = item->name_ms + 1 + chance(400);
    }
}

/* A healthy one may have the text of another, a malicious one the name of another. */
static void imitate(struct item *item)
{
    int other = some_item(world.added);
    if (item->kind != HEALTHY || other == NOBODY) { return; }
    if (chance(6) == 0 && world.items[other].kind == HEALTHY) {
        item->text = world.items[other].text;
        item->rows = world.items[other].rows;
        item->tokens = world.items[other].tokens;
    } else if (chance(20) == 0 && item->due_ms == 0 && item->expires_ms == 0 && world.items[other].kind != CANCEL) {
        item->forged = true;
        item->target = other;
    }
}

static void add_item(void)
{
    static const enum request_class classes[] = {CLASS_HIGH, CLASS_NORMAL, CLASS_NORMAL, CLASS_LOW};
    struct item *item = &world.items[world.added];
    *item = (struct item){.kind = some_kind(),
                          .class = classes[chance(4)],
                          .text = world.added,
                          .group = NOBODY,
                          .target = NOBODY,
                          .rows = chance(6) == 0 ? 1 + chance(ROWS_MAX) : 1,
                          .tokens = 2 + chance(chance(5) == 0 ? 60 : 12),
                          .unread_by = NOBODY,
                          .attempt = 1};
    if (happens(world.faults.forged_id)) {
        world.last_ms = redis_ms() + (chance(2) == 0 ? 3000 : UINT64_C(9999999999999999));
        world.counts.forged_ids++;
    }
    give_entry(item);
    item->name_ms = item->entry_ms;
    item->name_seq = item->entry_seq;
    item->bad_row = chance(item->rows);
    if (item->kind == MALFORMED) { item->rows = 1; }
    if (item->kind == CANCEL) {
        item->target = some_item(world.added);
    } else {
        wish(item);
    }
    imitate(item);
    world.added++;
}

/* --- a history --- */

/* A worker that left without having finished takes its process with it. */
static void end_worker(struct peer *peer)
{
    int process = process_of(peer);
    if (peer->unclean && world.exclusive[process].count > 1) {
        kill_peer(peer);
    } else {
        end_peer(peer);
    }
    tell_turns(process);
}

/* XADD is refused. */
static bool is_full(void)
{
    return world.most_bytes > 0 && used_bytes() >= world.most_bytes;
}

static void run_until(uint64_t end)
{
    while (world.now < end) {
        uint64_t next = end;
        while (world.gone < world.added && world.items[world.gone].place == GONE) { world.gone++; }
        for (int i = 0; i < WORKERS; i++) {
            uint64_t at = peer_time(&world.peers[i]);
            next = at < next ? at : next;
        }
        world.now = next;
        for (int i = 0; i < WORKERS; i++) { advance_peer(&world.peers[i]); }
        for (int i = 0; i < WORKERS; i++) {
            if (world.peers[i].exited) { end_worker(&world.peers[i]); }
        }
        if (world.added < ITEMS && !is_full() && !world.no_more && chance(3) == 0) { add_item(); }
        struct peer *peer = &world.peers[chance(WORKERS)];
        inject_at_workers(peer);
        inject_at_redis(peer);
        /* Above the ceiling requests still end, one at a time, and workers that start again begin with short pauses. */
        assert_true(world.most_bytes == 0 || used_bytes() <= world.most_bytes * 112 / 100);
    }
}

static bool all_gone(void)
{
    bool gone = world.added == ITEMS || world.no_more;
    for (int i = 0; i < world.added; i++) { gone &= world.items[i].place == GONE; }
    return gone;
}

static bool all_idle(void)
{
    bool idle = true;
    for (int i = 0; i < WORKERS; i++) {
        struct worker_stats stats = worker_stats(world.peers[i].worker);
        idle &= stats.held + stats.held_tokens + stats.held_bytes == 0;
    }
    return idle;
}

static bool was_cancelled(int index)
{
    bool wanted = false;
    for (int i = 0; i < world.added; i++) { wanted |= world.items[i].kind == CANCEL && world.items[i].target == index; }
    return wanted;
}

/* Returns whether a request of any kind had an end that does not depend on its kind; a poison verdict was checked when
 * it was passed. */
static bool ended_otherwise(int index)
{
    const struct item *item = &world.items[index];
    return (item->outcome == OUTCOME_CANCEL && was_cancelled(index)) ||
           (item->outcome == OUTCOME_GONE && item->deleted) ||
           (item->outcome == OUTCOME_ERROR && item->code == CODE_EXPIRED) ||
           (item->outcome == OUTCOME_ERROR && item->code == CODE_QUEUE_FULL && world.faults.cap > 0 &&
            item->kind != CANCEL) ||
           (item->outcome == OUTCOME_DEAD && item->code == CODE_INTERNAL && item->kind == FLAKY &&
            item->expires_ms != 0) || /* it would have been retried too late */
           (item->outcome == OUTCOME_DEAD && item->code == CODE_POISON);
}

static void check_end(int index)
{
    static const struct {
        enum outcome outcome;
        enum reply_code code;
    } ends[KINDS] = {
        [HEALTHY] = {OUTCOME_DONE, CODE_NONE},          [MALFORMED] = {OUTCOME_ERROR, CODE_BAD_REQUEST},
        [GUILTY] = {OUTCOME_DEAD, CODE_INTERNAL},       [FLAKY] = {OUTCOME_DONE, CODE_NONE},
        [INFINITE] = {OUTCOME_DEAD, CODE_NON_FINITE},   [POISON] = {OUTCOME_DEAD, CODE_POISON},
        [HANGING] = {OUTCOME_DEAD, CODE_POISON},        [UNREADABLE] = {OUTCOME_DEAD, CODE_POISON},
        [CANCEL] = {OUTCOME_CANCEL, CODE_NONE},         [BULKY] = {OUTCOME_DONE, CODE_NONE},
        [UNSENDABLE] = {OUTCOME_ERROR, CODE_TOO_LARGE}, [UNDELIVERABLE] = {OUTCOME_ERROR, CODE_TOO_LARGE},
    };
    const struct item *item = &world.items[index];
    assert_int_equal(item->ends, item->deleted && item->ends == 0 ? 0 : 1);
    if (item->ends == 0 || ended_otherwise(index)) { return; }
    assert_int_equal(item->outcome, ends[item->kind].outcome);
    assert_int_equal(item->code, ends[item->kind].code);
    if (item->kind == HEALTHY || item->kind == BULKY) { assert_int_equal(item->attempt, 1); }
}

/* The reply must be that of the newest of the requests that share an id. */
static void check_group(int group)
{
    const struct reply *reply = &world.replies[ITEMS + group];
    for (int i = 0; i < world.added; i++) {
        const struct item *item = &world.items[i];
        if (item->group != group || item->ends == 0) { continue; }
        assert_true(reply->there);
        assert_false(newer(item, &world.items[reply->item]));
    }
}

static void describe(void)
{
    for (int i = 0; i < world.added; i++) {
        const struct item *item = &world.items[i];
        if (item->place != GONE) {
            fprintf(stderr,
                    "item %d kind %d class %d place %d owner %d read %d deleted %d attempt %u open %d due %" PRIu64
                    " promotes %" PRIu64 " entry %" PRIu64 "\n",
                    i, item->kind, item->class, item->place, item->owner, item->read, item->deleted, item->attempt,
                    item->open_count, item->due_ms, item->promotes_ms, item->entry_seq);
        }
    }
    for (int i = 0; i < WORKERS; i++) {
        struct peer *peer = &world.peers[i];
        struct worker_stats stats = worker_stats(peer->worker);
        fprintf(stderr,
                "worker %d name %d connected %d quiet %d closed %d drains %d held %u waiting %u computing %u calls", i,
                peer->name, peer->connected, peer->quiet, peer->closed, peer->draining, stats.held, stats.waiting,
                stats.computing);
        for (int c = 0; c < peer->call_count; c++) { fprintf(stderr, " %d", peer->calls[c]->kind); }
        fprintf(stderr, "\n");
    }
}

/* Faults end here, but texts that fail, kill or hang still do so. */
static void finish(void)
{
    uint64_t limit = world.now + (world.most_bytes > 0 ? 1200 : 120) * NS_PER_S;
    world.faults.on = world.paused = false;
    world.no_more = world.most_bytes > 0 && chance(10) == 0;
    fill(world.no_more ? 100 : 0); /* it stays full: only our own writes expire */
    memset(world.cap, 0, sizeof(world.cap));
    world.cap_later = 0;
    for (int i = 0; i < WORKERS; i++) {
        world.peers[i].paused_until = 0;
        world.peers[i].quiet = false;
        step(&world.peers[i], &(struct event){.kind = EVENT_RESUME});
    }
    while (!all_gone() && world.now < limit) { run_until(world.now + 50 * NS_PER_MS); }
    if (!all_gone()) { describe(); }
    assert_true(all_gone());
    /* the longest wait of a refused settle; in a full Redis, of a request that others have ended and that waits here to
     * begin */
    limit = world.now + (world.no_more ? 250 : 12) * NS_PER_S;
    while (!all_idle() && world.now < limit) { run_until(world.now + 50 * NS_PER_MS); }
    run_until(world.now + NS_PER_S); /* nothing comes back */
    if (!all_idle()) { describe(); }
    assert_true(all_idle());
    uint64_t clean = world.counts.clean_exits;
    for (int i = 0; i < WORKERS; i++) { drain(&world.peers[i]); }
    run_until(world.now + NS_PER_S);
    assert_int_equal(world.counts.clean_exits - clean, WORKERS);
    for (int i = 0; i < world.added; i++) { check_end(i); }
    for (int group = 0; group < GROUPS; group++) { check_group(group); }
}

static struct worker_options options_for(void)
{
    uint32_t devices = 1 + chance(2), slots = devices * (1 + chance(2));
    struct worker_options options = {
        .rules = {.model_name = "m",
                  .model_id = "i",
                  .encoding = ENCODING_F32,
                  .dim = DIM,
                  .max_tokens = 64,
                  .max_text_bytes = 1000,
                  .max_inputs = 8,
                  .default_ttl_s = TTL_S,
                  .max_ttl_s = 100,
                  .error_ttl_s = 60,
                  .default_max_attempts = 4,
                  .normalize = true,
                  .truncate = true},
        .layout = chance(4) == 0 ? LAYOUT_PADDED : LAYOUT_PACKED,
        .max_batch_tokens = 40 + chance(200),
        .max_batch_rows = 1 + chance(12),
        .window_ms = 5,
        .window_fixed = chance(4) == 0,
        .devices = devices,
        .engine_slots = slots,
        .background_slots = chance(3),
        .batches_out = slots * (1 + chance(3)),
        .credit_tokens = chance(4) == 0 ? 0 : 30 + chance(500),
        .credit_bytes = 2000 + chance(100000),
        .lease_ms = LEASE_MS,
        .read_block_ms = 200,
        .backoff_ms = 20,
        .backoff_cap_ms = 500,
        .shutdown_timeout_ms = 3000,
        .compute_timeout_ms = TIMEOUT_MS,
        .sweep_ms = 500,
    };
    return options;
}

static void run_history(uint64_t seed, struct faults faults)
{
    /* A killed worker forgets its replies; in so small a Redis a few of them would be too much. */
    uint64_t most_bytes = faults.kill > 0 ? 400000 : 250000;
    struct counts counts = world.counts;
    struct actions actions = world.actions;
    world = (struct world){.now = 1000 * NS_PER_S,
                           .random = seed * 2654435761u + 12345,
                           .epoch_ms = 1000000000,
                           .next_seq = 1,
                           .most_bytes = faults.full > 0 ? most_bytes : 0,
                           .faults = faults,
                           .actions = actions,
                           .counts = counts};
    for (int i = 0; i < 4; i++) { (void)chance(2); }
    world.options = options_for();
    world.memory = 20 + chance(200);
    world.calm = !faults.on;
    world.lanes = seed % 2 == 0;
    for (int i = 0; i < WORKERS; i++) {
        world.exclusive[i] = (struct exclusive){.workers = &world.exclusive_workers[i],
                                                .count = world.lanes && i < 2 ? (size_t)(2 - 2 * i) : 1};
    }
    for (int i = 0; i < WORKERS; i++) { start(&world.peers[i]); }
    run_until(world.now + (50 + chance(1500)) * NS_PER_MS); /* the calm may find them in the middle */
    finish();
    for (int i = 0; i < WORKERS; i++) {
        struct peer *peer = &world.peers[i];
        while (peer->call_count > 0) { drop_call(peer, 0); }
        worker_close(peer->worker);
    }
}

static uint64_t scaled(uint64_t count)
{
    const char *scale = getenv("SLUICE_FAULT_SCALE");
    uint64_t much = (uint64_t)((double)count * (scale != NULL ? strtod(scale, NULL) : 1));
    return much > 0 ? much : 1;
}

static void run_histories(struct faults faults)
{
    const char *one = getenv("SLUICE_SEED");
    world = (struct world){0};
    uint64_t first = one != NULL ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one != NULL ? 1 : scaled(1000);
    for (uint64_t seed = first; seed < first + count; seed++) {
        if (getenv("SLUICE_VERBOSE") != NULL) { fprintf(stderr, "seed %" PRIu64 "\n", seed); }
        run_history(seed, faults);
    }
    actions_free(&world.actions);
}

/* A fault that never fired has tested nothing; a single history need not show them all, and a part of the histories may
 * lack what they would show fewer than five times. */
static void expect(const char *what, uint64_t seen, uint64_t least)
{
    enum { FEW = 5 };
    uint64_t enough = scaled(least);
    printf("%s %" PRIu64 "\n", what, seen);
    if (getenv("SLUICE_SEED") == NULL && (enough >= FEW || enough >= least)) { assert_true(seen >= enough); }
}

TEST(calm)
{
    run_histories((struct faults){0});
    const struct counts *counts = &world.counts;
    expect("poisoned", counts->poisoned, 500);
    expect("hangs", counts->hangs, 500);
    expect("answered unread", counts->unread, 200);
    expect("runs in groups", counts->groups, 1000);
    expect("of them crashed", counts->group_crashes, 500);
    expect("alone beside another lane", counts->alone_beside, 500);
    expect("cancelled", counts->cancelled, 200);
    expect("expired", counts->expired, 100);
    expect("parked", counts->workers.parked, 1000);
    expect("taken ahead", counts->ahead, 10);
    expect("set aside", counts->set_aside, 10);
    expect("taken from there", counts->taken_from_aside, 5);
    expect("disowned", counts->workers.disowned, 100);
    expect("newer replies kept", counts->newer_kept, 200);
    expect("rows shared", counts->workers.rows_shared, 200);
}

TEST(broken_connections)
{
    run_histories((struct faults){.on = true, .drop = 30, .restart = 3, .script_error = 30, .again = 30});
    expect("drops", world.counts.drops, 1000);
    expect("refused settles", world.counts.workers.settle_retries, 1000);
}

/* Redis closes the connection on which a reply is sent, or an entry read, that exceeds its limits: such a request is
 * answered so, and no other. A connection that ends otherwise, however often, is no evidence; one that is killed again
 * and again while all is well is, so it happens rarely here. */
TEST(limits_of_redis)
{
    run_histories((struct faults){.on = true, .limits = 100, .kill = 1, .drop = 10, .restart = 3, .hang_up = 1});
    expect("closed", world.counts.closed, 3000);
    expect("proofs", world.counts.proofs, 500);
    expect("replies too large", world.counts.unsendable, 300);
    expect("entries too large", world.counts.undeliverable, 300);
}

/* Without limits nothing is refused, whatever happens to the connections. */
TEST(large_replies_and_broken_connections)
{
    run_histories((struct faults){.on = true, .bulky = 300, .drop = 30, .restart = 5, .script_error = 10});
    expect("drops", world.counts.drops, 1000);
    assert_int_equal(world.counts.unsendable + world.counts.undeliverable, 0);
}

TEST(kills)
{
    run_histories((struct faults){.on = true, .kill = 3});
    expect("kills", world.counts.kills, 300);
    expect("reclaimed", world.counts.reclaimed, 300);
    expect("housekeepers whose time ran out", world.counts.lapsed, 100);
    expect("reclaimed by another than who found them", world.counts.found_by_another, 100);
}

/* Each chore has a guard of its own beside the token, so that two workers may do it at once without harm. */
TEST(two_housekeepers)
{
    run_histories((struct faults){
        .on = true, .kill = 1, .stall = 2, .drop = 3, .cap = 10, .delete_consumer = 2, .two_housekeepers = 700});
    expect("chores of two at once", world.counts.two_at_once, 5000);
    expect("reclaimed", world.counts.reclaimed, 100);
    expect("swept", world.counts.swept, 50);
    expect("refused", world.counts.workers.shed, 50);
}

/* A producer makes up entry ids; all later ids continue from them until the streams are set back. */
TEST(ids_of_times_to_come)
{
    run_histories((struct faults){.on = true,
                                  .kill = 1,
                                  .drop = 5,
                                  .script_error = 5,
                                  .again = 5,
                                  .pause = 1,
                                  .two_housekeepers = 200,
                                  .forged_id = 50});
    expect("forged ids", world.counts.forged_ids, 1000);
    expect("entries moved", world.counts.moved, 1000);
    expect("set back", world.counts.set_back, 500);
    expect("counted", world.counts.workers.ids_ahead, 1000);
}

TEST(pauses_past_the_lease)
{
    run_histories((struct faults){.on = true, .stall = 3});
    expect("rejoins", world.counts.rejoins, 100);
}

/* Each ends once, wherever it was before, and an entry that is merely on its way is not taken for a stray. */
TEST(entries_put_under_a_workers_name)
{
    run_histories((struct faults){.on = true,
                                  .kill = 1,
                                  .drop = 3,
                                  .stall = 1,
                                  .script_error = 3,
                                  .pause = 2,
                                  .quiet = 3,
                                  .drain = 2,
                                  .delete_message = 1,
                                  .misplace = 30});
    expect("misplaced", world.counts.misplaced, 5000);
    expect("strays", world.counts.workers.strays, 1000);
}

/* Without such a fault no worker ever finds a stray, however late answers are. */
TEST(what_is_on_its_way_is_no_stray)
{
    run_histories((struct faults){
        .on = true, .kill = 3, .stall = 1, .drain = 5, .again = 10, .pause = 2, .cap = 20, .delete_consumer = 5});
    expect("reclaimed", world.counts.reclaimed, 300);
    expect("swept", world.counts.swept, 300);
    assert_int_equal(world.counts.workers.strays, 0);
}

TEST(lost_groups)
{
    run_histories((struct faults){.on = true, .regroup = 10, .drop = 5});
    expect("regroups", world.counts.regroups, 1000);
}

TEST(drains)
{
    run_histories((struct faults){.on = true, .drain = 10, .device_lost = 5, .one_device_lost = 5});
    expect("clean exits", world.counts.clean_exits, 300);
    expect("housekeepers that gave it up", world.counts.given_up, 300);
    expect("devices lost", world.counts.devices_lost, 100);
}

/* Many deploys and many restarts in a row: nobody is charged for them. */
TEST(deploys_and_restarts_poison_nothing)
{
    run_histories((struct faults){
        .on = true, .gentle = true, .drain = 40, .restart = 20, .drop = 10, .stall = 3, .script_error = 10});
    expect("clean exits", world.counts.clean_exits, 1000);
    expect("drops", world.counts.drops, 1000);
    assert_int_equal(world.counts.poisoned, 0);
}

TEST(operators)
{
    run_histories((struct faults){.on = true,
                                  .pause = 5,
                                  .full = 5,
                                  .quiet = 5,
                                  .cap = 20,
                                  .delete_message = 5,
                                  .delete_consumer = 5,
                                  .clock_jump = 3});
    expect("pauses", world.counts.pauses, 500);
    expect("full", world.counts.full, 300);
    expect("vanished", world.counts.vanished, 100);
    expect("swept", world.counts.swept, 100);
    expect("clock jumps", world.counts.jumps, 100);
    expect("refused", world.counts.workers.shed, 100);
    expect("too many that wait", world.counts.later_full, 20);
    expect("not retried in vain", world.counts.in_vain, 10);
    expect("cancels taken by a shed", world.counts.cancels_shed, 20);
    expect("forgeries refused", world.counts.forged_shed, 5);
    expect("housekeepers that another one came before", world.counts.overtaken, 100);
}

TEST(everything)
{
    run_histories((struct faults){.on = true,
                                  .kill = 2,
                                  .drop = 10,
                                  .restart = 1,
                                  .regroup = 1,
                                  .stall = 2,
                                  .drain = 5,
                                  .script_error = 10,
                                  .again = 10,
                                  .device_lost = 2,
                                  .one_device_lost = 2,
                                  .pause = 2,
                                  .full = 2,
                                  .quiet = 2,
                                  .cap = 3,
                                  .delete_message = 1,
                                  .delete_consumer = 1,
                                  .clock_jump = 1,
                                  .misplace = 2,
                                  .forged_id = 2});
    const struct counts *counts = &world.counts;
    expect("kills", counts->kills, 200);
    expect("drops", counts->drops, 200);
    expect("rejoins", counts->rejoins, 50);
    expect("poisoned", counts->poisoned, 100);
    expect("bisected", counts->workers.batches_bisected, 100);
    expect("out of memory", counts->workers.batches_out_of_memory, 50);
}

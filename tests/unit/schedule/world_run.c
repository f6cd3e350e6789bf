/* The world in motion: processes that start and die, answers, actions checked against the contract, time. */
#include "world.h"

static bool local(enum action_kind kind)
{
    return kind == ACTION_PREPARE || kind == ACTION_SUBMIT || kind == ACTION_FORMAT;
}

static bool of_scripts(enum action_kind kind)
{
    return !local(kind) && kind != ACTION_READ && kind != ACTION_READ_OWN;
}

/* The scripts and the list of our own entries share a connection, so the answer of the list comes after theirs. */
static void answer_after_scripts(const struct peer *peer, struct call *list)
{
    for (int i = 0; i < peer->call_count; i++) {
        const struct call *call = peer->calls[i];
        if (call != list && call->ran && of_scripts(call->kind) && list->answers_at <= call->answers_at) {
            list->answers_at = call->answers_at + 1;
        }
    }
}

/* Returns whether the answer of a list has to wait for that of a script. */
static bool waits_for_scripts(const struct peer *peer, const struct call *list)
{
    bool waits = false;
    for (int i = 0; i < peer->call_count && list->kind == ACTION_LIST_OWN; i++) {
        const struct call *call = peer->calls[i];
        waits |= call->ran && of_scripts(call->kind) && call->answers_at < list->answers_at;
    }
    return waits;
}

static bool holds_unsendable(const struct call *call)
{
    const struct request *first = call->kind == ACTION_SETTLE ? call->action.requests.first : NULL;
    return first && first->lifetime.outcome == OUTCOME_DONE && item_of(first)->kind == UNSENDABLE;
}

/* An action takes effect; Redis does not receive what it refuses. */
static void run_call(struct peer *peer, struct call *call)
{
    call->ran = true;
    if (local(call->kind)) {
        run_work(call);
    } else if (!holds_unsendable(call)) {
        run_script(peer, call);
    }
    if (call->kind == ACTION_LIST_OWN) { answer_after_scripts(peer, call); }
}

/* --- processes --- */

void drop_call(struct peer *peer, int at)
{
    free(peer->calls[at]);
    peer->calls[at] = peer->calls[--peer->call_count];
}

static void new_name(struct peer *peer)
{
    peer->name = world.names++;
    assert_true(world.names < NAMES);
}

void start(struct peer *peer)
{
    struct err err;
    *peer = (struct peer){.devices = world.options.devices,
                          .slots = world.options.engine_slots,
                          .batches_out = world.options.batches_out};
    new_name(peer);
    struct worker_options options = world.options;
    options.seed = world.random;
    assert_int_equal(worker_open(&options, &peer->worker, &err), STATUS_OK);
    peer->connects_at = world.now + some_time();
    peer->wakes_at = UINT64_MAX;
}

static void add_stats(const struct peer *peer)
{
    struct worker_stats stats = worker_stats(peer->worker), *sum = &world.counts.workers;
    sum->batches_bisected += stats.batches_bisected;
    sum->batches_out_of_memory += stats.batches_out_of_memory;
    sum->settle_retries += stats.settle_retries;
    sum->disowned += stats.disowned;
    sum->parked += stats.parked;
    sum->shed += stats.shed;
    sum->rows_shared += stats.rows_shared;
    sum->released += stats.released;
    sum->ids_ahead += stats.ids_ahead;
    sum->strays += stats.strays;
}

void end_peer(struct peer *peer)
{
    int process = process_of(peer), lane = (int)(peer - world.peers) - process;
    exclusive_end(&world.exclusive[process], (size_t)lane, world.now);
    world.exclusive[process].workers[lane].told = TURN_TOGETHER;
    while (peer->call_count > 0) {
        struct call *call = peer->calls[0];
        if (!local(call->kind) && !call->ran && peer->connected && chance(2) == 0) { run_call(peer, call); }
        drop_call(peer, 0);
    }
    add_stats(peer);
    worker_close(peer->worker);
    start(peer);
}

void kill_peer(struct peer *peer)
{
    int process = process_of(peer);
    size_t count = world.exclusive[process].count;
    world.counts.kills++;
    for (size_t lane = 0; lane < count; lane++) { world.dead[world.peers[(size_t)process + lane].name] = true; }
    for (int i = 0; i < world.added; i++) {
        for (int g = 0; g < world.items[i].group_count && world.items[i].place == IN_STREAM; g++) {
            world.counts.group_crashes += world.items[i].groups[g] == peer->name;
        }
    }
    for (size_t lane = 0; lane < count; lane++) { end_peer(&world.peers[(size_t)process + lane]); }
}

static void connect_peer(struct peer *peer)
{
    peer->connected = true;
    peer->lease_lost = false;
    peer->pulsed = peer->housekeeper = false;
    peer->connects_at = UINT64_MAX;
    world.alive_until[peer->name] = world.now + LEASE_MS * NS_PER_MS;
    peer->judges_at = world.now + LEASE_MS * NS_PER_MS;
    enum loss loss = peer->loss;
    peer->loss = LOSS_OTHER;
    step(peer, &(struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_ms(), .loss = loss}});
}

/* --- entries as a worker reads them --- */

enum { FIELDS_PUT = 16, TEXT_PUT = 48 };

struct written {
    struct entry_field fields[FIELDS_PUT];
    char names[FIELDS_PUT][16], values[FIELDS_PUT][TEXT_PUT];
    size_t count;
};

static void PRINTF_LIKE(3, 4) put(struct written *to, const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    assert_true(to->count < FIELDS_PUT);
    snprintf(to->names[to->count], sizeof(to->names[0]), "%s", name);
    vsnprintf(to->values[to->count], sizeof(to->values[0]), format, args);
    va_end(args);
    to->fields[to->count] = (struct entry_field){to->names[to->count], strlen(to->names[to->count]),
                                                 to->values[to->count], strlen(to->values[to->count])};
    to->count++;
}

static void put_texts(struct written *to, const struct item *item)
{
    char inputs[TEXT_PUT] = "[";
    if (item->rows == 1) {
        put(to, item->kind == MALFORMED ? "txet" : "text", "%d", item->text);
        return;
    }
    for (uint32_t i = 0; i < item->rows; i++) {
        snprintf(inputs + strlen(inputs), sizeof(inputs) - strlen(inputs), "%s\"%d.%u\"", i > 0 ? "," : "", item->text,
                 i);
    }
    put(to, "inputs", "%s]", inputs);
}

static void put_name(struct written *to, const char *field, const struct item *item)
{
    static const char *const prefixes[CLASS_COUNT] = {"high:", "", "low:"};
    put(to, field, "%s%" PRIu64 "-%" PRIu64, prefixes[item->class], item->name_ms, item->name_seq);
}

static void write_fields(const struct item *item, bool unread, struct written *to)
{
    to->count = 0;
    if (unread) {
        if (item->promoted) { put_name(to, "_id", item); }
        if (item->group != NOBODY) { put(to, "id", "group%d", item->group); }
        return;
    }
    if (item->promoted) {
        put_name(to, "_id", item);
        put(to, "_attempt", "%u", item->attempt);
        put(to, "_first_at", "%" PRIu64, item->first_ms);
    } else if (item->forged) {
        put_name(to, "_id", &world.items[item->target]);
        put(to, "_attempt", "9");
    }
    if (item->kind == CANCEL) {
        if (item->target == NOBODY) {
            put(to, "cancel", "7-7");
        } else {
            put_name(to, "cancel", &world.items[item->target]);
        }
        return;
    }
    put_texts(to, item);
    put(to, "max_attempts", "3");
    if (item->group != NOBODY) { put(to, "id", "group%d", item->group); }
    if (item->tenant != 0) { put(to, "tenant", "t%u", item->tenant); }
    if (item->delay_ms != 0) { put(to, "delay", "%" PRIu64, item->delay_ms); }
    if (item->expires_ms != 0) { put(to, "expires_in", "%" PRIu64, item->expires_ms - item->name_ms); }
}

static struct entry entry_of(const struct call *call, int i, struct written *to)
{
    const struct item *item = &world.items[call->got[i]];
    if (call->kind == ACTION_READ_OWN && call->action.read.own == OWN_IDS) {
        return (struct entry){.class = item->class, .id = {item->entry_ms, item->entry_seq}};
    }
    write_fields(item, call->unread[i], to);
    return (struct entry){.class = item->class,
                          .id = {item->entry_ms, item->entry_seq},
                          .origin = call->origins[i],
                          .quarantine_runs = call->quarantine_runs[i],
                          .group_run = call->group_run[i],
                          .urgent = call->urgent[i],
                          .unread = call->unread[i],
                          .vanished = item->deleted,
                          .fields = to->fields,
                          .field_count = item->deleted ? 0 : to->count};
}

/* Returns whether the call brings a text that kills every worker that reads it. */
static bool kills_reader(const struct peer *peer, const struct call *call)
{
    bool kills = false;
    if (call->kind == ACTION_READ_OWN && call->action.read.own != OWN_ENTRIES) { return false; }
    for (int i = 0; i < call->got_count && !call->failed && !peer->draining && !peer->exited; i++) {
        struct item *item = &world.items[call->got[i]];
        if (call->unread[i]) { item->unread_by = peer->name; }
        kills |= item->kind == UNREADABLE && item->unread_by != peer->name && !item->deleted;
    }
    return kills;
}

static void answer_entries(struct peer *peer, struct call *call)
{
    if (kills_reader(peer, call)) {
        kill_peer(peer);
        return;
    }
    static struct entry entries[ITEMS];
    static struct written written[ITEMS];
    static const enum read_source sources[] = {
        [ACTION_READ] = READ_NEW,  [ACTION_READ_OWN] = READ_OWN, [ACTION_RECLAIM] = READ_RECLAIM,
        [ACTION_SHED] = READ_SHED, [ACTION_FAIR] = READ_FAIR,    [ACTION_SWEEP] = READ_SWEEP,
    };
    struct event event = {.kind = EVENT_ENTRIES, .failed = call->failed};
    event.entries.source = sources[call->kind];
    event.entries.class = call->kind == ACTION_READ ? CLASS_HIGH : call->action.read.class;
    event.entries.last = call->last;
    event.entries.first = call->first;
    for (int i = 0; i < call->got_count && !call->failed; i++) {
        entries[i] = entry_of(call, i, &written[i]);
        if (call->kind == ACTION_READ_OWN) { event.entries.last = entries[i].id; }
    }
    event.entries.entries = entries;
    event.entries.count = call->failed ? 0 : (size_t)call->got_count;
    event.entries.more = call->more;
    step(peer, &event);
}

/* --- answers --- */

static bool brings_entries(enum action_kind kind)
{
    return kind == ACTION_READ || kind == ACTION_READ_OWN || kind == ACTION_RECLAIM || kind == ACTION_SHED ||
           kind == ACTION_FAIR || kind == ACTION_SWEEP;
}

/* A lonely run ends when Redis has answered its settle, or when it never began. */
static void quarantine_ended(struct peer *peer, const struct call *call)
{
    for (const struct request *request = call->action.requests.first; request != NULL; request = request->next) {
        if (request == peer->lonely && !call->failed &&
            (call->kind != ACTION_RECORD_RUN || request->lifetime.verdict == VERDICT_LATE)) {
            peer->lonely = NULL;
        } else if (request == peer->lonely && !call->failed && call->kind == ACTION_RECORD_RUN) {
            peer->charged = request->lifetime.verdict == VERDICT_DONE;
        }
    }
}

static void hear_pulse(struct peer *peer, const struct call *call)
{
    peer->pulsed = true;
    if (call->failed) { return; }
    peer->closed = call->pulse.paused;
    peer->critical =
        call->pulse.used_bytes * 100 >= call->pulse.most_bytes * MEMORY_CRITICAL_PERCENT && call->pulse.most_bytes > 0;
    peer->housekeeper = call->pulse.housekeeper;
    if (call->pulse.command == EVENT_QUIET || call->pulse.command == EVENT_RESUME) {
        peer->quiet = call->pulse.command == EVENT_QUIET;
    }
    peer->draining |= call->pulse.command == EVENT_DRAIN;
}

static void answer(struct peer *peer, struct call *call)
{
    static const enum event_kind events[] = {
        [ACTION_PREPARE] = EVENT_PREPARED,    [ACTION_FORMAT] = EVENT_FORMATTED,
        [ACTION_SETTLE] = EVENT_SETTLED,      [ACTION_RECORD_RUN] = EVENT_RUN_RECORDED,
        [ACTION_RENEW] = EVENT_LEASE,         [ACTION_PROMOTE] = EVENT_PROMOTED,
        [ACTION_RELEASE] = EVENT_RELEASED,    [ACTION_SUBMIT] = EVENT_BATCH,
        [ACTION_PULSE] = EVENT_PULSE,         [ACTION_MEND] = EVENT_MENDED,
        [ACTION_LIST_OWN] = EVENT_OWN_LISTED,
    };
    if (brings_entries(call->kind)) {
        answer_entries(peer, call);
        return;
    }
    struct event event = {.kind = events[call->kind], .failed = call->failed};
    if (call->kind == ACTION_SUBMIT) {
        event.batch = call->action.batch;
    } else if (call->kind == ACTION_RENEW) {
        event.lease_held = call->held;
        peer->lease_lost |= !call->failed && !call->held;
    } else if (call->kind == ACTION_PROMOTE) {
        event.promoted.next_due_in_ms = call->next_due_ms;
    } else if (call->kind == ACTION_MEND) {
        event.mended.changed = call->changed;
        event.mended.more = call->more;
    } else if (call->kind == ACTION_LIST_OWN) {
        event.own = &call->own;
    } else if (call->kind == ACTION_PULSE) {
        event.pulse = call->pulse;
        hear_pulse(peer, call);
    } else {
        event.requests = call->action.requests;
        if (!local(call->kind)) { quarantine_ended(peer, call); }
    }
    step(peer, &event);
}

void disconnect(struct peer *peer, enum loss loss)
{
    peer->loss = loss;
    struct call *broken[CALLS];
    int count = 0, name = peer->name;
    for (int i = 0; i < peer->call_count;) {
        if (local(peer->calls[i]->kind)) {
            i++;
            continue;
        }
        broken[count++] = peer->calls[i];
        peer->calls[i] = peer->calls[--peer->call_count];
    }
    world.counts.drops++;
    peer->connected = false;
    for (int i = 0; i < count; i++) {
        bool alive_still = peer->name == name && !peer->exited; /* a step may have started a poison text */
        if (alive_still && !broken[i]->ran && chance(2) == 0) { run_call(peer, broken[i]); }
        broken[i]->failed = true;
        if (alive_still) { answer(peer, broken[i]); }
        free(broken[i]);
    }
    if (peer->name != name || peer->exited) { return; }
    step(peer, &(struct event){.kind = EVENT_DISCONNECTED});
    peer->connects_at = world.now + (chance(4) == 0 ? 2 * LEASE_MS * NS_PER_MS : some_time());
}

/* Which of the two connections Redis closes over what a call sends or brings; LOSS_OTHER: none. */
static enum loss closes(const struct call *call)
{
    bool own = call->kind == ACTION_READ_OWN, reads = own || call->kind == ACTION_READ, brings = false;
    for (int i = 0; i < call->got_count && !(own && call->action.read.own != OWN_ENTRIES); i++) {
        const struct item *item = &world.items[call->got[i]];
        brings |= item->kind == UNDELIVERABLE && !item->deleted && !call->unread[i];
    }
    if (brings) { return reads ? LOSS_READER : LOSS_WRITER; }
    return holds_unsendable(call) ? LOSS_WRITER : LOSS_OTHER;
}

/* --- actions, each checked against the contract --- */

static int out(const struct peer *peer, enum action_kind kind)
{
    int count = 0;
    for (int i = 0; i < peer->call_count; i++) { count += peer->calls[i]->kind == kind; }
    return count;
}

static void check_lists(const struct action *action, uint32_t most)
{
    size_t bytes = 0;
    uint32_t count = 0, refused = 0;
    for (const struct request *request = action->requests.first; request != NULL; request = request->next) {
        bytes += request->output.reply.length > 32 * 1024 ? 288 * 1024 : request->output.reply.length; /* goes alone */
        refused += request->lifetime.refusals > 0;
        count++;
    }
    assert_int_equal(count, action->requests.count);
    assert_in_range(count, action->kind == ACTION_RELEASE ? 0 : 1, most);
    if (action->kind == ACTION_SETTLE) {
        assert_true(count == 1 || (bytes <= 288 * 1024 && refused == 0)); /* a refused one goes alone */
    }
}

/* A reply that was sent when the connection was lost is sent again with nothing else that may be to blame. */
static void check_proof(const struct peer *peer, const struct action *action)
{
    static const enum action_kind claims[] = {ACTION_RECLAIM, ACTION_SHED, ACTION_FAIR, ACTION_SWEEP, ACTION_MEND};
    if (action->requests.first->lifetime.cuts == 0) { return; }
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) { assert_int_equal(out(peer, claims[i]), 0); }
    for (int i = 0; i < peer->call_count; i++) {
        const struct call *call = peer->calls[i];
        assert_true(call->kind != ACTION_SETTLE || call->action.requests.first->output.reply.length < BULK_BYTES);
    }
    world.counts.proofs++;
}

/* Asserts that in this process no call is out that brings or works on requests, except for batches of this worker if
 * `batches`. */
static void check_alone(const struct peer *peer, bool batches)
{
    static const enum action_kind kinds[] = {ACTION_READ,  ACTION_READ_OWN, ACTION_RECLAIM, ACTION_SHED,  ACTION_FAIR,
                                             ACTION_SWEEP, ACTION_PREPARE,  ACTION_FORMAT,  ACTION_SUBMIT};
    int process = process_of(peer);
    assert_int_equal(peer->turn, TURN_EXCLUSIVE);
    for (size_t lane = 0; lane < world.exclusive[process].count; lane++) {
        const struct peer *other = &world.peers[(size_t)process + lane];
        world.counts.alone_beside += other != peer && other->connected;
        assert_true(other == peer || other->turn == TURN_REST);
        for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
            if (kinds[i] != ACTION_SUBMIT || other != peer || !batches) { assert_int_equal(out(other, kinds[i]), 0); }
        }
    }
}

static bool on_record(const struct item *item, int name)
{
    bool is = false;
    for (int i = 0; i < item->group_count; i++) { is |= item->groups[i] == name; }
    return is;
}

/* While a suspect runs alone nothing else may start, and it starts only charged and with nothing else running. Any
 * other suspect starts only when its run in a group is on record. */
static void check_lonely(struct peer *peer, const struct request *request)
{
    const struct item *item = item_of(request);
    if (peer->lonely != NULL && peer->lonely->lifetime.state == REQUEST_LEAVING) { peer->lonely = NULL; }
    if (!request->retry.quarantined) {
        assert_null(peer->lonely);
        assert_true(peer->turn != TURN_EXCLUSIVE);
        if (request->retry.suspect && item->owner == peer->name && item->entry_seq == request->identity.entry.seq) {
            assert_true(on_record(item, peer->name));
        }
        return;
    }
    check_alone(peer, true);
    assert_ptr_equal(peer->lonely, request);
    assert_true(peer->charged);
    assert_int_equal(out(peer, ACTION_PREPARE), 0);
    for (int i = 0; i < peer->call_count;
         i++) { /* halves of a failed batch of its own rows may run beside each other */
        if (peer->calls[i]->kind == ACTION_SUBMIT) {
            assert_ptr_equal(peer->calls[i]->action.batch->rows[0]->request, request);
        }
    }
}

/* Nothing starts before it is due or after it has expired, by a clock that may be as old as the last pulse's answer. */
static void check_time(const struct request *request)
{
    const struct item *item = &world.items[index_of(request)];
    uint64_t now_ms = redis_ms();
    if (world.faults.clock_jump > 0) { return; }
    assert_true(item->due_ms <= now_ms);
    assert_true(item->expires_ms == 0 || now_ms <= item->expires_ms + 70 + (world.faults.stall > 0 ? 2 * LEASE_MS : 0));
}

/* The number of batches out that run in spare time, or not, as this one does. */
static int out_alike(const struct peer *peer, const struct batch *batch)
{
    int count = 0;
    for (int i = 0; i < (int)peer->call_count; i++) {
        const struct call *call = peer->calls[i];
        count += call->kind == ACTION_SUBMIT && call->action.batch->background == batch->background;
    }
    return count;
}

static void check_batch(struct peer *peer, const struct batch *batch)
{
    uint64_t most = world.options.max_batch_tokens;
    assert_in_range(out_alike(peer, batch), 0,
                    (batch->background ? world.options.background_slots : peer->batches_out) - 1);
    assert_true(batch->engine.rows == 1 || batch->engine.extent <= most);
    assert_in_range(batch->engine.rows, 1, world.options.max_batch_rows);
    for (uint32_t i = 0; i < batch->engine.rows; i++) {
        for (const struct row *row = batch->rows[i]; row != NULL; row = row->duplicates) {
            const struct item *item = item_of(row->request);
            assert_int_equal(text_token(item, index_of_row(row)), batch->engine.ids[batch->engine.start[i]]);
            check_lonely(peer, row->request);
            assert_true(!batch->background || row->request->identity.class == CLASS_LOW);
            if (row->request->lifetime.started_ns == world.now) { check_time(row->request); }
        }
    }
}

struct sums {
    uint64_t tokens[CLASS_COUNT];
    uint32_t count[CLASS_COUNT];
};

static void sum_up(void *context, const struct request *request)
{
    struct sums *sums = context;
    sums->tokens[request->identity.class] += request->identity.origin == ORIGIN_FAIR ? 0 : request->tokens;
    sums->count[request->identity.class] += request->identity.origin != ORIGIN_FAIR;
}

static void check_read(struct peer *peer, const struct action *action)
{
    struct sums sums = {{0}, {0}};
    uint64_t low = (uint64_t)peer->batches_out * world.options.max_batch_tokens;
    (void)worker_each_held(peer->worker, UINT32_MAX, &sums, sum_up);
    assert_int_equal(out(peer, ACTION_READ) + out(peer, ACTION_READ_OWN), 0);
    assert_true(action->read.counts[0] + action->read.counts[1] + action->read.counts[2] > 0);
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint64_t credit = (uint64_t)peer->devices * world.options.credit_tokens;
        credit = credit == 0 ? UINT64_MAX : credit; /* a second's work: test_worker_pace tests how much that is */
        credit = c == CLASS_LOW && low < credit ? low : credit;
        if (action->read.counts[c] > 0) { assert_true(sums.count[c] == 0 || sums.tokens[c] < credit); }
        assert_in_range(action->read.counts[c], 0, peer->critical ? 16 : READ_CAP / CLASS_COUNT);
    }
}

/* Asserts that a worker that drains, has lost its lease, is quiet, or knows that the queue is closed claims nothing. */
static void check_claims(const struct peer *peer)
{
    assert_true(peer->pulsed && !peer->closed && !peer->quiet && !peer->draining && !peer->lease_lost);
    assert_int_equal(peer->turn, TURN_TOGETHER);
}

/* Asserts that it is the housekeeper. Two may be for a moment: the earlier one may not know yet that its time is over.
 */
static void check_housekeeper(const struct peer *peer)
{
    assert_true(peer->housekeeper);
    for (int i = 0; i < WORKERS; i++) {
        const struct peer *other = &world.peers[i];
        world.counts.two_at_once += other != peer && other->connected && other->housekeeper;
    }
}

/* What a worker must be, and what must not be out beside it, for an action to be allowed. */
static void check_rules(const struct peer *peer, const struct action *action)
{
    static const struct {
        bool claims, house, together, alive, one;
    } rules[ACTION_EXIT + 1] = {
        [ACTION_READ] = {.claims = true},
        [ACTION_READ_OWN] = {.together = true},
        [ACTION_RECLAIM] = {.claims = true, .one = true},
        [ACTION_SWEEP] = {.claims = true, .house = true, .one = true},
        [ACTION_FAIR] = {.claims = true, .house = true, .one = true},
        [ACTION_PROMOTE] = {.claims = true, .one = true},
        [ACTION_MEND] = {.house = true, .alive = true, .one = true}, /* it brings nothing: one may be running alone */
        [ACTION_SHED] = {.house = true, .together = true, .alive = true, .one = true},
        [ACTION_LIST_OWN] = {.one = true},
        [ACTION_PULSE] = {.one = true},
        [ACTION_RENEW] = {.one = true},
    };
    if (rules[action->kind].house) { check_housekeeper(peer); }
    if (rules[action->kind].claims) { check_claims(peer); }
    if (rules[action->kind].together) { assert_int_equal(peer->turn, TURN_TOGETHER); }
    if (rules[action->kind].alive) { assert_false(peer->draining || peer->quiet || peer->lease_lost); }
    if (rules[action->kind].one) { assert_int_equal(out(peer, action->kind), 0); }
}

static void check_action(struct peer *peer, const struct action *action)
{
    bool redis = !local(action->kind) && action->kind != ACTION_EXCLUSIVE && action->kind != ACTION_TOGETHER;
    const struct request *first = action->requests.first;
    if (redis && action->kind != ACTION_EXIT) { assert_true(peer->connected); }
    check_rules(peer, action);
    switch (action->kind) {
    case ACTION_READ:
        check_read(peer, action);
        break;
    case ACTION_READ_OWN:
        assert_int_equal(out(peer, ACTION_READ) + out(peer, ACTION_READ_OWN), 0);
        break;
    case ACTION_RECLAIM:
        assert_true(!action->read.judge || world.now >= peer->judges_at);
        if (action->read.judge) { check_housekeeper(peer); }
        break;
    case ACTION_FAIR:
        assert_false(peer->critical);
        break;
    case ACTION_PROMOTE:
        assert_true(peer->housekeeper || peer->parked);
        break;
    case ACTION_SUBMIT:
        check_batch(peer, action->batch);
        break;
    case ACTION_PREPARE:
        check_lists(action, 64);
        for (const struct request *request = first; request != NULL; request = request->next) {
            check_lonely(peer, request);
        }
        assert_true(peer->turn == (first->retry.quarantined ? TURN_EXCLUSIVE : TURN_TOGETHER));
        break;
    case ACTION_FORMAT:
        check_lists(action, 64);
        break;
    case ACTION_SETTLE:
        check_lists(action, 64);
        check_proof(peer, action);
        assert_in_range(out(peer, ACTION_SETTLE), 0, 4); /* the fifth is for a request that Redis had refused */
        break;
    case ACTION_RECORD_RUN:
        if (peer->lonely != NULL && peer->lonely->lifetime.state == REQUEST_LEAVING) { peer->lonely = NULL; }
        assert_true(peer->lonely == NULL || peer->lonely == first);
        if (first->retry.quarantined) { check_alone(peer, false); }
        check_lists(action, first->retry.quarantined ? 1 : 64);
        for (const struct request *request = first; request != NULL; request = request->next) {
            assert_true(request->retry.suspect && request->retry.quarantined == first->retry.quarantined);
        }
        break;
    case ACTION_RELEASE:
        check_lists(action, 64);
        assert_true(!action->last || (worker_stats(peer->worker).held == 0 && peer->call_count == 0));
        break;
    case ACTION_REJOIN:
        assert_int_equal(worker_stats(peer->worker).held, 0);
        assert_int_equal(peer->call_count, 0);
        break;
    case ACTION_LIST_OWN:
        assert_true(peer->pulsed && !peer->closed && !peer->draining && !peer->lease_lost);
        break;
    case ACTION_UNBLOCK:
        assert_int_equal(out(peer, ACTION_READ), 1);
        break;
    default:
        break;
    }
}

static void enqueue_call(struct peer *peer, const struct action *action)
{
    assert_true(peer->call_count < CALLS);
    struct call *call = calloc(1, sizeof(*call));
    assert_non_null(call);
    call->kind = action->kind;
    call->action = *action;
    call->runs_at = world.now + some_time();
    call->answers_at = call->runs_at + some_time();
    call->failed = !local(action->kind) && happens(world.faults.script_error);
    if (action->kind == ACTION_RECORD_RUN && action->requests.first->retry.quarantined) {
        peer->lonely = action->requests.first;
        peer->charged = false;
    }
    if (action->kind == ACTION_SUBMIT && request_of_kind(action->batch, HANGING) != NULL) {
        call->runs_at = call->answers_at = UINT64_MAX;
    }
    for (uint32_t i = 0; action->kind == ACTION_FAIR && i < action->read.enough_count; i++) {
        const char *tenant = action->read.enough[i];
        call->enough |= 1u << (tenant[0] == '\0' ? 0 : atoi(&tenant[1]));
    }
    peer->calls[peer->call_count++] = call;
}

static void unblock(struct peer *peer)
{
    if (chance(4) == 0) { /* it may be there before the read is */
        return;
    }
    for (int i = 0; i < peer->call_count; i++) {
        if (peer->calls[i]->kind == ACTION_READ && !peer->calls[i]->ran) {
            peer->calls[i]->ran = true, peer->calls[i]->answers_at = world.now + some_time();
        }
    }
}

static void rejoin(struct peer *peer)
{
    peer->connected = false;
    new_name(peer);
    peer->connects_at = world.now + some_time();
    world.counts.rejoins++;
}

/* A watchdog may end only a worker that a hanging text holds up. */
static void leave(struct peer *peer, const struct action *action)
{
    bool hangs = false;
    for (int i = 0; i < peer->call_count; i++) {
        hangs |=
            peer->calls[i]->kind == ACTION_SUBMIT && request_of_kind(peer->calls[i]->action.batch, HANGING) != NULL;
    }
    assert_true(action->exit.status != STATUS_TIMEOUT || (hangs && !action->exit.clean));
    peer->exited = true;
    peer->unclean = !action->exit.clean;
    world.counts.clean_exits += action->exit.clean;
    world.counts.hangs += action->exit.status == STATUS_TIMEOUT;
    world.dead[peer->name] |= !action->exit.clean;
}

static void execute(struct peer *peer)
{
    int process = process_of(peer);
    size_t lane = (size_t)(peer - world.peers - process);
    for (size_t i = 0; i < world.actions.count; i++) {
        struct action *action = &world.actions.items[i];
        check_action(peer, action);
        if (action->kind == ACTION_EXIT) {
            assert_int_equal(i + 1, world.actions.count);
            leave(peer, action);
        } else if (action->kind == ACTION_REJOIN) {
            rejoin(peer);
        } else if (action->kind == ACTION_UNBLOCK) {
            unblock(peer);
        } else if (action->kind == ACTION_EXCLUSIVE) {
            exclusive_ask(&world.exclusive[process], lane);
        } else if (action->kind == ACTION_TOGETHER) {
            exclusive_end(&world.exclusive[process], lane, world.now);
        } else if (action->kind == ACTION_SUBMIT && request_of_kind(action->batch, POISON) != NULL) {
            kill_peer(peer);
            return;
        } else {
            enqueue_call(peer, action);
        }
    }
}

void step(struct peer *peer, const struct event *event)
{
    if (peer->exited) { return; }
    world.actions.count = 0;
    peer->wakes_at = worker_step(peer->worker, event, world.now, &world.actions);
    assert_true(peer->wakes_at > world.now);
    execute(peer);
    tell_turns(process_of(peer));
}

static bool all_rest(int process)
{
    bool rest = true;
    for (size_t lane = 0; lane < world.exclusive[process].count; lane++) {
        rest &= worker_rests(world.peers[(size_t)process + lane].worker);
    }
    return rest;
}

void tell_turns(int process)
{
    size_t lane;
    struct event event = {.kind = EVENT_TURN};
    while (exclusive_next(&world.exclusive[process], world.now, all_rest(process), &lane, &event.turn)) {
        world.peers[(size_t)process + lane].turn = event.turn;
        step(&world.peers[(size_t)process + lane], &event);
    }
}

/* --- time --- */

static bool readable(const struct action *read)
{
    for (int i = world.gone; i < world.added; i++) {
        if (world.items[i].place == IN_STREAM && !world.items[i].read && !world.items[i].deleted &&
            read->read.counts[world.items[i].class] > 0) {
            return true;
        }
    }
    return false;
}

static uint64_t call_time(const struct call *call)
{
    if (call->ran) { return call->answers_at; }
    if (call->kind != ACTION_READ || readable(&call->action)) { return call->runs_at; }
    return call->runs_at + call->action.read.block_ms * NS_PER_MS;
}

void advance_peer(struct peer *peer)
{
    if (peer->paused_until > world.now) { return; }
    if (!peer->connected && peer->connects_at <= world.now) {
        connect_peer(peer);
        return;
    }
    for (int i = 0; i < peer->call_count; i++) {
        struct call *call = peer->calls[i];
        if (call_time(call) > world.now) { continue; }
        if (!call->ran) {
            run_call(peer, call);
            enum loss loss = closes(call);
            if (loss != LOSS_OTHER) {
                world.counts.closed++;
                disconnect(peer, loss);
                return;
            }
            if (call->answers_at < world.now) { call->answers_at = world.now; }
            continue;
        }
        if (waits_for_scripts(peer, call)) { continue; }
        peer->calls[i] = peer->calls[--peer->call_count];
        answer(peer, call);
        free(call);
        return;
    }
    if (peer->wakes_at <= world.now) {
        step(peer, &(struct event){.kind = EVENT_TICK});
    } else {
        tell_turns(process_of(peer));
    }
}

uint64_t peer_time(const struct peer *peer)
{
    uint64_t next = peer->wakes_at;
    if (!peer->connected && peer->connects_at < next) { next = peer->connects_at; }
    for (int i = 0; i < peer->call_count; i++) {
        uint64_t at = call_time(peer->calls[i]);
        next = at < next ? at : next;
    }
    uint64_t turn = exclusive_deadline(&world.exclusive[process_of(peer)]);
    next = turn < next ? turn : next;
    next = next < world.now ? world.now : next;
    return next < peer->paused_until ? peer->paused_until : next;
}

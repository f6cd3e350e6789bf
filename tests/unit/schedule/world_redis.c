/* The effects of the scripts of lua/, as far as a worker can see them. */
#include "world.h"

static bool pending(const struct item *item, const struct request *request)
{
    return item->place == IN_STREAM && item->entry_seq == request->identity.entry.seq && item->owner != NOBODY;
}

/* The name in `_id` is believed only for an item that came back from `later`. */
static bool claims_too_much(const struct item *item, const struct request *request)
{
    return request->identity.borrowed_name && !item->promoted;
}

static void uncharge(struct item *item, int name)
{
    for (int i = 0; i < item->open_count; i++) {
        if (item->open[i] == name) { item->open[i--] = item->open[--item->open_count]; }
    }
    for (int i = 0; i < item->group_count; i++) {
        if (item->groups[i] == name) { item->groups[i--] = item->groups[--item->group_count]; }
    }
}

/* A run that is over has not crashed. */
static enum verdict late(struct item *item, const struct peer *peer, const struct request *request)
{
    if (item->entry_seq == request->identity.entry.seq) { uncharge(item, peer->name); }
    return VERDICT_LATE;
}

/* --- ends --- */

bool newer(const struct item *item, const struct item *than)
{
    uint64_t ms = item->seen_ms != 0 ? item->seen_ms : item->name_ms;
    uint64_t than_ms = than->seen_ms != 0 ? than->seen_ms : than->name_ms;
    if (ms != than_ms) { return ms > than_ms; }
    if ((item->seen_ms == 0) != (than->seen_ms == 0)) { return item->seen_ms == 0; }
    return item->name_seq > than->name_seq;
}

static void write_reply(struct item *item)
{
    int index = (int)(item - world.items);
    struct reply *reply = &world.replies[item->group == NOBODY ? index : ITEMS + item->group];
    if (reply->there && newer(&world.items[reply->item], item)) {
        world.counts.newer_kept++;
        return;
    }
    *reply = (struct reply){true, index};
}

static void end_item(struct item *item, enum outcome outcome, enum reply_code code)
{
    item->place = GONE;
    item->ends++;
    item->outcome = outcome;
    item->code = code;
    item->owner = NOBODY;
    if (item->kind != CANCEL || outcome == OUTCOME_ERROR) {
        write_reply(item);
        keep(outcome == OUTCOME_DONE ? REPLY_TAKES : ERROR_TAKES);
    }
}

static void check_vectors(const struct item *item, const struct request *request)
{
    const char *at = request->output.reply.data;
    bool large = item->kind == BULKY;
    assert_int_equal(request->output.reply.length, item->rows * DIM * sizeof(float) + (large ? BULK_BYTES : 0));
    assert_int_not_equal(item->kind, UNSENDABLE);
    for (uint32_t row = 0; row < item->rows; row++, at += DIM * sizeof(float)) {
        float value[DIM], token = (float)(item->text * ROWS_MAX + (int)row + 1);
        memcpy(value, at, sizeof(value));
        assert_true(value[0] == token && value[1] == token + 0.5f);
    }
}

/* The number of lonely runs of this very entry in which a process ended, or was stopped for longer than its lease,
 * which looks the same. */
static int count_crashed(const struct item *item)
{
    int dead = 0;
    for (int i = 0; i < item->open_count; i++) { dead += world.dead[item->open[i]] || !alive(item->open[i]); }
    return dead;
}

/* A worker gets the number of open runs, and judges by it. */
static void tell(struct item *item, int name)
{
    item->claimed_by = name;
    item->crashed = count_crashed(item);
}

/* A poison verdict needs three of them, now or when this worker got their number: a stopped worker may have come back
 * since. */
static void check_poison(const struct peer *peer, const struct item *item)
{
    int dead = count_crashed(item) + item->moved_runs;
    world.counts.poisoned++;
    assert_true(!world.calm || item->kind == POISON || item->kind == HANGING || item->kind == UNREADABLE);
    if (item->unread_by == peer->name) {
        assert_in_range(item->taken, TAKEN_MAX, 20);
        world.counts.unread++;
        return;
    }
    if (item->claimed_by == peer->name && item->crashed > dead) { dead = item->crashed; }
    assert_in_range(dead, 3, 8);
}

static void check_name(const struct item *item, const struct request *request)
{
    char name[REQUEST_NAME_MAX];
    request_name_format(item->class, (struct entry_id){item->name_ms, item->name_seq}, name);
    assert_string_equal(request->identity.name, name);
    if (item->group == NOBODY) { assert_string_equal(request->identity.id, name); }
}

/* --- settle, defer, cancel --- */

static bool later_full(void)
{
    uint32_t there = 0;
    for (int i = 0; i < world.added; i++) { there += world.items[i].place == LATER; }
    return world.cap_later > 0 && there >= world.cap_later;
}

static enum verdict defer_one(struct peer *peer, struct item *item, struct request *request)
{
    if (item->deleted) { return VERDICT_GONE; }
    if (claims_too_much(item, request)) { return VERDICT_NOT_ITS_NAME; }
    if (item->owner != peer->name) {
        uncharge(item, peer->name);
        return VERDICT_LATE;
    }
    uint64_t now_ms = redis_ms(), due_ms = now_ms + request->lifetime.due_ms;
    bool retry = request->retry.code != CODE_NONE;
    if (!retry && !item->promoted && later_full()) {
        world.counts.later_full++;
        return VERDICT_LATER_FULL;
    }
    check_name(item, request);
    assert_int_equal(request->retry.attempt, item->attempt);
    assert_int_equal(request->retry.next_attempt, item->attempt + retry);
    assert_true(retry ? request->lifetime.due_ms > 0 : request->lifetime.due_at_ms != 0);
    item->place = LATER;
    item->owner = NOBODY;
    item->attempt += retry;
    item->moved_runs = 0;
    if (item->first_ms == 0) { item->first_ms = is_ahead(item->name_ms) ? now_ms : item->name_ms; }
    item->promotes_ms = request->lifetime.due_at_ms > due_ms ? request->lifetime.due_at_ms : due_ms;
    item->open_count = item->group_count = 0;
    item->taken = 0;
    return VERDICT_DONE;
}

static enum verdict cancel_one(struct item *item)
{
    struct item *target = item->target == NOBODY ? NULL : &world.items[item->target];
    bool there = target != NULL && target->place != GONE && target->kind != CANCEL && !target->deleted;
    if (there) {
        uint64_t first_ms = target->first_ms;
        if (first_ms == 0 && is_ahead(target->name_ms)) {
            target->seen_ms = 1; /* nobody knows when */
        } else {
            target->seen_ms = first_ms == 0 || first_ms == target->name_ms ? 0 : first_ms;
        }
        end_item(target, OUTCOME_CANCEL, CODE_NONE);
        world.counts.cancelled++;
    }
    end_item(item, OUTCOME_CANCEL, CODE_NONE);
    return there ? VERDICT_DONE : VERDICT_NOTHING;
}

static enum verdict end_one(struct peer *peer, struct item *item, struct request *request)
{
    bool owners = request->lifetime.outcome == OUTCOME_DEAD ||
                  (request->lifetime.outcome == OUTCOME_ERROR && request->lifetime.started_ns != 0);
    if (claims_too_much(item, request)) { return VERDICT_NOT_ITS_NAME; }
    if (owners && item->owner != peer->name) {
        uncharge(item, peer->name);
        return VERDICT_LATE;
    }
    if (request->lifetime.outcome == OUTCOME_GONE && !item->deleted) { return VERDICT_LATE; }
    if (request->lifetime.outcome == OUTCOME_GONE) {
        world.counts.vanished++;
    } else {
        check_name(item, request);
    }
    if (request->lifetime.outcome == OUTCOME_DONE) { check_vectors(item, request); }
    if (request->retry.code == CODE_POISON) { check_poison(peer, item); }
    if (request->retry.code == CODE_TOO_LARGE) {
        assert_true(item->kind == UNSENDABLE || item->kind == UNDELIVERABLE);
        ++*(item->kind == UNSENDABLE ? &world.counts.unsendable : &world.counts.undeliverable);
    }
    if (request->lifetime.outcome == OUTCOME_DEAD && request->retry.code != CODE_POISON &&
        request->retry.attempt < request->retry.max_attempts) {
        assert_true(item->expires_ms != 0);
        world.counts.in_vain++;
    }
    if (request->retry.code == CODE_EXPIRED) {
        assert_true(item->expires_ms != 0 && (redis_ms() + 1 >= item->expires_ms || world.faults.clock_jump > 0));
        world.counts.expired++;
    }
    item->seen_ms = request->identity.first_ms == item->name_ms ? 0 : request->identity.first_ms;
    end_item(item, request->lifetime.outcome, request->retry.code);
    return VERDICT_DONE;
}

static void settle_one(struct peer *peer, struct request *request)
{
    struct item *item = item_of(request);
    assert_int_equal(request->lifetime.state, REQUEST_SETTLING);
    peer->parked |= request->lifetime.outcome == OUTCOME_DEFER;
    if (happens(world.faults.again) || (item->stubborn && world.faults.on)) {
        request->lifetime.verdict = VERDICT_AGAIN;
    } else if (!pending(item, request)) {
        request->lifetime.verdict = late(item, peer, request);
    } else if (request->lifetime.outcome == OUTCOME_DEFER) {
        request->lifetime.verdict = defer_one(peer, item, request);
    } else if (request->lifetime.outcome == OUTCOME_CANCEL) {
        request->lifetime.verdict = cancel_one(item);
    } else {
        request->lifetime.verdict = end_one(peer, item, request);
    }
}

/* --- charge, release --- */

static void charge_one(struct peer *peer, struct item *item, struct request *request)
{
    uncharge(item, peer->name);
    if (!request->retry.quarantined && item->open_count + item->group_count > 0) {
        request->lifetime.verdict = VERDICT_ALONE;
        return;
    }
    item->taken = 0;
    if (!request->retry.quarantined) {
        assert_in_range(item->group_count, 0, 7);
        item->groups[item->group_count++] = peer->name;
        world.counts.groups++;
        return;
    }
    tell(item, peer->name);
    assert_in_range(item->open_count, 0, 7);
    item->open[item->open_count++] = peer->name;
    request->retry.quarantine_runs = (uint32_t)item->open_count;
}

static void run_charge(struct peer *peer, struct request *request)
{
    struct item *item = item_of(request);
    if (!pending(item, request) || item->owner != peer->name) {
        request->lifetime.verdict = late(item, peer, request);
    } else if (claims_too_much(item, request)) {
        request->lifetime.verdict = VERDICT_NOT_ITS_NAME;
    } else {
        charge_one(peer, item, request);
    }
}

static void give_up_house(int name)
{
    if (world.housekeeper == name && world.housekeeper_until > world.now) {
        world.housekeeper_until = 0;
        world.counts.given_up++;
    }
}

static void run_release(struct peer *peer, struct call *call)
{
    for (struct request *request = call->action.requests.first; request != NULL; request = request->next) {
        struct item *item = item_of(request);
        if (item->entry_seq == request->identity.entry.seq && item->place == IN_STREAM && !item->deleted) {
            uncharge(item, peer->name);
        }
        if (pending(item, request) && item->owner == peer->name && !item->deleted) { item->owner = RELEASED; }
    }
    for (int i = 0; call->action.last && i < world.added; i++) {
        if (world.items[i].owner == peer->name && !world.items[i].deleted) {
            uncharge(&world.items[i], peer->name);
            world.items[i].owner = RELEASED;
        }
    }
    if (call->action.last) {
        world.alive_until[peer->name] = 0;
        give_up_house(peer->name);
    }
}

/* --- what brings entries --- */

static void take(struct call *call, int name, int index, enum entry_origin origin)
{
    assert_true(call->got_count < ITEMS);
    if (!world.items[index].deleted) { world.items[index].owner = name; }
    if (call->kind == ACTION_RECLAIM || call->kind == ACTION_SWEEP) { /* XREADGROUP does not report it */
        call->quarantine_runs[call->got_count] = (uint32_t)world.items[index].open_count;
        call->group_run[call->got_count] = world.items[index].open_count == 0 && world.items[index].group_count > 0;
        tell(&world.items[index], name);
    }
    call->origins[call->got_count] = origin;
    call->got[call->got_count++] = index;
}

/* The entry of a class in its stream with the least id after `after`; NOBODY when there is none. */
static int next_of(enum request_class class, uint64_t after_seq)
{
    int next = NOBODY;
    for (int i = 0; i < world.added; i++) {
        const struct item *item = &world.items[i];
        if (item->place == IN_STREAM && item->class == class && item->entry_seq > after_seq &&
            (next == NOBODY || item->entry_seq < world.items[next].entry_seq)) {
            next = i;
        }
    }
    return next;
}

static void run_read(struct peer *peer, struct call *call)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint32_t left = call->action.read.counts[c];
        uint64_t after = 0;
        for (int i; left > 0 && (i = next_of((enum request_class)c, after)) != NOBODY;) {
            after = world.items[i].entry_seq;
            if (world.items[i].read || world.items[i].deleted) { continue; }
            world.items[i].read = true;
            take(call, peer->name, i, ORIGIN_NEW);
            left--;
        }
    }
}

static void run_read_own(struct peer *peer, struct call *call)
{
    uint64_t after = call->action.read.after.seq;
    int i = NOBODY;
    if (call->action.read.own == OWN_ADDRESS) { /* whichever worker has it now */
        i = world.by_seq[after];
        call->unread[0] = true;
        if (world.items[i].place == IN_STREAM && world.items[i].entry_seq == after) {
            call->origins[0] = ORIGIN_OWN;
            call->got[call->got_count++] = i;
        }
        return;
    }
    while (call->got_count < (int)call->action.read.count && (i = next_of(call->action.read.class, after)) != NOBODY) {
        after = world.items[i].entry_seq;
        if (world.items[i].owner == peer->name) { take(call, peer->name, i, ORIGIN_OWN); }
    }
    call->more = call->got_count > 0 && call->got_count == (int)call->action.read.count;
}

static void run_list_own(struct peer *peer, struct call *call)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint64_t after = call->action.after[c].seq;
        for (int i; call->own.counts[c] < OWN_LIST_MAX && (i = next_of((enum request_class)c, after)) != NOBODY;) {
            after = world.items[i].entry_seq;
            if (world.items[i].owner != peer->name) { continue; }
            call->own.ids[c][call->own.counts[c]++] = (struct entry_id){world.items[i].entry_ms, after};
        }
    }
}

static void note_left(struct left *left, int name)
{
    if (left->count < LEFT_MAX) { left->names[left->count++] = name; }
}

static bool was_found(const struct peer *peer, const struct item *item)
{
    const struct left *found = &peer->found[item->class];
    bool known = false;
    for (int i = 0; i < found->count; i++) { known |= found->names[i] == item->owner; }
    return known;
}

static void run_reclaim(struct peer *peer, struct call *call)
{
    peer->left[call->action.read.class].count = 0;
    for (int i = 0; i < world.added; i++) {
        struct item *item = &world.items[i];
        bool nobody = item->owner == RELEASED || item->owner == AHEAD, dead = !nobody && !alive(item->owner);
        bool takes = nobody || (dead && (call->action.read.judge || was_found(peer, item)));
        if (item->place != IN_STREAM || item->class != call->action.read.class || item->owner == NOBODY ||
            item->owner == peer->name || !takes) {
            continue;
        }
        bool died = dead && !item->deleted;
        bool alone = died && item->taken + 1 > TAKEN_BESIDE;
        if (call->more || call->got_count == (int)call->action.read.count || (alone && call->got_count > 0)) {
            call->more = true;
            note_left(&peer->left[item->class], item->owner);
            continue;
        }
        world.counts.reclaimed += dead;
        world.counts.found_by_another += dead && !call->action.read.judge;
        world.counts.taken_from_aside += item->owner == AHEAD;
        item->taken += died;
        call->unread[call->got_count] = alone && item->taken >= TAKEN_MAX;
        call->urgent[call->got_count] = alone && item->taken < TAKEN_MAX;
        take(call, peer->name, i, nobody ? ORIGIN_RELEASED : ORIGIN_RECLAIMED);
        call->more |= alone;
    }
}

static bool unread(const struct item *item, enum request_class class)
{
    return item->place == IN_STREAM && item->class == class && item->owner == NOBODY && !item->read && !item->deleted;
}

/* Takes cancels first, each once; then the newest unread requests, while more than the cap are left. */
static void run_shed(struct peer *peer, struct call *call)
{
    const struct action *action = &call->action;
    uint64_t waiting = 0, before = action->read.before.seq;
    int most = (int)action->read.count;
    call->last = action->read.after;
    for (int i = 0; i < world.added && call->got_count < most; i++) {
        if (unread(&world.items[i], action->read.class) && world.items[i].kind == CANCEL) {
            take(call, peer->name, i, ORIGIN_SHED);
            world.counts.cancels_shed++;
        }
    }
    for (int i = 0; i < world.added; i++) { waiting += unread(&world.items[i], action->read.class); }
    for (; call->got_count < most && waiting > action->read.cap; waiting--) {
        int newest = NOBODY;
        for (int i = 0; i < world.added; i++) {
            const struct item *item = &world.items[i];
            if (unread(item, action->read.class) && !item->promoted && item->kind != CANCEL &&
                (before == 0 || item->entry_seq < before)) {
                newest = newest == NOBODY || item->entry_seq > world.items[newest].entry_seq ? i : newest;
            }
        }
        if (newest == NOBODY) { break; }
        world.counts.forged_shed += world.items[newest].forged;
        before = world.items[newest].entry_seq;
        take(call, peer->name, newest, ORIGIN_SHED);
    }
    call->first = (struct entry_id){before > 0, before};
    call->more = call->got_count > 0 && waiting > action->read.cap;
}

static void run_fair(struct peer *peer, struct call *call)
{
    const struct action *action = &call->action;
    int looks = 8, aside = 0, i;
    call->last = action->read.after;
    while ((i = next_of(action->read.class, call->last.seq)) != NOBODY) {
        struct item *item = &world.items[i];
        bool takes = !item->read && !item->deleted && item->owner == NOBODY && (call->enough >> item->tenant & 1) == 0;
        bool full = action->read.count == 0 ? aside == 4 : call->got_count == (int)action->read.count;
        if (looks-- == 0 || (takes && full)) {
            call->more = true;
            return;
        }
        if (takes && action->read.count == 0) {
            item->owner = AHEAD;
            aside++;
            world.counts.set_aside++;
        } else if (takes) {
            take(call, peer->name, i, ORIGIN_FAIR);
            world.counts.ahead++;
        }
        call->last = (struct entry_id){item->entry_ms, item->entry_seq};
    }
}

static void run_sweep(struct peer *peer, struct call *call)
{
    const struct action *action = &call->action;
    int i;
    call->last = action->read.after;
    while ((i = next_of(action->read.class, call->last.seq)) != NOBODY) {
        struct item *item = &world.items[i];
        bool takes = item->read && item->owner == NOBODY && !item->deleted;
        if (takes && call->got_count == (int)action->read.count) {
            call->more = true;
            return;
        }
        if (takes) {
            take(call, peer->name, i, ORIGIN_RELEASED);
            world.counts.swept++;
        }
        call->last = (struct entry_id){item->entry_ms, item->entry_seq};
    }
}

/* --- promote, pulse --- */

static void run_promote(struct peer *peer, struct call *call)
{
    (void)peer;
    uint64_t now_ms = redis_ms();
    call->next_due_ms = UINT64_MAX;
    for (int i = 0; i < world.added; i++) {
        struct item *item = &world.items[i];
        if (item->place != LATER) { continue; }
        if (item->promotes_ms <= now_ms && is_ahead(world.last_ms)) { item->promotes_ms = now_ms + 20; }
        if (item->promotes_ms <= now_ms) {
            give_entry(item);
            item->promoted = true;
        } else if (item->promotes_ms - now_ms < call->next_due_ms) {
            call->next_due_ms = item->promotes_ms - now_ms;
        }
    }
}

/* Moves a few entries a call, and sets the ids back to the clock with the last one. A worker that holds a moved entry
 * computes it in vain. */
static void run_mend(struct peer *peer, struct call *call)
{
    (void)peer;
    int left = 3;
    call->more = call->changed = false;
    if (!is_ahead(world.last_ms)) { return; }
    for (int i = 0; i < world.added && !call->more; i++) {
        struct item *item = &world.items[i];
        if (item->place != IN_STREAM || item->deleted || !is_ahead(item->entry_ms)) { continue; }
        call->more = left-- == 0;
        if (call->more) { break; }
        for (int open = 0; open < item->open_count; open++) { item->moved_runs += item->open[open] == item->owner; }
        if (item->first_ms == 0) { item->first_ms = redis_ms(); }
        item->place = LATER;
        item->owner = NOBODY;
        item->promotes_ms = redis_ms();
        call->changed = true;
        world.counts.moved++;
    }
    if (!call->more) {
        world.last_ms = redis_ms();
        world.counts.set_back++;
        call->changed = true;
    }
}

/* Returns whether this worker is the housekeeper from now on. */
static bool elect(const struct peer *peer, const struct heartbeat *heartbeat)
{
    bool held = world.housekeeper_until > world.now;
    assert_true(heartbeat->elected_ms <= LEASE_MS);
    if (heartbeat->rank == RANK_NONE) {
        give_up_house(peer->name);
        return false;
    }
    if (held && world.housekeeper != peer->name && heartbeat->rank <= world.housekeeper_rank) {
        return happens(world.faults.two_housekeepers);
    }
    if (!held || world.housekeeper != peer->name) {
        world.counts.elections++;
        world.counts.lapsed += !held && world.housekeeper_until != 0;
        world.counts.overtaken += held;
    }
    world.housekeeper = peer->name;
    world.housekeeper_until = world.now + heartbeat->elected_ms * NS_PER_MS;
    world.housekeeper_rank = heartbeat->rank;
    return true;
}

static void run_pulse(struct peer *peer, struct call *call)
{
    struct pulse *pulse = &call->pulse;
    *pulse = (struct pulse){.redis_ms = redis_ms(),
                            .paused = world.paused,
                            .used_bytes = used_bytes(),
                            .most_bytes = world.most_bytes,
                            .workers = WORKERS};
    pulse->housekeeper = elect(peer, &call->action.heartbeat);
    if (!pulse->housekeeper) {
        memset(peer->left, 0, sizeof(peer->left));
    } else if (world.housekeeper == peer->name) {
        memcpy(world.left, peer->left, sizeof(world.left));
    }
    memset(peer->found, 0, sizeof(peer->found));
    if (!pulse->housekeeper && world.housekeeper_until > world.now) {
        memcpy(peer->found, world.left, sizeof(peer->found));
    }
    for (int c = 0; c < CLASS_COUNT; c++) { pulse->waiting |= peer->found[c].count > 0; }
    for (int i = 0; pulse->housekeeper && i < world.added; i++) {
        pulse->depth[world.items[i].class] += world.items[i].place == IN_STREAM && world.items[i].owner == NOBODY;
    }
    if (pulse->housekeeper) { memcpy(pulse->cap, world.cap, sizeof(pulse->cap)); }
    if (happens(world.faults.quiet)) {
        pulse->command = chance(2) == 0 ? EVENT_QUIET : EVENT_DRAIN;
    } else if (!world.faults.on || chance(2) == 0) {
        pulse->command = EVENT_RESUME;
    }
}

static void run_renew(struct peer *peer, struct call *call)
{
    call->held = alive(peer->name);
    if (call->held) { world.alive_until[peer->name] = world.now + LEASE_MS * NS_PER_MS; }
}

void run_script(struct peer *peer, struct call *call)
{
    static const struct {
        void (*run)(struct peer *peer, struct call *call);
        void (*each)(struct peer *peer, struct request *request);
    } scripts[ACTION_EXIT + 1] = {
        [ACTION_READ] = {run_read},
        [ACTION_READ_OWN] = {run_read_own},
        [ACTION_LIST_OWN] = {run_list_own},
        [ACTION_RECLAIM] = {run_reclaim},
        [ACTION_SHED] = {run_shed},
        [ACTION_FAIR] = {run_fair},
        [ACTION_SWEEP] = {run_sweep},
        [ACTION_PULSE] = {run_pulse},
        [ACTION_RENEW] = {run_renew},
        [ACTION_PROMOTE] = {run_promote},
        [ACTION_MEND] = {run_mend},
        [ACTION_RELEASE] = {run_release},
        [ACTION_SETTLE] = {.each = settle_one},
        [ACTION_RECORD_RUN] = {.each = run_charge},
    };
    if (scripts[call->kind].run) {
        scripts[call->kind].run(peer, call);
    } else if (scripts[call->kind].each) {
        for (struct request *request = call->action.requests.first; request != NULL; request = request->next) {
            scripts[call->kind].each(peer, request);
        }
    }
}

/* Reads: the number of entries to ask for in each class, the time of each read, and our own pending lists after a
 * reconnect.
 *
 * One read is out at a time, and it blocks. A blocking read of streams with entries returns at once, so a busy queue
 * never waits, and an idle one costs one call in two seconds. Each class has its own credit; a class without room is
 * left out, and a read that blocks without it is ended when the class has room. */
#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum { UNBLOCK_AGAIN_MS = 100, CREDIT_BYTES = 64 << 20, READ_BLOCK_MS = 2000 };

/* --- credit --- */

struct credit {
    double tokens, bytes;
};

uint64_t read_credit_bytes(const struct worker *worker)
{
    uint64_t bytes = worker->options.credit_bytes;
    return (bytes > 0 ? bytes : CREDIT_BYTES) * worker_devices(worker);
}

/* Bulk work waits in Redis: class low holds no more than fills the batches that may be out. While Redis' memory is
 * tight, no class holds more than a batch per slot. */
static struct credit credit_of(const struct worker *worker, enum request_class class)
{
    const struct worker_options *options = &worker->options;
    double given = (double)worker_devices(worker) * options->credit_tokens;
    struct credit credit = {given > 0 ? given : worker->second_tokens, (double)read_credit_bytes(worker)};
    double low = (double)options->batches_out * options->max_batch_tokens;
    double tight = (double)options->engine_slots * options->max_batch_tokens;
    if (class == CLASS_LOW && low < credit.tokens) { credit.tokens = low; }
    if (worker->tight.level != MEMORY_ROOM && tight < credit.tokens) { credit.tokens = tight; }
    return credit;
}

double read_credit_tokens(const struct worker *worker, enum request_class class)
{
    return credit_of(worker, class).tokens;
}

/* The number of entries of the class's mean weight that fit into a credit. */
static uint32_t entries_in(const struct class_state *state, struct credit credit)
{
    double by_tokens = credit.tokens / (state->mean_tokens < 1 ? 1 : state->mean_tokens);
    double by_bytes = credit.bytes / (state->mean_bytes < 1 ? 1 : state->mean_bytes);
    double entries = by_tokens < by_bytes ? by_tokens : by_bytes;
    return entries < 0 ? 0 : entries > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)entries;
}

uint32_t read_room(const struct worker *worker, enum request_class class)
{
    const struct class_state *state = &worker->classes[class];
    const struct held_sum *held = &worker->held.sums[class];
    struct credit credit = credit_of(worker, class);
    credit.tokens -= (double)held->tokens;
    credit.bytes -= (double)held->bytes;
    uint32_t entries = entries_in(state, credit);
    if (held->count == 0 && state->asked == 0 && entries == 0) { /* one must be possible, however heavy entries are */
        return tight_reads(worker, 1);
    }
    return tight_reads(worker, entries > state->asked ? entries - state->asked : 0);
}

uint32_t read_room_ahead(const struct worker *worker, enum request_class class)
{
    struct credit credit = credit_of(worker, class);
    credit.tokens = credit.tokens / 4 - (double)worker->held.ahead[class].tokens;
    credit.bytes = credit.bytes / 4 - (double)worker->held.ahead[class].bytes;
    return entries_in(&worker->classes[class], credit);
}

/* The most bytes of one answer: fewer while Redis' memory is tight, because the answer takes some of it. */
static double answer_bytes(const struct worker *worker)
{
    double part = (double)worker->pulse.most_bytes / 64, most = (double)limits_answer_bytes(worker);
    return worker->tight.level != MEMORY_ROOM && part < most ? part : most;
}

/* Limits the entries of a class in one read: the answer, and the rows that are allocated for them, stay small enough
 * even if each entry is as large as the largest recent one. */
uint32_t read_most(const struct worker *worker, enum request_class class, uint32_t most)
{
    double largest = worker->classes[class].largest_bytes, fit = answer_bytes(worker) / (largest < 1 ? 1 : largest);
    uint64_t rows = (uint64_t)worker->options.rules.max_inputs * sizeof(struct row);
    uint64_t by_rows = rows == 0 ? most : read_credit_bytes(worker) / rows;
    most = by_rows < most ? (uint32_t)by_rows : most;
    most = fit < most ? (uint32_t)fit : most;
    return most < 1 ? 1 : most;
}

/* Prefers few large reads to many small ones: less than a quarter of the room is not worth a read. */
static uint32_t worthwhile_room(const struct worker *worker, enum request_class class)
{
    uint32_t most = read_most(worker, class, READ_MOST);
    uint32_t whole = tight_reads(worker, entries_in(&worker->classes[class], credit_of(worker, class)));
    uint32_t least = whole / 4 < most / 4 ? whole / 4 : most / 4, room = read_room(worker, class);
    return room < least ? 0 : room < most ? room : most;
}

/* Lets the next read of a class bring twice as many entries if this one brought no large ones. */
static void read_weighed(struct worker *worker, const struct event *event)
{
    bool seen[CLASS_COUNT] = {false};
    for (size_t i = 0; i < event->entries.count; i++) { seen[event->entries.entries[i].class] = true; }
    for (int c = 0; c < CLASS_COUNT; c++) { worker->classes[c].largest_bytes /= seen[c] ? 2 : 1; }
    for (size_t i = 0; i < event->entries.count; i++) {
        double bytes = (double)entry_bytes(&event->entries.entries[i]);
        struct class_state *state = &worker->classes[event->entries.entries[i].class];
        if (bytes > state->largest_bytes) { state->largest_bytes = bytes; }
    }
}

/* --- entries that we own and may not know --- */

static void own_begin(struct worker *worker, uint64_t at)
{
    worker->own_at = at;
    worker->own_class = CLASS_HIGH;
    worker->own_after = worker->own_next = (struct entry_id){0};
    worker->own_anew = worker->reading_own;
    worker->strays.count = 0;
}

void read_own_again(struct worker *worker)
{
    own_begin(worker, worker->now);
}

void read_own_after_ms(struct worker *worker, uint64_t ms)
{
    uint64_t at = worker_after_ms(worker, ms);
    if (worker->own_at == NEVER || worker->reading_own) { own_begin(worker, at); }
}

static bool is_id(struct entry_id id)
{
    return id.ms > 0 || id.seq > 0;
}

static struct entry_id id_before(struct entry_id id)
{
    return id.seq > 0 ? (struct entry_id){id.ms, id.seq - 1} : (struct entry_id){id.ms - 1, UINT64_MAX};
}

/* Finds the next entry to read alone; entries that are held are known. */
static void own_listed(struct worker *worker, const struct event *event)
{
    for (size_t i = 0; i < event->entries.count; i++) {
        const struct entry *entry = &event->entries.entries[i];
        if (!held_find(&worker->held, entry->class, entry->id)) {
            worker->own_next = entry->id;
            worker->own_refused = limits_entry_refused(worker, entry->class, entry->id);
            return;
        }
        worker->own_after = entry->id;
    }
}

static void own_answered(struct worker *worker, const struct event *event)
{
    bool more = event->entries.more;
    worker->reading_own = false;
    worker->limits.alone_lost = event->failed && is_id(worker->limits.alone.id);
    worker->limits.read_lost |= event->failed && worker->own_part == OWN_ENTRIES;
    if (worker->own_anew) {
        worker->own_anew = false;
        return;
    }
    if (event->failed) {
        worker->own_count = worker->own_count > 1 ? worker->own_count / 2 : 1;
        return;
    }
    if (worker->own_part == OWN_IDS) {
        own_listed(worker, event);
        if (is_id(worker->own_next)) { return; }
    } else if (is_id(worker->own_next)) {
        worker->own_after = worker->own_next;
        worker->own_next = (struct entry_id){0};
        return;
    }
    worker->own_after = more ? event->entries.last : (struct entry_id){0};
    if (more) { return; }
    if (++worker->own_class < CLASS_COUNT) { return; }
    worker->own_at = NEVER;
    worker->own_count = OWN_MOST;
    worker->reclaim_unsure = false;
}

static void read_own(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_READ_OWN);
    if (!action) { return; }
    bool by_id = worker->limits.own_by_id;
    worker->limits.alone = (struct cut_entry){.class = worker->own_class};
    worker->own_part = OWN_ENTRIES;
    action->read.class = worker->own_class;
    if (!is_id(worker->own_next)) {
        worker->own_part = by_id ? OWN_IDS : OWN_ENTRIES;
        action->read.count = by_id ? OWN_MOST : read_most(worker, worker->own_class, worker->own_count);
        action->read.after = worker->own_after;
    } else if (worker->own_refused) {
        worker->own_part = OWN_ADDRESS;
        action->read.after = worker->own_next;
    } else {
        worker->limits.alone.id = worker->own_next;
        action->read.count = 1;
        action->read.after = id_before(worker->own_next);
    }
    action->read.own = worker->own_part;
    worker->reading_own = true;
}

/* --- strays: entries that are pending in our name although they were not given to us. A tool's XCLAIM, a RESTORE or
 * RENAME of the stream, or a replica that missed the last commands of its master can put entries there, and no other
 * worker takes them while we live.
 *
 * So about once a second, together with the pulse, we list the entries that are pending with us, a few ids of each
 * class at a time. One that is listed and not held is a stray, unless an answer with it is still on its way to us:
 *  - Scripts share a connection with the list, so the answers of all that Redis ran before the list are here already.
 *    Entries that they claimed for us are held. Entries that they ended were not listed; those that they end later are
 *    held until they answer.
 *  - The other connection has one read at a time. Its answer may hold any entry of the list. But once it is here, all
 *    entries that Redis had delivered before it made the list have arrived. A later read brings only entries that were
 *    not pending then.
 * So a listed entry that is not held when no read is out is a stray. read_advance runs then.
 *
 * READ_OWN reads the strays. It brings one only if it is still pending with us. Other entries in its answer are
 * ignored: they may have been settled while it was on its way. No more are taken than there is room for.
 *
 * A pass begins with the oldest entry. It ends at the entry that was the newest when it began: without that, a cursor
 * that moves slower than a busy stream would never return to the beginning. Entries that we hold end within seconds, so
 * strays come to the front. --- */

enum { LIST_OWN_MS = 50 }; /* the shortest time between two lists; pulses are frequent while memory is scarce */

/* While the queue is paused, strays wait. A quiet worker gives back those that it finds, because others may be working.
 */
static bool takes_strays(const struct worker *worker)
{
    return worker->pulse_known && !worker->pulse.paused && worker_takes_more(worker);
}

void strays_advance(struct worker *worker)
{
    struct strays *strays = &worker->strays;
    bool due = strays->more || (worker->pulsing && worker->now >= strays->list_at);
    if (!due || strays->listing || strays->count > 0 || worker->own_at != NEVER || !takes_strays(worker)) { return; }
    struct action *action = worker_act(worker, ACTION_LIST_OWN);
    if (!action) { return; }
    memcpy(action->after, strays->after, sizeof(action->after));
    strays->listing = true;
    strays->more = false;
    strays->list_at = worker_after_ms(worker, LIST_OWN_MS);
}

/* Notes the entries of a class that are not held; the next list begins with the first one that did not fit. */
static void note_strays(struct worker *worker, enum request_class class, const struct entry_id *ids, uint32_t count)
{
    struct strays *strays = &worker->strays;
    struct entry_id *after = &strays->after[class], *end = &strays->end[class];
    struct entry_id newest = worker->classes[class].newest;
    if (entry_id_compare(newest, *end) < 0) { *end = newest; } /* the group was set back */
    for (uint32_t i = 0; i < count; i++) {
        if (!held_find(&worker->held, class, ids[i])) {
            if (strays->count == OWN_LIST_MOST) { return; }
            strays->found[strays->count++] = (struct stray){class, ids[i]};
        }
        *after = ids[i];
    }
    bool ends = count < OWN_LIST_MOST || (end->ms > 0 && entry_id_compare(*after, *end) > 0);
    if (ends || (after->ms == UINT64_MAX && after->seq == UINT64_MAX)) { /* no range begins after that one */
        *after = (struct entry_id){0};
        *end = newest;
    }
}

void strays_listed(struct worker *worker, const struct event *event)
{
    worker->strays.listing = false;
    if (event->failed) {
        worker_call_failed(worker);
    } else if (worker->own_at == NEVER) { /* else all of them are read anyway */
        for (int c = 0; c < CLASS_COUNT; c++) {
            note_strays(worker, (enum request_class)c, event->own->ids[c], event->own->counts[c]);
        }
    }
}

/* Keeps the strays that are not held, without those of a class up to `last`. */
static void keep_strays(struct worker *worker, enum request_class class, struct entry_id last)
{
    struct strays *strays = &worker->strays;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < strays->count; i++) {
        struct stray stray = strays->found[i];
        bool done = stray.class == class && entry_id_compare(stray.id, last) <= 0;
        if (!done && !held_find(&worker->held, stray.class, stray.id)) { strays->found[kept++] = stray; }
    }
    strays->count = kept;
}

static bool is_stray(const struct worker *worker, const struct entry *entry)
{
    const struct strays *strays = &worker->strays;
    uint32_t i = 0;
    while (i < strays->count &&
           (strays->found[i].class != entry->class || entry_id_compare(strays->found[i].id, entry->id) != 0)) {
        i++;
    }
    return i < strays->count && !held_find(&worker->held, entry->class, entry->id);
}

/* The first stray whose class has room; NULL: none. */
static const struct stray *next_stray(const struct worker *worker)
{
    const struct strays *strays = &worker->strays;
    uint32_t i = 0;
    while (i < strays->count && read_room(worker, strays->found[i].class) == 0) { i++; }
    return i < strays->count && takes_strays(worker) ? &strays->found[i] : NULL;
}

/* Reads strays of one class; no other read is out. False: there are none to read. */
static bool read_strays(struct worker *worker)
{
    keep_strays(worker, CLASS_HIGH, (struct entry_id){0});
    const struct stray *first = next_stray(worker), *ends = worker->strays.found + worker->strays.count;
    struct action *action = first ? worker_act(worker, ACTION_READ_OWN) : NULL;
    if (!action) { return false; }
    uint32_t room = read_room(worker, first->class), count = 0;
    for (const struct stray *at = first; at < ends && at->class == first->class && count < room; at++) { count++; }
    action->read.class = first->class;
    action->read.count = read_most(worker, first->class, count);
    action->read.after = id_before(first->id);
    action->read.own = worker->own_part = OWN_ENTRIES;
    worker->limits.alone = (struct cut_entry){.class = first->class};
    worker->strays.reading = worker->reading_own = true;
    return true;
}

static void strays_answered(struct worker *worker, const struct event *event)
{
    struct strays *strays = &worker->strays;
    bool more = event->entries.more && event->entries.count > 0;
    strays->reading = worker->reading_own = worker->own_anew = false;
    if (event->failed) {
        strays->count = 0;
        worker->limits.read_lost = true;
        worker_call_failed(worker);
        return;
    }
    for (size_t i = 0; i < event->entries.count && !worker->draining; i++) {
        struct entry entry = event->entries.entries[i];
        if (!is_stray(worker, &entry)) { continue; }
        entry.origin = ORIGIN_STRAY;
        entry.redis_ms = worker_redis_ms(worker);
        admit_entry(worker, &entry);
        strays->more = true;
    }
    keep_strays(worker, event->entries.class, more ? event->entries.last : (struct entry_id){UINT64_MAX, UINT64_MAX});
}

/* Returns whether an entry of our own list may be admitted. Any number of entries may have been put there by hand:
 * those without room will be found as strays. */
static bool holds_or_has_room(const struct worker *worker, const struct entry *entry)
{
    return held_find(&worker->held, entry->class, entry->id) || read_room(worker, entry->class) > 0;
}

/* A reply that may be too large is sent first: if the connection is then lost, nothing else can be the cause. */
static bool own_waits(const struct worker *worker)
{
    const struct request *first = worker->ready_single.first;
    return worker->limits.own_by_id && (worker->limits.proving || (first && first->lifetime.cuts > 0));
}

/* --- the read --- */

/* Redis takes one COUNT for all streams. A class with far less room than a busy one would make the busy one's reads
 * small, so it is left out of every second read, which then does not block. */
static bool leave_small_out(struct worker *worker, uint32_t counts[CLASS_COUNT])
{
    uint32_t most = 0;
    bool left_out = false;
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (worker->classes[c].busy && counts[c] > most) { most = counts[c]; }
    }
    worker->small_turn = !worker->small_turn;
    for (int c = 0; c < CLASS_COUNT && !worker->small_turn; c++) {
        if (counts[c] > 0 && counts[c] < most / 4) {
            counts[c] = 0;
            left_out = true;
        }
    }
    return left_out;
}

static void read_more(struct worker *worker)
{
    uint32_t counts[CLASS_COUNT], least = 0;
    limits_asked(worker);
    for (int c = 0; c < CLASS_COUNT; c++) {
        counts[c] = worthwhile_room(worker, (enum request_class)c);
        worker->classes[c].left_out = counts[c] == 0;
    }
    bool small_left_out = leave_small_out(worker, counts);
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (counts[c] > 0 && (least == 0 || counts[c] < least)) { least = counts[c]; }
    }
    struct action *action = least == 0 ? NULL : worker_act(worker, ACTION_READ);
    if (!action) { return; }
    for (int c = 0; c < CLASS_COUNT; c++) { action->read.counts[c] = counts[c] > 0 ? least : 0; }
    uint32_t block_ms = worker->options.read_block_ms;
    action->read.count = least;
    action->read.block_ms = small_left_out ? 0 : block_ms > 0 ? block_ms : READ_BLOCK_MS;
    worker->read_count = least;
    worker->reading = true;
    worker->unblock_at = 0;
}

/* A class is busy if a read brought as many of its entries as were requested. */
static void new_answered(struct worker *worker, const struct event *event)
{
    uint32_t counts[CLASS_COUNT] = {0};
    worker->reading = false;
    worker->limits.read_lost = event->failed;
    if (event->failed || event->entries.more) { /* entries that it may have brought are in our own lists */
        read_own_again(worker);
    }
    if (event->failed) { return; }
    for (size_t i = 0; i < event->entries.count; i++) {
        const struct entry *entry = &event->entries.entries[i];
        counts[entry->class]++;
        worker->classes[entry->class].newest = entry->id;
    }
    for (int c = 0; c < CLASS_COUNT; c++) { worker->classes[c].busy = counts[c] >= worker->read_count; }
}

/* Returns whether the read in flight should stop blocking. */
static bool in_the_way(const struct worker *worker)
{
    bool better = !worker_claims(worker) || worker->now >= worker->own_at || next_stray(worker);
    for (int c = 0; c < CLASS_COUNT && !better; c++) {
        better = worker->classes[c].left_out && worthwhile_room(worker, (enum request_class)c) > 0;
    }
    return better;
}

/* Unblocks repeatedly, because an unblock may overtake the read that it should end. */
static void advance_unblock(struct worker *worker)
{
    bool wanted = worker->reading && worker_may_call(worker) && in_the_way(worker);
    if (wanted && worker->now >= worker->unblock_at && worker_act(worker, ACTION_UNBLOCK)) {
        worker->unblock_at = worker_after_ms(worker, UNBLOCK_AGAIN_MS);
    } else if (!wanted) {
        worker->unblock_at = 0;
    }
}

/* --- events --- */

void read_connected(struct worker *worker, const struct event *event)
{
    worker->connected = true;
    worker_clock(worker, event->connected.redis_ms);
    worker->lease_lost = false;
    worker->quiet_until = 0;
    worker->strays = (struct strays){0};
    limits_connected(worker, event->connected.loss);
    settle_connected(worker, event->connected.loss);
    read_own_again(worker);
    chores_connected(worker);
}

static enum entry_origin origin_of(const struct event *event, const struct entry *entry, bool unsure)
{
    switch (event->entries.source) {
    case READ_OWN:
        return unsure ? ORIGIN_RECLAIMED : ORIGIN_OWN;
    case READ_RECLAIM:
        return entry->origin;
    case READ_SHED:
        return ORIGIN_SHED;
    case READ_FAIR:
        return ORIGIN_FAIR;
    case READ_SWEEP:
        return ORIGIN_RELEASED;
    case READ_NEW:
        break;
    }
    return ORIGIN_NEW;
}

void read_entries(struct worker *worker, const struct event *event)
{
    bool unsure = worker->reclaim_unsure;
    enum own_part part = event->entries.source == READ_OWN ? worker->own_part : OWN_ENTRIES;
    if (part == OWN_ENTRIES) { read_weighed(worker, event); }
    if (event->entries.source == READ_OWN && worker->strays.reading) {
        strays_answered(worker, event);
        return;
    }
    if (event->entries.source == READ_NEW) {
        new_answered(worker, event);
    } else if (event->entries.source == READ_OWN) {
        own_answered(worker, event);
    } else if (event->entries.source == READ_SHED || event->entries.source == READ_FAIR) {
        share_answered(worker, event);
    } else {
        chores_claimed(worker, event);
    }
    if (event->failed) {
        worker_call_failed(worker);
        return;
    }
    if (worker->draining || part == OWN_IDS) { /* the last release gives the entries back */
        return;
    }
    for (size_t i = 0; i < event->entries.count; i++) {
        struct entry entry = event->entries.entries[i];
        entry.origin = origin_of(event, &entry, unsure);
        entry.redis_ms = worker_redis_ms(worker);
        if (part == OWN_ADDRESS && !entry.vanished) { entry.oversize = entry.undeliverable = true; }
        if (event->entries.source != READ_OWN || part == OWN_ADDRESS || holds_or_has_room(worker, &entry)) {
            admit_entry(worker, &entry);
        }
    }
}

void read_advance(struct worker *worker)
{
    advance_unblock(worker);
    if (!worker_may_call(worker) || !worker_takes_more(worker) || worker->reading || worker->reading_own) { return; }
    if (worker->turn !=
        TURN_TOGETHER) { /* a read may kill the process, and a suspect that runs alone would be blamed */
        return;
    }
    if (worker->now >= worker->own_at) {
        if (!own_waits(worker)) { read_own(worker); }
    } else if (!read_strays(worker) && worker_claims(worker)) {
        read_more(worker);
    }
}

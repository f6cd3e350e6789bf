/* Entries that are pending in our name and may not be held: all of them after a reconnect, and strays. */
#include "schedule/worker/own_entries.h"

#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

/* --- entries that we own and may not know --- */

static void own_begin(struct worker *worker, uint64_t at)
{
    worker->own.at = at;
    worker->own.class = CLASS_HIGH;
    worker->own.after = worker->own.next = (struct entry_id){0};
    worker->own.anew = worker->own.reading;
    worker->own.strays.count = 0;
}

void own_read_again(struct worker *worker)
{
    own_begin(worker, worker->now);
}

void own_read_after_ms(struct worker *worker, uint64_t ms)
{
    uint64_t at = worker_after_ms(worker, ms);
    if (worker->own.at == NEVER || worker->own.reading) { own_begin(worker, at); }
}

enum { OWN_MAX = 256 }; /* entries of one READ_OWN; halved when no answer arrives */

void own_open(struct worker *worker)
{
    worker->own.at = NEVER;
    worker->own.count = OWN_MAX;
}

void own_connected(struct worker *worker)
{
    worker->own.strays = (struct strays){0};
    own_read_again(worker);
}

void own_distrust(struct worker *worker)
{
    worker->own.unsure = true;
}

static struct entry_id id_before(struct entry_id id)
{
    return id.seq > 0 ? (struct entry_id){id.ms, id.seq - 1} : (struct entry_id){id.ms - 1, UINT64_MAX};
}

/* Finds the next entry to read alone; entries that are held are known. */
static void note_next_own(struct worker *worker, const struct event *event)
{
    for (size_t i = 0; i < event->entries.count; i++) {
        const struct entry *entry = &event->entries.entries[i];
        if (!held_find(&worker->held, entry->class, entry->id)) {
            worker->own.next = entry->id;
            worker->own.refused = limits_entry_refused(worker, entry->class, entry->id);
            return;
        }
        worker->own.after = entry->id;
    }
}

void own_answered(struct worker *worker, const struct event *event)
{
    bool more = event->entries.more;
    worker->own.reading = false;
    limits_own_answered(worker, event->failed, worker->own.part == OWN_ENTRIES);
    if (worker->own.anew) {
        worker->own.anew = false;
        return;
    }
    if (event->failed) {
        worker->own.count = worker->own.count > 1 ? worker->own.count / 2 : 1;
        return;
    }
    if (worker->own.part == OWN_IDS) {
        note_next_own(worker, event);
        if (entry_id_is_set(worker->own.next)) { return; }
    } else if (entry_id_is_set(worker->own.next)) {
        worker->own.after = worker->own.next;
        worker->own.next = (struct entry_id){0};
        return;
    }
    worker->own.after = more ? event->entries.last : (struct entry_id){0};
    if (more) { return; }
    if (++worker->own.class < CLASS_COUNT) { return; }
    worker->own.at = NEVER;
    worker->own.count = OWN_MAX;
    worker->own.unsure = false;
}

/* A reply that may be too large is sent first: if the connection is then lost, nothing else can be the cause. */
bool own_waits(const struct worker *worker)
{
    const struct request *first = worker->settle.single.first;
    return worker->limits.own_by_id && (worker->settle.proving || (first && first->lifetime.cuts > 0));
}

void own_read(struct worker *worker)
{
    struct action *action = worker_act(worker, ACTION_READ_OWN);
    if (!action) { return; }
    bool by_id = worker->limits.own_by_id;
    struct entry_id alone = {0};
    worker->own.part = OWN_ENTRIES;
    action->read.class = worker->own.class;
    if (!entry_id_is_set(worker->own.next)) {
        worker->own.part = by_id ? OWN_IDS : OWN_ENTRIES;
        action->read.count = by_id ? OWN_MAX : read_max(worker, worker->own.class, worker->own.count);
        action->read.after = worker->own.after;
    } else if (worker->own.refused) {
        worker->own.part = OWN_ADDRESS;
        action->read.after = worker->own.next;
    } else {
        alone = worker->own.next;
        action->read.count = 1;
        action->read.after = id_before(worker->own.next);
    }
    action->read.own = worker->own.part;
    limits_reads_alone(worker, worker->own.class, alone);
    worker->own.reading = true;
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
    return worker->pulse.known && !worker->pulse.last.paused && worker_takes_more(worker);
}

void own_advance(struct worker *worker)
{
    struct strays *strays = &worker->own.strays;
    bool due = strays->more || (worker->pulse.out && worker->now >= strays->list_at);
    if (!due || strays->listing || strays->count > 0 || worker->own.at != NEVER || !takes_strays(worker)) { return; }
    struct action *action = worker_act(worker, ACTION_LIST_OWN);
    if (!action) { return; }
    memcpy(action->after, strays->after, sizeof(action->after));
    strays->listing = true;
    strays->asked_ns = worker->now;
    strays->more = false;
    strays->list_at = worker_after_ms(worker, LIST_OWN_MS);
}

/* Notes the entries of a class that are not held; the next list begins with the first one that did not fit. */
static void note_strays(struct worker *worker, enum request_class class, const struct entry_id *ids, uint32_t count)
{
    struct strays *strays = &worker->own.strays;
    struct entry_id *after = &strays->after[class], *end = &strays->end[class];
    struct entry_id newest = worker->read.classes[class].newest;
    if (entry_id_compare(newest, *end) < 0) { *end = newest; } /* the group was set back */
    for (uint32_t i = 0; i < count; i++) {
        if (!held_find(&worker->held, class, ids[i])) {
            if (strays->count == OWN_LIST_MAX) { return; }
            strays->found[strays->count++] = (struct stray){class, ids[i]};
        }
        *after = ids[i];
    }
    bool ends = count < OWN_LIST_MAX || (end->ms > 0 && entry_id_compare(*after, *end) > 0);
    if (ends || (after->ms == UINT64_MAX && after->seq == UINT64_MAX)) { /* no range begins after that one */
        *after = (struct entry_id){0};
        *end = newest;
    }
}

/* A text takes long to write. If its request was cancelled meanwhile, or is another worker's, it is no longer pending
 * with us: those of a class from `from` on, up to the last listed id, or to the end. A request that came after the list
 * was asked for may be pending without being listed. */
static void drop_unlisted(struct worker *worker, enum request_class class, struct entry_id from,
                          const struct entry_id *ids, uint32_t count)
{
    for (struct batch *batch = worker->cut.running.first; batch != NULL; batch = batch->next) {
        const struct request *request = batch->rows[0]->request;
        struct entry_id id = request->identity.entry;
        bool to_end = count < OWN_LIST_MAX;
        if (request->task != TASK_GENERATE || request->identity.class != class || entry_id_compare(id, from) <= 0 ||
            (!to_end && entry_id_compare(id, ids[count - 1]) > 0) ||
            request->lifetime.received_ns >= worker->own.strays.asked_ns) {
            continue;
        }
        uint32_t i = 0;
        while (i < count && entry_id_compare(ids[i], id) != 0) { i++; }
        if (i == count) { atomic_store_explicit(&batch->dropped, true, memory_order_relaxed); }
    }
}

void own_listed(struct worker *worker, const struct event *event)
{
    worker->own.strays.listing = false;
    if (event->failed) {
        worker_call_failed(worker);
    } else if (worker->own.at == NEVER) { /* else all of them are read anyway */
        for (int c = 0; c < CLASS_COUNT; c++) {
            drop_unlisted(worker, (enum request_class)c, worker->own.strays.after[c], event->own->ids[c],
                          event->own->counts[c]);
            note_strays(worker, (enum request_class)c, event->own->ids[c], event->own->counts[c]);
        }
    }
}

/* Keeps the strays that are not held, without those of a class up to `last`. */
static void keep_strays(struct worker *worker, enum request_class class, struct entry_id last)
{
    struct strays *strays = &worker->own.strays;
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
    const struct strays *strays = &worker->own.strays;
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
    const struct strays *strays = &worker->own.strays;
    uint32_t i = 0;
    while (i < strays->count && read_room(worker, strays->found[i].class) == 0) { i++; }
    return i < strays->count && takes_strays(worker) ? &strays->found[i] : NULL;
}

bool own_stray_fits(const struct worker *worker)
{
    return next_stray(worker) != NULL;
}

bool own_read_strays(struct worker *worker)
{
    keep_strays(worker, CLASS_HIGH, (struct entry_id){0});
    const struct stray *first = next_stray(worker), *ends = worker->own.strays.found + worker->own.strays.count;
    struct action *action = first ? worker_act(worker, ACTION_READ_OWN) : NULL;
    if (!action) { return false; }
    uint32_t room = read_room(worker, first->class), count = 0;
    for (const struct stray *at = first; at < ends && at->class == first->class && count < room; at++) { count++; }
    action->read.class = first->class;
    action->read.count = read_max(worker, first->class, count);
    action->read.after = id_before(first->id);
    action->read.own = worker->own.part = OWN_ENTRIES;
    limits_reads_alone(worker, first->class, (struct entry_id){0});
    worker->own.strays.reading = worker->own.reading = true;
    return true;
}

bool own_take_strays(struct worker *worker, const struct event *event)
{
    if (!worker->own.strays.reading) { return false; }
    struct strays *strays = &worker->own.strays;
    bool more = event->entries.more && event->entries.count > 0;
    strays->reading = worker->own.reading = worker->own.anew = false;
    if (event->failed) {
        strays->count = 0;
        limits_own_answered(worker, true, true);
        worker_call_failed(worker);
        return true;
    }
    for (size_t i = 0; i < event->entries.count && !worker->leave.draining; i++) {
        struct entry entry = event->entries.entries[i];
        if (!is_stray(worker, &entry)) { continue; }
        entry.origin = ORIGIN_STRAY;
        entry.redis_ms = worker_redis_ms(worker);
        admit_entry(worker, &entry);
        strays->more = true;
    }
    keep_strays(worker, event->entries.class, more ? event->entries.last : (struct entry_id){UINT64_MAX, UINT64_MAX});
    return true;
}

/* Returns whether an entry of our own list may be admitted. Any number of entries may have been put there by hand:
 * those without room will be found as strays. */
bool own_has_room(const struct worker *worker, const struct entry *entry)
{
    return held_find(&worker->held, entry->class, entry->id) || read_room(worker, entry->class) > 0;
}

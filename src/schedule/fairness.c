/* Fairness when there is more work than can be done. The newest requests above a class's cap are refused (shed), and if
 * one tenant's entries fill a class, those of others are claimed ahead of their turn (fair).
 *
 * A stream is first in, first out. While a class has a backlog, a scan goes through its unread entries piece by piece
 * and claims some of those whose tenants hold little here. A pass that reaches the end restarts where the last one
 * found its first entry: the entries before that belong to tenants that have enough. After the first pass, every second
 * search is in the entries that have come since, so that a tenant who submits ten requests now is found at once. The
 * housekeeper sets aside entries for which it has no room, and every worker takes from those. */
#include "schedule/worker/fairness.h"

#include <string.h>

#include "base/clock.h"
#include "schedule/worker_internal.h"

enum {
    SHED_MAX = 64,
    SHED_READY_MAX =
        4 * SETTLE_ENTRIES, /* refused requests that wait for their settle, beyond which no more are taken */
    FAIR_MAX = 64,
    FAIR_EVERY_MS = 100,
    FAIR_PAUSE_MS = 1,   /* between two calls, at most: on a busy machine a call's duration says little about Redis */
    FAIR_IDLE_MS = 5000, /* after a pass that found nothing */
};

/* --- shed --- */

void fairness_admitted(struct worker *worker, const struct request *request)
{
    worker->fairness.classes[request->identity.class].tenants |= request->identity.tenant[0] != '\0';
}

/* A pulse has brought depths and caps: notes the classes whose newest entries must be refused. */
void fairness_pulsed(struct worker *worker)
{
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct fair_class *state = &worker->fairness.classes[c];
        uint64_t cap = worker->pulse.last.cap[c], depth = worker->pulse.last.depth[c];
        state->over_cap = cap > 0 && depth > cap;
        state->shed_before = (struct entry_id){0};
        if (depth == 0) { state->tenants = false; }
    }
}

/* Nothing is shed while our own pending lists are read: entries taken to be refused would come back as our own and be
 * served. */
static bool may_shed(const struct worker *worker)
{
    return worker->pulse.last.housekeeper && worker_takes_more(worker) && worker->own.at == NEVER && !worker->quiet &&
           worker->quarantine.turn == TURN_TOGETHER && !worker->fairness.calling &&
           worker->settle.ready.count < SHED_READY_MAX;
}

static void shed_newest(struct worker *worker, enum request_class class)
{
    struct fair_class *state = &worker->fairness.classes[class];
    struct action *action = worker_act(worker, ACTION_SHED);
    if (!action) { return; }
    action->read.class = class;
    action->read.count = limits_claim(worker, class, SHED_MAX); /* waiting cancels come with the refused requests */
    action->read.cap = worker->pulse.last.cap[class];
    action->read.after = state->shed_after;
    action->read.before = state->shed_before;
    worker->fairness.calling = true;
}

/* --- fair --- */

/* Finds the tenants that hold enough of the class to keep a compute thread busy for a while; others may be served ahead
 * of them. */
static uint32_t find_enough(struct worker *worker, enum request_class class)
{
    uint64_t tokens[ENOUGH_MAX] = {0}, enough = worker->options.max_batch_tokens;
    uint32_t known = 0, count = 0;
    double part = read_credit_tokens(worker, class) / 8;
    if ((double)enough > part) { enough = (uint64_t)part; }
    for (uint32_t i = 0; i <= worker->held.mask; i++) {
        for (const struct request *at = worker->held.buckets[i]; at != NULL; at = at->chain) {
            uint32_t tenant = 0;
            if (at->identity.class != class) { continue; }
            while (tenant < known && strcmp(worker->fairness.enough[tenant], at->identity.tenant) != 0) { tenant++; }
            if (tenant == ENOUGH_MAX) { continue; }
            if (tenant == known) {
                memcpy(worker->fairness.enough[known++], at->identity.tenant, sizeof(at->identity.tenant));
            }
            tokens[tenant] += at->tokens;
        }
    }
    for (uint32_t i = 0; i < known; i++) {
        if (tokens[i] >= enough) {
            memmove(worker->fairness.enough[count++], worker->fairness.enough[i], sizeof(worker->fairness.enough[i]));
        }
    }
    return count;
}

/* Returns whether one tenant may block others here: more requests wait than are held, and they name tenants. */
static bool is_crowded(const struct worker *worker, enum request_class class)
{
    const struct fair_class *state = &worker->fairness.classes[class];
    const struct read_class *read = &worker->read.classes[class];
    return state->tenants && worker->pulse.last.depth[class] > 0 && (read->busy || read->left_out);
}

static void claim_fairly(struct worker *worker, enum request_class class, uint32_t room)
{
    struct fair_class *state = &worker->fairness.classes[class];
    struct action *action = worker_act(worker, ACTION_FAIR);
    if (!action) { return; }
    state->at_tail = state->tail_known && (!state->at_tail || worker->now < state->pass_at);
    action->read.class = class;
    action->read.count = limits_claim(worker, class, room < FAIR_MAX ? room : FAIR_MAX);
    action->read.after = state->at_tail ? state->tail : state->after;
    action->read.enough_count = find_enough(worker, class);
    action->read.enough = (const char(*)[TENANT_MAX + 1]) worker->fairness.enough;
    worker->fairness.sent_at = worker->now;
    worker->fairness.aside = room == 0;
    worker->fairness.calling = true;
}

/* A search continues after a pause in proportion to its cost; a finished one starts again later. */
static void plan_search(struct worker *worker, struct fair_class *state, const struct event *event)
{
    uint64_t pause = CALL_PAUSE * (worker->now - worker->fairness.sent_at), most = FAIR_PAUSE_MS * NS_PER_MS;
    struct entry_id from = state->at_tail ? state->tail : state->after, to = event->entries.last;
    bool moved = to.ms != from.ms || to.seq != from.seq; /* it does not move if enough entries are set aside */
    bool goes_on = !event->failed && event->entries.more && moved;
    pause = pause < most ? pause : most;
    state->at = worker->now + (goes_on ? pause : FAIR_EVERY_MS * NS_PER_MS);
}

static void note_claimed(struct worker *worker, struct fair_class *state, const struct event *event)
{
    plan_search(worker, state, event);
    if (event->failed) {
        own_read_again(worker);
        return;
    }
    if (state->at_tail) {
        state->tail = event->entries.last;
        return;
    }
    bool aside = worker->fairness.aside;
    if ((event->entries.count > 0 || aside) && !state->found) {
        state->found = true;
        state->first = aside ? state->after : event->entries.entries[0].id;
    }
    state->after = event->entries.last;
    if (event->entries.more) { return; }
    if (!state->tail_known) { state->tail = event->entries.last; }
    state->tail_known = true;
    if (!state->found) { state->pass_at = worker_after_ms(worker, FAIR_IDLE_MS); }
    state->after = state->first;
    state->found = false;
}

/* --- both --- */

void fairness_answered(struct worker *worker, const struct event *event)
{
    struct fair_class *state = &worker->fairness.classes[event->entries.class];
    worker->fairness.calling = false;
    if (event->failed) { limits_claim_failed(worker); }
    if (event->entries.source == READ_FAIR) {
        note_claimed(worker, state, event);
        return;
    }
    state->over_cap = !event->failed && event->entries.more;
    if (event->failed) {
        own_read_again(worker);
    } else {
        state->shed_after = event->entries.last;
        state->shed_before = event->entries.first;
    }
}

uint64_t fairness_deadline(const struct worker *worker)
{
    uint64_t next = NEVER;
    for (int c = 0; c < CLASS_COUNT && worker_keeps_house(worker); c++) {
        if (is_crowded(worker, (enum request_class)c) && worker->fairness.classes[c].at < next) {
            next = worker->fairness.classes[c].at;
        }
    }
    return next;
}

void fairness_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leave.leaving || worker->settle.proving) { return; }
    for (int c = 0; c < CLASS_COUNT; c++) {
        if (worker->fairness.classes[c].over_cap && may_shed(worker)) { shed_newest(worker, (enum request_class)c); }
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        uint32_t room = read_room_ahead(worker, (enum request_class)c);
        bool lets = worker_keeps_house(worker) && worker->memory.level != MEMORY_CRITICAL; /* then Redis refuses it */
        if (lets && !worker->fairness.calling && worker->now >= worker->fairness.classes[c].at &&
            is_crowded(worker, (enum request_class)c)) {
            claim_fairly(worker, (enum request_class)c, room);
        }
    }
}

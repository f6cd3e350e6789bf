/* Too much work for all: the newest requests above a class's cap are refused (shed), and where one tenant's entries
 * fill a class, those of others are claimed ahead of their turn (fair).
 *
 * A stream is first in, first out. While a class has a backlog, a scan goes through its unread entries, a piece at a
 * time, and claims some of those whose tenants hold little here yet. A pass that reaches the end begins again where the
 * last one had found its first entry: what is before belongs to those that have enough. From the first pass on, every
 * other look is at what has come in since, so that who submits ten now is found at once. What the housekeeper has no
 * room for it sets aside, and every worker takes from there. */
#include <string.h>

#include "base/clock.h"
#include "work/worker_stages.h"

enum {
    SHED_MOST = 64,
    SHED_READY_MOST = 4 * SETTLE_ENTRIES, /* refused ones that wait for their settle, before more are taken */
    FAIR_MOST = 64,
    FAIR_EVERY_MS = 100,
    FAIR_PAUSE_MS = 1,   /* between two calls, at most: how long one takes says little of Redis on a busy machine */
    FAIR_IDLE_MS = 5000, /* after a pass that found nobody */
};

/* --- shed --- */

void share_pulsed(struct worker *worker)
{
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct class_state *state = &worker->classes[class];
        uint64_t cap = worker->pulse.cap[class], depth = worker->pulse.depth[class];
        state->over_cap = cap > 0 && depth > cap;
        state->shed_before = (struct entry_id){0};
        if (depth == 0)
            state->tenants = false;
    }
}

/* Not while the own pending lists are read: what is taken to be refused would come as our own from there and be done.
 */
static bool may_shed(const struct worker *worker)
{
    return worker->pulse.housekeeper && worker_takes_more(worker) && worker->own_at == NEVER && !worker->quiet &&
           worker->turn == TURN_TOGETHER && !worker->sharing && worker->ready.count < SHED_READY_MOST;
}

static void shed(struct worker *worker, enum request_class class)
{
    struct class_state *state = &worker->classes[class];
    struct action *action = worker_act(worker, ACTION_SHED);
    if (action == NULL)
        return;
    action->read.class = class;
    action->read.count = SHED_MOST; /* cancels that wait there come with what is refused */
    action->read.cap = worker->pulse.cap[class];
    action->read.after = state->shed_after;
    action->read.before = state->shed_before;
    worker->sharing = true;
}

/* --- fair --- */

/* Tenants that hold a part of the class that keeps a compute thread busy for a while; the others may be served ahead.
 */
static uint32_t find_enough(struct worker *worker, enum request_class class)
{
    uint64_t tokens[ENOUGH_MOST] = {0}, enough = worker->options.max_batch_tokens;
    uint32_t known = 0, count = 0;
    double part = read_credit_tokens(worker, class) / 8;
    if ((double)enough > part)
        enough = (uint64_t)part;
    for (uint32_t i = 0; i <= worker->held.mask; i++)
        for (const struct request *at = worker->held.buckets[i]; at != NULL; at = at->chain) {
            uint32_t tenant = 0;
            if (at->class != class)
                continue;
            while (tenant < known && strcmp(worker->enough[tenant], at->tenant) != 0)
                tenant++;
            if (tenant == ENOUGH_MOST)
                continue;
            if (tenant == known)
                memcpy(worker->enough[known++], at->tenant, sizeof(at->tenant));
            tokens[tenant] += at->tokens;
        }
    for (uint32_t i = 0; i < known; i++)
        if (tokens[i] >= enough)
            memmove(worker->enough[count++], worker->enough[i], sizeof(worker->enough[i]));
    return count;
}

/* Whether one tenant may be in the way of others here: more waits than is held, and somebody names tenants at all. */
static bool crowded(const struct worker *worker, enum request_class class)
{
    const struct class_state *state = &worker->classes[class];
    return state->tenants && worker->pulse.depth[class] > 0 && (state->busy || state->left_out);
}

static void fair(struct worker *worker, enum request_class class, uint32_t room)
{
    struct class_state *state = &worker->classes[class];
    struct action *action = worker_act(worker, ACTION_FAIR);
    if (action == NULL)
        return;
    state->fair_at_tail = state->fair_tail_known && (!state->fair_at_tail || worker->now < state->fair_pass_at);
    action->read.class = class;
    action->read.count = room < FAIR_MOST ? room : FAIR_MOST;
    action->read.after = state->fair_at_tail ? state->fair_tail : state->fair_after;
    action->read.enough_count = find_enough(worker, class);
    action->read.enough = (const char(*)[TENANT_MAX + 1]) worker->enough;
    worker->shared_at = worker->now;
    worker->shared_aside = room == 0;
    worker->sharing = true;
}

/* A search goes on at once, but for its share of Redis' time; one that is through looks again later. */
static void fair_pause(struct worker *worker, struct class_state *state, const struct event *event)
{
    uint64_t pause = CALL_PAUSE * (worker->now - worker->shared_at), most = FAIR_PAUSE_MS * NS_PER_MS;
    struct entry_id from = state->fair_at_tail ? state->fair_tail : state->fair_after, to = event->entries.last;
    bool moved = to.ms != from.ms || to.seq != from.seq; /* it does not where enough is set aside */
    bool goes_on = !event->failed && event->entries.more && moved;
    pause = pause < most ? pause : most;
    state->fair_at = worker->now + (goes_on ? pause : FAIR_EVERY_MS * NS_PER_MS);
}

static void fair_answered(struct worker *worker, struct class_state *state, const struct event *event)
{
    fair_pause(worker, state, event);
    if (event->failed) {
        read_own_again(worker);
        return;
    }
    if (state->fair_at_tail) {
        state->fair_tail = event->entries.last;
        return;
    }
    bool aside = worker->shared_aside;
    if ((event->entries.count > 0 || aside) && !state->fair_found) {
        state->fair_found = true;
        state->fair_first = aside ? state->fair_after : event->entries.entries[0].id;
    }
    state->fair_after = event->entries.last;
    if (event->entries.more)
        return;
    if (!state->fair_tail_known)
        state->fair_tail = event->entries.last;
    state->fair_tail_known = true;
    if (!state->fair_found)
        state->fair_pass_at = worker_after_ms(worker, FAIR_IDLE_MS);
    state->fair_after = state->fair_first;
    state->fair_found = false;
}

/* --- both --- */

void share_answered(struct worker *worker, const struct event *event)
{
    struct class_state *state = &worker->classes[event->entries.class];
    worker->sharing = false;
    if (event->entries.source == READ_FAIR) {
        fair_answered(worker, state, event);
        return;
    }
    state->over_cap = !event->failed && event->entries.more;
    if (event->failed) {
        read_own_again(worker);
    } else {
        state->shed_after = event->entries.last;
        state->shed_before = event->entries.first;
    }
}

uint64_t share_deadline(const struct worker *worker)
{
    uint64_t next = NEVER;
    for (int class = 0; class < CLASS_COUNT && worker_keeps_house(worker); class ++)
        if (crowded(worker, (enum request_class) class) && worker->classes[class].fair_at < next)
            next = worker->classes[class].fair_at;
    return next;
}

void share_advance(struct worker *worker)
{
    if (!worker_may_call(worker) || worker->leaving)
        return;
    for (int class = 0; class < CLASS_COUNT; class ++)
        if (worker->classes[class].over_cap && may_shed(worker))
            shed(worker, (enum request_class) class);
    for (int class = 0; class < CLASS_COUNT; class ++) {
        uint32_t room = read_room_ahead(worker, (enum request_class) class);
        bool lets = worker_keeps_house(worker) && worker->tight.level != MEMORY_TRICKLE; /* else Redis refuses it */
        if (lets && !worker->sharing && worker->now >= worker->classes[class].fair_at &&
            crowded(worker, (enum request_class) class))
            fair(worker, (enum request_class) class, room);
    }
}

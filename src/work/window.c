/* Who waits, and whose row is next: three classes, in each its tenants, for each a list in order of age. Both levels
 * keep count of what everybody has had, which is exact, whatever is looked at and put back; who begins to wait begins
 * at the level of those that do. Only the number of tenants makes a step dearer, by its logarithm. */
#include "work/window.h"

#include <stdlib.h>

#include "work/window_state.h"

/* 30 / weight, of the weights 6:3:1. */
static const uint64_t cost[CLASS_COUNT] = {[CLASS_HIGH] = 5, [CLASS_NORMAL] = 10, [CLASS_LOW] = 30};

static struct window_class *class_of(struct window *window, const struct row *row)
{
    return &window->classes[row->request->class];
}

/* --- tenants --- */

/* The flow of a row's tenant; NULL when none of its rows waits. */
static struct flow *find_flow(struct window *window, const struct row *row)
{
    const struct request *request = row->request;
    if (request->tenant[0] == '\0')
        return &class_of(window, row)->plain;
    return flows_find(&window->flows, request->class, request->tenant);
}

/* Without memory for a flow, the row waits among those without a tenant. */
static struct flow *make_flow(struct window *window, const struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct flow *flow = find_flow(window, row);
    if (flow != NULL)
        return flow;
    if (heap_reserve(&class->heap, class->tenants + 1))
        flow = flows_make(&window->flows, row->request->class, row->request->tenant);
    if (flow == NULL)
        return &class->plain;
    class->tenants++;
    return flow;
}

static bool waits(const struct window_class *class)
{
    return class->plain.first != NULL || class->heap.count > 0;
}

static void enter_heap(struct window_class *class, struct flow *flow)
{
    if (flow != &class->plain)
        heap_add(&class->heap, flow);
}

/* The flow that a row joins, which has rows from now on. */
static struct flow *join_flow(struct window *window, const struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct flow *flow = make_flow(window, row);
    if (!waits(class) && class->had < window->level)
        class->had = window->level;
    if (flow->first != NULL)
        return flow;
    if (flow->had < class->level)
        flow->had = class->level;
    enter_heap(class, flow);
    return flow;
}

/* A flow without rows is idle until the call at hand is over, for some may come back until then. */
static void leave_flow(struct window *window, struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct flow *flow = row->flow;
    flow_unlink(row);
    if (flow->first != NULL || flow == &window->overdue || flow == &class->plain)
        return;
    heap_remove(&class->heap, flow);
    if (flow->idle)
        return;
    flow->idle = true;
    flow->next = window->idle;
    window->idle = flow;
}

static void end_idle(struct window *window)
{
    for (struct flow *flow; (flow = window->idle) != NULL;) {
        window->idle = flow->next;
        flow->idle = false;
        if (flow->first != NULL)
            continue;
        window->classes[flow->class].tenants--;
        flows_end(&window->flows, flow);
    }
}

/* --- rows --- */

static void charge(struct window *window, const struct row *row, int64_t tokens)
{
    struct window_class *class = class_of(window, row);
    struct flow *flow = row->flow == &window->overdue ? find_flow(window, row) : row->flow;
    class->had += (uint64_t)tokens * cost[row->request->class]; /* wraps back when it is below 0 */
    if (flow == NULL)
        return;
    flow->had += (uint64_t)tokens;
    class->most = flow->had > class->most ? flow->had : class->most;
    if (flow != &class->plain && flow->first != NULL)
        heap_update(&class->heap, flow);
}

static void count_in(struct window *window, struct row *row)
{
    expiry_bound(&window->expires_at_ms, row_expires_at_ms(row));
    row->twins = NULL;
    window->rows++;
    window->tokens += row->tokens;
    window->squares += (uint64_t)row->tokens * row->tokens;
    equals_add(&window->equals, row);
}

void window_push(struct window *window, struct row *row, uint64_t now_ns)
{
    row->waiting_ns = now_ns;
    row->passed_over = 0;
    flow_push_last(join_flow(window, row), row);
    count_in(window, row);
}

void window_put_back(struct window *window, struct row *row)
{
    flow_push_first(join_flow(window, row), row);
    count_in(window, row);
}

void window_hold(struct window *window, struct row *row)
{
    charge(window, row, row->tokens);
    leave_flow(window, row);
    row->in_hand = true;
}

void window_unhold(struct window *window, struct row *row)
{
    struct flow *flow = row->passed_over < WINDOW_PASSED_OVER ? row->flow : &window->overdue;
    charge(window, row, -(int64_t)row->tokens);
    row->in_hand = false;
    if (flow->first == NULL && flow != &window->overdue)
        enter_heap(class_of(window, row), flow);
    flow_push_first(flow, row);
}

void window_leave(struct window *window, struct row *row)
{
    if (!row->in_hand)
        leave_flow(window, row);
    row->in_hand = false;
    row->flow = NULL;
    window->rows--;
    window->tokens -= row->tokens;
    window->squares -= (uint64_t)row->tokens * row->tokens;
    equals_remove(&window->equals, row);
}

void window_remove(struct window *window, struct row *row)
{
    window_leave(window, row);
    end_idle(window);
}

void window_close(struct window *window)
{
    flows_close(&window->flows);
    for (int i = 0; i < CLASS_COUNT; i++)
        free(window->classes[i].heap.flows);
    equals_close(&window->equals);
    *window = (struct window){0};
}

/* --- whose turn it is --- */

static struct flow *next_flow(struct window_class *class)
{
    struct flow *plain = &class->plain, *other = class->heap.count > 0 ? class->heap.flows[0] : NULL;
    if (plain->first == NULL)
        return other;
    return other != NULL && other->had < plain->had ? other : plain;
}

/* The first of the overdue that may go. */
static struct row *next_overdue(const struct window *window, enum window_only only)
{
    struct row *row = window->overdue.first;
    while (row != NULL && !window_admits(only, row))
        row = row->next;
    return row;
}

/* Whether no other that waits has had less for its weight than class high; of the overdue the first counts. */
bool window_high_is_next(const struct window *window)
{
    const struct window_class *high = &window->classes[CLASS_HIGH];
    const struct row *overdue = window->overdue.first;
    if (!waits(high) || window->only == WINDOW_LOW)
        return false;
    for (int i = CLASS_HIGH + 1; i < CLASS_COUNT; i++) {
        const struct window_class *class = &window->classes[i];
        bool there = waits(class) || (overdue != NULL && overdue->request->class == (enum request_class)i);
        if (there && class->had < high->had)
            return false;
    }
    return true;
}

struct row *window_next(struct window *window)
{
    struct window_class *least = NULL;
    struct row *overdue = next_overdue(window, window->only);
    if (overdue != NULL && !(window->brief && window_high_is_next(window)))
        return overdue;
    int end = window->only == WINDOW_ONLINE ? CLASS_LOW : CLASS_COUNT;
    for (int i = window->only == WINDOW_LOW ? CLASS_LOW : 0; i < end; i++) {
        struct window_class *class = &window->classes[i];
        if (waits(class) && (least == NULL || class->had < least->had))
            least = class;
    }
    return least == NULL ? NULL : flow_turn(next_flow(least), window->urgent_ms);
}

bool window_has_low(const struct window *window)
{
    return next_overdue(window, WINDOW_LOW) != NULL || waits(&window->classes[CLASS_LOW]);
}

bool window_has_online(const struct window *window)
{
    return next_overdue(window, WINDOW_ONLINE) != NULL || waits(&window->classes[CLASS_HIGH]) ||
           waits(&window->classes[CLASS_NORMAL]);
}

bool window_has_others(const struct window *window)
{
    return window->overdue.first != NULL || waits(&window->classes[CLASS_NORMAL]) || waits(&window->classes[CLASS_LOW]);
}

bool window_low_is_next(const struct window *window)
{
    const struct window_class *low = &window->classes[CLASS_LOW];
    if (window->overdue.first != NULL)
        return window->overdue.first->request->class == CLASS_LOW;
    for (int i = 0; i < CLASS_LOW; i++)
        if (waits(&window->classes[i]) && window->classes[i].had <= low->had)
            return false;
    return waits(low);
}

static struct row *older(struct row *a, struct row *b)
{
    return a == NULL || (b != NULL && b->waiting_ns < a->waiting_ns) ? b : a;
}

struct row *window_oldest(const struct window *window)
{
    struct row *oldest = window->overdue.first;
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct window_class *class = &window->classes[i];
        oldest = older(oldest, class->plain.first);
        for (uint32_t f = 0; f < class->heap.count; f++)
            oldest = older(oldest, class->heap.flows[f]->first);
    }
    return oldest;
}

uint64_t window_oldest_ns(const struct window *window)
{
    const struct row *oldest = window_oldest(window);
    return oldest == NULL ? UINT64_MAX : oldest->waiting_ns;
}

struct row *window_pop(struct window *window)
{
    struct row *row = window_next(window);
    if (row != NULL)
        window_remove(window, row);
    return row;
}

bool window_full(const struct window *window, const struct window_limits *limits)
{
    if (window->rows >= limits->rows || window->tokens >= limits->tokens)
        return true;
    struct cost_shape shape = {(double)window->tokens, (double)window->squares, false};
    return limits->most_ns > 0 && cost_predict_ns(limits->cost, shape) >= limits->most_ns;
}

/* Who begins to wait begins where the one stands that has had least of those that wait, or, when nobody does, most. */
void window_taken(struct window *window)
{
    uint64_t least = UINT64_MAX, most = 0;
    end_idle(window);
    for (int i = 0; i < CLASS_COUNT; i++) {
        struct window_class *class = &window->classes[i];
        uint64_t level = waits(class) ? next_flow(class)->had : class->most;
        class->level = level > class->level ? level : class->level;
        most = class->had > most ? class->had : most;
        if (waits(class) && class->had < least)
            least = class->had;
    }
    least = least == UINT64_MAX ? most : least;
    window->level = least > window->level ? least : window->level;
}

/* --- expiry --- */

bool window_row_expired(const struct row *row, uint64_t now_ms)
{
    uint64_t expires = row_expires_at_ms(row);
    return expires != 0 && expires <= now_ms;
}

void window_leave_expired(struct window *window, struct row *row)
{
    window_leave(window, row);
    row->next = window->expired;
    window->expired = row;
}

static void expire_flow(struct window *window, struct flow *flow, uint64_t now_ms)
{
    for (struct row *row = flow->first, *next; row != NULL; row = next) {
        next = row->next;
        if (window_row_expired(row, now_ms))
            window_leave_expired(window, row);
        else
            expiry_bound(&window->expires_at_ms, row_expires_at_ms(row));
    }
}

void window_expire(struct window *window, uint64_t now_ms)
{
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms)
        return;
    window->expires_at_ms = 0;
    expire_flow(window, &window->overdue, now_ms);
    for (int i = 0; i < CLASS_COUNT; i++)
        expire_flow(window, &window->classes[i].plain, now_ms);
    for (int i = 0; i < FLOW_BUCKETS; i++)
        for (struct flow *flow = window->flows.buckets[i]; flow != NULL; flow = flow->chain)
            expire_flow(window, flow, now_ms);
    end_idle(window);
}

struct row *window_take_expired(struct window *window)
{
    struct row *rows = window->expired;
    window->expired = NULL;
    return rows;
}

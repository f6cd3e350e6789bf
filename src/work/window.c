/* Who waits, and whose row is next: three classes, in each a ring of tenants, for each a list in order of age. All of
 * it is linked through the rows and costs the same however many wait. */
#include "work/window.h"

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
    const struct request *request = row->request;
    struct flow *flow = NULL;
    if (request->tenant[0] != '\0')
        flow = flows_make(&window->flows, request->class, request->tenant);
    return flow != NULL ? flow : &class_of(window, row)->plain;
}

/* The flow that a row joins; it is in the ring of its class from now on. */
static struct flow *join_flow(struct window *window, const struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct flow *flow = make_flow(window, row);
    if (class->ring == NULL && class->had < window->level)
        class->had = window->level;
    if (flow->first == NULL)
        ring_add(&class->ring, flow);
    return flow;
}

/* A flow without rows is idle until the call at hand is over, for some may come back until then. */
static void leave_flow(struct window *window, struct row *row)
{
    struct flow *flow = row->flow;
    flow_unlink(row);
    if (flow->first != NULL || flow == &window->overdue)
        return;
    ring_remove(&class_of(window, row)->ring, flow);
    flow->next = window->idle;
    window->idle = flow;
}

static void return_to_flow(struct window *window, struct flow *flow, struct row *row)
{
    if (flow->first == NULL && flow != &window->overdue) {
        struct window_class *class = class_of(window, row);
        struct flow **at = &window->idle;
        while (*at != flow)
            at = &(*at)->next;
        *at = flow->next;
        ring_add(&class->ring, flow);
        class->ring = flow; /* it was its turn */
    }
    flow_push_first(flow, row);
}

static void end_idle(struct window *window)
{
    for (struct flow *flow; (flow = window->idle) != NULL;) {
        window->idle = flow->next;
        if (flow->tenant[0] == '\0')
            flow->turn = 0;
        else
            flows_end(&window->flows, flow);
    }
}

/* --- rows --- */

static void charge(struct window *window, const struct row *row, int64_t tokens)
{
    struct flow *flow = row->flow == &window->overdue ? find_flow(window, row) : row->flow;
    class_of(window, row)->had += (uint64_t)tokens * cost[row->request->class]; /* wraps back when it is below 0 */
    if (flow != NULL)
        flow->turn += tokens;
}

static void count_in(struct window *window, struct row *row)
{
    const struct request *request = row->request;
    uint64_t expires = request->started_ns == 0 ? request->expires_at_ms : 0;
    if (expires != 0 && (window->expires_at_ms == 0 || expires < window->expires_at_ms))
        window->expires_at_ms = expires;
    row->twins = NULL;
    window->rows++;
    window->tokens += row->tokens;
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
    bool overdue = row->passed_over >= WINDOW_PASSED_OVER;
    charge(window, row, -(int64_t)row->tokens);
    row->in_hand = false;
    return_to_flow(window, overdue ? &window->overdue : row->flow, row);
}

void window_leave(struct window *window, struct row *row)
{
    if (!row->in_hand)
        leave_flow(window, row);
    row->in_hand = false;
    row->flow = NULL;
    window->rows--;
    window->tokens -= row->tokens;
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
    equals_close(&window->equals);
    *window = (struct window){0};
}

/* --- whose turn it is --- */

/* Whose turn has ended waits until all the others had theirs. What it took too much is part of its next turn. */
static struct flow *next_flow(struct window_class *class)
{
    while (class->ring->turn >= WINDOW_TURN_TOKENS) {
        class->ring->turn -= WINDOW_TURN_TOKENS;
        class->ring = class->ring->next;
    }
    return class->ring;
}

struct row *window_next(struct window *window)
{
    struct window_class *least = NULL;
    if (window->overdue.first != NULL)
        return window->overdue.first;
    for (int i = 0; i < CLASS_COUNT; i++) {
        struct window_class *class = &window->classes[i];
        if (class->ring != NULL && (least == NULL || class->had < least->had))
            least = class;
    }
    return least == NULL ? NULL : next_flow(least)->first;
}

static struct row *older(struct row *a, struct row *b)
{
    return a == NULL || (b != NULL && b->waiting_ns < a->waiting_ns) ? b : a;
}

struct row *window_oldest(const struct window *window)
{
    struct row *oldest = window->overdue.first;
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct flow *first = window->classes[i].ring, *flow = first;
        if (first == NULL)
            continue;
        do {
            oldest = older(oldest, flow->first);
            flow = flow->next;
        } while (flow != first);
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
    return window->rows >= limits->rows || window->tokens >= limits->tokens;
}

/* A class that begins to wait counts from where the one stands that has had least, or, when nobody waits, most. */
void window_taken(struct window *window)
{
    uint64_t least = UINT64_MAX, most = 0;
    end_idle(window);
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct window_class *class = &window->classes[i];
        most = class->had > most ? class->had : most;
        if (class->ring != NULL && class->had < least)
            least = class->had;
    }
    window->level = least == UINT64_MAX ? most : least > window->level ? least : window->level;
}

/* --- expiry --- */

bool window_row_expired(const struct row *row, uint64_t now_ms)
{
    const struct request *request = row->request;
    return request->expires_at_ms != 0 && request->expires_at_ms <= now_ms && request->started_ns == 0;
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
        uint64_t expires = row->request->started_ns == 0 ? row->request->expires_at_ms : 0;
        if (window_row_expired(row, now_ms))
            window_leave_expired(window, row);
        else if (expires != 0 && (window->expires_at_ms == 0 || expires < window->expires_at_ms))
            window->expires_at_ms = expires;
    }
}

void window_expire(struct window *window, uint64_t now_ms)
{
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms)
        return;
    window->expires_at_ms = 0;
    expire_flow(window, &window->overdue, now_ms);
    for (int i = 0; i < CLASS_COUNT; i++) {
        struct window_class *class = &window->classes[i];
        struct flow *last = class->ring == NULL ? NULL : class->ring->previous;
        for (struct flow *flow = class->ring, *next; flow != NULL; flow = next) {
            next = flow == last ? NULL : flow->next;
            expire_flow(window, flow, now_ms);
        }
    }
    end_idle(window);
}

struct row *window_take_expired(struct window *window)
{
    struct row *rows = window->expired;
    window->expired = NULL;
    return rows;
}

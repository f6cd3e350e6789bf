/* The window is three classes, each with its tenants, each with a list by age. Classes and tenants count exactly the
 * tokens that they have received, even when rows are examined and put back; one that begins to wait starts at the level
 * of those that wait. A step costs the logarithm of the number of tenants. */
#include "schedule/window.h"

#include <stdlib.h>
#include <string.h>

/* Returns whether a row may go. */
static bool window_admits(enum window_only only, const struct row *row)
{
    return only == WINDOW_ALL || (only == WINDOW_LOW) == (row->request->identity.class == CLASS_LOW);
}

/* 30 / weight, of the weights 6:3:1. */
static const uint64_t class_cost[CLASS_COUNT] = {[CLASS_HIGH] = 5, [CLASS_NORMAL] = 10, [CLASS_LOW] = 30};

static struct window_class *class_of(struct window *window, const struct row *row)
{
    return &window->classes[row->request->identity.class];
}

/* --- equal rows --- */

/* Chains have back pointers, so a row leaves in O(1). A row without a hash (0) is not found. */
static void dedup_add(struct window *window, struct row *row)
{
    row->chained_by = NULL;
    if (row->hash != 0 && !window->equal) { window->equal = calloc(WINDOW_EQUAL_BUCKETS, sizeof(struct row *)); }
    if (row->hash == 0 || !window->equal) { return; }
    struct row **bucket = &window->equal[row->hash % WINDOW_EQUAL_BUCKETS];
    row->chain = *bucket;
    row->chained_by = bucket;
    if (row->chain) { row->chain->chained_by = &row->chain; }
    *bucket = row;
}

static void dedup_remove(struct row *row)
{
    if (!row->chained_by) { return; }
    *row->chained_by = row->chain;
    if (row->chain) { row->chain->chained_by = row->chained_by; }
    row->chained_by = NULL;
}

bool rows_same_ids(const struct row *a, const struct row *b)
{
    return a->hash == b->hash && a->tokens == b->tokens && a->second == b->second &&
           memcmp(a->ids, b->ids, a->tokens * sizeof(*a->ids)) == 0;
}

/* --- tenants --- */

/* The queue of a row's tenant; NULL if it has none. */
static struct tenant_queue *find_tenant_queue(struct window *window, const struct row *row)
{
    const struct request *request = row->request;
    if (request->identity.tenant[0] == '\0') { return &class_of(window, row)->plain; }
    return tenant_table_find(&window->queues, request->identity.class, request->identity.tenant);
}

/* If there is no memory for a queue, the row waits with those that have no tenant. */
static struct tenant_queue *make_tenant_queue(struct window *window, const struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct tenant_queue *queue = find_tenant_queue(window, row);
    if (queue) { return queue; }
    if (tenant_heap_reserve(&class->heap, class->tenants + 1)) {
        queue = tenant_table_make(&window->queues, row->request->identity.class, row->request->identity.tenant);
    }
    if (!queue) { return &class->plain; }
    class->tenants++;
    return queue;
}

static bool class_waits(const struct window_class *class)
{
    return class->plain.first || class->heap.count > 0;
}

static void enter_heap(struct window_class *class, struct tenant_queue *queue)
{
    if (queue != &class->plain) { tenant_heap_add(&class->heap, queue); }
}

/* The queue that a row joins. */
static struct tenant_queue *join_tenant_queue(struct window *window, const struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct tenant_queue *queue = make_tenant_queue(window, row);
    if (!class_waits(class) && class->had < window->level) { class->had = window->level; }
    if (queue->first) { return queue; }
    if (queue->had < class->level) { queue->had = class->level; }
    enter_heap(class, queue);
    return queue;
}

/* A queue without rows stays until the current call ends: rows may come back. */
static void leave_tenant_queue(struct window *window, struct row *row)
{
    struct window_class *class = class_of(window, row);
    struct tenant_queue *queue = row->queue;
    tenant_queue_unlink(row);
    if (queue->first || queue == &window->overdue || queue == &class->plain) { return; }
    tenant_heap_remove(&class->heap, queue);
    if (queue->idle) { return; }
    queue->idle = true;
    queue->next = window->idle;
    window->idle = queue;
}

static void end_idle(struct window *window)
{
    for (struct tenant_queue *queue; (queue = window->idle) != NULL;) {
        window->idle = queue->next;
        queue->idle = false;
        if (queue->first) { continue; }
        window->classes[queue->class].tenants--;
        tenant_table_end(&window->queues, queue);
    }
}

/* --- rows --- */

static void book_tokens(struct window *window, const struct row *row, int64_t tokens)
{
    struct window_class *class = class_of(window, row);
    struct tenant_queue *queue = row->queue == &window->overdue ? find_tenant_queue(window, row) : row->queue;
    class->had += (uint64_t)tokens * class_cost[row->request->identity.class]; /* negative tokens subtract */
    if (!queue) { return; }
    queue->had += (uint64_t)tokens;
    class->most = queue->had > class->most ? queue->had : class->most;
    if (queue != &class->plain && queue->first) { tenant_heap_update(&class->heap, queue); }
}

static void count_in(struct window *window, struct row *row)
{
    expiry_bound(&window->expires_at_ms, expiry_of(row));
    row->duplicates = NULL;
    window->rows++;
    window->tokens += row->tokens;
    window->squares += (uint64_t)row->tokens * row->tokens;
    dedup_add(window, row);
}

void window_push(struct window *window, struct row *row, uint64_t now_ns)
{
    row->waiting_ns = now_ns;
    row->passed_over = 0;
    tenant_queue_push_last(join_tenant_queue(window, row), row);
    count_in(window, row);
}

void window_put_back(struct window *window, struct row *row)
{
    tenant_queue_push_first(join_tenant_queue(window, row), row);
    count_in(window, row);
}

void window_hold(struct window *window, struct row *row)
{
    book_tokens(window, row, row->tokens);
    leave_tenant_queue(window, row);
    row->in_hand = true;
}

void window_unhold(struct window *window, struct row *row)
{
    struct tenant_queue *queue = row->passed_over < WINDOW_PASSED_OVER ? row->queue : &window->overdue;
    book_tokens(window, row, -(int64_t)row->tokens);
    row->in_hand = false;
    if (!queue->first && queue != &window->overdue) { enter_heap(class_of(window, row), queue); }
    tenant_queue_push_first(queue, row);
}

static void window_leave(struct window *window, struct row *row)
{
    if (!row->in_hand) { leave_tenant_queue(window, row); }
    row->in_hand = false;
    row->queue = NULL;
    window->rows--;
    window->tokens -= row->tokens;
    window->squares -= (uint64_t)row->tokens * row->tokens;
    dedup_remove(row);
}

void window_remove(struct window *window, struct row *row)
{
    window_leave(window, row);
    end_idle(window);
}

void window_close(struct window *window)
{
    tenant_table_close(&window->queues);
    for (int i = 0; i < CLASS_COUNT; i++) { free(window->classes[i].heap.queues); }
    free(window->equal);
    *window = (struct window){0};
}

/* --- whose turn it is --- */

static struct tenant_queue *next_queue(struct window_class *class)
{
    struct tenant_queue *plain = &class->plain, *other = class->heap.count > 0 ? class->heap.queues[0] : NULL;
    if (!plain->first) { return other; }
    return other && other->had < plain->had ? other : plain;
}

/* The first overdue row that may go. */
static struct row *next_overdue(const struct window *window, enum window_only only)
{
    struct row *row = window->overdue.first;
    while (row && !window_admits(only, row)) { row = row->next; }
    return row;
}

/* Returns whether no other waiting class has had less for its weight than class high. Only the first overdue row counts
 * as waiting. */
static bool window_high_is_next(const struct window *window)
{
    const struct window_class *high = &window->classes[CLASS_HIGH];
    const struct row *overdue = window->overdue.first;
    if (!class_waits(high) || window->only == WINDOW_LOW) { return false; }
    for (int i = CLASS_HIGH + 1; i < CLASS_COUNT; i++) {
        const struct window_class *class = &window->classes[i];
        bool there = class_waits(class) || (overdue && overdue->request->identity.class == (enum request_class)i);
        if (there && class->had < high->had) { return false; }
    }
    return true;
}

struct row *window_next(struct window *window)
{
    struct window_class *least = NULL;
    struct row *overdue = next_overdue(window, window->only);
    if (overdue && !(window->brief && window_high_is_next(window))) { return overdue; }
    int end = window->only == WINDOW_ONLINE ? CLASS_LOW : CLASS_COUNT;
    for (int i = window->only == WINDOW_LOW ? CLASS_LOW : 0; i < end; i++) {
        struct window_class *class = &window->classes[i];
        if (class_waits(class) && (!least || class->had < least->had)) { least = class; }
    }
    return least ? tenant_queue_turn(next_queue(least), window->urgent_ms) : NULL;
}

bool window_has_low(const struct window *window)
{
    return next_overdue(window, WINDOW_LOW) || class_waits(&window->classes[CLASS_LOW]);
}

bool window_has_online(const struct window *window)
{
    return next_overdue(window, WINDOW_ONLINE) || class_waits(&window->classes[CLASS_HIGH]) ||
           class_waits(&window->classes[CLASS_NORMAL]);
}

bool window_has_others(const struct window *window)
{
    return window->overdue.first || class_waits(&window->classes[CLASS_NORMAL]) ||
           class_waits(&window->classes[CLASS_LOW]);
}

bool window_low_is_next(const struct window *window)
{
    const struct window_class *low = &window->classes[CLASS_LOW];
    if (window->overdue.first) { return window->overdue.first->request->identity.class == CLASS_LOW; }
    for (int i = 0; i < CLASS_LOW; i++) {
        if (class_waits(&window->classes[i]) && window->classes[i].had <= low->had) { return false; }
    }
    return class_waits(low);
}

static struct row *older_row(struct row *a, struct row *b)
{
    return !a || (b && b->waiting_ns < a->waiting_ns) ? b : a;
}

static struct row *window_oldest(const struct window *window)
{
    struct row *oldest = window->overdue.first;
    for (int i = 0; i < CLASS_COUNT; i++) {
        const struct window_class *class = &window->classes[i];
        oldest = older_row(oldest, class->plain.first);
        for (uint32_t f = 0; f < class->heap.count; f++) { oldest = older_row(oldest, class->heap.queues[f]->first); }
    }
    return oldest;
}

uint64_t window_oldest_ns(const struct window *window)
{
    const struct row *oldest = window_oldest(window);
    return oldest ? oldest->waiting_ns : UINT64_MAX;
}

struct row *window_pop(struct window *window)
{
    struct row *row = window_next(window);
    if (row) { window_remove(window, row); }
    return row;
}

bool window_full(const struct window *window, const struct window_limits *limits)
{
    if (window->rows >= limits->rows || window->tokens >= limits->tokens) { return true; }
    struct cost_shape shape = {(double)window->tokens, (double)window->squares, false};
    return limits->most_ns > 0 && cost_predict_ns(limits->cost, shape) >= limits->most_ns;
}

/* Sets the levels at which a class or tenant that starts to wait begins: the lowest count of those that wait, or the
 * highest of all if none waits. */
static void window_taken(struct window *window)
{
    uint64_t least = UINT64_MAX, most = 0;
    end_idle(window);
    for (int i = 0; i < CLASS_COUNT; i++) {
        struct window_class *class = &window->classes[i];
        uint64_t level = class_waits(class) ? next_queue(class)->had : class->most;
        class->level = level > class->level ? level : class->level;
        most = class->had > most ? class->had : most;
        if (class_waits(class) && class->had < least) { least = class->had; }
    }
    least = least == UINT64_MAX ? most : least;
    window->level = least > window->level ? least : window->level;
}

/* --- expiry --- */

static bool window_row_expired(const struct row *row, uint64_t now_ms)
{
    uint64_t expires = expiry_of(row);
    return expires != 0 && expires <= now_ms;
}

static void window_leave_expired(struct window *window, struct row *row)
{
    window_leave(window, row);
    row->next = window->expired;
    window->expired = row;
}

static void expire_queue(struct window *window, struct tenant_queue *queue, uint64_t now_ms)
{
    for (struct row *row = queue->first, *next; row != NULL; row = next) {
        next = row->next;
        if (window_row_expired(row, now_ms)) {
            window_leave_expired(window, row);
        } else {
            expiry_bound(&window->expires_at_ms, expiry_of(row));
        }
    }
}

void window_expire(struct window *window, uint64_t now_ms)
{
    if (window->expires_at_ms == 0 || now_ms < window->expires_at_ms) { return; }
    window->expires_at_ms = 0;
    expire_queue(window, &window->overdue, now_ms);
    for (int i = 0; i < CLASS_COUNT; i++) { expire_queue(window, &window->classes[i].plain, now_ms); }
    for (int i = 0; i < TENANT_BUCKETS; i++) {
        for (struct tenant_queue *queue = window->queues.buckets[i]; queue != NULL; queue = queue->chain) {
            expire_queue(window, queue, now_ms);
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

/* --- which rows go: the head, then one pass over the look-ahead. No row starves, because the head always goes and a
 * row that is passed over too often becomes the head --- */

/* A batch while it is being filled. */
struct filling {
    struct window *window;
    const struct window_limits *limits;
    struct row **chosen;
    uint32_t count, tokens, longest;
    double squares;                      /* of the lengths */
    struct row *hand[WINDOW_BATCH_ROWS]; /* examined and not chosen, in turn */
    uint32_t held;                       /* rows in `hand` */
    uint32_t passed;                     /* how many of the first ones were passed over for a later one */
    bool low_full;                       /* no further row of class low may join, so none counts as passed over */
};

/* Returns whether this row must leave room for online requests. */
static bool gives_way(const struct window_limits *limits, const struct row *row)
{
    return limits->low_ns > 0 && row->request->identity.class == CLASS_LOW;
}

/* Takes a row's duplicates along. Stops after a few rows that only share the bucket. */
static void take_duplicates(struct filling *filling, struct row *row)
{
    struct window *window = filling->window;
    uint32_t others = 0;
    struct row *first = window->equal && row->hash != 0 ? window->equal[row->hash % WINDOW_EQUAL_BUCKETS] : NULL;
    for (struct row *other = first, *next; other != NULL; other = next) {
        next = other->chain;
        if (!rows_same_ids(row, other)) {
            if (++others == WINDOW_LOOK_AHEAD) { return; }
        } else if (window_row_expired(other, filling->limits->now_ms)) {
            window_leave_expired(window, other);
        } else if (window_admits(window->only, other)) {
            if (other->in_hand) { window_unhold(window, other); }
            window_leave(window, other);
            other->duplicates = row->duplicates;
            row->duplicates = other;
        }
    }
}

static void choose_row(struct filling *filling, struct row *row)
{
    window_leave(filling->window, row);
    row->duplicates = NULL;
    take_duplicates(filling, row);
    filling->chosen[filling->count++] = row;
    filling->tokens += row->tokens;
    filling->squares += (double)row->tokens * row->tokens;
    if (row->tokens > filling->longest) { filling->longest = row->tokens; }
}

static bool ends_in_time(struct filling *filling, const struct row *row, uint64_t extent)
{
    const struct window_limits *limits = filling->limits;
    bool low = gives_way(limits, row);
    if (limits->most_ns <= 0 && !low) { return true; }
    double squares = filling->squares + (double)row->tokens * row->tokens;
    struct cost_shape shape = {(double)extent, squares, false};
    double takes_ns = cost_predict_ns(limits->cost, shape);
    filling->low_full = filling->low_full || (low && takes_ns > limits->low_ns);
    return (limits->most_ns <= 0 || takes_ns <= limits->most_ns) && !(low && filling->low_full);
}

static bool row_fits(struct filling *filling, const struct row *row)
{
    uint64_t tokens = (uint64_t)filling->tokens + row->tokens;
    if (filling->count >= filling->limits->rows) { return false; }
    if (filling->limits->layout == LAYOUT_PACKED) {
        return tokens <= filling->limits->tokens && ends_in_time(filling, row, tokens);
    }
    uint64_t longest = row->tokens > filling->longest ? row->tokens : filling->longest;
    uint64_t extent = longest * (filling->count + 1);
    bool near = filling->limits->layout == LAYOUT_PADDED_FIFO || extent * 3 <= tokens * 4;
    return near && extent <= filling->limits->tokens && ends_in_time(filling, row, extent);
}

/* Takes the next row in turn in hand; puts expired ones aside. */
static struct row *hold_next(struct filling *filling)
{
    struct window *window = filling->window;
    for (struct row *row; (row = window_next(window)) != NULL;) {
        if (!window_row_expired(row, filling->limits->now_ms)) {
            window_hold(window, row);
            return row;
        }
        window_leave_expired(window, row);
    }
    return NULL;
}

static struct row *hold_head(struct filling *filling)
{
    struct window *window = filling->window;
    bool in_turn = window->overdue.first || (window->brief && window_high_is_next(window));
    if (window->only != WINDOW_ALL || in_turn || window->batches + 1 < WINDOW_OLDEST_EVERY) {
        window->batches++;
        return hold_next(filling);
    }
    struct row *row = window_oldest(window);
    if (!row || window_row_expired(row, filling->limits->now_ms)) { return hold_next(filling); }
    window->batches = 0;
    window_hold(window, row);
    return row;
}

/* Puts back the rows that were examined and not taken, in order. */
static void leave_behind(struct filling *filling)
{
    for (uint32_t i = filling->held; i-- > 0;) {
        struct row *row = filling->hand[i];
        if (!row->queue) { /* chosen, or taken along by an equal row */
            continue;
        }
        bool passed = i < filling->passed && !(filling->low_full && gives_way(filling->limits, row));
        if (passed && row->passed_over < WINDOW_PASSED_OVER) { row->passed_over++; }
        window_unhold(filling->window, row);
    }
}

static void take_packed(struct filling *filling, uint32_t look_ahead)
{
    const struct window_limits *limits = filling->limits;
    for (uint32_t seen = 1; seen < look_ahead; seen++) {
        struct row *row = NULL;
        bool room = !filling->low_full || (limits->only != WINDOW_LOW && window_has_online(filling->window));
        if (room && filling->count < limits->rows && filling->tokens < limits->tokens) { row = hold_next(filling); }
        if (!row) { return; }
        if (row_fits(filling, row)) {
            choose_row(filling, row);
            filling->passed = filling->held;
        } else {
            filling->hand[filling->held++] = row;
        }
    }
}

struct neighbour {
    uint32_t distance; /* in length, to the head */
    uint32_t place;    /* in the hand */
};

static int compare_distance(const void *left, const void *right)
{
    const struct neighbour *a = left, *b = right;
    if (a->distance != b->distance) { return a->distance < b->distance ? -1 : 1; }
    return a->place < b->place ? -1 : 1;
}

static void take_padded(struct filling *filling, uint32_t look_ahead)
{
    struct neighbour near[WINDOW_BATCH_ROWS];
    uint32_t anchor = filling->longest;
    for (struct row *row; filling->held + 1 < look_ahead && (row = hold_next(filling));) {
        uint32_t distance = row->tokens > anchor ? row->tokens - anchor : anchor - row->tokens;
        near[filling->held] = (struct neighbour){distance, filling->held};
        filling->hand[filling->held++] = row;
    }
    qsort(near, filling->held, sizeof(near[0]), compare_distance);
    for (uint32_t i = 0; i < filling->held; i++) {
        struct row *row = filling->hand[near[i].place];
        if (!row->queue || !row_fits(filling, row)) { continue; }
        choose_row(filling, row);
        if (near[i].place > filling->passed) { filling->passed = near[i].place; }
    }
}

/* Takes the next rows in turn, up to the first that does not fit. */
static void take_in_order(struct filling *filling)
{
    for (struct row *row; (row = hold_next(filling)) != NULL; choose_row(filling, row)) {
        if (!row_fits(filling, row)) {
            filling->hand[filling->held++] = row;
            return;
        }
    }
}

uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen)
{
    struct filling filling = {.window = window, .limits = limits, .chosen = chosen};
    window->urgent_ms = limits->urgent_ms;
    window->only = limits->only;
    window->brief = limits->brief && limits->layout != LAYOUT_PADDED;
    struct row *head = hold_head(&filling);
    if (head) {
        choose_row(&filling, head);
        uint32_t look_ahead = limits->rows > WINDOW_LOOK_AHEAD ? limits->rows : WINDOW_LOOK_AHEAD;
        if (limits->layout == LAYOUT_PACKED && !window->brief) {
            take_packed(&filling, look_ahead);
        } else if (limits->layout == LAYOUT_PADDED) {
            take_padded(&filling, look_ahead);
        } else {
            take_in_order(&filling);
        }
        leave_behind(&filling);
    }
    window->urgent_ms = 0;
    window->brief = false;
    window->only = WINDOW_ALL;
    window_taken(window);
    return filling.count;
}

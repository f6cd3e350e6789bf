/* Who goes into the next batch: the head, and then one pass over the look-ahead. Nobody starves, because the head
 * always goes and who is passed over too often becomes the head. */
#include <stdlib.h>

#include "work/window_state.h"

/* A batch while it is being filled. */
struct filling {
    struct window *window;
    const struct window_limits *limits;
    struct row **chosen;
    uint32_t count, tokens, longest;
    double squares;                      /* of the lengths */
    struct row *hand[WINDOW_BATCH_ROWS]; /* looked at, in turn */
    uint32_t held;                       /* of them */
    uint32_t passed;                     /* the first so many were passed over: a later one was chosen */
    bool low_full;                       /* no row of class low may join any more, and so none is passed over */
};

/* Whether this row has to leave room for those of online requests. */
static bool gives_way(const struct window_limits *limits, const struct row *row)
{
    return limits->low_ns > 0 && row->request->class == CLASS_LOW;
}

/* Equal rows come along. A look at many that only share the bucket is not worth it. */
static void take_equals(struct filling *filling, struct row *row)
{
    struct window *window = filling->window;
    uint32_t others = 0;
    for (struct row *other = equals_chain(&window->equals, row), *next; other != NULL; other = next) {
        next = other->chain;
        if (!equals_same(row, other)) {
            if (++others == WINDOW_LOOK_AHEAD)
                return;
        } else if (window_row_expired(other, filling->limits->now_ms)) {
            window_leave_expired(window, other);
        } else if (window_admits(window->only, other)) {
            if (other->in_hand)
                window_unhold(window, other);
            window_leave(window, other);
            other->twins = row->twins;
            row->twins = other;
        }
    }
}

static void choose(struct filling *filling, struct row *row)
{
    window_leave(filling->window, row);
    row->twins = NULL;
    take_equals(filling, row);
    filling->chosen[filling->count++] = row;
    filling->tokens += row->tokens;
    filling->squares += (double)row->tokens * row->tokens;
    if (row->tokens > filling->longest)
        filling->longest = row->tokens;
}

static bool in_time(struct filling *filling, const struct row *row, uint64_t extent)
{
    const struct window_limits *limits = filling->limits;
    bool low = gives_way(limits, row);
    if (limits->most_ns <= 0 && !low)
        return true;
    double squares = filling->squares + (double)row->tokens * row->tokens;
    struct cost_shape shape = {(double)extent, squares, false};
    double takes_ns = cost_predict_ns(limits->cost, shape);
    filling->low_full = filling->low_full || (low && takes_ns > limits->low_ns);
    return (limits->most_ns <= 0 || takes_ns <= limits->most_ns) && !(low && filling->low_full);
}

static bool fits(struct filling *filling, const struct row *row)
{
    uint64_t tokens = (uint64_t)filling->tokens + row->tokens;
    if (filling->count >= filling->limits->rows)
        return false;
    if (filling->limits->layout == LAYOUT_PACKED)
        return tokens <= filling->limits->tokens && in_time(filling, row, tokens);
    uint64_t longest = row->tokens > filling->longest ? row->tokens : filling->longest;
    uint64_t extent = longest * (filling->count + 1);
    bool near = filling->limits->layout == LAYOUT_PADDED_FIFO || extent * 3 <= tokens * 4;
    return near && extent <= filling->limits->tokens && in_time(filling, row, extent);
}

/* The next in turn, in hand; those that may not start any more are put aside. */
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
    bool in_turn = window->overdue.first != NULL || (window->brief && window_high_is_next(window));
    if (window->only != WINDOW_ALL || in_turn || window->batches + 1 < WINDOW_OLDEST_EVERY) {
        window->batches++;
        return hold_next(filling);
    }
    struct row *row = window_oldest(window);
    if (row == NULL || window_row_expired(row, filling->limits->now_ms))
        return hold_next(filling);
    window->batches = 0;
    window_hold(window, row);
    return row;
}

/* What was looked at and not taken goes back, in order. */
static void leave_behind(struct filling *filling)
{
    for (uint32_t i = filling->held; i-- > 0;) {
        struct row *row = filling->hand[i];
        if (row->flow == NULL) /* chosen, or taken along by an equal one */
            continue;
        bool passed = i < filling->passed && !(filling->low_full && gives_way(filling->limits, row));
        if (passed && row->passed_over < WINDOW_PASSED_OVER)
            row->passed_over++;
        window_unhold(filling->window, row);
    }
}

static void take_packed(struct filling *filling, uint32_t look_ahead)
{
    const struct window_limits *limits = filling->limits;
    for (uint32_t seen = 1; seen < look_ahead; seen++) {
        struct row *row = NULL;
        bool room = !filling->low_full || (limits->only != WINDOW_LOW && window_has_online(filling->window));
        if (room && filling->count < limits->rows && filling->tokens < limits->tokens)
            row = hold_next(filling);
        if (row == NULL)
            return;
        if (fits(filling, row)) {
            choose(filling, row);
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

static int nearer(const void *left, const void *right)
{
    const struct neighbour *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    return a->place < b->place ? -1 : 1;
}

static void take_padded(struct filling *filling, uint32_t look_ahead)
{
    struct neighbour near[WINDOW_BATCH_ROWS];
    uint32_t anchor = filling->longest;
    for (struct row *row; filling->held + 1 < look_ahead && (row = hold_next(filling)) != NULL;) {
        uint32_t distance = row->tokens > anchor ? row->tokens - anchor : anchor - row->tokens;
        near[filling->held] = (struct neighbour){distance, filling->held};
        filling->hand[filling->held++] = row;
    }
    qsort(near, filling->held, sizeof(near[0]), nearer);
    for (uint32_t i = 0; i < filling->held; i++) {
        struct row *row = filling->hand[near[i].place];
        if (row->flow == NULL || !fits(filling, row))
            continue;
        choose(filling, row);
        if (near[i].place > filling->passed)
            filling->passed = near[i].place;
    }
}

/* The next in turn, up to the first that does not fit. */
static void take_in_order(struct filling *filling)
{
    for (struct row *row; (row = hold_next(filling)) != NULL; choose(filling, row))
        if (!fits(filling, row)) {
            filling->hand[filling->held++] = row;
            return;
        }
}

uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen)
{
    struct filling filling = {.window = window, .limits = limits, .chosen = chosen};
    window->urgent_ms = limits->urgent_ms;
    window->only = limits->only;
    window->brief = limits->brief && limits->layout != LAYOUT_PADDED;
    struct row *head = hold_head(&filling);
    if (head != NULL) {
        choose(&filling, head);
        uint32_t look_ahead = limits->rows > WINDOW_LOOK_AHEAD ? limits->rows : WINDOW_LOOK_AHEAD;
        if (limits->layout == LAYOUT_PACKED && !window->brief)
            take_packed(&filling, look_ahead);
        else if (limits->layout == LAYOUT_PADDED)
            take_padded(&filling, look_ahead);
        else
            take_in_order(&filling);
        leave_behind(&filling);
    }
    window->urgent_ms = 0;
    window->brief = false;
    window->only = WINDOW_ALL;
    window_taken(window);
    return filling.count;
}

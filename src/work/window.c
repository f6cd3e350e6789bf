/* A list in order of age and one pass over its look-ahead per batch: cheap per row, and nobody starves, because the
 * head always goes and who is passed over too often becomes the head. */
#include "work/window.h"

#include <stdlib.h>

void window_push(struct window *window, struct row *row, uint64_t now_ns)
{
    row->waiting_ns = now_ns;
    row->next = NULL;
    if (window->last == NULL)
        window->first = row;
    else
        window->last->next = row;
    window->last = row;
    window->rows++;
    window->tokens += row->tokens;
}

void window_put_back(struct window *window, struct row *row)
{
    row->next = window->first;
    window->first = row;
    if (window->last == NULL)
        window->last = row;
    window->rows++;
    window->tokens += row->tokens;
}

struct row *window_pop(struct window *window)
{
    struct row *row = window->first;
    if (row == NULL)
        return NULL;
    window->first = row->next;
    if (window->first == NULL)
        window->last = NULL;
    window->rows--;
    window->tokens -= row->tokens;
    row->next = NULL;
    return row;
}

bool window_full(const struct window *window, const struct window_limits *limits)
{
    return window->rows >= limits->rows || window->tokens >= limits->tokens;
}

/* A batch while it is being filled. */
struct filling {
    const struct window_limits *limits;
    struct row **chosen;
    uint32_t count, tokens, longest;
};

static void add(struct filling *filling, struct row *row)
{
    filling->chosen[filling->count++] = row;
    filling->tokens += row->tokens;
    if (row->tokens > filling->longest)
        filling->longest = row->tokens;
}

static bool fits(const struct filling *filling, const struct row *row)
{
    uint64_t tokens = (uint64_t)filling->tokens + row->tokens;
    if (filling->count >= filling->limits->rows)
        return false;
    if (filling->limits->layout == LAYOUT_PACKED)
        return tokens <= filling->limits->tokens;
    uint64_t longest = row->tokens > filling->longest ? row->tokens : filling->longest;
    uint64_t extent = longest * (filling->count + 1);
    return extent <= filling->limits->tokens && extent * 3 <= tokens * 4;
}

/* What was left behind goes back to the front: first the overdue, then the others, each in order of age. `older` of
 * them were passed over: a younger row was chosen. */
static void leave_behind(struct window *window, struct row **rows, uint32_t count, uint32_t older)
{
    for (uint32_t i = 0; i < older; i++)
        if (rows[i]->passed_over < WINDOW_PASSED_OVER)
            rows[i]->passed_over++;
    for (int overdue = 0; overdue <= 1; overdue++)
        for (uint32_t i = count; i-- > 0;)
            if ((rows[i]->passed_over >= WINDOW_PASSED_OVER) == (overdue == 1))
                window_put_back(window, rows[i]);
}

static void take_packed(struct window *window, struct filling *filling, uint32_t look_ahead)
{
    struct row *left[WINDOW_BATCH_ROWS];
    uint32_t left_count = 0, older = 0;
    for (uint32_t seen = 1; seen < look_ahead && window->first != NULL; seen++) {
        if (filling->count >= filling->limits->rows || filling->tokens >= filling->limits->tokens)
            break;
        struct row *row = window_pop(window);
        if (fits(filling, row)) {
            add(filling, row);
            older = left_count;
        } else {
            left[left_count++] = row;
        }
    }
    leave_behind(window, left, left_count, older);
}

struct neighbour {
    uint32_t distance; /* in length, to the head */
    uint32_t age;      /* place in the window */
    struct row *row;
};

static int nearer(const void *left, const void *right)
{
    const struct neighbour *a = left, *b = right;
    if (a->distance != b->distance)
        return a->distance < b->distance ? -1 : 1;
    return a->age < b->age ? -1 : 1;
}

static void take_padded(struct window *window, struct filling *filling, uint32_t look_ahead)
{
    struct neighbour near[WINDOW_BATCH_ROWS];
    struct row *left[WINDOW_BATCH_ROWS];
    uint32_t count = 0, left_count = 0, older = 0, youngest = 0, anchor = filling->longest;
    while (count + 1 < look_ahead && window->first != NULL) {
        struct row *row = window_pop(window);
        uint32_t distance = row->tokens > anchor ? row->tokens - anchor : anchor - row->tokens;
        left[count] = row;
        near[count] = (struct neighbour){distance, count, row};
        count++;
    }
    qsort(near, count, sizeof(near[0]), nearer);
    for (uint32_t i = 0; i < count; i++)
        if (fits(filling, near[i].row)) {
            add(filling, near[i].row);
            left[near[i].age] = NULL;
            youngest = near[i].age > youngest ? near[i].age : youngest;
        }
    for (uint32_t i = 0; i < count; i++)
        if (left[i] != NULL) {
            left[left_count++] = left[i];
            older += i < youngest;
        }
    leave_behind(window, left, left_count, older);
}

uint32_t window_take(struct window *window, const struct window_limits *limits, struct row **chosen)
{
    struct filling filling = {.limits = limits, .chosen = chosen};
    struct row *head = window_pop(window);
    if (head == NULL)
        return 0;
    add(&filling, head);
    uint32_t look_ahead = limits->rows > WINDOW_LOOK_AHEAD ? limits->rows : WINDOW_LOOK_AHEAD;
    if (limits->layout == LAYOUT_PACKED)
        take_packed(window, &filling, look_ahead);
    else
        take_padded(window, &filling, look_ahead);
    return filling.count;
}

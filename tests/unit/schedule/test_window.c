/* The choice of rows for the next batch, and a batch's layout in memory. */
#include "harness.h"

#include <stdlib.h>

#include "schedule/batch.h"
#include "schedule/window.h"

enum { ROWS = 1200 };

static const struct cost per_token = {.terms = {0, 1, 0}, .scale = 1}, per_square = {.terms = {0, 0, 1}, .scale = 1};

static struct row rows[ROWS];
static struct request requests[ROWS];
static int32_t ids[ROWS][512];

static void push(struct window *window, uint32_t i, enum request_class class, uint32_t tokens, uint64_t expires_ms)
{
    requests[i] =
        (struct request){.identity.entry = {i, 0}, .identity.class = class, .lifetime.expires_at_ms = expires_ms};
    rows[i] = (struct row){.request = &requests[i], .tokens = tokens, .ids = ids[i]};
    window_push(window, &rows[i], i);
}

static void fill(struct window *window, const uint32_t *lengths, uint32_t count)
{
    *window = (struct window){0};
    for (uint32_t i = 0; i < count; i++) { push(window, i, CLASS_NORMAL, lengths[i], 0); }
}

/* Takes a batch and checks its rows, by index. */
static void expect_batch(struct window *window, const struct window_limits *limits, const char *wanted)
{
    struct row *chosen[WINDOW_BATCH_ROWS];
    uint32_t count = window_take(window, limits, chosen);
    char text[512] = "";
    for (int i = 0; i < ROWS; i++) {
        for (uint32_t c = 0; c < count; c++) {
            if (chosen[c] == &rows[i]) {
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", text[0] == '\0' ? "" : " ", i);
            }
        }
    }
    assert_string_equal(text, wanted);
}

/* Fills a window with rows of class high for a letter h, low for l, else normal. */
static void fill_classes(struct window *window, const char *classes, const uint32_t *tokens)
{
    *window = (struct window){0};
    for (uint32_t i = 0; classes[i] != '\0'; i++) {
        enum request_class class = classes[i] == 'h' ? CLASS_HIGH : classes[i] == 'l' ? CLASS_LOW : CLASS_NORMAL;
        push(window, i, class, tokens[i], 0);
    }
}

/* Checks that the window knows the rows that are left. */
static void check_left(const struct window *window, const char *classes, const bool *gone)
{
    uint32_t count = 0, tokens = 0, low = 0;
    for (uint32_t i = 0; classes[i] != '\0'; i++) {
        count += !gone[i];
        tokens += gone[i] ? 0 : rows[i].tokens;
        low += !gone[i] && classes[i] == 'l';
    }
    assert_int_equal(window->rows, count);
    assert_int_equal(window->tokens, tokens);
    assert_int_equal(window_has_low(window), low > 0);
    assert_int_equal(window_has_online(window), count > low);
}

/* The rows of each batch until the window is empty. */
TEST(batches_take_the_rows_that_fit)
{
#define TIMED                                                                                                          \
    {                                                                                                                  \
        LAYOUT_PACKED, 1000, 32, .cost = &per_token, .most_ns = 100                                                    \
    }
#define LOW(layout, low)                                                                                               \
    {                                                                                                                  \
        layout, 1000, 32, .cost = &per_token, .most_ns = 200, .low_ns = low                                            \
    }
    static const struct {
        struct window_limits limits;
        const char *classes; /* of the rows: h, n, l */
        uint32_t tokens[8];
        const char *batches[6];
        int unpassed; /* 1 + a row that no batch counts as passed over; 0: none */
    } cases[] = {
        {{LAYOUT_PACKED, 100, 32}, "nnnnn", {40, 50, 30, 10, 60}, {"0 1 3", "2 4"}}, /* in order of age */
        {{LAYOUT_PACKED, 1000, 2}, "nnn", {1, 1, 1}, {"0 1", "2"}},
        /* A row larger than the budget runs alone. */
        {{LAYOUT_PACKED, 100, 32}, "nnnn", {300, 5, 500, 7}, {"0", "1 3", "2"}},
        {{LAYOUT_PADDED, 100, 32}, "nn", {300, 290}, {"0", "1"}},
        /* The example from the literature: short rows must not be padded to the long ones. */
        {{LAYOUT_PADDED, 8192, 32}, "nnnn", {100, 105, 200, 500}, {"0 1", "2", "3"}},
        {{LAYOUT_PADDED, 8192, 32}, "nnnn", {100, 500, 200, 105}, {"0 3", "1", "2"}},
        {{LAYOUT_PADDED, 30, 32}, "nnnn", {10, 10, 10, 10}, {"0 1 2", "3"}}, /* padding counts */
        {{LAYOUT_PADDED, 31, 32}, "nnnn", {10, 11, 10, 10}, {"0 2 3", "1"}},
        /* In order: four would be 1200 tokens with their padding. */
        {{LAYOUT_PADDED_FIFO, 1000, 32}, "nnnnn", {100, 300, 20, 50, 5}, {"0 1 2", "3 4"}},
        {{LAYOUT_PADDED_FIFO, 1000, 2}, "nnn", {5, 500, 7}, {"0 1", "2"}},
        /* Batches end at their time: 90000, 64, 25, 49, 9 in the second; 90 with the padding in the third. */
        {TIMED, "nnnnn", {40, 50, 30, 10, 60}, {"0 1 3", "2 4"}},
        {{LAYOUT_PACKED, 1000, 32, .cost = &per_square, .most_ns = 100},
         "nnnnn",
         {300, 8, 5, 7, 3},
         {"0", "1 2 4", "3"}},
        {{LAYOUT_PADDED, 1000, 32, .cost = &per_token, .most_ns = 100}, "nnnn", {30, 29, 28, 27}, {"0 1 2", "3"}},
        /* Rows of class low fill up only so far. */
        {LOW(LAYOUT_PACKED, 50), "llllnnn", {20, 20, 20, 20, 20, 20, 20}, {"0 4 5 6", "1 2", "3"}},
        {LOW(LAYOUT_PADDED, 50), "llllnnn", {20, 20, 20, 20, 20, 20, 20}, {"0 4 5 6", "1 2", "3"}},
        {LOW(LAYOUT_PACKED, 0), "llllnnn", {20, 20, 20, 20, 20, 20, 20}, {"0 1 2 3 4 5 6"}},
        /* One that gives way is the first of its class when that has its turn. */
        {LOW(LAYOUT_PACKED, 50), "lnnn", {40, 20, 20, 20}, {"1 2 3", "0"}, .unpassed = 1},
        {LOW(LAYOUT_PACKED, 50), "llll", {30, 40, 10, 10}, {"0", "1 2", "3"}},
        /* Brief batches pass nobody over. */
        {{LAYOUT_PACKED, 1000, 32, .cost = &per_token, .most_ns = 100, .brief = true},
         "nnnnn",
         {40, 70, 10, 300, 5},
         {"0", "1 2", "3", "4"},
         .unpassed = 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct window window;
        bool gone[8] = {false};
        fill_classes(&window, cases[i].classes, cases[i].tokens);
        for (const char *const *batch = cases[i].batches; *batch != NULL; batch++) {
            expect_batch(&window, &cases[i].limits, *batch);
            for (const char *at = *batch; *at != '\0'; at++) {
                if (*at != ' ') { gone[*at - '0'] = true; }
            }
            check_left(&window, cases[i].classes, gone);
            if (cases[i].unpassed > 0) { assert_int_equal(rows[cases[i].unpassed - 1].passed_over, 0); }
        }
        expect_batch(&window, &cases[i].limits, "");
        window_close(&window);
    }
#undef TIMED
#undef LOW
}

TEST(the_look_ahead_ends)
{
    static uint32_t lengths[300];
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    for (int i = 0; i < 300; i++) { lengths[i] = 99; }
    lengths[256] = 1;
    fill(&window, lengths, 300);
    expect_batch(&window, &limits, "0");
    expect_batch(&window, &limits, "1 256"); /* now it is within 256 rows of the head */
}

TEST(nobody_is_passed_over_for_ever)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    fill(&window, (uint32_t[]){60, 60, 90, 40, 40, 40, 40, 40, 40, 40, 40, 40, 40}, 13);
    expect_batch(&window, &limits, "0 3"); /* passes over 1 and 2 */
    expect_batch(&window, &limits, "1 4");
    expect_batch(&window, &limits, "2"); /* the oldest always goes, though nothing fits beside it */
    limits.tokens = 200;
    fill(&window, (uint32_t[]){100, 150, 30, 30, 40}, 5);
    rows[1].passed_over = 3;
    expect_batch(&window, &limits, "0 2 3 4");
    assert_int_equal(rows[1].passed_over, 4);
    assert_ptr_equal(window.overdue.first, &rows[1]);
    window_close(&window);
}

TEST(the_overdue_become_the_head)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    fill(&window, (uint32_t[]){50, 90, 95, 50, 10}, 5);
    rows[2].passed_over = 3;
    expect_batch(&window, &limits, "0 3");
    assert_ptr_equal(window_next(&window), &rows[2]);
    expect_batch(&window, &limits, "2");
    expect_batch(&window, &limits, "1 4");
}

/* --- shares --- */

/* A window that never becomes empty: each row taken comes back as a new row of the same class and tenant. */
struct supply {
    struct window window;
    struct window_limits limits;
    uint64_t had[CLASS_COUNT], had_by_tenant[8]; /* tokens that were taken */
    uint64_t batches;
};

static struct row *new_row(struct window *window, enum request_class class, uint32_t tenant, uint32_t tokens)
{
    static uint64_t names;
    struct request *request = calloc(1, sizeof(*request));
    struct row *row = calloc(1, sizeof(*row));
    assert_true(request != NULL && row != NULL);
    request->identity.class = class;
    request->identity.entry = (struct entry_id){++names, 0};
    if (tenant > 0) { snprintf(request->identity.tenant, sizeof(request->identity.tenant), "tenant-%u", tenant); }
    *row = (struct row){.request = request, .tokens = tokens, .ids = ids[0]};
    window_push(window, row, names);
    return row;
}

static uint32_t tenant_of(const struct row *row)
{
    return row->request->identity.tenant[0] == '\0' ? 0
                                                    : (uint32_t)atoi(row->request->identity.tenant + strlen("tenant-"));
}

static void free_row(struct row *row)
{
    free(row->request);
    free(row);
}

static uint32_t some_tokens(void)
{
    return 1 + (uint32_t)rand() % (rand() % 4 == 0 ? 300 : 40);
}

/* If there are several tenants, the long rows are one tenant's. */
static void supply_again(struct supply *supply, struct row *row, bool by_tenant)
{
    uint32_t tenant = tenant_of(row);
    uint32_t tokens = !by_tenant ? some_tokens() : tenant == 1 ? 250 : 10;
    (void)new_row(&supply->window, row->request->identity.class, tenant, tokens);
    free_row(row);
}

static void supply_batches(struct supply *supply, uint32_t count, bool by_tenant)
{
    for (uint32_t i = 0; i < count; i++) {
        struct row *chosen[WINDOW_BATCH_ROWS];
        uint32_t size = window_take(&supply->window, &supply->limits, chosen);
        assert_true(size > 0);
        for (uint32_t r = 0; r < size; r++) {
            supply->had[chosen[r]->request->identity.class] += chosen[r]->tokens;
            supply->had_by_tenant[tenant_of(chosen[r])] += chosen[r]->tokens;
            supply_again(supply, chosen[r], by_tenant);
        }
        supply->batches++;
    }
}

static void supply_end(struct supply *supply)
{
    for (struct row *row; (row = window_pop(&supply->window)) != NULL;) { free_row(row); }
    assert_int_equal(supply->window.rows, 0);
    assert_int_equal(supply->window.tokens, 0);
    for (int i = 0; i < TENANT_BUCKETS; i++) { /* queues end with their last row */
        assert_null(supply->window.queues.buckets[i]);
    }
    window_close(&supply->window);
}

static void expect_share(const uint64_t *had, int index, int count, double wanted)
{
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) { sum += had[i]; }
    double share = (double)had[index] / (double)sum;
    if (share < wanted - 0.02 || share > wanted + 0.02) { fail_msg("share %d is %f, not %f", index, share, wanted); }
}

TEST(classes_share_six_to_three_to_one)
{
    static const struct window_limits limits[] = {{LAYOUT_PACKED, 2000, 128, 0},
                                                  {LAYOUT_PADDED, 2000, 128, 0},
                                                  {LAYOUT_PACKED, 400, 8, 0},
                                                  {LAYOUT_PADDED, 400, 8, 0},
                                                  {LAYOUT_PACKED, 100, 1, 0},
                                                  {LAYOUT_PACKED, 100, 8, 0, .brief = true},
                                                  {LAYOUT_PACKED, 400, 64, 0, .brief = true}};
    srand(3);
    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
        struct supply supply = {.limits = limits[l]};
        for (int i = 0; i < 1500; i++) {
            (void)new_row(&supply.window, (enum request_class)(i % CLASS_COUNT), (uint32_t)i % 4, some_tokens());
        }
        supply_batches(&supply, 2000, false);
        expect_share(supply.had, CLASS_HIGH, CLASS_COUNT, 0.6);
        expect_share(supply.had, CLASS_NORMAL, CLASS_COUNT, 0.3);
        expect_share(supply.had, CLASS_LOW, CLASS_COUNT, 0.1);
        supply_end(&supply);
    }
}

TEST(what_a_class_leaves_goes_to_the_others)
{
    struct supply supply = {.limits = {LAYOUT_PACKED, 1000, 64, 0}};
    srand(4);
    for (int i = 0; i < 500; i++) { (void)new_row(&supply.window, CLASS_LOW, 0, some_tokens()); }
    supply_batches(&supply, 500, false);
    expect_share(supply.had, CLASS_LOW, CLASS_COUNT, 1);
    for (int i = 0; i < 500; i++) { (void)new_row(&supply.window, CLASS_NORMAL, 0, some_tokens()); }
    memset(supply.had, 0, sizeof(supply.had));
    supply_batches(&supply, 500, false); /* a class that was idle has saved nothing up: 3:1 from the first on */
    expect_share(supply.had, CLASS_LOW, CLASS_COUNT, 0.25);
    for (int i = 0; i < 500; i++) { (void)new_row(&supply.window, CLASS_HIGH, 0, some_tokens()); }
    for (int i = 0; i < 5; i++) {
        memset(supply.had, 0, sizeof(supply.had));
        supply_batches(&supply, 40, false);
        expect_share(supply.had, CLASS_HIGH, CLASS_COUNT, 0.6);
    }
    supply_end(&supply);
}

/* Shares are of tokens, not of rows: one tenant's long texts do not weigh less than another's short ones. */
TEST(tenants_share_alike_in_tokens)
{
    for (int layout = LAYOUT_PACKED; layout <= LAYOUT_PADDED; layout++) {
        struct supply supply = {.limits = {(enum batch_layout)layout, 1000, 128, 0}};
        for (uint32_t i = 0; i < 1200; i++) {
            (void)new_row(&supply.window, CLASS_NORMAL, i % 4, i % 4 == 1 ? 250 : 10);
        }
        supply_batches(&supply, 3000, true);
        for (int tenant = 0; tenant < 4; tenant++) { expect_share(supply.had_by_tenant, tenant, 4, 0.25); }
        supply_end(&supply);
    }
}

/* A newcomer does not pay for what the others had before it came, and they do not pay for its absence. */
TEST(a_tenant_that_did_not_wait_has_saved_nothing_up)
{
    struct supply supply = {.limits = {LAYOUT_PACKED, 1000, 128, 0}};
    for (int i = 0; i < 400; i++) { (void)new_row(&supply.window, CLASS_NORMAL, 1, 10); }
    supply_batches(&supply, 500, true);
    for (uint32_t tenant = 2; tenant <= 4; tenant++) { /* the first has had 500000 tokens when the second comes */
        for (int i = 0; i < 400; i++) { (void)new_row(&supply.window, CLASS_NORMAL, tenant, 10); }
        memset(supply.had_by_tenant, 0, sizeof(supply.had_by_tenant));
        supply_batches(&supply, 60, true);
        for (uint32_t each = 1; each <= tenant; each++) {
            expect_share(supply.had_by_tenant, (int)each, 8, 1.0 / tenant);
        }
    }
    supply_end(&supply);
}

TEST(one_tenants_mass_does_not_delay_anothers_few)
{
    enum { MASS = 100000, FEW = 10 };
    static struct row mass[MASS];
    struct request one = {.identity.class = CLASS_NORMAL, .identity.tenant = "mass"},
                   other = {.identity.class = CLASS_NORMAL, .identity.tenant = "few"};
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 2048, 64, 0};
    for (int i = 0; i < MASS; i++) {
        mass[i] = (struct row){.request = &one, .tokens = 100, .ids = ids[0]};
        window_push(&window, &mass[i], (uint64_t)i);
    }
    struct row *chosen[WINDOW_BATCH_ROWS];
    (void)window_take(&window, &limits, chosen);
    static struct row few[FEW];
    for (int i = 0; i < FEW; i++) {
        few[i] = (struct row){.request = &other, .tokens = 100, .ids = ids[0]};
        window_push(&window, &few[i], MASS);
    }
    uint32_t found = 0, batches = 0;
    for (; found < FEW; batches++) {
        uint32_t count = window_take(&window, &limits, chosen);
        for (uint32_t i = 0; i < count; i++) { found += chosen[i]->request == &other; }
    }
    assert_true(batches <= 2); /* half of each batch is theirs */
    window_close(&window);
}

/* New rows of all classes and tenants keep coming in, as many as leave. The tokens that go before a row depend only on
 * those before it in its own tenant's queue, and no batch is empty. */
TEST(nobody_starves)
{
    static const uint32_t weights[CLASS_COUNT] = {6, 3, 1};
    enum { TENANTS = 5, BATCH = 1000 };
    srand(11);
    for (int round = 0; round < 30; round++) {
        struct supply supply = {.limits = {round % 2 == 0 ? LAYOUT_PACKED : LAYOUT_PADDED, BATCH, 100, 0}};
        supply.limits.brief = round % 4 == 0;
        for (int i = 0; i < 900; i++) {
            (void)new_row(&supply.window, (enum request_class)(i % CLASS_COUNT), (uint32_t)rand() % TENANTS,
                          some_tokens());
        }
        supply_batches(&supply, 50, false);
        enum request_class class = (enum request_class)(round % CLASS_COUNT);
        const struct tenant_queue *queue = tenant_table_find(&supply.window.queues, class, "tenant-2");
        uint64_t taken = 0, before = 0; /* tokens of anybody, from now on; of its own tenant, before it */
        for (const struct row *row = queue == NULL ? NULL : queue->first; row != NULL; row = row->next) {
            before += row->tokens;
        }
        struct row *one = new_row(&supply.window, class, 2, 290); /* long, so that it hardly ever fits */
        uint64_t share = (before + one->tokens) * TENANTS * 10 / weights[class];
        if (supply.limits.layout == LAYOUT_PADDED) { /* there, length decides first */
            share *= 2;
        }
        for (bool gone = false; !gone;) {
            struct row *chosen[WINDOW_BATCH_ROWS];
            uint32_t size = window_take(&supply.window, &supply.limits, chosen);
            assert_true(size > 0 && taken <= share + 2 * (WINDOW_PASSED_OVER + 1) * BATCH);
            for (uint32_t i = 0; i < size; i++) {
                gone |= chosen[i] == one;
                taken += chosen[i]->tokens;
                supply_again(&supply, chosen[i], false);
            }
        }
        supply_end(&supply);
    }
}

TEST(every_tenth_batch_begins_with_the_oldest_row)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 10, 1, 0};
    struct row *low = new_row(&window, CLASS_LOW, 0, 10), *oldest = NULL;
    for (int i = 0; i < 20; i++) { (void)new_row(&window, CLASS_HIGH, 0, 10); }
    window.classes[CLASS_LOW].had = 1000000; /* it has had more than its share */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(window_take(&window, &limits, &oldest), 1);
        assert_int_equal(oldest == low, i == 9);
        free_row(oldest);
    }
    for (struct row *row; (row = window_pop(&window)) != NULL;) { free_row(row); }
    window_close(&window);
}

/* --- time --- */

/* High goes before overdue rows and before the oldest, but only while it has had no more than the others for its
 * weight. */
TEST(high_is_in_the_next_brief_batch)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 1000, 32, .cost = &per_token, .most_ns = 100};
    fill_classes(&window, "nnnnnnnn", (uint32_t[]){60, 60, 60, 60, 60, 60, 60, 60});
    for (uint32_t i = 0; i < WINDOW_PASSED_OVER; i++) { /* short ones pass the others over until these are overdue */
        push(&window, 20 + i, CLASS_NORMAL, 30, 0);
        struct row *chosen[WINDOW_BATCH_ROWS];
        (void)window_take(&window, &limits, chosen);
    }
    assert_non_null(window.overdue.first);
    limits.brief = true;
    window.batches = WINDOW_OLDEST_EVERY;
    push(&window, 40, CLASS_HIGH, 50, 0);
    uint32_t overdue = (uint32_t)(window.overdue.first - rows);
    expect_batch(&window, &limits, "40");
    push(&window, 41, CLASS_HIGH, 50, 0); /* another one at once: now the others have had less */
    char text[16];
    snprintf(text, sizeof(text), "%u", overdue);
    expect_batch(&window, &limits, text);
    expect_batch(&window, &limits, "41");
    window_close(&window);
}

/* Takes each class by itself; equal rows of the other class stay, and overdue rows are found after those of the other
 * class. */
TEST(a_batch_may_be_of_one_class_only)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 1000, 32, .cost = &per_token, .most_ns = 200, .low_ns = 50};
    for (int layout = 0; layout < 3; layout++) {
        limits.layout = (enum batch_layout)layout;
        limits.only = WINDOW_LOW;
        fill_classes(&window, "nlnll", (uint32_t[]){20, 20, 20, 20, 20});
        expect_batch(&window, &limits, "1 3");
        expect_batch(&window, &limits, "4");
        expect_batch(&window, &limits, "");
        assert_false(window_has_low(&window));
        limits.only = WINDOW_ONLINE;
        expect_batch(&window, &limits, "0 2");
        expect_batch(&window, &limits, "");
    }
    fill_classes(&window, "nln", (uint32_t[]){20, 20, 20});
    window_remove(&window, &rows[1]);
    window_remove(&window, &rows[2]);
    window_remove(&window, &rows[0]);
    for (uint32_t i = 0; i < 3; i++) {
        rows[i].ids = ids[0];
        rows[i].hash = 1;
        window_push(&window, &rows[i], i);
    }
    limits.only = WINDOW_LOW;
    expect_batch(&window, &limits, "1");
    assert_null(rows[1].duplicates);
    limits.only = WINDOW_ONLINE;
    expect_batch(&window, &limits, "0");
    assert_ptr_equal(rows[0].duplicates, &rows[2]);
    window_close(&window);

    for (int round = 0; round < 2; round++) {
        fill_classes(&window, round == 0 ? "ln" : "nl", (uint32_t[]){20, 20});
        for (int i = 1; i >= 0; i--) {
            window_hold(&window, &rows[i]);
            rows[i].passed_over = WINDOW_PASSED_OVER;
            window_unhold(&window, &rows[i]);
        }
        assert_ptr_equal(window.overdue.first, &rows[0]);
        assert_true(window_has_low(&window) && window_has_online(&window));
        limits.only = round == 0 ? WINDOW_ONLINE : WINDOW_LOW;
        expect_batch(&window, &limits, "1");
        limits.only = WINDOW_ALL;
        expect_batch(&window, &limits, "0");
    }
    window_close(&window);
}

TEST(a_window_is_full_by_time_too)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 1000, 32, .cost = &per_square, .most_ns = 100};
    fill(&window, (uint32_t[]){6, 7}, 2);
    assert_false(window_full(&window, &limits));
    fill(&window, (uint32_t[]){6, 7, 4}, 3);
    assert_true(window_full(&window, &limits));
    limits.most_ns = 0;
    assert_false(window_full(&window, &limits));
    window_close(&window);
}

/* Rows of the given deadlines (0: none), oldest first, 10 tokens each. */
static void fill_deadlines(struct window *window, const uint64_t *expires_ms, uint32_t count)
{
    *window = (struct window){0};
    for (uint32_t i = 0; i < count; i++) { push(window, i, CLASS_NORMAL, 10, expires_ms[i]); }
}

TEST(who_would_expire_during_the_batch_goes_first)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 20, 32, .now_ms = 1000, .urgent_ms = 1050};
    fill_deadlines(&window, (uint64_t[]){0, 0, 1060, 1040, 0, 1020}, 6);
    expect_batch(&window, &limits, "3 5");
    limits.urgent_ms = 1061;
    expect_batch(&window, &limits, "0 2");
    expect_batch(&window, &limits, "1 4");
    window_close(&window);
}

/* A row's deadline counts once the row is within the range of the look, though an earlier look had found none. */
TEST(who_stood_too_far_behind_is_seen_later)
{
    static uint64_t expires_ms[1100];
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 10, 1, .now_ms = 1000, .urgent_ms = 1050};
    struct row *taken;
    expires_ms[0] = 1010;
    expires_ms[1090] = 1040;
    fill_deadlines(&window, expires_ms, 1100);
    for (int i = 0; i < 67;
         i++) { /* the head of a batch is not always the next: every tenth is the oldest, the same here */
        limits.urgent_ms++;
        assert_int_equal(window_take(&window, &limits, &taken), 1);
        assert_ptr_equal(taken, &rows[i]);
    }
    limits.urgent_ms++;
    assert_int_equal(window_take(&window, &limits, &taken), 1);
    assert_ptr_equal(taken, &rows[1090]);
    while (window_pop(&window) != NULL)
        ;
    window_close(&window);
}

TEST(a_deadline_is_no_way_around_the_shares)
{
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 10, 1, .now_ms = 1000, .urgent_ms = 1050};
    struct row *taken;
    struct row *low = new_row(&window, CLASS_LOW, 0, 10), *high = new_row(&window, CLASS_HIGH, 1, 10);
    struct row *urgent = new_row(&window, CLASS_HIGH, 2, 10);
    low->request->lifetime.expires_at_ms = urgent->request->lifetime.expires_at_ms = 1010;
    window_remove(&window, low);
    window_push(&window, low, 0);
    window_remove(&window, urgent);
    window_push(&window, urgent, 1);
    window.classes[CLASS_LOW].had = 1000000;
    tenant_table_find(&window.queues, CLASS_HIGH, "tenant-2")->had = 500;
    assert_int_equal(window_take(&window, &limits, &taken), 1);
    assert_ptr_equal(taken, high);
    free_row(high);
    free_row(window_pop(&window));
    free_row(window_pop(&window));
    window_close(&window);
}

/* --- everything at once --- */

enum { MANY = 700 };

static void fill_at_random(struct window *window, bool seen[])
{
    for (uint32_t i = 0; i < MANY; i++) {
        requests[i] =
            (struct request){.identity.entry = {i, 0}, .identity.class = (enum request_class)(rand() % CLASS_COUNT)};
        snprintf(requests[i].identity.tenant, sizeof(requests[i].identity.tenant), "%.*s", rand() % 3, "ab");
        requests[i].lifetime.expires_at_ms = rand() % 10 == 0 ? 1 + (uint64_t)rand() % 200 : 0;
        uint32_t number = (uint32_t)rand() % 500, tokens = 1 + number * 7 % (number % 9 == 0 ? 300 : 50);
        for (uint32_t t = 0; t < tokens; t++) { ids[i][t] = (int32_t)number; }
        rows[i] = (struct row){.request = &requests[i], .tokens = tokens, .ids = ids[i], .hash = number % 90};
        seen[i] = false;
        window_push(window, &rows[i], i);
    }
}

static uint32_t see(struct row *row, bool seen[])
{
    assert_false(seen[row - rows]);
    assert_null(row->queue);
    seen[row - rows] = true;
    return 1;
}

static uint32_t see_batch(struct row **chosen, uint32_t count, const struct window_limits *limits, bool seen[])
{
    uint32_t tokens = 0, longest = 0, gone = 0;
    assert_true(count <= limits->rows);
    for (uint32_t i = 0; i < count; i++) {
        tokens += chosen[i]->tokens;
        longest = chosen[i]->tokens > longest ? chosen[i]->tokens : longest;
        for (struct row *row = chosen[i]; row != NULL; row = row->duplicates) {
            assert_true(row == chosen[i] || rows_same_ids(row, chosen[i]));
            assert_true(row->request->lifetime.expires_at_ms == 0 ||
                        row->request->lifetime.expires_at_ms > limits->now_ms);
            gone += see(row, seen);
        }
        for (uint32_t j = 0; j < i; j++) { /* equal ones are not computed twice */
            assert_true(chosen[i]->hash == 0 || !rows_same_ids(chosen[i], chosen[j]));
        }
    }
    assert_true(count <= 1 || (limits->layout == LAYOUT_PACKED ? tokens : longest * count) <= limits->tokens);
    return gone;
}

TEST(random_windows_lose_and_double_nothing)
{
    static uint32_t lengths[ROWS];
    srand(7);
    for (int round = 0; round < 300; round++) {
        struct window window = {0};
        struct window_limits limits = {(enum batch_layout)(round % 3), 50 + (uint32_t)rand() % 600,
                                       1 + (uint32_t)rand() % 300};
        uint32_t count = 1 + (uint32_t)rand() % ROWS, taken = 0;
        bool seen[ROWS] = {false};
        for (uint32_t i = 0; i < count; i++) { lengths[i] = 1 + (uint32_t)rand() % (rand() % 4 == 0 ? 500 : 60); }
        fill(&window, lengths, count);
        while (window.rows > 0) {
            struct row *chosen[WINDOW_BATCH_ROWS], *head = window_next(&window);
            uint32_t size = window_take(&window, &limits, chosen);
            assert_true(size > 0);
            assert_ptr_equal(chosen[0], head);
            taken += see_batch(chosen, size, &limits, seen);
        }
        assert_int_equal(taken, count);
        assert_int_equal(window.tokens, 0);
    }
}

/* Rows leave in batches, are put back, dropped or expire: each leaves once, and all counters are right in the end. */
TEST(rows_leave_once_whatever_happens)
{
    static bool seen[MANY];
    uint32_t expired = 0, shared = 0;
    srand(21);
    for (int round = 0; round < 300; round++) {
        struct window window = {0};
        struct window_limits limits = {.layout = round % 2 == 0 ? LAYOUT_PACKED : LAYOUT_PADDED,
                                       .tokens = 50 + (uint32_t)rand() % 1000,
                                       .rows = 1 + (uint32_t)rand() % 100,
                                       .cost = &per_token};
        uint32_t gone = 0;
        fill_at_random(&window, seen);
        while (window.rows > 0) {
            struct row *chosen[WINDOW_BATCH_ROWS];
            limits.now_ms += (uint32_t)rand() % 4;
            limits.urgent_ms = limits.now_ms + (uint32_t)rand() % 20;
            limits.most_ns = rand() % 3 * 100;
            limits.low_ns = rand() % 3 * 40;
            limits.brief = rand() % 2 == 0;
            uint32_t count = window_take(&window, &limits, chosen), before = gone;
            gone += see_batch(chosen, count, &limits, seen);
            shared += gone - before - count;
            if (count > 0 && rand() % 4 == 0 && chosen[0]->duplicates == NULL) {
                window_put_back(&window, chosen[0]);
                seen[chosen[0] - rows] = false;
                gone--;
            }
            struct row *any = &rows[rand() % MANY];
            if (any->queue != NULL && rand() % 4 == 0) {
                window_remove(&window, any);
                gone += see(any, seen);
            }
            if (rand() % 4 == 0) { window_expire(&window, limits.now_ms); }
            for (struct row *row = window_take_expired(&window), *next; row != NULL; row = next, expired++) {
                next = row->next;
                gone += see(row, seen);
            }
            assert_int_equal(gone + window.rows, MANY);
        }
        assert_int_equal(window.tokens, 0);
        assert_int_equal(window.squares, 0);
        for (int i = 0; i < WINDOW_EQUAL_BUCKETS; i++) { assert_null(window.equal[i]); }
        for (int i = 0; i < TENANT_BUCKETS; i++) { assert_null(window.queues.buckets[i]); }
        window_close(&window);
    }
    assert_true(expired > 1000 && shared > 1000);
}

static void check_layout(enum batch_layout layout, uint32_t extent, const uint32_t *starts)
{
    struct window window = {0};
    fill(&window, (uint32_t[]){3, 5, 2}, 3);
    for (int i = 0; i < 3; i++) {
        for (uint32_t t = 0; t < 5; t++) { ids[i][t] = i * 100 + (int)t; }
    }
    struct batch *batch = batch_build((struct row *[]){&rows[0], &rows[1], &rows[2]}, 3, layout, 7);
    static const int order[] = {1, 0, 2}; /* longest first */
    assert_int_equal(batch->tokens, 10);
    assert_int_equal(batch->engine.rows, 3);
    assert_int_equal(batch->engine.extent, extent);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(batch->rows[i], &rows[order[i]]);
        assert_int_equal(batch->engine.start[i], starts[i]);
        assert_int_equal(batch->engine.length[i], rows[order[i]].tokens);
        assert_memory_equal(batch->engine.ids + starts[i], ids[order[i]], rows[order[i]].tokens * 4);
        for (int d = 0; d < 7; d++) { batch->engine.output[i * 7 + d] = 1; /* there is room: the sanitizer looks */ }
    }
    batch_free(batch);
}

TEST(packed_and_padded_fill_start)
{
    check_layout(LAYOUT_PACKED, 10, (uint32_t[]){0, 5, 8});
    check_layout(LAYOUT_PADDED, 15, (uint32_t[]){0, 5, 10});
}

/* Equal ids may be those of pairs that are split at another place: they have other token types. */
TEST(pairs_are_equal_where_they_are_split_alike)
{
    struct window window = {0};
    fill(&window, (uint32_t[]){3, 3}, 2);
    memcpy(ids[1], ids[0], sizeof ids[0]);
    rows[0].hash = rows[1].hash = 7;
    assert_true(rows_same_ids(&rows[0], &rows[1]));
    struct batch *batch = batch_build((struct row *[]){&rows[0], &rows[1]}, 2, LAYOUT_PACKED, 1);
    assert_null(batch->engine.second);
    batch_free(batch);
    rows[1].second = 2;
    assert_false(rows_same_ids(&rows[0], &rows[1]));
    batch = batch_build((struct row *[]){&rows[0], &rows[1]}, 2, LAYOUT_PACKED, 1);
    for (uint32_t i = 0; i < 2; i++) { assert_int_equal(batch->engine.second[i], batch->rows[i]->second); }
    batch_free(batch);
    rows[1].second = 0;
}

/* Who goes into the next batch, and how a batch lies in memory. */
#include "harness.h"

#include <stdlib.h>

#include "work/window_state.h"

enum { ROWS = 1200 };

static struct row rows[ROWS];
static struct request requests[ROWS];
static int32_t ids[ROWS][512];

static void fill(struct window *window, const uint32_t *lengths, uint32_t count)
{
    *window = (struct window){0};
    for (uint32_t i = 0; i < count; i++) {
        requests[i] = (struct request){.entry = {i, 0}};
        rows[i] = (struct row){.request = &requests[i], .tokens = lengths[i], .ids = ids[i]};
        window_push(window, &rows[i], i);
    }
}

/* Takes a batch and checks which rows, by index, it has. */
static void expect_batch(struct window *window, const struct window_limits *limits, const char *wanted)
{
    struct row *chosen[WINDOW_BATCH_ROWS];
    uint32_t count = window_take(window, limits, chosen);
    char text[512] = "";
    for (int i = 0; i < ROWS; i++)
        for (uint32_t c = 0; c < count; c++)
            if (chosen[c] == &rows[i])
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s%d", text[0] == '\0' ? "" : " ", i);
    assert_string_equal(text, wanted);
}

static void packed_batches_fill_the_budget_in_order_of_age(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    fill(&window, (uint32_t[]){40, 50, 30, 10, 60}, 5);
    expect_batch(&window, &limits, "0 1 3");
    assert_int_equal(window.rows, 2);
    assert_int_equal(window.tokens, 90);
    expect_batch(&window, &limits, "2 4");
    expect_batch(&window, &limits, "");
}

static void rows_are_limited_too(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 1000, 2};
    fill(&window, (uint32_t[]){1, 1, 1}, 3);
    expect_batch(&window, &limits, "0 1");
    expect_batch(&window, &limits, "2");
}

static void a_row_larger_than_the_budget_runs_alone(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    fill(&window, (uint32_t[]){300, 5, 500, 7}, 4);
    expect_batch(&window, &limits, "0");
    expect_batch(&window, &limits, "1 3");
    expect_batch(&window, &limits, "2");
    limits.layout = LAYOUT_PADDED;
    fill(&window, (uint32_t[]){300, 290}, 2);
    expect_batch(&window, &limits, "0");
}

/* The example from the literature: short ones must not be padded to the long ones. */
static void padded_batches_take_the_nearest_in_length(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PADDED, 8192, 32};
    fill(&window, (uint32_t[]){100, 105, 200, 500}, 4);
    expect_batch(&window, &limits, "0 1");
    expect_batch(&window, &limits, "2");
    expect_batch(&window, &limits, "3");
    fill(&window, (uint32_t[]){100, 500, 200, 105}, 4);
    expect_batch(&window, &limits, "0 3");
}

static void padded_batches_count_their_padding(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PADDED, 30, 32};
    fill(&window, (uint32_t[]){10, 10, 10, 10}, 4);
    expect_batch(&window, &limits, "0 1 2");
    limits.tokens = 31;
    fill(&window, (uint32_t[]){10, 11, 10, 10}, 4);
    expect_batch(&window, &limits, "0 2 3");
}

static void the_look_ahead_ends(void **state)
{
    (void)state;
    static uint32_t lengths[300];
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    for (int i = 0; i < 300; i++)
        lengths[i] = 99;
    lengths[256] = 1;
    fill(&window, lengths, 300);
    expect_batch(&window, &limits, "0");
    expect_batch(&window, &limits, "1 256"); /* now it is within 256 rows of the head */
}

static void nobody_is_passed_over_for_ever(void **state)
{
    (void)state;
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

static void the_overdue_become_the_head(void **state)
{
    (void)state;
    struct window window = {0};
    struct window_limits limits = {LAYOUT_PACKED, 100, 32};
    fill(&window, (uint32_t[]){50, 90, 95, 50, 10}, 5);
    rows[2].passed_over = 3;
    expect_batch(&window, &limits, "0 3");
    assert_ptr_equal(window_next(&window), &rows[2]);
    expect_batch(&window, &limits, "2");
    expect_batch(&window, &limits, "1 4");
}

static void random_windows_lose_and_double_nothing(void **state)
{
    (void)state;
    static uint32_t lengths[ROWS];
    srand(7);
    for (int round = 0; round < 300; round++) {
        struct window window = {0};
        struct window_limits limits = {round % 2 == 0 ? LAYOUT_PACKED : LAYOUT_PADDED, 50 + (uint32_t)rand() % 600,
                                       1 + (uint32_t)rand() % 300};
        uint32_t count = 1 + (uint32_t)rand() % ROWS, taken = 0, batches = 0;
        for (uint32_t i = 0; i < count; i++)
            lengths[i] = 1 + (uint32_t)rand() % (rand() % 4 == 0 ? 500 : 60);
        fill(&window, lengths, count);
        bool seen[ROWS] = {false};
        while (window.rows > 0) {
            struct row *chosen[WINDOW_BATCH_ROWS], *head = window_next(&window);
            uint32_t size = window_take(&window, &limits, chosen), tokens = 0, longest = 0;
            assert_ptr_equal(chosen[0], head);
            for (uint32_t i = 0; i < size; i++) {
                assert_false(seen[chosen[i] - rows]);
                seen[chosen[i] - rows] = true;
                tokens += chosen[i]->tokens;
                longest = chosen[i]->tokens > longest ? chosen[i]->tokens : longest;
            }
            assert_true(size <= limits.rows);
            assert_true(size == 1 || (limits.layout == LAYOUT_PACKED ? tokens : longest * size) <= limits.tokens);
            taken += size;
            assert_true(++batches <= count);
        }
        assert_int_equal(taken, count);
        assert_int_equal(window.tokens, 0);
    }
}

static void check_layout(enum batch_layout layout, uint32_t extent, const uint32_t *starts)
{
    struct window window = {0};
    fill(&window, (uint32_t[]){3, 5, 2}, 3);
    for (int i = 0; i < 3; i++)
        for (uint32_t t = 0; t < 5; t++)
            ids[i][t] = i * 100 + (int)t;
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
        for (int d = 0; d < 7; d++)
            batch->engine.output[i * 7 + d] = 1; /* there is room: the sanitizer looks */
    }
    batch_free(batch);
}

static void packed_and_padded_fill_start(void **state)
{
    (void)state;
    check_layout(LAYOUT_PACKED, 10, (uint32_t[]){0, 5, 8});
    check_layout(LAYOUT_PADDED, 15, (uint32_t[]){0, 5, 10});
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(packed_batches_fill_the_budget_in_order_of_age),
    cmocka_unit_test(rows_are_limited_too),
    cmocka_unit_test(a_row_larger_than_the_budget_runs_alone),
    cmocka_unit_test(padded_batches_take_the_nearest_in_length),
    cmocka_unit_test(padded_batches_count_their_padding),
    cmocka_unit_test(the_look_ahead_ends),
    cmocka_unit_test(nobody_is_passed_over_for_ever),
    cmocka_unit_test(the_overdue_become_the_head),
    cmocka_unit_test(random_windows_lose_and_double_nothing),
    cmocka_unit_test(packed_and_padded_fill_start),
};

TEST_MAIN(cases)

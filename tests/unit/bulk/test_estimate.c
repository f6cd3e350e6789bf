/* The estimate of the time left, for imaginary jobs on a virtual clock. */
#include "harness.h"

#include <math.h>

#include "base/clock.h"
#include "bulk/estimate.h"

enum { ROWS = 1000000, WINDOW = 65536, STEP = 64, PERIOD_S = 40 };

/* A job of rows of random lengths, where every second row after the first window copies another one. */
struct made {
    uint16_t *tokens; /* [ROWS]; 0: copied */
    double rate;      /* tokens a second */
    double wobble;    /* share of the rate by which it rises and falls, once in PERIOD_S */
    unsigned begin;   /* the first row of this process; those before were computed by an earlier run */
    unsigned stored;  /* rows of the first window that the earlier run had computed, too */
};

/* The time at which a step of rows that begins at `now` is computed; `work`: its tokens. */
static uint64_t end_of_step(const struct made *made, unsigned row, uint64_t now, uint64_t *work)
{
    double seconds = (double)now / (double)NS_PER_S, rate = made->rate;
    rate *= 1 + made->wobble * sin(2 * M_PI * seconds / PERIOD_S);
    *work = 0;
    for (unsigned i = row; i < row + STEP && i < ROWS; i++) {
        *work += i < made->begin + made->stored ? 0 : made->tokens[i];
    }
    return now + (uint64_t)((double)*work / rate * (double)NS_PER_S);
}

/* Runs it, and checks the estimate from the second minute on until a few seconds are left. Two windows are planned
 * ahead, as in a job. */
static void run(const struct made *made)
{
    struct estimate estimate = {0};
    uint64_t begin = 1000 * NS_PER_S, now = begin, end_ns = begin, work;
    unsigned planned = made->begin, checks = 0;
    for (unsigned row = made->begin; row < ROWS; row += STEP) { end_ns = end_of_step(made, row, end_ns, &work); }
    estimate_begin(&estimate, (double)made->begin / ROWS);
    assert_true(estimate_left_s(&estimate, now) < 0);
    for (unsigned row = made->begin; row < ROWS; row += STEP) {
        while (planned < ROWS && planned < row + WINDOW) {
            uint64_t todo = 0, known = 0;
            unsigned end = planned + WINDOW < ROWS ? planned + WINDOW : ROWS;
            for (; planned < end; planned++) {
                bool stored = planned < made->begin + made->stored;
                todo += stored ? 0 : made->tokens[planned];
                known += stored ? made->tokens[planned] : 0;
            }
            estimate_plan(&estimate, (double)planned / ROWS, todo, known, now);
        }
        now = end_of_step(made, row, now, &work);
        estimate_done(&estimate, work, now);
        double left = (double)(end_ns - now) / (double)NS_PER_S;
        if (now - begin >= 120 * NS_PER_S && left > (made->wobble > 0 ? PERIOD_S / 2.0 : 5)) {
            checks++;
            double said = estimate_left_s(&estimate, now);
            if (fabs(said - left) > 0.2 * left) {
                print_error("%.0f s left, and %.0f s were said\n", left, said);
                fail();
            }
        }
    }
    assert_true(checks > 100);
    assert_float_equal(estimate_share(&estimate), 1, 1e-9);
    assert_float_equal(estimate_left_s(&estimate, now), 0, 1e-9);
}

/* An earlier run computed a part, and some of the window in which it was stopped; a loaded machine's speed rises and
 * falls by a third. */
TEST(from_the_beginning_and_after_a_resume)
{
    static const struct made cases[] = {
        {.begin = 0},
        {.begin = 5 * WINDOW / 2, .stored = WINDOW / 4},
        {.begin = 5 * 2 * WINDOW / 2, .stored = WINDOW / 4 * 2},
        {.begin = 5 * 3 * WINDOW / 2, .stored = WINDOW / 4 * 3},
        {.begin = 5 * WINDOW / 2, .stored = WINDOW / 4, .wobble = 1 / 3.0},
    };
    static uint16_t tokens[ROWS];
    uint32_t random = 7;
    for (unsigned row = 0; row < ROWS; row++) {
        random = random * 1664525 + 1013904223;
        bool copied = row >= WINDOW && random >> 31;
        tokens[row] = copied ? 0 : (uint16_t)(8 + (random >> 20) % 120);
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct made made = cases[i];
        made.tokens = tokens;
        made.rate = 50000;
        run(&made);
    }
}

/* Every row of the first windows copies one of an earlier run: nothing is known before there is work. */
TEST(nothing_but_copies)
{
    struct estimate estimate = {0};
    estimate_begin(&estimate, 0.5);
    estimate_plan(&estimate, 0.75, 0, 0, NS_PER_S);
    assert_true(estimate_left_s(&estimate, 2 * NS_PER_S) < 0);
    assert_float_equal(estimate_share(&estimate), 0.75, 1e-9);
    estimate_plan(&estimate, 1, 100, 0, 2 * NS_PER_S);
    estimate_done(&estimate, 50, 3 * NS_PER_S);
    assert_float_equal(estimate_left_s(&estimate, 3 * NS_PER_S), 1, 1e-6);
    assert_float_equal(estimate_share(&estimate), 0.75, 1e-9); /* half of the work planned in half of the input */
}

/* A machine that becomes three times as slow: in some minutes the estimate follows. */
TEST(another_speed)
{
    struct estimate estimate = {0};
    uint64_t now = NS_PER_S;
    estimate_begin(&estimate, 0);
    estimate_plan(&estimate, 1, 30 * 1000, 0, now);
    for (unsigned i = 0; i < 600; i++) { estimate_done(&estimate, 30, now += NS_PER_S); }
    assert_float_equal(estimate_left_s(&estimate, now), 400, 1);
    for (unsigned i = 0; i < 300; i++) { estimate_done(&estimate, 10, now += NS_PER_S); }
    assert_float_equal(estimate_left_s(&estimate, now), 900, 150);
    assert_true(estimate_left_s(&estimate, now + 60 * NS_PER_S) > estimate_left_s(&estimate, now)); /* it hangs */
}

TEST(an_input_of_unknown_size)
{
    struct estimate estimate = {0};
    estimate_begin(&estimate, -1);
    estimate_plan(&estimate, -1, 100, 0, NS_PER_S);
    estimate_done(&estimate, 50, 2 * NS_PER_S);
    assert_true(estimate_left_s(&estimate, 2 * NS_PER_S) < 0);
    assert_true(estimate_share(&estimate) < 0);
}

/* Who has the process: three workers of one, and what they are told. */
#include "work/worker.h"

#include "base/clock.h"
#include "harness.h"

enum { COUNT = 3 };

struct process {
    struct alone_worker workers[COUNT];
    struct alone alone;
    enum turn told[COUNT];
    uint64_t now;
    bool rest;
};

static void begin(struct process *process)
{
    *process = (struct process){.now = NS_PER_S, .rest = true};
    process->alone = (struct alone){.workers = process->workers, .count = COUNT};
}

static void tell(struct process *process)
{
    size_t who;
    enum turn turn;
    while (alone_next(&process->alone, process->now, process->rest, &who, &turn)) {
        assert_true(process->told[who] != turn);
        process->told[who] = turn;
    }
}

static void expect(struct process *process, enum turn first, enum turn second, enum turn third)
{
    tell(process);
    assert_int_equal(process->told[0], first);
    assert_int_equal(process->told[1], second);
    assert_int_equal(process->told[2], third);
}

static void nobody_asks_nobody_is_told(void **state)
{
    (void)state;
    struct process process;
    begin(&process);
    expect(&process, TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
    assert_true(alone_deadline(&process.alone) == UINT64_MAX);
}

static void all_rest_before_one_is_alone(void **state)
{
    (void)state;
    struct process process;
    begin(&process);
    process.rest = false;
    alone_ask(&process.alone, 1);
    expect(&process, TURN_REST, TURN_REST, TURN_REST);
    expect(&process, TURN_REST, TURN_REST, TURN_REST);
    process.rest = true;
    expect(&process, TURN_REST, TURN_ALONE, TURN_REST);
    alone_end(&process.alone, 1, process.now);
    expect(&process, TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
}

/* Each in its turn, and everybody's work between two of them. */
static void who_asks_again_waits_for_the_others(void **state)
{
    (void)state;
    static const size_t order[] = {1, 2, 0, 1, 2, 0};
    struct process process;
    begin(&process);
    for (size_t who = 0; who < COUNT; who++)
        alone_ask(&process.alone, who);
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
        tell(&process);
        for (size_t who = 0; who < COUNT; who++)
            assert_int_equal(process.told[who], who == order[i] ? TURN_ALONE : TURN_REST);
        process.now += NS_PER_S;
        alone_end(&process.alone, order[i], process.now);
        alone_ask(&process.alone, order[i]);
        expect(&process, TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
        uint64_t opens = alone_deadline(&process.alone);
        assert_true(opens == process.now + ALONE_SLICE_MS * NS_PER_MS);
        process.now = opens - 1;
        expect(&process, TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
        process.now = opens;
    }
}

static void who_ends_while_all_come_to_rest_holds_up_nobody(void **state)
{
    (void)state;
    struct process process;
    begin(&process);
    process.rest = false;
    alone_ask(&process.alone, 2);
    alone_ask(&process.alone, 1);
    expect(&process, TURN_REST, TURN_REST, TURN_REST);
    alone_end(&process.alone, 1, process.now);
    expect(&process, TURN_TOGETHER, TURN_TOGETHER, TURN_TOGETHER);
    process.now = alone_deadline(&process.alone);
    process.rest = true;
    expect(&process, TURN_REST, TURN_REST, TURN_ALONE);
    alone_end(&process.alone, 0, process.now); /* of one that has nothing: it changes nothing */
    expect(&process, TURN_REST, TURN_REST, TURN_ALONE);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(nobody_asks_nobody_is_told),
    cmocka_unit_test(all_rest_before_one_is_alone),
    cmocka_unit_test(who_asks_again_waits_for_the_others),
    cmocka_unit_test(who_ends_while_all_come_to_rest_holds_up_nobody),
};

TEST_MAIN(cases)

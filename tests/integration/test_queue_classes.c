/* Three streams, one for each priority class: one command reads from all of them, and one stream cannot be served. */
#include "queue_desk.h"

#include "harness.h"

#define NORMAL Q "requests"
#define LOW Q "requests:low"

static size_t read_all(struct desk *desk, uint32_t high, uint32_t normal, uint32_t low)
{
    struct action action = {.kind = ACTION_READ,
                            .read = {.counts = {[CLASS_HIGH] = high, [CLASS_NORMAL] = normal, [CLASS_LOW] = low}}};
    return desk_take(desk, &action);
}

static size_t take(struct desk *desk, enum action_kind kind, enum request_class class)
{
    return desk_take(desk, &(struct action){.kind = kind, .read = {.class = class, .count = 100, .judge = true}});
}

static void expect_all_empty(struct redis_fixture *redis)
{
    static const char *const streams[] = {HIGH, NORMAL, LOW};
    for (size_t i = 0; i < 3; i++) {
        redis_expect(redis, "[0 ~ ~ ~]", "XPENDING %s sluice", streams[i]);
        redis_expect(redis, "0", "XLEN %s", streams[i]);
    }
}

DESK_TEST(one_read_takes_from_all_classes)
{
    redis_do(redis, "XADD " LOW " 5-1 text low");
    redis_do(redis, "XADD " NORMAL " 5-1 text normal");
    redis_do(redis, "XADD " HIGH " 5-1 text high");
    assert_int_equal(read_all(desk, 4, 4, 4), 3);
    assert_string_equal(desk->held.first->identity.name, "high:5-1");
    assert_string_equal(desk->held.first->next->identity.name, "5-1");
    assert_string_equal(desk->held.last->identity.name, "low:5-1");
    desk_settle(desk, OUTCOME_DONE);
    redis_expect_info(redis, "[high:5-1]", Q "reply:high:5-1", "entry");
    redis_expect_info(redis, "[5-1]", Q "reply:5-1", "entry");
    redis_expect_info(redis, "[low:5-1]", Q "reply:low:5-1", "entry");
    expect_all_empty(redis);
}

DESK_TEST(the_least_count_is_that_of_all)
{
    for (int i = 0; i < 5; i++) {
        redis_do(redis, "XADD " HIGH " * text high");
        redis_do(redis, "XADD " NORMAL " * text normal");
        redis_do(redis, "XADD " LOW " * text low");
    }
    assert_int_equal(read_all(desk, 3, 2, 0), 4);
    redis_expect(redis, "[2 ...", "XPENDING " HIGH " sluice");
    redis_expect(redis, "[2 ...", "XPENDING " NORMAL " sluice");
    redis_expect(redis, "[0 ...", "XPENDING " LOW " sluice");
    assert_int_equal(read_all(desk, 0, 0, 9), 5);
}

DESK_TEST(own_and_reclaimed_entries_are_of_one_class)
{
    redis_do(redis, "XADD " HIGH " 5-1 text high");
    redis_do(redis, "XADD " LOW " 5-1 text low");
    assert_int_equal(read_all(desk, 1, 1, 1), 2);
    assert_int_equal(take(desk, ACTION_READ_OWN, CLASS_LOW), 1);
    assert_string_equal(desk->held.last->identity.name, "low:5-1");
    assert_int_equal(take(desk, ACTION_READ_OWN, CLASS_NORMAL), 0);
    redis_do(redis, "XADD " HIGH " 6-1 text high");
    redis_do(redis, "XREADGROUP GROUP sluice gone STREAMS " HIGH " >");
    assert_int_equal(take(desk, ACTION_RECLAIM, CLASS_NORMAL), 0);
    assert_int_equal(take(desk, ACTION_RECLAIM, CLASS_HIGH), 1);
    assert_string_equal(desk->held.last->identity.name, "high:6-1");
    assert_int_equal(desk->held.last->identity.origin, ORIGIN_RECLAIMED);
}

/* --- A key of another type ---------------------------------------------------------------------------------------- */

static bool group_there(struct redis_fixture *redis, const char *stream)
{
    return strstr(redis_do(redis, "XINFO GROUPS %s", stream), "sluice") != NULL;
}

static void wait_for_group(struct desk *desk, struct redis_fixture *redis, const char *stream)
{
    for (int i = 0; i < 20000 && !group_there(redis, stream); i++) { desk_pause(desk); }
    assert_true(group_there(redis, stream));
}

TEST_WITH(a_class_with_a_foreign_key_rests_and_the_others_go_on, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "SET " LOW " x");
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " HIGH " * text high");
    redis_do(redis, "XADD " NORMAL " * text normal");
    assert_int_equal(read_all(&desk, 9, 9, 9), 2);
    assert_false(desk.last.failed);
    assert_int_equal(take(&desk, ACTION_RECLAIM, CLASS_LOW), 0);
    assert_false(desk.last.failed);
    assert_int_equal(take(&desk, ACTION_READ_OWN, CLASS_LOW), 0);
    assert_false(desk.last.failed);
    assert_int_equal(read_all(&desk, 0, 0, 9), 0);
    assert_true(desk.last.failed); /* only this class was asked for, and it cannot be read */
    redis_expect(redis, "x", "GET " LOW);
    redis_do(redis, "DEL " LOW);
    wait_for_group(&desk, redis, LOW);
    redis_do(redis, "XADD " LOW " * text low");
    for (int i = 0; i < 1000 && desk.held.count == 2; i++) { /* the queue may not know yet that the group exists */
        read_all(&desk, 9, 9, 9);
    }
    assert_int_equal(desk.held.last->identity.class, CLASS_LOW);
    assert_false(desk_lost(&desk));
    desk_close(&desk);
}

DESK_TEST(a_stream_that_is_overwritten_rests)
{
    redis_do(redis, "SET " HIGH " x");
    redis_do(redis, "XADD " NORMAL " * id a text normal");
    assert_int_equal(read_all(desk, 9, 9, 9), 0);
    assert_true(desk->last.failed); /* this read discovers it */
    for (int i = 0; i < 1000 && desk->held.count == 0; i++) { read_all(desk, 9, 9, 9); }
    desk_settle(desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    redis_do(redis, "DEL " HIGH);
    wait_for_group(desk, redis, HIGH);
}

DESK_TEST(lost_groups_are_made_again)
{
    redis_do(redis, "XADD " LOW " * id a text low");
    redis_do(redis, "XGROUP DESTROY " LOW " sluice");
    assert_int_equal(read_all(desk, 9, 9, 9), 0);
    assert_true(desk->last.failed);
    wait_for_group(desk, redis, LOW);
    assert_int_equal(read_all(desk, 9, 9, 9), 1);
    redis_do(redis, "FLUSHALL");
    assert_int_equal(read_all(desk, 9, 9, 9), 0);
    wait_for_group(desk, redis, HIGH);
    wait_for_group(desk, redis, NORMAL);
    wait_for_group(desk, redis, LOW);
}

/* --- Leaving, and oversized entries ------------------------------------------------------------------------------- */

TEST_WITH(signing_off_gives_back_what_is_in_all_streams, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk leaving, next;
    desk_connect(&leaving, &redis->address);
    desk_connect(&next, &redis->address);
    redis_do(redis, "XADD " HIGH " 1-1 text high");
    redis_do(redis, "XADD " NORMAL " 1-1 text normal");
    redis_do(redis, "XADD " LOW " 1-1 text low");
    redis_do(redis, "HSET " Q "workers %s x", queue_worker_name(leaving.queue));
    assert_int_equal(read_all(&leaving, 1, 1, 1), 3);
    desk_drop(&leaving, 1); /* the worker does not know this one: the last call finds it */
    desk_execute(&leaving, ACTION_RELEASE, true);
    desk_wait(&leaving, EVENT_RELEASED);
    assert_false(leaving.last.failed);
    assert_int_equal(leaving.held.count, 2);
    redis_expect(redis, "0", "EXISTS " Q "alive:%s", queue_worker_name(leaving.queue));
    redis_expect(redis, "0", "EXISTS " Q "workers");
    for (int c = 0; c < CLASS_COUNT; c++) {
        assert_int_equal(take(&next, ACTION_RECLAIM, (enum request_class)c), 1);
        assert_int_equal(next.held.last->identity.origin, ORIGIN_RELEASED);
    }
    assert_null(strstr(redis_do(redis, "XINFO CONSUMERS " HIGH " sluice"), queue_worker_name(leaving.queue)));
    assert_null(strstr(redis_do(redis, "XINFO CONSUMERS " LOW " sluice"), queue_worker_name(leaving.queue)));
    desk_close(&leaving);
    desk_close(&next);
}

/* Reads the own list of a class to its end, over as many connections as it takes. */
static void read_own_to_the_end(struct desk *desk, enum request_class class)
{
    struct entry_id after = {0};
    for (bool more = true; more;) {
        queue_execute(desk->queue,
                      &(struct action){.kind = ACTION_READ_OWN, .read = {.class = class, .count = 10, .after = after}});
        desk_wait(desk, EVENT_ENTRIES);
        more = desk->last.failed || desk->last.entries.more;
        after = desk->last.failed ? (struct entry_id){0} : desk->last.entries.last;
        if (desk->last.failed) { desk_wait(desk, EVENT_CONNECTED); }
    }
}

TEST_WITH(an_oversized_entry_is_found_in_its_own_class, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.max_reply_bytes = 40000});
    desk_wait(&desk, EVENT_CONNECTED);
    for (int i = 1; i <= 4; i++) {
        redis_do(redis, "XADD " HIGH " %d-1 text small", i);
        redis_do(redis, "XADD " LOW " %d-1 text %0*d", i, i == 3 ? 50000 : 10, 7);
    }
    queue_execute(desk.queue, &(struct action){.kind = ACTION_READ, .read = {.counts = {9, 9, 9}}});
    desk_wait(&desk, EVENT_ENTRIES);
    assert_false(desk.last.failed);
    read_own_to_the_end(&desk, CLASS_HIGH);
    read_own_to_the_end(&desk, CLASS_LOW);
    size_t too_large = 0;
    for (const struct request *request = desk.held.first; request; request = request->next) {
        bool large = request->identity.class == CLASS_LOW && request->identity.entry.ms == 3;
        assert_int_equal(request->retry.code == CODE_TOO_LARGE, large);
        too_large += large;
    }
    assert_true(too_large >= 1);
    desk_close(&desk);
}

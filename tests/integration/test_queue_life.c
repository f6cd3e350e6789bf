/* The other fates of a request, each as one action: parked, cancelled, announced in a results stream, refused, taken
 * ahead, found lost. Every call may lose its answer and is then repeated. */
#include "queue_desk.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness.h"

static size_t take(struct desk *desk, enum action_kind kind, uint32_t count)
{
    return desk_take(desk, &(struct action){.kind = kind, .read = {.class = CLASS_NORMAL, .count = count}});
}

static struct request *read_one(struct desk *desk)
{
    assert_int_equal(desk_read(desk, 1, 0), 1);
    return desk->held.last;
}

/* --- Results streams and borrowed names --------------------------------------------------------------------------- */

DESK_TEST(a_results_stream_gets_an_entry)
{
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    snprintf(read_one(desk)->output.results, sizeof desk->held.first->output.results, "web-1");
    redis_do(redis, "XADD " STREAM " 6-1 id b text hello");
    read_one(desk)->output.notify = true; /* together with one that has a wake token, in one call */
    desk_settle(desk, OUTCOME_DONE);
    assert_non_null(strstr(redis_do(redis, "XRANGE " Q "results:web-1 - +"), "[id a status done entry 5-1]"));
    redis_expect(redis, "6-1", "LPOP " Q "wake:b");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(a_forged_name_is_not_believed)
{
    static const enum outcome outcomes[] = {OUTCOME_DONE, OUTCOME_DEFER};
    for (size_t i = 0; i < 2; i++) {
        redis_do(redis, "XADD " STREAM " %zu-1 _id 1-1 text hello", 5 + i);
        struct request *request = read_one(desk);
        assert_string_equal(request->identity.name, "1-1");
        desk_settle(desk, outcomes[i]);
        assert_int_equal(request->lifetime.verdict, VERDICT_NOT_ITS_NAME);
        desk_execute(desk, ACTION_RECORD_RUN, false);
        desk_wait(desk, EVENT_RUN_RECORDED);
        assert_int_equal(request->lifetime.verdict, VERDICT_NOT_ITS_NAME);
        redis_expect(redis, "0", "EXISTS " Q "reply:1-1 " Q "later " Q "trouble");
        request_disown(request);
        desk_settle(desk, outcomes[i]);
        assert_int_equal(request->lifetime.verdict, VERDICT_DONE);
        desk_drop(desk, 1);
    }
    redis_expect_info(redis, "[5-1]", Q "reply:5-1", "entry");
    redis_expect(redis, "[6-1]", "ZRANGE " Q "later 0 -1");
}

/* --- Ids ahead of the clock ----------------------------------------------------------------------------------------
 */

DESK_TEST(ids_ahead_of_the_clock_are_mended)
{
    redis_do(redis, "XADD " STREAM " 9999999999999999-0 id a text hello");
    for (int i = 0; i < 64; i++) { redis_do(redis, "XADD " STREAM " * text hello"); }
    for (int call = 0; call < 7; call++) { /* 1, 4, 16, 16, 16, 12 entries, none */
        queue_execute(desk->queue, &(struct action){.kind = ACTION_MEND, .redis_ms = (uint64_t)time(NULL) * 1000});
        desk_wait(desk, EVENT_MENDED);
        assert_false(desk->last.failed || desk->last.mended.taken);
        assert_int_equal(desk->last.mended.changed, call < 6);
        assert_int_equal(desk->last.mended.more, call < 5);
    }
    redis_expect(redis, "65", "ZCARD " Q "later");
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    struct request *request = read_one(desk);
    assert_string_equal(request->identity.name, "9999999999999999-0");
    assert_true(request->identity.entry.ms < 5000000000000 && request->identity.first_ms <= request->identity.entry.ms);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(request->lifetime.verdict, VERDICT_DONE);
}

/* --- Parked ------------------------------------------------------------------------------------------------------- */

DESK_TEST(what_is_not_due_stays_parked)
{
    assert_true(desk->last.connected.redis_ms > 1600000000000);
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    struct request *request = read_one(desk);
    request->lifetime.due_at_ms = 4000000000000;
    desk_settle(desk, OUTCOME_DEFER);
    redis_expect(redis, "4000000000000", "ZSCORE " Q "later 5-1");
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    assert_true(desk->last.promoted.next_due_in_ms > 3600000 && desk->last.promoted.next_due_in_ms < UINT64_MAX);
    desk_expect_empty(redis, STREAM);
    redis_do(redis, "ZADD " Q "later 1 5-1");
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    desk_drop(desk, 1);
    request = read_one(desk);
    assert_string_equal(request->identity.name, "5-1");
    assert_int_equal(request->retry.attempt, 2);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(request->lifetime.verdict, VERDICT_DONE);
    redis_expect_info(redis, "[5-1]", Q "reply:a", "entry");
}

DESK_TEST(a_message_that_vanished_is_not_parked)
{
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    struct request *request = read_one(desk);
    redis_do(redis, "XDEL " STREAM " 5-1");
    desk_settle(desk, OUTCOME_DEFER);
    assert_int_equal(request->lifetime.verdict, VERDICT_GONE);
    desk_settle(desk, OUTCOME_GONE);
    assert_int_equal(request->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "[error internal]", "HMGET " Q "reply:a status code");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(unreadable_parked_requests_are_counted)
{
    redis_do(redis, "ZADD " Q "later 1 5-1");
    redis_do(redis, "HSET " Q "later:data 5-1 rubbish");
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    assert_false(desk->last.failed);
}

/* --- Cancel ------------------------------------------------------------------------------------------------------- */

/* Reads an entry that cancels `target`, for settle_as_cancel(). */
static struct request *read_cancel(struct desk *desk, struct redis_fixture *redis, const char *id, const char *target)
{
    redis_do(redis, "XADD " HIGH " %s cancel %s", id, target);
    struct action action = {.kind = ACTION_READ, .read = {.counts = {[CLASS_HIGH] = 1}}};
    assert_int_equal(desk_take(desk, &action), 1);
    struct request *request = desk->held.last;
    snprintf(request->identity.target, sizeof request->identity.target, "%s", target);
    request->output.ttl_s = 3600;
    return request;
}

static void settle_as_cancel(struct desk *desk)
{
    for (struct request *request = desk->held.first; request; request = request->next) {
        request->lifetime.outcome = OUTCOME_CANCEL;
    }
    desk_execute(desk, ACTION_SETTLE, false);
    desk_wait(desk, EVENT_SETTLED);
    assert_false(desk->last.failed);
}

DESK_TEST(a_queued_request_is_cancelled)
{
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    struct request *cancel = read_cancel(desk, redis, "9-1", "5-1");
    settle_as_cancel(desk);
    assert_int_equal(cancel->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "cancelled", "HGET " Q "reply:5-1 status");
    redis_expect_info(redis, "[5-1]", Q "reply:5-1", "entry");
    redis_expect(redis, "0", "EXISTS " Q "reply:high:9-1");
    redis_expect(redis, "0", "XLEN " STREAM);
    desk_expect_empty(redis, HIGH);
    settle_as_cancel(desk); /* as if the answer had been lost */
    assert_int_equal(cancel->lifetime.verdict, VERDICT_LATE);
}

DESK_TEST(the_reply_key_is_that_of_the_request)
{
    redis_do(redis, "XADD " STREAM " 5-1 id order-42 text hello notify 1");
    redis_do(redis, "XADD " STREAM " 6-1 id order-43 text hello notify stream:web-1");
    redis_do(redis, "SCRIPT FLUSH");
    assert_int_equal(desk_read(desk, 1, 0), 1); /* a worker already holds the first */
    desk_drop(desk, 1);
    struct request *first = read_cancel(desk, redis, "9-1", "5-1");
    struct request *second = read_cancel(desk, redis, "9-2", "6-1");
    settle_as_cancel(desk);
    assert_int_equal(first->lifetime.verdict, VERDICT_DONE);
    assert_int_equal(second->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "cancelled", "HGET " Q "reply:order-42 status");
    redis_expect(redis, "5-1", "LPOP " Q "wake:order-42");
    assert_non_null(
        strstr(redis_do(redis, "XRANGE " Q "results:web-1 - +"), "[id order-43 status cancelled entry 6-1]"));
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(a_parked_request_is_cancelled)
{
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    read_one(desk)->lifetime.due_at_ms = 4000000000000;
    desk_settle(desk, OUTCOME_DEFER);
    desk_drop(desk, 1);
    read_cancel(desk, redis, "9-1", "5-1");
    settle_as_cancel(desk);
    redis_expect(redis, "cancelled", "HGET " Q "reply:a status");
    redis_expect(redis, "0", "EXISTS " Q "later " Q "later:data " Q "trouble");
}

DESK_TEST(what_is_finished_or_unknown_stays_as_it_is)
{
    static const char *const targets[] = {"5-1", "7-7", "high:9-9", "no-name-at-all"};
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    read_one(desk);
    desk_settle(desk, OUTCOME_DONE);
    desk_drop(desk, 1);
    for (size_t i = 0; i < 4; i++) {
        char id[8];
        snprintf(id, sizeof id, "9-%zu", i + 1);
        struct request *cancel = read_cancel(desk, redis, id, targets[i]);
        settle_as_cancel(desk);
        assert_int_equal(cancel->lifetime.verdict, VERDICT_NOTHING);
        desk_drop(desk, 1);
    }
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    desk_expect_empty(redis, HIGH);
}

/* --- Pulse -------------------------------------------------------------------------------------------------------- */

static struct pulse pulse(struct desk *desk)
{
    struct action action = {.kind = ACTION_PULSE,
                            .heartbeat = {.state = "quiet",
                                          .stats.held = 7,
                                          .rows_per_s = 12.5,
                                          .max_inputs = 9,
                                          .max_text_bytes = 99,
                                          .rank = RANK_JUDGES,
                                          .elected_ms = 60000}};
    queue_execute(desk->queue, &action);
    desk_wait(desk, EVENT_PULSE);
    assert_false(desk->last.failed);
    return desk->last.pulse;
}

DESK_TEST(a_pulse_says_what_redis_knows)
{
    redis_do(redis, "XADD " HIGH " * text hello");
    redis_do(redis, "XADD " STREAM " * text hello");
    redis_do(redis, "XADD " STREAM " * text hello");
    redis_do(redis, "HSET " Q "meta cap_normal 500");
    redis_do(redis, "HSET " Q "workers command:%s drain", queue_worker_name(desk->queue));
    redis_do(redis, "SCRIPT FLUSH"); /* then INFO is answered before the script */
    struct pulse seen = pulse(desk);
    assert_true(seen.redis_ms > 1600000000000);
    assert_int_equal(seen.depth[CLASS_HIGH], 1);
    assert_int_equal(seen.depth[CLASS_NORMAL], 2);
    assert_int_equal(seen.depth[CLASS_LOW], 0);
    assert_int_equal(seen.cap[CLASS_NORMAL], 500);
    assert_int_equal(seen.cap[CLASS_HIGH], 0);
    assert_int_equal(seen.command, EVENT_DRAIN);
    assert_false(seen.paused);
    assert_non_null(
        strstr(redis_do(redis, "HGET " Q "workers %s", queue_worker_name(desk->queue)), "state quiet held 7"));
    redis_expect(redis, "9", "HGET " Q "meta max_inputs");
    redis_expect(redis, "99", "HGET " Q "meta max_text_bytes");
    redis_do(redis, "SET " Q "paused x");
    redis_do(redis, "HSET " Q "workers command:%s nonsense", queue_worker_name(desk->queue));
    seen = pulse(desk);
    assert_true(seen.paused);
    assert_int_equal(seen.command, EVENT_TICK);
    redis_do(redis, "HSET " Q "workers command:%s quiet", queue_worker_name(desk->queue));
    assert_int_equal(pulse(desk).command, EVENT_QUIET);
    assert_int_equal(pulse(desk).command, EVENT_TICK); /* the order comes only once */
    assert_string_equal(redis_do(redis, "HEXISTS " Q "workers command:%s", queue_worker_name(desk->queue)), "0");
}

DESK_TEST(a_pulse_survives_foreign_keys)
{
    redis_do(redis, "SET " Q "workers x");
    redis_do(redis, "SET " Q "later x");
    redis_do(redis, "SET " Q "dead x");
    redis_do(redis, "SET " Q "requests:low x");
    redis_do(redis, "SET " Q "paused x");
    struct pulse seen = pulse(desk);
    assert_true(seen.paused);
    assert_true(seen.housekeeper);
    redis_do(redis, "APPEND " Q "housekeeper x"); /* now it names another worker: our name and an x */
    assert_false(pulse(desk).housekeeper);
}

static long long used_memory(struct redis_fixture *redis)
{
    return strtoll(strstr(redis_do(redis, "INFO memory"), "used_memory:") + strlen("used_memory:"), NULL, 10);
}

/* The pulse gives the memory used and the limit; the log reports a tight Redis once, and its end at 5 % lower. */
DESK_TEST(a_pulse_tells_of_redis_memory)
{
    struct pulse seen = pulse(desk);
    assert_true(seen.used_bytes > 100000 && seen.used_bytes < 1ull << 30);
    assert_int_equal(seen.most_bytes, 0);
    redis_do(redis, "CONFIG SET maxmemory 1"); /* nothing can be written, but the pulse must still report it */
    seen = pulse(desk);
    assert_int_equal(seen.most_bytes, 1);
    assert_true(llabs((long long)seen.used_bytes - used_memory(redis)) < 1 << 20);
    redis_do(redis, "CONFIG SET maxmemory 0");
    assert_int_equal(pulse(desk).most_bytes, 0);
}

/* Counted by the heartbeats, but no more than there are connections for; producers' connections are not workers. */
TEST_WITH(a_pulse_tells_how_many_workers_there_may_be, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk, others[4];
    desk_connect(&desk, &redis->address);
    assert_int_equal(pulse(&desk).workers, 1);
    const char *const gone[] = {"gone-1", "gone-2", "gone-3", "gone-4"};
    for (size_t i = 0; i < 4; i++) { /* their heartbeats are recent, by a clock that is ahead */
        redis_do(redis, "HSET " Q "workers %s %s", gone[i], "9999999999999");
    }
    assert_int_equal(pulse(&desk).workers, 1); /* three connections: the reader, the writer, the test */
    for (size_t i = 0; i < 4; i++) { desk_connect(&others[i], &redis->address); }
    assert_int_equal(pulse(&desk).workers, 5);
    redis_do(redis, "DEL " Q "workers");
    assert_int_equal(pulse(&desk).workers, 1);
    for (size_t i = 0; i < 4; i++) { desk_close(&others[i]); }
    desk_close(&desk);
}

/* Its heartbeat gives the reason. */
DESK_TEST(a_tight_worker_says_why)
{
    struct action action = {.kind = ACTION_PULSE, .heartbeat = {.state = "tight", .memory_percent = 91}};
    queue_execute(desk->queue, &action);
    desk_wait(desk, EVENT_PULSE);
    const char *line = redis_do(redis, "HGET " Q "workers %s", queue_worker_name(desk->queue));
    assert_non_null(strstr(line, "state tight held 0"));
    assert_non_null(strstr(line, "reason memory:91%"));
}

/* --- The control stream ------------------------------------------------------------------------------------------- */

/* A housekeeper processes them whatever else it does, also more than one look reads, and after a lost connection. */
TEST_WITH(cancels_of_the_control_stream, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    assert_true(pulse(&desk).housekeeper);
    redis_do(redis, "XADD " STREAM " 1-1 id mine text hello");
    redis_do(redis, "XADD " STREAM " 2-1 text hello ttl 7");
    for (int i = 0; i < 70; i++) { redis_do(redis, "XADD " Q "control * cancel high:7-7"); }
    redis_do(redis, "XADD " Q "control * cancel 1-1");
    redis_do(redis, "XADD " Q "control * text junk");
    desk_wait_redis(&desk, redis, "0", "EXISTS " Q "control");
    redis_expect(redis, "cancelled", "HGET " Q "reply:mine status");
    redis_expect_info(redis, "[mine 1-1]", Q "reply:mine", "id entry");
    redis_expect(redis, "3600", "TTL " Q "reply:mine");
    redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
    redis_do(redis, "XADD " Q "control * cancel 2-1");
    desk_wait(&desk, EVENT_DISCONNECTED);
    desk_wait(&desk, EVENT_CONNECTED);
    pulse(&desk);
    desk_wait_redis(&desk, redis, "0", "EXISTS " Q "control");
    redis_expect(redis, "[cancelled 7]",
                 "EVAL "
                 "return{redis.call('HGET',KEYS[1],'status'),redis.call('TTL',KEYS[1])} 1 " Q "reply:2-1");
    for (int i = 0; i < 200; i++) { redis_do(redis, "XADD " Q "control * cancel high:7-7"); }
    while (atoi(redis_do(redis, "XLEN " Q "control")) == 200) { desk_pause(&desk); }
    desk_close(&desk); /* while calls are in flight */
    assert_true(atoi(redis_do(redis, "XLEN " Q "control")) > 0);
}

/* A worker that is not the housekeeper steps in when they stay there. */
DESK_TEST(cancels_that_no_housekeeper_deals_with)
{
    redis_do(redis, "XADD " STREAM " 1-1 text hello");
    redis_do(redis, "XADD " Q "control * cancel 1-1");
    desk_wait_redis(desk, redis, "0", "EXISTS " Q "control");
    redis_expect(redis, "cancelled", "HGET " Q "reply:1-1 status");
}

/* --- Shed, fair, sweep -------------------------------------------------------------------------------------------- */

DESK_TEST(the_newest_above_the_cap_are_shed)
{
    for (int i = 1; i <= 5; i++) { redis_do(redis, "XADD " STREAM " %d-1 id r%d text hello", i, i); }
    struct action action = {.kind = ACTION_SHED, .read = {.class = CLASS_NORMAL, .count = 1, .cap = 3}};
    assert_int_equal(desk_take(desk, &action), 1);
    assert_int_equal(desk->last.entries.source, READ_SHED);
    assert_true(desk->last.entries.more);
    assert_int_equal(desk->held.first->identity.entry.ms, 5);
    struct request *request = desk->held.first;
    request->retry.code = CODE_NONE;
    request_fail(request, CODE_QUEUE_FULL, "the queue is full");
    request->retry.retry_after_ms = 1234;
    request->lifetime.outcome = OUTCOME_ERROR;
    desk_execute(desk, ACTION_SETTLE, false);
    desk_wait(desk, EVENT_SETTLED);
    redis_expect(redis, "[error queue_full]", "HMGET " Q "reply:r5 status code");
    redis_expect_info(redis, "[1234]", Q "reply:r5", "retry_after_ms");
}

DESK_TEST(other_tenants_are_taken_ahead)
{
    static const char enough[1][TENANT_MAX + 1] = {"big"};
    for (int i = 1; i <= 20; i++) {
        redis_do(redis, "XADD " STREAM " %d-1 tenant %s text hello", i, i % 10 == 0 ? "small" : "big");
    }
    struct action action = {.kind = ACTION_FAIR,
                            .read = {.class = CLASS_NORMAL, .count = 9, .enough = enough, .enough_count = 1}};
    assert_int_equal(desk_take(desk, &action), 2);
    assert_int_equal(desk->last.entries.source, READ_FAIR);
    assert_int_equal(desk->last.entries.last.ms, 20);
    assert_int_equal(desk->held.first->identity.entry.ms, 10);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    desk_drop(desk, 2);
    assert_int_equal(desk_read(desk, 100, 0), 18);
}

DESK_TEST(a_sweep_finds_what_nobody_has)
{
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    redis_do(redis, "XADD " STREAM " 6-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice gone COUNT 1 STREAMS " STREAM " >");
    redis_do(redis, "XGROUP DELCONSUMER " STREAM " sluice gone");
    assert_int_equal(take(desk, ACTION_SWEEP, 10), 1);
    assert_int_equal(desk->last.entries.source, READ_SWEEP);
    assert_int_equal(desk->held.first->identity.entry.ms, 5);
    assert_int_equal(desk->held.first->identity.origin, ORIGIN_RELEASED);
    assert_int_equal(take(desk, ACTION_SWEEP, 10), 0);
}

static struct action reclaim(uint32_t count, bool judge)
{
    return (struct action){.kind = ACTION_RECLAIM, .read = {.class = CLASS_NORMAL, .count = count, .judge = judge}};
}

/* The housekeeper has no room: it finds the dead worker, and the other worker takes that one's entries. The same holds
 * for entries that are set aside for tenants. */
TEST_WITH(what_the_housekeeper_finds_another_one_takes, redis_setup, redis_teardown)
{
    static const char enough[1][TENANT_MAX + 1] = {"big"};
    struct redis_fixture *redis = *state;
    struct desk house, other;
    desk_connect(&house, &redis->address);
    desk_connect(&other, &redis->address);
    redis_do(redis, "XADD " STREAM " 1-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice dead STREAMS " STREAM " >");
    redis_do(redis, "XADD " STREAM " 2-1 text hello tenant small");
    struct action none = reclaim(0, true), some = reclaim(9, false), aside = {.kind = ACTION_FAIR};
    aside.read.class = CLASS_NORMAL;
    aside.read.enough = enough;
    aside.read.enough_count = 1;
    assert_true(pulse(&house).housekeeper);
    assert_false(pulse(&other).waiting);
    assert_int_equal(desk_take(&other, &some), 0); /* the dead worker has not been judged yet */
    assert_int_equal(desk_take(&house, &none), 0);
    assert_int_equal(desk_take(&house, &aside), 0);
    assert_false(pulse(&house).waiting); /* the housekeeper announces this to others, not to itself */
    assert_true(pulse(&other).waiting);
    some = reclaim(9, false);
    assert_int_equal(desk_take(&other, &some), 2);
    assert_int_equal(other.held.first->identity.origin, ORIGIN_RELEASED);
    assert_int_equal(other.held.last->identity.origin, ORIGIN_RECLAIMED);
    none = reclaim(0, true);
    assert_int_equal(desk_take(&house, &none), 0);
    (void)pulse(&house);
    assert_true(pulse(&other).waiting == (strstr(redis_do(redis, "GET " Q "housekeeper"), "dead") != NULL));
    desk_close(&house);
    desk_close(&other);
}

/* For any name of a consumer, the other worker learns of it and takes its entries; if the name is too long for that,
 * the housekeeper takes them. */
TEST_WITH(names_of_any_bytes_go_round, redis_setup, redis_teardown)
{
    static const struct {
        const char *bytes;
        size_t length;
    } names[] = {{"bobs laptop", 11}, {"bobs%20laptop", 13}, {"", 0},       {"%", 1},
                 {"tab\tline\n", 9},  {"a\0b", 3},           {"\xff,+*", 4}};
    enum { NAMES = sizeof names / sizeof names[0], LONG = 400 };
    struct redis_fixture *redis = *state;
    struct desk house, other;
    char longest[LONG + 1];
    memset(longest, 'x', LONG);
    longest[LONG] = '\0';
    desk_connect(&house, &redis->address);
    desk_connect(&other, &redis->address);
    for (int i = 0; i < NAMES; i++) {
        redis_do(redis, "XADD " STREAM " %d-1 text hello", i + 1);
        const char *const words[] = {"XREADGROUP", "GROUP", "sluice", names[i].bytes, "STREAMS", STREAM, ">"};
        const size_t lengths[] = {10, 5, 6, names[i].length, 7, strlen(STREAM), 1};
        const struct resp_value *reply;
        struct err err;
        assert_int_equal(client_command(redis->client, 7, words, lengths, &reply, &err), STATUS_OK);
    }
    redis_do(redis, "XADD " STREAM " 100-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice %s STREAMS " STREAM " >", longest);
    struct action none = reclaim(0, true), some = reclaim(99, false), all = reclaim(99, true);
    assert_true(pulse(&house).housekeeper);
    assert_int_equal(desk_take(&house, &none), 0);
    (void)pulse(&house);
    assert_true(pulse(&other).waiting);
    assert_int_equal(desk_take(&other, &some), NAMES);
    assert_int_equal(desk_take(&house, &all), 1);
    assert_int_equal(house.held.first->identity.entry.ms, 100);
    desk_settle(&house, OUTCOME_DONE);
    desk_settle(&other, OUTCOME_DONE);
    desk_expect_empty(redis, STREAM);
    desk_close(&house);
    desk_close(&other);
}

/* The list has only ids, for each class those after a given one; a key of another type affects only its class. */
DESK_TEST(what_is_pending_with_us_is_listed)
{
    for (int i = 1; i < 4; i++) { redis_do(redis, "XADD " STREAM " %d-1 text hello", i); }
    redis_do(redis, "XADD " STREAM ":high 5-1 text hello");
    assert_int_equal(desk_read(desk, 100, 0), 3);
    redis_do(redis, "XREADGROUP GROUP sluice %s STREAMS " STREAM ":high >", queue_worker_name(desk->queue));
    redis_do(redis, "XADD " STREAM " 9-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice other STREAMS " STREAM " >");
    redis_do(redis, "DEL " STREAM ":low");
    redis_do(redis, "SET " STREAM ":low junk");
    struct action action = {.kind = ACTION_LIST_OWN, .after = {[CLASS_NORMAL] = {1, 1}}};
    queue_execute(desk->queue, &action);
    desk_wait(desk, EVENT_OWN_LISTED);
    const struct own_list *own = desk->last.own;
    assert_false(desk->last.failed);
    assert_int_equal(own->counts[CLASS_HIGH], 1);
    assert_int_equal(own->ids[CLASS_HIGH][0].ms, 5);
    assert_int_equal(own->counts[CLASS_NORMAL], 2);
    assert_int_equal(own->ids[CLASS_NORMAL][0].ms, 2);
    assert_int_equal(own->ids[CLASS_NORMAL][1].ms, 3);
    assert_int_equal(own->counts[CLASS_LOW], 0);
}

/* --- Lost answers ------------------------------------------------------------------------------------------------- */

static void open_impatient(struct desk *desk, struct redis_fixture *redis)
{
    desk_open(desk, &redis->address, &(struct queue_options){.command_timeout_ms = 500});
    desk_wait(desk, EVENT_CONNECTED);
}

/* The action is sent and given up; then Redis reads and executes it after all. It is reported as failed, once, before
 * the disconnect. */
static void expect_failure(struct desk *desk, struct redis_fixture *redis, struct action *action, enum event_kind event)
{
    kill(redis->server.pid, SIGSTOP);
    queue_execute(desk->queue, action);
    desk_wait(desk, event);
    assert_true(desk->last.failed);
    desk_wait(desk, EVENT_DISCONNECTED);
    kill(redis->server.pid, SIGCONT);
    desk_wait(desk, EVENT_CONNECTED);
}

TEST_WITH(each_action_is_answered_when_the_connection_breaks, redis_setup, redis_teardown)
{
    static const struct {
        enum action_kind kind;
        enum event_kind event;
    } actions[] = {
        {ACTION_SHED, EVENT_ENTRIES},     {ACTION_FAIR, EVENT_ENTRIES},    {ACTION_SWEEP, EVENT_ENTRIES},
        {ACTION_PULSE, EVENT_PULSE},      {ACTION_RECLAIM, EVENT_ENTRIES}, {ACTION_READ_OWN, EVENT_ENTRIES},
        {ACTION_PROMOTE, EVENT_PROMOTED}, {ACTION_MEND, EVENT_MENDED},     {ACTION_LIST_OWN, EVENT_OWN_LISTED},
    };
    struct redis_fixture *redis = *state;
    struct desk desk;
    open_impatient(&desk, redis);
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        struct action action = {.kind = actions[i].kind};
        if (actions[i].event == EVENT_ENTRIES) {
            action.read.class = CLASS_NORMAL;
            action.read.count = 1;
        }
        expect_failure(&desk, redis, &action, actions[i].event);
    }
    desk_close(&desk);
}

TEST_WITH(requests_come_back_from_lost_calls, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    open_impatient(&desk, redis);
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    redis_do(redis, "XADD " STREAM " 6-1 id b text hello");
    struct request *parked = read_one(&desk), *cancel = read_cancel(&desk, redis, "9-1", "6-1");
    parked->lifetime.outcome = OUTCOME_DEFER;
    parked->lifetime.due_at_ms = 4000000000000;
    cancel->lifetime.outcome = OUTCOME_CANCEL;
    struct action action = {.kind = ACTION_SETTLE, .requests = desk.held};
    desk.held = (struct request_list){0};
    expect_failure(&desk, redis, &action, EVENT_SETTLED);
    assert_int_equal(desk.held.count, 2);
    desk_execute(&desk, ACTION_SETTLE, false);
    desk_wait(&desk, EVENT_SETTLED);
    assert_false(desk.last.failed);
    assert_true(parked->lifetime.verdict == VERDICT_LATE || parked->lifetime.verdict == VERDICT_DONE);
    assert_true(cancel->lifetime.verdict == VERDICT_LATE || cancel->lifetime.verdict == VERDICT_DONE);
    redis_expect(redis, "[5-1]", "ZRANGE " Q "later 0 -1");
    redis_expect(redis, "1", "HLEN " Q "later:data");
    redis_expect(redis, "cancelled", "HGET " Q "reply:b status");
    desk_expect_empty(redis, STREAM);
    desk_expect_empty(redis, HIGH);
    desk_close(&desk);
}

/* A call that Redis refuses does not make others fail. */
DESK_TEST(a_refused_call_leaves_the_others_alone)
{
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    redis_do(redis, "XADD " STREAM " 6-1 id b text hello");
    redis_do(redis, "SET " Q "later:data x");
    struct request *first = read_one(desk), *second = read_one(desk);
    first->lifetime.outcome = OUTCOME_DEFER;
    second->lifetime.outcome = OUTCOME_ERROR;
    desk_execute(desk, ACTION_SETTLE, false);
    desk_wait(desk, EVENT_SETTLED);
    assert_false(desk->last.failed);
    assert_int_equal(first->lifetime.verdict, VERDICT_AGAIN);
    assert_int_equal(second->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "[[5-1 ...", "XRANGE " STREAM " - +");
}

/* Each script of lua/ on a real server: what it does, and each rule about what it may not do.
 * Keys are of queue q; entries get small ids, so that a test can say which is older. */
#include "redis_fixture.h"

#include <stdlib.h>

#include "harness.h"

#define Q "sluice:{q}:"
#define STREAM Q "requests"
#define SETTLE_KEYS STREAM " " Q "trouble " Q "dead "
#define REPLY(id) Q "reply:" id " "
#define WAKE(id) Q "wake:" id " "
#define HEAD(entries) "me m r " #entries " "
/* entry id, kind, name, ttl, notify, claims, first ms (0: the name's), ms since start, n, fields */
#define DONE(id) id " done " id " 60000 0 0 0 0 2 embedding v "
#define FAILED(id, kind) id " " kind " " id " 60000 0 0 0 0 4 code internal message x "

static void group(struct redis_fixture *redis)
{
    redis_expect(redis, "OK", "XGROUP CREATE " STREAM " sluice 0 MKSTREAM");
}

/* Adds an entry with this id and delivers it to `consumer`. */
static void deliver(struct redis_fixture *redis, const char *id, const char *consumer)
{
    redis_expect(redis, id, "XADD " STREAM " %s text hello", id);
    redis_do(redis, "XREADGROUP GROUP sluice %s STREAMS " STREAM " >", consumer);
}

static void expect_empty(struct redis_fixture *redis)
{
    redis_expect(redis, "[0 ~ ~ ~]", "XPENDING " STREAM " sluice");
    redis_expect(redis, "0", "XLEN " STREAM);
}

/* --- settle ------------------------------------------------------------------------------------------------------- */

TEST_WITH(settle_writes_reply_and_removes_entry, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_expect(redis, "[done 1-1 m r v]", "HMGET " REPLY("1-1") "status entry model revision embedding");
    expect_empty(redis);
    assert_true(strtol(redis_do(redis, "PTTL " REPLY("1-1")), NULL, 10) > 50000);
    assert_true(strtoll(redis_do(redis, "HGET " REPLY("1-1") "done_at"), NULL, 10) > 1700000000000);
    assert_true(strtoll(redis_do(redis, "HGET " REPLY("1-1") "queued_ms"), NULL, 10) > 1700000000000);
}

TEST_WITH(settle_twice_is_late, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_do(redis, "DEL " REPLY("1-1"));
    redis_expect_script(redis, "[0 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_expect(redis, "0", "EXISTS " REPLY("1-1"));
}

TEST_WITH(settle_gate_is_closed_for_unread_entries, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "XADD " STREAM " 1-1 text hello");
    redis_expect_script(redis, "[0 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_expect(redis, "1", "XLEN " STREAM);
    redis_expect(redis, "0", "EXISTS " REPLY("1-1"));
}

TEST_WITH(settle_done_from_any_holder_failure_from_owner_only, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "other");
    deliver(redis, "2-1", "other");
    redis_expect_script(redis, "[-1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "fail"));
    redis_expect_script(redis, "[-1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "dead"));
    redis_expect(redis, "0", "EXISTS " REPLY("1-1"));
    redis_expect(redis, "0", "EXISTS " Q "dead");
    redis_expect_script(redis, "[1 1 0 0]", SCRIPT_SETTLE, 5,
                        SETTLE_KEYS REPLY("1-1") REPLY("2-1") HEAD(2) DONE("1-1") FAILED("2-1", "error"));
    redis_expect(redis, "[error 2-1 internal]", "HMGET " REPLY("2-1") "status id code");
    expect_empty(redis);
}

TEST_WITH(settle_keeps_the_reply_of_a_newer_entry, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "9-1", "me");
    deliver(redis, "10-1", "me");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4,
                        SETTLE_KEYS REPLY("a") HEAD(1) "10-1 done 10-1 60000 0 0 0 0 2 embedding new");
    redis_expect_script(redis, "[2 0 0]", SCRIPT_SETTLE, 5,
                        SETTLE_KEYS REPLY("a") WAKE("a") HEAD(1) "9-1 done 9-1 60000 1 0 0 0 2 embedding old");
    redis_expect(redis, "[10-1 new]", "HMGET " REPLY("a") "entry embedding");
    redis_expect(redis, "[9-1]", "LRANGE " WAKE("a") "0 -1");
    expect_empty(redis);
}

TEST_WITH(settle_age_is_ms_then_sequence_then_class, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    static const struct {
        const char *there, *name;
        int result;
    } cases[] = {
        {"5-1", "5-2", 1},
        {"5-2", "5-1", 2},
        {"5-10", "5-9", 2},
        {"18446744073709551615-0", "5-1", 2},
        {"5-18446744073709551615", "5-18446744073709551614", 2},
        {"high:5-1", "5-1", 1},
        {"low:5-1", "5-1", 2},
        {"5-1", "5-1", 1},
        {"nonsense", "5-1", 1},
    };
    group(redis);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char id[32], expected[32];
        snprintf(id, sizeof id, "%zu-1", 100 + i);
        snprintf(expected, sizeof expected, "[%d 0 0]", cases[i].result);
        deliver(redis, id, "me");
        redis_do(redis, "HSET " REPLY("a") "entry %s", cases[i].there);
        redis_expect_script(redis, expected, SCRIPT_SETTLE, 4,
                            SETTLE_KEYS REPLY("a") HEAD(1) "%s done %s 60000 0 0 0 0 2 embedding v", id, cases[i].name);
    }
}

/* The call looks once whether any reply is there; what it has written itself since then counts as well. */
TEST_WITH(settle_sees_the_replies_of_its_own_call, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    deliver(redis, "2-1", "me");
    deliver(redis, "3-1", "me");
    redis_expect_script(redis, "[1 1 2 0 0]", SCRIPT_SETTLE, 6,
                        SETTLE_KEYS REPLY("a") REPLY("a") REPLY("a")
                            HEAD(3) "2-1 done 2-1 60000 0 0 0 0 4 embedding old truncated 1 "
                                    "3-1 done 3-1 60000 0 0 0 0 2 embedding new "
                                    "1-1 done 1-1 60000 0 0 0 0 2 embedding oldest");
    redis_expect(redis, "[3-1 new ~]", "HMGET " REPLY("a") "entry embedding truncated");
    expect_empty(redis);
}

TEST_WITH(settle_replaces_whatever_stood_at_the_reply_key, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    deliver(redis, "2-1", "me");
    redis_do(redis, "SET " REPLY("1-1") "junk");
    redis_do(redis, "HSET " REPLY("2-1") "old field status queued");
    redis_expect_script(redis, "[1 1 0 0]", SCRIPT_SETTLE, 5,
                        SETTLE_KEYS REPLY("1-1") REPLY("2-1") HEAD(2) DONE("1-1") DONE("2-1"));
    redis_expect(redis, "done", "HGET " REPLY("1-1") "status");
    redis_expect(redis, "[done ~]", "HMGET " REPLY("2-1") "status old");
}

/* A staged reply becomes the reply, with a ttl of its own, whatever stood there; a late one goes. */
TEST_WITH(settle_takes_what_is_staged, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    for (int i = 1; i <= 5; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d-1", i);
        deliver(redis, id, "me");
        redis_do(redis, "HSET " Q "stage:%d status done entry %d-1 model m revision r id %d embedding v", i, i, i);
        redis_do(redis, "PEXPIRE " Q "stage:%d 9000", i);
    }
    redis_do(redis, "XACK " STREAM " sluice 2-1");
    redis_do(redis, "HSET " REPLY("3-1") "status queued old field");
    redis_do(redis, "HSET " REPLY("4-1") "entry 9-1");
    redis_do(redis, "DEL " Q "stage:5");
    redis_expect_script(redis, "[1 0 1 2 -5 0 0]", SCRIPT_SETTLE, 14,
                        SETTLE_KEYS REPLY("1-1") REPLY("2-1") REPLY("3-1") REPLY("4-1") REPLY("5-1") Q
                        "stage:1 " Q "stage:2 " Q "stage:3 " Q "stage:4 " WAKE("5-1") Q "stage:5 " HEAD(
                            5) "1-1 done 1-1 60000 0 0 0 0 0 2-1 done 2-1 60000 0 0 0 0 0 3-1 done 3-1 60000 0 0 0 0 0 "
                               "4-1 done 4-1 60000 0 0 0 0 0 5-1 done 5-1 60000 1 0 0 0 0");
    redis_expect(redis, "[done 1-1 m r 1 v]", "HMGET " REPLY("1-1") "status entry model revision id embedding");
    assert_in_range(strtol(redis_do(redis, "PTTL " REPLY("1-1")), NULL, 10), 30000, 60000);
    redis_expect(redis, "[done 3 ~]", "HMGET " REPLY("3-1") "status id old");
    redis_expect(redis, "[9-1 ~]", "HMGET " REPLY("4-1") "entry id");
    redis_expect(redis, "0", "EXISTS " REPLY("2-1") REPLY("5-1") WAKE("5-1"));
    redis_expect(redis, "[]", "KEYS *stage*");
    redis_expect(redis, "[1 5-1 5-1 [[me 1]]]", "XPENDING " STREAM " sluice");
}

TEST_WITH(settle_forgets_the_trouble_of_others, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "other"); /* which suspected it and charged it, while we had the vector */
    redis_do(redis, "HSET " Q "trouble 1-1 x 2-1 y");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_expect(redis, "[2-1 y]", "HGETALL " Q "trouble");
    expect_empty(redis);
}

TEST_WITH(settle_skips_side_keys_of_a_wrong_type, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    deliver(redis, "2-1", "me");
    redis_do(redis, "SET " WAKE("1-1") "junk");
    redis_do(redis, "SET " Q "trouble junk");
    redis_do(redis, "SET " Q "dead junk");
    redis_expect_script(redis, "[1 1 3 0]", SCRIPT_SETTLE, 6,
                        SETTLE_KEYS REPLY("1-1") REPLY("2-1") WAKE("1-1")
                            HEAD(2) "1-1 done 1-1 60000 1 0 0 0 2 embedding v " FAILED("2-1", "dead"));
    redis_expect(redis, "[done error]",
                 "EVAL return{redis.call('HGET',KEYS[1],'status'),redis.call('HGET',KEYS[2],"
                 "'status')} 2 " REPLY("1-1") REPLY("2-1"));
    expect_empty(redis);
}

TEST_WITH(settle_keeps_a_dead_letter_with_its_fields, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "XADD " STREAM " 1-1 text hello x-mine 7 _id 1-0 _attempt 4");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_do(redis, "HSET " Q "trouble 1-1 x");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "dead"));
    char id[64], expected[256];
    snprintf(id, sizeof id, "%s", redis_do(redis, "HGET " REPLY("1-1") "dead"));
    snprintf(expected, sizeof expected, "[[%s [_entry 1-1 _code internal _message x text hello x-mine 7]]]", id);
    redis_expect(redis, expected, "XRANGE " Q "dead - +");
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    expect_empty(redis);
}

/* A body of thousands of fields must not reach unpack, whatever the outcome: it is kept in one field. */
TEST_WITH(settle_never_unpacks_a_large_body, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    for (int i = 1; i <= 2; i++) {
        static char line[1 << 17];
        size_t at = (size_t)snprintf(line, sizeof line, "XADD " STREAM " %d-1", i);
        for (int f = 0; f < 2000; f++) { at += (size_t)snprintf(line + at, sizeof line - at, " f%d v", f); }
        redis_do(redis, "%s", line);
    }
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_expect_script(redis, "[1 1 0 0]", SCRIPT_SETTLE, 5,
                        SETTLE_KEYS REPLY("1-1") REPLY("2-1") HEAD(2)
                            FAILED("1-1", "dead") "2-1 dead 2-1 60000 0 0 0 0 2 code poison");
    redis_expect(redis, "2", "XLEN " Q "dead");
    const char *letters = redis_do(redis, "XRANGE " Q "dead - +");
    assert_null(strstr(letters, " v"));
    assert_non_null(strstr(letters, "_body"));
    expect_empty(redis);
}

TEST_WITH(settle_poison_keeps_its_body, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4,
                        SETTLE_KEYS REPLY("1-1") HEAD(1) "1-1 dead 1-1 60000 0 0 0 0 2 code poison");
    assert_non_null(strstr(redis_do(redis, "XRANGE " Q "dead - +"), "[_entry 1-1 _code poison text hello]"));
    redis_expect(redis, "[error poison]", "HMGET " REPLY("1-1") "status code");
}

TEST_WITH(settle_gone_only_when_the_message_is_gone, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "other");
    redis_expect_script(redis, "[-1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "gone"));
    redis_do(redis, "XDEL " STREAM " 1-1");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "gone"));
    redis_expect(redis, "[error internal]", "HMGET " REPLY("1-1") "status code");
    expect_empty(redis);
}

TEST_WITH(settle_gone_lets_its_own_finished_reply_stand, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "other");
    redis_do(redis, "XDEL " STREAM " 1-1");
    redis_do(redis, "HSET " REPLY("1-1") "status done entry 1-1");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) FAILED("1-1", "gone"));
    redis_expect(redis, "done", "HGET " REPLY("1-1") "status");
    expect_empty(redis);
}

/* An error in the middle leaves the entry pending, and the call can be repeated: here each right is missing in turn. */
TEST_WITH(settle_without_a_right_leaves_the_entry_pending, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    static const char *const rights[] = {"xpending", "hset", "pexpire", "xdel", "xack", "del", "time", "hmget"};
    group(redis);
    deliver(redis, "1-1", "me");
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        redis_do(redis, "ACL SETUSER default -%s", rights[i]);
        redis_expect_script(redis, "!...", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
        redis_do(redis, "ACL SETUSER default +@all");
        redis_expect(redis, "[1 1-1 1-1 [[me 1]]]", "XPENDING " STREAM " sluice");
    }
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    expect_empty(redis);
}

TEST_WITH(settle_works_in_a_full_redis, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "CONFIG SET maxmemory 1");
    redis_expect(redis, "!OOM...", "SET x 1");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_SETTLE, 4, SETTLE_KEYS REPLY("1-1") HEAD(1) DONE("1-1"));
    redis_expect(redis, "done", "HGET " REPLY("1-1") "status");
    expect_empty(redis);
}

/* --- defer and promote -------------------------------------------------------------------------------------------- */

#define DEFER_KEYS STREAM " " Q "later " Q "later:data " Q "trouble " Q "meta "
#define PROMOTE_KEYS Q "later " Q "later:data " Q "trouble " STREAM ":high " STREAM " " STREAM ":low "

TEST_WITH(defer_and_promote_keep_the_identity, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "XADD " STREAM " 1-1 id order-42 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    expect_empty(redis);
    redis_expect(redis, "[1-1]", "ZRANGE " Q "later 0 -1");
    redis_expect(redis, "1 0 1-1", "HGET " Q "trouble 1-1");
    redis_expect_script(redis, "[1 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    redis_expect(redis, "[0 0]",
                 "EVAL return{redis.call('EXISTS',KEYS[1]),redis.call('EXISTS',KEYS[2])} 2 " Q "later " Q "later:data");
    const char *entries = redis_do(redis, "XRANGE " STREAM " - +");
    assert_non_null(strstr(entries, "[_id 1-1 _attempt 2 _first_at 1 id order-42 text hello]"));
}

TEST_WITH(defer_a_second_time_keeps_the_first_age, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "XADD " STREAM " 7-1 _id 1-1 _attempt 2 _first_at 1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_do(redis, "EVAL return(redis.call('HSET',KEYS[1],'1-1','1\\0320\\0327-1')) 1 " Q "trouble"); /* 1 0 7-1 */
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 7-1 1-1 1 3 0 0");
    redis_expect_script(redis, "[1 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    assert_non_null(strstr(redis_do(redis, "XRANGE " STREAM " - +"), "[_id 1-1 _attempt 3 _first_at 1 text hello]"));
}

TEST_WITH(defer_overwrites_no_parked_request, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "XADD " STREAM " 5-1 text forged _id 1-1");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    redis_expect_script(redis, "[-3]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 5-1 1-1 1 2 0 0");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 5-1 5-1 0 2 0 0");
    redis_expect(redis, "[1-1 5-1]", "ZRANGEBYLEX " Q "later - +");
    redis_expect(redis, "2", "HLEN " Q "later:data");
    redis_expect_script(redis, "[2 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    const char *entries = redis_do(redis, "XRANGE " STREAM " - +");
    assert_non_null(strstr(entries, "[_id 1-1 _attempt 2 _first_at 1 text hello]"));
    assert_non_null(strstr(entries, "[_id 5-1 _attempt 2 _first_at 5 text forged]"));
}

TEST_WITH(defer_cut_short_is_repeated_under_its_name, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "XADD " STREAM " 7-1 _id 1-1 _attempt 2 _first_at 1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_do(redis, "SET " Q "later junk");
    redis_expect_script(redis, "!WRONGTYPE...", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 7-1 1-1 0 3 0 0");
    redis_do(redis, "DEL " Q "later");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 7-1 1-1 0 3 0 0");
    redis_expect(redis, "[1-1]", "ZRANGE " Q "later 0 -1");
}

TEST_WITH(defer_only_by_the_owner_and_only_once, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "other");
    redis_expect_script(redis, "[-1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    redis_expect(redis, "0", "EXISTS " Q "later");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "other 1 1-1 1-1 0 2 0 0");
    redis_expect_script(redis, "[0]", SCRIPT_DEFER, 5, DEFER_KEYS "other 1 1-1 1-1 0 2 0 0");
    redis_expect(redis, "1", "ZCARD " Q "later");
}

TEST_WITH(defer_says_when_the_message_is_gone, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "XDEL " STREAM " 1-1");
    redis_expect_script(redis, "[-2]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    redis_expect(redis, "0", "EXISTS " Q "later");
}

TEST_WITH(defer_and_promote_work_in_a_full_redis, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "CONFIG SET maxmemory 1");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    redis_expect_script(redis, "[1 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
}

TEST_WITH(promote_brings_back_only_what_is_due, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    deliver(redis, "2-1", "me");
    redis_expect_script(redis, "[1 1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0 2-1 2-1 0 2 3600000 0");
    const char *text = NULL;
    redis_expect_script(redis, "[1 3...", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    text = redis->text;
    assert_non_null(strstr(text, " 0]"));
    redis_expect(redis, "1", "XLEN " STREAM);
    redis_expect_script(redis, "[0 3...", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    redis_expect(redis, "1", "XLEN " STREAM);
}

TEST_WITH(promote_returns_each_class_to_its_stream, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_expect(redis, "OK", "XGROUP CREATE " STREAM ":low sluice 0 MKSTREAM");
    redis_do(redis, "XADD " STREAM ":low 1-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM ":low >");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5,
                        STREAM ":low " Q "later " Q "later:data " Q "trouble " Q "meta "
                               "me 2 1-1 low:1-1 0 2 0 0");
    redis_expect_script(redis, "[1 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    redis_expect(redis, "1", "XLEN " STREAM ":low");
    assert_non_null(strstr(redis_do(redis, "XRANGE " STREAM ":low - +"), "_id low:1-1"));
}

TEST_WITH(promote_brings_back_a_name_without_data_to_be_answered, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_do(redis, "ZADD " Q "later 1 1-1");
    redis_do(redis, "ZADD " Q "later 1 junk");
    redis_expect_script(redis, "[1 -1 2]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
    redis_expect(redis, "0", "EXISTS " Q "later");
    assert_non_null(strstr(redis_do(redis, "XRANGE " STREAM " - +"), "[_id 1-1 _attempt 1 _first_at 1 _lost 1]"));
}

/* --- reclaim, release, charge ------------------------------------------------------------------------------------- */

#define RECLAIM_KEYS STREAM " " Q "trouble "

TEST_WITH(reclaim_takes_only_from_workers_without_alive, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "dead");
    deliver(redis, "2-1", "slow");
    redis_do(redis, "SET " Q "alive:slow token");
    redis_expect_script(redis, "[[[1-1 1 0 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 4,
                        RECLAIM_KEYS Q "alive:dead " Q "alive:slow me 10 1000 '' dead slow");
    redis_expect(redis, "[2 1-1 2-1 [[me 1] [slow 1]]]", "XPENDING " STREAM " sluice");
}

TEST_WITH(reclaim_deletes_a_dead_consumer_only_when_it_holds_nothing, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "dead");
    deliver(redis, "2-1", "dead");
    redis_expect_script(redis, "[[[1-1 1 0 [text hello]]] [] [] 1 [dead]]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:dead me 1 1000 '' dead");
    redis_expect(redis, "[2 1-1 2-1 [[dead 1] [me 1]]]", "XPENDING " STREAM " sluice");
    redis_expect_script(redis, "[[[2-1 1 0 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:dead me 1 1000 '' dead");
    assert_null(strstr(redis_do(redis, "XINFO CONSUMERS " STREAM " sluice"), "dead"));
}

TEST_WITH(reclaim_reports_vanished_entries_and_leaves_them_pending, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "dead");
    redis_do(redis, "XDEL " STREAM " 1-1");
    redis_expect_script(redis, "[[] [1-1] [] 0 [dead]]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:dead me 10 1000 '' dead");
    redis_expect(redis, "[1 1-1 1-1 [[dead 1]]]", "XPENDING " STREAM " sluice");
}

TEST_WITH(reclaim_stops_at_its_byte_limit_and_leaves_oversized_entries, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "dead");
    redis_do(redis, "XADD " STREAM " 2-1 text %0100d", 7);
    redis_do(redis, "XREADGROUP GROUP sluice dead STREAMS " STREAM " >");
    deliver(redis, "3-1", "dead");
    deliver(redis, "4-1", "dead");
    redis_expect_script(redis, "[[[1-1 1 0 [text hello]] [3-1 1 0 [text hello]]] [] [2-1] 1 [dead]]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:dead me 10 20 '' dead");
    redis_expect(redis, "[4 1-1 4-1 [[dead 2] [me 2]]]", "XPENDING " STREAM " sluice");
}

TEST_WITH(released_entries_are_not_suspect_nor_charged, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "leaving");
    redis_do(redis, "SET " Q "alive:leaving token");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:leaving " Q "trouble " Q "workers " Q "housekeeper leaving token 0 '' 1-1");
    redis_expect_script(redis, "[0 1 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:leaving " Q "trouble " Q "workers " Q "housekeeper leaving token 2 ''");
    redis_expect(redis, "0", "EXISTS " Q "alive:leaving");
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    redis_expect_script(redis, "[[[1-1 0 0 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:released me 10 1000 '' released");
}

TEST_WITH(release_gives_back_only_its_own_and_spares_vanished_ones, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    deliver(redis, "2-1", "other");
    deliver(redis, "3-1", "me");
    redis_do(redis, "XDEL " STREAM " 3-1");
    redis_do(redis, "SET " Q "alive:me token");
    redis_expect_script(redis, "[1 0 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:me " Q "trouble " Q "workers " Q "housekeeper me token 2 '' 2-1");
    redis_expect(redis, "[3 1-1 3-1 [[me 1] [other 1] [released 1]]]", "XPENDING " STREAM " sluice");
    redis_expect(redis, "0", "EXISTS " Q "alive:me");
}

TEST_WITH(release_leaves_a_namesake_alone, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "SET " Q "alive:me other");
    redis_expect_script(redis, "[0 0 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:me " Q "trouble " Q "workers " Q "housekeeper me token 2 ''");
    redis_expect(redis, "other", "GET " Q "alive:me");
    redis_expect(redis, "[1 1-1 1-1 [[me 1]]]", "XPENDING " STREAM " sluice");
}

TEST_WITH(release_takes_a_charged_run_off_the_record, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_do(redis, "XADD " STREAM " 2-1 text hello _id 1-9");
    redis_do(redis, "XREADGROUP GROUP sluice me STREAMS " STREAM " >");
    redis_do(redis, "SET " Q "alive:me token");
    redis_expect_script(redis, "[1 1]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble me alone 1-1 1-1 0 1 2-1 1-9 0 2");
    redis_expect_script(redis, "[2 1 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:me " Q "trouble " Q "workers " Q "housekeeper me token 2 ''");
    redis_expect(redis, "[0 0 1-1 1 0 2-1]", "HMGET " Q "trouble 1-1 1-9");
}

TEST_WITH(release_keeps_the_runs_that_crashed_others, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "dead");
    redis_expect_script(redis, "[1]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble dead alone 1-1 1-1 0 1");
    redis_expect_script(redis, "[[[1-1 1 1 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:dead me 10 1000 '' dead");
    redis_do(redis, "SET " Q "alive:me token");
    redis_expect_script(redis, "[1 1 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:me " Q "trouble " Q "workers " Q "housekeeper me token 2 ''");
    redis_expect(redis, "0 1 1-1 dead 1", "HGET " Q "trouble 1-1");
}

TEST_WITH(charge_counts_lonely_runs_of_the_owner, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    deliver(redis, "1-1", "me");
    redis_expect_script(redis, "[1]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble me alone 1-1 1-1 0 1");
    redis_expect_script(redis, "[1]", SCRIPT_CHARGE, 2,
                        STREAM " " Q "trouble me alone 1-1 1-1 0 1"); /* repeated, not run twice */
    redis_expect(redis, "0 1 1-1 me", "HGET " Q "trouble 1-1");
    redis_expect_script(redis, "[0 0]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble other alone 1-1 1-1 0 1 9-9 9-9 0 1");
    redis_expect(redis, "0 1 1-1 me", "HGET " Q "trouble 1-1");
    redis_expect_script(redis, "[[[1-1 1 1 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:me you 10 1000 '' me");
    redis_expect_script(redis, "[2]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble you alone 1-1 1-1 0 1");
    redis_expect(redis, "0 2 1-1 me,you", "HGET " Q "trouble 1-1");
}

TEST_WITH(a_trouble_key_of_a_wrong_type_stops_nobody, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    group(redis);
    redis_do(redis, "SET " Q "trouble junk");
    deliver(redis, "1-1", "gone");
    redis_expect_script(redis, "[[[1-1 1 0 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:gone me 10 1000 '' gone");
    redis_expect_script(redis, "[1]", SCRIPT_CHARGE, 2, STREAM " " Q "trouble me alone 1-1 1-1 0 1");
    redis_do(redis, "SET " Q "alive:me token");
    redis_expect_script(redis, "[1 1 0]", SCRIPT_RELEASE, 5,
                        STREAM " " Q "alive:me " Q "trouble " Q "workers " Q "housekeeper me token 2 ''");
    redis_expect_script(redis, "[[[1-1 0 0 [text hello]]] [] [] 0 []]", SCRIPT_RECLAIM, 3,
                        RECLAIM_KEYS Q "alive:released me 10 1000 '' released");
    redis_expect_script(redis, "[1]", SCRIPT_DEFER, 5, DEFER_KEYS "me 1 1-1 1-1 0 2 0 0");
    redis_expect_script(redis, "[1 -1 0]", SCRIPT_PROMOTE, 6, PROMOTE_KEYS "100");
}

/* --- join and renew ----------------------------------------------------------------------------------------------- */

#define JOIN_KEYS Q "meta " Q "alive:me "

TEST_WITH(join_pins_protocol_and_model, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_expect_script(redis, "[1 ]", SCRIPT_JOIN, 2, JOIN_KEYS "1 model-a token 5000");
    redis_expect(redis, "[1 model-a]", "HMGET " Q "meta protocol model_id");
    redis_expect_script(redis, "[-2 model-a]", SCRIPT_JOIN, 2, Q "meta " Q "alive:you 1 model-b token 5000");
    redis_do(redis, "HSET " Q "meta protocol 2");
    redis_expect_script(redis, "[-1 2]", SCRIPT_JOIN, 2, Q "meta " Q "alive:you 1 model-a token 5000");
    redis_expect(redis, "0", "EXISTS " Q "alive:you");
}

TEST_WITH(join_takes_a_free_name_or_its_own, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_expect_script(redis, "[1 ]", SCRIPT_JOIN, 2, JOIN_KEYS "1 m token 5000");
    redis_expect_script(redis, "[1 ]", SCRIPT_JOIN, 2, JOIN_KEYS "1 m token 5000");
    redis_expect_script(redis, "[0 ]", SCRIPT_JOIN, 2, JOIN_KEYS "1 m twin 5000");
    redis_expect(redis, "token", "GET " Q "alive:me");
}

TEST_WITH(renew_extends_only_its_own_lease, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_do(redis, "SET " Q "alive:me token PX 60000");
    redis_expect_script(redis, "0", SCRIPT_RENEW, 1, Q "alive:me twin 900000");
    redis_expect_script(redis, "1", SCRIPT_RENEW, 1, Q "alive:me token 900000");
    assert_true(strtol(redis_do(redis, "PTTL " Q "alive:me"), NULL, 10) > 800000);
    redis_do(redis, "DEL " Q "alive:me");
    redis_expect_script(redis, "0", SCRIPT_RENEW, 1, Q "alive:me token 900000");
    redis_expect(redis, "0", "EXISTS " Q "alive:me");
}

/* The queue on a real server: the straight line, workers that come and go, entries that cannot be read. */
#include "queue_desk.h"

#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* --- The straight line -------------------------------------------------------------------------------------------- */

DESK_TEST(entry_to_reply)
{
    redis_do(redis, "XADD " STREAM " * id a text hello notify 1 meta kept");
    assert_int_equal(desk_read(desk, 10, 0), 1);
    assert_string_equal(desk->held.first->identity.id, "a");
    assert_int_equal(desk->held.first->identity.origin, ORIGIN_NEW);
    desk_settle(desk, OUTCOME_DONE);
    assert_false(desk->last.failed);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    char expected[256];
    snprintf(expected, sizeof expected, "[a %s m r 2 f32 kept 0.001]", desk->held.first->identity.name);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    redis_expect_info(redis, expected, Q "reply:a", "id entry model revision dim encoding meta compute_ms");
    redis_expect(redis, "8", "HSTRLEN " Q "reply:a embedding");
    redis_expect(redis, desk->held.first->identity.name, "LPOP " Q "wake:a");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(blocked_read_returns_with_the_entry)
{
    queue_execute(desk->queue, &(struct action)DESK_READ(4, 2000));
    desk_wait_blocked(desk, redis);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_wait(desk, EVENT_ENTRIES);
    assert_int_equal(desk->held.count, 1);
}

DESK_TEST(unblock_ends_a_blocked_read)
{
    queue_execute(desk->queue, &(struct action)DESK_READ(4, 600000));
    desk_wait_blocked(desk, redis);
    desk_do(desk, ACTION_UNBLOCK, EVENT_ENTRIES);
    assert_false(desk->last.failed);
    assert_int_equal(desk->last.entries.count, 0);
}

DESK_TEST(many_settles_are_one_event)
{
    for (int i = 0; i < 200; i++) { redis_do(redis, "XADD " STREAM " * text hello"); }
    assert_int_equal(desk_read(desk, 1000, 0), 200);
    for (struct request *request = desk->held.first; request; request = request->next) {
        request->output.notify = true;
    }
    size_t before = desk->count;
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->count, before + 1);
    assert_int_equal(desk->held.count, 200);
    desk_expect_empty(redis, STREAM);
    redis_expect(redis, "405", "DBSIZE"); /* replies, wake tokens, three streams, meta, alive */
}

/* A reply is the same whether the settle carries it or it was staged. */
DESK_TEST(large_replies_are_staged)
{
    desk->padding = 5000;
    redis_do(redis, "XADD " STREAM " * id a text hello notify 1 meta kept ttl 500");
    redis_do(redis, "XADD " STREAM " * id b text hello");
    assert_int_equal(desk_read(desk, 10, 0), 2);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    char expected[256];
    snprintf(expected, sizeof expected, "[a %s m r 2 f32 kept 0.001]", desk->held.first->identity.name);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    redis_expect_info(redis, expected, Q "reply:a", "id entry model revision dim encoding meta compute_ms");
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:a embedding");
    redis_expect(redis, "3", "HLEN " Q "reply:a");
    redis_expect(redis, "500", "TTL " Q "reply:a");
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:b embedding");
    redis_expect(redis, desk->held.first->identity.name, "LPOP " Q "wake:a");
    redis_expect(redis, "[]", "KEYS *stage*");
    redis_do(redis, "INFO commandstats");
    assert_non_null(strstr(redis->text, "cmdstat_rename:calls=2,"));
    desk_expect_empty(redis, STREAM);
}

/* When a settle fails, its staged reply is removed; the next settle carries the reply itself. */
DESK_TEST(a_staged_reply_goes_with_a_settle_that_fails)
{
    desk->padding = 5000;
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello ttl 5000");
    assert_int_equal(desk_read(desk, 10, 0), 1);
    redis_do(redis, "RENAME " STREAM " " Q "aside");
    redis_do(redis, "SET " STREAM " junk");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_AGAIN);
    redis_expect(redis, "[]", "KEYS *stage*");
    redis_do(redis, "RENAME " Q "aside " STREAM);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "5000", "TTL " Q "reply:a");
}

/* The transaction that stages a reply cannot load scripts that Redis has forgotten; the settle after it can. */
DESK_TEST(a_staged_reply_survives_forgotten_scripts)
{
    desk->padding = 5000;
    redis_do(redis, "XADD " STREAM " * id a text hello");
    assert_int_equal(desk_read(desk, 10, 0), 1);
    redis_do(redis, "SCRIPT FLUSH");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_AGAIN);
    redis_expect(redis, "[]", "KEYS *stage*");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:a embedding");
    assert_false(desk_lost(desk));
}

DESK_TEST(a_late_staged_reply_leaves_nothing)
{
    desk->padding = 5000;
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    assert_int_equal(desk_read(desk, 10, 0), 1);
    redis_do(redis, "XACK " STREAM " sluice 5-1");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_LATE);
    redis_expect(redis, "0", "EXISTS " Q "reply:a");
    redis_expect(redis, "[]", "KEYS *stage*");
}

/* --- Runs --------------------------------------------------------------------------------------------------------- */

static void add_plain(struct redis_fixture *redis, int first, int last)
{
    for (int i = first; i <= last; i++) { redis_do(redis, "XADD " STREAM " 1795252518106-%d text hello", i); }
}

/* Settles all that the desk holds; returns how many runs of it were trimmed from the stream. */
static int settle_and_count(struct redis_fixture *redis, struct desk *desk)
{
    redis_do(redis, "CONFIG RESETSTAT");
    desk_settle(desk, OUTCOME_DONE);
    for (struct request *request = desk->held.first; request; request = request->next) {
        assert_int_equal(request->lifetime.verdict, VERDICT_DONE);
    }
    desk_drop(desk, desk->held.count);
    redis_do(redis, "INFO commandstats");
    const char *at = strstr(redis->text, "cmdstat_xtrim:calls=");
    return at ? atoi(strchr(at, '=') + 1) : 0;
}

DESK_TEST(what_one_answer_brought_is_a_run)
{
    add_plain(redis, 1, 14);
    assert_int_equal(desk_read(desk, 5, 0), 5);
    assert_int_equal(settle_and_count(redis, desk), 1);
    assert_int_equal(desk_read(desk, 4, 0), 4);
    assert_int_equal(desk_read(desk, 4, 0), 4);
    assert_int_equal(settle_and_count(redis, desk), 2);
    redis_expect(redis, "[[1795252518106-14 [text hello]]]", "XRANGE " STREAM " - +");
    redis_expect(redis, "done", "HGET " Q "reply:1795252518106-13 status");
    assert_int_equal(desk_read(desk, 5, 0), 1);
    assert_int_equal(settle_and_count(redis, desk), 0); /* a run of one */
    desk_expect_empty(redis, STREAM);
}

/* Another worker's entry between two answers may still be there, and so may one that is settled later. */
DESK_TEST(a_run_ends_where_an_entry_is_missing)
{
    add_plain(redis, 1, 16);
    assert_int_equal(desk_read(desk, 4, 0), 4);
    redis_do(redis, "XREADGROUP GROUP sluice other COUNT 1 STREAMS " STREAM " >");
    assert_int_equal(desk_read(desk, 11, 0), 11);
    struct request *before = desk->held.first;
    while (before->identity.entry.seq < 10) { before = before->next; }
    struct request *later = before->next;
    before->next = later->next;
    desk->held.count--;
    assert_int_equal(settle_and_count(redis, desk), 1);
    redis_expect(redis, "[[1795252518106-5 [text hello]] [1795252518106-11 [text hello]]]", "XRANGE " STREAM " - +");
    later->next = NULL;
    request_list_push(&desk->held, later);
    assert_int_equal(settle_and_count(redis, desk), 0);
}

/* Once the stream may be another one, or an entry came twice, nothing is known of what is between. */
DESK_TEST(places_do_not_outlive_a_stream)
{
    add_plain(redis, 1, 5);
    assert_int_equal(desk_read(desk, 5, 0), 5);
    redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
    desk_wait(desk, EVENT_CONNECTED);
    assert_int_equal(settle_and_count(redis, desk), 0);
    desk_expect_empty(redis, STREAM);
    add_plain(redis, 6, 10);
    assert_int_equal(desk_read(desk, 5, 0), 5);
    desk->held.first->lifetime.delivered_again = true;
    assert_int_equal(settle_and_count(redis, desk), 0);
    desk_expect_empty(redis, STREAM);
}

/* Entries that are read again, because they are pending, may have others between them. */
DESK_TEST(own_entries_are_no_run)
{
    add_plain(redis, 1, 6);
    redis_do(redis, "XGROUP CREATECONSUMER " STREAM " sluice other");
    assert_int_equal(desk_read(desk, 6, 0), 6);
    desk_drop(desk, 6);
    redis_do(redis, "XCLAIM " STREAM " sluice other 0 1795252518106-2");
    assert_int_equal(desk_read_own(desk, 6), 5);
    assert_int_equal(settle_and_count(redis, desk), 0);
    redis_expect(redis, "[[1795252518106-2 [text hello]]]", "XRANGE " STREAM " - +");
}

/* Plain requests with another TTL or field are settled in the same call, one by one. */
DESK_TEST(plain_requests_share_a_ttl)
{
    redis_do(redis, "XADD " STREAM " 1795252518106-1 text hello ttl 100");
    redis_do(redis, "XADD " STREAM " 1795252518106-2 text hello ttl 200");
    redis_do(redis, "XADD " STREAM " 1795252518106-3 text hello ttl 100");
    assert_int_equal(desk_read(desk, 3, 0), 3);
    assert_int_equal(settle_and_count(redis, desk), 0);
    redis_expect(redis, "100", "TTL " Q "reply:1795252518106-1");
    redis_expect(redis, "200", "TTL " Q "reply:1795252518106-2");
    redis_expect(redis, "100", "TTL " Q "reply:1795252518106-3");
    redis_expect(redis, "8", "HSTRLEN " Q "reply:1795252518106-2 embedding");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(a_second_settle_is_late)
{
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(desk, 1, 0);
    desk_settle(desk, OUTCOME_DONE);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_LATE);
}

DESK_TEST(errors_and_dead_letters)
{
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    desk_settle(desk, OUTCOME_DEAD);
    redis_expect(redis, "[error internal broken]", "HMGET " Q "reply:a status code message");
    redis_expect_info(redis, "[true 1]", Q "reply:a", "retryable attempts");
    redis_expect(redis, "1", "XLEN " Q "dead");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(deferred_requests_come_back_as_the_next_attempt)
{
    char name[REQUEST_NAME_MAX];
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    snprintf(name, sizeof name, "%s", desk->held.first->identity.name);
    desk_settle(desk, OUTCOME_DEFER);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    request_free(request_list_pop(&desk->held));
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    assert_true(desk->last.promoted.next_due_in_ms == UINT64_MAX);
    assert_int_equal(desk_read(desk, 1, 0), 1);
    assert_string_equal(desk->held.first->identity.name, name);
    assert_string_equal(desk->held.first->identity.id, "a");
    assert_int_equal(desk->held.first->retry.attempt, 2);
    desk_settle(desk, OUTCOME_DONE);
    redis_expect_info(redis, "[2]", Q "reply:a", "attempts");
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(charge_counts_only_for_the_owner)
{
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    desk_read(desk, 1, 0);
    desk_execute(desk, ACTION_RECORD_RUN, false);
    desk_wait(desk, EVENT_RUN_RECORDED);
    assert_int_equal(desk->held.first->retry.quarantine_runs, 0); /* in a group */
    desk->held.first->retry.quarantined = true;
    desk_execute(desk, ACTION_RECORD_RUN, false);
    desk_wait(desk, EVENT_RUN_RECORDED);
    assert_int_equal(desk->held.first->retry.quarantine_runs, 1);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_do(redis, "XCLAIM " STREAM " sluice other 0 5-1");
    desk_execute(desk, ACTION_RECORD_RUN, false);
    desk_wait(desk, EVENT_RUN_RECORDED);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_LATE);
}

/* --- Workers that come and go ------------------------------------------------------------------------------------- */

DESK_TEST(reclaim_judges_only_when_told)
{
    redis_do(redis, "XADD " STREAM " * text hello");
    redis_do(redis, "XREADGROUP GROUP sluice gone STREAMS " STREAM " >");
    assert_int_equal(desk_reclaim(desk, false), 0);
    redis_do(redis, "SET " Q "alive:gone x");
    assert_int_equal(desk_reclaim(desk, true), 0);
    redis_do(redis, "DEL " Q "alive:gone");
    assert_int_equal(desk_reclaim(desk, true), 1);
    assert_int_equal(desk->held.first->identity.origin, ORIGIN_RECLAIMED);
    desk_settle(desk, OUTCOME_DONE);
    desk_expect_empty(redis, STREAM);
    assert_null(strstr(redis_do(redis, "XINFO CONSUMERS " STREAM " sluice"), "gone"));
}

DESK_TEST(vanished_entries_are_handed_over_and_settled)
{
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice gone STREAMS " STREAM " >");
    redis_do(redis, "XDEL " STREAM " 5-1");
    assert_int_equal(desk_reclaim(desk, true), 1);
    desk_settle(desk, OUTCOME_GONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "internal", "HGET " Q "reply:5-1 code");
    desk_expect_empty(redis, STREAM);
}

TEST_WITH(released_entries_go_to_the_next_worker, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk leaving, next;
    desk_connect(&leaving, &redis->address);
    desk_connect(&next, &redis->address);
    redis_do(redis, "XADD " STREAM " * text one");
    redis_do(redis, "XADD " STREAM " * text two");
    assert_int_equal(desk_read(&leaving, 10, 0), 2);
    request_free(request_list_pop(&leaving.held)); /* the worker does not know this one: `last` finds it */
    desk_execute(&leaving, ACTION_RELEASE, true);
    desk_wait(&leaving, EVENT_RELEASED);
    assert_int_equal(leaving.held.count, 1);
    redis_expect(redis, "0", "EXISTS " Q "alive:%s", queue_worker_name(leaving.queue));
    assert_int_equal(desk_reclaim(&next, false), 2);
    assert_int_equal(next.held.first->identity.origin, ORIGIN_RELEASED);
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    desk_close(&leaving);
    desk_close(&next);
}

DESK_TEST(a_lost_lease_is_told_and_a_new_name_taken)
{
    char old[QUEUE_WORKER_MAX];
    snprintf(old, sizeof old, "%s", queue_worker_name(desk->queue));
    desk_do(desk, ACTION_RENEW, EVENT_LEASE);
    assert_true(desk->last.lease_held);
    redis_do(redis, "DEL " Q "alive:%s", old);
    desk_do(desk, ACTION_RENEW, EVENT_LEASE);
    assert_false(desk->last.lease_held || desk->last.failed);
    desk_do(desk, ACTION_REJOIN, EVENT_CONNECTED);
    assert_string_not_equal(queue_worker_name(desk->queue), old);
    redis_expect(redis, "1", "EXISTS " Q "alive:%s", queue_worker_name(desk->queue));
}

/* --- Entries that cannot be read ---------------------------------------------------------------------------------- */

/* Reads the own list from its beginning, over one connection. */
static void read_own_to_the_end(struct desk *desk)
{
    struct entry_id after = {0};
    for (bool more = true; more;) {
        queue_execute(desk->queue, &(struct action){.kind = ACTION_READ_OWN,
                                                    .read = {.class = CLASS_NORMAL, .count = 10, .after = after}});
        desk_wait(desk, EVENT_ENTRIES);
        assert_false(desk->last.failed);
        more = desk->last.entries.more;
        after = desk->last.entries.last;
    }
}

/* An entry of 100,000 bytes is dropped on arrival; entries that do not fit in one answer are read from the own list. */
TEST_WITH(an_oversized_entry_is_answered_unread, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.max_reply_bytes = 40000});
    desk_wait(&desk, EVENT_CONNECTED);
    for (int i = 1; i <= 9; i++) { redis_do(redis, "XADD " STREAM " %d-1 text %0*d", i, i == 3 ? 100000 : 8000, 7); }
    queue_execute(desk.queue, &(struct action)DESK_READ(20, 0));
    desk_wait(&desk, EVENT_ENTRIES);
    assert_true(desk.last.entries.more);
    assert_in_range(desk.last.entries.count, 3, 8);
    read_own_to_the_end(&desk);
    assert_false(desk_lost(&desk));
    bool seen[10] = {false};
    for (struct request *request = desk.held.first; request; request = request->next) {
        assert_int_equal(request->retry.code == CODE_TOO_LARGE, request->identity.entry.ms == 3);
        seen[request->identity.entry.ms] = true;
    }
    for (int i = 1; i <= 9; i++) { assert_true(seen[i]); }
    desk_close(&desk);
}

DESK_TEST(an_own_vanished_entry_is_handed_over)
{
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    redis_do(redis, "XADD " STREAM " 6-1 text hello");
    desk_read(desk, 10, 0);
    redis_do(redis, "XDEL " STREAM " 6-1");
    assert_int_equal(desk_read_own(desk, 10), 2);
    assert_int_equal(desk->last.entries.last.ms, 6);
    assert_int_equal(desk->held.last->identity.entry.ms, 6);
    desk_drop(desk, 3); /* both from the first read, and 5-1 again */
    desk_settle(desk, OUTCOME_GONE);
    redis_expect(redis, "internal", "HGET " Q "reply:6-1 code");
    redis_expect(redis, "[1 5-1 5-1...", "XPENDING " STREAM " sluice");
}

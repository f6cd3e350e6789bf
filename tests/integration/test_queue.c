/* The queue on a real server: the straight line, and every way in which it can be interrupted. */
#include "queue_desk.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>

#include "harness.h"

#define Q "sluice:{q}:"
#define STREAM Q "requests"

static void expect_empty(struct redis_fixture *redis)
{
    redis_expect(redis, "[0 ~ ~ ~]", "XPENDING " STREAM " sluice");
    redis_expect(redis, "0", "XLEN " STREAM);
}

/* Asks Redis until it says so: what the queue sends without an answer for the worker. */
static void wait_until(struct desk *desk, struct redis_fixture *redis, const char *expected, const char *command)
{
    for (int i = 0; i < 2000 && strcmp(redis_do(redis, "%s", command), expected) != 0; i++) {
        struct timeval pause = {.tv_usec = 1000};
        event_base_loopexit(desk->base, &pause);
        event_base_dispatch(desk->base);
    }
    redis_expect(redis, expected, "%s", command);
}

static void wait_until_blocked(struct desk *desk, struct redis_fixture *redis)
{
    for (int i = 0; i < 2000 && !strstr(redis_do(redis, "INFO clients"), "blocked_clients:1"); i++) {
        struct timeval pause = {.tv_usec = 1000};
        event_base_loopexit(desk->base, &pause);
        event_base_dispatch(desk->base);
    }
    assert_non_null(strstr(redis->text, "blocked_clients:1"));
}

static void server_with_aof(struct redis_fixture *redis)
{
    static const char *const options[] = {"--appendonly", "yes", NULL};
    redis_server_stop(&redis->server);
    redis_server_start(&redis->server, options);
    struct err err;
    address_free(&redis->address);
    assert_int_equal(address_parse(redis->server.socket, &redis->address, &err), STATUS_OK);
    redis_reconnect(redis);
}

/* --- The straight line -------------------------------------------------------------------------------------------- */

static void entry_to_reply(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello notify 1 meta kept");
    assert_int_equal(desk_read(&desk, 10, 0), 1);
    assert_string_equal(desk.held.first->id, "a");
    assert_int_equal(desk.held.first->origin, ORIGIN_NEW);
    desk_settle(&desk, OUTCOME_DONE);
    assert_false(desk.last.failed);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    char expected[256];
    snprintf(expected, sizeof expected, "[done a %s m r 2 f32 kept 0.001]", desk.held.first->name);
    redis_expect(redis, expected, "HMGET " Q "reply:a status id entry model revision dim encoding meta compute_ms");
    redis_expect(redis, "8", "HSTRLEN " Q "reply:a embedding");
    redis_expect(redis, desk.held.first->name, "LPOP " Q "wake:a");
    expect_empty(redis);
    desk_close(&desk);
}

static void blocked_read_returns_with_the_entry(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    queue_execute(desk.queue, &(struct action)DESK_READ(4, 2000));
    wait_until_blocked(&desk, redis);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_wait(&desk, EVENT_ENTRIES);
    assert_int_equal(desk.held.count, 1);
    desk_close(&desk);
}

static void unblock_ends_a_blocked_read(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    queue_execute(desk.queue, &(struct action)DESK_READ(4, 600000));
    wait_until_blocked(&desk, redis);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_UNBLOCK});
    desk_wait(&desk, EVENT_ENTRIES);
    assert_false(desk.last.failed);
    assert_int_equal(desk.last.entries.count, 0);
    desk_close(&desk);
}

static void many_settles_are_one_event(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    for (int i = 0; i < 200; i++) {
        redis_do(redis, "XADD " STREAM " * text hello");
    }
    assert_int_equal(desk_read(&desk, 1000, 0), 200);
    for (struct request *request = desk.held.first; request; request = request->next) {
        request->notify = true;
    }
    size_t before = desk.count;
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.count, before + 1);
    assert_int_equal(desk.held.count, 200);
    expect_empty(redis);
    redis_expect(redis, "405", "DBSIZE"); /* replies, wake tokens, three streams, meta, alive */
    desk_close(&desk);
}

/* What a settle carries and what is staged for it comes out the same. */
static void large_replies_are_staged(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    desk.padding = 5000;
    redis_do(redis, "XADD " STREAM " * id a text hello notify 1 meta kept ttl 500");
    redis_do(redis, "XADD " STREAM " * id b text hello");
    assert_int_equal(desk_read(&desk, 10, 0), 2);
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    char expected[256];
    snprintf(expected, sizeof expected, "[done a %s m r 2 f32 kept 0.001]", desk.held.first->name);
    redis_expect(redis, expected, "HMGET " Q "reply:a status id entry model revision dim encoding meta compute_ms");
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:a embedding");
    redis_expect(redis, "13", "HLEN " Q "reply:a");
    redis_expect(redis, "500", "TTL " Q "reply:a");
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:b embedding");
    redis_expect(redis, desk.held.first->name, "LPOP " Q "wake:a");
    redis_expect(redis, "[]", "KEYS *stage*");
    redis_do(redis, "INFO commandstats");
    assert_non_null(strstr(redis->text, "cmdstat_rename:calls=2,"));
    expect_empty(redis);
    desk_close(&desk);
}

static void a_late_staged_reply_leaves_nothing(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    desk.padding = 5000;
    redis_do(redis, "XADD " STREAM " 5-1 id a text hello");
    assert_int_equal(desk_read(&desk, 10, 0), 1);
    redis_do(redis, "XACK " STREAM " sluice 5-1");
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_LATE);
    redis_expect(redis, "0", "EXISTS " Q "reply:a");
    redis_expect(redis, "[]", "KEYS *stage*");
    desk_close(&desk);
}

static void a_second_settle_is_late(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(&desk, 1, 0);
    desk_settle(&desk, OUTCOME_DONE);
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_LATE);
    desk_close(&desk);
}

static void errors_and_dead_letters(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    desk_settle(&desk, OUTCOME_DEAD);
    redis_expect(redis, "[error internal broken 1 1]", "HMGET " Q "reply:a status code message retryable attempts");
    redis_expect(redis, "1", "XLEN " Q "dead");
    expect_empty(redis);
    desk_close(&desk);
}

static void deferred_requests_come_back_as_the_next_attempt(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    char name[REQUEST_NAME_MAX];
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    snprintf(name, sizeof name, "%s", desk.held.first->name);
    desk_settle(&desk, OUTCOME_DEFER);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    request_free(request_list_pop(&desk.held));
    queue_execute(desk.queue, &(struct action){.kind = ACTION_PROMOTE});
    desk_wait(&desk, EVENT_PROMOTED);
    assert_true(desk.last.promoted.next_due_in_ms == UINT64_MAX);
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    assert_string_equal(desk.held.first->name, name);
    assert_string_equal(desk.held.first->id, "a");
    assert_int_equal(desk.held.first->attempt, 2);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "[done 2]", "HMGET " Q "reply:a status attempts");
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    expect_empty(redis);
    desk_close(&desk);
}

static void charge_counts_only_for_the_owner(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    desk_read(&desk, 1, 0);
    desk_execute(&desk, ACTION_CHARGE, false);
    desk_wait(&desk, EVENT_CHARGED);
    assert_int_equal(desk.held.first->lonely_runs, 1);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    redis_do(redis, "XCLAIM " STREAM " sluice other 0 5-1");
    desk_execute(&desk, ACTION_CHARGE, false);
    desk_wait(&desk, EVENT_CHARGED);
    assert_int_equal(desk.held.first->verdict, VERDICT_LATE);
    desk_close(&desk);
}

/* --- Workers that come and go ------------------------------------------------------------------------------------- */

static void reclaim_judges_only_when_told(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    redis_do(redis, "XREADGROUP GROUP sluice gone STREAMS " STREAM " >");
    assert_int_equal(desk_reclaim(&desk, false), 0);
    redis_do(redis, "SET " Q "alive:gone x");
    assert_int_equal(desk_reclaim(&desk, true), 0);
    redis_do(redis, "DEL " Q "alive:gone");
    assert_int_equal(desk_reclaim(&desk, true), 1);
    assert_int_equal(desk.held.first->origin, ORIGIN_RECLAIMED);
    desk_settle(&desk, OUTCOME_DONE);
    expect_empty(redis);
    assert_null(strstr(redis_do(redis, "XINFO CONSUMERS " STREAM " sluice"), "gone"));
    desk_close(&desk);
}

static void vanished_entries_are_handed_over_and_settled(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    redis_do(redis, "XREADGROUP GROUP sluice gone STREAMS " STREAM " >");
    redis_do(redis, "XDEL " STREAM " 5-1");
    assert_int_equal(desk_reclaim(&desk, true), 1);
    desk_settle(&desk, OUTCOME_GONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    redis_expect(redis, "internal", "HGET " Q "reply:5-1 code");
    expect_empty(redis);
    assert_int_equal(queue_stats(desk.queue).vanished, 1);
    desk_close(&desk);
}

static void released_entries_go_to_the_next_worker(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk leaving, next;
    desk_connect(&leaving, &redis->address);
    desk_connect(&next, &redis->address);
    redis_do(redis, "XADD " STREAM " * text one");
    redis_do(redis, "XADD " STREAM " * text two");
    assert_int_equal(desk_read(&leaving, 10, 0), 2);
    request_free(request_list_pop(&leaving.held)); /* one that the worker does not know: `last` finds it */
    desk_execute(&leaving, ACTION_RELEASE, true);
    desk_wait(&leaving, EVENT_RELEASED);
    assert_int_equal(leaving.held.count, 1);
    redis_expect(redis, "0", "EXISTS " Q "alive:%s", queue_worker_name(leaving.queue));
    assert_int_equal(desk_reclaim(&next, false), 2);
    assert_int_equal(next.held.first->origin, ORIGIN_RELEASED);
    redis_expect(redis, "0", "EXISTS " Q "trouble");
    desk_close(&leaving);
    desk_close(&next);
}

static void a_lost_lease_is_told_and_a_new_name_taken(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    char old[QUEUE_WORKER_MAX];
    desk_connect(&desk, &redis->address);
    snprintf(old, sizeof old, "%s", queue_worker_name(desk.queue));
    queue_execute(desk.queue, &(struct action){.kind = ACTION_RENEW});
    desk_wait(&desk, EVENT_LEASE);
    assert_true(desk.last.lease_held);
    redis_do(redis, "DEL " Q "alive:%s", old);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_RENEW});
    desk_wait(&desk, EVENT_LEASE);
    assert_false(desk.last.lease_held || desk.last.failed);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_REJOIN});
    desk_wait(&desk, EVENT_CONNECTED);
    assert_string_not_equal(queue_worker_name(desk.queue), old);
    redis_expect(redis, "1", "EXISTS " Q "alive:%s", queue_worker_name(desk.queue));
    desk_close(&desk);
}

/* --- What can happen to the server -------------------------------------------------------------------------------- */

static void kill_and_restart_keeps_what_was_read(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    server_with_aof(redis);
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text one");
    redis_do(redis, "XADD " STREAM " * text two");
    desk_read(&desk, 1, 0);
    queue_execute(desk.queue, &(struct action)DESK_READ(1, 0));
    redis_server_kill(&redis->server);
    desk_wait(&desk, EVENT_DISCONNECTED);
    assert_int_equal(desk.events[desk.seen - 2].kind, EVENT_ENTRIES); /* each action is answered before it */
    redis_server_again(&redis->server);
    desk_wait(&desk, EVENT_CONNECTED);
    size_t had = desk.held.count; /* the second entry may or may not have come before the kill */
    size_t own = desk_read_own(&desk, 10), more = desk_read(&desk, 10, 0);
    assert_true(had >= 1 && had <= 2);
    assert_int_equal(own + more, 2);
    desk_settle(&desk, OUTCOME_DONE);
    redis_reconnect(redis);
    expect_empty(redis);
    desk_close(&desk);
}

static void requests_come_back_before_the_disconnect(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(&desk, 1, 0);
    kill(redis->server.pid, SIGSTOP); /* the settle is sent and never answered */
    desk.held.first->outcome = OUTCOME_ERROR;
    desk_execute(&desk, ACTION_SETTLE, false);
    redis_server_kill(&redis->server);
    desk_wait(&desk, EVENT_SETTLED);
    assert_true(desk.last.failed);
    assert_int_equal(desk.held.count, 1);
    desk_wait(&desk, EVENT_DISCONNECTED);
    desk_execute(&desk, ACTION_SETTLE, false); /* while down: answered, too */
    desk_wait(&desk, EVENT_SETTLED);
    assert_true(desk.last.failed);
    assert_int_equal(desk.held.count, 1);
    desk_close(&desk);
}

static void requests_that_are_out_stay_with_the_worker(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(&desk, 1, 0);
    struct request *request = desk.held.first;
    request->outcome = OUTCOME_ERROR;
    desk_execute(&desk, ACTION_SETTLE, false);
    desk_close(&desk);
    assert_string_equal(request->message, ""); /* the asan build sees that it lives and that nothing else is left */
    request_free(request);
}

static void a_silent_server_is_given_up(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.command_timeout_ms = 100, .connect_timeout_ms = 200});
    desk_wait(&desk, EVENT_CONNECTED);
    kill(redis->server.pid, SIGSTOP);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_RENEW});
    desk_wait(&desk, EVENT_DISCONNECTED);
    kill(redis->server.pid, SIGCONT);
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

static void a_lost_connection_is_opened_again(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    char name[QUEUE_WORKER_MAX];
    snprintf(name, sizeof name, "%s", queue_worker_name(desk.queue));
    for (int i = 0; i < 3; i++) {
        redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
        desk_wait(&desk, EVENT_DISCONNECTED);
        desk_wait(&desk, EVENT_CONNECTED);
    }
    assert_string_equal(queue_worker_name(desk.queue), name);
    assert_int_equal(queue_stats(desk.queue).reconnects, 3);
    desk_close(&desk);
}

static void flushed_scripts_are_loaded_again(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    redis_do(redis, "SCRIPT FLUSH");
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    assert_int_equal(queue_stats(desk.queue).scripts_reloaded, 1);
    desk_close(&desk);
}

static void a_destroyed_group_is_made_again_at_zero(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    redis_do(redis, "XGROUP DESTROY " STREAM " sluice");
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_AGAIN); /* nothing is pending any more; the entry comes anew */
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_LATE);
    request_free(request_list_pop(&desk.held));
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    expect_empty(redis);
    assert_int_equal(queue_stats(desk.queue).groups_created, CLASS_COUNT + 1);
    desk_close(&desk);
}

static void blocked_read_with(struct redis_fixture *redis, const char *command)
{
    struct desk desk;
    desk_connect(&desk, &redis->address);
    queue_execute(desk.queue, &(struct action)DESK_READ(4, 600000));
    wait_until_blocked(&desk, redis);
    redis_do(redis, "%s", command);
    desk_wait(&desk, EVENT_ENTRIES);
    assert_true(desk.last.failed);
    wait_until(&desk, redis, "1", "EVAL return#redis.call('XINFO','GROUPS',KEYS[1]) 1 " STREAM);
    redis_do(redis, "XADD " STREAM " * text hello");
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_close(&desk);
}

static void a_blocked_read_survives_flushall(void **state)
{
    blocked_read_with(*state, "FLUSHALL");
}

static void a_blocked_read_survives_the_stream_deleted(void **state)
{
    blocked_read_with(*state, "DEL " STREAM);
}

static void a_blocked_read_survives_the_group_destroyed(void **state)
{
    blocked_read_with(*state, "XGROUP DESTROY " STREAM " sluice");
}

static void a_read_only_server_is_waited_out(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    redis_do(redis, "REPLICAOF 127.0.0.1 1");
    desk_settle(&desk, OUTCOME_DONE);
    assert_true(desk.last.failed);
    desk_wait(&desk, EVENT_DISCONNECTED);
    redis_do(redis, "REPLICAOF NO ONE");
    desk_wait(&desk, EVENT_CONNECTED);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    expect_empty(redis);
    desk_close(&desk);
}

static void a_busy_server_is_waited_out(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    struct client *other;
    struct err err;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "CONFIG SET busy-reply-threshold 10");
    assert_int_equal(client_open(&redis->address, 20000, &other, &err), STATUS_OK);
    assert_int_equal(client_send(other, 3, (const char *const[]){"EVAL", "while true do end", "0"}, NULL, 0, &err),
                     STATUS_OK);
    const struct resp_value *value;
    for (int i = 0; i < 20000 && strncmp(redis_do(redis, "PING"), "!BUSY", 5) != 0; i++) {
    }
    redis_expect(redis, "!BUSY...", "PING");
    queue_execute(desk.queue, &(struct action){.kind = ACTION_RENEW});
    desk_wait(&desk, EVENT_DISCONNECTED);
    redis_do(redis, "SCRIPT KILL");
    desk_wait(&desk, EVENT_CONNECTED);
    assert_int_not_equal(client_receive(other, &value, &err), STATUS_OK);
    client_close(other);
    desk_close(&desk);
}

static void a_full_redis_still_lets_requests_end(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    redis_do(redis, "CONFIG SET maxmemory 1");
    queue_execute(desk.queue, &(struct action){.kind = ACTION_RENEW});
    desk_wait(&desk, EVENT_LEASE);
    assert_true(desk.last.lease_held);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_PROMOTE});
    desk_wait(&desk, EVENT_PROMOTED);
    assert_true(desk.last.failed);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    assert_int_equal(queue_stats(desk.queue).reconnects, 0);
    desk_close(&desk);
}

/* HSET is refused in a full Redis, the script is not: it finds nothing staged, and the next settle brings the reply. */
static void a_full_redis_takes_no_staged_reply(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    desk.padding = 5000;
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(&desk, 1, 0);
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_AGAIN);
    desk_settle(&desk, OUTCOME_DONE);
    assert_int_equal(desk.held.first->verdict, VERDICT_DONE);
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:a embedding");
    assert_int_equal(queue_stats(desk.queue).reconnects, 0);
    desk_close(&desk);
}

/* XGROUP CREATE is refused in a full Redis even when the group is there; yet what waits must be able to end. */
static void a_full_redis_can_be_joined(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "XGROUP CREATE " STREAM " sluice 0 MKSTREAM");
    redis_do(redis, "XADD " STREAM " * id a text hello");
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_connect(&desk, &redis->address);
    queue_execute(desk.queue, &(struct action){.kind = ACTION_REJOIN});
    desk_wait(&desk, EVENT_CONNECTED);
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    desk_close(&desk);
}

static void a_full_redis_without_a_group_is_waited_out(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "XADD " STREAM " * id a text hello");
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_connect(&desk, &redis->address);
    assert_int_equal(desk_read(&desk, 1, 0), 0);
    assert_true(desk.last.failed);
    redis_do(redis, "CONFIG SET maxmemory 0");
    assert_int_equal(desk_read(&desk, 1, 0), 0); /* this one makes the group */
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_close(&desk);
}

/* --- Entries that cannot be read ---------------------------------------------------------------------------------- */

static void an_oversized_entry_is_answered_unread(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.max_reply_bytes = 20000});
    desk_wait(&desk, EVENT_CONNECTED);
    for (int i = 1; i <= 5; i++) {
        redis_do(redis, "XADD " STREAM " %d-1 text %0*d", i, i == 3 ? 50000 : 10, 7);
    }
    queue_execute(desk.queue, &(struct action)DESK_READ(10, 0));
    desk_wait(&desk, EVENT_DISCONNECTED);
    struct entry_id after = {0};
    bool more = true;
    while (more) {
        desk_wait(&desk, EVENT_CONNECTED);
        for (bool up = true; more && up;) {
            queue_execute(desk.queue, &(struct action){.kind = ACTION_READ_OWN,
                                                       .read = {.class = CLASS_NORMAL, .count = 10, .after = after}});
            desk_wait(&desk, EVENT_ENTRIES);
            up = !desk.last.failed;
            after = up ? desk.last.entries.last : after;
            more = !up || desk.last.entries.more;
        }
    }
    assert_int_equal(desk.held.count, 5);
    size_t too_large = 0;
    for (struct request *request = desk.held.first; request; request = request->next) {
        too_large += request->code == CODE_TOO_LARGE;
        assert_int_equal(request->code == CODE_TOO_LARGE, request->entry.ms == 3);
    }
    assert_int_equal(too_large, 1);
    desk_close(&desk);
}

/* Reads the own list from its beginning, over as many connections as it takes. */
static void read_own_to_the_end(struct desk *desk)
{
    struct entry_id after = {0};
    for (bool more = true; more;) {
        queue_execute(desk->queue, &(struct action){.kind = ACTION_READ_OWN,
                                                    .read = {.class = CLASS_NORMAL, .count = 10, .after = after}});
        desk_wait(desk, EVENT_ENTRIES);
        more = desk->last.failed || desk->last.entries.more;
        after = desk->last.failed ? (struct entry_id){0} : desk->last.entries.last;
        if (desk->last.failed) {
            desk_wait(desk, EVENT_CONNECTED);
        }
    }
}

static void an_oversized_entry_that_went_away_leaves_no_suspicion(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.max_reply_bytes = 20000});
    desk_wait(&desk, EVENT_CONNECTED);
    redis_do(redis, "XADD " STREAM " 1-1 text %050000d", 7);
    queue_execute(desk.queue, &(struct action)DESK_READ(10, 0));
    desk_wait(&desk, EVENT_CONNECTED);
    for (int count = 64; count > 0; count /= 2) { /* down to 1, and then it is known to be too large */
        queue_execute(desk.queue,
                      &(struct action){.kind = ACTION_READ_OWN, .read = {.class = CLASS_NORMAL, .count = 100}});
        desk_wait(&desk, EVENT_ENTRIES);
        assert_true(desk.last.failed);
        desk_wait(&desk, EVENT_CONNECTED);
    }
    redis_do(redis, "XACK " STREAM " sluice 1-1");
    redis_do(redis, "XDEL " STREAM " 1-1");
    read_own_to_the_end(&desk);
    for (int i = 2; i <= 5; i++) {
        redis_do(redis, "XADD " STREAM " %d-1 text %06000d", i, 7);
    }
    queue_execute(desk.queue, &(struct action)DESK_READ(10, 0));
    desk_wait(&desk, EVENT_CONNECTED);
    read_own_to_the_end(&desk);
    assert_true(desk.held.count >= 4);
    for (const struct request *request = desk.held.first; request; request = request->next) {
        assert_int_equal(request->code, CODE_NONE);
    }
    desk_close(&desk);
}

static void an_own_vanished_entry_is_handed_over(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " 5-1 text hello");
    redis_do(redis, "XADD " STREAM " 6-1 text hello");
    desk_read(&desk, 10, 0);
    redis_do(redis, "XDEL " STREAM " 6-1");
    assert_int_equal(desk_read_own(&desk, 10), 2);
    assert_int_equal(desk.last.entries.last.ms, 6);
    assert_int_equal(desk.held.last->entry.ms, 6);
    desk_drop(&desk, 3); /* both as they came first, and 5-1 once more */
    desk_settle(&desk, OUTCOME_GONE);
    redis_expect(redis, "internal", "HGET " Q "reply:6-1 code");
    redis_expect(redis, "[1 5-1 5-1...", "XPENDING " STREAM " sluice");
    desk_close(&desk);
}

/* --- Queues that refuse ------------------------------------------------------------------------------------------- */

static void expect_fatal(struct redis_fixture *redis, const struct queue_options *options, enum status status,
                         const char *words)
{
    struct desk desk;
    desk_open(&desk, &redis->address, options);
    desk_wait_fatal(&desk);
    assert_int_equal(desk.fatal.status, status);
    if (!strstr(desk.fatal.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", desk.fatal.message, words);
    }
    desk_close(&desk);
}

static void another_model_is_refused(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    expect_fatal(redis, &(struct queue_options){.model_id = "other-id"}, STATUS_BAD_INPUT, "belongs to the model m-id");
    desk_close(&desk);
}

static void a_pinned_precision_is_kept_to(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "HSET " Q "meta precision bf16");
    expect_fatal(redis, NULL, STATUS_BAD_INPUT, "wants precision bf16");
    desk_open(&desk, &redis->address, &(struct queue_options){.precision = "bf16"});
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

static void a_higher_protocol_is_refused(void **state)
{
    struct redis_fixture *redis = *state;
    redis_do(redis, "HSET " Q "meta protocol 2");
    expect_fatal(redis, NULL, STATUS_UNSUPPORTED, "protocol 2");
}

static void an_evicting_redis_is_refused_unless_allowed(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "CONFIG SET maxmemory-policy allkeys-lru");
    expect_fatal(redis, NULL, STATUS_BAD_INPUT, "maxmemory-policy is allkeys-lru");
    desk_open(&desk, &redis->address, &(struct queue_options){.allow_eviction = true});
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

static void a_password_is_needed_and_taken(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    struct err err;
    redis_do(redis, "CONFIG SET requirepass secret-word");
    expect_fatal(redis, NULL, STATUS_DENIED, "NOAUTH");
    assert_int_equal(address_set_login(&redis->address, NULL, "wrong", &err), STATUS_OK);
    expect_fatal(redis, NULL, STATUS_DENIED, "WRONGPASS");
    assert_int_equal(address_set_login(&redis->address, NULL, "secret-word", &err), STATUS_OK);
    desk_connect(&desk, &redis->address);
    desk_close(&desk);
}

/* The refusal comes where the answer to AUTH is expected. */
static void a_crowded_server_is_waited_out(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    struct err err;
    redis_do(redis, "CONFIG SET requirepass secret-word");
    assert_int_equal(address_set_login(&redis->address, NULL, "secret-word", &err), STATUS_OK);
    redis_do(redis, "CONFIG SET maxclients 1");
    desk_open(&desk, &redis->address, NULL);
    for (int i = 0; i < 2000 && strstr(redis_do(redis, "INFO stats"), "rejected_connections:0"); i++) {
        struct timeval pause = {.tv_usec = 1000};
        event_base_loopexit(desk.base, &pause);
        event_base_dispatch(desk.base);
    }
    assert_null(strstr(redis->text, "rejected_connections:0"));
    redis_do(redis, "CONFIG SET maxclients 100");
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

static void a_database_is_selected(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis->address.db = 3;
    desk_connect(&desk, &redis->address);
    redis_expect(redis, "OK", "SELECT 3");
    redis_expect(redis, "1", "EXISTS " Q "meta");
    desk_close(&desk);
}

static void a_missing_right_stops_the_worker(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(&desk, 1, 0);
    redis_do(redis, "ACL SETUSER default -xack");
    desk.held.first->outcome = OUTCOME_ERROR;
    desk_execute(&desk, ACTION_SETTLE, false);
    desk_wait_fatal(&desk);
    assert_int_equal(desk.fatal.status, STATUS_DENIED);
    assert_int_equal(desk.held.count, 1);
    redis_expect(redis, "[1 ...", "XPENDING " STREAM " sluice");
    desk_close(&desk);
}

static void no_server_is_retried_until_there_is_one(void **state)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_server_kill(&redis->server);
    desk_open(&desk, &redis->address, NULL);
    for (int i = 0; i < 20; i++) {
        event_base_loop(desk.base, EVLOOP_ONCE);
    }
    assert_int_equal(desk.count, 0);
    redis_server_again(&redis->server);
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test_setup_teardown(entry_to_reply, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(blocked_read_returns_with_the_entry, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(unblock_ends_a_blocked_read, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(many_settles_are_one_event, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(large_replies_are_staged, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_late_staged_reply_leaves_nothing, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_second_settle_is_late, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(errors_and_dead_letters, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(deferred_requests_come_back_as_the_next_attempt, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(charge_counts_only_for_the_owner, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(reclaim_judges_only_when_told, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(vanished_entries_are_handed_over_and_settled, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(released_entries_go_to_the_next_worker, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_lost_lease_is_told_and_a_new_name_taken, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(kill_and_restart_keeps_what_was_read, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(requests_come_back_before_the_disconnect, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(requests_that_are_out_stay_with_the_worker, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_silent_server_is_given_up, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_lost_connection_is_opened_again, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(flushed_scripts_are_loaded_again, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_destroyed_group_is_made_again_at_zero, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_blocked_read_survives_flushall, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_blocked_read_survives_the_stream_deleted, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_blocked_read_survives_the_group_destroyed, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_read_only_server_is_waited_out, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_busy_server_is_waited_out, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_full_redis_still_lets_requests_end, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_full_redis_takes_no_staged_reply, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_full_redis_can_be_joined, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_full_redis_without_a_group_is_waited_out, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(an_oversized_entry_is_answered_unread, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(an_oversized_entry_that_went_away_leaves_no_suspicion, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(an_own_vanished_entry_is_handed_over, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(another_model_is_refused, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_pinned_precision_is_kept_to, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_higher_protocol_is_refused, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(an_evicting_redis_is_refused_unless_allowed, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_password_is_needed_and_taken, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_crowded_server_is_waited_out, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_database_is_selected, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(a_missing_right_stops_the_worker, redis_setup, redis_teardown),
    cmocka_unit_test_setup_teardown(no_server_is_retried_until_there_is_one, redis_setup, redis_teardown),
};

TEST_MAIN(cases)

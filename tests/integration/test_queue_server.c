/* Faults of the server under a queue: killed, silent, emptied, read-only, busy, full. */
#include "queue_desk.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

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

TEST_WITH(kill_and_restart_keeps_what_was_read, redis_setup, redis_teardown)
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
    assert_int_equal(desk.events[desk.seen - 2].kind, EVENT_ENTRIES); /* each action is answered first */
    redis_server_again(&redis->server);
    desk_wait(&desk, EVENT_CONNECTED);
    size_t had = desk.held.count; /* the second entry may or may not have come before the kill */
    desk_drop(&desk, had);
    size_t own = desk_read_own(&desk, 10), more = desk_read(&desk, 10, 0);
    assert_true(had >= 1 && had <= 2);
    assert_int_equal(own + more, 2);
    desk_settle(&desk, OUTCOME_DONE);
    redis_reconnect(redis);
    desk_expect_empty(redis, STREAM);
    desk_close(&desk);
}

DESK_TEST(requests_come_back_before_the_disconnect)
{
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(desk, 1, 0);
    kill(redis->server.pid, SIGSTOP); /* the settle is sent but never answered */
    desk->held.first->lifetime.outcome = OUTCOME_ERROR;
    desk_execute(desk, ACTION_SETTLE, false);
    redis_server_kill(&redis->server);
    desk_wait(desk, EVENT_SETTLED);
    assert_true(desk->last.failed);
    assert_int_equal(desk->held.count, 1);
    desk_wait(desk, EVENT_DISCONNECTED);
    desk_execute(desk, ACTION_SETTLE, false); /* answered, too, while Redis is down */
    desk_wait(desk, EVENT_SETTLED);
    assert_true(desk->last.failed);
    assert_int_equal(desk->held.count, 1);
}

TEST_WITH(requests_that_are_out_stay_with_the_worker, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_connect(&desk, &redis->address);
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(&desk, 1, 0);
    struct request *request = desk.held.first;
    request->lifetime.outcome = OUTCOME_ERROR;
    desk_execute(&desk, ACTION_SETTLE, false);
    desk_close(&desk);
    assert_string_equal(request->retry.message,
                        ""); /* the asan build checks that the request is alive and nothing leaks */
    request_free(request);
}

TEST_WITH(a_silent_server_is_given_up, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    desk_open(&desk, &redis->address, &(struct queue_options){.command_timeout_ms = 500});
    desk_wait(&desk, EVENT_CONNECTED);
    kill(redis->server.pid, SIGSTOP);
    desk_do(&desk, ACTION_RENEW, EVENT_DISCONNECTED);
    kill(redis->server.pid, SIGCONT);
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

DESK_TEST(a_lost_connection_is_opened_again)
{
    char name[QUEUE_WORKER_MAX];
    snprintf(name, sizeof name, "%s", queue_worker_name(desk->queue));
    for (int i = 0; i < 3; i++) {
        redis_do(redis, "CLIENT KILL TYPE normal SKIPME yes");
        desk_wait(desk, EVENT_DISCONNECTED);
        desk_wait(desk, EVENT_CONNECTED);
    }
    assert_string_equal(queue_worker_name(desk->queue), name);
}

DESK_TEST(flushed_scripts_are_loaded_again)
{
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    redis_do(redis, "SCRIPT FLUSH");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
}

DESK_TEST(a_destroyed_group_is_made_again_at_zero)
{
    redis_do(redis, "XADD " STREAM " * id a text hello");
    assert_int_equal(desk_read(desk, 1, 0), 1);
    redis_do(redis, "XGROUP DESTROY " STREAM " sluice");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict,
                     VERDICT_AGAIN); /* nothing is pending any more; the entry is read anew */
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_LATE);
    request_free(request_list_pop(&desk->held));
    assert_int_equal(desk_read(desk, 1, 0), 1);
    desk_settle(desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    desk_expect_empty(redis, STREAM);
}

static void blocked_read_with(struct redis_fixture *redis, const char *command)
{
    struct desk desk;
    desk_connect(&desk, &redis->address);
    queue_execute(desk.queue, &(struct action)DESK_READ(4, 600000));
    desk_wait_blocked(&desk, redis);
    redis_do(redis, "%s", command);
    desk_wait(&desk, EVENT_ENTRIES);
    assert_true(desk.last.failed);
    desk_wait_redis(&desk, redis, "1", "EVAL return#redis.call('XINFO','GROUPS',KEYS[1]) 1 " STREAM);
    redis_do(redis, "XADD " STREAM " * text hello");
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_close(&desk);
}

TEST_WITH(a_blocked_read_survives_flushall, redis_setup, redis_teardown)
{
    blocked_read_with(*state, "FLUSHALL");
}

TEST_WITH(a_blocked_read_survives_the_stream_deleted, redis_setup, redis_teardown)
{
    blocked_read_with(*state, "DEL " STREAM);
}

TEST_WITH(a_blocked_read_survives_the_group_destroyed, redis_setup, redis_teardown)
{
    blocked_read_with(*state, "XGROUP DESTROY " STREAM " sluice");
}

DESK_TEST(a_read_only_server_is_waited_out)
{
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    redis_do(redis, "REPLICAOF 127.0.0.1 1");
    desk_settle(desk, OUTCOME_DONE);
    assert_true(desk->last.failed);
    desk_wait(desk, EVENT_DISCONNECTED);
    redis_do(redis, "REPLICAOF NO ONE");
    desk_wait(desk, EVENT_CONNECTED);
    desk_settle(desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    desk_expect_empty(redis, STREAM);
}

DESK_TEST(a_busy_server_is_waited_out)
{
    struct client *other;
    struct err err;
    redis_do(redis, "CONFIG SET busy-reply-threshold 10");
    assert_int_equal(client_open(&redis->address, 20000, &other, &err), STATUS_OK);
    assert_int_equal(client_send(other, 3, (const char *const[]){"EVAL", "while true do end", "0"}, NULL, 0, &err),
                     STATUS_OK);
    const struct resp_value *value;
    for (int i = 0; i < 20000 && strncmp(redis_do(redis, "PING"), "!BUSY", 5) != 0; i++) {}
    redis_expect(redis, "!BUSY...", "PING");
    desk_do(desk, ACTION_RENEW, EVENT_DISCONNECTED);
    redis_do(redis, "SCRIPT KILL");
    desk_wait(desk, EVENT_CONNECTED);
    assert_int_not_equal(client_receive(other, &value, &err), STATUS_OK);
    client_close(other);
}

DESK_TEST(a_full_redis_still_lets_requests_end)
{
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_do(desk, ACTION_RENEW, EVENT_LEASE);
    assert_true(desk->last.lease_held);
    desk_do(desk, ACTION_PROMOTE, EVENT_PROMOTED);
    assert_false(desk->last.failed);
    desk_settle(desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    assert_false(desk_lost(desk));
}

/* A full Redis refuses the transaction that stages a reply, but not the script: the next settle carries the reply. */
DESK_TEST(a_full_redis_takes_no_staged_reply)
{
    desk->padding = 5000;
    redis_do(redis, "XADD " STREAM " * id a text hello");
    desk_read(desk, 1, 0);
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_AGAIN);
    desk_settle(desk, OUTCOME_DONE);
    assert_int_equal(desk->held.first->lifetime.verdict, VERDICT_DONE);
    redis_expect(redis, "5008", "HSTRLEN " Q "reply:a embedding");
    assert_false(desk_lost(desk));
}

/* A full Redis refuses XGROUP CREATE even when the group exists; yet waiting requests must be able to end. */
TEST_WITH(a_full_redis_can_be_joined, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "XGROUP CREATE " STREAM " sluice 0 MKSTREAM");
    redis_do(redis, "XADD " STREAM " * id a text hello");
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_connect(&desk, &redis->address);
    desk_do(&desk, ACTION_REJOIN, EVENT_CONNECTED);
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    desk_settle(&desk, OUTCOME_DONE);
    redis_expect(redis, "done", "HGET " Q "reply:a status");
    desk_close(&desk);
}

/* Without the group nothing would be read, and waiting requests would stay for ever. */
TEST_WITH(a_full_redis_gets_its_group, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "XADD " STREAM " 1-1 text hello");
    redis_do(redis, "CONFIG SET maxmemory 1");
    desk_connect(&desk, &redis->address);
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    redis_do(redis, "XGROUP DESTROY " STREAM " sluice");
    desk_close(&desk);
    desk_connect(&desk, &redis->address);
    assert_int_equal(desk_read(&desk, 1, 0), 1);
    assert_false(desk_lost(&desk));
    desk_close(&desk);
}

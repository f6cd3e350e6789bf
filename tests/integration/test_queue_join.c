/* Servers and queues that a worker may not or cannot join yet. */
#include "queue_desk.h"

#include <event2/event.h>
#include <string.h>

#include "harness.h"

static void expect_fatal(struct redis_fixture *redis, const struct queue_options *options, enum status status,
                         const char *words)
{
    struct desk desk;
    desk_open(&desk, &redis->address, options);
    desk_wait_fatal(&desk);
    assert_int_equal(desk.fatal.status, status);
    if (!strstr(desk.fatal.message, words)) { fail_msg("\"%s\" does not say \"%s\"", desk.fatal.message, words); }
    desk_close(&desk);
}

DESK_TEST(another_model_is_refused)
{
    expect_fatal(redis, &(struct queue_options){.model_id = "other-id"}, STATUS_BAD_INPUT, "belongs to the model m-id");
}

TEST_WITH(a_pinned_precision_is_kept_to, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "HSET " Q "meta precision bf16");
    expect_fatal(redis, NULL, STATUS_BAD_INPUT, "pinned to precision bf16, this worker computes in f32");
    desk_open(&desk, &redis->address, &(struct queue_options){.precision = "bf16"});
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

TEST_WITH(a_higher_protocol_is_refused, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    redis_do(redis, "HSET " Q "meta protocol 2");
    expect_fatal(redis, NULL, STATUS_UNSUPPORTED, "protocol 2");
}

TEST_WITH(an_evicting_redis_is_refused_unless_allowed, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_do(redis, "CONFIG SET maxmemory-policy allkeys-lru");
    expect_fatal(redis, NULL, STATUS_BAD_INPUT, "maxmemory-policy is allkeys-lru");
    desk_open(&desk, &redis->address, &(struct queue_options){.allow_eviction = true});
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

TEST_WITH(a_password_is_needed_and_taken, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    struct err err;
    redis_do(redis, "CONFIG SET requirepass secret-word");
    expect_fatal(redis, NULL, STATUS_DENIED, "NOAUTH");
    assert_int_equal(address_set_password(&redis->address.password, "wrong", &err), STATUS_OK);
    expect_fatal(redis, NULL, STATUS_DENIED, "WRONGPASS");
    assert_int_equal(address_set_password(&redis->address.password, "secret-word", &err), STATUS_OK);
    desk_connect(&desk, &redis->address);
    desk_close(&desk);
}

/* The refusal arrives in place of the answer to AUTH. */
TEST_WITH(a_crowded_server_is_waited_out, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    struct err err;
    redis_do(redis, "CONFIG SET requirepass secret-word");
    assert_int_equal(address_set_password(&redis->address.password, "secret-word", &err), STATUS_OK);
    redis_do(redis, "CONFIG SET maxclients 1");
    desk_open(&desk, &redis->address, NULL);
    for (int i = 0; i < 2000 && strstr(redis_do(redis, "INFO stats"), "rejected_connections:0"); i++) {
        desk_pause(&desk);
    }
    assert_null(strstr(redis->text, "rejected_connections:0"));
    redis_do(redis, "CONFIG SET maxclients 100");
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

TEST_WITH(a_database_is_selected, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis->address.db = 3;
    desk_connect(&desk, &redis->address);
    redis_expect(redis, "OK", "SELECT 3");
    redis_expect(redis, "1", "EXISTS " Q "meta");
    desk_close(&desk);
}

DESK_TEST(a_missing_right_stops_the_worker)
{
    redis_do(redis, "XADD " STREAM " * text hello");
    desk_read(desk, 1, 0);
    redis_do(redis, "ACL SETUSER default -xack");
    desk->held.first->lifetime.outcome = OUTCOME_ERROR;
    desk_execute(desk, ACTION_SETTLE, false);
    desk_wait_fatal(desk);
    assert_int_equal(desk->fatal.status, STATUS_DENIED);
    assert_int_equal(desk->held.count, 1);
    redis_expect(redis, "[1 ...", "XPENDING " STREAM " sluice");
}

TEST_WITH(no_server_is_retried_until_there_is_one, redis_setup, redis_teardown)
{
    struct redis_fixture *redis = *state;
    struct desk desk;
    redis_server_kill(&redis->server);
    desk_open(&desk, &redis->address, NULL);
    for (int i = 0; i < 20; i++) { event_base_loop(desk.base, EVLOOP_ONCE); }
    assert_int_equal(desk.count, 0);
    redis_server_again(&redis->server);
    desk_wait(&desk, EVENT_CONNECTED);
    desk_close(&desk);
}

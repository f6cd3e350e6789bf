/* A producer against a real server; the test plays the workers. */
#include "redis/producer.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "harness.h"
#include "redis_fixture.h"

#define Q "sluice:{q}:"
#define STREAM Q "requests"

enum { MOST = 8, WAIT_MS = 20000, LONG_MS = 600000 };

/* What became of a request. */
struct end {
    struct office *office;
    struct producer_request *request;
    bool over;
    enum status status;
    char text[64], id[160], name[64]; /* text: `embedding`, `code` or the message */
    struct end *cancels;              /* cancelled by this one's end */
};

/* A producer with the requests that a case sends. */
struct office {
    struct redis_fixture *redis;
    struct event_base *base;
    struct producer *producer;
    struct end ends[MOST];
    unsigned count, denied;
};

static void on_denied(void *context, const struct err *err)
{
    assert_int_equal(err->status, STATUS_DENIED);
    ((struct office *)context)->denied++;
}

static void open_office(struct office *office, struct redis_fixture *redis)
{
    struct err err;
    *office = (struct office){.redis = redis, .base = event_base_new()};
    struct producer_options options = {.base = office->base,
                                       .address = &redis->address,
                                       .queue = "q",
                                       .name = "http-t",
                                       .away_ms = 4000,
                                       .forgotten_ms = 500,
                                       .context = office,
                                       .on_denied = on_denied};
    assert_int_equal(producer_open(&options, &office->producer, &err), STATUS_OK);
}

static void close_office(struct office *office)
{
    producer_close(office->producer);
    event_base_free(office->base);
}

static void note_added(void *context, const char *name)
{
    struct end *end = context;
    snprintf(end->name, sizeof end->name, "%s", name);
}

static void note_end(void *context, const struct producer_reply *reply)
{
    struct end *end = context;
    assert_false(end->over);
    end->over = true;
    end->status = reply->status;
    const struct resp_value *value = reply->fields ? resp_field(reply->fields, "embedding") : NULL;
    if (reply->fields && !value) { value = resp_field(reply->fields, "code"); }
    snprintf(end->text, sizeof end->text, "%s", value ? value->bytes : reply->message ? reply->message : "");
    if (end->cancels) { producer_cancel(end->cancels->request); }
}

static struct end *send_text(struct office *office, const char *id, uint64_t timeout_ms)
{
    struct err err;
    struct end *end = &office->ends[office->count++];
    const struct entry_field text = {"text", 4, "hello", 5};
    end->office = office;
    snprintf(end->id, sizeof end->id, "http-t-%u", office->count);
    if (id) { snprintf(end->id, sizeof end->id, "%s", id); }
    struct producer_order order = {.class = CLASS_NORMAL,
                                   .id = end->id,
                                   .kept = id,
                                   .fields = &text,
                                   .count = 1,
                                   .timeout_ms = timeout_ms,
                                   .context = end,
                                   .added = note_added,
                                   .ended = note_end};
    assert_int_equal(producer_send(office->producer, &order, &end->request, &err), STATUS_OK);
    return end;
}

static void on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
}

/* Runs the loop until `is_so`, for at most WAIT_MS. */
static void wait_until(struct office *office, bool (*is_so)(const void *), const void *what)
{
    struct event *tick = event_new(office->base, -1, EV_PERSIST, on_tick, NULL);
    struct timeval every = {.tv_usec = 5000};
    uint64_t ends_ms = clock_now_ms() + WAIT_MS;
    event_add(tick, &every);
    while (!is_so(what)) {
        assert_true(clock_now_ms() < ends_ms);
        event_base_loop(office->base, EVLOOP_ONCE);
    }
    event_free(tick);
}

/* A command and the answer that is waited for. */
struct question {
    struct redis_fixture *redis;
    const char *command, *expected;
};

static bool is_answered(const void *context)
{
    const struct question *question = context;
    return strcmp(redis_do(question->redis, "%s", question->command), question->expected) == 0;
}

static void wait_redis(struct office *office, const char *expected, const char *command)
{
    wait_until(office, is_answered, &(struct question){office->redis, command, expected});
}

static bool is_over(const void *end)
{
    return ((const struct end *)end)->over;
}

static bool is_added(const void *end)
{
    return ((const struct end *)end)->name[0] != '\0';
}

static bool is_connected(const void *producer)
{
    return producer_facts(producer)->connected;
}

static bool is_away(const void *producer)
{
    return !is_connected(producer);
}

static bool was_sent_again(const void *producer)
{
    return producer_facts(producer)->again > 0;
}

static void reply_done(struct redis_fixture *redis, const struct end *end, const char *embedding, bool notifies)
{
    redis_do(redis, "HSET " Q "reply:%s status done embedding %s info {\"entry\":\"%s\"}", end->id, embedding,
             end->name);
    if (notifies) { redis_do(redis, "XADD " Q "results:http-t * id %s status done entry %s", end->id, end->name); }
}

TEST_ON(struct redis_fixture, redis, a_reply_is_read_once_and_unlinked, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, end);
    char expected[256];
    snprintf(expected, sizeof expected, "[[%s [id http-t-1 notify stream:http-t expires_in 600000 text hello]]]",
             end->name);
    redis_expect(redis, expected, "XRANGE " STREAM " - +");
    reply_done(redis, end, "v", true);
    wait_until(&office, is_over, end);
    assert_string_equal(end->text, "v");
    wait_redis(&office, "0", "EXISTS " Q "reply:http-t-1");
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, a_reply_is_found_without_its_notice, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, end);
    reply_done(redis, end, "v", false);
    wait_until(&office, is_over, end);
    assert_string_equal(end->text, "v");
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, what_redis_forgot_is_sent_again, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *first = send_text(&office, NULL, LONG_MS), *second = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, second);
    redis_server_kill(&redis->server); /* without an append-only file */
    wait_until(&office, is_away, office.producer);
    struct end *third = send_text(&office, NULL, LONG_MS); /* waits */
    redis_server_again(&redis->server);
    redis_reconnect(redis);
    redis_do(redis, "HSET " Q "reply:%s status done embedding early info {}", first->id);
    wait_until(&office, is_added, third);
    wait_until(&office, was_sent_again, office.producer);
    wait_until(&office, is_over, first);
    assert_string_equal(first->text, "early");
    reply_done(redis, second, "two", true);
    reply_done(redis, third, "three", true);
    wait_until(&office, is_over, second);
    wait_until(&office, is_over, third);
    assert_string_equal(second->text, "two");
    assert_string_equal(third->text, "three");
    close_office(&office);
}

/* No connection is lost, and no error is reported. */
TEST_ON(struct redis_fixture, redis, what_redis_forgot_in_silence_is_sent_again, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, end);
    redis_do(redis, "FLUSHALL");
    redis_do(redis, "HSET " Q "meta wait_ms_normal 0 depth_normal 0 published_at %llu",
             (unsigned long long)clock_unix_ms());
    wait_until(&office, was_sent_again, office.producer);
    wait_redis(&office, "1", "XLEN " STREAM);
    reply_done(redis, end, "v", true);
    wait_until(&office, is_over, end);
    assert_string_equal(end->text, "v");
    close_office(&office);
}

static bool was_refused(const void *office)
{
    return strstr(redis_do(((const struct office *)office)->redis, "INFO errorstats"), "errorstat_OOM");
}

TEST_ON(struct redis_fixture, redis, an_error_that_passes_is_waited_for, redis_setup, redis_teardown)
{
    struct office office;
    redis_do(redis, "CONFIG SET maxmemory 1");
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, was_refused, &office);
    redis_do(redis, "CONFIG SET maxmemory 0");
    wait_until(&office, is_added, end);
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, requests_end_when_redis_stays_away, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    wait_until(&office, is_connected, office.producer);
    redis_server_kill(&redis->server);
    struct end *first = send_text(&office, NULL, LONG_MS), *second = send_text(&office, NULL, LONG_MS);
    first->cancels = second; /* as a call of two parts does */
    wait_until(&office, is_over, first);
    assert_int_equal(first->status, STATUS_UNAVAILABLE);
    assert_false(second->over);
    assert_int_equal(producer_facts(office.producer)->open, 0);
    close_office(&office);
    redis_server_again(&redis->server);
    redis_reconnect(redis);
}

TEST_ON(struct redis_fixture, redis, a_cancelled_request_is_cancelled_in_the_queue, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *known = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, known);
    struct end *unknown = send_text(&office, NULL, LONG_MS), *later = send_text(&office, NULL, LONG_MS);
    producer_cancel(known->request);
    producer_cancel(unknown->request); /* its name is not known yet */
    wait_until(&office, is_added, later);
    wait_redis(&office, "2", "XLEN " Q "control");
    redis_do(redis, "HSET " Q "reply:http-t-1 status cancelled info {}");
    redis_do(redis, "XADD " Q "results:http-t * id http-t-1 status cancelled entry %s", known->name);
    reply_done(redis, later, "v", true);
    wait_until(&office, is_over, later);
    assert_false(known->over || unknown->over);
    wait_redis(&office, "0", "EXISTS " Q "reply:http-t-1");
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, a_request_without_a_reply_times_out, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, 1);
    wait_until(&office, is_over, end);
    assert_int_equal(end->status, STATUS_TIMEOUT);
    wait_until(&office, is_connected, office.producer);
    struct end *next = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, next);
    wait_redis(&office, "1", "XLEN " Q "control");
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, an_earlier_result_answers_a_given_id, redis_setup, redis_teardown)
{
    struct office office;
    redis_do(redis, "HSET " Q "reply:mine status done embedding v info {\"entry\":\"1-1\"}");
    redis_do(redis, "HSET " Q "reply:other status error code expired info {\"entry\":\"1-2\"}");
    open_office(&office, redis);
    struct end *mine = send_text(&office, "mine", LONG_MS), *other = send_text(&office, "other", LONG_MS);
    struct end *twin = send_text(&office, "other", LONG_MS);
    wait_until(&office, is_over, mine);
    assert_string_equal(mine->text, "v");
    wait_until(&office, is_added, twin);
    assert_false(other->over);
    reply_done(redis, other, "w", true);
    wait_until(&office, is_over, other);
    wait_until(&office, is_over, twin);
    assert_string_equal(twin->text, "w");
    close_office(&office);
    redis_expect(redis, "2", "EXISTS " Q "reply:mine " Q "reply:other");
    redis_expect(redis, "2", "XLEN " STREAM);
}

TEST_ON(struct redis_fixture, redis, an_error_of_redis_ends_the_request, redis_setup, redis_teardown)
{
    struct office office;
    redis_do(redis, "SET " STREAM " x");
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_over, end);
    assert_int_equal(end->status, STATUS_INTERNAL);
    assert_non_null(strstr(end->text, "WRONGTYPE"));
    redis_do(redis, "DEL " STREAM);
    redis_do(redis, "CONFIG SET maxmemory 1");
    struct end *full = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_over, full);
    assert_int_equal(full->status, STATUS_UNAVAILABLE);
    assert_true(is_connected(office.producer));
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, facts_come_from_meta, redis_setup, redis_teardown)
{
    struct office office;
    redis_do(redis, "HSET " Q "meta model m max_inputs 8 wait_ms_high 3 depth_low 7 published_at %llu",
             (unsigned long long)clock_unix_ms());
    open_office(&office, redis);
    struct end *end = send_text(&office, NULL, LONG_MS);
    wait_until(&office, is_added, end);
    const struct producer_facts *facts = producer_facts(office.producer);
    assert_string_equal(facts->model, "m");
    assert_int_equal(facts->max_inputs, 8);
    assert_int_equal(facts->wait_ms[CLASS_HIGH], 3);
    assert_int_equal(facts->waiting[CLASS_LOW], 7);
    assert_true(facts->served);
    close_office(&office);
}

TEST_ON(struct redis_fixture, redis, an_error_of_a_younger_twin_ends_both, redis_setup, redis_teardown)
{
    struct office office;
    open_office(&office, redis);
    struct end *older = send_text(&office, "twin", LONG_MS), *younger = send_text(&office, "twin", LONG_MS);
    wait_until(&office, is_added, younger);
    redis_do(redis, "HSET " Q "reply:twin status error code expired info {\"entry\":\"%s\"}", younger->name);
    redis_do(redis, "XADD " Q "results:http-t * id twin status error entry %s", younger->name);
    wait_until(&office, is_over, older);
    wait_until(&office, is_over, younger);
    assert_string_equal(older->text, "expired");
    close_office(&office);
}

static bool was_denied(const void *office)
{
    return ((const struct office *)office)->denied > 1;
}

TEST_ON(struct redis_fixture, redis, a_refused_login_is_told, redis_setup, redis_teardown)
{
    struct office office;
    redis_do(redis, "ACL SETUSER default >secret");
    open_office(&office, redis);
    struct err err;
    assert_int_equal(address_set_password(&redis->address.password, "wrong", &err), STATUS_OK);
    wait_until(&office, was_denied, &office);
    close_office(&office);
}

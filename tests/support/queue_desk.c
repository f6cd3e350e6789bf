/* The desk is single-threaded: the test waits inside the event loop. */
#include "queue_desk.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

static const struct request_rules rules = {
    .model_name = "m",
    .model_id = "m-id",
    .encoding = ENCODING_F32,
    .dim = 2,
    .max_tokens = 16,
    .max_text_bytes = 1 << 20,
    .default_ttl_s = 3600,
    .max_ttl_s = 7 * 86400,
    .error_ttl_s = 3600,
    .default_max_attempts = 4,
    .truncate = true,
};

static void on_event(void *context, const struct event *event)
{
    struct desk *desk = context;
    assert_true(desk->count < DESK_EVENTS);
    desk->events[desk->count++] = *event;
    if (event->kind == EVENT_ENTRIES) {
        for (size_t i = 0; i < event->entries.count; i++) {
            struct request *request = request_parse(&rules, &event->entries.entries[i], 1);
            assert_non_null(request);
            request_list_push(&desk->held, request);
        }
    } else if (event->kind == EVENT_SETTLED || event->kind == EVENT_RUN_RECORDED || event->kind == EVENT_RELEASED) {
        struct request_list back = event->requests;
        request_list_join(&desk->held, &back);
    }
    event_base_loopbreak(desk->base);
}

static void on_fatal(void *context, const struct err *err)
{
    struct desk *desk = context;
    desk->fatal = *err;
    event_base_loopbreak(desk->base);
}

bool desk_lost(const struct desk *desk)
{
    bool lost = false;
    for (size_t i = 0; i < desk->count; i++) { lost = lost || desk->events[i].kind == EVENT_DISCONNECTED; }
    return lost;
}

void desk_drop(struct desk *desk, uint32_t count)
{
    for (; count > 0; count--) {
        struct request *request = request_list_pop(&desk->held);
        assert_non_null(request);
        request_free(request);
    }
}

static void on_late(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    *(bool *)context = true;
}

/* Runs the loop until the kind has come (or the queue has stopped); false when that takes too long. */
static bool run(struct desk *desk, int kind)
{
    bool late = false;
    struct event *timer = evtimer_new(desk->base, on_late, &late);
    struct timeval limit = {.tv_sec = 20};
    evtimer_add(timer, &limit);
    bool found = false;
    while (!found && !late && !desk->fatal.status) {
        while (!found && desk->seen < desk->count) {
            desk->last = desk->events[desk->seen++];
            found = (int)desk->last.kind == kind;
        }
        if (!found) { event_base_loop(desk->base, EVLOOP_ONCE); }
    }
    event_free(timer);
    return !late;
}

void desk_wait(struct desk *desk, enum event_kind kind)
{
    bool in_time = run(desk, (int)kind);
    if (!in_time || desk->fatal.status) { fail_msg("event %d did not come: %s", (int)kind, desk->fatal.message); }
}

void desk_wait_fatal(struct desk *desk)
{
    assert_true(run(desk, -1));
}

void desk_pause(struct desk *desk)
{
    struct timeval pause = {.tv_usec = 1000};
    event_base_loopexit(desk->base, &pause);
    event_base_dispatch(desk->base);
}

void desk_wait_redis(struct desk *desk, struct redis_fixture *redis, const char *expected, const char *command)
{
    for (int i = 0; i < 2000 && strcmp(redis_do(redis, "%s", command), expected) != 0; i++) { desk_pause(desk); }
    redis_expect(redis, expected, "%s", command);
}

void desk_wait_blocked(struct desk *desk, struct redis_fixture *redis)
{
    for (int i = 0; i < 2000 && !strstr(redis_do(redis, "INFO clients"), "blocked_clients:1"); i++) {
        desk_pause(desk);
    }
    assert_non_null(strstr(redis->text, "blocked_clients:1"));
}

void desk_open(struct desk *desk, const struct address *address, const struct queue_options *wanted)
{
    struct err err = {0};
    struct queue_options options = wanted ? *wanted : (struct queue_options){0};
    *desk = (struct desk){.base = event_base_new()};
    assert_non_null(desk->base);
    options.base = desk->base;
    options.address = address;
    options.name = "q";
    options.model_name = options.model_name ? options.model_name : "m";
    options.model_id = options.model_id ? options.model_id : "m-id";
    options.revision = "r";
    options.lease_ms = options.lease_ms ? options.lease_ms : 60000;
    options.backoff_ms = 10;
    options.backoff_cap_ms = 50;
    options.seed = 7;
    options.context = desk;
    options.on_event = on_event;
    options.on_fatal = on_fatal;
    if (queue_open(&options, &desk->queue, &err)) { fail_msg("%s", err.message); }
    queue_start(desk->queue);
}

void desk_close(struct desk *desk)
{
    queue_close(desk->queue);
    desk_drop(desk, desk->held.count);
    event_base_free(desk->base);
}

void desk_connect(struct desk *desk, const struct address *address)
{
    desk_open(desk, address, NULL);
    desk_wait(desk, EVENT_CONNECTED);
}

size_t desk_take(struct desk *desk, struct action *action)
{
    queue_execute(desk->queue, action);
    desk_wait(desk, EVENT_ENTRIES);
    return desk->last.entries.count;
}

size_t desk_read(struct desk *desk, uint32_t count, uint32_t block_ms)
{
    struct action action = DESK_READ(count, block_ms);
    return desk_take(desk, &action);
}

size_t desk_read_own(struct desk *desk, uint32_t count)
{
    return desk_take(desk, &(struct action){.kind = ACTION_READ_OWN, .read = {.class = CLASS_NORMAL, .count = count}});
}

size_t desk_reclaim(struct desk *desk, bool judge)
{
    return desk_take(
        desk, &(struct action){.kind = ACTION_RECLAIM, .read = {.class = CLASS_NORMAL, .count = 100, .judge = judge}});
}

void desk_execute(struct desk *desk, enum action_kind kind, bool last)
{
    struct action action = {.kind = kind, .last = last, .requests = desk->held};
    desk->held = (struct request_list){0};
    queue_execute(desk->queue, &action);
}

void desk_settle(struct desk *desk, enum outcome outcome)
{
    for (struct request *request = desk->held.first; request; request = request->next) {
        request->lifetime.outcome = outcome;
        request->retry.next_attempt = request->retry.attempt + 1;
        request->retry.code =
            outcome == OUTCOME_GONE ? CODE_NONE : request->retry.code; /* without fields it was not a valid request */
        request->lifetime.started_ns = 1000;
        request->lifetime.computed_ns = 2000;
        if (outcome == OUTCOME_DONE) {
            buffer_free(&request->output.reply);
            buffer_append(&request->output.reply, "\0\r\nabcde", 8);
            for (size_t i = 0; i < desk->padding; i++) { buffer_append(&request->output.reply, "x", 1); }
        } else {
            request_fail(request, CODE_INTERNAL, "broken");
        }
    }
    desk_execute(desk, ACTION_SETTLE, false);
    desk_wait(desk, EVENT_SETTLED);
}

void desk_do(struct desk *desk, enum action_kind action, enum event_kind event)
{
    queue_execute(desk->queue, &(struct action){.kind = action});
    desk_wait(desk, event);
}

void desk_expect_empty(struct redis_fixture *redis, const char *stream)
{
    redis_expect(redis, "[0 ~ ~ ~]", "XPENDING %s sluice", stream);
    redis_expect(redis, "0", "XLEN %s", stream);
}

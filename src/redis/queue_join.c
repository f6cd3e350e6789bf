#include "redis/queue_join.h"

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "redis/queue_cancel.h"
#include "redis/queue_link.h"
#include "redis/queue_look.h"
#include "redis/queue_read.h"
#include "redis/rights.h"

enum { REDIS_MAJOR_LEAST = 7 };

/* --- Up ----------------------------------------------------------------------------------------------------------- */

/* Logs why the server closed our connection, once we are back. */
static void log_loss(const struct queue *queue, enum loss loss)
{
    static const char *const reasons[] = {
        [LOSS_READER] =
            "it sent more at once than its client-output-buffer-limit (normal) or maxmemory-clients allows, "
            "or somebody killed the connection",
        [LOSS_WRITER] = "it got or sent more than its proto-max-bulk-len, client-query-buffer-limit, "
                        "client-output-buffer-limit (normal) or maxmemory-clients allows, or somebody killed the "
                        "connection"};
    if (loss == LOSS_READER || loss == LOSS_WRITER) {
        log_warn("redis_closed_connection", log_str("queue", queue->options.name),
                 log_str("connection", loss == LOSS_READER ? "reader" : "writer"), log_str("reason", reasons[loss]));
    }
}

static void come_up(struct queue *queue, uint64_t redis_ms)
{
    char text[ADDRESS_TEXT];
    log_info("redis_connected",
             log_str("address", queue->link->endpoint ? endpoint_print(queue->link->endpoint, text)
                                                      : address_print(queue->options.address, text)),
             log_str("queue", queue->options.name), log_str("worker", queue->worker));
    enum loss loss = queue_link_up(queue);
    if (queue->joining->restarted) { loss = LOSS_RESTART; }
    queue->joining->restarted = false;
    log_loss(queue, loss);
    queue->elected = false;
    queue_control_start(queue);
    queue_look_start(queue);
    queue_emit(queue, &(struct event){.kind = EVENT_CONNECTED, .connected = {.redis_ms = redis_ms, .loss = loss}});
}

static void on_time(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err err;
    if (!reply) { return; /* queue_down has handled the lost connection */ }
    if (resp_check(reply, &err)) {
        queue_down(queue, &err);
    } else if (resp_time_ms(reply) == 0) {
        err_set(&err, STATUS_INTERNAL, "TIME answered in an unknown shape");
        queue_down(queue, &err);
    } else {
        queue->writer_ready = true;
        if (queue->reader_ready) { come_up(queue, resp_time_ms(reply)); }
    }
}

/* Asks for the time, as the last step, so that it is still right when the worker gets it. */
static void ask_time(struct queue *queue)
{
    queue_command(queue, 1, (const char *const[]){"TIME"}, on_time, queue);
}

/* --- The groups --------------------------------------------------------------------------------------------------- */

/* Disables the class until the key is gone. */
static void on_wrong_type(struct group *group)
{
    struct queue *queue = group->queue;
    if (!queue->unusable[group->class]) {
        queue->unusable[group->class] = true;
        queue->joining->group_tries = 0;
        log_error("stream_unusable", log_str("queue", queue->options.name),
                  log_str("key", queue->streams[group->class]),
                  log_str("reason", "it is not a stream: remove or rename that key"));
    }
    if (!evtimer_pending(queue->joining->group_retry, NULL)) {
        queue_wake_in(queue->joining->group_retry, queue_link_backoff_ms(queue, queue->joining->group_tries++));
    }
}

static void on_group(void *context, const struct resp_value *reply)
{
    struct group *group = context;
    struct queue *queue = group->queue;
    queue->joining->groups_asked--;
    if (!reply) { return; }
    if (resp_is_error(reply, "WRONGTYPE")) {
        on_wrong_type(group);
        return;
    }
    if (queue_refused(queue, reply, "lua/group")) { return; }
    if (reply->type == RESP_INTEGER && reply->integer == 1) {
        log_info("group_created", log_str("key", queue->streams[group->class]));
    }
    if (queue->unusable[group->class]) {
        queue->unusable[group->class] = false;
        log_info("stream_usable_again", log_str("key", queue->streams[group->class]));
    }
}

static void create_groups(struct queue *queue)
{
    if (queue->joining->groups_asked > 0) { return; /* several commands got NOGROUP at once */ }
    queue_read_distrust(queue);
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct group *group = &queue->joining->groups[c];
        struct command command = {0};
        script_begin(&queue->scripts, SCRIPT_GROUP, 1, &command);
        queue_add_stream(queue, &command, group->class);
        queue->joining->groups_asked++;
        queue_call(queue, &command, on_group, group);
    }
}

static void on_group_retry(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    if (queue->state == QUEUE_UP) { create_groups(queue); }
}

/* --- Error replies ------------------------------------------------------------------------------------------------ */

/* Logs the same refusal at most once a second: a refused command is tried again ten times a second. */
static void log_refused(struct queue *queue, const struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - queue->joining->refused_ns < NS_PER_S && strcmp(err->message, queue->joining->refused.message) == 0) {
        return;
    }
    queue->joining->refused = *err;
    queue->joining->refused_ns = now_ns;
    log_warn("redis_refused", log_str("queue", queue->options.name), log_str("reason", err->message));
}

/* True for an error that passes without a new connection: the command is tried again. */
static bool is_passing(const struct resp_value *reply)
{
    return resp_is_error(reply, "OOM") || resp_is_error(reply, "TRYAGAIN") || resp_is_error(reply, "ASK");
}

void queue_join_refused(struct queue *queue, const struct resp_value *reply, const struct err *err)
{
    bool wrong_type = resp_is_error(reply, "WRONGTYPE"); /* of a stream (lua/group says more) or another key */
    if (wrong_type) { log_refused(queue, err); }
    find_master_follow(queue->link->finder, reply);
    if (resp_is_error(reply, "NOGROUP") || resp_is_error(reply, "UNBLOCKED") || wrong_type) {
        create_groups(queue);
    } else if (err->status == STATUS_DENIED) {
        queue_stop(queue, err);
    } else if (err->status == STATUS_UNAVAILABLE && !is_passing(reply)) {
        queue_down(queue, err);
    } else {
        log_refused(queue, err);
    }
}

/* --- The name and the model --------------------------------------------------------------------------------------- */

static void send_join(struct queue *queue);

static void make_name(struct queue *queue)
{
    queue_worker_name_make(queue->worker);
    queue_put_random(queue->token, 16);
    queue->order[0] = '\0'; /* it was for the previous name */
}

static void refuse_queue(struct queue *queue, long long code, const char *text)
{
    struct err err;
    if (code == -1) {
        err_set(&err, STATUS_UNSUPPORTED, "queue %s speaks protocol %s, this program speaks %d: use a newer one",
                queue->options.name, text, QUEUE_PROTOCOL);
    } else if (code == -4) {
        err_set(&err, STATUS_DENIED,
                "Redis' user may not %s: acl/worker.acl has what a worker needs, "
                "`sluice doctor` names all that is missing",
                text);
    } else if (code == -3) {
        (void)queue_refuse_precision(queue->options.name, text, queue->options.precision, &err);
    } else {
        err_set(&err, STATUS_BAD_INPUT,
                "queue %s belongs to the model %s, this worker's is %s (%s): one queue has one model, choose another "
                "--queue",
                queue->options.name, text, queue->options.model_id, queue->options.model_name);
    }
    queue_stop(queue, &err);
}

static void on_joined(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (!reply) { return; /* queue_down has handled the lost connection */ }
    if (resp_check(reply, &bad)) {
        find_master_follow(queue->link->finder, reply);
        queue_down(queue, &bad);
    } else if (reply->type != RESP_ARRAY || reply->count != 2 || reply->items[0].type != RESP_INTEGER ||
               reply->items[1].type != RESP_STRING) {
        err_set(&bad, STATUS_INTERNAL, "lua/join answered in an unknown shape");
        queue_down(queue, &bad);
    } else if (reply->items[0].integer == 1) {
        create_groups(queue);
        ask_time(queue); /* its answer follows theirs */
    } else if (reply->items[0].integer == 0) {
        make_name(queue);
        send_join(queue);
    } else {
        refuse_queue(queue, reply->items[0].integer, reply->items[1].bytes);
    }
}

static void send_join(struct queue *queue)
{
    struct command command = {0};
    size_t count;
    const struct right *rights = rights_table(&count);
    script_begin(&queue->scripts, SCRIPT_JOIN, 2, &command);
    queue_add_key(queue, &command, "meta", "");
    queue_add_key(queue, &command, "alive:", queue->worker);
    command_number(&command, QUEUE_PROTOCOL);
    command_text(&command, queue->options.model_id);
    command_text(&command, queue->token);
    command_number(&command, queue->options.lease_ms);
    command_text(&command, queue->options.precision);
    command_text(&command, queue->options.model_name);
    command_text(&command, queue->options.model_facts ? queue->options.model_facts : "{}");
    for (size_t i = 0; i < count; i++) {
        if (rights[i].roles & ROLE_WORKER) { command_text(&command, rights[i].command); }
    }
    queue_call(queue, &command, on_joined, queue);
}

void queue_rejoin(struct queue *queue)
{
    make_name(queue);
    if (queue->state == QUEUE_UP) { send_join(queue); } /* else the next connect takes the new name */
}

/* --- The server --------------------------------------------------------------------------------------------------- */

static void on_scripts(void *context, const struct err *err)
{
    if (err) {
        queue_down(context, err);
    } else {
        send_join(context);
    }
}

/* Checks that a queue can run on this server. */
static enum status check_server(struct queue *queue, const char *info, struct err *err)
{
    char value[64];
    if (resp_info_field(info, "loading", value, sizeof value) && strcmp(value, "0") != 0) {
        return err_set(err, STATUS_UNAVAILABLE, "Redis is loading its data");
    }
    bool has_mode = resp_info_field(info, "redis_mode", value, sizeof value) ||
                    resp_info_field(info, "server_mode", value, sizeof value); /* Valkey's name for it */
    if (has_mode && strcmp(value, "sentinel") == 0) {
        return err_set(err, STATUS_BAD_INPUT, "this is a Sentinel: its address is redis+sentinel://HOST:PORT/NAME");
    }
    if (resp_info_field(info, "role", value, sizeof value) && strcmp(value, "master") != 0) {
        resp_info_field(info, "master_host", value, sizeof value);
        return err_set(err, STATUS_UNAVAILABLE, "Redis is a replica of %s: requests are served where it is master",
                       value);
    }
    if (!resp_info_field(info, "redis_version", value, sizeof value) || atoi(value) < REDIS_MAJOR_LEAST) {
        return err_set(err, STATUS_UNSUPPORTED, "Redis %d.0 or later is needed", REDIS_MAJOR_LEAST);
    }
    /* A worker that was connected before continues: without it the waiting requests are in more danger. The pulse
     * warns. */
    if (!queue->options.allow_eviction && queue->link->ups == 0 &&
        resp_info_field(info, "maxmemory_policy", value, sizeof value) && strcmp(value, "noeviction") != 0) {
        return err_set(err, STATUS_BAD_INPUT,
                       "maxmemory-policy is %s: Redis could drop requests and replies when it is full; "
                       "set it to noeviction, or allow it (allow_eviction)",
                       value);
    }
    if (resp_info_field(info, "run_id", value, sizeof value) && strcmp(value, queue->joining->run_id) != 0) {
        if (queue->joining->run_id[0]) {
            log_warn("redis_restarted", log_str("queue", queue->options.name), log_str("run_id", value));
            queue->joining->restarted = true;
        }
        snprintf(queue->joining->run_id, sizeof queue->joining->run_id, "%.47s", value);
    }
    return STATUS_OK;
}

static void on_info(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (!reply) { return; }
    enum status status = resp_check(reply, &bad);
    if (!status && reply->type != RESP_STRING) {
        status = err_set(&bad, STATUS_INTERNAL, "INFO answered in an unknown shape");
    }
    if (!status) { status = check_server(queue, reply->bytes, &bad); }
    if (!status) { status = scripts_load(&queue->scripts, &bad); }
    if (status == STATUS_UNSUPPORTED || status == STATUS_BAD_INPUT) {
        queue_stop(queue, &bad);
    } else if (status) {
        queue_down(queue, &bad);
    }
}

void queue_join_writer_up(void *context)
{
    struct queue *queue = context;
    queue->scripts.connection = queue->writer;
    queue->scripts.context = queue;
    queue->scripts.on_loaded = on_scripts;
    queue_command(queue, 1, (const char *const[]){"INFO"}, on_info, queue);
}

static void on_client_id(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    struct err bad;
    if (reply && resp_check(reply, &bad)) {
        err_prefix(&bad, "CLIENT ID");
        queue_down(queue, &bad);
    } else if (reply) {
        queue->joining->reader_id = reply->type == RESP_INTEGER ? reply->integer : 0;
        queue->reader_ready = true;
        if (queue->writer_ready) { /* the writer came up first, and its time is old by now */
            ask_time(queue);
        }
    }
}

void queue_join_reader_up(void *context)
{
    struct queue *queue = context;
    queue_command_on(queue, queue->reader, 2, (const char *const[]){"CLIENT", "ID"}, on_client_id, queue);
}

static void on_unblocked(void *context, const struct resp_value *reply)
{
    if (reply) { queue_refused(context, reply, "CLIENT UNBLOCK"); }
}

void queue_unblock(struct queue *queue)
{
    char id[24];
    snprintf(id, sizeof id, "%lld", queue->joining->reader_id);
    if (queue->state == QUEUE_UP) {
        queue_command(queue, 3, (const char *const[]){"CLIENT", "UNBLOCK", id}, on_unblocked, queue);
    }
}

enum status queue_join_open(struct queue *queue, struct err *err)
{
    queue->joining->group_retry = evtimer_new(queue->options.base, on_group_retry, queue);
    if (!queue->joining->group_retry) { return err_set(err, STATUS_NO_MEMORY, "no memory for the queue"); }
    for (int c = 0; c < CLASS_COUNT; c++) {
        queue->joining->groups[c] = (struct group){.queue = queue, .class = (enum request_class)c};
    }
    make_name(queue);
    return STATUS_OK;
}

void queue_join_close(struct queue *queue)
{
    if (queue->joining->group_retry) { event_free(queue->joining->group_retry); }
}

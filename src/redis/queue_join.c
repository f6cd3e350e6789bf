/* Joining: from two connections to EVENT_CONNECTED. Check the server, load the scripts, pin the model and take our name
 * (lua/join), make missing groups (lua/group), ask for the time. */
#include <ctype.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/log.h"
#include "redis/queue_internal.h"
#include "redis/rights.h"

enum { REDIS_MAJOR_LEAST = 7, HOST_MAX = 64 };

/* Sends a command; if that fails, the queue goes down. */
static void ask(struct queue *queue, struct connection *connection, size_t count, const char *const *words,
                connection_reply_fn *reply)
{
    struct err err;
    if (connection_command(connection, count, words, NULL, queue->options.command_timeout_ms, reply, queue, &err)) {
        queue_down(queue, &err);
    }
}

/* Likewise a script call. False: it was not sent. */
static bool call(struct queue *queue, struct command *command, connection_reply_fn *reply, void *context)
{
    struct err err;
    bool sent = queue_call(queue, command, reply, context);
    if (!sent) {
        err_set(&err, STATUS_NO_MEMORY, "no memory for a Redis command");
        queue_down(queue, &err);
    }
    return sent;
}

static void put_hex(char *to, size_t bytes)
{
    unsigned char random[16] = {0};
    if (getrandom(random, bytes, 0) != (ssize_t)bytes) {
        memset(random, getpid() & 255, sizeof random); /* then only the process id makes the name unique */
    }
    for (size_t i = 0; i < bytes; i++) {
        snprintf(to + 2 * i, 3, "%02x", random[i]);
    }
}

void queue_make_name(struct queue *queue)
{
    char host[HOST_MAX + 1] = "host", incarnation[9];
    gethostname(host, sizeof host - 1);
    host[HOST_MAX] = '\0';
    for (char *at = host; *at; at++) {
        *at = isalnum((unsigned char)*at) || *at == '.' ? *at : '-';
    }
    put_hex(incarnation, 4);
    put_hex(queue->token, 16);
    snprintf(queue->worker, sizeof queue->worker, "%s-%d-%s", host, (int)getpid(), incarnation);
}

static void up(struct queue *queue, uint64_t redis_ms)
{
    char text[ADDRESS_TEXT];
    log_info("redis_connected",
             log_str("address", queue->endpoint ? endpoint_print(queue->endpoint, text)
                                                : address_print(queue->options.address, text)),
             log_str("queue", queue->options.name), log_str("worker", queue->worker));
    queue->state = QUEUE_UP;
    queue->stats.connected = true;
    queue->tries = 0;
    queue_control_start(queue);
    queue_emit(queue, &(struct event){.kind = EVENT_CONNECTED, .redis_ms = redis_ms});
}

/* --- The groups --------------------------------------------------------------------------------------------------- */

/* Groups begin at 0, because a stream holds exactly the unfinished work.
 *
 * A key of another type in the place of a stream (a producer's SET) disables that class only: reads and claims leave it
 * out, the log names the key, and it is checked again with a backoff that doubles. */

static void try_later(struct queue *queue)
{
    queue_wake_in(queue->group_retry, queue_backoff_ms(queue, queue->group_tries++));
}

/* Disables the class until the key is gone. */
static void on_wrong_type(struct group *group)
{
    struct queue *queue = group->queue;
    if (!group->unusable) {
        group->unusable = true;
        queue->group_tries = 0;
        log_error("stream_unusable", log_str("key", queue->streams[group->class]),
                  log_str("reason", "it is not a stream: remove or rename that key"));
    }
    if (!evtimer_pending(queue->group_retry, NULL)) {
        try_later(queue);
    }
}

static void on_group(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct group *group = context;
    struct queue *queue = group->queue;
    (void)lost;
    queue->groups_asked--;
    if (!reply) {
        return;
    }
    if (resp_is_error(reply, "WRONGTYPE")) {
        on_wrong_type(group);
        return;
    }
    if (queue_refused(queue, reply, "lua/group")) {
        return;
    }
    if (reply->type == RESP_INTEGER && reply->integer == 1) {
        queue->stats.groups_created++;
        log_info("group_created", log_str("key", queue->streams[group->class]));
    }
    if (group->unusable) {
        group->unusable = false;
        log_info("stream_usable_again", log_str("key", queue->streams[group->class]));
    }
}

void queue_create_groups(struct queue *queue)
{
    if (queue->groups_asked > 0) {
        return; /* several commands got NOGROUP at once */
    }
    for (int c = 0; c < CLASS_COUNT; c++) {
        struct group *group = &queue->groups[c];
        struct command command = {0};
        script_begin(&queue->scripts, SCRIPT_GROUP, 1, &command);
        queue_add_stream(queue, &command, group->class);
        if (!call(queue, &command, on_group, group)) {
            return;
        }
        queue->groups_asked++;
    }
}

void queue_on_group_retry(int fd, short what, void *context)
{
    struct queue *queue = context;
    (void)fd;
    (void)what;
    if (queue->state == QUEUE_UP) {
        queue_create_groups(queue);
    }
}

bool queue_serves(const struct queue *queue, enum request_class class)
{
    return !queue->groups[class].unusable;
}

/* --- The clock ---------------------------------------------------------------------------------------------------- */

static void on_time(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct queue *queue = context;
    struct err err;
    (void)lost;
    if (!reply) {
        return; /* queue_down has handled the lost connection */
    }
    if (resp_check(reply, &err)) {
        queue_down(queue, &err);
    } else if (reply->type != RESP_ARRAY || reply->count != 2 || reply->items[0].type != RESP_STRING ||
               reply->items[1].type != RESP_STRING) {
        err_set(&err, STATUS_INTERNAL, "TIME answered in an unknown shape");
        queue_down(queue, &err);
    } else {
        queue->writer_ready = true;
        if (queue->reader_ready) {
            up(queue,
               strtoull(reply->items[0].bytes, NULL, 10) * 1000 + strtoull(reply->items[1].bytes, NULL, 10) / 1000);
        }
    }
}

/* Asked last, so that the time is still right when the worker gets it. */
static void ask_time(struct queue *queue)
{
    if (queue->writer) {
        ask(queue, queue->writer, 1, (const char *const[]){"TIME"}, on_time);
    }
}

/* TIME behind the groups: its answer follows theirs. */
static void finish_joining(struct queue *queue)
{
    queue_create_groups(queue);
    ask_time(queue);
}

/* --- The name and the model --------------------------------------------------------------------------------------- */

static void join(struct queue *queue);

const char *queue_precision(const struct queue *queue)
{
    return queue->options.precision ? queue->options.precision : "f32";
}

enum status queue_refuse_precision(const char *name, const char *pinned, const char *ours, struct err *err)
{
    return err_set(err, STATUS_BAD_INPUT,
                   "queue %s is pinned to precision %s, this worker computes in %s: start it with --precision %s, or "
                   "let others in (`sluice pin --precision any`)",
                   name, pinned, ours, pinned);
}

static void refuse_queue(struct queue *queue, long long code, const char *text)
{
    struct err err;
    if (code == -1) {
        err_set(&err, STATUS_UNSUPPORTED, "queue %s speaks protocol %s, this program speaks %d: use a newer one",
                queue->options.name, text, QUEUE_PROTOCOL);
    } else if (code == -4) {
        err_set(&err, STATUS_DENIED,
                "Redis' user may not %s: config/acl/worker.acl has what a worker needs, "
                "`sluice doctor` names all that is missing",
                text);
    } else if (code == -3) {
        (void)queue_refuse_precision(queue->options.name, text, queue_precision(queue), &err);
    } else {
        err_set(
            &err, STATUS_BAD_INPUT,
            "queue %s belongs to the model %s, this worker's is %s: one queue has one model, choose another --queue",
            queue->options.name, text, queue->options.model_id);
    }
    queue_stop(queue, &err);
}

static void on_joined(void *context, const struct resp_value *reply, const struct err *err)
{
    struct queue *queue = context;
    struct err bad;
    (void)err;
    if (!reply) {
        return; /* queue_down has handled the lost connection */
    }
    if (resp_check(reply, &bad)) {
        queue_follow(queue, reply);
        queue_down(queue, &bad);
    } else if (reply->type != RESP_ARRAY || reply->count != 2 || reply->items[0].type != RESP_INTEGER ||
               reply->items[1].type != RESP_STRING) {
        err_set(&bad, STATUS_INTERNAL, "lua/join answered in an unknown shape");
        queue_down(queue, &bad);
    } else if (reply->items[0].integer == 1) {
        finish_joining(queue);
    } else if (reply->items[0].integer == 0) {
        queue_make_name(queue);
        join(queue);
    } else {
        refuse_queue(queue, reply->items[0].integer, reply->items[1].bytes);
    }
}

static void join(struct queue *queue)
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
    command_text(&command, queue_precision(queue));
    for (size_t i = 0; i < count; i++) {
        if (rights[i].roles & ROLE_WORKER) {
            command_text(&command, rights[i].command);
        }
    }
    call(queue, &command, on_joined, queue);
}

void queue_rejoin(struct queue *queue, struct action *action)
{
    (void)action;
    queue_make_name(queue);
    if (queue->state == QUEUE_UP) {
        join(queue);
    } /* else the next connect takes the new name */
}

/* --- The server --------------------------------------------------------------------------------------------------- */

static void on_scripts(void *context, const struct err *err)
{
    if (err) {
        queue_down(context, err);
    } else {
        join(context);
    }
}

bool queue_info_field(const char *info, const char *name, char *value, size_t size)
{
    size_t length = strlen(name);
    for (const char *line = info; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) == 0 && line[length] == ':') {
            line += length + 1;
            snprintf(value, size, "%.*s", (int)strcspn(line, "\r\n"), line);
            return true;
        }
    }
    return false;
}

/* Whether a queue can live on this server. */
static enum status check_server(struct queue *queue, const char *info, struct err *err)
{
    char value[64];
    if (queue_info_field(info, "loading", value, sizeof value) && strcmp(value, "0") != 0) {
        return err_set(err, STATUS_UNAVAILABLE, "Redis is loading its data");
    }
    if (queue_info_field(info, "redis_mode", value, sizeof value) && strcmp(value, "sentinel") == 0) {
        return err_set(err, STATUS_BAD_INPUT, "this is a Sentinel: its address is redis+sentinel://HOST:PORT/NAME");
    }
    if (queue_info_field(info, "role", value, sizeof value) && strcmp(value, "master") != 0) {
        queue_info_field(info, "master_host", value, sizeof value);
        return err_set(err, STATUS_UNAVAILABLE, "Redis is a replica of %s: requests are served where it is master",
                       value);
    }
    if (!queue_info_field(info, "redis_version", value, sizeof value) || atoi(value) < REDIS_MAJOR_LEAST) {
        return err_set(err, STATUS_UNSUPPORTED, "Redis %d.0 or later is needed", REDIS_MAJOR_LEAST);
    }
    if (!queue->options.allow_eviction && queue_info_field(info, "maxmemory_policy", value, sizeof value) &&
        strcmp(value, "noeviction") != 0) {
        return err_set(err, STATUS_BAD_INPUT,
                       "maxmemory-policy is %s: Redis could drop requests and replies when it is full; "
                       "set it to noeviction, or allow it (allow_eviction)",
                       value);
    }
    if (queue_info_field(info, "run_id", value, sizeof value) && strcmp(value, queue->run_id) != 0) {
        if (queue->run_id[0]) {
            log_warn("redis_restarted", log_str("run_id", value));
        }
        snprintf(queue->run_id, sizeof queue->run_id, "%.47s", value);
    }
    return STATUS_OK;
}

static void on_info(void *context, const struct resp_value *reply, const struct err *err)
{
    struct queue *queue = context;
    struct err bad;
    (void)err;
    if (!reply) {
        return;
    }
    enum status status = resp_check(reply, &bad);
    if (!status && reply->type != RESP_STRING) {
        status = err_set(&bad, STATUS_INTERNAL, "INFO answered in an unknown shape");
    }
    if (!status) {
        status = check_server(queue, reply->bytes, &bad);
    }
    if (!status) {
        status = scripts_load(&queue->scripts, &bad);
    }
    if (status == STATUS_UNSUPPORTED || status == STATUS_BAD_INPUT) {
        queue_stop(queue, &bad);
    } else if (status) {
        queue_down(queue, &bad);
    }
}

void queue_join_writer(struct queue *queue)
{
    queue->scripts.connection = queue->writer;
    queue->scripts.context = queue;
    queue->scripts.on_loaded = on_scripts;
    ask(queue, queue->writer, 1, (const char *const[]){"INFO"}, on_info);
}

static void on_client_id(void *context, const struct resp_value *reply, const struct err *err)
{
    struct queue *queue = context;
    struct err bad;
    (void)err;
    if (reply && resp_check(reply, &bad)) {
        err_prefix(&bad, "CLIENT ID");
        queue_down(queue, &bad);
    } else if (reply) {
        queue->reader_id = reply->type == RESP_INTEGER ? reply->integer : 0;
        queue->reader_ready = true;
        if (queue->writer_ready) { /* it came first, and its time is old by now */
            ask_time(queue);
        }
    }
}

void queue_join_reader(struct queue *queue)
{
    ask(queue, queue->reader, 2, (const char *const[]){"CLIENT", "ID"}, on_client_id);
}

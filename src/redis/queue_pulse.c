#include "redis/queue_pulse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "redis/queue_ends.h"
#include "redis/queue_look.h"
#include "redis/queue_neighbours.h"
#include "redis/queue_read.h"
#include "redis/queue_settle.h"

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static uint64_t info_number(const char *info, const char *name)
{
    char text[32] = "0";
    resp_info_field(info, name, text, sizeof text);
    return strtoull(text, NULL, 10);
}

/* Logs when memory becomes short, and when that ends, 5 % lower. */
static void log_memory(struct queue *queue, double percent)
{
    enum { HYSTERESIS_PERCENT = 5 };
    bool low = percent >= MEMORY_LOW_PERCENT - (queue->pulsing->memory_low ? HYSTERESIS_PERCENT : 0);
    bool critical = percent >= MEMORY_CRITICAL_PERCENT - (queue->pulsing->memory_critical ? HYSTERESIS_PERCENT : 0);
    if (low && (!queue->pulsing->memory_low || critical != queue->pulsing->memory_critical)) {
        log_warn("redis_tight", log_str("queue", queue->options.name),
                 log_str("reason", "Redis' memory is nearly used up (maxmemory)"), log_double("percent", percent),
                 log_str("now", critical ? "one small batch at a time, as memory falls" : "little is held"));
    } else if (!low && queue->pulsing->memory_low) {
        log_info("redis_has_room", log_str("queue", queue->options.name), log_double("percent", percent));
    }
    queue->pulsing->memory_low = low;
    queue->pulsing->memory_critical = critical;
}

/* Somebody may switch the policy while we run. Stopping would leave all waiting requests to eviction, so the work goes
 * on, with a log line at the beginning and then once a minute. */
static bool read_policy(struct queue *queue, const char *info)
{
    char policy[64] = "noeviction";
    uint64_t now_ns = clock_now_ns();
    resp_info_field(info, "maxmemory_policy", policy, sizeof policy);
    bool evicts = strcmp(policy, "noeviction") != 0, was = queue->pulsing->evicts_ns != 0;
    if (evicts && !queue->options.allow_eviction && (!was || now_ns - queue->pulsing->evicts_ns > 60 * NS_PER_S)) {
        log_error("redis_evicts", log_str("queue", queue->options.name), log_str("maxmemory_policy", policy),
                  log_str("reason", "Redis may drop requests and replies when it is full: set noeviction; no worker "
                                    "starts here until then"));
        queue->pulsing->evicts_ns = now_ns;
    } else if (!evicts && was) {
        log_info("redis_evicts_no_more", log_str("queue", queue->options.name));
    }
    if (!evicts) { queue->pulsing->evicts_ns = 0; }
    return evicts;
}

static void read_memory(struct task *task, const char *info)
{
    struct pulse *pulse = &task->pulse;
    pulse->used_bytes = info_number(info, "used_memory");
    pulse->most_bytes = info_number(info, "maxmemory");
    pulse->evicts = read_policy(task->queue, info);
    task->clients = info_number(info, "connected_clients");
    double percent = pulse->most_bytes > 0 ? (double)pulse->used_bytes / (double)pulse->most_bytes * 100 : 0;
    log_memory(task->queue, percent);
    if (percent >= 100) { queue_not_staged(task->queue); }
}

/* Counts one of the two answers, which come in any order: a server that had lost the script answers its call second. */
static void count_answer(struct task *task, bool ok)
{
    task->failed = task->failed || !ok;
    if (task->calls == 1 && task->pulse.workers > task->clients / 2) { /* each has two, so some are gone */
        task->pulse.workers = (uint32_t)(task->clients / 2);
    }
    if (task->calls == 1 && !task->failed) {
        memcpy(task->queue->order, task->queue->pulsing->coming, sizeof task->queue->order);
    }
    queue_answered(task, &(struct request_list){0});
}

static void on_memory(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    bool ok = reply && !queue_refused(task->queue, reply, "INFO memory") && reply->type == RESP_STRING;
    if (ok) { read_memory(task, reply->bytes); }
    count_answer(task, ok);
}

/* --- The script --------------------------------------------------------------------------------------------------- */

static enum event_kind command_of(const struct queue *queue, const struct resp_value *text)
{
    static const char *const names[] = {
        [EVENT_QUIET] = "quiet", [EVENT_RESUME] = "resume", [EVENT_DRAIN] = "drain", [EVENT_STOP] = "stop"};
    for (int i = EVENT_QUIET; i <= EVENT_STOP; i++) {
        if (resp_equals(text, names[i])) { return (enum event_kind)i; }
    }
    if (text->type == RESP_STRING && text->length > 0) {
        log_warn("unknown_command", log_str("queue", queue->options.name),
                 log_bytes("command", text->bytes, text->length));
    }
    return EVENT_TICK;
}

/* Logged once, not each second. */
static void note_skipped(struct queue *queue, uint64_t skipped)
{
    if (skipped > 0 && queue->pulsing->skipped == 0) {
        log_warn("wrong_type", log_str("queue", queue->options.name),
                 log_str("reason", "of meta, workers, later, dead or the streams, a key has a wrong type"),
                 log_int("keys", (int64_t)skipped));
    }
    queue->pulsing->skipped = skipped;
}

/* With several precisions the last digits of a vector depend on its worker. The housekeeper logs this when it begins,
 * and whenever the precisions change. */
static void note_precisions(struct queue *queue, const char *precisions)
{
    if (precisions[0] && strcmp(precisions, queue->pulsing->precisions) != 0) {
        log_warn("precisions_differ", log_str("queue", queue->options.name), log_str("precisions", precisions),
                 log_str("reason", "workers of this queue compute in different precisions: `sluice stats` shows how "
                                   "many in which, `sluice pin --precision` lets only one in"));
    }
    snprintf(queue->pulsing->precisions, sizeof queue->pulsing->precisions, "%s", precisions);
}

/* The items of the answer of lua/pulse. */
enum {
    PULSE_TIME,
    PULSE_PAUSED,
    PULSE_COMMAND,
    PULSE_DEPTH, /* of each class */
    PULSE_CAP = PULSE_DEPTH + CLASS_COUNT,
    PULSE_SKIPPED = PULSE_CAP + CLASS_COUNT,
    PULSE_HOUSEKEEPER,
    PULSE_FOUND, /* dead workers whose entries did not fit at the housekeeper */
    PULSE_WORKERS,
    PULSE_PRECISIONS,
    PULSE_NEIGHBOURS,
    PULSE_ANSWER,
};

static bool read_pulse(struct queue *queue, const struct resp_value *reply, struct pulse *pulse)
{
    if (reply->type != RESP_ARRAY || reply->count != PULSE_ANSWER) { return false; }
    for (size_t i = 0; i < PULSE_ANSWER; i++) {
        bool text = i == PULSE_COMMAND || i == PULSE_FOUND || i >= PULSE_PRECISIONS;
        if (reply->items[i].type != (text ? RESP_STRING : RESP_INTEGER)) { return false; }
    }
    pulse->redis_ms = queue_number(&reply->items[PULSE_TIME]);
    pulse->paused = reply->items[PULSE_PAUSED].integer != 0;
    pulse->command = command_of(queue, &reply->items[PULSE_COMMAND]);
    snprintf(queue->pulsing->coming, sizeof queue->pulsing->coming, "%s", reply->items[PULSE_COMMAND].bytes);
    for (int c = 0; c < CLASS_COUNT; c++) {
        pulse->depth[c] = queue_number(&reply->items[PULSE_DEPTH + c]);
        pulse->cap[c] = queue_number(&reply->items[PULSE_CAP + c]);
    }
    note_skipped(queue, queue_number(&reply->items[PULSE_SKIPPED]));
    pulse->housekeeper = queue->elected = reply->items[PULSE_HOUSEKEEPER].integer != 0;
    const struct resp_value *found = &reply->items[PULSE_FOUND];
    queue_check_neighbours(queue, reply->items[PULSE_NEIGHBOURS].bytes);
    queue_take_found(queue, found->bytes);
    pulse->waiting = found->length > 0 || queue_gone(queue, &(unsigned){0}) != NULL;
    uint64_t workers = queue_number(&reply->items[PULSE_WORKERS]);
    pulse->workers = workers < UINT32_MAX ? (uint32_t)workers : UINT32_MAX;
    note_precisions(queue, reply->items[PULSE_PRECISIONS].bytes);
    return true;
}

static void on_pulse(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    bool ok = reply && !queue_refused(task->queue, reply, "lua/pulse") && read_pulse(task->queue, reply, &task->pulse);
    if (ok) {
        queue_ends_counted(task->queue);
        if (task->queue->options.look) { queue_look_now(task->queue, task->pulse.redis_ms); }
    }
    count_answer(task, ok);
}

static void add_heartbeat(const struct queue *queue, struct command *command, const struct heartbeat *heartbeat)
{
    const struct worker_stats *stats = &heartbeat->stats;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {
        {"held", stats->held},           {"waiting", stats->waiting},
        {"computing", stats->computing}, {"done", stats->done},
        {"errors", stats->errors},       {"dead", stats->dead_letters},
        {"devices", stats->devices},     {"devices_lost", stats->devices_lost},
        {"batches", stats->batches},     {"rows", stats->rows},
        {"tokens", stats->tokens},       {"computed_tokens", stats->computed_tokens},
    };
    char rate[32];
    command_pair(command, "state", heartbeat->state ? heartbeat->state : "running");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        command_count(command, counts[i].name, counts[i].value);
    }
    if (heartbeat->memory_percent > 0) {
        snprintf(rate, sizeof rate, "memory:%u%%", heartbeat->memory_percent);
        command_pair(command, "reason", rate);
    }
    snprintf(rate, sizeof rate, "%.3f", heartbeat->rows_per_s);
    command_pair(command, "rows_per_s", rate);
    command_count(command, "max_inputs", heartbeat->max_inputs);
    command_count(command, "max_text_bytes", heartbeat->max_text_bytes);
    command_pair(command, "precision", queue->options.precision);
    if (queue->options.products > 0) {
        snprintf(rate, sizeof rate, "%u/%u", queue->options.int8_products, queue->options.products);
        command_pair(command, "int8_products", rate);
    }
    command_pair(command, "version", sluice_version);
    command_count(command, "counted", queue->ends->counted);
    command_count(command, "lease", queue->options.lease_ms);
    if (queue->neighbours->pid_space[0]) { command_pair(command, "pid_space", queue->neighbours->pid_space); }
}

static void write_pulse(struct queue *queue, const struct heartbeat *heartbeat, struct command *command)
{
    static const char *const ranks[] = {
        [RANK_NONE] = "-1", [RANK_PUBLISHES] = "0", [RANK_WORKS] = "1", [RANK_JUDGES] = "2"};
    script_begin(&queue->scripts, SCRIPT_PULSE, 7 + CLASS_COUNT, command);
    queue_add_keys(queue, command, "meta", "workers", "paused", "later", "dead", NULL);
    queue_add_streams(queue, command);
    queue_add_keys(queue, command, "housekeeper", "stats", NULL);
    command_text(command, queue->worker);
    command_text(command, ranks[heartbeat->rank]);
    command_number(command, heartbeat->elected_ms);
    queue_add_left(queue, command);
    queue_add_ends(queue, command);
    command_text(command, queue->order);
    bool asks = queue->neighbours->looks || queue->elected;
    command_text(command, asks ? queue->neighbours->pid_space : "");
    add_heartbeat(queue, command, heartbeat);
}

void queue_pulse(struct task *task)
{
    struct command command = {0};
    queue_log_unlogged(task->queue);
    write_pulse(task->queue, &task->action.heartbeat, &command);
    task->calls = 3; /* one is held by this function until both are sent */
    queue_call(task->queue, &command, on_pulse, task);
    queue_command(task->queue, 3, (const char *const[]){"INFO", "memory", "clients"}, on_memory, task);
    count_answer(task, true);
}

static void on_last(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    if (reply && !queue_refused(queue, reply, "lua/pulse")) { queue_ends_counted(queue); }
}

/* It sends a heartbeat, too, which the release after it removes. */
void queue_count_last(struct queue *queue)
{
    struct command command = {0};
    struct heartbeat leaves = {.state = "draining", .rank = RANK_NONE};
    queue_log_unlogged(queue);
    if (queue_ends_uncounted(queue)) {
        write_pulse(queue, &leaves, &command);
        queue_call(queue, &command, on_last, queue);
    }
}

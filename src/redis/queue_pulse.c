/* The pulse, once a second, sends our heartbeat and receives the state of the queue and of Redis' memory. This file
 * also renews the lease, returns parked requests that are due (PROMOTE) and repairs ids ahead of the clock (MEND).
 *
 * The pulse's script and INFO are sent together and become one event. The worker acts on Redis' memory; this file only
 * logs it. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "redis/queue_task.h"

enum { MEND_ENTRIES = 48, MEND_BYTES = 512 * 1024 };

/* --- Memory ------------------------------------------------------------------------------------------------------- */

static uint64_t number_of(const char *info, const char *name)
{
    char text[32] = "0";
    resp_info_field(info, name, text, sizeof text);
    return strtoull(text, NULL, 10);
}

/* Logs when memory becomes short, and when that ends, 5 % lower. */
static void log_memory(struct queue *queue, double percent)
{
    enum { HYSTERESIS_PERCENT = 5 };
    bool tight = percent >= MEMORY_TIGHT_PERCENT - (queue->housekeeping.tight ? HYSTERESIS_PERCENT : 0);
    bool trickle = percent >= MEMORY_TRICKLE_PERCENT - (queue->housekeeping.trickle ? HYSTERESIS_PERCENT : 0);
    if (tight && (!queue->housekeeping.tight || trickle != queue->housekeeping.trickle)) {
        log_warn("redis_tight", log_str("queue", queue->options.name),
                 log_str("reason", "Redis' memory is nearly used up (maxmemory)"), log_double("percent", percent),
                 log_str("now", trickle ? "one small batch at a time, as memory falls" : "little is held"));
    } else if (!tight && queue->housekeeping.tight) {
        log_info("redis_has_room", log_str("queue", queue->options.name), log_double("percent", percent));
    }
    queue->housekeeping.tight = tight;
    queue->housekeeping.trickle = trickle;
}

/* Somebody may switch the policy while we run. Stopping would leave all waiting requests to eviction, so the work goes
 * on, with a log line at the beginning and then once a minute. */
static bool read_policy(struct queue *queue, const char *info)
{
    char policy[64] = "noeviction";
    uint64_t now_ns = clock_now_ns();
    resp_info_field(info, "maxmemory_policy", policy, sizeof policy);
    bool evicts = strcmp(policy, "noeviction") != 0, was = queue->housekeeping.evicts_ns != 0;
    if (evicts && !queue->options.allow_eviction && (!was || now_ns - queue->housekeeping.evicts_ns > 60 * NS_PER_S)) {
        log_error("redis_evicts", log_str("queue", queue->options.name), log_str("maxmemory_policy", policy),
                  log_str("reason", "Redis may drop requests and replies when it is full: set noeviction; no worker "
                                    "starts here until then"));
        queue->housekeeping.evicts_ns = now_ns;
    } else if (!evicts && was) {
        log_info("redis_evicts_no_more", log_str("queue", queue->options.name));
    }
    if (!evicts) { queue->housekeeping.evicts_ns = 0; }
    return evicts;
}

static void read_memory(struct task *task, const char *info)
{
    struct pulse *pulse = &task->pulse;
    pulse->used_bytes = number_of(info, "used_memory");
    pulse->most_bytes = number_of(info, "maxmemory");
    pulse->evicts = read_policy(task->queue, info);
    task->clients = number_of(info, "connected_clients");
    double percent = pulse->most_bytes > 0 ? (double)pulse->used_bytes / (double)pulse->most_bytes * 100 : 0;
    log_memory(task->queue, percent);
    if (percent >= 100) { queue_not_staged(task->queue); }
}

/* Counts one of the two answers, which come in any order: a server that had lost the script answers its call second. */
static void answered(struct task *task, bool ok)
{
    task->failed = task->failed || !ok;
    if (task->calls == 1 && task->pulse.workers > task->clients / 2) { /* each has two, so some are gone */
        task->pulse.workers = (uint32_t)(task->clients / 2);
    }
    if (task->calls == 1 && !task->failed) {
        struct housekeeping *known = &task->queue->housekeeping;
        memcpy(known->command, known->coming, sizeof known->command);
    }
    queue_answered(task, &(struct request_list){0});
}

static void on_memory(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    bool ok = reply && !queue_refused(task->queue, reply, "INFO memory") && reply->type == RESP_STRING;
    if (ok) { read_memory(task, reply->bytes); }
    answered(task, ok);
}

/* --- Counts of ends ----------------------------------------------------------------------------------------------- */

void queue_count(struct queue *queue, enum request_class class, int end)
{
    queue->housekeeping.ended.requests[class][end]++;
    queue->ended[class][end]++;
}

static bool is_zero(const struct ended *ended)
{
    static const struct ended none;
    return memcmp(ended, &none, sizeof none) == 0;
}

static void note_counted(struct queue *queue)
{
    queue->housekeeping.counting = (struct ended){0};
}

/* Counts that got no answer are sent again unchanged, and later ones wait for the next pulse. By their number the
 * script knows whether it has added them. */
static void add_counts(struct queue *queue, struct command *command)
{
    struct ended *ended = &queue->housekeeping.ended, *counting = &queue->housekeeping.counting;
    char text[(CLASS_COUNT * ENDS + 2) * 48], *at = text, *end_of = text + sizeof text;
    if (is_zero(counting) && !is_zero(ended)) {
        *counting = *ended;
        *ended = (struct ended){0};
        queue->housekeeping.counted++;
    }
    text[0] = '\0';
    for (int c = 0; c < CLASS_COUNT; c++) {
        for (int end = 0; end < ENDS; end++) {
            uint64_t count = counting->requests[c][end];
            if (count > 0 && at == text) {
                at += snprintf(at, (size_t)(end_of - at), "%" PRIu64, queue->housekeeping.counted);
            }
            if (count > 0) {
                at += snprintf(at, (size_t)(end_of - at), " %s:%s %" PRIu64, class_names[c], end_name(end), count);
            }
        }
    }
    if (counting->ignored > 0) { snprintf(at, (size_t)(end_of - at), " ignored %" PRIu64, counting->ignored); }
    command_text(command, text);
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

static uint64_t count_of(const struct resp_value *value)
{
    return value->integer > 0 ? (uint64_t)value->integer : 0;
}

/* Logged once, not each second. */
static void note_skipped(struct queue *queue, uint64_t skipped)
{
    if (skipped > 0 && queue->housekeeping.skipped == 0) {
        log_warn("wrong_type", log_str("queue", queue->options.name),
                 log_str("reason", "of meta, workers, later, dead or the streams, a key has a wrong type"),
                 log_int("keys", (int64_t)skipped));
    }
    queue->housekeeping.skipped = skipped;
}

/* With several precisions the last digits of a vector depend on its worker. The housekeeper logs this when it begins,
 * and whenever the precisions change. */
static void note_precisions(struct queue *queue, const char *precisions)
{
    if (precisions[0] && strcmp(precisions, queue->housekeeping.precisions) != 0) {
        log_warn("precisions_differ", log_str("queue", queue->options.name), log_str("precisions", precisions),
                 log_str("reason", "workers of this queue compute in different precisions: `sluice stats` shows how "
                                   "many in which, `sluice pin --precision` lets only one in"));
    }
    snprintf(queue->housekeeping.precisions, sizeof queue->housekeeping.precisions, "%s", precisions);
}

static void add_left(const struct queue *queue, struct command *command)
{
    char left[QUEUE_FOUND_MAX];
    size_t length = 0;
    left[0] = '\0';
    for (int c = 0; c < CLASS_COUNT; c++) {
        length += (size_t)snprintf(left + length, sizeof left - length, "%s", queue->claims.left[c]);
    }
    command_bytes(command, left, length > 0 ? length - 1 : 0); /* without the last space */
}

/* --- Neighbours --------------------------------------------------------------------------------------------------- */

/* A worker that was killed cannot give up its lease. Its successor on the same host, or the housekeeper if it runs
 * there, gives it up once the kernel says that there is no such process and the worker has missed two heartbeats. In
 * doubt the lease is left to expire. */

void queue_meet_neighbours(struct queue *queue)
{
    char boot[40] = "";
    struct stat space;
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool known = file && fscanf(file, "%39s", boot) == 1 && stat("/proc/self/ns/pid", &space) == 0;
    if (file) { fclose(file); }
    if (known) {
        snprintf(queue->neighbours.pid_space, sizeof queue->neighbours.pid_space, "%s-%" PRIu64, boot,
                 (uint64_t)space.st_ino);
    }
    queue->neighbours.looks = true;
}

const char *queue_gone(const struct queue *queue, unsigned *at)
{
    const struct neighbours *neighbours = &queue->neighbours;
    unsigned known = neighbours->count < GONE_MAX ? neighbours->count : GONE_MAX;
    return *at < known && clock_now_ns() < neighbours->until_ns ? neighbours->gone[(*at)++].name : NULL;
}

static bool is_known_gone(const struct queue *queue, const char *name)
{
    unsigned at = 0;
    for (const char *known; (known = queue_gone(queue, &at)) != NULL;) {
        if (strcmp(known, name) == 0) { return true; }
    }
    return false;
}

/* False if it exists, or in doubt. Compares the host's name, too, because a machine may have been cloned while it ran.
 */
static bool process_is_gone(const char *name)
{
    char host[QUEUE_HOST_MAX + 1];
    queue_host(host);
    size_t length = strlen(host);
    if (!queue_worker_name_is(name, strlen(name)) || strncmp(name, host, length) != 0 || name[length] != '-') {
        return false;
    }
    char *end;
    long process = strtol(name + length + 1, &end, 10);
    return *end == '-' && process > 0 && process <= INT_MAX && kill((pid_t)process, 0) != 0 && errno == ESRCH;
}

static void on_lease_given_up(void *context, const struct resp_value *reply)
{
    const struct gone *gone = context;
    if (reply && !queue_refused(gone->queue, reply, "DEL") && reply->integer == 1) {
        log_warn("lease_given_up", log_str("queue", gone->queue->options.name), log_str("worker", gone->name),
                 log_str("reason", "its process on this host has ended; what it held is taken over now"));
    }
}

/* Deletes the lease, which nobody else can have: no two workers have the same name. */
static void give_up_lease(struct queue *queue, const char *name)
{
    struct neighbours *neighbours = &queue->neighbours;
    struct gone *gone = &neighbours->gone[neighbours->count++ % GONE_MAX];
    char key[QUEUE_KEY_MAX];
    gone->queue = queue;
    snprintf(gone->name, sizeof gone->name, "%s", name);
    neighbours->until_ns = clock_now_ns() + 2 * queue->options.lease_ms * NS_PER_MS;
    queue_command(queue, 2, (const char *const[]){"DEL", queue_key(queue, "alive:", gone->name, key)},
                  on_lease_given_up, gone);
}

/* Checks the neighbours that lua/pulse named. One whose process is gone but whose heartbeat is fresh is checked again
 * later. */
static void look_at_neighbours(struct queue *queue, const char *words)
{
    enum { SILENT_MS = 2000 };
    uint64_t least_ms = queue->options.lease_ms / 2 < SILENT_MS ? queue->options.lease_ms / 2 : SILENT_MS;
    queue->neighbours.looks = false;
    while (*words) {
        char name[QUEUE_WORKER_MAX], *end;
        size_t length = strcspn(words, " ");
        snprintf(name, sizeof name, "%.*s", (int)length, words);
        uint64_t silent_ms = strtoull(words + length, &end, 10);
        words = end + strspn(end, " ");
        if (is_known_gone(queue, name) || !process_is_gone(name)) { continue; }
        if (silent_ms < least_ms) {
            queue->neighbours.looks = true;
        } else {
            give_up_lease(queue, name);
        }
    }
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
    pulse->redis_ms = count_of(&reply->items[PULSE_TIME]);
    pulse->paused = reply->items[PULSE_PAUSED].integer != 0;
    pulse->command = command_of(queue, &reply->items[PULSE_COMMAND]);
    snprintf(queue->housekeeping.coming, sizeof queue->housekeeping.coming, "%s", reply->items[PULSE_COMMAND].bytes);
    for (int c = 0; c < CLASS_COUNT; c++) {
        pulse->depth[c] = count_of(&reply->items[PULSE_DEPTH + c]);
        pulse->cap[c] = count_of(&reply->items[PULSE_CAP + c]);
    }
    note_skipped(queue, count_of(&reply->items[PULSE_SKIPPED]));
    pulse->housekeeper = reply->items[PULSE_HOUSEKEEPER].integer != 0;
    const struct resp_value *found = &reply->items[PULSE_FOUND];
    look_at_neighbours(queue, reply->items[PULSE_NEIGHBOURS].bytes);
    pulse->waiting = found->length > 0 || queue_gone(queue, &(unsigned){0}) != NULL;
    snprintf(queue->claims.found, sizeof queue->claims.found, "%s", found->bytes);
    if (!pulse->housekeeper) { memset(queue->claims.left, 0, sizeof queue->claims.left); }
    uint64_t workers = count_of(&reply->items[PULSE_WORKERS]);
    pulse->workers = workers < UINT32_MAX ? (uint32_t)workers : UINT32_MAX;
    queue->housekeeping.elected = pulse->housekeeper;
    note_precisions(queue, reply->items[PULSE_PRECISIONS].bytes);
    return true;
}

static void on_pulse(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    bool ok = reply && !queue_refused(task->queue, reply, "lua/pulse") && read_pulse(task->queue, reply, &task->pulse);
    if (ok) {
        note_counted(task->queue);
        if (task->queue->options.look) { queue_look_now(task->queue, task->pulse.redis_ms); }
    }
    answered(task, ok);
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
        {"errors", stats->errors},       {"dead", stats->dead},
        {"devices", stats->devices},     {"devices_lost", stats->devices_lost},
        {"batches", stats->batches},     {"rows", stats->rows},
        {"tokens", stats->tokens},       {"computed_tokens", stats->computed_tokens},
    };
    char rate[32];
    command_text(command, "state");
    command_text(command, heartbeat->state ? heartbeat->state : "running");
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        command_text(command, counts[i].name);
        command_number(command, counts[i].value);
    }
    if (heartbeat->memory_percent > 0) {
        snprintf(rate, sizeof rate, "memory:%u%%", heartbeat->memory_percent);
        command_text(command, "reason");
        command_text(command, rate);
    }
    snprintf(rate, sizeof rate, "%.3f", heartbeat->rows_per_s);
    command_text(command, "rows_per_s");
    command_text(command, rate);
    command_text(command, "max_inputs");
    command_number(command, heartbeat->max_inputs);
    command_text(command, "max_text_bytes");
    command_number(command, heartbeat->max_text_bytes);
    command_text(command, "precision");
    command_text(command, queue->options.precision);
    command_text(command, "version");
    command_text(command, sluice_version);
    command_text(command, "counted");
    command_number(command, queue->housekeeping.counted);
    command_text(command, "lease");
    command_number(command, queue->options.lease_ms);
    if (queue->neighbours.pid_space[0]) {
        command_text(command, "pid_space");
        command_text(command, queue->neighbours.pid_space);
    }
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
    add_left(queue, command);
    add_counts(queue, command);
    command_text(command, queue->housekeeping.command);
    bool asks = queue->neighbours.looks || queue->housekeeping.elected;
    command_text(command, asks ? queue->neighbours.pid_space : "");
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
    answered(task, true);
}

static void on_last(void *context, const struct resp_value *reply)
{
    struct queue *queue = context;
    if (reply && !queue_refused(queue, reply, "lua/pulse")) { note_counted(queue); }
}

/* It sends a heartbeat, too, which the release after it removes. */
void queue_count_last(struct queue *queue)
{
    struct command command = {0};
    struct heartbeat leaves = {.state = "draining", .rank = RANK_NONE};
    queue_log_unlogged(queue);
    if (!is_zero(&queue->housekeeping.counting) || !is_zero(&queue->housekeeping.ended)) {
        write_pulse(queue, &leaves, &command);
        queue_call(queue, &command, on_last, queue);
    }
}

/* --- RENEW, PROMOTE, MEND ---------------------------------------------------------------------------------------- */

static void on_renewed(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    if (queue_task_answered(task, reply, "lua/renew")) {
        struct event event = queue_task_event(task, false);
        event.lease_held = reply->type == RESP_INTEGER && reply->integer == 1;
        queue_task_end(task, event);
    }
}

void queue_renew(struct task *task)
{
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RENEW, 1, &command);
    queue_add_key(queue, &command, "alive:", queue->worker);
    command_text(&command, queue->token);
    command_number(&command, queue->options.lease_ms);
    queue_call(queue, &command, on_renewed, task);
}

static void on_promoted(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    if (!queue_task_answered(task, reply, "lua/promote")) { return; }
    struct event event = queue_task_event(task, !queue_has_numbers(reply, 3));
    if (!event.failed && reply->items[1].integer >= 0) {
        event.promoted.next_due_in_ms = (uint64_t)reply->items[1].integer;
    }
    if (!event.failed && reply->items[2].integer > 0) {
        log_warn("parked_requests_broken", log_str("queue", task->queue->options.name),
                 log_int("requests", reply->items[2].integer));
    }
    queue_task_end(task, event);
}

void queue_promote(struct task *task)
{
    enum { PROMOTE_MAX = 100 };
    struct queue *queue = task->queue;
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_PROMOTE, 3 + CLASS_COUNT, &command);
    queue_add_keys(queue, &command, "later", "later:data", "trouble", NULL);
    queue_add_streams(queue, &command);
    command_number(&command, PROMOTE_MAX);
    queue_call(queue, &command, on_promoted, task);
}

/* MEND. lua/mend reads no entry whose size is not known: 24 MiB would take it 58 ms, in which Redis does nothing else.
 * So this looks first with plain commands, from whose answers the connection drops large entries, and names to the
 * script the entries that it has seen. Entries too large for the script to read become ours by their ids alone, and
 * READ_OWN brings them. */

/* The number of entries of each class that the next look asks for. Entries may have any size, so it grows only after a
 * look that saw few bytes, and it is one after a look that saw a large entry. */
static uint32_t next_look(const struct mend_look *look)
{
    if (look->large) { return 1; }
    if (look->left) { return look->most / 4 + 1; }
    if (look->bytes > MEND_BYTES / 4) { return look->most; }
    return look->most * 4 < MEND_ENTRIES / CLASS_COUNT ? look->most * 4 : MEND_ENTRIES / CLASS_COUNT;
}

/* A repair may take several calls; it is logged once, at its end. */
static void on_mended(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct housekeeping *house = &task->queue->housekeeping;
    if (!queue_task_answered(task, reply, "lua/mend")) { return; }
    struct event event = queue_task_event(task, !queue_has_numbers(reply, 4));
    if (!event.failed) {
        long long moved = reply->items[0].integer, streams = reply->items[1].integer;
        house->mending_entries += (uint64_t)moved;
        if (streams > 0) {
            log_warn("ids_ahead", log_str("queue", task->queue->options.name),
                     log_str("reason", "a producer has sent entries with ids of times to come"),
                     log_int("entries_moved", (int64_t)house->mending_entries), log_int("streams_set_back", streams));
            house->mending_entries = 0;
        }
        event.mended.moved = (uint64_t)moved;
        event.mended.changed = moved > 0 || streams > 0;
        event.mended.more = reply->items[2].integer != 0 && house->look.entries > 0;
        event.mended.taken = reply->items[3].integer > 0;
        if (event.mended.more) { house->look_most = next_look(&house->look); }
        if (!event.mended.more) { memset(house->look_behind, 0, sizeof house->look_behind); }
    }
    queue_task_end(task, event);
}

/* Names to the script the entries of a class that it can move or take in one call. Large ones remain in the stream for
 * a while, so the next look begins after them. */
static void name_entries(struct housekeeping *house, enum request_class class, const struct resp_value *list)
{
    struct mend_look *look = &house->look;
    const char number[] = {(char)('0' + class), '\0'};
    struct entry_id id;
    uint64_t bytes;
    for (size_t i = 0; i < list->count; i++) {
        bool read = entry_weighed(&list->items[i], &id, &bytes), large = read && bytes > MEND_BYTES;
        if (!read || (!large && look->bytes + bytes > MEND_BYTES)) {
            look->left = true;
            return;
        }
        look->bytes += large ? 0 : bytes;
        look->large |= large;
        if (large) { house->look_behind[class] = id; }
        look->entries++;
        command_text(&look->command, number);
        queue_add_entry_id(&look->command, id);
        command_text(&look->command, large ? "take" : "move");
    }
}

/* The answers come in the order of the classes; a stream of a wrong type only fails for its class. queue_refused may
 * close the connection, which answers the other calls before it returns; so this call is counted last, and ends the
 * task. */
static void on_looked(void *context, const struct resp_value *reply)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct mend_look *look = &queue->housekeeping.look;
    enum request_class class = (enum request_class)(CLASS_COUNT - task->calls);
    if (reply && reply->type == RESP_ARRAY) {
        name_entries(&queue->housekeeping, class, reply);
    } else if (!reply || (!resp_is_error(reply, "WRONGTYPE") && queue_refused(queue, reply, "XRANGE"))) {
        task->failed = true;
    }
    if (--task->calls > 0) { return; }
    if (task->failed) {
        command_free(&look->command);
        queue_task_fail(task);
    } else {
        queue_call(queue, &look->command, on_mended, task);
    }
}

static void look_ahead(struct task *task, enum request_class class, uint64_t from_ms)
{
    struct housekeeping *house = &task->queue->housekeeping;
    struct entry_id behind = house->look_behind[class];
    bool last = behind.ms == UINT64_MAX && behind.seq == UINT64_MAX; /* no range can begin after the greatest id */
    char from[ENTRY_ID_TEXT + 1] = "(", count[16];
    snprintf(count, sizeof count, "%u", house->look.most);
    if (behind.ms > 0) {
        entry_id_format(behind, from + 1);
    } else {
        snprintf(from, sizeof from, "%" PRIu64, from_ms);
    }
    const char *const words[] = {"XRANGE", task->queue->streams[class], last ? "+" : from, last ? "-" : "+", "COUNT",
                                 count};
    queue_command(task->queue, 6, words, on_looked, task);
}

void queue_mend(struct task *task)
{
    struct queue *queue = task->queue;
    struct housekeeping *house = &queue->housekeeping;
    uint64_t from_ms = task->action.redis_ms + AHEAD_MS;
    house->look = (struct mend_look){.most = house->look_most > 0 ? house->look_most : 1};
    house->look_most = 1; /* unless this one succeeds */
    script_begin(&queue->scripts, SCRIPT_MEND, 4 + CLASS_COUNT, &house->look.command);
    queue_add_keys(queue, &house->look.command, "later", "later:data", "trouble", "meta", NULL);
    queue_add_streams(queue, &house->look.command);
    command_text(&house->look.command, queue->worker);
    task->calls = CLASS_COUNT;
    for (int c = 0; c < CLASS_COUNT; c++) { look_ahead(task, (enum request_class)c, from_ms); }
}

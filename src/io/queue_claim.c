/* Entries that a script makes ours: those of workers that are gone, and what is shed, taken ahead or found lost. Their
 * answers have one shape, so they differ in what is asked only. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "io/queue_parts.h"

enum { CLAIM_MAX = 64, JUDGED_MAX = 128, TIDY_EVERY = 16 };

static uint32_t limit_of(const struct task *task)
{
    uint32_t count = task->action.read.count;
    return count > CLAIM_MAX ? CLAIM_MAX : count;
}

/* What one answer may cost: in memory it is larger than its texts. */
static uint64_t bytes_of(const struct queue *queue)
{
    return queue->options.max_reply_bytes / 4;
}

/* Puts what the script cannot know into the entries, and counts. */
static void count_claimed(struct queue *queue, enum action_kind kind)
{
    for (size_t i = 0; i < queue->entries.count; i++) {
        struct entry *entry = &queue->entries.items[i];
        if (kind == ACTION_SHED) {
            entry->origin = ORIGIN_SHED;
        } else if (kind == ACTION_FAIR) {
            entry->origin = ORIGIN_NEW;
        }
    }
    if (kind == ACTION_SHED) {
        queue->stats.shed += queue->entries.count;
    } else if (kind == ACTION_SWEEP && queue->entries.count > 0) {
        queue->stats.orphans += queue->entries.count;
        log_warn("orphans_found", log_int("entries", (int64_t)queue->entries.count));
    }
}

/* What a reclaim has left where it was is for others, who hear of it by the housekeeper's pulse. */
static void note_left(struct queue *queue, enum request_class class, const struct resp_value *names)
{
    char *left = queue->left[class];
    size_t length = 0;
    left[0] = '\0';
    for (size_t i = 0; names && names->type == RESP_ARRAY && i < names->count; i++) {
        const struct resp_value *name = &names->items[i];
        if (name->type == RESP_STRING && length + name->length + 2 <= sizeof queue->left[class]) {
            length += (size_t)snprintf(left + length, sizeof queue->left[class] - length, "%s ", name->bytes);
        }
    }
}

static void on_claimed(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    struct queue *queue = task->queue;
    struct err err;
    (void)lost;
    if (!reply || queue_refused(queue, reply, "claiming entries")) {
        queue_task_fail(task);
    } else if (entries_from_claim(&queue->entries, reply, task->action.read.class, &err)) {
        queue_give_up(task, &err);
    } else {
        if (task->action.kind == ACTION_RECLAIM && reply->count > 4) {
            note_left(queue, task->action.read.class, &reply->items[4]);
        }
        count_claimed(queue, task->action.kind);
        queue_give_entries(task);
    }
}

/* Opens the action's task; NULL when it is answered already: no memory, or a class that cannot be served. */
static struct task *open_claim(struct queue *queue, struct action *action)
{
    struct task *task = queue_task_open(queue, action);
    if (task && !queue_serves(queue, action->read.class)) {
        queue_give_nothing(task);
        return NULL;
    }
    return task;
}

static void send_claim(struct task *task, struct command *command)
{
    if (!queue_call(task->queue, command, on_claimed, task)) {
        queue_task_fail(task);
    }
}

/* --- RECLAIM ------------------------------------------------------------------------------------------------------ */

/* Names go on in the housekeeper's key with spaces between them. */
static bool is_word(const struct resp_value *name)
{
    for (size_t i = 0; i < name->length; i++) {
        if (name->bytes[i] <= ' ' || name->bytes[i] > '~') {
            return false;
        }
    }
    return name->length > 0;
}

static bool is_other(const struct queue *queue, const struct resp_value *name)
{
    return name->type == RESP_STRING && name->length < QUEUE_WORKER_MAX && !resp_equals(name, queue->worker) &&
           !resp_equals(name, QUEUE_RELEASED) && !resp_equals(name, QUEUE_AHEAD) && is_word(name);
}

static const struct resp_value *consumer_at(const struct resp_value *consumers, size_t index)
{
    const struct resp_value *consumer = &consumers->items[index];
    return consumer->type == RESP_ARRAY && consumer->count >= 4 ? consumer : NULL;
}

/* Whether any other consumer holds anything; one that holds nothing is looked at only now and then, to be deleted. */
static bool worth_judging(struct task *task, const struct resp_value *consumers)
{
    struct queue *queue = task->queue;
    for (size_t i = 0; i < consumers->count; i++) {
        const struct resp_value *consumer = consumer_at(consumers, i);
        if (consumer && !resp_equals(&consumer->items[1], queue->worker) &&
            (consumer->items[3].type != RESP_INTEGER || consumer->items[3].integer > 0)) {
            return true;
        }
    }
    return queue->judged[task->action.read.class]++ % TIDY_EVERY == 0;
}

/* The consumers that another worker has found; `words` [size] is cut into them. */
static size_t found_names(const struct queue *queue, char *words, size_t size, const char **names, size_t most)
{
    size_t count = 0;
    char *rest = words;
    snprintf(words, size, "%s", queue->found);
    for (char *word; count < most && (word = strtok_r(rest, " ", &rest));) {
        if (strcmp(word, queue->worker) != 0 && strcmp(word, QUEUE_RELEASED) != 0 && strcmp(word, QUEUE_AHEAD) != 0) {
            names[count++] = word;
        }
    }
    return count;
}

/* Calls lua/reclaim for what is nobody's and for at most JUDGED_MAX consumers out of those that XINFO named, or where
 * that is NULL for those that the housekeeper has found. */
static void call_reclaim(struct task *task, const struct resp_value *consumers)
{
    struct queue *queue = task->queue;
    enum request_class class = task->action.read.class;
    const char *names[JUDGED_MAX + 2] = {QUEUE_RELEASED, QUEUE_AHEAD};
    char words[QUEUE_FOUND_MAX];
    size_t total = consumers ? consumers->count : 0, start = total ? queue->judge_offset[class] % total : 0;
    size_t count = 2, seen = 0;
    for (; seen < total && count <= JUDGED_MAX; seen++) {
        const struct resp_value *consumer = consumer_at(consumers, (start + seen) % total);
        if (consumer && is_other(queue, &consumer->items[1])) {
            names[count++] = consumer->items[1].bytes;
        }
    }
    queue->judge_offset[class] = start + seen;
    if (!consumers) {
        count += found_names(queue, words, sizeof words, &names[2], JUDGED_MAX);
    }
    struct command command = {0};
    script_begin(&queue->scripts, SCRIPT_RECLAIM, 2 + count, &command);
    queue_add_stream(queue, &command, class);
    queue_add_key(queue, &command, "trouble", "");
    for (size_t i = 0; i < count; i++) {
        queue_add_key(queue, &command, "alive:", names[i]);
    }
    command_text(&command, queue->worker);
    command_number(&command, limit_of(task));
    command_number(&command, bytes_of(queue));
    command_text(&command, class_prefixes[class]);
    command_list(&command, count, names, NULL);
    send_claim(task, &command);
}

static void on_consumers(void *context, const struct resp_value *reply, const struct err *lost)
{
    struct task *task = context;
    (void)lost;
    if (!reply || queue_refused(task->queue, reply, "XINFO CONSUMERS") || reply->type != RESP_ARRAY) {
        queue_task_fail(task);
    } else if (worth_judging(task, reply)) {
        call_reclaim(task, reply);
    } else {
        note_left(task->queue, task->action.read.class, NULL);
        queue_give_nothing(task);
    }
}

void queue_reclaim(struct queue *queue, struct action *action)
{
    struct err err;
    struct task *task = open_claim(queue, action);
    if (!task) {
        return;
    }
    if (!action->read.judge) {
        call_reclaim(task, NULL);
        return;
    }
    const char *const words[] = {"XINFO", "CONSUMERS", queue_stream(queue, action->read.class), QUEUE_GROUP};
    if (connection_command(queue->writer, 4, words, NULL, queue->options.command_timeout_ms, on_consumers, task,
                           &err)) {
        queue_task_fail(task);
    }
}

/* --- SHED, FAIR, SWEEP -------------------------------------------------------------------------------------------- */

void queue_shed(struct queue *queue, struct action *action)
{
    struct command command = {0};
    struct task *task = open_claim(queue, action);
    if (!task) {
        return;
    }
    script_begin(&queue->scripts, SCRIPT_SHED, 2, &command);
    queue_add_stream(queue, &command, action->read.class);
    queue_add_key(queue, &command, "trouble", "");
    command_text(&command, queue->worker);
    command_number(&command, action->read.cap);
    command_number(&command, limit_of(task));
    command_number(&command, bytes_of(queue));
    queue_add_entry_id(&command, action->read.after);
    queue_add_entry_id(&command, action->read.before);
    send_claim(task, &command);
}

void queue_fair(struct queue *queue, struct action *action)
{
    struct command command = {0};
    struct task *task = open_claim(queue, action);
    if (!task) {
        return;
    }
    script_begin(&queue->scripts, SCRIPT_FAIR, 1, &command);
    queue_add_stream(queue, &command, action->read.class);
    command_text(&command, action->read.count > 0 ? queue->worker : QUEUE_AHEAD);
    queue_add_entry_id(&command, action->read.after);
    command_number(&command, action->read.count > 0 ? limit_of(task) : CLAIM_MAX);
    command_number(&command, bytes_of(queue));
    for (uint32_t i = 0; i < action->read.enough_count; i++) {
        command_text(&command, action->read.enough[i]);
    }
    send_claim(task, &command);
}

void queue_sweep(struct queue *queue, struct action *action)
{
    struct command command = {0};
    struct task *task = open_claim(queue, action);
    if (!task) {
        return;
    }
    script_begin(&queue->scripts, SCRIPT_SWEEP, 4, &command);
    queue_add_stream(queue, &command, action->read.class);
    queue_add_key(queue, &command, "trouble", "");
    queue_add_key(queue, &command, "later", "");
    queue_add_key(queue, &command, "later:data", "");
    command_text(&command, queue->worker);
    queue_add_entry_id(&command, action->read.after);
    command_number(&command, limit_of(task));
    command_number(&command, bytes_of(queue));
    command_text(&command, class_prefixes[action->read.class]);
    send_claim(task, &command);
}

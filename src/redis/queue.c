/* The actions, each with the function that executes it; opening and closing. queue_task.h lists the files. */
#include "redis/queue.h"

#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "redis/queue_cancel.h"
#include "redis/queue_chores.h"
#include "redis/queue_ends.h"
#include "redis/queue_join.h"
#include "redis/queue_lease.h"
#include "redis/queue_link.h"
#include "redis/queue_look.h"
#include "redis/queue_neighbours.h"
#include "redis/queue_pulse.h"
#include "redis/queue_read.h"
#include "redis/queue_settle.h"
#include "redis/queue_tokens.h"

enum { CONNECT_TIMEOUT_MS = 5000, COMMAND_TIMEOUT_MS = 5000, BACKOFF_MS = 100, BACKOFF_CAP_MS = 5000, TTL_S = 3600 };
static const uint64_t MAX_REPLY_BYTES = 64 << 20;

/* The function that executes each action, and the event that answers it. */
static const struct executor {
    void (*execute)(struct task *task);
    enum event_kind event;
    enum read_source source; /* of EVENT_ENTRIES */
} executors[ACTION_EXIT + 1] = {
    [ACTION_READ] = {queue_read, EVENT_ENTRIES, READ_NEW},
    [ACTION_READ_OWN] = {queue_read_own, EVENT_ENTRIES, READ_OWN},
    [ACTION_RECLAIM] = {queue_reclaim, EVENT_ENTRIES, READ_RECLAIM},
    [ACTION_SHED] = {queue_shed, EVENT_ENTRIES, READ_SHED},
    [ACTION_FAIR] = {queue_fair, EVENT_ENTRIES, READ_FAIR},
    [ACTION_SWEEP] = {queue_sweep, EVENT_ENTRIES, READ_SWEEP},
    [ACTION_SETTLE] = {queue_settle, EVENT_SETTLED},
    [ACTION_RECORD_RUN] = {queue_record_run, EVENT_RUN_RECORDED},
    [ACTION_RELEASE] = {queue_release, EVENT_RELEASED},
    [ACTION_RENEW] = {queue_renew, EVENT_LEASE},
    [ACTION_PROMOTE] = {queue_promote, EVENT_PROMOTED},
    [ACTION_MEND] = {queue_mend, EVENT_MENDED},
    [ACTION_PULSE] = {queue_pulse, EVENT_PULSE},
    [ACTION_LIST_OWN] = {queue_list_own, EVENT_OWN_LISTED},
};

void queue_execute(struct queue *queue, struct action *action)
{
    const struct executor *executor = &executors[action->kind];
    struct task once = {.queue = queue, .action = *action, .event = executor->event, .source = executor->source},
                *task = NULL;
    if (action->kind == ACTION_UNBLOCK) {
        queue_unblock(queue);
    } else if (action->kind == ACTION_REJOIN) {
        queue_rejoin(queue);
    }
    if (!executor->execute) { return; /* the daemon executes the others */ }
    if (queue->state != QUEUE_UP || !(task = malloc(sizeof *task))) {
        struct event event = queue_task_event(&once, true);
        queue_emit(queue, &event);
        return;
    }
    *task = once;
    if (executor->event == EVENT_ENTRIES && action->kind != ACTION_READ && !queue_serves(queue, action->read.class)) {
        queue_task_end(task, queue_task_event(task, false)); /* the stream is unusable: no entries */
    } else {
        executor->execute(task);
    }
}

static void set_defaults(struct queue_options *options)
{
    options->connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    options->command_timeout_ms = options->command_timeout_ms ? options->command_timeout_ms : COMMAND_TIMEOUT_MS;
    options->backoff_ms = options->backoff_ms ? options->backoff_ms : BACKOFF_MS;
    if (options->backoff_cap_ms == 0) { /* so all workers are back before one may judge the leases of the others */
        uint32_t half_ms = options->lease_ms / 2;
        options->backoff_cap_ms = half_ms < options->backoff_ms ? options->backoff_ms
                                  : half_ms < BACKOFF_CAP_MS    ? half_ms
                                                                : BACKOFF_CAP_MS;
    }
    options->max_reply_bytes = options->max_reply_bytes ? options->max_reply_bytes : MAX_REPLY_BYTES;
    options->revision = options->revision ? options->revision : "";
    options->precision = options->precision ? options->precision : "f32";
    options->engine = options->engine ? options->engine : "";
    options->ttl_s = options->ttl_s ? options->ttl_s : TTL_S;
}

/* A queue with its parts. */
struct whole {
    struct queue queue;
    struct queue_link link;
    struct queue_joining joining;
    struct queue_reads reads;
    struct queue_settling settling;
    struct queue_tokens tokens;
    struct queue_control control;
    struct queue_pulsing pulsing;
    struct queue_mending mending;
    struct queue_neighbours neighbours;
    struct queue_looking looking;
    struct queue_ends ends;
};

static struct queue *assemble_queue(void)
{
    struct whole *whole = calloc(1, sizeof *whole);
    if (!whole) { return NULL; }
    whole->link.witness = -1;
    whole->link.on_reader_up = queue_join_reader_up;
    whole->link.on_writer_up = queue_join_writer_up;
    whole->queue = (struct queue){
        .on_lost = queue_link_lost,
        .on_refused = queue_join_refused,
        .link = &whole->link,
        .joining = &whole->joining,
        .reads = &whole->reads,
        .settling = &whole->settling,
        .tokens = &whole->tokens,
        .control = &whole->control,
        .pulsing = &whole->pulsing,
        .mending = &whole->mending,
        .neighbours = &whole->neighbours,
        .looking = &whole->looking,
        .ends = &whole->ends,
    };
    return &whole->queue;
}

enum status queue_open(const struct queue_options *options, struct queue **out, struct err *err)
{
    if (!queue_name_is(options->name, strlen(options->name))) {
        return err_set(err, STATUS_BAD_INPUT, "a queue's name is 1 to %d of a-z 0-9 _ . -", QUEUE_NAME_MAX);
    }
    struct queue *queue = assemble_queue();
    if (!queue) { return err_set(err, STATUS_NO_MEMORY, "no memory for the queue"); }
    queue->options = *options;
    set_defaults(&queue->options);
    for (int c = 0; c < CLASS_COUNT; c++) { queue_key(queue, class_streams[c], "", queue->streams[c]); }
    queue->outbox.wake = event_new(options->base, -1, 0, queue_on_outbox, queue);
    queue->control->timer = evtimer_new(options->base, queue_on_control, queue);
    queue->tokens->timer = evtimer_new(options->base, queue_on_tokens, queue);
    enum status status = queue->outbox.wake && queue->control->timer && queue->tokens->timer
                             ? STATUS_OK
                             : err_set(err, STATUS_NO_MEMORY, "no memory for the queue");
    status = status ? status : queue_link_open(queue, err);
    status = status ? status : queue_join_open(queue, err);
    if (status) {
        queue_close(queue);
        return status;
    }
    queue_meet_neighbours(queue);
    *out = queue;
    return STATUS_OK;
}

void queue_start(struct queue *queue)
{
    queue_wake_in(queue->link->retry, 0);
}

void queue_close(struct queue *queue)
{
    if (!queue) { return; }
    queue_link_close(queue);
    queue_join_close(queue);
    entries_free(&queue->reads->entries);
    buffer_free(&queue->settling->info);
    if (queue->outbox.wake) { event_free(queue->outbox.wake); }
    if (queue->control->timer) { event_free(queue->control->timer); }
    if (queue->tokens->timer) { event_free(queue->tokens->timer); }
    free(queue); /* the first member of the whole */
}

struct queue_counters queue_counters(const struct queue *queue)
{
    struct queue_counters counters = {.commands = queue->commands,
                                      .script_calls = queue->scripts.calls,
                                      .script_ns = queue->scripts.calls_ns,
                                      .connects = queue->link->ups};
    memcpy(counters.ended, queue->ends->all, sizeof counters.ended);
    return counters;
}

bool queue_tried(const struct queue *queue)
{
    return queue->state != QUEUE_STOPPED && (queue->link->ups > 0 || queue->link->why_down.status != STATUS_OK);
}

const char *queue_why_down(const struct queue *queue)
{
    if (queue->state == QUEUE_UP) { return NULL; }
    return queue->link->why_down.status == STATUS_OK ? "not connected yet" : queue->link->why_down.message;
}

void queue_begin_text(struct queue *queue, struct batch *batch)
{
    queue_tokens_begin(queue, batch);
}

void queue_end_text(struct queue *queue, const struct batch *batch)
{
    queue_tokens_end(queue, batch);
}

const char *queue_worker_name(const struct queue *queue)
{
    return queue->worker;
}

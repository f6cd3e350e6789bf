/* The groups of the three streams: made where they are missing, at 0, because a stream holds exactly the unfinished
 * work.
 *
 * A key of another type where one of our streams belongs (a producer's SET) costs that class only: it is left out of
 * all reads and claims, the log names the key, and it is looked at again with a backoff that doubles. */
#include <event2/event.h>

#include "base/log.h"
#include "io/queue_parts.h"

static void try_later(struct queue *queue)
{
    queue_wake_in(queue->group_retry, queue_backoff_ms(queue, queue->group_tries++));
}

/* Another type stands at the key: the class rests until that is over. */
static void on_wrong_type(struct group *group)
{
    struct queue *queue = group->queue;
    if (!group->unusable) {
        group->unusable = true;
        queue->group_tries = 0;
        log_error("stream_unusable", log_str("key", queue_stream(queue, group->class)),
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
        log_info("group_created", log_str("key", queue_stream(queue, group->class)));
    }
    if (group->unusable) {
        group->unusable = false;
        log_info("stream_usable_again", log_str("key", queue_stream(queue, group->class)));
    }
}

void queue_create_groups(struct queue *queue)
{
    struct err err;
    if (queue->groups_asked > 0) {
        return; /* several commands have found out at once */
    }
    for (int class = 0; class < CLASS_COUNT; class ++) {
        struct group *group = &queue->groups[class];
        struct command command = {0};
        script_begin(&queue->scripts, SCRIPT_GROUP, 1, &command);
        queue_add_stream(queue, &command, group->class);
        if (!queue_call(queue, &command, on_group, group)) {
            err_set(&err, STATUS_NO_MEMORY, "no memory for a Redis command");
            queue_down(queue, &err);
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

/* What Redis refuses, and what follows from each of its voices: the group again, the other server of a cluster, both
 * connections anew, or the end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/queue_parts.h"

void queue_follow(struct queue *queue, const struct resp_value *reply)
{
    const char *space = resp_is_error(reply, "MOVED") ? strrchr(reply->bytes, ' ') : NULL;
    const char *colon = space ? strrchr(space, ':') : NULL;
    long port = colon ? strtol(colon + 1, NULL, 10) : 0;
    const struct address *address = queue->options.address;
    const struct endpoint *here = queue->endpoint ? queue->endpoint : address->endpoints;
    if (port < 1 || port > 65535 || !here) {
        return;
    }
    int length = (int)(colon - space - 1);
    if (length > 0) { /* none: on the same host */
        snprintf(queue->moved_host, sizeof queue->moved_host, "%.*s", length, space + 1);
    } else if (here != &queue->moved) {
        snprintf(queue->moved_host, sizeof queue->moved_host, "%s", here->host);
    }
    queue->moved = (struct endpoint){queue->moved_host, (uint16_t)port};
    queue->moved_due = true;
}

/* Once a second for each reason: what is refused is tried again ten times in that time. */
static void log_refused(struct queue *queue, const struct err *err)
{
    uint64_t now_ns = clock_now_ns();
    if (now_ns - queue->refused_ns < NS_PER_S && strcmp(err->message, queue->refused.message) == 0) {
        return;
    }
    queue->refused = *err;
    queue->refused_ns = now_ns;
    log_warn("redis_refused", log_str("reason", err->message));
}

/* Voices that leave the connection as it is: what was refused is tried again. */
static bool is_passing(const struct resp_value *reply)
{
    return resp_is_error(reply, "OOM") || resp_is_error(reply, "TRYAGAIN") || resp_is_error(reply, "ASK");
}

bool queue_refused(struct queue *queue, const struct resp_value *reply, const char *what)
{
    struct err err;
    enum status status = resp_check(reply, &err);
    if (status == STATUS_OK) {
        return false;
    }
    err_prefix(&err, "%s", what);
    bool wrong_type = resp_is_error(reply, "WRONGTYPE"); /* the stream, then the group says more; or another key */
    if (wrong_type) {
        log_refused(queue, &err);
    }
    queue_follow(queue, reply);
    if (resp_is_error(reply, "NOGROUP") || resp_is_error(reply, "UNBLOCKED") || wrong_type) {
        queue_create_groups(queue);
    } else if (status == STATUS_DENIED) {
        queue_stop(queue, &err);
    } else if (status == STATUS_UNAVAILABLE && !is_passing(reply)) {
        queue_down(queue, &err);
    } else {
        log_refused(queue, &err);
    }
    return true;
}

/* Large replies, sent to Redis ahead of their settle.
 *
 * A script's arguments become Lua strings, and Lua hashes every byte of them: 4,651 bytes of JSON cost more than all
 * else that settle does for the request. So a large reply is written to a hash of its own, its stage key, by plain
 * commands; the settle behind it says what is to become of it, and mostly that is a RENAME. Nobody else knows the key.
 * It lives for a minute, in one transaction, so nothing stays behind when the settle never comes; the settle gives it
 * the reply's ttl. A request that is staged once more, because a connection broke in between, is so under the same key.
 * A Redis that does not take it (it is full, say) is noticed by the script; the next replies go with their settle again
 * for a while. */
#include <stdio.h>

#include "base/clock.h"
#include "io/queue_parts.h"

enum { STAGE_BYTES = 2048, STAGE_TTL_MS = 60000, STAGE_PAUSE_MS = 10000 };

static const char *stage_key(const struct queue *queue, const struct request *request, char key[QUEUE_KEY_MAX])
{
    char more[QUEUE_WORKER_MAX + 24];
    snprintf(more, sizeof more, "%s:%llu", queue->worker, (unsigned long long)request->stage);
    return queue_key(queue, "stage:", more, key);
}

void queue_add_stage_key(const struct queue *queue, struct command *command, const struct request *request)
{
    char key[QUEUE_KEY_MAX];
    command_text(command, stage_key(queue, request, key));
}

void queue_not_staged(struct queue *queue)
{
    queue->stage_from_ns = clock_now_ns() + STAGE_PAUSE_MS * NS_PER_MS;
}

/* Nobody listens to the answers: the script looks. */
static enum status send(struct queue *queue, struct command *command, struct err *err)
{
    const char *bytes;
    size_t length;
    enum status status = command_finish(command, &bytes, &length, err);
    if (!status) {
        status = connection_send(queue->writer, bytes, length, queue->options.command_timeout_ms, NULL, NULL, err);
    }
    command_free(command);
    return status;
}

static enum status send_word(struct queue *queue, const char *word, struct err *err)
{
    struct command command = {0};
    command_text(&command, word);
    return send(queue, &command, err);
}

static enum status stage(struct queue *queue, struct request *request, struct err *err)
{
    char key[QUEUE_KEY_MAX];
    struct command fields = {0}, expiry = {0};
    request->staged = true;
    if (request->stage == 0) {
        request->stage = ++queue->staged;
    }
    stage_key(queue, request, key);
    command_text(&fields, "HSET");
    command_text(&fields, key);
    queue_add_fields(queue, &fields, request);
    enum status status = send(queue, &fields, err);
    if (status) {
        return status;
    }
    command_text(&expiry, "PEXPIRE");
    command_text(&expiry, key);
    command_number(&expiry, STAGE_TTL_MS);
    return send(queue, &expiry, err);
}

bool queue_stage(struct queue *queue, const struct request_list *requests)
{
    bool may = clock_now_ns() >= queue->stage_from_ns, begun = false;
    enum status status = STATUS_OK;
    struct err err;
    for (struct request *request = requests->first; request && !status; request = request->next) {
        request->staged = false;
        if (may && request->outcome == OUTCOME_DONE && request->reply.length >= STAGE_BYTES) {
            status = begun ? STATUS_OK : send_word(queue, "MULTI", &err);
            begun = true;
            status = status ? status : stage(queue, request, &err);
        }
    }
    if (begun && !status) {
        status = send_word(queue, "EXEC", &err);
    }
    if (status) { /* the transaction is open: only a new connection ends it */
        queue_down(queue, &err);
    }
    return !status;
}

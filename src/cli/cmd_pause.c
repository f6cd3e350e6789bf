/* Pauses and resumes a queue. While the key `paused` exists, no worker claims anything; producers can still enqueue. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/session.h"

static enum status pause_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    (void)invocation;
    char key[SESSION_KEY], now[24];
    const struct resp_value *reply;
    snprintf(now, sizeof now, "%" PRIu64, session->redis_ms);
    session_key(session, "paused", "", key);
    TRY(SESSION_ASK(session, &reply, err, "SET", key, now, "NX"));
    printf("queue %s %s paused\n", session->queue, reply->type == RESP_NIL ? "was already" : "is");
    return STATUS_OK;
}

static enum status resume_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    (void)invocation;
    char key[SESSION_KEY];
    long long removed;
    TRY(SESSION_ASK_NUMBER(session, &removed, err, "DEL", session_key(session, "paused", "", key)));
    printf("queue %s %s\n", session->queue, removed == 1 ? "goes on" : "was not paused");
    return STATUS_OK;
}

static int run_pause(struct invocation *invocation)
{
    return session_run(invocation, pause_queue);
}

static int run_resume(struct invocation *invocation)
{
    return session_run(invocation, resume_queue);
}

const struct subcommand command_pause = {
    .name = "pause",
    .bit = FOR_OPERATOR,
    .summary = "Pause a queue: workers finish what they hold and take nothing more",
    .explanation =
        "Takes effect within a second. Requests can still be enqueued. Where the configuration lists several\n"
        "queues: all of them, or the one that --queue names.",
    .run = run_pause,
};

const struct subcommand command_resume = {
    .name = "resume",
    .bit = FOR_OPERATOR,
    .summary = "End the pause of a queue",
    .explanation = "Where the configuration lists several queues: of all of them, or of the one that --queue names.",
    .run = run_resume,
};

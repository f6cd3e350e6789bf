/* Pauses and resumes a queue. While the key `paused` exists, no worker claims anything; producers can still enqueue. */
#include <stdio.h>

#include "cli/session.h"

static enum status pause_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    (void)invocation;
    bool changed;
    TRY(pause_set(session, true, &changed, err));
    printf("queue %s %s paused\n", session->queue, changed ? "is" : "was already");
    return STATUS_OK;
}

static enum status resume_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    (void)invocation;
    bool changed;
    TRY(pause_set(session, false, &changed, err));
    printf("queue %s %s\n", session->queue, changed ? "goes on" : "was not paused");
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

/* Pauses and resumes a queue. While the key `paused` exists, no worker claims anything; producers can still enqueue. */
#include <stdio.h>
#include <string.h>

#include "base/duration.h"
#include "base/utf8.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "operator/orders.h"

struct own {
    char *span, *why;
};

static bool is_span(const char *text)
{
    uint64_t ms;
    return duration_parse(text, &ms) && ms > 0;
}

static bool is_reason(const char *text)
{
    size_t length = strlen(text);
    return length > 0 && length < PAUSE_WHY && utf8_valid(text, length);
}

/* clang-format off */
static const struct setting own_settings[] = {
    {.key = "for", .offset = offsetof(struct own, span), .type = SETTING_TEXT, .value = "SPAN", .accepts = is_span, .expects = DURATION_EXPECTS,
        .help = "the queue resumes by itself after so long: 90s, 30m, 2h [when somebody resumes it]"},
    {.key = "why", .offset = offsetof(struct own, why), .type = SETTING_TEXT, .value = "TEXT", .accepts = is_reason,
        .expects = "1 to 200 bytes of UTF-8", .help = "what others see as the reason"},
};
/* clang-format on */

static enum status pause_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    uint64_t for_ms = 0;
    bool changed;
    struct pause pause;
    (void)(own->span && duration_parse(own->span, &for_ms));
    TRY(order_pause(session, for_ms, own->why, &pause, &changed, err));
    printf("queue %s %s paused", session->queue, changed ? "is" : "was already");
    print_pause(stdout, &pause, session->redis_ms);
    putchar('\n');
    return STATUS_OK;
}

static enum status resume_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    (void)invocation;
    bool changed;
    TRY(order_resume(session, &changed, err));
    printf("queue %s %s\n", session->queue, changed ? "goes on" : "was not paused");
    return STATUS_OK;
}

const struct subcommand command_pause = {
    .name = "pause",
    .bit = FOR_OPERATOR,
    .summary = "Pause a queue: workers finish what they hold and take nothing more",
    .explanation =
        "Takes effect within a second. Requests can still be enqueued. Without --for it lasts until sluice resume.\n"
        "A queue that is paused already gets the new end, and the new reason if there is one. stats, workers, top,\n"
        "doctor and the dashboard say since when it is paused, until when, by whom and why. Where the\n"
        "configuration lists several queues: all of them, or the one that --queue names.",
    OWN_OPTIONS(own_settings, struct own),
    .each = pause_queue,
};

const struct subcommand command_resume = {
    .name = "resume",
    .bit = FOR_OPERATOR,
    .summary = "End the pause of a queue",
    .explanation = "Where the configuration lists several queues: of all of them, or of the one that --queue names.",
    .each = resume_queue,
};

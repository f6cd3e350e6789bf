/* Prints the reply of one request, or where the request is if it has none yet, or its whole story. */
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#include "base/duration.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "config/config.h"
#include "operator/answers.h"
#include "operator/story.h"
#include "schedule/request.h"

struct own {
    bool story, json;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
/* clang-format off */
static const struct setting own_settings[] = {
    {OWN(story), .type = SETTING_SWITCH, .fallback = "false", .help = "all that is known of it, in order of time; for an operator"},
    {OWN(json), .type = SETTING_SWITCH, .fallback = "false", .help = "with --story: as a line of JSON"},
};
/* clang-format on */

#define TOO_MANY "more requests are unfinished than are searched; its name, which XADD returned, tells more"

static void print_event(const struct story *story, const struct story_event *event)
{
    char stamp[32], age[DURATION_TEXT];
    bool past = event->at_ms <= story->now_ms;
    time_t seconds = (time_t)(event->at_ms / 1000);
    struct tm utc = {0};
    gmtime_r(&seconds, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    duration_format(past ? story->now_ms - event->at_ms : event->at_ms - story->now_ms, age);
    printf("%s.%03uZ  %s%s%s  %s: %s\n", stamp, (unsigned)(event->at_ms % 1000), past ? "" : "in ", age,
           past ? " ago" : "", event->name, event->text);
}

static enum status print_story(struct session *session, const char *id, bool json, struct err *err)
{
    struct story story;
    TRY(story_read(session, id, OWN_ID_SEARCH, true, &story, err));
    if (json) {
        struct buffer line = {0};
        answer_put_story(&line, session, id, &story);
        TRY(print_json(&line, err));
    } else {
        print_bytes(stdout, id, strlen(id));
        printf(" in queue %s: %s\n", session->queue, story.status);
        for (size_t i = 0; i < story.event_count; i++) { print_event(&story, &story.events[i]); }
        if (story.unfinished.more) { puts("(not all unfinished requests were searched: there are too many)"); }
        if (story.letters_left) { puts("(not all dead letters were looked at: sluice dead list --id finds more)"); }
    }
    if (strcmp(story.status, "unknown") != 0) { return STATUS_OK; }
    return err_set(err, STATUS_UNAVAILABLE, "nothing is known of \"%s\" in queue %s: %s", id, session->queue,
                   story.unfinished.more ? TOO_MANY
                   : story.name[0]       ? "its reply has expired or is under its own id, or it was never enqueued"
                                         : "its reply has expired, or it was never enqueued");
}

static enum status print_end(struct session *session, const char *id, struct err *err)
{
    const struct resp_value *reply;
    struct place place;
    TRY(story_find(session, id, OWN_ID_SEARCH, &reply, &place, err));
    if (reply) { return print_reply(id, reply, err); }
    struct buffer line = {0};
    answer_put_place(&line, id, &place);
    TRY(print_json(&line, err));
    const char *why = place.denied ? "only an operator's login may ask where it is"
                      : strcmp(place.status, "dead") == 0
                          ? "it has expired, but there is a dead letter: sluice get --story"
                      : strcmp(place.status, "unknown") != 0 ? "it is not finished"
                      : place.more                           ? TOO_MANY
                      : request_id_usable(id, strlen(id))
                          ? "its reply has expired, or it was never enqueued"
                          : "it has ended, and its reply has expired or is under its own id; or it was never enqueued";
    return err_set(err, STATUS_UNAVAILABLE, "no reply for \"%s\" in queue %s: %s", id, session->queue, why);
}

static int run_get(struct invocation *invocation)
{
    struct err err;
    struct session session;
    if (invocation->operand_count != 1 || strlen(invocation->operands[0]) > 128) {
        fprintf(stderr, "sluice get: needs one ID of at most 128 bytes, the one that XADD or sluice submit printed\n");
        return EX_USAGE;
    }
    const struct own *own = invocation->own;
    if (own->json && !own->story) {
        fprintf(stderr, "sluice get: --json is for --story: a reply is JSON anyway\n");
        return EX_USAGE;
    }
    if (!invocation_is_one(invocation)) { return EX_USAGE; }
    const char *id = invocation->operands[0];
    enum status status = invocation_connect(&session, invocation, &err);
    if (status == STATUS_OK) {
        invocation_warn_unused(&session, invocation);
        status = own->story ? print_story(&session, id, own->json, &err) : print_end(&session, id, &err);
    }
    session_close(&session);
    return status == STATUS_OK ? EX_OK : print_error(invocation, &err);
}

const struct subcommand command_get = {
    .name = "get",
    .bit = FOR_GET,
    .operands = "ID",
    .summary = "Print the reply of a request as one line of JSON",
    .explanation =
        "Exit 69 when there is no reply (yet). Its status is then queued, running (the line names the worker),\n"
        "later (due_at: Redis' unix ms), dead (its reply has expired, its dead letter has not) or unknown; to an\n"
        "operator. ID is the name that XADD returned, or the request's own `id`. An `id` without a reply is searched\n"
        "for among a million unfinished requests at most, and if several have it, the newest is shown.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run_get,
};

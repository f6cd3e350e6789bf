/* The requests in a queue, and its workers: counted now, not as a worker last published them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "operator/answers.h"

struct own {
    bool json;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
static const struct setting own_settings[] = {
    {OWN(json), .type = SETTING_SWITCH, .fallback = "false", .help = "one line of JSON for each queue"},
};

static void print_totals(const struct queue_counts *counts)
{
    if (counts->since_ms == 0) {
        puts("ended    nothing was counted yet");
        return;
    }
    printf("died     %" PRIu64 " worker%s since ", counts->died, counts->died == 1 ? "" : "s");
    print_time(stdout, counts->since_ms);
    printf("\n%-16s", "ended since then");
    for (int i = 0; i < CLASS_COUNT; i++) { printf(" %12s", class_names[i]); }
    putchar('\n');
    for (int end = 0; end < ENDS; end++) {
        if (end != CODE_NONE && counts->ended[0][end] + counts->ended[1][end] + counts->ended[2][end] == 0) {
            continue;
        }
        printf("%-16s", end_name(end));
        for (int i = 0; i < CLASS_COUNT; i++) { printf(" %12" PRIu64, counts->ended[i][end]); }
        putchar('\n');
    }
    if (counts->ignored > 0) {
        printf("ignored  %" PRIu64 " requests had unknown fields, which their replies name\n", counts->ignored);
    }
}

static void print_text(const struct session *session, const struct queue_counts *counts)
{
    printf("queue    %s%s\n", session->queue, counts->pause.on ? " (paused)" : "");
    if (counts->pause.on) {
        fputs("paused  ", stdout);
        print_pause(stdout, &counts->pause, session->redis_ms);
        putchar('\n');
    }
    printf("%-8s %10s %10s %14s %10s %10s\n", "class", "unread", "pending", "wait", "cap", "above cap");
    for (int i = 0; i < CLASS_COUNT; i++) {
        printf("%-8s %10lld %10lld ", class_names[i], counts->classes[i].unread, counts->classes[i].pending);
        if (counts->classes[i].wait_ms < 0) {
            printf("%14s", "unknown");
        } else {
            printf("%11lld ms", counts->classes[i].wait_ms);
        }
        if (counts->classes[i].cap > 0) {
            printf(" %10lld %10lld\n", counts->classes[i].cap, counts_above_cap(counts, i));
        } else {
            printf(" %10s %10s\n", "none", "-");
        }
    }
    printf("later    %lld\ndead     %lld\nworkers  %zu alive, %zu of them quiet\ndevices  %lu, and %lu lost\n",
           counts->later, counts->dead, counts->workers, counts->quiet, counts->devices, counts->devices_lost);
    if (counts->tight > 0) {
        printf("tight    %zu of them hold little: ", counts->tight);
        print_bytes(stdout, counts->reason, strlen(counts->reason));
        putchar('\n');
    }
    fputs(counts->workers == 0 ? "nobody computes" : "computing in", stdout);
    for (size_t i = 0; i < PRECISIONS_MAX && counts->precisions[i].workers > 0; i++) {
        printf("%s ", i == 0 ? "" : ",");
        print_bytes(stdout, counts->precisions[i].name, strlen(counts->precisions[i].name));
        printf(" (%zu)", counts->precisions[i].workers);
    }
    fputs("; pinned: ", stdout);
    const char *pinned = counts->pinned[0] != '\0' ? counts->pinned : "any";
    print_bytes(stdout, pinned, strlen(pinned));
    putchar('\n');
    print_totals(counts);
}

static enum status print_stats(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    struct queue_counts counts;
    struct heartbeats heartbeats;
    enum status status = counts_read(session, &counts, &heartbeats, err);
    heartbeats_free(&heartbeats);
    if (status) { return status; }
    if (own->json) {
        struct buffer line = {0};
        buffer_json(&line, "{");
        answer_put_counts(&line, session, &counts);
        buffer_json(&line, "}");
        return print_json(&line, err);
    }
    print_text(session, &counts);
    return STATUS_OK;
}

const struct subcommand command_stats = {
    .name = "stats",
    .bit = FOR_OPERATOR,
    .summary = "Show what waits in a queue, for how long, and who works on it",
    .explanation =
        "unread: nobody has it yet. pending: with a worker. wait: until a request that came now would be read, as\n"
        "the workers estimate it; unknown without workers, and before they know their speed. later: delayed or to\n"
        "be retried. depth (--json): what there is to do now: unread, pending, and later whose time has come.\n"
        "dead: dead letters. above cap: what workers will refuse next (sluice caps). computing in:\n"
        "how many workers in which precision (sluice pin). ended: by code and class; of a worker that dies the\n"
        "last second is not counted. ignored: requests with fields that Sluice does not know, such as mistyped\n"
        "ones. Where the configuration lists several queues, all of them, or the one that --queue names.",
    OWN_OPTIONS(own_settings, struct own),
    .each = print_stats,
};

/* What waits in a queue, and who works on it: counted now, not what a worker last published. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "cli/print.h"
#include "cli/session.h"
#include "schedule/request.h"

struct own {
    bool json, watch;
};

#define OWN(name) .key = #name, .offset = offsetof(struct own, name)
static const struct setting own_settings[] = {
    {OWN(json), .type = SETTING_SWITCH, .fallback = "false", .help = "one line of JSON for each queue"},
    {OWN(watch), .type = SETTING_SWITCH, .fallback = "false", .help = "again each second, until Ctrl-C"},
};

enum { PRECISIONS_MAX = 8 };

struct counts {
    struct {
        long long unread, pending, wait_ms; /* wait_ms: -1: unknown */
        long long cap;                      /* 0: none */
    } classes[CLASS_COUNT];
    struct {
        char name[32];
        size_t workers;
    } precisions[PRECISIONS_MAX];        /* of the workers that are alive; "" behind the last */
    char pinned[16];                     /* the one that all workers must have; "": any */
    long long later, due, dead, paused;  /* due: of `later`, those whose time has come */
    size_t workers, quiet, tight;        /* alive; of these, the quiet ones, and those that hold little, for … */
    char reason[32];                     /* … this reason, of one of them */
    unsigned long devices, devices_lost; /* of the workers that are alive */
    uint64_t published_ms_ago;
    uint64_t ended[CLASS_COUNT][ENDS], died; /* since … */
    uint64_t since_ms;                       /* … Redis unix ms; 0: nothing counted yet */
};

/* Pending entries of a stream; 0 if it does not exist or has no group yet. */
static enum status count_pending(struct session *session, const char *key, long long *out, struct err *err)
{
    const struct resp_value *reply;
    *out = 0;
    enum status status = SESSION_ASK(session, &reply, err, "XPENDING", key, "sluice");
    if (status != STATUS_OK && reply && resp_is_error(reply, "NOGROUP")) { return STATUS_OK; }
    if (status == STATUS_OK && reply->type == RESP_ARRAY && reply->count > 0) { *out = reply->items[0].integer; }
    return status;
}

static enum status count_classes(struct session *session, struct counts *counts, struct err *err)
{
    char key[SESSION_KEY];
    for (int i = 0; i < CLASS_COUNT; i++) {
        long long length, pending;
        session_key(session, class_streams[i], "", key);
        TRY(SESSION_ASK_NUMBER(session, &length, err, "XLEN", key));
        TRY(count_pending(session, key, &pending, err));
        counts->classes[i].pending = pending;
        counts->classes[i].unread = length > pending ? length - pending : 0;
    }
    return STATUS_OK;
}

/* What the workers publish, and the caps and the precision that an operator has set. */
static enum status read_meta(struct session *session, struct counts *counts, struct err *err)
{
    char key[SESSION_KEY];
    const struct resp_value *reply;
    TRY(SESSION_ASK(session, &reply, err, "HMGET", session_key(session, "meta", "", key), "wait_ms_high",
                    "wait_ms_normal", "wait_ms_low", "cap_high", "cap_normal", "cap_low", "precision", "published_at"));
    if (reply->type != RESP_ARRAY || reply->count != 2 * CLASS_COUNT + 2) {
        return err_set(err, STATUS_INTERNAL, "HMGET answered in an unknown shape");
    }
    for (size_t i = 0; i < CLASS_COUNT; i++) {
        long long cap = atoll(session_text(&reply->items[CLASS_COUNT + i]));
        counts->classes[i].wait_ms = reply->items[i].bytes ? atoll(reply->items[i].bytes) : -1;
        counts->classes[i].cap = cap > 0 ? cap : 0;
    }
    snprintf(counts->pinned, sizeof counts->pinned, "%s", session_text(&reply->items[2 * CLASS_COUNT]));
    uint64_t published = strtoull(session_text(&reply->items[2 * CLASS_COUNT + 1]), NULL, 10);
    counts->published_ms_ago = session->redis_ms > published ? session->redis_ms - published : 0;
    return STATUS_OK;
}

static long long above_cap(const struct counts *counts, int class)
{
    long long cap = counts->classes[class].cap, above = counts->classes[class].unread - cap;
    return cap > 0 && above > 0 ? above : 0;
}

/* What there is to do now: /depth of a daemon says the same. */
static long long depth(const struct counts *counts)
{
    long long sum = counts->due;
    for (int c = 0; c < CLASS_COUNT; c++) { sum += counts->classes[c].unread + counts->classes[c].pending; }
    return sum;
}

static void count_precision(struct counts *counts, const char *name)
{
    size_t i = 0;
    while (i + 1 < PRECISIONS_MAX && counts->precisions[i].workers > 0 &&
           strcmp(counts->precisions[i].name, name) != 0) {
        i++;
    }
    snprintf(counts->precisions[i].name, sizeof counts->precisions[i].name, "%s", name);
    counts->precisions[i].workers++;
}

/* The totals that lua/pulse has counted. */
static enum status read_totals(struct session *session, struct counts *counts, struct err *err)
{
    char key[SESSION_KEY], field[64];
    const struct resp_value *totals;
    TRY(SESSION_ASK(session, &totals, err, "HGETALL", session_key(session, "stats", "", key)));
    counts->since_ms = strtoull(session_text(resp_field(totals, "since")), NULL, 10);
    counts->died = strtoull(session_text(resp_field(totals, "died")), NULL, 10);
    for (int i = 0; i < CLASS_COUNT; i++) {
        for (int end = 0; end < ENDS; end++) {
            snprintf(field, sizeof field, "%s:%s", class_names[i], end_name(end));
            counts->ended[i][end] = strtoull(session_text(resp_field(totals, field)), NULL, 10);
        }
    }
    return STATUS_OK;
}

static enum status count(struct session *session, struct counts *counts, struct err *err)
{
    char key[SESSION_KEY], value[32];
    TRY(count_classes(session, counts, err));
    TRY(read_meta(session, counts, err));
    TRY(read_totals(session, counts, err));
    TRY(SESSION_ASK_NUMBER(session, &counts->later, err, "ZCARD", session_key(session, "later", "", key)));
    snprintf(value, sizeof value, "%" PRIu64, session->redis_ms);
    TRY(SESSION_ASK_NUMBER(session, &counts->due, err, "ZCOUNT", key, "-inf", value));
    TRY(SESSION_ASK_NUMBER(session, &counts->dead, err, "XLEN", session_key(session, "dead", "", key)));
    TRY(SESSION_ASK_NUMBER(session, &counts->paused, err, "EXISTS", session_key(session, "paused", "", key)));
    struct heartbeats heartbeats;
    enum status status = heartbeats_read(session, &heartbeats, err);
    for (size_t i = 0; i < heartbeats.count; i++) {
        const struct heartbeat_line *line = &heartbeats.lines[i];
        if (!line->alive) { continue; }
        counts->workers++;
        heartbeat_value(line, "precision", value, sizeof value);
        count_precision(counts, value[0] != '\0' ? value : "unknown"); /* a worker of an older version */
        counts->quiet += strcmp(heartbeat_value(line, "state", value, sizeof value), "quiet") == 0;
        if (strcmp(heartbeat_value(line, "state", value, sizeof value), "tight") == 0) {
            counts->tight++;
            heartbeat_value(line, "reason", counts->reason, sizeof counts->reason);
        }
        counts->devices += strtoul(heartbeat_value(line, "devices", value, sizeof value), NULL, 10);
        counts->devices_lost += strtoul(heartbeat_value(line, "devices_lost", value, sizeof value), NULL, 10);
    }
    heartbeats_free(&heartbeats);
    for (int i = 0; i < CLASS_COUNT; i++) {
        if (counts->workers == 0 || counts->published_ms_ago > HEARTBEAT_FRESH_MS) {
            counts->classes[i].wait_ms = -1; /* an estimate by a worker that is gone */
        } else if (counts->workers > counts->quiet && !counts->paused && counts->classes[i].wait_ms < 0 &&
                   counts->classes[i].unread == 0) {
            counts->classes[i].wait_ms = 0; /* even if they do not know their speed yet */
        }
    }
    return status;
}

static void print_totals(const struct counts *counts)
{
    char since[32] = "";
    time_t seconds = (time_t)(counts->since_ms / 1000);
    struct tm utc;
    if (counts->since_ms == 0) {
        puts("ended    nothing was counted yet");
        return;
    }
    if (gmtime_r(&seconds, &utc)) { strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &utc); }
    printf("died     %" PRIu64 " workers since %s\n%-16s", counts->died, since, "ended since then");
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
}

/* A number as JSON; null if there is none. */
static const char *or_null(long long number, bool there, char text[24])
{
    snprintf(text, 24, "%lld", number);
    return there ? text : "null";
}

static void print_json_totals(const struct counts *counts)
{
    char since[24];
    printf(",\"died\":%" PRIu64 ",\"since\":%s,\"ended\":{", counts->died,
           or_null((long long)counts->since_ms, counts->since_ms > 0, since));
    for (int i = 0; i < CLASS_COUNT; i++) {
        printf("%s\"%s\":{\"done\":%" PRIu64, i == 0 ? "" : ",", class_names[i], counts->ended[i][CODE_NONE]);
        for (int end = CODE_NONE + 1; end < ENDS; end++) {
            if (counts->ended[i][end] > 0) { printf(",\"%s\":%" PRIu64, end_name(end), counts->ended[i][end]); }
        }
        putchar('}');
    }
    putchar('}');
}

static void print_text(const struct session *session, const struct counts *counts)
{
    printf("queue    %s%s\n", session->queue, counts->paused ? " (paused)" : "");
    printf("%-8s %10s %10s %14s %10s %10s\n", "class", "unread", "pending", "wait", "cap", "above cap");
    for (int i = 0; i < CLASS_COUNT; i++) {
        printf("%-8s %10lld %10lld ", class_names[i], counts->classes[i].unread, counts->classes[i].pending);
        if (counts->classes[i].wait_ms < 0) {
            printf("%14s", "unknown");
        } else {
            printf("%11lld ms", counts->classes[i].wait_ms);
        }
        if (counts->classes[i].cap > 0) {
            printf(" %10lld %10lld\n", counts->classes[i].cap, above_cap(counts, i));
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

static void print_json(const struct session *session, const struct counts *counts)
{
    printf("{\"queue\":\"%s\",\"paused\":%s,\"classes\":{", session->queue, counts->paused ? "true" : "false");
    for (int i = 0; i < CLASS_COUNT; i++) {
        char wait[24], cap[24];
        printf("%s\"%s\":{\"unread\":%lld,\"pending\":%lld,\"wait_ms\":%s,\"cap\":%s,\"above_cap\":%lld}",
               i == 0 ? "" : ",", class_names[i], counts->classes[i].unread, counts->classes[i].pending,
               or_null(counts->classes[i].wait_ms, counts->classes[i].wait_ms >= 0, wait),
               or_null(counts->classes[i].cap, counts->classes[i].cap > 0, cap), above_cap(counts, i));
    }
    printf("},\"depth\":%lld,\"later\":%lld,\"due\":%lld,\"dead\":%lld,\"workers\":%zu,\"quiet\":%zu,\"devices\":%lu,"
           "\"devices_lost\":%lu,"
           "\"tight\":%zu,\"reason\":",
           depth(counts), counts->later, counts->due, counts->dead, counts->workers, counts->quiet, counts->devices,
           counts->devices_lost, counts->tight);
    if (counts->tight == 0) {
        fputs("null", stdout);
    } else {
        printf("\"memory:%lu%%\"", strtoul(counts->reason + strcspn(counts->reason, "0123456789"), NULL, 10));
    }
    fputs(",\"precisions\":{", stdout);
    for (size_t i = 0; i < PRECISIONS_MAX && counts->precisions[i].workers > 0; i++) {
        fputs(i == 0 ? "" : ",", stdout);
        print_json_string(stdout, counts->precisions[i].name, strlen(counts->precisions[i].name));
        printf(":%zu", counts->precisions[i].workers);
    }
    fputs("},\"pinned_precision\":", stdout);
    print_json_text(counts->pinned);
    print_json_totals(counts);
    printf(",\"at\":%" PRIu64 "}\n", session->redis_ms);
}

static enum status body(struct session *session, const struct invocation *invocation, struct err *err)
{
    const struct own *own = invocation->own;
    struct counts counts = {0};
    TRY(count(session, &counts, err));
    if (own->json) {
        print_json(session, &counts);
    } else {
        print_text(session, &counts);
    }
    return STATUS_OK;
}

/* Goes on while Redis is away: this is when people watch. Ends when its reader is gone (`| head`). */
static int watch(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    const volatile sig_atomic_t *interrupted = interrupt_listen();
    bool screen = !own->json && isatty(STDOUT_FILENO);
    int code = EX_OK;
    while (*interrupted == 0 && (code == EX_OK || code == EX_UNAVAILABLE)) {
        if (screen) { fputs("\033[H\033[2J", stdout); }
        code = session_run(invocation, body);
        if (!screen && !own->json) { putchar('\n'); }
        if (fflush(stdout) != 0 || ferror(stdout)) { break; }
        if (*interrupted == 0) { nanosleep(&(struct timespec){.tv_sec = 1}, NULL); }
    }
    return *interrupted != 0 ? EX_OK : code;
}

static int run(struct invocation *invocation)
{
    const struct own *own = invocation->own;
    return own->watch ? watch(invocation) : session_run(invocation, body);
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
        "last second is not counted. Where the configuration lists several queues, all of them, or the one that\n"
        "--queue names.",
    OWN_OPTIONS(own_settings, struct own),
    .run = run,
};

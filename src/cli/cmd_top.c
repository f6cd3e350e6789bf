/* Shows the queues live: waiting requests, answers a second, and the work of each worker. Rates are between two looks.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>
#include <unistd.h>

#include "base/duration.h"
#include "cli/invocation.h"
#include "cli/print.h"
#include "operator/counts.h"
#include "operator/heartbeats.h"

enum { EVERY_S = 2 };

/* The counters of a worker since its start. */
enum total { TOTAL_DONE, TOTAL_ERRORS, TOTAL_BATCHES, TOTAL_ROWS, TOTAL_TOKENS, TOTAL_COMPUTED, TOTALS };
static const char *const totals[TOTALS] = {"done", "errors", "batches", "rows", "tokens", "computed_tokens"};

struct worker_look {
    char worker[128];
    uint64_t spoke_ms; /* the last heartbeat, in Redis' unix ms */
    double totals[TOTALS];
};

/* A look at a queue. */
struct look {
    char *queue;
    char *unused; /* invocation_unused at the first look */
    uint64_t redis_ms;
    uint64_t ended[CLASS_COUNT][ENDS];
    struct worker_look *workers;
    size_t worker_count;
};

struct own {
    struct look *looks; /* [look_count] */
    size_t look_count;
};

static void free_looks(struct own *own)
{
    for (size_t i = 0; i < own->look_count; i++) {
        free(own->looks[i].queue);
        free(own->looks[i].unused);
        free(own->looks[i].workers);
    }
    free(own->looks);
}

/* The last look at a queue, empty before the first one; NULL without memory. */
static struct look *find_look(struct own *own, const char *queue)
{
    for (size_t i = 0; i < own->look_count; i++) {
        if (strcmp(own->looks[i].queue, queue) == 0) { return &own->looks[i]; }
    }
    struct look *more = realloc(own->looks, (own->look_count + 1) * sizeof *more);
    if (!more) { return NULL; }
    own->looks = more;
    struct look *look = &more[own->look_count];
    *look = (struct look){.queue = strdup(queue)};
    if (!look->queue) { return NULL; }
    own->look_count++;
    return look;
}

/* --- classes --- */

/* Requests a second that ended: done, or in any other way. */
static double ended_per_s(const struct look *before, const struct queue_counts *counts, int class, bool done,
                          double seconds)
{
    uint64_t ended = 0;
    for (int end = 0; end < ENDS; end++) {
        bool counted = (end == CODE_NONE) == done && counts->ended[class][end] > before->ended[class][end];
        ended += counted ? counts->ended[class][end] - before->ended[class][end] : 0;
    }
    return seconds > 0 ? (double)ended / seconds : 0;
}

static void print_classes(const struct look *before, const struct queue_counts *counts, double seconds)
{
    printf("%-8s %10s %10s %12s %10s %10s\n", "class", "unread", "pending", "wait", "done/s", "others/s");
    for (int c = 0; c < CLASS_COUNT; c++) {
        char wait[DURATION_TEXT] = "unknown";
        if (counts->classes[c].wait_ms >= 0) { duration_format((uint64_t)counts->classes[c].wait_ms, wait); }
        printf("%-8s %10lld %10lld %12s %10.1f %10.1f\n", class_names[c], counts->classes[c].unread,
               counts->classes[c].pending, wait, ended_per_s(before, counts, c, true, seconds),
               ended_per_s(before, counts, c, false, seconds));
    }
}

/* --- workers --- */

static struct worker_look look_at(const struct session *session, const struct heartbeat_line *line)
{
    char value[32];
    struct worker_look look = {.spoke_ms = session->redis_ms - line->age_ms};
    snprintf(look.worker, sizeof look.worker, "%s", line->worker);
    for (int i = 0; i < TOTALS; i++) {
        look.totals[i] = strtod(heartbeat_value(line, totals[i], value, sizeof value), NULL);
    }
    return look;
}

/* A worker's counts since the last look; `now` itself if it was not there or has sent no heartbeat since. */
static struct worker_look count_since(const struct look *before, struct worker_look now, double *seconds)
{
    *seconds = 0;
    for (size_t i = 0; i < before->worker_count; i++) {
        const struct worker_look *was = &before->workers[i];
        if (strcmp(was->worker, now.worker) != 0 || was->spoke_ms >= now.spoke_ms) { continue; }
        *seconds = (double)(now.spoke_ms - was->spoke_ms) / 1e3;
        for (int k = 0; k < TOTALS; k++) { now.totals[k] -= was->totals[k]; }
    }
    return now;
}

static double divide_parts(double part, double whole)
{
    return whole > 0 ? part / whole : 0;
}

static void print_worker(const struct look *before, struct worker_look now, const struct heartbeat_line *line)
{
    char state[16], precision[16], held[16], waiting[16], spoke[DURATION_TEXT];
    double seconds, *counted = now.totals;
    now = count_since(before, now, &seconds);
    heartbeat_value(line, "state", state, sizeof state);
    heartbeat_value(line, "precision", precision, sizeof precision);
    heartbeat_value(line, "held", held, sizeof held);
    heartbeat_value(line, "waiting", waiting, sizeof waiting);
    printf("%-9.9s %-5.5s %6.15s %7.15s %9.1f %9.1f %10.1f %12.1f %7.1f%% %6s  ", line->alive ? state : "dead",
           precision, held, waiting, divide_parts(counted[TOTAL_DONE], seconds),
           divide_parts(counted[TOTAL_ERRORS], seconds), divide_parts(counted[TOTAL_ROWS], counted[TOTAL_BATCHES]),
           divide_parts(counted[TOTAL_TOKENS], counted[TOTAL_BATCHES]),
           100 * divide_parts(counted[TOTAL_COMPUTED] - counted[TOTAL_TOKENS], counted[TOTAL_COMPUTED]),
           duration_format(line->age_ms, spoke));
    print_bytes(stdout, line->worker, strlen(line->worker));
    putchar('\n');
}

static enum status print_workers(const struct session *session, struct look *look, const struct heartbeats *heartbeats,
                                 struct err *err)
{
    struct worker_look *workers = calloc(heartbeats->count + 1, sizeof *workers);
    if (!workers) { return err_set(err, STATUS_NO_MEMORY, "no memory for the workers"); }
    if (heartbeats->count > 0) {
        printf("%-9s %-5s %6s %7s %9s %9s %10s %12s %8s %6s  %s\n", "state", "in", "held", "waiting", "done/s",
               "errors/s", "rows/batch", "tokens/batch", "padding", "spoke", "worker");
    }
    for (size_t i = 0; i < heartbeats->count; i++) {
        workers[i] = look_at(session, &heartbeats->lines[i]);
        print_worker(look, workers[i], &heartbeats->lines[i]);
    }
    free(look->workers);
    look->workers = workers;
    look->worker_count = heartbeats->count;
    return STATUS_OK;
}

/* --- the screen --- */

static enum status show_queue(struct session *session, struct look *look, const struct queue_counts *counts,
                              const struct heartbeats *heartbeats, struct err *err)
{
    double seconds = look->redis_ms > 0 ? (double)(session->redis_ms - look->redis_ms) / 1e3 : 0;
    printf("queue %s", session->queue);
    if (counts->pause.on) {
        fputs(" (paused", stdout);
        print_pause(stdout, &counts->pause, session->redis_ms);
        putchar(')');
    }
    printf(": later %lld, %lld due; dead letters %lld; workers %zu, %zu quiet, %zu tight\n", counts->later, counts->due,
           counts->dead, counts->workers, counts->quiet, counts->tight);
    if (counts->workers == 0 && look->redis_ms == 0) { look->unused = invocation_unused(session); }
    if (counts->workers == 0 && look->unused) { puts(look->unused); }
    print_classes(look, counts, seconds);
    TRY(print_workers(session, look, heartbeats, err));
    putchar('\n');
    memcpy(look->ended, counts->ended, sizeof look->ended);
    look->redis_ms = session->redis_ms;
    return STATUS_OK;
}

static enum status look_at_queue(struct session *session, const struct invocation *invocation, struct err *err)
{
    struct look *look = find_look(invocation->own, session->queue);
    if (!look) { return err_set(err, STATUS_NO_MEMORY, "no memory for the queues"); }
    struct queue_counts counts;
    struct heartbeats heartbeats;
    enum status status = counts_read(session, &counts, &heartbeats, err);
    if (status == STATUS_OK) { status = show_queue(session, look, &counts, &heartbeats, err); }
    heartbeats_free(&heartbeats);
    return status;
}

/* Continues while Redis is away, because people watch then. Ends when its reader is gone (`| head`). */
static int run_top(struct invocation *invocation)
{
    const volatile sig_atomic_t *interrupted = interrupt_listen();
    bool screen = isatty(STDOUT_FILENO);
    int code = EX_OK;
    while (*interrupted == 0 && (code == EX_OK || code == EX_UNAVAILABLE)) {
        if (screen) { fputs("\033[H\033[2J", stdout); }
        code = invocation_look(invocation, look_at_queue);
        if (fflush(stdout) != 0 || ferror(stdout)) { break; }
        if (*interrupted == 0) { nanosleep(&(struct timespec){.tv_sec = EVERY_S}, NULL); }
    }
    free_looks(invocation->own);
    return *interrupted != 0 ? EX_OK : code;
}

const struct subcommand command_top = {
    .name = "top",
    .bit = FOR_OPERATOR,
    .summary = "Watch the queues and their workers, every two seconds until Ctrl-C",
    .explanation =
        "done/s, others/s, errors/s: requests that ended since the last look, answered with a result or otherwise\n"
        "(errors, cancels). rows/batch, tokens/batch, padding: of the batches since then; of all batches at the first\n"
        "look at a worker, and while it is silent. in: the precision. spoke: how old the heartbeat is that its line\n"
        "shows. The other words are those of sluice stats and sluice workers.",
    .own_size = sizeof(struct own),
    .run = run_top,
};

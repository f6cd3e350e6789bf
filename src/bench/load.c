#include "bench/load.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/random.h"

enum {
    PIPELINE = 64,      /* requests sent before their ids are awaited */
    RATE_MOST = 200000, /* requests per second for which memory is allocated */
    SILENCE_MS = 60000, /* the longest time without a reply */
    LOOK_MS = 100,      /* how often to check the daemon, and for Ctrl-C */
    TEXT = 64,
};

/* The requests to send, and their answers. */
struct run {
    const struct trial *trial;
    struct child *daemon;            /* must live as long as the run */
    const struct arrivals *arrivals; /* NULL: `outstanding` requests always wait */
    uint32_t outstanding;
    struct load_result *result;
    char prefix[TEXT]; /* of the ids of this run */
    char last[TEXT];   /* last entry read from the results stream */
    uint64_t begin_ns;
    size_t capacity;
    uint64_t *intended_ns; /* [capacity], since the beginning */
    uint64_t *answered_ns; /* [capacity], since the beginning; 0: not yet. Owns: the receiver, until it ends */
    struct buffer text;

    pthread_t receiver;
    sem_t news; /* the receiver has got replies, or has ended */
    atomic_size_t answered;
    atomic_bool over;   /* makes the receiver end */
    atomic_bool broken; /* the receiver has ended by itself */
    enum status status; /* why */
    struct err err;
};

/* ---- the receiver's ---- */

static void take_result(struct run *run, const struct resp_value *entry, uint64_t now_ns)
{
    if (entry->count != 2 || !entry->items[0].bytes) { return; }
    snprintf(run->last, sizeof run->last, "%s", entry->items[0].bytes);
    const struct resp_value *id = resp_field(&entry->items[1], "id");
    const struct resp_value *status = resp_field(&entry->items[1], "status");
    size_t prefix = strlen(run->prefix);
    if (!id || !id->bytes || !status || strncmp(id->bytes, run->prefix, prefix) != 0) { return; }
    size_t number = strtoull(id->bytes + prefix, NULL, 10);
    if (number >= run->capacity) { return; }
    if (run->answered_ns[number] != 0) {
        run->result->doubled++;
        return;
    }
    run->answered_ns[number] = now_ns - run->begin_ns;
    run->result->failed += !resp_equals(status, "done");
    atomic_fetch_add(&run->answered, 1);
}

static enum status receive(struct run *run, struct err *err)
{
    enum { BLOCK_MS = 100 };
    struct client *client;
    char key[STAGE_KEY];
    const struct resp_value *reply;
    TRY(client_open(&run->trial->stage->address, STAGE_TIMEOUT_MS, &client, err));
    stage_key(run->trial->stage, "results:bench", key);
    enum status status = STATUS_OK;
    while (status == STATUS_OK && !atomic_load(&run->over)) {
        const char *words[] = {"XREAD", "BLOCK", "100", "COUNT", "1000", "STREAMS", key, run->last};
        status = client_send(client, sizeof words / sizeof words[0], words, NULL, BLOCK_MS, err);
        if (status == STATUS_OK) { status = client_receive(client, &reply, err); }
        if (status != STATUS_OK || reply->count != 1 || reply->items[0].count != 2) { continue; }
        const struct resp_value *entries = &reply->items[0].items[1];
        uint64_t now_ns = clock_now_ns();
        for (size_t i = 0; i < entries->count; i++) { take_result(run, &entries->items[i], now_ns); }
        (void)sem_post(&run->news);
    }
    client_close(client);
    return status;
}

static void *receiver(void *argument)
{
    struct run *run = argument;
    run->status = receive(run, &run->err);
    atomic_store(&run->broken, run->status != STATUS_OK);
    (void)sem_post(&run->news);
    return NULL;
}

/* ---- the sender's ---- */

static enum status send_one(struct run *run, uint64_t intended_ns, struct err *err)
{
    struct stage *stage = run->trial->stage;
    char key[STAGE_KEY], id[2 * TEXT];
    size_t number = run->result->sent;
    run->intended_ns[number] = intended_ns;
    texts_put(run->trial->texts, number, &run->text);
    if (!buffer_ok(&run->text)) { return err_set(err, STATUS_NO_MEMORY, "no memory for a text"); }
    snprintf(id, sizeof id, "%s%zu", run->prefix, number);
    const char *words[] = {"XADD",
                           stage_key(stage, "requests", key),
                           "*",
                           "text",
                           run->text.data,
                           "id",
                           id,
                           "encoding",
                           "f32",
                           "ttl",
                           "600",
                           "notify",
                           "stream:bench"};
    size_t lengths[sizeof words / sizeof words[0]];
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        lengths[i] = i == 4 ? run->text.length : strlen(words[i]);
    }
    run->result->sent++;
    return client_send(stage->client, sizeof words / sizeof words[0], words, lengths, 0, err);
}

static enum status take_ids(struct run *run, size_t count, struct err *err)
{
    const struct resp_value *id;
    for (size_t i = 0; i < count; i++) { TRY(client_receive(run->trial->stage->client, &id, err)); }
    return STATUS_OK;
}

static uint64_t since_begin(const struct run *run)
{
    return clock_now_ns() - run->begin_ns;
}

static void sleep_until(const struct run *run, uint64_t at_ns)
{
    uint64_t then = run->begin_ns + at_ns;
    struct timespec when = {(time_t)(then / NS_PER_S), (long)(then % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
        ;
}

static enum status check(struct run *run, struct err *err)
{
    if (atomic_load(&run->broken)) { return err_set(err, run->err.status, "%s", run->err.message); }
    if (!child_running(run->daemon)) { return child_gone(run->daemon, err); }
    return stage_check(run->trial->stage, err);
}

static enum status send_arrivals(struct run *run, struct err *err)
{
    const uint64_t look_ns = LOOK_MS * NS_PER_MS;
    const struct arrivals *arrivals = run->arrivals;
    for (size_t at = 0; at < arrivals->count;) {
        uint64_t now = since_begin(run);
        if (arrivals->at_ns[at] > now) {
            sleep_until(run, arrivals->at_ns[at] < now + look_ns ? arrivals->at_ns[at] : now + look_ns);
            TRY(check(run, err));
            continue;
        }
        size_t sent = 0;
        for (; sent < PIPELINE && at < arrivals->count && arrivals->at_ns[at] <= now; sent++, at++) {
            TRY(send_one(run, arrivals->at_ns[at], err));
        }
        TRY(take_ids(run, sent, err));
    }
    return STATUS_OK;
}

/* Sleeps until there are replies: frequent looks would take time from the daemon on a machine with few cores. */
static void await_news(struct run *run)
{
    struct timespec ends;
    clock_gettime(CLOCK_REALTIME, &ends);
    ends.tv_nsec += LOOK_MS * (long)NS_PER_MS;
    ends.tv_sec += ends.tv_nsec / (long)NS_PER_S;
    ends.tv_nsec %= (long)NS_PER_S;
    (void)sem_timedwait(&run->news, &ends);
    while (sem_trywait(&run->news) == 0) {} /* all replies that came meanwhile are handled at once */
}

static enum status keep_up(struct run *run, struct err *err)
{
    for (uint64_t now; (now = since_begin(run)) < run->trial->for_ns;) {
        size_t waiting = run->result->sent - atomic_load(&run->answered), sent = 0;
        for (; waiting + sent < run->outstanding && sent < PIPELINE && run->result->sent < run->capacity; sent++) {
            TRY(send_one(run, now, err));
        }
        TRY(take_ids(run, sent, err));
        if (sent == 0) { await_news(run); }
        TRY(check(run, err));
    }
    return STATUS_OK;
}

static enum status await_replies(struct run *run, struct err *err)
{
    static const struct timespec pause = {0, NS_PER_MS};
    size_t seen = atomic_load(&run->answered);
    uint64_t ends_ms = clock_now_ms() + SILENCE_MS;
    for (size_t now; (now = atomic_load(&run->answered)) < run->result->sent; nanosleep(&pause, NULL)) {
        if (now != seen) { ends_ms = clock_now_ms() + SILENCE_MS; }
        seen = now;
        TRY(check(run, err));
        if (clock_now_ms() > ends_ms) {
            return err_set(err, STATUS_TIMEOUT, "%zu of %zu requests have no reply after %d s of silence",
                           run->result->sent - now, run->result->sent, SILENCE_MS / 1000);
        }
    }
    return STATUS_OK;
}

/* ---- both ---- */

static void summarize(struct run *run)
{
    struct load_result *result = run->result;
    uint64_t for_ns = run->trial->for_ns;
    uint64_t last_ns = 0;
    size_t counted = 0;
    for (size_t i = 0; i < result->sent; i++) {
        uint64_t at = run->answered_ns[i];
        last_ns = at > last_ns ? at : last_ns;
        counted += run->arrivals != NULL || (at >= for_ns / 5 && at < for_ns);
        sample_add(&result->latency_ms, ((double)at - (double)run->intended_ns[i]) / NS_PER_MS);
    }
    result->answered = atomic_load(&run->answered);
    result->seconds = (double)last_ns / NS_PER_S;
    result->texts_per_s = (double)counted / (run->arrivals ? result->seconds : 0.8e-9 * (double)for_ns);
    if (counted == 0) { /* the run was so short that nothing came back */
        result->texts_per_s = (double)result->sent / result->seconds;
    }
}

static enum status run_threads(struct run *run, struct err *err)
{
    run->begin_ns = clock_now_ns();
    if (sem_init(&run->news, 0, 0) != 0) { return err_set_errno(err, "sem_init"); }
    if (pthread_create(&run->receiver, NULL, receiver, run) != 0) {
        (void)sem_destroy(&run->news);
        return err_set(err, STATUS_IO, "cannot start a thread");
    }
    enum status status = run->arrivals ? send_arrivals(run, err) : keep_up(run, err);
    if (status == STATUS_OK) { status = await_replies(run, err); }
    atomic_store(&run->over, true);
    pthread_join(run->receiver, NULL);
    (void)sem_destroy(&run->news);
    return status;
}

/* Requests that fill the batches of all threads a few times, but are few enough to finish soon at the end. */
enum { OUTSTANDING_TOKENS = 32768, OUTSTANDING_LEAST = 64, OUTSTANDING_MOST = 4096, USUAL_TOKENS = 56 };

static uint32_t outstanding_of(const struct trial *trial)
{
    uint32_t tokens = trial->texts->tokens == 0 ? USUAL_TOKENS : trial->texts->tokens;
    uint32_t count = OUTSTANDING_TOKENS / tokens;
    if (trial->outstanding > 0) { return trial->outstanding; }
    return count < OUTSTANDING_LEAST ? OUTSTANDING_LEAST : count > OUTSTANDING_MOST ? OUTSTANDING_MOST : count;
}

/* Sends all requests and waits for every reply. Other replies in the results stream are of earlier runs, and have
 * another prefix. */
static enum status run_load(const struct trial *trial, struct child *daemon, const struct arrivals *arrivals,
                            struct load_result *out, struct err *err)
{
    struct run run = {.trial = trial,
                      .daemon = daemon,
                      .arrivals = arrivals,
                      .outstanding = outstanding_of(trial),
                      .result = out,
                      .last = "0-0"};
    *out = (struct load_result){0};
    run.capacity = arrivals ? arrivals->count : run.outstanding + (size_t)(trial->for_ns * (RATE_MOST / 1e9));
    snprintf(run.prefix, sizeof run.prefix, "b%llx.", (unsigned long long)clock_now_ns());
    run.intended_ns = calloc(run.capacity, sizeof *run.intended_ns);
    run.answered_ns = calloc(run.capacity, sizeof *run.answered_ns);
    enum status status;
    if (!run.intended_ns || !run.answered_ns) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for %zu requests", run.capacity);
    } else if ((status = run_threads(&run, err)) == STATUS_OK) {
        summarize(&run);
    }
    if (status == STATUS_OK && out->latency_ms.broken) {
        status = err_set(err, STATUS_NO_MEMORY, "no memory for %zu latencies", out->sent);
    }
    buffer_free(&run.text);
    free(run.intended_ns);
    free(run.answered_ns);
    return status;
}

/* Sends one request and waits for its reply, after which the daemon is ready. */
static enum status warm_up(const struct trial *trial, struct child *daemon, struct err *err)
{
    uint64_t at_once = 0;
    struct load_result result;
    enum status status = run_load(trial, daemon, &(struct arrivals){&at_once, 1}, &result, err);
    sample_free(&result.latency_ms);
    return status;
}

/* Stretches the gaps so that the next request would come at the end: a Poisson process with a known number of
 * arrivals. */
enum status arrivals_make(double rate, uint64_t for_ns, uint64_t seed, struct arrivals *out, struct err *err)
{
    double for_s = (double)for_ns / (double)NS_PER_S, sum = 0, at = 0;
    size_t count = (size_t)fmax(1, round(rate * for_s));
    uint64_t again = seed;
    *out = (struct arrivals){calloc(count, sizeof *out->at_ns), count};
    if (!out->at_ns) { return err_set(err, STATUS_NO_MEMORY, "no memory for %zu arrivals", count); }
    for (size_t i = 0; i < count; i++) { sum -= log(1 - random_share(&seed)); }
    for (size_t i = 0; i < count; i++) {
        out->at_ns[i] = (uint64_t)(at / sum * (double)for_ns);
        at -= log(1 - random_share(&again));
    }
    return STATUS_OK;
}

static enum status run_daemon(const struct trial *trial, struct child *daemon, const struct arrivals *arrivals,
                              struct trial_result *out, struct err *err)
{
    TRY(stage_daemon(trial->stage, trial->flags, daemon, err));
    TRY(warm_up(trial, daemon, err));
    TRY(run_load(trial, daemon, arrivals, &out->load, err));
    TRY(stage_end_daemon(daemon, &out->counts, err));
    out->mean_tokens = out->counts.tokens / out->counts.rows;
    out->cpu_s = daemon->cpu_s;
    out->peak_mb = daemon->peak_mb;
    return stage_clear(trial->stage, "*", err);
}

enum status trial_run(const struct trial *trial, struct trial_result *out, struct err *err)
{
    struct child daemon = {0};
    struct arrivals arrivals = {0};
    bool random = !isnan(trial->offered);
    *out = (struct trial_result){0};
    if (random) { TRY(arrivals_make(trial->offered, trial->for_ns, 1, &arrivals, err)); }
    enum status status = run_daemon(trial, &daemon, random ? &arrivals : NULL, out, err);
    child_stop(&daemon, SIGKILL, 0);
    free(arrivals.at_ns);
    return status;
}

void trial_free(struct trial_result *result)
{
    sample_free(&result->load.latency_ms);
}

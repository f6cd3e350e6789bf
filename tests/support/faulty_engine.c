/* An engine that fails on demand, around the real one: the daemon of the fault tests is the shipped one, linked with
 * --wrap of engine_open, encoder_put, encoder_take, request_parse and this file, so that the product has no hook for
 * tests.
 *
 * FAULTY_ENGINE names what happens when a token is in a batch, separated by spaces, each `kind:token[:argument]`:
 *   crash   the process dies by SIGKILL, as it would by a broken driver
 *   error   STATUS_INTERNAL     oom   STATUS_NO_MEMORY
 *   lost    STATUS_DEVICE_LOST, from then on for every batch of the thread; with `argument`, in as many passes only
 *   nan     the rows with the token come back as NaN, STATUS_NON_FINITE
 *   flaky   like error, in the first `argument` passes only
 *   slow    the pass takes `argument` milliseconds longer
 *   held    the pass lasts as long as the file is there that FAULTY_ENGINE_GATE names
 *   crowd   STATUS_NO_MEMORY in passes of more than `argument` rows, whatever their tokens (token: 0)
 *   dead    the device of that number (not a token) is lost when it is opened
 * FAULTY_PARSER is a word that kills the process that parses an entry with it (kind: parse).
 * FAULTY_ENGINE_DIM is the model's dim, for nan. Each fault that fires appends its kind as a line to the file that
 * FAULTY_ENGINE_LOG names. */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "schedule/request.h"

enum { FAULTS_MAX = 16 };

struct fault {
    char kind[16];
    int32_t token;
    long argument;
};

enum status __real_engine_open(const struct model *, const struct engine_options *, struct engine **, struct err *);
enum status __wrap_engine_open(const struct model *, const struct engine_options *, struct engine **, struct err *);
enum status __real_encoder_put(struct encoder *encoder, const struct engine_batch *batch, struct err *err);
enum status __wrap_encoder_put(struct encoder *encoder, const struct engine_batch *batch, struct err *err);
enum status __real_encoder_take(struct encoder *encoder, struct err *err);
enum status __wrap_encoder_take(struct encoder *encoder, struct err *err);
struct request *__real_request_parse(const struct request_rules *, const struct entry *, uint64_t now_ns);
struct request *__wrap_request_parse(const struct request_rules *, const struct entry *, uint64_t now_ns);

/* The state of this compute thread, which has one batch at a time. */
static _Thread_local struct {
    const struct engine_batch *batch; /* put and not taken */
    bool lost;
} here;

/* Read at every pass, so that nothing has to be kept between passes. */
static size_t read_faults(struct fault faults[FAULTS_MAX])
{
    const char *text = getenv("FAULTY_ENGINE");
    size_t count = 0;
    while (text != NULL && count < FAULTS_MAX) {
        struct fault *fault = &faults[count];
        *fault = (struct fault){.argument = 0};
        if (sscanf(text, " %15[a-z]:%d:%ld", fault->kind, &fault->token, &fault->argument) < 2) { break; }
        count++;
        text = strchr(text, ' ');
        text = text == NULL ? NULL : text + 1;
    }
    return count;
}

static bool row_has(const struct engine_batch *batch, uint32_t row, int32_t token)
{
    for (uint32_t i = 0; i < batch->length[row]; i++) {
        if (batch->ids[batch->start[row] + i] == token) { return true; }
    }
    return false;
}

static bool batch_has(const struct engine_batch *batch, int32_t token)
{
    for (uint32_t row = 0; row < batch->rows; row++) {
        if (row_has(batch, row, token)) { return true; }
    }
    return false;
}

/* Logs that this kind fires, unless it has fired `limit` times already (0: no limit), and returns whether it fires. The
 * count is kept in the log, which outlives the process. It is locked, because two threads may reach their last pass at
 * once. */
static bool fires(const char *kind, long limit)
{
    const char *path = getenv("FAULTY_ENGINE_LOG");
    FILE *log = path == NULL ? NULL : fopen(path, "a+");
    if (log == NULL) { return true; }
    flock(fileno(log), LOCK_EX);
    long before = 0;
    char line[64];
    while (fgets(line, sizeof line, log) != NULL) {
        before += strncmp(line, kind, strlen(kind)) == 0 && line[strlen(kind)] == '\n';
    }
    bool fired = limit == 0 || before < limit;
    if (fired) { fprintf(log, "%s\n", kind); }
    fclose(log);
    return fired;
}

static void pause_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* `status`, or STATUS_OK when the kind has fired `limit` times already. */
static enum status fail_upto(struct err *err, enum status status, const char *kind, long limit)
{
    return fires(kind, limit) ? err_set(err, status, "injected: %s", kind) : STATUS_OK;
}

static enum status fail(struct err *err, enum status status, const char *kind)
{
    return fail_upto(err, status, kind, 0);
}

static void spoil(const struct engine_batch *batch, int32_t token, uint32_t dim)
{
    for (uint32_t row = 0; row < batch->rows; row++) {
        for (uint32_t i = 0; i < dim && row_has(batch, row, token); i++) { batch->output[(size_t)row * dim + i] = NAN; }
    }
}

/* Applies the fault before the pass; STATUS_OK when the pass may go on. */
static enum status before_pass(const struct fault *fault, const struct engine_batch *batch, struct err *err)
{
    if (strcmp(fault->kind, "crowd") == 0) {
        return batch->rows > (uint32_t)fault->argument ? fail(err, STATUS_NO_MEMORY, "crowd") : STATUS_OK;
    }
    if (strcmp(fault->kind, "dead") == 0 || !batch_has(batch, fault->token)) { return STATUS_OK; }
    if (strcmp(fault->kind, "crash") == 0) {
        fires("crash", 0);
        kill(getpid(), SIGKILL);
    }
    if (strcmp(fault->kind, "error") == 0) { return fail(err, STATUS_INTERNAL, "error"); }
    if (strcmp(fault->kind, "oom") == 0) { return fail(err, STATUS_NO_MEMORY, "oom"); }
    if (strcmp(fault->kind, "lost") == 0) {
        enum status status = fail_upto(err, STATUS_DEVICE_LOST, "lost", fault->argument);
        here.lost = status != STATUS_OK;
        return status;
    }
    if (strcmp(fault->kind, "flaky") == 0) { return fail_upto(err, STATUS_INTERNAL, "flaky", fault->argument); }
    if (strcmp(fault->kind, "slow") == 0) {
        fires("slow", 0);
        pause_ms(fault->argument);
    }
    if (strcmp(fault->kind, "held") == 0) {
        fires("held", 0);
        while (access(getenv("FAULTY_ENGINE_GATE"), F_OK) == 0) { pause_ms(2); }
    }
    return STATUS_OK;
}

enum status __wrap_engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                               struct err *err)
{
    struct fault faults[FAULTS_MAX];
    size_t count = read_faults(faults);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(faults[i].kind, "dead") == 0 && options->device == (unsigned)faults[i].token) {
            return fail(err, STATUS_DEVICE_LOST, "dead");
        }
    }
    return __real_engine_open(model, options, out, err);
}

enum status __wrap_encoder_put(struct encoder *encoder, const struct engine_batch *batch, struct err *err)
{
    struct fault faults[FAULTS_MAX];
    size_t count = read_faults(faults);
    if (here.lost) { return fail(err, STATUS_DEVICE_LOST, "used"); }
    for (size_t i = 0; i < count; i++) {
        enum status status = before_pass(&faults[i], batch, err);
        if (status != STATUS_OK) { return status; }
    }
    here.batch = batch;
    return __real_encoder_put(encoder, batch, err);
}

enum status __wrap_encoder_take(struct encoder *encoder, struct err *err)
{
    struct fault faults[FAULTS_MAX];
    size_t count = read_faults(faults);
    enum status status = __real_encoder_take(encoder, err);
    const char *dim = getenv("FAULTY_ENGINE_DIM");
    for (size_t i = 0; i < count; i++) {
        if (strcmp(faults[i].kind, "nan") == 0 && batch_has(here.batch, faults[i].token)) {
            spoil(here.batch, faults[i].token, dim == NULL ? 1 : (uint32_t)strtoul(dim, NULL, 10));
            status = fail(err, STATUS_NON_FINITE, "nan");
        }
    }
    return status;
}

struct request *__wrap_request_parse(const struct request_rules *rules, const struct entry *entry, uint64_t now_ns)
{
    const char *word = getenv("FAULTY_PARSER");
    for (size_t i = 0; word != NULL && i < entry->field_count; i++) {
        if (memmem(entry->fields[i].value, entry->fields[i].value_length, word, strlen(word)) != NULL) {
            fires("parse", 0);
            kill(getpid(), SIGKILL);
        }
    }
    return __real_request_parse(rules, entry, now_ns);
}

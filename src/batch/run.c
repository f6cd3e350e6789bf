#include "batch/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "batch/lines.h"
#include "batch/store.h"
#include "bulk/job.h"
#include "bulk/manifest.h"
#include "bulk/remote.h"
#include "redis/client.h"

/* UNPACKED_MAX: eight times the largest file. A small one that is compressed could unpack to any size. */
enum {
    LINES_MAX = 50000,
    UNPACKED_MAX = 8 * STORE_FILE_BYTES,
    TEXT_BYTES = 1 << 20,
    LOOK_AHEAD = 4096,
    CONNECT_MS = 5000,
    LOOK_MS = 1000,
    SHOW_MS = 1000,
    SWEEP_MS = 60000
};

/* A batch that this thread runs. */
struct run {
    struct batch_runner *runner;
    struct stored_batch batch;
    struct batch_lines lines;
    struct output output;
    char input[STORE_PATH_MAX];
    volatile sig_atomic_t stop; /* of the job; this thread sets it, in its report */
    uint64_t shown_ms;
    struct batch_counts before; /* the runner's, without this batch */
};

static uint64_t now_s(void)
{
    return clock_unix_ms() / 1000;
}

static bool quits(const struct batch_runner *runner)
{
    return __atomic_load_n(&runner->quit, __ATOMIC_RELAXED) != 0;
}

static void path_of(const struct run *run, const char *ending, char path[STORE_PATH_MAX])
{
    store_path_of(run->runner->folder, "batches", run->batch.id, ending, path);
}

static enum status save(struct run *run, struct err *err)
{
    return stored_batch_write(run->runner->folder, &run->batch, err);
}

/* Returns why a batch must end early, or BATCH_COMPLETED: it need not. */
static enum batch_status find_reason(const struct run *run)
{
    char path[STORE_PATH_MAX];
    path_of(run, ".cancel", path);
    return store_exists(path) ? BATCH_CANCELLED : now_s() >= run->batch.expires_at ? BATCH_EXPIRED : BATCH_COMPLETED;
}

static size_t record_bytes(void)
{
    return source_record_bytes(&(struct source_options){.max_text_bytes = TEXT_BYTES});
}

/* --- Numbers --- */

static void set_count(uint64_t *count, uint64_t value)
{
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
}

/* Lists the batches that have not ended, and counts those that wait. */
static void list_open(struct batch_runner *runner, struct store_names *names)
{
    struct err err;
    if (store_list(runner->folder, "batches", ".lock", names, &err) != STATUS_OK) {
        log_warn("batches_unreadable", log_str("error", err.message));
    }
    uint64_t running = runner->counts.running;
    set_count(&runner->counts.waiting, names->count > running ? names->count - running : 0);
}

static void count_lines(struct run *run)
{
    set_count(&run->runner->counts.completed, run->before.completed + run->lines.answered);
    set_count(&run->runner->counts.failed, run->before.failed + run->lines.failed);
}

/* --- Validation --- */

/* Sets the errors of the batch to one. */
static void set_error(struct stored_batch *batch, const char *code, const char *message)
{
    batch->errors.length = 0;
    buffer_json(&batch->errors, "{'object':'list','data':[{'code':%s,'line':null,'message':%s,'param':null}]}", code,
                message);
}

static void set_twins(struct stored_batch *batch, const struct batch_findings *findings)
{
    batch->errors.length = 0;
    buffer_json(&batch->errors, "{'object':'list','data':[");
    for (uint64_t i = 0; i < findings->twice && i < TWINS_SHOWN; i++) {
        buffer_json(&batch->errors,
                    ",{'code':'duplicate_custom_id','line':%" PRIu64
                    ",'message':'the custom_id of this line is also that of line %" PRIu64 "','param':'custom_id'}",
                    findings->twins[i].line, findings->twins[i].first);
    }
    buffer_json(&batch->errors, "]}");
}

static enum status validate(struct run *run, struct err *err)
{
    struct batch_findings findings = {.most_lines = LINES_MAX, .most_bytes = UNPACKED_MAX};
    struct stored_batch *batch = &run->batch;
    enum status status = batch_lines_check(run->input, record_bytes(), &findings, err);
    if (status != STATUS_OK && status != STATUS_BAD_INPUT) { return status; }
    batch->total = findings.lines;
    batch->status = BATCH_FAILED;
    if (status == STATUS_BAD_INPUT) {
        set_error(batch, "invalid_file", err->message);
    } else if (findings.lines == 0) {
        set_error(batch, "empty_file", "the input file has no request");
    } else if (findings.lines > LINES_MAX) {
        set_error(batch, "too_many_requests", "the input file has more than 50000 requests");
    } else if (findings.twice > 0) {
        set_twins(batch, &findings);
    } else {
        batch->status = BATCH_IN_PROGRESS;
    }
    batch->at[batch->status] = now_s();
    return save(run, err);
}

/* --- The job --- */

/* Called by the job a few times a second: looks for reasons to stop it, and shows its progress. */
static void report(void *context, const struct job_progress *progress)
{
    struct run *run = context;
    const struct batch_lines *lines = &run->lines;
    struct stored_batch *batch = &run->batch;
    struct store_names names = {0};
    struct err ignored;
    uint64_t now_ms = clock_now_ms();
    (void)progress;
    if (quits(run->runner) || find_reason(run) != BATCH_COMPLETED) { run->stop = 1; }
    if (now_ms - run->shown_ms < SHOW_MS) { return; }
    count_lines(run);
    list_open(run->runner, &names);
    store_names_free(&names);
    if (!lines->begun) { return; }
    run->shown_ms = now_ms;
    uint64_t completed = lines->answered_before + lines->answered, failed = lines->failed_before + lines->failed;
    if (batch->completed == completed && batch->failed == failed) { return; }
    batch->completed = completed;
    batch->failed = failed;
    batch->errors.length = 0;                /* it goes on */
    enum status shown = save(run, &ignored); /* the next one, or the end, shows more */
    (void)shown;
}

/* Finds the queue whose name or published model it is; the first one for a model that nobody has. */
static enum status pick_queue(const struct batch_runner *runner, const char *model, const char **out, struct err *err)
{
    struct client *client;
    const char *slash = strrchr(model, '/'), *last = slash ? slash + 1 : model;
    *out = runner->queues[0];
    for (size_t i = 0; i < runner->queue_count; i++) {
        if (strcmp(runner->queues[i], model) != 0 && strcmp(runner->queues[i], last) != 0) { continue; }
        *out = runner->queues[i];
        return STATUS_OK;
    }
    TRY(client_open(runner->address, CONNECT_MS, &client, err));
    enum status status = STATUS_OK;
    for (size_t i = 0; status == STATUS_OK && i < runner->queue_count; i++) {
        char key[512];
        const struct resp_value *reply;
        snprintf(key, sizeof key, "sluice:{%s}:meta", runner->queues[i]);
        status = client_command(client, 3, (const char *const[]){"HGET", key, "model"}, NULL, &reply, err);
        bool has_it = status == STATUS_OK && (resp_equals(reply, model) || resp_equals(reply, last));
        if (has_it) { *out = runner->queues[i]; }
    }
    client_close(client);
    return status;
}

/* Appends what all runs of the job must agree on, and the members of its manifest, as C strings. */
static void put_model(const struct remote_facts *facts, struct buffer *terms, struct buffer *members)
{
    buffer_json(terms, "model='%s'\n" TERM_MODEL_NAME "='%s'\nprecision='%s'\ndim=%u\n", facts->model_id, facts->model,
                facts->precision, facts->dim);
    buffer_append(terms, "", 1);
    buffer_json(members, ",\n  'model': {'name': '%s', 'id': %s},\n  'precision': %s,\n  'dim': %u", facts->model,
                facts->model_id, facts->precision, facts->dim);
    buffer_append(members, "", 1);
}

static enum status run_job(struct run *run, int wake_fd, struct job_result *result, struct err *err)
{
    const struct batch_runner *runner = run->runner;
    struct batch_findings findings = {0};
    struct records records = batch_lines_records(&run->lines);
    struct remote_facts facts;
    struct remote_options queue = {.address = runner->address,
                                   .queue = runner->queues[0],
                                   .job = XXH3_64bits(run->batch.id, strlen(run->batch.id)),
                                   .wake_fd = wake_fd,
                                   .stop = &runner->quit};
    if (runner->queue_count > 1) { /* the model picks one; a batch that waits for workers comes here each second */
        TRY(batch_lines_check(run->input, record_bytes(), &findings, err));
    }
    if (findings.model[0] != '\0') { TRY(pick_queue(runner, findings.model, &queue.queue, err)); }
    TRY(remote_probe(&queue, &facts, err));
    queue.raw = true; /* the probe, which is not, says whether vectors are normalised */
    queue.dim = facts.dim;
    queue.stop = &run->stop;
    run->lines.model = facts.model;
    run->lines.queue = queue.queue;
    run->lines.dim = facts.dim;
    run->lines.normalize = facts.normalized;
    struct buffer terms = {0}, members = {0};
    put_model(&facts, &terms, &members);
    struct job_options job = {
        .source = {.operands = (char *[]){run->input},
                   .operand_count = 1,
                   .records = &records,
                   .max_text_bytes = TEXT_BYTES,
                   .stop = &run->stop},
        .prep_threads = 1,
        .wake_fd = wake_fd,
        .dim = facts.dim,
        .look_ahead = LOOK_AHEAD,
        .batch_tokens = REMOTE_BATCH_BYTES,
        .batch_rows = REMOTE_BATCH_ROWS,
        .output = &run->output,
        .terms = terms.data,
        .facts = members.data,
        .report = report,
        .context = run,
        .stop = &run->stop,
    };
    enum status status = buffer_ok(&terms) && buffer_ok(&members)
                             ? remote_open(&queue, &job.executor, err)
                             : err_set(err, STATUS_NO_MEMORY, "no memory for a batch");
    if (status == STATUS_OK) {
        status = job_run(&job, result, err);
        job.executor->ops->close(job.executor);
        count_lines(run);
    }
    buffer_free(&terms);
    buffer_free(&members);
    return status;
}

/* The job's list of failures is the file of errors. */
static enum status name_output(struct run *run, struct err *err)
{
    char path[STORE_PATH_MAX];
    path_of(run, ".jsonl", path);
    TRY(output_name(path, &run->output, err));
    path_of(run, ".errors.jsonl", path);
    free(run->output.failures);
    run->output.failures = strdup(path);
    run->lines.failures_path = run->output.failures;
    return run->output.failures ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a batch");
}

/* Makes the outputs of a job that will not go on agree. If they cannot, there is no output. */
static enum status settle(const struct output *output, struct err *err)
{
    enum status status = job_cut(output, err);
    if (status != STATUS_BAD_INPUT) { return status; }
    bool gone = unlink(output->path) == 0 || errno == ENOENT;
    gone = (unlink(output->failures) == 0 || errno == ENOENT) && gone;
    return gone ? STATUS_OK : err_set_errno(err, "cannot remove %s", output->path);
}

/* Runs the job until it ends or is stopped, and begins to publish if nothing more will come: FINALIZING is durable
 * before that, with the time of the status that follows. */
static enum status compute(struct run *run, int wake_fd, struct err *err)
{
    struct job_result result = {0};
    struct stored_batch *batch = &run->batch;
    enum batch_status reason = find_reason(run);
    bool finished = false;
    if (reason == BATCH_COMPLETED) {
        enum status status = run_job(run, wake_fd, &result, err);
        if (quits(run->runner)) { return STATUS_UNAVAILABLE; }
        finished = status == STATUS_OK && (result.finished || result.before);
        bool hopeless = status == STATUS_BAD_INPUT || status == STATUS_UNSUPPORTED;
        if (!finished) { reason = find_reason(run); }
        if (!finished && reason == BATCH_COMPLETED) {
            if (!hopeless) { return status; }
            set_error(batch, "batch_failed", err->message);
            reason = BATCH_FAILED;
        }
    }
    if (!finished) { TRY(settle(&run->output, err)); }
    if (reason != BATCH_FAILED) { batch->errors.length = 0; }
    batch->status = BATCH_FINALIZING;
    batch->at[BATCH_FINALIZING] = batch->at[reason] = now_s();
    if (reason == BATCH_CANCELLED && batch->at[BATCH_CANCELLING] == 0) { batch->at[BATCH_CANCELLING] = now_s(); }
    return save(run, err);
}

/* --- Publishing --- */

static enum batch_status next_status(const struct stored_batch *batch)
{
    return batch->at[BATCH_FAILED] > 0      ? BATCH_FAILED
           : batch->at[BATCH_EXPIRED] > 0   ? BATCH_EXPIRED
           : batch->at[BATCH_CANCELLED] > 0 ? BATCH_CANCELLED
                                            : BATCH_COMPLETED;
}

/* Copies a file, if it is there, to an open one. */
static enum status copy_file(const char *path, int to, struct err *err)
{
    struct stat info;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) { return errno == ENOENT ? STATUS_OK : err_set_errno(err, "cannot open %s", path); }
    enum status status = fstat(from, &info) == 0 ? store_copy(from, 0, (uint64_t)info.st_size, to, path, err)
                                                 : err_set_errno(err, "cannot read %s", path);
    close(from);
    return status;
}

/* Makes the file of errors of a batch that ends early: a line for each request that was not answered, after those that
 * failed. */
static enum status abandon(struct run *run, const char *target, struct err *err)
{
    static const struct {
        const char *code, *message;
    } reasons[BATCH_STATUSES] = {
        [BATCH_FAILED] = {"batch_failed", "the batch failed before this request was answered"},
        [BATCH_EXPIRED] = {"batch_expired", "the completion window ended before this request was answered"},
        [BATCH_CANCELLED] = {"batch_cancelled", "the batch was cancelled before this request was answered"},
    };
    char path[STORE_PATH_MAX];
    enum batch_status next = next_status(&run->batch);
    struct batch_lines lines = {.model = "", .dim = UINT32_MAX, .max_text_bytes = TEXT_BYTES, .any_model = true};
    uint64_t answered, failed; /* a request has a line in one of the files, and gets no second one */
    int fd;
    TRY(batch_lines_count(run->output.path, &answered, err));
    TRY(batch_lines_count(run->output.failures, &failed, err));
    path_of(run, ".abandoned", path);
    TRY(file_make(path, O_WRONLY | O_TRUNC, &fd, err));
    enum status status = copy_file(run->output.failures, fd, err);
    if (status == STATUS_OK) {
        status = batch_lines_abandon(&lines, run->input, record_bytes(), answered + failed, reasons[next].code,
                                     reasons[next].message, fd, err);
    }
    if (status == STATUS_OK && fsync(fd) != 0) { status = err_set_errno(err, "cannot write %s", path); }
    close(fd);
    run->lines.failed += lines.failed;
    count_lines(run);
    batch_lines_free(&lines);
    if (status == STATUS_OK && rename(path, target) != 0) { status = err_set_errno(err, "cannot write %s", target); }
    /* The output is moved next: without it a new list would have its requests, too. */
    return status == STATUS_OK ? file_sync_folder(target, err) : status;
}

/* Moves an output to the files, if it has a line, and says so in its object. Sets `id` and the number of lines. */
static enum status publish_file(const struct run *run, const char *from, const char *ending, char id[STORE_ID_MAX],
                                uint64_t *lines, struct err *err)
{
    const struct stored_batch *batch = &run->batch;
    char path[STORE_PATH_MAX], object_path[STORE_PATH_MAX], name[STORE_ID_MAX + 16];
    struct stat info;
    uint64_t life_s = 0;
    snprintf(id, STORE_ID_MAX, "file-%.44s%s", batch->id + strlen("batch_"), ending);
    store_path_of(run->runner->folder, "files", id, "", path);
    store_path_of(run->runner->folder, "files", id, ".json", object_path);
    bool made = stat(from, &info) == 0; /* else it was moved already, or there is none */
    if (!made && errno != ENOENT) { return err_set_errno(err, "cannot look for %s", from); }
    if (made && info.st_size > 0 && rename(from, path) != 0) { return err_set_errno(err, "cannot write %s", path); }
    if (stat(path, &info) != 0) {
        if (errno != ENOENT) { return err_set_errno(err, "cannot look for %s", path); }
        id[0] = '\0';
        return STATUS_OK;
    }
    TRY(batch_lines_count(path, lines, err));
    struct buffer object = {0};
    snprintf(name, sizeof name, "%s%s.jsonl", batch->id, ending);
    (void)json_member_number(batch->expiry.data, batch->expiry.length, "seconds", &life_s);
    store_put_file(&object, id, (uint64_t)info.st_size, name, "batch_output", life_s);
    enum status status = file_sync_folder(path, err);
    if (status == STATUS_OK && !store_exists(object_path)) { status = file_write_durably(object_path, &object, err); }
    buffer_free(&object);
    return status;
}

static enum status publish(struct run *run, struct err *err)
{
    struct stored_batch *batch = &run->batch;
    enum batch_status next = next_status(batch);
    char target[STORE_PATH_MAX], id[STORE_ID_MAX];
    snprintf(id, sizeof id, "file-%.44s-errors", batch->id + strlen("batch_"));
    store_path_of(run->runner->folder, "files", id, "", target);
    if (next != BATCH_COMPLETED && !store_exists(target)) { TRY(abandon(run, target, err)); }
    const char *failures = next == BATCH_COMPLETED ? run->output.failures : ""; /* they were copied */
    batch->completed = batch->failed = 0;
    TRY(publish_file(run, run->output.path, "-output", batch->output_id, &batch->completed, err));
    TRY(publish_file(run, failures, "-errors", batch->errors_id, &batch->failed, err));
    batch->total = batch->completed + batch->failed; /* it may have been cancelled before they were counted */
    batch->status = next;
    return save(run, err);
}

/* --- The steps --- */

/* Says in the batch why it does not go on at present. */
static void show_trouble(struct run *run, const struct err *err)
{
    struct buffer before = run->batch.errors;
    struct err ignored;
    run->batch.errors = (struct buffer){0};
    set_error(&run->batch, "waiting", err->message);
    bool new =
        before.length != run->batch.errors.length || memcmp(before.data, run->batch.errors.data, before.length) != 0;
    if (new) {
        log_warn("batch_waits", log_str("batch", run->batch.id), log_str("error", err->message));
        enum status shown = save(run, &ignored); /* a full disk, perhaps: the log has it */
        (void)shown;
    }
    buffer_free(&before);
}

static enum status run_steps(struct run *run, struct err *err)
{
    const struct stored_batch *batch = &run->batch;
    TRY(name_output(run, err));
    /* Also if it is cancelled: what ends it early must be able to read its lines. */
    if (batch->status == BATCH_VALIDATING) { TRY(validate(run, err)); }
    if (batch->status == BATCH_IN_PROGRESS) {
        int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (wake_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
        enum status status = compute(run, wake_fd, err);
        close(wake_fd);
        TRY(status);
    }
    return batch->status == BATCH_FINALIZING ? publish(run, err) : STATUS_OK;
}

/* Runs a batch whose lock this thread has. Returns whether it has ended. */
static bool run_batch(struct batch_runner *runner, const char *id)
{
    struct err err;
    struct run run = {.runner = runner, .before = runner->counts, .lines = {.max_text_bytes = TEXT_BYTES}};
    struct stored_batch *batch = &run.batch;
    enum status status = stored_batch_read(runner->folder, id, batch, &err);
    bool gone = status == STATUS_NOT_FOUND; /* a kill has left it before it was a batch */
    store_path_of(runner->folder, "batches", id, ".input", run.input);
    if (status == STATUS_OK && !stored_batch_has_ended(batch)) {
        status = run_steps(&run, &err);
        if (status != STATUS_OK && !quits(runner)) { show_trouble(&run, &err); }
    } else if (status != STATUS_OK && !gone) {
        log_warn("batch_unreadable", log_str("batch", id), log_str("error", err.message));
    }
    bool ended = status == STATUS_OK && stored_batch_has_ended(batch);
    if (ended) {
        log_info("batch_ended", log_str("batch", id), log_int("completed", (int64_t)batch->completed),
                 log_int("failed", (int64_t)batch->failed));
    }
    if (ended || gone) { store_remove_rest(runner->folder, id); }
    output_free(&run.output);
    batch_lines_free(&run.lines);
    stored_batch_free(batch);
    return ended;
}

/* Runs a batch unless another process does. */
static bool try_batch(struct batch_runner *runner, const char *id)
{
    char path[STORE_PATH_MAX];
    struct stat info;
    store_path_of(runner->folder, "batches", id, ".lock", path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) { return false; }
    bool mine = flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &info) == 0 && info.st_nlink > 0;
    set_count(&runner->counts.running, mine);
    bool ended = mine && run_batch(runner, id);
    set_count(&runner->counts.running, 0);
    close(fd);
    return ended;
}

void batch_runner_loop(struct batch_runner *runner)
{
    uint64_t swept_ms = 0;
    while (!quits(runner)) {
        struct store_names names = {0};
        bool worked = false;
        if (swept_ms == 0 || clock_now_ms() - swept_ms >= SWEEP_MS) {
            store_sweep(runner->folder);
            swept_ms = clock_now_ms();
        }
        list_open(runner, &names);
        for (size_t i = 0; i < names.count && !quits(runner); i++) {
            worked = try_batch(runner, names.at[i]) || worked;
        }
        store_names_free(&names);
        struct pollfd quit = {.fd = runner->quit_fd, .events = POLLIN};
        if (!worked) { poll(&quit, 1, LOOK_MS); }
    }
}

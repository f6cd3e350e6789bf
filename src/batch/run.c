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
    SHOW_MS = 1000
};

/* A batch that this thread runs. */
struct run {
    struct batch_runner *runner;
    struct stored_batch batch;
    struct batch_lines lines;
    struct job_options job;
    struct buffer terms, facts;
    char model[256], input[STORE_PATH_MAX];
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

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static enum status save(struct run *run, struct err *err)
{
    return stored_batch_write(run->runner->folder, &run->batch, err);
}

/* True if somebody has asked for the end of the batch. */
static bool is_cancelled(const struct run *run)
{
    char path[STORE_PATH_MAX];
    path_of(run, ".cancel", path);
    return exists(path);
}

static size_t record_bytes(void)
{
    return source_record_bytes(&(struct source_options){.max_text_bytes = TEXT_BYTES});
}

/* --- Validation --- */

/* Sets the errors of the batch to one. */
static void set_error(struct stored_batch *batch, const char *code, const char *message)
{
    batch->errors.length = 0;
    buffer_json(&batch->errors, "{'object':'list','data':[{'code':%s,'line':null,'message':%s,'param':null}]}", code,
                message);
}

static enum status validate(struct run *run, struct err *err)
{
    struct batch_findings findings = {.most_lines = LINES_MAX, .most_bytes = UNPACKED_MAX};
    struct stored_batch *batch = &run->batch;
    enum status status = batch_lines_check(run->input, record_bytes(), &findings, err);
    if (status == STATUS_OK) {
        char message[128];
        batch->total = findings.lines;
        batch->status = BATCH_FAILED;
        if (findings.lines == 0) {
            set_error(batch, "empty_file", "the input file has no request");
        } else if (findings.lines > LINES_MAX) {
            snprintf(message, sizeof message, "the input file has more than %d requests", (int)LINES_MAX);
            set_error(batch, "too_many_requests", message);
        } else if (findings.twice > 0) {
            batch->errors.length = 0;
            buffer_json(&batch->errors, "{'object':'list','data':[");
            buffer_append(&batch->errors, findings.errors.data, findings.errors.length);
            buffer_string(&batch->errors, "]}");
        } else {
            batch->status = BATCH_IN_PROGRESS;
        }
        batch->at[batch->status] = now_s();
        status = save(run, err);
    } else if (status == STATUS_BAD_INPUT) {
        set_error(batch, "invalid_file", err->message);
        batch->status = BATCH_FAILED;
        batch->at[BATCH_FAILED] = now_s();
        status = save(run, err);
    }
    buffer_free(&findings.shown);
    buffer_free(&findings.errors);
    return status;
}

/* --- The job --- */

static void put_term(struct buffer *to, const char *key, const char *value)
{
    buffer_format(to, "%s=", key);
    buffer_json_string(to, value, strlen(value));
    buffer_string(to, "\n");
}

static void set_count(uint64_t *count, uint64_t value)
{
    __atomic_store_n(count, value, __ATOMIC_RELAXED);
}

/* Lists the batches that have not ended, and counts those that wait. Returns how many there are. */
static size_t list_open(struct batch_runner *runner, struct buffer *names)
{
    struct err err;
    size_t count;
    if (store_list(runner->folder, "batches", ".lock", names, &count, &err) != STATUS_OK) {
        log_warn("batches_unreadable", log_str("error", err.message));
        count = 0;
    }
    set_count(&runner->counts.waiting, count > runner->counts.running ? count - runner->counts.running : 0);
    return count;
}

static void count_lines(struct run *run)
{
    set_count(&run->runner->counts.completed, run->before.completed + run->lines.answered);
    set_count(&run->runner->counts.failed, run->before.failed + run->lines.failed);
}

/* Called by the job a few times a second: looks for reasons to stop it, and shows its progress. */
static void report(void *context, const struct job_progress *progress)
{
    struct run *run = context;
    uint64_t now_ms = clock_now_ms();
    (void)progress;
    if (quits(run->runner) || is_cancelled(run) || now_s() >= run->batch.expires_at) { run->stop = 1; }
    if (now_ms - run->shown_ms < SHOW_MS) { return; }
    const struct batch_lines *lines = &run->lines;
    uint64_t completed = lines->answered_before + lines->answered, failed = lines->failed_before + lines->failed;
    count_lines(run);
    struct buffer names = {0};
    (void)list_open(run->runner, &names);
    buffer_free(&names);
    if (!lines->begun) { return; }
    run->shown_ms = now_ms;
    if (run->batch.completed == completed && run->batch.failed == failed) { return; }
    struct err ignored;
    run->batch.completed = completed;
    run->batch.failed = failed;
    run->batch.errors.length = 0; /* it goes on */
    enum status shown = save(run, &ignored);
    (void)shown; /* the next one, or the end, shows more */
}

static enum status make_job(struct run *run, const struct remote_facts *facts, const struct output *output,
                            struct records *records, char **operands, struct err *err)
{
    snprintf(run->model, sizeof run->model, "%s", facts->model);
    run->lines.model = run->model;
    run->lines.dim = facts->dim;
    run->lines.normalize = facts->normalized;
    run->lines.failures_path = output->failures;
    run->terms.length = run->facts.length = 0;
    put_term(&run->terms, "model", facts->model_id);
    put_term(&run->terms, TERM_MODEL_NAME, facts->model);
    put_term(&run->terms, "precision", facts->precision);
    buffer_format(&run->terms, "dim=%u%c", facts->dim, '\n');
    buffer_append(&run->terms, "", 1);
    buffer_json(&run->facts, ",\n  'model': {'name': '%s', 'id': %s},\n  'precision': %s,\n  'dim': %u", facts->model,
                facts->model_id, facts->precision, facts->dim);
    buffer_append(&run->facts, "", 1);
    if (!buffer_ok(&run->terms) || !buffer_ok(&run->facts)) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for a batch");
    }
    run->job = (struct job_options){
        .source = {.operands = operands,
                   .operand_count = 1,
                   .records = records,
                   .max_text_bytes = TEXT_BYTES,
                   .stop = &run->stop},
        .prep_threads = 1,
        .wake_fd = run->job.wake_fd,
        .dim = facts->dim,
        .look_ahead = LOOK_AHEAD,
        .batch_tokens = REMOTE_BATCH_BYTES,
        .batch_rows = REMOTE_BATCH_ROWS,
        .output = output,
        .terms = run->terms.data,
        .facts = run->facts.data,
        .report = report,
        .context = run,
        .stop = &run->stop,
    };
    return STATUS_OK;
}

/* Finds the queue whose name or published model it is; the first one for a model that nobody has. */
static enum status pick_queue(const struct batch_runner *runner, const char *model, const char **out, struct err *err)
{
    struct client *client;
    *out = runner->queues[0];
    if (runner->queue_count == 1 || model[0] == '\0') { return STATUS_OK; }
    const char *slash = strrchr(model, '/'), *last = slash ? slash + 1 : model;
    for (size_t i = 0; i < runner->queue_count; i++) {
        if (strcmp(runner->queues[i], model) == 0 || strcmp(runner->queues[i], last) == 0) {
            *out = runner->queues[i];
            return STATUS_OK;
        }
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

/* Reads the facts of the model that the job began with, so that it can be settled without workers. `*begun` is false
 * if it has not begun. */
static enum status recall_facts(const struct run *run, struct remote_facts *out, bool *begun, struct err *err)
{
    char path[STORE_PATH_MAX];
    struct buffer bytes = {0};
    path_of(run, ".model", path);
    enum status status = file_read(path, sizeof *out, &bytes, err);
    *begun = status != STATUS_NOT_FOUND;
    if (status == STATUS_OK && bytes.length != sizeof *out) {
        status = err_set(err, STATUS_BAD_INPUT, "%s is of another version", path);
    }
    if (status == STATUS_OK) { memcpy(out, bytes.data, sizeof *out); }
    buffer_free(&bytes);
    return *begun ? status : STATUS_OK;
}

static enum status note_facts(const struct run *run, const struct remote_facts *facts, struct err *err)
{
    char path[STORE_PATH_MAX];
    path_of(run, ".model", path);
    if (exists(path)) { return STATUS_OK; }
    struct buffer bytes = {0};
    buffer_append(&bytes, facts, sizeof *facts);
    enum status status = file_write_durably(path, &bytes, err);
    buffer_free(&bytes);
    return status;
}

static enum status run_records(struct run *run, const struct output *output, struct job_result *result, struct err *err)
{
    const struct batch_runner *runner = run->runner;
    struct batch_findings findings = {0};
    struct records records = batch_lines_records(&run->lines);
    struct remote_facts facts;
    struct remote_options queue = {.address = runner->address,
                                   .job = XXH3_64bits(run->batch.id, strlen(run->batch.id)),
                                   .wake_fd = run->job.wake_fd,
                                   .stop = &runner->quit};
    char *operands[] = {run->input};
    enum status status = STATUS_OK;
    if (runner->queue_count > 1) { /* the model picks one; a batch that waits for workers comes here each second */
        status = batch_lines_check(run->input, record_bytes(), &findings, err);
    }
    buffer_free(&findings.shown);
    buffer_free(&findings.errors);
    if (status == STATUS_OK) { status = pick_queue(runner, findings.model, &queue.queue, err); }
    if (status == STATUS_OK) { status = remote_probe(&queue, &facts, err); }
    if (status == STATUS_OK) { status = note_facts(run, &facts, err); }
    if (status == STATUS_OK) { status = make_job(run, &facts, output, &records, operands, err); }
    if (status != STATUS_OK) { return status; }
    run->lines.queue = queue.queue;
    queue.dim = facts.dim;
    queue.raw = true;
    queue.stop = &run->stop;
    TRY(remote_open(&queue, &run->job.executor, err));
    status = job_run(&run->job, result, err);
    count_lines(run);
    run->job.executor->ops->close(run->job.executor);
    return status;
}

/* Cuts both outputs of a job that will not go on back to its last checkpoint, after which one may have lines that the
 * other lacks: the job begins to resume, and stops at once. If it cannot, there is no output. */
static enum status settle(struct run *run, const struct output *output, struct err *err)
{
    struct records records = batch_lines_records(&run->lines);
    struct remote_facts facts;
    struct job_result result;
    struct dry dry;
    bool begun;
    char *operands[] = {run->input};
    enum status status = recall_facts(run, &facts, &begun, err);
    if (status == STATUS_OK && begun) {
        run->stop = 1;
        dry_open(&dry);
        status = make_job(run, &facts, output, &records, operands, err);
        run->job.executor = &dry.executor;
        if (status == STATUS_OK) { status = job_run(&run->job, &result, err); }
    }
    if (status != STATUS_BAD_INPUT && status != STATUS_NOT_FOUND) { return status; }
    bool gone = unlink(output->path) == 0 || errno == ENOENT;
    gone = (unlink(output->failures) == 0 || errno == ENOENT) && gone;
    return gone ? STATUS_OK : err_set_errno(err, "cannot remove %s", output->path);
}

/* The names of the job's files; its list of failures is the file of errors. */
static enum status name_output(const struct run *run, struct output *output, struct err *err)
{
    char path[STORE_PATH_MAX];
    path_of(run, ".jsonl", path);
    TRY(output_name(path, output, err));
    path_of(run, ".errors.jsonl", path);
    free(output->failures);
    output->failures = strdup(path);
    return output->failures ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory for a batch");
}

/* --- Publishing. FINALIZING is durable before it begins, with the time of the status that follows. --- */

static enum batch_status next_status(const struct stored_batch *batch)
{
    return batch->at[BATCH_FAILED] > 0      ? BATCH_FAILED
           : batch->at[BATCH_EXPIRED] > 0   ? BATCH_EXPIRED
           : batch->at[BATCH_CANCELLED] > 0 ? BATCH_CANCELLED
                                            : BATCH_COMPLETED;
}

static enum status begin_publishing(struct run *run, enum batch_status next, struct err *err)
{
    struct stored_batch *batch = &run->batch;
    batch->status = BATCH_FINALIZING;
    batch->at[BATCH_FINALIZING] = batch->at[next] = now_s();
    return save(run, err);
}

/* Copies a file, as far as it is there, to an open one. */
static enum status copy_file(const char *path, int to, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    int from = open(path, O_RDONLY | O_CLOEXEC);
    if (from < 0) { return errno == ENOENT ? STATUS_OK : err_set_errno(err, "cannot open %s", path); }
    enum status status = STATUS_OK;
    for (ssize_t got; status == STATUS_OK && (got = read(from, block, BLOCK)) != 0;) {
        status = got < 0 ? err_set_errno(err, "cannot read %s", path) : file_put(to, block, (size_t)got, path, err);
    }
    close(from);
    return status;
}

/* Makes the file of errors of a batch that ends early: a line for each request that was not answered, after those that
 * failed. */
static enum status abandon(struct run *run, const struct output *output, const char *target, struct err *err)
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
    TRY(batch_lines_count(output->path, &answered, err));
    TRY(batch_lines_count(output->failures, &failed, err));
    path_of(run, ".abandoned", path);
    TRY(file_make(path, O_WRONLY | O_TRUNC, &fd, err));
    enum status status = copy_file(output->failures, fd, err);
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
    char path[STORE_PATH_MAX], object_path[STORE_PATH_MAX], name[STORE_ID_MAX + 16];
    struct stat info;
    snprintf(id, STORE_ID_MAX, "file-%.44s%s", run->batch.id + strlen("batch_"), ending);
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
    snprintf(name, sizeof name, "%s%s.jsonl", run->batch.id, ending);
    store_put_file(&object, id, (uint64_t)info.st_size, name, "batch_output");
    enum status status = file_sync_folder(path, err);
    if (status == STATUS_OK && !exists(object_path)) { status = file_write_durably(object_path, &object, err); }
    buffer_free(&object);
    return status;
}

static enum status publish(struct run *run, const struct output *output, struct err *err)
{
    struct stored_batch *batch = &run->batch;
    enum batch_status next = next_status(batch);
    char target[STORE_PATH_MAX], id[STORE_ID_MAX];
    snprintf(id, sizeof id, "file-%.44s-errors", batch->id + strlen("batch_"));
    store_path_of(run->runner->folder, "files", id, "", target);
    if (next != BATCH_COMPLETED && !exists(target)) { TRY(abandon(run, output, target, err)); }
    const char *failures = next == BATCH_COMPLETED ? output->failures : ""; /* they were copied */
    batch->completed = batch->failed = 0;
    TRY(publish_file(run, output->path, "-output", batch->output_id, &batch->completed, err));
    TRY(publish_file(run, failures, "-errors", batch->errors_id, &batch->failed, err));
    batch->total = batch->completed + batch->failed; /* it may have been cancelled before they were counted */
    batch->status = next;
    return save(run, err);
}

/* Removes what only a batch that has not ended needs; its lock comes last. */
static void clean_up(const struct run *run)
{
    static const char *const endings[] = {".jsonl.job/journal",
                                          ".jsonl.job/vectors",
                                          ".jsonl",
                                          ".errors.jsonl",
                                          ".jsonl.manifest.json",
                                          ".jsonl.hashes",
                                          ".input",
                                          ".abandoned",
                                          ".model",
                                          ".jsonl.manifest.json.new",
                                          ".cancel"};
    char path[STORE_PATH_MAX];
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        path_of(run, endings[i], path);
        (void)unlink(path);
    }
    path_of(run, ".jsonl.job", path);
    (void)rmdir(path);
    path_of(run, ".lock", path);
    (void)unlink(path);
}

/* --- The steps --- */

/* Why a batch shall end early; BATCH_COMPLETED: it shall not. */
static enum batch_status find_reason(const struct run *run)
{
    return is_cancelled(run) ? BATCH_CANCELLED : now_s() >= run->batch.expires_at ? BATCH_EXPIRED : BATCH_COMPLETED;
}

/* Runs the job until it ends or is stopped, and begins to publish if nothing more will come. */
static enum status compute(struct run *run, const struct output *output, struct err *err)
{
    struct job_result result = {0};
    struct buffer *errors = &run->batch.errors;
    enum batch_status reason = find_reason(run);
    enum status status = STATUS_OK;
    if (reason == BATCH_COMPLETED) {
        status = run_records(run, output, &result, err);
        if (quits(run->runner)) { return STATUS_UNAVAILABLE; }
        if (status == STATUS_OK && (result.finished || result.before)) {
            errors->length = 0;
            return begin_publishing(run, BATCH_COMPLETED, err);
        }
        reason = find_reason(run);
        bool hopeless = status == STATUS_BAD_INPUT || status == STATUS_UNSUPPORTED;
        if (reason == BATCH_COMPLETED && !hopeless) { return status; }
        if (reason == BATCH_COMPLETED) {
            set_error(&run->batch, "batch_failed", err->message);
            reason = BATCH_FAILED;
        }
    }
    TRY(settle(run, output, err));
    if (reason != BATCH_FAILED) { errors->length = 0; }
    if (reason == BATCH_CANCELLED && run->batch.at[BATCH_CANCELLING] == 0) {
        run->batch.at[BATCH_CANCELLING] = now_s();
    }
    return begin_publishing(run, reason, err);
}

static enum status compute_awake(struct run *run, const struct output *output, struct err *err)
{
    run->job.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (run->job.wake_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    enum status status = compute(run, output, err);
    close(run->job.wake_fd);
    return status;
}

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
        enum status shown = save(run, &ignored);
        (void)shown; /* a full disk, perhaps: the log has it */
    }
    buffer_free(&before);
}

static enum status run_steps(struct run *run, struct err *err)
{
    struct output output = {0};
    struct stored_batch *batch = &run->batch;
    enum status status = name_output(run, &output, err);
    bool cancelled = batch->status == BATCH_CANCELLING;
    /* Also if it is cancelled: what ends it early must be able to read its lines. */
    bool validated = batch->at[BATCH_IN_PROGRESS] > 0;
    if (status == STATUS_OK && (batch->status == BATCH_VALIDATING || (cancelled && !validated))) {
        status = validate(run, err);
        cancelled = false;
    }
    if (status == STATUS_OK && (batch->status == BATCH_IN_PROGRESS || cancelled)) {
        status = compute_awake(run, &output, err);
    }
    if (status == STATUS_OK && batch->status == BATCH_FINALIZING) { status = publish(run, &output, err); }
    output_free(&output);
    return status;
}

/* Runs a batch whose lock this thread has. Returns whether it has ended. */
static bool run_batch(struct batch_runner *runner, const char *id)
{
    struct err err;
    struct run run = {.runner = runner, .before = runner->counts, .lines = {.max_text_bytes = TEXT_BYTES}};
    enum status status = stored_batch_read(runner->folder, id, &run.batch, &err);
    store_path_of(runner->folder, "batches", id, ".input", run.input);
    if (status == STATUS_OK && !stored_batch_has_ended(&run.batch)) {
        status = run_steps(&run, &err);
        if (status != STATUS_OK && !quits(runner)) { show_trouble(&run, &err); }
    } else if (status != STATUS_OK && status != STATUS_NOT_FOUND) {
        log_warn("batch_unreadable", log_str("batch", id), log_str("error", err.message));
    }
    bool ended = status == STATUS_OK && stored_batch_has_ended(&run.batch);
    if (ended) {
        log_info("batch_ended", log_str("batch", id), log_int("completed", (int64_t)run.batch.completed),
                 log_int("failed", (int64_t)run.batch.failed));
        clean_up(&run);
    }
    batch_lines_free(&run.lines);
    stored_batch_free(&run.batch);
    buffer_free(&run.terms);
    buffer_free(&run.facts);
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
    while (!quits(runner)) {
        struct buffer names = {0};
        bool worked = false;
        size_t count = list_open(runner, &names);
        const char *id = names.data;
        for (size_t i = 0; i < count && !quits(runner); i++, id += strlen(id) + 1) {
            worked = try_batch(runner, id) || worked;
        }
        buffer_free(&names);
        struct pollfd quit = {.fd = runner->quit_fd, .events = POLLIN};
        if (!worked) { poll(&quit, 1, LOOK_MS); }
    }
}

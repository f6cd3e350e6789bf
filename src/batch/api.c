#include "batch/api.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "batch/run.h"
#include "batch/store.h"
#include "compute/thread_pool.h"
#include "gateway/dialect.h"
#include "http/multipart.h"

enum { CALLS_MAX = 256, FILES_LISTED = 10000, BATCHES_LISTED = 100, LISTED = 20, METADATA_BYTES = 16 << 10 };
enum { WINDOW_MOST_S = 30 * 24 * 3600 };

/* A call on its way to the thread and back. */
struct ask {
    struct batches *batches;
    uint64_t number;
    enum http_method method;
    bool files; /* /v1/files, else /v1/batches */
    char rest[2 * STORE_ID_MAX], query[256], type[256];
    struct buffer body;
    int file; /* the body of an upload, or -1 */
    uint64_t length;
    struct http_reply reply;
};

struct batches {
    struct gateway *gateway;
    const char *folder;
    struct batch_runner runner;
    pthread_t thread;
    bool started; /* the thread */
    struct thread_pool *pool;
    struct event *done;
    int done_fd;
};

/* --- Answers. Thread: the calls'. --- */

static void answer_fault(struct ask *ask, const struct fault *fault)
{
    ask->reply.body.length = 0;
    ask->reply.status = fault->status;
    dialect_render_fault(NULL, fault, &ask->reply.body);
}

PRINTF_LIKE(4, 5)
static void refuse(struct ask *ask, enum fault_kind kind, const char *param, const char *format, ...)
{
    struct fault fault;
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fault_set(&fault, NULL, kind, param, "%s", message);
    answer_fault(ask, &fault);
}

/* Answers with what went wrong here, in which the log has the details. */
static void answer_trouble(struct ask *ask, const struct err *err)
{
    log_warn("batches_call_failed", log_str("error", err->message));
    refuse(ask, FAULT_UNAVAILABLE, NULL, "%s", err->message);
}

static const char *folder_of(const struct ask *ask)
{
    return ask->batches->folder;
}

/* Copies the value of a parameter of the query; false: it is not there. */
static bool find_parameter(const char *query, const char *name, char *to, size_t size)
{
    size_t length = strlen(name);
    for (const char *at = query; at && *at != '\0'; at = strchr(at, '&') ? strchr(at, '&') + 1 : NULL) {
        if (strncmp(at, name, length) != 0 || at[length] != '=') { continue; }
        snprintf(to, size, "%.*s", (int)strcspn(at + length + 1, "&"), at + length + 1);
        return true;
    }
    return false;
}

/* Appends the object of a file or a batch; STATUS_NOT_FOUND: it is gone. */
static enum status put_object(const struct ask *ask, const char *id, struct buffer *to, struct err *err)
{
    char path[STORE_PATH_MAX];
    struct stored_batch batch;
    if (ask->files) {
        store_path_of(folder_of(ask), "files", id, ".json", path);
        return file_read(path, 1 << 16, to, err);
    }
    enum status status = stored_batch_read(folder_of(ask), id, &batch, err);
    if (status == STATUS_OK) { stored_batch_put(to, &batch); }
    stored_batch_free(&batch);
    return status;
}

/* Answers with a page of objects, the newest first unless `order` is asc. */
static void answer_list(struct ask *ask)
{
    struct buffer names = {0}, object = {0}, *to = &ask->reply.body;
    struct err err;
    char value[STORE_ID_MAX], after[STORE_ID_MAX] = "", purpose[32] = "", first[STORE_ID_MAX] = "",
                              last[STORE_ID_MAX] = "";
    size_t count, most = ask->files ? FILES_LISTED : LISTED, listed = 0;
    bool ascending = find_parameter(ask->query, "order", value, sizeof value) && strcmp(value, "asc") == 0,
         more = false;
    if (find_parameter(ask->query, "limit", value, sizeof value)) {
        unsigned long limit = strtoul(value, NULL, 10);
        most = ask->files ? FILES_LISTED : BATCHES_LISTED;
        if (limit < 1 || limit > most) {
            refuse(ask, FAULT_BAD_REQUEST, "limit", "limit: from 1 to %zu", most);
            return;
        }
        most = limit;
    }
    (void)find_parameter(ask->query, "after", after, sizeof after);
    (void)find_parameter(ask->query, "purpose", purpose, sizeof purpose);
    enum status status = store_list(folder_of(ask), ask->files ? "files" : "batches", ".json", &names, &count, &err);
    const char **order = calloc(count + 1, sizeof *order);
    const char *name = names.data;
    for (size_t i = 0; order && status == STATUS_OK && i < count; i++, name += strlen(name) + 1) {
        order[ascending ? i : count - 1 - i] = name;
    }
    buffer_json(to, "{'object':'list','data':[");
    for (size_t i = 0; order && status == STATUS_OK && i < count && !more; i++) {
        int compared = strcmp(order[i], after);
        if (after[0] != '\0' && (ascending ? compared <= 0 : compared >= 0)) { continue; }
        object.length = 0;
        status = put_object(ask, order[i], &object, &err);
        if (status == STATUS_NOT_FOUND) { status = STATUS_OK; }
        if (status != STATUS_OK || object.length == 0) { continue; }
        char found[32];
        if (purpose[0] != '\0' && (!json_member_text(object.data, object.length, "purpose", found, sizeof found) ||
                                   strcmp(found, purpose) != 0)) {
            continue;
        }
        more = listed == most;
        if (more) { break; }
        buffer_string(to, listed++ > 0 ? "," : "");
        buffer_append(to, object.data, object.length);
        if (first[0] == '\0') { snprintf(first, sizeof first, "%s", order[i]); }
        snprintf(last, sizeof last, "%s", order[i]);
    }
    buffer_json(to, "],'first_id':%s,'last_id':%s,'has_more':%hhd}", first, last, (signed char)more);
    if (status != STATUS_OK) { answer_trouble(ask, &err); }
    free(order);
    buffer_free(&names);
    buffer_free(&object);
}

static void answer_object(struct ask *ask, const char *id)
{
    struct err err;
    enum status status = put_object(ask, id, &ask->reply.body, &err);
    if (status == STATUS_NOT_FOUND) {
        refuse(ask, FAULT_NOT_FOUND, "id", "there is no %s '%s'", ask->files ? "file" : "batch", id);
    } else if (status != STATUS_OK) {
        answer_trouble(ask, &err);
    }
}

/* --- Files --- */

/* Copies a part of the upload into a file, durably. */
static enum status save_part(const struct ask *ask, const struct multipart_part *part, const char *path,
                             struct err *err)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    int fd;
    TRY(file_make(path, O_WRONLY | O_TRUNC, &fd, err));
    enum status status = STATUS_OK;
    for (uint64_t at = part->begin; status == STATUS_OK && at < part->end;) {
        size_t wanted = part->end - at < BLOCK ? (size_t)(part->end - at) : BLOCK;
        ssize_t got = pread(ask->file, block, wanted, (off_t)at);
        if (got <= 0) {
            status = err_set_errno(err, "cannot read the body");
        } else {
            status = file_put(fd, block, (size_t)got, path, err);
            at += (uint64_t)got;
        }
    }
    if (status == STATUS_OK && fsync(fd) != 0) { status = err_set_errno(err, "cannot write %s", path); }
    close(fd);
    return status;
}

static enum status save_file(struct ask *ask, const struct multipart_part *part, struct err *err)
{
    char id[STORE_ID_MAX], half[STORE_PATH_MAX], path[STORE_PATH_MAX];
    struct buffer object = {0};
    TRY(store_make_id("file-", id, err));
    store_path_of(folder_of(ask), "files", id, ".part", half);
    store_path_of(folder_of(ask), "files", id, "", path);
    enum status status = save_part(ask, part, half, err);
    if (status == STATUS_OK && rename(half, path) != 0) { status = err_set_errno(err, "cannot write %s", path); }
    if (status == STATUS_OK) { status = file_sync_folder(path, err); }
    store_put_file(&object, id, part->end - part->begin, part->filename, "batch");
    store_path_of(folder_of(ask), "files", id, ".json", half);
    if (status == STATUS_OK) { status = file_write_durably(half, &object, err); }
    if (status == STATUS_OK) {
        buffer_append(&ask->reply.body, object.data, object.length);
    } else {
        (void)unlink(half); /* its object */
        store_path_of(folder_of(ask), "files", id, ".part", half);
        (void)unlink(half);
        (void)unlink(path);
    }
    buffer_free(&object);
    return status;
}

static void upload_file(struct ask *ask)
{
    struct multipart multipart;
    struct multipart_part part, file = {.begin = 1};
    struct err err;
    enum status status = STATUS_OK;
    bool more = true, found = false, told = false;
    char purpose[32] = "";
    if (ask->file < 0 || !multipart_open(&multipart, ask->type, ask->file, ask->length)) {
        refuse(ask, FAULT_BAD_REQUEST, NULL, "a file comes as multipart/form-data with a boundary");
        return;
    }
    while (status == STATUS_OK && (status = multipart_next(&multipart, &part, &more, &err)) == STATUS_OK && more) {
        bool is_file = strcmp(part.name, "file") == 0, is_purpose = strcmp(part.name, "purpose") == 0;
        if ((is_file && found) || (is_purpose && told)) { /* so there are at most two parts, each read once */
            status = err_set(&err, STATUS_BAD_INPUT, "%s is there twice", part.name);
        } else if (!is_file && !is_purpose) {
            refuse(ask, FAULT_BAD_REQUEST, NULL, "%.40s is not supported here", part.name);
            return;
        } else if (is_file) {
            file = part;
            found = true;
        } else {
            told = true;
            if (part.end - part.begin >= sizeof purpose) { continue; }
            ssize_t got = pread(ask->file, purpose, (size_t)(part.end - part.begin), (off_t)part.begin);
            purpose[got > 0 ? got : 0] = '\0';
        }
    }
    if (status == STATUS_BAD_INPUT) {
        refuse(ask, FAULT_BAD_REQUEST, NULL, "%s", err.message);
    } else if (status == STATUS_OK && !found) {
        refuse(ask, FAULT_BAD_REQUEST, "file", "file: is missing");
    } else if (status == STATUS_OK && strcmp(purpose, "batch") != 0) {
        refuse(ask, FAULT_BAD_REQUEST, "purpose", "purpose: must be batch");
    } else if (status != STATUS_OK || save_file(ask, &file, &err) != STATUS_OK) {
        answer_trouble(ask, &err);
    }
}

static void send_content(struct ask *ask, const char *id)
{
    char path[STORE_PATH_MAX];
    struct stat info = {0};
    struct buffer object = {0};
    struct err err;
    int fd = -1;
    enum status status = put_object(ask, id, &object, &err);
    buffer_free(&object);
    store_path_of(folder_of(ask), "files", id, "", path);
    if (status == STATUS_OK && ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &info) != 0)) {
        status = err_set_errno(&err, "cannot open %s", path);
    }
    if (status == STATUS_OK) {
        ask->reply.type = "application/octet-stream";
    } else if (status == STATUS_NOT_FOUND) {
        refuse(ask, FAULT_NOT_FOUND, "id", "there is no file '%s'", id);
    } else {
        answer_trouble(ask, &err);
    }
    if (status == STATUS_OK && info.st_size > 0) {
        ask->reply.file = fd;
        ask->reply.file_length = (uint64_t)info.st_size;
    } else if (fd >= 0) {
        close(fd);
    }
}

static void delete_file(struct ask *ask, const char *id)
{
    char path[STORE_PATH_MAX];
    struct err err;
    store_path_of(folder_of(ask), "files", id, ".json", path);
    if (unlink(path) != 0 && errno == ENOENT) {
        refuse(ask, FAULT_NOT_FOUND, "id", "there is no file '%s'", id);
        return;
    }
    store_path_of(folder_of(ask), "files", id, "", path);
    bool gone = unlink(path) == 0 || errno == ENOENT;
    if (!gone || file_sync_folder(path, &err) != STATUS_OK) {
        refuse(ask, FAULT_UNAVAILABLE, NULL, "the file could not be deleted");
        return;
    }
    buffer_json(&ask->reply.body, "{'id':%s,'object':'file','deleted':true}", id);
}

/* --- Batches --- */

/* Reads "24h": a number of s, m, h or d. 0: it is none, or too long. */
static uint64_t read_window(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 10);
    uint64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 24 * 3600 : 0;
    bool good = text[0] >= '1' && text[0] <= '9' && unit > 0 && end[1] == '\0' && number <= WINDOW_MOST_S;
    return good && number * unit <= WINDOW_MOST_S ? number * unit : 0;
}

/* Reads the body of a new batch. False: it was refused. */
static bool read_batch(struct ask *ask, struct stored_batch *out)
{
    const char *bytes = ask->body.data ? ask->body.data : "", *value;
    size_t length = ask->body.length, value_length;
    char endpoint[64];
    if (!json_valid(bytes, length) || !memchr(bytes, '{', length)) {
        refuse(ask, FAULT_BAD_REQUEST, NULL, "the body is no JSON object");
        return false;
    }
    if (!json_member_text(bytes, length, "input_file_id", out->input, sizeof out->input) ||
        !store_is_id(out->input, "file-")) {
        refuse(ask, FAULT_BAD_REQUEST, "input_file_id", "input_file_id: must be the id of a file");
        return false;
    }
    if (!json_member_text(bytes, length, "endpoint", endpoint, sizeof endpoint) ||
        strcmp(endpoint, "/v1/embeddings") != 0) {
        refuse(ask, FAULT_BAD_REQUEST, "endpoint", "endpoint: must be /v1/embeddings");
        return false;
    }
    if (!json_member_text(bytes, length, "completion_window", out->window, sizeof out->window) ||
        read_window(out->window) == 0) {
        refuse(ask, FAULT_BAD_REQUEST, "completion_window",
               "completion_window: must be a time such as 24h, at most 30d");
        return false;
    }
    if (json_member(bytes, length, "output_expires_after", &value, &value_length) && value[0] != 'n') {
        refuse(ask, FAULT_BAD_REQUEST, "output_expires_after",
               "output_expires_after: is not supported; files are kept until they are deleted");
        return false;
    }
    if (json_member(bytes, length, "metadata", &value, &value_length) && value[0] != 'n') {
        if (value[0] != '{' || value_length > METADATA_BYTES) {
            refuse(ask, FAULT_BAD_REQUEST, "metadata", "metadata: must be an object of at most %d bytes",
                   (int)METADATA_BYTES);
            return false;
        }
        buffer_append(&out->metadata, value, value_length);
    }
    return true;
}

/* Makes a batch that has its input. Its object, without which there is no batch, comes last. */
static enum status make_batch(const struct ask *ask, const struct stored_batch *batch, struct err *err)
{
    char lock[STORE_PATH_MAX];
    int fd;
    store_path_of(folder_of(ask), "batches", batch->id, ".lock", lock);
    TRY(file_make(lock, O_WRONLY, &fd, err));
    close(fd);
    enum status status = stored_batch_write(folder_of(ask), batch, err);
    if (status != STATUS_OK) { /* without a lock nobody would run it */
        char object[STORE_PATH_MAX];
        store_path_of(folder_of(ask), "batches", batch->id, ".json", object);
        (void)unlink(object);
        (void)unlink(lock);
    }
    return status;
}

static enum status save_batch(struct ask *ask, struct stored_batch *batch, bool *found, struct err *err)
{
    char path[STORE_PATH_MAX], input[STORE_PATH_MAX];
    TRY(store_make_id("batch_", batch->id, err));
    batch->created_at = clock_unix_ms() / 1000;
    batch->expires_at = batch->created_at + read_window(batch->window);
    store_path_of(folder_of(ask), "files", batch->input, "", input);
    store_path_of(folder_of(ask), "batches", batch->id, ".input", path);
    bool linked = link(input, path) == 0;
    *found = linked || errno != ENOENT;
    if (!linked && *found) { return err_set_errno(err, "cannot link %s", path); }
    if (!*found) { return STATUS_OK; }
    enum status status = make_batch(ask, batch, err);
    if (status != STATUS_OK) { (void)unlink(path); } /* it would hold the room of the file for ever */
    return status;
}

static void create_batch(struct ask *ask)
{
    struct stored_batch batch = {0};
    struct err err;
    bool found = true;
    if (read_batch(ask, &batch)) {
        enum status status = save_batch(ask, &batch, &found, &err);
        if (status != STATUS_OK) {
            answer_trouble(ask, &err);
        } else if (!found) {
            refuse(ask, FAULT_BAD_REQUEST, "input_file_id", "input_file_id: there is no file '%s'", batch.input);
        } else {
            stored_batch_put(&ask->reply.body, &batch);
        }
    }
    stored_batch_free(&batch);
}

static void cancel_batch(struct ask *ask, const char *id)
{
    char path[STORE_PATH_MAX];
    struct stored_batch batch;
    struct err err;
    int fd;
    enum status status = stored_batch_read(folder_of(ask), id, &batch, &err);
    if (status == STATUS_OK && stored_batch_has_ended(&batch)) {
        stored_batch_free(&batch);
        refuse(ask, FAULT_BAD_REQUEST, NULL, "the batch has ended already");
        return;
    }
    stored_batch_free(&batch);
    if (status == STATUS_OK) {
        store_path_of(folder_of(ask), "batches", id, ".cancel", path);
        status = file_make(path, O_WRONLY, &fd, &err);
        if (status == STATUS_OK) {
            close(fd);
            status = file_sync_folder(path, &err);
        }
        if (status != STATUS_OK) {
            answer_trouble(ask, &err);
            return;
        }
    }
    answer_object(ask, id);
}

/* --- The way of a call --- */

/* Splits ID[/word]; false: it is neither. */
static bool split_rest(const struct ask *ask, char id[STORE_ID_MAX], const char **word)
{
    const char *slash = strchr(ask->rest, '/');
    size_t length = slash ? (size_t)(slash - ask->rest) : strlen(ask->rest);
    snprintf(id, STORE_ID_MAX, "%.*s", (int)length, ask->rest);
    *word = slash ? slash + 1 : "";
    return length < STORE_ID_MAX && store_is_id(id, ask->files ? "file-" : "batch_");
}

static void answer_one(struct ask *ask)
{
    char id[STORE_ID_MAX];
    const char *word;
    if (!split_rest(ask, id, &word)) {
        refuse(ask, FAULT_NOT_FOUND, "id", "there is no such %s", ask->files ? "file" : "batch");
    } else if (ask->method == HTTP_GET && word[0] == '\0') {
        answer_object(ask, id);
    } else if (ask->method == HTTP_GET && ask->files && strcmp(word, "content") == 0) {
        send_content(ask, id);
    } else if (ask->method == HTTP_DELETE && ask->files && word[0] == '\0') {
        delete_file(ask, id);
    } else if (ask->method == HTTP_POST && !ask->files && strcmp(word, "cancel") == 0) {
        cancel_batch(ask, id);
    } else {
        refuse(ask, FAULT_NOT_FOUND, NULL, "there is no such path, or it takes another method");
    }
}

/* Thread: the calls'. */
static void work(void *context, void *item)
{
    struct ask *ask = item;
    (void)context;
    ask->reply.type = "application/json";
    if (ask->rest[0] != '\0') {
        answer_one(ask);
    } else if (ask->method == HTTP_GET) {
        answer_list(ask);
    } else if (ask->files) {
        upload_file(ask);
    } else {
        create_batch(ask);
    }
}

static void free_ask(struct ask *ask)
{
    http_reply_free(&ask->reply);
    buffer_free(&ask->body);
    if (ask->file >= 0) { close(ask->file); }
    free(ask);
}

static void on_done(evutil_socket_t fd, short what, void *context)
{
    struct batches *batches = context;
    uint64_t count;
    (void)what;
    if (read(fd, &count, sizeof count) < 0) { count = 0; } /* another turn has taken them */
    for (struct ask *ask; (ask = thread_pool_take(batches->pool)) != NULL;) {
        gateway_answer(batches->gateway, ask->number, &ask->reply);
        free_ask(ask);
    }
}

static enum http_when refuse_now(struct http_reply *reply, enum fault_kind kind, const char *message)
{
    struct fault fault;
    fault_set(&fault, NULL, kind, NULL, "%s", message);
    reply->status = fault.status;
    fault_put_headers(&fault, &reply->headers);
    dialect_render_fault(NULL, &fault, &reply->body);
    return HTTP_NOW;
}

static enum http_when take_call(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct batches *batches = context;
    const char *type = http_header(request, "Content-Type");
    bool files = strncmp(request->path, "/v1/files", strlen("/v1/files")) == 0;
    if (strlen(request->rest) >= sizeof((struct ask *)0)->rest) {
        return refuse_now(reply, FAULT_NOT_FOUND, "there is no such path");
    }
    struct ask *ask = thread_pool_out(batches->pool) < CALLS_MAX ? calloc(1, sizeof *ask) : NULL;
    if (!ask) { return refuse_now(reply, FAULT_UNAVAILABLE, "too many calls wait for the disk"); }
    *ask = (struct ask){.batches = batches,
                        .number = request->number,
                        .method = request->method,
                        .files = files,
                        .file = request->file >= 0 ? fcntl(request->file, F_DUPFD_CLOEXEC, 0) : -1,
                        .length = request->body_length};
    snprintf(ask->rest, sizeof ask->rest, "%s", request->rest);
    snprintf(ask->query, sizeof ask->query, "%s", request->query);
    snprintf(ask->type, sizeof ask->type, "%s", type ? type : "");
    if (request->body) { buffer_append(&ask->body, request->body, request->body_length); }
    if (!buffer_ok(&ask->body)) {
        free_ask(ask);
        return refuse_now(reply, FAULT_UNAVAILABLE, "no memory for a call");
    }
    thread_pool_put(batches->pool, ask);
    return HTTP_LATER;
}

/* --- Opening and closing --- */

static void *run_batches(void *context)
{
    batch_runner_loop(context);
    return NULL;
}

static enum status start(struct batches *batches, const struct gateway_options *options, struct err *err)
{
    batches->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    batches->runner = (struct batch_runner){.folder = options->data,
                                            .address = options->address,
                                            .queues = options->queues,
                                            .queue_count = options->queue_count,
                                            .quit_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (batches->done_fd < 0 || batches->runner.quit_fd < 0) { return err_set_errno(err, "cannot make an eventfd"); }
    TRY(store_folder_open(options->data, err));
    batches->done = event_new(options->base, batches->done_fd, EV_READ | EV_PERSIST, on_done, batches);
    if (!batches->done || event_add(batches->done, NULL) != 0) {
        return err_set(err, STATUS_NO_MEMORY, "no memory for batches");
    }
    struct thread_pool_options pool = {
        .name = "files", .threads = 1, .capacity = CALLS_MAX, .wake_fd = batches->done_fd, .work = work};
    TRY(thread_pool_open(&pool, &batches->pool, err));
    batches->started = pthread_create(&batches->thread, NULL, run_batches, &batches->runner) == 0;
    return batches->started ? STATUS_OK : err_set(err, STATUS_IO, "cannot start a thread");
}

/* Stops the batch that runs at a point where it can be resumed, and ends the threads; calls that were not answered are
 * not answered any more. */
static void close_batches(void *context)
{
    struct batches *batches = context;
    uint64_t one = 1;
    __atomic_store_n(&batches->runner.quit, 1, __ATOMIC_RELAXED);
    if (batches->started) {
        if (write(batches->runner.quit_fd, &one, sizeof one) < 0) { one = 0; } /* it looks once a second, too */
        pthread_join(batches->thread, NULL);
    }
    for (struct ask *ask; batches->pool && (ask = thread_pool_wait(batches->pool)) != NULL;) { free_ask(ask); }
    thread_pool_close(batches->pool);
    if (batches->done) { event_free(batches->done); }
    if (batches->done_fd >= 0) { close(batches->done_fd); }
    if (batches->runner.quit_fd >= 0) { close(batches->runner.quit_fd); }
    free(batches);
}

static enum status open_batches(const struct gateway_options *options, struct gateway *gateway, void **out,
                                struct err *err)
{
    struct batches *batches = calloc(1, sizeof *batches);
    if (!batches) { return err_set(err, STATUS_NO_MEMORY, "no memory for batches"); }
    batches->gateway = gateway;
    batches->folder = options->data;
    batches->done_fd = batches->runner.quit_fd = -1;
    enum status status = start(batches, options, err);
    if (status != STATUS_OK) {
        close_batches(batches);
        return status;
    }
    *out = batches;
    return STATUS_OK;
}

static void put_metrics(const void *context, struct buffer *to)
{
    const struct batches *batches = context;
    const struct batch_counts *counts = &batches->runner.counts;
    static const char *const names[] = {"batches_running gauge", "batches_waiting gauge",
                                        "batch_lines_completed_total counter", "batch_lines_failed_total counter"};
    const uint64_t *const values[] = {&counts->running, &counts->waiting, &counts->completed, &counts->failed};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        buffer_format(to, "# TYPE sluice_gateway_%s\nsluice_gateway_%.*s %llu\n", names[i], (int)strcspn(names[i], " "),
                      names[i], (unsigned long long)__atomic_load_n(values[i], __ATOMIC_RELAXED));
    }
}

static const struct http_route routes[] = {
    {"/v1/files", HTTP_GET | HTTP_POST, "application/json", take_call, .spool = true},
    {"/v1/files/", HTTP_GET | HTTP_DELETE, "application/json", take_call},
    {"/v1/batches", HTTP_GET | HTTP_POST, "application/json", take_call},
    {"/v1/batches/", HTTP_GET | HTTP_POST, "application/json", take_call},
};
static const struct openapi_path paths[] = {
    {"/v1/files", "get", NULL, "The files of batches"},
    {"/v1/files/{file}", "get", NULL, "One of them"},
    {"/v1/files/{file}", "delete", NULL, "Delete it"},
    {"/v1/files/{file}/content", "get", "application/octet-stream", "Its content"},
    {"/v1/batches", "get", NULL, "The batches"},
    {"/v1/batches/{batch}", "get", NULL, "One of them"},
    {"/v1/batches/{batch}/cancel", "post", NULL, "Cancel it"},
};

const struct gateway_extension batches_extension = {
    .routes = routes,
    .route_count = sizeof routes / sizeof routes[0],
    .paths = {paths, sizeof paths / sizeof paths[0]},
    .file_bytes = STORE_FILE_BYTES,
    .open = open_batches,
    .close = close_batches,
    .put_metrics = put_metrics,
};

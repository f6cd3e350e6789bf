#include "batch/api.h"

#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
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

/* Returns false, for the callers' own return. */
PRINTF_LIKE(4, 5)
static bool refuse(struct http_reply *reply, enum fault_kind kind, const char *param, const char *format, ...)
{
    struct fault fault;
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    fault_set(&fault, NULL, kind, param, "%s", message);
    reply->body.length = 0;
    reply->status = fault.status;
    fault_put_headers(&fault, &reply->headers);
    dialect_render_fault(NULL, &fault, &reply->body);
    return false;
}

/* Answers with what went wrong: nothing has this id, or there is trouble here, of which the log has the details. */
static void answer_trouble(struct ask *ask, const char *id, const struct err *err)
{
    if (err->status == STATUS_NOT_FOUND) {
        refuse(&ask->reply, FAULT_NOT_FOUND, "id", "there is no %s '%s'", ask->files ? "file" : "batch", id);
    } else {
        log_warn("batches_call_failed", log_str("error", err->message));
        refuse(&ask->reply, FAULT_UNAVAILABLE, NULL, "%s", err->message);
    }
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

/* Appends the object of a file or a batch. Errors: STATUS_NOT_FOUND, those of files. */
static enum status put_object(const struct ask *ask, const char *id, struct buffer *to, struct err *err)
{
    struct stored_batch batch;
    if (ask->files) { return store_read_file(ask->batches->folder, id, to, err); }
    enum status status = stored_batch_read(ask->batches->folder, id, &batch, err);
    if (status == STATUS_OK) { stored_batch_put(to, &batch); }
    stored_batch_free(&batch);
    return status;
}

/* A page of objects that is asked for. */
struct page {
    size_t most;
    char after[STORE_ID_MAX], purpose[32];
    bool ascending;
};

static enum status put_page(const struct ask *ask, const struct page *page, const struct store_names *names,
                            struct buffer *to, struct err *err)
{
    struct buffer object = {0};
    const char *first = "", *last = "";
    size_t listed = 0;
    bool more = false;
    enum status status = STATUS_OK;
    buffer_json(to, "{'object':'list','data':[");
    for (size_t i = 0; status == STATUS_OK && i < names->count && !more; i++) {
        const char *name = names->at[page->ascending ? i : names->count - 1 - i];
        int compared = strcmp(name, page->after);
        char purpose[32];
        if (page->after[0] != '\0' && (page->ascending ? compared <= 0 : compared >= 0)) { continue; }
        object.length = 0;
        status = put_object(ask, name, &object, err);
        if (status == STATUS_NOT_FOUND) { status = STATUS_OK; } /* it is gone */
        if (status != STATUS_OK || object.length == 0) { continue; }
        (void)json_member_text(object.data, object.length, "purpose", purpose, sizeof purpose);
        if (page->purpose[0] != '\0' && strcmp(purpose, page->purpose) != 0) { continue; }
        more = listed == page->most;
        if (more) { break; }
        if (listed++ > 0) { buffer_string(to, ","); }
        buffer_append(to, object.data, object.length);
        if (first[0] == '\0') { first = name; }
        last = name;
    }
    buffer_json(to, "],'first_id':%s,'last_id':%s,'has_more':%hhd}", first, last, (signed char)more);
    buffer_free(&object);
    return status;
}

/* Answers with a page, the newest first unless `order` is asc. */
static void answer_list(struct ask *ask)
{
    struct page page = {.most = ask->files ? FILES_LISTED : LISTED};
    struct store_names names = {0};
    struct err err;
    char value[STORE_ID_MAX];
    size_t most = ask->files ? FILES_LISTED : BATCHES_LISTED;
    page.ascending = find_parameter(ask->query, "order", value, sizeof value) && strcmp(value, "asc") == 0;
    (void)find_parameter(ask->query, "after", page.after, sizeof page.after);
    (void)find_parameter(ask->query, "purpose", page.purpose, sizeof page.purpose);
    if (find_parameter(ask->query, "limit", value, sizeof value)) {
        page.most = strtoul(value, NULL, 10);
        if (page.most < 1 || page.most > most) {
            refuse(&ask->reply, FAULT_BAD_REQUEST, "limit", "limit: from 1 to %zu", most);
            return;
        }
    }
    enum status status = store_list(ask->batches->folder, ask->files ? "files" : "batches", ".json", &names, &err);
    if (status == STATUS_OK) { status = put_page(ask, &page, &names, &ask->reply.body, &err); }
    if (status != STATUS_OK) { answer_trouble(ask, "", &err); }
    store_names_free(&names);
}

static void answer_object(struct ask *ask, const char *id)
{
    struct err err;
    if (put_object(ask, id, &ask->reply.body, &err) != STATUS_OK) { answer_trouble(ask, id, &err); }
}

/* --- Files --- */

static enum status save_file(struct ask *ask, const struct multipart_part *part, uint64_t life_s, struct err *err)
{
    char id[STORE_ID_MAX], half[STORE_PATH_MAX], path[STORE_PATH_MAX], object_path[STORE_PATH_MAX];
    struct buffer object = {0};
    int fd;
    TRY(store_make_id("file-", id, err));
    store_path_of(ask->batches->folder, "files", id, ".part", half);
    store_path_of(ask->batches->folder, "files", id, "", path);
    store_path_of(ask->batches->folder, "files", id, ".json", object_path);
    TRY(file_make(half, O_WRONLY | O_TRUNC, &fd, err));
    enum status status = store_copy(ask->file, part->begin, part->end, fd, half, err);
    if (status == STATUS_OK && fsync(fd) != 0) { status = err_set_errno(err, "cannot write %s", half); }
    close(fd);
    if (status == STATUS_OK && rename(half, path) != 0) { status = err_set_errno(err, "cannot write %s", path); }
    if (status == STATUS_OK) { status = file_sync_folder(path, err); }
    store_put_file(&object, id, part->end - part->begin, part->filename, "batch", life_s);
    if (status == STATUS_OK) { status = file_write_durably(object_path, &object, err); }
    if (status == STATUS_OK) {
        buffer_append(&ask->reply.body, object.data, object.length);
    } else {
        (void)unlink(object_path);
        (void)unlink(half);
        (void)unlink(path);
    }
    buffer_free(&object);
    return status;
}

/* The parts of an upload; the file comes last. */
enum upload_part { PURPOSE, ANCHOR, SECONDS, CONTENT, UPLOAD_PARTS };
static const char *const upload_parts[UPLOAD_PARTS] = {"purpose", "expires_after[anchor]", "expires_after[seconds]",
                                                       "file"};

struct upload {
    struct multipart_part content;
    bool has[UPLOAD_PARTS];
    char text[CONTENT][32]; /* the others, as far as they fit */
};

/* Reads the parts, each of which may be there once. */
static enum status read_upload(const struct ask *ask, struct multipart *multipart, struct upload *out, struct err *err)
{
    for (;;) {
        struct multipart_part part;
        bool more;
        int i = 0;
        TRY(multipart_next(multipart, &part, &more, err));
        if (!more) { return STATUS_OK; }
        while (i < UPLOAD_PARTS && strcmp(part.name, upload_parts[i]) != 0) { i++; }
        if (i == UPLOAD_PARTS) { return err_set(err, STATUS_BAD_INPUT, "%.40s is not supported here", part.name); }
        if (out->has[i]) { return err_set(err, STATUS_BAD_INPUT, "%s is there twice", part.name); }
        out->has[i] = true;
        if (i == CONTENT) {
            out->content = part;
        } else if (part.end - part.begin < sizeof out->text[i]) {
            ssize_t got = pread(ask->file, out->text[i], (size_t)(part.end - part.begin), (off_t)part.begin);
            out->text[i][got > 0 ? got : 0] = '\0';
        }
    }
}

static bool is_life(const char *anchor, uint64_t seconds)
{
    return strcmp(anchor, "created_at") == 0 && seconds >= STORE_LIFE_LEAST_S && seconds <= STORE_LIFE_MOST_S;
}

static bool refuse_life(struct ask *ask, const char *param)
{
    return refuse(&ask->reply, FAULT_BAD_REQUEST, param, "%s: anchor must be created_at, seconds from %d to %d", param,
                  (int)STORE_LIFE_LEAST_S, (int)STORE_LIFE_MOST_S);
}

static void upload_file(struct ask *ask)
{
    struct multipart multipart;
    struct upload upload = {0};
    struct err err;
    if (ask->file < 0 || !multipart_open(&multipart, ask->type, ask->file, ask->length)) {
        refuse(&ask->reply, FAULT_BAD_REQUEST, NULL, "a file comes as multipart/form-data with a boundary");
        return;
    }
    enum status status = read_upload(ask, &multipart, &upload, &err);
    uint64_t bytes = upload.content.end - upload.content.begin;
    char *end;
    uint64_t life_s = strtoull(upload.text[SECONDS], &end, 10);
    if (status == STATUS_BAD_INPUT) {
        refuse(&ask->reply, FAULT_BAD_REQUEST, NULL, "%s", err.message);
    } else if (status == STATUS_OK && !upload.has[CONTENT]) {
        refuse(&ask->reply, FAULT_BAD_REQUEST, "file", "file: is missing");
    } else if (status == STATUS_OK && strcmp(upload.text[PURPOSE], "batch") != 0) {
        refuse(&ask->reply, FAULT_BAD_REQUEST, "purpose", "purpose: must be batch");
    } else if (status == STATUS_OK && (upload.has[ANCHOR] || upload.has[SECONDS]) &&
               (*end != '\0' || !is_life(upload.text[ANCHOR], life_s))) {
        refuse_life(ask, "expires_after");
    } else if (status == STATUS_OK && !store_has_room(ask->batches->folder, bytes)) {
        refuse(&ask->reply, FAULT_UNAVAILABLE, NULL, "the disk has no room for this file: delete others");
    } else if (status != STATUS_OK || save_file(ask, &upload.content, life_s, &err) != STATUS_OK) {
        answer_trouble(ask, "", &err);
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
    store_path_of(ask->batches->folder, "files", id, "", path);
    if (status == STATUS_OK && ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 || fstat(fd, &info) != 0)) {
        status = err_set_errno(&err, "cannot open %s", path);
    }
    if (status != STATUS_OK) { answer_trouble(ask, id, &err); }
    if (status == STATUS_OK && info.st_size > 0) {
        ask->reply.file = fd;
        ask->reply.file_length = (uint64_t)info.st_size;
    } else if (fd >= 0) {
        close(fd);
    }
    if (status == STATUS_OK) { ask->reply.type = "application/octet-stream"; }
}

static void delete_file(struct ask *ask, const char *id)
{
    struct err err;
    if (store_delete_file(ask->batches->folder, id, &err) != STATUS_OK) {
        answer_trouble(ask, id, &err);
    } else {
        buffer_json(&ask->reply.body, "{'id':%s,'object':'file','deleted':true}", id);
    }
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

/* Finds a member that is not null. */
static bool find_member(const struct buffer *object, const char *name, struct slice *out)
{
    return json_member(object->data, object->length, name, &out->bytes, &out->length) && out->bytes[0] != 'n';
}

/* Reads the body of a new batch. False: it was refused. */
static bool read_batch(struct ask *ask, struct stored_batch *out)
{
    const struct buffer *body = &ask->body;
    struct http_reply *reply = &ask->reply;
    struct slice value;
    char endpoint[64], anchor[32];
    uint64_t seconds;
    if (body->length == 0 || !json_valid(body->data, body->length) || !memchr(body->data, '{', body->length)) {
        return refuse(reply, FAULT_BAD_REQUEST, NULL, "the body is no JSON object");
    }
    (void)json_member_text(body->data, body->length, "input_file_id", out->input, sizeof out->input);
    (void)json_member_text(body->data, body->length, "endpoint", endpoint, sizeof endpoint);
    (void)json_member_text(body->data, body->length, "completion_window", out->window, sizeof out->window);
    if (!store_is_id(out->input, "file-")) {
        return refuse(reply, FAULT_BAD_REQUEST, "input_file_id", "input_file_id: must be the id of a file");
    }
    if (strcmp(endpoint, "/v1/embeddings") != 0) {
        return refuse(reply, FAULT_BAD_REQUEST, "endpoint", "endpoint: must be /v1/embeddings");
    }
    if (read_window(out->window) == 0) {
        return refuse(reply, FAULT_BAD_REQUEST, "completion_window",
                      "completion_window: must be a time such as 24h, at most 30d");
    }
    if (find_member(body, "output_expires_after", &value)) {
        (void)json_member_text(value.bytes, value.length, "anchor", anchor, sizeof anchor);
        (void)json_member_number(value.bytes, value.length, "seconds", &seconds);
        if (!is_life(anchor, seconds)) { return refuse_life(ask, "output_expires_after"); }
        buffer_append(&out->expiry, value.bytes, value.length);
    }
    if (find_member(body, "metadata", &value)) {
        if (value.bytes[0] != '{' || value.length > METADATA_BYTES) {
            return refuse(reply, FAULT_BAD_REQUEST, "metadata", "metadata: must be an object of at most %d bytes",
                          (int)METADATA_BYTES);
        }
        buffer_append(&out->metadata, value.bytes, value.length);
    }
    return true;
}

/* Makes the lock of a new batch and locks it. The runner removes one that it finds before that. */
static enum status make_lock(const char *path, int *fd, struct err *err)
{
    struct stat info = {0};
    while (info.st_nlink == 0) {
        TRY(file_make(path, O_WRONLY, fd, err));
        if (flock(*fd, LOCK_EX) == 0 && fstat(*fd, &info) == 0 && info.st_nlink > 0) { return STATUS_OK; }
        close(*fd);
    }
    return err_set_errno(err, "cannot lock %s", path);
}

/* Gives a batch an id and its input, and makes its object, without which there is none. Errors: STATUS_NOT_FOUND: the
 * input is gone. */
static enum status save_batch(struct ask *ask, struct stored_batch *batch, struct err *err)
{
    const char *folder = ask->batches->folder;
    char path[STORE_PATH_MAX], input[STORE_PATH_MAX];
    struct buffer object = {0};
    int fd;
    enum status status = store_read_file(folder, batch->input, &object, err);
    buffer_free(&object);
    TRY(status);
    TRY(store_make_id("batch_", batch->id, err));
    batch->created_at = clock_unix_ms() / 1000;
    batch->expires_at = batch->created_at + read_window(batch->window);
    store_path_of(folder, "batches", batch->id, ".lock", path);
    TRY(make_lock(path, &fd, err));
    store_path_of(folder, "files", batch->input, "", input);
    store_path_of(folder, "batches", batch->id, ".input", path);
    status =
        link(input, path) == 0 ? stored_batch_write(folder, batch, err) : err_set_errno(err, "cannot link %s", path);
    if (status != STATUS_OK) {
        store_path_of(folder, "batches", batch->id, ".json", path);
        (void)unlink(path);
        store_remove_rest(folder, batch->id);
    }
    close(fd);
    return status;
}

static void create_batch(struct ask *ask)
{
    struct stored_batch batch = {0};
    struct err err;
    if (read_batch(ask, &batch)) {
        enum status status = save_batch(ask, &batch, &err);
        if (status == STATUS_NOT_FOUND) {
            refuse(&ask->reply, FAULT_BAD_REQUEST, "input_file_id", "input_file_id: there is no file '%s'",
                   batch.input);
        } else if (status != STATUS_OK) {
            answer_trouble(ask, "", &err);
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
    enum status status = stored_batch_read(ask->batches->folder, id, &batch, &err);
    bool ended = status == STATUS_OK && stored_batch_has_ended(&batch);
    stored_batch_free(&batch);
    if (ended) {
        refuse(&ask->reply, FAULT_BAD_REQUEST, NULL, "the batch has ended already");
        return;
    }
    store_path_of(ask->batches->folder, "batches", id, ".cancel", path);
    if (status == STATUS_OK && (status = file_make(path, O_WRONLY, &fd, &err)) == STATUS_OK) {
        close(fd);
        status = file_sync_folder(path, &err);
    }
    if (status == STATUS_OK) { status = put_object(ask, id, &ask->reply.body, &err); }
    if (status != STATUS_OK) { answer_trouble(ask, id, &err); }
}

/* --- The way of a call --- */

static void answer_one(struct ask *ask)
{
    char id[STORE_ID_MAX];
    size_t length = strcspn(ask->rest, "/");
    const char *word = ask->rest[length] == '/' ? ask->rest + length + 1 : "";
    snprintf(id, sizeof id, "%.*s", (int)length, ask->rest);
    if (length >= sizeof id || !store_is_id(id, ask->files ? "file-" : "batch_")) {
        refuse(&ask->reply, FAULT_NOT_FOUND, "id", "there is no such %s", ask->files ? "file" : "batch");
    } else if (ask->method == HTTP_GET && word[0] == '\0') {
        answer_object(ask, id);
    } else if (ask->method == HTTP_GET && ask->files && strcmp(word, "content") == 0) {
        send_content(ask, id);
    } else if (ask->method == HTTP_DELETE && ask->files && word[0] == '\0') {
        delete_file(ask, id);
    } else if (ask->method == HTTP_POST && !ask->files && strcmp(word, "cancel") == 0) {
        cancel_batch(ask, id);
    } else {
        refuse(&ask->reply, FAULT_NOT_FOUND, NULL, "there is no such path, or it takes another method");
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

/* Copies a call. False: it was refused. */
static bool copy_call(struct ask *ask, const struct http_request *request, struct http_reply *reply)
{
    const char *type = http_header(request, "Content-Type");
    ask->number = request->number;
    ask->method = request->method;
    ask->files = strncmp(request->path, "/v1/files", strlen("/v1/files")) == 0;
    ask->file = request->file >= 0 ? fcntl(request->file, F_DUPFD_CLOEXEC, 0) : -1;
    ask->length = request->body_length;
    if (strlen(request->rest) >= sizeof ask->rest) {
        return refuse(reply, FAULT_NOT_FOUND, NULL, "there is no such path");
    }
    snprintf(ask->rest, sizeof ask->rest, "%s", request->rest);
    snprintf(ask->query, sizeof ask->query, "%s", request->query);
    snprintf(ask->type, sizeof ask->type, "%s", type ? type : "");
    if (request->body) { buffer_append(&ask->body, request->body, request->body_length); }
    return buffer_ok(&ask->body) || refuse(reply, FAULT_UNAVAILABLE, NULL, "no memory for a call");
}

static enum http_when take_call(void *context, const struct http_request *request, struct http_reply *reply)
{
    struct batches *batches = context;
    struct ask *ask = thread_pool_out(batches->pool) < CALLS_MAX ? calloc(1, sizeof *ask) : NULL;
    if (!ask) {
        refuse(reply, FAULT_UNAVAILABLE, NULL, "too many calls wait for the disk");
        return HTTP_NOW;
    }
    ask->batches = batches;
    if (!copy_call(ask, request, reply)) {
        free_ask(ask);
        return HTTP_NOW;
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
    {"/v1/files", "post", NULL, "Upload one", "multipart/form-data",
     "{'type':'object','required':['purpose','file'],'additionalProperties':false,'properties':{"
     "'purpose':{'const':'batch'},'file':{'type':'string','contentMediaType':'application/octet-stream'},"
     "'expires_after[anchor]':{'const':'created_at'},"
     "'expires_after[seconds]':{'type':'integer','minimum':3600,'maximum':2592000}},"
     "'dependentRequired':{'expires_after[anchor]':['expires_after[seconds]'],"
     "'expires_after[seconds]':['expires_after[anchor]']}}"},
    {"/v1/files/{file}", "get", NULL, "One of them"},
    {"/v1/files/{file}", "delete", NULL, "Delete it"},
    {"/v1/files/{file}/content", "get", "application/octet-stream", "Its content"},
    {"/v1/batches", "get", NULL, "The batches"},
    {"/v1/batches", "post", NULL, "Answer the requests of a file", "application/json",
     "{'type':'object','required':['input_file_id','endpoint','completion_window'],'properties':{"
     "'input_file_id':{'type':'string','pattern':'^file-[0-9a-z-]+$','maxLength':40},"
     "'endpoint':{'const':'/v1/embeddings'},"
     "'completion_window':{'type':'string','pattern':'^[1-9][0-9]*[smhd]$','description':'such as 24h; at most 30d'},"
     "'output_expires_after':{'type':['object','null'],'required':['anchor','seconds'],'properties':{"
     "'anchor':{'const':'created_at'},'seconds':{'type':'integer','minimum':3600,'maximum':2592000}}},"
     "'metadata':{'type':['object','null']}}}"},
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

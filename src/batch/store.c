#include "batch/store.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

enum { OBJECT_MAX_BYTES = 1 << 20 };

static const char *const statuses[BATCH_STATUSES] = {"validating", "in_progress", "finalizing", "completed",
                                                     "failed",     "expired",     "cancelling", "cancelled"};

/* Removes what is left of uploads whose gateway was killed. Younger ones may be another gateway's. */
static enum status remove_halves(const char *folder, struct err *err)
{
    enum { OLD_S = 24 * 3600 };
    struct buffer names = {0};
    size_t count;
    enum status status = store_list(folder, "files", ".part", &names, &count, err);
    const char *name = names.data;
    for (size_t i = 0; status == STATUS_OK && i < count; i++, name += strlen(name) + 1) {
        char path[STORE_PATH_MAX];
        struct stat info;
        store_path_of(folder, "files", name, ".part", path);
        bool old = stat(path, &info) == 0 && (uint64_t)info.st_mtime + OLD_S < clock_unix_ms() / 1000;
        if (old) { (void)unlink(path); } /* the next start tries again */
    }
    buffer_free(&names);
    return status;
}

enum status store_folder_open(const char *folder, struct err *err)
{
    char path[STORE_PATH_MAX];
    TRY(file_make_folder(folder, err));
    TRY(file_path(folder, "files", path, err));
    TRY(file_make_folder(path, err));
    TRY(file_path(folder, "batches", path, err));
    TRY(file_make_folder(path, err));
    TRY(remove_halves(folder, err));
    return file_sync_folder(path, err);
}

void store_path_of(const char *folder, const char *kind, const char *id, const char *ending, char path[STORE_PATH_MAX])
{
    snprintf(path, STORE_PATH_MAX, "%s/%s/%s%s", folder, kind, id, ending);
}

enum status store_make_id(const char *prefix, char id[STORE_ID_MAX], struct err *err)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return err_set_errno(err, "no random number to be had");
    }
    snprintf(id, STORE_ID_MAX, "%s%014" PRIx64 "%016" PRIx64, prefix, clock_unix_ns() / 1000, random);
    return STATUS_OK;
}

bool store_is_id(const char *id, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(id, prefix, length) == 0 && strlen(id) < STORE_ID_MAX - 16 && id[length] != '\0' &&
           strspn(id + length, "0123456789abcdefghijklmnopqrstuvwxyz-") == strlen(id + length);
}

void store_put_file(struct buffer *to, const char *id, uint64_t bytes, const char *filename, const char *purpose)
{
    buffer_json(to,
                "{'id':%s,'object':'file','bytes':%" PRIu64 ",'created_at':%" PRIu64
                ",'filename':%.*s,'purpose':%s,'status':'processed'}",
                id, bytes, clock_unix_ms() / 1000, (int)strlen(filename), filename, purpose);
}

/* --- Batches --- */

/* The member that says when a batch got a status. */
static void name_time(enum batch_status status, char name[32])
{
    snprintf(name, 32, "%s_at", statuses[status]);
}

static void put_id(struct buffer *to, const char *name, const char *id)
{
    buffer_json(to, ",'%s':%s", name, id); /* "": null */
}

static void put_value(struct buffer *to, const char *name, const struct buffer *value)
{
    buffer_json(to, ",'%s':", name);
    if (value->length > 0) {
        buffer_append(to, value->data, value->length);
    } else {
        buffer_string(to, "null");
    }
}

void stored_batch_put(struct buffer *to, const struct stored_batch *batch)
{
    buffer_json(to, "{'id':%s,'object':'batch','endpoint':'/v1/embeddings'", batch->id);
    put_value(to, "errors", &batch->errors);
    buffer_json(to, ",'input_file_id':%s,'completion_window':%s,'status':%s", batch->input, batch->window,
                statuses[batch->status]);
    put_id(to, "output_file_id", batch->output_id);
    put_id(to, "error_file_id", batch->errors_id);
    buffer_json(to, ",'created_at':%" PRIu64 ",'expires_at':%" PRIu64, batch->created_at, batch->expires_at);
    for (int i = BATCH_IN_PROGRESS; i < BATCH_STATUSES; i++) {
        char name[32];
        name_time((enum batch_status)i, name);
        buffer_json(to, ",'%s':%+lld", name, batch->at[i] > 0 ? (long long)batch->at[i] : -1LL);
    }
    buffer_json(to, ",'request_counts':{'total':%" PRIu64 ",'completed':%" PRIu64 ",'failed':%" PRIu64 "}",
                batch->total, batch->completed, batch->failed);
    put_value(to, "metadata", &batch->metadata);
    buffer_string(to, "}");
}

/* Copies the bytes of a member that is not null. */
static void take_value(const struct buffer *object, const char *name, struct buffer *to)
{
    const char *value;
    size_t length;
    if (json_member(object->data, object->length, name, &value, &length) && length > 0 && value[0] != 'n') {
        buffer_append(to, value, length);
    }
}

static void take_text(const struct buffer *object, const char *name, char *to, size_t size)
{
    if (!json_member_text(object->data, object->length, name, to, size) || strcmp(to, "null") == 0) { to[0] = '\0'; }
}

static bool take_object(const struct buffer *object, struct stored_batch *out)
{
    char status[32];
    const char *counts = NULL;
    size_t length = 0;
    if (!json_valid(object->data, object->length)) { return false; }
    take_text(object, "status", status, sizeof status);
    take_text(object, "input_file_id", out->input, sizeof out->input);
    take_text(object, "output_file_id", out->output_id, sizeof out->output_id);
    take_text(object, "error_file_id", out->errors_id, sizeof out->errors_id);
    take_text(object, "completion_window", out->window, sizeof out->window);
    take_value(object, "errors", &out->errors);
    take_value(object, "metadata", &out->metadata);
    (void)json_member_number(object->data, object->length, "created_at", &out->created_at);
    (void)json_member_number(object->data, object->length, "expires_at", &out->expires_at);
    for (int i = BATCH_IN_PROGRESS; i < BATCH_STATUSES; i++) {
        char name[32];
        name_time((enum batch_status)i, name);
        (void)json_member_number(object->data, object->length, name, &out->at[i]);
    }
    if (json_member(object->data, object->length, "request_counts", &counts, &length)) {
        (void)json_member_number(counts, length, "total", &out->total);
        (void)json_member_number(counts, length, "completed", &out->completed);
        (void)json_member_number(counts, length, "failed", &out->failed);
    }
    for (out->status = 0; out->status < BATCH_STATUSES && strcmp(status, statuses[out->status]) != 0;) {
        out->status++;
    }
    return out->status < BATCH_STATUSES && out->created_at > 0 && buffer_ok(&out->errors) && buffer_ok(&out->metadata);
}

bool stored_batch_has_ended(const struct stored_batch *batch)
{
    return batch->status == BATCH_COMPLETED || batch->status == BATCH_FAILED || batch->status == BATCH_EXPIRED ||
           batch->status == BATCH_CANCELLED;
}

enum status stored_batch_read(const char *folder, const char *id, struct stored_batch *out, struct err *err)
{
    char path[STORE_PATH_MAX];
    struct buffer object = {0};
    struct stat info;
    *out = (struct stored_batch){0};
    snprintf(out->id, sizeof out->id, "%s", id);
    store_path_of(folder, "batches", id, ".json", path);
    enum status status = file_read(path, OBJECT_MAX_BYTES, &object, err);
    if (status == STATUS_OK && !take_object(&object, out)) {
        status = err_set(err, STATUS_BAD_INPUT, "%s is damaged", path);
    }
    buffer_free(&object);
    TRY(status);
    store_path_of(folder, "batches", id, ".cancel", path);
    bool open = out->status == BATCH_VALIDATING || out->status == BATCH_IN_PROGRESS;
    if (open && stat(path, &info) == 0) {
        out->status = BATCH_CANCELLING;
        out->at[BATCH_CANCELLING] = (uint64_t)info.st_mtime;
    }
    return STATUS_OK;
}

enum status stored_batch_write(const char *folder, const struct stored_batch *batch, struct err *err)
{
    char path[STORE_PATH_MAX];
    struct buffer object = {0};
    store_path_of(folder, "batches", batch->id, ".json", path);
    stored_batch_put(&object, batch);
    enum status status = file_write_durably(path, &object, err);
    buffer_free(&object);
    return status;
}

void stored_batch_free(struct stored_batch *batch)
{
    buffer_free(&batch->errors);
    buffer_free(&batch->metadata);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

enum status store_list(const char *folder, const char *kind, const char *ending, struct buffer *names, size_t *count,
                       struct err *err)
{
    char path[STORE_PATH_MAX];
    struct buffer found = {0};
    size_t end = strlen(ending);
    TRY(file_path(folder, kind, path, err));
    DIR *directory = opendir(path);
    *count = 0;
    if (!directory) { return err_set_errno(err, "cannot read %s", path); }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length <= end || length - end >= STORE_ID_MAX || strcmp(entry->d_name + length - end, ending) != 0) {
            continue;
        }
        buffer_append(&found, entry->d_name, length - end);
        buffer_append(&found, "", 1);
        ++*count;
    }
    closedir(directory);
    char **order = calloc(*count + 1, sizeof *order);
    bool whole = order && buffer_ok(&found);
    size_t at = 0;
    for (size_t i = 0; whole && i < *count; i++, at += strlen(found.data + at) + 1) { order[i] = found.data + at; }
    if (whole) { qsort(order, *count, sizeof *order, compare_names); }
    for (size_t i = 0; whole && i < *count; i++) { buffer_append(names, order[i], strlen(order[i]) + 1); }
    free(order);
    buffer_free(&found);
    return whole && buffer_ok(names) ? STATUS_OK : err_set(err, STATUS_NO_MEMORY, "no memory to list %s", path);
}

#include "batch/store.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"

enum { OBJECT_MAX_BYTES = 1 << 20 };

static const char *const statuses[BATCH_STATUSES] = {"validating", "in_progress", "finalizing", "completed",
                                                     "failed",     "expired",     "cancelling", "cancelled"};

static uint64_t now_s(void)
{
    return clock_unix_ms() / 1000;
}

enum status store_folder_open(const char *folder, struct err *err)
{
    char path[STORE_PATH_MAX];
    TRY(file_make_folder(folder, err));
    TRY(file_path(folder, "files", path, err));
    TRY(file_make_folder(path, err));
    TRY(file_path(folder, "batches", path, err));
    TRY(file_make_folder(path, err));
    return file_sync_folder(path, err);
}

void store_path_of(const char *folder, const char *kind, const char *id, const char *ending, char path[STORE_PATH_MAX])
{
    snprintf(path, STORE_PATH_MAX, "%s/%s/%s%s", folder, kind, id, ending);
}

bool store_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
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

/* --- Files --- */

void store_put_file(struct buffer *to, const char *id, uint64_t bytes, const char *filename, const char *purpose,
                    uint64_t life_s)
{
    uint64_t now = now_s();
    buffer_json(to, "{'id':%s,'object':'file','bytes':%" PRIu64 ",'created_at':%" PRIu64, id, bytes, now);
    if (life_s > 0) { buffer_json(to, ",'expires_at':%" PRIu64, now + life_s); }
    buffer_json(to, ",'filename':%.*s,'purpose':%s,'status':'processed'}", (int)strlen(filename), filename, purpose);
}

enum status store_read_file(const char *folder, const char *id, struct buffer *to, struct err *err)
{
    char path[STORE_PATH_MAX];
    uint64_t expires_at;
    size_t before = to->length;
    store_path_of(folder, "files", id, ".json", path);
    TRY(file_read(path, OBJECT_MAX_BYTES, to, err));
    bool expires = json_member_number(to->data + before, to->length - before, "expires_at", &expires_at);
    if (!expires || now_s() < expires_at) { return STATUS_OK; }
    to->length = before;
    return err_set(err, STATUS_NOT_FOUND, "%s has expired", id);
}

enum status store_delete_file(const char *folder, const char *id, struct err *err)
{
    char path[STORE_PATH_MAX];
    store_path_of(folder, "files", id, ".json", path);
    if (unlink(path) != 0) { return err_set_errno(err, "cannot delete %s", path); }
    store_path_of(folder, "files", id, "", path);
    if (unlink(path) != 0 && errno != ENOENT) { return err_set_errno(err, "cannot delete %s", path); }
    return file_sync_folder(path, err);
}

/* Removes a content without an object, if none can follow: that of an upload does within a day, that of an output
 * before its batch ends. */
static void sweep_content(const char *folder, const char *name)
{
    enum { OLD_S = 24 * 3600 };
    char id[STORE_ID_MAX], path[STORE_PATH_MAX];
    struct stat info;
    snprintf(id, sizeof id, "%.*s", (int)strcspn(name, "."), name);
    store_path_of(folder, "files", id, ".json", path);
    if (store_exists(path)) { return; }
    if (store_is_id(id, "file-")) {
        snprintf(id, sizeof id, "batch_%.*s", (int)strcspn(name + strlen("file-"), "-."), name + strlen("file-"));
        store_path_of(folder, "batches", id, ".lock", path);
        if (store_exists(path)) { return; }
    }
    store_path_of(folder, "files", name, "", path);
    bool old = stat(path, &info) == 0 && (uint64_t)info.st_mtime + OLD_S < now_s();
    if (old) { (void)unlink(path); } /* the next sweep tries again */
}

void store_sweep(const char *folder)
{
    struct store_names names = {0};
    struct err err;
    enum status status = store_list(folder, "files", "", &names, &err);
    for (size_t i = 0; status == STATUS_OK && i < names.count; i++) {
        struct buffer object = {0};
        char *dot = strrchr(names.at[i], '.');
        if (!dot || strcmp(dot, ".json") != 0) {
            sweep_content(folder, names.at[i]);
            continue;
        }
        *dot = '\0';
        if (store_read_file(folder, names.at[i], &object, &err) == STATUS_NOT_FOUND) {
            (void)!store_delete_file(folder, names.at[i], &err);
        }
        buffer_free(&object);
    }
    store_names_free(&names);
}

enum status store_copy(int from, uint64_t begin, uint64_t end, int to, const char *path, struct err *err)
{
    enum { BLOCK = 1 << 16 };
    char block[BLOCK];
    while (begin < end) {
        size_t wanted = end - begin < BLOCK ? (size_t)(end - begin) : BLOCK;
        ssize_t got = pread(from, block, wanted, (off_t)begin);
        if (got < 0) { return err_set_errno(err, "cannot copy to %s", path); }
        if (got == 0) { return err_set(err, STATUS_IO, "cannot copy to %s: the bytes end early", path); }
        TRY(file_put(to, block, (size_t)got, path, err));
        begin += (uint64_t)got;
    }
    return STATUS_OK;
}

bool store_has_room(const char *folder, uint64_t bytes)
{
    struct statvfs disk;
    if (statvfs(folder, &disk) != 0) { return true; } /* the upload finds out */
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize, all = (uint64_t)disk.f_blocks * disk.f_frsize;
    uint64_t kept = all / 20 < 1 << 30 ? all / 20 : 1 << 30;
    return free_bytes >= bytes && free_bytes - bytes >= kept;
}

/* --- Batches --- */

/* The members of a batch, but for its status and counts. A number that is 0 and an empty text are null. */
enum member_kind { MEMBER_TEXT, MEMBER_NUMBER, MEMBER_JSON };

#define AT(member) offsetof(struct stored_batch, member)

static const struct {
    const char *name;
    enum member_kind kind;
    size_t offset;
} members[] = {
    {"errors", MEMBER_JSON, AT(errors)},
    {"input_file_id", MEMBER_TEXT, AT(input)},
    {"completion_window", MEMBER_TEXT, AT(window)},
    {"output_file_id", MEMBER_TEXT, AT(output_id)},
    {"error_file_id", MEMBER_TEXT, AT(errors_id)},
    {"created_at", MEMBER_NUMBER, AT(created_at)},
    {"in_progress_at", MEMBER_NUMBER, AT(at[BATCH_IN_PROGRESS])},
    {"expires_at", MEMBER_NUMBER, AT(expires_at)},
    {"finalizing_at", MEMBER_NUMBER, AT(at[BATCH_FINALIZING])},
    {"completed_at", MEMBER_NUMBER, AT(at[BATCH_COMPLETED])},
    {"failed_at", MEMBER_NUMBER, AT(at[BATCH_FAILED])},
    {"expired_at", MEMBER_NUMBER, AT(at[BATCH_EXPIRED])},
    {"cancelling_at", MEMBER_NUMBER, AT(at[BATCH_CANCELLING])},
    {"cancelled_at", MEMBER_NUMBER, AT(at[BATCH_CANCELLED])},
    {"output_expires_after", MEMBER_JSON, AT(expiry)},
    {"metadata", MEMBER_JSON, AT(metadata)},
};
enum { MEMBERS = sizeof members / sizeof members[0] };

/* True for a batch that can still be cancelled. */
static bool is_open(const struct stored_batch *batch)
{
    return batch->status == BATCH_VALIDATING || batch->status == BATCH_IN_PROGRESS;
}

void stored_batch_put(struct buffer *to, const struct stored_batch *batch)
{
    bool cancelling = is_open(batch) && batch->at[BATCH_CANCELLING] > 0;
    buffer_json(to, "{'id':%s,'object':'batch','endpoint':'/v1/embeddings','status':%s", batch->id,
                statuses[cancelling ? BATCH_CANCELLING : batch->status]);
    for (size_t i = 0; i < MEMBERS; i++) {
        const char *member = (const char *)batch + members[i].offset;
        const struct buffer *json = (const void *)member;
        buffer_json(to, ",'%s':", members[i].name);
        if (members[i].kind == MEMBER_TEXT) {
            buffer_json(to, "%s", member);
        } else if (members[i].kind == MEMBER_NUMBER) {
            long long number = (long long)*(const uint64_t *)(const void *)member;
            buffer_json(to, "%+lld", number > 0 ? number : -1LL);
        } else if (json->length > 0) {
            buffer_append(to, json->data, json->length);
        } else {
            buffer_string(to, "null");
        }
    }
    buffer_json(to, ",'request_counts':{'total':%" PRIu64 ",'completed':%" PRIu64 ",'failed':%" PRIu64 "}}",
                batch->total, batch->completed, batch->failed);
}

static bool take_object(const struct buffer *object, struct stored_batch *out)
{
    char status[32];
    const char *value;
    size_t length;
    if (!json_valid(object->data, object->length)) { return false; }
    for (size_t i = 0; i < MEMBERS; i++) {
        char *to = (char *)out + members[i].offset;
        const char *name = members[i].name;
        bool there = json_member(object->data, object->length, name, &value, &length) && value[0] != 'n';
        if (!there) { continue; }
        if (members[i].kind == MEMBER_TEXT) {
            (void)json_member_text(object->data, object->length, name, to, STORE_ID_MAX);
        } else if (members[i].kind == MEMBER_NUMBER) {
            (void)json_member_number(object->data, object->length, name, (uint64_t *)(void *)to);
        } else {
            buffer_append((struct buffer *)(void *)to, value, length);
        }
    }
    if (json_member(object->data, object->length, "request_counts", &value, &length)) {
        (void)json_member_number(value, length, "total", &out->total);
        (void)json_member_number(value, length, "completed", &out->completed);
        (void)json_member_number(value, length, "failed", &out->failed);
    }
    (void)json_member_text(object->data, object->length, "status", status, sizeof status);
    while (out->status < BATCH_STATUSES && strcmp(status, statuses[out->status]) != 0) { out->status++; }
    if (out->status == BATCH_CANCELLING) {
        out->status = out->at[BATCH_IN_PROGRESS] > 0 ? BATCH_IN_PROGRESS : BATCH_VALIDATING;
    }
    return out->status < BATCH_STATUSES && out->created_at > 0 && buffer_ok(&out->errors) && buffer_ok(&out->expiry) &&
           buffer_ok(&out->metadata);
}

bool stored_batch_has_ended(const struct stored_batch *batch)
{
    return !is_open(batch) && batch->status != BATCH_FINALIZING;
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
    store_path_of(folder, "batches", id, ".cancel", path);
    if (status == STATUS_OK && is_open(out) && stat(path, &info) == 0) {
        out->at[BATCH_CANCELLING] = (uint64_t)info.st_mtime;
    }
    return status;
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
    buffer_free(&batch->expiry);
    buffer_free(&batch->metadata);
}

void store_remove_rest(const char *folder, const char *id)
{
    static const char *const endings[] = {".jsonl.job/journal",
                                          ".jsonl.job/vectors",
                                          ".jsonl.job",
                                          ".jsonl",
                                          ".errors.jsonl",
                                          ".jsonl.manifest.json",
                                          ".jsonl.manifest.json.new",
                                          ".jsonl.hashes",
                                          ".input",
                                          ".abandoned",
                                          ".json.new",
                                          ".cancel",
                                          ".lock"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        char path[STORE_PATH_MAX];
        store_path_of(folder, "batches", id, endings[i], path);
        if (unlink(path) != 0) { (void)rmdir(path); }
    }
}

/* --- Lists --- */

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

enum status store_list(const char *folder, const char *kind, const char *ending, struct store_names *names,
                       struct err *err)
{
    char path[STORE_PATH_MAX];
    size_t end = strlen(ending);
    TRY(file_path(folder, kind, path, err));
    DIR *directory = opendir(path);
    if (!directory) { return err_set_errno(err, "cannot read %s", path); }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        const char *name = entry->d_name;
        size_t length = strlen(name);
        if (length <= end || length - end >= STORE_ID_MAX || name[0] == '.' ||
            strcmp(name + length - end, ending) != 0) {
            continue;
        }
        buffer_append(&names->bytes, name, length - end);
        buffer_append(&names->bytes, "", 1);
        names->count++;
    }
    closedir(directory);
    names->at = calloc(names->count + 1, sizeof *names->at);
    if (!names->at || !buffer_ok(&names->bytes)) {
        names->count = 0;
        return err_set(err, STATUS_NO_MEMORY, "no memory to list %s", path);
    }
    char *name = names->bytes.data;
    for (size_t i = 0; i < names->count; i++, name += strlen(name) + 1) { names->at[i] = name; }
    qsort(names->at, names->count, sizeof *names->at, compare_names);
    return STATUS_OK;
}

void store_names_free(struct store_names *names)
{
    buffer_free(&names->bytes);
    free(names->at);
}

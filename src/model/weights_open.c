/* Finding and reading the files. A shard's name comes from a file, so it must be a plain name: nothing outside the
 * model's folder is ever opened. */
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "model/json.h"
#include "model/weights.h"

#define SINGLE_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"

static enum status open_file(const char *directory, const char *folder, const char *file, struct weights *out,
                             struct err *err)
{
    struct buffer path = {0};
    buffer_format(&path, "%s/%s%s", directory, folder, file);
    struct buffer name = {0};
    buffer_format(&name, "%s%s", folder, file);
    if (!buffer_ok(&path) || !buffer_ok(&name)) {
        buffer_free(&path);
        buffer_free(&name);
        return err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", file);
    }
    size_t at = out->count++;
    out->names[at] = name.data;
    enum status status = safetensors_open(path.data, name.data, &out->files[at], err);
    buffer_free(&path);
    return status;
}

static enum status reserve(struct weights *out, size_t count, struct err *err)
{
    out->files = calloc(count, sizeof *out->files);
    out->names = calloc(count, sizeof *out->names);
    if (out->files == NULL || out->names == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for %zu weight files", count);
    return STATUS_OK;
}

static bool is_plain_name(const char *name)
{
    size_t length = strlen(name), tail = strlen(".safetensors");
    return length > tail && strcmp(name + length - tail, ".safetensors") == 0 && strchr(name, '/') == NULL &&
           strchr(name, '\\') == NULL && name[0] != '.';
}

/* Collects the distinct shard names; the pointers belong to the map. */
static enum status list_shards(const cJSON *map, const char *name, const char **shards, size_t *count, struct err *err)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, map)
    {
        if (!cJSON_IsString(item) || !is_plain_name(item->valuestring))
            return err_set(err, STATUS_BAD_INPUT, "%s: weight_map: the shard of %.100s is not a plain file name", name,
                           item->string);
        size_t i = 0;
        while (i < *count && strcmp(shards[i], item->valuestring) != 0)
            i++;
        if (i < *count)
            continue;
        if (*count == WEIGHTS_MAX_SHARDS)
            return err_set(err, STATUS_BAD_INPUT, "%s: weight_map names more than %d shards", name, WEIGHTS_MAX_SHARDS);
        shards[(*count)++] = item->valuestring;
    }
    return STATUS_OK;
}

/* Index and shards must say the same: every tensor of a shard is listed for that shard, and nothing else is listed. */
static enum status check_map(const cJSON *map, const char *name, const struct weights *weights, const char **shards,
                             struct err *err)
{
    size_t found = 0;
    for (size_t f = 0; f < weights->count; f++) {
        const struct safetensors *file = &weights->files[f];
        for (size_t i = 0; i < file->count; i++, found++) {
            const cJSON *item = json_field(map, file->entries[i].name);
            if (item == NULL || strcmp(item->valuestring, shards[f]) != 0)
                return err_set(err, STATUS_BAD_INPUT, "%s: weight_map does not place tensor %.100s in %.100s", name,
                               file->entries[i].name, shards[f]);
        }
    }
    if (found != (size_t)cJSON_GetArraySize(map))
        return err_set(err, STATUS_BAD_INPUT, "%s: weight_map lists %d tensors, the shards have %zu", name,
                       cJSON_GetArraySize(map), found);
    return STATUS_OK;
}

static enum status open_shards(const char *directory, const char *folder, const cJSON *index, const char *name,
                               struct weights *out, struct err *err)
{
    const cJSON *map = json_field(index, "weight_map");
    if (!cJSON_IsObject(map))
        return err_set(err, STATUS_BAD_INPUT, "%s: weight_map is missing", name);
    const char *shards[WEIGHTS_MAX_SHARDS];
    size_t count = 0;
    enum status status = list_shards(map, name, shards, &count, err);
    if (status != STATUS_OK)
        return status;
    if (count == 0)
        return err_set(err, STATUS_BAD_INPUT, "%s: weight_map is empty", name);
    status = reserve(out, count, err);
    for (size_t i = 0; i < count && status == STATUS_OK; i++)
        status = open_file(directory, folder, shards[i], out, err);
    if (status == STATUS_OK)
        status = check_map(map, name, out, shards, err);
    return status;
}

/* After model.safetensors was not found: reads the index, or says what to do when there is none either. */
static enum status open_index(const char *directory, const char *folder, struct weights *out, struct err *err)
{
    struct buffer name = {0};
    buffer_format(&name, "%s%s", folder, INDEX_FILE);
    if (!buffer_ok(&name))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", INDEX_FILE);
    cJSON *index;
    enum status status = json_read(directory, name.data, SAFETENSORS_MAX_HEADER, &index, err);
    if (status == STATUS_OK)
        status = open_shards(directory, folder, index, name.data, out, err);
    else if (status == STATUS_NOT_FOUND)
        status = err_set(err, status,
                         "%s%s is missing, and so is %s; pickled weights (pytorch_model.bin) are never read: save the "
                         "model with safetensors",
                         folder, SINGLE_FILE, INDEX_FILE);
    cJSON_Delete(index);
    buffer_free(&name);
    return status;
}

enum status weights_open(const char *directory, const char *folder, struct weights *out, struct err *err)
{
    *out = (struct weights){0};
    enum status status = reserve(out, 1, err);
    if (status == STATUS_OK)
        status = open_file(directory, folder, SINGLE_FILE, out, err);
    if (status != STATUS_NOT_FOUND)
        return status;
    weights_close(out);
    return open_index(directory, folder, out, err);
}

enum status weights_read_again(const struct weights *weights, const char *directory, struct weights *out,
                               struct err *err)
{
    TRY(reserve(out, weights->count, err));
    for (size_t i = 0; i < weights->count; i++) {
        struct buffer path = {0};
        buffer_format(&path, "%s/%s", directory, weights->names[i]);
        out->names[i] = strdup(weights->names[i]);
        out->count++;
        enum status status = STATUS_NO_MEMORY;
        if (buffer_ok(&path) && out->names[i] != NULL)
            status = safetensors_read_again(path.data, weights->names[i], &weights->files[i], &out->files[i], err);
        else
            err_set(err, status, "no memory for the path of %s", weights->names[i]);
        buffer_free(&path);
        TRY(status);
    }
    return STATUS_OK;
}

void weights_release(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) {
        free(weights->files[i].data);
        weights->files[i].data = NULL;
    }
}

void weights_close(struct weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) {
        safetensors_close(&weights->files[i]);
        free(weights->names[i]);
    }
    free(weights->files);
    free(weights->names);
    *weights = (struct weights){0};
}

/* XXH3 with 128 bits: not against forgery, but at the speed of memory and without accidents. What enters the hash is a
 * plain text of everything that changes a vector, and the bytes of weights and tokenizer files. */
#include "model/identity.h"

#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/buffer.h"
#include "base/file.h"
#include "model/bert_config.h"
#include "model/sentence_config.h"
#include "model/weights.h"

#define TOKENIZER_FILE_MAX_BYTES ((size_t)256 << 20)

static const size_t dtype_bytes[] = {[DTYPE_F32] = 4, [DTYPE_F16] = 2, [DTYPE_BF16] = 2};

static void hash_tensor(void *context, const char *name, struct tensor *tensor, uint32_t rank, uint64_t rows,
                        uint64_t columns)
{
    char line[256];
    int length = snprintf(line, sizeof line, "%s %d %u %llu %llu\n", name, (int)tensor->dtype, rank,
                          (unsigned long long)rows, (unsigned long long)columns);
    XXH3_128bits_update(context, line, (size_t)length);
    XXH3_128bits_update(context, tensor->data, tensor->elements * dtype_bytes[tensor->dtype]);
}

static void to_hex(XXH128_hash_t hash, char hex[33])
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash.high64, (unsigned long long)hash.low64);
}

/* One file with its name and length; a file that does not exist counts as such. */
static enum status hash_file(XXH3_state_t *state, const char *directory, const char *folder, const char *file,
                             struct err *err)
{
    struct buffer path = {0}, bytes = {0};
    buffer_format(&path, "%s/%s%s", directory, folder, file);
    if (!buffer_ok(&path))
        return err_set(err, STATUS_NO_MEMORY, "no memory for the path of %s", file);
    enum status status = file_read(path.data, TOKENIZER_FILE_MAX_BYTES, &bytes, err);
    char line[64];
    int length = snprintf(line, sizeof line, "%s %lld\n", file, status == STATUS_OK ? (long long)bytes.length : -1);
    XXH3_128bits_update(state, line, (size_t)length);
    if (status == STATUS_OK && bytes.length > 0)
        XXH3_128bits_update(state, bytes.data, bytes.length);
    buffer_free(&bytes);
    buffer_free(&path);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status hash_description(XXH3_state_t *state, const struct model *model, struct err *err)
{
    struct buffer text = {0};
    buffer_format(&text, "bert hidden=%u layers=%u heads=%u intermediate=%u position_offset=%u eps=%a activation=%s\n",
                  model->hidden, model->layer_count, model->heads, model->intermediate_size, model->position_offset,
                  (double)model->layer_norm_eps, activation_name(model->activation));
    buffer_format(&text, "pooling=%s normalize=%d dim=%u max_tokens=%u prompt=%zu:", pooling_name(model->pooling),
                  model->normalize, model->dim, model->max_tokens, strlen(model->prompt));
    buffer_string(&text, model->prompt);
    for (uint32_t i = 0; i < model->prompt_count; i++)
        buffer_format(&text, "\nprompt %zu:%s=%zu:%s", strlen(model->prompts[i].name), model->prompts[i].name,
                      strlen(model->prompts[i].text), model->prompts[i].text);
    enum status status = STATUS_OK;
    if (buffer_ok(&text))
        XXH3_128bits_update(state, text.data, text.length);
    else
        status = err_set(err, STATUS_NO_MEMORY, "no memory for the model's description");
    buffer_free(&text);
    return status;
}

static void fill_revision(XXH3_state_t *state, struct model *model)
{
    char hex[33];
    XXH3_128bits_reset(state);
    weights_visit(model, hash_tensor, state);
    to_hex(XXH3_128bits_digest(state), hex);
    memcpy(model->revision, hex, 16);
    model->revision[16] = '\0';
}

static enum status fill(XXH3_state_t *state, struct model *model, const char *folder, struct err *err)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json", "vocab.txt",
                                        "special_tokens_map.json", "added_tokens.json"};
    fill_revision(state, model);
    enum status status = hash_description(state, model, err);
    for (size_t i = 0; i < sizeof files / sizeof files[0] && status == STATUS_OK; i++)
        status = hash_file(state, model->directory, folder, files[i], err);
    to_hex(XXH3_128bits_digest(state), model->id);
    return status;
}

enum status identity_fill(struct model *model, const char *folder, struct err *err)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a hash");
    enum status status = fill(state, model, folder, err);
    XXH3_freeState(state);
    return status;
}

enum status identity_fill_revision(struct model *model, struct err *err)
{
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory for a hash");
    fill_revision(state, model);
    XXH3_freeState(state);
    return STATUS_OK;
}

#include "engine/cuda_upload.h"

#include <stdlib.h>

#include "engine/cuda_half.h"

enum { PIECES = 2, PIECE_ELEMENTS = 1 << 19 }; /* 2 MiB of f32 each */

struct cuda_upload {
    const struct cuda_api *api;
    cudaStream_t stream;
    cudaEvent_t copied[PIECES]; /* recorded behind the copy from that piece */
    unsigned next;
    char *pinned; /* [PIECES][PIECE_ELEMENTS] f32 */
    float *plain; /* [PIECE_ELEMENTS] */
};

static enum status fill(struct cuda_upload *upload, struct err *err)
{
    const struct cuda_api *api = upload->api;
    static const char what[] = "preparing to copy the weights";
    if (upload->plain == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to copy the weights");
    TRY(cuda_check(api, api->cudaStreamCreateWithFlags(&upload->stream, cudaStreamNonBlocking), what, err));
    for (int i = 0; i < PIECES; i++)
        TRY(cuda_check(api, api->cudaEventCreateWithFlags(&upload->copied[i], cudaEventDisableTiming), what, err));
    void *pinned;
    TRY(cuda_check(api, api->cudaHostAlloc(&pinned, PIECES * PIECE_ELEMENTS * sizeof(float), cudaHostAllocDefault),
                   what, err));
    upload->pinned = pinned;
    return STATUS_OK;
}

enum status cuda_upload_open(const struct cuda_api *api, struct cuda_upload **out, struct err *err)
{
    struct cuda_upload *upload = calloc(1, sizeof *upload);
    if (upload == NULL)
        return err_set(err, STATUS_NO_MEMORY, "no memory to copy the weights");
    upload->api = api;
    upload->plain = malloc(PIECE_ELEMENTS * sizeof *upload->plain);
    enum status status = fill(upload, err);
    if (status == STATUS_OK)
        *out = upload;
    else
        cuda_upload_close(upload);
    return status;
}

enum status cuda_upload_finish(struct cuda_upload *upload, struct err *err)
{
    return cuda_check(upload->api, upload->api->cudaStreamSynchronize(upload->stream), "copying the weights", err);
}

void cuda_upload_close(struct cuda_upload *upload)
{
    if (upload == NULL)
        return;
    const struct cuda_api *api = upload->api;
    if (upload->stream != NULL)
        (void)api->cudaStreamSynchronize(upload->stream); /* after an error: pinned memory may still be read */
    for (int i = 0; i < PIECES; i++)
        if (upload->copied[i] != NULL)
            (void)api->cudaEventDestroy(upload->copied[i]);
    if (upload->stream != NULL)
        (void)api->cudaStreamDestroy(upload->stream);
    if (upload->pinned != NULL)
        (void)api->cudaFreeHost(upload->pinned);
    free(upload->plain);
    free(upload);
}

static void narrow(enum kernel_type type, const float *values, size_t count, float scale, void *to)
{
    float *f32 = to;
    uint16_t *half = to;
    if (type == KERNEL_F32)
        for (size_t i = 0; i < count; i++)
            f32[i] = values[i] * scale;
    else if (type == KERNEL_F16)
        for (size_t i = 0; i < count; i++)
            half[i] = to_f16(values[i] * scale);
    else
        for (size_t i = 0; i < count; i++)
            half[i] = to_bf16(values[i] * scale);
}

/* A piece of pinned memory takes part in one copy at a time. An event that was never recorded counts as over. */
static enum status put_piece(struct cuda_upload *upload, enum kernel_type type, const float *values, size_t count,
                             float scale, void *to, struct err *err)
{
    const struct cuda_api *api = upload->api;
    static const char what[] = "copying the weights";
    unsigned piece = upload->next++ % PIECES;
    char *pinned = upload->pinned + piece * PIECE_ELEMENTS * sizeof(float);
    size_t bytes = count * kernel_type_bytes(type);
    TRY(cuda_check(api, api->cudaEventSynchronize(upload->copied[piece]), what, err));
    narrow(type, values, count, scale, pinned);
    TRY(cuda_check(api, api->cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, upload->stream), what, err));
    return cuda_check(api, api->cudaEventRecord(upload->copied[piece], upload->stream), what, err);
}

static void *element(void *to, enum kernel_type type, size_t at)
{
    return (char *)to + at * kernel_type_bytes(type);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

enum status cuda_upload_values(struct cuda_upload *upload, enum kernel_type type, const float *values, size_t count,
                               float scale, void *to, struct err *err)
{
    for (size_t at = 0; at < count; at += PIECE_ELEMENTS)
        TRY(put_piece(upload, type, values + at, least(count - at, PIECE_ELEMENTS), scale, element(to, type, at), err));
    return STATUS_OK;
}

enum status cuda_upload_tensor(struct cuda_upload *upload, enum kernel_type type, const struct tensor *tensor,
                               size_t first, size_t count, float scale, void *to, struct err *err)
{
    for (size_t at = 0; at < count; at += PIECE_ELEMENTS) {
        size_t now = least(count - at, PIECE_ELEMENTS);
        tensor_read_f32(tensor, first + at, now, upload->plain);
        TRY(put_piece(upload, type, upload->plain, now, scale, element(to, type, at), err));
    }
    return STATUS_OK;
}

#include "engine/cuda_stream.h"

#include <assert.h>
#include <string.h>

#include "base/clock.h"

/* A single text is done in some hundred microseconds. For that long, and some more, the thread looks again and again,
 * because one that sleeps is woken late. */
enum { POLL_NS = 1000000 };

static enum status check(const struct cuda_stream *stream, cudaError_t answer, const char *what, struct err *err)
{
    return cuda_check(stream->api, answer, what, err);
}

/* --- open and close ------------------------------------------------------------------------------------------------
 */

static enum status reserve(struct cuda_stream *stream, struct err *err)
{
    const struct cuda_api *api = stream->api;
    void *memory;
    TRY(check(stream, api->cudaMalloc(&memory, stream->plan.places.bytes), "memory for a pass", err));
    stream->memory = memory;
    TRY(check(stream, api->cudaHostAlloc(&memory, stream->plan.pinned_bytes, cudaHostAllocDefault),
              "pinned memory for a pass", err));
    stream->pinned = memory;
    return STATUS_OK;
}

static void give_back(struct cuda_stream *stream)
{
    if (stream->memory != NULL)
        (void)stream->api->cudaFree(stream->memory);
    if (stream->pinned != NULL)
        (void)stream->api->cudaFreeHost(stream->pinned);
    stream->memory = stream->pinned = NULL;
}

static void place_slots(struct cuda_stream *stream)
{
    const struct cuda_plan *plan = &stream->plan;
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &stream->slots[i];
        slot->ragged = stream->memory + plan->places.slot_ragged[i];
        slot->output = (float *)(void *)(stream->memory + plan->places.slot_output[i]);
        slot->finite = (uint32_t *)(void *)(stream->memory + plan->places.slot_finite[i]);
        char *pinned = stream->pinned + plan->pinned_bytes / CUDA_SLOTS * i;
        slot->ragged_host = pinned;
        slot->output_host = (float *)(void *)(pinned + plan->ragged_bytes);
    }
}

static enum status make_events(struct cuda_stream *stream, struct err *err)
{
    const struct cuda_api *api = stream->api;
    static const char what[] = "events of a stream";
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_slot *slot = &stream->slots[i];
        TRY(check(stream, api->cudaEventCreateWithFlags(&slot->arrived, cudaEventDisableTiming), what, err));
        TRY(check(stream, api->cudaEventCreateWithFlags(&slot->computed, cudaEventDisableTiming), what, err));
        TRY(check(stream,
                  api->cudaEventCreateWithFlags(&slot->delivered, cudaEventDisableTiming | cudaEventBlockingSync), what,
                  err));
    }
    return STATUS_OK;
}

/* What gaps hold is computed with, so memory starts as zeros. */
static enum status make_all(struct cuda_stream *stream, const struct cuda_plan_request *request, struct err *err)
{
    const struct cuda_api *api = stream->api;
    static const char what[] = "opening a stream";
    enum status status;
    while ((status = reserve(stream, err)) == STATUS_NO_MEMORY) {
        give_back(stream);
        TRY(cuda_plan_halve(request, &stream->plan, err));
    }
    TRY(status);
    place_slots(stream);
    TRY(check(stream, api->cudaStreamCreateWithFlags(&stream->in, cudaStreamNonBlocking), what, err));
    TRY(check(stream, api->cudaStreamCreateWithFlags(&stream->compute, cudaStreamNonBlocking), what, err));
    TRY(check(stream, api->cudaStreamCreateWithFlags(&stream->out, cudaStreamNonBlocking), what, err));
    TRY(make_events(stream, err));
    TRY(check(stream, api->cudaMemsetAsync(stream->memory, 0, stream->plan.places.bytes, stream->compute), what, err));
    return check(stream, api->cudaStreamSynchronize(stream->compute), what, err);
}

enum status cuda_stream_open(const struct cuda_api *api, const struct cuda_plan_request *request,
                             const struct cuda_plan *plan, struct cuda_stream *out, struct err *err)
{
    *out = (struct cuda_stream){.api = api, .plan = *plan};
    enum status status = make_all(out, request, err);
    if (status != STATUS_OK)
        cuda_stream_close(out);
    return status;
}

void cuda_stream_close(struct cuda_stream *stream)
{
    const struct cuda_api *api = stream->api;
    cudaStream_t *const streams[] = {&stream->in, &stream->compute, &stream->out};
    for (int i = 0; i < 3; i++)
        if (*streams[i] != NULL)
            (void)api->cudaStreamSynchronize(*streams[i]);
    for (unsigned i = 0; i < CUDA_SLOTS; i++) {
        const cudaEvent_t events[] = {stream->slots[i].arrived, stream->slots[i].computed, stream->slots[i].delivered};
        for (int e = 0; e < 3; e++)
            if (events[e] != NULL)
                (void)api->cudaEventDestroy(events[e]);
    }
    for (int i = 0; i < 3; i++)
        if (*streams[i] != NULL)
            (void)api->cudaStreamDestroy(*streams[i]);
    give_back(stream);
    *stream = (struct cuda_stream){0};
}

/* --- passes --------------------------------------------------------------------------------------------------------
 */

enum status cuda_stream_drain(struct cuda_stream *stream, struct err *err)
{
    static const char what[] = "waiting for a stream";
    TRY(check(stream, stream->api->cudaStreamSynchronize(stream->in), what, err));
    TRY(check(stream, stream->api->cudaStreamSynchronize(stream->compute), what, err));
    return check(stream, stream->api->cudaStreamSynchronize(stream->out), what, err);
}

struct cuda_slot *cuda_stream_slot(struct cuda_stream *stream)
{
    assert(stream->waiting < CUDA_SLOTS);
    return &stream->slots[(stream->first + stream->waiting) % CUDA_SLOTS];
}

enum status cuda_stream_bring(struct cuda_stream *stream, struct cuda_slot *slot,
                              const struct cuda_ragged_layout *layout, const struct pass *pass, struct err *err)
{
    const struct cuda_api *api = stream->api;
    static const char what[] = "copying a batch to the device";
    void *place = stream->memory + stream->plan.places.ragged;
    size_t bytes = cuda_ragged_fill(layout, pass, slot->ragged_host);
    slot->pass = pass;
    TRY(check(stream, api->cudaMemcpyAsync(slot->ragged, slot->ragged_host, bytes, cudaMemcpyHostToDevice, stream->in),
              what, err));
    TRY(check(stream, api->cudaEventRecord(slot->arrived, stream->in), what, err));
    TRY(check(stream, api->cudaStreamWaitEvent(stream->compute, slot->arrived, 0), what, err));
    return check(stream, api->cudaMemcpyAsync(place, slot->ragged, bytes, cudaMemcpyDeviceToDevice, stream->compute),
                 what, err);
}

enum status cuda_stream_deliver(struct cuda_stream *stream, struct cuda_slot *slot, struct err *err)
{
    const struct cuda_api *api = stream->api;
    static const char what[] = "copying vectors from the device";
    size_t bytes = (size_t)slot->pass->rows * stream->plan.dim * sizeof(float);
    TRY(check(stream, api->cudaEventRecord(slot->computed, stream->compute), what, err));
    TRY(check(stream, api->cudaStreamWaitEvent(stream->out, slot->computed, 0), what, err));
    TRY(check(stream, api->cudaMemcpyAsync(slot->output_host, slot->output, bytes, cudaMemcpyDeviceToHost, stream->out),
              what, err));
    TRY(check(stream, api->cudaEventRecord(slot->delivered, stream->out), what, err));
    stream->waiting++;
    return STATUS_OK;
}

static enum status await(const struct cuda_stream *stream, cudaEvent_t event, struct err *err)
{
    static const char what[] = "waiting for a batch";
    uint64_t until_ns = clock_now_ns() + POLL_NS;
    cudaError_t answer;
    do
        answer = stream->api->cudaEventQuery(event);
    while (answer == cudaErrorNotReady && clock_now_ns() < until_ns);
    if (answer == cudaErrorNotReady)
        answer = stream->api->cudaEventSynchronize(event);
    return check(stream, answer, what, err);
}

void cuda_stream_skip(struct cuda_stream *stream)
{
    assert(stream->waiting > 0);
    stream->first = (stream->first + 1) % CUDA_SLOTS;
    stream->waiting--;
}

enum status cuda_stream_wait(struct cuda_stream *stream, struct err *err)
{
    const struct cuda_slot *slot = &stream->slots[stream->first];
    enum status status = await(stream, slot->delivered, err);
    if (status == STATUS_OK)
        memcpy(slot->pass->output, slot->output_host, (size_t)slot->pass->rows * stream->plan.dim * sizeof(float));
    cuda_stream_skip(stream);
    return status;
}

/* What one encoder has on the device beside the weights: memory for one pass, three slots for batches on their way in
 * and out, and three CUDA streams, so that copies in, the computing, and copies out run side by side.
 *
 *     in       ragged block from pinned memory
 *     compute  that block to its one place (where graphs look for it); the forward pass; vectors into the slot
 *     out      vectors to pinned memory
 *
 * A slot's buffers are written again only after its batch was waited for; within a pass the streams wait for each other
 * by events. Thread: one at a time, with the device current. Errors, of all: STATUS_DEVICE_LOST, STATUS_NO_MEMORY,
 * STATUS_INTERNAL (see cuda_check). */
#ifndef ENGINE_CUDA_STREAM_H
#define ENGINE_CUDA_STREAM_H

#include "engine/cuda_api.h"
#include "engine/cuda_plan.h"
#include "engine/cuda_ragged.h"

enum { CUDA_SLOTS = 3 };

struct cuda_slot {
    const struct pass *pass;
    void *ragged_host, *ragged; /* ragged_host and output_host are pinned memory, the others the device's */
    float *output_host, *output;
    uint32_t *finite;
    cudaEvent_t arrived, computed, delivered;
};

struct cuda_stream {
    const struct cuda_api *api;
    struct cuda_plan plan;
    cudaStream_t in, compute, out;
    char *memory, *pinned;
    struct cuda_slot slots[CUDA_SLOTS];
    unsigned first, waiting; /* slots that are delivered and not waited for, oldest first */
};

/* Makes all of it for a plan; while memory does not suffice, for half the plan.
 * Owns: the caller ends it with cuda_stream_close. */
MUST_CHECK enum status cuda_stream_open(const struct cuda_api *api, const struct cuda_plan_request *request,
                                        const struct cuda_plan *plan, struct cuda_stream *out, struct err *err);

/* Waits for what still runs, unless the device is lost. A stream that is all zero may be closed. */
void cuda_stream_close(struct cuda_stream *stream);

/* Waits until nothing is on its way, so that any buffer may be written again. */
MUST_CHECK enum status cuda_stream_drain(struct cuda_stream *stream, struct err *err);

/* The slot of the next pass; there must be a free one. */
struct cuda_slot *cuda_stream_slot(struct cuda_stream *stream);

/* Brings a pass to the device: what is enqueued on `compute` from here on finds it in plan.places.ragged. */
MUST_CHECK enum status cuda_stream_bring(struct cuda_stream *stream, struct cuda_slot *slot,
                                         const struct cuda_ragged_layout *layout, const struct pass *pass,
                                         struct err *err);

/* Sends a slot's vectors back once `compute` has done what was enqueued so far; the slot now waits. */
MUST_CHECK enum status cuda_stream_deliver(struct cuda_stream *stream, struct cuda_slot *slot, struct err *err);

/* Waits for the oldest slot and writes its pass's output. The slot is free then, whatever the status. */
MUST_CHECK enum status cuda_stream_wait(struct cuda_stream *stream, struct err *err);

/* Frees that slot without waiting, when the device is lost. */
void cuda_stream_skip(struct cuda_stream *stream);

#endif

/* The engine: batches of token ids in, vectors out. What work/ and serve/ see of it, whatever the device.
 *
 * An engine holds the weights in its backend's own layout, once, read-only. An encoder is one compute thread's scratch
 * beside it: open as many as there are threads. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"

enum precision { PRECISION_AUTO, PRECISION_F32, PRECISION_BF16 };

struct engine;
struct encoder;

struct engine_options {
    const char *backend; /* a row of the backend table: "cpu", "null"; NULL or "auto" picks the best that works here */
    enum precision precision;
    bool raw; /* vectors as they were pooled, though the model normalises: the caller does that (engine/vector.h) */
};

/* Rows of tokens, packed or padded: row r is ids[start[r]] .. ids[start[r] + length[r] - 1]. Packed rows follow each
 * other without gaps; padded rows start at r * longest. What lies between rows is never read. */
struct engine_batch {
    uint32_t rows;
    uint32_t extent;        /* elements in ids */
    const int32_t *ids;     /* [extent], each below model->vocabulary */
    const uint32_t *start;  /* [rows] */
    const uint32_t *length; /* [rows], 1..model->max_tokens */
    float *output;          /* [rows, dim], written */
};

/* Opens an engine for a model. The weights are copied, and given back one by one if model->read_once;
 * afterwards the caller may model_release_weights.
 * Owns: the caller ends it with engine_close, after its encoders; `model` must outlive the engine.
 * Errors: STATUS_UNSUPPORTED (no such backend or precision here), STATUS_NO_MEMORY, STATUS_DEVICE_LOST. */
MUST_CHECK enum status engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                                   struct err *err);
void engine_close(struct engine *engine);

const char *engine_backend(const struct engine *engine);      /* "cpu", "null" */
enum precision engine_precision(const struct engine *engine); /* never PRECISION_AUTO */
size_t engine_weight_bytes(const struct engine *engine);      /* what the weights take on the device */
const char *precision_name(enum precision precision);         /* "auto", "f32", "bf16" */
MUST_CHECK enum status precision_parse(const char *name, enum precision *out, struct err *err);

/* The compute threads that this process should run: what affinity and the cgroup CPU quota allow, at least 1. */
unsigned engine_default_threads(void);

MUST_CHECK enum status encoder_open(struct engine *engine, struct encoder **out, struct err *err);
void encoder_close(struct encoder *encoder);

/* Runs one forward pass. A row's vector has the same bits alone or in any batch, packed or padded (CPU backend).
 * Shapes: see struct engine_batch. Errors: STATUS_BAD_INPUT (an id or a length out of range; nothing was computed),
 * STATUS_NO_MEMORY, STATUS_NON_FINITE (all rows are written; which ones are not finite can be seen),
 * STATUS_DEVICE_LOST. Thread: one thread per encoder at a time; encoders of one engine run side by side. */
MUST_CHECK enum status encoder_run(struct encoder *encoder, const struct engine_batch *batch, struct err *err);

#endif

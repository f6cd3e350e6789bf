/* The engine turns batches of token ids into vectors, whatever the device.
 *
 * An engine holds the weights once, read-only, in its backend's own layout. An encoder is the memory that one compute
 * thread works in: open one for each. */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "model/model.h"

/* INT8: those products whose rounding keeps the vectors, or a language model's likelihoods, near enough; INT8_ALL: all
 * of them. */
enum precision { PRECISION_AUTO, PRECISION_F32, PRECISION_BF16, PRECISION_F16, PRECISION_INT8, PRECISION_INT8_ALL };

static inline bool precision_is_int8(enum precision precision)
{
    return precision == PRECISION_INT8 || precision == PRECISION_INT8_ALL;
}

struct engine;
struct engine_int8;
struct encoder;
struct parallel_for;

/* All zero is a good choice. A backend ignores options that do not apply to it. */
struct engine_options {
    const char *backend; /* a row of the backend table: "cpu", "null"; NULL or "auto" picks the best that works here in
                            `precision` */
    enum precision precision;
    bool raw; /* vectors are not normalised even if the model asks for it: the caller does that (engine/vector.h) */

    unsigned device;        /* which of the backend's devices: 0 up to engine_devices */
    uint32_t batch_tokens;  /* the largest batch to reserve memory for; 0: as the backend likes */
    uint32_t batch_rows;    /* the same in rows */
    float memory_share;     /* of the device's free memory that may be reserved; 0: 0.8 */
    bool no_graphs;         /* CUDA: every kernel is launched directly */
    uint32_t candidates;    /* CUDA: algorithms that are timed for a product; 0: 16, 1: the first is taken untimed */
    bool exact_gelu;        /* CUDA: GELU in its erf form also where a product could do the tanh form on the way */
    const char *cache_path; /* a folder for measurements made once for a device; NULL: the user's; "": none */
    const struct engine_int8 *int8; /* set by engine_open */
};

/* Rows of tokens, packed or padded: row r is ids[start[r]] .. ids[start[r] + length[r] - 1]. Packed rows follow each
 * other without gaps; padded rows start at r * longest. Elements between rows are never read. */
struct engine_batch {
    uint32_t rows;
    uint32_t extent;        /* elements in ids */
    const int32_t *ids;     /* [extent], each below model->vocabulary */
    const uint32_t *start;  /* [rows] */
    const uint32_t *length; /* [rows], 1..model->max_tokens */
    float *output;          /* [rows, model->dim], written: vectors, or logits */
    const uint32_t *second; /* [rows]: the token of a row at which a pair's second text, of token type 1, begins; 0 if
                               the row is not a pair. NULL: no pairs */
};

/* Opens an engine for a model. The weights are copied, and given back one by one if model->read_once; afterwards the
 * caller may model_release_weights. (A caller that opens several engines for one model sets read_once before the last.)
 * Owns: the caller ends it with engine_close, after its encoders; `model` and options->cache_path must outlive the
 * engine. Errors: STATUS_UNSUPPORTED (no such backend, device or precision here), STATUS_NO_MEMORY, STATUS_DEVICE_LOST.
 */
MUST_CHECK enum status engine_open(const struct model *model, const struct engine_options *options, struct engine **out,
                                   struct err *err);

/* Closes the engine, after its encoders. NULL is allowed. */
void engine_close(struct engine *engine);

/* Writes the number of devices that a backend has on this machine, at least 1; `backend` and `precision` as in the
 * options. The null backend has one, but accepts any device number. Errors: STATUS_UNSUPPORTED (no such backend here).
 */
MUST_CHECK enum status engine_devices(const char *backend, enum precision precision, unsigned *count, struct err *err);

/* Finds the backend that an engine would have here: its name in the table. `passed_over`, which may be NULL, gets the
 * reason why "auto" takes no better one; its message is "" if it takes the best, or has no choice. Errors: as
 * engine_devices. */
MUST_CHECK enum status engine_find(const char *backend, enum precision precision, const char **name,
                                   struct err *passed_over, struct err *err);

/* The backend's row in the table: "cpu", "cuda", "null". */
const char *engine_backend(const struct engine *engine);

/* Why "auto" took no better backend; "" when it took the best, or had no choice. */
const char *engine_passed_over(const struct engine *engine);

/* The device that it computes on, and how, in words. */
const char *engine_device(const struct engine *engine);

enum { ENGINE_KIND = 16 };

/* Writes a digest of what may decide the last bits of its results, besides model and precision: this version, the
 * CPU's instruction set and kind of products or the GPU and its libraries, and which products are in int8. */
void engine_kind(const struct engine *engine, char out[ENGINE_KIND + 1]);

struct batch_size {
    uint32_t tokens, rows;
};

/* The default batch size: larger batches gain nothing. */
struct batch_size engine_batch_size(const struct engine *engine);

/* The same for a backend, before anything is opened; `backend` and `precision` as in the options, `name`: the name of
 * its row in the table. Errors: STATUS_UNSUPPORTED (no such backend here). */
MUST_CHECK enum status engine_default_batch(const char *backend, enum precision precision, struct batch_size *out,
                                            const char **name, struct err *err);

/* The precision that it computes in: never PRECISION_AUTO. */
enum precision engine_precision(const struct engine *engine);

/* The bytes of the weights on the device. */
size_t engine_weight_bytes(const struct engine *engine);

/* The name of a precision: "auto", "f32", "bf16", "f16", "int8", "int8_all". */
const char *precision_name(enum precision precision);

/* The precision of that name. Errors: STATUS_BAD_INPUT. */
MUST_CHECK enum status precision_parse(const char *name, enum precision *out, struct err *err);

/* The matrix products of a layer. */
enum engine_product {
    ENGINE_QUERY_KEY,
    ENGINE_VALUE,
    ENGINE_ATTENTION_OUTPUT,
    ENGINE_INTERMEDIATE,
    ENGINE_OUTPUT,
    ENGINE_PRODUCTS
};

/* "query_key", "value", "attention_output", "intermediate", "output". */
const char *engine_product_name(enum engine_product product);

/* The products that an engine computes in int8, and how near its vectors, or the tokens that it draws, then are to
 * those without int8. */
struct engine_int8 {
    uint32_t layers;
    bool (*in_int8)[ENGINE_PRODUCTS]; /* [layers] */
    bool lm_head;                     /* false for a model without one */
    uint32_t count[ENGINE_PRODUCTS];  /* the layers whose product is in int8 */
    uint32_t total;                   /* the products in int8, */
    uint32_t of;                      /* of as many */
    const char *others;               /* how the other products are computed: "16-bit integers", "bf16", "f32" */
    /* 1 - cosine, over a sample of texts; of scores, half the square of their distance in units of their spread; of a
     * language model the divergence of the next token's likelihoods (Kullback and Leibler's, in nats). NaN: not
     * measured, because all are chosen. */
    double mean_error, worst_error;
};

/* NULL unless the engine's precision is int8 or int8_all. It lives as long as the engine. */
const struct engine_int8 *engine_int8(const struct engine *engine);

/* Events since the engine was opened. Thread: any. */
struct engine_counters {
    uint64_t passes;    /* begun; a batch that exceeds the limits of a pass takes several */
    uint64_t rows_bf16; /* whose vector was not finite in f16 but was when they were run again in bf16 */
    uint64_t rows_f32;  /* the same, finite in f32 only */
    uint64_t rows_lost; /* the same, finite in no precision */
    uint64_t graphs_captured, graph_launches; /* CUDA: of the passes, this many ran as graphs */
    uint64_t graph_fallbacks; /* CUDA: encoders that gave up graphs because one could not be made or launched */
    uint64_t halvings;        /* CUDA: how often a pass was halved before its memory could be reserved */
};

/* The counters of all its encoders together. Thread: any. */
struct engine_counters engine_counters(struct engine *engine);

/* The instruction set that the CPU's kernels run on here, as the table in engine/cpu/gemm.c names it; if SLUICE_ISA
 * hides a better one, the text names that, too. Returns `out`. */
const char *engine_instruction_set(char out[64]);

/* The number of compute threads that this process should run: as many as affinity and the cgroup CPU quota allow, at
 * least 1. */
unsigned engine_default_threads(void);

/* Opens an encoder for one thread. Owns: the caller ends it with encoder_close; the engine must outlive it.
 * Errors: STATUS_NO_MEMORY, STATUS_DEVICE_LOST. */
MUST_CHECK enum status encoder_open(struct engine *engine, struct encoder **out, struct err *err);

/* Closes it; no batch may be out, unless the device is lost. NULL is allowed. */
void encoder_close(struct encoder *encoder);

/* Lets helpers (engine/cpu/parallel_for.h) take part in this encoder's small batches and long texts where the calling
 * thread computes: the same bits, sooner. On other backends it does nothing. Call it once for an encoder, while no
 * batch is out.
 * Owns: the helpers must outlive the encoder. Errors: STATUS_NO_MEMORY; the encoder then works alone. */
MUST_CHECK enum status encoder_join(struct encoder *encoder, struct parallel_for *parallel, struct err *err);

/* Called before every layer of a pass, so that the thread can let others go first. `wait` NULL: not called. */
struct encoder_pause {
    void (*wait)(void *context);
    void *context;
};

/* Sets an encoder's pause while no batch is out. A row that is run again in a wider precision has none. */
void encoder_set_pause(struct encoder *encoder, struct encoder_pause pause);

/* Runs one forward pass. A row's vector has the same bits alone or in any batch, packed or padded (CPU backend).
 * A row that f16 cannot hold is run again alone in bf16, then in f32: its vector does not depend on other rows or
 * batches. Shapes: see struct engine_batch. Errors: STATUS_BAD_INPUT (an id or a length out of range; nothing was
 * computed), STATUS_NO_MEMORY, STATUS_NON_FINITE (all rows are written; the caller can see which ones are not finite),
 * STATUS_DEVICE_LOST. Thread: one thread per encoder at a time; encoders of one engine run side by side. */
MUST_CHECK enum status encoder_run(struct encoder *encoder, const struct engine_batch *batch, struct err *err);

/* --- the same in two steps, so that a device computes one batch while the next one is copied to it. Errors and Thread:
 * as encoder_run; an error belongs to the batch of that call --- */

/* The number of batches that may be out. A CPU has one slot and computes in encoder_put. */
unsigned encoder_slots(const struct engine *engine);

/* Checks a batch and begins it. One that is refused (STATUS_BAD_INPUT) is not out. Owns: a batch and all that it points
 * to must not change until it is taken. */
MUST_CHECK enum status encoder_put(struct encoder *encoder, const struct engine_batch *batch, struct err *err);

/* Waits for the oldest batch that is out and returns how it ended. */
MUST_CHECK enum status encoder_take(struct encoder *encoder, struct err *err);

/* True if helpers could take part in all passes of the batch that was taken last, which then took less time. */
bool encoder_helped(const struct encoder *encoder);

#endif

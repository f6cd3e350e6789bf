/* Matrix products by oneDNN 2.x: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T. The kernels add
 * the bias and what follows, because they read the product anyway. gemm_onednn.c and the check of the instruction set
 * in gemm.c are the only code that knows oneDNN.
 *
 * A struct onednn_gemm is a shape with its compiled primitives, shared by every layer with that shape; weights are
 * packed once in the layout that oneDNN prefers. Primitives exist for fixed row counts only (buckets): a run-time row
 * count takes a slow path.
 *
 * The weight is cut into blocks of outputs, so that a block stays in the second-level cache while all rows pass it, and
 * the caller finds the block's product there too. It is also cut into panels of inputs, whose products are added in
 * f32: for the cache again, and because the AMX code of oneDNN 2.6 sums more than 768 inputs in an order that depends
 * on the row count. Opening a shape checks whether a row has the same bits in every bucket; a bucket that differs is
 * not used. */
#ifndef ENGINE_CPU_GEMM_ONEDNN_H
#define ENGINE_CPU_GEMM_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

/* The most rows of one primitive; buffers have room for whole multiples of it. */
enum { ONEDNN_ROWS = 128 };

struct onednn_device; /* oneDNN's engine: one for a backend */
struct onednn_gemm;
struct onednn_weights;
struct onednn_runner; /* a thread's stream, scratchpad and memory handles */

/* The precision that `auto` means on this machine: bf16 where the processor computes it, else f32. */
enum precision onednn_native_precision(void);

/* Tells the OpenMP runtime below oneDNN that the calling thread works alone.
 * Thread: every thread calls this before it opens or runs anything here. */
void onednn_single_thread(void);

/* Opens oneDNN's engine of the CPU. Owns: the caller ends it with onednn_device_close, after all else.
 * Errors: STATUS_INTERNAL with oneDNN's number, STATUS_NO_MEMORY. */
MUST_CHECK enum status onednn_device_open(struct onednn_device **out, struct err *err);

/* Closes it. NULL is allowed, here and below. */
void onednn_device_close(struct onednn_device *device);

/* Compiles a shape. With `contiguous` a product is one matrix with rows of `outputs`; else each block is written by
 * itself, with rows of block_outputs. Owns: the caller ends it with onednn_close; the device must outlive it. Errors:
 * STATUS_NO_MEMORY, STATUS_UNSUPPORTED, STATUS_INTERNAL. */
MUST_CHECK enum status onednn_open(struct onednn_device *device, uint32_t outputs, uint32_t inputs,
                                   enum precision precision, bool contiguous, struct onednn_gemm **out,
                                   struct err *err);

/* Frees the compiled shape. */
void onednn_close(struct onednn_gemm *gemm);

/* Packs a weight. Shapes: weight [outputs, inputs] f32, read; to [onednn_packed_bytes], aligned for vectors, written.
 * Owns: the caller ends it with onednn_weights_close; `to` outlives it. Errors: STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status onednn_pack(const struct onednn_gemm *gemm, const float *weight, void *to,
                                   struct onednn_weights **out, struct err *err);

/* Frees the handles; the packed bytes stay the caller's. */
void onednn_weights_close(struct onednn_weights *weights);

/* The bytes of a packed weight of that shape. */
size_t onednn_packed_bytes(const struct onednn_gemm *gemm);

/* Makes what one thread needs to run any of `count` gemms. Owns: the caller ends it with onednn_runner_close, before
 * the gemms.
 * Errors: STATUS_NO_MEMORY, STATUS_INTERNAL. Thread: one runner, one thread. */
MUST_CHECK enum status onednn_runner_open(struct onednn_device *device, struct onednn_gemm *const *gemms, size_t count,
                                          struct onednn_runner **out, struct err *err);

/* Frees stream, scratchpad and handles. */
void onednn_runner_close(struct onednn_runner *runner);

/* An f32 product without packing, for what is needed only once. Shapes: from [rows, inputs]; weight [outputs, inputs];
 * to [rows, outputs], rows to_stride apart, written. Errors: STATUS_INTERNAL, STATUS_NO_MEMORY. */
MUST_CHECK enum status onednn_plain(uint32_t rows, uint32_t outputs, uint32_t inputs, const float *from,
                                    const float *weight, float *to, size_t to_stride, struct err *err);

/* The most outputs that a block has. */
uint32_t onednn_block_outputs(const struct onednn_gemm *gemm);

/* How a product is cut into blocks. Few rows take smaller blocks, computed without oneDNN where that is faster. */
struct onednn_cut {
    uint32_t blocks, outputs; /* outputs: of each */
};

/* The cut for this number of rows. */
struct onednn_cut onednn_cut(const struct onednn_gemm *gemm, uint32_t rows);

/* Which weights the calling thread will probably want next, so that it can prefetch them: the block before or behind
 * this one, and after its last block those of the next product. */
struct onednn_prefetch {
    bool down;
    const struct onednn_gemm *next; /* NULL: not known */
    const struct onednn_weights *next_weights;
};

/* Computes one block of those of onednn_cut. Shapes: from [rows, inputs] f32 or bf16, as the shape was opened; to: the
 * beginning of the whole product or of the block, see onednn_open. Both have room for whole multiples of ONEDNN_ROWS
 * rows: rows behind the last are read and overwritten. Errors: STATUS_INTERNAL, STATUS_NO_MEMORY. */
MUST_CHECK enum status onednn_run(struct onednn_runner *runner, const struct onednn_gemm *gemm,
                                  const struct onednn_weights *weights, uint32_t block,
                                  const struct onednn_prefetch *prefetch, uint32_t rows, const void *from, float *to,
                                  struct err *err);

#endif

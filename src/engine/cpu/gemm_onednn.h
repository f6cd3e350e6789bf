/* Matrix products on oneDNN 2.x: to [rows, outputs] = from [rows, inputs] x weight [outputs, inputs]^T, and nothing
 * else; bias and all that follows belong to the kernels, which read the product once anyway. cpu_matmul*.c are the only
 * files that know oneDNN's interface.
 *
 * A struct matmul is a shape with its compiled primitives, shared by every layer with that shape; weights are packed
 * once in the layout that oneDNN likes. Primitives exist for fixed row counts only (buckets): a run-time row count
 * takes a slow path.
 *
 * The weight is cut into blocks of outputs, so that a block stays in the second-level cache while all rows pass it and
 * the caller can work on a block's product while it is there too; and the inputs into panels whose products are added
 * in f32, for the cache again, and because the AMX code of oneDNN 2.6 sums more than 768 inputs in an order that
 * depends on the row count. Whether a row has the same bits in every bucket is checked when a shape is opened; a bucket
 * that differs is not used. */
#ifndef ENGINE_CPU_MATMUL_H
#define ENGINE_CPU_MATMUL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/engine.h"

/* Rows that one primitive takes at most; buffers have room for whole multiples of it. */
enum { MATMUL_ROWS = 128 };

struct matmul_device; /* oneDNN's engine: one for a backend */
struct matmul;
struct matmul_weights;
struct matmul_runner; /* a thread's stream, scratchpad and memory handles */

/* The precision that `auto` means on this machine: bf16 where the processor computes it, else f32. */
enum precision matmul_native_precision(void);

/* Tells the OpenMP runtime below oneDNN that the calling thread works alone.
 * Thread: every thread calls this before it opens or runs anything here. */
void matmul_single_thread(void);

/* Opens oneDNN's engine of the CPU. Owns: the caller ends it with matmul_device_close, after all else.
 * Errors: STATUS_INTERNAL with oneDNN's number, STATUS_NO_MEMORY. */
MUST_CHECK enum status matmul_device_open(struct matmul_device **out, struct err *err);

/* Closes it. NULL is allowed, here and below. */
void matmul_device_close(struct matmul_device *device);

/* Compiles a shape. With `whole` a product's rows are `outputs` apart and its blocks stand beside each other; else each
 * block is written by itself, its rows block_outputs apart. Owns: the caller ends it with matmul_close; the device must
 * outlive it. Errors: STATUS_NO_MEMORY, STATUS_UNSUPPORTED, STATUS_INTERNAL. */
MUST_CHECK enum status matmul_open(struct matmul_device *device, uint32_t outputs, uint32_t inputs,
                                   enum precision precision, bool whole, struct matmul **out, struct err *err);

/* Frees the compiled shape. */
void matmul_close(struct matmul *matmul);

/* Packs a weight. Shapes: weight [outputs, inputs] f32, read; to [matmul_packed_bytes], aligned for vectors, written.
 * Owns: the caller ends it with matmul_weights_close; `to` outlives it. Errors: STATUS_NO_MEMORY, STATUS_INTERNAL. */
MUST_CHECK enum status matmul_pack(const struct matmul *matmul, const float *weight, void *to,
                                   struct matmul_weights **out, struct err *err);

/* Frees the handles; the packed bytes stay the caller's. */
void matmul_weights_close(struct matmul_weights *weights);

/* What the packed weight of a shape takes. */
size_t matmul_packed_bytes(const struct matmul *matmul);

/* Makes what one thread needs to run any of `count` matmuls. Owns: the caller ends it with matmul_runner_close, before
 * the matmuls.
 * Errors: STATUS_NO_MEMORY, STATUS_INTERNAL. Thread: one runner, one thread. */
MUST_CHECK enum status matmul_runner_open(struct matmul_device *device, struct matmul *const *matmuls, size_t count,
                                          struct matmul_runner **out, struct err *err);

/* Frees stream, scratchpad and handles. */
void matmul_runner_close(struct matmul_runner *runner);

/* An f32 product by itself, for what is needed only once. Shapes: from [rows, inputs]; weight [outputs, inputs]; to
 * [rows, outputs], rows to_stride apart, written. Errors: STATUS_INTERNAL, STATUS_NO_MEMORY. */
MUST_CHECK enum status matmul_plain(uint32_t rows, uint32_t outputs, uint32_t inputs, const float *from,
                                    const float *weight, float *to, size_t to_stride, struct err *err);

/* The most outputs that a block has. */
uint32_t matmul_block_outputs(const struct matmul *matmul);

/* How a product of so many rows is cut into blocks: few rows take smaller ones, past oneDNN where that is faster. */
struct matmul_cut {
    uint32_t blocks, outputs; /* outputs: of each */
};

/* The cut for so many rows. */
struct matmul_cut matmul_cut(const struct matmul *matmul, uint32_t rows);

/* Which weights the calling thread will probably want next, so that they are asked for in time: the block before this
 * one, or behind it; and behind the last one, those of the next product. */
struct matmul_way {
    bool down;
    const struct matmul *next; /* NULL: not known */
    const struct matmul_weights *next_weights;
};

/* Computes one block of a product, of those of matmul_cut. Shapes: from [rows, inputs] f32 or bf16 as the matmul's
 * precision; to: see matmul_open, written, the whole product's beginning or the block's own. Both have room for whole
 * multiples of MATMUL_ROWS rows: what stands behind the last row is read, and overwritten. Errors: STATUS_INTERNAL,
 * STATUS_NO_MEMORY. */
MUST_CHECK enum status matmul_run(struct matmul_runner *runner, const struct matmul *matmul,
                                  const struct matmul_weights *weights, uint32_t block, const struct matmul_way *way,
                                  uint32_t rows, const void *from, float *to, struct err *err);

#endif

/* Attention within ragged rows, on tensor cores: softmax(scale Q K^T) V without ever writing the scores down.
 *
 * A warp takes a strip: 16 queries of a row for one head. It walks the row's keys in steps of 64 and keeps, in f32
 * registers, the outputs so far, the largest score so far and the sum of the exponentials; when a larger score comes,
 * outputs and sum are scaled down. (Milakov and Gimelshein 2018; Dao et al. 2022, 2023.) What a warp does with a strip
 * is attention_strip.h; here is which warp takes which strip, and when.
 *
 * Rows above KERNEL_SHORT_ROW tokens: the block's four warps have strips of one row and share its keys and values. Each
 * warp copies a quarter of the next 64 tokens into one half of shared memory while all four work on the other.
 * Shorter rows: a warp has its own row, copies its up to 32 tokens into the quarters that are its own, and meets no
 * other warp. What a row goes through depends on its own length alone, so its output is the same to the bit alone and
 * in any batch.
 *
 * Tokens beyond a row are never read: their places in shared memory are filled with zeros (garbage there could be NaN,
 * and 0 * NaN is NaN), and their scores become minus infinity. A NaN or infinity in a row's own input comes out as NaN.
 *
 * Blocks stay: as many as the device holds at once, block b takes units (tile, head) b, 2n-1-b, 2n+b, ... of n blocks,
 * to and fro, because the longest rows come first and each block should get long and short ones alike.
 *
 * What limits it, [E] by counting, not measured. Per token and layer 8 * hidden bytes are read or written at 16 bits
 * (with the second tile of a row and further ones, keys and values again, from L2), and 4 * length * hidden operations
 * done. An H100 (3.3 TB/s; mma.sync at about 600 TFLOP/s; 16 exponentials a clock and multiprocessor, 3.6 T/s in all)
 * needs for a token of hidden size 384 and 12 heads: 0.9 ns for memory, 0.3 ns for products and 0.4 ns for exponentials
 * at 128 tokens, each of the last two four times that at 512. The products around it take about 14 ns per token and
 * layer at the goal of 12 M tokens/s. So short rows hang on memory and its latency (hence four blocks on a
 * multiprocessor), long ones on exponentials and the issue of instructions. Shared memory is read at 4 KiB for 64
 * KiFLOP and warp (head dim 64): 128 bytes a clock allow 2,048 operations a clock, all that an A100 does and half of
 * what an H100 does; strips of 32 queries would halve that, at twice the registers. */
#include "kernels/attention_strip.h"

enum {
    BLOCK_WARPS = KERNEL_TILE_STRIPS,
    BLOCK_THREADS = BLOCK_WARPS * WARP,
    STEP_TOKENS = BLOCK_WARPS * PIECE_TOKENS,
    SHORT_PIECES = KERNEL_SHORT_ROW / PIECE_TOKENS,
    STAGES = 2,
};

/* Blocks on a multiprocessor: 64 K registers are 128 a lane with four, and none need be spilled. Six hide more of
 * memory's latency at head dim 32, with 80 registers a lane, of which nvcc 13.0 spills 48 bytes; tests/gpu's
 * gpu_attention is built with both and times them. */
#ifndef ATTENTION_BLOCKS_32
#define ATTENTION_BLOCKS_32 4
#endif
template <int HEAD_DIM> constexpr int resident_blocks = HEAD_DIM == 32 ? ATTENTION_BLOCKS_32 : 4;

/* Half of a block's shared memory: 64 tokens of one row, or 16 tokens of each warp's own. */
template <int HEAD_DIM> struct attention_stage {
    attention_piece<HEAD_DIM> keys[BLOCK_WARPS];
    attention_piece<HEAD_DIM> values[BLOCK_WARPS];
};

static_assert(SHORT_PIECES == STAGES, "a short row's pieces are its warp's piece of each stage");

/* Waits for a stage, and then begins the copies of the next one, if the row goes on there. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void tile_turn(const attention_row<T> &row, int next, attention_stage<HEAD_DIM> *other)
{
    const int warp = static_cast<int>(threadIdx.x / WARP);
    copy_wait();
    __syncthreads(); /* the stage has come for all, and nobody reads the other one any more */
    if (next < row.length)
        piece_copy(row, next + PIECE_TOKENS * warp, &other->keys[warp], &other->values[warp]);
}

/* A tile of a row that all four warps have strips of; a strip beyond the row's end only helps to copy. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void tile_long(const attention_row<T> &row, int first,
                                          attention_stage<HEAD_DIM> (&stages)[STAGES])
{
    constexpr int BLOCKS = STEP_TOKENS / 8;
    const int warp = static_cast<int>(threadIdx.x / WARP);
    attention_strip<HEAD_DIM> strip;
    piece_copy(row, PIECE_TOKENS * warp, &stages[0].keys[warp], &stages[0].values[warp]);
    strip_begin(&strip, row, first);
    int key = 0, stage = 0;
    for (; key + STEP_TOKENS <= row.length; key += STEP_TOKENS, stage ^= 1) {
        tile_turn(row, key + STEP_TOKENS, &stages[stage ^ 1]);
        if (first < row.length)
            strip_step<T, HEAD_DIM, BLOCKS, 1, true>(&strip, stages[stage].keys, stages[stage].values, STEP_TOKENS,
                                                     row.scale);
    }
    if (key < row.length) {
        tile_turn(row, row.length, &stages[stage ^ 1]);
        if (first < row.length)
            strip_step<T, HEAD_DIM, BLOCKS, 1, false>(&strip, stages[stage].keys, stages[stage].values,
                                                      row.length - key, row.scale);
    }
    if (first < row.length)
        strip_end(strip, row, first);
    __syncthreads(); /* before the next tile's first copies */
}

/* A strip of a row of at most KERNEL_SHORT_ROW tokens, by one warp for itself. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void strip_short(const attention_row<T> &row, int first,
                                            attention_stage<HEAD_DIM> (&stages)[STAGES])
{
    constexpr int STRIDE = sizeof(attention_stage<HEAD_DIM>) / sizeof(attention_piece<HEAD_DIM>);
    const int warp = static_cast<int>(threadIdx.x / WARP);
    attention_strip<HEAD_DIM> strip;
#pragma unroll
    for (int p = 0; p < SHORT_PIECES; p++)
        if (PIECE_TOKENS * p < row.length)
            piece_copy(row, PIECE_TOKENS * p, &stages[p].keys[warp], &stages[p].values[warp]);
    strip_begin(&strip, row, first);
    copy_wait();
    __syncwarp();
    strip_step<T, HEAD_DIM, KERNEL_SHORT_ROW / 8, STRIDE, false>(&strip, &stages[0].keys[warp], &stages[0].values[warp],
                                                                 row.length, row.scale);
    strip_end(strip, row, first);
    __syncwarp(); /* before the next strip's copies */
}

/* This warp's strip of a unit. */
__device__ __forceinline__ struct kernel_strip unit_strip(const struct kernel_attention_args &a, uint32_t unit)
{
    const struct kernel_strip *strip = &a.ragged.tiles[unit / a.heads].strips[threadIdx.x / WARP];
    const uint4 words = *reinterpret_cast<const uint4 *>(strip);
    return {words.x, words.y, words.z, words.w};
}

/* The block's unit in a round: to and fro. */
__device__ __forceinline__ uint32_t round_unit(uint32_t round)
{
    return round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
}

template <class T, int HEAD_DIM, int BLOCKS>
__global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS) attention_tiles(KERNEL_ARGS(struct kernel_attention_args, a))
{
    SHARED(attention_stage<HEAD_DIM>, stages, [STAGES]);
    const uint32_t units = min(a.ragged.counts[KERNEL_COUNT_TILES], a.bound) * a.heads;
    uint32_t unit = round_unit(0);
    struct kernel_strip strip = unit < units ? unit_strip(a, unit) : kernel_strip();
    for (uint32_t round = 1; unit < units; round++) {
        const uint32_t next = round_unit(round);
        const size_t hidden = static_cast<size_t>(a.heads) * HEAD_DIM, column = unit % a.heads * HEAD_DIM;
        const attention_row<T> row = {
            static_cast<const T *>(a.qkv) + strip.start * 3 * hidden + column,
            static_cast<T *>(a.context) + strip.start * hidden + column,
            static_cast<int>(hidden),
            static_cast<int>(strip.length),
            a.scale * ATTENTION_LOG2_E,
        };
        if (strip.length > KERNEL_SHORT_ROW)
            tile_long(row, static_cast<int>(strip.first), stages);
        else if (strip.first < strip.length)
            strip_short(row, static_cast<int>(strip.first), stages);
        unit = next;
        if (unit < units)
            strip = unit_strip(a, unit);
    }
}

/* --- on the host ----------------------------------------------------------------------------------------------------
 */

/* KiB of shared memory that a multiprocessor has. Source: CUDA C++ Programming Guide, "Compute Capabilities". */
static uint32_t shared_kib(uint32_t capability)
{
    switch (capability) {
    case 80:
    case 87:
        return 164;
    case 90:
    case 100:
    case 103:
        return 228;
    default:
        return 100;
    }
}

template <class T, int HEAD_DIM>
static cudaError_t launch_tiles(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    /* The system keeps 1 KiB of shared memory per block. */
    const uint32_t block_kib = sizeof(attention_stage<HEAD_DIM>) * STAGES / 1024 + 1;
    constexpr int resident = resident_blocks<HEAD_DIM>;
    const uint32_t fit = std::min<uint32_t>(shared_kib(queue->capability) / block_kib, resident);
    const uint64_t units = static_cast<uint64_t>(args->bound) * args->heads;
    const uint64_t blocks = std::min<uint64_t>(units, static_cast<uint64_t>(queue->multiprocessors) * fit);
    return kernel_enqueue(queue, attention_tiles<T, HEAD_DIM, resident>, dim3(static_cast<uint32_t>(blocks)),
                          BLOCK_THREADS, 0, args);
}

template <class T>
static cudaError_t launch_type(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    if (args->head_dim == 32)
        return launch_tiles<T, 32>(queue, args);
    if (args->head_dim == 64)
        return launch_tiles<T, 64>(queue, args);
    return attention_plain(queue, args);
}

static bool attention_does(const struct kernel_attention_args *args)
{
    const uint64_t hidden = static_cast<uint64_t>(args->heads) * args->head_dim;
    return args->bound > 0 && hidden > 0 && hidden % CHUNK == 0 && hidden <= KERNEL_HIDDEN_MAX &&
           args->head_dim <= ATTENTION_HEAD_DIM_MAX && args->scale > 0.0f && aligned16(args->queries) &&
           aligned16(args->qkv) && aligned16(args->context) && aligned16(args->ragged.tiles);
}

extern "C" cudaError_t kernel_attention(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    if (!attention_does(args))
        return cudaErrorInvalidValue;
    if (args->type == KERNEL_F16 && args->queries == nullptr)
        return launch_type<__half>(queue, args);
    if (args->type == KERNEL_BF16 && args->queries == nullptr)
        return launch_type<__nv_bfloat16>(queue, args);
    return attention_plain(queue, args);
}

/* Attention within ragged rows, on tensor cores: softmax(scale Q K^T) V without ever writing the scores to memory.
 *
 * A warp takes a strip: 16 queries of a row for one head. It walks the row's keys in steps of 64 and keeps, in f32
 * registers, the outputs so far, the largest score so far and the sum of the exponentials; when a larger score comes,
 * outputs and sum are scaled down. (Milakov and Gimelshein 2018; Dao et al. 2022, 2023.)
 *
 * Rows above KERNEL_SHORT_ROW tokens: the block's four warps have strips of one row and share its keys and values. Each
 * warp copies a quarter of the next 64 tokens into one half of shared memory while all four work on the other.
 * Shorter rows: a warp has its own row, copies its up to 32 tokens into its own quarters, and shares nothing with other
 * warps. The work on a row depends on its length alone, so its output has the same bits alone and in any batch.
 *
 * A query that sees a window of its row only: the tile's steps begin with the first key that its first query sees and
 * end with the last one that its last query sees, and scores of keys that a query does not see become minus infinity.
 * So the first step holds a key that each query sees, and no sum is ever empty.
 *
 * Tokens beyond a row are never read: their places in shared memory are filled with zeros (garbage there could be NaN,
 * and 0 * NaN is NaN), and their scores become minus infinity. A NaN or infinity in a row's own input comes out as NaN.
 *
 * The grid is persistent: as many blocks as fit at once. Block b of n takes units (tile, head) b, 2n-1-b, 2n+b, ...,
 * alternating in direction, because the longest rows come first and each block should get long and short ones.
 *
 * Limits, [E] by counting, not measured. Per token and layer 8 * hidden bytes are read or written at 16 bits (with the
 * second tile of a row and further ones, keys and values again, from L2), and 4 * length * hidden operations done. An
 * H100 (3.3 TB/s; mma.sync at about 600 TFLOP/s; 16 exponentials a clock and multiprocessor, 3.6 T/s in all) needs for
 * a token of hidden size 384 and 12 heads: 0.9 ns for memory, 0.3 ns for products and 0.4 ns for exponentials at 128
 * tokens, each of the last two four times that at 512. The products around it take about 14 ns per token and layer at
 * the goal of 12 M tokens/s. So short rows are limited by memory and its latency (hence four blocks on a
 * multiprocessor), long ones by exponentials and the issue of instructions. Shared memory is read at 4 KiB for 64
 * KiFLOP and warp (head dim 64): 128 bytes a clock allow 2,048 operations a clock, the full rate of an A100 and half
 * that of an H100; strips of 32 queries would halve that, at twice the registers. */
#include "kernels/attention_strip.h"

/* --- a warp's work on a strip --- */

/* A strip: 16 queries of a row for one head, computed by one warp from keys and values in shared memory.
 *
 * Three choices keep everything in registers:
 *   - Queries load from global memory straight into mma's fragments, 16 bytes a lane. Which columns mma calls "2t" does
 *     not matter to a dot product as long as queries and keys agree, so lane (g, t) takes columns 8t..8t+7 of every 32.
 *   - The scores that mma leaves in a lane, rounded to T, are exactly its part of the left operand of P V.
 *   - Outputs change lanes within a quad before they are stored, so that a lane writes 16 bytes too. */

/* Starts copying a piece: 16 keys and values of the row from `first` on, zeros beyond its end. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void piece_copy(const attention_row<T> &row, int first, attention_piece<HEAD_DIM> *keys,
                                           attention_piece<HEAD_DIM> *values)
{
    constexpr int CHUNKS = HEAD_DIM / CHUNK;
    const int lane = lane_id();
#pragma unroll
    for (int i = 0; i < PIECE_TOKENS * CHUNKS / WARP; i++) {
        const int at = i * WARP + lane;
        const int token = at / CHUNKS, chunk = at % CHUNKS, place = attention_place<HEAD_DIM>(token, chunk);
        const bool valid = first + token < row.length;
        const T *from = row.keys + ((first + token) * row.stride + chunk * CHUNK);
        copy_begin(&keys->chunks[place], from, valid);
        copy_begin(&values->chunks[place], from + row.values, valid);
    }
}

/* Scores, 8 keys at a time; minus infinity from key `count` on. Pieces of keys are STRIDE pieces apart. WHOLE: every
 * key counts. */
template <class T, int HEAD_DIM, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_scores(const attention_strip<HEAD_DIM> &strip,
                                             const attention_piece<HEAD_DIM> *keys, int count,
                                             float (&scores)[BLOCKS][4])
{
    const int lane = lane_id();
#pragma unroll
    for (int n = 0; n < BLOCKS; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) { scores[n][i] = 0.0f; }
        if (WHOLE || 8 * n < count) {
#pragma unroll
            for (int c = 0; c < HEAD_DIM / GROUP; c++) {
                const int place = attention_place<HEAD_DIM>(lane / 4, 4 * c + lane % 4) + n % 2 * HEAD_DIM; /* 8 on */
                const uint4 key = keys[n / 2 * STRIDE].chunks[place];
                const uint4 upper = strip.queries[c][0], lower = strip.queries[c][1];
                mma_16x8x16<T>(scores[n], upper.x, lower.x, upper.y, lower.y, key.x, key.y);
                mma_16x8x16<T>(scores[n], upper.z, lower.z, upper.w, lower.w, key.z, key.w);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (!WHOLE && 8 * n + 2 * (lane % 4) + i % 2 >= count) { scores[n][i] = minus_infinity(); }
        }
    }
}

/* Adds the values, weighted by the powers. */
template <class T, int HEAD_DIM, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_values(attention_strip<HEAD_DIM> *strip, const attention_piece<HEAD_DIM> *values,
                                             int count, const float (&powers)[BLOCKS][4])
{
    const int lane = lane_id();
#pragma unroll
    for (int p = 0; p < BLOCKS / 2; p++) {
        if (!WHOLE && PIECE_TOKENS * p >= count) { continue; }
        const uint32_t a0 = pack(powers[2 * p][0], powers[2 * p][1], T());
        const uint32_t a1 = pack(powers[2 * p][2], powers[2 * p][3], T());
        const uint32_t a2 = pack(powers[2 * p + 1][0], powers[2 * p + 1][1], T());
        const uint32_t a3 = pack(powers[2 * p + 1][2], powers[2 * p + 1][3], T());
#pragma unroll
        for (int c = 0; c < HEAD_DIM / 16; c++) {
            uint32_t b[4];
            ldmatrix_x4_transposed(b,
                                   &values[p * STRIDE].chunks[attention_place<HEAD_DIM>(lane % 16, 2 * c + lane / 16)]);
            mma_16x8x16<T>(strip->out[2 * c], a0, a1, a2, a3, b[0], b[1]);
            mma_16x8x16<T>(strip->out[2 * c + 1], a0, a1, a2, a3, b[2], b[3]);
        }
    }
}

/* Processes the row's keys and values from `key` on, which are in shared memory: 8 * BLOCKS or, unless WHOLE, `count`.
 */
template <class T, int HEAD_DIM, int VIEW, int BLOCKS, int STRIDE, bool WHOLE>
__device__ __forceinline__ void strip_step(const attention_row<T> &row, int first, int key, int count,
                                           attention_strip<HEAD_DIM> *strip, const attention_piece<HEAD_DIM> *keys,
                                           const attention_piece<HEAD_DIM> *values)
{
    float scores[BLOCKS][4];
    strip_scores<T, HEAD_DIM, BLOCKS, STRIDE, WHOLE>(*strip, keys, count, scores);
    if (VIEW == ATTENTION_BIASED) { strip_bias(row, first, key, scores); }
    if (VIEW == ATTENTION_WINDOW) { strip_window(row, first, key, scores); }
    float shrink[2];
    strip_powers<false>(strip, row.scale, scores, shrink);
    strip_shrink(strip, shrink);
    strip_values<T, HEAD_DIM, BLOCKS, STRIDE, WHOLE>(strip, values, count, scores);
}

/* --- the assignment of strips to warps --- */

enum {
    BLOCK_WARPS = KERNEL_TILE_STRIPS,
    BLOCK_THREADS = BLOCK_WARPS * WARP,
    TILE_QUERIES = BLOCK_WARPS * KERNEL_STRIP_QUERIES,
    STEP_TOKENS = BLOCK_WARPS * PIECE_TOKENS,
    SHORT_PIECES = KERNEL_SHORT_ROW / PIECE_TOKENS,
    STAGES = 2,
};

/* Resident blocks per multiprocessor. Four leave each lane 128 of the 64 K registers; nvcc 13.0 spills up to 28 bytes
 * of them at head dim 64, with a bias 104. Six were 3 to 5 % slower on an H100 at head dim 32. */
enum { RESIDENT_BLOCKS = 4 };

/* Half of a block's shared memory: 64 tokens of one row, or 16 tokens of each warp's own. */
template <int HEAD_DIM> struct attention_stage {
    attention_piece<HEAD_DIM> keys[BLOCK_WARPS];
    attention_piece<HEAD_DIM> values[BLOCK_WARPS];
};

static_assert(SHORT_PIECES == STAGES, "a short row's pieces are its warp's piece of each stage");

/* Waits for a stage, then starts copying the next one if there are keys before `end`. */
template <class T, int HEAD_DIM>
__device__ __forceinline__ void tile_turn(const attention_row<T> &row, int next, int end,
                                          attention_stage<HEAD_DIM> *other)
{
    const int warp = static_cast<int>(threadIdx.x / WARP);
    copy_wait();
    __syncthreads(); /* the stage is complete, and no warp reads the other one any more */
    if (next < end) { piece_copy(row, next + PIECE_TOKENS * warp, &other->keys[warp], &other->values[warp]); }
}

/* Computes a tile of one row by all four warps; a strip beyond the row's end only helps to copy. */
template <class T, int HEAD_DIM, int VIEW>
__device__ __forceinline__ void tile_long(const attention_row<T> &row, int first,
                                          attention_stage<HEAD_DIM> (&stages)[STAGES])
{
    constexpr int BLOCKS = STEP_TOKENS / 8;
    const int warp = static_cast<int>(threadIdx.x / WARP);
    attention_strip<HEAD_DIM> strip;
    int key = 0, end = row.length, stage = 0;
    if (VIEW == ATTENTION_WINDOW) {
        const int tile = first - KERNEL_STRIP_QUERIES * warp;
        key = max(0, tile - row.before);
        end = min(row.length, tile + TILE_QUERIES + row.behind);
    }
    piece_copy(row, key + PIECE_TOKENS * warp, &stages[0].keys[warp], &stages[0].values[warp]);
    strip_begin(&strip, row, first);
    for (; key + STEP_TOKENS <= end; key += STEP_TOKENS, stage ^= 1) {
        tile_turn(row, key + STEP_TOKENS, end, &stages[stage ^ 1]);
        if (first < row.length) {
            strip_step<T, HEAD_DIM, VIEW, BLOCKS, 1, true>(row, first, key, STEP_TOKENS, &strip, stages[stage].keys,
                                                           stages[stage].values);
        }
    }
    if (key < end) {
        tile_turn(row, end, end, &stages[stage ^ 1]);
        if (first < row.length) {
            strip_step<T, HEAD_DIM, VIEW, BLOCKS, 1, false>(row, first, key, end - key, &strip, stages[stage].keys,
                                                            stages[stage].values);
        }
    }
    if (first < row.length) { strip_end(strip, row, first); }
    __syncthreads(); /* before the next tile's first copies */
}

/* Computes a strip of a row of at most KERNEL_SHORT_ROW tokens by one warp. */
template <class T, int HEAD_DIM, int VIEW>
__device__ __forceinline__ void strip_short(const attention_row<T> &row, int first,
                                            attention_stage<HEAD_DIM> (&stages)[STAGES])
{
    constexpr int STRIDE = sizeof(attention_stage<HEAD_DIM>) / sizeof(attention_piece<HEAD_DIM>);
    const int warp = static_cast<int>(threadIdx.x / WARP);
    attention_strip<HEAD_DIM> strip;
#pragma unroll
    for (int p = 0; p < SHORT_PIECES; p++) {
        if (PIECE_TOKENS * p < row.length) {
            piece_copy(row, PIECE_TOKENS * p, &stages[p].keys[warp], &stages[p].values[warp]);
        }
    }
    strip_begin(&strip, row, first);
    copy_wait();
    __syncwarp();
    strip_step<T, HEAD_DIM, VIEW, KERNEL_SHORT_ROW / 8, STRIDE, false>(row, first, 0, row.length, &strip,
                                                                       &stages[0].keys[warp], &stages[0].values[warp]);
    strip_end(strip, row, first);
    __syncwarp(); /* before the next strip's copies */
}

/* This warp's strip of a unit. */
__device__ __forceinline__ struct kernel_strip unit_strip(const struct kernel_attention_args &a, uint32_t spans,
                                                          uint32_t unit)
{
    const struct kernel_strip *strip = &a.ragged.tiles[spans + unit / a.heads].strips[threadIdx.x / WARP];
    const uint4 words = *reinterpret_cast<const uint4 *>(strip);
    return {words.x, words.y, words.z, words.w};
}

template <class T, int HEAD_DIM, int VIEW>
__global__ void __launch_bounds__(BLOCK_THREADS, RESIDENT_BLOCKS)
    attention_tiles(KERNEL_ARGS(struct kernel_attention_args, a))
{
    SHARED(attention_stage<HEAD_DIM>, stages, [STAGES]);
    const uint32_t spans = a.ragged.counts[KERNEL_COUNT_SPANS];
    const uint32_t units = (min(a.ragged.counts[KERNEL_COUNT_TILES], a.bound) - spans) * a.heads;
    uint32_t unit = round_unit(0);
    struct kernel_strip strip = unit < units ? unit_strip(a, spans, unit) : kernel_strip();
    for (uint32_t round = 1; unit < units; round++) {
        const uint32_t next = round_unit(round);
        const attention_row<T> row = attention_row_of<T, HEAD_DIM, VIEW>(a, strip, unit % a.heads);
        if (strip.length > KERNEL_SHORT_ROW) {
            tile_long<T, HEAD_DIM, VIEW>(row, static_cast<int>(strip.first), stages);
        } else if (strip.first < strip.length) {
            strip_short<T, HEAD_DIM, VIEW>(row, static_cast<int>(strip.first), stages);
        }
        unit = next;
        if (unit < units) { strip = unit_strip(a, spans, unit); }
    }
}

/* --- on the host --- */

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
    /* The system reserves 1 KiB of shared memory per block. */
    const uint32_t block_kib = sizeof(attention_stage<HEAD_DIM>) * STAGES / 1024 + 1;
    const uint32_t fit = std::min<uint32_t>(shared_kib(queue->capability) / block_kib, RESIDENT_BLOCKS);
    const uint64_t units = static_cast<uint64_t>(args->bound) * args->heads;
    const uint64_t blocks = std::min<uint64_t>(units, static_cast<uint64_t>(queue->multiprocessors) * fit);
    const int view = attention_view_of(args);
    auto *kernel = view == ATTENTION_BIASED   ? attention_tiles<T, HEAD_DIM, ATTENTION_BIASED>
                   : view == ATTENTION_WINDOW ? attention_tiles<T, HEAD_DIM, ATTENTION_WINDOW>
                                              : attention_tiles<T, HEAD_DIM, ATTENTION_ALL>;
    return kernel_enqueue(queue, kernel, dim3(static_cast<uint32_t>(blocks)), BLOCK_THREADS, 0, args);
}

template <class T>
static cudaError_t launch_type(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    if (args->head_dim == 32) { return launch_tiles<T, 32>(queue, args); }
    if (args->head_dim == 64) { return launch_tiles<T, 64>(queue, args); }
    return attention_plain(queue, args);
}

static bool attention_does(const struct kernel_attention_args *args)
{
    const uint64_t hidden = static_cast<uint64_t>(args->heads) * args->head_dim;
    return args->bound > 0 && hidden > 0 && hidden % CHUNK == 0 && hidden <= KERNEL_HIDDEN_MAX && args->key_heads > 0 &&
           args->heads % args->key_heads == 0 && args->key_heads * args->head_dim % CHUNK == 0 &&
           args->head_dim <= KERNEL_HEAD_DIM_MAX && args->scale > 0.0f && attention_view_of(args) >= 0 &&
           aligned16(args->queries) && aligned16(args->qkv) && aligned16(args->context) &&
           aligned16(args->ragged.tiles);
}

extern "C" cudaError_t kernel_attention(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    if (!attention_does(args)) { return cudaErrorInvalidValue; }
    if (args->queries == nullptr) {
        const struct kernel_span span =
            kernel_attention_span(queue->capability, args->type, args->head_dim, args->bias != nullptr);
        if (span.queries > 0 && (args->longest == 0 || args->longest > span.above)) {
            const cudaError_t answer = attention_wgmma(queue, args);
            if (answer != cudaSuccess) { return answer; }
        }
        if (span.queries > 0 && span.above == 0) { return cudaSuccess; }
    }
    if (args->type == KERNEL_F16 && args->queries == nullptr) { return launch_type<__half>(queue, args); }
    if (args->type == KERNEL_BF16 && args->queries == nullptr) { return launch_type<__nv_bfloat16>(queue, args); }
    return attention_plain(queue, args);
}

/* Attention by plain f32 arithmetic: for f32 matrices, for head dims without a tensor-core kernel in attention.cu, and
 * for a single query per row (the last layer of models that pool the first token).
 *
 * A warp works on one or four queries of a head at a time. Its lanes form groups, each wide enough to hold a head at 8
 * columns a lane. A group handles every n-th key of the row with its own running maximum, sum and outputs; in the end
 * the groups are merged. Keys and values are read once per four queries, which bounds the speed. It uses neither tensor
 * cores nor shared memory. As in attention.cu, a row's arithmetic depends on its length alone, nothing beyond a row is
 * read, and NaN or infinity in its input comes out as NaN. */
#include "kernels/attention.h"

enum { PLAIN_WARPS = 4, PLAIN_THREADS = PLAIN_WARPS * WARP };

/* A lane's share of its warp's work. */
struct plain_lane {
    int lanes;   /* lanes that hold one head: 1, 2, 4, ... 32 */
    int groups;  /* groups in the warp */
    int group;   /* this lane's */
    int column;  /* its first column of the head */
    int columns; /* number of columns: 0..CHUNK */
};

/* One head of one row. */
template <class T> struct plain_row {
    const T *query; /* its first */
    const T *key;   /* its first; the value follows after `values` columns */
    size_t stride;  /* columns from a token's query, key and value to the next one's */
    size_t values;
    size_t hidden; /* columns of the context */
    int length;
    float scale;        /* from a score to an exponent of 2 */
    const float *bias;  /* of a query and its own key, or NULL */
    int before, behind; /* the window that a query sees, in keys before and after it; at most length */
};

/* QUERIES queries with outputs, largest exponent and sum of powers over the keys that this lane's group has seen. */
template <int QUERIES> struct plain_part {
    struct chunk query[QUERIES], out[QUERIES];
    float top[QUERIES], sum[QUERIES];
};

__device__ __forceinline__ struct plain_lane plain_lane_of(uint32_t head_dim)
{
    struct plain_lane lane;
    lane.lanes = 1;
    while (lane.lanes * CHUNK < static_cast<int>(head_dim)) { lane.lanes *= 2; }
    const int self = static_cast<int>(threadIdx.x % WARP);
    lane.groups = WARP / lane.lanes;
    lane.group = self / lane.lanes;
    lane.column = self % lane.lanes * CHUNK;
    lane.columns = max(0, min(static_cast<int>(CHUNK), static_cast<int>(head_dim) - lane.column));
    return lane;
}

__device__ __forceinline__ float plain_minus_infinity()
{
    return __uint_as_float(0xff800000u);
}

/* 2^(x - top); a top of minus infinity means that nothing has been added yet. */
__device__ __forceinline__ float plain_shrink(float x, float top)
{
    return x == plain_minus_infinity() ? 0.0f : exp2_approximate(x - top);
}

/* A head whose width is no multiple of 8 is aligned to its elements only. */
template <class T> __device__ __forceinline__ struct chunk plain_load(const T *from, const struct plain_lane &lane)
{
    if (lane.columns == CHUNK && reinterpret_cast<uintptr_t>(from) % 16 == 0) { return chunk_load(from + 0); }
    struct chunk x = {};
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        if (i < lane.columns) { x.at[i] = static_cast<float>(from[i]); }
    }
    return x;
}

template <class T>
__device__ __forceinline__ void plain_store(T *to, const struct chunk &x, const struct plain_lane &lane)
{
    if (lane.columns == CHUNK && reinterpret_cast<uintptr_t>(to) % 16 == 0) {
        chunk_store(to, x);
        return;
    }
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        if (i < lane.columns) { to[i] = static_cast<T>(x.at[i]); }
    }
}

/* The dot product of two heads, for all lanes of a group. */
__device__ __forceinline__ float plain_dot(const struct chunk &x, const struct chunk &y, int lanes)
{
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { sum = fmaf(x.at[i], y.at[i], sum); }
    for (int bit = 1; bit < lanes; bit *= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, bit); }
    return sum;
}

/* True if a query of the row sees a key, which must be before `end`. */
template <int VIEW, class T>
__device__ __forceinline__ bool plain_sees(const plain_row<T> &row, int query, int key, int end)
{
    return key < end && (VIEW != ATTENTION_WINDOW || (key >= query - row.before && key <= query + row.behind));
}

/* Processes the keys and values that queries from `first` on see, KEYS per group at a time. */
template <class T, int VIEW, int QUERIES, int KEYS>
__device__ __forceinline__ void plain_walk(const plain_row<T> &row, const struct plain_lane &lane, int first,
                                           plain_part<QUERIES> *part)
{
    const T *keys = row.key + lane.column;
    int begin = 0, end = row.length;
    if (VIEW == ATTENTION_WINDOW) {
        begin = max(0, first - row.before);
        end = min(row.length, first + QUERIES + row.behind);
    }
    for (int base = begin + lane.group; base - lane.group < end; base += KEYS * lane.groups) {
        float powers[KEYS][QUERIES];
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            const int token = base + k * lane.groups;
            struct chunk key = {};
            if (token < end) { key = plain_load(keys + static_cast<size_t>(token) * row.stride, lane); }
#pragma unroll
            for (int q = 0; q < QUERIES; q++) {
                powers[k][q] = plain_dot(part->query[q], key, lane.lanes);
                if (VIEW == ATTENTION_BIASED && token < end && first + q < row.length) {
                    powers[k][q] = fmaf(row.bias[token - first - q], row.scale, powers[k][q]);
                }
            }
        }
#pragma unroll
        for (int q = 0; q < QUERIES; q++) {
            float top = part->top[q];
#pragma unroll
            for (int k = 0; k < KEYS; k++) {
                const bool sees = plain_sees<VIEW>(row, first + q, base + k * lane.groups, end);
                if (sees) { top = fmaxf(top, powers[k][q]); }
            }
            const float shrink = plain_shrink(part->top[q], top);
            part->sum[q] *= shrink;
#pragma unroll
            for (int i = 0; i < CHUNK; i++) { part->out[q].at[i] *= shrink; }
#pragma unroll
            for (int k = 0; k < KEYS; k++) {
                const bool sees = plain_sees<VIEW>(row, first + q, base + k * lane.groups, end);
                powers[k][q] = sees ? exp2_approximate(powers[k][q] - top) : 0.0f;
                part->sum[q] += powers[k][q];
            }
            part->top[q] = top;
        }
#pragma unroll
        for (int k = 0; k < KEYS; k++) {
            const int token = base + k * lane.groups;
            if (token >= end) { continue; }
            const struct chunk value = plain_load(keys + row.values + static_cast<size_t>(token) * row.stride, lane);
#pragma unroll
            for (int q = 0; q < QUERIES; q++)
#pragma unroll
                for (int i = 0; i < CHUNK; i++) {
                    part->out[q].at[i] = fmaf(powers[k][q], value.at[i], part->out[q].at[i]);
                }
        }
    }
}

/* Merges the groups' parts of one query; every lane then holds its columns of the result. */
template <int QUERIES> __device__ __forceinline__ void plain_merge(plain_part<QUERIES> *part, int q, int lanes)
{
    for (int bit = lanes; bit < WARP; bit *= 2) {
        const float top = fmaxf(part->top[q], __shfl_xor_sync(0xffffffffu, part->top[q], bit));
        const float shrink = plain_shrink(part->top[q], top);
        part->sum[q] *= shrink;
        part->sum[q] += __shfl_xor_sync(0xffffffffu, part->sum[q], bit);
#pragma unroll
        for (int i = 0; i < CHUNK; i++) {
            part->out[q].at[i] *= shrink;
            part->out[q].at[i] += __shfl_xor_sync(0xffffffffu, part->out[q].at[i], bit);
        }
        part->top[q] = top;
    }
}

/* Queries first.. of the row, up to QUERIES of them; their outputs go to `to`, `hidden` columns apart. */
template <class T, int VIEW, int QUERIES, int KEYS>
__device__ __forceinline__ void plain_queries(const plain_row<T> &row, int first, T *to, uint32_t head_dim)
{
    const struct plain_lane lane = plain_lane_of(head_dim);
    plain_part<QUERIES> part;
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        part.query[q] = {};
        part.out[q] = {};
        if (first + q < row.length) {
            part.query[q] = plain_load(row.query + static_cast<size_t>(first + q) * row.stride + lane.column, lane);
        }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { part.query[q].at[i] *= row.scale; }
        part.top[q] = plain_minus_infinity();
        part.sum[q] = 0.0f;
    }
    plain_walk<T, VIEW, QUERIES, KEYS>(row, lane, first, &part);
#pragma unroll
    for (int q = 0; q < QUERIES; q++) {
        plain_merge(&part, q, lane.lanes);
        if (first + q >= row.length || lane.group != 0 || lane.columns == 0) { continue; }
#pragma unroll
        for (int i = 0; i < CHUNK; i++) { part.out[q].at[i] /= part.sum[q]; }
        plain_store(to + q * row.hidden + lane.column, part.out[q], lane);
    }
}

/* A head's bias of a query and its own key. */
template <int VIEW>
__device__ __forceinline__ const float *plain_bias(const struct kernel_attention_args &a, uint32_t head)
{
    if (VIEW != ATTENTION_BIASED) { return nullptr; }
    return a.bias + head * (2 * static_cast<size_t>(a.reach) + 1) + a.reach;
}

/* The first column of the keys of a head of queries, among a token's keys. */
__device__ __forceinline__ size_t plain_key_column(const struct kernel_attention_args &a, uint32_t head)
{
    return static_cast<size_t>(head / (a.heads / a.key_heads)) * a.head_dim;
}

/* All queries: a block takes a tile and head at a time, a warp its strip, four queries at a time. */
template <class T, int VIEW>
__global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_tiles(KERNEL_ARGS(struct kernel_attention_args, a))
{
    enum { QUERIES = 4 };
    const size_t hidden = static_cast<size_t>(a.heads) * a.head_dim,
                 keys = static_cast<size_t>(a.key_heads) * a.head_dim;
    const uint32_t units = min(a.ragged.counts[KERNEL_COUNT_TILES], a.bound) * a.heads;
    for (uint32_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
        const struct kernel_strip strip = a.ragged.tiles[unit / a.heads].strips[threadIdx.x / WARP];
        const size_t column = static_cast<size_t>(unit % a.heads) * a.head_dim;
        const T *qkv = static_cast<const T *>(a.qkv) + strip.start * (hidden + 2 * keys);
        const plain_row<T> row = {qkv + column,
                                  qkv + hidden + plain_key_column(a, unit % a.heads),
                                  hidden + 2 * keys,
                                  keys,
                                  hidden,
                                  static_cast<int>(strip.length),
                                  a.scale * ATTENTION_LOG2_E,
                                  plain_bias<VIEW>(a, unit % a.heads),
                                  static_cast<int>(min(a.before, strip.length)),
                                  static_cast<int>(min(a.behind, strip.length))};
        T *to = static_cast<T *>(a.context) + strip.start * hidden + column;
        const int end = min(row.length, static_cast<int>(strip.first) + KERNEL_STRIP_QUERIES);
        for (int first = static_cast<int>(strip.first); first < end; first += QUERIES) {
            plain_queries<T, VIEW, QUERIES, 2>(row, first, to + first * hidden, a.head_dim);
        }
    }
}

/* One query for each row: a warp takes a row and head at a time. */
template <class T, int VIEW>
__global__ void __launch_bounds__(PLAIN_THREADS) attention_plain_rows(KERNEL_ARGS(struct kernel_attention_args, a))
{
    const size_t hidden = static_cast<size_t>(a.heads) * a.head_dim,
                 keys = static_cast<size_t>(a.key_heads) * a.head_dim;
    const uint32_t units = min(a.ragged.counts[KERNEL_COUNT_ROWS], a.bound) * a.heads;
    for (uint32_t unit = blockIdx.x * PLAIN_WARPS + threadIdx.x / WARP; unit < units; unit += gridDim.x * PLAIN_WARPS) {
        const uint32_t r = unit / a.heads;
        const size_t column = static_cast<size_t>(unit % a.heads) * a.head_dim;
        const T *query = static_cast<const T *>(a.queries) + r * hidden + column;
        const T *key = static_cast<const T *>(a.qkv) + a.ragged.start[r] * 2 * keys;
        const plain_row<T> row = {query,
                                  key + plain_key_column(a, unit % a.heads),
                                  2 * keys,
                                  keys,
                                  hidden,
                                  static_cast<int>(a.ragged.length[r]),
                                  a.scale * ATTENTION_LOG2_E,
                                  plain_bias<VIEW>(a, unit % a.heads),
                                  static_cast<int>(min(a.before, a.ragged.length[r])),
                                  static_cast<int>(min(a.behind, a.ragged.length[r]))};
        plain_queries<T, VIEW, 1, 4>(row, 0, static_cast<T *>(a.context) + r * hidden + column, a.head_dim);
    }
}

/* --- on the host --- */

template <class T>
static void (*plain_kernel(const struct kernel_attention_args *args))(KERNEL_PARAMETER(struct kernel_attention_args))
{
    const bool single = args->queries != nullptr;
    const int view = attention_view_of(args);
    if (view == ATTENTION_BIASED) {
        return single ? attention_plain_rows<T, ATTENTION_BIASED> : attention_plain_tiles<T, ATTENTION_BIASED>;
    }
    if (view == ATTENTION_WINDOW) {
        return single ? attention_plain_rows<T, ATTENTION_WINDOW> : attention_plain_tiles<T, ATTENTION_WINDOW>;
    }
    return single ? attention_plain_rows<T, ATTENTION_ALL> : attention_plain_tiles<T, ATTENTION_ALL>;
}

cudaError_t attention_plain(const struct kernel_queue *queue, const struct kernel_attention_args *args)
{
    enum { BLOCKS = 8 }; /* per multiprocessor, roughly */
    const bool single = args->queries != nullptr;
    void (*kernel)(KERNEL_PARAMETER(struct kernel_attention_args)) = nullptr;
    switch (args->type) {
    case KERNEL_F32:
        kernel = plain_kernel<float>(args);
        break;
    case KERNEL_F16:
        kernel = plain_kernel<__half>(args);
        break;
    case KERNEL_BF16:
        kernel = plain_kernel<__nv_bfloat16>(args);
        break;
    default:
        return cudaErrorInvalidValue;
    }
    const uint64_t units = static_cast<uint64_t>(args->bound) * args->heads;
    const uint64_t wanted = single ? (units + PLAIN_WARPS - 1) / PLAIN_WARPS : units;
    const uint64_t most = static_cast<uint64_t>(queue->multiprocessors) * BLOCKS;
    const uint32_t blocks = static_cast<uint32_t>(wanted < most ? wanted : most);
    return kernel_enqueue(queue, kernel, dim3(blocks), PLAIN_THREADS, 0, args);
}

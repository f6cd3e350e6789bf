/* Rotary positions: turns queries and keys, in place, before attention reads them. It is a step of its own because
 * attention copies keys to shared memory without passing through registers, and copies those of a long row once for
 * every 64 queries. A thread turns eight numbers of the first half of a head and the eight that they are paired with;
 * memory bounds the speed, because the heads of a token share a row of the table. If heads are normalised first, the
 * threads of a head, neighbours in a warp, add up their squares. */
#include "kernels/device.h"

enum { ROTATE_THREADS = 256 };

/* Replaces the head x that these lanes share by x / sqrt(mean of x^2 + epsilon) * gain. */
__device__ __forceinline__ void rotate_normalize(struct chunk *x, struct chunk *y, uint32_t lanes, uint32_t head_dim,
                                                 float epsilon, const float *gain)
{
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < CHUNK; i++) { squares += x->at[i] * x->at[i] + y->at[i] * y->at[i]; }
    for (uint32_t bit = 1; bit < lanes; bit *= 2) { squares += __shfl_xor_sync(0xffffffffu, squares, bit); }
    const float scale = rsqrtf(squares / (float)head_dim + epsilon);
    const struct chunk g = chunk_load(gain), h = chunk_load(gain + head_dim / 2);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        x->at[i] *= scale * g.at[i];
        y->at[i] *= scale * h.at[i];
    }
}

template <class T, bool NORMED>
__global__ void __launch_bounds__(ROTATE_THREADS) rotate_chunks(KERNEL_ARGS(struct kernel_rotate_args, a))
{
    const uint32_t index = blockIdx.x * ROTATE_THREADS + threadIdx.x, middle = a.head_dim / 2, in_head = middle / CHUNK;
    const uint32_t column = index % in_head * CHUNK, head = index / in_head % a.heads;
    const uint32_t token = index / in_head / a.heads;
    const bool there = token < a.ragged.counts[KERNEL_COUNT_TOKENS] && token < a.bound;
    if (!NORMED && !there) { return; } /* with NORMED, the other lanes of its warp wait for its squares */
    T *at = static_cast<T *>(a.x) + static_cast<size_t>(token) * a.stride + head * a.head_dim + column;
    struct chunk x = {}, y = {};
    if (there) {
        x = chunk_load(at);
        y = chunk_load(at + middle);
    }
    if (NORMED) {
        const float *gain = (head < a.queries ? a.query_gain : a.key_gain) + column;
        rotate_normalize(&x, &y, in_head, a.head_dim, a.epsilon, gain);
        if (!there) { return; }
    }
    uint32_t position = a.ragged.position[token];
    if (position >= a.positions) { position = 0; }
    const float *turn = a.table + static_cast<size_t>(position) * a.head_dim + column;
    const struct chunk cosine = chunk_load(turn), sine = chunk_load(turn + middle);
#pragma unroll
    for (int i = 0; i < CHUNK; i++) {
        const float real = x.at[i];
        x.at[i] = real * cosine.at[i] - y.at[i] * sine.at[i];
        y.at[i] = y.at[i] * cosine.at[i] + real * sine.at[i];
    }
    chunk_store(at, x);
    chunk_store(at + middle, y);
}

extern "C" cudaError_t kernel_rotate(const struct kernel_queue *queue, const struct kernel_rotate_args *args)
{
    const uint64_t columns = static_cast<uint64_t>(args->heads) * args->head_dim;
    const uint64_t chunks = args->bound * (columns / (2 * CHUNK));
    const bool normed = args->query_gain != nullptr, power = (args->head_dim & (args->head_dim - 1)) == 0;
    void (*kernel)(KERNEL_PARAMETER(struct kernel_rotate_args)) =
        normed ? KERNEL_OF_TYPE(args->type, rotate_chunks, true) : KERNEL_OF_TYPE(args->type, rotate_chunks, false);
    if (columns == 0 || columns > args->stride || chunks == 0 || chunks > UINT32_MAX - ROTATE_THREADS ||
        args->head_dim % (2 * CHUNK) != 0 || args->stride % CHUNK != 0 || args->positions == 0 || kernel == nullptr ||
        (normed && (!power || args->head_dim > 2 * CHUNK * WARP)) || normed != (args->key_gain != nullptr) ||
        !aligned16(args->x) || !aligned16(args->table) || !aligned16(args->query_gain) || !aligned16(args->key_gain)) {
        return cudaErrorInvalidValue;
    }
    dim3 grid(ceil_div(static_cast<uint32_t>(chunks), ROTATE_THREADS));
    return kernel_enqueue(queue, kernel, grid, ROTATE_THREADS, 0, args);
}

/* The first step of a forward pass: a token's word and place embeddings, summed and normalised. Position and token type
 * are one table (the loader has added them), so a token reads two rows and writes one. */
#include "kernels/row.h"

template <class T, int WARPS, int CHUNKS>
__global__ void __launch_bounds__(ROW_THREADS) embed_norm_rows(KERNEL_ARGS(struct kernel_embed_norm_args, a))
{
    uint32_t token = row_of<WARPS>();
    if (token >= a.ragged.counts[KERNEL_COUNT_TOKENS] || token >= a.bound)
        return;
    uint32_t id = static_cast<uint32_t>(a.ragged.ids[token]), position = a.ragged.position[token];
    if (id >= a.vocabulary)
        id = 0;
    if (position >= a.positions)
        position = 0;
    struct row_part<WARPS, CHUNKS> x;
    row_load(&x, static_cast<const T *>(a.word) + static_cast<size_t>(id) * a.hidden, a.hidden);
    row_add(&x, static_cast<const T *>(a.place) + static_cast<size_t>(position) * a.hidden, a.hidden);
    row_normalize(&x, a.hidden, a.epsilon, a.gain, a.shift);
    row_store(x, static_cast<T *>(a.to) + static_cast<size_t>(token) * a.hidden, a.hidden);
}

extern "C" cudaError_t kernel_embed_norm(const struct kernel_queue *queue, const struct kernel_embed_norm_args *args)
{
    const void *matrices[] = {args->word, args->place, args->gain, args->shift, args->to};
    if (!row_does(args->hidden, args->bound, matrices) || args->vocabulary == 0 || args->positions == 0)
        return cudaErrorInvalidValue;
    void (*kernel)(KERNEL_PARAMETER(struct kernel_embed_norm_args)) = nullptr;
    ROW_KERNEL(kernel, embed_norm_rows, args->type, args->hidden);
    if (kernel == nullptr)
        return cudaErrorInvalidValue;
    return kernel_enqueue(queue, kernel, row_grid(args->bound, args->hidden), ROW_THREADS, 0, args);
}

/* LayerNorm over rows, with what stands right before it: the embeddings of a token, or a product's bias and the
 * residual stream. A row lies in registers from its only load to its only store, so the variance is taken from the
 * differences to the mean, as the definition says, at no cost in traffic.
 *
 * Up to 1,024 columns a row is one warp's and needs no barrier; wider ones are a block's. A lane holds every 32nd (or
 * every 128th) chunk of eight columns. */
#include "kernels/row.h"

/* WARPS: the warps that share a row. CHUNKS: how many chunks a lane holds at most. */
template <class T, int WARPS, int CHUNKS>
__global__ void __launch_bounds__(ROW_THREADS) norm_rows(KERNEL_ARGS(struct kernel_norm_args, a))
{
    uint32_t row = row_of<WARPS>();
    if (row >= *a.count || row >= a.bound)
        return;
    size_t at = static_cast<size_t>(row) * a.hidden;
    struct row_part<WARPS, CHUNKS> x;
    row_load(&x, static_cast<const T *>(a.from) + at, a.hidden);
    if (a.bias != nullptr)
        row_add(&x, static_cast<const T *>(a.bias), a.hidden);
    if (a.residual != nullptr)
        row_add(&x, static_cast<const T *>(a.residual) + at, a.hidden);
    row_normalize(&x, a.hidden, a.epsilon, a.gain, a.shift);
    row_store(x, static_cast<T *>(a.to) + at, a.hidden);
}

extern "C" cudaError_t kernel_norm(const struct kernel_queue *queue, const struct kernel_norm_args *args)
{
    const void *matrices[] = {args->from, args->bias, args->residual, args->gain, args->shift, args->to};
    if (!row_does(args->hidden, args->bound, matrices))
        return cudaErrorInvalidValue;
    void (*kernel)(KERNEL_PARAMETER(struct kernel_norm_args)) = nullptr;
    ROW_KERNEL(kernel, norm_rows, args->type, args->hidden);
    if (kernel == nullptr)
        return cudaErrorInvalidValue;
    return kernel_enqueue(queue, kernel, row_grid(args->bound, args->hidden), ROW_THREADS, 0, args);
}

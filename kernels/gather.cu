/* The first token of each row, for models whose sentence vector is that token's: from the last attention on nothing but
 * these tokens matters. It only moves bytes, so it does not care of which type they are. */
#include "kernels/device.h"

enum { GATHER_THREADS = 128 };

/* Units of 16 bytes in a token. */
__host__ __device__ __forceinline__ uint32_t gather_units(const struct kernel_gather_args &a)
{
    return a.hidden / CHUNK * (a.type == KERNEL_F32 ? 2 : 1);
}

__global__ void __launch_bounds__(GATHER_THREADS) gather_first(KERNEL_ARGS(struct kernel_gather_args, a))
{
    uint32_t index = blockIdx.x * GATHER_THREADS + threadIdx.x, units = gather_units(a);
    uint32_t row = index / units, unit = index % units;
    if (row >= a.ragged.counts[KERNEL_COUNT_ROWS] || row >= a.bound)
        return;
    const uint4 *from = static_cast<const uint4 *>(a.from) + static_cast<size_t>(a.ragged.start[row]) * units;
    static_cast<uint4 *>(a.to)[static_cast<size_t>(row) * units + unit] = from[unit];
}

extern "C" cudaError_t kernel_gather(const struct kernel_queue *queue, const struct kernel_gather_args *args)
{
    uint64_t units = static_cast<uint64_t>(args->bound) * gather_units(*args);
    if (units == 0 || units > UINT32_MAX - GATHER_THREADS || args->hidden % CHUNK != 0 || args->type > KERNEL_BF16 ||
        !aligned16(args->from) || !aligned16(args->to))
        return cudaErrorInvalidValue;
    dim3 grid(ceil_div(static_cast<uint32_t>(units), GATHER_THREADS));
    return kernel_enqueue(queue, gather_first, grid, GATHER_THREADS, 0, args);
}

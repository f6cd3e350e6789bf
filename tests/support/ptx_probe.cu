/* See ptx_probe.h. */
#include "ptx_probe.h"

#include "kernels/attention.h"

template <class T> __global__ void show_mma(KERNEL_ARGS(struct probe_mma_args, p))
{
    const uint32_t *a = p.a + 4 * threadIdx.x, *b = p.b + 2 * threadIdx.x;
    float d[4];
    for (int i = 0; i < 4; i++) { d[i] = p.d[4 * threadIdx.x + i]; }
    mma_16x8x16<T>(d, a[0], a[1], a[2], a[3], b[0], b[1]);
    for (int i = 0; i < 4; i++) { p.d[4 * threadIdx.x + i] = d[i]; }
}

__global__ void show_ldmatrix(KERNEL_ARGS(struct probe_ldmatrix_args, p))
{
    SHARED(uint4, rows, [64]);
    const uint4 *from = reinterpret_cast<const uint4 *>(p.from);
    rows[threadIdx.x] = from[threadIdx.x];
    rows[threadIdx.x + WARP] = from[threadIdx.x + WARP];
    __syncwarp();
    uint32_t to[4];
    ldmatrix_x4_transposed(to, &rows[p.row[threadIdx.x]]);
    for (int i = 0; i < 4; i++) { p.to[4 * threadIdx.x + i] = to[i]; }
}

__global__ void show_copy(KERNEL_ARGS(struct probe_copy_args, p))
{
    SHARED(uint4, copies, [128]);
    copy_begin(&copies[threadIdx.x], p.from + 4 * threadIdx.x, p.valid[threadIdx.x] != 0);
    copy_wait();
    __syncthreads();
    reinterpret_cast<uint4 *>(p.to)[threadIdx.x] = copies[127 - threadIdx.x];
}

__global__ void show_exp2(KERNEL_ARGS(struct probe_exp2_args, p))
{
    p.y[threadIdx.x] = exp2_approximate(p.x[threadIdx.x]);
}

extern "C" cudaError_t probe_mma(const struct kernel_queue *queue, const struct probe_mma_args *args)
{
    return kernel_enqueue(queue, args->type == KERNEL_F16 ? show_mma<__half> : show_mma<__nv_bfloat16>, dim3(1), WARP,
                          0, args);
}

extern "C" cudaError_t probe_ldmatrix(const struct kernel_queue *queue, const struct probe_ldmatrix_args *args)
{
    return kernel_enqueue(queue, show_ldmatrix, dim3(1), WARP, 0, args);
}

extern "C" cudaError_t probe_copy(const struct kernel_queue *queue, const struct probe_copy_args *args)
{
    return kernel_enqueue(queue, show_copy, dim3(1), 128, 0, args);
}

extern "C" cudaError_t probe_exp2(const struct kernel_queue *queue, const struct probe_exp2_args *args)
{
    return kernel_enqueue(queue, show_exp2, dim3(1), WARP, 0, args);
}

extern "C" int probe_place(int head_dim, int token, int chunk)
{
    return head_dim == 32 ? attention_place<32>(token, chunk) : attention_place<64>(token, chunk);
}

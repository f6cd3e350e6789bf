/* Kernels with one mistake each, and some correct ones. They test the shim (tests/unit/kernels/test_simt.c). The
 * kernels run one block of `lanes` lanes unless they say otherwise. */
#include "simt_mistakes.h"

#include "kernels/wgmma.h"

#define MISTAKE(name) __global__ void name(KERNEL_ARGS(struct mistake_args, a))

/* Each warp's sum of `in`, through shared memory: right. */
MISTAKE(sum_by_warps)
{
    SHARED(float, sums, [32]);
    float x = warp_sum(a.in[threadIdx.x]);
    if (threadIdx.x % WARP == 0) { sums[threadIdx.x / WARP] = x; }
    __syncthreads();
    a.out[threadIdx.x] = sums[(blockDim.x - 1 - threadIdx.x) / WARP];
}

MISTAKE(barrier_left_out)
{
    SHARED(float, sums, [32]);
    float x = warp_sum(a.in[threadIdx.x]);
    if (threadIdx.x % WARP == 0) { sums[threadIdx.x / WARP] = x; }
    a.out[threadIdx.x] = sums[(blockDim.x - 1 - threadIdx.x) / WARP];
}

/* The second round overwrites what slower warps have not read yet. */
MISTAKE(barrier_left_out_of_a_loop)
{
    SHARED(float, sum, [1]);
    for (int round = 0; round < 2; round++) {
        if (threadIdx.x == 0) { sum[0] = a.in[round]; }
        __syncthreads();
        a.out[round * blockDim.x + threadIdx.x] = sum[0];
    }
}

MISTAKE(barrier_in_a_branch)
{
    if (threadIdx.x < blockDim.x / 2) { __syncthreads(); }
    a.out[threadIdx.x] = 1.0f;
}

MISTAKE(two_barriers)
{
    if (threadIdx.x < blockDim.x / 2) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    a.out[threadIdx.x] = 1.0f;
}

MISTAKE(shuffle_without_some)
{
    float x = a.in[threadIdx.x];
    if (threadIdx.x % WARP < 20) { x = __shfl_xor_sync(0xffffffffu, x, 1); }
    a.out[threadIdx.x] = x;
}

MISTAKE(shuffle_from_outside_the_mask)
{
    float x = a.in[threadIdx.x];
    if (threadIdx.x % WARP < 16) { x = __shfl_sync(0x0000ffffu, x, 16); }
    a.out[threadIdx.x] = x;
}

MISTAKE(shuffle_with_two_masks)
{
    uint32_t mask = threadIdx.x % 2 == 0 ? 0xffffffffu : 0xfffffffeu;
    a.out[threadIdx.x] = __shfl_xor_sync(mask, a.in[threadIdx.x], 1);
}

MISTAKE(mask_without_itself)
{
    a.out[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, a.in[threadIdx.x], 1);
}

/* Lanes of a warp do not run in step: another lane sees a write only after __syncwarp. */
MISTAKE(warp_barrier_left_out)
{
    SHARED(float, x, [32]);
    x[threadIdx.x] = a.in[threadIdx.x];
    a.out[threadIdx.x] = x[31 - threadIdx.x];
}

MISTAKE(shared_beyond_its_end)
{
    SHARED_DYNAMIC(float, x);
    x[threadIdx.x + 1] = 1.0f;
    a.out[threadIdx.x] = x[threadIdx.x];
}

MISTAKE(copy_not_waited_for)
{
    SHARED(float4, x, [64]);
    const float4 *in = reinterpret_cast<const float4 *>(a.in);
#ifndef __CUDACC__
    simt_copy_async(&x[threadIdx.x], &in[threadIdx.x], 16, 16);
    simt_copy_commit();
    simt_copy_async(&x[threadIdx.x + 32], &in[threadIdx.x], 16, 16);
    simt_copy_commit();
    simt_copy_wait(1);
#endif
    a.out[threadIdx.x] = x[threadIdx.x].x;
}

/* A copy is read before its lane has waited for it; the wait is before the barrier that is there. */
MISTAKE(copy_read_too_early)
{
    SHARED(float4, x, [32]);
    const float4 *in = reinterpret_cast<const float4 *>(a.in);
    copy_begin(&x[threadIdx.x], &in[threadIdx.x], true);
    __syncthreads();
    a.out[threadIdx.x] = x[31 - threadIdx.x].x;
    copy_wait();
}

/* A lane waits for its own copies only; others may read them only after a barrier. */
MISTAKE(copy_read_without_a_barrier)
{
    SHARED(float4, x, [32]);
    const float4 *in = reinterpret_cast<const float4 *>(a.in);
    copy_begin(&x[threadIdx.x], &in[threadIdx.x], true);
    copy_wait();
    a.out[threadIdx.x] = x[31 - threadIdx.x].x;
}

/* Right. */
MISTAKE(copy_and_read)
{
    SHARED(float4, x, [32]);
    const float4 *in = reinterpret_cast<const float4 *>(a.in);
    for (int round = 0; round < 2; round++) {
        copy_begin(&x[threadIdx.x], &in[threadIdx.x], true);
        copy_wait();
        __syncthreads();
        a.out[threadIdx.x] = x[31 - threadIdx.x].x;
        __syncthreads();
    }
}

/* A warp hands numbers over to another one; right. */
MISTAKE(hand_over)
{
    SHARED(float, x, [32]);
    SHARED(mbarrier, full, [1]);
    if (threadIdx.x == 0) { mbarrier_begin(full, 32); }
    __syncthreads();
    if (threadIdx.x < 32) {
        x[threadIdx.x] = a.in[threadIdx.x];
        mbarrier_arrive(full);
    } else {
        mbarrier_wait(full, 0);
        a.out[threadIdx.x] = x[63 - threadIdx.x];
    }
}

/* The warp that reads does not wait. */
MISTAKE(hand_over_not_waited_for)
{
    SHARED(float, x, [32]);
    SHARED(mbarrier, full, [1]);
    if (threadIdx.x == 0) { mbarrier_begin(full, 32); }
    __syncthreads();
    if (threadIdx.x < 32) {
        x[threadIdx.x] = a.in[threadIdx.x];
        mbarrier_arrive(full);
    } else {
        a.out[threadIdx.x] = x[63 - threadIdx.x];
    }
}

MISTAKE(hand_over_that_one_misses)
{
    SHARED(mbarrier, full, [1]);
    if (threadIdx.x == 0) { mbarrier_begin(full, 33); }
    __syncthreads();
    if (threadIdx.x < 32) {
        mbarrier_arrive(full);
    } else {
        mbarrier_wait(full, 0);
    }
    a.out[threadIdx.x] = 0.0f;
}

MISTAKE(products_not_waited_for)
{
    SHARED_DYNAMIC(uint4, matrix);
    const uint32_t left[4] = {};
    float d[4][4];
    for (uint32_t i = threadIdx.x; i < 16 * 64 / 16; i += 32) { matrix[i] = uint4(); }
    __syncthreads();
    wgmma<__half, 32, true>::product(d, left, wgmma_matrix_at<64>(matrix, 0), 0);
    wgmma_commit();
    a.out[threadIdx.x] = 0.0f;
}

MISTAKE(two_lanes_write_a_word)
{
    SHARED(uint32_t, word, [1]);
    if (threadIdx.x % 50 == 0) { word[0] = 7; /* the same, even */ }
    __syncthreads();
    a.out[threadIdx.x] = (float)word[0];
}

/* Halves of a word are places of their own: right. */
MISTAKE(two_lanes_write_halves)
{
    SHARED(uint16_t, parts, [128]);
    parts[threadIdx.x] = (uint16_t)threadIdx.x;
    __syncthreads();
    a.out[threadIdx.x] = (float)parts[127 - threadIdx.x];
}

/* A shuffle makes lanes meet, but does not order their writes. */
MISTAKE(shuffle_for_a_barrier)
{
    SHARED(float, x, [32]);
    x[threadIdx.x] = a.in[threadIdx.x];
    float sum = warp_sum(1.0f);
    a.out[threadIdx.x] = x[31 - threadIdx.x] + sum;
}

/* Right, twice over. */
MISTAKE(warp_barrier)
{
    SHARED(float, x, [32]);
    for (int round = 0; round < 2; round++) {
        x[threadIdx.x] = a.in[threadIdx.x];
        __syncwarp();
        a.out[threadIdx.x] = x[31 - threadIdx.x];
        __syncwarp();
    }
}

/* Lanes 0 to 15 and 16 to 31 meet among themselves, and read the others'. */
MISTAKE(warp_barrier_of_a_half)
{
    SHARED(float, x, [32]);
    x[threadIdx.x] = a.in[threadIdx.x];
    __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
    a.out[threadIdx.x] = x[31 - threadIdx.x];
}

/* Moves numbers one place to the left in place: right lane by lane, wrong across lanes. */
MISTAKE(global_memory_in_place)
{
    a.out[threadIdx.x] = a.out[threadIdx.x + 1];
}

/* No block may rely on what another block of the same launch has written to global memory. */
MISTAKE(blocks_that_wait_for_none)
{
    if (threadIdx.x == 0) { a.out[blockIdx.x] = blockIdx.x == 0 ? 1.0f : a.out[blockIdx.x - 1] + 1.0f; }
}

MISTAKE(count_without_atomics)
{
    if (threadIdx.x == 0) { *a.counter += 1; }
}

MISTAKE(count_read_beside_atomics)
{
    atomicAdd(a.counter, 1u);
    a.out[threadIdx.x] = (float)*a.counter;
}

/* Every block adds one; right, in any order. */
MISTAKE(count_blocks)
{
    if (threadIdx.x == 0) {
        atomicAdd(a.counter, 1u + (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)));
    }
}

/* Votes: right. */
MISTAKE(vote)
{
    int odd = threadIdx.x % 2;
    uint32_t ballot = __ballot_sync(0xffffffffu, odd);
    int count = __syncthreads_count(odd), any = __syncthreads_or(threadIdx.x == 3), all = __syncthreads_and(odd);
    a.out[threadIdx.x] =
        (float)(ballot == 0xaaaaaaaau) + 10.0f * (float)count + 1000.0f * (float)any + 10000.0f * (float)all;
}

static const struct {
    const char *name;
    void (*kernel)(KERNEL_PARAMETER(struct mistake_args));
} mistakes[] = {
    {"sum_by_warps", sum_by_warps},
    {"barrier_left_out", barrier_left_out},
    {"barrier_left_out_of_a_loop", barrier_left_out_of_a_loop},
    {"barrier_in_a_branch", barrier_in_a_branch},
    {"two_barriers", two_barriers},
    {"shuffle_without_some", shuffle_without_some},
    {"shuffle_from_outside_the_mask", shuffle_from_outside_the_mask},
    {"shuffle_with_two_masks", shuffle_with_two_masks},
    {"mask_without_itself", mask_without_itself},
    {"warp_barrier_left_out", warp_barrier_left_out},
    {"shared_beyond_its_end", shared_beyond_its_end},
    {"copy_not_waited_for", copy_not_waited_for},
    {"copy_read_too_early", copy_read_too_early},
    {"copy_read_without_a_barrier", copy_read_without_a_barrier},
    {"copy_and_read", copy_and_read},
    {"hand_over", hand_over},
    {"hand_over_not_waited_for", hand_over_not_waited_for},
    {"hand_over_that_one_misses", hand_over_that_one_misses},
    {"products_not_waited_for", products_not_waited_for},
    {"two_lanes_write_a_word", two_lanes_write_a_word},
    {"two_lanes_write_halves", two_lanes_write_halves},
    {"shuffle_for_a_barrier", shuffle_for_a_barrier},
    {"warp_barrier", warp_barrier},
    {"warp_barrier_of_a_half", warp_barrier_of_a_half},
    {"global_memory_in_place", global_memory_in_place},
    {"blocks_that_wait_for_none", blocks_that_wait_for_none},
    {"count_without_atomics", count_without_atomics},
    {"count_read_beside_atomics", count_read_beside_atomics},
    {"count_blocks", count_blocks},
    {"vote", vote},
};

const void *mistake_find(const char *name)
{
    for (const auto &row : mistakes) {
        if (strcmp(row.name, name) == 0) { return reinterpret_cast<const void *>(row.kernel); }
    }
    return nullptr;
}

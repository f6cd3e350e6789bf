/* See wgmma_probe.h. */
#include "wgmma_probe.h"

#include "kernels/wgmma.h"

enum { TOKENS = 128 }; /* rows of a panel */

/* The matrices are surrounded by numbers that would show. */
template <class T, int N, bool TRANSPOSED, int ROW, bool SHARED_LEFT>
__global__ void show_wgmma(KERNEL_ARGS(struct probe_wgmma_args, p))
{
    enum { WIDTH = ROW / 2, PANELS = TRANSPOSED && N > WIDTH ? N / WIDTH : 1, SKIPPED = 16 };
    SHARED_DYNAMIC(uint16_t, memory);
    uint16_t *right = memory, *left = memory + PANELS * TOKENS * WIDTH;
    const int lane = static_cast<int>(threadIdx.x), g = lane % WARP / 4, t = lane % 4;
    for (int i = lane; i < (PANELS + 1) * TOKENS * WIDTH; i += WARPGROUP) { memory[i] = 0x4567; }
    __syncthreads();
    for (int i = lane; i < 16 * N; i += WARPGROUP) {
        const int row = TRANSPOSED ? SKIPPED + i / N : i % N, column = TRANSPOSED ? i % N : SKIPPED + i / N;
        right[column / WIDTH * TOKENS * WIDTH + CHUNK * wgmma_place<ROW>(row, column % WIDTH / CHUNK) +
              column % CHUNK] = p.b[i];
    }
    for (int i = lane; i < 64 * 16; i += WARPGROUP) {
        const int column = SKIPPED + i % 16;
        left[CHUNK * wgmma_place<ROW>(i / 16, column / CHUNK) + column % CHUNK] = p.a[i];
    }
    async_fence();
    __syncthreads();
    const wgmma_matrix b = wgmma_skip(wgmma_matrix_at<ROW>(right, TOKENS * ROW), SKIPPED * (TRANSPOSED ? ROW : 2));
    float d[N / 8][4];
    for (int n = 0; n < N / 8; n++) {
        for (int i = 0; i < 4; i++) { d[n][i] = 1000.0f; }
    }
    const int first = lane / WARP * 16 + g;
    wgmma_hold(d);
    wgmma_fence();
    for (int twice = 0; twice < 2; twice++) {
        if (SHARED_LEFT) {
            const wgmma_matrix a = wgmma_skip(wgmma_matrix_at<ROW>(left, 0), 2 * SKIPPED);
            wgmma<T, N, TRANSPOSED>::product(d, a, b, twice);
        } else {
            uint32_t a[4];
            for (int i = 0; i < 4; i++) {
                const uint16_t *at = &p.a[(first + i % 2 * 8) * 16 + 2 * t + i / 2 * 8];
                a[i] = at[0] | static_cast<uint32_t>(at[1]) << 16;
            }
            wgmma<T, N, TRANSPOSED>::product(d, a, b, twice);
        }
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(d);
    for (int n = 0; n < N / 8; n++) {
        for (int i = 0; i < 4; i++) { p.d[(first + i / 2 * 8) * N + 8 * n + 2 * t + i % 2] = d[n][i]; }
    }
}

__global__ void show_hand_over(KERNEL_ARGS(struct probe_hand_over_args, p))
{
    SHARED(uint32_t, places, [2][WARPGROUP]);
    SHARED(mbarrier, full, [2]);
    SHARED(mbarrier, empty, [2]);
    const uint32_t lane = threadIdx.x % WARPGROUP;
    if (threadIdx.x < 2) {
        mbarrier_begin(&full[threadIdx.x], WARPGROUP);
        mbarrier_begin(&empty[threadIdx.x], WARPGROUP);
    }
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t round = 0; round < p.rounds; round++) {
        const uint32_t at = round % 2, parity = round / 2 % 2;
        if (threadIdx.x < WARPGROUP) {
            mbarrier_wait(&full[at], parity);
            sum += places[at][WARPGROUP - 1 - lane];
            mbarrier_arrive(&empty[at]);
        } else {
            mbarrier_wait(&empty[at], parity ^ 1);
            places[at][lane] = p.from[round * WARPGROUP + lane];
            mbarrier_arrive(&full[at]);
        }
    }
    if (threadIdx.x < WARPGROUP) { p.sums[lane] = sum; }
}

/* type, n, transposed, row, shared_left */
#define CASES(CASE)                                                                                                    \
    CASE(__half, KERNEL_F16, 64, false, 64, false)                                                                     \
    CASE(__half, KERNEL_F16, 64, false, 128, true)                                                                     \
    CASE(__half, KERNEL_F16, 32, true, 64, false)                                                                      \
    CASE(__half, KERNEL_F16, 64, true, 128, false)                                                                     \
    CASE(__half, KERNEL_F16, 128, true, 128, false)                                                                    \
    CASE(__nv_bfloat16, KERNEL_BF16, 64, false, 64, false)                                                             \
    CASE(__nv_bfloat16, KERNEL_BF16, 64, false, 128, true)                                                             \
    CASE(__nv_bfloat16, KERNEL_BF16, 32, true, 64, false)                                                              \
    CASE(__nv_bfloat16, KERNEL_BF16, 64, true, 128, false)                                                             \
    CASE(__nv_bfloat16, KERNEL_BF16, 128, true, 128, false)

#define CASE_ROW(T, type, n, transposed, row, left) {type, n, transposed, row, left},
static const struct probe_wgmma_case cases[] = {CASES(CASE_ROW)};

#define CASE_KERNEL(T, type, n, transposed, row, left) show_wgmma<T, n, transposed, row, left>,
static void (*const kernels[])(KERNEL_PARAMETER(struct probe_wgmma_args)) = {CASES(CASE_KERNEL)};

extern "C" const struct probe_wgmma_case *probe_wgmma_cases(uint32_t *count)
{
    *count = sizeof cases / sizeof cases[0];
    return cases;
}

extern "C" cudaError_t probe_wgmma(const struct kernel_queue *queue, uint32_t number,
                                   const struct probe_wgmma_args *args)
{
    const struct probe_wgmma_case &c = cases[number];
    const size_t panels = (c.transposed != 0 && c.n > c.row / 2 ? c.n / (c.row / 2) : 1) + 1;
    const size_t bytes = panels * TOKENS * c.row;
    const cudaError_t answer = KERNEL_ALLOW_SHARED(reinterpret_cast<const void *>(kernels[number]), bytes);
    if (answer != cudaSuccess) { return answer; }
    return kernel_enqueue(queue, kernels[number], dim3(1), WARPGROUP, bytes, args);
}

extern "C" cudaError_t probe_hand_over(const struct kernel_queue *queue, const struct probe_hand_over_args *args)
{
    return kernel_enqueue(queue, show_hand_over, dim3(1), 2 * WARPGROUP, 0, args);
}

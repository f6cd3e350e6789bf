/* Hopper's instructions for attention_wgmma.cu: products by a warpgroup (four warps) with a right operand, and if
 * wanted a left one, in shared memory; barriers in shared memory that some warps arrive at and others wait for.
 *
 * A matrix in shared memory is in panels of ROW bytes (64 or 128) by any number of rows, aligned to 8 ROW, whose chunks
 * of 16 bytes are swizzled by wgmma_place. The hardware computes swizzled addresses from address bits, so a matrix may
 * start at any 16th row or 16th column of a panel.
 * Source: PTX ISA 8.0, "Asynchronous Warpgroup Level Matrix Instructions", "mbarrier", "Async proxy". */
#ifndef KERNELS_WGMMA_H
#define KERNELS_WGMMA_H

#include "kernels/attention.h"

enum { WARPGROUP = 4 * WARP };

/* The index of a row's chunk in a panel. */
template <int ROW> __host__ __device__ __forceinline__ int wgmma_place(int row, int chunk)
{
    static_assert(ROW == 64 || ROW == 128, "the swizzles that are used here");
    return row * (ROW / 16) + (chunk ^ (ROW == 128 ? row % 8 : row / 2 % 4));
}

#ifdef __CUDACC__

/* A descriptor: where a matrix starts, and the way from 8 rows of a panel to the next 8, and from a panel to the next.
 */
struct wgmma_matrix {
    uint32_t low, high;
};

template <int ROW> __device__ __forceinline__ wgmma_matrix wgmma_matrix_at(const void *at, int panel_bytes)
{
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(at)) & 0x3ffff;
    const uint32_t swizzle = ROW == 128 ? 1 : 2;
    return {address >> 4 | static_cast<uint32_t>(panel_bytes >> 4) << 16, 8 * ROW >> 4 | swizzle << 30};
}

__device__ __forceinline__ wgmma_matrix wgmma_skip(wgmma_matrix matrix, int bytes)
{
    return {matrix.low + static_cast<uint32_t>(bytes >> 4), matrix.high};
}

/* Before products of registers that were written by other instructions. */
__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

/* Ends a group of products. */
__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits until at most LEFT groups are under way. Waits with different PLACEs are not merged by the compiler. */
template <int LEFT, int PLACE = 0> __device__ __forceinline__ void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0; // %1" ::"n"(LEFT), "n"(PLACE) : "memory");
}

/* Keeps the compiler from moving accesses to registers of products over a wait. */
template <int N> __device__ __forceinline__ void wgmma_hold(float (&d)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) { asm volatile("" : "+f"(d[n][i])::"memory"); }
}

template <int N> __device__ __forceinline__ void wgmma_hold(uint32_t (&a)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) { asm volatile("" : "+r"(a[n][i])::"memory"); }
}

#define WGMMA_4(n) "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
#define WGMMA_16(n) WGMMA_4(n), WGMMA_4(n + 1), WGMMA_4(n + 2), WGMMA_4(n + 3)
#define WGMMA_32(n) WGMMA_16(n), WGMMA_16(n + 4)
#define WGMMA_64(n) WGMMA_32(n), WGMMA_32(n + 8)
#define WGMMA_10(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"

/* d (+)= a b by a whole warpgroup, asynchronously: a is [64, 16], b [16, N], each warp has 16 rows of a and d, and its
 * lanes hold them as mma_16x8x16 does, for each 8 columns of d. b is in shared memory: N rows of 16 elements, or if
 * TRANSPOSED 16 rows of N elements. Unless `add`, d is overwritten. */
template <class T, int N, bool TRANSPOSED> struct wgmma;
#define WGMMA_DEFINE(T, name, N, LIST, OUTPUTS, i0, i1, i2, i3, i4, i5, i6, i7)                                        \
    template <bool TRANSPOSED> struct wgmma<T, N, TRANSPOSED> {                                                        \
        __device__ static __forceinline__ void product(float (&d)[N / 8][4], const uint32_t (&a)[4], wgmma_matrix b,   \
                                                       int add)                                                        \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {" i4 "," i5 "};\nsetp.ne.b32 p, " i6 ", 0;\n"    \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name " {" LIST "}, {" i0 "," i1    \
                         "," i2 "," i3 "}, b, p, 1, 1, " i7 ";\n}\n"                                                   \
                         : OUTPUTS                                                                                     \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b.low), "r"(b.high), "r"(add),              \
                           "n"(TRANSPOSED ? 1 : 0));                                                                   \
        }                                                                                                              \
        /* The same with a in shared memory: 64 rows of 16 elements. */                                                \
        __device__ static __forceinline__ void product(float (&d)[N / 8][4], wgmma_matrix a, wgmma_matrix b, int add)  \
        {                                                                                                              \
            asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {" i0 "," i1 "};\nmov.b64 b, {" i2 "," i3      \
                         "};\nsetp.ne.b32 p, " i4 ", 0;\n"                                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." name "." name " {" LIST                     \
                         "}, a, b, p, 1, 1, 0, " i5 ";\n}\n"                                                           \
                         : OUTPUTS                                                                                     \
                         : "r"(a.low), "r"(a.high), "r"(b.low), "r"(b.high), "r"(add), "n"(TRANSPOSED ? 1 : 0));       \
        }                                                                                                              \
    };
#define WGMMA_DEFINE_TYPE(T, name)                                                                                     \
    WGMMA_DEFINE(T, name, 32, WGMMA_10() "%10,%11,%12,%13,%14,%15", WGMMA_16(0), "%16", "%17", "%18", "%19", "%20",    \
                 "%21", "%22", "%23")                                                                                  \
    WGMMA_DEFINE(T, name, 64, WGMMA_10() WGMMA_10(1) WGMMA_10(2) "%30,%31", WGMMA_32(0), "%32", "%33", "%34", "%35",   \
                 "%36", "%37", "%38", "%39")                                                                           \
    WGMMA_DEFINE(T, name, 128,                                                                                         \
                 WGMMA_10() WGMMA_10(1) WGMMA_10(2) WGMMA_10(3) WGMMA_10(4) WGMMA_10(5) "%60,%61,%62,%63",             \
                 WGMMA_64(0), "%64", "%65", "%66", "%67", "%68", "%69", "%70", "%71")
WGMMA_DEFINE_TYPE(__half, "f16")
WGMMA_DEFINE_TYPE(__nv_bfloat16, "bf16")

/* A barrier in shared memory. A phase ends when `count` arrivals have come; the next one begins at once. */
typedef uint64_t mbarrier;

__device__ __forceinline__ uint32_t shared_address(const void *at)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

/* By one lane; others may use the barrier after a __syncthreads. */
__device__ __forceinline__ void mbarrier_begin(mbarrier *at, uint32_t count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(at)), "r"(count) : "memory");
}

/* Arrives. Those who wait see what this lane has written. */
__device__ __forceinline__ void mbarrier_arrive(mbarrier *at)
{
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(shared_address(at))
                 : "memory");
}

/* Waits until the phase of that parity has ended: the first one has parity 0. */
__device__ __forceinline__ void mbarrier_wait(mbarrier *at, uint32_t parity)
{
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
                 "@done bra DONE;\nbra AGAIN;\nDONE:\n}" ::"r"(shared_address(at)),
                 "r"(parity)
                 : "memory");
}

__device__ __forceinline__ bool mbarrier_ended(mbarrier *at, uint32_t parity)
{
    uint32_t ended;
    asm volatile(
        "{\n.reg .pred done;\nmbarrier.test_wait.parity.shared.b64 done, [%1], %2;\nselp.b32 %0, 1, 0, done;\n}"
        : "=r"(ended)
        : "r"(shared_address(at)), "r"(parity)
        : "memory");
    return ended != 0;
}

/* Lets products by a warpgroup see what this lane has written to shared memory, once another barrier has told them. */
__device__ __forceinline__ void async_fence()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Gives registers of each lane of this warpgroup away, or gets them, so that a lane has COUNT. */
template <int COUNT> __device__ __forceinline__ void registers_drop()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT> __device__ __forceinline__ void registers_raise()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

/* Ends a group of this lane's copies (copy_begin), and waits until at most LEFT groups are under way. */
__device__ __forceinline__ void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> __device__ __forceinline__ void copy_wait_but()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

#else

struct wgmma_matrix {
    const unsigned char *at;
    int row, panel_bytes;
};

template <int ROW> wgmma_matrix wgmma_matrix_at(const void *at, int panel_bytes)
{
    return {static_cast<const unsigned char *>(at), ROW, panel_bytes};
}

inline wgmma_matrix wgmma_skip(wgmma_matrix matrix, int bytes)
{
    matrix.at += bytes;
    return matrix;
}

/* The element in row `row` of a panel and column `column` of the matrix: the hardware swizzles bits of addresses. */
template <class T> const T *wgmma_element(const wgmma_matrix &matrix, int row, int column)
{
    const int width = matrix.row / static_cast<int>(sizeof(T));
    const uintptr_t plain = reinterpret_cast<uintptr_t>(matrix.at) + static_cast<uintptr_t>(row * matrix.row) +
                            static_cast<uintptr_t>(column / width * matrix.panel_bytes) + column % width * sizeof(T);
    return reinterpret_cast<const T *>(plain ^ (plain >> 7 & (matrix.row == 128 ? 7 : 3)) << 4);
}

/* A lane's operands and results. */
struct wgmma_record {
    float *d;
    uint32_t a[4]; /* unless a is in shared memory */
    wgmma_matrix left, right;
    int add, warp;
};

template <class T, int N, bool TRANSPOSED, bool SHARED_LEFT> void wgmma_combine(void *const records[32], uint32_t)
{
    const wgmma_record &one = *static_cast<wgmma_record *>(records[0]);
    float a[16][16], b[16][N];
    for (int lane = 0; lane < 32; lane++) {
        const wgmma_record &mine = *static_cast<wgmma_record *>(records[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++) {
            const int row = i / 2 % 2 ? g + 8 : g, column = 2 * t + i % 2 + (i < 4 ? 0 : 8);
            if (SHARED_LEFT) {
                const T *at = wgmma_element<T>(one.left, 16 * one.warp + row, column);
                simt_reads(at, sizeof *at);
                a[row][column] = static_cast<float>(*at);
            } else {
                a[row][column] = mma_element<T>(mine.a[i / 2], i % 2);
            }
        }
    }
    for (int k = 0; k < 16; k++) {
        for (int n = 0; n < N; n++) {
            const T *at = TRANSPOSED ? wgmma_element<T>(one.right, k, n) : wgmma_element<T>(one.right, n, k);
            simt_reads(at, sizeof *at);
            b[k][n] = static_cast<float>(*at);
        }
    }
    for (int lane = 0; lane < 32; lane++) {
        float *d = static_cast<wgmma_record *>(records[lane])->d;
        for (int i = 0; i < N / 2; i++) {
            const int row = lane / 4 + (i % 4 < 2 ? 0 : 8), column = i / 4 * 8 + 2 * (lane % 4) + i % 2;
            float sum = one.add != 0 ? d[i] : 0.0f;
            for (int k = 0; k < 16; k++) { sum += a[row][k] * b[k][column]; }
            d[i] = sum;
        }
    }
}

template <class T, int N, bool TRANSPOSED> struct wgmma {
    static void product(float (&d)[N / 8][4], const uint32_t (&a)[4], wgmma_matrix b, int add, SIMT_HERE)
    {
        const wgmma_record mine = {d[0], {a[0], a[1], a[2], a[3]}, {}, b, add, 0};
        simt_later({"wgmma", file, line}, wgmma_combine<T, N, TRANSPOSED, false>, &mine, sizeof mine);
    }
    static void product(float (&d)[N / 8][4], wgmma_matrix a, wgmma_matrix b, int add, SIMT_HERE)
    {
        const wgmma_record mine = {d[0], {}, a, b, add, static_cast<int>(threadIdx.x / WARP % 4)};
        simt_later({"wgmma", file, line}, wgmma_combine<T, N, TRANSPOSED, true>, &mine, sizeof mine);
    }
};

inline void wgmma_fence()
{
}

inline void wgmma_commit()
{
    simt_later_commit();
}

template <int LEFT, int PLACE = 0> void wgmma_wait()
{
    simt_later_wait(LEFT);
}

template <class T, int N> void wgmma_hold(T (&)[N][4])
{
}

typedef simt_mbarrier mbarrier;

inline void mbarrier_begin(mbarrier *at, uint32_t count)
{
    simt_mbarrier_begin(at, count);
}

inline void mbarrier_arrive(mbarrier *at)
{
    simt_mbarrier_arrive(at);
}

inline bool mbarrier_ended(mbarrier *at, uint32_t parity)
{
    return simt_mbarrier_ended(at, parity);
}

inline void mbarrier_wait(mbarrier *at, uint32_t parity, SIMT_HERE)
{
    simt_mbarrier_wait({"mbarrier_wait", file, line}, at, parity);
}

inline void async_fence()
{
}

template <int COUNT> void registers_drop()
{
}

template <int COUNT> void registers_raise()
{
}

inline void copy_commit()
{
    simt_copy_commit();
}

template <int LEFT> void copy_wait_but()
{
    simt_copy_wait(LEFT);
}

#endif

#endif

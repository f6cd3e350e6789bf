/* Shared by attention.cu and attention_plain.cu: the layout of keys and values in shared memory, and the instructions
 * that CUDA C++ does not expose: products of small matrices on tensor cores, transposed reads of shared memory,
 * asynchronous copies, and 2^x. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/device.h"

/* Turns scores into exponents of 2. */
#define ATTENTION_LOG2_E 1.44269504088896340736f

/* The keys that a query sees: all keys of its row; all, with a bias added to its scores; or those of a window around
 * it. */
enum attention_view { ATTENTION_ALL, ATTENTION_BIASED, ATTENTION_WINDOW };

/* The view that a launch is for; -1 for other arguments, which are refused. */
inline int attention_view_of(const struct kernel_attention_args *args)
{
    const bool all = args->before == UINT32_MAX && args->behind == UINT32_MAX;
    if (args->bias != nullptr) { return all ? ATTENTION_BIASED : -1; }
    return all ? ATTENTION_ALL : ATTENTION_WINDOW;
}

/* kernel_attention by plain arithmetic: any type and head dim, and one query for each row. */
cudaError_t attention_plain(const struct kernel_queue *queue, const struct kernel_attention_args *args);

/* kernel_attention of spans, on Hopper. */
cudaError_t attention_wgmma(const struct kernel_queue *queue, const struct kernel_attention_args *args);

/* A piece: the keys or values of 16 tokens in shared memory, in chunks of 8 columns (16 bytes). */
enum { PIECE_TOKENS = 16 };
template <int HEAD_DIM> struct attention_piece {
    uint4 chunks[PIECE_TOKENS * HEAD_DIM / CHUNK];
};

/* The index of a token's chunk in a piece. Shared memory has 32 banks of 4 bytes and serves accesses of 16 bytes 8
 * lanes at a time, so these 8 must hit different chunks modulo 8:
 *   - reading keys:   chunks 4c..4c+3 of tokens 2i and 2i + 1
 *   - reading values: one chunk of tokens 8i..8i+7
 *   - copying either: 8 chunks in a row
 * So the index is the chunk's number XORed with bits of the token's number. */
template <int HEAD_DIM> __host__ __device__ __forceinline__ int attention_place(int token, int chunk)
{
    static_assert(HEAD_DIM == 32 || HEAD_DIM == 64, "other head dims need an index of their own");
    const int twist = HEAD_DIM == 64 ? token % 2 * 4 + token / 2 % 4 : token / 2 % 4;
    return token * (HEAD_DIM / CHUNK) + (chunk ^ twist);
}

/* --- instructions ---
 *
 * On a device each is one line of PTX. On the host (tests) each does what the PTX ISA specifies, lane by lane, and the
 * lanes of a warp wait for each other where the hardware makes them wait. "Lane (g, t)" is lane 4 g + t of a warp: g in
 * 0..7 names a row or column of a fragment, t in 0..3 a pair of neighbours in the other direction.
 * Source: PTX ISA 8.0, "Matrix fragments for mma.m16n8k16 with floating point type", "ldmatrix", "cp.async", "ex2". */

#ifdef __CUDACC__

/* The product d += a b of a [16, 16] by a [16, 8] matrix of T (__half, __nv_bfloat16), sums in f32, by a whole warp.
 * Lane (g, t) holds, two elements of T to a register, the lower index in the lower half:
 *   a[0], a[2]: row g,     columns 2t, 2t+1 and 2t+8, 2t+9;   a[1], a[3]: row g + 8, the same columns
 *   b[0], b[1]: column g,  rows 2t, 2t+1 and 2t+8, 2t+9
 *   d[0], d[1]: row g, columns 2t, 2t+1;   d[2], d[3]: row g + 8 */
template <class T>
__device__ __forceinline__ void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                            uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void mma_16x8x16<__half>(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                    uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void mma_16x8x16<__nv_bfloat16>(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2,
                                                           uint32_t a3, uint32_t b0, uint32_t b1)
{
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Reads four [8, 8] matrices of 16-bit elements from shared memory, each transposed. Lanes 8i..8i+7 name the rows (16
 * bytes each, aligned to 16) of matrix i; lane (g, t) gets of matrix i, in to[i]: column g, rows 2t and 2t+1. */
__device__ __forceinline__ void ldmatrix_x4_transposed(uint32_t (&to)[4], const void *row)
{
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* Starts copying 16 aligned bytes from global to shared memory; unless `valid` it reads nothing and writes zeros. This
 * lane may read the bytes after copy_wait, other lanes after a later barrier. */
__device__ __forceinline__ void copy_begin(void *to, const void *from, bool valid)
{
    const uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(valid ? 16 : 0) : "memory");
}

/* Waits for all copies that this lane has started. */
__device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* This lane's number in its warp, read anew each time, so that values derived from it need not occupy registers across
 * a loop. */
__device__ __forceinline__ int lane_id()
{
    int lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* 2^x, to within 2^-22 of its value; 0 for minus infinity. */
__device__ __forceinline__ float exp2_approximate(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else

/* A lane's operands and result of mma. */
struct mma_record {
    float *d;
    uint32_t a[4], b[2];
};

/* Element `index` (0 or 1) of a register that holds two. */
template <class T> inline float mma_element(uint32_t pair, int index)
{
    T two[2];
    memcpy(static_cast<void *>(two), &pair, sizeof two);
    return static_cast<float>(two[index]);
}

template <class T> void mma_combine(void *const records[32], uint32_t)
{
    float a[16][16], b[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const mma_record &mine = *static_cast<mma_record *>(records[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int i = 0; i < 8; i++) {
            a[i / 2 % 2 ? g + 8 : g][2 * t + i % 2 + (i < 4 ? 0 : 8)] = mma_element<T>(mine.a[i / 2], i % 2);
        }
        for (int i = 0; i < 4; i++) { b[2 * t + i % 2 + (i < 2 ? 0 : 8)][g] = mma_element<T>(mine.b[i / 2], i % 2); }
    }
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 4; i++) {
            const int row = lane / 4 + (i < 2 ? 0 : 8), column = 2 * (lane % 4) + i % 2;
            float sum = static_cast<mma_record *>(records[lane])->d[i];
            for (int k = 0; k < 16; k++) { sum += a[row][k] * b[k][column]; }
            static_cast<mma_record *>(records[lane])->d[i] = sum;
        }
    }
}

template <class T>
void mma_16x8x16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, SIMT_HERE)
{
    mma_record mine = {d, {a0, a1, a2, a3}, {b0, b1}};
    simt_meet({"mma", file, line}, 0xffffffffu, mma_combine<T>, &mine);
}

struct ldmatrix_record {
    uint32_t *to;
    const uint16_t *row;
};

inline void ldmatrix_combine(void *const records[32], uint32_t)
{
    for (int lane = 0; lane < 32; lane++) {
        for (int i = 0; i < 4; i++) {
            const int column = lane / 4, row = 2 * (lane % 4);
            const uint32_t low = static_cast<ldmatrix_record *>(records[8 * i + row])->row[column];
            const uint32_t high = static_cast<ldmatrix_record *>(records[8 * i + row + 1])->row[column];
            static_cast<ldmatrix_record *>(records[lane])->to[i] = low | high << 16;
        }
    }
}

inline void ldmatrix_x4_transposed(uint32_t (&to)[4], const void *row, SIMT_HERE)
{
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0) {
        simt_complain("ldmatrix of a row that is not aligned to 16 bytes");
    }
    simt_reads(row, 16);
    ldmatrix_record mine = {to, static_cast<const uint16_t *>(row)};
    simt_meet({"ldmatrix", file, line}, 0xffffffffu, ldmatrix_combine, &mine);
}

inline void copy_begin(void *to, const void *from, bool valid)
{
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 16 != 0) {
        simt_complain("cp.async of what is not aligned to 16 bytes");
    }
    simt_copy_async(to, from, 16, valid ? 16 : 0);
}

inline void copy_wait()
{
    simt_copy_commit();
    simt_copy_wait(0);
}

inline int lane_id()
{
    return static_cast<int>(threadIdx.x % WARP);
}

inline float exp2_approximate(float x)
{
    return std::exp2(x);
}

#endif

#endif

/* What the files of attention share. */
#ifndef KERNELS_ATTENTION_H
#define KERNELS_ATTENTION_H

#include "kernels/device.h"

/* Scores times this are exponents of 2. */
#define ATTENTION_LOG2_E 1.44269504088896340736f

/* The widest head. */
enum { ATTENTION_HEAD_DIM_MAX = 256 };

/* kernel_attention by plain arithmetic: any type and head dim, and one query for each row. */
cudaError_t attention_plain(const struct kernel_queue *queue, const struct kernel_attention_args *args);

/* Keys or values of so many tokens lie in shared memory as one piece, in chunks of 8 columns (16 bytes). */
enum { PIECE_TOKENS = 16 };
template <int HEAD_DIM> struct attention_piece {
    uint4 chunks[PIECE_TOKENS * HEAD_DIM / CHUNK];
};

/* Where in a piece a token's chunk lies. Shared memory has 32 banks of 4 bytes, and an access of 16 bytes a lane is
 * served for 8 lanes at a time: these must meet 8 different chunks modulo 8. They are
 *   - where keys are read:   chunks 4c..4c+3 of tokens 2i and 2i + 1
 *   - where values are read: one chunk of tokens 8i..8i+7
 *   - where both are copied: 8 chunks in a row
 * so a chunk's place is its number, with the bits that tell tokens apart added without carry. */
template <int HEAD_DIM> __host__ __device__ __forceinline__ int attention_place(int token, int chunk)
{
    static_assert(HEAD_DIM == 32 || HEAD_DIM == 64, "other head dims need a place of their own");
    const int twist = HEAD_DIM == 64 ? token % 2 * 4 + token / 2 % 4 : token / 2 % 4;
    return token * (HEAD_DIM / CHUNK) + (chunk ^ twist);
}

#endif

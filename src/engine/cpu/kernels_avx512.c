/* The CPU kernels for AVX-512 (F, BW, DQ, VL); cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx512.h"

#include "engine/cpu/gemm_few_rows.inc"

#define KERNELS_NAME kernels_avx512
#define KERNELS_LABEL "avx512"
#define KERNELS_FEW_ROWS few_rows
#define KERNELS_TILES NULL
#define KERNELS_DIGITS NULL
#include "engine/cpu/kernels.inc"
#endif

/* The CPU kernels for AVX2 with FMA; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx2.h"

#define KERNELS_NAME kernels_avx2
#define KERNELS_LABEL "avx2"
#define KERNELS_FEW_ROWS NULL
#define KERNELS_TILES NULL
#define KERNELS_DIGITS NULL
#include "engine/cpu/kernels.inc"
#endif

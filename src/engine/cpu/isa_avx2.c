/* The kernels for AVX2 with FMA; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/vec_avx2.h"

#define KERNELS_NAME kernels_avx2
#include "engine/cpu/kernels.inc"

#define INT8_NAME int8_avx2
#include "engine/cpu/gemm_int8.inc"

/* The kernels for AVX2 with FMA; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/isa/vec_avx2.h"

#define KERNELS_NAME kernels_avx2
#include "engine/cpu/isa/kernels.inc"

#define INT8_NAME int8_avx2
#include "engine/cpu/isa/gemm_int8.inc"

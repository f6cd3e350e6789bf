/* The kernels for AVX-512 with VNNI and bf16; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/isa/vec_avx512.h"

#define KERNELS_NAME kernels_avx512_bf16
#include "engine/cpu/isa/kernels.inc"

#define INT8_NAME int8_avx512_bf16
#include "engine/cpu/isa/gemm_int8.inc"

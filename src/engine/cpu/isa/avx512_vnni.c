/* The int8 kernels for AVX-512 with VNNI; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/isa/vec_avx512.h"

#define INT8_NAME int8_avx512_vnni
#include "engine/cpu/isa/gemm_int8.inc"

/* The int8 kernels for NEON with its dot product; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/isa/vec_neon.h"

#define INT8_NAME int8_neon_dot
#include "engine/cpu/isa/gemm_int8.inc"

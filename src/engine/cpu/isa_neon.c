/* The kernels for NEON, which every 64-bit Arm has. */
#include "engine/cpu/vec_neon.h"

#define KERNELS_NAME kernels_neon
#include "engine/cpu/kernels.inc"

#define INT8_NAME int8_neon
#include "engine/cpu/gemm_int8.inc"

/* The kernels for NEON, which every 64-bit Arm has. */
#include "engine/cpu/isa/vec_neon.h"

#define KERNELS_NAME kernels_neon
#include "engine/cpu/isa/kernels.inc"

#define INT8_NAME int8_neon
#include "engine/cpu/isa/gemm_int8.inc"

/* The kernels for any machine. */
#include "engine/cpu/vec_generic.h"

#define KERNELS_NAME kernels_generic
#include "engine/cpu/kernels.inc"

#define INT8_NAME int8_generic
#include "engine/cpu/gemm_int8.inc"

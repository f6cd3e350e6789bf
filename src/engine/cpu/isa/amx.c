/* The kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#include "engine/cpu/isa/vec_avx512.h"

#define KERNELS_NAME kernels_amx
#include "engine/cpu/isa/kernels.inc"

#include "engine/cpu/isa/attention_amx.inc"
#include "engine/cpu/isa/gemm_amx.inc"
#include "engine/cpu/isa/gemm_split_f32.inc"

const struct gemm_bf16 bf16_amx = {
    .pack = bf16_pack,
    .run = bf16_gemm,
    .attention = amx_attention,
};

const struct gemm_split_f32 split_f32_amx = {
    .split = split_f32_split,
    .pack = split_f32_pack,
    .run = split_f32_gemm,
};

#define INT8_AMX
#define INT8_NAME int8_amx
#include "engine/cpu/isa/gemm_int8.inc"

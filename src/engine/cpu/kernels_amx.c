/* The CPU kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/vec_avx512.h"

#include "engine/cpu/attention_amx.inc"
#include "engine/cpu/gemm_amx.inc"
#include "engine/cpu/gemm_few_rows.inc"
#include "engine/cpu/gemm_split_f32.inc"

static const struct cpu_tiles tiles_amx = {
    .pack = tiles_pack,
    .product = tiles_product,
    .attention = tiles_attention,
};

static const struct digits_kernels digits_amx = {
    .split = digits_split,
    .pack = digits_pack,
    .product = digits_product,
};

#define KERNELS_NAME kernels_amx
#define KERNELS_LABEL "amx"
#define KERNELS_FEW_ROWS few_rows
#define KERNELS_TILES &tiles_amx
#define KERNELS_DIGITS &digits_amx
#include "engine/cpu/kernels.inc"
#endif

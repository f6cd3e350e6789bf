/* The CPU kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/vec_avx512.h"

#include "engine/cpu_few_rows.h"
#include "engine/cpu_tiles_attention.h"
#include "engine/cpu_tiles_product.h"

static const struct cpu_tiles tiles_amx = {
    .parts = 1,
    .pack = tiles_pack,
    .product = tiles_product,
    .attention = tiles_attention,
};

static const struct cpu_tiles tiles_amx_f32 = {
    .parts = AMX_PARTS,
    .pack = tiles_pack_f32,
    .product = tiles_product_f32,
    .split = tiles_split,
    .room = tiles_room,
};

#define KERNELS_NAME kernels_amx
#define KERNELS_LABEL "amx"
#define KERNELS_FEW_ROWS few_rows
#define KERNELS_TILES &tiles_amx
#define KERNELS_TILES_F32 &tiles_amx_f32
#include "engine/cpu_kernels_body.h"
#endif

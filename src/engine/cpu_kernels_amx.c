/* The CPU kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/vec_avx512.h"

#include "engine/cpu_few_rows.h"
#include "engine/cpu_tiles_attention.h"
#include "engine/cpu_tiles_product.h"

static const struct cpu_tiles tiles_amx = {
    .pack = tiles_pack,
    .product = tiles_product,
    .attention = tiles_attention,
};

#define KERNELS_NAME kernels_amx
#define KERNELS_LABEL "amx"
#define KERNELS_FEW_ROWS few_rows
#define KERNELS_TILES &tiles_amx
#include "engine/cpu_kernels_body.h"
#endif

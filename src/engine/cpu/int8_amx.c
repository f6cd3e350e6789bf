/* The int8 kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/cpu/int8_words_avx512.h"

#include <dnnl.h>
#include <stdbool.h>

static bool int8_runs_here(void)
{
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_amx) == dnnl_cpu_isa_avx512_core_amx &&
           __builtin_cpu_supports("avx512bf16");
}

#define INT8_TILES
#define INT8_NAME int8_amx
#define INT8_LABEL "amx"
#include "engine/cpu/gemm_int8.inc"
#endif

/* The CPU kernels for AVX-512 with bf16 and AMX tiles; cmake/Kernels.cmake gives this file its instruction set. */
#ifdef SLUICE_X86
#include "engine/vec_avx512.h"

#include "engine/cpu_attention_amx.h"

#define KERNELS_NAME kernels_amx
#define KERNELS_LABEL "amx"
#define KERNELS_ATTENTION16 attention_amx
#include "engine/cpu_kernels_body.h"
#endif

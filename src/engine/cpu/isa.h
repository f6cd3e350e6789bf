/* The instruction sets that the CPU backend has code for, and the one that this machine runs. */
#ifndef ENGINE_CPU_ISA_H
#define ENGINE_CPU_ISA_H

#include "engine/cpu/gemm.h"

/* The best first; a row without a name ends it. */
extern const struct instruction_set instruction_sets[];

/* The best row for this machine; always the same one. For tests and benchmarks, SLUICE_ISA in the environment names a
 * row, and those above it are skipped. */
const struct instruction_set *instruction_set_pick(void);

/* Errors: STATUS_UNSUPPORTED (SLUICE_ISA is set and names no row; the message lists them). */
MUST_CHECK enum status instruction_set_check(struct err *err);

enum { PROCESSOR_NAME = 80 };

/* Writes the name of this machine's processor, "unknown processor" if Linux does not tell it; returns `out`. */
const char *processor_name(char out[PROCESSOR_NAME]);

/* Defined in isa/. */
extern const struct kernels kernels_generic, kernels_avx2, kernels_avx512, kernels_avx512_bf16, kernels_amx,
    kernels_neon;
extern const struct gemm_int8 int8_generic, int8_avx2, int8_avx2_vnni, int8_avx512, int8_avx512_vnni, int8_avx512_bf16,
    int8_amx, int8_neon, int8_neon_dot;
extern const struct gemm_split_f32 split_f32_amx;
extern const struct gemm_bf16 bf16_amx;

#ifdef SLUICE_AMX_EMULATED /* isa/amx.c once more, in tests/support/amx_emulated.c */
extern const struct kernels kernels_amx_emulated;
extern const struct gemm_split_f32 split_f32_amx_emulated;
extern const struct gemm_bf16 bf16_amx_emulated;
extern const struct gemm_int8 int8_amx_emulated;
#endif

#endif

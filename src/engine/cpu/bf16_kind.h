/* Chooses how weights in bf16 are multiplied that tiles do not take: with operands widened to f32, or by products of
 * pairs in bf16, which some processors compute fast and others slowly. The two round differently. */
#ifndef ENGINE_CPU_BF16_KIND_H
#define ENGINE_CPU_BF16_KIND_H

#include "engine/cpu/isa.h"

/* GEMM_BF16_WIDE or GEMM_BF16_DOT: the faster one, for any even number of inputs. If the instruction set has both, they
 * are measured, for about a millisecond, and their times are kept in the cache directory (`cache_path` as in struct
 * engine_options), so that all processes choose the same. Thread: any. */
enum gemm_kind bf16_kind(const struct instruction_set *set, const char *cache_path);

#endif

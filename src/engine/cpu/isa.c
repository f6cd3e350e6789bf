/* The table of instruction sets, and the choice of this machine's. */
#include "engine/cpu/isa.h"

#ifdef SLUICE_X86
#include <cpuid.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef SLUICE_ARM64
#include <sys/auxv.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine.h"

static bool runs_always(void)
{
    return true;
}

#ifdef SLUICE_X86
static bool runs_avx2(void)
{
    unsigned a, b, c, d; /* __builtin_cpu_supports of clang 14 does not know F16C */
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}

static bool runs_avx2_vnni(void)
{
    unsigned a, b, c, d; /* __builtin_cpu_supports of GCC 12 does not know it */
    return runs_avx2() && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1 << 4);
}

static bool runs_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

static bool runs_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni") && runs_avx512();
}

static bool runs_bf16(void)
{
    return __builtin_cpu_supports("avx512bf16") && runs_vnni();
}

/* Linux lets a process use the tile registers only after a request. */
static bool runs_amx(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18, BF16 = 1 << 22, TILES = 1 << 24, INT8 = 1 << 25 };
    unsigned a, b, c, d;
    bool has = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & BF16) && (d & TILES) && (d & INT8) && runs_bf16();
    return has && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}
#endif

#ifdef SLUICE_ARM64
static bool runs_neon_dot(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
#endif

const struct instruction_set instruction_sets[] = {
#ifdef SLUICE_X86
    {"amx", runs_amx, &kernels_amx, &split_f32_amx, &bf16_amx, &int8_amx},
    {"avx512_bf16", runs_bf16, &kernels_avx512_bf16, NULL, NULL, &int8_avx512_bf16},
    {"avx512_vnni", runs_vnni, &kernels_avx512, NULL, NULL, &int8_avx512_vnni},
    {"avx512", runs_avx512, &kernels_avx512, NULL, NULL, &int8_avx512},
    {"avx2_vnni", runs_avx2_vnni, &kernels_avx2, NULL, NULL, &int8_avx2_vnni},
    {"avx2", runs_avx2, &kernels_avx2, NULL, NULL, &int8_avx2},
#endif
#ifdef SLUICE_AMX_EMULATED /* in tests only; after the other rows, so that it is chosen by name only */
    {"amx_emulated", runs_bf16, &kernels_amx_emulated, &split_f32_amx_emulated, &bf16_amx_emulated, &int8_amx_emulated},
#endif
#ifdef SLUICE_ARM64
    {"neon_dot", runs_neon_dot, &kernels_neon, NULL, NULL, &int8_neon_dot},
    {"neon", runs_always, &kernels_neon, NULL, NULL, &int8_neon},
#endif
    {"generic", runs_always, &kernels_generic, NULL, NULL, &int8_generic},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

/* The best row from `set` on that runs here. */
static const struct instruction_set *first_here(const struct instruction_set *set)
{
    while (!set->runs_here()) { set++; }
    return set;
}

/* The row that SLUICE_ISA names; the first one if it is not set; the one without a name if it names no row. */
static const struct instruction_set *first_allowed(void)
{
    const struct instruction_set *set = instruction_sets;
    const char *best = getenv("SLUICE_ISA");
    while (best && set->name && strcmp(set->name, best) != 0) { set++; }
    return set;
}

enum status instruction_set_check(struct err *err)
{
    char names[128] = "";
    if (first_allowed()->name) { return STATUS_OK; }
    for (const struct instruction_set *set = instruction_sets; set->name; set++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", set->name);
    }
    return err_set(err, STATUS_UNSUPPORTED, "SLUICE_ISA \"%.40s\" is not one of %s", getenv("SLUICE_ISA"), names);
}

const struct instruction_set *instruction_set_pick(void)
{
    const struct instruction_set *first = first_allowed();
    return first_here(first->name ? first : instruction_sets);
}

const char *engine_instruction_set(char out[64])
{
    const struct instruction_set *set = instruction_set_pick(), *best = first_here(instruction_sets);
    snprintf(out, 64, set == best ? "%s" : "%s; SLUICE_ISA hides %s", set->name, best->name);
    return out;
}

/* Linux has it in /proc/cpuinfo on x86; on other machines it may not. */
const char *processor_name(char out[PROCESSOR_NAME])
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(out, PROCESSOR_NAME, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        char *name = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        if (!name) { continue; }
        name += 1 + strspn(name + 1, " \t");
        snprintf(out, PROCESSOR_NAME, "%.*s", (int)strcspn(name, "\n"), name);
        break;
    }
    if (file) { fclose(file); }
    return out;
}

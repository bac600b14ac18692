/* The run-time choice of cpu.h, compiled once and for the plain processor. */
#include "kernels/cpu/cpu.h"

extern const struct cpu_isa cpu_isa_plain;

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

extern const struct cpu_isa cpu_isa_amx, cpu_isa_avx512vnni, cpu_isa_avx512, cpu_isa_avx2;

static const struct cpu_isa *const FROM_AMX[] = {&cpu_isa_amx, &cpu_isa_avx512vnni, &cpu_isa_avx512, &cpu_isa_avx2,
                                                 &cpu_isa_plain, NULL};

/* Not a name that every compiler's __builtin_cpu_supports knows. Systems that save AVX's registers save what it needs. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/* What the makefile lets the compiler use for each of them. */
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int has_vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

/* Linux lets a process use the registers of tiles when it has asked once; its threads inherit that. */
static int has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, BF16_TILE_INT8 = 1 << 22 | 1 << 24 | 1 << 25, GFNI = 1 << 8 };
    unsigned eax, ebx, ecx, edx = 0;
    return has_vnni() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & BF16_TILE_INT8) == BF16_TILE_INT8 &&
           (ecx & GFNI) && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

const struct cpu_isa *const *cpu_isas(void)
{
    return FROM_AMX + (has_amx() ? 0 : has_vnni() ? 1 : has_avx512() ? 2 : has_avx2() ? 3 : 4);
}

#else

static const struct cpu_isa *const PLAIN[] = {&cpu_isa_plain, NULL};

const struct cpu_isa *const *cpu_isas(void) { return PLAIN; }

#endif

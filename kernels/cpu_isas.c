/* The run-time choice of cpu.h, compiled only once, for every processor of the architecture. The makefile defines the sets of
 * this build, best first: CPU_ISAS is SET(amx) SET(avx512vnni) ... SET(plain), or only those of them that this machine
 * supports. */
#include <stddef.h>

#include "kernels/cpu/cpu.h"

#define SET(name) extern const struct cpu_isa cpu_isa_##name;
CPU_ISAS
#undef SET

static int has_plain(void) { return 1; }

#if defined(__x86_64__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Reads cpuid, because not every compiler's __builtin_cpu_supports knows "f16c". Systems that save AVX's registers also support
 * F16C. */
static int has_f16c(void)
{
    unsigned eax, ebx, ecx = 0, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_F16C);
}

/* Return whether the processor has the instructions that the makefile enables for each set. */
static int has_avx2(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

static int has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}

static int has_avx512vnni(void) { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }

/* Requests the tile registers for the process, which Linux requires once; threads inherit the permission. */
__attribute__((unused)) static int has_amx(void)
{
    enum { REQUEST = 0x1023, TILE_DATA = 18, BF16_TILE_INT8 = 1 << 22 | 1 << 24 | 1 << 25, GFNI = 1 << 8 };
    unsigned eax, ebx, ecx, edx = 0;
    return has_avx512vnni() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & BF16_TILE_INT8) == BF16_TILE_INT8 &&
           (ecx & GFNI) && !syscall(SYS_arch_prctl, REQUEST, TILE_DATA);
}

#elif defined(__aarch64__)

#include <sys/auxv.h>

static int has_dotprod(void)
{
    enum { FEATURE_DOTPROD = 1 << 20 };         /* HWCAP_ASIMDDP, which old headers lack */
    return (getauxval(AT_HWCAP) & FEATURE_DOTPROD) != 0;
}

#endif

const struct cpu_isa *const *cpu_isas(void)
{
#define SET(name) &cpu_isa_##name,
    static const struct cpu_isa *const sets[] = {CPU_ISAS NULL};
#undef SET
#define SET(name) has_##name,
    static int (*const can[])(void) = {CPU_ISAS};
#undef SET
    int first = 0;
    while (!can[first]())
        first++;
    return sets + first;
}

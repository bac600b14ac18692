/* One source, several instruction sets: every function used by another file of kernels/cpu has the set's name appended, as in
 * unit_product_avx2. The makefile defines ISA (the name) and one of ISA_AVX512, ISA_AVX2, ISA_NEON, ISA_PLAIN; with ISA_AVX512
 * also ISA_VNNI if integer products may use it, and with both ISA_AMX if tiles may be used. ISA_VECTORS: all but ISA_PLAIN have
 * the vectors of vector.h.
 *
 * Code that needs neither VNNI nor AMX is shared by all sets with ISA_AVX512: it is compiled for avx512 only and has that name
 * (ISA_VECTOR_NAME; VECTOR_SOURCES in the makefile). So is unit_grids_bytes.c, which defines ISA_VNNI and ISA_VBMI itself. */
#ifndef MOE_KERNELS_CPU_ISA_H
#define MOE_KERNELS_CPU_ISA_H

#if !defined(ISA_PLAIN)
#define ISA_VECTORS 1
#endif

#define ISA_PASTE(name, isa) name##_##isa
#define ISA_EXPAND(name, isa) ISA_PASTE(name, isa)
#define ISA_NAME(name) ISA_EXPAND(name, ISA)
#if defined(ISA_AVX512)
#define ISA_VECTOR_NAME(name) name##_avx512
#else
#define ISA_VECTOR_NAME(name) ISA_NAME(name)
#endif
#define ISA_TEXT_OF(isa) #isa
#define ISA_TEXT_EXPAND(isa) ISA_TEXT_OF(isa)
#define ISA_TEXT ISA_TEXT_EXPAND(ISA)

/* Asserts that the iterations of the next loop are independent. clang needs no assertion, because it checks at run time. */
#ifdef __clang__
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif

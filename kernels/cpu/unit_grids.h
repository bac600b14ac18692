/* The functions of IQ2 and IQ3 in products with quantised activations (integers.h), for the files that choose the form of the
 * decoders (codes_grids.h). With VBMI, also those of formats with codes of 3, 5 and 6 bits. */
#ifndef MOE_KERNELS_CPU_UNIT_GRIDS_H
#define MOE_KERNELS_CPU_UNIT_GRIDS_H

#include "kernels/cpu/codes_grids.h"

#if defined(ISA_VECTORS)

INLINE void span_codes(enum weight_format format, const unsigned char *grid, const unsigned char *chunk, int lane, int span,
                       struct codes *c)
{
    switch (format) {
    case FORMAT_Q6_K: codes_q6_k(chunk, lane, span, c); break;
    case FORMAT_Q5_K: codes_q5_k(chunk, lane, span, c); break;
    case FORMAT_Q3_K: codes_q3_k(chunk, lane, span, c); break;
    default: grids_of(format, grid, chunk, lane, span, c);
    }
}

#include "kernels/cpu/integers.h"

_Static_assert((int)GRID_BYTES <= (int)GRID_BYTES_MAX, "grids fit into a chunk");

#define GRIDS_PLAIN(use, NAME)
#define GRIDS_INTEGER(use, NAME)
#define GRIDS_CODED(use, NAME)
#define GRIDS_WOVEN(use, NAME)
#define GRIDS_GRID(use, NAME) use(FORMAT_##NAME)
#define FUNCTIONS(format) DIRECTS(format) UNPACK(format)
#define ROW(format) [format] = {DIRECT_NAMES(format), unpack_##format},
#define FUNCTIONS_OF(NAME, name, kind, step, block, bytes) GRIDS_##kind(FUNCTIONS, NAME)
#define ROW_OF(NAME, name, kind, step, block, bytes) GRIDS_##kind(ROW, NAME)

WEIGHT_FORMATS(FUNCTIONS_OF)

#if defined(ISA_VBMI)
#define ALONE(format, rows) \
    static void alone_##format##_##rows(int number, const struct chunk *chunk, const struct quantised *const *in, float *out) \
    { \
        set_product(codes_kind(format), format, rows, number, chunk, in, out); \
    }
#define SPREAD(format) \
    FUNCTIONS(format) ALONE(format, 4) ALONE(format, 5) ALONE(format, 6) ALONE(format, 7) ALONE(format, 8)
#define SPREAD_ROW(format) \
    [format] = {DIRECT_NAMES(format), unpack_##format, {[3] = alone_##format##_4, alone_##format##_5, alone_##format##_6, \
                                                        alone_##format##_7, alone_##format##_8}},
#define FORMATS_BESIDE_GRIDS(use) use(FORMAT_Q6_K) use(FORMAT_Q5_K) use(FORMAT_Q3_K)
FORMATS_BESIDE_GRIDS(SPREAD)
#else
#define FORMATS_BESIDE_GRIDS(use)
#endif

static const struct functions TABLE[FORMAT_COUNT] = {WEIGHT_FORMATS(ROW_OF) FORMATS_BESIDE_GRIDS(SPREAD_ROW)};

#endif
#endif

/* The functions of IQ2 and IQ3 in products with quantised activations (integers.h), for the files that choose the form of the
 * decoders (codes_grids.h). */
#ifndef MOE_KERNELS_CPU_UNIT_GRIDS_H
#define MOE_KERNELS_CPU_UNIT_GRIDS_H

#include "kernels/cpu/codes_grids.h"

#if defined(ISA_VECTORS)

INLINE void span_codes(enum weight_format format, const unsigned char *grid, const unsigned char *chunk, int lane, int span,
                       struct codes *c)
{
    grids_of(format, grid, chunk, lane, span, c);
}

#include "kernels/cpu/integers.h"

_Static_assert((int)GRID_BYTES <= (int)GRID_BYTES_MAX, "grids fit into a chunk");

#define GRIDS_PLAIN(use, NAME)
#define GRIDS_INTEGER(use, NAME)
#define GRIDS_CODED(use, NAME)
#define GRIDS_WOVEN(use, NAME)
#define GRIDS_GRID(use, NAME) use(FORMAT_##NAME)
#define FUNCTIONS(format) DIRECTS(format) UNPACK(format)
#define ROW(format) [format - FORMAT_IQ3_S] = {DIRECT_NAMES(format), unpack_##format},
#define FUNCTIONS_OF(NAME, name, kind, step, block, bytes) GRIDS_##kind(FUNCTIONS, NAME)
#define ROW_OF(NAME, name, kind, step, block, bytes) GRIDS_##kind(ROW, NAME)

WEIGHT_FORMATS(FUNCTIONS_OF)

static const struct functions TABLE[] = {WEIGHT_FORMATS(ROW_OF)};

#endif
#endif

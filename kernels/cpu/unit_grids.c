/* IQ2 and IQ3 with quantised activations, for processors without AVX512-VBMI. The few of them that have VNNI do without it. */
#include "kernels/cpu/unit_grids.h"

#if defined(ISA_VECTORS)

const struct functions *grid_functions(enum weight_format format) { return &TABLE[format]; }

#endif

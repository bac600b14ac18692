/* IQ2 and IQ3 with quantised activations, for processors without AVX512-VBMI. This form does not use VNNI, because few of these
 * processors have it. */
#include "kernels/cpu/unit_grids.h"

#if defined(ISA_VECTORS)

const struct functions *grid_functions(enum weight_format format) { return &TABLE[format]; }

#endif

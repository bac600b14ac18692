/* Private to formats.c and formats_coded.c: access to one output's weights in a unit, for formats with coded rows
 * (formats.h). */
#ifndef MOE_KERNELS_FORMATS_CODED_H
#define MOE_KERNELS_FORMATS_CODED_H

#include "kernels/formats.h"
#include "kernels/formats_woven.h"

/* Offsets and sizes within a block of a unit; formats.h has the layout. */
enum {
    FP8_CODES = 128, FP8_PAIR_BYTES = 64,
    GROUP_INPUTS = 8, GROUP_BYTES = 128,
    MXFP4_GROUPS = 64,
    Q4_K_MINIMA = 64, Q4_K_SCALES = 128, Q4_K_GROUPS = 512,
    Q6_K_SCALES = 64, Q6_K_GROUPS = 576, Q6_K_GROUP_INPUTS = 16, Q6_K_GROUP_BYTES = 384
};

/* Stores a coded row in a unit as output number `output` (0 .. 31). */
void coded_put(enum weight_format format, unsigned char *unit, int output, int inputs, const unsigned char *row);

/* Quantises a row of floats to fp8 and stores it as output number `output`. */
void coded_put_floats(unsigned char *unit, int output, int inputs, const float *values);

/* Returns one weight, in a format with scales, except q8 and q4. */
float coded_at(enum weight_format format, const unsigned char *unit, int output, int input);

/* Returns the parts of one weight of a format that has integers: mxfp4 and all after it. */
struct woven_parts coded_parts(enum weight_format format, const unsigned char *unit, int output, int input);

#endif

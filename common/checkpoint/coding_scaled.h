/* Codings of joined tensors with two or three parts: codes, and scales, one for each block of block[0] rows and block[1]
 * columns of a matrix (the last two dims; dims before them count matrices). A weight is code * scale, rounded to f32. */
#ifndef MOE_CHECKPOINT_CODING_SCALED_H
#define MOE_CHECKPOINT_CODING_SCALED_H

#include "common/checkpoint/coding.h"

extern const struct source_coding coding_fp8;           /* E4M3; 128 neighbouring columns share their scale */
extern const struct source_coding coding_fp8_narrow;    /* E4M3 with narrower blocks of columns */
extern const struct source_coding coding_i8;
extern const struct source_coding coding_mxfp4;         /* 16 bytes of E2M1 and one E8M0 scale per 32 columns */

/* NVFP4: two E2M1 in a byte, the first in the low half; one E4M3 scale per 16 columns; and, as the third part, one f32 for the
 * whole matrix, by which coding_nvfp4 multiplies the scale and coding_nvfp4_divided divides the scale. */
extern const struct source_coding coding_nvfp4, coding_nvfp4_divided;
/* As the two above, for matrices whose inputs are not whole blocks of nvfp4_s, 64. */
extern const struct source_coding coding_nvfp4_narrow, coding_nvfp4_divided_narrow;

/* Any coding of GGUF as the first part; as the second, f32 scales: one for the tensor, or one for each of its matrices. */
extern const struct source_coding coding_gguf_scaled;

#endif

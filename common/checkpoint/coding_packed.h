/* Codings of joined tensors whose codes are integers packed into 32-bit words. A weight is (code - zero) * scale, in f32;
 * the inputs of a group share scale and zero for each output. Layouts of a matrix [out][in] with P = 32 / bits codes per
 * word, the first code in the lowest bits:
 *
 *             codes            scales           zeros             zero point
 *     GPTQ    [in/P][out]      [groups][out]    [groups][out/P]   stored value + 1; in format gptq_v2 the stored value
 *     AWQ     [in][out/8]      [groups][out]    [groups][out/8]   stored value; a word has outputs 0 2 4 6 1 3 5 7
 *     packed  [out][in/P]      [out][groups]    [out/P][groups]   stored value; the middle of the range if there are none
 *
 * The group of an input is its index / group size (block[1]), or its entry in g_idx, a list of I32. */
#ifndef MOE_CHECKPOINT_CODING_PACKED_H
#define MOE_CHECKPOINT_CODING_PACKED_H

#include "common/checkpoint/coding.h"

/* Parts of such a joined tensor; the name of an absent part is NULL. */
enum { PACKED_CODES, PACKED_SCALES, PACKED_ZEROS, PACKED_ORDER, PACKED_PARTS };

extern const struct source_coding coding_gptq, coding_awq, coding_packed;

/* For tensors whose groups are at least 32 neighbouring inputs with zero points in the middle: can be kept as q4. */
extern const struct source_coding coding_gptq_q4, coding_packed_q4;

#endif

/* Codings of joints whose codes are integers packed into 32-bit words. A weight is (code - zero) * scale, in f32; scale and
 * zero are one for a group of inputs of one output. For a matrix [out][in] with P = 32 / bits codes a word, the first one
 * lowest:
 *
 *             codes            scales           zeros             zero
 *     GPTQ    [in/P][out]      [groups][out]    [groups][out/P]   one more than is stored; as stored in format gptq_v2
 *     AWQ     [in][out/8]      [groups][out]    [groups][out/8]   as stored; outputs in a word in the order 0 2 4 6 1 3 5 7
 *     packed  [out][in/P]      [out][groups]    [out/P][groups]   as stored; half of the range where there are none
 *
 * An input's group is its index / group size (block[1]), or what g_idx, a list of I32, says. */
#ifndef MOE_CHECKPOINT_CODING_PACKED_H
#define MOE_CHECKPOINT_CODING_PACKED_H

#include "common/checkpoint/coding.h"

/* Parts of such a joint; those that are not there have no name. */
enum { PACKED_CODES, PACKED_SCALES, PACKED_ZEROS, PACKED_ORDER, PACKED_PARTS };

extern const struct source_coding coding_gptq, coding_awq, coding_packed;

/* The same, where 32 neighbouring inputs share a group and zeros are said to be in the middle: kept as q4. */
extern const struct source_coding coding_gptq_q4, coding_packed_q4;

#endif

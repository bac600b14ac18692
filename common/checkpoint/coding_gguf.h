/* Codings of GGUF's block types: f16 scales d (and minima m) for 32 values, or for 256 with small integers for their parts.
 *
 *     Q4_0    18 bytes an 32: d, 16 bytes; value j is the low half of byte j, value 16 + j the high one: d * (n - 8)
 *     Q4_1    20: d, m, 16 bytes of the same kind: d * n + m
 *     Q5_0    22: d, 32 fifth bits, 16 bytes: d * (n - 16);      Q5_1    24: d, m, fifth bits, bytes: d * n + m
 *     Q8_0    34: d, 32 int8
 *     Q4_K    144 an 256: d, dmin, s[12], qs[128];               Q6_K    210: ql[128], qh[64], sc[16], d
 *     Q5_K    176: d, dmin, s[12], fifth bits[32], qs[128]: as Q4_K, bit j of fifth bit byte i is of value 32 j + i
 *     MXFP4   17 an 32: E8M0 scale, 16 bytes of E2M1 in the order of Q4_0, where others have neighbours in a byte
 *
 * A weight is rounded once, to f32. Those that kernels/formats.h has are kept as they are. */
#ifndef MOE_CHECKPOINT_CODING_GGUF_H
#define MOE_CHECKPOINT_CODING_GGUF_H

#include "common/checkpoint/coding.h"

extern const struct source_coding coding_q4_0, coding_q4_1, coding_q5_0, coding_q5_1, coding_q8_0, coding_q4_k, coding_q5_k,
    coding_q6_k, coding_mxfp4_gguf;

/* All types of tensors that can be read, for messages. */
extern const char coding_gguf_names[];

#endif

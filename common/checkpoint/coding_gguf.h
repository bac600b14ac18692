/* Codings of GGUF's block types: f16 scales d (and minima m) for 32 values, or for 256 with small integers for their parts.
 *
 *     Q4_0    18 bytes per 32: d, 16 bytes; value j is the low half of byte j, value 16 + j the high one: d * (n - 8)
 *     Q4_1    20: d, m, 16 bytes of the same kind: d * n + m
 *     Q5_0    22: d, 32 fifth bits, 16 bytes: d * (n - 16);      Q5_1    24: d, m, fifth bits, bytes: d * n + m
 *     Q8_0    34: d, 32 int8
 *     Q2_K    84 per 256: for each 16 values a byte of scale s (low half) and minimum t, codes of 2 bits, d, m: d s n - m t
 *     Q3_K    110: third bits, codes of 2 bits, scales s of 6 bits for each 16 values, d: d (s - 32) (n - 4)
 *     Q4_K    144: d, dmin, s[12], qs[128];                      Q6_K    210: ql[128], qh[64], sc[16], d
 *     Q5_K    176: d, dmin, s[12], fifth bits[32], qs[128]: as Q4_K, bit j of fifth bit byte i belongs to value 32 j + i
 *     IQ4_NL  18 per 32: d, 16 bytes as in Q4_0: d * level[n], 16 levels from -127 to 113
 *     IQ4_XS  136 per 256: d, upper and lower bits of scales s of 6 bits for each 32, bytes as in Q4_0: d (s - 32) level[n]
 *     TQ1_0   54 per 256: ternary digits, five per byte, d;      TQ2_0   66: codes of 2 bits, d: both d * {-1, 0, 1}
 *     MXFP4   17 per 32: E8M0 scale, 16 bytes of E2M1 in the order of Q4_0 (other programs store neighbours in a byte)
 *     NVFP4   36 per 64: four E4M3 scales, one for 16 values each, whose E2M1 values are in 8 bytes in the order of Q4_0
 *     IQ2, IQ3: kernels/formats_woven.h;                         IQ1: gguf_grids.h
 *
 * A weight is rounded once, to f32. Types that are also formats of kernels/formats.h keep their bits. Others become one of its
 * formats if that represents each weight exactly: Q5_0 becomes q8, TQ1_0 and TQ2_0 become q6_k. */
#ifndef MOE_CHECKPOINT_CODING_GGUF_H
#define MOE_CHECKPOINT_CODING_GGUF_H

#include "common/checkpoint/coding.h"

struct gguf_coding {
    struct source_coding coding;                            /* first member: a tensor's coding is cast to its struct
                                                             * gguf_coding */
    int id;                                                 /* ggml_type number in the file */
    int block, bytes;                                       /* values of a block, and bytes of a block */
    void (*decode)(const uint8_t *block, float *values);    /* decodes one block to floats; NULL: as coding.format */
    void (*recode)(const uint8_t *block, uint8_t *coded);   /* converts one block to coded rows of coding.format; NULL: the
                                                             * bytes are the same */
};

extern const struct gguf_coding gguf_codings[];             /* ends with an entry whose coding.name is NULL */

/* Decodes one block to floats. */
void gguf_decode(const struct gguf_coding *type, const uint8_t *block, float *values);

/* Names of all readable tensor types, for messages. */
extern const char coding_gguf_names[];

#endif

/* Parses quantization_config of a checkpoint's config.json. In: the texts. Out: a struct quantisation.
 *
 *     quant_method          weights                                                           accepted formats
 *     fp8                   F8_E4M3 with scales of blocks                                     fmt e4m3
 *     mxfp4                 MXFP4 blocks
 *     gptq                  4 or 8 bits in words, groups, act-order                           gptq, gptq_v2
 *     awq                   4 bits in words, groups                                           gemm
 *     compressed-tensors    F8_E4M3 or I8 with scales, words as above,       float-, int-, naive-, pack-quantized,
 *                           or NVFP4 or MXFP4                                nvfp4-, mxfp4-pack-quantized
 *     modelopt              F8_E4M3 with scales, or NVFP4                    FP8, FP8_PER_CHANNEL_PER_TOKEN, NVFP4,
 *                                                                            W4A16_NVFP4, MIXED_PRECISION of these
 *
 * An unknown method, format, or key that may change values is an error that names it. Settings of activations and caches
 * change no weight and are ignored. */
#ifndef MOE_CHECKPOINT_QUANTISATION_H
#define MOE_CHECKPOINT_QUANTISATION_H

#include "common/checkpoint/checkpoint.h"

struct quantisation {
    enum { QUANTISED_NOT, QUANTISED_FP8, QUANTISED_MXFP4, QUANTISED_GPTQ, QUANTISED_AWQ, QUANTISED_COMPRESSED,
           QUANTISED_MODELOPT } method;
    enum { FOUR_BITS_NONE, FOUR_BITS_NVFP4, FOUR_BITS_MXFP4 } floats;      /* 4-bit floats of compressed-tensors */
    int block[2];               /* rows and columns that share a scale */
    bool scales_of_blocks;      /* X_scale, too, has one scale per block */
    bool packed;                /* integers packed into words; the following members apply only to these */
    int bits, group;            /* group: inputs that share scale and zero point; 0: all, or as the shape of the scales
                                 * implies */
    bool symmetric;             /* zero points are the middle of the range */
    bool ordered;               /* groups do not consist of neighbouring inputs */
    int zero_add;               /* added to a stored zero point */
};

/* Reads the quantisation of a checkpoint; without one the method is QUANTISED_NOT. */
int quantisation_read(const struct checkpoint *checkpoint, struct quantisation *out, struct err *err);

#endif

/* What config.json says under quantization_config of the weights of a checkpoint. In: the texts. Out: a struct quantisation.
 *
 *     quant_method          of weights                                                        formats
 *     fp8                   F8_E4M3 with scales of blocks                                     fmt e4m3
 *     mxfp4                 MXFP4 blocks
 *     gptq                  4 or 8 bits in words, groups, act-order                           gptq, gptq_v2
 *     awq                   4 bits in words, groups                                           gemm
 *     compressed-tensors    F8_E4M3 or I8 with scales, or words as above     float-, int-, naive-, pack-quantized
 *
 * It must be understood: an unknown method or format, or a key that may change values, is an error that names it. What is said
 * of activations and caches changes no weight and is passed over. */
#ifndef MOE_CHECKPOINT_QUANTISATION_H
#define MOE_CHECKPOINT_QUANTISATION_H

#include "common/checkpoint/checkpoint.h"

struct quantisation {
    enum { QUANTISED_NOT, QUANTISED_FP8, QUANTISED_MXFP4, QUANTISED_GPTQ, QUANTISED_AWQ, QUANTISED_COMPRESSED } method;
    int block[2];               /* rows and columns that share a scale */
    bool scales_of_blocks;      /* X_scale, too, is for blocks */
    bool packed;                /* integers in words; the following is of these */
    int bits, group;            /* group: inputs that share scale and zero; 0: all, or as the shape of scales says */
    bool symmetric;             /* zeros are in the middle */
    bool ordered;               /* groups are not of neighbours */
    int zero_add;               /* a zero is more than is stored */
};

int quantisation_read(const struct checkpoint *checkpoint, struct quantisation *out, struct err *err);

#endif

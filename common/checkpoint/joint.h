/* Joins the tensors into which a quantised checkpoint splits a matrix (coding.h): codes and scales become one tensor with
 * the name and shape of the matrix.
 *
 *     T in F8_E4M3, and T_scale_inv or T_scale    one scale per block of weight_block_size (DeepSeek-V3), row, or tensor
 *     T in I8, and T_scale                        one scale per row or tensor
 *     M.qweight, M.scales, M.qzeros and M.g_idx    GPTQ; without M.g_idx, AWQ (coding_packed.h), for M.weight
 *     M.weight_packed, _scale, _zero_point, _shape, _g_idx    compressed-tensors, for M.weight
 *     M.weight_packed, _scale, _global_scale      NVFP4 of compressed-tensors; without _global_scale, MXFP4
 *     M.weight in U8, M.weight_scale, _scale_2     NVFP4 of ModelOpt
 *     M.weight in NVFP4 and M.scale               GGUF's NVFP4 with a scale for each matrix
 *     N_blocks and N_scales in U8                 MXFP4 (gpt-oss): 16 bytes and one scale for 32 inputs
 *
 * config.json says how integers are packed, and the size of blocks (quantisation.h). */
#ifndef MOE_CHECKPOINT_JOINT_H
#define MOE_CHECKPOINT_JOINT_H

#include "common/checkpoint/checkpoint.h"

/* Joins the tensors of a checkpoint, which must be sorted; they stay sorted. */
int checkpoint_join(struct checkpoint *checkpoint, struct err *err);

#endif

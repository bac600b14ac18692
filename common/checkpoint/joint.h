/* Joins the tensors that a quantised checkpoint splits a matrix into (coding.h): codes and their scales become one tensor, with
 * the name and shape of the matrix.
 *
 *     T in F8_E4M3, and T_scale_inv or T_scale    a scale for blocks of weight_block_size (DeepSeek-V3), a row, or the tensor
 *     T in I8, and T_scale                        a scale for a row or the tensor
 *     N_blocks and N_scales in U8                 MXFP4 (gpt-oss): 16 bytes and one scale for 32 inputs
 *
 * What is said of activations (X.input_scale, activation_scheme) changes no weight and is passed over.
 *
 * What config.json says under quantization_config must be understood: an unknown method, or a key that may change values, is
 * an error that names it. */
#ifndef MOE_CHECKPOINT_JOINT_H
#define MOE_CHECKPOINT_JOINT_H

#include "common/checkpoint/checkpoint.h"

/* After the tensors have been sorted, and keeps them so. */
int checkpoint_join(struct checkpoint *checkpoint, struct err *err);

#endif

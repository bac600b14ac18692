/* The table of rotations that kernels/attention.h reads: cos and sin by position and frequency. Private to engine/. */
#ifndef MOE_ENGINE_ROPE_H
#define MOE_ENGINE_ROPE_H

#include "common/model/hparams.h"

/* table [positions - first][rotary/2][2] f32 for positions first .. positions-1. Angles are the f32 products of position and
 * f32 inverse frequency, as transformers computes them; cos and sin of these are exact to f32,
 * times the amplitude. */
void rope_table(const struct rope_shape *shape, int first, int positions, float *table);

#endif

/* The table of rotations that kernels/attention.h reads: cos and sin by position and frequency. */
#ifndef MOE_ENGINE_ROPE_H
#define MOE_ENGINE_ROPE_H

#include "common/model/hparams.h"
#include "common/tensor/device.h"

/* table [positions - first][rotary/2][2] f32 for positions first .. positions-1. Angles are the f32 products of position and
 * f32 inverse frequency, as transformers computes them; cos and sin of these are exact to f32,
 * times the amplitude. */
void rope_table(const struct rope_shape *shape, int first, int positions, float *table);

/* The same of all positions from 0, on a device: grows to `positions`. */
struct rope_positions {
    struct buffer table;
    int positions;
};

int rope_cover(struct rope_positions *rope, const struct rope_shape *shape, struct device *device, int positions,
               struct err *err);

#endif

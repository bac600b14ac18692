/* The table of rotations that kernels/attention.h reads: cos and sin by position and frequency. */
#ifndef MOE_ENGINE_ROPE_H
#define MOE_ENGINE_ROPE_H

#include "common/model/hparams.h"
#include "common/tensor/device.h"

/* Fills table [positions - first][rotary/2][2] f32 for positions first .. positions-1. Angles are f32 products of position
 * and f32 inverse frequency, as in transformers; their cos and sin are exact to f32, then multiplied by the amplitude. */
void rope_table(const struct rope_shape *shape, int first, int positions, float *table);

/* The table for all positions from 0 on a device; grows to `positions`. */
struct rope_positions {
    struct buffer table;
    int positions;
};

/* Extends the table to at least `positions` positions. */
int rope_cover(struct rope_positions *rope, const struct rope_shape *shape, struct device *device, int positions,
               struct err *err);

#endif

/* One weight of a unit (kernels/formats.h), of any format, exactly as matrix_at returns it, for code that reads weights one by
 * one. */
#ifndef MOE_KERNELS_CUDA_WEIGHT_AT_H
#define MOE_KERNELS_CUDA_WEIGHT_AT_H

#include "kernels/cuda/weights.h"

DEVICE uint32_t bytes_at(const unsigned char *at, int bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint32_t)at[i] << (8 * i);
    return value;
}

DEVICE float half_at(const unsigned char *at) { return widen_f16((uint16_t)bytes_at(at, 2)); }

DEVICE float quantised_at(const unsigned char *block, int scales, int o, int byte)
{
    return half_at(block + scales + o * 2) * (float)byte;
}

/* Returns weight [o][k] of a unit, o < 32. */
DEVICE float weight_at(enum weight_format format, const unsigned char *unit, int o, int k)
{
    int i = k % BLOCK_INPUTS;
    switch (format) {
    case FORMAT_F32: return ((const float *)unit)[(size_t)k * UNIT_OUTPUTS + o];
    case FORMAT_F16: return half_at(unit + (size_t)k * (UNIT_STEP_BYTES / 2) + o * 2);
    case FORMAT_BF16: return bf16_to_f32((uint16_t)bytes_at(unit + (size_t)(k / 2) * UNIT_STEP_BYTES + o * 4 + k % 2 * 2, 2));
    case FORMAT_FP8: {
        const unsigned char *block = unit + (size_t)(k / FP8_BLOCK_INPUTS) * FP8_BLOCK_BYTES;
        uint8_t code = block[FP8_CODES + k % FP8_BLOCK_INPUTS / 2 * FP8_PAIR_BYTES + o * 2 + k % 2];
        return e4m3_to_f32(code) * ((const float *)block)[o];
    }
    case FORMAT_Q8: {
        const unsigned char *block = unit + (size_t)(k / BLOCK_INPUTS) * Q8_BLOCK_BYTES;
        return quantised_at(block, 1024, o, (int)block[i / 4 * UNIT_STEP_BYTES + o * 4 + i % 4] - 128);
    }
    case FORMAT_Q4: {
        const unsigned char *block = unit + (size_t)(k / BLOCK_INPUTS) * Q4_BLOCK_BYTES;
        int both = block[i / 8 * UNIT_STEP_BYTES + o * 4 + i % 4];
        return quantised_at(block, 512, o, (i % 8 < 4 ? both & 15 : both >> 4) - 8);
    }
    case FORMAT_MXFP4: {
        const unsigned char *pair = unit + (size_t)(k / STEP_INPUTS_MMA) * MXFP4_PAIR_BYTES;
        int j = k % STEP_INPUTS_MMA;
        uint32_t codes = bytes_at(pair + MXFP4_GROUPS + j / GROUP_INPUTS * GROUP_BYTES + o * 4, 4);
        uint32_t power = pair[j / BLOCK_INPUTS * UNIT_OUTPUTS + o];
        return weights<FORMAT_MXFP4>::value(codes >> (j % GROUP_INPUTS * 4) & 15u,
                                            float_from_bits(power ? power << 23 : 0x00400000u));
    }
#define WOVEN_AT(NAME, name, scales, floats, halves, bytes) case FORMAT_##NAME: return woven_at<FORMAT_##NAME>(unit, o, k);
    WOVEN_FIELDS(WOVEN_AT)
#undef WOVEN_AT
    default: return 0;
    }
}

#endif

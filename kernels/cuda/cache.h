/* Numbers of a KV cache (kernels/attention.h), read and written one by one. */
#ifndef MOE_KERNELS_CUDA_CACHE_H
#define MOE_KERNELS_CUDA_CACHE_H

#include "kernels/attention.h"
#include "kernels/cuda/dev.h"

/* The type of a number in memory. */
template <int FORMAT> struct cache_of { typedef uint16_t number; };
template <> struct cache_of<CACHE_F32> { typedef float number; };

DEVICE float cache_at(enum cache_format format, const void *cache, int64_t at)
{
    if (format == CACHE_F32)
        return ((const float *)cache)[at];
    uint16_t half = ((const uint16_t *)cache)[at];
    return format == CACHE_F16 ? widen_f16(half) : bf16_to_f32(half);
}

DEVICE void cache_put(enum cache_format format, void *cache, int64_t at, float value)
{
    if (format == CACHE_F32)
        ((float *)cache)[at] = value;
    else if (format == CACHE_BF16)
        ((uint16_t *)cache)[at] = f32_to_bf16(value);
    else
        ((uint16_t *)cache)[at] = f32_to_f16(value > 65504 ? 65504 : value < -65504 ? -65504 : value);
}

#endif

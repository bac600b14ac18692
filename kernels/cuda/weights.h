/* Weights of a unit (kernels/formats.h) as A fragments of the tensor core, converted to bf16 in registers.
 *
 * A unit has 32 outputs: two tiles of 16. Lane (g = lane / 4, t = lane % 4) reads 16 or 8 bytes of outputs 4g .. 4g+3, so that
 * a warp's load is one contiguous range of 512 or 256 bytes, and files need no other layout for a GPU: row g of tile i is
 * output 4g + 2i, row g + 8 is 4g + 2i + 1. A step is 64 inputs, four products of 16. Each format defines which inputs are in
 * which position (`input`), the same for weights and activations.
 *
 * A weight with more than the 8 significant bits of a bf16 is a sum of PIECES, each exact: f16 of 2, q4_k and q6_k of 3. Each
 * piece is one more product added to the same sum, in that order. fp8 is its code; its scale is applied to the sum of 128
 * inputs.
 *
 * Each struct has:  raw, the part of a step that a lane holds;  load, which loads the step that begins at input `first`, zeros
 * after the last input;  input, the first of the two neighbouring inputs in place (s, half) of lane t;  pair, the two weights
 * in that place, of output 4g + j. */
#ifndef MOE_KERNELS_CUDA_WEIGHTS_H
#define MOE_KERNELS_CUDA_WEIGHTS_H

#include "kernels/cuda/dev.h"
#include "kernels/formats.h"
#include "kernels/formats_coded.h"
#include "kernels/formats_woven.h"

enum { STEP_INPUTS_MMA = 64, STEP_PRODUCTS = 4 };

DEVICE uint32_t word_of(uint4 v, int j) { return j == 0 ? v.x : j == 1 ? v.y : j == 2 ? v.z : v.w; }
DEVICE uint32_t half_word_of(uint2 v, int j) { return ((j < 2 ? v.x : v.y) >> (j % 2 * 16)) & 0xffffu; }
DEVICE uint2 ld64(const void *address) { return *(const uint2 *)address; }

/* Returns the first, second or third 8 significant bits of a float as a float whose lower half is zero; the three add up to
 * the float. */
DEVICE float piece_of(float value, int piece)
{
    float high = float_from_bits(float_to_bits(value) & 0xffff0000u), rest = value - high;
    float middle = float_from_bits(float_to_bits(rest) & 0xffff0000u);
    return piece == 0 ? high : piece == 1 ? middle : rest - middle;
}

DEVICE uint32_t pair_of_floats(float low, float high)
{
    return float_to_bits(low) >> 16 | (float_to_bits(high) & 0xffff0000u);
}

/* Returns unit_bytes of formats.h, on host and device. */
static __host__ __device__ constexpr size_t unit_bytes_of(int format, int inputs)
{
    size_t n = (size_t)inputs;
#define UNIT_BYTES(NAME, name, kind, step, block, bytes) \
    case FORMAT_##NAME: return (n + (step) - 1) / (step) * ((step) / (block) * (bytes) * UNIT_OUTPUTS);
    switch (format) {
        WEIGHT_FORMATS(UNIT_BYTES)
    default: return 0;
    }
#undef UNIT_BYTES
}

/* Returns quantised_blocks of formats.h. */
DEVICE int input_blocks(int inputs) { return (inputs + BLOCK_INPUTS - 1) / BLOCK_INPUTS; }

/* Returns the number of inputs in a step of a unit. */
static __host__ __device__ constexpr int woven_step(int format)
{
#define STEP_OF(NAME, name, kind, step, block, bytes) case FORMAT_##NAME: return step;
    switch (format) {
        WEIGHT_FORMATS(STEP_OF)
    default: return 1;
    }
#undef STEP_OF
}

/* Returns weight `input` of output o of a unit of a woven format. */
template <int FORMAT> DEVICE float woven_at(const unsigned char *unit, int o, int input)
{
    constexpr int step = woven_step(FORMAT);
    constexpr size_t bytes = unit_bytes_of(FORMAT, step);
    return woven_weight((enum weight_format)FORMAT, unit + (size_t)(input / step) * bytes, UNIT_OUTPUTS, o, input % step);
}

template <int FORMAT> struct weights;

template <> struct weights<FORMAT_BF16> {
    enum { PIECES = 1 };
    struct raw { uint4 w[8]; };
    DEVICE void load(raw &r, const unsigned char *unit, int inputs, int first, int g, int t)
    {
        const unsigned char *at = unit + (size_t)(first / 2 + t) * UNIT_STEP_BYTES + g * 16;
        UNROLL for (int i = 0; i < 8; i++)
            r.w[i] = first + 2 * t + 8 * i < inputs ? ld128(at + 4 * i * UNIT_STEP_BYTES) : make_uint4(0, 0, 0, 0);
    }
    DEVICE int input(int s, int half, int t) { return 16 * s + 8 * half + 2 * t; }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int) { return word_of(r.w[2 * s + half], j); }
};

template <> struct weights<FORMAT_F16> {
    enum { PIECES = 2 };
    struct raw { uint2 even[8], odd[8]; };
    DEVICE void load(raw &r, const unsigned char *unit, int inputs, int first, int g, int t)
    {
        const unsigned char *at = unit + (size_t)(first / 2 + t) * UNIT_STEP_BYTES + g * 8;
        UNROLL for (int i = 0; i < 8; i++) {
            bool valid = first + 2 * t + 8 * i < inputs;
            r.even[i] = valid ? ld64(at + 4 * i * UNIT_STEP_BYTES) : make_uint2(0, 0);
            r.odd[i] = valid ? ld64(at + 4 * i * UNIT_STEP_BYTES + UNIT_STEP_BYTES / 2) : make_uint2(0, 0);
        }
    }
    DEVICE int input(int s, int half, int t) { return 16 * s + 8 * half + 2 * t; }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int piece)
    {
        float low = widen_f16((uint16_t)half_word_of(r.even[2 * s + half], j));
        float high = widen_f16((uint16_t)half_word_of(r.odd[2 * s + half], j));
        return pair_of_floats(piece_of(low, piece), piece_of(high, piece));
    }
};

/* The codes without a scale. Exponent and fraction of a code, at the bit positions of an f32, form the code times 2^-120. */
template <> struct weights<FORMAT_FP8> {
    enum { PIECES = 1 };
    struct raw { uint2 w[8]; };
    DEVICE void load(raw &r, const unsigned char *unit, int, int first, int g, int t)
    {
        const unsigned char *at = unit + (size_t)(first / FP8_BLOCK_INPUTS) * FP8_BLOCK_BYTES + FP8_CODES +
                                  (first % FP8_BLOCK_INPUTS / 2 + t) * FP8_PAIR_BYTES + g * 8;
        UNROLL for (int i = 0; i < 8; i++)
            r.w[i] = ld64(at + 4 * i * FP8_PAIR_BYTES);
    }
    DEVICE int input(int s, int half, int t) { return 16 * s + 8 * half + 2 * t; }
    DEVICE float code(uint32_t byte)
    {
        return float_from_bits((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;
    }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int)
    {
        uint32_t both = half_word_of(r.w[2 * s + half], j);
        return pair_of_floats(code(both & 0xffu), code(both >> 8));
    }
};

template <> struct weights<FORMAT_MXFP4> {
    enum { PIECES = 1 };
    struct raw { uint4 w[2]; uint32_t scale[2]; };
    DEVICE void load(raw &r, const unsigned char *unit, int, int first, int g, int t)
    {
        const unsigned char *at = unit + (size_t)(first / STEP_INPUTS_MMA) * MXFP4_PAIR_BYTES;
        UNROLL for (int i = 0; i < 2; i++) {
            r.scale[i] = *(const uint32_t *)(at + i * UNIT_OUTPUTS + g * 4);
            r.w[i] = ld128(at + MXFP4_GROUPS + (4 * i + t) * GROUP_BYTES + g * 16);
        }
    }
    DEVICE int input(int s, int half, int t) { return 32 * (s / 2) + 8 * t + 4 * (s % 2) + 2 * half; }
    DEVICE float value(uint32_t code, float scale)
    {
        return float_from_bits((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f * scale;
    }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int)
    {
        uint32_t codes = word_of(r.w[s / 2], j) >> (16 * (s % 2) + 8 * half), power = r.scale[s / 2] >> (8 * j) & 0xffu;
        float scale = float_from_bits(power ? power << 23 : 0x00400000u);
        return pair_of_floats(value(codes & 15u, scale), value(codes >> 4 & 15u, scale));
    }
};

template <> struct weights<FORMAT_Q4_K> {
    enum { PIECES = 3 };
    struct raw { uint4 w[2]; float factor[2][4], less[2][4]; };
    DEVICE void load(raw &r, const unsigned char *unit, int, int first, int g, int t)
    {
        const unsigned char *block = unit + (size_t)(first / SUPERBLOCK_INPUTS) * Q4_K_BLOCK_BYTES;
        int sub = first % SUPERBLOCK_INPUTS / 32;
        uint2 d = ld64(block + g * 8), minimum = ld64(block + Q4_K_MINIMA + g * 8);
        uint4 a = ld128(block + Q4_K_SCALES + g * 16), b = ld128(block + Q4_K_SCALES + GROUP_BYTES + g * 16);
        uint4 c = ld128(block + Q4_K_SCALES + 2 * GROUP_BYTES + g * 16);
        UNROLL for (int i = 0; i < 2; i++) {
            r.w[i] = ld128(block + Q4_K_GROUPS + (first % SUPERBLOCK_INPUTS / GROUP_INPUTS + 4 * i + t) * GROUP_BYTES + g * 16);
            int shift = (sub + i) % 4 * 8;
            bool low = sub + i < 4;
            UNROLL for (int j = 0; j < 4; j++) {
                uint32_t x = word_of(a, j) >> shift, y = word_of(b, j) >> shift, z = word_of(c, j) >> shift;
                uint32_t scale = low ? x & 63u : (z & 15u) | (x >> 6 & 3u) << 4;
                uint32_t min = low ? y & 63u : (z >> 4 & 15u) | (y >> 6 & 3u) << 4;
                r.factor[i][j] = widen_f16((uint16_t)half_word_of(d, j)) * (float)scale;
                r.less[i][j] = -(widen_f16((uint16_t)half_word_of(minimum, j)) * (float)min);
            }
        }
    }
    DEVICE int input(int s, int half, int t) { return 32 * (s / 2) + 8 * t + 4 * (s % 2) + 2 * half; }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int piece)
    {
        uint32_t codes = word_of(r.w[s / 2], j) >> (16 * (s % 2) + 8 * half);
        float low = fmaf(r.factor[s / 2][j], (float)(codes & 15u), r.less[s / 2][j]);
        float high = fmaf(r.factor[s / 2][j], (float)(codes >> 4 & 15u), r.less[s / 2][j]);
        return pair_of_floats(piece_of(low, piece), piece_of(high, piece));
    }
};

template <> struct weights<FORMAT_Q6_K> {
    enum { PIECES = 3 };
    struct raw { uint4 a, b, c; float factor[4]; };
    DEVICE void load(raw &r, const unsigned char *unit, int, int first, int g, int t)
    {
        const unsigned char *block = unit + (size_t)(first / SUPERBLOCK_INPUTS) * Q6_K_BLOCK_BYTES;
        int group = first % SUPERBLOCK_INPUTS / Q6_K_GROUP_INPUTS + t;
        const unsigned char *at = block + Q6_K_GROUPS + group * Q6_K_GROUP_BYTES + g * 16;
        uint2 d = ld64(block + g * 8);
        uint32_t scale = *(const uint32_t *)(block + Q6_K_SCALES + group * UNIT_OUTPUTS + g * 4);
        r.a = ld128(at);
        r.b = ld128(at + GROUP_BYTES);
        r.c = ld128(at + 2 * GROUP_BYTES);
        UNROLL for (int j = 0; j < 4; j++)
            r.factor[j] = widen_f16((uint16_t)half_word_of(d, j)) * (float)(int8_t)(scale >> (8 * j) & 0xffu);
    }
    DEVICE int input(int s, int half, int t) { return 16 * t + 4 * s + 2 * half; }
    DEVICE float value(const raw &r, int i, int j)
    {
        uint32_t a = word_of(r.a, j), b = word_of(r.b, j), c = word_of(r.c, j), q;
        if (i < 15)
            q = (i < 5 ? a : i < 10 ? b : c) >> (i % 5 * 6) & 63u;
        else
            q = a >> 30 | b >> 30 << 2 | c >> 30 << 4;
        return r.factor[j] * (float)((int)q - 32);
    }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j, int piece)
    {
        int i = 4 * s + 2 * half;
        return pair_of_floats(piece_of(value(r, i, j), piece), piece_of(value(r, i + 1, j), piece));
    }
};

/* Computes both tiles' fragments of product s of a step. */
template <int FORMAT>
DEVICE void weight_fragments(const typename weights<FORMAT>::raw &r, int s, int piece, uint32_t (&a)[2][4])
{
    UNROLL for (int i = 0; i < 2; i++)
        UNROLL for (int n = 0; n < 4; n++)
            a[i][n] = weights<FORMAT>::pair(r, s, n / 2, 2 * i + n % 2, piece);
}

/* ---- blocks of q8 and q4: integers of 32 inputs, two products ---- */

template <int FORMAT> struct blocks;

/* Converts two bytes to bf16, each less an offset; `bias` is 2^23 plus the offset. */
DEVICE uint32_t pair_of_bytes(uint32_t low, uint32_t high, float bias)
{
    const uint32_t magic = 0x4b000000u;                                  /* 2^23 with an integer added in its low bits */
    return pair_of_floats(float_from_bits(magic | low) - bias, float_from_bits(magic | high) - bias);
}

template <> struct blocks<FORMAT_Q8> {
    enum { BYTES = Q8_BLOCK_BYTES, SCALES = 1024 };
    struct raw { uint4 w[2]; };
    DEVICE void load(raw &r, const unsigned char *block, int g, int t)
    {
        r.w[0] = ld128(block + t * UNIT_STEP_BYTES + g * 16);
        r.w[1] = ld128(block + (t + 4) * UNIT_STEP_BYTES + g * 16);
    }
    DEVICE int input(int s, int t) { return 16 * s + 4 * t; }     /* the first of four */
    DEVICE uint32_t pair(const raw &r, int s, int half, int j)
    {
        uint32_t four = word_of(r.w[s], j) >> (16 * half);
        return pair_of_bytes(four & 0xffu, four >> 8 & 0xffu, 8388608.0f + 128);
    }
};

template <> struct blocks<FORMAT_Q4> {
    enum { BYTES = Q4_BLOCK_BYTES, SCALES = 512 };
    struct raw { uint4 w; };
    DEVICE void load(raw &r, const unsigned char *block, int g, int t)
    {
        r.w = ld128(block + t * UNIT_STEP_BYTES + g * 16);
    }
    DEVICE int input(int s, int t) { return 8 * t + 4 * s; }
    DEVICE uint32_t pair(const raw &r, int s, int half, int j)
    {
        uint32_t four = word_of(r.w, j) >> (16 * half + 4 * s);
        return pair_of_bytes(four & 15u, four >> 8 & 15u, 8388608.0f + 8);
    }
};

#endif

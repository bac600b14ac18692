/* The one product of a unit of weights with some rows, for every kernel that has weights and for every number of rows.
 *
 *     sums[i][o] = sum over k of weight[o][k] * x[row[i]][k],  o < 32, i < count
 *
 * BLOCK of 256 threads, a unit each: 8 warps with 4 KB of bf16 weights each on their way into registers (a STEP), and behind
 *     them the two steps after it on their way into the second-level cache. Rows are at most tile_tokens<F, T>().
 *
 * bf16, f16, fp8, mxfp4, q4_k, q6_k: tensor cores. An activation is the sum of three bf16 (its first, second and third 8 bits:
 *     exact), and each of them is a COLUMN of its own: 3i, 3i + 1, 3i + 2 of T tiles of 8. So f32 activations meet the weights
 *     unrounded, and one token needs no more products than a tile has room for. Inputs are cut into SLICES at borders that the
 *     shape alone fixes; a slice is one warp's chain of products from 0, ascending, whose three columns are added as
 *     first + (second + third); slices are added ascending (fp8: by fma with the scale of the 128 inputs that a slice is).
 *     A column's sums depend on that column and on the weights only, so neither the tile a row stands in nor its neighbours
 *     show in its bits. Slices are short because the tensor core cuts where an fma would round.
 * q8, q4: tensor cores on integers, which is exact: a block of 32 inputs is a sum of products of integers below 2^24. Blocks
 *     are joined one by one as formats.h has it: so the host's bits.
 * f32: fused multiply-adds in the order of linear.h, a lane an output: the host's bits. Such models are for checking, not for
 *     speed. */
#ifndef MOE_KERNELS_CUDA_TILE_H
#define MOE_KERNELS_CUDA_TILE_H

#include "kernels/cuda/weights.h"

enum { TILE_THREADS = 256, TILE_WARPS = 8, TILE_BLOCKS = 4, TILE_PARTS = 3, TILE_TOKENS_MAX = 16 };

__host__ __device__ constexpr bool tile_quantised(int format) { return format == FORMAT_Q8 || format == FORMAT_Q4; }

/* Rows that fit. */
template <int FORMAT, int T> __host__ __device__ constexpr int tile_tokens(void)
{
    return FORMAT == FORMAT_F32 ? TILE_TOKENS_MAX : tile_quantised(FORMAT) ? 8 : 8 * T / TILE_PARTS;
}

/* Floats of shared memory for terms. */
template <int FORMAT, int T> __host__ __device__ constexpr int tile_terms(void)
{
    return FORMAT == FORMAT_F32          ? 0
           : tile_quantised(FORMAT) ? TILE_WARPS * TILE_BLOCKS * 8 * UNIT_OUTPUTS
                                         : TILE_WARPS * 8 * T * UNIT_OUTPUTS;
}

/* Blocks that a processor has room for at least: as many as all processors' registers allow without spills. */
template <int FORMAT, int T> __host__ __device__ constexpr int tile_resident(void)
{
    bool wide = FORMAT == FORMAT_F16 || FORMAT == FORMAT_Q4_K || FORMAT == FORMAT_Q6_K;
    return T == 6 ? 1 : T == 3 || wide ? 2 : 3;
}

/* What a kernel keeps in its shared memory. */
template <int FORMAT, int T> struct tile_memory {
    float terms[tile_terms<FORMAT, T>() + 4];
    float sums[TILE_TOKENS_MAX * UNIT_OUTPUTS];
    int row[TILE_TOKENS_MAX];
};

struct tile_in {
    const float *x;                     /* rows of stride floats; not for q8 and q4 */
    const struct quantised *quantised;  /* rows of quantised_blocks(inputs) */
    int64_t stride;
    int inputs, count;                  /* rows of this tile */
    bool asks;                          /* for weights ahead; false: another block does */
};

/* Inputs of a slice: about an eighth of all, so that the warps of a block share them. */
template <int FORMAT> DEVICE int slice_inputs(int inputs)
{
    if (FORMAT == FORMAT_FP8)
        return FP8_BLOCK_INPUTS;
    int each = (inputs + TILE_WARPS * STEP_INPUTS_MMA - 1) / (TILE_WARPS * STEP_INPUTS_MMA);
    return (each < 4 ? each : 4) * STEP_INPUTS_MMA;
}

/* Inputs of a warp's step. */
template <int FORMAT> __host__ __device__ constexpr int tile_step(void)
{
    return FORMAT == FORMAT_F32 ? BLOCK_INPUTS : tile_quantised(FORMAT) ? TILE_BLOCKS * BLOCK_INPUTS : STEP_INPUTS_MMA;
}

/* Where the warp's first step begins. */
template <int FORMAT> DEVICE int tile_first(int inputs)
{
    bool slices = FORMAT != FORMAT_F32 && !tile_quantised(FORMAT);
    return warp_id() * (slices ? slice_inputs<FORMAT>(inputs) : tile_step<FORMAT>());
}

/* A warp asks for the weights of its step that begins at `first`, if there is one, to come into the second-level cache. */
template <int FORMAT> DEVICE void tile_ask(const unsigned char *unit, int inputs, int first)
{
    int end = first + tile_step<FORMAT>() < inputs ? first + tile_step<FORMAT>() : inputs;
    size_t from = unit_bytes_of(FORMAT, first), to = unit_bytes_of(FORMAT, end);
    if (lane_id() == 0 && first < inputs && from < to)
        prefetch(unit + from, to - from);
}

/* The first step of each warp, as early as weights are known: 32 KB a block, so that all blocks of a processor together leave
 * room in the cache for what they ask for later. */
template <int FORMAT> DEVICE void tile_prefetch(const unsigned char *unit, int inputs)
{
    tile_ask<FORMAT>(unit, inputs, tile_first<FORMAT>(inputs));
}

/* Puts a warp's product, for outputs 4g .. 4g+3 and columns 2t and 2t + 1 of a tile, into terms [column][32]. */
DEVICE void put_terms(float *terms, const float (&acc)[2][4], int g, int t)
{
    float4 *even = (float4 *)(terms + 2 * t * UNIT_OUTPUTS + 4 * g), *odd = even + UNIT_OUTPUTS / 4;
    *even = make_float4(acc[0][0], acc[0][2], acc[1][0], acc[1][2]);
    *odd = make_float4(acc[0][1], acc[0][3], acc[1][1], acc[1][3]);
}

/* The chain of one slice, first .. end-1. */
template <int FORMAT, int T>
DEVICE void tile_slice(const unsigned char *unit, const struct tile_in &in, const int *row, int first, int end,
                       float (&acc)[T][2][4])
{
    int g = lane_id() / 4, t = lane_id() % 4, tiles = (in.count * TILE_PARTS + 7) / 8;
    const float *x[T];
    UNROLL for (int n = 0; n < T; n++) {
        int token = (8 * n + g) / TILE_PARTS;
        x[n] = token < in.count ? in.x + row[token] * in.stride : nullptr;
        UNROLL for (int i = 0; i < 4; i++)
            acc[n][0][i] = acc[n][1][i] = 0;
    }
    for (int k = first; k < end; k += STEP_INPUTS_MMA) {
        typename weights<FORMAT>::raw raw;
        int ahead = k + 2 * STEP_INPUTS_MMA;
        if (ahead >= end)                        /* in the warp's next slice */
            ahead += (TILE_WARPS - 1) * slice_inputs<FORMAT>(in.inputs);
        if (in.asks)
            tile_ask<FORMAT>(unit, in.inputs, ahead);
        weights<FORMAT>::load(raw, unit, in.inputs, k, g, t);
        UNROLL for (int s = 0; s < STEP_PRODUCTS; s++) {
            uint32_t a[weights<FORMAT>::PIECES][2][4];
            UNROLL for (int piece = 0; piece < weights<FORMAT>::PIECES; piece++)
                weight_fragments<FORMAT>(raw, s, piece, a[piece]);
            UNROLL for (int n = 0; n < T; n++)
                if (n < tiles) {
                    uint32_t b[2];
                    int part = (8 * n + g) % TILE_PARTS;
                    UNROLL for (int half = 0; half < 2; half++) {
                        int i = k + weights<FORMAT>::input(s, half, t);
                        float low = x[n] && i < in.inputs ? x[n][i] : 0, high = x[n] && i + 1 < in.inputs ? x[n][i + 1] : 0;
                        b[half] = pair_of_floats(piece_of(low, part), piece_of(high, part));
                    }
                    UNROLL for (int piece = 0; piece < weights<FORMAT>::PIECES; piece++) {
                        mma16816(acc[n][0], a[piece][0], b);
                        mma16816(acc[n][1], a[piece][1], b);
                    }
                }
        }
    }
}

template <int FORMAT, int T> struct tile_product {
    DEVICE void run(const unsigned char *unit, const struct tile_in &in, tile_memory<FORMAT, T> *memory)
    {
        constexpr int COLUMNS = 8 * T, EACH = (tile_tokens<FORMAT, T>() * UNIT_OUTPUTS + TILE_THREADS - 1) / TILE_THREADS;
        int width = slice_inputs<FORMAT>(in.inputs), slices = (in.inputs + width - 1) / width;
        int g = lane_id() / 4, t = lane_id() % 4, o = lane_id();
        float total[EACH];
        if (in.asks)
            tile_ask<FORMAT>(unit, in.inputs, tile_first<FORMAT>(in.inputs) + STEP_INPUTS_MMA);
        UNROLL for (int i = 0; i < EACH; i++)
            total[i] = 0;
        for (int round = 0; round < slices; round += TILE_WARPS) {
            int slice = round + warp_id();
            if (slice < slices) {
                float acc[T][2][4];
                int end = (slice + 1) * width < in.inputs ? (slice + 1) * width : in.inputs;
                tile_slice<FORMAT, T>(unit, in, memory->row, slice * width, end, acc);
                UNROLL for (int n = 0; n < T; n++)
                    put_terms(memory->terms + (warp_id() * COLUMNS + 8 * n) * UNIT_OUTPUTS, acc[n], g, t);
            }
            __syncthreads();
            UNROLL for (int i = 0; i < EACH; i++) {
                int token = warp_id() + TILE_WARPS * i;
                for (int w = 0; w < TILE_WARPS && round + w < slices && token < in.count; w++) {
                    const float *term = memory->terms + (w * COLUMNS + TILE_PARTS * token) * UNIT_OUTPUTS + o;
                    float sum = term[0] + (term[UNIT_OUTPUTS] + term[2 * UNIT_OUTPUTS]);
                    if (FORMAT == FORMAT_FP8) {
                        float scale = ((const float *)(unit + (size_t)(round + w) * FP8_BLOCK_BYTES))[o];
                        total[i] = fmaf(scale, sum, total[i]);
                    } else {
                        total[i] = total[i] + sum;
                    }
                }
            }
            __syncthreads();
        }
        UNROLL for (int i = 0; i < EACH; i++)
            if (warp_id() + TILE_WARPS * i < in.count)
                memory->sums[(warp_id() + TILE_WARPS * i) * UNIT_OUTPUTS + o] = total[i];
        __syncthreads();
    }
};

/* q8 and q4: a warp turns TILE_BLOCKS neighbouring blocks into integers a round; then a thread, which owns an output of a row,
 * joins the blocks of all warps in their order. */
template <int FORMAT> struct tile_integers {
    DEVICE void block(const unsigned char *unit, const struct tile_in &in, const int *row, int number, float *terms)
    {
        int g = lane_id() / 4, t = lane_id() % 4;
        typename blocks<FORMAT>::raw raw;
        float acc[2][4] = {{0, 0, 0, 0}, {0, 0, 0, 0}};
        blocks<FORMAT>::load(raw, unit + (size_t)number * blocks<FORMAT>::BYTES, g, t);
        const struct quantised *x = in.quantised;
        x = g < in.count ? x + (int64_t)row[g] * input_blocks(in.inputs) + number : nullptr;
        UNROLL for (int s = 0; s < 2; s++) {
            uint32_t a[2][4], b[2];
            uint32_t four = x ? *(const uint32_t *)(x->q + blocks<FORMAT>::input(s, t)) : 0;
            UNROLL for (int half = 0; half < 2; half++) {
                uint32_t both = four >> (16 * half);
                b[half] = pair_of_floats((float)(int8_t)(both & 0xffu), (float)(int8_t)(both >> 8 & 0xffu));
            }
            UNROLL for (int i = 0; i < 2; i++)
                UNROLL for (int n = 0; n < 4; n++)
                    a[i][n] = blocks<FORMAT>::pair(raw, s, n / 2, 2 * i + n % 2);
            mma16816(acc[0], a[0], b);
            mma16816(acc[1], a[1], b);
        }
        put_terms(terms, acc, g, t);
    }

    DEVICE void run(const unsigned char *unit, const struct tile_in &in, float *terms, float *sums, const int *row)
    {
        int count = input_blocks(in.inputs), o = lane_id(), token = warp_id();
        float total = 0;
        if (in.asks)
            tile_ask<FORMAT>(unit, in.inputs, tile_first<FORMAT>(in.inputs) + TILE_WARPS * tile_step<FORMAT>());
        for (int round = 0; round < count; round += TILE_WARPS * TILE_BLOCKS) {
            int first = round + warp_id() * TILE_BLOCKS;
            if (in.asks)
                tile_ask<FORMAT>(unit, in.inputs, first * BLOCK_INPUTS + 2 * TILE_WARPS * tile_step<FORMAT>());
            UNROLL for (int i = 0; i < TILE_BLOCKS; i++)
                if (first + i < count)
                    block(unit, in, row, first + i, terms + (warp_id() * TILE_BLOCKS + i) * 8 * UNIT_OUTPUTS);
            __syncthreads();
            for (int i = 0; i < TILE_WARPS * TILE_BLOCKS && round + i < count && token < in.count; i++) {
                const unsigned char *at = unit + (size_t)(round + i) * blocks<FORMAT>::BYTES + blocks<FORMAT>::SCALES;
                float scale = widen_f16(((const uint16_t *)at)[o]);
                total = fmaf(terms[(i * 8 + token) * UNIT_OUTPUTS + o],
                             scale * in.quantised[(int64_t)row[token] * count + round + i].scale, total);
            }
            __syncthreads();
        }
        if (token < in.count)
            sums[token * UNIT_OUTPUTS + o] = total;
        __syncthreads();
    }
};

template <int T> struct tile_product<FORMAT_Q8, T> {
    DEVICE void run(const unsigned char *unit, const struct tile_in &in, tile_memory<FORMAT_Q8, T> *memory)
    {
        tile_integers<FORMAT_Q8>::run(unit, in, memory->terms, memory->sums, memory->row);
    }
};

template <int T> struct tile_product<FORMAT_Q4, T> {
    DEVICE void run(const unsigned char *unit, const struct tile_in &in, tile_memory<FORMAT_Q4, T> *memory)
    {
        tile_integers<FORMAT_Q4>::run(unit, in, memory->terms, memory->sums, memory->row);
    }
};

template <int T> struct tile_product<FORMAT_F32, T> {
    DEVICE void run(const unsigned char *unit, const struct tile_in &in, tile_memory<FORMAT_F32, T> *memory)
    {
        const float *weight = (const float *)unit + lane_id();
        for (int token = warp_id(); token < in.count; token += TILE_WARPS) {
            const float *x = in.x + memory->row[token] * in.stride;
            float even = 0, odd = 0;
            int k = 0;
            for (; k + 1 < in.inputs; k += 2) {
                even = fmaf(weight[(size_t)k * UNIT_OUTPUTS], x[k], even);
                odd = fmaf(weight[(size_t)(k + 1) * UNIT_OUTPUTS], x[k + 1], odd);
            }
            if (k < in.inputs)
                even = fmaf(weight[(size_t)k * UNIT_OUTPUTS], x[k], even);
            memory->sums[token * UNIT_OUTPUTS + lane_id()] = even + odd;
        }
        __syncthreads();
    }
};

/* TILE_LAUNCH(kernel, format, tokens, grid, stream, args...): kernel<FORMAT, T> for a format and a number of rows of one tile
 * that are known when it is called. */
#define TILE_LAUNCH_AS(kernel, F, T, grid, stream, ...) \
    LAUNCH_PDL((kernel<F, T>), grid, dim3(TILE_THREADS), sizeof(tile_memory<F, T>), stream, __VA_ARGS__)
#define TILE_LAUNCH_TENSOR(kernel, F, tokens, grid, stream, ...)               \
    do {                                                                       \
        if ((tokens) <= 2)                                                     \
            TILE_LAUNCH_AS(kernel, F, 1, grid, stream, __VA_ARGS__);           \
        else if ((tokens) <= 8)                                                \
            TILE_LAUNCH_AS(kernel, F, 3, grid, stream, __VA_ARGS__);           \
        else                                                                   \
            TILE_LAUNCH_AS(kernel, F, 6, grid, stream, __VA_ARGS__);           \
    } while (0)
#define TILE_LAUNCH(kernel, format, tokens, grid, stream, ...)                                                 \
    do {                                                                                                       \
        switch (format) {                                                                                      \
        case FORMAT_F32: TILE_LAUNCH_AS(kernel, FORMAT_F32, 1, grid, stream, __VA_ARGS__); break;              \
        case FORMAT_Q8: TILE_LAUNCH_AS(kernel, FORMAT_Q8, 1, grid, stream, __VA_ARGS__); break;                \
        case FORMAT_Q4: TILE_LAUNCH_AS(kernel, FORMAT_Q4, 1, grid, stream, __VA_ARGS__); break;                \
        case FORMAT_F16: TILE_LAUNCH_TENSOR(kernel, FORMAT_F16, tokens, grid, stream, __VA_ARGS__); break;     \
        case FORMAT_BF16: TILE_LAUNCH_TENSOR(kernel, FORMAT_BF16, tokens, grid, stream, __VA_ARGS__); break;   \
        case FORMAT_FP8: TILE_LAUNCH_TENSOR(kernel, FORMAT_FP8, tokens, grid, stream, __VA_ARGS__); break;     \
        case FORMAT_MXFP4: TILE_LAUNCH_TENSOR(kernel, FORMAT_MXFP4, tokens, grid, stream, __VA_ARGS__); break; \
        case FORMAT_Q4_K: TILE_LAUNCH_TENSOR(kernel, FORMAT_Q4_K, tokens, grid, stream, __VA_ARGS__); break;   \
        default: TILE_LAUNCH_TENSOR(kernel, FORMAT_Q6_K, tokens, grid, stream, __VA_ARGS__); break;            \
        }                                                                                                      \
    } while (0)

/* Rows of one tile when there are `rows` in all: as many as fit, of the smallest kernel that takes them. */
static inline int tile_rows(enum weight_format format, int rows)
{
    int most = format_quantised(format) ? 8 : TILE_TOKENS_MAX;
    return rows <= 2 ? 2 : rows <= 8 ? 8 : most;
}

#endif

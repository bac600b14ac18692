/* The product of a unit of weights with some rows, for all kernels with weights and for any number of rows.
 *
 *     sums[i][o] = sum over k of weight[o][k] * x[row[i]][k],  o < 32, i < count
 *
 * BLOCK of 256 threads, one unit per block: each of 8 warps has 4 KB of bf16 weights in flight to registers (a STEP), and the
 *     two following steps in flight to the second-level cache. There are at most TILE_TOKENS_MAX rows. Their number is known
 *     only when the kernel runs, and determines there how much is computed: one kernel serves 1 row, 2, 8 and 16. A launch of
 *     at most TILE_FEW rows uses a separate kernel (FEW), with the sums of one tile of columns instead of six: it needs fewer
 *     registers, so more of its blocks fit on a multiprocessor. Its bits are the same.
 *
 * bf16, f16, fp8, mxfp4, q4_k, q6_k: tensor cores. An activation is the exact sum of three bf16 (its first, second and third 8
 *     bits), each of which is a separate COLUMN: 3i, 3i + 1, 3i + 2 of tiles of 8. So f32 activations are multiplied with the
 *     weights unrounded, and the columns of one token fit into one tile. Inputs are divided into SLICES at borders that the
 *     shape alone determines; a slice is one warp's chain of products from 0, ascending, whose three columns are added as first
 *     + (second + third); slices are added in ascending order (fp8: by fma with the scale of the 128 inputs that form a slice).
 *     A unit's slices may be distributed over several blocks (linear.cu): each block stores the sums of its slices in device
 *     memory, and the block that ends last adds all of them in the same order, so the number of blocks changes no bit.
 *     A column's sums depend on that column and on the weights only, so neither a row's tile nor the other rows of the tile
 *     change its bits. Slices are short because the tensor core truncates where an fma would round.
 *     A warp starts to load the activations of a step, two neighbours per lane, before the weights, and stores their columns
 *     in its part of shared memory while the weights are in flight: only products remain after the weights have arrived.
 * q8, q4: tensor cores on integers, which is exact: a block of 32 inputs is a sum of products of integers below 2^24. Blocks
 *     are joined one by one as formats.h specifies, so the bits are the host's.
 * f32: fused multiply-adds in the order of linear.h, one lane per output: the host's bits. Such models are for checking, not
 *     for speed. */
#ifndef MOE_KERNELS_CUDA_TILE_H
#define MOE_KERNELS_CUDA_TILE_H

#include "kernels/cuda/weights.h"

enum { TILE_THREADS = 256, TILE_WARPS = 8, TILE_BLOCKS = 4, TILE_PARTS = 3, TILE_TOKENS_MAX = 16, TILE_FEW = 2, TILE_SOME = 8,
       TILE_TILES = TILE_TOKENS_MAX * TILE_PARTS / 8 };

/* Words between columns in which a warp stores activations: the pairs of inputs of a step, and two more, so that lanes that
 * read at the same time read from different banks. */
enum { TILE_PITCH = STEP_INPUTS_MMA / 2 + 2 };

__host__ __device__ constexpr bool tile_quantised(int format) { return format == FORMAT_Q8 || format == FORMAT_Q4; }

/* Returns the number of columns computed for `rows` rows: those of tile 0, of tiles 0 .. 2, or all. */
__host__ __device__ constexpr int tile_columns(int rows)
{
    return rows <= TILE_FEW ? 8 : rows <= TILE_SOME ? 24 : 8 * TILE_TILES;
}

/* A kernel's shared memory; the terms follow, tile_terms floats per warp. */
struct tile_memory {
    float sums[TILE_TOKENS_MAX * UNIT_OUTPUTS];
    int row[TILE_TOKENS_MAX];
};

/* Returns the floats of shared memory for a warp's operands and results, when no item has more than `rows` rows. */
__host__ __device__ constexpr int tile_terms(int format, int rows)
{
    return format == FORMAT_F32 ? 0 : tile_quantised(format) ? TILE_BLOCKS * 8 * UNIT_OUTPUTS : tile_columns(rows) * TILE_PITCH;
}

static inline size_t tile_bytes(int format, int rows)
{
    return sizeof(struct tile_memory) + (size_t)(TILE_WARPS * tile_terms(format, rows)) * sizeof(float);
}

/* Returns whether a format has a separate kernel for at most TILE_FEW rows. Three blocks of such a kernel fit on a
 * multiprocessor. */
__host__ __device__ constexpr bool tile_has_few(int format)
{
    return format != FORMAT_F32 && format != FORMAT_F16 && !tile_quantised(format);
}

/* Returns whether the kernel computes a single tile of columns. On Blackwell the kernel of fp8 does not: three of its blocks
 * would spill registers. */
__host__ __device__ constexpr bool tile_is_few(int format, bool few)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    return few && format != FORMAT_FP8;
#else
    return few && tile_has_few(format);
#endif
}

/* Returns the minimum number of blocks that fit on a multiprocessor: the most that the registers of all supported architectures
 * permit without spills. */
template <int FORMAT, bool FEW> __host__ __device__ constexpr int tile_resident(void)
{
    return FORMAT == FORMAT_F32 || tile_quantised(FORMAT) || tile_is_few(FORMAT, FEW) ? 3 : 2;
}

/* Returns the number of tiles of columns that a kernel can compute. */
template <int FORMAT, bool FEW> __host__ __device__ constexpr int tile_tiles(void)
{
    return tile_is_few(FORMAT, FEW) ? 1 : (int)TILE_TILES;
}

/* Describes how the products of a launch are divided. */
struct tile_cut {
    int rows;                           /* max rows of a tile, as passed to tile_bytes */
    int width, slices;                  /* inputs of a slice; slices of a block: all of a unit, or rounds of warps */
    float *parts;                       /* the sums of slices, [unit of a tile][slice][row][32 outputs]; NULL: not
                                         * distributed */
    unsigned *tickets;                  /* [unit of a tile] counters of finished blocks; zeros before and after a launch.
                                         * NULL: the kernel joins the parts itself */
};

/* A narrow matrix has fewer units than a GPU needs blocks: its slices are shorter, so that more blocks can share them. */
enum { TILE_NARROW = 256 };

static inline int tile_width(int format, int inputs, int units)
{
    int steps = (inputs + STEP_INPUTS_MMA - 1) / STEP_INPUTS_MMA, each = (steps + TILE_WARPS - 1) / TILE_WARPS;
    each = each < 4 ? each : 4;
    while (each > 1 && units * ((steps + TILE_WARPS * each - 1) / (TILE_WARPS * each)) < TILE_NARROW)
        each = (each + 1) / 2;
    return format == FORMAT_FP8 ? FP8_BLOCK_INPUTS : each * STEP_INPUTS_MMA;
}

/* Returns the division in which one block computes all slices of a unit. */
static inline struct tile_cut tile_whole(int format, int inputs, int rows)
{
    return {rows, tile_width(format, inputs, TILE_NARROW), inputs, nullptr, nullptr};
}

struct tile_in {
    const float *x;                     /* rows at this stride, in floats; not for q8 and q4 */
    const struct quantised *quantised;  /* rows of quantised_blocks(inputs) */
    int64_t stride;
    int inputs, count;                  /* rows of this tile */
    bool prefetches;                    /* prefetches weights; false: another block does */
};

/* Returns the number of inputs in a warp's step. */
template <int FORMAT> __host__ __device__ constexpr int tile_step(void)
{
    return FORMAT == FORMAT_F32 ? BLOCK_INPUTS : tile_quantised(FORMAT) ? TILE_BLOCKS * BLOCK_INPUTS : STEP_INPUTS_MMA;
}

/* Returns the first input of the warp's first step, in a block whose first slice is `slice`. */
template <int FORMAT> DEVICE int tile_first(const struct tile_cut &cut, int slice)
{
    return FORMAT == FORMAT_F32 || tile_quantised(FORMAT) ? warp_id() * tile_step<FORMAT>() : (slice + warp_id()) * cut.width;
}

/* Prefetches the warp's weights of the step that begins at `first` into the second-level cache; no-op if there is no such
 * step. */
template <int FORMAT> DEVICE void tile_prefetch(const unsigned char *unit, int inputs, int first)
{
    int end = first + tile_step<FORMAT>() < inputs ? first + tile_step<FORMAT>() : inputs;
    size_t from = unit_bytes_of(FORMAT, first), to = unit_bytes_of(FORMAT, end);
    if (lane_id() == 0 && first < inputs && from < to)
        prefetch(unit + from, to - from);
}

/* Prefetches the first step of each warp as soon as the address of the weights is known: 32 KB per block, so that all blocks of
 * a multiprocessor together leave room in the cache for later prefetches. */
template <int FORMAT> DEVICE void tile_prefetch(const unsigned char *unit, int inputs, const struct tile_cut &cut, int slice)
{
    tile_prefetch<FORMAT>(unit, inputs, tile_first<FORMAT>(cut, slice));
}

/* Stores a warp's product, for outputs 4g .. 4g+3 and columns 2t and 2t + 1 of a tile, in terms [column][32]. */
DEVICE void put_terms(float *terms, const float (&acc)[2][4], int g, int t)
{
    float4 *even = (float4 *)(terms + 2 * t * UNIT_OUTPUTS + 4 * g), *odd = even + UNIT_OUTPUTS / 4;
    *even = make_float4(acc[0][0], acc[0][2], acc[1][0], acc[1][2]);
    *odd = make_float4(acc[0][1], acc[0][3], acc[1][1], acc[1][3]);
}

/* Loads a lane's activations of a step: two neighbours of one row, zeros after the last input. `left`: number of inputs from
 * the first of the two on. */
DEVICE void tile_pair(const float *x, int left, float (&pair)[2])
{
    pair[0] = left > 0 ? x[0] : 0;
    pair[1] = left > 1 ? x[1] : 0;
}

/* Stores the columns of up to N rows at the addresses from which the lanes of the products read them: `word` is the lane's
 * address of the first row's first column. */
template <int N> DEVICE void tile_put(float *word, int count, const float (&pair)[N][2])
{
    UNROLL for (int n = 0; n < N; n++)
        UNROLL for (int part = 0; part < TILE_PARTS; part++)
            if (n < count)
                word[(n * TILE_PARTS + part) * TILE_PITCH] =
                    float_from_bits(pair_of_floats(piece_of(pair[n][0], part), piece_of(pair[n][1], part)));
}

/* Adds the products of 16 inputs, for all pieces of the weights, to the columns of tiles FIRST .. END-1. */
template <int PIECES, int FIRST, int END, int TILES>
DEVICE void tile_multiply(const uint32_t (&a)[PIECES][2][4], const float *from, float (&acc)[TILES][2][4])
{
    UNROLL for (int n = FIRST; n < END; n++) {
        float2 two = *(const float2 *)(from + 8 * n * TILE_PITCH);
        uint32_t b[2] = {float_to_bits(two.x), float_to_bits(two.y)};
        UNROLL for (int piece = 0; piece < PIECES; piece++) {
            mma16816(acc[n][0], a[piece][0], b);
            mma16816(acc[n][1], a[piece][1], b);
        }
    }
}

/* Computes the chain of one slice, inputs first .. end-1, with the warp's part of shared memory. Lane l writes the word that
 * lane l / 8 of the group of four reads as its (l % 8)th word. */
template <int FORMAT, int TILES>
DEVICE void tile_slice(const unsigned char *unit, const struct tile_in &in, int width, const int *row, int first, int end,
                       float *part, float (&acc)[TILES][2][4])
{
    constexpr bool FEW = TILES < TILE_TILES;
    constexpr int PIECES = weights<FORMAT>::PIECES;
    constexpr int MORE = PIECES > 2 || FORMAT == FORMAT_MXFP4 ? 3 : 6;    /* rows loaded at a time, limited by registers */
    int lane = lane_id(), g = lane / 4, t = lane % 4, own = weights<FORMAT>::input(lane % 8 / 2, lane % 2, lane / 8);
    float *word = part + lane;
    UNROLL for (int n = 0; n < TILES; n++)
        UNROLL for (int i = 0; i < 4; i++)
            acc[n][0][i] = acc[n][1][i] = 0;
    for (int column = TILE_PARTS * in.count; column < tile_columns(in.count); column++)
        word[column * TILE_PITCH] = 0;
    for (int k = first; k < end; k += STEP_INPUTS_MMA) {
        typename weights<FORMAT>::raw raw;
        float pair[TILE_FEW][2], more[MORE][2];
        const float *x = in.x + own + k;
        int left = in.inputs - own - k, ahead = k + 2 * STEP_INPUTS_MMA;
        tile_pair(x + row[0] * in.stride, left, pair[0]);
        if (in.count > 1)
            tile_pair(x + row[1] * in.stride, left, pair[1]);
        weights<FORMAT>::load(raw, unit, in.inputs, k, g, t);
        if (ahead >= end)                        /* the step is in the warp's next slice */
            ahead += (TILE_WARPS - 1) * width;
        if (in.prefetches)
            tile_prefetch<FORMAT>(unit, in.inputs, ahead);
        __syncwarp();
        tile_put(word, in.count, pair);
        for (int n = TILE_FEW; !FEW && n < in.count; n += MORE) {
            UNROLL for (int i = 0; i < MORE; i++)
                if (n + i < in.count)
                    tile_pair(x + row[n + i] * in.stride, left, more[i]);
            tile_put(word + n * TILE_PARTS * TILE_PITCH, in.count - n, more);
        }
        __syncwarp();
        UNROLL for (int s = 0; s < STEP_PRODUCTS; s++) {
            const float *from = part + g * TILE_PITCH + t * 8 + 2 * s;
            uint32_t a[PIECES][2][4];
            UNROLL for (int piece = 0; piece < PIECES; piece++)
                weight_fragments<FORMAT>(raw, s, piece, a[piece]);
            tile_multiply<PIECES, 0, 1>(a, from, acc);
            if (!FEW && in.count > TILE_FEW)
                tile_multiply<PIECES, 1, FEW ? 1 : 3>(a, from, acc);
            if (!FEW && in.count > TILE_SOME)
                tile_multiply<PIECES, 3, TILES>(a, from, acc);
        }
    }
    __syncwarp();
}

/* Adds a slice's scaled sum to a total. */
template <int FORMAT> DEVICE float tile_add(const unsigned char *unit, int slice, float sum, float total)
{
    if (FORMAT != FORMAT_FP8)
        return total + sum;
    return fmaf(((const float *)(unit + (size_t)slice * FP8_BLOCK_BYTES))[lane_id()], sum, total);
}

/* For grids (units, tiles, blocks of a unit): return the block's first slice, its index in tickets, and its address in parts.
 * Recomputed at each use to save registers. */
DEVICE int spread_slice(const struct tile_cut &cut) { return (int)blockIdx.z * cut.slices; }
DEVICE int64_t spread_tile(void) { return (int64_t)blockIdx.y * gridDim.x + blockIdx.x; }
DEVICE float *spread_parts(const struct tile_cut &cut, int slices)
{
    return cut.parts + spread_tile() * slices * cut.rows * UNIT_OUTPUTS;
}

/* Returns whether this block is the last of the `blocks` that share a ticket; that block sees all that the others wrote. All
 * threads receive the result. */
DEVICE bool spread_last(unsigned *ticket, unsigned blocks)
{
    SHARED(int, last, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last[0] = atomicInc(ticket, blocks - 1) == blocks - 1;
        __threadfence();
    }
    __syncthreads();
    return last[0];
}

/* Adds `slices` parts [count][32] to memory->sums through shared memory, as many at a time as fit. */
template <int FORMAT>
DEVICE void spread_join(const unsigned char *unit, const float *parts, int slices, int count, int room,
                        struct tile_memory *memory)
{
    float *held = (float *)(memory + 1);
    int each = count * UNIT_OUTPUTS, max = TILE_WARPS * room / each;
    for (int first = 0; first < slices; first += max) {
        int many = min(max, slices - first);
        for (int i = (int)threadIdx.x; i < many * each; i += TILE_THREADS)
            held[i] = parts[first * each + i];
        __syncthreads();
        for (int i = (int)threadIdx.x; i < each; i += TILE_THREADS) {
            float total = first ? memory->sums[i] : 0;
            for (int slice = 0; slice < many; slice++)
                total = tile_add<FORMAT>(unit, first + slice, held[slice * each + i], total);
            memory->sums[i] = total;
        }
        __syncthreads();
    }
}

/* run: computes memory->sums of the tile's rows; returns false if another block finishes them. SPREAD: units may be divided
 * among blocks (cut.parts). FEW: no tile has more than TILE_FEW rows. */
template <int FORMAT, bool SPREAD, bool FEW> struct tile_product {
    DEVICE bool run(const unsigned char *unit, const struct tile_in &in, const struct tile_cut &cut, struct tile_memory *memory)
    {
        int slices = (in.inputs + cut.width - 1) / cut.width, begin = SPREAD ? spread_slice(cut) : 0;
        int end = SPREAD ? min(begin + cut.slices, slices) : slices;
        int room = tile_terms(FORMAT, cut.rows), o = lane_id();
        float *terms = (float *)(memory + 1);
        if (in.prefetches)
            tile_prefetch<FORMAT>(unit, in.inputs, tile_first<FORMAT>(cut, begin) + STEP_INPUTS_MMA);
        for (int round = begin; round < end; round += TILE_WARPS) {
            int first = (round + warp_id()) * cut.width;
            if (round + warp_id() < end) {
                float acc[tile_tiles<FORMAT, FEW>()][2][4], *part = terms + warp_id() * room;
                tile_slice<FORMAT>(unit, in, cut.width, memory->row, first, min(first + cut.width, in.inputs), part, acc);
                UNROLL for (int n = 0; n < tile_tiles<FORMAT, FEW>(); n++)
                    if (8 * n < tile_columns(in.count))
                        put_terms(part + 8 * n * UNIT_OUTPUTS, acc[n], o / 4, o % 4);
            }
            __syncthreads();
            for (int token = warp_id(); token < in.count; token += TILE_WARPS) {
                float total = round > begin ? memory->sums[token * UNIT_OUTPUTS + o] : 0;
                for (int w = 0; w < TILE_WARPS && round + w < end; w++) {
                    const float *term = terms + w * room + TILE_PARTS * token * UNIT_OUTPUTS + o;
                    float sum = term[0] + (term[UNIT_OUTPUTS] + term[2 * UNIT_OUTPUTS]);
                    if (SPREAD && cut.parts)
                        spread_parts(cut, slices)[((round + w) * in.count + token) * UNIT_OUTPUTS + o] = sum;
                    else
                        total = tile_add<FORMAT>(unit, round + w, sum, total);
                }
                memory->sums[token * UNIT_OUTPUTS + o] = total;
            }
            __syncthreads();
        }
        if (SPREAD && cut.parts) {
            if (!cut.tickets || !spread_last(cut.tickets + spread_tile(), gridDim.z))
                return false;
            spread_join<FORMAT>(unit, spread_parts(cut, slices), slices, in.count, room, memory);
        }
        return true;
    }
};

/* q8 and q4: in each round a warp multiplies TILE_BLOCKS neighbouring blocks as integers; then one thread per output of a row
 * adds the blocks of all warps in their order. */
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

    DEVICE bool run(const unsigned char *unit, const struct tile_in &in, const struct tile_cut &cut, struct tile_memory *memory)
    {
        const int *row = memory->row;
        int count = input_blocks(in.inputs), o = lane_id(), token = warp_id();
        float *terms = (float *)(memory + 1), total = 0;
        if (in.prefetches)
            tile_prefetch<FORMAT>(unit, in.inputs, tile_first<FORMAT>(cut, 0) + TILE_WARPS * tile_step<FORMAT>());
        for (int round = 0; round < count; round += TILE_WARPS * TILE_BLOCKS) {
            int first = round + warp_id() * TILE_BLOCKS;
            if (in.prefetches)
                tile_prefetch<FORMAT>(unit, in.inputs, first * BLOCK_INPUTS + 2 * TILE_WARPS * tile_step<FORMAT>());
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
            memory->sums[token * UNIT_OUTPUTS + o] = total;
        __syncthreads();
        return true;
    }
};

template <bool SPREAD> struct tile_product<FORMAT_Q8, SPREAD, false> : tile_integers<FORMAT_Q8> {};
template <bool SPREAD> struct tile_product<FORMAT_Q4, SPREAD, false> : tile_integers<FORMAT_Q4> {};

template <bool SPREAD> struct tile_product<FORMAT_F32, SPREAD, false> {
    DEVICE bool run(const unsigned char *unit, const struct tile_in &in, const struct tile_cut &, struct tile_memory *memory)
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
        return true;
    }
};

/* TILE_LAUNCH(kernel, format, rows, few, grid, stream, args...): launches kernel<FORMAT, FEW> for a format and a maximum of
 * rows per tile that are known at the call only. few: tiles of at most TILE_FEW rows use the kernel compiled for them. */
#define TILE_LAUNCH_AS(kernel, F, rows, few, grid, stream, ...)                                                              \
    case F:                                                                                                                  \
        if ((few) && (rows) <= TILE_FEW)                                                                                     \
            LAUNCH_PDL((kernel<F, tile_has_few(F)>), grid, dim3(TILE_THREADS), tile_bytes(F, rows), stream, __VA_ARGS__);    \
        else                                                                                                                 \
            LAUNCH_PDL((kernel<F, false>), grid, dim3(TILE_THREADS), tile_bytes(F, rows), stream, __VA_ARGS__);              \
        break
#define TILE_LAUNCH(kernel, format, rows, few, grid, stream, ...)                     \
    do {                                                                         \
        switch (format) {                                                        \
            TILE_LAUNCH_AS(kernel, FORMAT_F32, rows, few, grid, stream, __VA_ARGS__);   \
            TILE_LAUNCH_AS(kernel, FORMAT_F16, rows, few, grid, stream, __VA_ARGS__);   \
            TILE_LAUNCH_AS(kernel, FORMAT_BF16, rows, few, grid, stream, __VA_ARGS__);  \
            TILE_LAUNCH_AS(kernel, FORMAT_FP8, rows, few, grid, stream, __VA_ARGS__);   \
            TILE_LAUNCH_AS(kernel, FORMAT_Q8, rows, few, grid, stream, __VA_ARGS__);    \
            TILE_LAUNCH_AS(kernel, FORMAT_Q4, rows, few, grid, stream, __VA_ARGS__);    \
            TILE_LAUNCH_AS(kernel, FORMAT_MXFP4, rows, few, grid, stream, __VA_ARGS__); \
            TILE_LAUNCH_AS(kernel, FORMAT_Q4_K, rows, few, grid, stream, __VA_ARGS__);  \
            TILE_LAUNCH_AS(kernel, FORMAT_Q6_K, rows, few, grid, stream, __VA_ARGS__);  \
        default: break;                                                          \
        }                                                                        \
    } while (0)

/* Returns the rows of one tile when there are `rows` in all: as many as fit, with the least memory. */
static inline int tile_rows(enum weight_format format, int rows)
{
    int max = format_quantised(format) ? TILE_SOME : TILE_TOKENS_MAX;
    return rows <= TILE_FEW ? TILE_FEW : rows <= TILE_SOME ? TILE_SOME : max;
}

#endif

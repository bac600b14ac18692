/* Products in blocks of a grid (units, passes over the rows, parts of the inputs), shared by linear.cu and by kernels that
 * compute more than a product: norm_linear.cu and routed_ffn.cu. */
#ifndef MOE_KERNELS_CUDA_PRODUCT_H
#define MOE_KERNELS_CUDA_PRODUCT_H

#include "kernels/cuda/cuda.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/tile.h"

/* Writes output o of a row, given the sum of its products. */
DEVICE void product_put(const struct linear_args &a, int row, int o, float y)
{
    float *out = device_pointer<float>(a.out) + (int64_t)row * a.out_stride + o;
    if (a.bias.address)
        y = y + device_pointer<float>(a.bias)[o];
    if (a.scale != 0)
        y = y * a.scale;
    *out = a.add ? y + *out : y;
}

/* Returns the weights of the block's unit. */
template <int FORMAT> DEVICE const unsigned char *product_weights(const struct linear_args &a)
{
    return device_pointer<unsigned char>(a.weight) + unit_bytes_of(FORMAT, a.inputs) * (size_t)blockIdx.x;
}

/* Computes the block's unit for rows first .. first + in.count - 1; returns false if another block finishes them. */
template <int FORMAT, bool FEW>
DEVICE bool product_run(const struct linear_args &a, const unsigned char *weight, const struct tile_in &in,
                        const struct tile_cut &cut, int first, struct tile_memory *memory)
{
    if (threadIdx.x < TILE_TOKENS_MAX)
        memory->row[threadIdx.x] = first + (int)threadIdx.x;
    __syncthreads();
    const bool joins = tile_product<FORMAT, true, FEW>::run(weight, in, cut, memory);
    if (blockIdx.y == 0)
        prefetch_part(a.ahead, blockIdx.z * gridDim.x + blockIdx.x, gridDim.x * gridDim.z);
    return joins;
}

/* Returns the number of the lane's output. */
DEVICE int product_output(void) { return (int)blockIdx.x * UNIT_OUTPUTS + lane_id(); }

/* Writes output o of the rows that product_run has finished, one per lane. */
DEVICE void product_write(const struct linear_args &a, int first, int count, int o, const struct tile_memory *memory)
{
    for (int token = warp_id(); token < count && o < a.outputs; token += TILE_WARPS)
        product_put(a, first + token, o, memory->sums[token * UNIT_OUTPUTS + lane_id()]);
}

/* Rows of a norm in a block's shared memory, after the tile_bytes for few rows; then the weights of the norm. */
enum { NORMED_ROWS = TILE_FEW };
static const size_t NORMED_MAX = 48 * 1024;

static inline size_t normed_bytes(const struct norm_args *n)
{
    return (size_t)(n->rows + 1) * (size_t)n->width * sizeof(float);
}

template <int FORMAT> DEVICE float *normed_at(struct tile_memory *memory)
{
    return (float *)(memory + 1) + TILE_WARPS * tile_terms(FORMAT, TILE_FEW);
}

/* Norms the first `count` rows as norm.cu does, in a block of TILE_THREADS: into x, in shared memory, one row per warp. writes:
 * also to `out`, which one block does. All copies are started before the block waits for the first one. */
DEVICE void normed_rows(const struct norm_args &n, int count, bool writes, float *x)
{
    SHARED(float, factor, NORMED_ROWS);
    enum { EACH = 4 };
    float *weight = x + n.rows * n.width;
    const float *in = device_pointer<float>(n.in);
    for (int i = EACH * (int)threadIdx.x; i < n.width; i += EACH * TILE_THREADS) {
        cp_async16(weight + i, device_pointer<float>(n.weight) + i);
        for (int row = 0; row < count; row++)
            cp_async16(x + row * n.width + i, in + (int64_t)row * n.in_stride + i);
    }
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
    if (warp_id() < count) {
        float found = norm_factor(x + warp_id() * n.width, n.width, n.epsilon);
        if (lane_id() == 0)
            factor[warp_id()] = found;
    }
    __syncthreads();
    for (int row = 0; row < count; row++)
        for (int i = (int)threadIdx.x; i < n.width; i += TILE_THREADS) {
            float y = x[row * n.width + i] * factor[row] * weight[i];
            x[row * n.width + i] = y;
            if (writes)
                device_pointer<float>(n.out)[(int64_t)row * n.out_stride + i] = y;
        }
    __syncthreads();
}

/* Returns whether this block writes the normed rows for later operations, and prefetches the weights of the norm. */
DEVICE bool normed_writes(void) { return blockIdx.x == 0 && blockIdx.z == 0; }

DEVICE void normed_prefetch(const struct norm_args &n)
{
    if (threadIdx.x == 0 && normed_writes() && n.rows)
        prefetch_floats(device_pointer<float>(n.weight), n.width);
}

/* norm_linear.cu: returns whether each block of a product can norm the rows itself. */
bool normed_fits(const struct norm_args *norm, const struct linear_args *linear);

/* linear.cu. product_cut returns the division of a product, and its grid. product_leaves_parts changes the division so that
 * blocks only store the sums of their slices; it returns false if the scratch is too small. */
struct tile_cut product_cut(const struct cuda_context *context, const struct linear_args *a, dim3 *grid);
bool product_leaves_parts(const struct cuda_context *context, const struct linear_args *a, int64_t tiles, struct tile_cut *cut);

#endif

/* kernels/linear.h: a norm and the product that reads its result, for 1 and 2 rows in one launch. Each block of the product
 * norms the rows itself, in shared memory: for 2,048 floats it reads 8 KB from the second-level cache, and the norm lasts as
 * long as in a separate launch. One block also writes the normed rows, for later operations. Grid and products are those of
 * linear.cu, and norms are summed in the order of norm.cu, so the bits are those of the single operations, which compute all
 * other shapes. */
#include "kernels/cuda/product.h"
#include "kernels/cuda/slab.h"

template <int FORMAT>
__global__ void __launch_bounds__(TILE_THREADS, tile_resident<FORMAT, true>())
    norm_linear_kernel(struct norm_linear_args a, struct tile_cut cut, const int32_t *live)
{
    SHARED_DYN(struct tile_memory, memory);
    tile_prefetch<FORMAT>(product_weights<FORMAT>(a.linear), a.linear.inputs, cut, spread_slice(cut));
    normed_prefetch(a.norm);
    pdl_begin();
    const int count = live_rows(live, a.norm.rows);
    float *x = normed_at<FORMAT>(memory);
    normed_rows(a.norm, count, normed_writes(), x);
    struct tile_in in = {x, nullptr, a.linear.inputs, a.linear.inputs, count, true};
    if (product_run<FORMAT, true>(a.linear, product_weights<FORMAT>(a.linear), in, cut, 0, memory))
        product_write(a.linear, 0, count, product_output(), memory);
}

/* Returns whether a format has a kernel. The kernels of mxfp4 and q6_k would spill registers on some GPUs. */
static bool has_kernel(enum weight_format format)
{
    return format == FORMAT_BF16 || format == FORMAT_FP8 || format == FORMAT_Q4_K;
}

/* Returns whether blocks can norm the rows. Rows and weights must be aligned, because they are copied 16 bytes at a time. */
bool normed_fits(const struct norm_args *n, const struct linear_args *a)
{
    const uint64_t aligned = n->in.address | n->weight.address | (uint64_t)((n->width | n->in_stride) * (int)sizeof(float));
    return a->rows <= NORMED_ROWS && n->rows == a->rows && n->parts == 1 && n->width == a->inputs && !n->center &&
           n->weight.address && aligned % 16 == 0 && n->in.address != n->out.address && n->out.address == a->in.address &&
           n->out_stride == a->in_stride && normed_bytes(n) <= NORMED_MAX;
}

#define NORM_LINEAR_LAUNCH(F)                                                                                                \
    case F:                                                                                                                  \
        LAUNCH_PDL(norm_linear_kernel<F>, grid, dim3(TILE_THREADS), bytes, cuda_stream(queue), a, cut, cuda_live(queue));    \
        break
void cuda_norm_linear(struct queue *queue, const struct norm_linear_args *args)
{
    struct norm_linear_args a = *args;
    dim3 grid;
    if (a.linear.rows < 1)
        return;
    if (!cuda_enabled(queue, CUDA_NORM) || !cuda_enabled(queue, CUDA_FEW) || !has_kernel(a.linear.format) ||
        slab_takes(queue, a.linear.slab, a.linear.format) || !normed_fits(&a.norm, &a.linear)) {
        ops_norm_linear_in_turn(&cuda_ops, queue, args);
        return;
    }
    const struct tile_cut cut = product_cut((const struct cuda_context *)queue->state, &a.linear, &grid);
    a.linear.ahead = cuda_ahead(queue, a.linear.ahead);
    const size_t bytes = tile_bytes(a.linear.format, cut.rows) + normed_bytes(&a.norm);
    switch (a.linear.format) {
        NORM_LINEAR_LAUNCH(FORMAT_BF16);
        NORM_LINEAR_LAUNCH(FORMAT_FP8);
        NORM_LINEAR_LAUNCH(FORMAT_Q4_K);
    default: break;
    }
}

/* kernels/learn.h: product. Computed by cuBLAS (gemm.h) if it is present, else by this kernel.
 *
 * A block of 256 threads computes 64 x 64 numbers of the result, 4 x 4 per thread in registers. Both factors are loaded in
 * steps of 16 of the depth: each thread has 4 numbers of each factor in flight to registers while the previous step is computed
 * from shared memory. There the depth is the outer dimension, so a thread's 4 neighbours are one 16-byte read. 16 fused
 * multiply-adds for 2 reads: compute-bound, at about half of a multiprocessor's peak. The kernel is a fallback for a library,
 * not a replacement.
 *
 * An output is one chain of fused multiply-adds over the depth, ascending, from 0; the previous output is added at the end. So
 * its bits depend on its row and its column alone. */
#include "kernels/cuda/learn.h"
#include "kernels/cuda/slab.h"

enum { PART = 64, PART_DEPTH = 16, PART_EACH = 4, PART_THREADS = 256, PART_PITCH = PART + 4,
       PART_LOADS = PART * PART_DEPTH / PART_THREADS };

/* Return the indices of a thread's n-th load in a step of a factor: along the 64 rows or columns, and along the depth.
 * Neighbouring threads of a warp load neighbours in memory, along the depth (ALONG) or across it. */
template <bool ALONG> DEVICE int part_index(int n)
{
    return ALONG ? (int)threadIdx.x / PART_DEPTH + PART / PART_LOADS * n : (int)threadIdx.x % PART;
}
template <bool ALONG> DEVICE int part_depth(int n)
{
    return ALONG ? (int)threadIdx.x % PART_DEPTH : (int)threadIdx.x / PART + PART_DEPTH / PART_LOADS * n;
}

struct part_of {
    const float *from;
    int stride, first, count, depth;        /* the 64 rows from `first` on, of `count` */
};

/* Loads zeros beyond the end; they add nothing. */
template <bool ALONG> DEVICE void part_load(float (&x)[PART_LOADS], const struct part_of &p, int step)
{
    UNROLL for (int n = 0; n < PART_LOADS; n++) {
        const int i = p.first + part_index<ALONG>(n), k = step + part_depth<ALONG>(n);
        x[n] = i < p.count && k < p.depth ? p.from[ALONG ? (int64_t)i * p.stride + k : (int64_t)k * p.stride + i] : 0;
    }
}

template <bool ALONG> DEVICE void part_store(float *shared, const float (&x)[PART_LOADS])
{
    UNROLL for (int n = 0; n < PART_LOADS; n++)
        shared[part_depth<ALONG>(n) * PART_PITCH + part_index<ALONG>(n)] = x[n];
}

template <bool A_ALONG, bool B_ALONG>
__global__ void __launch_bounds__(PART_THREADS) product_kernel(struct gemm_floats g)
{
    SHARED(float, a, PART_DEPTH * PART_PITCH);
    SHARED(float, b, PART_DEPTH * PART_PITCH);
    const struct part_of rows = {g.a, g.a_stride, (int)blockIdx.y * PART, g.rows, g.depth};
    const struct part_of columns = {g.b, g.b_stride, (int)blockIdx.x * PART, g.columns, g.depth};
    const int r = (int)threadIdx.x / (PART / PART_EACH) * PART_EACH, o = (int)threadIdx.x % (PART / PART_EACH) * PART_EACH;
    float next_a[PART_LOADS], next_b[PART_LOADS], sum[PART_EACH][PART_EACH] = {};
    part_load<A_ALONG>(next_a, rows, 0);
    part_load<B_ALONG>(next_b, columns, 0);
    for (int step = 0; step < g.depth; step += PART_DEPTH) {
        part_store<A_ALONG>(a, next_a);
        part_store<B_ALONG>(b, next_b);
        __syncthreads();
        part_load<A_ALONG>(next_a, rows, step + PART_DEPTH);
        part_load<B_ALONG>(next_b, columns, step + PART_DEPTH);
        UNROLL for (int k = 0; k < PART_DEPTH; k++) {
            const float4 x = *(const float4 *)(a + k * PART_PITCH + r), w = *(const float4 *)(b + k * PART_PITCH + o);
            const float left[PART_EACH] = {x.x, x.y, x.z, x.w}, right[PART_EACH] = {w.x, w.y, w.z, w.w};
            UNROLL for (int i = 0; i < PART_EACH; i++)
                UNROLL for (int j = 0; j < PART_EACH; j++)
                    sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
        }
        __syncthreads();
    }
    UNROLL for (int i = 0; i < PART_EACH; i++)
        UNROLL for (int j = 0; j < PART_EACH; j++)
            if (rows.first + r + i < g.rows && columns.first + o + j < g.columns) {
                float *to = g.c + (int64_t)(rows.first + r + i) * g.c_stride + columns.first + o + j;
                *to = g.add ? *to + sum[i][j] : sum[i][j];
            }
}

static void product_here(dev_stream stream, const struct gemm_floats *g)
{
    const dim3 grid(blocks_for(g->columns, PART), blocks_for(g->rows, PART)), block(PART_THREADS);
    if (g->a_turned)
        LAUNCH((product_kernel<false, false>), grid, block, 0, stream, *g);
    else if (g->b_turned)
        LAUNCH((product_kernel<true, true>), grid, block, 0, stream, *g);
    else
        LAUNCH((product_kernel<true, false>), grid, block, 0, stream, *g);
}

void cuda_learn_product(struct queue *queue, const struct learn_product_args *p)
{
    const struct cuda_context *context = (const struct cuda_context *)queue->state;
    const struct gemm_floats g = {device_pointer<float>(p->a), device_pointer<float>(p->b), device_pointer<float>(p->c),
                                  p->a_stride, p->b_stride, p->c_stride, p->rows, p->columns, p->depth,
                                  p->kind == LEARN_OUTER, p->kind == LEARN_ROWS, p->add};
    if (!p->rows || !p->columns)
        return;
    if (cuda_stream(queue))
        dev_use(dev_device_of(cuda_stream(queue)));
    if (context->slab && p->depth)
        gemm_run_floats(context->slab->gemm, &g);
    else
        product_here(cuda_stream(queue), &g);
}

/* kernels/learn.h: clear, add, copy, accumulate, add_row, sum_rows, select, scatter. All are memory-bound: each number is read
 * and written once, neighbours by neighbouring threads.
 *
 * One thread per element, or per column of some rows, except for two operations:
 * sum_rows: one block of 1024 threads per 32 columns; each warp reads every 32nd row of them. A column's sum is that of 32
 *     chains, rows r, r + 32, ... ascending, added by halves; then to the previous sum.
 * scatter: one block per i. It continues only if no j < i selects the same row; then only this block adds to that row: in[i]
 *     first and then in[j] of each later j that selects it, ascending. 256 threads read the list together, so a thread reads
 *     rows / 256 words: little, for some thousand rows. */
#include "kernels/cuda/learn.h"

void cuda_learn_clear(struct queue *queue, const struct learn_clear_args *c)
{
    const dev_stream stream = cuda_stream(queue);
    if (c->count)
        dev_launched(stream, dev_fill(device_pointer<void>(c->out), 0, c->count * sizeof(float), stream), "clear", __FILE__,
                     __LINE__);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_add_kernel(const float *a, const float *b, float *out, size_t count)
{
    const size_t i = learn_element();
    if (i < count)
        out[i] = a[i] + b[i];
}

void cuda_learn_add(struct queue *queue, const struct learn_add_args *a)
{
    if (a->count)
        LAUNCH(learn_add_kernel, dim3(learn_blocks(a->count)), dim3(LEARN_THREADS), 0, cuda_stream(queue),
               device_pointer<float>(a->a), device_pointer<float>(a->b), device_pointer<float>(a->out), a->count);
}

/* With in_stride 0 the same row is copied to all rows. */
template <bool ADD> __global__ void __launch_bounds__(LEARN_THREADS) learn_copy_kernel(struct learn_copy_args c)
{
    const int i = learn_column();
    for (int r = (int)blockIdx.y; i < c.width && r < c.rows; r += (int)gridDim.y) {
        const float x = device_pointer<float>(c.in)[(int64_t)r * c.in_stride + i];
        float *to = device_pointer<float>(c.out) + (int64_t)r * c.out_stride + i;
        *to = ADD ? *to + x : x;
    }
}

template <bool ADD> static void copy(struct queue *queue, const struct learn_copy_args &c)
{
    if (c.rows && c.width)
        LAUNCH((learn_copy_kernel<ADD>), learn_grid(c.rows, c.width), dim3(LEARN_THREADS), 0, cuda_stream(queue), c);
}

void cuda_learn_copy(struct queue *queue, const struct learn_copy_args *c) { copy<false>(queue, *c); }
void cuda_learn_accumulate(struct queue *queue, const struct learn_copy_args *c) { copy<true>(queue, *c); }

void cuda_learn_add_row(struct queue *queue, const struct learn_row_args *a)
{
    copy<true>(queue, {a->in, a->out, a->rows, a->width, 0, a->width});
}

__global__ void __launch_bounds__(LEARN_CHAIN_THREADS) learn_sum_rows_kernel(struct learn_row_args a)
{
    SHARED(float, sums, LEARN_CHAIN_THREADS);
    const int i = (int)blockIdx.x * WARP + lane_id();
    float sum = 0;
    for (int r = warp_id(); i < a.width && r < a.rows; r += LEARN_CHAINS)
        sum += device_pointer<float>(a.in)[(int64_t)r * a.width + i];
    sum = learn_join_chains(sums, sum);
    if (warp_id() == 0 && i < a.width)
        device_pointer<float>(a.out)[i] += sum;
}

void cuda_learn_sum_rows(struct queue *queue, const struct learn_row_args *a)
{
    if (a->rows && a->width)
        LAUNCH(learn_sum_rows_kernel, dim3(blocks_for(a->width, WARP)), dim3(LEARN_CHAIN_THREADS), 0, cuda_stream(queue), *a);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_select_kernel(struct learn_select_args s)
{
    const int k = learn_column();
    for (int i = (int)blockIdx.y; k < s.width && i < s.rows; i += (int)gridDim.y) {
        const int from = device_pointer<int32_t>(s.row)[i];
        device_pointer<float>(s.out)[(int64_t)i * s.width + k] =
            from < 0 ? 0 : device_pointer<float>(s.in)[(int64_t)from * s.width + k];
    }
}

void cuda_learn_select(struct queue *queue, const struct learn_select_args *s)
{
    if (s->rows && s->width)
        LAUNCH(learn_select_kernel, learn_grid(s->rows, s->width), dim3(LEARN_THREADS), 0, cuda_stream(queue), *s);
}

/* Finds which of the rows first .. first + 255 below `end` are added to `row`: sets a mask of 32 rows in each of
 * found[LEARN_WARPS], which is shared. */
DEVICE void scatter_find(const int32_t *list, int first, int end, int row, unsigned *found)
{
    const int j = first + (int)threadIdx.x;
    const unsigned same = __ballot_sync(FULL_MASK, j < end && list[j] == row);
    __syncthreads();
    if (lane_id() == 0)
        found[warp_id()] = same;
    __syncthreads();
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_scatter_kernel(struct learn_select_args s)
{
    SHARED(unsigned, found, LEARN_WARPS);
    const int32_t *list = device_pointer<int32_t>(s.row);
    const int i = (int)blockIdx.x, row = list[i];
    float *out = device_pointer<float>(s.out) + (int64_t)row * s.width;
    unsigned earlier = 0;
    if (row < 0)
        return;
    for (int first = 0; first < i && !earlier; first += LEARN_THREADS) {
        scatter_find(list, first, i, row, found);
        for (int w = 0; w < LEARN_WARPS; w++)
            earlier |= found[w];
    }
    if (earlier)
        return;
    for (int first = i; first < s.rows; first += LEARN_THREADS) {
        scatter_find(list, first, s.rows, row, found);
        for (int w = 0; w < LEARN_WARPS; w++)
            for (unsigned left = found[w]; left; left &= left - 1) {
                const float *in = device_pointer<float>(s.in) + (int64_t)(first + w * WARP + __ffs((int)left) - 1) * s.width;
                for (int k = (int)threadIdx.x; k < s.width; k += LEARN_THREADS)
                    out[k] += in[k];
            }
    }
}

void cuda_learn_scatter(struct queue *queue, const struct learn_select_args *s)
{
    if (s->rows && s->width)
        LAUNCH(learn_scatter_kernel, dim3((unsigned)s->rows), dim3(LEARN_THREADS), 0, cuda_stream(queue), *s);
}

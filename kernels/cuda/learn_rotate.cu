/* kernels/learn.h: rotate, rotate_back. One thread per pair of numbers, half a head apart, for the rows blockIdx.y, blockIdx.y
 * + gridDim.y, ... Memory-bound: each number is read and written once. */
#include "kernels/cuda/learn.h"

template <bool BACK> __global__ void __launch_bounds__(LEARN_THREADS) learn_rotate_kernel(struct learn_rotate_args a)
{
    const int half = a.head_dim / 2, head = learn_column() / half, i = learn_column() % half, all = a.heads + 2 * a.kv_heads;
    for (int r = (int)blockIdx.y; head < all && r < a.rows; r += (int)gridDim.y) {
        const int64_t at = ((int64_t)r * all + head) * a.head_dim + i;
        const float *x = device_pointer<float>(BACK ? a.gradient : a.x) + at;
        float *out = device_pointer<float>(BACK ? a.gradient_to : a.out) + at, low = x[0], high = x[half];
        if (head < a.heads + a.kv_heads) {
            const int64_t position = device_pointer<int32_t>(a.position)[r];
            const float *turn = device_pointer<float>(a.rotation) + position * a.head_dim + 2 * i;
            const float c = turn[0], s = BACK ? -turn[1] : turn[1], first = low * c - high * s;
            high = high * c + low * s;
            low = first;
        }
        out[0] = BACK ? out[0] + low : low;
        out[half] = BACK ? out[half] + high : high;
    }
}

template <bool BACK> static void rotate(struct queue *queue, const struct learn_rotate_args *a)
{
    const int pairs = (a->heads + 2 * a->kv_heads) * (a->head_dim / 2);
    if (a->rows && pairs)
        LAUNCH((learn_rotate_kernel<BACK>), learn_grid(a->rows, pairs), dim3(LEARN_THREADS), 0, cuda_stream(queue), *a);
}

void cuda_learn_rotate(struct queue *queue, const struct learn_rotate_args *a) { rotate<false>(queue, a); }
void cuda_learn_rotate_back(struct queue *queue, const struct learn_rotate_args *a) { rotate<true>(queue, a); }

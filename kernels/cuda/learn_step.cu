/* kernels/learn.h: measure and adam. Both are memory-bound.
 *
 * measure: one block of 256 threads per LEARN_BLOCK elements, a size that the contract specifies; its sum is that of 256 chains
 *     in f64, added as learn_block_sum does (learn.h of this folder).
 * adam: one thread per weight, which reads four numbers and writes three. */
#include "kernels/cuda/learn.h"

__global__ void __launch_bounds__(LEARN_THREADS) learn_measure_kernel(struct learn_measure_args m)
{
    SHARED(double, parts, LEARN_WARPS);
    SHARED(int, counts, LEARN_WARPS);
    const size_t first = (size_t)blockIdx.x * LEARN_BLOCK, left = m.count - first;
    const int count = left < LEARN_BLOCK ? (int)left : LEARN_BLOCK;
    const float *gradient = device_pointer<float>(m.gradient) + first;
    double squares = 0;
    int outside = 0;
    for (int i = (int)threadIdx.x; i < count; i += LEARN_THREADS) {
        squares += (double)gradient[i] * (double)gradient[i];
        outside += fabsf(gradient[i]) > m.bound;
    }
    squares = learn_block_sum(squares, parts);
    outside = learn_block_sum(outside, counts);
    if (threadIdx.x == 0) {
        device_pointer<double>(m.squares)[blockIdx.x] = squares;
        device_pointer<int64_t>(m.outside)[blockIdx.x] = outside;
    }
}

void cuda_learn_measure(struct queue *queue, const struct learn_measure_args *m)
{
    if (m->count)
        LAUNCH(learn_measure_kernel, dim3((unsigned)((m->count + LEARN_BLOCK - 1) / LEARN_BLOCK)), dim3(LEARN_THREADS), 0,
               cuda_stream(queue), *m);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_adam_kernel(struct learn_adam_args a)
{
    const size_t i = learn_element();
    const struct learn_adam s = a.step;
    if (i >= a.count)
        return;
    float *weight = device_pointer<float>(a.weight) + i, *first = device_pointer<float>(a.first) + i;
    float *second = device_pointer<float>(a.second) + i, g = device_pointer<float>(a.gradient)[i] * s.factor;
    g = g > s.bound ? s.bound : g;
    g = g < -s.bound ? -s.bound : g;
    const float m = s.beta1 * *first + (1 - s.beta1) * g, v = s.beta2 * *second + (1 - s.beta2) * g * g;
    *first = m;
    *second = v;
    *weight = *weight * s.keep - s.rate * m / (sqrtf(v) * s.root + s.epsilon);
}

void cuda_learn_adam(struct queue *queue, const struct learn_adam_args *a)
{
    if (a->count)
        LAUNCH(learn_adam_kernel, dim3(learn_blocks(a->count)), dim3(LEARN_THREADS), 0, cuda_stream(queue), *a);
}

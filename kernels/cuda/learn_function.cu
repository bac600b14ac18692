/* kernels/learn.h: function, gated, and their gradients. One thread per element, or per column of some rows. Memory-bound: each
 * number is read and written once. */
#include "kernels/cuda/learn.h"

DEVICE float silu_slope(float x)
{
    const float s = plain_sigmoid(x);
    return s * (1 + x * (1 - s));
}

/* (1 + erf(x / sqrt 2)) / 2 + x exp(-x^2 / 2) / sqrt(2 pi) */
DEVICE float gelu_slope(float x)
{
    return 0.5f * (1 + plain_erf(x * 0x1.6a09e6p-1f)) + x * 0x1.988454p-2f * plain_exp(-0.5f * x * x);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_function_kernel(struct learn_function_args f)
{
    const size_t i = learn_element();
    if (i >= f.count)
        return;
    const float x = device_pointer<float>(f.x)[i];
    device_pointer<float>(f.out)[i] = f.function == LEARN_GELU ? plain_gelu(x) : plain_silu(x);
}

void cuda_learn_function(struct queue *queue, const struct learn_function_args *f)
{
    if (f->count)
        LAUNCH(learn_function_kernel, dim3(learn_blocks(f->count)), dim3(LEARN_THREADS), 0, cuda_stream(queue), *f);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_function_back_kernel(struct learn_function_args f)
{
    const size_t i = learn_element();
    if (i >= f.count)
        return;
    const float x = device_pointer<float>(f.x)[i];
    device_pointer<float>(f.gradient_to)[i] +=
        device_pointer<float>(f.gradient)[i] * (f.function == LEARN_GELU ? gelu_slope(x) : silu_slope(x));
}

void cuda_learn_function_back(struct queue *queue, const struct learn_function_args *f)
{
    if (f->count)
        LAUNCH(learn_function_back_kernel, dim3(learn_blocks(f->count)), dim3(LEARN_THREADS), 0, cuda_stream(queue), *f);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_gated_kernel(struct learn_gated_args g)
{
    const int i = learn_column();
    for (int r = (int)blockIdx.y; i < g.width && r < g.rows; r += (int)gridDim.y) {
        const float *gate = device_pointer<float>(g.x) + (int64_t)r * 2 * g.width + i;
        device_pointer<float>(g.out)[(int64_t)r * g.width + i] = plain_silu(gate[0]) * gate[g.width];
    }
}

void cuda_learn_gated(struct queue *queue, const struct learn_gated_args *g)
{
    if (g->rows && g->width)
        LAUNCH(learn_gated_kernel, learn_grid(g->rows, g->width), dim3(LEARN_THREADS), 0, cuda_stream(queue), *g);
}

__global__ void __launch_bounds__(LEARN_THREADS) learn_gated_back_kernel(struct learn_gated_args g)
{
    const int i = learn_column();
    for (int r = (int)blockIdx.y; i < g.width && r < g.rows; r += (int)gridDim.y) {
        const int64_t at = (int64_t)r * 2 * g.width + i;
        const float *gate = device_pointer<float>(g.x) + at;
        const float slope = device_pointer<float>(g.gradient)[(int64_t)r * g.width + i];
        float *to = device_pointer<float>(g.gradient_to) + at;
        to[0] += slope * gate[g.width] * silu_slope(gate[0]);
        to[g.width] += slope * plain_silu(gate[0]);
    }
}

void cuda_learn_gated_back(struct queue *queue, const struct learn_gated_args *g)
{
    if (g->rows && g->width)
        LAUNCH(learn_gated_back_kernel, learn_grid(g->rows, g->width), dim3(LEARN_THREADS), 0, cuda_stream(queue), *g);
}

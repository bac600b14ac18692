/* kernels/linear.h for a slab: unpacks the matrix, splits the rows, multiplies, and finishes with one thread per output. */
#include "kernels/cuda/slab.h"

__global__ void slab_linear_kernel(struct linear_args a, const float *sums, int outputs)
{
    pdl_begin();
    int o = (int)(blockIdx.x * blockDim.x + threadIdx.x), r = (int)blockIdx.y;
    if (o >= a.outputs)
        return;
    const float *sum = sums + (size_t)r * SLAB_PARTS * (size_t)outputs + o;
    float *out = device_pointer<float>(a.out) + (int64_t)r * a.out_stride + o, y = sum[0] + sum[outputs];
    if (a.bias.address)
        y = y + device_pointer<float>(a.bias)[o];
    if (a.scale != 0)
        y = y * a.scale;
    *out = a.add ? y + *out : y;
}

void slab_linear(struct queue *queue, const struct linear_args *a)
{
    struct slab *slab = ((struct cuda_context *)queue->state)->slab;
    const struct slab_matrices matrix = {a->weight.address, nullptr, nullptr, 0, 1, (int)blocks_for(a->outputs, UNIT_OUTPUTS),
                                         a->inputs};
    const struct slab_rows rows = {device_pointer<float>(a->in), a->in_stride, nullptr, 1, a->rows, a->inputs};
    int outputs = matrix.units * UNIT_OUTPUTS, width = slab_width(a->inputs), columns = a->rows * SLAB_PARTS;
    if (!slab_need(queue, &slab->weights, (size_t)outputs * (size_t)width * sizeof(uint16_t)) ||
        !slab_need(queue, &slab->in, (size_t)columns * (size_t)width * sizeof(uint16_t)) ||
        !slab_need(queue, &slab->sums, (size_t)columns * (size_t)outputs * sizeof(float)))
        return;
    struct gemm_args product = {device_pointer<void>(slab->in), device_pointer<void>(slab->weights),
                                device_pointer<void>(slab->sums), 0, columns, width, outputs, false};
    slab_split(queue, &rows, slab->in);
    for (int piece = 0; piece < slab_pieces(a->format); piece++) {
        slab_unpack(queue, a->format, piece, &matrix, slab->weights);
        product.add = piece > 0;
        gemm_run(slab->gemm, &product);
    }
    LAUNCH_PDL(slab_linear_kernel, dim3(blocks_for(a->outputs, JOIN_THREADS), (unsigned)a->rows), dim3(JOIN_THREADS), 0,
               cuda_stream(queue), *a, device_pointer<float>(slab->sums), outputs);
}

/* kernels/rows.h: embed. One thread decodes one float: the bytes of an output are scattered over its unit, a few in each step.
 */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weight_at.h"

__global__ void embed_kernel(struct embed_args a, size_t unit_bytes, const int32_t *live)
{
    pdl_begin();
    if (not_live(live, blockIdx.y))
        return;
    int k = (int)(blockIdx.x * blockDim.x + threadIdx.x), token = device_pointer<int32_t>(a.token)[blockIdx.y];
    const unsigned char *unit = device_pointer<unsigned char>(a.table) + unit_bytes * (size_t)(token / UNIT_OUTPUTS);
    if (k >= a.hidden)
        return;
    float value = weight_at(a.format, unit, token % UNIT_OUTPUTS, k);
    device_pointer<float>(a.out)[(int64_t)blockIdx.y * a.out_stride + k] = a.scale != 0 ? value * a.scale : value;
}

void cuda_embed(struct queue *queue, const struct embed_args *args)
{
    struct embed_args a = *args;
    a.out_stride = row_stride(a.out_stride, a.hidden);
    if (a.rows > 0)
        LAUNCH_PDL(embed_kernel, dim3(blocks_for(a.hidden, 256), (unsigned)a.rows), dim3(256), 0, cuda_stream(queue), a,
                   unit_bytes_of(a.format, a.hidden), cuda_live(queue));
}

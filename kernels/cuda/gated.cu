/* kernels/delta.h: gated. One thread per float. */
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

__global__ void gated_kernel(struct gated_args a, const int32_t *live)
{
    pdl_begin();
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), part = at / a.width, i = at % a.width;
    int64_t row = blockIdx.y;
    if (part >= a.parts || not_live(live, row))
        return;
    float gate = device_pointer<float>(a.gate)[row * a.gate_stride + (int64_t)part * a.gate_part + (a.single ? 0 : i)];
    float in = device_pointer<float>(a.in)[row * a.in_stride + (int64_t)part * a.in_part + i];
    device_pointer<float>(a.out)[row * a.out_stride + (int64_t)part * a.out_part + i] =
        in * (a.kind == GATE_SAME ? gate : a.kind == GATE_SILU ? plain_silu(gate) : plain_sigmoid(gate));
}

void cuda_gated(struct queue *queue, const struct gated_args *args)
{
    int64_t floats = (int64_t)args->parts * args->width;
    if (args->rows > 0 && floats > 0)
        LAUNCH_PDL(gated_kernel, dim3(blocks_for(floats, 256), (unsigned)args->rows), dim3(256), 0, cuda_stream(queue), *args,
                   cuda_live(queue));
}

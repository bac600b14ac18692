/* kernels/route.h: route_shortlist. One block, one thread per expert: each thread adds its column, then counts the experts that
 * rank before its own. */
#include "kernels/cuda/cuda.h"
#include "kernels/plain/route.h"

__global__ void __launch_bounds__(ROUTE_EXPERTS_MAX) route_shortlist_kernel(struct route_shortlist_args a)
{
    pdl_begin();
    SHARED(float, sum, ROUTE_EXPERTS_MAX);
    const float *score = device_pointer<float>(a.score), *weight = device_pointer<float>(a.weight);
    int e = (int)threadIdx.x, before = 0;
    float mine = 0;
    if (e < a.experts) {
        float bias = a.bias.address ? device_pointer<float>(a.bias)[e] : 0;
        for (int r = 0; r < a.rows; r++) {
            float value = score[(int64_t)r * a.experts + e] + bias;
            mine = mine + (weight ? weight[r] * value : value);
        }
        sum[e] = mine;
    }
    __syncthreads();
    if (e >= a.experts)
        return;
    for (int other = 0; other < a.experts; other++)
        before += plain_larger(sum[other], mine) || (!plain_larger(mine, sum[other]) && other < e);
    device_pointer<uint8_t>(a.mask)[e] = before < a.budget;
}

void cuda_route_shortlist(struct queue *queue, const struct route_shortlist_args *args)
{
    LAUNCH_PDL(route_shortlist_kernel, dim3(1), dim3(blocks_for(args->experts, WARP) * WARP), 0, cuda_stream(queue), *args);
}

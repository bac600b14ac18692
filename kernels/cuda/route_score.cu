/* kernels/route.h: route_score. One warp per row; each lane adds all shares itself, in the contract's ascending order. */
#include "kernels/cuda/cuda.h"
#include "kernels/plain/math.h"

__global__ void route_score_kernel(struct route_score_args a, const int32_t *live)
{
    in_turn();
    SHARED(float, share, ROUTE_EXPERTS_MAX);
    const float *logits = device_pointer<float>(a.logits) + (int64_t)blockIdx.x * a.experts;
    float *score = device_pointer<float>(a.score) + (int64_t)blockIdx.x * a.experts;
    int lane = lane_id();
    if (not_live(live, blockIdx.x))
        return;
    if (a.kind == ROUTER_SIGMOID) {
        for (int e = lane; e < a.experts; e += WARP)
            score[e] = plain_sigmoid(logits[e]);
        return;
    }
    float max = -INFINITY, sum = 0;
    for (int e = lane; e < a.experts; e += WARP)
        max = fmaxf(max, logits[e]);
    max = warp_max(max);
    for (int e = lane; e < a.experts; e += WARP)
        share[e] = plain_exp(logits[e] - max);
    __syncwarp();
    for (int e = 0; e < a.experts; e++)
        sum = sum + share[e];
    for (int e = lane; e < a.experts; e += WARP)
        score[e] = share[e] / sum;
}

void cuda_route_score(struct queue *queue, const struct route_score_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(route_score_kernel, dim3((unsigned)args->rows), dim3(WARP), 0, cuda_stream(queue), *args,
               cuda_live(queue));
}

/* kernels/route.h: route_score. One warp per row (route_row.h). */
#include "kernels/cuda/route_row.h"

__global__ void route_score_kernel(struct route_score_args a, const int32_t *live)
{
    pdl_begin();
    SHARED(float, share, ROUTE_EXPERTS_MAX);
    if (not_live(live, blockIdx.x))
        return;
    score_row(a, blockIdx.x, share);
}

void cuda_route_score(struct queue *queue, const struct route_score_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(route_score_kernel, dim3((unsigned)args->rows), dim3(WARP), 0, cuda_stream(queue), *args,
               cuda_live(queue));
}

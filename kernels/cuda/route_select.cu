/* kernels/route.h: route_select. One warp per row (route_row.h). */
#include "kernels/cuda/route_row.h"

__global__ void route_select_kernel(struct route_select_args a, const int32_t *live)
{
    pdl_begin();
    SHARED_DYN(unsigned char, memory);
    if (not_live(live, blockIdx.x))
        return;
    select_row(a, blockIdx.x, route_memory_at(memory, a.experts));
}

void cuda_route_select(struct queue *queue, const struct route_select_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(route_select_kernel, dim3((unsigned)args->rows), dim3(WARP), route_bytes(args->experts), cuda_stream(queue),
                   *args, cuda_live(queue));
}

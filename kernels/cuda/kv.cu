/* kernels/attention.h: kv_write and kv_move. One thread per number of a key or value; grid (numbers, kv heads, rows). */
#include "kernels/cuda/cache.h"
#include "kernels/cuda/cuda.h"

__global__ void kv_write_kernel(struct kv_write_args a, const int32_t *live)
{
    pdl_begin();
    if (not_live(live, blockIdx.z))
        return;
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), own = a.head_dim - a.shared_width, i = at - a.head_dim;
    int64_t head = blockIdx.y, row = blockIdx.z, offset = head * a.capacity + device_pointer<int32_t>(a.slot)[row];
    if (at < a.shared_width)
        cache_put(a.format, device_pointer<void>(a.k), offset * a.head_dim + at,
                  device_pointer<float>(a.shared)[row * a.shared_stride + at]);
    else if (at < a.head_dim)
        cache_put(a.format, device_pointer<void>(a.k), offset * a.head_dim + at,
                  device_pointer<float>(a.in_k)[row * a.stride + head * own + at - a.shared_width]);
    else if (i < a.value_dim)
        cache_put(a.format, device_pointer<void>(a.v), offset * a.value_dim + i,
                  device_pointer<float>(a.in_v)[row * a.stride + head * a.value_dim + i]);
}

void cuda_kv_write(struct queue *queue, const struct kv_write_args *args)
{
    if (args->rows > 0)
        LAUNCH_PDL(kv_write_kernel, dim3(blocks_for(args->head_dim + args->value_dim, 256), (unsigned)args->kv_heads,
                                     (unsigned)args->rows), dim3(256), 0, cuda_stream(queue), *args, cuda_live(queue));
}

/* One thread moves its number of all slots in order, because a later move may overwrite a slot that an earlier one reads. T:
 * type of a number. */
template <typename T> __global__ void kv_move_kernel(struct kv_move_args a)
{
    pdl_begin();
    int at = (int)(blockIdx.x * blockDim.x + threadIdx.x), i = at < a.head_dim ? at : at - a.head_dim;
    int width = at < a.head_dim ? a.head_dim : a.value_dim;
    T *cache = device_pointer<T>(at < a.head_dim ? a.k : a.v) + (int64_t)blockIdx.y * a.capacity * width + i;
    if (at >= a.head_dim + a.value_dim)
        return;
    for (int n = 0; n < a.count; n++) {
        int from = device_pointer<int32_t>(a.from)[n], to = device_pointer<int32_t>(a.to)[n];
        cache[(int64_t)to * width] = cache[(int64_t)from * width];
    }
}

void cuda_kv_move(struct queue *queue, const struct kv_move_args *args)
{
    dim3 grid(blocks_for(args->head_dim + args->value_dim, 256), (unsigned)args->kv_heads);
    if (args->count < 1)
        return;
    if (args->format == CACHE_F32)
        LAUNCH_PDL((kv_move_kernel<uint32_t>), grid, dim3(256), 0, cuda_stream(queue), *args);
    else
        LAUNCH_PDL((kv_move_kernel<uint16_t>), grid, dim3(256), 0, cuda_stream(queue), *args);
}

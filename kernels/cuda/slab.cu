/* slab.h: the parts that linear and expert_ffn share. */
#include "kernels/cuda/slab.h"

#include <new>

#include "kernels/cuda/weights.h"

enum { UNPACK_THREADS = 256, UNPACK_WARPS = 8, UNPACK_WORDS = STEP_INPUTS_MMA / 2 + 1, SPLIT_THREADS = 128 };

struct slab *slab_open(dev_stream stream, size_t room, char *why, size_t why_room)
{
    struct slab *slab = new (std::nothrow) struct slab();
    if (!slab)
        return nullptr;
    slab->room = room;
    slab->gemm = gemm_open(stream, why, why_room);
    if (!slab->gemm)
        slab_close(&slab);
    return slab;
}

void slab_close(struct slab **slab)
{
    if (*slab) {
        struct buffer *const all[] = {&(*slab)->weights, &(*slab)->in, &(*slab)->sums, &(*slab)->lists};
        for (struct buffer *one : all)
            dev_free((void *)(uintptr_t)one->address);
        gemm_close(&(*slab)->gemm);
        delete *slab;
    }
    *slab = nullptr;
}

bool slab_takes(const struct queue *queue, bool slab, enum weight_format format)
{
    return slab && ((const struct cuda_context *)queue->state)->slab && format != FORMAT_F32 && !format_quantised(format);
}

bool slab_need(struct queue *queue, struct buffer *buffer, size_t bytes)
{
    void *memory = nullptr;
    if (bytes <= buffer->bytes)
        return true;
    dev_stream stream = cuda_stream(queue);
    int error = stream ? dev_use(dev_device_of(stream)) : 0;
    if (!error)
        error = dev_wait(cuda_stream(queue));
    dev_free((void *)(uintptr_t)buffer->address);
    *buffer = {0, 0};
    if (!error)
        error = dev_alloc(&memory, bytes);
    if (error)
        dev_launched(cuda_stream(queue), error, "memory for a slab", __FILE__, __LINE__);
    else
        *buffer = {(uint64_t)(uintptr_t)memory, bytes};
    return !error;
}

/* ---- weights: one warp per step of 64 inputs of a unit, through shared memory, so that it writes rows of 128 bytes ---- */

template <int FORMAT> DEVICE void weight_values(const typename weights<FORMAT>::raw &raw, int s, int half, int j, float *low,
                                                float *high)
{
    *low = *high = 0;
    UNROLL for (int piece = 0; piece < weights<FORMAT>::PIECES; piece++) {
        uint32_t pair = weights<FORMAT>::pair(raw, s, half, j, piece);
        *low = *low + low_bf16(pair);
        *high = *high + high_bf16(pair);
    }
}

/* Returns one part (the first or second bf16 of the split) of two floats. */
DEVICE uint32_t pair_of_part(float low, float high, int part)
{
    uint32_t first = narrow_bf16(low, high);
    return part == 0 ? first : narrow_bf16(low - low_bf16(first), high - high_bf16(first));
}

template <int FORMAT>
__global__ void __launch_bounds__(UNPACK_THREADS, 1) slab_unpack_kernel(struct slab_matrices m, int width, int piece,
                                                                        uint32_t *to)
{
    SHARED(uint32_t, all, UNPACK_WARPS * UNIT_OUTPUTS * UNPACK_WORDS);
    pdl_begin();
    uint32_t *words = all + warp_id() * UNIT_OUTPUTS * UNPACK_WORDS;
    int first = ((int)blockIdx.y * UNPACK_WARPS + warp_id()) * STEP_INPUTS_MMA, g = lane_id() / 4, t = lane_id() % 4;
    if (first >= m.inputs)
        return;
    uint64_t matrix = m.address ? m.address : m.table[m.list[blockIdx.z]] + m.offset;
    const unsigned char *unit = (const unsigned char *)(uintptr_t)matrix + unit_bytes_of(FORMAT, m.inputs) * (size_t)blockIdx.x;
    typename weights<FORMAT>::raw raw;
    weights<FORMAT>::load(raw, unit, m.inputs, first, g, t);
    UNROLL for (int s = 0; s < STEP_PRODUCTS; s++)
        UNROLL for (int half = 0; half < 2; half++) {
            int k = weights<FORMAT>::input(s, half, t);
            UNROLL for (int j = 0; j < 4; j++) {
                float low, high;
                weight_values<FORMAT>(raw, s, half, j, &low, &high);
                if (FORMAT == FORMAT_FP8) {
                    float scale = ((const float *)(unit + (size_t)(first / FP8_BLOCK_INPUTS) * FP8_BLOCK_BYTES))[4 * g + j];
                    low = low * scale;
                    high = high * scale;
                }
                low = first + k < m.inputs ? low : 0;
                high = first + k + 1 < m.inputs ? high : 0;
                words[(4 * g + j) * UNPACK_WORDS + k / 2] = pair_of_part(low, high, piece);
            }
        }
    __syncwarp();
    to += ((size_t)blockIdx.z * gridDim.x + blockIdx.x) * UNIT_OUTPUTS * (size_t)(width / 2) + first / 2 + lane_id();
    for (int o = 0; o < UNIT_OUTPUTS && first + 2 * lane_id() < width; o++)
        to[(size_t)o * (size_t)(width / 2)] = words[o * UNPACK_WORDS + lane_id()];
}

void slab_unpack(struct queue *queue, enum weight_format format, int piece, const struct slab_matrices *from, struct buffer to)
{
    dim3 grid((unsigned)from->units, blocks_for(from->inputs, UNPACK_WARPS * STEP_INPUTS_MMA), (unsigned)from->count);
    uint32_t *words = device_pointer<uint32_t>(to);
    int width = slab_width(from->inputs);
    dev_stream stream = cuda_stream(queue);
#define UNPACK(F) \
    case F: LAUNCH_PDL((slab_unpack_kernel<F>), grid, dim3(UNPACK_THREADS), 0, stream, *from, width, piece, words); break
    switch (format) {
    UNPACK(FORMAT_BF16);
    UNPACK(FORMAT_F16);
    UNPACK(FORMAT_FP8);
    UNPACK(FORMAT_MXFP4);
    UNPACK(FORMAT_Q4_K);
    UNPACK(FORMAT_Q6_K);
    default: break;                  /* formats that slab_takes leaves to tiles */
    }
#undef UNPACK
}

/* ---- activations: one thread per two neighbours of a row ---- */

__global__ void slab_split_kernel(struct slab_rows from, int width, uint32_t *to)
{
    pdl_begin();
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), k = 2 * i, row = (int)blockIdx.y;
    if (k >= width)
        return;
    int source = from.list ? from.list[row] : row;
    const float *x = source < 0 ? nullptr : from.x + source / from.each * from.stride;
    float low = x && k < from.inputs ? x[k] : 0, high = x && k + 1 < from.inputs ? x[k + 1] : 0;
    UNROLL for (int part = 0; part < SLAB_PARTS; part++)
        to[((size_t)row * SLAB_PARTS + (size_t)part) * (size_t)(width / 2) + i] = pair_of_part(low, high, part);
}

void slab_split(struct queue *queue, const struct slab_rows *from, struct buffer to)
{
    int width = slab_width(from->inputs);
    LAUNCH_PDL(slab_split_kernel, dim3(blocks_for(width / 2, SPLIT_THREADS), (unsigned)from->rows), dim3(SPLIT_THREADS), 0,
               cuda_stream(queue), *from, width, device_pointer<uint32_t>(to));
}

/* Quantises activations to integers, as formats.h specifies: one warp per block of 32 inputs, one lane per input, eight warps
 * per thread block. Every step but the maximum is local to a lane, so the bits are those of kernels/plain/quantise.h. The
 * initial sums, which only products on the host use, are not computed. */
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/weights.h"

enum { QUANTISE_THREADS = 256 };

__global__ void quantise_kernel(const float *in, int stride, int rows, int each, int inputs, const int32_t *expert,
                                struct quantised *out, const int32_t *live)
{
    pdl_begin();
    const float magic = 12582912.0f;                            /* 1.5 * 2^23: adding it rounds to an integer in the low byte */
    int blocks = input_blocks(inputs), lane = lane_id();
    int64_t at = (int64_t)blockIdx.x * (QUANTISE_THREADS / WARP) + warp_id();
    int row = (int)(at / blocks), i = (int)(at % blocks) * BLOCK_INPUTS + lane;
    if (row >= rows || not_live(live, row / each) || (expert && expert[row] < 0))
        return;
    float x = i < inputs ? in[(int64_t)row * stride + i] : 0;
    /* As integers, the bits of magnitudes are ordered like the magnitudes. */
    uint32_t max = __reduce_max_sync(FULL_MASK, float_to_bits(x) & 0x7fffffffu);
    float m = float_from_bits(max);
    bool usual = m >= 0x1p-100f && max < 0x7f800000u;
    out[at].q[lane] = usual ? (int8_t)(float_to_bits(x * (127 / m) + magic) & 0xffu) : 0;
    if (lane == 0)
        out[at].scale = usual ? m / 127 : max < 0x7f800000u ? 0 : float_from_bits(0x7fc00000u);
}

void cuda_quantise(struct queue *queue, struct buffer in, int stride, int rows, int each, int inputs, struct buffer expert,
                   struct buffer out)
{
    int64_t blocks = (int64_t)rows * quantised_blocks(inputs);
    LAUNCH_PDL(quantise_kernel, dim3(blocks_for(blocks, QUANTISE_THREADS / WARP)), dim3(QUANTISE_THREADS), 0,
               cuda_stream(queue), (const float *)(uintptr_t)in.address, stride, rows, each, inputs,
               (const int32_t *)(uintptr_t)expert.address, (struct quantised *)(uintptr_t)out.address, cuda_live(queue));
}

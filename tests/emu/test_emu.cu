/* Functions of the emulator: collectives, atomics, async copies and schedules, with kernels without faults. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
}
#include "kernels/cuda/dev.h"

template <typename T> struct device_array {
    T *data;
    explicit device_array(size_t n) { assert_int_equal(dev_alloc((void **)&data, n * sizeof(T)), 0); }
    ~device_array() { dev_free(data); }
    T &operator[](size_t i) { return data[i]; }
};

static void each_schedule(void (*body)(void))
{
    for (int i = 0; i < 8; i++) {
        emu_options.schedule = i == 0 ? EMU_FORWARD : i == 1 ? EMU_REVERSE : EMU_RANDOM;
        emu_options.seed = (uint64_t)i;
        body();
    }
    emu_options.schedule = EMU_FORWARD;
}

template <int N> __global__ void __launch_bounds__(256) sum_rows(const float *in, float *out, int n)
{
    SHARED(float, part, 8);
    float s = 0;
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        s += in[i + (int)blockIdx.x * n];
    s = warp_sum(s);
    if (lane_id() == 0)
        part[warp_id()] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (int i = 0; i < (int)blockDim.x / WARP; i++)
            all += part[i];
        out[blockIdx.x] = all * N;
    }
}

static void rows_body(void)
{
    device_array<float> in(4 * 1001), out(4);
    for (int i = 0; i < 4004; i++)
        in[(size_t)i] = (float)(i % 7);
    LAUNCH((sum_rows<3>), 4, 256, 0, nullptr, in.data, out.data, 1001);
    for (int b = 0; b < 4; b++) {
        float want = 0;
        for (int i = 0; i < 1001; i++)
            want += (float)((b * 1001 + i) % 7);
        assert_float_equal(out[(size_t)b], 3 * want, 0);
    }
}

static void test_reduction(void **state)
{
    (void)state;
    each_schedule(rows_body);
}

__global__ void collectives(unsigned *out)
{
    unsigned lane = threadIdx.x, *mine = out + lane * 12;
    mine[0] = __shfl_sync(FULL_MASK, lane * 3, 5);
    mine[1] = __shfl_up_sync(FULL_MASK, lane, 4);
    mine[2] = __shfl_down_sync(FULL_MASK, lane, 4);
    mine[3] = __shfl_xor_sync(FULL_MASK, lane, 9);
    mine[4] = __ballot_sync(FULL_MASK, lane % 3 == 0);
    mine[5] = (unsigned)__any_sync(FULL_MASK, lane == 31) + 2u * (unsigned)__all_sync(FULL_MASK, lane < 31);
    mine[6] = __reduce_add_sync(FULL_MASK, lane);
    mine[7] = (unsigned)__reduce_min_sync(FULL_MASK, (int)lane - 7);
    mine[8] = __match_any_sync(FULL_MASK, lane % 5);
    mine[9] = __shfl_sync(FULL_MASK, lane, 1, 8);
    mine[10] = (unsigned)__shfl_sync(FULL_MASK, (unsigned long long)lane << 32 | 1, 3) + lane;
    if (lane < 12)
        mine[11] = __reduce_max_sync(0xfffu, lane);
}

static void collectives_body(void)
{
    device_array<unsigned> out(32 * 12);
    LAUNCH(collectives, 1, 32, 0, nullptr, out.data);
    for (unsigned l = 0; l < 32; l++) {
        const unsigned *mine = out.data + l * 12;
        unsigned same = 0;
        for (unsigned i = l % 5; i < 32; i += 5)
            same |= 1u << i;
        const unsigned want[12] = {15, l < 4 ? l : l - 4, l + 4 > 31 ? l : l + 4, l ^ 9, 0x49249249u, 1, 496, (unsigned)-7,
                                   same, l / 8 * 8 + 1, 1 + l, l < 12 ? 11 : ~0u};
        for (int i = 0; i < 12; i++)
            assert_int_equal(mine[i], want[i]);
    }
}

static void test_collectives(void **state)
{
    (void)state;
    each_schedule(collectives_body);
}

/* Blocks add their values; the last one to finish combines them. */
__global__ void last_block(float *part, unsigned *ticket, float *out)
{
    SHARED(unsigned, ticket_of_block, 1);
    part[blockIdx.x * blockDim.x + threadIdx.x] = (float)(blockIdx.x + threadIdx.x);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        ticket_of_block[0] = atomicAdd(ticket, 1u);
    __syncthreads();
    if (ticket_of_block[0] != gridDim.x - 1)
        return;
    float all = 0;
    for (unsigned b = 0; b < gridDim.x; b++)
        all += part[b * blockDim.x + threadIdx.x];
    out[threadIdx.x] = all;
}

static void last_block_body(void)
{
    device_array<float> part(5 * 64), out(64);
    device_array<unsigned> ticket(1);
    ticket[0] = 0;
    LAUNCH(last_block, 5, 64, 0, nullptr, part.data, ticket.data, out.data);
    for (int t = 0; t < 64; t++)
        assert_float_equal(out[(size_t)t], (float)(10 + 5 * t), 0);
}

static void test_last_block(void **state)
{
    (void)state;
    each_schedule(last_block_body);
}

/* Two stages of a ring in shared memory. */
__global__ void ring(const float *in, float *out, int tiles)
{
    SHARED(float, stage, 2 * 32 * 4);
    for (int i = 0; i < 2; i++) {
        if (i < tiles)
            cp_async16(stage + (i * 32 + lane_id()) * 4, in + (i * 32 + lane_id()) * 4);
        cp_async_commit();
    }
    float sum = 0;
    for (int i = 0; i < tiles; i++) {
        cp_async_wait<1>();
        __syncwarp();
        for (int k = 0; k < 4; k++)
            sum += stage[(i % 2 * 32 + (lane_id() + 1) % 32) * 4 + k];
        __syncwarp();
        cp_async16_or_zero(stage + (i % 2 * 32 + lane_id()) * 4, in + (((i + 2) % tiles) * 32 + lane_id()) * 4, i + 2 < tiles);
        cp_async_commit();
    }
    out[lane_id()] = sum;
}

static void ring_body(void)
{
    const int tiles = 5;
    device_array<float> in((size_t)tiles * 128), out(32);
    for (int i = 0; i < tiles * 128; i++)
        in[(size_t)i] = (float)i;
    LAUNCH(ring, 1, 32, 0, nullptr, in.data, out.data, tiles);
    for (int l = 0; l < 32; l++) {
        float want = 0;
        for (int i = 0; i < tiles; i++)
            for (int k = 0; k < 4; k++)
                want += (float)(i * 128 + (l + 1) % 32 * 4 + k);
        assert_float_equal(out[(size_t)l], want, 0);
    }
}

static void test_async_copies(void **state)
{
    (void)state;
    each_schedule(ring_body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reduction),
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_last_block),
        cmocka_unit_test(test_async_copies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}

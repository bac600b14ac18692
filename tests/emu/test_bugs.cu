/* The emulator detects all faults that it promises to detect: each kernel here has one fault, chosen by a template argument
 * (0: none), and each test states which detector finds it, with the lines that it must name. The same kernels without the
 * fault give no finding. */
extern "C" {
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
}
#include "kernels/cuda/dev.h"

/* Marks a line that a finding must name: evaluates to its argument. */
static int line_of[8];
#define MARK(i) (line_of[i] = __LINE__)

static const int N = 128;
static float *in_memory, *out_memory;
static int *ticket_memory;

static int memory_new(void **)
{
    if (dev_alloc((void **)&in_memory, 4096 * 4) || dev_alloc((void **)&out_memory, 4096 * 4) ||
        dev_alloc((void **)&ticket_memory, 64))
        return 1;
    for (int i = 0; i < 4096; i++)
        in_memory[i] = (float)(i % 251);
    emu_options.collect = true;
    emu_allow(line_of, sizeof line_of);
    return 0;
}

static int memory_old(void **)
{
    emu_options.collect = false;
    dev_free(in_memory);
    dev_free(out_memory);
    dev_free(ticket_memory);
    return 0;
}

static void schedule(int i)
{
    emu_options.schedule = i == 0 ? EMU_FORWARD : i == 1 ? EMU_REVERSE : EMU_RANDOM;
    emu_options.seed = (uint64_t)i;
}

/* Runs `body` with findings and outputs cleared; returns whether out differs from want [n] (NaNs do). */
template <typename F> static bool wrong_after(F body, const float *want, int n)
{
    emu_clear();
    memset(out_memory, 0xff, 4096 * 4);
    ticket_memory[0] = 0;
    body();
    for (int i = 0; i < n; i++)
        if (!(out_memory[i] == want[i]))
            return true;
    return false;
}

static void assert_said(const char *what)
{
    if (!strstr(emu_findings(), what))
        fail_msg("the emulator says '%s', not '%s'", emu_findings(), what);
}

static void assert_silent(void)
{
    assert_string_equal(emu_findings(), "");
}

/* Expects a race between marked lines a and b, in either order. */
static void assert_race(int a, int b)
{
    char first[32], second[32];
    snprintf(first, sizeof first, "line %d (", line_of[a]);
    snprintf(second, sizeof second, "line %d (", line_of[b]);
    assert_said("race in ");
    assert_said(first);
    assert_said(second);
}

/* --- barriers of a block --- */

/* Each thread passes on its neighbour's value, twice. BUG 1: no barrier before the read; 2: none before the array is reused. */
template <int BUG> __global__ void neighbours(const float *in, float *out)
{
    SHARED(float, value, N);
    int t = (int)threadIdx.x;
    float mine = in[t];
    for (int round = 0; round < 2; round++) {
        MARK(0); value[t] = mine;
        if (BUG != 1)
            __syncthreads();
        MARK(1); mine = value[(t + 33) % N] + 1;
        if (BUG != 2)
            __syncthreads();
    }
    out[t] = mine;
}

static float neighbours_want[N];

template <int BUG> static void neighbours_run(void) { LAUNCH((neighbours<BUG>), 1, N, 0, nullptr, in_memory, out_memory); }

static void neighbours_wanted(void)
{
    for (int t = 0; t < N; t++)
        neighbours_want[t] = in_memory[(t + 66) % N] + 2;
}

static void test_no_fault(void **)
{
    neighbours_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        assert_false(wrong_after(neighbours_run<0>, neighbours_want, N));
        assert_silent();
    }
}

static void test_missing_barrier(void **)
{
    int wrong = 0;
    neighbours_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        wrong += wrong_after(neighbours_run<1>, neighbours_want, N);
        if (emu_races_seen())
            assert_race(0, 1);
    }
    assert_true(wrong >= 18);
}

static void test_missing_second_barrier(void **)
{
    int wrong = 0;
    neighbours_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        wrong += wrong_after(neighbours_run<2>, neighbours_want, N);
        if (emu_races_seen())
            assert_race(0, 1);
    }
    assert_true(wrong >= 18);
}

/* --- async copies --- */

/* A ring of two stages. BUG 1: no wait; 2: no __syncwarp after it; 3: none before a stage is refilled. */
template <int BUG> __global__ void ring(const float *in, float *out, int tiles)
{
    SHARED(float, stage, 2 * 32 * 4);
    for (int i = 0; i < 2; i++) {
        MARK(0); cp_async16(stage + (i * 32 + lane_id()) * 4, in + (i * 32 + lane_id()) * 4);
        cp_async_commit();
    }
    float sum = 0;
    for (int i = 0; i < tiles; i++) {
        if (BUG != 1)
            cp_async_wait<1>();
        if (BUG != 2)
            __syncwarp();
        for (int k = 0; k < 4; k++) {
            MARK(1); sum += stage[(i % 2 * 32 + (lane_id() + 31) % 32) * 4 + k];
        }
        if (BUG != 3)
            __syncwarp();
        int next = i + 2 < tiles ? i + 2 : 0;
        MARK(2); cp_async16(stage + (i % 2 * 32 + lane_id()) * 4, in + (next * 32 + lane_id()) * 4);
        cp_async_commit();
    }
    out[lane_id()] = sum;
}

static const int TILES = 5;
static float ring_want[32];

template <int BUG> static void ring_run(void) { LAUNCH((ring<BUG>), 1, 32, 0, nullptr, in_memory, out_memory, TILES); }

static void ring_wanted(void)
{
    for (int l = 0; l < 32; l++) {
        ring_want[l] = 0;
        for (int i = 0; i < TILES; i++)
            for (int k = 0; k < 4; k++)
                ring_want[l] += in_memory[i * 128 + (l + 31) % 32 * 4 + k];
    }
}

static void test_ring_no_fault(void **)
{
    ring_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        assert_false(wrong_after(ring_run<0>, ring_want, 32));
        assert_silent();
    }
}

static void test_missing_wait(void **)
{
    ring_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        assert_true(wrong_after(ring_run<1>, ring_want, 32));
        assert_true(out_memory[0] != out_memory[0]);                    /* NaN */
    }
}

static void test_missing_syncwarp(void **)
{
    ring_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        assert_true(wrong_after(ring_run<2>, ring_want, 32));
        if (emu_races_seen())
            assert_race(0, 1);
    }
}

static void test_stage_filled_too_early(void **)
{
    ring_wanted();
    for (int i = 0; i < 22; i++) {
        schedule(i);
        wrong_after(ring_run<3>, ring_want, 32);
        if (emu_races_seen())
            assert_race(1, 2);
    }
}

/* --- waiting for threads that cannot arrive --- */

template <int BUG> __global__ void meeting(float *out)
{
    int t = (int)threadIdx.x;
    float value = (float)t;
    if (BUG == 1) {                                                     /* two barriers for one */
        if (t < 64) {
            MARK(0); __syncthreads();
        } else {
            MARK(1); __syncthreads();
        }
    } else if (BUG == 2) {                                              /* some end before the barrier */
        if (t == 70)
            return;
        MARK(0); __syncthreads();
    } else if (BUG == 3) {                                              /* half a warp */
        if (t % 32 < 16) {
            MARK(0); value = __shfl_xor_sync(FULL_MASK, value, 1);
        }
    } else if (BUG == 4) {                                              /* from a lane outside the mask */
        if (t % 32 < 16) {
            MARK(0); value = __shfl_sync(0xffffu, value, 20);
        }
    } else if (BUG == 5) {                                              /* masks that differ */
        MARK(0); value = __shfl_xor_sync(t % 32 == 3 ? 0x0fffffffu : FULL_MASK, value, 1);
    } else if (BUG == 6) {                                              /* one shuffle for another */
        if (t % 2) {
            MARK(0); value = __shfl_sync(FULL_MASK, value, 0);
        } else {
            MARK(1); value = __shfl_sync(FULL_MASK, value, 0);
        }
    } else if (BUG == 7) {                                              /* half a warp at the barrier, half in a vote */
        if (t % 32 < 16) {
            MARK(0); __syncthreads();
        } else {
            MARK(1); value = (float)__any_sync(FULL_MASK, 1);
        }
    } else if (BUG == 8) {                                              /* a lane that its own mask excludes */
        MARK(0); value = __shfl_sync(0xfffffffeu, value, 1);
    }
    out[t] = value;
}

template <int BUG> static void meeting_said(const char *what, bool names_line)
{
    char line[32];
    for (int i = 0; i < 12; i++) {
        schedule(i);
        emu_clear();
        LAUNCH((meeting<BUG>), 1, N, 0, nullptr, out_memory);
        snprintf(line, sizeof line, "line %d", line_of[0]);
        assert_said(what);
        assert_said("meeting<BUG>");
        if (names_line)
            assert_said(line);
    }
}

static void test_barriers_apart(void **) { meeting_said<1>("at the barrier of line", true); }
static void test_ended_before_barrier(void **) { meeting_said<2>("thread 70 has ended", true); }
static void test_half_a_warp(void **) { meeting_said<3>("lane", true); }
static void test_lane_outside(void **) { meeting_said<4>("of lane 20, which is not in the mask 0000ffff", true); }
static void test_masks_differ(void **) { meeting_said<5>("0fffffff", true); }
static void test_calls_differ(void **) { meeting_said<6>("is at another call", true); }
static void test_deadlock(void **) { meeting_said<7>("deadlock, everybody waits; 64 at the ", true); }
static void test_lane_left_out(void **) { meeting_said<8>("lane 0 is not in the mask fffffffe", true); }

/* --- bounds --- */

template <int BUG> __global__ void bounds(float *out, int at)
{
    SHARED(float, small, 8);
    if (threadIdx.x == 0 && BUG == 1)
        small[at] = 1;
    if (threadIdx.x == 0 && BUG == 2)
        out[at] = 1;
}

/* Under ASan the program ends at the line; otherwise the guard is found damaged. */
static void assert_bounds(void (*run)(void), const char *what, const char *asan)
{
    int ends[2];
    char text[16384] = "";
    size_t length = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        emu_clear();
        run();
        fprintf(stderr, "%s", emu_findings());
        fflush(stderr);
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; length < sizeof text - 1 && (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = 0;
    close(ends[0]);
    waitpid(child, nullptr, 0);
    if (!strstr(text, what) && !strstr(text, asan))
        fail_msg("the emulator says '%s', not '%s'", text, what);
#ifdef __SANITIZE_ADDRESS__
    assert_non_null(strstr(text, asan));
    assert_non_null(strstr(text, "test_bugs.cu"));
#endif
}

static void test_shared_bounds(void **)
{
    assert_bounds([] { LAUNCH((bounds<1>), 1, 32, 0, nullptr, out_memory, 8); },
                  emu_races_seen() ? "past the end of 32 bytes of shared memory"
                                   : "wrote past the end of the shared array small (32 bytes)",
                  "use-after-poison");
}

static void test_device_bounds(void **)
{
    assert_bounds([] { LAUNCH((bounds<2>), 1, 32, 0, nullptr, out_memory, 4096); },
                  "past the end of 16384 bytes of device memory", "use-after-poison");
}

/* Misaligned vector types of the language are detected under UBSan, and by builds that detect races. */
template <typename T> __global__ void vectors(const float *in, float *out, int at)
{
    *(T *)(out + at) = *(const T *)in;
}

static void test_vectors(void **)
{
    emu_clear();
    LAUNCH(vectors<float4>, 1, 1, 0, nullptr, in_memory, out_memory, 4);
    LAUNCH(vectors<uint2>, 1, 1, 0, nullptr, in_memory, out_memory, 2);
    assert_silent();
    if (emu_races_seen()) {
        LAUNCH(vectors<float4>, 1, 1, 0, nullptr, in_memory, out_memory, 2);
        assert_said("thread (0, 0, 0), line ");
        assert_said("which is not a multiple of 16");
        emu_clear();
        LAUNCH(vectors<uint2>, 1, 1, 0, nullptr, in_memory + 1, out_memory, 2);
        assert_said("which is not a multiple of 8");
    }
#ifdef __SANITIZE_ADDRESS__
    assert_bounds([] { LAUNCH(vectors<float4>, 1, 1, 0, nullptr, in_memory, out_memory, 2); }, "", "misaligned address");
    assert_bounds([] { LAUNCH(vectors<uint2>, 1, 1, 0, nullptr, in_memory, out_memory, 1); }, "", "misaligned address");
#endif
}

/* --- memory of the host --- */

static const float table[4] = {1, 2, 3, 4};
static float host_value[4];

/* BUG 0: constants, arguments, its own stack. 1: reads, 2: writes, 3: adds to memory of the host; 4: another thread's stack. */
template <int BUG> __global__ void reaches(float *out, float *from, int index, const float **shown)
{
    float mine[4] = {table[index], 1, 2, 3};
    if (BUG == 0)
        out[threadIdx.x] = mine[index] + table[index ^ 1];
    if (BUG == 1)
        out[threadIdx.x] = from[index];
    if (BUG == 2)
        from[index] = mine[index];
    if (BUG == 3)
        atomicAdd(&from[index], 1.0f);
    if (BUG == 4 && threadIdx.x == 0)
        *shown = mine;
    __syncthreads();
    if (BUG == 4)
        out[threadIdx.x] = (*shown)[index];
}

template <int BUG> static void reaches_run(float *from)
{
    emu_clear();
    LAUNCH((reaches<BUG>), 1, 2, 0, nullptr, out_memory, from, 1, (const float **)(void *)in_memory);
}

static void test_host_memory(void **)
{
    float here[2] = {0, 0};
    if (!emu_races_seen())
        return;
    reaches_run<0>(host_value);
    reaches_run<1>(out_memory + 2);
    assert_silent();
    reaches_run<1>(host_value);
    assert_said("reads 4 bytes of the host's memory in line ");
    reaches_run<1>(here);
    assert_said("reads 4 bytes of the host's memory in line ");
    reaches_run<2>(host_value);
    assert_said("writes 4 bytes of the host's memory in line ");
    reaches_run<3>(host_value);
    assert_said("an atomic on the host's memory");
    reaches_run<4>(host_value);
    assert_said("thread (1, 0, 0), line 0: reads 4 bytes of the host's memory in line ");
}

/* --- blocks --- */

/* The last block to finish adds up the values of all. BUG 1: no barrier before the ticket; 2: none after it. 3: every block
 * adds, without a ticket. */
template <int BUG> __global__ void last_block(float *part, int *ticket, float *out)
{
    SHARED(int, ticket_of_block, 1);
    MARK(0); part[blockIdx.x * 64 + threadIdx.x] = 1;
    __threadfence();
    if (BUG != 1)
        __syncthreads();
    if (threadIdx.x == 0)
        ticket_of_block[0] = BUG == 3 ? 3 : atomicAdd(ticket, 1);
    if (BUG != 2)
        __syncthreads();
    MARK(2); bool last = ticket_of_block[0] == 3;
    if (!last)
        return;
    float all = 0;
    for (int b = 0; b < 4; b++) {
        MARK(1); all += part[b * 64 + (int)threadIdx.x];
    }
    if (BUG == 0 || threadIdx.x < 64)
        out[threadIdx.x] = all;
}

template <int BUG> static void last_block_run(void)
{
    LAUNCH((last_block<BUG>), 4, 64, 0, nullptr, in_memory + 1024, ticket_memory, out_memory);
}

static void test_blocks(void **)
{
    float want[64];
    for (float &w : want)
        w = 4;
    for (int i = 0; i < 12; i++) {
        schedule(i);
        assert_false(wrong_after(last_block_run<0>, want, 64));
        assert_silent();
        if (!emu_races_seen())
            continue;
        wrong_after(last_block_run<1>, want, 64);
        assert_race(0, 1);
        wrong_after(last_block_run<2>, want, 64);
        assert_said("race in shared memory");
        wrong_after(last_block_run<3>, want, 64);
        assert_race(0, 1);
    }
}

/* --- loads, launches, uninitialised memory --- */

template <int BUG> __global__ void loads(float *in, float *out)
{
    SHARED(float, stage, 64);
    int t = (int)threadIdx.x;
    if (BUG == 1)
        out[t] = (float)ld128(in + t * 4 + 1).x;
    if (BUG == 2)
        cp_async16(stage + t, in + t * 4);
    if (BUG == 3)
        out[t] = stage[t];
    if (BUG == 5)
        prefetch(in + t + 1, 16);
    if (BUG == 6)
        prefetch(in + 4 * t, 8);
    if (BUG == 7)
        prefetch(in + 4 * t, 4096 * 4);
    if (BUG == 4) {
        in[t * 4] = 1;
        out[t] = float_from_bits(ld128(in + t * 4).x);
    }
}

static void test_alignment(void **)
{
    emu_clear();
    LAUNCH((loads<1>), 1, 8, 0, nullptr, in_memory, out_memory);
    assert_said("ld128 of an address that is not a multiple of 16");
    emu_clear();
    LAUNCH((loads<2>), 1, 8, 0, nullptr, in_memory, out_memory);
    assert_said("cp_async16 to an address that is not a multiple of 16");
}

static void test_prefetches(void **)
{
    emu_clear();
    LAUNCH((loads<5>), 1, 8, 0, nullptr, in_memory, out_memory);
    assert_said("prefetch of an address that is not a multiple of 16");
    emu_clear();
    LAUNCH((loads<6>), 1, 8, 0, nullptr, in_memory, out_memory);
    assert_said("prefetch of 8 bytes");
    emu_clear();
    LAUNCH((loads<7>), 1, 8, 0, nullptr, in_memory, out_memory);
    if (emu_races_seen())
        assert_said("prefetch of memory that is not there");
}

static void test_never_written(void **)
{
    emu_clear();
    memset(out_memory, 0, 64);
    LAUNCH((loads<3>), 1, 8, 0, nullptr, in_memory, out_memory);
    if (emu_races_seen()) {
        assert_said("shared memory that nobody wrote is read in line ");
    } else {
        assert_silent();
    }
    assert_true(out_memory[3] != out_memory[3]);
}

static void test_read_only_loads(void **)
{
    emu_clear();
    LAUNCH((loads<4>), 1, 8, 0, nullptr, in_memory, out_memory);
    if (emu_races_seen())
        assert_said("ld128 of memory that this launch wrote");
}

template <int FLOATS> __global__ void large(float *out)
{
    SHARED(float, much, FLOATS);
    much[threadIdx.x] = 0;
    out[threadIdx.x] = much[threadIdx.x];
}

__global__ void early(float *out)
{
    if (threadIdx.x == 5)
        return;
    pdl_wait();
    out[threadIdx.x] = 1;
}

/* A launch that may be early, after one that writes `in`. BUG 1: reads it too early; 2: writes too early; 3: reads the value
 * from two launches before; 0: reads early only memory that no launch wrote. */
__global__ void producer(float *out)
{
    pdl_wait();
    out[threadIdx.x] = 1;
}

template <int BUG> __global__ void consumer(const float *weight, const float *in, float *out)
{
    int t = (int)threadIdx.x;
    float early = BUG == 0 ? weight[t] : 0;
    if (BUG == 1 || BUG == 3) {
        MARK(0); early = in[t];
    }
    if (BUG == 2) {
        MARK(0); out[t] = 0;
    }
    pdl_wait();
    out[t] = early + in[t];
}

template <int BUG> static void consumer_said(const char *what)
{
    for (int i = 0; i < 6; i++) {
        char line[32];
        schedule(i);
        emu_clear();
        dev_wait(nullptr);
        LAUNCH(producer, 1, 32, 0, nullptr, in_memory);
        if (BUG == 3)
            LAUNCH_PDL(producer, 1, 32, 0, nullptr, in_memory + 64);
        LAUNCH_PDL((consumer<BUG>), 1, 32, 0, nullptr, in_memory + 1024, in_memory, out_memory);
        if (!emu_races_seen() || BUG == 0) {
            assert_silent();
            continue;
        }
        snprintf(line, sizeof line, "line %d", line_of[0]);
        assert_said(what);
        assert_said(line);
    }
}

static void test_early_launches(void **)
{
    consumer_said<0>("");
    consumer_said<1>("reads before pdl_wait");
    consumer_said<2>("writes device memory before pdl_wait");
    consumer_said<3>("reads before pdl_wait");
}

/* Blocks run one after another, so a block that waits for a later one waits forever. */
__global__ void grid_barrier(int *arrived, float *out)
{
    atomicAdd(arrived, 1);
    while (atomicAdd(arrived, 0) < (int)gridDim.x)
        __nanosleep(100);
    out[threadIdx.x] = 1;
}

static void test_grid_barrier(void **)
{
    emu_clear();
    ticket_memory[0] = 0;
    LAUNCH(grid_barrier, 2, 1, 0, nullptr, ticket_memory, out_memory);
    assert_said("has waited a million times for something that does not come");
}

enum { BOUND = 64 };
template <int N> __global__ void __launch_bounds__(BOUND, N) bounded(float *out) { out[threadIdx.x] = N; }
__global__ void __launch_bounds__(2 * BOUND) bounded_twice(float *out) { out[threadIdx.x] = 1; }

static void test_launch_bounds(void **)
{
#if defined(__x86_64__) || defined(__aarch64__)
    emu_clear();
    LAUNCH(bounded<2>, 1, 64, 0, nullptr, out_memory);
    LAUNCH(bounded_twice, 1, 128, 0, nullptr, out_memory);
    assert_silent();
    LAUNCH(bounded<2>, 1, 65, 0, nullptr, out_memory);
    assert_said("bounded<2>: a block of 65 threads, but its __launch_bounds__ allow 64");
    emu_clear();
    LAUNCH(bounded_twice, 1, dim3(32, 5), 0, nullptr, out_memory);
    assert_said("a block of 160 threads, but its __launch_bounds__ allow 128");
#endif
}

static void test_launches(void **)
{
    emu_clear();
    LAUNCH((loads<0>), 1, 1025, 0, nullptr, in_memory, out_memory);
    assert_said("a block of 1025 x 1 x 1 threads");
    emu_clear();
    LAUNCH((loads<0>), 1, 32, 227 * 1024 + 1, nullptr, in_memory, out_memory);
    assert_said("more than 227 KB");
    emu_clear();
    LAUNCH((loads<0>), dim3(1, 65536), 32, 0, nullptr, in_memory, out_memory);
    assert_said("a grid of 1 x 65536 x 1 blocks");
    emu_clear();
    LAUNCH((large<12 * 1024>), 1, 32, 0, nullptr, out_memory);
    assert_silent();
    LAUNCH((large<12 * 1024 + 1>), 1, 32, 0, nullptr, out_memory);
    assert_said("more than 48 KB");
    emu_clear();
    LAUNCH(early, 1, 32, 0, nullptr, out_memory);
    assert_silent();
    LAUNCH_PDL(early, 1, 32, 0, nullptr, out_memory);
    assert_said("thread 5 of block 0 ended without pdl_wait");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_fault),
        cmocka_unit_test(test_missing_barrier),
        cmocka_unit_test(test_missing_second_barrier),
        cmocka_unit_test(test_ring_no_fault),
        cmocka_unit_test(test_missing_wait),
        cmocka_unit_test(test_missing_syncwarp),
        cmocka_unit_test(test_stage_filled_too_early),
        cmocka_unit_test(test_barriers_apart),
        cmocka_unit_test(test_ended_before_barrier),
        cmocka_unit_test(test_half_a_warp),
        cmocka_unit_test(test_lane_outside),
        cmocka_unit_test(test_masks_differ),
        cmocka_unit_test(test_calls_differ),
        cmocka_unit_test(test_deadlock),
        cmocka_unit_test(test_lane_left_out),
        cmocka_unit_test(test_shared_bounds),
        cmocka_unit_test(test_device_bounds),
        cmocka_unit_test(test_host_memory),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_never_written),
        cmocka_unit_test(test_prefetches),
        cmocka_unit_test(test_read_only_loads),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_early_launches),
        cmocka_unit_test(test_grid_barrier),
        cmocka_unit_test(test_launch_bounds),
        cmocka_unit_test(test_launches),
    };
    return cmocka_run_group_tests(tests, memory_new, memory_old);
}

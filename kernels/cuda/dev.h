/* Everything that the sources of kernels/cuda know of a GPU: the only header that a .cu file includes besides contracts
 * (kernels/NAME.h) and shared arithmetic (kernels/plain, common/base/float.h).
 *
 * Two compilers read a .cu file. nvcc compiles it for GPUs: the names below are intrinsics and inline PTX. A C++ compiler
 * compiles it for the CPU in tests: there tests/emu implements the same names, thread by thread, and reports faults that a GPU
 * ignores silently (races, threads that wait forever, reads of memory that was never written).
 *
 * A .cu file may use:
 *     __global__, __device__, __launch_bounds__, __grid_constant__, __restrict__, templates; threadIdx, blockIdx, blockDim,
 *         gridDim
 *     SHARED(T, name, n);          a block's shared array T name[n], 16-byte aligned; contents undefined (the emulator: NaNs)
 *     SHARED_DYN(T, name);         the shared memory whose size is an argument of the launch
 *     LAUNCH(kernel, grid, block, smem, stream, ...);      LAUNCH((kernel<4, 8>), ...) for a template
 *     LAUNCH_PDL(...)              the same, but the kernel may start before the previous one has ended; every thread of the
 *                                  kernel must call pdl_wait() before it accesses data that other kernels wrote
 *     ld128(p)                     16 bytes, aligned to 16, of memory that is not written during the launch (weights)
 *     prefetch(p, bytes)           one thread prefetches memory into the second-level cache; both are multiples of 16
 *     cp_async16, cp_async16_or_zero, cp_async_commit(), cp_async_wait<N>()    global to shared memory
 *     mma16816(d, a, b)            one tensor-core product of a warp
 *     __syncthreads, __syncwarp, __shfl*_sync, __ballot_sync, __any_sync, __all_sync, __match_any_sync, __reduce_*_sync: full
 *         mask, or exactly the lanes that execute the call; never __activemask
 *     atomicAdd, atomicMax, atomicMin, atomicOr, atomicAnd, atomicExch, atomicCAS, atomicInc; __threadfence,
 *         __threadfence_system
 *     device_clock()               nanoseconds, the same in all blocks
 *     fmaf, written explicitly (contraction is off); expf, rsqrtf, ... without fast variants
 * Arrays in registers are indexed by constants only (unrolled loops); other indices move them into a stack frame.
 *
 * For host code: dev_stream, dev_alloc, dev_free, dev_memory_left, dev_upload, dev_download, dev_copy, dev_fill, dev_wait,
 * dev_busy, dev_count, dev_use; and graphs, which dev_graph.h describes. They return 0 or an error number; dev_error_text and
 * dev_error_name describe the error, dev_blame names the launch that caused it.
 *
 * dev_stream_in_order(stream): from now on, LAUNCH_PDL on the stream is LAUNCH, to locate faults.
 *
 * For copies that run beside kernels:
 *     dev_copies_new(&stream)      a stream for copies only
 *     dev_upload_pinned(to, from, bytes, stream)   `from` is memory of dev_alloc_shared, and is read when the copy runs
 *     dev_event_new(&event), dev_event_free(&event)
 *     dev_event_record(event, stream)      the event completes when all earlier work of the stream has ended. An event that was
 *                                  never recorded is complete
 *     dev_event_hold(event, stream)        later work of the stream waits for the latest record of the event
 *     dev_event_wait(event), dev_event_busy(event, &busy)      the host waits, or polls */
#ifndef MOE_KERNELS_CUDA_DEV_H
#define MOE_KERNELS_CUDA_DEV_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct dev_properties {
    char name[64];
    int architecture;                    /* 80, 90, 100, ... */
    int processors;                      /* SMs */
    size_t memory;
};

/* The launch to blame for an error of a stream: the first launch that failed and is not reported yet, else the latest
 * launch. */
struct dev_launches {
    int failed;                          /* its error number; 0: none failed */
    bool reported;                       /* its failure was the last error that was reported */
    const char *kernel, *file;
    int line;
};

/* Returns the error of a failed launch that was not reported yet, and marks it as reported; 0: none. */
static inline int dev_launches_report(struct dev_launches *launches)
{
    int error = launches->failed;
    launches->failed = 0;
    launches->reported = error != 0;
    return error;
}

#ifdef __CUDACC__
#include "kernels/cuda/dev_nvcc.h"
#else
#include "tests/emu/emu.h"
#endif

#include "common/base/float.h"
#include "kernels/cuda/dev_graph.h"

#define WARP 32
#define FULL_MASK 0xffffffffu

#define DEVICE static __device__ __forceinline__

/* Precedes a loop over registers: the compiler unrolls the loop completely. */
#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL
#endif

/* Records a launch and its error, unless an earlier failure is not reported yet. No-op without a stream: dev_wait reports such
 * a failure. */
static inline void dev_launched(dev_stream stream, int error, const char *kernel, const char *file, int line)
{
    struct dev_launches *launches = dev_launches_of(stream);
    if (launches && !launches->failed)
        *launches = {error, false, kernel, file, line};
}

/* Returns the error of a failed launch of the stream that was not reported yet, and marks it as reported; 0: none. */
static inline int dev_failure(dev_stream stream)
{
    struct dev_launches *launches = dev_launches_of(stream);
    return launches ? dev_launches_report(launches) : 0;
}

/* Writes the name of the launch that caused the last reported error, as far as it is known; "" if nothing was launched. */
static inline void dev_blame(dev_stream stream, char *text, size_t room)
{
    const struct dev_launches *launches = dev_launches_of(stream);
    if (room)
        text[0] = '\0';
    if (launches && launches->kernel && launches->reported)
        snprintf(text, room, "%s at %s:%d", launches->kernel, launches->file, launches->line);
    else if (launches && launches->kernel)
        snprintf(text, room, "seen after %s at %s:%d; set CUDA_LAUNCH_BLOCKING=1 to find the kernel", launches->kernel,
                 launches->file, launches->line);
}

/* Uploads bytes. `from` may be any host memory and may change as soon as this returns. */
static inline int dev_upload(void *to, const void *from, size_t bytes, dev_stream stream)
{
    bool read;
    int error = dev_upload_begin(to, from, bytes, stream, &read);
    return error || read ? error : dev_wait(stream);
}

/* Launches a kernel. A stream belongs to one device; a thread may use several open devices. */
template <typename... P, typename... A>
static inline void dev_launch(bool early, const char *name, const char *file, int line, void (*kernel)(P...), dim3 grid,
                              dim3 block, size_t smem, dev_stream stream, A... given)
{
    int error = stream ? dev_use(dev_device_of(stream)) : 0;
    if (!error)
        error = dev_start(early, name, kernel, grid, block, smem, stream, given...);
    dev_launched(stream, error, name, file, line);
}

#define LAUNCH(kernel, ...) dev_launch(false, #kernel, __FILE__, __LINE__, kernel, __VA_ARGS__)
#define LAUNCH_PDL(kernel, ...) dev_launch(true, #kernel, __FILE__, __LINE__, kernel, __VA_ARGS__)

static inline double dev_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Permits the next launch to start early, and waits for earlier kernels. A kernel of LAUNCH_PDL calls this before it accesses
 * their data. */
DEVICE void pdl_begin(void)
{
    pdl_trigger();
    pdl_wait();
}

/* Prefetches `count` floats, except those at the ends that do not fill a whole 16-byte piece. No launch may write these
 * floats. */
DEVICE void prefetch_floats(const float *from, int count)
{
    uintptr_t first = ((uintptr_t)from + 15) / 16 * 16, end = (uintptr_t)(from + count) / 16 * 16;
    if (first < end)
        prefetch((const void *)first, end - first);
}

DEVICE int lane_id(void) { return (int)(threadIdx.x % WARP); }          /* for one-dimensional blocks */
DEVICE int warp_id(void) { return (int)(threadIdx.x / WARP); }

/* Packs two bf16 into a register, `low` in the lower half: the order in which mma16816 expects k and k + 1. */
DEVICE uint32_t pair_bf16(uint16_t low, uint16_t high) { return (uint32_t)high << 16 | low; }
DEVICE float low_bf16(uint32_t pair) { return float_from_bits(pair << 16); }
DEVICE float high_bf16(uint32_t pair) { return float_from_bits(pair & 0xffff0000u); }

/* Return the sum and the maximum over a warp in a fixed order (halves: 16, 8, 4, 2, 1); all lanes receive the result. */
DEVICE float warp_sum(float value)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        value += __shfl_xor_sync(FULL_MASK, value, step);
    return value;
}

DEVICE float warp_max(float value)
{
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmaxf(value, __shfl_xor_sync(FULL_MASK, value, step));
    return value;
}

/* Convert a float to an unsigned key of the same order (-0 below +0; NaNs outermost), and back. */
DEVICE uint32_t float_key(float value)
{
    uint32_t bits = float_to_bits(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

DEVICE float float_of_key(uint32_t key)
{
    return float_from_bits(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

#endif

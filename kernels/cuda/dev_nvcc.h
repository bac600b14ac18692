/* What stands behind dev.h under nvcc: intrinsics and inline PTX, for sm_80 and later. Include dev.h instead. */
#ifndef MOE_KERNELS_CUDA_DEV_NVCC_H
#define MOE_KERNELS_CUDA_DEV_NVCC_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#define SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define SHARED_DYN(T, name)                                        \
    extern __shared__ __align__(16) unsigned char dev_dynamic[];   \
    T *const name = reinterpret_cast<T *>(dev_dynamic)

/* A stream, and what was launched on it: the first launch that failed, else the latest. With CUDA_LAUNCH_BLOCKING=1 in the
 * environment a launch ends with its kernel, and what a kernel does wrong is a failure of its launch. */
struct dev_queue {
    cudaStream_t stream;
    cudaError_t failed;
    const char *kernel, *file;
    int line;
};
typedef struct dev_queue *dev_stream;

static inline cudaStream_t dev_stream_of(dev_stream stream) { return stream ? stream->stream : nullptr; }

static inline void dev_launched(dev_stream stream, int error, const char *kernel, const char *file, int line)
{
    if (stream && stream->failed == cudaSuccess)
        *stream = dev_queue{stream->stream, (cudaError_t)error, kernel, file, line};
}

/* Whether the device can start a launch before the one in front of it has ended. */
static inline bool dev_early(void)
{
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
}

template <typename... P, typename... A>
static inline void dev_launch(bool early, const char *name, const char *file, int line, void (*kernel)(P...), dim3 grid,
                              dim3 block, size_t smem, dev_stream stream, A... given)
{
    if (smem > 32 * 1024)            /* more than 48 KB with static arrays must be asked for */
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem);
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = dev_stream_of(stream);
    config.attrs = &attribute;
    config.numAttrs = early && dev_early() ? 1 : 0;
    dev_launched(stream, cudaLaunchKernelEx(&config, kernel, static_cast<P>(given)...), name, file, line);
}

#define LAUNCH(kernel, ...) dev_launch(false, #kernel, __FILE__, __LINE__, kernel, __VA_ARGS__)
#define LAUNCH_PDL(kernel, ...) dev_launch(true, #kernel, __FILE__, __LINE__, kernel, __VA_ARGS__)

static inline int dev_count(int *devices) { return cudaGetDeviceCount(devices); }
static inline int dev_use(int device)
{
    int current = -1;
    return cudaGetDevice(&current) == cudaSuccess && current == device ? 0 : cudaSetDevice(device);
}
static inline int dev_properties_of(int device, struct dev_properties *out)
{
    cudaDeviceProp all;
    cudaError_t error = cudaGetDeviceProperties(&all, device);
    if (error != cudaSuccess)
        return error;
    snprintf(out->name, sizeof out->name, "%s", all.name);
    out->architecture = all.major * 10 + all.minor;
    out->processors = all.multiProcessorCount;
    out->memory = all.totalGlobalMem;
    return 0;
}
static inline int dev_stream_new(dev_stream *out)
{
    dev_stream made = (dev_stream)calloc(1, sizeof *made);
    cudaError_t error = made ? cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking) : cudaErrorMemoryAllocation;
    if (error != cudaSuccess)
        free(made);
    else
        *out = made;
    return error;
}
static inline int dev_stream_free(dev_stream stream)
{
    cudaError_t error = cudaStreamDestroy(stream->stream);
    free(stream);
    return error;
}
static inline int dev_alloc(void **out, size_t bytes) { return cudaMalloc(out, bytes); }
static inline int dev_free(void *memory) { return cudaFree(memory); }
static inline int dev_alloc_shared(void **out, size_t bytes) { return cudaHostAlloc(out, bytes, cudaHostAllocMapped); }
static inline int dev_free_shared(void *memory) { return cudaFreeHost(memory); }
static inline int dev_upload(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev_stream_of(stream));
}
static inline int dev_download(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, dev_stream_of(stream));
}
static inline int dev_copy(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, dev_stream_of(stream));
}
static inline int dev_fill(void *to, int byte, size_t bytes, dev_stream stream)
{
    return cudaMemsetAsync(to, byte, bytes, dev_stream_of(stream));
}
/* Also tells of launches that failed since the last call. */
static inline int dev_wait(dev_stream stream)
{
    cudaError_t late = cudaStreamSynchronize(dev_stream_of(stream)), last = cudaGetLastError();
    return stream && stream->failed != cudaSuccess ? stream->failed : late != cudaSuccess ? late : last;
}
/* Which launch an error of dev_wait is about, as far as it is known; then the stream forgets it. "" when nothing was
 * launched. */
static inline void dev_blame(dev_stream stream, char *text, size_t room)
{
    if (room)
        text[0] = '\0';
    if (!stream || !stream->kernel)
        return;
    if (stream->failed != cudaSuccess)
        snprintf(text, room, "%s at %s:%d", stream->kernel, stream->file, stream->line);
    else
        snprintf(text, room, "seen behind %s at %s:%d; CUDA_LAUNCH_BLOCKING=1 tells which kernel it was", stream->kernel,
                 stream->file, stream->line);
    stream->failed = cudaSuccess;
}
static inline const char *dev_error_text(int error) { return cudaGetErrorString((cudaError_t)error); }
static inline const char *dev_error_name(int error) { return cudaGetErrorName((cudaError_t)error); }

static __device__ __forceinline__ uint4 ld128(const void *address)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address));
    return v;
}

static __device__ __forceinline__ void prefetch(const void *address, size_t bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" :: "l"(address), "r"((uint32_t)bytes) : "memory");
#else
    (void)address, (void)bytes;
#endif
}

static __device__ __forceinline__ void cp_async16(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global) : "memory");
}

/* Zeros where `valid` is false; then `global` is not read, but must be an address all the same. */
static __device__ __forceinline__ void cp_async16_or_zero(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most the latest N groups of this thread are on their way. Others see the data only after a barrier. */
template <int N> static __device__ __forceinline__ void cp_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
}

/* d += a b: a 16 x 16 and b 16 x 8 in bf16, d 16 x 8 in f32, spread over a warp. With g = lane / 4 and t = lane % 4:
 *     a[0], a[1]   rows g, g + 8, k = 2t, 2t + 1         a[2], a[3]   the same rows, k = 2t + 8, 2t + 9
 *     b[0], b[1]   column g, k = 2t, 2t + 1 and k = 2t + 8, 2t + 9
 *     d[0], d[1]   row g, columns 2t, 2t + 1             d[2], d[3]   row g + 8, the same columns */
static __device__ __forceinline__ void mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

static __device__ __forceinline__ void pdl_wait(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

static __device__ __forceinline__ void pdl_trigger(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

static __device__ __forceinline__ uint64_t device_clock(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

/* An f16's value, exactly. */
static __device__ __forceinline__ float widen_f16(uint16_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

/* Two floats to bf16, to nearest, ties to even. */
static __device__ __forceinline__ uint32_t narrow_bf16(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif

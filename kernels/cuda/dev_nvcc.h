/* dev.h implemented for nvcc: intrinsics and inline PTX, for sm_80 and later. Include dev.h instead. */
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

/* Returns the result of a runtime function and clears the thread's last error, so that no library or later call reports it
 * again. */
static inline int dev_reported(cudaError_t error)
{
    if (error != cudaSuccess)
        cudaGetLastError();
    return error;
}

enum { DEV_KERNELS = 256 };
static const size_t DEV_SMEM_FREE = 32 * 1024;              /* shared memory that a launch may use without
                                                             * cudaFuncSetAttribute, which is needed above 48 KB with static
                                                             * arrays */

/* A stream and its launches. With CUDA_LAUNCH_BLOCKING=1 in the environment a launch ends with its kernel, so that a kernel's
 * fault is an error of its own launch. */
struct dev_queue {
    cudaStream_t stream;
    int device;                      /* the device of the stream */
    struct dev_launches launches;
    bool early;                      /* the device can start a launch before the previous one has ended */
    bool direct;                     /* the device reads pageable host memory itself, when a copy runs */
    struct {
        const void *kernel;
        size_t smem;
    } ready[DEV_KERNELS];            /* prepared kernels by address, and their shared memory */
};
typedef struct dev_queue *dev_stream;

static inline cudaStream_t dev_stream_of(dev_stream stream) { return stream ? stream->stream : nullptr; }

static inline struct dev_launches *dev_launches_of(dev_stream stream) { return stream ? &stream->launches : nullptr; }
static inline int dev_device_of(dev_stream stream) { return stream->device; }

/* Sets a kernel's attributes before its first launch, and again when it needs more shared memory. All kernels use the same
 * division between shared memory and first-level cache: a multiprocessor must be idle to change the division, so a launch after
 * a change could not start early. */
static inline void dev_prepare(dev_stream stream, const void *kernel, size_t smem)
{
    size_t slot = ((uintptr_t)kernel >> 4) % DEV_KERNELS, tried = 0;
    while (stream && tried < DEV_KERNELS && stream->ready[slot].kernel && stream->ready[slot].kernel != kernel) {
        slot = (slot + 1) % DEV_KERNELS;
        tried++;
    }
    bool known = stream && tried < DEV_KERNELS;
    if (known && stream->ready[slot].kernel && smem <= stream->ready[slot].smem)
        return;
    dev_reported(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    if (smem > DEV_SMEM_FREE)        /* the launch reports a size above the limit */
        dev_reported(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)smem));
    if (known) {
        stream->ready[slot].kernel = kernel;
        stream->ready[slot].smem = smem > DEV_SMEM_FREE ? smem : DEV_SMEM_FREE;
    }
}

template <typename... P, typename... A>
static inline int dev_start(bool early, const char *, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                            dev_stream stream, A... given)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute = {};
    dev_prepare(stream, (const void *)kernel, smem);
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem;
    config.stream = dev_stream_of(stream);
    config.attrs = &attribute;
    config.numAttrs = early && stream && stream->early ? 1 : 0;
    cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<P>(given)...);
    return stream ? dev_reported(error) : error;         /* without a stream, the error stays the thread's last error for
                                                          * dev_wait */
}

static inline int dev_count(int *devices) { return dev_reported(cudaGetDeviceCount(devices)); }
static inline int dev_use(int device)
{
    int current = -1;
    return cudaGetDevice(&current) == cudaSuccess && current == device ? 0 : dev_reported(cudaSetDevice(device));
}
static inline int dev_properties_of(int device, struct dev_properties *out)
{
    cudaDeviceProp all;
    cudaError_t error = cudaGetDeviceProperties(&all, device);
    if (error != cudaSuccess)
        return dev_reported(error);
    snprintf(out->name, sizeof out->name, "%s", all.name);
    out->architecture = all.major * 10 + all.minor;
    out->processors = all.multiProcessorCount;
    out->memory = all.totalGlobalMem;
    return 0;
}
/* Returns an attribute of the current device; 0: unknown. */
static inline int dev_attribute(cudaDeviceAttr which)
{
    int device = 0, value = 0;
    return !dev_reported(cudaGetDevice(&device)) && !dev_reported(cudaDeviceGetAttribute(&value, which, device)) ? value : 0;
}
static inline int dev_stream_new(dev_stream *out)
{
    dev_stream made = (dev_stream)calloc(1, sizeof *made);
    cudaError_t error = made ? cudaStreamCreateWithFlags(&made->stream, cudaStreamNonBlocking) : cudaErrorMemoryAllocation;
    if (error != cudaSuccess) {
        free(made);
        return dev_reported(error);
    }
    dev_reported(cudaGetDevice(&made->device));
    made->early = dev_attribute(cudaDevAttrComputeCapabilityMajor) >= 9;
    made->direct = dev_attribute(cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    *out = made;
    return 0;
}
static inline void dev_stream_in_order(dev_stream stream) { stream->early = false; }
static inline int dev_copies_new(dev_stream *out) { return dev_stream_new(out); }
static inline int dev_stream_free(dev_stream stream)
{
    cudaError_t error = cudaStreamDestroy(stream->stream);
    free(stream);
    return dev_reported(error);
}
static inline int dev_alloc(void **out, size_t bytes) { return dev_reported(cudaMalloc(out, bytes)); }
static inline int dev_memory_left(size_t *bytes)
{
    size_t all;
    return dev_reported(cudaMemGetInfo(bytes, &all));
}
static inline int dev_free(void *memory) { return dev_reported(cudaFree(memory)); }
static inline int dev_alloc_shared(void **out, size_t bytes)
{
    return dev_reported(cudaHostAlloc(out, bytes, cudaHostAllocMapped));
}
static inline int dev_free_shared(void *memory) { return dev_reported(cudaFreeHost(memory)); }
/* Begins an upload. *read: whether `from` was read when it returns. The runtime copies pageable memory aside, unless the
 * device reads such memory itself; it does not copy pinned memory aside. */
static inline int dev_upload_begin(void *to, const void *from, size_t bytes, dev_stream stream, bool *read)
{
    cudaPointerAttributes at;
    bool pageable = !dev_reported(cudaPointerGetAttributes(&at, from)) && at.type == cudaMemoryTypeUnregistered;
    *read = pageable && !(stream && stream->direct);
    return dev_reported(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev_stream_of(stream)));
}
static inline int dev_upload_pinned(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return dev_reported(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, dev_stream_of(stream)));
}
static inline int dev_download(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return dev_reported(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, dev_stream_of(stream)));
}
static inline int dev_copy(void *to, const void *from, size_t bytes, dev_stream stream)
{
    return dev_reported(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, dev_stream_of(stream)));
}
static inline int dev_fill(void *to, int byte, size_t bytes, dev_stream stream)
{
    return dev_reported(cudaMemsetAsync(to, byte, bytes, dev_stream_of(stream)));
}
/* Waits for the stream; also reports launches that failed since the last call. The failure of a launch without a stream is the
 * thread's last error. */
static inline int dev_wait(dev_stream stream)
{
    cudaError_t late = cudaStreamSynchronize(dev_stream_of(stream)), last = cudaGetLastError();
    int failed = stream ? dev_launches_report(&stream->launches) : 0;
    return failed ? failed : late != cudaSuccess || stream ? late : last;
}
/* Sets *busy to whether work is left on the stream. */
static inline int dev_busy(dev_stream stream, int *busy)
{
    int state = dev_reported(cudaStreamQuery(dev_stream_of(stream)));
    *busy = state == cudaErrorNotReady;
    return *busy ? 0 : state;
}
typedef cudaEvent_t dev_event;
static inline int dev_event_new(dev_event *out)
{
    return dev_reported(cudaEventCreateWithFlags(out, cudaEventDisableTiming));
}
static inline int dev_event_free(dev_event *event)
{
    int error = *event ? dev_reported(cudaEventDestroy(*event)) : 0;
    *event = nullptr;
    return error;
}
static inline int dev_event_record(dev_event event, dev_stream stream)
{
    return dev_reported(cudaEventRecord(event, dev_stream_of(stream)));
}
static inline int dev_event_hold(dev_event event, dev_stream stream)
{
    return dev_reported(cudaStreamWaitEvent(dev_stream_of(stream), event, 0));
}
static inline int dev_event_wait(dev_event event) { return dev_reported(cudaEventSynchronize(event)); }
static inline int dev_event_busy(dev_event event, int *busy)
{
    cudaError_t error = cudaEventQuery(event);
    *busy = error == cudaErrorNotReady;
    int other = dev_reported(error);
    return *busy ? 0 : other;
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

/* Copies zeros where `valid` is false. `global` must be a valid address in any case, but is not read then. */
static __device__ __forceinline__ void cp_async16_or_zero(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 16 : 0) : "memory");
}

static __device__ __forceinline__ void cp_async_commit(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until at most the latest N groups of this thread are in flight. Other threads see the data only after a barrier. */
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

/* Converts an f16 exactly. */
static __device__ __forceinline__ float widen_f16(uint16_t half)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
    return value;
}

/* Converts two floats to bf16: to nearest, ties to even. */
static __device__ __forceinline__ uint32_t narrow_bf16(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif

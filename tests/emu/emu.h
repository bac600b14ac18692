/* A GPU made of fibers: implements kernels/cuda/dev.h when a C++ compiler reads a .cu file.
 *
 * Each thread of a block is a fiber, which runs until it waits (barrier, collective of a warp) or ends; blocks run one after
 * another. The schedule chooses the next fiber and block: forward, reverse, or random with a seed; a correct kernel gives
 * the
 * same bits in all of them. Findings (emu_findings) name kernel, block, thread and line:
 *
 *   - threads that wait for others that cannot arrive: ended, at another barrier, in another collective, outside the mask
 *   - writes past the end of a shared array or of device memory (found in guard bytes; ASan names the line)
 *   - launches that no GPU accepts, or with more threads than __launch_bounds__ allows; misaligned 16-byte accesses;
 *     launches on a stream of a device that is not the current one
 *   - copies from memory that is not pinned, and memory that is freed during a copy (stream.cc)
 *   - graphs whose WHILE node does not end, or that no GPU accepts (graph.cc)
 *   - if kernels are compiled for it (race.cc): races between threads of a block and between blocks, reads of uninitialised
 *     shared memory, and accesses of a launch that may be early, before pdl_wait, other than reads of memory that no launch
 *     wrote; accesses to memory of the host; accesses at addresses that are not a multiple of the type's alignment
 *
 * A device has two streams that run concurrently, and a correct program gives the same bits in each order that events allow:
 * devices 0 and 2 run copies as late as possible, 1 and 3 everything else (stream.cc).
 *
 * All memory is NaNs (0xff) until it is written: shared arrays anew for each block, destinations of cp_async from the copy
 * to
 * the wait. */
#ifndef MOE_EMU_H
#define MOE_EMU_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <type_traits>

enum emu_schedule { EMU_FORWARD, EMU_REVERSE, EMU_RANDOM };

struct emu_options {
    enum emu_schedule schedule;
    uint64_t seed;                       /* EMU_RANDOM */
    int tensor_core;                     /* generation whose mma16816 sums are emulated: 80 (and 89), or 90 (and 100) */
    bool collect;                        /* keep findings for emu_findings; otherwise the first one is printed and aborts */
    int fail;                            /* error that the next copy or wait returns without doing its work; 0: none */
    int fail_launch;                     /* the same for the next launch */
    bool old_driver;                     /* graphs have no WHILE nodes */
};

extern struct emu_options emu_options;   /* initially: forward, 90, abort */

/* Returns all findings since the last call of emu_clear, one per line; "" if there are none. */
const char *emu_findings(void);
void emu_clear(void);
bool emu_races_seen(void);               /* whether this build detects races */
void emu_allow(const void *memory, size_t bytes);        /* allows kernels to access this host memory, in a test */
int emu_runnables_made(void);            /* number of runnable graphs made so far */

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
/* Inserts nops before the function, which block.cc counts. */
#if defined(__x86_64__) || defined(__aarch64__)
#define __launch_bounds__(n, ...) __attribute__((patchable_function_entry((int)(n) + 0, (int)(n) + 0)))
#else
#define __launch_bounds__(...)
#endif
#define EMU_LINE int line = __builtin_LINE()

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned wide = 1, unsigned high = 1, unsigned deep = 1) : x(wide), y(high), z(deep) {}
};
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return uint2{x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return uint4{x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return float2{x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return float4{x, y, z, w}; }

typedef struct emu_stream *dev_stream;
typedef struct emu_event *dev_event;

namespace emu {

/* A thread's identity. */
struct location {
    dim3 thread, block, block_dim, grid_dim;
};
extern struct location *here;

enum kind { SYNC_WARP, SHUFFLE, BALLOT, ANY, ALL, MATCH, REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_AND, REDUCE_OR,
            REDUCE_XOR, REDUCE_MIN_SIGNED, REDUCE_MAX_SIGNED, MMA };

/* Waits for the other lanes of `mask`; `in` (at most 40 bytes) and `argument` are this lane's values, `out` gets its result. */
void meet(kind what, unsigned mask, int line, int argument, const void *in, void *out, size_t bytes);
void block_barrier(int line);
int block_count(int line, int value);                /* a barrier that counts the threads with value != 0 */
void yield(void);
[[noreturn]] void trap(int line);
void *shared(const void *key, const char *name, size_t bytes, int line);
void *shared_dynamic(int line);
void async_copy(void *to, const void *from, bool valid, int line);
void async_commit(void);
void async_wait(int pending);
uint4 load128(const void *address, int line);
void prefetch(const void *address, size_t bytes, int line);
void atomic(const void *address, size_t bytes);      /* registers the read or write, for the order of blocks */
void early_wait(void);

typedef void thread_body(const void *arguments);

/* A kernel with its arguments, which are copied at the launch. */
struct call {
    const char *name;
    bool early;
    dim3 grid, block;
    size_t smem;
    thread_body *body;
    const void *arguments;
    size_t bytes;
    const void *kernel;
};
int submit(dev_stream stream, const call &call);

template <typename T> static inline T shuffle(unsigned mask, T value, int source, int line)
{
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 4 or 8 bytes");
    T out;
    meet(SHUFFLE, mask, line, source, &value, &out, sizeof value);
    return out;
}

template <typename T> static inline T collective(kind what, unsigned mask, T value, int line)
{
    T out;
    meet(what, mask, line, 0, &value, &out, sizeof value);
    return out;
}

static inline int lane(void)
{
    const location *p = here;
    return (int)((p->thread.x + p->block_dim.x * (p->thread.y + p->block_dim.y * p->thread.z)) % 32);
}

}

#define threadIdx (emu::here->thread)
#define blockIdx (emu::here->block)
#define blockDim (emu::here->block_dim)
#define gridDim (emu::here->grid_dim)

#define SHARED(T, name, n)         \
    static const char name##_key = 0; \
    T *const name = (T *)emu::shared(&name##_key, #name, sizeof(T) * (n), __LINE__)
#define SHARED_DYN(T, name) T *const name = (T *)emu::shared_dynamic(__LINE__)

/* Barriers and collectives of a warp. */

static inline void __syncthreads(EMU_LINE) { emu::block_barrier(line); }
static inline int __syncthreads_count(int value, EMU_LINE) { return emu::block_count(line, value); }
static inline int __syncthreads_or(int value, EMU_LINE) { return emu::block_count(line, value) > 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_LINE)
{
    emu::meet(emu::SYNC_WARP, mask, line, 0, nullptr, nullptr, 0);
}

template <typename T> static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, EMU_LINE)
{
    return emu::shuffle(mask, value, (emu::lane() & ~(width - 1)) | (source & (width - 1)), line);
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T value, int flip, int width = 32, EMU_LINE)
{
    int source = emu::lane() ^ flip;
    return emu::shuffle(mask, value, source / width > emu::lane() / width ? emu::lane() : source, line);
}
template <typename T> static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_LINE)
{
    int source = emu::lane() - (int)by;
    return emu::shuffle(mask, value, source < (emu::lane() & ~(width - 1)) ? emu::lane() : source, line);
}
template <typename T> static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, EMU_LINE)
{
    int source = emu::lane() + (int)by;
    return emu::shuffle(mask, value, source > (emu::lane() | (width - 1)) ? emu::lane() : source, line);
}

static inline unsigned __ballot_sync(unsigned mask, int value, EMU_LINE)
{
    return emu::collective<unsigned>(emu::BALLOT, mask, value != 0, line);
}
static inline int __any_sync(unsigned mask, int value, EMU_LINE)
{
    return (int)emu::collective<unsigned>(emu::ANY, mask, value != 0, line);
}
static inline int __all_sync(unsigned mask, int value, EMU_LINE)
{
    return (int)emu::collective<unsigned>(emu::ALL, mask, value != 0, line);
}
static inline unsigned __match_any_sync(unsigned mask, unsigned value, EMU_LINE)
{
    return emu::collective<unsigned>(emu::MATCH, mask, value, line);
}

#define EMU_REDUCE(name, type, kind)                                                 \
    static inline type name(unsigned mask, type value, EMU_LINE)                     \
    {                                                                                \
        return (type)emu::collective<unsigned>(emu::kind, mask, (unsigned)value, line); \
    }
EMU_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
EMU_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
EMU_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN)
EMU_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX)
EMU_REDUCE(__reduce_min_sync, int, REDUCE_MIN_SIGNED)
EMU_REDUCE(__reduce_max_sync, int, REDUCE_MAX_SIGNED)
EMU_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
EMU_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
EMU_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)
#undef EMU_REDUCE

/* Atomics. One fiber runs at a time, so plain accesses suffice. */

#define EMU_ATOMIC(name, result)                                                         \
    template <typename T> static inline T name(T *address, typename emu_same<T>::type value) \
    {                                                                                    \
        emu::atomic(address, sizeof *address);                                           \
        T old = emu_peek(address);                                                       \
        emu_poke<T>(address, result);                                                    \
        return old;                                                                      \
    }
template <typename T> struct emu_same { typedef T type; };
/* Calls the emulator's memcpy, so that the race detector sees the access. */
void emu_move(void *to, const void *from, size_t bytes);
template <typename T> static inline T emu_peek(const T *address)
{
    T value;
    emu_move(&value, address, sizeof value);
    return value;
}
template <typename T> static inline void emu_poke(T *address, T value) { emu_move(address, &value, sizeof value); }
EMU_ATOMIC(atomicAdd, old + value)
EMU_ATOMIC(atomicSub, old - value)
EMU_ATOMIC(atomicMax, old > value ? old : value)
EMU_ATOMIC(atomicMin, old < value ? old : value)
EMU_ATOMIC(atomicOr, old | value)
EMU_ATOMIC(atomicAnd, old & value)
EMU_ATOMIC(atomicExch, value)
EMU_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
#undef EMU_ATOMIC
template <typename T>
static inline T atomicCAS(T *address, typename emu_same<T>::type expected, typename emu_same<T>::type value)
{
    emu::atomic(address, sizeof *address);
    T old = emu_peek(address);
    if (old == expected)
        emu_poke<T>(address, value);
    return old;
}

static inline void __threadfence(void) {}
static inline void __threadfence_block(void) {}
static inline void __threadfence_system(void) {}

static inline uint64_t device_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline void __nanosleep(unsigned) { emu::yield(); }
[[noreturn]] static inline void __trap(EMU_LINE) { emu::trap(line); }

/* Arithmetic functions that a GPU has under special names. */

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline unsigned __brev(unsigned x)
{
    unsigned y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1) << (31 - i);
    return y;
}
static inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select)
{
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned out = 0;
    for (int i = 0; i < 4; i++) {
        unsigned s = select >> 4 * i & 0xf, byte = (unsigned)(both >> 8 * (s & 7)) & 0xff;
        out |= (s & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
    }
    return out;
}
static inline unsigned __float_as_uint(float x) { unsigned y; memcpy(&y, &x, 4); return y; }
static inline int __float_as_int(float x) { int y; memcpy(&y, &x, 4); return y; }
static inline float __uint_as_float(unsigned x) { float y; memcpy(&y, &x, 4); return y; }
static inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
template <typename T> static inline T __ldg(const T *address) { return *address; }
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }

/* Memory and the tensor core: dev_nvcc.h describes them. */

static inline uint4 ld128(const void *address, EMU_LINE) { return emu::load128(address, line); }
static inline void prefetch(const void *address, size_t bytes, EMU_LINE) { emu::prefetch(address, bytes, line); }
static inline void cp_async16(void *shared, const void *global, EMU_LINE) { emu::async_copy(shared, global, true, line); }
static inline void cp_async16_or_zero(void *shared, const void *global, bool valid, EMU_LINE)
{
    emu::async_copy(shared, global, valid, line);
}
static inline void cp_async_commit(void) { emu::async_commit(); }
template <int N> static inline void cp_async_wait(void) { emu::async_wait(N); }

static inline void mma16816(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], EMU_LINE)
{
    struct { uint32_t a[4], b[2]; float d[4]; } in;
    memcpy(in.a, a, sizeof a);
    memcpy(in.b, b, sizeof b);
    memcpy(in.d, d, sizeof d);
    float out[4];
    emu::meet(emu::MMA, 0xffffffffu, line, 0, &in, out, sizeof in);
    memcpy(d, out, sizeof out);
}

static inline void pdl_wait(void) { emu::early_wait(); }
static inline void pdl_trigger(void) {}
uint32_t narrow_bf16(float low, float high);
float widen_f16(uint16_t half);

/* Launches run to their end at once, or are captured (graph.cc). */

namespace emu {

template <typename... P> struct pack;
template <> struct pack<> {
    template <typename K, typename... D> void run(K kernel, D... done) const { kernel(done...); }
};
template <typename H, typename... T> struct pack<H, T...> {
    H head;
    pack<T...> tail;
    template <typename K, typename... D> void run(K kernel, D... done) const { tail.run(kernel, done..., head); }
};

static inline pack<> make_pack(pack<> *) { return pack<>(); }
template <typename H, typename... T, typename A, typename... B>
static inline pack<H, T...> make_pack(pack<H, T...> *, A first, B... rest)
{
    return pack<H, T...>{static_cast<H>(first), make_pack((pack<T...> *)nullptr, rest...)};
}

template <typename... P> struct kernel_call {
    void (*kernel)(P...);
    pack<P...> given;
    static void body(const void *self)
    {
        const kernel_call *c = static_cast<const kernel_call *>(self);
        c->given.run(c->kernel);
    }
};

}

template <typename... P, typename... A>
static inline int dev_start(bool early, const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t smem,
                            dev_stream stream, A... given)
{
    typedef emu::kernel_call<P...> call;
    static_assert(sizeof...(P) == sizeof...(A), "a launch gives as many arguments as the kernel has");
    static_assert(std::is_trivially_copyable<call>::value, "arguments of kernels are copied as bytes");
    static_assert(alignof(call) <= 16, "arguments of kernels lie at multiples of 16");
    const call c = {kernel, emu::make_pack((emu::pack<P...> *)nullptr, given...)};
    return emu::submit(stream, {name, early, grid, block, smem, call::body, &c, sizeof c, (const void *)kernel});
}

struct dev_properties;
struct dev_launches;
struct dev_launches *dev_launches_of(dev_stream stream);
int dev_device_of(dev_stream stream);
int dev_count(int *devices);
int dev_use(int device);
int dev_properties_of(int device, struct dev_properties *out);
int dev_stream_new(dev_stream *out);
int dev_copies_new(dev_stream *out);
void dev_stream_in_order(dev_stream stream);
int dev_stream_free(dev_stream stream);
int dev_alloc(void **out, size_t bytes);
int dev_free(void *memory);
int dev_memory_left(size_t *bytes);
int dev_alloc_shared(void **out, size_t bytes);
static inline int dev_free_shared(void *memory) { return dev_free(memory); }
int dev_upload_begin(void *to, const void *from, size_t bytes, dev_stream stream, bool *read);
int dev_download(void *to, const void *from, size_t bytes, dev_stream stream);
int dev_copy(void *to, const void *from, size_t bytes, dev_stream stream);
int dev_fill(void *to, int byte, size_t bytes, dev_stream stream);
int dev_wait(dev_stream stream);
int dev_busy(dev_stream stream, int *busy);
int dev_upload_pinned(void *to, const void *from, size_t bytes, dev_stream stream);
int dev_event_new(dev_event *out);
int dev_event_free(dev_event *event);
int dev_event_record(dev_event event, dev_stream stream);
int dev_event_hold(dev_event event, dev_stream stream);
int dev_event_wait(dev_event event);
int dev_event_busy(dev_event event, int *busy);
const char *dev_error_text(int error);
const char *dev_error_name(int error);

#endif

/* Shared and device memory, async copies, and 16-byte loads. After each array lies a guard that must not be written. */
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/cuda/dev.h"
#include "tests/emu/stream.h"

namespace emu {

static const unsigned char POISON = 0xff, TAIL_BYTE = 0xfb;
static const size_t SPARE_MAX = 256 * 1024;

struct array {
    const void *key;
    const char *name;
    unsigned char *data;
    size_t bytes;
    int line;
};

static std::vector<array> arrays;                                /* of the running block */
static std::map<unsigned char *, size_t> device;                 /* allocations, without their guards */
static size_t used;                                              /* bytes allocated on all devices, without pinned memory */
static std::set<unsigned char *> pinned;                         /* allocations that the host can access, too */

static size_t room_of(size_t bytes) { return (bytes + 255) / 256 * 256 + TAIL; }

/* Fills an array and its tail as before the first write. */
static void refresh(unsigned char *data, size_t bytes)
{
    memset(data, POISON, bytes);
    memset(data + bytes, TAIL_BYTE, room_of(bytes) - bytes);
}

static unsigned char *fresh(size_t bytes)
{
    unsigned char *data = nullptr;
    if (posix_memalign((void **)&data, 256, room_of(bytes)))
        return nullptr;
    refresh(data, bytes);
    return data;
}

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __asan_poison_memory_region(void const volatile *, size_t);
extern "C" void __asan_unpoison_memory_region(void const volatile *, size_t);
static void tail_close(unsigned char *data, size_t bytes) { __asan_poison_memory_region(data + bytes, TAIL); }
static void tail_open(unsigned char *data, size_t bytes) { __asan_unpoison_memory_region(data + bytes, TAIL); }
static void array_close(unsigned char *data, size_t bytes) { __asan_poison_memory_region(data, bytes + TAIL); }
static void array_open(unsigned char *data, size_t bytes) { __asan_unpoison_memory_region(data, bytes + TAIL); }
#else
static void tail_close(unsigned char *, size_t) {}
static void tail_open(unsigned char *, size_t) {}
static void array_close(unsigned char *, size_t) {}
static void array_open(unsigned char *, size_t) {}
#endif

static bool tail_whole(const unsigned char *data, size_t bytes)
{
    const size_t tail = room_of(bytes) - bytes;             /* each byte is the first one */
    return data[bytes] == TAIL_BYTE && !memcmp(data + bytes, data + bytes + 1, tail - 1);
}

/* Arrays of earlier blocks, for the next blocks of their kernels. */
static struct spare_arrays {
    std::vector<array> all;
    ~spare_arrays() { release(); }
    void release(void)
    {
        for (array &a : all) {
            array_open(a.data, a.bytes);
            free(a.data);
        }
        all.clear();
    }
} spare;

void shared_begin(void)
{
    for (array &a : arrays) {
        race_region_rest(a.data);
        array_close(a.data, a.bytes);
        spare.all.push_back(a);
    }
    arrays.clear();
}

void shared_free(void)
{
    size_t bytes = 0;
    for (array &a : spare.all)
        bytes += a.bytes;
    if (bytes <= SPARE_MAX)
        return;
    for (array &a : spare.all)
        race_region_end(a.data);
    spare.release();
}

/* Returns an array that an earlier block had under this key, as a new one; NULL: there is none. */
static unsigned char *reused(const void *key, size_t bytes)
{
    auto one = std::find_if(spare.all.begin(), spare.all.end(),
                            [=](const array &a) { return a.key == key && a.bytes == bytes; });
    if (one == spare.all.end())
        return nullptr;
    unsigned char *data = one->data;
    spare.all.erase(one);
    array_open(data, bytes);
    refresh(data, bytes);
    return data;
}

void shared_end(void)
{
    for (array &a : arrays) {
        tail_open(a.data, a.bytes);
        if (!tail_whole(a.data, a.bytes)) {
            finding_add("block %d wrote past the end of the shared array %s (%zu bytes) of line %d", now.block_index, a.name,
                        a.bytes, a.line);
            now.given_up = true;
        }
        tail_close(a.data, a.bytes);
    }
}

static void *array_of(const void *key, const char *name, size_t bytes, int line)
{
    for (array &a : arrays)
        if (a.key == key)
            return a.data;
    array a = {key, name, reused(key, bytes), bytes, line};
    if (!a.data)
        a.data = fresh(bytes);
    if (!a.data)
        abort();
    tail_close(a.data, bytes);
    race_region(a.data, bytes, true);
    arrays.push_back(a);
    return a.data;
}

void *shared(const void *key, const char *name, size_t bytes, int line)
{
    size_t all = 0;
    void *data = array_of(key, name, bytes, line);
    for (array &a : arrays)
        all += a.key == &arrays ? 0 : (a.bytes + 15) / 16 * 16;
    if (all > 48 * 1024)
        found(line, "%zu bytes of static shared memory, more than 48 KB", all);
    if (all + now.smem > 227 * 1024)
        found(line, "%zu bytes of shared memory, more than 227 KB", all + now.smem);
    return data;
}

void *shared_dynamic(int line) { return array_of(&arrays, "of the launch", now.smem, line); }

static void need_aligned(const void *address, int line, const char *what)
{
    if ((uintptr_t)address % 16)
        found(line, "%s an address that is not a multiple of 16", what);
}

uint4 load128(const void *address, int line)
{
    need_aligned(address, line, "ld128 of");
    race_access(address, 16, false, __builtin_return_address(0), line);
    race_no_cache(address, line);
    uint4 value;
    memcpy(&value, address, sizeof value);
    return value;
}

static struct { const unsigned char *memory; std::vector<unsigned char> times; } watched;

void prefetch_watch(const void *memory, size_t bytes)
{
    watched.memory = (const unsigned char *)memory;
    watched.times.assign(bytes, 0);
}

size_t prefetched(void)
{
    size_t count = 0;
    for (unsigned char times : watched.times) {
        if (times > 1)
            return SIZE_MAX;
        count += times;
    }
    return count;
}

static void note_prefetch(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes && !watched.times.empty(); i++)
        if (from + i >= watched.memory && from + i < watched.memory + watched.times.size())
            watched.times[(size_t)(from + i - watched.memory)] += watched.times[(size_t)(from + i - watched.memory)] < 2;
}

/* No effect here, but on a GPU the memory must exist. */
void prefetch(const void *address, size_t bytes, int line)
{
    need_aligned(address, line, "prefetch of");
    if (!bytes || bytes % 16)
        found(line, "prefetch of %zu bytes, which is not a multiple of 16", bytes);
    race_prefetch(address, bytes, line);
    note_prefetch((const unsigned char *)address, bytes);
}

static size_t all_copied;

size_t copied(void) { return all_copied; }

void async_copy(void *to, const void *from, bool valid, int line)
{
    all_copied += valid ? 16 : 0;
    need_aligned(to, line, "cp_async16 to");
    need_aligned(from, line, "cp_async16 from");
    race_access(to, 16, true, __builtin_return_address(0), line);
    if (valid)
        race_access(from, 16, false, __builtin_return_address(0), line);
    memset(to, POISON, 16);
    self()->copies.push_back({to, valid ? from : nullptr, line});
}

void async_commit(void) { self()->groups.push_back(self()->copies.size()); }

void async_wait(int pending)
{
    thread *t = self();
    if ((size_t)pending >= t->groups.size())
        return;
    size_t end = t->groups[t->groups.size() - 1 - (size_t)pending];
    for (; t->copied < end; t->copied++) {
        const copy_16 &c = t->copies[t->copied];
        race_access(c.to, 16, true, __builtin_return_address(0), c.line);
        if (c.from)
            memcpy(c.to, c.from, 16);
        else
            memset(c.to, 0, 16);
    }
}

void atomic(const void *address, size_t bytes)
{
    if ((uintptr_t)address % bytes)
        found(0, "an atomic at an address that is not a multiple of %zu", bytes);
    race_atomic(address);
}

void trap(int line)
{
    found(line, "traps");
    abort();
}

bool is_pinned(const void *memory, size_t bytes)
{
    unsigned char *first = (unsigned char *)memory;
    auto one = device.upper_bound(first);
    return one != device.begin() && pinned.count((--one)->first) && first + bytes <= one->first + one->second;
}

void device_check(void)
{
    for (auto &one : device) {
        tail_open(one.first, one.second);
        if (!tail_whole(one.first, one.second)) {
            finding_add("something wrote past the end of %zu bytes of device memory", one.second);
            memset(one.first + one.second, TAIL_BYTE, (one.second + 255) / 256 * 256 + TAIL - one.second);
        }
        tail_close(one.first, one.second);
    }
}

}

void emu_move(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
float widen_f16(uint16_t half) { return f16_to_f32(half); }
uint32_t narrow_bf16(float low, float high) { return (uint32_t)f32_to_bf16(high) << 16 | f32_to_bf16(low); }

/* Returns the memory of each device: MOE_EMU_MEMORY, or 4 GiB. */
static size_t capacity(void)
{
    const char *given = getenv("MOE_EMU_MEMORY");
    return given ? strtoull(given, nullptr, 10) : (size_t)4 << 30;
}

int dev_memory_left(size_t *bytes)
{
    *bytes = emu::used < capacity() ? capacity() - emu::used : 0;
    return 0;
}

static int take(void **out, size_t bytes)
{
    unsigned char *data = emu::fresh(bytes);
    if (!data)
        return 2;
    emu::tail_close(data, bytes);
    emu::race_region(data, bytes, false);
    emu::device[data] = bytes;
    *out = data;
    return 0;
}

int dev_alloc(void **out, size_t bytes)
{
    size_t left;
    dev_memory_left(&left);
    const int error = bytes > left ? 2 : take(out, bytes);
    emu::used += error ? 0 : bytes;
    return error;
}

int dev_alloc_shared(void **out, size_t bytes)
{
    int error = take(out, bytes);
    if (!error)
        emu::pinned.insert((unsigned char *)*out);
    return error;
}

/* A GPU waits for all pending work before it frees memory. Copies in flight are reported nevertheless, because the caller
 * did not wait for their event. */
int dev_free(void *memory)
{
    if (!memory)
        return 0;
    auto one = emu::device.find((unsigned char *)memory);
    if (one == emu::device.end())
        return 1;
    emu::streams_leave(memory, one->second);
    emu::used -= emu::pinned.erase(one->first) ? 0 : one->second;
    emu::race_region_end(memory);
    emu::tail_open(one->first, one->second);
    free(memory);
    emu::device.erase(one);
    return 0;
}

/* Number of processors of each device. No bit may depend on it, which tests check with several numbers. */
static const int processors[] = {4, 1, 7, 132};
enum { DEVICES = sizeof processors / sizeof *processors };

static int in_use;

int emu::device_in_use(void) { return in_use; }

int dev_use(int device)
{
    if (device < 0 || device >= DEVICES)
        return 101;
    in_use = device;
    return 0;
}

int dev_count(int *devices)
{
    *devices = DEVICES;
    return 0;
}

int dev_properties_of(int device, struct dev_properties *out)
{
    if (device < 0 || device >= DEVICES)
        return 101;
    snprintf(out->name, sizeof out->name, "emulated%s", emu_races_seen() ? ", races" : "");
    out->architecture = emu_options.tensor_core;
    out->processors = processors[device];
    out->memory = (size_t)1 << (device == 2 ? 31 : 27);
    return 0;
}

const char *dev_error_text(int error)
{
    return error == 0 ? "no error" : error == 1 ? "invalid value" : error == 2 ? "out of memory"
           : error == 101 ? "invalid device ordinal" : error == 719 ? "unspecified launch failure" : "unknown error";
}

const char *dev_error_name(int error)
{
    return error == 0 ? "cudaSuccess" : error == 1 ? "cudaErrorInvalidValue" : error == 2 ? "cudaErrorMemoryAllocation"
           : error == 101 ? "cudaErrorInvalidDevice" : error == 719 ? "cudaErrorLaunchFailure" : "cudaErrorUnknown";
}

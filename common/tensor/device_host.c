/* The host device: the processor's own kernels, in place. An address is a host pointer, and the queue runs operations at
 * once. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/large_pages.h"
#include "common/base/mem.h"
#include "common/base/memory_left.h"
#include "common/base/thread_pool.h"
#include "common/tensor/device_class.h"
#include "kernels/cpu/cpu.h"

struct host_device {
    struct device base;
    struct thread_pool *pool;
    const struct cpu_isa *isa;
    atomic_size_t mapped;            /* bytes of mapped buffers */
};

static struct host_device *host_of(struct device *device)
{
    return (struct host_device *)device;
}

/* gcc and clang have different signs of ASan. */
#ifndef __has_feature
#define __has_feature(feature) 0
#endif

/* Returns whether buffers of this size are mapped. The system zeroes a page of them at its first use, and most forwards use the
 * first rows of buffers that have room for many. ASan only checks memory of its own allocator. */
static bool is_mapped(size_t bytes)
{
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
    return (void)bytes, false;
#else
    return bytes >= (size_t)32 << 10;
#endif
}

static int host_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    void *data = is_mapped(bytes) ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                                  : mem_alloc_aligned(bytes, 1, err);
    if (data == MAP_FAILED)
        return err_memory(err);
    if (!data)
        return -1;
    atomic_fetch_add(&host_of(device)->mapped, is_mapped(bytes) ? bytes : 0);
    *out = (struct buffer){(uint64_t)(uintptr_t)data, bytes};
    return 0;
}

static void host_free(struct device *device, struct buffer buffer)
{
    void *data = (void *)(uintptr_t)buffer.address;
    if (is_mapped(buffer.bytes)) {
        munmap(data, buffer.bytes);
        atomic_fetch_sub(&host_of(device)->mapped, buffer.bytes);
    } else {
        mem_free(&data);
    }
}

/* Subtracts all of the mapped buffers, because the system does not count pages before their first use. Pages in use are
 * subtracted twice; callers ask before the first forward. */
static int64_t host_memory_left(struct device *device)
{
    const int64_t left = memory_left(""), mapped = (int64_t)atomic_load(&host_of(device)->mapped);
    return left < 0 ? left : left > mapped ? left - mapped : 0;
}

static void host_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    (void)device;
    memcpy((void *)(uintptr_t)to.address, data, bytes);
}

static void host_download(struct device *device, void *data, struct buffer from, size_t bytes)
{
    (void)device;
    memcpy(data, (const void *)(uintptr_t)from.address, bytes);
}

static int host_wait(struct device *device, struct err *err)
{
    (void)device, (void)err;
    return 0;
}

static void host_close(struct device *device)
{
    struct host_device *host = host_of(device);
    thread_pool_free(&host->pool);
    mem_free(&host);
}

struct read_job {
    const struct cpu_isa *isa;
    const unsigned char *data;
    size_t part;                     /* bytes per thread */
    int streams;
    uint64_t *sink;                  /* [members] results, one cache line apart */
};

static void read_part(void *argument, int member, int members)
{
    const struct read_job *job = argument;
    (void)members;
    job->sink[8 * member] = job->isa->read(job->data + (size_t)member * job->part, job->part, job->streams);
}

/* Returns the best of readers with 1, 2 and 4 streams per thread, alternated until the time is over. A single kind of reader
 * can be up to 7 % slower, a bandwidth too low would make the measured programs look better than they are. */
static double best_reader(const struct host_device *host, const void *data, size_t bytes, double seconds, struct err *err)
{
    size_t members = (size_t)thread_pool_size(host->pool);
    uint64_t *sink = mem_alloc_aligned(8 * members, sizeof *sink, err);
    double end = clock_seconds() + seconds, best = 0;
    if (!sink)
        return -1;
    do {
        for (int streams = 1; streams <= 4; streams *= 2) {
            struct read_job job = {host->isa, data, bytes / members, streams, sink};
            double start = clock_seconds();
            thread_pool_run(host->pool, read_part, &job);
            double speed = (double)bytes / (clock_seconds() - start);
            best = speed > best ? speed : best;
        }
    } while (clock_seconds() < end);
    mem_free(&sink);
    return best;
}

static double host_read_bandwidth(struct device *device, const void *data, size_t bytes, double seconds, struct err *err)
{
    const struct host_device *host = host_of(device);
    size_t step = (size_t)thread_pool_size(host->pool) * 4 * 4096;
    size_t memory = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (data && bytes < step) {
        err_set(err, ERR_INPUT, "has only %zu bytes, but this number of threads needs %zu; name a larger file", bytes, step);
        return -1;
    }
    bytes = bytes < step ? step : bytes / step * step;
    if (data)
        return best_reader(host, data, bytes, seconds, err);
    if (bytes > memory / 2) {               /* the system may grant such a mapping and kill the process when it is filled */
        err_set(err, ERR_INPUT, "measuring with %zu MiB needs as much memory, but the machine has only %zu MiB; give less",
                bytes >> 20,
                memory >> 20);
        return -1;
    }
    void *own = large_pages_alloc(bytes);
    if (!own) {
        err_memory(err);
        return -1;
    }
    memset(own, 1, bytes);
    double best = best_reader(host, own, bytes, seconds, err);
    large_pages_free(&own, bytes);
    return best;
}

static const struct cpu_isa *choose_isa(const char *name, struct err *err)
{
    const struct cpu_isa *const *isas = cpu_isas();
    if (!name)
        return isas[0];
    for (int i = 0; isas[i]; i++)
        if (!strcmp(isas[i]->name, name))
            return isas[i];
    err_set(err, ERR_INPUT, "instruction set %s: not supported by this processor or this build; the best one is %s", name,
            isas[0]->name);
    return NULL;
}

int device_open_host(struct device **out, const struct device_setup *setup, struct err *err)
{
    static const struct device_class class = {
        .close = host_close, .alloc = host_alloc, .free = host_free, .memory_left = host_memory_left,
        .upload = host_upload, .download = host_download, .wait = host_wait, .read_bandwidth = host_read_bandwidth,
    };
    const struct cpu_isa *isa = choose_isa(setup->isa, err);
    if (!isa)
        return -1;
    struct host_device *host = mem_alloc(1, sizeof *host, err);
    if (!host)
        return -1;
    if (thread_pool_new(&host->pool, setup->threads ? setup->threads : thread_pool_cores(), err) ||
        (setup->pin && thread_pool_pin(host->pool, err))) {
        thread_pool_free(&host->pool);
        mem_free(&host);
        return -1;
    }
    host->isa = isa;
    host->base.class = &class;
    host->base.ops = isa->ops;
    host->base.queue.state = host->pool;
    host->base.queue.bf16_activations = host->base.info.bf16_activations = setup->bf16_activations;
    host->base.info.f32_activations = setup->f32_activations;
    host->base.queue.integer_activations = host->base.info.integer_activations = !setup->f32_activations;
    snprintf(host->base.info.name, sizeof host->base.info.name, "host %s%s", isa->name,
             setup->bf16_activations ? ", bf16 activations" : setup->f32_activations ? ", f32 activations" : "");
    host->base.info.host_memory = true;
    host->base.info.narrow_cache = host->base.info.q8_cache = host->base.info.ungated = true;
    host->base.info.all_formats = true;
    host->base.info.splits = isa->tiles || setup->bf16_activations;
    host->base.info.threads = thread_pool_size(host->pool);
    *out = &host->base;
    return 0;
}

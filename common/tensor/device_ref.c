/* The ref device: the reference kernels in simulated device memory.
 *
 * Each allocation has its own range of addresses, far from any host pointer, never reused, and followed by a gap. New memory is
 * filled with 0xff, so that floats that were never written are NaNs and indices are -1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/tensor/device_class.h"
#include "kernels/ref/ref.h"

#define ADDRESS_FIRST 0x7ef0000000000000u        /* not canonical on x86-64, and not mapped on any Linux */
#define ADDRESS_GAP 4096u

struct allocation {
    uint64_t address;
    size_t bytes;
    unsigned char *data;                         /* NULL: freed */
};

struct ref_device {
    struct device base;
    struct ref_memory memory;
    struct allocation *allocation;               /* in ascending order of addresses */
    size_t count, room;
    uint64_t next;
};

static struct ref_device *from_memory(struct ref_memory *memory)
{
    return (struct ref_device *)(void *)((char *)memory - offsetof(struct ref_device, memory));
}

static struct ref_device *ref_of(struct device *device)
{
    return (struct ref_device *)device;
}

static struct allocation *find(struct ref_device *ref, uint64_t address)
{
    size_t low = 0, high = ref->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ref->allocation[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &ref->allocation[low - 1] : NULL;
}

/* Aborts on a wrong address, as a sanitiser would: it is a bug of the engine or of a kernel, never of an input. */
static void *resolve(struct ref_memory *memory, struct buffer buffer, uint64_t bytes)
{
    struct allocation *found = find(from_memory(memory), buffer.address);
    uint64_t offset = found ? buffer.address - found->address : 0;
    const char *fault = bytes > buffer.bytes                          ? "is larger than its buffer"
                        : !found                                      ? "is not memory of this device"
                        : !found->data                                ? "lies in freed memory"
                        : offset > found->bytes                       ? "is not memory of this device"
                        : bytes > (uint64_t)found->bytes - offset     ? "passes the end of its allocation"
                                                                      : NULL;
    if (fault) {
        fprintf(stderr, "ref device: an access of %llu bytes at %#llx %s\n", (unsigned long long)bytes,
                (unsigned long long)buffer.address, fault);
        abort();
    }
    return found->data + offset;
}

static int ref_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    struct ref_device *ref = ref_of(device);
    size_t span;
    if (!size_add(bytes, ADDRESS_GAP + 64, &span) ||
        mem_grow(&ref->allocation, &ref->room, ref->count + 1, sizeof *ref->allocation, err))
        return err_memory(err);
    unsigned char *data = mem_alloc_aligned(bytes, 1, err);
    if (!data)
        return -1;
    memset(data, 0xff, bytes);
    ref->allocation[ref->count++] = (struct allocation){ref->next, bytes, data};
    *out = (struct buffer){ref->next, bytes};
    ref->next += size_align(span, 64);
    return 0;
}

static void ref_free(struct device *device, struct buffer buffer)
{
    struct allocation *found = find(ref_of(device), buffer.address);
    if (!found || !found->data || found->address != buffer.address) {
        fprintf(stderr, "ref device: %#llx is freed, but is not an allocation\n", (unsigned long long)buffer.address);
        abort();
    }
    mem_free(&found->data);
}

static void ref_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    memcpy(resolve(&ref_of(device)->memory, to, bytes), data, bytes);
}

static void ref_download(struct device *device, void *data, struct buffer from, size_t bytes)
{
    memcpy(data, resolve(&ref_of(device)->memory, from, bytes), bytes);
}

static int ref_wait(struct device *device, struct err *err)
{
    (void)device, (void)err;
    return 0;
}

static void ref_close(struct device *device)
{
    struct ref_device *ref = ref_of(device);
    for (size_t i = 0; i < ref->count; i++)
        mem_free(&ref->allocation[i].data);
    mem_free(&ref->allocation);
    mem_free(&ref);
}

int device_open_ref(struct device **out, const struct device_setup *setup, struct err *err)
{
    static const struct device_class class = {
        .close = ref_close, .alloc = ref_alloc, .free = ref_free, .upload = ref_upload, .download = ref_download,
        .wait = ref_wait,
    };
    struct ref_device *ref = mem_alloc(1, sizeof *ref, err);
    if (!ref)
        return -1;
    ref->base.class = &class;
    ref->base.ops = ref_ops;
    ref->base.learn = &ref_learn_ops;
    ref->base.queue.state = &ref->memory;
    ref->base.queue.bf16_activations = ref->base.info.bf16_activations = ref->base.info.splits = setup->bf16_activations;
    ref->base.info.f32_activations = setup->f32_activations;
    ref->base.queue.integer_activations = ref->base.info.integer_activations = !setup->f32_activations;
    snprintf(ref->base.info.name, sizeof ref->base.info.name, "ref%s", setup->bf16_activations ? " bf16 activations"
             : setup->f32_activations ? " f32 activations" : "");
    ref->base.info.threads = 1;
    ref->base.info.narrow_cache = ref->base.info.q8_cache = ref->base.info.ungated = true;
    ref->base.info.all_formats = true;
    ref->memory.resolve = resolve;
    ref->next = ADDRESS_FIRST;
    *out = &ref->base;
    return 0;
}

#include "common/tensor/device.h"

#include <assert.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/memory_left.h"
#include "common/tensor/device_class.h"

static const struct {
    const char *name;                /* up to a colon */
    int (*open)(struct device **out, const struct device_setup *setup, struct err *err);
} devices[] = {
    {"host", device_open_host},
    {"ref", device_open_ref},
    {"cuda", device_open_cuda},
    {"emu", device_open_cuda},       /* only test builds contain its plug-in */
    {"emu-race", device_open_cuda},
};

/* Opens the first GPU, or the host if there is no GPU or no plug-in. */
static int open_best(struct device **out, const struct device_setup *setup, struct err *err)
{
    struct device_setup best = *setup;
    best.name = "cuda";
    if (!setup->isa && !setup->bf16_activations && device_cuda_likely() && !device_open_cuda(out, &best, NULL))
        return 0;
    best.name = "host";
    return device_open_host(out, &best, err);
}

int device_open(struct device **out, const struct device_setup *setup, struct err *err)
{
    const char *name = setup->name ? setup->name : "auto";
    size_t length = strcspn(name, ":");
    if (!strcmp(name, "auto"))
        return open_best(out, setup, err);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (strlen(devices[i].name) == length && !strncmp(devices[i].name, name, length) &&
            (!name[length] || devices[i].open == device_open_cuda))
            return devices[i].open(out, setup, err);
    return err_set(err, ERR_INPUT, "unknown device %s; choose auto, host, ref, cuda or cuda:N", name);
}

void device_close(struct device **device)
{
    if (*device)
        (*device)->class->close(*device);
    *device = NULL;
}

const struct device_info *device_info(const struct device *device)
{
    return &device->info;
}

const struct device_ops *device_ops(const struct device *device)
{
    return &device->ops;
}

struct queue *device_queue(struct device *device)
{
    return &device->queue;
}

int device_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    return device->class->alloc(device, bytes ? bytes : 1, out, err);
}

void device_free(struct device *device, struct buffer *buffer)
{
    if (buffer->address)
        device->class->free(device, *buffer);
    *buffer = (struct buffer){0, 0};
}

int64_t device_memory_left(struct device *device)
{
    return device->class->memory_left ? device->class->memory_left(device) : memory_left("");
}

struct buffer device_map(struct device *device, const void *data, size_t bytes)
{
    assert(device->info.host_memory);
    return (struct buffer){(uint64_t)(uintptr_t)data, bytes};
}

void queue_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    assert(bytes <= to.bytes);
    if (bytes)
        device->class->upload(device, to, data, bytes);
}

void queue_download(struct device *device, void *data, struct buffer from, size_t bytes)
{
    assert(bytes <= from.bytes);
    device->downloaded += bytes;
    if (bytes)
        device->class->download(device, data, from, bytes);
}

uint64_t device_downloaded(const struct device *device)
{
    return device->downloaded;
}

int queue_wait(struct device *device, struct err *err)
{
    return device->class->wait(device, err);
}

void copy_upload(struct device *device, struct buffer to, const void *data, size_t bytes)
{
    assert(bytes <= to.bytes);
    if (bytes)
        (device->class->copy_upload ? device->class->copy_upload : device->class->upload)(device, to, data, bytes);
}

int event_open(struct device_event **out, struct device *device, struct err *err)
{
    if (device->class->event_open)
        return device->class->event_open(out, device, err);
    struct device_event *event = mem_alloc(1, sizeof *event, err);
    if (!event)
        return -1;
    event->device = device;
    *out = event;
    return 0;
}

void event_close(struct device_event **event)
{
    if (*event && (*event)->device->class->event_close)
        (*event)->device->class->event_close(*event);
    else
        mem_free(event);
    *event = NULL;
}

void event_record(struct device_event *event, enum queue_kind queue)
{
    if (event->device->class->event_record)
        event->device->class->event_record(event, queue);
}

void event_hold(struct device_event *event, enum queue_kind queue)
{
    if (event->device->class->event_hold)
        event->device->class->event_hold(event, queue);
}

bool event_passed(struct device_event *event)
{
    return !event->device->class->event_passed || event->device->class->event_passed(event);
}

int event_wait(struct device_event *event, struct err *err)
{
    return event->device->class->event_wait ? event->device->class->event_wait(event, err) : 0;
}

int device_alloc_shared(struct device *device, size_t bytes, struct buffer *out, struct err *err)
{
    if (device->class->alloc_shared)
        return device->class->alloc_shared(device, bytes ? bytes : 1, out, err);
    void *memory = mem_alloc(bytes, 1, err);
    if (!memory)
        return -1;
    *out = (struct buffer){(uint64_t)(uintptr_t)memory, bytes};
    return 0;
}

void device_free_shared(struct device *device, struct buffer *buffer)
{
    void *memory = (void *)(uintptr_t)buffer->address;
    if (!device->class->free_shared)
        mem_free(&memory);
    else if (memory)
        device->class->free_shared(device, *buffer);
    *buffer = (struct buffer){0, 0};
}

int loop_start(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err)
{
    return device->class->loop_start(out, device, setup, err);
}

int loop_drain(struct loop *loop, const void **record, struct err *err)
{
    return loop->device->class->loop_drain(loop, record, err);
}

int loop_end(struct loop **loop, struct err *err)
{
    return *loop ? (*loop)->device->class->loop_end(loop, err) : 0;
}

int device_time(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err)
{
    if (device->class->time)
        return device->class->time(device, put, context, seconds, err);
    double start = clock_seconds();
    put(context);
    if (queue_wait(device, err))
        return -1;
    *seconds = clock_seconds() - start;
    return 0;
}

double device_read_bandwidth(struct device *device, const void *data, size_t bytes, double seconds, struct err *err)
{
    return device->class->read_bandwidth ? device->class->read_bandwidth(device, data, bytes, seconds, err) : 0;
}

#include "common/tensor/device.h"

#include <assert.h>
#include <string.h>

#include "common/tensor/device_class.h"

static const struct {
    const char *name;
    int (*open)(struct device **out, const struct device_setup *setup, struct err *err);
} devices[] = {
    {"host", device_open_host},
    {"ref", device_open_ref},
};

int device_open(struct device **out, const struct device_setup *setup, struct err *err)
{
    const char *name = setup->name && strcmp(setup->name, "auto") != 0 ? setup->name : "host";
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!strcmp(devices[i].name, name))
            return devices[i].open(out, setup, err);
    return err_set(err, ERR_INPUT, "device %s: there is no such device here; choose auto, host or ref", name);
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
    if (bytes)
        device->class->download(device, data, from, bytes);
}

int queue_wait(struct device *device, struct err *err)
{
    return device->class->wait(device, err);
}

double device_read_bandwidth(struct device *device, size_t bytes, double seconds, struct err *err)
{
    return device->class->read_bandwidth ? device->class->read_bandwidth(device, bytes, seconds, err) : 0;
}

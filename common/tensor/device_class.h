/* The methods of a device. Private to tensor/; other code uses device.h. */
#ifndef MOE_TENSOR_DEVICE_CLASS_H
#define MOE_TENSOR_DEVICE_CLASS_H

#include "common/tensor/device.h"

struct device_class {
    void (*close)(struct device *device);
    int (*alloc)(struct device *device, size_t bytes, struct buffer *out, struct err *err);
    void (*free)(struct device *device, struct buffer buffer);
    int64_t (*memory_left)(struct device *device);           /* NULL: memory_left of the host */
    void (*upload)(struct device *device, struct buffer to, const void *data, size_t bytes);
    void (*download)(struct device *device, void *data, struct buffer from, size_t bytes);
    int (*wait)(struct device *device, struct err *err);
    /* NULL: any host memory is suitable */
    int (*alloc_shared)(struct device *device, size_t bytes, struct buffer *out, struct err *err);
    void (*free_shared)(struct device *device, struct buffer buffer);
    /* NULL without info.loops: see device.h. */
    int (*loop_start)(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err);
    int (*loop_drain)(struct loop *loop, const void **record, struct err *err);
    int (*loop_end)(struct loop **loop, struct err *err);
    /* NULL: measured with the host's clock */
    int (*time)(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err);
    /* All NULL: copies are done at once */
    void (*copy_upload)(struct device *device, struct buffer to, const void *data, size_t bytes);
    int (*event_open)(struct device_event **out, struct device *device, struct err *err);
    void (*event_close)(struct device_event *event);
    void (*event_record)(struct device_event *event, enum queue_kind queue);
    void (*event_hold)(struct device_event *event, enum queue_kind queue);
    bool (*event_passed)(struct device_event *event);
    int (*event_wait)(struct device_event *event, struct err *err);
    /* NULL: unsupported */
    double (*read_bandwidth)(struct device *device, const void *data, size_t bytes, double seconds, struct err *err);
};

/* First member of every loop. */
struct loop {
    struct device *device;
};

/* First member of every event; the whole event if copies are done at once. */
struct device_event {
    struct device *device;
};

/* First member of every device. */
struct device {
    const struct device_class *class;
    struct device_info info;
    struct device_ops ops;
    const struct learn_ops *learn;               /* NULL: the host's operations, or none (device_learn.c) */
    struct queue queue;
    uint64_t downloaded;                         /* device_downloaded */
};

int device_open_host(struct device **out, const struct device_setup *setup, struct err *err);
int device_open_ref(struct device **out, const struct device_setup *setup, struct err *err);
int device_open_cuda(struct device **out, const struct device_setup *setup, struct err *err);
/* Returns whether the machine seems to have a GPU driver, without loading the plug-in and CUDA's library. */
bool device_cuda_likely(void);

#endif

/* What a device implements. Private to tensor/: others use device.h. */
#ifndef MOE_TENSOR_DEVICE_CLASS_H
#define MOE_TENSOR_DEVICE_CLASS_H

#include "common/tensor/device.h"

struct device_class {
    void (*close)(struct device *device);
    int (*alloc)(struct device *device, size_t bytes, struct buffer *out, struct err *err);
    void (*free)(struct device *device, struct buffer buffer);
    int64_t (*memory_left)(struct device *device);           /* NULL: its memory is the host's */
    void (*upload)(struct device *device, struct buffer to, const void *data, size_t bytes);
    void (*download)(struct device *device, void *data, struct buffer from, size_t bytes);
    int (*wait)(struct device *device, struct err *err);
    /* NULL: any memory of the host will do. */
    int (*alloc_shared)(struct device *device, size_t bytes, struct buffer *out, struct err *err);
    void (*free_shared)(struct device *device, struct buffer buffer);
    /* NULL without info.loops: see device.h. */
    int (*loop_start)(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err);
    int (*loop_drain)(struct loop *loop, const void **record, struct err *err);
    int (*loop_end)(struct loop **loop, struct err *err);
    /* NULL: the host's clock will do. */
    int (*time)(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err);
    /* NULL, all of them: copies are done at once. */
    void (*copy_upload)(struct device *device, struct buffer to, const void *data, size_t bytes);
    int (*event_open)(struct device_event **out, struct device *device, struct err *err);
    void (*event_close)(struct device_event *event);
    void (*event_record)(struct device_event *event, enum queue_kind queue);
    void (*event_hold)(struct device_event *event, enum queue_kind queue);
    bool (*event_passed)(struct device_event *event);
    int (*event_wait)(struct device_event *event, struct err *err);
    /* NULL: no such measure. */
    double (*read_bandwidth)(struct device *device, const void *data, size_t bytes, double seconds, struct err *err);
};

/* What every loop begins with. */
struct loop {
    struct device *device;
};

/* What every event begins with; all of it, where copies are done at once. */
struct device_event {
    struct device *device;
};

/* What every device begins with. */
struct device {
    const struct device_class *class;
    struct device_info info;
    struct device_ops ops;
    const struct learn_ops *learn;               /* NULL: the host's own, or none (device_learn.c) */
    struct queue queue;
};

int device_open_host(struct device **out, const struct device_setup *setup, struct err *err);
int device_open_ref(struct device **out, const struct device_setup *setup, struct err *err);
int device_open_cuda(struct device **out, const struct device_setup *setup, struct err *err);
/* Whether the machine seems to have a driver, without loading the plug-in and CUDA's library in it. */
bool device_cuda_likely(void);

#endif

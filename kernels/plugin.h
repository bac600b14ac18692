/* Interface of the CUDA plug-in, which common/tensor/device_cuda.c opens at run time: one C structure, returned by one
 * function. Two plug-ins are built from the same sources: moe-cuda.so by nvcc, and moe-emu.so with the emulator for tests.
 *
 * CUDA_PLUGIN_VERSION is a digest of all sources of a plug-in, computed by the makefile (cuda.mk). A command accepts a plug-in
 * only if both have the same version.
 *
 * Functions return error numbers of the CUDA runtime; 0 is success. error_text explains a number, error_name is its CUDA
 * name. */
#ifndef MOE_KERNELS_PLUGIN_H
#define MOE_KERNELS_PLUGIN_H

#include <stddef.h>

#include "kernels/learn.h"
#include "kernels/ops.h"

#define CUDA_PLUGIN_SYMBOL "moe_cuda_plugin"

/* GPUs compute products with the weight formats before this one; they only read the others, one weight at a time. */
enum { GPU_FORMATS = FORMAT_Q6_K + 1 };

struct cuda_context;                         /* one open device: kernels/cuda/context.h */
struct cuda_event;                           /* common/tensor/device.h */
struct cuda_loop;                            /* a sequence of operations that the device repeats: kernels/cuda/repeat.cu */

/* The body of a loop; see loop_start of common/tensor/device.h. */
struct cuda_loop_body {
    void (*put)(void *context);              /* queues the operations of one iteration */
    void *context;
    const int32_t *rows, *more;              /* on the device */
    int iterations_max;                      /* max iterations until `more` becomes 0 */
};

struct cuda_plugin {
    unsigned version;                        /* must be CUDA_PLUGIN_VERSION, else nothing below may be used */
    const struct device_ops *ops;            /* queue.state is the struct cuda_context */
    int (*count)(int *devices);              /* error 35: no driver; error 100: no device */
    /* no_slabs: set to "", or to the reason why the device does not support slabs (kernels/linear.h). */
    int (*open)(struct cuda_context **out, int device, char *name, size_t room, char *no_slabs, size_t no_slabs_room);
    void (*close)(struct cuda_context **context);
    int (*alloc)(struct cuda_context *context, size_t bytes, void **out);
    int (*free)(struct cuda_context *context, void *memory);
    int (*upload)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*download)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*wait)(struct cuda_context *context);       /* also reports failures since the last call */
    int (*copy_bandwidth)(struct cuda_context *context, size_t bytes, double seconds, double *bytes_per_second);
    const char *(*error_text)(int error);
    const char *(*error_name)(int error);
    /* Writes which kernel caused the error reported last and where it was launched, as far as known; else "". */
    void (*blame)(struct cuda_context *context, char *text, size_t room);
    /* Allocate and free host memory that has the same address on the device. */
    int (*alloc_shared)(struct cuda_context *context, size_t bytes, void **out);
    int (*free_shared)(struct cuda_context *context, void *memory);
    int (*loop_open)(struct cuda_context *context, const struct cuda_loop_body *body, struct cuda_loop **out);
    int (*loop_busy)(struct cuda_loop *loop, int *busy);
    int (*loop_go)(struct cuda_loop *loop);          /* runs at least one iteration; the loop must not be busy */
    int (*loop_close)(struct cuda_loop **loop);      /* waits for the running iterations and reports failures like wait */
    /* See device_time of common/tensor/device.h. */
    int (*time)(struct cuda_context *context, void (*put)(void *put_context), void *put_context, double *seconds);
    /* The copy queue. `from` must be from alloc_shared; copies: 1: the copy queue, 0: the queue of operations. */
    int (*copy_upload)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*event_open)(struct cuda_context *context, struct cuda_event **out);
    int (*event_close)(struct cuda_event **event);
    int (*event_record)(struct cuda_event *event, int copies);
    int (*event_hold)(struct cuda_event *event, int copies);
    int (*event_wait)(struct cuda_event *event);
    int (*event_busy)(struct cuda_event *event, int *busy);
    int (*memory_left)(struct cuda_context *context, size_t *bytes);
    const struct learn_ops *learn;           /* operations of training, on the same queue; NULL: unsupported */
    /* Returns whether the host's loop may choose and rank tokens on the device (device_info.chooses); 0: turned off. */
    int (*chooses)(const struct cuda_context *context);
};

#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("default"))) const struct cuda_plugin *moe_cuda_plugin(void);

#endif

/* What the plug-in of CUDA offers to common/tensor/device_cuda.c, which opens it at run time: one C structure, found by one
 * symbol. There are two of the kind, made from the same sources: moe-cuda.so by nvcc, moe-emu.so with the emulator (tests).
 *
 * CUDA_PLUGIN_VERSION is a digest of all sources that a plug-in is made of, and comes from the makefile (cuda.mk): a command
 * opens a plug-in only if both were made of the same.
 *
 * Error numbers are the CUDA runtime's; 0 is none. error_text tells what one means, error_name what CUDA calls it.
 */
#ifndef MOE_KERNELS_PLUGIN_H
#define MOE_KERNELS_PLUGIN_H

#include <stddef.h>

#include "kernels/learn.h"
#include "kernels/ops.h"

#define CUDA_PLUGIN_SYMBOL "moe_cuda_plugin"

struct cuda_context;                         /* one device in use: kernels/cuda/context.h */
struct cuda_event;                           /* common/tensor/device.h */
struct cuda_loop;                            /* operations that the device repeats: kernels/cuda/repeat.cu */

/* See loop_start of common/tensor/device.h. */
struct cuda_loop_body {
    void (*put)(void *context);              /* puts one iteration's operations on the queue */
    void *context;
    const int32_t *rows, *more;              /* on the device */
    int turns_max;                           /* that there can be until `more` is 0 */
};

struct cuda_plugin {
    unsigned version;                        /* CUDA_PLUGIN_VERSION, else nothing below may be used */
    const struct device_ops *ops;            /* queue.state is the struct cuda_context */
    int (*count)(int *devices);              /* without a driver: error 35; without a device: error 100 */
    /* no_slabs: "", or why the device takes no slabs (kernels/linear.h). */
    int (*open)(struct cuda_context **out, int device, char *name, size_t room, char *no_slabs, size_t no_slabs_room);
    void (*close)(struct cuda_context **context);
    int (*alloc)(struct cuda_context *context, size_t bytes, void **out);
    int (*free)(struct cuda_context *context, void *memory);
    int (*upload)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*download)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*wait)(struct cuda_context *context);       /* also tells what failed since the last call */
    int (*copy_bandwidth)(struct cuda_context *context, size_t bytes, double seconds, double *bytes_per_second);
    const char *(*error_text)(int error);
    const char *(*error_name)(int error);
    /* Which kernel, launched where, the error that was just reported came from, as far as it is known; else "". */
    void (*blame)(struct cuda_context *context, char *text, size_t room);
    /* Memory of the host at the same address for the device. */
    int (*alloc_shared)(struct cuda_context *context, size_t bytes, void **out);
    int (*free_shared)(struct cuda_context *context, void *memory);
    int (*loop_open)(struct cuda_context *context, const struct cuda_loop_body *body, struct cuda_loop **out);
    int (*loop_busy)(struct cuda_loop *loop, int *busy);
    int (*loop_go)(struct cuda_loop *loop);          /* only while it is not busy: begins at least one iteration */
    int (*loop_close)(struct cuda_loop **loop);      /* waits for what is at work, and tells what failed, as wait does */
    /* See device_time of common/tensor/device.h. */
    int (*time)(struct cuda_context *context, void (*put)(void *put_context), void *put_context, double *seconds);
    /* The queue of copies. `from` is memory of alloc_shared; `copies`: that queue, not the one of operations. */
    int (*copy_upload)(struct cuda_context *context, void *to, const void *from, size_t bytes);
    int (*event_open)(struct cuda_context *context, struct cuda_event **out);
    int (*event_close)(struct cuda_event **event);
    int (*event_record)(struct cuda_event *event, int copies);
    int (*event_hold)(struct cuda_event *event, int copies);
    int (*event_wait)(struct cuda_event *event);
    int (*event_busy)(struct cuda_event *event, int *busy);
    int (*memory_left)(struct cuda_context *context, size_t *bytes);
    const struct learn_ops *learn;           /* operations of training, on the same queue; NULL: there are none */
};

#ifdef __cplusplus
extern "C"
#endif
__attribute__((visibility("default"))) const struct cuda_plugin *moe_cuda_plugin(void);

#endif

/* The interface to a processor: memory, a queue of operations, and the operations of kernels/ops.h. Code above this file does
 * not depend on the device.
 *
 * Two devices always exist. `host` computes in place with the best instruction set of the processor. `ref` computes with the
 * reference kernels in simulated device memory: its addresses are not host pointers, new memory is filled with NaNs, freed
 * memory becomes inaccessible, and every access is checked. So it detects code that assumes host memory.
 *
 * `cuda:N` are GPUs, if there are any and their plug-in was built; `cuda` is the first one, or the one that `turn` selects;
 * `auto` is the same, or the host. Test builds have `emu`, the same kernels on an emulated GPU, and `emu-race`, which also
 * detects races. */
#ifndef MOE_TENSOR_DEVICE_H
#define MOE_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "kernels/learn.h"
#include "kernels/ops.h"

struct device;

struct device_setup {
    const char *name;                /* "auto", "host", "ref", "cuda", "cuda:N"; an error if the device is missing */
    int threads;                     /* host: 1 .. 256; 0: one per processor */
    const char *isa;                 /* host: required instruction set; NULL: the best */
    bool pin;                        /* host: binds each thread to a processor (thread_pool_pin) */
    int turn;                        /* "cuda", "auto": GPU number from 0, modulo the number of GPUs */
    bool bf16_activations;           /* host, ref: products with bf16 weights round activations (kernels/linear.h) */
    bool f32_activations;            /* host, ref: products with mxfp4 and all formats after it do not quantise activations */
};

struct device_info {
    char name[64];                   /* the actual device: "host avx512", "host avx512, bf16 activations", "ref" */
    bool host_memory;                /* host memory can be used as buffers (device_map) */
    bool narrow_cache;               /* attention supports KV caches of 16 bits */
    bool q8_cache;                   /* and of q8 */
    bool ungated;                    /* feed-forward networks without gates (kernels/expert_ffn.h) */
    bool all_formats;                /* products with every weight format; else with those before GPU_FORMATS */
    bool loops;                      /* supports loop_start and the operations of loops in kernels/ops.h */
    bool chooses;                    /* choosing and ranking tokens here saves the copy of their logits: engine_chooses */
    bool slabs;                      /* uses other products for complete slabs of a prompt (kernels/linear.h) */
    char no_slabs[256];              /* the reason, if devices of this kind can use slabs but this one cannot; else "" */
    bool splits;                     /* products with bf16 weights need scratch, too (operand_bytes of kernels/formats.h) */
    int threads;
    bool bf16_activations;           /* as in device_setup; the name contains it, too */
    bool f32_activations;            /* likewise */
    bool integer_activations;        /* products with mxfp4 and all formats after it quantise activations */
};

int device_open(struct device **out, const struct device_setup *setup, struct err *err);
void device_close(struct device **device);               /* all its buffers must have been freed */
const struct device_info *device_info(const struct device *device);
const struct device_ops *device_ops(const struct device *device);
/* Returns the training operations; NULL: unsupported. A program that calls it is linked with OpenBLAS for the host's
 * products. */
const struct learn_ops *device_learn(const struct device *device);

/* Allocates and frees memory, 64-byte aligned, contents undefined. device_free accepts a buffer of address 0 and sets the
 * address to 0. */
int device_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err);
void device_free(struct device *device, struct buffer *buffer);

/* Returns the available bytes of device memory, or of host memory if the device uses that; -1: unknown. */
int64_t device_memory_left(struct device *device);

/* Returns a buffer that is the host memory at `data`, read-only and valid as long as that memory. Only with
 * info.host_memory. */
struct buffer device_map(struct device *device, const void *data, size_t bytes);

/* Returns the queue of the device. Copies run in its order. queue_upload has read `data` when it returns;
 * queue_download has written `data` only after queue_wait. */
struct queue *device_queue(struct device *device);
void queue_upload(struct device *device, struct buffer to, const void *data, size_t bytes);
void queue_download(struct device *device, void *data, struct buffer from, size_t bytes);
int queue_wait(struct device *device, struct err *err);
uint64_t device_downloaded(const struct device *device);         /* bytes of all downloads so far */

/* A device may have a second queue for copies, which run while it computes. `copy_upload` queues a copy: `data` must be memory
 * of device_alloc_shared and stay unchanged until the copy is complete. Only events order the two queues.
 *
 * An event passes when all work has completed that was on the queue at its last event_record; an event without event_record has
 * passed. Work queued after event_hold waits for the event as recorded at that time. Events must be closed before their device.
 * Failures of record, hold or passed are reported by the next queue_wait. Devices without a second queue copy at once, and
 * their events have always passed. */
struct device_event;

enum queue_kind { QUEUE_OPERATIONS, QUEUE_COPIES };

void copy_upload(struct device *device, struct buffer to, const void *data, size_t bytes);
int event_open(struct device_event **out, struct device *device, struct err *err);
void event_close(struct device_event **event);
void event_record(struct device_event *event, enum queue_kind queue);
void event_hold(struct device_event *event, enum queue_kind queue);
bool event_passed(struct device_event *event);
int event_wait(struct device_event *event, struct err *err);                /* the host waits */

/* Allocate and free host memory at its host address, 16-byte aligned, contents undefined. Downloads into it need not be waited
 * for one by one, and a device with info.loops reads and writes it in loops. */
int device_alloc_shared(struct device *device, size_t bytes, struct buffer *out, struct err *err);
void device_free_shared(struct device *device, struct buffer *buffer);

/* Loops that the device repeats by itself (info.loops). loop_start calls `put` once or twice to queue the operations of one
 * iteration, which the device records; nothing else may be queued until loop_end. Operations are queued with the maximum number
 * of rows and process as many as `rows` contains when they run. The last operation of an iteration writes three values: a
 * record into a ring in shared memory (device_alloc_shared); then `more`, whether the device may continue before the host has
 * read, which must be 0 at the latest when the ring is full; then `head`, the number of records so far.
 *
 * loop_drain waits for the next record and returns its address, valid until the next call. Only the record shows the end: to
 * ask for a record after the last one is an error, as is an iteration without a record. The device runs ahead until the ring is
 * full. */
struct loop;

struct loop_setup {
    void (*put)(void *context);
    void *context;
    struct buffer rows, more;        /* [1] i32 each */
    struct buffer ring, head;        /* shared; head [1] i32, 0 before the first iteration */
    size_t record_bytes;
    int records;                     /* capacity of the ring */
};

int loop_start(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err);
int loop_drain(struct loop *loop, const void **record, struct err *err);
int loop_end(struct loop **loop, struct err *err);                   /* waits for the running iterations */

/* Measures the seconds that the device needs for the operations that `put` queues in one call. On a GPU they are one graph,
 * timed by the device's clock, so that the host's launch rate does not matter. None of them may wait for the device. */
int device_time(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err);

/* Measures memory bandwidth in bytes per second, the reference value of every report: the best of several ways to read `bytes`
 * bytes with the device's threads, in about `seconds`. data: host memory to read, 64-byte aligned, for example a mapped file;
 * NULL: device memory allocated for this. Returns 0 if the device has no such measurement; negative on failure. */
double device_read_bandwidth(struct device *device, const void *data, size_t bytes, double seconds, struct err *err);

#endif

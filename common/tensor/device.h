/* The narrow door to a processor: memory, a queue of work, and the operations of kernels/ops.h. Nothing above this file
 * knows which device it talks to.
 *
 * Two devices always exist. `host` computes with the best instruction set of the processor, in place. `ref` computes with
 * the reference kernels behind memory of its own: addresses that mean nothing to anyone else, filled with NaNs when new,
 * unmapped when freed, every access checked; it keeps the seam honest.
 *
 * `cuda:N` are GPUs, where there are some and the plug-in for them was built; `cuda` is the first of these, or the one that
 * `turn` says; `auto` is the same, or the host. Test builds have `emu`, the same kernels on an emulated GPU, and `emu-race`,
 * which looks for races as well. */
#ifndef MOE_TENSOR_DEVICE_H
#define MOE_TENSOR_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "kernels/learn.h"
#include "kernels/ops.h"

struct device;

struct device_setup {
    const char *name;                /* "auto", "host", "ref", "cuda", "cuda:N"; one that is missing is an error */
    int threads;                     /* host: 1 .. 256; 0: one a processor */
    const char *isa;                 /* host: force an instruction set; NULL: the best */
    bool pin;                        /* host: a processor for each thread (thread_pool_pin) */
    int turn;                        /* "cuda", "auto": which GPU it is, from 0, after the last one the first again */
};

struct device_info {
    char name[64];                   /* the device in effect: "host avx512", "ref" */
    bool host_memory;                /* buffers can be made of host memory in place (device_map) */
    bool narrow_cache;               /* attention reads keys and values of 16 bits, too */
    bool loops;                      /* it can decode by itself: loop_start, and the last operations of kernels/ops.h */
    bool slabs;                      /* whole slabs of a prompt have products of their own (kernels/linear.h) */
    char no_slabs[256];              /* why not, on a device that could; "": nothing to tell */
    bool splits;                     /* products with bf16 weights take scratch, too (operand_bytes of kernels/formats.h) */
    int threads;
};

int device_open(struct device **out, const struct device_setup *setup, struct err *err);
void device_close(struct device **device);               /* after all its buffers were freed */
const struct device_info *device_info(const struct device *device);
const struct device_ops *device_ops(const struct device *device);
/* The operations of training; NULL: the device has none. Who asks is linked with OpenBLAS, which makes the host's products. */
const struct learn_ops *device_learn(const struct device *device);

/* New memory, 64-byte aligned, contents undefined. device_free accepts a buffer of address 0 and leaves one. */
int device_alloc(struct device *device, size_t bytes, struct buffer *out, struct err *err);
void device_free(struct device *device, struct buffer *buffer);

/* Bytes that can still be had; where the memory is the host's, of that. -1: it cannot be known. */
int64_t device_memory_left(struct device *device);

/* A buffer that is the host memory at `data`, read-only, valid as long as that is. Only with info.host_memory. */
struct buffer device_map(struct device *device, const void *data, size_t bytes);

/* The queue of the device. Copies run in its order; `upload` has read `data` when it returns, `download` has written it only
 * after queue_wait. */
struct queue *device_queue(struct device *device);
void queue_upload(struct device *device, struct buffer to, const void *data, size_t bytes);
void queue_download(struct device *device, void *data, struct buffer from, size_t bytes);
int queue_wait(struct device *device, struct err *err);

/* Beside it a device may have a queue for copies, which go on while it computes. `copy_upload` puts one there: `data` is memory
 * of device_alloc_shared, and stays as it is until the copy is done. Nothing orders the two queues but events.
 *
 * An event passes when all is done that was on a queue when it was recorded there last; one that never was has passed. What is
 * put on a queue after event_hold waits for what the event was recorded for by then. Events are closed before their device, and
 * what fails in record, hold or passed is told by the next queue_wait. Devices without such a queue copy at once, and their
 * events have passed. */
struct device_event;

enum queue_kind { QUEUE_OPERATIONS, QUEUE_COPIES };

void copy_upload(struct device *device, struct buffer to, const void *data, size_t bytes);
int event_open(struct device_event **out, struct device *device, struct err *err);
void event_close(struct device_event **event);
void event_record(struct device_event *event, enum queue_kind queue);
void event_hold(struct device_event *event, enum queue_kind queue);
bool event_passed(struct device_event *event);
int event_wait(struct device_event *event, struct err *err);                /* the host waits */

/* Memory of the host, at the host's address, 16-byte aligned, contents undefined: downloads into it are not waited for one by
 * one, and what a device with info.loops repeats by itself reads and writes it, too. */
int device_alloc_shared(struct device *device, size_t bytes, struct buffer *out, struct err *err);
void device_free_shared(struct device *device, struct buffer *buffer);

/* Iterations that the device repeats by itself (info.loops). loop_start has `put` called, once or twice, to put the
 * operations of one on the queue, which keeps them; nothing else may be on it until loop_end. Meanwhile operations are given
 * the most rows there can be, and treat as many as `rows` says when they run. The last one of an iteration writes a record
 * into a ring, to which the device and the host have access (device_alloc_shared), then to `more` whether the device may go
 * on before the host has read, 0 at the latest when the ring is full, then the number of records so far to `head`.
 *
 * loop_drain waits for the next record and tells where it lies; it stays until the next call. Only the record tells the end:
 * after the last one there is no next, and to ask for it is an error, as is an iteration that leaves none. The device runs
 * ahead as far as the ring reaches. */
struct loop;

struct loop_setup {
    void (*put)(void *context);
    void *context;
    struct buffer rows, more;        /* [1] i32 each */
    struct buffer ring, head;        /* shared; head [1] i32, 0 before the first iteration */
    size_t record_bytes;
    int records;                     /* of the ring */
};

int loop_start(struct loop **out, struct device *device, const struct loop_setup *setup, struct err *err);
int loop_drain(struct loop *loop, const void **record, struct err *err);
int loop_end(struct loop **loop, struct err *err);                   /* waits for what is at work */

/* Seconds that the device itself takes for the operations that `put` puts on the queue, called once: on a GPU they are one
 * graph, and its clock is read before them and after them, so that the rate at which a host launches is not in it. Nothing
 * that waits may be among them. */
int device_time(struct device *device, void (*put)(void *context), void *context, double *seconds, struct err *err);

/* Best of several ways to read `bytes` bytes of memory with the device's threads, in bytes a second: the yardstick of every
 * report. `data`: memory of the host that is read, 64-byte aligned, as a mapped file; NULL: memory of the device, taken for
 * this. Takes about `seconds`. Zero when the device has no such measure; negative on failure. */
double device_read_bandwidth(struct device *device, const void *data, size_t bytes, double seconds, struct err *err);

#endif

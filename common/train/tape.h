/* A tape: records a network's forward pass and runs the backward pass from the record.
 *
 * Operations (operation.h, loss.h) take values and parameters, return new values, and record a backward function.
 * tape_backward calls these functions from the last to the first; each adds to the gradients of the values and parameters that
 * its operation used. Losses write the first gradients, at the end of a network.
 *
 *     tape_begin(tape); ... operations, losses ...; tape_backward(tape);
 *
 * Values are in the memory of a device, and operations are queued there (kernels/learn.h); results are complete after the
 * device has been waited for (tape_download). The tape owns the memory of values from one tape_begin to the next and reuses it
 * in every step. An operation without memory returns NULL and sets the tape's error; an operation on NULL returns NULL, so a
 * network checks once, at its end.
 *
 * The same calls give the same bytes, on the host with any number of threads.
 *
 * Rows are those of all texts of a batch, one text after the other without padding (struct train_batch in batch.h). */
#ifndef MOE_TRAIN_TAPE_H
#define MOE_TRAIN_TAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/tensor/device.h"

struct variable {
    int rows, width;
    struct buffer data;         /* [rows][width] f32; empty: the values are in `stored` */
    struct buffer gradient;     /* [rows][width] f32; empty: no gradient is needed */
    struct stored_matrix *stored;       /* the matrix in a file's format (stored.h), which only loss.h accepts; else NULL */
};

struct tape;

/* Fails for a device without training operations. The device must outlive the tape. */
int tape_new(struct tape **out, struct device *device, struct err *err);
void tape_free(struct tape **tape);
void tape_begin(struct tape *tape);
void tape_begin_forward(struct tape *tape);     /* Begins a forward without gradients; nothing is recorded. */
void tape_backward(struct tape *tape);
/* Returns 0 if no operation failed, else -1 with the reason in err. */
int tape_failed(const struct tape *tape, struct err *err);

/* ---- for operations ---- */

const struct learn_ops *tape_ops(const struct tape *tape);
struct queue *tape_queue(const struct tape *tape);

/* Allocates a value with undefined data; if `wanted`, with a gradient of zeros. */
struct variable *tape_value(struct tape *tape, int rows, int width, bool wanted);
/* Allocates undefined memory, 64-byte aligned, valid until the next tape_begin. On failure these functions return NULL, or
 * an empty buffer, and set the tape's error. */
void *tape_memory(struct tape *tape, size_t count, size_t size);                /* on the host */
struct buffer tape_buffer(struct tape *tape, size_t count, size_t size);        /* on the device */
/* Returns `data` on the device. tape_copy always copies. tape_constant maps `data` itself if the device uses host memory;
 * then the caller must keep it unchanged until the next tape_begin. */
struct buffer tape_copy(struct tape *tape, const void *data, size_t count, size_t size);
struct buffer tape_constant(struct tape *tape, const void *data, size_t count, size_t size);
/* Waits for the queue and returns the contents of a buffer in host memory: the buffer itself if the device uses host memory,
 * else a copy in the tape's memory. NULL on failure. */
const void *tape_download(struct tape *tape, struct buffer from, size_t count, size_t size);

/* Records `back` and its argument `note`, which must be in the tape's memory. */
typedef void tape_back(struct tape *tape, const void *note);
int tape_note(struct tape *tape, tape_back *back, const void *note);

#endif

/* A network's forward, written down so that its backward follows from it.
 *
 * Operations (operation.h, loss.h) take values and parameters and give new values; each notes how gradients go back through it.
 * tape_backward then runs these notes from the last to the first, which adds to the gradients of the values and of the
 * parameters that took part. Losses put the gradients in at the end of a network.
 *
 *     tape_begin(tape); ... operations, losses ...; tape_backward(tape);
 *
 * Memory of values is the tape's, from tape_begin to the next; it is kept from step to step. An operation that gets no memory
 * gives NULL and sets the tape's error; one that is given NULL gives NULL: so a network asks once, at its end.
 *
 * Nothing depends on the number of threads: each number is computed by one of them, its sums in an order of their own.
 *
 * Rows are those of all texts of a batch, one text after the other without padding (struct train_batch in batch.h). */
#ifndef MOE_TRAIN_TAPE_H
#define MOE_TRAIN_TAPE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/thread_pool.h"

struct variable {
    int rows, width;
    float *data;                /* [rows][width] */
    float *gradient;            /* the same; NULL: nobody wants it */
    struct stored_matrix *stored;       /* data NULL: it is here (stored.h), for loss.h alone */
};

struct tape;

int tape_new(struct tape **out, struct thread_pool *pool, struct err *err);
void tape_free(struct tape **tape);
void tape_begin(struct tape *tape);
void tape_begin_forward(struct tape *tape);     /* for a loss alone: no value has a gradient, and nothing is noted */
void tape_backward(struct tape *tape);
int tape_failed(const struct tape *tape, struct err *err);      /* 0: no; else -1 with the reason */
struct thread_pool *tape_pool(const struct tape *tape);
size_t tape_bytes(const struct tape *tape);                     /* of memory that it holds */

/* ---- for operations ---- */

/* A value of the tape with undefined data; with `wanted` it has a gradient, of zeros. */
struct variable *tape_value(struct tape *tape, int rows, int width, bool wanted);
void *tape_memory(struct tape *tape, size_t count, size_t size);        /* undefined; 64-byte aligned; NULL: error is set */

/* Notes that `back` is to be called with `note`, which is in the tape's memory. */
typedef void tape_back(struct tape *tape, void *note);
int tape_note(struct tape *tape, tape_back *back, void *note);

/* job(context, begin, end) over parts of 0 .. count-1, by all threads; `cost`: about how many floats an item touches. */
typedef void tape_job(void *context, size_t begin, size_t end);
void tape_spread(struct tape *tape, size_t count, size_t cost, tape_job *job, void *context);
/* The same, one item at a time as threads are free, with the number of the thread. */
typedef void tape_item(void *context, size_t item, int member);
void tape_each(struct tape *tape, size_t count, tape_item *job, void *context);

#endif

/* Slots in the memory of a device that cannot read host memory, and host buffers from which they are filled: a read fills a
 * buffer, and the device's copy queue copies the buffer to a slot.
 *
 * Events order the queues: computation with a slot waits for the slot's copy (staging_use), and a copy waits for computation
 * with the slot's previous contents (staging_release). The caller only keeps track of which slots and buffers are free. */
#ifndef MOE_STORE_STAGING_H
#define MOE_STORE_STAGING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/tensor/device.h"

struct staging;

enum { STAGING_COPIES = 64 };                            /* max copies in flight */

/* bytes: size of a slot and of a buffer, a multiple of DIRECT_STEP; buffers are aligned to DIRECT_STEP. */
int staging_open(struct staging **out, struct device *device, int slots, int buffers, size_t bytes, struct err *err);
void staging_close(struct staging **staging);      /* Waits for copies in flight; reads into the buffers must have completed. */

uint64_t staging_address(const struct staging *staging, int slot);       /* device address of a slot */
void *staging_data(const struct staging *staging, int buffer);           /* host address of a buffer, aligned to DIRECT_STEP */

/* Queues a copy from a buffer to a slot. The buffer must stay unchanged until staging_next has returned it, once for each of
 * its copies. At most STAGING_COPIES copies may be in flight. */
void staging_copy(struct staging *staging, int buffer, int slot, size_t bytes);
int staging_busy(const struct staging *staging);         /* Returns the number of copies in flight. */

/* Collects the oldest copy. Returns 1 with its buffer in *buffer; 0 if the copy is not complete, or, with `wait`, if none is in
 * flight; -1 if waiting has failed: *buffer is set then, too. */
int staging_next(struct staging *staging, bool wait, int *buffer, struct err *err);

bool staging_has(const struct staging *staging, int slot);        /* Returns whether the last copy to the slot was collected. */

/* Must be called before (use) and after (release) the operations on the device's queue that read the slot. */
void staging_use(struct staging *staging, int slot);
void staging_release(struct staging *staging, int slot);

#endif

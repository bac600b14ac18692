/* Slots in the memory of a device that cannot read the host's, and buffers of the host from which experts get there: what a
 * read has left in a buffer is copied to a slot on the device's queue for copies.
 *
 * What is computed with a slot waits for its copy (staging_use), and a copy for what was computed with what the slot had before
 * (staging_release). The caller knows which slots and buffers are free, and no more than that: the rest is up to events. */
#ifndef MOE_STORE_STAGING_H
#define MOE_STORE_STAGING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/tensor/device.h"

struct staging;

enum { STAGING_COPIES = 64 };                            /* under way at once */

/* bytes: of a slot, and of a buffer; a multiple of DIRECT_STEP, as buffers' addresses are. */
int staging_open(struct staging **out, struct device *device, int slots, int buffers, size_t bytes, struct err *err);
void staging_close(struct staging **staging);            /* waits for what is under way; reads into buffers have ended */

uint64_t staging_address(const struct staging *staging, int slot);       /* on the device */
void *staging_data(const struct staging *staging, int buffer);           /* DIRECT_STEP-aligned, of the host */

/* What is in the buffer goes to the slot. The buffer stays as it is until staging_next has given it back, once for each of its
 * copies. There must be room: not STAGING_COPIES of them under way. */
void staging_copy(struct staging *staging, int buffer, int slot, size_t bytes);
int staging_busy(const struct staging *staging);         /* copies that staging_next has not given back */

/* 1: the oldest copy has been done, and *buffer is its buffer; 0: it has not, or with `wait` none is under way; -1: a wait for
 * it has failed, and it is given back all the same. */
int staging_next(struct staging *staging, bool wait, int *buffer, struct err *err);

bool staging_has(const struct staging *staging, int slot);               /* staging_next has given back the latest copy to it */

/* What is put on the device's queue between the two may read the slot. */
void staging_use(struct staging *staging, int slot);
void staging_release(struct staging *staging, int slot);

#endif

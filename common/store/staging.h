/* Slots in the memory of a device that cannot read the host's, and buffers of the host through which experts get there: a
 * buffer is filled by a read, copied to a slot on the device's queue for copies, and free again once that copy is done.
 *
 * What is computed with a slot waits for its copy (staging_use), and a copy for what was computed with what the slot had before
 * (staging_release). The caller knows which slots are free, and no more than that: the rest is up to events. */
#ifndef MOE_STORE_STAGING_H
#define MOE_STORE_STAGING_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/tensor/device.h"

struct staging;

/* bytes: of a slot, and of a buffer; a multiple of DIRECT_STEP, as buffers' addresses are. */
int staging_open(struct staging **out, struct device *device, int slots, int buffers, size_t bytes, struct err *err);
void staging_close(struct staging **staging);            /* waits for what is under way; reads into buffers have ended */

/* On the device. */
uint64_t staging_address(const struct staging *staging, int slot);

/* A buffer that nothing uses; -1: there is none at the moment. */
int staging_take(struct staging *staging);
void *staging_data(const struct staging *staging, int buffer);
void staging_give_back(struct staging *staging, int buffer);             /* nothing came of it */

/* What is in the buffer goes to the slot, and the buffer is free after that. */
void staging_copy(struct staging *staging, int buffer, int slot, size_t bytes);

bool staging_has(const struct staging *staging, int slot);   /* the latest copy to it is known to be done */
bool staging_look(struct staging *staging);                  /* finds out which are; false: none is under way */
/* Waits for the oldest copy: 1; 0: none is under way. */
int staging_wait(struct staging *staging, struct err *err);

/* What is put on the device's queue between the two may read the slot. */
void staging_use(struct staging *staging, int slot);
void staging_release(struct staging *staging, int slot);

#endif

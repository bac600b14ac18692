/* A range of a device's memory, as kernels receive it.
 *
 * Only the device that allocated the buffer can interpret `address`; host code must never dereference it. A buffer with address
 * 0 means "none" where a contract allows that. */
#ifndef MOE_KERNELS_BUFFER_H
#define MOE_KERNELS_BUFFER_H

#include <assert.h>
#include <stdint.h>

struct buffer {
    uint64_t address;
    uint64_t bytes;
};

/* Returns bytes offset .. offset+bytes of a buffer. */
static inline struct buffer buffer_part(struct buffer whole, uint64_t offset, uint64_t bytes)
{
    assert(offset <= whole.bytes && bytes <= whole.bytes - offset);
    return (struct buffer){whole.address + offset, bytes};
}

/* Returns the distance between adjacent rows; a stride of 0 means contiguous rows. */
static inline int row_stride(int stride, int width) { return stride ? stride : width; }

#endif

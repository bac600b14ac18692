/* A piece of a device's memory, as kernels are handed it.
 *
 * `address` means something to the device that gave it and to nobody else: host code never follows it. A buffer of
 * address 0 is "none", where a contract allows that. */
#ifndef MOE_KERNELS_BUFFER_H
#define MOE_KERNELS_BUFFER_H

#include <assert.h>
#include <stdint.h>

struct buffer {
    uint64_t address;
    uint64_t bytes;
};

/* Bytes offset .. offset+bytes of a buffer. */
static inline struct buffer buffer_part(struct buffer whole, uint64_t offset, uint64_t bytes)
{
    assert(offset <= whole.bytes && bytes <= whole.bytes - offset);
    return (struct buffer){whole.address + offset, bytes};
}

/* The distance of neighbouring rows, where 0 says that they lie without a gap. */
static inline int row_stride(int stride, int width) { return stride ? stride : width; }

#endif

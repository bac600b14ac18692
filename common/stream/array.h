/* Numeric arrays as one msgpack extension value (code ARRAY_EXT), so that C copies them whole and numpy maps them.
 *
 *   bytes 0..2         element type as numpy spells it: "|i1", "<f4", ...; bfloat16, which numpy lacks, is "<V2"
 *   byte  3            rank, 0 to ARRAY_RANK
 *   bytes 4..7         zero
 *   8 .. 8+8*rank      the shape, u64 little-endian, outermost first
 *   8+8*rank ..        the elements, little-endian, row-major, to the end of the value */
#ifndef MOE_STREAM_ARRAY_H
#define MOE_STREAM_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { ARRAY_EXT = 65, ARRAY_RANK = 8 };

enum dtype { DTYPE_I8, DTYPE_U8, DTYPE_I16, DTYPE_U16, DTYPE_I32, DTYPE_U32, DTYPE_I64, DTYPE_F32, DTYPE_F64, DTYPE_F16,
             DTYPE_BF16, DTYPE_COUNT };

size_t array_dtype_size(enum dtype dtype);
const char *array_dtype_name(enum dtype dtype);         /* "i8", "f32", ... */

struct array {
    enum dtype dtype;
    int rank;
    uint64_t shape[ARRAY_RANK];
    size_t count;               /* elements: the product of the shape */
    const void *data;
};

/* An array whose record allows several element types. */
struct elements {
    const void *data;           /* NULL: absent */
    enum dtype dtype;
};

/* Computes number of elements and bytes of a shape; -1 with err set if they overflow size_t. */
int array_measure(enum dtype dtype, int rank, const uint64_t *shape, size_t *count, size_t *bytes, struct err *err);

/* Parses the payload of an extension value. array->data points into the payload, at any alignment. */
int array_decode(struct array *array, const uint8_t *payload, size_t bytes, struct err *err);

/* Writes the bytes before the elements; returns their number. */
size_t array_encode_head(uint8_t head[8 + 8 * ARRAY_RANK], enum dtype dtype, int rank, const uint64_t *shape);

#endif

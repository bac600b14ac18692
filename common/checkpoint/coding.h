/* Codings: how the values of a source tensor are stored as bytes, and how they are decoded to f32.
 *
 * A plain dtype is a coding; so is a block format (Q4_K), and so are several tensors that together form one matrix
 * (integers, scales, zero points). The checkpoint reader JOINS such tensors: one tensor with the name and shape that the
 * model family knows replaces them all, and owns them as its parts.
 *
 * To add a coding, define a struct source_coding, and set tensor->coding where the source tensor is made (by a file reader
 * or by a join). A tensor without a coding cannot be read; this is an error only if the model needs it. */
#ifndef MOE_CHECKPOINT_CODING_H
#define MOE_CHECKPOINT_CODING_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/base/hash.h"
#include "kernels/formats.h"

struct checkpoint;
struct source_tensor;

/* Buffers and digest of one reading thread. */
struct source_reading {
    uint8_t *raw;                           /* buffer for bytes as stored in the file; grows */
    size_t room;
    struct xxh3_stream *digest;             /* hashes all bytes read; NULL: none */
};

struct source_coding {
    const char *name;                       /* for messages: "BF16", "Q4_K", "F8_E4M3 in blocks" */
    enum weight_format format;              /* format that represents all values exactly; used to keep the dtype */

    /* Decodes values first .. first + count of the tensor, in row-major order (last dim fastest). Plain dtypes accept any
     * range, other codings whole rows only (first and count are multiples of the last dim). Reads only through source_raw
     * and source_bytes, in an order that depends on the range alone, so that the digest is reproducible. */
    int (*read)(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                struct source_reading *reading, float *values, struct err *err);

    /* Converts whole rows to coded rows of `format` (kernels/formats.h) without loss and without the detour over floats.
     * Required where `format` has scales (format_scaled); NULL: only `read` exists. Reads the same bytes in
     * the same order as `read`. Does not check for scales and codes that are not finite; its caller does. */
    int (*read_coded)(const struct checkpoint *checkpoint, const struct source_tensor *tensor, int64_t first, int64_t count,
                      struct source_reading *reading, unsigned char *coded, struct err *err);
};

extern const struct source_coding coding_f32, coding_f16, coding_bf16;

/* Reads bytes of the tensor's data to reading->raw + at. May reallocate reading->raw. */
int source_raw(const struct checkpoint *checkpoint, const struct source_tensor *tensor, uint64_t offset, size_t bytes,
               struct source_reading *reading, size_t at, struct err *err);

/* Reads bytes of the tensor's data to `data`. */
int source_bytes(const struct checkpoint *checkpoint, const struct source_tensor *tensor, uint64_t offset, size_t bytes,
                 struct source_reading *reading, void *data, struct err *err);
void source_reading_free(struct source_reading *reading);          /* frees the buffer; the caller owns the digest */

#endif

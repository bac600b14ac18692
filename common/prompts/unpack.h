/* Decompresses gzip, bzip2 and zstd while reading. */
#ifndef MOE_PROMPTS_UNPACK_H
#define MOE_PROMPTS_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct unpack;

/* Reads more compressed bytes; *got 0: the end. */
typedef int unpack_source(void *context, void *data, size_t room, size_t *got, struct err *err);

/* Returns whether compressed data begins like this. *more: too few bytes to decide. */
bool unpack_begins(const void *bytes, size_t count, bool *more);

/* Opens a reader of compressed data. first: bytes already read from the source, at most 64 KiB; they are copied. */
int unpack_open(struct unpack **out, const void *first, size_t count, unpack_source *source, void *context, struct err *err);
void unpack_close(struct unpack **unpack);

/* Reads decompressed bytes; *got 0: the end. Damaged or truncated data is an error. */
int unpack_read(struct unpack *unpack, void *data, size_t room, size_t *got, struct err *err);

#endif

/* Bytes that gzip, bzip2 or zstd may have packed, unpacked as they come. */
#ifndef MOE_PROMPTS_UNPACK_H
#define MOE_PROMPTS_UNPACK_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"

struct unpack;

/* More of what is packed; *got 0: the end. */
typedef int unpack_source(void *context, void *data, size_t room, size_t *got, struct err *err);

/* Do packed bytes begin so? *more: they may, with more than these few bytes. */
bool unpack_begins(const void *bytes, size_t count, bool *more);

/* first: the bytes, 64 KiB at most, that were read of the source already, which are copied. */
int unpack_open(struct unpack **out, const void *first, size_t count, unpack_source *source, void *context, struct err *err);
void unpack_close(struct unpack **unpack);

/* *got 0: the end. What is damaged or cut off is an error. */
int unpack_read(struct unpack *unpack, void *data, size_t room, size_t *got, struct err *err);

#endif

/* A file that is read without the page cache, so that its bytes occupy the reader's memory only. Where the file system
 * does not support this (O_DIRECT), the file is read through the page cache, and its pages are dropped after each read. */
#ifndef MOE_BASE_DIRECT_H
#define MOE_BASE_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Offsets and buffer addresses must be multiples of this. */
enum { DIRECT_STEP = 4096 };

struct direct_file {
    const char *path;                /* borrowed; must outlive the reader */
    int fd;
    uint64_t bytes;                  /* size when the file was opened */
    bool direct;                     /* reads bypass the page cache */
};

/* Opens a regular file. direct_close accepts a zeroed struct that was never opened. */
int direct_open(struct direct_file *out, const char *path, struct err *err);
void direct_close(struct direct_file *file);

/* Reads `bytes` bytes starting at `offset`; `data` must have room for the next multiple of DIRECT_STEP. A file that has become
 * shorter is an error. Thread-safe. */
int direct_read(const struct direct_file *file, void *data, uint64_t offset, size_t bytes, struct err *err);

/* Judges a read that the caller issued by other means (io_uring): it read `got` of `want` bytes at `offset`, or failed with
 * errno -got. Returns 1 when complete; 0 when *done bytes are read and the caller must request the rest; -1 on error. */
int direct_take(const struct direct_file *file, uint64_t offset, size_t want, int64_t got, size_t *done, struct err *err);

#endif

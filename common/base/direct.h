/* A file that is read past the system's page cache, so that what is read takes the reader's memory alone. Where the file system
 * cannot do so (O_DIRECT), it is read as others are, and its pages are given back at once. */
#ifndef MOE_BASE_DIRECT_H
#define MOE_BASE_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

/* Offsets and memory are multiples of it. */
enum { DIRECT_STEP = 4096 };

struct direct_file {
    const char *path;                /* the caller's; stays as long as this */
    int fd;
    uint64_t bytes;                  /* when it was opened */
    bool direct;                     /* the page cache is passed by */
};

/* Regular files only. direct_close accepts what was never opened, if it is all zeros. */
int direct_open(struct direct_file *out, const char *path, struct err *err);
void direct_close(struct direct_file *file);

/* Reads `bytes` bytes from `offset` on; `data` has room for the next multiple of DIRECT_STEP. A file that has fewer by now is
 * an error. Any number of threads may read at once. */
int direct_read(const struct direct_file *file, void *data, uint64_t offset, size_t bytes, struct err *err);

/* For who reads in another way. A read for `want` bytes from `offset` on has given `got`, or failed with errno -got: 1: all is
 * there; 0: *done bytes are, and the rest is to be asked for; -1: it failed. */
int direct_take(const struct direct_file *file, uint64_t offset, size_t want, int64_t got, size_t *done, struct err *err);

#endif

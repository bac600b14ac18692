/* Input side of archives, shared by archive.c and spool.c: the archive's bytes, and the unnamed file for its tensor data. */
#ifndef MOE_CHECKPOINT_ARCHIVE_H
#define MOE_CHECKPOINT_ARCHIVE_H

#include <archive.h>

#include "common/checkpoint/checkpoint.h"

/* Reads the archive's own bytes. libarchive does not notice every truncation, so the last bytes are kept and checked
 * afterwards: a zip read from a pipe must end with its directory, a plain tar with a block of zeros. An .xz is decompressed
 * here, with at most the dictionary of `xz -9`, because libarchive has no useful memory limit. (The other filters need no
 * limit: zstd allows a window of 128 MiB, but pages take memory only once filled; gzip and bzip2 need less than 4 MiB.) */
enum { TAIL_BYTES = 66 << 10, INPUT_STEP = 64 << 10 };

struct archive_input {
    int fd;
    bool seekable;              /* a regular file; its end can be read at any time */
    uint64_t total;             /* bytes read from a pipe, or decompressed from an .xz */
    int failed;                 /* errno of the failed read */
    size_t ahead;               /* bytes in step that were read in advance to recognise .xz */
    struct xz_input *xz;        /* NULL: the input is not an .xz */
    uint8_t *step;              /* [INPUT_STEP] */
    uint8_t *tail;              /* [TAIL_BYTES], a ring buffer of the last bytes */
};

/* Opens the input on fd, which the caller owns. archive_input_close must be called also if this failed. */
int archive_input_open(struct archive_input *input, int fd, struct err *err);
void archive_input_close(struct archive_input *input);
int archive_input_attach(struct archive_input *input, struct archive *archive);          /* returns libarchive's result code */

/* Returns the number of compressed bytes read so far. */
uint64_t archive_input_packed(const struct archive_input *input, struct archive *archive);
/* Returns whether the input is not compressed at all. */
bool archive_input_plain(const struct archive_input *input, struct archive *archive);

/* Reads a pipe to its end and checks that the archive is complete. Must be called after the last of `members` members. */
int archive_input_check_end(struct archive_input *input, struct archive *archive, uint64_t members, struct err *err);

/* Opens an unnamed file in the folder of `beside`, or in memory if `beside` is NULL. */
int spool_open(int *fd, const char *beside, struct err *err);
int spool_write(int fd, uint64_t offset, const void *data, size_t bytes, struct err *err);

#endif

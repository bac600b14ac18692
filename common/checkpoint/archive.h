/* What archive.c and spool.c share: the bytes of an archive as they come, and where tensor data of its members go. */
#ifndef MOE_CHECKPOINT_ARCHIVE_H
#define MOE_CHECKPOINT_ARCHIVE_H

#include <archive.h>

#include "common/checkpoint/checkpoint.h"

/* The archive's own bytes. libarchive does not notice every cut, so the last of them are kept and looked at afterwards: a
 * zip read from a pipe must end in its directory, a plain tar in a block of zeros. An .xz is unpacked here, with the dictionary
 * of `xz -9` at most: libarchive has no limit that helps. (Of the others, zstd may have a window of 128 MiB, gzip and bzip2
 * take less than 4 MiB; this is only reserved until what was unpacked fills it.) */
enum { TAIL_BYTES = 66 << 10, INPUT_STEP = 64 << 10 };

struct archive_input {
    int fd;
    bool seekable;              /* a regular file, whose end can be read at any time */
    uint64_t total;             /* bytes read from a pipe, or of an .xz */
    int failed;                 /* errno of the failed read */
    size_t ahead;               /* bytes in step that were looked at first */
    struct xz_input *xz;        /* NULL: it is no .xz */
    uint8_t *step;              /* [INPUT_STEP] */
    uint8_t *tail;              /* [TAIL_BYTES], a ring */
};

int archive_input_open(struct archive_input *input, int fd, struct err *err);
void archive_input_close(struct archive_input *input);
int archive_input_attach(struct archive_input *input, struct archive *archive);          /* libarchive's result */

/* Bytes read so far of what is compressed, and whether anything is. */
uint64_t archive_input_packed(const struct archive_input *input, struct archive *archive);
bool archive_input_plain(const struct archive_input *input, struct archive *archive);

/* After the last of `members` members: reads a pipe to its end and checks the archive's end. */
int archive_input_check_end(struct archive_input *input, struct archive *archive, uint64_t members, struct err *err);

/* A file without a name in the folder of `beside`; in memory when that is NULL. */
int spool_open(int *fd, const char *beside, struct err *err);
int spool_write(int fd, uint64_t offset, const void *data, size_t bytes, struct err *err);

#endif

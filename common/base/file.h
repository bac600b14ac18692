/* Files: reading whole small ones under a limit, mapping large ones, and writing so that a name never shows half a file. */
#ifndef MOE_BASE_FILE_H
#define MOE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"

/* Appends the whole file ("-" is standard input) to *out; more than `limit` bytes is an error. */
int file_read(struct text *out, const char *path, size_t limit, struct err *err);

/* What is there to read, up to `room` bytes; *got 0 is the end. Waits, also where the descriptor was set not to block. */
int file_read_some(int fd, const char *name, void *data, size_t room, size_t *got, struct err *err);

/* Which file a name leads to, whatever the name and the links on the way: regular files alone, since devices and pipes can be
 * shared. Not known: there is none. */
struct file_identity {
    bool known;
    uint64_t device, inode;
};
struct file_identity file_identify(const char *path);
struct file_identity file_identify_descriptor(int fd);
bool file_same(const struct file_identity *a, const struct file_identity *b);       /* false where one is not known */

/* Are these the first bytes of what Git LFS keeps in place of a large file? The message is for where they are. */
bool file_is_pointer(const void *data, size_t bytes);
#define FILE_POINTER_FAULT "is a Git LFS pointer, not the file itself; `git lfs pull` in its folder downloads the file"

/* A file without a name in `folder`, open for reading and writing, gone when it is closed. */
int file_nameless(int *fd, const char *folder, struct err *err);

/* An error where an open file is no regular one. A pipe without a writer must have been opened with O_NONBLOCK. */
struct stat;
int file_regular(int fd, const char *path, struct stat *status, struct err *err);

/* A regular file mapped read-only. Huge pages are asked for: where the system has them for files, what is not yet in its page
 * cache is then read 2 MiB at a time and mapped so. Nothing is read before it is touched, so that files larger than memory
 * work, and opening one takes no longer than a small one. */
struct file_map {
    const uint8_t *data;
    size_t bytes;
};
int file_map_open(struct file_map *map, const char *path, struct err *err);
void file_map_close(struct file_map *map);
/* Returns the name of the file that is mapped there; NULL: none is, or it is one of very many. Async-signal-safe, for a handler
 * of SIGBUS: a file that is cut off while it is mapped cannot be touched any more. */
const char *file_map_at_unsafe(const void *address);
/* These bytes need not stay in memory; they are read again when they are touched. A wish. */
void file_map_forget(const struct file_map *map, uint64_t offset, uint64_t bytes);

/* An output that appears under its name whole or not at all: written to a temporary name in the same folder, PATH.tmp.NUMBER,
 * synced and renamed by output_commit; output_discard (or a signal, see cli/run) removes it. What killed processes left under
 * such names goes when the same output is opened again: a lock tells what is still being written. The path "-" is standard
 * output and the names of devices and pipes (/dev/full, FIFOs) are written in place. Writes are complete or an error; EPIPE is
 * ERR_PIPE. */
struct output;
int output_open(struct output **out, const char *path, struct err *err);

/* The same for what takes hours: written as PATH.part, and after output_keep neither signals nor failures remove that. What an
 * earlier process left so lies at output_left (PATH.part.old, the longest there was; NULL: none) until the commit removes it.
 * That another process is writing PATH.part is an error. output_keep sees that all is on the disk, once a second at most.
 * A farewell, given before the first output_keep, is what a signal that ends the process writes on stderr where something is
 * kept; one of 4 KiB or more is left out. */
int output_open_kept(struct output **out, const char *path, struct err *err);
const char *output_left(const struct output *out);
void output_keep(struct output *out);
void output_farewell(struct output *out, const char *text);
bool output_is_kept(const struct output *out);
void output_spare_left(struct output *out);                         /* what is left of another run stays, also at the commit */

/* An error where the disk has less room than `bytes` now: what is known to be too large is refused before the work. */
int output_expect(const struct output *out, uint64_t bytes, struct err *err);
int output_write(struct output *out, const void *data, size_t bytes, struct err *err);
/* Files only. What continues the last call may wait for more; later calls and the commit write it, and tell what fails. */
int output_write_at(struct output *out, uint64_t offset, const void *data, size_t bytes, struct err *err);
int output_flush(struct output *out, struct err *err);              /* what was written so far reaches the reader */
bool output_is_terminal(const struct output *out);
bool output_in_place(const struct output *out);                     /* stdout, a pipe, a device: it has no temporary name */
const char *output_path(const struct output *out);
int output_commit(struct output **out, struct err *err);            /* frees, also on failure */
void output_discard(struct output **out);                           /* NULL is allowed */

/* Removes the temporary files of all open outputs and says their farewells; async-signal-safe, for a handler that is about to
 * end the process. */
void output_discard_all_unsafe(void);

#endif

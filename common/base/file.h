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

/* Reads the available bytes, at most `room`; *got 0 means end of file. Waits even if the descriptor is non-blocking. */
int file_read_some(int fd, const char *name, void *data, size_t room, size_t *got, struct err *err);

/* Identity of the file that a name refers to, through links. Regular files only, since devices and pipes can be shared. A
 * missing file has no identity. */
struct file_identity {
    bool known;
    uint64_t device, inode;
};
struct file_identity file_identify(const char *path);
struct file_identity file_identify_descriptor(int fd);
bool file_same(const struct file_identity *a, const struct file_identity *b);       /* false if either is unknown */

/* Returns whether these first bytes of a file are those of a Git LFS pointer; FILE_POINTER_FAULT is the message for it. */
bool file_is_pointer(const void *data, size_t bytes);
#define FILE_POINTER_FAULT "is a Git LFS pointer, not the file itself; `git lfs pull` in its folder downloads the file"

/* Opens a file without a name in `folder` for reading and writing; it disappears when it is closed. */
int file_nameless(int *fd, const char *folder, struct err *err);

/* Fails if an open file is not a regular file. A pipe without a writer must have been opened with O_NONBLOCK. */
struct stat;
int file_regular(int fd, const char *path, struct stat *status, struct err *err);

/* A regular file mapped read-only. Huge pages are requested: where the system supports them for files, missing pages are read
 * and mapped 2 MiB at a time. Bytes are read when they are first touched, so a file may exceed memory, and opening a large
 * file takes no longer than opening a small one. */
struct file_map {
    const uint8_t *data;
    size_t bytes;
};
int file_map_open(struct file_map *map, const char *path, struct err *err);
void file_map_close(struct file_map *map);
/* Returns the name of the file mapped at this address; NULL if none is, or if the table of mapped files was full.
 * Async-signal-safe, for a SIGBUS handler: touching a mapped file that was truncated raises SIGBUS. */
const char *file_map_at_unsafe(const void *address);
/* Advises the system that these bytes need not stay in memory; touching them reads them again. */
void file_map_forget(const struct file_map *map, uint64_t offset, uint64_t bytes);
/* Unmaps the whole pages of these bytes: touching them is an error, and reading their neighbours does not read them. Pages
 * that the system cannot unmap stay mapped. */
void file_map_leave_out(const struct file_map *map, uint64_t offset, uint64_t bytes);

/* An output that appears under its name whole or not at all: written to a temporary name in the same folder, PATH.tmp.NUMBER,
 * synced and renamed by output_commit; output_discard (or a signal, see cli/run) removes it. Opening the same output again
 * removes temporary files that killed processes left: a lock marks those still being written. The path "-" is standard
 * output and the names of devices and pipes (/dev/full, FIFOs) are written in place. Writes are complete or an error; EPIPE is
 * ERR_PIPE. */
struct output;
int output_open(struct output **out, const char *path, struct err *err);
/* Fails if no file can be created in the folder of an output that is opened only when all work is done. Creates nothing. */
int output_check_folder(const char *path, struct err *err);

/* Opens an output that takes hours: written as PATH.part, which neither signals nor failures remove after output_keep. The
 * partial output of an earlier process is at output_left (PATH.part.old, the longest one; NULL: none) until the commit
 * removes it. If another process is writing PATH.part, opening fails. output_keep syncs to the disk, at most once a second;
 * it does nothing to outputs of output_open.
 * The farewell, set before the first output_keep, is the text that a fatal signal prints on stderr if a part was kept; a
 * farewell of 4 KiB or more is not printed. */
int output_open_kept(struct output **out, const char *path, struct err *err);
const char *output_left(const struct output *out);
void output_keep(struct output *out);
void output_set_signal_text(struct output *out, const char *text);
bool output_is_kept(const struct output *out);
void output_spare_left(struct output *out);                         /* keeps the partial output of another run */

/* Fails if the disk has less than `bytes` bytes free, so that an output that cannot fit is refused before the work. */
int output_expect(const struct output *out, uint64_t bytes, struct err *err);
int output_write(struct output *out, const void *data, size_t bytes, struct err *err);
/* Writes at an offset, to files only. Bytes that continue the last call may be buffered; later calls and the commit write
 * them and report failures. */
int output_write_at(struct output *out, uint64_t offset, const void *data, size_t bytes, struct err *err);
int output_flush(struct output *out, struct err *err);              /* passes all bytes written so far to the reader */
bool output_is_terminal(const struct output *out);
bool output_in_place(const struct output *out);                     /* stdout, a pipe or a device, without a temporary name */
const char *output_path(const struct output *out);
int output_commit(struct output **out, struct err *err);            /* frees, also on failure */
void output_discard(struct output **out);                           /* NULL is allowed */
int output_whole(const char *path, const struct text *text, struct err *err);          /* writes an output at once */

/* Removes the temporary files of all open outputs and prints their farewells. Async-signal-safe, for a handler that ends the
 * process. */
void output_discard_all_unsafe(void);

#endif

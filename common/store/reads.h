/* Asynchronous reads of a file: by io_uring, or by threads where the kernel lacks or forbids it. One thread starts the reads
 * and collects them in the order in which they complete. */
#ifndef MOE_STORE_READS_H
#define MOE_STORE_READS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/direct.h"
#include "common/base/err.h"
#include "common/base/stop.h"

struct reads;

enum { READS_DEPTH_MAX = 256 };

/* Opens a reader for up to `depth` reads in flight. The file must stay open as long. threads: does not use io_uring. */
int reads_open(struct reads **out, const struct direct_file *file, int depth, bool threads, struct err *err);
void reads_close(struct reads **reads);                  /* waits for reads in flight */

/* Closes without waiting. Reads in flight still write to their memory, which must stay allocated until the process ends. */
void reads_abandon(struct reads **reads);

/* Returns the method of reading, for the user: "io_uring", or "8 threads, ..." with the reason. */
const char *reads_method(const struct reads *reads);

int reads_busy(const struct reads *reads);               /* Returns the number of reads that reads_next has not returned yet. */
/* Returns whether `depth` reads are in flight. */
bool reads_full(const struct reads *reads);

/* Starts a read of `bytes` bytes at `offset` into `data`, with the alignment that direct_read requires. Must not be called when
 * reads_full. */
int reads_start(struct reads *reads, int tag, void *data, uint64_t offset, size_t bytes, struct err *err);

/* Waits until some read has completed that reads_next has not returned. Fails with ERR_SIGNAL if the stop is requested
 * first. */
int reads_wait(struct reads *reads, const struct stop *stop, struct err *err);

/* Collects a completed read. Returns 1 with the tag that reads_start was given; 0 if none has completed, or, with `wait`, if
 * none is in flight; -1 if the read with this tag has failed, or, with *tag -1, if the mechanism itself has failed. */
int reads_next(struct reads *reads, bool wait, int *tag, struct err *err);

#endif

/* Reads of a file that are under way while the caller does something else: by io_uring, or by threads where the kernel has none
 * or forbids it. One thread starts reads and asks for those that have ended, in whatever order that happens. */
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

/* For up to `depth` reads at once of a file that stays open as long. threads: no io_uring. */
int reads_open(struct reads **out, const struct direct_file *file, int depth, bool threads, struct err *err);
void reads_close(struct reads **reads);                  /* waits for what is under way */

/* Closes without waiting: reads under way still write into their memory, which must stay until the process ends. */
void reads_abandon(struct reads **reads);

/* "io_uring", or "8 threads, as io_uring cannot be had: ...". */
const char *reads_way(const struct reads *reads);

int reads_busy(const struct reads *reads);               /* reads that reads_next has not given yet */
bool reads_full(const struct reads *reads);

/* Starts a read of `bytes` bytes from `offset` on into `data`, as direct_read does it. There must be room for one more. */
int reads_start(struct reads *reads, int tag, void *data, uint64_t offset, size_t bytes, struct err *err);

/* Waits until a read has ended that reads_next has not given yet. ERR_SIGNAL: the stop was asked for before. */
int reads_wait(struct reads *reads, const struct stop *stop, struct err *err);

/* 1: a read has ended, with the tag it was started with; 0: none has, or with `wait` none is under way; -1: the read with this
 * tag has failed, or, with tag -1, reading as such. */
int reads_next(struct reads *reads, bool wait, int *tag, struct err *err);

#endif

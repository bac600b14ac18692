/* Estimates how much memory this process can still take: the memory that the system has available, or less where a control
 * group (version 1 or 2) limits the process. Pages of the page cache count as free, because the kernel reclaims them on
 * demand. */
#ifndef MOE_BASE_MEMORY_LEFT_H
#define MOE_BASE_MEMORY_LEFT_H

#include <stdint.h>

/* Returns bytes; -1 if unknown. `root` is a prefix of /proc and /sys, "" except in tests. */
int64_t memory_left(const char *root);

#endif

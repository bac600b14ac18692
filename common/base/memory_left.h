/* How much memory the system would give this process: what it has available, or less where the process is in a group with a
 * limit (control groups of both versions). */
#ifndef MOE_BASE_MEMORY_LEFT_H
#define MOE_BASE_MEMORY_LEFT_H

#include <stdint.h>

/* Bytes; -1: it cannot be known. `root` comes before /proc and /sys: "" but in tests. */
int64_t memory_left(const char *root);

#endif

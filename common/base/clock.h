/* Returns monotonic seconds, for measuring. Policies never read the clock: the decoding loop measures and passes the times
 * to them. */
#ifndef MOE_BASE_CLOCK_H
#define MOE_BASE_CLOCK_H

#include <time.h>

static inline double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif

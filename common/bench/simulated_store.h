/* The expert store in virtual time: the schedule of common/store/schedule.h over a link whose bandwidth is shared by all reads
 * in flight. The latency of a read passes while other reads transfer. */
#ifndef MOE_BENCH_SIMULATED_STORE_H
#define MOE_BENCH_SIMULATED_STORE_H

#include "common/store/schedule.h"

struct simulated_link_read {
    int slot;
    double began, from;         /* from: end of the read's latency */
    double end;                 /* value of the link's `moved` at which the read ends; negative: its latency has not passed.
                                 * After its end: the time of its end */
};

struct simulated_link {
    double clock;               /* time of the processor; set by the caller, and advanced by waiting */
    double latency_s;
    double all_s[SCHEDULE_READS + 1];   /* by n: seconds in which n concurrent reads complete */
    double now;                 /* time of the last event */
    double moved;               /* progress, in reads, of each transferring read since time 0 */
    int reads, moving, ended;
    struct simulated_link_read read[SCHEDULE_READS];    /* reads in flight, in the order of their start */
    struct simulated_link_read done[SCHEDULE_READS];    /* ended but not collected yet, in this order */
    void (*note)(void *context, int slot, double from, double to);      /* called for each collected read; may be NULL */
    void *context;
};

extern const struct transfers simulated_link_transfers;         /* context: struct simulated_link */

#endif

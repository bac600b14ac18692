/* The processes of moe-decode --ranks: each computes its share of the routed experts, and all run the same loop; process 0
 * writes. */
#ifndef MOE_CMD_DECODE_RANKS_H
#define MOE_CMD_DECODE_RANKS_H

#include "common/decode/budget.h"
#include "common/engine/peers.h"
#include "common/ranks/ranks.h"
#include "common/session/session.h"

struct decode_ranks {
    struct ranks *ranks;                /* NULL: not opened */
    struct peers_link link;
    const struct stop *signal;          /* a signal to this process */
    struct stop stop;                   /* requested in all processes at the same forward, when a signal came to any */
};

/* Joins the job that --ranks (an index of ranks_words) selects. With several processes, sets `peers`, `threads` and `caching`
 * of *session, and replaces *stop by one that all processes see at the same time. The caller must close *ranks also after a
 * failure. */
int decode_ranks_open(struct decode_ranks *ranks, int choice, struct session_options *session, const struct stop **stop,
                      struct err *err);
void decode_ranks_close(struct decode_ranks *ranks);

/* Return whether there are several processes, and whether this one writes. */
bool decode_ranks_several(const struct decode_ranks *ranks);
bool decode_ranks_writes(const struct decode_ranks *ranks);

/* Refuses a budget that would make each process read all experts. */
int decode_ranks_check_budget(const struct decode_ranks *ranks, const struct budget *budget, struct err *err);

/* Refuses processes whose files, program version, instruction set, settings or number of concurrent texts differ from those of
 * process 0. No process returns before all have called this function. */
int decode_ranks_compare(const struct decode_ranks *ranks, const struct session *session, const char *settings, int texts,
                         struct err *err);

/* Waits until all processes have decoded everything, before any output appears. */
int decode_ranks_meet(const struct decode_ranks *ranks, struct err *err);

/* Ends the job; rc and err are the result of this process. Returns the result of the whole job: all processes fail if one has
 * failed, and one of them prints the error on this console. */
int decode_ranks_end(struct decode_ranks *ranks, int rc, const struct console *console, struct err *err);

#endif

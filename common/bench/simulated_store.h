/* The store of experts (common/store/cached.h, slots that are read into in place) in virtual time: the same cache, reads in the
 * same order, on a link whose bandwidth all reads under way share.
 *
 *   - what a layer wants and is not there is read at once, as far as there are slots and room for reads; the others when some
 *     of these have been computed
 *   - what is there is computed first, then what has come meanwhile; who has nothing waits for the next read
 *   - what is asked for beforehand begins after that: whenever a layer has got something to compute, or somebody has asked, up
 *     to so many reads at a time. None of them is given up, and none waits for those that are wanted
 *   - once all slots are taken, half of them at most have what was not wanted yet
 *
 * A read's latency passes while others move. All calls give the time, which never goes back. */
#ifndef MOE_BENCH_SIMULATED_STORE_H
#define MOE_BENCH_SIMULATED_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cache/cache.h"

enum { SIMULATED_READS = 64, SIMULATED_BEFOREHAND = 8 };        /* at once, and those beforehand: as in cached.h */

struct simulated_link_read {
    int slot;
    double began, from;         /* from: its latency has passed */
    double end;                 /* the link's `moved` when it ends; negative: its latency has not passed. Once it has: when */
};

struct simulated_link {
    double latency_s;
    double all_s[SIMULATED_READS + 1];  /* so many reads that begin to move at a time take */
    double now;
    double moved;               /* reads' worth that each of those which move has got since the beginning */
    int reads, moving, ended;
    struct simulated_link_read read[SIMULATED_READS];   /* under way, in the order in which they began */
    struct simulated_link_read done[SIMULATED_READS];   /* that have ended and were not taken, in this order */
};

struct simulated_store {
    struct cache *cache;        /* the caller's */
    int slots, experts;
    struct simulated_link link;
    bool *ready, *beforehand;   /* [slots] all of it is there; it is brought without being wanted, and not there yet */
    bool *holds;                /* [experts] of the layer at work */
    int reads_beforehand;
    int64_t fetched, prefetched;
    void (*ended)(void *context, int key, double from, double to);      /* a read has; NULL: all the same */
    void *context;
};

/* What a layer wants; the arrays are the caller's and are reordered. expert[done .. done + held) can be computed. */
struct simulated_union {
    int layer, count, done, held;
    int32_t *expert, *tokens;   /* [count] */
};

/* The caller sets link.latency_s and link.all_s. */
int simulated_store_open(struct simulated_store *out, struct cache *cache, int slots, int experts, struct err *err);
void simulated_store_free(struct simulated_store *store);

/* Starts what was asked for beforehand, at *now, as far as there is room. */
void simulated_store_bring(struct simulated_store *store, double now);

/* At least one expert that is not done, and all of those that are there; *now is when. The cache knows what the layer wants
 * (cache_want). Error: the policy gives no slot. */
int simulated_store_acquire(struct simulated_store *store, struct simulated_union *wanted, double *now, struct err *err);
void simulated_store_release(struct simulated_store *store, struct simulated_union *wanted);

#endif

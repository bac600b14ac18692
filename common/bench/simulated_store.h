/* The expert store (common/store/cached.h, with reads directly into slots) in virtual time: the same cache, and reads in the
 * same order, on a link whose bandwidth is shared by all reads in flight.
 *
 *   - missing experts of a layer are read at once, as far as there are slots and free reads; the others when some of these
 *     have been computed
 *   - resident experts are computed first, then those that have arrived; if there is none, the processor waits for the next
 *     read
 *   - prefetches start after that: whenever a layer has got an expert to compute, or a forecast was made, up to a maximum
 *     number of reads. A prefetch is never cancelled, and does not wait for demanded reads
 *   - once all slots are in use, at most half of them contain experts that were not requested yet
 *
 * The latency of a read passes while other reads transfer. Each call passes the current time, which never decreases. */
#ifndef MOE_BENCH_SIMULATED_STORE_H
#define MOE_BENCH_SIMULATED_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cache/cache.h"

enum { SIMULATED_READS = 64, SIMULATED_BEFOREHAND = 8 };        /* maximum reads in flight, and prefetches among them: as in
                                                                 * cached.h */

struct simulated_link_read {
    int slot;
    double began, from;         /* from: end of its latency */
    double end;                 /* value of the link's `moved` at which it ends; negative: its latency has not passed. After
                                 * it has ended: the time */
};

struct simulated_link {
    double latency_s;
    double all_s[SIMULATED_READS + 1];  /* seconds that n reads take which transfer together, by n */
    double now;
    double moved;               /* progress, in reads, of each transferring read since time 0 */
    int reads, moving, ended;
    struct simulated_link_read read[SIMULATED_READS];   /* in flight, in the order of their start */
    struct simulated_link_read done[SIMULATED_READS];   /* ended but not registered yet, in this order */
};

struct simulated_store {
    struct cache *cache;        /* owned by the caller */
    int slots, experts;
    struct simulated_link link;
    bool *ready, *beforehand;   /* [slots] ready: completely read; beforehand: being prefetched, not demanded */
    bool *holds;                /* [experts] of the current layer */
    int reads_beforehand;
    int64_t fetched, prefetched;
    void (*ended)(void *context, int key, double from, double to);      /* called for each read that has ended; may be NULL */
    void *context;
};

/* Experts that a layer needs; the caller owns the arrays, which are reordered. expert[done .. done + held) can be computed. */
struct simulated_union {
    int layer, count, done, held;
    int32_t *expert, *tokens;   /* [count] */
};

/* Opens a store. The caller then sets link.latency_s and link.all_s. */
int simulated_store_open(struct simulated_store *out, struct cache *cache, int slots, int experts, struct err *err);
void simulated_store_free(struct simulated_store *store);

/* Starts requested prefetches at time `now`, as far as there is room. */
void simulated_store_bring(struct simulated_store *store, double now);

/* Makes at least one expert available that is not done, and all that have arrived; advances *now. The cache must know the
 * layer's experts (cache_want). It is an error if the policy provides no slot. */
int simulated_store_acquire(struct simulated_store *store, struct simulated_union *wanted, double *now, struct err *err);
void simulated_store_release(struct simulated_store *store, struct simulated_union *wanted);

#endif

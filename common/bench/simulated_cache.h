/* Runs cache policies alone over recorded routes, prompts included: which experts would have been resident, and the data on
 * which the policy bases its next decisions. It works like the store (common/store) without prefetching: resident experts of
 * a layer are held, the others inserted in ascending order; if there are not slots for all, the ones held first are released
 * first. So its decisions equal the store's if all experts of a layer have slots; otherwise the store may have evicted
 * others, depending on the order of arrival.
 *
 * The second tier is the host's memory of a device with its own memory: an expert missing on the device is copied from the
 * host if resident there; otherwise it is inserted into both. Each tier has a cache with the same policy, and both see all
 * requested experts. */
#ifndef MOE_BENCH_SIMULATED_CACHE_H
#define MOE_BENCH_SIMULATED_CACHE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulated_routes.h"

struct simulated_caching {
    const struct simulated_routes *routes;
    int slots, draft_length;
    int host_slots;             /* 0: one tier */
};

/* Simulates `count` policies with their settings. Appends a table of hits; with `json` one line per policy, and with
 * `iterations` also one per forward. */
int simulate_caches(struct text *out, const struct simulated_caching *caching, const char *const *policies, int count,
                    bool json, bool iterations, bool markdown, struct err *err);

#endif

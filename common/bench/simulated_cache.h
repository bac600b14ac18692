/* Cache policies alone over recorded routes, prompts and all: which experts would have been there, and on what the policy's
 * next decisions rest. It goes as the store (common/store) does that reads nothing beforehand: a layer's experts that are there
 * are held, the others are inserted in ascending order; where there are no slots for all, those are given up first that were.
 * So it decides the same where all that a layer wants has slots; else the store may have given up others, as they come.
 *
 * With a second tier, the host's memory of a device with its own: what the device lacks and the host has is copied, what
 * neither has comes into both. Each tier has a cache of the policy, and both see all that is wanted. */
#ifndef MOE_BENCH_SIMULATED_CACHE_H
#define MOE_BENCH_SIMULATED_CACHE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulated_routes.h"

struct simulated_caching {
    const struct simulated_routes *routes;
    int slots, draft_length;
    int host_slots;             /* 0: there is one tier */
};

/* `count` policies with their settings: a table of hits; with `json` a line each, and with `iterations` one a forward, too. */
int simulate_caches(struct text *out, const struct simulated_caching *caching, const char *const *policies, int count,
                    bool json, bool iterations, bool markdown, struct err *err);

#endif

/* Runs cache policies alone over recorded routes, prompts included: which experts would have been resident, and the data on
 * which the policy bases its next decisions. It is the schedule of the store (common/store/schedule.h) on a link that takes no
 * time, and without prefetching. So its decisions equal the store's if all experts of a layer have slots; otherwise the store
 * may have evicted others, depending on the order of arrival.
 *
 * The second tier is the host's memory of a device with its own memory: an expert missing on the device is copied from the
 * host if resident there; otherwise it is inserted into both. Each tier has a cache with the same policy, and both see all
 * requested experts.
 *
 * With thresholds, device and host share verifications as under moe-decode --split balance: the device computes resident
 * experts, the host the others, and a threshold tau decides what is prefetched and evicted. A live run computes tau from its
 * times; with the recorded values of tau, the simulation decides like a live run whose reads and copies arrive in order. */
#ifndef MOE_BENCH_SIMULATED_CACHE_H
#define MOE_BENCH_SIMULATED_CACHE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/bench/simulated_routes.h"
#include "common/store/schedule.h"

struct simulated_caching {
    const struct simulated_routes *routes;
    int slots, draft_length;
    int host_slots;             /* 0: one tier */
    const int32_t *tau;         /* [verifications][layers] thresholds under which each layer was split; NULL: not split */
    size_t verifications;
};

/* A policy's run, forward by forward. Layers are split into the device's and the host's experts. */
struct simulated_replay;
struct simulated_split {                /* split of the last verification, as in struct second_facts */
    int levels;
    int32_t *device_experts, *cold, *fetches;   /* [layers], [layers], [layers][levels] */
};
int simulated_replay_open(struct simulated_replay **out, const struct simulated_caching *caching, const char *policy,
                          struct err *err);
void simulated_replay_close(struct simulated_replay **replay);
int simulated_replay_step(struct simulated_replay *replay, size_t number, struct err *err);      /* in the order of steps */
const struct schedule *simulated_replay_store(const struct simulated_replay *replay);   /* returns the store, for its caches
                                                                                         * and counters */
const struct simulated_split *simulated_replay_split(const struct simulated_replay *replay);

/* Reads the thresholds of all verifications of a recorded run with --split balance, as many as `routes` have; the caller
 * frees *tau. */
int simulated_thresholds_read(int32_t **tau, size_t *count, const char *path, const struct simulated_routes *routes,
                              struct err *err);

/* Simulates `count` policies with their settings. Appends a table of hits; with `json` one line per policy, and with
 * `iterations` also one per forward. */
int simulate_caches(struct text *out, const struct simulated_caching *caching, const char *const *policies, int count,
                    bool json, bool iterations, bool markdown, struct err *err);

#endif

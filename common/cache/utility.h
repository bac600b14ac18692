/* State that the utility policies have learned of each expert, for records and tests: the states of Algorithm 1. */
#ifndef MOE_CACHE_UTILITY_H
#define MOE_CACHE_UTILITY_H

#include "common/cache/cache.h"
#include "common/cache/utility_rule.h"

/* Returns the policy's own states [layers * experts], and its highest level in *K; NULL: another policy. */
const struct utility_expert *cache_utility_states(const struct cache *cache, int *K);

/* Returns whether a resident's slot can be given to any request (MoE-SpAc appendix D): its tag is 0, and the current layer
 * does not use it. For utility policies only. */
bool cache_utility_is_free(const struct cache *cache, int key);

#endif

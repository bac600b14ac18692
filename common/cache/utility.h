/* What the utility policies have learned of each expert, for records and tests: the states of Algorithm 1. */
#ifndef MOE_CACHE_UTILITY_H
#define MOE_CACHE_UTILITY_H

#include "common/cache/cache.h"
#include "common/cache/utility_rule.h"

/* [layers * experts], the policy's own, and its highest level; NULL: the policy is another one. */
const struct utility_expert *cache_utility_states(const struct cache *cache, int *K);

/* Whether a resident's slot can be given to any request (MoE-SpAc appendix D): its tag is 0, and the layer at work does not
 * use it. Of these policies alone. */
bool cache_utility_is_free(const struct cache *cache, int key);

#endif

/* Chooses an expert budget while decoding: the smallest that keeps the divergence from the model without a budget under a
 * bound, as far as a smaller one saves bytes. Pure, like a policy: it sees measurements and answers decisions.
 *
 * There are LEVELS: all experts, then seven eighths of them, three quarters, and so on down to one eighth, not below top_k. In
 * every `every`-th iteration the level in force or the next smaller one, by turns, is probed: the same tokens go through the
 * model with that budget and without, behind the same KV cache, and what is emitted is what the model without says. So the
 * divergence that is bounded is that of a token given what is before it, and a probe costs time but no quality. A level is
 * taken when the mean of at least PROBES_LEAST of its last PROBES_MOST probes and twice its standard error are below the bound;
 * it is left, upwards, when the mean alone is above the bound. Levels that would read less than 2 % less than the one in force
 * are passed over. What was learned is kept from text to text. */
#ifndef MOE_POLICY_GOVERNOR_H
#define MOE_POLICY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

enum { GOVERNOR_LEVELS = 8, PROBES_LEAST = 4, PROBES_MOST = 32 };

struct governor_level {
    int budget;
    double probe[PROBES_MOST];          /* divergences of the last probes, a ring */
    int64_t probes;
    double bytes;                       /* that those without a budget would have read with it, a running mean */
};

struct governor {
    double bound;                       /* nats a token */
    int every, top_k;
    struct governor_level level[GOVERNOR_LEVELS];
    int levels, at;                     /* at: the level in force; 0: no budget */
    int since, turn;                    /* iterations since the last probe; which level is next */
};

/* "auto:kl=0.02,every=16", both optional, for a model with so many experts of which a token takes top_k. */
int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, struct err *err);

/* The budget of this iteration; *probe: it is to be tried beside the model without, whose tokens count. */
int governor_next(struct governor *governor, bool *probe);

/* What a probe of `budget` has shown: mean divergence of the emitted tokens, distinct experts wanted [layers] without a budget,
 * bytes of one expert and of all else that the forward has read. */
void governor_observe(struct governor *governor, int budget, double divergence, const int32_t *wanted, int layers,
                      double expert_bytes, double other_bytes);

void governor_state(const struct governor *governor, struct values *out);

#endif

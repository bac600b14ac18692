/* Chooses an expert budget while decoding: the smallest that keeps the mean divergence from the model without a budget under a
 * bound. Pure, like a policy: it sees measurements and answers decisions.
 *
 * It keeps an ACCOUNT in nats. Each token pays in GOVERNOR_AIM of the bound, and takes out what it diverged by. That is known
 * at once of a token that no budget has touched, 0; of all others when they have been probed, and none is left out. So the mean
 * over all tokens stays below the bound but for what the last tokens before a probe take out at once. Divergence comes in
 * lumps: one token of hundreds can have most of it. That is why the aim is below the bound, and why an account that was
 * overdrawn earns its way back without a budget, however many texts that takes. A probe is due after `every` iterations, and
 * sooner while little is known, when a sixteenth of all tokens wait for it, or while little is in the account and experts are
 * left out: when what waits could overdraw it at 0.05 nats a token.
 *
 * What is chosen is how many experts are left out over all layers, evenly, the last layers first: a step is one expert of one
 * layer. REACH is how many that is while the account holds what 32 tokens pay in; below, it is less in proportion, and none at
 * 0. While the account is full, reach grows, e-fold in the time in which 2 nats are paid in; when it is overdrawn, reach is
 * halved. Nothing is paid in beyond 512 tokens' worth. All of this is kept from text to text. */
#ifndef MOE_POLICY_GOVERNOR_H
#define MOE_POLICY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

static const double GOVERNOR_AIM = 0.6;

struct governor {
    double bound;                       /* nats a token */
    int every;                          /* iterations between probes, at most */
    int experts, top_k, layers;
    double account, reach;
    double divergence;                  /* of all tokens that are known, and how many these are */
    int64_t tokens;
};

/* "auto:kl=0.02,every=16", both optional, for a model with so many experts of which a token takes top_k. */
int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, int layers, struct err *err);

/* The experts that a layer may load now, top_k .. experts. */
int governor_budget(const struct governor *governor, int layer);

/* Whether it is time for a probe: so many iterations and tokens wait for one. */
bool governor_is_due(const struct governor *governor, int iterations, int tokens);

/* Tokens of which it has become known by how much they diverge, in all. tried: those of them from forwards that a smaller
 * budget could have changed; only these let reach grow. */
void governor_observe(struct governor *governor, int tokens, int tried, double divergence);

/* budget: mean over layers; all experts where it does not hold. kl: mean divergence so far, of the tokens that are known. */
void governor_state(const struct governor *governor, bool holds, struct values *out);

#endif

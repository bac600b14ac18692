/* Chooses an expert budget while decoding: the smallest that keeps the mean divergence from the model without a budget under a
 * bound. Pure, like a policy: it sees measurements and answers decisions.
 *
 * It keeps an ACCOUNT in nats. Each token pays in GOVERNOR_AIM of the bound, and takes out what it diverged by. That is known
 * at once of a token that no budget has touched, 0; of all others when a PROBE has had the model without a budget read them.
 *
 * Divergence comes in lumps: one token of hundreds can have most of it, and nothing that the smaller model says of itself tells
 * which. So tokens are CHECKED, probed before they are emitted, as long as one lump could break the bound: until what the bound
 * has allowed so far exceeds what was spent by GOVERNOR_RESERVE nats, which is more than any token has been seen to have. A
 * token that is checked and would overdraw the account is RESTORED: it is chosen by the model without a budget, and diverges by
 * nothing. So a run can exceed its bound at no point before there is that reserve, and then only by what several lumps between
 * two probes have together beyond it. Where checking is left out (check=0), only long runs hold the bound.
 *
 * With the reserve, or unchecked, probes come when it is convenient, many tokens at a time: after `every` iterations, and
 * sooner when a sixteenth of all tokens wait for one, or while little is in the account and experts are left out: when what
 * waits could overdraw it at 0.05 nats a token. An account that was overdrawn then earns its way back without a budget.
 *
 * What is chosen is how many experts are left out over all layers, evenly, the last layers first: a step is one expert of one
 * layer. REACH is how many that is while the account holds what 32 tokens pay in; below, it is less in proportion, and none at
 * 0. While the account is full, reach grows: while tokens are checked e-fold in 32 of them, which risks nothing, else e-fold in
 * the time in which 2 nats are paid in. It falls by a fifth when a token is restored, and is halved when the account is
 * overdrawn. There are two of it, with checks and without: what may be left out where lumps are restored is too much where
 * they are not. Nothing is paid in beyond 512 tokens' worth. All of this is kept from text to text. */
#ifndef MOE_POLICY_GOVERNOR_H
#define MOE_POLICY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

static const double GOVERNOR_AIM = 0.7, GOVERNOR_RESERVE = 20;                  /* of the bound; nats */

struct governor {
    double bound;                       /* nats a token */
    int every;                          /* iterations between probes, at most */
    int check;                          /* 1: tokens may be checked */
    int experts, top_k, layers;
    double account, reach[2];           /* unchecked, checked */
    double divergence;                  /* of all tokens that are known, and how many these are */
    int64_t tokens;
};

/* "auto:kl=0.02,every=16,check=1", all optional, for a model with so many experts of which a token takes top_k. */
int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, int layers, struct err *err);

/* The experts that a layer may load now, top_k .. experts. */
int governor_budget(const struct governor *governor, int layer);

/* Whether tokens have to be probed before they are emitted, when so many, these included, would otherwise wait for a probe. */
bool governor_checks(const struct governor *governor, int tokens);

/* Whether the last of so many tokens, which nothing is known of yet, may diverge by so much when all of them together do by
 * `sum`: that takes out no more than one token pays in, or leaves the account balanced. */
bool governor_allows(const struct governor *governor, int tokens, double divergence, double sum);

/* A token was restored. */
void governor_restored(struct governor *governor);

/* Whether it is time for a probe: so many iterations and tokens wait for one. */
bool governor_is_due(const struct governor *governor, int iterations, int tokens);

/* Tokens of which it has become known by how much they diverge, in all. tried: those of them from forwards that a smaller
 * budget could have changed; only these let reach grow. */
void governor_observe(struct governor *governor, int tokens, int tried, double divergence);

/* budget: mean over layers; all experts where it does not hold. kl: mean divergence so far, of the tokens that are known. */
void governor_state(const struct governor *governor, bool holds, struct values *out);

#endif

/* Chooses an expert budget while decoding: the smallest that keeps the mean divergence from the model without a budget below a
 * bound. Pure, like a policy: it receives measurements and returns decisions.
 *
 * The governor keeps an ACCOUNT in nats. Each token deposits GOVERNOR_AIM x bound and withdraws its divergence. The divergence
 * of a token that no budget affected is 0, and known at once. That of any other token becomes known by a PROBE, a forward of
 * the model without a budget over the token.
 *
 * Divergence comes in lumps: one token in hundreds can have most of it, and the outputs of the model with a budget do not
 * reveal which. Tokens are therefore CHECKED, that is probed before they are emitted, as long as one lump could break the
 * bound: until the divergence allowed so far exceeds the divergence spent by GOVERNOR_RESERVE nats, more than any single token
 * was observed to have. A checked token that would overdraw the account is RESTORED: the model without a budget chooses it,
 * with divergence 0. A run therefore cannot exceed its bound before it has that reserve, and afterwards only if several lumps
 * between two probes together exceed the reserve. Without checks (check=0) the bound holds in long runs only.
 *
 * With the reserve, or unchecked, a probe covers many tokens: after `every` iterations; earlier if a sixteenth of all tokens
 * wait for a probe; and earlier while the account is low and experts are left out, as soon as the waiting tokens could overdraw
 * the account at 0.05 nats each. An overdrawn account recovers by tokens without a budget.
 *
 * The decision is the number of experts left out over all layers, spread evenly, the last layers first. REACH is that number
 * while the account holds at least the deposits of 32 tokens; below, the number falls in proportion, to none at 0. While the
 * account is full, reach grows: by a factor of e in 32 tokens while tokens are checked, which is without risk, else by a factor
 * of e in the time in which 2 nats are deposited. Reach falls by a fifth when a token is restored, and is halved when the
 * account is overdrawn. There are two reaches, with and without checks, because a number that is safe with restored lumps is
 * too large without. The account holds at most the deposits of 512 tokens. All of this state is kept from text to text; with
 * each=1 every text starts over, so that the bound holds for each, and a text does not depend on those before it. */
#ifndef MOE_POLICY_GOVERNOR_H
#define MOE_POLICY_GOVERNOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/cli/spec.h"
#include "common/stream/values.h"

static const double GOVERNOR_AIM = 0.7, GOVERNOR_RESERVE = 20;                  /* share of the bound; nats */

struct governor {
    double bound;                       /* nats per token */
    int every;                          /* max iterations between probes */
    int check;                          /* 1: tokens may be checked */
    int each;                           /* 1: the caller begins each text with a copy of the initial state */
    int experts, top_k, layers;
    double account, reach[2];           /* unchecked, checked */
    double divergence;                  /* sum over the tokens whose divergence is known; tokens: their number */
    int64_t tokens;
};

/* Parses "auto:kl=0.02,every=16,check=1,each=0", all settings optional. experts and top_k: experts of a layer, and selected per
 * token. */
int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, int layers, struct err *err);

/* Returns the number of experts that the layer may load now, top_k .. experts. */
int governor_budget(const struct governor *governor, int layer);

/* Returns whether tokens must be checked (probed before they are emitted); tokens: those that would wait for a probe, new ones
 * included. */
bool governor_checks(const struct governor *governor, int tokens);

/* Returns whether the last of `tokens` unaccounted tokens may have this divergence, if all of them together have `sum`: the
 * divergence is at most one deposit, or the account stays balanced. */
bool governor_allows(const struct governor *governor, int tokens, double divergence, double sum);

/* Reports that a token was restored. */
void governor_restored(struct governor *governor);

/* Returns whether a probe is due when this many iterations and tokens wait for one. */
bool governor_is_due(const struct governor *governor, int iterations, int tokens);

/* Reports the summed divergence of tokens that were probed or need no probe. tried: those among them from forwards that a
 * smaller budget could have changed; only these let reach grow. */
void governor_observe(struct governor *governor, int tokens, int tried, double divergence);

/* Adds to `out` budget, the mean over layers (all experts if the budget is not in force), and kl, the mean divergence of the
 * tokens known so far. */
void governor_state(const struct governor *governor, bool holds, struct values *out);

#endif

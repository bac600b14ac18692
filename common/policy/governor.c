#include "common/policy/governor.h"

#include <math.h>

enum { SPAN = 32, SAVED = 512, KNOWN = 16, CAREFREE = 32 };             /* unit: tokens; tokens; denominator of a share;
                                                                         * tokens */

static const double LUMP = 2, RISK = 0.05, GROWS_MAX = 1.5, FALLS = 0.8;        /* unit: nats; nats per token; factor; factor */

int governor_init(struct governor *governor, struct spec *spec, int experts, int top_k, int layers, struct err *err)
{
    struct governor made = {.experts = experts, .top_k = top_k, .layers = layers};
    if (spec_float(spec, "kl", 0.02, 1e-9, 1e3, &made.bound, err) ||
        spec_int(spec, "every", 16, 1, 1 << 20, &made.every, err) || spec_int(spec, "check", 1, 0, 1, &made.check, err) ||
        spec_int(spec, "each", 0, 0, 1, &made.each, err))
        return -1;
    made.reach[0] = made.reach[1] = (double)layers * experts / 64;
    *governor = made;
    return 0;
}

static double allowance_per_token(const struct governor *governor) { return GOVERNOR_AIM * governor->bound; }

/* Returns the index of the reach in force. */
static int current_reach(const struct governor *governor) { return governor_checks(governor, 0); }

/* Returns the number of experts left out, summed over layers. */
static int left_out(const struct governor *governor)
{
    double full = governor->account / (SPAN * allowance_per_token(governor));
    return full > 0 ? (int)(governor->reach[current_reach(governor)] * fmin(full, 1)) : 0;
}

int governor_budget(const struct governor *governor, int layer)
{
    int left = left_out(governor), last = governor->layers - 1;
    return governor->experts - left / governor->layers - (last - layer < left % governor->layers);
}

bool governor_checks(const struct governor *governor, int tokens)
{
    const double unspent = governor->bound * (double)governor->tokens - governor->divergence;
    return governor->check && unspent - tokens * RISK < GOVERNOR_RESERVE;
}

bool governor_allows(const struct governor *governor, int tokens, double divergence, double sum)
{
    return divergence <= allowance_per_token(governor) || governor->account + tokens * allowance_per_token(governor) >= sum;
}

void governor_restored(struct governor *governor) { governor->reach[1] *= FALLS; }

bool governor_is_due(const struct governor *governor, int iterations, int tokens)
{
    return iterations >= governor->every || (int64_t)tokens * KNOWN >= governor->tokens ||
           (left_out(governor) && tokens * RISK >= governor->account);
}

void governor_observe(struct governor *governor, int tokens, int tried, double divergence)
{
    const double before = governor->account, max = (double)governor->layers * (governor->experts - governor->top_k);
    const double full = SPAN * allowance_per_token(governor);
    const int checked = current_reach(governor);
    double reach = governor->reach[checked];
    governor->account = fmin(before + tokens * allowance_per_token(governor) - divergence,
                             SAVED * allowance_per_token(governor));
    governor->divergence += divergence;
    governor->tokens += tokens;
    if (before >= full && governor->account >= full)
        reach *= fmin(1 + tried * (checked ? 1.0 / CAREFREE : allowance_per_token(governor) / LUMP), GROWS_MAX);
    else if (before >= 0 && governor->account < 0)
        reach /= 2;
    governor->reach[checked] = fmax(fmin(reach, max), fmin(1, max));
}

void governor_state(const struct governor *governor, bool holds, struct values *out)
{
    values_real(out, "budget", governor->experts - (holds ? (double)left_out(governor) / governor->layers : 0));
    values_real(out, "account", governor->account);
    values_real(out, "reach", governor->reach[current_reach(governor)]);
    if (governor->tokens)
        values_real(out, "kl", governor->divergence / (double)governor->tokens);
}

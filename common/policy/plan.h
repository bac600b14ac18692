/* How a chain is best gone on with by several drafters, when the chance of each to be right and all costs are known: the plan
 * of the largest
 *
 *     tokens expected - rate * cost,      cost: of drafting, and of the forward that verifies it all
 *
 * with `rate`, the tokens that a unit of cost gives on average, the price of time in tokens: over a text the best total comes
 * from the best of these at each position. Costs are in units of a forward over one token. Drafters that are likelier right
 * come first: of two neighbours in a chain the order changes no cost, and the likelier one in front leaves more chance for
 * both. */
#ifndef MOE_POLICY_PLAN_H
#define MOE_POLICY_PLAN_H

#include <stdbool.h>

enum { PLAN_DRAFTERS_MAX = 8, PLAN_TOKENS_MAX = 64, PLAN_DEPTHS = 3 };

struct plan_drafter {
    bool out;                           /* not to be had at this position */
    double chance[PLAN_DEPTHS];         /* of its first, second and every further position below the root */
    double step, token;                 /* cost of asking it, and of each token */
};

struct plan_setup {
    int drafters;
    const struct plan_drafter *drafter;
    int done, max;                     /* tokens of the chain by now, and at the end */
    double survival;                    /* the chance that all of those are right */
    double rate;
    const double *verify;               /* [most + 1] cost of a forward over the root and so many tokens */
};

struct plan {
    double value;                       /* from here on: what is done counts only in verify */
    double tokens, cost;                /* of what it adds */
    int count[PLAN_DRAFTERS_MAX];       /* tokens of each drafter */
    int first;                          /* the drafter that begins; -1: nothing is added */
};

void plan_find(struct plan *out, const struct plan_setup *setup);

/* The same for given counts. */
void plan_weigh(struct plan *plan, const struct plan_setup *setup);

/* The most tokens per cost that any plan from the root reaches, at least 1: that of no draft. */
double plan_best_rate(const struct plan_setup *setup);

#endif

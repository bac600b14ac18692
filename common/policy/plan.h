/* Finds the best continuation of a chain by several drafters, given acceptance probabilities and costs: the plan that maximises
 *
 *     expected tokens - rate * cost,      cost: of drafting, and of the forward that verifies the chain
 *
 * where `rate`, the average tokens per unit of cost, is the value of time in tokens: maximising this at each position maximises
 * the throughput over a text. Costs are in units of a forward over one token. Drafters with a higher acceptance probability
 * come first, because the order of drafters does not change the cost, and more tokens survive if the more probable ones come
 * first. */
#ifndef MOE_POLICY_PLAN_H
#define MOE_POLICY_PLAN_H

#include <stdbool.h>

enum { PLAN_DRAFTERS_MAX = 8, PLAN_TOKENS_MAX = 64, PLAN_DEPTHS = 3 };

struct plan_drafter {
    bool out;                           /* unavailable at this position */
    double chance[PLAN_DEPTHS];         /* acceptance probability at depth 1, 2, and 3 and beyond */
    double step, token;                 /* cost of a step, plus cost of each of its tokens */
};

struct plan_setup {
    int drafters;
    const struct plan_drafter *drafter;
    int done, max;                     /* tokens of the chain now; max in the end */
    double survival;                    /* probability that all tokens so far are accepted */
    double rate;
    const double *verify;               /* [max + 1] cost of a forward over the root and this many tokens */
};

struct plan {
    double value;                       /* value of the continuation; the tokens so far count in verify only */
    double tokens, cost;                /* sums over the added tokens */
    int count[PLAN_DRAFTERS_MAX];       /* number of tokens of each drafter */
    int first;                          /* index of the first drafter; -1: nothing is added */
};

void plan_find(struct plan *out, const struct plan_setup *setup);

/* Finds the best plan like plan_find, but faster: the result is the best plan only if its value exceeds `floor`; otherwise
 * no plan's value does. */
void plan_find_above(struct plan *out, const struct plan_setup *setup, double floor);

/* Computes the value of a plan with given counts. */
void plan_weigh(struct plan *plan, const struct plan_setup *setup);

/* Returns the maximum of tokens per cost over all plans from the root; at least 1, the value without a draft. */
double plan_best_rate(const struct plan_setup *setup);

#endif

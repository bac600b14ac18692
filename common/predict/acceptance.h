/* The acceptance probability of the tokens of one drafter, learned online: the probability that the text continues with a
 * drafted token, given that it contains the token's parent.
 *
 * Three logistic regressions, each refitted with every observation and each with a prior:
 *
 *   ahead     a token that is not drafted yet, from its depth. Prior: a first guess.
 *   stated    a token whose drafter states a probability, from the logit of that probability, the margin to the next sibling,
 *             the number of earlier siblings, and depth. Prior: the stated probability itself.
 *   silent    a token without one, from the probability by `ahead`, the match length, the probability that the drafter stated
 *             last on the token's path, and the number of earlier siblings. Prior: the probability by `ahead`.
 *
 * So a drafter is believed until observations contradict it. Each regression exists twice: an observation weighs `decay` as
 * much once the next one follows, and decay^16, so that a probability that stays is known closely and one that changes is
 * followed. Each of the two counts by how well it predicted recent observations. Information never falls below that of the
 * prior. Under coupled acceptance above temperature 0 the stated probability is conditional on the noise
 * (kernels/plain/propose.h), and the same applies. */
#ifndef MOE_PREDICT_ACCEPTANCE_H
#define MOE_PREDICT_ACCEPTANCE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draft/tree.h"

enum { ACCEPTANCE_FEATURES = 6, ACCEPTANCE_SPANS = 2 };
enum acceptance_kind { ACCEPTANCE_AHEAD, ACCEPTANCE_STATED, ACCEPTANCE_SILENT, ACCEPTANCE_KINDS };

struct acceptance_fit {
    double weight[ACCEPTANCE_FEATURES];
    double information[ACCEPTANCE_FEATURES][ACCEPTANCE_FEATURES];       /* inverse covariance of the weights */
    double loss;                        /* recent sum of -log of the probability predicted for each outcome */
};

struct acceptance {
    double decay[ACCEPTANCE_SPANS];
    double seen;                        /* observations, each with its present weight in the longer span */
    struct acceptance_fit fit[ACCEPTANCE_KINDS][ACCEPTANCE_SPANS];
};

struct acceptance_signal {              /* of a drafted token */
    float stated;                       /* log-probability; NaN: none */
    float sure;                         /* the nearest ancestor's that has one; NaN: none has */
    float margin;                       /* stated minus that of the next sibling; 0: not known */
    int32_t depth, match, before;       /* as in draft_tree; siblings added before it */
};

void acceptance_init(struct acceptance *acceptance, double guess, double decay);    /* guess: at every depth; in 0 .. 1 */
void acceptance_observe(struct acceptance *acceptance, const struct acceptance_signal *signal, bool kept);

/* Multiplies the weight of all observations so far by `weight`, 0 .. 1. Estimates stay as they are. */
void acceptance_fade(struct acceptance *acceptance, double weight);

/* Writes signal[from .. nodes - 1]; signal[0 .. from - 1] are of earlier calls for the same tree. */
void acceptance_signals(struct acceptance_signal *signal, const struct draft_tree *tree, int from);

double acceptance_of(const struct acceptance *acceptance, const struct acceptance_signal *signal);      /* 0 .. 1 */
double acceptance_ahead(const struct acceptance *acceptance, int depth);        /* 1: the first */
double acceptance_doubt(const struct acceptance *acceptance);   /* standard deviation of acceptance_ahead at depth 1 */

#endif

/* The acceptance probability of the tokens of one drafter, learned online: the probability that the text continues with a
 * drafted token, given that the text contains the token's parent.
 *
 * Three logistic regressions, each refitted with every observation and each with a prior:
 *
 *   ahead     a token that is not drafted yet, from its depth. Prior: a first guess.
 *   stated    a token whose drafter states a probability, from the logit of that probability, the margin to the next
 *             sibling, the number of earlier siblings, and depth. Prior: the stated probability itself.
 *   silent    a token without one, from the probability by `ahead`, the match length, the probability that the drafter
 *             stated last on the token's path, and the number of earlier siblings. Prior: the probability by `ahead`.
 *
 * Thus a drafter is trusted until observations contradict it. Each regression exists in two spans: with each new observation
 * the weight of earlier ones is multiplied by `decay` in one span, and by decay^16 in the other. The first estimates a
 * constant probability closely, the second follows a changing one. Each span is weighted by how well it predicted recent
 * observations. Information never falls below that of the prior.
 *
 * Two corrections follow for a token that continues a match in a text. Acceptance can jump with the length of the match, and a
 * regression is smooth: each length has an offset to the logit, learned from the errors at this length. Then the mean of
 * outcome - probability near the resulting probability is added, interpolated between equidistant probabilities
 * ("calibeating": Foster and Hart, Theoretical Economics 18, 2023). The corrections remember observations four times as long
 * as the longer span.
 *
 * Under coupled acceptance above temperature 0 the stated probability is conditional on the noise (kernels/plain/propose.h),
 * and the same applies. */
#ifndef MOE_PREDICT_ESTIMATOR_H
#define MOE_PREDICT_ESTIMATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/draft/tree.h"

enum { ESTIMATOR_FEATURES = 6, ESTIMATOR_SPANS = 2, ESTIMATOR_MATCHES = 8, ESTIMATOR_KNOTS = 11 };
enum estimator_kind { ESTIMATOR_AHEAD, ESTIMATOR_STATED, ESTIMATOR_SILENT, ESTIMATOR_KINDS };

struct estimator_fit {
    double weight[ESTIMATOR_FEATURES];
    double information[ESTIMATOR_FEATURES][ESTIMATOR_FEATURES];       /* inverse covariance of the weights */
    double loss;                        /* recent sum of -log of the probability predicted for each outcome */
};

struct estimator_correction {
    double offset[ESTIMATOR_MATCHES];           /* to the logit, by match length 1, 2, ...; the last one: this length or more */
    double information[ESTIMATOR_MATCHES];      /* of observations at this length, without the prior */
    double error[ESTIMATOR_KNOTS];              /* mean of outcome - probability near probability 0, 1/10, ..., 1 */
    double seen[ESTIMATOR_KNOTS];               /* weight of observations near this probability, without the prior */
};

struct estimator {
    double decay[ESTIMATOR_SPANS];
    double seen;                        /* number of observations, each with its present weight in the longer span */
    struct estimator_fit fit[ESTIMATOR_KINDS][ESTIMATOR_SPANS];
    struct estimator_correction correction[ESTIMATOR_KINDS];     /* unused by ESTIMATOR_AHEAD */
};

struct estimator_signal {              /* properties of a drafted token */
    float stated;                       /* log-probability; NaN: none */
    float sure;                         /* log-probability of the nearest ancestor with a stated probability; NaN: none */
    float margin;                       /* stated minus the next sibling's; 0: unknown */
    int32_t depth, match, before;       /* depth and match as in draft_tree; before: number of siblings added earlier */
};

void estimator_init(struct estimator *estimator, double guess, double decay);    /* guess: the initial probability at every
                                                                                  * depth, in 0 .. 1 */
void estimator_observe(struct estimator *estimator, const struct estimator_signal *signal, bool kept);

/* Multiplies the weight of all observations so far by `weight`, 0 .. 1. Estimates do not change. */
void estimator_fade(struct estimator *estimator, double weight);

/* Sets *out to the mean of `count` estimators of one drafter, at least 1, each weighted by its information. */
void estimator_average(struct estimator *out, struct estimator *const *from, int count);

/* Returns whether all numbers are finite, all information is positive definite, and no weight is negative. */
bool estimator_is_sound(const struct estimator *estimator);

/* Computes signal[from .. nodes - 1]; signal[0 .. from - 1] must be those of earlier calls for the same tree. */
void estimator_signals(struct estimator_signal *signal, const struct draft_tree *tree, int from);

double estimator_of(const struct estimator *estimator, const struct estimator_signal *signal);      /* 0 .. 1 */
double estimator_ahead(const struct estimator *estimator, int depth);        /* 1: the first */
double estimator_doubt(const struct estimator *estimator);   /* standard deviation of estimator_ahead at depth 1 */

#endif

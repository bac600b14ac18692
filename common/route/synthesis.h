/* Routes that no model made: for machines and models that are not at hand. What they are like is fixed here, whoever uses them:
 *
 *   popularity   rank r of a layer's experts is chosen with weight (r + 1)^-z. Three skews, z found by what they are known for:
 *                  flat     all alike, z = 0: a static list of 10 % of the experts covers 10 %         llama.cpp#27861
 *                  mild     tokens far apart share 1.888 times what they would if all were alike: 11.8 % where 8 of 128 are
 *                           6.25 %, in a trace of Cohere's model
 *                  steep    10 % of the experts take 80 % of the choices, or of what they can take where that is less than
 *                           all                                                                        llama.cpp#24524
 *   sharing      a choice is one of the token before in the same layer with a probability that is found so that neighbours
 *                share 37 % of their experts (36.6 % in a trace of OLMoE, 38.1 % in Cohere's). Further apart they share ever
 *                less, down to what popularity alone gives. Where that alone is more than 37 %, as with steep, it is that
 *   layers       a quarter of the other choices are the expert of equal rank to one that the token chose in the layer before.
 *                That quarter is ours: sources give what predictors across layers reach, not this
 *
 * A choice that is already made is made again by popularity. Texts differ by chance alone: no text prefers experts of its own.
 * The same setup gives the same routes, everywhere. */
#ifndef MOE_ROUTE_SYNTHESIS_H
#define MOE_ROUTE_SYNTHESIS_H

#include <stdint.h>

#include "common/base/err.h"

enum synthesis_skew { SYNTHESIS_FLAT, SYNTHESIS_MILD, SYNTHESIS_STEEP };
extern const char *const synthesis_skews[];             /* in the order of the enum, NULL after the last */

#define SYNTHESIS_SHARING 0.37
#define SYNTHESIS_LAYERS 0.25

struct synthesis_setup {
    int layers, experts, top_k;
    enum synthesis_skew skew;
    uint64_t seed;
};

struct synthesis;

/* Errors: a shape that cannot be. */
int synthesis_open(struct synthesis **out, const struct synthesis_setup *setup, struct err *err);
void synthesis_close(struct synthesis **synthesis);

/* One token's experts, [layers][top_k], after the token with experts `before` (NULL: a text begins). */
void synthesis_draw(struct synthesis *synthesis, int16_t *expert, const int16_t *before);

/* A uniform number of 0 .. 1 from the same source of chance: for acceptance. */
double synthesis_chance(struct synthesis *synthesis);

double synthesis_exponent(const struct synthesis *synthesis);           /* z, and the probability of taking over */
double synthesis_keeping(const struct synthesis *synthesis);

#endif

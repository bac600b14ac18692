/* Routes that no model made: for machines and models that are not at hand. What they are like is fixed here, whoever uses them:
 *
 *   popularity   rank r of a layer's experts is chosen with weight (r + 1)^-z. Three skews, z found by what they are known for:
 *                  flat     all alike, z = 0: a static list of 10 % of the experts covers 10 %         llama.cpp#27861
 *                  mild     tokens far apart share 1.888 times what they would if all were alike: 11.8 % where 8 of 128 are
 *                           6.25 %, in a trace of Cohere's model
 *                  steep    10 % of the experts take 80 % of the choices, or of what they can take where that is less than
 *                           all                                                                        llama.cpp#24524
 *                  local, local-olmoe    z = 1.65 and 1.2, each text ranks experts its own way: see below
 *   sharing      a choice is one of the token before in the same layer with a probability that is found so that neighbours
 *                share 37 % of their experts (36.6 % in a trace of OLMoE, 38.1 % in Cohere's). Further apart they share ever
 *                less, down to what popularity alone gives. Where that alone is more than 37 %, as with steep, it is that
 *   layers       a quarter of the other choices are the expert of equal rank to one that the token chose in the layer before.
 *                That quarter is ours: sources give what predictors across layers reach, not this
 *
 * A choice that is already made is made again by popularity. Texts of flat, mild and steep differ by chance alone: no text
 * prefers experts of its own. The same setup gives the same routes, everywhere.
 *
 * The local skews rank the experts of each layer anew for each text, by (g + t) / 2, where g is uniform and common to all
 * texts, t uniform and the text's own. Nothing else is shared with the token before. Exponents and the half were fitted to
 * published traces of text without drafts before any policy but LRU ran on such routes. `tests/bench/local.py fit` prints both
 * sides of:
 *
 *     local, z = 1.65: Qwen3-30B-A3B, 8 of 128 experts                      source               published   here
 *       hits of LRU, 256 tokens, 8 experts of a layer cached                kekzl/imp#1374             37 %   33 %
 *         24, 49, 81                                                                           74, 89, 96 %   75, 88, 93 %
 *       hits of LRU, 24 experts of a layer cached                           JustVugg/colibri#698       73 %   75 %
 *       hits of LRU, 40 % cached, after 64 tokens                           kekzl/imp#1359       90 to 95 %   89 %
 *       choices that the token before made; one of the last 8               kekzl/imp#1359         45, 80 %   47, 78 %
 *       the best 40 % of the experts for the text; those for another        kekzl/imp#1358         92, 68 %   94, 71 %
 *     local-olmoe, z = 1.2: OLMoE, 8 of 64 experts
 *       hits of LRU, 16, 24 experts of a layer cached                       JustVugg/colibri       51, 68 %   54, 68 %
 *
 * (The slots of #1374 hold a third of an expert each: a token fills 24 of them.) */
#ifndef MOE_ROUTE_SYNTHESIS_H
#define MOE_ROUTE_SYNTHESIS_H

#include <stdint.h>

#include "common/base/err.h"

enum synthesis_skew { SYNTHESIS_FLAT, SYNTHESIS_MILD, SYNTHESIS_STEEP, SYNTHESIS_LOCAL, SYNTHESIS_LOCAL_OLMOE };
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

/* One token's experts, [layers][top_k], after the token with experts `before` (NULL: a text begins, and is ranked if local). */
void synthesis_draw(struct synthesis *synthesis, int16_t *expert, const int16_t *before);

/* A uniform number of 0 .. 1 from the same source of chance: for acceptance. */
double synthesis_chance(struct synthesis *synthesis);

double synthesis_exponent(const struct synthesis *synthesis);           /* z, and the probability of taking over */
double synthesis_keeping(const struct synthesis *synthesis);

#endif

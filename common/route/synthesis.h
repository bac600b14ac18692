/* Synthetic routes, for machines and models that are not available. Their statistics are fixed here for all users:
 *
 *   popularity   the expert of rank r in a layer is chosen with weight (r + 1)^-z. The exponent z of a skew is fitted to a
 *                published figure:
 *                  flat     uniform, z = 0: a static list of 10 % of the experts covers 10 %           llama.cpp#27861
 *                  mild     distant tokens share 1.888 times as many experts as with uniform routing: 11.8 % in place of
 *                           6.25 % for 8 of 128 experts, in a trace of Cohere's model
 *                  steep    10 % of the experts take 80 % of the choices, or 80 % of their maximum if tokens select more
 *                           than 10 % of the experts                                                   llama.cpp#24524
 *                  local, local-olmoe    z = 1.65 and 1.2, with a ranking for each text: see below
 *   sharing      a choice repeats one of the previous token in the same layer, with a probability fitted so that neighbours
 *                share 37 % of their experts (36.6 % in a trace of OLMoE, 38.1 % in Cohere's). With distance the share falls to
 *                that of popularity alone. If popularity alone exceeds 37 %, as with steep, nothing is repeated
 *   layers       a quarter of the other choices take the rank of an expert that the token chose in the previous layer. The
 *                quarter is an assumption: the sources report the recall of predictors across layers, not this quantity
 *
 * An expert that the token has already chosen is replaced by a draw by popularity. Texts of flat, mild and steep differ by
 * chance only; no text prefers experts of its own. The same setup yields the same routes on every machine.
 *
 * The local skews rank the experts of each layer separately for each text, by (g + t) / 2, where g is uniform and common to all
 * texts, and t is uniform and the text's own. Nothing else is shared with the previous token. The exponents and the half were
 * fitted to published traces of text without drafts before any policy other than LRU ran on such routes.
 * `tests/bench/local.py fit` prints both columns of:
 *
 *     local, z = 1.65: Qwen3-30B-A3B, 8 of 128 experts                      source               published   here
 *       hits of LRU, 256 tokens, 8 experts of a layer cached                kekzl/imp#1374             37 %   33 %
 *         24, 49, 81                                                                           74, 89, 96 %   75, 88, 93 %
 *       hits of LRU, 24 experts of a layer cached                           JustVugg/colibri#698       73 %   75 %
 *       hits of LRU, 40 % cached, after 64 tokens                           kekzl/imp#1359       90 to 95 %   89 %
 *       choices repeated from the previous token; the last 8                kekzl/imp#1359         45, 80 %   47, 78 %
 *       share of choices in the text's best 40 % of experts; another text's kekzl/imp#1358         92, 68 %   94, 71 %
 *     local-olmoe, z = 1.2: OLMoE, 8 of 64 experts
 *       hits of LRU, 16, 24 experts of a layer cached                       JustVugg/colibri       51, 68 %   54, 68 %
 *
 * (The slots of #1374 hold a third of an expert each: a token fills 24 of them.) */
#ifndef MOE_ROUTE_SYNTHESIS_H
#define MOE_ROUTE_SYNTHESIS_H

#include <stdint.h>

#include "common/base/err.h"

enum synthesis_skew { SYNTHESIS_FLAT, SYNTHESIS_MILD, SYNTHESIS_STEEP, SYNTHESIS_LOCAL, SYNTHESIS_LOCAL_OLMOE };
extern const char *const synthesis_skews[];             /* in the order of the enum; ends with NULL */

#define SYNTHESIS_SHARING 0.37
#define SYNTHESIS_LAYERS 0.25

struct synthesis_setup {
    int layers, experts, top_k;
    enum synthesis_skew skew;
    uint64_t seed;
};

struct synthesis;

/* Opens a generator. Errors: an impossible shape. */
int synthesis_open(struct synthesis **out, const struct synthesis_setup *setup, struct err *err);
void synthesis_close(struct synthesis **synthesis);

/* Draws one token's experts, [layers][top_k]. before: the previous token's experts; NULL begins a text, for which local skews
 * draw a new ranking. */
void synthesis_draw(struct synthesis *synthesis, int16_t *expert, const int16_t *before);

/* Draws a uniform number in [0, 1) from the same generator, for acceptance. */
double synthesis_chance(struct synthesis *synthesis);

#endif

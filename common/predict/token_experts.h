/* The experts that each token wanted when it last came, as bits, in bounded memory: the prediction that trimming of drafts
 * uses, where the counts of forecast `table` (forecast.h) would take a vocabulary's memory, and sorting. A token without an
 * entry has no prediction. */
#ifndef MOE_PREDICT_TOKEN_EXPERTS_H
#define MOE_PREDICT_TOKEN_EXPERTS_H

#include <stdint.h>

enum { TOKEN_EXPERTS_SLOTS = 4096 };

struct token_experts {
    int experts, layers, top_k;         /* layers with experts; 0: nothing was learned */
    int words;                          /* of 64 bits: one bit for each (layer, expert) */
    int32_t *token;                     /* [TOKEN_EXPERTS_SLOTS] -1: free; slot token % TOKEN_EXPERTS_SLOTS */
    uint64_t *bits;                     /* [TOKEN_EXPERTS_SLOTS][words] */
    int64_t wanted, named, right;       /* of tokens with a prediction, judged before they teach */
};

void token_experts_free(struct token_experts *table);

/* Learns expert[layers][top_k], -1: none, of a token; its prediction so far is scored first. Without memory nothing is
 * learned. */
void token_experts_learn(struct token_experts *table, int32_t token, const int32_t *expert, int experts, int layers,
                         int top_k);

/* Returns bits [words] of (layer, expert) pairs, layer * experts + expert; NULL: no prediction. */
const uint64_t *token_experts_of(const struct token_experts *table, int32_t token);

#endif

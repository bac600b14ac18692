/* The experts that each token selected at its last occurrence, as bits, in bounded memory: the prediction for trimming
 * drafts. The counts of forecast `table` (forecast.h) would need memory for the whole vocabulary, and sorting. A token
 * without an entry has no prediction. */
#ifndef MOE_PREDICT_TOKEN_EXPERTS_H
#define MOE_PREDICT_TOKEN_EXPERTS_H

#include <stdint.h>

enum { TOKEN_EXPERTS_SLOTS = 4096 };

struct token_experts {
    int experts, layers, top_k;         /* layers: number of layers with experts; 0: nothing was learned */
    int words;                          /* number of 64-bit words: one bit for each (layer, expert) */
    int32_t *token;                     /* [TOKEN_EXPERTS_SLOTS] -1: free; slot token % TOKEN_EXPERTS_SLOTS */
    uint64_t *bits;                     /* [TOKEN_EXPERTS_SLOTS][words] */
    int64_t wanted, named, right;       /* counts over tokens with a prediction, scored before they are learned */
};

void token_experts_free(struct token_experts *table);

/* Learns expert[layers][top_k], -1: none, of a token, after scoring the present prediction. No-op without memory. */
void token_experts_learn(struct token_experts *table, int32_t token, const int32_t *expert, int experts, int layers,
                         int top_k);

/* Returns bits [words] of (layer, expert) pairs, layer * experts + expert; NULL: no prediction. */
const uint64_t *token_experts_of(const struct token_experts *table, int32_t token);

#endif

/* Predicts how many distinct experts a forward over M neighbouring tokens will load: from the experts of the text's own last
 * M tokens, which are known without drafts, too; before the first tokens, as if tokens selected experts independently.
 * Recent tokens have more weight. The unit is the mean number of experts per layer. */
#ifndef MOE_PREDICT_UNION_H
#define MOE_PREDICT_UNION_H

#include <stdint.h>

enum { UNION_TOKENS = 65, UNION_EXPERTS_MAX = 4096 };

struct union_predictor {
    int max, experts, top_k;            /* max: maximum tokens of a forward; experts 0: a dense model */
    int layers;                         /* 0: no token was learned yet */
    int64_t *last;                      /* [layers][experts] value of `clock` at the expert's last token; 0: none */
    int64_t clock;                      /* number of tokens of all texts */
    int64_t tokens;                     /* of this text */
    double mean[UNION_TOKENS];          /* [M - 1] */
    int64_t measured[UNION_TOKENS];     /* how often */
};

void union_init(struct union_predictor *predictor, int max, int experts, int top_k);
void union_free(struct union_predictor *predictor);
void union_begin(struct union_predictor *predictor);            /* another text */

/* Learns the experts of tokens added to the text, [count][layers][top_k]; -1: none. No-op without memory. */
void union_learn(struct union_predictor *predictor, const int32_t *expert, int count, int layers);

/* Predicts the distinct experts of a forward over any number of tokens that choose independently, each expert with the same
 * probability; NaN: the model has no experts. */
double union_independent(int experts, int top_k, double tokens);

/* Predicts the distinct experts of a forward over M tokens, 1 .. max; NaN: the model has no experts. */
double union_of(const struct union_predictor *predictor, int M);

#endif

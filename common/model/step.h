/* Bytes of a model's weights that decoding one token reads, by purpose: the minimum of a forward, and the cost of the model's
 * drafts. Keys, values, the embedding's row and the final norm are not counted.
 *
 * For a draft head: one row of its layer, and its own output head; a target's output head that it uses is not counted. */
#ifndef MOE_MODEL_STEP_H
#define MOE_MODEL_STEP_H

#include "common/model/model.h"

struct step_bytes {
    uint64_t attention;         /* with its norm */
    uint64_t router;            /* including the norm before the router, or before a dense network */
    uint64_t experts;           /* top_k experts per layer */
    uint64_t shared, dense;
    uint64_t head;
};

/* The purpose for which a token reads a tensor. STEP_EXPERTS: routed experts, `top_k` of `count` blocks, or a whole vector
 * of biases. */
enum step_part {
    STEP_NOTHING,               /* the embedding, unless it is the output head as well; a predictor's tensor */
    STEP_ATTENTION, STEP_ROUTER, STEP_EXPERTS, STEP_SHARED, STEP_DENSE, STEP_HEAD
};
enum step_part step_part(const struct tensor *tensor, const struct hparams *shape, bool head);     /* head: in a draft head */

void step_bytes(struct step_bytes *out, const struct model *model);
/* Counts all parameters, and those that one token uses: of routed experts only top_k, and no predictors. The embedding
 * counts completely in both, as in the names of models. */
void step_parameters(const struct model *model, double *all, double *active);

uint64_t step_bytes_all(const struct step_bytes *bytes);

#endif

/* An upper bound of acceptance, token by token: for each drafted token that was tried, the maximum acceptance probability of
 * any rule that preserves the target's distribution (kernels/plain/overlap.h). Reports print it beside measured acceptance.
 *
 * A node is tried if its parent was accepted. Its bound is known if it is its parent's only child, and was either not drawn at
 * random or has a record of the distribution that it was drawn from. */
#ifndef MOE_VERIFY_OVERLAP_H
#define MOE_VERIFY_OVERLAP_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/tree.h"
#include "kernels/plain/sample.h"

struct overlap {
    struct sample_filter filter;            /* the target's */
    int vocab;
    int32_t *token;                         /* scratch: [vocab] */
    double *probability;                    /* [vocab] */
    int32_t *children;                      /* [1 + nodes] */
    float *of_row;                          /* [1 + nodes] the result */
};

/* Allocates the memory of a measurement. nodes: maximum nodes of a draft. */
int overlap_init(struct overlap *overlap, const struct sample_filter *filter, int vocab, int nodes, struct err *err);
void overlap_free(struct overlap *overlap);                     /* and back to {0} */

/* kept [1 + tree->nodes]: root and accepted nodes; draws, by number of drafter: the tokens that this drafter drafted or
 * reviewed were drawn at random, with or without a proposal; logits [1 + tree->nodes][vocab]. Returns [1 + tree->nodes] by
 * row, the root first: NaN if the bound is unknown. */
const float *overlap_measure(struct overlap *overlap, const struct draft_tree *tree, const uint8_t *kept, const bool *draws,
                             const float *logits);

#endif

/* Coupled acceptance: the target chooses a token after the root; while a child of where we stand carries that token, we step
 * there and the target chooses again (kernels/plain/accept.h). What is emitted are the target's own choices, so the text is
 * that of decoding without a draft, whatever was drafted. Only the rows on the way are looked at.
 *
 * logits     [1 + tree->nodes][vocab]: row 0 is the root's, row i + 1 node i's
 * position   of the root in the text; the first choice is the token at position + 1
 * path       [tree->nodes] the accepted nodes
 * emitted    [tree->nodes + 1] their tokens, and the token after them */
#ifndef MOE_VERIFY_COUPLED_H
#define MOE_VERIFY_COUPLED_H

#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/tree.h"
#include "common/sample/sampler.h"

/* Returns the number of accepted nodes (one less than of tokens emitted), or -1. */
int coupled_accept(struct sampler *sampler, const struct draft_tree *tree, const float *logits, int vocab, int position,
                   int32_t *path, int32_t *emitted, struct err *err);

#endif

/* One draft: a policy says where the tree is to grow and what is dropped again, a drafter lets it. The same for decoding, for
 * recording drafts and for replay. */
#ifndef MOE_DECODE_GROW_H
#define MOE_DECODE_GROW_H

#include "common/draft/drafter.h"
#include "common/policy/policy.h"

/* The tree, which is cleared first, has room for what the policy's shape needs; leaf[tree->capacity + 1] is scratch. room:
 * tokens that could still be of use; a deeper one is not drafted. Returns how many tokens were drafted, also those that were
 * dropped, or -1.
 *
 * A node with a proposal is never dropped: a policy that tries to is an error. Such a node is judged as drawn from that
 * distribution, and what is left when some are taken away for what they are was drawn from another one. */
int draft_grow(struct draft_tree *tree, struct policy *policy, struct drafter *drafter, struct draft_leaf *leaf, int room,
               struct err *err);

#endif

/* One draft: a policy says which drafter adds to the tree and where, which reviews it, and what is dropped again. The same for
 * decoding, for recording drafts and for replay. */
#ifndef MOE_DECODE_GROW_H
#define MOE_DECODE_GROW_H

#include "common/draft/drafters.h"
#include "common/policy/policy.h"

enum { DRAFT_STEPS_MAX = 256,           /* max steps of a policy in one iteration */
       DRAFT_DROPPED_MAX = 4608 };      /* max dropped nodes recorded in one iteration */

/* The steps that a policy requested in an iteration, in order, without the final STEP_STOP. */
struct draft_steps {
    int count;
    int32_t kind[DRAFT_STEPS_MAX];      /* enum step_kind */
    int32_t drafter[DRAFT_STEPS_MAX];   /* KEEP: -1 */
    int32_t leaf[DRAFT_STEPS_MAX];      /* first leaf: 0 the root, 1 + i node i of the tree at that time; KEEP: 0 */
    int32_t leaves[DRAFT_STEPS_MAX];
    int32_t tokens[DRAFT_STEPS_MAX];    /* EXTEND: k */
    int32_t added[DRAFT_STEPS_MAX];     /* nodes */
    int32_t dropped[DRAFT_STEPS_MAX];   /* KEEP: number of dropped nodes */
    /* All dropped nodes, step by step, numbered as in the tree before the step: 0 is the root, 1 + i node i. */
    int drops;
    int32_t node[DRAFT_DROPPED_MAX], parent[DRAFT_DROPPED_MAX], token[DRAFT_DROPPED_MAX], by[DRAFT_DROPPED_MAX],
            match[DRAFT_DROPPED_MAX];
    float log_probability[DRAFT_DROPPED_MAX];
};

struct growth {
    struct draft_tree *tree;            /* cleared first; has room for what the policy's shape needs */
    struct draft_leaf *leaf;            /* scratch: [tree->capacity + 1] */
    struct policy *policy;
    struct drafters *drafters;          /* one at least */
    struct draft_share *share;          /* [drafters->count] output, without what is known only after verification */
    struct draft_steps *steps;          /* output, overwritten; NULL: not recorded */
};

/* room: tokens that could still be of use; a deeper one is not drafted. Returns how many tokens were drafted, also those that
 * were dropped, or -1.
 *
 * A node with a proposal is never dropped: a policy that tries to is an error. Such a node is judged as drawn from that
 * distribution, and what is left when some are taken away for what they are was drawn from another one. A review may drop
 * them, since all that it leaves below its leaf is as its own drafter drew it: a node there without that distribution is an
 * error, too. */
int draft_grow(const struct growth *growth, int room, struct err *err);

/* Counts what of the tree was verified and kept ([1 + tree->nodes], the root first) for the drafters of the nodes. */
void draft_count_kept(const struct draft_tree *tree, const uint8_t *kept, struct draft_share *share);

#endif

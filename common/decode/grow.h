/* Grows one draft: the policy decides which drafter extends the tree and where, which drafter reviews it, and which nodes
 * are dropped again. Used by decoding, recording of drafts, and replay. */
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
    struct draft_share *share;          /* [drafters->count] output, except for counts known only after verification */
    struct draft_steps *steps;          /* output, overwritten; NULL: not recorded */
};

/* Grows a draft. room: number of tokens that could still be of use; deeper tokens are not drafted. Returns how many tokens
 * were drafted, including those that were dropped, or -1.
 *
 * A node with a proposal must not be dropped: a policy that tries to is an error. Such a node is judged as drawn from that
 * distribution, and tokens that are dropped for their values change the distribution. A review may drop such nodes,
 * because all nodes that it leaves below its leaf are as its own drafter drew them; a node left there without that
 * distribution is an error, too. */
int draft_grow(const struct growth *growth, int room, struct err *err);

/* Counts the verified and the kept nodes of each drafter. kept: [1 + tree->nodes], the root first. */
void draft_count_kept(const struct draft_tree *tree, const uint8_t *kept, struct draft_share *share);

#endif

/* Locates a node of a draft in a recording (recording.h), so that replay can look up what the drafter proposed below the node.
 *
 * A WAY is the tokens from a root of the text to a node. A drafter's proposals depend on the text only. A node is therefore
 * found either in the draft recorded at the root, if that draft contains the way; or, if the way begins with the text's own
 * tokens, in the draft recorded at a later position, if that draft contains the rest of the way. */
#ifndef MOE_POLICY_RECORDED_WAY_H
#define MOE_POLICY_RECORDED_WAY_H

#include "common/policy/policy.h"
#include "common/policy/recording.h"

/* Follows the texts being decoded through their recording. */
struct recorded_follow {
    const struct recording *all;
    const struct recorded_text *text;   /* NULL: the text is not recorded, or differs from the recorded one */
    int at;                             /* index of the text's token that is the root of the next iteration */
};

void recorded_follow_begin(struct recorded_follow *follow, const struct policy_text *about);
void recorded_follow_observe(struct recorded_follow *follow, const struct outcome *outcome);

struct recorded_way {
    const struct recording *all;
    const struct recorded_text *text;
    int at;                             /* the root's index among the text's positions */
    int drafter;
    const int32_t *token;               /* [depth] after the root */
    int depth;
};

/* Returns token `at` of the recorded draft with this number in all->draft; 0: its root. */
struct recorded_node {
    size_t draft;
    int at;
};

/* Returns how many leading tokens of a way are the text's own and have a position after them. */
int recorded_way_matches(const struct recorded_way *way);

/* Returns whether the draft recorded `on` tokens after the root contains the rest of the way. The first `on` tokens of the way
 * must be the text's own. */
bool recorded_way_find(const struct recorded_way *way, int on, struct recorded_node *out);

/* Returns the fallback for a way that is not recorded: the recorded root as many positions later in the text as the way is
 * long. */
struct recorded_node recorded_way_guess(const struct recorded_way *way);

/* Returns the child of token `above` that carries `token` in a recorded draft, or with token -1 the first child; 0: none. */
int recorded_child(const struct recording *all, const struct recorded_draft *draft, int above, int32_t token);

#endif

/* Where a recording (recording.h) has a node of a draft, so that a recorded drafter can be asked what comes after it.
 *
 * A WAY is the tokens from a root of the text to a node. What a drafter proposes follows from the text alone, so a node is
 * found in its recorded draft at the root, if that has the way, or, as far as the way is the text itself, at a later position
 * of it, if the draft there has the rest. */
#ifndef MOE_POLICY_RECORDED_WAY_H
#define MOE_POLICY_RECORDED_WAY_H

#include "common/policy/policy.h"
#include "common/policy/recording.h"

/* Follows the texts that are decoded through a recording of them. */
struct recorded_follow {
    const struct recording *all;
    const struct recorded_text *text;   /* NULL: it has no such text, or this one turned out another */
    int at;                             /* token of the text that is the root of the next iteration */
};

void recorded_follow_begin(struct recorded_follow *follow, const struct policy_text *about);
void recorded_follow_observe(struct recorded_follow *follow, const struct outcome *outcome);

struct recorded_way {
    const struct recording *all;
    const struct recorded_text *text;
    int at;                             /* position of the root, of the text's positions */
    int drafter;
    const int32_t *token;               /* [depth] after the root */
    int depth;
};

/* Token `at` of a recorded draft, by number in all->draft; 0: its root. */
struct recorded_node {
    size_t draft;
    int at;
};

/* How many tokens of a way the text has, as far as there are positions after them. */
int recorded_way_right(const struct recorded_way *way);

/* Whether the draft of the position `on` tokens after the root has the rest of the way. The first `on` tokens must be the
 * text's. */
bool recorded_way_find(const struct recorded_way *way, int on, struct recorded_node *out);

/* For a way that is recorded nowhere: the root of the position as many tokens on in the text. */
struct recorded_node recorded_way_guess(const struct recorded_way *way);

/* The child of token `above` in a recorded draft that carries `token`, or (-1) the first one; 0: there is none. */
int recorded_child(const struct recording *all, const struct recorded_draft *draft, int above, int32_t token);

#endif

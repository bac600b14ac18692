/* The drafters of a recording (policy/recording.h), so that drafts can grow as they did, or as another policy lets them.
 *
 * After its own tokens a drafter with states of its own (own_states) goes on as its draft was recorded. Otherwise what it
 * proposes is taken to follow from the text alone, so after tokens that the text has, it is what was recorded at the position
 * where these end, whoever drafted them: exact for a model, close for one that reads states of the target. After a token that
 * the text does not have it is exact where the drafter's own recorded draft has that token, too; elsewhere it is taken from the
 * position as many tokens on in the text: nothing is accepted there any more, and only how many tokens come and what they cost
 * is a guess. A review is the drafter's own first token at each position; its cost is that of drafting one token.
 *
 * Of recorded trees this holds for policies that make trees of their own (`guesses`); a shape must not grow where nothing was
 * recorded. How many children there may be is what was recorded: more are refused in any case.
 *
 * Of a drafter that looks up text, what it proposes after drafted tokens is close and not exact: at the later position it knows
 * them as text, where they may be found again. */
#ifndef MOE_BENCH_RECORDED_H
#define MOE_BENCH_RECORDED_H

#include "common/base/err.h"
#include "common/draft/drafter.h"
#include "common/policy/recording.h"

struct recorded_drafter {
    struct drafter base;
    const struct recording *all;
    const struct recorded_text *text;
    int at;                             /* position of the root, of the text */
    bool own_states;                    /* it drafts from states that it makes of its tokens; set after opening */
    bool guesses;                       /* of trees: after what was not recorded; set after opening */
    /* Of the draft that is growing: */
    size_t from;                        /* the recorded draft that it continues, by number in all->draft */
    int first, last;                    /* since this token of it, and how far it came */
    double closed_us;                   /* what other recorded drafts have cost before */
    int64_t closed_bytes;
};

void recorded_open(struct recorded_drafter *mine, const struct recording *all, int number);
void recorded_begin(struct recorded_drafter *mine, const struct recorded_text *text, int at);       /* a new draft */

/* What its part of the draft has cost. */
double recorded_us(const struct recorded_drafter *mine);
int64_t recorded_bytes(const struct recorded_drafter *mine);

/* The row of the recording that says most of a node (-1: the root): which experts it wants. */
size_t recorded_row(const struct recorded_drafter *mine, const struct draft_tree *tree, int node);

/* Whether the whole tree is this drafter's own recorded draft at the root, or the beginning of it. */
bool recorded_is_own(const struct recorded_drafter *mine, const struct draft_tree *tree);

#endif

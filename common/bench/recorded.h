/* Drafters that replay a recording (policy/recording.h), so that drafts grow as they did live, or as another policy decides.
 *
 * After its own tokens, a drafter with states of its own (own_states) continues its recorded draft. Otherwise its proposals
 * are assumed to depend on the text alone: after tokens that equal the text, it proposes what was recorded at the position
 * where these end, whichever drafter proposed them. This is exact for a model, and approximate for a drafter that reads the
 * target's states. After a token that differs from the text it is exact if the drafter's own recorded draft has that token,
 * too; otherwise the proposal is taken from the position that many tokens later: no later token is accepted there, so
 * only the number and cost of these tokens are guesses. A review proposes the drafter's own first token at each position, at
 * the cost of drafting one token.
 *
 * For recorded trees this holds for policies that build trees of their own (`guesses`); a shape must not grow where nothing
 * was recorded. No more children are returned than were recorded.
 *
 * For a drafter that looks up text, proposals after drafted tokens are approximate: at the later position these tokens are
 * part of the text, where they may be found again. */
#ifndef MOE_BENCH_RECORDED_H
#define MOE_BENCH_RECORDED_H

#include "common/base/err.h"
#include "common/draft/drafter.h"
#include "common/policy/recording.h"

struct recorded_drafter {
    struct drafter base;
    const struct recording *all;
    const struct recorded_text *text;
    int at;                             /* position of the root in the text */
    bool own_states;                    /* the drafter drafts from states that it computes of its own tokens; set after
                                         * opening */
    bool guesses;                       /* for trees: the drafter also drafts where nothing was recorded; set after opening */
    /* State of the current draft: */
    size_t from;                        /* index in all->draft of the recorded draft that is continued */
    int first, last;                    /* range of the draft's tokens used so far */
    double closed_us;                   /* cost of the recorded drafts used before the current one */
    int64_t closed_bytes;
};

/* Initialises drafter `number` of a recording, which must stay open. */
void recorded_open(struct recorded_drafter *mine, const struct recording *all, int number);
void recorded_begin(struct recorded_drafter *mine, const struct recorded_text *text, int at);       /* begins a new draft */

/* Return the cost of this drafter's part of the draft, in microseconds and nominal bytes. */
double recorded_us(const struct recorded_drafter *mine);
int64_t recorded_bytes(const struct recorded_drafter *mine);

/* Returns the row of the recording that represents a node (-1: the root), for its experts. */
size_t recorded_row(const struct recorded_drafter *mine, const struct draft_tree *tree, int node);

/* Returns whether the whole tree equals this drafter's recorded draft at the root, or its beginning. */
bool recorded_is_own(const struct recorded_drafter *mine, const struct draft_tree *tree);

#endif

/* The cost of a text's rows in a forward that other texts share (moe-decode --parallel).
 *
 * The other texts read the weights in any case, and load experts that this text needs, too. So a text is charged with an equal
 * part of a forward in which no text drafts, and with all that its draft adds to the present forward: the rows, and the experts
 * that no other text loads. A policy that weighs tokens against this cost adds a node where that raises the throughput of all
 * texts together, as far as the others do as before. If the forward is of one text, all values are those of that text, bit by
 * bit.
 *
 * The load of the other texts is that of the last forward; the share of a text's experts that no other text loads is a moving
 * average, and gives the number of experts from which texts choose as if by chance. */
#ifndef MOE_POLICY_SHARED_H
#define MOE_POLICY_SHARED_H

#include "common/policy/cost.h"
#include "common/policy/policy.h"

struct shared_load {            /* start with {0}: alone */
    int texts;                  /* of the last forward; below 2: it was not shared */
    int rows;                   /* of the other texts */
    double experts;             /* distinct experts a layer that the other texts load */
    double only;                /* share of this text's experts that no other text loads */
    bool learned;               /* `only` was measured */
};

void shared_learn(struct shared_load *load, const struct outcome *outcome);

/* The following return the excess of a forward relative to one over a single token; table and experts are those of cost_growth:
 * of the present forward with M rows of this text; and of one in which no text drafts. */
double shared_growth(const struct shared_load *load, const struct cost_table *table, const struct union_predictor *experts,
                     int M);
double shared_root(const struct shared_load *load, const struct cost_table *table, const struct union_predictor *experts);

/* Returns this text's part of the forward's cost, in units of a forward over a single token. extra: what its draft adds to the
 * excess. */
double shared_part(const struct shared_load *load, double steepness, double root, double extra);

/* Returns the seconds of the forward for all texts, and of this text's work around it. */
double shared_seconds(const struct outcome *outcome);

/* Returns the seconds of the iteration that this text is charged with: its drafting, and the share part / cost of the forward,
 * both in the units of shared_part. */
double shared_own_seconds(const struct shared_load *load, const struct outcome *outcome, double part, double cost);

#endif

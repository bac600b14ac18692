/* Rankings that know which experts the same tokens select. Both begin with all experts and leave out one after the other, in
 * each layer the one that is missed least; what is left out last comes first.
 *
 *   coverage   misses are the tokens that all experts still kept would serve in full, and no longer do
 *   pairs      misses are the pairs that two experts still kept would have served, counted by token; the last one is the
 *              one that most tokens select. This is the peeling of the densest subgraph (Charikar 2000) in the matrix of
 *              pairs, and needs no more than that: coverage up to second order
 *
 * Equal misses leave out the expert that fewer tokens select, then the one with the higher number. The score of an expert is
 * what it adds to those in front of it: the scores of the first B sum to what B experts serve, tokens or pairs.
 *
 * Coverage reads the spool once an expert. All numbers are integers. */
#ifndef MOE_ROUTE_ELIMINATION_H
#define MOE_ROUTE_ELIMINATION_H

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/route/counts.h"
#include "common/route/ranking.h"
#include "common/route/spool.h"

/* counts and spool hold the same tokens; bar, may be NULL, counts experts. Errors: no tokens; too many experts for pairs. */
int ranking_by_coverage(struct ranking **out, const struct route_counts *counts, struct route_spool *spool,
                        struct progress *bar, struct err *err);
int ranking_by_pairs(struct ranking **out, const struct route_counts *counts, struct route_spool *spool, struct err *err);

#endif

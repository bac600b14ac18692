/* Rankings that consider which experts are selected together. Each layer begins with all experts and drops them one by one,
 * always the expert with the smallest loss; the expert dropped last is ranked first. Loss of dropping an expert:
 *
 *   coverage   tokens whose selected experts are all kept at present, but would not be
 *   pairs      pairs of kept experts that tokens selected together and that would be broken, counted per token. The last expert
 *              left is the one that most tokens select. This is the greedy peeling for the densest subgraph (Charikar 2000) in
 *              the co-activation matrix, the second-order approximation of coverage
 *
 * Of equal losses the expert that fewer tokens select is dropped, then the one with the higher number. An expert's score is
 * what it adds to the experts ranked before it: the scores of the first B experts sum to the tokens (or pairs) that B experts
 * serve.
 *
 * Coverage reads the spool once per expert. All numbers are integers. */
#ifndef MOE_ROUTE_ELIMINATION_H
#define MOE_ROUTE_ELIMINATION_H

#include "common/base/err.h"
#include "common/base/progress.h"
#include "common/route/counts.h"
#include "common/route/ranking.h"
#include "common/route/spool.h"

/* Makes the ranking from counts and spool, which must contain the same tokens. bar, which may be NULL, counts experts.
 * Errors: no tokens; too many experts for pairs. */
int ranking_by_coverage(struct ranking **out, const struct route_counts *counts, struct route_spool *spool,
                        struct progress *bar, struct err *err);
int ranking_by_pairs(struct ranking **out, const struct route_counts *counts, struct route_spool *spool, struct err *err);

#endif

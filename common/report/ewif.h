/* Expected walltime improvement factors (EWIF): the speed-up by drafts over one forward per token, if each drafted token
 * after accepted ones is accepted independently with the same probability, and if a verification costs one forward whatever
 * its number of tokens. A drafter is described by its acceptance probability and the cost of a drafted token, in forwards of
 * the target.
 *
 *   alone        Leviathan et al. (arXiv 2211.17192), theorem 3.8: `length` tokens of one drafter
 *   vertical     CS-Drafting (arXiv 2312.11462): the bottom drafts `bottom_length` tokens, the upper drafter reviews them in
 *                one forward and adds its own token, `length` times; the target accepts the result with the upper drafter's
 *                probability; the upper drafter is assumed to accept tokens of the bottom as the target does
 *   horizontal   CS-Drafting: `length` tokens of the upper drafter, then `bottom_length` of the bottom
 *
 * Acceptance is from 0 to 1, costs are not negative. Pure functions. */
#ifndef MOE_REPORT_EWIF_H
#define MOE_REPORT_EWIF_H

struct ewif_drafter {
    double acceptance, cost;
};

enum ewif_cascade { EWIF_VERTICAL, EWIF_HORIZONTAL, EWIF_CASCADES };

enum { EWIF_LENGTH = 8 };               /* longest length that is tried */

/* Returns the factor of a drafter alone, and of a cascade, with the given lengths. */
double ewif_alone(struct ewif_drafter drafter, int length);
double ewif_of_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, int length, struct ewif_drafter bottom,
                       int bottom_length);

/* Returns the factor with the best lengths: alone from 0 (no draft) on; in a cascade from 1 on, each of the two. */
double ewif_best_alone(struct ewif_drafter drafter);
double ewif_best_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, struct ewif_drafter bottom);

/* Returns the cost of the upper drafter at which the best cascade is as fast as the bottom alone; a cheaper upper drafter
 * gains. 0: no cost gains. */
double ewif_boundary(enum ewif_cascade cascade, double acceptance, struct ewif_drafter bottom);

#endif

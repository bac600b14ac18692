/* Expected walltime improvement factors (EWIF): how many times as fast as one forward a token a draft makes the text, if each
 * drafted token after accepted ones is accepted with the same chance, independently, and if the verification costs one forward
 * however many tokens it reads. A drafter is its acceptance and the cost of a drafted token, one forward of the target being 1.
 *
 *   alone        Leviathan et al. (arXiv 2211.17192), theorem 3.8: `length` tokens of one drafter
 *   vertical     CS-Drafting (arXiv 2312.11462): the bottom drafts `bottom_length` tokens, the upper drafter reviews them in
 *                one forward and adds its own, `length` times; of all that the target accepts what it accepts of the upper
 *                drafter, which is taken to accept of the bottom what the target does
 *   horizontal   there, too: `length` tokens of the upper drafter, and `bottom_length` of the bottom after them
 *
 * Acceptances are from 0 to 1, costs not negative. Pure. */
#ifndef MOE_REPORT_EWIF_H
#define MOE_REPORT_EWIF_H

struct ewif_drafter {
    double acceptance, cost;
};

enum ewif_cascade { EWIF_VERTICAL, EWIF_HORIZONTAL, EWIF_CASCADES };

enum { EWIF_LENGTH = 8 };               /* the longest that is tried */

double ewif_alone(struct ewif_drafter drafter, int length);
double ewif_of_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, int length, struct ewif_drafter bottom,
                       int bottom_length);

/* With the best lengths. Alone from 0, which is no draft; in a cascade from 1, each of the two. */
double ewif_best_alone(struct ewif_drafter drafter);
double ewif_best_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, struct ewif_drafter bottom);

/* The cost at which the best cascade with an upper drafter of this acceptance is just as fast as the bottom alone: a cheaper
 * one gains. 0: none does. */
double ewif_boundary(enum ewif_cascade cascade, double acceptance, struct ewif_drafter bottom);

#endif

#include "common/report/ewif.h"

#include <math.h>

/* Returns 1 + x + ... + x^last, as a sum so that x = 1 needs no special case. */
static double powers(double x, int last)
{
    double sum = 0;
    for (int i = 0; i <= last; i++)
        sum = 1 + x * sum;
    return sum;
}

/* Returns the expected tokens per iteration, including the target's own token.
 *
 * Vertical: CS-Drafting gives (1 - a phi^n(a)) / (1 - a), where phi(x) = 1 + (x - 1) (1 - (bx)^(k+1)) / (1 - bx) is the
 * generating function of the number of tokens of one review. With g = 1 + ba + ... + (ba)^k, phi = 1 - (1 - a) g, and the
 * result is 1 + a g (1 + phi + ... + phi^(n-1)), which needs no division. */
static double expected_tokens(enum ewif_cascade cascade, double acceptance, int length, double below, int bottom_length)
{
    if (cascade == EWIF_HORIZONTAL)
        return powers(acceptance, length) + pow(acceptance, length) * (powers(below, bottom_length) - 1);
    const double review = powers(below * acceptance, bottom_length);
    return 1 + acceptance * review * powers(1 - (1 - acceptance) * review, length - 1);
}

/* Returns the cost of an iteration without the `length` forwards of the upper drafter. */
static double other_cost(enum ewif_cascade cascade, int length, double bottom_cost, int bottom_length)
{
    return 1 + (cascade == EWIF_VERTICAL ? length : 1) * bottom_length * bottom_cost;
}

double ewif_alone(struct ewif_drafter drafter, int length)
{
    return powers(drafter.acceptance, length) / (1 + length * drafter.cost);
}

double ewif_of_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, int length, struct ewif_drafter bottom,
                       int bottom_length)
{
    return expected_tokens(cascade, upper.acceptance, length, bottom.acceptance, bottom_length) /
           (other_cost(cascade, length, bottom.cost, bottom_length) + length * upper.cost);
}

double ewif_best_alone(struct ewif_drafter drafter)
{
    double best = 1;
    for (int length = 1; length <= EWIF_LENGTH; length++)
        best = fmax(best, ewif_alone(drafter, length));
    return best;
}

double ewif_best_cascade(enum ewif_cascade cascade, struct ewif_drafter upper, struct ewif_drafter bottom)
{
    double best = 0;
    for (int length = 1; length <= EWIF_LENGTH; length++)
        for (int below = 1; below <= EWIF_LENGTH; below++)
            best = fmax(best, ewif_of_cascade(cascade, upper, length, bottom, below));
    return best;
}

/* For fixed lengths the factor decreases with the cost of the upper drafter, and at one cost it equals that of the bottom
 * alone. Returns the highest such cost over all lengths. */
double ewif_boundary(enum ewif_cascade cascade, double acceptance, struct ewif_drafter bottom)
{
    const double alone = ewif_best_alone(bottom);
    double highest = 0;
    for (int length = 1; length <= EWIF_LENGTH; length++)
        for (int below = 1; below <= EWIF_LENGTH; below++)
            highest = fmax(highest, (expected_tokens(cascade, acceptance, length, bottom.acceptance, below) / alone -
                                     other_cost(cascade, length, bottom.cost, below)) / length);
    return highest;
}

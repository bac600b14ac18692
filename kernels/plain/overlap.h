/* Upper bound of the acceptance probability of a drafted token.
 *
 * A rule that preserves the target's distribution p keeps a token drawn from q with a probability of at most the sum over
 * tokens of min(p, q) = 1 - TV(p, q). Rejection sampling reaches this bound (Leviathan et al., arXiv 2211.17192, section 3.2).
 * Coupling, where drafter and target draw with common noise without knowing each other, keeps it with at least (1 - TV) / (1 +
 * TV), and no such rule guarantees more in general (Daliri et al., arXiv 2408.07978). A token that was not drawn has q = 1, so
 * the bound is p(token). */
#ifndef MOE_KERNELS_PLAIN_OVERLAP_H
#define MOE_KERNELS_PLAIN_OVERLAP_H

#include "kernels/plain/plain.h"

/* Returns the sum over v of min(p[v], q[v]). */
PLAIN double overlap_mass(const double *p, const float *q, int vocab)
{
    double shared = 0;
    for (int32_t v = 0; v < vocab; v++)
        shared += p[v] < (double)q[v] ? p[v] : (double)q[v];
    return shared;
}

#endif

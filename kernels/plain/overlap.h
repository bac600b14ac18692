/* How often a drafted token can be kept at best. Plain data in, numbers out.
 *
 * A token drawn from q is kept, by a rule that leaves the target's distribution p as it is, with a probability of at most
 * sum over tokens of min(p, q) = 1 - TV(p, q). Rejection sampling reaches it (Leviathan et al., arXiv 2211.17192, section
 * 3.2). Where drafter and target draw with common noise and do not know each other it is at least (1 - TV) / (1 + TV), and
 * no such rule promises more in general (Daliri et al., arXiv 2408.07978). A token that was not drawn has q = 1:
 * it is kept with probability p(token) at most. */
#ifndef MOE_KERNELS_PLAIN_OVERLAP_H
#define MOE_KERNELS_PLAIN_OVERLAP_H

#include "kernels/plain/plain.h"

/* sum over v of min(p[v], q[v]) */
PLAIN double overlap_mass(const double *p, const float *q, int vocab)
{
    double shared = 0;
    for (int32_t v = 0; v < vocab; v++)
        shared += p[v] < (double)q[v] ? p[v] : (double)q[v];
    return shared;
}

#endif

/* The decisions of kernels/route.h over plain arrays, for host and GPU alike. All in f32, so the same bits everywhere. */
#ifndef MOE_KERNELS_PLAIN_ROUTE_H
#define MOE_KERNELS_PLAIN_ROUTE_H

#include <stddef.h>

#include "kernels/plain/math.h"

/* Whether x goes before y: it is larger; a NaN is less than all else. */
PLAIN int plain_larger(float x, float y) { return x > y || (y != y && x == x); }

/* The `count` largest of value[0 .. experts-1] where mask (NULL: everywhere) is 1, largest first, ties to the lower index;
 * returns how many there are, which is less than count when the mask allows fewer. */
PLAIN int plain_top(const float *value, const uint8_t *mask, int experts, int count, int32_t *index)
{
    int found = 0;
    for (int e = 0; e < experts; e++) {
        if (mask && !mask[e])
            continue;
        if (found == count && !plain_larger(value[e], value[index[found - 1]]))
            continue;
        int at = found < count ? found++ : count - 1;
        for (; at > 0 && plain_larger(value[e], value[index[at - 1]]); at--)
            index[at] = index[at - 1];
        index[at] = e;
    }
    return found;
}

/* One row of route_select. `substitute` says what a mask does: choose among the allowed, or drop what is not. */
PLAIN void plain_select(const float *score, const uint8_t *mask, int substitute, int renormalise, float scale,
                        int experts, int top_k, int32_t *wanted, int32_t *expert, float *weight)
{
    int kept = 0;
    float sum = 0;
    plain_top(score, NULL, experts, top_k, wanted);
    if (mask && substitute) {
        kept = plain_top(score, mask, experts, top_k, expert);
        for (int s = 0; s < kept; s++)
            sum += score[expert[s]];
    } else {
        for (int s = 0; s < top_k; s++) {
            sum += score[wanted[s]];
            if (!mask || mask[wanted[s]])
                expert[kept++] = wanted[s];
        }
    }
    for (int s = 0; s < kept; s++)
        weight[s] = (renormalise ? score[expert[s]] / sum : score[expert[s]]) * scale;
    for (int s = kept; s < top_k; s++) {
        expert[s] = -1;
        weight[s] = 0;
    }
}

#endif

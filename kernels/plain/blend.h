/* The weights with which a row's experts are added, computed from the head's own logits (kernels/mix.h). */
#ifndef MOE_KERNELS_PLAIN_BLEND_H
#define MOE_KERNELS_PLAIN_BLEND_H

#include <stdbool.h>

#include "kernels/plain/math.h"

/* Rules from logits to weights. The LARGEST logit is found from slot 0 on; a later slot replaces it unless its logit is
 * smaller. So the last of equal logits is the largest. A NaN is the largest only in slot 0, and then no slot replaces it. */
enum blend_rule {
    BLEND_SOFTMAX,                       /* softmax over the slots */
    BLEND_CONTRAST,                      /* the same, with a negative sign for all but the largest: Jakiro's contrast */
    BLEND_LARGEST,                       /* 1 for the largest, 0 for all others */
    BLEND_OTHERS,                        /* 0 for the largest, 1 for all others */
    BLEND_LARGEST_SHARE,                 /* softmax for the largest, 0 for all others */
    BLEND_OTHERS_SHARE                   /* 0 for the largest, softmax for all others */
};

/* weight[s] = rule(logit[0 .. slots-1])[s]; with `column` the logit of slot s is logit[column[s]]. Softmax: e[s] =
 * plain_exp(logit[s] - the largest); their sum in slot order from e[0] on; weight[s] = e[s] / sum. */
PLAIN void plain_blend_weights(enum blend_rule rule, const float *logits, const int32_t *column, int slots, float *weight)
{
    const bool choice = rule == BLEND_LARGEST || rule == BLEND_OTHERS;
    int largest = 0;
    float highest = logits[column ? column[0] : 0], sum = 0;
    for (int s = 1; s < slots; s++) {
        float logit = logits[column ? column[s] : s];
        if (logit >= highest) {
            largest = s;
            highest = logit;
        }
    }
    for (int s = 0; s < slots; s++) {
        if (choice) {
            weight[s] = (s == largest) == (rule == BLEND_LARGEST) ? 1.0f : 0.0f;
        } else {
            weight[s] = plain_exp(logits[column ? column[s] : s] - highest);
            sum = s ? sum + weight[s] : weight[s];
        }
    }
    for (int s = 0; s < slots && !choice; s++) {
        float share = weight[s] / sum;
        bool none = rule == BLEND_LARGEST_SHARE ? s != largest : rule == BLEND_OTHERS_SHARE && s == largest;
        weight[s] = rule == BLEND_CONTRAST && s != largest ? -share : none ? 0.0f : share;
    }
}

#endif

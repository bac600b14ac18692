/* Drafting by coupling: the drafter draws its token with the noise that the target will use at that position. Where the two
 * distributions agree, so do the tokens, and neither has to know the other.
 *
 * The tokens with the largest logit / T + g are drawn one after the other without replacement from softmax(logit / T); the
 * first of them is the coupled choice. So the same children serve coupled acceptance and rejection (kernels/plain/reject.h),
 * whose own numbers are apart from this noise.
 * Sources: Daliri et al., arXiv 2408.07978; without replacement: Kool, van Hoof, Welling, arXiv 1903.06059, section 2. */
#ifndef MOE_KERNELS_PLAIN_COUPLING_H
#define MOE_KERNELS_PLAIN_COUPLING_H

#include "kernels/plain/sample.h"

/* Draws up to `count` different tokens to token[count], in the order of the draw, and their log-probabilities to
 * log_probability[count] (NULL: not wanted); at temperature 0 the best ones, which then were not drawn. draw->position is
 * that of the token drawn. proposal[vocab] (NULL: not wanted) is the distribution drawn from. Returns how many there are;
 * 0 when the logits are not finite. Scratch: kept[vocab], value[count]. */
PLAIN int coupling_draft(const float *logit, int vocab, const struct sample_filter *filter, const struct sample_draw *draw,
                         int count, int32_t *kept, double *value, int32_t *token, float *log_probability, float *proposal)
{
    const double temperature = filter->temperature > 0 ? filter->temperature : 1;
    struct sample_filter all = {1, 1, 0, 0};
    int32_t best = sample_best(logit, vocab);
    double total = 0;
    int found = 0;
    if (best < 0)
        return 0;
    int keeps = sample_keep(logit, vocab, best, filter->temperature > 0 ? filter : &all, kept);
    for (int at = 0; at < keeps; at++) {
        double z = (double)logit[kept[at]] / temperature;
        total += sample_weight(logit, kept[at], logit[best], temperature);
        if (filter->temperature > 0) {
            struct philox counter = {{(uint32_t)kept[at] >> 1, draw->position, draw->ordinal, draw->sample}};
            struct philox block = philox(counter, draw->key);
            z -= log(-log(philox_uniform(block.word[2 * (kept[at] & 1)], block.word[2 * (kept[at] & 1) + 1])));
        }
        int place = found;
        while (place > 0 && (z > value[place - 1] || (z == value[place - 1] && kept[at] < token[place - 1])))
            place--;
        if (place == count)
            continue;
        found += found < count;
        for (int i = found - 1; i > place; i--) {
            value[i] = value[i - 1];
            token[i] = token[i - 1];
        }
        value[place] = z;
        token[place] = kept[at];
    }
    for (int i = 0; log_probability && i < found; i++)
        log_probability[i] = (float)(((double)logit[token[i]] - (double)logit[best]) / temperature - log(total));
    for (int32_t v = 0; proposal && v < vocab; v++)
        proposal[v] = 0;
    for (int at = 0; proposal && at < keeps; at++)
        proposal[kept[at]] = (float)(sample_weight(logit, kept[at], logit[best], temperature) / total);
    return found;
}

/* The mass that two distributions share, sum over tokens of min(p, q) = 1 - their total variation: no rule that keeps the
 * target's distribution accepts a token drawn from q more often. */
PLAIN double coupling_overlap(const double *p, const float *q, int vocab)
{
    double shared = 0;
    for (int32_t v = 0; v < vocab; v++)
        shared += p[v] < (double)q[v] ? p[v] : (double)q[v];
    return shared;
}

#endif

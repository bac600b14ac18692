/* From a drafter's logits to the tokens it proposes, best first: the largest (logit - best) / T over the tokens that the
 * target's filter keeps; with a draw, of (logit - best) / T + g(token), g the numbers that the target will add there
 * (sample.h). With a draw these are a sample without replacement of softmax(logit / T), and the first is what sample_token
 * would draw. Sources: Gumbel-top-k: Kool, van Hoof, Welling, arXiv 1903.06059; common noise: Daliri et al., arXiv 2408.07978.
 *
 * A token's probability is the softmax of these values. Without a draw that is what the drafter gives it. With one it is
 * the probability that the target, whose values differ from these by independent Gumbel noise, has its largest there: how
 * certain the drafter is, knowing the noise. At temperature 0 T is 1.
 *
 * Where a drafted token is judged by the distribution it was drawn from (reject.h), the noise is not the target's:
 * propose_apart gives each node some of its own. */
#ifndef MOE_KERNELS_PLAIN_PROPOSE_H
#define MOE_KERNELS_PLAIN_PROPOSE_H

#include "kernels/plain/sample.h"

/* Writes up to `max` tokens and their log-probabilities (NULL: not wanted, which saves most of the work at large
 * vocabularies); returns their number, 0 when the logits are not finite. draw NULL: none; its position is that of the token
 * proposed. Scratch: kept[vocab], value[vocab]. */
PLAIN int propose_tokens(const float *logit, int vocab, const struct sample_filter *filter, const struct sample_draw *draw,
                         int max, int32_t *kept, double *value, int32_t *token, float *log_probability)
{
    int32_t best = sample_best(logit, vocab), pair = -1;
    const double temperature = filter->temperature > 0 ? filter->temperature : 1;
    const double unlikely = 0.9996, behind = 7.9;               /* as in sample_gumbel */
    struct philox block = {{0, 0, 0, 0}};
    int count = 0, found = 0;
    double largest = 0, total = 0;
    if (best < 0)
        return 0;
    if (filter->temperature > 0)
        count = sample_keep(logit, vocab, best, filter, kept);
    else
        for (int32_t id = 0; id < vocab; id++)
            if (logit[id] > -INFINITY)
                kept[count++] = id;
    for (int at = 0; at < count; at++) {
        int32_t id = kept[at];
        value[at] = ((double)logit[id] - (double)logit[best]) / temperature;
        if (draw && filter->temperature > 0) {
            if (id >> 1 != pair) {
                struct philox counter = {{(uint32_t)id >> 1, draw->position, draw->ordinal, draw->sample}};
                pair = id >> 1;
                block = philox(counter, draw->key);
            }
            double u = philox_uniform(block.word[2 * (id & 1)], block.word[2 * (id & 1) + 1]);
            if (!log_probability && found == max && u < unlikely && value[token[max - 1]] - value[at] > behind)
                continue;
            value[at] -= log(-log(u));
        }
        /* token[] holds indices in kept[] until the end. */
        int index = found;
        while (index > 0 && (value[at] > value[token[index - 1]] ||
                             (value[at] == value[token[index - 1]] && id < kept[token[index - 1]])))
            index--;
        if (index == max)
            continue;
        found += found < max;
        for (int below = found - 1; below > index; below--)
            token[below] = token[below - 1];
        token[index] = at;
    }
    if (!found)
        return 0;
    largest = value[token[0]];
    for (int at = 0; log_probability && at < count; at++)
        total += exp(value[at] - largest);
    for (int at = 0; at < found; at++) {
        if (log_probability)
            log_probability[at] = (float)(value[token[at]] - largest - log(total));
        token[at] = kept[token[at]];
    }
    return found;
}

/* Another draw, apart from this one and from those of all other `which`: random numbers of a node's own. A drafter goes from
 * the text's draw to the draft's by the length of the text, to its own by its number, and then to each node's by the tokens on
 * the way. The position is still to be set. */
PLAIN struct sample_draw propose_apart(const struct sample_draw *draw, uint32_t which)
{
    struct philox counter = {{0x40000000u, which, draw->ordinal, draw->sample}};       /* tokens count below, reject.h above */
    struct philox block = philox(counter, draw->key);
    struct sample_draw apart = {(uint64_t)block.word[0] << 32 | block.word[1], 0, draw->ordinal, draw->sample};
    return apart;
}

#endif

/* From a drafter's logits to the tokens it proposes, best first. The tokens that the target's filter keeps are ordered by
 * (logit - best) / T; with a draw, by (logit - best) / T + g(token), where g is the noise that the target will add at the same
 * position (sample.h). With a draw the proposed tokens are a sample without replacement from softmax(logit / T), and the first
 * is the one that sample_token would draw. At temperature 0, T is 1. Sources: Gumbel-top-k: Kool, van Hoof, Welling, arXiv
 * 1903.06059; common noise: Daliri et al., arXiv 2408.07978.
 *
 * The log-probability of a token is the log-softmax of these values. Without a draw this is the drafter's own probability. With
 * a draw it is the probability that the target, whose values differ from these by independent Gumbel noise, has its largest
 * value there: the certainty of a drafter that knows the noise.
 *
 * If a drafted token is judged by the distribution it was drawn from (reject.h), the noise must not be the target's:
 * propose_apart derives independent noise for each node. */
#ifndef MOE_KERNELS_PLAIN_PROPOSE_H
#define MOE_KERNELS_PLAIN_PROPOSE_H

#include "kernels/plain/sample.h"

/* Writes up to `max` tokens and their log-probabilities (NULL: not needed, which saves most of the work with large
 * vocabularies). Returns their number, or 0 if the logits are not finite. draw NULL: no noise; draw->position is the position
 * of the proposed token. Scratch: kept[vocab], value[vocab]. */
PLAIN int propose_tokens(const float *logit, int vocab, const struct sample_filter *filter, const struct sample_draw *draw,
                         int max, int32_t *kept, double *value, int32_t *token, float *log_probability)
{
    int32_t best = sample_best(logit, vocab), pair = -1;
    const double temperature = filter->temperature > 0 ? filter->temperature : 1;
    const double unlikely = 0.9996, margin = 7.9;               /* as in sample_gumbel */
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
            if (!log_probability && found == max && u < unlikely && value[token[max - 1]] - value[at] > margin)
                continue;
            value[at] -= log(-log(u));
        }
        /* token[] contains indices into kept[] until the end. */
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

/* Derives another draw, independent of this one and of those for every other `which`. A drafter derives the draft's draw from
 * the text's by the length of the text, then its own by its number, then each node's by the tokens on its path. The caller sets
 * the position. */
PLAIN struct sample_draw propose_apart(const struct sample_draw *draw, uint32_t which)
{
    /* tokens have smaller counters, reject.h larger ones */
    struct philox counter = {{0x40000000u, which, draw->ordinal, draw->sample}};
    struct philox block = philox(counter, draw->key);
    struct sample_draw apart = {(uint64_t)block.word[0] << 32 | block.word[1], 0, draw->ordinal, draw->sample};
    return apart;
}

#endif

/* From logits to a token: filters, then Gumbel-max sampling.
 *
 * A token is drawn as argmax over the kept tokens of (logit - largest) / T + g(token), with g = -log(-log(u)) and u from
 * Philox, whose key and counter identify the draw and the token. This is an exact sample of softmax(logit / T) over the kept
 * tokens, at every T: equal logits differ by 0 even where dividing the logits themselves would overflow. Key, position and
 * logits determine the token; there is no state and no order, so the shape of a draft changes nothing.
 *
 * Filters are applied in the order of transformers: temperature, top-k, top-p, min-p. Among equal logits the lower id ranks
 * first, so top-k keeps exactly k. Logits are f32, all values computed from them are double. NaNs and -inf are never drawn. */
#ifndef MOE_KERNELS_PLAIN_SAMPLE_H
#define MOE_KERNELS_PLAIN_SAMPLE_H

#include <math.h>
#include <stddef.h>

#include "kernels/plain/philox.h"

struct sample_filter {
    double temperature;             /* 0: take the best */
    double top_p, min_p;            /* 1, 0: off */
    int top_k;                      /* 0: off */
};

struct sample_draw {
    uint64_t key;
    uint32_t position, ordinal, sample;
};

/* Returns the token with the largest logit, the lowest id among equals; -1 if no logit is a number or the largest is
 * infinite. */
PLAIN int32_t sample_best(const float *logit, int vocab)
{
    int32_t best = -1;
    for (int32_t token = 0; token < vocab; token++)
        if (best < 0 ? logit[token] == logit[token] : logit[token] > logit[best])
            best = token;
    return best >= 0 && isfinite(logit[best]) ? best : -1;
}

/* Returns whether a ranks above b. */
PLAIN int sample_above(const float *logit, int32_t a, int32_t b)
{
    return logit[a] > logit[b] || (logit[a] == logit[b] && a < b);
}

/* Restores the heap heap[0 .. count) (best first), in which only `at` may be out of place: moves it down. */
PLAIN void sample_sink(const float *logit, int32_t *heap, int count, int at)
{
    int32_t token = heap[at];
    for (int child = 2 * at + 1; child < count; child = 2 * at + 1) {
        child += child + 1 < count && sample_above(logit, heap[child + 1], heap[child]);
        if (!sample_above(logit, heap[child], token))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = token;
}

PLAIN double sample_weight(const float *logit, int32_t token, float best, double temperature)
{
    return exp(((double)logit[token] - (double)best) / temperature);
}

/* Moves the best token of a heap of *heaped tokens to the heap's end and shortens the heap by it. Returns the token. */
PLAIN int32_t sample_pop(const float *logit, int32_t *heap, int *heaped)
{
    int32_t best = heap[0];
    heap[0] = heap[--*heaped];
    heap[*heaped] = best;
    sample_sink(logit, heap, *heaped, 0);
    return best;
}

/* Writes the tokens that the filter keeps to kept[vocab], in no particular order. Returns their number, at least 1. `best`:
 * sample_best of the row, not -1. */
PLAIN int sample_keep(const float *logit, int vocab, int32_t best, const struct sample_filter *filter, int32_t *kept)
{
    const double temperature = filter->temperature;
    int count = 0, heaped, first = 0;
    for (int32_t token = 0; token < vocab; token++)
        if (logit[token] > -INFINITY)
            kept[count++] = token;
    int limit = filter->top_k > 0 && filter->top_k < count ? filter->top_k : count;
    if (limit < count || filter->top_p < 1) {
        /* Sorts from the end of the array, only as far as needed: the best tokens are in kept[first .. count), worst first. */
        double total = 0, mass = 0;
        for (int at = 0; limit == count && at < count; at++)
            total += sample_weight(logit, kept[at], logit[best], temperature);
        for (int at = count / 2; at-- > 0;)
            sample_sink(logit, kept, count, at);
        heaped = count;
        if (limit < count) {
            for (int n = 0; n < limit; n++)
                total += sample_weight(logit, sample_pop(logit, kept, &heaped), logit[best], temperature);
            first = heaped;
        } else {
            first = count;
        }
        if (filter->top_p < 1) {
            int at = count;
            while (at == count || (mass < filter->top_p * total && count - at < limit)) {
                if (at == first) {
                    sample_pop(logit, kept, &heaped);
                    first = heaped;
                }
                mass += sample_weight(logit, kept[--at], logit[best], temperature);
            }
            first = at;
        }
    }
    int out = 0;
    for (int at = first; at < count; at++)
        if (filter->min_p <= 0 || sample_weight(logit, kept[at], logit[best], temperature) >= filter->min_p)
            kept[out++] = kept[at];
    return out;
}

/* Draws one of kept[0 .. count), which must not be empty. */
PLAIN int32_t sample_gumbel(const float *logit, const int32_t *kept, int count, double temperature,
                            const struct sample_draw *draw)
{
    /* u below 0.9996 means g < 7.9, so a token more than 7.9 below the leader cannot win, and its logarithm is not computed. */
    const double unlikely = 0.9996, margin = 7.9;
    struct philox block = {{0, 0, 0, 0}};
    int32_t winner = -1, pair = -1;
    double max = 0, largest = logit[kept[0]];
    for (int at = 1; at < count; at++)
        largest = logit[kept[at]] > largest ? logit[kept[at]] : largest;
    for (int at = 0; at < count; at++) {
        int32_t token = kept[at];
        if (token >> 1 != pair) {
            struct philox counter = {{(uint32_t)token >> 1, draw->position, draw->ordinal, draw->sample}};
            pair = token >> 1;
            block = philox(counter, draw->key);
        }
        double z = ((double)logit[token] - largest) / temperature;
        double u = philox_uniform(block.word[2 * (token & 1)], block.word[2 * (token & 1) + 1]);
        if (winner >= 0 && u < unlikely && max - z > margin)
            continue;
        double value = z - log(-log(u));
        if (winner < 0 || value > max || (value == max && token < winner)) {
            winner = token;
            max = value;
        }
    }
    return winner;
}

/* Returns the token after these logits: the best at temperature 0, otherwise a drawn one; -1 if they are not finite. */
PLAIN int32_t sample_token(const float *logit, int vocab, const struct sample_filter *filter, const struct sample_draw *draw,
                           int32_t *kept)
{
    int32_t best = sample_best(logit, vocab);
    if (best < 0 || !(filter->temperature > 0))
        return best;
    return sample_gumbel(logit, kept, sample_keep(logit, vocab, best, filter, kept), filter->temperature, draw);
}

/* Computes the distribution that sample_token draws from: probability[vocab], 0 for filtered tokens; at temperature 0 the best
 * token has probability 1. Returns the number of tokens that are kept; 0 if the logits are not finite. */
PLAIN int sample_probabilities(const float *logit, int vocab, const struct sample_filter *filter, int32_t *kept,
                               double *probability)
{
    int32_t best = sample_best(logit, vocab);
    double total = 0;
    if (best < 0)
        return 0;
    for (int32_t token = 0; token < vocab; token++)
        probability[token] = 0;
    if (!(filter->temperature > 0)) {
        probability[best] = 1;
        return 1;
    }
    int count = sample_keep(logit, vocab, best, filter, kept);
    for (int at = 0; at < count; at++)
        total += probability[kept[at]] = sample_weight(logit, kept[at], logit[best], filter->temperature);
    for (int at = 0; at < count; at++)
        probability[kept[at]] /= total;
    return count;
}

#endif

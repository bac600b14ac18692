/* Typical acceptance: a drafted token is kept if the target's probability of it exceeds a threshold that depends on the
 * target's entropy. NOT lossless: neither the text nor its distribution is the target's.
 *
 *     kept: p(x) > min(epsilon, delta exp(-H(p))),  p the target's distribution after temperature and filter, H its entropy in
 *     nats
 *
 * Among the paths whose tokens are all kept the longest is accepted, among equally long ones the most probable, then the one
 * drafted first. The token after it is the target's best one. At temperature 0 only the best token has p > 0, so the text is
 * exact. Source: Cai et al. (Medusa), arXiv 2401.10774, section 2.3.1; its programs use epsilon 0.09 and delta 0.3. */
#ifndef MOE_KERNELS_PLAIN_TYPICAL_H
#define MOE_KERNELS_PLAIN_TYPICAL_H

#include "kernels/plain/sample.h"

PLAIN double typical_threshold(const double *probability, int vocab, double epsilon, double delta)
{
    double entropy = 0;
    for (int32_t v = 0; v < vocab; v++)
        entropy -= probability[v] > 0 ? probability[v] * log(probability[v]) : 0;
    double limit = delta * exp(-entropy);
    return limit < epsilon ? limit : epsilon;
}

/* Accepts nodes; result as of reject_walk. Scratch: kept[vocab], probability[vocab], score[nodes] (log-probability of the
 * path), depth[nodes] (0: not kept). */
PLAIN int typical_walk(const int32_t *token, const int32_t *parent, int nodes, const float *logits, int vocab,
                       const struct sample_filter *filter, double epsilon, double delta, int32_t *kept, double *probability,
                       double *score, int32_t *depth, int32_t *path, int32_t *emitted)
{
    int best = -1, accepted = 0;
    for (int node = 0; node < nodes; node++)
        depth[node] = 0;
    for (int at = -1; at < nodes; at++) {
        const int level = at < 0 ? 0 : depth[at];
        double threshold = -1;
        if (at >= 0 && !level)
            continue;
        for (int node = at + 1; node < nodes; node++) {
            if (parent[node] != at)
                continue;
            if (threshold < 0) {        /* its first child */
                if (!sample_probabilities(logits + (size_t)(at + 1) * (size_t)vocab, vocab, filter, kept, probability))
                    return -1 - level;
                threshold = typical_threshold(probability, vocab, epsilon, delta);
            }
            double p = probability[token[node]];
            if (!(p > threshold))
                continue;
            depth[node] = level + 1;
            score[node] = (at < 0 ? 0 : score[at]) + log(p);
            if (best < 0 || depth[node] > depth[best] || (depth[node] == depth[best] && score[node] > score[best]))
                best = node;
        }
    }
    accepted = best < 0 ? 0 : depth[best];
    emitted[accepted] = sample_best(logits + (size_t)(best + 1) * (size_t)vocab, vocab);
    if (emitted[accepted] < 0)
        return -1 - accepted;
    for (int at = best, n = accepted; n-- > 0; at = parent[at]) {
        path[n] = at;
        emitted[n] = token[at];
    }
    return accepted;
}

#endif

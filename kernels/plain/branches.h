/* Drafting and acceptance as in Jakiro*'s program above temperature 0 (sample_moe and evaluate_posterior of its repository;
 * arXiv 2502.06282, section 3.2). NOT lossless: neither the text nor its distribution is the target's.
 *
 * A row has logits of two branches, each with temperature and filter applied separately.
 *
 *     drawn         without replacement, from one softmax over the tokens of both branches together, 2 x vocab
 *     c(x)          the recorded probability: s(x) / (1 - the sum of s over the tokens drawn before), s the SECOND branch's
 *                   share of that softmax, whichever branch x was drawn from
 *     q             softmax of the mean of both branches' PROBABILITIES, so nearly uniform
 *
 * The children of a node are tried in order; r starts as the target's p, after temperature and filter. A child x with c(x) = 0
 * is skipped. Others are kept with probability min(1, r(x) / c(x)); otherwise r <- norm(max(r - q', 0)), where q' is q without
 * x's earlier siblings, normalised. If no child is kept, the token is drawn from r; if none was tried, from the softmax of the
 * target's plain logits, without temperature and filter.
 *
 * As in the program, a token that both branches drew is recorded once, with its first c. Unlike there, its second draw becomes
 * no child; in the program it has children of its own. reject.h has the exact rule for the same head, on the sum of both
 * branches' shares. */
#ifndef MOE_KERNELS_PLAIN_BRANCHES_H
#define MOE_KERNELS_PLAIN_BRANCHES_H

#include "kernels/plain/propose.h"
#include "kernels/plain/reject.h"

/* The proposal of a row is [2][stride]: c(x) for its children and 0 for other tokens, then q. */

/* Computes both [2 * vocab]: logarithms of the shares, -INFINITY for filtered tokens. Returns 0 if logits are not finite. */
PLAIN int branches_shares(const float *const logit[2], int vocab, const struct sample_filter *filter, int32_t *kept,
                          float *both)
{
    const int32_t best[2] = {sample_best(logit[0], vocab), sample_best(logit[1], vocab)};
    double sum = 0;
    if (best[0] < 0 || best[1] < 0)
        return 0;
    const double one = (double)logit[0][best[0]], other = (double)logit[1][best[1]], max = one > other ? one : other;
    for (int i = 0; i < 2 * vocab; i++)
        both[i] = -INFINITY;
    for (int branch = 0; branch < 2; branch++)
        for (int at = sample_keep(logit[branch], vocab, best[branch], filter, kept); at-- > 0;) {
            const double value = ((double)logit[branch][kept[at]] - max) / filter->temperature;
            both[branch * vocab + kept[at]] = (float)value;
            sum += exp(value);
        }
    for (int i = 0; i < 2 * vocab; i++)
        both[i] = (float)((double)both[i] - log(sum));
    return 1;
}

/* Computes q [vocab] from the shares. */
PLAIN void branches_even(const float *both, int vocab, float *q)
{
    double share[2] = {0, 0}, sum = 0;
    for (int branch = 0; branch < 2; branch++)
        for (int v = 0; v < vocab; v++)
            share[branch] += exp((double)both[branch * vocab + v]);
    for (int v = 0; v < vocab; v++) {
        q[v] = (float)exp((exp((double)both[v]) / share[0] + exp((double)both[vocab + v]) / share[1]) / 2);
        sum += (double)q[v];
    }
    for (int v = 0; v < vocab; v++)
        q[v] = (float)((double)q[v] / sum);
}

/* Draws `max` tokens of both branches and writes the distinct ones to token[], with the logarithm of the sum of both branches'
 * shares. Returns their number, or 0 if logits are not finite. draw: as in propose_tokens; proposal: see above, for a
 * vocabulary of `stride`. Scratch: kept[2 * vocab], value[2 * vocab], both[2 * vocab]. */
PLAIN int branches_propose(const float *const logit[2], int vocab, const struct sample_filter *filter,
                           const struct sample_draw *draw, int max, int32_t *kept, double *value, float *both, int32_t *token,
                           float *log_probability, float *proposal, int stride)
{
    const struct sample_filter whole = {.temperature = 1, .top_p = 1};
    double before = 0;
    int found = 0;
    if (!branches_shares(logit, vocab, filter, kept, both))
        return 0;
    const int drawn = propose_tokens(both, 2 * vocab, &whole, draw, max, kept, value, token, 0);
    for (int v = 0; v < 2 * stride; v++)
        proposal[v] = 0;
    branches_even(both, vocab, proposal + stride);
    for (int at = 0; at < drawn; at++) {
        const int32_t x = token[at] % vocab;
        const double share = exp((double)both[vocab + x]), chance = before < 1 ? share / (1 - before) : 0;
        int known = 0;
        for (int i = 0; i < found; i++)
            known |= token[i] == x;
        before += share;
        if (known)
            continue;
        proposal[x] = chance < 1 ? (float)chance : 1;
        log_probability[found] = (float)log(exp((double)both[x]) + share);
        token[found++] = x;
    }
    return found;
}

/* Returns q(token), or 0 for tokens of the children of `at` before `node`. */
PLAIN double branches_left(const struct reject_draft *draft, int at, int node, const float *q, int32_t token)
{
    for (int before = at + 1; before < node; before++)
        if (draft->parent[before] == at && draft->token[before] == token)
            return 0;
    return (double)q[token];
}

/* Updates r <- norm(max(r - q', 0)) after the rejection of `node`, a child of `at`; r[vocab] sums to 1. */
PLAIN void branches_refuse(const struct reject_draft *draft, int at, int node, const float *q, int vocab, double *r)
{
    double rest = 0, left = 0;
    for (int32_t v = 0; v < vocab; v++)
        rest += branches_left(draft, at, node, q, v);
    for (int32_t v = 0; v < vocab; v++) {
        const double more = r[v] - branches_left(draft, at, node, q, v) / rest;
        left += more > 0 ? more : 0;
    }
    for (int32_t v = 0; v < vocab && left > 0; v++) {         /* if left is 0, r equals q', and the program would divide by 0 */
        const double more = r[v] - branches_left(draft, at, node, q, v) / rest;
        r[v] = more > 0 ? more / left : 0;
    }
}

/* Walks a draft like reject_walk; every node must have a proposal as above. The filter's temperature must be above 0. */
PLAIN int branches_walk(const struct reject_draft *draft, const float *logits, int vocab, const struct sample_filter *filter,
                        const struct sample_draw *draw, int32_t *kept, double *residual, int32_t *path, int32_t *emitted)
{
    const struct sample_filter none = {.temperature = 1, .top_p = 1};
    struct sample_draw here = *draw;
    int at = -1, accepted = 0;
    for (;;) {
        const float *row = logits + (size_t)(at + 1) * (size_t)vocab;
        uint32_t child = 0;
        int found = -1, tried = 0;
        here.position = draw->position + 1 + (uint32_t)accepted;
        if (!sample_probabilities(row, vocab, filter, kept, residual))
            return -1 - accepted;
        for (int node = at + 1; node < draft->nodes && found < 0; node++) {
            const float *proposal = draft->proposal[node];
            const int32_t x = draft->token[node];
            if (draft->parent[node] != at)
                continue;
            const double uniform = reject_uniform(&here, ++child);
            if (!(proposal[x] > 0))
                continue;
            tried = 1;
            if (uniform * (double)proposal[x] <= residual[x])
                found = node;
            else
                branches_refuse(draft, at, node, proposal + vocab, vocab, residual);
        }
        if (found < 0) {
            if (!tried)
                sample_probabilities(row, vocab, &none, kept, residual);
            emitted[accepted] = reject_draw(residual, vocab, 1, reject_uniform(&here, 0));
            return accepted;
        }
        path[accepted] = at = found;
        emitted[accepted++] = draft->token[found];
    }
}

#endif

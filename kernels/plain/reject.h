/* Acceptance by rejection sampling: a drafted token is kept with a probability such that the emitted tokens have the
 * distribution of the target's own tokens, whatever the draft. The text depends on the draft, its distribution does not.
 *
 * The children of a node are tried in order. r starts as p, the distribution that the target would sample from after this node,
 * WITH TEMPERATURE AND FILTER, which also apply to the final draw. For a child x:
 *
 *     drawn from q:       keep x with probability min(1, r(x) / q(x)); else r <- norm(max(r - q, 0))
 *     not drawn:          keep x with probability r(x); else r(x) <- 0, r <- norm(r)
 *
 * If no child is kept, the token is drawn from r. Here q is the child's proposal without the tokens of its earlier siblings,
 * normalised, because children are drawn without replacement. The second line is the first with all of q on x. It applies to a
 * child that follows from the text alone (an n-gram, the top k of a draft model).
 *
 * Sources: a chain: Leviathan, Kalman, Matias, arXiv 2211.17192, algorithm 1, and Chen et al., arXiv 2302.01318, algorithm 2.
 * Several children with replacement: Miao et al. (SpecInfer), arXiv 2305.09781, algorithm 2; without replacement: Chen et al.
 * (Sequoia), arXiv 2402.12374, algorithm 2, and Jeon et al., arXiv 2402.14160, section 3. Trees of children that were not
 * drawn: EAGLE's rule, the case q = 1 of the above.
 *
 * The first line is correct only if the tree was pruned by information available before the token was drawn: a child that is
 * dropped for its own probability was not drawn from the given q. The second line is correct for every token, drawn or not and
 * however chosen, but keeps fewer. So a draft that is pruned by its tokens must be passed without proposals. */
#ifndef MOE_KERNELS_PLAIN_REJECT_H
#define MOE_KERNELS_PLAIN_REJECT_H

#include "kernels/plain/sample.h"

struct reject_draft {
    int nodes;
    const int32_t *token, *parent;      /* [nodes] parent: an earlier node, or -1 for the root; siblings are distinct and in the
                                         * order of their draws */
    const float *const *proposal;       /* [nodes] the distribution [vocab] that a node was drawn from, before the tokens of
                                         * earlier siblings were removed (so siblings share it); NULL: the node was not drawn.
                                         * NULL itself: no node was */
};

/* Returns a number in (0, 1) for this draw, independent of the tokens' noise, whose counters do not have the two upper bits. */
PLAIN double reject_uniform(const struct sample_draw *draw, uint32_t index)
{
    struct philox counter = {{0x80000000u | index, draw->position, draw->ordinal, draw->sample}};
    struct philox block = philox(counter, draw->key);
    return philox_uniform(block.word[0], block.word[1]);
}

/* Tries the child `token`. residual[vocab] is r times *total, and -1 for rejected siblings. Returns 1 if the child is kept;
 * otherwise updates residual and *total and returns 0. */
PLAIN int reject_child(double *residual, int vocab, double *total, int32_t token, const float *proposal, double uniform)
{
    double rest = 0, left = 0;
    if (!proposal) {
        if (*total <= residual[token] || uniform * *total < residual[token])
            return 1;
        residual[token] = -1;
        for (int32_t v = 0; v < vocab; v++)
            left += residual[v] > 0 ? residual[v] : 0;
    } else {
        for (int32_t v = 0; v < vocab; v++)
            rest += residual[v] >= 0 ? (double)proposal[v] : 0;
        if (residual[token] < 0 || !((double)proposal[token] > 0))
            return 0;                   /* cannot have been drawn */
        if (uniform * ((double)proposal[token] / rest) < residual[token] / *total)
            return 1;
        for (int32_t v = 0; v < vocab; v++)
            if (residual[v] >= 0) {
                double more = residual[v] / *total - (double)proposal[v] / rest;
                residual[v] = more > 0 ? more : 0;
                left += residual[v];
            }
        residual[token] = -1;
        if (!(left > 0))
            return 1;                   /* r equals q: only rounding rejected it */
    }
    *total = left;
    return 0;
}

/* Returns the token at which the running sum of the residual exceeds `uniform` of its total. */
PLAIN int32_t reject_draw(const double *residual, int vocab, double total, double uniform)
{
    int32_t last = 0;
    double sum = 0, aim = uniform * total;
    for (int32_t v = 0; v < vocab; v++)
        if (residual[v] > 0) {
            last = v;
            sum += residual[v];
            if (sum > aim)
                break;
        }
    return last;
}

/* Accepts nodes of a draft. logits [1 + nodes][vocab]: row 0 the root's, row i + 1 node i's; draw->position: the root's. Writes
 * the accepted nodes to path[nodes], and their tokens and the one after them to emitted[nodes + 1]. Returns the number of
 * accepted nodes, or -n if the logits that choose the n-th token after the root are not finite. Scratch: kept[vocab],
 * residual[vocab]. */
PLAIN int reject_walk(const struct reject_draft *draft, const float *logits, int vocab, const struct sample_filter *filter,
                      const struct sample_draw *draw, int32_t *kept, double *residual, int32_t *path, int32_t *emitted)
{
    struct sample_draw here = *draw;
    int at = -1, accepted = 0;
    for (;;) {
        double total = 1;
        uint32_t child = 0;
        int found = -1;
        here.position = draw->position + 1 + (uint32_t)accepted;
        if (!sample_probabilities(logits + (size_t)(at + 1) * (size_t)vocab, vocab, filter, kept, residual))
            return -1 - accepted;
        for (int node = at + 1; node < draft->nodes && found < 0; node++)
            if (draft->parent[node] == at && reject_child(residual, vocab, &total, draft->token[node],
                                                          draft->proposal ? draft->proposal[node] : 0,
                                                          reject_uniform(&here, ++child)))
                found = node;
        if (found < 0) {
            emitted[accepted] = reject_draw(residual, vocab, total, reject_uniform(&here, 0));
            return accepted;
        }
        path[accepted] = at = found;
        emitted[accepted++] = draft->token[found];
    }
}

#endif

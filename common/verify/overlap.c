#include "common/verify/overlap.h"

#include <math.h>

#include "common/base/mem.h"
#include "kernels/plain/overlap.h"

int overlap_init(struct overlap *overlap, const struct sample_filter *filter, int vocab, int nodes, struct err *err)
{
    *overlap = (struct overlap){.filter = *filter, .vocab = vocab};
    overlap->token = mem_alloc((size_t)vocab, sizeof *overlap->token, err);
    overlap->probability = mem_alloc((size_t)vocab, sizeof *overlap->probability, err);
    overlap->children = mem_alloc((size_t)nodes + 1, sizeof *overlap->children, err);
    overlap->of_row = mem_alloc((size_t)nodes + 1, sizeof *overlap->of_row, err);
    return overlap->token && overlap->probability && overlap->children && overlap->of_row ? 0 : -1;
}

void overlap_free(struct overlap *overlap)
{
    mem_free(&overlap->token);
    mem_free(&overlap->probability);
    mem_free(&overlap->children);
    mem_free(&overlap->of_row);
    *overlap = (struct overlap){0};
}

/* Returns whether a node's token was drawn at random. A reviewer keeps the tokens that it drew itself. */
static bool is_drawn(const struct draft_tree *tree, int node, const bool *draws)
{
    return draws[tree->drafter[node]] || (tree->reviewer[node] >= 0 && draws[tree->reviewer[node]]);
}

const float *overlap_measure(struct overlap *overlap, const struct draft_tree *tree, const uint8_t *kept, const bool *draws,
                             const float *logits)
{
    for (int row = 0; row <= tree->nodes; row++) {
        overlap->children[row] = 0;
        overlap->of_row[row] = NAN;
    }
    for (int node = 0; node < tree->nodes; node++)
        overlap->children[1 + tree->parent[node]]++;
    for (int node = 0; node < tree->nodes; node++) {
        const int above = 1 + tree->parent[node];
        const float *proposal = tree->proposal[node];
        if (!kept[above] || overlap->children[above] != 1 || (is_drawn(tree, node, draws) && !proposal))
            continue;
        sample_probabilities(logits + (size_t)above * (size_t)overlap->vocab, overlap->vocab, &overlap->filter, overlap->token,
                             overlap->probability);
        overlap->of_row[1 + node] = (float)(proposal ? overlap_mass(overlap->probability, proposal, overlap->vocab)
                                                     : overlap->probability[tree->token[node]]);
    }
    return overlap->of_row;
}

#include "common/route/pairs.h"

#include <string.h>

#include "common/base/mem.h"

/* Layers from .. from + layers of the model's, being counted. */
struct block {
    int from, layers, moe_layers, experts, top_k;
    int64_t *count;             /* [layers][experts][experts]; of a pair in either order, until both are added up */
};

static void count_tokens(void *context, const int16_t *expert, int tokens)
{
    const struct block *block = context;
    size_t experts = (size_t)block->experts, token = (size_t)block->moe_layers * (size_t)block->top_k;
    for (int layer = 0; layer < block->layers; layer++) {       /* a layer's counts stay in the nearest cache */
        const int16_t *slot = expert + (size_t)(block->from + layer) * (size_t)block->top_k;
        int64_t *count = block->count + (size_t)layer * experts * experts;
        for (int i = 0; i < tokens; i++, slot += token)
            for (int s = 0; s < block->top_k; s++) {
                int64_t *row = count + (size_t)(slot[s] < 0 ? 0 : slot[s]) * experts;
                for (int t = s; slot[s] >= 0 && t < block->top_k; t++)
                    if (slot[t] >= 0)
                        row[slot[t]]++;
            }
    }
}

static void mirror(int64_t *count, size_t experts)
{
    for (size_t a = 0; a < experts; a++)
        for (size_t b = a + 1; b < experts; b++)
            count[a * experts + b] = count[b * experts + a] = count[a * experts + b] + count[b * experts + a];
}

int route_pairs_each(struct route_spool *spool, const struct route_counts *counts, route_pairs_function *each, void *context,
                     struct err *err)
{
    size_t square = (size_t)counts->experts * (size_t)counts->experts;
    struct block block = { .moe_layers = counts->moe_layers, .experts = counts->experts, .top_k = counts->top_k };
    int rc = -1;
    if (!counts->tokens)
        return err_set(err, ERR_INPUT, "the routes have no tokens of this phase, so no pairs; profile prompts, and answers "
                       "with -n");
    if (counts->experts > PAIRS_EXPERTS_MAX)
        return err_set(err, ERR_INPUT, "pairs of %d experts are too many to count; up to %d can be", counts->experts,
                       PAIRS_EXPERTS_MAX);
    size_t fit = PAIRS_BYTES / (square * sizeof *block.count);
    int most = fit < 1 ? 1 : fit < (size_t)counts->moe_layers ? (int)fit : counts->moe_layers;
    if (!(block.count = mem_alloc((size_t)most * square, sizeof *block.count, err)))
        return -1;
    for (block.from = 0; block.from < counts->moe_layers; block.from += block.layers) {
        block.layers = counts->moe_layers - block.from < most ? counts->moe_layers - block.from : most;
        memset(block.count, 0, (size_t)block.layers * square * sizeof *block.count);
        if (route_spool_replay(spool, count_tokens, &block, err))
            goto done;
        for (int layer = 0; layer < block.layers; layer++) {
            int64_t *count = block.count + (size_t)layer * square;
            mirror(count, (size_t)counts->experts);
            if (each(context, block.from + layer, count, err))
                goto done;
        }
    }
    rc = 0;
done:
    mem_free(&block.count);
    return rc;
}

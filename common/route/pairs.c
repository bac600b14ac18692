#include "common/route/pairs.h"

#include <string.h>

#include "common/base/mem.h"

/* Counts of pairs of different slots of a token, in slot order, for layers from .. from + layers - 1. Row and column 0 are for
 * dropped slots. 32 bits suffice for ROUTE_TOKENS_MAX tokens, and keep the counts of two layers in the first-level cache. */
struct block {
    int from, layers, experts, top_k;
    uint32_t *count;            /* [layers][1 + experts][1 + experts] */
};

static inline void count_pairs(uint32_t *restrict count, size_t wide, const int16_t *restrict slot, int tokens, int top_k)
{
    for (int i = 0; i < tokens; i++, slot += top_k)
        for (int s = 0; s + 1 < top_k; s++) {
            uint32_t *row = count + (size_t)(slot[s] + 1) * wide + 1;
            for (int t = s + 1; t < top_k; t++)
                row[slot[t]]++;
        }
}

/* Counts the pairs of tokens. Common numbers of slots are constants, so that the compiler unrolls the loops. */
static void count_tokens(void *context, int layer, const int16_t *slot, int tokens)
{
    const struct block *block = context;
    size_t wide = (size_t)block->experts + 1;
    uint32_t *count = block->count + (size_t)(layer - block->from) * wide * wide;
    switch (block->top_k) {
    case 2: count_pairs(count, wide, slot, tokens, 2); break;
    case 4: count_pairs(count, wide, slot, tokens, 4); break;
    case 6: count_pairs(count, wide, slot, tokens, 6); break;
    case 8: count_pairs(count, wide, slot, tokens, 8); break;
    default: count_pairs(count, wide, slot, tokens, block->top_k);
    }
}

/* Adds both orders of each pair. An expert pairs with itself only if a damaged stream has a token that selects it twice. */
static void add_up(int64_t *out, const uint32_t *count, const int64_t *selected, size_t experts)
{
    size_t wide = experts + 1;
    for (size_t a = 0; a < experts; a++) {
        out[a * experts + a] = selected[a] + count[(a + 1) * wide + a + 1];
        for (size_t b = a + 1; b < experts; b++)
            out[a * experts + b] = out[b * experts + a] = (int64_t)count[(a + 1) * wide + b + 1] +
                                                          (int64_t)count[(b + 1) * wide + a + 1];
    }
}

int route_pairs_each(struct route_spool *spool, const struct route_counts *counts, route_pairs_function *each, void *context,
                     struct err *err)
{
    size_t experts = (size_t)counts->experts, square = (experts + 1) * (experts + 1);
    struct block block = { .experts = counts->experts, .top_k = counts->top_k };
    int64_t *count = NULL;
    int rc = -1;
    if (!counts->tokens)
        return err_set(err, ERR_INPUT, "the routes have no tokens of this --phase; choose another, or record them with "
                       "moe-profile (answers with -n)");
    if (counts->experts > PAIRS_EXPERTS_MAX)
        return err_set(err, ERR_INPUT, "pairs of %d experts cannot be counted; the maximum is %d experts", counts->experts,
                       PAIRS_EXPERTS_MAX);
    size_t fit = PAIRS_BYTES / (square * sizeof *block.count);
    int max = fit < 1 ? 1 : fit < (size_t)counts->moe_layers ? (int)fit : counts->moe_layers;
    if (!(block.count = mem_alloc((size_t)max * square, sizeof *block.count, err)) ||
        !(count = mem_alloc(experts * experts, sizeof *count, err)))
        goto done;
    for (block.from = 0; block.from < counts->moe_layers; block.from += block.layers) {
        block.layers = counts->moe_layers - block.from < max ? counts->moe_layers - block.from : max;
        memset(block.count, 0, (size_t)block.layers * square * sizeof *block.count);
        if (route_spool_replay(spool, block.from, block.from + block.layers, count_tokens, &block, err))
            goto done;
        for (int layer = 0; layer < block.layers; layer++) {
            add_up(count, block.count + (size_t)layer * square, counts->selected + (size_t)(block.from + layer) * experts,
                   experts);
            if (each(context, block.from + layer, count, err))
                goto done;
        }
    }
    rc = 0;
done:
    mem_free(&block.count);
    mem_free(&count);
    return rc;
}

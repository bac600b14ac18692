#include "common/stream/rank.h"

#include "common/base/mem.h"

static const struct field layer_fields[] = {
    FIELD(rank_layer, layer, false, "layer among those with a router, from 0"),
    FIELD(rank_layer, method, false, "method of the ranking: frequency, mass, ..."),
    FIELD(rank_layer, budget, true, "recommended number of experts to keep in this layer"),
    FIELD_ARRAY_OF(rank_layer, order, "[experts]", false, "experts, beginning with the one to keep first"),
    FIELD_ARRAY_OF(rank_layer, score, "[experts]", false, "score of the expert at the same index of order"),
};

static int check_layer(const void *body, const struct header *header, struct sequences *open, struct err *err)
{
    const struct rank_layer *rank = body;
    int experts = header->model.experts, rc = -1;
    uint8_t *seen;
    (void)open;
    if (rank->layer >= header->model.moe_layers)
        return err_set(err, ERR_INPUT, "layer %d does not exist, the model has %d; the stream is damaged", rank->layer,
                       header->model.moe_layers);
    if (rank->budget == 0 || rank->budget > experts)
        return err_set(err, ERR_INPUT, "the budget is %d, but must be from 1 to %d; the stream is damaged", rank->budget,
                       experts);
    seen = mem_alloc((size_t)experts, 1, err);
    if (!seen)
        return -1;
    for (int i = 0; i < experts; i++) {
        if (rank->order[i] < 0 || rank->order[i] >= experts || seen[rank->order[i]]++) {
            err_set(err, ERR_INPUT, "the order is not a permutation: expert %d at index %d; the stream is damaged",
                    rank->order[i], i);
            goto done;
        }
    }
    rc = 0;
done:
    mem_free(&seen);
    return rc;
}

const struct record_kind rank_layer_kind = {
    RECORD_KIND("rank", "one layer's experts in order", rank_layer, layer_fields, check_layer), .spread = true
};

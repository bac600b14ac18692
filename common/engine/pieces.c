#include "common/engine/pieces.h"

#include "common/base/mem.h"
#include "common/engine/internal.h"

static struct expert_source *source_of(const struct pieces *pieces) { return pieces->at->experts.source; }

int distinct_experts(const int32_t *ids, int count, int experts, int32_t *expert, int32_t *tokens)
{
    int distinct = 0;
    for (int e = 0; e < experts; e++)
        tokens[e] = 0;
    for (int i = 0; i < count; i++)
        if (ids[i] >= 0)
            tokens[ids[i]]++;
    for (int e = 0; e < experts; e++)
        if (tokens[e]) {
            tokens[distinct] = tokens[e];
            expert[distinct++] = e;
        }
    return distinct;
}

int pieces_begin(struct pieces *pieces, const struct layer *at, struct buffer expert, const int32_t *ids, int count,
                 struct err *err)
{
    struct workspace *space = at->space;
    *pieces = (struct pieces){.at = at, .wanted = {.layer = at->number}, .ids = ids, .all = expert, .count = count};
    if (source_of(pieces)->class->fixed && !at->forecast_to)
        return 0;
    if (!ids) {
        queue_download(space->device, space->by_slot, expert, (size_t)count * sizeof *ids);
        if (queue_wait(space->device, err))
            return -1;
        pieces->ids = space->by_slot;
    }
    pieces->wanted.expert = space->layer_experts;
    pieces->wanted.tokens = space->layer_tokens;
    pieces->wanted.count = distinct_experts(pieces->ids, count, space->shape->router.experts, space->layer_experts,
                                            space->layer_tokens);
    pieces->begun = !pieces->wanted.count;          /* every row has lost all of its experts to a budget */
    return 0;
}

bool pieces_left(const struct pieces *pieces)
{
    return !pieces->begun || pieces->wanted.done < pieces->wanted.count;
}

static int make_room(struct workspace *space, struct err *err)
{
    const size_t slots = (size_t)space->rows * (size_t)space->shape->router.top_k;
    if (space->piece_ids)
        return 0;
    device_free(space->device, &space->piece_expert);        /* what a failed attempt has left */
    return device_alloc(space->device, slots * sizeof(int32_t), &space->piece_expert, err) ||
           !(space->piece_ids = mem_alloc(slots, sizeof(int32_t), err)) ? -1 : 0;
}

/* The ids with those of the piece alone. */
static int mask_others(struct pieces *pieces, struct err *err)
{
    struct workspace *space = pieces->at->space;
    const struct expert_union *wanted = &pieces->wanted;
    if (make_room(space, err))
        return -1;
    for (int e = 0; e < space->shape->router.experts; e++)
        space->mark[e] = 0;
    for (int i = wanted->done; i < wanted->done + wanted->held; i++)
        space->mark[wanted->expert[i]] = 1;
    for (int i = 0; i < pieces->count; i++)
        space->piece_ids[i] = pieces->ids[i] >= 0 && space->mark[pieces->ids[i]] ? pieces->ids[i] : -1;
    queue_upload(space->device, space->piece_expert, space->piece_ids, (size_t)pieces->count * sizeof(int32_t));
    pieces->expert = space->piece_expert;
    return 0;
}

/* When reads of what is wanted now have begun. */
static int tell(struct pieces *pieces, struct err *err)
{
    const struct layer *at = pieces->at;
    const struct expert_union *wanted = &pieces->wanted;
    if (pieces->announced)
        return 0;
    pieces->announced = true;
    if (at->forecast_to &&
        expert_source_prefetch(at->forecast_to, at->number, wanted->expert, wanted->tokens, wanted->count, err))
        return -1;
    return ahead_tell(at, err);
}

int pieces_next(struct pieces *pieces, struct err *err)
{
    struct expert_union *wanted = &pieces->wanted;
    if (source_of(pieces)->class->acquire(source_of(pieces), wanted, &pieces->table, err))
        return err_at(err, "layer %d", pieces->at->number);
    pieces->whole = !wanted->done && wanted->held == wanted->count;
    pieces->begun = true;
    pieces->expert = pieces->all;
    if (!tell(pieces, err) && (pieces->whole || !mask_others(pieces, err)))
        return 0;
    pieces_release(pieces);
    return -1;
}

void pieces_release(struct pieces *pieces) { source_of(pieces)->class->release(source_of(pieces), &pieces->wanted); }

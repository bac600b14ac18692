#include "common/engine/pieces.h"

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/second.h"

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
                 struct second *second, struct err *err)
{
    struct workspace *space = at->space;
    *pieces = (struct pieces){.at = at, .wanted = {.layer = at->number}, .ids = ids, .all_ids = expert, .count = count,
                              .second = second};
    if (source_of(pieces)->class->fixed && !at->forecast_to && !second)
        return 0;
    if (second && second_take(second, at, err))
        return -1;
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
    pieces->all = pieces->wanted.count;
    if (second && second_split(second, at, pieces->ids, &pieces->wanted, err))
        return -1;
    pieces->begun = !pieces->wanted.count;          /* nothing to compute: dropped by a budget, or on the host */
    return second ? second_start(second, at, err) : 0;
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
    device_free(space->device, &space->piece_expert);        /* remains of a failed attempt */
    return device_alloc(space->device, slots * sizeof(int32_t), &space->piece_expert, err) ||
           !(space->piece_ids = mem_alloc(slots, sizeof(int32_t), err)) ? -1 : 0;
}

/* Uploads the expert ids with those outside the piece replaced by -1. */
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

/* Announces forecasts. Called when the reads of this layer's own experts have started. */
static int announce(struct pieces *pieces, struct err *err)
{
    const struct layer *at = pieces->at;
    const struct expert_union *wanted = &pieces->wanted;
    if (pieces->announced)
        return 0;
    pieces->announced = true;
    if (at->forecast_to &&
        expert_source_prefetch(at->forecast_to, at->number, wanted->expert, wanted->tokens, pieces->all, err))
        return -1;
    return ahead_announce(at, err);
}

int pieces_next(struct pieces *pieces, struct err *err)
{
    struct expert_union *wanted = &pieces->wanted;
    if (source_of(pieces)->class->acquire(source_of(pieces), wanted, &pieces->table, err))
        return err_at(err, "layer %d", pieces->at->number);
    pieces->whole = !wanted->done && wanted->held == pieces->all;
    pieces->begun = true;
    pieces->expert = pieces->all_ids;
    if (!announce(pieces, err) && (pieces->whole || !mask_others(pieces, err)))
        return 0;
    pieces_release(pieces);
    return -1;
}

void pieces_release(struct pieces *pieces) { source_of(pieces)->class->release(source_of(pieces), &pieces->wanted); }

int pieces_end(struct pieces *pieces, struct err *err) { return pieces->all ? announce(pieces, err) : 0; }

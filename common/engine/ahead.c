/* Predicts the experts of the next layer by applying its router to this layer's state: the residual stream after this
 * layer's attention, before its experts are added (Mixtral-Offloading, arXiv 2312.17238; Fate, 2502.12224). The predicted
 * experts can be read while this layer's are computed. Only scratch buffers are written; the forward is not affected. */
#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/pieces.h"

static int make_room(struct workspace *space, struct err *err)
{
    const struct hparams *shape = space->shape;
    const int64_t rows = space->rows, experts = hparams_choices(shape), top_k = shape->router.top_k;
    const struct { struct buffer *buffer; int64_t width; } all[] = {
        {&space->ahead_normed, shape->hidden}, {&space->ahead_logits, experts}, {&space->ahead_score, experts},
        {&space->ahead_zero, 1}, {&space->ahead_wanted, top_k}, {&space->ahead_expert, top_k}, {&space->ahead_weight, top_k}};
    if (space->ahead_tokens)
        return 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        device_free(space->device, all[i].buffer);              /* remains of a failed attempt */
        if (workspace_alloc(space->device, all[i].buffer, rows, all[i].width, sizeof(float), err))
            return -1;
    }
    mem_free(&space->ahead_ids);
    mem_free(&space->ahead_experts);
    if (!(space->ahead_ids = mem_alloc((size_t)(rows * top_k), sizeof(int32_t), err)) ||
        !(space->ahead_experts = mem_alloc((size_t)experts, sizeof(int32_t), err)))
        return -1;
    return (space->ahead_tokens = mem_alloc((size_t)experts, sizeof(int32_t), err)) ? 0 : -1;
}

/* Queues the prediction. Only the ids are downloaded; the caller waits anyway for this layer's routing, and ahead_announce
 * uses them afterwards. */
int ahead_queue(const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    const struct layer_weights *weights = at->next.weights;
    const struct hparams *shape = space->shape;
    const int rows = at->rows->rows;
    if (!weights)
        return 0;
    if (make_room(space, err))
        return -1;
    const struct buffer logits = shape->router.kind == ROUTER_SPARSEMIXER ? space->ahead_logits : space->ahead_score;
    if (shape->router.norm)
        layer_norm(space, space->x, weights->router_norm, (struct buffer){0, 0}, space->ahead_normed, rows);
    else
        layer_enter(at, weights, true, space->ahead_normed);
    space->ops->linear(space->queue, &(struct linear_args){
        .in = space->ahead_normed, .weight = weights->router.data, .bias = weights->router_bias, .out = logits,
        .operand = space->operand, .format = weights->router.format, .scale = shape->router.logit_scale, .rows = rows,
        .inputs = shape->hidden,
        .outputs = hparams_choices(shape), .in_stride = shape->hidden, .out_stride = hparams_choices(shape)});
    space->ops->route_score(space->queue, &(struct route_score_args){
        .logits = logits, .score = space->ahead_score, .kind = shape->router.kind, .rows = rows,
        .experts = hparams_choices(shape)});
    space->ops->route_select(space->queue, &(struct route_select_args){
        .score = space->ahead_score, .logits = logits, .bias = weights->router_correction,
        .expert_scale = weights->expert_scale, .wanted = space->ahead_wanted,
        .expert = space->ahead_expert, .weight = space->ahead_weight, .kind = shape->router.kind, .mode = BUDGET_SUBSTITUTE,
        .renormalise = shape->router.renormalise, .scale = shape->router.scale, .jitter = shape->router.jitter, .rows = rows,
        .zero = shape->router.zero_experts, .zero_weight = space->ahead_zero,
        .experts = hparams_choices(shape), .top_k = shape->router.top_k, .groups = shape->router.groups,
        .groups_kept = shape->router.groups_kept, .group_rank = shape->router.group_rank});
    queue_download(space->device, at->next.expert ? at->next.expert : space->ahead_ids, space->ahead_expert,
                   (size_t)rows * (size_t)shape->router.top_k * sizeof(int32_t));
    return 0;
}

int ahead_announce(const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    if (!at->next.weights || !at->next.forecast)
        return 0;
    const int count = distinct_experts(at->next.expert ? at->next.expert : space->ahead_ids,
                                       at->rows->rows * shape->router.top_k, shape->router.experts, space->ahead_experts,
                                       space->ahead_tokens);
    return expert_source_prefetch(at->experts.source, at->next.number, space->ahead_experts, space->ahead_tokens, count, err);
}

/* The feed-forward half of a layer: a dense block, or the router, its experts (chosen from all, or from those that a plan
 * allows) and the shared experts. */
#include "common/engine/internal.h"
#include "common/engine/peers.h"
#include "common/engine/pieces.h"
#include "common/engine/second.h"

/* Returns the buffer for router logits: a sparsemixer needs them beside the scores; otherwise they are in the buffer of the
 * scores. */
static struct buffer router_logits(const struct layer *at)
{
    const struct hparams *shape = at->space->shape;
    return shape->router.kind == ROUTER_SPARSEMIXER
        ? layer_rows_from(at->space->router_logits, at->first, shape->router.experts) : at->routing.score;
}

/* Returns the router's product, including the norm of its input: the layer's norm (`enters`: not computed yet) or the
 * router's own. Computes the layer's norm if the product does not include it. */
static struct norm_linear_args enter_logits(const struct layer *at, bool enters)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    const struct matrix *router = &at->weights->router;
    struct norm_linear_args args = {.linear = {
        .in = shape->router.norm ? space->router_normed : space->normed, .weight = router->data,
        .bias = at->weights->router_bias, .out = router_logits(at), .operand = space->operand, .format = router->format,
        .scale = shape->router.logit_scale, .rows = at->rows->rows, .inputs = shape->hidden,
        .outputs = hparams_choices(shape), .in_stride = shape->hidden, .out_stride = hparams_choices(shape)}};
    if (enters && !shape->router.norm)
        args.norm = layer_enter_norm(at, at->weights, true, space->normed);
    if (enters && !args.norm.rows)
        layer_enter(at, at->weights, true, space->normed);
    if (shape->router.norm)
        args.norm = layer_norm_args(space, space->x, at->weights->router_norm, (struct buffer){0, 0}, space->router_normed,
                                    at->rows->rows);
    return args;
}

static struct route_score_args score_args(const struct layer *at)
{
    const struct hparams *shape = at->space->shape;
    return (struct route_score_args){
        .logits = router_logits(at), .score = at->routing.score, .kind = shape->router.kind, .rows = at->rows->rows,
        .experts = hparams_choices(shape)};
}

/* Returns the selection of the top-k experts. Empty mask: the natural routing. */
static struct route_select_args select_args(const struct layer *at, struct buffer mask)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    const struct expert_plan *plan = at->plan;
    return (struct route_select_args){
        .score = at->routing.score, .logits = router_logits(at), .bias = at->weights->router_correction,
        .expert_scale = at->weights->expert_scale, .mask = mask,
        .wanted = at->routing.wanted, .expert = at->routing.expert, .weight = at->routing.weight,
        .zero_weight = space->zero_weight, .zero = shape->router.zero_experts, .kind = shape->router.kind,
        .mode = plan ? plan->mode : BUDGET_SUBSTITUTE, .renormalise = shape->router.renormalise, .scale = shape->router.scale,
        .jitter = shape->router.jitter, .rows = at->rows->rows, .experts = hparams_choices(shape),
        .top_k = at->routing.top_k, .groups = shape->router.groups, .groups_kept = shape->router.groups_kept,
        .group_rank = shape->router.group_rank};
}

static void select_experts(const struct layer *at, struct buffer mask)
{
    const struct route_select_args args = select_args(at, mask);
    at->space->ops->route_select(at->space->queue, &args);
}

/* Computes at->routing.mask, the experts allowed by a plan, from scores of this forward. For a static ranking the mask
 * already exists. */
static int make_mask(const struct layer *at, const struct expert_plan *plan, struct err *err)
{
    struct workspace *space = at->space;
    struct buffer none = {0, 0};
    if (plan->ranking == PLAN_ORACLE)
        return oracle_mask(at, plan->budget[at->moe], err);
    if (plan->ranking == PLAN_PRINTED)
        return oracle_mask_printed(at, plan->budget[at->moe], err);
    if (plan->ranking != PLAN_STATIC)
        space->ops->route_shortlist(space->queue, &(struct route_shortlist_args){
            .score = at->routing.score, .bias = at->weights->router_correction,
            .weight = plan->ranking == PLAN_PATH ? at->row_weight : none, .mask = at->routing.mask, .rows = at->rows->rows,
            .experts = space->shape->router.experts, .budget = plan->budget[at->moe]});
    return 0;
}

/* Replaces the router's choice by the caller's experts. */
static int force_experts(const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    size_t slots = (size_t)at->rows->rows * (size_t)at->routing.top_k, bytes = slots * sizeof(int32_t);
    const int32_t *expert = at->forced;
    float *weight = space->by_slot;
    for (size_t i = 0; i < slots; i++) {
        if (expert[i] < -1 || expert[i] >= space->shape->router.experts)
            return err_set(err, ERR_INPUT, "layer %d: forced routes select expert %d, but the layer has %d experts",
                           at->number, (int)expert[i],
                           space->shape->router.experts);
        weight[i] = expert[i] < 0 ? 0 : 1.0f / (float)at->routing.top_k;
    }
    queue_upload(space->device, at->routing.expert, expert, bytes);
    queue_upload(space->device, at->routing.wanted, expert, bytes);
    queue_upload(space->device, at->routing.weight, weight, bytes);
    return 0;
}

/* Return the buffer to which the feed-forward network adds its output, and the factor of the output (0: none). */
static struct buffer sum_of(const struct workspace *space) { return space->branch.address ? space->branch : space->x; }

static float scale_of(const struct workspace *space) { return space->branch.address ? 0 : space->shape->residual_scale; }

/* Returns the buffer to which routed experts add their output, which may be added to x a layer later. */
static struct buffer routed_sum_of(const struct workspace *space)
{
    return space->shortcut.address ? space->shortcut : sum_of(space);
}

static struct expert_ffn_args expert_args(const struct layer *at)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    return (struct expert_ffn_args){
        .in = workspace_experts_in(space), .out = routed_sum_of(space), .expert = at->routing.expert,
        .weight = shape->router.weigh_input ? (struct buffer){0, 0} : at->routing.weight,
        .gate_up_bias = at->weights->gate_up_bias, .down_bias = at->weights->down_bias,
        .limit = hparams_expert_limit(shape, at->number), .alpha = shape->glu_alpha, .glu = shape->glu,
        .inner = space->inner, .partial = space->partial, .group = space->group, .operand = space->operand,
        .ahead = shape->shared_inner ? (struct buffer){0, 0} : layer_ahead(at), .format = at->experts.format,
        .down_format = at->experts.down_format, .scale = scale_of(space), .slab = at->rows->slab,
        .rows = at->rows->rows, .slots = at->routing.top_k, .experts = shape->router.experts, .hidden = shape->hidden,
        .inner_width = shape->expert_inner, .stop = at->stop};
}

/* Multiplies the input of the routed experts by their weights, if the model does so. */
static void weigh_input(const struct layer *at)
{
    struct workspace *space = at->space;
    if (space->weighed.address)
        space->ops->blend(space->queue, &(struct blend_args){
            .part = space->normed, .weight = at->routing.weight, .out = space->weighed, .rows = at->rows->rows, .slots = 1,
            .width = space->shape->hidden});
}

static void add_zero_experts(const struct layer *at)
{
    struct workspace *space = at->space;
    if (space->zero_weight.address && !at->forced)
        space->ops->blend(space->queue, &(struct blend_args){
            .in = routed_sum_of(space), .part = space->normed, .weight = space->zero_weight, .out = routed_sum_of(space),
            .rows = at->rows->rows, .slots = 1, .width = space->shape->hidden});
}

/* Returns whether scores, choice and experts can be one operation: nothing between them uses the choice. */
static bool routes_with_experts(const struct layer *at, bool limited)
{
    const struct workspace *space = at->space;
    return space->ops->routed_ffn && at->experts.source->class->fixed && !at->forced && !at->forecast_to && !at->next.weights &&
           !at->second && !at->peers && !at->divided && !space->weighed.address && !space->zero_weight.address &&
           !at->reconstruction &&
           (!limited || at->plan->ranking == PLAN_STATIC);
}

/* Adds the output of the routed experts to x. With several pieces, processors or processes, the sum is computed after all
 * have run, because a row's experts must be added in a fixed order. route: the rest of an operation that also computes
 * scores and choice, whose `ffn` is filled in here; NULL: scores and choice have been computed. */
static int run_experts(const struct layer *at, struct routed_ffn_args *route, struct err *err)
{
    struct expert_ffn_args args = expert_args(at);
    struct buffer expert = at->routing.expert;
    struct pieces pieces;
    if (ahead_queue(at, err) || (at->peers && peers_mask(at->peers, at, &expert, err)) ||
        pieces_begin(&pieces, at, expert, NULL, at->rows->rows * at->routing.top_k, at->second, err))
        return -1;
    const bool two = pieces.all > pieces.wanted.count;
    if (two)
        args.partial = second_partial(at->second);
    while (pieces_left(&pieces)) {
        if (pieces_next(&pieces, err))
            return -1;
        args.expert = pieces.expert;
        args.table = pieces.table;
        args.apart = at->peers || !pieces.whole;
        const bool divided = pieces.whole && peers_divides(at->divided, (uint64_t)at->experts.bytes);
        const int rc = divided ? peers_ffn(at->divided, at->space, &args, err) : 0;
        if (route) {
            route->ffn = args;
            at->space->ops->routed_ffn(at->space->queue, route);
        } else if (!divided) {
            at->space->ops->expert_ffn(at->space->queue, &args);
        }
        pieces_release(&pieces);
        if (rc)
            return -1;
    }
    if (pieces_end(&pieces, err) || (two && second_finish(at->second, at, at->space->partial, err)) ||
        (at->peers && peers_join(at->peers, at, err)))
        return -1;
    args.expert = at->routing.expert;
    args.partial = at->space->partial;
    args.apart |= two;
    if (args.apart)
        at->space->ops->expert_sum(at->space->queue, &args);
    return 0;
}

/* Returns the layer with the rows of one text only, for the choice of its experts. */
static struct layer rows_of_text(const struct layer *at, const struct layer_text *text)
{
    struct layer own = *at;
    own.rows = &text->rows;
    own.first = text->first;
    own.routing.score = layer_rows_from(at->routing.score, text->first, at->space->shape->router.experts);
    own.routing.wanted = layer_rows_from(at->routing.wanted, text->first, at->routing.top_k);
    own.routing.expert = layer_rows_from(at->routing.expert, text->first, at->routing.top_k);
    own.routing.weight = layer_rows_from(at->routing.weight, text->first, at->routing.top_k);
    own.row_weight = layer_rows_from(at->row_weight, text->first, 1);
    own.plan = text->plan;
    return own;
}

/* Returns whether the plan allows fewer than all experts of the layer. */
static bool is_limited(const struct layer *at, const struct expert_plan *plan)
{
    return plan && plan->budget[at->moe] < at->space->shape->router.experts;
}

/* Selects experts under a plan that ranks by rows: each text is ranked by its own rows, and has its own budget. */
static int select_by_text(const struct layer *at, struct err *err)
{
    for (int i = 0; i < at->texts; i++) {
        const struct layer own = rows_of_text(at, &at->text[i]);
        const bool limited = is_limited(&own, own.plan);
        if (limited && make_mask(&own, own.plan, err))
            return -1;
        select_experts(&own, limited ? own.routing.mask : (struct buffer){0, 0});
    }
    return 0;
}

/* Selects the experts of all rows. limited: the plan of some text allows fewer than all experts. */
static int select_routed(const struct layer *at, bool limited, struct err *err)
{
    const struct expert_plan *plan = at->plan;
    const bool measured = limited && at->reconstruction;
    const bool needs_outputs = measured || (limited && plan->ranking == PLAN_ORACLE);
    if (limited && at->texts > 1 && plan->ranking != PLAN_STATIC)
        return select_by_text(at, err);
    if (needs_outputs || (limited && plan->ranking == PLAN_PRINTED))
        select_experts(at, (struct buffer){0, 0});
    if (needs_outputs && oracle_contributions(at, err))
        return -1;
    if (limited && make_mask(at, plan, err))
        return -1;
    select_experts(at, limited ? at->routing.mask : (struct buffer){0, 0});
    if (at->forced && force_experts(at, err))
        return -1;
    return measured ? oracle_compare(at, at->reconstruction, err) : 0;
}

/* Runs the router and its experts; enters: after the norm of the layer's input. */
static int routed_ffn(const struct layer *at, bool enters, struct err *err)
{
    bool limited = false;
    for (int i = 0; i < at->texts && !limited; i++)
        limited = is_limited(at, at->text[i].plan);
    struct routed_ffn_args route = {
        .logits = enter_logits(at, enters), .score = score_args(at),
        .select = select_args(at, limited ? at->routing.mask : (struct buffer){0, 0})};
    if (routes_with_experts(at, limited))
        return run_experts(at, &route, err);
    ops_norm_linear(at->space->ops, at->space->queue, &route.logits);
    at->space->ops->route_score(at->space->queue, &route.score);
    if (select_routed(at, limited, err))
        return -1;
    weigh_input(at);
    add_zero_experts(at);
    return run_experts(at, NULL, err);
}

/* Runs the block that every row uses: that of a dense layer, or the shared experts. Empty weight: 1. limit: limit of its
 * gated units. */
static int dense_ffn(const struct layer *at, int inner, struct buffer weight, float scale, float limit, struct err *err)
{
    struct workspace *space = at->space;
    const struct layer_weights *weights = at->weights;
    const struct expert_ffn_args args = {
        .in = space->normed, .out = sum_of(space), .weight = weight, .table = weights->dense_table, .inner = space->inner,
        .partial = space->partial, .group = space->group, .operand = space->operand, .ahead = layer_ahead(at),
        .format = weights->dense_format, .down_format = weights->dense_down_format, .glu = space->shape->glu,
        .limit = limit, .scale = scale, .slab = at->rows->slab,
        .rows = at->rows->rows, .slots = 1, .experts = 1, .hidden = space->shape->hidden, .inner_width = inner};
    if (peers_divides(at->divided, weights->dense.bytes))
        return peers_ffn(at->divided, space, &args, err);
    space->ops->expert_ffn(space->queue, &args);
    return 0;
}

/* Runs the shared experts: a dense block, whose output may be weighted by a gate. */
static int shared_ffn(const struct layer *at, struct err *err)
{
    struct workspace *space = at->space;
    const struct hparams *shape = space->shape;
    const struct matrix *gate = &at->weights->shared_gate;
    if (shape->shared_gate) {
        space->ops->linear(space->queue, &(struct linear_args){
            .in = space->normed, .weight = gate->data, .out = space->shared, .operand = space->operand,
            .format = gate->format, .rows = at->rows->rows, .inputs = shape->hidden, .outputs = 1, .in_stride = shape->hidden,
            .out_stride = 1});
        space->ops->route_score(space->queue, &(struct route_score_args){
            .logits = space->shared, .score = space->shared, .kind = ROUTER_SIGMOID, .rows = at->rows->rows, .experts = 1});
    }
    const float scale = scale_of(space), factor = shape->shared_scale;
    return dense_ffn(at, shape->shared_inner, space->shared, scale == 0 ? factor : factor == 0 ? scale : scale * factor,
                     shape->layer[at->number].shared_limit, err);
}

static void clear_branch(const struct layer *layer)
{
    struct workspace *space = layer->space;
    if (space->branch.address)
        space->ops->blend(space->queue, &(struct blend_args){.out = space->branch, .rows = layer->rows->rows,
                                                             .width = space->shape->hidden});
}

void layer_begin_shortcut(const struct layer *layer)
{
    struct workspace *space = layer->space;
    if (space->shortcut.address && space->shape->layer[layer->number].ffn == FFN_EXPERTS)
        space->ops->blend(space->queue, &(struct blend_args){.out = space->shortcut, .rows = layer->rows->rows,
                                                             .width = space->shape->hidden});
}

/* Adds the output of the previous layer's experts to x. */
static void end_shortcut(const struct layer *layer)
{
    struct workspace *space = layer->space;
    const int n = layer->number;
    if (space->shortcut.address && n && space->shape->layer[n - 1].ffn == FFN_EXPERTS)
        space->ops->activate(space->queue, &(struct activate_args){
            .in = space->shortcut, .add = space->x, .out = space->x, .activation = ACTIVATION_NONE,
            .rows = layer->rows->rows, .width = space->shape->hidden});
}

/* Computes shared and routed experts with norms of their own: space->branch = the sum of both. */
static int apart_ffn(const struct layer *layer, struct err *err)
{
    struct workspace *space = layer->space;
    const struct layer_weights *weights = layer->weights;
    const struct buffer none = {0, 0};
    layer_enter(layer, weights, true, space->normed);
    if (shared_ffn(layer, err))
        return -1;
    layer_norm_branch(layer, weights->shared_out_norm, none, space->beside);
    clear_branch(layer);
    layer_norm(space, space->x, weights->experts_norm, none, space->normed, layer->rows->rows);
    if (routed_ffn(layer, false, err))
        return -1;
    layer_norm_branch(layer, weights->experts_out_norm, space->beside, space->branch);
    return 0;
}

int layer_ffn(const struct layer *layer, struct err *err)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const bool experts = shape->layer[layer->number].ffn == FFN_EXPERTS;
    clear_branch(layer);
    if (experts && shape->shared_apart) {
        if (apart_ffn(layer, err))
            return -1;
    } else {
        if (!shape->parallel && !experts)
            layer_enter(layer, layer->weights, true, space->normed);
        if (experts ? routed_ffn(layer, !shape->parallel, err)
                    : dense_ffn(layer, shape->dense_inner, (struct buffer){0, 0}, scale_of(space), 0, err))
            return -1;
        if (experts && shape->shared_inner && shared_ffn(layer, err))
            return -1;
    }
    if (space->branch.address)
        layer_add_branch(layer, layer->weights->ffn_out_norm);
    if (!experts)
        end_shortcut(layer);
    return 0;
}

/* The feed-forward half of a layer: a dense block, or the router, the experts that it chooses (of all, or of those that a plan
 * allows) and the shared experts beside them. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

/* Masks of a static ranking, for all layers at once; weights of the rows for one that goes by paths. */
int plan_begin(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct expert_plan *plan = pass->batch->plan;
    int experts = engine->shape->router.experts;
    size_t bytes = (size_t)plan->moe_layers * (size_t)experts;
    if (plan->ranking == PLAN_PATH)
        queue_upload(engine->device, engine->row_weight, pass->batch->row_weight, (size_t)pass->rows * sizeof(float));
    if (plan->ranking != PLAN_STATIC)
        return 0;
    uint8_t *mask = mem_alloc(bytes, 1, err);
    if (!mask)
        return -1;
    for (int moe = 0; moe < plan->moe_layers; moe++)
        for (int i = 0; i < plan->budget[moe] && i < experts; i++)
            mask[moe * experts + plan->order[moe * experts + i]] = 1;
    queue_upload(engine->device, engine->mask, mask, bytes);
    mem_free(&mask);
    return 0;
}

/* The part of a buffer [moe][rows][width] that belongs to one expert layer. */
static struct buffer of_layer(const struct pass *pass, struct buffer all, int moe, int width, size_t size)
{
    uint64_t bytes = (uint64_t)pass->rows * (uint64_t)width * size;
    return buffer_part(all, (uint64_t)moe * bytes, bytes);
}

/* Distinct experts of one layer, for a source that must be told; answers how many. */
static int distinct_experts(const struct pass *pass, struct buffer expert, struct err *err)
{
    struct engine *engine = pass->engine;
    int count = 0, experts = engine->shape->router.experts, used = pass->rows * engine->shape->router.top_k;
    int32_t *ids = engine->by_slot;
    queue_download(engine->device, ids, expert, (size_t)used * sizeof *ids);
    if (queue_wait(engine->device, err))
        return -1;
    for (int e = 0; e < experts; e++)
        engine->mark[e] = 0;
    for (int i = 0; i < used; i++)
        if (ids[i] >= 0)
            engine->mark[ids[i]] = 1;
    for (int e = 0; e < experts; e++)
        if (engine->mark[e])
            engine->layer_experts[count++] = e;
    return count;
}

/* Puts the experts in place that the layer's routing names, all of a fixed source. */
int experts_acquire(const struct expert_layer *at, struct buffer *table, int *count, struct err *err)
{
    struct engine *engine = at->pass->engine;
    struct expert_source *source = engine->setup.experts;
    bool fixed = source->class->fixed;
    *count = 0;
    if (!fixed && (*count = distinct_experts(at->pass, at->expert, err)) < 0)
        return -1;
    if (source->class->acquire(source, at->n, fixed ? NULL : engine->layer_experts, *count, table, err))
        return err_at(err, "layer %d", at->n);
    return 0;
}

void experts_release(const struct expert_layer *at, int count)
{
    struct engine *engine = at->pass->engine;
    struct expert_source *source = engine->setup.experts;
    source->class->release(source, at->n, source->class->fixed ? NULL : engine->layer_experts, count);
}

static struct expert_layer layer_at(const struct pass *pass, int n, int moe)
{
    const struct engine *engine = pass->engine;
    int experts = engine->shape->router.experts, top_k = engine->shape->router.top_k;
    struct expert_layer at = {
        .pass = pass, .weights = &engine->weights->layer[n], .n = n, .moe = moe,
        .score = of_layer(pass, engine->score, moe, experts, sizeof(float)),
        .wanted = of_layer(pass, engine->wanted, moe, top_k, sizeof(int32_t)),
        .expert = of_layer(pass, engine->expert, moe, top_k, sizeof(int32_t)),
        .weight = of_layer(pass, engine->weight, moe, top_k, sizeof(float)),
        .mask = buffer_part(engine->mask, (uint64_t)moe * (uint64_t)experts, (uint64_t)experts)};
    at.logits = engine->shape->router.kind == ROUTER_SPARSEMIXER ? engine->router_logits : at.score;
    return at;
}

static void score_experts(const struct expert_layer *at)
{
    struct engine *engine = at->pass->engine;
    const struct hparams *shape = engine->shape;
    const struct matrix *router = &at->weights->router;
    engine->ops->linear(engine->queue, &(struct linear_args){
        .in = engine->normed, .weight = router->data, .bias = at->weights->router_bias, .out = at->logits,
        .operand = engine->operand, .format = router->format, .rows = at->pass->rows, .inputs = shape->hidden,
        .outputs = shape->router.experts, .in_stride = shape->hidden, .out_stride = shape->router.experts});
    engine->ops->route_score(engine->queue, &(struct route_score_args){
        .logits = at->logits, .score = at->score, .kind = shape->router.kind, .rows = at->pass->rows,
        .experts = shape->router.experts});
}

/* No mask: the natural routing. */
static void select_experts(const struct expert_layer *at, struct buffer mask)
{
    struct engine *engine = at->pass->engine;
    const struct hparams *shape = engine->shape;
    const struct expert_plan *plan = at->pass->batch->plan;
    engine->ops->route_select(engine->queue, &(struct route_select_args){
        .score = at->score, .logits = at->logits, .bias = at->weights->router_correction, .mask = mask, .wanted = at->wanted,
        .expert = at->expert, .weight = at->weight, .kind = shape->router.kind,
        .mode = plan ? plan->mode : BUDGET_SUBSTITUTE, .renormalise = shape->router.renormalise, .scale = shape->router.scale,
        .jitter = shape->router.jitter, .rows = at->pass->rows, .experts = shape->router.experts,
        .top_k = shape->router.top_k, .groups = shape->router.groups, .groups_kept = shape->router.groups_kept,
        .group_rank = shape->router.group_rank});
}

/* at->mask = what the plan allows, by scores of this forward. That of a static ranking is there already. */
static int make_mask(const struct expert_layer *at, const struct expert_plan *plan, struct err *err)
{
    struct engine *engine = at->pass->engine;
    struct buffer none = {0, 0};
    if (plan->ranking == PLAN_ORACLE)
        return oracle_mask(at, plan->budget[at->moe], err);
    if (plan->ranking == PLAN_PRINTED)
        return oracle_mask_printed(at, plan->budget[at->moe], err);
    if (plan->ranking != PLAN_STATIC)
        engine->ops->route_shortlist(engine->queue, &(struct route_shortlist_args){
            .score = at->score, .bias = at->weights->router_correction,
            .weight = plan->ranking == PLAN_PATH ? engine->row_weight : none, .mask = at->mask, .rows = at->pass->rows,
            .experts = engine->shape->router.experts, .budget = plan->budget[at->moe]});
    return 0;
}

/* Puts the batch's own experts in place of what the router chose. */
static int force_experts(const struct expert_layer *at, struct err *err)
{
    struct engine *engine = at->pass->engine;
    size_t slots = (size_t)at->pass->rows * (size_t)engine->shape->router.top_k, bytes = slots * sizeof(int32_t);
    const int32_t *expert = at->pass->batch->forced + (size_t)at->moe * slots;
    float *weight = engine->by_slot;
    for (size_t i = 0; i < slots; i++) {
        if (expert[i] < -1 || expert[i] >= engine->shape->router.experts)
            return err_set(err, ERR_INPUT, "layer %d: expert %d of %d is forced", at->n, (int)expert[i],
                           engine->shape->router.experts);
        weight[i] = expert[i] < 0 ? 0 : 1.0f / (float)engine->shape->router.top_k;
    }
    queue_upload(engine->device, at->expert, expert, bytes);
    queue_upload(engine->device, at->wanted, expert, bytes);
    queue_upload(engine->device, at->weight, weight, bytes);
    return 0;
}

int experts_ffn(const struct pass *pass, int n, int moe, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct expert_plan *plan = pass->batch->plan;
    const struct expert_layer at = layer_at(pass, n, moe);
    bool limited = plan && plan->budget[moe] < shape->router.experts, measured = limited && pass->batch->want_reconstruction;
    struct buffer table;
    int count;

    score_experts(&at);
    const bool looks = measured || (limited && plan->ranking == PLAN_ORACLE);
    if (looks || (limited && plan->ranking == PLAN_PRINTED))
        select_experts(&at, (struct buffer){0, 0});
    if (looks && oracle_look(&at, err))
        return -1;
    if (limited && make_mask(&at, plan, err))
        return -1;
    select_experts(&at, limited ? at.mask : (struct buffer){0, 0});
    if (pass->batch->forced && force_experts(&at, err))
        return -1;
    if (measured && oracle_compare(&at, &engine->reconstruction[moe], err))
        return -1;
    if (experts_acquire(&at, &table, &count, err))
        return -1;
    engine->ops->expert_ffn(engine->queue, &(struct expert_ffn_args){
        .in = engine->normed, .out = engine->x, .expert = at.expert, .weight = at.weight,
        .gate_up_bias = at.weights->gate_up_bias, .down_bias = at.weights->down_bias, .limit = shape->glu_limit,
        .alpha = shape->glu_alpha, .table = table, .inner = engine->inner, .partial = engine->partial, .group = engine->group,
        .operand = engine->operand, .format = at.weights->experts_format, .down_format = at.weights->experts_down_format,
        .scale = shape->residual_scale, .slab = pass->slab, .rows = pass->rows, .slots = shape->router.top_k,
        .experts = shape->router.experts,
        .hidden = shape->hidden, .inner_width = shape->expert_inner});
    experts_release(&at, count);
    return 0;
}

/* The block that every row uses: a dense layer's, or the shared experts'. No weight: 1. */
void dense_ffn(const struct pass *pass, int n, int inner, struct buffer weight)
{
    struct engine *engine = pass->engine;
    const struct layer_weights *layer = &engine->weights->layer[n];
    engine->ops->expert_ffn(engine->queue, &(struct expert_ffn_args){
        .in = engine->normed, .out = engine->x, .weight = weight, .table = layer->dense_table, .inner = engine->inner,
        .partial = engine->partial, .group = engine->group, .operand = engine->operand, .format = layer->dense_format,
        .down_format = layer->dense_down_format,
        .scale = engine->shape->residual_scale, .slab = pass->slab, .rows = pass->rows, .slots = 1, .experts = 1,
        .hidden = engine->shape->hidden, .inner_width = inner});
}

/* The experts beside the routed ones: a dense block whose output may be weighed. */
void shared_ffn(const struct pass *pass, int n)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const struct matrix *gate = &engine->weights->layer[n].shared_gate;
    if (shape->shared_gate) {
        engine->ops->linear(engine->queue, &(struct linear_args){
            .in = engine->normed, .weight = gate->data, .out = engine->shared, .operand = engine->operand,
            .format = gate->format, .rows = pass->rows, .inputs = shape->hidden, .outputs = 1, .in_stride = shape->hidden,
            .out_stride = 1});
        engine->ops->route_score(engine->queue, &(struct route_score_args){
            .logits = engine->shared, .score = engine->shared, .kind = ROUTER_SIGMOID, .rows = pass->rows, .experts = 1});
    }
    dense_ffn(pass, n, shape->shared_inner, engine->shared);
}

#include "common/engine/workspace.h"

#include "common/base/mem.h"

int workspace_alloc(struct device *device, struct buffer *out, int64_t a, int64_t b, size_t size, struct err *err)
{
    size_t count, bytes;
    if (!size_mul((size_t)a, (size_t)b, &count) || !size_mul(count, size, &bytes))
        return err_memory(err);
    return device_alloc(device, bytes, out, err);
}

static int alloc(struct workspace *space, struct buffer *out, int64_t width, struct err *err)
{
    return workspace_alloc(space->device, out, space->rows, width, sizeof(float), err);
}

static int alloc_delta(struct workspace *space, struct err *err)
{
    const struct delta_widths w = hparams_delta_widths(space->shape);
    if (!w.in)
        return 0;
    if (alloc(space, &space->delta_in, w.in, err) || (w.gates && alloc(space, &space->delta_x, w.conv, err)))
        return -1;
    const struct delta_shape *d = &space->shape->delta;
    if ((d->gate_rank && alloc(space, &space->delta_steps, w.steps, err)) ||
        (d->gate_rank && d->kind == RECURRENCE_CHANNEL && alloc(space, &space->delta_gate, w.values, err)))
        return -1;
    return w.gates && (alloc(space, &space->delta_gates, w.gates, err) ||
                       (d->kind != RECURRENCE_SCAN && alloc(space, &space->delta_beta, d->value_heads, err))) ? -1 : 0;
}

/* Allocates the buffers of an indexer, except scores, which indexer.c allocates because their number depends on the
 * sequence. */
static int alloc_index(struct workspace *space, struct err *err)
{
    const struct index_shape *index = &space->shape->index;
    return alloc(space, &space->index_q, index->heads * index->dim, err) ||
           alloc(space, &space->index_k, space->shape->attention.head_dim + space->shape->attention.value_dim, err) ||
           alloc(space, &space->index_weight, index->heads, err) || alloc(space, &space->chosen, index->top_k, err) ||
           alloc(space, &space->chosen_start, 2, err) || alloc(space, &space->chosen_prefix, 1, err) ? -1 : 0;
}

/* Allocates the latents, and the keys and values computed from them. */
static int alloc_attention(struct workspace *space, struct err *err)
{
    const struct hparams *shape = space->shape;
    const int values = hparams_delta_widths(shape).values;
    if (alloc(space, &space->x, shape->hidden, err) || alloc(space, &space->normed, shape->hidden, err) ||
        alloc(space, &space->qkv, space->qkv_width, err) ||
        alloc(space, &space->attended, space->attended_width > values ? space->attended_width : values, err) ||
        alloc_delta(space, err))
        return -1;
    if ((shape->norms != NORM_BEFORE && alloc(space, &space->branch, shape->hidden, err)) ||
        (shape->attention.gate && alloc(space, &space->gate, space->attended_width, err)) ||
        (shape->shared_apart && alloc(space, &space->beside, shape->hidden, err)) ||
        (shape->router.norm && alloc(space, &space->router_normed, shape->hidden, err)) ||
        (shape->shortcut && alloc(space, &space->shortcut, shape->hidden, err)) ||
        (shape->router.zero_experts && alloc(space, &space->zero_weight, 1, err)) ||
        (shape->router.weigh_input && alloc(space, &space->weighed, shape->hidden, err)))
        return -1;
    if (!shape->attention.kv_rank)
        return 0;
    if (shape->index.heads && alloc_index(space, err))
        return -1;
    return alloc(space, &space->latent_q, shape->attention.q_rank, err) ||
           alloc(space, &space->latent_kv, shape->attention.kv_rank + shape->rope.rotary, err) ||
           alloc(space, &space->spread, space->spread_width, err) ? -1 : 0;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static bool takes_operand(const struct workspace *space, enum weight_format format)
{
    const struct device_info *info = device_info(space->device);
    return format == FORMAT_BF16 ? info->splits : format_quantised(format) || info->integer_activations;
}

static size_t operand_of(const struct workspace *space, enum weight_format format, int inputs)
{
    return takes_operand(space, format) ? operand_bytes(format, inputs) : 0;
}

/* Returns the scratch bytes per row for products with a tensor; routed experts need them for each expert of a row. */
static size_t operand_max(const struct workspace *space, const struct tensor *t)
{
    const bool routed = t->role == ROLE_EXPERTS;
    size_t bytes = t->kind == TENSOR_EXPERTS
        ? larger(operand_of(space, t->format, t->outputs), operand_of(space, tensor_last_format(t), t->inputs))
        : larger(operand_of(space, t->format, t->inputs), operand_of(space, tensor_last_format(t), t->inputs));
    return t->kind == TENSOR_VECTOR ? 0 : routed ? (size_t)space->shape->router.top_k * bytes : bytes;
}

/* Allocates scratch for rows converted to the operand format of products, if any weights need it. */
int workspace_suit(struct workspace *space, const struct model *model, struct err *err)
{
    size_t max = 0;
    for (int i = 0; i < model_tensor_count(model); i++)
        max = larger(max, operand_max(space, model_tensor_at(model, i)));
    return workspace_reserve(space, max, err);
}

int workspace_reserve(struct workspace *space, size_t max, struct err *err)
{
    struct buffer operand;
    if (max <= space->operand_row)
        return 0;
    if (workspace_alloc(space->device, &operand, space->rows, (int64_t)max, 1, err))
        return -1;
    device_free(space->device, &space->operand);
    space->operand = operand;
    space->operand_row = max;
    return 0;
}

/* Allocates scratch for expert_ffn. */
static int alloc_experts(struct workspace *space, int64_t top_k, struct err *err)
{
    const struct hparams *shape = space->shape;
    const bool moe = hparams_moe_layers(shape) > 0;
    int64_t rows = space->rows, experts = shape->router.experts;
    int64_t slots = moe ? top_k : 1;
    int64_t inner = moe ? top_k * shape->expert_inner : 0;
    if (shape->dense_inner > inner)
        inner = shape->dense_inner;
    if (shape->shared_inner > inner)
        inner = shape->shared_inner;
    return alloc(space, &space->inner, inner, err) || alloc(space, &space->partial, slots * shape->hidden, err) ||
           workspace_alloc(space->device, &space->group, expert_group_numbers(moe ? experts : 1, rows * slots), 1,
                           sizeof(int32_t), err) ? -1 : 0;
}

int workspace_widen(struct workspace *space, int slots, struct err *err)
{
    const int used = space->shape->router.top_k;
    struct buffer *old[] = {&space->inner, &space->partial, &space->group};
    if (slots <= used)
        return 0;
    for (size_t i = 0; i < sizeof old / sizeof *old; i++)
        device_free(space->device, old[i]);
    return alloc_experts(space, slots, err) ||
           workspace_reserve(space, space->operand_row * (size_t)slots / (size_t)used, err) ? -1 : 0;
}

static int alloc_ffn(struct workspace *space, struct err *err)
{
    const struct hparams *shape = space->shape;
    if (alloc_experts(space, shape->router.top_k, err))
        return -1;
    if (!hparams_moe_layers(shape))
        return 0;
    if (shape->router.kind == ROUTER_SPARSEMIXER && alloc(space, &space->router_logits, shape->router.experts, err))
        return -1;
    return shape->shared_gate ? alloc(space, &space->shared, 1, err) : 0;
}

static int alloc_host(struct workspace *space, struct err *err)
{
    size_t experts = (size_t)space->shape->router.experts;
    space->by_slot = mem_alloc((size_t)space->rows * (size_t)space->shape->router.top_k, sizeof(float), err);
    space->mark = mem_alloc(experts, 1, err);
    space->layer_experts = mem_alloc(experts, sizeof(int32_t), err);
    space->layer_tokens = mem_alloc(experts, sizeof(int32_t), err);
    return space->by_slot && space->mark && space->layer_experts && space->layer_tokens ? 0 : -1;
}

int workspace_make(struct workspace *space, struct device *device, const struct model *model, int rows, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    *space = (struct workspace){.device = device, .ops = device_ops(device), .queue = device_queue(device), .shape = shape,
                                .rows = rows};
    for (int n = 0; n < shape->layers + shape->predictors || n == 0; n++) {
        const struct layer_attention own = hparams_attention(shape, n);
        const int qkv = shape->attention.heads * own.head_dim + hparams_kv_width(shape, n);
        const int attended = shape->attention.heads * own.value_dim;
        space->qkv_width = qkv > space->qkv_width ? qkv : space->qkv_width;
        space->attended_width = attended > space->attended_width ? attended : space->attended_width;
    }
    if (shape->attention.kv_rank) {
        space->qkv_width = shape->attention.heads * shape->attention.head_dim;
        space->spread_width = shape->attention.heads *
                              (shape->attention.head_dim - shape->rope.rotary + shape->attention.value_dim);
    }
    return alloc_attention(space, err) || alloc_ffn(space, err) || workspace_suit(space, model, err) ||
           alloc_host(space, err) ? -1 : 0;
}

void workspace_free(struct workspace *space)
{
    struct buffer *all[] = {
        &space->x, &space->normed, &space->qkv, &space->attended, &space->gate, &space->branch, &space->beside,
        &space->router_normed, &space->weighed, &space->shortcut,
        &space->zero_weight, &space->index_q, &space->index_k, &space->index_weight, &space->index_score, &space->chosen,
        &space->chosen_start, &space->chosen_prefix, &space->delta_in, &space->delta_x, &space->delta_gates, &space->delta_beta,
        &space->delta_gate, &space->delta_steps,
        &space->latent_q, &space->latent_kv, &space->spread,
        &space->inner, &space->partial, &space->group, &space->operand, &space->router_logits, &space->shared,
        &space->apart_in, &space->apart_out, &space->apart_row, &space->piece_expert, &space->ahead_normed,
        &space->ahead_logits, &space->ahead_score, &space->ahead_wanted, &space->ahead_expert, &space->ahead_weight,
        &space->ahead_zero};
    for (size_t i = 0; space->device && i < sizeof all / sizeof *all; i++)
        device_free(space->device, all[i]);
    mem_free(&space->by_slot);
    mem_free(&space->mark);
    mem_free(&space->layer_experts);
    mem_free(&space->layer_tokens);
    mem_free(&space->piece_ids);
    mem_free(&space->ahead_ids);
    mem_free(&space->ahead_experts);
    mem_free(&space->ahead_tokens);
    mem_free(&space->gold);
    mem_free(&space->apart);
    mem_free(&space->apart_index);
}

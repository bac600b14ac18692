/* Runs the attention half of a layer. The other half is in experts.c. */
#include "common/engine/layer.h"

#include "common/engine/indexer.h"
#include "common/engine/peers.h"

struct norm_args layer_norm_args(const struct workspace *space, struct buffer in, struct buffer weight, struct buffer bias,
                                 struct buffer out, int rows)
{
    const struct hparams *shape = space->shape;
    return (struct norm_args){
        .in = in, .weight = weight, .bias = bias, .out = out, .epsilon = shape->norm_epsilon, .center = shape->layer_norm,
        .rows = rows, .parts = 1, .width = shape->hidden, .in_stride = shape->hidden, .out_stride = shape->hidden};
}

void layer_norm(const struct workspace *space, struct buffer in, struct buffer weight, struct buffer bias, struct buffer out,
                int rows)
{
    const struct norm_args args = layer_norm_args(space, in, weight, bias, out, rows);
    space->ops->norm(space->queue, &args);
}

static void copy_scaled(const struct workspace *space, struct buffer in, struct buffer add, float scale, struct buffer out,
                        int rows)
{
    space->ops->activate(space->queue, &(struct activate_args){
        .in = in, .add = add, .out = out, .activation = ACTIVATION_NONE, .scale = scale, .rows = rows,
        .width = space->shape->hidden});
}

struct norm_args layer_enter_norm(const struct layer *layer, const struct layer_weights *weights, bool ffn, struct buffer out)
{
    const struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const bool second = ffn && !shape->parallel;
    return layer_norm_args(space, space->x, second ? weights->ffn_norm : weights->attention_norm,
                           second ? weights->ffn_norm_bias : weights->attention_norm_bias, out,
                           shape->norms == NORM_AFTER ? 0 : layer->rows->rows);
}

void layer_enter(const struct layer *layer, const struct layer_weights *weights, bool ffn, struct buffer out)
{
    const struct workspace *space = layer->space;
    const struct norm_args norm = layer_enter_norm(layer, weights, ffn, out);
    if (norm.rows)
        space->ops->norm(space->queue, &norm);
    else
        copy_scaled(space, space->x, (struct buffer){0, 0}, 0, out, layer->rows->rows);
}

/* Returns whether attention itself computes its input. */
static bool enters(const struct layer *layer) { return !layer->reads.address && !layer->space->shape->parallel; }

/* Runs the first product of attention, after the norm of its input. */
static int enter_and_project(const struct layer *layer, const struct linear_args *args, struct err *err)
{
    const struct workspace *space = layer->space;
    struct norm_linear_args both = {layer_enter_norm(layer, layer->weights, false, space->normed), *args};
    if (enters(layer) && both.norm.rows && !peers_divides(layer->divided, args->weight.bytes)) {
        ops_norm_linear(space->ops, space->queue, &both);
        return 0;
    }
    if (enters(layer))
        layer_enter(layer, layer->weights, false, space->normed);
    return layer_linear(layer, args, err);
}

void layer_scale(const struct layer *layer)
{
    if (layer->weights->scale != 0)
        copy_scaled(layer->space, layer->space->x, (struct buffer){0, 0}, layer->weights->scale, layer->space->x,
                    layer->rows->rows);
}

void layer_norm_branch(const struct layer *layer, struct buffer norm, struct buffer add, struct buffer out)
{
    const struct workspace *space = layer->space;
    layer_norm(space, space->branch, norm, (struct buffer){0, 0}, out, layer->rows->rows);
    if (add.address)
        copy_scaled(space, add, out, 0, out, layer->rows->rows);
}

void layer_add_branch(const struct layer *layer, struct buffer norm)
{
    const struct workspace *space = layer->space;
    layer_norm(space, space->branch, norm, (struct buffer){0, 0}, space->branch, layer->rows->rows);
    copy_scaled(space, space->branch, space->x, space->shape->residual_scale, space->x, layer->rows->rows);
}

struct buffer layer_row_part(struct buffer rows, int first)
{
    uint64_t offset = (uint64_t)first * sizeof(float);
    return buffer_part(rows, offset, rows.bytes - offset);
}

struct buffer layer_rows_from(struct buffer rows, int first, int stride)
{
    uint64_t offset = (uint64_t)first * (uint64_t)stride * sizeof(float);
    return first ? buffer_part(rows, offset, rows.bytes - offset) : rows;
}

int layer_linear(const struct layer *layer, const struct linear_args *args, struct err *err)
{
    if (peers_divides(layer->divided, args->weight.bytes))
        return peers_linear(layer->divided, layer->space, args, err);
    layer->space->ops->linear(layer->space->queue, args);
    return 0;
}

static struct linear_args projection(const struct layer *layer, struct buffer in, int in_stride, const struct matrix *matrix,
                                     struct buffer bias, struct buffer out, int out_stride)
{
    return (struct linear_args){
        .in = in, .weight = matrix->data, .bias = bias, .out = out, .operand = layer->space->operand, .format = matrix->format,
        .slab = layer->rows->slab, .rows = layer->rows->rows, .inputs = matrix->inputs, .outputs = matrix->outputs,
        .in_stride = in_stride, .out_stride = out_stride};
}

void layer_project(const struct layer *layer, struct buffer in, int in_stride, const struct matrix *matrix, struct buffer bias,
                   struct buffer out, int out_stride)
{
    const struct linear_args args = projection(layer, in, in_stride, matrix, bias, out, out_stride);
    layer->space->ops->linear(layer->space->queue, &args);
}

int layer_project_divided(const struct layer *layer, struct buffer in, int in_stride, const struct matrix *matrix,
                          struct buffer bias, struct buffer out, int out_stride, struct err *err)
{
    const struct linear_args args = projection(layer, in, in_stride, matrix, bias, out, out_stride);
    return layer_linear(layer, &args, err);
}

struct buffer layer_ahead(const struct layer *layer)
{
    const struct layer_weights *after = layer->after;
    return !after ? (struct buffer){0, 0} : after->qkv.data.address ? after->qkv.data
           : after->q_a.data.address ? after->q_a.data : after->q.data;
}

/* Returns the norm of each head of q or k, or of all heads at once. Empty weight: no norm. */
static struct norm_args head_norm(const struct layer *layer, struct buffer x, struct buffer weight, int heads)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const int head_dim = hparams_attention(shape, layer->number).head_dim;
    bool whole = shape->attention.qk_norm == QK_NORM_WHOLE;
    return (struct norm_args){
        .in = x, .weight = shape->attention.qk_norm == QK_NORM_NONE ? (struct buffer){0, 0} : weight, .out = x,
        .epsilon = shape->norm_epsilon, .rows = layer->rows->rows, .parts = whole ? 1 : heads,
        .width = whole ? heads * head_dim : head_dim,
        .in_stride = space->qkv_width, .out_stride = space->qkv_width};
}

static void latent_norm(const struct layer *layer, struct buffer x, struct buffer weight, int width, int stride)
{
    struct workspace *space = layer->space;
    space->ops->norm(space->queue, &(struct norm_args){
        .in = x, .weight = weight, .out = x, .epsilon = space->shape->attention.latent_epsilon,
        .rows = layer->rows->rows, .parts = 1, .width = width, .in_stride = stride, .out_stride = stride});
}

static struct rope_args rotation(const struct layer *layer, struct buffer x, int heads, int head_dim, int stride)
{
    const struct hparams *shape = layer->space->shape;
    return (struct rope_args){
        .x = x, .table = layer->rope, .position = layer->rows->position, .rows = layer->rows->rows, .heads = heads,
        .head_dim = head_dim, .stride = stride,
        .rotary = shape->layer[layer->number].no_rope ? 0 : hparams_attention(shape, layer->number).rope->rotary};
}

/* Returns the multiplication of queries by the scale of their position, as a rotation of pairs of floats by an angle of 0. */
static struct rope_args query_scale(const struct layer *layer)
{
    const struct workspace *space = layer->space;
    return (struct rope_args){
        .x = space->qkv, .table = layer->no_rope_scale, .position = layer->rows->position, .rows = layer->rows->rows,
        .heads = space->shape->attention.heads * space->shape->attention.head_dim / 2, .head_dim = 2, .rotary = 2,
        .stride = space->qkv_width};
}

/* Returns the arguments for writing one text's rows into its cache, cut from those for the rows of all texts. */
static struct kv_write_args write_of(struct kv_write_args all, const struct layer_text *text)
{
    all.in_k = layer_rows_from(all.in_k, text->first, all.stride);
    all.in_v = layer_rows_from(all.in_v, text->first, all.stride);
    all.shared = layer_rows_from(all.shared, text->first, all.shared_stride);
    all.k = text->cache.k;
    all.v = text->cache.v;
    all.slot = text->rows.slot;
    all.format = text->cache.format;
    all.capacity = text->cache.capacity;
    all.rows = text->rows.rows;
    return all;
}

static void write_all(const struct layer *layer, const struct kv_write_args *all)
{
    for (int i = 0; i < layer->texts; i++) {
        const struct kv_write_args args = write_of(*all, &layer->text[i]);
        layer->space->ops->kv_write(layer->space->queue, &args);
    }
}

/* Computes the layer's input, queries in space->qkv, keys and values in the caches. */
static int make_qkv(const struct layer *layer, struct err *err)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const struct layer_weights *weights = layer->weights;
    const struct layer_attention own = hparams_attention(shape, layer->number);
    int heads = shape->attention.heads, kv_heads = own.kv_heads, head_dim = own.head_dim;
    struct buffer k = layer_row_part(space->qkv, heads * head_dim);
    struct buffer v = layer_row_part(space->qkv, (heads + kv_heads) * head_dim);

    struct buffer in = layer->reads.address ? layer->reads : space->normed;
    struct linear_args all = projection(layer, in, weights->qkv.inputs, &weights->qkv, weights->qkv_bias, space->qkv,
                                        space->qkv_width);
    all.ahead = weights->out.data;
    if (enter_and_project(layer, &all, err) ||
        (weights->v.data.address && layer_project_divided(layer, in, weights->v.inputs, &weights->v, weights->v_bias, v,
                                                          space->qkv_width, err)))
        return -1;
    if (shape->attention.value_norm)
        space->ops->norm(space->queue, &(struct norm_args){
            .in = v, .out = v, .epsilon = shape->norm_epsilon, .rows = layer->rows->rows, .parts = kv_heads,
            .width = own.value_dim, .in_stride = space->qkv_width, .out_stride = space->qkv_width});
    const bool no_rope = shape->layer[layer->number].no_rope;
    struct qkv_args args = {
        .q_norm = head_norm(layer, space->qkv, weights->q_norm, heads),
        .k_norm = head_norm(layer, k, weights->k_norm, kv_heads),
        .clamp = {.x = space->qkv, .limit = shape->attention.clip_qkv, .rows = layer->rows->rows, .width = space->qkv_width,
                  .stride = space->qkv_width},
        .q_rope = no_rope && layer->no_rope_scale.address ? query_scale(layer)
                                                      : rotation(layer, space->qkv, heads, head_dim, space->qkv_width),
        .k_rope = rotation(layer, k, kv_heads, head_dim, space->qkv_width),
        .write = {.in_k = k, .in_v = v, .kv_heads = kv_heads, .head_dim = head_dim, .value_dim = own.value_dim,
                  .stride = space->qkv_width}};
    if (shape->attention.rope_before_norm) {
        space->ops->rope(space->queue, &args.q_rope);
        space->ops->rope(space->queue, &args.k_rope);
        if (!no_rope || !shape->attention.plain_norm) {
            space->ops->norm(space->queue, &args.q_norm);
            space->ops->norm(space->queue, &args.k_norm);
        }
    } else if (layer->texts == 1) {
        args.write = write_of(args.write, &layer->text[0]);
        ops_qkv(space->ops, space->queue, &args);
        return 0;
    } else {
        ops_qk(space->ops, space->queue, &args);
    }
    write_all(layer, &args.write);
    return 0;
}

/* Computes the same for latent attention (model/hparams.h). */
static int make_latent_qkv(const struct layer *layer, struct err *err)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const struct layer_weights *weights = layer->weights;
    int heads = shape->attention.heads, head_dim = shape->attention.head_dim, hidden = shape->hidden;
    int q_rank = shape->attention.q_rank, kv_rank = shape->attention.kv_rank, rotary = shape->rope.rotary;
    struct buffer none = {0, 0}, key = layer_row_part(space->latent_kv, kv_rank);

    if (enters(layer))
        layer_enter(layer, weights, false, space->normed);
    if (q_rank) {
        layer_project(layer, space->normed, hidden, &weights->q_a, weights->q_a_bias, space->latent_q, q_rank);
        latent_norm(layer, space->latent_q, weights->q_a_norm, q_rank, q_rank);
    }
    if (layer_project_divided(layer, q_rank ? space->latent_q : space->normed, q_rank ? q_rank : hidden, &weights->q, none,
                              space->qkv, space->qkv_width, err))
        return -1;
    layer_project(layer, space->normed, hidden, &weights->kv_a, weights->kv_a_bias, space->latent_kv, kv_rank + rotary);
    latent_norm(layer, space->latent_kv, weights->kv_a_norm, kv_rank, kv_rank + rotary);
    if (shape->attention.latent_scale != 0)
        space->ops->activate(space->queue, &(struct activate_args){
            .in = space->latent_kv, .out = space->latent_kv, .activation = ACTIVATION_NONE,
            .scale = shape->attention.latent_scale, .rows = layer->rows->rows, .width = kv_rank,
            .in_stride = kv_rank + rotary, .out_stride = kv_rank + rotary});
    struct linear_args spread = projection(layer, space->latent_kv, kv_rank + rotary, &weights->kv_b, none, space->spread,
                                           space->spread_width);
    spread.ahead = weights->out.data;
    if (layer_linear(layer, &spread, err))
        return -1;
    struct rope_args q_rope = rotation(layer, space->qkv, heads, head_dim, space->qkv_width);
    struct rope_args k_rope = rotation(layer, key, 1, rotary, kv_rank + rotary);
    space->ops->rope(space->queue, &q_rope);
    space->ops->rope(space->queue, &k_rope);
    write_all(layer, &(struct kv_write_args){
        .in_k = space->spread, .in_v = layer_row_part(space->spread, heads * (head_dim - rotary)), .shared = key,
        .kv_heads = heads, .head_dim = head_dim, .value_dim = shape->attention.value_dim,
        .stride = space->spread_width, .shared_width = rotary, .shared_stride = kv_rank + rotary});
    indexer_keys(layer);
    return 0;
}

/* Computes attended *= sigmoid(gate), element by element or head by head. */
static void weigh_attended(const struct layer *layer)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const int heads = shape->attention.heads, value_dim = shape->attention.value_dim, width = heads * value_dim;
    const int gates = hparams_attention_gates(shape);
    const bool single = shape->attention.head_gate;
    const struct matrix *gate = &layer->weights->gate;
    layer_project(layer, space->normed, gate->inputs, gate, (struct buffer){0, 0}, space->gate, gates);
    space->ops->gated(space->queue, &(struct gated_args){
        .in = space->attended, .gate = space->gate, .out = space->attended, .single = single, .rows = layer->rows->rows,
        .parts = single ? heads : 1, .width = single ? value_dim : width, .in_stride = width, .gate_stride = gates,
        .out_stride = width, .in_part = value_dim, .gate_part = 1, .out_part = value_dim});
}

static void attend(const struct layer *layer, const struct layer_text *text, const struct layer_rows *rows)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const struct layer_attention own = hparams_attention(shape, layer->number);
    const int heads = shape->attention.heads;
    space->ops->attention(space->queue, &(struct attention_args){
        .q = layer_rows_from(space->qkv, text->first, space->qkv_width), .k = text->cache.k, .v = text->cache.v,
        .sink = layer->weights->sinks, .prefix = rows->prefix, .path_start = rows->path_start,
        .path = rows->path, .out = layer_rows_from(space->attended, text->first, heads * own.value_dim),
        .scale = shape->attention.scale, .format = text->cache.format, .rows = text->rows.rows, .heads = heads,
        .kv_heads = own.kv_heads, .head_dim = own.head_dim, .value_dim = own.value_dim, .capacity = text->cache.capacity,
        .stride = space->qkv_width, .window = shape->layer[layer->number].window,
        .aligned = shape->attention.aligned, .longest = rows->longest});
}

/* Runs attention. With a norm after attention (space->branch) the output is written to the branch and added after the norm;
 * otherwise the projection adds to x directly. */
int layer_attention(const struct layer *layer, struct err *err)
{
    if (layer->space->shape->layer[layer->number].state)
        return layer_delta(layer, err);
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const struct layer_weights *weights = layer->weights;
    const int heads = shape->attention.heads, value_dim = hparams_attention(shape, layer->number).value_dim;
    const bool apart = space->branch.address != 0;
    const float scale = apart ? 0 : shape->residual_scale, values = shape->attention.value_scale;

    if ((shape->attention.kv_rank ? make_latent_qkv : make_qkv)(layer, err))
        return -1;
    for (int i = 0; i < layer->texts; i++) {
        const struct layer_rows rows = indexer_rows(layer, &layer->text[i]);
        attend(layer, &layer->text[i], &rows);
    }
    if (shape->attention.gate)
        weigh_attended(layer);
    const struct linear_args out = {
        .in = space->attended, .weight = weights->out.data, .bias = weights->out_bias, .out = apart ? space->branch : space->x,
        .operand = space->operand, .format = weights->out.format, .add = !apart,
        .scale = scale == 0 ? values : values == 0 ? scale : scale * values,
        .slab = layer->rows->slab, .rows = layer->rows->rows, .inputs = heads * value_dim, .outputs = shape->hidden,
        .in_stride = heads * value_dim, .out_stride = shape->hidden};
    if (layer_linear(layer, &out, err))
        return -1;
    if (apart)
        layer_add_branch(layer, weights->attention_out_norm);
    return 0;
}

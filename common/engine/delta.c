/* A layer with a recurrent state in place of attention: Gated DeltaNet (arXiv 2412.06464), as in Qwen3-Next. */
#include "common/engine/layer.h"

/* Added to the sum of squares by which q and k are normalised, as in transformers (l2norm). */
static const float EPSILON = 1e-6f;

/* Computes space->attended = silu(z) * the norm of each of its heads; z is the last part of delta_in. */
static void leave(const struct layer *layer, int joined, int in_width)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const int rows = layer->rows->rows, values = d->value_heads * d->value_dim;
    space->ops->norm(space->queue, &(struct norm_args){
        .in = space->attended, .weight = layer->weights->delta_norm, .out = space->attended,
        .epsilon = space->shape->norm_epsilon, .rows = rows, .parts = d->value_heads, .width = d->value_dim,
        .in_stride = values, .out_stride = values});
    space->ops->gated(space->queue, &(struct gated_args){
        .in = space->attended, .gate = layer_row_part(space->delta_in, joined), .out = space->attended, .silu = true,
        .rows = rows, .parts = 1, .width = values, .in_stride = values, .gate_stride = in_width, .out_stride = values});
}

/* delta_in gives q, k, v and z side by side; the short convolution runs over q, k and v. delta_keys stores the normalised
 * keys and decays, delta applies the rule. The output projection adds to x. */
void layer_delta(const struct layer *layer)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const struct layer_weights *weights = layer->weights;
    const struct recurrent_layer *kept = &layer->recurrent;
    const struct recurrent_rows *see = layer->states;
    const struct buffer none = {0, 0};
    const int rows = layer->rows->rows, keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim;
    const int joined = 2 * keys + values, in_width = joined + values, heads = d->value_heads;

    layer_enter(layer, weights, false, space->normed);
    layer_project(layer, space->normed, weights->delta_in.inputs, &weights->delta_in, none, space->delta_in, in_width);
    layer_project(layer, space->normed, weights->delta_gates.inputs, &weights->delta_gates, none, space->delta_gates,
                  2 * heads);
    space->ops->short_conv(space->queue, &(struct short_conv_args){
        .in = space->delta_in, .weight = weights->delta_conv, .cache = kept->conv, .slot = see->slot, .before = see->past,
        .out = space->delta_x, .silu = true, .rows = rows, .width = joined, .taps = d->taps, .in_stride = in_width,
        .out_stride = joined});
    space->ops->delta_keys(space->queue, &(struct delta_keys_args){
        .x = space->delta_x, .rate = space->delta_gates, .step = layer_row_part(space->delta_gates, heads),
        .neg_a = weights->delta_neg_a, .step_bias = weights->delta_step_bias, .slot = see->slot, .parent = see->parent,
        .key = kept->key, .decay = kept->decay, .beta = space->delta_beta, .epsilon = EPSILON, .rows = rows,
        .key_heads = d->key_heads, .value_heads = heads, .key_dim = d->key_dim, .stride = joined, .gate_stride = 2 * heads});
    space->ops->delta(space->queue, &(struct delta_args){
        .q = space->delta_x, .v = layer_row_part(space->delta_x, 2 * keys), .beta = space->delta_beta, .key = kept->key,
        .decay = kept->decay, .correction = kept->correction, .state = kept->state, .own = see->own, .before = see->before,
        .path_start = see->path_start, .path = see->path, .out = space->attended, .rows = rows, .key_heads = d->key_heads,
        .value_heads = heads, .key_dim = d->key_dim, .value_dim = d->value_dim, .stride = joined});
    leave(layer, joined, in_width);
    space->ops->linear(space->queue, &(struct linear_args){
        .in = space->attended, .weight = weights->out.data, .out = space->x, .operand = space->operand,
        .format = weights->out.format, .add = true, .scale = space->shape->residual_scale, .slab = layer->rows->slab,
        .rows = rows, .inputs = values, .outputs = space->shape->hidden, .in_stride = values,
        .out_stride = space->shape->hidden});
}

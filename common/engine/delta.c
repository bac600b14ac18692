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

/* From delta_in and delta_gates of a text's rows to their part of space->attended. */
static void run_text(const struct layer *layer, const struct layer_text *text, int joined, int in_width)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const struct layer_weights *weights = layer->weights;
    const struct recurrent_layer *kept = &text->recurrent;
    const struct recurrent_rows *see = &text->states;
    const int rows = text->rows.rows, keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim;
    const int heads = d->value_heads, first = text->first;
    const struct buffer x = layer_rows_from(space->delta_x, first, joined);
    const struct buffer gates = layer_rows_from(space->delta_gates, first, 2 * heads);
    const struct buffer beta = layer_rows_from(space->delta_beta, first, heads);

    space->ops->short_conv(space->queue, &(struct short_conv_args){
        .in = layer_rows_from(space->delta_in, first, in_width), .weight = weights->delta_conv, .cache = kept->conv,
        .slot = see->slot, .before = see->past, .out = x, .silu = true, .rows = rows, .width = joined, .taps = d->taps,
        .in_stride = in_width, .out_stride = joined});
    space->ops->delta_keys(space->queue, &(struct delta_keys_args){
        .x = x, .rate = gates, .step = layer_row_part(gates, heads), .neg_a = weights->delta_neg_a,
        .step_bias = weights->delta_step_bias, .slot = see->slot, .parent = see->parent, .key = kept->key,
        .decay = kept->decay, .beta = beta, .epsilon = EPSILON, .rows = rows, .key_heads = d->key_heads,
        .value_heads = heads, .key_dim = d->key_dim, .stride = joined, .gate_stride = 2 * heads});
    space->ops->delta(space->queue, &(struct delta_args){
        .q = x, .v = layer_row_part(x, 2 * keys), .beta = beta, .key = kept->key, .decay = kept->decay,
        .correction = kept->correction, .state = kept->state, .own = see->own, .before = see->before,
        .path_start = see->path_start, .path = see->path, .out = layer_rows_from(space->attended, first, values),
        .rows = rows, .key_heads = d->key_heads, .value_heads = heads, .key_dim = d->key_dim, .value_dim = d->value_dim,
        .stride = joined, .tiled = d->tiled});
}

/* delta_in gives q, k, v and z side by side; the short convolution runs over q, k and v. delta_keys stores the normalised
 * keys and decays, delta applies the rule. The output projection adds to x. */
void layer_delta(const struct layer *layer)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const struct layer_weights *weights = layer->weights;
    const struct buffer none = {0, 0};
    const int rows = layer->rows->rows, keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim;
    const int joined = 2 * keys + values, in_width = joined + values, heads = d->value_heads;

    layer_enter(layer, weights, false, space->normed);
    layer_project(layer, space->normed, weights->delta_in.inputs, &weights->delta_in, none, space->delta_in, in_width);
    layer_project(layer, space->normed, weights->delta_gates.inputs, &weights->delta_gates, none, space->delta_gates,
                  2 * heads);
    for (int i = 0; i < layer->texts; i++)
        run_text(layer, &layer->text[i], joined, in_width);
    leave(layer, joined, in_width);
    space->ops->linear(space->queue, &(struct linear_args){
        .in = space->attended, .weight = weights->out.data, .out = space->x, .operand = space->operand,
        .format = weights->out.format, .add = true, .scale = space->shape->residual_scale, .slab = layer->rows->slab,
        .rows = rows, .inputs = values, .outputs = space->shape->hidden, .in_stride = values,
        .out_stride = space->shape->hidden});
}

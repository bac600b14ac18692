/* A layer with a recurrent state in place of attention: Gated DeltaNet (arXiv 2412.06464), as in Qwen3-Next; Kimi Delta
 * Attention (arXiv 2510.26692), with latents of its gates or without; Mamba-2 (arXiv 2405.21060), as in Granite 4; Mamba-1
 * (arXiv 2312.00752), as in Jamba; or a gated short convolution alone, as in LFM2. */
#include "common/engine/layer.h"

/* Added to the sum of squares by which q and k are normalised, as in transformers (l2norm). */
static const float EPSILON = 1e-6f;

/* Computes x *= f(gate), rows of `width` floats. */
static void gate_by(const struct layer *layer, struct buffer x, int stride, enum gate_kind kind, struct buffer gate,
                    int gate_stride, int width)
{
    struct workspace *space = layer->space;
    space->ops->gated(space->queue, &(struct gated_args){
        .in = x, .gate = gate, .out = x, .kind = kind, .rows = layer->rows->rows, .parts = 1, .width = width,
        .in_stride = stride, .gate_stride = gate_stride, .out_stride = stride});
}

/* Norms parts of space->attended; `apart`: each has weights of its own. */
static void norm_parts(const struct layer *layer, int parts, int width, bool apart)
{
    struct workspace *space = layer->space;
    space->ops->norm(space->queue, &(struct norm_args){
        .in = space->attended, .weight = layer->weights->delta_norm, .out = space->attended,
        .epsilon = space->shape->norm_epsilon, .apart = apart, .rows = layer->rows->rows, .parts = parts, .width = width,
        .in_stride = parts * width, .out_stride = parts * width});
}

/* Gates space->attended and norms it. The gate is in delta_in, after the inputs of the convolution; with latents, in
 * delta_gate. */
static void gate_output(const struct layer *layer, const struct delta_widths *w)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const bool latent = space->delta_gate.address != 0;
    const enum gate_kind kind = d->kind == RECURRENCE_CHANNEL ? GATE_SIGMOID
                                : d->kind == RECURRENCE_NONE ? GATE_SAME : GATE_SILU;
    const struct buffer gate = latent ? space->delta_gate : layer_row_part(space->delta_in, w->conv);
    if (recurrence_corrects(d->kind))
        norm_parts(layer, d->value_heads, d->value_dim, false);
    gate_by(layer, space->attended, w->values, kind, gate, latent ? w->values : w->in, w->values);
    if (d->kind == RECURRENCE_SPACE)
        norm_parts(layer, d->norm_groups, w->values / d->norm_groups, true);
}

/* Returns a text's rows in the output of the convolution. */
static struct buffer convolved(const struct layer *layer, const struct layer_text *text, const struct delta_widths *w)
{
    const struct workspace *space = layer->space;
    const bool alone = space->shape->delta.kind == RECURRENCE_NONE;
    return layer_rows_from(alone ? space->attended : space->delta_x, text->first, w->conv);
}

/* Runs the recurrence for a text's rows: reads the output of the convolution and delta_gates, and writes the text's part of
 * space->attended. Queries and keys are outputs of the convolution, or with RECURRENCE_SCAN the first outputs of
 * delta_gates. */
static void run_rule(const struct layer *layer, const struct layer_text *text, const struct delta_widths *w)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    const struct layer_weights *weights = layer->weights;
    const struct recurrent_layer *kept = &text->recurrent;
    const struct recurrent_rows *see = &text->states;
    const int rows = text->rows.rows, heads = d->value_heads, first = text->first;
    const struct buffer gates = layer_rows_from(space->delta_gates, first, w->gates);
    const bool latent = d->gate_rank > 0, scan = d->kind == RECURRENCE_SCAN;
    const struct buffer beta = scan ? (struct buffer){0, 0} : layer_rows_from(space->delta_beta, first, heads);
    const struct buffer out = convolved(layer, text, w);
    const struct buffer steps = latent ? layer_rows_from(space->delta_steps, first, w->steps)
                                       : layer_row_part(gates, w->gates - w->steps);
    const struct buffer x = scan ? gates : out, values = scan ? out : layer_row_part(out, 2 * w->keys);
    const int stride = scan ? w->gates : w->conv;

    space->ops->delta_keys(space->queue, &(struct delta_keys_args){
        .x = x, .rate = gates, .step = steps, .neg_a = weights->delta_neg_a,
        .step_bias = weights->delta_step_bias, .slot = see->slot, .parent = see->parent, .key = kept->key,
        .decay = kept->decay, .beta = beta, .kind = d->kind, .epsilon = EPSILON, .floor = d->floor,
        .rows = rows, .key_heads = d->key_heads, .value_heads = heads, .key_dim = d->key_dim, .value_dim = d->value_dim,
        .stride = stride, .gate_stride = w->gates, .step_stride = latent ? w->steps : w->gates});
    space->ops->delta(space->queue, &(struct delta_args){
        .q = x, .v = values, .beta = beta, .skip = weights->delta_skip, .neg_a = weights->delta_neg_a, .key = kept->key,
        .decay = kept->decay, .correction = kept->correction, .state = kept->state, .own = see->own, .before = see->before,
        .path_start = see->path_start, .path = see->path, .out = layer_rows_from(space->attended, first, w->values),
        .kind = d->kind, .rows = rows, .key_heads = d->key_heads, .value_heads = heads, .key_dim = d->key_dim,
        .value_dim = d->value_dim, .stride = stride, .value_stride = w->conv, .tiled = d->tiled});
}

static void convolve(const struct layer *layer, const struct layer_text *text, const struct delta_widths *w)
{
    struct workspace *space = layer->space;
    const struct delta_shape *d = &space->shape->delta;
    space->ops->short_conv(space->queue, &(struct short_conv_args){
        .in = layer_rows_from(space->delta_in, text->first, w->in), .weight = layer->weights->delta_conv,
        .bias = layer->weights->delta_conv_bias, .cache = text->recurrent.conv, .slot = text->states.slot,
        .before = text->states.past, .out = convolved(layer, text, w), .silu = d->kind != RECURRENCE_NONE,
        .rows = text->rows.rows, .width = w->conv, .taps = d->taps, .in_stride = w->in, .out_stride = w->conv});
}

/* Norms `width` floats of delta_gates, from float `first` on. */
static void norm_gates(const struct layer *layer, const struct delta_widths *w, int first, int width)
{
    struct workspace *space = layer->space;
    const struct buffer part = layer_row_part(space->delta_gates, first);
    space->ops->norm(space->queue, &(struct norm_args){
        .in = part, .weight = layer_row_part(layer->weights->delta_norm, first), .out = part,
        .epsilon = space->shape->norm_epsilon, .rows = layer->rows->rows, .parts = 1, .width = width, .in_stride = w->gates,
        .out_stride = w->gates});
}

/* Computes queries, keys and steps of RECURRENCE_SCAN from the output of the convolution. */
static void make_scan(const struct layer *layer, const struct delta_widths *w)
{
    struct workspace *space = layer->space;
    const struct layer_weights *weights = layer->weights;
    const struct buffer none = {0, 0};
    layer_project(layer, space->delta_x, w->conv, &weights->delta_gates, none, space->delta_gates, w->gates);
    norm_gates(layer, w, 0, w->keys);
    norm_gates(layer, w, w->keys, w->keys);
    norm_gates(layer, w, 2 * w->keys, space->shape->delta.gate_rank);
    layer_project(layer, layer_row_part(space->delta_gates, 2 * w->keys), w->gates, &weights->delta_steps, none,
                  space->delta_steps, w->steps);
}

/* Computes rates and steps, and the gate of the output if it has a latent, from what the layer reads. */
static void make_gates(const struct layer *layer, const struct delta_widths *w)
{
    struct workspace *space = layer->space;
    const struct layer_weights *weights = layer->weights;
    const struct buffer none = {0, 0};
    const int rank = space->shape->delta.gate_rank;
    layer_project(layer, space->normed, weights->delta_gates.inputs, &weights->delta_gates, none, space->delta_gates, w->gates);
    if (!rank)
        return;
    layer_project(layer, layer_row_part(space->delta_in, w->conv), w->in, &weights->delta_gate, none, space->delta_gate,
                  w->values);
    layer_project(layer, layer_row_part(space->delta_in, w->conv + rank), w->in, &weights->delta_steps, none,
                  space->delta_steps, w->steps);
}

/* Runs a layer with a state. delta_in computes q, k, v and z side by side; the short convolution runs over q, k and v.
 * delta_keys stores the keys and decays, delta applies the rule. Without a recurrence, delta_in computes v, z and the gate
 * of v, and the output of the convolution replaces that of the rule. With RECURRENCE_SCAN, delta_in computes v and z. The
 * output projection is added to x. */
int layer_delta(const struct layer *layer, struct err *err)
{
    struct workspace *space = layer->space;
    const struct delta_widths w = hparams_delta_widths(space->shape);
    const struct layer_weights *weights = layer->weights;
    const struct buffer none = {0, 0};
    const enum recurrence kind = space->shape->delta.kind;

    layer_enter(layer, weights, false, space->normed);
    if (layer_project_divided(layer, space->normed, weights->delta_in.inputs, &weights->delta_in, none, space->delta_in, w.in,
                              err))
        return -1;
    if (kind == RECURRENCE_NONE)
        gate_by(layer, space->delta_in, w.in, GATE_SAME, layer_row_part(space->delta_in, w.conv + w.values), w.in, w.values);
    for (int i = 0; i < layer->texts; i++)
        convolve(layer, &layer->text[i], &w);
    if (kind != RECURRENCE_NONE)
        (kind == RECURRENCE_SCAN ? make_scan : make_gates)(layer, &w);
    for (int i = 0; i < layer->texts && kind != RECURRENCE_NONE; i++)
        run_rule(layer, &layer->text[i], &w);
    gate_output(layer, &w);
    return layer_linear(layer, &(struct linear_args){
        .in = space->attended, .weight = weights->out.data, .out = space->x, .operand = space->operand,
        .format = weights->out.format, .add = true, .scale = space->shape->residual_scale, .slab = layer->rows->slab,
        .rows = layer->rows->rows, .inputs = w.values, .outputs = space->shape->hidden, .in_stride = w.values,
        .out_stride = space->shape->hidden}, err);
}

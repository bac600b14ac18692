/* One forward: embedding, all layers that are not left out, logits of the requested rows. */
#include <string.h>

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/peers.h"
#include "common/engine/second.h"

static const struct forward_part *part_of(const struct pass *pass)
{
    static const struct forward_part whole;
    return pass->batch->part ? pass->batch->part : &whole;
}

int pass_layers(const struct pass *pass)
{
    return part_of(pass)->layers ? part_of(pass)->layers : pass->engine->shape->layers;
}

int pass_top_k(const struct pass *pass)
{
    return part_of(pass)->top_k ? part_of(pass)->top_k : pass->engine->shape->router.top_k;
}

bool pass_attends(const struct pass *pass, int n)
{
    return n < pass_layers(pass) && !pass->engine->shape->layer[n].ffn_alone &&
           !(part_of(pass)->skip_attention && part_of(pass)->skip_attention[n]);
}

bool pass_feeds(const struct pass *pass, int n)
{
    return n < pass_layers(pass) && pass->engine->shape->layer[n].ffn != FFN_NONE &&
           !(part_of(pass)->skip_ffn && part_of(pass)->skip_ffn[n]);
}

bool pass_skips_layers(const struct pass *pass)
{
    const struct forward_part *part = part_of(pass);
    return part->layers || part->skip_attention || part->skip_ffn;
}

bool pass_leaves_nothing_else_out(const struct batch *batch)
{
    const struct forward_part *part = batch->part;
    return !batch->plan && !batch->forced &&
           (!part || (!part->skip_attention && !part->skip_ffn && !part->top_k && !part->experts));
}

struct layer_experts pass_experts(const struct pass *pass, int n)
{
    const struct layer_weights *weights = &pass->engine->weights->layer[n];
    if (part_of(pass)->experts)
        return experts_copy_layer(part_of(pass)->experts, n);
    return (struct layer_experts){pass->engine->setup.experts, weights->experts_format, weights->experts_down_format,
                                  weights->expert_bytes};
}

/* Uploads the masks of a static ranking, for all layers at once, or the row weights of PLAN_PATH. */
static int plan_begin(const struct pass *pass, struct err *err)
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

/* Returns part number `part` of a buffer [parts][rows][width]. */
static struct buffer part_at(const struct pass *pass, struct buffer all, int part, int width, size_t size)
{
    uint64_t bytes = (uint64_t)pass->rows * (uint64_t)width * size;
    return buffer_part(all, (uint64_t)part * bytes, bytes);
}

static struct layer_routing routing_at(const struct pass *pass, int moe)
{
    const struct engine *engine = pass->engine;
    const int experts = hparams_choices(engine->shape), top_k = pass_top_k(pass);
    return (struct layer_routing){
        .top_k = top_k, .score = part_at(pass, engine->score, moe, experts, sizeof(float)),
        .wanted = part_at(pass, engine->wanted, moe, top_k, sizeof(int32_t)),
        .expert = part_at(pass, engine->expert, moe, top_k, sizeof(int32_t)),
        .weight = part_at(pass, engine->weight, moe, top_k, sizeof(float)),
        .mask = buffer_part(engine->mask, (uint64_t)moe * (uint64_t)experts, (uint64_t)experts)};
}

/* Returns the next layer after n whose experts are run. */
static struct forecast_layer find_forecast_layer(const struct pass *pass, int n)
{
    const struct engine *engine = pass->engine;
    while (++n < pass_layers(pass))
        if (engine->shape->layer[n].ffn == FFN_EXPERTS && pass_feeds(pass, n))
            return (struct forecast_layer){.number = n, .weights = &engine->weights->layer[n]};
    return (struct forecast_layer){0};
}

/* Returns the part of text i in a layer. In a pass of one text, `rows` may currently be fewer than the text's. */
static struct layer_text text_at(const struct pass *pass, const struct layer_rows *rows, int i, int n)
{
    const struct engine *engine = pass->engine;
    const struct pass_text *text = &pass->text[i];
    struct layer_text at = {
        .first = text->first, .rows = pass->texts == 1 ? *rows : row_table_part(&engine->row, text->first, text->rows),
        .cache = kv_layer(&text->sequence->kv, n),
        .states = recurrent_table_part(&engine->recurrent, engine->shape, text->first, i)};
    at.rows.longest = text->longest;
    at.plan = text->batch->plan;
    if (engine->shape->layer[n].state)
        at.recurrent = text->sequence->recurrent.layer[n];
    return at;
}

/* Returns the arguments of layer n. Forecasts are not sent to the source from which this forward reads, unless a part is
 * left out (a self-draft). */
static struct layer layer_at(const struct pass *pass, const struct layer_rows *rows, int n, int moe)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    struct layer at = {
        .space = &engine->space, .number = n, .weights = &engine->weights->layer[n], .rows = rows,
        .rope = engine->shape->layer[n].other ? engine->other_rope.table : engine->rope.table,
        .no_rope_scale = engine->no_rope_scale.table,
        .after = n + 1 < pass_layers(pass) && pass_attends(pass, n + 1) ? &engine->weights->layer[n + 1] : NULL,
        .text = engine->layer_text, .texts = pass->texts, .stop = engine->setup.stop};
    at.divided = engine->setup.peers;
    for (int i = 0; i < pass->texts; i++)
        engine->layer_text[i] = text_at(pass, rows, i, n);
    if (engine->shape->layer[n].ffn != FFN_EXPERTS)
        return at;
    at.experts = pass_experts(pass, n);
    at.routing = routing_at(pass, moe);
    if (engine->setup.forecast_to != at.experts.source || batch->part)
        at.forecast_to = engine->setup.forecast_to;
    if (at.experts.source == engine->setup.experts && engine->setup.second && second_splits(engine->setup.second))
        at.second = engine->setup.second;
    if (at.experts.source == engine->setup.experts && peers_own_experts(engine->setup.peers, (uint64_t)at.experts.bytes))
        at.peers = engine->setup.peers;
    const bool forecast = engine->setup.look_ahead && !batch->part && !at.experts.source->class->fixed;
    if (forecast || batch->want_ahead)
        at.next = find_forecast_layer(pass, n);
    at.next.forecast = forecast;
    if (batch->want_ahead)
        at.next.expert = engine->out_ahead + (size_t)(moe + 1) * (size_t)pass->rows * (size_t)at.routing.top_k;
    at.plan = batch->plan;
    at.moe = moe;
    at.row_weight = engine->row_weight;
    if (batch->forced)
        at.forced = batch->forced + (size_t)moe * (size_t)pass->rows * (size_t)at.routing.top_k;
    if (batch->want_reconstruction)
        at.reconstruction = &engine->reconstruction[moe];
    return at;
}

/* Copies the residual stream of some rows. */
static void keep(const struct pass *pass, int first, int rows, struct buffer out)
{
    struct engine *engine = pass->engine;
    const int hidden = engine->shape->hidden;
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = layer_rows_from(engine->space.x, first, hidden), .index = engine->every_row, .out = out, .rows = rows,
        .count = rows, .width = hidden});
}

/* Returns the place of feature number i of a text's rows: each text has its own [count][rows][hidden], one after another. */
static struct buffer feature_at(const struct pass *pass, const struct pass_text *text, int i)
{
    const int row = text->first * pass->batch->features->count + i * text->rows;
    return layer_rows_from(pass->engine->features, row, pass->engine->shape->hidden);
}

/* Allocates the buffers for requested states. */
static int keep_begin(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct feature_request *features = pass->batch->features;
    uint64_t row = (uint64_t)engine->shape->hidden * sizeof(float);
    uint64_t bytes = features ? (uint64_t)features->count * (uint64_t)engine->setup.max_rows * row : 0;
    if (pass->batch->want_hidden && !engine->hidden.address &&
        device_alloc(engine->device, (uint64_t)engine->setup.max_rows * (uint64_t)engine->shape->layers * row,
                     &engine->hidden, err))
        return -1;
    if (bytes <= engine->features.bytes)
        return 0;
    device_free(engine->device, &engine->features);
    return device_alloc(engine->device, bytes, &engine->features, err);
}

/* Copies the requested states after layer n. */
static void keep_layer(const struct pass *pass, int n)
{
    const struct feature_request *features = pass->batch->features;
    if (pass->batch->want_hidden)
        keep(pass, 0, pass->rows, part_at(pass, pass->engine->hidden, n, pass->engine->shape->hidden, sizeof(float)));
    for (int i = 0; features && i < features->count; i++)
        for (int t = 0; features->layer[i] == n && t < pass->texts; t++)
            keep(pass, pass->text[t].first, pass->text[t].rows, feature_at(pass, &pass->text[t], i));
}

static void keep_final(const struct pass *pass)
{
    const struct engine *engine = pass->engine;
    const struct feature_request *features = pass->batch->features;
    for (int i = 0; features && i < features->count; i++)
        for (int t = 0; features->layer[i] == engine->shape->layers && t < pass->texts; t++) {
            const struct pass_text *text = &pass->text[t];
            layer_norm(&engine->space, layer_rows_from(engine->space.x, text->first, engine->shape->hidden),
                       engine->weights->final_norm, engine->weights->final_norm_bias, feature_at(pass, text, i), text->rows);
        }
}

/* Computes the logits of the requested rows; if several processes share the model, each computes a part of the vocabulary. */
static int head(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    struct peers *peers = engine->setup.peers;
    struct matrix matrix = engine->weights->head;
    int rows = pass->batch->logit_rows, hidden = engine->shape->hidden, vocab = engine->shape->vocab;
    const float divisor = engine->shape->logit_divisor, cap = engine->shape->logit_cap;
    if (!rows)
        return 0;
    const int first = peers ? peers_part(peers, &engine->weights->head, &matrix) : 0;
    const struct buffer bias = engine->weights->head_bias;
    engine->ops->gather(engine->queue, &(struct gather_args){
        .in = engine->space.x, .index = engine->logit_row, .out = engine->last, .rows = pass->rows, .count = rows,
        .width = hidden});
    layer_norm(&engine->space, engine->last, engine->weights->final_norm, engine->weights->final_norm_bias, engine->last, rows);
    if (matrix.outputs)
        engine->ops->linear(engine->queue, &(struct linear_args){
            .in = engine->last, .weight = matrix.data, .bias = bias.address ? layer_row_part(bias, first) : bias,
            .out = layer_row_part(engine->logits, first), .operand = engine->space.operand,
            .scale = divisor != 0 && cap != 0 ? 1 / (divisor * cap) : divisor != 0 ? 1 / divisor : cap != 0 ? 1 / cap : 0,
            .format = matrix.format, .rows = rows, .inputs = hidden, .outputs = matrix.outputs, .in_stride = hidden,
            .out_stride = vocab});
    if (peers && peers_gather(peers, engine->logits, rows, vocab, err))
        return -1;
    if (cap != 0)
        engine->ops->activate(engine->queue, &(struct activate_args){
            .in = engine->logits, .out = engine->logits, .activation = ACTIVATION_TANH, .scale = cap, .rows = rows,
            .width = vocab});
    return 0;
}

/* Forecasts forced experts, which are known before any layer has run. */
static int forecast_forced_experts(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    const size_t slots = (size_t)pass->rows * (size_t)pass_top_k(pass);
    const int32_t *expert = pass->batch->forced;
    uint8_t *mark = engine->space.mark;
    for (int n = 0; n < pass_layers(pass); n++) {
        if (shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        int count = 0;
        memset(mark, 0, (size_t)shape->router.experts);
        for (size_t i = 0; i < slots; i++)
            if (expert[i] >= 0 && expert[i] < shape->router.experts && !mark[expert[i]]) {
                mark[expert[i]] = 1;
                engine->space.layer_experts[count++] = expert[i];
            }
        expert += slots;
        if (pass_feeds(pass, n) &&
            expert_source_prefetch(pass_experts(pass, n).source, n, engine->space.layer_experts, NULL, count, err))
            return -1;
    }
    return 0;
}

/* Allocates the predictions of the routers; the first layer has no previous state. The last layer's pointer is past the end
 * and never written to. */
static int ahead_begin(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const size_t each = (size_t)engine->setup.max_rows * (size_t)engine->shape->router.top_k;
    const size_t first = (size_t)pass->rows * (size_t)engine->shape->router.top_k;
    if (!engine->out_ahead &&
        !(engine->out_ahead = mem_alloc((size_t)(engine->moe_layers + 1) * each, sizeof *engine->out_ahead, err)))
        return -1;
    for (size_t i = 0; i < first; i++)
        engine->out_ahead[i] = -1;
    return 0;
}

int forward_begin(const struct pass *pass, struct err *err)
{
    if (pass->engine->setup.peers)
        peers_begin(pass->engine->setup.peers, pass->batch->token, pass->rows);
    return (pass->batch->plan && plan_begin(pass, err)) || keep_begin(pass, err) ||
           (pass->batch->want_ahead && ahead_begin(pass, err)) ? -1 : 0;
}

void forward_embed(const struct pass *pass, int rows)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    engine->ops->embed(engine->queue, &(struct embed_args){
        .token = engine->token, .table = engine->weights->embed.data, .out = engine->space.x,
        .format = engine->weights->embed.format, .scale = shape->embed_scale, .rows = rows, .vocab = shape->vocab,
        .hidden = shape->hidden});
}

static int interrupted(const struct pass *pass, struct err *err)
{
    return stop_asked(pass->engine->setup.stop) ? err_set(err, ERR_SIGNAL, "interrupted") : 0;
}

int forward_layer(const struct pass *pass, const struct layer_rows *rows, int n, int moe, struct err *err)
{
    const struct layer layer = layer_at(pass, rows, n, moe);
    if (interrupted(pass, err))
        return -1;
    if (rows->rows && pass->engine->shape->parallel)
        layer_enter(&layer, layer.weights, false, layer.space->normed);
    if (rows->rows)
        layer_begin_shortcut(&layer);
    if (!n || !pass_attends(pass, n))
        layer.space->has_chosen = false;
    if (rows->rows && pass_attends(pass, n) && layer_attention(&layer, err))
        return -1;
    if (rows->rows && pass_feeds(pass, n) && (layer_ffn(&layer, err) || interrupted(pass, err)))
        return -1;
    if (rows->rows && (pass_attends(pass, n) || pass_feeds(pass, n)))
        layer_scale(&layer);
    if (rows->rows == pass->rows)
        keep_layer(pass, n);
    return 0;
}

int forward_end(const struct pass *pass, struct err *err)
{
    keep_final(pass);
    return head(pass, err);
}

int forward_put(const struct pass *pass, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct hparams *shape = engine->shape;
    struct layer_rows rows = engine->row.at;
    rows.rows = pass->rows;
    rows.slab = pass->slab;
    if (forward_begin(pass, err) ||
        (pass->batch->forced && engine->setup.forecast_forced && forecast_forced_experts(pass, err)) ||
        (pass->resumes && resume_begin(pass, &rows, err)))
        return -1;
    if (rows.rows)
        forward_embed(pass, rows.rows);
    for (int n = 0, moe = 0; n < pass_layers(pass); moe += shape->layer[n++].ffn == FFN_EXPERTS) {
        const bool some = rows.rows < pass->rows;
        if (pass->resumes && resume_join(pass, n, &rows, err))
            return -1;
        if (some && rows.rows == pass->rows)                    /* x now contains the output of layer n - 1 for all rows */
            keep_layer(pass, n - 1);
        if (forward_layer(pass, &rows, n, moe, err))
            return -1;
    }
    return forward_end(pass, err);
}

static int check_plan(const struct pass *pass, struct err *err)
{
    const struct engine *engine = pass->engine;
    const struct expert_plan *plan = pass->batch->plan;
    if (plan && (plan->moe_layers != engine->moe_layers || plan->experts != engine->shape->router.experts))
        return err_set(err, ERR_INPUT, "the expert plan is for %d layers with %d experts, but the model has %d layers with %d",
                       plan->moe_layers, plan->experts, engine->moe_layers, engine->shape->router.experts);
    if (plan && engine->shape->router.zero_experts)
        return err_set(err, ERR_INPUT, "budgets of experts are not supported for models with zero experts; leave --budget out");
    if (plan && plan->ranking == PLAN_PATH && !pass->batch->row_weight)
        return err_set(err, ERR_INPUT, "the expert plan ranks by paths, which needs weights of rows; none were given");
    return 0;
}

static int check_part(const struct pass *pass, struct err *err)
{
    const struct hparams *shape = pass->engine->shape;
    const struct forward_part *part = part_of(pass);
    const struct feature_request *features = pass->batch->features;
    if (part->layers < 0 || part->layers > shape->layers)
        return err_set(err, ERR_INPUT, "a forward cannot stop after layer %d; the model has %d layers", part->layers,
                       shape->layers);
    if (part->top_k < 0 || part->top_k > shape->router.top_k)
        return err_set(err, ERR_INPUT, "a forward was to use %d experts per token, but the model uses at most %d", part->top_k,
                       shape->router.top_k);
    if (pass->batch->resume && pass->batch->part)
        return err_set(err, ERR_INPUT, "a forward that skips parts of layers cannot resume a stopped forward");
    if (features && (features->count < 0 || features->count > FEATURES_MAX))
        return err_set(err, ERR_INPUT, "features of %d layers were requested; the maximum is %d", features->count,
                       FEATURES_MAX);
    for (int i = 0; features && i < features->count; i++)
        if (features->layer[i] < 0 || features->layer[i] > shape->layers ||
            (features->layer[i] >= pass_layers(pass) && pass_layers(pass) < shape->layers))
            return err_set(err, ERR_INPUT, "features of layer %d were requested, but this forward runs only %d layers",
                           features->layer[i], pass_layers(pass));
    return 0;
}

void forward_begin_experts(const struct pass *pass, enum occasion occasion, int rows)
{
    const struct engine_setup *setup = &pass->engine->setup;
    const enum expert_forward forward = occasion != VERIFICATION ? EXPERTS_PROMPT
                                      : pass->batch->part || setup->beside ? EXPERTS_DRAFT : EXPERTS_VERIFY;
    expert_source_begin(setup->experts, rows, forward, occasion != VERIFICATION && !pass->sequence->kv.length);
    if (setup->second)
        second_begin(setup->second, forward);
}

/* After a failure, restores what tree_append and the layers have changed: pending nodes, recurrent states, stopped nodes. */
static void undo(const struct pass *pass)
{
    for (int i = 0; i < pass->texts; i++) {
        const struct pass_text *text = &pass->text[i];
        struct sequence *sequence = text->sequence;
        sequence->kv.pending = text->pending;
        recurrent_drop(&sequence->recurrent, text->pending, true);
        if (sequence->stopped)
            sequence->stopped->count = text->stopped;
        if (text->batch->resume)
            sequence_rollback(sequence);
    }
}

int forward_pass(struct pass *pass, enum occasion occasion, struct forward *out, struct err *err)
{
    struct engine *engine = pass->engine;
    const struct batch *batch = pass->batch;
    bool stops = batch->part && pass_layers(pass) < engine->shape->layers && pass_leaves_nothing_else_out(batch) &&
                 !hparams_state_layers(engine->shape) && !engine->shape->shortcut &&
                 !engine->shape->index.heads;
    if (check_plan(pass, err) || check_part(pass, err) || answer_check(pass, err) ||
        mem_grow(&engine->layer_text, &engine->layer_text_room, (size_t)pass->texts, sizeof *engine->layer_text, err))
        return -1;
    for (int moe = 0; moe < engine->moe_layers; moe++)
        engine->reconstruction[moe] = 0;
    for (int i = 0; i < pass->texts; i++) {
        struct pass_text *text = &pass->text[i];
        text->pending = text->sequence->kv.pending;
        text->stopped = text->sequence->stopped ? text->sequence->stopped->count : 0;
    }
    if (!batch->part || !batch->part->experts)
        forward_begin_experts(pass, occasion, pass->rows);
    if (!tree_append(pass, err) && !forward_put(pass, err) && (!stops || !resume_keep(pass, err)) &&
        !facts_collect(pass, out, err))
        return 0;
    if (engine->setup.second)
        second_abandon(engine->setup.second);
    undo(pass);
    return -1;
}

int forward_run(struct engine *engine, struct sequence *sequence, const struct batch *batch, enum occasion occasion,
                struct forward *out, struct err *err)
{
    struct pass_text text = {.sequence = sequence, .batch = batch, .rows = batch->rows};
    struct pass pass = {.engine = engine, .sequence = sequence, .batch = batch, .text = &text, .texts = 1,
                        .rows = batch->rows, .slab = occasion == PROMPT_SLAB, .prompt = occasion != VERIFICATION};
    return forward_pass(&pass, occasion, out, err);
}

int engine_forward(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct forward *out,
                   struct err *err)
{
    return forward_run(engine, sequence, batch, VERIFICATION, out, err);
}

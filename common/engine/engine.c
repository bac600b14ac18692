/* Opens and closes an engine: its weights and its working memory. */
#include "common/engine/engine.h"

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/rope.h"
#include "kernels/plugin.h"

static int alloc(struct engine *engine, struct buffer *out, int64_t a, int64_t b, size_t size, struct err *err)
{
    return workspace_alloc(engine->device, out, a, b, size, err);
}

static int alloc_rows(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    int rows = engine->setup.max_rows, logit_rows = engine->setup.max_logit_rows;
    size_t f = sizeof(float), i = sizeof(int32_t);
    return alloc(engine, &engine->last, logit_rows, shape->hidden, f, err) ||
           alloc(engine, &engine->logits, logit_rows, shape->vocab, f, err) || alloc(engine, &engine->token, rows, 1, i, err) ||
           row_table_open(&engine->row, engine->device, rows, err) ||
           recurrent_table_open(&engine->recurrent, engine->device, rows, shape, err) ||
           alloc(engine, &engine->logit_row, logit_rows, 1, i, err) || alloc(engine, &engine->every_row, rows, 1, i, err) ||
           alloc(engine, &engine->merge, rows, 1, i, err) ? -1 : 0;
}

static int alloc_routing(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    int64_t rows = engine->setup.max_rows, moe = engine->moe_layers, experts = hparams_choices(shape),
        top_k = shape->router.top_k;
    if (!moe)
        return 0;
    return alloc(engine, &engine->score, moe * rows, experts, sizeof(float), err) ||
           alloc(engine, &engine->wanted, moe * rows, top_k, sizeof(int32_t), err) ||
           alloc(engine, &engine->expert, moe * rows, top_k, sizeof(int32_t), err) ||
           alloc(engine, &engine->weight, moe * rows, top_k, sizeof(float), err) ||
           alloc(engine, &engine->mask, moe, experts, 1, err) ||
           alloc(engine, &engine->row_weight, rows, 1, sizeof(float), err) ? -1 : 0;
}

static int alloc_host(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    size_t rows = (size_t)engine->setup.max_rows, moe = (size_t)engine->moe_layers, experts = (size_t)hparams_choices(shape);
    size_t routed = rows * moe * (size_t)shape->router.top_k;
    engine->out_score = mem_alloc(rows * moe * experts, sizeof(float), err);
    engine->out_weight = mem_alloc(routed, sizeof(float), err);
    engine->out_wanted = mem_alloc(routed, sizeof(int32_t), err);
    engine->out_expert = mem_alloc(routed, sizeof(int32_t), err);
    engine->distinct_wanted = mem_alloc(moe, sizeof(int32_t), err);
    engine->distinct_loaded = mem_alloc(moe, sizeof(int32_t), err);
    engine->indices = mem_alloc(rows + 1, sizeof(int32_t), err);
    engine->node = mem_alloc(rows, sizeof(int32_t), err);
    if (mem_grow(&engine->layer_text, &engine->layer_text_room, 1, sizeof *engine->layer_text, err))
        return -1;
    engine->from = mem_alloc(rows, sizeof(int32_t), err);
    engine->reconstruction = mem_alloc(moe, sizeof(float), err);
    if (!engine->out_score || !engine->out_weight || !engine->out_wanted || !engine->out_expert || !engine->distinct_wanted ||
        !engine->distinct_loaded || !engine->indices || !engine->node || !engine->from || !engine->reconstruction)
        return -1;
    for (int row = 0; row < engine->setup.max_rows; row++)
        engine->indices[row] = row;
    queue_upload(engine->device, engine->every_row, engine->indices, rows * sizeof(int32_t));
    return 0;
}

/* Refuses a model with a weight format for which the device has no products. */
static int check_formats(const struct engine_setup *setup, struct err *err)
{
    const struct device_info *info = device_info(setup->device);
    for (int i = 0; !info->all_formats && i < model_tensor_count(setup->model); i++) {
        const struct tensor *t = model_tensor_at(setup->model, i);
        const enum weight_format last = tensor_last_format(t), format = last > t->format ? last : t->format;
        if ((int)format >= (int)GPU_FORMATS)
            return err_set(err, ERR_INPUT, "device %s: does not support the weight format %s of %s; use --device host, or "
                           "change the format with `moe-convert requant --dtype bf16`", info->name, format_name(format),
                           model_path(setup->model));
    }
    return 0;
}

int engine_open(struct engine **out, const struct engine_setup *setup, struct err *err)
{
    const struct hparams *shape = model_hparams(setup->model);
    struct engine *engine;
    if (setup->max_rows < 1 || setup->max_rows > ENGINE_ROWS_MAX || setup->max_logit_rows < 1 ||
        setup->max_logit_rows > setup->max_rows)
        return err_set(err, ERR_INPUT, "a forward was to have up to %d rows and logits for up to %d; both numbers must be "
                       "from 1 to %d", setup->max_rows,
                       setup->max_logit_rows, ENGINE_ROWS_MAX);
    if (setup->slab_rows < 0 || setup->slab_rows > ENGINE_SLAB_MAX)
        return err_set(err, ERR_INPUT, "slabs were to have %d rows; the number must be from 0 to %d", setup->slab_rows,
                       ENGINE_SLAB_MAX);
    if (hparams_moe_layers(shape) && !setup->experts && !setup->experts_later)
        return err_set(err, ERR_INPUT, "%s: the model has experts, but no expert source is open", model_path(setup->model));
    if (setup->cache != CACHE_F32 && !device_info(setup->device)->narrow_cache)
        return err_set(err, ERR_INPUT, "device %s: stores keys and values in f32 only; choose --kv-dtype f32",
                       device_info(setup->device)->name);
    if (setup->cache == CACHE_Q8 && !device_info(setup->device)->q8_cache)
        return err_set(err, ERR_INPUT, "device %s: cannot store keys and values in q8; choose --kv-dtype f32, f16 or bf16",
                       device_info(setup->device)->name);
    if (hparams_state_layers(shape) && !device_ops(setup->device)->delta)
        return err_set(err, ERR_INPUT, "device %s: does not support layers with a recurrent state, which %s has; use --device "
                       "host",
                       device_info(setup->device)->name, model_path(setup->model));
    if (!hparams_gated(shape) && !device_info(setup->device)->ungated)
        return err_set(err, ERR_INPUT, "device %s: does not support feed-forward networks without gates, which %s has; use "
                       "--device host", device_info(setup->device)->name, model_path(setup->model));
    if (check_formats(setup, err))
        return -1;
    if (shape->index.heads && !device_ops(setup->device)->index)
        return err_set(err, ERR_INPUT, "device %s: does not support sparse attention, which %s has; use --device host",
                       device_info(setup->device)->name, model_path(setup->model));
    if (shape->index.heads && setup->cache == CACHE_Q8)
        return err_set(err, ERR_INPUT, "sparse attention cannot read keys in q8; choose --kv-dtype f32, f16 or bf16");
    engine = mem_alloc(1, sizeof *engine, err);
    if (!engine)
        return -1;
    engine->setup = *setup;
    engine->piece_rows = setup->max_rows;
    engine->slab_rows = device_info(setup->device)->slabs ? setup->slab_rows : 0;
    if (engine->slab_rows > engine->setup.max_rows)
        engine->setup.max_rows = engine->slab_rows;
    engine->shape = shape;
    engine->device = setup->device;
    engine->ops = device_ops(setup->device);
    engine->queue = device_queue(setup->device);
    engine->moe_layers = hparams_moe_layers(shape);
    engine->max_positions = setup->max_positions && setup->max_positions < shape->max_positions ? setup->max_positions
        : shape->max_positions;
    if (weights_open(&engine->weights, setup->model, setup->device, err) ||
        workspace_make(&engine->space, setup->device, setup->model, engine->setup.max_rows, err) || alloc_rows(engine, err) ||
        alloc_routing(engine, err) || alloc_host(engine, err)) {
        engine_close(&engine);
        return -1;
    }
    *out = engine;
    return 0;
}

void engine_set_experts(struct engine *engine, struct expert_source *experts, struct expert_source *forecast_to)
{
    engine->setup.experts = experts;
    engine->setup.forecast_to = forecast_to;
}

void engine_set_second(struct engine *engine, struct second *second) { engine->setup.second = second; }

void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    if (!e)
        return;
    struct buffer *buffers[] = {
        &e->rope.table, &e->other_rope.table, &e->no_rope_scale.table,
        &e->last, &e->logits, &e->token, &e->logit_row, &e->every_row, &e->merge, &e->score, &e->wanted,
        &e->expert, &e->weight, &e->mask,
        &e->row_weight, &e->hidden, &e->features};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        device_free(e->device, buffers[i]);
    answer_free(e);
    device_free_shared(e->device, &e->landing);
    workspace_free(&e->space);
    weights_close(&e->weights);
    mem_free(&e->out_score);
    mem_free(&e->out_ahead);
    mem_free(&e->out_weight);
    mem_free(&e->out_hidden);
    mem_free(&e->out_wanted);
    mem_free(&e->out_expert);
    mem_free(&e->distinct_wanted);
    mem_free(&e->distinct_loaded);
    mem_free(&e->indices);
    mem_free(&e->layer_text);
    shared_free(e);
    row_table_close(&e->row);
    recurrent_table_close(&e->recurrent);
    mem_free(&e->node);
    mem_free(&e->from);
    mem_free(&e->reconstruction);
    mem_free(engine);
}

const struct hparams *engine_hparams(const struct engine *engine) { return engine->shape; }
const struct engine_setup *engine_config(const struct engine *engine) { return &engine->setup; }
int engine_max_positions(const struct engine *engine) { return engine->max_positions; }

struct engine_ends engine_ends(const struct engine *engine)
{
    const struct weights *weights = engine->weights;
    return (struct engine_ends){
        .embed = weights->embed.data, .head = weights->head.data, .head_bias = weights->head_bias,
        .embed_format = weights->embed.format, .head_format = weights->head.format,
        .scale = engine->shape->logit_divisor != 0 ? 1 / engine->shape->logit_divisor : 0};
}

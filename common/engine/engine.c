/* Opening and closing an engine: its weights and its working memory. */
#include "common/engine/engine.h"

#include "common/base/mem.h"
#include "common/engine/internal.h"
#include "common/engine/rope.h"

static int alloc(struct engine *engine, struct buffer *out, int64_t a, int64_t b, size_t size, struct err *err)
{
    size_t count, bytes;
    if (!size_mul((size_t)a, (size_t)b, &count) || !size_mul(count, size, &bytes))
        return err_memory(err);
    return device_alloc(engine->device, bytes, out, err);
}

static int alloc_rows(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    int rows = engine->setup.max_rows, logit_rows = engine->setup.max_logit_rows;
    size_t f = sizeof(float), i = sizeof(int32_t);
    if (alloc(engine, &engine->x, rows, shape->hidden, f, err) || alloc(engine, &engine->normed, rows, shape->hidden, f, err) ||
        alloc(engine, &engine->qkv, rows, engine->qkv_width, f, err) ||
        alloc(engine, &engine->attended, rows, shape->attention.heads * shape->attention.value_dim, f, err) ||
        alloc(engine, &engine->last, logit_rows, shape->hidden, f, err) ||
        alloc(engine, &engine->logits, logit_rows, shape->vocab, f, err) || alloc(engine, &engine->token, rows, 1, i, err) ||
        alloc(engine, &engine->position, rows, 1, i, err) || alloc(engine, &engine->slot, rows, 1, i, err) ||
        alloc(engine, &engine->prefix, rows, 1, i, err) || alloc(engine, &engine->path_start, rows + 1, 1, i, err) ||
        alloc(engine, &engine->logit_row, logit_rows, 1, i, err) || alloc(engine, &engine->every_row, rows, 1, i, err))
        return -1;
    return 0;
}

/* With latents: they, and the keys and values made from them. */
static int alloc_latents(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    int rows = engine->setup.max_rows;
    if (!shape->attention.kv_rank)
        return 0;
    return alloc(engine, &engine->latent_q, rows, shape->attention.q_rank, sizeof(float), err) ||
           alloc(engine, &engine->latent_kv, rows, shape->attention.kv_rank + shape->rope.rotary, sizeof(float), err) ||
           alloc(engine, &engine->spread, rows, engine->spread_width, sizeof(float), err) ? -1 : 0;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* The scratch of the widest row of activations in products with weights of one format. */
static size_t operand_most(const struct engine *engine, enum weight_format format)
{
    const struct hparams *shape = engine->shape;
    const int width[] = {shape->attention.heads * shape->attention.value_dim, shape->hidden, shape->dense_inner,
                         shape->shared_inner, shape->attention.q_rank, shape->attention.kv_rank};
    size_t most = 0;
    for (size_t i = 0; i < sizeof width / sizeof *width; i++)
        most = larger(most, operand_bytes(format, width[i]));
    size_t place = larger(operand_bytes(format, shape->hidden), operand_bytes(format, shape->expert_inner));
    return larger(most, (size_t)shape->router.top_k * place);
}

/* Room for rows of activations as products take them, where any weights ask for that. */
static int alloc_operand(struct engine *engine, struct err *err)
{
    const struct model *model = engine->setup.model;
    size_t most = 0;
    for (int i = 0; i < model_tensor_count(model); i++) {
        const enum weight_format formats[] = {model_tensor_at(model, i)->format,
                                              tensor_last_format(model_tensor_at(model, i))};
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
            if (formats[f] != FORMAT_BF16 || device_info(engine->device)->splits)
                most = larger(most, operand_most(engine, formats[f]));
    }
    return most ? alloc(engine, &engine->operand, engine->setup.max_rows, (int64_t)most, 1, err) : 0;
}

static int alloc_ffn(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    int64_t rows = engine->setup.max_rows, moe = engine->moe_layers, experts = shape->router.experts,
        top_k = shape->router.top_k;
    int64_t slots = moe ? top_k : 1;
    int64_t inner = moe ? top_k * shape->expert_inner : 0;
    if (shape->dense_inner > inner)
        inner = shape->dense_inner;
    if (shape->shared_inner > inner)
        inner = shape->shared_inner;
    if (alloc(engine, &engine->inner, rows, inner, sizeof(float), err) ||
        alloc(engine, &engine->partial, rows * slots, shape->hidden, sizeof(float), err) ||
        alloc(engine, &engine->group, expert_group_numbers(moe ? experts : 1, rows * slots), 1, sizeof(int32_t), err))
        return -1;
    if (!moe)
        return 0;
    if (shape->router.kind == ROUTER_SPARSEMIXER && alloc(engine, &engine->router_logits, rows, experts, sizeof(float), err))
        return -1;
    if (shape->shared_gate && alloc(engine, &engine->shared, rows, 1, sizeof(float), err))
        return -1;
    if (alloc(engine, &engine->score, moe * rows, experts, sizeof(float), err) ||
        alloc(engine, &engine->wanted, moe * rows, top_k, sizeof(int32_t), err) ||
        alloc(engine, &engine->expert, moe * rows, top_k, sizeof(int32_t), err) ||
        alloc(engine, &engine->weight, moe * rows, top_k, sizeof(float), err) ||
        alloc(engine, &engine->mask, moe, experts, 1, err) || alloc(engine, &engine->row_weight, rows, 1, sizeof(float), err))
        return -1;
    return 0;
}

static int alloc_host(struct engine *engine, struct err *err)
{
    const struct hparams *shape = engine->shape;
    size_t rows = (size_t)engine->setup.max_rows, moe = (size_t)engine->moe_layers, experts = (size_t)shape->router.experts;
    size_t routed = rows * moe * (size_t)shape->router.top_k;
    engine->out_score = mem_alloc(rows * moe * experts, sizeof(float), err);
    engine->out_weight = mem_alloc(routed, sizeof(float), err);
    engine->out_wanted = mem_alloc(routed, sizeof(int32_t), err);
    engine->out_expert = mem_alloc(routed, sizeof(int32_t), err);
    engine->distinct_wanted = mem_alloc(moe, sizeof(int32_t), err);
    engine->distinct_loaded = mem_alloc(moe, sizeof(int32_t), err);
    engine->indices = mem_alloc(rows + 1, sizeof(int32_t), err);
    engine->by_slot = mem_alloc(rows * (size_t)shape->router.top_k, sizeof(float), err);
    engine->mark = mem_alloc(experts, 1, err);
    engine->reconstruction = mem_alloc(moe, sizeof(float), err);
    engine->layer_experts = mem_alloc(experts, sizeof(int32_t), err);
    if (!engine->out_score || !engine->out_weight || !engine->out_wanted || !engine->out_expert || !engine->distinct_wanted ||
        !engine->distinct_loaded || !engine->indices || !engine->by_slot || !engine->mark || !engine->reconstruction ||
        !engine->layer_experts)
        return -1;
    for (int row = 0; row < engine->setup.max_rows; row++)
        engine->indices[row] = row;
    queue_upload(engine->device, engine->every_row, engine->indices, rows * sizeof(int32_t));
    return 0;
}

int engine_open(struct engine **out, const struct engine_setup *setup, struct err *err)
{
    const struct hparams *shape = model_hparams(setup->model);
    struct engine *engine;
    if (setup->max_rows < 1 || setup->max_rows > ENGINE_ROWS_MAX || setup->max_logit_rows < 1 ||
        setup->max_logit_rows > setup->max_rows)
        return err_set(err, ERR_INPUT, "an engine for %d rows and logits of %d: 1 to %d are possible", setup->max_rows,
                       setup->max_logit_rows, ENGINE_ROWS_MAX);
    if (setup->slab_rows < 0 || setup->slab_rows > ENGINE_SLAB_MAX)
        return err_set(err, ERR_INPUT, "slabs of %d rows: 0 to %d are possible", setup->slab_rows, ENGINE_SLAB_MAX);
    if (hparams_moe_layers(shape) && !setup->experts)
        return err_set(err, ERR_INPUT, "%s: the model has experts, but no expert source is open", model_path(setup->model));
    if (setup->cache != CACHE_F32 && !device_info(setup->device)->narrow_cache)
        return err_set(err, ERR_INPUT, "device %s: keeps keys and values in f32 alone", device_info(setup->device)->name);
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
    engine->qkv_width = (shape->attention.heads + 2 * shape->attention.kv_heads) * shape->attention.head_dim;
    if (shape->attention.kv_rank) {
        engine->qkv_width = shape->attention.heads * shape->attention.head_dim;
        engine->spread_width = shape->attention.heads *
                               (shape->attention.head_dim - shape->rope.rotary + shape->attention.value_dim);
    }
    engine->max_positions = setup->max_positions && setup->max_positions < shape->max_positions ? setup->max_positions
        : shape->max_positions;
    if (weights_open(&engine->weights, setup->model, setup->device, err) || alloc_rows(engine, err) ||
        alloc_latents(engine, err) || alloc_ffn(engine, err) ||
        alloc_operand(engine, err) || alloc_host(engine, err)) {
        engine_close(&engine);
        return -1;
    }
    *out = engine;
    return 0;
}

void engine_close(struct engine **engine)
{
    struct engine *e = *engine;
    if (!e)
        return;
    struct buffer *buffers[] = {
        &e->rope, &e->x, &e->normed, &e->qkv, &e->attended, &e->last, &e->logits, &e->inner, &e->partial, &e->group, &e->token,
        &e->position, &e->slot, &e->prefix, &e->path_start, &e->path, &e->logit_row, &e->every_row, &e->score, &e->wanted,
        &e->expert, &e->weight, &e->router_logits, &e->shared, &e->mask, &e->row_weight, &e->hidden, &e->operand,
        &e->latent_q, &e->latent_kv, &e->spread, &e->apart_in, &e->apart_out, &e->apart_row};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        device_free(e->device, buffers[i]);
    device_free_shared(e->device, &e->landing);
    weights_close(&e->weights);
    mem_free(&e->out_score);
    mem_free(&e->out_weight);
    mem_free(&e->out_hidden);
    mem_free(&e->out_wanted);
    mem_free(&e->out_expert);
    mem_free(&e->distinct_wanted);
    mem_free(&e->distinct_loaded);
    mem_free(&e->indices);
    mem_free(&e->path_list);
    mem_free(&e->by_slot);
    mem_free(&e->mark);
    mem_free(&e->gold);
    mem_free(&e->apart);
    mem_free(&e->reconstruction);
    mem_free(&e->layer_experts);
    mem_free(engine);
}

int engine_rope_cover(struct engine *engine, int positions, struct err *err)
{
    size_t pairs = (size_t)engine->shape->rope.rotary / 2, floats = 2 * pairs * (size_t)positions;
    struct buffer larger;
    if (positions <= engine->rope_positions)
        return 0;
    float *table = mem_alloc(floats, sizeof *table, err);
    if (!table)
        return -1;
    rope_table(&engine->shape->rope, 0, positions, table);
    if (device_alloc(engine->device, floats * sizeof *table, &larger, err)) {
        mem_free(&table);
        return -1;
    }
    queue_upload(engine->device, larger, table, floats * sizeof *table);
    mem_free(&table);
    if (queue_wait(engine->device, err)) {
        device_free(engine->device, &larger);
        return -1;
    }
    device_free(engine->device, &engine->rope);
    engine->rope = larger;
    engine->rope_positions = positions;
    return 0;
}

const struct hparams *engine_hparams(const struct engine *engine) { return engine->shape; }
const struct engine_setup *engine_made_from(const struct engine *engine) { return &engine->setup; }
int engine_max_positions(const struct engine *engine) { return engine->max_positions; }

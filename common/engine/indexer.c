/* Sparse attention (DeepSeek-V3.2): an indexer with heads of its own chooses the positions that a row attends to. Its keys
 * are stored in the KV cache as one more head of the same width. It uses the first index.dim floats of its keys, and no
 * values. */
#include "common/engine/indexer.h"

#include <math.h>

static bool has_indexer(const struct layer *layer)
{
    const struct hparams *shape = layer->space->shape;
    return shape->index.heads && !shape->layer[layer->number].shares_index;
}

/* Returns the part of the keys or values of the cache after those of attention's heads. */
static struct buffer after_heads(const struct layer *layer, struct buffer all, const struct layer_cache *cache, int width)
{
    const uint64_t heads = (uint64_t)layer->space->shape->attention.heads;
    const uint64_t offset = heads * (uint64_t)cache->capacity * (uint64_t)width * cache_size(cache->format);
    return buffer_part(all, offset, all.bytes - offset);
}

static void rotate(const struct layer *layer, struct buffer x, int heads, int stride)
{
    const struct workspace *space = layer->space;
    space->ops->rope(space->queue, &(struct rope_args){
        .x = x, .table = layer->rope, .position = layer->rows->position, .rows = layer->rows->rows, .heads = heads,
        .head_dim = space->shape->index.dim, .rotary = space->shape->rope.rotary, .stride = stride});
}

void indexer_keys(const struct layer *layer)
{
    struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    const struct layer_weights *weights = layer->weights;
    const int dim = shape->index.dim, width = shape->index.heads * dim, head_dim = shape->attention.head_dim;
    const int stride = head_dim + shape->attention.value_dim;       /* of space->index_k; its last floats stand in for values */
    const struct buffer none = {0, 0};
    if (!has_indexer(layer))
        return;
    layer_project(layer, space->latent_q, shape->attention.q_rank, &weights->index_q, none, space->index_q, width);
    layer_project(layer, space->normed, shape->hidden, &weights->index_k, none, space->index_k, stride);
    space->ops->norm(space->queue, &(struct norm_args){
        .in = space->index_k, .weight = weights->index_k_norm, .bias = weights->index_k_norm_bias, .out = space->index_k,
        .epsilon = 1e-6f, .center = true, .rows = layer->rows->rows, .parts = 1, .width = dim, .in_stride = stride,
        .out_stride = stride});
    rotate(layer, space->index_q, shape->index.heads, width);
    rotate(layer, space->index_k, 1, stride);
    const struct matrix *weight = &weights->index_weight;
    space->ops->linear(space->queue, &(struct linear_args){
        .in = space->normed, .weight = weight->data, .out = space->index_weight, .operand = space->operand,
        .scale = 1 / sqrtf((float)shape->index.heads), .format = weight->format, .rows = layer->rows->rows,
        .inputs = shape->hidden, .outputs = shape->index.heads, .in_stride = shape->hidden, .out_stride = shape->index.heads});
    for (int i = 0; i < layer->texts; i++) {
        const struct layer_text *text = &layer->text[i];
        const struct layer_cache *cache = &text->cache;
        const struct buffer keys = layer_rows_from(space->index_k, text->first, stride);
        space->ops->kv_write(space->queue, &(struct kv_write_args){
            .in_k = keys, .in_v = layer_row_part(keys, head_dim),
            .k = after_heads(layer, cache->k, cache, head_dim),
            .v = after_heads(layer, cache->v, cache, shape->attention.value_dim), .slot = text->rows.slot,
            .format = cache->format, .rows = text->rows.rows, .kv_heads = 1, .head_dim = head_dim,
            .value_dim = shape->attention.value_dim, .capacity = cache->capacity, .stride = stride});
    }
}

/* Returns the text's rows with its part of the buffers of chosen positions. */
static struct layer_rows chosen_rows(const struct layer *layer, const struct layer_text *text)
{
    const struct workspace *space = layer->space;
    struct layer_rows rows = text->rows;
    rows.prefix = layer_rows_from(space->chosen_prefix, text->first, 1);
    rows.path_start = layer_rows_from(space->chosen_start, 2 * text->first, 1);
    rows.path = layer_rows_from(space->chosen, text->first, space->shape->index.top_k);
    rows.longest = space->shape->index.top_k;
    return rows;
}

int indexer_cover(struct workspace *space, int positions, struct err *err)
{
    const uint64_t bytes = (uint64_t)space->rows * (uint64_t)positions * sizeof(float);
    if (!space->shape->index.heads || bytes <= space->index_score.bytes)
        return 0;
    device_free(space->device, &space->index_score);
    return workspace_alloc(space->device, &space->index_score, space->rows, positions, sizeof(float), err);
}

static void choose(const struct layer *layer, const struct layer_text *text, const struct layer_rows *to)
{
    struct workspace *space = layer->space;
    space->has_chosen = true;
    const struct hparams *shape = space->shape;
    const int width = shape->index.heads * shape->index.dim;
    space->ops->index(space->queue, &(struct index_args){
        .q = layer_rows_from(space->index_q, text->first, width),
        .weight = layer_rows_from(space->index_weight, text->first, shape->index.heads),
        .k = after_heads(layer, text->cache.k, &text->cache, shape->attention.head_dim), .prefix = text->rows.prefix,
        .path_start = text->rows.path_start, .path = text->rows.path, .score = space->index_score, .chosen = to->path,
        .chosen_start = to->path_start, .chosen_prefix = to->prefix, .scale = 1 / sqrtf((float)shape->index.dim),
        .format = text->cache.format, .rows = text->rows.rows, .heads = shape->index.heads, .dim = shape->index.dim,
        .q_stride = width, .key_stride = shape->attention.head_dim, .capacity = text->cache.capacity,
        .top_k = shape->index.top_k, .longest = text->rows.longest ? text->rows.longest : text->cache.capacity});
}

struct layer_rows indexer_rows(const struct layer *layer, const struct layer_text *text)
{
    const struct workspace *space = layer->space;
    const struct hparams *shape = space->shape;
    if (!shape->index.heads || (text->rows.longest && text->rows.longest <= shape->index.top_k))
        return text->rows;
    const struct layer_rows rows = chosen_rows(layer, text);
    if (has_indexer(layer))
        choose(layer, text, &rows);
    else if (!space->has_chosen)
        return text->rows;
    return rows;
}

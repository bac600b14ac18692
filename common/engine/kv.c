/* The KV cache of committed tokens and pending nodes, and the slots that a row attends to.
 *
 * As long as a node's index equals its depth along a path, slot and logical position are equal, and that part of the path is
 * a longer prefix: a chain needs no path at all. */
#include "common/engine/kv.h"

#include "common/base/mem.h"

static struct layer_attention kv_of(const struct kv_shape *shape, int layer)
{
    if (shape->model) {
        struct layer_attention own = hparams_attention(shape->model, layer);
        own.kv_heads = hparams_cached_heads(shape->model, layer);
        return own;
    }
    return (struct layer_attention){.kv_heads = shape->kv_heads, .head_dim = shape->head_dim, .value_dim = shape->value_dim};
}

static bool has_cache(const struct kv_shape *shape, int layer)
{
    return !shape->model || hparams_attends(shape->model, layer);
}

int64_t kv_layer_bytes(const struct hparams *shape, int layer, enum cache_format format)
{
    return (int64_t)hparams_kv_width(shape, layer) * (int64_t)cache_size(format) +
           2 * (int64_t)hparams_cached_heads(shape, layer) * (int64_t)cache_scale(format);
}

int64_t kv_token_bytes(const struct hparams *shape, enum cache_format format)
{
    int64_t all = 0;
    for (int layer = 0; layer < shape->layers; layer++)
        all += kv_layer_bytes(shape, layer, format);
    return all;
}

static int alloc_layers(struct kv *kv, struct err *err)
{
    const struct kv_shape *shape = &kv->shape;
    for (int layer = 0; layer < shape->layers; layer++) {
        const struct layer_attention own = kv_of(shape, layer);
        const size_t wide = (size_t)(own.head_dim > own.value_dim ? own.head_dim : own.value_dim);
        size_t rows, bound;
        if (!size_mul((size_t)kv->capacity, (size_t)own.kv_heads, &rows) ||
            !size_mul(rows, wide * cache_size(shape->format) + cache_scale(shape->format) + 3, &bound))
            return err_memory(err);
        const size_t k = cache_rows_bytes(shape->format, rows, (size_t)own.head_dim);
        const size_t v = cache_rows_bytes(shape->format, rows, (size_t)own.value_dim);
        if (has_cache(shape, layer) &&
            (device_alloc(kv->device, k, &kv->k[layer], err) || device_alloc(kv->device, v, &kv->v[layer], err)))
            return err_at(err, "KV cache of %d tokens", kv->capacity);
    }
    return 0;
}

int kv_open(struct kv *kv, struct device *device, const struct kv_shape *shape, int capacity, struct err *err)
{
    *kv = (struct kv){.device = device, .shape = *shape, .capacity = capacity};
    kv->k = mem_alloc((size_t)shape->layers, sizeof *kv->k, err);
    kv->v = mem_alloc((size_t)shape->layers, sizeof *kv->v, err);
    kv->parent = mem_alloc((size_t)capacity, sizeof *kv->parent, err);
    kv->depth = mem_alloc((size_t)capacity, sizeof *kv->depth, err);
    kv->run = mem_alloc((size_t)capacity, sizeof *kv->run, err);
    return kv->k && kv->v && kv->parent && kv->depth && kv->run ? alloc_layers(kv, err) : -1;
}

void kv_close(struct kv *kv)
{
    for (int layer = 0; layer < kv->shape.layers; layer++) {
        if (kv->k)
            device_free(kv->device, &kv->k[layer]);
        if (kv->v)
            device_free(kv->device, &kv->v[layer]);
    }
    mem_free(&kv->k);
    mem_free(&kv->v);
    mem_free(&kv->parent);
    mem_free(&kv->depth);
    mem_free(&kv->run);
}

/* Sets depth and `run` of a new node. run: number of nodes from the path's beginning whose index equals their depth. */
void kv_append(struct kv *kv, int node, int parent)
{
    int depth = parent < 0 ? 0 : kv->depth[parent] + 1;
    int run = parent < 0 ? 0 : kv->run[parent];
    kv->parent[node] = parent;
    kv->depth[node] = depth;
    kv->run[node] = run == depth && node == depth ? depth + 1 : run;
}

/* Moves the kept nodes down over the dropped ones. A node's index is never below its depth, so ascending order does not
 * overwrite a node that is still needed. */
static int move_kept(struct kv *kv, const int32_t *node, int first, int count, struct err *err)
{
    const struct kv_shape *shape = &kv->shape;
    size_t bytes = (size_t)(count - first) * sizeof(int32_t);
    struct buffer from = {0, 0}, to = {0, 0};
    int32_t *slot = mem_alloc((size_t)count, sizeof *slot, err);
    int rc = -1;
    if (!slot || device_alloc(kv->device, bytes, &from, err) || device_alloc(kv->device, bytes, &to, err))
        goto done;
    for (int i = first; i < count; i++)
        slot[i - first] = kv->length + node[i];
    queue_upload(kv->device, from, slot, bytes);
    for (int i = first; i < count; i++)
        slot[i - first] = kv->length + i;
    queue_upload(kv->device, to, slot, bytes);
    for (int layer = 0; layer < shape->layers; layer++) {
        if (!has_cache(shape, layer))
            continue;
        const struct layer_attention own = kv_of(shape, layer);
        device_ops(kv->device)->kv_move(device_queue(kv->device), &(struct kv_move_args){
            .k = kv->k[layer], .v = kv->v[layer], .from = from, .to = to, .format = shape->format, .count = count - first,
            .kv_heads = own.kv_heads, .head_dim = own.head_dim, .value_dim = own.value_dim, .capacity = kv->capacity});
    }
    rc = queue_wait(kv->device, err);
done:
    device_free(kv->device, &from);
    device_free(kv->device, &to);
    mem_free(&slot);
    return rc;
}

int kv_commit(struct kv *kv, const int32_t *node, int count, struct err *err)
{
    int in_place = 0;
    for (int i = 0; i < count; i++) {
        int parent = i ? node[i - 1] : -1;
        if (node[i] < 0 || node[i] >= kv->pending || kv->parent[node[i]] != parent)
            return err_set(err, ERR_INPUT, "node %d cannot be committed: it is not a pending child of node %d", (int)node[i],
                           parent);
        if (node[i] == i && in_place == i)
            in_place++;
    }
    if (in_place < count && move_kept(kv, node, in_place, count, err))
        return -1;
    kv->length += count;
    kv->pending = 0;
    return 0;
}

struct layer_cache kv_layer(const struct kv *kv, int layer)
{
    return (struct layer_cache){kv->k[layer], kv->v[layer], kv->capacity, kv->shape.format};
}

static int alloc_index(struct device *device, struct buffer *out, int count, struct err *err)
{
    return device_alloc(device, (size_t)count * sizeof(int32_t), out, err);
}

int row_table_open(struct row_table *table, struct device *device, int max_rows, struct err *err)
{
    struct layer_rows *at = &table->at;
    *table = (struct row_table){.device = device, .max_rows = max_rows};
    table->index = mem_alloc(4 * ((size_t)max_rows + 1), sizeof *table->index, err);
    return !table->index || alloc_index(device, &at->position, max_rows, err) ||
           alloc_index(device, &at->slot, max_rows, err) || alloc_index(device, &at->prefix, max_rows, err) ||
           alloc_index(device, &at->path_start, max_rows + 1, err) ? -1 : 0;
}

void row_table_close(struct row_table *table)
{
    struct buffer *all[] = {&table->at.position, &table->at.slot, &table->at.prefix, &table->at.path_start, &table->at.path};
    for (size_t i = 0; table->device && i < sizeof all / sizeof *all; i++)
        device_free(table->device, all[i]);
    mem_free(&table->index);
    mem_free(&table->path);
}

enum { POSITION, SLOT, PREFIX, START };

static int32_t *scratch(const struct row_table *table, int which) { return table->index + which * (table->max_rows + 1); }

void row_table_begin(struct row_table *table)
{
    table->at.rows = 0;
    table->path_used = 0;
}

int row_table_add(struct row_table *table, const struct kv *kv, const int32_t *nodes, int rows, struct err *err)
{
    int32_t *position = scratch(table, POSITION), *slot = scratch(table, SLOT), *prefix = scratch(table, PREFIX);
    for (int row = 0, at = table->at.rows; row < rows; row++, at++) {
        const int node = nodes[row], steps = kv->depth[node] + 1 - kv->run[node];
        scratch(table, START)[at] = (int32_t)table->path_used;
        if (mem_grow(&table->path, &table->path_room, table->path_used + (size_t)steps + 1, sizeof *table->path, err))
            return -1;
        for (int i = steps - 1, on = node; i >= 0; i--, on = kv->parent[on])
            table->path[table->path_used + (size_t)i] = kv->length + on;
        table->path_used += (size_t)steps;
        position[at] = kv->length + kv->depth[node];
        slot[at] = kv->length + node;
        prefix[at] = kv->length + kv->run[node];
    }
    table->at.rows += rows;
    return 0;
}

static void upload(struct row_table *table, struct buffer to, const int32_t *values, int count)
{
    queue_upload(table->device, to, values, (size_t)count * sizeof *values);
}

int row_table_end(struct row_table *table, struct err *err)
{
    const int rows = table->at.rows;
    const size_t bytes = (table->path_used ? table->path_used : 1) * sizeof *table->path;
    if (table->at.path.bytes < bytes) {
        struct buffer larger;
        if (device_alloc(table->device, 2 * bytes, &larger, err))
            return -1;
        device_free(table->device, &table->at.path);
        table->at.path = larger;
    }
    scratch(table, START)[rows] = (int32_t)table->path_used;
    upload(table, table->at.path_start, scratch(table, START), rows + 1);
    upload(table, table->at.path, table->path, (int)table->path_used);
    upload(table, table->at.position, scratch(table, POSITION), rows);
    upload(table, table->at.slot, scratch(table, SLOT), rows);
    upload(table, table->at.prefix, scratch(table, PREFIX), rows);
    return 0;
}

/* Returns the `count` numbers from number `first` on. */
static struct buffer part(struct buffer all, int first, int count)
{
    return buffer_part(all, (uint64_t)first * sizeof(int32_t), (uint64_t)count * sizeof(int32_t));
}

struct layer_rows row_table_part(const struct row_table *table, int first, int rows)
{
    const struct layer_rows *at = &table->at;
    return (struct layer_rows){
        .rows = rows, .position = part(at->position, first, rows), .slot = part(at->slot, first, rows),
        .prefix = part(at->prefix, first, rows), .path_start = part(at->path_start, first, rows + 1), .path = at->path};
}

int row_table_fill(struct row_table *table, const struct kv *kv, const int32_t *node, int rows, struct err *err)
{
    row_table_begin(table);
    return row_table_add(table, kv, node, rows, err) || row_table_end(table, err) ? -1 : 0;
}

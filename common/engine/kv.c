/* The KV cache of committed tokens and pending nodes, and the slots that a row attends to.
 *
 * As long as a node's index equals its depth along a path, slot and logical position are equal, and that part of the path is
 * simply a longer prefix: a chain needs no path at all. */
#include "common/engine/kv.h"

#include "common/base/mem.h"

static struct layer_attention kv_of(const struct kv_shape *shape, int layer)
{
    if (shape->model)
        return hparams_attention(shape->model, layer);
    return (struct layer_attention){.kv_heads = shape->kv_heads, .head_dim = shape->head_dim, .value_dim = shape->value_dim};
}

static bool has_cache(const struct kv_shape *shape, int layer) { return !shape->model || !shape->model->layer[layer].state; }

static int alloc_layers(struct kv *kv, struct err *err)
{
    const struct kv_shape *shape = &kv->shape;
    for (int layer = 0; layer < shape->layers; layer++) {
        const struct layer_attention own = kv_of(shape, layer);
        size_t slots, k, v;
        if (!size_mul((size_t)kv->capacity, (size_t)own.kv_heads * cache_size(shape->format), &slots) ||
            !size_mul(slots, (size_t)own.head_dim, &k) || !size_mul(slots, (size_t)own.value_dim, &v))
            return err_memory(err);
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
            return err_set(err, ERR_INPUT, "node %d cannot be committed: it is no pending child of node %d", (int)node[i],
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
    *table = (struct row_table){.device = device};
    table->index = mem_alloc((size_t)max_rows + 1, sizeof *table->index, err);
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

static void upload(struct row_table *table, struct buffer to, const int32_t *values, int count)
{
    queue_upload(table->device, to, values, (size_t)count * sizeof *values);
}

/* Fills the paths of all rows, one after another; index[row] is the start of each. */
static int fill_paths(struct row_table *table, const struct kv *kv, const int32_t *nodes, int rows, struct err *err)
{
    size_t used = 0;
    int32_t *start = table->index;
    for (int row = 0; row < rows; row++) {
        int node = nodes[row], steps = kv->depth[node] + 1 - kv->run[node];
        start[row] = (int32_t)used;
        if (mem_grow(&table->path, &table->path_room, used + (size_t)steps + 1, sizeof *table->path, err))
            return -1;
        for (int i = steps - 1, at = node; i >= 0; i--, at = kv->parent[at])
            table->path[used + (size_t)i] = kv->length + at;
        used += (size_t)steps;
    }
    start[rows] = (int32_t)used;
    size_t bytes = (used ? used : 1) * sizeof *table->path;
    if (table->at.path.bytes < bytes) {
        struct buffer larger;
        if (device_alloc(table->device, 2 * bytes, &larger, err))
            return -1;
        device_free(table->device, &table->at.path);
        table->at.path = larger;
    }
    upload(table, table->at.path_start, start, rows + 1);
    upload(table, table->at.path, table->path, (int)used);
    return 0;
}

int row_table_fill(struct row_table *table, const struct kv *kv, const int32_t *node, int rows, struct err *err)
{
    int32_t *value = table->index;
    if (fill_paths(table, kv, node, rows, err))
        return -1;
    for (int row = 0; row < rows; row++)
        value[row] = kv->length + kv->depth[node[row]];
    upload(table, table->at.position, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = kv->length + node[row];
    upload(table, table->at.slot, value, rows);
    for (int row = 0; row < rows; row++)
        value[row] = kv->length + kv->run[node[row]];
    upload(table, table->at.prefix, value, rows);
    table->at.rows = rows;
    return 0;
}

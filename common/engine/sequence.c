/* Sequences: the KV cache, committed tokens and pending nodes. */
#include "common/base/mem.h"
#include "common/engine/internal.h"

static int alloc_cache(struct sequence *sequence, struct err *err)
{
    const struct hparams *shape = sequence->engine->shape;
    size_t slots, k, v;
    if (!size_mul((size_t)sequence->capacity, (size_t)shape->attention.kv_heads * cache_size(sequence->engine->setup.cache),
                  &slots) ||
        !size_mul(slots, (size_t)shape->attention.head_dim, &k) || !size_mul(slots, (size_t)shape->attention.value_dim, &v))
        return err_memory(err);
    for (int layer = 0; layer < shape->layers; layer++)
        if (device_alloc(sequence->engine->device, k, &sequence->k[layer], err) ||
            device_alloc(sequence->engine->device, v, &sequence->v[layer], err))
            return err_at(err, "KV cache of %d tokens", sequence->capacity);
    return 0;
}

int sequence_open(struct sequence **out, struct engine *engine, int capacity, struct err *err)
{
    struct sequence *sequence;
    if (capacity < 1)
        return err_set(err, ERR_INPUT, "a sequence of %d tokens: at least 1 is needed", capacity);
    if (engine_rope_cover(engine, capacity < engine->max_positions ? capacity : engine->max_positions, err))
        return -1;
    sequence = mem_alloc(1, sizeof *sequence, err);
    if (!sequence)
        return -1;
    sequence->engine = engine;
    sequence->capacity = capacity;
    sequence->k = mem_alloc((size_t)engine->shape->layers, sizeof *sequence->k, err);
    sequence->v = mem_alloc((size_t)engine->shape->layers, sizeof *sequence->v, err);
    sequence->parent = mem_alloc((size_t)capacity, sizeof *sequence->parent, err);
    sequence->depth = mem_alloc((size_t)capacity, sizeof *sequence->depth, err);
    sequence->run = mem_alloc((size_t)capacity, sizeof *sequence->run, err);
    sequence->part = mem_alloc((size_t)capacity, sizeof *sequence->part, err);
    if (!sequence->k || !sequence->v || !sequence->parent || !sequence->depth || !sequence->run || !sequence->part ||
        alloc_cache(sequence, err)) {
        sequence_close(&sequence);
        return -1;
    }
    *out = sequence;
    return 0;
}

void sequence_close(struct sequence **sequence)
{
    struct sequence *s = *sequence;
    if (!s)
        return;
    for (int layer = 0; layer < s->engine->shape->layers; layer++) {
        if (s->k)
            device_free(s->engine->device, &s->k[layer]);
        if (s->v)
            device_free(s->engine->device, &s->v[layer]);
    }
    mem_free(&s->k);
    mem_free(&s->v);
    mem_free(&s->parent);
    mem_free(&s->depth);
    mem_free(&s->run);
    mem_free(&s->part);
    stopped_free(s);
    mem_free(sequence);
}

int sequence_length(const struct sequence *sequence) { return sequence->length; }
int sequence_pending(const struct sequence *sequence) { return sequence->pending; }
int sequence_capacity(const struct sequence *sequence) { return sequence->capacity; }

/* Moves the kept nodes down over the dropped ones. A node's index is never below its depth, so ascending order is safe. */
static int move_kept(struct sequence *sequence, const int32_t *node, int first, int count, struct err *err)
{
    struct engine *engine = sequence->engine;
    const struct hparams *shape = engine->shape;
    size_t bytes = (size_t)(count - first) * sizeof(int32_t);
    struct buffer from = {0, 0}, to = {0, 0};
    int32_t *slot = mem_alloc((size_t)count, sizeof *slot, err);
    int rc = -1;
    if (!slot || device_alloc(engine->device, bytes, &from, err) || device_alloc(engine->device, bytes, &to, err))
        goto done;
    for (int i = first; i < count; i++)
        slot[i - first] = sequence->length + node[i];
    queue_upload(engine->device, from, slot, bytes);
    for (int i = first; i < count; i++)
        slot[i - first] = sequence->length + i;
    queue_upload(engine->device, to, slot, bytes);
    for (int layer = 0; layer < shape->layers; layer++)
        engine->ops->kv_move(engine->queue, &(struct kv_move_args){
            .k = sequence->k[layer], .v = sequence->v[layer], .from = from, .to = to, .format = engine->setup.cache,
            .count = count - first, .kv_heads = shape->attention.kv_heads, .head_dim = shape->attention.head_dim,
            .value_dim = shape->attention.value_dim, .capacity = sequence->capacity});
    rc = queue_wait(engine->device, err);
done:
    device_free(engine->device, &from);
    device_free(engine->device, &to);
    mem_free(&slot);
    return rc;
}

int sequence_commit(struct sequence *sequence, const int32_t *node, int count, struct err *err)
{
    int in_place = 0;
    for (int i = 0; i < count; i++) {
        int parent = i ? node[i - 1] : -1;
        if (node[i] < 0 || node[i] >= sequence->pending || sequence->parent[node[i]] != parent)
            return err_set(err, ERR_INPUT, "node %d cannot be committed: it is no pending child of node %d", (int)node[i],
                           parent);
        if (node[i] == i && in_place == i)
            in_place++;
    }
    if (in_place < count && move_kept(sequence, node, in_place, count, err))
        return -1;
    sequence->length += count;
    sequence_rollback(sequence);
    return 0;
}

void sequence_rollback(struct sequence *sequence)
{
    sequence->pending = 0;
    if (sequence->stopped)
        sequence->stopped->count = 0;
}

int sequence_truncate(struct sequence *sequence, int length, struct err *err)
{
    if (length < 0 || length > sequence->length)
        return err_set(err, ERR_INPUT, "a sequence of %d tokens cannot be cut to %d", sequence->length, length);
    sequence->length = length;
    sequence_rollback(sequence);
    return 0;
}

/* The part of each head, [heads][capacity][width], that the first `length` tokens fill; by way of `room` on the host. */
static int copy_heads(const struct sequence *to, struct buffer into, const struct sequence *from, struct buffer out, int width,
                      int length, void *room, struct err *err)
{
    struct device *device = to->engine->device;
    const uint64_t token = (uint64_t)width * cache_size(to->engine->setup.cache), bytes = (uint64_t)length * token;
    for (int head = 0; head < to->engine->shape->attention.kv_heads; head++) {
        queue_download(device, room, buffer_part(out, (uint64_t)head * (uint64_t)from->capacity * token, bytes), bytes);
        if (queue_wait(device, err))
            return -1;
        queue_upload(device, buffer_part(into, (uint64_t)head * (uint64_t)to->capacity * token, bytes), room, bytes);
    }
    return 0;
}

int sequence_copy(struct sequence *to, const struct sequence *from, int length, struct err *err)
{
    const struct engine_setup *own = &to->engine->setup, *its = &from->engine->setup;
    const struct hparams *shape = to->engine->shape;
    const int width = shape->attention.head_dim > shape->attention.value_dim ? shape->attention.head_dim
                                                                             : shape->attention.value_dim;
    if (own->model != its->model || own->device != its->device || own->cache != its->cache)
        return err_set(err, ERR_INPUT, "a sequence cannot be copied from another model, device or format of the cache");
    if (length < 0 || length > from->length || length > to->capacity)
        return err_set(err, ERR_INPUT, "%d tokens cannot be copied from a sequence of %d to one with room for %d", length,
                       from->length, to->capacity);
    void *room = mem_alloc((size_t)(length ? length : 1), (size_t)width * cache_size(own->cache), err);
    int rc = room ? 0 : -1;
    for (int layer = 0; !rc && length && layer < shape->layers; layer++)
        rc = copy_heads(to, to->k[layer], from, from->k[layer], shape->attention.head_dim, length, room, err) ||
             copy_heads(to, to->v[layer], from, from->v[layer], shape->attention.value_dim, length, room, err) ? -1 : 0;
    mem_free(&room);
    if (rc)
        return -1;
    to->length = length;
    sequence_rollback(to);
    return 0;
}

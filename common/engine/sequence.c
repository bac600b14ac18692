/* Sequences: the KV cache, committed tokens and pending nodes. */
#include "common/base/mem.h"
#include "common/engine/indexer.h"
#include "common/engine/internal.h"

int sequence_open(struct sequence **out, struct engine *engine, int capacity, struct err *err)
{
    const struct hparams *shape = engine->shape;
    const struct kv_shape kv = {.layers = shape->layers, .model = shape, .format = engine->setup.cache};
    const int positions = capacity < engine->max_positions ? capacity : engine->max_positions;
    struct sequence *sequence;
    if (capacity < 1)
        return err_set(err, ERR_INPUT, "a sequence needs room for at least 1 token, not %d", capacity);
    const struct rope_shape scale = {.kind = ROPE_SCALE, .rotary = 2, .factor = (double)shape->attention.no_rope_scale,
                                     .original_positions = shape->attention.no_rope_floor};
    if (rope_cover(&engine->rope, &engine->shape->rope, engine->device, positions, err) ||
        (hparams_has_other(shape) && rope_cover(&engine->other_rope, &shape->other.rope, engine->device, positions, err)) ||
        (shape->attention.no_rope_scale > 0 && rope_cover(&engine->no_rope_scale, &scale, engine->device, positions, err)))
        return -1;
    if (indexer_cover(&engine->space, capacity, err))
        return -1;
    sequence = mem_alloc(1, sizeof *sequence, err);
    if (!sequence)
        return -1;
    sequence->engine = engine;
    sequence->part = mem_alloc((size_t)capacity, sizeof *sequence->part, err);
    if (!sequence->part || kv_open(&sequence->kv, engine->device, &kv, capacity, err) ||
        recurrent_open(&sequence->recurrent, engine->device, shape, err)) {
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
    kv_close(&s->kv);
    recurrent_close(&s->recurrent);
    mem_free(&s->part);
    stopped_free(s);
    mem_free(sequence);
}

int sequence_length(const struct sequence *sequence) { return sequence->kv.length; }
int sequence_pending(const struct sequence *sequence) { return sequence->kv.pending; }
int sequence_capacity(const struct sequence *sequence) { return sequence->kv.capacity; }

int sequence_commit(struct sequence *sequence, const int32_t *node, int count, struct err *err)
{
    if (kv_commit(&sequence->kv, node, count, err))
        return -1;
    recurrent_commit(&sequence->recurrent, node, count);
    sequence_rollback(sequence);
    return 0;
}

void sequence_rollback(struct sequence *sequence)
{
    sequence->kv.pending = 0;
    recurrent_drop(&sequence->recurrent, 0, false);
    if (sequence->stopped)
        sequence->stopped->count = 0;
}

int sequence_truncate(struct sequence *sequence, int length, struct err *err)
{
    if (length < 0 || length > sequence->kv.length)
        return err_set(err, ERR_INPUT, "a sequence of %d tokens cannot be truncated to %d", sequence->kv.length, length);
    if (sequence_keeps(sequence, length) != length)
        return err_set(err, ERR_INPUT, "a sequence of %d tokens cannot be truncated to %d, because the recurrent states of "
                       "that point are no longer stored; the nearest earlier point is %d", sequence->kv.length, length,
                       sequence_keeps(sequence, length));
    recurrent_truncate(&sequence->recurrent, length);
    sequence->kv.length = length;
    sequence_rollback(sequence);
    return 0;
}

uint64_t sequence_state_bytes(const struct hparams *shape, bool slabs)
{
    return hparams_state_layers(shape) ? recurrent_bytes(shape, slabs ? ENGINE_SLAB_ROWS : ENGINE_ROWS_MAX) : 0;
}

int sequence_keeps(const struct sequence *sequence, int length) { return recurrent_keeps(&sequence->recurrent, length); }

/* Copies the first `length` tokens of each head in an array [heads][capacity] of `token` bytes; room: host memory for the
 * transfer. */
static int copy_heads(const struct sequence *to, struct buffer into, const struct sequence *from, struct buffer out, int heads,
                      uint64_t token, int length, void *room, struct err *err)
{
    struct device *device = to->engine->device;
    const uint64_t bytes = (uint64_t)length * token;
    for (int head = 0; head < heads; head++) {
        queue_download(device, room, buffer_part(out, (uint64_t)head * (uint64_t)from->kv.capacity * token, bytes), bytes);
        if (queue_wait(device, err))
            return -1;
        queue_upload(device, buffer_part(into, (uint64_t)head * (uint64_t)to->kv.capacity * token, bytes), room, bytes);
    }
    return 0;
}

/* Copies keys or values of `width` numbers likewise, and their scales. */
static int copy_rows(const struct sequence *to, struct buffer into, const struct sequence *from, struct buffer out, int heads,
                     int width, int length, void *room, struct err *err)
{
    const enum cache_format format = to->engine->setup.cache;
    const uint64_t first = cache_scales(format, (size_t)heads * (size_t)to->kv.capacity, (size_t)width);
    const uint64_t its_first = cache_scales(format, (size_t)heads * (size_t)from->kv.capacity, (size_t)width);
    if (copy_heads(to, into, from, out, heads, (uint64_t)width * cache_size(format), length, room, err))
        return -1;
    if (!cache_scale(format))
        return 0;
    return copy_heads(to, buffer_part(into, first, into.bytes - first), from,
                      buffer_part(out, its_first, out.bytes - its_first), heads, cache_scale(format), length, room, err);
}

int sequence_copy(struct sequence *to, const struct sequence *from, int length, struct err *err)
{
    const struct engine_setup *own = &to->engine->setup, *its = &from->engine->setup;
    const struct hparams *shape = to->engine->shape;
    int width = 0;
    for (int layer = 0; layer < shape->layers; layer++)
        /* at least the width of one head */
        width = hparams_kv_width(shape, layer) > width ? hparams_kv_width(shape, layer) : width;
    if (own->model != its->model || own->device != its->device || own->cache != its->cache)
        return err_set(err, ERR_INPUT, "a sequence can be copied only within one model, device and format of the KV cache");
    if (length < 0 || length > from->kv.length || length > to->kv.capacity)
        return err_set(err, ERR_INPUT, "%d tokens cannot be copied from a sequence of %d to one with room for %d", length,
                       from->kv.length, to->kv.capacity);
    if (sequence_keeps(from, length) != length)
        return err_set(err, ERR_INPUT, "the first %d of %d tokens cannot be copied, because the recurrent states of that "
                       "point are not stored", length,
                       from->kv.length);
    void *room = mem_alloc((size_t)(length ? length : 1), (size_t)width * cache_size(own->cache) + cache_scale(own->cache),
                           err);
    int rc = room ? 0 : -1;
    for (int layer = 0; !rc && length && layer < shape->layers; layer++) {
        if (!hparams_attends(shape, layer))
            continue;
        const struct layer_attention its_own = hparams_attention(shape, layer);
        const int heads = hparams_cached_heads(shape, layer);
        rc = copy_rows(to, to->kv.k[layer], from, from->kv.k[layer], heads, its_own.head_dim, length, room, err) ||
             copy_rows(to, to->kv.v[layer], from, from->kv.v[layer], heads, its_own.value_dim, length, room, err) ? -1 : 0;
    }
    mem_free(&room);
    if (rc || recurrent_copy(&to->recurrent, &from->recurrent, err))
        return -1;
    recurrent_truncate(&to->recurrent, length);
    to->kv.length = length;
    sequence_rollback(to);
    return 0;
}

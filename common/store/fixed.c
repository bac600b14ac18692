#include "common/store/fixed.h"

#include "common/base/mem.h"

/* Makes a layer's experts available on the device, and the table of their addresses. */
static int open_layer(struct fixed_source *fixed, int layer, const struct model *model, const struct tensor *tensor,
                      struct err *err)
{
    const void *host = model_data(model, tensor);
    fixed->host[layer] = host;
    fixed->stride[layer] = (size_t)tensor->stride;
    if (fixed->owned) {
        if (device_alloc(fixed->device, tensor->bytes, &fixed->data[layer], err))
            return err_at(err, "%s", tensor->name);
        queue_upload(fixed->device, fixed->data[layer], host, tensor->bytes);
    } else {
        fixed->data[layer] = device_map(fixed->device, host, tensor->bytes);
    }
    size_t bytes = (size_t)tensor->count * sizeof(uint64_t);
    uint64_t *address = mem_alloc((size_t)tensor->count, sizeof *address, err);
    if (!address || device_alloc(fixed->device, bytes, &fixed->table[layer], err)) {
        mem_free(&address);
        return err_at(err, "%s", tensor->name);
    }
    for (int i = 0; i < tensor->count; i++)
        address[i] = fixed->data[layer].address + (uint64_t)i * tensor->stride;
    queue_upload(fixed->device, fixed->table[layer], address, bytes);
    mem_free(&address);
    return 0;
}

int fixed_source_open(struct expert_source **out, const struct expert_source_class *class, bool owned,
                      const struct model *model, struct device *device, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct fixed_source *fixed = mem_alloc(1, sizeof *fixed, err);
    if (!fixed)
        return -1;
    fixed->base.class = class;
    fixed->device = device;
    fixed->owned = owned;
    fixed->layers = shape->layers;
    for (int layer = 0; layer < shape->layers; layer++) {
        if (shape->layer[layer].ffn != FFN_EXPERTS)
            continue;
        const struct tensor *tensor = model_tensor(model, err, "layers.%d.experts", layer);
        if (!tensor || open_layer(fixed, layer, model, tensor, err)) {
            fixed_free(&fixed->base);
            return -1;
        }
    }
    if (queue_wait(device, err)) {
        fixed_free(&fixed->base);
        return -1;
    }
    *out = &fixed->base;
    return 0;
}

int fixed_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    (void)err;
    wanted->held = wanted->count;
    *table = ((struct fixed_source *)source)->table[wanted->layer];
    return 0;
}

void fixed_release(struct expert_source *source, struct expert_union *wanted)
{
    (void)source;
    wanted->done = wanted->held;
    wanted->held = 0;
}

int fixed_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address, struct err *err)
{
    const struct fixed_source *fixed = (const struct fixed_source *)source;
    (void)err;
    for (int i = 0; i < wanted->count; i++)
        address[i] = fixed->host[wanted->layer] + (size_t)wanted->expert[i] * fixed->stride[wanted->layer];
    wanted->held = wanted->count;
    return 0;
}

void fixed_free(struct expert_source *source)
{
    struct fixed_source *fixed = (struct fixed_source *)source;
    for (int layer = 0; layer < fixed->layers; layer++) {
        device_free(fixed->device, &fixed->table[layer]);
        if (fixed->owned)
            device_free(fixed->device, &fixed->data[layer]);
    }
    mem_free(&fixed);
}

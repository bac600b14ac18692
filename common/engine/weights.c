#include "common/engine/weights.h"

#include "common/base/mem.h"

static int take(struct weights *weights, const struct model *model, const struct tensor *tensor, struct buffer *out,
                struct err *err)
{
    const void *data = model_data(model, tensor);
    if (!weights->owned) {
        *out = device_map(weights->device, data, tensor->bytes);
        return 0;
    }
    if (device_alloc(weights->device, tensor->bytes, out, err))
        return err_at(err, "%s", tensor->name);
    queue_upload(weights->device, *out, data, tensor->bytes);
    return 0;
}

__attribute__((format(printf, 3, 0)))
static int take_vector(struct weights *weights, const struct model *model, const char *format, int layer, struct buffer *out,
                       struct err *err)
{
    const struct tensor *tensor = model_tensor(model, err, format, layer);
    if (!tensor || take(weights, model, tensor, out, err))
        return -1;
    weights->taken_bytes += (int64_t)tensor->bytes;
    return 0;
}

__attribute__((format(printf, 3, 0)))
static int take_matrix(struct weights *weights, const struct model *model, const char *format, int layer, struct matrix *out,
                       struct err *err)
{
    const struct tensor *tensor = model_tensor(model, err, format, layer);
    if (!tensor || take(weights, model, tensor, &out->data, err))
        return -1;
    out->format = tensor->format;
    out->outputs = tensor->outputs;
    out->inputs = tensor->inputs;
    weights->taken_bytes += (int64_t)tensor->bytes;
    return 0;
}

/* Uploads the matrices for queries, keys and values. */
static int take_latent(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct layer_weights *layer = &weights->layer[n];
    if (shape->attention.q_rank && (take_matrix(weights, model, "layers.%d.attention.q_a", n, &layer->q_a, err) ||
                                    take_vector(weights, model, "layers.%d.attention.q_a_norm", n, &layer->q_a_norm, err)))
        return -1;
    if (shape->attention.qkv_bias &&
        ((shape->attention.q_rank && take_vector(weights, model, "layers.%d.attention.q_a_bias", n, &layer->q_a_bias, err)) ||
         take_vector(weights, model, "layers.%d.attention.kv_a_bias", n, &layer->kv_a_bias, err)))
        return -1;
    return take_matrix(weights, model, "layers.%d.attention.q", n, &layer->q, err) ||
           take_matrix(weights, model, "layers.%d.attention.kv_a", n, &layer->kv_a, err) ||
           take_vector(weights, model, "layers.%d.attention.kv_a_norm", n, &layer->kv_a_norm, err) ||
           take_matrix(weights, model, "layers.%d.attention.kv_b", n, &layer->kv_b, err) ? -1 : 0;
}

static int take_qkv(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct layer_weights *layer = &weights->layer[n];
    struct matrix *qkv = &layer->qkv;
    const struct tensor *tensor = model_tensor(model, err, "layers.%d.attention.qkv", n);
    if (!tensor || take_matrix(weights, model, "layers.%d.attention.qkv", n, qkv, err) ||
        (shape->attention.qkv_bias && take_vector(weights, model, "layers.%d.attention.qkv_bias", n, &layer->qkv_bias, err)))
        return -1;
    if (tensor->mixed) {
        size_t at = tensor_last_offset(tensor);
        qkv->outputs -= tensor->last;
        layer->v = (struct matrix){.data = buffer_part(qkv->data, at, qkv->data.bytes - at), .format = tensor->last_format,
                                   .outputs = tensor->last, .inputs = tensor->inputs};
        if (layer->qkv_bias.address)
            layer->v_bias = buffer_part(layer->qkv_bias, (size_t)qkv->outputs * sizeof(float),
                                        (size_t)tensor->last * sizeof(float));
    }
    return 0;
}

static int take_delta(struct weights *weights, const struct model *model, int n, struct err *err)
{
    struct layer_weights *layer = &weights->layer[n];
    const struct delta_shape *d = &model_hparams(model)->delta;
    if (take_vector(weights, model, "layers.%d.attention.norm", n, &layer->attention_norm, err) ||
        take_matrix(weights, model, "layers.%d.delta.in", n, &layer->delta_in, err) ||
        take_vector(weights, model, "layers.%d.delta.conv", n, &layer->delta_conv, err) ||
        (d->conv_bias && take_vector(weights, model, "layers.%d.delta.conv_bias", n, &layer->delta_conv_bias, err)) ||
        take_matrix(weights, model, "layers.%d.delta.out", n, &layer->out, err))
        return -1;
    if (d->kind == RECURRENCE_NONE)
        return 0;
    if (d->gate_rank && ((d->kind == RECURRENCE_CHANNEL &&
                          take_matrix(weights, model, "layers.%d.delta.gate", n, &layer->delta_gate, err)) ||
                         take_matrix(weights, model, "layers.%d.delta.steps", n, &layer->delta_steps, err)))
        return -1;
    return take_matrix(weights, model, "layers.%d.delta.gates", n, &layer->delta_gates, err) ||
           take_vector(weights, model, "layers.%d.delta.neg_a", n, &layer->delta_neg_a, err) ||
           take_vector(weights, model, "layers.%d.delta.step_bias", n, &layer->delta_step_bias, err) ||
           (recurrence_skips(d->kind) && take_vector(weights, model, "layers.%d.delta.skip", n, &layer->delta_skip, err)) ||
           take_vector(weights, model, "layers.%d.delta.norm", n, &layer->delta_norm, err) ? -1 : 0;
}

static int take_indexer(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct layer_weights *layer = &weights->layer[n];
    if (!shape->index.heads || shape->layer[n].shares_index)
        return 0;
    return take_matrix(weights, model, "layers.%d.attention.index_q", n, &layer->index_q, err) ||
           take_matrix(weights, model, "layers.%d.attention.index_k", n, &layer->index_k, err) ||
           take_vector(weights, model, "layers.%d.attention.index_k_norm", n, &layer->index_k_norm, err) ||
           take_vector(weights, model, "layers.%d.attention.index_k_norm_bias", n, &layer->index_k_norm_bias, err) ||
           take_matrix(weights, model, "layers.%d.attention.index_weight", n, &layer->index_weight, err) ? -1 : 0;
}

static int take_attention(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct layer_weights *layer = &weights->layer[n];
    if ((shape->norms != NORM_AFTER &&
         take_vector(weights, model, "layers.%d.attention.norm", n, &layer->attention_norm, err)) ||
        (shape->norms != NORM_BEFORE &&
         take_vector(weights, model, "layers.%d.attention.out_norm", n, &layer->attention_out_norm, err)) ||
        (shape->attention.gate && take_matrix(weights, model, "layers.%d.attention.gate", n, &layer->gate, err)) ||
        (shape->attention.kv_rank ? take_latent : take_qkv)(weights, model, n, err) || take_indexer(weights, model, n, err) ||
        take_matrix(weights, model, "layers.%d.attention.out", n, &layer->out, err))
        return -1;
    if (shape->attention.qk_norm != QK_NORM_NONE && !shape->attention.plain_norm &&
        (take_vector(weights, model, "layers.%d.attention.q_norm", n, &layer->q_norm, err) ||
         take_vector(weights, model, "layers.%d.attention.k_norm", n, &layer->k_norm, err)))
        return -1;
    if (shape->layer_norm && !shape->norm_unbiased &&
        take_vector(weights, model, "layers.%d.attention.norm_bias", n, &layer->attention_norm_bias, err))
        return -1;
    if (hparams_attention(shape, n).sinks && take_vector(weights, model, "layers.%d.attention.sinks", n, &layer->sinks, err))
        return -1;
    if (shape->attention.out_bias && take_vector(weights, model, "layers.%d.attention.out_bias", n, &layer->out_bias, err))
        return -1;
    return 0;
}

/* Uploads the block that every row uses, and the table with its address. */
__attribute__((format(printf, 3, 0)))
static int take_block(struct weights *weights, const struct model *model, const char *format, int n, struct err *err)
{
    struct layer_weights *layer = &weights->layer[n];
    const struct tensor *tensor = model_tensor(model, err, format, n);
    if (!tensor || take(weights, model, tensor, &layer->dense, err) ||
        device_alloc(weights->device, sizeof layer->dense.address, &layer->dense_table, err))
        return -1;
    layer->dense_format = tensor->format;
    layer->dense_down_format = tensor_last_format(tensor);
    weights->taken_bytes += (int64_t)tensor->bytes;
    queue_upload(weights->device, layer->dense_table, &layer->dense.address, sizeof layer->dense.address);
    return 0;
}

/* Reads the factor that multiplies the residual stream after the layer; it is stored on the host. */
static int take_scale(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct tensor *tensor = model_tensor(model, err, "layers.%d.scale", n);
    if (!tensor)
        return -1;
    weights->layer[n].scale = *(const float *)model_data(model, tensor);
    weights->taken_bytes += (int64_t)tensor->bytes;
    return weights->layer[n].scale != 0 ? 0 : err_set(err, ERR_INPUT, "%s: is 0, so the model's layers would have no effect; "
                                                      "the weights are damaged", tensor->name);
}

static int take_ffn(struct weights *weights, const struct model *model, int n, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    struct layer_weights *layer = &weights->layer[n];
    const struct tensor *tensor;
    if ((shape->norms != NORM_AFTER && !shape->parallel &&
         take_vector(weights, model, "layers.%d.ffn.norm", n, &layer->ffn_norm, err)) ||
        (shape->layer_norm && !shape->norm_unbiased && !shape->parallel &&
         take_vector(weights, model, "layers.%d.ffn.norm_bias", n, &layer->ffn_norm_bias, err)) ||
        (shape->norms != NORM_BEFORE && take_vector(weights, model, "layers.%d.ffn.out_norm", n, &layer->ffn_out_norm, err)))
        return -1;
    if (shape->layer[n].ffn == FFN_DENSE)
        return take_block(weights, model, "layers.%d.dense", n, err);
    tensor = model_tensor(model, err, "layers.%d.experts", n);
    if (!tensor || take_matrix(weights, model, "layers.%d.router", n, &layer->router, err))
        return -1;
    if (shape->router.correction && take_vector(weights, model, "layers.%d.router_correction", n, &layer->router_correction,
                                                err))
        return -1;
    if ((shape->router.norm && take_vector(weights, model, "layers.%d.router_norm", n, &layer->router_norm, err)) ||
        (shape->router.expert_scale &&
         take_vector(weights, model, "layers.%d.router_expert_scale", n, &layer->expert_scale, err)) ||
        (shape->shared_apart &&
         (take_vector(weights, model, "layers.%d.ffn.experts_norm", n, &layer->experts_norm, err) ||
          take_vector(weights, model, "layers.%d.ffn.experts_out_norm", n, &layer->experts_out_norm, err) ||
          take_vector(weights, model, "layers.%d.ffn.shared_out_norm", n, &layer->shared_out_norm, err))))
        return -1;
    if (shape->router.bias && take_vector(weights, model, "layers.%d.router_bias", n, &layer->router_bias, err))
        return -1;
    if (shape->expert_bias && (take_vector(weights, model, "layers.%d.experts_gate_up_bias", n, &layer->gate_up_bias, err) ||
                               take_vector(weights, model, "layers.%d.experts_down_bias", n, &layer->down_bias, err)))
        return -1;
    layer->experts_format = tensor->format;
    layer->experts_down_format = tensor_last_format(tensor);
    layer->expert_bytes = (int64_t)tensor->bytes / tensor->count;
    if (shape->shared_inner && take_block(weights, model, "layers.%d.shared", n, err))
        return -1;
    return shape->shared_gate ? take_matrix(weights, model, "layers.%d.shared_gate", n, &layer->shared_gate, err) : 0;
}

static int take_all(struct weights *weights, const struct model *model, struct err *err)
{
    const struct hparams *shape = model_hparams(model);
    if (take_matrix(weights, model, "embed", 0, &weights->embed, err) ||
        take_vector(weights, model, "final_norm", 0, &weights->final_norm, err))
        return -1;
    if ((shape->layer_norm && !shape->norm_unbiased &&
         take_vector(weights, model, "final_norm_bias", 0, &weights->final_norm_bias, err)) ||
        (shape->head_bias && take_vector(weights, model, "head_bias", 0, &weights->head_bias, err)))
        return -1;
    weights->head = weights->embed;
    if (!shape->tied && take_matrix(weights, model, "head", 0, &weights->head, err))
        return -1;
    weights->head_bytes = (int64_t)weights->head.data.bytes;
    for (int n = 0; n < shape->layers; n++) {
        struct layer_weights *layer = &weights->layer[n];
        weights->taken_bytes = 0;
        if (!shape->layer[n].ffn_alone && (shape->layer[n].state ? take_delta : take_attention)(weights, model, n, err))
            return -1;
        layer->attention_bytes = weights->taken_bytes;
        if ((shape->layer[n].ffn != FFN_NONE && take_ffn(weights, model, n, err)) ||
            (shape->layer_scale && take_scale(weights, model, n, err)))
            return -1;
        layer->ffn_bytes = weights->taken_bytes - layer->attention_bytes;
        weights->expert_bytes += layer->expert_bytes;
    }
    weights->expert_bytes /= hparams_moe_layers(shape) ? hparams_moe_layers(shape) : 1;
    return queue_wait(weights->device, err);
}

int weights_open(struct weights **out, const struct model *model, struct device *device, struct err *err)
{
    struct weights *weights = mem_alloc(1, sizeof *weights, err);
    if (!weights)
        return -1;
    weights->device = device;
    weights->owned = !device_info(device)->host_memory;
    weights->layers = model_hparams(model)->layers;
    weights->layer = mem_alloc((size_t)weights->layers, sizeof *weights->layer, err);
    if (!weights->layer || take_all(weights, model, err)) {
        weights_close(&weights);
        return err_at(err, "%s", model_path(model));
    }
    *out = weights;
    return 0;
}

void weights_close(struct weights **weights)
{
    struct weights *w = *weights;
    if (!w)
        return;
    if (w->owned && w->head.data.address != w->embed.data.address)
        device_free(w->device, &w->head.data);
    if (w->owned) {
        device_free(w->device, &w->embed.data);
        device_free(w->device, &w->final_norm);
        device_free(w->device, &w->final_norm_bias);
        device_free(w->device, &w->head_bias);
    }
    for (int n = 0; w->layer && n < w->layers; n++) {
        struct layer_weights *layer = &w->layer[n];
        struct buffer *all[] = {&layer->attention_norm, &layer->q_norm, &layer->k_norm, &layer->qkv_bias, &layer->out_bias,
                                &layer->ffn_norm, &layer->router_correction, &layer->attention_norm_bias, &layer->ffn_norm_bias,
                                &layer->qkv.data, &layer->out.data, &layer->router.data, &layer->shared_gate.data,
                                &layer->dense,
                                &layer->q_a.data, &layer->q.data, &layer->kv_a.data, &layer->kv_b.data, &layer->q_a_bias,
                                &layer->q_a_norm, &layer->kv_a_bias, &layer->kv_a_norm, &layer->sinks,
                                &layer->router_bias, &layer->gate_up_bias, &layer->down_bias, &layer->gate.data,
                                &layer->attention_out_norm, &layer->ffn_out_norm, &layer->experts_norm,
                                &layer->experts_out_norm, &layer->shared_out_norm, &layer->router_norm, &layer->expert_scale,
                                &layer->delta_in.data, &layer->delta_gates.data, &layer->delta_gate.data,
                                &layer->delta_steps.data, &layer->delta_conv, &layer->delta_neg_a,
                                &layer->delta_step_bias, &layer->delta_norm, &layer->delta_conv_bias, &layer->delta_skip,
                                &layer->index_q.data, &layer->index_k.data, &layer->index_weight.data,
                                &layer->index_k_norm, &layer->index_k_norm_bias};
        for (size_t i = 0; w->owned && i < sizeof all / sizeof *all; i++)
            device_free(w->device, all[i]);
        device_free(w->device, &layer->dense_table);
    }
    mem_free(&w->layer);
    mem_free(weights);
}

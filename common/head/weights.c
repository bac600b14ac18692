#include "common/head/weights.h"

#include "common/base/mem.h"

static struct matrix matrix_of(const struct tensor *t, struct buffer data)
{
    return (struct matrix){data, t->format, t->outputs, t->inputs};
}

/* The one block of a dense layer, or those of experts, by the table of their addresses. */
static int put_blocks(struct head_weights *w, const struct tensor *t, struct buffer data, struct err *err)
{
    struct layer_weights *layer = &w->layer;
    uint64_t address[EXPERTS_MAX];
    for (int i = 0; i < t->count; i++)
        address[i] = data.address + (uint64_t)i * t->stride;
    if (device_alloc(w->device, (size_t)t->count * sizeof *address, &layer->dense_table, err))
        return -1;
    queue_upload(w->device, layer->dense_table, address, (size_t)t->count * sizeof *address);
    layer->dense = data;
    layer->dense_format = layer->experts_format = t->format;
    layer->dense_down_format = layer->experts_down_format = tensor_last_format(t);
    return 0;
}

/* v may be a matrix of its own. */
static void put_qkv(struct layer_weights *layer, const struct tensor *t, struct buffer data)
{
    layer->qkv = matrix_of(t, data);
    if (!t->mixed)
        return;
    const size_t at = tensor_last_offset(t);
    layer->qkv.outputs -= t->last;
    layer->v = (struct matrix){buffer_part(data, at, data.bytes - at), t->last_format, t->last, t->inputs};
}

static struct buffer *vector_of_role(struct head_weights *w, const struct tensor *t)
{
    struct layer_weights *layer = &w->layer;
    switch (t->role) {
        case ROLE_FINAL_NORM: return &w->final_norm;
        case ROLE_JOINT_BIAS: return &w->joint_bias;
        case ROLE_STATES_NORM: return &w->states_norm;
        case ROLE_STATE_NORM: return &w->state_norm[t->stage];
        case ROLE_EMBED_NORM: return &w->embed_norm;
        case ROLE_HIDDEN_NORM: return &w->hidden_norm;
        case ROLE_ATTENTION_NORM: return &layer->attention_norm;
        case ROLE_QKV_BIAS: return &layer->qkv_bias;
        case ROLE_Q_NORM: return &layer->q_norm;
        case ROLE_K_NORM: return &layer->k_norm;
        case ROLE_OUT_BIAS: return &layer->out_bias;
        case ROLE_FFN_NORM: return &layer->ffn_norm;
        case ROLE_BLOCK_BIAS: return &w->guess[t->layer].block_bias[t->stage];
        case ROLE_RESIDUAL_BIAS: return &w->guess[t->layer].residual_bias;
        case ROLE_OUTPUT_BIAS: return &w->guess[t->layer].output_bias;
        default: return NULL;
    }
}

static struct matrix *matrix_of_role(struct head_weights *w, const struct tensor *t)
{
    switch (t->role) {
        case ROLE_EMBED: return &w->embed;
        case ROLE_HEAD: return &w->output;
        case ROLE_JOINT: return &w->joint;
        case ROLE_OUT: return &w->layer.out;
        case ROLE_ROUTER: return &w->layer.router;
        case ROLE_BRANCH_UP: return &w->branch_up[t->stage];
        case ROLE_BRANCH_DOWN: return &w->branch_down[t->stage];
        case ROLE_BLOCK: return &w->guess[t->layer].block[t->stage];
        case ROLE_RESIDUAL: return &w->guess[t->layer].residual;
        case ROLE_OUTPUT: return &w->guess[t->layer].output;
        default: return NULL;
    }
}

static int put(struct head_weights *w, const struct tensor *t, struct buffer data, struct err *err)
{
    struct buffer *vector = t->kind == TENSOR_VECTOR ? vector_of_role(w, t) : NULL;
    struct matrix *matrix = t->kind == TENSOR_MATRIX ? matrix_of_role(w, t) : NULL;
    if (vector)
        *vector = data;
    else if (matrix)
        *matrix = matrix_of(t, data);
    else if (t->role == ROLE_QKV)
        put_qkv(&w->layer, t, data);
    else if (t->kind == TENSOR_EXPERTS)
        return put_blocks(w, t, data, err);
    else
        return err_set(err, ERR_INPUT, "%s: a draft head has no use for it", t->name);
    return 0;
}

/* What each forward of its layer reads. */
static bool of_layer(const struct tensor *t)
{
    return t->role != ROLE_EMBED && t->role != ROLE_HEAD && t->role != ROLE_BLOCK && t->role != ROLE_BLOCK_BIAS &&
           t->role != ROLE_RESIDUAL && t->role != ROLE_RESIDUAL_BIAS && t->role != ROLE_OUTPUT && t->role != ROLE_OUTPUT_BIAS;
}

static int take(struct head_weights *w, const struct model *model, const struct tensor *t, struct buffer *out, struct err *err)
{
    if (!w->owned) {
        *out = device_map(w->device, model_data(model, t), t->bytes);
        return 0;
    }
    if (device_alloc(w->device, t->bytes, out, err))
        return err_at(err, "%s", t->name);
    queue_upload(w->device, *out, model_data(model, t), t->bytes);
    return 0;
}

static int take_all(struct head_weights *w, const struct model *model, struct err *err)
{
    for (; w->count < model_tensor_count(model); w->count++) {
        const struct tensor *t = model_tensor_at(model, w->count);
        struct buffer *data = &w->data[w->count];
        if (take(w, model, t, data, err) || put(w, t, *data, err))
            return -1;
        if (of_layer(t))
            w->layer_bytes += (int64_t)t->bytes;
    }
    if (w->layer.v.data.address && w->layer.qkv_bias.address)
        w->layer.v_bias = buffer_part(w->layer.qkv_bias, (size_t)w->layer.qkv.outputs * sizeof(float),
                                      (size_t)w->layer.v.outputs * sizeof(float));
    return queue_wait(w->device, err);
}

int head_weights_open(struct head_weights *weights, const struct model *model, struct device *device, struct err *err)
{
    const int heads = model_head(model)->heads;
    *weights = (struct head_weights){.device = device, .owned = !device_info(device)->host_memory};
    weights->data = mem_alloc(1 + (size_t)model_tensor_count(model), sizeof *weights->data, err);
    weights->guess = mem_alloc((size_t)(heads ? heads : 1), sizeof *weights->guess, err);
    return !weights->data || !weights->guess || take_all(weights, model, err) ? err_at(err, "%s", model_path(model)) : 0;
}

void head_weights_close(struct head_weights *weights)
{
    for (int i = 0; weights->owned && weights->data && i <= weights->count; i++)
        if (weights->data[i].address)
            device_free(weights->device, &weights->data[i]);
    if (weights->device)
        device_free(weights->device, &weights->layer.dense_table);
    mem_free(&weights->data);
    mem_free(&weights->guess);
}

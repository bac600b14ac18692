#include "common/head/weights.h"

#include "common/base/mem.h"

static struct matrix matrix_of(const struct tensor *t, struct buffer data)
{
    return (struct matrix){data, t->format, t->outputs, t->inputs};
}

/* Makes the table of addresses of a tensor's blocks. */
static int put_table(struct head_weights *w, const struct tensor *t, struct buffer data, struct buffer *table, struct err *err)
{
    uint64_t address[EXPERTS_MAX];
    for (int i = 0; i < t->count; i++)
        address[i] = data.address + (uint64_t)i * t->stride;
    if (device_alloc(w->device, (size_t)t->count * sizeof *address, table, err))
        return -1;
    queue_upload(w->device, *table, address, (size_t)t->count * sizeof *address);
    return 0;
}

/* Places a tensor's blocks: the single block of a dense layer or of shared experts, a draft head's experts, or a predictor's
 * routed experts. */
static int put_blocks(struct head_weights *w, const struct tensor *t, struct buffer data, struct err *err)
{
    struct layer_weights *layer = &w->layer;
    if (t->role == ROLE_EXPERTS) {
        layer->experts_format = t->format;
        layer->experts_down_format = tensor_last_format(t);
        layer->expert_bytes = (int64_t)t->bytes / t->count;
        if (w->predictor)
            return put_table(w, t, data, &w->experts_table, err);
    }
    layer->dense = data;
    layer->dense_format = t->format;
    layer->dense_down_format = tensor_last_format(t);
    return put_table(w, t, data, &layer->dense_table, err);
}

/* Sets the matrix of q, k and v; v may be a separate matrix. */
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
        case ROLE_FINAL_NORM: case ROLE_PREDICT_NORM: return &w->final_norm;
        case ROLE_JOINT_BIAS: return &w->joint_bias;
        case ROLE_STATES_NORM: return &w->states_norm;
        case ROLE_STATE_NORM: return &w->state_norm[t->stage];
        case ROLE_EMBED_NORM: case ROLE_PREDICT_EMBED_NORM: return &w->embed_norm;
        case ROLE_HIDDEN_NORM: case ROLE_PREDICT_HIDDEN_NORM: return &w->hidden_norm;
        case ROLE_ATTENTION_NORM: return &layer->attention_norm;
        case ROLE_QKV_BIAS: return &layer->qkv_bias;
        case ROLE_Q_NORM: return &layer->q_norm;
        case ROLE_K_NORM: return &layer->k_norm;
        case ROLE_OUT_BIAS: return &layer->out_bias;
        case ROLE_FFN_NORM: return &layer->ffn_norm;
        case ROLE_ATTENTION_OUT_NORM: return &layer->attention_out_norm;
        case ROLE_FFN_OUT_NORM: return &layer->ffn_out_norm;
        case ROLE_ATTENTION_NORM_BIAS: return &layer->attention_norm_bias;
        case ROLE_FFN_NORM_BIAS: return &layer->ffn_norm_bias;
        case ROLE_Q_A_BIAS: return &layer->q_a_bias;
        case ROLE_Q_A_NORM: return &layer->q_a_norm;
        case ROLE_KV_A_BIAS: return &layer->kv_a_bias;
        case ROLE_KV_A_NORM: return &layer->kv_a_norm;
        case ROLE_ROUTER_NORM: return &layer->router_norm;
        case ROLE_EXPERT_SCALE: return &layer->expert_scale;
        case ROLE_SINKS: return &layer->sinks;
        case ROLE_ROUTER_CORRECTION: return &layer->router_correction;
        case ROLE_ROUTER_BIAS: return &layer->router_bias;
        case ROLE_EXPERTS_GATE_UP_BIAS: return &layer->gate_up_bias;
        case ROLE_EXPERTS_DOWN_BIAS: return &layer->down_bias;
        case ROLE_BLOCK_BIAS: return &w->guess[t->layer].block_bias[t->stage];
        case ROLE_RESIDUAL_BIAS: return &w->guess[t->layer].residual_bias;
        case ROLE_OUTPUT_BIAS: return &w->guess[t->layer].output_bias;
        default: return NULL;
    }
}

static struct matrix *matrix_of_role(struct head_weights *w, const struct tensor *t)
{
    switch (t->role) {
        case ROLE_EMBED: case ROLE_PREDICT_EMBED: return &w->embed;
        case ROLE_HEAD: case ROLE_PREDICT_HEAD: return &w->output;
        case ROLE_JOINT: case ROLE_PREDICT_JOINT: return &w->joint;
        case ROLE_Q_A: return &w->layer.q_a;
        case ROLE_Q: return &w->layer.q;
        case ROLE_KV_A: return &w->layer.kv_a;
        case ROLE_KV_B: return &w->layer.kv_b;
        case ROLE_SHARED_GATE: return &w->layer.shared_gate;
        case ROLE_OUT: return &w->layer.out;
        case ROLE_ATTENTION_GATE: return &w->layer.gate;
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
        return err_set(err, ERR_INPUT, "%s: draft heads have no such tensor", t->name);
    return 0;
}

/* Returns whether each forward of the layer reads the tensor. */
static bool of_layer(const struct head_weights *w, const struct tensor *t)
{
    return !(w->routed && t->role == ROLE_EXPERTS) && t->role != ROLE_PREDICT_EMBED && t->role != ROLE_PREDICT_HEAD &&
           t->role != ROLE_EMBED && t->role != ROLE_HEAD && t->role != ROLE_BLOCK && t->role != ROLE_BLOCK_BIAS &&
           t->role != ROLE_RESIDUAL && t->role != ROLE_RESIDUAL_BIAS && t->role != ROLE_OUTPUT && t->role != ROLE_OUTPUT_BIAS;
}

static int take(struct head_weights *w, const struct model *model, const struct tensor *t, struct buffer *out, struct err *err)
{
    if (model_bring(model, t, err))
        return -1;
    if (!w->owned) {
        *out = device_map(w->device, model_data(model, t), t->bytes);
        return 0;
    }
    if (device_alloc(w->device, t->bytes, out, err))
        return err_at(err, "%s", t->name);
    queue_upload(w->device, *out, model_data(model, t), t->bytes);
    return 0;
}

static int take_all(struct head_weights *w, const struct model *model, int layer, struct err *err)
{
    for (; w->count < model_tensor_count(model); w->count++) {
        const struct tensor *t = model_tensor_at(model, w->count);
        struct buffer *data = &w->data[w->count];
        if (w->predictor && t->layer != layer)
            continue;
        if (take(w, model, t, data, err) || put(w, t, *data, err))
            return -1;
        if (of_layer(w, t))
            w->layer_bytes += (int64_t)t->bytes;
    }
    if (w->layer.v.data.address && w->layer.qkv_bias.address)
        w->layer.v_bias = buffer_part(w->layer.qkv_bias, (size_t)w->layer.qkv.outputs * sizeof(float),
                                      (size_t)w->layer.v.outputs * sizeof(float));
    return queue_wait(w->device, err);
}

int head_weights_open(struct head_weights *weights, const struct model *model, int layer, struct device *device,
                      struct err *err)
{
    const struct head_params *params = model_head(model);
    const int heads = params ? params->heads : 0;
    *weights = (struct head_weights){.device = device, .predictor = !params, .owned = !device_info(device)->host_memory};
    weights->routed = head_routes(params, model_hparams(model));
    weights->data = mem_alloc(1 + (size_t)model_tensor_count(model), sizeof *weights->data, err);
    weights->guess = mem_alloc((size_t)(heads ? heads : 1), sizeof *weights->guess, err);
    return !weights->data || !weights->guess || take_all(weights, model, layer, err) ? err_at(err, "%s", model_path(model)) : 0;
}

void head_weights_close(struct head_weights *weights)
{
    for (int i = 0; weights->owned && weights->data && i <= weights->count; i++)
        if (weights->data[i].address)
            device_free(weights->device, &weights->data[i]);
    if (weights->device) {
        device_free(weights->device, &weights->layer.dense_table);
        device_free(weights->device, &weights->experts_table);
    }
    mem_free(&weights->data);
    mem_free(&weights->guess);
}

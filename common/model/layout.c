#include "common/model/layout.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum { LAYER_TENSORS = 40, PREDICTOR_TENSORS = 6, MODEL_TENSORS = 5, NAME_ROOM = 40 };

static void add(struct layout *layout, enum tensor_role role, enum tensor_kind kind, int layer, int outputs, int inputs,
                const char *name)
{
    char *text = layout->names + (size_t)layout->count * NAME_ROOM;
    if (layer < 0)
        snprintf(text, NAME_ROOM, "%s", name);
    else if (layer < layout->layers)
        snprintf(text, NAME_ROOM, "layers.%d.%s", layer, name);
    else
        snprintf(text, NAME_ROOM, "predict.%d.%s", layer - layout->layers, name);
    layout->tensors[layout->count++] = (struct tensor){.name = text, .kind = kind, .role = role, .layer = layer,
                                                       .format = FORMAT_F32, .outputs = outputs, .inputs = inputs, .count = 1};
}

static void add_blocks(struct layout *layout, const struct hparams *s, enum tensor_role role, int layer, int inner, int count,
                       const char *name)
{
    add(layout, role, TENSOR_EXPERTS, layer, s->hidden, inner, name);
    layout->tensors[layout->count - 1].count = count;
    layout->tensors[layout->count - 1].ungated = !hparams_gated(s);
}

/* Adds the tensors that compute queries, keys and values from latents. */
static void add_latent(struct layout *layout, const struct hparams *s, int layer)
{
    int heads = s->attention.heads, own = s->attention.head_dim - s->rope.rotary, rank = s->attention.q_rank;
    if (rank) {
        add(layout, ROLE_Q_A, TENSOR_MATRIX, layer, rank, s->hidden, "attention.q_a");
        if (s->attention.qkv_bias)
            add(layout, ROLE_Q_A_BIAS, TENSOR_VECTOR, layer, rank, 1, "attention.q_a_bias");
        add(layout, ROLE_Q_A_NORM, TENSOR_VECTOR, layer, rank, 1, "attention.q_a_norm");
    }
    add(layout, ROLE_Q, TENSOR_MATRIX, layer, heads * s->attention.head_dim, rank ? rank : s->hidden, "attention.q");
    add(layout, ROLE_KV_A, TENSOR_MATRIX, layer, s->attention.kv_rank + s->rope.rotary, s->hidden, "attention.kv_a");
    if (s->attention.qkv_bias)
        add(layout, ROLE_KV_A_BIAS, TENSOR_VECTOR, layer, s->attention.kv_rank + s->rope.rotary, 1, "attention.kv_a_bias");
    add(layout, ROLE_KV_A_NORM, TENSOR_VECTOR, layer, s->attention.kv_rank, 1, "attention.kv_a_norm");
    add(layout, ROLE_KV_B, TENSOR_MATRIX, layer, heads * (own + s->attention.value_dim), s->attention.kv_rank,
        "attention.kv_b");
    if (!s->index.heads || s->layer[layer].shares_index)
        return;
    add(layout, ROLE_INDEX_Q, TENSOR_MATRIX, layer, s->index.heads * s->index.dim, rank, "attention.index_q");
    add(layout, ROLE_INDEX_K, TENSOR_MATRIX, layer, s->index.dim, s->hidden, "attention.index_k");
    add(layout, ROLE_INDEX_K_NORM, TENSOR_VECTOR, layer, s->index.dim, 1, "attention.index_k_norm");
    add(layout, ROLE_INDEX_K_NORM_BIAS, TENSOR_VECTOR, layer, s->index.dim, 1, "attention.index_k_norm_bias");
    add(layout, ROLE_INDEX_WEIGHT, TENSOR_MATRIX, layer, s->index.heads, s->hidden, "attention.index_weight");
}

/* Adds the tensors of attention that follow its norm; attention reads `inputs` floats. */
static void add_attention(struct layout *layout, const struct hparams *s, int layer, int inputs)
{
    const struct layer_attention own = hparams_attention(s, layer);
    int head_dim = own.head_dim, q = s->attention.heads * head_dim, k = own.kv_heads * head_dim;
    int v = own.kv_heads * own.value_dim;
    if (s->attention.kv_rank) {
        add_latent(layout, s, layer);
    } else {
        add(layout, ROLE_QKV, TENSOR_MATRIX, layer, q + k + v, inputs, "attention.qkv");
        layout->tensors[layout->count - 1].last = v;
        if (s->attention.qkv_bias)
            add(layout, ROLE_QKV_BIAS, TENSOR_VECTOR, layer, q + k + v, 1, "attention.qkv_bias");
    }
    if (s->attention.qk_norm != QK_NORM_NONE && !s->attention.plain_norm) {
        bool whole = s->attention.qk_norm == QK_NORM_WHOLE;
        add(layout, ROLE_Q_NORM, TENSOR_VECTOR, layer, whole ? q : head_dim, 1, "attention.q_norm");
        add(layout, ROLE_K_NORM, TENSOR_VECTOR, layer, whole ? k : head_dim, 1, "attention.k_norm");
    }
    if (own.sinks)
        add(layout, ROLE_SINKS, TENSOR_VECTOR, layer, s->attention.heads, 1, "attention.sinks");
    add(layout, ROLE_OUT, TENSOR_MATRIX, layer, s->hidden, s->attention.heads * own.value_dim, "attention.out");
    if (s->attention.out_bias)
        add(layout, ROLE_OUT_BIAS, TENSOR_VECTOR, layer, s->hidden, 1, "attention.out_bias");
    if (s->attention.gate)
        add(layout, ROLE_ATTENTION_GATE, TENSOR_MATRIX, layer, hparams_attention_gates(s), inputs, "attention.gate");
    if (s->norms != NORM_BEFORE)
        add(layout, ROLE_ATTENTION_OUT_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "attention.out_norm");
}

/* Adds the tensors of a layer with a state in place of attention. */
static void add_delta(struct layout *layout, const struct hparams *s, int layer)
{
    const struct delta_shape *d = &s->delta;
    const struct delta_widths w = hparams_delta_widths(s);
    const bool space = d->kind == RECURRENCE_SPACE, scan = d->kind == RECURRENCE_SCAN;
    add(layout, ROLE_DELTA_IN, TENSOR_MATRIX, layer, w.in, s->hidden, "delta.in");
    if (d->kind != RECURRENCE_NONE)
        add(layout, ROLE_DELTA_GATES, TENSOR_MATRIX, layer, w.gates, scan ? w.values : s->hidden, "delta.gates");
    if (d->gate_rank) {
        if (!scan)
            add(layout, ROLE_DELTA_GATE, TENSOR_MATRIX, layer, w.values, d->gate_rank, "delta.gate");
        add(layout, ROLE_DELTA_STEPS, TENSOR_MATRIX, layer, w.steps, d->gate_rank, "delta.steps");
    }
    add(layout, ROLE_DELTA_CONV, TENSOR_VECTOR, layer, d->taps * w.conv, 1, "delta.conv");
    if (d->conv_bias)
        add(layout, ROLE_DELTA_CONV_BIAS, TENSOR_VECTOR, layer, w.conv, 1, "delta.conv_bias");
    if (d->kind != RECURRENCE_NONE) {
        add(layout, ROLE_DELTA_NEG_A, TENSOR_VECTOR, layer, scan ? w.values * d->key_dim : d->value_heads, 1, "delta.neg_a");
        add(layout, ROLE_DELTA_STEP_BIAS, TENSOR_VECTOR, layer, w.steps, 1, "delta.step_bias");
        if (recurrence_skips(d->kind))
            add(layout, ROLE_DELTA_SKIP, TENSOR_VECTOR, layer, scan ? w.values : d->value_heads, 1, "delta.skip");
        add(layout, ROLE_DELTA_NORM, TENSOR_VECTOR, layer, scan ? w.gates : space ? w.values : d->value_dim, 1, "delta.norm");
    }
    add(layout, ROLE_DELTA_OUT, TENSOR_MATRIX, layer, s->hidden, w.values, "delta.out");
}

/* Adds the tensors of a layer's attention or state. */
static void add_mixer(struct layout *layout, const struct hparams *s, int layer)
{
    if (s->norms != NORM_AFTER)
        add(layout, ROLE_ATTENTION_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "attention.norm");
    if (s->layer_norm && !s->norm_unbiased)
        add(layout, ROLE_ATTENTION_NORM_BIAS, TENSOR_VECTOR, layer, s->hidden, 1, "attention.norm_bias");
    if (s->layer[layer].state)
        add_delta(layout, s, layer);
    else
        add_attention(layout, s, layer, s->hidden);
}

static void add_ffn(struct layout *layout, const struct hparams *s, int layer)
{
    if (s->norms != NORM_AFTER && !s->parallel)
        add(layout, ROLE_FFN_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.norm");
    if (s->layer_norm && !s->norm_unbiased && !s->parallel)
        add(layout, ROLE_FFN_NORM_BIAS, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.norm_bias");
    if (s->norms != NORM_BEFORE)
        add(layout, ROLE_FFN_OUT_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.out_norm");
    if (s->layer[layer].ffn == FFN_EXPERTS) {
        add(layout, ROLE_ROUTER, TENSOR_MATRIX, layer, hparams_choices(s), s->hidden, "router");
        if (s->router.correction)
            add(layout, ROLE_ROUTER_CORRECTION, TENSOR_VECTOR, layer, hparams_choices(s), 1, "router_correction");
        if (s->router.norm)
            add(layout, ROLE_ROUTER_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "router_norm");
        if (s->router.expert_scale)
            add(layout, ROLE_EXPERT_SCALE, TENSOR_VECTOR, layer, s->router.experts, 1, "router_expert_scale");
        if (s->shared_apart) {
            add(layout, ROLE_EXPERTS_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.experts_norm");
            add(layout, ROLE_EXPERTS_OUT_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.experts_out_norm");
            add(layout, ROLE_SHARED_OUT_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "ffn.shared_out_norm");
        }
        if (s->router.bias)
            add(layout, ROLE_ROUTER_BIAS, TENSOR_VECTOR, layer, hparams_choices(s), 1, "router_bias");
        if (s->expert_bias) {
            add(layout, ROLE_EXPERTS_GATE_UP_BIAS, TENSOR_VECTOR, layer, s->router.experts * 2 * s->expert_inner, 1,
                "experts_gate_up_bias");
            add(layout, ROLE_EXPERTS_DOWN_BIAS, TENSOR_VECTOR, layer, s->router.experts * s->hidden, 1, "experts_down_bias");
        }
        add_blocks(layout, s, ROLE_EXPERTS, layer, s->expert_inner, s->router.experts, "experts");
        if (s->shared_inner)
            add_blocks(layout, s, ROLE_SHARED, layer, s->shared_inner, 1, "shared");
        if (s->shared_gate)
            add(layout, ROLE_SHARED_GATE, TENSOR_MATRIX, layer, 1, s->hidden, "shared_gate");
    } else {
        add_blocks(layout, s, ROLE_DENSE, layer, s->dense_inner, 1, "dense");
    }
}

static void add_layer(struct layout *layout, const struct hparams *s, int layer)
{
    if (!s->layer[layer].ffn_alone)
        add_mixer(layout, s, layer);
    if (s->layer[layer].ffn != FFN_NONE)
        add_ffn(layout, s, layer);
    if (s->layer_scale)
        add(layout, ROLE_LAYER_SCALE, TENSOR_VECTOR, layer, 1, 1, "scale");
}

static void add_predictor(struct layout *layout, const struct hparams *s, int i)
{
    int layer = s->layers + i;
    if (s->predictor[i].embed)
        add(layout, ROLE_PREDICT_EMBED, TENSOR_MATRIX, layer, s->vocab, s->hidden, "embed");
    if (s->predictor[i].head)
        add(layout, ROLE_PREDICT_HEAD, TENSOR_MATRIX, layer, s->vocab, s->hidden, "head");
    add(layout, ROLE_PREDICT_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "final_norm");
    add(layout, ROLE_PREDICT_EMBED_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "embed_norm");
    add(layout, ROLE_PREDICT_HIDDEN_NORM, TENSOR_VECTOR, layer, s->hidden, 1, "hidden_norm");
    add(layout, ROLE_PREDICT_JOINT, TENSOR_MATRIX, layer, s->hidden, 2 * s->hidden, "joint");
    add_layer(layout, s, layer);
}

int layout_make(struct layout *out, const struct hparams *shape, struct err *err)
{
    struct layout layout = {.layers = shape->layers, .tied = shape->tied};
    size_t max = (size_t)(shape->layers + shape->predictors) * LAYER_TENSORS + (size_t)shape->predictors * PREDICTOR_TENSORS +
                  MODEL_TENSORS;
    layout.tensors = mem_alloc(max, sizeof *layout.tensors, err);
    layout.names = mem_alloc(max, NAME_ROOM, err);
    if (!layout.tensors || !layout.names) {
        layout_free(&layout);
        return -1;
    }
    add(&layout, ROLE_EMBED, TENSOR_MATRIX, -1, shape->vocab, shape->hidden, "embed");
    if (!shape->tied)
        add(&layout, ROLE_HEAD, TENSOR_MATRIX, -1, shape->vocab, shape->hidden, "head");
    if (shape->head_bias)
        add(&layout, ROLE_HEAD_BIAS, TENSOR_VECTOR, -1, shape->vocab, 1, "head_bias");
    add(&layout, ROLE_FINAL_NORM, TENSOR_VECTOR, -1, shape->hidden, 1, "final_norm");
    if (shape->layer_norm && !shape->norm_unbiased)
        add(&layout, ROLE_FINAL_NORM_BIAS, TENSOR_VECTOR, -1, shape->hidden, 1, "final_norm_bias");
    for (int i = 0; i < shape->layers; i++)
        add_layer(&layout, shape, i);
    for (int i = 0; i < shape->predictors; i++)
        add_predictor(&layout, shape, i);
    *out = layout;
    return 0;
}

/* Adds the layer of a draft head: the kind determines the first norm, the input of attention, and the parts after attention. */
static void add_head_layer(struct layout *layout, const struct head_params *head, const struct hparams *s)
{
    const bool eagle3 = head->kind == HEAD_EAGLE3;
    char name[NAME_ROOM];
    if (eagle3) {
        add(layout, ROLE_EMBED_NORM, TENSOR_VECTOR, -1, s->hidden, 1, "embed_norm");
        add(layout, ROLE_HIDDEN_NORM, TENSOR_VECTOR, -1, s->hidden, 1, "hidden_norm");
    }
    if (head->kind == HEAD_KANGAROO || head->prefix)
        add(layout, ROLE_ATTENTION_NORM, TENSOR_VECTOR, 0, s->hidden, 1, "attention.norm");
    add_attention(layout, s, 0, eagle3 ? 2 * s->hidden : s->hidden);
    if (s->layer[0].ffn == FFN_NONE)
        return;
    add(layout, ROLE_FFN_NORM, TENSOR_VECTOR, 0, s->hidden, 1, "ffn.norm");
    if (s->layer[0].ffn == FFN_DENSE) {
        add_blocks(layout, s, ROLE_DENSE, 0, s->dense_inner, 1, "dense");
        return;
    }
    add(layout, ROLE_ROUTER, TENSOR_MATRIX, 0, head_router_rows(head, s), s->hidden, "router");
    if (head->kind == HEAD_JAKIRO) {
        add_blocks(layout, s, ROLE_EXPERTS, 0, s->expert_inner, s->router.experts, "experts");
        return;
    }
    for (int i = 0; i < s->router.experts; i++) {
        snprintf(name, sizeof name, "branches.%d.up", i);
        add(layout, ROLE_BRANCH_UP, TENSOR_MATRIX, 0, s->expert_inner, s->hidden, name);
        layout->tensors[layout->count - 1].stage = i;
        snprintf(name, sizeof name, "branches.%d.down", i);
        add(layout, ROLE_BRANCH_DOWN, TENSOR_MATRIX, 0, s->hidden, s->expert_inner, name);
        layout->tensors[layout->count - 1].stage = i;
    }
}

/* Adds the tensors of one head that guesses one token. */
static void add_guess(struct layout *layout, const struct head_params *head, const struct hparams *s, int i)
{
    const bool hydra = head->kind == HEAD_HYDRA;
    struct tensor *first = &layout->tensors[layout->count];
    const int joined = hydra ? (i + 2) * s->hidden : s->hidden;
    char name[NAME_ROOM];
    for (int block = 0; block < head->blocks; block++) {
        snprintf(name, sizeof name, "heads.%d.blocks.%d.linear", i, block);
        add(layout, ROLE_BLOCK, TENSOR_MATRIX, -1, s->hidden, block ? s->hidden : joined, name);
        snprintf(name, sizeof name, "heads.%d.blocks.%d.bias", i, block);
        add(layout, ROLE_BLOCK_BIAS, TENSOR_VECTOR, -1, s->hidden, 1, name);
        first[2 * block].stage = first[2 * block + 1].stage = block;
    }
    if (hydra) {
        snprintf(name, sizeof name, "heads.%d.residual", i);
        add(layout, ROLE_RESIDUAL, TENSOR_MATRIX, -1, s->hidden, joined, name);
        snprintf(name, sizeof name, "heads.%d.residual_bias", i);
        add(layout, ROLE_RESIDUAL_BIAS, TENSOR_VECTOR, -1, s->hidden, 1, name);
    }
    snprintf(name, sizeof name, "heads.%d.output", i);
    add(layout, ROLE_OUTPUT, TENSOR_MATRIX, -1, s->vocab, s->hidden, name);
    layout->tensors[layout->count - 1].stage = head->blocks;
    if (hydra) {
        snprintf(name, sizeof name, "heads.%d.output_bias", i);
        add(layout, ROLE_OUTPUT_BIAS, TENSOR_VECTOR, -1, s->vocab, 1, name);
    }
    for (struct tensor *t = first; t < &layout->tensors[layout->count]; t++)
        t->layer = i;
}

static void add_head(struct layout *layout, const struct head_params *head, const struct hparams *s)
{
    const bool eagle3 = head->kind == HEAD_EAGLE3;
    const int states = head->states * head->target.hidden;
    char name[NAME_ROOM];
    if (head->embed)
        add(layout, ROLE_EMBED, TENSOR_MATRIX, -1, s->vocab, s->hidden, "embed");
    if (eagle3)
        add(layout, ROLE_HEAD, TENSOR_MATRIX, -1, head->draft_vocab, s->hidden, "head");
    if (eagle3 || head->kind == HEAD_KANGAROO || head->prefix)
        add(layout, ROLE_FINAL_NORM, TENSOR_VECTOR, -1, s->hidden, 1, "final_norm");
    if (head->states_norm)
        add(layout, ROLE_STATES_NORM, TENSOR_VECTOR, -1, states, 1, "states_norm");
    for (int i = 0; head->state_norms && i < head->states; i++) {
        snprintf(name, sizeof name, "state_norms.%d", i);
        add(layout, ROLE_STATE_NORM, TENSOR_VECTOR, -1, head->target.hidden, 1, name);
        layout->tensors[layout->count - 1].stage = i;
    }
    if (head->kind == HEAD_EAGLE1 || eagle3 || head->kind == HEAD_JAKIRO || head->kind == HEAD_JAKIRO_STAR)
        add(layout, ROLE_JOINT, TENSOR_MATRIX, -1, s->hidden, eagle3 ? states : 2 * s->hidden, "joint");
    if (head->joint_bias)
        add(layout, ROLE_JOINT_BIAS, TENSOR_VECTOR, -1, s->hidden, 1, "joint_bias");
    if (s->layers)
        add_head_layer(layout, head, s);
    for (int i = 0; i < head->heads; i++)
        add_guess(layout, head, s, i);
}

int layout_make_head(struct layout *out, const struct head_params *head, const struct hparams *shape, struct err *err)
{
    enum { OWN_TENSORS = 8, GUESS_TENSORS = 5 };
    struct layout layout = {.layers = LAYERS_MAX};
    const size_t room = (size_t)head->heads * (size_t)(2 * head->blocks + GUESS_TENSORS) + OWN_TENSORS + HEAD_STATES_MAX +
                        LAYER_TENSORS;
    layout.tensors = mem_alloc(room, sizeof *layout.tensors, err);
    layout.names = mem_alloc(room, NAME_ROOM, err);
    if (!layout.tensors || !layout.names) {
        layout_free(&layout);
        return -1;
    }
    add_head(&layout, head, shape);
    *out = layout;
    return 0;
}

void layout_free(struct layout *layout)
{
    mem_free(&layout->tensors);
    mem_free(&layout->names);
    layout->count = 0;
}

/* Returns whether tensors of a role stay unquantised. An embedding is looked up, not multiplied; a router is small, and its
 * errors select other experts. */
bool role_unquantised(enum tensor_role role)
{
    return role == ROLE_EMBED || role == ROLE_PREDICT_EMBED || role == ROLE_ROUTER || role == ROLE_SHARED_GATE ||
           role == ROLE_DELTA_GATES || role == ROLE_INDEX_WEIGHT;
}

enum weight_format tensor_format(const struct layout *layout, const struct tensor *tensor, enum weight_format wanted,
                                 enum weight_format other)
{
    if (tensor->kind == TENSOR_VECTOR)
        return FORMAT_F32;
    if (!format_scaled(wanted) || !role_unquantised(tensor->role))
        return wanted;
    const bool quantised = tensor->role == ROLE_EMBED && layout->tied && !format_scaled(other);
    return !quantised ? other : wanted == FORMAT_Q4 ? FORMAT_Q8 : wanted;
}

void tensor_format_write(const struct tensor *tensor, char text[FORMAT_TEXT])
{
    snprintf(text, FORMAT_TEXT, "%s%s%s", format_name(tensor->format), tensor->mixed ? "+" : "",
             tensor->mixed ? format_name(tensor->last_format) : "");
}

bool tensor_format_read(struct tensor *tensor, const char *text)
{
    char first[FORMAT_TEXT];
    const char *plus = strchr(text, '+');
    snprintf(first, sizeof first, "%.*s", plus ? (int)(plus - text) : (int)strlen(text), text);
    tensor->mixed = plus != NULL;
    if (!format_by_name(first, &tensor->format) || (tensor->kind == TENSOR_VECTOR && tensor->format != FORMAT_F32))
        return false;
    return !plus || ((tensor->kind == TENSOR_EXPERTS || tensor->last > 0) && format_by_name(plus + 1, &tensor->last_format) &&
                     tensor->last_format != tensor->format);
}

/* Computes the bytes of a block whose parts have the same format. */
static bool whole_bytes(const struct tensor *t, size_t *bytes)
{
    return (t->kind == TENSOR_MATRIX ? matrix_bytes : t->ungated ? ungated_expert_bytes : expert_bytes)(
        t->format, t->outputs, t->inputs, bytes);
}

/* Computes the bytes of a block in two formats. The sum cannot overflow: the first part is smaller than a whole block, whose
 * size fits. */
static bool mixed_bytes(const struct tensor *t, size_t *bytes)
{
    const bool experts = t->kind == TENSOR_EXPERTS;
    size_t whole, last;
    if (!whole_bytes(t, &whole) ||
        !matrix_bytes(t->last_format, experts ? t->outputs : t->last, t->inputs, &last))
        return false;
    return size_add(tensor_last_offset(t), last, bytes);
}

int tensor_measure(struct tensor *t, struct err *err)
{
    size_t block = 0, bytes = 0;
    bool fits = t->kind == TENSOR_VECTOR ? size_mul((size_t)t->outputs, sizeof(float), &block)
              : t->mixed ? mixed_bytes(t, &block) : whole_bytes(t, &block);
    if (fits && t->kind == TENSOR_EXPERTS)
        fits = block < SIZE_MAX / 2 && (block = size_align(block, MODEL_PAGE)) != 0;
    if (!fits || !size_mul(block, (size_t)t->count, &bytes) || bytes > INT64_MAX / 4)
        return err_set(err, ERR_INPUT, "tensor %s is larger than a file can be", t->name);
    t->stride = block;
    t->bytes = bytes;
    return 0;
}

int layout_arrange(struct layout *layout, uint64_t begin, uint64_t *end, struct err *err)
{
    uint64_t at = begin;
    for (int i = 0; i < layout->count; i++) {
        struct tensor *t = &layout->tensors[i];
        if (tensor_measure(t, err))
            return -1;
        t->offset = size_align(at, MODEL_PAGE);
        at = t->offset + t->bytes;
        if (at > INT64_MAX / 2)
            return err_set(err, ERR_INPUT, "the model is larger than a file can be");
    }
    *end = at;
    return 0;
}

static bool alike(const struct layout *layout, const struct tensor *a, const struct tensor *b)
{
    return a->role == b->role && a->stage == b->stage && a->format == b->format &&
           tensor_last_format(a) == tensor_last_format(b) &&
           a->outputs == b->outputs && a->inputs == b->inputs && a->count == b->count &&
           (a->layer < layout->layers) == (b->layer < layout->layers);
}

double tensor_parameters(const struct tensor *t)
{
    double each = (double)t->outputs * (double)t->inputs;
    return t->kind == TENSOR_EXPERTS ? (t->ungated ? 2 : 3) * each * (double)t->count : each;
}

void block_pack(const struct tensor *t, void *packed, enum block_part part, int first, int rows, const float *values)
{
    if (part == BLOCK_ROWS)
        matrix_pack(t->format, packed, t->inputs, first, rows, values);
    else if (part == BLOCK_DOWN)
        matrix_pack(t->format, (unsigned char *)packed + tensor_last_offset(t), t->inputs, first, rows, values);
    else if (t->ungated)
        matrix_pack(t->format, packed, t->outputs, first, rows, values);
    else
        expert_pack_gate_up(t->format, packed, t->outputs, part == BLOCK_UP, first, rows, values);
}

static int print_line(struct text *out, const struct tensor *t, int tensors, uint64_t bytes, struct err *err)
{
    const char *number = t->layer < 0 ? NULL : strchr(t->name, '.') + 1, *last = number ? strchr(number, '.') : t->name;
    char name[NAME_ROOM + 16], shape[64], format[FORMAT_TEXT];
    tensor_format_write(t, format);
    snprintf(name, sizeof name, "%.*s%s%s", number ? (int)(number - t->name) : 0, t->name, number ? "*" : "", last);
    if (t->kind == TENSOR_VECTOR)
        snprintf(shape, sizeof shape, "[%d]", t->outputs);
    else if (t->kind == TENSOR_MATRIX)
        snprintf(shape, sizeof shape, "[%d][%d]", t->outputs, t->inputs);
    else
        snprintf(shape, sizeof shape, "%d x %d x [%d][%d]", t->count, t->ungated ? 2 : 3, t->inputs, t->outputs);
    return text_printf(out, err, "%5d  %-28s %-5s %-28s %15llu\n", tensors, name, format, shape,
                       (unsigned long long)bytes);
}

int layout_print(struct text *out, const struct layout *layout, const struct hparams *shape, const struct head_params *head,
                 struct err *err)
{
    uint64_t all = 0;
    double count = 0;
    for (int i = 0; i < layout->count; i++) {
        const struct tensor *t = &layout->tensors[i];
        uint64_t bytes = 0;
        int tensors = 0;
        bool seen = false;
        for (int k = 0; k < i && !seen; k++)
            seen = alike(layout, t, &layout->tensors[k]);
        all += t->bytes;
        count += tensor_parameters(t);
        if (seen)
            continue;
        for (int k = i; k < layout->count; k++)
            if (alike(layout, t, &layout->tensors[k])) {
                bytes += layout->tensors[k].bytes;
                tensors++;
            }
        if (print_line(out, t, tensors, bytes, err))
            return -1;
    }
    if (head && text_printf(out, err, "draft head %s: ", head_kind_name(head->kind)))
        return -1;
    if ((!head && text_printf(out, err, "%s: %d layers, ", shape->family, shape->layers)) ||
        (shape->predictors && text_printf(out, err, "%d predictors after them, ", shape->predictors)))
        return -1;
    return text_printf(out, err, "%.0f parameters, %d tensors, %llu bytes\n", count, layout->count, (unsigned long long)all);
}

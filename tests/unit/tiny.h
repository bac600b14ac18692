/* Writes tiny random models for tests as real model files: any shape that hparams_check accepts. */
#ifndef MOE_TESTS_UNIT_TINY_H
#define MOE_TESTS_UNIT_TINY_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/float.h"
#include "common/base/mem.h"
#include "common/model/model_write.h"
#include "tests/kernel/coded.h"

struct chance { uint64_t state; };

static inline uint32_t chance_bits(struct chance *chance)
{
    chance->state = chance->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(chance->state >> 33) ^ (uint32_t)(chance->state >> 45);
}

static inline int chance_range(struct chance *chance, int low, int high)         /* low and high included */
{
    return low + (int)(chance_bits(chance) % (uint32_t)(high - low + 1));
}

static inline float chance_signed(struct chance *chance)                         /* -1 .. 1 */
{
    return (float)chance_bits(chance) / 1073741824.0f - 1.0f;
}

/* Chooses latent attention. */
static inline void tiny_latents(struct chance *chance, struct hparams *shape)
{
    shape->attention.kv_heads = shape->attention.heads;
    shape->attention.head_dim = shape->rope.rotary + chance_range(chance, 1, 20);
    shape->attention.value_dim = chance_range(chance, 1, 30);
    shape->attention.kv_rank = chance_range(chance, 3, 40);
    shape->attention.q_rank = chance_range(chance, 0, 1) ? chance_range(chance, 3, 40) : 0;
    shape->attention.latent_epsilon = 1e-6f;
    shape->attention.qk_norm = QK_NORM_NONE;
    shape->attention.clip_qkv = 0;
}

/* Chooses layers of two kinds, values of another width than keys, and scale factors. */
static inline void tiny_kinds(struct chance *chance, struct hparams *shape)
{
    const int heads = shape->attention.heads, half = chance_range(chance, 2, 12), rotary = chance_range(chance, 1, half);
    shape->attention.value_dim = chance_range(chance, 1, 30);
    shape->attention.value_scale = !shape->attention.out_bias && chance_range(chance, 0, 1) ? 0.7f : 0;
    shape->attention.value_norm = chance_range(chance, 0, 1);
    if (shape->attention.qkv_bias || shape->attention.clip_qkv > 0 || shape->attention.gate ||
        shape->attention.qk_norm == QK_NORM_WHOLE)
        return;
    shape->other = (struct attention_kind){
        .kv_heads = chance_range(chance, 0, 1) ? 1 : heads, .head_dim = 2 * half, .value_dim = chance_range(chance, 1, 30),
        .sinks = chance_range(chance, 0, 1), .rope = {.rotary = 2 * rotary, .theta = 500, .rotated_pairs = (rotary + 1) / 2}};
    for (int n = 0; n < shape->layers; n++)
        shape->layer[n].other = chance_range(chance, 0, 1);
}

/* Chooses features that few families have: other positions of norms, gates, scales. */
static inline void tiny_places(struct chance *chance, struct hparams *shape)
{
    const bool latents = shape->attention.kv_rank > 0;
    shape->norms = shape->layer_norm ? NORM_BEFORE : (enum norm_place)chance_range(chance, 0, 2);
    shape->norm_unbiased = shape->layer_norm && chance_range(chance, 0, 1);
    shape->parallel = shape->norms == NORM_BEFORE && chance_range(chance, 0, 1);
    shape->attention.gate = latents ? (int)(chance->state >> 41 & 1) : chance_range(chance, 0, 1);
    shape->attention.head_gate = shape->attention.gate && (chance->state >> 40 & 1);
    shape->attention.rope_before_norm = !latents && shape->attention.qk_norm == QK_NORM_HEAD && shape->attention.clip_qkv == 0;
    shape->shared_scale = shape->shared_inner && chance_range(chance, 0, 1) ? 0.6f : 0;
    for (int n = 0; n < shape->layers && !latents; n++)
        shape->layer[n].no_rope = chance_range(chance, 0, 1);
    if (!latents)
        tiny_kinds(chance, shape);
    shape->glu = chance_range(chance, 0, 1) ? GLU_GELU_TANH : GLU_SILU;
    shape->logit_cap = chance_range(chance, 0, 1) ? 5 : 0;
    shape->layer_scale = chance_range(chance, 0, 1);
    shape->attention.plain_norm = shape->attention.rope_before_norm && chance_range(chance, 0, 1);
    if (!latents && shape->attention.head_dim % 2 == 0 && !hparams_has_other(shape) &&
        (!shape->attention.rope_before_norm || shape->attention.plain_norm) && chance_range(chance, 0, 1)) {
        shape->attention.no_rope_scale = 0.3f;
        shape->attention.no_rope_floor = 5;
    }
    shape->attention.aligned = chance_range(chance, 0, 1);
    if (!hparams_moe_layers(shape))
        return;
    shape->router.weigh_input = shape->router.top_k == 1 && shape->router.kind != ROUTER_SPARSEMIXER &&
                                chance_range(chance, 0, 1);
    shape->shared_apart = shape->norms == NORM_BOTH && shape->shared_inner && chance_range(chance, 0, 2);
    shape->router.norm = chance_range(chance, 0, 1);
    shape->router.logit_scale = chance_range(chance, 0, 1) ? 0.7f : 0;
    shape->router.expert_scale = shape->router.kind != ROUTER_SPARSEMIXER && chance_range(chance, 0, 1);
}

/* Makes a shape one whose experts, zero experts among them, take a shortcut. */
static inline void tiny_shortcut(struct hparams *shape)
{
    shape->layers = 4;
    for (int n = 0; n < shape->layers; n++)
        shape->layer[n].ffn = n % 2 ? FFN_DENSE : FFN_EXPERTS;
    shape->shortcut = true;
    shape->norms = NORM_BEFORE;
    shape->parallel = shape->layer_scale = shape->shared_apart = shape->shared_gate = shape->expert_bias = false;
    shape->residual_scale = shape->glu_limit = 0;
    shape->predictors = 0;
    memset(&shape->router, 0, sizeof shape->router);
    shape->router.experts = 5;
    shape->router.zero_experts = 4;
    shape->router.top_k = 4;
    shape->router.scale = 1.5f;
    shape->router.correction = true;
    shape->expert_inner = 12;
    shape->shared_inner = 20;
    shape->dense_inner = 37;
    shape->attention.latent_scale = shape->attention.kv_rank ? 1.25f : 0;
}

/* Makes a shape one with sparse attention: an indexer in the first and the last layer. */
static inline void tiny_indexer(struct chance *chance, struct hparams *shape)
{
    tiny_latents(chance, shape);
    shape->attention.q_rank = chance_range(chance, 3, 40);
    shape->attention.rope_before_norm = shape->attention.plain_norm = shape->attention.value_norm = false;
    shape->attention.no_rope_scale = 0;
    shape->attention.no_rope_floor = 0;
    shape->other = (struct attention_kind){0};
    shape->layers = 3;
    for (int n = 0; n < shape->layers; n++)
        shape->layer[n] = (struct layer_shape){.ffn = hparams_moe_layers(shape) ? FFN_EXPERTS : FFN_DENSE,
                                               .shares_index = n == 1};
    shape->dense_inner = shape->layer[0].ffn == FFN_DENSE ? 37 : 0;
    shape->predictors = 0;
    shape->index.heads = chance_range(chance, 1, 4);
    shape->index.dim = chance_range(chance, shape->rope.rotary, shape->attention.head_dim);
    shape->index.top_k = chance_range(chance, 1, 20);
}

/* Cuts layers in two, each of one half; the last one stays whole if `whole`. */
static inline void tiny_halves(struct hparams *shape, bool whole)
{
    for (int n = shape->layers - 1; n >= 0; n--) {
        const struct layer_shape both = shape->layer[n];
        shape->layer[2 * n] = both;
        shape->layer[2 * n].ffn = FFN_NONE;
        shape->layer[2 * n + 1] = (struct layer_shape){.ffn = both.ffn, .ffn_alone = true};
    }
    shape->layers = 2 * shape->layers - whole;
    shape->predictors = 0;
    if (whole)
        shape->layer[shape->layers - 1].ffn = shape->layer[shape->layers].ffn;
    for (int n = shape->layers; n < 2 * shape->layers + 2; n++)
        shape->layer[n] = (struct layer_shape){0};
}

static inline struct hparams tiny_shape(struct chance *chance)
{
    struct hparams shape = {.family = "tiny", .norm_epsilon = 1e-5f, .bos = -1, .pad = -1};
    int kv_heads = chance_range(chance, 1, 3), group = chance_range(chance, 1, 3), experts = chance_range(chance, 3, 12);
    bool moe = chance_range(chance, 0, 4) > 0;
    shape.vocab = chance_range(chance, 20, 90);
    shape.hidden = chance_range(chance, 9, 70);
    shape.layers = chance_range(chance, 1, 3);
    shape.max_positions = 2048;
    shape.tied = chance_range(chance, 0, 1);
    shape.attention.kv_heads = kv_heads;
    shape.attention.heads = kv_heads * group;
    shape.attention.head_dim = 2 * chance_range(chance, 2, 12);
    shape.attention.value_dim = shape.attention.head_dim;
    shape.attention.qk_norm = (enum qk_norm)chance_range(chance, 0, 2);
    shape.attention.qkv_bias = chance_range(chance, 0, 1);
    shape.attention.out_bias = chance_range(chance, 0, 1);
    shape.attention.clip_qkv = chance_range(chance, 0, 2) ? 0 : 0.8f;
    shape.attention.scale = 1.0f / sqrtf((float)shape.attention.head_dim);
    shape.rope = (struct rope_shape){.kind = ROPE_DEFAULT, .rotary = 2 * chance_range(chance, 1, shape.attention.head_dim / 2),
                                     .theta = 10000, .factor = 1};
    if (moe) {
        shape.router.experts = experts;
        shape.router.top_k = chance_range(chance, 1, experts < 4 ? experts : 4);
        shape.router.renormalise = chance_range(chance, 0, 1);
        shape.expert_inner = chance_range(chance, 3, 40);
        shape.router.kind = chance_range(chance, 0, 1) ? ROUTER_SOFTMAX_TOPK : ROUTER_SIGMOID;
        shape.router.correction = chance_range(chance, 0, 2) == 0;
        if (experts % 2 == 0 && experts / 2 >= shape.router.top_k && experts / 2 >= 2 && chance_range(chance, 0, 1)) {
            shape.router.groups = 2;
            shape.router.groups_kept = 1;
            shape.router.group_rank = chance_range(chance, 1, 2);
        }
        shape.shared_inner = chance_range(chance, 0, 1) ? chance_range(chance, 3, 60) : 0;
        shape.shared_gate = shape.shared_inner && chance_range(chance, 0, 1);
    }
    if (chance_range(chance, 0, 3) == 0) {
        shape.rope.kind = chance_range(chance, 0, 1) ? ROPE_YARN : ROPE_STRETCHED;
        shape.rope.factor = 4;
        shape.rope.original_positions = 32;
        shape.rope.beta_fast = 32;
        shape.rope.beta_slow = 1;
        shape.rope.amplitude = 1.2;
        shape.rope.long_amplitude = chance_range(chance, 0, 1) ? 1.3 : 0;
        for (int i = 0; i < shape.rope.rotary / 2; i++)
            shape.rope.stretch[i] = 1 + 0.1 * i;
    }
    shape.layer_norm = chance_range(chance, 0, 3) == 0;
    shape.head_bias = chance_range(chance, 0, 3) == 0;
    if (moe && chance_range(chance, 0, 3) == 0) {
        shape.router.kind = ROUTER_SPARSEMIXER;
        shape.router.jitter = 0.2f;
        shape.router.groups = 0;
        shape.router.correction = false;
    }
    shape.router.scale = chance_range(chance, 0, 1) ? 1 : 1.8f;
    if (chance_range(chance, 0, 2) == 0) {
        shape.embed_scale = 1.5f;
        shape.residual_scale = 0.7f;
        shape.logit_divisor = 2;
    }
    for (int n = 0; n < shape.layers; n++) {
        shape.layer[n].ffn = moe && (n || chance_range(chance, 0, 2)) ? FFN_EXPERTS : FFN_DENSE;
        shape.layer[n].window = chance_range(chance, 0, 2) ? 0 : chance_range(chance, 3, 90);
        if (shape.layer[n].ffn == FFN_DENSE)
            shape.dense_inner = 37;
    }
    if (!hparams_moe_layers(&shape)) {
        shape.router.experts = shape.router.top_k = shape.expert_inner = 0;
        shape.router.renormalise = shape.router.correction = shape.shared_gate = false;
        shape.shared_inner = shape.router.groups = 0;
    }
    if (chance_range(chance, 0, 3) == 0)
        tiny_latents(chance, &shape);
    struct chance apart = *chance;                  /* a separate generator, so that the shapes of existing seeds do not
                                                     * change */
    if (chance_range(&apart, 0, 2) == 0)
        tiny_places(&apart, &shape);
    shape.attention.sinks = chance_range(chance, 0, 2) == 0;
    if (hparams_moe_layers(&shape) && chance_range(chance, 0, 2) == 0) {
        shape.router.bias = shape.expert_bias = true;
        shape.glu = GLU_SILU;
        shape.glu_limit = 0.7f;
        shape.glu_alpha = 1.702f;
    }
    shape.predictors = chance_range(chance, 0, 3) ? 0 : chance_range(chance, 1, 2);
    if (shape.predictors)
        shape.attention.no_rope_scale = 0;
    if (shape.attention.no_rope_scale == 0)
        shape.attention.no_rope_floor = 0;
    if (shape.predictors)
        shape.parallel = shape.layer_scale = shape.shared_apart = false;
    for (int i = 0; i < shape.predictors; i++) {
        shape.predictor[i] = (struct predictor_shape){chance_range(chance, 0, 1), chance_range(chance, 0, 1)};
        shape.layer[shape.layers + i] = shape.layer[chance_range(chance, 0, shape.layers - 1)];
    }
    return shape;
}

/* Draws a shape of which at least the first layer has a state. */
static inline struct hparams tiny_states(struct chance *chance, enum recurrence kind, uint64_t seed)
{
    struct hparams shape;
    do
        shape = tiny_shape(chance);
    while (shape.norms != NORM_BEFORE || shape.layer_norm || shape.parallel);
    const int heads = chance_range(chance, 1, 3);
    shape.delta = (struct delta_shape){
        .key_heads = heads, .value_heads = heads * chance_range(chance, 1, 2), .key_dim = chance_range(chance, 2, 20),
        .value_dim = chance_range(chance, 2, 20), .taps = chance_range(chance, 1, 5), .tiled = seed % 3 == 1, .kind = kind,
        .conv_bias = kind != RECURRENCE_DELTA};
    if (kind == RECURRENCE_SPACE)
        shape.delta.norm_groups = heads;
    if (kind == RECURRENCE_CHANNEL)
        shape.delta.gate_rank = seed % 3 ? chance_range(chance, 1, 9) : 0;
    if (kind == RECURRENCE_SCAN) {
        shape.delta.key_heads = 1;
        shape.delta.tiled = false;
        shape.delta.gate_rank = chance_range(chance, 1, 9);
    }
    if (kind == RECURRENCE_CHANNEL && seed % 2)
        shape.delta.floor = -2;
    if (kind == RECURRENCE_NONE)
        shape.delta = (struct delta_shape){.taps = shape.delta.taps, .kind = RECURRENCE_NONE, .conv_bias = seed % 2};
    for (int n = 0; n < shape.layers; n++)
        shape.layer[n].state = n == 0 || chance_range(chance, 0, 1);
    return shape;
}

/* Returns the format that a seed draws, one of TINY_FORMATS kinds. The last kind is each woven format after q4_k in turn. */
enum { TINY_FORMATS = FORMAT_Q4_K + 2 };
static inline enum weight_format tiny_format(uint64_t seed)
{
    const int kind = (int)(seed % TINY_FORMATS), woven = FORMAT_COUNT - FORMAT_Q4_K - 1;
    return (enum weight_format)(kind <= FORMAT_Q4_K ? kind : FORMAT_Q4_K + 1 + (int)(seed / TINY_FORMATS % (uint64_t)woven));
}

struct tiny_maker {
    uint64_t seed;
    bool halves;                        /* v and down contain only values that are exact in f16 */
};

enum { TINY_LAST = -2, TINY_WHOLE, TINY_GATE, TINY_UP };        /* parts: v or down; the rest of a matrix; gate and up of an
                                                                 * expert */

/* Packs one row of `inputs` weights with absolute values up to `size` into a part, as floats of -1 .. 1 or as a coded row. */
static inline void tiny_row(enum weight_format format, bool halves, void *packed, int inputs, int part, int row, float size,
                            float *room, struct chance *chance)
{
    if (format_from_floats(format)) {
        for (int i = 0; i < inputs; i++) {
            room[i] = size * chance_signed(chance);
            if (halves && part == TINY_LAST)
                room[i] = f16_to_f32(f32_to_f16(room[i]));
        }
        if (part < 0)
            matrix_pack(format, packed, inputs, row, 1, room);
        else
            expert_pack_gate_up(format, packed, inputs, part, row, 1, room);
        return;
    }
    uint64_t seed = chance_bits(chance);
    unsigned char *coded = coded_draw(format, inputs, size, &seed);
    if (part < 0)
        matrix_pack_coded(format, packed, inputs, row, 1, coded);
    else
        expert_pack_gate_up_coded(format, packed, inputs, part, row, 1, coded);
    free(coded);
}

static inline int tiny_make(void *context, int member, struct block_job *job, struct err *err)
{
    const struct tensor *t = job->tensor;
    const struct tiny_maker *maker = context;
    struct chance chance = {maker->seed + (uint64_t)(job->block * 977)};
    (void)member, (void)err;
    for (const char *c = t->name; *c; c++)
        chance.state = chance.state * 131 + (unsigned char)*c;
    chance_bits(&chance);
    int widest = t->outputs > t->inputs ? t->outputs : t->inputs;
    float *row = mem_alloc((size_t)widest, sizeof *row, err);
    if (!row)
        return -1;
    memset(job->packed, 0, t->stride);
    const bool norm = strstr(t->name, "norm") != NULL, decay = strstr(t->name, "neg_a") != NULL;
    if (t->kind == TENSOR_VECTOR) {
        for (int i = 0; i < t->outputs; i++)
            ((float *)job->packed)[i] = (norm ? 1.0f : decay ? -0.31f : 0.0f) + 0.3f * chance_signed(&chance);
    } else if (t->kind == TENSOR_MATRIX) {
        float size = strcmp(t->name, "embed") ? 2.5f / sqrtf((float)t->inputs) : 2.5f;
        int first = t->outputs - t->last, begin = t->mixed ? first : 0;
        char *last = (char *)job->packed + (t->mixed ? tensor_last_offset(t) : 0);
        for (int r = 0; r < first; r++)
            tiny_row(t->format, maker->halves, job->packed, t->inputs, TINY_WHOLE, r, size, row, &chance);
        for (int r = first; r < t->outputs; r++)
            tiny_row(tensor_last_format(t), maker->halves, last, t->inputs, TINY_LAST, r - begin, size, row, &chance);
    } else {
        for (int r = 0; r < t->inputs && t->ungated; r++)
            tiny_row(t->format, maker->halves, job->packed, t->outputs, TINY_WHOLE, r, 3.0f / sqrtf((float)t->outputs), row,
                     &chance);
        for (int r = 0; r < 2 * t->inputs && !t->ungated; r++)
            tiny_row(t->format, maker->halves, job->packed, t->outputs, TINY_GATE + r % 2, r / 2,
                     3.0f / sqrtf((float)t->outputs), row, &chance);
        for (int r = 0; r < t->outputs; r++)
            tiny_row(tensor_last_format(t), maker->halves, (char *)job->packed + tensor_last_offset(t), t->inputs, TINY_LAST, r,
                     3.0f / sqrtf((float)t->inputs), row, &chance);
    }
    mem_free(&row);
    return 0;
}

static inline int tiny_write_by(struct tiny_maker maker, const char *path, const struct hparams *shape,
                                enum weight_format format, enum weight_format last, struct err *err)
{
    struct model_facts facts = {.shape = *shape, .name = "tiny", .producer = "test", .synthetic = true, .seed = maker.seed};
    struct layout layout = {0};
    struct model_writer *writer = NULL;
    struct thread_pool *pool = NULL;
    int rc = -1;
    if (hparams_check(shape, err) || layout_make(&layout, shape, err) || thread_pool_new(&pool, 1, err))
        goto done;
    for (int i = 0; i < layout.count; i++)
        if (layout.tensors[i].kind != TENSOR_VECTOR) {
            struct tensor *t = &layout.tensors[i];
            t->format = format;
            t->mixed = last != format && (t->kind == TENSOR_EXPERTS || t->last);
            t->last_format = last;
        }
    if (model_writer_open(&writer, path, &layout, err) ||
        model_writer_fill(writer, &(struct block_maker){tiny_make, &maker}, pool, NULL, &facts.source, err))
        goto done;
    rc = model_writer_commit(&writer, &facts, err);
done:
    model_writer_discard(&writer);
    layout_free(&layout);
    thread_pool_free(&pool);
    return rc;
}

/* Writes the model to `path`, with v and down in a format of their own. Returns 0 on success. */
static inline int tiny_write_mixed(const char *path, const struct hparams *shape, enum weight_format format,
                                   enum weight_format last, uint64_t seed, struct err *err)
{
    return tiny_write_by((struct tiny_maker){.seed = seed}, path, shape, format, last, err);
}

/* Writes the model in f32 with exactly the values that tiny_write_mixed writes with v and down in f16. */
static inline int tiny_write_halves(const char *path, const struct hparams *shape, uint64_t seed, struct err *err)
{
    return tiny_write_by((struct tiny_maker){seed, true}, path, shape, FORMAT_F32, FORMAT_F32, err);
}

static inline int tiny_write(const char *path, const struct hparams *shape, enum weight_format format, uint64_t seed,
                             struct err *err)
{
    return tiny_write_mixed(path, shape, format, format, seed, err);
}

#endif

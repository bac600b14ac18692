#include "common/model/hparams.h"

#include <math.h>
#include <string.h>

int hparams_choices(const struct hparams *shape) { return shape->router.experts + shape->router.zero_experts; }

static int layers_with(const struct hparams *shape, enum ffn_kind ffn)
{
    int count = 0;
    for (int i = 0; i < shape->layers; i++)
        count += shape->layer[i].ffn == ffn;
    return count;
}

int hparams_moe_layers(const struct hparams *shape) { return layers_with(shape, FFN_EXPERTS); }
int hparams_dense_layers(const struct hparams *shape) { return layers_with(shape, FFN_DENSE); }

bool hparams_attends(const struct hparams *shape, int layer)
{
    return !shape->layer[layer].state && !shape->layer[layer].ffn_alone;
}

bool hparams_gated(const struct hparams *shape) { return shape->glu != GLU_NONE_RELU2; }

float hparams_expert_limit(const struct hparams *shape, int layer)
{
    return shape->glu_limit > 0 ? shape->glu_limit : shape->layer[layer].expert_limit;
}

bool hparams_has_other(const struct hparams *shape)
{
    for (int i = 0; i < shape->layers; i++)
        if (shape->layer[i].other)
            return true;
    return false;
}

struct layer_attention hparams_attention(const struct hparams *s, int layer)
{
    const struct attention_kind *other = &s->other;
    if (s->layer[layer].other)
        return (struct layer_attention){other->kv_heads, other->head_dim, other->value_dim, other->sinks, other->value_is_key,
                                        &other->rope};
    return (struct layer_attention){s->attention.kv_heads, s->attention.head_dim, s->attention.value_dim, s->attention.sinks,
                                    false, &s->rope};
}

int hparams_cached_heads(const struct hparams *shape, int layer)
{
    if (!hparams_attends(shape, layer))
        return 0;
    return hparams_attention(shape, layer).kv_heads + (shape->index.heads && !shape->layer[layer].shares_index);
}

int hparams_kv_width(const struct hparams *shape, int layer)
{
    const struct layer_attention own = hparams_attention(shape, layer);
    return hparams_cached_heads(shape, layer) * (own.head_dim + own.value_dim);
}

int hparams_state_layers(const struct hparams *shape)
{
    int count = 0;
    for (int i = 0; i < shape->layers; i++)
        count += shape->layer[i].state;
    return count;
}

int hparams_attention_gates(const struct hparams *shape)
{
    return shape->attention.heads * (shape->attention.head_gate ? 1 : shape->attention.value_dim);
}

struct delta_widths hparams_delta_widths(const struct hparams *shape)
{
    const struct delta_shape *d = &shape->delta;
    const int keys = d->key_heads * d->key_dim, values = d->value_heads * d->value_dim, all = 2 * keys + values;
    if (!hparams_state_layers(shape))
        return (struct delta_widths){0, 0, 0, 0, 0, 0};
    if (d->kind == RECURRENCE_NONE)
        return (struct delta_widths){0, shape->hidden, shape->hidden, 3 * shape->hidden, 0, 0};
    const int steps = d->value_heads * recurrence_decays(d->kind, d->key_dim, d->value_dim);
    if (d->kind == RECURRENCE_SCAN)
        return (struct delta_widths){keys, values, values, 2 * values, 2 * keys + d->gate_rank, steps};
    const int rates = recurrence_corrects(d->kind) ? d->value_heads : 0;
    return (struct delta_widths){keys, values, all, all + (d->gate_rank ? 2 * d->gate_rank : values),
                                 rates + (d->gate_rank ? 0 : steps), steps};
}

static int check_range(const char *name, int64_t value, int64_t min, int64_t max, struct err *err)
{
    if (value >= min && value <= max)
        return 0;
    return err_set(err, ERR_INPUT, "%s is %lld, expected %lld to %lld", name, (long long)value, (long long)min,
                   (long long)max);
}

static int check_real(const char *name, double value, double min, double max, struct err *err)
{
    if (isfinite(value) && value >= min && value <= max)
        return 0;
    return err_set(err, ERR_INPUT, "%s is %g, expected %g to %g", name, value, min, max);
}

static int check_counts(const struct hparams *s, struct err *err)
{
    if (!memchr(s->family, '\0', sizeof s->family))
        return err_set(err, ERR_INPUT, "the name of the family is not terminated");
    if (check_range("vocabulary", s->vocab, 1, VOCAB_MAX, err) || check_range("hidden width", s->hidden, 1, WIDTH_MAX, err) ||
        check_range("number of layers", s->layers, 1, LAYERS_MAX, err) ||
        check_range("number of positions", s->max_positions, 1, INT32_MAX, err) ||
        check_real("epsilon of the norms", (double)s->norm_epsilon, 1e-20, 1, err) ||
        check_range("number of end tokens", s->eos_count, 0, EOS_MAX, err))
        return -1;
    for (int i = 0; i < s->eos_count; i++)
        if (check_range("end token", s->eos[i], 0, s->vocab - 1, err))
            return -1;
    return check_range("begin token", s->bos, -1, s->vocab - 1, err) ||
           check_range("padding token", s->pad, -1, s->vocab - 1, err) ? -1 : 0;
}

static int check_rope(const struct rope_shape *rope, int head_dim, struct err *err)
{
    if (check_range("kind of rope", rope->kind, ROPE_DEFAULT, ROPE_DYNAMIC, err) ||
        check_range("rotary width", rope->rotary, 2, head_dim, err) || check_real("rope theta", rope->theta, 1, 1e30, err) ||
        check_range("rotated pairs", rope->rotated_pairs, 0, rope->rotary / 2, err))
        return -1;
    if (rope->rotary % 2)
        return err_set(err, ERR_INPUT, "the rotary width is %d, but it must be even", rope->rotary);
    if (rope->rotated_pairs && rope->kind != ROPE_DEFAULT && rope->kind != ROPE_LINEAR)
        return err_set(err, ERR_INPUT, "partial rotation of interleaved pairs is supported with default and linear RoPE only");
    if (check_real("amplitude of rope", rope->amplitude, 0, 1e6, err) ||
        check_real("amplitude of rope far out", rope->long_amplitude, 0, 1e6, err))
        return -1;
    if (rope->kind == ROPE_YARN &&
        (check_real("beta_fast", rope->beta_fast, 1e-6, 1e6, err) ||
         check_real("beta_slow", rope->beta_slow, 1e-6, 1e6, err) ||
         check_range("original positions", rope->original_positions, 1, INT32_MAX, err) ||
         check_real("rope theta", rope->theta, 1.0001, 1e30, err)))
        return -1;
    if (rope->kind == ROPE_DYNAMIC &&
        (check_range("rotary width", rope->rotary, 4, head_dim, err) ||
         check_real("rope factor", rope->factor, 1, 1e6, err) ||
         check_range("original positions", rope->original_positions, 1, INT32_MAX, err)))
        return -1;
    for (int i = 0; rope->kind == ROPE_STRETCHED && i < rope->rotary / 2; i++)
        if (check_real("a stretch of rope", rope->stretch[i], 1e-6, 1e6, err))
            return -1;
    if (rope->long_amplitude != 0 && check_range("original positions", rope->original_positions, 1, INT32_MAX, err))
        return -1;
    if (rope->kind != ROPE_DEFAULT && rope->kind != ROPE_STRETCHED && check_real("rope factor", rope->factor, 1e-6, 1e6, err))
        return -1;
    if (rope->kind != ROPE_LLAMA3)
        return 0;
    if (check_real("low_freq_factor", rope->low_factor, 1e-6, 1e6, err) ||
        check_real("high_freq_factor", rope->high_factor, 1e-6, 1e6, err) ||
        check_range("original positions", rope->original_positions, 1, INT32_MAX, err))
        return -1;
    if (rope->high_factor < rope->low_factor)
        return err_set(err, ERR_INPUT, "high_freq_factor %g must be at least low_freq_factor %g", rope->high_factor,
                       rope->low_factor);
    return 0;
}

static int check_kv_heads(int heads, int kv_heads, struct err *err)
{
    if (check_range("number of key and value heads", kv_heads, 1, heads, err))
        return -1;
    return heads % kv_heads ? err_set(err, ERR_INPUT, "%d query heads are not a multiple of %d key and value heads", heads,
                                      kv_heads)
                            : 0;
}

/* Checks the second kind of attention layers. */
static int check_other(const struct hparams *s, struct err *err)
{
    const struct attention_kind *other = &s->other;
    if (!hparams_has_other(s))
        return 0;
    if (s->attention.kv_rank || s->attention.qkv_bias || s->attention.clip_qkv > 0 || s->attention.gate ||
        s->attention.qk_norm == QK_NORM_WHOLE)
        return err_set(err, ERR_INPUT, "a second kind of attention is not supported together with latent attention, biases, a "
                       "clamp, a gate or norms over all heads");
    if (other->rope.kind == ROPE_STRETCHED)
        return err_set(err, ERR_INPUT, "the second kind of attention does not support stretched RoPE");
    if (other->value_is_key && other->value_dim != other->head_dim)
        return err_set(err, ERR_INPUT, "values that are shared with keys must have the width of keys");
    return check_kv_heads(s->attention.heads, other->kv_heads, err) ||
           check_range("width of a head", other->head_dim, 1, HEAD_DIM_MAX, err) ||
           check_range("width of a value", other->value_dim, 1, HEAD_DIM_MAX, err) ||
           check_rope(&other->rope, other->head_dim, err) ? -1 : 0;
}

static int check_attention(const struct hparams *s, struct err *err)
{
    int heads = s->attention.heads, kv_heads = s->attention.kv_heads, head_dim = s->attention.head_dim;
    if (check_range("number of heads", heads, 1, HEADS_MAX, err) ||
        check_range("number of key and value heads", kv_heads, 1, heads, err) ||
        check_range("width of a head", head_dim, 1, HEAD_DIM_MAX, err))
        return -1;
    if (check_range("width of a value", s->attention.value_dim, 1, HEAD_DIM_MAX, err) ||
        check_range("rank of queries", s->attention.q_rank, 0, s->attention.kv_rank ? WIDTH_MAX : 0, err) ||
        check_range("rank of keys and values", s->attention.kv_rank, 0, WIDTH_MAX, err))
        return -1;
    if (s->attention.kv_rank &&
        (check_range("number of key and value heads", kv_heads, heads, heads, err) ||
         check_range("rotary width", s->rope.rotary, 2, head_dim - 1, err) ||
         check_range("kind of q and k norm", s->attention.qk_norm, QK_NORM_NONE, QK_NORM_NONE, err) ||
         check_real("clip_qkv", (double)s->attention.clip_qkv, 0, 0, err) ||
         check_real("epsilon of the norms of latents", (double)s->attention.latent_epsilon, 1e-20, 1, err)))
        return -1;
    if (check_kv_heads(heads, kv_heads, err) ||
        check_range("kind of q and k norm", s->attention.qk_norm, QK_NORM_NONE, QK_NORM_HEAD, err) ||
        check_real("clip_qkv", (double)s->attention.clip_qkv, 0, 1e30, err) ||
        check_real("attention scale", (double)s->attention.scale, 1e-30, 1e30, err) ||
        check_real("scale of values", (double)s->attention.value_scale, 0, 1e30, err))
        return -1;
    if (s->attention.value_scale != 0 && s->attention.out_bias)
        return err_set(err, ERR_INPUT, "scaled values are not supported together with a bias of the attention output");
    return check_rope(&s->rope, head_dim, err) || check_other(s, err) ? -1 : 0;
}

/* Checks the places of norms, and features of few families: gates, scales, shared experts with norms of their own. */
static int check_places(const struct hparams *s, struct err *err)
{
    if (check_range("place of norms", s->norms, NORM_BEFORE, NORM_BOTH, err) ||
        check_real("scale of shared experts", (double)s->shared_scale, 0, 1e30, err))
        return -1;
    if (s->norm_unbiased && !s->layer_norm)
        return err_set(err, ERR_INPUT, "a bias of norms can be absent with layer norms only");
    if (s->layer_norm && s->norms != NORM_BEFORE)
        return err_set(err, ERR_INPUT, "layer norms after attention are not supported");
    if (s->parallel && s->norms != NORM_BEFORE)
        return err_set(err, ERR_INPUT, "parallel attention is supported with norms before it only");
    if (s->attention.rope_before_norm && (s->attention.kv_rank || s->attention.clip_qkv > 0 ||
                                          s->attention.qk_norm != QK_NORM_HEAD))
        return err_set(err, ERR_INPUT, "RoPE before query and key norms is supported with per-head norms only");
    if (s->attention.plain_norm && !s->attention.rope_before_norm)
        return err_set(err, ERR_INPUT, "norms without weights are supported after RoPE only");
    if (check_real("scale of queries in layers without positions", (double)s->attention.no_rope_scale, 0, 1e6, err) ||
        check_range("positions per step of the scale of queries", s->attention.no_rope_floor, s->attention.no_rope_scale > 0,
                    INT32_MAX, err))
        return -1;
    if (s->attention.no_rope_scale > 0 && (s->attention.head_dim % 2 || s->predictors || hparams_has_other(s) ||
                                           (s->attention.rope_before_norm && !s->attention.plain_norm)))
        return err_set(err, ERR_INPUT, "scaled queries are supported with one kind of attention, an even head width and no "
                       "predictors, and not before per-head norms with weights");
    if (s->router.weigh_input && (s->router.top_k != 1 || s->router.kind == ROUTER_SPARSEMIXER))
        return err_set(err, ERR_INPUT, "with weighted expert inputs only 1 expert per token is supported, not %d",
                       s->router.top_k);
    if (s->attention.head_gate && !s->attention.gate)
        return err_set(err, ERR_INPUT, "a gate per attention head needs gated attention");
    if (check_range("kind of gated units", s->glu, GLU_SILU, GLU_NONE_RELU2, err) ||
        check_real("scale of the router's logits", (double)s->router.logit_scale, 0, 1e30, err) ||
        check_real("cap of logits", (double)s->logit_cap, 0, 1e30, err))
        return -1;
    if (!hparams_gated(s) && (s->expert_bias || s->predictors))
        return err_set(err, ERR_INPUT, "feed-forward networks without gates are not supported together with biases or "
                       "multi-token prediction");
    if (s->shared_apart && (s->norms != NORM_BOTH || !s->shared_inner))
        return err_set(err, ERR_INPUT, "shared experts with their own norms need norms before and after the layer");
    if (s->router.expert_scale && s->router.kind == ROUTER_SPARSEMIXER)
        return err_set(err, ERR_INPUT, "scaled experts are not supported with a sparsemixer router");
    if (s->predictors && (s->layer_scale || s->shared_apart))
        return err_set(err, ERR_INPUT, "multi-token prediction is not supported together with layer scales or separately "
                       "normed shared experts");
    return s->predictors && s->parallel ? err_set(err, ERR_INPUT, "multi-token prediction is not supported together with "
                                                  "parallel layers") : 0;
}

/* Checks the limits of gated units, of all layers and of each. */
static int check_limits(const struct hparams *s, struct err *err)
{
    bool limited = s->glu_limit > 0;
    if (check_real("limit of gated units", (double)s->glu_limit, 0, 1e30, err) ||
        check_real("alpha of gated units", (double)s->glu_alpha, 0, 1e30, err))
        return -1;
    for (int i = 0; i < s->layers + s->predictors; i++) {
        const struct layer_shape *layer = &s->layer[i];
        if (check_real("limit of routed experts", (double)layer->expert_limit, 0, 1e30, err) ||
            check_real("limit of shared experts", (double)layer->shared_limit, 0, 1e30, err))
            return err_at(err, "layer %d", i);
        if ((layer->expert_limit > 0 || layer->shared_limit > 0) && (s->glu_limit > 0 || s->glu_alpha > 0))
            return err_set(err, ERR_INPUT,
                           "layer %d has its own activation limits, which cannot be combined with limits for all layers", i);
        limited |= layer->expert_limit > 0 || layer->shared_limit > 0;
    }
    return limited && s->glu != GLU_SILU ? err_set(err, ERR_INPUT, "activation limits are supported with silu only") : 0;
}

static int check_index(const struct hparams *s, struct err *err)
{
    const bool any = s->index.heads > 0;
    if (check_range("number of heads of an indexer", s->index.heads, 0, s->attention.kv_rank ? HEADS_MAX : 0, err) ||
        check_range("positions that an indexer chooses", s->index.top_k, any, any ? INT32_MAX : 0, err))
        return -1;
    if (any && (check_range("rank of queries, of a model with an indexer", s->attention.q_rank, 1, WIDTH_MAX, err) ||
                check_range("width of an indexer's head", s->index.dim, s->rope.rotary, s->attention.head_dim, err)))
        return -1;
    for (int i = 0; any && i < s->layers; i++)
        if (s->layer[i].window || (!i && s->layer[i].shares_index))
            return err_set(err, ERR_INPUT, "layer %d: %s is not supported together with an indexer", i,
                           i || !s->layer[i].shares_index ? "a window" : "sharing the positions of a missing layer");
    return 0;
}

/* Checks a layer that may lack one of its halves. */
static int check_halves(const struct hparams *s, int i, struct err *err)
{
    const struct layer_shape *layer = &s->layer[i];
    if (!layer->ffn_alone && layer->ffn != FFN_NONE)
        return 0;
    if (layer->ffn_alone && (layer->state || layer->ffn == FFN_NONE))
        return err_set(err, ERR_INPUT, "layer %d: has no attention, so it must not have %s", i,
                       layer->state ? "a recurrent state" : "an empty feed-forward network");
    if (s->parallel || s->shortcut || s->predictors || s->index.heads)
        return err_set(err, ERR_INPUT, "layer %d: has attention or a feed-forward network only, which is not supported "
                       "together with parallel attention, shortcuts, multi-token prediction or indexers", i);
    return 0;
}

/* Checks zero experts and experts whose output is added a layer later. */
static int check_shortcut(const struct hparams *s, struct err *err)
{
    if (check_range("number of zero experts", s->router.zero_experts, 0, hparams_moe_layers(s) ? EXPERTS_MAX : 0, err) ||
        check_range("experts and zero experts", hparams_choices(s), 0, EXPERTS_MAX, err) ||
        check_real("scale of latents", (double)s->attention.latent_scale, 0, 1e30, err))
        return -1;
    if (s->router.zero_experts && (s->router.groups > 1 || s->router.kind == ROUTER_SPARSEMIXER || s->router.expert_scale ||
                                   s->router.renormalise || s->router.weigh_input))
        return err_set(err, ERR_INPUT, "zero experts are not supported together with groups, scales of experts, and "
                       "renormalised or input weights");
    if (!s->shortcut)
        return 0;
    if (s->norms != NORM_BEFORE || s->parallel || s->layer_scale || s->residual_scale != 0 || s->shared_apart ||
        s->predictors || hparams_state_layers(s))
        return err_set(err, ERR_INPUT, "experts with a shortcut need norms before the layers, and are not supported together "
                       "with scales, recurrent states and multi-token prediction");
    for (int i = 0; i < s->layers; i++)
        if (s->layer[i].ffn == FFN_EXPERTS && (i + 1 == s->layers || s->layer[i + 1].ffn != FFN_DENSE))
            return err_set(err, ERR_INPUT, "layer %d: experts with a shortcut need a dense layer next", i);
    return 0;
}

static int check_states(const struct hparams *s, struct err *err)
{
    const struct delta_shape *d = &s->delta;
    const bool any = hparams_state_layers(s) > 0, heads = any && d->kind != RECURRENCE_NONE;
    const bool space = any && d->kind == RECURRENCE_SPACE, channels = any && d->kind == RECURRENCE_CHANNEL;
    const bool scans = any && d->kind == RECURRENCE_SCAN;
    const int min = heads, max = heads ? HEADS_MAX : 0, dim = heads ? HEAD_DIM_MAX : 0;
    if (check_range("kind of recurrence", d->kind, RECURRENCE_DELTA, any ? RECURRENCE_SCAN : RECURRENCE_DELTA, err) ||
        check_range("number of key heads of layers with a state", d->key_heads, min, max, err) ||
        check_range("number of value heads of layers with a state", d->value_heads, min, max, err) ||
        check_range("width of a key head of layers with a state", d->key_dim, min, dim, err) ||
        check_range("width of a value head of layers with a state", d->value_dim, min, dim, err) ||
        check_range("taps of the convolution", d->taps, any, any ? CONV_TAPS_MAX : 0, err) ||
        check_range("order of value heads", d->tiled, 0, heads, err) ||
        check_range("bias of the convolution", d->conv_bias, 0, any, err) ||
        check_range("width of the latents of gates", d->gate_rank, scans, channels || scans ? WIDTH_MAX : 0, err) ||
        check_real("lower bound of decays", (double)d->floor, channels ? -1e6 : 0, 0, err) ||
        check_range("groups of the norm of layers with a state", d->norm_groups, space, space ? HEADS_MAX : 0, err))
        return -1;
    if (!any)
        return 0;
    if (space && d->value_heads * d->value_dim % d->norm_groups)
        return err_set(err, ERR_INPUT, "%d values cannot be divided into %d groups evenly", d->value_heads * d->value_dim,
                       d->norm_groups);
    if (scans && (d->key_heads != 1 || d->key_dim * d->value_dim > SCAN_STATE_MAX))
        return err_set(err, ERR_INPUT, "Mamba-1 has %d key heads and states of %d x %d floats; only 1 key head and at most %d "
                       "floats are supported", d->key_heads, d->key_dim, d->value_dim, SCAN_STATE_MAX);
    if (heads && d->value_heads % d->key_heads)
        return err_set(err, ERR_INPUT, "%d value heads are not a multiple of %d key heads", d->value_heads, d->key_heads);
    if (s->norms != NORM_BEFORE || s->layer_norm || s->parallel)
        return err_set(err, ERR_INPUT, "layers with a recurrent state are supported after RMS norms only");
    for (int i = s->layers; i < s->layers + s->predictors && i < LAYERS_MAX; i++)
        if (s->layer[i].state)
            return err_set(err, ERR_INPUT, "predictor %d: recurrent states are not supported in layers for multi-token "
                           "prediction", i - s->layers);
    return 0;
}

static int check_groups(const struct hparams *s, struct err *err)
{
    int groups = s->router.groups, experts = s->router.experts;
    if (groups == 0)
        return 0;
    if (check_range("number of expert groups", groups, 1, experts, err) ||
        check_range("number of groups kept", s->router.groups_kept, 1, groups, err) ||
        check_range("experts that rank a group", s->router.group_rank, 1, 2, err))
        return -1;
    if (experts % groups || experts / groups < s->router.group_rank)
        return err_set(err, ERR_INPUT, "%d experts cannot be divided into %d groups evenly", experts, groups);
    if (experts / groups * s->router.groups_kept < s->router.top_k)
        return err_set(err, ERR_INPUT, "%d groups of %d experts have fewer experts than a token uses, %d",
                       s->router.groups_kept, experts / groups, s->router.top_k);
    return 0;
}

/* Checks predictors: they consist of the same parts as layers. */
static int check_predictors(const struct hparams *s, struct err *err)
{
    if (check_range("number of predictors", s->predictors, 0, PREDICTORS_MAX, err) ||
        check_range("number of layers and predictors", s->layers + s->predictors, 1, LAYERS_MAX, err))
        return -1;
    for (int i = s->layers; i < s->layers + s->predictors; i++) {
        bool experts = s->layer[i].ffn == FFN_EXPERTS;
        if (check_range("kind of feed-forward network", s->layer[i].ffn, FFN_DENSE, FFN_EXPERTS, err) ||
            check_range("sliding window", s->layer[i].window, 0, INT32_MAX, err) ||
            check_range("inner width", experts ? s->expert_inner : s->dense_inner, 1, WIDTH_MAX, err))
            return err_at(err, "predictor %d", i - s->layers);
    }
    return 0;
}

int hparams_check(const struct hparams *s, struct err *err)
{
    if (check_counts(s, err) || check_attention(s, err))
        return -1;
    int with_experts = 0;
    for (int i = 0; i < s->layers; i++) {
        if (check_range("kind of feed-forward network", s->layer[i].ffn, FFN_DENSE, FFN_NONE, err) ||
            check_range("sliding window", s->layer[i].window, 0, INT32_MAX, err))
            return err_at(err, "layer %d", i);
        if (check_halves(s, i, err))
            return -1;
        with_experts += s->layer[i].ffn == FFN_EXPERTS;
    }
    if (hparams_dense_layers(s) ? check_range("inner width of dense layers", s->dense_inner, 1, WIDTH_MAX, err)
                                 : check_range("inner width of dense layers (there are none)", s->dense_inner, 0, 0, err))
        return -1;
    if (check_predictors(s, err) || check_places(s, err) || check_states(s, err) || check_shortcut(s, err) ||
        check_index(s, err) || check_limits(s, err))
        return -1;
    if (check_real("embedding scale", (double)s->embed_scale, 0, 1e30, err) ||
        check_real("residual scale", (double)s->residual_scale, 0, 1e30, err) ||
        check_real("divisor of logits", (double)s->logit_divisor, 0, 1e30, err))
        return -1;
    if (s->expert_bias && (check_range("biases of all experts", (int64_t)s->router.experts * s->expert_inner * 2, 0, INT32_MAX,
                                       err) ||
                           check_range("biases of all experts", (int64_t)s->router.experts * s->hidden, 0, INT32_MAX, err)))
        return -1;
    if (s->shared_gate && !s->shared_inner)
        return err_set(err, ERR_INPUT, "there is a gate of shared experts, but there are no shared experts");
    if (!with_experts)
        return check_range("number of experts (no layer has any)", s->router.experts, 0, 0, err) ||
               check_range("experts a token (no layer has any)", s->router.top_k, 0, 0, err) ||
               check_range("inner width of experts (there are none)", s->expert_inner, 0, 0, err) ||
               check_range("groups of experts (there are none)", s->router.groups, 0, 0, err) ||
               check_range("inner width of shared experts (there are none)", s->shared_inner, 0, 0, err) ? -1 : 0;
    return check_range("kind of router", s->router.kind, ROUTER_SOFTMAX_TOPK, ROUTER_SPARSEMIXER, err) ||
           check_real("jitter of the router", (double)s->router.jitter, 0, 1e6, err) ||
           check_range("number of experts", s->router.experts, 1, EXPERTS_MAX, err) ||
           check_range("experts a token", s->router.top_k, 1, hparams_choices(s), err) ||
           check_real("router scale", (double)s->router.scale, 1e-30, 1e30, err) ||
           check_range("inner width of experts", s->expert_inner, 1, WIDTH_MAX, err) ||
           check_range("inner width of shared experts", s->shared_inner, 0, WIDTH_MAX, err) || check_groups(s, err) ? -1 : 0;
}

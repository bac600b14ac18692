/* Makes the config.json equivalent to a GGUF file's metadata. Settings that the architecture's name implies in GGUF must be
 * explicit in config.json; common/arch defines the keys' names and the settings that a family has. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/arch/arch.h"
#include "common/base/json.h"
#include "common/checkpoint/gguf.h"
#include "common/model/hparams.h"

struct maker {
    const struct gguf *gguf;
    const struct arch *arch;
    struct checkpoint *cp;
    json_t *config;
    struct err *err;
};

/* Name in config.json of a member of struct hparams. */
#define NAME_OF(m, member) arch_key((m)->arch, offsetof(struct hparams, member))

/* Values of general.architecture, and their model_type: without experts, with experts, and with a sigmoid router. */
static const struct family {
    const char *arch, *dense, *experts, *sigmoid;
    bool of_chosen;                 /* the softmax is over the chosen experts' logits, which equals a renormalised softmax
                                     * over all logits */
} FAMILIES[] = {
    {"llama", "llama", "mixtral", NULL, false}, {"qwen2", "qwen2", NULL, NULL, false}, {"qwen3", "qwen3", NULL, NULL, false},
    {"qwen2moe", NULL, "qwen2_moe", NULL, false}, {"qwen3moe", NULL, "qwen3_moe", NULL, false},
    {"olmoe", NULL, "olmoe", NULL, false}, {"deepseek", NULL, "deepseek", NULL, false},
    {"deepseek2", NULL, "deepseek_v2", "deepseek_v3", false}, {"glm4moe", NULL, NULL, "glm4_moe", false},
    {"gpt-oss", NULL, "gpt_oss", NULL, true}, {"granitemoe", NULL, "granitemoe", NULL, false},
    {"minimax-m2", NULL, NULL, "minimax_m2", false}, {"dots1", NULL, NULL, "dots1", false},
    {"ernie4_5-moe", NULL, "ernie4_5_moe", NULL, false}, {"hunyuan-moe", NULL, "hunyuan_v1_moe", NULL, false},
    {"deepseek32", NULL, NULL, "deepseek_v32", false}, {"glm-dsa", NULL, NULL, "glm_moe_dsa", false},
    {"llama4", NULL, "llama4_text", "llama4_text", false},
    {"granitehybrid", "granitemoehybrid", "granitemoehybrid", NULL, false}, {"lfm2moe", NULL, NULL, "lfm2_moe", false},
    {"jamba", "jamba", "jamba", NULL, false}, {"kimi-linear", NULL, NULL, "kimi_linear", false},
    {"nemotron_h", "nemotron_h", NULL, NULL, false},
    {"nemotron_h_moe", NULL, NULL, "nemotron_h", false},
    {"qwen3next", NULL, "qwen3_next", NULL, false}, {"qwen35moe", NULL, "qwen3_5_moe", NULL, false},
};

/* ---- putting ---- */

static int put(struct maker *m, json_t *object, const char *key, json_t *value)
{
    return value && json_object_set_new(object, key, value) == 0 ? 0 : err_memory(m->err);
}

static int put_integer(struct maker *m, const char *name, int64_t value)
{
    return put(m, m->config, name, json_integer(value));
}

/* Reads the integer under `key` into *value, which keeps its value if the key is absent and not required, and writes it as
 * `name` (NULL: does not write it). */
static int integer(struct maker *m, const char *key, bool required, const char *name, int64_t *value)
{
    if (gguf_integer(m->gguf, key, required, value, m->err))
        return -1;
    if (*value < -1 || *value > INT_MAX)
        return err_set(m->err, ERR_INPUT, "%s is %lld, which is out of range", key, (long long)*value);
    return name ? put_integer(m, name, *value) : 0;
}

static int copy_integer(struct maker *m, const char *key, const char *name)
{
    int64_t value = 0;
    return integer(m, key, true, name, &value);
}

static int copy_real(struct maker *m, const char *key, bool required, double absent, const char *name)
{
    double value = absent;
    return gguf_real(m->gguf, key, required, &value, m->err) ? -1 : put(m, m->config, name, json_real(value));
}

/* ---- settings inferred from tensors ---- */

static const struct source_tensor *tensor(const struct maker *m, int layer, const char *name)
{
    char full[64];
    if (layer < 0)
        snprintf(full, sizeof full, "%s", name);
    else
        snprintf(full, sizeof full, "blk.%d.%s", layer, name);
    return checkpoint_find(m->cp, full);
}

/* Reads a width from `key`; if the key is absent or NULL, from dim `dim` of the first layer that has the named tensor. */
static int width(struct maker *m, const char *key, int64_t layers, const char *name, int dim, int64_t *out)
{
    for (int64_t i = 0; i < layers && !*out; i++) {
        const struct source_tensor *t = tensor(m, (int)i, name);
        if (t && t->dim_count > dim && t->dims[dim] <= INT_MAX)
            *out = t->dims[dim];
    }
    return key ? integer(m, key, *out == 0, NULL, out) : 0;
}

/* ---- rope ---- */

/* Writes the rope of rope_freqs.weight, whose elements divide the frequencies of the pairs. */
static int put_stretch(struct maker *m, json_t *rope, const struct source_tensor *t)
{
    struct source_reading reading = {0};
    float values[HEAD_DIM_MAX / 2];
    json_t *list = json_array();
    int rc = -1;
    if (t->dim_count != 1 || t->dims[0] > HEAD_DIM_MAX / 2 || t->coding != &coding_f32) {
        err_set(m->err, ERR_INPUT, "tensor %s must be F32 with one number for each pair of rotated elements of a head; "
                "convert the model's folder instead", t->name);
        goto done;
    }
    if (t->coding->read(m->cp, t, 0, t->dims[0], &reading, values, m->err))
        goto done;
    for (int64_t i = 0; i < t->dims[0]; i++)
        if (!(values[i] > 0) || !isfinite(values[i])) {
            err_set(m->err, ERR_INPUT, "tensor %s: element %d must be above 0; the file is damaged", t->name, (int)i);
            goto done;
        } else if (!list || json_array_append_new(list, json_real((double)values[i]))) {
            err_memory(m->err);
            goto done;
        }
    rc = put(m, rope, "rope_type", json_string("stretched")) || put(m, rope, "stretch", json_incref(list)) ? -1 : 0;
done:
    json_decref(list);
    source_reading_free(&reading);
    return rc;
}

/* Writes YaRN. The file's factor for cos and sin multiplies the paper's amplitude. Its multiplier of the logarithm gives an
 * amplitude of scores, and applies to latent attention only. */
static int put_yarn(struct maker *m, json_t *rope, double factor)
{
    double times = 1, logarithm = 0, fast = 32, slow = 1;
    int64_t positions = 0;
    if (integer(m, "{}.context_length", true, NULL, &positions) ||
        integer(m, "{}.rope.scaling.original_context_length", false, NULL, &positions) ||
        gguf_real(m->gguf, "{}.rope.scaling.attn_factor", false, &times, m->err) ||
        gguf_real(m->gguf, "{}.rope.scaling.yarn_attn_factor", false, &times, m->err) ||
        gguf_real(m->gguf, "{}.rope.scaling.yarn_beta_fast", false, &fast, m->err) ||
        gguf_real(m->gguf, "{}.rope.scaling.yarn_beta_slow", false, &slow, m->err) ||
        gguf_real(m->gguf, "{}.rope.scaling.yarn_log_multiplier", false, &logarithm, m->err))
        return -1;
    if (put(m, rope, "rope_type", json_string("yarn")) || put(m, rope, "factor", json_real(factor)) ||
        put(m, rope, "original_max_position_embeddings", json_integer(positions)) ||
        put(m, rope, "beta_fast", json_real(fast)) || put(m, rope, "beta_slow", json_real(slow)) ||
        put(m, rope, "truncate", json_boolean(!m->arch->gguf_unrounded)))
        return -1;
    if (m->arch->latent && logarithm != 0)
        return put(m, rope, "mscale", json_real(10 * logarithm)) ||
               put(m, rope, "mscale_all_dim", json_real(10 * logarithm)) ? -1 : 0;
    if (times == 1)
        return 0;
    return put(m, rope, "attention_factor", json_real(times * (factor > 1 ? 0.1 * log(factor) + 1 : 1)));
}

static int put_rope_kind(struct maker *m, json_t *rope)
{
    struct gguf_string kind = {"none", 4};
    double factor = 0;
    const struct source_tensor *stretch = tensor(m, -1, "rope_freqs.weight");
    if (gguf_real(m->gguf, "{}.rope.scale_linear", false, &factor, m->err) ||
        gguf_real(m->gguf, "{}.rope.scaling.factor", false, &factor, m->err) ||
        gguf_text(m->gguf, "{}.rope.scaling.type", false, &kind, m->err))
        return -1;
    bool linear = gguf_same(kind, "linear") || (factor != 0 && !gguf_find(m->gguf, "{}.rope.scaling.type"));
    if (stretch && !m->cp->headers_only)
        return put_stretch(m, rope, stretch);
    if (gguf_same(kind, "yarn"))
        return put_yarn(m, rope, factor);
    if (linear && factor != 0 && factor != 1)
        return put(m, rope, "rope_type", json_string("linear")) || put(m, rope, "factor", json_real(factor)) ? -1 : 0;
    if (!gguf_same(kind, "none") && !linear)
        return err_set(m->err, ERR_INPUT, "%s.rope.scaling.type is \"%.*s\"; supported are none, linear and yarn",
                       m->gguf->arch, kind.bytes < 40 ? (int)kind.bytes : 40, kind.data);
    return put(m, rope, "rope_type", json_string("default"));
}

static int put_rope(struct maker *m)
{
    json_t *rope = json_object();
    double theta = 10000;
    int rc = -1;
    if (!rope)
        return err_memory(m->err);
    if (gguf_real(m->gguf, "{}.rope.freq_base", false, &theta, m->err) || put(m, rope, "rope_theta", json_real(theta)) ||
        put_rope_kind(m, rope))
        goto done;
    rc = put(m, m->config, "rope_parameters", json_incref(rope));
done:
    json_decref(rope);
    return rc;
}

/* ---- attention ---- */

/* Writes which half each layer is, according to its tensors, and the largest number of key and value heads of any layer. */
static int put_halves(struct maker *m, const struct gguf_entry *entry)
{
    static const char *const halves[][2] = {{"ssm_out.weight", "mamba"}, {"attn_q.weight", "attention"},
                                            {"ffn_gate_inp.weight", "moe"}, {"ffn_up.weight", "mlp"}};
    const bool listed = entry && entry->array && gguf_is_integer(entry->type);
    int64_t kv_heads = 0, layers = 0, ahead = 0, latent = 0;
    if ((!listed && integer(m, "{}.attention.head_count_kv", true, NULL, &kv_heads)) ||
        integer(m, "{}.block_count", true, NULL, &layers) || integer(m, "{}.nextn_predict_layers", false, NULL, &ahead) ||
        integer(m, "{}.moe_latent_size", false, "moe_latent_size", &latent))
        return -1;
    if (ahead)
        return err_set(m->err, ERR_INPUT, "%s.nextn_predict_layers is %lld, but layers for multi-token prediction are not "
                       "supported in GGUF files of this architecture; convert the model's folder, or a GGUF file without them",
                       m->gguf->arch,
                       (long long)ahead);
    for (size_t i = 0; listed && i < entry->count; i++) {
        const int64_t own = gguf_integer_at(m->gguf, entry, i);
        kv_heads = own > kv_heads ? own : kv_heads;
    }
    if (kv_heads > 0 && kv_heads <= INT_MAX && put_integer(m, "num_key_value_heads", kv_heads))
        return -1;
    json_t *types = json_array();
    for (int64_t i = 0; i < layers && i < LAYERS_MAX && types; i++) {
        size_t k = 0;
        while (k < 3 && !tensor(m, (int)i, halves[k][0]))
            k++;
        if (json_array_append_new(types, json_string(halves[k][1]))) {
            json_decref(types);
            types = NULL;
        }
    }
    return put(m, m->config, "layers_block_type", types);
}

/* Reads the number of key and value heads. In a list with a number per layer, 0 marks a layer with a state. */
static int put_kv_heads(struct maker *m, int64_t kv_heads)
{
    const struct gguf_entry *entry = gguf_find(m->gguf, "{}.attention.head_count_kv");
    json_t *types;
    if (m->arch->halves)
        return put_halves(m, entry);
    if (!m->arch->states || !entry || !entry->array || !gguf_is_integer(entry->type) || !entry->count)
        return integer(m, "{}.attention.head_count_kv", false, "num_key_value_heads", &kv_heads);
    types = json_array();
    kv_heads = 0;
    for (size_t i = 0; i < entry->count; i++) {
        const int64_t own = gguf_integer_at(m->gguf, entry, i);
        if (kv_heads && own && own != kv_heads) {
            json_decref(types);
            return err_set(m->err, ERR_INPUT,
                           "%s.attention.head_count_kv is %lld in one layer and %lld in another; layers with attention must "
                           "all have the same number",
                           m->gguf->arch, (long long)kv_heads, (long long)own);
        }
        kv_heads = own ? own : kv_heads;
        if (types && json_array_append_new(types, json_string(own ? "full_attention" : "linear_attention"))) {
            json_decref(types);
            types = NULL;
        }
    }
    if (kv_heads < 1 || kv_heads > INT_MAX) {
        json_decref(types);
        return err_set(m->err, ERR_INPUT, "%s.attention.head_count_kv is 0 in all layers; a model without attention is not "
                       "supported",
                       m->gguf->arch);
    }
    return put(m, m->config, "layer_types", types) || put_integer(m, "num_key_value_heads", kv_heads) ? -1 : 0;
}

static int put_heads(struct maker *m, int64_t hidden, int64_t heads)
{
    int64_t head_dim = heads > 0 ? hidden / heads : 0, value_dim, rotary;
    if (put_kv_heads(m, heads) ||
        integer(m, "{}.attention.key_length", false, "head_dim", &head_dim))
        return -1;
    value_dim = rotary = head_dim;
    if (integer(m, "{}.attention.value_length", false, NULL, &value_dim) ||
        integer(m, "{}.rope.dimension_count", false, NULL, &rotary))
        return -1;
    const bool partial = m->arch->partial_rotary != 0;
    if (partial && head_dim > 0 && put(m, m->config, "partial_rotary_factor", json_real((double)rotary / (double)head_dim)))
        return -1;
    if (value_dim != head_dim || (rotary != head_dim && !partial))
        return err_set(m->err, ERR_INPUT, "%s.attention.key_length is %lld, but %s %lld; only equal values are supported",
                       m->gguf->arch,
                       (long long)head_dim, value_dim != head_dim ? "value_length is" : "rope.dimension_count is",
                       (long long)(value_dim != head_dim ? value_dim : rotary));
    return put(m, m->config, "use_qk_norm", json_boolean(tensor(m, 0, "attn_q_norm.weight") != NULL)) ||
           put(m, m->config, "attention_bias", json_boolean(tensor(m, 0, "attn_q.bias") != NULL)) ? -1 : 0;
}

/* Reads the indexers that choose positions. A layer without one uses the choice of the layer before it. */
static int put_indexers(struct maker *m)
{
    int64_t layers = 0, ahead = 0;
    if (copy_integer(m, "{}.attention.indexer.top_k", "index_topk"))
        return -1;
    if (!tensor(m, 0, "attn_k_b.weight") || !tensor(m, 0, "indexer.attn_k.weight"))
        return put_integer(m, "index_n_heads", 0);
    if (copy_integer(m, "{}.attention.indexer.head_count", "index_n_heads") ||
        copy_integer(m, "{}.attention.indexer.key_length", "index_head_dim") ||
        integer(m, "{}.block_count", true, NULL, &layers) || integer(m, "{}.nextn_predict_layers", false, NULL, &ahead))
        return -1;
    json_t *types = json_array();
    for (int64_t i = 0; i < layers - ahead && i < LAYERS_MAX && types; i++)
        if (json_array_append_new(types, json_string(tensor(m, (int)i, "indexer.attn_k.weight") ? "full" : "shared"))) {
            json_decref(types);
            types = NULL;
        }
    return put(m, m->config, "indexer_types", types);
}

/* Writes the widths of latent attention. In files with kv_b in two parts, key_length is the width of what is stored, and
 * key_length_mla that of a head. */
static int put_latents(struct maker *m)
{
    int64_t key = 0, value = 0, rotary = 0, rank = 0;
    const bool cut = gguf_find(m->gguf, "{}.attention.key_length_mla") != NULL;
    if (integer(m, cut ? "{}.attention.key_length_mla" : "{}.attention.key_length", true, NULL, &key) ||
        integer(m, cut ? "{}.attention.value_length_mla" : "{}.attention.value_length", true, "v_head_dim", &value) ||
        integer(m, "{}.rope.dimension_count", true, "qk_rope_head_dim", &rotary) ||
        copy_integer(m, "{}.attention.kv_lora_rank", "kv_lora_rank") ||
        integer(m, "{}.attention.q_lora_rank", false, NULL, &rank))
        return -1;
    if ((rank && put_integer(m, "q_lora_rank", rank)) ||
        (m->arch->indexed && put_indexers(m)) ||
        put(m, m->config, "attention_bias", json_boolean(tensor(m, 0, "attn_q_a.bias") || tensor(m, 0, "attn_kv_a_mqa.bias"))))
        return -1;
    return put_integer(m, "qk_nope_head_dim", key - rotary);
}

/* Reads the chunks of attention of Llama 4. In llama.cpp these numbers are constants, so its files lack them; files that need
 * other numbers have the keys that llama.cpp uses for other models. Maverick, whose heads have no norms, is recognised by its
 * 128 experts, as in llama.cpp. */
static int put_chunks(struct maker *m)
{
    int64_t chunk = 8192, floor = 8192, experts = 0;
    double scale = 0.1;
    if (m->arch->window != WINDOW_CHUNKED)
        return 0;
    if (integer(m, "{}.attention.sliding_window", false, "attention_chunk_size", &chunk) ||
        integer(m, "{}.attention.temperature_length", false, "floor_scale", &floor) ||
        gguf_real(m->gguf, "{}.attention.temperature_scale", false, &scale, m->err) ||
        put(m, m->config, "attn_scale", json_real(scale)) ||
        copy_integer(m, "{}.interleave_moe_layer_step", "interleave_moe_layer_step") ||
        integer(m, "{}.expert_count", true, NULL, &experts))
        return -1;
    return put(m, m->config, "use_qk_norm", json_boolean(experts != 128));
}

/* ---- layers with a state ---- */

/* Reads the width of a value head. */
static int head_width(struct maker *m, int64_t *out)
{
    int64_t heads = 0, inner = 0;
    if (integer(m, "{}.ssm.time_step_rank", true, NULL, &heads) || integer(m, "{}.ssm.inner_size", true, NULL, &inner))
        return -1;
    if (heads < 1 || inner % heads)
        return err_set(m->err, ERR_INPUT, "%s.ssm.inner_size is %lld, which is not a multiple of %lld, the number of value "
                       "heads (ssm.time_step_rank)", m->gguf->arch, (long long)inner, (long long)heads);
    *out = inner / heads;
    return 0;
}

/* Returns whether any layer has a tensor of this name. */
static bool any_layer(const struct maker *m, const char *name)
{
    for (int i = 0; i < LAYERS_MAX; i++)
        if (tensor(m, i, name))
            return true;
    return false;
}

static int put_mamba(struct maker *m)
{
    bool turns = false;
    int64_t width = 0;
    if (copy_integer(m, "{}.ssm.group_count", NAME_OF(m, delta.key_heads)) ||
        copy_integer(m, "{}.ssm.state_size", NAME_OF(m, delta.key_dim)) ||
        copy_integer(m, "{}.ssm.conv_kernel", NAME_OF(m, delta.taps)) ||
        copy_integer(m, "{}.ssm.time_step_rank", NAME_OF(m, delta.value_heads)) || head_width(m, &width) ||
        gguf_bool(m->gguf, "{}.rope.scaling.finetuned", &turns, m->err))
        return -1;
    return put_integer(m, NAME_OF(m, delta.value_dim) ? NAME_OF(m, delta.value_dim) : "mamba_d_head", width) ||
           put(m, m->config, NAME_OF(m, delta.conv_bias), json_boolean(any_layer(m, "ssm_conv1d.bias"))) ||
           put(m, m->config, "position_embedding_type", json_string(turns ? "rope" : "nope")) ? -1 : 0;
}

/* Writes the distance between layers that have a tensor, and the first of them. */
static int put_period(struct maker *m, int64_t layers, const char *name, const char *period_key, const char *offset_key)
{
    int64_t first = 0, next;
    while (first < layers && !tensor(m, (int)first, name))
        first++;
    next = first + 1;
    while (next < layers && !tensor(m, (int)next, name))
        next++;
    const int64_t period = next < layers ? next - first : layers + 1;     /* only one such layer, or none */
    return put_integer(m, period_key, period) || put_integer(m, offset_key, first < layers ? first % period : layers) ? -1 : 0;
}

static int put_scans(struct maker *m)
{
    int64_t inner = 0, hidden = 0, layers = 0;
    if (copy_integer(m, "{}.ssm.state_size", "mamba_d_state") || copy_integer(m, "{}.ssm.conv_kernel", "mamba_d_conv") ||
        copy_integer(m, "{}.ssm.time_step_rank", "mamba_dt_rank") || integer(m, "{}.ssm.inner_size", true, NULL, &inner) ||
        integer(m, "{}.embedding_length", true, NULL, &hidden) || integer(m, "{}.block_count", true, NULL, &layers))
        return -1;
    if (hidden < 1 || inner % hidden)
        return err_set(m->err, ERR_INPUT, "%s.ssm.inner_size is %lld; only multiples of embedding_length, %lld, are supported",
                       m->gguf->arch, (long long)inner, (long long)hidden);
    return put_integer(m, "mamba_expand", inner / hidden) ||
           put(m, m->config, "mamba_conv_bias", json_boolean(any_layer(m, "ssm_conv1d.bias"))) ||
           put_period(m, layers, "attn_q.weight", "attn_layer_period", "attn_layer_offset") ||
           put_period(m, layers, "ffn_gate_inp.weight", "expert_layer_period", "expert_layer_offset") ? -1 : 0;
}

static int put_states(struct maker *m, int64_t heads)
{
    int64_t width = 0;
    if (!m->arch->states)
        return 0;
    if (m->arch->fixed.delta.kind == RECURRENCE_SCAN)
        return put_scans(m);
    if (m->arch->fixed.delta.kind == RECURRENCE_SPACE)
        return put_mamba(m);
    if (m->arch->fixed.delta.kind == RECURRENCE_CHANNEL)
        return put_kv_heads(m, heads) || put_integer(m, "linear_num_heads", heads) ||
               copy_integer(m, "{}.kda.head_dim", "linear_head_dim") ||
               copy_integer(m, "{}.ssm.conv_kernel", "linear_conv_kernel_dim") ? -1 : 0;
    if (m->arch->fixed.delta.kind == RECURRENCE_NONE)
        return copy_integer(m, "{}.shortconv.l_cache", "conv_L_cache") ||
               put(m, m->config, "use_expert_bias", json_boolean(any_layer(m, "exp_probs_b.bias"))) ? -1 : 0;
    if (copy_integer(m, "{}.ssm.group_count", "linear_num_key_heads") ||
        copy_integer(m, "{}.ssm.state_size", "linear_key_head_dim") ||
        copy_integer(m, "{}.ssm.conv_kernel", "linear_conv_kernel_dim") ||
        copy_integer(m, "{}.ssm.time_step_rank", "linear_num_value_heads") || head_width(m, &width) ||
        (gguf_find(m->gguf, "{}.full_attention_interval") &&
         copy_integer(m, "{}.full_attention_interval", "full_attention_interval")))
        return -1;
    return put_integer(m, "linear_value_head_dim", width) ||
           put(m, m->config, "linear_value_heads_tiled", json_boolean(!tensor(m, 0, "ssm_ba.weight"))) ? -1 : 0;
}

/* ---- experts ---- */

static int put_dense_layers(struct maker *m, int64_t layers)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < layers && list; i++)
        if (!tensor(m, (int)i, "ffn_gate_inp.weight") && json_array_append_new(list, json_integer(i))) {
            json_decref(list);
            list = NULL;
        }
    return put(m, m->config, "mlp_only_layers", list);
}

/* Writes the shared experts, as a width or as a number of experts; and which layers have experts. */
static int put_shared_experts(struct maker *m, int64_t layers)
{
    const char *name = NAME_OF(m, shared_inner);
    int64_t shared = 0, first = 0, step = 1;
    const bool by_step = m->arch->expert_layers == EXPERTS_BY_STEP;
    if (by_step || (m->arch->expert_layers == EXPERTS_EVERYWHERE && m->arch->states)) {
        if (name && (width(m, "{}.expert_shared_feed_forward_length", layers, "ffn_up_shexp.weight", 0, &shared) ||
                     put_integer(m, name, shared)))
            return -1;
        return by_step ? put_dense_layers(m, layers) : 0;
    }
    const bool range = m->arch->expert_layers == EXPERTS_IN_RANGE;
    if (m->arch->expert_layers != EXPERTS_AFTER_DENSE && !range)
        return 0;
    if (range && integer(m, "{}.interleave_moe_layer_step", false, "moe_layer_interval", &step))
        return -1;
    return integer(m, "{}.expert_shared_count", false, name, &shared) ||
           integer(m, "{}.leading_dense_block_count", false, range ? "moe_layer_start_index" :
                   m->arch->dense_key ? m->arch->dense_key : "first_k_dense_replace", &first) ? -1 : 0;
}

static int put_groups(struct maker *m)
{
    int64_t groups = 1, kept = 1;
    if (m->arch->groups != GROUPS_IF_LIMITED && !NAME_OF(m, router.groups))
        return 0;
    if (integer(m, "{}.expert_group_count", false, "n_group", &groups) ||
        integer(m, "{}.expert_group_used_count", false, "topk_group", &kept))
        return -1;
    return put(m, m->config, "topk_method", json_string(groups > 1 ? "group_limited_greedy" : "greedy"));
}

/* Writes the shape of Granite 4 without routed experts: its shared experts are a dense network. */
static int put_no_experts(struct maker *m, int64_t layers)
{
    int64_t inner = 0;
    if (width(m, "{}.expert_shared_feed_forward_length", layers, "ffn_gate.weight", 0, &inner))
        return -1;
    return put_integer(m, NAME_OF(m, router.experts), 0) || put_integer(m, NAME_OF(m, expert_inner), inner) ||
           put_integer(m, NAME_OF(m, shared_inner), inner) ? -1 : 0;
}

/* Writes the experts. Families that have no key for the width of dense layers use one width for all layers. */
static int put_experts(struct maker *m, int64_t layers)
{
    const char *dense_name = NAME_OF(m, dense_inner), *scale_name = NAME_OF(m, router.scale);
    bool renormalise = m->arch->fixed.router.renormalise || m->arch->gguf_renormalise;
    double scale = 1;
    int64_t inner = 0, dense = 0, experts = 0;
    if (integer(m, "{}.expert_count", false, NULL, &experts))
        return -1;
    if (m->arch->halves && (width(m, NULL, layers, "ffn_up.weight", 0, &dense) || put_integer(m, dense_name, dense)))
        return -1;
    if (m->arch->halves && !experts)
        return 0;
    if (!experts && m->arch->fixed.delta.kind == RECURRENCE_SPACE)
        return put_no_experts(m, layers);
    if (copy_integer(m, "{}.expert_count", NAME_OF(m, router.experts)) ||
        copy_integer(m, "{}.expert_used_count", NAME_OF(m, router.top_k)) ||
        gguf_bool(m->gguf, "{}.expert_weights_norm", &renormalise, m->err) ||
        gguf_real(m->gguf, "{}.expert_weights_scale", false, &scale, m->err) ||
        put(m, m->config, "norm_topk_prob", json_boolean(renormalise)) ||
        width(m, !dense_name && !gguf_find(m->gguf, "{}.expert_feed_forward_length") ? "{}.feed_forward_length"
              : "{}.expert_feed_forward_length", layers, "ffn_up_exps.weight", 1, &inner) ||
        put_integer(m, NAME_OF(m, expert_inner), inner))
        return -1;
    if (dense_name && !m->arch->halves && integer(m, "{}.feed_forward_length", false, dense_name, &dense))
        return -1;
    if (scale != 0 && scale != 1 && !scale_name)
        return err_set(m->err, ERR_INPUT, "%s.expert_weights_scale is %g, which is not supported for this architecture",
                       m->gguf->arch,
                       scale);
    if (scale_name && put(m, m->config, scale_name, json_real(scale == 0 ? 1 : scale)))
        return -1;
    return put_groups(m) || put_shared_experts(m, layers) ? -1 : 0;
}

/* Writes the family's factors, if the file contains them. */
static int put_factors(struct maker *m)
{
    const struct { const char *key, *name; } factors[] = {
        {"{}.embedding_scale", NAME_OF(m, embed_scale)}, {"{}.residual_scale", NAME_OF(m, residual_scale)},
        {"{}.attention.scale", NAME_OF(m, attention.scale)}, {"{}.logit_scale", NAME_OF(m, logit_divisor)},
        {"{}.attention.clamp_kqv", NAME_OF(m, attention.clip_qkv)}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (factors[i].name && gguf_find(m->gguf, factors[i].key) &&
            copy_real(m, factors[i].key, true, 0, factors[i].name))
            return -1;
    return 0;
}

/* ---- the whole ---- */

static const char *find_family(struct maker *m)
{
    const struct gguf *g = m->gguf;
    int64_t experts = 0, first = 0, gating = 0;
    const struct family *family = NULL;
    char known[512] = "";
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        if (strcmp(FAMILIES[i].arch, g->arch) == 0)
            family = &FAMILIES[i];
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", FAMILIES[i].arch);
    }
    if (!family) {
        err_set(m->err, ERR_INPUT, "general.architecture is \"%s\"; supported are %s", g->arch, known);
        return NULL;
    }
    if (integer(m, "{}.leading_dense_block_count", false, NULL, &first))
        return NULL;
    if (!family->experts || tensor(m, (int)first, "exp_probs_b.bias"))          /* only sigmoid routers have a correction */
        gating = family->sigmoid ? 2 : 0;
    if (integer(m, "{}.expert_count", false, NULL, &experts) || integer(m, "{}.expert_gating_func", false, NULL, &gating))
        return NULL;
    if (gating < 0 || gating > 3 || (gating == 2 && !family->sigmoid) || (gating == 3 && !family->of_chosen)) {
        err_set(m->err, ERR_INPUT, "%s.expert_gating_func is %lld, which is not supported", g->arch, (long long)gating);
        return NULL;
    }
    if (strcmp(g->arch, "llama") == 0 && !experts && gguf_find(g, "{}.attention.sliding_window"))
        return "mistral";
    const char *type = !experts && family->dense ? family->dense : gating == 2 ? family->sigmoid : family->experts;
    if (!type)
        err_set(m->err, ERR_INPUT, "%s.expert_count is %lld, which contradicts general.architecture; the file is damaged",
                g->arch, (long long)experts);
    return type;
}

static int put_ids(struct maker *m, int64_t vocab)
{
    int64_t ends[EOS_MAX], bos, pad;
    int count;
    if (gguf_ends(m->gguf, vocab, ends, &count, m->err) ||
        gguf_token_id(m->gguf, "tokenizer.ggml.bos_token_id", vocab, &bos, m->err) ||
        gguf_token_id(m->gguf, "tokenizer.ggml.padding_token_id", vocab, &pad, m->err))
        return -1;
    json_t *list = json_array();
    for (int i = 0; i < count && list; i++)
        if (json_array_append_new(list, json_integer(ends[i]))) {
            json_decref(list);
            list = NULL;
        }
    return put(m, m->config, "eos_token_id", list) || put_integer(m, "bos_token_id", bos) ||
           put_integer(m, "pad_token_id", pad) ? -1 : 0;
}

static int put_all(struct maker *m)
{
    const char *family = find_family(m);
    const struct source_tensor *embedding = tensor(m, -1, "token_embd.weight");
    int64_t hidden = 0, layers = 0, ahead = 0, heads = 0, window = 0;
    if (!family)
        return -1;
    if (!embedding)
        return err_set(m->err, ERR_INPUT, "tensor token_embd.weight is missing; the file contains %s",
                       m->cp->tensor_count ? "only a part of a model, so convert the complete one" : "a vocabulary, but no "
                       "model");
    m->arch = arch_find(family);
    if (put(m, m->config, "model_type", json_string(family)) || put_integer(m, "vocab_size", embedding->dims[0]) ||
        put(m, m->config, "tie_word_embeddings", json_boolean(!tensor(m, -1, "output.weight"))) ||
        integer(m, "{}.embedding_length", true, "hidden_size", &hidden) ||
        integer(m, "{}.block_count", true, NULL, &layers) || integer(m, "{}.nextn_predict_layers", false, NULL, &ahead) ||
        integer(m, "{}.attention.head_count", true, "num_attention_heads", &heads) ||
        copy_integer(m, "{}.context_length", "max_position_embeddings") ||
        copy_real(m, "{}.attention.layer_norm_rms_epsilon", true, 0, "rms_norm_eps") || put_factors(m))
        return -1;
    layers -= ahead;
    if (layers < 1 || layers > LAYERS_MAX)
        return err_set(m->err, ERR_INPUT, "%s.block_count gives the model %lld layers; 1 to %d are supported", m->gguf->arch,
                       (long long)layers, LAYERS_MAX);
    if (put_integer(m, "num_hidden_layers", layers) || put_ids(m, embedding->dims[0]) ||
        (m->arch->latent ? put_latents(m) : put_heads(m, hidden, heads)) || put_rope(m) || put_states(m, heads) ||
        put_chunks(m))
        return -1;
    if (integer(m, "{}.attention.sliding_window", m->arch->window == WINDOW_ALTERNATING, "sliding_window", &window))
        return -1;
    return m->arch->expert_layers == EXPERTS_NOWHERE
        ? copy_integer(m, "{}.feed_forward_length", NAME_OF(m, dense_inner)) : put_experts(m, layers);
}

int gguf_make_config(const struct gguf *gguf, struct checkpoint *cp, struct err *err)
{
    struct maker m = {.gguf = gguf, .cp = cp, .config = json_object(), .err = err};
    char *text = NULL;
    int rc = -1;
    if (!m.config) {
        err_memory(err);
        goto done;
    }
    if (put_all(&m))
        goto done;
    text = json_text(m.config, JSON_COMPACT | JSON_REAL_PRECISION(17), err);
    rc = text ? text_puts(&cp->texts[TEXT_CONFIG], text, err) : -1;
done:
    free(text);
    json_decref(m.config);
    return rc;
}

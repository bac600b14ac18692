#include "common/arch/arch.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct arch *const FAMILIES[] = {
    &arch_afmoe, &arch_bailing_hybrid, &arch_cohere2_moe, &arch_deepseek, &arch_deepseek_v2, &arch_deepseek_v3,
    &arch_deepseek_v32, &arch_dots1, &arch_ernie4_5_moe, &arch_exaone_moe, &arch_flex_olmo, &arch_gemma4, &arch_glm4_moe,
    &arch_glm4_moe_lite, &arch_glm_moe_dsa, &arch_gpt_oss, &arch_granitemoe, &arch_granitemoehybrid, &arch_hunyuan_v1_moe,
    &arch_jamba, &arch_kimi_linear, &arch_lfm2_moe, &arch_llama, &arch_llama4, &arch_longcat_flash, &arch_mimo_v2_flash,
    &arch_minimax_m2, &arch_mistral, &arch_mixtral, &arch_nemotron_h, &arch_olmoe, &arch_phimoe, &arch_qwen2, &arch_qwen2_moe,
    &arch_qwen3, &arch_qwen3_5_moe, &arch_qwen3_moe, &arch_qwen3_next, &arch_solar_open};
enum { FAMILY_COUNT = sizeof FAMILIES / sizeof *FAMILIES };

static const struct config_key SHARED[] = {
    INT("hidden_size", hidden),
    INT_ALSO("num_hidden_layers", "num_layers", layers),
    INT("vocab_size", vocab),
    INT("num_attention_heads", attention.heads),
    INT_ALSO("max_position_embeddings", "model_max_length", max_positions),
    {"rms_norm_eps", KEY_F32, offsetof(struct hparams, norm_epsilon), false, 0, "layer_norm_eps"},
    BOOL_OR("tie_word_embeddings", tied, false),
    INT_OR("bos_token_id", bos, -1),
    INT_OR("pad_token_id", pad, -1),
};

const struct arch *arch_at(int index) { return index < FAMILY_COUNT ? FAMILIES[index] : NULL; }

/* Reads an integer. Some publishers write a list with one integer per layer, whose entries must all be equal. */
static int read_listed_int(const json_t *config, const struct config_key *key, const char *name, int *out, struct err *err)
{
    const json_t *list = config_get(config, name), *first = json_array_get(list, 0), *entry;
    size_t at;
    if (!json_is_array(list))
        return config_int(config, name, key->required, out, err);
    json_array_foreach(list, at, entry)
        if (!json_equal(first, entry))
            return config_refuse(config, name, err, "only the same number for all layers is supported");
    if (!json_is_integer(first) || json_integer_value(first) < 0 || json_integer_value(first) > INT32_MAX)
        return config_refuse(config, name, err, "its entries must be integers of at least 0");
    *out = (int)json_integer_value(first);
    return 0;
}

static int read_key(const json_t *config, const struct config_key *key, struct hparams *shape, struct err *err)
{
    char *at = (char *)shape + key->offset;
    int integer = (int)key->absent;
    double real = key->absent;
    bool flag = key->absent != 0;
    const char *name = key->other && !config_get(config, key->key) && config_get(config, key->other) ? key->other : key->key;
    switch (key->type) {
    case KEY_INT:
        if (read_listed_int(config, key, name, &integer, err))
            return -1;
        memcpy(at, &integer, sizeof integer);
        return 0;
    case KEY_BOOL:
        if (config_bool(config, name, key->required, &flag, err))
            return -1;
        memcpy(at, &flag, sizeof flag);
        return 0;
    default:
        if (config_real(config, name, key->required, &real, err))
            return -1;
        if (!(fabs(real) <= 1e30))
            return config_refuse(config, name, err, "it is out of range");
        memcpy(at, &(float){(float)real}, sizeof(float));
        return 0;
    }
}

const struct arch *arch_find(const char *model_type)
{
    for (int i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(FAMILIES[i]->model_type, model_type) == 0 ||
            (FAMILIES[i]->also && strcmp(FAMILIES[i]->also, model_type) == 0))
            return FAMILIES[i];
    return NULL;
}

const char *arch_key(const struct arch *arch, size_t member)
{
    for (int i = 0; i < ARCH_KEYS && arch->keys[i].key; i++)
        if (arch->keys[i].offset == member)
            return arch->keys[i].key;
    return NULL;
}

static int refuse_family(const json_t *config, struct err *err)
{
    return config_refuse(config, "model_type", err, "this family is not supported; moe-convert --list-families prints those "
                         "that are");
}

/* Rejects keys of config.json that change the computed function but are not supported. */
static int check_refused(const json_t *config, const struct arch *arch, struct err *err)
{
    const char *const *keys = arch->refused;
    const char *activation = "silu";
    if (config_text(config, "hidden_act", false, &activation, err))
        return -1;
    if (strcmp(activation, "silu") && arch->fixed.glu == GLU_SILU)
        return config_refuse(config, "hidden_act", err, "only silu is supported");
    const char *wanted = arch->fixed.router.kind == ROUTER_SIGMOID ? "sigmoid" : "softmax", *scoring = wanted;
    if (config_text(config, "scoring_func", false, &scoring, err))
        return -1;
    if (strcmp(scoring, wanted) && !(strcmp(wanted, "sigmoid") == 0 && strcmp(scoring, "noaux_tc") == 0))   /* dots.llm1 */
        return config_refuse(config, "scoring_func", err, "expected %s for %s", wanted, arch->model_type);
    for (int i = 0; i < 4 && keys[i]; i++) {
        const json_t *value = config_get(config, keys[i]);
        if (value && !json_is_false(value) && !(json_is_number(value) && json_number_value(value) == 0))
            return config_refuse(config, keys[i], err, "this is not supported for %s", arch->model_type);
    }
    return 0;
}

/* Reads the widths of latent attention. In the config.json of such a family head_dim means something else. */
static int read_latents(const json_t *config, struct hparams *s, struct err *err)
{
    int rest = 0, rotary = 0;
    bool interleaved = true;
    if (config_int(config, "kv_lora_rank", true, &s->attention.kv_rank, err) ||
        config_int(config, "q_lora_rank", false, &s->attention.q_rank, err) ||
        config_int(config, "qk_nope_head_dim", true, &rest, err) ||
        config_int(config, "qk_rope_head_dim", true, &rotary, err) ||
        config_int(config, "v_head_dim", true, &s->attention.value_dim, err) ||
        config_bool(config, "rope_interleave", false, &interleaved, err))
        return -1;
    if (!interleaved)
        return config_refuse(config, "rope_interleave", err, "only true is supported");
    if (rest < 1 || rest > HEAD_DIM_MAX)
        return config_refuse(config, "qk_nope_head_dim", err, "it must be from 1 to %d", HEAD_DIM_MAX);
    if (rotary < 2 || rotary > HEAD_DIM_MAX || rotary % 2)
        return config_refuse(config, "qk_rope_head_dim", err, "it must be even, from 2 to %d", HEAD_DIM_MAX);
    if (s->attention.kv_rank < 1)
        return config_refuse(config, "kv_lora_rank", err, "it must be at least 1");
    s->attention.kv_heads = s->attention.heads;
    s->attention.head_dim = rest + rotary;
    s->rope.rotary = rotary;
    return 0;
}

static int read_heads(const json_t *config, struct hparams *s, struct err *err)
{
    s->attention.kv_heads = s->attention.heads;
    s->attention.head_dim = s->attention.heads > 0 ? s->hidden / s->attention.heads : 0;
    if (config_int(config, "num_key_value_heads", false, &s->attention.kv_heads, err) ||
        config_int(config, "head_dim", false, &s->attention.head_dim, err))
        return -1;
    if (s->attention.head_dim < 1)
        return config_refuse(config, "num_attention_heads", err, "the width of a head would be %d", s->attention.head_dim);
    if (!config_get(config, "head_dim") && s->hidden % s->attention.heads)
        return config_refuse(config, "num_attention_heads", err, "hidden_size %d is not a multiple of it", s->hidden);
    s->attention.value_dim = s->attention.head_dim;
    return 0;
}

static int read_attention(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    bool bias = arch->bias == BIAS_QKV || arch->bias == BIAS_ALL_UNLESS, normed = arch->qk_norm_key == NULL;
    const char *bias_key = arch->bias == BIAS_QKV ? "qkv_bias" : "attention_bias";
    if ((arch->latent ? read_latents : read_heads)(config, s, err) ||
        (arch->bias != BIAS_NEVER && config_bool(config, bias_key, false, &bias, err)))
        return -1;
    s->attention.qkv_bias = bias;
    s->attention.out_bias = bias && (arch->bias == BIAS_ALL || arch->bias == BIAS_ALL_UNLESS);
    if (arch->qk_norm_key && config_bool(config, arch->qk_norm_key, false, &normed, err))
        return -1;
    if (!normed)
        s->attention.qk_norm = QK_NORM_NONE;
    if (s->attention.scale == 0)
        s->attention.scale = (float)(1 / sqrt((double)s->attention.head_dim));
    return 0;
}

static bool is_type(const struct arch *arch, const char *text, bool state)
{
    return strcmp(text, state ? "linear_attention" : "full_attention") == 0 ||
           (arch->layer_types[state] && strcmp(text, arch->layer_types[state]) == 0);
}

static int read_layer_types(const json_t *config, const struct arch *arch, struct hparams *s, int window, struct err *err)
{
    const json_t *types = config_get(config, "layer_types");
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->layers)
        return config_refuse(config, "layer_types", err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        bool sliding = strcmp(text, "sliding_attention") == 0;
        s->layer[i].state = arch->states && is_type(arch, text, true);
        if (!sliding && !s->layer[i].state && !is_type(arch, text, false))
            return err_set(err, ERR_INPUT, "layer_types: layer %d is \"%.40s\"; supported are %s and %s; moe-convert "
                           "--list-families prints families that are supported", i, text,
                           arch->layer_types[0] ? arch->layer_types[0] : "full_attention",
                           !arch->states ? "sliding_attention"
                           : arch->layer_types[1] ? arch->layer_types[1] : "linear_attention");
        if (sliding && !window)
            return err_set(err, ERR_INPUT, "layer_types: layer %d is sliding_attention, but sliding_window is not set or not "
                           "used; correct config.json", i);
        s->layer[i].window = sliding ? window : 0;
    }
    return 0;
}

static int read_state_layers(const json_t *config, struct hparams *s, struct err *err)
{
    int interval = 4;
    if (config_int(config, "full_attention_interval", false, &interval, err))
        return -1;
    if (interval < 1)
        return config_refuse(config, "full_attention_interval", err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].state = (i + 1) % interval != 0;
    return 0;
}

/* Reads the shape of layers with a state. */
static int read_delta(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    if (!arch->states || arch->fixed.delta.kind != RECURRENCE_DELTA)
        return 0;
    s->delta = (struct delta_shape){16, 32, 128, 128, 4, false, RECURRENCE_DELTA, 0, false};
    if (config_int(config, "linear_num_key_heads", false, &s->delta.key_heads, err) ||
        config_int(config, "linear_num_value_heads", false, &s->delta.value_heads, err) ||
        config_int(config, "linear_key_head_dim", false, &s->delta.key_dim, err) ||
        config_int(config, "linear_value_head_dim", false, &s->delta.value_dim, err) ||
        config_int(config, "linear_conv_kernel_dim", false, &s->delta.taps, err) ||
        config_bool(config, "linear_value_heads_tiled", false, &s->delta.tiled, err))         /* from GGUF only */
        return -1;
    if (!hparams_state_layers(s))
        s->delta = (struct delta_shape){0};
    return 0;
}

/* Reads the period: one layer in each period has no window. */
static int read_window_pattern(const json_t *config, const struct arch *arch, struct hparams *s, int window, struct err *err)
{
    int pattern = 4;
    if (config_get(config, "layer_types"))
        return read_layer_types(config, arch, s, window, err);
    if (config_int(config, arch->pattern_key, false, &pattern, err))
        return -1;
    if (pattern < 1)
        return config_refuse(config, arch->pattern_key, err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].window = (i + 1) % pattern ? window : 0;
    return 0;
}

static void mark_full_layers_no_rope(const struct arch *arch, struct hparams *s)
{
    bool any = false;
    for (int i = 0; i < s->layers; i++)
        any |= s->layer[i].window > 0;
    for (int i = 0; i < s->layers; i++)
        s->layer[i].no_rope = arch->full_no_rope && any && !s->layer[i].window;
}

/* Reads which layers share the positions chosen by an earlier layer's indexer (GLM-5): a list, a string of F and S, or all but
 * every index_topk_freq-th from layer index_skip_topk_offset - 1 on. Predictors have no indexer, because they only draft. */
static int read_shared_indexes(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *types = config_get(config, "indexer_types"), *pattern = config_get(config, "index_topk_pattern");
    const char *key = types ? "indexer_types" : "index_topk_pattern";
    const json_t *list = types ? types : pattern;
    const char *letters = json_string_value(list);
    int step = 1, first = 2;
    if (config_int(config, "index_topk_freq", false, &step, err) ||
        config_int(config, "index_skip_topk_offset", false, &first, err))
        return -1;
    if (list && (letters ? strlen(letters) : json_array_size(list)) != (size_t)s->layers)
        return config_refuse(config, key, err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        const char *own = letters ? letters + i : json_string_value(json_array_get(list, (size_t)i));
        const int after = i - first + 1 > 0 ? i - first + 1 : 0;
        if (list && (!own || (letters ? *own != 'F' && *own != 'S' : strcmp(own, "full") && strcmp(own, "shared"))))
            return config_refuse(config, key, err, "layer %d: supported are full and shared", i);
        s->layer[i].shares_index = list ? *own == 'S' || *own == 's' : step > 1 && after % step;
    }
    for (int i = s->layers; i < s->layers + PREDICTORS_MAX && i < LAYERS_MAX; i++)
        s->layer[i].shares_index = true;
    return 0;
}

/* Refuses kinds of attention other than indexed_attention and deepseek_sparse_attention, its old name. */
static int check_indexed(const json_t *config, struct err *err)
{
    const json_t *type;
    size_t at;
    json_array_foreach(config_get(config, "layer_types"), at, type)
        if (!json_is_string(type) || (strcmp(json_string_value(type), "indexed_attention") &&
                                      strcmp(json_string_value(type), "deepseek_sparse_attention")))
            return config_refuse(config, "layer_types", err, "layer %zu: only indexed_attention is supported", at);
    return 0;
}

static int read_indexed(const json_t *config, struct hparams *s, struct err *err)
{
    struct index_shape index = {64, 128, 2048};
    if (check_indexed(config, err) || config_int(config, "index_topk", false, &index.top_k, err) ||
        config_int(config, "index_n_heads", false, &index.heads, err) ||
        config_int(config, "index_head_dim", false, &index.dim, err))
        return -1;
    if (index.top_k < 1 || index.heads < 0)
        return config_refuse(config, index.top_k < 1 ? "index_topk" : "index_n_heads", err, "it must be at least 1");
    if (index.heads > 0) {
        s->index = index;
        return read_shared_indexes(config, s, err);
    }
    s->max_positions = s->max_positions < index.top_k ? s->max_positions : index.top_k;
    return 0;
}

static int read_windows(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    int window = 0, first = 0, end = s->layers, step = arch->window == WINDOW_EVEN_IF_USED || arch->window == WINDOW_ALTERNATING
        ? 2 : 1;
    bool used = true;
    if (arch->indexed)
        return read_indexed(config, s, err);
    if (arch->window == WINDOW_CHUNKED)
        return 0;
    if (arch->halves)
        return 0;
    if (arch->window == WINDOW_NEVER)
        return config_get(config, "layer_types") ? read_layer_types(config, arch, s, 0, err)
             : arch->states ? read_state_layers(config, s, err) : 0;
    if (arch->window == WINDOW_ALL_IF_USED || arch->window == WINDOW_UPPER_IF_USED || arch->window == WINDOW_EVEN_IF_USED)
        used = false;
    if ((!used && config_bool(config, "use_sliding_window", false, &used, err)) ||
        config_int(config, "sliding_window", false, &window, err))
        return -1;
    if (window < 0)
        return config_refuse(config, "sliding_window", err, "it must be 0, null or positive");
    if (!used)
        window = 0;
    if (arch->window == WINDOW_PATTERN)
        return read_window_pattern(config, arch, s, window, err);
    if (arch->window == WINDOW_ALTERNATING && config_get(config, "layer_types"))
        return read_layer_types(config, arch, s, window, err);
    if (arch->window == WINDOW_UPPER || arch->window == WINDOW_UPPER_IF_USED || arch->window == WINDOW_EVEN_IF_USED) {
        if (config_get(config, "layer_types"))
            return read_layer_types(config, arch, s, window, err);
        if (config_int(config, "max_window_layers", window > 0, step == 1 ? &first : &end, err))
            return -1;
    }
    for (int i = first < 0 ? 0 : first; i < s->layers && i < end; i += step)
        s->layer[i].window = window;
    return 0;
}

/* Reads mlp_layer_types, a list that transformers 5 writes in place of the keys that families published. */
static int read_mlp_layer_types(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *types = config_get(config, "mlp_layer_types");
    if (!json_is_array(types) || json_array_size(types) != (size_t)s->layers)
        return config_refuse(config, "mlp_layer_types", err, "it must list %d layers", s->layers);
    for (int i = 0; i < s->layers; i++) {
        const json_t *type = json_array_get(types, (size_t)i);
        const char *text = json_is_string(type) ? json_string_value(type) : "";
        bool sparse = strcmp(text, "sparse") == 0;
        if (!sparse && strcmp(text, "dense"))
            return err_set(err, ERR_INPUT, "mlp_layer_types: layer %d is \"%.40s\"; supported are dense and sparse", i, text);
        s->layer[i].ffn = sparse ? FFN_EXPERTS : FFN_DENSE;
    }
    return 0;
}

static int expert_layers_in_range(const json_t *config, struct hparams *s, struct err *err)
{
    int first = 0, last = -1, step = 1;
    if (config_int(config, "moe_layer_start_index", false, &first, err) ||
        config_int(config, "moe_layer_end_index", false, &last, err) ||
        config_int(config, "moe_layer_interval", false, &step, err))
        return -1;
    if (step < 1)
        return config_refuse(config, "moe_layer_interval", err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = i >= first && (last < 0 || i <= last) && (i + 1) % step == 0 ? FFN_EXPERTS : FFN_DENSE;
    return 0;
}

/* Reads which layers have experts: after the dense layers every moe_layer_freq-th one, or one flag per layer in a list. */
static int expert_layers_after_dense(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    const char *key = arch->dense_key ? arch->dense_key : "first_k_dense_replace";
    int first = 0, step = 1;
    const json_t *listed = config_get(config, "moe_layer_freq");
    if (config_get(config, "mlp_layer_types"))
        return read_mlp_layer_types(config, s, err);
    if (json_is_array(listed) && json_array_size(listed) != (size_t)s->layers)
        return config_refuse(config, "moe_layer_freq", err, "a list must have %d layers", s->layers);
    for (int i = 0; i < s->layers && json_is_array(listed); i++)
        s->layer[i].ffn = json_integer_value(json_array_get(listed, (size_t)i)) ? FFN_EXPERTS : FFN_DENSE;
    if (json_is_array(listed))
        return 0;
    if (config_int(config, key, false, &first, err) ||
        config_int(config, "moe_layer_freq", false, &step, err))
        return -1;
    if (first < 0)
        return config_refuse(config, key, err, "it must be at least 0");
    if (step < 1)
        return config_refuse(config, "moe_layer_freq", err, "it must be at least 1");
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = i >= first && i % step == 0 ? FFN_EXPERTS : FFN_DENSE;
    return 0;
}

static int expert_layers_by_step(const json_t *config, struct hparams *s, struct err *err)
{
    const json_t *only = config_get(config, "mlp_only_layers"), *entry;
    int step = 1;
    size_t at;
    if (config_int(config, "decoder_sparse_step", false, &step, err))
        return -1;
    if (step < 1)
        return config_refuse(config, "decoder_sparse_step", err, "it must be at least 1");
    if (only && !json_is_array(only))
        return config_refuse(config, "mlp_only_layers", err, "it must be a list of layers");
    for (int i = 0; i < s->layers; i++)
        if ((i + 1) % step)
            s->layer[i].ffn = FFN_DENSE;
    json_array_foreach(only, at, entry) {
        json_int_t layer = json_integer_value(entry);
        if (!json_is_integer(entry) || layer < 0 || layer >= s->layers)
            return config_refuse(config, "mlp_only_layers", err, "its entries must be layers from 0 to %d", s->layers - 1);
        s->layer[layer].ffn = FFN_DENSE;
    }
    return 0;
}

void arch_unused_ffn(struct hparams *s)
{
    if (!hparams_dense_layers(s))
        s->dense_inner = 0;
    if (!hparams_moe_layers(s)) {
        s->router.experts = s->router.top_k = s->expert_inner = s->shared_inner = s->router.groups = 0;
        s->shared_gate = false;
    }
}

static int read_expert_layers(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    for (int i = 0; i < s->layers; i++)
        s->layer[i].ffn = arch->expert_layers == EXPERTS_NOWHERE ? FFN_DENSE : FFN_EXPERTS;
    if ((arch->expert_layers == EXPERTS_AFTER_DENSE && expert_layers_after_dense(config, arch, s, err)) ||
        (arch->expert_layers == EXPERTS_IN_RANGE && expert_layers_in_range(config, s, err)) ||
        (arch->expert_layers == EXPERTS_BY_STEP && expert_layers_by_step(config, s, err)))
        return -1;
    if (arch->shared_counted) {
        if (s->shared_inner < 0 || s->shared_inner > EXPERTS_MAX || s->expert_inner < 0 || s->expert_inner > WIDTH_MAX)
            return config_refuse(config, "n_shared_experts", err, "it must be from 0 to %d", EXPERTS_MAX);
        s->shared_inner *= s->expert_inner;
    }
    if (arch->expert_layers != EXPERTS_NOWHERE && arch->expert_layers != EXPERTS_EVERYWHERE)
        arch_unused_ffn(s);
    return 0;
}

static int read_groups(const json_t *config, const struct arch *arch, struct hparams *s, struct err *err)
{
    const char *method = "greedy";
    if (arch->groups == GROUPS_AS_READ || !s->router.experts)
        return 0;
    if (config_text(config, "topk_method", false, &method, err))
        return -1;
    if (strcmp(method, "greedy") == 0)
        return 0;
    if (strcmp(method, "group_limited_greedy"))
        return config_refuse(config, "topk_method", err, "supported are greedy and group_limited_greedy");
    return config_int(config, "n_group", true, &s->router.groups, err) ||
           config_int(config, "topk_group", true, &s->router.groups_kept, err) ? -1 : 0;
}

static int add_end_token(struct hparams *s, const json_t *object, const json_t *id, struct err *err)
{
    json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value >= s->vocab)
        return config_refuse(object, "eos_token_id", err, "ids must be from 0 to %d", s->vocab - 1);
    for (int i = 0; i < s->eos_count; i++)
        if (s->eos[i] == (int)value)
            return 0;
    if (s->eos_count == EOS_MAX)
        return config_refuse(object, "eos_token_id", err, "at most %d ids are supported", EOS_MAX);
    s->eos[s->eos_count++] = (int)value;
    return 0;
}

/* Reads the end tokens: those of generation_config.json, if that file names any, otherwise those of config.json. */
static int read_ends(const json_t *config, const json_t *generation, struct hparams *s, struct err *err)
{
    bool own = generation && config_get(generation, "eos_token_id");
    const json_t *object = own ? generation : config, *ids = config_get(object, "eos_token_id"), *id;
    const char *file = own ? "generation_config.json" : "config.json";
    size_t at;
    if (s->bos < 0 || s->bos >= s->vocab)           /* old files write -1 or the vocabulary's size for "none" */
        s->bos = -1;
    if (s->pad < 0 || s->pad >= s->vocab)
        s->pad = -1;
    if (!ids)
        return 0;
    if (!json_is_array(ids))
        return add_end_token(s, object, ids, err) ? err_at(err, "%s", file) : 0;
    json_array_foreach(ids, at, id) {
        if (add_end_token(s, object, id, err))
            return err_at(err, "%s", file);
    }
    return 0;
}

static int read_config(const json_t *config, const struct arch *arch, struct hparams *shape, struct err *err)
{
    *shape = arch->fixed;
    snprintf(shape->family, sizeof shape->family, "%s", arch->model_type);
    for (size_t i = 0; i < sizeof SHARED / sizeof *SHARED; i++) {
        struct config_key key = SHARED[i];
        key.required &= !(arch->halves && key.offset == offsetof(struct hparams, layers));
        if (read_key(config, &key, shape, err))
            return -1;
    }
    if (arch->halves && !shape->layers)                 /* transformers 5 writes only this list */
        shape->layers = (int)json_array_size(config_get(config, "layers_block_type"));
    for (int i = 0; i < ARCH_KEYS && arch->keys[i].key; i++)
        if (read_key(config, &arch->keys[i], shape, err))
            return -1;
    if (shape->hidden < 1)
        return config_refuse(config, "hidden_size", err, "it must be at least 1");
    if (shape->layers < 1 || shape->layers > LAYERS_MAX)
        return config_refuse(config, "num_hidden_layers", err, "it must be from 1 to %d", LAYERS_MAX);
    if (check_refused(config, arch, err) || read_attention(config, arch, shape, err) ||
        arch_read_config_rope(config, arch, shape, err) || read_windows(config, arch, shape, err))
        return -1;
    mark_full_layers_no_rope(arch, shape);
    for (int i = 0; i < shape->layers; i++)
        shape->layer[i].other = arch->other != OTHER_NONE && (shape->layer[i].window > 0) == (arch->other == OTHER_SLIDING);
    if (read_delta(config, arch, shape, err) || read_expert_layers(config, arch, shape, err) ||
        read_groups(config, arch, shape, err) || (arch->finish && arch->finish(config, shape, err)))
        return -1;
    return shape->norm_epsilon == 0 && !config_get(config, "rms_norm_eps")
        ? config_refuse(config, "rms_norm_eps", err, "the model's shape needs it") : 0;
}

const json_t *arch_text_config(const json_t *config)
{
    const json_t *text = config_get(config, "text_config");
    return json_is_object(text) ? text : config;
}

int arch_read(const json_t *config, const json_t *generation, struct hparams *out, const struct arch **arch, struct err *err)
{
    const char *model_type = "";
    struct hparams shape;
    config = arch_text_config(config);
    if (config_text(config, "model_type", true, &model_type, err))
        return err_at(err, "config.json");
    const struct arch *family = arch_find(model_type);
    if (!family) {
        refuse_family(config, err);
        return err_at(err, "config.json");
    }
    if (read_config(config, family, &shape, err))
        return err_at(err, "config.json");
    if (read_ends(config, generation, &shape, err))
        return -1;
    if (hparams_check(&shape, err))
        return err_at(err, "config.json");
    *out = shape;
    *arch = family;
    return 0;
}

int arch_read_text(const char *text, size_t bytes, int layers, struct hparams *shape, struct err *err)
{
    const struct arch *arch;
    static const char *const lists[] = {"layer_types", "layers_block_type"};
    json_t *config = NULL;
    int rc = -1;
    if (config_parse(&config, text, bytes, err))
        return -1;
    if (layers) {
        for (int i = 0; i < 2; i++) {
            json_t *types = json_object_get(config, lists[i]);
            while (json_is_array(types) && json_array_size(types) > (size_t)layers)
                json_array_remove(types, json_array_size(types) - 1);
        }
        if (json_object_set_new(config, "num_hidden_layers", json_integer(layers))) {
            err_memory(err);
            goto done;
        }
    }
    rc = arch_read(config, NULL, shape, &arch, err);
done:
    json_decref(config);
    return rc;
}

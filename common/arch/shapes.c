/* The config.json of well-known models, for synthetic weights of their shape. */
#include "common/arch/arch.h"

#include <string.h>

#include "common/base/file.h"
#include "common/cli/nearest.h"

enum { CONFIG_LIMIT = 4 << 20 };

/* The order of Nemotron's layers. */
#define MAMBA_MOE "\"mamba\",\"moe\","
#define MAMBA_ATTENTION_MOE "\"mamba\",\"attention\",\"moe\","
#define FIRST_LAYERS MAMBA_MOE MAMBA_MOE MAMBA_ATTENTION_MOE
#define NEMOTRON_LAYERS FIRST_LAYERS FIRST_LAYERS FIRST_LAYERS FIRST_LAYERS FIRST_LAYERS MAMBA_MOE FIRST_LAYERS \
    MAMBA_MOE MAMBA_MOE MAMBA_MOE "\"mamba\",\"moe\""

static const struct { const char *name, *summary, *config; } SHAPES[] = {
    {"deepseek-moe-16b", " 16.4 B parameters,  2.8 B active",
     "{\"model_type\":\"deepseek\",\"hidden_size\":2048,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
     "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":16,\"n_routed_experts\":64,"
     "\"n_shared_experts\":2,\"num_experts_per_tok\":6,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"
     "\"norm_topk_prob\":false,\"scoring_func\":\"softmax\",\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,"
     "\"max_position_embeddings\":4096,\"vocab_size\":102400,\"bos_token_id\":100000,\"eos_token_id\":100001,"
     "\"tie_word_embeddings\":false}"},
    {"deepseek-v2-lite", " 15.7 B parameters,  2.7 B active",
     "{\"model_type\":\"deepseek_v2\",\"hidden_size\":2048,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
     "\"num_hidden_layers\":27,\"num_attention_heads\":16,\"num_key_value_heads\":16,\"kv_lora_rank\":512,"
     "\"q_lora_rank\":null,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_routed_experts\":64,"
     "\"n_shared_experts\":2,\"num_experts_per_tok\":6,\"first_k_dense_replace\":1,\"moe_layer_freq\":1,"
     "\"topk_method\":\"greedy\",\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.0,\"norm_topk_prob\":false,"
     "\"scoring_func\":\"softmax\",\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\","
     "\"factor\":40,\"original_max_position_embeddings\":4096,\"beta_fast\":32,\"beta_slow\":1,\"mscale\":0.707,"
     "\"mscale_all_dim\":0.707},\"max_position_embeddings\":163840,\"vocab_size\":102400,\"bos_token_id\":100000,"
     "\"eos_token_id\":100001,\"tie_word_embeddings\":false}"},
    {"deepseek-v3", "671.0 B parameters, 37.6 B active",
     "{\"model_type\":\"deepseek_v3\",\"hidden_size\":7168,\"intermediate_size\":18432,\"moe_intermediate_size\":2048,"
     "\"num_hidden_layers\":61,\"num_attention_heads\":128,\"num_key_value_heads\":128,\"kv_lora_rank\":512,"
     "\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"n_routed_experts\":256,"
     "\"n_shared_experts\":1,\"num_experts_per_tok\":8,\"first_k_dense_replace\":3,\"moe_layer_freq\":1,"
     "\"topk_method\":\"noaux_tc\",\"n_group\":8,\"topk_group\":4,\"routed_scaling_factor\":2.5,\"norm_topk_prob\":true,"
     "\"scoring_func\":\"sigmoid\",\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"rope_scaling\":{\"type\":\"yarn\","
     "\"factor\":40,\"original_max_position_embeddings\":4096,\"beta_fast\":32,\"beta_slow\":1,\"mscale\":1.0,"
     "\"mscale_all_dim\":1.0},\"max_position_embeddings\":163840,\"vocab_size\":129280,\"bos_token_id\":0,"
     "\"eos_token_id\":1,\"tie_word_embeddings\":false}"},
    {"gemma-4-26b-a4b", " 25.2 B parameters,  3.8 B active",
     "{\"model_type\":\"gemma4_text\",\"hidden_size\":2816,\"intermediate_size\":2112,"
     "\"moe_intermediate_size\":704,\"num_hidden_layers\":30,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
     "\"head_dim\":256,\"global_head_dim\":512,\"num_global_key_value_heads\":2,\"attention_k_eq_v\":true,"
     "\"enable_moe_block\":true,\"num_experts\":128,\"top_k_experts\":8,\"sliding_window\":1024,"
     "\"sliding_window_pattern\":6,\"final_logit_softcapping\":30.0,\"rms_norm_eps\":1e-6,\"rope_parameters\":{"
     "\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":10000.0},\"full_attention\":{"
     "\"rope_type\":\"proportional\",\"partial_rotary_factor\":0.25,\"rope_theta\":1000000.0}},"
     "\"max_position_embeddings\":262144,\"vocab_size\":262144,\"bos_token_id\":2,\"eos_token_id\":[1,106],"
     "\"pad_token_id\":0,\"tie_word_embeddings\":true}"},
    {"glm-4.5-air", "106.9 B parameters, 12.7 B active",
     "{\"model_type\":\"glm4_moe\",\"hidden_size\":4096,\"intermediate_size\":10944,\"moe_intermediate_size\":1408,"
     "\"num_hidden_layers\":46,\"num_attention_heads\":96,\"num_key_value_heads\":8,\"head_dim\":128,\"n_routed_experts\":128,"
     "\"n_shared_experts\":1,\"num_experts_per_tok\":8,\"first_k_dense_replace\":1,\"n_group\":1,\"topk_group\":1,"
     "\"norm_topk_prob\":true,\"routed_scaling_factor\":1.0,\"use_qk_norm\":false,\"attention_bias\":true,"
     "\"partial_rotary_factor\":0.5,\"rms_norm_eps\":1e-5,\"rope_theta\":1000000,\"max_position_embeddings\":131072,"
     "\"vocab_size\":151552,\"eos_token_id\":[151329,151336,151338],\"pad_token_id\":151329,\"tie_word_embeddings\":false}"},
    {"gpt-oss-20b", " 20.9 B parameters,  4.2 B active",
     "{\"model_type\":\"gpt_oss\",\"hidden_size\":2880,\"intermediate_size\":2880,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":64,\"num_key_value_heads\":8,\"head_dim\":64,\"num_local_experts\":32,"
     "\"num_experts_per_tok\":4,\"sliding_window\":128,\"attention_bias\":true,\"swiglu_limit\":7.0,\"rms_norm_eps\":1e-5,"
     "\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":32.0,\"beta_fast\":32.0,\"beta_slow\":1.0,"
     "\"truncate\":false,\"original_max_position_embeddings\":4096},\"max_position_embeddings\":131072,"
     "\"vocab_size\":201088,\"eos_token_id\":200002,\"pad_token_id\":199999,\"tie_word_embeddings\":false}"},
    {"granite-3.0-1b-a400m", "  1.3 B parameters,  0.4 B active",
     "{\"model_type\":\"granitemoe\",\"hidden_size\":1024,\"intermediate_size\":512,\"num_hidden_layers\":24,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"num_local_experts\":32,\"num_experts_per_tok\":8,"
     "\"embedding_multiplier\":12.0,\"residual_multiplier\":0.22,\"attention_multiplier\":0.015625,\"logits_scaling\":6.0,"
     "\"rms_norm_eps\":1e-6,\"rope_theta\":10000.0,\"max_position_embeddings\":4096,\"vocab_size\":49155,"
     "\"bos_token_id\":0,\"eos_token_id\":0,\"pad_token_id\":0,\"tie_word_embeddings\":true}"},
    {"mistral-7b", "  7.2 B parameters, dense",
     "{\"model_type\":\"mistral\",\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,"
     "\"sliding_window\":4096,\"max_position_embeddings\":32768,\"vocab_size\":32000,\"bos_token_id\":1,"
     "\"eos_token_id\":2,\"tie_word_embeddings\":false}"},
    {"mixtral-8x7b", " 46.7 B parameters, 12.9 B active",
     "{\"model_type\":\"mixtral\",\"hidden_size\":4096,\"intermediate_size\":14336,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"num_local_experts\":8,\"num_experts_per_tok\":2,"
     "\"rms_norm_eps\":1e-5,\"rope_theta\":1000000.0,\"max_position_embeddings\":32768,\"vocab_size\":32000,"
     "\"bos_token_id\":1,\"eos_token_id\":2,\"tie_word_embeddings\":false}"},
    {"nemotron-3-nano-30b-a3b", " 31.6 B parameters,  3.6 B active",
     "{\"model_type\":\"nemotron_h\",\"hidden_size\":2688,\"num_hidden_layers\":52,"
     "\"layers_block_type\":[" NEMOTRON_LAYERS "],"
     "\"num_attention_heads\":32,\"num_key_value_heads\":2,\"head_dim\":128,\"mamba_num_heads\":64,"
     "\"mamba_head_dim\":64,\"n_groups\":8,\"ssm_state_size\":128,\"conv_kernel\":4,\"use_conv_bias\":true,"
     "\"n_routed_experts\":128,\"num_experts_per_tok\":6,\"moe_intermediate_size\":1856,"
     "\"intermediate_size\":1856,\"n_shared_experts\":1,\"moe_shared_expert_intermediate_size\":3712,"
     "\"n_group\":1,\"topk_group\":1,\"norm_topk_prob\":true,\"routed_scaling_factor\":2.5,"
     "\"mlp_hidden_act\":\"relu2\",\"layer_norm_epsilon\":1e-5,\"max_position_embeddings\":262144,"
     "\"vocab_size\":131072,\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":0,"
     "\"tie_word_embeddings\":false}"},
    {"olmoe-1b-7b", "  6.9 B parameters,  1.3 B active",
     "{\"model_type\":\"olmoe\",\"hidden_size\":2048,\"intermediate_size\":1024,\"num_hidden_layers\":16,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":16,\"num_experts\":64,\"num_experts_per_tok\":8,"
     "\"norm_topk_prob\":false,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"max_position_embeddings\":4096,"
     "\"vocab_size\":50304,\"eos_token_id\":50279,\"pad_token_id\":1,\"tie_word_embeddings\":false}"},
    {"phi-3.5-moe", " 41.9 B parameters,  6.6 B active (with plain rope)",
     "{\"model_type\":\"phimoe\",\"hidden_size\":4096,\"intermediate_size\":6400,\"num_hidden_layers\":32,"
     "\"num_attention_heads\":32,\"num_key_value_heads\":8,\"num_local_experts\":16,\"num_experts_per_tok\":2,"
     "\"attention_bias\":true,\"lm_head_bias\":true,\"rms_norm_eps\":1e-5,\"rope_theta\":10000.0,\"sliding_window\":131072,"
     "\"router_jitter_noise\":0.01,\"max_position_embeddings\":131072,\"vocab_size\":32064,\"bos_token_id\":1,"
     "\"eos_token_id\":32000,\"tie_word_embeddings\":false}"},
    {"qwen1.5-moe-a2.7b", " 14.3 B parameters,  2.7 B active",
     "{\"model_type\":\"qwen2_moe\",\"hidden_size\":2048,\"intermediate_size\":5632,\"moe_intermediate_size\":1408,"
     "\"shared_expert_intermediate_size\":5632,\"num_hidden_layers\":24,\"num_attention_heads\":16,"
     "\"num_key_value_heads\":16,\"num_experts\":60,\"num_experts_per_tok\":4,\"norm_topk_prob\":false,"
     "\"decoder_sparse_step\":1,\"mlp_only_layers\":[],\"use_sliding_window\":false,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":1000000.0,\"max_position_embeddings\":8192,\"vocab_size\":151936,\"bos_token_id\":151643,"
     "\"eos_token_id\":151643,\"tie_word_embeddings\":false}"},
    {"qwen3-0.6b", "  0.6 B parameters, dense",
     "{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"intermediate_size\":3072,\"num_hidden_layers\":28,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":8,\"head_dim\":128,\"rms_norm_eps\":1e-6,"
     "\"rope_theta\":1000000,\"max_position_embeddings\":40960,\"vocab_size\":151936,\"bos_token_id\":151643,"
     "\"eos_token_id\":151645,\"tie_word_embeddings\":true}"},
    {"qwen3-30b-a3b", " 30.5 B parameters,  3.3 B active",
     "{\"model_type\":\"qwen3_moe\",\"hidden_size\":2048,\"intermediate_size\":6144,\"moe_intermediate_size\":768,"
     "\"num_hidden_layers\":48,\"num_attention_heads\":32,\"num_key_value_heads\":4,\"head_dim\":128,"
     "\"num_experts\":128,\"num_experts_per_tok\":8,\"norm_topk_prob\":true,\"decoder_sparse_step\":1,"
     "\"mlp_only_layers\":[],\"rms_norm_eps\":1e-6,\"rope_theta\":1000000.0,\"max_position_embeddings\":40960,"
     "\"vocab_size\":151936,\"bos_token_id\":151643,\"eos_token_id\":151645,\"tie_word_embeddings\":false}"},
    {"qwen3.6-35b-a3b", " 34.7 B parameters,  3.5 B active",
     "{\"model_type\":\"qwen3_5_moe_text\",\"hidden_size\":2048,\"moe_intermediate_size\":512,"
     "\"shared_expert_intermediate_size\":512,\"num_hidden_layers\":40,\"full_attention_interval\":4,"
     "\"num_attention_heads\":16,\"num_key_value_heads\":2,\"head_dim\":256,\"num_experts\":256,"
     "\"num_experts_per_tok\":8,\"linear_num_key_heads\":16,\"linear_num_value_heads\":32,"
     "\"linear_key_head_dim\":128,\"linear_value_head_dim\":128,\"linear_conv_kernel_dim\":4,"
     "\"rms_norm_eps\":1e-6,\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000000.0,"
     "\"partial_rotary_factor\":0.25},\"max_position_embeddings\":262144,\"vocab_size\":248320,"
     "\"eos_token_id\":248044,\"tie_word_embeddings\":false}"},
};

const char *known_shape(const char *name)
{
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        if (strcmp(SHAPES[i].name, name) == 0)
            return SHAPES[i].config;
    return NULL;
}

const char *known_shape_at(int index, const char **summary)
{
    if (index < 0 || (size_t)index >= sizeof SHAPES / sizeof *SHAPES)
        return NULL;
    *summary = SHAPES[index].summary;
    return SHAPES[index].name;
}

static int unknown_shape(const char *option, const char *name, struct err *err)
{
    struct nearest nearest = {.word = name};
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++)
        nearest_offer(&nearest, SHAPES[i].name);
    return err_set(err, ERR_INPUT, "%s %s: unknown shape; %s%s%s`moe-convert list` lists the known shapes, and a config.json "
                   "can be named instead", option, name, nearest.best ? "did you mean " : "",
                   nearest.best ? nearest.best : "", nearest.best ? "? " : "");
}

int known_shape_read(const char *name, const char *option, int layers, struct text *text, struct hparams *shape,
                     struct err *err)
{
    const char *known = known_shape(name);
    if (!known && !strchr(name, '/') && !strstr(name, ".json"))
        return unknown_shape(option, name, err);
    if (known ? text_puts(text, known, err) : file_read(text, name, CONFIG_LIMIT, err))
        return -1;
    return arch_read_text(text->data, text->length, layers, shape, err) ? err_at(err, "%s", name) : 0;
}

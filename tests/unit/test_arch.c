/* Families: configs written by transformers 4 and 5 give the same description, unsupported features are rejected by name,
 * and each canonical tensor is made of the right source tensors. */
#include <math.h>

#include "common/arch/arch.h"
#include "common/engine/rope.h"
#include "common/model/layout.h"
#include "tests/unit/unit.h"

static struct hparams shape;
static const struct arch *family;

/* Builds a config with `keys` added, or in place of those of the same name; generation may be NULL. */
static int read_config(const char *base, const char *keys, const char *generation, struct err *err)
{
    json_t *config = NULL, *changes = NULL, *gen = NULL;
    err_clear(err);
    assert_int_equal(config_parse(&config, base, strlen(base), err), 0);
    assert_int_equal(config_parse(&changes, keys, strlen(keys), err), 0);
    json_object_update(config, changes);
    if (generation)
        assert_int_equal(config_parse(&gen, generation, strlen(generation), err), 0);
    int rc = arch_read(config, gen, &shape, &family, err);
    json_decref(config);
    json_decref(changes);
    json_decref(gen);
    return rc;
}

static const char LLAMA[] =
    "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,\"vocab_size\":100,"
    "\"hidden_act\":\"silu\",\"eos_token_id\":2,\"bos_token_id\":1}";
static const char QWEN3[] =
    "{\"model_type\":\"qwen3\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"head_dim\":32,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":128,\"vocab_size\":100}";
static const char QWEN3_MOE[] =
    "{\"model_type\":\"qwen3_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"moe_intermediate_size\":48,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"rms_norm_eps\":1e-6,"
    "\"max_position_embeddings\":128,\"vocab_size\":100,\"num_experts\":8,\"num_experts_per_tok\":2,\"norm_topk_prob\":true}";
static const char MIXTRAL[] =
    "{\"model_type\":\"mixtral\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
    "\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,\"vocab_size\":100,\"num_local_experts\":8,"
    "\"num_experts_per_tok\":2,\"sliding_window\":null}";
static const char OLMOE[] =
    "{\"model_type\":\"olmoe\",\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,\"vocab_size\":100,\"num_experts\":8,"
    "\"num_experts_per_tok\":2,\"clip_qkv\":0.5}";

static const char QWEN2_MOE[] =
    "{\"model_type\":\"qwen2_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"moe_intermediate_size\":48,"
    "\"shared_expert_intermediate_size\":40,\"num_hidden_layers\":4,\"num_attention_heads\":4,\"rms_norm_eps\":1e-6,"
    "\"max_position_embeddings\":128,\"vocab_size\":100,\"num_experts\":8,\"num_experts_per_tok\":2}";
static const char DEEPSEEK[] =
    "{\"model_type\":\"deepseek\",\"hidden_size\":64,\"intermediate_size\":96,\"moe_intermediate_size\":48,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":128,"
    "\"vocab_size\":100,\"n_routed_experts\":8,\"num_experts_per_tok\":2,\"n_shared_experts\":3,"
    "\"first_k_dense_replace\":1}";

static const char GRANITE[] =
    "{\"model_type\":\"granitemoe\",\"hidden_size\":64,\"intermediate_size\":48,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"rms_norm_eps\":1e-6,\"max_position_embeddings\":128,\"vocab_size\":100,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"embedding_multiplier\":12,\"residual_multiplier\":0.5,"
    "\"attention_multiplier\":0.125,\"logits_scaling\":6}";
static const char GLM[] =
    "{\"model_type\":\"glm4_moe\",\"hidden_size\":64,\"intermediate_size\":96,\"moe_intermediate_size\":48,"
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,\"head_dim\":32,\"rms_norm_eps\":1e-6,"
    "\"max_position_embeddings\":128,\"vocab_size\":100,\"n_routed_experts\":8,\"num_experts_per_tok\":2,"
    "\"n_group\":4,\"topk_group\":2,\"routed_scaling_factor\":1.5,\"attention_bias\":true}";

static const char PHI[] =
    "{\"model_type\":\"phimoe\",\"hidden_size\":64,\"intermediate_size\":48,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":16,\"rms_norm_eps\":1e-5,\"max_position_embeddings\":128,\"vocab_size\":100,"
    "\"num_local_experts\":8,\"num_experts_per_tok\":2,\"attention_bias\":true,\"lm_head_bias\":true,"
    "\"rope_theta\":10000,\"original_max_position_embeddings\":64,\"rope_scaling\":{\"type\":\"longrope\","
    "\"short_factor\":[1,1.5],\"long_factor\":[2,4],\"short_mscale\":1.25,\"long_mscale\":1.5,"
    "\"original_max_position_embeddings\":32}}";

static void families_say_what_they_are(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(LLAMA, "{}", NULL, &err), 0);
    assert_string_equal(shape.family, "llama");
    assert_int_equal(shape.attention.head_dim, 16);
    assert_int_equal(shape.attention.kv_heads, 2);
    assert_int_equal(shape.attention.qk_norm, QK_NORM_NONE);
    assert_float_equal(shape.attention.scale, 0.25, 0);
    assert_int_equal(shape.dense_inner, 96);
    assert_int_equal(hparams_moe_layers(&shape), 0);
    assert_int_equal(shape.eos_count, 1);
    assert_int_equal(shape.eos[0], 2);
    assert_int_equal(shape.bos, 1);
    assert_int_equal(shape.pad, -1);
    assert_true(shape.rope.theta == 10000);
    assert_int_equal(shape.rope.rotary, 16);
    assert_int_equal(read_config(QWEN3, "{}", NULL, &err), 0);
    assert_int_equal(shape.attention.head_dim, 32);
    assert_int_equal(shape.attention.qk_norm, QK_NORM_HEAD);
    assert_int_equal(read_config(MIXTRAL, "{}", NULL, &err), 0);
    assert_int_equal(shape.attention.kv_heads, 4);
    assert_true(shape.router.renormalise);
    assert_true(shape.rope.theta == 1e6);
    assert_int_equal(hparams_moe_layers(&shape), 4);
    assert_int_equal(shape.dense_inner, 0);
    assert_int_equal(read_config(OLMOE, "{}", NULL, &err), 0);
    assert_int_equal(shape.attention.qk_norm, QK_NORM_WHOLE);
    assert_false(shape.router.renormalise);
    assert_float_equal(shape.attention.clip_qkv, 0.5, 0);
    assert_int_equal(shape.expert_inner, 96);
    assert_int_equal(read_config(OLMOE, "{\"norm_topk_prob\":true,\"clip_qkv\":null,\"attention_bias\":true}", NULL, &err), 0);
    assert_true(shape.router.renormalise);
    assert_float_equal(shape.attention.clip_qkv, 0, 0);
    assert_true(shape.attention.qkv_bias && shape.attention.out_bias);
    assert_int_equal(read_config(QWEN3_MOE, "{}", NULL, &err), 0);
    assert_true(shape.router.renormalise);
    assert_int_equal(shape.expert_inner, 48);
    assert_int_equal(shape.dense_inner, 0);
}

/* Kimi K2 is DeepSeek-V3 with more experts, in one group. */
static void families_have_other_names(void **state)
{
    (void)state;
    struct err err = {0};
    const char *kimi = "{\"model_type\":\"kimi_k2\",\"n_routed_experts\":384,\"n_group\":1,\"topk_group\":1,\"rope_scaling\":{"
                       "\"type\":\"yarn\",\"factor\":32,\"beta_fast\":1,\"beta_slow\":1,\"mscale\":1,\"mscale_all_dim\":1,"
                       "\"original_max_position_embeddings\":4096}}";
    assert_int_equal(read_config(known_shape("deepseek-v3"), kimi, NULL, &err), 0);
    assert_string_equal(shape.family, "deepseek_v3");
    assert_int_equal(shape.router.experts, 384);
    assert_int_equal(shape.router.kind, ROUTER_SIGMOID);
}

static void both_forms_of_rope_mean_the_same(void **state)
{
    (void)state;
    static const struct { const char *old_form, *new_form; } pairs[] = {
        {"{\"rope_theta\":5e5,\"rope_scaling\":null}", "{\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"default\"}}"},
        {"{\"rope_theta\":5e5,\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}}",
         "{\"rope_parameters\":{\"rope_theta\":500000,\"rope_type\":\"linear\",\"factor\":4}}"},
        {"{\"rope_theta\":5e5,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}}",
         "{\"rope_parameters\":{\"rope_theta\":5e5,\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
         "\"high_freq_factor\":4,\"original_max_position_embeddings\":32}}"},
    };
    static const enum rope_kind kinds[] = {ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct err err = {0};
        assert_int_equal(read_config(LLAMA, pairs[i].old_form, NULL, &err), 0);
        struct hparams before = shape;
        assert_int_equal(read_config(LLAMA, pairs[i].new_form, NULL, &err), 0);
        assert_int_equal(shape.rope.kind, kinds[i]);
        assert_true(shape.rope.theta == 5e5);
        assert_memory_equal(&before.rope, &shape.rope, sizeof shape.rope);
    }
    assert_true(shape.rope.factor == 8 && shape.rope.low_factor == 1 && shape.rope.high_factor == 4);
    assert_int_equal(shape.rope.original_positions, 32);
}

/* base config, changed keys, expected error */
static const struct { const char *base, *keys, *says; } REFUSED[] = {
    {LLAMA, "{\"model_type\":\"gpt2\"}", "model_type is \"gpt2\"; this family is not supported; moe-convert --list-families "
     "prints those that are"},
    {LLAMA, "{\"model_type\":null}", "model_type is null"},
    {LLAMA, "{\"mlp_bias\":true}", "mlp_bias is true; this is not supported for llama"},
    {LLAMA, "{\"hidden_act\":\"gelu\"}", "hidden_act is \"gelu\"; only silu"},
    {LLAMA, "{\"rope_scaling\":{\"type\":\"ntk\",\"factor\":2}}",
     "rope_scaling: type is \"ntk\"; supported are default, dynamic, linear, llama3 and yarn"},
    {LLAMA, "{\"rope_parameters\":{\"rope_type\":\"longrope\",\"factor\":2}}", "rope_parameters: rope_type is \"longrope\""},
    {LLAMA, "{\"rope_scaling\":{\"type\":\"linear\"}}", "rope_scaling: factor is missing"},
    {LLAMA, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"4\"}}", "factor is \"4\"; it must be a number"},
    {LLAMA, "{\"rope_scaling\":\"linear\"}", "rope_scaling is \"linear\"; it must be an object"},
    {LLAMA, "{\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}", "different rope by layer type"},
    {LLAMA, "{\"partial_rotary_factor\":0.5}", "partial_rotary_factor is 0.5"},
    {LLAMA, "{\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}", "partial_rotary_factor is 0.5"},
    {LLAMA, "{\"hidden_size\":null}", "hidden_size is null"},
    {LLAMA, "{\"hidden_size\":64.5}", "hidden_size is 64.5; it must be an integer"},
    {LLAMA, "{\"hidden_size\":66}", "num_attention_heads is 4; hidden_size 66 is not a multiple"},
    {LLAMA, "{\"hidden_size\":-64}", "hidden_size is -64; it must be at least 1"},
    {LLAMA, "{\"num_hidden_layers\":513}", "num_hidden_layers is 513; it must be from 1 to 512"},
    {LLAMA, "{\"num_hidden_layers\":0}", "num_hidden_layers is 0"},
    {LLAMA, "{\"num_attention_heads\":0}", "num_attention_heads is 0"},
    {LLAMA, "{\"num_key_value_heads\":3}", "4 query heads are not a multiple of 3"},
    {LLAMA, "{\"vocab_size\":99999999999}", "vocab_size is 99999999999; it must be an integer of 32 bits"},
    {LLAMA, "{\"vocab_size\":16777217}", "vocabulary is 16777217"},
    {LLAMA, "{\"intermediate_size\":0}", "inner width of dense layers is 0"},
    {LLAMA, "{\"rms_norm_eps\":0}", "epsilon of the norms is 0"},
    {LLAMA, "{\"eos_token_id\":100}", "eos_token_id is 100; ids must be from 0 to 99"},
    {LLAMA, "{\"eos_token_id\":\"2\"}", "eos_token_id is \"2\""},
    {LLAMA, "{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", "at most 8 ids"},
    {LLAMA, "{\"tie_word_embeddings\":1}", "tie_word_embeddings is 1; it must be true or false"},
    {LLAMA, "{\"layer_types\":[\"full_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]}",
     "layer 2 is sliding_attention, but sliding_window is not set or not used"},
    {QWEN3, "{\"layer_types\":[\"full_attention\"]}", "it must list 4 layers"},
    {QWEN3, "{\"layer_types\":[\"full_attention\",\"linear\",\"full_attention\",\"full_attention\"]}", "layer 1 is \"linear\""},
    {QWEN3, "{\"use_sliding_window\":true,\"sliding_window\":8}", "max_window_layers is missing"},
    {QWEN3, "{\"use_sliding_window\":true,\"sliding_window\":-8}", "sliding_window is -8"},
    {QWEN3, "{\"head_dim\":33}", "the rotary width is 33, but it must be even"},
    {OLMOE, "{\"num_experts_per_tok\":9}", "experts a token is 9"},
    {OLMOE, "{\"num_experts\":null}", "num_experts is null"},
    {OLMOE, "{\"clip_qkv\":1e31}", "clip_qkv is 1e31; it is out of range"},
    {OLMOE, "{\"clip_qkv\":-1}", "clip_qkv is -1"},
    {QWEN3_MOE, "{\"decoder_sparse_step\":0}", "decoder_sparse_step is 0"},
    {QWEN3_MOE, "{\"mlp_only_layers\":[4]}", "mlp_only_layers is [4]; its entries must be layers from 0 to 3"},
    {QWEN3_MOE, "{\"mlp_only_layers\":3}", "mlp_only_layers is 3; it must be a list"},
};

static const char V2[] =
    "{\"model_type\":\"deepseek_v2\",\"hidden_size\":64,\"intermediate_size\":100,\"moe_intermediate_size\":40,"
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":4,\"head_dim\":8,\"kv_lora_rank\":16,"
    "\"q_lora_rank\":null,\"qk_nope_head_dim\":12,\"qk_rope_head_dim\":8,\"v_head_dim\":10,\"n_routed_experts\":8,"
    "\"n_shared_experts\":2,\"num_experts_per_tok\":3,\"first_k_dense_replace\":1,\"rms_norm_eps\":1e-3,"
    "\"max_position_embeddings\":256,\"vocab_size\":100,\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
    "\"original_max_position_embeddings\":4096,\"mscale\":0.707,\"mscale_all_dim\":0.707}}";

static void latents_are_read(void **state)
{
    struct err err = {0};
    (void)state;
    assert_int_equal(read_config(V2, "{}", NULL, &err), 0);
    assert_int_equal(shape.attention.head_dim, 20);
    assert_int_equal(shape.attention.value_dim, 10);
    assert_int_equal(shape.attention.q_rank, 0);
    assert_int_equal(shape.attention.kv_rank, 16);
    assert_int_equal(shape.rope.rotary, 8);
    assert_int_equal(shape.router.groups, 0);
    assert_float_equal(shape.attention.latent_epsilon, 1e-6, 1e-12);
    assert_float_equal(shape.rope.amplitude, 1, 1e-12);
    assert_float_equal(shape.attention.scale, 1.5896262 / sqrt(20), 1e-6);
    assert_int_equal(read_config(V2, "{\"q_lora_rank\":24,\"topk_method\":\"group_limited_greedy\",\"n_group\":4,"
                                 "\"topk_group\":2,\"rope_scaling\":null,\"attention_bias\":true}", NULL, &err), 0);
    assert_int_equal(shape.attention.q_rank, 24);
    assert_int_equal(shape.router.groups, 4);
    assert_int_equal(shape.router.groups_kept, 2);
    assert_int_equal(shape.router.group_rank, 1);
    assert_float_equal(shape.attention.scale, 1 / sqrt(20), 1e-6);
    assert_true(shape.attention.qkv_bias && shape.attention.out_bias);
    static const struct { const char *keys, *says; } wrong[] = {
        {"{\"kv_lora_rank\":null}", "kv_lora_rank is null"},
        {"{\"kv_lora_rank\":0}", "kv_lora_rank is 0; it must be at least 1"},
        {"{\"qk_rope_head_dim\":7}", "qk_rope_head_dim is 7; it must be even"},
        {"{\"qk_nope_head_dim\":-1}", "qk_nope_head_dim is -1"}, {"{\"v_head_dim\":2000}", "width of a value is 2000"},
        {"{\"q_lora_rank\":-3}", "rank of queries is -3"}, {"{\"norm_topk_prob\":true}", "norm_topk_prob is true"},
        {"{\"topk_method\":\"noaux_tc\"}", "supported are greedy and group_limited_greedy"},
        {"{\"rope_interleave\":false}", "rope_interleave is false; only true"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct err){0};
        assert_int_equal(read_config(V2, wrong[i].keys, NULL, &err), -1);
        if (!strstr(err.text, wrong[i].says))
            fail_msg("%s: %s", wrong[i].keys, err.text);
    }
}

static void what_is_not_supported_is_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        struct err err = {0};
        assert_int_equal(read_config(REFUSED[i].base, REFUSED[i].keys, NULL, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, REFUSED[i].says) || !strstr(err.text, "config.json: "))
            fail_msg("%s: '%s' does not say '%s'", REFUSED[i].keys, err.text, REFUSED[i].says);
    }
}

static void check_windows(int a, int b, int c, int d)
{
    const int expected[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        assert_int_equal(shape.layer[i].window, expected[i]);
}

static void windows_slide_where_the_family_says(void **state)
{
    (void)state;
    struct err err = {0};
    const char *upper = "{\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":3}";
    assert_int_equal(read_config(QWEN3, upper, NULL, &err), 0);
    check_windows(0, 0, 0, 8);
    assert_int_equal(read_config(QWEN3, "{\"use_sliding_window\":false,\"sliding_window\":8,\"max_window_layers\":3}", NULL,
                                 &err), 0);
    check_windows(0, 0, 0, 0);
    assert_int_equal(read_config(QWEN3, "{\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":28,"
                                 "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","
                                 "\"full_attention\"]}", NULL, &err), 0);
    check_windows(8, 0, 8, 0);
    assert_int_equal(read_config(QWEN3, "{\"use_sliding_window\":false,\"sliding_window\":null,\"layer_types\":["
                          "\"full_attention\",\"full_attention\",\"full_attention\",\"full_attention\"]}", NULL, &err), 0);
    check_windows(0, 0, 0, 0);
    assert_int_equal(read_config(MIXTRAL, "{\"sliding_window\":16}", NULL, &err), 0);
    check_windows(16, 16, 16, 16);
    assert_int_equal(read_config(QWEN3_MOE, upper, NULL, &err), 0);
    check_windows(8, 8, 8, 8);
    assert_int_equal(read_config(QWEN3_MOE, "{\"use_sliding_window\":false,\"sliding_window\":8}", NULL, &err), 0);
    check_windows(0, 0, 0, 0);
    assert_int_equal(read_config(QWEN2_MOE, "{\"use_sliding_window\":true,\"sliding_window\":8,\"max_window_layers\":3}", NULL,
                                 &err), 0);
    check_windows(8, 0, 8, 0);
}

static void dense_layers_stand_among_experts(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(QWEN3_MOE, "{\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}", NULL, &err), 0);
    assert_int_equal(hparams_moe_layers(&shape), 1);
    assert_int_equal(shape.layer[1].ffn, FFN_EXPERTS);
    assert_int_equal(shape.dense_inner, 96);
    assert_int_equal(read_config(QWEN3_MOE, "{\"mlp_only_layers\":[0,1,2,3]}", NULL, &err), 0);
    assert_int_equal(shape.router.experts, 0);
    assert_int_equal(shape.expert_inner, 0);
}

static void shared_experts_stand_beside_routed_ones(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(QWEN2_MOE, "{}", NULL, &err), 0);
    assert_true(shape.attention.qkv_bias && !shape.attention.out_bias);
    assert_true(shape.shared_gate);
    assert_int_equal(shape.shared_inner, 40);
    assert_int_equal(read_config(QWEN2_MOE, "{\"qkv_bias\":false,\"mlp_only_layers\":[0,1,2,3]}", NULL, &err), 0);
    assert_true(!shape.attention.qkv_bias && !shape.shared_gate);
    assert_int_equal(shape.shared_inner, 0);
    assert_int_equal(read_config(DEEPSEEK, "{}", NULL, &err), 0);
    assert_int_equal(shape.shared_inner, 144);
    assert_false(shape.shared_gate);
    assert_int_equal(shape.layer[0].ffn, FFN_DENSE);
    assert_int_equal(hparams_moe_layers(&shape), 3);
    assert_int_equal(read_config(DEEPSEEK, "{\"moe_layer_freq\":2,\"n_shared_experts\":null}", NULL, &err), 0);
    assert_int_equal(shape.shared_inner, 0);
    assert_int_equal(hparams_moe_layers(&shape), 1);
    assert_int_equal(shape.layer[2].ffn, FFN_EXPERTS);
    assert_int_equal(read_config(DEEPSEEK, "{\"scoring_func\":\"sigmoid\"}", NULL, &err), -1);
    assert_non_null(strstr(err.text, "scoring_func is \"sigmoid\"; expected softmax"));
    assert_int_equal(read_config(DEEPSEEK, "{\"n_shared_experts\":-1}", NULL, &err), -1);
}

static void yarn_and_longrope_are_read(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                                        "\"original_max_position_embeddings\":64,\"mscale\":1,\"mscale_all_dim\":1}}", NULL,
                                 &err), 0);
    assert_int_equal(shape.rope.kind, ROPE_YARN);
    assert_true(shape.rope.amplitude == 1 && shape.rope.beta_fast == 32 && shape.rope.beta_slow == 1 && shape.rope.truncate);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":32,"
                                        "\"original_max_position_embeddings\":64,\"truncate\":false}}", NULL, &err), 0);
    assert_float_equal(shape.rope.amplitude, 1.3465736, 1e-7);
    assert_false(shape.rope.truncate);
    assert_int_equal(shape.max_positions, 32 * 64);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":4}}", NULL, &err), 0);
    assert_int_equal(shape.rope.original_positions, 128);
    assert_int_equal(shape.max_positions, 4 * 128);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"yarn\",\"factor\":2,"
                                        "\"original_max_position_embeddings\":32}}", NULL, &err), 0);
    assert_int_equal(shape.max_positions, 128);                 /* the published model has more */
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.5}}", NULL, &err), 0);
    assert_int_equal(shape.max_positions, 320);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"linear\",\"factor\":1e9}}", NULL, &err), -1);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2.5}}", NULL, &err), 0);
    assert_int_equal(shape.rope.kind, ROPE_DYNAMIC);
    assert_int_equal(shape.rope.original_positions, 128);
    assert_int_equal(shape.max_positions, 320);
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":0.5}}", NULL, &err), -1);
    assert_non_null(strstr(err.text, "it must be at least 1"));
    assert_int_equal(read_config(LLAMA, "{\"rope_scaling\":{\"type\":\"dynamic\"}}", NULL, &err), -1);
    assert_non_null(strstr(err.text, "factor is missing"));
    assert_int_equal(read_config(PHI, "{}", NULL, &err), 0);
    assert_int_equal(shape.rope.kind, ROPE_STRETCHED);
    assert_int_equal(shape.rope.original_positions, 64);        /* the key of the top level */
    assert_true(shape.rope.stretch[1] == 1.5 && shape.rope.amplitude == 1.25 && shape.rope.long_amplitude == 1.5);
    float turn[2][2][2];                                        /* the amplitude is that of the row's own context */
    rope_table(&shape.rope, 63, 65, &turn[0][0][0]);
    assert_float_equal(hypotf(turn[0][1][0], turn[0][1][1]), 1.25, 1e-6);
    assert_float_equal(hypotf(turn[1][1][0], turn[1][1][1]), 1.5, 1e-6);
    assert_true(shape.layer_norm && shape.head_bias && shape.attention.out_bias);
    assert_int_equal(shape.router.kind, ROUTER_SPARSEMIXER);
    assert_float_equal(shape.router.jitter, 0.01, 1e-9);
    assert_int_equal(read_config(PHI, "{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,1,1]}}", NULL, &err), -1);
    assert_non_null(strstr(err.text, "it must list 2 numbers"));
    assert_int_equal(read_config(PHI, "{\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1,\"x\"],\"short_mscale\":1,"
                                 "\"long_mscale\":1}}", NULL, &err), -1);
}

static void multipliers_and_sigmoid_routers_are_read(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(GRANITE, "{}", NULL, &err), 0);
    assert_true(shape.embed_scale == 12 && shape.residual_scale == 0.5f && shape.logit_divisor == 6);
    assert_true(shape.attention.scale == 0.125f && shape.router.renormalise);
    assert_int_equal(read_config(GLM, "{}", NULL, &err), 0);
    assert_int_equal(shape.rope.rotary, 16);
    assert_true(shape.attention.qkv_bias && !shape.attention.out_bias);
    assert_int_equal(shape.attention.qk_norm, QK_NORM_NONE);
    assert_int_equal(shape.router.kind, ROUTER_SIGMOID);
    assert_true(shape.router.correction && shape.router.renormalise && shape.router.scale == 1.5f);
    assert_int_equal(shape.router.groups, 4);
    assert_int_equal(shape.router.groups_kept, 2);
    assert_int_equal(shape.shared_inner, 48);
    assert_int_equal(read_config(GLM, "{\"use_qk_norm\":true,\"attention_bias\":null,\"n_group\":1,\"topk_group\":1,"
                                 "\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}}", NULL, &err),
                                     0);
    assert_int_equal(shape.rope.rotary, 8);
    assert_int_equal(shape.attention.qk_norm, QK_NORM_HEAD);
    assert_false(shape.attention.qkv_bias);
    assert_int_equal(read_config(GLM, "{\"n_group\":3}", NULL, &err), -1);
    assert_non_null(strstr(err.text, "8 experts cannot be divided into 3 groups"));
    assert_int_equal(read_config(GLM, "{\"topk_group\":1,\"num_experts_per_tok\":3}", NULL, &err), -1);
    assert_int_equal(read_config(GLM, "{\"partial_rotary_factor\":1.5}", NULL, &err), -1);
}

static void ends_come_from_the_generation_config(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_config(LLAMA, "{}", "{\"eos_token_id\":[7,8,7]}", &err), 0);
    assert_int_equal(shape.eos_count, 2);
    assert_int_equal(shape.eos[0], 7);
    assert_int_equal(shape.eos[1], 8);
    assert_int_equal(read_config(LLAMA, "{}", "{\"eos_token_id\":null}", &err), 0);
    assert_int_equal(shape.eos[0], 2);
    assert_int_equal(read_config(LLAMA, "{\"pad_token_id\":100,\"bos_token_id\":-1}", NULL, &err), 0);
    assert_int_equal(shape.pad, -1);
    assert_int_equal(shape.bos, -1);
    assert_int_equal(read_config(LLAMA, "{}", "{\"eos_token_id\":100}", &err), -1);
    assert_non_null(strstr(err.text, "generation_config.json: eos_token_id is 100"));
}

/* Parameter counts of the published models, from the canonical tensors. */
static double parameters(const char *name)
{
    struct err err = {0};
    struct layout layout = {0};
    double sum = 0;
    const char *config = known_shape(name);
    assert_non_null(config);
    assert_int_equal(arch_read_text(config, strlen(config), 0, &shape, &err), 0);
    assert_int_equal(layout_make(&layout, &shape, &err), 0);
    for (int i = 0; i < layout.count; i++) {
        const struct tensor *t = &layout.tensors[i];
        sum += (t->kind == TENSOR_EXPERTS ? hparams_gated(&shape) ? 3.0 : 2.0 : 1.0) * t->count * t->outputs * t->inputs;
    }
    layout_free(&layout);
    return sum / 1e9;
}

static void known_shapes_have_the_published_sizes(void **state)
{
    (void)state;
    const char *summary;
    assert_float_equal(parameters("mixtral-8x7b"), 46.703, 0.001);
    assert_float_equal(parameters("olmoe-1b-7b"), 6.919, 0.001);
    assert_float_equal(parameters("qwen3-30b-a3b"), 30.532, 0.001);
    assert_float_equal(parameters("qwen3-0.6b"), 0.596, 0.001);
    assert_float_equal(parameters("deepseek-moe-16b"), 16.376, 0.001);
    assert_float_equal(parameters("mistral-7b"), 7.242, 0.001);
    assert_float_equal(parameters("qwen1.5-moe-a2.7b"), 14.316, 0.001);
    assert_float_equal(parameters("glm-4.5-air"), 106.85, 0.01);
    assert_float_equal(parameters("granite-3.0-1b-a400m"), 1.334, 0.001);
    assert_float_equal(parameters("phi-3.5-moe"), 41.873, 0.001);
    assert_float_equal(parameters("gemma-4-26b-a4b"), 25.23, 0.03);
    assert_float_equal(parameters("nemotron-3-nano-30b-a3b"), 31.58, 0.01);
    assert_float_equal(parameters("qwen3.6-35b-a3b"), 34.66, 0.01);
    assert_null(known_shape("gpt-5"));
    for (int i = 0; known_shape_at(i, &summary); i++)
        assert_true(parameters(known_shape_at(i, &summary)) > 0);
}

static void shapes_take_another_number_of_layers(void **state)
{
    (void)state;
    struct err err = {0};
    const char *config = known_shape("olmoe-1b-7b");
    assert_int_equal(arch_read_text(config, strlen(config), 3, &shape, &err), 0);
    assert_int_equal(shape.layers, 3);
    assert_int_equal(hparams_moe_layers(&shape), 3);
    assert_int_equal(arch_read_text(config, strlen(config), 513, &shape, &err), -1);
}

static bool has_name(const void *context, const char *name) { return strcmp(context, name) == 0; }

static const struct tensor *find(const struct layout *layout, const char *name)
{
    for (int i = 0; i < layout->count; i++)
        if (strcmp(layout->tensors[i].name, name) == 0)
            return &layout->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static void parts_are_the_right_slices(void **state)
{
    (void)state;
    struct err err = {0};
    struct layout layout = {0};
    struct part parts[PARTS_MAX];
    assert_int_equal(read_config(MIXTRAL, "{\"num_key_value_heads\":2}", NULL, &err), 0);
    assert_int_equal(layout_make(&layout, &shape, &err), 0);
    const struct naming *published = arch_naming(family, &shape, has_name,
                                                 "model.layers.0.block_sparse_moe.experts.0.w1.weight");
    const struct naming *fused = arch_naming(family, &shape, has_name, "model.layers.0.mlp.experts.gate_up_proj");
    assert_ptr_not_equal(published, fused);
    assert_int_equal(arch_parts(published, &shape, find(&layout, "layers.3.attention.qkv"), 0, parts), 3);
    assert_string_equal(parts[1].name, "model.layers.3.self_attn.k_proj.weight");
    assert_int_equal(parts[1].first, 64);
    assert_int_equal(parts[1].rows, 32);
    assert_int_equal(parts[2].first, 96);
    assert_int_equal(arch_parts(published, &shape, find(&layout, "layers.2.experts"), 7, parts), 3);
    assert_string_equal(parts[0].name, "model.layers.2.block_sparse_moe.experts.7.w1.weight");
    assert_string_equal(parts[1].name, "model.layers.2.block_sparse_moe.experts.7.w3.weight");
    assert_string_equal(parts[2].name, "model.layers.2.block_sparse_moe.experts.7.w2.weight");
    assert_int_equal(parts[0].role, PART_GATE);
    assert_int_equal(parts[1].role, PART_UP);
    assert_int_equal(parts[2].role, PART_DOWN);
    assert_int_equal(arch_parts(fused, &shape, find(&layout, "layers.2.experts"), 7, parts), 3);
    assert_string_equal(parts[1].name, "model.layers.2.mlp.experts.gate_up_proj");
    assert_int_equal(parts[1].dims[1], 192);
    assert_int_equal(parts[1].skip, 7 * 192 * 64 + 96 * 64);
    assert_string_equal(parts[2].name, "model.layers.2.mlp.experts.down_proj");
    assert_int_equal(parts[2].skip, 7 * 64 * 96);
    assert_int_equal(parts[2].columns, 96);
    layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_say_what_they_are),
        cmocka_unit_test(families_have_other_names),
        cmocka_unit_test(both_forms_of_rope_mean_the_same),
        cmocka_unit_test(latents_are_read),
        cmocka_unit_test(what_is_not_supported_is_named),
        cmocka_unit_test(windows_slide_where_the_family_says),
        cmocka_unit_test(dense_layers_stand_among_experts),
        cmocka_unit_test(shared_experts_stand_beside_routed_ones),
        cmocka_unit_test(multipliers_and_sigmoid_routers_are_read),
        cmocka_unit_test(yarn_and_longrope_are_read),
        cmocka_unit_test(ends_come_from_the_generation_config),
        cmocka_unit_test(known_shapes_have_the_published_sizes),
        cmocka_unit_test(shapes_take_another_number_of_layers),
        cmocka_unit_test(parts_are_the_right_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

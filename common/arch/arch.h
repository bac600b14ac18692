/* Model families: the meaning of a config.json, and the names of the tensors of a checkpoint.
 *
 * A family is one file with one table (struct arch) and one line in arch.c. The table contains only what is special: the keys
 * that fill hparams, which values are fixed, and the names of tensors. A source tensor plays a SLOT; a canonical tensor is made
 * from one to three slots (q, k and v become qkv; gate, up and down become an expert). A family may have several NAMINGS: the
 * published one, and the one with all experts in one tensor, as transformers 5 keeps them in memory. GGUF files use their own
 * names, the same for all families (gguf.c).
 *
 * In:     config.json, generation_config.json as JSON objects
 * Out:    hparams that passed hparams_check
 * Errors: an unsupported value; the message names key and value */
#ifndef MOE_ARCH_ARCH_H
#define MOE_ARCH_ARCH_H

#include <stddef.h>

#include "common/arch/config.h"
#include "common/model/model.h"

/* Shapes are [outputs][inputs]. In a name {n} is the layer n, {e} the expert, {h} is n / 2, {o} is n % 2. */
enum source_slot {
    SLOT_EMBED, SLOT_HEAD, SLOT_FINAL_NORM, SLOT_ATTENTION_NORM, SLOT_Q, SLOT_K, SLOT_V, SLOT_Q_BIAS, SLOT_K_BIAS, SLOT_V_BIAS,
    SLOT_Q_NORM, SLOT_K_NORM, SLOT_OUT, SLOT_OUT_BIAS, SLOT_FFN_NORM, SLOT_ROUTER,
    SLOT_ROUTER_CORRECTION, SLOT_EXPERT_GATE, SLOT_EXPERT_UP, SLOT_EXPERT_DOWN,
    SLOT_EXPERTS_GATE_UP,           /* [experts][2 inner][hidden], gate first; in place of the three above */
    SLOT_EXPERTS_DOWN,              /* [experts][hidden][inner] */
    SLOT_EXPERTS_GATE, SLOT_EXPERTS_UP,     /* [experts][inner][hidden]; in place of SLOT_EXPERTS_GATE_UP. Networks without
                                             * gates leave SLOT_*_GATE empty */
    SLOT_SHARED_GATE, SLOT_SHARED_UP, SLOT_SHARED_DOWN, SLOT_SHARED_WEIGHT,     /* SLOT_SHARED_WEIGHT: [1][hidden] */
    SLOT_HEAD_BIAS, SLOT_FINAL_NORM_BIAS, SLOT_ATTENTION_NORM_BIAS, SLOT_FFN_NORM_BIAS,
    SLOT_DENSE_GATE, SLOT_DENSE_UP, SLOT_DENSE_DOWN,
    SLOT_INDEX_Q, SLOT_INDEX_K, SLOT_INDEX_K_NORM, SLOT_INDEX_K_NORM_BIAS, SLOT_INDEX_WEIGHT,
    SLOT_Q_A, SLOT_Q_A_BIAS, SLOT_Q_A_NORM, SLOT_Q_B, SLOT_KV_A, SLOT_KV_A_BIAS, SLOT_KV_A_NORM, SLOT_KV_B,     /* latents */
    SLOT_ATTENTION_GATE, SLOT_ATTENTION_OUT_NORM, SLOT_FFN_OUT_NORM, SLOT_EXPERTS_NORM, SLOT_EXPERTS_OUT_NORM,
    SLOT_SHARED_OUT_NORM, SLOT_LAYER_SCALE, SLOT_ROUTER_NORM, SLOT_EXPERT_SCALE, SLOT_SINKS, SLOT_ROUTER_BIAS,
    SLOT_EXPERTS_GATE_UP_BIAS,      /* [experts][2 inner] */
    SLOT_EXPERTS_DOWN_BIAS,         /* [experts][hidden] */
    SLOT_EXPERTS_GATE_BIAS, SLOT_EXPERTS_UP_BIAS,   /* [experts][inner]; in place of SLOT_EXPERTS_GATE_UP_BIAS */
    SLOT_K_B, SLOT_V_B,             /* [heads][rank][width of the unrotated part of a key] and [heads][width][rank]; in place
                                     * of SLOT_KV_B */
    SLOT_PREDICT_EMBED, SLOT_PREDICT_HEAD, SLOT_PREDICT_NORM, SLOT_PREDICT_EMBED_NORM, SLOT_PREDICT_HIDDEN_NORM,
    SLOT_PREDICT_FFN_NORM,          /* in place of SLOT_FFN_NORM in layers of predictors, if the name differs there */
    SLOT_PREDICT_JOINT,             /* [hidden][2 hidden], embedding first; {n} continues after the last layer */
    /* slots of draft heads (head.h): {n} is the index of the head, {e} that of the block, branch or state */
    SLOT_JOINT, SLOT_JOINT_BIAS, SLOT_STATES_NORM, SLOT_STATE_NORM, SLOT_EMBED_NORM, SLOT_HIDDEN_NORM, SLOT_BRANCH_UP,
    SLOT_BRANCH_DOWN, SLOT_BLOCK, SLOT_BLOCK_BIAS, SLOT_RESIDUAL, SLOT_RESIDUAL_BIAS, SLOT_OUTPUT, SLOT_OUTPUT_BIAS,
    /* slots of layers with a state: one matrix of q, k, v and z and one of b and a, both grouped by key head; or separate
     * matrices in place of these two */
    SLOT_DELTA_QKVZ, SLOT_DELTA_BA, SLOT_DELTA_QKV, SLOT_DELTA_Z, SLOT_DELTA_B, SLOT_DELTA_A,
    SLOT_DELTA_CONV,                /* [width][1][taps] */
    SLOT_DELTA_A_LOG, SLOT_DELTA_STEP_BIAS, SLOT_DELTA_NORM, SLOT_DELTA_OUT,
    SLOT_DELTA_ALL,                 /* in place of the six matrices above. Rows with Mamba-2: z, v, k, q, steps. Rows with
                                     * only a convolution: gate of v, z, v */
    SLOT_DELTA_CONV_BIAS, SLOT_DELTA_SKIP,
    /* Kimi Delta Attention: in place of SLOT_DELTA_QKV and SLOT_DELTA_CONV. The products with SLOT_DELTA_Z and SLOT_DELTA_A
     * pass through latents: SLOT_DELTA_*_A project to the latents of gate and steps, SLOT_DELTA_*_B from these latents */
    SLOT_DELTA_Q, SLOT_DELTA_K, SLOT_DELTA_V, SLOT_DELTA_GATE_A, SLOT_DELTA_STEP_A, SLOT_DELTA_GATE_B, SLOT_DELTA_STEP_B,
    SLOT_DELTA_CONV_Q, SLOT_DELTA_CONV_K, SLOT_DELTA_CONV_V,
    /* Mamba-1: the rows of SLOT_DELTA_ALL are v and z. SLOT_DELTA_STEP_A reads the output of the convolution; its rows are
     * the latent of the steps, k and q. This latent, k and q have norms */
    SLOT_DELTA_Q_NORM, SLOT_DELTA_K_NORM, SLOT_DELTA_STEP_NORM,
    SLOT_SHARED_GATE_UP,            /* [2 inner][hidden], gate first; in place of SLOT_SHARED_GATE and SLOT_SHARED_UP */
    SLOT_DENSE_GATE_UP,             /* the same for a dense layer */
    SLOT_COUNT
};

struct naming {
    const char *slot[SLOT_COUNT];
    const char *ignored[5];         /* unused tensors of old checkpoints; NAME*: tensors that are left out with a note */
    bool centred;                   /* norms, except SLOT_DELTA_NORM, are stored as weight - 1 */
    bool gated_q;                   /* SLOT_Q interleaves by head: query, then attention gate */
    bool transposed;                /* SLOT_EXPERTS_GATE_UP is [experts][hidden][2 inner], SLOT_EXPERTS_DOWN is
                                     * [experts][inner][hidden] */
    bool alternating;               /* in a tensor of gate and up, row 2 i is row i of gate and row 2 i + 1 is row i of up */
    const char *left_out;           /* why tensors are left out; NULL: they do not belong to the text model */
    bool spaced;                    /* the blocks of a draft head are numbered 1, 3, ...: a Dropout precedes each block */
    bool paired;                    /* in each head of q and k, row 2 i is row i and row 2 i + 1 is row width / 2 + i */
    bool index_paired;              /* RoPE rotates the first floats of an indexer's heads in neighbouring pairs */
    bool correction_row;            /* SLOT_ROUTER_CORRECTION is [1][experts] */
    bool prepared_states;           /* SLOT_DELTA_A_LOG contains -exp(A_log), SLOT_DELTA_CONV is [width][taps] */
    const char *ahead;              /* names of the predictors' layers begin with `ahead`layers.{n}, {n} counting from 0, in
                                     * place of the model's prefix; NULL: predictors follow the last layer, with names of
                                     * layers */
};

enum key_type { KEY_INT, KEY_BOOL, KEY_F32 };

struct config_key {
    const char *key;
    enum key_type type;
    size_t offset;                  /* offset of the member in struct hparams */
    bool required;
    double absent;                  /* value if the key is neither required nor present */
    const char *other;              /* another name of the key, read if `key` is absent; NULL: none */
};
#define INT(key, member)              {key, KEY_INT, offsetof(struct hparams, member), true, 0, NULL}
#define INT_ALSO(key, other, member)  {key, KEY_INT, offsetof(struct hparams, member), true, 0, other}
#define INT_OR(key, member, otherwise) {key, KEY_INT, offsetof(struct hparams, member), false, otherwise, NULL}
#define BOOL_OR(key, member, otherwise) {key, KEY_BOOL, offsetof(struct hparams, member), false, otherwise, NULL}
#define F32(key, member)              {key, KEY_F32, offsetof(struct hparams, member), true, 0, NULL}
#define F32_OR(key, member, otherwise) {key, KEY_F32, offsetof(struct hparams, member), false, otherwise, NULL}

enum expert_layers {
    EXPERTS_NOWHERE,
    EXPERTS_EVERYWHERE,
    EXPERTS_AFTER_DENSE,            /* in the layers that mlp_layer_types calls sparse; without it N >= first_k_dense_replace,
                                     * and N a multiple of moe_layer_freq */
    EXPERTS_IN_RANGE,               /* moe_layer_start_index <= N <= moe_layer_end_index (-1: the last layer), and (N + 1) a
                                     * multiple of moe_layer_interval */
    EXPERTS_BY_STEP                 /* not in mlp_only_layers, and (N + 1) a multiple of decoder_sparse_step */
};

enum window_rule {
    WINDOW_NEVER,
    WINDOW_ALL_LAYERS,              /* sliding_window in all layers */
    WINDOW_ALL_IF_USED,             /* sliding_window in all layers, if use_sliding_window */
    WINDOW_UPPER_IF_USED,           /* if use_sliding_window: sliding_window in layers >= max_window_layers, or by
                                     * layer_types */
    WINDOW_UPPER,                   /* sliding_window in layers >= max_window_layers, or by layer_types */
    WINDOW_EVEN_IF_USED,            /* if use_sliding_window: in even layers below max_window_layers, or by layer_types */
    WINDOW_ALTERNATING,             /* sliding_window in even layers, or by layer_types */
    WINDOW_CHUNKED,                 /* `finish` reads chunks in place of windows */
    WINDOW_PATTERN                  /* sliding_window in all but every pattern_key-th (4) layer, or by layer_types */
};

enum other_layers { OTHER_NONE, OTHER_SLIDING, OTHER_FULL };

enum bias_rule {
    BIAS_NEVER,
    BIAS_ALL,                       /* q, k, v and out, if attention_bias is true */
    BIAS_ALL_UNLESS,                /* q, k, v and out, unless attention_bias is false */
    BIAS_QKV,                       /* q, k and v, unless qkv_bias is false */
    BIAS_QKV_ASKED                  /* q, k and v, if attention_bias is true */
};

enum group_rule {
    GROUPS_AS_READ,                 /* router.groups and router.groups_kept as the family's keys set them */
    GROUPS_IF_LIMITED               /* n_group and topk_group if topk_method is group_limited_greedy; no groups if greedy */
};

enum { ARCH_KEYS = 16 };

struct arch {
    const char *model_type;
    const char *also;               /* another model_type for the same computation with other numbers; NULL: none */
    const char *summary;            /* text for `moe-convert list` */
    struct config_key keys[ARCH_KEYS];  /* the family's own keys; arch.c lists the keys that all families share */
    const char *refused[4];         /* keys that must be absent, null, false or 0 */
    enum bias_rule bias;
    const char *qk_norm_key;        /* fixed.attention.qk_norm applies only if this key is true; NULL: always */
    bool longrope;                  /* rope may be longrope in the form of Phi-3.5-MoE */
    bool rope_required;             /* rope keys must be present, because their absence does not mean the default rope */
    bool latent;                    /* keys and values come from latents; RoPE rotates each head's last qk_rope_head_dim
                                     * floats */
    enum group_rule groups;
    double partial_rotary;          /* rotated share of a head if the key is absent; 0: always the whole head */
    bool rotary_counted;            /* rotary_dim is the number of rotated floats of a head */
    enum expert_layers expert_layers;
    const char *dense_key;          /* key of EXPERTS_AFTER_DENSE; NULL: first_k_dense_replace */
    enum window_rule window;
    const char *pattern_key;
    enum other_layers other;        /* layers with the other kind of attention, for which `finish` fills hparams.other */
    bool states;                    /* some layers have a state: those that layer_types calls linear_attention, or all but
                                     * every full_attention_interval-th (4). `finish` fills hparams.delta, unless
                                     * RECURRENCE_DELTA */
    bool halves;                    /* a layer is attention, a state or a feed-forward network alone; `finish` reads which
                                     * one */
    const char *layer_types[2];     /* the family's words for full_attention and linear_attention; NULL: these two words */
    bool indexed;                   /* an indexer chooses index_topk positions. index_n_heads 0 (in GGUF files): no indexer, and
                                     * the context is limited to index_topk positions. An indexer would choose all of them */
    bool full_no_rope;              /* if some layers have a window, layers without one apply no RoPE */
    bool shared_counted;            /* the key of shared_inner is a number of experts, each as wide as a routed one */
    struct hparams fixed;           /* values that no key sets; rope.theta is the family's default */
    /* Reads keys that need code, after all other keys; NULL: no such keys. It may set the attention of predictors, whose
     * layers follow the last one in layer[]; arch_predictors clears the layers of absent predictors. */
    int (*finish)(const json_t *config, struct hparams *shape, struct err *err);
    const struct naming *naming[3];
    bool gguf_paired;               /* rows of q and k in GGUF files are paired (naming.paired) */
    bool gguf_renormalise;          /* expert weights are renormalised, although GGUF files do not say so */
    bool gguf_unrounded;            /* the ends of YaRN's ramp are not rounded, although GGUF files do not say so */
};

/* Finds and reads the rope of a config.json: rope_theta beside rope_scaling (or null) in transformers 4, both in
 * rope_parameters in transformers 5. Sets shape->rope, and raises shape->max_positions if the rope stretches positions. */
int arch_read_config_rope(const json_t *config, const struct arch *arch, struct hparams *shape, struct err *err);

/* Reads a rope object of config.json into shape->rope, for the shape's heads. */
int arch_read_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *shape, struct err *err);

/* Reads a rope object into shape->other.rope, for heads of the other kind. */
int arch_read_other_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *shape,
                         struct err *err);

extern const struct arch arch_afmoe, arch_bailing_hybrid, arch_cohere2_moe, arch_deepseek, arch_deepseek_v2,
    arch_deepseek_v3, arch_deepseek_v32, arch_dots1, arch_ernie4_5_moe, arch_exaone_moe, arch_flex_olmo, arch_gemma4,
    arch_glm4_moe, arch_glm4_moe_lite, arch_glm_moe_dsa, arch_gpt_oss, arch_granitemoe, arch_granitemoehybrid,
    arch_hunyuan_v1_moe, arch_jamba, arch_kimi_linear, arch_lfm2_moe, arch_llama, arch_llama4, arch_longcat_flash,
    arch_mimo_v2_flash, arch_minimax_m2, arch_mistral, arch_mixtral, arch_nemotron_h, arch_olmoe, arch_phimoe, arch_qwen2,
    arch_qwen2_moe, arch_qwen3, arch_qwen3_5_moe, arch_qwen3_moe, arch_qwen3_next, arch_solar_open;

/* Returns the family with this index; NULL after the last one. */
const struct arch *arch_at(int index);

const struct arch *arch_find(const char *model_type);       /* NULL: unknown family */

/* Returns the key of config.json that fills a member of struct hparams, given by the member's offset; NULL: the family reads
 * none. */
const char *arch_key(const struct arch *arch, size_t member);

/* Returns the text model's part of a config.json: text_config if it is there, as in models of texts and images. */
const json_t *arch_text_config(const json_t *config);

/* Clears the members for kinds of feed-forward networks that no layer has. layer[].ffn must be set. */
void arch_unused_ffn(struct hparams *shape);

/* Reads shape and family. generation: generation_config.json, or NULL. */
int arch_read(const json_t *config, const json_t *generation, struct hparams *shape, const struct arch **arch, struct err *err);

/* Reads the shape from the text of a config.json. `layers` other than 0 replaces the number of layers. */
int arch_read_text(const char *config, size_t bytes, int layers, struct hparams *shape, struct err *err);

/* Names of a Mamba-2 mixer; MIXER ends with a dot. */
#define MAMBA_NAMES(MIXER) \
    [SLOT_DELTA_ALL] = MIXER "in_proj.weight", \
    [SLOT_DELTA_CONV] = MIXER "conv1d.weight", \
    [SLOT_DELTA_CONV_BIAS] = MIXER "conv1d.bias", \
    [SLOT_DELTA_A_LOG] = MIXER "A_log", \
    [SLOT_DELTA_STEP_BIAS] = MIXER "dt_bias", \
    [SLOT_DELTA_SKIP] = MIXER "D", \
    [SLOT_DELTA_NORM] = MIXER "norm.weight", \
    [SLOT_DELTA_OUT] = MIXER "out_proj.weight"

/* Tensor names that all llama-like families share, outside the feed-forward network. */
#define LLAMA_NAMES LLAMA_PROJECTIONS, NEXTN_NAMES, QK_NORM_NAMES, FFN_NORM_NAME
#define FFN_NORM_NAME [SLOT_FFN_NORM] = "model.layers.{n}.post_attention_layernorm.weight"
#define QK_NORM_NAMES \
    [SLOT_Q_NORM] = "model.layers.{n}.self_attn.q_norm.weight", \
    [SLOT_K_NORM] = "model.layers.{n}.self_attn.k_norm.weight"
#define LLAMA_PROJECTIONS \
    [SLOT_EMBED] = "model.embed_tokens.weight", \
    [SLOT_HEAD] = "lm_head.weight", \
    [SLOT_FINAL_NORM] = "model.norm.weight", \
    [SLOT_ATTENTION_NORM] = "model.layers.{n}.input_layernorm.weight", \
    [SLOT_Q] = "model.layers.{n}.self_attn.q_proj.weight", \
    [SLOT_K] = "model.layers.{n}.self_attn.k_proj.weight", \
    [SLOT_V] = "model.layers.{n}.self_attn.v_proj.weight", \
    [SLOT_Q_BIAS] = "model.layers.{n}.self_attn.q_proj.bias", \
    [SLOT_K_BIAS] = "model.layers.{n}.self_attn.k_proj.bias", \
    [SLOT_V_BIAS] = "model.layers.{n}.self_attn.v_proj.bias", \
    [SLOT_OUT] = "model.layers.{n}.self_attn.o_proj.weight", \
    [SLOT_OUT_BIAS] = "model.layers.{n}.self_attn.o_proj.bias"
#define NEXTN_NAMES \
    [SLOT_PREDICT_EMBED] = "model.layers.{n}.embed_tokens.weight", \
    [SLOT_PREDICT_HEAD] = "model.layers.{n}.shared_head.head.weight", \
    [SLOT_PREDICT_NORM] = "model.layers.{n}.shared_head.norm.weight", \
    [SLOT_PREDICT_EMBED_NORM] = "model.layers.{n}.enorm.weight", \
    [SLOT_PREDICT_HIDDEN_NORM] = "model.layers.{n}.hnorm.weight", \
    [SLOT_PREDICT_JOINT] = "model.layers.{n}.eh_proj.weight"
/* Predictors of Qwen and K-EXAONE: their layers are mtp.layers.N; fc and the other norms are shared by all of them. */
#define MTP_NAMES \
    [SLOT_PREDICT_EMBED] = "mtp.embed_tokens.weight", \
    [SLOT_PREDICT_NORM] = "mtp.norm.weight", \
    [SLOT_PREDICT_EMBED_NORM] = "mtp.pre_fc_norm_embedding.weight", \
    [SLOT_PREDICT_HIDDEN_NORM] = "mtp.pre_fc_norm_hidden.weight", \
    [SLOT_PREDICT_JOINT] = "mtp.fc.weight"
#define LATENT_NAMES \
    [SLOT_Q_A] = "model.layers.{n}.self_attn.q_a_proj.weight", \
    [SLOT_Q_A_BIAS] = "model.layers.{n}.self_attn.q_a_proj.bias", \
    [SLOT_Q_A_NORM] = "model.layers.{n}.self_attn.q_a_layernorm.weight", \
    [SLOT_Q_B] = "model.layers.{n}.self_attn.q_b_proj.weight", \
    [SLOT_KV_A] = "model.layers.{n}.self_attn.kv_a_proj_with_mqa.weight", \
    [SLOT_KV_A_BIAS] = "model.layers.{n}.self_attn.kv_a_proj_with_mqa.bias", \
    [SLOT_KV_A_NORM] = "model.layers.{n}.self_attn.kv_a_layernorm.weight", \
    [SLOT_KV_B] = "model.layers.{n}.self_attn.kv_b_proj.weight"
#define INDEX_NAMES \
    [SLOT_INDEX_Q] = "model.layers.{n}.self_attn.indexer.wq_b.weight", \
    [SLOT_INDEX_K] = "model.layers.{n}.self_attn.indexer.wk.weight", \
    [SLOT_INDEX_K_NORM] = "model.layers.{n}.self_attn.indexer.k_norm.weight", \
    [SLOT_INDEX_K_NORM_BIAS] = "model.layers.{n}.self_attn.indexer.k_norm.bias", \
    [SLOT_INDEX_WEIGHT] = "model.layers.{n}.self_attn.indexer.weights_proj.weight"
#define DENSE_NAMES \
    [SLOT_DENSE_GATE] = "model.layers.{n}.mlp.gate_proj.weight", \
    [SLOT_DENSE_UP] = "model.layers.{n}.mlp.up_proj.weight", \
    [SLOT_DENSE_DOWN] = "model.layers.{n}.mlp.down_proj.weight"
#define EXPERT_NAMES [SLOT_ROUTER] = "model.layers.{n}.mlp.gate.weight", APART_NAMES
#define APART_NAMES \
    [SLOT_EXPERT_GATE] = "model.layers.{n}.mlp.experts.{e}.gate_proj.weight", \
    [SLOT_EXPERT_UP] = "model.layers.{n}.mlp.experts.{e}.up_proj.weight", \
    [SLOT_EXPERT_DOWN] = "model.layers.{n}.mlp.experts.{e}.down_proj.weight"
#define FUSED_NAMES [SLOT_ROUTER] = "model.layers.{n}.mlp.gate.weight", TOGETHER_NAMES
#define TOGETHER_NAMES \
    [SLOT_EXPERTS_GATE_UP] = "model.layers.{n}.mlp.experts.gate_up_proj", \
    [SLOT_EXPERTS_DOWN] = "model.layers.{n}.mlp.experts.down_proj"

#define SHARED_NAMES(block) \
    [SLOT_SHARED_GATE] = "model.layers.{n}.mlp." block ".gate_proj.weight", \
    [SLOT_SHARED_UP] = "model.layers.{n}.mlp." block ".up_proj.weight", \
    [SLOT_SHARED_DOWN] = "model.layers.{n}.mlp." block ".down_proj.weight"

/* Tensors of DeepSeek-V3 and of families with its router: sigmoid scores with a correction, groups, shared experts, dense
 * layers first. The arguments of the CORRECTED_KEYS macro are the values of absent keys. */
#define CORRECTED_NAMES SHARED_NAMES("shared_experts"), DENSE_NAMES, \
    [SLOT_ROUTER_CORRECTION] = "model.layers.{n}.mlp.gate.e_score_correction_bias"

#define INDEXER_LEFT_OUT "indexers of GGUF files are not supported, so the context is at most top_k tokens"

#define CORRECTED_KEYS(shared, normalised, factor, group_count, group_limit) \
    INT_ALSO("n_routed_experts", "num_local_experts", router.experts), \
    INT("num_experts_per_tok", router.top_k), \
    INT("moe_intermediate_size", expert_inner), \
    INT_OR("n_shared_experts", shared_inner, shared), \
    INT_OR("intermediate_size", dense_inner, 0), \
    BOOL_OR("norm_topk_prob", router.renormalise, normalised), \
    F32_OR("routed_scaling_factor", router.scale, factor), \
    INT_OR("n_group", router.groups, group_count), \
    INT_OR("topk_group", router.groups_kept, group_limit)

/* Members of a struct arch: attention, router and experts of DeepSeek-V3, which later families share with other defaults. */
#define DEEPSEEK_V3(factor, group_count, group_limit) \
    .keys = {CORRECTED_KEYS(1, true, factor, group_count, group_limit)}, .bias = BIAS_ALL, .latent = true, \
    .expert_layers = EXPERTS_AFTER_DENSE, .shared_counted = true, \
    .fixed = {.attention.latent_epsilon = 1e-6f, .router.kind = ROUTER_SIGMOID, .router.correction = true, \
              .router.group_rank = 2, .rope.theta = 10000}

/* The source of one block of a canonical tensor; part_value is the conversion of each element of a vector. */
enum part_role { PART_ROWS, PART_GATE, PART_UP, PART_DOWN };
enum part_value { VALUE_SAME, VALUE_PLUS_ONE, VALUE_NEG_EXP };

struct part {
    char name[128];                 /* name of the source tensor */
    int64_t dims[3];                /* required shape of the source tensor */
    int dim_count;
    int64_t skip;                   /* number of source elements before this part */
    enum part_role role;
    enum part_value value;
    int first, rows, columns;       /* destination: `rows` rows from `first` on; a vector has rows of one column */
    /* run not 0: rows are copied in runs of `run` rows. Row i is row (i / run) * from_group + (i % run) * from_step of the
     * source after `skip`, and becomes row first + (i / run) * to_group + i % run. */
    int run, from_group, from_step, to_group;
    /* not 0: the source stores these rows as columns of a matrix [columns][across] at `skip`, or of one such matrix per run,
     * from_group elements apart */
    int across;
};
enum { PARTS_MAX = 5 };

/* Fills parts[] with the sources of one block of a tensor; returns their number. */
int arch_parts(const struct naming *naming, const struct hparams *shape, const struct tensor *tensor, int block,
               struct part parts[PARTS_MAX]);

/* Returns the naming whose experts `has` finds; the first naming if the model has no experts. The naming of GGUF files is
 * recognised by other tensors. */
const struct naming *arch_naming(const struct arch *arch, const struct hparams *shape,
                                 bool (*has)(const void *context, const char *name), const void *context);

/* Returns the naming of GGUF files; NULL if `has` finds no tensor named so. */
const struct naming *arch_naming_gguf(const struct arch *arch, bool (*has)(const void *context, const char *name),
                                      const void *context);

/* Compares which layers have a state with the tensors that `has` finds. If config.json contains neither layer_types nor
 * full_attention_interval, the shape's layers become those of the tensors; otherwise a difference is an error. */
int arch_state_layers(const json_t *config, const struct arch *arch, const struct naming *naming, struct hparams *shape,
                      bool (*has)(const void *context, const char *name), const void *context, struct err *err);

/* Fills the shape's predictors. A predictor exists if `has` finds the tensor that joins embedding and hidden state and, with
 * naming->ahead, also the predictor's layer; config.json does not prove that its tensors exist. */
int arch_predictors(const struct naming *naming, struct hparams *shape, bool (*has)(const void *context, const char *name),
                    const void *context, struct err *err);

/* Returns the naming of the predictors' tensors: `naming`, or another one of the family whose experts `has` finds, because a
 * quantised model may store its own experts separately and the predictors' experts in one tensor. */
const struct naming *arch_naming_ahead(const struct arch *arch, const struct naming *naming, const struct hparams *shape,
                                       bool (*has)(const void *context, const char *name), const void *context);

/* Returns the config.json of a known model by its name; NULL: unknown. known_shape_at returns the name with this index, from
 * 0, for a list; NULL after the last one. */
const char *known_shape(const char *name);
const char *known_shape_at(int index, const char **summary);

/* Reads the shape of a known model by its name, or of a config.json by its path. `layers` other than 0 replaces the number
 * of layers. option: name of the option that `name` is the value of, for errors. *text receives the config.json. */
int known_shape_read(const char *name, const char *option, int layers, struct text *text, struct hparams *shape,
                     struct err *err);

#endif

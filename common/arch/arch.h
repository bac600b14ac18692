/* Model families: what a config.json means, and what the tensors of a checkpoint are called.
 *
 * A family is one file with one table (struct arch) and one line in arch.c. It says nothing but what is special: which keys
 * fill which hparams, what is fixed, and the names of tensors. A source tensor plays a SLOT; a canonical tensor is made from
 * one to three slots (q, k and v become qkv; gate, up and down become an expert). A family may have several NAMINGS: the
 * published one, and the one with all experts in one tensor, as transformers 5 holds them in memory; GGUF has names of its
 * own, the same for all families (gguf.c).
 *
 * In:     config.json, generation_config.json as JSON objects
 * Out:    hparams that passed hparams_check
 * Errors: a value that is not supported, naming key and value */
#ifndef MOE_ARCH_ARCH_H
#define MOE_ARCH_ARCH_H

#include <stddef.h>

#include "common/arch/config.h"
#include "common/model/model.h"

/* Shapes as [outputs][inputs]. In a name {n} is the layer n, {e} the expert, {h} n / 2, {o} n % 2. */
enum source_slot {
    SLOT_EMBED, SLOT_HEAD, SLOT_FINAL_NORM, SLOT_ATTENTION_NORM, SLOT_Q, SLOT_K, SLOT_V, SLOT_Q_BIAS, SLOT_K_BIAS, SLOT_V_BIAS,
    SLOT_Q_NORM, SLOT_K_NORM, SLOT_OUT, SLOT_OUT_BIAS, SLOT_FFN_NORM, SLOT_ROUTER,
    SLOT_ROUTER_CORRECTION, SLOT_EXPERT_GATE, SLOT_EXPERT_UP, SLOT_EXPERT_DOWN,
    SLOT_EXPERTS_GATE_UP,           /* [experts][2 inner][hidden], gate first; in place of the three above */
    SLOT_EXPERTS_DOWN,              /* [experts][hidden][inner] */
    SLOT_EXPERTS_GATE, SLOT_EXPERTS_UP,     /* [experts][inner][hidden]; in place of SLOT_EXPERTS_GATE_UP. Networks without
                                             * gates leave SLOT_*_GATE empty */
    SLOT_SHARED_GATE, SLOT_SHARED_UP, SLOT_SHARED_DOWN, SLOT_SHARED_WEIGHT,     /* weight: [1][hidden] */
    SLOT_HEAD_BIAS, SLOT_FINAL_NORM_BIAS, SLOT_ATTENTION_NORM_BIAS, SLOT_FFN_NORM_BIAS,
    SLOT_DENSE_GATE, SLOT_DENSE_UP, SLOT_DENSE_DOWN,
    SLOT_INDEX_Q, SLOT_INDEX_K, SLOT_INDEX_K_NORM, SLOT_INDEX_K_NORM_BIAS, SLOT_INDEX_WEIGHT,
    SLOT_Q_A, SLOT_Q_A_BIAS, SLOT_Q_A_NORM, SLOT_Q_B, SLOT_KV_A, SLOT_KV_A_BIAS, SLOT_KV_A_NORM, SLOT_KV_B,     /* latents */
    SLOT_ATTENTION_GATE, SLOT_ATTENTION_OUT_NORM, SLOT_FFN_OUT_NORM, SLOT_EXPERTS_NORM, SLOT_EXPERTS_OUT_NORM,
    SLOT_SHARED_OUT_NORM, SLOT_LAYER_SCALE, SLOT_ROUTER_NORM, SLOT_EXPERT_SCALE, SLOT_SINKS, SLOT_ROUTER_BIAS,
    SLOT_EXPERTS_GATE_UP_BIAS,      /* [experts][2 inner] */
    SLOT_EXPERTS_DOWN_BIAS,         /* [experts][hidden] */
    SLOT_EXPERTS_GATE_BIAS, SLOT_EXPERTS_UP_BIAS,   /* [experts][inner]; in place of SLOT_EXPERTS_GATE_UP_BIAS */
    SLOT_K_B, SLOT_V_B,             /* [heads][rank][width of the part of a key that stays], [heads][width][rank]; in place of
                                     * SLOT_KV_B */
    SLOT_PREDICT_EMBED, SLOT_PREDICT_HEAD, SLOT_PREDICT_NORM, SLOT_PREDICT_EMBED_NORM, SLOT_PREDICT_HIDDEN_NORM,
    SLOT_PREDICT_FFN_NORM,          /* in place of SLOT_FFN_NORM in layers of predictors, if its name differs there */
    SLOT_PREDICT_JOINT,             /* [hidden][2 hidden], embedding first; {n} continues after the last layer */
    /* of draft heads (head.h): {n} is which of the heads, {e} which block, branch or state */
    SLOT_JOINT, SLOT_JOINT_BIAS, SLOT_STATES_NORM, SLOT_STATE_NORM, SLOT_EMBED_NORM, SLOT_HIDDEN_NORM, SLOT_BRANCH_UP,
    SLOT_BRANCH_DOWN, SLOT_BLOCK, SLOT_BLOCK_BIAS, SLOT_RESIDUAL, SLOT_RESIDUAL_BIAS, SLOT_OUTPUT, SLOT_OUTPUT_BIAS,
    /* of layers with a state: one matrix of q, k, v and z, grouped by key head, and one of b and a, grouped alike; or separate
     * matrices in place of these two */
    SLOT_DELTA_QKVZ, SLOT_DELTA_BA, SLOT_DELTA_QKV, SLOT_DELTA_Z, SLOT_DELTA_B, SLOT_DELTA_A,
    SLOT_DELTA_CONV,                /* [width][1][taps] */
    SLOT_DELTA_A_LOG, SLOT_DELTA_STEP_BIAS, SLOT_DELTA_NORM, SLOT_DELTA_OUT,
    SLOT_DELTA_ALL,                 /* in place of the six. Mamba-2: rows of z, v, k, q, and of the steps; a convolution
                                     * alone: rows of the gate of v, of z, and of v */
    SLOT_DELTA_CONV_BIAS, SLOT_DELTA_SKIP,
    /* Kimi Delta Attention, in place of SLOT_DELTA_QKV and _CONV, and with latents of _Z and _A. _A project to the latents of
     * the gate and of the steps, _B from these latents */
    SLOT_DELTA_Q, SLOT_DELTA_K, SLOT_DELTA_V, SLOT_DELTA_GATE_A, SLOT_DELTA_STEP_A, SLOT_DELTA_GATE_B, SLOT_DELTA_STEP_B,
    SLOT_DELTA_CONV_Q, SLOT_DELTA_CONV_K, SLOT_DELTA_CONV_V,
    /* Mamba-1: SLOT_DELTA_ALL has rows of v and z; SLOT_DELTA_STEP_A rows of the latent of the steps, of k and of q, from the
     * output of the convolution; these three have norms */
    SLOT_DELTA_Q_NORM, SLOT_DELTA_K_NORM, SLOT_DELTA_STEP_NORM,
    SLOT_SHARED_GATE_UP,            /* [2 inner][hidden], gate first; in place of SLOT_SHARED_GATE and SLOT_SHARED_UP */
    SLOT_DENSE_GATE_UP,             /* the same of a dense layer */
    SLOT_COUNT
};

struct naming {
    const char *slot[SLOT_COUNT];
    const char *ignored[5];         /* unused tensors of old checkpoints; NAME* are parts that are left out with a note */
    bool centred;                   /* norms, except SLOT_DELTA_NORM, are stored as weight - 1 */
    bool gated_q;                   /* SLOT_Q interleaves by head: query, then attention gate */
    bool transposed;                /* SLOT_EXPERTS_GATE_UP is [experts][hidden][2 inner], SLOT_EXPERTS_DOWN is
                                     * [experts][inner][hidden] */
    bool alternating;               /* of gate and up in one tensor: row 2 i is row i of gate, row 2 i + 1 of up */
    const char *left_out;           /* why tensors are left out; NULL: they do not belong to the text model */
    bool spaced;                    /* a draft head's blocks have the numbers 1, 3, ...: a Dropout comes before each */
    bool paired;                    /* of each head in q and k: row 2 i is row i, row 2 i + 1 is row width / 2 + i */
    bool index_paired;              /* the first floats of an indexer's heads turn in neighbouring pairs */
    bool correction_row;            /* SLOT_ROUTER_CORRECTION is [1][experts] */
    bool prepared_states;           /* SLOT_DELTA_A_LOG holds -exp(A_log), SLOT_DELTA_CONV is [width][taps] */
    const char *ahead;              /* prefix of the predictors' layers: {n} counts from 0 after `ahead`layers. in place of the
                                     * model's prefix; NULL: they follow the last layer under the names of layers */
};

enum key_type { KEY_INT, KEY_BOOL, KEY_F32 };

struct config_key {
    const char *key;
    enum key_type type;
    size_t offset;                  /* in struct hparams */
    bool required;
    double absent;                  /* value when not required and not there */
    const char *other;              /* another name of it, read when `key` is not there; NULL: none */
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
    EXPERTS_AFTER_DENSE,            /* as mlp_layer_types says; without it N >= first_k_dense_replace, and N a multiple of
                                     * moe_layer_freq */
    EXPERTS_IN_RANGE,               /* moe_layer_start_index <= N <= moe_layer_end_index (-1: the last layer), and (N + 1) a
                                     * multiple of moe_layer_interval */
    EXPERTS_BY_STEP                 /* not in mlp_only_layers, and (N + 1) a multiple of decoder_sparse_step */
};

enum window_rule {
    WINDOW_NEVER,
    WINDOW_ALL_LAYERS,              /* sliding_window */
    WINDOW_ALL_IF_USED,             /* sliding_window, if use_sliding_window */
    WINDOW_UPPER_IF_USED,           /* the same, from max_window_layers on, or where layer_types says so */
    WINDOW_UPPER,                   /* sliding_window, from max_window_layers on, or where layer_types says so */
    WINDOW_EVEN_IF_USED,            /* the same, even layers below max_window_layers, or where layer_types says so */
    WINDOW_ALTERNATING,             /* sliding_window, where layer_types says so, or in even layers */
    WINDOW_CHUNKED,                 /* `finish` reads chunks in place of windows */
    WINDOW_PATTERN                  /* sliding_window, where layer_types says so, or but in each pattern_key-th layer (4) */
};

enum other_layers { OTHER_NONE, OTHER_SLIDING, OTHER_FULL };

enum bias_rule {
    BIAS_NEVER,
    BIAS_ALL,                       /* q, k, v and out, where attention_bias says so */
    BIAS_ALL_UNLESS,                /* the same, but for attention_bias: false */
    BIAS_QKV,                       /* q, k and v, unless qkv_bias is false */
    BIAS_QKV_ASKED                  /* q, k and v, where attention_bias says so */
};

enum group_rule {
    GROUPS_AS_READ,                 /* router.groups and groups_kept, where keys name them */
    GROUPS_IF_LIMITED               /* n_group and topk_group, where topk_method is group_limited_greedy; it may be greedy */
};

enum { ARCH_KEYS = 16 };

struct arch {
    const char *model_type;
    const char *also;               /* another model_type that means the same, with other numbers; NULL: none */
    const char *summary;            /* for moe-convert list */
    struct config_key keys[ARCH_KEYS];  /* beside those that all families share (arch.c) */
    const char *refused[4];         /* keys that must be absent, null, false or 0 */
    enum bias_rule bias;
    const char *qk_norm_key;        /* NULL: fixed.attention.qk_norm holds always, else where this key is true */
    bool longrope;                  /* rope may be longrope, as Phi-3.5-MoE means it */
    bool rope_required;             /* what absent rope keys mean is not the default rope: they must be there */
    bool latent;                    /* keys and values come from latents, and each head's last qk_rope_head_dim floats turn */
    enum group_rule groups;
    double partial_rotary;          /* part of a head that turns, where the key is absent; 0: always all of it */
    bool rotary_counted;            /* rotary_dim says how many floats of a head turn */
    enum expert_layers expert_layers;
    const char *dense_key;          /* of EXPERTS_AFTER_DENSE, in place of first_k_dense_replace; NULL: that */
    enum window_rule window;
    const char *pattern_key;
    enum other_layers other;        /* which layers' attention is of the other kind; `finish` fills hparams.other */
    bool states;                    /* layers with a state, where layer_types says linear_attention, or all but each
                                     * full_attention_interval-th (4); `finish` fills hparams.delta, unless RECURRENCE_DELTA */
    bool halves;                    /* a layer is attention, a state or a feed-forward network alone; `finish` reads which */
    const char *layer_types[2];     /* the family's words for full_attention and linear_attention; NULL: just these */
    bool indexed;                   /* an indexer chooses index_topk positions. index_n_heads 0 (GGUF files): no indexer; the
                                     * context is limited to index_topk positions, which an indexer would choose all */
    bool full_still;                /* where some layers have a window, positions do not turn queries and keys of the others */
    bool shared_counted;            /* shared_inner was read as a number of experts, each as wide as a routed one */
    struct hparams fixed;           /* rope.theta is the default of the family */
    /* Reads keys that need code, after all other keys; NULL: no such keys. It may set the attention of predictors, whose
     * layers follow the last one in layer[]; arch_predictors clears the layers of absent predictors. */
    int (*finish)(const json_t *config, struct hparams *shape, struct err *err);
    const struct naming *naming[3];
    bool gguf_paired;               /* GGUF files of the family have q and k paired */
    bool gguf_renormalise;          /* they do not say that the weights of experts are renormalised */
    bool gguf_unrounded;            /* nor that the ends of YaRN's ramp are not rounded */
};

/* Reads a rope object of config.json into shape->rope, for the shape's heads. */
int arch_read_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *shape, struct err *err);

/* The same into shape->other.rope, for heads of the other kind. */
int arch_read_other_rope(const json_t *config, const json_t *rope, const struct arch *arch, struct hparams *shape,
                         struct err *err);

extern const struct arch arch_afmoe, arch_bailing_hybrid, arch_cohere2_moe, arch_deepseek, arch_deepseek_v2,
    arch_deepseek_v3, arch_deepseek_v32, arch_dots1, arch_ernie4_5_moe, arch_exaone_moe, arch_flex_olmo, arch_gemma4,
    arch_glm4_moe, arch_glm4_moe_lite, arch_glm_moe_dsa, arch_gpt_oss, arch_granitemoe, arch_granitemoehybrid,
    arch_hunyuan_v1_moe, arch_jamba, arch_kimi_linear, arch_lfm2_moe, arch_llama, arch_llama4, arch_longcat_flash,
    arch_mimo_v2_flash, arch_minimax_m2, arch_mistral, arch_mixtral, arch_nemotron_h, arch_olmoe, arch_phimoe, arch_qwen2,
    arch_qwen2_moe, arch_qwen3, arch_qwen3_5_moe, arch_qwen3_moe, arch_qwen3_next, arch_solar_open;

/* All families; NULL ends the list. */
const struct arch *arch_at(int index);

const struct arch *arch_find(const char *model_type);       /* NULL: there is none */

/* The key of config.json that fills a member of struct hparams, given by its offset; NULL: the family reads none. */
const char *arch_key(const struct arch *arch, size_t member);

/* Returns the text model's part of a config.json: text_config if it is there, as in models of texts and images. */
const json_t *arch_text_config(const json_t *config);

/* Drops the members of a kind of feed-forward network that no layer has, once layer[].ffn is known. */
void arch_unused_ffn(struct hparams *shape);

/* generation may be NULL. */
int arch_read(const json_t *config, const json_t *generation, struct hparams *shape, const struct arch **arch, struct err *err);

/* The same from the text of a config.json, with another number of layers when `layers` is not 0. */
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

/* DeepSeek-V3 and families with its router: sigmoid scores with a correction, groups, shared experts, dense layers first. The
 * keys' parameters are the values of a config.json that lacks them. */
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
    char name[128];                 /* the source tensor */
    int64_t dims[3];                /* what its shape must be */
    int dim_count;
    int64_t skip;                   /* its elements in front of this part */
    enum part_role role;
    enum part_value value;
    int first, rows, columns;       /* goes to rows first .. first + rows; a vector: rows of one column */
    /* run not 0: rows come in runs. Row i is row (i / run) * from_group + (i % run) * from_step of the source after `skip`,
     * and goes to row first + (i / run) * to_group + i % run. */
    int run, from_group, from_step, to_group;
    /* not 0: rows of the source are columns here: [columns][across], at `skip`, or one such matrix for each run, from_group
     * elements apart */
    int across;
};
enum { PARTS_MAX = 5 };

/* Fills parts[] and returns their number. */
int arch_parts(const struct naming *naming, const struct hparams *shape, const struct tensor *tensor, int block,
               struct part parts[PARTS_MAX]);

/* The naming whose experts `has` finds; the first when there are none to look for. That of GGUF goes by other tensors. */
const struct naming *arch_naming(const struct arch *arch, const struct hparams *shape,
                                 bool (*has)(const void *context, const char *name), const void *context);

/* GGUF's; NULL when `has` finds no tensor of that kind. */
const struct naming *arch_naming_gguf(const struct arch *arch, bool (*has)(const void *context, const char *name),
                                      const void *context);

/* Compares which layers have a state with the tensors that `has` finds. If config.json says nothing of layers, neither
 * layer_types nor full_attention_interval, the shape's layers become those of the tensors; else a difference is an error. */
int arch_state_layers(const json_t *config, const struct arch *arch, const struct naming *naming, struct hparams *shape,
                      bool (*has)(const void *context, const char *name), const void *context, struct err *err);

/* Fills the shape's predictors. A predictor is there if `has` finds the tensor that joins embedding and hidden state, and with
 * naming->ahead its layer, too: config.json proves nothing. */
int arch_predictors(const struct naming *naming, struct hparams *shape, bool (*has)(const void *context, const char *name),
                    const void *context, struct err *err);

/* Returns the naming of the predictors' tensors: `naming`, or another one of the family whose experts `has` finds, as a
 * quantised model may have its experts apart and its predictors' in one tensor. */
const struct naming *arch_naming_ahead(const struct arch *arch, const struct naming *naming, const struct hparams *shape,
                                       bool (*has)(const void *context, const char *name), const void *context);

/* A known model's config.json; NULL when there is no such name. *name is the next one's name for a list (index from 0). */
const char *known_shape(const char *name);
const char *known_shape_at(int index, const char **summary);

/* Reads the shape of a known model by its name, or of a config.json by its path; another number of layers when `layers` is not
 * 0. option: the one that named it, for errors. *text: the config.json. */
int known_shape_read(const char *name, const char *option, int layers, struct text *text, struct hparams *shape,
                     struct err *err);

#endif

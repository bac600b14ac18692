/* The only description of a transformer that the engine reads. Families (common/arch) fill it in; later code does not depend
 * on the family. Counts are in elements. */
#ifndef MOE_MODEL_HPARAMS_H
#define MOE_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "kernels/delta.h"
#include "kernels/plain/glu.h"
#include "kernels/route.h"

/* Limits that hparams_check enforces: far above any published model, and small enough that a product of two fits int64. */
enum {
    LAYERS_MAX = 512, EOS_MAX = 8, VOCAB_MAX = 1 << 24, WIDTH_MAX = 1 << 20, HEADS_MAX = 1024, HEAD_DIM_MAX = 1024,
    EXPERTS_MAX = 1024, PREDICTORS_MAX = 8
};

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_WHOLE,       /* one norm over all of q, one over all of k, before heads are split (OLMoE) */
    QK_NORM_HEAD         /* one norm per head (Qwen3) */
};

enum norm_place {
    NORM_BEFORE,         /* attention and feed-forward network read a norm of the residual stream */
    NORM_AFTER,          /* both read the stream itself, and the norm of their output is added to the stream (FlexOlmo) */
    NORM_BOTH
};

enum rope_kind {
    ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3,
    ROPE_YARN,           /* arXiv 2309.00071: slow pairs are interpolated, fast pairs are kept, with a linear ramp in between */
    ROPE_STRETCHED,      /* the frequency of each pair is divided by a factor of its own (LongRoPE, arXiv 2402.13753) */
    ROPE_DYNAMIC,        /* beyond original_positions theta grows with the token's own position, as when transformers
                          * decodes; for a longer prompt, transformers uses the prompt's length instead */
    ROPE_SCALE           /* in no model file; implements attention.no_rope_scale: no rotation, amplitude 1 + factor * log(1 +
                          * floor((position + 1) / original_positions)), in f32 as in transformers */
};

enum ffn_kind {
    FFN_DENSE, FFN_EXPERTS,
    FFN_NONE             /* attention or a state alone: Nemotron-H, and draft heads (head.h) */
};

struct rope_shape {
    enum rope_kind kind;
    int rotary;                      /* number of rotated floats per head */
    double theta, factor;            /* factor: linear, llama3, yarn, dynamic */
    double low_factor, high_factor;  /* llama3 */
    int rotated_pairs;               /* number of rotated pairs; their frequencies are computed as for all rotary / 2
                                      * pairs; 0: all */
    int original_positions;          /* llama3, yarn, stretched, dynamic */
    double beta_fast, beta_slow;     /* yarn: rotations within the original positions at which the ramp ends and begins */
    bool truncate;                   /* yarn: the ends of the ramp are rounded to whole pairs */
    double amplitude;                /* factor of cos and sin; 0: none */
    double long_amplitude;           /* amplitude from original_positions on; 0: as `amplitude` */
    double stretch[HEAD_DIM_MAX / 2];    /* stretched: rotary / 2 factors */
};

/* The second kind of attention layers, in models with two (MiMo-V2, Gemma 4): replaces these members of hparams.attention and
 * hparams.rope in layers with `other`. */
struct attention_kind {
    int kv_heads, head_dim, value_dim;
    bool sinks;
    bool value_is_key;               /* the rows of v are those of k */
    struct rope_shape rope;
};

/* Latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1): keys and values of all heads are computed from a normalised
 * latent of kv_rank floats, queries from a latent of q_rank floats or from the hidden state. The first rope.rotary floats of
 * a head are rotated; those of the key are computed beside the latent, once for all heads.
 *
 * Predictors (DeepSeek-V3, arXiv 2412.19437 section 2.2) are layers after the last one that predict further tokens.
 * Predictor i reads the embedding of a token and the hidden state of the token before it, as i predictors have transformed
 * it. It normalises both, joins them by a matrix, and runs a layer like the others; the output head computes logits from the
 * norm of the layer's output. */
struct hparams {
    char family[32];                 /* model_type, for display only */
    int vocab, hidden, layers, max_positions;
    float norm_epsilon;
    bool layer_norm;                 /* the norms of layers and the final norm subtract the mean and have a bias */
    bool norm_unbiased;              /* norms that subtract the mean have no bias */
    enum norm_place norms;           /* of layers */
    bool parallel;                   /* attention and feed-forward network read the same norm, and both outputs are added to
                                      * the stream */
    bool tied;                       /* the output head is the embedding */
    bool head_bias;
    int eos[EOS_MAX], eos_count;     /* ids that end a sequence */
    int bos, pad;                    /* -1: none */

    struct {
        int heads, kv_heads, head_dim;
        int value_dim;               /* width of a value; head_dim is the width of queries and keys */
        int q_rank, kv_rank;         /* latent attention (above): widths; kv_rank 0: ordinary attention; q_rank 0: q has no
                                      * latent */
        float latent_epsilon;        /* epsilon of the latents' norms */
        enum qk_norm qk_norm;
        float latent_scale;          /* multiplies the normalised latent of keys and values; 0: none */
        bool rope_before_norm;       /* q and k are rotated before their norms, which are one per head */
        bool plain_norm;             /* these norms have no weights, and layers without positions have no such norms */
        float no_rope_scale;         /* layers without positions multiply queries by 1 + no_rope_scale * log(1 +
                                      * floor((position + 1) / no_rope_floor)); 0: no factor */
        int no_rope_floor;
        bool aligned;                /* windows begin at multiples of their size: a token attends to its own chunk only */
        bool gate;                   /* each float of attention's output is multiplied by the sigmoid of a linear product of
                                      * attention's input */
        bool head_gate;              /* the gate has one value per head */
        bool sinks;                  /* each head has an extra score in the softmax, without a value */
        bool qkv_bias, out_bias;     /* with latents: qkv_bias is the bias of the matrices that compute the latents */
        float clip_qkv;              /* 0: none */
        float value_scale;           /* multiplies values; 0: no factor */
        bool value_norm;             /* the value of each head is normalised, without a weight */
        float scale;
    } attention;
    struct rope_shape rope;
    struct attention_kind other;         /* used by layers with layer[].other */
    struct delta_shape {
        int key_heads, value_heads, key_dim, value_dim;      /* kernels/delta.h */
        int taps;                    /* taps of the convolution before the recurrence */
        bool tiled;                  /* value head h belongs to key head h % key_heads */
        enum recurrence kind;        /* RECURRENCE_NONE: heads and their widths are 0; the convolution is as wide as
                                      * the hidden state */
        int norm_groups;             /* RECURRENCE_SPACE: number of parts of the output, each with its own norm */
        bool conv_bias;
        int gate_rank;               /* RECURRENCE_CHANNEL: width of the latents from which steps and gate are computed; 0:
                                      * they are computed from the layer's input. RECURRENCE_SCAN: width of the latent of the
                                      * steps */
        float floor;                 /* RECURRENCE_CHANNEL: lower bound of decays (kernels/delta.h); 0: none */
    } delta;                         /* shape of layers with a state; zeros: no layer has a state */
    struct index_shape {
        int heads, dim;              /* heads and width of an indexer beside latent attention (kernels/index.h); 0: none */
        int top_k;                   /* number of positions that the indexer selects */
    } index;
    float embed_scale, residual_scale;   /* factors of embeddings, and of the outputs of attention and feed-forward networks;
                                          * 0: no factor */
    float logit_divisor;                 /* 0: none */
    float logit_cap;                     /* logits become cap * tanh(logit / cap), after the divisor; 0: none */
    bool layer_scale;                    /* each layer multiplies the stream by its own factor at the end */

    struct {
        enum router_kind kind;
        int experts, top_k;          /* 0, 0: no layer has experts */
        bool renormalise;
        float scale, jitter;         /* jitter: sparsemixer */
        bool correction;             /* each expert's score has a bias, used only for the selection */
        bool bias;                   /* each expert's logit has a bias */
        bool norm;                   /* the router reads its own norm of the stream */
        float logit_scale;           /* multiplies logits; 0: no factor */
        bool expert_scale;           /* each expert's weight is multiplied by a factor of the expert */
        int zero_experts;            /* number of experts without weights, which return their input; numbered after the
                                      * others */
        bool weigh_input;            /* the weight multiplies the input of the expert, not its output; top_k is 1 */
        int groups, groups_kept, group_rank;     /* kernels/route.h; groups 0: none */
    } router;
    bool shortcut;                   /* the output of routed experts is added after the next layer, which is dense
                                      * (LongCat-Flash) */
    int expert_inner, dense_inner;   /* inner widths; 0 where no layer is of that kind */
    int shared_inner;                /* inner width of the shared experts, which every token uses, as one block; 0: none */
    bool expert_bias;                /* routed experts have biases of gate, up and down */
    float glu_limit, glu_alpha;      /* limits of routed experts (kernels/plain/glu.h); limit 0: silu(gate) * up */
    bool shared_gate;                /* the output of shared experts is multiplied by the sigmoid of their own gate */
    float shared_scale;              /* multiplies the output of shared experts; 0: no factor */
    bool shared_apart;               /* shared experts read ffn.norm, routed experts read a norm of their own; both sums are
                                      * normalised before they are added (Gemma 4) */
    enum glu_kind glu;               /* activation of all feed-forward networks */

    struct layer_shape {
        uint8_t ffn;                 /* enum ffn_kind */
        bool other;                  /* attention is of the other kind (hparams.other) */
        bool state;                  /* the layer has a state and no attention (kernels/delta.h) */
        bool ffn_alone;              /* the layer has neither attention nor a state (Nemotron-H) */
        bool no_rope;                /* queries and keys are not rotated by position (NoPE) */
        bool shares_index;           /* the layer has no indexer and uses the positions that the layer before it selected */
        int window;                  /* sliding window, 0: none */
        float expert_limit, shared_limit;    /* limits of the layer's routed and shared experts, with glu_limit and glu_alpha
                                              * 0 (kernels/plain/glu.h); 0: none */
    } layer[LAYERS_MAX];             /* the layers of predictors follow those of the model */

    int predictors;                  /* number of predictors for drafts (common/head); the engine does not compute predictors */
    struct predictor_shape {
        bool embed, head;            /* the predictor has its own; otherwise it uses the model's */
    } predictor[PREDICTORS_MAX];
};

/* Returns the number of outputs of a router: experts and zero experts. */
int hparams_choices(const struct hparams *shape);
int hparams_moe_layers(const struct hparams *shape);
int hparams_dense_layers(const struct hparams *shape);
bool hparams_attends(const struct hparams *shape, int layer);     /* whether the layer has attention, and so keys and values */
bool hparams_gated(const struct hparams *shape);         /* feed-forward networks have a gate */
float hparams_expert_limit(const struct hparams *shape, int layer);  /* limit of the gated units of routed experts, 0: none */
bool hparams_has_other(const struct hparams *shape);     /* some layer's attention is of the other kind */

/* The attention parameters of one layer, whichever kind of attention it has; `rope` points into the shape. */
struct layer_attention {
    int kv_heads, head_dim, value_dim;
    bool sinks, value_is_key;
    const struct rope_shape *rope;
};
struct layer_attention hparams_attention(const struct hparams *shape, int layer);

/* Returns the number of heads of keys and values in a layer's KV cache: those of attention, plus one for the keys of an
 * indexer. 0: the layer has no attention. */
int hparams_cached_heads(const struct hparams *shape, int layer);

/* Returns the floats of a token's keys and values in a layer; 0 without attention. */
int hparams_kv_width(const struct hparams *shape, int layer);
int hparams_state_layers(const struct hparams *shape);

/* Returns the number of gates of attention's output. */
int hparams_attention_gates(const struct hparams *shape);

/* Floats per token in a layer with a state. keys, values: over all heads. conv: inputs of the convolution (queries, keys and
 * values; with RECURRENCE_SCAN values alone). in: outputs of delta.in (those inputs and the gate of the values; with
 * RECURRENCE_NONE also the gate of the inputs; with RECURRENCE_CHANNEL and gate_rank the latents of gate and steps in place
 * of the gate). gates: outputs of delta.gates (rates and steps, or one of the two; with RECURRENCE_SCAN queries, keys and
 * the latent of the steps). steps: one per decay. */
struct delta_widths {
    int keys, values, conv, in, gates, steps;
};
struct delta_widths hparams_delta_widths(const struct hparams *shape);

/* Checks that all values are in range and consistent, so that the engine need not check them; an error names the value. */
int hparams_check(const struct hparams *shape, struct err *err);

#endif

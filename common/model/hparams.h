/* The one description of a transformer that the engine computes. Families (common/arch) fill it; nothing after that asks
 * which family it was. Counts are in elements. */
#ifndef MOE_MODEL_HPARAMS_H
#define MOE_MODEL_HPARAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "kernels/delta.h"
#include "kernels/plain/glu.h"
#include "kernels/route.h"

/* Bounds of what hparams_check lets through: far beyond any published model, small enough that a product of two fits int64. */
enum {
    LAYERS_MAX = 512, EOS_MAX = 8, VOCAB_MAX = 1 << 24, WIDTH_MAX = 1 << 20, HEADS_MAX = 1024, HEAD_DIM_MAX = 1024,
    EXPERTS_MAX = 1024, PREDICTORS_MAX = 8
};

enum qk_norm {
    QK_NORM_NONE,
    QK_NORM_WHOLE,       /* one norm over all of q, one over all of k, before heads are split (OLMoE) */
    QK_NORM_HEAD         /* over each head (Qwen3) */
};

enum norm_place {
    NORM_BEFORE,         /* attention and feed-forward network read a norm of the residual stream */
    NORM_AFTER,          /* they read the stream itself, and it gets a norm of what they make (FlexOlmo) */
    NORM_BOTH
};

enum rope_kind {
    ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3,
    ROPE_YARN,           /* arXiv 2309.00071: slow pairs are interpolated, fast ones kept, a ramp between */
    ROPE_STRETCHED,      /* each pair's frequency is divided by its own number (LongRoPE, arXiv 2402.13753) */
    ROPE_DYNAMIC,        /* from original_positions on theta grows with a token's own position, as in transformers' decoding;
                          * it turns a prompt that goes beyond them by the prompt's length instead */
    ROPE_SCALE           /* in no model file; implements attention.still_scale: no rotation, amplitude 1 + factor * log(1 +
                          * floor((position + 1) / original_positions)), in f32 as in transformers */
};

enum ffn_kind {
    FFN_DENSE, FFN_EXPERTS,
    FFN_NONE             /* attention or a state alone: Nemotron-H, and draft heads (head.h) */
};

struct rope_shape {
    enum rope_kind kind;
    int rotary;                      /* floats of a head that turn */
    double theta, factor;            /* factor: linear, llama3, yarn, dynamic */
    double low_factor, high_factor;  /* llama3 */
    int turning;                     /* pairs that turn, of rotary / 2, whose frequencies count all of these; 0: all */
    int original_positions;          /* llama3, yarn, stretched, dynamic */
    double beta_fast, beta_slow;     /* yarn: turns within the original positions where the ramp ends and begins */
    bool truncate;                   /* yarn: the ramp's ends are rounded to whole pairs */
    double amplitude;                /* factor of cos and sin; 0: none */
    double long_amplitude;           /* the same from original_positions on; 0: the same there */
    double stretch[HEAD_DIM_MAX / 2];    /* stretched: rotary / 2 of them */
};

/* The second kind of attention layers, in models with two (MiMo-V2, Gemma 4): replaces these members of hparams.attention and
 * hparams.rope in layers with `other`. */
struct attention_kind {
    int kv_heads, head_dim, value_dim;
    bool sinks;
    bool value_is_key;               /* rows of v are those of k */
    struct rope_shape rope;
};

/* Latent attention (DeepSeek-V2, arXiv 2405.04434 section 2.1): keys and values of all heads are made from a normed latent
 * of kv_rank floats, queries from one of q_rank or from the hidden state. The first rope.rotary floats of a head turn; those
 * of the key are made beside the latent, once for all heads.
 *
 * Predictors (DeepSeek-V3, arXiv 2412.19437 section 2.2) are layers after the last one that guess further tokens: number i
 * takes the embedding of a token and the hidden state that i layers of this kind have made of the one before it, norms both,
 * joins them by a matrix, and goes through a layer like the others; the head gives logits of what its norm makes of that. */
struct hparams {
    char family[32];                 /* model_type, for people only */
    int vocab, hidden, layers, max_positions;
    float norm_epsilon;
    bool layer_norm;                 /* norms of layers and the final one take the mean away and have a bias */
    bool norm_unbiased;              /* such norms have no bias */
    enum norm_place norms;           /* of layers */
    bool parallel;                   /* attention and feed-forward network read the same norm, and both add to the stream */
    bool tied;                       /* the output head is the embedding */
    bool head_bias;
    int eos[EOS_MAX], eos_count;     /* ids that end a sequence */
    int bos, pad;                    /* -1: none */

    struct {
        int heads, kv_heads, head_dim;
        int value_dim;               /* width of a value; head_dim is that of queries and keys */
        int q_rank, kv_rank;         /* latent attention (below): widths; kv_rank 0: ordinary, q_rank 0: q has none */
        float latent_epsilon;        /* of the norms of latents */
        enum qk_norm qk_norm;
        float latent_scale;          /* multiplies the normed latent of keys and values; 0: none */
        bool turn_first;             /* q and k turn before their norms, which are of each head */
        bool plain_norm;             /* these norms have no weights, and layers without positions have no such norms */
        float still_scale;           /* layers without positions multiply queries by 1 + still_scale * log(1 + floor((position +
                                      * 1) / still_floor)); 0: not */
        int still_floor;
        bool aligned;                /* windows begin at multiples of their size: a token sees its own chunk only */
        bool gate;                   /* a sigmoid of a product with what attention reads weighs each float of its output */
        bool head_gate;              /* the gate has one weight for each head */
        bool sinks;                  /* each head has a score that takes part in the softmax and has no value */
        bool qkv_bias, out_bias;     /* with latents qkv_bias is of what makes them */
        float clip_qkv;              /* 0: none */
        float value_scale;           /* multiplies values; 0: not */
        bool value_norm;             /* each head's value is normed, without a weight */
        float scale;
    } attention;
    struct rope_shape rope;
    struct attention_kind other;         /* of layer[].other */
    struct delta_shape {
        int key_heads, value_heads, key_dim, value_dim;      /* kernels/delta.h */
        int taps;                    /* of the convolution before it */
        bool tiled;                  /* value head h belongs to key head h % key_heads */
        enum recurrence kind;        /* RECURRENCE_NONE: heads and their widths are 0; the convolution is as wide as
                                      * the hidden state */
        int norm_groups;             /* RECURRENCE_SPACE: parts of its output with a norm each */
        bool conv_bias;
        int gate_rank;               /* RECURRENCE_CHANNEL: width of the latents from which steps and gate are made; 0: they are
                                      * made from what the layer reads. RECURRENCE_SCAN: width of the latent of the steps */
        float floor;                 /* RECURRENCE_CHANNEL: lower bound of decays (kernels/delta.h); 0: none */
    } delta;                         /* of layers with a state; zeros: no layer has one */
    struct index_shape {
        int heads, dim;              /* of an indexer beside latent attention (kernels/index.h); 0: none */
        int top_k;                   /* positions that it chooses */
    } index;
    float embed_scale, residual_scale;   /* multiply embeddings, and what attention and feed-forward add; 0: not */
    float logit_divisor;                 /* 0: none */
    float logit_cap;                     /* logits become cap * tanh(logit / cap), after the divisor; 0: none */
    bool layer_scale;                    /* each layer multiplies the stream by a number of its own when it is done */

    struct {
        enum router_kind kind;
        int experts, top_k;          /* 0, 0: no layer has experts */
        bool renormalise;
        float scale, jitter;         /* jitter: sparsemixer */
        bool correction;             /* a bias of each expert's score, for choosing only */
        bool bias;                   /* one of each expert's logit */
        bool norm;                   /* it reads a norm of its own of the stream */
        float logit_scale;           /* multiplies logits; 0: not */
        bool expert_scale;           /* each expert's weight is multiplied by a number of its own */
        int zero_experts;            /* experts without weights, which return their input; they follow the others */
        bool weigh_input;            /* the weight multiplies the input of the expert, not its output; top_k is 1 */
        int groups, groups_kept, group_rank;     /* route.h; groups 0: none */
    } router;
    bool shortcut;                   /* the output of routed experts is added after the next layer, which is dense
                                      * (LongCat-Flash) */
    int expert_inner, dense_inner;   /* inner widths; 0 where no layer is of that kind */
    int shared_inner;                /* of the experts beside the routed ones that every token uses, as one block; 0: none */
    bool expert_bias;                /* routed experts have biases of gate, up and down */
    float glu_limit, glu_alpha;      /* of routed experts (kernels/plain/glu.h); limit 0: silu(gate) * up */
    bool shared_gate;                /* a sigmoid of its own gate weighs their output */
    float shared_scale;              /* multiplies it; 0: not */
    bool shared_apart;               /* shared experts read ffn.norm, routed ones a norm of their own; both sums are normed
                                      * before they are added (Gemma 4) */
    enum glu_kind glu;               /* of all feed-forward networks */

    struct layer_shape {
        uint8_t ffn;                 /* enum ffn_kind */
        bool other;                  /* its attention is of the other kind */
        bool state;                  /* it has a state and no attention (kernels/delta.h) */
        bool ffn_alone;              /* it has neither attention nor a state (Nemotron-H) */
        bool still;                  /* positions do not turn its queries and keys (NoPE) */
        bool shares_index;           /* it has no indexer and uses what the layer before it uses */
        int window;                  /* sliding window, 0: none */
        float expert_limit, shared_limit;    /* of its routed and shared experts, with glu_limit and glu_alpha 0
                                              * (kernels/plain/glu.h); 0: none */
    } layer[LAYERS_MAX];             /* predictors' after those of the layers */

    int predictors;                  /* of drafts (common/head); the engine does not compute them */
    struct predictor_shape {
        bool embed, head;            /* has one of its own; otherwise it uses the model's */
    } predictor[PREDICTORS_MAX];
};

/* Returns the number of outputs of a router: experts and zero experts. */
int hparams_choices(const struct hparams *shape);
int hparams_moe_layers(const struct hparams *shape);
int hparams_dense_layers(const struct hparams *shape);
bool hparams_attends(const struct hparams *shape, int layer);     /* the layer has attention, so keys and values */
bool hparams_gated(const struct hparams *shape);         /* feed-forward networks have a gate */
float hparams_expert_limit(const struct hparams *shape, int layer);  /* of gated units of routed experts, 0: none */
bool hparams_has_other(const struct hparams *shape);     /* some layer's attention is of the other kind */

/* The attention parameters of one layer, of whichever kind; `rope` points into the shape. */
struct layer_attention {
    int kv_heads, head_dim, value_dim;
    bool sinks, value_is_key;
    const struct rope_shape *rope;
};
struct layer_attention hparams_attention(const struct hparams *shape, int layer);

/* Heads of keys and values in the KV cache of a layer: those of attention, and the indexer's keys as one more. 0: the layer has
 * no attention. */
int hparams_cached_heads(const struct hparams *shape, int layer);

/* Floats of keys and values of a token: in a layer with attention, and in all of these. */
int hparams_kv_width(const struct hparams *shape, int layer);
int hparams_state_layers(const struct hparams *shape);

/* Returns the number of gates of attention's output. */
int hparams_attention_gates(const struct hparams *shape);

/* Floats of a token in a layer with a state. keys, values: of all heads. conv: inputs of the convolution (queries, keys and
 * values; with RECURRENCE_SCAN values alone). in: outputs of delta.in (those inputs and the gate of the values; with
 * RECURRENCE_NONE also the gate of the inputs; with RECURRENCE_CHANNEL and gate_rank the latents of gate and steps in place of
 * the gate). gates: outputs of delta.gates (rates and steps, or one of the two; with RECURRENCE_SCAN queries, keys and the
 * latent of the steps). steps: one for each decay. */
struct delta_widths {
    int keys, values, conv, in, gates, steps;
};
struct delta_widths hparams_delta_widths(const struct hparams *shape);

/* Everything in range and consistent, or an error that names the value: what the engine need not ask again. */
int hparams_check(const struct hparams *shape, struct err *err);

#endif

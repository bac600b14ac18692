/* A model file (.moe): hparams, tokenizer and packed weights, mapped read-only. The format is described in moe-model(5).
 *
 * Canonical tensors of a model, N the layer (shapes as [outputs][inputs]; a bias or norm is a VECTOR, the rest MATRIX or
 * EXPERTS):
 *
 *     embed                      MATRIX  [vocab][hidden]
 *     head                       MATRIX  [vocab][hidden]         absent when tied
 *     head_bias                  VECTOR  [vocab]                 when head_bias
 *     final_norm                 VECTOR  [hidden]                final_norm_bias alike when layer_norm
 *     layers.N.attention.norm    VECTOR  [hidden]                unless NORM_AFTER; attention.norm_bias alike when layer_norm
 *                                                                and not norm_unbiased, and so for all norms
 *     layers.N.attention.qkv     MATRIX  [(heads + kv_heads) head_dim + kv_heads value_dim][hidden]   rows of q, k, v; in
 *                                                                layers of the other kind with its widths
 *     layers.N.attention.qkv_bias VECTOR                                             when qkv_bias
 *     with latents, in place of qkv and its bias (R: rope.rotary; rows of a head that turn come first):
 *     layers.N.attention.q_a     MATRIX  [q_rank][hidden]        when q_rank; q_a_bias VECTOR when qkv_bias
 *     layers.N.attention.q_a_norm VECTOR [q_rank]                when q_rank
 *     layers.N.attention.q       MATRIX  [heads head_dim][q_rank, or hidden]
 *     layers.N.attention.kv_a    MATRIX  [kv_rank + R][hidden]   the latent, then the rotated part of the key
 *     layers.N.attention.kv_a_bias VECTOR                        when qkv_bias
 *     layers.N.attention.kv_a_norm VECTOR [kv_rank]
 *     layers.N.attention.kv_b    MATRIX  [heads (head_dim - R + value_dim)][kv_rank]   rest of the keys, then values
 *     with an indexer, unless the layer shares_index (its floats that turn come first):
 *     layers.N.attention.index_q MATRIX  [index.heads index.dim][q_rank]
 *     layers.N.attention.index_k MATRIX  [index.dim][hidden]
 *     layers.N.attention.index_k_norm VECTOR [index.dim]         index_k_norm_bias alike: a norm that subtracts the mean
 *     layers.N.attention.index_weight MATRIX [index.heads][hidden]
 *     layers.N.attention.q_norm  VECTOR  [heads head_dim] or [head_dim]              by qk_norm; k_norm alike; not when
 *                                                                plain_norm
 *     layers.N.attention.sinks   VECTOR  [heads]                 when sinks
 *     layers.N.attention.out     MATRIX  [hidden][heads value_dim]
 *     layers.N.attention.out_bias VECTOR [hidden]                                    when out_bias
 *     layers.N.attention.gate    MATRIX  [heads value_dim][hidden]                   when gate; [heads] when head_gate
 *     layers.N.attention.out_norm VECTOR [hidden]                unless NORM_BEFORE
 *     with a state (layer[N].state), in place of qkv, q_norm, k_norm, sinks, out, its bias and gate (keys K = delta.key_heads
 *     key_dim, values V = delta.value_heads value_dim; kernels/delta.h), by delta.kind D RECURRENCE_DELTA, S RECURRENCE_SPACE,
 *     C RECURRENCE_CHANNEL, M RECURRENCE_SCAN or N RECURRENCE_NONE (K = 0, V = hidden):
 *     layers.N.delta.in          MATRIX  [2 K + 2 V][hidden]     rows of q, k, v, and of the gate of the output; N: [3 V],
 *                                                                also of the gate of v; with gate_rank: [2 K + V + 2
 *                                                                gate_rank], of q, k, v, and of the latents of the gate and of
 *                                                                the steps; M: [2 V], of v and the gate of the output
 *     layers.N.delta.gates       MATRIX  [2 value_heads][hidden] of the rates, then of the steps; S: of the steps alone; C:
 *                                                                [value_heads (1 + key_dim)], with gate_rank the rates alone;
 *                                                                M: [2 K + gate_rank][V] of q, k and the latent of the steps,
 *                                                                from the convolution's output
 *     layers.N.delta.gate        MATRIX  [V][gate_rank]          C, when gate_rank: from the latent; steps alike: a row each;
 *                                                                M: steps alone
 *     layers.N.delta.conv        VECTOR  [taps (2 K + V)]        the oldest token's first; M: [taps V], and its bias [V]
 *     layers.N.delta.conv_bias   VECTOR  [2 K + V]               when delta.conv_bias
 *     layers.N.delta.neg_a       VECTOR  [value_heads]           not N; step_bias alike, C: of each step; S: skip alike; M:
 *                                                                [value_heads][key_dim][value_dim]; step_bias and skip [V]
 *     layers.N.delta.norm        VECTOR  [value_dim]             of each head of the output, before its gate; S: [V], after
 *                                                                its gate, of norm_groups parts; M: [2 K + gate_rank], of q, k
 *                                                                and the latent of the steps
 *     layers.N.delta.out         MATRIX  [hidden][V]
 *     not those of attention or a state when layer[N].ffn_alone, and not the next ones with FFN_NONE:
 *     layers.N.ffn.norm          VECTOR  [hidden]                not when parallel; else as attention.norm, and ffn.norm_bias
 *     layers.N.ffn.out_norm      VECTOR  [hidden]                unless NORM_BEFORE
 *     layers.N.ffn.experts_norm  VECTOR  [hidden]                when shared_apart: what routed experts read;
 *                                                                experts_out_norm, shared_out_norm alike, of their sums
 *     layers.N.scale             VECTOR  [1]                     when layer_scale
 *     layers.N.router            MATRIX  [choices][hidden]       FFN_EXPERTS; choices: experts, then zero experts
 *     layers.N.router_correction VECTOR  [choices]                                   when router.correction
 *     layers.N.router_bias       VECTOR  [choices]               when router.bias
 *     layers.N.router_norm       VECTOR  [hidden]                when router.norm
 *     layers.N.router_expert_scale VECTOR [experts]              when router.expert_scale
 *     layers.N.experts_gate_up_bias VECTOR [experts 2 expert_inner]   when expert_bias; of an expert's gate, then of its up
 *     layers.N.experts_down_bias VECTOR  [experts hidden]        when expert_bias
 *     layers.N.experts           EXPERTS count = experts, inner = expert_inner       FFN_EXPERTS
 *     layers.N.shared            EXPERTS count = 1, inner = shared_inner             FFN_EXPERTS, shared_inner not 0
 *     layers.N.shared_gate       MATRIX  [1][hidden]                                 when shared_gate
 *     layers.N.dense             EXPERTS count = 1, inner = dense_inner              FFN_DENSE
 *     with predictors, N the number of one, all that layers.N has (the number of its layer is layers + N), and before it:
 *     predict.N.embed            MATRIX  [vocab][hidden]         when predictor[N].embed
 *     predict.N.head             MATRIX  [vocab][hidden]         when predictor[N].head
 *     predict.N.final_norm       VECTOR  [hidden]                before the head
 *     predict.N.embed_norm       VECTOR  [hidden]                of the embedding
 *     predict.N.hidden_norm      VECTOR  [hidden]                of the hidden state
 *     predict.N.joint            MATRIX  [hidden][2 hidden]      of the normed embedding, then the normed hidden state
 *
 * Canonical tensors of a draft head (head.h), hidden its own width; unlisted shapes as above:
 *
 *     embed                      MATRIX  [vocab][hidden]         when embed
 *     head                       MATRIX  [draft_vocab][hidden]   eagle3
 *     final_norm                 VECTOR  [hidden]                eagle3, kangaroo, and with prefix
 *     states_norm                VECTOR  [states target.hidden]  when states_norm
 *     state_norms.S              VECTOR  [target.hidden]         when state_norms, for each of the states
 *     joint                      MATRIX  [hidden][2 hidden]      eagle1, jakiro, jakiro_star: of the embedding, then the state
 *                                        [hidden][states target.hidden]   eagle3
 *     joint_bias                 VECTOR  [hidden]                when joint_bias
 *     embed_norm, hidden_norm    VECTOR  [hidden]                eagle3
 *     layers.0.attention.norm    VECTOR  [hidden]                kangaroo, and with prefix
 *     layers.0.attention.qkv     MATRIX  [...][2 hidden]         eagle3: of the embedding, then the state; others [...][hidden]
 *     layers.0.router            MATRIX  [rows][hidden]          jakiro, jakiro_star (head_router_rows)
 *     layers.0.branches.B.up     MATRIX  [expert_inner][hidden]  jakiro_star, for each expert; down [hidden][expert_inner]
 *     heads.I.blocks.B.linear    MATRIX  [hidden][hidden]        medusa, hydra; hydra's block 0 [hidden][(I + 2) hidden]
 *     heads.I.blocks.B.bias      VECTOR  [hidden]
 *     heads.I.residual           MATRIX  as blocks.0.linear      hydra; residual_bias VECTOR
 *     heads.I.output             MATRIX  [vocab][hidden]         medusa, hydra; output_bias VECTOR [vocab] of hydra
 *
 * Some checkpoints quantise v and down with more bits than the rest: then v and down may have a format of their own, and v
 * begins in a new unit.
 *
 * An EXPERTS tensor is `count` blocks (EXPERT, or without gates UNGATED EXPERT, in kernels/formats.h), `stride` bytes apart,
 * each at a page boundary. */
#ifndef MOE_MODEL_MODEL_H
#define MOE_MODEL_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/direct.h"
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/model/head.h"
#include "kernels/formats.h"

enum tensor_kind { TENSOR_VECTOR, TENSOR_MATRIX, TENSOR_EXPERTS };

/* A tensor's purpose: the last part of its name. */
enum tensor_role {
    ROLE_EMBED, ROLE_HEAD, ROLE_FINAL_NORM, ROLE_ATTENTION_NORM, ROLE_QKV, ROLE_QKV_BIAS, ROLE_Q_NORM, ROLE_K_NORM, ROLE_OUT,
    ROLE_OUT_BIAS, ROLE_FFN_NORM, ROLE_ROUTER, ROLE_ROUTER_CORRECTION, ROLE_EXPERTS, ROLE_SHARED, ROLE_SHARED_GATE,
    ROLE_DENSE, ROLE_HEAD_BIAS, ROLE_FINAL_NORM_BIAS, ROLE_ATTENTION_NORM_BIAS, ROLE_FFN_NORM_BIAS,
    ROLE_INDEX_Q, ROLE_INDEX_K, ROLE_INDEX_K_NORM, ROLE_INDEX_K_NORM_BIAS, ROLE_INDEX_WEIGHT,
    ROLE_Q_A, ROLE_Q_A_BIAS, ROLE_Q_A_NORM, ROLE_Q, ROLE_KV_A, ROLE_KV_A_BIAS, ROLE_KV_A_NORM, ROLE_KV_B,
    ROLE_ATTENTION_GATE, ROLE_ATTENTION_OUT_NORM, ROLE_FFN_OUT_NORM, ROLE_EXPERTS_NORM, ROLE_EXPERTS_OUT_NORM,
    ROLE_SHARED_OUT_NORM, ROLE_LAYER_SCALE, ROLE_ROUTER_NORM, ROLE_EXPERT_SCALE, ROLE_SINKS, ROLE_ROUTER_BIAS,
    ROLE_EXPERTS_GATE_UP_BIAS, ROLE_EXPERTS_DOWN_BIAS,
    ROLE_DELTA_IN, ROLE_DELTA_GATES, ROLE_DELTA_CONV, ROLE_DELTA_CONV_BIAS, ROLE_DELTA_NEG_A, ROLE_DELTA_STEP_BIAS,
    ROLE_DELTA_SKIP, ROLE_DELTA_NORM, ROLE_DELTA_OUT, ROLE_DELTA_GATE, ROLE_DELTA_STEPS,
    ROLE_PREDICT_EMBED, ROLE_PREDICT_HEAD, ROLE_PREDICT_NORM, ROLE_PREDICT_EMBED_NORM, ROLE_PREDICT_HIDDEN_NORM,
    ROLE_PREDICT_JOINT,
    /* of draft heads */
    ROLE_JOINT, ROLE_JOINT_BIAS, ROLE_STATES_NORM, ROLE_STATE_NORM, ROLE_EMBED_NORM, ROLE_HIDDEN_NORM, ROLE_BRANCH_UP,
    ROLE_BRANCH_DOWN, ROLE_BLOCK, ROLE_BLOCK_BIAS, ROLE_RESIDUAL, ROLE_RESIDUAL_BIAS, ROLE_OUTPUT, ROLE_OUTPUT_BIAS
};

struct tensor {
    const char *name;
    enum tensor_kind kind;
    enum tensor_role role;
    int layer;                       /* -1: in no layer; for tensors of a draft head's heads the number of the head */
    int stage;                       /* draft heads: number of the block, branch or state; else 0 */
    enum weight_format format;       /* VECTOR: FORMAT_F32 */
    bool mixed;                      /* the last part (v of qkv, or down of EXPERTS) is a MATRIX of its own in last_format */
    enum weight_format last_format;
    int last;                        /* qkv: rows of v; else 0 */
    int outputs, inputs;             /* VECTOR: outputs elements, inputs 1; EXPERTS: hidden, inner */
    int count;                       /* EXPERTS: blocks; else 1 */
    bool ungated;                    /* EXPERTS: blocks have no gate */
    uint64_t offset, stride, bytes;  /* in the file; bytes covers all blocks */
    struct digest128 digest;         /* of those bytes */
};

/* The identity of a model: for streams, and to distinguish model files. */
struct model_identity {
    struct sha256 index;             /* digest of this file's index: identifies exactly this file */
    struct sha256 source;            /* digest of the source weights, before any change of dtype or inflation */
    struct sha256 tokenizer;         /* zeros: none */
    char name[64];
    char dtype[32];                  /* "bf16", or "f32, experts bf16" */
    int layers, moe_layers, experts, top_k, vocab, hidden;
    int inflated_from;               /* inner width before inflation: of the experts, or of dense layers without experts; 0:
                                      * not inflated */
    bool synthetic;                  /* random weights */
};

/* Returns the format of the last part. */
static inline enum weight_format tensor_last_format(const struct tensor *tensor)
{
    return tensor->mixed ? tensor->last_format : tensor->format;
}

/* Returns the offset of the last part in a block: down of EXPERTS, or v of a mixed qkv. */
static inline size_t tensor_last_offset(const struct tensor *tensor)
{
    size_t units = (size_t)(tensor->outputs - tensor->last + UNIT_OUTPUTS - 1) / UNIT_OUTPUTS;
    if (tensor->kind == TENSOR_EXPERTS)
        return (tensor->ungated ? ungated_down_offset : expert_down_offset)(tensor->format, tensor->outputs, tensor->inputs);
    return unit_bytes(tensor->format, tensor->inputs) * units;
}

/* A part of a block: a whole matrix, or one of the matrices of an expert. */
enum block_part { BLOCK_ROWS, BLOCK_GATE, BLOCK_UP, BLOCK_DOWN };

/* Packs rows `first` .. `first + rows` of a part of a block of one format, like matrix_pack (kernels/formats.h). */
void block_pack(const struct tensor *tensor, void *packed, enum block_part part, int first, int rows, const float *values);

double tensor_parameters(const struct tensor *tensor);      /* number of parameters */

struct model;

/* Opens a model and maps it; checks magic, index digest, every size and offset against the file and against hparams. The data's
 * digests are checked by model_verify only. */
int model_open(struct model **out, const char *path, struct err *err);
int model_open_head(struct model **out, const char *path, struct err *err);     /* opens the file of a draft head */
int model_open_any(struct model **out, const char *path, struct err *err);      /* either */
/* Opens a model, and reads everything but the routed experts into memory; maps nothing. Readers of experts use model_file;
 * model_data of routed experts must not be accessed. */
int model_open_dense(struct model **out, const char *path, struct err *err);
/* Reads a tensor that model_open_dense left out; its model_data may then be accessed. No-op for a tensor in memory. */
int model_bring(const struct model *model, const struct tensor *tensor, struct err *err);
void model_close(struct model **model);
int model_verify(const struct model *model, struct err *err);           /* of a mapped one */

const char *model_path(const struct model *model);
const struct hparams *model_hparams(const struct model *model);
const struct head_params *model_head(const struct model *model);       /* NULL: the file is a model */
const struct model_identity *model_identity(const struct model *model);

int model_tensor_count(const struct model *model);
const struct tensor *model_tensor_at(const struct model *model, int index);
/* Returns the tensor with a name, printf-style ("layers.%d.router"); NULL with err set if there is none. */
const struct tensor *model_tensor(const struct model *model, struct err *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
const void *model_data(const struct model *model, const struct tensor *tensor);
/* Releases the memory of a mapped tensor's pages; they are read again on the next access. No-op for tensors that are not
 * mapped. */
void model_forget(const struct model *model, const struct tensor *tensor);
/* Removes a block of a mapped EXPERTS tensor from the mapping; accessing the block is then an error. */
void model_leave_out(const struct model *model, const struct tensor *tensor, int block);
const struct direct_file *model_file(const struct model *model);       /* NULL: the model is mapped */

/* Texts of the checkpoint, NUL-terminated and valid while the model is open; NULL if the model has none. The chat template
 * is the one that applies: chat_template.jinja, or else that of tokenizer_config.json. */
const char *model_tokenizer_json(const struct model *model, size_t *bytes);
const char *model_chat_template(const struct model *model, size_t *bytes);

/* Further facts of the index (model_index.h): where the model came from, for the user and for viewers. */
struct model_facts;
const struct model_facts *model_facts(const struct model *model);

#endif

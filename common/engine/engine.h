/* One transformer for all model families: forwards over flat batches, which may be chains or trees.
 *
 * A SEQUENCE owns a KV cache: `length` committed tokens, followed by PENDING nodes. A forward appends its rows as pending
 * nodes 0, 1, 2, ... (numbered since the last commit or rollback, over several forwards). A node's parent is an earlier
 * pending node, or -1: the last committed token. Its position is its parent's plus one. It attends to the committed tokens
 * and to its own ancestors. sequence_commit keeps one path of pending nodes and drops the others.
 *
 * A node's results depend on its own path alone: not on siblings, order, chunking, threads, or the routes of other tokens.
 * There are two exceptions. Expert plans may depend on the scores of a whole forward. And a token of a prompt may be in a
 * SLAB: then its results depend on the tokens of that slab and of all before it, on its index in the slab, and on the slab's
 * length; see engine_prompt. */
#ifndef MOE_ENGINE_ENGINE_H
#define MOE_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/engine/expert_plan.h"
#include "common/engine/feature.h"
#include "common/model/model.h"
#include "common/store/expert_source.h"
#include "common/tensor/device.h"
#include "kernels/plain/sample.h"

enum { ENGINE_ROWS_MAX = 512, ENGINE_SLAB_ROWS = 1024, ENGINE_SLAB_MAX = 2048, ENGINE_EVERY_ROW = -1 };

struct engine;
struct sequence;

struct engine_setup {
    const struct model *model;           /* these three must stay open as long as the engine */
    struct device *device;
    struct expert_source *experts;       /* may be NULL for a model without expert layers */
    int max_rows;                        /* maximum rows of one forward, 1 .. 512 */
    int max_logit_rows;                  /* maximum rows of one forward with logits */
    int max_positions;                   /* longest sequence; 0: the model's own limit */
    enum cache_format cache;             /* format of keys and values */
    /* An expert source that receives forecasts: the experts chosen in this engine's forwards (which read their own from
     * another source) will soon be needed from it, too, because the drafter is a copy of its model, or the model with parts
     * left out. NULL: none. */
    struct expert_source *forecast_to;
    struct second *second;               /* a second processor for the experts of `experts` (second.h); NULL: none */
    struct peers *peers;                 /* processes that compute some of the experts of `experts` (peers.h); NULL: none */
    bool beside;                         /* forwards of this engine are not verifications: cache policies and splits do not
                                          * learn from them */
    bool look_ahead;                     /* forecast the next layer's experts by its router on this layer's state */
    bool forecast_forced;                /* forecast forced experts of all layers before a forward */
    /* Rows of a slab of a prompt, on devices that support slabs (info.slabs), 1 .. 2048; 0: no slabs. Results are only
     * bit-identical with the same value: all commands use ENGINE_SLAB_ROWS, with and without drafts. */
    int slab_rows;
    const struct stop *stop;             /* if requested, forwards fail within a layer with ERR_SIGNAL; NULL: never */
    bool experts_later;                  /* engine_set_experts will be called, before any other function */
};

/* Opens an engine. Bad sizes in the setup are errors. */
int engine_open(struct engine **out, const struct engine_setup *setup, struct err *err);
/* Sets `experts` and `forecast_to` of the setup later, when the caller knows how much memory the engine leaves for them. */
void engine_set_experts(struct engine *engine, struct expert_source *experts, struct expert_source *forecast_to);
void engine_set_second(struct engine *engine, struct second *second);        /* sets `second` later; NULL: none */
void engine_close(struct engine **engine);
const struct hparams *engine_hparams(const struct engine *engine);
const struct engine_setup *engine_config(const struct engine *engine);
int engine_max_positions(const struct engine *engine);         /* longest sequence: the setup's or the model's limit */

/* Returns the embedding and output matrices on the device, for draft heads without such matrices of their own. */
struct engine_ends {
    struct buffer embed, head, head_bias;        /* MATRIX [vocab][hidden]; head_bias [vocab], or none */
    enum weight_format embed_format, head_format;
    float scale;                                 /* factor of logits; 0: none */
};

struct engine_ends engine_ends(const struct engine *engine);

/* Opens a sequence for up to `capacity` tokens, committed and pending ones together. */
int sequence_open(struct sequence **out, struct engine *engine, int capacity, struct err *err);
void sequence_close(struct sequence **sequence);
int sequence_length(const struct sequence *sequence);          /* committed tokens */
int sequence_pending(const struct sequence *sequence);         /* nodes since the last commit or rollback */
int sequence_capacity(const struct sequence *sequence);

/* Keeps the path node[0], node[1], ... (each the parent of the next, the first a child of -1); drops all other nodes. */
int sequence_commit(struct sequence *sequence, const int32_t *node, int count, struct err *err);
void sequence_rollback(struct sequence *sequence);             /* drops all pending nodes */
int sequence_truncate(struct sequence *sequence, int length, struct err *err);    /* also drops committed tokens from
                                                                                   * `length` on; sequence_keeps returns the
                                                                                   * valid lengths */

/* Returns the bytes that a sequence needs for recurrent states, including a piece of a prompt, or a slab on a device with
 * slabs; 0 if no layer has a state. */
uint64_t sequence_state_bytes(const struct hparams *shape, bool slabs);

/* Returns the longest valid length, at most `length`, to which the sequence can be truncated (length <= sequence_length). It
 * is less than `length` only if layers have a recurrent state (recurrent.h), of which only the last few are kept. 0 is
 * always possible. */
int sequence_keeps(const struct sequence *sequence, int length);

/* Replaces the contents of `to` by the first `length` committed tokens of `from`, bit for bit. Their engines may differ, but
 * must have the same model, device and cache format. */
int sequence_copy(struct sequence *to, const struct sequence *from, int length, struct err *err);

/* The routed experts of another file of the same shape, converted from the same weights as the engine's model, but in its
 * own formats. */
struct experts_copy;
int experts_copy_open(struct experts_copy **out, struct engine *engine, const char *file, struct err *err);
void experts_copy_close(struct experts_copy **copy);

/* Layer halves that a forward omits. Where attention is omitted, nodes have no keys and values, so they can only be parents of
 * nodes with the same part. A part is identified by its address and must not change while such nodes are pending. Nodes of
 * several parts may be pending at once, each part with its own copy of the root. */
struct forward_part {
    const uint8_t *skip_attention, *skip_ffn;    /* [layers] 1: skip this half of the layer; NULL: none */
    int top_k;                           /* experts per row, fewer than the model's; 0: the model's number */
    const struct experts_copy *experts;  /* used in place of the model's own; NULL: none */
    /* Early exit after this many layers, 0: none. Logits are then computed from that layer's output by the final norm and
     * the head. If nothing else is left out and no layer has a state, a later forward can resume from its nodes
     * (batch.resume). */
    int layers;
};

/* How the target chooses a token (kernels/choose.h). */
struct engine_choice {
    struct sample_filter filter;
    struct sample_draw draw;             /* without the position, which is that of the row's next token */
};

/* Returns whether forwards can return chosen tokens in place of logits, because the device chooses them. */
bool engine_chooses(const struct engine *engine);
/* Returns how many of the most likely tokens forwards can return in place of logits; 0: the device does not rank. */
int engine_ranks(const struct engine *engine);

struct batch {
    int rows;
    const int32_t *token;                /* [rows] */
    const int32_t *parent;               /* [rows] pending node or -1; NULL: a chain after the newest pending node */
    const int32_t *logit_row;            /* [logit_rows] rows with logits, ascending; NULL: the first logit_rows */
    int logit_rows;
    const struct engine_choice *choice;  /* replaces logits by the token chosen after each row with logits; NULL: logits */
    int best;                            /* replaces logits by this many most likely tokens, up to engine_ranks; 0: logits */
    const struct expert_plan *plan;      /* NULL: none */
    const int32_t *forced;               /* [moe][rows][top_k] experts used in place of the router's, with equal weights;
                                          * NULL: none */
    const float *row_weight;             /* [rows] >= 0, for PLAN_PATH: the probability that the row is committed */
    bool want_reconstruction;            /* compute the error caused by a plan; the natural experts are computed, too */
    bool want_scores;                    /* router scores of all experts */
    bool want_ahead;                     /* each layer's experts as its router chooses them from the state of the previous
                                          * layer with experts */
    bool want_hidden;                    /* residual stream after each layer, before the final norm */
    const struct feature_request *features;      /* states of all rows, left on the device; NULL: none */
    const struct forward_part *part;     /* NULL: nothing is left out */
    /* Drops the pending nodes, whether the forward succeeds or fails, except those that exited early and are rows of this
     * batch, with the same token and the same tokens between the root and them. These rows resume after their exit layer,
     * bit-identical to rows that never stopped, unless this batch requests results of all layers. Parents are then rows of
     * this batch or -1; forward.node returns the nodes. */
    bool resume;
};

/* Results of a forward. The engine owns the arrays, which are valid until its next forward. moe = MoE layers, in order. */
struct forward {
    int rows, logit_rows, moe_layers, experts, top_k, vocab, layers, hidden_size;
    const float *logits;                 /* [logit_rows][vocab]; NULL with batch.choice or batch.best, which give: */
    const int32_t *choice;               /* [logit_rows] -1: the row's logits are not finite */
    const int32_t *best;                 /* [logit_rows][batch.best] tokens, as in kernels/top.h, with log-probabilities */
    const float *best_log_probability;
    /* [rows][moe][top_k] experts used, best first, -1: dropped or left out; NULL without MoE layers. Resumed rows include
     * the routing of the layers before their exit. */
    const int32_t *expert;
    const float *weight;                 /* [rows][moe][top_k] */
    const int32_t *wanted;               /* [rows][moe][top_k] the router's choice before any budget */
    const float *score;                  /* [rows][moe][experts], with want_scores */
    /* [moe][rows][top_k] with want_ahead, best first; -1 in the first layer. */
    const int32_t *ahead;
    const float *hidden;                 /* [rows][layers][hidden_size], with want_hidden */
    const int32_t *node;                 /* [rows] pending node of each row */
    struct buffer features;              /* [count][rows][hidden_size] f32 on the device, requested by batch.features */
    /* [moe] with want_reconstruction: sum over rows of |O - O*|^2 divided by that of |O*|^2, where O* is the output of the
     * experts of the natural routing and O that of the plan's (MoE-Spec section 4.5); 0 if the plan drops nothing; NaN for 0
     * / 0. */
    const float *reconstruction;
    const int32_t *distinct_wanted;      /* [moe] distinct experts of all rows */
    const int32_t *distinct_loaded;      /* [moe] of these, experts computed by this forward */
    int64_t expert_bytes;                /* bytes of one routed expert, averaged over layers */
    int64_t bytes;                       /* nominal: distinct experts loaded, dense tensors, KV in windows */
    /* Number of texts that shared the forward; number of their rows; [moe] distinct experts that ran for all of these; and
     * [moe] the part of distinct_loaded that ran for no other text. All other members are of this text alone, but `bytes`
     * contains its rows' share of the weights; these shares add up to all weights read. */
    int texts, all_rows;
    const int32_t *all_loaded, *only_loaded;
};

/* Runs a forward. On failure the sequence is unchanged, except that batch.resume may have dropped pending nodes. */
int engine_forward(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct forward *out,
                   struct err *err);

/* Runs one forward over the rows of several texts: weights are read once, and each row attends to its own sequence. batch[i]
 * is of sequence[i], all different, and out[i] receives the results of text i, bit-identical to those of engine_forward with
 * text i alone. The total of the rows, and of the rows with logits, must not exceed the engine's. All batches have forced
 * experts, or none has. Except for tokens, parents, logits, forced experts and the budgets of plans that rank by rows the
 * batches must request the same (engine_shares), and no part, reconstruction or plan by an oracle; other plans apply to each
 * text's rows separately. Rows cannot continue stopped nodes. On failure all sequences are unchanged, except for pending
 * nodes with batch.resume. */
int engine_forward_texts(struct engine *engine, struct sequence *const *sequence, const struct batch *batch, int texts,
                         struct forward *out, struct err *err);
bool engine_shares(const struct batch *one, const struct batch *other);

/* Commits a prompt (or its next part), cut into pieces at multiples of a fixed size from position 0: max_rows, or
 * max_logit_rows with logits of every row.
 *
 * On a device with slabs (setup.slab_rows, without logits of every row) a piece is a slab if possible: positions slab_rows *
 * i .. slab_rows * (i + 1) - 1, all in this part of the prompt. So the slab of a token depends only on where the part begins
 * and ends, not on drafts, max_rows or what follows the prompt. A caller that reuses keys and values of a prompt for another
 * one with the same beginning gets the bits of a new computation if both are cut at the same slabs: it must keep whole slabs
 * only, or none. Nodes of engine_forward are not in slabs.
 *
 * If experts are cached, pieces are grouped into spans of up to 4096 tokens (span.c): all pieces of a span run one layer
 * before the next, so each expert is read once per span. Spans are not used with a plan, scores or hidden states. The bits
 * are the same, and `each` receives the pieces in order.
 *
 * There must be no pending nodes. Only these options are used (options may be NULL): plan, want_scores, want_hidden,
 * features, best and logit_rows. ENGINE_EVERY_ROW requests the logits of all tokens; otherwise *out has those of the last
 * token. `each` (may be NULL) receives every piece's forward and the position of its first row; a negative result stops the
 * prompt. */
typedef int engine_piece_function(void *context, const struct forward *piece, int position, struct err *err);
int engine_prompt(struct engine *engine, struct sequence *sequence, const int32_t *token, int count,
                  const struct batch *options, engine_piece_function *each, void *context, struct forward *out,
                  struct err *err);

/* Returns how many tokens of a sequence can be kept for the next prompt, of `next` tokens. The sequence contains a text
 * whose prompt had `before` tokens; the first `same` tokens of the text also begin the next prompt. engine_prompt of the
 * rest must give the bits of computing everything: all `same` tokens can be kept, unless slabs would be at other positions. */
int engine_prompt_keeps(const struct engine *engine, int same, int before, int next);

#endif

/* One transformer for all families: forwards over flat batches that may be chains or trees.
 *
 * A SEQUENCE owns a KV cache: `length` committed tokens, after them PENDING nodes. A forward appends its rows as pending
 * nodes 0, 1, 2, ... (counted since the last commit or rollback, over several forwards). A node's parent is an earlier
 * pending node, or -1: the last committed token. Its position is its parent's plus one. It attends to the committed tokens
 * and to its own ancestors. sequence_commit keeps one path of pending nodes and drops the others.
 *
 * A node's results depend on its own path alone: not on siblings, order, chunking, threads, or where other tokens route. There
 * are two exceptions. Plans may go by the scores of a forward. And a token of a prompt may be in a SLAB: then its results
 * depend on the tokens of that slab and of all before it, on its place in the slab, and on the slab's length; see
 * engine_prompt. */
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

enum { ENGINE_ROWS_MAX = 512, ENGINE_SLAB_ROWS = 1024, ENGINE_SLAB_MAX = 2048, ENGINE_EVERY_ROW = -1 };

struct engine;
struct sequence;

struct engine_setup {
    const struct model *model;           /* these three stay open as long as the engine */
    struct device *device;
    struct expert_source *experts;       /* may be NULL for a model without expert layers */
    int max_rows;                        /* of one forward, 1 .. 512 */
    int max_logit_rows;                  /* rows of one forward whose logits may be asked for */
    int max_positions;                   /* longest sequence; 0: the model's own limit */
    enum cache_format cache;             /* what keys and values are kept in */
    /* A source that gets forecasts: the experts that this engine's forwards choose, which read theirs from another source. The
     * same will be wanted of it soon: a draft is by a copy of its model, or by the model with parts left out. NULL: none. */
    struct expert_source *forecast_to;
    struct second *second;               /* a second processor for what `experts` has (second.h); NULL: none */
    bool beside;                         /* its forwards are no verifications: neither policies nor splits learn of them */
    bool look_ahead;                     /* the next layer's router is asked on this layer's state: a forecast of its experts */
    bool forecast_forced;                /* forced experts of all layers are forecast before a forward */
    /* A slab of a prompt, on devices that take them (info.slabs), 1 .. 2048 rows; 0: none. Everything that is to have the same
     * bits must have the same here: ENGINE_SLAB_ROWS in all commands, with and without drafts. */
    int slab_rows;
    const struct stop *stop;             /* when it is asked for, forwards fail between two layers, ERR_SIGNAL; NULL: none */
    bool experts_later;                  /* engine_give_experts will be called, in front of everything else */
};

int engine_open(struct engine **out, const struct engine_setup *setup, struct err *err);
/* `experts` and `forecast_to` of the setup, for who must know how much memory an engine leaves for them. */
void engine_give_experts(struct engine *engine, struct expert_source *experts, struct expert_source *forecast_to);
void engine_give_second(struct engine *engine, struct second *second);       /* the same of `second`; NULL: none */
void engine_close(struct engine **engine);
const struct hparams *engine_hparams(const struct engine *engine);
const struct engine_setup *engine_config(const struct engine *engine);
int engine_max_positions(const struct engine *engine);         /* of a sequence: the setup's or the model's own limit */

/* Where tokens come in and logits go out, on the device, for draft heads that have no such matrices of their own. */
struct engine_ends {
    struct buffer embed, head, head_bias;        /* MATRIX [vocab][hidden]; head_bias [vocab] or none */
    enum weight_format embed_format, head_format;
    float scale;                                 /* of logits; 0: none */
};

struct engine_ends engine_ends(const struct engine *engine);

/* A sequence for up to `capacity` tokens, committed and pending together. */
int sequence_open(struct sequence **out, struct engine *engine, int capacity, struct err *err);
void sequence_close(struct sequence **sequence);
int sequence_length(const struct sequence *sequence);          /* committed tokens */
int sequence_pending(const struct sequence *sequence);         /* nodes since the last commit or rollback */
int sequence_capacity(const struct sequence *sequence);

/* Keeps the path node[0], node[1], ... (each the parent of the next, the first a child of -1); drops all other nodes. */
int sequence_commit(struct sequence *sequence, const int32_t *node, int count, struct err *err);
void sequence_rollback(struct sequence *sequence);             /* drops all pending nodes */
int sequence_truncate(struct sequence *sequence, int length, struct err *err);    /* and committed tokens from `length` on;
                                                                                   * sequence_keeps says where */

/* Bytes that a sequence has for states, with a piece of a prompt in it; 0 where no layer has one. */
uint64_t sequence_state_bytes(const struct hparams *shape);

/* The longest length up to `length`, which is at most sequence_length, to which the sequence can be cut: `length`, but where
 * layers have a state (recurrent.h): these have states of the last points alone. 0 is always possible. */
int sequence_keeps(const struct sequence *sequence, int length);

/* Makes the first `length` committed tokens of `from` all that `to` has, bit for bit. Their engines, which may be two, are of
 * one model, on one device, with one format of the cache. */
int sequence_copy(struct sequence *to, const struct sequence *from, int length, struct err *err);

/* The routed experts of another file, converted from the same weights as the engine's model and of its shape, but in formats
 * of its own. */
struct experts_copy;
int experts_copy_open(struct experts_copy **out, struct engine *engine, const char *file, struct err *err);
void experts_copy_close(struct experts_copy **copy);

/* What a forward leaves out. The nodes that it appends have no keys and values where it left attention out, so they can be
 * parents of nodes with the same part alone, which is known by its address: it must stay as it is as long as they are pending.
 * Nodes of several parts may be pending at once, each with a copy of the root of its own. */
struct forward_part {
    const uint8_t *skip_attention, *skip_ffn;    /* [layers] 1: this half of the layer is left out; NULL: none is */
    int top_k;                           /* experts a row, fewer than the model's; 0: its own number */
    const struct experts_copy *experts;  /* read in place of the model's own; NULL: none */
    /* It stops after so many layers, 0: it does not; logits are then of that point, through the final norm and the head. If
     * it leaves nothing else out, its nodes can be gone on from (batch.resume). */
    int layers;
};

struct batch {
    int rows;
    const int32_t *token;                /* [rows] */
    const int32_t *parent;               /* [rows] pending node or -1; NULL: a chain after the newest pending node */
    const int32_t *logit_row;            /* [logit_rows] rows whose logits are wanted, ascending; NULL: the first logit_rows */
    int logit_rows;
    const struct expert_plan *plan;      /* NULL: none */
    const int32_t *forced;               /* [moe][rows][top_k] experts in place of the router's, equal weights; NULL: none */
    const float *row_weight;             /* [rows] not negative, for PLAN_PATH: how likely a row is to be committed */
    bool want_reconstruction;            /* what a plan costs in accuracy; computes the natural experts, too */
    bool want_scores;                    /* router scores of all experts */
    bool want_hidden;                    /* residual stream after each layer, before the final norm */
    const struct feature_request *features;      /* of all rows, left on the device; NULL: none */
    const struct forward_part *part;     /* what is left out; NULL: nothing */
    /* Pending nodes are dropped, whether the forward succeeds or fails, but for those that were stopped on their way through
     * all layers and are rows of this batch: same token, same tokens between the root and them. These rows go on from there,
     * with the bits of a row that never stopped, unless what is asked of this batch wants all layers of them. Parents are
     * rows of this batch then, or -1; forward.node tells the nodes. */
    bool resume;
};

/* What a forward computed. Arrays are the engine's and stay until its next forward. moe = expert layers, in order. */
struct forward {
    int rows, logit_rows, moe_layers, experts, top_k, vocab, layers, hidden_size;
    const float *logits;                 /* [logit_rows][vocab] */
    /* [rows][moe][top_k] applied, best first, -1: dropped or left out; NULL without expert layers. Rows that were gone on from
     * have their routing of the layers before that, too. */
    const int32_t *expert;
    const float *weight;                 /* [rows][moe][top_k] */
    const int32_t *wanted;               /* [rows][moe][top_k] what the router chose before any budget */
    const float *score;                  /* [rows][moe][experts], with want_scores */
    const float *hidden;                 /* [rows][layers][hidden_size], with want_hidden */
    const int32_t *node;                 /* [rows] the pending node that each is */
    struct buffer features;              /* [count][rows][hidden_size] f32 on the device, as batch.features asked */
    /* [moe] with want_reconstruction: sum over rows of |O - O*|^2 over that of |O*|^2, O* what the experts of the natural
     * routing add and O those of the plan (MoE-Spec section 4.5); 0 where the plan leaves nothing out; NaN for 0 / 0. */
    const float *reconstruction;
    const int32_t *distinct_wanted;      /* [moe] distinct experts of all rows */
    const int32_t *distinct_loaded;      /* [moe] of those that this forward ran */
    int64_t expert_bytes;                /* of one routed expert, on average over layers */
    int64_t bytes;                       /* nominal: distinct experts loaded, dense tensors, KV in windows */
};

/* On failure the sequence is as before, but for pending nodes with batch.resume. */
int engine_forward(struct engine *engine, struct sequence *sequence, const struct batch *batch, struct forward *out,
                   struct err *err);

/* Commits a prompt (or the next part of one), cut into pieces at multiples of a fixed size from position 0: max_rows, or
 * max_logit_rows with logits of every row.
 *
 * On a device that takes slabs (setup.slab_rows, without logits of every row) a piece is a slab when it can be: positions
 * slab_rows * i .. slab_rows * (i + 1) - 1, all in this part of the prompt. So which tokens are in slabs, and in which, follows
 * from where the part begins and ends: not from drafts, from max_rows or from what comes after the prompt. Whoever keeps keys
 * and values of a prompt for another one that begins alike gets the bits of computing it anew if both are cut at the same
 * slabs: keep whole slabs only, or none. Nodes of engine_forward are in no slab.
 *
 * If experts are cached, pieces are grouped into spans of up to 4096 tokens (span.c): all pieces of a span run one layer before
 * the next, so each expert is read once per span. Spans are not used with a plan, scores or hidden states. The bits are the
 * same, and `each` receives the pieces in order.
 *
 * There must be no pending nodes. Of options (may be NULL) plan, want_scores, want_hidden, features and logit_rows count:
 * ENGINE_EVERY_ROW asks for the logits of all tokens, else *out has those of the last token alone. each (may be NULL) sees
 * every piece's forward and the position of its first row; less than 0 stops. */
typedef int engine_piece_function(void *context, const struct forward *piece, int position, struct err *err);
int engine_prompt(struct engine *engine, struct sequence *sequence, const int32_t *token, int count,
                  const struct batch *options, engine_piece_function *each, void *context, struct forward *out,
                  struct err *err);

/* A sequence holds a text whose prompt had `before` tokens; the first `same` of the text also begin the next prompt, of `next`
 * tokens. How many of them can stay, so that engine_prompt of the others gives the bits of computing all of it: all, but where
 * slabs would lie elsewhere. */
int engine_prompt_keeps(const struct engine *engine, int same, int before, int next);

#endif

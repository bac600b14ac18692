/* The recurrent states of one text in layers that have one, and the updates by its last tokens and pending nodes
 * (kernels/delta.h).
 *
 * It accompanies the KV cache, which counts tokens and knows parents (kv.h). Each token since the beginning of the second
 * last segment, and each pending node, has a slot. A state belongs to the beginning of a segment on some path; all layers
 * use the same numbers of slots and states. Nothing is moved: a commit keeps the slots of its path, and states computed by a
 * draft stay valid when it is committed, because they have the same bits as those of the text alone.
 *
 * Therefore a text can be truncated by some tokens without reading it again: to a length that recurrent_keeps returns. */
#ifndef MOE_ENGINE_RECURRENT_H
#define MOE_ENGINE_RECURRENT_H

#include "common/engine/kv.h"
#include "common/model/hparams.h"

enum { RECURRENT_TAIL = 2 * DELTA_BORDER + CONV_TAPS_MAX };

/* A token or node: its slot; the state at the beginning of its segment; the state after it, if it ends a segment. */
struct recurrent_node {
    int32_t slot, own, after;
};

struct recurrent_plan {
    int length, pending;                             /* as in the KV cache; `tail` contains the last tokens */
    int tail_count;
    struct recurrent_node tail[RECURRENT_TAIL];
};

/* One layer's buffers, in the layout of kernels/delta.h. */
struct recurrent_layer {
    struct buffer conv, key, decay, correction, state;
};

struct recurrent {
    struct device *device;
    const struct hparams *shape;
    int layers, slots, states;                       /* number of layers with a state; capacities, which grow */
    struct recurrent_layer *layer;                   /* [layers of the shape] */
    struct recurrent_plan now, held;                 /* held: saved for recurrent_rewind; length -1: nothing saved */
    struct recurrent_node *node;                     /* [node_room] by pending node */
    size_t node_room;
    bool *slot_used, *state_used;                    /* [slots], [states] */
    int made_count;                                  /* number of entries in `made`, set by the last recurrent_fill */
    int32_t *made;                                   /* nodes (>= 0) and tokens of the text (counted from its end; -1: the
                                                      * last) whose state `after` this forward computes */
    size_t made_room;
};

/* Arguments of the kernels (kernels/delta.h) for the rows of a forward, on the device. */
struct recurrent_rows {
    struct buffer slot, parent, own, before, past, path_start, path;     /* i32 */
};

struct recurrent_table {
    struct device *device;
    struct recurrent_rows at;
    int32_t *value;                                  /* scratch */
    size_t value_room;
};

/* Opens the states of a text. *recurrent is uninitialised before; close it also if this failed. It stays empty for a shape
 * without such layers. */
int recurrent_open(struct recurrent *recurrent, struct device *device, const struct hparams *shape, struct err *err);
void recurrent_close(struct recurrent *recurrent);

/* Returns the bytes for the states of a text, and for the slots of its last tokens and `nodes` pending nodes. */
uint64_t recurrent_bytes(const struct hparams *shape, int nodes);

/* Allocates a table for up to max_rows rows; it stays empty if no layer has a state. */
int recurrent_table_open(struct recurrent_table *table, struct device *device, int max_rows, const struct hparams *shape,
                         struct err *err);
void recurrent_table_close(struct recurrent_table *table);

/* Returns the part of the table for the rows from row `first` on, which are those of text number `text` of a forward. */
struct recurrent_rows recurrent_table_part(const struct recurrent_table *table, const struct hparams *shape, int first,
                                           int text);

/* Assigns slots and states to these nodes and uploads their rows' arguments to `at`, a part of the table. Nodes from
 * now.pending on are new; kv has their parents. With `chain` the rows are a piece of a prompt, which is committed whole after
 * the forward: a state is freed as soon as no later row needs it. After a failure the caller calls recurrent_drop. */
int recurrent_fill(struct recurrent *recurrent, struct recurrent_table *table, const struct recurrent_rows *at,
                   const struct kv *kv, const int32_t *node, int rows, bool chain, struct err *err);

/* Forgets the states after tokens of the text that the last recurrent_fill assigned; its own nodes keep them. Used for a
 * forward that leaves layers out, because it computes these states in some layers only. */
void recurrent_forget_made(struct recurrent *recurrent);

/* Drops the nodes from `pending` on; with `failed` also what the last recurrent_fill would have made. */
void recurrent_drop(struct recurrent *recurrent, int pending, bool failed);

/* Appends a path of nodes to the text; kv_commit has checked that it is a path. */
void recurrent_commit(struct recurrent *recurrent, const int32_t *node, int count);

/* recurrent_keeps returns the longest valid length, at most `length`; recurrent_truncate truncates the text to it and drops
 * all pending nodes. */
int recurrent_keeps(const struct recurrent *recurrent, int length);
void recurrent_truncate(struct recurrent *recurrent, int length);

/* Return to a state for several pieces that run layer by layer: _hold saves the present state of the text, _rewind returns
 * to it for the next layer, _release discards it. */
void recurrent_hold(struct recurrent *recurrent);
void recurrent_rewind(struct recurrent *recurrent);
void recurrent_release(struct recurrent *recurrent);

/* Makes `to` a copy of `from`, whose engine has the same model and device. */
int recurrent_copy(struct recurrent *to, const struct recurrent *from, struct err *err);

#endif

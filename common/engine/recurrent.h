/* The states of one text in layers that have one, and what its tokens and pending nodes add since (kernels/delta.h).
 *
 * Beside the KV cache, which counts tokens and knows parents (kv.h), each token since the beginning of the segment before the
 * last one, and each pending node, has a slot. A state belongs to the beginning of a segment on some path; all layers use the
 * same numbers of slots and states. Nothing is moved: a commit keeps the slots of its path, and states that a draft made stay
 * when it is committed, as they have the bits that the text alone would have given them.
 *
 * Therefore a text can be truncated by some tokens without reading it again: to a length that recurrent_keeps returns. */
#ifndef MOE_ENGINE_RECURRENT_H
#define MOE_ENGINE_RECURRENT_H

#include "common/engine/kv.h"
#include "common/model/hparams.h"

enum { RECURRENT_TAIL = 2 * DELTA_BORDER + CONV_TAPS_MAX };

/* A token or node: its slot; the state at the beginning of its segment; the state after it, if a segment ends with it. */
struct recurrent_node {
    int32_t slot, own, after;
};

struct recurrent_plan {
    int length, pending;                             /* as the KV cache has them; `tail` are the last of the tokens */
    int tail_count;
    struct recurrent_node tail[RECURRENT_TAIL];
};

/* One layer's part, each as kernels/delta.h says. */
struct recurrent_layer {
    struct buffer conv, key, decay, correction, state;
};

struct recurrent {
    struct device *device;
    const struct hparams *shape;
    int layers, slots, states;                       /* layers with a state; capacities, which grow */
    struct recurrent_layer *layer;                   /* [layers of the shape] */
    struct recurrent_plan now, held;                 /* held: kept for recurrent_rewind; length -1: nothing is */
    struct recurrent_node *node;                     /* [node_room] pending */
    size_t node_room;
    bool *slot_used, *state_used;                    /* [slots], [states] */
    int made_count;                                  /* of the forward that recurrent_fill was for last */
    int32_t *made;                                   /* tokens (negative, from the last: -1) and nodes whose `after` it makes */
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

/* *recurrent holds nothing before; close it also when this has failed. For a shape without such layers it stays empty. */
int recurrent_open(struct recurrent *recurrent, struct device *device, const struct hparams *shape, struct err *err);
void recurrent_close(struct recurrent *recurrent);

/* Bytes of the states of a text, and of slots for its last tokens and `nodes` pending nodes. */
uint64_t recurrent_bytes(const struct hparams *shape, int nodes);

int recurrent_table_open(struct recurrent_table *table, struct device *device, int max_rows, const struct hparams *shape,
                         struct err *err);
void recurrent_table_close(struct recurrent_table *table);

/* Assigns slots and states to these nodes and uploads their rows' arguments to `table`. Nodes from now.pending on are new; kv
 * has their parents. With `chain` the rows are a piece of a prompt, which is committed whole after the forward: a state is
 * freed as soon as no later row needs it. After a failure the caller calls recurrent_drop. */
int recurrent_fill(struct recurrent *recurrent, struct recurrent_table *table, const struct kv *kv, const int32_t *node,
                   int rows, bool chain, struct err *err);

/* Drops the nodes from `pending` on; with `failed` also what the last recurrent_fill would have made. */
void recurrent_drop(struct recurrent *recurrent, int pending, bool failed);

/* Appends the path to the text; kv_commit has checked that it is one. */
void recurrent_commit(struct recurrent *recurrent, const int32_t *node, int count);

/* The longest length up to `length` to which the text can be cut; and cuts it, with all pending nodes dropped. */
int recurrent_keeps(const struct recurrent *recurrent, int length);
void recurrent_truncate(struct recurrent *recurrent, int length);

/* For several pieces that go through the layers together: _hold saves the present text, _rewind returns to it for the next
 * layer, _release ends this. */
void recurrent_hold(struct recurrent *recurrent);
void recurrent_rewind(struct recurrent *recurrent);
void recurrent_release(struct recurrent *recurrent);

/* Makes the text that of `from`, whose engine has the same model and device. */
int recurrent_copy(struct recurrent *to, const struct recurrent *from, struct err *err);

#endif

/* The operations that networks are made of, forward and backward, on f32 of the host. Each adds its gradients to those of the
 * values it took, where these are wanted. tests/unit/test_train_operation.c holds them against plain references and their
 * gradients against finite differences. */
#ifndef MOE_TRAIN_OPERATION_H
#define MOE_TRAIN_OPERATION_H

#include "common/train/batch.h"
#include "common/train/tape.h"

/* What is given and has no gradient: [rows][width], which stays. */
struct variable *op_constant(struct tape *tape, int rows, int width, const float *data);

/* x W^T + bias: W [outputs][inputs], bias [1][outputs] or NULL. */
struct variable *op_linear(struct tape *tape, struct variable *x, struct variable *weight, struct variable *bias);

struct variable *op_add(struct tape *tape, struct variable *a, struct variable *b);
/* [a; b; ..], side by side; count at most JOIN_MAX. */
enum { JOIN_MAX = 66 };
struct variable *op_join(struct tape *tape, struct variable *const *parts, int count);
/* Row i is row[i] of x; -1: zeros. `row` is copied. */
struct variable *op_select(struct tape *tape, struct variable *x, const int *row, int rows);

/* w x / sqrt(mean(x^2) + epsilon), w [1][width]. */
struct variable *op_norm(struct tape *tape, struct variable *x, struct variable *weight, float epsilon);

struct variable *op_silu(struct tape *tape, struct variable *x);
struct variable *op_gelu(struct tape *tape, struct variable *x);              /* x (1 + erf(x / sqrt 2)) / 2 */
struct variable *op_gated(struct tape *tape, struct variable *x);             /* [gate up] -> silu(gate) up, half as wide */

/* u + a w0 E0 + b w1 E1, (w0, w1) the softmax of two neighbouring columns of `router` from `first` on, and
 *     MIX_SUM        a = b = 1
 *     MIX_CONTRAST   a = 1, b = -1 where the first of the two is larger, else the other way round */
enum mix { MIX_SUM, MIX_CONTRAST };
struct variable *op_mix(struct tape *tape, enum mix mix, struct variable *u, struct variable *router, int first,
                        struct variable *e0, struct variable *e1);

/* What attention is: rows of q, k, v are [heads + 2 kv_heads][head_dim]. */
struct attention {
    int heads, kv_heads, head_dim;
    float scale;
    const float *rotations;     /* [positions][head_dim / 2][2] cos and sin (common/engine/rope.h) */
    int positions;
};

/* Turns q and k: row i of a text to position i + shift. */
struct variable *op_rotate(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *qkv, int shift);

/* [rows][heads head_dim]. Queries are those of qkv[steps]; they see the keys of qkv[0] up to their own row, and of each of
 * qkv[1] .. qkv[steps] that of their own row alone (EAGLE-3's training by its own outputs, arXiv 2503.01840 section 3.2). All
 * are turned. */
enum { ATTENTION_STEPS_MAX = 16 };
struct variable *op_attention(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *const *qkv, int steps);

#endif

/* Operations of networks on a tape, forward and backward, built on kernels/learn.h. Each adds its gradients to those of its
 * input values that have one. tests/unit/test_train_operation.c compares them with plain references, and their gradients with
 * finite differences. */
#ifndef MOE_TRAIN_OPERATION_H
#define MOE_TRAIN_OPERATION_H

#include "common/train/batch.h"
#include "common/train/tape.h"

/* Wraps given data without a gradient: [rows][width] on the device; the caller owns it, and it must outlive the tape's step. */
struct variable *op_constant(struct tape *tape, int rows, int width, struct buffer data);

/* Computes x W^T + bias: W [outputs][inputs], bias [1][outputs] or NULL. */
struct variable *op_linear(struct tape *tape, struct variable *x, struct variable *weight, struct variable *bias);

struct variable *op_add(struct tape *tape, struct variable *a, struct variable *b);
/* Concatenates columns: [a; b; ..]. count: at most JOIN_MAX. */
enum { JOIN_MAX = 66 };
struct variable *op_join(struct tape *tape, struct variable *const *parts, int count);
/* Selects rows: row i of the result is row row[i] of x, or zeros if row[i] is -1. Copies `row`. */
struct variable *op_select(struct tape *tape, struct variable *x, const int *row, int rows);

/* Computes the RMS norm: w x / sqrt(mean(x^2) + epsilon), w [1][width]. */
struct variable *op_norm(struct tape *tape, struct variable *x, struct variable *weight, float epsilon);

struct variable *op_silu(struct tape *tape, struct variable *x);
struct variable *op_gelu(struct tape *tape, struct variable *x);              /* x (1 + erf(x / sqrt 2)) / 2 */
struct variable *op_gated(struct tape *tape, struct variable *x);             /* [gate up] -> silu(gate) up, half the width */

/* The experts of each row: those with the largest scores in the router's first `experts` columns, in descending order, the
 * lower number first among equals. The input of an expert contains only its own rows, in ascending order; `row` finds each of
 * them. */
struct mix_choice {
    int slots;
    struct buffer expert;       /* [rows][slots] i32 */
    struct buffer row;          /* [rows][slots] i32: index of the row among the rows of that expert */
    int *rows_of;               /* [experts][rows] the inverse: the first count[e] are the rows of expert e */
    int count[LEARN_EXPERTS_MAX];
};
/* Chooses on the host: it waits for the router's scores, because the number of rows per expert determines the shapes of all
 * operations that follow. */
struct mix_choice *mix_choose(struct tape *tape, const struct variable *router, int experts, int slots);

/* Computes u + the sum of the outputs of the first `used` experts of each row, each weighted by the softmax of the columns
 * of `router` from column `first` on (enum learn_mix in kernels/learn.h). expert[e]: [choice->count[e]][width]. */
struct variable *op_mix(struct tape *tape, enum learn_mix mix, struct variable *u, struct variable *router, int first, int used,
                        struct variable *const *expert, int experts, const struct mix_choice *choice);

/* Shape of the attention; a row of qkv is [heads + 2 kv_heads][head_dim]. */
struct attention {
    int heads, kv_heads, head_dim;
    float scale;
    struct buffer rotations;    /* [positions][head_dim / 2][2] cos and sin (common/engine/rope.h) */
    int positions;
};

/* Rotates q and k: row i of a text to position i + shift. */
struct variable *op_rotate(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *qkv, int shift);

/* Attention output [rows][heads head_dim]. The queries are those of qkv[steps]. A row sees the keys of qkv[0] up to itself, and
 * from each of qkv[1] .. qkv[steps] only the key of its own row (EAGLE-3's training on its own outputs, arXiv 2503.01840
 * section 3.2). All queries and keys must be rotated. */
struct variable *op_attention(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *const *qkv, int steps);

#endif

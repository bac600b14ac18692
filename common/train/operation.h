/* The operations that networks are made of, forward and backward, of those of kernels/learn.h. Each adds its gradients to those
 * of the values it took, where these are wanted. tests/unit/test_train_operation.c holds them against plain references and
 * their gradients against finite differences. */
#ifndef MOE_TRAIN_OPERATION_H
#define MOE_TRAIN_OPERATION_H

#include "common/train/batch.h"
#include "common/train/tape.h"

/* What is given and has no gradient: [rows][width] of the device, which stays. */
struct variable *op_constant(struct tape *tape, int rows, int width, struct buffer data);

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

/* Which experts each row uses: those with the largest of the router's first `experts` columns, largest first, of equal ones the
 * lower. An expert that reads its rows alone, in ascending order, finds each at its place among them. */
struct mix_choice {
    int slots;
    struct buffer expert;       /* [rows][slots] i32 */
    struct buffer row;          /* [rows][slots] i32: which of the expert's rows it is */
    int *rows_of;               /* [experts][rows] and the other way round: the first count[e] are expert e's */
    int count[LEARN_EXPERTS_MAX];
};
/* The host chooses: it waits for the router, as how many rows an expert has is the shape of what follows. */
struct mix_choice *mix_choose(struct tape *tape, const struct variable *router, int experts, int slots);

/* u + the sum of what the first `used` experts of a row make of it, each weighed by the softmax of columns of `router` from
 * `first` on (enum learn_mix of kernels/learn.h). expert[e]: [choice->count[e]][width]. */
struct variable *op_mix(struct tape *tape, enum learn_mix mix, struct variable *u, struct variable *router, int first, int used,
                        struct variable *const *expert, int experts, const struct mix_choice *choice);

/* What attention is: rows of q, k, v are [heads + 2 kv_heads][head_dim]. */
struct attention {
    int heads, kv_heads, head_dim;
    float scale;
    struct buffer rotations;    /* [positions][head_dim / 2][2] cos and sin (common/engine/rope.h) */
    int positions;
};

/* Turns q and k: row i of a text to position i + shift. */
struct variable *op_rotate(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *qkv, int shift);

/* [rows][heads head_dim]. Queries are those of qkv[steps]; they see the keys of qkv[0] up to their own row, and of each of
 * qkv[1] .. qkv[steps] that of their own row alone (EAGLE-3's training by its own outputs, arXiv 2503.01840 section 3.2). All
 * are turned. */
struct variable *op_attention(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *const *qkv, int steps);

#endif

/* Tolerances between a device's result and the reference, which accumulates in double: |device - reference| <= absolute +
 * relative * |reference|. Tests draw inputs from -1 .. 1 and scale weights by 1/sqrt(inputs), so that sums are of the order
 * of 1. One table for all devices; comparisons may use only tolerances defined here. */
#ifndef MOE_TESTS_KERNEL_TOLERANCE_H
#define MOE_TESTS_KERNEL_TOLERANCE_H

struct tolerance {
    float absolute, relative;
};

/* Copies and selections: no arithmetic, or arithmetic of which the contract fixes every step. */
static const struct tolerance TOLERANCE_EXACT = {0, 0};

/* A chain of K fused multiply-adds in f32 rounds K times by half a unit (6e-8) of a partial sum of at most about 1; errors
 * of random sign grow with sqrt(K), 45 at K = 2048. */
static const struct tolerance TOLERANCE_LINEAR = {3e-6f, 3e-6f};

/* Two products in a row, and exp (1.1 units) between them. */
static const struct tolerance TOLERANCE_EXPERT_FFN = {4e-6f, 4e-6f};

/* Slabs (kernels/linear.h): activations and weights of 16 bits and more, rounded to 2^-18 of their value, 2e-6 of a sum; and
 * chains as long as the inputs, of which a tensor core truncates up to a unit (1.2e-7) per 16 products: 8e-6 at K = 2048 and
 * half a unit. Not confirmed on a GPU; the emulator's chains are fused multiply-adds. */
static const struct tolerance TOLERANCE_SLAB = {1.5e-5f, 1.5e-5f};
static const struct tolerance TOLERANCE_SLAB_EXPERT_FFN = {3e-5f, 3e-5f};

/* A sum of squares of one sign (relative error well below 1e-6), a root, a division, two products: relative only. */
static const struct tolerance TOLERANCE_NORM = {0, 1e-6f};

/* The same after subtraction of a mean, plus a bias: both may cancel. */
static const struct tolerance TOLERANCE_LAYER_NORM = {3e-6f, 1e-6f};

/* Two products and a sum of numbers below 2: each rounds by up to half a unit, and the sum may cancel. */
static const struct tolerance TOLERANCE_ROPE = {3e-7f, 1e-7f};

/* Scores of up to a few units, rounded in f32 (1e-6 at 8), go through exp: a relative error of that size in each share; then
 * a weighted mean of values below 1. */
static const struct tolerance TOLERANCE_ATTENTION = {4e-6f, 1e-6f};

/* exp of a difference of logits below 16 (exact after rounding), 1.1 units; a sum of up to 1024 of one sign; a division. */
static const struct tolerance TOLERANCE_SCORE = {1e-9f, 4e-6f};

/* SiLU and GELU of -4 .. 4: GELU lies within 1.2e-7 of its argument, and a sum of up to 8 is rounded. */
static const struct tolerance TOLERANCE_ACTIVATION = {1e-6f, 1e-6f};

/* Log-probabilities of -30 .. 0: a sum of one sign in a few hundred steps at most (a relative error below 1e-6 becomes an
 * absolute one of the logarithm), and two differences rounded. */
static const struct tolerance TOLERANCE_TOP = {4e-6f, 3e-7f};

/* The gated delta rule: keys of length 1, up to 15 corrections of the order of 1, each computed from the previous ones, and
 * a state that is rounded at each border and decays from one to the next. */
static const struct tolerance TOLERANCE_DELTA = {1e-5f, 1e-5f};

/* The larger of two numbers of -16 .. 16, and a logarithm of 0 .. 0.7 within 1.2e-7; sum and reference are each rounded by
 * half a unit. */
static const struct tolerance TOLERANCE_LOG_ADD = {1.2e-7f, 1.2e-7f};

/* A few products below 2 in a chain of sums, each of which is rounded once. */
static const struct tolerance TOLERANCE_BLEND = {2e-6f, 1e-6f};

/* exp of differences below 16 whose rounding is exact or 1e-6 of them, a sum of few, a division. */
static const struct tolerance TOLERANCE_BLEND_WEIGHTS = {1e-9f, 4e-6f};

/* Training (kernels/learn.h): a few operations on numbers below 4, each rounded once, and a sum over a width of some hundred
 * with terms below 1. Sums over some hundred rows, of at most 30, have the same tolerance. */
static const struct tolerance TOLERANCE_LEARN = {2e-6f, 2e-6f};
static const struct tolerance TOLERANCE_LEARN_ROWS = {6e-6f, 2e-6f};

/* Scores of up to some ten units, rounded in f32, go through exp; their shares are multiplied and added up over some hundred
 * rows. */
static const struct tolerance TOLERANCE_LEARN_ATTENTION = {1e-5f, 2e-6f};

/* Shares of a softmax whose exponents, up to 16, are rounded once: 1e-6 of a share, on both sides of the comparison. */
static const struct tolerance TOLERANCE_LEARN_SHARE = {4e-7f, 4e-6f};

/* The logarithm of such a sum, minus a sum of products of the order of 8. */
static const struct tolerance TOLERANCE_LEARN_LOSS = {4e-6f, 1e-6f};

#endif

/* Sums and functions over long vectors, by the best vectors of the processor; with the same bits on every one, since each
 * operation is rounded once and sums are kept in 16 parts that are added up in one order. */
#ifndef MOE_TRAIN_VECTOR_H
#define MOE_TRAIN_VECTOR_H

#include <stddef.h>

float vector_largest(const float *x, size_t count);             /* count > 0 */
double vector_dot(const float *a, const float *b, size_t count);
double vector_exp(float *x, size_t count, float shift);         /* x = exp(x - shift); their sum */
void vector_scale(float *x, size_t count, float factor);
void vector_add(float *to, const float *x, size_t count);                       /* to += x */
void vector_add_scaled(float *to, const float *x, size_t count, float factor);  /* to += factor x */
void vector_silu(float *out, const float *x, size_t count);
void vector_silu_back(float *to, const float *x, const float *gradient, size_t count);         /* to += gradient silu'(x) */
void vector_gated(float *out, const float *gate, const float *up, size_t count);               /* silu(gate) up */
void vector_gated_back(float *to_gate, float *to_up, const float *gate, const float *up, const float *gradient, size_t count);

/* One step of AdamW (optimiser.h) for `count` weights. */
struct adam_step {
    float keep;             /* what is left of a weight: 1 - rate * decay */
    float beta1, beta2;
    float rate;             /* divided by the first moment's correction */
    float root;             /* 1 / the root of the second moment's correction */
    float epsilon;
    float factor;           /* of gradients: clipping by norm */
    float bound;            /* gradients are cut to -bound .. bound; INFINITY: not */
};
void vector_adam(const struct adam_step *step, float *weight, float *first, float *second, const float *gradient, size_t count);

#endif

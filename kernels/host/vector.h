/* Sums and functions over long vectors, with the widest vectors of the processor. The bits are the same on every processor,
 * because each operation is rounded once, and sums are 16 partial sums that are added in a fixed order. */
#ifndef MOE_KERNELS_HOST_VECTOR_H
#define MOE_KERNELS_HOST_VECTOR_H

#include <stddef.h>

#include "kernels/learn.h"

float vector_largest(const float *x, size_t count);             /* returns the maximum; count > 0 */
double vector_dot(const float *a, const float *b, size_t count);
double vector_exp(float *x, size_t count, float shift);         /* x = exp(x - shift); returns their sum */
void vector_scale(float *x, size_t count, float factor);
void vector_add(float *to, const float *x, size_t count);                       /* to += x */
void vector_add_scaled(float *to, const float *x, size_t count, float factor);  /* to += factor x */
void vector_silu(float *out, const float *x, size_t count);
void vector_silu_back(float *to, const float *x, const float *gradient, size_t count);         /* to += gradient silu'(x) */
void vector_gated(float *out, const float *gate, const float *up, size_t count);               /* silu(gate) up */
void vector_gated_back(float *to_gate, float *to_up, const float *gate, const float *up, const float *gradient, size_t count);

/* Makes one step of AdamW for `count` weights. */
void vector_adam(const struct learn_adam *step, float *weight, float *first, float *second, const float *gradient,
                 size_t count);

#endif

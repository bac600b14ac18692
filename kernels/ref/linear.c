#include "kernels/ref/ref_internal.h"

/* Computes products with q8 and q4 in f32 at every step and in the order of the contract, because only one result is
 * correct. */
static void linear_quantised(struct queue *queue, const struct linear_args *a, const float *in, const void *weight,
                             const float *bias, float *out)
{
    int64_t blocks = quantised_blocks(a->inputs);
    struct quantised *x = ref_bytes(queue, a->operand, (uint64_t)(a->rows * blocks) * sizeof *x);
    for (int r = 0; r < a->rows; r++) {
        ref_quantise(in + (int64_t)r * a->in_stride, a->inputs, x + r * blocks);
        for (int o = 0; o < a->outputs; o++) {
            float *value = out + (int64_t)r * a->out_stride + o;
            float y = ref_quantised_product(a->format, weight, a->inputs, o, x + r * blocks);
            y = bias ? y + bias[o] : y;
            y = a->scale != 0 ? y * a->scale : y;
            *value = a->add ? y + *value : y;
        }
    }
}

void ref_linear(struct queue *queue, const struct linear_args *a)
{
    size_t bytes = 0;
    matrix_bytes(a->format, a->outputs, a->inputs, &bytes);
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, a->in_stride, a->inputs));
    const void *weight = ref_bytes(queue, a->weight, bytes);
    const float *bias = a->bias.address ? ref_floats(queue, a->bias, a->outputs) : NULL;
    float *out = ref_floats(queue, a->out, ref_span(a->rows, a->out_stride, a->outputs));
    if (format_quantised(a->format)) {
        linear_quantised(queue, a, in, weight, bias, out);
        return;
    }
    for (int r = 0; r < a->rows; r++)
        for (int o = 0; o < a->outputs; o++) {
            float *value = out + (int64_t)r * a->out_stride + o;
            double sum = bias ? bias[o] : 0;
            for (int k = 0; k < a->inputs; k++)
                sum += (double)matrix_at(a->format, weight, a->inputs, o, k) * in[(int64_t)r * a->in_stride + k];
            if (a->scale != 0)
                sum *= (double)a->scale;
            *value = (float)(a->add ? *value + sum : sum);
        }
}

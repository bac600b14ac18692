#include "kernels/ref/ref_internal.h"

/* Rows for which a weight is decoded once, because that takes longer than their products. */
enum { TILE = 16 };

/* Computes products with converted activations (ref_converts). */
static void linear_converted(struct queue *queue, const struct linear_args *a, const float *in, const void *weight,
                             const float *bias, float *out)
{
    const size_t bytes = operand_bytes(a->format, a->inputs);
    unsigned char *x = ref_bytes(queue, a->operand, (uint64_t)a->rows * bytes);
    for (int r = 0; r < a->rows; r++, x += bytes) {
        ref_convert(a->format, in + (int64_t)r * a->in_stride, a->inputs, x);
        for (int o = 0; o < a->outputs; o++) {
            float *value = out + (int64_t)r * a->out_stride + o;
            float y = ref_converted_product(a->format, weight, a->inputs, o, x);
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
    if (ref_converts(queue, a->format)) {
        linear_converted(queue, a, in, weight, bias, out);
        return;
    }
    for (int first = 0; first < a->rows; first += TILE)
        for (int o = 0; o < a->outputs; o++) {
            const int rows = a->rows - first < TILE ? a->rows - first : TILE;
            double sum[TILE];
            for (int r = 0; r < rows; r++)
                sum[r] = bias ? bias[o] : 0;
            for (int k = 0; k < a->inputs; k++) {
                const double w = (double)matrix_at(a->format, weight, a->inputs, o, k);
                for (int r = 0; r < rows; r++)
                    sum[r] += w * in[(int64_t)(first + r) * a->in_stride + k];
            }
            for (int r = 0; r < rows; r++) {
                float *value = out + (int64_t)(first + r) * a->out_stride + o;
                if (a->scale != 0)
                    sum[r] *= (double)a->scale;
                *value = (float)(a->add ? *value + sum[r] : sum[r]);
            }
        }
}

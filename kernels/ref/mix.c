#include <math.h>

#include "kernels/ref/ref_internal.h"

void ref_activate(struct queue *queue, const struct activate_args *a)
{
    const int from = row_stride(a->in_stride, a->width), more = row_stride(a->add_stride, a->width);
    const int to = row_stride(a->out_stride, a->width);
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, from, a->width));
    const float *add = a->add.address ? ref_floats(queue, a->add, ref_span(a->rows, more, a->width)) : NULL;
    float *out = ref_floats(queue, a->out, ref_span(a->rows, to, a->width));
    for (int r = 0; r < a->rows; r++)
        for (int i = 0; i < a->width; i++) {
            double x = in[(int64_t)r * from + i];
            double y = a->activation == ACTIVATION_GELU ? 0.5 * x * (1 + erf(x / sqrt(2))) : x / (1 + exp(-x));
            out[(int64_t)r * to + i] = (float)(add ? add[(int64_t)r * more + i] + y : y);
        }
}

void ref_blend(struct queue *queue, const struct blend_args *a)
{
    const int from = row_stride(a->in_stride, a->width), next = row_stride(a->part_stride, a->width);
    const int to = row_stride(a->out_stride, a->width);
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, from, a->width));
    const float *part = ref_floats(queue, a->part, ref_span(a->rows * a->slots, next, a->width));
    const float *weight = ref_floats(queue, a->weight, (int64_t)a->rows * a->slots);
    float *out = ref_floats(queue, a->out, ref_span(a->rows, to, a->width));
    for (int64_t r = 0; r < a->rows; r++)
        for (int i = 0; i < a->width; i++) {
            double sum = in[r * from + i];
            for (int64_t s = r * a->slots; s < (r + 1) * a->slots; s++)
                sum += (double)weight[s] * part[s * next + i];
            out[r * to + i] = (float)sum;
        }
}

void ref_blend_weights(struct queue *queue, const struct blend_weights_args *a)
{
    const int stride = row_stride(a->logits_stride, a->slots);
    const float *logits = ref_floats(queue, a->logits, ref_span(a->rows, stride, a->slots));
    float *weight = ref_floats(queue, a->weight, (int64_t)a->rows * a->slots);
    for (int64_t r = 0; r < a->rows; r++) {
        const float *logit = logits + r * stride;
        int largest = 0;
        double sum = 0;
        for (int s = 0; s < a->slots; s++)
            if (logit[s] >= logit[largest])
                largest = s;
        for (int s = 0; s < a->slots; s++)
            sum += exp((double)logit[s] - logit[largest]);
        for (int s = 0; s < a->slots; s++) {
            double share = exp((double)logit[s] - logit[largest]) / sum;
            double sign = s == largest ? 1 : -1;
            float *own = weight + r * a->slots + s;
            switch (a->rule) {
            case BLEND_SOFTMAX: *own = (float)share; break;
            case BLEND_CONTRAST: *own = (float)(sign * share); break;
            case BLEND_LARGEST: *own = s == largest; break;
            case BLEND_OTHERS: *own = s != largest; break;
            }
        }
    }
}

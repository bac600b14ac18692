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
            double y = a->activation == ACTIVATION_NONE ? x
                     : a->activation == ACTIVATION_TANH ? tanh(x)
                     : a->activation == ACTIVATION_GELU ? 0.5 * x * (1 + erf(x / sqrt(2))) : x / (1 + exp(-x));
            y *= a->scale != 0 ? (double)a->scale : 1;
            out[(int64_t)r * to + i] = (float)(add ? add[(int64_t)r * more + i] + y : y);
        }
}

void ref_log_add(struct queue *queue, const struct log_add_args *a)
{
    const int from = row_stride(a->in_stride, a->width), more = row_stride(a->add_stride, a->width);
    const int to = row_stride(a->out_stride, a->width);
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, from, a->width));
    const float *add = ref_floats(queue, a->add, ref_span(a->rows, more, a->width));
    float *out = ref_floats(queue, a->out, ref_span(a->rows, to, a->width));
    for (int64_t r = 0; r < a->rows; r++)
        for (int i = 0; i < a->width; i++) {
            double x = in[r * from + i], y = add[r * more + i], max = fmax(x, y);
            bool alike = x == y;            /* both may be -inf */
            out[r * to + i] = isnan(x) || isnan(y) ? NAN : (float)(max + log1p(alike ? 1 : exp(fmin(x, y) - max)));
        }
}

void ref_blend(struct queue *queue, const struct blend_args *a)
{
    const int from = row_stride(a->in_stride, a->width), next = row_stride(a->part_stride, a->width);
    const int to = row_stride(a->out_stride, a->width), apart = row_stride(a->slot_stride, a->slots);
    const int places = (a->rows - 1) * apart + a->slots;
    const float *in = a->in.address ? ref_floats(queue, a->in, ref_span(a->rows, from, a->width)) : NULL;
    const float *part = a->slots ? ref_floats(queue, a->part, ref_span(places, next, a->width)) : NULL;
    const float *weight = a->slots ? ref_floats(queue, a->weight, places) : NULL;
    float *out = ref_floats(queue, a->out, ref_span(a->rows, to, a->width));
    for (int64_t r = 0; r < a->rows; r++)
        for (int i = 0; i < a->width; i++) {
            double sum = in ? in[r * from + i] : 0;
            for (int64_t s = r * apart; s < r * apart + a->slots; s++)
                sum += (double)weight[s] * part[s * next + i];
            out[r * to + i] = (float)sum;
        }
}

void ref_blend_weights(struct queue *queue, const struct blend_weights_args *a)
{
    const int stride = row_stride(a->logits_stride, a->slots), to = row_stride(a->weight_stride, a->slots);
    const int named = row_stride(a->column_stride, a->slots);
    const int32_t *columns = a->column.address ? ref_integers(queue, a->column, ref_span(a->rows, named, a->slots)) : NULL;
    const float *logits = ref_floats(queue, a->logits, columns ? 1 : ref_span(a->rows, stride, a->slots));
    float *weight = ref_floats(queue, a->weight, ref_span(a->rows, to, a->slots));
    for (int64_t r = 0; r < a->rows; r++) {
        const float *row = logits + r * stride;
        const int32_t *column = columns ? columns + r * named : NULL;
        int largest = 0;
        double highest = row[column ? column[0] : 0], sum = 0;
        for (int s = 0; s < a->slots; s++)
            if (row[column ? column[s] : s] >= highest) {
                largest = s;
                highest = row[column ? column[s] : s];
            }
        for (int s = 0; s < a->slots; s++)
            sum += exp(row[column ? column[s] : s] - highest);
        for (int s = 0; s < a->slots; s++) {
            double share = exp(row[column ? column[s] : s] - highest) / sum;
            double sign = s == largest ? 1 : -1;
            float *own = weight + r * to + s;
            switch (a->rule) {
            case BLEND_SOFTMAX: *own = (float)share; break;
            case BLEND_CONTRAST: *own = (float)(sign * share); break;
            case BLEND_LARGEST: *own = s == largest; break;
            case BLEND_OTHERS: *own = s != largest; break;
            case BLEND_LARGEST_SHARE: *own = s == largest ? (float)share : 0; break;
            case BLEND_OTHERS_SHARE: *own = s != largest ? (float)share : 0; break;
            }
        }
    }
}

#include <math.h>
#include <string.h>

#include "kernels/ref/ref_internal.h"

void ref_embed(struct queue *queue, const struct embed_args *a)
{
    size_t bytes = 0;
    matrix_bytes(a->format, a->vocab, a->hidden, &bytes);
    const int32_t *token = ref_integers(queue, a->token, a->rows);
    const void *table = ref_bytes(queue, a->table, bytes);
    const int stride = row_stride(a->out_stride, a->hidden);
    float *out = ref_floats(queue, a->out, ref_span(a->rows, stride, a->hidden));
    for (int r = 0; r < a->rows; r++)
        for (int i = 0; i < a->hidden; i++)
            out[(int64_t)r * stride + i] =
                matrix_at(a->format, table, a->hidden, token[r], i) * (a->scale != 0 ? a->scale : 1);
}

void ref_norm(struct queue *queue, const struct norm_args *a)
{
    int64_t used = (int64_t)a->parts * a->width;
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, a->in_stride, used));
    const float *weight = a->weight.address ? ref_floats(queue, a->weight, a->apart ? used : a->width) : NULL;
    const float *bias = a->center && a->bias.address ? ref_floats(queue, a->bias, a->width) : NULL;
    float *out = ref_floats(queue, a->out, ref_span(a->rows, a->out_stride, used));
    for (int r = 0; r < a->rows; r++)
        for (int p = 0; p < a->parts; p++) {
            const float *x = in + (int64_t)r * a->in_stride + (int64_t)p * a->width;
            float *y = out + (int64_t)r * a->out_stride + (int64_t)p * a->width;
            double sum = 0, mean = 0;
            for (int i = 0; a->center && i < a->width; i++)
                mean += (double)x[i] / a->width;
            for (int i = 0; i < a->width; i++)
                sum += (x[i] - mean) * (x[i] - mean);
            for (int i = 0; i < a->width; i++)
                y[i] = (float)((x[i] - mean) / sqrt(sum / a->width + (double)a->epsilon) *
                               (weight ? weight[a->apart ? p * a->width + i : i] : 1) +
                               (bias ? bias[i] : 0));
        }
}

void ref_clamp(struct queue *queue, const struct clamp_args *a)
{
    float *x = ref_floats(queue, a->x, ref_span(a->rows, a->stride, a->width));
    for (int r = 0; r < a->rows; r++)
        for (int i = 0; i < a->width; i++) {
            float *value = x + (int64_t)r * a->stride + i;
            if (*value < -a->limit)
                *value = -a->limit;
            if (*value > a->limit)
                *value = a->limit;
        }
}

void ref_gather(struct queue *queue, const struct gather_args *a)
{
    const int from = row_stride(a->in_stride, a->width), to = row_stride(a->out_stride, a->width);
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, from, a->width));
    const int32_t *index = ref_integers(queue, a->index, a->count);
    float *out = ref_floats(queue, a->out, ref_span(a->count, to, a->width));
    for (int i = 0; i < a->count; i++)
        memcpy(out + (int64_t)i * to, in + (int64_t)index[i] * from, (size_t)a->width * sizeof *out);
}

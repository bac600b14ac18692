#include <math.h>
#include <string.h>

#include "common/base/float.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"

/* Dequantises one output of a packed matrix; its values are a step (or half a step) apart. */
static void embed_row(enum weight_format format, const unsigned char *table, int hidden, int token, float *out)
{
    if (format_scaled(format)) {
        for (int k = 0; k < hidden; k++)
            out[k] = matrix_at(format, table, hidden, token, k);
        return;
    }
    const unsigned char *unit = table + unit_bytes(format, hidden) * (size_t)(token / UNIT_OUTPUTS);
    size_t output = (size_t)(token % UNIT_OUTPUTS);
    for (size_t k = 0; k < (size_t)hidden; k++) {
        uint16_t half;
        if (format == FORMAT_F32) {
            memcpy(out + k, unit + k * UNIT_STEP_BYTES + output * 4, 4);
        } else if (format == FORMAT_F16) {
            memcpy(&half, unit + k * (UNIT_STEP_BYTES / 2) + output * 2, 2);
            out[k] = f16_to_f32(half);
        } else {
            memcpy(&half, unit + k / 2 * UNIT_STEP_BYTES + output * 4 + k % 2 * 2, 2);
            out[k] = bf16_to_f32(half);
        }
    }
}

static void embed_rows(void *argument, int member, int members)
{
    const struct embed_args *a = argument;
    size_t begin, end, stride = (size_t)row_stride(a->out_stride, a->hidden);
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        float *out = (float *)work_pointer(a->out) + r * stride;
        embed_row(a->format, work_pointer(a->table), a->hidden, ((const int32_t *)work_pointer(a->token))[r], out);
        for (int i = 0; a->scale != 0 && i < a->hidden; i++)
            out[i] *= a->scale;
    }
}

void cpu_embed(struct queue *queue, const struct embed_args *args)
{
    struct embed_args copy = *args;
    /* Each value is in a different cache line. */
    work_run(queue, (size_t)args->rows * (size_t)args->hidden * 64, embed_rows, &copy);
}

static void norm_part(const float *in, const float *weight, float *out, int width, float epsilon)
{
    float inverse = 1.0f / sqrtf(lanes_dot(in, in, width) / (float)width + epsilon);
    INDEPENDENT                 /* out may be the same buffer as in, but not a shifted one */
    for (int i = 0; i < width; i++)
        out[i] = weight ? in[i] * inverse * weight[i] : in[i] * inverse;
}

static void layer_norm_part(const float *in, const float *weight, const float *bias, float *out, int width, float epsilon)
{
    float lane[16] = {0};
    for (int i = 0; i < width; i++)
        lane[i % 16] += in[i];
    float mean = lanes_sum(lane) / (float)width;
    INDEPENDENT                 /* out may be the same buffer as in, but not a shifted one */
    for (int i = 0; i < width; i++)
        out[i] = in[i] - mean;
    float inverse = 1.0f / sqrtf(lanes_dot(out, out, width) / (float)width + epsilon);
    for (int i = 0; i < width; i++) {
        out[i] = weight ? out[i] * inverse * weight[i] : out[i] * inverse;
        if (bias)
            out[i] = out[i] + bias[i];
    }
}

static void norm_rows(void *argument, int member, int members)
{
    const struct norm_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t p = 0; p < (size_t)a->parts; p++) {
            const float *in = (const float *)work_pointer(a->in) + r * (size_t)a->in_stride + p * (size_t)a->width;
            float *out = (float *)work_pointer(a->out) + r * (size_t)a->out_stride + p * (size_t)a->width;
            const float *weight = a->weight.address ? work_pointer(a->weight) : NULL;
            if (weight && a->apart)
                weight += p * (size_t)a->width;
            if (a->center)
                layer_norm_part(in, weight, a->bias.address ? work_pointer(a->bias) : NULL, out, a->width, a->epsilon);
            else
                norm_part(in, weight, out, a->width, a->epsilon);
        }
}

void cpu_norm(struct queue *queue, const struct norm_args *args)
{
    struct norm_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->parts * (size_t)args->width * sizeof(float), norm_rows, &copy);
}

static void clamp_rows(void *argument, int member, int members)
{
    const struct clamp_args *a = argument;
    const float limit = a->limit;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        float *x = (float *)work_pointer(a->x) + r * (size_t)a->stride;
        for (int i = 0; i < a->width; i++) {
            float value = x[i] < -limit ? -limit : x[i];
            x[i] = value > limit ? limit : value;
        }
    }
}

void cpu_clamp(struct queue *queue, const struct clamp_args *args)
{
    struct clamp_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->width * sizeof(float), clamp_rows, &copy);
}

static void gather_rows(void *argument, int member, int members)
{
    const struct gather_args *a = argument;
    const int32_t *index = work_pointer(a->index);
    size_t begin, end, from = (size_t)row_stride(a->in_stride, a->width), to = (size_t)row_stride(a->out_stride, a->width);
    thread_pool_part((size_t)a->count, member, members, &begin, &end);
    for (size_t i = begin; i < end; i++)
        memcpy((float *)work_pointer(a->out) + i * to, (const float *)work_pointer(a->in) + (size_t)index[i] * from,
               (size_t)a->width * sizeof(float));
}

void cpu_gather(struct queue *queue, const struct gather_args *args)
{
    struct gather_args copy = *args;
    work_run(queue, (size_t)args->count * (size_t)args->width * sizeof(float), gather_rows, &copy);
}

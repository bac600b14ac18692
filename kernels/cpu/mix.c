#include <string.h>

#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

/* The activation, and whether `add` is none, are constants at each call, so each loop is vectorised separately. */
static inline __attribute__((always_inline)) void activate_row(enum activation activation, const float *in, const float *add,
                                                               float *out, float scale, int width)
{
    INDEPENDENT                 /* out may be the same buffer as in or add, but not a shifted one */
    for (int i = 0; i < width; i++) {
        float y = activation == ACTIVATION_NONE ? in[i] : activation == ACTIVATION_TANH ? plain_tanh(in[i])
                  : activation == ACTIVATION_GELU ? plain_gelu(in[i]) : plain_silu(in[i]);
        y = scale * y;
        out[i] = add ? add[i] + y : y;
    }
}

static void activate_rows(void *argument, int member, int members)
{
    const struct activate_args *a = argument;
    const size_t from = (size_t)row_stride(a->in_stride, a->width), more = (size_t)row_stride(a->add_stride, a->width);
    const size_t to = (size_t)row_stride(a->out_stride, a->width);
    const float scale = a->scale != 0 ? a->scale : 1.0f;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *in = (const float *)work_pointer(a->in) + r * from;
        const float *add = a->add.address ? (const float *)work_pointer(a->add) + r * more : NULL;
        float *out = (float *)work_pointer(a->out) + r * to;
        if (a->activation == ACTIVATION_NONE)
            add ? activate_row(ACTIVATION_NONE, in, add, out, scale, a->width)
                : activate_row(ACTIVATION_NONE, in, NULL, out, scale, a->width);
        else if (a->activation == ACTIVATION_TANH)
            add ? activate_row(ACTIVATION_TANH, in, add, out, scale, a->width)
                : activate_row(ACTIVATION_TANH, in, NULL, out, scale, a->width);
        else if (a->activation == ACTIVATION_GELU)
            add ? activate_row(ACTIVATION_GELU, in, add, out, scale, a->width)
                : activate_row(ACTIVATION_GELU, in, NULL, out, scale, a->width);
        else
            add ? activate_row(ACTIVATION_SILU, in, add, out, scale, a->width)
                : activate_row(ACTIVATION_SILU, in, NULL, out, scale, a->width);
    }
}

void cpu_activate(struct queue *queue, const struct activate_args *args)
{
    struct activate_args copy = *args;
    /* One value takes about as long as reading 16 bytes of memory. */
    work_run(queue, (size_t)args->rows * (size_t)args->width * 16, activate_rows, &copy);
}

static void log_add_row(const float *in, const float *add, float *out, int width)
{
    INDEPENDENT                 /* out may be the same buffer as in or add, but not a shifted one */
    for (int i = 0; i < width; i++)
        out[i] = plain_log_add(in[i], add[i]);
}

static void log_add_rows(void *argument, int member, int members)
{
    const struct log_add_args *a = argument;
    const size_t from = (size_t)row_stride(a->in_stride, a->width), more = (size_t)row_stride(a->add_stride, a->width);
    const size_t to = (size_t)row_stride(a->out_stride, a->width);
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        log_add_row((const float *)work_pointer(a->in) + r * from, (const float *)work_pointer(a->add) + r * more,
                    (float *)work_pointer(a->out) + r * to, a->width);
}

void cpu_log_add(struct queue *queue, const struct log_add_args *args)
{
    struct log_add_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->width * 16, log_add_rows, &copy);
}

/* Processes a section of a row at a time, whose sums stay in the first-level cache. */
static void blend_rows(void *argument, int member, int members)
{
    enum { STRETCH = 1024 };
    const struct blend_args *a = argument;
    const size_t from = (size_t)row_stride(a->in_stride, a->width), next = (size_t)row_stride(a->part_stride, a->width);
    const size_t to = (size_t)row_stride(a->out_stride, a->width), slots = (size_t)a->slots, width = (size_t)a->width;
    const size_t apart = (size_t)row_stride(a->slot_stride, a->slots);
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++) {
        const float *weight = (const float *)work_pointer(a->weight) + r * apart;
        for (size_t first = 0; first < width; first += STRETCH) {
            const size_t count = width - first < STRETCH ? width - first : STRETCH;
            float *out = (float *)work_pointer(a->out) + r * to + first;
            if (a->in.address)
                memmove(out, (const float *)work_pointer(a->in) + r * from + first, count * sizeof *out);
            else
                memset(out, 0, count * sizeof *out);
            for (size_t s = 0; s < slots; s++) {
                const float *restrict part = (const float *)work_pointer(a->part) + (r * apart + s) * next + first;
                float *restrict sum = out;
                for (size_t i = 0; i < count; i++)
                    sum[i] = __builtin_fmaf(weight[s], part[i], sum[i]);
            }
        }
    }
}

void cpu_blend(struct queue *queue, const struct blend_args *args)
{
    struct blend_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)(args->slots + 1) * (size_t)args->width * sizeof(float), blend_rows, &copy);
}

void cpu_blend_weights(struct queue *queue, const struct blend_weights_args *a)
{
    const size_t stride = (size_t)row_stride(a->logits_stride, a->slots);
    const size_t to = (size_t)row_stride(a->weight_stride, a->slots), named = (size_t)row_stride(a->column_stride, a->slots);
    (void)queue;                /* a few values only: waking the pool would take longer */
    for (size_t r = 0; r < (size_t)a->rows; r++)
        plain_blend_weights(a->rule, (const float *)work_pointer(a->logits) + r * stride,
                            a->column.address ? (const int32_t *)work_pointer(a->column) + r * named : NULL, a->slots,
                            (float *)work_pointer(a->weight) + r * to);
}

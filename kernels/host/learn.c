#include <math.h>
#include <string.h>

#include "kernels/host/internal.h"
#include "kernels/host/product.h"
#include "kernels/host/vector.h"

void host_learn_open(void) { product_open(); }

/* ---- products ---- */

static void run_product(struct queue *queue, const struct learn_product_args *p)
{
    product_run(host_pool(queue), &(struct product){p->kind, p->rows, p->columns, p->depth, {host_at(p->a), p->a_stride},
                                                    {host_at(p->b), p->b_stride}, host_at(p->c), p->c_stride, p->add});
}

/* ---- elements and rows ---- */

static void clear_part(const void *context, size_t begin, size_t end)
{
    const struct learn_clear_args *c = context;
    memset((float *)host_at(c->out) + begin, 0, (end - begin) * sizeof(float));
}

static void run_clear(struct queue *queue, const struct learn_clear_args *c) { host_spread(queue, c->count, 1, clear_part, c); }

static void add_part(const void *context, size_t begin, size_t end)
{
    const struct learn_add_args *s = context;
    const float *a = host_at(s->a), *b = host_at(s->b);
    float *out = host_at(s->out);
    for (size_t i = begin; i < end; i++)
        out[i] = a[i] + b[i];
}

static void run_add(struct queue *queue, const struct learn_add_args *a) { host_spread(queue, a->count, 3, add_part, a); }

static void copy_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_copy_args *c = context;
    const float *in = host_at(c->in);
    float *out = host_at(c->out);
    for (size_t row = begin; row < end; row++)
        memcpy(out + row * (size_t)c->out_stride, in + row * (size_t)c->in_stride, (size_t)c->width * sizeof *out);
}

static void run_copy(struct queue *queue, const struct learn_copy_args *c)
{
    host_spread(queue, (size_t)c->rows, (size_t)c->width, copy_rows, c);
}

static void accumulate_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_copy_args *c = context;
    const float *in = host_at(c->in);
    float *out = host_at(c->out);
    for (size_t row = begin; row < end; row++)
        vector_add(out + row * (size_t)c->out_stride, in + row * (size_t)c->in_stride, (size_t)c->width);
}

static void run_accumulate(struct queue *queue, const struct learn_copy_args *c)
{
    host_spread(queue, (size_t)c->rows, (size_t)c->width * 2, accumulate_rows, c);
}

static void add_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_row_args *a = context;
    for (size_t row = begin; row < end; row++)
        vector_add((float *)host_at(a->out) + row * (size_t)a->width, host_at(a->in), (size_t)a->width);
}

static void run_add_row(struct queue *queue, const struct learn_row_args *a)
{
    host_spread(queue, (size_t)a->rows, (size_t)a->width, add_rows, a);
}

/* Adds each column in the order of rows. */
static void sum_columns(const void *context, size_t begin, size_t end)
{
    const struct learn_row_args *a = context;
    for (size_t row = 0; row < (size_t)a->rows; row++)
        vector_add((float *)host_at(a->out) + begin, (const float *)host_at(a->in) + row * (size_t)a->width + begin,
                   end - begin);
}

static void run_sum_rows(struct queue *queue, const struct learn_row_args *a)
{
    host_spread(queue, (size_t)a->width, (size_t)a->rows, sum_columns, a);
}

static void select_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_select_args *s = context;
    const size_t width = (size_t)s->width;
    const int32_t *row = host_at(s->row);
    const float *in = host_at(s->in);
    float *out = host_at(s->out);
    for (size_t i = begin; i < end; i++)
        if (row[i] < 0)
            memset(out + i * width, 0, width * sizeof *out);
        else
            memcpy(out + i * width, in + (size_t)row[i] * width, width * sizeof *out);
}

static void run_select(struct queue *queue, const struct learn_select_args *s)
{
    host_spread(queue, (size_t)s->rows, (size_t)s->width, select_rows, s);
}

/* Adds rows for some of the columns. Threads divide columns rather than rows, because several rows may be added to the same
 * row. */
static void scatter_columns(const void *context, size_t begin, size_t end)
{
    const struct learn_select_args *s = context;
    const size_t width = (size_t)s->width;
    const int32_t *row = host_at(s->row);
    const float *in = host_at(s->in);
    float *out = host_at(s->out);
    for (size_t i = 0; i < (size_t)s->rows; i++)
        if (row[i] >= 0)
            vector_add(out + (size_t)row[i] * width + begin, in + i * width + begin, end - begin);
}

static void run_scatter(struct queue *queue, const struct learn_select_args *s)
{
    host_spread(queue, (size_t)s->width, (size_t)s->rows, scatter_columns, s);
}

/* ---- norm ---- */

static void norm_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_norm_args *n = context;
    const size_t width = (size_t)n->width;
    const float *weight = host_at(n->weight);
    for (size_t row = begin; row < end; row++) {
        const float *x = (const float *)host_at(n->x) + row * width;
        float *out = (float *)host_at(n->out) + row * width;
        const float inverse = (float)(1 / sqrt(vector_dot(x, x, width) / (double)width + (double)n->epsilon));
        for (size_t i = 0; i < width; i++)
            out[i] = weight[i] * (x[i] * inverse);
        ((float *)host_at(n->inverse))[row] = inverse;
    }
}

static void run_norm(struct queue *queue, const struct learn_norm_args *n)
{
    host_spread(queue, (size_t)n->rows, (size_t)n->width, norm_rows, n);
}

static void norm_back_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_norm_args *n = context;
    const size_t width = (size_t)n->width;
    const float *w = host_at(n->weight);
    for (size_t row = begin; row < end; row++) {
        const float *x = (const float *)host_at(n->x) + row * width, *dy = (const float *)host_at(n->gradient) + row * width;
        float *dx = (float *)host_at(n->gradient_to) + row * width;
        const float inverse = ((const float *)host_at(n->inverse))[row];
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)(w[i] * dy[i] * x[i]);
        const float share = (float)(sum / (double)width * (double)inverse * (double)inverse);
        for (size_t i = 0; i < width; i++)
            dx[i] += inverse * (w[i] * dy[i] - x[i] * share);
    }
}

static void run_norm_back(struct queue *queue, const struct learn_norm_args *n)
{
    host_spread(queue, (size_t)n->rows, (size_t)n->width, norm_back_rows, n);
}

static void norm_weight_columns(const void *context, size_t begin, size_t end)
{
    const struct learn_norm_args *n = context;
    const size_t width = (size_t)n->width;
    const float *gradient = host_at(n->gradient), *x = host_at(n->x), *inverse = host_at(n->inverse);
    float *to = host_at(n->gradient_to);
    for (size_t row = 0; row < (size_t)n->rows; row++)
        for (size_t i = begin; i < end; i++)
            to[i] += gradient[row * width + i] * (x[row * width + i] * inverse[row]);
}

static void run_norm_weight_back(struct queue *queue, const struct learn_norm_args *n)
{
    host_spread(queue, (size_t)n->width, (size_t)n->rows, norm_weight_columns, n);
}

/* ---- functions of single numbers ---- */

static void function_part(const void *context, size_t begin, size_t end)
{
    const struct learn_function_args *f = context;
    const float *x = host_at(f->x);
    float *out = host_at(f->out);
    if (f->function == LEARN_SILU) {
        vector_silu(out + begin, x + begin, end - begin);
        return;
    }
    for (size_t i = begin; i < end; i++)
        out[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}

static size_t function_cost(const struct learn_function_args *f) { return f->function == LEARN_SILU ? 8 : 32; }

static void run_function(struct queue *queue, const struct learn_function_args *f)
{
    host_spread(queue, f->count, function_cost(f), function_part, f);
}

static void function_back_part(const void *context, size_t begin, size_t end)
{
    const struct learn_function_args *f = context;
    const float *all = host_at(f->x), *gradient = host_at(f->gradient);
    float *to = host_at(f->gradient_to);
    if (f->function == LEARN_SILU) {
        vector_silu_back(to + begin, all + begin, gradient + begin, end - begin);
        return;
    }
    for (size_t i = begin; i < end; i++) {
        const float x = all[i];
        const float slope = 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
        to[i] += gradient[i] * slope;
    }
}

static void run_function_back(struct queue *queue, const struct learn_function_args *f)
{
    host_spread(queue, f->count, function_cost(f), function_back_part, f);
}

static void gated_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_gated_args *g = context;
    const size_t width = (size_t)g->width;
    for (size_t row = begin; row < end; row++) {
        const float *gate = (const float *)host_at(g->x) + row * 2 * width;
        vector_gated((float *)host_at(g->out) + row * width, gate, gate + width, width);
    }
}

static void run_gated(struct queue *queue, const struct learn_gated_args *g)
{
    host_spread(queue, (size_t)g->rows, (size_t)g->width * 8, gated_rows, g);
}

static void gated_back_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_gated_args *g = context;
    const size_t width = (size_t)g->width;
    for (size_t row = begin; row < end; row++) {
        const float *gate = (const float *)host_at(g->x) + row * 2 * width;
        float *to = (float *)host_at(g->gradient_to) + row * 2 * width;
        vector_gated_back(to, to + width, gate, gate + width, (const float *)host_at(g->gradient) + row * width, width);
    }
}

static void run_gated_back(struct queue *queue, const struct learn_gated_args *g)
{
    host_spread(queue, (size_t)g->rows, (size_t)g->width * 8, gated_back_rows, g);
}

/* ---- the optimiser ---- */

static void measure_blocks(const void *context, size_t begin, size_t end)
{
    const struct learn_measure_args *m = context;
    for (size_t i = begin; i < end; i++) {
        const float *g = (const float *)host_at(m->gradient) + i * LEARN_BLOCK;
        const size_t left = m->count - i * LEARN_BLOCK, count = left < LEARN_BLOCK ? left : LEARN_BLOCK;
        int64_t outside = 0;
        for (size_t k = 0; k < count; k++)
            outside += fabsf(g[k]) > m->bound;
        ((double *)host_at(m->squares))[i] = vector_dot(g, g, count);
        ((int64_t *)host_at(m->outside))[i] = outside;
    }
}

static void run_measure(struct queue *queue, const struct learn_measure_args *m)
{
    host_spread(queue, (m->count + LEARN_BLOCK - 1) / LEARN_BLOCK, LEARN_BLOCK, measure_blocks, m);
}

static void adam_part(const void *context, size_t begin, size_t end)
{
    const struct learn_adam_args *a = context;
    vector_adam(&a->step, (float *)host_at(a->weight) + begin, (float *)host_at(a->first) + begin,
                (float *)host_at(a->second) + begin, (const float *)host_at(a->gradient) + begin, end - begin);
}

static void run_adam(struct queue *queue, const struct learn_adam_args *a) { host_spread(queue, a->count, 4, adam_part, a); }

const struct learn_ops host_learn_ops = {
    .product = run_product,
    .unpack = host_learn_unpack,
    .clear = run_clear,
    .add = run_add,
    .copy = run_copy,
    .accumulate = run_accumulate,
    .add_row = run_add_row,
    .sum_rows = run_sum_rows,
    .select = run_select,
    .scatter = run_scatter,
    .norm = run_norm,
    .norm_back = run_norm_back,
    .norm_weight_back = run_norm_weight_back,
    .function = run_function,
    .function_back = run_function_back,
    .gated = run_gated,
    .gated_back = run_gated_back,
    .mix = host_learn_mix,
    .mix_back = host_learn_mix_back,
    .rotate = host_learn_rotate,
    .rotate_back = host_learn_rotate_back,
    .attention_scratch = host_learn_attention_scratch,
    .attention = host_learn_attention,
    .attention_back = host_learn_attention_back,
    .smooth = host_learn_smooth,
    .target = host_learn_target,
    .judge = host_learn_judge,
    .total = host_learn_total,
    .measure = run_measure,
    .adam = run_adam,
};

#include <math.h>
#include <string.h>

#include "kernels/ref/learn_internal.h"

const struct learn_ops ref_learn_ops = {
    .product = ref_learn_product,
    .unpack = ref_learn_unpack,
    .clear = ref_learn_clear,
    .add = ref_learn_add,
    .copy = ref_learn_copy,
    .accumulate = ref_learn_accumulate,
    .add_row = ref_learn_add_row,
    .sum_rows = ref_learn_sum_rows,
    .select = ref_learn_select,
    .scatter = ref_learn_scatter,
    .norm = ref_learn_norm,
    .norm_back = ref_learn_norm_back,
    .norm_weight_back = ref_learn_norm_weight_back,
    .function = ref_learn_function,
    .function_back = ref_learn_function_back,
    .gated = ref_learn_gated,
    .gated_back = ref_learn_gated_back,
    .mix = ref_learn_mix,
    .mix_back = ref_learn_mix_back,
    .rotate = ref_learn_rotate,
    .rotate_back = ref_learn_rotate_back,
    .attention_scratch = ref_learn_attention_scratch,
    .attention = ref_learn_attention,
    .attention_back = ref_learn_attention_back,
    .smooth = ref_learn_smooth,
    .target = ref_learn_target,
    .judge = ref_learn_judge,
    .total = ref_learn_total,
    .measure = ref_learn_measure,
    .adam = ref_learn_adam,
};

/* ---- products ---- */

void ref_learn_product(struct queue *queue, const struct learn_product_args *p)
{
    const bool outer = p->kind == LEARN_OUTER, by_rows = p->kind == LEARN_ROWS;
    const float *a = ref_floats(queue, p->a, outer ? ref_span(p->depth, p->a_stride, p->rows)
                                                   : ref_span(p->rows, p->a_stride, p->depth));
    const float *b = ref_floats(queue, p->b, by_rows ? ref_span(p->columns, p->b_stride, p->depth)
                                                     : ref_span(p->depth, p->b_stride, p->columns));
    float *c = ref_floats(queue, p->c, ref_span(p->rows, p->c_stride, p->columns));
    for (int64_t row = 0; row < p->rows; row++)
        for (int64_t column = 0; column < p->columns; column++) {
            double sum = 0;
            for (int64_t k = 0; k < p->depth; k++)
                sum += (double)(outer ? a[k * p->a_stride + row] : a[row * p->a_stride + k]) *
                       (double)(by_rows ? b[column * p->b_stride + k] : b[k * p->b_stride + column]);
            float *to = &c[row * p->c_stride + column];
            *to = (float)(p->add ? (double)*to + sum : sum);
        }
}

void ref_learn_unpack(struct queue *queue, const struct learn_unpack_args *u)
{
    size_t bytes = 0;
    matrix_bytes(u->format, u->outputs, u->inputs, &bytes);
    const void *matrix = ref_bytes(queue, u->matrix, bytes);
    float *out = ref_floats(queue, u->out, (int64_t)u->rows * u->inputs);
    for (int row = 0; row < u->rows; row++)
        for (int i = 0; i < u->inputs; i++)
            *out++ = matrix_at(u->format, matrix, u->inputs, u->first + row, i);
}

/* ---- elements and rows ---- */

void ref_learn_clear(struct queue *queue, const struct learn_clear_args *c)
{
    memset(ref_floats(queue, c->out, (int64_t)c->count), 0, c->count * sizeof(float));
}

void ref_learn_add(struct queue *queue, const struct learn_add_args *s)
{
    const float *a = ref_floats(queue, s->a, (int64_t)s->count), *b = ref_floats(queue, s->b, (int64_t)s->count);
    float *out = ref_floats(queue, s->out, (int64_t)s->count);
    for (size_t i = 0; i < s->count; i++)
        out[i] = a[i] + b[i];
}

static void copy_rows(struct queue *queue, const struct learn_copy_args *c, bool add)
{
    const float *in = ref_floats(queue, c->in, ref_span(c->rows, c->in_stride, c->width));
    float *out = ref_floats(queue, c->out, ref_span(c->rows, c->out_stride, c->width));
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t i = 0; i < c->width; i++) {
            float *to = &out[r * c->out_stride + i];
            *to = in[r * c->in_stride + i] + (add ? *to : 0);
        }
}

void ref_learn_copy(struct queue *queue, const struct learn_copy_args *c) { copy_rows(queue, c, false); }

void ref_learn_accumulate(struct queue *queue, const struct learn_copy_args *c) { copy_rows(queue, c, true); }

void ref_learn_add_row(struct queue *queue, const struct learn_row_args *a)
{
    const float *in = ref_floats(queue, a->in, a->width);
    float *out = ref_floats(queue, a->out, (int64_t)a->rows * a->width);
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t i = 0; i < a->width; i++)
            out[r * a->width + i] += in[i];
}

void ref_learn_sum_rows(struct queue *queue, const struct learn_row_args *a)
{
    const float *in = ref_floats(queue, a->in, (int64_t)a->rows * a->width);
    float *out = ref_floats(queue, a->out, a->width);
    for (int64_t i = 0; i < a->width; i++) {
        double sum = 0;
        for (int64_t r = 0; r < a->rows; r++)
            sum += (double)in[r * a->width + i];
        out[i] = (float)((double)out[i] + sum);
    }
}

/* Returns the number of rows up to the highest row number in row[], for the bounds check. */
static int64_t row_bound(const int32_t *row, int rows)
{
    int64_t end = 0;
    for (int i = 0; i < rows; i++)
        end = row[i] >= end ? row[i] + 1 : end;
    return end;
}

void ref_learn_select(struct queue *queue, const struct learn_select_args *s)
{
    const int32_t *row = ref_integers(queue, s->row, s->rows);
    const float *in = ref_floats(queue, s->in, row_bound(row, s->rows) * s->width);
    float *out = ref_floats(queue, s->out, (int64_t)s->rows * s->width);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t k = 0; k < s->width; k++)
            out[i * s->width + k] = row[i] < 0 ? 0 : in[row[i] * (int64_t)s->width + k];
}

void ref_learn_scatter(struct queue *queue, const struct learn_select_args *s)
{
    const int32_t *row = ref_integers(queue, s->row, s->rows);
    const float *in = ref_floats(queue, s->in, (int64_t)s->rows * s->width);
    float *out = ref_floats(queue, s->out, row_bound(row, s->rows) * s->width);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t k = 0; row[i] >= 0 && k < s->width; k++)
            out[row[i] * (int64_t)s->width + k] += in[i * s->width + k];
}

/* ---- norm ---- */

void ref_learn_norm(struct queue *queue, const struct learn_norm_args *n)
{
    const float *all = ref_floats(queue, n->x, (int64_t)n->rows * n->width), *weight = ref_floats(queue, n->weight, n->width);
    float *inverse = ref_floats(queue, n->inverse, n->rows);
    float *out = ref_floats(queue, n->out, (int64_t)n->rows * n->width);
    for (int64_t r = 0; r < n->rows; r++) {
        const float *x = all + r * n->width;
        double squares = 0;
        for (int i = 0; i < n->width; i++)
            squares += (double)x[i] * (double)x[i];
        const double scale = 1 / sqrt(squares / n->width + (double)n->epsilon);
        inverse[r] = (float)scale;
        for (int i = 0; i < n->width; i++)
            out[r * n->width + i] = (float)((double)weight[i] * (double)x[i] * scale);
    }
}

void ref_learn_norm_back(struct queue *queue, const struct learn_norm_args *n)
{
    const int64_t count = (int64_t)n->rows * n->width;
    const float *all = ref_floats(queue, n->x, count), *weight = ref_floats(queue, n->weight, n->width);
    const float *inverse = ref_floats(queue, n->inverse, n->rows), *gradients = ref_floats(queue, n->gradient, count);
    float *to = ref_floats(queue, n->gradient_to, count);
    for (int64_t r = 0; r < n->rows; r++) {
        const float *x = all + r * n->width, *g = gradients + r * n->width;
        const double scale = (double)inverse[r];
        double mean = 0;
        for (int i = 0; i < n->width; i++)
            mean += (double)weight[i] * (double)g[i] * (double)x[i];
        mean /= n->width;
        for (int i = 0; i < n->width; i++)
            to[r * n->width + i] += (float)(scale * ((double)weight[i] * (double)g[i] - (double)x[i] * scale * scale * mean));
    }
}

void ref_learn_norm_weight_back(struct queue *queue, const struct learn_norm_args *n)
{
    const int64_t count = (int64_t)n->rows * n->width;
    const float *x = ref_floats(queue, n->x, count), *inverse = ref_floats(queue, n->inverse, n->rows);
    const float *gradient = ref_floats(queue, n->gradient, count);
    float *to = ref_floats(queue, n->gradient_to, n->width);
    for (int i = 0; i < n->width; i++) {
        double sum = 0;
        for (int64_t r = 0; r < n->rows; r++)
            sum += (double)gradient[r * n->width + i] * (double)x[r * n->width + i] * (double)inverse[r];
        to[i] = (float)((double)to[i] + sum);
    }
}

/* ---- functions ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double silu(double x) { return x * sigmoid(x); }

static double silu_slope(double x) { return sigmoid(x) * (1 + x * (1 - sigmoid(x))); }

static double gelu(double x) { return x * (1 + erf(x / sqrt(2))) / 2; }

static double gelu_slope(double x) { return (1 + erf(x / sqrt(2))) / 2 + x * exp(-x * x / 2) / sqrt(2 * acos(-1)); }

void ref_learn_function(struct queue *queue, const struct learn_function_args *f)
{
    const float *x = ref_floats(queue, f->x, (int64_t)f->count);
    float *out = ref_floats(queue, f->out, (int64_t)f->count);
    for (size_t i = 0; i < f->count; i++)
        out[i] = (float)(f->function == LEARN_SILU ? silu((double)x[i]) : gelu((double)x[i]));
}

void ref_learn_function_back(struct queue *queue, const struct learn_function_args *f)
{
    const float *x = ref_floats(queue, f->x, (int64_t)f->count), *gradient = ref_floats(queue, f->gradient, (int64_t)f->count);
    float *to = ref_floats(queue, f->gradient_to, (int64_t)f->count);
    for (size_t i = 0; i < f->count; i++) {
        const double slope = f->function == LEARN_SILU ? silu_slope((double)x[i]) : gelu_slope((double)x[i]);
        to[i] += (float)((double)gradient[i] * slope);
    }
}

void ref_learn_gated(struct queue *queue, const struct learn_gated_args *g)
{
    const float *x = ref_floats(queue, g->x, (int64_t)g->rows * 2 * g->width);
    float *out = ref_floats(queue, g->out, (int64_t)g->rows * g->width);
    for (int64_t r = 0; r < g->rows; r++) {
        const float *gate = x + r * 2 * g->width, *up = gate + g->width;
        for (int i = 0; i < g->width; i++)
            *out++ = (float)(silu((double)gate[i]) * (double)up[i]);
    }
}

void ref_learn_gated_back(struct queue *queue, const struct learn_gated_args *g)
{
    const float *x = ref_floats(queue, g->x, (int64_t)g->rows * 2 * g->width);
    const float *gradient = ref_floats(queue, g->gradient, (int64_t)g->rows * g->width);
    float *to = ref_floats(queue, g->gradient_to, (int64_t)g->rows * 2 * g->width);
    for (int64_t r = 0; r < g->rows; r++) {
        const float *gate = x + r * 2 * g->width, *up = gate + g->width, *of = gradient + r * g->width;
        float *to_gate = to + r * 2 * g->width, *to_up = to_gate + g->width;
        for (int i = 0; i < g->width; i++) {
            to_gate[i] += (float)((double)of[i] * (double)up[i] * silu_slope((double)gate[i]));
            to_up[i] += (float)((double)of[i] * silu((double)gate[i]));
        }
    }
}

/* ---- the optimiser ---- */

void ref_learn_measure(struct queue *queue, const struct learn_measure_args *m)
{
    const int64_t blocks = (int64_t)((m->count + LEARN_BLOCK - 1) / LEARN_BLOCK);
    const float *gradient = ref_floats(queue, m->gradient, (int64_t)m->count);
    double *squares = ref_doubles(queue, m->squares, blocks);
    int64_t *outside = ref_longs(queue, m->outside, blocks);
    for (int64_t b = 0; b < blocks; b++)
        squares[b] = 0, outside[b] = 0;
    for (size_t i = 0; i < m->count; i++) {
        squares[i / LEARN_BLOCK] += (double)gradient[i] * (double)gradient[i];
        outside[i / LEARN_BLOCK] += fabsf(gradient[i]) > m->bound;
    }
}

void ref_learn_adam(struct queue *queue, const struct learn_adam_args *a)
{
    const int64_t count = (int64_t)a->count;
    const struct learn_adam *s = &a->step;
    const float *gradient = ref_floats(queue, a->gradient, count);
    float *weight = ref_floats(queue, a->weight, count);
    float *first = ref_floats(queue, a->first, count), *second = ref_floats(queue, a->second, count);
    for (int64_t i = 0; i < count; i++) {
        double g = (double)gradient[i] * (double)s->factor;
        g = g > (double)s->bound ? (double)s->bound : g < -(double)s->bound ? -(double)s->bound : g;
        first[i] = (float)((double)s->beta1 * (double)first[i] + (1 - (double)s->beta1) * g);
        second[i] = (float)((double)s->beta2 * (double)second[i] + (1 - (double)s->beta2) * g * g);
        weight[i] = (float)((double)weight[i] * (double)s->keep - (double)s->rate * (double)first[i] /
                            (sqrt((double)second[i]) * (double)s->root + (double)s->epsilon));
    }
}

#include <math.h>
#include <string.h>

#include "kernels/host/internal.h"
#include "kernels/host/product.h"
#include "kernels/host/vector.h"

/* ---- rotation ---- */

/* Rotates one head; the two floats of a pair are half a head apart. sign -1: rotates back. */
static void turn(const float *x, float *out, const float *rotation, int half, float sign, bool add)
{
    for (int i = 0; i < half; i++) {
        const float c = rotation[2 * i], s = sign * rotation[2 * i + 1];
        const float first = x[i] * c - x[half + i] * s, second = x[half + i] * c + x[i] * s;
        out[i] = add ? out[i] + first : first;
        out[half + i] = add ? out[half + i] + second : second;
    }
}

static void rotate_rows(const struct learn_rotate_args *r, struct buffer from, struct buffer to, bool back, size_t begin,
                        size_t end)
{
    const size_t dim = (size_t)r->head_dim, width = (size_t)(r->heads + 2 * r->kv_heads) * dim;
    const int32_t *position = host_at(r->position);
    const int turned = r->heads + r->kv_heads;
    for (size_t row = begin; row < end; row++) {
        const float *rotation = (const float *)host_at(r->rotation) + (size_t)position[row] * dim;
        const float *x = (const float *)host_at(from) + row * width;
        float *out = (float *)host_at(to) + row * width;
        for (int head = 0; head < turned; head++)
            turn(x + (size_t)head * dim, out + (size_t)head * dim, rotation, (int)dim / 2, back ? -1 : 1, back);
        const size_t values = (size_t)turned * dim;
        if (back)
            vector_add(out + values, x + values, width - values);
        else
            memcpy(out + values, x + values, (width - values) * sizeof *out);
    }
}

static void turn_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_rotate_args *r = context;
    rotate_rows(r, r->x, r->out, false, begin, end);
}

static void turn_back_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_rotate_args *r = context;
    rotate_rows(r, r->gradient, r->gradient_to, true, begin, end);
}

static size_t turn_cost(const struct learn_rotate_args *r)
{
    return (size_t)(r->heads + 2 * r->kv_heads) * (size_t)r->head_dim * 4;
}

void host_learn_rotate(struct queue *queue, const struct learn_rotate_args *r)
{
    host_spread(queue, (size_t)r->rows, turn_cost(r), turn_rows, r);
}

void host_learn_rotate_back(struct queue *queue, const struct learn_rotate_args *r)
{
    host_spread(queue, (size_t)r->rows, turn_cost(r), turn_back_rows, r);
}

/* ---- attention ---- */

/* Query rows that are processed together: their scores are one product, with the keys up to the last of these rows. */
enum { QUERIES = 128 };

struct attention_call {
    const struct learn_attention_args *args;
    const int32_t *offset;
    float *scratch;             /* [members][2][QUERIES][longest] scores, and their gradients */
    float *own;                 /* [members][2][QUERIES][LEARN_STEPS_MAX] the same for the rows' own keys of later steps */
};

/* One head and up to QUERIES query rows of a text. */
struct part {
    const struct attention_call *a;
    int head, text, first, rows, keys;      /* first: row in the text; keys: number of keys up to the last query */
    float *score, *change, *own, *own_change;
};

static const int STRIDE_OWN = LEARN_STEPS_MAX;

static size_t row_of(const struct part *p, int row) { return (size_t)(p->a->offset[p->text] + row); }

static int width_of(const struct learn_attention_args *a) { return (a->heads + 2 * a->kv_heads) * a->head_dim; }

static int out_width(const struct learn_attention_args *a) { return a->heads * a->head_dim; }

/* Returns the address of q, k or v (which: 0, 1, 2) of a row, in the data or in the gradient. */
static float *at(const struct part *p, int step, int row, int which, bool gradient)
{
    const struct learn_attention_args *s = p->a->args;
    const int group = s->heads / s->kv_heads;
    const int head = which == 0 ? p->head : s->heads + (which == 2 ? s->kv_heads : 0) + p->head / group;
    return (float *)host_at(gradient ? s->gradient_to[step] : s->qkv[step]) + row_of(p, row) * (size_t)width_of(s) +
           (size_t)head * (size_t)s->head_dim;
}

static struct matrix matrix_of(const struct part *p, int step, int row, int which)
{
    return (struct matrix){at(p, step, row, which, false), width_of(p->a->args)};
}

static float *out_at(const struct part *p, int row, bool gradient)
{
    const struct learn_attention_args *s = p->a->args;
    return (float *)host_at(gradient ? s->gradient : s->out) + row_of(p, row) * (size_t)out_width(s) +
           (size_t)p->head * (size_t)s->head_dim;
}

/* Computes the scaled scores with all keys, including those of later rows, which make_probabilities ignores. */
static void make_scores(const struct part *p)
{
    const struct learn_attention_args *a = p->a->args;
    const int dim = a->head_dim;
    product_here(&(struct product){LEARN_ROWS, p->rows, p->keys, dim, matrix_of(p, a->steps, p->first, 0),
                                   matrix_of(p, 0, 0, 1), p->score, p->keys, false});
    for (int i = 0; i < p->rows; i++) {
        vector_scale(p->score + (size_t)i * (size_t)p->keys, (size_t)(p->first + i + 1), a->scale);
        for (int step = 1; step <= a->steps; step++)
            p->own[i * STRIDE_OWN + step] = a->scale * (float)vector_dot(at(p, a->steps, p->first + i, 0, false),
                                                                    at(p, step, p->first + i, 1, false), (size_t)dim);
    }
}

static float *sum_at(const struct part *p, int i)
{
    return (float *)host_at(p->a->args->log_sum) + (size_t)p->head * (size_t)p->a->args->rows + row_of(p, p->first + i);
}

/* Converts scores to probabilities over the keys that a row may see, 0 for others. */
static void make_probabilities(const struct part *p, bool known)
{
    for (int i = 0; i < p->rows; i++) {
        float *score = p->score + (size_t)i * (size_t)p->keys, *own = p->own + i * STRIDE_OWN;
        const int seen = p->first + i + 1;
        float shift;
        if (known) {
            shift = *sum_at(p, i);
            vector_exp(score, (size_t)seen, shift);
        } else {
            shift = vector_largest(score, (size_t)seen);
            for (int step = 1; step <= p->a->args->steps; step++)
                shift = own[step] > shift ? own[step] : shift;
            double sum = vector_exp(score, (size_t)seen, shift);
            for (int step = 1; step <= p->a->args->steps; step++)
                sum += exp((double)(own[step] - shift));
            vector_scale(score, (size_t)seen, (float)(1 / sum));
            shift += (float)log(sum);
            *sum_at(p, i) = shift;
        }
        for (int step = 1; step <= p->a->args->steps; step++)
            own[step] = expf(own[step] - shift);
        memset(score + seen, 0, (size_t)(p->keys - seen) * sizeof *score);
    }
}

static void attend(const struct part *p)
{
    const struct learn_attention_args *a = p->a->args;
    const int dim = a->head_dim;
    make_scores(p);
    make_probabilities(p, false);
    product_here(&(struct product){LEARN_PLAIN, p->rows, dim, p->keys, {p->score, p->keys}, matrix_of(p, 0, 0, 2),
                                   out_at(p, p->first, false), out_width(a), false});
    for (int i = 0; i < p->rows; i++)
        for (int step = 1; step <= a->steps; step++)
            vector_add_scaled(out_at(p, p->first + i, false), at(p, step, p->first + i, 2, false), (size_t)dim,
                              p->own[i * STRIDE_OWN + step]);
}

/* Converts dP to dS = P (dP - dO O) scale, in p->change and for the rows' own keys. */
static void change_scores(const struct part *p)
{
    const struct learn_attention_args *a = p->a->args;
    const size_t dim = (size_t)a->head_dim;
    for (int i = 0; i < p->rows; i++) {
        const float *out = out_at(p, p->first + i, false), *gradient = out_at(p, p->first + i, true);
        float *change = p->change + (size_t)i * (size_t)p->keys;
        const float *probability = p->score + (size_t)i * (size_t)p->keys;
        const float whole = (float)vector_dot(out, gradient, dim);
        for (int k = 0; k < p->keys; k++)
            change[k] = probability[k] * (change[k] - whole) * a->scale;
        for (int step = 1; step <= a->steps; step++) {
            const float slope = (float)vector_dot(gradient, at(p, step, p->first + i, 2, false), dim);
            p->own_change[i * STRIDE_OWN + step] = p->own[i * STRIDE_OWN + step] * (slope - whole) * a->scale;
        }
    }
}

static void back_own(const struct part *p)
{
    const struct learn_attention_args *a = p->a->args;
    const size_t dim = (size_t)a->head_dim;
    for (int i = 0; i < p->rows; i++)
        for (int step = 1; step <= a->steps; step++) {
            const int row = p->first + i;
            const float change = p->own_change[i * STRIDE_OWN + step];
            vector_add_scaled(at(p, a->steps, row, 0, true), at(p, step, row, 1, false), dim, change);
            vector_add_scaled(at(p, step, row, 1, true), at(p, a->steps, row, 0, false), dim, change);
            vector_add_scaled(at(p, step, row, 2, true), out_at(p, row, true), dim, p->own[i * STRIDE_OWN + step]);
        }
}

static void attend_back(const struct part *p)
{
    const struct learn_attention_args *a = p->a->args;
    const int dim = a->head_dim, width = width_of(a);
    const struct matrix gradient = {out_at(p, p->first, true), out_width(a)}, probability = {p->score, p->keys};
    const struct matrix change = {p->change, p->keys};
    make_scores(p);
    make_probabilities(p, true);
    product_here(&(struct product){LEARN_OUTER, p->keys, dim, p->rows, probability, gradient, at(p, 0, 0, 2, true), width,
                                   true});
    product_here(&(struct product){LEARN_ROWS, p->rows, p->keys, dim, gradient, matrix_of(p, 0, 0, 2), p->change, p->keys,
                                   false});
    change_scores(p);
    product_here(&(struct product){LEARN_PLAIN, p->rows, dim, p->keys, change, matrix_of(p, 0, 0, 1),
                                   at(p, a->steps, p->first, 0, true), width, true});
    product_here(&(struct product){LEARN_OUTER, p->keys, dim, p->rows, change, matrix_of(p, a->steps, p->first, 0),
                                   at(p, 0, 0, 1, true), width, true});
    back_own(p);
}

/* Processes all heads of a text that share a key head, in a fixed order, because they add to the same gradient. */
static void run_group(const struct attention_call *a, size_t item, int member, void (*run)(const struct part *))
{
    const struct learn_attention_args *s = a->args;
    const int group = s->heads / s->kv_heads, kv = (int)(item % (size_t)s->kv_heads);
    const int text = (int)(item / (size_t)s->kv_heads), length = a->offset[text + 1] - a->offset[text];
    const size_t scratch = (size_t)QUERIES * (size_t)s->longest, own = (size_t)QUERIES * LEARN_STEPS_MAX;
    struct part p = {.a = a, .text = text};
    p.score = a->scratch + (size_t)member * 2 * scratch;
    p.change = p.score + scratch;
    p.own = a->own + (size_t)member * 2 * own;
    p.own_change = p.own + own;
    for (p.head = kv * group; p.head < (kv + 1) * group; p.head++)
        for (p.first = 0; p.first < length; p.first += QUERIES) {
            p.rows = length - p.first < QUERIES ? length - p.first : QUERIES;
            p.keys = p.first + p.rows;
            run(&p);
        }
}

static void attend_group(const void *context, size_t item, int member) { run_group(context, item, member, attend); }

static void attend_group_back(const void *context, size_t item, int member) { run_group(context, item, member, attend_back); }

static size_t members_floats(const struct queue *queue, size_t each)
{
    return (size_t)thread_pool_size(host_pool(queue)) * 2 * QUERIES * each;
}

size_t host_learn_attention_scratch(struct queue *queue, const struct learn_attention_args *a)
{
    return (members_floats(queue, (size_t)a->longest) + members_floats(queue, LEARN_STEPS_MAX)) * sizeof(float);
}

static void run_attention(struct queue *queue, const struct learn_attention_args *a, host_item *run)
{
    float *scratch = host_at(a->scratch);
    const struct attention_call call = {a, host_at(a->offset), scratch, scratch + members_floats(queue, (size_t)a->longest)};
    host_each(queue, (size_t)a->texts * (size_t)a->kv_heads, run, &call);
}

void host_learn_attention(struct queue *queue, const struct learn_attention_args *a) { run_attention(queue, a, attend_group); }

void host_learn_attention_back(struct queue *queue, const struct learn_attention_args *a)
{
    run_attention(queue, a, attend_group_back);
}

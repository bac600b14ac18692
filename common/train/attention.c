#include <math.h>
#include <string.h>

#include "common/train/operation.h"
#include "common/train/product.h"
#include "common/train/vector.h"

/* ---- rotation ---- */

struct rotation {
    const struct attention *shape;
    struct variable *from, *to;
    int *position;          /* [rows] */
    bool back;
};

/* One head: pairs are halves apart. `sign` -1 turns back. */
static void turn(const float *x, float *out, const float *rotation, int half, float sign, bool add)
{
    for (int i = 0; i < half; i++) {
        const float c = rotation[2 * i], s = sign * rotation[2 * i + 1];
        const float first = x[i] * c - x[half + i] * s, second = x[half + i] * c + x[i] * s;
        out[i] = add ? out[i] + first : first;
        out[half + i] = add ? out[half + i] + second : second;
    }
}

static void run_rotate(void *context, size_t begin, size_t end)
{
    const struct rotation *r = context;
    const size_t width = (size_t)r->from->width, dim = (size_t)r->shape->head_dim;
    const int turned = r->shape->heads + r->shape->kv_heads;
    for (size_t row = begin; row < end; row++) {
        const float *rotation = r->shape->rotations + (size_t)r->position[row] * dim;
        const float *x = (r->back ? r->to->gradient : r->from->data) + row * width;
        float *out = (r->back ? r->from->gradient : r->to->data) + row * width;
        for (int head = 0; head < turned; head++)
            turn(x + (size_t)head * dim, out + (size_t)head * dim, rotation, (int)dim / 2, r->back ? -1 : 1, r->back);
        const size_t values = (size_t)turned * dim;
        if (r->back)
            vector_add(out + values, x + values, width - values);
        else
            memcpy(out + values, x + values, (width - values) * sizeof *out);
    }
}

static void back_rotate(struct tape *tape, void *context)
{
    struct rotation *r = context;
    r->back = true;
    tape_spread(tape, (size_t)r->from->rows, (size_t)r->from->width * 4, run_rotate, r);
}

struct variable *op_rotate(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *qkv, int shift)
{
    struct rotation *r = tape_memory(tape, 1, sizeof *r);
    if (!r || !qkv)
        return NULL;
    *r = (struct rotation){shape, qkv, tape_value(tape, qkv->rows, qkv->width, qkv->gradient != NULL),
                           tape_memory(tape, (size_t)qkv->rows, sizeof(int)), false};
    if (!r->to || !r->position)
        return NULL;
    for (int text = 0; text < batch->texts; text++)
        for (int row = batch->offset[text]; row < batch->offset[text + 1]; row++)
            r->position[row] = row - batch->offset[text] + shift;
    tape_spread(tape, (size_t)qkv->rows, (size_t)qkv->width * 4, run_rotate, r);
    return qkv->gradient && tape_note(tape, back_rotate, r) ? NULL : r->to;
}

/* ---- attention ---- */

/* Query rows that are taken together: their scores are one product, over keys up to the last of them. */
enum { QUERIES = 128 };

struct attending {
    const struct attention *shape;
    const struct train_batch *batch;
    struct variable *qkv[ATTENTION_STEPS_MAX], *out;
    int steps;
    float *sum;                 /* [heads][rows] log of the sum of exponentials */
    float *scratch;             /* [members][2][QUERIES][longest] */
    float *own;                 /* [members][2][QUERIES][ATTENTION_STEPS_MAX] scores with rows' own keys, and back */
};

/* One head of some queries of a text. */
struct part {
    const struct attending *a;
    int head, text, first, rows, keys;      /* first: row of the text */
    float *score, *change, *own, *own_change;
};

static const int STRIDE_OWN = ATTENTION_STEPS_MAX;

static size_t row_of(const struct part *p, int row) { return (size_t)(p->a->batch->offset[p->text] + row); }

/* Where q, k or v of a row begins: in data, or in the gradient. */
static float *at(const struct part *p, int step, int row, int which, bool gradient)
{
    const struct attention *s = p->a->shape;
    const struct variable *v = p->a->qkv[step];
    const int group = s->heads / s->kv_heads;
    const int head = which == 0 ? p->head : s->heads + (which == 2 ? s->kv_heads : 0) + p->head / group;
    return (gradient ? v->gradient : v->data) + row_of(p, row) * (size_t)v->width + (size_t)head * (size_t)s->head_dim;
}

static struct matrix matrix_at(const struct part *p, int step, int row, int which)
{
    return (struct matrix){at(p, step, row, which, false), p->a->qkv[step]->width};
}

static float *out_at(const struct part *p, int row, bool gradient)
{
    const struct variable *out = p->a->out;
    return (gradient ? out->gradient : out->data) + row_of(p, row) * (size_t)out->width +
           (size_t)p->head * (size_t)p->a->shape->head_dim;
}

/* Scores with all keys, scaled; those of later rows are left as they come. */
static void make_scores(const struct part *p)
{
    const struct attending *a = p->a;
    const int dim = a->shape->head_dim;
    product_here(&(struct product){PRODUCT_ROWS, p->rows, p->keys, dim, matrix_at(p, a->steps, p->first, 0),
                                   matrix_at(p, 0, 0, 1), p->score, p->keys, false});
    for (int i = 0; i < p->rows; i++) {
        vector_scale(p->score + (size_t)i * (size_t)p->keys, (size_t)(p->first + i + 1), a->shape->scale);
        for (int step = 1; step <= a->steps; step++)
            p->own[i * STRIDE_OWN + step] = a->shape->scale * (float)vector_dot(at(p, a->steps, p->first + i, 0, false),
                                                                    at(p, step, p->first + i, 1, false), (size_t)dim);
    }
}

static float *sum_at(const struct part *p, int i)
{
    return p->a->sum + (size_t)p->head * (size_t)p->a->out->rows + row_of(p, p->first + i);
}

/* Scores become probabilities of the keys that a row may see, 0 for others. */
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
            for (int step = 1; step <= p->a->steps; step++)
                shift = own[step] > shift ? own[step] : shift;
            double sum = vector_exp(score, (size_t)seen, shift);
            for (int step = 1; step <= p->a->steps; step++)
                sum += exp((double)(own[step] - shift));
            vector_scale(score, (size_t)seen, (float)(1 / sum));
            shift += (float)log(sum);
            *sum_at(p, i) = shift;
        }
        for (int step = 1; step <= p->a->steps; step++)
            own[step] = expf(own[step] - shift);
        memset(score + seen, 0, (size_t)(p->keys - seen) * sizeof *score);
    }
}

static void attend(const struct part *p)
{
    const struct attending *a = p->a;
    const int dim = a->shape->head_dim;
    make_scores(p);
    make_probabilities(p, false);
    product_here(&(struct product){PRODUCT_PLAIN, p->rows, dim, p->keys, {p->score, p->keys}, matrix_at(p, 0, 0, 2),
                                   out_at(p, p->first, false), a->out->width, false});
    for (int i = 0; i < p->rows; i++)
        for (int step = 1; step <= a->steps; step++)
            vector_add_scaled(out_at(p, p->first + i, false), at(p, step, p->first + i, 2, false), (size_t)dim,
                              p->own[i * STRIDE_OWN + step]);
}

/* From dP to dS = P (dP - dO O) scale, in p->change; the same of keys of rows' own. */
static void change_scores(const struct part *p)
{
    const struct attending *a = p->a;
    const size_t dim = (size_t)a->shape->head_dim;
    for (int i = 0; i < p->rows; i++) {
        const float *out = out_at(p, p->first + i, false), *gradient = out_at(p, p->first + i, true);
        float *change = p->change + (size_t)i * (size_t)p->keys;
        const float *probability = p->score + (size_t)i * (size_t)p->keys;
        const float whole = (float)vector_dot(out, gradient, dim);
        for (int k = 0; k < p->keys; k++)
            change[k] = probability[k] * (change[k] - whole) * a->shape->scale;
        for (int step = 1; step <= a->steps; step++) {
            const float slope = (float)vector_dot(gradient, at(p, step, p->first + i, 2, false), dim);
            p->own_change[i * STRIDE_OWN + step] = p->own[i * STRIDE_OWN + step] * (slope - whole) * a->shape->scale;
        }
    }
}

static void back_own(const struct part *p)
{
    const struct attending *a = p->a;
    const size_t dim = (size_t)a->shape->head_dim;
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
    const struct attending *a = p->a;
    const int dim = a->shape->head_dim, width = a->qkv[0]->width;
    const struct matrix gradient = {out_at(p, p->first, true), a->out->width}, probability = {p->score, p->keys};
    const struct matrix change = {p->change, p->keys};
    make_scores(p);
    make_probabilities(p, true);
    product_here(&(struct product){PRODUCT_OUTER, p->keys, dim, p->rows, probability, gradient, at(p, 0, 0, 2, true), width,
                                   true});
    product_here(&(struct product){PRODUCT_ROWS, p->rows, p->keys, dim, gradient, matrix_at(p, 0, 0, 2), p->change, p->keys,
                                   false});
    change_scores(p);
    product_here(&(struct product){PRODUCT_PLAIN, p->rows, dim, p->keys, change, matrix_at(p, 0, 0, 1),
                                   at(p, a->steps, p->first, 0, true), width, true});
    product_here(&(struct product){PRODUCT_OUTER, p->keys, dim, p->rows, change, matrix_at(p, a->steps, p->first, 0),
                                   at(p, 0, 0, 1, true), width, true});
    back_own(p);
}

/* All heads that share a key of one text: what is added to its gradient is added in one order. */
static void run_group(const struct attending *a, size_t item, int member, void (*run)(const struct part *))
{
    const int group = a->shape->heads / a->shape->kv_heads, kv = (int)item % a->shape->kv_heads;
    const int text = (int)item / a->shape->kv_heads, length = a->batch->offset[text + 1] - a->batch->offset[text];
    const size_t scratch = (size_t)QUERIES * (size_t)a->batch->longest, own = (size_t)QUERIES * ATTENTION_STEPS_MAX;
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

static void run_attention(void *context, size_t item, int member) { run_group(context, item, member, attend); }

static void run_attention_back(void *context, size_t item, int member) { run_group(context, item, member, attend_back); }

static void back_attention(struct tape *tape, void *context)
{
    const struct attending *a = context;
    tape_each(tape, (size_t)a->batch->texts * (size_t)a->shape->kv_heads, run_attention_back, context);
}

struct variable *op_attention(struct tape *tape, const struct attention *shape, const struct train_batch *batch,
                           struct variable *const *qkv, int steps)
{
    const size_t members = (size_t)thread_pool_size(tape_pool(tape)), longest = (size_t)batch->longest;
    struct attending *a = tape_memory(tape, 1, sizeof *a);
    if (!a)
        return NULL;
    *a = (struct attending){.shape = shape, .batch = batch, .steps = steps};
    for (int step = 0; step <= steps; step++)
        if (!(a->qkv[step] = qkv[step]))
            return NULL;
    const bool any = qkv[0]->gradient != NULL;
    a->out = tape_value(tape, qkv[0]->rows, shape->heads * shape->head_dim, any);
    a->sum = tape_memory(tape, (size_t)shape->heads * (size_t)batch->rows, sizeof *a->sum);
    a->scratch = tape_memory(tape, members * 2 * QUERIES * longest, sizeof *a->scratch);
    a->own = tape_memory(tape, members * 2 * QUERIES * ATTENTION_STEPS_MAX, sizeof *a->own);
    if (!a->out || !a->sum || !a->scratch || !a->own)
        return NULL;
    tape_each(tape, (size_t)batch->texts * (size_t)shape->kv_heads, run_attention, a);
    return any && tape_note(tape, back_attention, a) ? NULL : a->out;
}

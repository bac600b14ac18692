#include <math.h>

#include "kernels/ref/learn_internal.h"

/* ---- rotation ---- */

/* Rotates rows, with sign -1 back; add: adds to the output. */
static void turn_rows(struct queue *queue, const struct learn_rotate_args *r, struct buffer from, struct buffer to, double sign,
                      bool add)
{
    const int dim = r->head_dim, half = dim / 2, all = r->heads + 2 * r->kv_heads;
    const int32_t *position = ref_integers(queue, r->position, r->rows);
    const float *rotations = ref_floats(queue, r->rotation, (int64_t)r->positions * dim);
    const float *in = ref_floats(queue, from, (int64_t)r->rows * all * dim);
    float *out = ref_floats(queue, to, (int64_t)r->rows * all * dim);
    for (int64_t row = 0; row < r->rows; row++)
        for (int head = 0; head < all; head++) {
            const float *x = in + (row * all + head) * dim, *rotation = rotations + (int64_t)position[row] * dim;
            float *y = out + (row * all + head) * dim;
            const bool turned = head < r->heads + r->kv_heads;
            for (int i = 0; i < half; i++) {
                const double c = turned ? (double)rotation[2 * i] : 1, s = turned ? sign * (double)rotation[2 * i + 1] : 0;
                const float first = (float)((double)x[i] * c - (double)x[half + i] * s);
                const float second = (float)((double)x[half + i] * c + (double)x[i] * s);
                y[i] = add ? y[i] + first : first;
                y[half + i] = add ? y[half + i] + second : second;
            }
        }
}

void ref_learn_rotate(struct queue *queue, const struct learn_rotate_args *r) { turn_rows(queue, r, r->x, r->out, 1, false); }

void ref_learn_rotate_back(struct queue *queue, const struct learn_rotate_args *r)
{
    turn_rows(queue, r, r->gradient, r->gradient_to, -1, true);
}

/* ---- attention ---- */

struct attention_call {
    const struct learn_attention_args *args;
    const float *qkv[LEARN_STEPS_MAX];
    float *to[LEARN_STEPS_MAX];
    const int32_t *offset;
};

static struct attention_call resolve(struct queue *queue, const struct learn_attention_args *a, bool back)
{
    const int64_t count = (int64_t)a->rows * (a->heads + 2 * a->kv_heads) * a->head_dim;
    struct attention_call at = {.args = a, .offset = ref_integers(queue, a->offset, a->texts + 1)};
    for (int step = 0; step <= a->steps; step++) {
        at.qkv[step] = ref_floats(queue, a->qkv[step], count);
        at.to[step] = back ? ref_floats(queue, a->gradient_to[step], count) : NULL;
    }
    return at;
}

enum { Q, K, V };

/* Returns the index in floats at which q, k or v of head `head` of a row begins. */
static int64_t place(const struct learn_attention_args *a, int64_t row, int head, int which)
{
    const int group = a->heads / a->kv_heads;
    const int column = which == Q ? head : a->heads + (which == V ? a->kv_heads : 0) + head / group;
    return (row * (a->heads + 2 * a->kv_heads) + column) * a->head_dim;
}

static double dot(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* A key that a row sees: key n is that of the text's row n in qkv[0], or of the row itself in a later step. */
struct key { int step; int64_t row; };

static int64_t keys_of(const struct learn_attention_args *a, int64_t begin, int64_t row)
{
    return row - begin + 1 + a->steps;
}

static struct key key_of(int64_t begin, int64_t row, int64_t n)
{
    return begin + n <= row ? (struct key){0, begin + n} : (struct key){(int)(begin + n - row), row};
}

static double score_of(const struct attention_call *at, int64_t row, int head, struct key key)
{
    const struct learn_attention_args *a = at->args;
    return (double)a->scale * dot(at->qkv[a->steps] + place(a, row, head, Q), at->qkv[key.step] + place(a, key.row, head, K),
                                  a->head_dim);
}

size_t ref_learn_attention_scratch(struct queue *queue, const struct learn_attention_args *a)
{
    (void)queue, (void)a;
    return 0;
}

static void attend(const struct attention_call *at, int64_t begin, int64_t row, int head, float *out, float *log_sum)
{
    const struct learn_attention_args *a = at->args;
    const int64_t keys = keys_of(a, begin, row);
    double largest = -INFINITY, sum = 0;
    for (int64_t n = 0; n < keys; n++)
        largest = fmax(largest, score_of(at, row, head, key_of(begin, row, n)));
    for (int64_t n = 0; n < keys; n++)
        sum += exp(score_of(at, row, head, key_of(begin, row, n)) - largest);
    *log_sum = (float)(largest + log(sum));
    for (int i = 0; i < a->head_dim; i++) {
        double value = 0;
        for (int64_t n = 0; n < keys; n++) {
            const struct key key = key_of(begin, row, n);
            value += exp(score_of(at, row, head, key) - largest) / sum *
                     (double)at->qkv[key.step][place(a, key.row, head, V) + i];
        }
        out[i] = (float)value;
    }
}

void ref_learn_attention(struct queue *queue, const struct learn_attention_args *a)
{
    const struct attention_call at = resolve(queue, a, false);
    float *out = ref_floats(queue, a->out, (int64_t)a->rows * a->heads * a->head_dim);
    float *log_sum = ref_floats(queue, a->log_sum, (int64_t)a->heads * a->rows);
    for (int text = 0; text < a->texts; text++)
        for (int64_t row = at.offset[text]; row < at.offset[text + 1]; row++)
            for (int head = 0; head < a->heads; head++)
                attend(&at, at.offset[text], row, head, out + (row * a->heads + head) * a->head_dim,
                       &log_sum[(int64_t)head * a->rows + row]);
}

/* Adds gradients: dv += p g; ds = scale p (g v - g out); dq += ds k; dk += ds q. */
static void attend_back(const struct attention_call *at, int64_t begin, int64_t row, int head, const float *out, const float *g,
                        double log_sum)
{
    const struct learn_attention_args *a = at->args;
    const double whole = dot(g, out, a->head_dim);
    const int64_t q = place(a, row, head, Q);
    for (int64_t n = 0; n < keys_of(a, begin, row); n++) {
        const struct key key = key_of(begin, row, n);
        const int64_t k = place(a, key.row, head, K), v = place(a, key.row, head, V);
        const double p = exp(score_of(at, row, head, key) - log_sum);
        const double change = (double)a->scale * p * (dot(g, at->qkv[key.step] + v, a->head_dim) - whole);
        for (int i = 0; i < a->head_dim; i++) {
            at->to[key.step][v + i] += (float)(p * (double)g[i]);
            at->to[a->steps][q + i] += (float)(change * (double)at->qkv[key.step][k + i]);
            at->to[key.step][k + i] += (float)(change * (double)at->qkv[a->steps][q + i]);
        }
    }
}

void ref_learn_attention_back(struct queue *queue, const struct learn_attention_args *a)
{
    const struct attention_call at = resolve(queue, a, true);
    const int64_t count = (int64_t)a->rows * a->heads * a->head_dim;
    const float *out = ref_floats(queue, a->out, count), *gradient = ref_floats(queue, a->gradient, count);
    const float *log_sum = ref_floats(queue, a->log_sum, (int64_t)a->heads * a->rows);
    for (int text = 0; text < a->texts; text++)
        for (int64_t row = at.offset[text]; row < at.offset[text + 1]; row++)
            for (int head = 0; head < a->heads; head++) {
                const int64_t from = (row * a->heads + head) * a->head_dim;
                attend_back(&at, at.offset[text], row, head, out + from, gradient + from,
                            (double)log_sum[(int64_t)head * a->rows + row]);
            }
}

#include <math.h>
#include <string.h>

#include "kernels/delta.h"
#include "kernels/ref/ref_internal.h"

static int32_t largest(const int32_t *value, int64_t count)
{
    int32_t max = -1;
    for (int64_t i = 0; i < count; i++)
        max = value[i] > max ? value[i] : max;
    return max;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

void ref_short_conv(struct queue *queue, const struct short_conv_args *a)
{
    if (!a->rows)
        return;
    const int past = a->taps - 1;
    const int32_t *slot = ref_integers(queue, a->slot, a->rows);
    const int32_t *before = past ? ref_integers(queue, a->before, (int64_t)a->rows * past) : slot;
    const int32_t last = largest(slot, a->rows), oldest = past ? largest(before, (int64_t)a->rows * past) : -1;
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, a->in_stride, a->width));
    const float *weight = ref_floats(queue, a->weight, (int64_t)a->taps * a->width);
    float *cache = ref_floats(queue, a->cache, ((int64_t)(last > oldest ? last : oldest) + 1) * a->width);
    float *out = ref_floats(queue, a->out, ref_span(a->rows, a->out_stride, a->width));
    const float *bias = a->bias.address ? ref_floats(queue, a->bias, a->width) : NULL;
    for (int64_t r = 0; r < a->rows; r++)
        memcpy(cache + (int64_t)slot[r] * a->width, in + r * a->in_stride, (size_t)a->width * sizeof *in);
    for (int64_t r = 0; r < a->rows; r++)
        for (int c = 0; c < a->width; c++) {
            double sum = bias ? (double)bias[c] : 0;
            for (int t = 0; t < a->taps; t++) {
                int64_t from = t < past ? before[r * past + t] : slot[r];
                if (from >= 0)
                    sum += (double)weight[t * (int64_t)a->width + c] * cache[from * a->width + c];
            }
            out[r * a->out_stride + c] = (float)(a->silu ? sum * sigmoid(sum) : sum);
        }
}

static void normalise(float *x, int count, double epsilon, double factor)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    for (int i = 0; i < count; i++)
        x[i] = (float)(x[i] / sqrt(sum + epsilon) * factor);
}

void ref_delta_keys(struct queue *queue, const struct delta_keys_args *a)
{
    if (!a->rows)
        return;
    const int64_t width = (int64_t)a->key_heads * a->key_dim, heads = a->value_heads;
    const int64_t each = recurrence_decays(a->kind, a->key_dim, a->value_dim), all = heads * each;
    const int32_t *slot = ref_integers(queue, a->slot, a->rows), *parent = ref_integers(queue, a->parent, a->rows);
    const int32_t last = largest(slot, a->rows), oldest = largest(parent, a->rows);
    float *x = ref_floats(queue, a->x, ref_span(a->rows, a->stride, 2 * width));
    const bool delta = recurrence_corrects(a->kind), scan = a->kind == RECURRENCE_SCAN;
    const float *rate = delta ? ref_floats(queue, a->rate, ref_span(a->rows, a->gate_stride, heads)) : NULL;
    const float *step = ref_floats(queue, a->step, ref_span(a->rows, a->step_stride, all));
    const float *neg_a = scan ? NULL : ref_floats(queue, a->neg_a, heads), *step_bias = ref_floats(queue, a->step_bias, all);
    float *key = ref_floats(queue, a->key, ((int64_t)last + 1) * width);
    float *decay = ref_floats(queue, a->decay, ((int64_t)(last > oldest ? last : oldest) + 1) * all);
    float *beta = scan ? NULL : ref_floats(queue, a->beta, a->rows * heads);
    for (int64_t r = 0; r < a->rows; r++) {
        float *q = x + r * a->stride, *k = q + width;
        for (int h = 0; delta && h < a->key_heads; h++) {
            normalise(q + (int64_t)h * a->key_dim, a->key_dim, (double)a->epsilon, 1 / sqrt(a->key_dim));
            normalise(k + (int64_t)h * a->key_dim, a->key_dim, (double)a->epsilon, 1);
        }
        memcpy(key + slot[r] * width, k, (size_t)width * sizeof *k);
        for (int64_t i = 0; i < all; i++) {
            const int64_t h = i / each;
            double t = (double)step[r * a->step_stride + i] + (double)step_bias[i];
            double softplus = fmax(t, 0) + log1p(exp(-fabs(t)));
            if (scan) {
                decay[slot[r] * all + i] = (float)softplus;
                continue;
            }
            double g = a->floor < 0 ? (double)a->floor * sigmoid(-(double)neg_a[h] * t) : (double)neg_a[h] * softplus;
            beta[r * heads + h] = (float)(delta ? sigmoid((double)rate[r * a->gate_stride + h]) : softplus);
            decay[slot[r] * all + i] = (float)(parent[r] >= 0 ? g + (double)decay[parent[r] * all + i] : g);
        }
    }
}

/* One value head of a call. */
struct head {
    const struct delta_args *args;
    const float *key, *decay, *skip, *neg_a;
    float *correction, *state;
    int h, key_head;
};

static const float *key_at(const struct head *head, int64_t slot)
{
    return head->key + (slot * head->args->key_heads + head->key_head) * head->args->key_dim;
}

static float *correction_at(const struct head *head, int64_t slot)
{
    return head->correction + (slot * head->args->value_heads + head->h) * head->args->value_dim;
}

/* Returns the decay at a slot, of channel i of the key, or with RECURRENCE_SCAN the step of value i. */
static double decay_at(const struct head *head, int64_t slot, int i)
{
    const int each = recurrence_decays(head->args->kind, head->args->key_dim, head->args->value_dim);
    return (double)head->decay[(slot * head->args->value_heads + head->h) * each + (each > 1 ? i : 0)];
}

static float *state_at(const struct head *head, int64_t state)
{
    const struct delta_args *a = head->args;
    return head->state + (state * a->value_heads + head->h) * a->key_dim * a->value_dim;
}

/* Returns the sum over the channels of x * e^(decay at `end` - that at `slot`) * the key of `slot`. */
static double dot(const struct head *head, const float *x, int64_t end, int64_t slot)
{
    const float *key = key_at(head, slot);
    double sum = 0;
    for (int i = 0; i < head->args->key_dim; i++)
        sum += (double)x[i] * exp(decay_at(head, end, i) - decay_at(head, slot, i)) * (double)key[i];
    return sum;
}

/* RECURRENCE_SCAN: returns the float [i][j] of the state after `count` slots from the state `own` on. */
static double scanned(const struct head *head, int own, const int32_t *path, int count, int i, int j)
{
    const struct delta_args *a = head->args;
    const int64_t at = (int64_t)i * a->value_dim + j;
    const double slope = (double)head->neg_a[(int64_t)head->h * a->key_dim * a->value_dim + at];
    double sum = own >= 0 ? (double)state_at(head, own)[at] : 0;
    for (int s = 0; s < count; s++)
        sum = exp(slope * decay_at(head, path[s], j)) * sum +
              (double)key_at(head, path[s])[i] * (double)correction_at(head, path[s])[j];
    return sum;
}

static void scan_state(const struct head *head, int own, int before, const int32_t *path)
{
    const struct delta_args *a = head->args;
    float *to = state_at(head, own);
    for (int i = 0; i < a->key_dim; i++)
        for (int j = 0; j < a->value_dim; j++)
            to[(int64_t)i * a->value_dim + j] = (float)scanned(head, before, path, DELTA_BORDER, i, j);
}

static void scan_row(const struct head *head, const float *q, const float *v, int own, const int32_t *path, int count,
                     float *out)
{
    const struct delta_args *a = head->args;
    const int32_t slot = path[count - 1];
    for (int j = 0; j < a->value_dim; j++) {
        correction_at(head, slot)[j] = (float)(decay_at(head, slot, j) * (double)v[j]);
        double sum = (double)head->skip[(int64_t)head->h * a->value_dim + j] * (double)v[j];
        for (int i = 0; i < a->key_dim; i++)
            sum += (double)q[i] * scanned(head, own, path, count, i, j);
        out[j] = (float)sum;
    }
}

static void make_state(const struct head *head, int own, int before, const int32_t *path)
{
    const struct delta_args *a = head->args;
    const int64_t end = path[DELTA_BORDER - 1];
    const float *from = before >= 0 ? state_at(head, before) : NULL;
    float *to = state_at(head, own);
    for (int i = 0; i < a->key_dim; i++)
        for (int j = 0; j < a->value_dim; j++) {
            double sum = from ? exp(decay_at(head, end, i)) * (double)from[(int64_t)i * a->value_dim + j] : 0;
            for (int s = 0; s < DELTA_BORDER; s++)
                sum += exp(decay_at(head, end, i) - decay_at(head, path[s], i)) * (double)key_at(head, path[s])[i]
                     * (double)correction_at(head, path[s])[j];
            to[(int64_t)i * a->value_dim + j] = (float)sum;
        }
}

static void attend(const struct head *head, const float *q, const float *v, double beta, int own, const int32_t *path,
                   int count, float *out)
{
    const struct delta_args *a = head->args;
    const int32_t slot = path[count - 1];
    const float *state = own >= 0 ? state_at(head, own) : NULL, *k = key_at(head, slot);
    float *u = correction_at(head, slot);
    const bool delta = recurrence_corrects(a->kind);
    for (int j = 0; j < a->value_dim; j++) {
        double of_k = 0, of_q = 0;
        for (int i = 0; state && i < a->key_dim; i++) {
            const double left = exp(decay_at(head, slot, i)) * (double)state[(int64_t)i * a->value_dim + j];
            of_k += (double)k[i] * left;
            of_q += (double)q[i] * left;
        }
        double correction = (double)v[j] - (delta ? of_k : 0), sum = of_q;
        for (int i = 0; i < count - 1; i++) {
            double past = (double)correction_at(head, path[i])[j];
            correction -= delta ? dot(head, k, slot, path[i]) * past : 0;
            sum += dot(head, q, slot, path[i]) * past;
        }
        u[j] = (float)(beta * correction);
        out[j] = (float)(sum + dot(head, q, slot, slot) * (double)u[j] +
                         (delta ? 0 : (double)head->skip[head->h] * (double)v[j]));
    }
}

void ref_delta(struct queue *queue, const struct delta_args *a)
{
    if (!a->rows)
        return;
    const int64_t heads = a->value_heads, keys = (int64_t)a->key_heads * a->key_dim, values = heads * a->value_dim;
    const int32_t *own = ref_integers(queue, a->own, a->rows), *before = ref_integers(queue, a->before, a->rows);
    const int32_t *start = ref_integers(queue, a->path_start, (int64_t)a->rows + 1);
    const int32_t *path = ref_integers(queue, a->path, start[a->rows]);
    const int64_t slots = 1 + (int64_t)largest(path, start[a->rows]);
    const int32_t here = largest(own, a->rows), there = largest(before, a->rows);
    const int64_t states = 1 + (int64_t)(here > there ? here : there);
    const float *q = ref_floats(queue, a->q, ref_span(a->rows, a->stride, keys));
    const bool scan = a->kind == RECURRENCE_SCAN;
    const float *v = ref_floats(queue, a->v, ref_span(a->rows, a->value_stride, values));
    const float *beta = scan ? NULL : ref_floats(queue, a->beta, a->rows * heads);
    float *out = ref_floats(queue, a->out, a->rows * values);
    struct head head = {.args = a, .key = ref_floats(queue, a->key, slots * keys),
                        .correction = ref_floats(queue, a->correction, slots * values)};
    head.decay = ref_floats(queue, a->decay, slots * heads * recurrence_decays(a->kind, a->key_dim, a->value_dim));
    head.skip = recurrence_skips(a->kind) ? ref_floats(queue, a->skip, scan ? values : heads) : NULL;
    head.neg_a = scan ? ref_floats(queue, a->neg_a, values * a->key_dim) : NULL;
    head.state = states ? ref_floats(queue, a->state, states * values * a->key_dim) : NULL;
    for (int64_t r = 0; r < a->rows; r++) {
        const int32_t *row = path + start[r];
        int count = start[r + 1] - start[r], made = before[r] != DELTA_KEPT;
        for (head.h = 0; head.h < a->value_heads; head.h++) {
            head.key_head = a->tiled ? head.h % a->key_heads : head.h * a->key_heads / a->value_heads;
            if (made)
                (scan ? scan_state : make_state)(&head, own[r], before[r], row);
            const float *q_row = q + r * a->stride + (int64_t)head.key_head * a->key_dim;
            const float *v_row = v + r * a->value_stride + (int64_t)head.h * a->value_dim;
            float *out_row = out + r * values + (int64_t)head.h * a->value_dim;
            const int32_t *inside = made ? row + DELTA_BORDER : row;
            const int steps = made ? count - DELTA_BORDER : count;
            if (scan)
                scan_row(&head, q_row, v_row, own[r], inside, steps, out_row);
            else
                attend(&head, q_row, v_row, (double)beta[r * heads + head.h], own[r], inside, steps, out_row);
        }
    }
}

void ref_gated(struct queue *queue, const struct gated_args *a)
{
    if (!a->rows || !a->parts)
        return;
    const int parts = a->parts - 1;
    const float *in = ref_floats(queue, a->in, ref_span(a->rows, a->in_stride, (int64_t)parts * a->in_part + a->width));
    const int gates = a->single ? 1 : a->width;
    const float *gate = ref_floats(queue, a->gate, ref_span(a->rows, a->gate_stride, (int64_t)parts * a->gate_part + gates));
    float *out = ref_floats(queue, a->out, ref_span(a->rows, a->out_stride, (int64_t)parts * a->out_part + a->width));
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t p = 0; p < a->parts; p++)
            for (int i = 0; i < a->width; i++) {
                double x = (double)gate[r * a->gate_stride + p * a->gate_part + (a->single ? 0 : i)];
                out[r * a->out_stride + p * a->out_part + i] =
                    (float)((double)in[r * a->in_stride + p * a->in_part + i] * (a->kind == GATE_SIGMOID ? 1 : x) *
                            (a->kind == GATE_SAME ? 1 : sigmoid(x)));
            }
}

#include <math.h>

#include "kernels/ref/learn_internal.h"

struct mixing {
    const struct learn_mix_args *args;
    const float *router, *made[LEARN_EXPERTS_MAX];
    float *made_to[LEARN_EXPERTS_MAX];
    const int32_t *choice, *place;
};

static struct mixing resolve(struct queue *queue, const struct learn_mix_args *a, bool back)
{
    struct mixing m = {.args = a, .router = ref_floats(queue, a->router, (int64_t)a->rows * a->router_width),
                       .choice = ref_integers(queue, a->choice, (int64_t)a->rows * a->slots),
                       .place = ref_integers(queue, a->place, (int64_t)a->rows * a->slots)};
    int64_t rows[LEARN_EXPERTS_MAX] = {0};
    for (int64_t i = 0; i < (int64_t)a->rows * a->slots; i++)
        if (i % a->slots < a->used && m.place[i] >= rows[m.choice[i]])
            rows[m.choice[i]] = m.place[i] + 1;
    for (int e = 0; e < a->experts; e++)
        if (rows[e]) {
            m.made[e] = ref_floats(queue, a->made[e], rows[e] * a->width);
            m.made_to[e] = back ? ref_floats_or_none(queue, a->made_to[e], rows[e] * a->width) : NULL;
        }
    return m;
}

/* Computes weight[c], the softmax over its columns, and column[c], their indices in the router's row. Returns their number. */
static int weigh(const struct mixing *m, int64_t row, double *weight, int *column)
{
    const struct learn_mix_args *a = m->args;
    const int count = a->kind == LEARN_MIX_SUM ? a->experts : 2;
    double largest = -INFINITY, sum = 0;
    for (int c = 0; c < count; c++) {
        column[c] = a->first + (a->kind == LEARN_MIX_SUM ? c : m->choice[row * a->slots + c]);
        weight[c] = (double)m->router[row * a->router_width + column[c]];
        largest = weight[c] > largest ? weight[c] : largest;
    }
    for (int c = 0; c < count; c++)
        sum += weight[c] = exp(weight[c] - largest);
    for (int c = 0; c < count; c++)
        weight[c] /= sum;
    return count;
}

/* Returns the index in the softmax of the column that weights a slot, and the slot's sign. */
static int column_of(const struct mixing *m, int64_t row, int slot)
{
    return m->args->kind == LEARN_MIX_SUM ? m->choice[row * m->args->slots + slot] : slot;
}

static double sign_of(const struct mixing *m, int64_t row, int slot, const int *column)
{
    const float *router = m->router + row * m->args->router_width;
    if (m->args->kind != LEARN_MIX_CONTRAST)
        return 1;
    return (router[column[0]] > router[column[1]]) == (slot == 1) ? -1 : 1;
}

void ref_learn_mix(struct queue *queue, const struct learn_mix_args *a)
{
    const struct mixing m = resolve(queue, a, false);
    const float *u = ref_floats(queue, a->u, (int64_t)a->rows * a->width);
    float *out = ref_floats(queue, a->out, (int64_t)a->rows * a->width);
    for (int64_t row = 0; row < a->rows; row++) {
        double weight[LEARN_EXPERTS_MAX];
        int column[LEARN_EXPERTS_MAX];
        weigh(&m, row, weight, column);
        for (int64_t i = 0; i < a->width; i++) {
            double sum = (double)u[row * a->width + i];
            for (int slot = 0; slot < a->used; slot++) {
                const int64_t at = row * a->slots + slot;
                sum += sign_of(&m, row, slot, column) * weight[column_of(&m, row, slot)] *
                       (double)m.made[m.choice[at]][m.place[at] * (int64_t)a->width + i];
            }
            out[row * a->width + i] = (float)sum;
        }
    }
}

void ref_learn_mix_back(struct queue *queue, const struct learn_mix_args *a)
{
    const struct mixing m = resolve(queue, a, true);
    const float *gradients = ref_floats(queue, a->gradient, (int64_t)a->rows * a->width);
    float *u_to = ref_floats_or_none(queue, a->u_to, (int64_t)a->rows * a->width);
    float *router_to = ref_floats_or_none(queue, a->router_to, (int64_t)a->rows * a->router_width);
    for (int64_t row = 0; row < a->rows; row++) {
        const float *g = gradients + row * a->width;
        double weight[LEARN_EXPERTS_MAX], slope[LEARN_EXPERTS_MAX] = {0}, mean = 0;
        int column[LEARN_EXPERTS_MAX];
        const int columns = weigh(&m, row, weight, column);
        for (int slot = 0; slot < a->used; slot++) {
            const int64_t at = row * a->slots + slot, from = m.place[at] * (int64_t)a->width;
            const int c = column_of(&m, row, slot), expert = m.choice[at];
            const double sign = sign_of(&m, row, slot, column);
            for (int i = 0; i < a->width; i++) {
                slope[c] += sign * (double)g[i] * (double)m.made[expert][from + i];
                if (m.made_to[expert])
                    m.made_to[expert][from + i] += (float)(sign * weight[c] * (double)g[i]);
            }
            mean += weight[c] * slope[c];
        }
        for (int64_t i = 0; u_to && i < a->width; i++)
            u_to[row * a->width + i] += g[i];
        for (int c = 0; router_to && c < columns; c++)
            router_to[row * a->router_width + column[c]] += (float)(weight[c] * (slope[c] - mean));
    }
}

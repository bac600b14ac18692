#include <math.h>
#include <string.h>

#include "kernels/host/internal.h"
#include "kernels/host/vector.h"

/* Lists the columns of the softmax: those of all experts, or of the two chosen first. Returns their number. */
static int mix_columns(const struct learn_mix_args *m, size_t row, int column[LEARN_EXPERTS_MAX])
{
    const int count = m->kind == LEARN_MIX_SUM ? m->experts : 2;
    const int32_t *choice = (const int32_t *)host_at(m->choice) + row * (size_t)m->slots;
    for (int i = 0; i < count; i++)
        column[i] = m->first + (m->kind == LEARN_MIX_SUM ? i : choice[i]);
    return count;
}

/* Computes share[i], the softmax over these columns, and sign[] of slots 0 and 1. */
static void mix_shares(const struct learn_mix_args *m, size_t row, const int *column, int count, float *share, float sign[2])
{
    const float *r = (const float *)host_at(m->router) + row * (size_t)m->router_width;
    float largest = r[column[0]], sum = 0;
    for (int i = 1; i < count; i++)
        largest = r[column[i]] > largest ? r[column[i]] : largest;
    for (int i = 0; i < count; i++)
        sum += share[i] = expf(r[column[i]] - largest);
    for (int i = 0; i < count; i++)
        share[i] /= sum;
    const bool larger = m->kind != LEARN_MIX_SUM && r[column[0]] > r[column[1]];
    sign[0] = m->kind == LEARN_MIX_CONTRAST && !larger ? -1 : 1;
    sign[1] = m->kind == LEARN_MIX_CONTRAST && larger ? -1 : 1;
}

/* A slot: index of its column in the softmax, its expert, and the offset of the row in the expert's output. */
struct mix_slot {
    int share, expert;
    size_t at;
};

static struct mix_slot slot_of(const struct learn_mix_args *m, size_t row, int slot)
{
    const size_t index = row * (size_t)m->slots + (size_t)slot;
    const int expert = ((const int32_t *)host_at(m->choice))[index];
    const size_t place = (size_t)((const int32_t *)host_at(m->place))[index];
    return (struct mix_slot){m->kind == LEARN_MIX_SUM ? expert : slot, expert, place * (size_t)m->width};
}

static void mix_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_mix_args *m = context;
    const size_t width = (size_t)m->width;
    for (size_t row = begin; row < end; row++) {
        float share[LEARN_EXPERTS_MAX], sign[2], *out = (float *)host_at(m->out) + row * width;
        int column[LEARN_EXPERTS_MAX];
        mix_shares(m, row, column, mix_columns(m, row, column), share, sign);
        memcpy(out, (const float *)host_at(m->u) + row * width, width * sizeof *out);
        for (int s = 0; s < m->used; s++) {
            const struct mix_slot slot = slot_of(m, row, s);
            vector_add_scaled(out, (const float *)host_at(m->made[slot.expert]) + slot.at, width,
                              (s < 2 ? sign[s] : 1) * share[slot.share]);
        }
    }
}

void host_learn_mix(struct queue *queue, const struct learn_mix_args *m)
{
    host_spread(queue, (size_t)m->rows, (size_t)m->width * 4 * (size_t)m->used, mix_rows, m);
}

/* Adds the gradient of the softmax: dL/dr_i = share_i (slope_i - sum_j share_j slope_j), with slope_j 0 for unused experts. */
static void mix_back_rows(const void *context, size_t begin, size_t end)
{
    const struct learn_mix_args *m = context;
    const size_t width = (size_t)m->width;
    float *u_to = host_at(m->u_to), *router_to = host_at(m->router_to);
    for (size_t row = begin; row < end; row++) {
        const float *dy = (const float *)host_at(m->gradient) + row * width;
        float share[LEARN_EXPERTS_MAX], sign[2], slope[LEARN_EXPERTS_MAX] = {0}, mean = 0;
        int column[LEARN_EXPERTS_MAX];
        const int count = mix_columns(m, row, column);
        mix_shares(m, row, column, count, share, sign);
        for (int s = 0; s < m->used; s++) {
            const struct mix_slot slot = slot_of(m, row, s);
            const float one = s < 2 ? sign[s] : 1;
            float *to = host_at(m->made_to[slot.expert]);
            slope[slot.share] = one * (float)vector_dot(dy, (const float *)host_at(m->made[slot.expert]) + slot.at, width);
            mean += share[slot.share] * slope[slot.share];
            if (to)
                vector_add_scaled(to + slot.at, dy, width, one * share[slot.share]);
        }
        if (u_to)
            vector_add(u_to + row * width, dy, width);
        for (int i = 0; router_to && i < count; i++)
            router_to[row * (size_t)m->router_width + (size_t)column[i]] += share[i] * (slope[i] - mean);
    }
}

void host_learn_mix_back(struct queue *queue, const struct learn_mix_args *m)
{
    host_spread(queue, (size_t)m->rows, (size_t)m->width * 4 * (size_t)m->used, mix_back_rows, m);
}

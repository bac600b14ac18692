#include "common/train/operation.h"

#include <math.h>
#include <string.h>

#include "common/train/product.h"
#include "common/train/vector.h"

static bool wanted(const struct variable *value) { return value && value->gradient; }

static size_t elements(const struct variable *value) { return (size_t)value->rows * (size_t)value->width; }

struct variable *op_constant(struct tape *tape, int rows, int width, const float *data)
{
    struct variable *value = tape_memory(tape, 1, sizeof *value);
    if (value)
        *value = (struct variable){.rows = rows, .width = width, .data = (float *)(uintptr_t)data};
    return value;
}

/* What most operations note. */
struct note {
    struct variable *a, *b, *c, *out;
};

static struct variable *note_down(struct tape *tape, tape_back *back, struct variable *a, struct variable *b,
                                  struct variable *c, struct variable *out)
{
    struct note *note = out && out->gradient ? tape_memory(tape, 1, sizeof *note) : NULL;
    if (!out || !out->gradient)
        return out;
    if (note)
        *note = (struct note){a, b, c, out};
    return tape_note(tape, back, note) ? NULL : out;
}

/* ---- linear ---- */

struct columns {
    const float *from;
    float *to;
    size_t rows, width;
};

/* Each column of a sum is added up in the order of rows. */
static void add_columns(void *context, size_t begin, size_t end)
{
    const struct columns *c = context;
    for (size_t row = 0; row < c->rows; row++)
        vector_add(c->to + begin, c->from + row * c->width + begin, end - begin);
}

static void add_rows(void *context, size_t begin, size_t end)
{
    const struct columns *c = context;
    for (size_t row = begin; row < end; row++)
        vector_add(c->to + row * c->width, c->from, c->width);
}

static void back_linear(struct tape *tape, void *context)
{
    const struct note *n = context;
    struct variable *x = n->a, *weight = n->b, *bias = n->c, *out = n->out;
    const struct matrix gradient = {out->gradient, out->width};
    if (wanted(weight))
        product_run(tape_pool(tape), &(struct product){PRODUCT_OUTER, weight->rows, weight->width, x->rows, gradient,
                                                       {x->data, x->width}, weight->gradient, weight->width, true});
    if (wanted(x))
        product_run(tape_pool(tape), &(struct product){PRODUCT_PLAIN, x->rows, x->width, out->width, gradient,
                                                       {weight->data, weight->width}, x->gradient, x->width, true});
    struct columns columns = {out->gradient, bias ? bias->gradient : NULL, (size_t)out->rows, (size_t)out->width};
    if (wanted(bias))
        tape_spread(tape, columns.width, columns.rows, add_columns, &columns);
}

struct variable *op_linear(struct tape *tape, struct variable *x, struct variable *weight, struct variable *bias)
{
    struct variable *out = x ? tape_value(tape, x->rows, weight->rows, wanted(x) || wanted(weight) || wanted(bias)) : NULL;
    if (!out)
        return NULL;
    product_run(tape_pool(tape), &(struct product){PRODUCT_ROWS, x->rows, weight->rows, x->width, {x->data, x->width},
                                                   {weight->data, weight->width}, out->data, out->width, false});
    struct columns columns = {bias ? bias->data : NULL, out->data, (size_t)out->rows, (size_t)out->width};
    if (bias)
        tape_spread(tape, columns.rows, columns.width, add_rows, &columns);
    return note_down(tape, back_linear, x, weight, bias, out);
}

/* ---- sums, joins, selections ---- */

static void run_add(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    for (size_t i = begin; i < end; i++)
        n->out->data[i] = n->a->data[i] + n->b->data[i];
}

static void run_add_back(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    if (n->a->gradient)
        vector_add(n->a->gradient + begin, n->out->gradient + begin, end - begin);
    if (n->b->gradient)
        vector_add(n->b->gradient + begin, n->out->gradient + begin, end - begin);
}

static void back_add(struct tape *tape, void *context)
{
    const struct note *n = context;
    tape_spread(tape, elements(n->out), 3, run_add_back, context);
}

struct variable *op_add(struct tape *tape, struct variable *a, struct variable *b)
{
    struct variable *out = a && b ? tape_value(tape, a->rows, a->width, wanted(a) || wanted(b)) : NULL;
    struct note note = {a, b, NULL, out};
    if (!out)
        return NULL;
    tape_spread(tape, elements(out), 3, run_add, &note);
    return note_down(tape, back_add, a, b, NULL, out);
}

struct join {
    struct variable *out, *part[JOIN_MAX];
    int count;
};

static void run_join(void *context, size_t begin, size_t end)
{
    const struct join *join = context;
    for (size_t row = begin; row < end; row++) {
        float *to = join->out->data + row * (size_t)join->out->width;
        for (int i = 0; i < join->count; i++) {
            const size_t width = (size_t)join->part[i]->width;
            memcpy(to, join->part[i]->data + row * width, width * sizeof *to);
            to += width;
        }
    }
}

static void run_join_back(void *context, size_t begin, size_t end)
{
    const struct join *join = context;
    for (size_t row = begin; row < end; row++) {
        const float *from = join->out->gradient + row * (size_t)join->out->width;
        for (int i = 0; i < join->count; i++) {
            const size_t width = (size_t)join->part[i]->width;
            if (join->part[i]->gradient)
                vector_add(join->part[i]->gradient + row * width, from, width);
            from += width;
        }
    }
}

static void back_join(struct tape *tape, void *context)
{
    const struct join *join = context;
    tape_spread(tape, (size_t)join->out->rows, (size_t)join->out->width, run_join_back, context);
}

struct variable *op_join(struct tape *tape, struct variable *const *parts, int count)
{
    struct join *join = tape_memory(tape, 1, sizeof *join);
    bool any = false;
    int width = 0;
    if (!join)
        return NULL;
    join->count = count;
    for (int i = 0; i < count; i++) {
        if (!parts[i])
            return NULL;
        join->part[i] = parts[i];
        width += parts[i]->width;
        any |= wanted(parts[i]);
    }
    if (!(join->out = tape_value(tape, parts[0]->rows, width, any)))
        return NULL;
    tape_spread(tape, (size_t)join->out->rows, (size_t)width, run_join, join);
    return any && tape_note(tape, back_join, join) ? NULL : join->out;
}

struct select {
    struct variable *x, *out;
    int *row;
};

static void run_select(void *context, size_t begin, size_t end)
{
    const struct select *s = context;
    const size_t width = (size_t)s->x->width;
    for (size_t i = begin; i < end; i++)
        if (s->row[i] < 0)
            memset(s->out->data + i * width, 0, width * sizeof(float));
        else
            memcpy(s->out->data + i * width, s->x->data + (size_t)s->row[i] * width, width * sizeof(float));
}

/* By columns, as rows may be there more than once. */
static void run_select_back(void *context, size_t begin, size_t end)
{
    const struct select *s = context;
    const size_t width = (size_t)s->x->width;
    for (size_t i = 0; i < (size_t)s->out->rows; i++)
        if (s->row[i] >= 0)
            vector_add(s->x->gradient + (size_t)s->row[i] * width + begin, s->out->gradient + i * width + begin, end - begin);
}

static void back_select(struct tape *tape, void *context)
{
    const struct select *s = context;
    tape_spread(tape, (size_t)s->out->width, (size_t)s->out->rows, run_select_back, context);
}

struct variable *op_select(struct tape *tape, struct variable *x, const int *row, int rows)
{
    struct select *s = tape_memory(tape, 1, sizeof *s);
    if (!s || !x)
        return NULL;
    *s = (struct select){x, tape_value(tape, rows, x->width, wanted(x)), tape_memory(tape, (size_t)rows, sizeof *row)};
    if (!s->out || !s->row)
        return NULL;
    memcpy(s->row, row, (size_t)rows * sizeof *row);
    tape_spread(tape, (size_t)rows, (size_t)x->width, run_select, s);
    return wanted(x) && tape_note(tape, back_select, s) ? NULL : s->out;
}

/* ---- norm ---- */

struct norm {
    struct variable *x, *weight, *out;
    float *inverse;         /* [rows] 1 / sqrt(mean(x^2) + epsilon) */
    float epsilon;
};

static void run_norm(void *context, size_t begin, size_t end)
{
    const struct norm *n = context;
    const size_t width = (size_t)n->x->width;
    for (size_t row = begin; row < end; row++) {
        const float *x = n->x->data + row * width;
        float *out = n->out->data + row * width;
        const float inverse = (float)(1 / sqrt(vector_dot(x, x, width) / (double)width + (double)n->epsilon));
        for (size_t i = 0; i < width; i++)
            out[i] = n->weight->data[i] * (x[i] * inverse);
        n->inverse[row] = inverse;
    }
}

/* dx = s (g - x s^2 mean(g x)), g = w dy. */
static void run_norm_back(void *context, size_t begin, size_t end)
{
    const struct norm *n = context;
    const size_t width = (size_t)n->x->width;
    for (size_t row = begin; row < end; row++) {
        const float *x = n->x->data + row * width, *dy = n->out->gradient + row * width, *w = n->weight->data;
        float *dx = n->x->gradient + row * width;
        const float inverse = n->inverse[row];
        double sum = 0;
        for (size_t i = 0; i < width; i++)
            sum += (double)(w[i] * dy[i] * x[i]);
        const float share = (float)(sum / (double)width * (double)inverse * (double)inverse);
        for (size_t i = 0; i < width; i++)
            dx[i] += inverse * (w[i] * dy[i] - x[i] * share);
    }
}

static void run_norm_weight(void *context, size_t begin, size_t end)
{
    const struct norm *n = context;
    const size_t width = (size_t)n->x->width;
    for (size_t row = 0; row < (size_t)n->x->rows; row++)
        for (size_t i = begin; i < end; i++)
            n->weight->gradient[i] += n->out->gradient[row * width + i] * (n->x->data[row * width + i] * n->inverse[row]);
}

static void back_norm(struct tape *tape, void *context)
{
    const struct norm *n = context;
    if (wanted(n->x))
        tape_spread(tape, (size_t)n->x->rows, (size_t)n->x->width, run_norm_back, context);
    if (wanted(n->weight))
        tape_spread(tape, (size_t)n->x->width, (size_t)n->x->rows, run_norm_weight, context);
}

struct variable *op_norm(struct tape *tape, struct variable *x, struct variable *weight, float epsilon)
{
    struct norm *n = tape_memory(tape, 1, sizeof *n);
    const bool any = wanted(x) || wanted(weight);
    if (!n || !x)
        return NULL;
    *n = (struct norm){x, weight, tape_value(tape, x->rows, x->width, any),
                       tape_memory(tape, (size_t)x->rows, sizeof(float)), epsilon};
    if (!n->out || !n->inverse)
        return NULL;
    tape_spread(tape, (size_t)x->rows, (size_t)x->width, run_norm, n);
    return any && tape_note(tape, back_norm, n) ? NULL : n->out;
}

/* ---- functions of single numbers ---- */

static void run_silu(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    vector_silu(n->out->data + begin, n->a->data + begin, end - begin);
}

static void run_silu_back(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    vector_silu_back(n->a->gradient + begin, n->a->data + begin, n->out->gradient + begin, end - begin);
}

static void back_silu(struct tape *tape, void *context)
{
    const struct note *n = context;
    tape_spread(tape, elements(n->out), 8, run_silu_back, context);
}

struct variable *op_silu(struct tape *tape, struct variable *x)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width, wanted(x)) : NULL;
    struct note note = {x, NULL, NULL, out};
    if (!out)
        return NULL;
    tape_spread(tape, elements(out), 8, run_silu, &note);
    return note_down(tape, back_silu, x, NULL, NULL, out);
}

static void run_gelu(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    for (size_t i = begin; i < end; i++) {
        const float x = n->a->data[i];
        n->out->data[i] = 0.5f * x * (1 + erff(x * 0.70710678f));
    }
}

static void run_gelu_back(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    for (size_t i = begin; i < end; i++) {
        const float x = n->a->data[i];
        const float slope = 0.5f * (1 + erff(x * 0.70710678f)) + x * 0.39894228f * expf(-0.5f * x * x);
        n->a->gradient[i] += n->out->gradient[i] * slope;
    }
}

static void back_gelu(struct tape *tape, void *context)
{
    const struct note *n = context;
    tape_spread(tape, elements(n->out), 32, run_gelu_back, context);
}

struct variable *op_gelu(struct tape *tape, struct variable *x)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width, wanted(x)) : NULL;
    struct note note = {x, NULL, NULL, out};
    if (!out)
        return NULL;
    tape_spread(tape, elements(out), 32, run_gelu, &note);
    return note_down(tape, back_gelu, x, NULL, NULL, out);
}

static void run_gated(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    const size_t width = (size_t)n->out->width;
    for (size_t row = begin; row < end; row++) {
        const float *gate = n->a->data + row * 2 * width;
        vector_gated(n->out->data + row * width, gate, gate + width, width);
    }
}

static void run_gated_back(void *context, size_t begin, size_t end)
{
    const struct note *n = context;
    const size_t width = (size_t)n->out->width;
    for (size_t row = begin; row < end; row++) {
        const float *gate = n->a->data + row * 2 * width;
        float *to = n->a->gradient + row * 2 * width;
        vector_gated_back(to, to + width, gate, gate + width, n->out->gradient + row * width, width);
    }
}

static void back_gated(struct tape *tape, void *context)
{
    const struct note *n = context;
    tape_spread(tape, (size_t)n->out->rows, (size_t)n->out->width * 8, run_gated_back, context);
}

struct variable *op_gated(struct tape *tape, struct variable *x)
{
    struct variable *out = x ? tape_value(tape, x->rows, x->width / 2, wanted(x)) : NULL;
    struct note note = {x, NULL, NULL, out};
    if (!out)
        return NULL;
    tape_spread(tape, (size_t)out->rows, (size_t)out->width * 8, run_gated, &note);
    return note_down(tape, back_gated, x, NULL, NULL, out);
}

/* ---- experts ---- */

struct mixing {
    enum mix mix;
    struct variable *u, *router, *out, *expert[MIX_EXPERTS_MAX];
    const struct mix_choice *choice;
    int first, experts, used;
};

/* Of the columns that the softmax is over, which are for all experts, or for the two chosen first. */
static int mix_columns(const struct mixing *m, size_t row, int column[MIX_EXPERTS_MAX])
{
    const int count = m->mix == MIX_SUM ? m->experts : 2;
    for (int i = 0; i < count; i++)
        column[i] = m->first + (m->mix == MIX_SUM ? i : m->choice->expert[row * (size_t)m->choice->slots + (size_t)i]);
    return count;
}

/* share[i]: of its columns; sign[i] of both slots. */
static void mix_shares(const struct mixing *m, size_t row, const int *column, int count, float *share, float sign[2])
{
    const float *r = m->router->data + row * (size_t)m->router->width;
    float most = r[column[0]], sum = 0;
    for (int i = 1; i < count; i++)
        most = r[column[i]] > most ? r[column[i]] : most;
    for (int i = 0; i < count; i++)
        sum += share[i] = expf(r[column[i]] - most);
    for (int i = 0; i < count; i++)
        share[i] /= sum;
    const bool larger = m->mix != MIX_SUM && r[column[0]] > r[column[1]];
    sign[0] = m->mix == MIX_CONTRAST && !larger ? -1 : 1;
    sign[1] = m->mix == MIX_CONTRAST && larger ? -1 : 1;
}

/* A slot: which column weighs it, and what its expert makes of the row. */
struct mix_slot { int share; struct variable *expert; size_t at; };

static struct mix_slot slot_of(const struct mixing *m, size_t row, int slot)
{
    const size_t place = row * (size_t)m->choice->slots + (size_t)slot;
    const int expert = m->choice->expert[place];
    struct variable *made = m->expert[expert];
    return (struct mix_slot){m->mix == MIX_SUM ? expert : slot, made, (size_t)m->choice->row[place] * (size_t)made->width};
}

static void run_mix(void *context, size_t begin, size_t end)
{
    const struct mixing *m = context;
    const size_t width = (size_t)m->u->width;
    for (size_t row = begin; row < end; row++) {
        float share[MIX_EXPERTS_MAX], sign[2], *out = m->out->data + row * width;
        int column[MIX_EXPERTS_MAX];
        mix_shares(m, row, column, mix_columns(m, row, column), share, sign);
        memcpy(out, m->u->data + row * width, width * sizeof *out);
        for (int s = 0; s < m->used; s++) {
            const struct mix_slot slot = slot_of(m, row, s);
            vector_add_scaled(out, slot.expert->data + slot.at, width, (s < 2 ? sign[s] : 1) * share[slot.share]);
        }
    }
}

/* The softmax's own: dL/dr_i = share_i (slope_i - sum_j share_j slope_j), slope_j 0 of experts that are not used. */
static void run_mix_back(void *context, size_t begin, size_t end)
{
    const struct mixing *m = context;
    const size_t width = (size_t)m->u->width;
    for (size_t row = begin; row < end; row++) {
        const float *dy = m->out->gradient + row * width;
        float share[MIX_EXPERTS_MAX], sign[2], slope[MIX_EXPERTS_MAX] = {0}, mean = 0;
        int column[MIX_EXPERTS_MAX];
        const int count = mix_columns(m, row, column);
        mix_shares(m, row, column, count, share, sign);
        for (int s = 0; s < m->used; s++) {
            const struct mix_slot slot = slot_of(m, row, s);
            const float one = s < 2 ? sign[s] : 1;
            slope[slot.share] = one * (float)vector_dot(dy, slot.expert->data + slot.at, width);
            mean += share[slot.share] * slope[slot.share];
            if (slot.expert->gradient)
                vector_add_scaled(slot.expert->gradient + slot.at, dy, width, one * share[slot.share]);
        }
        if (m->u->gradient)
            vector_add(m->u->gradient + row * width, dy, width);
        for (int i = 0; m->router->gradient && i < count; i++)
            m->router->gradient[row * (size_t)m->router->width + (size_t)column[i]] += share[i] * (slope[i] - mean);
    }
}

static void back_mix(struct tape *tape, void *context)
{
    const struct mixing *m = context;
    tape_spread(tape, (size_t)m->u->rows, (size_t)m->u->width * 4 * (size_t)m->used, run_mix_back, context);
}

struct variable *op_mix(struct tape *tape, enum mix mix, struct variable *u, struct variable *router, int first, int used,
                        struct variable *const *expert, int experts, const struct mix_choice *choice)
{
    struct mixing *m = tape_memory(tape, 1, sizeof *m);
    if (!m || !u || !router || !choice)
        return NULL;
    *m = (struct mixing){.mix = mix, .u = u, .router = router, .choice = choice, .first = first,
                         .experts = experts, .used = used};
    bool any = wanted(u) || wanted(router);
    for (int e = 0; e < experts; e++) {
        if (!expert[e])
            return NULL;
        m->expert[e] = expert[e];
        any = any || wanted(expert[e]);
    }
    if (!(m->out = tape_value(tape, u->rows, u->width, any)))
        return NULL;
    tape_spread(tape, (size_t)u->rows, (size_t)u->width * 4 * (size_t)used, run_mix, m);
    return any && tape_note(tape, back_mix, m) ? NULL : m->out;
}

/* ---- which experts ---- */

/* The largest first, of equal ones the lower expert. */
static void choose_row(const float *router, int experts, int slots, int32_t *out)
{
    bool taken[MIX_EXPERTS_MAX] = {false};
    for (int s = 0; s < slots; s++) {
        int best = -1;
        for (int e = 0; e < experts; e++)
            if (!taken[e] && (best < 0 || router[e] > router[best]))
                best = e;
        taken[best] = true;
        out[s] = best;
    }
}

struct mix_choice *mix_choose(struct tape *tape, const struct variable *router, int experts, int slots)
{
    struct mix_choice *c = tape_memory(tape, 1, sizeof *c);
    if (!c || !router)
        return NULL;
    const size_t rows = (size_t)router->rows;
    *c = (struct mix_choice){.slots = slots, .expert = tape_memory(tape, rows * (size_t)slots, sizeof(int32_t)),
                             .row = tape_memory(tape, rows * (size_t)slots, sizeof(int32_t)),
                             .rows_of = tape_memory(tape, rows * (size_t)experts, sizeof(int))};
    if (!c->expert || !c->row || !c->rows_of)
        return NULL;
    for (size_t row = 0; row < rows; row++) {
        int32_t *chosen = c->expert + row * (size_t)slots;
        choose_row(router->data + row * (size_t)router->width, experts, slots, chosen);
        for (int s = 0; s < slots; s++) {
            int *count = &c->count[chosen[s]];
            c->row[row * (size_t)slots + (size_t)s] = *count;
            c->rows_of[(size_t)chosen[s] * rows + (size_t)(*count)++] = (int)row;
        }
    }
    return c;
}

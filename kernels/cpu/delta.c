/* A value head is one task: it computes all rows of a call in order, so that the state, which is read once for two rows at a
 * time, stays in a core's cache. */
#include <string.h>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/table.h"
#include "kernels/cpu/work.h"
#include "kernels/plain/math.h"

static void conv_row(const struct short_conv_args *a, size_t r)
{
    const size_t width = (size_t)a->width, past = (size_t)a->taps - 1;
    const float *weight = work_pointer(a->weight), *cache = work_pointer(a->cache);
    const int32_t *before = past ? (const int32_t *)work_pointer(a->before) + r * past : NULL;
    float *restrict out = (float *)work_pointer(a->out) + r * (size_t)a->out_stride;
    memset(out, 0, width * sizeof *out);
    for (size_t t = 0; t <= past; t++) {
        const int32_t from = t < past ? before[t] : ((const int32_t *)work_pointer(a->slot))[r];
        if (from < 0)
            continue;
        const float *restrict in = cache + (size_t)from * width, *restrict by = weight + t * width;
        for (size_t c = 0; c < width; c++)
            out[c] = __builtin_fmaf(by[c], in[c], out[c]);
    }
    if (a->bias.address) {
        const float *restrict bias = work_pointer(a->bias);
        for (size_t c = 0; c < width; c++)
            out[c] = out[c] + bias[c];
    }
    for (size_t c = 0; a->silu && c < width; c++)
        out[c] = plain_silu(out[c]);
}

static void conv_rows(void *argument, int member, int members)
{
    const struct short_conv_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        conv_row(a, r);
}

void cpu_short_conv(struct queue *queue, const struct short_conv_args *args)
{
    struct short_conv_args copy = *args;
    const int32_t *slot = work_pointer(args->slot);
    const size_t width = (size_t)args->width;
    for (size_t r = 0; r < (size_t)args->rows; r++)
        memcpy((float *)work_pointer(args->cache) + (size_t)slot[r] * width,
               (const float *)work_pointer(args->in) + r * (size_t)args->in_stride, width * sizeof(float));
    work_run(queue, (size_t)args->rows * width * (size_t)(args->taps + 2) * sizeof(float), conv_rows, &copy);
}

static void keys_row(const struct delta_keys_args *a, size_t r)
{
    const int dim = a->key_dim;
    const size_t width = (size_t)a->key_heads * (size_t)dim;
    const int32_t slot = ((const int32_t *)work_pointer(a->slot))[r];
    const float shrink = 1 / sqrtf((float)dim);
    float *x = (float *)work_pointer(a->x) + r * (size_t)a->stride;
    for (int part = 0; a->kind == RECURRENCE_DELTA && part < 2 * a->key_heads; part++) {
        float *own = x + (size_t)part * (size_t)dim;
        const float factor = 1 / sqrtf(lanes_dot(own, own, dim) + a->epsilon);
        const float more = part < a->key_heads ? shrink : 1;
        for (int i = 0; i < dim; i++)
            own[i] = own[i] * factor * more;
    }
    memcpy((float *)work_pointer(a->key) + (size_t)slot * width, x + width, width * sizeof *x);
}

static void keys_rows(void *argument, int member, int members)
{
    const struct delta_keys_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        keys_row(a, r);
}

void cpu_delta_keys(struct queue *queue, const struct delta_keys_args *args)
{
    struct delta_keys_args copy = *args;
    const int32_t *slot = work_pointer(args->slot), *parent = work_pointer(args->parent);
    const float *neg_a = work_pointer(args->neg_a), *bias = work_pointer(args->step_bias);
    const size_t heads = (size_t)args->value_heads;
    for (size_t r = 0; r < (size_t)args->rows; r++) {
        const float *rate = args->kind == RECURRENCE_DELTA
            ? (const float *)work_pointer(args->rate) + r * (size_t)args->gate_stride : NULL;
        const float *step = (const float *)work_pointer(args->step) + r * (size_t)args->gate_stride;
        const float *past = (const float *)work_pointer(args->decay) + (size_t)(parent[r] < 0 ? 0 : parent[r]) * heads;
        float *decay = (float *)work_pointer(args->decay) + (size_t)slot[r] * heads;
        float *beta = (float *)work_pointer(args->beta) + r * heads;
        for (size_t h = 0; h < heads; h++) {
            const float t = plain_log_add(step[h] + bias[h], 0), g = neg_a[h] * t;
            beta[h] = rate ? plain_sigmoid(rate[h]) : t;
            decay[h] = parent[r] < 0 ? g : g + past[h];
        }
    }
    work_run(queue, (size_t)args->rows * (size_t)args->key_heads * (size_t)args->key_dim * 4 * sizeof(float), keys_rows, &copy);
}

/* One value head of a call. */
struct head {
    const struct delta_args *args;
    const float *key, *decay;            /* at slot 0, of this head */
    float *correction, *state;           /* at slot 0 and at state 0, of this head */
    size_t key_step, value_step, decay_step, state_step, number, key_number;
};

static struct head head_of(const struct delta_args *a, size_t h)
{
    const size_t dim = (size_t)a->key_dim, values = (size_t)a->value_dim, heads = (size_t)a->value_heads;
    const size_t key_head = a->tiled ? h % (size_t)a->key_heads : h * (size_t)a->key_heads / heads;
    return (struct head){
        .args = a, .key = (const float *)work_pointer(a->key) + key_head * dim,
        .decay = (const float *)work_pointer(a->decay) + h,
        .correction = (float *)work_pointer(a->correction) + h * values,
        .state = (float *)work_pointer(a->state) + h * dim * values, .key_step = (size_t)a->key_heads * dim,
        .value_step = heads * values, .decay_step = heads, .state_step = heads * dim * values, .number = h,
        .key_number = key_head};
}

static const float *key_at(const struct head *head, int slot) { return head->key + (size_t)slot * head->key_step; }
static float *correction_at(const struct head *head, int slot) { return head->correction + (size_t)slot * head->value_step; }
static float decay_at(const struct head *head, int slot) { return head->decay[(size_t)slot * head->decay_step]; }
static float *state_at(const struct head *head, int state) { return head->state + (size_t)state * head->state_step; }

static void add_scaled(float *restrict to, const float *restrict from, float factor, int count)
{
    for (int j = 0; j < count; j++)
        to[j] = __builtin_fmaf(factor, from[j], to[j]);
}

static void make_state(const struct head *head, int own, int before, const int32_t *path)
{
    const int keys = head->args->key_dim, values = head->args->value_dim;
    const float end = decay_at(head, path[DELTA_BORDER - 1]), factor = plain_exp(end);
    float share[DELTA_BORDER];
    for (int s = 0; s < DELTA_BORDER; s++)
        share[s] = plain_exp(end - decay_at(head, path[s]));
    for (int i = 0; i < keys; i++) {
        float *restrict to = state_at(head, own) + (size_t)i * (size_t)values;
        if (before < 0)
            memset(to, 0, (size_t)values * sizeof *to);
        else {
            const float *restrict from = state_at(head, before) + (size_t)i * (size_t)values;
            for (int j = 0; j < values; j++)
                to[j] = factor * from[j];
        }
        for (int s = 0; s < DELTA_BORDER; s++)
            add_scaled(to, correction_at(head, path[s]), share[s] * key_at(head, path[s])[i], values);
    }
}

/* The arguments of one row. */
struct row {
    const int32_t *path;
    const float *q, *k, *v;
    float *out, *correction;
    float beta;
    int own, before, count;              /* count: slots of the row's own segment, from `path` on */
};

static struct row row_of(const struct head *head, int r)
{
    const struct delta_args *a = head->args;
    const int32_t *start = (const int32_t *)work_pointer(a->path_start) + r;
    const int before = ((const int32_t *)work_pointer(a->before))[r], past = before == DELTA_KEPT ? 0 : DELTA_BORDER;
    const int32_t *path = (const int32_t *)work_pointer(a->path) + start[0] + past;
    const size_t count = (size_t)(start[1] - start[0] - past), values = (size_t)a->value_dim, stride = (size_t)a->stride;
    return (struct row){
        .path = path, .q = (const float *)work_pointer(a->q) + (size_t)r * stride + head->key_number * (size_t)a->key_dim,
        .k = key_at(head, path[count - 1]), .v = (const float *)work_pointer(a->v) + (size_t)r * stride + head->number * values,
        .out = (float *)work_pointer(a->out) + (size_t)r * head->value_step + head->number * values,
        .correction = correction_at(head, path[count - 1]),
        .beta = ((const float *)work_pointer(a->beta))[(size_t)r * head->decay_step + head->number],
        .own = ((const int32_t *)work_pointer(a->own))[r], .before = before, .count = (int)count};
}

/* Adds the contributions of the segment's tokens. correction and out must already contain those of the state: v - f k^T S (or
 * v) and f q^T S. */
static void row_add_segment(const struct head *head, const struct row *row)
{
    const int keys = head->args->key_dim, values = head->args->value_dim;
    const float decay = decay_at(head, row->path[row->count - 1]);
    for (int i = 0; i < row->count - 1; i++) {
        const float *past = key_at(head, row->path[i]), *u = correction_at(head, row->path[i]);
        const float share = plain_exp(decay - decay_at(head, row->path[i]));
        if (head->args->kind == RECURRENCE_DELTA)
            add_scaled(row->correction, u, -(share * lanes_dot(row->k, past, keys)), values);
        add_scaled(row->out, u, share * lanes_dot(row->q, past, keys), values);
    }
    for (int j = 0; j < values; j++)
        row->correction[j] = row->beta * row->correction[j];
    add_scaled(row->out, row->correction, lanes_dot(row->q, row->k, keys), values);
    if (head->args->kind == RECURRENCE_SPACE)
        add_scaled(row->out, row->v, ((const float *)work_pointer(head->args->skip))[head->number], values);
}

/* Computes one row, or two rows that read the same state. */
static void rows_attend(const struct head *head, const struct row *row, int rows)
{
    const int values = head->args->value_dim;
    const bool corrects = head->args->kind == RECURRENCE_DELTA;
    const float *share[TILE_ROWS];
    float *product[TILE_ROWS];
    int products = 0;
    for (int r = 0; r < rows; r++) {
        if (corrects) {
            share[products] = row[r].k;
            product[products++] = row[r].correction;
        }
        share[products] = row[r].q;
        product[products++] = row[r].out;
    }
    if (row->own >= 0) {
        const unsigned char *at = (const unsigned char *)state_at(head, row->own);
        const struct tile_rows kept = {.at = at, .format = CACHE_F32, .width = values, .count = head->args->key_dim,
                                       .next = at + FETCH_FAR, .next_step = (size_t)values * sizeof(float)};
        const struct tile_join join = {.first = {true, true, true, true}};
        TILE_FOR_ROWS(tile_values_of, CACHE_F32, products, &kept, share, &join, product);
    }
    for (int r = 0; r < rows; r++) {
        float *restrict u = row[r].correction, *restrict out = row[r].out;
        const float *restrict v = row[r].v, factor = plain_exp(decay_at(head, row[r].path[row[r].count - 1]));
        if (row->own < 0)
            memset(out, 0, (size_t)values * sizeof *out);
        for (int j = 0; row->own >= 0 && j < values; j++)
            out[j] = factor * out[j];
        if (row->own < 0 || !corrects)
            memcpy(u, v, (size_t)values * sizeof *u);
        for (int j = 0; row->own >= 0 && corrects && j < values; j++)
            u[j] = v[j] - factor * u[j];
        row_add_segment(head, &row[r]);
    }
}

static void delta_heads(void *argument, int member, int members)
{
    const struct delta_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->value_heads, member, members, &begin, &end);
    for (size_t h = begin; h < end; h++) {
        const struct head head = head_of(a, h);
        for (int r = 0, rows; r < a->rows; r += rows) {
            struct row row[2] = {row_of(&head, r)};
            rows = 1;
            if (r + 1 < a->rows) {
                row[1] = row_of(&head, r + 1);
                rows += row[1].own == row[0].own && row[1].before == DELTA_KEPT;
            }
            if (row[0].before != DELTA_KEPT)
                make_state(&head, row[0].own, row[0].before, row[0].path - DELTA_BORDER);
            rows_attend(&head, row, rows);
        }
    }
}

void cpu_delta(struct queue *queue, const struct delta_args *args)
{
    struct delta_args copy = *args;
    const size_t state = (size_t)args->value_heads * (size_t)args->key_dim * (size_t)args->value_dim * sizeof(float);
    work_run(queue, (size_t)args->rows * state, delta_heads, &copy);
}

static void gate_part(enum gate_kind kind, const float *in, const float *gate, float *out, int width)
{
    if (kind == GATE_SAME) {
        INDEPENDENT             /* out may be the same buffer as in, but not a shifted one */
        for (int i = 0; i < width; i++)
            out[i] = in[i] * gate[i];
    } else if (kind == GATE_SILU) {
        INDEPENDENT             /* out may be the same buffer as in, but not a shifted one */
        for (int i = 0; i < width; i++)
            out[i] = in[i] * plain_silu(gate[i]);
    } else {
        INDEPENDENT
        for (int i = 0; i < width; i++)
            out[i] = in[i] * plain_sigmoid(gate[i]);
    }
}

static void gate_rows(void *argument, int member, int members)
{
    const struct gated_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t p = 0; p < (size_t)a->parts; p++)
            gate_part(a->kind, (const float *)work_pointer(a->in) + r * (size_t)a->in_stride + p * (size_t)a->in_part,
                      (const float *)work_pointer(a->gate) + r * (size_t)a->gate_stride + p * (size_t)a->gate_part,
                      (float *)work_pointer(a->out) + r * (size_t)a->out_stride + p * (size_t)a->out_part, a->width);
}

void cpu_gated(struct queue *queue, const struct gated_args *args)
{
    struct gated_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->parts * (size_t)args->width * 16, gate_rows, &copy);
}

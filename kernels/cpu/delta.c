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
    for (int part = 0; recurrence_corrects(a->kind) && part < 2 * a->key_heads; part++) {
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

static void scan_steps(float *restrict decay, const float *restrict step, const float *restrict bias, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++)
        decay[i] = plain_log_add(step[i] + bias[i], 0);
}

/* Computes the decays and rates of some heads, of all rows: a row's decays continue those of its parent. */
static void keys_heads(void *argument, int member, int members)
{
    const struct delta_keys_args *a = argument;
    const int32_t *slot = work_pointer(a->slot), *parent = work_pointer(a->parent);
    const float *neg_a = work_pointer(a->neg_a), *bias = work_pointer(a->step_bias);
    const size_t each = (size_t)recurrence_decays(a->kind, a->key_dim, a->value_dim);
    const size_t heads = (size_t)a->value_heads, all = heads * each;
    size_t begin, end;
    thread_pool_part(heads, member, members, &begin, &end);
    for (size_t r = 0; r < (size_t)a->rows; r++) {
        const float *rate = recurrence_corrects(a->kind)
            ? (const float *)work_pointer(a->rate) + r * (size_t)a->gate_stride : NULL;
        const float *restrict step = (const float *)work_pointer(a->step) + r * (size_t)a->step_stride;
        const float *past = (const float *)work_pointer(a->decay) + (size_t)(parent[r] < 0 ? 0 : parent[r]) * all;
        float *decay = (float *)work_pointer(a->decay) + (size_t)slot[r] * all;
        float *beta = (float *)work_pointer(a->beta) + r * heads;
        if (a->kind == RECURRENCE_SCAN)
            scan_steps(decay, step, bias, begin * each, end * each);
        for (size_t h = a->kind == RECURRENCE_SCAN ? end : begin; h < end; h++) {
            float t = 0;
            for (size_t i = h * each; i < (h + 1) * each; i++) {
                t = a->floor < 0 ? 0 : plain_log_add(step[i] + bias[i], 0);
                const float g = a->floor < 0 ? a->floor * plain_sigmoid(-neg_a[h] * (step[i] + bias[i])) : neg_a[h] * t;
                decay[i] = parent[r] < 0 ? g : g + past[i];
            }
            beta[h] = rate ? plain_sigmoid(rate[h]) : t;
        }
    }
}

void cpu_delta_keys(struct queue *queue, const struct delta_keys_args *args)
{
    struct delta_keys_args copy = *args;
    const size_t rows = (size_t)args->rows;
    const size_t decays = (size_t)args->value_heads *
                          (size_t)recurrence_decays(args->kind, args->key_dim, args->value_dim);
    work_run(queue, rows * decays * 16 * sizeof(float), keys_heads, &copy);
    work_run(queue, rows * (size_t)args->key_heads * (size_t)args->key_dim * 4 * sizeof(float), keys_rows, &copy);
}

/* One value head of a call. */
struct head {
    const struct delta_args *args;
    const float *key, *decay;            /* at slot 0, of this head */
    float *correction, *state;           /* at slot 0 and at state 0, of this head */
    size_t key_step, value_step, decay_step, state_step, number, key_number;
    bool channels;                       /* each channel of the key has a decay */
};

static struct head head_of(const struct delta_args *a, size_t h)
{
    const size_t dim = (size_t)a->key_dim, values = (size_t)a->value_dim, heads = (size_t)a->value_heads;
    const size_t decays = (size_t)recurrence_decays(a->kind, a->key_dim, a->value_dim);
    const size_t key_head = a->tiled ? h % (size_t)a->key_heads : h * (size_t)a->key_heads / heads;
    return (struct head){
        .args = a, .key = (const float *)work_pointer(a->key) + key_head * dim,
        .decay = (const float *)work_pointer(a->decay) + h * decays, .channels = a->kind == RECURRENCE_CHANNEL,
        .correction = (float *)work_pointer(a->correction) + h * values,
        .state = (float *)work_pointer(a->state) + h * dim * values, .key_step = (size_t)a->key_heads * dim,
        .value_step = heads * values, .decay_step = heads * decays, .state_step = heads * dim * values, .number = h,
        .key_number = key_head};
}

static const float *key_at(const struct head *head, int slot) { return head->key + (size_t)slot * head->key_step; }
static float *correction_at(const struct head *head, int slot) { return head->correction + (size_t)slot * head->value_step; }
static const float *decays_at(const struct head *head, int slot) { return head->decay + (size_t)slot * head->decay_step; }
static float decay_at(const struct head *head, int slot) { return *decays_at(head, slot); }
static float *state_at(const struct head *head, int state) { return head->state + (size_t)state * head->state_step; }

static void add_scaled(float *restrict to, const float *restrict from, float factor, int count)
{
    for (int j = 0; j < count; j++)
        to[j] = __builtin_fmaf(factor, from[j], to[j]);
}

/* Computes out = in * e^(end - begin), element by element; begin NULL: 0. */
static void decayed(float *restrict out, const float *restrict in, const float *restrict end, const float *restrict begin,
                    int count)
{
    if (begin)
        for (int i = 0; i < count; i++)
            out[i] = in[i] * plain_exp(end[i] - begin[i]);
    else
        for (int i = 0; i < count; i++)
            out[i] = in[i] * plain_exp(end[i]);
}

/* Computes row `key` of a state: `factor` times that of the state before, or zeros if there is none (before < 0). */
static float *decay_row(const struct head *head, int own, int before, int key, float factor)
{
    const size_t values = (size_t)head->args->value_dim;
    float *restrict to = state_at(head, own) + (size_t)key * values;
    if (before < 0)
        memset(to, 0, values * sizeof *to);
    else {
        const float *restrict from = state_at(head, before) + (size_t)key * values;
        for (size_t j = 0; j < values; j++)
            to[j] = factor * from[j];
    }
    return to;
}

static void make_channel_state(const struct head *head, int own, int before, const int32_t *path)
{
    const int keys = head->args->key_dim, values = head->args->value_dim;
    const float *end = decays_at(head, path[DELTA_BORDER - 1]);
    float share[DELTA_DIM_MAX];
    for (int i = 0; i < keys; i++)
        decay_row(head, own, before, i, plain_exp(end[i]));
    for (int s = 0; s < DELTA_BORDER; s++) {
        decayed(share, key_at(head, path[s]), end, decays_at(head, path[s]), keys);
        for (int i = 0; i < keys; i++)
            add_scaled(state_at(head, own) + (size_t)i * (size_t)values, correction_at(head, path[s]), share[i], values);
    }
}

static void make_state(const struct head *head, int own, int before, const int32_t *path)
{
    const int keys = head->args->key_dim, values = head->args->value_dim;
    const float end = decay_at(head, path[DELTA_BORDER - 1]), factor = plain_exp(end);
    float share[DELTA_BORDER];
    for (int s = 0; s < DELTA_BORDER; s++)
        share[s] = plain_exp(end - decay_at(head, path[s]));
    for (int i = 0; i < keys; i++) {
        float *to = decay_row(head, own, before, i, factor);
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
    const size_t count = (size_t)(start[1] - start[0] - past), values = (size_t)a->value_dim, row = (size_t)r;
    const float *beta = work_pointer(a->beta);
    return (struct row){
        .path = path,
        .q = (const float *)work_pointer(a->q) + row * (size_t)a->stride + head->key_number * (size_t)a->key_dim,
        .k = key_at(head, path[count - 1]),
        .v = (const float *)work_pointer(a->v) + row * (size_t)a->value_stride + head->number * values,
        .out = (float *)work_pointer(a->out) + row * head->value_step + head->number * values,
        .correction = correction_at(head, path[count - 1]),
        .beta = a->kind == RECURRENCE_SCAN ? 0 : beta[row * (size_t)a->value_heads + head->number],
        .own = ((const int32_t *)work_pointer(a->own))[r], .before = before, .count = (int)count};
}

/* Adds the contributions of the segment's tokens. correction and out must already contain those of the state: v - f k^T S (or
 * v) and f q^T S. */
static void row_add_segment(const struct head *head, const struct row *row)
{
    const int keys = head->args->key_dim, values = head->args->value_dim;
    const float *decay = decays_at(head, row->path[row->count - 1]);
    float left[DELTA_DIM_MAX];
    for (int i = 0; i < row->count - 1; i++) {
        const float *past = key_at(head, row->path[i]), *u = correction_at(head, row->path[i]);
        const float share = head->channels ? 1 : plain_exp(*decay - decay_at(head, row->path[i]));
        if (head->channels) {
            decayed(left, past, decay, decays_at(head, row->path[i]), keys);
            past = left;
        }
        if (recurrence_corrects(head->args->kind))
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
    const bool corrects = recurrence_corrects(head->args->kind), channels = head->channels && row->own >= 0;
    const float *share[TILE_ROWS];
    float *product[TILE_ROWS], left[TILE_ROWS][DELTA_DIM_MAX];
    int products = 0;
    for (int r = 0; r < rows; r++) {
        if (corrects) {
            share[products] = row[r].k;
            product[products++] = row[r].correction;
        }
        share[products] = row[r].q;
        product[products++] = row[r].out;
    }
    for (int i = 0; channels && i < products; i++) {
        decayed(left[i], share[i], decays_at(head, row[i / 2].path[row[i / 2].count - 1]), NULL, head->args->key_dim);
        share[i] = left[i];
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
        const float *restrict v = row[r].v;
        const float factor = head->channels ? 1 : plain_exp(decay_at(head, row[r].path[row[r].count - 1]));
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

/* ---- RECURRENCE_SCAN ---- */

/* The state after the last `count` tokens of a path, as the last row of a head left it. */
struct scan {
    const int32_t *path;
    int own, count;
    float state[SCAN_STATE_MAX];
};

static void scan_token(const struct head *head, float *restrict state, int slot)
{
    const struct delta_args *a = head->args;
    const size_t keys = (size_t)a->key_dim, values = (size_t)a->value_dim;
    const float *restrict key = key_at(head, slot), *restrict u = correction_at(head, slot);
    const float *restrict t = decays_at(head, slot);
    const float *restrict slope = (const float *)work_pointer(a->neg_a) + head->number * keys * values;
    for (size_t i = 0; i < keys; i++)
        for (size_t j = 0; j < values; j++) {
            const size_t at = i * values + j;
            state[at] = __builtin_fmaf(key[i], u[j], plain_exp(slope[at] * t[j]) * state[at]);
        }
}

/* Computes the state after a path of a segment whose first state is `own`. Continues after the tokens that the path shares with
 * the last row: the bits are the same, because the rule is applied token by token. */
static void scan_path(const struct head *head, struct scan *scan, int own, const int32_t *path, int count)
{
    const size_t floats = (size_t)head->args->key_dim * (size_t)head->args->value_dim;
    const bool extends = scan->own == own && scan->count <= count &&
                         memcmp(scan->path, path, (size_t)scan->count * sizeof *path) == 0;
    if (!extends && own < 0)
        memset(scan->state, 0, floats * sizeof *scan->state);
    else if (!extends)
        memcpy(scan->state, state_at(head, own), floats * sizeof *scan->state);
    for (int i = extends ? scan->count : 0; i < count; i++)
        scan_token(head, scan->state, path[i]);
    scan->own = own;
    scan->path = path;
    scan->count = count;
}

static void scan_row(const struct head *head, struct scan *scan, const struct row *row)
{
    const struct delta_args *a = head->args;
    const size_t keys = (size_t)a->key_dim, values = (size_t)a->value_dim;
    const float *restrict t = decays_at(head, row->path[row->count - 1]), *restrict v = row->v;
    const float *restrict skip = (const float *)work_pointer(a->skip) + head->number * values;
    float *restrict u = row->correction, *restrict out = row->out;
    if (row->before != DELTA_KEPT) {
        scan_path(head, scan, row->before, row->path - DELTA_BORDER, DELTA_BORDER);
        memcpy(state_at(head, row->own), scan->state, keys * values * sizeof *scan->state);
        scan->own = DELTA_KEPT;                      /* a later state may have the same number */
    }
    for (size_t j = 0; j < values; j++)
        u[j] = t[j] * v[j];
    scan_path(head, scan, row->own, row->path, row->count);
    memset(out, 0, values * sizeof *out);
    for (size_t i = 0; i < keys; i++)
        add_scaled(out, scan->state + i * values, row->q[i], (int)values);
    for (size_t j = 0; j < values; j++)
        out[j] = __builtin_fmaf(skip[j], v[j], out[j]);
}

static void scan_heads(void *argument, int member, int members)
{
    const struct delta_args *a = argument;
    struct scan scan;
    size_t begin, end;
    thread_pool_part((size_t)a->value_heads, member, members, &begin, &end);
    for (size_t h = begin; h < end; h++) {
        const struct head head = head_of(a, h);
        scan.own = DELTA_KEPT;
        for (int r = 0; r < a->rows; r++) {
            const struct row row = row_of(&head, r);
            scan_row(&head, &scan, &row);
        }
    }
}

/* ---- the solved forms ---- */

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
                (head.channels ? make_channel_state : make_state)(&head, row[0].own, row[0].before,
                                                                  row[0].path - DELTA_BORDER);
            rows_attend(&head, row, rows);
        }
    }
}

void cpu_delta(struct queue *queue, const struct delta_args *args)
{
    struct delta_args copy = *args;
    const size_t state = (size_t)args->value_heads * (size_t)args->key_dim * (size_t)args->value_dim * sizeof(float);
    const bool scans = args->kind == RECURRENCE_SCAN;
    work_run(queue, (size_t)args->rows * state * (scans ? 8 : 1), scans ? scan_heads : delta_heads, &copy);
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

static float gate_of(enum gate_kind kind, float x)
{
    return kind == GATE_SAME ? x : kind == GATE_SILU ? plain_silu(x) : plain_sigmoid(x);
}

static void gate_whole(float gate, const float *in, float *out, int width)
{
    INDEPENDENT                 /* as above */
    for (int i = 0; i < width; i++)
        out[i] = in[i] * gate;
}

static void gate_rows(void *argument, int member, int members)
{
    const struct gated_args *a = argument;
    size_t begin, end;
    thread_pool_part((size_t)a->rows, member, members, &begin, &end);
    for (size_t r = begin; r < end; r++)
        for (size_t p = 0; p < (size_t)a->parts; p++) {
            const float *in = (const float *)work_pointer(a->in) + r * (size_t)a->in_stride + p * (size_t)a->in_part;
            const float *gate = (const float *)work_pointer(a->gate) + r * (size_t)a->gate_stride + p * (size_t)a->gate_part;
            float *out = (float *)work_pointer(a->out) + r * (size_t)a->out_stride + p * (size_t)a->out_part;
            if (a->single)
                gate_whole(gate_of(a->kind, *gate), in, out, a->width);
            else
                gate_part(a->kind, in, gate, out, a->width);
        }
}

void cpu_gated(struct queue *queue, const struct gated_args *args)
{
    struct gated_args copy = *args;
    work_run(queue, (size_t)args->rows * (size_t)args->parts * (size_t)args->width * 16, gate_rows, &copy);
}

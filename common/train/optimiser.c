#include "common/train/optimiser.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/train/vector.h"

void optimiser_defaults(struct optimiser_settings *out, enum head_kind kind)
{
    const bool guesses = kind == HEAD_MEDUSA || kind == HEAD_HYDRA, jakiro = kind == HEAD_JAKIRO || kind == HEAD_JAKIRO_STAR;
    *out = (struct optimiser_settings){
        .beta1 = 0.9, .beta2 = guesses ? 0.999 : 0.95, .epsilon = 1e-8,
        .decay = guesses || kind == HEAD_EAGLE3 ? 0 : jakiro ? 0.001 : 0.01,
        .clipping = guesses || kind == HEAD_EAGLE3 ? CLIP_NORM : CLIP_ELEMENT, .bound = guesses ? 1 : 0.5,
        .schedule = guesses || kind == HEAD_JAKIRO ? SCHEDULE_COSINE : SCHEDULE_LINEAR};
}

double optimiser_rate(const struct optimiser_settings *s, int64_t step)
{
    if (step < s->warmup)
        return s->rate * (double)step / (double)s->warmup;
    if (s->schedule == SCHEDULE_CONSTANT || s->steps <= s->warmup)
        return s->rate;
    const double x = (double)(step - s->warmup) / (double)(s->steps - s->warmup);
    if (x >= 1)
        return 0;
    return s->schedule == SCHEDULE_LINEAR ? s->rate * (1 - x) : s->rate * 0.5 * (1 + cos(acos(-1) * x));
}

struct block {
    double squares;
    int64_t outside;
};

struct measuring {
    const float *gradient;
    size_t begin, end;          /* floats; of which the gradients are */
    float bound;
    struct block *block;        /* of all weights */
};

static size_t block_count(size_t floats) { return (floats + OPTIMISER_BLOCK - 1) / OPTIMISER_BLOCK; }

static void measure_blocks(void *argument, int member, int members)
{
    const struct measuring *m = argument;
    const size_t first = m->begin / OPTIMISER_BLOCK;
    size_t begin, end;
    thread_pool_part(block_count(m->end - m->begin), member, members, &begin, &end);
    for (size_t i = begin; i < end; i++) {
        const float *g = m->gradient + i * OPTIMISER_BLOCK;
        const size_t left = m->end - m->begin - i * OPTIMISER_BLOCK, count = left < OPTIMISER_BLOCK ? left : OPTIMISER_BLOCK;
        int64_t outside = 0;
        for (size_t k = 0; k < count; k++)
            outside += fabsf(g[k]) > m->bound;
        m->block[first + i] = (struct block){vector_dot(g, g, count), outside};
    }
}

struct stepping {
    struct weights *weights;
    const float *gradient;
    size_t first, count;
    struct adam_step step;
};

static void step_blocks(void *argument, int member, int members)
{
    const struct stepping *s = argument;
    struct weights *w = s->weights;
    size_t begin, end;
    thread_pool_part(s->count, member, members, &begin, &end);
    const size_t at = s->first + begin;
    vector_adam(&s->step, w->data + at, w->first + at, w->second + at, s->gradient + begin, end - begin);
}

static void clear_gradients(void *argument, int member, int members)
{
    struct weights *w = argument;
    size_t begin, end;
    thread_pool_part(w->floats, member, members, &begin, &end);
    memset(w->gradient + begin, 0, (end - begin) * sizeof *w->gradient);
}

/* What each process has of something, `unit` bytes for each `of` floats of the weights, to all. */
static int share_units(const struct gradient_piece *piece, void *data, size_t unit, size_t of, struct err *err)
{
    const int size = piece->ranks ? ranks_size(piece->ranks) : 1;
    size_t *cut;
    if (size == 1)
        return 0;
    if (!(cut = mem_alloc((size_t)size + 1, sizeof *cut, err)))
        return -1;
    for (int i = 0; i <= size; i++)
        cut[i] = (piece->cut[i] + of - 1) / of * unit;
    const int rc = ranks_share(piece->ranks, data, cut, err);
    mem_free(&cut);
    return rc;
}

/* The norm of all gradients, and how many elements are beyond the bound. */
static int measure(const struct optimiser_settings *s, const struct weights *w, const struct gradient_piece *piece,
                   const size_t *own, struct thread_pool *pool, struct optimiser_report *report, struct err *err)
{
    const size_t blocks = block_count(w->floats);
    struct measuring m = {piece->gradient, own[0], own[1], s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY,
                          mem_alloc(blocks, sizeof *m.block, err)};
    double squares = 0;
    if (!m.block)
        return -1;
    thread_pool_run(pool, measure_blocks, &m);
    const int rc = share_units(piece, m.block, sizeof *m.block, OPTIMISER_BLOCK, err);
    for (size_t i = 0; !rc && i < blocks; i++) {
        squares += m.block[i].squares;
        report->clipped += m.block[i].outside;
    }
    mem_free(&m.block);
    report->norm = sqrt(squares);
    if (rc)
        return -1;
    return isfinite(report->norm) ? 0 : err_set(err, ERR_INPUT, "the gradient is no finite number");
}

int optimiser_step_piece(const struct optimiser_settings *s, struct weights *w, int64_t step,
                         const struct gradient_piece *piece, struct thread_pool *pool, struct optimiser_report *out,
                         struct err *err)
{
    const int rank = piece->ranks ? ranks_rank(piece->ranks) : 0;
    const size_t own[2] = {piece->ranks ? piece->cut[rank] : 0, piece->ranks ? piece->cut[rank + 1] : w->floats};
    struct optimiser_report report = {.rate = optimiser_rate(s, step)};
    double factor = 1;
    if (measure(s, w, piece, own, pool, &report, err))
        return -1;
    if (s->clipping == CLIP_NORM && report.norm + 1e-6 > s->bound) {
        factor = s->bound / (report.norm + 1e-6);
        report.clipped = (int64_t)w->floats;
    }
    struct stepping stepping = {w, piece->gradient, own[0], own[1] - own[0], {
        .keep = (float)(1 - report.rate * s->decay), .beta1 = (float)s->beta1, .beta2 = (float)s->beta2,
        .rate = (float)(report.rate / (1 - pow(s->beta1, (double)(step + 1)))),
        .root = (float)(1 / sqrt(1 - pow(s->beta2, (double)(step + 1)))), .epsilon = (float)s->epsilon,
        .factor = (float)factor, .bound = s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY}};
    thread_pool_run(pool, step_blocks, &stepping);
    thread_pool_run(pool, clear_gradients, w);
    if (share_units(piece, w->data, sizeof *w->data, 1, err))
        return -1;
    *out = report;
    return 0;
}

int optimiser_step(const struct optimiser_settings *s, struct weights *w, int64_t step, struct thread_pool *pool,
                   struct optimiser_report *out, struct err *err)
{
    const struct gradient_piece all = {NULL, NULL, w->gradient};
    return optimiser_step_piece(s, w, step, &all, pool, out, err);
}

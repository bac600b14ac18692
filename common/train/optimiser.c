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

/* Sums are of blocks of so many elements, added up in their order. */
enum { BLOCK = 1 << 14 };

struct measuring {
    const float *gradient;
    size_t count;
    float bound;
    double *squares;            /* by block */
    int64_t *outside;
};

static void measure_blocks(void *argument, int member, int members)
{
    const struct measuring *m = argument;
    size_t begin, end;
    thread_pool_part((m->count + BLOCK - 1) / BLOCK, member, members, &begin, &end);
    for (size_t block = begin; block < end; block++) {
        const float *g = m->gradient + block * BLOCK;
        const size_t count = m->count - block * BLOCK < BLOCK ? m->count - block * BLOCK : BLOCK;
        int64_t outside = 0;
        m->squares[block] = vector_dot(g, g, count);
        for (size_t i = 0; i < count; i++)
            outside += fabsf(g[i]) > m->bound;
        m->outside[block] = outside;
    }
}

struct stepping {
    struct weights *weights;
    struct adam_step step;
};

static void step_blocks(void *argument, int member, int members)
{
    const struct stepping *s = argument;
    struct weights *w = s->weights;
    size_t begin, end;
    thread_pool_part(w->floats, member, members, &begin, &end);
    vector_adam(&s->step, w->data + begin, w->first + begin, w->second + begin, w->gradient + begin, end - begin);
    memset(w->gradient + begin, 0, (end - begin) * sizeof *w->gradient);
}

int optimiser_step(const struct optimiser_settings *s, struct weights *w, int64_t step, struct thread_pool *pool,
                   struct optimiser_report *out, struct err *err)
{
    const size_t blocks = (w->floats + BLOCK - 1) / BLOCK;
    struct measuring m = {w->gradient, w->floats, s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY,
                          mem_alloc(blocks, sizeof *m.squares, err), NULL};
    if (!m.squares || !(m.outside = mem_alloc(blocks, sizeof *m.outside, err))) {
        mem_free(&m.squares);
        return -1;
    }
    thread_pool_run(pool, measure_blocks, &m);
    struct optimiser_report report = {.rate = optimiser_rate(s, step)};
    double squares = 0, factor = 1;
    for (size_t i = 0; i < blocks; i++) {
        squares += m.squares[i];
        report.clipped += m.outside[i];
    }
    mem_free(&m.squares);
    mem_free(&m.outside);
    report.norm = sqrt(squares);
    if (!isfinite(report.norm))
        return err_set(err, ERR_INPUT, "the gradient is no finite number");
    if (s->clipping == CLIP_NORM && report.norm + 1e-6 > s->bound) {
        factor = s->bound / (report.norm + 1e-6);
        report.clipped = (int64_t)w->floats;
    }
    struct stepping stepping = {w, {
        .keep = (float)(1 - report.rate * s->decay), .beta1 = (float)s->beta1, .beta2 = (float)s->beta2,
        .rate = (float)(report.rate / (1 - pow(s->beta1, (double)(step + 1)))),
        .root = (float)(1 / sqrt(1 - pow(s->beta2, (double)(step + 1)))), .epsilon = (float)s->epsilon,
        .factor = (float)factor, .bound = s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY}};
    thread_pool_run(pool, step_blocks, &stepping);
    *out = report;
    return 0;
}

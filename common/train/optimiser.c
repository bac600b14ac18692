#include "common/train/optimiser.h"

#include <math.h>

#include "common/base/mem.h"

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

static size_t block_count(size_t floats) { return (floats + OPTIMISER_BLOCK - 1) / OPTIMISER_BLOCK; }

/* The floats that this process updates, and their gradients. */
struct own_range {
    size_t begin, end;
    struct buffer gradient;
};

static struct buffer floats_of(struct buffer whole, const struct own_range *own)
{
    return buffer_part(whole, own->begin * sizeof(float), (own->end - own->begin) * sizeof(float));
}

/* Returns this process's floats. With pieces, the summed gradients are in the piece's host memory and are uploaded if
 * necessary. */
static struct own_range own_of(const struct weights *w, const struct gradient_piece *piece)
{
    const int rank = piece->ranks ? ranks_rank(piece->ranks) : 0;
    struct own_range own = {piece->ranks ? piece->cut[rank] : 0, piece->ranks ? piece->cut[rank + 1] : w->floats, {0, 0}};
    const size_t bytes = (own.end - own.begin) * sizeof(float);
    own.gradient = floats_of(w->at[WEIGHTS_GRADIENT], &own);
    if (piece->gradient && device_info(w->device)->host_memory)
        own.gradient = device_map(w->device, piece->gradient, bytes);
    else if (piece->gradient)
        queue_upload(w->device, own.gradient, piece->gradient, bytes);
    return own;
}

/* Gathers a per-process array in all processes: `unit` bytes for each `of` floats of the weights. */
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

/* Measures this process's blocks. */
static int measure_own(const struct optimiser_settings *s, const struct weights *w, const struct own_range *own,
                       struct block *block, struct err *err)
{
    const size_t count = block_count(own->end - own->begin);
    double *squares = mem_alloc(count, sizeof *squares, err);
    int64_t *outside = mem_alloc(count, sizeof *outside, err);
    int rc = !squares || !outside ? -1 : 0;
    if (!rc) {
        device_learn(w->device)->measure(device_queue(w->device), &(struct learn_measure_args){
            own->gradient, w->squares, w->outside, own->end - own->begin,
            s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY});
        queue_download(w->device, squares, w->squares, count * sizeof *squares);
        queue_download(w->device, outside, w->outside, count * sizeof *outside);
        rc = queue_wait(w->device, err);
    }
    for (size_t i = 0; !rc && i < count; i++)
        block[i] = (struct block){squares[i], outside[i]};
    mem_free(&squares);
    mem_free(&outside);
    return rc;
}

/* Computes the norm of all gradients and counts the elements outside the bound. */
static int measure(const struct optimiser_settings *s, const struct weights *w, const struct gradient_piece *piece,
                   const struct own_range *own, struct optimiser_report *report, struct err *err)
{
    const size_t blocks = block_count(w->floats);
    struct block *block = mem_alloc(blocks, sizeof *block, err);
    double squares = 0;
    if (!block)
        return -1;
    const int rc = measure_own(s, w, own, block + own->begin / OPTIMISER_BLOCK, err) ||
                   share_units(piece, block, sizeof *block, OPTIMISER_BLOCK, err) ? -1 : 0;
    for (size_t i = 0; !rc && i < blocks; i++) {
        squares += block[i].squares;
        report->clipped += block[i].outside;
    }
    mem_free(&block);
    report->norm = sqrt(squares);
    if (rc)
        return -1;
    return isfinite(report->norm) ? 0 : err_set(err, ERR_INPUT, "the gradient is not a finite number; give a lower --rate");
}

/* Sends each process's new weights to all. */
static int share_weights(struct weights *w, const struct gradient_piece *piece, const struct own_range *own, struct err *err)
{
    if (!piece->ranks || ranks_size(piece->ranks) == 1)
        return 0;
    return weights_fetch(w, WEIGHTS_DATA, own->begin, own->end, err) ||
           share_units(piece, w->data, sizeof *w->data, 1, err) || weights_send(w, WEIGHTS_DATA, 0, w->floats, err) ? -1 : 0;
}

int optimiser_step_piece(const struct optimiser_settings *s, struct weights *w, int64_t step,
                         const struct gradient_piece *piece, struct optimiser_report *out, struct err *err)
{
    const struct own_range own = own_of(w, piece);
    struct optimiser_report report = {.rate = optimiser_rate(s, step)};
    double factor = 1;
    if (measure(s, w, piece, &own, &report, err))
        return -1;
    if (s->clipping == CLIP_NORM && report.norm + 1e-6 > s->bound) {
        factor = s->bound / (report.norm + 1e-6);
        report.clipped = (int64_t)w->floats;
    }
    device_learn(w->device)->adam(device_queue(w->device), &(struct learn_adam_args){
        .weight = floats_of(w->at[WEIGHTS_DATA], &own), .first = floats_of(w->at[WEIGHTS_FIRST], &own),
        .second = floats_of(w->at[WEIGHTS_SECOND], &own), .gradient = own.gradient, .count = own.end - own.begin, .step = {
        .keep = (float)(1 - report.rate * s->decay), .beta1 = (float)s->beta1, .beta2 = (float)s->beta2,
        .rate = (float)(report.rate / (1 - pow(s->beta1, (double)(step + 1)))),
        .root = (float)(1 / sqrt(1 - pow(s->beta2, (double)(step + 1)))), .epsilon = (float)s->epsilon,
        .factor = (float)factor, .bound = s->clipping == CLIP_ELEMENT ? (float)s->bound : INFINITY}});
    weights_clear_gradients(w);
    if (share_weights(w, piece, &own, err))
        return -1;
    *out = report;
    return 0;
}

int optimiser_step(const struct optimiser_settings *s, struct weights *w, int64_t step, struct optimiser_report *out,
                   struct err *err)
{
    return optimiser_step_piece(s, w, step, &(struct gradient_piece){NULL, NULL, NULL}, out, err);
}

#include "common/train/trainer_internal.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "kernels/plain/philox.h"

enum { DRAW_ORDER = 0x4f, DRAW_NOISE = 0x4e };

int64_t train_epoch_steps(int64_t texts, int batch) { return (texts + batch - 1) / batch; }

/* Returns a number below `bound`: the upper bits of a product with 32 random bits. Its bias, at most bound / 2^32, is
 * negligible. */
static int64_t draw_below(uint64_t seed, int64_t epoch, int64_t at, int64_t bound)
{
    const struct philox bits = philox((struct philox){{(uint32_t)at, (uint32_t)(at >> 32), (uint32_t)epoch, DRAW_ORDER}}, seed);
    return (int64_t)(((uint64_t)bits.word[0] * (uint64_t)bound) >> 32);
}

void train_order(int32_t *order, int64_t texts, uint64_t seed, int64_t epoch)
{
    for (int64_t i = 0; i < texts; i++)
        order[i] = (int32_t)i;
    for (int64_t i = texts - 1; i > 0; i--) {
        const int64_t other = draw_below(seed, epoch, i, i + 1);
        const int32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

int trainer_open(struct trainer **out, const struct trainer_setup *setup, struct err *err)
{
    const int64_t texts = setup->source->texts;
    struct trainer *t;
    if (texts == 0)
        return err_set(err, ERR_INPUT, "there are no texts to train on");
    if (texts > INT32_MAX)
        return err_set(err, ERR_INPUT, "there are %lld texts, more than the maximum of %d; give fewer", (long long)texts,
                       INT32_MAX);
    if ((setup->share || (setup->settings->micro && setup->settings->micro < setup->settings->batch)) &&
        !setup->source->outline)
        return err_set(err, ERR_INPUT, "the texts can be read only once, so a batch cannot be split (--micro-batch, --ranks); "
                       "write the stream to a file");
    if (!(t = mem_alloc(1, sizeof *t, err)))
        return -1;
    t->setup = *setup;
    t->epoch = -1;
    t->best = (struct train_best){.evaluated = -1, .step = -1, .loss = INFINITY};
    if (tape_new(&t->tape, setup->weights->device, err) ||
        !(t->index = mem_alloc((size_t)setup->settings->batch, sizeof *t->index, err)) ||
        !(t->tokens = mem_alloc((size_t)setup->settings->batch, sizeof *t->tokens, err)) ||
        !(t->before = mem_alloc((size_t)setup->settings->batch, sizeof *t->before, err)) ||
        !(t->pick = mem_alloc((size_t)setup->settings->batch, sizeof *t->pick, err)) ||
        !(t->bound = mem_alloc((size_t)setup->settings->batch + 1, sizeof *t->bound, err)) ||
        !(t->part = mem_alloc((size_t)setup->settings->batch, sizeof *t->part, err)) ||
        (texts > 0 && !(t->order = mem_alloc((size_t)texts, sizeof *t->order, err)))) {
        trainer_close(&t);
        return -1;
    }
    *out = t;
    return 0;
}

void trainer_close(struct trainer **trainer)
{
    if (*trainer) {
        tape_free(&(*trainer)->tape);
        train_batch_free(&(*trainer)->batch);
        text_free(&(*trainer)->names);
        mem_free(&(*trainer)->index);
        mem_free(&(*trainer)->tokens);
        mem_free(&(*trainer)->before);
        mem_free(&(*trainer)->pick);
        mem_free(&(*trainer)->bound);
        mem_free(&(*trainer)->part);
        mem_free(&(*trainer)->order);
    }
    mem_free(trainer);
}

int64_t trainer_steps(const struct trainer *trainer) { return trainer->steps; }

/* ---- the texts of a step ---- */

/* Selects the texts of the step in the order of the epoch; the last step of an epoch may have fewer. From a source of unknown
 * length: the next ones. */
static void choose_texts(struct trainer *t)
{
    const int64_t texts = t->setup.source->texts, batch = t->setup.settings->batch;
    t->source = t->setup.source;
    t->learning = true;
    t->texts = 0;
    if (texts < 0) {
        while (t->texts < batch) {
            t->index[t->texts] = t->steps * batch + t->texts;
            t->texts++;
        }
        return;
    }
    const int64_t each = train_epoch_steps(texts, (int)batch), epoch = t->steps / each, first = t->steps % each * batch;
    if (t->epoch != epoch)
        train_order(t->order, texts, t->setup.settings->seed, t->epoch = epoch);
    for (int64_t i = first; i < first + batch && i < texts; i++)
        t->index[t->texts++] = t->order[i];
}

/* Counts the divisors of the losses and the tokens of each text, for a step of several batches. Each of several processes reads
 * only some of the texts. */
static int measure_step(struct trainer *t, struct share *share, struct err *err)
{
    const struct train_source *source = t->source;
    t->whole = (struct train_whole){.texts = 0};
    for (int i = share ? ranks_rank(share->ranks) : 0; i < t->texts; i += share ? ranks_size(share->ranks) : 1) {
        struct train_text text;
        if (source->outline(source->self, t->index[i], t->setup.settings->longest, &text, err) <= 0)
            return -1;
        train_whole_add(&t->whole, text.mask, text.tokens);
        t->tokens[i] = text.tokens;
    }
    if (share && share_measures(share, t->tokens, t->texts, &t->whole, err))
        return -1;
    for (int i = 1; i < t->texts; i++)
        t->before[i] = t->before[i - 1] + t->tokens[i - 1];
    return 0;
}

/* Divides the step into parts: of `micro` texts each if set, else one part per process with about equal numbers of tokens. */
static int cut_step(struct trainer *t, struct share *share, struct err *err)
{
    const int micro = t->setup.settings->micro, size = share ? ranks_size(share->ranks) : 1;
    t->parts = micro ? (t->texts + micro - 1) / micro : size < t->texts ? size : t->texts;
    if ((t->parts > 1 || share) && measure_step(t, share, err))
        return -1;
    if (micro || t->parts == 1) {
        for (int i = 0; i < t->texts; i++)
            t->part[i] = micro ? i / micro : 0;
    } else {
        int64_t *load = mem_alloc((size_t)t->parts, sizeof *load, err);
        if (!load)
            return -1;
        share_balance(t->tokens, t->texts, t->parts, load, t->part);
        mem_free(&load);
    }
    for (int part = 0, at = 0; part < t->parts; part++)
        for (int i = 0; i < t->texts; i++)
            if (t->part[i] == part) {
                t->pick[at++] = i;
                t->bound[part + 1] = at;
            }
    return 0;
}

static int list_name(struct text *list, const struct train_text *text, struct err *err)
{
    return text_printf(list, err, "%s%s", list->length ? ", " : "", text->name ? text->name : "?");
}

/* Reads texts pick[from] .. pick[to - 1] of the step into the batch; fewer or none if a source of unknown length has ended. */
static int take_batch(struct trainer *t, int from, int to, struct err *err)
{
    const struct train_source *source = t->source;
    train_batch_clear(&t->batch, &t->setup.points, t->setup.weights->head.target.hidden);
    t->names.length = 0;
    for (int i = from; i < to; i++) {
        struct train_text text;
        const int more = source->read(source->self, t->index[t->pick[i]], t->setup.settings->longest, &text, err);
        if (more < 0)
            return -1;
        if (!more)
            break;
        if (train_batch_add(&t->batch, &text, err) || list_name(&t->names, &text, err))
            return -1;
        if (t->parts == 1)                          /* with several parts measure_step has set it */
            t->before[t->pick[i]] = t->batch.offset[i - from];
    }
    return 0;
}

/* Adds EAGLE's uniform noise to the states that the head reads, not to those that losses compare with. A row has the same noise
 * whichever batch of the step it is in. The batch has the texts from pick[from] on. */
static int add_noise(struct trainer *t, int from, struct err *err)
{
    const struct train_settings *s = t->setup.settings;
    struct train_batch *b = &t->batch;
    const size_t width = (size_t)b->hidden, all = (size_t)b->rows * width * sizeof(float);
    if (!(s->noise > 0) || !t->learning)
        return 0;
    if (!(b->clean = mem_copy(b->state[b->points.count - 1], all, err)))
        return -1;
    for (int text = 0; text < b->texts; text++) {
        const int rows = b->offset[text + 1] - b->offset[text];
        const float size = (float)(s->noise * 512 / rows);
        const size_t before = (size_t)t->before[t->pick[from + text]] * width;
        for (int point = 0; point < b->points.count; point++) {
            float *state = b->state[point] + (size_t)b->offset[text] * width;
            for (size_t i = 0; i < (size_t)rows * width; i++) {
                const struct philox bits = philox((struct philox){{(uint32_t)(before + i), (uint32_t)t->steps,
                                                   (uint32_t)(t->steps >> 32) ^ (uint32_t)point << 16, DRAW_NOISE}}, s->seed);
                state[i] += size * ((float)(bits.word[0] >> 8) * 0x1p-24f - 0.5f);
            }
        }
    }
    return 0;
}

/* ---- a step ---- */

/* Computes the loss of the current batch; in training also adds its gradients to those so far. */
static int run_batch(struct trainer *t, struct losses *losses, bool *finite, struct err *err)
{
    if (t->learning)
        tape_begin(t->tape);
    else
        tape_begin_forward(t->tape);
    if (network_loss(t->setup.network, t->tape, &t->batch, losses, err))
        return -1;
    if ((*finite = isfinite(losses->total)) && t->learning)
        tape_backward(t->tape);
    return 0;
}

static int all_finite(struct weights *w, bool *finite, struct err *err)
{
    if (weights_fetch(w, WEIGHTS_GRADIENT, 0, w->floats, err))
        return -1;
    for (size_t i = 0; *finite && i < w->floats; i++)
        *finite = isfinite(w->gradient[i]);
    return 0;
}

/* Runs each text of the step alone to find those with a loss or gradient that is not finite. */
static int try_texts(struct trainer *t, struct text *guilty, struct text *all, int *count, struct err *err)
{
    *count = 0;
    t->parts = t->texts;            /* one text per part; `before` is known for each */
    for (int i = 0; i < t->texts; i++) {
        struct losses losses;
        struct train_text text;
        bool finite;
        if (take_batch(t, i, i + 1, err))
            return -1;
        if (add_noise(t, i, err) || run_batch(t, &losses, &finite, err))
            return -1;
        if (all_finite(t->setup.weights, &finite, err))
            return -1;
        weights_clear_gradients(t->setup.weights);
        const int64_t index = t->index[t->pick[i]];
        if (t->source->outline(t->source->self, index, t->setup.settings->longest, &text, err) <= 0 ||
            list_name(all, &text, err) || (!finite && list_name(guilty, &text, err)))
            return -1;
        *count += !finite;
    }
    return 0;
}

/* Prefixes an error with the step and the texts that cause it alone; with all texts if none does. */
static int find_faulty_texts(struct trainer *t, struct err *err)
{
    struct text guilty = {0}, all = {0};
    struct err other = {0};
    const char *at = t->learning ? "step" : "validation after step";
    int count;
    weights_clear_gradients(t->setup.weights);
    if (!t->source->outline || try_texts(t, &guilty, &all, &count, &other))
        err_at(err, "%s %lld, texts %s", at, (long long)t->steps, t->names.data);
    else
        err_at(err, "%s %lld, text%s %s", at, (long long)t->steps, count == 1 ? "" : "s", count ? guilty.data : all.data);
    text_free(&guilty);
    text_free(&all);
    return -1;
}

/* Computes losses and gradients of a part of the step. Returns 1; 0 if the source has ended; -1. */
static int run_part(struct trainer *t, int part, struct share_report *out, struct err *err)
{
    bool finite;
    if (take_batch(t, t->bound[part], t->bound[part + 1], err))
        return -1;
    if (!t->batch.texts)
        return 0;
    t->batch.whole = t->parts > 1 ? &t->whole : NULL;
    if (add_noise(t, t->bound[part], err) || run_batch(t, &out->losses, &finite, err))
        return -1;
    if (!finite) {
        err_set(err, ERR_INPUT, "the loss is not a finite number; give a lower --rate");
        return find_faulty_texts(t, err);
    }
    out->tokens = t->batch.rows;
    return 1;
}

/* Computes all parts of the step, distributed over several processes. */
static int run_share(struct trainer *t, struct share *share, struct train_report *r, struct err *err)
{
    if (share_begin(share, t->parts, err))
        return -1;
    for (int first = 0, round = 0; first < t->parts; first += ranks_size(share->ranks), round++) {
        struct share_report own = {.tokens = 0};
        const int part = share_part(share, round);
        if ((part >= 0 && run_part(t, part, &own, err) < 0) || share_end_round(share, round, &own, err))
            return -1;
    }
    return share_total(share, &r->losses, &r->tokens, err) ? -1 : 1;
}

/* Computes losses and gradients of the step's texts, added up part by part in order. Returns 1; 0 if the source has ended; -1.
 * In validation each process computes its batch alone. */
static int run_texts(struct trainer *t, struct train_report *r, struct err *err)
{
    struct share *share = t->learning ? t->setup.share : NULL;
    if (cut_step(t, share, err))
        return -1;
    if (share)
        return run_share(t, share, r, err);
    for (int part = 0; part < t->parts; part++) {
        struct share_report of = {.tokens = 0};
        const int more = run_part(t, part, &of, err);
        if (more <= 0)
            return more;
        losses_add(&r->losses, &of.losses);
        r->tokens += (int)of.tokens;
    }
    return 1;
}

static int step_weights(struct trainer *t, struct train_report *r, struct err *err)
{
    const struct optimiser_settings *s = &t->setup.settings->optimiser;
    if (!t->setup.share)
        return optimiser_step(s, t->setup.weights, t->steps, &r->optimiser, err);
    const struct gradient_piece piece = share_piece(t->setup.share);
    return optimiser_step_piece(s, t->setup.weights, t->steps, &piece, &r->optimiser, err);
}

int trainer_step(struct trainer *t, struct train_report *report, struct err *err)
{
    const struct train_settings *s = t->setup.settings;
    struct weights *w = t->setup.weights;
    const int64_t texts = t->setup.source->texts;
    struct train_report r = {.step = t->steps};
    choose_texts(t);
    int more = run_texts(t, &r, err);
    if (more > 0 && step_weights(t, &r, err))
        more = err->code == ERR_INPUT ? find_faulty_texts(t, err) : -1;
    if (more < 0)               /* after a failed step gradients must be zeroed here; a successful step has done so */
        weights_clear_gradients(w);
    if (more <= 0)
        return more;
    t->steps++;
    if (texts > 0) {
        const int64_t each = train_epoch_steps(texts, s->batch);
        r.epoch = (double)(t->steps / each) + (double)(t->steps % each) / (double)each;
    }
    *report = r;
    return 1;
}

/* ---- several processes ---- */

int trainer_gather(struct trainer *t, struct err *err) { return t->setup.share ? share_gather(t->setup.share, err) : 0; }

int trainer_scatter(struct trainer *t, struct err *err)
{
    struct share *share = t->setup.share;
    return share && (share_scatter(share, err) || ranks_broadcast(share->ranks, &t->steps, sizeof t->steps, err) ||
                     ranks_broadcast(share->ranks, &t->best, sizeof t->best, err)) ? -1 : 0;
}

/* ---- validation ---- */

int trainer_evaluate(struct trainer *t, const struct train_source *source, const struct stop *stop, double *loss,
                     struct err *err)
{
    const int batch = t->setup.settings->batch, rank = t->setup.share ? ranks_rank(t->setup.share->ranks) : 0;
    const int size = t->setup.share ? ranks_size(t->setup.share->ranks) : 1;
    const int64_t batches = train_epoch_steps(source->texts, batch), each = (batches + size - 1) / size;
    double *sum = mem_alloc((size_t)(size * each), sizeof *sum, err);       /* [size][each] by process, then by its batches */
    int rc = sum ? 1 : -1;
    t->source = source;
    t->learning = false;
    for (int64_t k = rank; rc > 0 && k < batches; k += size) {
        struct train_report r = {.step = t->steps};
        const int64_t first = k * batch;
        for (t->texts = 0; t->texts < batch && first + t->texts < source->texts; t->texts++)
            t->index[t->texts] = first + t->texts;
        rc = stop_asked(stop) ? 0 : run_texts(t, &r, err) < 0 ? -1 : 1;
        sum[rank * each + k / size] = r.losses.total * t->texts;
    }
    if (rc > 0 && t->setup.share && share_equal(t->setup.share, sum, (size_t)each * sizeof *sum, err))
        rc = -1;
    double all = 0;
    for (int64_t k = 0; rc > 0 && k < batches; k++)
        all += sum[k % size * each + k / size];
    if (rc > 0)
        *loss = all / (double)source->texts;
    mem_free(&sum);
    return rc;
}

bool trainer_is_best(const struct trainer *t, double loss) { return loss < t->best.loss; }

void trainer_evaluated(struct trainer *t, double loss)
{
    t->best.evaluated = t->steps;
    if (trainer_is_best(t, loss)) {
        t->best.loss = loss;
        t->best.step = t->steps;
    }
}

const struct train_best *trainer_best(const struct trainer *t) { return &t->best; }

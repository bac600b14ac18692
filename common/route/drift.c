#include "common/route/drift.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/counts.h"
#include "common/route/speculation.h"
#include "common/stream/coact.h"

struct open_text {
    int64_t sequence;
    bool begun;
    float *state, *probs;       /* states and probabilities of the text's last token */
};

struct layer_sums { double state, growth, growth_max, score, score_max, norm_max; int64_t grown; };

struct drift {
    struct analysis base;               /* counted: pairs of tokens */
    int layers, experts, hidden;
    struct layer_sums *sums;    /* [layers] */
    struct open_text *texts;    /* open texts first; the arrays of closed texts are reused */
    size_t open, room;
};

static void free_drift(struct analysis *analysis)
{
    struct drift *d = (struct drift *)analysis;
    for (size_t i = 0; i < d->room; i++) {
        mem_free(&d->texts[i].state);
        mem_free(&d->texts[i].probs);
    }
    mem_free(&d->texts);
    mem_free(&d->sums);
    mem_free(&d);
}

static int open_drift(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                      struct err *err)
{
    (void)setup;
    if (model->layers != model->moe_layers)
        return err_set(err, ERR_INPUT, "only %d of the model's %d layers have experts; drift can be measured only if all "
                       "layers have",
                       model->moe_layers, model->layers);
    struct drift *d = mem_alloc(1, sizeof *d, err);
    if (!d)
        return -1;
    *d = (struct drift){.layers = model->layers, .experts = model->experts, .hidden = model->hidden};
    if (!(d->sums = mem_alloc((size_t)d->layers, sizeof *d->sums, err))) {
        free_drift(&d->base);
        return -1;
    }
    *out = &d->base;
    return 0;
}

static double distance(const float *a, const float *b, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sqrt(sum);
}

static double log_of(float p) { return log(p > 1e-38f ? p : 1e-38f); }

static double score_distance(const float *a, const float *b, int count)
{
    double mean = 0, sum = 0;
    for (int i = 0; i < count; i++)
        mean += (log_of(a[i]) - log_of(b[i])) / count;
    for (int i = 0; i < count; i++) {
        double apart = log_of(a[i]) - log_of(b[i]) - mean;
        sum += apart * apart;
    }
    return sqrt(sum);
}

static void add_pair(struct drift *d, const struct open_text *text, const float *state, const float *probs)
{
    double before = 0;          /* distance of the previous layer's states */
    for (int l = 0; l < d->layers; l++) {
        struct layer_sums *s = &d->sums[l];
        double apart = distance(text->state + (size_t)l * (size_t)d->hidden, state + (size_t)l * (size_t)d->hidden, d->hidden);
        double score = score_distance(text->probs + (size_t)l * (size_t)d->experts, probs + (size_t)l * (size_t)d->experts,
                                      d->experts);
        s->state += apart;
        s->score += score;
        s->score_max = fmax(s->score_max, score);
        if (before > 0) {
            s->growth += apart / before;
            s->growth_max = fmax(s->growth_max, apart / before);
            s->norm_max = fmax(s->norm_max, score / before);
            s->grown++;
        }
        before = apart;
    }
    d->base.counted++;
}

static struct open_text *find_text(struct drift *d, int64_t sequence)
{
    for (size_t i = 0; i < d->open; i++)
        if (d->texts[i].sequence == sequence)
            return &d->texts[i];
    return NULL;
}

static struct open_text *begin_text(struct drift *d, int64_t sequence, struct err *err)
{
    if (mem_grow(&d->texts, &d->room, d->open + 1, sizeof *d->texts, err))
        return NULL;
    struct open_text *text = &d->texts[d->open];
    if ((!text->state && !(text->state = mem_alloc((size_t)d->layers * (size_t)d->hidden, sizeof *text->state, err))) ||
        (!text->probs && !(text->probs = mem_alloc((size_t)d->layers * (size_t)d->experts, sizeof *text->probs, err))))
        return NULL;
    text->sequence = sequence;
    text->begun = false;
    d->open++;
    return text;
}

static int add_drift(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct drift *d = (struct drift *)analysis;
    struct open_text *text = find_text(d, record->sequence);
    size_t states = (size_t)d->layers * (size_t)d->hidden, probs = (size_t)d->layers * (size_t)d->experts;
    if (!record->hidden || !record->probs)
        return err_set(err, ERR_INPUT, "the routes have no %s; record them with moe-profile --record route,probs,hidden",
                       record->hidden ? "probabilities" : "hidden states");
    if (!text && !(text = begin_text(d, record->sequence, err)))
        return -1;
    for (int i = 0; i < record->n; i++) {
        if (record->accepted && !record->accepted[i])
            continue;
        const float *state = record->hidden + (size_t)i * states, *prob = record->probs + (size_t)i * probs;
        if (text->begun)
            add_pair(d, text, state, prob);
        memcpy(text->state, state, states * sizeof *state);
        memcpy(text->probs, prob, probs * sizeof *prob);
        text->begun = true;
    }
    return 0;
}

static void end_drift(struct analysis *analysis, int64_t sequence)
{
    struct drift *d = (struct drift *)analysis;
    struct open_text *text = find_text(d, sequence);
    if (!text)
        return;
    d->open--;
    struct open_text closed = *text;
    *text = d->texts[d->open];
    d->texts[d->open] = closed;
}

static struct coact_drift layer_of(const struct drift *d, int layer)
{
    const struct layer_sums *s = &d->sums[layer];
    double pairs = (double)d->base.counted, growth = 1;
    struct coact_drift out = { .layer = layer, .pairs = d->base.counted, .state = s->state / pairs, .growth_mean = NAN,
                               .growth_max = NAN, .score_mean = s->score / pairs, .score_max = s->score_max, .norm_max = NAN,
                               .bound = NAN };
    if (!layer || !s->grown)
        return out;
    for (int l = 1; l < layer; l++)
        growth *= d->sums[l].growth_max;
    out.growth_mean = s->growth / (double)s->grown;
    out.growth_max = s->growth_max;
    out.norm_max = s->norm_max;
    out.bound = speculation_drift(s->norm_max, d->sums[0].state / pairs, &growth, 1);
    return out;
}

static int put_drift(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct drift *d = (const struct drift *)analysis;
    for (int layer = 0; layer < d->layers; layer++) {
        const struct coact_drift record = layer_of(d, layer);
        if (put(context, &coact_drift_kind, &record, err))
            return -1;
    }
    return 0;
}

const struct analysis_class drift_analysis = { .kind = &coact_drift_kind, .consecutive = true,
    .empty = "no text has two tokens of this phase; profile longer ones", .open = open_drift, .tokens = add_drift,
    .end = end_drift, .put = put_drift, .free = free_drift };

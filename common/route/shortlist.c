#include "common/route/shortlist.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/coverage.h"
#include "common/stream/coact.h"

struct candidate {
    float sum;                          /* the key of the engine's ranking */
    int32_t expert;
    double mass;
};

struct shortlist {
    struct analysis base;               /* counted: nodes */
    int moe_layers, experts, top_k;
    int64_t forwards;
    bool corrected;
    float *correction;                  /* [moe_layers][experts] of the current text */
    int64_t *mass, *served;             /* [moe_layers][experts]: mass in units of 2^-30, served in nodes */
    struct candidate *candidate;        /* [experts] */
    int32_t *rank;                      /* [experts], from 0 */
};

static void free_shortlist(struct analysis *analysis)
{
    struct shortlist *s = (struct shortlist *)analysis;
    mem_free(&s->correction);
    mem_free(&s->mass);
    mem_free(&s->served);
    mem_free(&s->candidate);
    mem_free(&s->rank);
    mem_free(&s);
}

static int open_shortlist(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                          struct err *err)
{
    size_t experts = (size_t)model->experts, cells = (size_t)model->moe_layers * experts;
    (void)setup;
    struct shortlist *s = mem_alloc(1, sizeof *s, err);
    if (!s)
        return -1;
    s->moe_layers = model->moe_layers;
    s->experts = model->experts;
    s->top_k = model->top_k;
    if (!(s->correction = mem_alloc(cells, sizeof *s->correction, err)) ||
        !(s->mass = mem_alloc(cells, sizeof *s->mass, err)) || !(s->served = mem_alloc(cells, sizeof *s->served, err)) ||
        !(s->candidate = mem_alloc(experts, sizeof *s->candidate, err)) ||
        !(s->rank = mem_alloc(experts, sizeof *s->rank, err))) {
        free_shortlist(&s->base);
        return -1;
    }
    *out = &s->base;
    return 0;
}

static void begin_shortlist(struct analysis *analysis, const struct route_begin *begin)
{
    struct shortlist *s = (struct shortlist *)analysis;
    s->corrected = begin->correction != NULL;
    if (s->corrected)
        memcpy(s->correction, begin->correction, (size_t)s->moe_layers * (size_t)s->experts * sizeof *s->correction);
}

static int largest_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    return x->sum > y->sum ? -1 : x->sum < y->sum ? 1 : x->expert < y->expert ? -1 : 1;
}

/* Ranks the layer's experts for this forward. */
static int rank_layer(struct shortlist *s, const struct route_tokens *record, int layer, struct err *err)
{
    size_t experts = (size_t)s->experts, at = (size_t)layer * experts, row = (size_t)s->moe_layers * experts;
    const float *correction = s->corrected ? s->correction + at : NULL;
    for (size_t e = 0; e < experts; e++)
        s->candidate[e] = (struct candidate){ .expert = (int32_t)e };
    for (int i = 0; i < record->n; i++) {
        const float *probs = record->probs + (size_t)i * row + at;
        for (size_t e = 0; e < experts; e++) {
            float value = correction ? probs[e] + correction[e] : probs[e];
            if (!(probs[e] >= 0 && probs[e] <= 1.001f) || isnan(value))
                return err_set(err, ERR_INPUT, "token %d, layer %d: the routing probability %g is not from 0 to 1; the stream "
                               "is damaged", i,
                               layer, (double)probs[e]);
            s->candidate[e].sum += value;
            s->candidate[e].mass += (double)probs[e];
        }
    }
    qsort(s->candidate, experts, sizeof *s->candidate, largest_first);
    for (size_t i = 0; i < experts; i++)
        s->rank[s->candidate[i].expert] = (int32_t)i;
    return 0;
}

/* Adds, for every B, the share of the routing mass of this forward that the first B experts of the ranking have, and counts
 * the tokens all of whose experts are among them. */
static void cover_layer(struct shortlist *s, const struct route_tokens *record, int layer)
{
    size_t at = (size_t)layer * (size_t)s->experts, row = (size_t)s->moe_layers * (size_t)s->top_k;
    double all = 0, kept = 0;
    for (int e = 0; e < s->experts; e++)
        all += s->candidate[e].mass;
    for (int e = 0; e < s->experts; e++) {
        kept += s->candidate[e].mass;
        s->mass[at + (size_t)e] += (int64_t)rint((all > 0 ? kept / all : 1) * ROUTE_MASS_STEPS);
    }
    for (int i = 0; i < record->n; i++) {
        const int16_t *expert = record->experts + (size_t)i * row + (size_t)layer * (size_t)s->top_k;
        int32_t last = 0;
        for (int slot = 0; slot < s->top_k; slot++)
            if (expert[slot] >= 0 && s->rank[expert[slot]] > last)
                last = s->rank[expert[slot]];
        s->served[at + (size_t)last]++;
    }
}

static int add_forward(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct shortlist *s = (struct shortlist *)analysis;
    if (record->phase == PHASE_PROMPT)
        return 0;
    if (!record->probs)
        return err_set(err, ERR_INPUT, "--by router needs the routing probabilities of all experts, which the routes lack; "
                       "record them with moe-profile --record route,probs");
    for (int layer = 0; layer < s->moe_layers; layer++) {
        if (rank_layer(s, record, layer, err))
            return -1;
        cover_layer(s, record, layer);
    }
    s->forwards++;
    s->base.counted += record->n;
    return 0;
}

static int put_shortlist(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct shortlist *s = (const struct shortlist *)analysis;
    struct coverage *coverage = NULL;
    if (coverage_open(&coverage, "router", s->moe_layers, s->experts, err))
        return -1;
    coverage->top_k = s->top_k;
    coverage->tokens = s->base.counted;
    for (int layer = 0; layer < s->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)s->experts;
        int64_t served = 0;
        for (size_t i = at; i < at + (size_t)s->experts; i++) {
            served += s->served[i];
            coverage->mass[i] = (double)s->mass[i] / ROUTE_MASS_STEPS / (double)s->forwards;
            coverage->served[i] = (double)served / (double)s->base.counted;
        }
    }
    int rc = coverage_put(coverage, put, context, err);
    coverage_free(&coverage);
    return rc;
}

const struct analysis_class shortlist_analysis = { .kind = &coact_coverage_kind,
    .empty = "the routes have no forwards that decode or verify; profile answers with -n, and drafts with --draft",
    .open = open_shortlist, .begin = begin_shortlist, .tokens = add_forward, .put = put_shortlist, .free = free_shortlist };

#include "common/route/counts.h"

#include <math.h>

#include "common/base/mem.h"

int route_model_check(const struct stream_model *model, struct err *err)
{
    size_t cells;
    if (model->moe_layers < 1 || model->experts < 1 || model->top_k < 1)
        return err_set(err, ERR_INPUT, "the model has no experts; only Mixture-of-Experts models have routes");
    if (model->experts > INT16_MAX || model->top_k > model->experts ||
        !size_mul((size_t)model->moe_layers, (size_t)model->experts, &cells) || cells > ROUTE_CELLS_MAX)
        return err_set(err, ERR_INPUT, "the header declares %d layers with %d experts, %d per token, which is impossible; the "
                       "stream is damaged",
                       model->moe_layers, model->experts, model->top_k);
    return 0;
}

int route_counts_open(struct route_counts **out, const struct stream_model *model, struct err *err)
{
    if (route_model_check(model, err))
        return -1;
    struct route_counts *counts = mem_alloc(1, sizeof *counts, err);
    if (!counts)
        return -1;
    size_t cells = (size_t)model->moe_layers * (size_t)model->experts;
    counts->moe_layers = model->moe_layers;
    counts->experts = model->experts;
    counts->top_k = model->top_k;
    if (!(counts->selected = mem_alloc(cells, sizeof *counts->selected, err)) ||
        !(counts->mass = mem_alloc(cells, sizeof *counts->mass, err)))
        goto fail;
    *out = counts;
    return 0;
fail:
    route_counts_free(&counts);
    return -1;
}

void route_counts_free(struct route_counts **counts)
{
    if (!*counts)
        return;
    mem_free(&(*counts)->selected);
    mem_free(&(*counts)->mass);
    mem_free(counts);
}

int route_tokens_kept(const struct route_tokens *record)
{
    if (!record->accepted)
        return record->n;
    int kept = 0;
    for (int i = 0; i < record->n; i++)
        kept += record->accepted[i] != 0;
    return kept;
}

void route_mass_add(double *sum, const float *score, int count)
{
    for (int i = 0; i < count; i++)
        sum[i] += rint((double)score[i] * ROUTE_MASS_STEPS) / ROUTE_MASS_STEPS;
}

static int add_selected(struct route_counts *counts, const struct route_tokens *record, struct err *err)
{
    int slots = counts->top_k, experts = counts->experts;
    const int16_t *expert = record->experts;
    for (int i = 0; i < record->n; i++) {
        if (record->accepted && !record->accepted[i]) {
            expert += (size_t)counts->moe_layers * (size_t)slots;
            continue;
        }
        int64_t *selected = counts->selected;
        for (int layer = 0; layer < counts->moe_layers; layer++, selected += experts)
            for (int slot = 0; slot < slots; slot++) {
                int e = *expert++;
                if ((unsigned)e < (unsigned)experts)
                    selected[e]++;
                else if (e != -1)
                    return err_set(err, ERR_INPUT, "token %d, layer %d: expert %d does not exist, there are %d; the stream is "
                                   "damaged, or of another model", i, layer, e, experts);
            }
    }
    return 0;
}

/* Adds a record's mass, which is at most one per token and layer, plus a tolerance for rounding. */
static int add_mass(struct route_counts *counts, const double *mass, int tokens, struct err *err)
{
    size_t cells = (size_t)counts->moe_layers * (size_t)counts->experts;
    double max = 1.001 * tokens;
    for (size_t i = 0; i < cells; i++)
        if (!(mass[i] >= 0 && mass[i] <= max))
            return err_set(err, ERR_INPUT, "layer %d, expert %d: the routing mass %g is impossible for %d tokens; the stream "
                           "is damaged",
                           (int)(i / (size_t)counts->experts), (int)(i % (size_t)counts->experts), mass[i], tokens);
    for (size_t i = 0; i < cells; i++)
        counts->mass[i] += (int64_t)rint(mass[i] * ROUTE_MASS_STEPS);
    return 0;
}

static int add_probs(struct route_counts *counts, const struct route_tokens *record, struct err *err)
{
    size_t cells = (size_t)counts->moe_layers * (size_t)counts->experts;
    const float *probs = record->probs;
    for (int i = 0; i < record->n; i++, probs += cells) {
        if (record->accepted && !record->accepted[i])
            continue;
        for (size_t c = 0; c < cells; c++) {
            double p = (double)probs[c];
            if (!(p >= 0 && p <= 1.001))
                return err_set(err, ERR_INPUT, "token %d, layer %d: the routing probability %g is not from 0 to 1; the stream "
                               "is damaged", i,
                               (int)(c / (size_t)counts->experts), p);
            counts->mass[c] += (int64_t)rint(p * ROUTE_MASS_STEPS);
        }
    }
    return 0;
}

int route_counts_add(struct route_counts *counts, const struct route_tokens *record, struct err *err)
{
    int tokens = route_tokens_kept(record);
    if (counts->tokens > ROUTE_TOKENS_MAX - tokens)
        return err_set(err, ERR_INPUT, "the routes have more than %lld tokens; give fewer streams at a time",
                       (long long)ROUTE_TOKENS_MAX);
    if (add_selected(counts, record, err))
        return -1;
    if (record->mass ? add_mass(counts, record->mass, tokens, err) : record->probs ? add_probs(counts, record, err) : 0)
        return -1;
    if (!record->mass && !record->probs && tokens)
        counts->lacks_mass = true;
    counts->tokens += tokens;
    return 0;
}

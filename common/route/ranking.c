#include "common/route/ranking.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/stream/rank.h"

const char *const ranking_methods[] = { "frequency", "mass", "coverage", "pairs", NULL };

int ranking_open(struct ranking **out, const char *method, int moe_layers, int experts, struct err *err)
{
    size_t cells = (size_t)moe_layers * (size_t)experts;
    struct ranking *ranking = mem_alloc(1, sizeof *ranking, err);
    if (!ranking)
        return -1;
    ranking->moe_layers = moe_layers;
    ranking->experts = experts;
    snprintf(ranking->method, sizeof ranking->method, "%s", method);
    if (!(ranking->budget = mem_alloc((size_t)moe_layers, sizeof *ranking->budget, err)) ||
        !(ranking->order = mem_alloc(cells, sizeof *ranking->order, err)) ||
        !(ranking->score = mem_alloc(cells, sizeof *ranking->score, err))) {
        ranking_free(&ranking);
        return -1;
    }
    for (int layer = 0; layer < moe_layers; layer++)
        ranking->budget[layer] = -1;
    *out = ranking;
    return 0;
}

void ranking_free(struct ranking **ranking)
{
    if (!*ranking)
        return;
    mem_free(&(*ranking)->budget);
    mem_free(&(*ranking)->order);
    mem_free(&(*ranking)->score);
    mem_free(ranking);
}

#define SPREAD_STEPS_MAX 4e9        /* additions, a few seconds; today's largest models need 6e8 */

struct candidate {
    int64_t score;
    int32_t expert;
};

static int best_first(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->expert < y->expert ? -1 : 1;
}

int ranking_make(struct ranking **out, const struct route_counts *counts, enum ranking_method method, struct err *err)
{
    if (!counts->tokens)
        return err_set(err, ERR_INPUT, "the routes have no tokens of this --phase; choose another, or record them with "
                       "moe-profile (answers with -n)");
    if (method == RANKING_MASS && counts->lacks_mass)
        return err_set(err, ERR_INPUT, "the routes lack the routing mass of these tokens; rank by frequency, or record it "
                       "with moe-profile --record route,probs");
    struct ranking *ranking = NULL;
    struct candidate *list = NULL;
    int rc = -1;
    if (ranking_open(&ranking, ranking_methods[method], counts->moe_layers, counts->experts, err) ||
        !(list = mem_alloc((size_t)counts->experts, sizeof *list, err)))
        goto done;
    const int64_t *scores = method == RANKING_MASS ? counts->mass : counts->selected;
    double unit = method == RANKING_MASS ? ROUTE_MASS_STEPS : 1;
    for (int layer = 0; layer < counts->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)counts->experts;
        for (int e = 0; e < counts->experts; e++)
            list[e] = (struct candidate){ scores[at + (size_t)e], e };
        qsort(list, (size_t)counts->experts, sizeof *list, best_first);
        for (int i = 0; i < counts->experts; i++) {
            ranking->order[at + (size_t)i] = list[i].expert;
            ranking->score[at + (size_t)i] = (double)list[i].score / unit;
        }
    }
    *out = ranking;
    ranking = NULL;
    rc = 0;
done:
    ranking_free(&ranking);
    mem_free(&list);
    return rc;
}

int budget_parse(int32_t *size, const char *text, int moe_layers, int experts, struct text *note, struct err *err)
{
    int count = 0;
    long max_value = 0;
    for (const char *at = text; ; at++) {
        char *end;
        long value = *at >= '0' && *at <= '9' ? strtol(at, &end, 10) : 0;
        if (value < 1 || (*end && *end != ','))
            return err_set(err, ERR_INPUT, "'%s' is not a number of experts; give one from 1 up, or several separated by "
                           "commas", text);
        max_value = value > max_value ? value : max_value;
        if (count < moe_layers)
            size[count] = value < experts ? (int32_t)value : experts;
        count++;
        at = end;
        if (!*at)
            break;
    }
    if (count != 1 && count != moe_layers)
        return err_set(err, ERR_INPUT, "'%s' has %d numbers, but %d layers have experts; give one number, or one per layer",
                       text, count,
                       moe_layers);
    for (int layer = 1; count == 1 && layer < moe_layers; layer++)
        size[layer] = size[0];
    return !note || max_value <= experts ? 0
         : text_printf(note, err, "--budget %s: a layer of the model has %d experts; more than that leaves none out\n", text,
                       experts);
}

void ranking_recommend(struct ranking *ranking, double share)
{
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        const double *score = ranking->score + (size_t)layer * (size_t)ranking->experts;
        double total = 0, kept = 0;
        int budget = 1;
        for (int i = 0; i < ranking->experts; i++)
            total += score[i];
        for (kept = score[0]; budget < ranking->experts && kept < share * total; budget++)
            kept += score[budget];
        ranking->budget[layer] = budget;
    }
}

/* best[n]: the logarithm of the largest product of shares that layers 0 .. layer keep with n experts in all, at least one each;
 * taken[n]: this layer's experts among them. A share of zero counts as 1e-6. */
static void spread_layer(const double *score, int experts, int layer, int total, const double *before, double *best,
                         int16_t *taken)
{
    double all = 0;
    for (int i = 0; i < experts; i++)
        all += score[i];
    for (int n = 0; n <= total; n++)
        best[n] = -INFINITY;
    for (int n = layer; n < total; n++) {
        double kept = 0;
        if (layer ? isinf(before[n]) : n > 0)
            continue;
        for (int b = 1; b <= experts && n + b <= total; b++) {
            kept += score[b - 1];
            double sum = (layer ? before[n] : 0) + (all > 0 ? log(fmax(kept / all, 1e-6)) : 0);
            if (isinf(best[n + b]) || sum > best[n + b] + 1e-12) {
                best[n + b] = sum;
                taken[n + b] = (int16_t)b;
            }
        }
    }
}

int ranking_spread(struct ranking *ranking, int total, struct err *err)
{
    int layers = ranking->moe_layers, experts = ranking->experts;
    size_t row = (size_t)total + 1;
    double *before = NULL, *best = NULL;
    int16_t *taken = NULL;
    int rc = -1;
    if (total < layers || total > (int64_t)layers * experts)
        return err_set(err, ERR_INPUT, "%d experts cannot be distributed over %d layers of %d; give %d to %lld", total, layers,
                       experts, layers, (long long)layers * experts);
    if ((double)layers * (double)experts * total > SPREAD_STEPS_MAX)
        return err_set(err, ERR_INPUT, "a total cannot be distributed over so large a model, %d layers of %d experts; give "
                       "--budget or --keep",
                       layers, experts);
    if (!(before = mem_alloc(row, sizeof *before, err)) || !(best = mem_alloc(row, sizeof *best, err)) ||
        !(taken = mem_alloc(row * (size_t)layers, sizeof *taken, err)))
        goto done;
    for (int layer = 0; layer < layers; layer++) {
        double *swap = before;
        before = best;
        best = swap;
        spread_layer(ranking->score + (size_t)layer * (size_t)experts, experts, layer, total, before, best,
                     taken + (size_t)layer * row);
    }
    for (int layer = layers - 1, left = total; layer >= 0; left -= ranking->budget[layer], layer--)
        ranking->budget[layer] = taken[(size_t)layer * row + (size_t)left];
    rc = 0;
done:
    mem_free(&before);
    mem_free(&best);
    mem_free(&taken);
    return rc;
}

int ranking_put(const struct ranking *ranking, record_put *put, void *context, struct err *err)
{
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)ranking->experts;
        struct rank_layer record = { .layer = layer, .method = ranking->method, .budget = ranking->budget[layer],
                                     .order = ranking->order + at, .score = ranking->score + at };
        if (put(context, &rank_layer_kind, &record, err))
            return -1;
    }
    return 0;
}

/* seen: [experts + moe_layers] flags, for the experts of this order, then for the layers read so far. */
static int ranking_take(struct ranking *ranking, const struct rank_layer *record, uint8_t *seen, struct err *err)
{
    int experts = ranking->experts;
    if (record->layer < 0 || record->layer >= ranking->moe_layers)
        return err_set(err, ERR_INPUT, "layer %d does not exist, there are %d; the stream is damaged", record->layer,
                       ranking->moe_layers);
    if (seen[experts + record->layer])
        return err_set(err, ERR_INPUT, "layer %d is ranked twice; the stream is damaged", record->layer);
    if (record->budget != -1 && (record->budget < 1 || record->budget > experts))
        return err_set(err, ERR_INPUT, "layer %d: the budget is %d, but must be from 0 to %d experts; the stream is damaged",
                       record->layer, record->budget, experts);
    if (!ranking->method[0]) {
        size_t length = strlen(record->method);
        if (!length || length >= sizeof ranking->method ||
            strspn(record->method, "abcdefghijklmnopqrstuvwxyz0123456789-_") < length)
            return err_set(err, ERR_INPUT, "layer %d: the ranking's method is not valid text; the stream is damaged",
                           record->layer);
        memcpy(ranking->method, record->method, length + 1);
    } else if (strcmp(ranking->method, record->method)) {
        return err_set(err, ERR_INPUT, "layer %d is ranked by %s, but earlier layers by %s; rank the routes again",
                       record->layer,
                       record->method, ranking->method);
    }
    memset(seen, 0, (size_t)experts);
    for (int i = 0; i < experts; i++) {
        int e = record->order[i];
        if (e < 0 || e >= experts || seen[e])
            return err_set(err, ERR_INPUT, "layer %d: index %d of the order has expert %d, which %s; the stream is damaged",
                           record->layer, i, e,
                           e >= 0 && e < experts ? "is in the order already" : "does not exist");
        seen[e] = 1;
    }
    seen[experts + record->layer] = 1;
    size_t at = (size_t)record->layer * (size_t)experts;
    ranking->budget[record->layer] = record->budget;
    memcpy(ranking->order + at, record->order, (size_t)experts * sizeof *record->order);
    memcpy(ranking->score + at, record->score, (size_t)experts * sizeof *record->score);
    return 0;
}

int ranking_check_model(const struct reader *in, const struct stream_model *model, bool force, struct text *note,
                        struct err *err)
{
    const struct header *header = reader_header(in);
    if (!header->has_model)
        return err_set(err, ERR_INPUT, "%s: does not name the model that it ranks; make it with moe-coact rank-experts",
                       reader_name(in));
    return header_same_model(&header->model, model, reader_name(in), force, note, err);
}

int ranking_read(struct ranking **out, struct reader *in, struct err *err)
{
    const struct stream_model *model = &reader_header(in)->model;
    struct ranking *ranking = NULL;
    uint8_t *seen = NULL;
    const struct record *record;
    int rc = -1, more, layers = 0;
    if (route_model_check(model, err)) {
        err_at(err, "%s", reader_name(in));
        goto done;
    }
    if (ranking_open(&ranking, "", model->moe_layers, model->experts, err) ||
        !(seen = mem_alloc((size_t)model->experts + (size_t)model->moe_layers, 1, err)))
        goto done;
    while ((more = reader_next(in, &record, err)) > 0) {
        if (record->kind != &rank_layer_kind)
            continue;
        if (ranking_take(ranking, record->body, seen, err)) {
            record_error_at(record, err);
            goto done;
        }
        layers++;
    }
    if (more < 0)
        goto done;
    if (layers != model->moe_layers) {
        err_set(err, ERR_INPUT, "%s: ranks only %d of %d layers; rank the routes again", reader_name(in), layers,
                model->moe_layers);
        goto done;
    }
    *out = ranking;
    ranking = NULL;
    rc = 0;
done:
    ranking_free(&ranking);
    mem_free(&seen);
    return rc;
}

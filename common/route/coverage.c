#include "common/route/coverage.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/stream/coact.h"

/* rank[l][e + 1]: the smallest budget that keeps expert e; rank[l][0] = 0, for dropped slots. needs[l][B]: tokens for which B
 * is the smallest budget that keeps all their experts. */
struct tally {
    int moe_layers, experts, top_k;
    int32_t *rank;              /* [moe_layers][experts + 1] */
    int64_t *needs;             /* [moe_layers][experts + 1] */
};

static void tally_tokens(void *context, int layer, const int16_t *expert, int tokens)
{
    struct tally *tally = context;
    const int32_t *rank = tally->rank + (size_t)layer * ((size_t)tally->experts + 1) + 1;
    int64_t *needs = tally->needs + (size_t)layer * ((size_t)tally->experts + 1);
    for (int i = 0; i < tokens; i++) {
        int last = 0;
        for (int slot = 0; slot < tally->top_k; slot++, expert++)
            last = rank[*expert] > last ? rank[*expert] : last;
        needs[last]++;
    }
}

static int tally_open(struct tally *tally, const struct ranking *ranking, int top_k, struct err *err)
{
    int experts = ranking->experts;
    size_t layers = (size_t)ranking->moe_layers;
    *tally = (struct tally){ .moe_layers = ranking->moe_layers, .experts = experts, .top_k = top_k };
    if (!(tally->rank = mem_alloc(layers * ((size_t)experts + 1), sizeof *tally->rank, err)) ||
        !(tally->needs = mem_alloc(layers * ((size_t)experts + 1), sizeof *tally->needs, err)))
        return -1;
    for (size_t layer = 0; layer < layers; layer++)
        for (int i = 0; i < experts; i++) {
            size_t expert = (size_t)ranking->order[layer * (size_t)experts + (size_t)i];
            tally->rank[layer * ((size_t)experts + 1) + expert + 1] = i + 1;
        }
    return 0;
}

static void coverage_fill(struct coverage *coverage, const struct route_counts *counts, const struct ranking *ranking,
                          const struct tally *tally)
{
    int experts = coverage->experts;
    for (int layer = 0; layer < coverage->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)experts;
        const int64_t *mass = counts->mass + at, *needs = tally->needs + (size_t)layer * ((size_t)experts + 1);
        int64_t total = 0, kept = 0, served = needs[0];
        for (int e = 0; e < experts; e++)
            total += mass[e];
        for (int i = 0; i < experts; i++) {
            kept += mass[ranking->order[at + (size_t)i]];
            served += needs[i + 1];
            coverage->mass[at + (size_t)i] = total ? (double)kept / (double)total : 0;
            coverage->served[at + (size_t)i] = (double)served / (double)coverage->tokens;
        }
    }
}

int coverage_open(struct coverage **out, const char *method, int moe_layers, int experts, struct err *err)
{
    size_t cells = (size_t)moe_layers * (size_t)experts;
    struct coverage *coverage = mem_alloc(1, sizeof *coverage, err);
    if (!coverage)
        return -1;
    coverage->moe_layers = moe_layers;
    coverage->experts = experts;
    snprintf(coverage->method, sizeof coverage->method, "%s", method);
    if (!(coverage->mass = mem_alloc(cells, sizeof *coverage->mass, err)) ||
        !(coverage->served = mem_alloc(cells, sizeof *coverage->served, err))) {
        coverage_free(&coverage);
        return -1;
    }
    *out = coverage;
    return 0;
}

int coverage_make(struct coverage **out, const struct route_counts *counts, struct route_spool *spool,
                  const struct ranking *ranking, struct err *err)
{
    if (!counts->tokens)
        return err_set(err, ERR_INPUT, "the routes have no tokens of this --phase; choose another, or record them with "
                       "moe-profile (answers with -n)");
    if (counts->lacks_mass)
        return err_set(err, ERR_INPUT, "the routes lack the routing mass of these tokens; record it with moe-profile --record "
                       "route,probs");
    if (ranking->moe_layers != counts->moe_layers || ranking->experts != counts->experts)
        return err_set(err, ERR_INPUT, "the ranking has %d layers with %d experts, but the routes have %d with %d; use a "
                       "ranking of the same model",
                       ranking->moe_layers, ranking->experts, counts->moe_layers, counts->experts);
    struct coverage *coverage = NULL;
    struct tally tally = {0};
    int rc = -1;
    if (coverage_open(&coverage, ranking->method, counts->moe_layers, counts->experts, err) ||
        tally_open(&tally, ranking, counts->top_k, err) ||
        route_spool_replay(spool, 0, tally.moe_layers, tally_tokens, &tally, err))
        goto done;
    coverage->top_k = counts->top_k;
    coverage->tokens = counts->tokens;
    coverage_fill(coverage, counts, ranking, &tally);
    *out = coverage;
    coverage = NULL;
    rc = 0;
done:
    coverage_free(&coverage);
    mem_free(&tally.rank);
    mem_free(&tally.needs);
    return rc;
}

void coverage_free(struct coverage **coverage)
{
    if (!*coverage)
        return;
    mem_free(&(*coverage)->mass);
    mem_free(&(*coverage)->served);
    mem_free(coverage);
}

int coverage_put(const struct coverage *coverage, record_put *put, void *context, struct err *err)
{
    int32_t *budget = mem_alloc((size_t)coverage->experts, sizeof *budget, err);
    int rc = budget ? 0 : -1;
    for (int i = 0; !rc && i < coverage->experts; i++)
        budget[i] = i + 1;
    for (int layer = 0; !rc && layer < coverage->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)coverage->experts;
        struct coact_coverage record = { .layer = layer, .method = coverage->method, .tokens = coverage->tokens,
                                         .points = coverage->experts, .budget = budget, .mass = coverage->mass + at,
                                         .served = coverage->served + at };
        rc = put(context, &coact_coverage_kind, &record, err);
    }
    mem_free(&budget);
    return rc;
}

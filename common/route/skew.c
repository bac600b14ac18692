#include "common/route/skew.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/pairs.h"

static int largest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

/* Returns the smallest number of experts that make up half of `all` selections. */
static int count_half(int64_t *sorted, int experts, int64_t all)
{
    int64_t kept = 0;
    int half = 0;
    qsort(sorted, (size_t)experts, sizeof *sorted, largest_first);
    while (half < experts && 2 * kept < all)
        kept += sorted[half++];
    return half;
}

int skew_layer(struct coact_stats *out, const struct route_counts *counts, int layer, const int64_t *count, struct err *err)
{
    int experts = counts->experts;
    size_t n = (size_t)experts;
    const int64_t *selected = counts->selected + (size_t)layer * n;
    int64_t *sorted = mem_copy(selected, n * sizeof *sorted, err), all = 0;
    struct coact_stats of = { .layer = layer, .tokens = counts->tokens };
    double entropy = 0;
    if (!sorted)
        return -1;
    for (int e = 0; e < experts; e++) {
        all += selected[e];
        of.used += selected[e] > 0;
        if (selected[e] > selected[of.busiest])
            of.busiest = e;
        for (int b = e + 1; b < experts; b++)
            if (count[(size_t)e * n + (size_t)b] > of.pair_tokens || (e == 0 && b == 1)) {
                of.pair_tokens = count[(size_t)e * n + (size_t)b];
                of.pair_first = e;
                of.pair_second = b;
            }
    }
    for (int e = 0; e < experts && all; e++)
        if (selected[e])
            entropy -= (double)selected[e] / (double)all * log((double)selected[e] / (double)all);
    of.effective = all ? exp(entropy) : 0;
    of.half = count_half(sorted, experts, all);
    of.busiest_share = (double)selected[of.busiest] / (double)counts->tokens;
    of.dropped = 1 - (double)all / ((double)counts->tokens * counts->top_k);
    double k = counts->top_k, expected = (double)counts->tokens * k * (k - 1) / ((double)experts * (experts - 1.0));
    of.pair_expected = experts > 1 ? expected : 0;
    of.concentration = of.pair_expected > 0 ? (double)of.pair_tokens / of.pair_expected : NAN;
    *out = of;
    mem_free(&sorted);
    return 0;
}

struct measuring {
    struct skew *skew;
    const struct route_counts *counts;
};

static int measure(void *context, int layer, int64_t *count, struct err *err)
{
    const struct measuring *m = context;
    return skew_layer(&m->skew->layers[layer], m->counts, layer, count, err);
}

int skew_make(struct skew **out, const struct route_counts *counts, struct route_spool *spool, struct err *err)
{
    struct skew *skew = mem_alloc(1, sizeof *skew, err);
    struct measuring m = { skew, counts };
    int rc = -1;
    if (!skew || !(skew->layers = mem_alloc((size_t)counts->moe_layers, sizeof *skew->layers, err)) ||
        route_pairs_each(spool, counts, measure, &m, err))
        goto done;
    skew->moe_layers = counts->moe_layers;
    skew->tokens = counts->tokens;
    *out = skew;
    skew = NULL;
    rc = 0;
done:
    skew_free(&skew);
    return rc;
}

void skew_free(struct skew **skew)
{
    if (!*skew)
        return;
    mem_free(&(*skew)->layers);
    mem_free(skew);
}

int skew_put(const struct skew *skew, record_put *put, void *context, struct err *err)
{
    for (int layer = 0; layer < skew->moe_layers; layer++)
        if (put(context, &coact_stats_kind, &skew->layers[layer], err))
            return -1;
    return 0;
}

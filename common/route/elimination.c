#include "common/route/elimination.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/route/pairs.h"

static int64_t compare_losses(const int64_t *missed, const int64_t *selected, int a, int b)
{
    return missed[a] != missed[b] ? missed[a] - missed[b] : selected[a] != selected[b] ? selected[a] - selected[b] : b - a;
}

/* Returns the kept expert with the smallest loss. */
static int find_min_loss(const int64_t *missed, const int64_t *selected, const uint8_t *out, int experts)
{
    int min = -1;
    for (int e = 0; e < experts; e++)
        if (!out[e] && (min < 0 || compare_losses(missed, selected, e, min) < 0))
            min = e;
    return min;
}

static int check_tokens(const struct route_counts *counts, struct err *err)
{
    if (!counts->tokens)
        return err_set(err, ERR_INPUT, "the routes have no tokens of this --phase; choose another, or record them with "
                       "moe-profile (answers with -n)");
    return 0;
}

/* Coverage: each pass over the tokens drops one expert in every layer. */
enum { KEPT, LEAVING, OUT };

struct cover {
    int moe_layers, experts, top_k;
    uint8_t *state;             /* [moe_layers][experts] */
    int64_t *missed;            /* [moe_layers][experts]: tokens still served in full that select the expert */
    int *kept;                  /* [moe_layers] experts that are not OUT */
};

static void lose_tokens(void *context, int layer, const int16_t *expert, int tokens)
{
    struct cover *cover = context;
    const uint8_t *state = cover->state + (size_t)layer * (size_t)cover->experts;
    int64_t *missed = cover->missed + (size_t)layer * (size_t)cover->experts;
    for (int i = 0; i < tokens; i++, expert += cover->top_k) {
        int seen = 0;
        for (int s = 0; s < cover->top_k; s++)
            seen |= expert[s] >= 0 ? 1 << state[expert[s]] : 0;
        if ((seen & (1 << OUT | 1 << LEAVING)) == 1 << LEAVING)
            for (int s = 0; s < cover->top_k; s++)
                if (expert[s] >= 0)
                    missed[expert[s]]--;
    }
}

static void leave(struct cover *cover, struct ranking *ranking, size_t at, int expert, int layer)
{
    int rank = --cover->kept[layer];
    ranking->order[at + (size_t)rank] = expert;
    ranking->score[at + (size_t)rank] = (double)cover->missed[at + (size_t)expert];
}

/* Drops experts without loss, and marks one more in each layer as LEAVING, for which the tokens must be read. Returns whether
 * any layer has such an expert. */
static bool choose(struct cover *cover, struct ranking *ranking, const int64_t *selected)
{
    bool any = false;
    for (int layer = 0; layer < cover->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)cover->experts;
        for (int e = 0; e < cover->experts; e++)
            if (cover->state[at + (size_t)e] == LEAVING)
                cover->state[at + (size_t)e] = OUT;
        while (cover->kept[layer]) {
            int e = find_min_loss(cover->missed + at, selected + at, cover->state + at, cover->experts);
            bool missed = cover->missed[at + (size_t)e] > 0 && cover->kept[layer] > 1;
            leave(cover, ranking, at, e, layer);
            cover->state[at + (size_t)e] = missed ? LEAVING : OUT;
            any |= missed;
            if (missed)
                break;
        }
    }
    return any;
}

int ranking_by_coverage(struct ranking **out, const struct route_counts *counts, struct route_spool *spool,
                        struct progress *bar, struct err *err)
{
    size_t layers = (size_t)counts->moe_layers, cells = layers * (size_t)counts->experts;
    struct cover cover = { .moe_layers = counts->moe_layers, .experts = counts->experts, .top_k = counts->top_k };
    struct ranking *ranking = NULL;
    int rc = -1;
    if (check_tokens(counts, err) || ranking_open(&ranking, "coverage", counts->moe_layers, counts->experts, err) ||
        !(cover.state = mem_alloc(cells, sizeof *cover.state, err)) ||
        !(cover.missed = mem_alloc(cells, sizeof *cover.missed, err)) ||
        !(cover.kept = mem_alloc(layers, sizeof *cover.kept, err)))
        goto done;
    memcpy(cover.missed, counts->selected, cells * sizeof *cover.missed);
    for (size_t layer = 0; layer < layers; layer++)
        cover.kept[layer] = counts->experts;
    while (choose(&cover, ranking, counts->selected)) {
        if (route_spool_replay(spool, 0, cover.moe_layers, lose_tokens, &cover, err))
            goto done;
        if (bar)
            progress_step(bar, 1);
    }
    *out = ranking;
    ranking = NULL;
    rc = 0;
done:
    ranking_free(&ranking);
    mem_free(&cover.state);
    mem_free(&cover.missed);
    mem_free(&cover.kept);
    return rc;
}

/* Pairs: one layer at a time, from its matrix. */
struct peel {
    struct ranking *ranking;
    const struct route_counts *counts;
    int64_t *missed;            /* [experts]: pairs with kept experts */
    uint8_t *out;               /* [experts] */
};

static int peel_layer(void *context, int layer, int64_t *count, struct err *err)
{
    struct peel *peel = context;
    int experts = peel->counts->experts;
    size_t n = (size_t)experts, at = (size_t)layer * n;
    (void)err;
    for (size_t a = 0; a < n; a++) {
        peel->missed[a] = peel->out[a] = 0;
        for (size_t b = 0; b < n; b++)
            peel->missed[a] += a != b ? count[a * n + b] : 0;
    }
    for (int rank = experts - 1; rank >= 0; rank--) {
        int e = find_min_loss(peel->missed, peel->counts->selected + at, peel->out, experts);
        peel->out[e] = 1;
        peel->ranking->order[at + (size_t)rank] = e;
        peel->ranking->score[at + (size_t)rank] = (double)peel->missed[e];
        for (size_t b = 0; b < n; b++)
            if (!peel->out[b])
                peel->missed[b] -= count[(size_t)e * n + b];
    }
    return 0;
}

int ranking_by_pairs(struct ranking **out, const struct route_counts *counts, struct route_spool *spool, struct err *err)
{
    size_t experts = (size_t)counts->experts;
    struct peel peel = { .counts = counts };
    int rc = -1;
    if (check_tokens(counts, err) || ranking_open(&peel.ranking, "pairs", counts->moe_layers, counts->experts, err) ||
        !(peel.missed = mem_alloc(experts, sizeof *peel.missed, err)) ||
        !(peel.out = mem_alloc(experts, sizeof *peel.out, err)) ||
        route_pairs_each(spool, counts, peel_layer, &peel, err))
        goto done;
    *out = peel.ranking;
    peel.ranking = NULL;
    rc = 0;
done:
    ranking_free(&peel.ranking);
    mem_free(&peel.missed);
    mem_free(&peel.out);
    return rc;
}

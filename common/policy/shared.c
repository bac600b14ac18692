#include "common/policy/shared.h"

#include <math.h>

static const double weight = 0.2;           /* of the last forward, in the average of `only` */
static const double only_min = 1e-3;

void shared_learn(struct shared_load *load, const struct outcome *outcome)
{
    load->texts = outcome->shared_texts;
    load->rows = 0;
    load->experts = 0;
    if (outcome->shared_texts < 2)
        return;
    load->rows = outcome->shared_rows - (outcome->drafted + 1);
    const double only = outcome->experts_loaded ? (double)outcome->shared_only / outcome->experts_loaded : 1;
    if (outcome->moe_layers)
        load->experts = (double)(outcome->shared_experts - outcome->shared_only) / outcome->moe_layers;
    load->only = load->learned ? load->only + weight * (only - load->only) : only;
    load->learned = true;
}

static double by_rows(const struct cost_table *table, const struct union_predictor *experts, int rows)
{
    return cost_growth(table, experts, rows < COST_TOKENS_MAX ? rows : COST_TOKENS_MAX);
}

double shared_growth(const struct shared_load *load, const struct cost_table *table, const struct union_predictor *experts,
                     int M)
{
    const int rows = M + load->rows;
    if (load->texts < 2)
        return cost_growth(table, experts, M);
    if (table || !experts->experts)
        return by_rows(table, experts, rows);
    return (load->experts + load->only * union_of(experts, M)) / union_of(experts, 1) - 1 + 0.02 * (rows - 1);
}

/* Texts are taken to choose experts by chance from a pool: of a text's experts another text loads the share c, and all others
 * but (1 - c)^(texts - 1) of them, which is `only`. */
double shared_root(const struct shared_load *load, const struct cost_table *table, const struct union_predictor *experts)
{
    const int others = load->texts - 1, rows = load->texts;
    if (load->texts < 2)
        return cost_growth(table, experts, 1);
    if (table || !experts->experts)
        return by_rows(table, experts, rows);
    const int usual = (load->rows + others / 2) / others;
    const double now = union_of(experts, usual < experts->max ? usual : experts->max);
    const double share = 1 - pow(fmax(load->only, only_min), 1.0 / others);
    const double pool = fmax(now, fmin(now / share, experts->experts)), chance = union_of(experts, 1) / pool;
    return pool * (1 - pow(1 - chance, load->texts)) / union_of(experts, 1) - 1 + 0.02 * (rows - 1);
}

double shared_part(const struct shared_load *load, double steepness, double root, double extra)
{
    const double plain = 1 + steepness * root;
    return (load->texts < 2 ? plain : plain / load->texts) + steepness * extra;
}

double shared_seconds(const struct outcome *outcome)
{
    return outcome->iteration_s - outcome->draft_s + outcome->shared_s;
}

double shared_own_seconds(const struct shared_load *load, const struct outcome *outcome, double part, double cost)
{
    return load->texts < 2 ? outcome->iteration_s : outcome->draft_s + part / cost * shared_seconds(outcome);
}

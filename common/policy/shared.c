#include "common/policy/shared.h"

#include <math.h>
#include <stddef.h>

#include "common/base/mem.h"

static const double weight = 0.2;           /* weight of the last forward in the average of `only` */
static const double only_min = 1e-3;

/* Expected steepness where costs follow from experts, and the standard deviation of its logarithm (predict/cost_line.h). */
static const double expert_steepness = 0.8, expert_uncertainty = 0.3;

int shared_cost_init(struct shared_cost *cost, const struct shared_setup *shared, const struct policy_setup *setup,
                     const struct shared_cost *like, struct err *err)
{
    if (shared->file && cost_table_read(&cost->table, shared->file, err))
        return err_at(err, "cost");
    cost->has_table = shared->file != NULL;
    union_init(&cost->experts, shared->tokens, setup->experts, setup->top_k);
    const bool experts = cost->experts.experts > 0;
    cost->common = like ? like->common : mem_alloc(1, shared->bytes, err);
    if (!cost->common)
        return -1;
    cost->model = &cost->common->cost;
    if (!cost->common->users++) {
        cost->common->observed = true;
        cost_line_init(&cost->common->line, expert_steepness, expert_uncertainty);
        cost_model_init(cost->model, shared->file ? 1 : experts ? expert_steepness : shared->dense,
                        shared->file ? 0.2 : experts ? expert_uncertainty : 1);
    }
    return shared->task_bytes ? tasks_add_text(&cost->common->tasks, shared->task_bytes, err) : 0;
}

void shared_cost_free(struct shared_cost *cost)
{
    union_free(&cost->experts);
    if (!cost->common || --cost->common->users)
        return;
    tasks_free(&cost->common->tasks);
    mem_free(&cost->common);
}

bool shared_next(struct shared_cost *cost)
{
    const bool first = cost->common->observed;
    cost->common->observed = false;
    return first;
}

void shared_learn(struct shared_cost *cost, const struct outcome *outcome)
{
    struct shared_load *load = &cost->load;
    load->texts = outcome->shared_texts;
    load->rows = 0;
    load->experts = 0;
    if (outcome->shared_texts < 2)
        return;
    load->rows = outcome->shared_rows - (outcome->drafted + 1);
    load->max_rows = outcome->shared_rows > load->max_rows ? outcome->shared_rows : load->max_rows;
    const double only = outcome->experts_loaded ? (double)outcome->shared_only / outcome->experts_loaded : 1;
    if (outcome->moe_layers)
        load->experts = (double)(outcome->shared_experts - outcome->shared_only) / outcome->moe_layers;
    const int teachers = cost->common->users > 1 ? load->texts : 1;
    cost->common->only += fmax(weight / teachers, 1 / (double)++cost->common->measured) * (only - cost->common->only);
}

static bool uses_expert_cost(const struct shared_cost *cost) { return !cost->has_table && cost->experts.experts; }

static double growth_for_rows(const struct shared_cost *cost, int rows)
{
    return cost_growth(cost->has_table ? &cost->table : NULL, &cost->experts, rows < COST_TOKENS_MAX ? rows : COST_TOKENS_MAX);
}

/* Returns whether cost_line predicts forwards. Policies that learn together use it for forwards of a single text, too. */
static bool uses_line(const struct shared_cost *cost)
{
    return uses_expert_cost(cost) && (cost->load.texts > 1 || cost->common->users > 1);
}

double shared_level(const struct shared_cost *cost)
{
    return uses_line(cost) ? cost_line_level(&cost->common->line) : cost_model_level(cost->model);
}

double shared_steepness(const struct shared_cost *cost)
{
    return uses_line(cost) ? cost_line_steepness(&cost->common->line) : cost_model_steepness(cost->model);
}

/* Returns what the rows beyond the first add to the growth by experts. */
static double row_growth(const struct shared_cost *cost, int rows) { return cost_line_rows(&cost->common->line, rows); }

static double growth_within(const struct shared_cost *cost, int M)
{
    const struct shared_load *load = &cost->load;
    const int rows = M + load->rows;
    if (!uses_line(cost))
        return growth_for_rows(cost, rows);
    const double only = load->texts < 2 ? 1 : cost->common->only;
    return (load->experts + only * union_of(&cost->experts, M)) / union_of(&cost->experts, 1) - 1 + row_growth(cost, rows);
}

double shared_growth(const struct shared_cost *cost, int M)
{
    const int max = cost->has_table ? COST_TOKENS_MAX : cost->experts.max;
    if (M <= max)
        return growth_within(cost, M);
    const double last = growth_within(cost, max);
    return last + (M - max) * (last - growth_within(cost, max - 1));
}

/* Assumes that texts choose experts by chance from a pool: another text loads the share c of a text's experts, and all other
 * texts leave (1 - c)^(texts - 1) of them, which is `only`. */
double shared_root(const struct shared_cost *cost)
{
    const struct shared_load *load = &cost->load;
    const struct union_predictor *experts = &cost->experts;
    const int others = load->texts - 1, rows = load->texts;
    if (load->texts < 2 || !uses_expert_cost(cost))
        return growth_for_rows(cost, load->texts < 2 ? 1 : rows);
    const int usual = (load->rows + others / 2) / others;
    const double now = union_of(experts, usual < experts->max ? usual : experts->max);
    const double share = 1 - pow(fmax(cost->common->only, only_min), 1.0 / others);
    const double pool = fmax(now, fmin(now / share, experts->experts)), chance = union_of(experts, 1) / pool;
    return pool * (1 - pow(1 - chance, load->texts)) / union_of(experts, 1) - 1 + row_growth(cost, rows);
}

/* Returns the rows at which the cost model bends: 1 for shared forwards, where errors of the growth would look like a bend. */
static int bent_rows(const struct shared_cost *cost, int rows)
{
    return cost->load.texts < 2 ? rows : cost->model->falls ? rows + cost->load.rows : 1;
}

/* Returns the cost of a whole forward, in units of a forward over a single token. rows: of this text. */
static double whole(const struct shared_cost *cost, double steepness, double growth, int rows)
{
    return (1 + steepness * growth) * (uses_line(cost) ? 1 : exp(cost_model_bend(cost->model, rows)));
}

/* Returns a text's charge besides the cost of the current forward: its part of a forward in which no text drafts, minus the
 * cost of the current forward without this text's draft. */
static double fixed_part(const struct shared_cost *cost, double steepness)
{
    const int texts = cost->load.texts < 2 ? 1 : cost->load.texts;
    return whole(cost, steepness, shared_root(cost), cost->model->falls ? texts : 1) / texts -
           whole(cost, steepness, shared_growth(cost, 1), bent_rows(cost, 1));
}

double shared_part(const struct shared_cost *cost, double steepness, int rows)
{
    return fixed_part(cost, steepness) + whole(cost, steepness, shared_growth(cost, rows), bent_rows(cost, rows));
}

void shared_parts(const struct shared_cost *cost, double steepness, int count, double *out)
{
    const double fixed = fixed_part(cost, steepness);
    for (int i = 0; i < count; i++)
        out[i] = fixed + whole(cost, steepness, shared_growth(cost, 1 + i), bent_rows(cost, 1 + i));
}

double shared_share(const struct shared_cost *cost, double steepness, int rows)
{
    const int all = rows + cost->load.rows;
    if (cost->load.texts < 2)
        return shared_part(cost, steepness, rows);
    return whole(cost, steepness, shared_growth(cost, rows), bent_rows(cost, rows)) * rows / all;
}

double shared_doubt(const struct shared_cost *cost)
{
    if (!uses_line(cost))
        return cost_model_doubt(cost->model);
    const int rows = 1 + cost->load.rows;
    const double by_row = row_growth(cost, rows + 1) - row_growth(cost, rows);
    const double by_experts = growth_within(cost, 2) - growth_within(cost, 1) - by_row;
    return cost_line_doubt(&cost->common->line, fmax(0, by_experts), rows);
}

int shared_room(const struct shared_cost *cost, int max)
{
    const struct shared_load *load = &cost->load;
    if (load->texts < 2)
        return max;
    const int rows = 2 * load->max_rows / load->texts, room = rows > 2 ? rows - 1 : 1;
    return room < max ? room : max;
}

/* Observes a forward: its growth by the experts of all texts is known. */
static void observe_line(struct shared_cost *cost, const struct outcome *outcome, double seconds)
{
    const bool shared = outcome->shared_texts > 1;
    const int experts = shared ? outcome->shared_experts : outcome->experts_loaded;
    const double growth = (double)experts / outcome->moe_layers / union_of(&cost->experts, 1) - 1;
    cost_line_observe(&cost->common->line, fmax(0, growth), shared ? outcome->shared_rows : outcome->drafted + 1, seconds);
}

double shared_charge(struct shared_cost *cost, const struct outcome *outcome, double growth)
{
    const double seconds = outcome->iteration_s - outcome->draft_s + outcome->shared_s;     /* the forward of all texts and
                                                                                             * the work around it */
    const bool learns = cost->common->users == 1 || !cost->common->observed;
    cost->common->observed = true;
    if (cost->load.texts < 2 && outcome->drafted + 1 > cost->common->max_rows)
        cost->common->max_rows = outcome->drafted + 1;
    if (learns && uses_line(cost) && outcome->moe_layers)
        observe_line(cost, outcome, seconds);
    else if (learns)
        cost_model_observe(cost->model, growth, bent_rows(cost, outcome->drafted + 1), seconds);
    if (cost->load.texts < 2)
        return outcome->iteration_s;
    const double steepness = shared_steepness(cost);
    return outcome->draft_s + shared_part(cost, steepness, outcome->drafted + 1) / (1 + steepness * growth) * seconds;
}

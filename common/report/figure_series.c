/* Figures whose points form curves: settings that differ only in the budget or in the size of drafts. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/mem.h"

/* Quality */

static const struct figure_column quality_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"series", FIGURE_WORD}, {"budget", 0}, {"quality", 3}, {"deviation", 3},
    {"normalised", 3}, {"normalised_deviation", 3}, {"speed", 3}, {"experts", 1}, {"within", 0}, {"best", 0}, {NULL, 0},
};
enum { BUDGET, QUALITY, DEVIATION, NORMALISED, NORMALISED_DEVIATION, SPEED, EXPERTS, WITHIN, BEST };

static const struct figure_column mean_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"series", FIGURE_WORD}, {"budget", 0}, {"tasks", 0}, {"normalised", 3},
    {"deviation", 3}, {"speed", 3}, {NULL, 0},
};
enum { MEAN_BUDGET, MEAN_TASKS, MEAN_NORMALISED, MEAN_DEVIATION, MEAN_SPEED };

static const char *const budget_keys[] = {"budget", NULL};
static const char *const budget_family[] = {"budget", "budget-mode", "rank", "reconstruction", NULL};

/* Returns the number of experts of a setting's budget; NaN: none, or no single number. */
static double budget_of(const struct measured_setting *setting)
{
    json_t *options = *setting->options == '{' ? json_loads(setting->options, 0, NULL) : NULL;
    json_t *value = json_object_get(options, "budget");
    double budget = json_is_integer(value) ? (double)json_integer_value(value) : NAN;
    if (json_is_string(value)) {
        char *end;
        const char *text = json_string_value(value);
        double number = strtod(text, &end);
        budget = *text && !*end ? number : NAN;
    }
    json_decref(options);
    return budget;
}

static const struct summary_row *row_of(const struct summary *summary, int task, int setting)
{
    for (size_t i = 0; i < summary->count; i++)
        if (summary->rows[i].task == task && summary->rows[i].setting == setting)
            return &summary->rows[i];
    return NULL;
}

/* Returns the share of right answers, or the mean score of answers that have only a score: the mean over repetitions. */
static double quality_of(const struct summary_row *row)
{
    return !row ? NAN : isnan(row->correct_share) ? row->score : row->correct_share;
}

static double deviation_of(const struct summary_row *row)
{
    return !row ? NAN : isnan(row->correct_share) ? row->score_deviation : row->correct_deviation;
}

static double speed_of(const struct figure_work *work, const struct summary_row *row)
{
    bool itself = work->all->settings[row->setting].reference == row->setting;
    return itself ? 1 : work->setup->bytes ? row->ceiling : row->ratio;
}

/* Returns the setting without a budget that is otherwise equal; NULL: it did not run. families: each setting's options
 * without those of budgets. */
static const struct summary_row *without_budget(const struct figure_work *work, const char *const *families,
                                                const double *budgets, const struct summary_row *of)
{
    for (size_t s = 0; s < work->all->setting_count; s++)
        if (isnan(budgets[s]) && families[s] == families[of->setting])
            return row_of(work->summary, of->task, (int)s);
    return NULL;
}

static int add_quality(const struct figure_work *work, const char *const *families, const double *budgets,
                       const struct summary_row *row, struct err *err)
{
    const struct measurements *all = work->all;
    const struct measured_setting *setting = &all->settings[row->setting];
    bool budgeted = !isnan(budgets[row->setting]);
    const char *series = budgeted ? figure_series(work, row->setting, budget_keys, err) : setting->name;
    const double base = quality_of(setting->reference < 0 ? NULL : row_of(work->summary, row->task, setting->reference));
    const struct summary_row *lossless = budgeted ? without_budget(work, families, budgets, row) : NULL;
    const double values[] = {
        [BUDGET] = budgets[row->setting], [QUALITY] = quality_of(row), [DEVIATION] = deviation_of(row),
        [NORMALISED] = base > 0 ? quality_of(row) / base : NAN,
        [NORMALISED_DEVIATION] = base > 0 ? deviation_of(row) / base : NAN, [SPEED] = speed_of(work, row),
        [EXPERTS] = row->experts_per_layer,
        [WITHIN] = isfinite(deviation_of(lossless))
                       ? quality_of(row) >= quality_of(lossless) - deviation_of(lossless) - 1e-12 : NAN};
    return series && figure_row_add(&work->figure->table[0], figure_task(all, row->task), setting->name, series, values,
                                    sizeof values, err) ? 0 : -1;
}

/* Marks the fastest budget of each task and series whose quality is within one standard deviation of that without a budget. */
static void mark_best(struct figure_table *table)
{
    for (size_t i = 0; i < table->count; i++) {
        struct figure_row *row = &table->rows[i];
        bool best = row->value[WITHIN] > 0;
        for (size_t j = 0; j < table->count; j++) {
            const struct figure_row *other = &table->rows[j];
            if (other->text[0] == row->text[0] && other->text[2] == row->text[2] && other->value[WITHIN] > 0 &&
                (other->value[SPEED] > row->value[SPEED] || (j < i && other->value[SPEED] >= row->value[SPEED])))
                best = false;
        }
        if (isfinite(row->value[WITHIN]))
            row->value[BEST] = best;
    }
}

/* Adds the mean over tasks of the normalised values, and its deviation over tasks and seeds. */
static int add_mean(const struct figure_work *work, int setting, struct err *err)
{
    const struct figure_table *points = &work->figure->table[0];
    const struct figure_row *first = NULL;
    double tasks = 0, sum = 0, squares = 0, seeds = 0, speed = 0;
    for (size_t i = 0; i < points->count; i++) {
        const struct figure_row *row = &points->rows[i];
        double seed = row->value[NORMALISED_DEVIATION];
        if (row->text[1] != work->all->settings[setting].name || !isfinite(row->value[NORMALISED]) ||
            !isfinite(row->value[SPEED]))
            continue;
        first = first ? first : row;
        tasks++;
        sum += row->value[NORMALISED];
        squares += row->value[NORMALISED] * row->value[NORMALISED];
        seeds += isfinite(seed) ? seed * seed : 0;
        speed += row->value[SPEED];
    }
    if (!first)
        return 0;
    const double between = tasks > 1 ? fmax(0, (squares - sum * sum / tasks) / (tasks - 1)) : 0;
    const double values[] = {[MEAN_BUDGET] = first->value[BUDGET], [MEAN_TASKS] = tasks, [MEAN_NORMALISED] = sum / tasks,
                             [MEAN_DEVIATION] = sqrt(between + seeds / tasks), [MEAN_SPEED] = speed / tasks};
    return figure_row_add(&work->figure->table[1], "all", first->text[1], first->text[2], values, sizeof values, err) ? 0 : -1;
}

static int fill_quality(const struct figure_work *work, const char **families, double *budgets, struct err *err)
{
    for (size_t s = 0; s < work->all->setting_count; s++) {
        budgets[s] = budget_of(&work->all->settings[s]);
        if (!(families[s] = figure_series(work, (int)s, budget_family, err)))
            return -1;
    }
    for (size_t i = 0; i < work->summary->count; i++)
        if (work->summary->rows[i].task >= 0 && isfinite(quality_of(&work->summary->rows[i])) &&
            add_quality(work, families, budgets, &work->summary->rows[i], err))
            return -1;
    mark_best(&work->figure->table[0]);
    for (size_t s = 0; s < work->all->setting_count; s++)
        if (add_mean(work, (int)s, err))
            return -1;
    return 0;
}

static int make_quality(const struct figure_work *work, struct err *err)
{
    const char **families = mem_alloc(work->all->setting_count, sizeof *families, err);
    double *budgets = mem_alloc(work->all->setting_count, sizeof *budgets, err);
    int rc = families && budgets ? fill_quality(work, families, budgets, err) : -1;
    mem_free(&families);
    mem_free(&budgets);
    return rc;
}

static const struct figure_chart quality_charts[] = {
    {.panel = {.title = "all tasks, normalised", .y_label = "quality over the reference's", .percent = true},
     .x_axis = AXIS_FIT, .y_axis = AXIS_FIT, .table = 1, .panel_texts = 1, .series = 2, .dots = true,
     .x = MEAN_SPEED, .y = MEAN_NORMALISED, .error = MEAN_DEVIATION, .order = MEAN_BUDGET},
    {.panel = {.y_label = "quality", .percent = true}, .x_axis = AXIS_FIT, .y_axis = AXIS_FIT, .panel_texts = 1, .series = 2,
     .dots = true, .x = SPEED, .y = QUALITY, .error = DEVIATION, .order = BUDGET},
    {.series = 0},
};

const struct figure_class figure_quality = {
    .title = "Quality against speed, by budget",
    .table = {{.type = "quality", .columns = quality_columns,
               .heading = "Share of right answers, or mean score: mean and deviation over repetitions, over the reference's;\n"
                          "within: one deviation of the same without a budget, best: the fastest budget that is"},
              {.type = "mean", .columns = mean_columns,
               .heading = "Means over tasks; deviation: of tasks and repetitions together"}},
    .make = make_quality, .charts = quality_charts};

/* Nodes */

static const struct figure_column node_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"series", FIGURE_WORD}, {"nodes", 1}, {"experts", 1}, {"tokens", 2},
    {"speed", 3}, {NULL, 0},
};
enum { NODES, NODE_EXPERTS, NODE_TOKENS, NODE_SPEED };

static const char *const length_keys[] = {"draft-length", NULL}, *const tree_keys[] = {"tree", "draft-length", NULL};

/* Returns the series of a setting: settings that differ only in the length of their chains, or in their trees. A setting
 * that chooses the length itself is a series of one point. */
static const char *size_series(const struct figure_work *work, int setting, struct err *err)
{
    const struct measured_setting *of = &work->all->settings[setting];
    json_t *options = *of->options == '{' ? json_loads(of->options, 0, NULL) : NULL;
    const char *length = json_string_value(json_object_get(options, "draft-length")),
               *policy = json_string_value(json_object_get(options, "policy"));
    const bool tree = json_object_get(options, "tree") != NULL,
               alone = (length && !strcmp(length, "auto")) || (policy && strncmp(policy, "static", 6) != 0);
    json_decref(options);
    return alone ? of->name : figure_series(work, setting, tree ? tree_keys : length_keys, err);
}

static int make_nodes(const struct figure_work *work, struct err *err)
{
    for (size_t i = 0; i < work->summary->count; i++) {
        const struct summary_row *row = &work->summary->rows[i];
        const struct measured_setting *setting = &work->all->settings[row->setting];
        if (!(row->steps > 0))
            continue;
        const char *series = row->drafts > 0 ? size_series(work, row->setting, err) : setting->name;
        const double values[] = {[NODES] = 1 + row->draft_tokens / row->steps, [NODE_EXPERTS] = row->experts_per_layer,
                                 [NODE_TOKENS] = row->tokens_per_step, [NODE_SPEED] = speed_of(work, row)};
        if (!series || !figure_row_add(&work->figure->table[0], figure_task(work->all, row->task), setting->name, series,
                                       values, sizeof values, err))
            return -1;
    }
    return 0;
}

#define NODES_CHART(heading, along, up, column, row) \
    {.panel = {.title = heading, .x_label = along, .y_label = up}, .x_axis = AXIS_FIT, .y_axis = AXIS_FIT, .panel_texts = 1, \
     .last = true, .series = 2, .dots = true, .x = column, .y = row, .order = NODES}

static const struct figure_chart nodes_charts[] = {
    NODES_CHART("(a) experts", "nodes of a forward", "distinct experts a layer", NODES, NODE_EXPERTS),
    NODES_CHART("(b) speed", "nodes of a forward", NULL, NODES, NODE_SPEED),
    NODES_CHART("(c) speed by experts", "distinct experts a layer", NULL, NODE_EXPERTS, NODE_SPEED),
    {.series = 0},
};

const struct figure_class figure_nodes = {
    .title = "Experts and speed against the nodes of a forward",
    .table = {{.type = "nodes", .columns = node_columns,
               .heading = "Nodes of a forward, distinct experts a layer, tokens it emits, and speed over the reference's"}},
    .make = make_nodes, .charts = nodes_charts};

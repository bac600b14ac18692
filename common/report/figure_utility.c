/* Figures of utility (Cascade, equation 3): over the iterations of a text, and as a prediction of a setting's speed-up. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/best.h"
#include "common/report/stats.h"

/* By iteration */

static const struct figure_column window_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"id", FIGURE_WORD}, {"sequence", 0}, {"repeat", 0}, {"iteration", 0},
    {"run_iteration", 0}, {"tokens", 3}, {"cost", 3}, {"utility", 3}, {NULL, 0},
};
enum { SEQUENCE, REPEAT, ITERATION, RUN_ITERATION, TOKENS, COST, UTILITY };

static const struct figure_column mean_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"iteration", 0}, {"texts", 0}, {"utility", 3}, {NULL, 0},
};
enum { MEAN_ITERATION, MEAN_TEXTS, MEAN_UTILITY };

static const struct figure_column variation_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"texts", 0}, {"windows", 0}, {"tokens", 3}, {"cost", 3}, {"utility", 3},
    {"least", 3}, {"p10", 3}, {"median", 3}, {"p90", 3}, {"greatest", 3}, {"below_1", 3}, {NULL, 0},
};
enum { TEXTS, WINDOWS, ALL_TOKENS, ALL_COST, HARMONIC, MIN, P10, MEDIAN, P90, GREATEST, BELOW };

/* Returns the mean cost of the reference's iterations on this sample's prompt; NaN: it did not run there. */
static double baseline(const struct figure_work *work, const struct measured_sample *sample)
{
    const struct measurements *all = work->all;
    const struct measured_sample *begin = sample, *last = all->samples + all->sample_count;
    int reference = all->settings[sample->setting].reference;
    double sum = 0, count = 0;
    while (begin > all->samples && begin[-1].prompt == sample->prompt)
        begin--;
    for (; begin < last && begin->prompt == sample->prompt; begin++)
        for (size_t i = 0; begin->setting == reference && i < begin->steps; i++, count++)
            sum += figure_cost(work, &all->steps[begin->first_step + i]);
    return count > 0 ? sum / count : NAN;
}

/* Adds the sliding windows of a text. Utility = tokens per iteration, divided by the cost of an iteration relative to the
 * reference's (Cascade, equation 3). */
static int add_windows(const struct figure_work *work, const struct measured_sample *sample, size_t before, struct err *err)
{
    const struct measurements *all = work->all;
    double base = baseline(work, sample), tokens = 0, cost = 0;
    size_t window = (size_t)work->setup->window;
    for (size_t i = 0; base > 0 && i < sample->steps; i++) {
        const struct measured_step *step = &all->steps[sample->first_step + i];
        tokens += step->emitted;
        cost += figure_cost(work, step);
        if (i >= window) {
            tokens -= step[-(ptrdiff_t)window].emitted;
            cost -= figure_cost(work, step - window);
        }
        if (i + 1 < window)
            continue;
        const double mean_tokens = tokens / (double)window, mean_cost = cost / (double)window / base;
        const double values[] = {
            [SEQUENCE] = (double)sample->sequence, [REPEAT] = sample->repeat, [ITERATION] = (double)i + 1,
            [RUN_ITERATION] = (double)(before + i + 1), [TOKENS] = mean_tokens, [COST] = mean_cost,
            [UTILITY] = mean_tokens / mean_cost};
        if (!figure_row_add(&work->figure->table[0], figure_task(all, sample->task), all->settings[sample->setting].name,
                            sample->id, values, sizeof values, err))
            return -1;
    }
    return 0;
}

static int by_sequence(const void *a, const void *b)
{
    const struct measured_sample *x = *(const struct measured_sample *const *)a, *y = *(const struct measured_sample *const *)b;
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Adds a setting's texts in the order in which they ran. */
static int add_run(const struct figure_work *work, int setting, const struct measured_sample **order, struct err *err)
{
    size_t count = 0, before = 0;
    for (size_t i = 0; i < work->all->sample_count; i++)
        if (work->all->samples[i].setting == setting)
            order[count++] = &work->all->samples[i];
    qsort(order, count, sizeof *order, by_sequence);
    for (size_t i = 0; i < count; i++) {
        if (add_windows(work, order[i], before, err))
            return -1;
        before += order[i]->steps;
    }
    return 0;
}

static bool of_task(const struct figure_row *row, const char *task) { return !task || row->text[0] == task; }

/* Adds the variation of the windows from `first` on, of one task or of all (NULL). values: scratch for all of them. */
static int add_variation(const struct figure_work *work, size_t first, const char *task, double *values, struct err *err)
{
    const struct figure_table *windows = &work->figure->table[0];
    double tokens = 0, cost = 0, inverse = 0, below = 0, texts = 0, last = NAN;
    size_t count = 0;
    for (size_t i = first; i < windows->count; i++) {
        const double *value = windows->rows[i].value;
        if (!of_task(&windows->rows[i], task))
            continue;
        texts += isnan(last) || value[SEQUENCE] < last || value[SEQUENCE] > last;
        last = value[SEQUENCE];
        tokens += value[TOKENS];
        cost += value[COST];
        inverse += 1 / value[UTILITY];
        below += value[UTILITY] < 1;
        values[count++] = value[UTILITY];
    }
    if (!count)
        return 0;
    const double row[] = {
        [TEXTS] = texts, [WINDOWS] = (double)count, [ALL_TOKENS] = tokens / (double)count, [ALL_COST] = cost / (double)count,
        [HARMONIC] = (double)count / inverse, [MIN] = stats_quantile(values, count, 0),
        [P10] = stats_quantile(values, count, 0.1), [MEDIAN] = stats_quantile(values, count, 0.5),
        [P90] = stats_quantile(values, count, 0.9), [GREATEST] = stats_quantile(values, count, 1),
        [BELOW] = below / (double)count};
    return figure_row_add(&work->figure->table[2], task ? task : "all", windows->rows[first].text[1], NULL, row, sizeof row,
                          err) ? 0 : -1;
}

/* Adds the harmonic mean over texts, iteration by iteration. */
static int add_means(const struct figure_work *work, size_t first, const char *task, struct err *err)
{
    const struct figure_table *windows = &work->figure->table[0];
    double max = 0, *inverse = NULL, *texts = NULL;
    int rc = -1;
    for (size_t i = first; i < windows->count; i++)
        max = fmax(max, of_task(&windows->rows[i], task) ? windows->rows[i].value[ITERATION] : 0);
    size_t count = (size_t)max + 1;
    if (!(inverse = mem_alloc(count, sizeof *inverse, err)) || !(texts = mem_alloc(count, sizeof *texts, err)))
        goto done;
    for (size_t i = first; i < windows->count; i++)
        if (of_task(&windows->rows[i], task)) {
            inverse[(size_t)windows->rows[i].value[ITERATION]] += 1 / windows->rows[i].value[UTILITY];
            texts[(size_t)windows->rows[i].value[ITERATION]]++;
        }
    for (size_t i = 0; i < count; i++) {
        const double row[] = {[MEAN_ITERATION] = (double)i, [MEAN_TEXTS] = texts[i], [MEAN_UTILITY] = texts[i] / inverse[i]};
        if (texts[i] > 0 && !figure_row_add(&work->figure->table[1], task ? task : "all", windows->rows[first].text[1], NULL,
                                            row, sizeof row, err))
            goto done;
    }
    rc = 0;
done:
    mem_free(&inverse);
    mem_free(&texts);
    return rc;
}

/* Adds rows for each task that has windows under this setting, and if there are several, for all tasks together. */
static int add_tasks(const struct figure_work *work, size_t first, struct err *err)
{
    const struct figure_table *windows = &work->figure->table[0];
    double *values = mem_alloc(windows->count - first + 1, sizeof *values, err);
    int tasks = 0, rc = -1;
    if (!values)
        return -1;
    for (size_t t = 0; t < work->all->task_count; t++) {
        size_t before = work->figure->table[2].count;
        if (add_variation(work, first, work->all->tasks[t], values, err))
            goto done;
        if (work->figure->table[2].count > before && ++tasks && add_means(work, first, work->all->tasks[t], err))
            goto done;
    }
    rc = tasks > 1 && (add_variation(work, first, NULL, values, err) || add_means(work, first, NULL, err)) ? -1 : 0;
done:
    mem_free(&values);
    return rc;
}

static int make(const struct figure_work *work, struct err *err)
{
    struct figure *figure = work->figure;
    const struct measured_sample **order = mem_alloc(work->all->sample_count, sizeof *order, err);
    int rc = -1;
    if (!order)
        return -1;
    for (size_t s = 0; s < work->all->setting_count; s++) {
        size_t first = figure->table[0].count;
        int reference = work->all->settings[s].reference;
        if (reference < 0 || reference == (int)s)
            continue;
        if (add_run(work, (int)s, order, err) || (figure->table[0].count > first && add_tasks(work, first, err)))
            goto done;
    }
    rc = 0;
done:
    mem_free(&order);
    return rc;
}

/* Returns the end of the text that begins with window `at`. */
static size_t text_end(const struct figure_table *windows, size_t at)
{
    size_t next = at + 1;
    while (next < windows->count && windows->rows[next].value[SEQUENCE] == windows->rows[at].value[SEQUENCE])
        next++;
    return next;
}

/* Draws one panel: the texts of a task (NULL: of all) as thin lines over column x, and their mean if it exists. */
static int draw_texts(const struct figure *figure, int x, const char *task, const char *title, struct figure_page *page,
                      struct err *err)
{
    static const double ones[] = {1, 1};
    const struct figure_table *windows = &figure->table[0];
    const char *const texts[] = {task, windows->rows[0].text[1]};
    const bool run = x == RUN_ITERATION;
    size_t count = 0;
    struct chart chart = {.panel = {.title = title, .x_label = run ? "iteration of the run" : "iteration of the text",
                                    .y_label = "utility", .y_max = 1.5}, .y_axis = AXIS_ZERO};
    for (size_t i = 0, next; i < windows->count; i = next) {
        next = text_end(windows, i);
        if (of_task(&windows->rows[i], task))
            chart_add(&chart, figure_curve(&windows->rows[i], next - i, x, UTILITY, NULL, SVG_THIN), err);
    }
    const struct figure_row *means = run ? NULL : figure_rows(&figure->table[1], texts, 2, &count);
    if (means)
        chart_add(&chart, figure_curve(means, count, MEAN_ITERATION, MEAN_UTILITY, "harmonic mean of texts", SVG_DOTTED), err);
    /* The first window ends after its number of iterations. */
    chart.panel.x_min = run ? 0 : chart.x_min;
    chart.panel.x_max = fmax(chart.x_max, chart.panel.x_min + 1);
    const double line[] = {chart.panel.x_min, chart.panel.x_max};
    chart_add(&chart, (struct svg_curve){.label = "no gain", .stroke = SVG_THIN + 1, .x = line, .y = ones, .points = 2}, err);
    return chart_draw(&chart, page, err);
}

/* Draws tokens and cost of the text with the most windows (figure 6). */
static int draw_longest(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *windows = &figure->table[0];
    struct chart chart = {.panel = {.x_label = "iteration of the text", .y_label = "over the reference's", .y_max = 1.5},
                          .x_axis = AXIS_POINTS, .y_axis = AXIS_ZERO};
    const struct figure_row *rows = windows->rows;
    size_t length = 0;
    char title[256];
    for (size_t i = 0, next; i < windows->count; i = next) {
        next = text_end(windows, i);
        if (next - i > length) {
            rows = &windows->rows[i];
            length = next - i;
        }
    }
    snprintf(title, sizeof title, "%s, %s", rows->text[1], rows->text[2]);
    chart.panel.title = title;
    chart_add(&chart, figure_curve(rows, length, ITERATION, TOKENS, "tokens an iteration", SVG_BOLD), err);
    chart_add(&chart, figure_curve(rows, length, ITERATION, COST, "its cost", SVG_DASHED), err);
    return chart_draw(&chart, page, err);
}

/* Draws the texts of a single setting: by task, in the order of running, and tokens and cost of the longest. */
static int draw_setting(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *windows = &figure->table[0], *variation = &figure->table[2];
    const char *setting = windows->rows[0].text[1];
    char title[256];
    for (size_t v = 0; v < variation->count; v++) {
        const char *task = variation->rows[v].text[0];
        size_t windows_of_task;
        if (!figure_rows(windows, &task, 1, &windows_of_task))
            continue;                           /* all tasks together */
        snprintf(title, sizeof title, "%s, %s", setting, *task ? task : "prompts");
        if (draw_texts(figure, ITERATION, task, title, page, err))
            return -1;
    }
    snprintf(title, sizeof title, "%s, as it ran", setting);
    return draw_texts(figure, RUN_ITERATION, NULL, title, page, err) || draw_longest(figure, page, err) ? -1 : 0;
}

/* Several settings: for each task the means over its texts, one curve per setting. */
static const struct figure_chart overview[] = {
    {.panel = {.x_label = "iteration of the text", .y_label = "utility, mean of texts", .y_max = 1.2, .level = 1},
     .x_axis = AXIS_POINTS, .y_axis = AXIS_ZERO, .table = 1, .panel_texts = 1, .series = 1, .everywhere = true,
     .x = MEAN_ITERATION, .y = MEAN_UTILITY, .order = MEAN_ITERATION},
    {.series = 0},
};

static int draw(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *windows = &figure->table[0];
    bool several = !windows->count;
    for (size_t i = 1; i < windows->count; i++)
        several |= windows->rows[i].text[1] != windows->rows[0].text[1];
    return several ? figure_draw(figure, overview, page, err) : draw_setting(figure, page, err);
}

const struct figure_class figure_utility = {
    .title = "Utility by iteration",
    .table = {{.type = "window", .columns = window_columns}, {.type = "mean", .columns = mean_columns},
              {.type = "variation", .columns = variation_columns,
               .heading = "Utility of windows of iterations: tokens an iteration over its cost, that of the reference being "
                          "1;\nutility: harmonic mean, below_1: share of windows"}},
    .make = make, .draw = draw};

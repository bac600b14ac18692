/* How well sources of forecasts predicted the experts that verifications requested (moe-decode --forecasts): over all
 * layers, and per layer. */
#include "common/report/figure_internal.h"

#include <math.h>

static const struct figure_column source_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"source", FIGURE_WORD}, {"iterations", 0}, {"wanted", 0}, {"named", 0},
    {"recall", 3}, {"precision", 3}, {"wasted_mb", 3}, {NULL, 0},
};
static const struct figure_column layer_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"source", FIGURE_WORD}, {"iterations", 0}, {"wanted", 0}, {"named", 0},
    {"recall", 3}, {"precision", 3}, {"wasted_mb", 3}, {"layer", 0}, {NULL, 0},
};
enum { ITERATIONS, WANTED, NAMED, RECALL, PRECISION, WASTED, LAYER };

struct sums {
    double iterations, wanted, named, right, wasted;    /* wasted: bytes */
};

static int put_row(const struct figure_work *work, int table, int task, int setting, int source, const struct sums *sums,
                   double layer, struct err *err)
{
    const struct measured_setting *of = &work->all->settings[setting];
    const double values[] = {
        [ITERATIONS] = sums->iterations, [WANTED] = sums->wanted, [NAMED] = sums->named,
        [RECALL] = sums->wanted > 0 ? sums->right / sums->wanted : NAN,
        [PRECISION] = sums->named > 0 ? sums->right / sums->named : NAN, [WASTED] = 1e-6 * sums->wasted / sums->iterations,
        [LAYER] = layer};
    return figure_row_add(&work->figure->table[table], figure_task(work->all, task), of->name, of->forecasts[source], values,
                          sizeof values, err) ? 0 : -1;
}

/* Adds up layer `layer` of the source over the iterations of a setting, of one task (-1: all). */
static struct sums sum_up(const struct figure_work *work, int task, int setting, int source, int layer)
{
    const struct measurements *all = work->all;
    const int layers = all->settings[setting].moe_layers;
    struct sums sums = {0};
    struct step_cursor at = {0};
    for (const struct measured_step *step; (step = measurements_step(all, task, setting, &at));) {
        if (source >= step->forecasts)
            continue;
        const struct measured_forecast *one = &all->forecasts[step->first_forecast + (size_t)(source * layers + layer)];
        sums.iterations++;
        sums.wanted += one->wanted;
        sums.named += one->named;
        sums.right += one->right;
        sums.wasted += (one->named - one->right) * (double)step->forecast_expert_bytes;
    }
    return sums;
}

static int put_source(const struct figure_work *work, int task, int setting, int source, struct err *err)
{
    struct sums whole = {0};
    for (int layer = 0; layer < work->all->settings[setting].moe_layers; layer++) {
        const struct sums one = sum_up(work, task, setting, source, layer);
        if (!(one.iterations > 0))
            return 0;
        if (put_row(work, 1, task, setting, source, &one, layer, err))
            return -1;
        whole.iterations = one.iterations;
        whole.wanted += one.wanted;
        whole.named += one.named;
        whole.right += one.right;
        whole.wasted += one.wasted;
    }
    return put_row(work, 0, task, setting, source, &whole, NAN, err);
}

static int make(const struct figure_work *work, struct err *err)
{
    for (size_t i = 0; i < work->summary->count; i++) {
        const struct summary_row *row = &work->summary->rows[i];
        for (int source = 0; source < work->all->settings[row->setting].forecast_count; source++)
            if (put_source(work, row->task, row->setting, source, err))
                return -1;
    }
    return 0;
}

static const struct figure_chart charts[] = {
    {.panel = {.x_label = "layer with experts", .y_label = "recall", .x_max = 1, .y_max = 1}, .x_axis = AXIS_ZERO, .table = 1,
     .panel_texts = 2, .series = 2, .dots = true, .x = LAYER, .y = RECALL, .order = LAYER},
    {.series = 0},
};

const struct figure_class figure_forecasts = {
    .title = "Experts named before they are wanted",
    .table = {{.type = "forecast", .columns = source_columns,
               .heading = "Experts that each source named before verifications wanted them, over all layers: recall, "
                          "precision, and\nMB an iteration of experts that were named in vain"},
              {.type = "forecast_layer", .columns = layer_columns, .heading = "The same by layer with experts"}},
    .make = make, .charts = charts};

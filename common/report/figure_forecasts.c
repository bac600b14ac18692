/* How well sources of forecasts named the experts that verifications wanted (moe-decode --forecasts): over all layers, and of
 * each. */
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

static void put_row(struct figure_row *row, const struct sums *sums)
{
    row->value[ITERATIONS] = sums->iterations;
    row->value[WANTED] = sums->wanted;
    row->value[NAMED] = sums->named;
    row->value[RECALL] = sums->wanted > 0 ? sums->right / sums->wanted : NAN;
    row->value[PRECISION] = sums->named > 0 ? sums->right / sums->named : NAN;
    row->value[WASTED] = 1e-6 * sums->wasted / sums->iterations;
}

/* Adds up layer `layer` of the source over the iterations of a setting, of one task (-1: all). */
static struct sums sum_up(const struct figure_work *work, int task, int setting, int source, int layer)
{
    const struct measurements *all = work->all;
    const int layers = all->settings[setting].moe_layers;
    struct sums sums = {0};
    for (size_t i = 0; i < all->sample_count; i++) {
        const struct measured_sample *sample = &all->samples[i];
        if (sample->setting != setting || (task >= 0 && sample->task != task))
            continue;
        for (size_t k = 0; k < sample->steps; k++) {
            const struct measured_step *step = &all->steps[sample->first_step + k];
            if (source >= step->forecasts)
                continue;
            const struct measured_forecast *one = &all->forecasts[step->first_forecast + (size_t)(source * layers + layer)];
            sums.iterations++;
            sums.wanted += one->wanted;
            sums.named += one->named;
            sums.right += one->right;
            sums.wasted += (one->named - one->right) * (double)step->forecast_expert_bytes;
        }
    }
    return sums;
}

static int put_source(const struct figure_work *work, int task, int setting, int source, struct err *err)
{
    const struct measured_setting *of = &work->all->settings[setting];
    struct sums whole = {0};
    for (int layer = 0; layer < of->moe_layers; layer++) {
        const struct sums one = sum_up(work, task, setting, source, layer);
        if (!(one.iterations > 0))
            return 0;
        struct figure_row *row = figure_row_add(&work->figure->table[1], figure_task(work->all, task), of->name,
                                                of->forecasts[source], err);
        if (!row)
            return -1;
        put_row(row, &one);
        row->value[LAYER] = layer;
        whole.iterations = one.iterations;
        whole.wanted += one.wanted;
        whole.named += one.named;
        whole.right += one.right;
        whole.wasted += one.wasted;
    }
    struct figure_row *row = figure_row_add(&work->figure->table[0], figure_task(work->all, task), of->name,
                                            of->forecasts[source], err);
    if (row)
        put_row(row, &whole);
    return row ? 0 : -1;
}

int figure_forecasts(const struct figure_work *work, struct err *err)
{
    struct figure *figure = work->figure;
    figure->tables = 2;
    figure->table[0] = (struct figure_table){
        .type = "forecast", .columns = source_columns,
        .heading = "Experts that each source named before verifications wanted them, over all layers: recall, precision, and\n"
                   "MB an iteration of experts that were named in vain"};
    figure->table[1] = (struct figure_table){.type = "forecast_layer", .columns = layer_columns,
                                             .heading = "The same by layer with experts"};
    for (size_t i = 0; i < work->summary->count; i++) {
        const struct summary_row *row = &work->summary->rows[i];
        for (int source = 0; source < work->all->settings[row->setting].forecast_count; source++)
            if (put_source(work, row->task, row->setting, source, err))
                return -1;
    }
    return 0;
}

const struct figure_chart figure_forecasts_charts[] = {
    {.panel = {.x_label = "layer with experts", .y_label = "recall", .x_max = 1, .y_max = 1}, .x_axis = AXIS_ZERO, .table = 1,
     .panel_texts = 2, .series = 2, .dots = true, .x = LAYER, .y = RECALL, .order = LAYER},
    {.series = 0},
};

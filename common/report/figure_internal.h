/* Shared by the files of figure.h: each kind of figure fills tables and draws them. */
#ifndef MOE_REPORT_FIGURE_INTERNAL_H
#define MOE_REPORT_FIGURE_INTERNAL_H

#include "common/report/figure.h"
#include "common/report/svg.h"

struct figure_work {
    struct figure *figure;
    const struct figure_setup *setup;
    const struct measurements *all;
    const struct summary *summary;
};

/* Appends a row with these names and NaN as values. NULL: out of memory. */
struct figure_row *figure_row_add(struct figure_table *table, const char *a, const char *b, const char *c, struct err *err);

const char *figure_task(const struct measurements *all, int task);      /* -1: "all" */
double figure_cost(const struct figure_work *work, const struct measured_step *step);      /* in seconds or bytes */

/* Returns the name of a setting's series: settings of one model that differ only in `keys` (ending with NULL). The figure
 * owns the name. NULL: out of memory. */
const char *figure_series(const struct figure_work *work, int setting, const char *const *keys, struct err *err);

/* Each computes the tables of its kind of figure. */
int figure_utility(const struct figure_work *work, struct err *err);
int figure_prediction(const struct figure_work *work, struct err *err);
int figure_times(const struct figure_work *work, struct err *err);
int figure_quality(const struct figure_work *work, struct err *err);
int figure_nodes(const struct figure_work *work, struct err *err);
int figure_boundary(const struct figure_work *work, struct err *err);
int figure_forecasts(const struct figure_work *work, struct err *err);

/* A page of panels below a title, one below the other, as wide as a column of a paper or a phone. A panel has no legend if
 * it would equal that of the panel above. */
struct figure_page {
    struct text body, legend;
    int width, height;
};
int figure_page_panel(struct figure_page *page, const struct svg_panel *panel, struct err *err);

/* Each draws its kind of figure from the tables. */
int figure_utility_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_prediction_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_times_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_quality_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_nodes_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_boundary_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_forecasts_svg(const struct figure *figure, struct figure_page *page, struct err *err);

#endif

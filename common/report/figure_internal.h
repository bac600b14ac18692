/* What the files of figure.h share: each kind fills tables and draws them. */
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

/* A row with names and no values (NaN), to be filled; NULL: no memory. */
struct figure_row *figure_row_add(struct figure_table *table, const char *a, const char *b, const char *c, struct err *err);

const char *figure_task(const struct measurements *all, int task);      /* -1: "all" */
double figure_cost(const struct figure_work *work, const struct measured_step *step);      /* seconds or bytes */

/* The name of the series that a setting belongs to: settings of one model that differ only under these keys (NULL after the
 * last). It is kept with the figure. NULL: no memory. */
const char *figure_series(const struct figure_work *work, int setting, const char *const *keys, struct err *err);

int figure_utility(const struct figure_work *work, struct err *err);
int figure_prediction(const struct figure_work *work, struct err *err);
int figure_times(const struct figure_work *work, struct err *err);
int figure_quality(const struct figure_work *work, struct err *err);
int figure_nodes(const struct figure_work *work, struct err *err);
int figure_boundary(const struct figure_work *work, struct err *err);

/* Panels below a title, one below the other: as wide as a column of a paper, or a phone. A panel whose legend is that of the
 * panel above it has none. */
struct figure_page {
    struct text body, legend;
    int width, height;
};
int figure_page_panel(struct figure_page *page, const struct svg_panel *panel, struct err *err);

int figure_utility_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_prediction_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_times_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_quality_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_nodes_svg(const struct figure *figure, struct figure_page *page, struct err *err);
int figure_boundary_svg(const struct figure *figure, struct figure_page *page, struct err *err);

#endif

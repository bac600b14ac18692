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

/* Appends a row with these names and first values; the other values are NaN. NULL: out of memory. */
struct figure_row *figure_row_add(struct figure_table *table, const char *a, const char *b, const char *c, const double *values,
                                  size_t bytes, struct err *err);

const char *figure_task(const struct measurements *all, int task);      /* -1: "all" */
double figure_cost(const struct figure_work *work, const struct measured_step *step);      /* in seconds or bytes */

/* Returns the name of a setting's series: settings of one model that differ only in `keys` (ending with NULL). The figure
 * owns the name. NULL: out of memory. */
const char *figure_series(const struct figure_work *work, int setting, const char *const *keys, struct err *err);

/* A page of panels below a title, one below the other, as wide as a column of a paper or a phone. A panel has no legend if
 * it would equal that of the panel above. */
struct figure_page {
    struct text body, legend;
    int width, height;
};
enum { FIGURE_PAGE_TOP = 52 };          /* initial height: below title and note */
int figure_page_panel(struct figure_page *page, const struct svg_panel *panel, struct err *err);
/* Writes the whole page unless `failed`, and frees it. */
int figure_page_end(struct figure_page *page, bool failed, const char *title, const char *note, struct text *out,
                    struct err *err);

enum figure_axis {
    AXIS_GIVEN,                         /* as in the panel */
    AXIS_ZERO,                          /* from the panel's minimum to its maximum, or to the greatest number if it is more */
    AXIS_POINTS,                        /* from the smallest number to the greatest */
    AXIS_FIT                            /* with margins, from 0 unless all numbers are far from 0 */
};

/* A panel while curves are added. The curves point to rows of tables, which must not move until the panel is drawn. */
struct chart {
    struct svg_panel panel;             /* set by the caller, except for the curves */
    enum figure_axis x_axis, y_axis;
    struct svg_curve *curves;
    size_t room;
    double x_min, x_max, y_min, y_max;  /* over all points so far, error bars included */
    bool failed;
};

/* Returns the curve of two columns of adjacent rows; count 0: a curve without points. */
struct svg_curve figure_curve(const struct figure_row *rows, size_t count, int x, int y, const char *label, int stroke);

/* Adds a curve. Errors are returned by chart_draw. */
void chart_add(struct chart *chart, struct svg_curve curve, struct err *err);

/* Draws the panel if it has curves, and frees them. */
int chart_draw(struct chart *chart, struct figure_page *page, struct err *err);

/* Returns the end of the rows from `at` on that have the same first `texts` texts as row `at`. */
size_t figure_rows_end(const struct figure_table *table, size_t at, int texts);

/* Finds the first rows with these texts; NULL: none. */
const struct figure_row *figure_rows(const struct figure_table *table, const char *const *texts, int count, size_t *rows);

/* Panels that a table of points determines: one for each task, or for each task and setting, with a curve for each series. */
struct figure_chart {
    struct svg_panel panel;             /* title NULL: the names of the rows; a label NULL: speed relative to the reference */
    enum figure_axis x_axis, y_axis;
    int table, panel_texts;             /* rows of a panel have their first panel_texts texts in common */
    bool last;                          /* draw the last panel only: that of all tasks if there are several */
    int series;                         /* index of the text that is equal in all rows of a curve */
    bool everywhere;                    /* a series has the same mark in all panels, even if a panel has no point of the
                                         * series */
    bool dots;
    int x, y, error, order;             /* columns; order: column by which the points of a curve are sorted; error 0: none */
};

/* Draws the tables by a list of charts that ends with one without a series. */
int figure_draw(const struct figure *figure, const struct figure_chart *charts, struct figure_page *page, struct err *err);

/* A kind of figure: the tables that `make` fills, and how they are drawn. */
struct figure_class {
    const char *title;
    struct figure_table table[FIGURE_TABLES];           /* tables without rows; unused tables have no type */
    int (*make)(const struct figure_work *work, struct err *err);
    const struct figure_chart *charts;                  /* NULL: `draw` draws the tables */
    int (*draw)(const struct figure *figure, struct figure_page *page, struct err *err);
};
extern const struct figure_class figure_utility, figure_prediction, figure_times, figure_quality, figure_nodes,
    figure_boundary, figure_forecasts;

#endif

/* Figures of papers that one row of a report cannot show, computed from measurements: as tables, JSON lines or CSV of their
 * points, and as a page of SVG drawn from the same points.
 *
 *   utility      Cascade, figures 6, 7, 15 and 16: utility (equation 3) over windows of iterations, for each text
 *   prediction   Cascade, figure 8: speed-up of static lengths against their utility, with R^2
 *   times        Cascade, figure 4: parts of an iteration's time, beside an iteration of the reference
 *   quality      MoE-Spec, figures 3, 9 and 10: share of right answers, or scores, against speed, by budget, and the best
 *                budget
 *   nodes        MoE-Spec, figure 4: experts and speed against the nodes of a forward
 *   boundary     CAS-Spec, figure 1: drafters by acceptance and cost, and the boundary of useful cascades
 *   forecasts    recall, precision and wasted bytes of sources that name experts, by layer
 *
 * Costs are seconds, or bytes: then speed is what the bytes allow, and nothing depends on the machine. */
#ifndef MOE_REPORT_FIGURE_H
#define MOE_REPORT_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/report.h"
#include "common/report/select.h"
#include "common/report/summary.h"

enum figure_kind {
    FIGURE_NONE, FIGURE_UTILITY, FIGURE_PREDICTION, FIGURE_TIMES, FIGURE_QUALITY, FIGURE_NODES, FIGURE_BOUNDARY,
    FIGURE_FORECASTS
};
extern const char *const figure_words[];        /* names by kind, "none" first; ends with NULL */

enum { FIGURE_TABLES = 5, FIGURE_TEXTS = 4, FIGURE_VALUES = 14, FIGURE_WINDOW = 16 };

struct figure_column {
    const char *key;
    int decimals;                       /* decimals in tables; FIGURE_WORD: a text. Text columns come first */
};
enum { FIGURE_WORD = -1 };

struct figure_row {
    const char *text[FIGURE_TEXTS];     /* borrowed from measurements, which must stay open longer */
    double value[FIGURE_VALUES];        /* NaN: not available */
};

struct figure_table {
    const char *type;                   /* "type" of the table's JSON lines */
    const char *heading;                /* NULL: only in JSON, or in CSV if it is the first table, because it is too long for
                                         * display */
    const struct figure_column *columns;        /* ends with key NULL */
    struct figure_row *rows;
    size_t count, room;
};

struct figure {
    enum figure_kind kind;
    bool bytes;
    struct figure_table table[FIGURE_TABLES];
    int tables;
    struct figure_series {
        const char *const *keys;        /* options in which the settings of the series may differ */
        char *key, *name;               /* key of their common options, and the series' name */
    } *series;
    size_t series_count, series_room;
};

struct figure_setup {
    enum figure_kind kind;              /* except FIGURE_NONE */
    bool bytes;                         /* costs are bytes; not for FIGURE_TIMES */
    int window;                         /* iterations; FIGURE_WINDOW by default */
    const struct selection *selection;  /* tasks and settings to show; all are computed. NULL: all */
};

/* Computes a figure. It is an error if no selected task or setting has a point. */
int figure_make(struct figure *out, const struct figure_setup *setup, const struct measurements *all,
                const struct summary *summary, struct err *err);
void figure_free(struct figure *figure);        /* *figure is {0} afterwards */

/* Appends the figure's tables in a form (CSV: only the first table), or its drawing. */
int figure_write(const struct figure *figure, enum report_form form, struct text *out, struct err *err);
int figure_svg(const struct figure *figure, struct text *out, struct err *err);

#endif

/* Panels of named series of points, computed elsewhere: written as tables, as JSON lines or as SVG. */
#ifndef MOE_REPORT_POINTS_H
#define MOE_REPORT_POINTS_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum { POINTS_SERIES = 8, POINTS_PANELS = 2 };

struct points_series {
    const char *name;
    double *x, *y;
    int points;
    size_t room_x, room_y;
};

struct points_panel {
    const char *title, *x_label, *y_label;
    bool percent, log2;                 /* y is shown in percent; x on a logarithmic scale */
    bool names;                         /* each series is one point, x has no meaning */
    struct points_series series[POINTS_SERIES];
    int count;
};

/* Names, titles and labels are borrowed. */
struct points {
    struct points_panel panel[POINTS_PANELS];
    int panels;
};
void points_free(struct points *points);        /* *points is {0} afterwards */

/* Adds a point to the series of this name, which is created if necessary. */
int points_put(struct points_panel *panel, const char *name, double x, double y, struct err *err);

/* Appends a table for each panel: a row for each x, ascending, and a column for each series; one JSON line for each point,
 * with the members of `head` first; or the figure. */
int points_text(struct text *out, const struct points *points, bool markdown, struct err *err);
int points_json(struct text *out, const struct points *points, json_t *head, struct err *err);
int points_svg(struct text *out, const struct points *points, const char *title, const char *note, struct err *err);

#endif

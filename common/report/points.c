#include "common/report/points.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/report/stats.h"
#include "common/report/svg.h"
#include "common/report/table.h"

void points_free(struct points *points)
{
    for (int i = 0; i < points->panels; i++)
        for (int s = 0; s < points->panel[i].count; s++) {
            mem_free(&points->panel[i].series[s].x);
            mem_free(&points->panel[i].series[s].y);
        }
    *points = (struct points){.panels = 0};
}

int points_put(struct points_panel *panel, const char *name, double x, double y, struct err *err)
{
    int s = 0;
    while (s < panel->count && strcmp(panel->series[s].name, name))
        s++;
    struct points_series *series = &panel->series[s];
    if (s == panel->count)
        *series = (struct points_series){.name = name};
    panel->count += s == panel->count;
    if (mem_grow(&series->x, &series->room_x, (size_t)series->points + 1, sizeof *series->x, err) ||
        mem_grow(&series->y, &series->room_y, (size_t)series->points + 1, sizeof *series->y, err))
        return -1;
    series->x[series->points] = x;
    series->y[series->points++] = y;
    return 0;
}

/* Writes one row per value of x, ascending, and one column per series. */
static int panel_rows(struct table *table, const struct points_panel *panel, struct err *err)
{
    double *x = NULL;
    size_t room = 0, count = 0;
    int rc = 0;
    for (int s = 0; !rc && s < panel->count; s++) {
        rc = mem_grow(&x, &room, count + (size_t)panel->series[s].points, sizeof *x, err);
        if (!rc)
            memcpy(x + count, panel->series[s].x, (size_t)panel->series[s].points * sizeof *x);
        count += (size_t)panel->series[s].points;
    }
    if (!rc)
        qsort(x, count, sizeof *x, stats_ascending);
    for (size_t i = 0; !rc && i < count; i++) {
        if (i && x[i] == x[i - 1])
            continue;
        rc = table_cell(table, err, "%g", x[i]);
        for (int s = 0; !rc && s < panel->count; s++) {
            double y = NAN;
            for (int at = 0; at < panel->series[s].points; at++)
                y = panel->series[s].x[at] == x[i] ? panel->series[s].y[at] : y;
            rc = table_number(table, y, panel->percent ? 3 : 2, err);
        }
    }
    mem_free(&x);
    return rc;
}

static int panel_text(struct text *out, const struct points_panel *panel, bool markdown, struct err *err)
{
    const char *titles[POINTS_SERIES + 2] = {panel->x_label};
    char align[POINTS_SERIES + 2] = "r";
    struct table table = {0};
    int rc = 0;
    for (int s = 0; s < panel->count; s++) {
        titles[s + 1] = panel->series[s].name;
        align[s + 1] = 'r';
    }
    if (panel->names) {
        titles[1] = panel->y_label;
        titles[2] = "of the first";
        titles[3] = NULL;
        snprintf(align, sizeof align, "lrr");
    }
    table_start(&table, titles, align);
    for (int s = 0; !rc && panel->names && s < panel->count; s++)
        rc = table_cell(&table, err, "%s", panel->series[s].name) || table_number(&table, panel->series[s].y[0], 2, err) ||
             table_number(&table, panel->series[s].y[0] / panel->series[0].y[0], 3, err) ? -1 : 0;
    rc = rc || (!panel->names && panel_rows(&table, panel, err)) || text_printf(out, err, "\n%s\n\n", panel->title) ||
         table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

int points_text(struct text *out, const struct points *points, bool markdown, struct err *err)
{
    int rc = 0;
    for (int i = 0; !rc && i < points->panels; i++)
        rc = panel_text(out, &points->panel[i], markdown, err);
    return rc;
}

int points_json(struct text *out, const struct points *points, json_t *head, struct err *err)
{
    for (int i = 0; i < points->panels; i++)
        for (int s = 0; s < points->panel[i].count; s++)
            for (int at = 0; at < points->panel[i].series[s].points; at++) {
                const struct points_panel *panel = &points->panel[i];
                const struct points_series *of = &panel->series[s];
                json_t *line = json_copy(head), *rest = json_pack("{s:s, s:s, s:s, s:s, s:f, s:o}", "panel", panel->title,
                    "series", of->name, "x_is", panel->x_label, "y_is", panel->y_label, "x", of->x[at], "y",
                    json_finite(of->y[at]));
                json_object_update(line, rest);
                json_decref(rest);
                if (json_line(out, line, err))
                    return -1;
            }
    return 0;
}

int points_svg(struct text *out, const struct points *points, const char *title, const char *note, struct err *err)
{
    struct svg_panel panels[POINTS_PANELS];
    struct svg_curve curves[POINTS_PANELS][POINTS_SERIES];
    for (int i = 0; i < points->panels; i++) {
        const struct points_panel *from = &points->panel[i];
        double x_min = INFINITY, x_max = 0, y_max = 0;
        for (int s = 0; s < from->count; s++) {
            const struct points_series *of = &from->series[s];
            curves[i][s] = (struct svg_curve){.label = of->name, .stroke = s, .x = of->x, .y = of->y, .points = of->points,
                                              .dots = from->names};
            for (int at = 0; at < of->points; at++) {
                x_min = fmin(x_min, of->x[at]);
                x_max = fmax(x_max, of->x[at]);
                y_max = isnan(of->y[at]) ? y_max : fmax(y_max, of->y[at]);
            }
        }
        panels[i] = (struct svg_panel){.title = from->title, .x_label = from->x_label, .y_label = from->y_label,
                                       .x = from->series[0].x, .points = from->series[0].points,
                                       .x_min = from->log2 ? x_min : 0, .x_max = x_max,
                                       .y_max = from->percent ? 1 : y_max > 0 ? y_max : 1, .percent = from->percent,
                                       .log2 = from->log2, .curves = curves[i], .count = from->count};
    }
    return svg_figure(out, title, note, panels, points->panels, err);
}

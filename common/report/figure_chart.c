/* Panels of curves that show rows of a figure's tables. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum { STRIDE = sizeof(struct figure_row) / sizeof(double) };
_Static_assert(STRIDE * sizeof(double) == sizeof(struct figure_row), "a column of rows is an array with a stride");

struct svg_curve figure_curve(const struct figure_row *rows, size_t count, int x, int y, const char *label, int stroke)
{
    struct svg_curve curve = {.label = label, .stroke = stroke, .points = (int)count, .stride = STRIDE};
    if (count) {
        curve.x = &rows->value[x];
        curve.y = &rows->value[y];
    }
    return curve;
}

void chart_add(struct chart *chart, struct svg_curve curve, struct err *err)
{
    const size_t stride = curve.stride ? curve.stride : 1;
    if (chart->failed || mem_grow(&chart->curves, &chart->room, (size_t)chart->panel.count + 1, sizeof curve, err)) {
        chart->failed = true;
        return;
    }
    if (!chart->panel.count) {
        chart->x_min = chart->y_min = INFINITY;
        chart->x_max = chart->y_max = -INFINITY;
    }
    chart->curves[chart->panel.count++] = curve;
    for (size_t i = 0; i < (size_t)curve.points; i++) {
        const double x = curve.x[i * stride], y = curve.y[i * stride];
        const double bar = curve.error && isfinite(curve.error[i * stride]) ? curve.error[i * stride] : 0;
        chart->x_min = fmin(chart->x_min, x);
        chart->x_max = fmax(chart->x_max, x);
        if (isfinite(y)) {
            chart->y_min = fmin(chart->y_min, y - bar);
            chart->y_max = fmax(chart->y_max, y + bar);
        }
    }
}

/* Sets the ends of an axis. If all values are far from 0, differences between them would not be visible on one from 0. */
static void fit_axis(enum figure_axis axis, double low, double high, double margin, double *min, double *max)
{
    if (axis == AXIS_ZERO) {
        *max = fmax(*max, margin * high);
        *max = *max > 0 ? *max : 1;
    } else if (axis == AXIS_POINTS) {
        *min = low;
        *max = fmax(high, low + 1);
    } else if (axis == AXIS_FIT && high > 0 && low > 0.4 * high) {
        const double room = fmax(0.08 * (high - low), 0.05 * high);
        *min = low - room;
        *max = high + room;
    } else if (axis == AXIS_FIT) {
        *min = 0;
        *max = high > 0 ? 1.05 * high : 1;
    }
}

int chart_draw(struct chart *chart, struct figure_page *page, struct err *err)
{
    struct svg_panel *panel = &chart->panel;
    int rc = chart->failed ? -1 : 0;
    panel->curves = chart->curves;
    if (!rc && panel->count) {
        fit_axis(chart->x_axis, chart->x_min, chart->x_max, 1, &panel->x_min, &panel->x_max);
        fit_axis(chart->y_axis, chart->y_min, chart->y_max, 1.05, &panel->y_min, &panel->y_max);
        rc = figure_page_panel(page, panel, err);
    }
    mem_free(&chart->curves);
    return rc;
}

/* Compares the first `count` texts of a row. Names of tasks, settings and runs are equal only if they are of the same one. */
static bool has_texts(const struct figure_row *row, const char *const *texts, int count)
{
    return row->text[0] == texts[0] && (count < 2 || row->text[1] == texts[1]) &&
           (count < 3 || !strcmp(row->text[2], texts[2]));
}

size_t figure_rows_end(const struct figure_table *table, size_t at, int texts)
{
    size_t end = at + 1;
    while (end < table->count && has_texts(&table->rows[end], table->rows[at].text, texts))
        end++;
    return end;
}

const struct figure_row *figure_rows(const struct figure_table *table, const char *const *texts, int count, size_t *rows)
{
    for (size_t i = 0; i < table->count; i++)
        if (has_texts(&table->rows[i], texts, count)) {
            *rows = figure_rows_end(table, i, count) - i;
            return &table->rows[i];
        }
    *rows = 0;
    return NULL;
}

/* Returns whether two rows belong to one curve: of a panel, or of a series in all panels. */
static bool same_curve(const struct figure_chart *kind, const struct figure_row *a, const struct figure_row *b)
{
    return (kind->everywhere || has_texts(a, b->text, kind->panel_texts)) &&
           !strcmp(a->text[kind->series], b->text[kind->series]);
}

static bool begins_curve(const struct figure_chart *kind, const struct figure_table *table, size_t at)
{
    for (size_t before = at; before-- > 0;)             /* backwards, because rows of a curve are often adjacent */
        if (same_curve(kind, &table->rows[before], &table->rows[at]))
            return false;
    return true;
}

static bool begins_panel(const struct figure_chart *kind, const struct figure_table *table, size_t at)
{
    for (size_t before = at; before-- > 0;)
        if (has_texts(&table->rows[before], table->rows[at].text, kind->panel_texts))
            return false;
    return true;
}

/* Copies the rows of a curve that lie in the panel of row `of`, in their order; returns their number. */
static size_t take_curve(const struct figure_chart *kind, const struct figure_table *table, size_t first,
                         const struct figure_row *of, struct figure_row *out)
{
    size_t count = 0;
    for (size_t i = first; i < table->count; i++) {
        const struct figure_row *row = &table->rows[i];
        if (!same_curve(kind, row, &table->rows[first]) || !has_texts(row, of->text, kind->panel_texts))
            continue;
        size_t at = count++;
        for (; at && out[at - 1].value[kind->order] > row->value[kind->order]; at--)
            out[at] = out[at - 1];
        out[at] = *row;
    }
    return count;
}

/* Draws the panel of row `of`. */
static int draw_panel(const struct figure *figure, const struct figure_chart *kind, const struct figure_row *of,
                      struct figure_page *page, struct err *err)
{
    static const double nothing[] = {NAN};
    const struct figure_table *table = &figure->table[kind->table];
    const char *speed = figure->bytes ? "speed that bytes allow" : "ratio to the reference";
    struct chart chart = {.panel = kind->panel, .x_axis = kind->x_axis, .y_axis = kind->y_axis};
    struct figure_row *rows = mem_alloc(table->count, sizeof *rows, err);
    char title[320];
    size_t used = 0;
    snprintf(title, sizeof title, "%s%s%s", *of->text[0] ? of->text[0] : "prompts", kind->panel_texts > 1 ? ", " : "",
             kind->panel_texts > 1 ? of->text[1] : "");
    chart.panel.title = chart.panel.title ? chart.panel.title : title;
    chart.panel.x_label = chart.panel.x_label ? chart.panel.x_label : speed;
    chart.panel.y_label = chart.panel.y_label ? chart.panel.y_label : speed;
    for (size_t s = 0; rows && s < table->count; s++) {
        if ((!kind->everywhere && !has_texts(&table->rows[s], of->text, kind->panel_texts)) || !begins_curve(kind, table, s))
            continue;
        struct figure_row *first = rows + used;
        const size_t count = take_curve(kind, table, s, of, first);
        struct svg_curve curve = figure_curve(first, count, kind->x, kind->y, table->rows[s].text[kind->series],
                                              chart.panel.count);
        curve.dots = kind->dots;
        if (!count) {
            curve.x = curve.y = nothing;
            curve.points = 1;
        } else if (kind->error) {
            curve.error = &first->value[kind->error];
        }
        chart_add(&chart, curve, err);
        used += count;
    }
    chart.failed |= !rows;
    int rc = chart_draw(&chart, page, err);
    mem_free(&rows);
    return rc;
}

int figure_draw(const struct figure *figure, const struct figure_chart *charts, struct figure_page *page, struct err *err)
{
    for (const struct figure_chart *kind = charts; kind->series; kind++) {
        const struct figure_table *table = &figure->table[kind->table];
        for (size_t i = kind->last && table->count ? table->count - 1 : 0; i < table->count; i++)
            if ((kind->last || begins_panel(kind, table, i)) && draw_panel(figure, kind, &table->rows[i], page, err))
                return -1;
    }
    return 0;
}

#include "common/report/coact_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/coact_page.h"
#include "common/report/table.h"
#include "common/route/tallied.h"

enum { GRID_COLUMNS = 8 };

const char *model_name(const struct header *header) { return *header->model.name ? header->model.name : "unnamed model"; }

static double *cells_of(const struct gathered *g, int column, int layer)
{
    return g->value + ((size_t)column * (size_t)g->room + (size_t)layer) * (size_t)g->points;
}

/* Returns the mean over the layers shown. */
static double mean_of(const struct gathered *g, int column, int point)
{
    double sum = 0;
    for (int l = 0; l < g->layers; l++)
        sum += cells_of(g, column, l)[point];
    return sum / g->layers;
}

static int gather_first(struct gathered *g, const void *record, struct err *err)
{
    const struct coact_page *page = g->page;
    const struct record_kind *kind = page->class->kind;
    const char *words = g->figure ? page->note : page->about;
    while (g->columns < PAGE_COLUMNS && (page->columns[g->columns].key || page->columns[g->columns].compute))
        g->columns++;
    g->points = page->x ? (int)record_kind_number(kind, "points", record, 0) : 1;
    size_t points = (size_t)g->points, room = (size_t)g->room;
    if (!(g->number = mem_alloc(room, sizeof *g->number, err)) ||
        !(g->x = mem_alloc(points, sizeof *g->x, err)) || !(g->windows = mem_alloc(points, sizeof *g->windows, err)) ||
        !(g->value = mem_alloc((size_t)g->columns * room * points, sizeof *g->value, err)))
        return -1;
    for (int p = 0; page->x && p < g->points; p++) {
        g->x[p] = record_kind_number(kind, page->x, record, p);
        g->windows[p] = page->windows_title ? record_kind_number(kind, "windows", record, p) : NAN;
    }
    if (text_printf(&g->caption, err, "%lld ", (long long)g->counted))
        return -1;
    return words ? text_puts(&g->caption, words, err)
                 : (g->figure ? page->note_record : page->about_record)(&g->caption, g, record, err);
}

/* Receives the records. */
static int gather(void *context, const struct record_kind *kind, const void *record, struct err *err)
{
    struct gathered *g = context;
    const int layer = (int)record_kind_number(kind, "layer", record, 0);
    if (g->layer >= 0 && layer != g->layer)
        return 0;
    if (!g->layers && gather_first(g, record, err))
        return -1;
    for (int c = 0; c < g->columns; c++)
        for (int p = 0; p < g->points; p++) {
            const struct page_column *column = &g->page->columns[c];
            const double value = column->compute ? column->compute(&g->header->model, g->x[p])
                                                 : record_kind_number(kind, column->key, record, p);
            cells_of(g, c, g->layers)[p] =
                column->divisor ? value / record_kind_number(kind, column->divisor, record, p) : value;
        }
    g->number[g->layers++] = layer;
    return !g->figure && g->page->row ? g->page->row(&g->rows, g, record, err) : 0;
}

static int gathered_open(struct gathered *g, const struct coact_page *page, const struct analysis *analysis,
                         const struct header *header, int layer, bool figure, struct err *err)
{
    *g = (struct gathered){ .page = page, .header = header, .counted = analysis->counted, .layer = layer, .figure = figure,
                            .room = header->model.moe_layers };
    return analysis->class->put(analysis, gather, g, err);
}

static void gathered_free(struct gathered *g)
{
    mem_free(&g->number);
    mem_free(&g->x);
    mem_free(&g->windows);
    mem_free(&g->value);
    text_free(&g->caption);
    text_free(&g->rows);
}

/* Text */

/* Writes a table of PAGE_LAYERS or PAGE_POINTS. */
static int list_text(struct text *out, const struct gathered *g, struct err *err)
{
    static const char align[PAGE_COLUMNS + 2] = "rrrrrrrrrrrrr";
    const struct coact_page *page = g->page;
    const char *titles[PAGE_COLUMNS + 2] = { page->x_title };
    bool points = page->layout == PAGE_POINTS;
    struct table table = {0};
    int rc = -1;
    for (int c = 0; c < g->columns; c++)
        titles[c + 1] = page->columns[c].title;
    table_start(&table, titles, align + PAGE_COLUMNS - g->columns);
    for (int i = 0; i < (points ? g->points : g->layers); i++) {
        if (table_cell(&table, err, "%d", points ? (int)g->x[i] : g->number[i]))
            goto done;
        for (int c = 0; c < g->columns; c++) {
            double value = points ? mean_of(g, c, i) : *cells_of(g, c, i);
            int decimals = page->columns[c].decimals;
            if (page->columns[c].percent && !isnan(value) ? table_cell(&table, err, "%.*f %%", decimals, 100 * value)
                                                          : table_number(&table, value, decimals, err))
                goto done;
        }
    }
    rc = table_write(&table, TABLE_TEXT, out, err);
done:
    table_free(&table);
    return rc;
}

/* Chooses up to eight points, the last among them. */
static int choose_points(int chosen[GRID_COLUMNS], const struct gathered *g)
{
    int count = 0, last = g->points - 1;
    for (int i = 0; i < GRID_COLUMNS; i++) {
        int point = g->page->multiples ? (g->points * (i + 1) + GRID_COLUMNS - 1) / GRID_COLUMNS - 1
                                       : last * i / (GRID_COLUMNS - 1);
        if (!count || point > chosen[count - 1])
            chosen[count++] = point;
    }
    return count;
}

/* Writes a row of PAGE_GRID. of: one value per point, or NULL: the mean of `column` over the layers shown. */
static int grid_row(struct text *out, const struct gathered *g, const char *name, const double *of, int column, int decimals,
                    struct err *err)
{
    int chosen[GRID_COLUMNS], count = choose_points(chosen, g);
    if (text_printf(out, err, "%12s ", name))
        return -1;
    for (int i = 0; i < count; i++) {
        double value = of ? of[chosen[i]] : mean_of(g, column, chosen[i]);
        if (isnan(value) ? text_puts(out, "       -", err) : text_printf(out, err, " %7.*f", decimals, value))
            return -1;
    }
    return text_putc(out, '\n', err);
}

static int grid_text(struct text *out, const struct gathered *g, struct err *err)
{
    const struct coact_page *page = g->page;
    for (int c = 0; c < g->columns && page->columns[c].title; c++) {
        const struct page_column *column = &page->columns[c];
        if (text_printf(out, err, *column->title ? "\n%s\n" : "\n", column->title) ||
            grid_row(out, g, page->x_title, g->x, 0, 0, err) ||
            (page->windows_title && grid_row(out, g, page->windows_title, g->windows, 0, 0, err)))
            return -1;
        for (int l = 0; l < g->layers; l++) {
            char name[24];
            snprintf(name, sizeof name, "layer %d", g->number[l]);
            if (grid_row(out, g, name, cells_of(g, c, l), c, column->decimals, err))
                return -1;
        }
        if (g->layer < 0 && grid_row(out, g, "mean", NULL, c, column->decimals, err))
            return -1;
    }
    for (int c = 0; c < page->panels[0].count; c++) {
        const struct page_curve *curve = &page->panels[0].curves[c];
        if (!page->columns[curve->column].compute &&
            grid_row(out, g, curve->label, NULL, curve->column, page->columns[0].decimals, err))
            return -1;
    }
    return 0;
}

int coact_text(struct text *out, const struct analysis *analysis, const struct header *header, int layer, struct err *err)
{
    const struct coact_page *page = coact_page_of(analysis->class);
    struct gathered g;
    int rc = gathered_open(&g, page, analysis, header, layer, false, err) ||
             text_put(out, g.caption.data, g.caption.length, err) ||
             (page->row ? text_put(out, g.rows.data, g.rows.length, err)
                        : page->layout == PAGE_GRID ? grid_text(out, &g, err) : list_text(out, &g, err)) ? -1 : 0;
    gathered_free(&g);
    return rc;
}

int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err)
{
    const struct header header = { .model = { .moe_layers = ranking->moe_layers, .experts = ranking->experts } };
    struct gathered g = { .page = coact_page_of(&rank_analysis), .header = &header, .counted = tokens, .layer = -1,
                          .room = ranking->moe_layers };
    int rc = ranking_put(ranking, gather, &g, err) || text_put(out, g.caption.data, g.caption.length, err) ||
             text_put(out, g.rows.data, g.rows.length, err) ? -1 : 0;
    gathered_free(&g);
    return rc;
}

/* Figures */

/* Draws the curves of a panel: one per layer, their mean, and those that the page names. */
struct panel_curves {
    struct svg_curve *curves;
    char (*labels)[24];             /* [layers] */
    double *means;                  /* [1 + PAGE_CURVES][points] */
    int count;
};

static void panel_free(struct panel_curves *c)
{
    mem_free(&c->curves);
    mem_free(&c->labels);
    mem_free(&c->means);
}

static const double *mean_curve(struct panel_curves *c, const struct gathered *g, int row, int column)
{
    double *y = c->means + (size_t)row * (size_t)g->points;
    for (int p = 0; p < g->points; p++)
        y[p] = mean_of(g, column, p);
    return y;
}

static void layer_curves(struct panel_curves *c, const struct gathered *g, int column)
{
    bool alone = g->layers == 1, named = g->layers <= SVG_PATTERNS;
    for (int l = 0; l < g->layers; l++) {
        snprintf(c->labels[l], sizeof c->labels[l], "layer %d", g->number[l]);
        c->curves[c->count++] = (struct svg_curve){ .label = named ? c->labels[l] : l ? NULL : "one layer",
                                                    .stroke = alone ? SVG_BOLD : SVG_THIN + (named ? l : 0),
                                                    .y = cells_of(g, column, l) };
    }
    if (!alone)
        c->curves[c->count++] = (struct svg_curve){ .label = "mean", .stroke = SVG_BOLD, .y = mean_curve(c, g, 0, column) };
}

static int panel_open(struct panel_curves *c, const struct gathered *g, const struct page_panel *panel, struct err *err)
{
    *c = (struct panel_curves){0};
    if (!(c->curves = mem_alloc((size_t)g->layers + 1 + PAGE_CURVES, sizeof *c->curves, err)) ||
        !(c->labels = mem_alloc((size_t)g->layers, sizeof *c->labels, err)) ||
        !(c->means = mem_alloc((1 + PAGE_CURVES) * (size_t)(g->points > g->layers ? g->points : g->layers), sizeof *c->means,
                               err)))
        return -1;
    if (panel->column >= 0)
        layer_curves(c, g, panel->column);
    for (int i = 0; i < panel->count; i++) {
        const struct page_curve *of = &panel->curves[i];
        const double *y = g->page->layout == PAGE_LAYERS ? cells_of(g, of->column, 0) : mean_curve(c, g, i + 1, of->column);
        bool known = false;
        for (int p = 0; p < g->points; p++)
            known |= !isnan(y[p]);
        if (known || g->page->layout == PAGE_LAYERS)
            c->curves[c->count++] = (struct svg_curve){ .label = of->label, .stroke = of->stroke, .y = y, .dots = of->dots };
    }
    return 0;
}

static double highest(const struct panel_curves *c, int points)
{
    double max = 0;
    for (int i = 0; i < c->count; i++)
        for (int p = 0; p < points; p++)
            max = isfinite(c->curves[i].y[p]) && c->curves[i].y[p] > max ? c->curves[i].y[p] : max;
    return max > 0 ? max : 1;
}

/* Returns the panel. The x axis shows points, or layers: PAGE_LAYERS has one point per layer, and the points' values are
 * adjacent. */
static struct svg_panel panel_of(const struct panel_curves *c, const struct gathered *g, const struct page_panel *page,
                                 const double *x, int points)
{
    double last = x[points - 1] > 1 ? x[points - 1] : 1, max = highest(c, points);
    bool log2 = g->page->log2 && x[0] > 0 && last > x[0];
    return (struct svg_panel){ .title = page->title, .x_label = page->x_label, .y_label = page->y_label, .points = points,
                               .x = x, .x_min = log2 ? x[0] : 0, .x_max = last,
                               .y_max = page->percent ? ceil(5 * max - 1e-9) / 5 : max, .log2 = log2,
                               .percent = page->percent, .curves = c->curves, .count = c->count };
}

static int draw_panels(struct text *out, const struct gathered *g, struct err *err)
{
    const struct coact_page *page = g->page;
    struct panel_curves curves[PAGE_PANELS] = {0};
    struct svg_panel panels[PAGE_PANELS];
    struct text title = {0};
    bool by_layer = page->layout == PAGE_LAYERS;
    int points = by_layer ? g->layers : g->points, rc = -1;
    double *layers = mem_alloc((size_t)g->layers, sizeof *layers, err);
    if (!layers || text_printf(&title, err, "%s: %s", page->heading, model_name(g->header)))
        goto done;
    for (int l = 0; l < g->layers; l++)
        layers[l] = g->number[l];
    for (int i = 0; i < page->panel_count; i++) {
        if (panel_open(&curves[i], g, &page->panels[i], err))
            goto done;
        panels[i] = panel_of(&curves[i], g, &page->panels[i], by_layer ? layers : g->x, points);
    }
    rc = svg_figure(out, title.data, g->caption.data, panels, page->panel_count, err);
done:
    for (int i = 0; i < page->panel_count; i++)
        panel_free(&curves[i]);
    mem_free(&layers);
    text_free(&title);
    return rc;
}

int coact_svg(struct text *out, const struct analysis *analysis, const struct header *header, int layer, struct err *err)
{
    const struct coact_page *page = coact_page_of(analysis->class);
    struct gathered g;
    if (page->draw)
        return page->draw(out, analysis, header, layer, err);
    int rc = gathered_open(&g, page, analysis, header, layer, true, err) || draw_panels(out, &g, err) ? -1 : 0;
    gathered_free(&g);
    return rc;
}

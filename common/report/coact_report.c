#include "common/report/coact_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/report/svg.h"

enum { PAIRS_SHOWN = 4, TREE_COLUMNS = 8 };

int stats_text(struct text *out, const struct skew *skew, int layer, struct err *err)
{
    if (text_printf(out, err, "%lld tokens; how evenly each layer uses its experts, and its most frequent pair\n\n"
                    " layer  used  effective  half  busiest  of tokens  dropped  pair      of tokens  concentration\n",
                    (long long)skew->tokens))
        return -1;
    for (int l = 0; l < skew->moe_layers; l++) {
        const struct coact_stats *of = &skew->layers[l];
        char pair[32] = "-", concentration[16] = "-";
        if (layer >= 0 && l != layer)
            continue;
        if (!isnan(of->concentration)) {
            snprintf(pair, sizeof pair, "%d+%d", of->pair_first, of->pair_second);
            snprintf(concentration, sizeof concentration, "%.1f", of->concentration);
        }
        if (text_printf(out, err, "%6d  %4d  %9.1f  %4d  %7d  %8.1f%%  %6.1f%%  %-8s  %8.1f%%  %13s\n", l, of->used,
                        of->effective, of->half, of->busiest, 100 * of->busiest_share, 100 * of->dropped, pair,
                        100 * (double)of->pair_tokens / (double)of->tokens, concentration))
            return -1;
    }
    return 0;
}

struct pair {
    int first, second;
    int64_t count;
};

/* Finds the most frequent pairs in descending order; of equal ones those with lower numbers come first. Returns their
 * number. */
static int frequent_pairs(struct pair best[PAIRS_SHOWN], const struct matrix *matrix, const struct matrix_layer *layer)
{
    int held = 0;
    size_t n = (size_t)matrix->experts;
    for (int a = 0; a < matrix->experts; a++)
        for (int b = a + 1; b < matrix->experts; b++) {
            struct pair of = { a, b, layer->count[(size_t)a * n + (size_t)b] };
            int at = held;
            while (at > 0 && best[at - 1].count < of.count)
                at--;
            if (!of.count || at == PAIRS_SHOWN)
                continue;
            held += held < PAIRS_SHOWN;
            for (int i = held - 1; i > at; i--)
                best[i] = best[i - 1];
            best[at] = of;
        }
    return held;
}

int matrix_text(struct text *out, const struct matrix *matrix, int layer, struct err *err)
{
    if (text_printf(out, err, "%lld tokens; the most frequent pairs of experts, with the share of tokens that select both and "
                    "their lift\nover independent choices; concentration is the first pair over equally likely ones\n\n"
                    " layer  concentration  pairs\n", (long long)matrix->tokens))
        return -1;
    for (int l = 0; l < matrix->moe_layers; l++) {
        const struct matrix_layer *of = &matrix->layers[l];
        struct pair best[PAIRS_SHOWN];
        if (layer >= 0 && l != layer)
            continue;
        int count = frequent_pairs(best, matrix, of);
        if (isnan(of->stats.concentration) ? text_printf(out, err, "%6d  %13s ", l, "-")
                                           : text_printf(out, err, "%6d  %13.1f ", l, of->stats.concentration))
            return -1;
        for (int i = 0; i < count; i++)
            if (text_printf(out, err, " %3d+%-3d %4.1f%% x%-5.2f", best[i].first, best[i].second,
                            100 * (double)best[i].count / (double)matrix->tokens,
                            matrix_lift(matrix, of, best[i].first, best[i].second)))
                return -1;
        if (text_putc(out, '\n', err))
            return -1;
    }
    return 0;
}

/* Computes shades: square roots of each pair's count divided by the layer's highest. Most pairs are rare, and linear shades
 * would be white. */
static double *shades(const struct matrix *matrix, const struct matrix_layer *of, struct err *err)
{
    size_t n = (size_t)matrix->experts;
    double *value = mem_alloc(n * n, sizeof *value, err);
    double max = of->stats.pair_tokens > 0 ? (double)of->stats.pair_tokens : 1;
    for (size_t i = 0; value && i < n * n; i++)
        value[i] = i / n == i % n ? NAN
                                  : sqrt((double)of->count[(size_t)of->order[i / n] * n + (size_t)of->order[i % n]] / max);
    return value;
}

int matrix_svg(struct text *out, const struct matrix *matrix, int layer, const char *model, struct err *err)
{
    size_t layers = (size_t)matrix->moe_layers;
    struct svg_heat *maps = mem_alloc(layers, sizeof *maps, err);
    double **values = mem_alloc(layers, sizeof *values, err);
    char (*titles)[80] = mem_alloc(layers, sizeof *titles, err);
    struct text title = {0}, note = {0};
    int count = 0, rc = -1;
    if (!maps || !values || !titles ||
        text_printf(&title, err, "Experts selected by the same token: %s", *model ? model : "unnamed model") ||
        text_printf(&note, err, "%lld tokens, %d experts in the order of a clustering; beside each layer its most frequent "
                    "pair over equally likely ones", (long long)matrix->tokens, matrix->experts))
        goto done;
    for (int l = 0; l < matrix->moe_layers; l++) {
        if (layer >= 0 && l != layer)
            continue;
        if (!(values[count] = shades(matrix, &matrix->layers[l], err)))
            goto done;
        double concentration = matrix->layers[l].stats.concentration;         /* NaN: each token selects one expert only */
        int used = snprintf(titles[count], sizeof titles[count], "layer %d", l);
        if (!isnan(concentration))
            snprintf(titles[count] + used, sizeof titles[count] - (size_t)used, ": %.1f\xc3\x97; 100 %% is %.1f %% of tokens",
                     concentration, 100 * (double)matrix->layers[l].stats.pair_tokens / (double)matrix->tokens);
        maps[count] = (struct svg_heat){ .title = titles[count], .side = matrix->experts, .value = values[count],
                                         .id = matrix->layers[l].order };
        count++;
    }
    rc = svg_heat_maps(out, title.data, note.data, "never together", "as often as the layer's most frequent pair", true,
                       maps, count, err);
done:
    for (int i = 0; values && i < count; i++)
        mem_free(&values[i]);
    mem_free(&values);
    mem_free(&maps);
    mem_free(&titles);
    text_free(&title);
    text_free(&note);
    return rc;
}

/* Curves of all layers over common points, with their mean and the values expected by chance. */
struct layer_curves {
    int layers, points, count;
    double *x, *y;              /* y: [layers + 3][points]; the last three: the layers' mean, and chance with experts as
                                 * frequent as measured, and equally frequent */
    struct svg_curve *curves;
    char (*labels)[24];
};

static int layer_curves_open(struct layer_curves *c, int layers, int points, struct err *err)
{
    *c = (struct layer_curves){ .layers = layers, .points = points };
    return !(c->x = mem_alloc((size_t)points, sizeof *c->x, err)) ||
           !(c->y = mem_alloc(((size_t)layers + 3) * (size_t)points, sizeof *c->y, err)) ||
           !(c->curves = mem_alloc((size_t)layers + 3, sizeof *c->curves, err)) ||
           !(c->labels = mem_alloc((size_t)layers, sizeof *c->labels, err)) ? -1 : 0;
}

static void layer_curves_free(struct layer_curves *c)
{
    mem_free(&c->x);
    mem_free(&c->y);
    mem_free(&c->curves);
    mem_free(&c->labels);
}

static double *row_of(const struct layer_curves *c, int row) { return c->y + (size_t)row * (size_t)c->points; }

/* Adds a layer's curve to the picture, and to the mean over `shown` layers. */
static void add_layer(struct layer_curves *c, int l, int layer, int shown)
{
    bool alone = layer >= 0 || c->layers == 1, named = c->layers <= SVG_PATTERNS || alone;
    if (layer >= 0 && l != layer)
        return;
    snprintf(c->labels[l], sizeof c->labels[l], "layer %d", l);
    c->curves[c->count] = (struct svg_curve){ .label = named ? c->labels[l] : c->count ? NULL : "one layer",
                                              .stroke = alone ? SVG_BOLD : SVG_THIN + (named ? c->count % SVG_PATTERNS : 0),
                                              .y = row_of(c, l) };
    c->count++;
    for (int i = 0; i < c->points; i++)
        row_of(c, c->layers)[i] += row_of(c, l)[i] / shown;
}

static void end_curves(struct layer_curves *c, int layer, bool independent)
{
    if (layer < 0 && c->layers > 1)
        c->curves[c->count++] = (struct svg_curve){ .label = "mean", .stroke = SVG_BOLD, .y = row_of(c, c->layers) };
    if (independent)
        c->curves[c->count++] = (struct svg_curve){ .label = "independent", .stroke = SVG_DASHED,
                                                    .y = row_of(c, c->layers + 1) };
    c->curves[c->count++] = (struct svg_curve){ .label = "all alike", .stroke = SVG_DOTTED, .y = row_of(c, c->layers + 2) };
}

static double max_of(const struct layer_curves *c)
{
    double max = 0;
    for (int i = 0; i < c->count; i++)
        for (int p = 0; p < c->points; p++)
            max = isfinite(c->curves[i].y[p]) && c->curves[i].y[p] > max ? c->curves[i].y[p] : max;
    return max > 0 ? max : 1;
}

static int draw_curves(struct text *out, const struct layer_curves *c, const char *heading, const char *model, const char *note,
                       struct svg_panel panel, struct err *err)
{
    struct text title = {0};
    panel.points = c->points;
    panel.x = c->x;
    panel.x_max = c->x[c->points - 1] > 1 ? c->x[c->points - 1] : 1;
    panel.log2 = c->x[0] > 0 && panel.x_max > c->x[0];
    panel.x_min = panel.log2 ? c->x[0] : 0;
    panel.curves = c->curves;
    panel.count = c->count;
    if (!panel.percent)
        panel.y_max = max_of(c);
    int rc = text_printf(&title, err, "%s: %s", heading, *model ? model : "unnamed model") ||
             svg_figure(out, title.data, note, &panel, 1, err) ? -1 : 0;
    text_free(&title);
    return rc;
}

static int neighbours_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, bool common,
                          struct err *err)
{
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    struct layer_curves c;
    struct text note = {0};
    int layers = neighbours_layers(neighbours), shown = layer < 0 ? layers : 1, rc = -1;
    if (layer_curves_open(&c, layers, NEIGHBOUR_WIDTHS, err) ||
        text_printf(&note, err, "%lld tokens", (long long)neighbours_tokens(neighbours)))
        goto done;
    for (int l = 0; l < layers; l++) {
        neighbours_layer(neighbours, l, of);
        for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
            c.x[i] = of[i].width;
            row_of(&c, l)[i] = common ? of[i].common : of[i].distinct;
            if (layer < 0 || l == layer) {
                row_of(&c, layers + 1)[i] += (common ? of[i].common_independent : of[i].distinct_independent) / shown;
                row_of(&c, layers + 2)[i] += (common ? of[i].common_alike : of[i].distinct_alike) / shown;
            }
        }
        add_layer(&c, l, layer, shown);
    }
    end_curves(&c, layer, true);
    rc = common ? draw_curves(out, &c, "Experts in common", model, note.data,
                              (struct svg_panel){ .title = "Experts that an earlier token selected, too",
                                                  .x_label = "tokens apart", .y_label = "share of experts", .percent = true,
                                                  .y_max = ceil(5 * max_of(&c) - 1e-9) / 5 }, err)
                : draw_curves(out, &c, "Distinct experts", model, note.data,
                              (struct svg_panel){ .title = "Experts that consecutive tokens select together",
                                                  .x_label = "tokens", .y_label = "experts a layer" }, err);
done:
    layer_curves_free(&c);
    text_free(&note);
    return rc;
}

int union_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err)
{
    return neighbours_svg(out, neighbours, layer, model, false, err);
}

int locality_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err)
{
    return neighbours_svg(out, neighbours, layer, model, true, err);
}

int trees_svg(struct text *out, const struct trees *trees, int layer, const char *model, struct err *err)
{
    int layers = trees_layers(trees), points = trees_sizes(trees), shown = layer < 0 ? layers : 1, rc = -1;
    struct tree_size *of = mem_alloc((size_t)points, sizeof *of, err);
    struct layer_curves c = {0};
    struct text note = {0};
    bool independent = true;
    if (!of || layer_curves_open(&c, layers, points, err) ||
        text_printf(&note, err, "%lld forwards, rejected nodes included", (long long)trees_count(trees)))
        goto done;
    for (int l = 0; l < layers; l++) {
        trees_layer(trees, l, of);
        for (int i = 0; i < points; i++) {
            c.x[i] = of[i].nodes;
            row_of(&c, l)[i] = of[i].distinct;
            if (layer < 0 || l == layer) {
                row_of(&c, layers + 1)[i] += of[i].independent / shown;
                row_of(&c, layers + 2)[i] += of[i].alike / shown;
            }
            independent &= !isnan(of[i].independent);
        }
        add_layer(&c, l, layer, shown);
    }
    end_curves(&c, layer, independent);
    rc = draw_curves(out, &c, "Distinct experts of verified drafts", model, note.data,
                     (struct svg_panel){ .title = "Experts that a draft's nodes select together", .x_label = "nodes verified",
                                         .y_label = "experts a layer" }, err);
done:
    mem_free(&of);
    layer_curves_free(&c);
    text_free(&note);
    return rc;
}

static int trees_row(struct text *out, const char *name, const struct tree_size *of, int points, int columns, int kind,
                     struct err *err)
{
    if (text_printf(out, err, "\n%12s ", name))
        return -1;
    for (int i = 0; i < columns; i++) {
        const struct tree_size *at = &of[columns > 1 ? i * (points - 1) / (columns - 1) : 0];
        double value = kind == 0 ? at->distinct : kind == 1 ? at->independent : at->alike;
        if (kind == 3 || kind == 4 ? text_printf(out, err, " %7lld", kind == 3 ? (long long)at->nodes : (long long)at->trees)
            : isnan(value) ? text_puts(out, "       -", err) : text_printf(out, err, " %7.2f", value))
            return -1;
    }
    return 0;
}

int trees_text(struct text *out, const struct trees *trees, int layer, struct err *err)
{
    int points = trees_sizes(trees), columns = points < TREE_COLUMNS ? points : TREE_COLUMNS, rc = -1;
    struct tree_size *of = mem_alloc((size_t)points, sizeof *of, err);
    if (!of)
        return -1;
    trees_layer(trees, layer, of);
    if (text_printf(out, err, "%lld forwards; distinct experts of all nodes that one verifies, rejected ones included, and if "
                    "they chose\nindependently (each expert as often as here, or all alike)\n",
                    (long long)trees_count(trees)) ||
        trees_row(out, "nodes", of, points, columns, 3, err) || trees_row(out, "forwards", of, points, columns, 4, err))
        goto done;
    for (int l = 0; l < trees_layers(trees); l++) {
        char name[24];
        if (layer >= 0 && l != layer)
            continue;
        snprintf(name, sizeof name, "layer %d", l);
        trees_layer(trees, l, of);
        if (trees_row(out, name, of, points, columns, 0, err))
            goto done;
    }
    trees_layer(trees, layer, of);
    rc = (layer < 0 && trees_row(out, "mean", of, points, columns, 0, err)) ||
         trees_row(out, "independent", of, points, columns, 1, err) ||
         trees_row(out, "all alike", of, points, columns, 2, err) || text_putc(out, '\n', err) ? -1 : 0;
done:
    mem_free(&of);
    return rc;
}

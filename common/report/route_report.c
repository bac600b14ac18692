#include "common/report/route_report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/report/svg.h"

enum { COLUMNS = 8, FIRST_EXPERTS = 8 };

int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err)
{
    int experts = ranking->experts, shown = experts < FIRST_EXPERTS ? experts : FIRST_EXPERTS;
    if (text_printf(out, err, "%lld tokens; experts of each layer by %s, the first %d of %d with their share\n\n"
                    " layer  budget  experts\n", (long long)tokens, ranking->method, shown, experts))
        return -1;
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)experts;
        double total = 0;
        for (int i = 0; i < experts; i++)
            total += ranking->score[at + (size_t)i];
        char budget[16] = "-";
        if (ranking->budget[layer] > 0)
            snprintf(budget, sizeof budget, "%d", ranking->budget[layer]);
        if (text_printf(out, err, "%6d  %6s ", layer, budget))
            return -1;
        for (int i = 0; i < shown; i++) {
            double share = total > 0 ? 100 * ranking->score[at + (size_t)i] / total : 0;
            if (text_printf(out, err, " %3d %4.1f%%", ranking->order[at + (size_t)i], share))
                return -1;
        }
        if (text_putc(out, '\n', err))
            return -1;
    }
    return 0;
}

static double mean_at(const double *table, const struct coverage *coverage, int point)
{
    double sum = 0;
    for (int layer = 0; layer < coverage->moe_layers; layer++)
        sum += table[(size_t)layer * (size_t)coverage->experts + (size_t)point];
    return sum / coverage->moe_layers;
}

/* Chooses up to eight budgets, evenly spaced; the last is all experts. */
static int choose_columns(int budget[COLUMNS], int experts)
{
    int count = 0;
    for (int i = 1; i <= COLUMNS; i++) {
        int b = (experts * i + COLUMNS - 1) / COLUMNS;
        if (!count || b > budget[count - 1])
            budget[count++] = b;
    }
    return count;
}

static int coverage_table(struct text *out, const struct coverage *coverage, const double *table, const char *title, int layer,
                          struct err *err)
{
    int budget[COLUMNS], columns = choose_columns(budget, coverage->experts);
    if (text_printf(out, err, "\n%s\n layer ", title))
        return -1;
    for (int i = 0; i < columns; i++) {
        char head[16];
        snprintf(head, sizeof head, "B=%d", budget[i]);
        if (text_printf(out, err, " %7s", head))
            return -1;
    }
    for (int l = 0; l < coverage->moe_layers; l++) {
        if (layer >= 0 && l != layer)
            continue;
        if (text_printf(out, err, "\n%6d ", l))
            return -1;
        for (int i = 0; i < columns; i++)
            if (text_printf(out, err, " %7.3f", table[(size_t)l * (size_t)coverage->experts + (size_t)(budget[i] - 1)]))
                return -1;
    }
    if (layer < 0 && text_puts(out, "\n  mean ", err))
        return -1;
    for (int i = 0; layer < 0 && i < columns; i++)
        if (text_printf(out, err, " %7.3f", mean_at(table, coverage, budget[i] - 1)))
            return -1;
    return text_putc(out, '\n', err);
}

int coverage_text(struct text *out, const struct coverage *coverage, int layer, struct err *err)
{
    bool router = !strcmp(coverage->method, "router");
    return text_printf(out, err, "%lld %s, %d experts of which %d serve a token, kept in the order %s%s\n",
                       (long long)coverage->tokens, router ? "nodes of forwards" : "tokens", coverage->experts,
                       coverage->top_k, router ? "of each forward's own " : "of their ", coverage->method) ||
           coverage_table(out, coverage, coverage->mass, "share of the routing mass that falls on the B experts kept", layer,
                          err) ||
           coverage_table(out, coverage, coverage->served, "share of tokens whose selected experts are all among the B kept",
                          layer, err) ? -1 : 0;
}

/* The curves of one table: a thin one per layer, named if there are few; their mean in bold. */
struct coverage_curves {
    struct svg_curve *curves;
    char (*labels)[24];
    double *x, *mean, *even;
    int count;
};

static int curves_open(struct coverage_curves *c, const struct coverage *coverage, struct err *err)
{
    size_t layers = (size_t)coverage->moe_layers, experts = (size_t)coverage->experts;
    *c = (struct coverage_curves){0};
    return !(c->curves = mem_alloc(layers + 2, sizeof *c->curves, err)) ||
           !(c->labels = mem_alloc(layers, sizeof *c->labels, err)) ||
           !(c->x = mem_alloc(experts, sizeof *c->x, err)) || !(c->mean = mem_alloc(experts, sizeof *c->mean, err)) ||
           !(c->even = mem_alloc(experts, sizeof *c->even, err)) ? -1 : 0;
}

static void curves_free(struct coverage_curves *c)
{
    mem_free(&c->curves);
    mem_free(&c->labels);
    mem_free(&c->x);
    mem_free(&c->mean);
    mem_free(&c->even);
}

/* even: coverage by any B experts if all were used equally; for tokens served, (B choose k) / (experts choose k). */
static void curves_fill(struct coverage_curves *c, const struct coverage *coverage, const double *table, int layer, bool served)
{
    bool alone = layer >= 0 || coverage->moe_layers == 1, named = coverage->moe_layers <= SVG_PATTERNS || alone;
    int experts = coverage->experts;
    c->count = 0;
    for (int l = 0; l < coverage->moe_layers; l++) {
        if (layer >= 0 && l != layer)
            continue;
        snprintf(c->labels[l], sizeof c->labels[l], "layer %d", l);
        c->curves[c->count] = (struct svg_curve){ .label = named ? c->labels[l] : c->count ? NULL : "one layer",
                                                  .stroke = alone ? SVG_BOLD : SVG_THIN + (named ? c->count % SVG_PATTERNS : 0),
                                                  .y = table + (size_t)l * (size_t)experts };
        c->count++;
    }
    for (int i = 0; i < experts; i++) {
        c->x[i] = i + 1;
        c->mean[i] = mean_at(table, coverage, i);
        c->even[i] = served ? 1 : (i + 1.0) / experts;
        for (int k = 0; served && k < coverage->top_k; k++)
            c->even[i] *= i + 1 > k ? (i + 1.0 - k) / (experts - k) : 0;
    }
    if (!alone)
        c->curves[c->count++] = (struct svg_curve){ .label = "mean", .stroke = SVG_BOLD, .y = c->mean };
    c->curves[c->count++] = (struct svg_curve){ .label = "all experts alike", .stroke = SVG_DASHED, .y = c->even };
}

int coverage_svg(struct text *out, const struct coverage *coverage, int layer, const char *model, struct err *err)
{
    struct coverage_curves mass = {0}, served = {0};
    struct text title = {0}, note = {0};
    int rc = -1;
    if (curves_open(&mass, coverage, err) || curves_open(&served, coverage, err) ||
        text_printf(&title, err, "What a budget of B experts a layer keeps: %s", *model ? model : "unnamed model") ||
        text_printf(&note, err, "%lld tokens, %d experts of which %d serve a token, ranked by %s", (long long)coverage->tokens,
                    coverage->experts, coverage->top_k, coverage->method))
        goto done;
    curves_fill(&mass, coverage, coverage->mass, layer, false);
    curves_fill(&served, coverage, coverage->served, layer, true);
    const struct svg_panel panels[] = {
        { .title = "Routing mass kept", .x_label = "B, experts kept", .y_label = "share of mass", .points = coverage->experts,
          .x = mass.x, .x_max = coverage->experts, .y_max = 1, .percent = true, .curves = mass.curves, .count = mass.count },
        { .title = "Tokens fully served", .x_label = "B, experts kept", .y_label = "share of tokens",
          .points = coverage->experts,
          .x = served.x, .x_max = coverage->experts, .y_max = 1, .percent = true, .curves = served.curves,
          .count = served.count },
    };
    rc = svg_figure(out, title.data, note.data, panels, 2, err);
done:
    curves_free(&mass);
    curves_free(&served);
    text_free(&title);
    text_free(&note);
    return rc;
}

/* Neighbours */

enum { KINDS = 3 };

static double number(const struct neighbour_width *w, bool common, int kind)
{
    if (common)
        return kind == 0 ? w->common : kind == 1 ? w->common_independent : w->common_alike;
    return kind == 0 ? w->distinct : kind == 1 ? w->distinct_independent : w->distinct_alike;
}

static int neighbours_row(struct text *out, const char *name, const struct neighbour_width *widths, bool common, int kind,
                          struct err *err)
{
    if (text_printf(out, err, "\n%12s ", name))
        return -1;
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        double value = number(&widths[i], common, kind);
        if (isnan(value) ? text_puts(out, "       -", err) : text_printf(out, err, common ? " %7.3f" : " %7.2f", value))
            return -1;
    }
    return 0;
}

static int neighbours_table(struct text *out, const struct neighbours *neighbours, int layer, bool common, struct err *err)
{
    struct neighbour_width mean[NEIGHBOUR_WIDTHS] = {{0}}, of[NEIGHBOUR_WIDTHS];
    int layers = neighbours_layers(neighbours);
    if (text_printf(out, err, "\n%12s ", common ? "tokens apart" : "tokens"))
        return -1;
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++)
        if (text_printf(out, err, " %7d", 1 << i))
            return -1;
    for (int l = 0; l < layers; l++) {
        char name[24];
        neighbours_layer(neighbours, l, of);
        for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
            mean[i].distinct += of[i].distinct / layers;
            mean[i].distinct_alike += of[i].distinct_alike / layers;
            mean[i].distinct_independent += of[i].distinct_independent / layers;
            mean[i].common += of[i].common / layers;
            mean[i].common_alike += of[i].common_alike / layers;
            mean[i].common_independent += of[i].common_independent / layers;
        }
        snprintf(name, sizeof name, "layer %d", l);
        if ((layer < 0 || layer == l) && neighbours_row(out, name, of, common, 0, err))
            return -1;
        if (layer == l)
            memcpy(mean, of, sizeof mean);
        if (layer == l)
            break;
    }
    return (layer < 0 && neighbours_row(out, "mean", mean, common, 0, err)) ||
           neighbours_row(out, "independent", mean, common, 1, err) || neighbours_row(out, "all alike", mean, common, 2, err) ||
           text_putc(out, '\n', err) ? -1 : 0;
}

int union_text(struct text *out, const struct neighbours *neighbours, int layer, struct err *err)
{
    return text_printf(out, err, "%lld tokens; distinct experts of consecutive tokens, and if they chose independently (each "
                       "expert as\noften as here, or all alike)\n", (long long)neighbours_tokens(neighbours)) ||
           neighbours_table(out, neighbours, layer, false, err) ? -1 : 0;
}

int locality_text(struct text *out, const struct neighbours *neighbours, int layer, struct err *err)
{
    return text_printf(out, err, "%lld tokens; share of experts that two tokens of a text have in common, and if they chose\n"
                       "independently (each expert as often as here, or all alike)\n",
                       (long long)neighbours_tokens(neighbours)) ||
           neighbours_table(out, neighbours, layer, true, err) ? -1 : 0;
}

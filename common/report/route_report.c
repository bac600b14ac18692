#include "common/report/route_report.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/report/svg.h"

enum { COLUMNS = 8, FIRST_EXPERTS = 8 };

int report_real(struct text *out, double value, struct err *err)
{
    char digits[40];
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    return text_puts(out, digits, err);
}

int report_json_ints(struct text *out, const char *key, const int32_t *values, int count, struct err *err)
{
    if (text_printf(out, err, "\"%s\":[", key))
        return -1;
    for (int i = 0; i < count; i++)
        if (text_printf(out, err, "%s%d", i ? "," : "", values[i]))
            return -1;
    return text_putc(out, ']', err);
}

int report_json_reals(struct text *out, const char *key, const double *values, int count, struct err *err)
{
    if (text_printf(out, err, "\"%s\":[", key))
        return -1;
    for (int i = 0; i < count; i++)
        if ((i && text_putc(out, ',', err)) || report_real(out, values[i], err))
            return -1;
    return text_putc(out, ']', err);
}

/* Ranking */

int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err)
{
    int experts = ranking->experts, shown = experts < FIRST_EXPERTS ? experts : FIRST_EXPERTS;
    if (text_printf(out, err, "%lld tokens; experts of each layer by %s, the first %d of %d with their share\n\n layer  budget  "
                    "experts\n", (long long)tokens, ranking->method, shown, experts))
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

int ranking_json(struct text *out, const struct ranking *ranking, struct err *err)
{
    int experts = ranking->experts;
    for (int layer = 0; layer < ranking->moe_layers; layer++) {
        size_t at = (size_t)layer * (size_t)experts;
        if (text_printf(out, err, "{\"type\":\"rank\",\"layer\":%d,\"method\":\"%s\",", layer, ranking->method) ||
            (ranking->budget[layer] > 0 && text_printf(out, err, "\"budget\":%d,", ranking->budget[layer])) ||
            report_json_ints(out, "order", ranking->order + at, experts, err) || text_putc(out, ',', err) ||
            report_json_reals(out, "score", ranking->score + at, experts, err) || text_puts(out, "}\n", err))
            return -1;
    }
    return 0;
}

int ranking_csv(struct text *out, const struct ranking *ranking, struct err *err)
{
    if (text_puts(out, "layer,method,place,expert,score\n", err))
        return -1;
    for (int layer = 0; layer < ranking->moe_layers; layer++)
        for (int i = 0; i < ranking->experts; i++) {
            size_t at = (size_t)layer * (size_t)ranking->experts + (size_t)i;
            if (text_printf(out, err, "%d,%s,%d,%d,", layer, ranking->method, i, ranking->order[at]) ||
                report_real(out, ranking->score[at], err) || text_putc(out, '\n', err))
                return -1;
        }
    return 0;
}

/* Coverage */

static double mean_at(const double *table, const struct coverage *coverage, int point)
{
    double sum = 0;
    for (int layer = 0; layer < coverage->moe_layers; layer++)
        sum += table[(size_t)layer * (size_t)coverage->experts + (size_t)point];
    return sum / coverage->moe_layers;
}

/* Up to eight budgets, evenly spread, the last being all experts. */
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
    return text_printf(out, err, "%lld tokens, %d experts of which %d serve a token, kept in the order of their %s\n",
                       (long long)coverage->tokens, coverage->experts, coverage->top_k, coverage->method) ||
           coverage_table(out, coverage, coverage->mass, "share of the routing mass that falls on the B experts kept", layer, err) ||
           coverage_table(out, coverage, coverage->served, "share of tokens whose selected experts are all among the B kept", layer,
                          err) ? -1 : 0;
}

int coverage_json(struct text *out, const struct coverage *coverage, int layer, struct err *err)
{
    int32_t *budget = mem_alloc((size_t)coverage->experts, sizeof *budget, err);
    int rc = budget ? 0 : -1;
    for (int i = 0; !rc && i < coverage->experts; i++)
        budget[i] = i + 1;
    for (int l = 0; !rc && l < coverage->moe_layers; l++) {
        size_t at = (size_t)l * (size_t)coverage->experts;
        if (layer >= 0 && l != layer)
            continue;
        rc = text_printf(out, err, "{\"type\":\"coverage\",\"layer\":%d,\"method\":\"%s\",\"tokens\":%lld,\"points\":%d,", l,
                         coverage->method, (long long)coverage->tokens, coverage->experts) ||
             report_json_ints(out, "budget", budget, coverage->experts, err) || text_putc(out, ',', err) ||
             report_json_reals(out, "mass", coverage->mass + at, coverage->experts, err) || text_putc(out, ',', err) ||
             report_json_reals(out, "served", coverage->served + at, coverage->experts, err) || text_puts(out, "}\n", err) ? -1 : 0;
    }
    mem_free(&budget);
    return rc;
}

int coverage_csv(struct text *out, const struct coverage *coverage, int layer, struct err *err)
{
    if (text_puts(out, "layer,method,budget,mass,served\n", err))
        return -1;
    for (int l = 0; l < coverage->moe_layers; l++)
        for (int i = 0; i < coverage->experts; i++) {
            size_t at = (size_t)l * (size_t)coverage->experts + (size_t)i;
            if (layer >= 0 && l != layer)
                continue;
            if (text_printf(out, err, "%d,%s,%d,", l, coverage->method, i + 1) || report_real(out, coverage->mass[at], err) ||
                text_putc(out, ',', err) || report_real(out, coverage->served[at], err) || text_putc(out, '\n', err))
                return -1;
        }
    return 0;
}

/* The curves of one table: a thin one a layer, named while there are few; the mean of all of them bold. */
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
    return !(c->curves = mem_alloc(layers + 2, sizeof *c->curves, err)) || !(c->labels = mem_alloc(layers, sizeof *c->labels, err)) ||
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

/* even: what any B experts would keep if all were used alike; for tokens served, (B choose k) / (experts choose k). */
static void curves_fill(struct coverage_curves *c, const struct coverage *coverage, const double *table, int layer, bool served)
{
    bool named = coverage->moe_layers <= SVG_PATTERNS || layer >= 0;
    int experts = coverage->experts;
    c->count = 0;
    for (int l = 0; l < coverage->moe_layers; l++) {
        if (layer >= 0 && l != layer)
            continue;
        snprintf(c->labels[l], sizeof c->labels[l], "layer %d", l);
        c->curves[c->count] = (struct svg_curve){ .label = named ? c->labels[l] : c->count ? NULL : "one layer",
                                                  .stroke = SVG_THIN + (named ? c->count % SVG_PATTERNS : 0),
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
    if (layer < 0)
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
          .x = mass.x, .x_most = coverage->experts, .y_most = 1, .percent = true, .curves = mass.curves, .count = mass.count },
        { .title = "Tokens fully served", .x_label = "B, experts kept", .y_label = "share of tokens", .points = coverage->experts,
          .x = served.x, .x_most = coverage->experts, .y_most = 1, .percent = true, .curves = served.curves,
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

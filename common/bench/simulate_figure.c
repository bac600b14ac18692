#include "common/bench/simulate_figure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/simulate_pipelines.h"
#include "common/cache/balance.h"
#include "common/cache/utility_rule.h"
#include "common/report/svg.h"
#include "common/report/table.h"

enum { SERIES = 8, PANELS = 2, BINS = 64 };

const char *const simulated_figures[] = {"none", "ablation", "hot-or-cold", "cached", "lengths", "levels", "memory", "shares",
                                         "pipelines", NULL};

struct series {
    const char *name;
    double *x, *y;
    int points;
    size_t room_x, room_y;
};

struct panel {
    const char *title, *x_label, *y_label;
    bool percent, names;                /* names: each series is one point, x has no meaning */
    struct series series[SERIES];
    int count;
};

struct picture {
    const struct simulation *simulation;
    const struct simulated_texts *texts;
    const char *name, *title;
    struct panel panel[PANELS];
    int panels;
};

static void picture_free(struct picture *p)
{
    for (int i = 0; i < p->panels; i++)
        for (int s = 0; s < p->panel[i].count; s++) {
            mem_free(&p->panel[i].series[s].x);
            mem_free(&p->panel[i].series[s].y);
        }
}

/* Adds a point to the series of this name, which is created if necessary. */
static int put(struct panel *panel, const char *name, double x, double y, struct err *err)
{
    int s = 0;
    while (s < panel->count && strcmp(panel->series[s].name, name))
        s++;
    struct series *series = &panel->series[s];
    if (s == panel->count)
        *series = (struct series){.name = name};
    panel->count += s == panel->count;
    if (mem_grow(&series->x, &series->room_x, (size_t)series->points + 1, sizeof *series->x, err) ||
        mem_grow(&series->y, &series->room_y, (size_t)series->points + 1, sizeof *series->y, err))
        return -1;
    series->x[series->points] = x;
    series->y[series->points++] = y;
    return 0;
}

/* ---- runs */

/* Adds the tokens/s of a system. No point if the cached share is less than one layer's experts, or if the machine cannot run
 * the system. */
static int put_rate(struct panel *panel, const struct simulation *simulation, const char *name, const char *system, double x,
                    double cached, struct err *err)
{
    struct simulated_machine machine = *simulation->machine;
    struct simulation with = *simulation;
    struct simulated_result result;
    struct err why = {0};
    const int E = simulation->drafted->experts;
    machine.cached = cached;
    with.machine = &machine;
    if (simulated_machine_slots(&machine, simulation->drafted->layers, E) < E || simulate_possible(&with, system, &why))
        return 0;
    return simulate_run(&result, &with, system, err) || put(panel, name, x, result.tokens / result.seconds, err) ? -1 : 0;
}

static int ablation(struct picture *p, struct err *err)
{
    static const struct { const char *name, *system; } parts[] = {
        {"utility", "utility"}, {"w/o SpecUE: K = 1", "utility:K=1"},
        {"w/o AdaBC: boundaries 3 and 1", "utility:boundaries=fixed"}, {"w/o HetWB: tau = 2", "utility:tau=2"},
        {"w/o SG-Prefetcher: static split", "static-split-draft"}, {"w/o SG-Evictor: the first to come stay",
                                                                    "utility:evict=no"},
        {"w/o SD", "utility-undrafted"}, {"the released rule", "utility-released"}};
    struct panel *panel = &p->panel[p->panels++];
    *panel = (struct panel){.title = "Parts of MoE-SpAc left out, one at a time", .x_label = "variant", .y_label = "tokens/s",
                            .names = true};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (put_rate(panel, p->simulation, parts[i].name, parts[i].system, (double)i, p->simulation->machine->cached, err))
            return -1;
    return 0;
}

/* Shares of all experts' bytes. The paper's machine has memory for 29 % of the experts; its draft model takes 8 %, so 21 %
 * remain. */
static const double MEMORY = 0.29, DRAFT_MODEL = 0.08;

static int cached(struct picture *p, struct err *err)
{
    static const struct { const char *system; bool drafts; } systems[] = {
        {"static-split", false}, {"hybrimoe", false}, {"mixtral-offloading", false}, {"static-split-draft", true},
        {"lru", true}, {"utility", true}, {"utility-released", true}, {"ahead", true}};
    static const double shares[] = {0.05, 0.09, 0.13, 0.17, 0.21, 0.25, 0.29};
    struct panel *panel = &p->panel[p->panels++];
    *panel = (struct panel){.title = "Experts in fast memory; with drafts up to where the draft model leaves room",
                            .x_label = "share of experts cached", .y_label = "tokens/s"};
    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++)
        for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
            if (shares[i] <= (systems[s].drafts ? MEMORY - DRAFT_MODEL : MEMORY) + 1e-9 &&
                put_rate(panel, p->simulation, systems[s].system, systems[s].system, shares[i], shares[i], err))
                return -1;
    return 0;
}

static int memory(struct picture *p, struct err *err)
{
    struct panel *panel = &p->panel[p->panels++];
    *panel = (struct panel){.title = "Fast memory for experts alone, or for a draft model of 8 % and fewer experts",
                            .x_label = "share of the experts' bytes", .y_label = "tokens/s"};
    for (int percent = 12; percent <= 60; percent += 8) {
        double all = percent / 100.0, left = all - DRAFT_MODEL;
        if (put_rate(panel, p->simulation, "static-split, experts alone", "static-split", all, all, err) ||
            put_rate(panel, p->simulation, "static-split-draft", "static-split-draft", all, left, err) ||
            put_rate(panel, p->simulation, "utility", "utility", all, left, err) ||
            put_rate(panel, p->simulation, "utility-released", "utility-released", all, left, err) ||
            put_rate(panel, p->simulation, "lru", "lru", all, left, err))
            return -1;
    }
    return 0;
}

static int levels(struct picture *p, struct err *err)
{
    struct panel *panel = &p->panel[p->panels++];
    char system[64];
    *panel = (struct panel){.title = "The highest level, K", .x_label = "K", .y_label = "tokens/s"};
    for (int K = 1; K <= 8; K++)
        for (int rule = 0; rule < 3; rule++) {
            const char *name = (const char *const[]){"utility", "utility-released", "utility-real"}[rule];
            snprintf(system, sizeof system, "%s:K=%d", name, K);
            if (put_rate(panel, p->simulation, name, system, K, p->simulation->machine->cached, err))
                return -1;
        }
    return 0;
}

static int lengths(struct picture *p, struct err *err)
{
    static const char *const systems[] = {"static-split", "static-split-draft", "hybrimoe", "lru", "utility",
                                          "utility-released", "ahead"};
    struct panel *panel = &p->panel[p->panels++];
    *panel = (struct panel){.title = "Tokens of an answer", .x_label = "tokens", .y_label = "tokens/s"};
    if (!p->texts)
        return err_set(err, ERR_INPUT, "lengths: recorded routes have the length that they have; leave them out");
    for (int tokens = 512; tokens <= 4096; tokens *= 2) {
        struct simulated_texts texts = *p->texts;
        struct simulated_routes drafted = {0}, undrafted = {0};
        struct simulation with = *p->simulation;
        texts.tokens = tokens;
        with.drafted = &drafted;
        with.undrafted = &undrafted;
        int rc = simulated_routes_make(&drafted, &texts, err) || simulated_routes_undrafted(&undrafted, &drafted, err) ? -1 : 0;
        for (size_t s = 0; !rc && s < sizeof systems / sizeof *systems; s++)
            rc = put_rate(panel, &with, systems[s], systems[s], tokens, with.machine->cached, err);
        simulated_routes_free(&drafted);
        simulated_routes_free(&undrafted);
        if (rc)
            return -1;
    }
    return 0;
}

/* ---- Algorithm 1 alone ---- */

/* The experts of one layer, forward after forward. */
struct watched {
    const struct simulated_routes *routes;
    struct utility_rule rule;
    struct utility_expert *state;       /* [experts] */
    int32_t *expert, *tokens, *often, *f;       /* [experts] */
};

static int watch(struct watched *w, const struct simulated_routes *routes, struct utility_rule rule, int up, int down,
                 struct err *err)
{
    int E = routes->experts;
    *w = (struct watched){.routes = routes, .rule = rule};
    w->state = mem_alloc((size_t)E, sizeof *w->state, err);
    w->expert = mem_alloc(4 * (size_t)E, sizeof *w->expert, err);
    if (!w->state || !w->expert)
        return -1;
    w->tokens = w->expert + E;
    w->often = w->tokens + E;
    w->f = w->often + E;
    for (int e = 0; e < E; e++) {
        w->state[e].up = up;
        w->state[e].down = down;
    }
    return 0;
}

static void unwatch(struct watched *w)
{
    mem_free(&w->state);
    mem_free(&w->expert);
}

/* Writes how often each expert of the layer is needed in a step to w->f; returns the number of distinct experts. */
static int want(struct watched *w, const struct simulated_step *step, int layer)
{
    int count = simulated_routes_want(w->routes, step, layer, w->expert, w->tokens, w->often);
    memset(w->f, 0, (size_t)w->routes->experts * sizeof *w->f);
    for (int i = 0; i < count; i++)
        w->f[w->expert[i]] = w->tokens[i];
    return count;
}

static void learn(struct watched *w)
{
    for (int e = 0; e < w->routes->experts; e++)
        utility_step(&w->rule, &w->state[e], w->f[e]);
}

/* Computes the share of experts correctly predicted as needed or not, with tau 1: means over bins of forwards, the overall
 * mean, and *none, the share correct if none were ever predicted. */
static int accuracy(struct watched *w, double *bin, int bins, double *mean, double *none, struct err *err)
{
    int layer = w->routes->layers - 1, E = w->routes->experts;
    int64_t *count = mem_alloc((size_t)bins, sizeof *count, err);
    *mean = *none = 0;
    for (size_t i = 0; count && i < w->routes->steps; i++) {
        int right = 0, at = (int)(i * (size_t)bins / w->routes->steps), wanted = want(w, &w->routes->step[i], layer);
        for (int e = 0; e < E; e++)
            right += (w->state[e].level >= 1) == (w->f[e] >= 1);
        learn(w);
        bin[at] += (double)right / E;
        count[at]++;
        *mean += (double)right / E / (double)w->routes->steps;
        *none += (double)(E - wanted) / E / (double)w->routes->steps;
    }
    for (int b = 0; count && b < bins; b++)
        bin[b] /= (double)count[b];
    int rc = count ? 0 : -1;
    mem_free(&count);
    return rc;
}

/* Compares the paper's Algorithm 1, the rule of its released program, and the routes of the last token, each with the
 * trivial prediction that no expert is needed. */
static int hot_or_cold(struct picture *p, struct err *err)
{
    const struct simulated_routes *drafted = p->simulation->drafted, *alone = p->simulation->undrafted;
    int gamma = p->simulation->machine->draft_length, bins = drafted->steps < BINS ? (int)drafted->steps : BINS, rc = -1;
    struct panel *panel = &p->panel[p->panels++];
    struct watched by_drafts = {0}, released = {0}, by_token = {0};
    double bin[BINS] = {0}, other[BINS] = {0}, all = 0, mean, none, mean_released, mean_alone, none_alone;
    const double last = (double)drafted->steps;
    *panel = (struct panel){.title = "Experts of the last layer rightly said to be wanted or not", .x_label = "forward",
                            .y_label = "share of experts", .percent = true};
    if (watch(&by_drafts, drafted, (struct utility_rule){4, 100000, UTILITY_FLOOR, false}, gamma / 2, gamma / 2,
              err) ||
        watch(&released, drafted, (struct utility_rule){5, 0, UTILITY_FIXED, true}, 5, 1, err) ||
        watch(&by_token, alone, (struct utility_rule){1, 0, UTILITY_FIXED, false}, 1, 1, err) ||
        accuracy(&by_drafts, bin, bins, &mean, &none, err) || accuracy(&released, other, bins, &mean_released, &none, err) ||
        accuracy(&by_token, &all, 1, &mean_alone, &none_alone, err))
        goto done;
    for (int b = 0; b < bins; b++) {
        double x = floor((b + 0.5) * last / bins);
        if (put(panel, "Algorithm 1, with drafts", x, bin[b], err) || put(panel, "its mean", x, mean, err) ||
            put(panel, "the released rule, with drafts", x, other[b], err) ||
            put(panel, "mean of the released rule", x, mean_released, err) ||
            put(panel, "none is wanted, with drafts", x, none, err) ||
            put(panel, "what the last token wanted, without drafts", x, mean_alone, err) ||
            put(panel, "none is wanted, without drafts", x, none_alone, err))
            goto done;
    }
    rc = 0;
done:
    unwatch(&by_drafts);
    unwatch(&released);
    unwatch(&by_token);
    return rc;
}

enum { LEVELS = 4, OFTEN = 65 };

/* seen: [LEVELS + 1][OFTEN] number of experts by their level and by how often they were then needed. */
static int shares_of_layer(const struct picture *p, int layer, struct balance_shares *shares, int64_t *seen, struct err *err)
{
    struct watched w = {0};
    int rc = watch(&w, p->simulation->drafted, (struct utility_rule){LEVELS, 100000, UTILITY_FLOOR, false},
                   p->simulation->machine->draft_length / 2, p->simulation->machine->draft_length / 2, err);
    for (size_t i = 0; !rc && i < w.routes->steps; i++) {
        int count = want(&w, &w.routes->step[i], layer);
        balance_learn(shares, LEVELS, w.expert, w.tokens, count, &w.state->level, sizeof *w.state);
        for (int e = 0; e < w.routes->experts; e++)
            seen[w.state[e].level * OFTEN + (w.f[e] < OFTEN ? w.f[e] : OFTEN - 1)]++;
        learn(&w);
    }
    unwatch(&w);
    return rc;
}

static int put_levels(struct panel *panel, const int64_t *seen, struct err *err)
{
    for (int level = 0; level <= LEVELS; level++) {
        int64_t all = 0, below = 0, sum = 0;
        int median = 0;
        for (int f = 0; f < OFTEN; f++) {
            all += seen[level * OFTEN + f];
            sum += f * seen[level * OFTEN + f];
        }
        for (int f = 0; f < OFTEN && 2 * below < all; f++) {
            below += seen[level * OFTEN + f];
            median = f;
        }
        if (all && (put(panel, "mean", level, (double)sum / (double)all, err) || put(panel, "median", level, median, err)))
            return -1;
    }
    return 0;
}

static int shares(struct picture *p, struct err *err)
{
    int layers = p->simulation->drafted->layers;
    double fast[LEVELS + 1] = {0}, hot[LEVELS + 1] = {0};
    int64_t seen[(LEVELS + 1) * OFTEN] = {0};
    struct panel *panel = &p->panel[p->panels], *often = panel + 1;
    p->panels = 2;
    *panel = (struct panel){.title = "What is at tau or above, mean over layers", .x_label = "tau", .y_label = "share",
                            .percent = true};
    *often = (struct panel){.title = "Tokens that want an expert of each level", .x_label = "level", .y_label = "tokens"};
    for (int layer = 0; layer < layers; layer++) {
        struct balance_shares of = {0};
        if (shares_of_layer(p, layer, &of, seen, err))
            return -1;
        for (int tau = 1; tau <= LEVELS; tau++) {
            fast[tau] += (1 - (double)of.cold[tau] / (double)of.pairs) / layers;
            hot[tau] += (double)of.hot[tau] / (double)of.experts / layers;
        }
    }
    for (int tau = 1; tau <= LEVELS; tau++)
        if (put(panel, "1 - r_c: of tokens' choices", tau, fast[tau], err) ||
            put(panel, "r_g: of distinct experts", tau, hot[tau], err))
            return -1;
    return put_levels(often, seen, err);
}

/* ---- output */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Writes one row per value of x, ascending, and one column per series. */
static int panel_rows(struct table *table, const struct panel *panel, struct err *err)
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
        qsort(x, count, sizeof *x, ascending);
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

static int panel_text(struct text *out, const struct panel *panel, bool markdown, struct err *err)
{
    const char *titles[SERIES + 2] = {panel->x_label};
    char align[SERIES + 2] = "r";
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

int simulate_figure_note(struct text *out, const struct simulation *simulation, struct err *err)
{
    const struct simulated_machine *m = simulation->machine;
    const char *recorded = simulation->drafted->model;
    return text_printf(out, err, "%s%s%s on %s, %.1f %% of experts in fast memory if not said otherwise; %s", recorded,
                       *recorded ? " at the costs of " : "", m->model, m->name, 100 * m->cached, simulation->drafted->name);
}

static int write_text(struct text *out, const struct picture *p, bool markdown, struct err *err)
{
    int rc = text_puts(out, "SIMULATED: ", err) || simulate_figure_note(out, p->simulation, err) || text_putc(out, '\n', err)
           ? -1 : 0;
    for (int i = 0; !rc && i < p->panels; i++)
        rc = panel_text(out, &p->panel[i], markdown, err);
    return rc;
}

static int write_json(struct text *out, const struct picture *p, struct err *err)
{
    for (int i = 0; i < p->panels; i++)
        for (int s = 0; s < p->panel[i].count; s++)
            for (int at = 0; at < p->panel[i].series[s].points; at++) {
                const struct panel *panel = &p->panel[i];
                const struct series *of = &panel->series[s];
                json_t *line = json_pack("{s:s, s:b, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:f, s:o}", "type", "figure",
                                         "simulated",
                                         1, "figure", p->name, "machine", p->simulation->machine->name, "routes",
                                         p->simulation->drafted->name, "panel", panel->title, "series", of->name, "x_is",
                                         panel->x_label, "y_is", panel->y_label, "x", of->x[at], "y", json_finite(of->y[at]));
                if (json_line(out, line, err))
                    return -1;
            }
    return 0;
}

static int write_svg(struct text *out, const struct picture *p, struct err *err)
{
    struct svg_panel panels[PANELS];
    struct svg_curve curves[PANELS][SERIES];
    struct text title = {0}, note = {0};
    for (int i = 0; i < p->panels; i++) {
        const struct panel *from = &p->panel[i];
        double x_min = INFINITY, x_max = 0, y_max = 0;
        for (int s = 0; s < from->count; s++) {
            const struct series *of = &from->series[s];
            curves[i][s] = (struct svg_curve){.label = of->name, .stroke = s < SVG_THIN ? s : SVG_THIN + s - SVG_THIN,
                                              .x = of->x,
                                              .y = of->y, .points = of->points, .dots = from->names};
            for (int at = 0; at < of->points; at++) {
                x_min = fmin(x_min, of->x[at]);
                x_max = fmax(x_max, of->x[at]);
                y_max = isnan(of->y[at]) ? y_max : fmax(y_max, of->y[at]);
            }
        }
        panels[i] = (struct svg_panel){.title = from->title, .x_label = from->x_label, .y_label = from->y_label,
                                       .x = from->series[0].x, .points = from->series[0].points, .x_max = x_max,
                                       .y_max = from->percent ? 1 : y_max > 0 ? y_max : 1, .percent = from->percent,
                                       .curves = curves[i], .count = from->count};
        panels[i].log2 = !strcmp(from->x_label, "tokens");
        panels[i].x_min = panels[i].log2 ? x_min : 0;
    }
    int rc = text_printf(&title, err, "SIMULATED: %s", p->title) || simulate_figure_note(&note, p->simulation, err) ||
             svg_figure(out, title.data, note.data, panels, p->panels, err) ? -1 : 0;
    text_free(&title);
    text_free(&note);
    return rc;
}

int simulate_figure(struct text *out, const struct simulation *simulation, const struct simulated_texts *texts,
                    enum simulated_figure figure, enum simulated_form form, struct err *err)
{
    static const struct { const char *title; int (*make)(struct picture *p, struct err *err); } kinds[] = {
        [SIMULATED_ABLATION] = {"what each part of MoE-SpAc is good for", ablation},
        [SIMULATED_HOT_OR_COLD] = {"which experts will be wanted", hot_or_cold},
        [SIMULATED_CACHED] = {"tokens a second by what is cached", cached},
        [SIMULATED_LENGTHS] = {"tokens a second by length", lengths},
        [SIMULATED_LEVELS] = {"tokens a second by K", levels},
        [SIMULATED_MEMORY] = {"memory for a draft model or for experts", memory},
        [SIMULATED_SHARES] = {"levels, and what they leave to which processor", shares}};
    if (figure == SIMULATED_PIPELINES)
        return simulate_pipelines(out, simulation, form, err);
    struct picture p = {.simulation = simulation, .texts = texts, .name = simulated_figures[figure],
                        .title = kinds[figure].title};
    int rc = kinds[figure].make(&p, err);
    for (int i = 0; !rc && i < p.panels; i++)
        rc = p.panel[i].count ? 0 : err_set(err, ERR_INPUT, "fast memory does not hold a layer's experts");
    if (!rc)
        rc = form == SIMULATED_JSON ? write_json(out, &p, err) : form == SIMULATED_SVG ? write_svg(out, &p, err)
                                    : write_text(out, &p, form == SIMULATED_MARKDOWN, err);
    picture_free(&p);
    return rc;
}

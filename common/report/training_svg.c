/* Draws curves of training: one row of panels per run, and all runs together if there are several. */
#include "common/report/training.h"
#include "common/report/training_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct chart chart_of(const char *title, const char *y_label)
{
    return (struct chart){.panel = {.title = title, .x_label = "step", .y_label = y_label, .x_max = 1}, .x_axis = AXIS_ZERO,
                          .y_axis = AXIS_ZERO};
}

static int stroke_of(const struct chart *chart) { return chart->panel.count ? SVG_THIN + chart->panel.count - 1 : SVG_BOLD; }

/* Adds a curve of a run, with this label, from the table of curves. */
static void add_curve(struct chart *chart, const struct figure *report, const struct figure_row *run, const char *name,
                      const char *label, struct err *err)
{
    const char *const texts[] = {run->text[TEXT_RUN], run->text[TEXT_HEAD], name};
    size_t count;
    const struct figure_row *rows = figure_rows(&report->table[TABLE_CURVE], texts, 3, &count);
    if (rows)
        chart_add(chart, figure_curve(rows, count, CURVE_STEP, CURVE_VALUE, label, stroke_of(chart)), err);
}

/* Adds a column of a run's evaluations, if some have it. */
static void add_evals(struct chart *chart, const struct figure *report, const struct figure_row *run, int column,
                      const char *label, struct err *err)
{
    size_t count;
    const struct figure_row *rows = figure_rows(&report->table[TABLE_EVAL], run->text, 2, &count);
    struct svg_curve curve = figure_curve(rows, count, EVAL_STEP, column, label, stroke_of(chart));
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any |= isfinite(rows[i].value[column]);
    curve.dots = true;
    if (any)
        chart_add(chart, curve, err);
}

/* Draws loss and its parts, acceptance by position, learning rate, gradient norm. */
static int draw_run(const struct figure *report, const struct figure_row *run, struct figure_page *page, struct err *err)
{
    static const char *const tokens_so_far[TRAINING_POSITIONS] = {"token 1", "token 2", "token 3", "token 4", "token 5",
                                                                  "token 6", "token 7", "token 8"};
    const struct figure_table *parts = &report->table[TABLE_PART];
    char title[256];
    snprintf(title, sizeof title, "%s, %s", run->text[TEXT_RUN], run->text[TEXT_HEAD]);
    struct chart loss = chart_of(title, "loss"), accepted = chart_of("drafts that are right so far", "accepted"),
                 tokens = chart_of("tokens per iteration", "tokens"), rate = chart_of("learning rate", "learning rate"),
                 gradient = chart_of("length of the gradient before clipping", "length");
    add_curve(&loss, report, run, "loss", "loss", err);
    for (size_t i = 0; i < parts->count; i++)
        if (parts->rows[i].text[TEXT_RUN] == run->text[TEXT_RUN])
            add_curve(&loss, report, run, parts->rows[i].text[TEXT_CURVE], parts->rows[i].text[TEXT_CURVE], err);
    add_evals(&loss, report, run, EVAL_LOSS, "validation", err);
    accepted.panel.percent = true;
    accepted.panel.y_max = 1;
    accepted.y_axis = AXIS_GIVEN;
    for (int p = 0; p < TRAINING_POSITIONS; p++)
        add_evals(&accepted, report, run, EVAL_ACCEPTED + p, tokens_so_far[p], err);
    add_evals(&tokens, report, run, EVAL_TOKENS, "chain", err);
    add_evals(&tokens, report, run, EVAL_TREE, "tree", err);
    add_curve(&rate, report, run, "lr", NULL, err);
    add_curve(&gradient, report, run, "gradient_norm", NULL, err);
    int rc = chart_draw(&loss, page, err);          /* each is drawn even after a failure, which frees it */
    rc |= chart_draw(&accepted, page, err);
    rc |= chart_draw(&tokens, page, err);
    rc |= chart_draw(&rate, page, err);
    return rc | chart_draw(&gradient, page, err);
}

/* Adds the acceptance by position of the run's best evaluation: the last one marked best; if none is marked, the last. */
static void add_best(struct chart *chart, const struct figure *report, const struct figure_row *run, struct err *err)
{
    static const double positions[TRAINING_POSITIONS] = {1, 2, 3, 4, 5, 6, 7, 8};
    const struct figure_row *best = NULL;
    size_t count;
    int points = 0;
    const struct figure_row *rows = figure_rows(&report->table[TABLE_EVAL], run->text, 2, &count);
    for (size_t i = 0; i < count; i++)
        if (!best || rows[i].value[EVAL_BEST] > 0 || !(best->value[EVAL_BEST] > 0))
            best = &rows[i];
    while (best && points < TRAINING_POSITIONS && isfinite(best->value[EVAL_ACCEPTED + points]))
        points++;
    if (points)
        chart_add(chart, (struct svg_curve){.label = run->text[TEXT_RUN], .stroke = stroke_of(chart), .x = positions,
                                            .y = &best->value[EVAL_ACCEPTED], .points = points, .dots = true}, err);
}

/* Draws all runs together: a panel each for loss, acceptance of the best evaluation, and tokens per iteration. */
static int draw_together(const struct figure *report, struct figure_page *page, struct err *err)
{
    const struct figure_table *runs = &report->table[TABLE_RUN];
    struct chart loss = chart_of("all runs", "loss"), tokens = chart_of("tokens per iteration, chain", "tokens"),
                 accepted = {.panel = {.title = "drafts right so far, at the best", .x_label = "token of the draft",
                                       .y_label = "accepted", .percent = true, .x_min = 1, .x_max = 2, .y_max = 1},
                             .x_axis = AXIS_ZERO};
    for (size_t r = 0; r < runs->count; r++) {
        add_curve(&loss, report, &runs->rows[r], "loss", runs->rows[r].text[TEXT_RUN], err);
        add_best(&accepted, report, &runs->rows[r], err);
        add_evals(&tokens, report, &runs->rows[r], EVAL_TOKENS, runs->rows[r].text[TEXT_RUN], err);
    }
    int rc = chart_draw(&loss, page, err);
    rc |= chart_draw(&accepted, page, err);
    return rc | chart_draw(&tokens, page, err);
}

int training_svg(const struct figure *report, struct text *out, struct err *err)
{
    const struct figure_table *runs = &report->table[TABLE_RUN];
    struct figure_page page = {.height = FIGURE_PAGE_TOP};
    int rc = runs->count > 1 ? draw_together(report, &page, err) : 0;
    for (size_t r = 0; r < runs->count && !rc; r++)
        rc = draw_run(report, &runs->rows[r], &page, err);
    return figure_page_end(&page, rc, "Training of draft heads", "points of losses are means of some steps", out, err);
}

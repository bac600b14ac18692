/* Draws curves of training: one row of panels per run, and all runs together if there are several. */
#include "common/report/training.h"
#include "common/report/training_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

/* Columns of the tables as arrays to which curves point. */
struct drawing {
    const struct figure_table *runs, *evals, *points;
    double *x, *y;                      /* [points] */
    double *eval_x, *eval_y;            /* [evals], [EVAL columns][evals] */
    double positions[TRAINING_POSITIONS];
    double *accepted;                   /* [runs][TRAINING_POSITIONS] of the best evaluation */
    struct svg_curve *curves;
    char (*labels)[32];
};

static void drawing_free(struct drawing *drawing)
{
    mem_free(&drawing->x);
    mem_free(&drawing->y);
    mem_free(&drawing->eval_x);
    mem_free(&drawing->eval_y);
    mem_free(&drawing->accepted);
    mem_free(&drawing->curves);
    mem_free(&drawing->labels);
}

static bool of_run(const struct figure_row *row, const struct figure_row *run)
{
    return row->text[TEXT_RUN] == run->text[TEXT_RUN];
}

static int drawing_make(struct drawing *out, const struct figure *report, struct err *err)
{
    enum { COLUMNS = EVAL_ACCEPTED + TRAINING_POSITIONS };
    const struct figure_table *runs = out->runs = &report->table[TABLE_RUN], *evals = out->evals = &report->table[TABLE_EVAL];
    const struct figure_table *points = out->points = &report->table[TABLE_CURVE];
    if (!(out->x = mem_alloc(points->count + 1, sizeof *out->x, err)) ||
        !(out->y = mem_alloc(points->count + 1, sizeof *out->y, err)) ||
        !(out->eval_x = mem_alloc(evals->count + 1, sizeof *out->eval_x, err)) ||
        !(out->eval_y = mem_alloc(COLUMNS * (evals->count + 1), sizeof *out->eval_y, err)) ||
        !(out->accepted = mem_alloc(runs->count * TRAINING_POSITIONS, sizeof *out->accepted, err)) ||
        !(out->curves = mem_alloc(runs->count * 2 + COLUMNS, sizeof *out->curves, err)) ||
        !(out->labels = mem_alloc(COLUMNS, sizeof *out->labels, err)))
        return -1;
    for (size_t i = 0; i < points->count; i++) {
        out->x[i] = points->rows[i].value[CURVE_STEP];
        out->y[i] = points->rows[i].value[CURVE_VALUE];
    }
    for (size_t i = 0; i < evals->count; i++) {
        out->eval_x[i] = evals->rows[i].value[EVAL_STEP];
        for (size_t c = 0; c < COLUMNS; c++)
            out->eval_y[c * evals->count + i] = evals->rows[i].value[c];
    }
    for (int p = 0; p < TRAINING_POSITIONS; p++)
        out->positions[p] = p + 1;
    for (size_t r = 0; r < runs->count; r++) {
        const struct figure_row *best = NULL;
        for (size_t i = 0; i < evals->count; i++) {
            const struct figure_row *row = &evals->rows[i];
            if (of_run(row, &runs->rows[r]) && (!best || row->value[EVAL_BEST] > 0 || !(best->value[EVAL_BEST] > 0)))
                best = row;
        }
        for (int p = 0; p < TRAINING_POSITIONS; p++)
            out->accepted[r * TRAINING_POSITIONS + (size_t)p] = best ? best->value[EVAL_ACCEPTED + p] : NAN;
    }
    return 0;
}

/* Extends a panel's ranges to contain a curve. */
static void fit(struct svg_panel *panel, const struct svg_curve *curve)
{
    for (int i = 0; i < curve->points; i++) {
        panel->x_max = fmax(panel->x_max, curve->x[i]);
        if (isfinite(curve->y[i]))
            panel->y_max = fmax(panel->y_max, 1.05 * curve->y[i]);
    }
}

static int stroke_of(int number) { return number == 0 ? SVG_BOLD : SVG_THIN + (number - 1) % SVG_PATTERNS; }

/* Adds a run's curve of this name from the curve table, with this label. */
static void add_curve(const struct drawing *drawing, struct svg_panel *panel, const struct figure_row *run, const char *name,
                      const char *label)
{
    const struct figure_table *points = drawing->points;
    size_t first = 0, end;
    while (first < points->count && (!of_run(&points->rows[first], run) || strcmp(points->rows[first].text[TEXT_CURVE], name)))
        first++;
    for (end = first; end < points->count && of_run(&points->rows[end], run) &&
                      !strcmp(points->rows[end].text[TEXT_CURVE], name);)
        end++;
    if (end == first)
        return;
    struct svg_curve *curve = &drawing->curves[panel->count];
    *curve = (struct svg_curve){.label = label, .stroke = stroke_of(panel->count), .x = drawing->x + first,
                                .y = drawing->y + first, .points = (int)(end - first)};
    panel->count++;
    fit(panel, curve);
}

/* Adds a column of a run's evaluations. */
static void add_evals(const struct drawing *drawing, struct svg_panel *panel, const struct figure_row *run, int column,
                      const char *label)
{
    const struct figure_table *evals = drawing->evals;
    size_t first = 0, end;
    bool any = false;
    while (first < evals->count && !of_run(&evals->rows[first], run))
        first++;
    for (end = first; end < evals->count && of_run(&evals->rows[end], run); end++)
        any |= isfinite(evals->rows[end].value[column]);
    if (!any)
        return;
    struct svg_curve *curve = &drawing->curves[panel->count];
    *curve = (struct svg_curve){.label = label, .stroke = stroke_of(panel->count), .x = drawing->eval_x + first,
                                .y = drawing->eval_y + (size_t)column * evals->count + first, .points = (int)(end - first),
                                .dots = true};
    panel->count++;
    fit(panel, curve);
}

/* Draws a panel if it has curves. */
static int put_panel(struct figure_page *page, struct svg_panel *panel, struct err *err)
{
    panel->x_max = fmax(panel->x_max, panel->x_min + 1);
    panel->y_max = panel->y_max > 0 ? panel->y_max : 1;
    return panel->count ? figure_page_panel(page, panel, err) : 0;
}

static struct svg_panel panel_of(const struct drawing *drawing, const char *title, const char *y_label)
{
    return (struct svg_panel){.title = title, .x_label = "step", .y_label = y_label, .curves = drawing->curves};
}

/* Draws loss and its parts, acceptance by position, learning rate, gradient norm. */
static int draw_run(const struct drawing *drawing, const struct figure *report, const struct figure_row *run,
                    struct figure_page *page, struct err *err)
{
    const struct figure_table *parts = &report->table[TABLE_PART];
    char title[256];
    snprintf(title, sizeof title, "%s, %s", run->text[TEXT_RUN], run->text[TEXT_HEAD]);
    struct svg_panel loss = panel_of(drawing, title, "loss");
    add_curve(drawing, &loss, run, "loss", "loss");
    for (size_t i = 0; i < parts->count; i++)
        if (of_run(&parts->rows[i], run))
            add_curve(drawing, &loss, run, parts->rows[i].text[TEXT_CURVE], parts->rows[i].text[TEXT_CURVE]);
    add_evals(drawing, &loss, run, EVAL_LOSS, "validation");
    if (put_panel(page, &loss, err))
        return -1;
    struct svg_panel accepted = panel_of(drawing, "drafts that are right so far", "accepted");
    accepted.percent = true;
    for (int p = 0; p < TRAINING_POSITIONS; p++) {
        snprintf(drawing->labels[p], sizeof drawing->labels[p], "token %d", p + 1);
        add_evals(drawing, &accepted, run, EVAL_ACCEPTED + p, drawing->labels[p]);
    }
    accepted.y_max = 1;
    if (put_panel(page, &accepted, err))
        return -1;
    struct svg_panel tokens = panel_of(drawing, "tokens per iteration", "tokens");
    add_evals(drawing, &tokens, run, EVAL_TOKENS, "chain");
    add_evals(drawing, &tokens, run, EVAL_TREE, "tree");
    if (put_panel(page, &tokens, err))
        return -1;
    struct svg_panel rate = panel_of(drawing, "learning rate", "learning rate");
    add_curve(drawing, &rate, run, "lr", NULL);
    if (put_panel(page, &rate, err))
        return -1;
    struct svg_panel gradient = panel_of(drawing, "length of the gradient before clipping", "length");
    add_curve(drawing, &gradient, run, "gradient_norm", NULL);
    return put_panel(page, &gradient, err);
}

/* Draws all runs together: a panel each for loss, acceptance of the best evaluation, and tokens per iteration. */
static int draw_together(const struct drawing *drawing, struct figure_page *page, struct err *err)
{
    const struct figure_table *runs = drawing->runs;
    struct svg_panel loss = panel_of(drawing, "all runs", "loss");
    for (size_t r = 0; r < runs->count; r++)
        add_curve(drawing, &loss, &runs->rows[r], "loss", runs->rows[r].text[TEXT_RUN]);
    if (put_panel(page, &loss, err))
        return -1;
    struct svg_panel accepted = {.title = "drafts right so far, at the best", .x_label = "token of the draft",
                                 .y_label = "accepted", .percent = true, .x_min = 1, .y_max = 1, .curves = drawing->curves};
    for (size_t r = 0; r < runs->count; r++) {
        const double *y = drawing->accepted + r * TRAINING_POSITIONS;
        int points = 0;
        while (points < TRAINING_POSITIONS && isfinite(y[points]))
            points++;
        if (!points)
            continue;
        drawing->curves[accepted.count] = (struct svg_curve){
            .label = runs->rows[r].text[TEXT_RUN], .stroke = stroke_of(accepted.count), .x = drawing->positions, .y = y,
            .points = points, .dots = true};
        accepted.x_max = fmax(accepted.x_max, points);
        accepted.count++;
    }
    if (put_panel(page, &accepted, err))
        return -1;
    struct svg_panel tokens = panel_of(drawing, "tokens per iteration, chain", "tokens");
    for (size_t r = 0; r < runs->count; r++)
        add_evals(drawing, &tokens, &runs->rows[r], EVAL_TOKENS, runs->rows[r].text[TEXT_RUN]);
    return put_panel(page, &tokens, err);
}

int training_svg(const struct figure *report, struct text *out, struct err *err)
{
    struct figure_page page = {.height = 52};           /* below title and note */
    struct drawing drawing = {0};
    int rc = -1;
    if (drawing_make(&drawing, report, err) ||
        (drawing.runs->count > 1 && draw_together(&drawing, &page, err)))
        goto done;
    for (size_t r = 0; r < drawing.runs->count; r++)
        if (draw_run(&drawing, report, &drawing.runs->rows[r], &page, err))
            goto done;
    if (svg_head(out, page.width, page.height + 8, "Training of draft heads", "points of losses are means of some steps",
                 err) ||
        text_put(out, page.body.data, page.body.length, err) || text_puts(out, "</svg>\n", err))
        goto done;
    rc = 0;
done:
    drawing_free(&drawing);
    text_free(&page.body);
    return rc;
}

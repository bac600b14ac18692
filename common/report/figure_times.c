/* Figure 4 of Cascade, below: the parts of an iteration's time, beside an iteration of the reference on the same prompts. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct figure_column part_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"iterations", 0}, {"draft_ms", 4}, {"verify_ms", 4}, {"accept_ms", 4},
    {"other_ms", 4}, {"total_ms", 4}, {"relative", 3}, {"draft", 3}, {"verify", 3}, {"accept", 3}, {"other", 3}, {NULL, 0},
};
enum { ITERATIONS, DRAFT_MS, VERIFY_MS, ACCEPT_MS, OTHER_MS, TOTAL_MS, RELATIVE, DRAFT, VERIFY, ACCEPT, OTHER, PARTS = 4 };

/* Computes means over the iterations of a task's samples (-1: all tasks). */
static void mean_parts(const struct figure_work *work, int task, int setting, double *iterations, double ms[PARTS + 1])
{
    struct step_cursor at = {0};
    double sums[PARTS + 1] = {0};
    *iterations = 0;
    for (const struct measured_step *step; (step = measurements_step(work->all, task, setting, &at)); ++*iterations) {
        const double parts[] = {step->draft_us, step->verify_us, step->accept_us,
                                step->us - step->draft_us - step->verify_us - step->accept_us, step->us};
        for (int p = 0; p <= PARTS; p++)
            sums[p] += 1e-3 * parts[p];
    }
    for (int p = 0; p <= PARTS; p++)
        ms[p] = sums[p] / *iterations;
}

static int make(const struct figure_work *work, struct err *err)
{
    if (work->setup->bytes)
        return err_set(err, ERR_INPUT, "figure 'times' shows seconds; leave --cost bytes out");
    for (size_t i = 0; i < work->summary->count; i++) {
        const struct summary_row *row = &work->summary->rows[i];
        const struct measured_setting *setting = &work->all->settings[row->setting];
        double ms[PARTS + 1], base[PARTS + 1], values[OTHER + 1], its;
        mean_parts(work, row->task, row->setting, &values[ITERATIONS], ms);
        mean_parts(work, row->task, setting->reference < 0 ? row->setting : setting->reference, &its, base);
        for (int p = 0; p <= PARTS; p++) {
            values[DRAFT_MS + p] = ms[p];
            values[p < PARTS ? DRAFT + p : RELATIVE] = ms[p] / base[PARTS];
        }
        if (!figure_row_add(&work->figure->table[0], figure_task(work->all, row->task), setting->name, NULL, values,
                            sizeof values, err))
            return -1;
    }
    return 0;
}

enum { NAME_LEFT = 12, NAMES = 150, BAR_LEFT = 156, BAR_WIDTH = 236, ROW = 22, TOP = 108, SIZE = 14, SWATCH = 105 };

static const char *const part_names[] = {"drafting", "verifying", "accepting", "other"};
static const char *const shades[] = {"#000", "#bbb", "#666", "#fff"};

static int put_bar(struct text *out, const struct figure_row *row, double max, double y, int size, struct err *err)
{
    char text[32];
    double left = BAR_LEFT;
    if (svg_text(out, NAMES, y + 15, "end", size, "", row->text[1], err))
        return -1;
    for (int p = 0; p < PARTS; p++) {
        double width = BAR_WIDTH * row->value[DRAFT + p] / max;
        if (!(width > 0))
            continue;
        if (text_printf(out, err, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"16\" fill=\"%s\" stroke=\"#000\" "
                        "stroke-width=\"0.5\"/>\n", left, y + 2, width, shades[p]))
            return -1;
        left += width;
    }
    snprintf(text, sizeof text, "%.2f", row->value[RELATIVE]);
    return svg_text(out, left + 6, y + 15, "start", SIZE, "", text, err);
}

static int draw(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *table = &figure->table[0];
    const char *task = NULL;
    double max = 1, y = TOP;
    int size = SIZE;                        /* font size of all names */
    for (size_t i = 0; i < table->count; i++) {
        max = fmax(max, table->rows[i].value[RELATIVE]);
        size = svg_fitting(table->rows[i].text[1], NAMES - NAME_LEFT, size);
    }
    for (int p = 0; p < PARTS; p++)
        if (text_printf(&page->body, err, "<rect x=\"%d\" y=\"62\" width=\"14\" height=\"12\" fill=\"%s\" stroke=\"#000\"/>\n",
                        NAME_LEFT + SWATCH * p, shades[p]) ||
            svg_text(&page->body, NAME_LEFT + SWATCH * p + 20, 73, "start", SIZE, "", part_names[p], err))
            return -1;
    for (size_t i = 0; i < table->count; i++, y += ROW) {
        const struct figure_row *row = &table->rows[i];
        if (row->text[0] != task) {
            task = row->text[0];
            y += i ? 8 : 0;
            if (svg_text(&page->body, NAME_LEFT, y, "start", SIZE, " font-weight=\"bold\"", *task ? task : "prompts", err))
                return -1;
            y += 4;
        }
        if (put_bar(&page->body, row, max, y, size, err))
            return -1;
        y += i + 1 < table->count && table->rows[i + 1].text[0] != task ? ROW / 2.0 : 0;
    }
    page->width = SVG_PANEL_WIDTH;
    page->height = (int)y + 10;
    return text_printf(&page->body, err, "<path d=\"M%.1f %dV%.0f\" stroke=\"#000\" stroke-dasharray=\"4 3\"/>\n",
                       BAR_LEFT + BAR_WIDTH / max, TOP - 4, y + 4);
}

const struct figure_class figure_times = {
    .title = "Where an iteration's time goes",
    .table = {{.type = "parts", .columns = part_columns,
               .heading = "Milliseconds of an iteration, and its parts over a whole iteration of the reference"}},
    .make = make, .draw = draw};

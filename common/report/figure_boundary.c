/* Figure 1 (b, c) of CAS-Spec: acceptance against the cost of a drafted token, the boundary within which a cascade above the
 * cheapest drafter is faster than that drafter alone, and the position of each drafter in use.
 *
 * Tried and kept tokens of a drafter are defined in measurements.h; factors and boundaries in ewif.h. A forward of the
 * target over one token is measured in iterations without a draft: of the reference, or else of the setting itself. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>

#include "common/report/ewif.h"
#include "common/stream/decode.h"

static const struct figure_column drafter_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"drafter", FIGURE_WORD}, {"lies", FIGURE_WORD}, {"tried", 0},
    {"acceptance", 3}, {"runs", 0}, {"cost", 4}, {"forwards", 0}, {"alone", 3}, {"vertical", 3}, {"horizontal", 3},
    {"vertical_cost", 4}, {"horizontal_cost", 4}, {NULL, 0},
};
enum { TRIED, ACCEPTANCE, RUNS, COST, FORWARDS, ALONE, FACTOR, BOUNDARY = FACTOR + EWIF_CASCADES };

static const struct figure_column curve_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"cascade", FIGURE_WORD}, {"acceptance", 2}, {"cost", 4}, {NULL, 0},
};
enum { CURVE_ACCEPTANCE, CURVE_COST };

static const char *const cascade_words[EWIF_CASCADES] = {"vertical", "horizontal"};
static const char *const numbers[] = {"drafter 0", "drafter 1", "drafter 2", "drafter 3", "drafter 4", "drafter 5", "drafter 6",
                                      "drafter 7"};
_Static_assert(sizeof numbers / sizeof *numbers == DECODE_DRAFTERS_MAX, "a name for each drafter");

struct totals {
    double tried, kept, runs, cost;
};

/* Sums over the samples of a setting, of one task (-1: of all). */
struct sums {
    struct totals of[DECODE_DRAFTERS_MAX];
    int drafters;
    double forwards, forward_cost;      /* of one token */
};

static struct sums sum_up(const struct figure_work *work, int task, int setting)
{
    const struct measurements *all = work->all;
    const bool bytes = work->setup->bytes;
    struct sums sums = {0};
    struct step_cursor at = {0};
    for (const struct measured_step *step; (step = measurements_step(all, task, setting, &at));) {
        sums.drafters = step->drafters > sums.drafters ? step->drafters : sums.drafters;
        if (step->nodes == 1 && !step->riders) {
            sums.forwards++;
            sums.forward_cost += bytes ? (double)step->verify_bytes : step->verify_us;
        }
        for (int d = 0; d < step->drafters; d++) {
            const struct measured_share *share = &all->shares[step->first_share + (size_t)d];
            struct totals *of = &sums.of[d];
            of->tried += share->tried;
            of->kept += share->kept;
            of->runs += share->runs < 0 ? NAN : share->runs;
            of->cost += bytes ? (double)share->bytes : share->us;
        }
    }
    return sums;
}

static double quotient(double part, double whole) { return whole > 0 ? part / whole : NAN; }

/* Returns the cheapest drafter; of two with equal cost the one with higher acceptance. -1: no cost is known. */
static int bottom_of(const struct ewif_drafter *drafters, int count)
{
    int bottom = -1;
    for (int d = 0; d < count; d++) {
        if (!isfinite(drafters[d].cost))
            continue;
        const struct ewif_drafter *best = &drafters[bottom < 0 ? d : bottom];
        if (bottom < 0 || drafters[d].cost < best->cost ||
            (!(drafters[d].cost > best->cost) && drafters[d].acceptance > best->acceptance))
            bottom = d;
    }
    return bottom;
}

static const char *position_of(const double factor[EWIF_CASCADES], double bottom_alone)
{
    if (isnan(factor[EWIF_VERTICAL]))
        return "unknown";
    const bool vertical = factor[EWIF_VERTICAL] > bottom_alone, horizontal = factor[EWIF_HORIZONTAL] > bottom_alone;
    return vertical && horizontal ? "inside both" : vertical ? "inside vertical" : horizontal ? "inside horizontal" : "outside";
}

static void judge(struct figure_row *row, struct ewif_drafter drafter, struct ewif_drafter bottom)
{
    for (int c = 0; isfinite(drafter.cost + drafter.acceptance + bottom.acceptance) && c < EWIF_CASCADES; c++) {
        row->value[FACTOR + c] = ewif_best_cascade((enum ewif_cascade)c, drafter, bottom);
        row->value[BOUNDARY + c] = ewif_boundary((enum ewif_cascade)c, drafter.acceptance, bottom);
    }
    row->text[3] = position_of(&row->value[FACTOR], ewif_best_alone(bottom));
}

static int put_curves(struct figure_table *table, const char *task, const char *setting, struct ewif_drafter bottom,
                      struct err *err)
{
    for (int c = 0; c < EWIF_CASCADES; c++)
        for (int percent = 2; percent <= 100; percent += 2) {
            const double cost = ewif_boundary((enum ewif_cascade)c, 0.01 * percent, bottom);
            if (!(cost > 0))
                continue;
            const double values[] = {[CURVE_ACCEPTANCE] = 0.01 * percent, [CURVE_COST] = cost};
            if (!figure_row_add(table, task, setting, cascade_words[c], values, sizeof values, err))
                return -1;
        }
    return 0;
}

static int put_setting(const struct figure_work *work, int task, int setting, struct err *err)
{
    const struct measured_setting *of = &work->all->settings[setting];
    const struct sums mine = sum_up(work, task, setting);
    struct ewif_drafter drafters[DECODE_DRAFTERS_MAX];
    if (mine.drafters < 2)
        return 0;
    struct sums base = of->reference < 0 ? mine : sum_up(work, task, of->reference);
    if (!(base.forwards > 0))
        base = mine;
    const double forward = quotient(base.forward_cost, base.forwards);
    if (!(forward > 0))
        return 0;
    for (int d = 0; d < mine.drafters; d++)
        drafters[d] = (struct ewif_drafter){quotient(mine.of[d].kept, mine.of[d].tried),
                                            quotient(mine.of[d].cost, mine.of[d].runs) / forward};
    const int bottom = bottom_of(drafters, mine.drafters);
    for (int d = 0; d < mine.drafters; d++) {
        const char *name = d < of->drafter_count ? of->drafters[d] : numbers[d];
        const double values[] = {
            [TRIED] = mine.of[d].tried, [ACCEPTANCE] = drafters[d].acceptance, [RUNS] = mine.of[d].runs,
            [COST] = drafters[d].cost, [FORWARDS] = base.forwards,
            [ALONE] = isfinite(drafters[d].cost + drafters[d].acceptance) ? ewif_best_alone(drafters[d]) : NAN};
        struct figure_row *row = figure_row_add(&work->figure->table[0], figure_task(work->all, task), of->name, name, values,
                                                sizeof values, err);
        if (!row)
            return -1;
        if (d == bottom)
            row->text[3] = "bottom";
        else if (bottom >= 0)
            judge(row, drafters[d], drafters[bottom]);
        else
            row->text[3] = "unknown";
    }
    if (bottom < 0 || isnan(drafters[bottom].acceptance))
        return 0;
    return put_curves(&work->figure->table[1], figure_task(work->all, task), of->name, drafters[bottom], err);
}

static int make(const struct figure_work *work, struct err *err)
{
    for (size_t i = 0; i < work->summary->count; i++)
        if (put_setting(work, work->summary->rows[i].task, work->summary->rows[i].setting, err))
            return -1;
    return 0;
}

/* Draws a panel of the drafters first to end - 1, which belong to one task and setting. */
static int draw_setting(const struct figure *figure, size_t first, size_t end, struct figure_page *page, struct err *err)
{
    static const char *const names[EWIF_CASCADES] = {"vertical gains above", "horizontal gains above"};
    const struct figure_row *rows = figure->table[0].rows;
    char labels[DECODE_DRAFTERS_MAX][96], title[320];
    struct chart chart = {.panel = {.title = title, .x_label = "cost of a run, in forwards over one token",
                                    .y_label = "acceptance", .x_max = 1, .y_max = 1}};
    snprintf(title, sizeof title, "%s, %s", *rows[first].text[0] ? rows[first].text[0] : "prompts", rows[first].text[1]);
    for (int c = 0; c < EWIF_CASCADES; c++) {
        const char *const texts[] = {rows[first].text[0], rows[first].text[1], cascade_words[c]};
        size_t count;
        const struct figure_row *boundary = figure_rows(&figure->table[1], texts, 3, &count);
        chart_add(&chart, figure_curve(boundary, count, CURVE_COST, CURVE_ACCEPTANCE, names[c],
                                       c == EWIF_VERTICAL ? SVG_BOLD : SVG_DASHED), err);
    }
    for (size_t i = first; i < end; i++) {
        const double cost = rows[i].value[COST], acceptance = rows[i].value[ACCEPTANCE];
        struct svg_curve dot = figure_curve(&rows[i], 1, COST, ACCEPTANCE, labels[i - first], SVG_THIN);
        dot.dots = dot.bare = true;
        snprintf(labels[i - first], sizeof *labels, "%s: %.2f at %.3f, %s", rows[i].text[2], acceptance, cost, rows[i].text[3]);
        if (isfinite(cost))
            chart.panel.x_max = fmax(chart.panel.x_max, 1.05 * cost);
        if (isfinite(cost + acceptance))
            chart_add(&chart, dot, err);
    }
    return chart_draw(&chart, page, err);
}

static int draw(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *drafters = &figure->table[0];
    for (size_t first = 0, end; first < drafters->count; first = end) {
        end = figure_rows_end(drafters, first, 2);
        if (draw_setting(figure, first, end, page, err))
            return -1;
    }
    return 0;
}

const struct figure_class figure_boundary = {
    .title = "Which drafters make a useful cascade",
    .table = {{.type = "drafter", .columns = drafter_columns,
               .heading = "Each drafter's acceptance and cost, the improvement expected of it alone and above the bottom "
                          "drafter,\nand the cost at which that is just what the bottom alone gives"},
              {.type = "boundary", .columns = curve_columns}},
    .make = make, .draw = draw};

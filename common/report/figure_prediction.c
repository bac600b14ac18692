/* Figure 8 of Cascade: the speed-up of static draft lengths against their utility (equation 3), one point per task and
 * setting.
 *
 * As in the paper, the cost of an iteration is the time of drafting, verifying and accepting, while the speed-up is that of
 * tokens/s, which includes all of an iteration's time; so the two are measured independently. The reference itself, whose
 * point is (1, 1), is left out. R^2 is given for the line speed-up = utility, which the paper's theorem predicts, and for
 * the least-squares line. */
#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>

#include "common/report/best.h"

static const struct figure_column point_columns[] = {
    {"task", FIGURE_WORD}, {"setting", FIGURE_WORD}, {"prompts", 0}, {"tokens", 3}, {"cost", 3}, {"utility", 3}, {"ratio", 3},
    {NULL, 0},
};
enum { PROMPTS, TOKENS, COST, UTILITY, RATIO };

static const struct figure_column fit_columns[] = {
    {"points", 0}, {"r2", 4}, {"r2_fit", 4}, {"slope", 3}, {"intercept", 3}, {"greatest_error", 3}, {NULL, 0},
};
enum { POINTS, R2, R2_FIT, SLOPE, INTERCEPT, GREATEST_ERROR };

struct sums {
    double tokens, iterations, cost, prompts;
};

static double cost_of(const struct figure_work *work, const struct measured_step *step)
{
    return work->setup->bytes ? (double)step->bytes : 1e-6 * (step->draft_us + step->verify_us + step->accept_us);
}

/* Sums the samples of a setting, of one task (-1: of all), whose prompts also ran under setting `other`. */
static struct sums sum_up(const struct figure_work *work, int task, int setting, int other)
{
    const struct measurements *all = work->all;
    struct sums sums = {0};
    for (size_t i = 0, next; i < all->sample_count; i = next) {
        bool mine = false, theirs = false;
        for (next = i; next < all->sample_count && all->samples[next].prompt == all->samples[i].prompt; next++) {
            mine |= all->samples[next].setting == setting;
            theirs |= all->samples[next].setting == other;
        }
        if (!mine || !theirs || (task >= 0 && all->samples[i].task != task))
            continue;
        sums.prompts++;
        for (size_t s = i; s < next; s++)
            for (size_t k = 0; all->samples[s].setting == setting && k < all->samples[s].steps; k++) {
                const struct measured_step *step = &all->steps[all->samples[s].first_step + k];
                sums.tokens += step->emitted;
                sums.cost += cost_of(work, step);
                sums.iterations++;
            }
    }
    return sums;
}

static int add_fit(const struct figure_table *points, struct figure_table *out, struct err *err)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0, yy = 0, error = 0, greatest = 0;
    for (size_t i = 0; i < points->count; i++) {
        double u = points->rows[i].value[UTILITY], r = points->rows[i].value[RATIO];
        n++;
        x += u;
        y += r;
        xx += u * u;
        xy += u * r;
        yy += r * r;
        error += (r - u) * (r - u);
        greatest = fmax(greatest, fabs(r / u - 1));
    }
    double spread_x = xx - x * x / n, spread_y = yy - y * y / n, both = xy - x * y / n;
    const bool fits = n >= 3 && spread_x > 0 && spread_y > 0;
    const double values[] = {
        [POINTS] = n, [GREATEST_ERROR] = greatest, [R2] = fits ? 1 - error / spread_y : NAN,
        [R2_FIT] = fits ? both * both / (spread_x * spread_y) : NAN, [SLOPE] = fits ? both / spread_x : NAN,
        [INTERCEPT] = fits ? (y - both / spread_x * x) / n : NAN};
    return figure_row_add(out, NULL, NULL, NULL, values, sizeof values, err) ? 0 : -1;
}

static int make(const struct figure_work *work, struct err *err)
{
    struct figure_table *points = &work->figure->table[0];
    const struct measurements *all = work->all;
    for (size_t i = 0; i < work->summary->count; i++) {
        const struct summary_row *row = &work->summary->rows[i];
        int reference = all->settings[row->setting].reference;
        if (row->task < 0 || reference < 0 || reference == row->setting ||
            !options_are_static(all->settings[row->setting].options) ||
            !selection_fits(work->setup->selection, figure_task(all, row->task), all->settings[row->setting].name))
            continue;
        const struct sums mine = sum_up(work, row->task, row->setting, reference),
                          base = sum_up(work, row->task, reference, row->setting);
        double cost = mine.cost / mine.iterations / (base.cost / base.iterations);
        if (!isfinite(cost) || !(cost > 0) || !isfinite(row->ratio))
            continue;
        const double tokens = mine.tokens / mine.iterations;
        const double values[] = {[PROMPTS] = mine.prompts, [TOKENS] = tokens, [COST] = cost, [UTILITY] = tokens / cost,
                                 [RATIO] = row->ratio};
        if (!figure_row_add(points, figure_task(all, row->task), all->settings[row->setting].name, NULL, values, sizeof values,
                            err))
            return -1;
    }
    return points->count ? add_fit(points, &work->figure->table[1], err) : 0;
}

static int draw(const struct figure *figure, struct figure_page *page, struct err *err)
{
    const struct figure_table *points = &figure->table[0];
    double max = 1.2, r2 = figure->table[1].rows[0].value[R2];
    char title[64];
    for (size_t i = 0; i < points->count; i++)
        max = fmax(max, 1.05 * fmax(points->rows[i].value[UTILITY], points->rows[i].value[RATIO]));
    const double ends[] = {0, max};
    snprintf(title, sizeof title, isfinite(r2) ? "%zu points, R\xc2\xb2 = %.3f" : "%zu points", points->count, r2);
    struct chart chart = {.panel = {.title = title, .x_label = "utility", .y_label = "ratio to the reference", .x_max = max,
                                    .y_max = max}};
    struct svg_curve dots = figure_curve(points->rows, points->count, UTILITY, RATIO, NULL, SVG_BOLD);
    dots.dots = dots.bare = true;
    chart_add(&chart, (struct svg_curve){.label = "speed-up = utility", .stroke = SVG_DASHED, .x = ends, .y = ends,
                                         .points = 2}, err);
    chart_add(&chart, dots, err);
    return chart_draw(&chart, page, err);
}

const struct figure_class figure_prediction = {
    .title = "What utility predicts",
    .table = {{.type = "point", .columns = point_columns,
               .heading = "Static settings: tokens an iteration over its cost, the reference's being 1, and the ratio of "
                          "speeds"},
              {.type = "fit", .columns = fit_columns,
               .heading = "How well utility predicts: r2 about the line ratio = utility, r2_fit about that of least squares"}},
    .make = make, .draw = draw};

#include "common/report/speculation_report.h"

#include <math.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/report/svg.h"
#include "common/report/table.h"
#include "common/stream/coact.h"

static const char *name_of(const char *model) { return *model ? model : "unnamed model"; }

/* Sums of records, for means over the shown layers. */
enum { REUSE_COLUMNS = 6, SIGNAL_COLUMNS = 12 };

struct means {
    int layer, layers, points;
    int32_t first[WINDOWS_MAX];         /* draft length or width */
    int64_t tokens;
    double value[SIGNAL_COLUMNS][WINDOWS_MAX];
};

static void add_points(struct means *m, int layer, int points, const int32_t *first, const double *const *column, int columns)
{
    if (m->layer >= 0 && m->layer != layer)
        return;
    m->points = points;
    m->layers++;
    for (int i = 0; i < points; i++) {
        m->first[i] = first[i];
        for (int c = 0; c < columns; c++)
            m->value[c][i] += column[c][i];
    }
}

static void divide(struct means *m)
{
    for (int c = 0; c < SIGNAL_COLUMNS; c++)
        for (int i = 0; i < m->points; i++)
            m->value[c][i] /= m->layers;
}

static int add_reuse(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    const struct coact_reuse *of = body;
    const double *const column[REUSE_COLUMNS] = {of->distinct, of->ratio, of->verified, of->emitted, of->gain,
                                                 of->gain_verified};
    (void)kind;
    (void)err;
    ((struct means *)context)->tokens = of->tokens;
    add_points(context, of->layer, of->points, of->drafts, column, REUSE_COLUMNS);
    return 0;
}

static int add_signal(void *context, const struct record_kind *kind, const void *body, struct err *err)
{
    const struct coact_signal *of = body;
    const double *const column[SIGNAL_COLUMNS] = {of->entropy, of->entropy_binomial, of->snr, of->snr_binomial,
        of->correlation, of->change, of->threshold, of->margin, of->wrong, of->within, of->faults, of->contradicted};
    (void)kind;
    (void)err;
    ((struct means *)context)->tokens = of->tokens;
    add_points(context, of->layer, of->points, of->width, column, SIGNAL_COLUMNS);
    return 0;
}

/* Prints one row per point: a number of tokens, then columns with the given decimals; negative: a percentage. */
static int means_table(struct text *out, const struct means *m, const char *const *titles, const int *decimals, int columns,
                       struct err *err)
{
    static const char align[SIGNAL_COLUMNS + 2] = "rrrrrrrrrrrrr";
    struct table table = {0};
    int rc = -1;
    table_start(&table, titles, align + SIGNAL_COLUMNS - columns);
    for (int i = 0; i < m->points; i++) {
        if (table_cell(&table, err, "%d", m->first[i]))
            goto done;
        for (int c = 0; c < columns; c++) {
            double value = m->value[c][i];
            if (decimals[c] < 0 && !isnan(value) ? table_cell(&table, err, "%.1f %%", 100 * value)
                                                 : table_number(&table, value, decimals[c] < 0 ? 1 : decimals[c], err))
                goto done;
        }
    }
    rc = table_write(&table, TABLE_TEXT, out, err);
done:
    table_free(&table);
    return rc;
}

int reuse_text(struct text *out, const struct windows *windows, const struct reuse_setup *setup, int layer, struct err *err)
{
    static const char *const titles[] = {"drafts", "experts", "a/b", "with the root", "tokens", "gain", "with the root", NULL};
    static const int decimals[] = {2, 3, 3, 3, 3, 3};
    struct means m = {.layer = layer};
    if (windows_put_reuse(windows, setup, add_reuse, &m, err))
        return -1;
    divide(&m);
    return text_printf(out, err, "%lld tokens; experts of as many tokens as are drafted, over those of one (a/b), and of one "
                       "more,\nas a verification has it; tokens of an iteration at an acceptance of %g; gain: how much faster "
                       "drafts\nmake it where experts are all that takes time, and a drafted token %g of a forward\n\n",
                       (long long)m.tokens, setup->acceptance, setup->draft_cost) ||
           means_table(out, &m, titles, decimals, REUSE_COLUMNS, err) ? -1 : 0;
}

int reuse_svg(struct text *out, const struct windows *windows, const struct reuse_setup *setup, int layer, const char *model,
              struct err *err)
{
    struct means m = {.layer = layer};
    struct text title = {0}, note = {0};
    double x[WINDOWS_MAX], max = 0;
    int rc = -1;
    if (windows_put_reuse(windows, setup, add_reuse, &m, err))
        return -1;
    divide(&m);
    for (int i = 0; i < m.points; i++) {
        x[i] = m.first[i];
        for (int c = 1; c <= 3; c++)
            max = isfinite(m.value[c][i]) ? fmax(max, m.value[c][i]) : max;
    }
    const struct svg_curve curves[] = {
        {.label = "tokens of an iteration", .stroke = SVG_BOLD, .y = m.value[3]},
        {.label = "a/b: experts of the drafts", .stroke = SVG_DASHED, .y = m.value[1]},
        {.label = "with the text's last token", .stroke = SVG_DOTTED, .y = m.value[2]}};
    const struct svg_panel panel = {.title = "Drafts save where a/b is below the tokens of an iteration",
                                    .x_label = "draft length",
                                    .y_label = "times those of one token", .points = m.points, .x = x, .x_min = 0,
                                    .x_max = x[m.points - 1], .y_max = max, .curves = curves, .count = 3};
    if (!text_printf(&title, err, "Reuse of experts: %s", name_of(model)) &&
        !text_printf(&note, err, "%lld tokens, acceptance %g", (long long)m.tokens, setup->acceptance))
        rc = svg_figure(out, title.data, note.data, &panel, 1, err);
    text_free(&title);
    text_free(&note);
    return rc;
}

int signal_text(struct text *out, const struct windows *windows, double threshold, int layer, struct err *err)
{
    static const char *const titles[] = {"tokens", "bits", "independent", "SNR", "independent", "correlation", "change",
                                         "hot from",
                                         "margin", "wrong", "within", "faults", "contradicted", NULL};
    static const int decimals[] = {3, 3, 2, 2, 3, 2, 1, 2, -1, -1, -1, -1};
    struct means m = {.layer = layer};
    if (windows_put_signal(windows, threshold, add_signal, &m, err))
        return -1;
    divide(&m);
    return text_printf(out, err,
                       "%lld tokens in windows, one after the other; of an expert's frequency, the tokens of a window "
                       "that want it:\nbits and mean over deviation, and if tokens chose independently; what it has to do with "
                       "the window before,\nand if that is the estimate: shares that are wrong, by no more than the margin, "
                       "and wrong of hot or cold\n\n", (long long)m.tokens) ||
           means_table(out, &m, titles, decimals, SIGNAL_COLUMNS, err) ? -1 : 0;
}

/* Computes f over the window's tokens as shades; columns after the end of the text are blank. */
static double *shades(const struct windows *windows, int layer, int width, struct err *err)
{
    int count, E = windows_experts(windows);
    const uint8_t *map = windows_map(windows, layer, width, &count);
    double *value = mem_alloc((size_t)E * (size_t)E, sizeof *value, err);
    for (int i = 0; value && i < E * E; i++)
        value[i] = i % E < count ? (double)map[i] / width : NAN;
    return value;
}

int signal_svg(struct text *out, const struct windows *windows, int layer, const char *model, struct err *err)
{
    int l = layer < 0 ? 0 : layer, max = windows_max(windows);
    double *drafted = shades(windows, l, max, err), *alone = shades(windows, l, 1, err);
    struct text title = {0}, note = {0};
    char titles[2][80];
    int rc = -1;
    snprintf(titles[0], sizeof titles[0], "layer %d, verifications of %d tokens", l, max);
    snprintf(titles[1], sizeof titles[1], "layer %d, token by token", l);
    const struct svg_heat maps[] = {{.title = titles[0], .side = windows_experts(windows), .value = drafted},
                                    {.title = titles[1], .side = windows_experts(windows), .value = alone}};
    if (drafted && alone && !text_printf(&title, err, "How often experts are wanted: %s", name_of(model)) &&
        !text_printf(&note, err, "the first text's first %d windows from left to right, experts from top to bottom",
                     windows_experts(windows)))
        rc = svg_heat_maps(out, title.data, note.data, "by none", "by all of a window's tokens", false, maps, 2, err);
    mem_free(&drafted);
    mem_free(&alone);
    text_free(&title);
    text_free(&note);
    return rc;
}

int drift_text(struct text *out, const struct drift *drift, int layer, struct err *err)
{
    static const char *const titles[] = {"layer", "states", "growth", "largest", "scores", "largest", "over states", "bound",
                                         "over scores", NULL};
    struct table table = {0};
    int rc = -1;
    table_start(&table, titles, "rrrrrrrrr");
    for (int l = 0; l < drift_layers(drift); l++) {
        struct drift_facts of;
        drift_layer(drift, l, &of);
        if (layer >= 0 && l != layer)
            continue;
        if (table_cell(&table, err, "%d", l) || table_number(&table, of.state, 3, err) ||
            table_number(&table, of.growth_mean, 3, err) || table_number(&table, of.growth_max, 3, err) ||
            table_number(&table, of.score_mean, 3, err) || table_number(&table, of.score_max, 3, err) ||
            table_number(&table, of.norm_max, 3, err) || table_number(&table, of.bound, 2, err) ||
            table_number(&table, of.bound / of.score_mean, 1, err))
            goto done;
    }
    rc = text_printf(out, err,
                     "%lld pairs of neighbouring tokens; mean distance of their states after a layer, over that of the "
                     "layer before,\nand of the router's scores; bound: theorem 1 with the largest quotients seen\n\n",
                     (long long)drift_pairs(drift)) || table_write(&table, TABLE_TEXT, out, err) ? -1 : 0;
done:
    table_free(&table);
    return rc;
}

int drift_svg(struct text *out, const struct drift *drift, int layer, const char *model, struct err *err)
{
    int layers = drift_layers(drift), rc = -1;
    double *value = mem_alloc(4 * (size_t)layers, sizeof *value, err), max[2] = {0};
    struct text title = {0}, note = {0};
    if (!value)
        return -1;
    double *x = value, *state = value + layers, *score = value + 2 * layers, *bound = value + 3 * layers;
    for (int l = 0; l < layers; l++) {
        struct drift_facts of;
        drift_layer(drift, l, &of);
        bool shown = layer < 0 || l == layer;
        x[l] = l;
        state[l] = shown ? of.state : NAN;
        score[l] = shown ? of.score_mean : NAN;
        bound[l] = shown ? of.bound : NAN;
        max[0] = fmax(max[0], of.state);
        max[1] = fmax(max[1], fmax(of.score_mean, isnan(of.bound) ? 0 : of.bound));
    }
    const struct svg_curve states = {.stroke = SVG_BOLD, .y = state, .dots = true};
    const struct svg_curve scores[] = {{.label = "seen, mean", .stroke = SVG_BOLD, .y = score, .dots = true},
                                       {.label = "bound by the largest quotients", .stroke = SVG_DASHED, .y = bound}};
    const struct svg_panel panels[] = {
        {.title = "States after a layer", .x_label = "layer", .y_label = "distance of neighbours", .points = layers, .x = x,
         .x_max = layers > 1 ? layers - 1 : 1, .y_max = max[0] > 0 ? max[0] : 1, .curves = &states, .count = 1},
        {.title = "The router's scores", .x_label = "layer", .y_label = "distance of neighbours", .points = layers, .x = x,
         .x_max = layers > 1 ? layers - 1 : 1, .y_max = max[1] > 0 ? max[1] : 1, .curves = scores, .count = 2}};
    if (!text_printf(&title, err, "Drift of states and scores: %s", name_of(model)) &&
        !text_printf(&note, err, "%lld pairs of neighbouring tokens", (long long)drift_pairs(drift)))
        rc = svg_figure(out, title.data, note.data, panels, 2, err);
    mem_free(&value);
    text_free(&title);
    text_free(&note);
    return rc;
}

#include "common/report/bench_figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/svg.h"

/* Layout in pixels, from left to right: names (which may be wider), the plot of ratios, columns of numbers. */
enum { WIDTH = 1030, NAMES = 190, NAMES_MAX = 340, NAME_SIZE = 11, PLOT_LEFT = 200, PLOT_W = 330, PLOT_TOP = 96,
       ROW = 18, COLUMN_LEFT = 545, COLUMN_W = 67, SETTING_BYTES = 48, NAME_BYTES = 80 };

static const char *const columns[] = { "tok/s", "accept", "tok/step", "experts", "MB/step", "bandwidth", "correct" };

struct page {
    const struct measurements *all;
    const struct summary *summary;
    double max;                 /* ratio at the right end of the plot */
    int wider;                  /* width of names beyond NAMES; everything to their right is shifted by it */
    int size;                   /* font size of all names */
};

static double ratio_x(const struct page *page, double ratio)
{
    double share = ratio / page->max;
    return PLOT_LEFT + page->wider + PLOT_W * (share < 0 ? 0 : share > 1 ? 1 : share);
}

static double greatest_ratio(const struct summary *summary)
{
    double max = 1;
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        /* a wide interval must not compress the plot */
        const double ends[] = { row->ratio, fmin(row->ratio_high, 2 * row->ratio), row->ceiling };
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            max = isfinite(ends[e]) && ends[e] > max && ends[e] < 100 ? ends[e] : max;
    }
    return max * 1.05;
}

static int put_ratio_axis(struct text *out, const struct page *page, double bottom, struct err *err)
{
    double step = svg_step(page->max);
    char label[32];
    for (int i = 0; i * step <= page->max; i++) {
        double x = ratio_x(page, i * step);
        snprintf(label, sizeof label, "%g", i * step);
        if (text_printf(out, err, "<path d=\"M%.1f %dV%.1f\" stroke=\"#ddd\" stroke-width=\"0.6\"/>\n", x, PLOT_TOP,
                        bottom) ||
            svg_text(out, x, bottom + 14, "middle", 11, "", label, err))
            return -1;
    }
    if (text_printf(out, err, "<path d=\"M%.1f %dV%.1f\" stroke=\"#000\" stroke-width=\"1\" stroke-dasharray=\"4 3\"/>\n",
                    ratio_x(page, 1), PLOT_TOP, bottom))
        return -1;
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        if (svg_text(out, COLUMN_LEFT + page->wider + ((double)c + 1) * COLUMN_W, PLOT_TOP - 8, "end", 10,
                     " font-weight=\"bold\"", columns[c], err))
            return -1;
    return svg_text(out, PLOT_LEFT + page->wider + PLOT_W / 2.0, PLOT_TOP - 8, "middle", 11, " font-weight=\"bold\"",
                    "ratio to the reference, 95 % interval; | ceiling of bytes", err);
}

static int put_marks(struct text *out, const struct page *page, const struct summary_row *row, double y, struct err *err)
{
    bool reference = page->all->settings[row->setting].reference == row->setting;
    if (isfinite(row->ratio_low) && isfinite(row->ratio_high) && !reference &&
        text_printf(out, err, "<path d=\"M%.1f %.1fH%.1f%s\" fill=\"none\" stroke=\"#000\" stroke-width=\"1.4\"/>\n",
                    ratio_x(page, row->ratio_low), y, ratio_x(page, row->ratio_high),
                    row->ratio_high > page->max ? "m-5 -3.5l5 3.5l-5 3.5" : ""))        /* an arrow: the interval continues */
        return -1;
    if (isfinite(row->ceiling) && !reference &&
        text_printf(out, err, "<path d=\"M%.1f %.1fv10\" stroke=\"#000\" stroke-width=\"2\"/>\n", ratio_x(page, row->ceiling),
                    y - 5))
        return -1;
    if (!isfinite(row->ratio))
        return 0;
    return text_printf(out, err, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.6\" fill=\"%s\" stroke=\"#000\"/>\n",
                       ratio_x(page, row->ratio), y, reference ? "#fff" : "#000");
}

static void number(char text[24], double value, int decimals)
{
    if (isfinite(value))
        snprintf(text, 24, "%.*f", decimals, value);
    else
        snprintf(text, 24, "-");
}

static int put_numbers(struct text *out, const struct page *page, const struct summary_row *row, double y, struct err *err)
{
    char text[sizeof columns / sizeof *columns][24];
    number(text[0], row->tokens_per_s, 1);
    number(text[1], row->acceptance_length, 2);
    number(text[2], row->tokens_per_step, 2);
    number(text[3], row->experts_per_layer, 1);
    number(text[4], 1e-6 * row->bytes_per_step, 1);
    number(text[5], 100 * row->bandwidth_share, 0);
    if (isfinite(row->bandwidth_share))
        strcat(text[5], " %");
    if (row->graded > 0)
        snprintf(text[6], sizeof text[6], "%.0f/%.0f", row->correct, row->graded);
    else
        number(text[6], row->score, 3);
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++)
        if (svg_text(out, COLUMN_LEFT + page->wider + ((double)c + 1) * COLUMN_W, y + 4, "end", 11, "", text[c], err))
            return -1;
    return 0;
}

/* Writes a setting's name as displayed, with a mark if it is not lossless. A name that is too long is shortened in the
 * middle (between characters), because settings differ at their ends. */
static void shown_name(const struct measurements *all, int setting, char name[NAME_BYTES])
{
    static const char dots[] = "\xe2\x80\xa6", mark[] = " (not lossless)";
    const char *whole = all->settings[setting].name;
    size_t length = strlen(whole), head = length, tail = length;
    if (length > SETTING_BYTES) {
        head = SETTING_BYTES / 3;
        tail = length - (SETTING_BYTES - SETTING_BYTES / 3);
    }
    while (head && (whole[head] & 0xc0) == 0x80)
        head--;
    while ((whole[tail] & 0xc0) == 0x80)
        tail++;
    bool lossy = strstr(all->settings[setting].label, "not lossless") != NULL;
    snprintf(name, NAME_BYTES, "%.*s%s%s%s", (int)head, whole, length > SETTING_BYTES ? dots : "", whole + tail,
             lossy ? mark : "");
}

/* Makes room for the longest name, then chooses one font size at which all names fit. */
static void fit_names(struct page *page)
{
    page->size = NAME_SIZE;
    for (int i = 0; i < (int)page->all->setting_count; i++) {
        char name[NAME_BYTES];
        shown_name(page->all, i, name);
        int width = NAMES;
        while (width < NAMES_MAX && svg_fitting(name, width - 10, NAME_SIZE) < NAME_SIZE)
            width++;
        int size = svg_fitting(name, width - 10, NAME_SIZE);
        page->wider = width - NAMES > page->wider ? width - NAMES : page->wider;
        page->size = size < page->size ? size : page->size;
    }
}

static int put_rows(struct text *out, const struct page *page, double *bottom, struct err *err)
{
    double y = PLOT_TOP + ROW / 2.0;
    int task = -2;
    for (size_t i = 0; i < page->summary->count; i++, y += ROW) {
        const struct summary_row *row = &page->summary->rows[i];
        const char *name = row->task < 0 ? "all tasks" : *page->all->tasks[row->task] ? page->all->tasks[row->task] : "prompts";
        char setting[NAME_BYTES];
        shown_name(page->all, row->setting, setting);
        if (row->task != task) {
            if (svg_text(out, 10, y + 4, "start", 12, " font-weight=\"bold\"", name, err) ||
                (i && text_printf(out, err, "<path d=\"M10 %.1fH%d\" stroke=\"#aaa\" stroke-width=\"0.6\"/>\n", y - ROW / 2.0,
                                  WIDTH + page->wider - 10)))
                return -1;
            task = row->task;
            y += ROW;
        }
        if (svg_text(out, NAMES + page->wider, y + 4, "end", page->size, "", setting, err) ||
            put_marks(out, page, row, y, err) || put_numbers(out, page, row, y, err))
            return -1;
    }
    *bottom = y - ROW / 2.0;
    return 0;
}

/* Draws acceptance by position of the last task's rows, which cover all tasks if there are several. */
static int put_panels(struct text *out, const struct page *page, double top, int *height, struct err *err)
{
    const struct summary *summary = page->summary;
    int task = summary->rows[summary->count - 1].task, positions = 1, curves = 0, rc = -1;
    struct svg_curve *accepted = mem_alloc(summary->count, sizeof *accepted, err);
    double *x = mem_alloc(SUMMARY_POSITIONS + 1, sizeof *x, err);
    double *y = mem_alloc(summary->count * (SUMMARY_POSITIONS + 1), sizeof *y, err);
    if (!accepted || !x || !y)
        goto done;
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        double *curve = y + i * (SUMMARY_POSITIONS + 1);
        if (row->task != task || !(row->drafts > 0))
            continue;
        positions = row->positions > positions ? row->positions : positions;
        curve[0] = 1;
        for (int p = 1; p <= SUMMARY_POSITIONS; p++)
            curve[p] = p <= row->positions ? row->accepted_per_pos[p - 1] : NAN;
        accepted[curves] = (struct svg_curve){ .label = page->all->settings[row->setting].name,
                                               .stroke = curves == 0 ? SVG_BOLD : curves == 1 ? SVG_DASHED
                                                         : curves == 2 ? SVG_DOTTED : SVG_THIN + (curves - 3) % SVG_PATTERNS,
                                               .y = curve };
        curves++;
    }
    rc = 0;
    if (!curves)
        goto done;
    for (int p = 0; p <= positions; p++)
        x[p] = p;
    const struct svg_panel panel = { .title = "Drafts accepted up to each position", .x_label = "position in the draft",
                                     .y_label = "share of drafts", .points = positions + 1, .x = x, .x_max = positions,
                                     .y_max = 1, .percent = true, .curves = accepted, .count = curves };
    rc = text_printf(out, err, "<g transform=\"translate(%d %.1f)\">\n", (WIDTH + page->wider - SVG_PANEL_WIDTH) / 2, top) ||
         svg_figure(out, "", NULL, &panel, 1, err) || text_puts(out, "</g>\n", err) ? -1 : 0;
    *height = svg_height(&panel, 1);
done:
    mem_free(&accepted);
    mem_free(&x);
    mem_free(&y);
    return rc;
}

int bench_figure(struct text *out, const struct measurements *all, const struct summary *summary, struct err *err)
{
    struct page page = { .all = all, .summary = summary, .max = greatest_ratio(summary) };
    struct text body = {0}, panels = {0}, note = {0}, labels = {0};
    double bottom;
    int tasks = 0, height = 0, rc = -1;
    for (size_t i = 0; i < summary->count; i++)
        tasks += !i || summary->rows[i].task != summary->rows[i - 1].task;
    bottom = PLOT_TOP + (double)ROW * (tasks + (double)summary->count);
    for (size_t i = 0; i < all->stream_count; i++)
        if (text_printf(&note, err, "%s%s: %s %s, %d thread%s", i ? "; " : "", all->streams[i].name,
                        all->streams[i].device ? all->streams[i].device : "machine not recorded",
                        all->streams[i].isa ? all->streams[i].isa : "", all->streams[i].threads,
                        numeral_plural(all->streams[i].threads)))
            goto done;
    for (size_t i = 0; i < all->setting_count; i++)
        if (*all->settings[i].label && !strstr(labels.data ? labels.data : "", all->settings[i].label) &&
            text_printf(&labels, err, "%s%s", labels.length ? "; " : "", all->settings[i].label))
            goto done;
    fit_names(&page);
    if (put_panels(&panels, &page, bottom + 20, &height, err))
        goto done;
    if (labels.length) {                                /* below everything else */
        int lines = svg_lines(&panels, 10, bottom + height + 40, WIDTH + page.wider - 20, 16, 11, labels.data, err);
        if (lines < 0)
            goto done;
        height += lines * 16;
    }
    if (svg_head(&body, WIDTH + page.wider, (int)bottom + 40 + height, "Ways of decoding compared", note.data, err) ||
        put_ratio_axis(&body, &page, bottom, err) || put_rows(&body, &page, &bottom, err) ||
        text_put(&body, panels.data, panels.length, err) || text_puts(&body, "</svg>\n", err))
        goto done;
    rc = text_put(out, body.data, body.length, err);
done:
    text_free(&body);
    text_free(&panels);
    text_free(&note);
    text_free(&labels);
    return rc;
}

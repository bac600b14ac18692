#include "common/report/bench_figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/report/svg.h"

/* Layout in pixels. A row has its name, in as many lines as it needs, with a strip of the plot of ratios to its right, and
 * below both a line of numbers. */
enum { WIDTH = SVG_PANEL_WIDTH, MARGIN = 10, RIGHT = WIDTH - MARGIN, NAME_W = 186, STRIP_LEFT = 206,
       STRIP_W = RIGHT - STRIP_LEFT, LINE = 18, SIZE = 13, SMALL = 12, TITLE_BOTTOM = 34, SETTING_BYTES = 48, NAME_BYTES = 80 };

enum { BANDWIDTH = 5, CORRECT = 6, COLUMNS = 7, CELL = 24 };
static const char *const columns[COLUMNS] = { "tok/s", "accept", "tok/step", "experts", "MB/step", "bandw.", "correct" };

struct page {
    const struct measurements *all;
    const struct summary *summary;
    double max;                 /* ratio at the right end of the strips */
    bool shown[COLUMNS];        /* some row has a number */
    int count;                  /* columns that are shown */
};

static double ratio_x(const struct page *page, double ratio)
{
    double share = ratio / page->max;
    return STRIP_LEFT + STRIP_W * (share < 0 ? 0 : share > 1 ? 1 : share);
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

static void number(char text[CELL], double value, int decimals)
{
    if (isfinite(value))
        snprintf(text, CELL, "%.*f", decimals, value);
    else
        snprintf(text, CELL, "-");
}

static void fill_cells(char text[COLUMNS][CELL], const struct summary_row *row)
{
    number(text[0], row->tokens_per_s, 1);
    number(text[1], row->acceptance_length, 2);
    number(text[2], row->tokens_per_step, 2);
    number(text[3], row->experts_per_layer, 1);
    number(text[4], 1e-6 * row->bytes_per_step, 1);
    number(text[BANDWIDTH], 100 * row->bandwidth_share, 0);
    if (isfinite(row->bandwidth_share))
        strcat(text[BANDWIDTH], " %");
    if (row->graded > 0)
        snprintf(text[CORRECT], CELL, "%.0f/%.0f", row->correct, row->graded);
    else
        number(text[CORRECT], row->score, 3);
}

static void choose_columns(struct page *page)
{
    char text[COLUMNS][CELL];
    for (size_t i = 0; i < page->summary->count; i++) {
        fill_cells(text, &page->summary->rows[i]);
        for (int c = 0; c < COLUMNS; c++)
            page->shown[c] |= strcmp(text[c], "-") != 0;
    }
    for (int c = 0; c < COLUMNS; c++)
        page->count += page->shown[c];
}

/* Writes a line of cells, each at the right end of its column. */
static int put_cells(struct text *out, const struct page *page, const char *const text[COLUMNS], double y, const char *more,
                     struct err *err)
{
    int size = page->count == COLUMNS ? SMALL - 1 : SMALL, placed = 0;
    for (int c = 0; c < COLUMNS; c++)
        if (page->shown[c] && svg_text(out, MARGIN + (double)(RIGHT - MARGIN) * ++placed / page->count, y, "end", size, more,
                                       text[c], err))
            return -1;
    return 0;
}

/* Writes a task's name, the labels of the strips and the titles of the columns. */
static int put_task(struct text *out, const struct page *page, int task, double *y, struct err *err)
{
    const char *name = task < 0 ? "all tasks" : *page->all->tasks[task] ? page->all->tasks[task] : "prompts";
    const double step = svg_step(page->max);
    char label[32];
    if (text_printf(out, err, "<path d=\"M%d %.1fH%d\" stroke=\"#aaa\" stroke-width=\"0.6\"/>\n", MARGIN, *y, RIGHT))
        return -1;
    *y += LINE;
    if (svg_text(out, MARGIN, *y, "start", svg_fitting(name, NAME_W, SIZE + 1), " font-weight=\"bold\"", name, err))
        return -1;
    for (int i = 0; i * step <= page->max; i++) {
        snprintf(label, sizeof label, "%g", i * step);
        if (svg_text(out, ratio_x(page, i * step), *y, "middle", SMALL, "", label, err))
            return -1;
    }
    *y += LINE;
    return put_cells(out, page, columns, *y, " font-weight=\"bold\"", err);
}

/* Draws the strip of a row in the middle of the pixels from `top` to `bottom`. */
static int put_strip(struct text *out, const struct page *page, const struct summary_row *row, double top, double bottom,
                     struct err *err)
{
    const bool reference = page->all->settings[row->setting].reference == row->setting;
    const double step = svg_step(page->max), y = (top + bottom) / 2;
    for (int i = 0; i * step <= page->max; i++)
        if (text_printf(out, err, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#ddd\" stroke-width=\"0.6\"/>\n",
                        ratio_x(page, i * step), top, bottom))
            return -1;
    if (text_printf(out, err, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#000\" stroke-dasharray=\"4 3\"/>\n", ratio_x(page, 1), top,
                    bottom))
        return -1;
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

static int put_row(struct text *out, const struct page *page, const struct summary_row *row, double *y, struct err *err)
{
    char name[NAME_BYTES], cell[COLUMNS][CELL];
    const char *text[COLUMNS];
    const double top = *y + 12;
    shown_name(page->all, row->setting, name);
    if (text_printf(out, err, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\" stroke-width=\"0.6\"/>\n", MARGIN, *y + 7, RIGHT))
        return -1;
    int lines = svg_lines(out, MARGIN, top + LINE - 5, NAME_W, LINE, SIZE, name, err);
    if (lines < 0 || put_strip(out, page, row, top, top + lines * LINE, err))
        return -1;
    fill_cells(cell, row);
    for (int c = 0; c < COLUMNS; c++)
        text[c] = cell[c];
    *y = top + lines * LINE + LINE - 7;
    return put_cells(out, page, text, *y, "", err);
}

static int put_rows(struct text *out, const struct page *page, double *y, struct err *err)
{
    for (size_t i = 0; i < page->summary->count; i++) {
        const struct summary_row *row = &page->summary->rows[i];
        if (!i || row->task != row[-1].task) {
            *y += i ? LINE : 0;
            if (put_task(out, page, row->task, y, err))
                return -1;
        }
        if (put_row(out, page, row, y, err))
            return -1;
    }
    *y += LINE;
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
        accepted[curves] = (struct svg_curve){ .label = page->all->settings[row->setting].name, .stroke = curves, .y = curve };
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
    rc = text_printf(out, err, "<g transform=\"translate(0 %.1f)\">\n", top) ||
         svg_figure(out, "", NULL, &panel, 1, err) || text_puts(out, "</g>\n", err) ? -1 : 0;
    *height = svg_height(&panel, 1);
done:
    mem_free(&accepted);
    mem_free(&x);
    mem_free(&y);
    return rc;
}

/* Writes what was measured, and what the marks are, below the title. */
static int put_head(struct text *out, const struct page *page, double *y, struct err *err)
{
    static const char key[] = "Dots: ratio to the reference, with its 95 % interval. Bars: the ratio that bytes allow.";
    const struct measurements *all = page->all;
    struct text note = {0};
    int lines = -1, more = -1;
    for (size_t i = 0; i < all->stream_count; i++)
        if (text_printf(&note, err, "%s%s: %s%s%s, %d thread%s", i ? "; " : "", all->streams[i].name,
                        all->streams[i].device ? all->streams[i].device : "machine not recorded",
                        all->streams[i].isa ? " " : "", all->streams[i].isa ? all->streams[i].isa : "",
                        all->streams[i].threads, numeral_plural(all->streams[i].threads)))
            goto done;
    lines = note.length ? svg_lines(out, MARGIN, *y + LINE, RIGHT - MARGIN, LINE, SMALL, note.data, err) : 0;
    more = lines < 0 ? -1 : svg_lines(out, MARGIN, *y + (lines + 1) * LINE, RIGHT - MARGIN, LINE, SMALL, key, err);
    *y += (lines + more) * LINE + LINE / 2.0;
done:
    text_free(&note);
    return more < 0 ? -1 : 0;
}

/* Writes why settings are not lossless, each reason once. */
static int put_labels(struct text *out, const struct measurements *all, double *y, struct err *err)
{
    struct text labels = {0};
    int lines = 0;
    for (size_t i = 0; i < all->setting_count && lines >= 0; i++)
        if (*all->settings[i].label && !strstr(labels.data ? labels.data : "", all->settings[i].label) &&
            text_printf(&labels, err, "%s%s", labels.length ? "; " : "", all->settings[i].label))
            lines = -1;
    if (!lines && labels.length)
        lines = svg_lines(out, MARGIN, *y + LINE, RIGHT - MARGIN, LINE, SMALL, labels.data, err);
    *y += lines * LINE;
    text_free(&labels);
    return lines < 0 ? -1 : 0;
}

int bench_figure(struct text *out, const struct measurements *all, const struct summary *summary, struct err *err)
{
    struct page page = { .all = all, .summary = summary, .max = greatest_ratio(summary) };
    struct text body = {0};
    double y = TITLE_BOTTOM;
    int height = 0, rc = -1;
    choose_columns(&page);
    if (put_head(&body, &page, &y, err) || put_rows(&body, &page, &y, err) || put_panels(&body, &page, y, &height, err))
        goto done;
    y += height;
    if (put_labels(&body, all, &y, err) || svg_head(out, WIDTH, (int)y + MARGIN, "Ways of decoding compared", NULL, err) ||
        text_put(out, body.data, body.length, err) || text_puts(out, "</svg>\n", err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    return rc;
}

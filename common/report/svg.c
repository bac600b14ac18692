#include "common/report/svg.h"

#include <math.h>
#include <stdio.h>

/* Pixels: a panel's frame and what stands around it. */
enum { FRAME_W = 360, FRAME_H = 260, LEFT = 64, RIGHT = 20, TOP = 84, BELOW = 56, LEGEND_LINE = 18, LEGEND_COLUMN = 120 };

static const char *const thin_dashes[SVG_PATTERNS] = { "", "6 3", "2 2", "8 3 2 3", "1 3", "10 4" };

static int put_escaped(struct text *out, const char *text, struct err *err)
{
    for (; *text; text++) {
        const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;" : NULL;
        if (entity ? text_puts(out, entity, err) : text_putc(out, (unsigned char)*text < 0x20 ? ' ' : *text, err))
            return -1;
    }
    return 0;
}

static int put_text(struct text *out, double x, double y, const char *anchor, int size, const char *more, const char *text,
                    struct err *err)
{
    return text_printf(out, err, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\"%s>", x, y, anchor, size,
                       more) ||
           put_escaped(out, text, err) || text_puts(out, "</text>\n", err) ? -1 : 0;
}

/* A step of 1, 2 or 5 times a power of ten that divides `most` into some five parts. */
static double nice_step(double most)
{
    double power = pow(10, floor(log10(most / 5))), part = most / 5 / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static int put_stroke(struct text *out, int stroke, struct err *err)
{
    if (stroke == SVG_BOLD)
        return text_puts(out, "stroke=\"#000\" stroke-width=\"2.6\"", err);
    if (stroke == SVG_DASHED)
        return text_puts(out, "stroke=\"#000\" stroke-width=\"2\" stroke-dasharray=\"7 4\"", err);
    const char *dashes = thin_dashes[(stroke - SVG_THIN) % SVG_PATTERNS];
    if (text_puts(out, "stroke=\"#666\" stroke-width=\"1\"", err))
        return -1;
    return *dashes ? text_printf(out, err, " stroke-dasharray=\"%s\"", dashes) : 0;
}

static int put_axes(struct text *out, const struct svg_panel *panel, double left, struct err *err)
{
    double bottom = TOP + FRAME_H, x_step = nice_step(panel->x_most), y_step = nice_step(panel->y_most);
    char label[32];
    if (text_printf(out, err, "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#000\"/>\n", left,
                    TOP, FRAME_W, FRAME_H))
        return -1;
    for (int i = 0; i * y_step <= panel->y_most * (1 + 1e-9); i++) {
        double y = bottom - FRAME_H * i * y_step / panel->y_most;
        snprintf(label, sizeof label, panel->percent ? "%g %%" : "%g", panel->percent ? 100 * i * y_step : i * y_step);
        if (text_printf(out, err, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ccc\" stroke-width=\"0.6\"/>\n", left, y,
                        left + FRAME_W) ||
            put_text(out, left - 6, y + 4, "end", 11, "", label, err))
            return -1;
    }
    for (int i = 0; i * x_step <= panel->x_most * (1 + 1e-9); i++) {
        double x = left + FRAME_W * i * x_step / panel->x_most;
        snprintf(label, sizeof label, "%g", i * x_step);
        if (text_printf(out, err, "<path d=\"M%.1f %.1fv5\" stroke=\"#000\"/>\n", x, bottom) ||
            put_text(out, x, bottom + 18, "middle", 11, "", label, err))
            return -1;
    }
    snprintf(label, sizeof label, " transform=\"rotate(-90)\"");
    return put_text(out, left + FRAME_W / 2.0, TOP - 10, "middle", 13, " font-weight=\"bold\"", panel->title, err) ||
           put_text(out, left + FRAME_W / 2.0, bottom + 38, "middle", 12, "", panel->x_label, err) ||
           put_text(out, -(TOP + FRAME_H / 2.0), left - 48, "middle", 12, label, panel->y_label, err) ? -1 : 0;
}

static int put_curve(struct text *out, const struct svg_panel *panel, const struct svg_curve *curve, double left,
                     struct err *err)
{
    bool drawing = false;
    if (text_puts(out, "<path fill=\"none\" ", err) || put_stroke(out, curve->stroke, err) || text_puts(out, " d=\"", err))
        return -1;
    for (int i = 0; i < panel->points; i++) {
        double x = panel->x[i] / panel->x_most, y = curve->y[i] / panel->y_most;
        if (!isfinite(x) || !isfinite(y)) {
            drawing = false;
            continue;
        }
        y = y < 0 ? 0 : y > 1 ? 1 : y;
        if (text_printf(out, err, "%c%.1f %.1f", drawing ? 'L' : 'M', left + FRAME_W * x, TOP + FRAME_H * (1 - y)))
            return -1;
        drawing = true;
    }
    return text_puts(out, "\"/>\n", err);
}

/* Below the panel, two to three entries a line; returns the lines used. */
static int put_legend(struct text *out, const struct svg_panel *panel, double left, int *lines, struct err *err)
{
    int columns = FRAME_W / LEGEND_COLUMN, placed = 0;
    for (int i = 0; i < panel->count; i++) {
        if (!panel->curves[i].label)
            continue;
        double x = left + placed % columns * LEGEND_COLUMN, y = TOP + FRAME_H + BELOW + placed / columns * LEGEND_LINE;
        if (text_printf(out, err, "<path d=\"M%.1f %.1fh26\" ", x, y) || put_stroke(out, panel->curves[i].stroke, err) ||
            text_puts(out, "/>\n", err) || put_text(out, x + 32, y + 4, "start", 11, "", panel->curves[i].label, err))
            return -1;
        placed++;
    }
    *lines = (placed + columns - 1) / columns;
    return 0;
}

int svg_figure(struct text *out, const char *title, const char *note, const struct svg_panel *panels, int count,
               struct err *err)
{
    struct text body = {0};
    int rc = -1, most = 0, width = count * (LEFT + FRAME_W + RIGHT);
    for (int p = 0; p < count; p++) {
        double left = p * (LEFT + FRAME_W + RIGHT) + LEFT;
        int lines = 0;
        if (put_axes(&body, &panels[p], left, err))
            goto done;
        for (int pass = 0; pass < 2; pass++)            /* what matters lies on top */
            for (int i = 0; i < panels[p].count; i++)
                if ((panels[p].curves[i].stroke < SVG_THIN) == pass &&
                    put_curve(&body, &panels[p], &panels[p].curves[i], left, err))
                    goto done;
        if (put_legend(&body, &panels[p], left, &lines, err))
            goto done;
        most = lines > most ? lines : most;
    }
    int height = TOP + FRAME_H + BELOW + most * LEGEND_LINE + 8;
    if (text_printf(out, err, "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" height=\"%d\" "
                    "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
                    width, height, width, height, width, height) ||
        put_text(out, width / 2.0, 26, "middle", 16, " font-weight=\"bold\"", title, err) ||
        (note && put_text(out, width / 2.0, 46, "middle", 11, "", note, err)) ||
        text_put(out, body.data, body.length, err) || text_puts(out, "</svg>\n", err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    return rc;
}

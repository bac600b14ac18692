#include "common/report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Layout in pixels: a panel's frame and margins, and font sizes. 14 of 444 pixels are 7.6 points in a column of 8.5 cm. */
enum { FRAME_W = 360, FRAME_H = 260, LEFT = 64, RIGHT = 20, TOP = 84, UNTITLED = 32, BELOW = 64, LEGEND_LINE = 20,
       LEGEND_COLUMN = 120, LEGEND_MARK = 34, SMALL = 14, LABEL = 15, TITLE = 15 };
_Static_assert(LEFT + FRAME_W + RIGHT == SVG_PANEL_WIDTH, "a panel's width");

/* average width of a letter, relative to the font size */
#define LETTER 0.62

static const char *const thin_dashes[SVG_PATTERNS] = { "", "6 3", "2 2", "8 3 2 3", "1 3", "10 4" };

int svg_escape(struct text *out, const char *text, struct err *err)
{
    for (; *text; text++) {
        const char *entity = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;"
                             : *text == '"' ? "&quot;" : NULL;
        if (entity ? text_puts(out, entity, err) : text_putc(out, (unsigned char)*text < 0x20 ? ' ' : *text, err))
            return -1;
    }
    return 0;
}

int svg_text(struct text *out, double x, double y, const char *anchor, int size, const char *more, const char *text,
             struct err *err)
{
    return text_printf(out, err, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\"%s>", x, y, anchor, size,
                       more) ||
           svg_escape(out, text, err) || text_puts(out, "</text>\n", err) ? -1 : 0;
}

int svg_fitting(const char *text, int width, int size)
{
    size_t letters = strlen(text) + 1;
    while (size > 6 && (double)size * LETTER * (double)letters > width)
        size--;
    return size;
}

/* Returns the bytes of a word longer than a line that fit into `room` bytes, preferably up to a punctuation mark. */
static size_t cut_word(const char *word, size_t room)
{
    const size_t length = strcspn(word, " ");
    size_t cut = length < room ? length : room, mark = cut;
    while (mark > 1 && !strchr(",:=-_/", word[mark - 1]))
        mark--;
    if (cut < length && mark > room / 2)
        return mark;
    while (cut > 1 && cut < length && (word[cut] & 0xc0) == 0x80)
        cut--;
    return cut;
}

int svg_lines(struct text *out, double x, double y, int width, int line, int size, const char *text, struct err *err)
{
    const size_t room = (size_t)fmax(1, width / (LETTER * size));
    int count = 0;
    do {
        size_t length = strlen(text), cut = length <= room ? length : room;
        while (cut < length && cut && text[cut] != ' ')
            cut--;
        if (!cut)
            cut = cut_word(text, room);
        if (out) {
            struct text words = {0};
            int rc = text_put(&words, text, cut, err) ||
                     svg_text(out, x, y + count * line, "start", svg_fitting(words.data, width + size, size), "", words.data,
                              err);
            text_free(&words);
            if (rc)
                return -1;
        }
        text += cut + (text[cut] == ' ');
        count++;
    } while (*text);
    return count;
}

double svg_step(double max)
{
    double power = pow(10, floor(log10(max / 5))), part = max / 5 / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

static int put_stroke(struct text *out, int stroke, struct err *err)
{
    if (stroke == SVG_BOLD)
        return text_puts(out, "stroke=\"#000\" stroke-width=\"2.6\"", err);
    if (stroke == SVG_DASHED)
        return text_puts(out, "stroke=\"#000\" stroke-width=\"2\" stroke-dasharray=\"7 4\"", err);
    if (stroke == SVG_DOTTED)
        return text_puts(out, "stroke=\"#000\" stroke-width=\"2\" stroke-dasharray=\"2 4\"", err);
    const char *dashes = thin_dashes[(stroke - SVG_THIN) % SVG_PATTERNS];
    if (text_puts(out, "stroke=\"#666\" stroke-width=\"1\"", err))
        return -1;
    return *dashes ? text_printf(out, err, " stroke-dasharray=\"%s\"", dashes) : 0;
}

/* Returns the horizontal position of x in the frame: 0 to 1 if it is inside. */
static double x_share(const struct svg_panel *panel, double x)
{
    if (panel->log2)
        return log2(x / panel->x_min) / log2(panel->x_max / panel->x_min);
    return (x - panel->x_min) / (panel->x_max - panel->x_min);
}

static int put_tick(struct text *out, const struct svg_panel *panel, double left, double at, struct err *err)
{
    double x = left + FRAME_W * x_share(panel, at), bottom = TOP + FRAME_H;
    char label[32];
    snprintf(label, sizeof label, "%g", at);
    return text_printf(out, err, "<path d=\"M%.1f %.1fv5\" stroke=\"#000\"/>\n", x, bottom) ||
           svg_text(out, x, bottom + 20, "middle", SMALL, "", label, err) ? -1 : 0;
}

/* Returns the vertical position of y in the frame: 0 at the bottom, 1 at the top. */
static double y_share(const struct svg_panel *panel, double y) { return (y - panel->y_min) / (panel->y_max - panel->y_min); }

/* Draws ticks in steps of 1, 2 or 5, or at powers of 2. */
static int put_ticks(struct text *out, const struct svg_panel *panel, double left, struct err *err)
{
    double step = svg_step(panel->x_max - panel->x_min);
    if (panel->log2) {
        for (int power = (int)ceil(log2(panel->x_min) - 1e-9); exp2(power) <= panel->x_max * (1 + 1e-9); power++)
            if (put_tick(out, panel, left, exp2(power), err))
                return -1;
        return 0;
    }
    for (int i = (int)ceil(panel->x_min / step * (1 - 1e-9)); i * step <= panel->x_max * (1 + 1e-9); i++)
        if (put_tick(out, panel, left, i * step, err))
            return -1;
    return 0;
}

static const char *level_label(const struct svg_panel *panel, double y, char label[32])
{
    snprintf(label, 32, panel->percent ? "%g %%" : "%g", panel->percent ? 100 * y : y);
    return label;
}

static int put_axes(struct text *out, const struct svg_panel *panel, double left, struct err *err)
{
    const double bottom = TOP + FRAME_H, y_step = svg_step(panel->y_max - panel->y_min);
    const int first = (int)ceil(panel->y_min / y_step * (1 - 1e-9));
    int size = SMALL;                                       /* font size of all labels */
    char label[32];
    for (int i = first; i * y_step <= panel->y_max * (1 + 1e-9); i++)
        size = svg_fitting(level_label(panel, i * y_step, label), LEFT - 22, size);
    if (text_printf(out, err, "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#000\"/>\n", left,
                    TOP, FRAME_W, FRAME_H))
        return -1;
    for (int i = first; i * y_step <= panel->y_max * (1 + 1e-9); i++) {
        double y = bottom - FRAME_H * y_share(panel, i * y_step);
        if (text_printf(out, err, "<path d=\"M%.1f %.1fH%.1f\" stroke=\"#ccc\" stroke-width=\"0.6\"/>\n", left, y,
                        left + FRAME_W) ||
            svg_text(out, left - 5, y + 5, "end", size, "", level_label(panel, i * y_step, label), err))
            return -1;
    }
    if (panel->level > panel->y_min && panel->level < panel->y_max &&
        text_printf(out, err, "<path d=\"M%.1f %.1fh%d\" stroke=\"#000\" stroke-width=\"0.8\" stroke-dasharray=\"5 4\"/>\n",
                    left, bottom - FRAME_H * y_share(panel, panel->level), FRAME_W))
        return -1;
    if (put_ticks(out, panel, left, err))
        return -1;
    snprintf(label, sizeof label, " transform=\"rotate(-90)\"");
    return svg_text(out, left + FRAME_W / 2.0, TOP - 10, "middle", svg_fitting(panel->title, FRAME_W + 2 * RIGHT, TITLE),
                    " font-weight=\"bold\"", panel->title, err) ||
           svg_text(out, left + FRAME_W / 2.0, bottom + 42, "middle", LABEL, "", panel->x_label, err) ||
           svg_text(out, -(TOP + FRAME_H / 2.0), left - 48, "middle", svg_fitting(panel->y_label, FRAME_H + 20, LABEL),
                    label, panel->y_label, err) ? -1 : 0;
}

static double clamp_share(double share) { return share < 0 ? 0 : share > 1 ? 1 : share; }

/* Draws one of ten marks: consecutive ones differ in shape and filling, and two at one point are both visible. */
static int put_shape(struct text *out, int curve, double x, double y, struct err *err)
{
    static const char circle[] = "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", square[] = "m-3.6 -3.6h7.2v7.2h-7.2z",
                      triangle[] = "m0 -4.8l4.6 8.2h-9.2z", diamond[] = "m0 -5l5 5l-5 5l-5 -5z",
                      plus[] = "m-4.6 0h9.2m-4.6 -4.6v9.2", cross[] = "m-3.6 -3.6l7.2 7.2m0 -7.2l-7.2 7.2";
    static const struct { const char *path; bool filled; } shapes[] = {
        {circle, true}, {square, false}, {triangle, true}, {diamond, false}, {plus, false}, {cross, false},
        {circle, false}, {square, true}, {triangle, false}, {diamond, true}};
    enum { SHAPES = sizeof shapes / sizeof *shapes };
    return text_printf(out, err, "<path d=\"M%.1f %.1f%s\" fill=\"%s\" stroke=\"#000\" stroke-width=\"1.3\"/>\n", x, y,
                       shapes[curve % SHAPES].path, shapes[curve % SHAPES].filled ? "#000" : "none");
}

/* Returns the mark of a curve with dots. Only named curves are counted, so that others do not use up marks. */
static int mark_of(const struct svg_panel *panel, const struct svg_curve *curve)
{
    int before = 0;
    for (const struct svg_curve *other = panel->curves; other < curve; other++)
        before += other->dots && other->label;
    return before;
}

static int points_of(const struct svg_panel *panel, const struct svg_curve *curve)
{
    return curve->x ? curve->points : panel->points;
}

/* Returns the number of one of a curve's points in a column of the curve. */
static double number_of(const struct svg_curve *curve, const double *column, int point)
{
    return column[(size_t)point * (curve->stride ? curve->stride : 1)];
}

static double x_of(const struct svg_panel *panel, const struct svg_curve *curve, int point)
{
    return curve->x ? number_of(curve, curve->x, point) : panel->x[point];
}

static double y_of(const struct svg_curve *curve, int point) { return number_of(curve, curve->y, point); }

/* Returns whether curves get marks: every curve has a name, a line and no dots. */
static bool is_marked(const struct svg_panel *panel)
{
    bool all = panel->count > 1;
    for (int i = 0; i < panel->count; i++)
        all = all && panel->curves[i].label && !panel->curves[i].dots && !panel->curves[i].bare && !panel->curves[i].error;
    return all;
}

/* Returns the first curve that is drawn exactly like this one: an earlier curve or itself. */
static int drawn_as(const struct svg_panel *panel, int curve)
{
    const struct svg_curve *mine = &panel->curves[curve];
    for (int i = 0; i < curve && is_marked(panel); i++) {
        const struct svg_curve *other = &panel->curves[i];
        bool same = mine->x == other->x;
        for (int p = 0; same && p < points_of(panel, mine); p++)
            same = isfinite(y_of(mine, p)) ? fabs(y_share(panel, y_of(mine, p)) - y_share(panel, y_of(other, p))) <= 1e-4
                                           : !isfinite(y_of(other, p));
        if (same)
            return i;
    }
    return curve;
}

/* Draws marks at a few dozen points at most. */
static int put_shapes(struct text *out, const struct svg_panel *panel, int curve, double left, struct err *err)
{
    const struct svg_curve *of = &panel->curves[curve];
    int points = points_of(panel, of), every = (points + 11) / 12;
    for (int i = 0; i < points; i++) {
        double x = x_share(panel, x_of(panel, of, i)), y = y_share(panel, y_of(of, i));
        if (i % every || !isfinite(x) || !isfinite(y) || x < 0 || x > 1)
            continue;
        if (put_shape(out, curve, left + FRAME_W * x, TOP + FRAME_H * (1 - clamp_share(y)), err))
            return -1;
    }
    return 0;
}

/* Draws dots and error bars at a curve's points. */
static int put_marks(struct text *out, const struct svg_panel *panel, const struct svg_curve *curve, double left,
                     struct err *err)
{
    for (int i = 0; i < points_of(panel, curve); i++) {
        double x = left + FRAME_W * clamp_share(x_share(panel, x_of(panel, curve, i))), y = y_of(curve, i);
        double error = curve->error ? number_of(curve, curve->error, i) : NAN;
        if (!isfinite(x) || !isfinite(y))
            continue;
        if (isfinite(error) &&
            text_printf(out, err, "<path d=\"M%.1f %.1fV%.1f\" stroke=\"#000\" stroke-width=\"0.8\"/>\n", x,
                        TOP + FRAME_H * (1 - clamp_share(y_share(panel, y - error))),
                        TOP + FRAME_H * (1 - clamp_share(y_share(panel, y + error)))))
            return -1;
        if (curve->dots && put_shape(out, mark_of(panel, curve), x, TOP + FRAME_H * (1 - clamp_share(y_share(panel, y))), err))
            return -1;
    }
    return 0;
}

/* Returns whether a curve has a line: one with dots only if it has several points. */
static bool has_line(const struct svg_panel *panel, const struct svg_curve *curve)
{
    return !curve->bare && !(curve->dots && points_of(panel, curve) == 1);
}

/* Draws a line through the points that are numbers, up to the panel's right edge; a single point becomes a short bar. */
static int put_curve(struct text *out, const struct svg_panel *panel, const struct svg_curve *curve, double left,
                     struct err *err)
{
    int drawn = 0;
    if ((curve->dots || curve->error) && put_marks(out, panel, curve, left, err))
        return -1;
    if (!has_line(panel, curve))
        return 0;
    if (text_puts(out, "<path fill=\"none\" ", err) || put_stroke(out, curve->stroke, err) || text_puts(out, " d=\"", err))
        return -1;
    for (int i = 0; i < points_of(panel, curve); i++) {
        double x = x_share(panel, x_of(panel, curve, i)), y = y_share(panel, y_of(curve, i));
        if (!isfinite(x) || !isfinite(y) || x > 1)
            continue;
        if (text_printf(out, err, "%c%.1f %.1f", drawn++ ? 'L' : 'M', left + FRAME_W * x,
                        TOP + FRAME_H * (1 - clamp_share(y))))
            return -1;
    }
    return text_puts(out, drawn == 1 ? "m-4 0h8\"/>\n" : "\"/>\n", err);
}

/* Writes the label "K4 = K8" of a curve and the curves that it covers. */
static int name_together(struct text *label, const struct svg_panel *panel, int curve, struct err *err)
{
    text_clear(label);
    for (int i = curve; i < panel->count; i++)
        if (panel->curves[i].label && drawn_as(panel, i) == curve &&
            text_printf(label, err, "%s%s", label->length ? " = " : "", panel->curves[i].label))
            return -1;
    return 0;
}

static bool in_legend(const struct svg_panel *panel, int curve)
{
    return !panel->unnamed && panel->curves[curve].label && drawn_as(panel, curve) == curve;
}

/* Returns the entries in a line of the legend: as many as the longest one permits, at most three. */
static int legend_columns(const struct svg_panel *panel)
{
    double widest = LEGEND_COLUMN;
    for (int i = 0; i < panel->count; i++) {
        size_t letters = 0;
        for (int other = i; other < panel->count && panel->curves[i].label; other++)
            if (panel->curves[other].label && drawn_as(panel, other) == i)
                letters += strlen(panel->curves[other].label) + (other > i ? 3 : 1);
        widest = fmax(widest, LEGEND_MARK + SMALL * LETTER * (double)letters);
    }
    return widest < FRAME_W ? (int)(FRAME_W / widest) : 1;
}

/* Returns the lines of one entry; a name wider than the panel is broken. */
static int entry_lines(const struct svg_panel *panel, int curve, int columns)
{
    struct text label = {0};
    int lines = columns > 1 || name_together(&label, panel, curve, NULL)
        ? 1 : svg_lines(NULL, 0, 0, FRAME_W - LEGEND_MARK, LEGEND_LINE, SMALL, label.data, NULL);
    text_free(&label);
    return lines;
}

static int legend_lines(const struct svg_panel *panel)
{
    int columns = legend_columns(panel), named = 0;
    for (int i = 0; i < panel->count; i++)
        if (in_legend(panel, i))
            named += entry_lines(panel, i, columns);
    return (named + columns - 1) / columns;
}

int svg_height(const struct svg_panel *panels, int count)
{
    int max = 0;
    for (int p = 0; p < count; p++)
        max = legend_lines(&panels[p]) > max ? legend_lines(&panels[p]) : max;
    return UNTITLED + FRAME_H + BELOW + max * LEGEND_LINE + 8;
}

static int put_entry(struct text *out, const struct svg_panel *panel, int i, double x, double y, int width, const char *label,
                     struct err *err)
{
    const struct svg_curve *curve = &panel->curves[i];
    if ((has_line(panel, curve) && (text_printf(out, err, "<path d=\"M%.1f %.1fh28\" ", x, y) ||
                                    put_stroke(out, curve->stroke, err) || text_puts(out, "/>\n", err))) ||
        (is_marked(panel) && put_shape(out, i, x + 14, y, err)) ||
        (curve->dots && put_shape(out, mark_of(panel, curve), x + 14, y, err)))
        return -1;
    if (width == FRAME_W)
        return svg_lines(out, x + LEGEND_MARK, y + 5, width - LEGEND_MARK, LEGEND_LINE, SMALL, label, err) < 0 ? -1 : 0;
    return svg_text(out, x + LEGEND_MARK, y + 5, "start", svg_fitting(label, width - LEGEND_MARK, SMALL), "", label, err);
}

static int put_legend(struct text *out, const struct svg_panel *panel, double left, struct err *err)
{
    int columns = legend_columns(panel), width = FRAME_W / columns, placed = 0, rc = 0;
    struct text label = {0};
    for (int i = 0; i < panel->count && !rc; i++) {
        if (!in_legend(panel, i))
            continue;
        rc = name_together(&label, panel, i, err);
        if (!rc)
            rc = put_entry(out, panel, i, left + placed % columns * width,
                           TOP + FRAME_H + BELOW + placed / columns * LEGEND_LINE, width, label.data, err);
        placed += entry_lines(panel, i, columns);
    }
    text_free(&label);
    return rc;
}

int svg_legend(struct text *out, const struct svg_panel *panel, struct err *err)
{
    return put_legend(out, panel, 0, err);
}

int svg_head(struct text *out, int width, int height, const char *title, const char *note, struct err *err)
{
    return text_printf(out, err, "<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" width=\"%d\" height=\"%d\" "
                       "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
                       width, height, width, height, width, height) ||
           svg_text(out, width / 2.0, 26, "middle", svg_fitting(title, width, 16), " font-weight=\"bold\"", title, err) ||
           (note && svg_text(out, width / 2.0, 46, "middle", svg_fitting(note, width, 13), "", note, err)) ? -1 : 0;
}

int svg_figure(struct text *out, const char *title, const char *note, const struct svg_panel *panels, int count,
               struct err *err)
{
    struct text body = {0};
    const int lift = *title || note ? 0 : TOP - UNTITLED;
    int rc = -1, width = count * (LEFT + FRAME_W + RIGHT), height = svg_height(panels, count) + TOP - UNTITLED - lift;
    for (int p = 0; p < count; p++) {
        double left = p * (LEFT + FRAME_W + RIGHT) + LEFT;
        if (put_axes(&body, &panels[p], left, err))
            goto done;
        for (int pass = 0; pass < 2; pass++)            /* important curves are drawn last, on top */
            for (int i = 0; i < panels[p].count; i++)
                if ((panels[p].curves[i].stroke < SVG_THIN) == pass && drawn_as(&panels[p], i) == i &&
                    (put_curve(&body, &panels[p], &panels[p].curves[i], left, err) ||
                     (is_marked(&panels[p]) && put_shapes(&body, &panels[p], i, left, err))))
                    goto done;
        if (put_legend(&body, &panels[p], left, err))
            goto done;
    }
    if (svg_head(out, width, height, title, note, err) ||
        (lift && text_printf(out, err, "<g transform=\"translate(0 -%d)\">\n", lift)) ||
        text_put(out, body.data, body.length, err) || text_puts(out, lift ? "</g>\n</svg>\n" : "</svg>\n", err))
        goto done;
    rc = 0;
done:
    text_free(&body);
    return rc;
}

/* Heat maps */

enum { SHADES = 12, MAP = 168, ID_CELL = 9, MAP_GAP = 22, MAP_TOP = 76, MAP_COLUMNS = 6, SCALE_STEP = 16 };

static int put_shade(struct text *out, int shade, struct err *err)
{
    int grey = 255 - 255 * shade / SHADES;
    return text_printf(out, err, "fill=\"#%02x%02x%02x\"", grey, grey, grey);
}

/* Returns the shade of one of `cells` x `cells` cells: of the mean of the values in its block, 0 if there are none. */
static int block_shade(const struct svg_heat *map, int cells, int row, int column)
{
    size_t side = (size_t)map->side, all = (size_t)cells;
    double sum = 0;
    int count = 0;
    for (size_t r = (size_t)row * side / all; r < ((size_t)row + 1) * side / all; r++)
        for (size_t c = (size_t)column * side / all; c < ((size_t)column + 1) * side / all; c++)
            if (isfinite(map->value[r * side + c])) {
                sum += map->value[r * side + c];
                count++;
            }
    double mean = count ? sum / count : 0;
    return (int)(SHADES * (mean < 0 ? 0 : mean > 1 ? 1 : mean) + 0.5);
}

/* Returns whether the ids of rows are shown. */
static bool has_ids(const struct svg_heat *map) { return map->id && map->side <= SVG_HEAT_IDS; }

/* Returns the size of a map, large enough for an id beside each cell if ids are shown. */
static int map_size(const struct svg_heat *map)
{
    int size = has_ids(map) ? ID_CELL * map->side : MAP;
    return size > MAP ? size : MAP;
}

/* Draws the ids: to the left of rows, and rotated below columns. */
static int put_ids(struct text *out, const struct svg_heat *map, int size, double left, double top, struct err *err)
{
    char label[16];
    for (int i = 0; has_ids(map) && i < map->side; i++) {
        double at = (i + 0.5) * size / map->side;
        snprintf(label, sizeof label, "%d", map->id[i]);
        if (svg_text(out, left - 3, top + at + 2.5, "end", 7, "", label, err) ||
            svg_text(out, -(top + size + 3), left + at + 2.5, "end", 7, " transform=\"rotate(-90)\"", label, err))
            return -1;
    }
    return 0;
}

/* Draws one path per shade, with each run of equal cells as one bar, in units of cells. */
static int put_map(struct text *out, const struct svg_heat *map, int size, double left, double top, struct err *err)
{
    int cells = map->side < SVG_HEAT_CELLS ? map->side : SVG_HEAT_CELLS;
    if (put_ids(out, map, size, left, top, err) ||
        svg_text(out, left + size / 2.0, top - 6, "middle", 11, "", map->title, err) ||
        text_printf(out, err, "<g transform=\"translate(%.1f %.1f) scale(%.5f)\" shape-rendering=\"crispEdges\">\n", left, top,
                    (double)size / cells))
        return -1;
    for (int shade = 1; shade <= SHADES; shade++) {
        bool any = false;
        for (int row = 0; row < cells; row++)
            for (int column = 0, run; column < cells; column += run) {
                bool is = block_shade(map, cells, row, column) == shade;
                for (run = 1; column + run < cells && (block_shade(map, cells, row, column + run) == shade) == is; run++)
                    ;
                if (!is)
                    continue;
                if ((!any && (text_puts(out, "<path ", err) || put_shade(out, shade, err) || text_puts(out, " d=\"", err))) ||
                    text_printf(out, err, "M%d %dh%dv1h-%dz", column, row, run, run))
                    return -1;
                any = true;
            }
        if (any && text_puts(out, "\"/>\n", err))
            return -1;
    }
    return text_printf(out, err, "</g>\n<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#000\" "
                       "stroke-width=\"0.6\"/>\n", left, top, size, size);
}

static int put_scale(struct text *out, double middle, double top, const char *min, const char *max, bool root,
                     struct err *err)
{
    double left = middle - SCALE_STEP * (SHADES + 1) / 2.0;
    for (int shade = 0; shade <= SHADES; shade++)
        if (text_printf(out, err, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"12\" stroke=\"#000\" "
                        "stroke-width=\"0.4\" ", left + shade * SCALE_STEP, top, SCALE_STEP) ||
            put_shade(out, shade, err) || text_puts(out, "/>\n", err))
            return -1;
    for (int shade = 0; root && shade <= SHADES; shade += SHADES / 4) {
        char label[16];
        snprintf(label, sizeof label, "%.0f %%", 100.0 * shade * shade / (SHADES * SHADES));
        if (svg_text(out, left + (shade + 0.5) * SCALE_STEP, top + 24, "middle", 10, "", label, err))
            return -1;
    }
    return svg_text(out, left - 8, top + 10, "end", 11, "", min, err) ||
           svg_text(out, left + SCALE_STEP * (SHADES + 1) + 8, top + 10, "start", 11, "", max, err) ? -1 : 0;
}

int svg_heat_maps(struct text *out, const char *title, const char *note, const char *min, const char *max, bool root,
                  const struct svg_heat *maps, int count, struct err *err)
{
    int columns = 1, size = count ? map_size(&maps[0]) : MAP, gap = count && has_ids(&maps[0]) ? MAP_GAP + 8 : MAP_GAP;
    while (columns < MAP_COLUMNS && columns * columns < count)
        columns++;
    int rows = (count + columns - 1) / columns, min_width = 4 * (MAP + MAP_GAP) + MAP_GAP;
    int drawn = columns * (size + gap) + gap, width = drawn < min_width ? min_width : drawn; /* titles need a minimum width */
    int height = MAP_TOP + rows * (size + gap + 8) + 50;
    double indent = (width - drawn) / 2.0;
    if (svg_head(out, width, height, title, note, err))
        return -1;
    for (int i = 0; i < count; i++)
        if (put_map(out, &maps[i], size, indent + gap + i % columns * (size + gap), MAP_TOP + i / columns * (size + gap + 8.0),
                    err))
            return -1;
    return put_scale(out, width / 2.0, height - 42, min, max, root, err) || text_puts(out, "</svg>\n", err) ? -1 : 0;
}

/* Draws figures as SVG 1.1, without a library: line charts side by side, or a grid of heat maps. They are readable in black
 * and white: curves differ in width and dashes, heat maps are grey, colour carries no information.
 *
 * Each panel draws curves over common x values, within x_min to x_max and y_min to y_max; NaN leaves a gap. If all curves
 * have names, each has marks of its own in addition to its dashes, and curves that coincide share one entry of the legend.
 * Curves with dots have a mark of their own each; the legend shows the mark, and a line only if the curve has one. Texts are
 * legible if a panel is as wide as a column of a paper (8.5 cm) or a phone.
 * Texts are escaped. The same input gives the same bytes. */
#ifndef MOE_REPORT_SVG_H
#define MOE_REPORT_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum svg_stroke {
    SVG_BOLD,            /* the most important curve: wide and solid */
    SVG_DASHED,          /* wide and dashed */
    SVG_DOTTED,          /* wide and dotted */
    SVG_THIN             /* one of many: thin; SVG_THIN + i: with dashes that repeat after SVG_PATTERNS */
};
enum { SVG_PATTERNS = 6 };

struct svg_curve {
    const char *label;          /* in the legend; NULL: not in the legend */
    int stroke;                 /* enum svg_stroke */
    const double *y;            /* [points] */
    const double *x;            /* [points]; NULL: the panel's */
    int points;                 /* number of points if the curve has its own x */
    const double *error;        /* [points] error bar from y - error to y + error; NULL: none */
    size_t stride;              /* elements from one point in y, x and error to the next; 0: 1 */
    bool dots;                  /* a mark at each point */
    bool bare;                  /* no line between the points */
};

struct svg_panel {
    const char *title, *x_label, *y_label;
    int points;
    const double *x;            /* [points], ascending */
    double x_min, x_max, y_min, y_max;
    double level;               /* a thin dashed horizontal line at this y; 0: none */
    bool log2;                  /* logarithmic axis: x_min > 0, ticks at powers of 2 */
    bool percent;               /* label y = 1 as 100 % */
    bool unnamed;               /* without a legend: another panel has the same one */
    const struct svg_curve *curves;
    int count;
};

/* Appends the figure to *out. note (may be NULL) is printed small below the title. A figure without title and note begins
 * with its panels. */
int svg_figure(struct text *out, const char *title, const char *note, const struct svg_panel *panels, int count,
               struct err *err);
enum { SVG_PANEL_WIDTH = 444 };                                 /* pixels */
int svg_height(const struct svg_panel *panels, int count);      /* height of a figure without title, in pixels */
int svg_legend(struct text *out, const struct svg_panel *panel, struct err *err);      /* the legend alone, for comparison */

/* Building blocks of other figures: the first tag and the title; a text (anchor: start, middle or end; more: further
 * attributes); a step of 1, 2 or 5 times a power of ten that divides `max` into about five parts. The caller appends
 * "</svg>". A figure may be nested in another one, in a translated group. */
int svg_head(struct text *out, int width, int height, const char *title, const char *note, struct err *err);
int svg_text(struct text *out, double x, double y, const char *anchor, int size, const char *more, const char *text,
             struct err *err);
double svg_step(double max);
/* Returns the number of lines of `width` pixels that the text needs, broken between words, and writes them, `line` pixels
 * apart, unless out is NULL. -1: out of memory. */
int svg_lines(struct text *out, double x, double y, int width, int line, int size, const char *text, struct err *err);
int svg_escape(struct text *out, const char *text, struct err *err);      /* escapes text for XML and HTML */

/* Returns the font size at which a text of average letters fits into `width` pixels: `size`, or a smaller one, at least 6. */
int svg_fitting(const char *text, int width, int size);

/* A square heat map: value[row][column] from 0 (white) to 1 (black), NaN blank. With more than SVG_HEAT_CELLS rows, blocks
 * are drawn with their means. */
struct svg_heat {
    const char *title;          /* small, above the map */
    int side;
    const double *value;        /* [side][side] */
    const int32_t *id;          /* [side] names of rows and columns, shown for up to SVG_HEAT_IDS of them; NULL: none */
};
enum { SVG_HEAT_CELLS = 96, SVG_HEAT_IDS = 64 };

/* min, max: labels at the ends of the scale; root: shades are square roots of the scale's values. */
int svg_heat_maps(struct text *out, const char *title, const char *note, const char *min, const char *max, bool root,
                  const struct svg_heat *maps, int count, struct err *err);

#endif

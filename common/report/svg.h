/* Figures as SVG 1.1, line charts side by side or a grid of heat maps: text in, no library, readable in black and white
 * (curves differ by width and dashes, heat is grey, nothing is shown by colour).
 *
 * Each panel draws curves over common x values, from x_min to x_max and from y_min to y_max; a value that is no number leaves
 * a gap. Where all curves have names, each has marks of its own beside its dashes, and those that coincide are one in the
 * legend. Curves with dots have a mark of their own each, too; the legend shows the marks, and a line only of a curve that has
 * one. Texts are of a size that can be read when a panel is as wide as a column of a paper (8.5 cm) or a phone.
 * Texts are escaped. The same input gives the same bytes. */
#ifndef MOE_REPORT_SVG_H
#define MOE_REPORT_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum svg_stroke {
    SVG_BOLD,            /* the curve that matters: wide and solid */
    SVG_DASHED,          /* wide and dashed */
    SVG_DOTTED,          /* wide and dotted */
    SVG_THIN             /* one of many: thin; SVG_THIN + i and SVG_THIN + j differ in their dashes, for i, j < SVG_PATTERNS */
};
enum { SVG_PATTERNS = 6 };

struct svg_curve {
    const char *label;          /* in the legend; NULL: not there */
    int stroke;                 /* enum svg_stroke */
    const double *y;            /* [points] */
    const double *x;            /* [points] its own; NULL: the panel's */
    int points;                 /* with an x of its own */
    const double *error;        /* [points] a bar from y - error to y + error; NULL: none */
    bool dots;                  /* a mark at each point */
    bool bare;                  /* no line between them */
};

struct svg_panel {
    const char *title, *x_label, *y_label;
    int points;
    const double *x;            /* [points], ascending */
    double x_min, x_max, y_min, y_max;
    double level;               /* a thin dashed line across at this y; 0: none */
    bool log2;                  /* an axis of doublings: x_min above 0, ticks at powers of 2 */
    bool percent;               /* label y = 1 as 100 % */
    bool unnamed;               /* without legend: another panel has the same one */
    const struct svg_curve *curves;
    int count;
};

/* Appends the figure to *out. note (may be NULL) is small below the title. A figure that has neither begins with its
 * panels. */
int svg_figure(struct text *out, const char *title, const char *note, const struct svg_panel *panels, int count,
               struct err *err);
enum { SVG_PANEL_WIDTH = 444 };                                 /* pixels */
int svg_height(const struct svg_panel *panels, int count);      /* of a figure without title, in pixels */
int svg_legend(struct text *out, const struct svg_panel *panel, struct err *err);      /* the legend alone, to compare */

/* What figures of another kind are made of: the first tag and the title, a text (anchor: start, middle or end; more: further
 * attributes), and a step of 1, 2 or 5 times a power of ten that divides `max` into some five parts. "</svg>" is the
 * caller's. A figure may be put into another one, in a group that moves it. */
int svg_head(struct text *out, int width, int height, const char *title, const char *note, struct err *err);
int svg_text(struct text *out, double x, double y, const char *anchor, int size, const char *more, const char *text,
             struct err *err);
double svg_step(double max);
/* Returns how many lines of `width` pixels the text takes, broken between words; writes them, `line` pixels apart, unless out
 * is NULL. -1: no memory. */
int svg_lines(struct text *out, double x, double y, int width, int line, int size, const char *text, struct err *err);
int svg_escape(struct text *out, const char *text, struct err *err);      /* as a text or value of XML and HTML */

/* The font size at which a text of average letters fits into `width` pixels: `size`, or a smaller one down to 6. */
int svg_fitting(const char *text, int width, int size);

/* A square of shades: value[row][column] from 0 (white) to 1 (black), NaN blank. Of more than SVG_HEAT_CELLS a side, blocks
 * are drawn with their mean. */
struct svg_heat {
    const char *title;          /* small, above it */
    int side;
    const double *value;        /* [side][side] */
    const int32_t *id;          /* [side] what rows and columns are, shown up to SVG_HEAT_IDS of them; NULL: nothing */
};
enum { SVG_HEAT_CELLS = 96, SVG_HEAT_IDS = 64 };

/* min, max: what is at the ends of the scale; root: shades are square roots of shares, which the scale has. */
int svg_heat_maps(struct text *out, const char *title, const char *note, const char *min, const char *max, bool root,
                  const struct svg_heat *maps, int count, struct err *err);

#endif

/* The description of a page: which members of an analysis's records are its columns, rows and curves. Private to coact_report.c
 * and coact_pages.c. */
#ifndef MOE_REPORT_COACT_PAGE_H
#define MOE_REPORT_COACT_PAGE_H

#include "common/report/svg.h"
#include "common/route/analysis.h"

enum { PAGE_COLUMNS = 12, PAGE_PANELS = 2, PAGE_CURVES = 3 };

struct page_column {
    const char *title;              /* NULL: for figures only; these columns come last */
    const char *key;                /* key in the record: one number, or an array with one number per point */
    int decimals;
    bool percent;
    const char *divisor;            /* key of a divisor; NULL: none */
    double (*compute)(const struct stream_model *model, double x);      /* in place of a key: a function of the point */
};

struct page_curve {
    const char *label;
    int column, stroke;             /* column: its mean over the layers shown */
    bool dots;
};

struct page_panel {
    const char *title, *x_label, *y_label;
    int column;                     /* one curve per layer, and their mean; -1: only the curves below */
    struct page_curve curves[PAGE_CURVES];
    int count;
    bool percent;
};

struct gathered;

struct coact_page {
    const struct analysis_class *class;
    /* The words after the number of counted items, above the table and below a figure's title; or functions that append such
     * words from the first record. */
    const char *about, *note;
    int (*about_record)(struct text *out, const struct gathered *g, const void *record, struct err *err);
    int (*note_record)(struct text *out, const struct gathered *g, const void *record, struct err *err);
    /* PAGE_LAYERS: one row per layer, one column for each of `columns`. PAGE_POINTS: one row per point, columns are means
     * over layers. PAGE_GRID: one table for each column with a title, with one row per layer and one column per point; then
     * the columns without a title. */
    enum { PAGE_LAYERS, PAGE_POINTS, PAGE_GRID } layout;
    const char *x_title;            /* title of the points, or of the layers */
    const char *x;                  /* key of the points' values; the record's `points` is their number; NULL: one point per
                                     * layer */
    struct page_column columns[PAGE_COLUMNS];           /* the entry after the last column has neither key nor function,
                                                         * unless all are used */
    const char *windows_title;      /* PAGE_GRID: title of a row with the counts under the key `windows`; NULL: none */
    bool multiples;                 /* PAGE_GRID: of many points shows multiples; otherwise evenly spaced points, with the
                                     * first and the last */
    const char *heading;            /* of a figure */
    bool log2;
    struct page_panel panels[PAGE_PANELS];
    int panel_count;
    /* For pages that the members above cannot describe: write a row of the text, and the whole figure. NULL: unused. */
    int (*row)(struct text *out, const struct gathered *g, const void *record, struct err *err);
    int (*draw)(struct text *out, const struct analysis *analysis, const struct header *header, int layer, struct err *err);
};

/* The records of an analysis, as far as its page shows them. */
struct gathered {
    const struct coact_page *page;
    const struct header *header;
    int64_t counted;                /* by the analysis */
    int layer;                      /* -1: all */
    bool figure;
    int columns, points;
    int layers, room;               /* layers shown so far, and those of the model */
    int *number;                    /* [room] index of each layer shown */
    double *x, *windows, *value;    /* [points], [points], [columns][room][points] */
    struct text caption, rows;      /* the sentence of a text, or the note of a figure; the output of `row` */
};

const struct coact_page *coact_page_of(const struct analysis_class *class);

const char *model_name(const struct header *header);

#endif

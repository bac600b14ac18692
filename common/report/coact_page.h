/* The description of a page: which members of an analysis's records are its columns, rows and curves. Private to coact_report.c
 * and coact_pages.c. */
#ifndef MOE_REPORT_COACT_PAGE_H
#define MOE_REPORT_COACT_PAGE_H

#include "common/report/svg.h"
#include "common/route/analysis.h"

/* A member of a record: one number, or an array with a number for each point. */
struct member {
    enum { MEMBER_NONE, MEMBER_INT, MEMBER_INT64, MEMBER_REAL, MEMBER_INTS, MEMBER_INT64S, MEMBER_REALS } type;
    size_t offset;
};
#define MEMBER(s, name) { _Generic(((const struct s *)0)->name, int: MEMBER_INT, int64_t: MEMBER_INT64, double: MEMBER_REAL, \
    const int32_t *: MEMBER_INTS, const int64_t *: MEMBER_INT64S, const double *: MEMBER_REALS), offsetof(struct s, name) }

enum { PAGE_COLUMNS = 12, PAGE_PANELS = 2, PAGE_CURVES = 3 };

struct page_column {
    const char *title;              /* NULL: for figures only */
    struct member value, divisor;   /* value / divisor, if there is one */
    double (*compute)(const struct stream_model *model, double x);      /* in place of value: a function of the point */
    bool percent;
    int decimals;
};

struct page_curve {
    const char *label;
    int column, stroke;             /* of the mean over the layers shown */
    bool dots;
};

struct page_panel {
    const char *title, *x_label, *y_label;
    int column;                     /* one curve a layer, and their mean; -1: only the curves below */
    struct page_curve curves[PAGE_CURVES];
    int count;
    bool percent;
};

struct gathered;

struct coact_page {
    const struct analysis_class *class;
    /* The text in front of the table, and the line below a figure's title, from the first record. */
    int (*sentence)(struct text *out, const struct gathered *g, const void *record, struct err *err);
    int (*note)(struct text *out, const struct gathered *g, const void *record, struct err *err);
    /* PAGE_LAYERS: a row a layer, a column for each of `columns`. PAGE_POINTS: a row a point, columns are means over layers.
     * PAGE_GRID: a table for each column with a title, with a row a layer, a column a point; then those without one. */
    enum { PAGE_LAYERS, PAGE_POINTS, PAGE_GRID } layout;
    const char *x_title;            /* of the points, or of the layers */
    struct member points, x;        /* the number of points and their values; MEMBER_NONE: the layer itself */
    struct page_column columns[PAGE_COLUMNS];
    int count;
    struct member windows;          /* PAGE_GRID: counts in a row of their own, titled windows_title */
    const char *windows_title;
    bool multiples;                 /* PAGE_GRID: of many points show multiples; else evenly, with the first and the last */
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
    int layers, room, points;       /* layers shown so far, and those of the model */
    int *number;                    /* [room] of each layer shown */
    double *x, *windows, *value;    /* [points], [points], [columns][room][points] */
    struct text caption, rows;      /* the sentence of a text, or the note of a figure; what `row` appends */
};

const struct coact_page *coact_page_of(const struct analysis_class *class);

double member_of(const struct member *member, const void *record, int point);
const char *model_name(const struct header *header);

#endif

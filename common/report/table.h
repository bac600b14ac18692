/* A table of text cells, filled row by row and written as text with aligned columns, as Markdown, HTML or CSV.
 *
 *     struct table table = {0};
 *     static const char *const titles[] = {"setting", "tokens/s"};
 *     table_start(&table, titles, "lr");
 *     if (table_cell(&table, err, "%s", name) || table_cell(&table, err, "%.1f", rate) ||
 *         table_write(&table, TABLE_TEXT, &out, err)) ...
 *     table_free(&table);
 *
 * A row is full when it has a cell for each title. Titles are borrowed. Except in CSV, an empty cell is shown as "-", and a
 * column with only empty cells is left out. */
#ifndef MOE_REPORT_TABLE_H
#define MOE_REPORT_TABLE_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum table_form { TABLE_TEXT, TABLE_MARKDOWN, TABLE_HTML, TABLE_CSV };

struct table {
    const char *const *titles;
    const char *align;          /* one letter per column: l or r */
    int columns;
    char **cells;               /* row-major */
    size_t count, room;
};

/* Begins a table with one column per letter of `align`. */
void table_start(struct table *table, const char *const *titles, const char *align);
int table_cell(struct table *table, struct err *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
int table_number(struct table *table, double value, int decimals, struct err *err);     /* NaN: empty cell */
int table_exact(struct table *table, double value, struct err *err);    /* prints all digits; not finite: empty cell */
int table_write(const struct table *table, enum table_form form, struct text *out, struct err *err);

/* Writes TEXT of at most `width` columns (0: unlimited). Columns that do not fit continue in a further table below, which
 * repeats the first `names` columns. The `together` columns after the names are not separated. */
int table_write_within(const struct table *table, int width, int names, int together, struct text *out, struct err *err);
void table_free(struct table *table);           /* *table is {0} afterwards */

#endif

/* A table of text cells, filled row by row and written for people (aligned columns), as Markdown, HTML or
 * CSV.
 *
 *     struct table table = {0};
 *     static const char *const titles[] = {"setting", "tokens/s"};
 *     table_start(&table, titles, "lr");
 *     if (table_cell(&table, err, "%s", name) || table_cell(&table, err, "%.1f", rate) ||
 *         table_write(&table, TABLE_TEXT, &out, err)) ...
 *     table_free(&table);
 *
 * A row is full when it has a cell for each title. Titles are borrowed. But in CSV an empty cell is shown as "-", and a column
 * without any other is left out. */
#ifndef MOE_REPORT_TABLE_H
#define MOE_REPORT_TABLE_H

#include <stddef.h>

#include "common/base/err.h"
#include "common/base/text.h"

enum table_form { TABLE_TEXT, TABLE_MARKDOWN, TABLE_HTML, TABLE_CSV };

struct table {
    const char *const *titles;
    const char *align;          /* a letter a column: l or r */
    int columns;
    char **cells;               /* row-major */
    size_t count, room;
};

void table_start(struct table *table, const char *const *titles, const char *align);
int table_cell(struct table *table, struct err *err, const char *format, ...) __attribute__((format(printf, 3, 4)));
int table_number(struct table *table, double value, int decimals, struct err *err);     /* empty: NaN */
int table_exact(struct table *table, double value, struct err *err);    /* all digits that it has; empty: not finite */
int table_write(const struct table *table, enum table_form form, struct text *out, struct err *err);

/* As TEXT of at most `width` columns, 0: any: what does not fit goes on in a further table below, with the first `names`
 * columns again. So many columns after these keep `together`. */
int table_write_within(const struct table *table, int width, int names, int together, struct text *out, struct err *err);
void table_free(struct table *table);           /* and back to {0} */

#endif

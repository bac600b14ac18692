#include "common/report/table.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/numeral.h"
#include "common/base/utf8.h"
#include "common/report/svg.h"

void table_start(struct table *table, const char *const *titles, const char *align)
{
    *table = (struct table){.titles = titles, .align = align, .columns = (int)strlen(align)};
}

int table_cell(struct table *table, struct err *err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0)
        return err_set(err, ERR_INPUT, "a cell cannot be formatted");
    if (mem_grow(&table->cells, &table->room, table->count + 1, sizeof *table->cells, err))
        return -1;
    char *cell = mem_alloc((size_t)length + 1, 1, err);
    if (!cell)
        return -1;
    va_start(args, format);
    vsnprintf(cell, (size_t)length + 1, format, args);
    va_end(args);
    utf8_make_printable(cell, (size_t)length, 0);
    table->cells[table->count++] = cell;
    return 0;
}

int table_number(struct table *table, double value, int decimals, struct err *err)
{
    return isnan(value) ? table_cell(table, err, "%s", "") : table_cell(table, err, "%.*f", decimals, value);
}

int table_exact(struct table *table, double value, struct err *err)
{
    char digits[NUMERAL_ROOM] = "";
    if (isfinite(value))
        numeral_real(digits, value, false);
    return table_cell(table, err, "%s", digits);
}

void table_free(struct table *table)
{
    for (size_t i = 0; i < table->count; i++)
        mem_free(&table->cells[i]);
    mem_free(&table->cells);
    *table = (struct table){0};
}

static const char *shown(const char *cell) { return *cell ? cell : "-"; }

static size_t width_of(const char *cell) { return utf8_count(cell, strlen(cell)); }

static int put_spaces(struct text *out, size_t count, struct err *err)
{
    for (; count; count--)
        if (text_putc(out, ' ', err))
            return -1;
    return 0;
}

static int put_padded(struct text *out, const char *cell, size_t width, bool left, bool last, struct err *err)
{
    size_t pad = width - width_of(cell);
    if (!left && put_spaces(out, pad, err))
        return -1;
    if (text_puts(out, cell, err))
        return -1;
    return left && !last ? put_spaces(out, pad, err) : 0;
}

/* Writes one row as aligned columns, separated by two spaces or by bars. A column of width 0 is left out. */
static int put_row(const struct table *table, const size_t *widths, const char *const *cells, bool bars, struct text *out,
                   struct err *err)
{
    bool first = true;
    int last = table->columns - 1;
    while (last > 0 && !widths[last])
        last--;
    for (int c = 0; c <= last; c++) {
        const char *before = bars ? (first ? "| " : " | ") : first ? "" : "  ";
        if (!widths[c])
            continue;
        if (text_puts(out, before, err) ||
            put_padded(out, shown(cells[c]), widths[c], table->align[c] == 'l', !bars && c == last, err))
            return -1;
        first = false;
    }
    return text_puts(out, bars ? " |\n" : "\n", err);
}

static int put_rule(const struct table *table, const size_t *widths, struct text *out, struct err *err)
{
    for (int c = 0; c < table->columns; c++) {
        if (!widths[c])
            continue;
        if (text_putc(out, '|', err))
            return -1;
        for (size_t i = 0; i < widths[c] + 1; i++)
            if (text_putc(out, '-', err))
                return -1;
        if (text_putc(out, table->align[c] == 'l' ? '-' : ':', err))
            return -1;
    }
    return text_puts(out, "|\n", err);
}

/* Returns the width of each column; 0: the column is empty. */
static size_t *widths_of(const struct table *table, struct err *err)
{
    size_t *widths = mem_alloc((size_t)table->columns, sizeof *widths, err);
    for (int c = 0; widths && c < table->columns && !table->count; c++)
        widths[c] = width_of(table->titles[c]);
    for (size_t i = 0; widths && i < table->count; i++) {
        size_t c = i % (size_t)table->columns, width = width_of(shown(table->cells[i])), title = width_of(table->titles[c]);
        if (*table->cells[i] && widths[c] < title)
            widths[c] = title;
        if (*table->cells[i] && widths[c] < width)
            widths[c] = width;
    }
    return widths;
}

static int put_rows(const struct table *table, const size_t *widths, bool bars, struct text *out, struct err *err)
{
    if (put_row(table, widths, table->titles, bars, out, err) || (bars && put_rule(table, widths, out, err)))
        return -1;
    for (size_t i = 0; i + (size_t)table->columns <= table->count; i += (size_t)table->columns)
        if (put_row(table, widths, (const char *const *)table->cells + i, bars, out, err))
            return -1;
    return 0;
}

static int write_aligned(const struct table *table, bool bars, struct text *out, struct err *err)
{
    size_t *widths = widths_of(table, err);
    int rc = widths ? put_rows(table, widths, bars, out, err) : -1;
    mem_free(&widths);
    return rc;
}

/* Copies a table with a backslash before | and < in its cells, which Markdown would take for a border and for a tag. */
static int escape_cells(struct table *out, const struct table *table, struct err *err)
{
    struct text cell = {0};
    int rc = 0;
    table_start(out, table->titles, table->align);
    for (size_t i = 0; !rc && i < table->count; i++) {
        text_clear(&cell);
        for (const char *at = table->cells[i]; !rc && *at; at++)
            rc = (strchr("|<", *at) && text_putc(&cell, '\\', err)) || text_putc(&cell, *at, err) ? -1 : 0;
        rc = rc || table_cell(out, err, "%s", cell.length ? cell.data : "") ? -1 : 0;
    }
    text_free(&cell);
    return rc;
}

static int write_markdown(const struct table *table, struct text *out, struct err *err)
{
    struct table escaped = {0};
    int rc = escape_cells(&escaped, table, err) || write_aligned(&escaped, true, out, err) ? -1 : 0;
    table_free(&escaped);
    return rc;
}

/* Selects the columns from *next on that fit beside the name columns, at least `together`, into part; *next: the first that
 * does not fit. */
static void take_part(const struct table *table, const size_t *widths, int names, int together, int width, size_t *part,
                      int *next)
{
    size_t used = 0;
    bool any = false;
    for (int c = 0; c < table->columns; c++) {
        part[c] = c < names ? widths[c] : 0;
        used += part[c] ? part[c] + 2 : 0;
    }
    while (*next < table->columns) {
        int end = *next + together < table->columns ? *next + together : table->columns;
        size_t wanted = 0;
        for (int c = *next; c < end; c++)
            wanted += widths[c] ? widths[c] + 2 : 0;
        if (wanted && any && used + wanted - 2 > (size_t)width)
            return;
        used += wanted;
        any |= wanted > 0;
        for (; *next < end; ++*next)
            part[*next] = widths[*next];
    }
}

int table_write_within(const struct table *table, int width, int names, int together, struct text *out,
                       struct err *err)
{
    size_t *widths = widths_of(table, err), *part = mem_alloc((size_t)table->columns, sizeof *part, err);
    int rc = widths && part ? 0 : -1;
    for (int next = names; !rc && next < table->columns;) {
        bool first = next == names;
        take_part(table, widths, names, together, width ? width : INT_MAX, part, &next);
        rc = (!first && text_putc(out, '\n', err)) || put_rows(table, part, false, out, err) ? -1 : 0;
    }
    mem_free(&widths);
    mem_free(&part);
    return rc;
}

static int put_html_row(const struct table *table, const size_t *widths, const char *const *cells, const char *tag,
                        struct text *out, struct err *err)
{
    if (text_puts(out, "<tr>", err))
        return -1;
    for (int c = 0; c < table->columns; c++)
        if (widths[c] && (text_printf(out, err, "<%s%s>", tag, table->align[c] == 'l' ? " class=\"l\"" : "") ||
                          svg_escape(out, shown(cells[c]), err) || text_printf(out, err, "</%s>", tag)))
            return -1;
    return text_puts(out, "</tr>\n", err);
}

static int write_html(const struct table *table, struct text *out, struct err *err)
{
    size_t *widths = widths_of(table, err);
    int rc = !widths || text_puts(out, "<div class=\"wide\"><table>\n", err) ||
             put_html_row(table, widths, table->titles, "th", out, err) ? -1 : 0;
    for (size_t i = 0; !rc && i + (size_t)table->columns <= table->count; i += (size_t)table->columns)
        rc = put_html_row(table, widths, (const char *const *)table->cells + i, "td", out, err);
    rc = rc || text_puts(out, "</table></div>\n", err) ? -1 : 0;
    mem_free(&widths);
    return rc;
}

static int put_csv(struct text *out, const char *cell, struct err *err)
{
    if (!cell[strcspn(cell, ",\"")])
        return text_puts(out, cell, err);
    if (text_putc(out, '"', err))
        return -1;
    for (; *cell; cell++)
        if ((*cell == '"' && text_putc(out, '"', err)) || text_putc(out, *cell, err))
            return -1;
    return text_putc(out, '"', err);
}

static int write_csv(const struct table *table, struct text *out, struct err *err)
{
    int columns = table->columns;
    for (int c = 0; c < columns; c++)
        if (put_csv(out, table->titles[c], err) || text_putc(out, c == columns - 1 ? '\n' : ',', err))
            return -1;
    for (size_t i = 0; i < table->count; i++)
        if (put_csv(out, table->cells[i], err) || text_putc(out, (int)(i % (size_t)columns) == columns - 1 ? '\n' : ',', err))
            return -1;
    return 0;
}

int table_write(const struct table *table, enum table_form form, struct text *out, struct err *err)
{
    return form == TABLE_CSV ? write_csv(table, out, err) : form == TABLE_HTML ? write_html(table, out, err)
           : form == TABLE_MARKDOWN ? write_markdown(table, out, err) : write_aligned(table, false, out, err);
}

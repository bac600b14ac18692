#include "common/report/figure_internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/report/svg.h"
#include "common/report/table.h"

static const struct figure_class *const classes[] = {       /* by figure_kind */
    NULL, &figure_utility, &figure_prediction, &figure_times, &figure_quality, &figure_nodes, &figure_boundary,
    &figure_forecasts};

const char *const figure_words[] = {"none", "utility", "prediction", "times", "quality", "nodes", "boundary", "forecasts",
                                    NULL};

struct figure_row *figure_row_add(struct figure_table *table, const char *a, const char *b, const char *c, const double *values,
                                  size_t bytes, struct err *err)
{
    if (mem_grow(&table->rows, &table->room, table->count + 1, sizeof *table->rows, err))
        return NULL;
    struct figure_row *row = &table->rows[table->count++];
    *row = (struct figure_row){.text = {a, b, c}};
    for (int v = 0; v < FIGURE_VALUES; v++)
        row->value[v] = NAN;
    memcpy(row->value, values, bytes);
    return row;
}

const char *figure_task(const struct measurements *all, int task) { return task < 0 ? "all" : all->tasks[task]; }

double figure_cost(const struct figure_work *work, const struct measured_step *step)
{
    return work->setup->bytes ? (double)step->bytes : 1e-6 * step->us;
}

/* Builds a key of the model and the options without `keys`; settings of one series have equal keys. */
static int series_key(struct text *out, const struct measured_setting *setting, const char *const *keys, struct err *err)
{
    json_t *options = *setting->options == '{' ? json_loads(setting->options, 0, NULL) : NULL;
    char *rest = NULL;
    int rc = -1;
    for (int k = 0; options && keys[k]; k++)
        json_object_del(options, keys[k]);
    if (options && !(rest = json_text(options, JSON_COMPACT | JSON_SORT_KEYS, err)))
        goto done;
    rc = text_printf(out, err, "%d %s %s", setting->stream, setting->model, rest ? rest : setting->options);
done:
    mem_free(&rest);
    json_decref(options);
    return rc;
}

/* Returns a setting's name without the values that "vary" appended for these keys: "router" for "router, budget 8". */
static int series_name(struct text *out, const char *name, const char *const *keys, struct err *err)
{
    for (const char *at = name, *end; *at; at = end) {
        bool left_out = false;
        end = strstr(at + (*at == ','), ", ");
        end = end ? end : at + strlen(at);
        for (int k = 0; keys[k] && !left_out; k++) {
            size_t length = strlen(keys[k]);
            left_out = at != name && !strncmp(at + 2, keys[k], length) && at[2 + length] == ' ';
        }
        if (!left_out && text_put(out, at, (size_t)(end - at), err))
            return -1;
    }
    return 0;
}

const char *figure_series(const struct figure_work *work, int setting, const char *const *keys, struct err *err)
{
    struct figure *figure = work->figure;
    const struct measured_setting *of = &work->all->settings[setting];
    struct text key = {0}, name = {0};
    const char *found = NULL;
    bool taken = false;
    if (series_key(&key, of, keys, err) || series_name(&name, of->name, keys, err))
        goto done;
    for (size_t i = 0; i < figure->series_count && !found; i++) {
        if (figure->series[i].keys != keys)
            continue;
        if (!strcmp(figure->series[i].key, key.data))
            found = figure->series[i].name;
        taken |= !strcmp(figure->series[i].name, name.data);
    }
    if (found || mem_grow(&figure->series, &figure->series_room, figure->series_count + 1, sizeof *figure->series, err))
        goto done;
    struct figure_series *made = &figure->series[figure->series_count];
    *made = (struct figure_series){keys, mem_string(key.data, err), mem_string(taken ? of->name : name.data, err)};
    figure->series_count++;                     /* counted first, so that figure_free frees it even if incomplete */
    found = made->key ? made->name : NULL;
done:
    text_free(&key);
    text_free(&name);
    return found;
}

static void narrow(struct figure_table *table, const struct selection *selection)
{
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        const struct figure_row *row = &table->rows[i];
        if (!row->text[1] || selection_fits(selection, row->text[0], row->text[1]))
            table->rows[kept++] = *row;
    }
    table->count = kept;
}

int figure_make(struct figure *out, const struct figure_setup *setup, const struct measurements *all,
                const struct summary *summary, struct err *err)
{
    const struct figure_class *class = classes[setup->kind];
    struct figure made = {.kind = setup->kind, .bytes = setup->bytes};
    const struct figure_work work = {.figure = &made, .setup = setup, .all = all, .summary = summary};
    for (; made.tables < FIGURE_TABLES && class->table[made.tables].type; made.tables++)
        made.table[made.tables] = class->table[made.tables];
    int rc = summary_select_check(summary, all, setup->selection, err) || class->make(&work, err) ? -1 : 0;
    size_t rows = 0;
    for (int t = 0; t < made.tables && !rc; t++) {
        narrow(&made.table[t], setup->selection);
        rows += made.table[t].count;
    }
    if (!rc && !rows)
        rc = err_set(err, ERR_INPUT, "the streams lack the data for figure '%s'; moe-bench(1) lists what each figure needs",
                     figure_words[setup->kind]);
    if (rc)
        figure_free(&made);
    else
        *out = made;
    return rc;
}

void figure_free(struct figure *figure)
{
    for (size_t i = 0; i < figure->series_count; i++) {
        mem_free(&figure->series[i].key);
        mem_free(&figure->series[i].name);
    }
    mem_free(&figure->series);
    for (int t = 0; t < figure->tables; t++)
        mem_free(&figure->table[t].rows);
    *figure = (struct figure){0};
}

static int put_cells(struct table *cells, const struct figure_table *table, const struct figure_row *row, bool exact,
                     struct err *err)
{
    int texts = 0, values = 0;
    for (const struct figure_column *column = table->columns; column->key; column++) {
        if (column->decimals == FIGURE_WORD) {
            if (table_cell(cells, err, "%s", row->text[texts++]))
                return -1;
            continue;
        }
        double value = row->value[values++];
        if (exact ? table_exact(cells, value, err)
                  : table_number(cells, isfinite(value) ? value : NAN, column->decimals, err))
            return -1;
    }
    return 0;
}

static int write_table(const struct figure_table *table, enum table_form form, struct text *out, struct err *err)
{
    const char *titles[FIGURE_TEXTS + FIGURE_VALUES];
    char align[FIGURE_TEXTS + FIGURE_VALUES + 1] = "";
    struct table cells;
    int columns = 0, rc = -1;
    for (; table->columns[columns].key; columns++) {
        titles[columns] = table->columns[columns].key;
        align[columns] = table->columns[columns].decimals == FIGURE_WORD ? 'l' : 'r';
    }
    align[columns] = '\0';
    table_start(&cells, titles, align);
    for (size_t i = 0; i < table->count; i++)
        if (put_cells(&cells, table, &table->rows[i], form == TABLE_CSV, err))
            goto done;
    rc = table_write(&cells, form, out, err);
done:
    table_free(&cells);
    return rc;
}

static int write_json(const struct figure_table *table, struct text *out, struct err *err)
{
    for (size_t i = 0; i < table->count; i++) {
        json_t *object = json_pack("{s:s}", "type", table->type);
        int texts = 0, values = 0, rc = 0;
        for (const struct figure_column *column = table->columns; object && column->key; column++)
            rc |= json_object_set_new(object, column->key, column->decimals == FIGURE_WORD
                                          ? json_string(table->rows[i].text[texts++])
                                          : json_finite(table->rows[i].value[values++]));
        if (rc) {
            json_decref(object);
            object = NULL;
        }
        if (json_line(out, object, err))
            return -1;
    }
    return 0;
}

static int put_heading(struct text *out, const char *heading, enum report_form form, struct err *err)
{
    if (form != REPORT_HTML)
        return text_printf(out, err, "%s%s\n\n", out->length ? "\n" : "", heading);
    return text_puts(out, "<p>", err) || svg_escape(out, heading, err) || text_puts(out, "</p>\n", err) ? -1 : 0;
}

int figure_write(const struct figure *figure, enum report_form form, struct text *out, struct err *err)
{
    if (form == REPORT_CSV)
        return write_table(&figure->table[0], TABLE_CSV, out, err);
    for (int t = 0; t < figure->tables; t++) {
        const struct figure_table *table = &figure->table[t];
        if (form == REPORT_JSON ? write_json(table, out, err)
            : table->heading && table->count &&
                  (put_heading(out, table->heading, form, err) ||
                   write_table(table, form == REPORT_HTML ? TABLE_HTML : form == REPORT_MARKDOWN ? TABLE_MARKDOWN : TABLE_TEXT,
                               out, err)))
            return -1;
    }
    if (form != REPORT_JSON)
        text_make_printable(out);
    return 0;
}

int figure_page_panel(struct figure_page *page, const struct svg_panel *panel, struct err *err)
{
    struct svg_panel shown = *panel;
    struct text legend = {0};
    int rc = svg_legend(&legend, panel, err);
    shown.unnamed = legend.length && page->legend.length && !strcmp(legend.data, page->legend.data);
    if (!rc)
        rc = text_printf(&page->body, err, "<g transform=\"translate(0 %d)\">\n", page->height) ||
             svg_figure(&page->body, "", NULL, &shown, 1, err) || text_puts(&page->body, "</g>\n", err) ? -1 : 0;
    page->height += svg_height(&shown, 1);
    page->width = SVG_PANEL_WIDTH;
    text_free(&page->legend);
    page->legend = legend;
    return rc;
}

int figure_page_end(struct figure_page *page, bool failed, const char *title, const char *note, struct text *out,
                    struct err *err)
{
    int rc = failed || svg_head(out, page->width, page->height + 8, title, note, err) ||
             text_put(out, page->body.data, page->body.length, err) || text_puts(out, "</svg>\n", err) ? -1 : 0;
    text_free(&page->body);
    text_free(&page->legend);
    return rc;
}

int figure_svg(const struct figure *figure, struct text *out, struct err *err)
{
    struct figure_page page = {.height = FIGURE_PAGE_TOP};
    const struct figure_class *class = classes[figure->kind];
    int rc = class->charts ? figure_draw(figure, class->charts, &page, err) : class->draw(figure, &page, err);
    return figure_page_end(&page, rc, class->title,
                           figure->bytes ? "costs are nominal bytes" : "costs are measured seconds", out, err);
}

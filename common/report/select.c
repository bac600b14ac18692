#include "common/report/select.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

#include "common/base/text.h"
#include "common/cli/nearest.h"

static const char *task_of(const struct measurements *all, const struct summary_row *row)
{
    return row->task < 0 ? "all" : all->tasks[row->task];
}

static const char *setting_of(const struct measurements *all, const struct summary_row *row)
{
    return all->settings[row->setting].name;
}

typedef const char *name_of(const struct measurements *all, const struct summary_row *row);

static bool fits(const char *name, const char *const *patterns, int count)
{
    for (int i = 0; i < count; i++)
        if (!fnmatch(patterns[i], name, 0))
            return true;
    return !count;
}

/* Fails with a list of all names if a pattern matches no row. */
static int check_patterns(const struct summary *summary, const struct measurements *all, const char *option,
                          const char *const *patterns, int count, name_of *of, struct err *err)
{
    for (int p = 0; p < count; p++) {
        struct text names = {0};
        bool found = false;
        int rc = 0;
        for (size_t i = 0; i < summary->count && !rc && !found; i++) {
            const char *name = of(all, &summary->rows[i]);
            bool known = false;
            found = fits(name, &patterns[p], 1);
            for (size_t j = 0; j < i && !known; j++)
                known = !strcmp(of(all, &summary->rows[j]), name);
            rc = known ? 0 : text_printf(&names, err, "%s%s", names.length ? "; " : "", name);
        }
        if (!rc && !found)
            rc = err_set(err, ERR_INPUT, "--%s %s: matches nothing in the streams; choose from: %s", option, patterns[p],
                         names.length ? names.data : "none");
        text_free(&names);
        if (rc)
            return -1;
    }
    return 0;
}

static const struct summary_column *find_column(const char *key, struct err *err)
{
    struct nearest nearest = {.word = key};
    for (const struct summary_column *column = summary_columns; column->key; column++) {
        if (!strcmp(column->key, key))
            return column;
        nearest_offer(&nearest, column->key);
    }
    err_set(err, ERR_INPUT, "--sort: '%s' is not a column of --csv; %s%s%s", key, nearest.best ? "did you mean " : "",
            nearest.best ? nearest.best : "moe-bench(1) lists them", nearest.best ? "?" : "");
    return NULL;
}

/* Returns whether a is sorted after b: rows of one task stay together, NaN is last, equal rows keep their order. */
static bool sorts_after(const struct summary_row *a, const struct summary_row *b, const struct summary_column *column,
                        double sign)
{
    double one = sign * summary_value(a, column), other = sign * summary_value(b, column);
    return a->task == b->task && (isnan(one) ? !isnan(other) : other > one);
}

static void sort_rows(struct summary *summary, const struct summary_column *column, double sign)
{
    for (size_t i = 1; i < summary->count; i++)
        for (size_t j = i; j && sorts_after(&summary->rows[j - 1], &summary->rows[j], column, sign); j--) {
            const struct summary_row kept = summary->rows[j];
            summary->rows[j] = summary->rows[j - 1];
            summary->rows[j - 1] = kept;
        }
}

int summary_select_check(const struct summary *summary, const struct measurements *all, const struct selection *selection,
                         struct err *err)
{
    return selection &&
           (check_patterns(summary, all, "task", selection->tasks, selection->task_count, task_of, err) ||
            check_patterns(summary, all, "setting", selection->settings, selection->setting_count, setting_of, err)) ? -1 : 0;
}

bool selection_fits(const struct selection *selection, const char *task, const char *setting)
{
    return !selection || (fits(task, selection->tasks, selection->task_count) &&
                          fits(setting, selection->settings, selection->setting_count));
}

int summary_select(struct summary *summary, const struct measurements *all, const struct selection *selection, struct err *err)
{
    const char *sort = selection->sort;
    const struct summary_column *column = sort ? find_column(sort + (*sort == '-'), err) : NULL;
    size_t kept = 0;
    if ((sort && !column) || summary_select_check(summary, all, selection, err))
        return -1;
    for (size_t i = 0; i < summary->count; i++) {
        const struct summary_row *row = &summary->rows[i];
        if (selection_fits(selection, task_of(all, row), setting_of(all, row)))
            summary->rows[kept++] = *row;
    }
    summary->count = kept;
    if (!kept)
        return err_set(err, ERR_INPUT, "--task and --setting: no row matches both; leave one of the two out");
    if (column)
        sort_rows(summary, column, *sort == '-' ? -1 : 1);
    return 0;
}

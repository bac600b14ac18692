/* Which rows of a report are shown, and in which order. */
#ifndef MOE_REPORT_SELECT_H
#define MOE_REPORT_SELECT_H

#include "common/base/err.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

/* Patterns as a shell's; of several one must fit, of none all do. The rows of all tasks together are those of the task "all".
 * sort: a key of summary_columns, the largest first, or with a minus before it the smallest; NULL: as settings come. */
struct selection {
    const char *const *tasks, *const *settings;
    int task_count, setting_count;
    const char *sort;
};

/* Drops the other rows, and sorts those of each task. A pattern that fits nothing is an error. */
int summary_select(struct summary *summary, const struct measurements *all, const struct selection *selection, struct err *err);

/* For what has no rows of a summary: an error unless each pattern fits one of its rows; and whether a task and setting fit.
 * selection NULL: all do. */
int summary_select_check(const struct summary *summary, const struct measurements *all, const struct selection *selection,
                         struct err *err);
bool selection_fits(const struct selection *selection, const char *task, const char *setting);

#endif

/* Selects and sorts the rows of a report. */
#ifndef MOE_REPORT_SELECT_H
#define MOE_REPORT_SELECT_H

#include "common/base/err.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

/* Shell patterns; a row must match one of them; without patterns all match. The task of rows over all tasks is "all". sort:
 * a key of summary_columns, descending, or with a leading minus ascending; NULL: the order of settings. */
struct selection {
    const char *const *tasks, *const *settings;
    int task_count, setting_count;
    const char *sort;
};

/* Removes all other rows, and sorts those of each task. A pattern that matches nothing is an error. */
int summary_select(struct summary *summary, const struct measurements *all, const struct selection *selection, struct err *err);

/* For figures, which are not made of summary rows. summary_select_check fails if a pattern matches no row; selection_fits
 * returns whether a task and setting match. selection NULL: all match. */
int summary_select_check(const struct summary *summary, const struct measurements *all, const struct selection *selection,
                         struct err *err);
bool selection_fits(const struct selection *selection, const char *task, const char *setting);

#endif

/* Draws a report as one page of SVG that is readable in black and white and as wide as a column of a paper: for each task and
 * setting the ratio to its reference with its interval, next to the ratio that bytes allow, and the figures that explain it;
 * below, acceptance by position over all tasks. */
#ifndef MOE_REPORT_BENCH_FIGURE_H
#define MOE_REPORT_BENCH_FIGURE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

/* Appends the page to *out. */
int bench_figure(struct text *out, const struct measurements *all, const struct summary *summary, struct err *err);

#endif

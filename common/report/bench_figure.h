/* A report as one page of SVG, readable in black and white: for each task and setting the ratio to its reference with its
 * interval, beside the ratio that bytes allow, and the figures that explain it; below, acceptance by position and what the
 * bytes of an iteration come to, of all tasks together. */
#ifndef MOE_REPORT_BENCH_FIGURE_H
#define MOE_REPORT_BENCH_FIGURE_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

int bench_figure(struct text *out, const struct measurements *all, const struct summary *summary, struct err *err);

#endif

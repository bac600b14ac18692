/* A report in words: machine, settings and summary rows, as text for people, Markdown, CSV (all figures, one line a row) or
 * JSON lines ({"type": "machine" | "setting" | "row", ...}; a figure that cannot be had is null). */
#ifndef MOE_REPORT_REPORT_H
#define MOE_REPORT_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

enum report_form { REPORT_TEXT, REPORT_MARKDOWN, REPORT_CSV, REPORT_JSON };

int report_write(const struct measurements *all, const struct summary *summary, enum report_form form, struct text *out,
                 struct err *err);

#endif

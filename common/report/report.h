/* Writes a report: machine, settings and summary rows, as text, Markdown, HTML, CSV (all figures, one line per row) or JSON
 * lines ({"type": "machine" | "setting" | "row", ...}; a figure that is not available is null). */
#ifndef MOE_REPORT_REPORT_H
#define MOE_REPORT_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/report/measurements.h"
#include "common/report/summary.h"

enum report_form { REPORT_TEXT, REPORT_MARKDOWN, REPORT_HTML, REPORT_CSV, REPORT_JSON };

/* width: of TEXT, in columns; 0: unlimited. HTML is the body of a page (page.h). */
int report_write(const struct measurements *all, const struct summary *summary, enum report_form form, int width,
                 struct text *out, struct err *err);

#endif

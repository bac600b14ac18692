/* Prints the records of an analysis of routes as a table, and draws them as SVG. coact_pages.c describes the page of each
 * analysis. JSON and CSV are made from the records, too: record_report.h. */
#ifndef MOE_REPORT_COACT_REPORT_H
#define MOE_REPORT_COACT_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/analysis.h"
#include "common/route/ranking.h"

/* Appends the page to *out. layer: only this one; -1: all, and their mean if the page shows it. */
int coact_text(struct text *out, const struct analysis *analysis, const struct header *header, int layer, struct err *err);
int coact_svg(struct text *out, const struct analysis *analysis, const struct header *header, int layer, struct err *err);

/* Appends the page of rank_analysis for this ranking; tokens: number of tokens from which the ranking was made. */
int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err);

#endif

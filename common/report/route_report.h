/* Prints rankings, coverage and neighbours of routes as tables, and draws curves as SVG. All functions append to *out. (JSON
 * and CSV are made from the records: record_report.h.) */
#ifndef MOE_REPORT_ROUTE_REPORT_H
#define MOE_REPORT_ROUTE_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/coverage.h"
#include "common/route/neighbours.h"
#include "common/route/ranking.h"

int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err);

/* layer: only this one; -1: all, and their mean. */
int coverage_text(struct text *out, const struct coverage *coverage, int layer, struct err *err);
int coverage_svg(struct text *out, const struct coverage *coverage, int layer, const char *model, struct err *err);
int union_text(struct text *out, const struct neighbours *neighbours, int layer, struct err *err);
int locality_text(struct text *out, const struct neighbours *neighbours, int layer, struct err *err);

#endif

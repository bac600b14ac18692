/* Rankings and coverage as people and other programs read them: tables, JSON lines (a line a record, with the keys of the
 * stream's records), CSV (a line a number) and SVG. All append to *out. */
#ifndef MOE_REPORT_ROUTE_REPORT_H
#define MOE_REPORT_ROUTE_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/coverage.h"
#include "common/route/ranking.h"

int ranking_text(struct text *out, const struct ranking *ranking, int64_t tokens, struct err *err);
int ranking_json(struct text *out, const struct ranking *ranking, struct err *err);
int ranking_csv(struct text *out, const struct ranking *ranking, struct err *err);

/* layer: that one only; -1: all. */
int coverage_text(struct text *out, const struct coverage *coverage, int layer, struct err *err);
int coverage_json(struct text *out, const struct coverage *coverage, int layer, struct err *err);
int coverage_csv(struct text *out, const struct coverage *coverage, int layer, struct err *err);
int coverage_svg(struct text *out, const struct coverage *coverage, int layer, const char *model, struct err *err);

/* "key":value pieces of a JSON line; reals with the fewest digits that read back the same. */
int report_json_ints(struct text *out, const char *key, const int32_t *values, int count, struct err *err);
int report_json_reals(struct text *out, const char *key, const double *values, int count, struct err *err);
int report_real(struct text *out, double value, struct err *err);

#endif

/* Prints pairs, skew, trees and neighbours of routes as tables, and draws them as SVG. All functions append to *out. (JSON
 * and CSV are made from the records: record_report.h.) */
#ifndef MOE_REPORT_COACT_REPORT_H
#define MOE_REPORT_COACT_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/matrix.h"
#include "common/route/neighbours.h"
#include "common/route/skew.h"
#include "common/route/trees.h"

/* layer: only this one; -1: all. */
int stats_text(struct text *out, const struct skew *skew, int layer, struct err *err);
int trees_text(struct text *out, const struct trees *trees, int layer, struct err *err);

int union_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err);
int trees_svg(struct text *out, const struct trees *trees, int layer, const char *model, struct err *err);
int locality_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err);

/* Lists the most frequent pairs of each layer. */
int matrix_text(struct text *out, const struct matrix *matrix, int layer, struct err *err);
int matrix_svg(struct text *out, const struct matrix *matrix, int layer, const char *model, struct err *err);

#endif

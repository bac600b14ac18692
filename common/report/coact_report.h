/* Pairs, skew, trees and neighbours of routes as people read them: tables, and figures as SVG. All append to *out. (JSON and
 * CSV follow from the records: record_report.h.) */
#ifndef MOE_REPORT_COACT_REPORT_H
#define MOE_REPORT_COACT_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/matrix.h"
#include "common/route/neighbours.h"
#include "common/route/skew.h"
#include "common/route/trees.h"

/* layer: that one only; -1: all. */
int stats_text(struct text *out, const struct skew *skew, int layer, struct err *err);
int trees_text(struct text *out, const struct trees *trees, int layer, struct err *err);

int union_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err);
int trees_svg(struct text *out, const struct trees *trees, int layer, const char *model, struct err *err);
int locality_svg(struct text *out, const struct neighbours *neighbours, int layer, const char *model, struct err *err);

/* The most frequent pairs of each layer. */
int matrix_text(struct text *out, const struct matrix *matrix, int layer, struct err *err);
int matrix_svg(struct text *out, const struct matrix *matrix, int layer, const char *model, struct err *err);

#endif

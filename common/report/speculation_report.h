/* What speculation says of experts as people read it: MoE-SpAc's appendices A and B over recorded routes. All append to *out.
 * (JSON and CSV follow from the records: record_report.h.)
 *
 *   reuse    figure 7: experts of several tokens over those of one, against the tokens that an iteration emits
 *   signal   figure 8: each expert's frequency, verification after verification, with drafts and without
 *   drift    theorem 1: how far states and scores move from a token to the next, layer by layer
 *
 * layer: that one only; -1: reuse and signal have the mean of all in their tables, signal draws the first. */
#ifndef MOE_REPORT_SPECULATION_REPORT_H
#define MOE_REPORT_SPECULATION_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/route/drift.h"
#include "common/route/windows.h"

int reuse_text(struct text *out, const struct windows *windows, const struct reuse_setup *setup, int layer, struct err *err);
int reuse_svg(struct text *out, const struct windows *windows, const struct reuse_setup *setup, int layer, const char *model,
              struct err *err);
int signal_text(struct text *out, const struct windows *windows, double threshold, int layer, struct err *err);
int signal_svg(struct text *out, const struct windows *windows, int layer, const char *model, struct err *err);
int drift_text(struct text *out, const struct drift *drift, int layer, struct err *err);
int drift_svg(struct text *out, const struct drift *drift, int layer, const char *model, struct err *err);

#endif

/* Prints statistics of experts under speculation: MoE-SpAc's appendices A and B over recorded routes. All functions append
 * to *out. (JSON and CSV are made from the records: record_report.h.)
 *
 *   reuse    figure 7: experts of several tokens relative to those of one, against the tokens emitted per iteration
 *   signal   figure 8: frequency of each expert, by verification, with and without drafts
 *   drift    theorem 1: change of states and scores from token to token, by layer
 *
 * layer: only this one; -1: tables of reuse and signal have the mean over all layers, and signal draws the first. */
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

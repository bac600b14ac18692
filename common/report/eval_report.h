/* What an evaluation of a draft head found, for people: acceptance by position, and tokens an iteration. */
#ifndef MOE_REPORT_EVAL_REPORT_H
#define MOE_REPORT_EVAL_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/stream/train.h"

/* name: of the head. Appends to *out. */
int eval_report(const char *name, const struct train_run *run, const struct train_eval *eval, struct text *out,
                struct err *err);

#endif

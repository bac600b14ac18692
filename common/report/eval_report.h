/* Prints the evaluation of a draft head: acceptance by position, and tokens per iteration. */
#ifndef MOE_REPORT_EVAL_REPORT_H
#define MOE_REPORT_EVAL_REPORT_H

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/stream/train.h"

/* Appends the report to *out. name: name of the head. */
int eval_report(const char *name, const struct train_run *run, const struct train_eval *eval, struct text *out,
                struct err *err);

#endif

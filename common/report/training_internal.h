/* The tables of a report on training, as training.c fills and training_svg.c draws them. */
#ifndef MOE_REPORT_TRAINING_INTERNAL_H
#define MOE_REPORT_TRAINING_INTERNAL_H

#include "common/report/figure_internal.h"

enum { TABLE_RUN, TABLE_PART, TABLE_EVAL, TABLE_SPREAD, TABLE_CURVE, TABLES };
_Static_assert((int)TABLES <= (int)FIGURE_TABLES, "room for all");

/* Texts of rows but those of TABLE_SPREAD, and values of TABLE_CURVE and TABLE_EVAL. */
enum { TEXT_RUN, TEXT_HEAD, TEXT_CURVE };
enum { CURVE_STEP, CURVE_VALUE };
enum { EVAL_STEP, EVAL_BEST, EVAL_TEXTS, EVAL_LOSS, EVAL_TOKENS, EVAL_TREE, EVAL_ACCEPTED };

#endif

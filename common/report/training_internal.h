/* The tables of a report on training, filled by training.c and drawn by training_svg.c. */
#ifndef MOE_REPORT_TRAINING_INTERNAL_H
#define MOE_REPORT_TRAINING_INTERNAL_H

#include "common/report/figure_internal.h"

enum { TABLE_RUN, TABLE_PART, TABLE_EVAL, TABLE_SPREAD, TABLE_CURVE, TABLES };
_Static_assert((int)TABLES <= (int)FIGURE_TABLES, "room for all");

/* Indices of the texts of all tables except TABLE_SPREAD, and of the values of TABLE_CURVE and TABLE_EVAL. */
enum { TEXT_RUN, TEXT_HEAD, TEXT_CURVE };
enum { CURVE_STEP, CURVE_VALUE };
enum { EVAL_STEP, EVAL_BEST, EVAL_TEXTS, EVAL_LOSS, EVAL_TOKENS, EVAL_TREE, EVAL_ACCEPTED };

#endif

/* Analyses that count all tokens first, and read their selections again for pairs or whole tokens: the counts (counts.h) and
 * the spool (spool.h) of the routes, and the results computed from them. */
#ifndef MOE_ROUTE_TALLIED_H
#define MOE_ROUTE_TALLIED_H

#include "common/route/analysis.h"

/* Records `rank` (ranking.h, elimination.h), `coverage` (coverage.h), `matrix` (matrix.h) and `stats` (skew.h). */
extern const struct analysis_class rank_analysis, coverage_analysis, matrix_analysis, stats_analysis;

#endif

/* Cost tables: JSON files with the seconds of a forward over M tokens,
 *
 *     {"cost": [{"m": 1, "seconds": 0.010}, {"m": 2, "seconds": 0.014}, ...], "draft_seconds": 0.0001}
 *
 * as moe-bench sweep writes them. Values between two sizes are interpolated linearly; beyond the last size they continue the
 * line through the last two. draft_seconds, the time of one drafted token, is optional and defaults to 0. Other keys are
 * ignored. */
#ifndef MOE_POLICY_COST_H
#define MOE_POLICY_COST_H

#include "common/base/err.h"
#include "common/predict/union.h"

enum { COST_TOKENS_MAX = 512 };

struct cost_table {
    double seconds[COST_TOKENS_MAX + 1];        /* [1 ..] seconds of a forward over this many tokens */
    double draft;                               /* seconds per drafted token */
};

/* Returns the predicted excess of a forward over M tokens relative to one over a single token, the input of
 * predict/cost_model.h: from the table if there is one (table may be NULL); else from the experts that M tokens are
 * predicted to load, plus 0.02 for each token after the first; without experts, 0.1 for each token after the first. */
double cost_growth(const struct cost_table *table, const struct union_predictor *experts, int M);

int cost_table_read(struct cost_table *out, const char *path, struct err *err);

#endif

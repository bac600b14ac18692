/* What iterations cost, as tables say: a JSON file with the time of a forward over M tokens,
 *
 *     {"cost": [{"m": 1, "seconds": 0.010}, {"m": 2, "seconds": 0.014}, ...], "draft_seconds": 0.0001}
 *
 * as moe-bench sweep writes it. Between two sizes it is interpolated, beyond the last one it grows as between the last two.
 * draft_seconds, for each drafted token, may be missing: 0. Other keys are passed over. */
#ifndef MOE_POLICY_COST_H
#define MOE_POLICY_COST_H

#include "common/base/err.h"
#include "common/predict/union.h"

enum { COST_TOKENS_MAX = 512 };

struct cost_table {
    double seconds[COST_TOKENS_MAX + 1];        /* [1 ..] of a forward over so many tokens */
    double draft;                               /* of drafting one token */
};

/* By how much a forward over M tokens is predicted to exceed one over a single token, as predict/cost_model.h wants it: by the
 * table, else by the experts that M tokens are predicted to load, else by a tenth for each token. table: NULL: none. */
double cost_growth(const struct cost_table *table, const struct union_predictor *experts, int M);

int cost_table_read(struct cost_table *out, const char *path, struct err *err);

#endif

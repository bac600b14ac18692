/* Replay: computes the decisions of a policy and their cost over a recording of drafts (policy/recording.h), without a
 * model. This is possible because with coupled acceptance the text does not depend on drafts.
 *
 * Costs are measured times (where the live run made the same draft, its own measurements, so that its policy decides as it
 * did), nominal bytes (as if memory had a bandwidth of 1 GB/s), or the times of a table. */
#ifndef MOE_BENCH_REPLAY_H
#define MOE_BENCH_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/text.h"
#include "common/policy/cost.h"
#include "common/policy/policy.h"
#include "common/policy/recording.h"

enum replay_cost { REPLAY_TIME, REPLAY_BYTES, REPLAY_TABLE };

struct replay_setup {
    const struct recording *recording;
    const char *policy;                 /* as in --policy; NULL: static */
    const char *tree;                   /* as in --tree; NULL: chains */
    int draft_length;                   /* as in -K, or DRAFT_LENGTH_AUTO or DRAFT_LENGTH_NONE */
    enum replay_cost cost;
    const struct cost_table *table;     /* with REPLAY_TABLE */
};

struct replay_iteration {
    const struct recorded_text *text;
    int position, K;                    /* position of the root; draft length */
    struct outcome outcome;
    struct values policy;               /* state of the policy when it decided */
};

struct replay_result {
    char *policy;
    double seconds, draft_seconds;
    int64_t tokens, iterations, drafts, drafted, accepted;
    int64_t live, same;                 /* iterations of the live run, and those with the same K and nodes here */
};

/* Replays one policy. `each` (may be NULL) receives every iteration. */
typedef int replay_function(void *context, const struct replay_iteration *iteration, struct err *err);
int replay_run(struct replay_result *out, const struct replay_setup *setup, replay_function *each, void *context,
               struct err *err);
void replay_result_free(struct replay_result *result);

/* Results of the requested policies, beside every static draft length in the recording, including 0. */
struct replay_table {
    struct replay_result *result;       /* static 0, 1, ... length; then the policies */
    int statics, count;
};
int replay_compare(struct replay_table *out, const struct replay_setup *setup, const char *const *policies, int count,
                   struct err *err);
void replay_table_free(struct replay_table *table);

/* Append a table of all policies, the same as JSON lines, and a JSON line of one iteration. */
int replay_text(struct text *out, const struct replay_table *table, struct err *err);
int replay_json(struct text *out, const struct replay_table *table, struct err *err);
int replay_iteration_json(struct text *out, const struct replay_iteration *iteration, struct err *err);

#endif

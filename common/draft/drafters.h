/* The drafters in use, best first: opened, closed and given each text together. The number of a drafter is its index in the
 * list. */
#ifndef MOE_DRAFT_DRAFTERS_H
#define MOE_DRAFT_DRAFTERS_H

#include "common/base/err.h"
#include "common/draft/drafter.h"

struct drafters {
    struct drafter *item[DRAFTERS_MAX];
    int count;
};

/* Opens the drafters named by text[count], best first; "none" alone means no drafter. A budget for drafting applies to drafters
 * that support it; at least one must. *out is empty before the call and set on success only. */
int drafters_open(struct drafters *out, const char *const *text, int count, const struct drafter_setup *setup, struct err *err);
void drafters_close(struct drafters *drafters);                 /* frees all drafters; *drafters is {0} afterwards */

/* drafters_begin begins a new text with these tokens; drafters_commit appends tokens to it. */
int drafters_begin(struct drafters *drafters, const struct draft_text *text, const int32_t *token, int count, struct err *err);
int drafters_commit(struct drafters *drafters, const int32_t *token, int count, struct err *err);

/* Passes a forward of the target to all drafters that read states. */
int drafters_observe(struct drafters *drafters, const struct target_view *view, struct err *err);

/* Computes the layers whose states any drafter reads, ascending. Returns -1 if they are more than a forward can provide. */
int drafters_features(const struct drafters *drafters, struct feature_request *out, struct err *err);
int drafters_riders(const struct drafters *drafters);           /* maximum rows that all of them add together */

/* Resets the counters of the drafters; adds the counts since then to share[count]. */
void drafters_reset(struct drafters *drafters);
void drafters_collect(const struct drafters *drafters, struct draft_share *share);

#endif

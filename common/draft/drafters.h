/* The drafters in use, best first: opened and closed together, and given each text together. The number of each is its index
 * in the list. */
#ifndef MOE_DRAFT_DRAFTERS_H
#define MOE_DRAFT_DRAFTERS_H

#include "common/base/err.h"
#include "common/draft/drafter.h"

struct drafters {
    struct drafter *item[DRAFTERS_MAX];
    int count;
};

/* Opens what text[count] name, best first; "none", by itself, is no drafter. A budget for drafting is for those that
 * can follow it, of which there must be one. *out is empty before, and set on success only. */
int drafters_open(struct drafters *out, const char *const *text, int count, const struct drafter_setup *setup, struct err *err);
void drafters_close(struct drafters *drafters);                 /* and back to {0} */

/* A new text, which begins with these tokens; then those by which it grows. */
int drafters_begin(struct drafters *drafters, const struct draft_text *text, const int32_t *token, int count, struct err *err);
int drafters_commit(struct drafters *drafters, const int32_t *token, int count, struct err *err);

/* A forward of the target, to those who look. */
int drafters_see(struct drafters *drafters, const struct target_view *view, struct err *err);

/* The layers that any of them wants to see, ascending. -1: they are more than a forward can show. */
int drafters_features(const struct drafters *drafters, struct feature_request *out, struct err *err);
int drafters_riders(const struct drafters *drafters);           /* rows that they add to a verification, at most */

/* What they count by themselves: from now on, and into share[count] what came since. */
void drafters_reset(struct drafters *drafters);
void drafters_collect(const struct drafters *drafters, struct draft_share *share);

#endif

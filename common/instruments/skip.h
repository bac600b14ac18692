/* Searches offline for the layer parts that a model may skip when it drafts for itself, for moe-profile skip. Prompts are
 * answered greedily up to a window's length; then every candidate (draft/skip_search.h) is scored over the windows of all
 * prompts: the share of matching tokens. */
#ifndef MOE_INSTRUMENTS_SKIP_H
#define MOE_INSTRUMENTS_SKIP_H

#include "common/base/progress.h"
#include "common/draft/skip_search.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"

struct skip_profile_setup {
    const struct session *session;          /* the session's engine must support skip_profile_rows */
    struct skip_search_setup search;
    double ratio;
    int window;
    const struct stop *stop;                /* NULL: none */
};

struct skip_profile;

/* Sets *rows to the rows, all with logits, per forward that a window needs of the engine. */
int skip_profile_rows(int window, int *rows, struct err *err);

int skip_profile_open(struct skip_profile **out, const struct skip_profile_setup *setup, struct err *err);
void skip_profile_close(struct skip_profile **profile);

/* Reads every prompt and keeps its keys and values. bar advances by prompts; may be NULL. */
int skip_profile_read(struct skip_profile *profile, struct prompts *prompts, struct progress *bar, struct err *err);

/* Runs the search. bar advances by candidates. A stop request ends the search with the best set so far; before the first
 * score it is an error. */
int skip_profile_search(struct skip_profile *profile, struct progress *bar, struct skip_set *best, struct skip_found *found,
                        struct err *err);

#endif

/* The search for what a model may leave out when it drafts for itself, before it is asked to: what moe-profile skip does.
 * Prompts are answered greedily, as far as a window goes; then every candidate (draft/skip_search.h) is scored over the
 * windows of all of them: matches over tokens. */
#ifndef MOE_INSTRUMENTS_SKIP_H
#define MOE_INSTRUMENTS_SKIP_H

#include "common/base/progress.h"
#include "common/draft/skip_search.h"
#include "common/prompts/prompts.h"
#include "common/session/session.h"

struct skip_profile_setup {
    const struct session *session;          /* its engine takes skip_profile_rows */
    struct skip_search_setup search;
    double ratio;
    int window;
    const struct stop *stop;                /* NULL: none */
};

struct skip_profile;

/* Rows, and logits, of a forward that the engine must take for a window. */
int skip_profile_rows(int window, int *rows, struct err *err);

int skip_profile_open(struct skip_profile **out, const struct skip_profile_setup *setup, struct err *err);
void skip_profile_close(struct skip_profile **profile);

/* Keeps keys and values of every prompt. A bar steps by prompts; may be NULL. */
int skip_profile_read(struct skip_profile *profile, struct prompts *prompts, struct progress *bar, struct err *err);

/* The bar steps by candidates. The stop ends it with the best set so far; before the first one was scored it is an error. */
int skip_profile_search(struct skip_profile *profile, struct progress *bar, struct skip_set *best, struct skip_found *found,
                        struct err *err);

#endif

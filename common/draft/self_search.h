/* SWIFT's search (skip_search.h) while a target drafts for itself. Once a text has a window of new tokens and one more, each
 * `interval`-th draft scores a candidate over that window, the first new tokens of the text, and what scores best so far is
 * what is left out from then on. All of it goes on over texts, so a score may be of another text than the best one it is
 * compared with, as there. */
#ifndef MOE_DRAFT_SELF_SEARCH_H
#define MOE_DRAFT_SELF_SEARCH_H

#include "common/draft/skip_search.h"
#include "common/engine/engine.h"

struct self_search;

/* part: what is left out besides, for every candidate; its skip_... are not looked at. */
int self_search_open(struct self_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     const struct forward_part *part, struct engine *engine, int window, int interval, struct err *err);
void self_search_close(struct self_search **search);

void self_search_begin(struct self_search *search);                     /* a new text, yet empty */
int self_search_commit(struct self_search *search, const int32_t *token, int count, struct err *err);

/* Before a draft, the target having committed all of the text but its last token to `sequence`. *better: *best is another set
 * now. Adds what it read to *bytes. */
int self_search_step(struct self_search *search, const struct sequence *sequence, struct skip_set *best, bool *better,
                     int64_t *bytes, struct err *err);

#endif

/* SWIFT's search (skip_search.h) while a target drafts for itself. Once a text has a window of new tokens and one token
 * more, each `interval`-th draft scores one candidate over that window, the first new tokens of the text. The best candidate
 * so far is used for drafting from then on. The search continues across texts, so a score may be compared with the best
 * score of another text, as in SWIFT. */
#ifndef MOE_DRAFT_SELF_SEARCH_H
#define MOE_DRAFT_SELF_SEARCH_H

#include "common/draft/skip_search.h"
#include "common/engine/engine.h"

struct self_search;

/* Opens a search. part: parts that every candidate leaves out in addition; its skip_... members are ignored. */
int self_search_open(struct self_search **out, const struct skip_search_setup *setup, const struct skip_set *first,
                     const struct forward_part *part, struct engine *engine, int window, int interval, struct err *err);
void self_search_close(struct self_search **search);

void self_search_begin(struct self_search *search);                     /* begins a new, empty text */
int self_search_commit(struct self_search *search, const int32_t *token, int count, struct err *err);

/* Called before a draft, when the target has committed the text without its last token to `sequence`. *better: *best was
 * replaced. Adds the bytes read to *bytes. */
int self_search_step(struct self_search *search, const struct sequence *sequence, struct skip_set *best, bool *better,
                     int64_t *bytes, struct err *err);

#endif

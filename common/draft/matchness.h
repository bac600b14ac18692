/* How well a target drafts for itself with parts left out: at how many tokens of an answer its most likely one is the one that
 * the answer has. The window is read in one forward after the target's own keys and values of the prompt, as SWIFT does
 * (skip_search.h): what was left out shows in the window's rows alone. */
#ifndef MOE_DRAFT_MATCHNESS_H
#define MOE_DRAFT_MATCHNESS_H

#include "common/engine/engine.h"

struct match_window;

/* Copies what is needed of `from`, which has committed the prompt but for its last token, at least. token: the prompt, then
 * `tokens` of the answer. The engine stays open as long; it takes forwards between those of others. */
int match_window_open(struct match_window **out, struct engine *engine, const struct sequence *from, const int32_t *token,
                      int prompt, int tokens, struct err *err);
void match_window_close(struct match_window **window);
int match_window_tokens(const struct match_window *window);
int match_window_count(struct match_window *window, const struct forward_part *left_out, int *matches, struct err *err);
int64_t match_window_bytes(const struct match_window *window);          /* nominal, of all its forwards so far */

#endif

/* Measures how well a target drafts for itself with parts of its layers skipped: the share of tokens of an answer that equal
 * its most likely token. The window is read in one forward, with the full target's keys and values of the prompt, as in
 * SWIFT (skip_search.h); only the window's rows are computed without the skipped parts. */
#ifndef MOE_DRAFT_MATCHNESS_H
#define MOE_DRAFT_MATCHNESS_H

#include "common/engine/engine.h"

struct match_window;

/* Copies the needed rows of `from`, which must have committed at least the prompt without its last token; reads the prompt
 * again if layers have a state. token: the prompt, then `tokens` tokens of the answer. The engine must stay open; its forwards
 * may alternate with those of other users. */
int match_window_open(struct match_window **out, struct engine *engine, const struct sequence *from, const int32_t *token,
                      int prompt, int tokens, struct err *err);
void match_window_close(struct match_window **window);
int match_window_count(struct match_window *window, const struct forward_part *left_out, int *matches, struct err *err);
int64_t match_window_bytes(const struct match_window *window);          /* nominal bytes read by all forwards of the window
                                                                         * so far */

#endif

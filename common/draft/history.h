/* The text so far, for drafters that search it. */
#ifndef MOE_DRAFT_HISTORY_H
#define MOE_DRAFT_HISTORY_H

#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/draft/tree.h"

struct draft_history {                  /* {0}: empty */
    int32_t *token;                     /* [length] */
    size_t room;
    int length;
};

/* Appends tokens to the text. */
int draft_history_put(struct draft_history *history, const int32_t *token, int count, struct err *err);
void draft_history_free(struct draft_history *history);         /* *history is {0} afterwards */

/* Writes the last tokens of the text and of the path to `leaf` (-1: the root), at most `room`; returns their number. */
int draft_history_tail(const struct draft_history *history, const struct draft_tree *tree, int leaf, int32_t *tail, int room);

#endif

/* Drafts of the present text whose tokens the text has not reached yet. The acceptance estimator of a drafter (estimator.h)
 * learns from each node once the node's parent is in the text, whether the node was verified or not: a node is right if the
 * text continues with its token. */
#ifndef MOE_PREDICT_PENDING_H
#define MOE_PREDICT_PENDING_H

#include "common/predict/estimator.h"

enum { PENDING_DRAFTS = 65 };

struct pending {
    struct pending_draft {
        int nodes, at;                  /* at: the last node that is in the text; -1: the root */
        struct pending_node { int32_t token, parent, drafter; struct estimator_signal signal; } *node;
        int capacity;
    } draft[PENDING_DRAFTS];
    int drafts;
};

/* Adds a draft of nodes with these signals; ignored without free space or memory. */
void pending_add(struct pending *pending, const struct draft_tree *tree, const struct estimator_signal *signal);

/* Calls judge for each node whose parent is now in the text; kept: the text continues with that node. */
typedef void pending_judge(void *context, int drafter, const struct estimator_signal *signal, bool kept);
void pending_follow(struct pending *pending, pending_judge *judge, void *context, const int32_t *token, int count);

void pending_clear(struct pending *pending);            /* before another text */
void pending_free(struct pending *pending);

#endif

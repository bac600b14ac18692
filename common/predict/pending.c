#include "common/predict/pending.h"

#include "common/base/mem.h"

void pending_add(struct pending *pending, const struct draft_tree *tree, const struct estimator_signal *signal)
{
    if (!tree->nodes || pending->drafts == PENDING_DRAFTS)
        return;
    struct pending_draft *draft = &pending->draft[pending->drafts];
    if (draft->capacity < tree->nodes) {
        mem_free(&draft->node);
        draft->node = mem_alloc((size_t)tree->nodes, sizeof *draft->node, NULL);
        draft->capacity = draft->node ? tree->nodes : 0;
        if (!draft->node)
            return;
    }
    draft->nodes = tree->nodes;
    draft->at = -1;
    for (int node = 0; node < tree->nodes; node++)
        draft->node[node] = (struct pending_node){tree->token[node], tree->parent[node], tree->drafter[node], signal[node]};
    pending->drafts++;
}

/* Advances the draft by one token of the text; returns whether drafted nodes remain below that token. */
static bool follow(struct pending_draft *draft, pending_judge *judge, void *context, int32_t token)
{
    const int at = draft->at;
    bool left = false;
    for (int i = at + 1; i < draft->nodes; i++) {
        const struct pending_node *node = &draft->node[i];
        if (node->parent == at) {
            judge(context, node->drafter, &node->signal, node->token == token);
            draft->at = node->token == token ? i : draft->at;
        } else {
            left |= draft->at > at && node->parent == draft->at;
        }
    }
    return left;
}

void pending_follow(struct pending *pending, pending_judge *judge, void *context, const int32_t *token, int count)
{
    for (int i = 0; i < count && pending->drafts; i++) {
        int left = 0;
        for (int at = 0; at < pending->drafts; at++) {
            if (!follow(&pending->draft[at], judge, context, token[i]))
                continue;
            struct pending_draft kept = pending->draft[at];
            pending->draft[at] = pending->draft[left];
            pending->draft[left++] = kept;
        }
        pending->drafts = left;
    }
}

void pending_clear(struct pending *pending) { pending->drafts = 0; }

void pending_free(struct pending *pending)
{
    for (int at = 0; at < PENDING_DRAFTS; at++)
        mem_free(&pending->draft[at].node);
}

#include "common/verify/coupled.h"

#include <stddef.h>

#include "kernels/plain/accept.h"

int coupled_accept(struct sampler *sampler, const struct draft_tree *tree, const float *logits, int vocab, int position,
                   int32_t *path, int32_t *emitted, struct err *err)
{
    int accepted = 0;
    for (int at = -1;; accepted++) {
        int32_t choice = sampler_choose(sampler, logits + (size_t)(at + 1) * (size_t)vocab, position + 1 + accepted, err);
        if (choice < 0)
            return -1;
        emitted[accepted] = choice;
        at = accept_child(tree->token, tree->parent, tree->nodes, at, choice);
        if (at < 0)
            return accepted;
        path[accepted] = at;
    }
}

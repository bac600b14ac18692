#include "common/verify/coupled.h"

#include <stddef.h>

#include "common/verify/acceptance.h"
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

static int accept_coupled(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                          const struct sample_draw *draw, int32_t *path, int32_t *emitted)
{
    const size_t vocab = (size_t)acceptance->setup.vocab;
    struct sample_draw here = *draw;
    int accepted = 0;
    for (int at = -1;; accepted++) {
        here.position = draw->position + 1 + (uint32_t)accepted;
        emitted[accepted] = sample_token(logits + (size_t)(at + 1) * vocab, acceptance->setup.vocab, &acceptance->setup.filter,
                                         &here, acceptance->kept);
        if (emitted[accepted] < 0)
            return -1 - accepted;
        at = accept_child(draft->token, draft->parent, draft->nodes, at, emitted[accepted]);
        if (at < 0)
            return accepted;
        path[accepted] = at;
    }
}

const struct acceptance_class acceptance_coupled = {
    .name = "coupled",
    .summary = "follow the draft as far as it guesses what the target chooses; the text is that without a draft",
    .same_text = true,
    .same_distribution = true,
    .accept = accept_coupled,
};

/* Coupled acceptance (kernels/plain/accept.h): the target chooses a token after the root. While a child of the current node
 * carries the chosen token, that child becomes the current node and the target chooses again. All emitted tokens are the
 * target's own choices, so the text is that of decoding without a draft. Only rows on the accepted path are read. */
#include <stddef.h>

#include "common/verify/acceptance.h"
#include "kernels/plain/accept.h"
#include "kernels/plain/sample.h"

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

static int follow_coupled(const struct reject_draft *draft, const int32_t *choice, int32_t *path, int32_t *emitted)
{
    const int accepted = accept_walk(draft->token, draft->parent, draft->nodes, choice, path);
    for (int i = 0; i <= accepted; i++)
        emitted[i] = choice[i ? path[i - 1] + 1 : 0];
    return emitted[accepted] < 0 ? -1 - accepted : accepted;
}

const struct acceptance_class acceptance_coupled = {
    .name = "coupled",
    .summary = "follow the draft as far as it guesses what the target chooses; the text is that without a draft",
    .same_text = true,
    .same_distribution = true,
    .accept = accept_coupled,
    .follow = follow_coupled,
};

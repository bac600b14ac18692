#include "common/verify/acceptance.h"

static int accept_by_rejection(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                               const struct sample_draw *draw, int32_t *path, int32_t *emitted)
{
    return reject_walk(draft, logits, acceptance->setup.vocab, &acceptance->setup.filter, draw, acceptance->kept,
                       acceptance->probability, path, emitted);
}

const struct acceptance_class acceptance_rejection = {
    .name = "rejection",
    .summary = "keep tokens at random so that the text is distributed as without a draft",
    .same_distribution = true,
    .wants_proposals = true,
    .accept = accept_by_rejection,
};

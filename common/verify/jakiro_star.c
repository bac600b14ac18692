#include "kernels/plain/branches.h"

#include "common/verify/acceptance.h"

/* Accepts like the program; at temperature 0, which the program does not support, like the rejection rule. */
static int accept_jakiro_star(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                              const struct sample_draw *draw, int32_t *path, int32_t *emitted)
{
    const struct acceptance_setup *setup = &acceptance->setup;
    return (setup->filter.temperature > 0 ? branches_walk : reject_walk)(
        draft, logits, setup->vocab, &setup->filter, draw, acceptance->kept, acceptance->probability, path, emitted);
}

const struct acceptance_class acceptance_jakiro_star = {
    .name = "jakiro-star",
    .summary = "keep tokens as the program of Jakiro* does, a head of that kind; not lossless",
    .wants_proposals = true,
    .wants_branches = true,
    .accept = accept_jakiro_star,
};

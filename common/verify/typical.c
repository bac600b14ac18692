#include "kernels/plain/typical.h"

#include "common/verify/acceptance.h"

/* Reads epsilon and delta. Both are probabilities: a threshold of 0 still rejects tokens that the filter removed, and a
 * threshold of 1 rejects all. */
static int open_typical(struct acceptance *acceptance, struct spec *spec, struct err *err)
{
    return spec_float(spec, "epsilon", 0.09, 0, 1, &acceptance->epsilon, err) ||
           spec_float(spec, "delta", 0.3, 0, 1, &acceptance->delta, err) ? -1 : 0;
}

static int accept_typical(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                          const struct sample_draw *draw, int32_t *path, int32_t *emitted)
{
    (void)draw;                         /* this rule draws nothing at random */
    return typical_walk(draft->token, draft->parent, draft->nodes, logits, acceptance->setup.vocab, &acceptance->setup.filter,
                        acceptance->epsilon, acceptance->delta, acceptance->kept, acceptance->probability, acceptance->score,
                        acceptance->depth, path, emitted);
}

const struct acceptance_class acceptance_typical = {
    .name = "typical",
    .summary = "keep what the target finds likely enough; not lossless",
    .settings = "epsilon=P,delta=P",
    .open = open_typical,
    .accept = accept_typical,
};

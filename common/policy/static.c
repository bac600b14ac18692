/* Static: the first drafter extends the root by a chain of K tokens, always the same K. K = 0 drafts nothing. */
#include "common/policy/policy.h"

#include "common/base/mem.h"

enum { K_DEFAULT = 4 };

struct static_policy {
    struct policy base;
    int K;
};

static int static_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int K, otherwise = setup->draft_length < 0 ? K_DEFAULT : setup->draft_length;
    if (spec_int(spec, "K", otherwise, 0, setup->max_nodes, &K, err))
        return -1;
    if (setup->draft_length >= 0 && K != setup->draft_length)
        return err_set(err, ERR_INPUT, "static: K=%d, but the draft length is given as %d; give it once", K,
                       setup->draft_length);
    struct static_policy *policy = mem_alloc(1, sizeof *policy, err);
    if (!policy)
        return -1;
    policy->K = setup->drafters ? K : 0;
    *out = &policy->base;
    return 0;
}

static struct step static_next(struct policy *policy, const struct draft_view *view)
{
    int K = ((struct static_policy *)policy)->K;
    if (view->steps || !K)
        return (struct step){.kind = STEP_STOP};
    return (struct step){.kind = STEP_EXTEND, .leaf = -1, .drafter = 0, .tokens = K, .siblings = 1};
}

static int static_length(const struct policy *policy)
{
    return ((const struct static_policy *)policy)->K;
}

static void static_state(const struct policy *policy, struct values *out)
{
    values_text(out, "name", policy->class->name);
    values_int(out, "K", static_length(policy));
}

static void static_free(struct policy *policy)
{
    mem_free(&policy);
}

const struct policy_class policy_static = {
    .name = "static",
    .summary = "always the same draft length",
    .settings = "K=N",
    .open = static_open,
    .next = static_next,
    .length = static_length,
    .state = static_state,
    .free = static_free,
};

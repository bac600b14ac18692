/* Static: the same shape in every iteration, a chain of K tokens or a tree of at most K levels, from the first drafter that
 * proposes anything (shape_next). K = 0: no draft. */
#include "common/policy/shape.h"

#include "common/base/mem.h"
#include "kernels/plain/loop.h"

struct static_policy {
    struct policy base;
    struct shape *shape;
    int K;
};

static int static_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int K, otherwise = setup->draft_length < 0 ? setup->shape->depth : setup->draft_length;
    if (spec_int(spec, "K", otherwise, 0, setup->max_length, &K, err))
        return -1;
    if (setup->draft_length == DRAFT_LENGTH_AUTO)
        return err_set(err, ERR_INPUT, "static: -K auto is for policies that choose the draft length; leave out one of the "
                       "two");
    if (setup->draft_length >= 0 && K != setup->draft_length)
        return err_set(err, ERR_INPUT, "static: K=%d contradicts -K %d; give one of the two", K,
                       setup->draft_length);
    struct static_policy *policy = mem_alloc(1, sizeof *policy, err);
    if (!policy)
        return -1;
    policy->shape = setup->shape;
    policy->K = !setup->drafters ? 0 : setup->shape->class != &shape_chain && K > setup->shape->depth ? setup->shape->depth : K;
    *out = &policy->base;
    return 0;
}

static struct step static_next(struct policy *policy, const struct draft_view *view)
{
    struct static_policy *mine = (struct static_policy *)policy;
    return mine->K ? shape_next(mine->shape, view, mine->K) : (struct step){.kind = STEP_STOP};
}

static int static_length(const struct policy *policy)
{
    return ((const struct static_policy *)policy)->K;
}

static void static_state(const struct policy *policy, struct values *out)
{
    const struct shape *shape = ((const struct static_policy *)policy)->shape;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", static_length(policy));
    if (shape->class == &shape_chain)
        return;
    values_text(out, "tree", shape->class->name);
    if (shape->class->state)
        shape->class->state(shape, out);
}

static bool static_device(const struct policy *policy, struct loop_rules *rules)
{
    (void)policy;
    rules->adapts = 0;
    return true;
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
    .device = static_device,
    .free = static_free,
};

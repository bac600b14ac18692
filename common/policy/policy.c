#include "common/policy/policy.h"

#include <stddef.h>

#include "common/policy/shape.h"

const struct policy_class *const policy_classes[] = {
    &policy_static, &policy_cascade, &policy_cascade_cost, &policy_tiers, &policy_table, &policy_off,
    &policy_oracle, &policy_vertical, &policy_horizontal, &policy_cs_drafting, &policy_tr, &policy_dytc,
    &policy_dytc_verify, &policy_evict, &policy_evict_experts, &policy_bastion, &policy_threshold, NULL};

enum { POLICIES = sizeof policy_classes / sizeof *policy_classes - 1 };

/* Parses the spec of the policy that `text` names, or of the default, and finds its index in the list. */
static int pick(struct spec **spec, const char *text, int draft_length, int *which, struct err *err)
{
    const char *otherwise = draft_length == DRAFT_LENGTH_AUTO ? policy_cascade_cost.name : policy_static.name;
    const char *names[POLICIES];
    for (int i = 0; i < POLICIES; i++)
        names[i] = policy_classes[i]->name;
    return spec_parse(spec, text ? text : otherwise, err) || spec_pick(*spec, "a policy", names, POLICIES, which, err) ? -1 : 0;
}

const struct policy_class *policy_find(const char *text, int draft_length)
{
    struct spec *spec = NULL;
    struct err err = {0};
    int which;
    const struct policy_class *found = pick(&spec, text, draft_length, &which, &err) ? NULL : policy_classes[which];
    spec_free(&spec);
    return found;
}

int policy_open(struct policy **out, const char *text, const struct policy_setup *setup, struct err *err)
{
    struct policy *policy = NULL;
    struct spec *spec = NULL;
    struct policy_setup own = *setup;
    int which, rc = -1;
    if (pick(&spec, text, setup->draft_length, &which, err))
        goto done;
    own.like = setup->like && setup->like->class == policy_classes[which] ? setup->like : NULL;
    if (policy_classes[which]->open(&policy, spec, &own, err))
        goto done;
    policy->class = policy_classes[which];
    if (setup->shape)
        setup->shape->drafters = setup->drafters;
    if (policy->class->begin)
        policy->class->begin(policy, &(struct policy_text){0});
    if (spec_end(spec, err))
        goto done;
    *out = policy;
    policy = NULL;
    rc = 0;
done:
    policy_close(&policy);
    spec_free(&spec);
    return rc;
}

void policy_close(struct policy **policy)
{
    if (*policy)
        (*policy)->class->free(*policy);
    *policy = NULL;
}

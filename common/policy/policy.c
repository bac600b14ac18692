#include "common/policy/policy.h"

#include <string.h>

#include "common/cli/nearest.h"

const struct policy_class *const policy_classes[] = {&policy_static, NULL};

static int find_class(const struct policy_class **out, const char *kind, struct err *err)
{
    struct nearest nearest = {.word = kind};
    for (const struct policy_class *const *class = policy_classes; *class; class++) {
        nearest_offer(&nearest, (*class)->name);
        if (strcmp(kind, (*class)->name) == 0) {
            *out = *class;
            return 0;
        }
    }
    if (nearest.best)
        return err_set(err, ERR_INPUT, "'%s' is not a policy; did you mean %s?", kind, nearest.best);
    return err_set(err, ERR_INPUT, "'%s' is not a policy; there is static", kind);
}

int policy_open(struct policy **out, const char *text, const struct policy_setup *setup, struct err *err)
{
    const struct policy_class *class = NULL;
    struct policy *policy = NULL;
    struct spec *spec = NULL;
    int rc = -1;
    if (spec_parse(&spec, text ? text : policy_static.name, err) || find_class(&class, spec_kind(spec), err) ||
        class->open(&policy, spec, setup, err))
        goto done;
    policy->class = class;
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

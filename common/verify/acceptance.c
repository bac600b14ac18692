#include "common/verify/acceptance.h"

#include <string.h>

#include "common/base/mem.h"

const struct acceptance_class *const acceptance_classes[] = {
    &acceptance_coupled, &acceptance_rejection, &acceptance_typical, &acceptance_jakiro_star, NULL,
};

enum { RULES = sizeof acceptance_classes / sizeof *acceptance_classes - 1 };

static int take_scratch(struct acceptance *acceptance, struct err *err)
{
    const size_t vocab = (size_t)acceptance->setup.vocab, nodes = (size_t)acceptance->setup.nodes;
    acceptance->kept = mem_alloc(vocab, sizeof *acceptance->kept, err);
    acceptance->probability = mem_alloc(vocab, sizeof *acceptance->probability, err);
    acceptance->score = mem_alloc(nodes, sizeof *acceptance->score, err);
    acceptance->depth = mem_alloc(nodes, sizeof *acceptance->depth, err);
    return acceptance->kept && acceptance->probability && acceptance->score && acceptance->depth ? 0 : -1;
}

int acceptance_open(struct acceptance **out, const char *text, const struct acceptance_setup *setup, struct err *err)
{
    struct acceptance *acceptance = mem_alloc(1, sizeof *acceptance, err);
    const char *names[RULES];
    struct spec *spec = NULL;
    int which, rc = -1;
    if (!acceptance)
        return -1;
    acceptance->setup = *setup;
    for (int i = 0; i < RULES; i++)
        names[i] = acceptance_classes[i]->name;
    if (spec_parse(&spec, text ? text : names[0], err) || spec_pick(spec, "an acceptance rule", names, RULES, &which, err))
        goto done;
    acceptance->class = acceptance_classes[which];
    if ((acceptance->class->open && acceptance->class->open(acceptance, spec, err)) || spec_end(spec, err) ||
        take_scratch(acceptance, err))
        goto done;
    *out = acceptance;
    acceptance = NULL;
    rc = 0;
done:
    acceptance_close(&acceptance);
    spec_free(&spec);
    return rc;
}

void acceptance_close(struct acceptance **acceptance)
{
    struct acceptance *a = *acceptance;
    if (a) {
        mem_free(&a->kept);
        mem_free(&a->probability);
        mem_free(&a->score);
        mem_free(&a->depth);
    }
    mem_free(acceptance);
}

static int finite_before(int accepted, int position, struct err *err)
{
    return accepted >= 0 ? accepted
        : err_set(err, ERR_INPUT, "the logits at position %d are not finite; the model's weights are damaged",
                  position - accepted);
}

int acceptance_accept(const struct acceptance *acceptance, const struct reject_draft *draft, const float *logits,
                      const struct sample_draw *draw, int32_t *path, int32_t *emitted, struct err *err)
{
    return finite_before(acceptance->class->accept(acceptance, draft, logits, draw, path, emitted), (int)draw->position, err);
}

int acceptance_follow(const struct acceptance *acceptance, const struct reject_draft *draft, const int32_t *choice,
                      int position, int32_t *path, int32_t *emitted, struct err *err)
{
    return finite_before(acceptance->class->follow(draft, choice, path, emitted), position, err);
}

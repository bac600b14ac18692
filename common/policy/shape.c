#include "common/policy/shape.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/cli/nearest.h"

const struct shape_class *const shape_classes[] = {&shape_chain, &shape_static, &shape_dynamic, NULL};

static int find_class(const struct shape_class **out, const char *kind, struct err *err)
{
    struct nearest nearest = {.word = kind};
    for (const struct shape_class *const *class = shape_classes; *class; class++) {
        nearest_offer(&nearest, (*class)->name);
        if (strcmp(kind, (*class)->name) == 0) {
            *out = *class;
            return 0;
        }
    }
    if (nearest.best)
        return err_set(err, ERR_INPUT, "'%s' is not a shape of drafts; did you mean %s?", kind, nearest.best);
    return err_set(err, ERR_INPUT, "'%s' is not a shape of drafts; there are chain, static and dynamic", kind);
}

int shape_open(struct shape **out, const char *text, struct err *err)
{
    const struct shape_class *class = NULL;
    struct shape *shape = NULL;
    struct spec *spec = NULL;
    int rc = -1;
    if (spec_parse(&spec, text ? text : shape_classes[0]->name, err) || find_class(&class, spec_kind(spec), err) ||
        class->open(&shape, spec, err))
        goto done;
    shape->class = class;
    if (spec_end(spec, err))
        goto done;
    *out = shape;
    shape = NULL;
    rc = 0;
done:
    shape_close(&shape);
    spec_free(&spec);
    return rc;
}

void shape_close(struct shape **shape)
{
    if (*shape)
        (*shape)->class->free(*shape);
    *shape = NULL;
}

/* A chain: one step below the root, and all tokens in it. */

enum { CHAIN_DEFAULT = 4 };

static int chain_open(struct shape **out, struct spec *spec, struct err *err)
{
    struct shape *shape = mem_alloc(1, sizeof *shape, err);
    (void)spec;
    if (!shape)
        return -1;
    *shape = (struct shape){.depth = CHAIN_DEFAULT, .nodes = SHAPE_DEPTH_MAX, .room = SHAPE_DEPTH_MAX};
    *out = shape;
    return 0;
}

static struct step chain_next(struct shape *shape, const struct draft_view *view, int depth)
{
    static const struct draft_leaf root = {-1, 1};
    (void)shape;
    if (view->steps || !depth)
        return (struct step){.kind = STEP_STOP};
    return (struct step){.kind = STEP_EXTEND, .tokens = depth, .leaf = &root, .leaves = 1};
}

static void chain_free(struct shape *shape)
{
    mem_free(&shape);
}

const struct shape_class shape_chain = {
    .name = "chain",
    .summary = "one token after the other",
    .open = chain_open,
    .next = chain_next,
    .free = chain_free,
};

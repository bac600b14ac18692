#include "common/policy/shape.h"

#include <stddef.h>

#include "common/base/mem.h"

const struct shape_class *const shape_classes[] = {&shape_chain, &shape_static, &shape_dynamic, &shape_own, NULL};

enum { SHAPES = sizeof shape_classes / sizeof *shape_classes - 1 };

int shape_open(struct shape **out, const char *text, struct err *err)
{
    const char *names[SHAPES];
    struct shape *shape = NULL;
    struct spec *spec = NULL;
    int which, rc = -1;
    for (int i = 0; i < SHAPES; i++)
        names[i] = shape_classes[i]->name;
    if (spec_parse(&spec, text ? text : names[0], err) ||
        spec_pick(spec, "a shape of drafts", names, SHAPES, &which, err) || shape_classes[which]->open(&shape, spec, err))
        goto done;
    shape->class = shape_classes[which];
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

struct step shape_next(struct shape *shape, const struct draft_view *view, int depth)
{
    struct draft_view mine = *view;
    if (!view->steps) {
        shape->drafter = shape->since = 0;
    } else if (!view->added && view->steps == shape->since + 1 && shape->drafter + 1 < shape->drafters) {
        shape->drafter++;
        shape->since = view->steps;
    }
    mine.steps -= shape->since;
    struct step step = shape->class->next(shape, &mine, depth);
    step.drafter = shape->drafter;
    return step;
}

/* A chain: one step with all tokens, below the root. */

enum { CHAIN_DEFAULT = 4 };

static int chain_open(struct shape **out, struct spec *spec, struct err *err)
{
    struct shape *shape = mem_alloc(1, sizeof *shape, err);
    (void)spec;
    if (!shape)
        return -1;
    *shape = (struct shape){.depth = CHAIN_DEFAULT, .nodes = SHAPE_DEPTH_MAX, .room = SHAPE_DEPTH_MAX,
                            .added = SHAPE_DEPTH_MAX};
    *out = shape;
    return 0;
}

static struct step chain_next(struct shape *shape, const struct draft_view *view, int depth)
{
    static const struct draft_leaf root = {-1, 1};
    (void)shape;
    if (view->steps || !depth)
        return (struct step){.kind = STEP_STOP};
    return (struct step){.kind = STEP_EXTEND, .tokens = depth, .levels = depth, .leaf = &root, .leaves = 1};
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

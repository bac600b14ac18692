/* A tree of the drafter's own shape, as published with the drafter: all branches in one step, such that the verifying forward
 * has at most `total` tokens with the root; at most `depth` levels. */
#include "common/policy/shape.h"

#include "common/base/mem.h"

enum { TOTAL_DEFAULT = 64 };

static int own_open(struct shape **out, struct spec *spec, struct err *err)
{
    int total, depth;
    if (spec_int(spec, "total", TOTAL_DEFAULT, 2, SHAPE_NODES_MAX + 1, &total, err) ||
        spec_int(spec, "depth", SHAPE_DEPTH_MAX, 1, SHAPE_DEPTH_MAX, &depth, err))
        return -1;
    struct shape *shape = mem_alloc(1, sizeof *shape, err);
    if (!shape)
        return -1;
    *shape = (struct shape){.depth = depth, .nodes = total - 1, .room = total - 1, .added = total - 1};
    *out = shape;
    return 0;
}

static struct step own_next(struct shape *shape, const struct draft_view *view, int depth)
{
    static const struct draft_leaf root = {-1, DRAFT_OWN};
    if (view->steps || !depth)
        return (struct step){.kind = STEP_STOP};
    depth = depth < shape->depth ? depth : shape->depth;
    return (struct step){.kind = STEP_EXTEND, .tokens = depth, .leaf = &root, .leaves = 1};
}

static void own_state(const struct shape *shape, struct values *out)
{
    values_int(out, "total", shape->nodes + 1);
}

static void own_free(struct shape *shape)
{
    mem_free(&shape);
}

const struct shape_class shape_own = {
    .name = "own",
    .summary = "the tree that its drafter makes as it likes",
    .settings = "total=N,depth=N",
    .open = own_open,
    .next = own_next,
    .state = own_state,
    .free = own_free,
};

#include "common/decode/grow.h"

enum { STEPS_MAX = 256 };               /* of a policy in one iteration */

/* Lets the drafter grow the tree. A token deeper than the answer can still get would be no use. */
static int extend(struct draft_tree *tree, struct drafter *drafter, const struct step *step, struct draft_leaf *leaf, int room,
                  struct err *err)
{
    int leaves = 0, tokens = step->tokens;
    for (int at = 0; at < step->leaves; at++) {
        int depth = step->leaf[at].node < 0 ? 0 : tree->depth[step->leaf[at].node];
        if (depth < room && leaves <= tree->capacity) {
            leaf[leaves++] = step->leaf[at];
            tokens = tokens < room - depth ? tokens : room - depth;
        }
    }
    return leaves && tokens > 0 ? drafter->class->propose(drafter, tree, leaf, leaves, tokens, err) : 0;
}

/* Drops what the policy does not keep. */
static int keep(struct draft_tree *tree, const struct step *step, struct err *err)
{
    for (int node = 0, at = 0; node < tree->nodes; node++) {
        bool kept = at < step->kept && step->keep[at] == node;
        at += kept;
        if (!kept && tree->proposal[node])
            return err_set(err, ERR_INPUT, "the policy drops tokens that were drawn, which would change the distribution; it "
                           "must say so beforehand");
    }
    return draft_tree_keep(tree, step->keep, step->kept)
        ? err_set(err, ERR_INPUT, "the policy keeps nodes without their parents") : 0;
}

int draft_grow(struct draft_tree *tree, struct policy *policy, struct drafter *drafter, struct draft_leaf *leaf, int room,
               struct err *err)
{
    struct draft_view view = {.tree = tree, .room = room};
    int drafted = 0;
    draft_tree_clear(tree);
    for (; view.steps < STEPS_MAX; view.steps++) {
        struct step step = policy->class->next(policy, &view);
        view.added = 0;
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            if (keep(tree, &step, err))
                return -1;
            continue;
        }
        view.added = extend(tree, drafter, &step, leaf, room, err);
        if (view.added < 0)
            return -1;
        drafted += view.added;
    }
    return drafted;
}

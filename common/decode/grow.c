#include "common/decode/grow.h"

#include "common/base/clock.h"

static int depth_of(const struct draft_tree *tree, int node) { return node < 0 ? 0 : tree->depth[node]; }

/* Extends the tree by a drafter, at most to the depth that the answer can still use. */
static int extend(const struct growth *growth, const struct step *step, int room, struct err *err)
{
    struct draft_tree *tree = growth->tree;
    struct drafter *drafter = growth->drafters->item[step->drafter];
    struct draft_share *share = &growth->share[step->drafter];
    int leaves = 0, tokens = step->tokens;
    for (int at = 0; at < step->leaves; at++) {
        int depth = depth_of(tree, step->leaf[at].node);
        if (depth < room && leaves <= tree->capacity) {
            growth->leaf[leaves] = step->leaf[at];
            if (step->leaf[at].siblings == DRAFT_OWN && !drafter->class->own_trees)
                growth->leaf[leaves].siblings = 1;
            leaves++;
            tokens = tokens < room - depth ? tokens : room - depth;
        }
    }
    if (!leaves || tokens <= 0)
        return 0;
    tree->levels = step->levels;
    double began = clock_seconds();
    int added = drafter->class->propose(drafter, tree, growth->leaf, leaves, tokens, err);
    share->seconds += clock_seconds() - began;
    share->steps++;
    share->levels += tokens;
    share->proposed += added > 0 ? added : 0;
    return added;
}

/* Records a dropped node for the present step, unless the list is full. */
static void note_dropped(struct draft_steps *steps, const struct draft_tree *tree, int node)
{
    const int at = steps->drops;
    if (at == DRAFT_DROPPED_MAX)
        return;
    steps->drops++;
    steps->dropped[steps->count]++;
    steps->node[at] = 1 + node;
    steps->parent[at] = 1 + tree->parent[node];
    steps->token[at] = tree->token[node];
    steps->by[at] = tree->drafter[node];
    steps->match[at] = tree->match[node];
    steps->log_probability[at] = tree->log_probability[node];
}

/* Drops the nodes that the policy does not keep, and records them in *steps unless it is NULL. */
static int keep(struct draft_tree *tree, const struct step *step, struct draft_steps *steps, struct err *err)
{
    if (steps)
        steps->dropped[steps->count] = 0;
    for (int node = 0, at = 0; node < tree->nodes; node++) {
        bool kept = at < step->kept && step->keep[at] == node;
        at += kept;
        if (!kept && tree->proposal[node])
            return err_set(err, ERR_INPUT, "the policy drops drawn tokens, which would change the distribution; its class "
                           "must set `drops`");
        if (!kept && steps)
            note_dropped(steps, tree, node);
    }
    return draft_tree_keep(tree, step->keep, step->kept)
        ? err_set(err, ERR_INPUT, "the policy keeps nodes without their parents") : 0;
}

/* Runs a drafter's review of the nodes below a leaf. Returns the number of nodes that the drafter added. */
static int review(const struct growth *growth, const struct step *step, int room, int *agreed, struct err *err)
{
    struct draft_tree *tree = growth->tree;
    struct drafter *drafter = growth->drafters->item[step->drafter];
    struct draft_share *share = &growth->share[step->drafter];
    const int leaf = step->leaves == 1 ? step->leaf->node : tree->nodes, before = tree->nodes;
    bool drawn = false;
    if (!drafter->class->review)
        return err_set(err, ERR_INPUT, "the policy requests a review by %s, which cannot review", drafter->class->name);
    if (leaf < -1 || leaf >= before)
        return err_set(err, ERR_INPUT, "the policy requests a review below a leaf that does not exist");
    if (depth_of(tree, leaf) >= room)
        return 0;
    for (int node = leaf + 1; node < before; node++)
        if (draft_tree_is_below(tree, node, leaf)) {
            share->reviewed += tree->drafter[node] != drafter->number;
            drawn |= tree->proposal[node] != NULL;
        }
    tree->levels = 0;
    double began = clock_seconds();
    int added = drafter->class->review(drafter, tree, leaf, agreed, err);
    share->seconds += clock_seconds() - began;
    share->steps++;
    share->levels++;
    share->proposed += added > 0 ? added : 0;
    for (int node = leaf + 1; added >= 0 && drawn && node < tree->nodes; node++)
        if (draft_tree_is_below(tree, node, leaf) && !tree->proposal[node])
            return err_set(err, ERR_INPUT, "%s reviews drawn tokens without setting the distribution that it drew from, which "
                           "would change the text's distribution", drafter->class->name);
    if (added > 0 && tree->depth[tree->nodes - 1] > room)       /* too deep to be of use, whatever token it is */
        tree->nodes--;
    return added;
}

/* Adds a step to the list of those that the policy requested. */
static void note(struct draft_steps *steps, const struct step *step, int added)
{
    const int at = steps->count++;
    const bool keeps = step->kind == STEP_KEEP;
    steps->kind[at] = (int32_t)step->kind;
    steps->drafter[at] = keeps ? -1 : step->drafter;
    steps->leaf[at] = keeps || !step->leaves ? 0 : 1 + step->leaf[0].node;
    steps->leaves[at] = keeps ? 0 : step->leaves;
    steps->tokens[at] = step->kind == STEP_EXTEND ? step->tokens : 0;
    steps->added[at] = added;
    steps->dropped[at] = keeps ? steps->dropped[at] : 0;
}

int draft_grow(const struct growth *growth, int room, struct err *err)
{
    struct draft_view view = {.tree = growth->tree, .room = room};
    const int drafters = growth->drafters->count;
    int drafted = 0;
    draft_tree_clear(growth->tree);
    drafters_reset(growth->drafters);
    for (int i = 0; i < drafters; i++)
        growth->share[i] = (struct draft_share){.steps = 0};
    if (growth->steps)
        growth->steps->count = growth->steps->drops = 0;
    for (; view.steps < DRAFT_STEPS_MAX; view.steps++) {
        struct step step = growth->policy->class->next(growth->policy, &view);
        view.added = view.agreed = 0;
        if (step.kind == STEP_STOP)
            break;
        if (step.kind == STEP_KEEP) {
            if (keep(growth->tree, &step, growth->steps, err))
                return -1;
            if (growth->steps)
                note(growth->steps, &step, 0);
            continue;
        }
        if (step.drafter < 0 || step.drafter >= drafters)
            return err_set(err, ERR_INPUT, "the policy requests tokens from drafter number %d, but there are %d drafters",
                           step.drafter, drafters);
        view.added = step.kind == STEP_REVIEW ? review(growth, &step, room, &view.agreed, err)
                                              : extend(growth, &step, room, err);
        if (view.added < 0)
            return -1;
        if (growth->steps)
            note(growth->steps, &step, view.added);
        drafted += view.added;
    }
    drafters_collect(growth->drafters, growth->share);
    return drafted;
}

void draft_count_kept(const struct draft_tree *tree, const uint8_t *kept, struct draft_share *share)
{
    for (int node = 0; node < tree->nodes; node++) {
        share[tree->drafter[node]].verified++;
        share[tree->drafter[node]].accepted += kept[1 + node];
    }
}

/* Tr, the tree of SWIFT (Xia et al., arXiv 2410.06916): a chain of the first drafter's most probable tokens, with further
 * leaves at each level. The number of leaves depends on the probability of the most probable token:
 *
 *     probability                         above .95   above .8   above .5   else
 *     leaves of the level, all included       3           5          8       10       at temperature 0
 *                                             1           3          5       10       above
 *
 * The tree ends with the first level whose most probable token is below `min` (.8), after `max` levels (25), or at 64 nodes. A
 * drafter without probabilities counts as certain. Each level is drafted with the largest number of leaves, and surplus leaves
 * are dropped at once. */
#include "common/policy/shape.h"

#include <math.h>

#include "common/base/mem.h"

enum { NODES = SHAPE_DEPTH_MAX, LEAVES = 10, GROUPS = 4 };

struct tr {
    struct policy base;
    int max;
    double min;
    bool sampled;
    int K;
    int last;                           /* last node of the chain; -1: the root */
    bool ended, grew;                   /* no further level; the previous step grew one */
    int32_t keep[NODES];
    struct draft_leaf leaf;
};

static int leaves_for(const struct tr *tr, double probability)
{
    static const int cold[GROUPS] = {3, 5, 8, 10}, warm[GROUPS] = {1, 3, 5, 10};
    int group = probability > 0.95 ? 0 : probability > 0.8 ? 1 : probability > 0.5 ? 2 : 3;
    return (tr->sampled ? warm : cold)[group];
}

/* Processes the added level: its most probable leaf continues the chain, and the level's number of leaves is kept. Stores all
 * kept nodes in keep, and returns their number. */
static int take_level(struct tr *tr, const struct draft_tree *tree, int from)
{
    int best = from, kept = 0;
    for (int node = from; node < tree->nodes; node++)
        if (tree->log_probability[node] > tree->log_probability[best])
            best = node;
    double probability = exp((double)tree->log_probability[best]);
    int leaves = leaves_for(tr, isnan(probability) ? 1 : probability), others = leaves - 1;
    for (int node = 0; node < tree->nodes; node++) {
        if (node == best)
            tr->last = kept;
        if (node < from || node == best || others-- > 0)
            tr->keep[kept++] = node;
    }
    tr->ended = probability < tr->min;
    return kept;
}

static struct step tr_next(struct policy *policy, const struct draft_view *view)
{
    struct tr *tr = (struct tr *)policy;
    const struct draft_tree *tree = view->tree;
    const int max = tr->max < view->room ? tr->max : view->room;
    if (!view->steps) {
        tr->last = -1;
        tr->ended = tr->grew = false;
    }
    if (tr->grew) {
        tr->grew = false;
        tr->ended |= !view->added;
        int kept = view->added ? take_level(tr, tree, tree->nodes - view->added) : tree->nodes;
        if (kept < tree->nodes)
            return (struct step){.kind = STEP_KEEP, .keep = tr->keep, .kept = kept};
    }
    const int depth = tr->last < 0 ? 0 : tree->depth[tr->last], left = NODES - tree->nodes;
    tr->K = tree->nodes;
    if (tr->ended || depth >= max || left < 1)
        return (struct step){.kind = STEP_STOP};
    tr->grew = true;
    tr->leaf = (struct draft_leaf){tr->last, LEAVES < left ? LEAVES : left};
    return (struct step){.kind = STEP_EXTEND, .tokens = 1, .leaf = &tr->leaf, .leaves = 1};
}

static int tr_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int limit = setup->max_length < NODES ? setup->max_length : NODES;
    int cap = setup->draft_length >= 0 ? setup->draft_length : 25;
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "tr: builds its own trees; leave --tree out");
    struct tr *tr = mem_alloc(1, sizeof *tr, err);
    if (!tr)
        return -1;
    tr->sampled = setup->sampled;
    if (spec_int(spec, "max|most", cap < limit ? cap : limit, 0, limit, &tr->max, err) ||
        spec_float(spec, "min|least", 0.8, 0, 1, &tr->min, err)) {
        mem_free(&tr);
        return -1;
    }
    tr->max = setup->drafters ? tr->max : 0;
    *out = &tr->base;
    return 0;
}

static int tr_length(const struct policy *policy) { return ((const struct tr *)policy)->K; }

static void tr_state(const struct policy *policy, struct values *out)
{
    values_text(out, "name", policy->class->name);
    values_int(out, "K", tr_length(policy));
}

static void tr_free(struct policy *policy) { mem_free(&policy); }

const struct policy_class policy_tr = {
    .name = "tr",
    .summary = "SWIFT's tree: a chain, with more leaves where it is less sure",
    .settings = "max=N,min=X",
    .needs_probabilities = true,
    .drops = true,
    .trees = true,
    .open = tr_open,
    .next = tr_next,
    .length = tr_length,
    .state = tr_state,
    .free = tr_free,
};

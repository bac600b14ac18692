/* DyTC's objective with moekit's stop rule, after a summary of the paper (CAS-Spec, arXiv 2510.26843); the full text was
 * not available. A tree grows at its most probable leaf, by the drafter s and the number of tokens k that maximise
 *
 *     T(s, k) = (a (1 - a^k) / (1 - a) + a^k a_n) / (c k + c_n)
 *
 * where a is the acceptance rate of s and c its cost, and a_n and c_n are those of the cheapest (last) drafter, whose single
 * token represents all later ones. The acceptance rate is a_new = lambda a_old + (1 - lambda) a_recent, where a_recent is the
 * mean over the last H tokens that were accepted or rejected. A leaf's probability is computed from its tokens: from their
 * drafters' logits, or from the lengths of their matches in the text. Siblings of the most probable leaf are extended in the
 * same step, because a forward over a few more tokens takes the same time.
 *
 * The summary leaves open, and this file chooses:
 * - min: a draft ends when the probability of its most probable leaf is below `min`. T has no cost of verification, so T alone
 *   never ends a draft. The default is the threshold of SWIFT's tree (tr.c).
 * - bracket: the quotient divides the whole sum, as the text around the formula implies; with `last` it divides the second term
 *   only, as the formula is printed in the summary.
 * - c k is the latency of k tokens in one step (predict/latency.h), in units of the target's forward over one token
 *   (predict/cost_model.h). With `whole` that unit cancels.
 * - A match of m tokens has a probability of m / (m + 1). For a drafter without probabilities it is the drafter's acceptance
 *   rate a, times (1 - a) for each earlier sibling.
 * - top-p: siblings are extended, most probable first, until they have this share of the family's probability.
 * - Limits: `width` children of a leaf, `nodes` nodes of a tree, `steps` tokens of a step.
 * - A drafter that adds nothing below a leaf is not asked again in the same draft. If lookup drafters were asked at each new
 *   leaf, they would nearly always be chosen, and would often be wrong.
 * - During the first `warmup` iterations drafters alternate, with chains of 4 tokens. Later, a drafter unused for `retry`
 *   iterations drafts such a chain again, so that a few rejections exclude no drafter. A chain that costs less than a forward
 *   is repeated sooner, in proportion to its cost, but not before a tenth of `retry`: a chain judges few tokens, so the average
 *   of a lookup drafter that was rejected for a window would stay low for hundreds of iterations. */
#include "common/policy/dytc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/policy/shape.h"
#include "common/policy/shared.h"
#include "common/predict/latency.h"

enum { DRAFTERS = 8, WINDOW_MAX = 256, NODES = SHAPE_DEPTH_MAX, WARM_TOKENS = 4 };
enum { BRACKET_WHOLE, BRACKET_LAST };

const char *const dytc_yes_no[] = {"no", "yes", NULL};

struct recent {                         /* recent outcomes of a drafter's tokens */
    double acceptance;
    uint8_t kept[WINDOW_MAX];           /* ring buffer */
    int64_t judged;
    struct latency latency;
};

struct dytc {
    struct policy base;
    int drafters, max, nodes, width, steps, window, warmup, retry, bracket, ahead;
    double lambda, top_p, min;
    struct shared_cost forward;         /* cost of the target's forward */
    double fixed[DRAFTERS];             /* acceptance rates given; NaN: learned */
    struct recent recent[DRAFTERS];
    int64_t iterations;
    /* State of the current iteration: */
    bool dry[DRAFTERS];
    int asked, K, first;
    int trial;                          /* the drafter whose chain is a measurement; -1: none */
    double value, leaf_chance;
    double chance[NODES];               /* per node: probability that the node and its ancestors are accepted */
    bool inner[NODES];                  /* whether the node has children */
    struct draft_leaf leaf[NODES];
};

int dytc_fixed(struct spec *spec, const char *name, int drafters, double *out, struct err *err)
{
    const char *text;
    for (int i = 0; i < DRAFTERS; i++)
        out[i] = NAN;
    if (spec_text(spec, "acceptance", NULL, &text, err))
        return -1;
    const char *at = text;
    for (int i = 0; text && i < drafters; i++) {
        char *end;
        out[i] = strtod(at, &end);
        if (end == at || !(out[i] >= 0 && out[i] < 1) || *end != (i + 1 < drafters ? '/' : '\0'))
            return err_set(err, ERR_INPUT, "%s: acceptance=%s: expected %d numbers from 0 to below 1, one per drafter, "
                           "separated by slashes", name, text, drafters);
        at = end + 1;
    }
    return 0;
}

static double acceptance(const struct dytc *d, int drafter)
{
    return isnan(d->fixed[drafter]) ? d->recent[drafter].acceptance : d->fixed[drafter];
}

/* Returns the cost of k tokens of a drafter in one step, in units of a forward of the target over one token. */
static double cost_of(const struct dytc *d, int drafter, int k)
{
    const double level = shared_level(&d->forward);
    return fmax(1e-9, latency_of(&d->recent[drafter].latency, 1, k, k) / (level > 0 ? level : 1));
}

static double objective(const struct dytc *d, int drafter, int k)
{
    const double a = fmin(0.999, acceptance(d, drafter)), power = pow(a, k);
    double now = a * (1 - power) / (1 - a), later = d->ahead ? power * acceptance(d, d->drafters - 1) : 0;
    double cost = cost_of(d, drafter, k), cost_later = d->ahead ? cost_of(d, d->drafters - 1, 1) : 0;
    return d->bracket == BRACKET_WHOLE ? (now + later) / (cost + cost_later) : now + later / (cost + cost_later);
}

/* Returns the acceptance probability of a node, given that its ancestors are accepted. */
static double chance_of(const struct dytc *d, const struct draft_tree *tree, int node)
{
    double stated = exp((double)tree->log_probability[node]), chance = acceptance(d, tree->drafter[node]);
    if (!isnan(stated))
        return fmin(1, stated);
    if (tree->match[node] > 0)
        return tree->match[node] / (tree->match[node] + 1.0);
    for (int before = 0; before < node; before++)
        chance *= tree->parent[before] == tree->parent[node] ? 1 - acceptance(d, tree->drafter[node]) : 1;
    return chance;
}

static void look(struct dytc *d, const struct draft_tree *tree)
{
    memset(d->inner, 0, sizeof d->inner);
    for (int node = 0; node < tree->nodes; node++) {
        int parent = tree->parent[node];
        d->chance[node] = chance_of(d, tree, node) * (parent < 0 ? 1 : d->chance[parent]);
        if (parent >= 0)
            d->inner[parent] = true;
    }
}

/* Stores the most probable leaf and then the siblings to be extended with it; returns their number, 0 if there is no leaf. */
static int choose_leaves(struct dytc *d, const struct draft_tree *tree, int depth)
{
    int best = -1, leaves = 0;
    double all = 0, taken = 0;
    d->leaf_chance = 1;
    if (!tree->nodes) {
        d->leaf[0] = (struct draft_leaf){-1, d->width};
        return 1;
    }
    for (int node = 0; node < tree->nodes; node++)
        if (!d->inner[node] && tree->depth[node] < depth && (best < 0 || d->chance[node] > d->chance[best]))
            best = node;
    if (best < 0)
        return 0;
    d->leaf_chance = d->chance[best];
    d->leaf[leaves++] = (struct draft_leaf){best, d->width};
    for (int node = 0; node < tree->nodes; node++)
        all += tree->parent[node] == tree->parent[best] ? d->chance[node] : 0;
    for (taken = d->chance[best]; taken < d->top_p * all;) {
        int next = -1;
        for (int node = 0; node < tree->nodes; node++) {
            bool mine = tree->parent[node] == tree->parent[best] && !d->inner[node];
            for (int i = 0; i < leaves; i++)
                mine &= d->leaf[i].node != node;
            if (mine && (next < 0 || d->chance[node] > d->chance[next]))
                next = node;
        }
        if (next < 0)
            break;
        d->leaf[leaves++] = (struct draft_leaf){next, 1};
        taken += d->chance[next];
    }
    return leaves;
}

/* Returns the drafter with the largest T, and stores its number of tokens; -1: no drafter has tokens, or the tree is full. */
static int choose_drafter(struct dytc *d, const struct draft_tree *tree, int leaves, int depth, int *tokens)
{
    int best = -1, above = d->leaf[0].node < 0 ? 0 : tree->depth[d->leaf[0].node];
    for (int i = 0; i < d->drafters; i++)
        for (int k = 1; !d->dry[i] && k <= d->steps && above + k <= depth; k++) {
            double value = objective(d, i, k);
            if (tree->nodes + d->width * k + (leaves - 1) * k > d->nodes || (best >= 0 && value <= d->value))
                continue;
            d->value = value;
            *tokens = k;
            best = i;
        }
    return best;
}

static struct step extend(struct dytc *d, int drafter, int leaves, int tokens)
{
    d->asked = drafter;
    d->first = d->first < 0 ? drafter : d->first;
    return (struct step){.kind = STEP_EXTEND, .drafter = drafter, .tokens = tokens, .leaf = d->leaf, .leaves = leaves};
}

/* Returns after how many iterations without the drafter it is tried again. */
static double patience(const struct dytc *d, int drafter)
{
    return d->retry * fmin(1, fmax(0.1, cost_of(d, drafter, WARM_TOKENS)));
}

/* Returns the drafter to be measured: all by turns in the first iterations, later one unused for long; -1: none. */
static int choose_trial(const struct dytc *d)
{
    int found = -1;
    if (d->iterations < d->warmup)
        return (int)(d->iterations % d->drafters);
    for (int i = 0; d->retry && i < d->drafters; i++) {
        const int idle = d->recent[i].latency.idle;
        if (idle >= patience(d, i) && (found < 0 || idle > d->recent[found].latency.idle))
            found = i;
    }
    return found;
}

static struct step dytc_next(struct policy *policy, const struct draft_view *view)
{
    struct dytc *d = (struct dytc *)policy;
    const int depth = d->max < view->room ? d->max : view->room;
    int tokens = 0, leaves;
    if (!view->steps) {
        memset(d->dry, 0, sizeof d->dry);
        d->asked = d->first = -1;
        d->value = 0;
        d->trial = d->drafters ? choose_trial(d) : -1;
    } else if (d->asked >= 0) {
        d->dry[d->asked] = !view->added;
    }
    d->K = view->tree->nodes;
    if (depth < 1 || !d->drafters)
        return (struct step){.kind = STEP_STOP};
    if (d->trial >= 0) {
        d->leaf[0] = (struct draft_leaf){-1, 1};
        return view->steps ? (struct step){.kind = STEP_STOP}
                           : extend(d, d->trial, 1, WARM_TOKENS < d->max ? WARM_TOKENS : d->max);
    }
    look(d, view->tree);
    leaves = choose_leaves(d, view->tree, depth);
    if (!leaves || d->leaf_chance < d->min)
        return (struct step){.kind = STEP_STOP};
    int drafter = choose_drafter(d, view->tree, leaves, depth, &tokens);
    return drafter < 0 ? (struct step){.kind = STEP_STOP} : extend(d, drafter, leaves, tokens);
}

/* Returns whether a node is its drafter's own choice: the drafter's first child of that parent. */
static bool is_choice(const struct draft_tree *tree, int node)
{
    for (int before = 0; before < node; before++)
        if (tree->parent[before] == tree->parent[node] && tree->drafter[before] == tree->drafter[node])
            return false;
    return true;
}

static void dytc_observe(struct policy *policy, const struct outcome *outcome)
{
    struct dytc *d = (struct dytc *)policy;
    const struct draft_tree *tree = outcome->tree;
    bool judged[DRAFTERS] = {false};
    d->iterations++;
    shared_learn(&d->forward, outcome);
    shared_charge(&d->forward, outcome, shared_growth(&d->forward, outcome->drafted + 1));
    union_learn(&d->forward.experts, outcome->expert, outcome->emitted, outcome->moe_layers);
    for (int i = 0; outcome->share && i < d->drafters; i++)
        latency_observe(&d->recent[i].latency, &outcome->share[i]);
    for (int node = 0; tree && outcome->kept && node < tree->nodes; node++) {
        struct recent *recent = &d->recent[tree->drafter[node]];
        if (!outcome->kept[1 + tree->parent[node]] || !is_choice(tree, node))
            continue;
        recent->kept[recent->judged++ % d->window] = outcome->kept[1 + node];
        judged[tree->drafter[node]] = true;
    }
    for (int i = 0; i < d->drafters; i++) {
        struct recent *recent = &d->recent[i];
        int count = recent->judged < d->window ? (int)recent->judged : d->window, kept = 0;
        for (int at = 0; at < count; at++)
            kept += recent->kept[at];
        if (judged[i])
            recent->acceptance = d->lambda * recent->acceptance + (1 - d->lambda) * kept / count;
    }
}

static void dytc_begin(struct policy *policy, const struct policy_text *text)
{
    (void)text;
    union_begin(&((struct dytc *)policy)->forward.experts);
}

static void dytc_free(struct policy *policy)
{
    struct dytc *d = (struct dytc *)policy;
    shared_cost_free(&d->forward);
    mem_free(&d);
}

static int dytc_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    static const char *const brackets[] = {[BRACKET_WHOLE] = "whole", [BRACKET_LAST] = "last", NULL};
    int limit = setup->max_length < NODES ? setup->max_length : NODES;
    int cap = setup->draft_length >= 0 ? setup->draft_length : 16;
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "dytc: builds its own trees; leave --tree out");
    struct dytc *d = mem_alloc(1, sizeof *d, err);
    if (!d)
        return -1;
    d->drafters = setup->drafters;
    if (spec_int(spec, "max|most", cap < limit ? cap : limit, 0, limit, &d->max, err) ||
        spec_int(spec, "nodes", 32, 1, NODES, &d->nodes, err) || spec_int(spec, "width", 2, 1, 16, &d->width, err) ||
        spec_int(spec, "steps", 5, 1, NODES, &d->steps, err) ||
        spec_int(spec, "window", 20, 1, WINDOW_MAX, &d->window, err) ||
        spec_int(spec, "warmup", 20, 0, 1 << 20, &d->warmup, err) ||
        spec_int(spec, "retry", 100, 0, 1 << 20, &d->retry, err) ||
        spec_float(spec, "lambda", 0.7, 0, 1, &d->lambda, err) || spec_float(spec, "top-p", 0.8, 0, 1, &d->top_p, err) ||
        spec_float(spec, "min|least", 0.8, 0, 1, &d->min, err) ||
        spec_choice(spec, "bracket", BRACKET_WHOLE, brackets, &d->bracket, err) ||
        spec_choice(spec, "lookahead", 1, dytc_yes_no, &d->ahead, err) ||
        dytc_fixed(spec, "dytc", d->drafters, d->fixed, err) ||
        shared_cost_init(&d->forward, &(struct shared_setup){NULL, d->nodes + 1, 0.5, sizeof(struct shared_learning), 0}, setup,
                         NULL, err)) {
        dytc_free(&d->base);
        return -1;
    }
    for (int i = 0; i < DRAFTERS; i++) {
        d->recent[i].acceptance = 0.5;
        latency_init(&d->recent[i].latency, 0.98);
    }
    *out = &d->base;
    return 0;
}

static int dytc_length(const struct policy *policy) { return ((const struct dytc *)policy)->K; }

static void dytc_state(const struct policy *policy, struct values *out)
{
    const struct dytc *d = (const struct dytc *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", d->K);
    values_int(out, "first", d->first);
    values_int(out, "warm", d->iterations >= d->warmup);
    values_real(out, "objective", d->value);
    values_real(out, "leaf_chance", d->leaf_chance);
    values_real(out, "level_us", 1e6 * shared_level(&d->forward));
    values_int(out, "trial", d->trial);
    for (int i = 0; i < d->drafters; i++) {
        const struct latency *latency = &d->recent[i].latency;
        const double value[] = {acceptance(d, i), 1e6 * latency_of(latency, 1, 1, 1), 1e6 * latency_of(latency, 1, 0, 0),
                                1e6 * latency_of(latency, 0, 1, 0), 1e6 * latency_of(latency, 0, 0, 1)};
        static const char *const name[] = {"chance", "draft_us", "step_us", "token_us", "node_us"};
        for (size_t at = 0; at < sizeof value / sizeof *value && (at < 2 || d->drafters <= 6); at++) {
            char key[VALUES_KEY];
            snprintf(key, sizeof key, "%s_%d", name[at], i);
            values_real(out, key, value[at]);
        }
    }
}

const struct policy_class policy_dytc = {
    .name = "dytc",
    .summary = "a tree by several drafters, by DyTC's objective with our stop rule",
    .settings = "max=N,nodes=N,width=N,steps=N,top-p=X,min=X,lambda=X,window=N,warmup=N,retry=N,"
                "bracket=whole|last,lookahead=no,acceptance=X/X/...",
    .needs_probabilities = true,
    .trees = true,
    .open = dytc_open,
    .begin = dytc_begin,
    .next = dytc_next,
    .length = dytc_length,
    .observe = dytc_observe,
    .state = dytc_state,
    .free = dytc_free,
};

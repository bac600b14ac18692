/* Cascade with costs that are known in advance, so that no trial has to lose time to show that drafts do not pay.
 *
 * An iteration with K drafted tokens emits G(K) = 1 + sum over k of P(at least k tokens are accepted) tokens, and costs C(K),
 * in units of an iteration without a draft. The policy chooses the K that maximises G(K) - rate C(K), where `rate` is its
 * average of tokens per unit of cost. This choice maximises the throughput over the text, not the utility of a single
 * iteration.
 *
 * - C comes from a table of cost by M (`cost`), or else from the distinct experts that M tokens are predicted to load
 *   (predict/union.h); measured iterations correct its level and steepness (predict/cost_model.h).
 * - Acceptance probabilities are the drafters' own, calibrated by the outcomes of drafts, verified or not
 *   (predict/estimator.h).
 *   If drafting is cheap (less than `explore` of an iteration), every draft is made in full, and then cut to the length that
 *   pays, possibly to nothing. Otherwise only the tokens that are expected to pay are drafted; a drafter with probabilities
 *   drafts token by token until the next one is not expected to pay. Drafts made only to learn take at most the share `explore`
 *   of all time. A drafter with a state of its own then catches up with the text, which is measured as drafting time.
 * - Costs are known well only at the numbers of rows that were verified recently. So a forward is now and then without drafts
 *   while drafts pay. While none pays, a forward has one if it would pay with a steepness `optimism` standard deviations lower.
 *   The expected loss of these probes is at most the share `explore` of all time; the closer the decision, the more probes.
 *
 * Texts begin with K = 0 until an acceptance probability is known. Estimates are kept for each task, from text to text, and
 * policies of concurrent texts share them (policy_setup.like). */
#include "common/policy/shape.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/policy/shared.h"
#include "common/predict/pending.h"
#include "common/predict/tasks.h"
#include "common/predict/text_estimator.h"

enum { MAX_DEFAULT = 8, MAX = 64, SHADOW_TOKENS = 2 };

static const double first_guess = 0.5;
static const double rate_decay = 0.98;
static const double probe_min = 0.05, trials_max = 1;          /* minimum cost counted per probe; maximum saved for probes */
static const double bend = 0.35;        /* doubling the rows multiplies a forward's time by 1 to 2: half of log(2) */

struct task {
    struct task_slot slot;
    struct estimator estimator;
    double tokens, cost;                /* recent sums, for `rate`; cost: in units of an iteration without a draft under the
                                         * load at that time */
};

/* A forward is a probe if its texts have other drafts than the best ones: none, or the best draft although none pays. */
enum probe { PROBE_NONE, PROBE_PLAIN, PROBE_DRAFT };

struct learned {
    struct shared_learning shared;
    double tokens, cost;                /* like those of a task, over all texts */
    enum probe probe;                   /* kind of the current forward */
    double trials;                      /* the loss that probes may still cause, in iterations without a draft */
    double loss;                        /* expected loss of the best draft if none pays; INFINITY: not worth a probe */
    bool drafted;                       /* a text had a draft in the last forward */
    double draft_seconds;               /* per drafted token; 0 before the first draft */
    double allowance;                   /* budget for learning, in units of an iteration */
    bool timed;                         /* draft_seconds was measured in a warm iteration */
    bool speaks;                        /* the drafter states a probability for each token of a chain */
};

struct cascade_cost {
    struct policy base;
    struct shape *shape;
    int max;
    double explore, optimism, decay;
    struct shared_cost forward;
    struct pending pending;
    struct learned *learned;
    struct task *now;                   /* of the text */
    struct text_estimator estimator;
    bool alone;                         /* there is no drafter */
    bool warm;                          /* the previous iteration had a draft: the drafter has no text to catch up with */
    /* State of the current iteration: */
    bool cut;                           /* the draft has its final length */
    int K, asked, made;                 /* made: tokens that the drafter proposed */
    double gain, cost, rate;
    int32_t keep[MAX];
    struct estimator_signal signal[MAX];
    int signals;                        /* number of nodes with a signal */
    struct draft_leaf leaf;
};

/* Returns the cost of an iteration that verifies K tokens, without drafting. */
static double cost_of(const struct cascade_cost *c, int K)
{
    return shared_part(&c->forward, shared_steepness(&c->forward), K + 1);
}

/* Returns the cost of an iteration that verifies K tokens, without drafting, with a steepness that is `optimism` standard
 * deviations lower. The cost of forwards without drafts is known well, so forwards with many texts are less uncertain. */
static double optimistic_cost(const struct cascade_cost *c, int K)
{
    const double steepness = shared_steepness(&c->forward);
    const double doubt = shared_doubt(&c->forward) / (1 + steepness * shared_root(&c->forward));
    return shared_part(&c->forward, steepness * exp(-c->optimism * doubt), K + 1);
}

static double draft_cost(const struct cascade_cost *c)
{
    double level = shared_level(&c->forward);
    return level > 0 ? c->learned->draft_seconds / level : 0;
}

/* Returns the cost of an iteration without a draft. */
static double plain_cost(const struct cascade_cost *c)
{
    return shared_part(&c->forward, shared_steepness(&c->forward), 1);
}

/* Returns the average of tokens per cost, but at least that without drafts, which is known. The average is kept relative to
 * the latter, because both depend on the load by other texts. Texts that share a forward have one rate: each would otherwise
 * see its own share of the cost as the price of time, and the texts with the longest drafts would see the lowest price. */
static double rate(const struct cascade_cost *c)
{
    const bool all = c->forward.load.texts > 1 && shared_learns(&c->forward);
    const double tokens = all ? c->learned->tokens : c->now->tokens, cost = all ? c->learned->cost : c->now->cost;
    return (cost > 0 ? fmax(1, tokens / cost) : 1) / plain_cost(c);
}

static double chance_of(const struct cascade_cost *c, const struct estimator_signal *signal)
{
    return text_estimator_of(&c->estimator, signal);
}

static double chance_ahead(const struct cascade_cost *c, int depth)
{
    return text_estimator_ahead(&c->estimator, depth);
}

/* Returns the best K of 0 .. most. Tokens beyond the present chain also cost their drafting. */
static int choose(struct cascade_cost *c, int max, const struct draft_tree *chain)
{
    double chance = 1, gain = 1, drafting = 0, drafted = -INFINITY;
    int best = 0;
    bool hopeful = false;
    c->gain = 1;
    c->cost = cost_of(c, 0);
    const double none = 1 - c->rate * c->cost;
    double best_value = c->learned->probe == PROBE_DRAFT ? -INFINITY : none;
    for (int k = 1; k <= max && c->learned->probe != PROBE_PLAIN; k++) {
        chance *= k <= chain->nodes ? chance_of(c, &c->signal[k - 1]) : chance_ahead(c, k);
        gain += chance;
        drafting += k <= chain->nodes ? 0 : draft_cost(c);
        double cost = cost_of(c, k) + drafting, value = gain - c->rate * cost;
        drafted = fmax(drafted, value);
        hopeful |= value > none || gain - c->rate * (optimistic_cost(c, k) + drafting) > 1 - c->rate * optimistic_cost(c, 0);
        if (value > best_value) {
            best = k;
            best_value = value;
            c->gain = gain;
            c->cost = cost;
        }
    }
    if (drafted > -INFINITY)
        c->learned->loss = hopeful ? fmax(0, none - drafted) / (c->rate * plain_cost(c)) : INFINITY;
    return best;
}

static bool is_known(const struct cascade_cost *c) { return c->now->estimator.seen >= 1; }

static int room_of(const struct cascade_cost *c, const struct draft_view *view)
{
    return shared_room(&c->forward, c->max < view->room ? c->max : view->room);
}

/* Returns how many tokens to draft before the next decision. */
static int ask(struct cascade_cost *c, const struct draft_view *view)
{
    int max = room_of(c, view);
    if (max < 1)
        return 0;
    if (!c->learned->timed)
        return 1;
    if (draft_cost(c) * c->max <= c->explore * plain_cost(c))
        return max;
    int K = is_known(c) ? choose(c, max, view->tree) : 0;
    int learn = max < SHADOW_TOKENS ? max : SHADOW_TOKENS;
    return K ? c->learned->speaks ? 1 : K : c->learned->allowance * plain_cost(c) >= draft_cost(c) * learn ? learn : 0;
}

/* Returns whether drafting one more token is expected to pay, given the tokens drafted so far. */
static bool extension_pays(struct cascade_cost *c, const struct draft_view *view)
{
    const struct draft_tree *tree = view->tree;
    int max = room_of(c, view);
    return c->learned->speaks && c->learned->timed && is_known(c) && view->added && tree->nodes < max && c->asked < c->max &&
           choose(c, max, tree) > tree->nodes;
}

static struct step extend(struct cascade_cost *c, int below, int tokens)
{
    c->leaf = (struct draft_leaf){below, 1};
    return (struct step){.kind = STEP_EXTEND, .tokens = tokens, .leaf = &c->leaf, .leaves = 1};
}

/* Decides whether the next forward is a probe, from its expected loss. */
static void plan_probe(struct cascade_cost *c)
{
    struct learned *learned = c->learned;
    const double loss = fmax(probe_min, learned->drafted ? c->rate * plain_cost(c) - 1 : learned->loss);
    const bool due = learned->timed && loss <= learned->trials;
    learned->probe = !due ? PROBE_NONE : learned->drafted ? PROBE_PLAIN : PROBE_DRAFT;
    learned->trials = fmin(trials_max, learned->trials + c->explore) - (due ? loss : 0);
    learned->drafted = false;
}

static struct step cascade_cost_next(struct policy *policy, const struct draft_view *view)
{
    struct cascade_cost *c = (struct cascade_cost *)policy;
    if (!view->steps) {
        c->K = c->made = c->signals = 0;
        c->cut = false;
        c->gain = c->cost = 1;
        c->rate = rate(c);
        if (shared_next(&c->forward))
            plan_probe(c);
        c->asked = c->alone ? 0 : ask(c, view);
        return c->asked ? extend(c, -1, c->asked) : (struct step){.kind = STEP_STOP};
    }
    estimator_signals(c->signal, view->tree, c->signals);
    c->signals = view->tree->nodes;
    if (c->cut)
        return (struct step){.kind = STEP_STOP};
    if (extension_pays(c, view)) {
        c->asked++;
        return extend(c, view->tree->nodes - 1, 1);
    }
    c->cut = true;
    c->made = view->tree->nodes;
    if (c->made > 1)
        c->learned->speaks = !isnan(view->tree->log_probability[1]);
    c->K = is_known(c) ? choose(c, view->tree->nodes, view->tree) : 0;
    pending_add(&c->pending, view->tree, c->signal);
    for (int node = 0; node < c->K; node++)
        c->keep[node] = node;
    return (struct step){.kind = STEP_KEEP, .keep = c->keep, .kept = c->K};
}

/* Updates the cost of drafting a token, from warm iterations: catching up with the text after a pause is paid once only. */
static void time_drafting(struct cascade_cost *c, double each)
{
    if (!c->warm)
        c->learned->draft_seconds = c->learned->draft_seconds > 0 ? fmin(c->learned->draft_seconds, each) : each;
    else
        c->learned->draft_seconds = c->learned->timed ? 0.9 * c->learned->draft_seconds + 0.1 * each : each;
    c->learned->timed |= c->warm;
}

static void judge(void *context, int drafter, const struct estimator_signal *signal, bool kept)
{
    struct cascade_cost *c = context;
    (void)drafter;                      /* there is one estimator for all drafters */
    text_estimator_observe(&c->estimator, signal, kept);
}

static void cascade_cost_observe(struct policy *policy, const struct outcome *outcome)
{
    struct cascade_cost *c = (struct cascade_cost *)policy;
    struct task *task = c->now;
    double level;
    task->slot.taught = true;
    shared_learn(&c->forward, outcome);
    shared_charge(&c->forward, outcome, shared_growth(&c->forward, outcome->drafted + 1));
    if (c->made)
        time_drafting(c, outcome->draft_s / c->made);
    c->warm = c->asked > 0;
    level = shared_level(&c->forward);
    if (level > 0) {
        double drafting = outcome->draft_s / level;
        c->learned->allowance = fmin(c->learned->allowance + c->explore - (outcome->drafted ? 0 : drafting / plain_cost(c)), 1);
        const double part = shared_share(&c->forward, shared_steepness(&c->forward), outcome->drafted + 1);
        const double cost = (part + drafting) / plain_cost(c);
        task->tokens = rate_decay * task->tokens + outcome->emitted;
        task->cost = rate_decay * task->cost + cost;
        c->learned->tokens = rate_decay * c->learned->tokens + outcome->emitted;
        c->learned->cost = rate_decay * c->learned->cost + cost;
    }
    c->learned->drafted |= outcome->drafted > 0;
    pending_follow(&c->pending, judge, c, outcome->token, outcome->emitted);
    union_learn(&c->forward.experts, outcome->expert, outcome->emitted, outcome->moe_layers);
}

static void cascade_cost_begin(struct policy *policy, const struct policy_text *text)
{
    struct cascade_cost *c = (struct cascade_cost *)policy;
    struct task_slot *slot = (struct task_slot *)c->now;
    const bool takes_over = tasks_begin(&c->learned->shared.tasks, &slot, text ? text->task : NULL);
    c->now = (struct task *)slot;
    if (takes_over) {
        estimator_fade(&c->now->estimator, TASKS_TAKEN_OVER);
        c->now->tokens *= TASKS_TAKEN_OVER;
        c->now->cost *= TASKS_TAKEN_OVER;
    }
    text_estimator_begin(&c->estimator, &c->now->estimator, &c->learned->shared.users);
    c->warm = false;
    pending_clear(&c->pending);
    union_begin(&c->forward.experts);
}

static void cascade_cost_free(struct policy *policy)
{
    struct cascade_cost *c = (struct cascade_cost *)policy;
    shared_cost_free(&c->forward);
    pending_free(&c->pending);
    mem_free(&c);
}

static int read_settings(struct cascade_cost *c, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    const struct cascade_cost *like = (const struct cascade_cost *)setup->like;
    int cap = setup->draft_length >= 0 ? setup->draft_length : MAX_DEFAULT;
    int max = setup->max_length < MAX ? setup->max_length : MAX;
    const char *file;
    if (spec_int(spec, "max|most", cap < max ? cap : max, 0, max, &c->max, err) ||
        spec_text(spec, "cost", NULL, &file, err) ||
        spec_float(spec, "explore|shadow", 0.005, 0, 1, &c->explore, err) ||
        spec_float(spec, "optimism|hope", 1, 0, 10, &c->optimism, err) ||
        spec_float(spec, "decay|memory", 0.999, 0, 0.9999, &c->decay, err))
        return -1;
    const struct shared_setup shared = {file, c->max + 1, 1, sizeof *c->learned, sizeof *c->now};
    return shared_cost_init(&c->forward, &shared, setup, like ? &like->forward : NULL, err) ? err_at(err, "cascade-cost") : 0;
}

/* Initialises what is learned, for the first policy that learns it. */
static void learn_first(struct cascade_cost *c)
{
    if (!c->forward.has_table)
        cost_model_let_bend(c->forward.model, bend, true);
    c->learned->allowance = 1;
    estimator_init(&((struct task *)c->learned->shared.tasks.slot[0])->estimator, first_guess, c->decay);
}

static int cascade_cost_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "cascade-cost: drafts chains only; leave --tree out");
    struct cascade_cost *c = mem_alloc(1, sizeof *c, err);
    if (!c)
        return -1;
    c->shape = setup->shape;
    c->alone = !setup->drafters;
    if (read_settings(c, spec, setup, err)) {
        cascade_cost_free(&c->base);
        return -1;
    }
    c->learned = (struct learned *)c->forward.common;
    if (c->learned->shared.users == 1)
        learn_first(c);
    cascade_cost_begin(&c->base, NULL);
    *out = &c->base;
    return 0;
}

static int cascade_cost_length(const struct policy *policy) { return ((const struct cascade_cost *)policy)->K; }

static void cascade_cost_state(const struct policy *policy, struct values *out)
{
    const struct cascade_cost *c = (const struct cascade_cost *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", c->K);
    values_int(out, "asked", c->asked);
    values_real(out, "gain", c->gain);
    values_real(out, "cost", c->cost);
    values_real(out, "rate", c->rate);
    values_real(out, "chance", chance_ahead(c, 1));
    values_real(out, "tried", c->now->estimator.seen);
    values_real(out, "level_us", 1e6 * shared_level(&c->forward));
    values_real(out, "steepness", shared_steepness(&c->forward));
    values_real(out, "doubt", shared_doubt(&c->forward));
    values_real(out, "draft_us", 1e6 * c->learned->draft_seconds);
    values_real(out, "allowance", c->learned->allowance);
    if (c->forward.experts.experts)
        values_real(out, "experts", union_of(&c->forward.experts, c->K + 1));       /* predicted, per layer */
}

static void cascade_cost_chances(const struct policy *policy, int nodes, float *out)
{
    const struct cascade_cost *c = (const struct cascade_cost *)policy;
    for (int node = 0; node < nodes; node++)
        out[node] = (float)chance_of(c, &c->signal[node]);
}

/* Returns the estimator for drafter 0, else NULL: there is one estimator for all drafters. */
static struct estimator *cascade_cost_estimator(struct policy *policy, int drafter)
{
    return drafter ? NULL : &((struct cascade_cost *)policy)->now->estimator;
}

const struct policy_class policy_cascade_cost = {
    .name = "cascade-cost",
    .summary = "the draft length that pays, by costs known in advance",
    .settings = "max=N,cost=FILE,explore=X,optimism=X,decay=X",
    .needs_probabilities = true,
    .drops = true,
    .open = cascade_cost_open,
    .begin = cascade_cost_begin,
    .next = cascade_cost_next,
    .length = cascade_cost_length,
    .observe = cascade_cost_observe,
    .state = cascade_cost_state,
    .chances = cascade_cost_chances,
    .estimator = cascade_cost_estimator,
    .free = cascade_cost_free,
};

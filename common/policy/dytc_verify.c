/* DyTC with the verification in its objective. DyTC (CAS-Spec, arXiv 2510.26843; dytc.c) weighs drafted tokens against the cost
 * of drafting only, so the cheapest drafter always wins and no draft is ever too long. Here the gain of a draft includes the
 * bonus token, and its cost includes the forward that verifies it; for an MoE that cost depends on the experts that the tokens
 * are predicted to load (predict/union.h). A draft is a chain. Its plan (plan.h) is recomputed after each step. To the finished
 * chain, second choices beside its tokens are added where they pay.
 *
 * - The acceptance probability of a token is that of predict/estimator.h.
 * - A second choice gains one token if all tokens before it are accepted and the first choice is not. It pays if the expected
 *   gain exceeds the cost of a row of the verification plus its share of one more step of its drafter.
 * - Latency of drafters: predict/latency.h; of verification: predict/cost_model.h.
 * - Lookup drafters are asked first, because they cost almost nothing, and the tokens they find are cut to those that pay.
 *   Lookups draw nothing at random, so dropping tokens changes no distribution. The estimator also learns from the dropped
 *   tokens.
 * - A drafter with uncertain estimates is tried if it would pay with an acceptance `optimism` standard deviations above its
 *   estimate, as long as the expected loss of trials stays within the share `explore` of all time. The first iterations of a
 *   text have an allowance of `warmup` forwards. A drafter that was not asked for long is tried within the same allowance,
 *   because its measured cost may be an outlier.
 *
 * What was learned is kept for each task, from text to text. */
#include "common/policy/shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/policy/dytc.h"
#include "common/policy/plan.h"
#include "common/policy/shared.h"
#include "common/predict/latency.h"
#include "common/predict/pending.h"
#include "common/predict/tasks.h"

enum { DRAFTERS = PLAN_DRAFTERS_MAX, MAX_DEFAULT = 16, MAX = PLAN_TOKENS_MAX };

/* Optimism grows with the unspent allowance, so that a drafter with bad luck at the beginning is tried again. */
static const double optimism_saved = 0.4;
static const int idle_max = 200;        /* iterations after which a drafter is tried regardless of its estimate */
static const double first_guess = 0.6;
static const double fading = 0.9995;    /* factor on past observations, per iteration */
static const double text_memory = 0.8;  /* and per text without a task */

struct known {                          /* what is known of a drafter in a task */
    double second, seconds;             /* accepted second choices, and all, where the first choice was rejected */
    double offers;                      /* share of requests at which it proposes tokens, 0 .. 1 */
};

struct task {
    struct estimator estimator[DRAFTERS];
    struct known drafter[DRAFTERS];
    double tokens, cost;                /* recent sums, for the rate of tokens per cost */
};

struct dytc_verify {
    struct policy base;
    int drafters, max;
    bool looks_up[DRAFTERS];
    bool ahead;                         /* plans include further drafters after the first */
    bool siblings;                      /* second choices may be added to a chain */
    double fixed[DRAFTERS];             /* acceptance rates given; NaN: learned */
    double explore, optimism, decay;
    struct shared_cost forward;
    struct latency latency[DRAFTERS];
    struct pending pending;
    struct tasks tasks;
    struct task task[TASKS], *now;      /* by slot of `tasks` */
    int64_t iterations;
    double allowance;
    bool speaks[DRAFTERS];
    /* State of the current iteration: */
    double rate, verify[MAX + 1];
    double estimate[MAX];               /* acceptance probability of each token of the chain */
    int nodes;                          /* nodes with an estimate */
    bool branched;                      /* second choices were requested */
    int branches;                       /* number of second choices */
    bool dry[DRAFTERS];                 /* the drafter has nothing to add below the present leaf */
    bool tries;                         /* the plan depends on optimism */
    int trial;                          /* the drafter on trial that still needs a token; -1: none */
    bool looked;                        /* the last step looked tokens up, which are not yet cut */
    int asked;                          /* the drafter of the last step; -1: the step did not extend */
    int first, K;                       /* first: the drafter asked first; -1: none */
    double gain, cost;
    struct estimator_signal signal[MAX];
    int32_t keep[MAX];
    struct draft_leaf leaf, branch[MAX];
};

static double level_seconds(const struct dytc_verify *d) { return cost_model_level(&d->forward.model); }

/* Returns the expected acceptance probability of a drafter's next token at a depth (from 1), before the token is drafted. */
static double chance_at(const struct dytc_verify *d, int drafter, int depth)
{
    return isnan(d->fixed[drafter]) ? estimator_ahead(&d->now->estimator[drafter], depth) : d->fixed[drafter];
}

/* Fills the plan's data of the drafters. optimistic_about: the drafter whose estimate is raised by optimism; -1: none. */
static void describe(const struct dytc_verify *d, struct plan_drafter *out, int optimistic_about)
{
    double level = level_seconds(d);
    for (int i = 0; i < d->drafters; i++) {
        const struct latency *latency = &d->latency[i];
        double token = latency_of(latency, 0, 1, 1), step = latency_of(latency, 1, 0, 0);
        double doubt = i == optimistic_about && isnan(d->fixed[i]) ? estimator_doubt(&d->now->estimator[i]) : 0;
        double more = (d->optimism + optimism_saved * d->allowance) * doubt;
        out[i] = (struct plan_drafter){.out = d->dry[i]};
        for (int depth = 1; depth <= PLAN_DEPTHS; depth++)
            out[i].chance[depth - 1] = fmin(0.98, chance_at(d, i, depth) + more) *
                                       (d->looks_up[i] ? d->now->drafter[i].offers : 1);
        out[i].token = latency->begun && level > 0 ? token / level : 0.05;
        out[i].step = latency->begun && level > 0 ? step / level : 0;
    }
}

/* Returns the max nodes of a draft with this chain length: each token may have a second choice, up to the largest forward of
 * known cost. */
static int nodes_for(int chain) { return 2 * chain < MAX ? 2 * chain : MAX; }

static void weigh_verification(struct dytc_verify *d, int room, bool optimistic)
{
    double steepness = cost_model_steepness(&d->forward.model);
    if (optimistic)
        steepness *= exp(-d->optimism * shared_doubt(&d->forward));
    for (int K = 0; K <= nodes_for(room); K++)
        d->verify[K] = shared_part(&d->forward, steepness, K + 1);
}

static int room_of(const struct dytc_verify *d, const struct draft_view *view)
{
    return shared_room(&d->forward, d->max < view->room ? d->max : view->room);
}

static struct step extend(struct dytc_verify *d, const struct draft_view *view, int drafter, int tokens)
{
    d->asked = drafter;
    d->first = d->first < 0 ? drafter : d->first;
    d->leaf = (struct draft_leaf){view->tree->nodes - 1, 1};
    return (struct step){.kind = STEP_EXTEND, .drafter = drafter, .tokens = tokens, .leaf = &d->leaf, .leaves = 1};
}

static struct step extend_by_trial(struct dytc_verify *d, const struct draft_view *view)
{
    int drafter = d->trial;
    d->trial = -1;
    return extend(d, view, drafter, 1);
}

static double survival(const struct dytc_verify *d, int nodes)
{
    double product = 1;
    for (int node = 0; node < nodes; node++)
        product *= d->estimate[node];
    return product;
}

static void plan_from(struct dytc_verify *d, struct plan *out, int nodes, int max, const struct plan_drafter *drafter)
{
    const struct plan_setup setup = {d->drafters, drafter, nodes, max, survival(d, nodes), d->rate, d->verify};
    struct plan_drafter one[DRAFTERS];
    if (d->ahead) {
        plan_find(out, &setup);
        return;
    }
    for (int i = 0; i < (d->drafters ? d->drafters : 1); i++) {         /* each as if it drafted all remaining tokens */
        struct plan_setup alone = setup;
        struct plan plan;
        alone.drafter = one;
        for (int other = 0; other < d->drafters; other++) {
            one[other] = drafter[other];
            one[other].out |= other != i;
        }
        plan_find(&plan, &alone);
        if (!i || plan.value > out->value)
            *out = plan;
    }
}

/* Returns the expected loss, in cost, of trying one token of a drafter, divided by the probability that the token is judged. At
 * the chain's first position the token is always judged, but its rejection also discards the rest; at the end it is judged only
 * if all tokens before it are accepted. */
static double loss_of_trial(const struct dytc_verify *d, const struct plan_drafter *drafter, int which, int max,
                            const struct plan *plan, bool *last)
{
    const double chance = drafter[which].chance[0], asked = drafter[which].step + drafter[which].token;
    const struct plan_setup after = {d->drafters, drafter, 1, max, chance, d->rate, d->verify};
    struct plan rest;
    double first, reach = 1;
    int length = 0;
    plan_find(&rest, &after);
    first = (plan->value - (chance - d->rate * asked + rest.value)) / d->rate;
    *last = false;
    for (int i = 0; i < d->drafters; i++)
        for (int n = 0; n < plan->count[i]; n++)
            reach *= drafter[i].chance[++length < PLAN_DEPTHS ? length - 1 : PLAN_DEPTHS - 1];
    if (!length || length >= max)
        return first;
    double end = (asked + d->verify[length + 1] - d->verify[length]) / reach - chance / d->rate;
    *last = end < first;
    return *last ? end : first;
}

/* Chooses a drafter to try: one that would pay under optimism, or else one that was not asked for long; -1: none. The allowance
 * must cover the expected loss. The most promising trial has priority, and the allowance is saved for it, because less
 * promising trials would use it up. *last: the trial is at the end of the chain. */
static int choose_trial(struct dytc_verify *d, int max, const struct plan *plan, bool *last)
{
    struct plan_drafter drafter[DRAFTERS];
    double gain = 1e-3;
    int found = -1;
    describe(d, drafter, -1);
    for (int i = 0; i < d->drafters; i++) {
        struct plan_drafter supposed[DRAFTERS];
        struct plan optimistic;
        if (d->dry[i] || !isnan(d->fixed[i]) || plan->first == i)
            continue;
        describe(d, supposed, i);
        weigh_verification(d, max, true);
        const struct plan_setup all = {d->drafters, supposed, 0, max, 1, d->rate, d->verify};
        plan_find(&optimistic, &all);
        weigh_verification(d, max, false);
        if (optimistic.count[i] && optimistic.value - plan->value > gain) {
            gain = optimistic.value - plan->value;
            found = i;
        }
    }
    for (int i = 0; i < d->drafters && found < 0; i++)
        if (!d->dry[i] && !d->looks_up[i] && plan->first != i && d->latency[i].idle >= idle_max)
            found = i;
    if (found < 0)
        return -1;
    double loss = fmax(0, loss_of_trial(d, drafter, found, max, plan, last));
    if (loss > d->allowance)
        return -1;
    d->allowance -= loss;
    return found;
}

/* Estimates the acceptance probabilities of the chain's new tokens. */
static void estimate(struct dytc_verify *d, const struct draft_tree *tree)
{
    estimator_signals(d->signal, tree, d->nodes);
    for (; d->nodes < tree->nodes; d->nodes++) {
        const int drafter = tree->drafter[d->nodes];
        d->estimate[d->nodes] = isnan(d->fixed[drafter]) ? estimator_of(&d->now->estimator[drafter], &d->signal[d->nodes])
                              : d->fixed[drafter];
    }
}

static void begin_iteration(struct dytc_verify *d, int max)
{
    struct plan_drafter drafter[DRAFTERS];
    memset(d->dry, 0, sizeof d->dry);
    d->nodes = d->branches = d->K = 0;
    d->tries = d->looked = d->branched = false;
    d->asked = d->first = d->trial = -1;
    d->gain = d->cost = 1;
    weigh_verification(d, max, false);
    describe(d, drafter, -1);
    const struct plan_setup setup = {d->drafters, drafter, 0, max, 1, 1, d->verify};
    double planned = max > 0 ? plan_best_rate(&setup) : 1;
    double reached = d->now->cost > 0 ? d->now->tokens / d->now->cost : 1;
    d->rate = fmax(1, fmax(planned, fmin(reached, 1.3 * planned)));
}

/* Cuts the looked-up tokens to those that pay, given the best plan after them. Returns false if all of them pay. */
static bool cut(struct dytc_verify *d, const struct draft_view *view, int max, struct step *step)
{
    const struct draft_tree *tree = view->tree;
    struct plan_drafter drafter[DRAFTERS];
    const int before = tree->nodes - view->added;
    double gain = 0, best_value = -INFINITY, chance = survival(d, before);
    int best = before;
    describe(d, drafter, -1);
    for (int nodes = before; nodes <= tree->nodes; nodes++) {
        struct plan plan;
        if (nodes > before)
            gain += chance *= d->estimate[nodes - 1];
        plan_from(d, &plan, nodes, max, drafter);
        if (gain + plan.value > best_value) {
            best_value = gain + plan.value;
            best = nodes;
        }
    }
    if (best == tree->nodes)
        return false;
    if (!best)
        pending_add(&d->pending, tree, d->signal);
    for (int node = 0; node < best; node++)
        d->keep[node] = node;
    d->nodes = best;
    *step = (struct step){.kind = STEP_KEEP, .keep = d->keep, .kept = best};
    return true;
}

/* Returns the probability that a second choice is right where the first one is wrong, before the second choice is drafted. */
static double second_chance(const struct known *known) { return (known->second + 8 * 0.3) / (known->seconds + 8); }

/* Stores in d->branch the second choices of one drafter beside its tokens of the chain, best first. Returns their expected gain
 * less their cost, in tokens. */
static double choose_branches(struct dytc_verify *d, const struct draft_tree *tree, int drafter)
{
    const double right = second_chance(&d->now->drafter[drafter]), level = level_seconds(d);
    const struct latency *latency = &d->latency[drafter];
    double gain[MAX], worth = 0, chance = 1;
    for (int node = 0; node < tree->nodes; node++) {
        gain[node] = tree->drafter[node] == drafter ? chance * (1 - d->estimate[node]) * right : 0;
        chance *= d->estimate[node];
    }
    for (d->branches = 0; d->branches < nodes_for(tree->nodes) - tree->nodes; d->branches++) {
        const double *verify = &d->verify[tree->nodes + d->branches];
        int best = 0;
        for (int node = 1; node < tree->nodes; node++)
            best = gain[node] > gain[best] ? node : best;
        double more = gain[best] - d->rate * (verify[1] - verify[0]);
        if (more <= 0)
            break;
        worth += more;
        d->branch[d->branches] = (struct draft_leaf){best - 1, 2};
        gain[best] = 0;
    }
    return d->branches ? worth - d->rate * (latency->begun ? latency_of(latency, 1, 1, d->branches) / level : 0.05) : 0;
}

/* Stores the step that requests second choices from the drafter with the largest gain. Returns false if none pay. */
static bool branch(struct dytc_verify *d, const struct draft_tree *tree, struct step *step)
{
    double max = 0;
    int best = -1;
    if (!d->siblings || d->branched || !tree->nodes || !(level_seconds(d) > 0))
        return false;
    for (int i = 0; i < d->drafters; i++) {
        double worth = choose_branches(d, tree, i);
        if (worth > max) {
            max = worth;
            best = i;
        }
    }
    d->branched = best >= 0;
    if (!d->branched) {
        d->branches = 0;
        return false;
    }
    choose_branches(d, tree, best);
    *step = (struct step){.kind = STEP_EXTEND, .drafter = best, .tokens = 1, .leaf = d->branch, .leaves = d->branches};
    return true;
}

static struct step stop(struct dytc_verify *d, const struct draft_view *view)
{
    struct step step;
    double chance = 1;
    if (branch(d, view->tree, &step))
        return step;
    d->K = view->tree->nodes;
    d->gain = 1;
    for (int node = 0; node < d->nodes; node++)
        d->gain += chance *= d->estimate[node];
    d->cost = d->verify[view->tree->nodes];
    return (struct step){.kind = STEP_STOP};
}

/* Takes over the result of the previous step: estimates of its tokens, and drafters without further tokens here. */
static bool take_step(struct dytc_verify *d, const struct draft_view *view, int max, struct step *step)
{
    const int asked = d->asked;
    if (asked < 0)
        return false;
    estimate(d, view->tree);
    d->asked = -1;
    if (d->looked) {
        d->looked = false;
        d->now->drafter[asked].offers += 0.05 * ((view->added > 0) - d->now->drafter[asked].offers);
        d->dry[asked] = true;
        return view->added && cut(d, view, max, step);
    }
    for (int i = 0; i < d->drafters; i++)
        d->dry[i] &= !view->added;
    d->dry[asked] |= !view->added;
    if (view->added)
        d->speaks[asked] = !isnan(view->tree->log_probability[view->tree->nodes - 1]);
    return false;
}

static struct step dytc_verify_next(struct policy *policy, const struct draft_view *view)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    struct plan_drafter drafter[DRAFTERS];
    const int max = room_of(d, view);
    bool last = false;
    struct plan plan;
    struct step step;
    if (!view->steps)
        begin_iteration(d, max);
    if (d->branched)
        return stop(d, view);
    if (take_step(d, view, max, &step))
        return step;
    if (view->tree->nodes >= max || !(level_seconds(d) > 0))
        return stop(d, view);
    for (int i = 0; i < d->drafters; i++)
        if (d->looks_up[i] && !d->dry[i]) {
            d->looked = true;
            return extend(d, view, i, max - view->tree->nodes);
        }
    describe(d, drafter, -1);
    plan_from(d, &plan, view->tree->nodes, max, drafter);
    if (!view->tree->nodes && !d->tries) {
        d->trial = choose_trial(d, max, &plan, &last);
        d->tries = d->trial >= 0;
        if (d->tries && !last)
            return extend_by_trial(d, view);
    }
    if (plan.first < 0)
        return d->trial >= 0 ? extend_by_trial(d, view) : stop(d, view);
    return extend(d, view, plan.first, d->speaks[plan.first] ? 1 : plan.count[plan.first]);
}

/* Learns from second choices, which follow the chain: only those count whose first choice was wrong. */
static void learn_branches(struct dytc_verify *d, const struct outcome *outcome)
{
    const struct draft_tree *tree = outcome->tree;
    for (int node = d->nodes; tree && outcome->kept && node < tree->nodes; node++) {
        const int first = tree->parent[node] + 1;           /* the first choice, in the chain */
        struct known *known = &d->now->drafter[tree->drafter[node]];
        if (!outcome->kept[first] || outcome->kept[1 + first])
            continue;
        known->second = 0.98 * known->second + outcome->kept[1 + node];
        known->seconds = 0.98 * known->seconds + 1;
    }
}

static void dytc_verify_observe(struct policy *policy, const struct outcome *outcome)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    d->iterations++;
    shared_learn(&d->forward, outcome);
    shared_charge(&d->forward, outcome, shared_growth(&d->forward, outcome->drafted + 1));
    for (int i = 0; outcome->share && i < d->drafters; i++)
        latency_observe(&d->latency[i], &outcome->share[i]);
    for (int i = 0; i < d->drafters; i++)
        estimator_fade(&d->now->estimator[i], fading);
    if (outcome->tree) {
        estimator_signals(d->signal, outcome->tree, d->nodes);
        pending_add(&d->pending, outcome->tree, d->signal);
    }
    pending_learn(&d->pending, d->now->estimator, DRAFTERS, outcome->token, outcome->emitted);
    learn_branches(d, outcome);
    double level = level_seconds(d);
    if (level > 0) {
        const double part = shared_share(&d->forward, cost_model_steepness(&d->forward.model), outcome->drafted + 1);
        const double cost = part + outcome->draft_s / level;
        d->allowance = fmin(d->allowance + d->explore * cost, 12);
        d->now->tokens = 0.98 * d->now->tokens + outcome->emitted;
        d->now->cost = 0.98 * d->now->cost + cost;
    }
    union_learn(&d->forward.experts, outcome->expert, outcome->emitted, outcome->moe_layers);
}

static void forget(struct task *task, double weight)
{
    task->tokens *= weight;
    task->cost *= weight;
    for (int i = 0; i < DRAFTERS; i++) {
        estimator_fade(&task->estimator[i], weight);
        task->drafter[i].second *= weight;
        task->drafter[i].seconds *= weight;
    }
}

static void dytc_verify_begin(struct policy *policy, const struct policy_text *text)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    const int before = tasks_begin(&d->tasks, text ? text->task : NULL);
    d->now = &d->task[d->tasks.now];
    if (before >= 0) {
        *d->now = d->task[before];
        forget(d->now, TASKS_TAKEN_OVER);
    }
    if (!text || !text->task)           /* the text may be of another kind */
        forget(d->now, text_memory);
    union_begin(&d->forward.experts);
    pending_clear(&d->pending);
}

static void dytc_verify_free(struct policy *policy)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    shared_cost_free(&d->forward);
    pending_free(&d->pending);
    mem_free(&d);
}

static int read_settings(struct dytc_verify *d, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int max = setup->max_length < MAX ? setup->max_length : MAX;
    int cap = setup->draft_length >= 0 ? setup->draft_length : MAX_DEFAULT, ahead, siblings;
    const char *file;
    if (spec_int(spec, "max|most", cap < max ? cap : max, 0, max, &d->max, err) ||
        spec_float(spec, "explore", 0.01, 0, 1, &d->explore, err) ||
        spec_float(spec, "optimism|hope", 1.5, 0, 10, &d->optimism, err) ||
        spec_float(spec, "warmup", 8, 0, 1000, &d->allowance, err) ||
        spec_float(spec, "decay|memory", 0.999, 0, 0.9999, &d->decay, err) ||
        spec_choice(spec, "lookahead", 1, dytc_yes_no, &ahead, err) ||
        spec_choice(spec, "siblings", 1, dytc_yes_no, &siblings, err) || spec_text(spec, "cost", NULL, &file, err) ||
        dytc_fixed(spec, "dytc-verify", d->drafters, d->fixed, err))
        return -1;
    d->ahead = ahead;
    d->siblings = siblings && !setup->chains;
    return shared_cost_init(&d->forward, file, nodes_for(d->max) + 1, 0.5, setup, err) ? err_at(err, "dytc-verify") : 0;
}

static int dytc_verify_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "dytc-verify: decides how long a chain is; leave --tree out");
    struct dytc_verify *d = mem_alloc(1, sizeof *d, err);
    if (!d)
        return -1;
    d->drafters = setup->drafters;
    if (read_settings(d, spec, setup, err)) {
        dytc_verify_free(&d->base);
        return -1;
    }
    for (int i = 0; i < DRAFTERS; i++) {
        latency_init(&d->latency[i], 0.98);
        estimator_init(&d->task[0].estimator[i], first_guess, d->decay);
        d->task[0].drafter[i].offers = 1;
    }
    for (int i = 0; setup->drafter && i < d->drafters; i++)
        d->looks_up[i] = setup->drafter[i].looks_up;
    dytc_verify_begin(&d->base, NULL);
    *out = &d->base;
    return 0;
}

static int dytc_verify_length(const struct policy *policy) { return ((const struct dytc_verify *)policy)->K; }

static void dytc_verify_state(const struct policy *policy, struct values *out)
{
    const struct dytc_verify *d = (const struct dytc_verify *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", d->K);
    values_int(out, "first", d->first);
    values_int(out, "siblings", d->branches);
    values_real(out, "gain", d->gain);
    values_real(out, "cost", d->cost);
    values_real(out, "rate", d->rate);
    values_real(out, "allowance", d->allowance);
    values_real(out, "level_us", 1e6 * level_seconds(d));
    values_real(out, "steepness", cost_model_steepness(&d->forward.model));
    values_real(out, "doubt", cost_model_doubt(&d->forward.model));
    if (d->forward.experts.experts)
        values_real(out, "experts", union_of(&d->forward.experts, d->K + 1));       /* predicted, per layer */
    for (int i = 0; i < d->drafters; i++) {
        char key[VALUES_KEY];
        snprintf(key, sizeof key, "chance_%d", i);
        values_real(out, key, chance_at(d, i, 1));
        snprintf(key, sizeof key, "chance_doubt_%d", i);
        values_real(out, key, estimator_doubt(&d->now->estimator[i]));
        snprintf(key, sizeof key, "draft_us_%d", i);
        values_real(out, key, 1e6 * latency_of(&d->latency[i], 1, 1, 1));
    }
}

static void dytc_verify_chances(const struct policy *policy, int nodes, float *out)
{
    const struct dytc_verify *d = (const struct dytc_verify *)policy;
    for (int node = 0; node < nodes; node++)
        out[node] = node < d->nodes ? (float)d->estimate[node] : NAN;
}

static struct estimator *dytc_verify_estimator(struct policy *policy, int drafter)
{
    return &((struct dytc_verify *)policy)->now->estimator[drafter];
}

const struct policy_class policy_dytc_verify = {
    .name = "dytc-verify",
    .summary = "several drafters as they pay, verification included",
    .settings = "max=N,cost=FILE,explore=X,optimism=X,warmup=X,decay=X,lookahead=no,siblings=no,acceptance=X/X/...",
    .needs_probabilities = true,
    .learns_experts = true,
    .open = dytc_verify_open,
    .begin = dytc_verify_begin,
    .next = dytc_verify_next,
    .length = dytc_verify_length,
    .observe = dytc_verify_observe,
    .state = dytc_verify_state,
    .chances = dytc_verify_chances,
    .estimator = dytc_verify_estimator,
    .free = dytc_verify_free,
};

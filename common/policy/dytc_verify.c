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
 * - Lookup drafters draft first, because they cost almost nothing, and the tokens they find are cut to those that pay.
 *   Lookups draw nothing at random, so dropping tokens changes no distribution. The estimator also learns from the dropped
 *   tokens.
 * - A drafter with uncertain estimates is tried if it would pay with an acceptance `optimism` standard deviations above its
 *   estimate, as long as the expected loss of trials stays within the share `explore` of all time. The first iterations of a
 *   text have an allowance of `warmup` forwards. A drafter that did not draft for long is tried within the same allowance,
 *   because its measured cost may be an outlier.
 *
 * - A draft ends with a token that ends texts: one that ended an earlier text before its limit, and was not followed by another
 *   token since.
 *
 * Each task keeps its costs and acceptance from text to text, and policies of concurrent texts share them. */
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
#include "common/predict/text_estimator.h"

enum { DRAFTERS = PLAN_DRAFTERS_MAX, MAX = PLAN_TOKENS_MAX, ENDS = 8 };

/* Tokens are looked up after each of the first LOOK_EACH tokens, and then whenever the chain is twice as long. */
enum { LOOK_EACH = 8 };

/* Drafts have at most GROWTH_MAX times the tokens of the largest forward so far, because the cost of larger ones is unknown: a
 * draft of 64 tokens can take as long as the rest of a text. */
enum { UNMEASURED_MAX = 16, GROWTH_MAX = 2 };

static const double bend = 0.2;         /* see predict/cost_model.h */

/* Optimism grows with the unspent allowance, so that a drafter rejected at the beginning is tried again. */
static const double optimism_saved = 0.4;
static const int idle_max = 200;        /* iterations after which a drafter is tried regardless of its estimate */
static const double trial_token_max = 0.1;      /* cost of a token up to which several are tried at once */
static const double equal_gains = 1e-9;         /* gains that differ by rounding only are equal */
static const double first_guess = 0.6;
static const double fading = 0.9995;    /* factor on past observations, per iteration */
static const double text_memory = 0.8;  /* factor on past observations, per text without a task */

struct known {                          /* measurements of a drafter in a task */
    double second, seconds;             /* where the first choice was rejected: number of accepted second choices, and of all */
    double offers;                      /* share of requests at which the drafter proposes tokens, 0 .. 1 */
};

struct task {
    struct task_slot slot;
    struct estimator estimator[DRAFTERS];
    struct known drafter[DRAFTERS];
    double tokens, cost;                /* recent sums, for the rate of tokens per cost */
};

struct learned {
    struct shared_learning shared;
    struct latency latency[DRAFTERS];
    double allowance;                   /* the loss that trials may still cause, in forwards over one token */
    int32_t end[ENDS];                  /* tokens that end texts, the oldest first */
    int ends;
    bool speaks[DRAFTERS];
};

struct dytc_verify {
    struct policy base;
    int drafters, max;
    bool looks_up[DRAFTERS];
    bool ahead;                         /* plans include further drafters after the first */
    bool sampled;                       /* tokens may be drawn */
    bool siblings;                      /* second choices may be added to a chain */
    double fixed[DRAFTERS];             /* acceptance rates given; NaN: learned */
    double explore, optimism, decay;
    struct shared_cost forward;
    struct learned *learned;
    struct task *now;                   /* of the text */
    struct text_estimator estimator[DRAFTERS];
    struct pending pending;
    int32_t last;                       /* last token of the text; -1: none yet */
    bool open;                          /* the text may still grow: its limit is not reached */
    /* State of the current iteration: */
    double rate, verify[MAX + 1];
    double estimate[MAX];               /* acceptance probability of each token of the chain */
    int nodes;                          /* nodes with an estimate */
    bool branched;                      /* second choices were requested */
    int branches;                       /* number of second choices */
    bool dry[DRAFTERS];                 /* the drafter has nothing to add below the present leaf */
    bool tries;                         /* this iteration tries a drafter (choose_trial) */
    bool drops;                         /* the last step drafted tokens on trial that are not verified */
    int trial;                          /* the drafter on trial that still needs a token; -1: none */
    int look_from;                      /* chain length from which on tokens are looked up again */
    bool looked;                        /* the last step looked tokens up, which are not yet cut */
    int asked;                          /* the drafter of the last step; -1: the step did not extend */
    int room;                           /* max tokens of a draft, by the text's limit */
    int closed;                         /* first node that ends the text; -1: none */
    int first, K;                       /* first: the drafter asked first; -1: none */
    double gain, cost;
    struct estimator_signal signal[MAX];
    int32_t keep[MAX];
    struct draft_leaf leaf, branch[MAX];
};

static double level_seconds(const struct dytc_verify *d) { return shared_level(&d->forward); }

/* Returns the expected acceptance probability of a drafter's next token at a depth (from 1), before the token is drafted. */
static double chance_at(const struct dytc_verify *d, int drafter, int depth)
{
    return isnan(d->fixed[drafter]) ? text_estimator_ahead(&d->estimator[drafter], depth) : d->fixed[drafter];
}

/* Fills the plan's data of the drafters. optimistic_about: the drafter whose estimate is raised by optimism; -1: none. */
static void describe(const struct dytc_verify *d, struct plan_drafter *out, int optimistic_about)
{
    double level = level_seconds(d);
    for (int i = 0; i < d->drafters; i++) {
        const struct latency *latency = &d->learned->latency[i];
        double token = latency_of(latency, 0, 1, 1), step = latency_of(latency, 1, 0, 0);
        double doubt = i == optimistic_about && isnan(d->fixed[i]) ? estimator_doubt(&d->now->estimator[i]) : 0;
        double more = (d->optimism + optimism_saved * d->learned->allowance) * doubt;
        out[i] = (struct plan_drafter){.out = d->dry[i] || (d->looks_up[i] && d->nodes < d->look_from)};
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
    double steepness = shared_steepness(&d->forward);
    if (optimistic)
        steepness *= exp(-d->optimism * shared_doubt(&d->forward));
    shared_parts(&d->forward, steepness, nodes_for(room) + 1, d->verify);
}

static int smaller(int a, int b) { return a < b ? a : b; }

static int room_of(const struct dytc_verify *d, const struct draft_view *view)
{
    const int max = smaller(d->max, view->room), measured = GROWTH_MAX * d->forward.common->max_rows;
    if (d->forward.has_table || d->forward.load.texts > 1)
        return shared_room(&d->forward, max);
    return smaller(max, measured > UNMEASURED_MAX ? measured : UNMEASURED_MAX);
}

static bool ends_text(const struct dytc_verify *d, int32_t token)
{
    for (int i = 0; i < d->learned->ends; i++)
        if (d->learned->end[i] == token)
            return true;
    return false;
}

static void forget_end(struct dytc_verify *d, int32_t token)
{
    int left = 0;
    for (int i = 0; i < d->learned->ends; i++)
        if (d->learned->end[i] != token)
            d->learned->end[left++] = d->learned->end[i];
    d->learned->ends = left;
}

static void learn_end(struct dytc_verify *d, int32_t token)
{
    forget_end(d, token);
    if (d->learned->ends == ENDS)
        forget_end(d, d->learned->end[0]);
    d->learned->end[d->learned->ends++] = token;
}

static struct step extend(struct dytc_verify *d, const struct draft_view *view, int drafter, int tokens)
{
    d->asked = drafter;
    d->first = d->first < 0 ? drafter : d->first;
    d->leaf = (struct draft_leaf){view->tree->nodes - 1, 1};
    return (struct step){.kind = STEP_EXTEND, .drafter = drafter, .tokens = tokens, .leaf = &d->leaf, .leaves = 1};
}

static struct step extend_by_trial(struct dytc_verify *d, const struct draft_view *view, int tokens)
{
    int drafter = d->trial;
    d->trial = -1;
    return extend(d, view, drafter, tokens);
}

static double survival(const struct dytc_verify *d, int nodes)
{
    double product = 1;
    for (int node = 0; node < nodes; node++)
        product *= d->estimate[node];
    return product;
}

/* Finds the best plan after the first `nodes` tokens of the chain. Values up to `floor` need not be exact. */
static void plan_from(struct dytc_verify *d, struct plan *out, int nodes, int max, const struct plan_drafter *drafter,
                      double floor)
{
    const struct plan_setup setup = {d->drafters, drafter, nodes, max, survival(d, nodes), d->rate, d->verify};
    struct plan_drafter one[DRAFTERS];
    if (d->ahead) {
        plan_find_above(out, &setup, floor);
        return;
    }
    for (int i = 0; i < (d->drafters ? d->drafters : 1); i++) {         /* each as if its drafter drafted all remaining
                                                                         * tokens */
        struct plan_setup alone = setup;
        struct plan plan;
        alone.drafter = one;
        for (int other = 0; other < d->drafters; other++) {
            one[other] = drafter[other];
            one[other].out |= other != i;
        }
        plan_find_above(&plan, &alone, floor);
        if (!i || plan.value > out->value)
            *out = plan;
    }
}

/* The place of a drafter's trial. FIRST: at the chain's first position; a wrong token there discards all others. LAST: at the
 * end; a token there is judged only if all tokens before it are accepted. DROPPED: the tokens are drafted before the chain and
 * not verified; the text shows later which of them are right. Tokens drawn at random must be verified. */
enum trial_place { TRIAL_FIRST, TRIAL_LAST, TRIAL_DROPPED };

/* Returns the number of tokens of a trial that is not verified: several teach more, if they cost little. */
static int tokens_of_trial(const struct plan_drafter *drafter)
{
    return drafter->token < trial_token_max ? PLAN_DEPTHS : 1;
}

/* Finds the place with the smallest expected loss, divided by the probability that the tried token is judged. Returns that
 * loss, in cost. */
static double place_trial(const struct dytc_verify *d, const struct plan_drafter *drafter, int which, int max,
                          const struct plan *plan, enum trial_place *place)
{
    const struct plan_drafter *tried = &drafter[which];
    const double chance = tried->chance[0], asked = tried->step + tried->token;
    const struct plan_setup after = {d->drafters, drafter, 1, max, chance, d->rate, d->verify};
    struct plan rest;
    double loss, reach = 1;
    int length = 0;
    plan_find(&rest, &after);
    loss = (plan->value - (chance - d->rate * asked + rest.value)) / d->rate;
    *place = TRIAL_FIRST;
    const double dropped = tried->step + tokens_of_trial(tried) * tried->token;
    if (!d->sampled && dropped < loss) {
        loss = dropped;
        *place = TRIAL_DROPPED;
    }
    for (int i = 0; i < d->drafters; i++)
        for (int n = 0; n < plan->count[i]; n++)
            reach *= drafter[i].chance[++length < PLAN_DEPTHS ? length - 1 : PLAN_DEPTHS - 1];
    if (!length || length >= max)
        return loss;
    double end = (asked + d->verify[length + 1] - d->verify[length]) / reach - chance / d->rate;
    if (end < loss)
        *place = TRIAL_LAST;
    return fmin(end, loss);
}

/* Chooses a drafter to try: one that would pay under optimism, or else one that did not draft for long; -1: none. The allowance
 * must cover the expected loss. The most promising trial has priority, and the allowance is saved for it, because less
 * promising trials would use it up. */
static int choose_trial(struct dytc_verify *d, int max, const struct plan *plan, enum trial_place *place)
{
    struct plan_drafter drafter[DRAFTERS];
    double gain = 1e-3;
    int found = -1;
    describe(d, drafter, -1);
    weigh_verification(d, max, true);
    for (int i = 0; i < d->drafters; i++) {
        struct plan_drafter supposed[DRAFTERS];
        struct plan optimistic;
        if (d->dry[i] || !isnan(d->fixed[i]) || plan->first == i)
            continue;
        describe(d, supposed, i);
        const struct plan_setup all = {d->drafters, supposed, 0, max, 1, d->rate, d->verify};
        plan_find_above(&optimistic, &all, plan->value + gain + equal_gains);
        if (optimistic.count[i] && optimistic.value - plan->value > gain + equal_gains) {
            gain = optimistic.value - plan->value;
            found = i;
        }
    }
    weigh_verification(d, max, false);
    for (int i = 0; i < d->drafters && found < 0; i++)
        if (!d->dry[i] && !d->looks_up[i] && plan->first != i && d->learned->latency[i].idle >= idle_max)
            found = i;
    if (found < 0)
        return -1;
    double loss = fmax(0, place_trial(d, drafter, found, max, plan, place));
    if (loss > d->learned->allowance)
        return -1;
    d->learned->allowance -= loss;
    return found;
}

/* Estimates the acceptance probabilities of the chain's new tokens. */
static void estimate(struct dytc_verify *d, const struct draft_tree *tree)
{
    estimator_signals(d->signal, tree, d->nodes);
    for (; d->nodes < tree->nodes; d->nodes++) {
        const int drafter = tree->drafter[d->nodes];
        if (d->closed < 0 && ends_text(d, tree->token[d->nodes]))
            d->closed = d->nodes;
        d->estimate[d->nodes] = d->fixed[drafter];
        if (isnan(d->fixed[drafter]))
            d->estimate[d->nodes] = text_estimator_of(&d->estimator[drafter], &d->signal[d->nodes]);
    }
}

static void begin_iteration(struct dytc_verify *d, int max)
{
    struct plan_drafter drafter[DRAFTERS];
    memset(d->dry, 0, sizeof d->dry);
    d->nodes = d->branches = d->K = d->look_from = 0;
    d->tries = d->drops = d->looked = d->branched = false;
    d->asked = d->first = d->trial = d->closed = -1;
    d->gain = d->cost = 1;
    weigh_verification(d, max, false);
    describe(d, drafter, -1);
    const struct plan_setup setup = {d->drafters, drafter, 0, max, 1, 1, d->verify};
    double planned = max > 0 ? plan_best_rate(&setup) : 1;
    double reached = d->now->cost > 0 ? d->now->tokens / d->now->cost : 1;
    d->rate = fmax(1, fmax(planned, fmin(reached, 1.3 * planned)));
    if (max <= 0 || !(d->rate > planned))
        return;
    /* The reached rate exceeds that of the best plan, as some positions are better than the average one. If no plan would begin
     * at the reached rate, the planned rate applies. */
    const struct plan_setup faster = {d->drafters, drafter, 0, max, 1, d->rate, d->verify};
    struct plan plan;
    plan_find(&plan, &faster);
    if (plan.first < 0)
        d->rate = planned;
}

/* Cuts the looked-up tokens to those that pay, given the best plan after them. Returns false if all of them pay. */
static bool cut(struct dytc_verify *d, const struct draft_view *view, int max, struct step *step)
{
    const struct draft_tree *tree = view->tree;
    struct plan_drafter drafter[DRAFTERS];
    const int before = tree->nodes - view->added;
    double gain = 0, best_value = -INFINITY, chance = survival(d, before);
    const int last = d->closed < 0 ? tree->nodes : d->closed + 1;
    int best = before;
    describe(d, drafter, -1);
    for (int nodes = before; nodes <= last; nodes++) {
        struct plan plan = {.value = -d->rate * d->verify[nodes]};
        if (nodes > before)
            gain += chance *= d->estimate[nodes - 1];
        if (nodes <= d->closed || d->closed < 0)
            plan_from(d, &plan, nodes, max, drafter, best_value - gain);
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
    d->closed = d->closed < best ? d->closed : -1;
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
    const struct latency *latency = &d->learned->latency[drafter];
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

static bool drop_trial(struct dytc_verify *d, const struct draft_tree *tree, struct step *step)
{
    pending_add(&d->pending, tree, d->signal);
    d->nodes = 0;
    d->closed = -1;
    *step = (struct step){.kind = STEP_KEEP, .keep = d->keep};
    return true;
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
    if (view->added)
        d->learned->speaks[asked] = !isnan(view->tree->log_probability[view->tree->nodes - 1]);
    if (d->drops) {
        d->drops = false;
        d->dry[asked] |= !view->added;
        return view->added && drop_trial(d, view->tree, step);
    }
    for (int i = 0; i < d->drafters; i++)
        d->dry[i] &= !view->added;
    d->dry[asked] |= !view->added;
    return false;
}

static struct step dytc_verify_next(struct policy *policy, const struct draft_view *view)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    struct plan_drafter drafter[DRAFTERS];
    const int max = room_of(d, view);
    enum trial_place place = TRIAL_FIRST;
    struct plan plan;
    struct step step;
    if (!view->steps) {
        shared_next(&d->forward);
        begin_iteration(d, max);
        d->room = view->room;
    }
    if (d->branched)
        return stop(d, view);
    if (take_step(d, view, max, &step))
        return step;
    if (view->tree->nodes >= max || d->closed >= 0 || !(level_seconds(d) > 0))
        return stop(d, view);
    const int nodes = view->tree->nodes;
    for (int i = 0; i < d->drafters && nodes >= d->look_from; i++)
        if (d->looks_up[i] && !d->dry[i]) {
            d->looked = true;
            return extend(d, view, i, max - nodes);
        }
    if (nodes >= d->look_from)
        d->look_from = nodes < LOOK_EACH ? nodes + 1 : 2 * nodes;
    describe(d, drafter, -1);
    plan_from(d, &plan, view->tree->nodes, max, drafter, -INFINITY);
    if (!view->tree->nodes && !d->tries) {
        d->trial = choose_trial(d, max, &plan, &place);
        d->tries = d->trial >= 0;
        d->drops = d->tries && place == TRIAL_DROPPED;
        if (d->tries && place != TRIAL_LAST)
            return extend_by_trial(d, view, d->drops ? tokens_of_trial(&drafter[d->trial]) : 1);
    }
    if (plan.first < 0)
        return d->trial >= 0 ? extend_by_trial(d, view, 1) : stop(d, view);
    return extend(d, view, plan.first, d->learned->speaks[plan.first] ? 1 : plan.count[plan.first]);
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

/* Follows the text by new tokens. A token that another token follows does not end texts. */
static void follow_text(struct dytc_verify *d, const int32_t *token, int count)
{
    for (int i = 0; i < count; i++) {
        forget_end(d, d->last);
        d->last = token[i];
    }
    d->open = count <= d->room;
}

static void judge(void *context, int drafter, const struct estimator_signal *signal, bool kept)
{
    struct dytc_verify *d = context;
    text_estimator_observe(&d->estimator[drafter], signal, kept);
}

static void dytc_verify_observe(struct policy *policy, const struct outcome *outcome)
{
    struct dytc_verify *d = (struct dytc_verify *)policy;
    d->now->slot.taught = true;
    shared_learn(&d->forward, outcome);
    shared_charge(&d->forward, outcome, shared_growth(&d->forward, outcome->drafted + 1));
    for (int i = 0; outcome->share && i < d->drafters; i++)
        latency_observe(&d->learned->latency[i], &outcome->share[i]);
    for (int i = 0; i < d->drafters; i++)
        estimator_fade(&d->now->estimator[i], fading);
    if (outcome->tree) {
        estimator_signals(d->signal, outcome->tree, d->nodes);
        pending_add(&d->pending, outcome->tree, d->signal);
    }
    pending_follow(&d->pending, judge, d, outcome->token, outcome->emitted);
    follow_text(d, outcome->token, outcome->emitted);
    learn_branches(d, outcome);
    double level = level_seconds(d);
    if (level > 0) {
        const double part = shared_share(&d->forward, shared_steepness(&d->forward), outcome->drafted + 1);
        const double cost = part + outcome->draft_s / level;
        d->learned->allowance = fmin(d->learned->allowance + d->explore * cost, 12);
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
    struct task_slot *slot = (struct task_slot *)d->now;
    const bool takes_over = tasks_begin(&d->learned->shared.tasks, &slot, text ? text->task : NULL);
    d->now = (struct task *)slot;
    if (d->last >= 0 && d->open)
        learn_end(d, d->last);
    d->last = -1;
    if (takes_over)
        forget(d->now, TASKS_TAKEN_OVER);
    const bool unknown = !text || !text->task;                  /* the text may be of another kind */
    if (unknown && (d->now->slot.taught || !shared_learns(&d->forward)))
        forget(d->now, text_memory);
    for (int i = 0; i < DRAFTERS; i++)
        text_estimator_begin(&d->estimator[i], &d->now->estimator[i], &d->learned->shared.users);
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

/* Initialises what is learned, for the first policy that learns it. */
static void learn_first(struct dytc_verify *d, double warmup)
{
    struct task *first = (struct task *)d->learned->shared.tasks.slot[0];
    if (!d->forward.has_table)
        cost_model_let_bend(d->forward.model, bend, false);
    d->learned->allowance = warmup;
    for (int i = 0; i < DRAFTERS; i++) {
        latency_init(&d->learned->latency[i], 0.98);
        estimator_init(&first->estimator[i], first_guess, d->decay);
        first->drafter[i].offers = 1;
    }
}

static int read_settings(struct dytc_verify *d, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    int max = setup->max_length < MAX ? setup->max_length : MAX;
    int cap = setup->draft_length >= 0 ? setup->draft_length : MAX, ahead, siblings;
    const struct dytc_verify *like = (const struct dytc_verify *)setup->like;
    const char *file;
    double warmup;
    if (spec_int(spec, "max|most", cap < max ? cap : max, 0, max, &d->max, err) ||
        spec_float(spec, "explore", 0.01, 0, 1, &d->explore, err) ||
        spec_float(spec, "optimism|hope", 1.5, 0, 10, &d->optimism, err) ||
        spec_float(spec, "warmup", 8, 0, 1000, &warmup, err) ||
        spec_float(spec, "decay|memory", 0.999, 0, 0.9999, &d->decay, err) ||
        spec_choice(spec, "lookahead", 1, dytc_yes_no, &ahead, err) ||
        spec_choice(spec, "siblings", 1, dytc_yes_no, &siblings, err) || spec_text(spec, "cost", NULL, &file, err) ||
        dytc_fixed(spec, "dytc-verify", d->drafters, d->fixed, err))
        return -1;
    d->ahead = ahead;
    d->siblings = siblings && !setup->chains;
    const struct shared_setup shared = {file, nodes_for(d->max) + 1, 0.5, sizeof *d->learned, sizeof *d->now};
    if (shared_cost_init(&d->forward, &shared, setup, like ? &like->forward : NULL, err))
        return err_at(err, "dytc-verify");
    d->learned = (struct learned *)d->forward.common;
    if (!shared_learns(&d->forward))
        learn_first(d, warmup);
    return 0;
}

static int dytc_verify_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    if (setup->shape->class != &shape_chain)
        return err_set(err, ERR_INPUT, "dytc-verify: drafts chains only; leave --tree out");
    struct dytc_verify *d = mem_alloc(1, sizeof *d, err);
    if (!d)
        return -1;
    d->drafters = setup->drafters;
    d->last = -1;
    d->sampled = setup->sampled;
    if (read_settings(d, spec, setup, err)) {
        dytc_verify_free(&d->base);
        return -1;
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
    values_real(out, "allowance", d->learned->allowance);
    values_real(out, "level_us", 1e6 * level_seconds(d));
    values_real(out, "steepness", shared_steepness(&d->forward));
    values_real(out, "doubt", shared_doubt(&d->forward));
    if (d->forward.experts.experts)
        values_real(out, "experts", union_of(&d->forward.experts, d->K + 1));       /* predicted, per layer */
    for (int i = 0; i < d->drafters; i++) {
        char key[VALUES_KEY];
        snprintf(key, sizeof key, "chance_%d", i);
        values_real(out, key, chance_at(d, i, 1));
        snprintf(key, sizeof key, "chance_doubt_%d", i);
        values_real(out, key, estimator_doubt(&d->now->estimator[i]));
        snprintf(key, sizeof key, "draft_us_%d", i);
        values_real(out, key, 1e6 * latency_of(&d->learned->latency[i], 1, 1, 1));
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

/* Policies that draft in full and verify the part that pays: the shape finishes a draft, its nodes are scored, and the nodes
 * with the highest scores are kept (kernels/plain/trim.h). Rules for the number of nodes:
 *
 *   evict        the number that maximises (1 + sum of scores) / cost, over all numbers: EVICT, arXiv 2605.00342
 *   evict-experts    the same, with the cost of the union of the nodes' predicted experts (predict/token_experts.h), which are
 *                ordered by score per added cost (kernels/plain/trim_experts.h)
 *   bastion      nodes are added while each raises this ratio; the draft grows no further level if none of the last level's
 *                nodes was added: after BASTION, arXiv 2605.29727
 *   threshold    nodes whose score exceeds `rate` times their added cost: "Limits of Speculation", arXiv 2609.22156
 *
 * The cost of an iteration with k nodes, in units of a forward over one token, is the cost of drafting plus that of a forward
 * over 1 + k rows: from a table (`cost`), or from the experts that this many tokens are predicted to load, corrected by
 * measured times (predict/cost_model.h). The score is the product of the drafter's probabilities along the path, as printed;
 * with `calibrated` 1, and for tokens without a probability, the product of learned acceptance probabilities
 * (predict/estimator.h).
 *
 * Under evict-experts and bastion a chain whose drafter states probabilities grows token by token, as long as the next one is
 * expected to pay for drafting and verifying it.
 *
 * With `truth` a recording of the drafts replaces estimates, predictions or both (truth.h).
 *
 * All policies verify nothing if nothing pays. While recent drafts gave fewer tokens per second than iterations without a
 * draft, iterations are without drafts, except for trials, which lose at most the share `explore` of all time; a trial with a
 * gain earns the next one. Acceptance and recent drafts are those of the task. Policies of concurrent texts share them. */
#include "common/policy/shape.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/policy/shared.h"
#include "common/policy/truth.h"
#include "common/predict/pending.h"
#include "common/predict/tasks.h"
#include "common/predict/text_estimator.h"
#include "common/predict/token_experts.h"
#include "kernels/plain/trim.h"
#include "kernels/plain/trim_experts.h"

enum { LENGTH_DEFAULT = 8, ROOM = SHAPE_NODES_MAX + SHAPE_SIBLINGS_MAX * SHAPE_SIBLINGS_MAX };
enum rule { RULE_RATE, RULE_EXPERTS, RULE_RISING, RULE_THRESHOLD };

static const double decay = 0.95;       /* factor on past tokens and seconds, per iteration with a draft */
static const double first_guess = 0.4, estimator_decay = 0.999;
static const double sure_cost = 10;     /* min time of drafts, in forwards, before drafting is paused */

struct recent { double tokens, seconds; };              /* sums over recent iterations with drafts */

struct task {
    struct task_slot slot;
    struct estimator estimator[DRAFTERS_MAX];
    struct recent recent;
};

struct learned {
    struct shared_learning shared;
    struct token_experts wanted;        /* evict-experts: predicted experts by token */
    double draft_seconds;               /* mean seconds of a draft; 0: none was made */
    double token_seconds;               /* mean seconds of a drafted token */
    bool speaks;                        /* the drafter states a probability of each token of a chain */
    double allowance;                   /* the loss that trials may still cause */
};

struct evict {
    struct policy base;
    struct shape *shape;
    enum rule rule;
    int max;                            /* levels */
    bool alone, calibrated;             /* alone: there is no drafter */
    double explore, threshold;
    struct shared_cost forward;
    struct learned *learned;
    struct task *now;                   /* of the text */
    struct recent recent;               /* of the text; it begins with that of the task */
    struct text_estimator estimator[DRAFTERS_MAX];
    struct pending pending;
    uint64_t *joined;                   /* [wanted.words] scratch; NULL: nothing was learned */
    struct truth truth;                 /* replaces estimates and predictions */
    int32_t last;                       /* the text's last token; -1: unknown */
    /* State of the current iteration: */
    bool drafts, paused, cut;
    int made, K;                        /* nodes drafted; nodes kept */
    double gain;
    double chance[ROOM], score[ROOM], cost[ROOM + 1];
    struct estimator_signal signal[ROOM];
    const uint64_t *set[1 + ROOM];
    double growth[ROOM + 1], average[ROOM + 1];
    uint8_t taken[ROOM];
    struct draft_leaf leaf;
    int32_t order[ROOM], keep[ROOM];
};

/* Returns the growth of M rows minus that of one row. */
static double extra(const struct evict *e, int M) { return shared_growth(&e->forward, M) - shared_growth(&e->forward, 1); }

/* Returns this text's part of the cost of a forward that verifies k nodes. */
static double part(const struct evict *e, int k)
{
    return shared_part(&e->forward, shared_steepness(&e->forward), 1 + k);
}

/* Returns the seconds that this text is charged with for an iteration without a draft. */
static double plain_seconds(const struct evict *e) { return shared_level(&e->forward) * part(e, 0); }

static double drafting_cost(const struct evict *e)
{
    double level = shared_level(&e->forward);
    return level > 0 ? e->learned->draft_seconds / level : 0;
}

static void set_scores(struct evict *e, const struct draft_tree *tree)
{
    estimator_signals(e->signal, tree, 0);
    for (int node = 0; node < tree->nodes; node++) {
        const double stated = exp((double)tree->log_probability[node]);
        const struct text_estimator *estimator = &e->estimator[tree->drafter[node]];
        e->chance[node] = isnan(stated) || e->calibrated ? text_estimator_of(estimator, &e->signal[node]) : fmin(1, stated);
    }
    if (e->truth.acceptance)
        truth_chances(&e->truth, tree, e->chance);
    trim_scores(e->score, e->chance, tree->parent, tree->nodes);
}

/* Returns the mean number of (layer, expert) pairs that a forward over M neighbouring tokens loads in `layers` layers. */
static double average_pairs(const struct evict *e, int M, int layers)
{
    return layers * union_of(&e->forward.experts, M < UNION_TOKENS ? M : UNION_TOKENS);
}

static int choose_by_experts(struct evict *e, const struct draft_tree *tree)
{
    const bool truth = e->truth.experts;
    uint64_t *joined = truth ? e->truth.joined : e->joined;
    const struct token_experts *wanted = &e->learned->wanted;
    const int layers = truth ? e->truth.layers : joined ? wanted->layers : 1, max = e->shape->nodes;
    struct trim_experts trim = {
        .parent = tree->parent, .score = e->score, .nodes = tree->nodes, .max = max, .set = e->set,
        .words = truth ? e->truth.words : joined ? wanted->words : 0, .all = (double)layers * e->forward.experts.experts,
        .each = (double)layers * e->forward.experts.top_k, .growth = e->growth, .average = e->average,
        .base = part(e, 0) + drafting_cost(e), .steepness = shared_steepness(&e->forward)};
    if (truth)
        truth_sets(&e->truth, tree, e->forward.experts.experts, e->set);
    for (int row = 0; !truth && row <= tree->nodes; row++)
        e->set[row] = joined ? token_experts_of(wanted, row ? tree->token[row - 1] : e->last) : NULL;
    for (int k = 0; k <= tree->nodes && k <= max; k++) {
        e->growth[k] = extra(e, k + 1);
        e->average[k] = average_pairs(e, k + 1, layers);
    }
    const int nodes = trim_order_by_experts(&trim, e->order, e->cost, joined, e->taken);
    return trim_by_rate(e->order, e->score, e->cost, nodes);
}

/* Orders the nodes of the tree and returns how many of them to verify. */
static int choose(struct evict *e, const struct draft_tree *tree)
{
    const int nodes = tree->nodes < e->shape->nodes ? tree->nodes : e->shape->nodes;
    const double drafting = drafting_cost(e);
    set_scores(e, tree);
    if (e->rule == RULE_EXPERTS && e->forward.experts.experts)
        return choose_by_experts(e, tree);
    trim_order(e->order, e->score, tree->nodes);
    for (int k = 0; k <= nodes; k++)
        e->cost[k] = part(e, k) + drafting;
    return e->rule == RULE_RATE || e->rule == RULE_EXPERTS ? trim_by_rate(e->order, e->score, e->cost, nodes)
         : e->rule == RULE_RISING ? trim_while_rising(e->order, e->score, e->cost, nodes)
         : trim_by_threshold(e->order, e->score, e->cost, nodes, e->threshold);
}

/* Returns whether growth has ended: no node of the last level would be verified. */
static bool has_ended(struct evict *e, const struct draft_view *view)
{
    const int before = view->tree->nodes - view->added;
    if (e->rule != RULE_RISING || !view->added)
        return false;
    for (int at = choose(e, view->tree) - 1; at >= 0; at--)
        if (e->order[at] >= before)
            return false;
    return true;
}

/* Returns whether a chain grows token by token, while the next token is expected to pay. */
static bool grows(const struct evict *e)
{
    return (e->rule == RULE_RISING || e->rule == RULE_EXPERTS) && e->shape->class == &shape_chain && e->learned->speaks;
}

/* Returns whether one more token of a chain is expected to gain more than its drafting and verification cost, in tokens at the
 * rate of recent iterations with drafts. */
static bool goes_on(struct evict *e, const struct draft_view *view, int max)
{
    const int nodes = view->tree->nodes;
    const double level = shared_level(&e->forward), steepness = shared_steepness(&e->forward);
    if (!view->added || nodes >= max || !(level > 0))
        return false;
    set_scores(e, view->tree);
    const struct recent *recent = &e->recent;
    const double plain = 1 / part(e, 0), rate = fmax(plain, recent->seconds > 0 ? recent->tokens * level / recent->seconds : 0);
    const double added = shared_growth(&e->forward, nodes + 2) - shared_growth(&e->forward, nodes + 1);
    const double cost = steepness * added + e->learned->token_seconds / level;
    const struct text_estimator *estimator = &e->estimator[view->tree->drafter[nodes - 1]];
    return e->score[nodes - 1] * text_estimator_ahead(estimator, nodes + 1) > rate * cost;
}

/* Stores the step that continues the draft. Returns whether there is one. */
static bool extend(struct evict *e, const struct draft_view *view, int max, struct step *step)
{
    if (!view->steps || !grows(e)) {
        if (has_ended(e, view))
            return false;
        *step = shape_next(e->shape, view, grows(e) ? 1 : max);
        step->levels = grows(e) ? 0 : step->levels;
        return step->kind != STEP_STOP;
    }
    if (!view->tree->nodes || !goes_on(e, view, max))
        return false;
    e->leaf = (struct draft_leaf){view->tree->nodes - 1, 1};
    *step = (struct step){.kind = STEP_EXTEND, .drafter = view->tree->drafter[view->tree->nodes - 1], .tokens = 1,
                          .leaf = &e->leaf, .leaves = 1};
    return true;
}

static struct step cut(struct evict *e, const struct draft_tree *tree)
{
    bool kept[ROOM] = {false};
    int count = 0;
    e->cut = true;
    e->made = tree->nodes;
    e->learned->speaks = tree->nodes && !isnan(tree->log_probability[tree->nodes - 1]);
    e->K = choose(e, tree);
    e->gain = 1;
    for (int at = 0; at < e->K; at++) {
        kept[e->order[at]] = true;
        e->gain += e->score[e->order[at]];
    }
    for (int node = 0; node < tree->nodes; node++)
        if (kept[node])
            e->keep[count++] = node;
    pending_add(&e->pending, tree, e->signal);
    return (struct step){.kind = STEP_KEEP, .keep = e->keep, .kept = count};
}

static struct step evict_next(struct policy *policy, const struct draft_view *view)
{
    struct evict *e = (struct evict *)policy;
    const int max = shared_room(&e->forward, e->max < view->room ? e->max : view->room);
    if (!view->steps) {
        const double plain = plain_seconds(e);
        shared_next(&e->forward);
        e->K = e->made = 0;
        e->cut = false;
        e->gain = 1;
        e->cost[0] = 1;
        e->paused = e->recent.seconds >= sure_cost * plain && e->recent.tokens * plain < e->recent.seconds;
        e->drafts = !e->alone && max > 0 && (!e->paused || e->learned->allowance >= drafting_cost(e));
    }
    if (!e->drafts || e->cut)
        return (struct step){.kind = STEP_STOP};
    struct step step;
    if (extend(e, view, max, &step))
        return step;
    return view->tree->nodes ? cut(e, view->tree) : (struct step){.kind = STEP_STOP};
}

static void learn_experts(struct evict *e, const struct outcome *outcome)
{
    struct token_experts *wanted = &e->learned->wanted;
    const size_t row = (size_t)outcome->moe_layers * (size_t)outcome->top_k;
    for (int i = 0; outcome->expert && i < outcome->emitted; i++)
        token_experts_learn(wanted, i ? outcome->token[i - 1] : e->last, outcome->expert + (size_t)i * row,
                            e->forward.experts.experts, outcome->moe_layers, outcome->top_k);
    if (!e->joined && wanted->layers)
        e->joined = mem_alloc((size_t)wanted->words, sizeof *e->joined, NULL);
    if (outcome->emitted)
        e->last = outcome->token[outcome->emitted - 1];
}

/* Returns the excess of the cost of the last forward; computed from its own experts if cost is predicted by experts. */
static double growth_seen(const struct evict *e, const struct outcome *outcome)
{
    const double average = shared_growth(&e->forward, outcome->drafted + 1);
    const double each = (double)outcome->moe_layers * outcome->top_k;
    if (e->rule != RULE_EXPERTS || !e->forward.experts.experts || !outcome->drafted || !outcome->moe_layers)
        return average;
    const double usual = average_pairs(e, outcome->drafted + 1, outcome->moe_layers) - each;
    const double root = shared_growth(&e->forward, 1);
    return usual > 0 ? root + (average - root) * fmax(0, outcome->experts_loaded - each) / usual : average;
}

static void judge(void *context, int drafter, const struct estimator_signal *signal, bool kept)
{
    struct evict *e = context;
    text_estimator_observe(&e->estimator[drafter], signal, kept);
}

static void add_recent(struct recent *recent, int tokens, double seconds)
{
    recent->tokens = decay * recent->tokens + tokens;
    recent->seconds = decay * recent->seconds + seconds;
}

static double mean_with(double mean, double value) { return mean > 0 ? 0.9 * mean + 0.1 * value : value; }

static void evict_observe(struct policy *policy, const struct outcome *outcome)
{
    struct evict *e = (struct evict *)policy;
    struct learned *learned = e->learned;
    e->now->slot.taught = true;
    shared_learn(&e->forward, outcome);
    const double own = shared_charge(&e->forward, outcome, growth_seen(e, outcome)), plain = plain_seconds(e);
    if (e->drafts) {
        learned->draft_seconds = mean_with(learned->draft_seconds, outcome->draft_s);
        learned->token_seconds = mean_with(learned->token_seconds, outcome->draft_s / (e->made > 0 ? e->made : 1));
        add_recent(&e->recent, outcome->emitted, own);
        add_recent(&e->now->recent, outcome->emitted, own);
        if (e->paused && plain > 0)
            learned->allowance -= own / plain - outcome->emitted;
    }
    learned->allowance = fmin(fmax(1, 2 * drafting_cost(e)), learned->allowance + e->explore);
    pending_follow(&e->pending, judge, e, outcome->token, outcome->emitted);
    if (e->rule == RULE_EXPERTS)
        learn_experts(e, outcome);
    union_learn(&e->forward.experts, outcome->expert, outcome->emitted, outcome->moe_layers);
    recorded_follow_observe(&e->truth.follow, outcome);
}

static void evict_begin(struct policy *policy, const struct policy_text *text)
{
    struct evict *e = (struct evict *)policy;
    struct task_slot *slot = (struct task_slot *)e->now;
    const bool takes_over = tasks_begin(&e->learned->shared.tasks, &slot, text ? text->task : NULL);
    e->now = (struct task *)slot;
    e->recent = e->now->recent;
    for (int i = 0; i < DRAFTERS_MAX; i++) {
        if (takes_over)
            estimator_fade(&e->now->estimator[i], TASKS_TAKEN_OVER);
        text_estimator_begin(&e->estimator[i], &e->now->estimator[i], &e->learned->shared.users);
    }
    if (e->truth.recording)
        recorded_follow_begin(&e->truth.follow, text);
    union_begin(&e->forward.experts);
    pending_clear(&e->pending);
    e->last = -1;
}

static void evict_free(struct policy *policy)
{
    struct evict *e = (struct evict *)policy;
    if (e->learned && e->learned->shared.users == 1)
        token_experts_free(&e->learned->wanted);
    shared_cost_free(&e->forward);
    truth_free(&e->truth);
    pending_free(&e->pending);
    mem_free(&e->joined);
    mem_free(&e);
}

static int read_settings(struct evict *e, struct spec *spec, const struct policy_setup *setup, const char *name,
                         struct err *err)
{
    const int depth = e->shape->class == &shape_chain ? LENGTH_DEFAULT : e->shape->depth;
    const int max = setup->max_length < SHAPE_DEPTH_MAX ? setup->max_length : SHAPE_DEPTH_MAX;
    const int otherwise = setup->draft_length >= 0 ? setup->draft_length : depth;
    const char *file;
    int calibrated;
    if (spec_int(spec, "max", otherwise < max ? otherwise : max, 0, max, &e->max, err) ||
        spec_text(spec, "cost", NULL, &file, err) || spec_int(spec, "calibrated", 0, 0, 1, &calibrated, err) ||
        spec_float(spec, "explore", 0.005, 0, 1, &e->explore, err) ||
        (e->rule == RULE_THRESHOLD && spec_float(spec, "rate", 1, 0, 1000, &e->threshold, err)) ||
        truth_open(&e->truth, spec, setup, 1 + ROOM, err))
        return -1;
    e->calibrated = calibrated;
    const struct shared_setup shared = {file, UNION_TOKENS, 1, sizeof *e->learned, sizeof *e->now};
    const struct evict *like = (const struct evict *)setup->like;
    if (shared_cost_init(&e->forward, &shared, setup, like ? &like->forward : NULL, err))
        return err_at(err, "%s", name);
    e->learned = (struct learned *)e->forward.common;
    return 0;
}

/* Initialises what is learned, for the first policy that learns it. */
static void learn_first(struct evict *e)
{
    struct task *first = (struct task *)e->learned->shared.tasks.slot[0];
    e->learned->allowance = 1;
    for (int i = 0; i < DRAFTERS_MAX; i++)
        estimator_init(&first->estimator[i], first_guess, estimator_decay);
}

static int open_with(struct policy **out, struct spec *spec, const struct policy_setup *setup, enum rule rule,
                     const char *name, struct err *err)
{
    struct evict *e = mem_alloc(1, sizeof *e, err);
    if (!e)
        return -1;
    e->shape = setup->shape;
    e->rule = rule;
    e->alone = !setup->drafters;
    if (read_settings(e, spec, setup, name, err)) {
        evict_free(&e->base);
        return -1;
    }
    if (!shared_learns(&e->forward))
        learn_first(e);
    *out = &e->base;
    return 0;
}

static int evict_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    return open_with(out, spec, setup, RULE_RATE, "evict", err);
}

static int experts_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    return open_with(out, spec, setup, RULE_EXPERTS, "evict-experts", err);
}

static int bastion_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    return open_with(out, spec, setup, RULE_RISING, "bastion", err);
}

static int threshold_open(struct policy **out, struct spec *spec, const struct policy_setup *setup, struct err *err)
{
    return open_with(out, spec, setup, RULE_THRESHOLD, "threshold", err);
}

static int evict_length(const struct policy *policy) { return ((const struct evict *)policy)->K; }

static void evict_state(const struct policy *policy, struct values *out)
{
    const struct evict *e = (const struct evict *)policy;
    values_text(out, "name", policy->class->name);
    values_int(out, "K", e->K);
    values_int(out, "made", e->made);
    values_real(out, "gain", e->gain);
    values_real(out, "cost", e->cost[e->K]);
    values_real(out, "drafting", drafting_cost(e));
    values_real(out, "steepness", shared_steepness(&e->forward));
    values_real(out, "level_us", 1e6 * shared_level(&e->forward));
    values_real(out, "allowance", e->learned->allowance);
    const struct token_experts *wanted = &e->learned->wanted;
    if (wanted->named) {
        values_real(out, "recall", (double)wanted->right / (double)wanted->wanted);
        values_real(out, "precision", (double)wanted->right / (double)wanted->named);
    }
}

static void evict_chances(const struct policy *policy, int nodes, float *out)
{
    const struct evict *e = (const struct evict *)policy;
    for (int node = 0; node < nodes; node++)
        out[node] = (float)e->chance[e->keep[node]];
}

static struct estimator *evict_estimator(struct policy *policy, int drafter)
{
    return &((struct evict *)policy)->now->estimator[drafter];
}

#define SETTINGS "max=N,cost=FILE,calibrated=0,explore=X,truth=acceptance|experts|both,file=STREAM"
#define METHODS .needs_probabilities = true, .drops = true, .begin = evict_begin, .next = evict_next, .length = evict_length, \
                .observe = evict_observe, .state = evict_state, \
                .chances = evict_chances, .estimator = evict_estimator, .free = evict_free

const struct policy_class policy_evict = {
    .name = "evict", .summary = "the part of a finished draft with the most tokens for its cost",
    .settings = SETTINGS, .open = evict_open, METHODS};

const struct policy_class policy_evict_experts = {
    .name = "evict-experts", .summary = "the same, with the cost of the experts that are predicted for its nodes",
    .settings = SETTINGS, .learns_experts = true, .open = experts_open, METHODS};

const struct policy_class policy_bastion = {
    .name = "bastion", .summary = "a draft that grows while each node raises tokens for cost",
    .settings = SETTINGS, .open = bastion_open, METHODS};

const struct policy_class policy_threshold = {
    .name = "threshold", .summary = "the nodes of a finished draft whose score exceeds a constant times their cost",
    .settings = "rate=X," SETTINGS, .open = threshold_open, METHODS};

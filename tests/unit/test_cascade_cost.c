/* The choices of cascade-cost are compared with an independent reference over random worlds: the K of the largest G(K) -
 * rate C(K), drafts made to learn, when a draft continues and where it is cut. Predictions come from the library's
 * predictors fed with the same data (test_predict.c tests these); how the policy weighs them is implemented here again. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/policy/shape.h"
#include "common/predict/cost_model.h"
#include "common/predict/pending.h"
#include "common/predict/union.h"

enum { MAX = 8, LAYERS = 2, EXPERTS = 16, TOP_K = 2, TASKS = 3, ITERATIONS = 60, TEXTS = 5 };

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 40) + 0.5) * 0x1p-24;
}

/* State of a task. */
struct task { bool known; struct estimator estimator; double tokens, cost; };

struct reference {
    uint64_t chance;
    bool table, speaks, warm, timed, heard;     /* heard: the drafter reports probabilities */
    int cap;
    double seconds[MAX + 2], keep, draft, shadow, hope;
    struct task task[TASKS], *now;
    struct cost_model cost_model;
    struct union_predictor experts;
    struct pending pending;
    struct estimator_signal signal[MAX];
    double each, allowance, rate, gain, cost;   /* each: seconds of a drafted token, as estimated */
    int asked;
    enum { NO_PROBE, NONE_ON_TRIAL, DRAFT_ON_TRIAL } probe;
    double trials, loss;                        /* seconds that probes may lose; expected loss of a draft when none pays */
    bool drafted;                               /* the iteration before verified a draft */
};

static double growth(const struct reference *t, int M)
{
    if (t->table)
        return t->seconds[M] / t->seconds[1] - 1;
    return union_of(&t->experts, M) / union_of(&t->experts, 1) - 1 + 0.02 * (M - 1);
}


/* Returns the cost of a forward over M tokens, in forwards over one. */
static double forward(const struct reference *t, int M, double doubts)
{
    const double steepness = cost_model_steepness(&t->cost_model) * exp(-doubts * cost_model_doubt(&t->cost_model));
    return (1 + steepness * growth(t, M)) * exp(cost_model_bend(&t->cost_model, M));
}

static double drafting(const struct reference *t)
{
    const double level = cost_model_level(&t->cost_model);
    return level > 0 ? t->each / level : 0;
}

/* Returns the best K up to `max`; the tree has the first tokens already. */
static int choose(struct reference *t, int max, const struct draft_tree *tree)
{
    double value[MAX + 1], G[MAX + 1] = {1}, C[MAX + 1] = {1}, way = 1;
    bool hope = false;
    int best = 0;
    estimator_signals(t->signal, tree, 0);
    value[0] = 1 - t->rate;
    for (int K = 1; K <= max; K++) {
        bool there = K <= tree->nodes;
        way *= there ? estimator_of(&t->now->estimator, &t->signal[K - 1]) : estimator_ahead(&t->now->estimator, K);
        G[K] = G[K - 1] + way;
        C[K] = forward(t, K + 1, 0) + (there ? 0 : (K - tree->nodes) * drafting(t));
        value[K] = G[K] - t->rate * C[K];
        hope |= G[K] - t->rate * (C[K] - forward(t, K + 1, 0) + forward(t, K + 1, t->hope)) > value[0];
        hope |= value[K] > value[0];
    }
    if (t->probe != NONE_ON_TRIAL && max) {
        int drafted = 1;
        for (int K = 2; K <= max; K++)
            drafted = value[K] > value[drafted] + 1e-13 ? K : drafted;
        t->loss = hope ? fmax(0, (value[0] - value[drafted]) / t->rate) : INFINITY;
        best = t->probe == DRAFT_ON_TRIAL || value[drafted] > value[0] + 1e-13 ? drafted : 0;
    }
    t->gain = G[best];
    t->cost = C[best];
    return best;
}

static bool knows(const struct reference *t) { return t->now->estimator.seen >= 1; }

/* Returns the tokens to draft before the first decision. */
static int first_ask(struct reference *t, int max, const struct draft_tree *tree)
{
    int learn = max < 2 ? max : 2;
    if (!t->timed)
        return 1;
    if (drafting(t) * t->cap <= t->shadow)
        return max;
    int K = knows(t) ? choose(t, max, tree) : 0;
    if (K)
        return t->heard ? 1 : K;
    return t->allowance >= drafting(t) * learn ? learn : 0;
}

static void near(double got, double want, const char *what, int iteration)
{
    if (!(fabs(got - want) <= 1e-9 * fmax(1, fabs(want))))
        fail_msg("iteration %d: %s %.12g, not %.12g", iteration, what, got, want);
}

/* Drafts up to `count` tokens, correct ones with probability `keep`; tokens of 1000 and above are wrong. */
static int propose(struct reference *t, struct draft_tree *tree, int text, int count)
{
    int before = tree->nodes;
    for (int i = 0; i < count && tree->nodes < tree->capacity; i++) {
        double sure = uniform(&t->chance), right = uniform(&t->chance);
        bool says = t->speaks || !tree->nodes;
        draft_tree_add(tree, tree->nodes - 1, (right < t->keep * (0.5 + 0.5 * sure) ? 0 : 1000) + text + tree->nodes,
                       says ? (float)log(sure) : NAN, 0);
    }
    return tree->nodes - before;
}

static void judge(void *estimator, int drafter, const struct estimator_signal *signal, bool kept)
{
    (void)drafter;
    estimator_observe(estimator, signal, kept);
}

/* Judges the draft and updates both sides; returns the number of emitted tokens. */
static int learn(struct reference *t, struct policy *policy, const struct draft_tree *tree, int made, int text)
{
    int32_t emitted[MAX + 1], expert[MAX + 1][LAYERS][TOP_K];
    int K = tree->nodes, kept = 0;
    while (kept < K && tree->token[kept] == text + kept)
        kept++;
    for (int i = 0; i <= kept; i++) {
        emitted[i] = text + i;
        for (int layer = 0; layer < LAYERS; layer++)
            for (int at = 0; at < TOP_K; at++)
                expert[i][layer][at] = 2 * (int)(uniform(&t->chance) * (EXPERTS / 2)) + at;
    }
    double draft_s = made * t->draft + (made && !t->warm ? 0.003 : 0);
    double verify_s = t->seconds[K + 1] * (1 + 0.1 * (uniform(&t->chance) - 0.5));
    const struct outcome outcome = {
        .drafted = K, .accepted = kept, .emitted = kept + 1, .token = emitted, .expert = &expert[0][0][0],
        .moe_layers = LAYERS, .top_k = TOP_K, .draft_s = draft_s, .verify_s = verify_s, .iteration_s = draft_s + verify_s};
    policy->class->observe(policy, &outcome);
    cost_model_observe(&t->cost_model, growth(t, K + 1), K + 1, verify_s + draft_s - draft_s);
    t->drafted = K > 0;
    if (made) {                         /* after a pause a draft reads the text, too: used only if no other was timed */
        double each = draft_s / made;
        if (!t->warm)
            t->each = t->each > 0 ? fmin(t->each, each) : each;
        else
            t->each = t->timed ? 0.9 * t->each + 0.1 * each : each;
        t->timed = t->timed || t->warm;
    }
    t->warm = t->asked > 0;
    double spent = draft_s / cost_model_level(&t->cost_model);
    t->allowance = fmin(1, t->allowance + t->shadow - (K ? 0 : spent));
    t->now->tokens = 0.98 * t->now->tokens + kept + 1;
    t->now->cost = 0.98 * t->now->cost + forward(t, K + 1, 0) + spent;
    pending_follow(&t->pending, judge, &t->now->estimator, emitted, kept + 1);
    union_learn(&t->experts, outcome.expert, kept + 1, LAYERS);
    return kept + 1;
}

/* Decides whether the iteration has no draft although one pays, or a draft although none pays; the smaller the expected loss,
 * the more often. */
static void plan_probe(struct reference *t)
{
    const double loss = fmax(0.05, t->drafted ? t->rate - 1 : t->loss);
    t->probe = t->timed && loss <= t->trials ? t->drafted ? NONE_ON_TRIAL : DRAFT_ON_TRIAL : NO_PROBE;
    t->trials = fmin(1, t->trials + t->shadow) - (t->probe != NO_PROBE ? loss : 0);
}

/* Runs one iteration; returns the number of emitted tokens. */
static int iterate(struct reference *t, struct policy *policy, struct draft_tree *tree, int text, int room, int iteration)
{
    struct draft_view view = {.tree = tree, .room = room};
    const int max = t->cap < room ? t->cap : room;
    int made = 0, K = 0;
    draft_tree_clear(tree);
    t->rate = t->now->cost > 0 ? fmax(1, t->now->tokens / t->now->cost) : 1;
    t->gain = t->cost = 1;
    plan_probe(t);
    t->asked = max < 1 ? 0 : first_ask(t, max, tree);
    for (int ask = t->asked; ask; view.steps++) {
        struct step step = policy->class->next(policy, &view);
        assert_int_equal(step.kind, STEP_EXTEND);
        assert_int_equal(step.tokens, ask);
        assert_int_equal(step.leaf[0].node, tree->nodes - 1);
        view.added = propose(t, tree, text, ask);
        made += view.added;
        bool on = t->heard && t->timed && knows(t) && view.added && tree->nodes < max && t->asked < t->cap &&
                  choose(t, max, tree) > tree->nodes;
        ask = on;
        t->asked += on;
    }
    struct step step = policy->class->next(policy, &view);
    if (t->asked) {
        if (made > 1)
            t->heard = t->speaks;
        t->gain = t->cost = 1;
        K = knows(t) ? choose(t, tree->nodes, tree) : 0;
        estimator_signals(t->signal, tree, 0);
        pending_add(&t->pending, tree, t->signal);
        assert_int_equal(step.kind, STEP_KEEP);
        assert_int_equal(step.kept, K);
        assert_int_equal(draft_tree_keep(tree, step.keep, step.kept), 0);
        view.steps++;
        step = policy->class->next(policy, &view);
    }
    assert_int_equal(step.kind, STEP_STOP);
    struct values state = {0};
    policy->class->state(policy, &state);
    assert_int_equal(policy->class->length(policy), K);
    assert_int_equal(values_number(&state, "asked", -1), t->asked);
    near(values_number(&state, "rate", NAN), t->rate, "rate", iteration);
    near(values_number(&state, "gain", NAN), t->gain, "gain", iteration);
    near(values_number(&state, "cost", NAN), t->cost, "cost", iteration);
    near(values_number(&state, "allowance", NAN), t->allowance, "allowance", iteration);
    near(values_number(&state, "draft_us", NAN), 1e6 * t->each, "drafting", iteration);
    near(values_number(&state, "tried", NAN), t->now->estimator.seen, "observations", iteration);
    return learn(t, policy, tree, made, text);
}

/* A new task begins with a quarter of the previous task's statistics. */
static void begin(struct reference *t, struct policy *policy, int task)
{
    static const char *const names[TASKS] = {"", "math", "code"};
    struct task *now = &t->task[task];
    if (!now->known) {
        now->known = true;
        now->estimator = t->now->estimator;
        estimator_fade(&now->estimator, 0.25);
        now->tokens = t->now->tokens / 4;
        now->cost = t->now->cost / 4;
    }
    t->now = now;
    t->warm = false;
    pending_clear(&t->pending);
    union_begin(&t->experts);
    policy->class->begin(policy, &(struct policy_text){.task = names[task]});
}

static struct policy *open_both(struct reference *t, uint64_t seed, const char *folder, struct shape **shape)
{
    const char *path = unit_path(folder, "costs.json");
    char text[1400], costs[600];
    struct policy *policy = NULL;
    struct err err = {0};
    pending_free(&t->pending);
    *t = (struct reference){.chance = seed * 7919, .table = seed % 2, .speaks = seed / 2 % 2, .allowance = 1};
    uniform(&t->chance);
    t->cap = 1 + (int)(uniform(&t->chance) * MAX);
    t->keep = uniform(&t->chance);
    t->draft = seed / 4 % 3 ? 0.002 * uniform(&t->chance) : 1e-7;
    t->shadow = 0.02 * uniform(&t->chance);
    t->hope = 2 * uniform(&t->chance);
    t->seconds[1] = 0.01;
    for (int M = 2; M <= MAX + 1; M++)
        t->seconds[M] = t->seconds[M - 1] + 0.004 * uniform(&t->chance);
    size_t used = (size_t)snprintf(costs, sizeof costs, "{\"cost\": [");
    for (int M = 1; M <= MAX + 1; M++)
        used += (size_t)snprintf(costs + used, sizeof costs - used, "%s{\"m\": %d, \"seconds\": %.17g}", M > 1 ? ", " : "", M,
                                 t->seconds[M]);
    snprintf(costs + used, sizeof costs - used, "]}");
    unit_write(path, costs, strlen(costs));
    snprintf(text, sizeof text, "cascade-cost:shadow=%.17g,hope=%.17g,memory=0.95%s%s", t->shadow, t->hope,
             t->table ? ",cost=" : "", t->table ? path : "");
    assert_int_equal(shape_open(shape, NULL, &err), 0);
    const struct policy_setup setup = {.drafters = 1, .draft_length = t->cap, .max_length = 64, .shape = *shape,
                                       .experts = EXPERTS, .top_k = TOP_K};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s: %s", text, err.text);
    estimator_init(&t->task[0].estimator, 0.5, 0.95);
    t->task[0].known = true;
    t->now = &t->task[0];
    union_init(&t->experts, t->cap + 1, EXPERTS, TOP_K);
    cost_model_init(&t->cost_model, t->table ? 1 : 0.8, t->table ? 0.2 : 0.3);
    if (!t->table)
        cost_model_let_bend(&t->cost_model, 0.35, true);
    return policy;
}

static void choices_are_those_of_the_second_telling(void **state)
{
    static struct reference t;
    char *folder = unit_folder();
    long drafts = 0, cut = 0, none = 0, probes[3] = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= 96; seed++) {
        struct shape *shape = NULL;
        struct policy *policy = open_both(&t, seed, folder, &shape);
        struct draft_tree tree;
        assert_int_equal(draft_tree_init(&tree, MAX, NULL), 0);
        for (int text = 0, at = 1; text < TEXTS; text++) {
            begin(&t, policy, text % TASKS);
            for (int i = 0; i < ITERATIONS; i++) {
                int room = text % 2 && i + 5 > ITERATIONS ? ITERATIONS - 1 - i : MAX;      /* otherwise: an end token */
                at += iterate(&t, policy, &tree, at, room, i);
                drafts += tree.nodes > 0;
                cut += t.asked > tree.nodes;
                none += !t.asked;
                probes[t.probe]++;
            }
        }
        draft_tree_free(&tree);
        union_free(&t.experts);
        policy_close(&policy);
        shape_close(&shape);
    }
    assert_true(drafts > 1000 && cut > 1000 && none > 1000);
    assert_true(probes[NONE_ON_TRIAL] > 100 && probes[DRAFT_ON_TRIAL] > 100);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(choices_are_those_of_the_second_telling)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Policies that cascade drafters and their planning, compared with sequences written by hand and with plain enumerations. */
#include "tests/unit/scenario.h"

#include "common/policy/plan.h"
#include "common/predict/estimator.h"
#include "common/predict/latency.h"

/* ---- steps ---- */

struct script {
    struct shape *shape;
    struct policy *policy;
    struct draft_tree tree;
    char said[1000];                    /* the steps so far, for example e0*3@-1 r1@4 */
};

static const struct policy_drafter models[] = {{"model", true, false}, {"model", true, false}, {"ngram", false, true}};

static void script_open(struct script *s, const char *text, int drafters, int K, bool sampled)
{
    struct err err = {0};
    *s = (struct script){0};
    assert_int_equal(shape_open(&s->shape, NULL, &err), 0);
    assert_int_equal(draft_tree_init(&s->tree, s->shape->room, &err), 0);
    const struct policy_setup setup = {.drafters = drafters, .drafter = models + 3 - drafters, .draft_length = K,
                                       .max_length = 64, .shape = s->shape, .sampled = sampled};
    if (policy_open(&s->policy, text, &setup, &err))
        fail_msg("%s", err.text);
}

static void script_close(struct script *s)
{
    policy_close(&s->policy);
    shape_close(&s->shape);
    draft_tree_free(&s->tree);
}

/* Runs one draft in which drafters propose all requested tokens; of n reviewed tokens the reviewer keeps `agree`. */
static void script_run(struct script *s, int room, int agree, const float *said)
{
    struct draft_view view = {.tree = &s->tree, .room = room};
    int32_t token = 1;
    draft_tree_clear(&s->tree);
    s->said[0] = '\0';
    for (; view.steps < 100; view.steps++) {
        struct step step = s->policy->class->next(s->policy, &view);
        char *at = s->said + strlen(s->said);
        view.added = view.agreed = 0;
        if (step.kind == STEP_STOP)
            return;
        if (step.kind == STEP_KEEP) {
            sprintf(at, "k%d ", step.kept);
            assert_int_equal(draft_tree_keep(&s->tree, step.keep, step.kept), 0);
            continue;
        }
        if (step.kind == STEP_REVIEW) {
            int below = s->tree.nodes - step.leaf[0].node - 1, keep = below < agree ? below : agree;
            sprintf(at, "r%d@%d ", step.drafter, step.leaf[0].node);
            s->tree.nodes = step.leaf[0].node + 1 + keep;
            draft_tree_add(&s->tree, s->tree.nodes - 1, token++, NAN, step.drafter);
            view.agreed = keep;
            view.added = 1;
            continue;
        }
        sprintf(at, "e%d*%d@%d", step.drafter, step.tokens, step.leaf[0].node);
        if (step.leaf[0].siblings > 1)
            sprintf(at + strlen(at), "x%d", step.leaf[0].siblings);
        strcat(at, " ");
        for (int rank = 0; rank < step.leaf[0].siblings; rank++)
            for (int n = 0, parent = step.leaf[0].node; n < step.tokens; n++, view.added++)
                parent = draft_tree_add(&s->tree, parent, token++, said ? logf(said[view.steps] / (1 + (float)rank)) : NAN,
                                        step.drafter);
    }
    fail_msg("no end");
}

static void levels_ask_as_cs_drafting_does(void **state)
{
    static const struct { const char *policy; int drafters, K, room, agree; const char *steps; int K_out; } cases[] = {
        {"vertical:lengths=4/2/3", 3, -2, 99, 99, "e2*3@-1 r1@-1 r0@-1 ", 5},
        {"vertical:lengths=4/6/2", 3, -2, 99, 99, "e2*2@-1 r1@-1 e2*2@2 r1@2 r0@-1 ", 7},
        {"vertical:lengths=4/2/3", 3, -2, 99, 0, "e2*3@-1 r1@-1 e2*3@0 r1@0 r0@-1 e2*3@0 r1@0 e2*3@1 r1@1 r0@0 "
                                                "e2*3@1 r1@1 e2*3@2 r1@2 r0@1 e2*3@2 r1@2 e2*3@3 r1@3 r0@2 ", 4},
        {"vertical:lengths=8/6/3", 3, -2, 4, 99, "e2*2@-1 r1@-1 r0@-1 ", 4},
        {"vertical:lengths=8/6/3", 3, 1, 99, 99, "e0*1@-1 ", 1},
        {"horizontal:lengths=3/2/4", 3, -2, 99, 99, "e0*3@-1 e1*2@2 e2*4@4 ", 9},
        {"horizontal:lengths=3/0/4", 3, -2, 5, 99, "e0*3@-1 e2*2@2 ", 5},
        {"horizontal:lengths=3/2/4", 3, 4, 99, 99, "e0*3@-1 e1*1@2 ", 4},
        {"horizontal", 1, -2, 99, 99, "e0*3@-1 ", 3},
        {"vertical", 1, 3, 99, 99, "e0*3@-1 ", 3},
        {"cs-drafting:lengths=2/0/1,inner=1", 3, -2, 99, 99, "e2*1@-1 r1@-1 e2*1@1 r0@-1 e2*1@3 ", 5},
        {"cs-drafting:lengths=2/1/1,inner=0", 3, -2, 99, 99, "e0*2@-1 e1*1@1 e2*1@2 ", 4},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct script s;
        script_open(&s, cases[i].policy, cases[i].drafters, cases[i].K, false);
        script_run(&s, cases[i].room, cases[i].agree, NULL);
        assert_string_equal(s.said, cases[i].steps);
        assert_int_equal(s.policy->class->length(s.policy), cases[i].K_out);
        script_close(&s);
    }
}

static void levels_need_reviewers(void **state)
{
    static const struct policy_drafter turned[] = {{"ngram:n=3", false, true}, {"model", true, false}};
    struct shape *shape = NULL;
    struct policy *policy = NULL;
    struct err err = {0};
    (void)state;
    assert_int_equal(shape_open(&shape, NULL, &err), 0);
    const struct policy_setup setup = {.drafters = 2, .drafter = turned, .draft_length = -2, .max_length = 64, .shape = shape};
    static const char *const bad[][2] = {
        {"vertical", "vertical: drafter 'ngram:n=3' cannot review"},
        {"horizontal:lengths=3", "horizontal: lengths=3: expected 2 numbers"},
        {"horizontal:lengths=3/x", "horizontal: lengths=3/x: expected 2 numbers"},
        {"cs-drafting:lengths=3/2/1", "cs-drafting: lengths=3/2/1: expected 2 numbers"},
        {"dytc:acceptance=0.5", "dytc: acceptance=0.5: expected 2 numbers"},
        {"dytc-verify:acceptance=1/2", "dytc-verify: acceptance=1/2: expected 2 numbers"},
        {"dytc:bracket=round", "bracket"}, {"tr:min=2", "min"}, {"dytc-verify:max=100", "max"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err = (struct err){0};
        assert_int_equal(policy_open(&policy, bad[i][0], &setup, &err), -1);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], err.text);
    }
    shape_close(&shape);
}

static void the_tree_of_swift_has_leaves_by_certainty(void **state)
{
    static const float sure[] = {0.97f, 0, 0.9f, 0, 0.85f, 0, 0.6f, 0}, warm[] = {0.97f, 0, 0.9f, 0, 0.81f, 0, 0.3f, 0};
    struct script s;
    (void)state;
    script_open(&s, "tr", 1, -2, false);
    script_run(&s, 99, 0, sure);
    assert_string_equal(s.said, "e0*1@-1x10 k3 e0*1@0x10 k8 e0*1@3x10 k13 e0*1@8x10 k21 ");
    script_close(&s);
    script_open(&s, "tr", 1, -2, true);
    script_run(&s, 99, 0, warm);
    assert_string_equal(s.said, "e0*1@-1x10 k1 e0*1@0x10 k4 e0*1@1x10 k7 e0*1@4x10 ");
    assert_int_equal(s.tree.nodes, 17);
    script_close(&s);
    script_open(&s, "tr:most=2", 1, -2, true);
    script_run(&s, 99, 0, NULL);                /* without probability: certain, and never below the threshold */
    assert_string_equal(s.said, "e0*1@-1x10 k1 e0*1@0x10 k2 ");
    script_close(&s);
}

/* ---- DyTC ---- */

/* Shows the policy the drafters' costs: cost[i] per token, in forwards of the target, nothing per step. */
static void teach(struct script *s, int drafters, const double *cost)
{
    const double forward = 0.02;        /* seconds */
    static const uint8_t kept[] = {1};
    struct draft_share share[4] = {{0}};
    draft_tree_clear(&s->tree);
    for (int n = 0; n < 60; n++) {
        for (int i = 0; i < drafters; i++)
            share[i] = (struct draft_share){.steps = 1, .levels = 1 + n % 5, .proposed = 1 + n % 5,
                                            .seconds = forward * cost[i] * (1 + n % 5)};
        s->policy->class->observe(s->policy, &(struct outcome){.emitted = 1, .tree = &s->tree, .kept = kept, .share = share,
                                                               .verify_s = forward, .iteration_s = forward});
    }
}

static double printed(const double *a, const double *c, int drafters, int s, int k, bool whole)
{
    double now = 0, power = 1;
    for (int i = 0; i < k; i++)
        now += power *= a[s];
    double later = power * a[drafters - 1], cost = c[s] * k + c[drafters - 1];
    return whole ? (now + later) / cost : now + later / cost;
}

static void dytc_takes_the_largest_objective(void **state)
{
    struct world_random r = {42, 0};
    (void)state;
    for (int round = 0; round < 60; round++) {
        double a[3], c[3];
        char text[200];
        struct script s;
        int best = 0, best_k = 1;
        for (int i = 0; i < 3; i++) {
            a[i] = world_between(&r, 0.05, 0.95);
            c[i] = world_between(&r, 0.05, 0.7);
        }
        snprintf(text, sizeof text, "dytc:width=1,steps=6,bracket=%s,acceptance=%.6f/%.6f/%.6f", round % 2 ? "whole" : "last",
                 a[0], a[1], a[2]);
        for (int d = 0; d < 3; d++)
            for (int k = 1; k <= 6; k++)
                if (printed(a, c, 3, d, k, round % 2) > printed(a, c, 3, best, best_k, round % 2)) {
                    best = d;
                    best_k = k;
                }
        script_open(&s, text, 3, -2, false);
        teach(&s, 3, c);
        draft_tree_clear(&s.tree);
        struct step step = s.policy->class->next(s.policy, &(struct draft_view){.tree = &s.tree, .room = 50});
        assert_int_equal(step.kind, STEP_EXTEND);
        double got = printed(a, c, 3, step.drafter, step.tokens, round % 2);
        if (got < 0.999 * printed(a, c, 3, best, best_k, round % 2))        /* latencies are learned, with a prior */
            fail_msg("%s: drafter %d, %d tokens: %g; %d, %d: %g", text, step.drafter, step.tokens, got, best, best_k,
                     printed(a, c, 3, best, best_k, round % 2));
        script_close(&s);
    }
}

/* If the bracket encloses the whole formula, the objective has no cost of verification: beside a look-up that costs a
 * hundredth of a forward no self-draft is ever chosen, however good it is and however bad the look-up. */
static void without_verification_the_cheapest_always_wins(void **state)
{
    (void)state;
    for (double lookup = 0.15; lookup < 0.96; lookup += 0.1)
        for (double model = 0.2; model < 0.999; model += 0.0665)
            for (double cost = 0.25; cost < 0.75; cost += 0.1) {
                const double a[] = {model, lookup}, c[] = {cost, 0.01};
                for (int k = 1; k <= 64; k++)
                    assert_true(printed(a, c, 2, 0, k, true) < printed(a, c, 2, 1, 1, true));
                char text[100];
                struct script s;
                snprintf(text, sizeof text, "dytc:width=1,acceptance=%.4f/%.4f", model, lookup);
                script_open(&s, text, 2, -2, false);
                teach(&s, 2, c);
                draft_tree_clear(&s.tree);
                struct step step = s.policy->class->next(s.policy, &(struct draft_view){.tree = &s.tree, .room = 50});
                assert_int_equal(step.drafter, 1);
                script_close(&s);
            }
}

/* Acceptance: 0.7 of the old value plus 0.3 of the mean over the last 20 judged tokens. */
static void dytc_averages_as_printed(void **state)
{
    struct world_random r = {7, 0};
    struct script s;
    uint8_t kept[5] = {1}, past[400];
    double expected = 0.5;
    int count = 0;
    (void)state;
    script_open(&s, "dytc:warmup=0", 1, -2, false);
    for (int round = 0; round < 80; round++) {
        struct draft_share share = {.steps = 1, .levels = 4, .proposed = 4, .seconds = 0.1};
        bool alive = true;
        draft_tree_clear(&s.tree);
        for (int node = 0; node < 4; node++) {
            draft_tree_add(&s.tree, node - 1, node, NAN, 0);
            if (alive)
                past[count++] = alive = world_draw(&r) < 0.6;
            kept[1 + node] = alive;
        }
        double sum = 0;
        for (int i = count > 20 ? count - 20 : 0; i < count; i++)
            sum += past[i];
        expected = 0.7 * expected + 0.3 * sum / (count < 20 ? count : 20);
        s.policy->class->observe(s.policy, &(struct outcome){.tree = &s.tree, .kept = kept, .share = &share});
        struct values values = {0};
        s.policy->class->state(s.policy, &values);
        assert_true(fabs(values_number(&values, "chance_0", -1) - expected) < 1e-12);
    }
    script_close(&s);
}

/* An unused drafter is tried after 100 iterations: earlier the cheaper four of its tokens are, but not before 10. */
static void dytc_tries_cheap_drafters_sooner(void **state)
{
    static const double cost[] = {0.5, 0.08, 0.01};
    static const int after[] = {100, 32, 10};
    static const uint8_t kept[] = {1};
    (void)state;
    for (int drafter = 0; drafter < 3; drafter++) {
        struct draft_share share[3] = {{0}};
        struct script s;
        int idle = 0, trial = -1;
        script_open(&s, "dytc:warmup=0", 3, -2, false);
        teach(&s, 3, cost);
        while (idle < 200 && trial < 0) {
            struct values values = {0};
            for (int i = 0; i < 3; i++)         /* the other drafters draft */
                share[i] = i == drafter ? (struct draft_share){.steps = 0}
                         : (struct draft_share){.steps = 1, .levels = 1, .proposed = 1, .seconds = 0.02 * cost[i]};
            draft_tree_clear(&s.tree);
            s.policy->class->observe(s.policy, &(struct outcome){.emitted = 1, .tree = &s.tree, .kept = kept, .share = share,
                                                                 .verify_s = 0.02, .iteration_s = 0.02});
            idle++;
            s.policy->class->next(s.policy, &(struct draft_view){.tree = &s.tree, .room = 50});
            s.policy->class->state(s.policy, &values);
            trial = (int)values_number(&values, "trial", -1);
        }
        if (trial != drafter || abs(idle - after[drafter]) > 1)
            fail_msg("drafter %d: drafter %d is tried after %d iterations", drafter, trial, idle);
        script_close(&s);
    }
}

static void follow(struct script *s, const int32_t *token, int count)
{
    static const uint8_t kept[65] = {1};
    struct draft_share share = {.steps = 1, .levels = 1, .proposed = 1, .seconds = 1e-6};
    s->policy->class->observe(s->policy, &(struct outcome){.emitted = count, .token = token, .tree = &s->tree, .kept = kept,
                                                           .share = &share, .verify_s = 0.02, .iteration_s = 0.02});
}

/* Token 9 ended a text before its limit, so drafts end with it, until another token follows it. */
static void dytc_verify_drafts_nothing_after_an_end(void **state)
{
    static const int32_t text[] = {7, 8, 9}, more[] = {9, 10};
    const struct policy_text about = {.task = "math"};
    struct script s;
    (void)state;
    script_open(&s, "dytc-verify:acceptance=0.97", 1, 12, false);
    s.policy->class->begin(s.policy, &about);
    script_run(&s, 99, 0, NULL);                /* costs are unknown yet */
    follow(&s, text, 2);
    script_run(&s, 99, 0, NULL);
    assert_string_equal(s.said, "e0*12@-1 ");
    follow(&s, text + 2, 1);
    s.policy->class->begin(s.policy, &about);
    script_run(&s, 99, 0, NULL);
    assert_string_equal(s.said, "e0*12@-1 k9 ");
    follow(&s, more, 2);
    script_run(&s, 1, 0, NULL);
    follow(&s, text, 2);                        /* the limit ends this text, not its last token 8 */
    s.policy->class->begin(s.policy, &about);
    script_run(&s, 99, 0, NULL);
    assert_string_equal(s.said, "e0*12@-1 ");
    script_close(&s);
}

/* Two texts learn together, but only one has forwards. Its drafts grow with its largest forward, like those of a text that
 * learns alone. */
static void dytc_verify_lengthens_drafts_of_the_only_text(void **state)
{
    enum { LAYERS = 2, TOP_K = 4 };
    static const int32_t token[65] = {0};
    static const uint8_t kept[65] = {1};
    struct script s = {0};
    struct policy *beside = NULL;
    int32_t expert[65 * LAYERS * TOP_K];
    struct policy_setup setup = {.drafters = 1, .drafter = models + 2, .draft_length = 64, .max_length = 64, .experts = 64,
                                 .top_k = TOP_K};
    (void)state;
    for (int i = 0; i < 65 * LAYERS * TOP_K; i++)
        expert[i] = i % TOP_K;
    assert_int_equal(shape_open(&s.shape, NULL, NULL), 0);
    assert_int_equal(draft_tree_init(&s.tree, s.shape->room, NULL), 0);
    setup.shape = s.shape;
    assert_int_equal(policy_open(&s.policy, "dytc-verify:acceptance=0.97", &setup, NULL), 0);
    setup.like = s.policy;
    assert_int_equal(policy_open(&beside, "dytc-verify:acceptance=0.97", &setup, NULL), 0);
    for (int i = 0; i < 8; i++) {
        script_run(&s, 99, 0, NULL);
        s.policy->class->observe(s.policy, &(struct outcome){
            .drafted = s.tree.nodes, .emitted = 1 + s.tree.nodes, .token = token, .expert = expert, .moe_layers = LAYERS,
            .top_k = TOP_K, .experts_loaded = LAYERS * TOP_K, .verify_s = 0.02, .iteration_s = 0.02, .tree = &s.tree,
            .kept = kept});
    }
    assert_true(s.tree.nodes > 32);
    policy_close(&beside);
    script_close(&s);
}

/* ---- plans ---- */

/* Enumerates all sequences of drafters. */
static double enumerate(const struct plan_setup *p, int done, int last, double survival, double tokens, double cost)
{
    double best = tokens - p->rate * (cost + p->verify[done]);
    for (int d = 0; d < p->drafters && done < p->max; d++) {
        double chance = survival * p->drafter[d].chance[done < 2 ? done : 2];
        best = fmax(best, enumerate(p, done + 1, d, chance, tokens + chance,
                                    cost + p->drafter[d].token + (d == last ? 0 : p->drafter[d].step)));
    }
    return best;
}

static void plans_are_the_best_of_all_sequences(void **state)
{
    struct world_random r = {99, 0};
    (void)state;
    for (int round = 0; round < 200; round++) {
        struct plan_drafter drafter[3];
        double verify[7] = {1};
        struct plan plan, again;
        for (int i = 0; i < 3; i++) {
            double chance = world_between(&r, 0.05, 0.97);
            drafter[i] = (struct plan_drafter){false, {chance, chance, chance}, round % 2 ? 0.01 : 0,
                                               world_between(&r, 0, 0.3)};
        }
        for (int i = 1; i < 7; i++)
            verify[i] = verify[i - 1] + world_between(&r, 0, 0.3);
        const struct plan_setup setup = {3, drafter, round % 3, 6, world_between(&r, 0.2, 1), world_between(&r, 1, 2), verify};
        plan_find(&plan, &setup);
        assert_true(fabs(plan.value - enumerate(&setup, setup.done, -1, setup.survival, 0, 0)) < 1e-9);
        plan_find_above(&again, &setup, plan.value - 1e-6);
        assert_true(again.value == plan.value && again.first == plan.first);
        plan_find_above(&again, &setup, plan.value + 1e-6);
        assert_true(again.value < plan.value + 1e-6);
        again = plan;
        plan_weigh(&again, &setup);
        assert_true(fabs(plan.value - again.value) < 1e-9);
    }
}

/* ---- predictors ---- */

static void latencies_are_found(void **state)
{
    struct world_random r = {5, 0};
    struct latency latency;
    (void)state;
    latency_init(&latency, 0.995);
    assert_true(latency_of(&latency, 1, 4, 8) == 0);
    for (int n = 0; n < 600; n++) {
        int steps = 1 + n % 3, levels = steps + (int)(6 * world_draw(&r)), nodes = levels + (int)(9 * world_draw(&r));
        latency_observe(&latency, &(struct draft_share){.steps = steps, .levels = levels, .proposed = nodes,
            .caught_up = n == 3, .caught_up_s = n == 3 ? 5 : 0,
            .seconds = (0.2 * steps + 1.0 * levels + 0.05 * nodes) * exp(0.02 * world_normal(&r)) + (n == 3 ? 5 : 0)});
    }
    assert_true(fabs(latency_of(&latency, 1, 4, 8) - 4.6) < 0.06);
    assert_true(fabs(latency_of(&latency, 1, 1, 1) - 1.25) < 0.05);
    assert_true(latency.caught_up_s == 5);
    latency_init(&latency, 0.9);
    latency_observe(&latency, &(struct draft_share){.steps = 1, .levels = 4, .proposed = 4, .seconds = 2});
    assert_true(fabs(latency_of(&latency, 1, 4, 4) - 2) < 0.01);
    latency_observe(&latency, &(struct draft_share){.steps = 3, .levels = 4, .proposed = 0, .seconds = 0.5});
    for (int i = 0; i < LATENCY_FEATURES; i++)
        assert_true(latency.mean[i] >= 0);
}

static void chances_settle_and_follow(void **state)
{
    static const struct estimator_signal signal = {NAN, NAN, 0, 1, 0, 0};
    struct world_random r = {6, 0};
    struct estimator estimator;
    double apart = 0;
    (void)state;
    estimator_init(&estimator, 0.6, 0.98);
    double doubt = estimator_doubt(&estimator);
    for (int n = 0; n < 2000; n++) {
        estimator_observe(&estimator, &signal, world_draw(&r) < 0.8);
        apart += n >= 1000 ? fabs(estimator_ahead(&estimator, 1) - 0.8) / 1000 : 0;
    }
    assert_true(apart < 0.05 && estimator_doubt(&estimator) < 0.1 * doubt + 0.05);
    for (int n = 0; n < 60; n++)
        estimator_observe(&estimator, &signal, world_draw(&r) < 0.2);
    assert_true(estimator_ahead(&estimator, 1) < 0.4 && estimator_of(&estimator, &signal) < 0.4);
    double known = estimator_doubt(&estimator), mean = estimator_ahead(&estimator, 1);
    estimator_fade(&estimator, 0.1);
    assert_true(estimator_doubt(&estimator) > known && fabs(estimator_ahead(&estimator, 1) - mean) < 1e-12);
}

/* The short form of tests/long/test_scenarios.c. */
static void dytc_verify_is_near_the_best_fixed_draft(void **state)
{
    enum { WORLDS = 8, WORLDS_BRIEF = 1 };
    double sum = 0;
    (void)state;
    for (int i = 0; i < (unit_brief() ? WORLDS_BRIEF : WORLDS); i++) {
        struct world w;
        struct world_best best;
        struct world_tally tally;
        world_scenario(&w, 1000 + (uint64_t)i, 5000, i % 2);
        world_best(&w, 6, &best);
        world_run(&w, "dytc-verify", &tally);
        sum += tally.cost / best.best.cost - 1;
        if (tally.cost > 1.1 * best.best.cost)
            fail_msg("%s: %g, the best fixed %g", w.about, tally.cost, best.best.cost);
        world_free(&w);
    }
    assert_true(sum < 0.02 * WORLDS);
}

/* Second choices save time if a drafter is often wrong and then often has the correct token second. They cost nearly
 * nothing, once that is known, if the second choice is never correct. With expensive verification, and where only chains are
 * possible, there are none. */
static void dytc_verify_takes_second_choices_where_they_pay(void **state)
{
    static const double chance[] = {0.45, 0}, cost[] = {0.02, 0};
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        struct world_tally with, without;
        struct world w;
        world_pair(&w, 40, unit_brief() ? 2000 : 5000, chance, cost, 0, 1);
        for (int at = 0; at < w.tokens; at++) {
            uint8_t *right = &w.drafter[0].right[at];
            *right = kind == 1 && *right == 2 ? 0 : *right;
            for (int row = 0; kind == 2 && row < WORLD_ROWS; row++)
                w.verify[(size_t)at * WORLD_ROWS + (size_t)row] = 1 + 0.3f * (float)row;
        }
        w.chains = kind == 3;
        world_run(&w, "dytc-verify", &with);
        world_run(&w, "dytc-verify:siblings=no", &without);
        const double more = with.cost / without.cost, nodes = (double)with.drafted / (double)without.drafted;
        if (kind == 0)
            assert_true(more < 0.95 && nodes > 1.2);
        else
            assert_true(more < (unit_brief() ? 1.03 : 1.005) && nodes < 1.05);
        assert_true(kind != 3 || with.drafted == without.drafted);
        world_free(&w);
    }
}

/* 20 equal runs on a machine where one call in twenty takes 20 times as long: the first calls must not decide for the whole
 * run. Two self-drafts are nearly equally good. */
static void equal_runs_agree(void **state)
{
    static const char *const policies[] = {"dytc", "dytc:bracket=last", "dytc-verify"};
    const double chance[] = {0.85, 0.8, 0.4}, cost[] = {0.5, 0.4, 0.01};
    const int runs = unit_brief() ? 5 : 20;
    const uint64_t seed = getenv("MOE_SEED") ? strtoull(getenv("MOE_SEED"), NULL, 10) : 31;
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        double least = INFINITY, most = 0;
        for (int run = 0; run < runs; run++) {
            struct world w;
            struct world_tally tally;
            world_dense(&w, seed, 3000, chance, cost, 2, 3);
            w.noise = 0.05;
            w.outliers = 0.05;
            w.luck = (uint64_t)run << 32;
            world_run(&w, policies[p], &tally);
            least = fmin(least, tally.cost);
            most = fmax(most, tally.cost);
            if (getenv("MOE_LONG"))
                printf("# %s, run %d: %.3f; steps %ld %ld %ld\n", policies[p], run, w.tokens / tally.cost, tally.steps[0],
                       tally.steps[1], tally.steps[2]);
            world_free(&w);
        }
        if (most > 1.1 * least)
            fail_msg("%s: %d equal runs cost %.0f to %.0f", policies[p], runs, least, most);
    }
}

/* All policies finish in worlds of all kinds, in a loop that checks each step. */
static void all_get_through_worlds(void **state)
{
    static const char *const policies[] = {"vertical", "horizontal", "cs-drafting", "tr", "dytc", "dytc:bracket=last",
        "dytc:width=4,top-p=1,nodes=64", "dytc-verify:lookahead=no", "dytc-verify:most=64,hope=4", "dytc-verify:most=1"};
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct world w;
        struct world_tally tally;
        world_scenario(&w, 500 + (uint64_t)i, 300, false);
        for (int d = 0; d < w.drafters; d++)
            w.known[d].reviews = true;
        for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
            world_run(&w, policies[p], &tally);
            assert_true(tally.drafted > 0);
        }
        world_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dytc_verify_is_near_the_best_fixed_draft),
        cmocka_unit_test(dytc_verify_takes_second_choices_where_they_pay),
        cmocka_unit_test(equal_runs_agree),
        cmocka_unit_test(all_get_through_worlds),
        cmocka_unit_test(levels_ask_as_cs_drafting_does),
        cmocka_unit_test(levels_need_reviewers),
        cmocka_unit_test(the_tree_of_swift_has_leaves_by_certainty),
        cmocka_unit_test(dytc_takes_the_largest_objective),
        cmocka_unit_test(without_verification_the_cheapest_always_wins),
        cmocka_unit_test(dytc_averages_as_printed),
        cmocka_unit_test(dytc_tries_cheap_drafters_sooner),
        cmocka_unit_test(dytc_verify_drafts_nothing_after_an_end),
        cmocka_unit_test(dytc_verify_lengthens_drafts_of_the_only_text),
        cmocka_unit_test(plans_are_the_best_of_all_sequences),
        cmocka_unit_test(latencies_are_found),
        cmocka_unit_test(chances_settle_and_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

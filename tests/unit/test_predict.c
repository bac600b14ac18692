/* Predictors without a model: what they learn from, and what they say before they have learned. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/policy/cost.h"
#include "common/policy/shape.h"
#include "common/predict/cost_model.h"
#include "common/predict/survival.h"
#include "common/predict/union.h"

static void near(double got, double expected, double within)
{
    if (!(fabs(got - expected) <= within))
        fail_msg("%g, not %g", got, expected);
}

static void draft_chain(struct draft_tree *tree, const int32_t *token, int count, float log_probability)
{
    draft_tree_clear(tree);
    for (int i = 0; i < count; i++)
        draft_tree_add(tree, i - 1, token[i], i ? NAN : log_probability, 0);
}

static void drafts_teach_without_being_verified(void **state)
{
    static const int32_t text[] = {5, 6, 7, 8}, right[] = {5, 6, 7}, wrong[] = {5, 9, 7};
    struct survival *survival = mem_alloc(1, sizeof *survival, NULL);
    struct draft_tree tree;
    (void)state;
    assert_int_equal(draft_tree_init(&tree, 8, NULL), 0);
    survival_init(survival, 0.9);
    near(survival_at(survival, 1), 0.5, 1e-12);
    draft_chain(&tree, right, 3, NAN);
    survival_draft(survival, &tree);
    draft_chain(&tree, wrong, 3, logf(0.9f));
    survival_draft(survival, &tree);
    survival_text(survival, text, 1);
    assert_int_equal(survival->drafts, 2);
    near(survival->depth[0].tried, 1.9, 1e-12);
    near(survival->depth[0].kept, 1.9, 1e-12);
    survival_text(survival, text + 1, 1);               /* 6: kept by one, and the other ends */
    assert_int_equal(survival->drafts, 1);
    near(survival->depth[1].tried, 1.9, 1e-12);
    near(survival->depth[1].kept, 0.9, 1e-12);
    assert_true(survival->cell[1][4].tried == 1 && survival->cell[1][4].kept == 0);
    survival_text(survival, text + 2, 2);               /* 7: the first is at its end */
    assert_int_equal(survival->drafts, 0);
    assert_true(survival->depth[2].tried == 1 && survival->depth[2].kept == 1 && survival->depth[3].tried == 0);
    /* An estimate leans on that of its depth as on 4 observations, and that on the one of all as on 2. */
    double all = (survival->all.kept + 2 * 0.5) / (survival->all.tried + 2);
    near(survival_at(survival, 2), (0.9 + 4 * all) / (1.9 + 4), 1e-12);
    near(survival_of(survival, &tree, 2), (0 + 8 * survival_at(survival, 2)) / (1 + 8), 1e-12);
    draft_chain(&tree, right, 3, NAN);
    survival_draft(survival, &tree);
    survival_begin(survival);
    survival_text(survival, text, 1);
    near(survival->depth[0].tried, 1.9, 1e-12);         /* drafts of another text do not count */
    survival_fade(survival, 0.5);
    near(survival->depth[0].tried, 0.95, 1e-12);
    draft_tree_free(&tree);
    mem_free(&survival);
}

static void unions_come_from_the_text(void **state)
{
    /* Two layers, two of 8 experts a token. */
    static const int32_t expert[4][2][2] = {{{0, 1}, {0, 1}}, {{1, 2}, {0, 1}}, {{3, 4}, {5, -1}}, {{0, 1}, {0, 1}}};
    struct union_predictor predictor;
    (void)state;
    assert_int_equal(union_init(&predictor, 3, 8, 2, NULL), 0);
    near(union_of(&predictor, 1), 2, 1e-12);
    near(union_of(&predictor, 2), 8 * (1 - 0.75 * 0.75), 1e-12);
    union_learn(&predictor, &expert[0][0][0], 1, 2);
    near(union_of(&predictor, 1), 2, 1e-12);
    union_learn(&predictor, &expert[1][0][0], 2, 2);
    near(union_of(&predictor, 1), (2 + 2 + 1.5) / 3, 1e-12);
    near(union_of(&predictor, 2), (2.5 + 3.5) / 2, 1e-12);      /* {0 1 2}, {0 1}; {1 2 3 4}, {0 1 5} */
    near(union_of(&predictor, 3), (5 + 3) / 2.0, 1e-12);
    union_begin(&predictor);
    union_learn(&predictor, &expert[3][0][0], 1, 2);
    near(union_of(&predictor, 2), 3, 1e-12);            /* tokens of two texts make no union */
    union_free(&predictor);
    assert_int_equal(union_init(&predictor, 3, 0, 0, NULL), 0);
    assert_true(isnan(union_of(&predictor, 2)));
    union_learn(&predictor, NULL, 1, 0);
    union_free(&predictor);
}

static void prices_follow_level_and_steepness(void **state)
{
    struct cost_model cost_model;
    (void)state;
    cost_model_init(&cost_model, 1, 0.3);
    assert_true(cost_model_level(&cost_model) == 0);
    cost_model_observe(&cost_model, 0, 0.010);
    near(cost_model_level(&cost_model), 0.010, 1e-12);
    double doubt = cost_model_doubt(&cost_model);
    for (int i = 0; i < 200; i++)
        cost_model_observe(&cost_model, 0, 0.020); /* the machine is half as fast; nothing is learned of the steepness */
    near(cost_model_level(&cost_model), 0.020, 1e-4);
    assert_true(cost_model_doubt(&cost_model) > doubt);
    for (int i = 0; i < 200; i++)
        cost_model_observe(&cost_model, i % 2 ? 0.5 : 0, i % 2 ? 0.04 : 0.02);
    near(cost_model_level(&cost_model), 0.020, 2e-4);
    near(cost_model_steepness(&cost_model), 2, 0.06);
    assert_true(cost_model_doubt(&cost_model) < 0.15);
    double before = cost_model_level(&cost_model);
    cost_model_observe(&cost_model, 0, 5);                        /* one iteration in which the machine did something else */
    assert_true(cost_model_level(&cost_model) < 1.1 * before);
    cost_model_observe(&cost_model, 0, NAN);
    cost_model_observe(&cost_model, 0, 0);
    assert_true(isfinite(cost_model_level(&cost_model)));
}

/* The policy's K at each of some iterations, in a world without noise: all or nothing is accepted. */
struct world {
    bool right;
    double forward[9], draft;
    int sure;                           /* of so many tokens of a draft the drafter is certain, of the others it says this */
    float says;
};

static int play(struct policy *policy, const struct world *world, int iterations, double *seconds)
{
    static int32_t text = 1;
    struct draft_tree tree;
    int last = 0;
    assert_int_equal(draft_tree_init(&tree, 8, NULL), 0);
    *seconds = 0;
    for (int i = 0; i < iterations; i++) {
        struct draft_view view = {.tree = &tree, .room = 8};
        int32_t emitted[9];
        int made = 0;
        draft_tree_clear(&tree);
        for (;; view.steps++) {
            struct step step = policy->class->next(policy, &view);
            if (step.kind == STEP_STOP)
                break;
            if (step.kind == STEP_KEEP)
                assert_int_equal(draft_tree_keep(&tree, step.keep, step.kept), 0);
            int from = tree.nodes;
            for (int k = from; step.kind == STEP_EXTEND && k < from + step.tokens; k++, made++)
                draft_tree_add(&tree, k - 1, world->right ? text + k : -1, k < world->sure ? logf(0.999f) : world->says, 0);
            view.added = tree.nodes - from;
        }
        int K = tree.nodes, kept = world->right ? K : 0;
        assert_int_equal(policy->class->length(policy), K);
        for (int k = 0; k <= kept; k++)
            emitted[k] = text++;
        const struct outcome outcome = {.drafted = K, .accepted = kept, .emitted = kept + 1, .token = emitted,
                                        .draft_s = made * world->draft, .verify_s = world->forward[K],
                                        .iteration_s = made * world->draft + world->forward[K]};
        policy->class->observe(policy, &outcome);
        *seconds += outcome.iteration_s / outcome.emitted;
        last = K;
    }
    draft_tree_free(&tree);
    return last;
}

static struct policy *open_policy(const char *text, struct shape **shape)
{
    struct policy *policy = NULL;
    struct err err = {0};
    assert_int_equal(shape_open(shape, NULL, &err), 0);
    const struct policy_setup setup = {.drafters = 1, .draft_length = DRAFT_LENGTH_NONE, .max_length = 64, .shape = *shape,
                                       .experts = 32, .top_k = 4};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s", err.text);
    return policy;
}

static void useless_drafts_cost_nothing_to_find_out(void **state)
{
    static const struct world useless = {false, {1, 1.9, 2.7, 3.4, 4, 4.6, 5.1, 5.6, 6}, 1e-5, 0, NAN};
    static const struct world perfect = {true, {1, 1.9, 2.7, 3.4, 4, 4.6, 5.1, 5.6, 6}, 1e-5, 0, NAN};
    static const struct world dear = {false, {1, 1.9, 2.7, 3.4, 4, 4.6, 5.1, 5.6, 6}, 0.05, 0, NAN};
    struct shape *shape = NULL;
    struct policy *policy = open_policy("cascade-cost", &shape);
    double seconds;
    (void)state;
    /* Not one trial: every draft is looked at, none is verified. */
    assert_int_equal(play(policy, &useless, 300, &seconds), 0);
    near(seconds, 300, 300 * 1e-3);
    /* When drafts become right, they are verified after some iterations. */
    assert_true(play(policy, &perfect, 200, &seconds) >= 4);
    policy_close(&policy);
    shape_close(&shape);
    /* Where drafting costs, too, what is spent to learn stays below its share. */
    policy = open_policy("cascade-cost", &shape);
    assert_int_equal(play(policy, &dear, 1000, &seconds), 0);
    near(seconds, 1000, 1000 * 0.01);
    policy_close(&policy);
    shape_close(&shape);
}

/* A dear drafter that is certain of three tokens and then lost: it is not asked for more than one that it doubts. */
static void drafting_stops_where_the_drafter_doubts(void **state)
{
    static const struct world certain = {true, {1, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.1, 3.4}, 0.1, 8, -9};
    static const struct world lost = {true, {1, 1.3, 1.6, 1.9, 2.2, 2.5, 2.8, 3.1, 3.4}, 0.1, 3, -9};
    struct shape *shape = NULL;
    struct policy *policy = open_policy("cascade-cost", &shape);
    double seconds;
    (void)state;
    assert_ptr_equal(policy_find("cascade-cost:most=4", DRAFT_LENGTH_NONE), &policy_cascade_cost);
    assert_true(policy_cascade_cost.needs_probabilities && policy_cascade_cost.drops);
    assert_false(policy_cascade.needs_probabilities || policy_cascade.drops);
    assert_ptr_equal(policy_find(NULL, DRAFT_LENGTH_AUTO), &policy_cascade_cost);
    assert_ptr_equal(policy_find(NULL, DRAFT_LENGTH_NONE), &policy_static);
    assert_null(policy_find("no-such", DRAFT_LENGTH_NONE));
    assert_int_equal(play(policy, &certain, 100, &seconds), 8);
    assert_int_equal(play(policy, &lost, 1, &seconds), 3);
    near(seconds, (4 * 0.1 + 1.9) / 4, 1e-9);
    policy_close(&policy);
    shape_close(&shape);
}

static void drafters_are_believed_until_known_better(void **state)
{
    struct calibration calibration;
    (void)state;
    calibration_init(&calibration, 0.9);
    near(calibration_of(&calibration, 0.8), 0.8, 1e-12);
    calibration_observe(&calibration, 0.8, false);
    near(calibration_of(&calibration, 0.8), 0.8 - 0.8 / 3, 1e-12);
    near(calibration_of(&calibration, 0.6), 0.6, 1e-12);                /* of others nothing was seen */
    for (int i = 0; i < 200; i++)
        calibration_observe(&calibration, 0.75, i % 2);
    near(calibration_of(&calibration, 0.75), 0.5 + 0.25 * 2 / 12, 0.03);        /* ten observations and what was said */
    near(calibration_of(&calibration, 0.8) - calibration_of(&calibration, 0.75), 0.05, 1e-12);
    calibration_fade(&calibration, 0);
    near(calibration_of(&calibration, 0.75), 0.75, 1e-12);
    for (int i = 0; i < 100; i++)
        calibration_observe(&calibration, 0.02, true);
    near(calibration_of(&calibration, 0.1), 1 - 0.98 * 2 / 12 + 0.08, 0.01);
}

static void tasks_are_remembered(void **state)
{
    static const struct world perfect = {true, {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8}, 1e-6, 0, NAN};
    static const struct world useless = {false, {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5}, 1e-6, 0, NAN};
    const struct policy_text code = {.task = "code"}, prose = {.task = "prose"};
    struct shape *shape = NULL;
    struct policy *policy = open_policy("cascade-cost", &shape);
    double seconds;
    (void)state;
    policy->class->begin(policy, &code);
    assert_int_equal(play(policy, &perfect, 60, &seconds), 8);
    policy->class->begin(policy, &prose);
    assert_int_equal(play(policy, &useless, 100, &seconds), 0);
    policy->class->begin(policy, &code);
    assert_true(play(policy, &perfect, 2, &seconds) > 0);      /* at once */
    policy->class->begin(policy, &prose);
    assert_int_equal(play(policy, &useless, 1, &seconds), 0);
    policy_close(&policy);
    shape_close(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_teach_without_being_verified), cmocka_unit_test(unions_come_from_the_text),
        cmocka_unit_test(prices_follow_level_and_steepness), cmocka_unit_test(useless_drafts_cost_nothing_to_find_out),
        cmocka_unit_test(drafting_stops_where_the_drafter_doubts), cmocka_unit_test(drafters_are_believed_until_known_better),
        cmocka_unit_test(tasks_are_remembered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Predictors without a model: what they learn from, and their predictions before that. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/policy/cost.h"
#include "common/policy/shape.h"
#include "common/predict/calibration.h"
#include "common/predict/cost_line.h"
#include "common/predict/cost_model.h"
#include "common/predict/pending.h"
#include "common/predict/tasks.h"
#include "common/predict/union.h"

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*state >> 40) + 0.5) * 0x1p-24;
}

static void near(double got, double expected, double within)
{
    if (!(fabs(got - expected) <= within))
        fail_msg("%g, not %g", got, expected);
}

/* A draft of nodes (token, parent, drafter), and the estimators that learn from it. */
struct teaching {
    struct draft_tree tree;
    struct estimator_signal signal[8];
    struct pending pending;
    struct estimator estimator[2], expected[2];
};

static void teach_draft(struct teaching *t, const int32_t (*node)[3], int nodes, float log_probability)
{
    draft_tree_clear(&t->tree);
    for (int i = 0; i < nodes; i++)
        draft_tree_add(&t->tree, node[i][1], node[i][0], i ? NAN : log_probability, node[i][2]);
    estimator_signals(t->signal, &t->tree, 0);
    pending_add(&t->pending, &t->tree, t->signal);
}

static void judge(void *context, int drafter, const struct estimator_signal *signal, bool kept)
{
    estimator_observe(&((struct teaching *)context)->estimator[drafter], signal, kept);
}

static void teach_text(struct teaching *t, int32_t token) { pending_follow(&t->pending, judge, t, &token, 1); }

static void expect(struct teaching *t, int node, int drafter, bool kept)
{
    estimator_observe(&t->expected[drafter], &t->signal[node], kept);
}

/* Each node is judged when the text has reached its parent, in any later iteration, and teaches its own drafter. */
static void drafts_teach_without_being_verified(void **state)
{
    static const int32_t tree[6][3] = {{5, -1, 0}, {9, -1, 1}, {6, 0, 0}, {7, 0, 1}, {8, 1, 0}, {1, 3, 0}};
    static const int32_t chain[3][3] = {{6, -1, 0}, {7, 0, 0}, {8, 1, 0}};
    struct teaching *t = mem_alloc(1, sizeof *t, NULL);
    (void)state;
    assert_int_equal(draft_tree_init(&t->tree, 8, NULL), 0);
    for (int i = 0; i < 2; i++) {
        estimator_init(&t->estimator[i], 0.5, 0.9);
        estimator_init(&t->expected[i], 0.5, 0.9);
    }
    draft_tree_add(&t->tree, -1, 5, -1, 0);
    draft_tree_add(&t->tree, -1, 6, -3, 0);
    estimator_signals(t->signal, &t->tree, 0);
    assert_true(t->signal[0].margin == 2 && t->signal[1].margin == 0 && t->signal[1].before == 1);
    teach_draft(t, tree, 6, logf(0.9f));
    assert_true(t->signal[1].before == 1 && t->signal[3].before == 1 && t->signal[2].before == 0);
    assert_true(t->signal[3].sure == t->signal[0].stated && isnan(t->signal[4].sure) && t->signal[5].depth == 3);
    teach_text(t, 5);
    expect(t, 0, 0, true);
    expect(t, 1, 1, false);
    assert_memory_equal(t->estimator, t->expected, sizeof t->expected);
    teach_text(t, 7);
    expect(t, 2, 0, false);
    expect(t, 3, 1, true);
    assert_memory_equal(t->estimator, t->expected, sizeof t->expected);
    assert_int_equal(t->pending.drafts, 1);
    teach_text(t, 2);
    expect(t, 5, 0, false);
    assert_memory_equal(t->estimator, t->expected, sizeof t->expected);
    assert_int_equal(t->pending.drafts, 0);
    near(t->estimator[1].seen, 1.9, 1e-12);
    for (int i = 0; i < 3; i++) {                       /* as if each iteration had drafted and verified nothing */
        teach_draft(t, chain, 3, NAN);
        teach_text(t, chain[0][0] + i);
    }
    assert_int_equal(t->pending.drafts, 0);             /* the second and the third were wrong at once, the first ended */
    near(t->estimator[0].seen, (((((2.71 * 0.9 + 1) * 0.9 + 1) * 0.9 + 1) * 0.9 + 1) * 0.9 + 1) , 1e-12);
    teach_draft(t, chain, 3, NAN);
    pending_clear(&t->pending);
    t->expected[0] = t->estimator[0];
    teach_text(t, 6);
    assert_memory_equal(t->estimator, t->expected, sizeof *t->expected);       /* drafts of another text do not count */
    pending_free(&t->pending);
    draft_tree_free(&t->tree);
    mem_free(&t);
}

static void unions_come_from_the_text(void **state)
{
    /* Two layers, two of 8 experts a token. */
    static const int32_t expert[4][2][2] = {{{0, 1}, {0, 1}}, {{1, 2}, {0, 1}}, {{3, 4}, {5, -1}}, {{0, 1}, {0, 1}}};
    struct union_predictor predictor;
    (void)state;
    union_init(&predictor, 3, 8, 2);
    near(union_of(&predictor, 1), 2, 1e-12);
    near(union_of(&predictor, 2), 8 * (1 - 0.75 * 0.75), 1e-12);
    union_learn(&predictor, &expert[0][0][0], 1, 2);
    near(union_of(&predictor, 1), 2, 1e-12);
    union_learn(&predictor, &expert[1][0][0], 2, 2);
    near(union_of(&predictor, 1), (2 + 2 + 1.5) / 3, 1e-12);
    near(union_of(&predictor, 2), (2.5 + 3.5) / 2, 1e-12);      /* unions: {0 1 2}, {0 1}; {1 2 3 4}, {0 1 5} */
    near(union_of(&predictor, 3), (5 + 3) / 2.0, 1e-12);
    union_begin(&predictor);
    union_learn(&predictor, &expert[3][0][0], 1, 2);
    near(union_of(&predictor, 2), 3, 1e-12);            /* tokens of two texts form no union */
    union_free(&predictor);
    union_init(&predictor, 3, 0, 0);
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
    cost_model_observe(&cost_model, 0, 1, 0.010);
    near(cost_model_level(&cost_model), 0.010, 1e-12);
    double doubt = cost_model_doubt(&cost_model);
    for (int i = 0; i < 200; i++)
        cost_model_observe(&cost_model, 0, 1, 0.020); /* the machine is half as fast; the steepness is not changed */
    near(cost_model_level(&cost_model), 0.020, 1e-4);
    assert_true(cost_model_doubt(&cost_model) > doubt);
    for (int i = 0; i < 200; i++)
        cost_model_observe(&cost_model, i % 2 ? 0.5 : 0, 1, i % 2 ? 0.04 : 0.02);
    near(cost_model_level(&cost_model), 0.020, 2e-4);
    near(cost_model_steepness(&cost_model), 2, 0.06);
    assert_true(cost_model_doubt(&cost_model) < 0.15);
    double before = cost_model_level(&cost_model);
    cost_model_observe(&cost_model, 0, 1, 5);                        /* one iteration during which the machine was busy */
    assert_true(cost_model_level(&cost_model) < 1.1 * before);
    cost_model_observe(&cost_model, 0, 1, NAN);
    cost_model_observe(&cost_model, 0, 1, 0);
    assert_true(isfinite(cost_model_level(&cost_model)));
}

/* Forwards whose multiplications take longer than reads from 6 rows on; one forward takes 20 times as long. */
static void costs_bend_where_multiplications_bind(void **state)
{
    struct cost_model model;
    (void)state;
    cost_model_init(&model, 0.5, 1);
    cost_model_let_bend(&model, 0.2, false);
    near(cost_model_bend(&model, 64), 0, 0);
    for (int i = 0; i < 300; i++) {
        const int rows = 1 + i % 24;
        cost_model_observe(&model, 0.1 * (rows - 1), rows, 0.03 * fmax(1, rows / 6.0));
    }
    for (int rows = 1; rows <= 24; rows++) {
        const double seconds = cost_model_level(&model) * (1 + cost_model_steepness(&model) * 0.1 * (rows - 1)) *
                               exp(cost_model_bend(&model, rows));
        near(seconds / (0.03 * fmax(1, rows / 6.0)), 1, rows < 8 ? 0.18 : 0.06);
    }
    const double bend = cost_model_bend(&model, 64);
    assert_true(bend >= cost_model_bend(&model, 24));
    cost_model_observe(&model, 0.1 * 23, 24, 20 * 0.03 * 4);
    assert_true(cost_model_bend(&model, 64) < bend + 0.1);
}

static double line_seconds(const struct cost_line *line, double growth, int rows)
{
    return cost_line_level(line) * (1 + cost_line_steepness(line) * (growth + cost_line_rows(line, rows)));
}

/* Two forwards show what a row adds, and what longer drafts will cost. */
static void two_forwards_show_the_cost_of_a_row(void **state)
{
    struct cost_line line;
    (void)state;
    cost_line_init(&line, 0.8, 0.3);
    cost_line_observe(&line, 0, 0, 0.02);
    cost_line_observe(&line, 6, 16, NAN);
    assert_true(cost_line_level(&line) == 0);
    for (int texts = 16; texts <= 64; texts *= 2) {
        cost_line_init(&line, 0.8, 0.3);
        cost_line_observe(&line, 7, texts, 0.01 + 0.001 * texts);
        near(line_seconds(&line, 7, texts) / (0.01 + 0.001 * texts), 1, 1e-9);
        const double doubt = cost_line_doubt(&line, 0, texts);
        cost_line_observe(&line, 7, 2 * texts, 0.01 + 0.002 * texts);
        near(line_seconds(&line, 7, texts) / (0.01 + 0.001 * texts), 1, 0.12);
        near(line_seconds(&line, 7, 3 * texts) / (0.01 + 0.003 * texts), 1, 0.12);
        assert_true(cost_line_doubt(&line, 0, 2 * texts) < 0.7 * doubt);
    }
    const double before = line_seconds(&line, 7, 128);
    cost_line_observe(&line, 7, 128, 20 * before);                    /* one forward during which the machine was busy */
    assert_true(line_seconds(&line, 7, 128) < 1.25 * before);
}

/* Forwards bound by reads up to 16 rows, and by multiplications beyond: a straight line is 30 % too low at one end or too high
 * at the other. The costs of experts and of rows are distinguished. */
static void costs_of_rows_rise_where_multiplications_bind(void **state)
{
    struct cost_line line;
    (void)state;
    cost_line_init(&line, 0.8, 0.3);
    for (int i = 0; i < 300; i++) {
        const int rows = 8 << i % 4;
        cost_line_observe(&line, 4 + i % 3, rows, 0.02 * fmax(1, rows / 16.0) + 0.004 * (i % 3));
    }
    for (int rows = 8; rows <= 64; rows *= 2)
        near(line_seconds(&line, 4, rows) / (0.02 * fmax(1, rows / 16.0)), 1, 0.03);
    near(line_seconds(&line, 5, 64) - line_seconds(&line, 4, 64), 0.004, 0.0004);
    near(cost_line_rows(&line, 16) - cost_line_rows(&line, 8), 0, 0.2);
}

/* The policy's K at each of some iterations, in a world without noise: all tokens are accepted or none. */
struct world {
    bool right;
    double forward[9], draft;
    int sure;                           /* tokens that are certain; probability of the others */
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
    /* Not one trial: every draft is inspected, none is verified. */
    assert_int_equal(play(policy, &useless, 300, &seconds), 0);
    near(seconds, 300, 300 * 1e-3);
    /* When drafts become correct, they are verified after some iterations. */
    assert_true(play(policy, &perfect, 200, &seconds) >= 4);
    policy_close(&policy);
    shape_close(&shape);
    /* If drafting has a cost, too, the share spent to learn stays bounded. */
    policy = open_policy("cascade-cost", &shape);
    assert_int_equal(play(policy, &dear, 1000, &seconds), 0);
    near(seconds, 1000, 1000 * 0.01);
    policy_close(&policy);
    shape_close(&shape);
}

/* An expensive drafter that is certain of three tokens and uncertain afterwards: at most one uncertain token is requested. */
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

/* Finds the weights of the logistic regression that fits these observations best, with a prior, by gradient descent. */
static void fit_slowly(const double (*x)[6], const bool *kept, int count, const double *prior, double *weight)
{
    const double first[6] = {weight[0]};
    for (int round = 0; round < 4000; round++) {
        double slope[6];
        for (int i = 0; i < 6; i++)
            slope[i] = prior[i] * (first[i] - weight[i]);
        for (int n = 0; n < count; n++) {
            double sum = 0;
            for (int i = 0; i < 6; i++)
                sum += weight[i] * x[n][i];
            for (int i = 0; i < 6; i++)
                slope[i] += x[n][i] * (kept[n] - 1 / (1 + exp(-sum)));
        }
        for (int i = 0; i < 6; i++)
            weight[i] += 0.0015 * slope[i];
    }
}

/* Online, each observation once: close to the regression over all of them at once. */
static void estimates_are_those_of_a_regression(void **state)
{
    enum { COUNT = 400 };
    static const double prior[6] = {8, 0.5, 4, 4, 4, 2};
    static double x[COUNT][6];
    static bool kept[COUNT];
    struct estimator estimator;
    double weight[6] = {1};
    uint64_t seed = 5;
    (void)state;
    estimator_init(&estimator, 0.5, 1);
    for (int n = 0; n < COUNT; n++) {
        const double p = 0.05 + 0.9 * uniform(&seed), z = log(p / (1 - p));
        const int depth = 1 + n % 4, before = n % 3 == 2;
        const float margin = n % 2 ? (float)(2 * uniform(&seed)) : 0;
        const double right = 1 / (1 + exp(-(0.6 * z - 0.3 - 0.2 * depth - before + 0.3 * (double)margin)));
        const struct estimator_signal signal = {logf((float)p), NAN, margin, depth, 0, before};
        const double features[6] = {z, 1, log2(depth), fmax(0, z - 2), (double)margin / 4, before};
        memcpy(x[n], features, sizeof features);
        kept[n] = uniform(&seed) < right;
        estimator_observe(&estimator, &signal, kept[n]);
    }
    fit_slowly((const double (*)[6])x, kept, COUNT, prior, weight);
    for (int n = 0; n < COUNT; n++) {
        const double z = x[n][0];
        const struct estimator_signal signal = {.stated = (float)-log1p(exp(-z)), .sure = NAN, .margin = (float)(4 * x[n][4]),
                                                 .depth = 1 + n % 4, .before = n % 3 == 2};
        double sum = 0;
        for (int i = 0; i < 6; i++)
            sum += weight[i] * x[n][i];
        near(estimator_of(&estimator, &signal), 1 / (1 + exp(-sum)), 0.04);
    }
}

static void drafters_are_believed_until_known_better(void **state)
{
    const struct estimator_signal sure = {logf(0.8f), NAN, 0, 1, 0, 0}, unsure = {logf(0.3f), NAN, 0, 2, 0, 0};
    const struct estimator_signal silent = {NAN, NAN, 0, 1, 0, 0}, found = {NAN, NAN, 0, 1, 12, 0};
    struct estimator estimator;
    (void)state;
    estimator_init(&estimator, 0.4, 0.98);
    near(estimator_of(&estimator, &sure), 0.8, 1e-6);
    near(estimator_of(&estimator, &unsure), 0.3, 1e-6);
    near(estimator_of(&estimator, &silent), 0.4, 1e-12);
    near(estimator_of(&estimator, &found), 0.4, 1e-12);
    estimator_observe(&estimator, &sure, false);
    assert_true(estimator_of(&estimator, &sure) > 0.4 && estimator_of(&estimator, &sure) < 0.75);     /* not far */
    for (int i = 0; i < 300; i++)
        estimator_observe(&estimator, i % 2 ? &sure : &unsure, i % 4 == 1);
    near(estimator_of(&estimator, &sure), 0.5, 0.08);
    near(estimator_of(&estimator, &unsure), 0, 0.06);
    near(estimator_of(&estimator, &silent), estimator_ahead(&estimator, 1), 0.03);     /* the drafter was never observed */
    for (int i = 0; i < 300; i++)
        estimator_observe(&estimator, i % 2 ? &silent : &found, i % 2 == 0 || i % 8 == 1);
    assert_true(estimator_of(&estimator, &found) > 0.9);                  /* match length separates correct from wrong tokens */
    near(estimator_of(&estimator, &silent), 0.25, 0.08);
    double before = estimator_of(&estimator, &found);
    estimator_fade(&estimator, 0);
    near(estimator_of(&estimator, &found), before, 1e-12);
    near(estimator.seen, 0, 1e-12);
    for (int i = 0; i < 20; i++)
        estimator_observe(&estimator, &found, false);
    assert_true(estimator_of(&estimator, &found) < 0.4);                  /* forgotten soon */
}

/* Acceptance jumps from one match length to the next, while the drafter states the same probability or none. */
static void estimates_follow_jumps_between_match_lengths(void **state)
{
    enum { LENGTHS = 5, COUNT = 4000 };
    static const double right[2][LENGTHS] = {{0.6, 0.1, 0.9, 0.15, 0.7}, {0.2, 0.9, 0.3, 0.8, 0.05}};
    struct estimator estimator, averaged;
    uint64_t seed = 11;
    double error[2] = {0, 0};
    (void)state;
    estimator_init(&estimator, 0.5, 0.999);
    for (int n = 0; n < COUNT; n++) {
        const int length = n % LENGTHS, kind = n / LENGTHS % 2;
        const struct estimator_signal signal = {kind ? logf(0.5f) : NAN, NAN, 0, 1, 4 + length, 0};
        if (n >= COUNT / 2)
            error[kind] += fabs(estimator_of(&estimator, &signal) - right[kind][length]) / (COUNT / 4);
        estimator_observe(&estimator, &signal, uniform(&seed) < right[kind][length]);
    }
    assert_true(error[0] < 0.06 && error[1] < 0.06);
    /* The first outcome corrects from the prior probability, 0.5 at the middle knot. */
    const struct estimator_signal first = {logf(0.5f), NAN, 0, 1, 20, 0};
    const struct estimator_correction *correction = &averaged.correction[ESTIMATOR_STATED];
    estimator_init(&averaged, 0.5, 0.999);
    estimator_observe(&averaged, &first, true);
    near(correction->offset[ESTIMATOR_MATCHES - 1], 0.5 / (0.25 + 4), 1e-6);
    near(correction->error[5], 0.5 / (1 + 20), 1e-6);
    near(correction->offset[ESTIMATOR_MATCHES - 2] + correction->error[4] + correction->error[6], 0, 1e-6);
    averaged = estimator;
    estimator_average(&averaged, (struct estimator *[]){&estimator, &estimator}, 2);
    assert_true(estimator_is_sound(&averaged));
    estimator_fade(&averaged, 0.3);
    for (int length = 0; length < LENGTHS; length++) {
        const struct estimator_signal signal = {logf(0.5f), NAN, 0, 1, 4 + length, 0};
        near(estimator_of(&averaged, &signal), estimator_of(&estimator, &signal), 1e-6);
    }
}

static void refused(const char *path, const char *text, const char *why)
{
    struct estimator estimator;
    struct err err = {0};
    const struct calibration_entry entry = {"ngram", &estimator};
    estimator_init(&estimator, 0.5, 0.99);
    unit_write(path, text, strlen(text));
    assert_int_equal(calibration_read(path, "abc", &entry, 1, &err), -1);
    if (!strstr(err.text, why) || !strstr(err.text, path))
        fail_msg("%s, not %s", err.text, why);
}

/* An expensive drafter that is correct, beside forwards whose cost hardly grows: the first iterations, which do not show the
 * cost of a forward without a draft, do not stop the drafts for ever. A drafter that is wrong costs little. */
static void trimmed_drafts_resume_once_costs_are_known(void **state)
{
    static const struct world right = {true, {1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4}, 0.3, 8, -9};
    static const struct world wrong = {false, {1, 1.05, 1.1, 1.15, 1.2, 1.25, 1.3, 1.35, 1.4}, 0.3, 8, -9};
    static const struct world lost = {true, {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8}, 0.3, 3, -9};
    static const char *const policies[] = {"evict", "evict-experts", "bastion"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct shape *shape = NULL;
        struct policy *policy = open_policy(policies[i], &shape);
        double seconds;
        play(policy, &right, 60, &seconds);
        assert_true(play(policy, &right, 40, &seconds) >= 6);
        near(seconds, 40 * (8 * 0.3 + 1.4) / 9, 1);
        policy_close(&policy);
        shape_close(&shape);
        policy = open_policy(policies[i], &shape);
        play(policy, &wrong, 1000, &seconds);
        near(seconds, 1000, 1000 * 0.02);
        policy_close(&policy);
        shape_close(&shape);
        /* Certain of three tokens, then uncertain: evict finishes its draft, the others end it there, at most one token
         * later. */
        policy = open_policy(policies[i], &shape);
        play(policy, &lost, 60, &seconds);
        assert_int_equal(play(policy, &lost, 40, &seconds), 3);
        if (i)
            assert_true(seconds < 40 * (4 * 0.3 + 1.3) / 4 + 1);
        else
            near(seconds, 40 * (8 * 0.3 + 1.3) / 4, 1);
        policy_close(&policy);
        shape_close(&shape);
    }
}

static void estimates_are_saved_and_loaded(void **state)
{
    char *folder = unit_folder(), text[4096];
    const char *path = unit_path(folder, "calibration.json");
    struct estimator made, other, got[2], untouched;
    struct err err = {0};
    uint64_t seed = 3;
    (void)state;
    estimator_init(&made, 0.5, 0.99);
    estimator_init(&other, 0.5, 0.99);
    untouched = got[0] = got[1] = other;
    const struct calibration_entry both[2] = {{"ngram", &made}, {"model:file=a \"b\".moe", &other}};
    const struct calibration_entry read[2] = {{"ngram", &got[0]}, {"suffix", &got[1]}};
    assert_int_equal(calibration_read(path, "abc", read, 2, &err), 0);          /* no file yet */
    assert_memory_equal(&got[0], &untouched, sizeof untouched);
    for (int i = 0; i < 200; i++)
        estimator_observe(&made, &(struct estimator_signal){i % 2 ? (float)-uniform(&seed) : NAN, NAN, 0, 1 + i % 5, i % 7, 0},
                          uniform(&seed) < 0.6);
    assert_int_equal(calibration_write(path, "abc", both, 2, &err), 0);
    assert_int_equal(calibration_read(path, "abc", read, 2, &err), 0);
    assert_memory_equal(&got[0], &made, sizeof made);
    assert_true(made.correction[ESTIMATOR_STATED].seen[5] > 0 && made.correction[ESTIMATOR_SILENT].information[3] > 0);
    assert_memory_equal(&got[1], &untouched, sizeof untouched);                 /* the file does not contain it */
    assert_int_equal(calibration_read(path, "abd", read, 2, &err), -1);
    assert_non_null(strstr(err.text, "this calibration is for other weights"));
    json_t *file = json_load_file(path, 0, NULL), *saved = json_object_get(json_object_get(file, "drafters"), "ngram");
    json_object_set_new(saved, "corrections", json_array());
    char *changed = json_dumps(file, 0);
    refused(path, changed, "\"ngram\": expected \"corrections\", 3 lists of 38 numbers");
    free(changed);
    json_object_del(saved, "corrections");                                      /* as older versions write them */
    json_dump_file(file, path, 0);
    json_decref(file);
    assert_int_equal(calibration_read(path, "abc", read, 2, &err), 0);
    memset(made.correction, 0, sizeof made.correction);
    assert_memory_equal(&got[0], &made, sizeof made);
    refused(path, "{}", "this is not a calibration file of version 1");
    refused(path, "{\"calibration\": 1, \"model\": \"\", \"drafters\": {\"ngram\": {\"seen\": 1, \"fits\": [[1]]}}}",
            "\"ngram\": expected \"seen\", a number, and \"fits\", 6 lists of 43 numbers");
    size_t used = (size_t)snprintf(text, sizeof text, "{\"calibration\": 1, \"model\": \"abc\", \"drafters\": {\"ngram\": "
                                                      "{\"seen\": 1, \"fits\": [");
    for (int at = 0; at < 6 * 43; at++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s1%s", at % 43 ? "," : at ? ",[" : "[",
                                 at % 43 == 42 ? "]" : "");
    snprintf(text + used, sizeof text - used, "]}}}");
    refused(path, text, "its numbers cannot come from a regression");                    /* all ones: not positive definite */
    unit_remove(folder);
}

static void tasks_are_remembered(void **state)
{
    static const struct world perfect = {true, {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8}, 1e-6, 0, NAN};
    static const struct world useless = {false, {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5}, 1e-6, 0, NAN};
    const struct policy_text code = {.task = "code"}, prose = {.task = "prose"};
    static const char *const policies[] = {"cascade-cost", "evict", "evict-experts"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct shape *shape = NULL;
        struct policy *policy = open_policy(policies[i], &shape);
        double seconds;
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
}

/* Texts of new tasks that begin together all take over what was learned before, not what the one before has just taken over.
 * Each keeps its own estimates, even if there are more tasks than a single text has slots for. */
static void tasks_that_begin_together_take_over_the_same(void **state)
{
    enum { TEXTS = TASKS + 4 };
    static const char *const policies[] = {"cascade-cost", "evict", "dytc-verify"};
    (void)state;
    for (int which = 0; which < 3; which++) {
        struct shape *shape = NULL;
        struct policy *policy[TEXTS] = {open_policy(policies[which], &shape)};
        const struct policy_setup setup = {.drafters = 1, .draft_length = DRAFT_LENGTH_NONE, .max_length = 64, .shape = shape,
                                           .like = policy[0]};
        policy[0]->class->estimator(policy[0], 0)->seen = 1000;
        for (int i = 1; i < TEXTS; i++)
            assert_int_equal(policy_open(&policy[i], policies[which], &setup, NULL), 0);
        for (int i = 0; i < TEXTS; i++) {
            char name[TASK_BYTES];
            snprintf(name, sizeof name, "task %d", i);
            policy[i]->class->begin(policy[i], &(struct policy_text){.task = name});
            near(policy[i]->class->estimator(policy[i], 0)->seen, 250, 1e-9);
        }
        for (int i = 0; i < TEXTS; i++)
            policy[i]->class->estimator(policy[i], 0)->seen = i;
        for (int i = 0; i < TEXTS; i++)
            near(policy[i]->class->estimator(policy[i], 0)->seen, i, 0);
        for (int i = TEXTS; i-- > 0; )
            policy_close(&policy[i]);
        shape_close(&shape);
    }
}

/* Begins a text of a task; returns the index of its slot. *from: the slot from which it took over; -1: none. */
static int begin_task(struct tasks *tasks, struct task_slot **now, const char *name, int *from)
{
    const bool takes_over = tasks_begin(tasks, now, name);
    int slot = -1;
    *from = -1;
    for (int i = 0; i < tasks->slots; i++) {
        slot = tasks->slot[i] == *now ? i : slot;
        *from = takes_over && tasks->slot[i] == (*now)->before ? i : *from;
    }
    (*now)->taught = true;
    return slot;
}

static void the_task_unused_for_longest_is_forgotten(void **state)
{
    struct tasks tasks = {.texts = 0};
    struct task_slot *now = NULL, *other = NULL;
    char name[TASK_BYTES + 8] = "";
    int from;
    (void)state;
    assert_int_equal(tasks_add_text(&tasks, sizeof *now, NULL), 0);
    assert_int_equal(begin_task(&tasks, &now, NULL, &from), 0);
    assert_int_equal(from, -1);                                 /* nothing was learned before */
    begin_task(&tasks, &now, "", &from);                        /* the same task */
    assert_int_equal(from, -1);
    for (int i = 1; i < TASKS; i++) {
        snprintf(name, sizeof name, "task %d", i);
        assert_int_equal(begin_task(&tasks, &now, name, &from), i);
        assert_int_equal(from, i - 1);
    }
    assert_int_equal(begin_task(&tasks, &now, "task 3", &from), 3);
    assert_int_equal(from, -1);
    begin_task(&tasks, &now, NULL, &from);
    assert_int_equal(begin_task(&tasks, &now, "new", &from), 1);          /* replaces task 1 */
    assert_int_equal(from, 0);
    assert_int_equal(begin_task(&tasks, &now, "task 1", &from), 2);       /* replaces task 2 */
    assert_int_equal(from, 1);
    memset(name, 'a', TASK_BYTES + 7);                          /* only the first characters of a long name count */
    begin_task(&tasks, &now, name, &from);
    name[TASK_BYTES] = 'b';
    begin_task(&tasks, &now, name, &from);
    assert_int_equal(from, -1);
    assert_int_equal(tasks_add_text(&tasks, sizeof *now, NULL), 0);       /* another text is of a task that is not reused */
    assert_int_equal(begin_task(&tasks, &other, "kept", &from), TASKS);
    for (int i = 0; i < 2 * TASKS; i++) {
        snprintf(name, sizeof name, "further task %d", i);
        begin_task(&tasks, &now, name, &from);
    }
    assert_string_equal(other->name, "kept");
    tasks_free(&tasks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_teach_without_being_verified), cmocka_unit_test(unions_come_from_the_text),
        cmocka_unit_test(prices_follow_level_and_steepness),
        cmocka_unit_test(costs_bend_where_multiplications_bind), cmocka_unit_test(two_forwards_show_the_cost_of_a_row),
        cmocka_unit_test(costs_of_rows_rise_where_multiplications_bind),
        cmocka_unit_test(useless_drafts_cost_nothing_to_find_out),
        cmocka_unit_test(drafting_stops_where_the_drafter_doubts), cmocka_unit_test(drafters_are_believed_until_known_better),
        cmocka_unit_test(estimates_follow_jumps_between_match_lengths),
        cmocka_unit_test(estimates_are_those_of_a_regression), cmocka_unit_test(estimates_are_saved_and_loaded),
        cmocka_unit_test(trimmed_drafts_resume_once_costs_are_known),
        cmocka_unit_test(tasks_are_remembered), cmocka_unit_test(tasks_that_begin_together_take_over_the_same),
        cmocka_unit_test(the_task_unused_for_longest_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

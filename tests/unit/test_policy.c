/* Policies without a model: the requested lengths, step by step, and the reported state. */
#include "tests/unit/unit.h"

#include "common/policy/shape.h"

enum { NONE = DRAFT_LENGTH_NONE };

static struct shape *open_shape(const char *text)
{
    struct shape *shape = NULL;
    struct err err = {0};
    if (shape_open(&shape, text, &err))
        fail_msg("%s", err.text);
    return shape;
}

static struct policy *open_policy(const char *text, int drafters, int draft_length, struct shape *shape)
{
    struct policy_setup setup = {.drafters = drafters, .draft_length = draft_length, .max_length = 64, .shape = shape};
    struct policy *policy = NULL;
    struct err err = {0};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s", err.text);
    return policy;
}

/* Returns the K that a policy requests for an empty tree, and checks everything else about that step. */
static int asked(const char *text, int drafters, int draft_length)
{
    struct shape *shape = open_shape(NULL);
    struct policy *policy = open_policy(text, drafters, draft_length, shape);
    struct draft_tree tree = {0};
    struct draft_view view = {.tree = &tree, .room = 100};
    struct step step = policy->class->next(policy, &view);
    int K = step.kind == STEP_EXTEND ? step.tokens : 0;
    if (K) {
        assert_int_equal(step.leaves, 1);
        assert_int_equal(step.leaf[0].node, -1);
        assert_int_equal(step.leaf[0].siblings, 1);
        assert_int_equal(step.drafter, 0);
        view.steps = 1;
        assert_int_equal(policy->class->next(policy, &view).kind, STEP_STOP);
    }
    assert_int_equal(policy->class->length(policy), K);
    struct values state = {0};
    policy->class->state(policy, &state);
    assert_int_equal(state.count, 2);
    assert_int_equal(values_number(&state, "K", -1), K);
    assert_string_equal(values_find(&state, "name")->text, policy->class->name);
    policy_close(&policy);
    shape_close(&shape);
    assert_null(policy);
    assert_null(shape);
    return K;
}

static void static_asks_once_for_its_length(void **state)
{
    (void)state;
    assert_int_equal(asked(NULL, 1, NONE), 4);
    assert_int_equal(asked(NULL, 1, 7), 7);
    assert_int_equal(asked("static", 1, 64), 64);
    assert_int_equal(asked("static:K=3", 1, NONE), 3);
    assert_int_equal(asked("static:K=3", 1, 3), 3);
    assert_int_equal(asked("static", 1, 0), 0);
    assert_int_equal(asked("static:K=5", 0, NONE), 0);
}

static void wrong_words_are_refused(void **state)
{
    static const struct { const char *text; int draft_length; const char *part; } wrong[] = {
        {"statc", NONE, "did you mean static"}, {"random", NONE, "not a policy; there are static, cascade"},
        {"static:K=65", NONE, "K"}, {"static:K=-1", NONE, "K"}, {"static:k=4", NONE, "k"}, {"static:K=4", 5, "give one"},
        {"static:K", NONE, "K"}, {"static", DRAFT_LENGTH_AUTO, "for policies that choose"},
        {"off", DRAFT_LENGTH_AUTO, "for policies that choose"}, {"cascade", 0, "nothing to choose"},
        {"cascade:max=65", NONE, "max"}, {"cascade:first=8", NONE, "first"}, {"cascade:set=9,longest=8", NONE, "longest"},
        {"cascade:falls=0", NONE, "falls"}, {"cascade:falls=65", NONE, "falls"}, {"cascade:backoff=0", NONE, "backoff"},
        {"cascade:backoff=65", NONE, "backoff"},
        {"tiers:lengths=3/1", NONE, "lengths"}, {"tiers:lengths=", NONE, "lengths"}, {"tiers:lengths=1/", NONE, "lengths"},
        {"tiers:lengths=1/99", NONE, "lengths"}, {"tiers:lengths=1/7", 4, "lengths"}, {"table", NONE, "no rows"},
        {"table:rows=0:4/0:5", NONE, "rows"}, {"table:rows=5", NONE, "rows"}, {"table:rows=0:99", NONE, "rows"},
        {"table:rows=0:4/", NONE, "rows"}, {"off:window=0", NONE, "window"}, {"off:K=2", 3, "give one of the two"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct shape *shape = open_shape(NULL);
        struct policy_setup setup = {.drafters = 1, .draft_length = wrong[i].draft_length, .max_length = 64, .shape = shape};
        struct policy *policy = NULL;
        struct err err = {0};
        assert_int_equal(policy_open(&policy, wrong[i].text, &setup, &err), -1);
        assert_null(policy);
        assert_non_null(strstr(err.text, wrong[i].part));
        shape_close(&shape);
    }
}

/* A world in which a draft of K tokens always takes cost[K] and has kept[K] accepted tokens. */
struct world { const double *cost; const int *kept; };

/* Runs the policy for some iterations and writes the K of each as a character: 0 to 9, then a to z. */
static void run(struct policy *policy, const struct world *world, int iterations, char *out)
{
    struct draft_tree tree = {0};
    struct draft_view view = {.tree = &tree, .room = 1000};
    for (int i = 0; i < iterations; i++) {
        struct step step = policy->class->next(policy, &view);
        int K = step.kind == STEP_EXTEND ? step.tokens : 0;
        assert_int_equal(policy->class->length(policy), K);
        struct values state = {0};
        policy->class->state(policy, &state);
        assert_false(state.overflow);
        assert_int_equal(values_number(&state, "K", -1), K);
        struct outcome outcome = {.drafted = K, .accepted = world->kept[K], .emitted = world->kept[K] + 1,
                                  .iteration_s = world->cost[K]};
        out[i] = (char)(K < 10 ? '0' + K : 'a' + K - 10);
        if (policy->class->observe)
            policy->class->observe(policy, &outcome);
    }
    out[iterations] = '\0';
}

static void runs_as(const char *text, int draft_length, const struct world *world, const char *want)
{
    char got[1024];
    struct shape *shape = open_shape(NULL);
    struct policy *policy = open_policy(text, 1, draft_length, shape);
    for (int texts = 0; texts < 2; texts++) {           /* a new text continues like the first */
        if (policy->class->begin)
            policy->class->begin(policy, &(struct policy_text){0});
        run(policy, world, (int)strlen(want), got);
        assert_string_equal(got, want);
    }
    policy_close(&policy);
    shape_close(&shape);
}

#define FOUR(k) k k k k
#define SIXTEEN(k) FOUR(k) FOUR(k) FOUR(k) FOUR(k)

static const int none[8] = {0}, up_to_five[8] = {0, 1, 2, 3, 4, 5, 5, 5}, up_to_two[8] = {0, 1, 2, 2, 2, 2, 2, 2};
static const double cheap[8] = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7}, dear[8] = {1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5},
                    between[8] = {1, 1.4, 1.8, 2.2, 2.6, 3, 3.4, 3.8};

/* Utility 3.08, 3.57, 4 at K = 3, 4, 5 and 3.75 at 6, which is within 10 % of the previous one: the climb ends there. */
static void cascade_climbs_to_what_pays_most(void **state)
{
    (void)state;
    const struct world world = {cheap, up_to_five};
    runs_as("cascade", NONE, &world, FOUR("0") FOUR("3") FOUR("4") FOUR("5") FOUR("6") SIXTEEN("5") FOUR("5") FOUR("6")
            SIXTEEN("5"));
    runs_as("cascade:trials=2", NONE, &world, FOUR("0") FOUR("3") FOUR("4") SIXTEEN("4"));
    runs_as("cascade:close=0.15", NONE, &world, FOUR("0") FOUR("3") FOUR("4") SIXTEEN("4"));
    runs_as("cascade:close=0", NONE, &world, FOUR("0") FOUR("3") FOUR("4") FOUR("5") FOUR("6") SIXTEEN("5") FOUR("5") FOUR("6")
            FOUR("4") SIXTEEN("5"));
    runs_as("cascade", 4, &world, FOUR("0") FOUR("3") FOUR("4") SIXTEEN("4") FOUR("4") FOUR("3") SIXTEEN("4"));
    runs_as("cascade:first=1,trial=1,baseline=2,set=3", NONE, &world, "00" "1234" "444" "456" "555");
}

/* Utility 1.36 at 3, 1.15 at 4, then in the other direction 1.67 at 2 and 1.43 at 1. */
static void cascade_turns_round(void **state)
{
    (void)state;
    const struct world world = {between, up_to_two};
    runs_as("cascade", NONE, &world, FOUR("0") FOUR("3") FOUR("4") FOUR("2") FOUR("1") SIXTEEN("2")
            FOUR("2") FOUR("3") FOUR("1") SIXTEEN("2"));
    runs_as("cascade:falls=1", NONE, &world, FOUR("0") FOUR("3") FOUR("4") SIXTEEN("3") FOUR("3") FOUR("4") SIXTEEN("3"));
}

/* Below 1 everywhere: K falls to 1 and then 0; later tests, after 16, 32, 64, ... iterations, use K = 1 alone. */
static void cascade_backs_off(void **state)
{
    (void)state;
    const struct world world = {dear, none};
    runs_as("cascade", NONE, &world, FOUR("0") FOUR("3") FOUR("2") FOUR("1") SIXTEEN("0") FOUR("1") SIXTEEN("0") SIXTEEN("0")
            FOUR("1") FOUR(SIXTEEN("0")) FOUR("1") FOUR(SIXTEEN("0")) FOUR(SIXTEEN("0")) FOUR("1"));
    runs_as("cascade:longest=16", NONE, &world, FOUR("0") FOUR("3") FOUR("2") FOUR("1") SIXTEEN("0") FOUR("1") SIXTEEN("0")
            FOUR("1") SIXTEEN("0") FOUR("1"));
    runs_as("cascade:backoff=1", NONE, &world, FOUR("0") FOUR("3") FOUR("2") FOUR("1") SIXTEEN("0") FOUR("1") SIXTEEN("0")
            FOUR("1") SIXTEEN("0") FOUR("1"));
    runs_as("cascade:backoff=3,longest=64", NONE, &world, FOUR("0") FOUR("3") FOUR("2") FOUR("1") SIXTEEN("0") FOUR("1")
            SIXTEEN("0") SIXTEEN("0") SIXTEEN("0") FOUR("1") FOUR(SIXTEEN("0")) FOUR("1") FOUR(SIXTEEN("0")) FOUR("1"));
}

static void cascade_comes_back_when_drafts_pay_again(void **state)
{
    (void)state;
    const struct world bad = {dear, none}, good = {cheap, up_to_five};
    char got[512];
    struct shape *shape = open_shape(NULL);
    struct policy *policy = open_policy("cascade", 1, NONE, shape);
    run(policy, &bad, 36, got);
    assert_string_equal(got, FOUR("0") FOUR("3") FOUR("2") FOUR("1") SIXTEEN("0") FOUR("1"));
    run(policy, &good, 32 + 16 + 16 + 4, got);          /* the second set phase without drafts has 32 iterations */
    assert_string_equal(got, SIXTEEN("0") SIXTEEN("0") FOUR("1") FOUR("2") FOUR("3") FOUR("4") SIXTEEN("4") FOUR("4"));
    policy_close(&policy);
    shape_close(&shape);
}

static void cascade_measures_its_baseline_again(void **state)
{
    (void)state;
    const struct world world = {cheap, up_to_five};
    runs_as("cascade:set=40,refresh=30,first=5", NONE, &world,
            FOUR("0") FOUR("5") FOUR("6") SIXTEEN("5") "555555" "0" SIXTEEN("5")
            "55" FOUR("5") FOUR("6") "5555" "0");
}

static void tiers_follow_acceptance(void **state)
{
    (void)state;
    static const int all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    const struct world good = {cheap, all}, bad = {cheap, none};
    char got[64];
    struct shape *shape = open_shape(NULL);
    struct policy *policy = open_policy("tiers", 1, NONE, shape);
    run(policy, &good, 20, got);                /* average above 2.5 at the first decision after the warm-up */
    assert_string_equal(got, "333333333333333" "77777");
    run(policy, &bad, 20, got);                 /* falls by a fifth each: below 2.25 after 5, below .25 later */
    assert_string_equal(got, "77777" "333333333" "3" "11111");
    policy_close(&policy);
    policy = open_policy("tiers:lengths=0/4,warmup=0,every=1,weight=1", 1, NONE, shape);
    run(policy, &bad, 3, got);
    assert_string_equal(got, "000");            /* at K = 0 nothing is learned */
    policy_close(&policy);
    static const struct { int cap; const char *lengths; } capped[] = {{0, "000000000000000000"}, {2, "111111111111111111"},
                                                                      {4, "333333333333333333"}};
    for (int i = 0; i < 3; i++) {               /* usual lengths above the cap are left out */
        policy = open_policy("tiers", 1, capped[i].cap, shape);
        run(policy, &good, 18, got);
        assert_string_equal(got, capped[i].lengths);
        policy_close(&policy);
    }
    shape_close(&shape);
}

static void a_table_goes_by_the_length_of_the_answer(void **state)
{
    (void)state;
    const struct world world = {cheap, none};
    runs_as("table:rows=0:4/3:6/6:0/8:1", NONE, &world, "44" "666" "00" "111");
    runs_as("table:rows=4:2", NONE, &world, "000" "222");
}

static void off_is_for_good(void **state)
{
    (void)state;
    const struct world bad = {cheap, none}, good = {cheap, up_to_two};
    char got[64];
    struct shape *shape = open_shape(NULL);
    struct policy *policy = open_policy("off:window=3,least=2", 1, 4, shape);
    run(policy, &good, 6, got);
    assert_string_equal(got, "444444");
    run(policy, &bad, 5, got);                  /* means of 2.33, 1.67 */
    assert_string_equal(got, "44" "000");
    run(policy, &good, 4, got);
    assert_string_equal(got, "0000");
    policy_close(&policy);
    shape_close(&shape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_asks_once_for_its_length),
        cmocka_unit_test(wrong_words_are_refused),
        cmocka_unit_test(cascade_climbs_to_what_pays_most),
        cmocka_unit_test(cascade_turns_round),
        cmocka_unit_test(cascade_backs_off),
        cmocka_unit_test(cascade_comes_back_when_drafts_pay_again),
        cmocka_unit_test(cascade_measures_its_baseline_again),
        cmocka_unit_test(tiers_follow_acceptance),
        cmocka_unit_test(a_table_goes_by_the_length_of_the_answer),
        cmocka_unit_test(off_is_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

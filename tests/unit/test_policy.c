/* Policies without a model: what they ask for, step by step, and what they lay open. */
#include "tests/unit/unit.h"

#include "common/policy/shape.h"

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
    struct policy_setup setup = {drafters, draft_length, 64, shape};
    struct policy *policy = NULL;
    struct err err = {0};
    if (policy_open(&policy, text, &setup, &err))
        fail_msg("%s", err.text);
    return policy;
}

/* The K that a policy asks for at an empty tree, with all else about that step checked. */
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
    assert_int_equal(asked(NULL, 1, -1), 4);
    assert_int_equal(asked(NULL, 1, 7), 7);
    assert_int_equal(asked("static", 1, 64), 64);
    assert_int_equal(asked("static:K=3", 1, -1), 3);
    assert_int_equal(asked("static:K=3", 1, 3), 3);
    assert_int_equal(asked("static", 1, 0), 0);
    assert_int_equal(asked("static:K=5", 0, -1), 0);
}

static void wrong_words_are_refused(void **state)
{
    static const struct { const char *text; int draft_length; const char *part; } wrong[] = {
        {"statc", -1, "did you mean static"}, {"oracle", -1, "not a policy"}, {"static:K=65", -1, "K"},
        {"static:K=-1", -1, "K"}, {"static:k=4", -1, "k"}, {"static:K=4", 5, "give it once"}, {"static:K", -1, "K"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct shape *shape = open_shape(NULL);
        struct policy_setup setup = {1, wrong[i].draft_length, 64, shape};
        struct policy *policy = NULL;
        struct err err = {0};
        assert_int_equal(policy_open(&policy, wrong[i].text, &setup, &err), -1);
        assert_null(policy);
        assert_non_null(strstr(err.text, wrong[i].part));
        shape_close(&shape);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(static_asks_once_for_its_length),
        cmocka_unit_test(wrong_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Acceptance probabilities of nodes of a draft, from the drafters' probabilities and from the outcomes of earlier drafts. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/decode/reach.h"

static void near(float got, double want) { assert_float_equal((double)got, want, 1e-6); }

enum { NODES = 4 };

/* A draft with these probabilities and its weights: root - 0 - 1, root - 2, 2 - 3. */
struct draft {
    struct draft_tree tree;
    struct reach reach;
    struct estimator_signal signal[NODES];
    float weight[1 + NODES];
};

static void draft_begin(struct draft *draft, const double *share)
{
    static const int parent[NODES] = {-1, 0, -1, 2};
    struct err err = {0};
    *draft = (struct draft){0};
    assert_int_equal(draft_tree_init(&draft->tree, NODES, &err), 0);
    for (int node = 0; node < NODES; node++)
        assert_int_equal(draft_tree_add(&draft->tree, parent[node], 10 + node, (float)log(share[node]), 0), node);
    reach_begin(&draft->reach);
}

static void draft_weigh(struct draft *draft) { reach_weights(&draft->reach, &draft->tree, draft->signal, draft->weight); }

static void drafters_are_trusted_along_the_path(void **state)
{
    (void)state;
    static const double share[] = {0.5, 0.25, 0.4, NAN};
    struct draft draft;
    draft_begin(&draft, share);
    draft_weigh(&draft);
    near(draft.weight[0], 1);
    near(draft.weight[1], 0.5);
    near(draft.weight[2], 0.125);
    near(draft.weight[3], 0.4);
    near(draft.weight[4], 0.4 * 0.5);                 /* nothing is known: one kept, one lost */
    draft_tree_free(&draft.tree);
}

/* A drafter reports 0.9 for tokens of which one in ten is kept; a node is judged if its parent was kept. */
static void what_drafters_say_is_held_against_what_became_of_it(void **state)
{
    (void)state;
    static const double share[] = {0.9, 0.5, 0.9, 0.9};
    static const uint8_t lost[] = {1, 0, 0, 0, 0}, right[] = {1, 1, 0, 0, 0};
    struct draft draft;
    draft_begin(&draft, share);
    draft_weigh(&draft);
    for (int i = 0; i < 200; i++)
        reach_observe(&draft.reach, &draft.tree, draft.signal, i % 5 ? lost : right);
    draft_weigh(&draft);
    assert_float_equal((double)draft.weight[1], 0.2, 0.05);
    assert_float_equal((double)draft.weight[3], 0, 0.05);             /* beside node 0 */
    assert_float_equal((double)draft.weight[2], 0, 0.02);             /* node 1: judged when 0 was kept, never kept */
    assert_true(draft.weight[4] < draft.weight[3]);
    reach_begin(&draft.reach);
    draft_weigh(&draft);
    near(draft.weight[1], 0.9);                                       /* another text */
    draft_tree_free(&draft.tree);
}

/* Nodes without a probability are learned by depth, each if its parent was kept, for its own drafter only. */
static void what_became_of_earlier_drafts_counts(void **state)
{
    (void)state;
    static const double share[] = {NAN, NAN, NAN, NAN};
    static const uint8_t first[] = {1, 1, 0, 0, 0}, second[] = {1, 0, 0, 1, 1};
    struct draft draft;
    draft_begin(&draft, share);
    draft_weigh(&draft);
    reach_observe(&draft.reach, &draft.tree, draft.signal, first);      /* node 1 was rejected; 3 was not judged */
    near((float)draft.reach.estimator[0].seen, 0.9975 * (0.9975 * 1 + 1) + 1);
    for (int i = 0; i < 400; i++)
        reach_observe(&draft.reach, &draft.tree, draft.signal, i % 4 ? first : second);
    draft_weigh(&draft);
    assert_float_equal((double)draft.weight[1], 0.75, 0.08);
    assert_float_equal((double)draft.weight[3], 0.25, 0.08);
    assert_float_equal((double)(draft.weight[2] / draft.weight[1]), 0.25, 0.12);        /* both nodes of depth 2 count */
    assert_true(draft.reach.estimator[1].seen <= 0);
    reach_begin(&draft.reach);
    draft_weigh(&draft);
    near(draft.weight[3], 0.5);
    draft_tree_free(&draft.tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafters_are_trusted_along_the_path),
        cmocka_unit_test(what_drafters_say_is_held_against_what_became_of_it),
        cmocka_unit_test(what_became_of_earlier_drafts_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

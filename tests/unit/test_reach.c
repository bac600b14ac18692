/* How likely nodes of a draft are to be kept: by what drafters say, and by what became of earlier drafts. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/decode/reach.h"

static void near(float got, double want) { assert_float_equal((double)got, want, 1e-6); }

enum { NODES = 4 };

/* A draft of these shares, and what is thought of it: root - 0 - 1, root - 2, 2 - 3. */
struct draft {
    struct draft_tree tree;
    struct reach reach;
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

static void draft_weigh(struct draft *draft) { reach_weights(&draft->reach, &draft->tree, draft->weight); }

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
    near(draft.weight[4], 0.4 * 0.5);                 /* nothing known: one kept, one lost */
    draft_tree_free(&draft.tree);
}

/* A drafter that says 0.9 of tokens of which one in ten is kept; a node is judged where its parent was kept. */
static void what_drafters_say_is_held_against_what_became_of_it(void **state)
{
    (void)state;
    static const double share[] = {0.9, 0.5, 0.9, 0.9};
    static const uint8_t lost[] = {1, 0, 0, 0, 0}, right[] = {1, 1, 0, 0, 0};
    struct draft draft;
    draft_begin(&draft, share);
    for (int i = 0; i < 200; i++)
        reach_observe(&draft.reach, &draft.tree, i % 5 ? lost : right);
    draft_weigh(&draft);
    assert_float_equal((double)draft.weight[1], 0.1, 0.03);           /* of nodes 0 and 2 together */
    assert_float_equal((double)draft.weight[2], 0, 0.01);             /* node 1: judged when 0 was kept, never kept */
    near(draft.weight[4], (double)draft.weight[3] * (double)draft.weight[3]);
    reach_begin(&draft.reach);
    draft_weigh(&draft);
    near(draft.weight[1], 0.9);                                       /* another text */
    draft_tree_free(&draft.tree);
}

/* Nodes of depths 1 and 2 that were tried, and of them those kept. */
static void assert_counts(const struct reach *reach, int tried1, int kept1, int tried2, int kept2)
{
    near((float)reach->tried[1], tried1);
    near((float)reach->kept[1], kept1);
    near((float)reach->tried[2], tried2);
    near((float)reach->kept[2], kept2);
}

static void what_became_of_earlier_drafts_counts(void **state)
{
    (void)state;
    static const double share[] = {NAN, NAN, NAN, NAN};
    static const uint8_t first[] = {1, 1, 0, 0, 0}, second[] = {1, 0, 0, 1, 1}, none[] = {1, 0, 0, 0, 0};
    struct draft draft;
    draft_begin(&draft, share);
    reach_observe(&draft.reach, &draft.tree, first);        /* node 0 kept, so 2 was never tried; 1 was, in vain */
    assert_counts(&draft.reach, 1, 1, 1, 0);
    reach_observe(&draft.reach, &draft.tree, second);       /* 0 in vain, then 2, then 3 */
    assert_counts(&draft.reach, 3, 2, 2, 1);
    reach_observe(&draft.reach, &draft.tree, none);
    assert_counts(&draft.reach, 5, 2, 2, 1);
    draft_weigh(&draft);
    near(draft.weight[3], 3.0 / 7);
    near(draft.weight[4], 3.0 / 7 * 0.5);
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

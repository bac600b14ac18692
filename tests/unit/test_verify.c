/* Coupled acceptance over random trees: the output equals that of choosing token by token, and the accepted path is exactly
 * the part of the draft that agrees with it. Also the bound on what any acceptance rule could keep. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/draft/tree.h"
#include "common/sample/sampler.h"
#include "common/verify/acceptance.h"
#include "common/verify/overlap.h"
#include "kernels/plain/accept.h"

enum { VOCAB = 5, NODES = 40, ROUNDS = 3000 };

static int below(int n) { return (int)((unsigned)rand() % (unsigned)n); }

static void grow(struct draft_tree *tree, int nodes)
{
    draft_tree_clear(tree);
    for (int i = 0; i < nodes; i++)
        draft_tree_add(tree, below(tree->nodes + 1) - 1, below(VOCAB), 0, 0);
}

static void what_is_emitted_are_the_targets_own_choices(void **state)
{
    struct draft_tree tree = {0};
    int deepest = 0, refused = 0;
    (void)state;
    srand(2);
    assert_int_equal(draft_tree_init(&tree, NODES, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        const struct sample_filter filter = {.temperature = round % 3 ? 0.8 : 0, .top_k = round % 2 ? 3 : 0, .top_p = 1};
        float logits[(NODES + 1) * VOCAB];
        int32_t path[NODES], emitted[NODES + 1], choices[NODES + 1], walked[NODES];
        const int32_t prompt[2] = {1, round};
        int position = below(1000), at = -1;
        const struct acceptance_setup setup = {VOCAB, NODES, filter};
        struct acceptance *acceptance = NULL;
        struct sampler *sampler = NULL;
        struct err err = {0};
        grow(&tree, below(NODES + 1));
        for (int i = 0; i < (tree.nodes + 1) * VOCAB; i++)
            logits[i] = 0.5f * (float)below(8);
        assert_int_equal(sampler_open(&sampler, &filter, 4, VOCAB, &err), 0);
        assert_int_equal(sampler_begin(sampler, prompt, 2, 0, &err), 0);
        assert_int_equal(acceptance_open(&acceptance, "coupled", &setup, &err), 0);
        const struct reject_draft draft = {tree.nodes, tree.token, tree.parent, NULL};
        struct sample_draw draw = *sampler_draw(sampler);
        draw.position = (uint32_t)position;
        int accepted = acceptance_accept(acceptance, &draft, logits, &draw, path, emitted, &err);

        for (int i = 0; i <= accepted; i++) {
            int32_t choice = sampler_choose(sampler, logits + (at + 1) * VOCAB, position + 1 + i, &err);
            assert_int_equal(emitted[i], choice);
            if (i < accepted) {
                assert_int_equal(tree.parent[path[i]], at);
                assert_int_equal(tree.token[path[i]], choice);
                at = path[i];
            }
        }
        for (int node = 0; node < tree.nodes; node++)           /* no child agrees with the next choice */
            assert_false(tree.parent[node] == at && tree.token[node] == emitted[accepted]);

        /* With a choice at every node the walk of kernels/plain gives the same path. */
        for (int i = 0; i <= tree.nodes; i++)
            choices[i] = sampler_choose(sampler, logits + i * VOCAB, position + 1 + (i ? tree.depth[i - 1] : 0), &err);
        assert_int_equal(accept_walk(tree.token, tree.parent, tree.nodes, choices, walked), accepted);
        assert_memory_equal(walked, path, (size_t)accepted * sizeof *path);
        deepest = accepted > deepest ? accepted : deepest;
        refused += !accepted && tree.nodes;
        sampler_close(&sampler);
        acceptance_close(&acceptance);
    }
    assert_true(deepest >= 4 && refused > 100);
    draft_tree_free(&tree);
}

static void a_tree_holds_a_child_once_and_no_more_than_fits(void **state)
{
    struct draft_tree tree = {0};
    (void)state;
    assert_int_equal(draft_tree_init(&tree, 4, NULL), 0);
    assert_int_equal(draft_tree_add(&tree, -1, 7, 0, 0), 0);
    assert_int_equal(draft_tree_add(&tree, 0, 7, 0, 0), 1);
    assert_int_equal(draft_tree_add(&tree, -1, 7, 0, 0), 0);
    assert_int_equal(draft_tree_add(&tree, -1, 8, 0, 0), 2);
    assert_int_equal(draft_tree_add(&tree, 0, 7, 0, 0), 1);
    assert_int_equal(draft_tree_add(&tree, 0, 8, 0, 0), 3);
    assert_int_equal(draft_tree_add(&tree, 2, 7, 0, 0), -1);
    assert_int_equal(tree.nodes, 4);
    draft_tree_free(&tree);
}

/* Random trees: known overlaps equal the definition for single children of kept nodes. */
static void overlaps_are_those_of_the_definition(void **state)
{
    struct draft_tree tree = {0};
    struct overlap overlap = {0};
    int drawn = 0, fixed = 0, unknown = 0;
    (void)state;
    srand(9);
    assert_int_equal(draft_tree_init(&tree, NODES, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        const struct sample_filter filter = {round % 4 * 0.5, 1, 0, round % 3 * 2};
        float logits[(NODES + 1) * VOCAB], proposal[NODES][VOCAB];
        uint8_t kept[NODES + 1] = {1};
        bool draws[2] = {round % 2, round / 2 % 2};             /* of the drafter and of a reviewer */
        grow(&tree, below(12));
        for (int i = 0; i < (tree.nodes + 1) * VOCAB; i++)
            logits[i] = 0.5f * (float)below(8);
        for (int node = 0; node < tree.nodes; node++) {
            float sum = 0;
            for (int v = 0; v < VOCAB; v++)
                sum += proposal[node][v] = (float)(1 + below(9));
            for (int v = 0; v < VOCAB; v++)
                proposal[node][v] /= sum;
            tree.proposal[node] = below(3) ? proposal[node] : NULL;
            tree.reviewer[node] = below(3) ? -1 : 1;
            kept[1 + node] = kept[1 + tree.parent[node]] && below(3);
        }
        assert_int_equal(overlap_init(&overlap, &filter, VOCAB, NODES, NULL), 0);
        const float *found = overlap_measure(&overlap, &tree, kept, draws, logits);
        assert_true(isnan(found[0]));
        for (int node = 0; node < tree.nodes; node++) {
            int32_t scratch[VOCAB];
            double p[VOCAB], shared = 0;
            int siblings = 0;
            for (int other = 0; other < tree.nodes; other++)
                siblings += tree.parent[other] == tree.parent[node];
            if (!kept[1 + tree.parent[node]] || siblings > 1 ||
                (!tree.proposal[node] && (draws[0] || (draws[1] && tree.reviewer[node] == 1)))) {
                assert_true(isnan(found[1 + node]));
                unknown++;
                continue;
            }
            sample_probabilities(logits + (1 + tree.parent[node]) * VOCAB, VOCAB, &filter, scratch, p);
            for (int v = 0; v < VOCAB; v++)
                shared += tree.proposal[node] ? fmin(p[v], (double)proposal[node][v]) : v == tree.token[node] ? p[v] : 0;
            assert_true(fabs((double)found[1 + node] - shared) < 1e-6);
            drawn += tree.proposal[node] != NULL;
            fixed += tree.proposal[node] == NULL;
        }
        overlap_free(&overlap);
    }
    assert_true(drawn > 500 && fixed > 100 && unknown > 1000);
    draft_tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_emitted_are_the_targets_own_choices),
        cmocka_unit_test(overlaps_are_those_of_the_definition),
        cmocka_unit_test(a_tree_holds_a_child_once_and_no_more_than_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

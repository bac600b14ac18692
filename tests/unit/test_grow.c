/* The interface between policies and several drafters, with scripts for both: which drafter is asked, what a review may do,
 * what is counted, and what is rejected. */
#include "tests/unit/unit.h"

#include "common/decode/grow.h"
#include "common/policy/shape.h"

enum { NODES = 32, STEPS = 12 };

/* A drafter with scripted tokens: it adds them after the first leaf, as a chain. */
struct scripted {
    struct drafter base;
    int32_t token[8];
    int tokens, asked, wanted, reviews;
    bool draws;                         /* reports the distribution it drew from */
};

static const float proposal[2][100];

static int scripted_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                            int tokens, struct err *err)
{
    struct scripted *mine = (struct scripted *)drafter;
    int before = tree->nodes, node = leaf->node;
    (void)leaves, (void)err;
    mine->asked++;
    mine->wanted += tokens;
    drafter->bytes += 1000 * (1 + drafter->number);
    drafter->read += drafter->number;
    for (int i = 0; i < mine->tokens && i < tokens; i++) {
        node = draft_tree_add(tree, node, mine->token[i], -1, drafter->number);
        tree->proposal[node] = mine->draws ? proposal[drafter->number] : NULL;
    }
    return tree->nodes - before;
}

/* As a reviewer it chooses its script, below the leaf. */
static int scripted_review(struct drafter *drafter, struct draft_tree *tree, int leaf, int *agreed, struct err *err)
{
    struct scripted *mine = (struct scripted *)drafter;
    int32_t keep[NODES], kept = 0;
    int at = leaf, depth = 0, outside = 0;
    bool way[NODES] = {false};
    (void)err;
    mine->reviews++;
    for (int next = 0; next < tree->nodes; next++)
        if (tree->parent[next] == at && depth < mine->tokens && tree->token[next] == mine->token[depth] && next > leaf) {
            way[next] = true;
            tree->reviewer[next] = drafter->number;
            tree->proposal[next] = mine->draws ? proposal[drafter->number] : NULL;
            at = next;
            depth++;
        }
    for (int node = 0; node < tree->nodes; node++) {
        int above = node;
        while (above > leaf)
            above = tree->parent[above];
        outside = node <= leaf || above != leaf;
        if (outside || way[node])
            keep[kept++] = node;
    }
    for (int i = 0; i < kept; i++)
        at = at == keep[i] ? -2 - i : at;
    at = at < -1 ? -2 - at : at;
    assert_int_equal(draft_tree_keep(tree, keep, kept), 0);
    *agreed = depth;
    if (depth == mine->tokens)
        return 0;
    int node = draft_tree_add(tree, at, mine->token[depth], -2, drafter->number);
    tree->proposal[node] = mine->draws ? proposal[drafter->number] : NULL;
    return 1;
}

static const struct drafter_class plain = {.name = "plain", .propose = scripted_propose};
static const struct drafter_class reviewing = {.name = "reviewing", .propose = scripted_propose, .review = scripted_review};

/* A policy that follows a list of steps and records what it was shown. */
struct script {
    struct policy base;
    struct step step[STEPS];
    int steps;
    struct draft_view seen[STEPS];
};

static struct step script_next(struct policy *policy, const struct draft_view *view)
{
    struct script *mine = (struct script *)policy;
    mine->seen[view->steps] = *view;
    return view->steps < mine->steps ? mine->step[view->steps] : (struct step){.kind = STEP_STOP};
}

static const struct policy_class script_class = {.name = "script", .next = script_next};

struct stage {
    struct draft_tree tree;
    struct draft_leaf leaf[NODES + 1];
    struct scripted drafter[2];
    struct drafters drafters;
    struct draft_share share[2];
    struct script script;
    struct err err;
};

static void stage_open(struct stage *stage)
{
    *stage = (struct stage){.script = {.base = {&script_class}}};
    assert_int_equal(draft_tree_init(&stage->tree, NODES, NULL), 0);
    for (int i = 0; i < 2; i++) {
        stage->drafter[i].base = (struct drafter){.class = i ? &reviewing : &plain, .number = i};
        stage->drafters.item[stage->drafters.count++] = &stage->drafter[i].base;
    }
}

static int grow(struct stage *stage, int room)
{
    const struct growth growth = {&stage->tree, stage->leaf, &stage->script.base, &stage->drafters, stage->share};
    return draft_grow(&growth, room, &stage->err);
}

static void script_is(struct scripted *drafter, const char *tokens)
{
    drafter->tokens = 0;
    for (; *tokens; tokens++)
        drafter->token[drafter->tokens++] = *tokens;
}

static void tree_is(const struct draft_tree *tree, const char *tokens, const char *drafters)
{
    assert_int_equal(tree->nodes, (int)strlen(tokens));
    for (int node = 0; node < tree->nodes; node++) {
        assert_int_equal(tree->token[node], tokens[node]);
        assert_int_equal(tree->drafter[node], drafters[node] - '0');
    }
}

static struct step extends(int drafter, int tokens, const struct draft_leaf *leaf)
{
    return (struct step){.kind = STEP_EXTEND, .drafter = drafter, .tokens = tokens, .leaf = leaf, .leaves = 1};
}

static void the_drafter_that_is_named_is_asked(void **state)
{
    static const struct draft_leaf root = {-1, 1}, second = {1, 1};
    static const uint8_t kept[] = {1, 1, 1, 1, 0, 0};
    struct stage stage;
    (void)state;
    stage_open(&stage);
    script_is(&stage.drafter[0], "ab");
    script_is(&stage.drafter[1], "xyz");
    stage.script.step[0] = extends(0, 4, &root);
    stage.script.step[1] = extends(1, 3, &second);
    stage.script.steps = 2;
    assert_int_equal(grow(&stage, 20), 5);
    tree_is(&stage.tree, "abxyz", "00111");
    assert_int_equal(stage.script.seen[0].added, 0);
    assert_int_equal(stage.script.seen[1].added, 2);
    assert_int_equal(stage.script.seen[2].added, 3);
    draft_count_kept(&stage.tree, kept, stage.share);
    const struct draft_share *share = stage.share;
    assert_int_equal(share[0].steps, 1);
    assert_int_equal(share[0].levels, 4);
    assert_int_equal(share[0].proposed, 2);
    assert_int_equal(share[0].verified, 2);
    assert_int_equal(share[0].accepted, 2);
    assert_int_equal(share[0].bytes, 1000);
    assert_int_equal(share[0].caught_up, 0);
    assert_int_equal(share[1].levels, 3);
    assert_int_equal(share[1].proposed, 3);
    assert_int_equal(share[1].verified, 3);
    assert_int_equal(share[1].accepted, 1);
    assert_int_equal(share[1].bytes, 2000);
    assert_int_equal(share[1].caught_up, 1);
    assert_true(share[0].seconds > 0 && share[1].seconds > 0);
    /* Counted anew each time, and never below what helps. */
    assert_int_equal(grow(&stage, 3), 3);
    tree_is(&stage.tree, "abx", "001");
    assert_int_equal(share[1].levels, 1);
    assert_int_equal(share[1].bytes, 2000);
    for (int drafter = -1; drafter < 3; drafter += 3) {
        stage.script.step[1] = extends(drafter, 3, &second);
        assert_int_equal(grow(&stage, 20), -1);
        assert_non_null(strstr(stage.err.text, "the policy requests tokens from drafter number"));
        err_clear(&stage.err);
    }
    draft_tree_free(&stage.tree);
}

static void a_review_keeps_what_agrees_and_adds_its_own(void **state)
{
    static const struct draft_leaf root = {-1, 1}, first = {0, 1};
    static const struct {
        const char *drafts, *reviews, *tokens, *drafters;
        int below, agreed, added, reviewed, room;
    } cases[] = {
        {"abcd", "abxy", "abx", "001", -1, 2, 1, 4, 20}, {"abcd", "xyzu", "x", "1", -1, 0, 1, 4, 20},
        {"abcd", "abcdef", "abcde", "00001", -1, 4, 1, 4, 20}, {"abcd", "bcx", "abcx", "0001", 0, 2, 1, 3, 20},
        {"abcd", "abcdef", "abcd", "0000", -1, 4, 1, 4, 4}, {"", "x", "x", "1", -1, 0, 1, 0, 20}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage stage;
        stage_open(&stage);
        script_is(&stage.drafter[0], cases[i].drafts);
        script_is(&stage.drafter[1], cases[i].reviews);
        stage.script.step[0] = extends(0, 8, &root);
        stage.script.step[1] = (struct step){.kind = STEP_REVIEW, .drafter = 1, .leaf = cases[i].below < 0 ? &root : &first,
                                             .leaves = 1};
        stage.script.steps = 2;
        assert_int_equal(grow(&stage, cases[i].room), (int)strlen(cases[i].drafts) + cases[i].added);
        tree_is(&stage.tree, cases[i].tokens, cases[i].drafters);
        assert_int_equal(stage.script.seen[2].agreed, cases[i].agreed);
        assert_int_equal(stage.script.seen[2].added, cases[i].added);
        assert_int_equal(stage.share[1].reviewed, cases[i].reviewed);
        assert_int_equal(stage.share[1].steps, 1);
        assert_int_equal(stage.share[1].levels, 1);
        for (int node = 0; node < stage.tree.nodes; node++)
            assert_int_equal(stage.tree.reviewer[node],
                             stage.tree.drafter[node] == 0 && node > cases[i].below ? 1 : -1);
        draft_tree_free(&stage.tree);
    }
}

static void a_review_that_cannot_be_is_refused(void **state)
{
    static const struct draft_leaf root = {-1, 1}, beyond = {4, 1};
    static const struct { int drafter, draws; const struct draft_leaf *leaf; const char *text; } cases[] = {
        {0, 0, &root, "which cannot review"}, {1, 0, &beyond, "leaf that does not exist"},
        {1, 1, &root, "without setting the distribution that it drew from"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage stage;
        stage_open(&stage);
        script_is(&stage.drafter[0], "abcd");
        script_is(&stage.drafter[1], "abx");
        stage.drafter[0].draws = cases[i].draws;
        stage.script.step[0] = extends(0, 8, &root);
        stage.script.step[1] = (struct step){.kind = STEP_REVIEW, .drafter = cases[i].drafter, .leaf = cases[i].leaf,
                                             .leaves = 1};
        stage.script.steps = 2;
        assert_int_equal(grow(&stage, 20), -1);
        assert_non_null(strstr(stage.err.text, cases[i].text));
        err_clear(&stage.err);
        if (cases[i].draws) {           /* the rest equals the reviewer's draws */
            stage.drafter[1].draws = true;
            assert_int_equal(grow(&stage, 20), 5);
            for (int node = 0; node < stage.tree.nodes; node++)
                assert_ptr_equal(stage.tree.proposal[node], proposal[1]);
        }
        draft_tree_free(&stage.tree);
    }
}

/* Several drafters under a policy that chooses none: the first one that proposes tokens drafts. */
static void the_first_that_proposes_anything_drafts(void **state)
{
    static const char *const policies[] = {"static:K=3", "table:rows=0:3", "off:K=3"};
    static const struct { const char *first, *second, *tokens, *drafters; int asked; } cases[] = {
        {"ab", "xyz", "ab", "00", 0}, {"", "xyzu", "xyz", "111", 1}, {"", "", "", "", 1}};
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct stage stage;
            struct shape *shape = NULL;
            struct policy *policy = NULL;
            stage_open(&stage);
            assert_int_equal(shape_open(&shape, NULL, &stage.err), 0);
            const struct policy_setup setup = {.drafters = 2, .draft_length = DRAFT_LENGTH_NONE, .max_length = 8,
                                               .shape = shape};
            assert_int_equal(policy_open(&policy, policies[p], &setup, &stage.err), 0);
            script_is(&stage.drafter[0], cases[i].first);
            script_is(&stage.drafter[1], cases[i].second);
            const struct growth growth = {&stage.tree, stage.leaf, policy, &stage.drafters, stage.share};
            for (int round = 0; round < 2; round++) {
                assert_int_equal(draft_grow(&growth, 20, &stage.err), (int)strlen(cases[i].tokens));
                tree_is(&stage.tree, cases[i].tokens, cases[i].drafters);
                assert_int_equal(stage.share[0].steps, 1);
                assert_int_equal(stage.share[1].steps, cases[i].asked);
            }
            policy_close(&policy);
            shape_close(&shape);
            draft_tree_free(&stage.tree);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drafter_that_is_named_is_asked),
        cmocka_unit_test(a_review_keeps_what_agrees_and_adds_its_own),
        cmocka_unit_test(a_review_that_cannot_be_is_refused),
        cmocka_unit_test(the_first_that_proposes_anything_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

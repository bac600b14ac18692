/* Every policy with every acceptance rule, drafter and shape, through the whole loop: texts have the target's distribution,
 * or equal the texts without drafts. tests/long/test_texts.c runs the same with a million texts. */
#include "tests/unit/loop_policies.h"

enum { CHAINS = 600, TREES = 300, CERTAIN = 80, THOUSANDS = 12 };

/* Returns the texts of a cell: more if the rule is random; under sanitisers few, which show memory errors. */
static int texts(const struct loop_cell *cell)
{
    int count = strcmp(cell->accept, "rejection") ? CERTAIN : cell->tree ? TREES : CHAINS;
    return unit_brief() ? count / 20 : count;
}

static struct loop_world world;
static struct loop_rig rig;
static struct loop_law laws[LOOP_SAMPLINGS];

static int make_world(void **state)
{
    (void)state;
    loop_world_open(&world);
    loop_rig_open(&rig, &world, 1);
    for (int i = 0; i < LOOP_SAMPLINGS; i++) {
        struct sample_filter filter = grid_filters[loop_samplings[i].filter];
        filter.temperature = loop_samplings[i].temperature;
        loop_law_make(&laws[i], &world, &filter);
    }
    return 0;
}

static int drop_world(void **state)
{
    (void)state;
    loop_rig_close(&rig);
    loop_world_close(&world);
    return 0;
}

static void every_pair_gives_its_law(void **state)
{
    (void)state;
    for (int number = 0; number < loop_points(); number++) {
        const struct loop_point point = loop_point(number);
        const int sampling = number % LOOP_SAMPLINGS;
        char policy[1400], fault[3000];
        struct loop_tally tally;
        struct loop_cell cell;
        loop_cell(&cell, &point, sampling, &world, &rig, policy, sizeof policy);
        int rc = loop_run(&cell, &world, &laws[sampling], &rig, texts(&cell), &tally);
        tally.drafted += unit_brief();       /* too few texts for a policy to show all its behaviour */
        if (loop_fault(&cell, rc, &tally, fault, sizeof fault))
            fail_msg("%s", fault);
    }
}

/* Drafters that look up text, which the grid does not contain: as chains, in given trees, and in trees of their own. */
static void what_proposes_from_text_gives_its_law(void **state)
{
    static const char *const drafts[] = {"pld:n=2,tokens=2", "suffix:factor=4,min=0.01",
                                         "lookahead:level=3,window=3,guess=4,prompt=yes"};
    static const char *const trees[] = {"own", "chain", "dynamic:total=6,depth=3,topk=2"};
    (void)state;
    for (int number = 0; number < 3 * 3 * LOOP_RULES; number++) {
        const int sampling = number % LOOP_SAMPLINGS;
        struct loop_tally tally;
        char fault[3000];
        struct loop_cell cell = {
            .accept = loop_rules[number % LOOP_RULES], .alone = drafts[number / LOOP_RULES % 3],
            .draft = drafts[number / LOOP_RULES % 3], .tree = trees[number / LOOP_RULES / 3], .policy = "static:K=3",
            .seed = 7000, .temperature = loop_samplings[sampling].temperature, .filter = loop_samplings[sampling].filter};
        int rc = loop_run(&cell, &world, &laws[sampling], &rig, texts(&cell), &tally);
        if (loop_fault(&cell, rc, &tally, fault, sizeof fault))
            fail_msg("%s", fault);
    }
}

/* Ranks that a static tree leaves out are drafted and dropped, so its tokens must not be drawn. */
static void a_tree_with_ranks_left_out_gives_its_law(void **state)
{
    static const char json[] = "[[0],[2],[0,1],[2,0],[0,1,0]]";
    char tree[600];
    (void)state;
    unit_write(unit_path(world.folder, "gaps.json"), json, sizeof json - 1);
    snprintf(tree, sizeof tree, "static:file=%s/gaps.json", world.folder);
    for (int number = 0; number < LOOP_RULES * LOOP_SAMPLINGS; number++) {
        const int sampling = number / LOOP_RULES;
        struct loop_tally tally;
        char fault[3000];
        struct loop_cell cell = {
            .accept = loop_rules[number % LOOP_RULES], .alone = world.model, .draft = world.model, .tree = tree,
            .policy = "static:K=3", .seed = 8000, .temperature = loop_samplings[sampling].temperature,
            .filter = loop_samplings[sampling].filter};
        int rc = loop_run(&cell, &world, &laws[sampling], &rig, texts(&cell), &tally);
        if (loop_fault(&cell, rc, &tally, fault, sizeof fault))
            fail_msg("%s", fault);
    }
}

/* Heads: all of the target's tokens, some of them, early states, guesses, a level read ahead, two branches in one, and
 * prediction layers alternately. */
static void heads_give_their_law(void **state)
{
    (void)state;
    for (int number = 0; number < LOOP_HEADS * LOOP_TREES * LOOP_RULES; number++) {
        const int sampling = number % LOOP_SAMPLINGS;
        struct loop_tally tally;
        char fault[3000];
        struct loop_cell cell = {
            .accept = loop_rules[number % LOOP_RULES], .alone = world.head[number / LOOP_RULES % LOOP_HEADS], .draft = "head",
            .tree = loop_trees[number / LOOP_RULES / LOOP_HEADS], .policy = "static:K=3", .seed = 9000,
            .temperature = loop_samplings[sampling].temperature, .filter = loop_samplings[sampling].filter};
        int rc = loop_run(&cell, &world, &laws[sampling], &rig, texts(&cell), &tally);
        if (loop_fault(&cell, rc, &tally, fault, sizeof fault))
            fail_msg("%s: %s", cell.alone, fault);
    }
}

/* At temperature 0 there is one text. */
static void at_temperature_0_all_pairs_give_one_text(void **state)
{
    struct loop_law law = {.filter = {0, 1, 0, 0}};
    (void)state;
    for (int number = 0; number < loop_points(); number++) {
        const struct loop_point point = loop_point(number);
        char policy[1400], fault[3000];
        struct loop_tally tally;
        struct loop_cell cell;
        loop_cell(&cell, &point, 0, &world, &rig, policy, sizeof policy);
        cell.temperature = 0;
        int rc = loop_run(&cell, &world, &law, &rig, 4, &tally);
        tally.drafted += 1;                 /* no token needs to be dropped here */
        if (loop_fault(&cell, rc, &tally, fault, sizeof fault))
            fail_msg("%s", fault);
    }
}

static void policies_may_look_to_decide_what_comes_next(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof loop_right / sizeof *loop_right; i++) {
        struct loop_tally tally;
        int samples = (unit_brief() ? 50 : 1000) * loop_right[i].thousands;
        if (loop_twist_run(&loop_right[i], &world, &laws[3], &rig, samples, &tally))
            fail_msg("%s: %s", loop_right[i].name, tally.err.text);
        if (loop_sees(&tally))
            fail_msg("%s: z %.2f, %ld impossible", loop_right[i].name, tally.tally.z, tally.tally.impossible);
        assert_true(tally.verified > samples / 2);
    }
}

static void known_mistakes_are_seen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof loop_wrong / sizeof *loop_wrong; i++) {
        struct loop_tally tally;
        if (loop_wrong[i].thousands > THOUSANDS || unit_brief())
            continue;
        if (loop_twist_run(&loop_wrong[i], &world, &laws[3], &rig, 1000 * loop_wrong[i].thousands, &tally))
            fail_msg("%s: %s", loop_wrong[i].name, tally.err.text);
        if (!loop_sees(&tally))
            fail_msg("%s: not seen, z %.2f", loop_wrong[i].name, tally.tally.z);
    }
}

/* A policy that does not declare its dropping causes an error, not a bias, at the first drawn token that it drops. */
static void what_was_drawn_cannot_be_dropped(void **state)
{
    const struct loop_twist drops = {"", 0, loop_drops, 0, NULL};
    struct loop_tally tally;
    (void)state;
    assert_int_equal(loop_twist_run(&drops, &world, &laws[3], &rig, 100, &tally), -1);
    assert_int_equal(tally.err.code, ERR_INPUT);
    assert_non_null(strstr(tally.err.text, "the policy drops drawn tokens, which would change the distribution"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_gives_its_law),
        cmocka_unit_test(what_proposes_from_text_gives_its_law),
        cmocka_unit_test(a_tree_with_ranks_left_out_gives_its_law),
        cmocka_unit_test(heads_give_their_law),
        cmocka_unit_test(at_temperature_0_all_pairs_give_one_text),
        cmocka_unit_test(policies_may_look_to_decide_what_comes_next),
        cmocka_unit_test(known_mistakes_are_seen),
        cmocka_unit_test(what_was_drawn_cannot_be_dropped),
    };
    return cmocka_run_group_tests(tests, make_world, drop_world);
}

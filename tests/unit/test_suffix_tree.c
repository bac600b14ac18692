/* Suffix trees of several texts compared with a plain counter, which finds the tokens that followed a string, and its number
 * of occurrences, by searching all texts. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/draft/suffix_tree.h"

enum { TEXTS = 5, TOKENS = 24, ALPHABET = 3, LEVELS = 3 };

struct texts {
    int count, length[TEXTS];
    int32_t token[TEXTS][TOKENS];
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int below(uint64_t *state, int limit) { return (int)(next_random(state) % (uint64_t)limit); }

/* Counts the occurrences of a string; followed[t]: those followed by token t. */
static int count_plainly(const struct texts *texts, const int32_t *string, int length, int *followed)
{
    int found = 0;
    memset(followed, 0, ALPHABET * sizeof *followed);
    for (int text = 0; text < texts->count; text++)
        for (int at = 0; at + length <= texts->length[text]; at++) {
            if (memcmp(texts->token[text] + at, string, (size_t)length * sizeof *string))
                continue;
            found++;
            if (at + length < texts->length[text])
                followed[texts->token[text][at + length]]++;
        }
    return found;
}

/* Checks the tree's drafts after a string, level by level; returns the number of shares checked. */
static int check_string(const struct suffix_tree *tree, const struct texts *texts, const int32_t *string, int length,
                        bool occurrences)
{
    struct suffix_cursor cursor[SUFFIX_DEPTH_MAX + 2];
    const struct suffix_limits limits = {.nodes = SUFFIX_DRAFT_MAX, .levels = LEVELS, .first = ALPHABET, .below = ALPHABET,
                                         .min = SUFFIX_MIN, .occurrences = occurrences};
    static struct suffix_draft draft;
    int cursors = 0, followed[ALPHABET], found = count_plainly(texts, string, length, followed);
    for (int at = 0; at < length; at++)
        cursors = suffix_tree_follow(tree, cursor, cursors, string[at]);
    assert_int_equal(found > 0, cursors > 0 && cursor[0].length == length);
    if (!found)
        return 0;
    suffix_tree_expand(tree, &cursor[0], &limits, &draft);
    for (int node = 0; node < draft.nodes; node++) {
        int32_t way[TOKENS + LEVELS];
        const int level = draft.level[node], above = length + level - 1;
        memcpy(way, string, (size_t)length * sizeof *way);
        for (int at = draft.parent[node], back = level - 1; back; at = draft.parent[at])
            way[length + --back] = draft.token[at];
        int occurs = count_plainly(texts, way, above, followed), all = 0;
        for (int token = 0; token < ALPHABET; token++)
            all += followed[token];
        double share = (double)followed[draft.token[node]] / (occurrences ? occurs : all);
        if (!(fabs(draft.share[node] - share) < 1e-12))
            fail_msg("a share of %.4f, counted %.4f", draft.share[node], share);
        followed[draft.token[node]] = 0;
    }
    for (int token = 0, at = 0; token < ALPHABET; token++, at = 0) {    /* and none is missing */
        int32_t way[TOKENS + 1];
        memcpy(way, string, (size_t)length * sizeof *way);
        count_plainly(texts, string, length, followed);
        while (at < draft.nodes && (draft.level[at] != 1 || draft.token[at] != token))
            at++;
        assert_int_equal(followed[token] > 0 && length < tree->depth, at < draft.nodes);
    }
    return draft.nodes;
}

static void make_texts(struct texts *texts, uint64_t *state)
{
    const int alphabet = 2 + below(state, ALPHABET - 1);
    texts->count = 1 + below(state, TEXTS);
    for (int text = 0; text < texts->count; text++) {
        texts->length[text] = 1 + below(state, TOKENS);
        for (int at = 0; at < texts->length[text]; at++)
            texts->token[text][at] = below(state, 4) && at > 3 ? texts->token[text][at - 3] : below(state, alphabet);
    }
}

/* With `live` the last text grows. With `thawed` the tree is sorted and grows again before the last text. */
static void make_tree(struct suffix_tree *tree, const struct texts *texts, int depth, bool live, bool thawed)
{
    assert_int_equal(suffix_tree_init(tree, depth, NULL), 0);
    for (int text = 0; text < texts->count; text++) {
        const bool last = text == texts->count - 1;
        if (last && thawed)
            assert_true(!suffix_tree_sort(tree, NULL) && !suffix_tree_thaw(tree, NULL));
        if (!last || !live)
            assert_int_equal(suffix_tree_add(tree, texts->token[text], texts->length[text], NULL), 0);
        for (int at = 0; last && live && at < texts->length[text]; at++)
            assert_int_equal(suffix_tree_put(tree, texts->token[text][at], NULL), 0);
    }
}

static void shares_are_those_of_a_plain_counter(void **state)
{
    const bool at_length = getenv("MOE_LONG") != NULL;
    const int cases = at_length ? 100000 : unit_brief() ? 200 : 2000;
    uint64_t random = at_length ? 1234567 : 1;
    long shares = 0;
    (void)state;
    for (int round = 0; round < cases; round++) {
        struct suffix_tree tree;
        struct texts texts;
        make_texts(&texts, &random);
        make_tree(&tree, &texts, 2 + below(&random, 12), round % 3 == 0, round % 2);
        assert_true(tree.nodes <= 2 * tree.tokens + 1);
        for (int ask = 0; ask < 20; ask++) {
            int32_t string[TOKENS];
            const int text = below(&random, texts.count), from = below(&random, texts.length[text]);
            int length = 1 + below(&random, texts.length[text] - from);
            length = length < tree.depth ? length : tree.depth - 1;
            memcpy(string, texts.token[text] + from, (size_t)length * sizeof *string);
            if (ask % 4 == 0)
                string[below(&random, length)] = below(&random, ALPHABET);
            shares += check_string(&tree, &texts, string, length, ask % 2);
        }
        suffix_tree_free(&tree);
    }
    if (at_length)
        printf("# %d corpora, %ld shares\n", cases, shares);
    assert_true(shares > 20L * cases);
}

/* An earlier text ends inside an edge: (0 0 0 1 0 1) and (1 0 0) give 1 after (1 0) in one of two occurrences. */
static void a_text_that_ends_amid_an_edge_counts_there_only(void **state)
{
    const struct texts texts = {2, {6, 3}, {{0, 0, 0, 1, 0, 1}, {1, 0, 0}}};
    const int32_t string[] = {1, 0};
    struct suffix_tree tree;
    (void)state;
    make_tree(&tree, &texts, 64, false, false);
    assert_true(check_string(&tree, &texts, string, 2, false) >= 2);
    suffix_tree_free(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_those_of_a_plain_counter),
        cmocka_unit_test(a_text_that_ends_amid_an_edge_counts_there_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

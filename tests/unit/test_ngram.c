/* Prompt lookup compared with a search over every position, in random texts of small alphabets. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/draft/drafter.h"
#include "kernels/plain/ngram.h"

enum { LONGEST_TEXT = 700 };

static struct drafter *open_drafter(const char *text)
{
    struct drafter_setup setup = {.vocab = 100, .positions = LONGEST_TEXT, .number = 3};
    struct drafter *drafter = NULL;
    struct err err = {0};
    if (drafter_open(&drafter, text, &setup, &err))
        fail_msg("%s", err.text);
    return drafter;
}

static int propose(struct drafter *drafter, struct draft_tree *tree, int leaf, int tokens, int siblings)
{
    const struct draft_leaf leaves[1] = {{leaf, siblings}};
    return drafter->class->propose(drafter, tree, leaves, 1, tokens, NULL);
}

static void begin(struct drafter *drafter)
{
    assert_int_equal(drafter->class->begin(drafter, &(struct draft_text){.tokens = LONGEST_TEXT}, NULL), 0);
}

/* Writes the expected draft after text[0 .. length) to out; returns its length. */
static int naive(const int32_t *text, int length, int shortest, int longest, int tokens, int32_t *out)
{
    for (int n = longest; n >= shortest; n--)
        for (int next = length - 1; next >= n; next--) {
            int same = n <= length;
            for (int i = 0; same && i < n; i++)
                same = text[next - n + i] == text[length - n + i];
            if (!same)
                continue;
            for (int i = 0; i < tokens; i++)
                out[i] = next + i < length ? text[next + i] : out[next + i - length];
            return tokens;
        }
    return 0;
}

static void finds_what_a_full_search_finds(void **state)
{
    static const struct { const char *text; int shortest, longest, alphabet; } cases[] = {
        {"ngram", 1, 4, 3}, {"ngram:n=4,min=2", 2, 4, 5}, {"ngram:n=1", 1, 1, 40}, {"ngram:n=16,min=3", 3, 16, 2},
        {"ngram:n=6,min=6", 6, 6, 2}, {"ngram", 1, 4, 60},
    };
    (void)state;
    srand(7);
    int found = 0, missed = 0;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct drafter *drafter = open_drafter(cases[c].text);
        for (int round = 0; round < 6; round++) {
            int32_t text[LONGEST_TEXT], expected[16];
            struct draft_tree tree = {0};
            int length = 0, top = round ? LONGEST_TEXT : 1;
            assert_int_equal(draft_tree_init(&tree, 16, NULL), 0);
            begin(drafter);
            while (length < top) {
                int count = 1 + rand() % 9, tokens = rand() % 12;
                count = length + count > top ? top - length : count;
                for (int i = 0; i < count; i++)
                    text[length + i] = rand() % cases[c].alphabet;
                assert_int_equal(drafter->class->commit(drafter, text + length, count, NULL), 0);
                length += count;
                int want = naive(text, length, cases[c].shortest, cases[c].longest, tokens, expected);
                draft_tree_clear(&tree);
                assert_int_equal(propose(drafter, &tree, -1, tokens, 1), want);
                assert_int_equal(tree.nodes, want);
                for (int i = 0; i < want; i++) {
                    assert_int_equal(tree.token[i], expected[i]);
                    assert_int_equal(tree.parent[i], i - 1);
                    assert_int_equal(tree.depth[i], i + 1);
                    assert_int_equal(tree.drafter[i], 3);
                }
                found += want > 0;
                missed += want == 0;
            }
            draft_tree_free(&tree);
        }
        drafter_close(&drafter);
    }
    assert_true(found > 1000 && missed > 100);
}

/* Finds different tokens that followed suffixes of text[0 .. length), longest suffix first, most recent position first,
 * among the NGRAM_POSITIONS most recent positions of each suffix; with their probabilities. */
static int naive_children(const int32_t *text, int length, int shortest, int longest, int max, int32_t *out,
                          double *probability)
{
    double left = 1;
    int found = 0;
    for (int n = longest; n >= shortest && found < max; n--) {
        int first = found, positions = 0, looked = 0;
        for (int next = length - 1; next >= n && looked < NGRAM_POSITIONS; next--) {
            int same = 1, known = 0;
            for (int i = 0; i < n; i++)
                same &= text[next - n + i] == text[length - n + i];
            if (!same)
                continue;
            looked++;
            while (known < found && out[known] != text[next])
                known++;
            if (known < first)
                continue;
            positions++;
            if (known == found && found < max) {
                out[found] = text[next];
                probability[found++] = 0;
            }
            if (known < found)
                probability[known] += 1;
        }
        int kinds = found - first;
        for (int i = first; i < found; i++)
            probability[i] = left * probability[i] / (positions + kinds);
        if (positions)
            left = left * kinds / (positions + kinds);
    }
    return found;
}

static void children_are_those_of_a_full_search(void **state)
{
    static const struct { const char *text; int shortest, longest, alphabet; } cases[] = {
        {"ngram", 1, 4, 4}, {"ngram:n=3,min=2", 2, 3, 3}, {"ngram:n=1", 1, 1, 30}, {"ngram:n=16", 1, 16, 2},
        {"ngram", 1, 4, 90},
    };
    int several = 0, beyond = 0;
    (void)state;
    srand(11);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct drafter *drafter = open_drafter(cases[c].text);
        struct draft_tree tree = {0};
        int32_t text[LONGEST_TEXT], expected[64];
        double probability[64];
        assert_int_equal(draft_tree_init(&tree, 64, NULL), 0);
        begin(drafter);
        for (int length = 0; length < LONGEST_TEXT;) {
            int count = 1 + rand() % 5, max = 1 + rand() % 64;
            count = length + count > LONGEST_TEXT ? LONGEST_TEXT - length : count;
            for (int i = 0; i < count; i++)
                text[length + i] = rand() % cases[c].alphabet * (rand() % 3 > 0);
            assert_int_equal(drafter->class->commit(drafter, text + length, count, NULL), 0);
            length += count;
            int want = naive_children(text, length, cases[c].shortest, cases[c].longest, max, expected, probability);
            double total = 0;
            draft_tree_clear(&tree);
            assert_int_equal(propose(drafter, &tree, -1, 1, max), want);
            for (int i = 0; i < want; i++) {
                assert_int_equal(tree.token[i], expected[i]);
                assert_int_equal(tree.parent[i], -1);
                assert_true(fabs(tree.log_probability[i] - log(probability[i])) < 1e-5);
                total += exp(tree.log_probability[i]);
            }
            assert_true(total < 1);
            several += want > 1;
            beyond += want == max;
        }
        draft_tree_free(&tree);
        drafter_close(&drafter);
    }
    assert_true(several > 300 && beyond > 100);
}

/* Each child continues as the text did at its position. */
static void children_are_continued(void **state)
{
    static const int32_t text[] = {1, 2, 3, 9, 1, 2, 4, 9, 8, 2, 5, 1, 2};
    static const int32_t token[] = {4, 9, 8, 3, 9, 1, 5, 1, 2}, parent[] = {-1, 0, 1, -1, 3, 4, -1, 6, 7};
    struct drafter *drafter = open_drafter("ngram:n=2");
    struct draft_tree tree = {0};
    (void)state;
    assert_int_equal(draft_tree_init(&tree, 20, NULL), 0);
    begin(drafter);
    assert_int_equal(drafter->class->commit(drafter, text, 13, NULL), 0);
    assert_int_equal(propose(drafter, &tree, -1, 3, 5), 9);
    for (int i = 0; i < 9; i++) {
        assert_int_equal(tree.token[i], token[i]);
        assert_int_equal(tree.parent[i], parent[i]);
    }
    draft_tree_clear(&tree);
    assert_int_equal(propose(drafter, &tree, -1, 3, 2), 6);
    const struct draft_leaf two[] = {{2, 1}, {5, 1}};          /* ... 1 2 4 9 8 -> 2; ... 1 2 3 9 1 -> 2 */
    assert_int_equal(drafter->class->propose(drafter, &tree, two, 2, 1, NULL), 2);
    assert_int_equal(tree.token[6], 2);
    assert_int_equal(tree.token[7], 2);
    assert_int_equal(tree.parent[6], 2);
    assert_int_equal(tree.parent[7], 5);
    draft_tree_free(&tree);
    drafter_close(&drafter);
}

/* Below a leaf the tail consists of the text and the path to the leaf. */
static void extends_below_a_leaf(void **state)
{
    static const int32_t text[] = {1, 2, 3, 4, 9, 1, 2, 5, 6, 7, 1};
    struct drafter *drafter = open_drafter("ngram");
    struct draft_tree tree = {0};
    int32_t path[4];
    (void)state;
    assert_int_equal(draft_tree_init(&tree, 9, NULL), 0);
    assert_int_equal(drafter->class->commit(drafter, text, 11, NULL), 0);
    assert_int_equal(draft_tree_add(&tree, -1, 2, 0, 0), 0);
    assert_int_equal(draft_tree_add(&tree, -1, 3, 0, 0), 1);
    assert_int_equal(propose(drafter, &tree, 0, 2, 1), 2);       /* ... 1 2 -> 5 6 */
    assert_int_equal(propose(drafter, &tree, 1, 3, 1), 3);       /* ... 3 -> 4 9 1 */
    assert_int_equal(draft_tree_path(&tree, 3, path, 4), 3);
    assert_int_equal(path[0], 2);
    assert_int_equal(path[1], 5);
    assert_int_equal(path[2], 6);
    assert_int_equal(draft_tree_path(&tree, 6, path, 2), 2);
    assert_int_equal(path[0], 9);
    assert_int_equal(path[1], 1);
    assert_int_equal(draft_tree_depth(&tree), 4);
    assert_int_equal(propose(drafter, &tree, -1, 4, 1), 1);      /* 1 -> 2 5 6 exist already; 7 is new */
    assert_int_equal(tree.parent[7], 3);
    assert_int_equal(propose(drafter, &tree, -1, 8, 1), 1);      /* then the tree is full */
    assert_int_equal(tree.nodes, 9);
    draft_tree_free(&tree);
    drafter_close(&drafter);
}

/* The tail is never longer than the longest n-gram, however it is divided between a short text and a path. */
static void short_texts_and_deep_leaves_fit_the_longest_tail(void **state)
{
    (void)state;
    for (int length = 1; length <= 20; length++) {
        struct drafter *drafter = open_drafter("ngram:n=16");
        struct draft_tree tree = {0};
        int32_t text[20] = {0};
        assert_int_equal(draft_tree_init(&tree, 64, NULL), 0);
        assert_int_equal(drafter->class->commit(drafter, text, length, NULL), 0);
        for (int node = -1; node < 30; node++) {
            assert_int_equal(draft_tree_add(&tree, node, 0, 0, 0), node + 1);
            assert_int_equal(propose(drafter, &tree, node + 1, 1, 1), length > 1);
            draft_tree_clear(&tree);
            for (int again = -1; again <= node; again++)
                draft_tree_add(&tree, again, 0, 0, 0);
        }
        draft_tree_free(&tree);
        drafter_close(&drafter);
    }
}

static void refuses_settings_out_of_range(void **state)
{
    static const struct { const char *text, *part; } wrong[] = {
        {"ngram:n=0", "n"}, {"ngram:n=17", "n"}, {"ngram:n=2,min=3", "min"}, {"ngram:k=2", "k"}, {"ngrm", "did you mean ngram"},
        {"none:n=2", "n"}, {"model", "model:file=FILE"}, {"oracle", "not a drafter"}, {"auto", "name one"},
        {"ngram,pld", "give each drafter with a --draft of its own, the best first"},
    };
    struct drafter_setup setup = {.vocab = 100, .positions = 10};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct drafter *drafter = NULL;
        struct err err = {0};
        assert_int_equal(drafter_open(&drafter, wrong[i].text, &setup, &err), -1);
        assert_null(drafter);
        assert_non_null(strstr(err.text, wrong[i].part));
    }
    struct drafter *none = NULL;
    assert_int_equal(drafter_open(&none, "none", &setup, NULL), 0);
    assert_null(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_what_a_full_search_finds),
        cmocka_unit_test(children_are_those_of_a_full_search),
        cmocka_unit_test(children_are_continued),
        cmocka_unit_test(extends_below_a_leaf),
        cmocka_unit_test(short_texts_and_deep_leaves_fit_the_longest_tail),
        cmocka_unit_test(refuses_settings_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

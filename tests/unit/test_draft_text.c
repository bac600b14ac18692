/* Drafters that look up text, compared with plain Python over the same texts (tests/golden/draft/make.py). */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <math.h>

#include "common/draft/drafter.h"

enum { VOCAB = 100, NODES = 128, MINE = 3, CHOICES = 12 };

static int32_t last_token;              /* of the text */

static struct drafter *open_drafter(const char *text)
{
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = 4096, .number = MINE};
    struct drafter *drafter = NULL;
    struct err err = {0};
    if (drafter_open(&drafter, text, &setup, &err))
        fail_msg("%s", err.text);
    return drafter;
}

static int number(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static int numbers(const json_t *object, const char *key, int32_t *out, int room)
{
    const json_t *list = json_object_get(object, key);
    int count = (int)json_array_size(list);
    assert_true(count <= room);
    for (int at = 0; at < count; at++)
        out[at] = (int32_t)json_integer_value(json_array_get(list, (size_t)at));
    return count;
}

/* Returns the scripted target's choice after a row, from the last two tokens of its path, the root included. */
static int chosen(int32_t before, int32_t last) { return (int)((3 * before + 5 * last + before * last + 7) % CHOICES); }

/* Collects the rows that a drafter adds to a verification, and then the target's answers to them. */
static void check_ride(struct drafter *drafter, const struct draft_tree *tree, const json_t *ask)
{
    static float logits[RIDERS_MAX][VOCAB];
    const char *tokens = json_string_value(json_object_get(ask, "ride"));
    const char *depths = json_string_value(json_object_get(ask, "depth"));
    struct rider_rows rows = {0};
    int depth[RIDERS_MAX];
    assert_int_equal(drafter->class->request_riders(drafter, tree, &rows, NULL), 0);
    assert_int_equal(rows.rows, strlen(tokens));
    assert_true(rows.rows <= drafter->riders);
    memset(logits, 0, sizeof logits);
    for (int row = 0; row < rows.rows; row++) {
        char text[3] = {tokens[row]}, deep[3] = {depths[row]};
        int parent = rows.parent[row] - 1 - tree->nodes;            /* another row, or the root */
        assert_int_equal(rows.token[row], strtol(text, NULL, 16));
        assert_true(rows.parent[row] == 0 || (parent >= 0 && parent < row));
        depth[row] = rows.parent[row] ? depth[parent] + 1 : 1;
        assert_int_equal(depth[row], strtol(deep, NULL, 16));
        logits[row][chosen(rows.parent[row] ? rows.token[parent] : last_token, rows.token[row])] = 1;
    }
    assert_int_equal(drafter->class->return_riders(drafter, logits[0], NULL), 0);
}

/* Makes one draft: below the root, or below the tokens of `path`, drafted by another drafter. */
static void check_draft(struct drafter *drafter, const json_t *ask, const char *draft)
{
    int32_t path[16], token[NODES], parent[NODES], match[NODES];
    int deep = numbers(ask, "path", path, 16), nodes = numbers(ask, "token", token, NODES);
    const json_t *logs = json_object_get(ask, "log");
    struct draft_tree tree = {0};
    numbers(ask, "parent", parent, NODES);
    numbers(ask, "match", match, NODES);
    assert_int_equal(draft_tree_init(&tree, NODES, NULL), 0);
    for (int at = 0; at < deep; at++)
        assert_int_equal(draft_tree_add(&tree, at - 1, path[at], NAN, MINE + 1), at);
    const struct draft_leaf leaf = {deep - 1, number(ask, "siblings")};
    int added = drafter->class->propose(drafter, &tree, &leaf, 1, number(ask, "tokens"), NULL);
    if (added != nodes)
        fail_msg("%s, after %d tokens: %d nodes, not %d", draft, number(ask, "length"), added, nodes);
    for (int at = 0; at < nodes; at++) {
        if (tree.token[deep + at] != token[at] || tree.parent[deep + at] != (parent[at] < 0 ? deep - 1 : deep + parent[at]))
            fail_msg("%s, after %d tokens: node %d is %d below %d, not %d below %d", draft, number(ask, "length"), at,
                     (int)tree.token[deep + at], (int)tree.parent[deep + at], (int)token[at], (int)parent[at]);
        assert_int_equal(tree.match[deep + at], match[at]);
        assert_int_equal(tree.drafter[deep + at], MINE);
        double log = (double)tree.log_probability[deep + at];
        if (logs)
            assert_true(fabs(log - json_number_value(json_array_get(logs, (size_t)at))) < 1e-6);
        else
            assert_true(isnan(log));
    }
    if (json_object_get(ask, "ride"))
        check_ride(drafter, &tree, ask);
    draft_tree_free(&tree);
}

static void drafts_are_those_of_plain_python(void **state)
{
    FILE *file = fopen("tests/golden/draft/cases.jsonl", "r");
    json_t *item;
    int cases = 0, drafted = 0, silent = 0;
    (void)state;
    assert_non_null(file);
    while ((item = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL))) {
        const char *draft = json_string_value(json_object_get(item, "draft"));
        const json_t *asks = json_object_get(item, "asks"), *ask;
        int32_t text[1024];
        int length = 0, tokens = numbers(item, "text", text, 1024);
        struct drafter *drafter = open_drafter(draft);
        size_t at;
        for (int round = 0; round < 2; round++) {           /* a second text finds no n-grams of the first */
            const char *key = json_string_value(json_object_get(item, "key"));
            const struct draft_text begun = {.tokens = tokens, .draw = {
                .key = key ? strtoull(key, NULL, 16) : 0, .ordinal = (uint32_t)number(item, "ordinal"),
                .sample = (uint32_t)number(item, "sample")}};
            assert_int_equal(drafter->class->begin(drafter, &begun, NULL), 0);
            length = 0;
            json_array_foreach((json_t *)(uintptr_t)asks, at, ask) {
                int next = number(ask, "length");
                if (next > length)
                    assert_int_equal(drafter->class->commit(drafter, text + length, next - length, NULL), 0);
                length = next;
                last_token = text[length - 1];
                check_draft(drafter, ask, draft);
                drafted += json_array_size(json_object_get(ask, "token")) > 0;
                silent += json_array_size(json_object_get(ask, "token")) == 0;
            }
        }
        drafter_close(&drafter);
        json_decref(item);
        cases++;
    }
    fclose(file);
    assert_true(cases >= 5 && drafted > 100 && silent >= 20);
}

static void settings_out_of_range_are_refused(void **state)
{
    static const struct { const char *text, *part; } wrong[] = {
        {"pld:n=0", "n"}, {"pld:n=17", "n"}, {"pld:tokens=0", "tokens"}, {"pld:tokens=65", "tokens"}, {"pld:min=1", "min"},
    };
    const struct drafter_setup setup = {.vocab = VOCAB, .positions = 10};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct drafter *drafter = NULL;
        struct err err = {0};
        assert_int_equal(drafter_open(&drafter, wrong[i].text, &setup, &err), -1);
        assert_null(drafter);
        assert_non_null(strstr(err.text, wrong[i].part));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_those_of_plain_python),
        cmocka_unit_test(settings_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

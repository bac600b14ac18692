/* Suites: their meaning, rejected ones with the exact words, and the order in which settings alternate. */
#include "tests/unit/folder.h"

#include "common/base/err.h"
#include "common/bench/suite.h"
#include "common/report/grade.h"

static int read_text(struct suite **out, const char *json, struct err *err)
{
    const char *path = unit_path(folder, "s.json");
    unit_write(path, json, strlen(json));
    return suite_read(out, path, err);
}

static void a_whole_suite(void **state)
{
    (void)state;
    struct err err = {0};
    struct suite *suite = NULL;
    assert_int_equal(read_text(&suite,
        "{\"models\": {\"a\": \"a.moe\", \"b\": \"/x/b.moe\"}, \"prompts\": [\"p.jsonl\", \"../q.jsonl\"],"
        " \"options\": {\"max-tokens\": 5, \"seed\": 1},"
        " \"settings\": [{\"name\": \"k\", \"draft\": \"ngram\"}, {\"name\": \"n\", \"seed\": 2},"
        " {\"name\": \"nb\", \"model\": \"b\", \"draft\": \"none\"}, {\"name\": \"b\", \"budget\": 3, \"rank\": \"r.moes\"},"
        " {\"name\": \"c\", \"budget\": 3, \"rank\": \"router\"},"
        " {\"name\": \"d\", \"budget\": 3, \"rank\": \"path\", \"reference\": \"self\"},"
        " {\"name\": \"e\", \"budget\": 3, \"rank\": \"oracle\", \"reference\": \"f.moe\"}],"
        " \"repetitions\": 3, \"draws\": \"fresh\", \"order\": \"random\","
        " \"warm-up\": 0, \"limits\": {\"prompts\": 9, \"max-tokens\": 7},"
        " \"chat-template\": \"c.jinja\","
        " \"tasks\": \"math\", \"grade\": {\"math\": \"exact\", \"code\": \"none\"}, \"measure-seconds\": 0.5}", &err), 0);
    char expected[1300];
    assert_int_equal(suite->model_count, 2);
    snprintf(expected, sizeof expected, "%s/a.moe", folder);
    assert_string_equal(suite->models[0].path, expected);
    assert_string_equal(suite->models[1].path, "/x/b.moe");
    snprintf(expected, sizeof expected, "%s/../q.jsonl", folder);
    assert_string_equal(suite->prompts[1], expected);
    snprintf(expected, sizeof expected, "%s/c.jinja", folder);
    assert_string_equal(suite->chat_template, expected);
    assert_int_equal(suite->setting_count, 7);
    assert_int_equal(suite->settings[0].reference, 1);
    assert_int_equal(suite->settings[2].reference, 2);
    assert_int_equal(suite->settings[3].reference, 1);
    assert_int_equal(json_integer_value(json_object_get(suite->settings[0].options, "seed")), 1);
    assert_int_equal(json_integer_value(json_object_get(suite->settings[1].options, "seed")), 2);
    assert_null(json_object_get(suite->settings[2].options, "name"));
    assert_null(json_object_get(suite->settings[2].options, "model"));
    snprintf(expected, sizeof expected, "%s/r.moes", folder);
    assert_string_equal(json_string_value(json_object_get(suite->settings[3].options, "rank")), expected);
    assert_string_equal(json_string_value(json_object_get(suite->settings[4].options, "rank")), "router");
    assert_string_equal(json_string_value(json_object_get(suite->settings[5].options, "rank")), "path");
    assert_string_equal(json_string_value(json_object_get(suite->settings[5].options, "reference")), "self");
    assert_string_equal(json_string_value(json_object_get(suite->settings[6].options, "rank")), "oracle");
    snprintf(expected, sizeof expected, "%s/f.moe", folder);
    assert_string_equal(json_string_value(json_object_get(suite->settings[6].options, "reference")), expected);
    assert_int_equal(suite->repetitions, 3);
    assert_int_equal(suite->order, SUITE_RANDOM);
    assert_int_equal(suite->draws, SUITE_FRESH);
    assert_int_equal(suite->warm_up, 0);
    assert_int_equal(suite->limit_prompts, 9);
    assert_int_equal(suite->limit_task_prompts, 0);
    assert_int_equal(suite->limit_tokens, 7);
    assert_int_equal(suite->task_count, 1);
    assert_true(suite->measure_seconds == 0.5);
    assert_int_equal(suite_grade_rule(suite, "math", NULL), GRADE_EXACT);
    assert_int_equal(suite_grade_rule(suite, "code", NULL), GRADE_NONE);
    assert_int_equal(suite_grade_rule(suite, "gsm8k", NULL), GRADE_NUMBER);
    assert_int_equal(suite_grade_rule(suite, NULL, NULL), GRADE_EXACT);
    assert_int_equal(suite_grade_rule(suite, "other", "#### 5"), GRADE_NUMBER);
    suite_free(&suite);
    assert_null(suite);
}

/* A suite of one setting with these members added. */
#define ONE(more) "{\"model\": \"m\", \"prompts\": \"p\", \"settings\": [{\"name\": \"a\", " more "}]}"
#define TEN "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct { const char *json, *says; } bad[] = {
        {"", ":1: "},
        {"[]", "expected a JSON object"},
        {"{\"model\": \"m\",\n \"model\": \"m\"}", ":2: "},
        {"{\"modle\": 1}", "unknown key \"modle\"; did you mean \"model\"?"},
        {"{\"model\": \"m\", \"prompts\": \"p\"}", "\"settings\": must be a list"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"settings\": []}", "\"settings\": must be a list"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"settings\": [3]}", "number 1 must be a JSON object with a \"name\""},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"settings\": [{\"name\": \"a\"}, {\"name\": \"a\"}]}", "two settings have"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"settings\": [{\"name\": \"a\", \"model\": \"z\"}]}",
         "one of the names in \"models\""},
        {"{\"model\": \"m\", \"prompts\": [], \"settings\": [{\"name\": \"a\"}]}", "\"prompts\": must name"},
        {"{\"model\": \"m\", \"settings\": [{\"name\": \"a\"}]}", "\"prompts\": must name"},
        {"{\"prompts\": \"p\", \"settings\": [{\"name\": \"a\"}]}", "either \"model\" or \"models\""},
        {"{\"model\": \"m\", \"models\": {\"m\": \"m\"}}", "either \"model\" or \"models\""},
        {"{\"models\": {}}", "\"models\": must be a JSON object"},
        {"{\"model\": \"m\", \"repetitions\": 0}", "\"repetitions\": expected a whole number from 1 to 10000"},
        {"{\"model\": \"m\", \"order\": \"randum\"}", "\"order\": must be one of its keywords, such as \"random\""},
        {"{\"model\": \"m\", \"prompts\": 3}", "\"prompts\": must be a text"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"limits\": {\"prompt\": 3}}", "\"limits\": unknown key \"prompt\""},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"grade\": {\"math\": \"maybe\"}}", "\"math\": must be one of its keywords"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"reference\": \"x\", \"settings\": [{\"name\": \"a\"}]}",
         "\"reference\": must be"},
        {"{\"model\": \"m\", \"prompts\": \"p\", \"options\": 3, \"settings\": [{\"name\": \"a\"}]}",
         "\"options\": must be a JSON object"},
        {"{\"model\": \"m\", \"measure-seconds\": -1}", "\"measure-seconds\""},
        {"{\"model\": \"m\", \"chat-template\": true}", "\"chat-template\": must be the name of a file"},
        {ONE("\"vary\": 3"), "setting 'a': \"vary\": must be a JSON object"},
        {ONE("\"vary\": {\"seed\": 3}"), "setting 'a': \"vary\": \"seed\": must be a list"},
        {ONE("\"vary\": {\"seed\": []}"), "setting 'a': \"vary\": \"seed\": must be a list"},
        {ONE("\"vary\": {\"seed\": [[]]}"), "setting 'a': \"vary\": \"seed\": each value must be"},
        {ONE("\"vary\": {\"seed\": [1, 1]}"), "two settings have the name 'a, seed 1'"},
        {ONE("\"vary\": {\"a\": " TEN ", \"b\": " TEN ", \"c\": " TEN ", \"d\": " TEN "}"), "more than 1024 settings"},
        {ONE("\"order\": \"random\""), "setting 'a': \"order\": must be"},
        {ONE("\"order\": \"shuffled:x\""), "setting 'a': \"order\": must be"},
        {ONE("\"threads\": 0"), "setting 'a': \"threads\": expected a whole number"},
        {ONE("\"device\": 3"), "setting 'a': \"device\": must be a word"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct err err = {0};
        struct suite *suite = NULL;
        assert_int_equal(read_text(&suite, bad[i].json, &err), -1);
        assert_null(suite);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, bad[i].says) || !strstr(err.text, "s.json"))
            fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
    }
    struct err err = {0};
    struct suite *suite = NULL;
    assert_int_equal(suite_read(&suite, unit_path(folder, "none.json"), &err), -1);
}

static void every_setting_has_every_position(void **state)
{
    (void)state;
    struct err err = {0};
    struct suite *suite = NULL;
    int order[5], positions[5][5] = {{0}};
    assert_int_equal(read_text(&suite, "{\"model\": \"m\", \"prompts\": \"p\","
                                       " \"settings\": [{\"name\": \"a\"}, {\"name\": \"b\"},"
                                       " {\"name\": \"c\"}, {\"name\": \"d\"}, {\"name\": \"e\"}]}", &err), 0);
    for (int prompt = 0; prompt < 5; prompt++) {
        suite_turn(suite, prompt, 1, order);
        for (int position = 0; position < 5; position++)
            positions[order[position]][position]++;
    }
    for (int i = 0; i < 25; i++)
        assert_int_equal(positions[i / 5][i % 5], 1);
    suite->order = SUITE_RANDOM;
    memset(positions, 0, sizeof positions);
    for (int prompt = 0; prompt < 500; prompt++) {
        int again[5];
        suite_turn(suite, prompt, 1, order);
        suite_turn(suite, prompt, 1, again);
        assert_memory_equal(order, again, sizeof order);
        for (int position = 0; position < 5; position++)
            positions[order[position]][position]++;
    }
    for (int i = 0; i < 25; i++)
        assert_in_range(positions[i / 5][i % 5], 60, 140);
    suite_free(&suite);
}

static double option(const struct suite *suite, int setting, const char *key)
{
    return json_number_value(json_object_get(suite->settings[setting].options, key));
}

static void variants_are_written_out(void **state)
{
    (void)state;
    struct err err = {0};
    struct suite *suite = NULL;
    static const char *const names[] = {
        "none, temperature 0", "none, temperature 0.7", "hot", "K, draft-length 1, temperature 0",
        "K, draft-length 1, temperature 0.7", "K, draft-length 4, temperature 0", "K, draft-length 4, temperature 0.7"};
    static const int reference[] = {0, 1, 2, 0, 1, 0, 1};
    char expected[1300];
    assert_int_equal(read_text(&suite,
        "{\"model\": \"m\", \"prompts\": \"p\", \"vary\": {\"temperature\": [0, 0.7]}, \"settings\": ["
        " {\"name\": \"none\"}, {\"name\": \"hot\", \"temperature\": 2, \"threads\": 3, \"isa\": \"plain\","
        "  \"device\": \"ref\", \"order\": \"shuffled:18446744073709551615\"},"
        " {\"name\": \"K\", \"order\": \"reversed\", \"draft\": \"model:file=d.moe,x=1\", \"tree\": \"static:file=/t\","
        "  \"vary\": {\"draft-length\": [1, 4]}}]}", &err), 0);
    assert_int_equal(suite->setting_count, 7);
    for (int i = 0; i < 7; i++) {
        assert_string_equal(suite->settings[i].name, names[i]);
        assert_int_equal(suite->settings[i].reference, reference[i]);
        assert_true(option(suite, i, "temperature") == (i == 2 ? 2 : (i - (i > 2)) % 2 ? 0.7 : 0));
        assert_null(json_object_get(suite->settings[i].options, "vary"));
    }
    assert_true(option(suite, 4, "draft-length") == 1 && option(suite, 5, "draft-length") == 4);
    const struct suite_setting *hot = &suite->settings[2], *last = &suite->settings[6];
    assert_int_equal(hot->threads, 3);
    assert_string_equal(hot->isa, "plain");
    assert_string_equal(hot->device, "ref");
    assert_int_equal(hot->walk, SUITE_SHUFFLED);
    assert_true(hot->walk_seed == UINT64_MAX);
    assert_int_equal(json_object_size(hot->options), 1);
    assert_int_equal(last->walk, SUITE_REVERSED);
    snprintf(expected, sizeof expected, "model:file=%s/d.moe,x=1", folder);
    assert_string_equal(json_string_value(json_object_get(last->options, "draft")), expected);
    assert_string_equal(json_string_value(json_object_get(last->options, "tree")), "static:file=/t");
    suite_free(&suite);

    assert_int_equal(read_text(&suite, "{\"model\": \"m\", \"prompts\": \"p\", \"settings\": ["
        "{\"name\": \"s\", \"draft\": [\"suffix:corpus=c,depth=9,save=s\", \"ngram\", \"self:topk=1,skip=0.4\","
        " \"self:skip=0.4.json,topk=1\", \"self:skip=1e0,experts=e\", \"model:file\"],"
        " \"policy\": \"dytc-verify:most=3,cost=c\"},"
        "{\"name\": \"o\", \"draft\": \"self:skip=s\", \"policy\": \"oracle:cost=time,file=f\"}]}", &err), 0);
    static const char *const resolved[] = {"suffix:corpus=%s/c,depth=9,save=%s/s", "ngram", "self:topk=1,skip=0.4",
                                           "self:skip=%s/0.4.json,topk=1", "self:skip=1e0,experts=%s/e",
                                           "model:file", "dytc-verify:most=3,cost=%s/c", "self:skip=%s/s",
                                           "oracle:cost=time,file=%s/f"};
    const json_t *two = suite->settings[0].options, *one = suite->settings[1].options;
    for (size_t i = 0; i < 9; i++) {
        const json_t *text = i < 6 ? json_array_get(json_object_get(two, "draft"), i)
            : json_object_get(i == 6 ? two : one, i == 7 ? "draft" : "policy");
        snprintf(expected, sizeof expected, resolved[i], folder, folder);
        assert_string_equal(json_string_value(text), expected);
    }
    suite_free(&suite);

    /* The variants of the named reference; each setting is compared with the variant of equal values. */
    assert_int_equal(read_text(&suite,
        "{\"model\": \"m\", \"prompts\": \"p\", \"reference\": \"b\", \"vary\": {\"seed\": [1, 2]},"
        " \"settings\": [{\"name\": \"a\"}, {\"name\": \"b\", \"draft\": \"ngram\"}]}", &err), 0);
    assert_int_equal(suite->reference, 1);
    assert_int_equal(suite->settings[0].reference, 2);
    assert_int_equal(suite->settings[1].reference, 3);
    suite_free(&suite);
}

/* Recorded drafts are drafts, too, unless there are none. */
static void a_setting_without_drafts_is_the_reference(void **state)
{
    (void)state;
    struct err err = {0};
    struct suite *suite = NULL;
    assert_int_equal(read_text(&suite,
        "{\"model\": \"m\", \"prompts\": \"p\", \"options\": {\"force-routes\": \"r\", \"force-accept\": \"r\"},"
        " \"settings\": [{\"name\": \"recorded\"},"
        " {\"name\": \"K4\", \"draft\": \"ngram\"}, {\"name\": \"none\", \"draft\": \"none\"}]}",
            &err), 0);
    assert_int_equal(suite->settings[0].reference, 2);
    suite_free(&suite);
    assert_int_equal(read_text(&suite,
        "{\"model\": \"m\", \"prompts\": \"p\", \"options\": {\"force-accept\": \"r\"}, \"settings\": ["
        " {\"name\": \"recorded\"}, {\"name\": \"0\", \"draft-length\": 0}]}", &err), 0);
    assert_int_equal(suite->settings[0].reference, 1);
    suite_free(&suite);
}

static void assert_policy(const struct suite *suite, int setting, const char *format)
{
    char expected[1300];
    snprintf(expected, sizeof expected, format, folder);
    assert_string_equal(json_string_value(json_object_get(suite->settings[setting].options, "policy")), expected);
}

static void files_of_policies_lie_beside_the_suite(void **state)
{
    (void)state;
    struct err err = {0};
    struct suite *suite = NULL;
    assert_int_equal(read_text(&suite,
        "{\"model\": \"m\", \"prompts\": \"p\", \"settings\": ["
        " {\"name\": \"a\", \"policy\": \"oracle:file=rec.moes,cost=bytes\"},"
        " {\"name\": \"b\", \"policy\": \"cascade-cost:most=4,cost=cost.json\"},"
        " {\"name\": \"c\", \"policy\": \"cascade-cost:cost=/cost.json\"}, {\"name\": \"d\", \"policy\": \"cascade\"}]}", &err),
            0);
    assert_policy(suite, 0, "oracle:file=%s/rec.moes,cost=bytes");
    assert_policy(suite, 1, "cascade-cost:most=4,cost=%s/cost.json");
    assert_policy(suite, 2, "cascade-cost:cost=/cost.json");
    assert_policy(suite, 3, "cascade");
    suite_free(&suite);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_suite),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(variants_are_written_out),
        cmocka_unit_test(a_setting_without_drafts_is_the_reference),
        cmocka_unit_test(files_of_policies_lie_beside_the_suite),
        cmocka_unit_test(every_setting_has_every_position),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

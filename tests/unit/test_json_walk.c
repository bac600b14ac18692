/* Walks through JSON texts: their members equal those of jansson's tree, and a text that is read completely is rejected if
 * jansson rejects it. */
#include "common/base/json_walk.h"
#include "tests/unit/unit.h"

/* Reads a value into a tree by walking to its full depth. */
static json_t *tree_of(struct json_part part, struct err *err)
{
    struct json_walk walk;
    struct text key = {0};
    const bool object = json_part_is(part, '{');
    json_t *tree = object ? json_object() : json_array();
    int more = 1;
    if (!object && !json_part_is(part, '[')) {
        json_decref(tree);
        if (!json_part_is(part, '"'))
            return json_part_read(part, err);
        tree = json_part_string(part, &key, err) ? NULL : json_string(key.data);
        text_free(&key);
        return tree;
    }
    for (json_walk_start(&walk, part); more > 0 && (more = json_walk_next(&walk, err)) > 0;) {
        json_t *member = NULL;
        if ((object && json_part_string(walk.key, &key, err)) || !(member = tree_of(walk.value, err)))
            more = -1;
        else if (object)
            json_object_set_new(tree, key.data, member);
        else
            json_array_append_new(tree, member);
    }
    text_free(&key);
    if (!more)
        return tree;
    json_decref(tree);
    return NULL;
}

static void walks_agree_with_trees(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "[]", " [ ] ", "\t{ \n}\r\n", "[1]", "[1,2]", "[ 1 , 2 ]", "{\"a\":1}", "{\"a\" : 1 , \"b\":[{}]}", "3", "\"a\"",
        "null",
        "[[[[]]]]", "[\"]\",\"[\",\"{\\\"}\",\"\\\\\"]", "{\"}\":\"{\",\"\\u00e9\":\"\\ud83d\\ude00\"}",
        "[-1.5e3,true,false,null]", "[\"\xc3\xa9\"]", "[0,-0,12345678901234567,1234567890123456789]",
        "", " ", "[", "{", "]", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1;2]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{,}",
        "{\"a\" 1}",
        "{a:1}", "{1:2}", "[1}", "{\"a\":1]", "[{]}", "[}", "[[1]", "[1]]", "[] []", "[\"a]", "\"", "\"\\\"", "[\"\\x\"]",
        "[\"\n\"]",
        "[\"\xff\"]", "[\"\xc3\"]", "[01]", "[1e]", "[nul]", "[tru e]", "[\"\\ud83d\"]", "[\"\\u0000\"]",
        "{\"a\":1 \"b\":2}", "{\"a\":{\"b\":[1,{\"c\":}]}}", "[\"a\" \"b\"]", "[1,,2]", "{\"a\"::1}", "[:]", "-", "[\"\\"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct err err = {0};
        struct json_part whole;
        json_error_t fault;
        const size_t bytes = strlen(texts[i]);
        char *exact = malloc(bytes ? bytes : 1);                /* no byte after the text may be read */
        memcpy(exact, texts[i], bytes);
        json_t *expected = json_loadb(exact, bytes, JSON_DECODE_ANY, &fault);
        json_t *found = json_whole(&whole, exact, bytes, &err) ? NULL : tree_of(whole, &err);
        if (!expected != !found || (expected && !json_equal(expected, found)))
            fail_msg("%s: %s", texts[i], found ? "another value, or none is expected" : err.text);
        assert_int_equal(err.code, found ? 0 : ERR_INPUT);
        assert_true(found || strstr(err.text, "not valid JSON, line 1 column ") || strstr(err.text, "line 2 column"));
        json_decref(expected);
        json_decref(found);
        free(exact);
    }
}

static void faults_have_their_position(void **state)
{
    (void)state;
    static const char text[] = "{\n \"a\": [1,\n  2, x],\n \"b\": 3 }";
    struct err err = {0};
    struct json_part whole;
    assert_int_equal(json_whole(&whole, text, strlen(text), &err), 0);
    assert_null(tree_of(whole, &err));
    assert_non_null(strstr(err.text, "line 3 column 6"));
}

static void objects_are_split(void **state)
{
    (void)state;
    static const char text[] = "{\"x\":1,\"big\":[1,2,3],\"y\":\"z\"}", twice[] = "{\"x\":1,\"x\":2}",
        large[] = "{\"big\":1,\"big\":2}";
    static const char *const names[] = {"big", "other"};
    struct err err = {0};
    struct json_part whole, parts[2];
    json_t *rest = NULL;
    size_t count;
    assert_int_equal(json_whole(&whole, text, strlen(text), &err), 0);
    assert_int_equal(json_split(whole, names, 2, parts, &rest, &err), 0);
    assert_int_equal(json_object_size(rest), 2);
    assert_int_equal(json_integer_value(json_object_get(rest, "x")), 1);
    assert_true(json_part_is(parts[0], '[') && !parts[1].text);
    assert_int_equal(json_walk_count(parts[0], &count, &err), 0);
    assert_int_equal(count, 3);
    json_decref(rest);
    rest = NULL;
    for (int i = 0; i < 2; i++) {
        const char *bad = i ? twice : large;
        err_clear(&err);
        assert_int_equal(json_whole(&whole, bad, strlen(bad), &err), 0);
        assert_int_equal(json_split(whole, names, 2, parts, &rest, &err), -1);
        assert_non_null(strstr(err.text, "duplicate object key"));
        assert_null(rest);
    }
}

/* A tree takes many times the bytes of its text: small parts of a file can be made into trees, each alone and all together. */
static void trees_stay_small(void **state)
{
    (void)state;
    enum { ZEROS = JSON_TREE_BYTES / 4, LISTS = 4 };
    struct err err = {0};
    struct text text = {0};
    struct json_part whole;
    json_t *rest = NULL;
    assert_int_equal(text_putc(&text, '{', &err), 0);
    for (int l = 0; l < LISTS; l++) {
        assert_int_equal(text_printf(&text, &err, "%s\"%d\":[0", l ? "," : "", l), 0);
        for (int i = 0; i < ZEROS / 2; i++)
            assert_int_equal(text_puts(&text, ",0", &err), 0);
        assert_int_equal(text_putc(&text, ']', &err), 0);
    }
    assert_int_equal(text_putc(&text, '}', &err), 0);
    assert_int_equal(json_whole(&whole, text.data, text.length, &err), 0);
    assert_null(json_part_read(whole, &err));
    assert_non_null(strstr(err.text, "line 1 column 1: a value of"));
    err_clear(&err);
    assert_int_equal(json_split(whole, NULL, 0, NULL, &rest, &err), -1);
    assert_non_null(strstr(err.text, "line 1 column 1: a value of"));
    text_free(&text);
}

/* Objects without members take most memory; a limit that one part reached does not affect the next one. */
static void a_tree_takes_no_more_than_its_share(void **state)
{
    (void)state;
    enum { MANY = 400000, FEW = 50000 };
    json_error_t fault;
    struct text list = {0};
    assert_int_equal(text_puts(&list, "[", NULL), 0);
    for (int i = 1; i < MANY; i++) {
        assert_int_equal(text_puts(&list, "{},", NULL), 0);
        if (i != FEW)
            continue;
        assert_int_equal(text_puts(&list, "{}]", NULL), 0);
        json_t *few = json_read(list.data, list.length, 0, &fault);
        assert_int_equal(json_array_size(few), FEW + 1);
        json_decref(few);
        list.data[list.length - 1] = ',';
    }
    assert_int_equal(text_puts(&list, "{}]", NULL), 0);
    assert_null(json_read(list.data, list.length, 0, &fault));
    assert_non_null(strstr(fault.text, "they take more than 26 MiB"));
    assert_false(json_no_memory(&fault));
    json_t *next = json_read("[{}]", 4, 0, &fault);
    assert_non_null(next);
    json_decref(next);
    text_free(&list);
}

static void integers_are_those_of_64_bits(void **state)
{
    (void)state;
    static const struct { const char *text; bool is; int64_t value; } cases[] = {
        {"0", true, 0}, {"7", true, 7}, {"123456789012345678", true, 123456789012345678},
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN}, {"-1", true, -1}, {"9223372036854775808", false, 0}, {"1.0", false, 0},
        {"\"1\"", false, 0}, {"00", false, 0}, {"1x", false, 0}, {"null", false, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value = 5;
        struct json_part part = {cases[i].text, cases[i].text, strlen(cases[i].text)};
        assert_int_equal(json_part_integer(part, &value), cases[i].is);
        assert_true(value == (cases[i].is ? cases[i].value : 5));
    }
}

/* Many a tokenizer_config.json has numbers beyond 64 bits; a similar string stays as it is. */
static void long_integers_become_reals(void **state)
{
    (void)state;
    static const char text[] = "{\"long\\\"1000000000000000019884624838656\": 1000000000000000019884624838656, "
                               "\"b\": [-99999999999999999999,9223372036854775807,-9223372036854775808,9223372036854775808], "
                               "\"c\":12345678901234567890.5,\"d\" :\"18446744073709551616\"}";
    json_error_t fault;
    json_t *value = json_read(text, sizeof text - 1, JSON_REJECT_DUPLICATES, &fault);
    assert_non_null(value);
    const json_t *large = json_object_get(value, "long\"1000000000000000019884624838656"), *list = json_object_get(value, "b");
    assert_true(json_is_real(large) && json_real_value(large) == 1e30);
    assert_true(json_real_value(json_array_get(list, 0)) == -1e20);
    assert_true(json_integer_value(json_array_get(list, 1)) == INT64_MAX);
    assert_true(json_integer_value(json_array_get(list, 2)) == INT64_MIN);
    assert_true(json_real_value(json_array_get(list, 3)) == 9223372036854775808.0);
    assert_true(json_real_value(json_object_get(value, "c")) == 12345678901234567890.5);
    assert_string_equal(json_string_value(json_object_get(value, "d")), "18446744073709551616");
    json_decref(value);
    assert_null(json_read("[1e999]", 7, 0, &fault));
    assert_null(json_read("[18446744073709551616,]", 23, 0, &fault));
    assert_false(json_no_memory(&fault));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_agree_with_trees),
        cmocka_unit_test(faults_have_their_position),
        cmocka_unit_test(objects_are_split),
        cmocka_unit_test(trees_stay_small),
        cmocka_unit_test(a_tree_takes_no_more_than_its_share),
        cmocka_unit_test(integers_are_those_of_64_bits),
        cmocka_unit_test(long_integers_become_reals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

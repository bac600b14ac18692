/* Hot sets as files: a written set is read back, hottest expert first; a file that is not a hot set of this model is
 * rejected with one line that names the reason. */
#include "common/base/file.h"
#include "common/cache/hot_set.h"
#include "tests/unit/unit.h"

static const struct stream_model model = {.name = "pocket", .source_sha256 = "ab", .layers = 3, .moe_layers = 2, .experts = 4,
                                          .top_k = 2};

static void is_read_as_it_was_written(void **state)
{
    (void)state;
    const double weight[8] = {0, 2.5, 1e-7, 2.5, 0, 1234567.125, 0, 1};
    static const int order[] = {5, 1, 3, 7, 2};
    struct hot_set set = {0};
    struct err err = {0};
    char *folder = unit_folder(), path[1200];
    snprintf(path, sizeof path, "%s/hot.json", folder);
    assert_int_equal(hot_set_write(path, weight, &model, &err), 0);
    assert_int_equal(hot_set_read(&set, path, &model, &err), 0);
    assert_int_equal(set.count, 5);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(set.key[i], order[i]);
        double off = set.weight[i] - weight[order[i]];
        assert_true(off * off <= 1e-16 * weight[order[i]] * weight[order[i]]);
    }
    hot_set_free(&set);
    const double none[8] = {0};
    assert_int_equal(hot_set_write(path, none, &model, &err), 0);
    assert_int_equal(hot_set_read(&set, path, &model, &err), 0);
    assert_int_equal(set.count, 0);
    hot_set_free(&set);
    unit_remove(folder);
}

#define MODEL "\"model\":{\"name\":\"pocket\",\"source\":\"ab\",\"layers\":2,\"experts\":4,\"top_k\":2}"

static void says_what_is_wrong(void **state)
{
    (void)state;
    static const struct { const char *text, *why; } bad[] = {
        {"[]", "expected the JSON object"},
        {"{}", "is missing, so this file is not a hot set"},
        {"{\"hot_set\":2}", "newer than this program supports"},
        {"{\"hot_set\":1,\"mode\":1}", "mode"},
        {"{\"hot_set\":1,\"experts\":[]}", "\"model\": expected a JSON object"},
        {"{\"hot_set\":1,\"model\":{\"name\":\"x\",\"source\":\"ab\",\"layers\":2,\"experts\":8,\"top_k\":2}}",
         "for x (2 layers, 8 experts, top 2), not for pocket (2 layers, 4 experts, top 2)"},
        {"{\"hot_set\":1,\"model\":{\"name\":\"x\",\"source\":\"cd\",\"layers\":2,\"experts\":4,\"top_k\":2}}",
         "for x, whose weights differ"},
        {"{\"hot_set\":1," MODEL "}", "\"experts\": expected a list"},
        {"{\"hot_set\":1," MODEL ",\"experts\":[1]}", "entry 1: expected [layer, expert, weight]"},
        {"{\"hot_set\":1," MODEL ",\"experts\":[[0,1,2],[2,1,1]]}", "entry 2: expert 1 of layer 2 does not exist"},
        {"{\"hot_set\":1," MODEL ",\"experts\":[[0,1,2],[0,1,1]]}", "occurs twice"},
        {"{\"hot_set\":1," MODEL ",\"experts\":[[0,1,2],[0,2,3]]}", "descending"},
        {"{\"hot_set\":1," MODEL ",\"experts\":[[0,1,-1]]}", "above 0"},
    };
    char *folder = unit_folder(), path[1200];
    snprintf(path, sizeof path, "%s/hot.json", folder);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hot_set set = {0};
        struct err err = {0};
        FILE *file = fopen(path, "w");
        fputs(bad[i].text, file);
        fclose(file);
        assert_int_equal(hot_set_read(&set, path, &model, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, bad[i].why) || strncmp(err.text, path, strlen(path)))
            fail_msg("%s: '%s' does not say '%s'", bad[i].text, err.text, bad[i].why);
        assert_null(set.key);
    }
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_read_as_it_was_written),
        cmocka_unit_test(says_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Skip files: the meaning of a ratio, writing and reading back, the models for which a file is valid, and rejected files. */
#include <math.h>

#include "common/draft/skip_file.h"
#include "tests/unit/folder.h"

static struct model_identity identity(int layers)
{
    struct model_identity model = {.name = "tiny", .layers = layers};
    memset(model.index.bytes, 0x1a, sizeof model.index.bytes);
    memset(model.source.bytes, 0x2b, sizeof model.source.bytes);
    memset(model.tokenizer.bytes, 0x3c, sizeof model.tokenizer.bytes);
    return model;
}

static void the_first_choice(void **state)
{
    (void)state;
    struct err err = {0};
    struct skip_set set;
    assert_int_equal(skip_set_first(&set, 32, 0.5, &err), 0);           /* as in SWIFT's own code: 1, 3, 5, ..., 29 */
    for (int layer = 0; layer < 32; layer++) {
        assert_int_equal(set.attention[layer], layer % 2 && layer < 31);
        assert_int_equal(set.ffn[layer], layer % 2 && layer < 31);
    }
    for (int layers = 3; layers <= 48; layers++)
        for (int percent = 1; percent <= 100; percent++) {
            int wanted = (int)(2 * (layers - 2) * (percent / 100.0)), attention = 0, ffn = 0;
            bool even = false, odd_stays = false;
            err_clear(&err);
            if (!wanted) {
                assert_int_equal(skip_set_first(&set, layers, percent / 100.0, &err), -1);
                assert_int_equal(err.code, ERR_INPUT);
                continue;
            }
            assert_int_equal(skip_set_first(&set, layers, percent / 100.0, &err), 0);
            assert_int_equal(set.layers, layers);
            assert_false(set.attention[0] || set.ffn[0] || set.attention[layers - 1] || set.ffn[layers - 1]);
            for (int layer = 1; layer < layers - 1; layer++) {
                attention += set.attention[layer];
                ffn += set.ffn[layer];
                assert_true(set.attention[layer] || !set.ffn[layer]);
                even |= layer % 2 == 0 && set.attention[layer];
                odd_stays |= layer % 2 == 1 && !set.ffn[layer];
            }
            assert_int_equal(attention + ffn, wanted);
            assert_int_equal(attention - ffn, wanted % 2);
            assert_false(even && odd_stays);
        }
    assert_int_equal(skip_set_first(&set, 18, 0.25, &err), 0);          /* 8 of 32 parts: 4 of 8 odd layers, spread evenly */
    for (int layer = 0; layer < 18; layer++)
        assert_int_equal(set.ffn[layer], layer == 3 || layer == 7 || layer == 11 || layer == 15);
    assert_int_equal(skip_set_first(&set, 2, 1, &err), -1);
}

static void parts_have_numbers(void **state)
{
    (void)state;
    struct skip_set set = {.layers = 5};
    assert_int_equal(skip_parts(5), 6);
    assert_int_equal(skip_parts(2), 0);
    assert_int_equal(skip_count(5, 0.45), 2);
    skip_part_set(&set, 2, true);
    skip_part_set(&set, 3, true);
    assert_true(set.attention[3] && set.ffn[1]);
    assert_true(skip_part(&set, 2) && skip_part(&set, 3) && !skip_part(&set, 4));
    skip_part_set(&set, 3, false);
    assert_false(set.ffn[1]);
}

static const struct skip_found found = {
    .matchness = 0.8125, .window = 32,
    .search = {.ratio = 0.45, .seed = UINT64_MAX - 4, .texts = 3, .candidates = 77, .bayesian = 3, .kept = 5,
               .ended = "patience"}};

static void what_is_written_is_read(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_identity model = identity(7);
    struct skip_set set = {.layers = 7}, read;
    struct skip_found facts;
    const char *path = unit_path(folder, "a.json");
    set.attention[1] = set.attention[5] = set.ffn[2] = true;
    assert_int_equal(skip_file_write(path, &set, &found, &model, &err), 0);
    assert_int_equal(skip_file_read(&read, &facts, path, &model, &err), 0);
    assert_memory_equal(&read, &set, sizeof set);
    assert_true(facts.matchness == found.matchness && facts.search.ratio == found.search.ratio);
    assert_int_equal(facts.window, 32);
    assert_true(facts.search.seed == UINT64_MAX - 4);
    assert_int_equal(facts.search.texts, 3);
    assert_int_equal(facts.search.candidates, 77);
    assert_int_equal(facts.search.bayesian, 3);
    assert_int_equal(facts.search.kept, 5);
    assert_string_equal(facts.search.ended, "patience");
    assert_int_equal(skip_set_open(&read, path, &model, &err), 0);
    assert_memory_equal(&read, &set, sizeof set);
    assert_int_equal(skip_set_open(&read, "0.5", &model, &err), 0);
    assert_true(read.attention[1] && read.ffn[3] && !read.ffn[2]);
    assert_int_equal(skip_set_open(&read, "1.5", &model, &err), -1);
    assert_non_null(strstr(err.text, "skip=1.5: expected a ratio above 0"));
    err_clear(&err);
    assert_int_equal(skip_set_open(&read, "0.01", &model, &err), -1);
    assert_non_null(strstr(err.text, "layers; give at least 0."));
    const char *least = strrchr(err.text, ' ') + 1;
    assert_int_equal(skip_set_open(&read, least, &model, &(struct err){0}), 0);
    err_clear(&err);
    assert_int_equal(skip_set_first(&read, 2, 0.4, &err), -1);
    assert_non_null(strstr(err.text, "the model has 2 layers, and the first and the last are never skipped"));
    err_clear(&err);
}

static void for_which_models(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_identity model = identity(7), copy = model, deep = identity(8), other = model, words = model;
    struct skip_set set = {.layers = 7}, read;
    const char *path = unit_path(folder, "b.json");
    skip_part_set(&set, 2, true);
    assert_int_equal(skip_file_write(path, &set, &found, &model, &err), 0);
    copy.index.bytes[3] ^= 1;                           /* quantised, or inflated: another file of the same weights */
    strcpy(copy.dtype, "q4");
    copy.inflated_from = 64;
    assert_int_equal(skip_file_read(&read, NULL, path, &copy, &err), 0);
    other.source.bytes[31] ^= 1;
    words.tokenizer.bytes[0] ^= 1;
    strcpy(other.name, "another");
    assert_int_equal(skip_file_read(&read, NULL, path, &deep, &err), -1);
    assert_non_null(strstr(err.text, "b.json: \"model\": the skip file is for tiny with 7 layers, not for tiny with 8"));
    err_clear(&err);
    assert_int_equal(skip_file_read(&read, NULL, path, &other, &err), -1);
    assert_non_null(strstr(err.text, "is for tiny, whose weights differ from those of another"));
    err_clear(&err);
    assert_int_equal(skip_file_read(&read, NULL, path, &words, &err), -1);
    assert_non_null(strstr(err.text, "whose tokenizer differs"));
    memset(&words.tokenizer, 0, sizeof words.tokenizer);        /* a model without a tokenizer */
    assert_int_equal(skip_file_read(&read, NULL, path, &words, &err), 0);
}

#define DIGEST_1 "1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a1a"
#define DIGEST_2 "2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b"
#define MODEL \
    "\"model\":{\"name\":\"m\",\"index\":\"" DIGEST_1 "\",\"source\":\"" DIGEST_2 "\",\"tokenizer\":null,\"layers\":7}"
#define FILE_WITH(attention, ffn, rest) "{\"skip\":1," MODEL ",\"attention\":" attention ",\"ffn\":" ffn rest "}"

static void what_is_refused(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_identity model = identity(7);
    struct skip_set read = {.layers = -1};
    const char *path = unit_path(folder, "c.json");
    static const struct { const char *text, *message; } bad[] = {
        {"", "c.json:1: not JSON"},
        {"{\"skip\":1,", "expected a skip file"},
        {"[1]", "expected the JSON object"},
        {"{\"attention\":[1]}", "\"skip\": it is missing"},
        {"{\"skip\":2}", "this version is newer than this program supports; update moekit"},
        {"{\"skip\":1,\"atention\":[1]}", "unknown key \"atention\"; did you mean \"attention\"?"},
        {"{\"skip\":1,\"skip\":1}", "duplicate"},
        {"{\"skip\":1}", "\"model\": expected a JSON object"},
        {"{\"skip\":1,\"model\":{\"name\":\"m\",\"index\":\"12\"}}", "\"model\": \"index\": expected 64 hexadecimal digits"},
        {"{\"skip\":1,\"model\":{\"name\":\"m\",\"depth\":3}}", "\"model\": unknown key \"depth\""},
        {FILE_WITH("[0,1]", "[]", ""), "\"attention\": layer 0 is never skipped"},
        {FILE_WITH("[1]", "[2,6]", ""), "\"ffn\": the last layer is never skipped"},
        {FILE_WITH("[2,1]", "[]", ""), "\"attention\": expected layer numbers from 1 to 5, in ascending order"},
        {FILE_WITH("[1,1]", "[]", ""), "\"attention\": expected layer numbers from 1 to 5, in ascending order"},
        {FILE_WITH("[]", "[7]", ""), "\"ffn\": expected layer numbers from 1 to 5"},
        {FILE_WITH("[]", "[-1]", ""), "\"ffn\": expected layer numbers from 1 to 5"},
        {FILE_WITH("[]", "[99999999999]", ""), "\"ffn\": expected layer numbers from 1 to 5"},
        {FILE_WITH("[]", "[1.0]", ""), "\"ffn\": expected a list of layers"},
        {FILE_WITH("[]", "3", ""), "\"ffn\": expected a list of layers"},
        {FILE_WITH("[]", "[]", ",\"matchness\":1,\"window\":9"), "the file skips nothing"},
        {FILE_WITH("[1]", "[1]", ""), "\"matchness\": expected a number from 0 to 1"},
        {FILE_WITH("[1]", "[1]", ",\"matchness\":1.5"), "\"matchness\": expected a number from 0 to 1"},
        {FILE_WITH("[1]", "[1]", ",\"matchness\":1,\"window\":0"), "\"window\": expected a whole number"},
        {FILE_WITH("[1]", "[1]", ",\"matchness\":1,\"window\":9,\"search\":{\"ratio\":1,\"seed\":\"1\",\"ended\":\"no\"}"),
         "\"search\": \"ended\": expected a word"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        err_clear(&err);
        unit_write(path, bad[i].text, strlen(bad[i].text));
        assert_int_equal(skip_file_read(&read, NULL, path, &model, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        if (!strstr(err.text, bad[i].message) || !strstr(err.text, "c.json:"))
            fail_msg("%s\ngave: %s\nnot: %s", bad[i].text, err.text, bad[i].message);
        assert_int_equal(read.layers, -1);
    }
    static const char good[] = FILE_WITH("[1,5]", "[]", ",\"matchness\":1,\"window\":9");
    unit_write(path, good, strlen(good));
    assert_int_equal(skip_file_read(&read, NULL, path, &model, &err), 0);
    assert_true(read.attention[1] && read.attention[5] && !read.ffn[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_choice),
        cmocka_unit_test(parts_have_numbers),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(for_which_models),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

/* Translates --budget, --rank and --budget-mode into an expert plan. */
#include "tests/unit/unit.h"

#include "common/decode/budget.h"
#include "common/stream/rank.h"
#include "common/stream/writer.h"

enum { LAYERS = 2, EXPERTS = 4 };

#define HEX8(c) c c c c c c c c
#define HEX(c) HEX8(c) HEX8(c) HEX8(c) HEX8(c) HEX8(c) HEX8(c) HEX8(c) HEX8(c)

static const struct stream_model model = { .name = "tiny", .source_sha256 = HEX("a"), .tokenizer_sha256 = HEX("b"),
                                           .index_sha256 = HEX("c"), .layers = 2, .moe_layers = LAYERS, .experts = EXPERTS,
                                           .top_k = 2, .vocab = 50, .hidden = 8 };
static const int32_t orders[LAYERS + 1][EXPERTS] = { { 2, 0, 3, 1 }, { 1, 3, 0, 2 }, { 0, 1, 2, 3 } };

static void write_rank(const char *path, const struct stream_model *of, int first, int second, int layers)
{
    static const double score[EXPERTS] = { 4, 3, 2, 1 };
    struct header header = {0};
    struct writer *out = NULL;
    assert_int_equal(header_init(&header, STREAM_RANK, "test", "0", 0, NULL, NULL), 0);
    header.has_model = of != NULL;
    header.model = of ? *of : model;
    if (!of)                    /* sequences need a model's shape: such a stream can contain none */
        layers = 0;
    assert_int_equal(writer_open(&out, path, &header, NULL), 0);
    for (int layer = 0; layer < layers; layer++) {
        struct rank_layer record = { .layer = layer, .method = "mass", .budget = layer ? second : first, .order = orders[layer],
                                     .score = score };
        assert_int_equal(writer_record(out, &rank_layer_kind, &record, NULL), 0);
    }
    assert_int_equal(writer_close(&out, NULL), 0);
    header_free(&header);
}

static int open_budget(struct budget **out, const char *budget, const char *rank, bool force, struct text *note,
                       struct err *err)
{
    const struct decode_settings settings = { .budget = budget, .rank = rank, .budget_mode = BUDGET_SUBSTITUTE };
    err_clear(err);
    return budget_open(out, &settings, force, &model, note, err);
}

static void test_router(void **unused)
{
    (void)unused;
    struct budget *budget = NULL;
    struct text note = {0};
    struct err err = {0};
    assert_int_equal(open_budget(&budget, NULL, NULL, false, &note, &err), 0);
    assert_null(budget);
    assert_int_equal(open_budget(&budget, "3", NULL, false, &note, &err), 0);
    assert_int_equal(budget->plan.ranking, PLAN_ROUTER);
    assert_int_equal(budget->plan.mode, BUDGET_SUBSTITUTE);
    assert_null(budget->plan.order);
    assert_true(budget->plan.budget[0] == 3 && budget->plan.budget[1] == 3 && !budget->lossless);
    assert_string_equal(budget->label, "budget 3 of 4, router, substitute");
    budget_close(&budget);
    assert_int_equal(open_budget(&budget, "9,1", "router", false, &note, &err), 0);
    assert_true(budget->plan.budget[0] == 4 && budget->plan.budget[1] == 1 && !budget->lossless);
    assert_string_equal(budget->label, "budget 1 to 4 of 4, router, substitute");
    budget_close(&budget);
    assert_string_equal(note.data, "--budget 9,1: a layer of the model has 4 experts; more than that leaves none out\n");
    text_clear(&note);
    assert_int_equal(open_budget(&budget, "4", NULL, false, &note, &err), 0);
    assert_true(budget->lossless);
    budget_close(&budget);
    assert_int_equal(note.length, 0);

    assert_int_equal(open_budget(&budget, "1,2,3", NULL, false, &note, &err), -1);
    assert_non_null(strstr(err.text, "--budget: '1,2,3' has 3 numbers"));
    assert_int_equal(open_budget(&budget, "rank", NULL, false, &note, &err), -1);
    assert_int_equal(open_budget(&budget, "rank", "router", false, &note, &err), -1);
    assert_int_equal(open_budget(&budget, NULL, "router", false, &note, &err), -1);
    assert_non_null(strstr(err.text, "--rank"));
    assert_null(budget);

    struct stream_model dense = { .layers = 2, .vocab = 50 };
    const struct decode_settings settings = { .budget = "3" };
    err_clear(&err);
    assert_int_equal(budget_open(&budget, &settings, false, &dense, &note, &err), -1);
    text_free(&note);
}

static void test_static(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "rank");
    struct budget *budget = NULL;
    struct text note = {0};
    struct err err = {0};
    write_rank(path, &model, 2, 3, LAYERS);
    assert_int_equal(open_budget(&budget, "1,4", path, false, &note, &err), 0);
    assert_int_equal(budget->plan.ranking, PLAN_STATIC);
    assert_memory_equal(budget->plan.order, orders, LAYERS * sizeof *orders);
    assert_true(budget->plan.budget[0] == 1 && budget->plan.budget[1] == 4);
    assert_true(budget->plan.moe_layers == LAYERS && budget->plan.experts == EXPERTS);
    assert_string_equal(budget->label, "budget 1 to 4 of 4, static by mass, substitute");
    assert_int_equal(budget->source.kind, STREAM_RANK);
    budget_close(&budget);
    assert_int_equal(open_budget(&budget, "rank", path, false, &note, &err), 0);
    assert_true(budget->plan.budget[0] == 2 && budget->plan.budget[1] == 3);
    budget_close(&budget);
    assert_int_equal(note.length, 0);

    write_rank(path, &model, -1, 3, LAYERS);
    assert_int_equal(open_budget(&budget, "rank", path, false, &note, &err), -1);
    assert_non_null(strstr(err.text, "contains no budget for layer 0"));
    write_rank(path, &model, -1, -1, LAYERS - 1);
    assert_int_equal(open_budget(&budget, "2", path, false, &note, &err), -1);
    assert_non_null(strstr(err.text, "1 of 2 layers"));
    write_rank(path, NULL, -1, -1, LAYERS);
    assert_int_equal(open_budget(&budget, "2", path, false, &note, &err), -1);
    assert_int_equal(open_budget(&budget, "2", unit_path(folder, "missing"), false, &note, &err), -1);
    assert_null(budget);
    text_free(&note);
    unit_remove(folder);
}

static void test_rankings_and_phases(void **unused)
{
    (void)unused;
    static const struct {
        const char *rank, *phase;
        enum plan_ranking ranking;
        bool decodes, verifies, drafts;
        const char *label;
    } good[] = {
        {NULL, NULL, PLAN_ROUTER, true, true, false, "budget 2 of 4, router, substitute"},
        {"path", "decode", PLAN_PATH, true, true, false, "budget 2 of 4, path, substitute"},
        {"oracle", "verify", PLAN_ORACLE, false, true, false, "budget 2 of 4, oracle, substitute, with drafts only"},
        {"router", "draft", PLAN_ROUTER, false, false, true, NULL},
        {"oracle", "decode,draft", PLAN_ORACLE, true, true, true, "budget 2 of 4, oracle, substitute"},
        {"router", "verify,draft", PLAN_ROUTER, false, true, true, "budget 2 of 4, router, substitute, with drafts only"}};
    static const struct { const char *rank, *phase, *fault; } bad[] = {
        {"path", "draft", "so it cannot limit drafting"}, {"path", "verify,draft", "so it cannot limit drafting"},
        {"router", "draft,verify", "unknown phase 'draft,verify'"}, {"router", "", "unknown phase ''"}};
    struct budget *budget = NULL;
    struct text note = {0};
    struct err err = {0};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct decode_settings settings = {.budget = "2", .rank = good[i].rank, .budget_phase = good[i].phase,
                                                 .budget_mode = BUDGET_SUBSTITUTE};
        assert_int_equal(budget_open(&budget, &settings, false, &model, &note, &err), 0);
        assert_int_equal(budget->plan.ranking, good[i].ranking);
        assert_true(budget->decodes == good[i].decodes && budget->verifies == good[i].verifies &&
                    budget->drafts == good[i].drafts && budget->lossless == !good[i].verifies);
        if (good[i].label)
            assert_string_equal(budget->label, good[i].label);
        budget_close(&budget);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct decode_settings settings = {.budget = "2", .rank = bad[i].rank, .budget_phase = bad[i].phase,
                                                 .budget_mode = BUDGET_SUBSTITUTE};
        err_clear(&err);
        assert_int_equal(budget_open(&budget, &settings, false, &model, &note, &err), -1);
        assert_non_null(strstr(err.text, bad[i].fault));
        assert_null(budget);
    }
    text_free(&note);
}

static void test_other_models(void **unused)
{
    (void)unused;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "rank");
    struct budget *budget = NULL;
    struct text note = {0};
    struct err err = {0};
    struct stream_model other = model;
    strcpy(other.index_sha256, HEX("d"));           /* the same weights in another format */
    write_rank(path, &other, -1, -1, LAYERS);
    assert_int_equal(open_budget(&budget, "2", path, false, &note, &err), 0);
    assert_non_null(strstr(note.data, "another format"));
    budget_close(&budget);
    text_clear(&note);

    strcpy(other.tokenizer_sha256, HEX("e"));
    write_rank(path, &other, -1, -1, LAYERS);
    assert_int_equal(open_budget(&budget, "2", path, false, &note, &err), -1);
    assert_non_null(strstr(err.text, "tokenizer"));
    assert_int_equal(open_budget(&budget, "2", path, true, &note, &err), 0);
    assert_non_null(strstr(note.data, "--force"));
    budget_close(&budget);

    other = model;                              /* unusable rankings are rejected with --force, too */
    other.layers = other.moe_layers = 3;
    write_rank(path, &other, -1, -1, LAYERS + 1);
    assert_int_equal(open_budget(&budget, "2", path, false, &note, &err), -1);
    assert_int_equal(open_budget(&budget, "2", path, true, &note, &err), -1);
    assert_non_null(strstr(err.text, "3 layers"));
    text_free(&note);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_router), cmocka_unit_test(test_static),
        cmocka_unit_test(test_rankings_and_phases), cmocka_unit_test(test_other_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

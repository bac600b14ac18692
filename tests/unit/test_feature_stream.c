/* Feature and train streams: written records are read back, and inconsistent ones are rejected by writer and reader. */
#include "tests/unit/stream.h"

#include "common/base/float.h"
#include "common/stream/feature.h"
#include "common/stream/train.h"

enum { HIDDEN = 3 };

static const int32_t tokens[4] = {1, 15, 0, 7}, point[2] = {1, 3};
static const uint8_t mask[4] = {0, 0, 1, 1};

static struct feature_states whole_states(const void *values, enum dtype dtype)
{
    return (struct feature_states){.sequence = 5, .pos = 0, .n = 4, .tokens = tokens, .mask = mask, .points = 2, .point = point,
                                   .values = {values, dtype}};
}

static struct writer *begin(const char *path, enum stream_kind kind)
{
    struct header header = {0};
    struct writer *writer = NULL;
    struct err err = {0};
    small_header(&header, kind);
    if (writer_open(&writer, path, &header, &err))
        fail_msg("%s", err.text);
    header_free(&header);
    return writer;
}

static void put(struct writer *writer, const struct record_kind *kind, const void *body)
{
    struct err err = {0};
    if (writer_record(writer, kind, body, &err))
        fail_msg("%s", err.text);
}

static void finish(struct writer *writer)
{
    struct err err = {0};
    if (writer_close(&writer, &err))
        fail_msg("%s", err.text);
}

static const struct record *next(struct reader *in, const struct record_kind *kind)
{
    const struct record *record;
    struct err err = {0};
    if (reader_next(in, &record, &err) != 1)
        fail_msg("%s", err.text);
    assert_ptr_equal(record->kind, kind);
    return record;
}

static void either_type_comes_back(enum dtype dtype, const void *values)
{
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    struct err err = {0};
    struct reader *in = NULL;
    const struct record *record;
    const struct feature_begin open = {.sequence = 5, .id = "a", .prompt_tokens = 2, .text_tokens = 4, .validation = true};
    const struct feature_states states = whole_states(values, dtype);
    struct writer *writer = begin(path, STREAM_FEATURE);
    put(writer, &feature_begin_kind, &open);
    put(writer, &feature_states_kind, &states);
    put(writer, &route_end_kind, &(struct route_end){5});
    finish(writer);
    assert_int_equal(reader_open(&in, path, STREAM_FEATURE, NULL, &err), 0);
    const struct feature_begin *begun = next(in, &feature_begin_kind)->body;
    assert_string_equal(begun->id, "a");
    assert_null(begun->task);
    assert_int_equal(begun->prompt_tokens, 2);
    assert_int_equal(begun->text_tokens, 4);
    assert_true(begun->validation);
    const struct feature_states *got = next(in, &feature_states_kind)->body;
    assert_int_equal(got->n, 4);
    assert_int_equal(got->points, 2);
    assert_memory_equal(got->tokens, tokens, sizeof tokens);
    assert_memory_equal(got->mask, mask, sizeof mask);
    assert_memory_equal(got->point, point, sizeof point);
    assert_int_equal(got->values.dtype, dtype);
    assert_memory_equal(got->values.data, values, 24 * array_dtype_size(dtype));
    next(in, &route_end_kind);
    assert_int_equal(reader_next(in, &record, &err), 0);
    reader_close(&in);
    unit_remove(folder);
}

/* Within a text, and after the end. */
static void a_reader_goes_back(void **state)
{
    (void)state;
    static const float values[24];
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    struct err err = {0};
    struct reader *in = NULL;
    const struct record *record;
    const struct feature_states states = whole_states(values, DTYPE_F32);
    struct writer *writer = begin(path, STREAM_FEATURE);
    put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 5, .prompt_tokens = 2, .text_tokens = 4});
    put(writer, &feature_states_kind, &states);
    put(writer, &route_end_kind, &(struct route_end){5});
    finish(writer);
    assert_int_equal(reader_open(&in, path, STREAM_FEATURE, NULL, &err), 0);
    assert_true(reader_can_return(in));
    next(in, &feature_begin_kind);
    const struct reader_mark mark = reader_mark(in);
    next(in, &feature_states_kind);
    assert_int_equal(reader_return(in, &mark, &err), 0);
    assert_int_equal(next(in, &feature_begin_kind)->index, 0);
    next(in, &feature_states_kind);
    next(in, &route_end_kind);
    assert_int_equal(reader_return(in, &mark, &err), 0);
    next(in, &feature_begin_kind);
    reader_close(&in);
    assert_int_equal(reader_open(&in, path, STREAM_FEATURE, NULL, &err), 0);
    while (reader_next(in, &record, &err) > 0)
        ;
    assert_int_equal(reader_return(in, &mark, &err), 0);
    next(in, &feature_begin_kind);
    assert_int_equal(next(in, &feature_states_kind)->index, 1);
    reader_close(&in);
    unit_remove(folder);
}

static void states_come_back_in_either_type(void **state)
{
    (void)state;
    float wide[24];
    uint16_t narrow[24];
    for (int i = 0; i < 24; i++) {
        wide[i] = (float)i / 7 - 1;
        narrow[i] = f32_to_bf16(wide[i]);
    }
    either_type_comes_back(DTYPE_F32, wide);
    either_type_comes_back(DTYPE_BF16, narrow);
}

static void nonsense_of_a_text_is_refused(void **state)
{
    (void)state;
    static const float values[24];
    static const int32_t beyond[4] = {1, 16, 0, 7}, falling[2] = {2, 1}, deep[2] = {1, 4};
    static const uint8_t two[4] = {0, 2, 0, 0};
    const struct feature_states good = whole_states(values, DTYPE_F32);
    struct { struct feature_states states; const char *word; } wrong[] = {
        {good, "vocabulary"}, {good, "mask"}, {good, "ascend"}, {good, "ascend"}, {good, "sequence 6"}, {good, "at least one"},
    };
    wrong[0].states.tokens = beyond;
    wrong[1].states.mask = two;
    wrong[2].states.point = falling;
    wrong[3].states.point = deep;
    wrong[4].states.sequence = 6;
    wrong[5].states.points = 0;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *folder = unit_folder();
        struct err err = {0};
        struct writer *writer = begin(unit_path(folder, "f.moes"), STREAM_FEATURE);
        put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 5, .prompt_tokens = 2, .text_tokens = 4});
        assert_int_equal(writer_record(writer, &feature_states_kind, &wrong[i].states, &err), -1);
        assert_non_null(strstr(err.text, wrong[i].word));
        writer_abort(&writer, &err);
        unit_remove(folder);
    }
}

static void texts_come_one_after_the_other(void **state)
{
    (void)state;
    char *folder = unit_folder();
    struct err err = {0};
    struct writer *writer = begin(unit_path(folder, "f.moes"), STREAM_FEATURE);
    put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 5, .prompt_tokens = 2, .text_tokens = 4});
    assert_int_equal(writer_record(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 6, .text_tokens = 4}, &err),
                     -1);
    assert_non_null(strstr(err.text, "sequence 6 begins before sequence 5 has ended"));
    writer_abort(&writer, &err);
    unit_remove(folder);
}

/* Elements of a type that the table does not allow, encoded by hand. */
static void another_type_is_refused(void **state)
{
    (void)state;
    static const double values[24];
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    struct reader *in = NULL;
    const struct record *record;
    struct err err = {0};
    struct writer *writer = begin(path, STREAM_FEATURE);
    put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 5, .prompt_tokens = 2, .text_tokens = 4});
    const struct feature_states other = whole_states(values, DTYPE_F64);
    struct err refused = {0};
    struct writer *never = begin(unit_path(folder, "never.moes"), STREAM_FEATURE);
    put(never, &feature_begin_kind, &(struct feature_begin){.sequence = 5, .prompt_tokens = 2, .text_tokens = 4});
    assert_int_equal(writer_record(never, &feature_states_kind, &other, &refused), -1);
    assert_non_null(strstr(refused.text, "'values' has elements of the unexpected type f64"));
    writer_abort(&never, &refused);
    writer_begin(writer, "feature");
    writer_int(writer, "sequence", 5);
    writer_int(writer, "pos", 0);
    writer_int(writer, "n", 4);
    writer_array(writer, "tokens", DTYPE_I32, 1, (const uint64_t[]){4}, tokens);
    writer_array(writer, "mask", DTYPE_U8, 1, (const uint64_t[]){4}, mask);
    writer_int(writer, "points", 2);
    writer_array(writer, "point", DTYPE_I32, 1, (const uint64_t[]){2}, point);
    writer_array(writer, "values", DTYPE_F64, 3, (const uint64_t[]){2, 4, HIDDEN}, values);
    assert_int_equal(writer_end(writer, &err), 0);
    put(writer, &route_end_kind, &(struct route_end){5});
    finish(writer);
    assert_int_equal(reader_open(&in, path, STREAM_FEATURE, NULL, &err), 0);
    next(in, &feature_begin_kind);
    assert_int_equal(reader_next(in, &record, &err), -1);
    assert_non_null(strstr(err.text, "'values' has elements of the unexpected type f64"));
    reader_close(&in);
    unit_remove(folder);
}

static void a_train_stream_comes_back(void **state)
{
    (void)state;
    static const int32_t position[3] = {1, 2, 3};
    static const double acceptance[3] = {0.75, 0.5, 0.25}, too_much[3] = {0.75, 1.5, 0};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "t.moes");
    struct err err = {0};
    struct reader *in = NULL;
    const struct record *record;
    struct train_step step = {.step = 3, .epoch = 0.5, .loss = 1.25, .lr = 1e-3, .gradient_norm = 2.5, .clipped = -1,
                              .tokens = 512, .seconds = 1.5};
    struct train_eval eval = {.step = 4, .texts = 40, .loss = NAN, .positions = 3, .position = position,
                              .acceptance = acceptance, .tokens_per_iteration = 2.25, .tree_tokens_per_iteration = NAN,
                              .tokens = -1, .iterations = 18, .tree_iterations = -1, .by = "answers", .best = true,
                              .seconds = 2};
    values_real(&step.parts, "smooth_l1", 0.5);
    values_real(&step.parts, "cross_entropy", 7.5);
    struct writer *writer = begin(path, STREAM_TRAIN);
    put(writer, &train_run_kind, &(struct train_run){"eagle1", 442752, 60, "{}"});
    put(writer, &train_step_kind, &step);
    put(writer, &train_eval_kind, &eval);
    eval.acceptance = too_much;
    assert_int_equal(writer_record(writer, &train_eval_kind, &eval, &err), -1);
    assert_non_null(strstr(err.text, "acceptance 1.5 at position 2"));
    err = (struct err){0};
    finish(writer);
    assert_int_equal(reader_open(&in, path, STREAM_TRAIN, NULL, &err), 0);
    const struct train_run *run = next(in, &train_run_kind)->body;
    assert_string_equal(run->arch, "eagle1");
    assert_int_equal(run->parameters, 442752);
    const struct train_step *made = next(in, &train_step_kind)->body;
    assert_true(values_number(&made->parts, "cross_entropy", 0) == 7.5);
    assert_int_equal(made->clipped, -1);
    const struct train_eval *tried = next(in, &train_eval_kind)->body;
    assert_true(isnan(tried->loss) && tried->best && isnan(tried->tree_tokens_per_iteration));
    assert_memory_equal(tried->acceptance, acceptance, sizeof acceptance);
    assert_null(tried->conditional);
    assert_null(tried->begun);
    assert_string_equal(tried->by, "answers");
    assert_true(tried->iterations == 18 && tried->tree_iterations == -1 && tried->tokens == -1);
    assert_int_equal(reader_next(in, &record, &err), 0);
    reader_close(&in);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_goes_back), cmocka_unit_test(states_come_back_in_either_type),
        cmocka_unit_test(nonsense_of_a_text_is_refused),
        cmocka_unit_test(texts_come_one_after_the_other), cmocka_unit_test(another_type_is_refused),
        cmocka_unit_test(a_train_stream_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

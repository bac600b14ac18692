/* Which options of an earlier run a resumed run must repeat. */
#include "tests/unit/stream.h"

#include "common/base/json.h"
#include "common/base/version.h"
#include "common/instruments/resume.h"

static const int32_t tokens[3] = {1, 2, 3};

static const struct decode_machine machine = {.threads = 1, .device = "host", .isa = "avx2", .read_bandwidth = NAN};

/* Writes a stream of one finished text that was made with these options. */
static void write_text(const char *path, const char *options)
{
    const struct decode_begin begin = {.sequence = 0, .id = "a", .prompt_tokens = 3, .prompt = tokens};
    const struct decode_done done = {.sequence = 0, .id = "a", .n = 3, .tokens = tokens, .text = "",
                                     .finish_reason = FINISH_LENGTH};
    struct decode_machine described = machine;
    struct header header;
    struct writer *out = NULL;
    struct err err = {0};
    described.options = options;
    small_header(&header, STREAM_DECODE);
    must(writer_open(&out, path, &header, &err), &err);
    must(writer_record(out, &decode_machine_kind, &described, &err), &err);
    must(writer_record(out, &decode_begin_kind, &begin, &err), &err);
    must(writer_record(out, &decode_done_kind, &done, &err), &err);
    must(writer_close(&out, &err), &err);
    header_free(&header);
}

/* Resumes the stream with other options; `words`: of the refusal, NULL: there is none. */
static void resume(const char *path, const char *options, const char *words)
{
    struct decode_resume *resume = NULL;
    struct decode_machine described = machine;
    struct header header;
    struct err err = {0};
    described.options = options;
    small_header(&header, STREAM_DECODE);
    if (decode_resume_open(&resume, path, &header, &described, &err))
        assert_true(words && strstr(err.text, words));
    else
        assert_null(words);
    assert_int_equal(resume ? decode_resume_count(resume) : 1, 1);
    decode_resume_close(&resume);
    header_free(&header);
}

static void options_are_compared_by_name_and_missing_ones_have_their_defaults(void **state)
{
    static const char *const one[] = {"ngram"};
    struct decode_settings settings = DECODE_DEFAULTS;
    struct text plain = {0}, drafted = {0};
    struct err err = {0};
    char *folder = unit_folder(), *older, *newer;
    const char *path = unit_path(folder, "stream");
    (void)state;
    must(decode_options(&plain, &settings, 64, false, "none", 0, &err), &err);
    must(decode_options(&drafted, &settings, 64, true, "none", 0, &err), &err);
    json_t *map = json_loads(plain.data, 0, NULL);
    assert_int_equal(json_object_del(map, "forecasts") | json_object_del(map, "min-p"), 0);
    older = json_text(map, JSON_COMPACT, NULL);
    json_object_set_new(map, "min-q", json_real(0.5));
    newer = json_text(map, JSON_COMPACT, NULL);

    write_text(path, older);
    resume(path, plain.data, NULL);
    resume(path, drafted.data, "the run was started with other drafts or budgets");
    settings.filter.min_p = 0.25;
    text_clear(&plain);
    must(decode_options(&plain, &settings, 64, false, "none", 0, &err), &err);
    resume(path, plain.data, "the run was started with another min-p, 0.0, not 0.25");
    settings.filter.min_p = 0;
    settings.draft = (struct strings){(const char **)one, 1};
    text_clear(&drafted);
    must(decode_options(&drafted, &settings, 64, true, "none", 0, &err), &err);
    resume(path, drafted.data, "the run was started with another draft, none, not \"ngram\"");
    write_text(path, newer);
    text_clear(&plain);
    must(decode_options(&plain, &settings, 64, false, "none", 0, &err), &err);
    resume(path, plain.data, "with an option that this version (" MOE_VERSION ") does not have, min-q 0.5; resume it with that "
           "version");
    resume(path, drafted.data, "min-q 0.5");
    json_object_set_new(map, "min-q", json_null());
    mem_free(&newer);
    newer = json_text(map, JSON_COMPACT, NULL);
    write_text(path, newer);
    resume(path, plain.data, NULL);
    write_text(path, "no JSON");
    resume(path, plain.data, "the run was started with another context, none, not 64");

    json_decref(map);
    mem_free(&older);
    mem_free(&newer);
    text_free(&plain);
    text_free(&drafted);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_compared_by_name_and_missing_ones_have_their_defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

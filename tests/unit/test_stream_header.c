/* Headers: a stream's sources are kept through a pipeline, and another model is detected. */
#include "tests/unit/stream.h"

static int round_trip(struct header *out, const struct header *header, struct err *err)
{
    struct text wire = {0};
    struct scan scan = {0};
    const struct wire_limits limits = {FRAME_HEADER_BYTES, FRAME_HEADER_VALUES};
    int rc = -1;
    if (!header_encode(header, &wire, err) &&
        scan_object(&scan, (const uint8_t *)wire.data, wire.length, &limits, err) == SCAN_WHOLE) {
        assert_int_equal(scan.at, wire.length);
        rc = header_decode(out, (const uint8_t *)wire.data, (const uint8_t *)wire.data + wire.length, err);
    }
    text_free(&wire);
    return rc;
}

static void provenance_is_handed_down(void **state)
{
    (void)state;
    struct header route = {0}, other = {0}, rank = {0}, back = {0};
    struct err err = {0};
    small_header(&route, STREAM_ROUTE);
    small_header(&other, STREAM_ROUTE);
    other.model.vocab = 99;
    assert_int_equal(header_label(&other, "synthetic", "yes", &err), 0);
    route.part = 2;
    route.parts = 4;
    assert_int_equal(header_init(&rank, STREAM_RANK, "moe-coact", "0.1", 0, NULL, &err), 0);
    assert_int_equal(header_set_dtype(&rank, "q4", &err), 0);
    assert_int_equal(header_derive(&rank, &route, &err), 0);
    assert_int_equal(header_derive(&rank, &other, &err), 0);
    assert_int_equal(round_trip(&back, &rank, &err), 0);
    assert_int_equal(back.kind, STREAM_RANK);
    assert_int_equal(back.source_count, 2);
    assert_int_equal(back.sources[0].kind, STREAM_ROUTE);
    assert_int_equal(back.sources[1].model.vocab, 99);
    assert_int_equal(back.sources[0].part, 2);
    assert_int_equal(back.sources[0].parts, 4);
    assert_int_equal(back.sources[1].parts, 0);
    assert_int_equal(back.parts, 0);                    /* not inherited */
    assert_string_equal(header_label_of(&back.sources[1], "synthetic"), "yes");
    assert_int_equal(back.model.vocab, 16);             /* from the first source */
    assert_string_equal(header_label_of(&back, "inflated"), "64 to 2048");
    assert_null(header_label_of(&back, "synthetic"));
    assert_string_equal(back.dtype, "q4");              /* its own */
    assert_string_equal(back.device, "host");
    header_free(&route);
    header_free(&other);
    header_free(&rank);
    header_free(&back);
    assert_null(back.sources);
}

/* A command line may have any bytes, a stream only UTF-8. */
static void words_that_are_not_utf8_are_repaired(void **state)
{
    static char *const words[] = {(char *)"moe-test", (char *)"\xff" "a\xc3\xa9\xe2\x82" "b\xf0"};
    static const char repaired[] = "\xef\xbf\xbd" "a\xc3\xa9\xef\xbf\xbd\xef\xbf\xbd" "b\xef\xbf\xbd";
    struct header header = {0}, back = {0};
    struct err err = {0};
    (void)state;
    assert_int_equal(header_init(&header, STREAM_RANK, "moe-test", "0.1", 2, words, &err), 0);
    assert_int_equal(header_label(&header, "forced", words[1], &err), 0);
    assert_int_equal(round_trip(&back, &header, &err), 0);
    assert_string_equal(back.argv[1], repaired);
    assert_string_equal(header_label_of(&back, "forced"), repaired);
    header_free(&header);
    header_free(&back);
}

static void long_pipelines_lose_the_oldest(void **state)
{
    (void)state;
    struct header header = {0}, back = {0};
    struct err err = {0};
    small_header(&header, STREAM_COACT);
    for (int i = 0; i < 12; i++) {                      /* each step reads the previous step's output */
        struct header next = {0};
        small_header(&next, STREAM_COACT);
        assert_int_equal(header_derive(&next, &header, &err), 0);
        header_free(&header);
        if (round_trip(&header, &next, &err))
            fail_msg("%s", err.text);
        header_free(&next);
    }
    const struct header *at = &header;
    int depth = 0;
    for (; at->source_count; at = &at->sources[0])
        depth++;
    assert_int_equal(depth, HEADER_DEPTH);
    assert_int_equal(at->sources_omitted, 1);
    assert_int_equal(header_copy(&back, &header, &err), 0);
    header_free(&back);
    header_free(&header);
}

static void a_reader_bounds_the_depth_itself(void **state)
{
    (void)state;
    static const char start[] = "\x84\xa4kind\xa5route\xa7version\x01\xa8producer\x83\xa4tool\xa1t\xa7version\xa1" "1"
                                "\xa4" "argv\x90\xa7sources\x91";
    struct text wire = {0};
    struct header header = {0};
    struct err err = {0};
    for (int i = 0; i < 12; i++)
        text_put(&wire, start, sizeof start - 1, &err);
    wire.data[wire.length - 1] = '\x90';               /* the innermost has no sources */
    assert_int_equal(header_decode(&header, (const uint8_t *)wire.data, (const uint8_t *)wire.data + wire.length, &err), 0);
    const struct header *at = &header;
    int depth = 0;
    for (; at->source_count; at = &at->sources[0])
        depth++;
    assert_int_equal(depth, HEADER_DEPTH);
    assert_int_equal(at->sources_omitted, 1);
    header_free(&header);
    text_free(&wire);
}

static void newer_streams_are_refused_but_not_newer_sources(void **state)
{
    (void)state;
    struct header header = {0}, source = {0}, back = {0};
    struct err err = {0};
    small_header(&header, STREAM_RANK);
    small_header(&source, STREAM_ROUTE);
    mem_free(&source.kind_name);
    source.kind_name = mem_string("simulation", &err);
    source.version = 9;
    assert_int_equal(header_derive(&header, &source, &err), 0);
    assert_int_equal(round_trip(&back, &header, &err), 0);
    assert_int_equal(back.sources[0].kind, STREAM_ANY);
    assert_string_equal(back.sources[0].kind_name, "simulation");
    assert_int_equal(back.sources[0].version, 9);
    header_free(&back);
    assert_int_equal(round_trip(&back, &source, &err), -1);
    assert_non_null(strstr(err.text, "streams of kind 'simulation' are unknown to this version"));
    err_clear(&err);
    header.version = 2;
    assert_int_equal(round_trip(&back, &header, &err), -1);
    assert_non_null(strstr(err.text, "version 2 of 'rank' streams is newer"));
    header_free(&header);
    header_free(&source);
}

static void absurd_models_are_refused(void **state)
{
    (void)state;
    const struct { size_t offset; int value; const char *words; } wrong[] = {
        {offsetof(struct stream_model, experts), 40000, "key 'experts' is 40000"},
        {offsetof(struct stream_model, top_k), 5, "key 'top_k' is 5"},
        {offsetof(struct stream_model, moe_layers), 4, "key 'moe_layers' is 4"},
        {offsetof(struct stream_model, vocab), -1, "key 'vocab' is -1"},
        {offsetof(struct stream_model, hidden), 1 << 30, "key 'hidden' is 1073741824"},
    };
    struct header back = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct header header = {0};
        struct err err = {0};
        small_header(&header, STREAM_RANK);
        memcpy((char *)&header.model + wrong[i].offset, &wrong[i].value, sizeof wrong[i].value);
        assert_int_equal(round_trip(&back, &header, &err), -1);
        if (!strstr(err.text, wrong[i].words))
            fail_msg("'%s' does not say '%s'", err.text, wrong[i].words);
        header_free(&header);
    }
    struct header header = {0};
    struct err err = {0};
    small_header(&header, STREAM_RANK);
    header.model.source_sha256[63] = 'G';
    assert_int_equal(round_trip(&back, &header, &err), -1);
    assert_non_null(strstr(err.text, "must be a SHA-256 in hexadecimal"));
    header_free(&header);
}

static void another_model_is_noticed(void **state)
{
    (void)state;
    struct header header = {0};
    struct text note = {0};
    struct err err = {0};
    small_header(&header, STREAM_RANK);
    struct stream_model model = header.model, data = header.model;
    assert_int_equal(header_same_model(&data, &model, "r.moes", false, &note, &err), 0);
    assert_int_equal(note.length, 0);

    data.index_sha256[0] = 'd';
    assert_int_equal(header_same_model(&data, &model, "r.moes", false, &note, &err), 0);
    assert_string_equal(note.data, "r.moes was made with tiny, which has the same weights as tiny in another format\n");
    text_clear(&note);
    data.source_sha256[0] = 'd';
    assert_int_equal(header_same_model(&data, &model, "r.moes", false, &note, &err), 0);
    assert_string_equal(note.data, "r.moes was made with tiny, which has the shape of tiny, but other weights\n");
    text_clear(&note);

    data.experts = 8;
    data.tokenizer_sha256[0] = 'd';
    for (int force = 0; force < 2; force++) {
        assert_int_equal(header_same_model(&data, &model, "r.moes", force, &note, &err), -1);
        assert_string_equal(err.text, "r.moes was made with tiny, which differs from tiny (8 experts instead of 4, another "
                            "tokenizer); make it with this model");
        err_clear(&err);
    }
    data.experts = 4;
    data.vocab++;
    assert_int_equal(header_same_model(&data, &model, "r.moes", false, &note, &err), -1);
    assert_non_null(strstr(err.text, "another tokenizer); make it with this model, or use --force"));
    assert_int_equal(note.length, 0);
    err_clear(&err);
    assert_int_equal(header_same_model(&data, &model, "r.moes", true, &note, &err), 0);
    assert_non_null(strstr(note.data, "used because of --force"));

    data = model;
    text_clear(&note);
    data.tokenizer_sha256[0] = '\0';                    /* an unknown model is not a different one */
    assert_int_equal(header_same_model(&data, &model, "r.moes", false, &note, &err), 0);
    assert_int_equal(note.length, 0);
    text_free(&note);
    header_free(&header);
}

static void values_say_when_they_overflow(void **state)
{
    (void)state;
    struct values values = {0};
    char key[8];
    values_int(&values, "K", 1);
    values_int(&values, "K", 2);
    assert_int_equal(values.count, 1);
    assert_true(values_number(&values, "K", 0) == 2);
    assert_true(values_number(&values, "T", 7) == 7);
    values_text(&values, "word", "x");
    assert_true(values_number(&values, "word", 7) == 7);
    assert_null(values_find(&values, "none"));
    for (int i = 2; i < VALUES_MAX; i++) {
        snprintf(key, sizeof key, "k%d", i);
        values_real(&values, key, i);
    }
    assert_false(values.overflow);
    values_int(&values, "one more", 1);
    assert_true(values.overflow);
    struct values keys = {0}, texts = {0};
    values_int(&keys, "a key that is much too long for this", 1);
    assert_true(keys.overflow);
    values_text(&texts, "t", "a text that is much too long for this");
    assert_true(texts.overflow);
    assert_int_equal(texts.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(provenance_is_handed_down),
        cmocka_unit_test(words_that_are_not_utf8_are_repaired),
        cmocka_unit_test(long_pipelines_lose_the_oldest),
        cmocka_unit_test(a_reader_bounds_the_depth_itself),
        cmocka_unit_test(newer_streams_are_refused_but_not_newer_sources),
        cmocka_unit_test(absurd_models_are_refused),
        cmocka_unit_test(another_model_is_noticed),
        cmocka_unit_test(values_say_when_they_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

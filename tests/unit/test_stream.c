/* Streams: written records are read back, and incomplete or invalid streams are rejected. */
#include "tests/unit/stream.h"

#include <sys/resource.h>
#include <sys/wait.h>

#include "common/stream/bench.h"
#include "common/stream/coact.h"
#include "common/stream/show.h"

static void a_route_stream_comes_back(void **state)
{
    (void)state;
    struct text bytes = {0};
    struct reader *in = NULL;
    const struct record *record = NULL;
    struct err err = {0};
    small_stream(&bytes);
    assert_int_equal(reader_open_fd(&in, open("/dev/null", O_RDONLY), "test", bytes.data, bytes.length, STREAM_ROUTE, NULL,
                                    &err), 0);
    const struct header *header = reader_header(in);
    assert_string_equal(header->tool, "moe-test");
    assert_string_equal(header->tool_version, "0.1");
    assert_int_equal(header->argc, 3);
    assert_string_equal(header->argv[2], "a b");
    assert_true(header->has_seed && header->seed == UINT64_MAX);
    assert_string_equal(header->dtype, "bf16");
    assert_string_equal(header->device, "host");
    assert_string_equal(header_label_of(header, "inflated"), "64 to 2048");
    assert_int_equal(header->model.vocab, 16);
    assert_int_equal(strlen(header->model.source_sha256), 64);

    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_ptr_equal(record->kind, &route_begin_kind);
    const struct route_begin *begin = record->body;
    assert_int_equal(begin->sequence, 7);
    assert_string_equal(begin->id, "p\xc3\xa9");
    assert_null(begin->task);
    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_int_equal(record->index, 1);
    const struct route_tokens *route = record->body;
    assert_int_equal(route->n, 2);
    assert_int_equal(route->phase, PHASE_VERIFY);
    assert_int_equal(route->tokens[1], 15);
    assert_int_equal(route->parents[0], -1);
    assert_int_equal(route->accepted[1], 0);
    assert_int_equal(route->experts[5], -1);
    assert_true(route->weights[7] == 3.0f && route->mass[7] == 8.5 && route->probs[15] == 15.0f / 16);
    assert_true(isinf(route->logits[4]) && isnan(route->logits[5]) && route->logits[31] == 31.0f);
    assert_true(route->hidden[17] == -17.0f);
    assert_int_equal((uintptr_t)route->mass % 8, 0);
    int64_t sequence;
    assert_int_equal(record_int(record, "sequence", &sequence, &err), 0);
    assert_int_equal(sequence, 7);
    assert_int_equal(record_int(record, "phase", &sequence, &err), -1);
    assert_string_equal(err.text, "test: record 1 (route): key 'phase': is text, but must be an integer of 64 bits; the "
                        "stream is "
                        "damaged or of another version");
    err_clear(&err);
    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_int_equal(reader_next(in, &record, &err), 0);
    assert_int_equal(reader_next(in, &record, &err), 0);
    reader_close(&in);
    assert_null(in);
    text_free(&bytes);
}

static void a_decode_stream_comes_back(void **state)
{
    (void)state;
    static const int32_t nodes[3] = {1, 2, 3}, parents[3] = {-1, 0, 1}, tokens[2] = {2, 9}, layers[2] = {4, 3};
    static const float sure[3] = {NAN, 1, 0.25F}, too_sure[3] = {NAN, 1, 1.25F};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "d.moes");
    struct header header = {0};
    struct writer *out = NULL;
    struct reader *in = NULL;
    const struct record *record;
    struct err err = {0};
    struct decode_iter iter = {.sequence = 1, .t_us = 0.1, .K = 2, .nodes = 3, .drafted = 2, .accepted = 1, .emitted = 2,
                               .draft_us = 1e-9, .verify_us = 3, .experts_wanted = 7, .experts_loaded = 6,
                               .bytes = INT64_MAX, .node_tokens = nodes, .node_parents = parents, .tokens = tokens,
                               .experts_wanted_layer = layers, .node_acceptance = sure};
    values_int(&iter.policy, "K", -3);
    values_real(&iter.policy, "utility", 0.1);
    values_text(&iter.policy, "phase", "test");
    small_header(&header, STREAM_DECODE);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    const struct decode_machine machine = {.threads = 2, .device = "host", .isa = "avx2", .read_bandwidth = NAN};
    const struct decode_begin begin = {.sequence = 1, .task = "math", .prompt_tokens = 3, .prefill_us = 5, .prompt = nodes};
    const struct decode_done done = {.sequence = 1, .n = 2, .tokens = tokens, .text = "ab\xff" "c", .num_drafts = 1,
                                     .finish_reason = FINISH_LENGTH, .num_draft_tokens = 2, .num_accepted_tokens = 1};
    assert_int_equal(writer_record(out, &decode_machine_kind, &machine, &err), 0);
    assert_int_equal(writer_record(out, &decode_begin_kind, &begin, &err), 0);
    assert_int_equal(writer_record(out, &decode_iter_kind, &iter, &err), 0);
    iter.node_acceptance = too_sure;
    assert_int_equal(writer_record(out, &decode_iter_kind, &iter, &err), -1);
    assert_non_null(strstr(err.text, "the acceptance probability of node 2 is 1.25, not from 0 to 1"));
    assert_int_equal(writer_record(out, &decode_done_kind, &done, &err), 0);
    assert_int_equal(writer_close(&out, &err), 0);

    assert_int_equal(reader_open(&in, path, STREAM_DECODE, NULL, &err), 0);
    assert_int_equal(reader_next(in, &record, &err), 1);
    const struct decode_machine *on = record->body;
    assert_string_equal(on->isa, "avx2");
    assert_null(on->gpu);
    assert_true(isnan(on->read_bandwidth));
    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_int_equal(((const struct decode_begin *)record->body)->prompt[2], 3);
    assert_int_equal(reader_next(in, &record, &err), 1);
    const struct decode_iter *got = record->body;
    assert_true(got->t_us == 0.1 && got->draft_us == 1e-9 && got->bytes == INT64_MAX);
    assert_int_equal(got->node_tokens[2], 3);
    assert_true(isnan(got->node_acceptance[0]) && got->node_acceptance[2] == 0.25F);
    assert_int_equal(got->experts_wanted_layer[0], 4);
    assert_null(got->experts_loaded_layer);
    assert_int_equal(got->policy.count, 3);
    assert_true(values_number(&got->policy, "utility", 0) == 0.1);
    assert_true(values_number(&got->policy, "K", 0) == -3);
    assert_string_equal(values_find(&got->policy, "phase")->text, "test");
    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_string_equal(((const struct decode_done *)record->body)->text, "ab\xef\xbf\xbd" "c");
    assert_int_equal(((const struct decode_done *)record->body)->finish_reason, FINISH_LENGTH);
    assert_int_equal(reader_next(in, &record, &err), 0);
    reader_close(&in);
    header_free(&header);
    unit_remove(folder);
}

static void numbers_are_exact(void **state)
{
    (void)state;
    static const int64_t whole[] = {0, 1, -1, 127, 128, -32, -33, -128, -129, 255, 256, 65535, 65536, -32768, -32769, INT32_MAX,
                                    INT32_MIN, (int64_t)UINT32_MAX + 1, INT64_MAX, INT64_MIN};
    static const double real[] = {0, -0.0, 0.1, 1e308, -5e-324};
    char *folder = unit_folder(), key[8];
    const char *path = unit_path(folder, "n.moes");
    const struct reader_options options = {.ancillary = true};
    struct header header = {0};
    struct writer *out = NULL;
    struct reader *in = NULL;
    const struct record *record;
    struct record inner;
    struct err err = {0};
    bool flag = false;
    small_header(&header, STREAM_RANK);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    writer_begin(out, "x-numbers");
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "i%d", i);
        writer_int(out, key, whole[i]);
    }
    writer_map_begin(out, "inner");
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "r%d", i);
        writer_real(out, key, real[i]);
    }
    writer_map_begin(out, "deeper");
    writer_flag(out, "yes", true);
    writer_map_end(out);
    writer_map_end(out);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        uint8_t data[48];
        memset(data, t + 1, sizeof data);
        snprintf(key, sizeof key, "a%d", t);
        writer_array(out, key, (enum dtype)t, 3, (const uint64_t[]){1, 2, 3}, data);
    }
    writer_array(out, "none", DTYPE_F32, 2, (const uint64_t[]){0, 5}, NULL);
    writer_array(out, "one", DTYPE_I64, 0, NULL, &whole[18]);
    assert_int_equal(writer_end(out, &err), 0);
    assert_int_equal(writer_close(&out, &err), 0);

    assert_int_equal(reader_open(&in, path, STREAM_ANY, &options, &err), 0);
    assert_int_equal(reader_next(in, &record, &err), 1);
    assert_null(record->kind);
    for (int i = 0; i < 20; i++) {
        int64_t value = 0;
        snprintf(key, sizeof key, "i%d", i);
        assert_int_equal(record_int(record, key, &value, &err), 0);
        assert_true(value == whole[i]);
    }
    assert_int_equal(record_map(record, "inner", &inner, &err), 0);
    for (int i = 0; i < 5; i++) {
        double value = 1;
        snprintf(key, sizeof key, "r%d", i);
        assert_int_equal(record_real(&inner, key, &value, &err), 0);
        assert_memory_equal(&value, &real[i], sizeof value);
    }
    assert_int_equal(record_real(&inner, "r9", &(double){0}, &err), -1);
    assert_non_null(strstr(err.text, "n.moes: record 0 (x-numbers): key 'inner.r9': is missing"));
    assert_int_equal(record_map(&inner, "deeper", &inner, &err), 0);
    assert_int_equal(record_flag(&inner, "yes", &flag, &err), 0);
    assert_true(flag);
    for (int t = 0; t < DTYPE_COUNT; t++) {
        struct array array;
        uint8_t want[48];
        memset(want, t + 1, sizeof want);
        snprintf(key, sizeof key, "a%d", t);
        assert_int_equal(record_array_any(record, key, &array, &err), 0);
        assert_int_equal(array.dtype, t);
        assert_int_equal(array.count, 6);
        assert_int_equal(array.shape[2], 3);
        assert_memory_equal(array.data, want, 6 * array_dtype_size(array.dtype));
    }
    const void *data;
    assert_int_equal(record_array(record, "none", DTYPE_F32, 2, (const uint64_t[]){0, 5}, &data, &err), 0);
    assert_int_equal(record_array(record, "one", DTYPE_I64, 0, NULL, &data, &err), 0);
    assert_true(*(const int64_t *)data == INT64_MAX);
    err_clear(&err);
    assert_int_equal(record_array(record, "a7", DTYPE_F64, 2, (const uint64_t[]){1, 6}, &data, &err), -1);
    assert_non_null(strstr(err.text, "key 'a7': is f32 [1][2][3], but must be f64 [1][6]"));
    err_clear(&err);
    assert_int_equal(reader_next(in, &record, &err), 0);
    reader_close(&in);
    header_free(&header);
    unit_remove(folder);
}

static void every_cut_is_noticed(void **state)
{
    (void)state;
    struct text bytes = {0};
    struct err err = {0};
    small_stream(&bytes);
    if (read_bytes(bytes.data, bytes.length, &err))
        fail_msg("%s", err.text);
    for (size_t cut = 0; cut < bytes.length; cut++) {
        char *exact = mem_copy(bytes.data, cut, &err);          /* so that a read beyond the end is detected */
        struct err why = {0};
        if (read_bytes(exact, cut, &why) != -1 || !why.text[0])
            fail_msg("a stream cut at byte %zu was taken for whole", cut);
        if (cut > 200 && !strstr(why.text, "truncated"))
            fail_msg("cut at byte %zu: %s", cut, why.text);
        mem_free(&exact);
    }
    text_free(&bytes);
}

static void every_changed_byte_is_noticed(void **state)
{
    (void)state;
    struct text bytes = {0};
    small_stream(&bytes);
    for (size_t at = 0; at < bytes.length; at++)
        for (int flip = 1; flip < 256; flip++) {
            struct err why = {0};
            bool framing = at < 32 || at + 120 > bytes.length;
            if (unit_brief() ? flip != 1 << at % 8 : !framing && (flip & (flip - 1)))
                continue;                       /* one bit at a time where the digest decides, every value elsewhere */
            bytes.data[at] = (char)(bytes.data[at] ^ flip);
            if (read_bytes(bytes.data, bytes.length, &why) != -1 || !why.text[0])
                fail_msg("byte %zu changed by 0x%02x was not noticed", at, flip);
            bytes.data[at] = (char)(bytes.data[at] ^ flip);
        }
    text_free(&bytes);
}

static void joined_streams_are_refused(void **state)
{
    (void)state;
    struct text bytes = {0}, twice = {0};
    struct err err = {0};
    small_stream(&bytes);
    for (size_t more = 1; more <= bytes.length; more += bytes.length - 1) {     /* one byte after, and a whole stream */
        err_clear(&err);
        text_clear(&twice);
        text_put(&twice, bytes.data, bytes.length, &err);
        text_put(&twice, bytes.data, more, &err);
        assert_int_equal(read_bytes(twice.data, twice.length, &err), -1);
        assert_non_null(strstr(err.text, "the end record is followed by more bytes"));
    }
    for (size_t at = 0; at < bytes.length; at += unit_brief() ? 3 : 1) {        /* garbage, and a copy of itself, in between */
        static const char garbage[] = "\x93\xa1x\x01\x80";
        text_clear(&twice);
        text_put(&twice, bytes.data, at, &err);
        text_put(&twice, garbage, at % 5 + 1, &err);
        text_put(&twice, bytes.data + at, bytes.length - at, &err);
        assert_int_equal(read_bytes(twice.data, twice.length, NULL), -1);
    }
    text_free(&twice);
    text_free(&bytes);
}

/* Makes a stream of the guard, a plain header, and `tail`. */
static void with_tail(struct text *out, const void *tail, size_t bytes)
{
    struct header header = {0};
    struct err err = {0};
    text_clear(out);
    text_put(out, FRAME_GUARD "\x01\0\0\0", FRAME_BYTES, &err);
    small_header(&header, STREAM_RANK);
    assert_int_equal(header_encode(&header, out, &err), 0);
    header_free(&header);
    text_put(out, tail, bytes, &err);
}

#define refused(tail, words) refused_(tail, sizeof tail - 1, words)
static void refused_(const char *tail, size_t bytes, const char *words)
{
    struct text stream = {0};
    struct err err = {0};
    with_tail(&stream, tail, bytes);
    assert_int_equal(read_bytes(stream.data, stream.length, &err), -1);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    text_free(&stream);
}

static void claims_are_not_believed(void **state)
{
    (void)state;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    refused("\x93\xa4rank\x00\xdd\x05\xff\xff\xff\xc0", "more than the limit of 1048576 values");
    refused("\xdd\xff\xff\xff\xff", "more than the limit");
    refused("\xdf\xff\xff\xff\xff", "more than the limit");
    refused("\xdd\x00\x0f\xff\xf0\xc0", "truncated");
    refused("\x93\xa4rank\x00\xc9\x3f\x00\x00\x00\x41", "truncated");
    refused("\x93\xa4rank\x00\xc9\x7f\xff\xff\xff\x41", "more than the limit of 1073741824");
    refused("\x93\xa4rank\x00\xdb\xff\xff\xff\xff", "more than the limit");
    refused("\x93\xa4rank\x00\xc6\xff\xff\xff\xff", "more than the limit");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 * 1024);
}

static void nonsense_is_named(void **state)
{
    (void)state;
    char deep[64];
    memset(deep, '\x91', sizeof deep);
    refused_(deep, sizeof deep, "nested more than 32 deep");
    refused("\xc1", "does not begin a msgpack value");
    refused("\x93\xa2\xff\xfe\x00\x80", "not UTF-8");
    refused("\x00", "there is no record");
    refused("\x93\xa0\x00\x80", "a record has no type");
    refused("\x93\xa4rank\x01\x80", ") has another number");
    refused("\x93\xa4" "Rank\x00\x80", "has type 'Rank', which is unknown in rank streams");
    refused("\x93\xa3" "foo\x00\x80", "has type 'foo'");
    refused("\x93\xa4rank\x00\xc0", "payload is not a map");
    refused("\x93\xa4rank\x00\x80", "key 'layer': is missing");
    refused("\x93\xa4rank\x00\x81\xa5layer\xff", "must be from 0");
    refused("\x93\xa4rank\x00\x82\xa5layer\x00\xa5layer\x00", "occurs twice");
    refused("\x93\xa4rank\x00\x81\x01\x00", "a key is an integer");
    refused("\x93\xa5" "abort\x00\x81\xa7message\xa8no space", "test: is incomplete, because its producer, moe-test, failed: "
            "no space");
    refused("\x93\xa3" "end\x00\x80", "end record: key 'records': is missing");
    refused("\x93\xa3" "end\x00\x81\xa7records\x81\xa4rank\x01", "record counts of the end record are wrong");
    refused("\x93\xa3" "x-a\x00\x80\x93\xa3" "end\x01\x81\xa7records\x81\xa3x-a\x02", "record counts of the end record are "
            "wrong");
    refused("\x93\xa3" "x-a\x00\x80\x93\xa3" "end\x01\x81\xa7records\x80", "record counts of the end record are wrong");
    refused("\x93\xa3" "end\x00\x82\xa7records\x80\xa5" "bytes\x05", "counts 5 bytes");
    refused("\x93\xa3" "x-a\x00\x80\x93\xa3" "x-a\x02\x80", "record 1 (x-a) has another number");
}

static void text_conversion_is_named(void **state)
{
    (void)state;
    struct err err = {0};
    assert_int_equal(read_bytes("\xc7\x0c\x4d\x89MOE\n\x1a\n\1\0\0\0\x80", 15, &err), -1);
    assert_non_null(strstr(err.text, "line ends"));
    err_clear(&err);
    assert_int_equal(read_bytes("{\"prompt\": \"a\"}\n", 16, &err), -1);
    assert_non_null(strstr(err.text, "not a moekit stream"));
    err_clear(&err);
    assert_int_equal(read_bytes("", 0, &err), -1);
    assert_non_null(strstr(err.text, "empty"));
    err_clear(&err);
    assert_int_equal(read_bytes(FRAME_GUARD "\x02\0\0\0\x80", 16, &err), -1);
    assert_non_null(strstr(err.text, "framing version 2.0"));
}

/* A record that the table of its kind allows but that is inconsistent. */
static void no_record(enum stream_kind stream, const struct record_kind *kind, const void *body, const char *words)
{
    char *folder = unit_folder();
    struct header header = {0};
    struct writer *out = NULL;
    struct err err = {0};
    small_header(&header, stream);
    assert_int_equal(writer_open(&out, unit_path(folder, "s.moes"), &header, &err), 0);
    assert_int_equal(writer_record(out, kind, body, &err), -1);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    writer_abort(&out, &err);
    assert_int_equal(access(unit_path(folder, "s.moes"), F_OK), -1);
    header_free(&header);
    unit_remove(folder);
}

static void records_must_make_sense(void **state)
{
    (void)state;
    static const int32_t twice[4] = {0, 1, 1, 3}, order[4] = {3, 1, 0, 2}, tokens[1] = {16};
    static const double score[4] = {0};
    static const int16_t experts[4] = {0, 1, 4, 2};
    static const float weights[4] = {0};
    const struct route_tokens route = {.sequence = 1, .n = 1, .tokens = tokens, .experts = experts, .weights = weights};
    const struct decode_iter iter = {.sequence = 1, .nodes = 1};
    no_record(STREAM_RANK, &rank_layer_kind, &(struct rank_layer){0, "mass", -1, twice, score}, "not a permutation: expert 1");
    no_record(STREAM_RANK, &rank_layer_kind, &(struct rank_layer){2, "mass", -1, order, score}, "layer 2 does not exist");
    no_record(STREAM_RANK, &rank_layer_kind, &(struct rank_layer){1, "mass", 5, order, score}, "the budget is 5");
    no_record(STREAM_RANK, &rank_layer_kind, &(struct rank_layer){1, NULL, 2, order, score}, "key 'method' has no value");
    no_record(STREAM_RANK, &rank_layer_kind, &(struct rank_layer){-2, "mass", 2, order, score}, "key 'layer' is negative");
    no_record(STREAM_RANK, &route_begin_kind, &(struct route_begin){.sequence = 1}, "not a record type of rank streams");
    no_record(STREAM_ROUTE, &route_tokens_kind, &route, "sequence 1 is used before its begin record or after its end");
    no_record(STREAM_ROUTE, &route_end_kind, &(struct route_end){3}, "sequence 3 is used before its begin record");
    no_record(STREAM_DECODE, &decode_iter_kind, &iter, "sequence 1 is used");
}

static void inside_a_sequence_too(void **state)
{
    (void)state;
    char *folder = unit_folder();
    struct header header = {0};
    struct writer *out = NULL;
    struct err err = {0};
    int32_t tokens[1] = {16}, parents[1] = {0};
    int16_t experts[4] = {0, 1, 4, 2};
    float weights[4] = {0};
    const struct route_begin begin = {.sequence = 1};
    struct route_tokens route = {.sequence = 1, .n = 1, .tokens = tokens, .experts = experts, .weights = weights};
    const struct { const char *words; } steps[] = {
        {"token 0 is 16, outside the vocabulary of 16"}, {"expert 4 does not exist, the model has 4"}, {"token 0 has parent 0"},
        {"experts or weights are missing"}, {"there are experts or weights, although the model has no experts"}};
    small_header(&header, STREAM_ROUTE);
    for (int step = 0; step < 5; step++) {
        if (step == 4)
            header.model.moe_layers = header.model.experts = header.model.top_k = 0;
        assert_int_equal(writer_open(&out, unit_path(folder, "s.moes"), &header, &err), 0);
        assert_int_equal(writer_record(out, &route_begin_kind, &begin, &err), 0);
        if (step == 1)
            tokens[0] = 15;
        if (step == 2) {
            experts[2] = 3;
            route.parents = parents;
        }
        if (step == 3) {
            route.parents = NULL;
            route.weights = NULL;
        }
        assert_int_equal(writer_record(out, &route_tokens_kind, &route, &err), -1);
        if (!strstr(err.text, steps[step].words))
            fail_msg("'%s' does not say '%s'", err.text, steps[step].words);
        writer_abort(&out, &err);
        err_clear(&err);
    }
    assert_int_equal(writer_open(&out, unit_path(folder, "s.moes"), &header, &err), 0);
    assert_int_equal(writer_record(out, &route_begin_kind, &begin, &err), 0);
    assert_int_equal(writer_close(&out, &err), -1);
    assert_non_null(strstr(err.text, "sequence 1 has a beginning, but no end"));
    assert_null(out);
    assert_int_equal(access(unit_path(folder, "s.moes"), F_OK), -1);
    header_free(&header);
    unit_remove(folder);
}

static void no_sequence_is_left_open(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "s.moes");
    struct header header = {0};
    struct writer *out = NULL;
    struct text bytes = {0};
    struct err err = {0};
    small_header(&header, STREAM_ROUTE);
    assert_int_equal(writer_open(&out, path, &header, &err), 0);
    writer_begin(out, "begin");                 /* by hand, to bypass the writer's check */
    writer_int(out, "sequence", 4);
    writer_int(out, "prompt_tokens", 0);
    assert_int_equal(writer_end(out, &err), 0);
    assert_int_equal(writer_close(&out, &err), 0);
    assert_int_equal(file_read(&bytes, path, 1 << 20, &err), 0);
    assert_int_equal(read_bytes(bytes.data, bytes.length, &err), -1);
    assert_string_equal(err.text, "test: sequence 4 has a beginning, but no end; the stream is damaged");
    text_free(&bytes);
    header_free(&header);
    unit_remove(folder);
}

/* Starts a child that writes to a pipe what `produce` makes; the parent reads meanwhile. */
static int piped(int (*produce)(struct writer *, int wait_fd), struct err *err, int *records)
{
    char *folder = unit_folder(), *fifo = strdup(unit_path(folder, "fifo"));
    int go[2];
    assert_int_equal(pipe(go), 0);
    char command[1300];
    snprintf(command, sizeof command, "mkfifo '%s'", fifo);
    assert_int_equal(system(command), 0);
    pid_t child = fork();
    if (!child) {
        struct header header = {0};
        struct writer *out = NULL;
        alarm(20);
        small_header(&header, STREAM_ROUTE);
        close(go[1]);
        int rc = writer_open(&out, fifo, &header, NULL) || produce(out, go[0]);
        _exit(rc);
    }
    struct reader *in = NULL;
    const struct record *record;
    int more = reader_open(&in, fifo, STREAM_ROUTE, NULL, err);
    *records = 0;
    while (!more && (more = reader_next(in, &record, err)) > 0) {
        more = 0;
        ++*records;
        if (write(go[1], "g", 1) != 1)              /* the child continues only after its record was read */
            break;
        if (*records == 3) {
            more = reader_next(in, &record, err);
            break;
        }
    }
    reader_close(&in);
    close(go[0]);                                   /* kept open until here: the child reads it */
    close(go[1]);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    free(fifo);
    unit_remove(folder);
    return more;
}

static int one_record(struct writer *out, int wait_fd, int64_t sequence)
{
    char go;
    const struct route_begin begin = {.sequence = sequence};
    return writer_record(out, &route_begin_kind, &begin, NULL) || writer_flush(out, NULL) || read(wait_fd, &go, 1) != 1;
}

static int produce_and_abort(struct writer *out, int wait_fd)
{
    struct err err = {0};
    if (one_record(out, wait_fd, 1) || one_record(out, wait_fd, 2))
        return 1;
    err_set(&err, ERR_INPUT, "the disk is \xff full");
    writer_abort(&out, &err);
    return out != NULL;
}

static int produce_and_end(struct writer *out, int wait_fd)
{
    const struct route_end end = {1};
    if (one_record(out, wait_fd, 1) || writer_record(out, &route_end_kind, &end, NULL))
        return 1;
    writer_begin(out, "x-note");
    writer_text(out, "note", "skipped");
    return writer_end(out, NULL) || writer_close(&out, NULL);
}

static int produce_and_die(struct writer *out, int wait_fd)
{
    return one_record(out, wait_fd, 1);
}

static void records_arrive_as_they_are_written(void **state)
{
    (void)state;
    struct err err = {0};
    int records;
    assert_int_equal(piped(produce_and_end, &err, &records), 0);
    assert_int_equal(records, 2);
    assert_int_equal(piped(produce_and_abort, &err, &records), -1);
    assert_int_equal(records, 2);
    assert_non_null(strstr(err.text, "its producer, moe-test, failed: the disk is \xef\xbf\xbd full"));
    err_clear(&err);
    assert_int_equal(piped(produce_and_die, &err, &records), -1);
    assert_int_equal(records, 1);
    assert_non_null(strstr(err.text, "truncated"));
}

static void records_are_passed_on(void **state)
{
    (void)state;
    struct text bytes = {0}, copied = {0};
    struct reader *in = NULL;
    struct writer *out = NULL;
    const struct record *record;
    struct err err = {0};
    char *folder = unit_folder();
    int more;
    small_stream(&bytes);
    assert_int_equal(reader_open_fd(&in, open("/dev/null", O_RDONLY), "test", bytes.data, bytes.length, STREAM_ROUTE, NULL,
                                    &err), 0);
    assert_int_equal(writer_open(&out, unit_path(folder, "c.moes"), reader_header(in), &err), 0);
    while ((more = reader_next(in, &record, &err)) > 0)
        assert_int_equal(writer_copy(out, record, &err), 0);
    assert_int_equal(more, 0);
    assert_int_equal(writer_close(&out, &err), 0);
    assert_int_equal(file_read(&copied, unit_path(folder, "c.moes"), 1 << 20, &err), 0);
    assert_int_equal(copied.length, bytes.length);
    assert_memory_equal(copied.data, bytes.data, bytes.length);
    reader_close(&in);
    text_free(&bytes);
    text_free(&copied);
    unit_remove(folder);
}

static void writers_keep_the_first_fault(void **state)
{
    (void)state;
    struct header header = {0};
    struct writer *out = NULL;
    struct err err = {0};
    char *folder = unit_folder();
    small_header(&header, STREAM_RANK);
    assert_int_equal(writer_open(&out, unit_path(folder, "f.moes"), &header, &err), 0);
    writer_begin(out, "x-big");
    writer_array(out, "huge", DTYPE_F64, 2, (const uint64_t[]){1 << 20, 1 << 20}, NULL);
    writer_int(out, "next", 1);
    assert_int_equal(writer_end(out, &err), -1);
    assert_non_null(strstr(err.text, "key 'huge' is larger than a record may be"));
    err_clear(&err);
    assert_int_equal(writer_close(&out, &err), -1);
    assert_non_null(strstr(err.text, "key 'huge'"));
    assert_int_equal(access(unit_path(folder, "f.moes"), F_OK), -1);
    err_clear(&err);
    assert_int_equal(writer_open(&out, "/dev/full", &header, &err), 0);
    assert_int_equal(writer_close(&out, &err), -1);
    assert_int_equal(err.code, ERR_IO);
    header_free(&header);
    unit_remove(folder);
}

static void terminals_are_spared(void **state)
{
    (void)state;
    struct header header = {0};
    struct writer *out = NULL;
    struct err err = {0};
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    small_header(&header, STREAM_RANK);
    assert_int_equal(writer_open(&out, ptsname(master), &header, &err), -1);
    assert_non_null(strstr(err.text, "a stream is binary and is not written to a terminal"));
    assert_null(out);
    struct reader *in = NULL;
    err_clear(&err);
    assert_int_equal(reader_open(&in, ptsname(master), STREAM_RANK, NULL, &err), -1);
    assert_non_null(strstr(err.text, "is a terminal, from which no stream can be read"));
    close(master);
    header_free(&header);
}

static void the_bytes_are_as_ever(void **state)
{
    (void)state;
    struct text bytes = {0}, golden = {0};
    struct err err = {0};
    char path[1200];
    snprintf(path, sizeof path, "%s/../golden/stream/route.moes", unit_models());
    small_stream(&bytes);
    assert_int_equal(file_read(&golden, path, 1 << 20, &err), 0);
    assert_int_equal(bytes.length, golden.length);
    assert_memory_equal(bytes.data, golden.data, golden.length);
    text_free(&bytes);
    text_free(&golden);
}

static void another_kind_is_refused(void **state)
{
    (void)state;
    struct text bytes = {0};
    struct reader *in = NULL;
    struct err err = {0};
    small_stream(&bytes);
    assert_int_equal(reader_open_fd(&in, open("/dev/null", O_RDONLY), "r.moes", bytes.data, bytes.length, STREAM_RANK, NULL,
                                    &err), -1);
    assert_string_equal(err.text, "r.moes: is a route stream; expected a rank stream");
    assert_null(in);
    text_free(&bytes);
}

/* In maps whose keys are not texts, members after such a key are shown, too. */
static void keys_of_any_type_show(void **state)
{
    (void)state;
    static const char payload[] = "\x82\xa1x\x84\x92\x01\x02\x07\x81\xa1z\x03\x05\x04\x06\xa1" "b\x08\xa1y\x09";
    struct record_memory memory = {0};
    struct record record = {.type = "foo", .file = "r.moes", .payload = (const uint8_t *)payload,
                            .payload_end = (const uint8_t *)payload + sizeof payload - 1, .memory = &memory};
    const struct show_filter all = {NULL, -1, -1};
    struct show *show = NULL;
    struct text shown = {0};
    struct err err = {0};
    char *folder = unit_folder();
    assert_int_equal(record_index(&record, &err), 0);
    assert_int_equal(show_open(&show, unit_path(folder, "shown"), SHOW_JSON, &err), 0);
    assert_int_equal(show_record(show, &record, &all, &err), 1);
    assert_int_equal(show_close(&show, &err), 0);
    assert_int_equal(file_read(&shown, unit_path(folder, "shown"), 1000, &err), 0);
    if (!strstr(shown.data, "\"x\": {\"key 0\": 7, \"key 1\": 5, \"key 2\": 6, \"b\": 8}, \"y\": 9}"))
        fail_msg("%s", shown.data);
    text_free(&shown);
    record_memory_free(&memory);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_are_not_believed),      /* first: it measures the process's memory */
        cmocka_unit_test(a_route_stream_comes_back),
        cmocka_unit_test(a_decode_stream_comes_back),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(every_cut_is_noticed),
        cmocka_unit_test(every_changed_byte_is_noticed),
        cmocka_unit_test(joined_streams_are_refused),
        cmocka_unit_test(nonsense_is_named),
        cmocka_unit_test(text_conversion_is_named),
        cmocka_unit_test(records_must_make_sense),
        cmocka_unit_test(inside_a_sequence_too),
        cmocka_unit_test(no_sequence_is_left_open),
        cmocka_unit_test(records_arrive_as_they_are_written),
        cmocka_unit_test(records_are_passed_on),
        cmocka_unit_test(writers_keep_the_first_fault),
        cmocka_unit_test(terminals_are_spared),
        cmocka_unit_test(the_bytes_are_as_ever),
        cmocka_unit_test(another_kind_is_refused),
        cmocka_unit_test(keys_of_any_type_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

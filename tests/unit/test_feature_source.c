/* Feature streams read text by text: written data are returned in the requested order, from files and pipes; streams of
 * other models or states, truncated and damaged ones are rejected. */
#include "tests/unit/stream.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "common/base/float.h"
#include "common/stream/feature.h"
#include "common/train/feature_source.h"
#include "common/train/source_stream.h"

enum { HIDDEN = 3, LONGEST = 700, POINTS = 3 };

static const int32_t every_point[POINTS] = {0, 2, 3};           /* of 3 layers: 3 is after the final norm */

/* Contents of the stream to write, any of which may be wrong. */
struct wanted {
    int texts, n[4], piece;
    bool validation[4];
    enum dtype dtype;
    int silent;                     /* index of the text without an answer; -1: none */
    int odd_text, odd_token;        /* text and token with a state of value `odd` */
    float odd;
};

static int32_t token_at(int text, int i) { return (text * 5 + i * 3) % 16; }
static uint8_t mask_at(const struct wanted *wanted, int text, int i) { return text != wanted->silent && i >= 2; }

static float state_at(const struct wanted *wanted, int text, int point, int i, int h)
{
    float value = (float)(text * 10000 + point * 1000 + i) / 64 + (float)h / 4;
    if (text == wanted->odd_text && i == wanted->odd_token && h == 1)
        return wanted->odd;
    return wanted->dtype == DTYPE_BF16 ? bf16_to_f32(f32_to_bf16(value)) : value;
}

static const struct wanted plain = {.texts = 2, .n = {5, 9}, .piece = 4, .dtype = DTYPE_F32, .silent = -1, .odd_text = -1};

static void put(struct writer *writer, const struct record_kind *kind, const void *body)
{
    struct err err = {0};
    if (writer_record(writer, kind, body, &err))
        fail_msg("%s", err.text);
}

static void put_piece(struct writer *writer, const struct wanted *wanted, int text, int pos, int n)
{
    static int32_t token[LONGEST];
    static uint8_t mask[LONGEST];
    static float wide[POINTS * LONGEST * HIDDEN];
    static uint16_t narrow[POINTS * LONGEST * HIDDEN];
    for (int i = 0; i < n; i++) {
        token[i] = token_at(text, pos + i);
        mask[i] = mask_at(wanted, text, pos + i);
        for (int p = 0; p < POINTS; p++)
            for (int h = 0; h < HIDDEN; h++) {
                float value = state_at(wanted, text, every_point[p], pos + i, h);
                wide[(p * n + i) * HIDDEN + h] = value;
                narrow[(p * n + i) * HIDDEN + h] = (uint16_t)(float_to_bits(value) >> 16);
            }
    }
    put(writer, &feature_states_kind, &(struct feature_states){
        .sequence = text, .pos = pos, .n = n, .tokens = token, .mask = mask, .points = POINTS, .point = every_point,
        .values = {wanted->dtype == DTYPE_F32 ? (const void *)wide : narrow, wanted->dtype}});
}

static void write_texts(const char *path, const struct wanted *wanted)
{
    struct header header = {0};
    struct writer *writer = NULL;
    struct err err = {0};
    char id[16];
    small_header(&header, STREAM_FEATURE);
    if (writer_open(&writer, path, &header, &err))
        fail_msg("%s", err.text);
    for (int text = 0; text < wanted->texts; text++) {
        snprintf(id, sizeof id, "t%d", text);
        put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = text, .id = id, .prompt_tokens = 2,
                                                                 .text_tokens = wanted->n[text],
                                                                 .validation = wanted->validation[text]});
        for (int pos = 0; pos < wanted->n[text]; pos += wanted->piece)
            put_piece(writer, wanted, text, pos, wanted->n[text] - pos < wanted->piece ? wanted->n[text] - pos : wanted->piece);
        put(writer, &route_end_kind, &(struct route_end){text});
    }
    if (writer_close(&writer, &err))
        fail_msg("%s", err.text);
    header_free(&header);
}

static struct stream_model target(void)
{
    struct header header = {0};
    small_header(&header, STREAM_FEATURE);
    struct stream_model model = header.model;
    header_free(&header);
    return model;
}

static const int asked[] = {3, 0, 3};               /* not in the stream's order, and one state twice */

static struct feature_source_setup setup_of(const char *path, const struct stream_model *model)
{
    return (struct feature_source_setup){.path = path, .target = model, .states = 3, .state = asked};
}

static void check_text(const struct feature_text *text, const struct wanted *wanted, int number, int n, const int *state,
                       int states)
{
    char id[16];
    snprintf(id, sizeof id, "t%d", number);
    assert_int_equal(text->ordinal, number);
    assert_string_equal(text->id, id);
    assert_null(text->task);
    assert_int_equal(text->prompt_tokens, 2);
    assert_int_equal(text->n, n);
    assert_int_equal(text->learnt, n > 2 ? n - 2 : 0);
    assert_true(text->validation == wanted->validation[number]);
    for (int i = 0; i < n; i++) {
        assert_int_equal(text->tokens[i], token_at(number, i));
        assert_int_equal(text->mask[i], mask_at(wanted, number, i));
        for (int s = 0; s < states; s++)
            for (int h = 0; h < HIDDEN; h++)
                assert_true(text->states[(s * n + i) * HIDDEN + h] == state_at(wanted, number, state[s], i, h));
    }
}

/* Reads all texts of one part, cut; returns their number. */
static int read_texts(const struct feature_source_setup *setup, const struct wanted *wanted)
{
    struct feature_source *source = NULL;
    const struct feature_text *text;
    struct text note = {0};
    struct err err = {0};
    int more, count = 0;
    if (feature_source_open(&source, setup, &note, &err))
        fail_msg("%s", err.text);
    for (; (more = feature_source_next(source, &text, &err)) > 0; count++) {
        int number = (int)text->ordinal, n = wanted->n[number];
        check_text(text, wanted, number, setup->cut && n > setup->cut ? setup->cut : n, setup->state, setup->states);
        if (setup->part != FEATURES_ALL)
            assert_true(text->validation == (setup->part == FEATURES_VALIDATION));
    }
    if (more)
        fail_msg("%s", err.text);
    assert_int_equal(feature_source_next(source, &text, &err), 0);
    feature_source_close(&source);
    assert_null(note.data);
    return count;
}

static void texts_come_as_they_were_written(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    /* short texts after long ones, pieces of odd lengths, buffers that grow within a text */
    static const struct wanted several[] = {
        {.texts = 4, .n = {9, 700, 1 + 2, 130}, .piece = 64, .validation = {false, true, true}, .silent = -1, .odd_text = -1},
        {.texts = 3, .n = {699, 3, 3}, .piece = 7, .silent = -1, .odd_text = -1}};
    for (size_t i = 0; i < 2; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct wanted wanted = several[i];
            wanted.dtype = narrow ? DTYPE_BF16 : DTYPE_F32;
            write_texts(path, &wanted);
            struct feature_source_setup setup = setup_of(path, &model);
            assert_int_equal(read_texts(&setup, &wanted), wanted.texts);
            setup.cut = 65;
            assert_int_equal(read_texts(&setup, &wanted), wanted.texts);
            setup.cut = 2;                              /* no answer remains after the cut: not an error */
            assert_int_equal(read_texts(&setup, &wanted), wanted.texts);
            setup.cut = 0;
            setup.part = FEATURES_VALIDATION;
            assert_int_equal(read_texts(&setup, &wanted), i ? 0 : 2);
            setup.part = FEATURES_TRAINING;
            assert_int_equal(read_texts(&setup, &wanted), i ? 3 : 2);
            setup.states = 1;
            setup.state = (const int[]){2};
            setup.part = FEATURES_ALL;
            assert_int_equal(read_texts(&setup, &wanted), wanted.texts);
        }
    unit_remove(folder);
}

/* Through a pipe whose writer pauses after every few bytes. */
static void a_pipe_will_do(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes"), *fifo = unit_path(folder, "pipe");
    const struct stream_model model = target();
    struct text bytes = {0};
    struct err err = {0};
    write_texts(path, &plain);
    assert_int_equal(file_read(&bytes, path, 1 << 20, &err), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        int fd = open(fifo, O_WRONLY);
        for (size_t at = 0; fd >= 0 && at < bytes.length;) {
            size_t left = bytes.length - at;
            ssize_t put = write(fd, bytes.data + at, left < 97 ? left : 97);
            if (put < 0)
                break;
            at += (size_t)put;
        }
        _exit(0);
    }
    struct feature_source_setup setup = setup_of(fifo, &model);
    assert_int_equal(read_texts(&setup, &plain), 2);
    waitpid(child, NULL, 0);
    text_free(&bytes);
    unit_remove(folder);
}

/* In any order, several times: from a file, and from a pipe that is copied to a file. */
static void texts_can_be_read_again(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes"), *fifo = unit_path(folder, "pipe");
    const struct stream_model model = target();
    const struct wanted wanted = {.texts = 4, .n = {9, 300, 3, 130}, .piece = 64, .validation = {false, true},
                                  .dtype = DTYPE_F32, .silent = -1, .odd_text = -1};
    write_texts(path, &wanted);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    for (int way = 0; way < 3; way++) {
        static const int order[] = {2, 0, 1, 1, 2, 0}, number[] = {0, 2, 3};
        struct feature_source_setup setup = setup_of(way ? fifo : path, &model);
        struct feature_source *source = NULL;
        const struct feature_text *text;
        struct err err = {0};
        int64_t texts = 0;
        pid_t child = 0;
        setup.part = FEATURES_TRAINING;
        setup.cut = 200;
        setup.folder = way == 2 ? NULL : folder;
        if (way && !(child = fork())) {
            char command[2600];
            snprintf(command, sizeof command, "cat '%s' > '%s'", path, fifo);
            _exit(system(command) != 0);
        }
        if (feature_source_open(&source, &setup, NULL, &err))
            fail_msg("%s", err.text);
        if (way == 2) {                     /* in the stream's order, once */
            assert_int_equal(feature_source_index(source, &texts, &err), -1);
            assert_non_null(strstr(err.text, "a pipe can be read only once"));
            feature_source_close(&source);
            waitpid(child, NULL, 0);
            continue;
        }
        if (feature_source_index(source, &texts, &err))
            fail_msg("%s", err.text);
        assert_int_equal(texts, 3);
        for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
            if (feature_source_read(source, order[i], &text, &err))
                fail_msg("%s", err.text);
            check_text(text, &wanted, number[order[i]], wanted.n[number[order[i]]], asked, 3);
        }
        feature_source_close(&source);
        if (child)
            waitpid(child, NULL, 0);
    }
    unit_remove(folder);
}

/* As training reads them: by number, or in the stream's order; cut further by the caller. */
static void texts_come_as_training_takes_them(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    struct digest128 digest[2];
    write_texts(path, &plain);
    for (int any_order = 0; any_order < 2; any_order++) {
        const struct feature_source_setup setup = setup_of(path, &model);
        struct feature_source *features = NULL;
        struct train_source source = {0};
        struct train_text text;
        struct err err = {0};
        assert_int_equal(feature_source_open(&features, &setup, NULL, &err), 0);
        struct feature_source *kept = features;
        assert_int_equal(source_stream_open(&source, &features, any_order, &err), 0);
        assert_null(features);
        assert_int_equal(source.texts, any_order ? 2 : -1);
        for (int i = 0; i < 2; i++) {
            int number = any_order ? 1 - i : i, n = plain.n[number] < 7 ? plain.n[number] : 7;
            assert_int_equal(source.read(source.self, number, 7, &text, &err), 1);
            assert_int_equal(text.tokens, n);
            assert_non_null(strstr(text.name, number ? "f.moes: text 1 (t1)" : "f.moes: text 0 (t0)"));
            for (int t = 0; t < n; t++) {
                assert_int_equal(text.token[t], token_at(number, t));
                assert_int_equal(text.mask[t], mask_at(&plain, number, t));
                for (int s = 0; s < 3; s++)
                    for (int h = 0; h < HIDDEN; h++)
                        assert_true(text.state[s][t * HIDDEN + h] == state_at(&plain, number, asked[s], t, h));
            }
        }
        if (!any_order)
            assert_int_equal(source.read(source.self, 2, 7, &text, &err), 0);
        digest[any_order] = feature_source_digest(kept);
        train_source_close(&source);
    }
    assert_true(digest[0].low == digest[1].low && digest[0].high == digest[1].high);
    unit_remove(folder);
}

/* Reads everything and returns the error's text (malloc'ed); a missing error ends the test. */
static char *fault_of(const struct feature_source_setup *setup)
{
    struct feature_source *source = NULL;
    const struct feature_text *text;
    struct text note = {0};
    struct err err = {0};
    int more = feature_source_open(&source, setup, &note, &err) ? -1 : 1;
    while (more > 0)
        more = feature_source_next(source, &text, &err);
    feature_source_close(&source);
    text_free(&note);
    assert_int_equal(more, -1);
    assert_int_equal(err.code, ERR_INPUT);
    assert_null(strchr(err.text, '\n'));
    return strdup(err.text);
}

static void refuses(const struct feature_source_setup *setup, const char *words)
{
    char *fault = fault_of(setup);
    if (!strstr(fault, words) || !strstr(fault, "f.moes"))
        fail_msg("\"%s\" does not say: %s", fault, words);
    free(fault);
}

static void other_models_and_states_are_refused(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    struct stream_model model = target();
    struct feature_source_setup setup = setup_of(path, &model);
    struct text note = {0};
    struct err err = {0};
    struct feature_source *source = NULL;
    write_texts(path, &plain);
    setup.states = 2;
    setup.state = (const int[]){0, 1};
    refuses(&setup, "text 0 (t0): it lacks the states after layer 1, which the head needs; it was made with --layers "
            "0,2,final");
    setup = setup_of(path, &model);
    model.layers = 4;                                           /* the same numbers then mean other states */
    refuses(&setup, "which differs from tiny (");
    model = target();
    model.hidden = 4;
    refuses(&setup, "which differs from tiny (");
    model = target();
    model.tokenizer_sha256[0] = 'd';
    refuses(&setup, "or use --force");
    setup.force = true;
    assert_int_equal(feature_source_open(&source, &setup, &note, &err), 0);
    assert_non_null(strstr(note.data, "used because of --force"));
    feature_source_close(&source);
    text_clear(&note);
    model.vocab = 13;
    refuses(&setup, "text 1 (t1): token 14 is outside the vocabulary of 13 tokens");
    model = target();
    model.source_sha256[0] = 'd';
    assert_int_equal(feature_source_open(&source, &setup, &note, &err), 0);
    assert_non_null(strstr(note.data, "but other weights"));
    feature_source_close(&source);
    text_free(&note);
    unit_remove(folder);
}

static void states_that_are_no_numbers_are_refused(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    const struct feature_source_setup setup = setup_of(path, &model);
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 6; i++) {
        struct wanted wanted = plain;
        wanted.dtype = i % 2 ? DTYPE_BF16 : DTYPE_F32;
        wanted.odd_text = 1;
        wanted.odd_token = 5;
        wanted.odd = odd[i / 2];
        write_texts(path, &wanted);
        refuses(&setup, "text 1 (t1): the states of tokens 4 to 7 are not finite numbers");
    }
    unit_remove(folder);
}

static void texts_without_answers_are_refused(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    struct feature_source_setup setup = setup_of(path, &model);
    struct wanted wanted = plain;
    wanted.silent = 1;
    write_texts(path, &wanted);
    refuses(&setup, "text 1 (t1): its mask marks no answer to train on");
    setup.cut = 9;
    refuses(&setup, "its mask marks no answer to train on");
    unit_remove(folder);
}

static void texts_that_are_not_whole_are_refused(void **state)
{
    (void)state;
    static const struct { int at[3], n[3], count; const char *words; } wrong[] = {
        {{0, 4}, {4, 4}, 2, "text 0 (t0): the text ends after 8 of 9 tokens"},
        {{0, 5}, {4, 4}, 2, "text 0 (t0): a record has 4 tokens from position 5 on, but 4 of 9"},
        {{0, 0}, {4, 4}, 2, "text 0 (t0): a record has 4 tokens from position 0 on, but 4 of 9"},
        {{0, 4, 8}, {4, 4, 2}, 3, "text 0 (t0): a record has 2 tokens from position 8 on, but 8 of 9"},
    };
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    struct feature_source_setup setup = setup_of(path, &model);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct header header = {0};
        struct writer *writer = NULL;
        struct err err = {0};
        small_header(&header, STREAM_FEATURE);
        assert_int_equal(writer_open(&writer, path, &header, &err), 0);
        put(writer, &feature_begin_kind, &(struct feature_begin){.sequence = 0, .id = "t0", .prompt_tokens = 2,
                                                                 .text_tokens = 9});
        for (int piece = 0; piece < wrong[i].count; piece++)
            put_piece(writer, &plain, 0, wrong[i].at[piece], wrong[i].n[piece]);
        put(writer, &route_end_kind, &(struct route_end){0});
        assert_int_equal(writer_close(&writer, &err), 0);
        header_free(&header);
        setup.cut = 0;
        refuses(&setup, wrong[i].words);
        setup.cut = 3;                                          /* unused, and invalid all the same */
        refuses(&setup, wrong[i].words);
    }
    unit_remove(folder);
}

/* A stream truncated anywhere, or with any byte changed, is rejected at its end at the latest. */
static void damaged_streams_are_refused(void **state)
{
    (void)state;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "f.moes");
    const struct stream_model model = target();
    const struct feature_source_setup setup = setup_of(path, &model);
    struct text bytes = {0};
    struct err err = {0};
    write_texts(path, &plain);
    assert_int_equal(file_read(&bytes, path, 1 << 20, &err), 0);
    for (size_t at = 0; at < bytes.length; at += unit_brief() ? 53 : 11) {
        unit_write(path, bytes.data, at);
        free(fault_of(&setup));
        bytes.data[at] ^= 0x10;
        unit_write(path, bytes.data, bytes.length);
        free(fault_of(&setup));
        bytes.data[at] ^= 0x10;
    }
    text_free(&bytes);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_come_as_they_were_written), cmocka_unit_test(a_pipe_will_do),
        cmocka_unit_test(texts_can_be_read_again), cmocka_unit_test(texts_come_as_training_takes_them),
        cmocka_unit_test(other_models_and_states_are_refused), cmocka_unit_test(states_that_are_no_numbers_are_refused),
        cmocka_unit_test(texts_without_answers_are_refused), cmocka_unit_test(texts_that_are_not_whole_are_refused),
        cmocka_unit_test(damaged_streams_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Streams with drafts, consistent and inconsistent: what is read, and what is rejected. */
#include "tests/unit/unit.h"

#include <math.h>
#include <unistd.h>

#include "common/bench/replay.h"
#include "common/policy/recording.h"
#include "common/stream/decode.h"
#include "common/stream/writer.h"

/* One answer of four tokens, 10 11 12 13, after a prompt of two; tests change it. */
struct change { int position, pos, left, token, accepted, skip, emitted, n; };

static void write_stream(const char *path, const struct change *change)
{
    static const int32_t prompt[] = {1, 2}, answer[] = {10, 11, 12, 13};
    const double us[] = {0, 1, 2};
    const int64_t bytes[] = {100, 110, 120};
    const int32_t experts[] = {0, 0, 0};
    struct header header = {0};
    struct writer *out = NULL;
    struct err err = {0};
    assert_int_equal(header_init(&header, STREAM_DECODE, "test", "1", 0, NULL, &err), 0);
    header.has_model = true;
    header.model = (struct stream_model){.layers = 1, .vocab = 100, .hidden = 8};
    if (writer_open(&out, path, &header, &err))
        fail_msg("%s", err.text);
    const struct decode_begin begin = {.prompt_tokens = 2, .task = "code", .prompt = prompt};
    const struct decode_iter iter = {.K = 2, .nodes = 3, .drafted = 2, .accepted = 1, .emitted = change->emitted, .draft_us = 1,
                                     .verify_us = 50, .accept_us = 2, .other_us = 1, .bytes = 130, .draft_bytes = -1,
                                     .catch_up = -1, .catch_up_us = NAN, .flips = -1};
    const struct decode_iter last = {.nodes = 1, .emitted = 1, .verify_us = 40, .bytes = 100, .draft_bytes = -1, .catch_up = -1,
                                     .catch_up_us = NAN, .flips = -1};
    assert_int_equal(writer_record(out, &decode_begin_kind, &begin, &err), 0);
    assert_int_equal(writer_record(out, &decode_iter_kind, &iter, &err), 0);
    assert_int_equal(writer_record(out, &decode_iter_kind, &last, &err), 0);
    for (int at = 0; at < 3; at++) {
        bool here = change->position == at;
        int32_t token[] = {answer[at], at < 3 ? answer[at + 1] : 0, 77};
        if (here && change->token)
            token[1] = change->token;
        const struct decode_draft draft = {
            .pos = here && change->pos ? change->pos : 2 + at, .left = here && change->left ? change->left : 3 - at, .room = 5,
            .K = 2, .n = 3, .accepted = here && change->accepted ? change->accepted : 1, .tokens = token, .draft_us = us,
            .verify_us = us, .bytes = bytes, .experts_loaded = experts};
        if (!(here && change->skip))
            assert_int_equal(writer_record(out, &decode_draft_kind, &draft, &err), 0);
    }
    const struct decode_done done = {.n = change->n, .tokens = answer};
    if (writer_record(out, &decode_done_kind, &done, &err) || writer_close(&out, &err))
        fail_msg("%s", err.text);
    header_free(&header);
}

static void a_whole_stream_is_read(void **state)
{
    char *folder = unit_folder();
    const char *path = unit_path(folder, "whole.moes");
    struct recording *all = NULL;
    struct err err = {0};
    (void)state;
    write_stream(path, &(struct change){.position = -1, .emitted = 2, .n = 4});
    if (recording_read(&all, path, &err))
        fail_msg("%s", err.text);
    assert_int_equal(all->texts, 1);
    assert_int_equal(all->positions, 3);
    assert_int_equal(all->length, 2);
    assert_string_equal(all->text[0].task, "code");
    assert_int_equal(all->text[0].iterations, 2);
    assert_int_equal(all->position[0].nodes, 3);
    assert_true(all->position[0].iteration_us == 54 && all->position[0].bytes == 130);
    assert_int_equal(all->position[1].nodes, 0);
    assert_int_equal(all->position[2].nodes, 1);
    assert_int_equal(all->token[all->position[1].row + 1], 12);
    recording_free(&all);
    assert_null(all);
    unit_remove(folder);
}

static void contradictions_are_refused(void **state)
{
    static const struct { struct change change; const char *part; } wrong[] = {
        {{.position = 0, .emitted = 2, .n = 4, .pos = 3}, "the next position"},
        {{.position = 1, .emitted = 2, .n = 4, .left = 9}, "tokens are left"},
        {{.position = 1, .emitted = 2, .n = 4, .left = 1 << 30}, "tokens are left"},
        {{.position = 0, .emitted = 2, .n = 4, .token = 55}, "differs from the text"},
        {{.position = 0, .emitted = 2, .n = 4, .accepted = 2}, "differs from the text"},
        {{.position = 2, .emitted = 2, .n = 4, .skip = 1}, "--record drafts"},
        {{.position = -1, .emitted = 1, .n = 4}, "--record drafts"},
        {{.position = -1, .emitted = 2, .n = 3}, "--record drafts"},
    };
    char *folder = unit_folder();
    const char *path = unit_path(folder, "wrong.moes");
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct recording *all = NULL;
        struct err err = {0};
        write_stream(path, &wrong[i].change);
        assert_int_equal(recording_read(&all, path, &err), -1);
        assert_null(all);
        if (!strstr(err.text, wrong[i].part))
            fail_msg("%d: %s", (int)i, err.text);
    }
    unit_remove(folder);
}

/* One position of an answer of two tokens: a tree of the root, 12 and 11, and 77 after 11. */
struct tree { int32_t parents[4], asked[4], path[2]; int accepted; bool no_path; };

static int write_tree(const char *path, const struct tree *tree, struct err *err)
{
    static const int32_t prompt[] = {1, 2}, answer[] = {10, 11}, token[] = {10, 12, 11, 77}, loaded[] = {0, 0, 0, 0};
    static const double us[] = {0, 1, 1, 2};
    static const int64_t bytes[] = {100, 110, 120, 130};
    struct header header = {0};
    struct writer *out = NULL;
    assert_int_equal(header_init(&header, STREAM_DECODE, "test", "1", 0, NULL, err), 0);
    header.has_model = true;
    header.model = (struct stream_model){.layers = 1, .vocab = 100, .hidden = 8};
    assert_int_equal(writer_open(&out, path, &header, err), 0);
    const struct decode_begin begin = {.prompt_tokens = 2, .prompt = prompt};
    const struct decode_iter iter = {.nodes = 1, .emitted = 1, .verify_us = 40, .bytes = 100, .draft_bytes = -1, .catch_up = -1,
                                     .catch_up_us = NAN, .flips = -1};
    const struct decode_draft draft = {
        .pos = 2, .left = 1, .room = 5, .K = 2, .n = 4, .accepted = tree->accepted, .tokens = token, .parents = tree->parents,
        .asked = tree->asked, .path = tree->no_path ? NULL : tree->path, .draft_us = us, .verify_us = us, .bytes = bytes,
        .experts_loaded = loaded, .expert_bytes = -1};
    const struct decode_done done = {.n = 2, .tokens = answer};
    int rc = writer_record(out, &decode_begin_kind, &begin, err) || writer_record(out, &decode_iter_kind, &iter, err) ||
             writer_record(out, &decode_draft_kind, &draft, err) || writer_record(out, &decode_done_kind, &done, err) ||
             writer_close(&out, err) ? -1 : 0;
    if (rc)
        writer_abort(&out, err);
    header_free(&header);
    return rc;
}

static void trees_are_read_and_checked(void **state)
{
    static const struct { struct tree tree; const char *part; } wrong[] = {
        {{{-1, 0, 0, 3}, {2, 0, 1, 0}, {2, 3}, 2, false}, "token 3 has the impossible parent 3"},
        {{{0, 0, 0, 2}, {2, 0, 1, 0}, {2, 3}, 2, false}, "token 0 has the impossible parent 0"},
        {{{-1, 0, 0, 2}, {2, 0, -1, 0}, {2, 3}, 2, false}, "requested"},
        {{{-1, 0, 0, 2}, {2, 0, 1, 0}, {1, 3}, 2, false}, "does not follow"},
        {{{-1, 0, 0, 2}, {2, 0, 1, 0}, {2, 9}, 2, false}, "does not follow"},
        {{{-1, 0, 0, 2}, {2, 0, 1, 0}, {2, 3}, 2, true}, "lacks its parents"},
    };
    static const struct tree right = {{-1, 0, 0, 2}, {2, 0, 1, 0}, {2, 3}, 2, false};
    static const struct tree other = {{-1, 0, 0, 2}, {2, 0, 1, 0}, {1}, 1, false};      /* accepts a token not in the text */
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tree.moes");
    struct recording *all = NULL;
    struct err err = {0};
    (void)state;
    if (write_tree(path, &right, &err) || recording_read(&all, path, &err))
        fail_msg("%s", err.text);
    assert_true(all->trees && all->positions == 1 && all->rows == 4);
    assert_true(all->parent[3] == 2 && all->asked[0] == 2 && all->path[1] == 3 && all->position[0].expert_bytes == 0);
    recording_free(&all);
    assert_int_equal(recording_read_chains(&all, path, true, &err), -1);
    assert_non_null(strstr(err.text, "contains trees"));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        err = (struct err){0};
        assert_int_equal(write_tree(path, &wrong[i].tree, &err), -1);
        if (!strstr(err.text, wrong[i].part))
            fail_msg("%d: %s", (int)i, err.text);
    }
    err = (struct err){0};
    assert_int_equal(write_tree(path, &other, &err), 0);
    assert_int_equal(recording_read(&all, path, &err), -1);
    assert_non_null(strstr(err.text, "differs from the text"));
    unit_remove(folder);
}

static int keep_bytes(void *context, const struct replay_iteration *iteration, struct err *err)
{
    (void)err;
    *(int64_t *)context = iteration->outcome.bytes;
    return 0;
}

/* The cost of a tree of two nodes without experts, if its forward was recorded with `loaded` experts of `each` bytes and 120
 * bytes in all. */
static int64_t bytes_of_tree(const char *path, int32_t loaded, int64_t each)
{
    struct recording *all = NULL;
    struct replay_result result = {0};
    struct err err = {0};
    int64_t bytes = -1;
    if (recording_read(&all, path, &err))
        fail_msg("%s", err.text);
    all->experts_loaded[2] = loaded;
    all->position[0].expert_bytes = each;
    const struct replay_setup setup = {.recording = all, .tree = "dynamic:total=3,depth=1,topk=2", .draft_length = 1,
                                       .cost = REPLAY_BYTES};
    if (replay_run(&result, &setup, keep_bytes, &bytes, &err))
        fail_msg("%s", err.text);
    assert_true(result.seconds >= 0);
    replay_result_free(&result);
    recording_free(&all);
    return bytes;
}

static void bytes_of_trees_are_a_number_whatever_the_stream_says(void **state)
{
    static const struct tree tree = {{-1, 0, 0, 2}, {2, 0, 1, 0}, {2, 3}, 2, false};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tree.moes");
    struct err err = {0};
    (void)state;
    assert_int_equal(write_tree(path, &tree, &err), 0);
    assert_int_equal(bytes_of_tree(path, 0, 0), 120);
    assert_int_equal(bytes_of_tree(path, 2, 10), 100);
    assert_int_equal(bytes_of_tree(path, 3, 50), 0);
    assert_int_equal(bytes_of_tree(path, INT32_MAX, INT64_MAX), 0);
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_whole_stream_is_read), cmocka_unit_test(contradictions_are_refused),
                                       cmocka_unit_test(trees_are_read_and_checked),
                                       cmocka_unit_test(bytes_of_trees_are_a_number_whatever_the_stream_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

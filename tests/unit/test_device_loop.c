/* A device in place of the host. Loops (loop_start of common/tensor/device.h) that break their contract are an error, and
 * the host does not wait forever. Tokens chosen and ranked on the device (engine_chooses): texts equal those of the host's
 * choice, and no logits are downloaded. */
#include "tests/unit/unit.h"

#include "common/decode/decode.h"
#include "common/tensor/device.h"
#include "tests/unit/rig.h"

static void put_nothing(void *context) { ++*(int *)context; }

/* No record is written: the host must not wait, neither for the first record nor for the next. */
static void an_iteration_without_a_record_is_an_error(void **state)
{
    (void)state;
    const int32_t zero = 0;
    struct device *device = NULL;
    struct loop *loop = NULL;
    struct err err = {0};
    struct buffer rows, more, ring, head;
    int calls = 0;
    must(device_open(&device, &(struct device_setup){.name = "emu"}, &err), &err);
    must(device_alloc(device, sizeof zero, &rows, &err) || device_alloc(device, sizeof zero, &more, &err) ||
             device_alloc_shared(device, 64, &ring, &err) || device_alloc_shared(device, sizeof zero, &head, &err) ? -1 : 0,
         &err);
    queue_upload(device, rows, &zero, sizeof zero);
    queue_upload(device, more, &zero, sizeof zero);
    *(int32_t *)(uintptr_t)head.address = 0;
    const struct loop_setup setup = {.put = put_nothing, .context = &calls, .rows = rows, .more = more, .ring = ring,
                                     .head = head, .record_bytes = 16, .records = 4};
    must(loop_start(&loop, device, &setup, &err), &err);
    assert_int_equal(calls, 1);
    for (int turn = 0; turn < 2; turn++) {
        const void *record = NULL;
        assert_int_equal(loop_drain(loop, &record, &err), -1);
        assert_non_null(strstr(err.text, "an iteration ended without a record"));
        assert_null(record);
    }
    must(loop_end(&loop, &err), &err);
    assert_null(loop);
    must(queue_wait(device, &err), &err);
    device_free(device, &rows);
    device_free(device, &more);
    device_free_shared(device, &ring);
    device_free_shared(device, &head);
    device_close(&device);
}

/* The emulator has four devices. */
static void a_device_without_a_number_is_the_one_of_the_turn(void **state)
{
    static const struct { const char *name; int turn; const char *opened; } cases[] = {
        {"emu", 0, "emu emulated"}, {"emu", 1, "emu:1 emulated"}, {"emu", 6, "emu:2 emulated"}, {"emu:3", 1, "emu:3 emulated"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct device *device = NULL;
        struct err err = {0};
        must(device_open(&device, &(struct device_setup){.name = cases[i].name, .turn = cases[i].turn}, &err), &err);
        assert_string_equal(device_info(device)->name, cases[i].opened);
        device_close(&device);
    }
}

enum { TEXTS = 2, PROMPT = 20, ANSWER = 6, VOCAB = 100 };

struct choice_seen {
    const struct device *device;
    bool on_device, chosen, drafts_by_look_up;
    uint64_t before, bytes, logits;     /* bytes: of all iterations; logits: those of their rows with logits */
    uint64_t prompt_routes;             /* bytes of routes of a prompt */
    int iterations, nodes;
};

static int see_begin(void *context, double prefill_s, struct err *err)
{
    struct choice_seen *seen = context;
    const uint64_t now = device_downloaded(seen->device);
    (void)prefill_s, (void)err;
    if (seen->drafts_by_look_up)
        assert_int_equal(now - seen->before, seen->prompt_routes + (seen->chosen ? 1 : VOCAB) * sizeof(float));
    seen->before = now;
    return 0;
}

/* If only the target downloads, a forward's bytes are exact: experts, weights and router's choice of each row, and logits or
 * tokens. */
static int see_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct choice_seen *seen = context;
    const struct forward *forward = iteration->forward;
    const uint64_t now = device_downloaded(seen->device), rows = (uint64_t)forward->all_rows;
    const uint64_t routes = 3 * rows * (uint64_t)forward->moe_layers * (uint64_t)forward->top_k * sizeof(int32_t);
    (void)err;
    assert_true(seen->chosen == (forward->choice != NULL) && seen->chosen == (forward->logits == NULL));
    if (seen->drafts_by_look_up && forward->texts == 1)
        assert_int_equal(now - seen->before, routes + rows * (seen->chosen ? 1 : VOCAB) * sizeof(float));
    seen->bytes += now - seen->before;
    seen->logits += rows * VOCAB * sizeof(float);
    seen->before = now;
    seen->iterations++;
    seen->nodes += iteration->tree->nodes;
    return 0;
}

/* Decodes some texts together. */
static void decode_texts(struct rig *rig, const struct decode_settings *settings, struct choice_seen *seen, int texts,
                         int32_t token[TEXTS][ANSWER])
{
    const struct decode_sink sink = {.context = seen, .begin = see_begin, .iteration = see_iteration};
    struct decoder *decoder[TEXTS] = {NULL};
    struct decode_result result;
    int failed;
    seen->device = rig->device;
    seen->prompt_routes = 3 * (uint64_t)PROMPT * (uint64_t)engine_hparams(rig->engine)->router.top_k * sizeof(int32_t);
    for (int i = 0; i < texts; i++) {
        const struct decoder_setup setup = {.engine = rig->engine, .settings = settings, .on_device = seen->on_device,
                                            .shares_forwards = texts > 1};
        const struct decode_prompt prompt = {.token = rig->token + i, .tokens = PROMPT};
        must(decoder_open(&decoder[i], &setup, &rig->err), &rig->err);
        seen->before = device_downloaded(rig->device);
        must(decoder_begin(decoder[i], &prompt, &sink, &rig->err), &rig->err);
    }
    for (;;) {
        struct decoder *left[TEXTS];
        int count = 0;
        for (int i = 0; i < texts; i++)
            if (!decoder_ends(decoder[i]))
                left[count++] = decoder[i];
        if (!count)
            break;
        must(decoders_step(left, count, &failed, &rig->err), &rig->err);
    }
    for (int i = 0; i < texts; i++) {
        decoder_end(decoder[i], &result);
        assert_int_equal(result.tokens, ANSWER);
        memcpy(token[i], result.token, sizeof token[i]);
        decoder_close(&decoder[i]);
    }
}

/* The same drafts with tokens chosen by the device, by the host because it reads logits, and by the host because of the
 * environment switch. */
static void trees_download_chosen_tokens_and_no_logits(void **state)
{
    static const char tree[] = "[[0],[1],[2],[0,0],[0,1],[0,0,0]]";
    static const struct { int by, texts; double temperature; } runs[] = {
        {0, 1, 0}, {0, 1, 0.8}, {1, 1, 0}, {1, 1, 0.8}, {0, 2, 0.8}};
    enum { RUNS = sizeof runs / sizeof *runs };
    static char draft[2][600], shape_of_tree[600];
    static const char *named[1];
    static int32_t want[RUNS][TEXTS][ANSWER];
    char *folder = unit_folder();
    struct hparams shape;
    uint64_t seed = 0, least[RUNS] = {0};
    struct err err = {0};
    (void)state;
    do
        shape = tiny_shape(&(struct chance){++seed});
    while (shape.layers != 1 || hparams_moe_layers(&shape) != 1);
    shape.vocab = VOCAB;
    must(tiny_write(unit_path(folder, "target.moe"), &shape, FORMAT_F32, 3, &err), &err);
    snprintf(draft[0], sizeof draft[0], "ngram:n=1,min=1");
    snprintf(draft[1], sizeof draft[1], "model:file=%s", unit_path(folder, "target.moe"));
    unit_write(unit_path(folder, "tree.json"), tree, strlen(tree));
    snprintf(shape_of_tree, sizeof shape_of_tree, "static:file=%s", unit_path(folder, "tree.json"));
    for (int way = 0, looked_up = 0; way < 3; way++) {
        struct rig rig;
        if (way == 2)
            setenv("MOE_CUDA_NO_CHOICE", "1", 1);
        rig_open(&rig, unit_path(folder, "target.moe"), "emu");
        unsetenv("MOE_CUDA_NO_CHOICE");
        rig_engine(&rig, (struct engine_setup){.max_rows = 64, .max_logit_rows = 64}, 0);
        for (int i = 0; i < (way < 2 ? RUNS : 3); i++) {
            struct decode_settings settings = DECODE_DEFAULTS;
            struct choice_seen seen = {.on_device = way != 1, .chosen = way == 0, .drafts_by_look_up = runs[i].by == 0};
            int32_t token[TEXTS][ANSWER];
            settings.max_tokens = ANSWER;
            settings.filter.temperature = runs[i].temperature;
            settings.seed = 3;
            settings.draft = (struct strings){named, 1};
            settings.tree = shape_of_tree;
            named[0] = draft[runs[i].by];
            decode_texts(&rig, &settings, &seen, runs[i].texts, way ? token : want[i]);
            assert_true(runs[i].by == 0 || seen.nodes > 0);
            looked_up += runs[i].by == 0 ? seen.nodes : 0;
            if (way)
                assert_memory_equal(token, want[i], (size_t)runs[i].texts * sizeof token[0]);
            else
                least[i] = seen.bytes;
            if (way == 2 && runs[i].by)                         /* the draft model's logits, too */
                assert_true(seen.bytes - least[i] > seen.logits);
        }
        assert_true(looked_up > 0);
        rig_close(&rig);
    }
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_iteration_without_a_record_is_an_error),
        cmocka_unit_test(a_device_without_a_number_is_the_one_of_the_turn),
        cmocka_unit_test(trees_download_chosen_tokens_and_no_logits),
    };
    struct device *device = NULL;
    struct err err = {0};
    if (device_open(&device, &(struct device_setup){.name = "emu"}, &err)) {
        printf("1..0 # skip %s\n", err.text);
        return 0;
    }
    device_close(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

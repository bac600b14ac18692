/* Slabs of prompts (engine_prompt) on a device with special products for them: the emulated GPU, or $MOE_TEST_DEVICE. Logits
 * after a long prompt equal the host's within tolerance; their bits depend on the cut into slabs alone, and the cut does not
 * depend on drafts. */
#include "tests/unit/unit.h"

#include <math.h>

#include "kernels/plugin.h"
#include "tests/unit/rig.h"

enum { SLAB = 16, PROMPT = 3 * SLAB + 7, AFTER = 10, MODELS = 9 };
_Static_assert(PROMPT + AFTER <= RIG_TOKENS, "a rig has tokens for it");

/* Rounding alone; with quantised weights a rounding may change the integer of an activation by one step. */
static const float NEAR = 4e-4f, NEAR_QUANTISED = 3e-2f;

/* Returns an engine's setup as of a command that verifies `logit_rows` rows at once. */
static void slab_engine(struct rig *rig, int slab, int max_rows, int logit_rows)
{
    rig_engine(rig, (struct engine_setup){.max_rows = max_rows, .max_logit_rows = logit_rows, .slab_rows = slab},
               PROMPT + 2 * AFTER);
}

static size_t logits_size(const struct rig *rig) { return (size_t)model_hparams(rig->model)->vocab * sizeof(float); }

/* Computes logits of the prompt's last token; the prompt is read in parts that end at `cut` and at its end. */
static void prompt(struct rig *rig, int cut, float *logits)
{
    struct forward out;
    if (cut)
        must(engine_prompt(rig->engine, rig->sequence, rig->token, cut, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    must(engine_prompt(rig->engine, rig->sequence, rig->token + cut, PROMPT - cut, NULL, NULL, NULL, &out, &rig->err),
         &rig->err);
    memcpy(logits, out.logits, logits_size(rig));
}

static float distance(const struct rig *rig, const float *got, const float *want)
{
    float worst = 0;
    for (size_t i = 0; i < logits_size(rig) / sizeof *got; i++) {
        float far = fabsf(got[i] - want[i]) / (1 + fabsf(want[i]));
        worst = !(far <= worst) ? far : worst;
    }
    return worst;
}

typedef void body(struct rig *rig, enum weight_format format, float *a, float *b);

/* Runs a test over random models with every kind of weights, with room for two rows of logits; under sanitisers over two
 * models. */
static void for_models(int models, body *each)
{
    models = getenv("MOE_SANITIZED") && models > 2 ? 2 : models;
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    for (uint64_t seed = 1; seed <= (uint64_t)models; seed++) {
        struct chance chance = {seed};
        struct hparams shape = tiny_shape(&chance);
        enum weight_format format = (enum weight_format)((seed + 1) % GPU_FORMATS);
        struct err err = {0};
        struct rig rig;
        must(tiny_write_mixed(path, &shape, format, format, seed, &err), &err);
        rig_open(&rig, path, device_name("emu"));
        float *rows = malloc(2 * logits_size(&rig));
        assert_non_null(rows);
        each(&rig, format, rows, rows + logits_size(&rig) / sizeof *rows);
        free(rows);
        rig_close(&rig);
        unlink(path);
    }
    unit_remove(folder);
}

/* Special products show in bits, so the tests below detect which rows were in slabs. */
static void near_host(struct rig *rig, enum weight_format format, float *got, float *other)
{
    struct rig host;
    slab_engine(rig, SLAB, 64, 8);
    prompt(rig, 0, got);
    slab_engine(rig, 0, 64, 8);
    prompt(rig, 0, other);
    if (memcmp(got, other, logits_size(rig)) == 0 && format != FORMAT_F32 && !format_quantised(format) &&
        device_info(rig->device)->slabs)
        fail_msg("%s: slabs or none, the bits are the same", format_name(format));
    rig_open_on(&host, model_path(rig->model), &(struct device_setup){.name = "host", .f32_activations = true}, NULL);
    slab_engine(&host, SLAB, 64, 8);
    prompt(&host, 0, other);
    float worst = distance(rig, got, other), limit = format_quantised(format) ? NEAR_QUANTISED : NEAR;
    print_message("# %s: %.1e\n", format_name(format), (double)worst);
    if (!(worst <= limit))
        fail_msg("%s: %.2e from the host, more than %.0e", format_name(format), (double)worst, (double)limit);
    rig_close(&host);
}

static void a_prompt_in_slabs_is_near_the_host(void **state)
{
    (void)state;
    for_models(MODELS, near_host);
}

static void same_cut(struct rig *rig, enum weight_format format, float *want, float *got)
{
    static const struct { int max_rows, logit_rows, cut; } ways[] = {
        {64, 1, 0}, {64, 33, 0}, {40, 9, 0}, {9, 2, 0}, {64, 8, SLAB}, {64, 8, 3 * SLAB + 2}};
    for (int i = 0; i < (int)(sizeof ways / sizeof *ways); i++) {
        slab_engine(rig, SLAB, ways[i].max_rows, ways[i].logit_rows);
        prompt(rig, ways[i].cut, i ? got : want);
        if (i && memcmp(got, want, logits_size(rig)))
            fail_msg("%s: other bits in an engine for %d rows and logits of %d, parts cut at %d", format_name(format),
                     ways[i].max_rows, ways[i].logit_rows, ways[i].cut);
    }
}

static void drafts_do_not_move_the_cut(void **state)
{
    (void)state;
    for_models(unit_sample() ? 2 : 3, same_cut);
}

/* Verifies `K` drafted tokens at a time after a prompt and keeps some of them: the bits equal those of one token per
 * forward. */
static void same_decoding(struct rig *rig, enum weight_format format, float *first, float *unused)
{
    size_t size = logits_size(rig), vocab = size / sizeof(float);
    float *alone = malloc((AFTER + 1) * size);
    struct forward out;
    assert_non_null(alone);
    (void)unused;
    slab_engine(rig, SLAB, 64, 1);
    prompt(rig, 0, alone);
    for (int i = 0; i < AFTER; i++) {
        const int32_t node = 0;
        struct batch one = {.rows = 1, .token = rig->token + PROMPT + i, .logit_rows = 1};
        must(engine_forward(rig->engine, rig->sequence, &one, &out, &rig->err), &rig->err);
        must(sequence_commit(rig->sequence, &node, 1, &rig->err), &rig->err);
        memcpy(alone + (size_t)(i + 1) * vocab, out.logits, size);
    }
    for (int K = 3; K <= 8; K += 5) {
        slab_engine(rig, SLAB, 64, 1 + K);
        prompt(rig, 0, first);
        assert_memory_equal(first, alone, size);
        for (int i = 0, kept; i < AFTER; i += kept) {
            int32_t node[] = {0, 1, 2, 3, 4, 5, 6, 7, 8};
            int rows = AFTER - i < 1 + K ? AFTER - i : 1 + K;
            struct batch batch = {.rows = rows, .token = rig->token + PROMPT + i, .logit_rows = rows};
            kept = (rows + 1) / 2;
            must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
            if (memcmp(out.logits, alone + (size_t)(i + 1) * vocab, (size_t)rows * size))
                fail_msg("%s: other bits with %d drafts, %d tokens after the prompt", format_name(format), K, i);
            must(sequence_commit(rig->sequence, node, kept, &rig->err), &rig->err);
        }
    }
    free(alone);
}

static void decoding_after_slabs_is_the_same_with_drafts(void **state)
{
    (void)state;
    for_models(unit_sample() ? 2 : 3, same_decoding);
}

/* A longer prompt keeps only as much of the text that the bits equal those of reading all of it: a part that then lies in
 * other slabs is read again. */
static void same_kept(struct rig *rig, enum weight_format format, float *got, float *want)
{
    static const struct { int before, text, kept; } cases[] = {     /* tokens of the old prompt and text; kept ones */
        {SLAB, SLAB, SLAB}, {SLAB + 3, SLAB + 9, SLAB}, {SLAB - 3, 2 * SLAB, 0}, {3 * SLAB + 2, 3 * SLAB + 5, 3 * SLAB + 5},
        {3 * SLAB, 3 * SLAB + 6, 3 * SLAB + 6}, {2 * SLAB + 5, 2 * SLAB + 7, 2 * SLAB}, {PROMPT, SLAB + 4, SLAB}};
    slab_engine(rig, SLAB, 64, 8);
    prompt(rig, 0, want);
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        struct forward out;
        const int before = cases[i].before, text = cases[i].text;
        slab_engine(rig, SLAB, 64, 8);
        must(engine_prompt(rig->engine, rig->sequence, rig->token, before, NULL, NULL, NULL, &out, &rig->err), &rig->err);
        for (int at = before; at < text; at++) {
            const int32_t node = 0;
            struct batch one = {.rows = 1, .token = rig->token + at, .logit_rows = 1};
            must(engine_forward(rig->engine, rig->sequence, &one, &out, &rig->err), &rig->err);
            must(sequence_commit(rig->sequence, &node, 1, &rig->err), &rig->err);
        }
        int kept = engine_prompt_keeps(rig->engine, text, before, PROMPT);
        if (device_info(rig->device)->slabs)
            assert_int_equal(kept, cases[i].kept);
        must(sequence_truncate(rig->sequence, kept, &rig->err), &rig->err);
        must(engine_prompt(rig->engine, rig->sequence, rig->token + kept, PROMPT - kept, NULL, NULL, NULL, &out, &rig->err),
             &rig->err);
        memcpy(got, out.logits, logits_size(rig));
        if (memcmp(got, want, logits_size(rig)))
            fail_msg("%s: other bits where %d tokens stay of a text of %d with a prompt of %d", format_name(format), kept, text,
                     before);
    }
}

static void a_kept_text_has_the_bits_of_one_read_anew(void **state)
{
    (void)state;
    for_models(unit_sample() ? 2 : 3, same_kept);
}

/* Formats without products on GPUs are rejected, as a tensor's first or last format. */
static void other_formats_are_refused(void **state)
{
    static const enum weight_format pairs[][2] = {{FORMAT_Q5_K, FORMAT_Q5_K}, {FORMAT_Q4_K, FORMAT_IQ2_XXS}};
    char *folder = unit_folder();
    const char *path = unit_path(folder, "tiny.moe");
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct chance chance = {3};
        struct hparams shape = tiny_shape(&chance);
        struct engine_setup setup = {.max_rows = 1, .max_logit_rows = 1};
        struct err err = {0};
        struct rig rig;
        must(tiny_write_mixed(path, &shape, pairs[i][0], pairs[i][1], 3, &err), &err);
        rig_open(&rig, path, device_name("emu"));
        setup.model = rig.model;
        setup.device = rig.device;
        setup.experts = rig.experts;
        assert_int_equal(engine_open(&rig.engine, &setup, &err), -1);
        assert_non_null(strstr(err.text, format_name(pairs[i][1])));
        assert_non_null(strstr(err.text, "moe-convert requant"));
        rig_close(&rig);
        unlink(path);
    }
    unit_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_in_slabs_is_near_the_host),
        cmocka_unit_test(drafts_do_not_move_the_cut),
        cmocka_unit_test(decoding_after_slabs_is_the_same_with_drafts),
        cmocka_unit_test(a_kept_text_has_the_bits_of_one_read_anew),
        cmocka_unit_test(other_formats_are_refused),
    };
    struct device *device = NULL;
    struct err err = {0};
    if (device_open(&device, &(struct device_setup){.name = device_name("emu")}, &err)) {
        printf("1..0 # skip %s\n", err.text);
        return getenv("MOE_TEST_DEVICE") ? 125 : 0;
    }
    if (device_info(device)->no_slabs[0])
        printf("# %s\n", device_info(device)->no_slabs);
    device_close(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

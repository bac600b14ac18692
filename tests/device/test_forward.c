/* Whole forwards on $MOE_TEST_DEVICE, over random tiny models with every kind of attention, router and weights, and the
 * pocket model: logits within the tolerance of the host's, and each node of a tree has the bits of its path decoded alone. */
#include "tests/unit/unit.h"

#include <math.h>

#include "kernels/plugin.h"
#include "tests/unit/rig.h"

enum { NODES = 24, BEFORE = 70, MODELS = 36, STATES = 10 };

/* Rounding alone; with quantised weights a rounding may change the integer of an activation by one step. */
static const float NEAR = 2e-4f, NEAR_QUANTISED = 3e-2f;

static void forward_open(struct rig *rig, const char *path, const char *device)
{
    rig_open_on(rig, path, &(struct device_setup){.name = device, .f32_activations = true}, NULL);     /* as GPUs */
    rig_engine(rig, (struct engine_setup){.max_rows = 64, .max_logit_rows = 64, .cache = CACHE_F32}, BEFORE + NODES);
}

struct passage {
    int32_t before[BEFORE], token[NODES], parent[NODES];
};

static struct passage random_text(uint64_t seed, int vocab)
{
    struct chance chance = {seed};
    struct passage text;
    for (int i = 0; i < BEFORE; i++)
        text.before[i] = chance_range(&chance, 0, vocab - 1);
    for (int i = 0; i < NODES; i++) {
        text.token[i] = chance_range(&chance, 0, vocab - 1);
        text.parent[i] = chance_range(&chance, i < 4 ? -1 : i - 4, i - 1);
    }
    return text;
}

/* Computes logits of all nodes of the tree in one forward. */
static float *tree_logits(struct rig *rig, const struct passage *text)
{
    size_t vocab = (size_t)engine_hparams(rig->engine)->vocab;
    float *logits = malloc(NODES * vocab * sizeof *logits);
    struct forward out;
    must(engine_prompt(rig->engine, rig->sequence, text->before, BEFORE, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    struct batch batch = {.rows = NODES, .token = text->token, .parent = text->parent, .logit_rows = NODES};
    must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
    memcpy(logits, out.logits, NODES * vocab * sizeof *logits);
    sequence_rollback(rig->sequence);
    return logits;
}

/* Decodes the path to a node, a token per forward; each token's bits equal the tree's. */
static void path_has_bits_of_tree(struct rig *rig, const struct passage *text, int node, const float *tree)
{
    size_t vocab = (size_t)engine_hparams(rig->engine)->vocab;
    int path[NODES], count = 0;
    struct forward out;
    for (int at = node; at >= 0; at = text->parent[at])
        path[count++] = at;
    for (int i = 0; i < count; i++) {
        int at = path[count - 1 - i];
        struct batch batch = {.rows = 1, .token = &text->token[at], .logit_rows = 1};
        must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
        for (size_t v = 0; v < vocab; v++)
            if (memcmp(&out.logits[v], &tree[(size_t)at * vocab + v], sizeof *tree))
                fail_msg("node %d, token %zu: %a alone, %a in the tree", at, v, (double)out.logits[v],
                         (double)tree[(size_t)at * vocab + v]);
    }
    sequence_rollback(rig->sequence);
}

static void one_model(const char *path, uint64_t seed, float limit, int step, const char *what)
{
    struct rig host, device;
    forward_open(&host, path, "host");
    forward_open(&device, path, device_name("cuda"));
    size_t vocab = (size_t)engine_hparams(host.engine)->vocab;
    struct passage text = random_text(seed, (int)vocab);
    float *want = tree_logits(&host, &text), *got = tree_logits(&device, &text), worst = 0;
    for (size_t i = 0; i < NODES * vocab; i++) {
        float far = fabsf(got[i] - want[i]) / (1 + fabsf(want[i]));
        worst = !(far <= worst) ? far : worst;
        if (!(far <= limit))
            fail_msg("%s: node %zu, token %zu: %.8g on the device, %.8g on the host", what, i / vocab, i % vocab,
                     (double)got[i], (double)want[i]);
    }
    print_message("# %s: %.1e\n", what, (double)worst);
    for (int node = NODES - 1; node >= 0; node -= step)
        path_has_bits_of_tree(&device, &text, node, got);
    free(want);
    free(got);
    rig_close(&host);
    rig_close(&device);
}

static void tiny_models(void **state)
{
    char *folder = unit_folder(), what[64];
    const char *path = unit_path(folder, "tiny.moe");
    struct err err = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= MODELS; seed++) {
        struct chance chance = {seed};
        struct hparams shape = tiny_shape(&chance);
        enum weight_format format = (enum weight_format)(seed % GPU_FORMATS);
        must(tiny_write_mixed(path, &shape, format, format, seed, &err), &err);
        snprintf(what, sizeof what, "model %d, %s", (int)seed, format_name(format));
        one_model(path, seed, format_quantised(format) ? NEAR_QUANTISED : NEAR, 5, what);
        unlink(path);
    }
    unit_remove(folder);
}

static void models_with_a_state(void **state)
{
    char *folder = unit_folder(), what[64];
    const char *path = unit_path(folder, "tiny.moe");
    struct err err = {0};
    (void)state;
    for (uint64_t seed = 1; seed <= STATES; seed++) {
        const enum recurrence kind = (enum recurrence)(seed % (RECURRENCE_SCAN + 1));
        struct chance chance = {seed};
        struct hparams shape = tiny_states(&chance, kind, seed);
        must(tiny_write(path, &shape, FORMAT_BF16, seed, &err), &err);
        snprintf(what, sizeof what, "model %d, state of kind %d", (int)seed, (int)kind);
        one_model(path, seed, NEAR, 5, what);
        unlink(path);
    }
    unit_remove(folder);
}

static void pocket_model(void **state)
{
    const char *path = getenv("MOE_POCKET");
    (void)state;
    assert_non_null(path);
    one_model(path, 1, NEAR, 11, "pocket");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiny_models),
        cmocka_unit_test(models_with_a_state),
        cmocka_unit_test(pocket_model),
    };
    struct device *device = NULL;
    struct err err = {0};
    if (device_open(&device, &(struct device_setup){.name = device_name("cuda")}, &err)) {
        printf("cannot judge: %s\n", err.text);
        return 125;
    }
    device_close(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

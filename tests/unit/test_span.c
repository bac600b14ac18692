/* Long prompts with cached experts: all pieces run through a layer before any of them runs through the next one. The bits
 * equal those of the mapped model, and an expert is read once. */
#include "tests/unit/rig.h"

enum { LONG = 300, ROWS = 16, FEATURE_LAYERS = 2 };

/* Writes a tiny model with experts, from the first suitable seed at or after `seed`. */
static const char *moe_file(uint64_t seed, enum weight_format format, struct hparams *shape)
{
    static char path[64];
    struct err err = {0};
    snprintf(path, sizeof path, "/tmp/moe-test-span-%d.moe", (int)getpid());
    do {
        struct chance chance = {seed++};
        *shape = tiny_shape(&chance);
    } while (!hparams_moe_layers(shape));
    must(tiny_write_mixed(path, shape, format, format, seed, &err), &err);
    return path;
}

static int64_t bytes_of_expert(struct rig *rig, const struct hparams *shape)
{
    int layer = 0;
    while (shape->layer[layer].ffn != FFN_EXPERTS)
        layer++;
    return (int64_t)model_tensor(rig->model, &rig->err, "layers.%d.experts", layer)->stride;
}

struct seen {
    float *feature;                     /* [LONG][FEATURE_LAYERS][hidden] */
    int32_t *expert;                    /* [LONG][moe][top_k] */
    int tokens;
    struct device *device;
};

static int see_piece(void *context, const struct forward *piece, int position, struct err *err)
{
    struct seen *seen = context;
    const size_t width = (size_t)piece->hidden_size, routed = (size_t)(piece->moe_layers * piece->top_k);
    float *room = calloc((size_t)piece->rows * FEATURE_LAYERS * width, sizeof *room);
    assert_int_equal(position, seen->tokens);
    queue_download(seen->device, room, piece->features, (size_t)piece->rows * FEATURE_LAYERS * width * sizeof *room);
    must(queue_wait(seen->device, err), err);
    for (int row = 0; row < piece->rows; row++)
        for (int i = 0; i < FEATURE_LAYERS; i++)
            memcpy(seen->feature + ((size_t)(position + row) * FEATURE_LAYERS + (size_t)i) * width,
                   room + ((size_t)i * (size_t)piece->rows + (size_t)row) * width, width * sizeof *room);
    memcpy(seen->expert + (size_t)position * routed, piece->expert, (size_t)piece->rows * routed * sizeof *seen->expert);
    seen->tokens += piece->rows;
    free(room);
    return 0;
}

/* Computes all facts about a prompt's tokens, then the logits of the last one. */
static void read_prompt(struct rig *rig, const struct hparams *shape, struct seen *seen, float *logits)
{
    const struct feature_request features = {.count = FEATURE_LAYERS, .layer = {0, shape->layers}};
    struct chance chance = {11};
    struct forward out;
    int32_t text[LONG];
    for (int i = 0; i < LONG; i++)
        text[i] = chance_range(&chance, 0, shape->vocab - 1);
    seen->device = rig->device;
    seen->tokens = 0;
    rig_engine(rig, (struct engine_setup){.max_rows = ROWS, .max_logit_rows = ROWS}, LONG);
    must(engine_prompt(rig->engine, rig->sequence, text, LONG, &(struct batch){.features = &features}, see_piece, seen, &out,
                       &rig->err), &rig->err);
    assert_int_equal(seen->tokens, LONG);
    assert_int_equal(sequence_length(rig->sequence), LONG);
    memcpy(logits, out.logits, (size_t)shape->vocab * sizeof *logits);
}

/* A prompt of many pieces reads each requested expert once if there are slots for one layer's experts, under all policies
 * with slots; with fewer slots its bits are the same. */
static void a_long_prompt_reads_each_expert_once(void **state)
{
    static const char *const policies[] = {NULL, "lru-global", "hot", "lfu", "utility"};
    struct hparams shape;
    const char *path = moe_file(51, FORMAT_BF16, &shape);
    const int moe = hparams_moe_layers(&shape), experts = shape.router.experts, top_k = shape.router.top_k;
    const size_t features = (size_t)LONG * FEATURE_LAYERS * (size_t)shape.hidden, routed = (size_t)(LONG * moe * top_k);
    float *feature[2], *logits[2];
    int32_t *expert[2];
    struct rig rig;
    (void)state;
    assert_true(moe > 1 && (LONG + ROWS - 1) / ROWS > 2);
    for (int i = 0; i < 2; i++) {
        feature[i] = calloc(features, sizeof *feature[i]);
        expert[i] = calloc(routed, sizeof *expert[i]);
        logits[i] = calloc((size_t)shape.vocab, sizeof *logits[i]);
    }
    rig_open_cached(&rig, path, "host", 1, NULL);
    read_prompt(&rig, &shape, &(struct seen){feature[0], expert[0], 0, NULL}, logits[0]);
    rig_close(&rig);
    int distinct = 0;
    for (int layer = 0; layer < moe; layer++)
        for (int e = 0, found; e < experts; e++, distinct += found) {
            found = 0;
            for (size_t i = 0; i < routed; i++)
                found |= (int)(i / (size_t)top_k) % moe == layer && expert[0][i] == e;
        }
    for (int i = 0; i < 2 * (int)(sizeof policies / sizeof *policies); i++) {
        struct expert_cache cache = {.slots = i % 2 ? top_k : experts, .policy = policies[i / 2]};
        struct store_facts facts;
        rig_open_cached(&rig, path, "host", 2, &cache);
        read_prompt(&rig, &shape, &(struct seen){feature[1], expert[1], 0, NULL}, logits[1]);
        assert_memory_equal(feature[0], feature[1], features * sizeof *feature[0]);
        assert_memory_equal(expert[0], expert[1], routed * sizeof *expert[0]);
        assert_memory_equal(logits[0], logits[1], (size_t)shape.vocab * sizeof *logits[0]);
        assert_true(expert_source_facts(rig.experts, &facts));
        if (cache.slots == experts)
            assert_int_equal(facts.bytes, distinct * bytes_of_expert(&rig, &shape));
        rig_close(&rig);
    }
    for (int i = 0; i < 2; i++) {
        free(feature[i]);
        free(expert[i]);
        free(logits[i]);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_reads_each_expert_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Forwards shared by several texts (engine_forward_texts), over random tiny models, some with states: a text's results equal
 * those of a forward of its own, bit by bit, with trees and prompts of any length mixed; shared counts add up; batches that
 * cannot share a forward are rejected and change nothing. */
#include <unistd.h>

#include "common/base/mem.h"
#include "tests/unit/rig.h"

enum { TEXTS = 7, ROWS = 9, ROUNDS = 5, LONGEST = 60, FORCED_MAX = 2048 };

static const char *tiny_path(void)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/moe-test-shared-%d.moe", (int)getpid());
    return path;
}

/* states: some layers have a state instead of keys and values. */
static void write_model(uint64_t seed, bool states)
{
    struct chance chance = {seed};
    struct err err = {0};
    struct hparams shape;
    do
        shape = tiny_shape(&chance);
    while (states && (shape.norms != NORM_BEFORE || shape.layer_norm || shape.parallel));
    if (states) {
        const int heads = chance_range(&chance, 1, 3);
        shape.delta = (struct delta_shape){heads, heads * 2, 7, 5, 3};
        for (int n = 0; n < shape.layers; n++)
            shape.layer[n].state = n == 0 || chance_range(&chance, 0, 1);
    }
    must(tiny_write(tiny_path(), &shape, tiny_format(seed), seed, &err), &err);
}

/* A text twice: in shared forwards, and alone. */
struct both {
    struct sequence *with, *alone;
    int32_t token[ROWS], parent[ROWS], logit_row[ROWS], node[ROWS];
    int32_t forced[FORCED_MAX];         /* [moe][rows][top_k] */
    float row_weight[ROWS];
    struct batch batch;
};

static void begin_text(struct rig *rig, struct engine *beside, struct chance *chance, struct both *text)
{
    int32_t prompt[LONGEST];
    const int tokens = chance_range(chance, 1, LONGEST), vocab = engine_hparams(rig->engine)->vocab;
    struct sequence **both[] = {&text->with, &text->alone};
    struct engine *engine[] = {rig->engine, beside};
    struct forward out;
    for (int i = 0; i < tokens; i++)
        prompt[i] = chance_range(chance, 0, vocab - 1);
    for (int i = 0; i < 2; i++) {
        must(sequence_open(both[i], engine[i], tokens + (ROUNDS + 1) * ROWS, &rig->err), &rig->err);
        must(engine_prompt(engine[i], *both[i], prompt, tokens, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    }
}

/* A plan that ranks by rows, with random budgets. Some rounds have no plan. */
struct plan_drawn {
    struct expert_plan plan;
    int32_t budget[64];
};

static const struct expert_plan *draw_plan(const struct rig *rig, struct chance *chance, int round, struct plan_drawn *out)
{
    const struct hparams *shape = engine_hparams(rig->engine);
    const int layers = hparams_moe_layers(shape);
    if (round % 3 != 1 || !layers || layers > 64)
        return NULL;
    for (int i = 0; i < layers; i++)
        out->budget[i] = chance_range(chance, shape->router.top_k, shape->router.experts);
    out->plan = (struct expert_plan){.ranking = chance_range(chance, 0, 1) ? PLAN_PATH : PLAN_ROUTER,
                                     .mode = chance_range(chance, 0, 1) ? BUDGET_TRUNCATE : BUDGET_SUBSTITUTE,
                                     .moe_layers = layers, .experts = shape->router.experts, .budget = out->budget};
    return &out->plan;
}

/* Draws a random tree, with logits of some rows. */
static void draw_batch(const struct rig *rig, struct chance *chance, const struct batch *common, struct both *text)
{
    const int vocab = engine_hparams(rig->engine)->vocab;
    text->batch = *common;
    text->batch.rows = chance_range(chance, 1, ROWS);
    text->batch.logit_rows = 0;
    for (int row = 0; row < text->batch.rows; row++) {
        text->token[row] = chance_range(chance, 0, vocab - 1);
        text->parent[row] = chance_range(chance, -1, row - 1);
        text->row_weight[row] = (float)chance_range(chance, 0, 8) / 8;
        if (chance_range(chance, 0, 3))
            text->logit_row[text->batch.logit_rows++] = row;
    }
    text->batch.token = text->token;
    text->batch.parent = text->parent;
    text->batch.logit_row = text->logit_row;
    if (common->plan && common->plan->ranking == PLAN_PATH)
        text->batch.row_weight = text->row_weight;
}

/* Draws random experts that replace the router's. */
static void draw_forced(const struct rig *rig, struct chance *chance, struct both *text)
{
    const struct hparams *shape = engine_hparams(rig->engine);
    const int slots = hparams_moe_layers(shape) * text->batch.rows * shape->router.top_k;
    assert_true(slots <= FORCED_MAX);
    for (int i = 0; i < slots; i++)
        text->forced[i] = (i % shape->router.top_k + chance_range(chance, 0, 1) * shape->router.top_k) % shape->router.experts;
    text->batch.forced = text->forced;
}

static void same(const void *a, const void *b, size_t count, size_t size)
{
    assert_true(!a == !b);
    if (a && count)
        assert_memory_equal(a, b, count * size);
}

static void compare_features(struct rig *rig, const struct batch *batch, const struct forward *a, const struct forward *b)
{
    const size_t bytes = (size_t)batch->features->count * (size_t)a->rows * (size_t)a->hidden_size * sizeof(float);
    float *one = mem_alloc(1, bytes, &rig->err), *other = mem_alloc(1, bytes, &rig->err);
    queue_download(rig->device, one, a->features, bytes);
    queue_download(rig->device, other, b->features, bytes);
    must(queue_wait(rig->device, &rig->err), &rig->err);
    assert_memory_equal(one, other, bytes);
    mem_free(&one);
    mem_free(&other);
}

/* Compares the text's results with those of a forward of another engine over this text alone. */
static void compare_alone(struct rig *rig, struct engine *beside, const struct both *text, const struct forward *got)
{
    struct forward want;
    const size_t rows = (size_t)text->batch.rows;
    must(engine_forward(beside, text->alone, &text->batch, &want, &rig->err), &rig->err);
    const size_t moe = (size_t)want.moe_layers, routed = rows * moe * (size_t)want.top_k;
    assert_int_equal(got->rows, want.rows);
    assert_int_equal(got->logit_rows, want.logit_rows);
    if (want.logit_rows)
        same(got->logits, want.logits, (size_t)want.logit_rows * (size_t)want.vocab, sizeof *want.logits);
    same(got->expert, want.expert, routed, sizeof *want.expert);
    same(got->weight, want.weight, routed, sizeof *want.weight);
    same(got->wanted, want.wanted, routed, sizeof *want.wanted);
    same(got->score, want.score, rows * moe * (size_t)want.experts, sizeof *want.score);
    same(got->hidden, want.hidden, rows * (size_t)want.layers * (size_t)want.hidden_size, sizeof *want.hidden);
    same(got->node, want.node, rows, sizeof *want.node);
    same(got->distinct_wanted, want.distinct_wanted, moe, sizeof(int32_t));
    same(got->distinct_loaded, want.distinct_loaded, moe, sizeof(int32_t));
    assert_true(got->bytes <= want.bytes);
    if (text->batch.features)
        compare_features(rig, &text->batch, got, &want);
}

/* Commits a random path in both, or drops all nodes. */
static void keep_path(struct rig *rig, struct chance *chance, struct both *text)
{
    int32_t path[ROWS];
    const int last = chance_range(chance, -1, text->batch.rows - 1);
    int count = 0, at;
    for (at = last; at >= 0; at = text->parent[at])
        count++;
    at = last;
    for (int i = count - 1; i >= 0; i--, at = text->parent[at])
        path[i] = at;
    if (!count) {
        sequence_rollback(text->with);
        sequence_rollback(text->alone);
        return;
    }
    must(sequence_commit(text->with, path, count, &rig->err), &rig->err);
    must(sequence_commit(text->alone, path, count, &rig->err), &rig->err);
}

/* The experts and bytes of a shared forward are at least those of any single text, and at most the sum over all. */
static void compare_totals(const struct forward *out, int texts)
{
    int rows = 0;
    for (int i = 0; i < texts; i++)
        rows += out[i].rows;
    for (int i = 0; i < texts; i++) {
        assert_int_equal(out[i].texts, texts);
        assert_int_equal(out[i].all_rows, rows);
    }
    for (int moe = 0; moe < out[0].moe_layers; moe++) {
        int mark[64] = {0}, only[TEXTS] = {0}, distinct = 0;        /* mark: -1: of several texts; else 1 + the text */
        for (int i = 0; i < texts; i++)
            for (int row = 0; row < out[i].rows; row++)
                for (int slot = 0; slot < out[i].top_k; slot++) {
                    const int32_t e = out[i].expert[(row * out[i].moe_layers + moe) * out[i].top_k + slot];
                    distinct += e >= 0 && !mark[e];
                    if (e >= 0)
                        mark[e] = !mark[e] || mark[e] == 1 + i ? 1 + i : -1;
                }
        assert_int_equal(out[0].all_loaded[moe], distinct);
        for (int e = 0; e < 64; e++)
            if (mark[e] > 0)
                only[mark[e] - 1]++;
        for (int i = 0; i < texts; i++)
            assert_int_equal(out[i].only_loaded[moe], texts > 1 ? only[i] : distinct);
    }
}

static void run_texts(const char *device, uint64_t seed, int max_rows)
{
    struct chance chance = {seed * 77 + 1};
    struct rig rig;
    struct engine *beside = NULL;
    struct both text[TEXTS] = {{NULL}};
    const struct feature_request features = {2, {0, 0}};
    rig_open(&rig, tiny_path(), device);
    struct feature_request asked = features;
    asked.layer[1] = model_hparams(rig.model)->layers;
    const uint64_t formats = device_info(rig.device)->q8_cache ? CACHE_FORMATS : CACHE_Q8;
    rig_engine(&rig, (struct engine_setup){.max_rows = max_rows, .max_logit_rows = max_rows,
                                           .cache = (enum cache_format)(seed % formats)}, 4);
    must(engine_open(&beside, engine_config(rig.engine), &rig.err), &rig.err);
    for (int i = 0; i < TEXTS; i++)
        begin_text(&rig, beside, &chance, &text[i]);
    for (int round = 0; round < ROUNDS; round++) {
        struct plan_drawn plan;
        const struct batch common = {.plan = draw_plan(&rig, &chance, round, &plan), .want_scores = round % 2,
                                     .want_hidden = round == 1, .resume = round == 3,
                                     .features = round > 2 ? &asked : NULL};
        struct sequence *sequence[TEXTS];
        struct batch batch[TEXTS];
        struct forward out[TEXTS];
        const int texts = chance_range(&chance, 1, TEXTS), first = chance_range(&chance, 0, TEXTS - texts);
        for (int i = 0; i < texts; i++) {
            draw_batch(&rig, &chance, &common, &text[first + i]);
            if (round == 2 && hparams_moe_layers(engine_hparams(rig.engine)))
                draw_forced(&rig, &chance, &text[first + i]);
            sequence[i] = text[first + i].with;
            batch[i] = text[first + i].batch;
        }
        must(engine_forward_texts(rig.engine, sequence, batch, texts, out, &rig.err), &rig.err);
        compare_totals(out, texts);
        for (int i = 0; i < texts; i++)
            compare_alone(&rig, beside, &text[first + i], &out[i]);
        for (int i = 0; i < texts; i++)
            keep_path(&rig, &chance, &text[first + i]);
    }
    for (int i = 0; i < TEXTS; i++) {
        sequence_close(&text[i].with);
        sequence_close(&text[i].alone);
    }
    engine_close(&beside);
    rig_close(&rig);
}

static void texts_together_are_texts_alone(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 24; seed += unit_brief() ? 5 : 1) {
        write_model(seed, seed % 4 == 0);
        run_texts(seed % 6 == 5 ? "ref" : device_name("host"), seed, TEXTS * ROWS);
        unlink(tiny_path());
    }
}

/* Builds a request that must be rejected: which texts, and their batches. */
static void refuses(struct rig *rig, struct sequence *const *sequence, const struct batch *batch, int texts, const char *why)
{
    struct forward out[TEXTS];
    struct err err = {0};
    const int pending[] = {sequence_pending(sequence[0]), sequence_pending(sequence[1])};
    assert_int_equal(engine_forward_texts(rig->engine, sequence, batch, texts, out, &err), -1);
    assert_int_equal(err.code, ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("'%s' is not in '%s'", why, err.text);
    assert_int_equal(sequence_pending(sequence[0]), pending[0]);
    assert_int_equal(sequence_pending(sequence[1]), pending[1]);
}

static void what_cannot_share_is_refused(void **state)
{
    struct rig rig;
    struct sequence *other = NULL;
    struct forward out[2];
    const struct forward_part part = {.layers = 0};
    int32_t forced[256] = {0}, budget[] = {1, 1, 1};
    (void)state;
    write_model(6, false);
    rig_open(&rig, tiny_path(), "host");
    rig_engine(&rig, (struct engine_setup){.max_rows = 6, .max_logit_rows = 4}, 12);
    must(sequence_open(&other, rig.engine, 4, &rig.err), &rig.err);
    const struct hparams *shape = engine_hparams(rig.engine);
    struct expert_plan plan = {.ranking = PLAN_ORACLE, .moe_layers = hparams_moe_layers(shape),
                               .experts = shape->router.experts, .budget = budget};
    struct sequence *two[] = {rig.sequence, other}, *twice[] = {rig.sequence, rig.sequence};
    const struct batch good = {.rows = 2, .token = rig.token, .logit_rows = 1};
    struct batch batch[] = {good, good};
    must(engine_forward_texts(rig.engine, two, batch, 2, out, &rig.err), &rig.err);
    refuses(&rig, twice, batch, 2, "the same sequence");
    batch[1].part = &part;
    refuses(&rig, two, batch, 2, "cannot share");
    batch[1] = good;
    batch[0].forced = forced;
    refuses(&rig, two, batch, 2, "cannot share");
    batch[0] = batch[1] = good;
    batch[0].plan = batch[1].plan = &plan;
    refuses(&rig, two, batch, 2, "cannot share");
    plan.ranking = PLAN_PATH;
    batch[0].row_weight = (float[]){1, 1};
    refuses(&rig, two, batch, 2, "text 1 has none");
    batch[0].plan = NULL;
    refuses(&rig, two, (struct batch[]){batch[1], good}, 2, "text 0 has none");
    batch[0] = batch[1] = good;
    batch[1].want_hidden = true;
    refuses(&rig, two, batch, 2, "cannot share");
    batch[1] = (struct batch){.rows = 5, .token = rig.token};
    refuses(&rig, two, batch, 2, "7 rows");
    batch[0].logit_rows = batch[1].logit_rows = 2;
    batch[1].rows = 3;
    refuses(&rig, two, batch, 2, "full");
    batch[1].token = (int32_t[]){0, 1 << 20, 0};
    refuses(&rig, two, batch, 2, "vocabulary");
    sequence_close(&other);
    rig_close(&rig);
    unlink(tiny_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_together_are_texts_alone),
        cmocka_unit_test(what_cannot_share_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Drafters that observe the target and add rows to verifications: the order of their calls, and that what they receive
 * equals the output of forwards on a sequence of their own, bit by bit. The text equals that without them. */
#include "tests/unit/unit.h"

#include "common/base/clock.h"
#include "common/decode/internal.h"
#include "tests/unit/rig.h"

enum { TOKENS = 40, PROMPT = 90, ROWS = 80, TEXT = PROMPT + TOKENS, RIDERS = 5 };

static void open_rig(struct rig *rig, uint64_t seed)
{
    struct chance chance = {seed};
    const struct hparams shape = tiny_shape(&chance);
    rig_write(rig, &shape, FORMAT_F32, seed, 1);
    rig_engine(rig, (struct engine_setup){.max_rows = ROWS, .max_logit_rows = ROWS}, 0);
}

enum event { BEGIN, SEE_PROMPT, COMMIT, PROPOSE, RIDE, RODE, SEE };

/* Drafts the coming answer, with some errors; its added rows form a chain and a fork; observes one layer. */
struct watcher {
    struct drafter base;
    struct rig *rig;
    struct chance chance;
    int32_t text[TEXT + 32], next[TEXT + 32];   /* the committed text, and the text to come */
    int length, seen;                           /* tokens committed, and observed */
    enum event event[2000];
    int events;
    int32_t token[RIDERS], parent[RIDERS], way[RIDERS][64], depth[RIDERS];      /* added rows: tokens after the root */
    bool declines;                              /* adds no rows in this iteration */
    float *hidden;                              /* [TEXT][hidden] observed states of the text */
    long rows, rejected;
    struct sequence *own;
};

static struct watcher *watcher_of(struct drafter *drafter) { return (struct watcher *)drafter; }

static int propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                   struct err *err)
{
    struct watcher *mine = watcher_of(drafter);
    int before = tree->nodes, node = leaf->node;
    (void)leaves, (void)err;
    mine->event[mine->events++] = PROPOSE;
    for (int i = 0; i < tokens; i++) {
        int right = mine->next[mine->length + i];
        int wrong = chance_range(&mine->chance, 0, engine_hparams(mine->rig->engine)->vocab - 1);
        node = draft_tree_add(tree, node, chance_range(&mine->chance, 0, 3) ? right : wrong, NAN, drafter->number);
    }
    return tree->nodes - before;
}

/* Adds two rows after the root, one after the last node, one after the first added row and one after that. */
static int request_riders(struct drafter *drafter, const struct draft_tree *tree, struct rider_rows *out, struct err *err)
{
    struct watcher *mine = watcher_of(drafter);
    const int32_t parent[RIDERS] = {0, 0, tree->nodes, 1 + tree->nodes, 4 + tree->nodes};
    (void)err;
    mine->event[mine->events++] = RIDE;
    mine->declines = chance_range(&mine->chance, 0, 4) == 0;
    for (int row = 0; row < RIDERS; row++) {
        mine->token[row] = chance_range(&mine->chance, 0, engine_hparams(mine->rig->engine)->vocab - 1);
        mine->parent[row] = parent[row];
        if (parent[row] > tree->nodes) {
            int above = parent[row] - tree->nodes - 1;
            memcpy(mine->way[row], mine->way[above], sizeof *mine->way);
            mine->depth[row] = mine->depth[above];
        } else {
            mine->depth[row] = draft_tree_path(tree, parent[row] - 1, mine->way[row], 63);
        }
        mine->way[row][mine->depth[row]++] = mine->token[row];
    }
    *out = (struct rider_rows){mine->declines ? 0 : RIDERS, mine->token, mine->parent};
    return 0;
}

/* The logits equal those after the text and the tokens on the path to the row, read alone. */
static int return_riders(struct drafter *drafter, const float *logits, struct err *err)
{
    struct watcher *mine = watcher_of(drafter);
    struct rig *rig = mine->rig;
    size_t vocab = (size_t)engine_hparams(rig->engine)->vocab;
    float *kept = malloc(RIDERS * vocab * sizeof *kept);
    memcpy(kept, logits, RIDERS * vocab * sizeof *kept);
    mine->event[mine->events++] = RODE;
    assert_false(mine->declines);
    for (int row = 0; row < RIDERS; row++) {
        /* Runs another engine: results of the first one must stay readable. */
        struct engine *engine = NULL;
        struct sequence *sequence = NULL;
        struct forward forward;
        int32_t text[TEXT + 64];
        int count = mine->length + mine->depth[row];
        memcpy(text, mine->text, (size_t)mine->length * sizeof *text);
        memcpy(text + mine->length, mine->way[row], (size_t)mine->depth[row] * sizeof *text);
        must(engine_open(&engine, engine_config(rig->engine), err), err);
        must(sequence_open(&sequence, engine, count, err), err);
        must(engine_prompt(engine, sequence, text, count, NULL, NULL, NULL, &forward, err), err);
        assert_memory_equal(forward.logits, kept + (size_t)row * vocab, vocab * sizeof *kept);
        sequence_close(&sequence);
        engine_close(&engine);
    }
    free(kept);
    return 0;
}

static int observe(struct drafter *drafter, const struct target_view *view, struct err *err)
{
    struct watcher *mine = watcher_of(drafter);
    struct rig *rig = mine->rig;
    const size_t hidden = (size_t)engine_hparams(rig->engine)->hidden, rows = (size_t)view->forward->rows;
    float *features = malloc(rows * hidden * sizeof *features);
    mine->event[mine->events++] = view->prompt ? SEE_PROMPT : SEE;
    assert_int_equal(view->features->count, 1);
    assert_int_equal(view->features->layer[0], engine_hparams(rig->engine)->layers - 1);
    queue_download(rig->device, features, view->forward->features, rows * hidden * sizeof *features);
    must(queue_wait(rig->device, err), err);
    assert_int_equal(view->position, mine->seen);
    assert_int_equal(view->position, view->prompt ? mine->seen : mine->length - 1);
    if (view->prompt)
        assert_int_equal(view->kept_rows, view->forward->rows);
    for (int i = 0; i < view->kept_rows && mine->seen < TEXT; i++) {
        assert_int_equal(view->token[view->kept[i]], mine->next[mine->seen]);
        memcpy(mine->hidden + (size_t)mine->seen++ * hidden, features + (size_t)view->kept[i] * hidden,
               hidden * sizeof *features);
    }
    mine->rows += view->forward->rows;
    mine->rejected += view->forward->rows - view->kept_rows;
    free(features);
    return 0;
}

static int commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct watcher *mine = watcher_of(drafter);
    (void)err;
    mine->event[mine->events++] = COMMIT;
    for (int i = 0; i < count; i++)
        mine->text[mine->length++] = token[i];
    return 0;
}

static int begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    (void)err;
    assert_non_null(text->target);
    watcher_of(drafter)->event[watcher_of(drafter)->events++] = BEGIN;
    return 0;
}

static void free_nothing(struct drafter *drafter) { (void)drafter; }

static const struct drafter_class watching = {
    .name = "watching", .propose = propose, .request_riders = request_riders, .return_riders = return_riders,
    .observe = observe, .commit = commit, .begin = begin, .free = free_nothing};

/* Computes the residual stream after a layer, for each token of a text. */
static void hidden_of(struct rig *rig, const int32_t *text, int count, int layer, float *out)
{
    struct sequence *sequence = NULL;
    struct forward forward;
    size_t hidden = (size_t)engine_hparams(rig->engine)->hidden;
    must(sequence_open(&sequence, rig->engine, count, &rig->err), &rig->err);
    for (int at = 0; at < count; at++) {
        const struct batch batch = {.rows = 1, .token = text + at, .logit_rows = 0, .want_hidden = true};
        must(engine_forward(rig->engine, sequence, &batch, &forward, &rig->err), &rig->err);
        memcpy(out + (size_t)at * hidden, forward.hidden + (size_t)layer * hidden, hidden * sizeof *out);
        must(sequence_commit(sequence, (const int32_t[]){0}, 1, &rig->err), &rig->err);
    }
    sequence_close(&sequence);
}

/* The order of calls is begin, commit, observe for each piece of the prompt, commit; then propose (not for the last token),
 * request_riders, return_riders if it requested any, observe, commit. */
static void order_is_right(const struct watcher *watcher)
{
    int at = 0, iterations = 0;
    assert_int_equal(watcher->event[at++], BEGIN);
    assert_int_equal(watcher->event[at++], COMMIT);
    for (int pieces = 0; pieces < (PROMPT + ROWS - 1) / ROWS; pieces++)
        assert_int_equal(watcher->event[at++], SEE_PROMPT);
    assert_int_equal(watcher->event[at++], COMMIT);
    for (; at < watcher->events; iterations++) {
        at += watcher->event[at] == PROPOSE;
        assert_int_equal(watcher->event[at++], RIDE);
        at += watcher->event[at] == RODE;
        assert_int_equal(watcher->event[at++], SEE);
        assert_int_equal(watcher->event[at++], COMMIT);
    }
    assert_true(iterations > 3);
}

static int count_riders(void *context, const struct decode_iteration *iteration, struct err *err)
{
    (void)err;
    assert_int_equal(iteration->forward->rows, iteration->record.nodes + iteration->record.riders);
    assert_int_equal(iteration->record.nodes, 1 + iteration->tree->nodes);
    assert_true(iteration->record.riders == 0 || iteration->record.riders == RIDERS);
    *(int *)context += iteration->record.riders;
    return 0;
}

static void what_drafters_see_is_what_the_target_computes(void **state)
{
    static const char *ngram[] = {"ngram"};
    int riders = 0;
    long rejected = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 2 : 6); seed++) {
        struct rig rig;
        struct decode_settings settings = DECODE_DEFAULTS;
        struct decode_result result;
        struct decoder *decoder = NULL;
        struct watcher watcher = {.base = {.class = &watching, .riders = RIDERS}, .rig = &rig, .chance = {seed}};
        const struct decode_sink none = {0}, sink = {.context = &riders, .iteration = count_riders};
        int32_t text[TEXT];
        open_rig(&rig, seed);
        for (int i = 0; i < PROMPT; i++)
            text[i] = chance_range(&watcher.chance, 0, engine_hparams(rig.engine)->vocab - 1);
        const struct decode_prompt prompt = {.token = text, .tokens = PROMPT};
        settings.max_tokens = TOKENS;
        settings.ignore_eos = true;
        settings.filter.temperature = seed % 2 ? 0 : 0.8;
        const struct decoder_setup setup = {.engine = rig.engine, .settings = &settings};
        must(decoder_open(&decoder, &setup, &rig.err), &rig.err);
        must(decoder_run(decoder, &prompt, &none, &result, &rig.err), &rig.err);
        memcpy(text + PROMPT, result.token, TOKENS * sizeof *text);
        decoder_close(&decoder);
        memcpy(watcher.next, text, sizeof text);
        watcher.hidden = calloc(TEXT, (size_t)engine_hparams(rig.engine)->hidden * sizeof *watcher.hidden);
        watcher.base.features = (struct feature_request){1, {engine_hparams(rig.engine)->layers - 1}};
        settings.draft = (struct strings){ngram, 1};
        must(decoder_open(&decoder, &setup, &rig.err), &rig.err);
        drafters_close(&decoder->drafters);
        decoder->drafters = (struct drafters){{&watcher.base}, 1};
        decoder->riders = drafters_riders(&decoder->drafters);
        must(drafters_features(&decoder->drafters, &decoder->features, &rig.err), &rig.err);
        must(decoder_run(decoder, &prompt, &sink, &result, &rig.err), &rig.err);
        assert_int_equal(result.tokens, TOKENS);
        assert_memory_equal(result.token, text + PROMPT, TOKENS * sizeof *text);
        decoder_close(&decoder);
        assert_int_equal(watcher.seen, watcher.length - 1);
        order_is_right(&watcher);
        const size_t hidden = (size_t)engine_hparams(rig.engine)->hidden;
        float *expected = malloc(TEXT * hidden * sizeof *expected);
        hidden_of(&rig, text, watcher.seen, engine_hparams(rig.engine)->layers - 1, expected);
        assert_memory_equal(watcher.hidden, expected, (size_t)watcher.seen * hidden * sizeof *expected);
        free(expected);
        free(watcher.hidden);
        rejected += watcher.rejected;
        rig_close(&rig);
    }
    assert_true(riders > 0 && rejected > 20);
}

static void layers_that_drafters_want_are_put_together(void **state)
{
    static const struct { int first[4], second[4], all[9], rc; } cases[] = {
        {{0}, {0}, {0}, 0}, {{2, 3, 7}, {0}, {2, 3, 7}, 0}, {{2, 3, 7}, {2, 1, 7}, {3, 1, 3, 7}, 0},
        {{3, 5, 2, 9}, {2, 9, 4}, {4, 2, 4, 5, 9}, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct drafter one = {.number = 0}, two = {.number = 1};
        struct drafters drafters = {{&one, &two}, 2};
        struct feature_request all;
        one.features.count = cases[i].first[0];
        two.features.count = cases[i].second[0];
        for (int at = 0; at < 3; at++) {
            one.features.layer[at] = cases[i].first[1 + at];
            two.features.layer[at] = cases[i].second[1 + at];
        }
        assert_int_equal(drafters_features(&drafters, &all, NULL), 0);
        assert_int_equal(all.count, cases[i].all[0]);
        for (int at = 0; at < all.count; at++)
            assert_int_equal(all.layer[at], cases[i].all[1 + at]);
    }
    struct drafter many[2] = {{.features = {FEATURES_MAX, {0, 1, 2, 3, 4, 5, 6, 7}}}, {.features = {1, {8}}}};
    struct drafters drafters = {{&many[0], &many[1]}, 2};
    struct feature_request all;
    struct err err = {0};
    assert_int_equal(drafters_features(&drafters, &all, &err), -1);
    assert_non_null(strstr(err.text, "more than 8 layers"));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_drafters_see_is_what_the_target_computes),
        cmocka_unit_test(layers_that_drafters_want_are_put_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

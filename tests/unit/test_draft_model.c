/* A drafter with a model of its own, on small random models: its proposals equal those after reading the whole text anew,
 * whatever was accepted, rejected or not drafted before; in the loop, a drafter that equals the target guesses every token. */
#include "tests/unit/unit.h"

#include <math.h>

#include "common/decode/decode.h"
#include "common/draft/drafter.h"
#include "common/draft/rows.h"
#include "common/policy/shape.h"
#include "kernels/plain/propose.h"
#include "tests/unit/tiny.h"

enum { TOKENS = 70, NODES = 120, ROWS = ENGINE_ROWS_MAX };

struct rig {
    struct model *model[2];             /* the target, and the draft model when tests read it directly */
    struct expert_source *experts[2];
    struct engine *engine[2];
    struct device *device;
    struct err err;
    char *folder, *path[2], draft[300];
    const char *named[1];
};

/* Models with one vocabulary. alike 2: the same model; 1: the same weights rounded; 0: unrelated. */
static void rig_open(struct rig *rig, uint64_t seed, int alike, int threads)
{
    struct chance chance = {seed}, other = {seed + 1000};
    struct hparams shape[2] = {tiny_shape(&chance), tiny_shape(&other)};
    *rig = (struct rig){.folder = unit_folder()};
    struct err *err = &rig->err;
    if (alike)
        shape[1] = shape[0];
    shape[1].vocab = shape[0].vocab;
    must(device_open(&rig->device, &(struct device_setup){"host", threads, NULL}, err), err);
    for (int i = 0; i < 2; i++) {
        rig->path[i] = mem_string(unit_path(rig->folder, i ? "draft.moe" : "target.moe"), err);
        enum weight_format format = i && alike < 2 ? FORMAT_BF16 : FORMAT_F32;
        must(tiny_write(rig->path[i], &shape[i], format, alike ? seed : seed + (uint64_t)i, err), err);
        must(model_open(&rig->model[i], rig->path[i], err), err);
        if (hparams_moe_layers(model_hparams(rig->model[i])))
            must(expert_source_open(&rig->experts[i], rig->model[i], rig->device, err), err);
        const struct engine_setup setup = {rig->model[i], rig->device, rig->experts[i], ROWS, ROWS, 0};
        must(engine_open(&rig->engine[i], &setup, err), err);
    }
    snprintf(rig->draft, sizeof rig->draft, "model:file=%s", rig->path[1]);
}

static void rig_close(struct rig *rig)
{
    for (int i = 0; i < 2; i++) {
        engine_close(&rig->engine[i]);
        expert_source_close(&rig->experts[i]);
        model_close(&rig->model[i]);
        mem_free(&rig->path[i]);
    }
    device_close(&rig->device);
    unit_remove(rig->folder);
}

static struct drafter *open_drafter(struct rig *rig, enum draft_choice choice, bool proposals,
                                    const struct sample_filter *filter)
{
    const struct drafter_setup setup = {.vocab = engine_hparams(rig->engine[0])->vocab, .positions = 2048, .number = 5,
                                        .target = rig->engine[0], .choice = choice, .proposals = proposals,
                                        .probabilities = true, .filter = *filter};
    struct drafter *drafter = NULL;
    must(drafter_open(&drafter, rig->draft, &setup, &rig->err), &rig->err);
    return drafter;
}

/* The key of a node's own random numbers: text, length, drafter, and the tokens on the path. */
static uint64_t own_key(const struct sample_draw *draw, int length, int number, const int32_t *way, int depth)
{
    uint64_t key = draw->key;
    for (int step = -2; step < depth; step++) {
        uint32_t which = (uint32_t)(step == -2 ? length : step == -1 ? number : way[step]);
        uint32_t ordinal = step < 0 ? draw->ordinal : 0, sample = step < 0 ? draw->sample : 0;
        struct philox block = philox((struct philox){{1u << 30, which, ordinal, sample}}, key);
        key = (uint64_t)block.word[0] << 32 | block.word[1];
    }
    return key;
}

/* Computes the expected children of a node: the draft model reads text and path from the first token on. */
static int naive(struct rig *rig, struct sequence *sequence, const int32_t *text, int length, const struct draft_tree *tree,
                 int node, enum draft_choice choice, const struct sample_filter *filter, const struct sample_draw *draw,
                 int max, int32_t *token, float *log_probability, float *proposal)
{
    int32_t whole[2 * TOKENS + NODES], kept[128];
    double value[128];
    struct sample_draw here = *draw;
    struct forward forward;
    int found;
    memcpy(whole, text, (size_t)length * sizeof *text);
    int count = length + draft_tree_path(tree, node, whole + length, NODES);
    must(sequence_truncate(sequence, 0, &rig->err), &rig->err);
    must(engine_prompt(rig->engine[1], sequence, whole, count, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    here.position = (uint32_t)count;
    if (choice == DRAFT_DRAWN)
        here.key = own_key(draw, length, 5, whole + length, count - length);
    found = propose_tokens(forward.logits, forward.vocab, filter, choice == DRAFT_BEST ? NULL : &here, max, kept, value, token,
                           log_probability);
    sample_probabilities(forward.logits, forward.vocab, filter, kept, value);
    for (int i = 0; i < forward.vocab && proposal; i++)
        proposal[i] = (float)value[i];
    for (int i = 0; i < found && choice == DRAFT_DRAWN; i++)
        log_probability[i] = (float)log(value[token[i]]);
    return found;
}

/* Requests more nodes below random leaves and compares all new ones. */
static int propose_and_check(struct rig *rig, struct drafter *drafter, struct sequence *sequence, struct draft_tree *tree,
                             struct chance *chance, const int32_t *text, int length, enum draft_choice choice,
                             bool proposals, const struct sample_filter *filter, const struct sample_draw *draw)
{
    struct draft_leaf leaf[8];
    int leaves = 0, tokens = chance_range(chance, 1, 3), before = tree->nodes, compared = 0;
    for (int at = 0; at < 8 && leaves < 6; at++) {
        int node = chance_range(chance, -1, tree->nodes - 1), twice = 0, grown = 0;
        for (int i = 0; i < leaves; i++)
            twice |= leaf[i].node == node;
        for (int other = 0; other < tree->nodes; other++)
            grown |= tree->parent[other] == node;
        if (!twice && !grown)
            leaf[leaves++] = (struct draft_leaf){node, chance_range(chance, 1, 4)};
    }
    int added = drafter->class->propose(drafter, tree, leaf, leaves, tokens, &rig->err);
    assert_int_equal(added, tree->nodes - before);
    for (int node = -1; node < tree->nodes; node++) {
        int32_t token[4];
        float log_probability[4], proposal[128];
        int children = 0, asked = 0, known = node < before, depth = node < 0 ? 0 : tree->depth[node];
        for (int i = 0; i < leaves; i++)
            asked = leaf[i].node == node ? leaf[i].siblings : asked;
        for (int top = node, i = 0; node >= before && !asked && top >= before; top = tree->parent[top])
            for (i = 0; i < leaves; i++)
                if (tree->parent[top] == leaf[i].node && depth - (leaf[i].node < 0 ? 0 : tree->depth[leaf[i].node]) < tokens)
                    asked = 1;
        for (int other = known ? before : node + 1; other < tree->nodes; other++)
            children += tree->parent[other] == node;
        if (!asked) {
            assert_int_equal(children, 0);
            continue;
        }
        int want = naive(rig, sequence, text, length, tree, node, choice, filter, draw, asked, token, log_probability,
                         proposal);
        assert_int_equal(children, want);
        for (int other = before, child = 0; other < tree->nodes; other++)
            if (tree->parent[other] == node) {
                assert_int_equal(tree->token[other], token[child]);
                assert_true(fabsf(tree->log_probability[other] - log_probability[child]) < 1e-6f);
                assert_int_equal(tree->drafter[other], 5);
                assert_int_equal(tree->proposal[other] != NULL, proposals);
                if (proposals)
                    assert_memory_equal(tree->proposal[other], proposal,
                                        (size_t)engine_hparams(rig->engine[0])->vocab * sizeof(float));
                child++;
                compared++;
            }
    }
    return compared;
}

static void proposals_are_those_of_reading_everything_anew(void **state)
{
    static const struct sample_filter filters[] = {{0, 1, 0, 0}, {0.8, 1, 0, 0}, {1, 0.9, 0.01, 12}};
    int compared = 0, followed = 0, paused = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed += unit_brief() ? 3 : 1) {
        struct rig rig;
        struct chance chance = {seed + 77};
        struct draft_tree tree = {0};
        struct sequence *sequence = NULL;
        const struct sample_filter *filter = &filters[seed % 3];
        static const enum draft_choice choices[] = {DRAFT_COUPLED, DRAFT_BEST, DRAFT_COUPLED, DRAFT_DRAWN};
        enum draft_choice choice = filter->temperature > 0 ? choices[seed / 3 % 4] : DRAFT_BEST;
        bool proposals = choice == DRAFT_DRAWN || (choice == DRAFT_COUPLED && seed / 3 % 4 == 2);
        rig_open(&rig, seed, 0, 1 + (int)seed % 2);
        struct drafter *drafter = open_drafter(&rig, choice, proposals, filter);
        must(sequence_open(&sequence, rig.engine[1], 2 * TOKENS + NODES, &rig.err), &rig.err);
        must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
        for (int text_number = 0; text_number < (unit_brief() ? 2 : 3); text_number++) {
            int32_t text[2 * TOKENS];
            struct draft_text about = {NULL, 2 * TOKENS, {.key = seed, .ordinal = (uint32_t)text_number}};
            int length = chance_range(&chance, 1, 30), vocab = engine_hparams(rig.engine[0])->vocab;
            for (int i = 0; i < length; i++)
                text[i] = chance_range(&chance, 0, vocab - 1);
            must(drafter->class->begin(drafter, &about, &rig.err), &rig.err);
            must(drafter->class->commit(drafter, text, length, &rig.err), &rig.err);
            while (length < (unit_brief() ? TOKENS / 2 : TOKENS)) {
                int asks = chance_range(&chance, 0, 3), count = 0, at = -1;
                draft_tree_clear(&tree);
                for (int ask = 0; ask < asks; ask++)
                    compared += propose_and_check(&rig, drafter, sequence, &tree, &chance, text, length, choice, proposals,
                                                  filter, &about.draw);
                if (asks && chance_range(&chance, 0, 3) == 0) {         /* a part of the draft is dropped */
                    int32_t keep[NODES];
                    int kept = chance_range(&chance, 0, tree.nodes);
                    for (int i = 0; i < kept; i++)
                        keep[i] = i;
                    must(draft_tree_keep(&tree, keep, kept), &rig.err);
                }
                paused += !asks;
                /* Follows the draft for some levels, then adds a token that may or may not be in it. */
                for (int node = 0; node < tree.nodes; node++)
                    if (tree.parent[node] == at && chance_range(&chance, 0, 2)) {
                        text[length + count++] = tree.token[node];
                        at = node;
                    }
                followed += count;
                text[length + count++] = chance_range(&chance, 0, vocab - 1);
                must(drafter->class->commit(drafter, text + length, count, &rig.err), &rig.err);
                length += count;
            }
        }
        draft_tree_free(&tree);
        sequence_close(&sequence);
        drafter_close(&drafter);
        rig_close(&rig);
    }
    assert_true(unit_brief() || (compared > 1500 && followed > 100 && paused > 40));
}

/* A leaf that is extended again has its first children already. */
static void more_children_can_be_asked_for(void **state)
{
    static const struct sample_filter filter = {0, 1, 0, 0};
    const struct draft_text about = {NULL, TOKENS, {.key = 1}};
    const int32_t text[] = {3, 1, 4, 1, 5};
    struct rig rig;
    struct draft_tree tree = {0};
    struct sequence *sequence = NULL;
    (void)state;
    rig_open(&rig, 2, 0, 1);
    struct drafter *drafter = open_drafter(&rig, DRAFT_BEST, false, &filter);
    must(sequence_open(&sequence, rig.engine[1], TOKENS, &rig.err), &rig.err);
    must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
    must(drafter->class->begin(drafter, &about, &rig.err), &rig.err);
    must(drafter->class->commit(drafter, text, 5, &rig.err), &rig.err);
    for (int node = -1; node < 2; node++)
        for (int siblings = 1; siblings <= 4; siblings += 3) {
            int32_t token[4];
            float log_probability[4];
            int nodes = tree.nodes, child = 0;
            const struct draft_leaf leaf = {node, siblings};
            int added = drafter->class->propose(drafter, &tree, &leaf, 1, 1, &rig.err);
            assert_int_equal(added, siblings == 1 ? 1 : 3);
            assert_int_equal(tree.nodes, nodes + added);
            naive(&rig, sequence, text, 5, &tree, node, DRAFT_BEST, &filter, &about.draw, 4, token, log_probability, NULL);
            for (int other = 0; other < tree.nodes; other++)
                if (tree.parent[other] == node)
                    assert_int_equal(tree.token[other], token[child++]);
            assert_int_equal(child, siblings);
        }
    draft_tree_free(&tree);
    sequence_close(&sequence);
    drafter_close(&drafter);
    rig_close(&rig);
}

/* Returns the bytes of a forward over rows of a draft model that reads along; rows stay pending nodes unless `commit`. */
static int64_t read_along(struct rig *rig, struct sequence *sequence, const int32_t *token, const int32_t *parent, int rows,
                          bool commit)
{
    struct forward forward;
    int32_t last = rows - 1;
    struct batch batch = {.rows = rows, .token = token, .parent = parent, .logit_rows = commit ? 1 : rows,
                          .logit_row = commit ? &last : NULL};
    if (commit)
        must(engine_prompt(rig->engine[1], sequence, token, rows, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    else
        must(engine_forward(rig->engine[1], sequence, &batch, &forward, &rig->err), &rig->err);
    return forward.bytes;
}

static int64_t ask(struct rig *rig, struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                   int tokens)
{
    drafter->bytes = 0;
    assert_true(drafter->class->propose(drafter, tree, leaf, leaves, tokens, &rig->err) > 0);
    return drafter->bytes;
}

/* Drafted and accepted tokens are not read again: a chain, then the older of two siblings with its child. The number of rows
 * follows from the experts they load. */
static void what_was_accepted_is_not_read_again(void **state)
{
    static const struct sample_filter filter = {0, 1, 0, 0};
    static const struct draft_leaf root = {-1, 1}, two = {-1, 2}, below[2] = {{0, 1}, {1, 1}};
    const struct draft_text about = {NULL, TOKENS, {.key = 1}};
    int told = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed += unit_brief() ? 12 : 1) {
        struct rig rig;
        struct draft_tree tree = {0};
        struct sequence *sequence = NULL, *forgetful = NULL;
        const int32_t level[2] = {-1, -1};
        int32_t text[16] = {3, 1, 4, 1, 5}, all[3] = {0, 1, 2}, siblings[2];
        rig_open(&rig, seed, 0, 1);
        struct drafter *drafter = open_drafter(&rig, DRAFT_BEST, false, &filter);
        must(sequence_open(&sequence, rig.engine[1], TOKENS, &rig.err), &rig.err);
        must(sequence_open(&forgetful, rig.engine[1], TOKENS, &rig.err), &rig.err);
        must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
        must(drafter->class->begin(drafter, &about, &rig.err), &rig.err);
        must(drafter->class->commit(drafter, text, 5, &rig.err), &rig.err);

        int64_t bytes = ask(&rig, drafter, &tree, &root, 1, 4), expected = read_along(&rig, sequence, text, NULL, 5, true);
        for (int node = 0; node < 3; node++)
            expected += read_along(&rig, sequence, &tree.token[node], NULL, 1, false);
        assert_int_equal(bytes, expected);
        memcpy(text + 5, tree.token, 4 * sizeof *text);
        text[9] = 2;
        must(drafter->class->commit(drafter, text + 5, 5, &rig.err), &rig.err);
        must(sequence_commit(sequence, all, 3, &rig.err), &rig.err);

        draft_tree_clear(&tree);
        bytes = ask(&rig, drafter, &tree, &two, 1, 1);
        assert_int_equal(bytes, read_along(&rig, sequence, text + 8, NULL, 2, true));
        read_along(&rig, forgetful, text, NULL, 5, true);
        told += read_along(&rig, forgetful, text + 5, NULL, 5, true) != bytes;
        memcpy(siblings, tree.token, sizeof siblings);
        bytes = ask(&rig, drafter, &tree, below, 2, 1);
        assert_int_equal(bytes, read_along(&rig, sequence, siblings, level, 2, false));
        text[10] = siblings[0];
        text[11] = 2;
        must(drafter->class->commit(drafter, text + 10, 2, &rig.err), &rig.err);
        must(sequence_commit(sequence, all, 1, &rig.err), &rig.err);

        draft_tree_clear(&tree);
        bytes = ask(&rig, drafter, &tree, &root, 1, 1);
        assert_int_equal(bytes, read_along(&rig, sequence, text + 11, NULL, 1, true));
        draft_tree_free(&tree);
        sequence_close(&forgetful);
        sequence_close(&sequence);
        drafter_close(&drafter);
        rig_close(&rig);
    }
    assert_true(told > 0);
}

struct seen {
    const struct shape *shape;
    int deepest, missed;                /* levels of drafts that were not accepted */
    int unlike;                         /* iterations that did not accept exactly the first child of each node */
    int64_t draft_bytes;
};

static int see_iteration(void *context, const struct decode_iteration *it, struct err *err)
{
    struct seen *seen = context;
    int depth = draft_tree_depth(it->tree), at = -1, chain = 0;
    (void)err;
    assert_true(depth <= it->record.K);
    assert_true(it->tree->nodes <= seen->shape->nodes);
    assert_true(it->record.drafted >= it->tree->nodes);
    assert_int_equal(it->record.draft_bytes > 0, it->tree->nodes > 0);
    seen->missed += depth - it->record.accepted;
    for (int node = 0; node < it->tree->nodes; node++)
        if (it->tree->parent[node] == at) {
            at = node;
            chain++;
        }
    seen->unlike += chain != it->record.accepted || (chain && !it->kept[1 + at]);
    seen->deepest = depth > seen->deepest ? depth : seen->deepest;
    seen->draft_bytes += it->record.draft_bytes;
    return 0;
}

static int run(struct rig *rig, const struct decode_settings *settings, const int32_t *prompt, int count, struct seen *seen,
               struct decode_result *result, int32_t *token)
{
    struct decoder *decoder = NULL;
    struct shape *shape = NULL;
    const struct decoder_setup setup = {.engine = rig->engine[0], .settings = settings};
    const struct decode_prompt asked = {.token = prompt, .tokens = count};
    must(shape_open(&shape, settings->tree, &rig->err), &rig->err);
    *seen = (struct seen){.shape = shape};
    must(decoder_open(&decoder, &setup, &rig->err), &rig->err);
    must(decoder_run(decoder, &asked, &(struct decode_sink){.context = seen, .iteration = see_iteration}, result, &rig->err),
         &rig->err);
    memcpy(token, result->token, (size_t)result->tokens * sizeof *token);
    result->token = NULL;
    decoder_close(&decoder);
    shape_close(&shape);
    return result->tokens;
}

static const double temperatures[] = {0, 0.7, 1};
static const struct { const char *tree; int K; } drafts[] = {
    {NULL, 1}, {NULL, 2}, {NULL, 5}, {NULL, 8}, {"static", DRAFT_LENGTH_NONE}, {"static", 2},
    {"dynamic:total=12,depth=4,topk=3", DRAFT_LENGTH_NONE}, {"dynamic:total=30,depth=6,topk=4", 3}};

static void set(struct decode_settings *settings, struct rig *rig, size_t number, double temperature, char *spec, size_t room)
{
    static const char tree[] = "[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,0,0],[1,0,0]]";
    *settings = (struct decode_settings)DECODE_DEFAULTS;
    settings->max_tokens = TOKENS;
    settings->filter.temperature = temperature;
    settings->filter.top_k = temperature == 1 ? 9 : 0;
    settings->seed = 3;
    rig->named[0] = rig->draft;
    settings->draft = (struct strings){rig->named, 1};
    settings->tree = drafts[number].tree;
    settings->draft_length = drafts[number].K;
    if (settings->tree && strcmp(settings->tree, "static") == 0) {
        unit_write(unit_path(rig->folder, "tree.json"), tree, strlen(tree));
        snprintf(spec, room, "static:file=%s", unit_path(rig->folder, "tree.json"));
        settings->tree = spec;
    }
}

/* The text does not depend on the drafter, and a drafter that equals the target is never rejected, at any temperature. */
static void every_draft_gives_the_same_text(void **state)
{
    long refused[3] = {0, 0, 0}, accepted[3] = {0, 0, 0};
    (void)state;
    for (uint64_t seed = 1; seed <= 9; seed += unit_brief() ? 4 : 1) {
        int alike = (int)(seed % 3);
        struct rig rig;
        struct chance chance = {seed + 5};
        int32_t prompt[30];
        int count = chance_range(&chance, 1, 30);
        rig_open(&rig, seed, alike, 1 + (int)(seed / 3) % 2);
        for (int i = 0; i < count; i++)
            prompt[i] = chance_range(&chance, 0, engine_hparams(rig.engine[0])->vocab - 1);
        for (size_t t = 0; t < 3; t++)
            for (size_t d = 0; d <= sizeof drafts / sizeof *drafts; d++) {
                static int32_t expected[TOKENS];
                struct decode_settings settings;
                struct decode_result result;
                struct seen seen;
                int32_t token[TOKENS];
                char spec[400];
                if (unit_brief() && d && (d + t + seed) % 3)
                    continue;
                set(&settings, &rig, d ? d - 1 : 0, temperatures[t], spec, sizeof spec);
                if (!d) {
                    settings.draft.count = 0;
                    settings.draft_length = DRAFT_LENGTH_NONE;
                }
                assert_int_equal(run(&rig, &settings, prompt, count, &seen, &result, d ? token : expected), TOKENS);
                if (!d)
                    continue;
                assert_memory_equal(token, expected, sizeof token);
                assert_true(seen.draft_bytes > 0);
                if (alike == 2) {
                    assert_int_equal(seen.unlike, 0);
                    if (!settings.tree || strncmp(settings.tree, "dynamic", 7) != 0)
                        assert_int_equal(result.iterations, (TOKENS - 1 + seen.deepest) / (seen.deepest + 1));
                }
                accepted[alike] += result.accepted_tokens;
                refused[alike] += seen.missed;
            }
        rig_close(&rig);
    }
    if (unit_brief())
        return;
    assert_true(refused[0] > accepted[0]);                      /* unrelated models guess badly, the rounded model well */
    assert_true(accepted[0] > 100 && accepted[1] > 4 * refused[1]);
}

static void models_that_do_not_fit_are_refused(void **state)
{
    struct rig rig;
    struct drafter *drafter = NULL;
    struct hparams shape;
    struct chance chance = {1};
    (void)state;
    rig_open(&rig, 1, 1, 1);
    const struct drafter_setup setup = {
        .vocab = engine_hparams(rig.engine[0])->vocab, .positions = 100, .target = rig.engine[0]};
    shape = tiny_shape(&chance);
    shape.vocab++;
    must(tiny_write(unit_path(rig.folder, "other.moe"), &shape, FORMAT_F32, 1, &rig.err), &rig.err);
    snprintf(rig.draft, sizeof rig.draft, "model:file=%s", unit_path(rig.folder, "other.moe"));
    assert_int_equal(drafter_open(&drafter, rig.draft, &setup, &rig.err), -1);
    assert_non_null(strstr(rig.err.text, "other.moe: its vocabulary has"));
    err_clear(&rig.err);
    assert_int_equal(drafter_open(&drafter, "model:file=/nonexistent.moe", &setup, &rig.err), -1);
    assert_non_null(strstr(rig.err.text, "/nonexistent.moe"));
    err_clear(&rig.err);
    assert_null(drafter);
    rig_close(&rig);
}

/* A node of another drafter whose token the draft model does not have is not read, nor are its descendants. */
static void unknown_tokens_of_others_are_passed_over(void **state)
{
    struct rig rig;
    struct drafter base = {.class = &drafter_model, .number = 1};
    struct draft_rows rows = {.length = 1};
    struct engine_source source;
    struct draft_tree tree;
    int agreed;
    (void)state;
    rig_open(&rig, 1, 1, 1);
    const int32_t known = engine_hparams(rig.engine[1])->vocab;
    const struct drafter_setup setup = {.vocab = known + 3, .positions = 100, .number = 1, .choice = DRAFT_BEST};
    engine_source_init(&source, rig.engine[1]);
    must(draft_rows_init(&rows, &base, &setup, &source.base, &rig.err), &rig.err);
    must(sequence_open(&source.sequence, rig.engine[1], 40, &rig.err), &rig.err);
    must(draft_tree_init(&tree, 20, &rig.err), &rig.err);
    draft_rows_root(&rows, 1, NULL);
    int unknown = draft_tree_add(&tree, -1, known + 1, NAN, 0), below = draft_tree_add(&tree, unknown, 2, NAN, 0);
    int other = draft_tree_add(&tree, -1, known - 1, NAN, 0);
    const struct draft_leaf leaf[] = {{unknown, 1}, {below, 1}, {other, 1}};
    assert_int_equal(draft_rows_propose(&rows, &tree, leaf, 3, 2, &rig.err), 2);
    for (int node = 3; node < tree.nodes; node++)
        assert_int_equal(tree.parent[node], node == 3 ? other : 3);
    assert_int_equal(draft_rows_review(&rows, &tree, -1, &agreed, &rig.err) + agreed > 0, 1);
    for (int node = 0; node < tree.nodes; node++)
        assert_true(tree.token[node] < known);
    draft_tree_free(&tree);
    sequence_close(&source.sequence);
    draft_rows_free(&rows);
    rig_close(&rig);
}

/* Beyond the end of its context the draft model proposes nothing, and the text continues. */
static void a_short_context_ends_drafting_only(void **state)
{
    struct rig rig;
    struct chance chance = {4};
    struct hparams shape;
    struct decode_settings settings;
    struct decode_result result;
    struct seen seen;
    int32_t prompt[3] = {1, 2, 3}, expected[TOKENS], token[TOKENS];
    char spec[400];
    (void)state;
    rig_open(&rig, 4, 2, 1);
    shape = tiny_shape(&chance);
    shape.max_positions = 40;
    must(tiny_write(unit_path(rig.folder, "short.moe"), &shape, FORMAT_F32, 4, &rig.err), &rig.err);
    for (size_t d = 0; d < sizeof drafts / sizeof *drafts; d++) {
        set(&settings, &rig, d, 0.7, spec, sizeof spec);
        run(&rig, &settings, prompt, 3, &seen, &result, expected);
        assert_int_equal(seen.unlike, 0);
        int iterations = result.iterations;
        snprintf(rig.draft, sizeof rig.draft, "model:file=%s", unit_path(rig.folder, "short.moe"));
        run(&rig, &settings, prompt, 3, &seen, &result, token);
        assert_memory_equal(token, expected, sizeof token);
        assert_int_equal(seen.unlike, 0);
        assert_true(result.iterations > iterations && result.accepted_tokens > 10);
        snprintf(rig.draft, sizeof rig.draft, "model:file=%s", rig.path[1]);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proposals_are_those_of_reading_everything_anew),
        cmocka_unit_test(more_children_can_be_asked_for),
        cmocka_unit_test(what_was_accepted_is_not_read_again),
        cmocka_unit_test(every_draft_gives_the_same_text),
        cmocka_unit_test(models_that_do_not_fit_are_refused),
        cmocka_unit_test(unknown_tokens_of_others_are_passed_over),
        cmocka_unit_test(a_short_context_ends_drafting_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The target as its own drafter, on small random models: its proposals equal the output of its parts after reading the root
 * and the path to a node anew, on top of the prompt as read by the whole model; the text does not depend on the parts left
 * out. */
#include "tests/unit/unit.h"

#include "common/decode/decode.h"
#include "common/draft/drafter.h"
#include "common/draft/skip_file.h"
#include "common/policy/shape.h"
#include "tests/unit/rig.h"

enum { LAYERS = 5, TOKENS = 40, NODES = 60, ROWS = 96 };

/* Draws a random shape of five layers with experts, at least three per token, and twice as many in all. */
static struct hparams five_layers(uint64_t seed)
{
    for (;; seed += 1000) {
        struct chance chance = {seed};
        struct hparams shape = tiny_shape(&chance);
        if (!hparams_moe_layers(&shape) || shape.router.top_k < 3 || shape.router.experts < 2 * shape.router.top_k)
            continue;
        shape.predictors = 0;
        for (int n = shape.layers; n < LAYERS; n++)
            shape.layer[n] = shape.layer[n % shape.layers];
        shape.layers = LAYERS;
        return shape;
    }
}

static void open_rig(struct rig *rig, uint64_t seed, int threads)
{
    const struct hparams shape = five_layers(seed);
    rig_write(rig, &shape, seed % 2 ? FORMAT_F32 : FORMAT_Q8, seed, threads);
    rig_engine(rig, (struct engine_setup){.max_rows = ROWS, .max_logit_rows = ROWS}, 0);
}

static struct drafter *open_drafter(struct rig *rig, const char *spec, int number)
{
    const struct drafter_setup setup = {.vocab = engine_hparams(rig->engine)->vocab, .positions = 2048, .number = number,
                                        .target = rig->engine, .choice = DRAFT_BEST, .probabilities = true,
                                        .filter = {0, 1, 0, 0}};
    struct drafter *drafter = NULL;
    must(drafter_open(&drafter, spec, &setup, &rig->err), &rig->err);
    return drafter;
}

/* Computes logits after text and path, by a part of the layers from the root on. */
static const float *naive(struct rig *rig, struct sequence *sequence, const int32_t *text, int length,
                          const struct draft_tree *tree, int node, const struct forward_part *part)
{
    int32_t rows[NODES + 1] = {text[length - 1]};
    int count = 1 + draft_tree_path(tree, node, rows + 1, NODES), last = count - 1;
    struct forward forward;
    struct batch batch = {.rows = count, .token = rows, .logit_row = &last, .logit_rows = 1, .part = part};
    must(sequence_truncate(sequence, 0, &rig->err), &rig->err);
    if (length > 1)
        must(engine_prompt(rig->engine, sequence, text, length - 1, NULL, NULL, NULL, &forward, &rig->err), &rig->err);
    must(engine_forward(rig->engine, sequence, &batch, &forward, &rig->err), &rig->err);
    return forward.logits;
}

/* Finds the `max` largest logits, ties to the lower token, with their log-probabilities. */
static void best(const float *logits, int vocab, int max, int32_t *token, double *log_probability)
{
    double sum = 0;
    for (int v = 0; v < vocab; v++)
        sum += exp((double)logits[v]);
    for (int rank = 0; rank < max; rank++) {
        token[rank] = -1;
        for (int v = 0; v < vocab; v++) {
            bool taken = false;
            for (int other = 0; other < rank; other++)
                taken |= token[other] == v;
            if (!taken && (token[rank] < 0 || logits[v] > logits[token[rank]]))
                token[rank] = v;
        }
        log_probability[rank] = (double)logits[token[rank]] - log(sum);
    }
}

/* Every node of this drafter is the correct child of its parent, in its order. */
static int check_tree(struct rig *rig, struct sequence *sequence, const int32_t *text, int length,
                      const struct draft_tree *tree, int number, const struct forward_part *part)
{
    int checked = 0;
    for (int parent = -1; parent < tree->nodes; parent++) {
        int child = 0, vocab = engine_hparams(rig->engine)->vocab;
        int32_t token[8];
        double log_probability[8];
        bool any = false;
        for (int node = 0; node < tree->nodes; node++)
            any |= tree->parent[node] == parent && tree->drafter[node] == number;
        if (!any)
            continue;
        best(naive(rig, sequence, text, length, tree, parent, part), vocab, 8, token, log_probability);
        for (int node = 0; node < tree->nodes; node++)
            if (tree->parent[node] == parent && tree->drafter[node] == number) {
                assert_int_equal(tree->token[node], token[child]);
                assert_true(fabs((double)tree->log_probability[node] - log_probability[child]) < 1e-4);
                child++;
                checked++;
            }
    }
    return checked;
}

/* The same part as a setting and as the engine's argument. */
struct degree {
    char spec[300];
    struct forward_part part;
};

static void make_degree(struct degree *degree, struct skip_set *skip, const struct rig *rig, int number)
{
    struct err err = {0};
    const int top_k = engine_hparams(rig->engine)->router.top_k;
    *degree = (struct degree){.spec = "self"};
    if (number < 3) {
        static const char *const ratio[] = {"self", "self:skip=0.6", "self:skip=1"};
        static const double of[] = {0.4, 0.6, 1};
        must(skip_set_first(skip, LAYERS, of[number], &err), &err);
        degree->part = (struct forward_part){.skip_attention = skip->attention, .skip_ffn = skip->ffn};
        snprintf(degree->spec, sizeof degree->spec, "%s", ratio[number]);
    } else if (number == 3) {
        degree->part.top_k = top_k - 1;
        snprintf(degree->spec, sizeof degree->spec, "self:topk=%d", top_k - 1);
    } else if (number == 4) {
        degree->part.layers = 3;
        snprintf(degree->spec, sizeof degree->spec, "self:exit=3");
    } else {                                        /* a ratio refers to the layers before the exit */
        must(skip_set_first(skip, 4, 0.5, &err), &err);
        degree->part = (struct forward_part){.skip_attention = skip->attention, .skip_ffn = skip->ffn, .top_k = 1, .layers = 4};
        snprintf(degree->spec, sizeof degree->spec, "self:exit=4,skip=0.5,topk=1");
    }
}

/* Two self-drafters take turns on one tree, both on the target's sequence, which then reads on. */
static void drafts_are_what_the_parts_give(void **state)
{
    int checked = 0;
    (void)state;
    for (int number = 0; number < (unit_brief() ? 2 : 6); number++) {
        struct rig rig;
        struct degree degree[2];
        struct skip_set skip[2];
        struct drafter *drafter[2];
        struct draft_tree tree = {0};
        struct sequence *target = NULL, *own = NULL;
        struct chance chance = {(uint64_t)number + 50};
        int32_t text[2 * TOKENS];
        int length = chance_range(&chance, 1, 20);
        open_rig(&rig, (uint64_t)number + 1, 1 + number % 2);
        const int vocab = engine_hparams(rig.engine)->vocab;
        for (int i = 0; i < length; i++)
            text[i] = chance_range(&chance, 0, vocab - 1);
        for (int i = 0; i < 2; i++) {
            make_degree(&degree[i], &skip[i], &rig, (number + i) % 6);
            drafter[i] = open_drafter(&rig, degree[i].spec, i + 3);
        }
        must(sequence_open(&target, rig.engine, 2 * TOKENS + 2 * NODES, &rig.err), &rig.err);
        must(sequence_open(&own, rig.engine, 2 * TOKENS + NODES, &rig.err), &rig.err);
        must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
        struct draft_text about = {target, 2 * TOKENS, {.key = 1}};
        for (int i = 0; i < 2; i++) {
            must(drafter[i]->class->begin(drafter[i], &about, &rig.err), &rig.err);
            must(drafter[i]->class->commit(drafter[i], text, length, &rig.err), &rig.err);
        }
        struct forward forward;
        if (length > 1)
            must(engine_prompt(rig.engine, target, text, length - 1, NULL, NULL, NULL, &forward, &rig.err), &rig.err);
        while (length < TOKENS) {
            draft_tree_clear(&tree);
            for (int ask = 0; ask < 4; ask++) {
                int node = tree.nodes ? chance_range(&chance, -1, tree.nodes - 1) : -1;
                bool grown = false;
                for (int other = 0; other < tree.nodes; other++)
                    grown |= tree.parent[other] == node;
                const struct draft_leaf leaf = {node, chance_range(&chance, 1, 3)};
                if (!grown)
                    must(drafter[ask % 2]->class->propose(drafter[ask % 2], &tree, &leaf, 1, chance_range(&chance, 1, 3),
                                                          &rig.err) < 0 ? -1 : 0, &rig.err);
            }
            for (int i = 0; i < 2; i++)
                checked += check_tree(&rig, own, text, length, &tree, i + 3, &degree[i].part);
            assert_true(sequence_pending(target) > 0);
            int32_t root = text[length - 1], node = 0;
            struct batch batch = {.rows = 1, .token = &root, .logit_rows = 1, .resume = true};
            must(engine_forward(rig.engine, target, &batch, &forward, &rig.err), &rig.err);
            node = forward.node[0];
            must(sequence_commit(target, &node, 1, &rig.err), &rig.err);
            text[length] = chance_range(&chance, 0, 1) && tree.nodes ? tree.token[0] : chance_range(&chance, 0, vocab - 1);
            for (int i = 0; i < 2; i++)
                must(drafter[i]->class->commit(drafter[i], text + length, 1, &rig.err), &rig.err);
            length++;
        }
        for (int i = 0; i < 2; i++)
            drafter_close(&drafter[i]);
        draft_tree_free(&tree);
        sequence_close(&target);
        sequence_close(&own);
        rig_close(&rig);
    }
    assert_true(unit_brief() || checked > 600);
}

/* Below the threshold of probability no children are added. */
static void a_doubtful_token_is_the_last(void **state)
{
    int ended = 0, went_on = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 2 : 6); seed++) {
        struct rig rig;
        struct draft_tree tree = {0};
        struct sequence *target = NULL, *own = NULL;
        struct forward forward;
        const int32_t text[] = {3, 1, 4, 1, 5};
        open_rig(&rig, seed, 1);
        struct drafter *drafter = open_drafter(&rig, "self:exit=4,stop=0.3", 3);
        const struct forward_part part = {.layers = 4};
        must(sequence_open(&target, rig.engine, 2 * NODES, &rig.err), &rig.err);
        must(sequence_open(&own, rig.engine, 2 * NODES, &rig.err), &rig.err);
        must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
        must(drafter->class->begin(drafter, &(struct draft_text){target, TOKENS, {.key = 1}}, &rig.err), &rig.err);
        must(drafter->class->commit(drafter, text, 5, &rig.err), &rig.err);
        must(engine_prompt(rig.engine, target, text, 4, NULL, NULL, NULL, &forward, &rig.err), &rig.err);
        struct draft_leaf leaf = {-1, 1};
        assert_true(drafter->class->propose(drafter, &tree, &leaf, 1, 3, &rig.err) > 0);
        for (int more = 0; more < 5; more++) {              /* also level by level */
            leaf.node = tree.nodes - 1;
            must(drafter->class->propose(drafter, &tree, &leaf, 1, 1, &rig.err) < 0 ? -1 : 0, &rig.err);
        }
        int32_t token;
        double log_probability;
        for (int node = -1; node < tree.nodes; node++) {
            best(naive(&rig, own, text, 5, &tree, node, &part), engine_hparams(rig.engine)->vocab, 1, &token, &log_probability);
            bool doubtful = exp(log_probability) < 0.3, deepest = node == tree.nodes - 1;
            if (deepest || node == tree.nodes - 2)
                continue;
            assert_false(doubtful);
            went_on++;
        }
        if (tree.nodes < 8) {
            best(naive(&rig, own, text, 5, &tree, tree.nodes - 2, &part), engine_hparams(rig.engine)->vocab, 1, &token,
                 &log_probability);
            assert_true(exp(log_probability) < 0.3);
            ended++;
        }
        draft_tree_free(&tree);
        sequence_close(&target);
        sequence_close(&own);
        drafter_close(&drafter);
        rig_close(&rig);
    }
    assert_true(ended > 0 && went_on > 0);
}

/* Reviews by the parts: every kept and added token is the parts' own choice. */
static void a_review_follows_its_own_choice(void **state)
{
    int kept = 0, dropped = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 3 : 8); seed++) {
        struct rig rig;
        struct degree degree;
        struct skip_set skip;
        struct draft_tree tree = {0};
        struct sequence *target = NULL, *own = NULL;
        struct forward forward;
        const int32_t text[] = {3, 1, 4, 1, 5};
        struct chance chance = {seed};
        int32_t chain[7];
        double log_probability[7];
        int agreed = -1, at = -1, right = chance_range(&chance, 0, 5);
        open_rig(&rig, seed, 1);
        const int vocab = engine_hparams(rig.engine)->vocab;
        make_degree(&degree, &skip, &rig, (int)seed % 6);
        struct drafter *drafter = open_drafter(&rig, degree.spec, 3);
        must(sequence_open(&target, rig.engine, 2 * NODES, &rig.err), &rig.err);
        must(sequence_open(&own, rig.engine, 2 * NODES, &rig.err), &rig.err);
        must(draft_tree_init(&tree, NODES, &rig.err), &rig.err);
        must(drafter->class->begin(drafter, &(struct draft_text){target, TOKENS, {.key = 1}}, &rig.err), &rig.err);
        must(drafter->class->commit(drafter, text, 5, &rig.err), &rig.err);
        must(engine_prompt(rig.engine, target, text, 4, NULL, NULL, NULL, &forward, &rig.err), &rig.err);
        for (int i = 0; i < 6; i++) {                       /* `right` correct tokens among others, then wrong ones */
            best(naive(&rig, own, text, 5, &tree, at, &degree.part), vocab, 1, &chain[i], &log_probability[i]);
            int wrong = draft_tree_add(&tree, at, (chain[i] + 1) % vocab, -1, 0);
            at = i < right ? draft_tree_add(&tree, at, chain[i], -1, 0) : wrong;
        }
        int added = drafter->class->review(drafter, &tree, -1, &agreed, &rig.err);
        assert_int_equal(agreed, right);
        assert_int_equal(added, 1);
        assert_int_equal(tree.nodes, right + 1);
        for (int i = 0; i <= right; i++) {
            assert_int_equal(tree.token[i], chain[i]);
            assert_true(fabs((double)tree.log_probability[i] - log_probability[i]) < 1e-4);
            assert_int_equal(tree.parent[i], i - 1);
            assert_int_equal(tree.reviewer[i], i < right ? 3 : -1);
            assert_int_equal(tree.drafter[i], i < right ? 0 : 3);
        }
        kept += agreed;
        dropped += 6 - right;
        draft_tree_free(&tree);
        sequence_close(&target);
        sequence_close(&own);
        drafter_close(&drafter);
        rig_close(&rig);
    }
    assert_true(kept > 0 && dropped > 0);
}

struct seen {
    int64_t draft_bytes;
};

static int see_iteration(void *context, const struct decode_iteration *it, struct err *err)
{
    struct seen *seen = context;
    (void)err;
    seen->draft_bytes += it->record.draft_bytes;
    return 0;
}

static int run(struct rig *rig, const struct decode_settings *settings, const int32_t *prompt, int count, struct seen *seen,
               int32_t *token, int *iterations)
{
    struct decoder *decoder = NULL;
    struct decode_result result;
    const struct decoder_setup setup = {.engine = rig->engine, .settings = settings};
    const struct decode_prompt asked = {.token = prompt, .tokens = count};
    *seen = (struct seen){0};
    must(decoder_open(&decoder, &setup, &rig->err), &rig->err);
    must(decoder_run(decoder, &asked, &(struct decode_sink){.context = seen, .iteration = see_iteration}, &result, &rig->err),
         &rig->err);
    memcpy(token, result.token, (size_t)result.tokens * sizeof *token);
    *iterations = result.iterations;
    int tokens = result.tokens;
    decoder_close(&decoder);
    return tokens;
}

static void every_degree_gives_the_same_text(void **state)
{
    static const char *const specs[][2] = {
        {"self"}, {"self:skip=0.6"}, {"self:topk=1"}, {"self:exit=1"}, {"self:exit=4"}, {"self:exit=3,skip=0.5,stop=0.2"},
        {"self:exit=2", "self:exit=4"}, {"self:exit=3", "self"}, {NULL}};
    static const struct { const char *tree; int K; } drafts[] = {
        {NULL, 1}, {NULL, 6}, {"dynamic:total=12,depth=4,topk=3", DRAFT_LENGTH_NONE}};
    (void)state;
    for (uint64_t seed = 1; seed <= (unit_brief() ? 1 : 3); seed++)
        for (int t = 0; t < 2; t++) {
            struct rig rig;
            struct chance chance = {seed + 5};
            int32_t prompt[20], expected[TOKENS], token[TOKENS];
            int count = chance_range(&chance, 1, 20), iterations;
            char whole[1300];
            struct decode_settings settings = DECODE_DEFAULTS;
            struct seen seen;
            open_rig(&rig, seed, 1 + (int)seed % 2);
            snprintf(whole, sizeof whole, "self:experts=%s", rig_path(&rig));
            for (int i = 0; i < count; i++)
                prompt[i] = chance_range(&chance, 0, engine_hparams(rig.engine)->vocab - 1);
            settings.max_tokens = TOKENS;
            settings.filter.temperature = t ? 0.8 : 0;
            settings.seed = 3;
            settings.draft_length = DRAFT_LENGTH_NONE;
            assert_int_equal(run(&rig, &settings, prompt, count, &seen, expected, &iterations), TOKENS);
            for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
                for (size_t d = 0; d < sizeof drafts / sizeof *drafts; d++) {
                    if (unit_brief() && (s + (size_t)t) % 3 != d)
                        continue;
                    const char *named[2] = {specs[s][0] ? specs[s][0] : whole, specs[s][1]};
                    settings.draft = (struct strings){named, named[1] ? 2 : 1};
                    settings.tree = drafts[d].tree;
                    settings.draft_length = drafts[d].K;
                    assert_int_equal(run(&rig, &settings, prompt, count, &seen, token, &iterations), TOKENS);
                    assert_memory_equal(token, expected, sizeof token);
                    assert_true(seen.draft_bytes > 0);
                    if (!specs[s][0] && !drafts[d].tree)            /* the drafter knows the target's whole text */
                        assert_int_equal(iterations, (TOKENS - 1 + drafts[d].K) / (drafts[d].K + 1));
                }
            rig_close(&rig);
        }
}

struct reading {
    int exit, fewer;                    /* iterations in which layers before the exit loaded fewer experts than all rows use */
    const struct hparams *shape;
};

/* The draft read all rows but the deepest, up to the exit. */
static int see_reading(void *context, const struct decode_iteration *it, struct err *err)
{
    struct reading *reading = context;
    (void)err;
    for (int n = 0, moe = 0; n < LAYERS; n++) {
        if (reading->shape->layer[n].ffn != FFN_EXPERTS)
            continue;
        if (n < reading->exit && it->record.nodes > 1) {
            assert_true(it->forward->distinct_loaded[moe] <= reading->shape->router.top_k);
            reading->fewer += it->forward->distinct_loaded[moe] < it->forward->distinct_wanted[moe];
        } else {
            assert_int_equal(it->forward->distinct_loaded[moe], it->forward->distinct_wanted[moe]);
        }
        moe++;
    }
    return 0;
}

/* With an exit the target continues from the draft's rows: only the last drafted token passes the layers before the exit. */
static void what_an_exit_has_read_is_not_read_again(void **state)
{
    struct rig rig;
    const int32_t prompt[] = {3, 1, 4, 1, 5};
    int fewer = 0;
    (void)state;
    open_rig(&rig, 3, 1);
    for (int layers = 1; layers < LAYERS; layers++) {
        char spec[40];
        const char *named[1] = {spec};
        struct decode_settings settings = DECODE_DEFAULTS;
        struct reading reading = {.exit = layers, .shape = engine_hparams(rig.engine)};
        struct decoder *decoder = NULL;
        struct decode_result result;
        snprintf(spec, sizeof spec, "self:exit=%d", layers);
        settings.max_tokens = TOKENS;
        settings.draft = (struct strings){named, 1};
        settings.draft_length = 3;
        must(decoder_open(&decoder, &(struct decoder_setup){.engine = rig.engine, .settings = &settings}, &rig.err), &rig.err);
        must(decoder_run(decoder, &(struct decode_prompt){.token = prompt, .tokens = 5},
                         &(struct decode_sink){.context = &reading, .iteration = see_reading}, &result, &rig.err), &rig.err);
        fewer += reading.fewer;
        decoder_close(&decoder);
    }
    assert_true(fewer > 0);
    rig_close(&rig);
}

static void bad_settings_are_refused(void **state)
{
    struct rig rig;
    char other[1300], file[1300];
    (void)state;
    open_rig(&rig, 3, 1);
    const int top_k = engine_hparams(rig.engine)->router.top_k;
    struct hparams shape = five_layers(3);
    shape.layers = 4;
    must(tiny_write(unit_path(rig.folder, "shallow.moe"), &shape, FORMAT_F32, 3, &rig.err), &rig.err);
    snprintf(other, sizeof other, "self:experts=%s", unit_path(rig.folder, "shallow.moe"));
    unit_write(unit_path(rig.folder, "skip.json"), "{\"skip\": 1}", 11);
    snprintf(file, sizeof file, "self:skip=%s", unit_path(rig.folder, "skip.json"));
    char many[40];
    snprintf(many, sizeof many, "self:topk=%d", top_k);
    const struct { const char *spec, *says; } wrong[] = {
        {"self:exit=5", "exit=5"}, {"self:exit=0", "exit"}, {"self:exit=9", "exit=9"}, {many, "topk"}, {"self:topk=0", "topk"},
        {"self:skip=0", "skip"}, {"self:skip=1.5", "skip"}, {"self:skip=/nonexistent", "/nonexistent"}, {file, "skip.json"},
        {"self:skip=0.01", "skip"}, {"self:exit=1,skip=0.5", "skip"}, {"self:experts=/nonexistent.moe", "/nonexistent.moe"},
        {other, "shallow.moe"}, {"self:stop=2", "stop"}, {"self:layers=3", "layers"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct drafter_setup setup = {.vocab = engine_hparams(rig.engine)->vocab, .positions = 2048,
                                            .target = rig.engine};
        struct drafter *drafter = NULL;
        struct err err = {0};
        if (!drafter_open(&drafter, wrong[i].spec, &setup, &err))
            fail_msg("%s is taken", wrong[i].spec);
        assert_true(err.code == ERR_INPUT || strstr(wrong[i].spec, "/nonexistent"));
        if (!strstr(err.text, wrong[i].says) || strchr(err.text, '\n'))
            fail_msg("%s: %s", wrong[i].spec, err.text);
    }
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_what_the_parts_give),
        cmocka_unit_test(a_doubtful_token_is_the_last),
        cmocka_unit_test(a_review_follows_its_own_choice),
        cmocka_unit_test(every_degree_gives_the_same_text),
        cmocka_unit_test(what_an_exit_has_read_is_not_read_again),
        cmocka_unit_test(bad_settings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

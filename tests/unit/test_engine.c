/* The engine's promises over random tiny models: a node's logits equal those of its path decoded alone, bit by bit; commit,
 * rollback and chunking do not change them; budgets restrict experts as defined; all expert sources give the same result. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "common/base/mem.h"
#include "common/engine/engine.h"
#include "kernels/cpu/cpu.h"
#include "tests/unit/rig.h"

enum { NODES = 24, PROMPT = 90 };

static void open_with_cache(struct rig *rig, const char *path, const char *device, const char *isa, int threads, int max_rows,
                            enum cache_format cache)
{
    const struct device_setup where = {device, threads, isa, false, 0, cache == CACHE_BF16};  /* rounded activations, too */
    rig_open_on(rig, path, &where, NULL);
    rig_engine(rig, (struct engine_setup){.max_rows = max_rows, .max_logit_rows = max_rows, .cache = cache}, 0);
}

static void open_rig(struct rig *rig, const char *path, const char *device, const char *isa, int threads, int max_rows)
{
    open_with_cache(rig, path, device, isa, threads, max_rows, CACHE_F32);
}

static const char *tiny_mixed_file(uint64_t seed, enum weight_format format, enum weight_format last, struct hparams *shape)
{
    static char path[64];
    struct chance chance = {seed};
    struct err err = {0};
    snprintf(path, sizeof path, "/tmp/moe-test-engine-%d.moe", (int)getpid());
    *shape = tiny_shape(&chance);
    must(tiny_write_mixed(path, shape, format, last, seed, &err), &err);
    return path;
}

static const char *tiny_file(uint64_t seed, enum weight_format format, struct hparams *shape)
{
    return tiny_mixed_file(seed, format, format, shape);
}

static void prompt(struct rig *rig, struct sequence *sequence, const int32_t *token, int count)
{
    struct forward out;
    must(engine_prompt(rig->engine, sequence, token, count, NULL, NULL, NULL, &out, &rig->err), &rig->err);
}

/* Decodes token[] one by one after the prompt; logits after each into want [count][vocab]. */
static void decode_alone(struct rig *rig, const int32_t *before, int n_before, const int32_t *token, int count, float *want)
{
    struct sequence *sequence = NULL;
    struct forward out;
    int vocab = engine_hparams(rig->engine)->vocab;
    must(sequence_open(&sequence, rig->engine, n_before + count, &rig->err), &rig->err);
    prompt(rig, sequence, before, n_before);
    for (int i = 0; i < count; i++) {
        struct batch batch = {.rows = 1, .token = &token[i], .logit_rows = 1};
        must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
        memcpy(want + (size_t)i * (size_t)vocab, out.logits, (size_t)vocab * sizeof *want);
        must(sequence_commit(sequence, (int32_t[]){0}, 1, &rig->err), &rig->err);
    }
    sequence_close(&sequence);
}

struct random_tree {
    int32_t token[NODES], parent[NODES];
};

static struct random_tree random_tree(struct chance *chance, int vocab)
{
    struct random_tree tree;
    int reach = chance_range(chance, 1, 6);
    for (int i = 0; i < NODES; i++) {
        tree.token[i] = chance_range(chance, 0, vocab - 1);
        tree.parent[i] = chance_range(chance, i - reach < -1 ? -1 : i - reach, i - 1);
    }
    return tree;
}

static int path_of(const struct random_tree *tree, int node, int32_t *path)
{
    int count = 0;
    for (int at = node; at >= 0; at = tree->parent[at])
        path[count++] = at;
    for (int i = 0; i < count / 2; i++) {
        int32_t other = path[i];
        path[i] = path[count - 1 - i];
        path[count - 1 - i] = other;
    }
    return count;
}

/* Runs the tree in chunks of random size; logits of every node into got [NODES][vocab]. */
static void decode_tree(struct rig *rig, struct sequence *sequence, const struct random_tree *tree, struct chance *chance,
                        float *got)
{
    struct forward out;
    int vocab = engine_hparams(rig->engine)->vocab;
    for (int done = 0, rows; done < NODES; done += rows) {
        rows = chance_range(chance, 1, NODES - done);
        struct batch batch = {.rows = rows, .token = tree->token + done, .parent = tree->parent + done, .logit_rows = rows};
        must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
        memcpy(got + (size_t)done * (size_t)vocab, out.logits, (size_t)rows * (size_t)vocab * sizeof *got);
    }
}

static void tree_equals_paths(struct rig *rig, uint64_t seed)
{
    struct chance chance = {seed};
    int vocab = engine_hparams(rig->engine)->vocab, before = chance_range(&chance, 1, PROMPT);
    int32_t text[PROMPT], path[NODES], token[NODES];
    struct random_tree tree = random_tree(&chance, vocab);
    struct sequence *sequence = NULL;
    float *got = calloc(NODES * (size_t)vocab, sizeof *got), *want = calloc(NODES * (size_t)vocab, sizeof *want);
    for (int i = 0; i < before; i++)
        text[i] = chance_range(&chance, 0, vocab - 1);
    must(sequence_open(&sequence, rig->engine, before + NODES, &rig->err), &rig->err);
    prompt(rig, sequence, text, before);
    decode_tree(rig, sequence, &tree, &chance, got);
    bool compared[NODES] = {false};                                 /* a path has the logits of all its nodes */
    for (int node = NODES; node-- > 0;) {
        const int count = compared[node] ? 0 : path_of(&tree, node, path);
        for (int i = 0; i < count; i++)
            token[i] = tree.token[path[i]];
        if (count)
            decode_alone(rig, text, before, token, count, want);
        for (int i = 0; i < count; compared[path[i++]] = true)
            assert_memory_equal(got + path[i] * vocab, want + i * vocab, (size_t)vocab * sizeof *got);
    }
    sequence_close(&sequence);
    free(got);
    free(want);
}

/* Models of each format tested with all instruction sets; one under ASan, which is thirty times as slow. */
#if defined(__SANITIZE_ADDRESS__)
enum { MODELS = 1 };
#else
enum { MODELS = 2 };
#endif

static void nodes_equal_their_paths(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= MODELS * TINY_FORMATS; seed++) {
        struct hparams shape;
        const char *path = tiny_file(seed, tiny_format(seed), &shape);
        struct rig rig;
        for (int i = 0; cpu_isas()[i]; i++) {
            if ((seed + (uint64_t)i) % (unit_brief() ? 3 : unit_sample() ? 2 : 1))
                continue;
            enum cache_format cache = (enum cache_format)((seed + (uint64_t)i) % CACHE_FORMATS);
            open_with_cache(&rig, path, "host", cpu_isas()[i]->name, 1 + (int)(seed % 3), 64, cache);
            tree_equals_paths(&rig, seed * 7);
            rig_close(&rig);
        }
        if (seed <= (unit_brief() ? 1 : 4)) {
            open_with_cache(&rig, path, "ref", NULL, 1, 64, (enum cache_format)(seed % CACHE_FORMATS));
            tree_equals_paths(&rig, seed * 7);
            rig_close(&rig);
        }
        unlink(path);
    }
}

/* Shortcuts with zero experts, and sparse attention, alternately. */
static void nodes_equal_their_paths_in_special_layers(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed += unit_brief() ? 3 : 1) {
        struct chance chance = {seed};
        struct hparams shape = tiny_shape(&chance);
        struct err err = {0};
        struct rig rig;
        char path[64];
        snprintf(path, sizeof path, "/tmp/moe-test-engine-%d.moe", (int)getpid());
        if (seed % 2)
            tiny_shortcut(&shape);
        else
            tiny_indexer(&chance, &shape);
        must(tiny_write_mixed(path, &shape, FORMAT_F32, FORMAT_F32, seed, &err), &err);
        open_with_cache(&rig, path, seed > 6 ? "ref" : "host", NULL, 2, 64, (enum cache_format)(seed % CACHE_Q8));
        tree_equals_paths(&rig, seed * 7);
        rig_close(&rig);
        unlink(path);
    }
}

static const struct cpu_isa *isa_of(const char *name)               /* NULL: the best */
{
    for (int i = 0; cpu_isas()[i]; i++)
        if (!name || !strcmp(name, cpu_isas()[i]->name))
            return cpu_isas()[i];
    return NULL;
}

/* Last logits of a text, for every piece size, thread count and instruction set; sets with tiles agree among each other. */
static void chunks_threads_and_isas_do_not_show(void **state)
{
    (void)state;
    for (uint64_t seed = 50; seed < 50 + TINY_FORMATS; seed += unit_brief() ? 3 : 1) {
        struct hparams shape;
        const char *path = tiny_file(seed, tiny_format(seed), &shape);
        static const struct { const char *isa; int threads, rows; } ways[] = {
            {NULL, 1, 512}, {NULL, 2, 512}, {NULL, 3, 1}, {NULL, 1, 7}, {NULL, 2, 64}, {NULL, 1, 313}, {"avx512vnni", 2, 40},
            {"avx512", 2, 512}, {"avx512", 1, 19}, {"avx2", 1, 512}, {"avx2", 2, 100}, {"avx2", 3, 3}, {"plain", 1, 33},
            {"plain", 2, 512}};
        float *first[2] = {NULL, NULL};
        int32_t text[700];
        struct chance chance = {seed};
        for (int i = 0; i < 700; i++)
            text[i] = chance_range(&chance, 0, shape.vocab - 1);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            struct rig rig;
            struct sequence *sequence = NULL;
            struct forward out;
            const struct cpu_isa *isa = isa_of(ways[i].isa);
            if (!isa || (seed + i) % (unit_brief() ? 4 : unit_sample() ? 2 : 1))
                continue;
            float **same = &first[isa->tiles];
            open_with_cache(&rig, path, "host", ways[i].isa, ways[i].threads, ways[i].rows,
                            (enum cache_format)(seed % CACHE_FORMATS));
            must(sequence_open(&sequence, rig.engine, 700, &rig.err), &rig.err);
            must(engine_prompt(rig.engine, sequence, text, 700, NULL, NULL, NULL, &out, &rig.err), &rig.err);
            if (!*same) {
                *same = malloc((size_t)shape.vocab * sizeof **same);
                memcpy(*same, out.logits, (size_t)shape.vocab * sizeof **same);
            }
            assert_memory_equal(*same, out.logits, (size_t)shape.vocab * sizeof **same);
            sequence_close(&sequence);
            rig_close(&rig);
        }
        free(first[0]);
        free(first[1]);
        unlink(path);
    }
}

/* After committing any path of a tree the sequence equals one that read only these tokens. */
static void commit_keeps_one_path(void **state)
{
    (void)state;
    for (uint64_t seed = 20; seed < 26; seed += unit_brief() ? 3 : 1) {
        struct hparams shape;
        const char *path = tiny_file(seed, FORMAT_F32, &shape);
        struct chance chance = {seed};
        struct rig rig;
        open_with_cache(&rig, path, seed % 2 ? "host" : "ref", NULL, 1, 64, (enum cache_format)(seed / 2 % CACHE_FORMATS));
        struct sequence *sequence = NULL;
        struct forward out;
        int32_t text[PROMPT + 3 * NODES + 1], nodes[NODES], last = 1;
        int length = 20;
        float *dump = calloc(NODES * (size_t)shape.vocab, sizeof *dump), *want = calloc((size_t)shape.vocab, sizeof *want);
        must(sequence_open(&sequence, rig.engine, PROMPT + 4 * NODES, &rig.err), &rig.err);
        for (int i = 0; i < length; i++)
            text[i] = chance_range(&chance, 0, shape.vocab - 1);
        prompt(&rig, sequence, text, length);
        for (int round = 0; round < 3; round++) {
            struct random_tree tree = random_tree(&chance, shape.vocab);
            decode_tree(&rig, sequence, &tree, &chance, dump);
            if (round == 1) {                                       /* a rejected draft leaves no trace */
                sequence_rollback(sequence);
                continue;
            }
            int count = path_of(&tree, chance_range(&chance, 0, NODES - 1), nodes);
            must(sequence_commit(sequence, nodes, count, &rig.err), &rig.err);
            for (int i = 0; i < count; i++)
                text[length++] = tree.token[nodes[i]];
        }
        assert_int_equal(sequence_length(sequence), length);
        decode_alone(&rig, text, length, &last, 1, want);
        must(engine_forward(rig.engine, sequence, &(struct batch){.rows = 1, .token = &last, .logit_rows = 1}, &out, &rig.err),
             &rig.err);
        assert_memory_equal(out.logits, want, (size_t)shape.vocab * sizeof *want);
        sequence_close(&sequence);
        free(dump);
        free(want);
        rig_close(&rig);
        unlink(path);
    }
}

static void commit_refuses_what_is_no_path(void **state)
{
    struct hparams shape;
    const char *path = tiny_file(3, FORMAT_F32, &shape);
    struct rig rig;
    struct sequence *sequence = NULL;
    struct forward out;
    (void)state;
    open_rig(&rig, path, "host", NULL, 1, 8);
    must(sequence_open(&sequence, rig.engine, 8, &rig.err), &rig.err);
    struct batch batch = {.rows = 3, .token = (int32_t[]){1, 2, 3}, .parent = (int32_t[]){-1, 0, 0}};
    must(engine_forward(rig.engine, sequence, &batch, &out, &rig.err), &rig.err);
    static const struct { int32_t node[3]; int count; } wrong[] = {{{1}, 1}, {{0, 3}, 2}, {{-1}, 1}, {{0, 1, 2}, 3}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        assert_int_equal(sequence_commit(sequence, wrong[i].node, wrong[i].count, &err), -1);
        assert_non_null(strstr(err.text, "cannot be committed"));
        assert_int_equal(sequence_pending(sequence), 3);
    }
    sequence_close(&sequence);
    rig_close(&rig);
    unlink(path);
}

static void bad_batches_are_refused_and_change_nothing(void **state)
{
    struct hparams shape;
    const char *path = tiny_file(5, FORMAT_F32, &shape);
    struct rig rig;
    struct sequence *sequence = NULL;
    struct forward out;
    (void)state;
    open_rig(&rig, path, "host", NULL, 1, 8);
    must(sequence_open(&sequence, rig.engine, 10, &rig.err), &rig.err);
    prompt(&rig, sequence, (int32_t[]){1, 2, 3, 4}, 4);
    struct batch wrong[] = {
        {.rows = 0, .token = (int32_t[]){0}}, {.rows = 9, .token = (int32_t[9]){0}}, {.rows = 1, .token = (int32_t[]){-1}},
        {.rows = 1, .token = (int32_t[]){shape.vocab}}, {.rows = 2, .token = (int32_t[]){1, 1}, .parent = (int32_t[]){-1, 1}},
        {.rows = 1, .token = (int32_t[]){1}, .logit_rows = 2}, {.rows = 7, .token = (int32_t[7]){0}},
        {.rows = 1, .token = (int32_t[]){1}, .logit_rows = 1, .logit_row = (int32_t[]){1}},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = {0};
        assert_int_equal(engine_forward(rig.engine, sequence, &wrong[i], &out, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_int_equal(sequence_pending(sequence), 0);
        assert_int_equal(sequence_length(sequence), 4);
    }
    sequence_close(&sequence);
    rig_close(&rig);
    unlink(path);
}

/* Returns a shape that has MoE layers and enough experts for a budget of one to exclude some. */
static const char *moe_file(uint64_t *seed, struct hparams *shape)
{
    for (;; ++*seed) {
        const char *path = tiny_file(*seed, FORMAT_F32, shape);
        if (hparams_moe_layers(shape) && shape->router.experts >= 6 && shape->router.top_k > 1)
            return path;
    }
}

static void forward_tree(struct rig *rig, const struct random_tree *tree, const struct expert_plan *plan,
                         const float *row_weight, bool measured, float *got, struct forward *out)
{
    struct sequence *sequence = NULL;
    must(sequence_open(&sequence, rig->engine, 40, &rig->err), &rig->err);
    prompt(rig, sequence, (int32_t[]){3, 1, 4, 1, 5}, 5);
    struct batch batch = {.rows = NODES, .token = tree->token, .parent = tree->parent, .logit_rows = NODES, .plan = plan,
                          .row_weight = row_weight, .want_scores = true, .want_reconstruction = measured};
    must(engine_forward(rig->engine, sequence, &batch, out, &rig->err), &rig->err);
    memcpy(got, out->logits, NODES * (size_t)out->vocab * sizeof *got);
    sequence_close(&sequence);
}

static void budgets_bound_what_is_loaded(void **state)
{
    uint64_t seed = 100;
    int by_path = 0;
    (void)state;
    for (int round = 0; round < (unit_brief() ? 2 : 4); round++, seed++) {
        struct hparams shape;
        const char *path = moe_file(&seed, &shape);
        int moe = hparams_moe_layers(&shape), experts = shape.router.experts;
        struct chance chance = {seed};
        struct random_tree tree = random_tree(&chance, shape.vocab);
        size_t floats = NODES * (size_t)shape.vocab;
        float *free_run = calloc(floats, sizeof *free_run), *planned = calloc(floats, sizeof *planned);
        float *again = calloc(floats, sizeof *again);
        int32_t *order = calloc((size_t)(moe * experts), sizeof *order), budget[LAYERS_MAX];
        struct rig rig;
        struct forward out;
        float even[NODES], odd[NODES];
        for (int i = 0; i < NODES; i++) {
            even[i] = 1;
            odd[i] = i == 7 ? 1 : 0.001f;
        }
        for (int i = 0; i < moe * experts; i++)
            order[i] = (i % experts + i / experts) % experts;       /* another rotation of 0, 1, 2, ... in each layer */
        open_rig(&rig, path, round % 2 ? "ref" : "host", NULL, 1, 64);
        forward_tree(&rig, &tree, NULL, NULL, false, free_run, &out);
        for (int ranking = PLAN_STATIC; ranking <= PLAN_ORACLE; ranking++)
            for (int mode = 0; mode < 2; mode++)
                for (int b = 1; b <= experts; b += unit_brief() ? 3 : 1) {
                    struct expert_plan plan = {(enum plan_ranking)ranking, (enum budget_mode)mode, moe, experts, budget, order};
                    /* A sparsemixer's weights also depend on experts that it does not choose. */
                    bool all_kept = mode == BUDGET_TRUNCATE || shape.router.kind != ROUTER_SPARSEMIXER;
                    for (int n = 0; n < moe; n++)
                        budget[n] = b;
                    forward_tree(&rig, &tree, &plan, odd, false, planned, &out);
                    for (int n = 0; n < moe; n++) {
                        assert_true(out.distinct_loaded[n] <= b);
                        all_kept &= ranking == PLAN_ORACLE && out.distinct_wanted[n] <= b;
                    }
                    for (int i = 0; ranking == PLAN_STATIC && i < NODES * moe * out.top_k; i++) {
                        int rank = out.expert[i] < 0 ? 0 : (out.expert[i] - i / out.top_k % moe + experts) % experts;
                        assert_true(rank < b);
                    }
                    if (b == experts || all_kept)
                        assert_memory_equal(planned, free_run, floats * sizeof *planned);
                    else if (b == 1)
                        assert_memory_not_equal(planned, free_run, floats * sizeof *planned);
                    forward_tree(&rig, &tree, &plan, odd, true, again, &out);           /* measuring changes nothing */
                    assert_memory_equal(again, planned, floats * sizeof *planned);
                    for (int n = 0; n < moe; n++)
                        assert_true(b == experts || all_kept ? out.reconstruction[n] == 0 : out.reconstruction[n] >= 0);
                    if (ranking != PLAN_ROUTER)
                        continue;
                    plan.ranking = PLAN_PATH;
                    forward_tree(&rig, &tree, &plan, even, false, again, &out);         /* rows with equal weight */
                    assert_memory_equal(again, planned, floats * sizeof *planned);
                    forward_tree(&rig, &tree, &plan, odd, false, again, &out);
                    by_path += memcmp(again, planned, floats * sizeof *planned) != 0;
                }
        rig_close(&rig);
        free(free_run);
        free(planned);
        free(again);
        free(order);
        unlink(path);
    }
    assert_in_range(by_path, 4, 1000);
}

/* The residual stream after the last layer, which has experts, for one token after a prompt; other rows are untouched. */
static double last_hidden(struct rig *rig, const struct expert_plan *plan, double *hidden)
{
    struct sequence *sequence = NULL;
    struct forward out;
    must(sequence_open(&sequence, rig->engine, 8, &rig->err), &rig->err);
    prompt(rig, sequence, (int32_t[]){3, 1, 4, 1, 5}, 5);
    struct batch batch = {.rows = 1, .token = (int32_t[]){9}, .logit_rows = 1, .plan = plan, .want_hidden = true,
                          .want_reconstruction = true};
    must(engine_forward(rig->engine, sequence, &batch, &out, &rig->err), &rig->err);
    for (int i = 0; i < out.hidden_size; i++)
        hidden[i] = (double)out.hidden[(out.layers - 1) * out.hidden_size + i];
    sequence_close(&sequence);
    return (double)out.reconstruction[out.moe_layers - 1];
}

static double square_distance(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum;
}

static void reconstruction_is_what_the_residual_stream_misses(void **state)
{
    uint64_t seed = 300;
    (void)state;
    for (int round = 0; round < (unit_brief() ? 2 : 6); round++, seed++) {
        struct hparams shape;
        const char *path = moe_file(&seed, &shape);
        for (; shape.norms != NORM_BEFORE; path = moe_file(&seed, &shape))        /* the sum gets a norm in these families */
            seed++;
        int moe = hparams_moe_layers(&shape), experts = shape.router.experts, none = 0;
        double whole[128], nothing[128], part[128];
        int32_t order[LAYERS_MAX * 12], budget[LAYERS_MAX];
        struct expert_plan plan = {PLAN_STATIC, BUDGET_TRUNCATE, moe, experts, budget, order};
        struct rig rig;
        open_rig(&rig, path, round % 2 ? "ref" : "host", NULL, 1, 64);
        for (int n = 0; n < moe; n++)
            budget[n] = n < moe - 1 ? experts : 1;
        assert_true(last_hidden(&rig, NULL, whole) == 0);
        for (int first = 0; first < experts; first++) {             /* an expert that the token does not use adds nothing */
            for (int i = 0; i < moe * experts; i++)
                order[i] = (i + first) % experts;
            double error = last_hidden(&rig, &plan, nothing);
            none = fabs(error - 1) < 1e-6 ? first : none;
        }
        for (int i = 0; i < moe * experts; i++)
            order[i] = (i + none) % experts;
        assert_float_equal(last_hidden(&rig, &plan, nothing), 1, 1e-6);
        int between = 0;
        for (budget[moe - 1] = 1; budget[moe - 1] < experts; budget[moe - 1]++) {
            double error = last_hidden(&rig, &plan, part);
            double want = square_distance(part, whole, shape.hidden) / square_distance(nothing, whole, shape.hidden);
            assert_float_equal(error, want, 1e-3 * (1 + want));
            between += error > 0.01 && error < 0.99;
        }
        assert_true(between > 0);
        rig_close(&rig);
        unlink(path);
    }
}

/* An expert source without a cache: each acquire uploads the requested experts to new memory, each release frees them. */
struct fetching {
    struct expert_source base;
    const struct model *model;
    struct device *device;
    struct buffer held[64], table;
    int acquired;
    struct stop stop;
    int stop_at;                        /* index of the acquire that requests the stop and returns invalid addresses; 0: none */
};

static int fetch(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    struct fetching *fetching = (struct fetching *)source;
    const struct tensor *tensor = model_tensor(fetching->model, err, "layers.%d.experts", wanted->layer);
    const int32_t *expert = wanted->expert;
    const int count = wanted->held = wanted->count;
    uint64_t address[64];
    memset(address, 0xff, sizeof address);
    for (int i = 0; i < count; i++) {
        const char *data = (const char *)model_data(fetching->model, tensor) + (uint64_t)expert[i] * tensor->stride;
        if (device_alloc(fetching->device, tensor->stride, &fetching->held[expert[i]], err))
            return -1;
        queue_upload(fetching->device, fetching->held[expert[i]], data, tensor->stride);
        address[expert[i]] = fetching->held[expert[i]].address;
    }
    if (fetching->stop_at && fetching->stop_at == wanted->layer) {
        atomic_store(&fetching->stop.signal, 2);
        memset(address, 0xff, sizeof address);
    }
    queue_upload(fetching->device, fetching->table, address, (size_t)tensor->count * sizeof *address);
    fetching->acquired += count;
    *table = fetching->table;
    return 0;
}

static void let_go(struct expert_source *source, struct expert_union *wanted)
{
    struct fetching *fetching = (struct fetching *)source;
    for (int i = 0; i < wanted->count; i++)
        device_free(fetching->device, &fetching->held[wanted->expert[i]]);
    wanted->done = wanted->count;
}

static void any_source_of_experts_gives_the_same(void **state)
{
    static const struct expert_source_class class = {.name = "fetching", .acquire = fetch, .release = let_go};
    uint64_t seed = 200;
    struct hparams shape;
    const char *path = moe_file(&seed, &shape);
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct rig rig;
        struct chance chance = {seed};
        struct random_tree tree = random_tree(&chance, shape.vocab);
        size_t floats = NODES * (size_t)shape.vocab;
        float *fixed = calloc(floats, sizeof *fixed), *fetched = calloc(floats, sizeof *fetched);
        struct forward out;
        int loaded = 0;
        open_rig(&rig, path, i ? "ref" : "host", NULL, 1, 64);
        forward_tree(&rig, &tree, NULL, NULL, false, fixed, &out);
        struct fetching fetching = {.base = {&class}, .model = rig.model, .device = rig.device};
        must(device_alloc(rig.device, 64 * sizeof(uint64_t), &fetching.table, &rig.err), &rig.err);
        engine_close(&rig.engine);
        must(engine_open(&rig.engine, &(struct engine_setup){rig.model, rig.device, &fetching.base, 64, 64, 0}, &rig.err),
             &rig.err);
        forward_tree(&rig, &tree, NULL, NULL, false, fetched, &out);
        for (int n = 0; n < out.moe_layers; n++)
            loaded += out.distinct_loaded[n];
        assert_true(fetching.acquired >= loaded && loaded > 0);
        assert_memory_equal(fixed, fetched, floats * sizeof *fixed);
        device_free(rig.device, &fetching.table);
        rig_close(&rig);
        free(fixed);
        free(fetched);
    }
    unlink(path);
}

/* With a mapped file on a slow disk, each expert may take seconds. */
static void a_stop_ends_the_reading_of_a_layers_experts(void **state)
{
    static const struct expert_source_class class = {.name = "fetching", .acquire = fetch, .release = let_go};
    uint64_t seed = 230;
    struct hparams shape;
    const char *path = moe_file(&seed, &shape);
    struct rig rig;
    struct sequence *sequence = NULL;
    struct forward out;
    struct fetching fetching = {.base = {&class}};
    const struct batch batch = {.rows = 2, .token = (int32_t[]){3, 1}, .parent = (int32_t[]){-1, 0}, .logit_rows = 2};
    (void)state;
    open_rig(&rig, path, "host", NULL, 2, 64);
    fetching.model = rig.model;
    fetching.device = rig.device;
    must(device_alloc(rig.device, 64 * sizeof(uint64_t), &fetching.table, &rig.err), &rig.err);
    engine_close(&rig.engine);
    must(engine_open(&rig.engine, &(struct engine_setup){rig.model, rig.device, &fetching.base, 64, 64, 0,
                                                         .stop = &fetching.stop}, &rig.err), &rig.err);
    must(sequence_open(&sequence, rig.engine, 40, &rig.err), &rig.err);
    for (int layer = shape.layers - 1; layer > 0; layer--) {
        if (shape.layer[layer].ffn != FFN_EXPERTS)
            continue;
        fetching.stop_at = layer;
        assert_int_equal(engine_forward(rig.engine, sequence, &batch, &out, &rig.err), -1);
        assert_int_equal(rig.err.code, ERR_SIGNAL);
        err_clear(&rig.err);
        assert_int_equal(sequence_pending(sequence), 0);
        atomic_store(&fetching.stop.signal, 0);
    }
    assert_true(fetching.stop_at > 0);
    sequence_close(&sequence);
    device_free(rig.device, &fetching.table);
    rig_close(&rig);
    unlink(path);
}

/* Computes the logits of a tree's nodes. */
static float *tree_logits(const char *path, const char *device, const struct hparams *shape, uint64_t seed)
{
    struct chance chance = {seed};
    struct random_tree tree = random_tree(&chance, shape->vocab);
    float *got = calloc(NODES * (size_t)shape->vocab, sizeof *got);
    struct rig rig;
    struct forward out;
    open_rig(&rig, path, device, NULL, 1, 64);
    forward_tree(&rig, &tree, NULL, NULL, false, got, &out);
    rig_close(&rig);
    return got;
}

/* Frees both. */
static void assert_near(float *got, float *want, const struct hparams *shape, float limit)
{
    for (size_t i = 0; i < NODES * (size_t)shape->vocab; i++)
        assert_true(fabsf(got[i] - want[i]) < limit * (1 + fabsf(want[i])));
    free(got);
    free(want);
}

static void host_equals_ref(const char *path, const struct hparams *shape, uint64_t seed, float limit)
{
    assert_near(tree_logits(path, "host", shape, seed), tree_logits(path, "ref", shape, seed), shape, limit);
}

/* Host and reference compute the same function with different rounding. With quantised weights a rounding may change the
 * integer of an activation by one step, 1/127 of the block's largest value. */
static void host_agrees_with_ref(void **state)
{
    (void)state;
    for (int format = 0; format < FORMAT_COUNT; format++) {
        struct hparams shape;
        const uint64_t seed = 300 + (uint64_t)format;   /* in these, no step changes a logit by more than the bound */
        const char *path = tiny_file(seed, (enum weight_format)format, &shape);
        host_equals_ref(path, &shape, seed, format_integers((enum weight_format)format) ? 3e-2f : 1e-4f);
        unlink(path);
    }
}

/* Random weights are around 0; otherwise no token of a tiny model depends much on its context. */
static void weights_have_both_signs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct chance chance = {seed};
        double sum = 0, squares = 0, max = 0;
        for (int i = 0; i < 1000; i++) {
            double value = chance_signed(&chance);
            sum += value;
            squares += value * value;
            max = fmax(max, fabs(value));
        }
        assert_true(fabs(sum / 1000) < 0.08 && fabs(squares / 1000 - 1.0 / 3) < 0.05 && max <= 1);
    }
}

/* v and down in formats of their own keep both promises. */
static void last_parts_have_formats_of_their_own(void **state)
{
    static const enum weight_format pairs[][2] = {{FORMAT_Q4_K, FORMAT_Q6_K}, {FORMAT_FP8, FORMAT_BF16}, {FORMAT_Q4, FORMAT_Q8},
                                                  {FORMAT_MXFP4, FORMAT_Q8}, {FORMAT_Q8, FORMAT_F32},
                                                  {FORMAT_IQ4_XS, FORMAT_Q5_K}, {FORMAT_Q2_K, FORMAT_IQ3_S}};
    static const char *const isas[] = {NULL, "avx2", "plain"};
    (void)state;
    for (uint64_t seed = 500; seed < 510; seed += unit_brief() ? 2 : 1) {
        const enum weight_format *pair = pairs[seed % (sizeof pairs / sizeof *pairs)];
        struct hparams shape;
        struct rig rig;
        const char *path = tiny_mixed_file(seed, pair[0], pair[1], &shape);
        open_rig(&rig, path, "host", isa_of(isas[seed % 3]) ? isas[seed % 3] : NULL, 1 + (int)(seed / 2 % 2), 64);
        for (int i = 0; i < model_tensor_count(rig.model); i++) {
            const struct tensor *t = model_tensor_at(rig.model, i);
            assert_int_equal(t->mixed, t->kind == TENSOR_EXPERTS || t->role == ROLE_QKV);
        }
        tree_equals_paths(&rig, seed * 7);
        rig_close(&rig);
        host_equals_ref(path, &shape, seed, format_integers(pair[0]) || format_integers(pair[1]) ? 3e-2f : 1e-4f);
        unlink(path);
    }
    /* The same weights in f16 and f32 give the same bits. */
    for (uint64_t seed = 510; seed < 520; seed += unit_brief() ? 4 : 1) {
        struct hparams shape;
        struct err err = {0};
        const char *path = tiny_mixed_file(seed, FORMAT_F32, FORMAT_F16, &shape);
        float *mixed = tree_logits(path, "host", &shape, seed);
        must(tiny_write_halves(path, &shape, seed, &err), &err);
        assert_near(mixed, tree_logits(path, "host", &shape, seed), &shape, 1e-4f);
        unlink(path);
    }
}

/* As many rows as the engine accepts, with the widest inputs that are converted to integers: the reference reports what does
 * not fit. */
static void quantised_rows_have_room(void **state)
{
    (void)state;
    for (uint64_t seed = 400; seed < 416; seed += unit_brief() ? 3 : 1) {
        struct hparams shape;
        const char *path = tiny_file(seed, seed % 2 ? FORMAT_Q8 : FORMAT_Q4, &shape);
        int32_t text[8];
        for (int i = 0; i < 8; i++)
            text[i] = (int32_t)(seed * (uint64_t)(i + 1) % (uint64_t)shape.vocab);
        struct rig rig;
        struct sequence *sequence = NULL;
        open_rig(&rig, path, "ref", NULL, 1, 8);
        must(sequence_open(&sequence, rig.engine, 8, &rig.err), &rig.err);
        prompt(&rig, sequence, text, 8);
        sequence_close(&sequence);
        rig_close(&rig);
        unlink(path);
    }
}

/* A copy of a sequence's first tokens, in another engine and with another capacity, continues with the same bits as a
 * sequence that read these tokens itself, whatever it held before, and does not change its source. */
static void a_copied_sequence_goes_on_like_its_own(void **state)
{
    (void)state;
    for (uint64_t seed = 500; seed < 524; seed += unit_brief() ? 5 : 1) {
        struct hparams shape;
        const char *path = tiny_file(seed, FORMAT_F32, &shape);
        const size_t bytes = (size_t)shape.vocab * sizeof(float);
        struct rig rig;
        struct engine *other = NULL;
        struct sequence *from = NULL, *to = NULL;
        struct forward out;
        int32_t text[12];
        for (int i = 0; i < 12; i++)
            text[i] = (int32_t)((seed + 5) * (uint64_t)(i + 3) % (uint64_t)shape.vocab);
        open_with_cache(&rig, path, seed % 2 ? "ref" : "host", NULL, 2, 16, (enum cache_format)(seed % CACHE_FORMATS));
        struct engine_setup setup = *engine_config(rig.engine);
        must(engine_open(&other, &setup, &rig.err), &rig.err);
        must(sequence_open(&from, rig.engine, 20, &rig.err), &rig.err);
        must(sequence_open(&to, other, 12, &rig.err), &rig.err);
        prompt(&rig, from, text, 10);
        float *want = mem_alloc((size_t)shape.vocab * 3, sizeof *want, &rig.err);
        assert_non_null(want);
        decode_alone(&rig, text, 7, text + 7, 3, want);
        struct batch batch = {.rows = 5, .token = text + 4, .logit_rows = 5};
        must(engine_forward(other, to, &batch, &out, &rig.err), &rig.err);
        must(sequence_commit(to, (int32_t[]){0, 1, 2, 3, 4}, 5, &rig.err), &rig.err);
        must(sequence_copy(to, from, 7, &rig.err), &rig.err);
        assert_int_equal(sequence_length(to), 7);
        assert_int_equal(sequence_pending(to), 0);
        batch = (struct batch){.rows = 3, .token = text + 7, .logit_rows = 3};
        must(engine_forward(other, to, &batch, &out, &rig.err), &rig.err);
        assert_memory_equal(out.logits, want, 3 * bytes);
        must(sequence_truncate(from, 7, &rig.err), &rig.err);
        must(engine_forward(rig.engine, from, &batch, &out, &rig.err), &rig.err);
        assert_memory_equal(out.logits, want, 3 * bytes);
        assert_int_equal(sequence_copy(to, from, 8, &rig.err), -1);
        assert_int_equal(sequence_copy(to, from, -1, &rig.err), -1);
        sequence_rollback(from);
        sequence_close(&to);
        must(sequence_open(&to, other, 6, &rig.err), &rig.err);
        assert_int_equal(sequence_copy(to, from, 7, &rig.err), -1);
        must(sequence_copy(to, from, 0, &rig.err), &rig.err);
        assert_int_equal(sequence_length(to), 0);
        mem_free(&want);
        sequence_close(&to);
        sequence_close(&from);
        engine_close(&other);
        rig_close(&rig);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_equal_their_paths),
        cmocka_unit_test(nodes_equal_their_paths_in_special_layers),
        cmocka_unit_test(chunks_threads_and_isas_do_not_show),
        cmocka_unit_test(commit_keeps_one_path),
        cmocka_unit_test(commit_refuses_what_is_no_path),
        cmocka_unit_test(bad_batches_are_refused_and_change_nothing),
        cmocka_unit_test(budgets_bound_what_is_loaded),
        cmocka_unit_test(reconstruction_is_what_the_residual_stream_misses),
        cmocka_unit_test(any_source_of_experts_gives_the_same),
        cmocka_unit_test(a_stop_ends_the_reading_of_a_layers_experts),
        cmocka_unit_test(host_agrees_with_ref),
        cmocka_unit_test(weights_have_both_signs),
        cmocka_unit_test(last_parts_have_formats_of_their_own),
        cmocka_unit_test(quantised_rows_have_room),
        cmocka_unit_test(a_copied_sequence_goes_on_like_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

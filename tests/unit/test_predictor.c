/* Prediction layers of checkpoints (MTP), compared with the published formula in NumPy (tests/golden/mtp): each module's
 * output on a given text, and what they draft in turn, as networks and as a drafter; also with the first module alone. Some
 * targets have layers with a state. Each likely mistake is detected. */
#include "tests/unit/heads.h"

#include <sys/stat.h>
#include <unistd.h>

#include "common/draft/drafter.h"
#include "common/head/internal.h"

enum { MODULES = 2, HIDDEN = 32, VOCAB = 64, DRAFTED = 5, FAMILY_COUNT = 6, HYBRID = 4 };

/* shard: the predictor's file, beside that of the model in tests/golden/families; NULL: one file has both. From HYBRID on
 * the families have layers with a state. */
static const struct family {
    const char *name;
    int modules;
    const char *shard;
} FAMILIES[FAMILY_COUNT] = {{"deepseek_v3", MODULES, NULL}, {"glm4_moe", MODULES, NULL}, {"exaone_moe", 1, "exaone_moe"},
                            {"mimo_v2_flash", 1, "mimo_v2_flash"},
                            {"qwen3_next", 1, "qwen3_next"}, {"qwen3_5_moe", 1, "qwen3_next"}};

struct predictor {
    char *folder;
    struct model *model;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    struct sequence *sequence;
    struct head *head;
    json_t *golden;
    int32_t prompt[HEADS_TOKENS];
    int tokens;
    /* The members that a mistake changes: */
    int state, shift;                   /* offset of the state that module 1 reads; offset of its tokens, 1 */
};

static struct err err;

static struct head *module_of(const struct predictor *p, int k) { return p->head->modules->module[k]; }

struct mistake {
    const char *name;
    void (*describe)(struct predictor *predictor);       /* changes the description before the head is opened */
    void (*alter)(struct head *module);
};

/* Writes the path of a checkpoint's folder to `out`. One of two shards is put together in `base`. */
static void find_checkpoint(const struct family *family, const char *base, char out[1200])
{
    static const char *const shards[] = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
    char path[200];
    snprintf(path, sizeof path, "%s/model", family->name);
    snprintf(out, 1200, "%s", family->shard ? unit_path(base, "checkpoint") : heads_path("golden/mtp", path));
    if (!family->shard)
        return;
    const char *model = heads_path("golden/families", path);
    char from[3][1300];
    snprintf(from[0], sizeof from[0], "%s/config.json", model);
    snprintf(from[1], sizeof from[1], "%s/model.safetensors", model);
    snprintf(path, sizeof path, "%s/%s", family->shard, shards[1]);
    snprintf(from[2], sizeof from[2], "%s", heads_path("golden/mtp", path));
    assert_int_equal(mkdir(out, 0777), 0);
    for (int i = 0; i < 3; i++) {
        char *full = realpath(from[i], NULL);
        assert_non_null(full);
        assert_int_equal(symlink(full, unit_path(out, i ? shards[i - 1] : "config.json")), 0);
        free(full);
    }
}

static void predictor_open(struct predictor *p, const struct family *family, int modules, const struct mistake *mistake)
{
    const struct convert_options options = {.dense = {.keep = true}, .experts = {.keep = true}, .producer = "test"};
    const char *device = getenv("MOE_TEST_DEVICE");
    struct checkpoint *checkpoint = NULL;
    struct conversion plan = {0};
    char path[200], source[1200];
    *p = (struct predictor){.folder = unit_folder(), .shift = 1};
    find_checkpoint(family, p->folder, source);
    const char *file = unit_path(p->folder, "m.moe");
    must(checkpoint_open(&checkpoint, source, file, &err), &err);
    must(conversion_plan(&plan, checkpoint, &options, &err), &err);
    heads_write(checkpoint, &plan, file);
    must(model_open(&p->model, file, &err), &err);
    struct hparams *shape = (struct hparams *)(uintptr_t)model_hparams(p->model);
    assert_int_equal(shape->predictors, family->modules);
    shape->predictors = modules;
    p->state = shape->layers;
    snprintf(path, sizeof path, "%s/golden.json", family->name);
    p->golden = heads_json(heads_path("golden/mtp", path));
    p->tokens = heads_ints(json_object_get(p->golden, "prompt"), p->prompt, HEADS_TOKENS);
    must(device_open(&p->device, &(struct device_setup){.name = device && *device ? device : "host", .threads = 1}, &err),
               &err);
    must(expert_source_open(&p->experts, p->model, p->device, &err), &err);
    const struct engine_setup setup = {.model = p->model, .device = p->device, .experts = p->experts, .max_rows = 64,
                                       .max_logit_rows = 64, .cache = CACHE_F32};
    must(engine_open(&p->engine, &setup, &err), &err);
    must(sequence_open(&p->sequence, p->engine, HEADS_TOKENS, &err), &err);
    if (mistake && mistake->describe)
        mistake->describe(p);
    must(head_open(&p->head, &(struct head_setup){.model = p->model, .target = p->engine, .max_rows = 64,
                                                        .max_logit_rows = 40}, &err), &err);
}

static void predictor_close(struct predictor *p)
{
    head_close(&p->head);
    sequence_close(&p->sequence);
    engine_close(&p->engine);
    expert_source_close(&p->experts);
    device_close(&p->device);
    model_close(&p->model);
    json_decref(p->golden);
    unit_remove(p->folder);
}

/* Computes the state of each of the first `tokens` of the prompt, on the device. */
static struct buffer read_states(struct predictor *p, int tokens)
{
    const struct feature_request wanted = {.count = 1, .layer = {p->state}};
    const struct batch options = {.features = &wanted};
    struct forward forward;
    must(sequence_truncate(p->sequence, 0, &err), &err);
    must(engine_prompt(p->engine, p->sequence, p->prompt, tokens, &options, NULL, NULL, &forward, &err), &err);
    assert_int_equal(forward.rows, tokens);
    return forward.features;
}

/* Runs rows first .. first + rows - 1 of the text; the last one returns logits. */
static void run_true(struct predictor *p, struct buffer states, int tokens, int first, int rows, struct head_forward *out)
{
    int32_t state[HEADS_TOKENS], token[HEADS_TOKENS];
    const int32_t last = rows - 1;
    for (int i = 0; i < rows; i++) {
        state[i] = first + i;
        token[i] = p->prompt[first + i + p->shift];
    }
    const struct head_batch batch = {.rows = rows, .token = token, .state = states, .state_rows = tokens, .state_row = state,
                                     .logit_row = &last, .logit_rows = 1};
    must(head_run(p->head, &batch, out, &err), &err);
}

static void commit(struct predictor *p, int rows)
{
    int32_t node[HEADS_TOKENS];
    for (int i = 0; i < rows; i++)
        node[i] = i;
    must(head_commit(p->head, node, rows, &err), &err);
}

static double difference(const json_t *said, const float *values, int count)
{
    double max = 0;
    assert_int_equal(json_array_size(said), count);
    for (int i = 0; i < count; i++) {
        const double off = fabs(json_number_value(json_array_get(said, (size_t)i)) - (double)values[i]);
        max = isnan(off) ? INFINITY : off > max ? off : max;
    }
    return max;
}

struct distance { double states, logits, log_probabilities; int chains; };

/* Compares a module's output of its pending rows, from this row of the text on, and their logits. */
static void compare_module(struct predictor *p, struct head *module, int k, int first, struct distance *out)
{
    const json_t *golden = json_array_get(json_object_get(p->golden, "module"), (size_t)k);
    const json_t *states = json_object_get(golden, "state"), *logits = json_object_get(golden, "logits");
    const int rows = head_pending(module);
    float made[HEADS_TOKENS * HIDDEN], words[HEADS_TOKENS * VOCAB];
    queue_download(p->device, made, buffer_part(module->made, HIDDEN * sizeof(float), (uint64_t)rows * HIDDEN * sizeof(float)),
                   (size_t)rows * HIDDEN * sizeof(float));
    must(queue_wait(p->device, &err), &err);
    const struct matrix *own = &module->weights.output;
    const struct engine_ends ends = engine_ends(p->engine);
    module->ops->gather(module->queue, &(struct gather_args){
        .in = module->made, .index = module->every_row, .out = module->space.x, .rows = 1 + rows, .count = 1 + rows,
        .width = HIDDEN});
    module->ops->linear(module->queue, &(struct linear_args){
        .in = module->space.x, .weight = own->data.address ? own->data : ends.head, .out = module->logits,
        .operand = module->space.operand, .format = own->data.address ? own->format : ends.head_format, .rows = 1 + rows,
        .inputs = HIDDEN, .outputs = VOCAB, .in_stride = HIDDEN, .out_stride = VOCAB});
    queue_download(p->device, words, module->logits, (size_t)(1 + rows) * VOCAB * sizeof(float));
    must(queue_wait(p->device, &err), &err);
    for (int row = 0; row < rows; row++) {
        out->states = fmax(out->states, difference(json_array_get(states, (size_t)(first + row)), made + row * HIDDEN, HIDDEN));
        out->logits = fmax(out->logits, difference(json_array_get(logits, (size_t)(first + row)), words + (1 + row) * VOCAB,
                                                   VOCAB));
    }
}

/* Reads the prompt in pieces, the first of one row: then the second module has no row yet. */
static void compare_rows(struct predictor *p, int modules, struct distance *out)
{
    static const int pieces[] = {1, 1, 20, 17};
    const struct buffer states = read_states(p, p->tokens);
    struct head_forward forward;
    int first = 0;
    must(head_begin(p->head, p->tokens, &err), &err);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; first += pieces[i++]) {
        run_true(p, states, p->tokens, first, pieces[i], &forward);
        for (int k = 0; k < modules; k++) {
            struct head *module = module_of(p, k);
            compare_module(p, module, k, head_length(module), out);
        }
        commit(p, pieces[i]);
    }
    for (int k = 0; k < modules; k++)
        assert_int_equal(head_length(module_of(p, k)), p->tokens - 1 - k);
}

/* Compares rows of different modules, with logits and again with their likeliest tokens. */
static void check_ranking(struct predictor *p, int32_t parent)
{
    const int32_t token[3] = {5, 9, 2}, above[3] = {parent, -1, parent};
    struct head_batch batch = {.rows = 3, .token = token, .parent = above, .logit_rows = 3};
    struct head_forward forward;
    float logits[3][VOCAB];
    must(head_run(p->head, &batch, &forward, &err), &err);
    memcpy(logits, forward.logits[0], sizeof logits);
    batch.best = 4;
    must(head_run(p->head, &batch, &forward, &err), &err);
    assert_null(forward.logits[0]);
    for (int i = 0; i < 12; i++) {
        double log_probability;
        const int word = heads_best(logits[i / 4], VOCAB, &log_probability);
        if (i % 4 == 0)
            assert_true(fabs((double)forward.best[0].log_probability[i] - log_probability) < 1e-5);
        assert_int_equal(forward.best[0].token[i], word);
        logits[i / 4][word] = -INFINITY;
    }
    batch.best = HEAD_BEST_MAX + 1;
    assert_int_equal(head_run(p->head, &batch, &forward, &err), -1);
    assert_non_null(strstr(err.text, "the 65 most likely tokens"));
    err_clear(&err);
}

/* Drafts the chain among other nodes, so that its rows are not the latest ones. */
static void compare_chain(struct predictor *p, const json_t *chain, struct distance *out)
{
    const json_t *tokens = json_object_get(chain, "tokens"), *logp = json_object_get(chain, "logp");
    const int length = (int)json_integer_value(json_object_get(chain, "length"));
    const struct buffer states = read_states(p, length - 1);
    struct head_forward forward;
    int32_t parent = -1;
    must(head_begin(p->head, p->tokens, &err), &err);
    run_true(p, states, length - 1, 0, length - 1, &forward);
    commit(p, length - 1);
    const float *logits = forward.logits[0];
    for (int at = 0; at < DRAFTED; at++) {
        double log_probability;
        const int32_t word = heads_best(logits, VOCAB, &log_probability);
        const int32_t both[3] = {(word + 7) % VOCAB, word, (word + 3) % VOCAB};
        const int32_t above[3] = {at ? parent : -1, parent, -1}, wanted = 1;
        out->log_probabilities = fmax(out->log_probabilities,
                                      fabs(log_probability - json_number_value(json_array_get(logp, (size_t)at))));
        if (word != json_integer_value(json_array_get(tokens, (size_t)at))) {
            out->chains++;
            return;
        }
        const struct head_batch batch = {.rows = 3, .token = both, .parent = above, .logit_row = &wanted, .logit_rows = 1};
        must(head_run(p->head, &batch, &forward, &err), &err);
        parent = forward.first_node + 1;
        logits = forward.logits[0];
    }
    check_ranking(p, parent);
}

static struct distance measure(const struct family *family, int modules, const struct mistake *mistake)
{
    struct distance out = {0, 0, 0, 0};
    struct predictor p;
    predictor_open(&p, family, modules, mistake);
    for (int k = 0; mistake && mistake->alter && k < modules; k++)
        mistake->alter(module_of(&p, k));
    compare_rows(&p, modules, &out);
    const json_t *chains = json_object_get(p.golden, modules == 1 ? "one" : "chain");
    assert_true(json_array_size(chains) >= 8);
    for (size_t i = 0; i < json_array_size(chains) && (i < 2 || !mistake); i++)
        compare_chain(&p, json_array_get(chains, i), &out);
    predictor_close(&p);
    return out;
}

static void modules_compute_the_published_formula(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * FAMILY_COUNT; i++) {
        const struct family *family = &FAMILIES[i / 2];
        const int modules = 1 + i % 2;
        if (modules > family->modules)
            continue;
        const struct distance off = measure(family, modules, NULL);
        if (!(off.states < 1e-3 && off.logits < 1e-3 && off.log_probabilities < 1e-3) || off.chains)
            fail_msg("%s, %d modules: states off by %g, logits by %g, log-probabilities by %g, %d chains are others",
                     family->name, modules, off.states, off.logits, off.log_probabilities, off.chains);
    }
}

/* Lets the drafter show the head a text: most of it as a prompt, the last two tokens in a verification. */
static void show(struct predictor *p, struct drafter *drafter, int tokens, bool prompt)
{
    const int first = sequence_length(p->sequence), rows = tokens - first;
    int32_t kept[HEADS_TOKENS];
    struct forward forward;
    for (int i = 0; i < rows; i++)
        kept[i] = i;
    const struct batch batch = {.rows = rows, .token = p->prompt + first, .features = &drafter->features};
    must(engine_forward(p->engine, p->sequence, &batch, &forward, &err), &err);
    const struct target_view view = {.forward = &forward, .features = &drafter->features, .position = first,
                                     .token = p->prompt + first, .kept = kept, .kept_rows = rows, .prompt = prompt};
    must(drafter->class->observe(drafter, &view, &err), &err);
    must(sequence_commit(p->sequence, kept, rows, &err), &err);
}

/* Drafts `levels` tokens after the first tokens of the prompt. */
static void draft(struct predictor *p, struct drafter *drafter, int length, int levels, struct draft_tree *tree)
{
    const struct draft_text text = {.target = p->sequence, .tokens = HEADS_TOKENS};
    const struct draft_leaf root = {-1, 1};
    draft_tree_clear(tree);
    must(sequence_truncate(p->sequence, 0, &err), &err);
    must(drafter->class->begin(drafter, &text, &err), &err);
    must(drafter->class->commit(drafter, p->prompt, length - 2, &err), &err);
    show(p, drafter, length - 3, true);
    show(p, drafter, length - 1, false);
    must(drafter->class->commit(drafter, p->prompt + length - 2, 2, &err), &err);
    if (drafter->class->propose(drafter, tree, &root, 1, levels, &err) < 0)
        fail_msg("%s", err.text);
}

static void they_draft_as_published(void **state)
{
    (void)state;
    for (int number = 0; number < 2 * FAMILY_COUNT; number++) {
        const struct family *family = &FAMILIES[number / 2];
        struct predictor p;
        struct drafter *free_one = NULL, *short_one = NULL;
        struct draft_tree tree = {0};
        if (1 + number % 2 > family->modules)
            continue;
        predictor_open(&p, family, 1 + number % 2, NULL);
        const struct drafter_setup setup = {.vocab = VOCAB, .positions = HEADS_TOKENS, .target = p.engine, .choice = DRAFT_BEST,
                                            .probabilities = true, .filter = {0, 1, 0, 0}};
        must(drafter_open(&free_one, "mtp", &setup, &err), &err);
        must(drafter_open(&short_one, "mtp:depth=3", &setup, &err), &err);
        must(draft_tree_init(&tree, 16, &err), &err);
        const json_t *chains = json_object_get(p.golden, number % 2 ? "chain" : "one");
        for (size_t i = 0; i < json_array_size(chains); i++) {
            const json_t *chain = json_array_get(chains, i), *said = json_object_get(chain, "tokens");
            const json_t *logp = json_object_get(chain, "logp");
            draft(&p, free_one, (int)json_integer_value(json_object_get(chain, "length")), DRAFTED, &tree);
            assert_int_equal(tree.nodes, DRAFTED);
            for (int at = 0; at < DRAFTED; at++) {
                assert_int_equal(tree.token[at], json_integer_value(json_array_get(said, (size_t)at)));
                assert_true(fabs((double)tree.log_probability[at] -
                                 json_number_value(json_array_get(logp, (size_t)at))) < 1e-3);
            }
            draft(&p, short_one, (int)json_integer_value(json_object_get(chain, "length")), DRAFTED, &tree);
            assert_int_equal(tree.nodes, 3);
        }
        draft_tree_free(&tree);
        drafter_close(&free_one);
        drafter_close(&short_one);
        predictor_close(&p);
    }
}

static void state_before_the_norm(struct predictor *p) { p->state--; }
static void token_of_the_state(struct predictor *p) { p->shift = 0; }

static void norms_swapped(struct head *module)
{
    const struct buffer first = module->weights.embed_norm;
    module->weights.embed_norm = module->weights.hidden_norm;
    module->weights.hidden_norm = first;
}

static void final_norm_of_the_model(struct head *module)
{
    const struct model *model = module->setup.model;
    const struct tensor *norm = model_tensor(model, &err, "final_norm");
    module->weights.final_norm = device_map(module->device, model_data(model, norm), norm->bytes);
}

static void embedding_of_the_model(struct head *module) { module->weights.embed.data.address = 0; }
static void head_of_the_model(struct head *module) { module->weights.output.data.address = 0; }
static void no_correction(struct head *module) { module->weights.layer.router_correction = (struct buffer){0, 0}; }

static void positions_turn_the_layer(struct predictor *p)
{
    struct hparams *shape = (struct hparams *)(uintptr_t)model_hparams(p->model);
    shape->layer[shape->layers].no_rope = false;
}

static void no_sinks(struct head *module) { module->weights.layer.sinks = (struct buffer){0, 0}; }

static void no_window(struct predictor *p)
{
    struct hparams *shape = (struct hparams *)(uintptr_t)model_hparams(p->model);
    shape->layer[shape->layers].window = 0;
}

static void norms_as_stored(struct head *module)
{
    float *norm = (float *)(uintptr_t)module->weights.hidden_norm.address;
    static float stored[HIDDEN];
    for (int i = 0; i < HIDDEN; i++)
        stored[i] = norm[i] - 1;
    module->weights.hidden_norm = device_map(module->device, stored, sizeof stored);
}

static void other_gate_of_shared_experts(struct head *module)
{
    module->weights.layer.shared_gate = module->weights.layer.router;
}

static void queries_as_gate(struct head *module)
{
    module->weights.layer.gate = module->weights.layer.qkv;
    module->weights.layer.gate.outputs = module->shape->attention.heads * module->shape->attention.head_dim;
}

/* first, end: the families in which the mistake is possible. */
static const struct { struct mistake mistake; int first, end; } MISTAKES[] = {
    {{"the state before the final norm", state_before_the_norm, NULL}, 0, FAMILY_COUNT},
    {{"the token of the state", token_of_the_state, NULL}, 0, FAMILY_COUNT},
    {{"norms swapped", NULL, norms_swapped}, 0, FAMILY_COUNT},
    {{"the model's final norm", NULL, final_norm_of_the_model}, 0, FAMILY_COUNT},
    {{"the model's embedding", NULL, embedding_of_the_model}, 0, 2},
    {{"the model's output head", NULL, head_of_the_model}, 0, 2},
    {{"no correction of routing", NULL, no_correction}, 0, 2},
    {{"turned queries and keys", positions_turn_the_layer, NULL}, 2, 3},
    {{"no sinks", NULL, no_sinks}, 3, HYBRID},
    {{"attention without a window", no_window, NULL}, 3, HYBRID},
    {{"norms as they are stored", NULL, norms_as_stored}, HYBRID, FAMILY_COUNT},
    {{"another gate of shared experts", NULL, other_gate_of_shared_experts}, HYBRID, FAMILY_COUNT},
    {{"queries as gate of attention", NULL, queries_as_gate}, HYBRID, FAMILY_COUNT},
};

static void likely_mistakes_are_seen(void **state)
{
    (void)state;
    if (getenv("MOE_TEST_DEVICE"))
        skip();                         /* such mistakes read memory of the host */
    for (size_t i = 0; i < sizeof MISTAKES / sizeof *MISTAKES; i++)
        for (int family = MISTAKES[i].first; family < MISTAKES[i].end; family++) {
            const struct distance off = measure(&FAMILIES[family], FAMILIES[family].modules, &MISTAKES[i].mistake);
            if (off.states < 0.1 && off.logits < 0.1)
                fail_msg("%s: %s: not seen", FAMILIES[family].name, MISTAKES[i].mistake.name);
        }
}

/* The text must be committed completely and in order before anything is drafted; a model without prediction layers has no
 * head. */
static void what_makes_no_sense_is_refused(void **state)
{
    struct predictor p;
    struct head_forward forward;
    const int32_t token[2] = {1, 2}, node[2] = {1, 0}, later = 3;
    (void)state;
    predictor_open(&p, &FAMILIES[1], MODULES, NULL);
    must(head_begin(p.head, p.tokens, &err), &err);
    const struct head_batch drafted = {.rows = 1, .token = token};
    assert_int_equal(head_run(p.head, &drafted, &forward, &err), -1);
    assert_non_null(strstr(err.text, "drafted tokens can be computed only after the text"));
    err_clear(&err);
    const struct buffer states = read_states(&p, 9);
    run_true(&p, states, 9, 0, 8, &forward);
    assert_int_equal(head_pending(p.head), 8);
    assert_int_equal(head_commit(p.head, node, 2, &err), -1);
    assert_non_null(strstr(err.text, "only true rows can be committed, in order from the first"));
    err_clear(&err);
    commit(&p, 5);
    assert_int_equal(head_length(p.head), 5);
    assert_int_equal(head_length(module_of(&p, 1)), 4);
    must(head_run(p.head, &drafted, &forward, &err), &err);
    assert_int_equal(head_commit(p.head, token, 1, &err), -1);
    err_clear(&err);
    const struct head_batch lost = {.rows = 1, .token = token, .parent = &later};
    assert_int_equal(head_run(p.head, &lost, &forward, &err), -1);
    assert_non_null(strstr(err.text, "its parent has not been computed yet"));
    err_clear(&err);
    head_rollback(p.head);
    assert_int_equal(head_pending(p.head), 0);
    head_close(&p.head);
    ((struct hparams *)(uintptr_t)model_hparams(p.model))->predictors = 0;
    assert_int_equal(head_open(&p.head, &(struct head_setup){.model = p.model, .target = p.engine, .max_rows = 1,
                                                             .max_logit_rows = 1}, &err), -1);
    assert_non_null(strstr(err.text, "the model has no layers for multi-token prediction"));
    err_clear(&err);
    predictor_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_compute_the_published_formula),
        cmocka_unit_test(they_draft_as_published),
        cmocka_unit_test(likely_mistakes_are_seen),
        cmocka_unit_test(what_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

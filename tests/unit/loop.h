/* Tests the distribution of decoded texts with the whole decoding loop: decoder, drafter, shape, policy and acceptance, on
 * two models so small that the probability of every text can be enumerated. Texts are decoded repeatedly with different
 * random numbers and compared with the target's own distribution. With coupled acceptance each text must equal the text
 * without a draft; with typical acceptance each iteration must give the result of the rule in distribution.h.
 *
 * Expected values are computed by forwards over prefixes only. Policies see a simulated clock: seconds are a function of the
 * experts that a forward loaded, so that decisions are the same on every machine and depend on everything that was drafted. */
#ifndef MOE_TESTS_LOOP_H
#define MOE_TESTS_LOOP_H

#include "tests/unit/distribution.h"

#include "common/arch/head.h"
#include "common/base/hash.h"
#include "common/decode/internal.h"
#include "common/instruments/probe.h"
#include "common/instruments/record.h"
#include "common/model/model_write.h"
#include "common/model/synthetic.h"
#include "common/stream/writer.h"

enum {
    LOOP_TEXT = 5, LOOP_PROMPT = 12, LOOP_TEXTS = V * V * V * V * V,
    LOOP_ROWS = 1 + V + V * V + V * V * V + V * V * V * V,      /* prefixes of 0 to 4 tokens */
    LOOP_BLOCK = 2000               /* texts per seed and decoder */
};

static const int32_t loop_prompt[LOOP_PROMPT] = {0, 1, 2, 3, 1, 2, 4, 6, 1, 5, 2, 1};

/* Returns the table index of a prefix, whose tokens are the digits of `code`. */
static inline int loop_row(int tokens, int code)
{
    int row = code;
    for (int at = 0, room = 1; at < tokens; at++, room *= V)
        row += room;
    return row;
}

enum { LOOP_HEADS = 8 };

struct loop_world {
    char *folder;
    char target[1200], model[1300], self[1300], tree[1300], costs[1300];        /* a file, and values for settings */
    /* ngram, model, the target as a model, model, ngram, parts of the target, eagle1, model, eagle3: names of running
     * drafters */
    const char *named[9];
    char head[LOOP_HEADS][1300];    /* of `kinds`, and the target's own prediction layers */
    float (*logits)[V];             /* [LOOP_ROWS] target logits after prompt and prefix */
};

/* The decoding side: one per thread. */
struct loop_rig {
    struct model *model;
    struct device *device;
    struct expert_source *experts;
    struct engine *engine;
    char recording[1300];           /* a file of its own */
};

/* The target's distribution with some sampling settings: of one, two and three consecutive tokens. */
struct loop_law {
    struct sample_filter filter;
    double p[LOOP_ROWS][V];
    double one[LOOP_TEXT][V], two[LOOP_TEXT - 1][V * V], three[LOOP_TEXT - 2][V * V * V];
};

struct loop_cell {
    const char *accept, *policy, *draft, *tree;         /* as in settings, but `model` and `static` without their files */
    const char *alone;                                  /* a single drafter, as in settings, used in place of `draft`; NULL:
                                                         * none */
    double temperature;
    int filter;                                         /* index in grid_filters */
    int (*twist)(struct decoder *decoder);              /* modifies the open decoder; NULL: none */
    uint64_t seed;
};

struct loop_tally {
    struct tally tally;
    long iterations, drafted, verified, accepted, empty;        /* empty: iterations without a draft */
    struct err err;                                     /* why settings were rejected or a run failed */
};

static inline void loop_must(int rc, const struct err *err)
{
    if (rc) {
        fprintf(stderr, "%s\n", err->text);
        abort();                    /* works also outside the test's thread */
    }
}

/* ---- models ---- */

static inline struct hparams loop_shape(int layers)
{
    struct hparams s = {.family = "tiny", .norm_epsilon = 1e-5f, .bos = -1, .pad = -1, .vocab = V, .hidden = 8,
                        .layers = layers, .max_positions = 64};
    s.attention.kv_heads = s.attention.heads = 1;
    s.attention.head_dim = s.attention.value_dim = 4;
    s.attention.scale = 0.5f;
    s.rope = (struct rope_shape){.kind = ROPE_DEFAULT, .rotary = 4, .theta = 10000, .factor = 1};
    s.router.kind = ROUTER_SOFTMAX_TOPK;
    s.router.experts = 4;
    s.router.top_k = 2;
    s.router.scale = 1;
    s.expert_inner = 8;
    s.predictors = layers > 1 ? 2 : 0;          /* of the target */
    for (int n = 0; n < layers + s.predictors; n++)
        s.layer[n].ffn = FFN_EXPERTS;
    return s;
}

/* Fills a matrix of a model with weights of both signs, so that logits depend on the tokens read. */
static inline int loop_make(void *context, int member, struct block_job *job, struct err *err)
{
    const struct tensor *t = job->tensor;
    struct random random = {*(uint64_t *)context + (uint64_t)job->block};
    int experts = t->kind == TENSOR_EXPERTS, rows = experts ? 3 * t->outputs : t->outputs;
    float row[64];
    (void)member, (void)err;
    for (const char *c = t->name; *c; c++)
        random.state = random.state * 131 + (unsigned char)*c;
    memset(job->packed, 0, t->stride);
    if (t->kind == TENSOR_VECTOR)
        for (int i = 0; i < t->outputs; i++)
            ((float *)job->packed)[i] = 1;
    for (int r = 0; t->kind != TENSOR_VECTOR && r < rows; r++) {
        for (int i = 0; i < 64; i++)
            row[i] = 2 * (float)random_uniform(&random) - 1;
        if (!experts)
            matrix_pack(FORMAT_F32, job->packed, t->inputs, r, 1, row);
        else if (r < t->outputs)
            matrix_pack(FORMAT_F32, (char *)job->packed + tensor_last_offset(t), t->inputs, r, 1, row);
        else
            expert_pack_gate_up(FORMAT_F32, job->packed, t->outputs, r % 2, (r - t->outputs) / 2, 1, row);
    }
    return 0;
}

/* Writes the model of this seed. */
static inline void loop_write(const char *path, int layers, uint64_t seed)
{
    struct model_facts facts = {.shape = loop_shape(layers), .name = "loop", .producer = "test", .synthetic = true};
    struct layout layout = {0};
    struct model_writer *writer = NULL;
    struct thread_pool *pool = NULL;
    struct err err = {0};
    loop_must(hparams_check(&facts.shape, &err) || layout_make(&layout, &facts.shape, &err) || thread_pool_new(&pool, 1,
                                                                                                               &err), &err);
    for (int i = 0; i < layout.count; i++)
        if (layout.tensors[i].kind != TENSOR_VECTOR)
            layout.tensors[i].format = FORMAT_F32;
    loop_must(model_writer_open(&writer, path, &layout, &err), &err);
    loop_must(model_writer_fill(writer, &(struct block_maker){loop_make, &seed}, pool, NULL, &facts.source, &err), &err);
    loop_must(model_writer_commit(&writer, &facts, &err), &err);
    layout_free(&layout);
    thread_pool_free(&pool);
}

/* Writes random heads for the target; one of them has only some of the target's tokens. */
static inline void loop_write_heads(struct loop_world *world)
{
    static const enum head_kind kinds[LOOP_HEADS - 1] = {HEAD_EAGLE1, HEAD_EAGLE3, HEAD_KANGAROO, HEAD_MEDUSA, HEAD_HYDRA,
                                                         HEAD_JAKIRO, HEAD_JAKIRO_STAR};
    struct err err = {0};
    struct model *target = NULL;
    struct thread_pool *pool = NULL;
    json_t *config = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:{s:[i, i]}}",
                               "hidden_size", 8, "intermediate_size", 16, "num_attention_heads", 2, "draft_vocab_size", V - 2,
                               "exit_layer", 1, "vocab_size", V, "medusa_num_heads", 2, "medusa_num_layers", 1,
                               "hydra_num_heads", 3, "hydra_num_layers", 2, "hydra_head_arch", "prefix-mlp",
                               "eagle_config", "eagle_aux_hidden_state_layer_ids", 0, 1);
    loop_must(model_open(&target, world->target, &err) || thread_pool_new(&pool, 1, &err), &err);
    for (int i = 0; i < LOOP_HEADS - 1; i++) {
        struct head_reading reading = {.notes = {0}};
        const char *path = unit_path(world->folder, head_kind_name(kinds[i]));
        loop_must(head_invent(&reading, kinds[i], config, target, &err), &err);
        const struct synthetic_options options = {.dense = FORMAT_F32, .experts = FORMAT_F32, .seed = 5 + (uint64_t)i,
                                                  .name = "loop", .producer = "test", .head = &reading.head};
        loop_must(synthetic_write(path, &reading.shape, &options, pool, NULL, &err), &err);
        snprintf(world->head[i], sizeof world->head[i], "head:file=%s", path);
        head_reading_free(&reading);
    }
    snprintf(world->head[LOOP_HEADS - 1], sizeof world->head[0], "mtp");
    json_decref(config);
    thread_pool_free(&pool);
    model_close(&target);
}

static inline void loop_rig_open(struct loop_rig *rig, const struct loop_world *world, int number)
{
    struct err err = {0};
    *rig = (struct loop_rig){0};
    loop_must(model_open(&rig->model, world->target, &err), &err);
    loop_must(device_open(&rig->device, &(struct device_setup){.name = "host", .threads = 1}, &err), &err);
    loop_must(expert_source_open(&rig->experts, rig->model, rig->device, &err), &err);
    const struct engine_setup setup = {.model = rig->model, .device = rig->device, .experts = rig->experts, .max_rows = 128,
                                       .max_logit_rows = 128, .max_positions = 32};
    loop_must(engine_open(&rig->engine, &setup, &err), &err);
    snprintf(rig->recording, sizeof rig->recording, "%s/recording-%d.moes", world->folder, number);
}

static inline void loop_rig_close(struct loop_rig *rig)
{
    engine_close(&rig->engine);
    expert_source_close(&rig->experts);
    device_close(&rig->device);
    model_close(&rig->model);
}

/* Stores the logits after all prefixes that begin with the `tokens` tokens of `code`, which are in the sequence. */
static inline void loop_read(struct loop_world *world, const struct loop_rig *rig, struct sequence *sequence, int tokens,
                             int code, const float *logits)
{
    struct err err = {0};
    memcpy(world->logits[loop_row(tokens, code)], logits, V * sizeof *logits);
    for (int32_t v = 0; v < V && tokens + 1 < LOOP_TEXT; v++) {
        struct forward forward;
        loop_must(sequence_truncate(sequence, LOOP_PROMPT + tokens, &err), &err);
        loop_must(engine_prompt(rig->engine, sequence, &v, 1, NULL, NULL, NULL, &forward, &err), &err);
        loop_read(world, rig, sequence, tokens + 1, code * V + v, forward.logits);
    }
}

static inline void loop_world_open(struct loop_world *world)
{
    static const char tree[] = "[[0],[1],[0,0],[0,1],[1,0]]", costs[] = "{\"cost\": [{\"m\": 1, \"seconds\": 1},"
        "{\"m\": 2, \"seconds\": 1.4}, {\"m\": 3, \"seconds\": 1.7}, {\"m\": 4, \"seconds\": 1.8}]}";
    struct sequence *sequence = NULL;
    struct forward forward;
    struct loop_rig rig;
    struct err err = {0};
    *world = (struct loop_world){.folder = unit_folder()};
    snprintf(world->target, sizeof world->target, "%s/target.moe", world->folder);
    snprintf(world->model, sizeof world->model, "model:file=%s/draft.moe", world->folder);
    snprintf(world->self, sizeof world->self, "model:file=%s/target.moe", world->folder);
    world->named[0] = "ngram:n=2";
    world->named[2] = world->self;
    world->named[3] = world->model;
    world->named[4] = world->named[0];
    world->named[5] = "self:exit=1";
    world->named[1] = world->named[7] = world->model;
    world->named[6] = world->head[0];
    world->named[8] = world->head[1];
    snprintf(world->tree, sizeof world->tree, "static:file=%s/tree.json", world->folder);
    snprintf(world->costs, sizeof world->costs, "%s/costs.json", world->folder);
    loop_write(world->target, 2, 1);
    loop_write(unit_path(world->folder, "draft.moe"), 1, 2);
    loop_write_heads(world);
    unit_write(unit_path(world->folder, "tree.json"), tree, strlen(tree));
    unit_write(world->costs, costs, strlen(costs));
    world->logits = calloc(LOOP_ROWS, sizeof *world->logits);
    loop_rig_open(&rig, world, 0);
    loop_must(sequence_open(&sequence, rig.engine, LOOP_PROMPT + LOOP_TEXT, &err), &err);
    loop_must(engine_prompt(rig.engine, sequence, loop_prompt, LOOP_PROMPT, NULL, NULL, NULL, &forward, &err), &err);
    loop_read(world, &rig, sequence, 0, 0, forward.logits);
    sequence_close(&sequence);
    loop_rig_close(&rig);
}

static inline void loop_world_close(struct loop_world *world)
{
    free(world->logits);
    unit_remove(world->folder);
}

static inline struct sample_filter loop_filter(const struct loop_cell *cell)
{
    struct sample_filter filter = grid_filters[cell->filter];
    filter.temperature = cell->temperature;
    return filter;
}

static inline void loop_law_make(struct loop_law *law, const struct loop_world *world, const struct sample_filter *filter)
{
    memset(law, 0, sizeof *law);
    law->filter = *filter;
    for (int row = 0; row < LOOP_ROWS; row++)
        plain_distribution(world->logits[row], filter, law->p[row]);
    for (int text = 0; text < LOOP_TEXTS; text++) {
        int token[LOOP_TEXT], code = 0;
        double mass = 1;
        for (int at = LOOP_TEXT, rest = text; at-- > 0; rest /= V)
            token[at] = rest % V;
        for (int at = 0; at < LOOP_TEXT; at++) {
            mass *= law->p[loop_row(at, code)][token[at]];
            code = code * V + token[at];
        }
        for (int at = 0; at < LOOP_TEXT; at++)
            law->one[at][token[at]] += mass;
        for (int at = 0; at + 1 < LOOP_TEXT; at++)
            law->two[at][token[at] * V + token[at + 1]] += mass;
        for (int at = 0; at + 2 < LOOP_TEXT; at++)
            law->three[at][(token[at] * V + token[at + 1]) * V + token[at + 2]] += mass;
    }
}

/* ---- the clock ---- */

/* A policy that forwards all calls to another one, with simulated times. */
struct loop_clock {
    struct policy base;
    struct policy *inner;
    int made;                       /* tokens drafted in this iteration, including dropped ones */
};

static inline void loop_clock_begin(struct policy *policy, const struct policy_text *text)
{
    struct loop_clock *clock = (struct loop_clock *)policy;
    if (clock->inner->class->begin)
        clock->inner->class->begin(clock->inner, text);
}

static inline struct step loop_clock_next(struct policy *policy, const struct draft_view *view)
{
    struct loop_clock *clock = (struct loop_clock *)policy;
    clock->made = (view->steps ? clock->made : 0) + view->added;
    return clock->inner->class->next(clock->inner, view);
}

static inline int loop_clock_length(const struct policy *policy)
{
    const struct policy *inner = ((const struct loop_clock *)policy)->inner;
    return inner->class->length(inner);
}

static inline void loop_clock_observe(struct policy *policy, const struct outcome *outcome)
{
    struct loop_clock *clock = (struct loop_clock *)policy;
    struct outcome seen = *outcome;
    seen.draft_s = 0.0005 * clock->made;
    seen.verify_s = 0.2 + 0.2 * outcome->experts_loaded;
    seen.iteration_s = seen.draft_s + seen.verify_s;
    if (clock->inner->class->observe)
        clock->inner->class->observe(clock->inner, &seen);
}

static inline void loop_clock_state(const struct policy *policy, struct values *out)
{
    const struct policy *inner = ((const struct loop_clock *)policy)->inner;
    inner->class->state(inner, out);
}

static inline void loop_clock_free(struct policy *policy)
{
    policy_close(&((struct loop_clock *)policy)->inner);
    free(policy);
}

static inline void loop_clock_set(struct decoder *decoder)
{
    static const struct policy_class class = {
        .name = "clock", .begin = loop_clock_begin, .next = loop_clock_next, .length = loop_clock_length,
        .observe = loop_clock_observe, .state = loop_clock_state, .free = loop_clock_free};
    struct loop_clock *clock = calloc(1, sizeof *clock);
    clock->base.class = &class;
    clock->inner = decoder->policy;
    decoder->policy = &clock->base;
}

/* ---- runs ---- */

/* Returns the settings with which a policy of the table is opened, such that it drafts and takes all its decisions even in
 * these short texts. A policy that is not listed is opened by its name alone, and must then take some decision. */
static inline const char *loop_policy(const struct policy_class *class, const struct loop_world *world,
                                      const struct loop_rig *rig, char *room, size_t bytes)
{
    static const struct { const struct policy_class *class; const char *text; } known[] = {
        {&policy_static, "static:K=3"},
        {&policy_cascade, "cascade:baseline=1,trial=1,trials=3,set=2,first=2,refresh=3,most=3"},
        {&policy_tiers, "tiers:lengths=1/2/3,warmup=0,every=1,weight=0.5"},
        {&policy_table, "table:rows=0:3/3:1/4:2"},
        {&policy_off, "off:K=3,window=50,least=1.3"},
        {&policy_vertical, "vertical"},
        {&policy_dytc, "dytc:warmup=8,least=0.05"},
        {&policy_dytc_verify, "dytc-verify:explore=1"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].class == class)
            return known[i].text;
    if (class == &policy_cascade_cost)
        snprintf(room, bytes, "cascade-cost:cost=%s,shadow=1,most=3", world->costs);
    else if (class == &policy_evict || class == &policy_evict_experts || class == &policy_bastion || class == &policy_threshold)
        snprintf(room, bytes, "%s:cost=%s,explore=1,max=3", class->name, world->costs);
    else if (class == &policy_oracle)
        snprintf(room, bytes, "oracle:file=%s,cost=bytes", rig->recording);
    else
        snprintf(room, bytes, "%s", class->name);
    return room;
}

struct loop_run {
    const struct loop_cell *cell;
    const struct loop_world *world;
    const struct loop_law *law;
    struct cell *typical;           /* NULL: another rule */
    struct loop_tally *out;
    int tokens, code;               /* of the text so far */
};

/* Returns whether an iteration gave the result of typical acceptance for its draft, whatever the draft is. */
static inline bool loop_is_typical(const struct loop_run *run, const struct decode_iteration *iteration)
{
    const struct draft_tree *tree = iteration->tree;
    int32_t emitted[DRAFT_MAX + 1];
    int code[DRAFT_MAX];
    struct draft draft;
    draft_begin(&draft);
    memcpy(draft.logits, run->world->logits[loop_row(run->tokens, run->code)], sizeof *run->world->logits);
    for (int node = 0; node < tree->nodes; node++) {
        draft_put(&draft, tree->parent[node], tree->token[node], NULL);
        code[node] = (tree->parent[node] < 0 ? run->code : code[tree->parent[node]]) * V + tree->token[node];
        memcpy(draft.logits + (1 + node) * V, run->world->logits[loop_row(run->tokens + draft.depth[node], code[node])],
               sizeof *run->world->logits);
    }
    int count = plain_typical(run->typical, &draft, emitted) + 1;
    return count == iteration->record.emitted && !memcmp(emitted, iteration->record.tokens, (size_t)count * sizeof *emitted);
}

static inline int loop_see(void *context, const struct decode_iteration *iteration, struct err *err)
{
    struct loop_run *run = context;
    (void)err;
    if (!run->tokens) {                             /* the root is the first token of the text */
        run->code = iteration->record.node_tokens[0];
        run->tokens = 1;
    }
    run->out->iterations++;
    run->out->drafted += iteration->record.drafted;
    run->out->verified += iteration->tree->nodes;
    run->out->accepted += iteration->record.accepted;
    run->out->empty += !iteration->tree->nodes;
    run->out->tally.other += run->typical && !loop_is_typical(run, iteration);
    for (int i = 0; i < iteration->record.emitted; i++)
        run->code = run->code * V + iteration->record.tokens[i];
    run->tokens += iteration->record.emitted;
    return 0;
}

/* Returns the text, as a code, that decoding without drafts draws with these random numbers. */
static inline int loop_alone(const struct loop_world *world, const struct sample_filter *filter, struct sample_draw draw)
{
    int32_t kept[V];
    int code = 0;
    for (int at = 0; at < LOOP_TEXT; at++) {
        draw.position = (uint32_t)(LOOP_PROMPT + at);
        code = code * V + sample_token(world->logits[loop_row(at, code)], V, filter, &draw, kept);
    }
    return code;
}

static inline struct decode_settings loop_settings(const struct loop_cell *cell, const struct loop_world *world, uint64_t seed)
{
    struct decode_settings settings = DECODE_DEFAULTS;
    settings.max_tokens = LOOP_TEXT;
    settings.filter = loop_filter(cell);
    settings.seed = seed;
    const int first = *cell->draft == 'h' ? 6 : strstr(cell->draft, "+head") ? 7 : *cell->draft == 'e' ? 5
                    : *cell->draft == 's' ? 2 : strstr(cell->draft, "+ngram") ? 3 : *cell->draft == 'm';
    const int count = strchr(cell->draft, '+') ? 2 : 1;
    settings.draft = (struct strings){(const char **)(uintptr_t)&world->named[first], count};
    if (cell->alone)
        settings.draft = (struct strings){(const char **)(uintptr_t)&cell->alone, 1};
    settings.tree = cell->tree && !strcmp(cell->tree, "static") ? world->tree : cell->tree;
    settings.policy = cell->policy;
    settings.accept = cell->accept;
    return settings;
}

static inline int loop_put_draft(void *context, const struct decode_draft *draft, struct err *err)
{
    return decode_record_draft(context, draft, err);
}

static inline int loop_put_iteration(void *context, const struct decode_iteration *iteration, struct err *err)
{
    return decode_record_iteration(context, iteration, err);
}

/* Makes the recording for the oracle: the same texts with the same random numbers, with coupled acceptance. */
static inline void loop_record(const struct loop_cell *cell, const struct loop_world *world, const struct loop_rig *rig,
                               int texts, uint64_t seed)
{
    const struct loop_cell coupled = {.draft = strchr(cell->draft, '+') ? "model" : cell->draft, .policy = "static:K=3",
                                      .temperature = cell->temperature, .filter = cell->filter};
    const struct decode_settings settings = loop_settings(&coupled, world, seed);
    const struct decoder_setup setup = {.engine = rig->engine, .settings = &settings, .want_drafts = true};
    struct prompt prompt = {.tokens = {.ids = (int32_t *)(uintptr_t)loop_prompt, .n = LOOP_PROMPT}, .id = (char[]){"0"}};
    struct decode_recorder recorder = {0};
    const struct decode_sink sink = {.context = &recorder, .iteration = loop_put_iteration};
    struct decoder *decoder = NULL;
    struct probe *probe = NULL;
    struct header header = {0};
    struct err err = {0};
    loop_must(header_init(&header, STREAM_DECODE, "test", "1", 0, NULL, &err), &err);
    header.has_model = true;
    header.model = (struct stream_model){.layers = 2, .moe_layers = 2, .experts = 4, .top_k = 2, .vocab = V, .hidden = 8};
    loop_must(writer_open(&recorder.writer, rig->recording, &header, &err), &err);
    loop_must(decoder_open(&decoder, &setup, &err), &err);
    loop_must(probe_open(&probe, decoder, &setup, 3, &err), &err);
    for (int text = 0; text < texts; text++) {
        struct decode_result result;
        recorder.sequence = text;
        loop_must(decode_record_begin(&recorder, &prompt, 0, &err), &err);
        loop_must(decoder_run(decoder, &(struct decode_prompt){.token = loop_prompt, .tokens = LOOP_PROMPT, .sample = text},
                              &sink, &result, &err), &err);
        loop_must(probe_run(probe, decoder, &(struct decode_prompt){.token = loop_prompt, .tokens = LOOP_PROMPT}, &result,
                            loop_put_draft, &recorder, &err), &err);
        loop_must(decode_record_done(&recorder, &prompt, &result, &err), &err);
    }
    loop_must(writer_close(&recorder.writer, &err), &err);
    header_free(&header);
    probe_close(&probe);
    decoder_close(&decoder);
}

struct loop_seen { long one[LOOP_TEXT][V], two[LOOP_TEXT - 1][V * V], three[LOOP_TEXT - 2][V * V * V]; };

static inline void loop_count(struct loop_seen *seen, const int32_t *token)
{
    for (int at = 0; at < LOOP_TEXT; at++)
        seen->one[at][token[at]]++;
    for (int at = 0; at + 1 < LOOP_TEXT; at++)
        seen->two[at][token[at] * V + token[at + 1]]++;
    for (int at = 0; at + 2 < LOOP_TEXT; at++)
        seen->three[at][(token[at] * V + token[at + 1]) * V + token[at + 2]]++;
}

static inline void loop_compare(const struct loop_law *law, const struct loop_seen *seen, long samples, struct tally *tally)
{
    for (int at = 0; at < LOOP_TEXT; at++)
        tally_compare(law->one[at], seen->one[at], V, samples, tally);
    for (int at = 0; at + 1 < LOOP_TEXT; at++)
        tally_compare(law->two[at], seen->two[at], V * V, samples, tally);
    for (int at = 0; at + 2 < LOOP_TEXT; at++)
        tally_compare(law->three[at], seen->three[at], V * V * V, samples, tally);
}

/* Decodes some texts of one seed. -1: settings rejected, or failed. */
static inline int loop_block(struct loop_run *run, const struct loop_rig *rig, int texts, uint64_t seed, struct loop_seen *seen)
{
    const struct decode_settings settings = loop_settings(run->cell, run->world, seed);
    const struct decoder_setup setup = {.engine = rig->engine, .settings = &settings};
    const struct decode_sink sink = {.context = run, .iteration = loop_see};
    const bool coupled = !strcmp(run->cell->accept, "coupled") || !(run->cell->temperature > 0);
    struct err *err = &run->out->err;
    struct decoder *decoder = NULL;
    int rc = -1;
    if (run->cell->policy && !strncmp(run->cell->policy, "oracle", 6))
        loop_record(run->cell, run->world, rig, texts, seed);
    if (decoder_open(&decoder, &setup, err) || (run->cell->twist && run->cell->twist(decoder)))
        goto done;
    loop_clock_set(decoder);
    for (int text = 0; text < texts; text++) {
        const struct decode_prompt prompt = {.token = loop_prompt, .tokens = LOOP_PROMPT, .sample = text, .sequence = text};
        struct decode_result result;
        run->tokens = run->code = 0;
        if (decoder_run(decoder, &prompt, &sink, &result, err))
            goto done;
        loop_count(seen, result.token);
        run->out->tally.other += coupled && run->code != loop_alone(run->world, &run->law->filter, *decoder_draw(decoder));
    }
    rc = 0;
done:
    decoder_close(&decoder);
    return rc;
}

static inline int loop_run(const struct loop_cell *cell, const struct loop_world *world, const struct loop_law *law,
                           const struct loop_rig *rig, long samples, struct loop_tally *out)
{
    struct loop_seen *seen = calloc(1, sizeof *seen);
    struct cell *typical = calloc(1, sizeof *typical);
    struct loop_run run = {.cell = cell, .world = world, .law = law, .out = out};
    const bool is_typical = !strcmp(cell->accept, "typical") && cell->temperature > 0;
    int rc = 0;
    memset(out, 0, sizeof *out);
    typical->filter = law->filter;
    typical->epsilon = 0.09;
    typical->delta = 0.3;
    run.typical = is_typical ? typical : NULL;
    for (long done = 0; !rc && done < samples; done += LOOP_BLOCK) {
        int texts = samples - done < LOOP_BLOCK ? (int)(samples - done) : LOOP_BLOCK;
        rc = loop_block(&run, rig, texts, cell->seed + (uint64_t)(done / LOOP_BLOCK), seen);
    }
    if (!rc && !is_typical && cell->temperature > 0)
        loop_compare(law, seen, samples, &out->tally);
    free(typical);
    free(seen);
    return rc;
}

/* ---- the grid ---- */

static const char *const loop_rules[] = {"coupled", "rejection", "typical"};
static const char *const loop_drafts[] = {"model", "ngram:n=2", "ngram:n=2+model"};
static const char *const loop_trees[] = {NULL, "static", "dynamic:total=6,depth=3,topk=2"};
static const struct { double temperature; int filter; } loop_samplings[] = {
    {0.7, NO_FILTER}, {1.5, TOP_K}, {1, TOP_P}, {1.5, NO_FILTER}, {1.2, MIN_P}};
enum { LOOP_RULES = 3, LOOP_DRAFTS = 3, LOOP_TREES = 3, LOOP_SAMPLINGS = 5 };

/* All policies of the library (new ones are included automatically) with all rules, drafters and shapes. */
struct loop_point { int rule, policy, draft, tree; };

static inline int loop_points(void)
{
    int policies = 0;
    while (policy_classes[policies])
        policies++;
    return LOOP_RULES * policies * LOOP_DRAFTS * LOOP_TREES;
}

static inline struct loop_point loop_point(int number)
{
    return (struct loop_point){number % LOOP_RULES, number / LOOP_RULES / LOOP_DRAFTS / LOOP_TREES,
                               number / LOOP_RULES % LOOP_DRAFTS, number / LOOP_RULES / LOOP_DRAFTS % LOOP_TREES};
}

static inline void loop_cell(struct loop_cell *out, const struct loop_point *point, int sampling,
                             const struct loop_world *world, const struct loop_rig *rig, char *room, size_t bytes)
{
    *out = (struct loop_cell){
        .accept = loop_rules[point->rule], .draft = loop_drafts[point->draft], .tree = loop_trees[point->tree],
        .policy = loop_policy(policy_classes[point->policy], world, rig, room, bytes), .seed = 1000,
        .temperature = loop_samplings[sampling].temperature, .filter = loop_samplings[sampling].filter};
    const struct policy_class *class = policy_classes[point->policy];
    if ((class == &policy_vertical || class == &policy_cs_drafting) && strchr(out->draft, '+'))
        out->draft = "model+ngram:n=2";         /* the reviewer comes first */
}

static inline bool loop_sees(const struct loop_tally *tally) { return grid_sees(&tally->tally); }

/* Returns whether the policy may drop nodes: reviews drop nodes of other drafters, and SWIFT's tree drops leaves beyond the
 * fifth, of which models this small have few. */
static inline bool loop_can_drop(const struct policy_class *class, const struct loop_cell *cell)
{
    return class == &policy_vertical || class == &policy_cs_drafting ? strchr(cell->draft, '+') != NULL
         : class != &policy_tr;
}

/* Returns what is wrong with a cell that ran, NULL: nothing. Settings may be rejected only if the tree is not valid for the
 * policy. */
static inline const char *loop_fault(const struct loop_cell *cell, int rc, const struct loop_tally *tally, char *room,
                                     size_t bytes)
{
    const struct policy_class *class = policy_find(cell->policy, DRAFT_LENGTH_NONE);
    int used = snprintf(room, bytes, "%s, %s, %s, %s, T %g, %s: ", cell->accept, cell->policy, cell->draft,
                        cell->tree ? cell->tree : "chain", cell->temperature, grid_filter_names[cell->filter]);
    room += used;
    bytes -= (size_t)used;
    if (rc && cell->tree && strstr(tally->err.text, "leave --tree out"))
        return NULL;
    const struct err notes = tally->err;                        /* a copy: room may be part of the object that contains the
                                                                 * tally */
    if (rc)
        snprintf(room, bytes, "%s", notes.text);
    else if (loop_sees(tally))
        snprintf(room, bytes, "z %.2f, %ld impossible, %ld other than they must be", tally->tally.z, tally->tally.impossible,
                 tally->tally.other);
    else if (!tally->verified || (class->drops && loop_can_drop(class, cell) && tally->verified == tally->drafted))
        snprintf(room, bytes, "tests nothing: %ld tokens drafted, %ld verified", tally->drafted, tally->verified);
    else
        return NULL;
    return room - used;
}

#endif

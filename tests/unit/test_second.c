/* Experts divided between a device and the host's processor: which computes what, that both work at the same time, and that
 * sums equal those of one processor. */
#include "tests/unit/rig.h"

#include <sys/mman.h>

#include "common/bench/simulated_cache.h"
#include "common/cache/split.h"
#include "common/engine/second.h"
#include "common/tensor/device_class.h"

enum { TREE = 12, PROMPT = 9, TREES = 3 };

/* ---- decisions */

static void a_rule_says_whose_an_expert_is(void **state)
{
    static const struct { const char *rule; int layer; const char *device; } cases[] = {
        {"static", 0, "0123"}, {"static", 2, "0123"}, {"static:share=25", 1, "01"}, {"static:share=0", 0, ""},
        {"static:share=100", 0, "01234567"}, {"static:by=layers", 0, ""}, {"static:by=layers", 1, ""},
        {"static:by=layers", 2, "01234567"}, {"resident", 0, "1357"}, {"level", 0, "234567"}, {"level:tau=4", 0, "4567"},
        {"balance", 0, "1357"}, {"none", 0, "01234567"}};
    struct err err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct split_setup setup = {.layers = 3, .experts = 8, .top_k = 2, .all_layers = 4, .slots = 14, .draft_length = 8,
                                    .K = 4, .expert_bytes = 1};
        struct split split;
        int32_t expert[8], tokens[8];
        bool there[8];
        const struct { int64_t other; int32_t level; } levels[8] = {{9, 0}, {9, 1}, {9, 2}, {9, 3}, {9, 4}, {9, 4}, {9, 4},
                                                                    {9, 4}};
        char device[9] = "", rest[9] = "";
        must(split_rule_read(&setup.rule, cases[i].rule, &err), &err);
        must(split_open(&split, &setup, &err), &err);
        for (int e = 0; e < 8; e++) {
            expert[e] = e;
            tokens[e] = 10 * e;
            there[e] = e % 2;
        }
        const int count = split_choose(&split, cases[i].layer, expert, tokens, there, 8, &levels[0].level, sizeof *levels);
        for (int at = 0; at < 8; at++) {
            char *name = at < count ? device : rest;
            snprintf(name + strlen(name), 3, "%d", (int)expert[at]);
            assert_int_equal(tokens[at], 10 * expert[at]);
            assert_int_equal(there[at], expert[at] % 2);
        }
        assert_string_equal(device, cases[i].device);
        assert_int_equal(strlen(device) + strlen(rest), 8);
        for (size_t at = 1; at < strlen(rest); at++)
            assert_true(rest[at - 1] < rest[at]);
        split_close(&split);
    }
}

static void rules_that_make_no_sense_are_refused(void **state)
{
    static const struct { const char *rule, *why; int K, slots; } cases[] = {
        {"half", "'half' is not a way to split experts; there are none, static, resident, level and balance", 4, 9},
        {"level:tau=5", "level: tau=5: exceeds the highest level, 4; give at most that", 4, 9},
        {"balance", "balance: this rule needs the utility levels of a cache; add --cache-experts and --cache-policy utility",
         0, 9},
        {"static", "static: the device has room for all 24 experts, so no split is needed; give share=PERCENT", 4, 24},
        {"resident:tau=2", "resident: ", 4, 9}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct split_setup setup = {.layers = 3, .experts = 8, .slots = cases[i].slots, .K = cases[i].K};
        struct split split = {0};
        struct err err = {0};
        assert_true(split_rule_read(&setup.rule, cases[i].rule, &err) || split_open(&split, &setup, &err));
        if (strncmp(err.text, cases[i].why, strlen(cases[i].why)))
            fail_msg("%s", err.text);
        split_close(&split);
    }
}

/* ---- forwards */

struct two {
    struct rig rig;
    struct second *second;
};

static const char *moe_file(enum weight_format format, struct hparams *shape, uint64_t seed)
{
    static char path[64];
    struct err err = {0};
    snprintf(path, sizeof path, "/tmp/moe-test-second-%d.moe", (int)getpid());
    do {
        struct chance chance = {seed++};
        *shape = tiny_shape(&chance);
    } while (hparams_moe_layers(shape) < 2 || shape->router.top_k < 2 || shape->router.experts < 6);
    must(tiny_write(path, shape, format, seed, &err), &err);
    return path;
}

/* rule NULL: one processor; cache NULL: the device has all experts. */
static void two_open(struct two *two, const char *path, const char *device, const struct expert_cache *cache, const char *rule)
{
    two->second = NULL;
    rig_open(&two->rig, path, device);
    struct err *err = &two->rig.err;
    if (cache) {
        expert_source_close(&two->rig.experts);
        model_close(&two->rig.model);
        must(model_open_dense(&two->rig.model, path, err), err);
        must(expert_source_cached(&two->rig.experts, two->rig.model, two->rig.device, cache, err), err);
    }
    struct second_setup setup = {.model = two->rig.model, .device = two->rig.device, .experts = two->rig.experts,
                                 .draft_length = 8, .host = {.threads = 1}};
    if (rule) {
        must(split_rule_read(&setup.rule, rule, err), err);
        must(second_open(&two->second, &setup, err), err);
    }
    rig_engine(&two->rig, (struct engine_setup){.max_rows = 16, .max_logit_rows = 16, .second = two->second}, RIG_TOKENS);
}

static void two_close(struct two *two)
{
    sequence_close(&two->rig.sequence);
    engine_close(&two->rig.engine);
    second_close(&two->second);
    rig_close(&two->rig);
}

/* Counts the experts of each processor, by layer, over all trees, and each tree's waits for the device. */
struct shares {
    int device[LAYERS_MAX], host[LAYERS_MAX];
    int waits[TREES];
};

static const struct device_class *counted;
static int wait_count;

static int count_wait(struct device *device, struct err *err)
{
    wait_count++;
    return counted->wait(device, err);
}

static void add_shares(struct shares *shares, struct second *second)
{
    const struct second_facts *facts = second_facts(second);
    for (int n = 0; n < facts->layers; n++) {
        shares->device[n] += facts->device_experts[n];
        shares->host[n] += facts->host_experts[n];
    }
}

/* Decodes a prompt and then trees, of which the newest row's path is kept. got: logits of all their rows. */
static void decode(struct two *two, float *got, struct shares *shares)
{
    struct rig *rig = &two->rig;
    const int vocab = engine_hparams(rig->engine)->vocab;
    struct forward out;
    must(engine_prompt(rig->engine, rig->sequence, rig->token, PROMPT, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    for (int i = 0; i < TREES; i++) {
        int32_t parent[TREE], path[TREE], count = 0;
        for (int row = 0; row < TREE; row++)
            parent[row] = row ? (row - 1) / 2 : -1;
        const struct batch batch = {.rows = TREE, .token = rig->token + PROMPT + i * TREE, .parent = parent,
                                    .logit_rows = TREE};
        wait_count = 0;
        must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
        if (shares)
            shares->waits[i] = wait_count;
        memcpy(got + (size_t)i * TREE * (size_t)vocab, out.logits, (size_t)TREE * (size_t)vocab * sizeof *got);
        for (int row = 0; row < TREE; row = 2 * row + 1)
            path[count++] = row;
        must(sequence_commit(rig->sequence, path, count, &rig->err), &rig->err);
        if (shares)
            add_shares(shares, two->second);
    }
}

static size_t floats(const struct hparams *shape) { return (size_t)TREES * TREE * (size_t)shape->vocab; }

static bool has(const char *device)
{
    struct device *opened = NULL;
    const bool there = !device_open(&opened, &(struct device_setup){.name = device}, NULL);
    device_close(&opened);
    return there;
}

/* q8 has the same bits on all devices, f32 on the emulator and the host. */
static void two_processors_make_the_sums_of_one(void **state)
{
    static const char *const devices[] = {"ref", "emu", "emu:1"};
    static const enum weight_format formats[] = {FORMAT_F32, FORMAT_Q8, FORMAT_BF16};
    static const char *const rules[] = {"static:share=100", "static:share=0", "static:share=50", "static:share=60,by=layers"};
    (void)state;
    for (int i = 0; i < 9; i++) {
        struct hparams shape;
        struct two two;
        const char *device = i % 3 ? devices[i % 3] : device_name(devices[0]);
        if (!has(device) || (unit_brief() && i % 3 != i / 3))
            continue;
        const char *path = moe_file(formats[i / 3], &shape, 7);
        float *want = calloc(floats(&shape), sizeof *want), *got = calloc(floats(&shape), sizeof *got);
        two_open(&two, path, device, NULL, NULL);
        decode(&two, want, NULL);
        two_close(&two);
        for (int r = 0; r < 4; r++) {
            two_open(&two, path, device, NULL, rules[r]);
            decode(&two, got, NULL);
            two_close(&two);
            if (!r || formats[i / 3] == FORMAT_Q8 || (formats[i / 3] == FORMAT_F32 && i % 3))
                assert_memory_equal(want, got, floats(&shape) * sizeof *got);
            for (size_t at = 0; at < floats(&shape); at++)
                assert_true(fabsf(got[at] - want[at]) < 2e-5f);
        }
        free(want);
        free(got);
        unlink(path);
    }
}

/* With copies that end late, or early: however experts are divided, sums equal those of one processor. Decisions by levels
 * do not depend on the device; residency depends on when copies end, and the balancer's decisions on clocks. The long check
 * runs all cases on both devices. */
static void what_decides_live_shows_in_no_sum(void **state)
{
    static const struct { const char *rule, *policy; } cases[] = {
        {"level:tau=2", "utility"}, {"resident", "lru"}, {"balance:warm-up=2", "utility"}, {"balance:warm-up=3", "utility"},
        {"static", "lfu"}};
    struct hparams shape;
    struct two two;
    (void)state;
    if (!has("emu"))
        skip();
    const char *path = moe_file(FORMAT_Q8, &shape, 7);
    const int layers = hparams_moe_layers(&shape), all = layers * shape.router.experts;
    float *want = calloc(floats(&shape), sizeof *want), *got = calloc(floats(&shape), sizeof *got);
    two_open(&two, path, "emu", NULL, NULL);
    decode(&two, want, NULL);
    two_close(&two);
    for (int i = 0; i < 10; i++) {
        const struct expert_cache cache = {.slots = i / 2 == 3 ? all * 3 / 4 : all / 2, .host_slots = i % 3 ? all * 2 / 3 : all,
                                           .policy = cases[i / 2].policy, .draft_length = 4};
        struct shares shares = {{0}}, by_ref = {{0}};
        int device = 0, host = 0, timed = 0;
        if (!getenv("MOE_LONG") && i % 2 != i / 2 % 2)
            continue;
        two_open(&two, path, i % 2 ? "emu:1" : "emu", &cache, cases[i / 2].rule);
        counted = two.rig.device->class;
        struct device_class counts = *counted;
        counts.wait = count_wait;
        two.rig.device->class = &counts;
        decode(&two, got, &shares);
        two.rig.device->class = counted;
        two_close(&two);
        assert_memory_equal(want, got, floats(&shape) * sizeof *got);
        for (int n = 0; n < layers; n++) {
            device += shares.device[n];
            host += shares.host[n];
        }
        if (!device || !host)
            fail_msg("%s: %d experts of the device, %d of the host", cases[i / 2].rule, device, host);
        /* The device may wait once more for a layer while the balancer warms up, to time the layer, if none of its experts
         * was being copied. */
        for (int tree = 0; tree < TREES; tree++) {
            const bool times = i / 2 >= 2 && i / 2 <= 3 && tree < i / 2;
            assert_true(shares.waits[tree] >= layers + 1 && shares.waits[tree] <= (times ? 2 : 1) * layers + 1);
            timed += shares.waits[tree] - layers - 1;
        }
        assert_int_equal(timed > 0, i / 2 == 2 || i / 2 == 3);
        if (i)
            continue;
        two_open(&two, path, "ref", &cache, cases[0].rule);
        decode(&two, got, &by_ref);
        two_close(&two);
        assert_memory_equal(&shares, &by_ref, offsetof(struct shares, waits));
    }
    free(want);
    free(got);
    unlink(path);
}

/* Compares rows of trees with the same tokens one by one. */
static void a_static_split_gives_a_token_the_same_bits_in_any_company(void **state)
{
    static const int32_t parent[] = {-1, 0, 0, 1, 1, 2};
    struct hparams shape;
    struct two two;
    struct forward out;
    (void)state;
    const char *path = moe_file(FORMAT_BF16, &shape, 3);
    const size_t vocab = (size_t)shape.vocab;
    float *want = calloc(6 * vocab, sizeof *want);
    two_open(&two, path, has("emu") ? "emu" : "ref", NULL, "static:share=40");
    struct rig *rig = &two.rig;
    must(engine_prompt(rig->engine, rig->sequence, rig->token, PROMPT, NULL, NULL, NULL, &out, &rig->err), &rig->err);
    const struct batch tree = {.rows = 6, .token = rig->token + 20, .parent = parent, .logit_rows = 6};
    must(engine_forward(rig->engine, rig->sequence, &tree, &out, &rig->err), &rig->err);
    memcpy(want, out.logits, 6 * vocab * sizeof *want);
    sequence_rollback(rig->sequence);
    for (int row = 0; row < 6; row++) {
        const struct batch one = {.rows = 1, .token = tree.token + row, .parent = parent + row, .logit_rows = 1};
        must(engine_forward(rig->engine, rig->sequence, &one, &out, &rig->err), &rig->err);
        assert_memory_equal(out.logits, want + (size_t)row * vocab, vocab * sizeof *want);
    }
    free(want);
    two_close(&two);
    unlink(path);
}

/* ---- live and simulated ---- */

enum { LIVE_TEXTS = 2, LIVE_TREES = 9, LIVE_STEPS = LIVE_TEXTS * (1 + LIVE_TREES), LIVE_LAYERS = 16, LIVE_EXPERTS = 64 };

/* State of a live run after each forward. */
struct live {
    struct simulated_routes routes;
    struct simulated_step step[LIVE_STEPS];
    int32_t tau[LIVE_STEPS * LIVE_LAYERS];      /* [verifications][layers] */
    size_t verifications;
    struct store_facts facts[LIVE_STEPS];
    int32_t key[LIVE_STEPS][LIVE_LAYERS * LIVE_EXPERTS];        /* of each slot */
    int32_t device[LIVE_STEPS][LIVE_LAYERS], cold[LIVE_STEPS][LIVE_LAYERS], fetches[LIVE_STEPS][LIVE_LAYERS * 8];
    int K, slots;
};

static void record(struct live *live, const struct two *two, const struct forward *out, int text, bool prompt)
{
    const size_t at = live->routes.steps++, width = (size_t)out->moe_layers * (size_t)out->top_k;
    const struct cache *cache = expert_source_cache(two->rig.experts);
    struct simulated_routes *routes = &live->routes;
    live->step[at] = (struct simulated_step){.text = text, .tokens = out->rows, .prompt = prompt, .first = routes->selections};
    routes->expert = realloc(routes->expert, (routes->selections + (size_t)out->rows * width) * sizeof *routes->expert);
    for (size_t i = 0; i < (size_t)out->rows * width; i++)
        routes->expert[routes->selections++] = (int16_t)out->expert[i];
    expert_source_facts(two->rig.experts, &live->facts[at]);
    live->slots = cache_slots(cache);
    for (int slot = 0; slot < live->slots; slot++)
        live->key[at][slot] = cache_key(cache, slot);
    if (prompt)
        return;
    const struct second_facts *facts = second_facts(two->second);
    live->K = facts->K;
    assert_true(facts->layers <= LIVE_LAYERS && facts->K < 8);
    for (int n = 0; n < facts->layers; n++) {
        live->tau[live->verifications * (size_t)facts->layers + (size_t)n] = facts->tau[n];
        live->device[at][n] = facts->device_experts[n];
        live->cold[at][n] = facts->cold[n];
    }
    memcpy(live->fetches[at], facts->fetches, (size_t)(facts->layers * (facts->K + 1)) * sizeof(int32_t));
    live->verifications++;
}

/* Runs texts, each a prompt and trees, of which the newest row's path is committed. */
static void run_live(struct live *live, struct two *two)
{
    struct rig *rig = &two->rig;
    struct chance chance = {9};
    for (int text = 0; text < LIVE_TEXTS; text++) {
        struct forward out;
        int32_t token[TREE], parent[TREE], path[TREE];
        sequence_close(&rig->sequence);
        must(sequence_open(&rig->sequence, rig->engine, PROMPT + LIVE_TREES * TREE, &rig->err), &rig->err);
        must(engine_prompt(rig->engine, rig->sequence, rig->token + 3 * text, PROMPT, NULL, NULL, NULL, &out, &rig->err),
             &rig->err);
        assert_int_equal(out.rows, PROMPT);
        record(live, two, &out, text, true);
        for (int i = 0; i < LIVE_TREES; i++) {
            const int rows = chance_range(&chance, 1, TREE);
            int count = 0;
            for (int row = 0; row < rows; row++) {
                token[row] = rig->token[chance_range(&chance, 0, RIG_TOKENS - 1)];
                parent[row] = row ? (row - 1) / 2 : -1;
            }
            const struct batch batch = {.rows = rows, .token = token, .parent = parent, .logit_rows = 1};
            must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
            record(live, two, &out, text, false);
            for (int row = 0; row < rows; row = 2 * row + 1)
                path[count++] = row;
            must(sequence_commit(rig->sequence, path, count, &rig->err), &rig->err);
        }
    }
}

static int64_t bytes_of_one(const struct rig *rig, const struct hparams *shape)
{
    struct err err = {0};
    int layer = 0;
    while (shape->layer[layer].ffn != FFN_EXPERTS)
        layer++;
    return (int64_t)model_tensor(rig->model, &err, "layers.%d.experts", layer)->stride;
}

static void compare_step(const struct live *live, size_t at, const struct simulated_replay *replay, int64_t bytes)
{
    const struct schedule *store = simulated_replay_store(replay);
    const struct simulated_split *split = simulated_replay_split(replay);
    const struct store_facts *was = &live->facts[at], is = schedule_facts(store);
    for (int slot = 0; slot < live->slots; slot++)
        if (cache_key(store->cache, slot) != live->key[at][slot])
            fail_msg("forward %zu, slot %d: expert %d live, %d simulated", at, slot, (int)live->key[at][slot],
                     cache_key(store->cache, slot));
    assert_true(was->hits == is.hits && was->misses == is.misses && was->host_hits == is.host_hits);
    assert_true(was->bytes == bytes * is.bytes && was->prefetched == bytes * is.prefetched && was->wasted == bytes * is.wasted);
    assert_true(was->copied == bytes * is.copied && was->copied_early == bytes * is.copied_early &&
                was->copied_wasted == bytes * is.copied_wasted);
    if (live->step[at].prompt)
        return;
    for (int n = 0; n < live->routes.layers; n++)
        assert_true(live->device[at][n] == split->device_experts[n] && live->cold[at][n] == split->cold[n]);
    assert_memory_equal(live->fetches[at], split->fetches, (size_t)(live->routes.layers * (live->K + 1)) * sizeof(int32_t));
}

/* With the recorded thresholds, the simulator repeats a live run of MoE-SpAc's balancer: after every forward each slot has the
 * same expert, and the counts of hits, reads, copies and evictions are equal. */
static void a_live_run_is_simulated_exactly(void **state)
{
    static const struct { const char *policy; int slots, host; } cases[] = {     /* slots: in thirds of all experts */
        {"utility", 1, 3}, {"utility-released:K=7", 1, 2}, {"utility-real", 2, 3}};
    struct hparams shape;
    (void)state;
    const char *path = moe_file(FORMAT_Q8, &shape, 7);
    const int layers = hparams_moe_layers(&shape), all = layers * shape.router.experts;
    assert_true(layers <= LIVE_LAYERS && shape.router.experts <= LIVE_EXPERTS);
    int64_t early = 0, evicted = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expert_cache cache = {.slots = cases[i].slots * all / 3, .host_slots = cases[i].host * all / 3,
                                           .policy = cases[i].policy, .draft_length = 8, .at_once = true};
        struct live *live = calloc(1, sizeof *live);
        struct simulated_replay *replay = NULL;
        struct two two;
        struct err err = {0};
        two_open(&two, path, "ref", &cache, "balance:warm-up=3");
        live->routes = (struct simulated_routes){.layers = layers, .experts = shape.router.experts,
                                                 .top_k = shape.router.top_k, .step = live->step};
        run_live(live, &two);
        const int64_t bytes = bytes_of_one(&two.rig, &shape);
        two_close(&two);
        const struct simulated_caching caching = {
            .routes = &live->routes, .slots = (int)cache.slots, .host_slots = (int)cache.host_slots, .draft_length = 8,
            .tau = live->tau, .verifications = live->verifications};
        must(simulated_replay_open(&replay, &caching, cases[i].policy, &err), &err);
        for (size_t at = 0; at + 1 < live->routes.steps; at++) {        /* the last new thresholds are not recorded */
            must(simulated_replay_step(replay, at, &err), &err);
            compare_step(live, at, replay, bytes);
        }
        early += live->facts[LIVE_STEPS - 2].copied_early;
        evicted += live->facts[LIVE_STEPS - 2].copied_wasted;
        simulated_replay_close(&replay);
        free(live->routes.expert);
        free(live);
    }
    assert_true(early > 0 && evicted > 0);
    unlink(path);
}

/* ---- the order of calls in a layer, as source and device see them ---- */

static struct {
    struct expert_source base;
    struct expert_source *inner;
    const struct device_class *device;
    char log[256];
    int fails;                           /* index of the acquire that fails; 0: none */
    char *copy;                          /* copy of the expert with which the host computes */
    size_t bytes;
} seen;

static void note(char what)
{
    const size_t length = strlen(seen.log);
    if (length + 1 < sizeof seen.log)
        seen.log[length] = what;
}

static void see_begin(struct expert_source *source, int tokens, enum expert_forward forward, bool text)
{
    (void)source, (void)tokens, (void)forward, (void)text;
    note('b');
}

static int see_want(struct expert_source *source, const struct expert_union *wanted, enum expert_tier *tier, struct err *err)
{
    (void)source, (void)err;
    note('w');
    for (int i = 0; i < wanted->count; i++)
        tier[i] = EXPERT_ON_DEVICE;
    return 0;
}

static int see_acquire(struct expert_source *source, struct expert_union *wanted, struct buffer *table, struct err *err)
{
    (void)source;
    note('d');
    assert_true(wanted->part);
    if (seen.fails && --seen.fails == 0)
        return err_set(err, ERR_INPUT, "no more");
    return seen.inner->class->acquire(seen.inner, wanted, table, err);
}

static void see_release(struct expert_source *source, struct expert_union *wanted)
{
    (void)source;
    note('r');
    seen.inner->class->release(seen.inner, wanted);
}

/* Acquires one expert at a time, so that there are several pieces; released memory becomes unreadable. */
static int see_acquire_host(struct expert_source *source, struct expert_union *wanted, const void **address, struct err *err)
{
    (void)source;
    note('h');
    if (seen.inner->class->acquire_host(seen.inner, wanted, address, err))
        return -1;
    wanted->held = 1;
    mprotect(seen.copy, seen.bytes, PROT_READ | PROT_WRITE);
    address[wanted->done] = memcpy(seen.copy, address[wanted->done], seen.bytes);
    return 0;
}

static void see_release_host(struct expert_source *source, struct expert_union *wanted)
{
    (void)source;
    note('e');
    mprotect(seen.copy, seen.bytes, PROT_NONE);
    wanted->done += wanted->held;
    wanted->held = 0;
}

static int see_wait(struct device *device, struct err *err)
{
    note('q');
    return seen.device->wait(device, err);
}

static void both_compute_at_the_same_time(void **state)
{
    static const struct expert_source_class class = {
        .name = "seen", .begin = see_begin, .want = see_want, .acquire = see_acquire, .release = see_release,
        .acquire_host = see_acquire_host, .release_host = see_release_host};
    struct hparams shape;
    struct two two;
    struct err err = {0};
    struct forward out;
    (void)state;
    const char *path = moe_file(FORMAT_Q8, &shape, 11);
    const size_t vocab = (size_t)shape.vocab;
    float *want = calloc(vocab, sizeof *want);
    two_open(&two, path, has("emu:1") ? "emu:1" : "ref", NULL, NULL);
    struct rig *rig = &two.rig;
    const struct batch batch = {.rows = 12, .token = rig->token, .logit_rows = 1};
    must(engine_forward(rig->engine, rig->sequence, &batch, &out, &rig->err), &rig->err);
    memcpy(want, out.logits, vocab * sizeof *want);
    memset(&seen, 0, sizeof seen);
    seen.base.class = &class;
    seen.inner = rig->experts;
    rig->experts = &seen.base;
    seen.device = rig->device->class;
    for (int n = 0; n < shape.layers && !seen.bytes; n++)
        if (shape.layer[n].ffn == FFN_EXPERTS)
            seen.bytes = model_tensor(rig->model, &err, "layers.%d.experts", n)->stride;
    seen.copy = mmap(NULL, seen.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(seen.copy != MAP_FAILED);
    struct device_class waits = *seen.device;
    waits.wait = see_wait;
    rig->device->class = &waits;
    const struct second_setup setup = {.model = rig->model, .device = rig->device, .experts = rig->experts,
                                       .rule = {.kind = SPLIT_STATIC, .share = 0.5}, .host = {.threads = 2}};
    must(second_open(&two.second, &setup, &err), &err);
    rig_engine(rig, (struct engine_setup){.max_rows = 16, .max_logit_rows = 16, .second = two.second}, RIG_TOKENS);
    for (int fails = 1; fails >= 0; fails--) {
        memset(seen.log, 0, sizeof seen.log);
        seen.fails = 2 * fails;                 /* in the second layer, while the host computes its part */
        assert_int_equal(engine_forward(rig->engine, rig->sequence, &batch, &out, &err), -fails);
        sequence_rollback(rig->sequence);
        if (fails && strcmp(strrchr(seen.log, 'q'), "qwhde"))       /* the host has finished the piece it had begun */
            fail_msg("%s", seen.log);
    }
    assert_memory_equal(out.logits, want, vocab * sizeof *want);
    /* The forward waits for routes; the host begins; the device's part is queued; the host continues. There is no other wait
     * before the next layer's routes. */
    const char *at = seen.log + 1;
    assert_true(seen.log[0] == 'b');
    for (int layer = 0; layer < hparams_moe_layers(&shape); layer++) {
        if (strncmp(at, "qwhdreh", 7))
            fail_msg("layer %d of %s", layer, seen.log);
        for (at += 6; at[0] == 'h' && at[1] == 'e'; at += 2)
            continue;
    }
    assert_string_equal(at, "q");
    free(want);
    munmap(seen.copy, seen.bytes);
    rig->experts = seen.inner;
    rig->device->class = seen.device;
    two_close(&two);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_says_whose_an_expert_is),
        cmocka_unit_test(rules_that_make_no_sense_are_refused),
        cmocka_unit_test(two_processors_make_the_sums_of_one),
        cmocka_unit_test(what_decides_live_shows_in_no_sum),
        cmocka_unit_test(a_static_split_gives_a_token_the_same_bits_in_any_company),
        cmocka_unit_test(a_live_run_is_simulated_exactly),
        cmocka_unit_test(both_compute_at_the_same_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

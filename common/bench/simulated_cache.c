#include "common/bench/simulated_cache.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/simulate.h"
#include "common/cache/split.h"
#include "common/cache/utility.h"
#include "common/report/table.h"
#include "common/stream/decode.h"
#include "common/stream/reader.h"

/* A link on which reads and copies take no time and complete in the order of their start. */
struct instant {
    int *read;                          /* [slots + host_slots + 1] ring of slots whose reads have completed */
    int room, first, reads;
    struct { int from, slot; } copy[SCHEDULE_COPIES];   /* a ring */
    int oldest, copies;
    int *coming;                        /* [slots] copies to the slot that were not collected yet */
};

static bool is_full(const void *context)
{
    (void)context;
    return false;
}

static int start_read(void *context, int tag, int key, struct err *err)
{
    struct instant *link = context;
    (void)key, (void)err;
    link->read[(link->first + link->reads++) % link->room] = tag;
    return 0;
}

static int next_read(void *context, bool wait, int *tag, struct err *err)
{
    struct instant *link = context;
    (void)wait, (void)err;
    *tag = link->reads ? link->read[link->first] : -1;
    if (!link->reads)
        return 0;
    link->first = (link->first + 1) % link->room;
    link->reads--;
    return 1;
}

static double now(const void *context)
{
    (void)context;
    return 0;
}

static int copies(const void *context) { return ((const struct instant *)context)->copies; }

static void copy(void *context, int from, int slot, int key)
{
    struct instant *link = context;
    const int number = (link->oldest + link->copies++) % SCHEDULE_COPIES;
    (void)key;
    link->copy[number].from = from;
    link->copy[number].slot = slot;
    link->coming[slot]++;
}

static int next_copy(void *context, bool wait, int *from, struct err *err)
{
    struct instant *link = context;
    (void)wait, (void)err;
    if (!link->copies)
        return 0;
    *from = link->copy[link->oldest].from;
    link->coming[link->copy[link->oldest].slot]--;
    link->oldest = (link->oldest + 1) % SCHEDULE_COPIES;
    link->copies--;
    return 1;
}

static bool has(const void *context, int slot) { return !((const struct instant *)context)->coming[slot]; }

static const struct transfers instant_transfers = {.full = is_full, .start = start_read, .next = next_read, .now = now,
                                                   .copies = copies, .copy = copy, .next_copy = next_copy, .has = has};

struct simulated_replay {
    const struct simulated_caching *caching;
    const char *policy;
    struct schedule store;
    struct instant link;
    int32_t *keys;                      /* future keys, for a policy that needs them */
    int32_t *expert, *tokens, *often, *mine, *its;      /* [experts] mine, its: the host's experts, and tokens of each */
    enum expert_tier *tier;             /* [experts] */
    bool *there;                        /* [experts] */
    size_t *bytes;                      /* [layers] all 1: bytes then count experts */
    const struct utility_expert *states;        /* NULL: the policy has no levels */
    int K;
    struct simulated_split split;       /* split of the last verification */
    size_t verifications;
};

void simulated_replay_close(struct simulated_replay **replay)
{
    struct simulated_replay *r = *replay;
    if (!r)
        return;
    schedule_free(&r->store);
    cache_close(&r->store.cache);
    cache_close(&r->store.host);
    mem_free(&r->link.read);
    mem_free(&r->link.coming);
    mem_free(&r->keys);
    mem_free(&r->expert);
    mem_free(&r->tokens);
    mem_free(&r->often);
    mem_free(&r->mine);
    mem_free(&r->its);
    mem_free(&r->tier);
    mem_free(&r->there);
    mem_free(&r->bytes);
    mem_free(&r->split.device_experts);
    mem_free(&r->split.cold);
    mem_free(&r->split.fetches);
    mem_free(replay);
}

static int open_caches(struct simulated_replay *r, struct err *err)
{
    const struct simulated_caching *caching = r->caching;
    const struct simulated_routes *routes = caching->routes;
    const struct cache_policy_class *class = cache_policy_find(r->policy);
    struct cache_future future = {0};
    struct cache_setup setup = {.layers = routes->layers, .experts = routes->experts, .slots = caching->slots,
                                .top_k = routes->top_k, .draft_length = caching->draft_length};
    if (class && class->replays) {
        if (simulate_future(routes, &future, &r->keys, err))
            return -1;
        setup.future = &future;
    }
    if (cache_open(&r->store.cache, r->policy, &setup, err))
        return -1;
    setup.slots = caching->host_slots;
    if (caching->host_slots && cache_open(&r->store.host, r->policy, &setup, err))
        return -1;
    r->states = cache_utility_states(r->store.cache, &r->K);
    return caching->tau && !r->states
               ? err_set(err, ERR_INPUT, "--split: the cache policy %s has no utility levels; choose utility", r->policy) : 0;
}

static int make_room(struct simulated_replay *r, struct err *err)
{
    const size_t experts = (size_t)r->caching->routes->experts, layers = (size_t)r->caching->routes->layers;
    r->link.room = cache_slots(r->store.cache) + (r->store.host ? cache_slots(r->store.host) : 0) + 1;
    return (r->link.read = mem_alloc((size_t)r->link.room, sizeof *r->link.read, err)) &&
           (r->link.coming = mem_alloc((size_t)r->link.room, sizeof *r->link.coming, err)) &&
           (r->expert = mem_alloc(experts, sizeof *r->expert, err)) &&
           (r->tokens = mem_alloc(experts, sizeof *r->tokens, err)) &&
           (r->often = mem_alloc(experts, sizeof *r->often, err)) && (r->mine = mem_alloc(experts, sizeof *r->mine, err)) &&
           (r->its = mem_alloc(experts, sizeof *r->its, err)) && (r->tier = mem_alloc(experts, sizeof *r->tier, err)) &&
           (r->there = mem_alloc(experts, sizeof *r->there, err)) && (r->bytes = mem_alloc(layers, sizeof *r->bytes, err)) &&
           (r->split.device_experts = mem_alloc(layers, sizeof *r->split.device_experts, err)) &&
           (r->split.cold = mem_alloc(layers, sizeof *r->split.cold, err)) &&
           (r->split.fetches = mem_alloc(layers * (size_t)(r->K + 1), sizeof *r->split.fetches, err)) ? 0 : -1;
}

int simulated_replay_open(struct simulated_replay **out, const struct simulated_caching *caching, const char *policy,
                          struct err *err)
{
    const struct simulated_routes *routes = caching->routes;
    struct simulated_replay *r = mem_alloc(1, sizeof *r, err);
    if (!r)
        return -1;
    r->caching = caching;
    r->policy = policy;
    r->store = (struct schedule){.transfers = &instant_transfers, .context = &r->link, .layers = routes->layers,
                                 .experts = routes->experts, .prefetches_max = caching->tau ? SCHEDULE_PREFETCHES : 0};
    if (open_caches(r, err) || make_room(r, err))
        goto failed;
    for (int layer = 0; layer < routes->layers; layer++)
        r->bytes[layer] = 1;
    r->store.bytes = r->bytes;
    r->store.slots = cache_slots(r->store.cache);
    r->store.host_slots = r->store.host ? cache_slots(r->store.host) : 0;
    r->store.tier = r->store.host;
    r->split.levels = r->K + 1;
    if (schedule_open(&r->store, err) || schedule_first(&r->store, err))
        goto failed;
    *out = r;
    return 0;
failed:
    simulated_replay_close(&r);
    return -1;
}

/* Computes a layer's experts piece by piece. */
static int run_pieces(struct simulated_replay *r, int layer, struct expert_union *wanted, struct err *err)
{
    while (wanted->done < wanted->count) {
        if (schedule_acquire(&r->store, layer, wanted, err))
            return -1;
        schedule_release(&r->store, wanted);
    }
    return 0;
}

static int next_host_piece(struct simulated_replay *r, int layer, struct expert_union *mine, struct err *err)
{
    return mine->done < mine->count ? schedule_acquire_host(&r->store, layer, mine, err) : 0;
}

/* Runs a layer of a verification that device and host share (common/engine/second.c): the device computes the experts in its
 * slots. Then sets the layer's threshold of the next verification. */
static int run_split(struct simulated_replay *r, int layer, struct expert_union *wanted, struct err *err)
{
    const struct simulated_routes *routes = r->caching->routes;
    const struct split split = {.setup = {.rule = {.kind = SPLIT_BALANCE}}};
    struct expert_union mine = {.expert = r->mine, .tokens = r->its, .part = true};
    const int all = wanted->count;
    if (schedule_want(&r->store, layer, wanted, r->tier, err))
        return -1;
    for (int i = 0; i < all; i++)
        r->there[i] = r->tier[i] <= EXPERT_COMING;
    wanted->count = split_choose(&split, layer, wanted->expert, wanted->tokens, r->there, all, NULL, 0);
    wanted->part = true;
    r->split.device_experts[layer] = wanted->count;
    r->split.cold[layer] = balance_fetches(r->store.cache, r->states, r->K, layer, routes->experts, r->store.slots,
                                           r->split.fetches + layer * r->split.levels);
    if (r->verifications + 1 < r->caching->verifications)
        cache_threshold(r->store.cache, r->caching->tau[(r->verifications + 1) * (size_t)routes->layers + (size_t)layer]);
    mine.count = all - wanted->count;
    memcpy(r->mine, wanted->expert + wanted->count, (size_t)mine.count * sizeof *r->mine);
    memcpy(r->its, wanted->tokens + wanted->count, (size_t)mine.count * sizeof *r->its);
    if (next_host_piece(r, layer, &mine, err) || run_pieces(r, layer, wanted, err))
        return -1;
    while (mine.done < mine.count) {
        schedule_release_host(&r->store, &mine);
        if (next_host_piece(r, layer, &mine, err))
            return -1;
    }
    return 0;
}

int simulated_replay_step(struct simulated_replay *r, size_t number, struct err *err)
{
    const struct simulated_routes *routes = r->caching->routes;
    const struct simulated_step *step = &routes->step[number];
    const bool splits = r->caching->tau && !step->prompt;
    schedule_begin(&r->store, step->tokens, step->prompt ? EXPERTS_PROMPT : EXPERTS_VERIFY,
                   !number || step->text != routes->step[number - 1].text);
    memset(r->split.fetches, 0, (size_t)(routes->layers * r->split.levels) * sizeof *r->split.fetches);
    for (int layer = 0; layer < routes->layers; layer++) {
        struct expert_union wanted = {.expert = r->expert, .tokens = r->tokens,
                                      .count = simulated_routes_want(routes, step, layer, r->expert, r->tokens, r->often)};
        if (wanted.count && (splits ? run_split : run_pieces)(r, layer, &wanted, err))
            return -1;
    }
    r->verifications += splits;
    return 0;
}

const struct schedule *simulated_replay_store(const struct simulated_replay *r) { return &r->store; }
const struct simulated_split *simulated_replay_split(const struct simulated_replay *r) { return &r->split; }

static json_t *whole_numbers(const int32_t *value, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        json_array_append_new(array, json_integer(value[i]));
    return array;
}

/* Appends a JSON line of one forward. then: the counters before this forward. */
static int put_forward(const struct simulated_replay *r, size_t number, const struct store_facts *then, struct text *out,
                       struct err *err)
{
    const struct simulated_step *step = &r->caching->routes->step[number];
    const struct store_facts now = schedule_facts(&r->store), facts = store_facts_since(&now, then);
    struct values state = {0};
    json_t *map = json_object();
    cache_state(r->store.cache, &state);
    for (int i = 0; i < state.count; i++) {
        const struct value *value = &state.items[i];
        json_object_set_new(map, value->key, value->type == VALUE_INT ? json_integer(value->integer)
                            : value->type == VALUE_REAL ? json_finite(value->real) : json_string(value->text));
    }
    json_t *line = json_pack("{s:s, s:b, s:s, s:I, s:I, s:b, s:i, s:I, s:I, s:o}", "type", "forward", "simulated", 1,
                             "cache_policy", r->policy, "forward", (json_int_t)number, "sequence", (json_int_t)step->text,
                             "prompt", step->prompt, "tokens", step->tokens, "hits", (json_int_t)facts.hits,
                             "misses", (json_int_t)facts.misses, "cache", map);
    if (r->store.host)
        json_object_set_new(line, "host_hits", json_integer(facts.host_hits));
    if (r->caching->tau && !step->prompt)
        json_object_set_new(line, "device_experts", whole_numbers(r->split.device_experts, r->caching->routes->layers));
    if (r->caching->tau) {
        json_object_set_new(line, "read_early", json_integer(facts.prefetched));
        json_object_set_new(line, "copied", json_integer(facts.copied));
        json_object_set_new(line, "copied_early", json_integer(facts.copied_early));
        json_object_set_new(line, "copied_wasted", json_integer(facts.copied_wasted));
    }
    return json_line(out, line, err);
}

/* Counts only verifications and undrafted forwards: the experts of a prompt say little about a cache. */
struct hits { int64_t forwards, wanted, hits, host_hits; };

static int replay_run(struct simulated_replay *r, struct hits *hits, bool lines, struct text *out, struct err *err)
{
    const struct simulated_routes *routes = r->caching->routes;
    for (size_t i = 0; i < routes->steps; i++) {
        const struct store_facts then = schedule_facts(&r->store);
        if (simulated_replay_step(r, i, err) || (lines && put_forward(r, i, &then, out, err)))
            return -1;
        if (routes->step[i].prompt)
            continue;
        const struct store_facts now = schedule_facts(&r->store), facts = store_facts_since(&now, &then);
        hits->forwards++;
        hits->wanted += facts.hits + facts.misses;
        hits->hits += facts.hits;
        hits->host_hits += facts.host_hits;
    }
    return 0;
}

static double share_of(int64_t part, int64_t all) { return all ? 100.0 * (double)part / (double)all : 0; }

static int put_policy(struct text *out, const struct simulated_caching *caching, const char *policy, const struct hits *hits,
                      struct err *err)
{
    json_t *line = json_pack("{s:s, s:b, s:s, s:s, s:i, s:I, s:I, s:I}", "type", "cache", "simulated", 1, "cache_policy",
                             policy,
                             "routes", caching->routes->name, "slots", caching->slots, "forwards", (json_int_t)hits->forwards,
                             "wanted", (json_int_t)hits->wanted, "hits", (json_int_t)hits->hits);
    if (caching->host_slots) {
        json_object_set_new(line, "host_slots", json_integer(caching->host_slots));
        json_object_set_new(line, "host_hits", json_integer(hits->host_hits));
    }
    return json_line(out, line, err);
}

static int add_row(struct table *table, const struct simulated_caching *caching, const char *policy, const struct hits *hits,
                   struct err *err)
{
    return table_cell(table, err, "%s", policy) || table_cell(table, err, "%lld", (long long)hits->forwards) ||
           table_cell(table, err, "%lld", (long long)hits->wanted) || table_cell(table, err, "%lld", (long long)hits->hits) ||
           table_cell(table, err, "%.1f %%", share_of(hits->hits, hits->wanted)) ||
           (caching->host_slots && (table_cell(table, err, "%lld", (long long)hits->host_hits) ||
                                    table_cell(table, err, "%.1f %%", share_of(hits->host_hits, hits->wanted)))) ? -1 : 0;
}

static int add_thresholds(int32_t **tau, size_t *count, size_t *room, const struct decode_iter *iter, int layers,
                          struct err *err)
{
    if (!iter->split_tau || !iter->split_levels)
        return err_set(err, ERR_INPUT, "iteration %lld has no split thresholds; record the run with --split balance",
                       (long long)*count);
    if (mem_grow(tau, room, (*count + 1) * (size_t)layers, sizeof **tau, err))
        return -1;
    memcpy(*tau + (*count)++ * (size_t)layers, iter->split_tau, (size_t)layers * sizeof **tau);
    return 0;
}

static int check_thresholds(const struct simulated_routes *routes, size_t count, struct err *err)
{
    size_t verifications = 0;
    for (size_t i = 0; i < routes->steps; i++)
        verifications += !routes->step[i].prompt;
    return count == verifications ? 0
           : err_set(err, ERR_INPUT, "the run has %zu iterations, but the routes have %zu verifications; record both with the "
                     "same prompts, drafts and --max-tokens", count, verifications);
}

int simulated_thresholds_read(int32_t **tau, size_t *count, const char *path, const struct simulated_routes *routes,
                              struct err *err)
{
    struct reader *in = NULL;
    const struct record *record;
    size_t room = 0;
    int more = -1;
    *tau = NULL;
    *count = 0;
    if (reader_open(&in, path, STREAM_DECODE, NULL, err))
        return -1;
    const struct header *header = reader_header(in);
    int rc = header->has_model && header->model.moe_layers == routes->layers ? 0
             : err_set(err, ERR_INPUT, "the model of the run has %d layers with experts, but that of the routes has %d; "
                       "record both with the same model", header->has_model ? header->model.moe_layers : 0, routes->layers);
    while (!rc && (more = reader_next(in, &record, err)) > 0)
        if (record->kind == &decode_iter_kind)
            rc = add_thresholds(tau, count, &room, record->body, routes->layers, err);
    if (!rc && !more)
        rc = check_thresholds(routes, *count, err);
    reader_close(&in);
    if (!rc && !more)
        return 0;
    mem_free(tau);
    return rc ? err_at(err, "%s", path) : -1;       /* the reader's own errors name the file */
}

int simulate_caches(struct text *out, const struct simulated_caching *caching, const char *const *policies, int count,
                    bool json, bool iterations, bool markdown, struct err *err)
{
    static const char *const titles[] = {"cache policy", "forwards", "experts wanted", "hits", "share", "on the host", "share"};
    const int all = caching->routes->layers * caching->routes->experts;
    struct table table = {0};
    char host[64] = "";
    int rc = 0;
    table_start(&table, titles, caching->host_slots ? "lrrrrrr" : "lrrrr");
    for (int i = 0; !rc && i < count; i++) {
        struct simulated_replay *replay = NULL;
        struct hits hits = {0};
        rc = simulated_replay_open(&replay, caching, policies[i], err) ||
             replay_run(replay, &hits, json && iterations, out, err) ? -1 : 0;
        if (!rc)
            rc = json ? put_policy(out, caching, policies[i], &hits, err) : add_row(&table, caching, policies[i], &hits, err);
        simulated_replay_close(&replay);
    }
    if (caching->host_slots)
        snprintf(host, sizeof host, ", with %d on the host", caching->host_slots);
    if (!rc && !json)
        rc = text_printf(out, err,
                         "SIMULATED: caches of %d of %d experts%s, %s; after prompts; %s\n\n",
                         caching->slots, all, host, caching->tau ? "prefetches take no time" : "no prefetches",
                         caching->routes->name) ||
             table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

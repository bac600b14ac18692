#include "common/bench/simulated_cache.h"

#include <jansson.h>
#include <stdio.h>

#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/bench/simulate.h"
#include "common/cache/cache.h"
#include "common/report/table.h"

struct replay {
    const struct simulated_caching *caching;
    const char *policy;
    struct cache *cache;
    struct cache *host;                 /* NULL: one tier */
    int64_t host_hits;
    int32_t *keys;                      /* for a policy that knows the future */
    int32_t *expert, *tokens, *often, *slot;    /* [experts] */
    int32_t *host_slot;                 /* [experts] slot held in the host's cache while the expert is copied to fast memory;
                                         * -1: none */
};

static void replay_free(struct replay *r)
{
    cache_close(&r->cache);
    cache_close(&r->host);
    mem_free(&r->keys);
    mem_free(&r->expert);
    mem_free(&r->tokens);
    mem_free(&r->often);
    mem_free(&r->slot);
    mem_free(&r->host_slot);
}

static int replay_open(struct replay *r, const struct simulated_caching *caching, const char *policy, struct err *err)
{
    const struct simulated_routes *routes = caching->routes;
    const struct cache_policy_class *class = cache_policy_find(policy);
    struct cache_future future = {0};
    struct cache_setup setup = {.layers = routes->layers, .experts = routes->experts, .slots = caching->slots,
                                .top_k = routes->top_k, .draft_length = caching->draft_length};
    *r = (struct replay){.caching = caching, .policy = policy};
    if (class && class->replays) {
        if (simulate_future(routes, &future, &r->keys, err))
            return -1;
        setup.future = &future;
    }
    r->expert = mem_alloc((size_t)routes->experts, sizeof *r->expert, err);
    r->tokens = mem_alloc((size_t)routes->experts, sizeof *r->tokens, err);
    r->often = mem_alloc((size_t)routes->experts, sizeof *r->often, err);
    r->slot = mem_alloc((size_t)routes->experts, sizeof *r->slot, err);
    r->host_slot = mem_alloc((size_t)routes->experts, sizeof *r->host_slot, err);
    if (!r->expert || !r->tokens || !r->often || !r->slot || !r->host_slot || cache_open(&r->cache, policy, &setup, err))
        return -1;
    setup.slots = caching->host_slots;
    return caching->host_slots ? cache_open(&r->host, policy, &setup, err) : 0;
}

/* Finds or makes a slot in the host's cache and holds it until the expert has been copied. Returns the slot. */
static int hold_host(struct replay *r, int layer, int expert)
{
    int victim, slot = cache_find(r->host, layer, expert);
    if (slot < 0)
        return cache_insert(r->host, layer, expert, CACHE_DEMAND, &victim);
    cache_hold(r->host, slot);
    return slot;
}

/* Inserts missing experts (slot -1) as long as slots are available; returns their number. */
static int insert(struct replay *r, int layer, int count)
{
    int inserted = 0, victim;
    for (int i = 0; i < count; i++) {
        if (r->slot[i] != -1)
            continue;
        if ((r->slot[i] = cache_insert(r->cache, layer, r->expert[i], CACHE_DEMAND, &victim)) < 0)
            break;
        if (r->host)
            r->host_slot[i] = hold_host(r, layer, r->expert[i]);
        inserted++;
    }
    return inserted;
}

static void layer_turn(struct replay *r, int layer, int count)
{
    for (int i = 0; i < count && r->host; i++)
        r->host_hits += cache_find(r->cache, layer, r->expert[i]) < 0 && cache_find(r->host, layer, r->expert[i]) >= 0;
    cache_want(r->cache, layer, r->expert, r->tokens, count);
    if (r->host)
        cache_want(r->host, layer, r->expert, r->tokens, count);
    for (int i = 0; i < count; i++) {
        r->host_slot[i] = -1;
        if ((r->slot[i] = cache_find(r->cache, layer, r->expert[i])) >= 0)
            cache_hold(r->cache, r->slot[i]);
    }
    for (bool more = true; more;) {
        more = insert(r, layer, count) > 0;
        for (int i = 0; i < count; i++)
            if (r->slot[i] >= 0) {
                cache_release(r->cache, r->slot[i]);
                if (r->host_slot[i] >= 0)
                    cache_release(r->host, r->host_slot[i]);
                r->slot[i] = -2;                        /* computed */
                r->host_slot[i] = -1;
                more = true;
            }
    }
}

/* Appends a JSON line of one forward. before, host_hits: the counters before it. */
static int put_forward(struct replay *r, size_t number, const struct simulated_step *step, const struct cache_counts *before,
                       int64_t host_hits, struct text *out, struct err *err)
{
    const struct cache_counts now = cache_counts(r->cache);
    struct values state = {0};
    json_t *map = json_object();
    cache_state(r->cache, &state);
    for (int i = 0; i < state.count; i++) {
        const struct value *value = &state.items[i];
        json_object_set_new(map, value->key, value->type == VALUE_INT ? json_integer(value->integer)
                            : value->type == VALUE_REAL ? json_finite(value->real) : json_string(value->text));
    }
    json_t *line = json_pack("{s:s, s:b, s:s, s:I, s:I, s:b, s:i, s:I, s:I, s:o}", "type", "forward", "simulated", 1,
                             "cache_policy", r->policy, "forward", (json_int_t)number, "sequence", (json_int_t)step->text,
                             "prompt", step->prompt, "tokens", step->tokens, "hits", (json_int_t)(now.hits - before->hits),
                             "misses", (json_int_t)(now.wanted - before->wanted - now.hits + before->hits), "cache", map);
    if (r->host)
        json_object_set_new(line, "host_hits", json_integer(r->host_hits - host_hits));
    return json_line(out, line, err);
}

/* Counts only verifications and undrafted forwards: the experts of a prompt say little about a cache. */
struct hits { int64_t forwards, wanted, hits, host_hits; };

static void forward_begins(struct cache *cache, const struct simulated_step *step, bool text)
{
    if (text)
        cache_begin(cache);
    cache_step(cache, step->tokens, step->prompt ? CACHE_PROMPT : CACHE_VERIFIES);
}

static int replay_run(struct replay *r, struct hits *hits, bool lines, struct text *out, struct err *err)
{
    const struct simulated_routes *routes = r->caching->routes;
    for (size_t i = 0; i < routes->steps; i++) {
        const struct simulated_step *step = &routes->step[i];
        const struct cache_counts before = cache_counts(r->cache);
        const int64_t host_hits = r->host_hits;
        const bool text = !i || step->text != routes->step[i - 1].text;
        forward_begins(r->cache, step, text);
        if (r->host)
            forward_begins(r->host, step, text);
        for (int layer = 0; layer < routes->layers; layer++) {
            const int count = simulated_routes_want(routes, step, layer, r->expert, r->tokens, r->often);
            if (count)
                layer_turn(r, layer, count);
        }
        const struct cache_counts after = cache_counts(r->cache);
        hits->forwards += !step->prompt;
        hits->wanted += step->prompt ? 0 : after.wanted - before.wanted;
        hits->hits += step->prompt ? 0 : after.hits - before.hits;
        hits->host_hits += step->prompt ? 0 : r->host_hits - host_hits;
        if (lines && put_forward(r, i, step, &before, host_hits, out, err))
            return -1;
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
        struct replay r;
        struct hits hits = {0};
        rc = replay_open(&r, caching, policies[i], err) || replay_run(&r, &hits, json && iterations, out, err) ? -1 : 0;
        if (!rc)
            rc = json ? put_policy(out, caching, policies[i], &hits, err) : add_row(&table, caching, policies[i], &hits, err);
        replay_free(&r);
    }
    if (caching->host_slots)
        snprintf(host, sizeof host, ", with %d on the host", caching->host_slots);
    if (!rc && !json)
        rc = text_printf(out, err,
                         "SIMULATED: caches of %d of %d experts%s that read nothing beforehand; after prompts; %s\n\n",
                         caching->slots, all, host, caching->routes->name) ||
             table_write(&table, markdown ? TABLE_MARKDOWN : TABLE_TEXT, out, err) ? -1 : 0;
    table_free(&table);
    return rc;
}

#include "common/bench/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/cache/balance.h"
#include "common/cache/cache.h"
#include "common/cache/utility.h"

struct run {
    const struct simulated_machine *machine;
    const struct simulated_routes *routes;
    const struct simulated_system *system;
    struct cache *cache;
    int slots, K;
    double now, since, link_free;       /* virtual seconds; since: the event before */
    double transfer_s;                  /* of one expert: so long the link has no other */
    double latency_s;                   /* besides, before it, where the link has several at once */
    int on_the_way;                     /* slot; -1: none */
    double arrives;
    uint64_t chance;
    int32_t *expert, *tokens, *often, *slot, *ahead, *ahead_tokens;     /* [experts] */
    struct balance_shares *shares;      /* [layers] */
    const struct utility_expert *states;
    double pair_s, expert_s;            /* measured: of the slow processor a pair, of the fast one an expert */
    int64_t pairs, experts;
    struct simulated_result result;
};

static double fast_time(const struct run *r, int tokens)
{
    return r->machine->fast.expert_s + (tokens - 1) * r->machine->fast.token_s;
}

static double slow_time(const struct run *r, int tokens)
{
    return r->machine->slow.expert_s + (tokens - 1) * r->machine->slow.token_s;
}

/* ---- the link */

static void arrive(struct run *r)
{
    cache_release(r->cache, r->on_the_way);
    r->link_free = fmax(r->link_free, r->arrives);
    r->on_the_way = -1;
}

/* What comes beforehand until then: each is chosen when the link is free for it. */
static void link_until(struct run *r, double until)
{
    for (;;) {
        int key, victim;
        if (r->on_the_way >= 0) {
            if (r->arrives > until)
                break;
            arrive(r);
        }
        double start = fmax(r->link_free, r->since);
        if (start >= until || r->system->prefetch == PREFETCH_NONE)
            break;
        r->on_the_way = cache_fetch(r->cache, &key, &victim);
        if (r->on_the_way < 0)
            break;
        r->arrives = start + r->latency_s + r->transfer_s;
        r->result.prefetched++;
    }
    r->since = until;
}

/* When so many experts, asked for at a time, are all there. */
static double demand(struct run *r, double asked, int experts)
{
    double start = fmax(asked + r->latency_s, r->on_the_way >= 0 ? fmax(r->arrives, r->link_free) : r->link_free);
    r->link_free = start + experts * r->transfer_s;
    r->result.fetched += experts;
    return r->link_free;
}

/* ---- forecasts: recorded and made routes have no states to ask, so they name a given share of the truth, and as many others
 * as they miss */

static double uniform(struct run *r)
{
    uint64_t z = r->chance += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int named(struct run *r, int truth, double recall)
{
    return uniform(r) < recall ? truth : (int)(uniform(r) * r->routes->experts);
}

static void forecast_layer(struct run *r, const struct simulated_step *step, int layer)
{
    int count = simulated_routes_want(r->routes, step, layer, r->ahead, r->ahead_tokens, r->often);
    for (int i = 0; i < count; i++)
        if (r->machine->recall_next > 0)            /* else nobody can be asked */
            cache_ask(r->cache, layer, named(r, r->ahead[i], r->machine->recall_next), 1);
}

/* Drafting goes through the root and each token but the last; when it is through one, it knows that one's routes. */
static void forecast_token(struct run *r, const struct simulated_step *step, int token)
{
    const struct simulated_routes *routes = r->routes;
    const int16_t *expert = routes->expert + step->first + (size_t)token * routes->layers * routes->top_k;
    for (int i = 0; i < routes->layers * routes->top_k; i++) {
        int layer = i / routes->top_k, e = expert[i] < 0 ? -1 : named(r, expert[i], r->machine->recall_draft);
        if (e >= 0)
            cache_expect(r->cache, layer, e, 1);
    }
}

/* ---- one layer: when the fast processor is done */

static double by_slow(struct run *r, int count)
{
    double fast = 0, slow = 0;
    for (int i = 0; i < count; i++) {
        *(r->slot[i] >= 0 ? &fast : &slow) += r->slot[i] >= 0 ? fast_time(r, r->tokens[i]) : slow_time(r, r->tokens[i]);
        *(r->slot[i] >= 0 ? &r->experts : &r->pairs) += r->slot[i] >= 0 ? 1 : r->tokens[i];
    }
    r->expert_s += fast;
    r->pair_s += slow;
    if (slow > 0)
        slow += r->machine->slow.join_s;
    r->result.fast_s += fast;
    r->result.slow_s += slow;
    double all = r->system->overlaps ? fmax(fast, slow) : fast + slow;
    r->result.stall_s += all - fast;
    return r->now + all;
}

/* Inserts what is missing, if it is to stay; where there is no slot for it, it is used once. */
static void keep(struct run *r, int layer, int i)
{
    int victim;
    if (r->system->keeps)
        r->slot[i] = cache_insert(r->cache, layer, r->expert[i], CACHE_DEMAND, &victim);
}

/* Of those missing that were not dealt with (slot -1) the first, or the one of most tokens; -1: there is none. */
static int next_missing(const struct run *r, int count, bool max)
{
    int next = -1;
    for (int i = 0; i < count; i++)
        if (r->slot[i] == -1 && (next < 0 || (max && r->tokens[i] > r->tokens[next])))
            next = i;
    return next;
}

static double by_fetching(struct run *r, int layer, int count, bool greedy)
{
    double fast = r->now, slow = r->now, busy = 0, last = 0, waiting = 0;      /* waiting: for the last one asked for */
    for (int coming = 0; coming < 2; coming++)          /* those that are there, then the one on its way */
        for (int i = 0; i < count; i++)
            if (r->slot[i] >= 0 && (r->slot[i] == r->on_the_way) == coming) {
                fast = (coming ? fmax(fast, r->arrives) : fast) + fast_time(r, r->tokens[i]);
                busy += fast_time(r, r->tokens[i]);
            }
    for (int i; (i = next_missing(r, count, greedy)) >= 0;) {
        double asked = r->system->overlaps ? r->now : fast, there = fmax(asked + r->latency_s, r->link_free) + r->transfer_s;
        double sooner = slow + slow_time(r, r->tokens[i]);
        if (greedy && sooner <= fmax(fast, there) + fast_time(r, r->tokens[i]))
            slow = sooner;
        else {
            double time = fast_time(r, r->tokens[i]);
            last = demand(r, asked, 1);
            fast = r->machine->together ? fast : fmax(fast, last) + time;
            waiting += r->machine->together ? time : 0;
            busy += time;
            keep(r, layer, i);
        }
        r->slot[i] = r->slot[i] < 0 ? -2 : r->slot[i];
    }
    if (waiting > 0)
        fast = fmax(fast, last) + waiting;
    if (slow > r->now)
        slow += r->machine->slow.join_s;
    double end = fmax(fast, slow);
    r->result.fast_s += busy;
    r->result.slow_s += slow - r->now;
    r->result.stall_s += end - r->now - busy;
    return end;
}

static double by_layers(struct run *r, int layer, int count)
{
    double start = r->now, fast = 0;
    if (cache_find(r->cache, layer, r->expert[0]) < 0)
        start = demand(r, r->now, r->routes->experts);
    for (int i = 0; i < count; i++)
        fast += fast_time(r, r->tokens[i]);
    r->result.fast_s += fast;
    r->result.stall_s += start - r->now;
    return start + fast;
}

/* ---- tau */

static void balance(struct run *r, int layer, int count)
{
    int32_t fetches[BALANCE_LEVELS + 1];
    const int cold = balance_look(r->cache, r->states, r->K, layer, r->routes->experts, r->slots, fetches);
    const struct balance b = {
        .K = r->K, .draft_length = r->machine->draft_length, .top_k = r->routes->top_k, .distinct = count,
        .cpu_unit = r->pairs ? r->pair_s / r->pairs : r->machine->slow.expert_s,
        .gpu_unit = r->experts ? r->expert_s / r->experts : r->machine->fast.expert_s, .io_unit = r->transfer_s,
        .draft_unit = r->machine->draft_s, .layers = r->routes->layers, .expert_bytes = r->machine->expert_bytes,
        .bytes_left = cold * r->machine->expert_bytes, .shares = &r->shares[layer], .fetches = fetches};
    cache_threshold(r->cache, balance_tau(&b));
}

static void decide(struct run *r, int layer, int count)
{
    double start = clock_seconds();
    int first = layer * r->routes->experts;
    if (r->system->balances)
        balance_learn(&r->shares[layer], r->K, r->expert, r->tokens, count, &r->states[first].level, sizeof *r->states);
    cache_want(r->cache, layer, r->expert, r->tokens, count);
    if (r->system->balances)
        balance(r, layer, count);
    r->result.decide_us += 1e6 * (clock_seconds() - start);
}

static void run_layer(struct run *r, const struct simulated_step *step, int layer)
{
    r->now += r->machine->layer_s;
    link_until(r, r->now);
    int count = simulated_routes_want(r->routes, step, layer, r->expert, r->tokens, r->often);
    if (!count)
        return;
    decide(r, layer, count);
    for (int i = 0; i < count; i++) {
        int slot = cache_find(r->cache, layer, r->expert[i]);
        bool here = slot >= 0 && slot != r->on_the_way;
        r->result.hits += here;
        r->slot[i] = here || (slot >= 0 && r->system->misses != MISSES_SLOW) ? slot : -1;
        if (r->slot[i] >= 0)
            cache_hold(r->cache, slot);
        else if (r->system->prefetch == PREFETCH_MISSED)
            cache_ask(r->cache, layer, r->expert[i], 1);
    }
    r->result.wanted += count;
    if (r->system->prefetch == PREFETCH_NEXT_LAYER && layer + 1 < r->routes->layers)
        forecast_layer(r, step, layer + 1);
    double end = r->system->misses == MISSES_SLOW ? by_slow(r, count)
               : r->system->misses == MISSES_WHOLE ? by_layers(r, layer, count)
               : by_fetching(r, layer, count, r->system->misses == MISSES_GREEDY);
    link_until(r, end);
    for (int i = 0; i < count; i++)
        if (r->slot[i] >= 0)
            cache_release(r->cache, r->slot[i]);
    r->now = end;
}

static void run_step(struct run *r, const struct simulated_step *step)
{
    cache_step(r->cache, step->tokens, CACHE_VERIFIES);
    for (int token = 0; token + 1 < step->tokens; token++) {
        r->now += r->machine->draft_s;
        r->result.draft_s += r->machine->draft_s;
        link_until(r, r->now);
        if (r->system->prefetch == PREFETCH_DRAFT && r->machine->recall_draft > 0)
            forecast_token(r, step, token);
    }
    for (int layer = 0; layer < r->routes->layers; layer++)
        run_layer(r, step, layer);
    r->now += r->machine->forward_s;
    link_until(r, r->now);
    r->result.tokens += step->kept;
    r->result.forwards++;
}

/* ---- pins, and the whole of a run */

struct often { int64_t count; int32_t key; };

static int more_often(const void *a, const void *b)
{
    const struct often *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : (x->key > y->key) - (x->key < y->key);
}

/* Pins [*count] for these routes; NULL with err set. */
static int32_t *make_pins(const struct simulated_routes *routes, enum simulated_pins kind, int slots, int *count,
                          struct err *err)
{
    int keys = routes->layers * routes->experts;
    struct often *often = mem_alloc(keys, sizeof *often, err);
    int32_t *pins = mem_alloc(keys, sizeof *pins, err);
    if (!often || !pins) {
        mem_free(&often);
        mem_free(&pins);
        return NULL;
    }
    for (int key = 0; key < keys; key++)
        often[key].key = key;
    size_t token = (size_t)routes->layers * routes->top_k;
    for (size_t i = 0; i < routes->selections && kind == PINS_RANKED; i++)
        if (routes->expert[i] >= 0)
            often[i % token / routes->top_k * routes->experts + routes->expert[i]].count++;
    qsort(often, keys, sizeof *often, more_often);
    *count = kind == PINS_LAYERS ? slots / routes->experts * routes->experts : slots;
    for (int i = 0; i < *count; i++)
        pins[i] = often[i].key;
    mem_free(&often);
    return pins;
}

static int open_cache(struct run *r, const char *settings, struct err *err)
{
    const struct simulated_routes *routes = r->routes;
    struct cache_setup setup = {.layers = routes->layers, .experts = routes->experts, .slots = r->slots,
                                .top_k = routes->top_k, .draft_length = r->machine->draft_length, .elsewhere = true};
    struct text policy = {0};
    int32_t *pins = NULL;
    int rc = text_printf(&policy, err, "%s%s%s", r->system->cache,
                         !settings ? "" : strchr(r->system->cache, ':') ? "," : ":", settings ? settings : "");
    if (!rc && r->system->pins) {
        pins = make_pins(routes, r->system->pins, r->slots, &setup.pinned, err);
        setup.pins = pins;
        rc = pins ? 0 : -1;
        if (!rc && !setup.pinned)
            rc = err_set(err, ERR_INPUT, "%d experts in fast memory are less than a layer; take more", r->slots);
    }
    if (!rc)
        rc = cache_open(&r->cache, policy.data, &setup, err);
    if (!rc)
        r->states = cache_utility_states(r->cache, &r->K);
    text_free(&policy);
    mem_free(&pins);
    return rc;
}

static int make_room(struct run *r, struct err *err)
{
    int experts = r->routes->experts;
    r->expert = mem_alloc(experts, sizeof *r->expert, err);
    r->tokens = mem_alloc(experts, sizeof *r->tokens, err);
    r->often = mem_alloc(experts, sizeof *r->often, err);
    r->slot = mem_alloc(experts, sizeof *r->slot, err);
    r->ahead = mem_alloc(experts, sizeof *r->ahead, err);
    r->ahead_tokens = mem_alloc(experts, sizeof *r->ahead_tokens, err);
    r->shares = mem_alloc(r->routes->layers, sizeof *r->shares, err);
    return r->expert && r->tokens && r->often && r->slot && r->ahead && r->ahead_tokens && r->shares ? 0 : -1;
}

static void run_free(struct run *r)
{
    cache_close(&r->cache);
    mem_free(&r->expert);
    mem_free(&r->tokens);
    mem_free(&r->often);
    mem_free(&r->slot);
    mem_free(&r->ahead);
    mem_free(&r->ahead_tokens);
    mem_free(&r->shares);
}

static int find_system(const struct simulated_system **out, const char *text, const char **settings, struct err *err)
{
    const char *names[64];
    struct spec *spec = NULL;
    char name[64];
    int count = 0, which;
    size_t length = strcspn(text, ":");
    *settings = text[length] ? text + length + 1 : NULL;
    snprintf(name, sizeof name, "%.*s", (int)(length < 60 ? length : 60), text);
    for (; simulated_systems[count].name; count++)
        names[count] = simulated_systems[count].name;
    int rc = spec_parse(&spec, name, err) || spec_pick(spec, "a system", names, count, &which, err) ? -1 : 0;
    spec_free(&spec);
    if (!rc)
        *out = &simulated_systems[which];
    return rc;
}

static int can_run(const struct run *r, struct err *err)
{
    if (!r->machine->has_slow && (r->system->misses == MISSES_SLOW || r->system->misses == MISSES_GREEDY))
        return err_set(err, ERR_INPUT, "%s: it computes experts by a slow processor, and the machine has none",
                       r->system->name);
    if (r->slots < r->routes->top_k)
        return err_set(err, ERR_INPUT, "%d experts in fast memory are too few for one token's %d", r->slots, r->routes->top_k);
    return 0;
}

int simulate_run(struct simulated_result *out, const struct simulation *simulation, const char *text, struct err *err)
{
    struct run r = {.machine = simulation->machine, .on_the_way = -1, .chance = simulation->seed};
    const char *settings;
    int key, victim, slot, rc = -1;
    if (find_system(&r.system, text, &settings, err))
        return -1;
    r.routes = r.system->drafts ? simulation->drafted : simulation->undrafted;
    r.slots = simulated_machine_slots(r.machine, r.routes->layers, r.routes->experts);
    r.latency_s = r.machine->at_once ? r.machine->latency_s : 0;
    r.transfer_s = r.machine->expert_bytes / r.machine->bytes_per_second + r.machine->latency_s - r.latency_s;
    if (can_run(&r, err) || open_cache(&r, settings, err) || make_room(&r, err))
        goto done;
    if (r.system->balances && !r.states) {
        err_set(err, ERR_INPUT, "%s: its cache has no levels to balance by", r.system->name);
        goto done;
    }
    for (; r.system->pins && (slot = cache_fetch(r.cache, &key, &victim)) >= 0;)       /* before the clock begins */
        cache_release(r.cache, slot);
    for (size_t i = 0; i < r.routes->steps; i++) {
        if (!i || r.routes->step[i].text != r.routes->step[i - 1].text)
            cache_begin(r.cache);
        run_step(&r, &r.routes->step[i]);
    }
    r.result.seconds = r.now;
    r.result.source = r.system->source;
    r.result.wasted = cache_counts(r.cache).wasted;
    r.result.decide_us /= r.result.forwards;
    snprintf(r.result.system, sizeof r.result.system, "%s", text);
    *out = r.result;
    rc = 0;
done:
    run_free(&r);
    return rc;
}

/* ---- the bound */

int simulate_future(const struct simulated_routes *routes, struct cache_future *future, int32_t **keys, struct err *err)
{
    size_t room = 0;
    int32_t *expert = mem_alloc(3 * (size_t)routes->experts, sizeof *expert, err);
    int rc = expert ? 0 : -1;
    for (size_t i = 0; !rc && i < routes->steps; i++)
        for (int layer = 0; !rc && layer < routes->layers; layer++) {
            int count = simulated_routes_want(routes, &routes->step[i], layer, expert, expert + routes->experts,
                                              expert + 2 * routes->experts);
            rc = mem_grow(keys, &room, future->count + count, sizeof **keys, err);
            for (int j = 0; !rc && j < count; j++)
                (*keys)[future->count++] = layer * routes->experts + expert[j];
        }
    future->key = *keys;
    mem_free(&expert);
    return rc;
}

/* All that one layer wants, inserted; what does not fit beside the others of this turn is used and not kept. With a bypass
 * nothing must stay beside anything: in the end those are there that are wanted soonest. */
static void insert_all(struct cache *cache, int layer, const int32_t *expert, int count, int32_t *slot, bool bypass)
{
    int victim;
    for (int i = 0; i < count; i++)
        if ((slot[i] = cache_find(cache, layer, expert[i])) >= 0 && !bypass)
            cache_hold(cache, slot[i]);
    for (int i = 0; i < count; i++) {
        if (slot[i] >= 0)
            continue;
        slot[i] = cache_insert(cache, layer, expert[i], CACHE_DEMAND, &victim);
        if (bypass && slot[i] >= 0)
            cache_release(cache, slot[i]);
    }
    for (int i = 0; i < count && !bypass; i++)
        if (slot[i] >= 0)
            cache_release(cache, slot[i]);
}

int simulate_belady(double *share, const struct simulation *simulation, bool drafted, bool bypass, struct err *err)
{
    const struct simulated_routes *routes = drafted ? simulation->drafted : simulation->undrafted;
    struct cache_future future = {0};
    struct cache_setup setup = {
        .layers = routes->layers, .experts = routes->experts, .top_k = routes->top_k, .future = &future,
        .slots = simulated_machine_slots(simulation->machine, routes->layers, routes->experts), .elsewhere = bypass};
    struct cache *cache = NULL;
    int32_t *keys = NULL, *room = mem_alloc(4 * (size_t)routes->experts, sizeof *room, err);
    int E = routes->experts, rc = -1;
    if (!room || simulate_future(routes, &future, &keys, err) || cache_open(&cache, "belady", &setup, err))
        goto done;
    for (size_t i = 0; i < routes->steps; i++)
        for (int layer = 0; layer < routes->layers; layer++) {
            int count = simulated_routes_want(routes, &routes->step[i], layer, room, room + E, room + 2 * E);
            cache_want(cache, layer, room, room + E, count);
            insert_all(cache, layer, room, count, room + 3 * E, bypass);
        }
    struct cache_counts counts = cache_counts(cache);
    *share = (double)counts.hits / counts.wanted;
    rc = 0;
done:
    cache_close(&cache);
    mem_free(&keys);
    mem_free(&room);
    return rc;
}

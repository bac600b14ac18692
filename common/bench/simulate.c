#include "common/bench/simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/base/splitmix.h"
#include "common/bench/simulated_store.h"
#include "common/cache/balance.h"
#include "common/cache/cache.h"
#include "common/cache/utility.h"
#include "common/predict/forecast.h"

struct run {
    const struct simulated_machine *machine;
    const struct simulated_routes *routes;
    const struct simulated_system *system;
    struct cache *cache;
    int slots, K;
    double now, since, link_free;       /* virtual seconds; since: time of the previous event */
    double transfer_s;                  /* transfer of one expert; it occupies the link */
    double latency_s;                   /* additional latency before a transfer, which overlaps others if the link has
                                         * several at once */
    int on_the_way;                     /* slot of the prefetch in flight; -1: none */
    double arrives;
    uint64_t chance;
    int32_t *expert, *tokens, *often, *slot, *ahead, *ahead_tokens;     /* [experts] */
    struct balance_shares *shares;      /* [layers] */
    const struct utility_expert *states;
    double pair_s, expert_s;            /* measured on the slow processor per pair, on the fast one per expert */
    int64_t pairs, experts;
    bool stores;                        /* transfers share the link, in the same order as in the store */
    struct schedule store;
    struct simulated_link link;
    enum expert_tier *tier;             /* [experts] */
    size_t *read_bytes;                 /* [layers] all 1: bytes then count experts */
    struct forecast *forecast;          /* NULL: no forecasts */
    float *score;                       /* [experts] */
    struct simulated_trace *trace;      /* trace of the current forward; NULL: not recorded */
    bool out_of_memory;                 /* allocation for the trace failed */
    double drafted;                     /* time at which the forward's drafting ended */
    struct simulated_result result;
};

static void note(struct run *r, enum simulated_lane lane, int layer, double from, double to)
{
    struct simulated_trace *trace = r->trace;
    if (!trace || to <= from)
        return;
    r->out_of_memory |= mem_grow(&trace->span, &trace->room, trace->count + 1, sizeof *trace->span, NULL) != 0;
    if (!r->out_of_memory)
        trace->span[trace->count++] = (struct simulated_span){lane, layer, from, to};
}

static double fast_time(const struct run *r, int tokens)
{
    return r->machine->fast.expert_s + (tokens - 1) * r->machine->fast.token_s;
}

static double slow_time(const struct run *r, int tokens)
{
    return r->machine->slow.expert_s + (tokens - 1) * r->machine->slow.token_s;
}

/* ---- the link */

static void finish_transfer(struct run *r)
{
    cache_release(r->cache, r->on_the_way);
    r->link_free = fmax(r->link_free, r->arrives);
    r->on_the_way = -1;
}

/* Runs prefetches up to a time: each is chosen when the link becomes free for it. */
static void run_prefetches(struct run *r, double until)
{
    for (;;) {
        int key, victim;
        if (r->on_the_way >= 0) {
            if (r->arrives > until)
                break;
            finish_transfer(r);
        }
        double start = fmax(r->link_free, r->since);
        if (start >= until || r->system->prefetch == PREFETCH_NONE)
            break;
        r->on_the_way = cache_fetch(r->cache, &key, &victim);
        if (r->on_the_way < 0)
            break;
        r->arrives = start + r->latency_s + r->transfer_s;
        note(r, LANE_LINK, key / r->routes->experts, start, r->arrives);
        r->result.prefetched++;
    }
    r->since = until;
}

/* Returns when `experts` experts, requested together at time `asked`, have all arrived. */
static double demand(struct run *r, double asked, int layer, int experts)
{
    double start = fmax(asked + r->latency_s, r->on_the_way >= 0 ? fmax(r->arrives, r->link_free) : r->link_free);
    r->link_free = start + experts * r->transfer_s;
    note(r, LANE_LINK, layer, start, r->link_free);
    r->result.fetched += experts;
    return r->link_free;
}

/* ---- forecasts: recorded and synthetic routes have no states to predict from, so a forecast names the given share of the
 * truth, and a random expert for each one that it misses */

static int draw_forecast(struct run *r, int truth, double recall)
{
    return splitmix_uniform(&r->chance) < recall ? truth : (int)(splitmix_uniform(&r->chance) * r->routes->experts);
}

static void forecast_layer(struct run *r, const struct simulated_step *step, int layer)
{
    int count = simulated_routes_want(r->routes, step, layer, r->ahead, r->ahead_tokens, r->often);
    for (int i = 0; i < count; i++)
        if (r->machine->recall_next > 0)            /* otherwise the machine has no such forecast */
            cache_ask(r->cache, layer, draw_forecast(r, r->ahead[i], r->machine->recall_next), 1);
}

/* Forecasts a token's routes for the verification. The draft phase processes the root and each token except the last; after
 * each one it knows that token's routes. */
static void forecast_token(struct run *r, const struct simulated_step *step, int token)
{
    const struct simulated_routes *routes = r->routes;
    const int16_t *expert = routes->expert + step->first + (size_t)token * routes->layers * routes->top_k;
    for (int i = 0; i < routes->layers * routes->top_k; i++) {
        int layer = i / routes->top_k, e = expert[i] < 0 ? -1 : draw_forecast(r, expert[i], r->machine->recall_draft);
        if (e >= 0)
            cache_expect(r->cache, layer, e, 1);
    }
}

/* Forecasts the next forward by a source that depends on routes alone, as in moe-decode --prefetch. */
static int ask_source(struct run *r, const struct simulated_step *step, int tokens, struct err *err)
{
    const struct forecast_facts facts = {.token = r->routes->token + step->accepted, .tokens = tokens};
    const struct forecast_class *class = r->forecast->class;
    for (int layer = 0; layer < r->routes->layers; layer++) {
        class->expect(r->forecast, layer, &facts, r->score);
        const int count = forecast_name(r->ahead, r->score, r->routes->experts, 2 * r->routes->top_k);
        for (int i = 0; i < count; i++)
            r->ahead_tokens[i] = class->levels ? (int)r->score[r->ahead[i]] : 1;
        r->link.clock = r->now;
        if (schedule_prefetch(&r->store, layer, r->ahead, r->ahead_tokens, count, err))
            return -1;
    }
    return 0;
}

static void teach_source(struct run *r, const struct simulated_step *step)
{
    const struct forecast_outcome outcome = {r->routes->token + step->accepted, r->routes->accepted + step->accepted,
                                             r->routes->expert + step->first, step->tokens};
    r->forecast->class->learn(r->forecast, &outcome);
}

/* ---- one layer; each function returns when its last processor has finished ---- */

static double run_on_slow(struct run *r, int layer, int count)
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
    const double second = r->now + (r->system->overlaps ? 0 : fast);
    double all = r->system->overlaps ? fmax(fast, slow) : fast + slow;
    note(r, LANE_FAST, layer, r->now, r->now + fast);
    note(r, LANE_SLOW, layer, second, second + slow);
    r->result.stall_s += all - fast;
    return r->now + all;
}

/* Inserts a missing expert if the system keeps fetched ones; without a free slot it is used once and not kept. */
static void keep(struct run *r, int layer, int i)
{
    int victim;
    if (r->system->keeps)
        r->slot[i] = cache_insert(r->cache, layer, r->expert[i], CACHE_DEMAND, &victim);
}

/* Returns the index of a missing expert that is not processed yet (slot -1): the first, or (max) the one with most tokens;
 * -1: none. */
static int next_missing(const struct run *r, int count, bool max)
{
    int next = -1;
    for (int i = 0; i < count; i++)
        if (r->slot[i] == -1 && (next < 0 || (max && r->tokens[i] > r->tokens[next])))
            next = i;
    return next;
}

static double run_by_fetching(struct run *r, int layer, int count, bool greedy)
{
    double fast = r->now, slow = r->now, busy = 0, last = 0, waiting = 0;      /* waiting: seconds of computing that follow
                                                                                * the last demanded expert */
    for (int coming = 0; coming < 2; coming++)          /* first the resident experts, then the one in flight */
        for (int i = 0; i < count; i++)
            if (r->slot[i] >= 0 && (r->slot[i] == r->on_the_way) == coming) {
                const double time = fast_time(r, r->tokens[i]);
                fast = (coming ? fmax(fast, r->arrives) : fast) + time;
                note(r, LANE_FAST, layer, fast - time, fast);
                busy += time;
            }
    for (int i; (i = next_missing(r, count, greedy)) >= 0;) {
        double asked = r->system->overlaps ? r->now : fast, there = fmax(asked + r->latency_s, r->link_free) + r->transfer_s;
        double sooner = slow + slow_time(r, r->tokens[i]);
        if (greedy && sooner <= fmax(fast, there) + fast_time(r, r->tokens[i]))
            slow = sooner;
        else {
            double time = fast_time(r, r->tokens[i]);
            last = demand(r, asked, layer, 1);
            fast = r->machine->together ? fast : fmax(fast, last) + time;
            if (!r->machine->together)
                note(r, LANE_FAST, layer, fast - time, fast);
            waiting += r->machine->together ? time : 0;
            busy += time;
            keep(r, layer, i);
        }
        r->slot[i] = r->slot[i] < 0 ? -2 : r->slot[i];
    }
    if (waiting > 0) {
        fast = fmax(fast, last) + waiting;
        note(r, LANE_FAST, layer, fast - waiting, fast);
    }
    if (slow > r->now)
        slow += r->machine->slow.join_s;
    note(r, LANE_SLOW, layer, r->now, slow);
    double end = fmax(fast, slow);
    r->result.fast_s += busy;
    r->result.slow_s += slow - r->now;
    r->result.stall_s += end - r->now - busy;
    return end;
}

/* Computes experts as the store makes them available. The next layer's router runs once this layer's experts are
 * requested. */
static int run_by_store(struct run *r, const struct simulated_step *step, int layer, int count, struct err *err)
{
    struct expert_union wanted = {.count = count, .expert = r->expert, .tokens = r->tokens, .part = true};
    double *now = &r->link.clock;
    *now = r->now;
    while (wanted.done < count) {
        const double asked = *now;
        if (schedule_acquire(&r->store, layer, &wanted, err))
            return -1;
        r->result.stall_s += *now - asked;
        if (!wanted.done && r->system->prefetch == PREFETCH_NEXT_LAYER && layer + 1 < r->routes->layers) {
            forecast_layer(r, step, layer + 1);
            if (schedule_prefetch(&r->store, layer, NULL, NULL, 0, err))
                return -1;
        }
        for (int i = wanted.done; i < wanted.done + wanted.held; i++) {
            const double time = fast_time(r, wanted.tokens[i]);
            r->result.fast_s += time;
            note(r, LANE_FAST, layer, *now, *now + time);
            *now += time;
        }
        schedule_release(&r->store, &wanted);
    }
    r->now = *now;
    return 0;
}

static double run_by_layers(struct run *r, int layer, int count)
{
    double start = r->now, fast = 0;
    if (cache_find(r->cache, layer, r->expert[0]) < 0)
        start = demand(r, r->now, layer, r->routes->experts);
    for (int i = 0; i < count; i++)
        fast += fast_time(r, r->tokens[i]);
    note(r, LANE_FAST, layer, start, start + fast);
    r->result.fast_s += fast;
    r->result.stall_s += start - r->now;
    return start + fast;
}

/* ---- tau */

static void balance(struct run *r, int layer, int count)
{
    int32_t fetches[BALANCE_LEVELS + 1];
    const int cold = balance_fetches(r->cache, r->states, r->K, layer, r->routes->experts, r->slots, fetches);
    const struct balance b = {
        .K = r->K, .draft_length = r->machine->draft_length, .top_k = r->routes->top_k, .distinct = count,
        .cpu_unit = r->pairs ? r->pair_s / r->pairs : r->machine->slow.expert_s,
        .gpu_unit = r->experts ? r->expert_s / r->experts : r->machine->fast.expert_s, .io_unit = r->transfer_s,
        .draft_unit = r->machine->draft_s, .layers = r->routes->layers, .expert_bytes = r->machine->expert_bytes,
        .bytes_left = cold * r->machine->expert_bytes, .shares = &r->shares[layer], .fetches = fetches};
    cache_threshold(r->cache, balance_tau(&b));
}

static int decide(struct run *r, int layer, int count, struct err *err)
{
    const struct expert_union wanted = {.expert = r->expert, .tokens = r->tokens, .count = count};
    double start = clock_seconds();
    int first = layer * r->routes->experts;
    if (r->system->balances)
        balance_learn(&r->shares[layer], r->K, r->expert, r->tokens, count, &r->states[first].level, sizeof *r->states);
    if (!r->stores)
        cache_want(r->cache, layer, r->expert, r->tokens, count);
    else if (schedule_want(&r->store, layer, &wanted, r->tier, err))
        return -1;
    if (r->system->balances)
        balance(r, layer, count);
    r->result.decide_us += 1e6 * (clock_seconds() - start);
    return 0;
}

/* Simulates one layer. Resident experts are held during the layer, so that inserting the missing ones cannot evict them. An
 * expert in flight is a hit only for the store. */
static int run_layer(struct run *r, const struct simulated_step *step, int layer, struct err *err)
{
    note(r, LANE_FAST, layer, r->now, r->now + r->machine->layer_s);
    r->now += r->machine->layer_s;
    if (!r->stores)
        run_prefetches(r, r->now);
    int count = simulated_routes_want(r->routes, step, layer, r->expert, r->tokens, r->often);
    if (!count)
        return 0;
    r->result.wanted += count;
    if (decide(r, layer, count, err))
        return -1;
    if (r->stores)
        return run_by_store(r, step, layer, count, err);
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
    if (r->system->prefetch == PREFETCH_NEXT_LAYER && layer + 1 < r->routes->layers)
        forecast_layer(r, step, layer + 1);
    double end = r->system->misses == MISSES_SLOW ? run_on_slow(r, layer, count)
               : r->system->misses == MISSES_WHOLE ? run_by_layers(r, layer, count)
               : run_by_fetching(r, layer, count, r->system->misses == MISSES_GREEDY);
    run_prefetches(r, end);
    for (int i = 0; i < count; i++)
        if (r->slot[i] >= 0)
            cache_release(r->cache, r->slot[i]);
    r->now = end;
    return 0;
}

static int draft(struct run *r, const struct simulated_step *step, struct err *err)
{
    for (int token = 0; token + 1 < step->tokens; token++) {
        note(r, LANE_FAST, -1, r->now, r->now + r->machine->draft_s);
        r->now += r->machine->draft_s;
        r->result.draft_s += r->machine->draft_s;
        if (!r->stores)
            run_prefetches(r, r->now);
        if (r->system->prefetch == PREFETCH_DRAFT && r->machine->recall_draft > 0)
            forecast_token(r, step, token);
        r->link.clock = r->now;
        if (r->system->prefetch == PREFETCH_DRAFT && r->stores && schedule_prefetch(&r->store, 0, NULL, NULL, 0, err))
            return -1;
    }
    return 0;
}

static int run_step(struct run *r, const struct simulated_step *step, struct err *err)
{
    const bool asks = r->forecast, late = asks && r->forecast->class->reads_tokens;
    if ((asks && !late && ask_source(r, step, 1, err)) || draft(r, step, err) ||
        (late && ask_source(r, step, step->tokens, err)))
        return -1;
    r->drafted = r->now;
    if (r->stores)
        schedule_begin(&r->store, step->tokens, EXPERTS_VERIFY, false);
    else
        cache_step(r->cache, step->tokens, CACHE_VERIFIES);
    for (int layer = 0; layer < r->routes->layers; layer++) {
        if (run_layer(r, step, layer, err))
            return -1;
        if (r->trace)
            r->trace->layer_end[layer] = r->now - r->drafted;
    }
    r->now += r->machine->forward_s;
    if (!r->stores)
        run_prefetches(r, r->now);
    if (r->forecast)
        teach_source(r, step);
    r->result.tokens += step->kept;
    r->result.forwards++;
    return 0;
}

/* ---- pins, and a whole run ---- */

struct often { int64_t count; int32_t key; };

static int by_frequency(const void *a, const void *b)
{
    const struct often *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count) - (x->count > y->count) : (x->key > y->key) - (x->key < y->key);
}

/* Returns the pinned experts for these routes, [*count], which the caller frees; NULL on failure. */
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
    qsort(often, keys, sizeof *often, by_frequency);
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
            rc = err_set(err, ERR_INPUT, "fast memory holds %d experts, fewer than one layer has; give more (--cached)",
                         r->slots);
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
    r->score = mem_alloc(experts, sizeof *r->score, err);
    return r->expert && r->tokens && r->often && r->slot && r->ahead && r->ahead_tokens && r->shares && r->score ? 0 : -1;
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
    mem_free(&r->score);
    schedule_free(&r->store);
    mem_free(&r->read_bytes);
    mem_free(&r->tier);
    forecast_close(&r->forecast);
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

static struct simulated_machine machine_of(const struct simulated_machine *machine, const struct simulated_system *system)
{
    return system->prefetch == PREFETCH_DRAFT ? simulated_machine_copied(machine) : *machine;
}

int simulate_possible(const struct simulation *simulation, const char *text, struct err *err)
{
    const struct simulated_machine *machine = simulation->machine;
    const struct simulated_routes *routes = simulation->drafted;
    const struct simulated_system *system;
    const char *settings;
    if (find_system(&system, text, &settings, err))
        return -1;
    const struct simulated_machine with = machine_of(machine, system);
    const int slots = simulated_machine_slots(&with, routes->layers, routes->experts);
    if (!machine->has_slow && (system->misses == MISSES_SLOW || system->misses == MISSES_GREEDY))
        return err_set(err, ERR_INPUT, "%s: this system computes experts on a slow processor, but the machine has none; "
                       "choose another system, or add \"slow\" to the machine", system->name);
    if (slots < routes->top_k && system->prefetch == PREFETCH_DRAFT && machine->has_copy)
        return err_set(err, ERR_INPUT, "%s: its draft model, a copy of the target, takes %g %% of the experts' bytes and "
                       "leaves fast memory for %d experts, but one token uses %d; give more (--cached)", system->name,
                       100 * machine->copy_share, slots, routes->top_k);
    if (slots < routes->top_k)
        return err_set(err, ERR_INPUT, "fast memory holds %d experts, but one token uses %d; give more (--cached)", slots,
                       routes->top_k);
    return 0;
}

static void note_read(void *context, int slot, double from, double to)
{
    struct run *r = context;
    note(r, LANE_LINK, cache_key(r->cache, slot) / r->routes->experts, from, to);
}

static int open_store(struct run *r, const char *source, struct err *err)
{
    const struct simulated_routes *routes = r->routes;
    const struct forecast_setup setup = {routes->layers, routes->experts, routes->top_k, routes->vocab,
                                         r->machine->draft_length};
    r->stores = r->machine->together && r->system->misses == MISSES_FETCH && r->system->keeps && r->system->overlaps;
    if (source && !r->machine->together)
        return err_set(err, ERR_INPUT, "--prefetch: the machine's link transfers experts one at a time; describe it with "
                       "\"together\": true");
    if (source && (!r->stores || (r->system->prefetch != PREFETCH_NONE && r->system->prefetch != PREFETCH_POLICY)))
        return err_set(err, ERR_INPUT, "--prefetch: the system %s does not prefetch forecast experts; choose lru-fetch, "
                       "lfu-fetch or utility-fetch", r->system->name);
    if ((source && forecast_open(&r->forecast, source, &setup, err)) ||
        !(r->tier = mem_alloc((size_t)routes->experts, sizeof *r->tier, err)) ||
        !(r->read_bytes = mem_alloc((size_t)routes->layers, sizeof *r->read_bytes, err)))
        return -1;
    for (int layer = 0; layer < routes->layers; layer++)
        r->read_bytes[layer] = 1;
    r->link = (struct simulated_link){.latency_s = r->latency_s, .note = note_read, .context = r};
    for (int reads = 1; reads <= SCHEDULE_READS; reads++)
        r->link.all_s[reads] = reads * (r->machine->expert_bytes / simulated_machine_speed(r->machine, reads) +
                                        r->machine->latency_s - r->latency_s);
    r->store = (struct schedule){
        .transfers = &simulated_link_transfers, .context = &r->link, .cache = r->cache, .layers = routes->layers,
        .experts = routes->experts, .slots = cache_slots(r->cache), .prefetches_max = SCHEDULE_PREFETCHES,
        .bytes = r->read_bytes};
    return r->stores ? schedule_open(&r->store, err) : 0;
}

static int end_trace(struct run *r, double began, struct err *err)
{
    struct simulated_trace *trace = r->trace;
    trace->began = began - r->drafted;
    trace->end = r->now - r->drafted;
    for (size_t i = 0; i < trace->count; i++) {
        trace->span[i].from -= r->drafted;
        trace->span[i].to -= r->drafted;
    }
    r->trace = NULL;
    return r->out_of_memory ? err_memory(err) : 0;
}

static int run_steps(struct run *r, const struct simulation *simulation, struct err *err)
{
    const struct simulated_routes *routes = r->routes;
    for (size_t i = 0; i < routes->steps; i++) {
        const bool text = !i || routes->step[i].text != routes->step[i - 1].text;
        if (text)
            cache_begin(r->cache);
        if (text && r->forecast && r->forecast->class->begin)
            r->forecast->class->begin(r->forecast);
        const double began = r->now;
        struct simulated_trace *trace = simulation->trace && simulation->trace->step == i ? simulation->trace : NULL;
        r->trace = trace;
        if (run_step(r, &routes->step[i], err))
            return -1;
        if (trace && end_trace(r, began, err))
            return -1;
    }
    r->result.hits += r->store.facts.hits;
    r->result.fetched += r->store.facts.bytes - r->store.facts.prefetched;
    r->result.prefetched += r->store.facts.prefetched;
    return 0;
}

int simulate_run(struct simulated_result *out, const struct simulation *simulation, const char *text, struct err *err)
{
    struct run r = {.on_the_way = -1, .chance = simulation->seed};
    const char *settings;
    int key, victim, slot, rc = -1;
    if (find_system(&r.system, text, &settings, err))
        return -1;
    const struct simulated_machine machine = machine_of(simulation->machine, r.system);
    r.machine = &machine;
    r.routes = r.system->drafts ? simulation->drafted : simulation->undrafted;
    r.slots = simulated_machine_slots(r.machine, r.routes->layers, r.routes->experts);
    r.latency_s = r.machine->at_once ? r.machine->latency_s : 0;
    r.transfer_s = r.machine->expert_bytes / r.machine->bytes_per_second + r.machine->latency_s - r.latency_s;
    if (simulate_possible(simulation, text, err) || open_cache(&r, settings, err) || make_room(&r, err) ||
        open_store(&r, simulation->prefetch, err))
        goto done;
    if (r.system->balances && !r.states) {
        err_set(err, ERR_INPUT, "%s: balances by utility levels, which its cache policy does not have; choose the policy "
                "utility", r.system->name);
        goto done;
    }
    for (; r.system->pins && (slot = cache_fetch(r.cache, &key, &victim)) >= 0;)       /* before the clock starts */
        cache_release(r.cache, slot);
    if (run_steps(&r, simulation, err))
        goto done;
    r.result.seconds = r.now;
    r.result.source = r.system->source;
    r.result.cached = machine.cached;
    r.result.wasted = cache_counts(r.cache).wasted;
    r.result.decide_us /= r.result.forwards;
    snprintf(r.result.system, sizeof r.result.system, "%s", text);
    *out = r.result;
    rc = 0;
done:
    run_free(&r);
    return rc;
}

/* ---- the upper bound ---- */

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

/* Inserts all experts that one layer needs; those without a slot beside the others of this layer are used once and not kept.
 * With a bypass none must stay resident together: at the end those are resident that are needed soonest. */
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

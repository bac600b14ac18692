/* Cache policies are compared with their definitions: Algorithm 1 stepped in Python (tests/golden/cache/make.py), Belady
 * with every other choice of victims; pins, heat and tags with plain lists. */
#include <math.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/cache/balance.h"
#include "common/cache/utility.h"
#include "tests/unit/distribution.h"
#include "tests/unit/unit.h"

static struct cache *open_cache(const char *text, const struct cache_setup *setup)
{
    struct cache *cache = NULL;
    struct err err = {0};
    if (cache_open(&cache, text, setup, &err))
        fail_msg("%s", err.text);
    return cache;
}

/* Runs one turn of a layer as an engine does that computes all requested experts from slots; returns the number of hits. */
static int turn(struct cache *cache, int layer, const int32_t *expert, int count)
{
    int slot[64], victim, hits = 0;
    int32_t tokens[64] = {0};
    for (int i = 0; i < count; i++)
        tokens[i] = 1;
    cache_want(cache, layer, expert, tokens, count);
    for (int i = 0; i < count; i++)
        if ((slot[i] = cache_find(cache, layer, expert[i])) >= 0) {
            cache_hold(cache, slot[i]);
            hits++;
        }
    for (int i = 0; i < count; i++)
        if (slot[i] < 0)
            assert_true((slot[i] = cache_insert(cache, layer, expert[i], CACHE_DEMAND, &victim)) >= 0);
    for (int i = 0; i < count; i++)
        cache_release(cache, slot[i]);
    return hits;
}

/* ---- Algorithm 1 */

static void check_states(const json_t *line)
{
    char text[200];
    int gamma = (int)json_integer_value(json_object_get(line, "gamma")), K;
    const json_t *frequencies = json_object_get(line, "frequencies"), *states = json_object_get(line, "states");
    snprintf(text, sizeof text, "utility:%s", json_string_value(json_object_get(line, "policy")));
    struct cache_setup setup = {.layers = 2, .experts = 3, .slots = 3, .top_k = 1, .draft_length = gamma};
    struct cache *cache = open_cache(text, &setup);
    for (size_t t = 0; t < json_array_size(frequencies); t++) {
        int32_t expert = 1, tokens = (int32_t)json_integer_value(json_array_get(frequencies, t));
        const json_t *state = json_array_get(states, t);
        int K_here;
        if (t % 7 == 3) {                   /* a prompt between verifications changes no level */
            cache_step(cache, 99, CACHE_PROMPT);
            cache_want(cache, 1, &expert, &(int32_t){77}, 1);
        }
        cache_step(cache, gamma + 1, CACHE_VERIFIES);
        cache_want(cache, 0, NULL, NULL, 0);
        cache_want(cache, 1, &expert, &tokens, tokens > 0);
        const struct utility_expert *at = cache_utility_states(cache, &K_here) + 3 + 1;
        K = K_here;
        assert_true(K >= 1);
        assert_int_equal(at->level, json_integer_value(json_array_get(state, 0)));
        assert_true(fabs(at->up - json_number_value(json_array_get(state, 1))) < 1e-9);
        assert_true(fabs(at->down - json_number_value(json_array_get(state, 2))) < 1e-9);
    }
    cache_close(&cache);
}

static void states_are_those_of_the_printed_lines(void **state)
{
    (void)state;
    struct err err = {0};
    struct text text = {0};
    json_error_t fault;
    char path[1200];
    int lines = 0;
    snprintf(path, sizeof path, "%s/../golden/cache/utility.jsonl", unit_models());
    if (file_read(&text, path, 1 << 20, &err))
        fail_msg("%s", err.text);
    for (char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1, lines++) {
        json_t *line = json_read(at, (size_t)(end - at), 0, &fault);
        assert_non_null(line);
        check_states(line);
        json_decref(line);
    }
    assert_int_equal(lines, 60);
    text_free(&text);
}

/* With the paper's lambda and gamma no change is large enough to raise a floored boundary, wherever it is. */
static void the_printed_floor_never_lets_a_boundary_rise(void **state)
{
    (void)state;
    const struct utility_rule printed = {.K = 4, .lambda = 100000, .boundaries = UTILITY_FLOOR};
    for (int boundary = 1; boundary <= 9; boundary++)
        for (int before = 0; before <= 9; before++)
            for (int now = 0; now <= 9; now++) {
                struct utility_expert e = {.before = before, .up = boundary, .down = boundary};
                utility_step(&printed, &e, now);
                assert_true(e.up <= boundary && e.down <= boundary);
            }
    struct utility_rule real = printed;
    real.boundaries = UTILITY_REAL;
    struct utility_expert floored = {.up = 4, .down = 4}, free = floored;
    double up[4] = {0};
    for (int step = 0, falls = 0; step < 40; step++) {          /* 0, 9, 0, 9, ...: the largest possible fluctuation */
        utility_step(&printed, &floored, step % 2 * 9);
        utility_step(&real, &free, step % 2 * 9);
        if (falls < 4 && (!falls || floored.up < up[falls - 1]))
            up[falls++] = floored.up;
    }
    assert_true(floored.up == 4 && floored.down == 4);          /* boundaries do not follow */
    assert_true(free.up > 8 && free.down > 8);                  /* these do */
    for (int step = 0; step < 40; step++)                       /* 0, 1, 0, 1, ...: small fluctuation */
        utility_step(&printed, &floored, step % 2);
    assert_true(floored.up == 1 && floored.down == 1);
    for (int step = 0; step < 1000; step++)
        utility_step(&printed, &floored, step % 2 * 9);
    assert_true(floored.up == 1 && floored.down == 1);          /* 4, 3, 2, 1, where they stay */
}

/* ---- Belady */

enum { STEPS = 9, GROUP = 3, FEW = 6 };

/* Returns the fewest misses over all choices of victims from this group on, with these residents. With a bypass, requested
 * experts need not become resident. */
static int fewest(const uint8_t *group, int at, int residents, int slots, bool bypass, int8_t *known)
{
    int best = 99, wanted = at < STEPS ? group[at] : 0, with = residents | wanted;
    if (at == STEPS)
        return 0;
    if (known[at * 64 + residents])
        return known[at * 64 + residents] - 1;
    for (int keep = 0; keep < 64; keep++)           /* all of the group, and as many of the others as fit */
        if ((bypass || (keep & wanted) == wanted) && !(keep & ~with) && __builtin_popcount(keep) <= slots) {
            int rest = fewest(group, at + 1, keep, slots, bypass, known);
            best = rest < best ? rest : best;
        }
    best += __builtin_popcount(wanted & ~residents);
    known[at * 64 + residents] = (int8_t)(best + 1);
    return best;
}

static int misses_of(const char *policy, const struct cache_setup *setup, const uint8_t *group)
{
    struct cache *cache = open_cache(policy, setup);
    int misses = 0;
    for (int at = 0; at < STEPS; at++) {
        int32_t expert[FEW];
        int count = 0;
        for (int e = 0; e < FEW; e++)
            if (group[at] >> e & 1)
                expert[count++] = e;
        misses += count - turn(cache, 0, expert, count);
    }
    struct values values = {0};
    cache_state(cache, &values);
    assert_int_equal(values_number(&values, "strayed", 0), 0);
    cache_close(&cache);
    return misses;
}

static int misses_with_bypass(const struct cache_setup *setup, const uint8_t *group)
{
    struct cache *cache = open_cache("belady", setup);
    int slot, victim;
    for (int at = 0; at < STEPS; at++) {
        int32_t expert[FEW], tokens[FEW] = {0};
        int count = 0;
        for (int e = 0; e < FEW; e++)
            if (group[at] >> e & 1)
                expert[count++] = e;
        cache_want(cache, 0, expert, tokens, count);
        for (int i = 0; i < count; i++)
            if (cache_find(cache, 0, expert[i]) < 0 &&
                (slot = cache_insert(cache, 0, expert[i], CACHE_DEMAND, &victim)) >= 0)
                cache_release(cache, slot);
    }
    int misses = (int)(cache_counts(cache).wanted - cache_counts(cache).hits);
    cache_close(&cache);
    return misses;
}

static void belady_has_as_few_misses_as_any_choice(void **state)
{
    (void)state;
    int better = 0;
    for (uint64_t seed = 0; seed < (unit_brief() ? 30 : 400); seed++) {
        struct random random = {seed};
        uint8_t group[STEPS];
        int32_t key[STEPS * FEW];
        static int8_t known[STEPS * 64];
        struct cache_future future = {.key = key};
        memset(known, 0, sizeof known);
        int slots = GROUP + seed % 3;
        for (int at = 0; at < STEPS; at++) {
            do
                group[at] = random_word(&random) % 64;
            while (!group[at] || __builtin_popcount(group[at]) > GROUP);
            for (int e = FEW - 1; e >= 0; e--)      /* the order within a group does not matter */
                if (group[at] >> e & 1)
                    key[future.count++] = e;
        }
        struct cache_setup setup = {.layers = 1, .experts = FEW, .slots = slots, .top_k = 1, .draft_length = 2,
                                    .future = &future};
        int fewest_misses = fewest(group, 0, 0, slots, false, known);
        assert_int_equal(misses_of("belady", &setup, group), fewest_misses);
        better += misses_of("lru", &setup, group) > fewest_misses;
        memset(known, 0, sizeof known);
        setup.elsewhere = true;
        setup.slots -= 2;                   /* fewer slots than a group needs */
        assert_int_equal(misses_with_bypass(&setup, group), fewest(group, 0, 0, setup.slots, true, known));
    }
    assert_true(better > 10);
}

static void belady_says_when_it_is_no_bound(void **state)
{
    (void)state;
    struct cache_future future = {.key = (int32_t[]){0, 1, 2}, .count = 3};
    struct cache_setup setup = {.layers = 1, .experts = 4, .slots = 2, .top_k = 1, .future = &future};
    struct cache *cache = open_cache("belady", &setup);
    struct values values = {0};
    turn(cache, 0, (int32_t[]){0, 1}, 2);
    turn(cache, 0, (int32_t[]){3}, 1);
    cache_state(cache, &values);
    assert_int_equal(values_number(&values, "strayed", 0), 1);
    cache_close(&cache);
    struct err err = {0};
    setup.future = NULL;
    assert_int_equal(cache_open(&cache, "belady", &setup, &err), -1);
    assert_non_null(strstr(err.text, "recorded routes"));
}

/* ---- pins and heat */

static int fetch_all(struct cache *cache, int *keys)
{
    int key, victim, slot, count = 0;
    while ((slot = cache_fetch(cache, &key, &victim)) >= 0) {
        keys[count++] = key;
        cache_release(cache, slot);
    }
    return count;
}

static void pins_come_first_and_stay(void **state)
{
    (void)state;
    struct cache_setup setup = {.layers = 2, .experts = 8, .slots = 6, .top_k = 2, .draft_length = 3,
                                .pins = (int32_t[]){9, 3, 9, 0, 15, 7}, .pinned = 6};
    struct cache *cache = open_cache("static", &setup);
    int keys[16];
    assert_int_equal(fetch_all(cache, keys), 3);            /* half of the slots are for pins: 9, 3, 0 */
    assert_true(keys[0] == 0 && keys[1] == 3 && keys[2] == 9);
    for (int i = 0; i < 30; i++)
        turn(cache, i % 2, (int32_t[]){i % 5 + 1, i % 5 + 2, i % 5 + 3}, 3);
    assert_true(cache_find(cache, 0, 0) >= 0 && cache_find(cache, 0, 3) >= 0 && cache_find(cache, 1, 1) >= 0);
    cache_close(&cache);
    cache = open_cache("static:reserve=4", &setup);
    assert_int_equal(fetch_all(cache, keys), 2);
    cache_close(&cache);
    setup.elsewhere = true;                                 /* pins alone */
    cache = open_cache("static", &setup);
    assert_int_equal(fetch_all(cache, keys), 5);
    int victim;
    assert_true(cache_insert(cache, 0, 5, CACHE_DEMAND, &victim) >= 0);      /* the sixth slot, which is held */
    assert_int_equal(cache_insert(cache, 0, 6, CACHE_DEMAND, &victim), -1);
    cache_close(&cache);
    struct err err = {0};
    setup.pinned = 0;
    assert_int_equal(cache_open(&cache, "static", &setup, &err), -1);
}

static void heat_halves_and_survives(void **state)
{
    (void)state;
    enum { EXPERTS = 12 };
    struct cache_setup setup = {.layers = 2, .experts = EXPERTS / 2, .slots = 5, .top_k = 1, .draft_length = 3};
    struct random random = {7};
    double heat[EXPERTS] = {0}, weight[EXPERTS];
    bool here[EXPERTS] = {0};
    struct cache *cache = open_cache("hot:half=3", &setup);
    int residents = 0;
    for (int step = 0; step < 4000; step++) {               /* far beyond the scale of heat */
        int key = (int)(random_word(&random) % (step % 1000 < 500 ? EXPERTS / 2 : EXPERTS)), coldest = -1;
        cache_step(cache, 1, CACHE_VERIFIES);
        for (int k = 0; k < EXPERTS; k++)
            heat[k] *= exp2(-1 / 3.0);
        heat[key] += 1;
        if (!here[key]) {
            for (int k = 0; k < EXPERTS; k++)
                if (here[k] && (coldest < 0 || heat[k] < heat[coldest]))
                    coldest = k;
            if (residents < 5)
                residents++;
            else
                here[coldest] = false;
            here[key] = true;
        }
        turn(cache, key / (EXPERTS / 2), (int32_t[]){key % (EXPERTS / 2)}, 1);
        for (int k = 0; k < EXPERTS; k++)
            assert_int_equal(cache_find(cache, k / (EXPERTS / 2), k % (EXPERTS / 2)) >= 0, here[k]);
    }
    assert_true(cache_weights(cache, weight));
    for (int e = 0; e < EXPERTS; e++)
        assert_true(fabs(weight[e] - heat[e]) <= 1e-9 * fmax(1, heat[e]));
    cache_close(&cache);
    int32_t pins[EXPERTS];
    double weights[EXPERTS];
    for (int i = 0; i < EXPERTS; i++) {                     /* by heat, in the order of a hot set */
        int best = -1;
        for (int e = 0; e < EXPERTS; e++)
            if (weight[e] >= 0 && (best < 0 || weight[e] > weight[best]))
                best = e;
        pins[i] = best;
        weights[i] = weight[best];
        weight[best] = -1;
    }
    setup.pins = pins;
    setup.pin_weight = weights;
    setup.pinned = EXPERTS;
    cache = open_cache("hot:half=3", &setup);
    int keys[16];
    assert_int_equal(fetch_all(cache, keys), 5);
    for (int i = 0; i < 5; i++)
        assert_int_equal(keys[i], pins[i]);
    cache_close(&cache);
}

/* ---- what utility fetches and evicts ---- */

struct request { int key, level; long order; };

struct tags {
    int slots, residents, requests;
    bool here[64];
    int tag[64];
    struct request request[64];
    long order;
};

static void ask(struct tags *t, int key, int level)
{
    for (int i = 0; i < t->requests; i++)
        if (t->request[i].key == key) {
            if (t->request[i].level == level)
                return;
            t->request[i] = t->request[--t->requests];
            break;
        }
    t->request[t->requests++] = (struct request){key, level, ++t->order};
}

/* Returns whether an expert is fetched next, with the slot's victim or -1. */
static bool fetch(struct tags *t, int tau, int *key, int *victim)
{
    for (;;) {
        int best = -1;
        for (int i = 0; i < t->requests; i++)
            if (best < 0 || t->request[i].level > t->request[best].level ||
                (t->request[i].level == t->request[best].level && t->request[i].order < t->request[best].order))
                best = i;
        if (best < 0 || t->request[best].level < tau)
            return false;
        struct request r = t->request[best];
        *victim = -1;
        if (!t->here[r.key] && t->residents == t->slots) {
            for (int k = 0; k < 64; k++)
                if (t->here[k] && (*victim < 0 || t->tag[k] < t->tag[*victim]))
                    *victim = k;
            if (t->tag[*victim] >= tau)
                return false;
            t->here[*victim] = false;
            t->residents--;
        }
        t->request[best] = t->request[--t->requests];
        t->tag[r.key] = r.level;
        if (t->here[r.key])
            continue;
        t->here[*key = r.key] = true;
        t->residents++;
        return true;
    }
}

/* Eq. 11 with appendix D: victims are slots that are empty or have tag 0, except those that the current layer uses. */
static void look_by_tags(const struct tags *t, const struct cache *cache, int first, const bool *wanted)
{
    enum { EXPERTS = 16 };
    int K, left = t->slots - t->residents, fetches[8] = {0};
    int32_t got[BALANCE_LEVELS + 1];
    const struct utility_expert *states = cache_utility_states(cache, &K);
    for (int key = 0; key < 64; key++) {
        const bool used = key >= first && key < first + EXPERTS && wanted[key - first];
        left += t->here[key] && !t->tag[key] && !used;
        for (int tau = 1; tau <= K && key / EXPERTS == first / EXPERTS; tau++)
            fetches[tau] += !t->here[key] && states[key].level >= tau;
    }
    assert_int_equal(balance_fetches(cache, states, K, first / EXPERTS, EXPERTS, t->slots, got), left);
    for (int tau = 1; tau <= K; tau++)
        assert_int_equal(got[tau], fetches[tau]);
}

/* Two processors: non-resident experts are computed by the host; some transfers follow each layer. */
static void utility_by_tags(uint64_t seed)
{
    enum { LAYERS = 4, EXPERTS = 16 };
    struct random random = {seed};
    struct tags t = {.slots = 6 + seed % 20};
    struct cache_setup setup = {.layers = LAYERS, .experts = EXPERTS, .slots = t.slots, .top_k = 2, .draft_length = 8,
                                .elsewhere = true};
    struct cache *cache = open_cache("utility", &setup);
    int K, fetched = 0;
    for (int step = 0; step < 80; step++) {
        cache_step(cache, 9, CACHE_VERIFIES);
        for (int layer = 0; layer < LAYERS; layer++) {
            int32_t expert[EXPERTS], tokens[EXPERTS];
            int count = 0, first = layer * EXPERTS, tau = 1 + random_word(&random) % 3, key, victim, key2, victim2;
            bool wanted[EXPERTS] = {0};
            for (int e = 0; e < EXPERTS; e++)
                if (random_word(&random) % 16 < (uint64_t)(e < 5 ? 11 : 2)) {
                    wanted[expert[count] = e] = true;
                    tokens[count++] = 1 + random_word(&random) % 9;
                }
            for (int i = t.requests - 1; i >= 0; i--)
                if (t.request[i].key / EXPERTS == layer)
                    t.request[i] = t.request[--t.requests];
            cache_want(cache, layer, expert, tokens, count);
            const struct utility_expert *states = cache_utility_states(cache, &K) + first;
            for (int e = 0; e < EXPERTS; e++) {
                t.tag[first + e] = wanted[e] ? 0 : states[e].level;
                if (states[e].level)
                    ask(&t, first + e, states[e].level);
            }
            look_by_tags(&t, cache, first, wanted);
            for (int e = 0; e < EXPERTS; e++) {
                int slot = cache_find(cache, layer, e);
                assert_int_equal(slot >= 0, t.here[first + e]);
                if (wanted[e] && slot >= 0) {
                    cache_hold(cache, slot);
                    cache_release(cache, slot);
                }
            }
            cache_threshold(cache, tau);
            for (int i = 0; i < 4; i++) {
                bool more = fetch(&t, tau, &key, &victim);
                int slot = cache_fetch(cache, &key2, &victim2);
                assert_int_equal(slot >= 0, more);
                if (!more)
                    break;
                assert_int_equal(key2, key);
                assert_int_equal(victim2, victim);
                cache_release(cache, slot);
                fetched++;
            }
        }
    }
    assert_true(fetched > 20);
    cache_close(&cache);
}

static void utility_fetches_and_evicts_by_levels(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (unit_brief() ? 5 : 60); seed++)
        utility_by_tags(seed);
}

/* Requested experts stay resident, compared with a list of levels and last uses. */
static void what_is_asked_for_stays(void **state)
{
    (void)state;
    enum { LAYERS = 3, EXPERTS = 10, KEYS = LAYERS * EXPERTS };
    int fetched = 0, refused = 0;
    for (uint64_t seed = 0; seed < (unit_brief() ? 5 : 60); seed++) {
        struct random random = {seed};
        int slots = 4 + seed % 12, residents = 0, level[KEYS] = {0}, rank[KEYS], since[LAYERS] = {0}, clock = 0, key, victim;
        bool here[KEYS] = {0};
        struct cache_setup setup = {.layers = LAYERS, .experts = EXPERTS, .slots = slots, .top_k = 2, .elsewhere = true};
        struct cache *cache = open_cache("ahead", &setup);
        for (int k = 0; k < KEYS; k++)
            rank[k] = k % EXPERTS;
        for (int turn = 0; turn < 90; turn++) {
            int layer = turn % LAYERS, asked = 0, order[8], first = layer * EXPERTS;
            for (int i = 0; i < 6; i++) {           /* highest levels first, so that the queue's order is known */
                int at = (int)(random_word(&random) % KEYS);
                if (level[at])
                    continue;
                cache_ask(cache, at / EXPERTS, at % EXPERTS, level[at] = 3 - i / 2);
                if (!here[at])
                    order[asked++] = at;
            }
            for (int i = 0; i < asked; i++) {
                int lowest = -1;
                for (int k = 0; k < KEYS && residents == slots; k++)
                    if (here[k] && (lowest < 0 || level[k] < level[lowest] ||
                                    (level[k] == level[lowest] &&
                                     (rank[k] > rank[lowest] ||
                                      (rank[k] == rank[lowest] && since[k / EXPERTS] > since[lowest / EXPERTS])))))
                        lowest = k;
                int slot = cache_fetch(cache, &key, &victim);
                if (lowest >= 0 && level[lowest] >= level[order[i]]) {
                    assert_int_equal(slot, -1);
                    refused++;
                    break;
                }
                assert_true(slot >= 0);
                assert_int_equal(key, order[i]);
                if (lowest >= 0) {
                    assert_int_equal(level[victim], level[lowest]);
                    assert_int_equal(rank[victim], rank[lowest]);       /* before any turn, ties go by slot */
                    assert_int_equal(since[victim / EXPERTS], since[lowest / EXPERTS]);
                    here[victim] = false;
                } else
                    residents++;
                here[key] = true;
                fetched++;
                cache_release(cache, slot);
            }
            int32_t expert[2] = {(int32_t)(random_word(&random) % 5), 5 + (int32_t)(random_word(&random) % 5)};
            for (int l = 0; l < LAYERS; l++)        /* each layer has its turn, so that no request remains */
                if (l != layer) {
                    cache_want(cache, l, NULL, NULL, 0);
                    since[l] = ++clock;
                }
            cache_want(cache, layer, expert, (int32_t[]){1, 1}, 2);
            since[layer] = ++clock;
            memset(level, 0, sizeof level);
            for (int i = 0; i < 2; i++) {           /* to the front of its layer's list */
                const int was = rank[first + expert[i]];
                for (int e = 0; e < EXPERTS; e++)
                    rank[first + e] += rank[first + e] < was;
                rank[first + expert[i]] = 0;
            }
        }
        cache_close(&cache);
    }
    assert_true(fetched > 300 && refused > 20);
}

static void settings_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {"utility:K=0", "utility:lambda=2", "utility:tau=5", "utility:boundaries=x",
                                      "utility:evict=no", "hot:half=0", "belady:n=1", "utility:tao=1"};
    struct cache_setup setup = {.layers = 2, .experts = 8, .slots = 6, .top_k = 2, .draft_length = 3};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct cache *cache = NULL;
        struct err err = {0};
        assert_int_equal(cache_open(&cache, bad[i], &setup, &err), -1);
        assert_int_equal(err.code, ERR_INPUT);
        assert_null(cache);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_are_those_of_the_printed_lines),
        cmocka_unit_test(the_printed_floor_never_lets_a_boundary_rise),
        cmocka_unit_test(belady_has_as_few_misses_as_any_choice),
        cmocka_unit_test(belady_says_when_it_is_no_bound),
        cmocka_unit_test(pins_come_first_and_stay),
        cmocka_unit_test(heat_halves_and_survives),
        cmocka_unit_test(utility_fetches_and_evicts_by_levels),
        cmocka_unit_test(what_is_asked_for_stays),
        cmocka_unit_test(settings_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Cache bookkeeping is compared with plain lists that are searched from end to end, and with invariants that hold for every
 * policy. */
#include "tests/unit/distribution.h"
#include "tests/unit/unit.h"

#include "common/cache/cache.h"

enum { KEYS = 256 };

static struct cache *open_cache(const char *text, const struct cache_setup *setup)
{
    struct cache *cache = NULL;
    struct err err = {0};
    if (cache_open(&cache, text, setup, &err))
        fail_msg("%s", err.text);
    return cache;
}

/* Resident experts by key: time of the last request, and number of requests. */
struct naive {
    bool here[KEYS], held[KEYS];
    long last[KEYS], often[KEYS], turn[KEYS], clock;
    int residents, slots, experts;
    int64_t hits;
    bool by_count, global;
};

/* Returns how many experts of its layer were requested after this one. */
static int naive_rank(const struct naive *n, int key)
{
    int first = key - key % n->experts, rank = 0;
    for (int k = first; k < first + n->experts; k++)
        rank += n->last[k] > n->last[key];
    return rank;
}


static bool naive_before(const struct naive *n, int a, int b)
{
    if (n->by_count && n->often[a] != n->often[b])
        return n->often[a] < n->often[b];
    if (n->global)
        return n->last[a] < n->last[b];
    int x = naive_rank(n, a), y = naive_rank(n, b);
    return x != y ? x > y : n->turn[a / n->experts] > n->turn[b / n->experts];
}

/* Returns the victim; -1: none was needed; -2: none may be evicted. */
static int naive_slot(struct naive *n, int key)
{
    int victim = -1;
    if (n->residents == n->slots) {
        for (int k = 0; k < KEYS; k++)
            if (n->here[k] && !n->held[k] && (victim < 0 || naive_before(n, k, victim)))
                victim = k;
        if (victim < 0)
            return -2;
        n->here[victim] = false;
        n->residents--;
    }
    n->here[key] = n->held[key] = true;
    n->residents++;
    return victim;
}

/* Draws distinct experts in ascending order. */
static int draw_experts(struct random *random, int experts, int max, int32_t *expert, int32_t *tokens)
{
    int count = 0;
    for (int e = 0; e < experts && count < max; e++)
        if (random_word(random) % experts < (uint64_t)max / 2 + (e < experts / 4) * (uint64_t)experts / 3) {
            expert[count] = e;
            tokens[count++] = 1 + random_word(random) % 4;
        }
    return count;
}

static void layer_by_lists(struct cache *cache, struct naive *n, int layer, int experts, const int32_t *expert, int count)
{
    int slot[KEYS], victim;
    n->turn[layer] = ++n->clock;
    for (int i = 0; i < count; i++) {
        int key = layer * experts + expert[i];
        n->last[key] = ++n->clock;
        n->often[key]++;
        n->held[key] = n->here[key];
        n->hits += n->here[key];
        slot[i] = cache_find(cache, layer, expert[i]);
        assert_int_equal(slot[i] >= 0, n->here[key]);
        if (slot[i] >= 0)
            cache_hold(cache, slot[i]);
    }
    for (int i = 0; i < count; i++) {
        int key = layer * experts + expert[i];
        if (slot[i] >= 0)
            continue;
        int wanted = naive_slot(n, key);
        slot[i] = cache_insert(cache, layer, expert[i], CACHE_DEMAND, &victim);
        assert_int_equal(slot[i] < 0 ? -2 : victim, wanted);
        if (slot[i] >= 0)
            assert_int_equal(cache_key(cache, slot[i]), key);
    }
    for (int i = 0; i < count; i++)
        if (slot[i] >= 0)
            cache_release(cache, slot[i]);
    memset(n->held, 0, sizeof n->held);
}

static void lists(const char *policy, uint64_t seed, struct naive kind)
{
    struct random random = {seed};
    int layers = 1 + random_word(&random) % 4, experts = 4 + random_word(&random) % 29, top_k = 1 + random_word(&random) % 3;
    int slots = top_k + random_word(&random) % (layers * experts - top_k + 1);
    struct cache_setup setup = {.layers = layers, .experts = experts, .slots = slots, .top_k = top_k, .draft_length = 4};
    struct cache *cache = open_cache(policy, &setup);
    struct naive *n = calloc(1, sizeof *n);
    int64_t wanted = 0;
    *n = kind;
    n->slots = slots;
    n->experts = experts;
    for (int step = 0; step < 50; step++) {
        cache_step(cache, 4, CACHE_VERIFIES);
        for (int layer = 0; layer < layers; layer++) {
            int32_t expert[64], tokens[64];
            int count = draw_experts(&random, experts, top_k * 4, expert, tokens);
            cache_want(cache, layer, expert, tokens, count);
            wanted += count;
            layer_by_lists(cache, n, layer, experts, expert, count);
        }
    }
    assert_int_equal(cache_counts(cache).wanted, wanted);
    assert_int_equal(cache_counts(cache).hits, n->hits);
    free(n);
    cache_close(&cache);
    assert_null(cache);
}

static void lru_is_what_a_list_of_last_uses_says(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (unit_brief() ? 20 : 300); seed++) {
        lists("lru", seed, (struct naive){0});
        lists("lru-global", seed, (struct naive){.global = true});
    }
}

/* Forwards over four layers request the same 12 experts of each layer, and there are 10 slots a layer. With a list per layer
 * all forwards but the first find 10 of 12; with one common list layers evict each other's experts. */
static void a_forward_larger_than_the_cache_leaves_hits_to_lru(void **state)
{
    static const char *const policies[] = {"lru", "lru-global"};
    const struct cache_setup setup = {.layers = 4, .experts = 16, .slots = 40, .top_k = 2};
    int64_t hits[2];
    (void)state;
    for (int p = 0; p < 2; p++) {
        struct cache *cache = open_cache(policies[p], &setup);
        for (int step = 0; step < 20; step++) {
            cache_step(cache, 6, CACHE_VERIFIES);
            for (int layer = 0; layer < 4; layer++) {
                int32_t expert[12], tokens[12];
                int slot, victim;
                for (int i = 0; i < 12; i++)
                    expert[i] = i, tokens[i] = 1;
                cache_want(cache, layer, expert, tokens, 12);
                for (int i = 0; i < 12; i++)
                    if ((slot = cache_find(cache, layer, i)) < 0 &&
                        (slot = cache_insert(cache, layer, i, CACHE_DEMAND, &victim)) >= 0)
                        cache_release(cache, slot);
            }
        }
        hits[p] = cache_counts(cache).hits;
        cache_close(&cache);
    }
    assert_int_equal(hits[0], 19 * 4 * 10);
    assert_true(2 * hits[1] < hits[0]);
}

static void lfu_is_what_a_list_of_counts_says(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < (unit_brief() ? 20 : 300); seed++)
        lists("lfu", seed, (struct naive){.by_count = true});
}

/* Levels are served from high to low, first in, first out; an expert that becomes resident in the meantime is not requested
 * again. */
static void requests_come_by_level_and_in_order(void **state)
{
    (void)state;
    struct cache_setup setup = {.layers = 2, .experts = 8, .slots = 8, .top_k = 2, .draft_length = 4};
    struct cache *cache = open_cache("lru-global", &setup);
    int key, victim, slot;
    cache_ask(cache, 1, 3, 1);
    cache_ask(cache, 1, 4, 2);
    cache_ask(cache, 1, 5, 2);
    cache_ask(cache, 0, 6, 3);
    cache_ask(cache, 0, 7, 1);
    cache_ask(cache, 1, 3, 2);              /* moves from level 1 to the end of level 2 */
    cache_ask(cache, 1, 4, 2);              /* stays where it is */
    cache_want(cache, 0, (int32_t[]){1}, (int32_t[]){1}, 1);        /* the turn of layer 0 is over */
    static const int order[] = {8 + 4, 8 + 5, 8 + 3};
    for (int i = 0; i < 3; i++) {
        slot = cache_fetch(cache, &key, &victim);
        assert_true(slot >= 0);
        assert_int_equal(key, order[i]);
        assert_int_equal(victim, -1);
        assert_int_equal(cache_find(cache, key / 8, key % 8), slot);
        if (i == 0)
            cache_drop(cache, slot);        /* its read failed */
        else
            cache_release(cache, slot);
    }
    assert_int_equal(cache_fetch(cache, &key, &victim), -1);
    assert_int_equal(cache_find(cache, 1, 4), -1);
    cache_want(cache, 1, (int32_t[]){3, 4}, (int32_t[]){1, 1}, 2);
    struct cache_counts counts = cache_counts(cache);
    assert_int_equal(counts.prefetched, 2);
    assert_int_equal(counts.useful, 1);
    assert_int_equal(counts.hits, 1);
    assert_int_equal(counts.wasted, 0);
    for (int i = 0; i < 8; i++) {           /* eight more requests evict 5, which was never used */
        cache_want(cache, 0, (int32_t[]){i}, (int32_t[]){1}, 1);
        slot = cache_insert(cache, 0, i, CACHE_DEMAND, &victim);
        cache_release(cache, slot);
    }
    assert_int_equal(cache_counts(cache).wasted, 1);
    cache_close(&cache);
}

static void refuses(const char *text, struct cache_setup setup, const char *why)
{
    struct cache *cache = NULL;
    struct err err = {0};
    assert_int_equal(cache_open(&cache, text, &setup, &err), -1);
    assert_null(cache);
    assert_int_equal(err.code, ERR_INPUT);
    if (!strstr(err.text, why))
        fail_msg("'%s' does not say '%s'", err.text, why);
}

/* Experts of the protected layer are evicted last, and never for a prefetch; without protection the order is as before. */
static void residents_of_a_kept_layer_go_last(void **state)
{
    static const char *const policies[] = {"lru", "lru-global", "lfu", "hot"};
    (void)state;
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        struct cache *cache = open_cache(policies[p], &(struct cache_setup){.layers = 3, .experts = 4, .slots = 6, .top_k = 2});
        const int32_t expert[] = {0, 1, 2, 3}, tokens[] = {1, 1, 1, 1};
        int victim, key, slot;
        for (int layer = 0; layer < 2; layer++) {
            cache_want(cache, layer, expert, tokens, 3);
            for (int e = 0; e < 3; e++)
                cache_release(cache, cache_insert(cache, layer, e, CACHE_DEMAND, &victim));
        }
        cache_keep(cache, 0);
        for (int e = 0; e < 3; e++) {
            assert_true((slot = cache_insert(cache, 2, e, CACHE_DEMAND, &victim)) >= 0);
            assert_int_equal(victim / 4, 1);
        }
        cache_ask(cache, 1, 0, 1);
        assert_int_equal(cache_fetch(cache, &key, &victim), -1);
        assert_true((slot = cache_insert(cache, 2, 3, CACHE_DEMAND, &victim)) >= 0);
        assert_int_equal(victim / 4, 0);
        cache_keep(cache, -1);
        if (p != 3)                     /* hot keeps experts that are hotter than the prefetched one */
            assert_true(cache_fetch(cache, &key, &victim) >= 0 && key == 4 && victim / 4 == 0);
        cache_close(&cache);
    }
}

/* Whichever resident is the only one of another layer, it is evicted before those of the protected layer. */
static void the_only_other_resident_goes_first(void **state)
{
    enum { SLOTS = 9 };
    (void)state;
    for (int slots = 2; slots <= SLOTS; slots++)
        for (int other = 0; other < slots; other++) {
            struct cache *cache = open_cache("lru-global", &(struct cache_setup){.layers = 3, .experts = SLOTS, .slots = slots,
                                                                                 .top_k = 2});
            int victim;
            for (int e = 0; e < slots; e++) {
                const int layer = e == other;
                const int32_t expert = e, tokens = 1;
                cache_want(cache, layer, &expert, &tokens, 1);
                cache_release(cache, cache_insert(cache, layer, e, CACHE_DEMAND, &victim));
            }
            cache_keep(cache, 0);
            assert_true(cache_insert(cache, 2, 0, CACHE_DEMAND, &victim) >= 0);
            assert_int_equal(victim, SLOTS + other);
            cache_close(&cache);
        }
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    struct cache_setup good = {.layers = 2, .experts = 8, .slots = 4, .top_k = 2, .draft_length = 4}, bad = good;
    refuses("nru", good, "nru");
    refuses("lru:n=4", good, "n");
    bad.slots = 1;
    refuses("lru", bad, "experts, but one token uses 2");
    bad = good;
    bad.layers = CACHE_KEYS_MAX;
    refuses("lru", bad, "at most");
    bad = good;
    bad.pins = (int32_t[]){16};
    bad.pinned = 1;
    refuses("lru", bad, "expert 16 does not exist; the model has 16");
    assert_ptr_equal(cache_policy_find("lfu"), &cache_lfu);
    assert_ptr_equal(cache_policy_find(NULL), &cache_lru);
    assert_null(cache_policy_find("nru"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lru_is_what_a_list_of_last_uses_says),
        cmocka_unit_test(a_forward_larger_than_the_cache_leaves_hits_to_lru),
        cmocka_unit_test(lfu_is_what_a_list_of_counts_says),
        cmocka_unit_test(requests_come_by_level_and_in_order),
        cmocka_unit_test(residents_of_a_kept_layer_go_last),
        cmocka_unit_test(the_only_other_resident_goes_first),
        cmocka_unit_test(refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

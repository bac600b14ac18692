/* utility: experts are fetched and evicted by one number, which is learned from verifications (MoE-SpAc, arXiv 2603.09983).
 *
 * After each verification Algorithm 1 gives every expert of the layer a level 0 .. K (utility_rule.h). Experts above level 0
 * are requested, from level K down to tau, first in first out (section 3.4). Residents are tagged with their level, and the
 * lowest tag is evicted first; a prefetch evicts only tags below tau. An expert in use counts as K + 1: it is held. After
 * use its tag is 0 (appendix D): it is evicted next, unless its own request, which finds it resident, is served before. tau
 * comes from the balancer (cache_threshold), or is a setting.
 *
 * Only verifications are learned from: the tokens of a prompt belong to no draft, and a draft model's own forwards do not
 * predict what a verification wants.
 *
 * The ablations of table 4 are settings: K=1 (w/o SpecUE), boundaries=fixed (w/o AdaBC), tau=2 (w/o HetWB), prefetch=no (w/o
 * SG-Prefetcher), evict=no (w/o SG-Evictor: residents are never evicted, even if the cache is full).
 *
 * utility-released is the rule of the program that the authors published (github.com/lshAlgorithm/MoE-SpAc,
 * ggml-backend.cpp): a level changes by comparing f - level with the boundaries 5 (up) and 1 (down); K is 5, tau stays 1,
 * and nothing is balanced. In that program all residents of a layer have tag 0 after its turn until a request for them is
 * served; here residents that were not wanted keep their level meanwhile.
 *
 * Among equal tags the lowest key is evicted first, which belongs to the first layer: its turn comes next. ties=layer is
 * layer-aware: it evicts the resident whose layer had its turn last, since that layer's next turn is furthest away.
 *
 * utility-real is moekit's own: boundaries are real numbers, a resident keeps its level after use, a resident of a lower level
 * is evicted for an expert of a higher level, and among equal levels the least recently used is evicted first, per layer
 * (recency.h). */
#include "common/cache/utility.h"

#include <math.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/cache/recency.h"

enum after { AFTER_ZERO, AFTER_LEVEL };
enum evictable { EVICTABLE_COLD, EVICTABLE_LOWER };
enum ties { TIES_NUMBER, TIES_LAST, TIES_LAYER };
enum rules { RULE_PRINTED, RULE_RELEASED, RULE_REAL };

static const char *const boundary_words[] = {"floor", "real", "fixed", NULL};
static const char *const signal_words[] = {"change", "state", NULL};
static const char *const after_words[] = {"zero", "level", NULL};
static const char *const evictable_words[] = {"cold", "lower", NULL};
static const char *const ties_words[] = {"number", "last", "layer", NULL};
static const char *const yes_words[] = {"no", "yes", NULL};

struct utility {
    struct cache_policy base;
    struct utility_rule rule;
    int keys, experts;
    int after, evictable, ties, prefetch, evict;
    int tau;
    bool tau_given, verifies;
    struct utility_expert *expert;              /* [keys] */
    int32_t *frequency;                         /* [experts] of the current layer; all 0 between calls */
    uint8_t *tag;                               /* [keys] tags of residents */
    bool *used;                                 /* [keys] wanted in the layer's last turn, and not released since */
    struct recency *recency;
    int64_t turns;
    int64_t *turn;                              /* [layers] time of the layer's last turn */
};

/* Default settings of each policy; up and down -1: derived from the draft length, or from fixed boundaries. */
static const struct {
    int K, boundaries, up, down, signal, after, evictable, ties, tau;
} defaults[] = {
    [RULE_PRINTED] = {4, UTILITY_FLOOR, -1, -1, 0, AFTER_ZERO, EVICTABLE_COLD, TIES_NUMBER, 0},
    [RULE_RELEASED] = {5, UTILITY_FIXED, 5, 1, 1, AFTER_ZERO, EVICTABLE_COLD, TIES_NUMBER, 1},
    [RULE_REAL] = {4, UTILITY_REAL, -1, -1, 0, AFTER_LEVEL, EVICTABLE_LOWER, TIES_LAST, 0},
};

static void utility_free(struct cache_policy *policy)
{
    struct utility *u = (struct utility *)policy;
    mem_free(&u->expert);
    mem_free(&u->frequency);
    mem_free(&u->tag);
    mem_free(&u->used);
    recency_close(&u->recency);
    mem_free(&u->turn);
    mem_free(&u);
}

/* Returns the initial value of a boundary that the settings do not give. */
static int boundary(int given, int boundaries, int fixed, int start)
{
    return given >= 0 ? given : boundaries == UTILITY_FIXED ? fixed : start;
}

static int read_settings(struct utility *u, struct spec *spec, const struct cache_setup *setup, enum rules rule,
                         struct err *err)
{
    double lambda;
    int boundaries, signal, start, up, down, half = setup->draft_length / 2;
    if (spec_int(spec, "K", defaults[rule].K, 1, CACHE_LEVELS, &u->rule.K, err) ||
        spec_float(spec, "lambda", 0.1, 0, 1, &lambda, err) ||
        spec_choice(spec, "boundaries", defaults[rule].boundaries, boundary_words, &boundaries, err) ||
        spec_int(spec, "start", half, 0, 1 << 20, &start, err) ||
        spec_int(spec, "up", boundary(defaults[rule].up, boundaries, 3, start), 0, 1 << 20, &up, err) ||
        spec_int(spec, "down", boundary(defaults[rule].down, boundaries, 1, start), 0, 1 << 20, &down, err) ||
        spec_choice(spec, "signal", defaults[rule].signal, signal_words, &signal, err) ||
        spec_choice(spec, "after", defaults[rule].after, after_words, &u->after, err) ||
        spec_choice(spec, "gives", defaults[rule].evictable, evictable_words, &u->evictable, err) ||
        spec_choice(spec, "ties", defaults[rule].ties, ties_words, &u->ties, err) ||
        spec_int(spec, "tau", defaults[rule].tau, 0, u->rule.K, &u->tau, err) ||
        spec_choice(spec, "prefetch", 1, yes_words, &u->prefetch, err) ||
        spec_choice(spec, "evict", 1, yes_words, &u->evict, err))
        return -1;
    u->rule.lambda = (int)lround(1e6 * lambda);
    u->rule.boundaries = boundaries;
    u->rule.state_signal = signal;
    u->tau_given = u->tau > 0;
    u->tau += !u->tau_given;
    u->keys = setup->layers * setup->experts;
    u->experts = setup->experts;
    if (!u->evict && !setup->elsewhere)
        return err_set(err, ERR_INPUT, "evict=no: without eviction, experts that are not in the cache can never be computed; "
                       "leave evict=no out, or use --split");
    u->expert = mem_alloc(u->keys, sizeof *u->expert, err);
    u->frequency = mem_alloc(u->experts, sizeof *u->frequency, err);
    u->tag = mem_alloc(u->keys, sizeof *u->tag, err);
    u->used = mem_alloc(u->keys, sizeof *u->used, err);
    u->turn = mem_alloc(setup->layers, sizeof *u->turn, err);
    if (!u->expert || !u->frequency || !u->tag || !u->used || !u->turn ||
        recency_open(&u->recency, setup->layers, setup->experts, false, err))
        return -1;
    for (int key = 0; key < u->keys; key++) {
        u->expert[key].up = up;
        u->expert[key].down = down;
    }
    return 0;
}

static int open_as(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, enum rules rule,
                   struct err *err)
{
    struct utility *u = mem_alloc(1, sizeof *u, err);
    if (!u)
        return -1;
    if (read_settings(u, spec, setup, rule, err)) {
        utility_free(&u->base);
        return -1;
    }
    *out = &u->base;
    return 0;
}

static int utility_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    return open_as(out, spec, setup, RULE_PRINTED, err);
}

static int utility_released_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    return open_as(out, spec, setup, RULE_RELEASED, err);
}

static int utility_real_open(struct cache_policy **out, struct spec *spec, const struct cache_setup *setup, struct err *err)
{
    return open_as(out, spec, setup, RULE_REAL, err);
}

static bool utility_begin_step(struct cache_policy *policy, int tokens, enum cache_forward forward)
{
    (void)tokens;
    ((struct utility *)policy)->verifies = forward == CACHE_VERIFIES;
    return false;
}

static void utility_want(struct cache_policy *policy, struct cache *cache, int layer, const int32_t *expert,
                         const int32_t *tokens, int count)
{
    struct utility *u = (struct utility *)policy;
    int first = layer * u->experts;
    u->turn[layer] = ++u->turns;
    for (int i = 0; i < count; i++) {
        u->frequency[expert[i]] = tokens[i];
        u->used[first + expert[i]] = true;
    }
    recency_want(u->recency, layer, expert, count);
    for (int e = 0; e < u->experts; e++) {
        struct utility_expert *at = &u->expert[first + e];
        if (u->verifies)
            utility_step(&u->rule, at, u->frequency[e]);
        u->frequency[e] = 0;
        u->tag[first + e] = (uint8_t)at->level;
        if (at->level && u->prefetch)
            cache_ask(cache, layer, e, at->level);
    }
}

static void utility_inserted(struct cache_policy *policy, int key, int level)
{
    struct utility *u = (struct utility *)policy;
    u->tag[key] = (uint8_t)u->expert[key].level;
    if (level)
        u->used[key] = false;               /* not wanted since its request was served, so the next release keeps the tag */
}

static void utility_released(struct cache_policy *policy, int key)
{
    struct utility *u = (struct utility *)policy;
    if (u->used[key] && u->after == AFTER_ZERO)
        u->tag[key] = 0;
    u->used[key] = false;
}

static struct cache_value utility_value(const struct cache_policy *policy, int key)
{
    const struct utility *u = (const struct utility *)policy;
    const int64_t second = u->ties == TIES_LAST ? recency_of(u->recency, key)
                         : u->ties == TIES_LAYER ? -u->turn[key / u->experts] : key;
    return (struct cache_value){u->tag[key], second};
}

/* Returns whether a resident may be evicted: on demand always; by a prefetch only if it is cold, or (EVICTABLE_LOWER) of a
 * lower level than the request. */
static bool utility_may_evict(const struct cache_policy *policy, int victim, int key, int level)
{
    const struct utility *u = (const struct utility *)policy;
    (void)key;
    if (!u->evict)
        return false;
    return !level || u->tag[victim] < u->tau || (u->evictable == EVICTABLE_LOWER && u->tag[victim] < level);
}

static bool utility_may_fetch(const struct cache_policy *policy, int level)
{
    return level >= ((const struct utility *)policy)->tau;
}

static void utility_threshold(struct cache_policy *policy, int tau)
{
    struct utility *u = (struct utility *)policy;
    if (!u->tau_given)
        u->tau = tau < 1 ? 1 : tau > u->rule.K ? u->rule.K : tau;
}

static bool utility_weights(const struct cache_policy *policy, double *weight)
{
    const struct utility *u = (const struct utility *)policy;
    for (int key = 0; key < u->keys; key++)
        weight[key] = u->expert[key].level;
    return true;
}

/* Writes the number of experts at each level, and the means of both boundaries. */
static void utility_state(const struct cache_policy *policy, struct values *out)
{
    const struct utility *u = (const struct utility *)policy;
    int64_t at[CACHE_LEVELS + 1] = {0};
    double up = 0, down = 0;
    for (int key = 0; key < u->keys; key++) {
        at[u->expert[key].level]++;
        up += u->expert[key].up;
        down += u->expert[key].down;
    }
    values_int(out, "tau", u->tau);
    values_real(out, "up", up / u->keys);
    values_real(out, "down", down / u->keys);
    for (int level = 0; level <= u->rule.K && level <= 32; level++) {
        char name[VALUES_KEY];
        snprintf(name, sizeof name, "level%d", level);
        values_int(out, name, at[level]);
    }
}

#define UTILITY_SETTINGS \
    "K=N,lambda=X,boundaries=floor|real|fixed,start=N,up=N,down=N,signal=change|state,after=zero|level,gives=cold|lower," \
    "ties=number|last|layer,tau=N,prefetch=yes|no,evict=yes|no"

#define UTILITY_FUNCTIONS \
    .step = utility_begin_step, .want = utility_want, .inserted = utility_inserted, .released = utility_released, \
    .value = utility_value, .may_evict = utility_may_evict, .may_fetch = utility_may_fetch, .threshold = utility_threshold, \
    .weights = utility_weights, .state = utility_state, .free = utility_free,

const struct cache_policy_class cache_utility = {
    .name = "utility",
    .summary = "by how many tokens of verifications requested an expert: MoE-SpAc's Algorithm 1 as printed",
    .settings = UTILITY_SETTINGS,
    .open = utility_open,
    UTILITY_FUNCTIONS
};

const struct cache_policy_class cache_utility_released = {
    .name = "utility-released",
    .summary = "utility by the rule of the program that MoE-SpAc's authors published",
    .settings = UTILITY_SETTINGS,
    .open = utility_released_open,
    UTILITY_FUNCTIONS
};

const struct cache_policy_class cache_utility_real = {
    .name = "utility-real",
    .summary = "utility with boundaries that adapt both ways, and residents that keep their level",
    .settings = UTILITY_SETTINGS,
    .open = utility_real_open,
    UTILITY_FUNCTIONS
};

const struct utility_expert *cache_utility_states(const struct cache *cache, int *K)
{
    const struct cache_policy *policy = cache_policy_of(cache);
    if (policy->class->free != utility_free)
        return NULL;
    *K = ((const struct utility *)policy)->rule.K;
    return ((const struct utility *)policy)->expert;
}

bool cache_utility_is_free(const struct cache *cache, int key)
{
    const struct utility *u = (const struct utility *)cache_policy_of(cache);
    return !u->tag[key] && !u->used[key];
}

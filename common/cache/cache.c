#include "common/cache/cache.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/cache/queue.h"

const struct cache_policy_class *const cache_policy_classes[] = {
    &cache_lru, &cache_lru_global, &cache_lfu, &cache_static, &cache_hot, &cache_belady, &cache_utility,
    &cache_utility_released, &cache_utility_real, &cache_ahead, NULL};

enum { POLICIES = sizeof cache_policy_classes / sizeof *cache_policy_classes - 1 };

struct slot {
    struct cache_value value;   /* copy of the policy's value by which the heap is ordered */
    int32_t key;                /* -1: empty */
    int32_t held;               /* number of holds */
    int32_t at;                 /* index in the heap; -1: held or empty, so not in the heap */
    bool fetched;               /* prefetched, and not wanted since */
};

struct cache {
    struct cache_policy *policy;
    int layers, experts, slots;
    struct slot *slot;          /* [slots] */
    int32_t *slot_of;           /* [layers * experts] -1: not resident */
    int32_t *heap;              /* [slots] residents without a hold; heap[0] is evicted next */
    int heaped;
    int32_t *empty;             /* [slots] stack of empty slots */
    int empties;
    struct cache_queue *queue;
    uint8_t *expected; /* [layers * experts] number of tokens of the next verification that are expected to want each expert */
    bool *asked;                /* [layers * experts] requested for the next verification */
    bool *kept_out;             /* [layers * experts] see cache_setup; NULL: none */
    enum cache_forward forward; /* kind of the current forward */
    int kept;                   /* the layer whose residents are evicted last; -1: none */
    struct cache_counts counts;
};

/* ---- heap of residents that can be evicted */

static bool is_kept(const struct cache *c, int slot) { return c->kept >= 0 && c->slot[slot].key / c->experts == c->kept; }

static bool evicted_before(const struct cache *c, int a, int b)
{
    const struct cache_value *x = &c->slot[a].value, *y = &c->slot[b].value;
    const bool a_kept = is_kept(c, a), b_kept = is_kept(c, b);
    if (a_kept != b_kept)
        return b_kept;
    if (x->first != y->first)
        return x->first < y->first;
    if (x->second != y->second)
        return x->second < y->second;
    return a < b;
}

static void heap_set(struct cache *c, int at, int slot)
{
    c->heap[at] = slot;
    c->slot[slot].at = at;
}

static void heap_up(struct cache *c, int at)
{
    int slot = c->heap[at];
    while (at && evicted_before(c, slot, c->heap[(at - 1) / 2])) {
        heap_set(c, at, c->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_set(c, at, slot);
}

static void heap_down(struct cache *c, int at)
{
    int slot = c->heap[at];
    for (int child; (child = 2 * at + 1) < c->heaped; at = child) {
        child += child + 1 < c->heaped && evicted_before(c, c->heap[child + 1], c->heap[child]);
        if (!evicted_before(c, c->heap[child], slot))
            break;
        heap_set(c, at, c->heap[child]);
    }
    heap_set(c, at, slot);
}

/* Restores the heap's order after the slot's value has changed. */
static void heap_move(struct cache *c, int slot)
{
    heap_up(c, c->slot[slot].at);
    heap_down(c, c->slot[slot].at);
}

static void heap_add(struct cache *c, int slot)
{
    c->slot[slot].value = c->policy->class->value(c->policy, c->slot[slot].key);
    heap_set(c, c->heaped++, slot);
    heap_up(c, c->heaped - 1);
}

static void heap_remove(struct cache *c, int slot)
{
    int at = c->slot[slot].at, last = c->heap[--c->heaped];
    c->slot[slot].at = -1;
    if (last == slot)
        return;
    heap_set(c, at, last);
    heap_move(c, last);
}

static void update_value(struct cache *c, int slot)
{
    if (slot < 0 || c->slot[slot].at < 0)
        return;
    struct cache_value now = c->policy->class->value(c->policy, c->slot[slot].key);
    if (now.first == c->slot[slot].value.first && now.second == c->slot[slot].value.second)
        return;
    c->slot[slot].value = now;
    heap_move(c, slot);
}

/* ---- open and close */

static int pick(struct spec **spec, const char *text, int *which, struct err *err)
{
    const char *names[POLICIES];
    for (int i = 0; i < POLICIES; i++)
        names[i] = cache_policy_classes[i]->name;
    return spec_parse(spec, text ? text : cache_lru.name, err) ||
           spec_pick(*spec, "a cache policy", names, POLICIES, which, err) ? -1 : 0;
}

const struct cache_policy_class *cache_policy_find(const char *text)
{
    struct spec *spec = NULL;
    struct err err = {0};
    int which;
    const struct cache_policy_class *found = pick(&spec, text, &which, &err) ? NULL : cache_policy_classes[which];
    spec_free(&spec);
    return found;
}

static int setup_check(const struct cache_setup *setup, struct err *err)
{
    if (setup->layers < 1 || setup->experts < 1 || setup->layers > CACHE_KEYS_MAX / setup->experts)
        return err_set(err, ERR_INPUT, "a cache cannot be made for %d layers of %d experts; there must be at least one "
                       "expert, and at most %d in all",
                       setup->layers, setup->experts, (int)CACHE_KEYS_MAX);
    if (setup->top_k < 1 || setup->top_k > setup->experts)
        return err_set(err, ERR_INPUT, "a token uses %d experts, but a layer has %d", setup->top_k, setup->experts);
    if (setup->slots < setup->top_k)
        return err_set(err, ERR_INPUT, "the cache has room for %d experts, but one token uses %d; give it more memory",
                       setup->slots, setup->top_k);
    for (int i = 0; i < setup->pinned; i++)
        if (setup->pins[i] < 0 || setup->pins[i] >= setup->layers * setup->experts)
            return err_set(err, ERR_INPUT, "pinned expert %d does not exist; the model has %d experts", setup->pins[i],
                           setup->layers * setup->experts);
    for (size_t i = 0; setup->future && i < setup->future->count; i++)
        if (setup->future->key[i] < 0 || setup->future->key[i] >= setup->layers * setup->experts)
            return err_set(err, ERR_INPUT, "the recorded routes request expert %d, but the model has only %d",
                           setup->future->key[i],
                           setup->layers * setup->experts);
    return 0;
}

static int make_room(struct cache *c, const struct cache_setup *setup, struct err *err)
{
    int keys = setup->layers * setup->experts;
    c->layers = setup->layers;
    c->experts = setup->experts;
    c->kept = -1;
    c->slots = setup->slots < keys ? setup->slots : keys;
    c->slot = mem_alloc(c->slots, sizeof *c->slot, err);
    c->heap = mem_alloc(c->slots, sizeof *c->heap, err);
    c->empty = mem_alloc(c->slots, sizeof *c->empty, err);
    c->slot_of = mem_alloc(keys, sizeof *c->slot_of, err);
    c->expected = mem_alloc(keys, sizeof *c->expected, err);
    c->asked = mem_alloc(keys, sizeof *c->asked, err);
    if (!c->slot || !c->heap || !c->empty || !c->slot_of || !c->expected || !c->asked || cache_queue_open(&c->queue, keys, err))
        return -1;
    if (setup->kept_out) {
        if (!(c->kept_out = mem_alloc(keys, sizeof *c->kept_out, err)))
            return -1;
        memcpy(c->kept_out, setup->kept_out, keys * sizeof *c->kept_out);
    }
    memset(c->slot_of, -1, keys * sizeof *c->slot_of);
    for (int i = 0; i < c->slots; i++) {
        c->slot[i].key = c->slot[i].at = -1;
        c->empty[c->empties++] = c->slots - 1 - i;
    }
    return 0;
}

int cache_open(struct cache **out, const char *text, const struct cache_setup *setup, struct err *err)
{
    struct spec *spec = NULL;
    struct cache *c = NULL;
    int which, rc = -1;
    if (setup_check(setup, err) || pick(&spec, text, &which, err) || !(c = mem_alloc(1, sizeof *c, err)) ||
        make_room(c, setup, err) || cache_policy_classes[which]->open(&c->policy, spec, setup, err))
        goto done;
    c->policy->class = cache_policy_classes[which];
    if (spec_end(spec, err))
        goto done;
    if (c->policy->class->start)
        c->policy->class->start(c->policy, c);
    *out = c;
    c = NULL;
    rc = 0;
done:
    cache_close(&c);
    spec_free(&spec);
    return rc;
}

void cache_close(struct cache **cache)
{
    struct cache *c = *cache;
    if (!c)
        return;
    if (c->policy)
        c->policy->class->free(c->policy);
    cache_queue_close(&c->queue);
    mem_free(&c->slot);
    mem_free(&c->heap);
    mem_free(&c->empty);
    mem_free(&c->slot_of);
    mem_free(&c->expected);
    mem_free(&c->asked);
    mem_free(&c->kept_out);
    mem_free(cache);
}

/* ---- events */

void cache_begin(struct cache *c)
{
    if (c->policy->class->begin)
        c->policy->class->begin(c->policy);
}

void cache_step(struct cache *c, int tokens, enum cache_forward forward)
{
    c->forward = forward;
    if (!c->policy->class->step || !c->policy->class->step(c->policy, tokens, forward))
        return;
    for (int slot = 0; slot < c->slots; slot++)
        update_value(c, slot);
}

/* Scores the requests for a layer against the experts that it wants, and drops the requests that are left: the layer has its
 * turn. */
static void end_requests(struct cache *c, int first, const int32_t *expert, int count)
{
    if (c->forward == CACHE_DRAFTS)
        return;
    const bool counts = c->forward == CACHE_VERIFIES;
    c->counts.scored += counts ? count : 0;
    for (int i = 0; i < count && counts; i++)
        c->counts.right += c->asked[first + expert[i]];
    for (int key = first; key < first + c->experts; key++) {
        c->counts.named += counts && c->asked[key];
        c->asked[key] = false;
        c->expected[key] = 0;
        cache_queue_remove(c->queue, key);
    }
}

void cache_want(struct cache *c, int layer, const int32_t *expert, const int32_t *tokens, int count)
{
    int first = layer * c->experts;
    c->counts.wanted += count;
    for (int i = 0; i < count; i++) {
        int slot = c->slot_of[first + expert[i]];
        if (slot < 0)
            continue;
        c->counts.hits++;
        c->counts.useful += c->slot[slot].fetched;
        c->slot[slot].fetched = false;
    }
    end_requests(c, first, expert, count);
    if (c->policy->class->want)
        c->policy->class->want(c->policy, c, layer, expert, tokens, count);
    for (int e = 0; e < c->experts; e++)
        update_value(c, c->slot_of[first + e]);
}

int cache_find(const struct cache *c, int layer, int expert) { return c->slot_of[layer * c->experts + expert]; }

int cache_slots(const struct cache *c) { return c->slots; }

bool cache_is_full(const struct cache *c) { return !c->empties; }

bool cache_has_room(const struct cache *c) { return c->empties || c->heaped; }

int cache_key(const struct cache *c, int slot) { return c->slot[slot].key; }

void cache_hold(struct cache *c, int slot)
{
    if (!c->slot[slot].held++)
        heap_remove(c, slot);
}

void cache_release(struct cache *c, int slot)
{
    if (--c->slot[slot].held)
        return;
    if (c->policy->class->released)
        c->policy->class->released(c->policy, c->slot[slot].key);
    heap_add(c, slot);
}

static int insert(struct cache *c, int key, enum cache_reason reason, int level, int *victim)
{
    const struct cache_policy_class *class = c->policy->class;
    int slot;
    *victim = -1;
    if (c->empties)
        slot = c->empty[--c->empties];
    else {
        if (!c->heaped || (reason == CACHE_PREFETCH && is_kept(c, c->heap[0])) ||
            (class->may_evict && !class->may_evict(c->policy, c->slot[c->heap[0]].key, key, level)))
            return -1;
        slot = c->heap[0];
        *victim = c->slot[slot].key;
        c->counts.wasted += c->slot[slot].fetched;
        c->slot_of[*victim] = -1;
        heap_remove(c, slot);
    }
    cache_queue_remove(c->queue, key);
    c->slot[slot] = (struct slot){.key = key, .held = 1, .at = -1, .fetched = reason == CACHE_PREFETCH};
    c->slot_of[key] = slot;
    if (reason == CACHE_PREFETCH)
        c->counts.prefetched++;
    else
        c->counts.inserted++;
    if (class->inserted)
        class->inserted(c->policy, key, level);
    return slot;
}

int cache_insert(struct cache *c, int layer, int expert, enum cache_reason reason, int *victim)
{
    return insert(c, layer * c->experts + expert, reason, 0, victim);
}

void cache_keep(struct cache *c, int layer)
{
    if (layer == c->kept)
        return;
    c->kept = layer;
    for (int at = c->heaped / 2 - 1; at >= 0; at--)
        heap_down(c, at);
}

void cache_drop(struct cache *c, int slot)
{
    c->slot_of[c->slot[slot].key] = -1;
    *(c->slot[slot].fetched ? &c->counts.prefetched : &c->counts.inserted) -= 1;
    c->slot[slot] = (struct slot){.key = -1, .at = -1};
    c->empty[c->empties++] = slot;
}

void cache_ask(struct cache *c, int layer, int expert, int level)
{
    int key = layer * c->experts + expert, max = level < CACHE_LEVELS ? level : CACHE_LEVELS;
    c->asked[key] = true;
    if (c->kept_out && c->kept_out[key])
        return;
    if (c->policy->class->asked) {
        c->policy->class->asked(c->policy, key, max);
        update_value(c, c->slot_of[key]);
    }
    cache_queue_add(c->queue, key, max);
}

void cache_expect(struct cache *c, int layer, int expert, int tokens)
{
    uint8_t *expected = &c->expected[layer * c->experts + expert];
    *expected = (uint8_t)(tokens < CACHE_LEVELS - *expected ? *expected + tokens : CACHE_LEVELS);
    cache_ask(c, layer, expert, *expected);
}

int cache_fetch(struct cache *c, int *key, int *victim)
{
    const struct cache_policy_class *class = c->policy->class;
    for (int level, first; (first = cache_queue_first(c->queue, &level)) >= 0;) {
        if (class->may_fetch && !class->may_fetch(c->policy, level))
            return -1;
        int slot = c->slot_of[first];
        if (slot < 0) {
            slot = insert(c, first, CACHE_PREFETCH, level, victim);
            if (slot >= 0)
                *key = first;
            return slot;
        }
        cache_queue_remove(c->queue, first);
        if (class->inserted)
            class->inserted(c->policy, first, level);
        update_value(c, slot);
    }
    return -1;
}

int cache_asked(const struct cache *c)
{
    int level;
    return cache_queue_first(c->queue, &level);
}

void cache_cancel(struct cache *c, int key) { cache_queue_remove(c->queue, key); }

void cache_threshold(struct cache *c, int tau)
{
    if (c->policy->class->threshold)
        c->policy->class->threshold(c->policy, tau);
}

const struct cache_policy *cache_policy_of(const struct cache *c) { return c->policy; }

struct cache_counts cache_counts(const struct cache *c) { return c->counts; }

void cache_state(const struct cache *c, struct values *out)
{
    values_text(out, "name", c->policy->class->name);
    if (c->policy->class->state)
        c->policy->class->state(c->policy, out);
}

bool cache_weights(const struct cache *c, double *weight)
{
    return c->policy->class->weights && c->policy->class->weights(c->policy, weight);
}

#include "common/route/neighbours.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/counts.h"
#include "common/stream/coact.h"

/* A token's experts of one layer are a bit set of 64-bit words. All counts are sums over experts, so each word can be processed
 * by itself: a lane is one word of the set for a text's last tokens, HISTORY tokens already counted and then the pending ones.
 * */
enum { HISTORY = 1 << (NEIGHBOUR_WIDTHS - 1), BLOCK = 64, LANE = HISTORY + BLOCK };

struct text_state {
    int64_t sequence, tokens;   /* tokens: counted so far */
    int pending;                /* tokens not yet counted, at most BLOCK */
    uint64_t *lanes;            /* [moe_layers][words][LANE] */
};

/* Adds the counts of one lane's pending tokens; see count_any_lane. */
typedef void lane_counter(const uint64_t *lane, int64_t before, int pending, int64_t *distinct, int64_t *common);

struct neighbours {
    struct analysis base;
    int moe_layers, experts, top_k, words;
    int64_t windows[NEIGHBOUR_WIDTHS], pairs[NEIGHBOUR_WIDTHS];
    int64_t *selected;          /* [moe_layers][experts] */
    int64_t *distinct;          /* [moe_layers][widths] summed over windows */
    int64_t *common;            /* [moe_layers][widths] summed over pairs */
    lane_counter *count_lane;
    struct text_state *texts;   /* open texts first; the lanes of closed texts are reused */
    size_t open, room;
};

/* Loops of constant length, which the compiler unrolls into vector instructions. */
#define INLINE static inline __attribute__((always_inline))

INLINE void unite(uint64_t *restrict out, const uint64_t *restrict set, int back)
{
    for (int t = 0; t < LANE; t++)
        out[t] = set[t] | set[t - back];
}

INLINE void intersect(uint64_t *restrict out, const uint64_t *restrict set, int back)
{
    for (int t = 0; t < BLOCK; t++)
        out[t] = set[t] & set[t - back];
}

INLINE int64_t count_bits(const uint64_t *set, int from, int to)
{
    int64_t bits = 0;
    if (from == 0 && to == BLOCK)
        for (int t = 0; t < BLOCK; t++)
            bits += __builtin_popcountll(set[t]);
    else
        for (int t = from; t < to; t++)
            bits += __builtin_popcountll(set[t]);
    return bits;
}

/* Adds to distinct[i] the experts of windows of 2^i tokens that end at a pending token; a window's set is the union of the sets
 * of its halves. Windows that would begin before the text, of which `before` tokens are counted, are skipped. Adds to common[i]
 * the experts shared by pairs of tokens 2^i apart whose second token is pending. */
INLINE void count_any_lane(const uint64_t *lane, int64_t before, int pending, int64_t *distinct, int64_t *common)
{
    uint64_t sets[2][HISTORY + LANE], both[BLOCK];      /* each begins with empty sets, as history of the lane */
    memset(sets[0], 0, HISTORY * sizeof *lane);
    memset(sets[1], 0, HISTORY * sizeof *lane);
    memcpy(sets[0] + HISTORY, lane, LANE * sizeof *lane);
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        int width = 1 << i, skip = before < width - 1 ? (int)(width - 1 - before) : 0;
        const uint64_t *set = sets[i % 2] + HISTORY;
        distinct[i] += count_bits(set + HISTORY, skip, pending);
        intersect(both, lane + HISTORY, width);
        common[i] += count_bits(both, 0, pending);
        unite(sets[(i + 1) % 2] + HISTORY, set, width);
    }
}

static void count_lane(const uint64_t *lane, int64_t before, int pending, int64_t *distinct, int64_t *common)
{
    count_any_lane(lane, before, pending, distinct, common);
}

/* The same with popcnt instructions. */
#if defined(__x86_64__)
__attribute__((target("popcnt"))) static void count_lane_popcnt(const uint64_t *lane, int64_t before, int pending,
                                                                int64_t *distinct, int64_t *common)
{
    count_any_lane(lane, before, pending, distinct, common);
}

__attribute__((target("avx512f,avx512vl,avx512vpopcntdq"))) static void count_lane_avx512(const uint64_t *lane, int64_t before,
                                                                                          int pending, int64_t *distinct,
                                                                                          int64_t *common)
{
    count_any_lane(lane, before, pending, distinct, common);
}

static lane_counter *best_counter(void)
{
    return __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vpopcntdq") ? count_lane_avx512 :
           __builtin_cpu_supports("popcnt") ? count_lane_popcnt : count_lane;
}
#else
static lane_counter *best_counter(void) { return count_lane; }
#endif

static void free_neighbours(struct analysis *analysis)
{
    struct neighbours *n = (struct neighbours *)analysis;
    for (size_t i = 0; i < n->room; i++)
        mem_free(&n->texts[i].lanes);
    mem_free(&n->texts);
    mem_free(&n->selected);
    mem_free(&n->distinct);
    mem_free(&n->common);
    mem_free(&n);
}

static int open_neighbours(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                           struct err *err)
{
    struct neighbours *n = mem_alloc(1, sizeof *n, err);
    (void)setup;
    if (!n)
        return -1;
    size_t layers = (size_t)model->moe_layers;
    n->moe_layers = model->moe_layers;
    n->experts = model->experts;
    n->top_k = model->top_k;
    n->words = (model->experts + 63) / 64;
    n->count_lane = best_counter();
    if (!(n->selected = mem_alloc(layers * (size_t)model->experts, sizeof *n->selected, err)) ||
        !(n->distinct = mem_alloc(layers * NEIGHBOUR_WIDTHS, sizeof *n->distinct, err)) ||
        !(n->common = mem_alloc(layers * NEIGHBOUR_WIDTHS, sizeof *n->common, err))) {
        free_neighbours(&n->base);
        return -1;
    }
    *out = &n->base;
    return 0;
}

static struct text_state *find_text(struct neighbours *n, int64_t sequence)
{
    for (size_t i = 0; i < n->open; i++)
        if (n->texts[i].sequence == sequence)
            return &n->texts[i];
    return NULL;
}

static struct text_state *begin_text(struct neighbours *n, int64_t sequence, struct err *err)
{
    size_t count = (size_t)n->moe_layers * (size_t)n->words * LANE;
    if (mem_grow(&n->texts, &n->room, n->open + 1, sizeof *n->texts, err))
        return NULL;
    struct text_state *text = &n->texts[n->open];
    if (!text->lanes && !(text->lanes = mem_alloc(count, sizeof *text->lanes, err)))
        return NULL;
    memset(text->lanes, 0, count * sizeof *text->lanes);
    text->sequence = sequence;
    text->tokens = text->pending = 0;
    n->open++;
    return text;
}

static void count_pending(struct neighbours *n, struct text_state *text)
{
    uint64_t *lane = text->lanes;
    for (int layer = 0; layer < n->moe_layers; layer++) {
        size_t at = (size_t)layer * NEIGHBOUR_WIDTHS;
        for (int word = 0; word < n->words; word++, lane += LANE) {
            n->count_lane(lane, text->tokens, text->pending, n->distinct + at, n->common + at);
            memmove(lane, lane + text->pending, HISTORY * sizeof *lane);
        }
    }
    text->tokens += text->pending;
    text->pending = 0;
}

static bool part_of_text(const struct route_tokens *record, int token) { return !record->accepted || record->accepted[token]; }

/* Appends the sets of the record's tokens from .. to - 1 in one layer to the pending tokens. */
static void put_sets(struct neighbours *n, const struct text_state *text, const struct route_tokens *record, int layer,
                     int from, int to)
{
    const int16_t *slots = record->experts + ((size_t)from * (size_t)n->moe_layers + (size_t)layer) * (size_t)n->top_k;
    int64_t *selected = n->selected + (size_t)layer * (size_t)n->experts;
    uint64_t *set = text->lanes + (size_t)layer * (size_t)n->words * LANE + HISTORY + text->pending;
    int words = n->words, top_k = n->top_k;
    for (int i = from; i < to; i++, slots += (size_t)n->moe_layers * (size_t)top_k) {
        uint64_t only = 0;      /* the set, if a layer has one word */
        if (!part_of_text(record, i))
            continue;
        for (int word = 0; word < words; word++)
            set[word * LANE] = 0;
        for (int slot = 0; slot < top_k; slot++) {
            int e = slots[slot];
            if (e < 0)
                continue;
            selected[e]++;
            if (words == 1)
                only |= (uint64_t)1 << e;
            else
                set[(size_t)(e / 64) * LANE] |= (uint64_t)1 << e % 64;
        }
        *set++ |= only;
    }
}

static int add_neighbours(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct neighbours *n = (struct neighbours *)analysis;
    struct text_state *text = find_text(n, record->sequence);
    if (n->base.counted > ROUTE_TOKENS_MAX - record->n)
        return err_set(err, ERR_INPUT, "the routes have more than %lld tokens; give fewer streams at a time",
                       (long long)ROUTE_TOKENS_MAX);
    if (!text && !(text = begin_text(n, record->sequence, err)))
        return -1;
    for (int from = 0, to = 0; from < record->n; from = to) {
        int pending = text->pending;
        while (to < record->n && pending < BLOCK)
            pending += part_of_text(record, to++);
        for (int layer = 0; layer < n->moe_layers; layer++)
            put_sets(n, text, record, layer, from, to);
        n->base.counted += pending - text->pending;
        text->pending = pending;
        if (pending == BLOCK)
            count_pending(n, text);
    }
    return 0;
}

static void end_neighbours(struct analysis *analysis, int64_t sequence)
{
    struct neighbours *n = (struct neighbours *)analysis;
    struct text_state *text = find_text(n, sequence);
    if (!text)
        return;
    count_pending(n, text);
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        int64_t width = (int64_t)1 << i;
        n->windows[i] += text->tokens >= width ? text->tokens - width + 1 : 0;
        n->pairs[i] += text->tokens > width ? text->tokens - width : 0;
    }
    n->open--;
    struct text_state closed = *text;
    *text = n->texts[n->open];
    n->texts[n->open] = closed;
}

void neighbours_layer(const struct analysis *analysis, int layer, struct neighbour_width out[NEIGHBOUR_WIDTHS])
{
    const struct neighbours *n = (const struct neighbours *)analysis;
    const int64_t *selected = n->selected + (size_t)layer * (size_t)n->experts;
    double share = (double)n->top_k / n->experts;
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        size_t at = (size_t)layer * NEIGHBOUR_WIDTHS + (size_t)i;
        int width = 1 << i;
        double union_of = 0, both = 0;
        for (int e = 0; e < n->experts; e++) {
            double p = n->base.counted ? (double)selected[e] / (double)n->base.counted : 0;
            union_of += 1 - pow(1 - p, width);
            both += p * p;
        }
        out[i] = (struct neighbour_width){
            .width = width, .windows = n->windows[i], .pairs = n->pairs[i],
            .distinct = n->windows[i] ? (double)n->distinct[at] / (double)n->windows[i] : NAN,
            .distinct_alike = n->experts * (1 - pow(1 - share, width)), .distinct_independent = union_of,
            .common = n->pairs[i] ? (double)n->common[at] / ((double)n->pairs[i] * n->top_k) : NAN,
            .common_alike = share, .common_independent = both / n->top_k };
    }
}

static int put_union(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct neighbours *n = (const struct neighbours *)analysis;
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    int32_t width[NEIGHBOUR_WIDTHS];
    int64_t windows[NEIGHBOUR_WIDTHS];
    double distinct[NEIGHBOUR_WIDTHS], independent[NEIGHBOUR_WIDTHS], alike[NEIGHBOUR_WIDTHS];
    for (int layer = 0; layer < n->moe_layers; layer++) {
        struct coact_union record = { .layer = layer, .tokens = n->base.counted, .points = NEIGHBOUR_WIDTHS, .width = width,
                                      .windows = windows, .distinct = distinct, .independent = independent, .alike = alike };
        neighbours_layer(analysis, layer, of);
        for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
            width[i] = of[i].width;
            windows[i] = of[i].windows;
            distinct[i] = of[i].distinct;
            independent[i] = of[i].distinct_independent;
            alike[i] = of[i].distinct_alike;
        }
        if (put(context, &coact_union_kind, &record, err))
            return -1;
    }
    return 0;
}

static int put_locality(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct neighbours *n = (const struct neighbours *)analysis;
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    int32_t distance[NEIGHBOUR_WIDTHS];
    int64_t pairs[NEIGHBOUR_WIDTHS];
    double common[NEIGHBOUR_WIDTHS];
    for (int layer = 0; layer < n->moe_layers; layer++) {
        neighbours_layer(analysis, layer, of);
        struct coact_locality record = { .layer = layer, .tokens = n->base.counted, .independent = of[0].common_independent,
                                         .alike = of[0].common_alike, .points = NEIGHBOUR_WIDTHS, .distance = distance,
                                         .pairs = pairs, .common = common };
        for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
            distance[i] = of[i].width;
            pairs[i] = of[i].pairs;
            common[i] = of[i].common;
        }
        if (put(context, &coact_locality_kind, &record, err))
            return -1;
    }
    return 0;
}

const struct analysis_class union_analysis = { .kind = &coact_union_kind, .consecutive = true, .open = open_neighbours,
    .tokens = add_neighbours, .end = end_neighbours, .put = put_union, .free = free_neighbours };
const struct analysis_class locality_analysis = { .kind = &coact_locality_kind, .consecutive = true, .open = open_neighbours,
    .tokens = add_neighbours, .end = end_neighbours, .put = put_locality, .free = free_neighbours };

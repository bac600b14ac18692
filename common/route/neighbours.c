#include "common/route/neighbours.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/route/counts.h"
#include "common/stream/coact.h"

/* When a layer's expert was last selected in a text, and at which of the 63 tokens before that: bit i means i tokens
 * before the last time. */
struct memory {
    int64_t last;               /* number of the token; -1: never */
    uint64_t history;
};

/* Longest gap that is told from longer ones: the greatest width. A pattern has a bit a width. */
enum { GAPS = (1 << (NEIGHBOUR_WIDTHS - 1)) + 1, PATTERNS = 1 << NEIGHBOUR_WIDTHS };

struct text_state {
    int64_t sequence, tokens;   /* so far */
    struct memory *memory;      /* [moe_layers][experts] */
};

struct neighbours {
    int moe_layers, experts, top_k;
    int64_t tokens, windows[NEIGHBOUR_WIDTHS], pairs[NEIGHBOUR_WIDTHS];
    int64_t *selected;          /* [moe_layers][experts] */
    int64_t *distinct;          /* [moe_layers][widths] summed over windows */
    int64_t *gaps;              /* [moe_layers][GAPS] selections so long after the expert's last one, not in distinct */
    int64_t *patterns;          /* [moe_layers][PATTERNS] selections by when the expert was selected before */
    struct text_state *texts;   /* open ones in front; memory of closed ones is used again */
    size_t open, room;
};

int neighbours_open(struct neighbours **out, const struct stream_model *model, struct err *err)
{
    if (route_model_check(model, err))
        return -1;
    struct neighbours *n = mem_alloc(1, sizeof *n, err);
    if (!n)
        return -1;
    size_t layers = (size_t)model->moe_layers;
    n->moe_layers = model->moe_layers;
    n->experts = model->experts;
    n->top_k = model->top_k;
    if (!(n->selected = mem_alloc(layers * (size_t)model->experts, sizeof *n->selected, err)) ||
        !(n->distinct = mem_alloc(layers * NEIGHBOUR_WIDTHS, sizeof *n->distinct, err)) ||
        !(n->gaps = mem_alloc(layers * GAPS, sizeof *n->gaps, err)) ||
        !(n->patterns = mem_alloc(layers * PATTERNS, sizeof *n->patterns, err))) {
        neighbours_free(&n);
        return -1;
    }
    *out = n;
    return 0;
}

void neighbours_free(struct neighbours **neighbours)
{
    struct neighbours *n = *neighbours;
    if (!n)
        return;
    for (size_t i = 0; i < n->room; i++)
        mem_free(&n->texts[i].memory);
    mem_free(&n->texts);
    mem_free(&n->selected);
    mem_free(&n->distinct);
    mem_free(&n->gaps);
    mem_free(&n->patterns);
    mem_free(neighbours);
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
    size_t cells = (size_t)n->moe_layers * (size_t)n->experts;
    if (mem_grow(&n->texts, &n->room, n->open + 1, sizeof *n->texts, err))
        return NULL;
    struct text_state *text = &n->texts[n->open];
    if (!text->memory && !(text->memory = mem_alloc(cells, sizeof *text->memory, err)))
        return NULL;
    text->sequence = sequence;
    text->tokens = 0;
    for (size_t i = 0; i < cells; i++)
        text->memory[i] = (struct memory){ .last = -1 };
    n->open++;
    return text;
}

/* The expert was selected at `last` and not again before `next` (or the text ended there). Of all windows of each width
 * it is then counted once in those that end at `last` or later, before `next`, and still reach back to `last`. */
static void count_windows(int64_t *distinct, int64_t last, int64_t next)
{
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        int64_t width = (int64_t)1 << i;
        int64_t first_end = last < width - 1 ? width - 1 : last, end = last + width < next ? last + width : next;
        if (end > first_end)
            distinct[i] += end - first_end;
    }
}

/* Bits 0, 1, 3, 7, 15, 31 and 63: what was selected 1, 2, 4, ... 64 tokens ago. */
static unsigned pattern_of(uint64_t history)
{
    return (unsigned)((history & 3) | (history >> 1 & 4) | (history >> 4 & 8) | (history >> 11 & 16) | (history >> 26 & 32) |
                      (history >> 57 & 64));
}

/* Where all windows that the last selection is in lie within the text, the gap alone says how many they are. */
static void add_selection(struct neighbours *n, int layer, struct memory *memory, int64_t now)
{
    uint64_t history = 0;       /* bit i: selected i + 1 tokens ago */
    if (memory->last == now)    /* twice by one token: a damaged stream, but counted as once */
        return;
    if (memory->last >= 0) {
        int64_t gap = now - memory->last;
        if (memory->last >= GAPS - 2)
            n->gaps[(size_t)layer * GAPS + (size_t)(gap < GAPS - 1 ? gap : GAPS - 1)]++;
        else
            count_windows(n->distinct + (size_t)layer * NEIGHBOUR_WIDTHS, memory->last, now);
        history = gap <= 64 ? memory->history << (gap - 1) : 0;
        n->patterns[(size_t)layer * PATTERNS + pattern_of(history)]++;
    }
    memory->history = history << 1 | 1;
    memory->last = now;
}

int neighbours_add(struct neighbours *n, const struct route_tokens *record, struct err *err)
{
    struct text_state *text = find_text(n, record->sequence);
    const int16_t *expert = record->experts;
    if (n->tokens > ROUTE_TOKENS_MAX - record->n)
        return err_set(err, ERR_INPUT, "more than %lld tokens; count fewer at a time", (long long)ROUTE_TOKENS_MAX);
    if (!text && !(text = begin_text(n, record->sequence, err)))
        return -1;
    for (int layer = 0; layer < n->moe_layers; layer++) {
        struct memory *memory = text->memory + (size_t)layer * (size_t)n->experts;
        int64_t *selected = n->selected + (size_t)layer * (size_t)n->experts, now = text->tokens;
        const int16_t *slots = expert + (size_t)layer * (size_t)n->top_k;
        for (int i = 0; i < record->n; i++, slots += (size_t)n->moe_layers * (size_t)n->top_k) {
            if (record->accepted && !record->accepted[i])
                continue;
            for (int slot = 0; slot < n->top_k; slot++)
                if (slots[slot] >= 0) {
                    selected[slots[slot]]++;
                    add_selection(n, layer, memory + slots[slot], now);
                }
            now++;
        }
    }
    text->tokens += route_tokens_kept(record);
    n->tokens += route_tokens_kept(record);
    return 0;
}

void neighbours_end(struct neighbours *n, int64_t sequence)
{
    struct text_state *text = find_text(n, sequence);
    if (!text)
        return;
    for (int layer = 0; layer < n->moe_layers; layer++)
        for (int e = 0; e < n->experts; e++) {
            const struct memory *memory = &text->memory[(size_t)layer * (size_t)n->experts + (size_t)e];
            if (memory->last >= 0)
                count_windows(n->distinct + (size_t)layer * NEIGHBOUR_WIDTHS, memory->last, text->tokens);
        }
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

int64_t neighbours_tokens(const struct neighbours *n) { return n->tokens; }

int neighbours_layers(const struct neighbours *n) { return n->moe_layers; }

void neighbours_layer(const struct neighbours *n, int layer, struct neighbour_width out[NEIGHBOUR_WIDTHS])
{
    const int64_t *selected = n->selected + (size_t)layer * (size_t)n->experts;
    const int64_t *gaps = n->gaps + (size_t)layer * GAPS, *patterns = n->patterns + (size_t)layer * PATTERNS;
    double share = (double)n->top_k / n->experts;
    for (int i = 0; i < NEIGHBOUR_WIDTHS; i++) {
        size_t at = (size_t)layer * NEIGHBOUR_WIDTHS + (size_t)i;
        int width = 1 << i;
        double union_of = 0, both = 0;
        int64_t distinct = n->distinct[at], common = 0;
        for (int gap = 1; gap < GAPS; gap++)
            distinct += gaps[gap] * (gap < width ? gap : width);
        for (int pattern = 0; pattern < PATTERNS; pattern++)
            common += pattern >> i & 1 ? patterns[pattern] : 0;
        for (int e = 0; e < n->experts; e++) {
            double p = n->tokens ? (double)selected[e] / (double)n->tokens : 0;
            union_of += 1 - pow(1 - p, width);
            both += p * p;
        }
        out[i] = (struct neighbour_width){
            .width = width, .windows = n->windows[i], .pairs = n->pairs[i],
            .distinct = n->windows[i] ? (double)distinct / (double)n->windows[i] : NAN,
            .distinct_alike = n->experts * (1 - pow(1 - share, width)), .distinct_independent = union_of,
            .common = n->pairs[i] ? (double)common / ((double)n->pairs[i] * n->top_k) : NAN,
            .common_alike = share, .common_independent = both / n->top_k };
    }
}

int neighbours_put_union(const struct neighbours *n, record_put *put, void *context, struct err *err)
{
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    int32_t width[NEIGHBOUR_WIDTHS];
    int64_t windows[NEIGHBOUR_WIDTHS];
    double distinct[NEIGHBOUR_WIDTHS], independent[NEIGHBOUR_WIDTHS], alike[NEIGHBOUR_WIDTHS];
    for (int layer = 0; layer < n->moe_layers; layer++) {
        struct coact_union record = { .layer = layer, .tokens = n->tokens, .points = NEIGHBOUR_WIDTHS, .width = width,
                                      .windows = windows, .distinct = distinct, .independent = independent, .alike = alike };
        neighbours_layer(n, layer, of);
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

int neighbours_put_locality(const struct neighbours *n, record_put *put, void *context, struct err *err)
{
    struct neighbour_width of[NEIGHBOUR_WIDTHS];
    int32_t distance[NEIGHBOUR_WIDTHS];
    int64_t pairs[NEIGHBOUR_WIDTHS];
    double common[NEIGHBOUR_WIDTHS];
    for (int layer = 0; layer < n->moe_layers; layer++) {
        neighbours_layer(n, layer, of);
        struct coact_locality record = { .layer = layer, .tokens = n->tokens, .independent = of[0].common_independent,
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

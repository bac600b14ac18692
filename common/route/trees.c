#include "common/route/trees.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/route/counts.h"
#include "common/stream/coact.h"

/* Sums over the forwards with one number of nodes. */
struct size_class {
    int nodes;
    int64_t trees;
    int64_t *distinct;          /* [moe_layers], summed over forwards */
};

struct trees {
    struct analysis base;               /* counted: number of forwards */
    int moe_layers, experts, top_k;
    int64_t nodes, selecting;           /* selecting: forwards with recorded selections */
    struct size_class *sizes;           /* ascending */
    size_t size_count, size_room;
    int64_t *selected;                  /* [moe_layers][experts] selections of all nodes */
    uint8_t *seen;                      /* [experts] */
};

static void free_trees(struct analysis *analysis)
{
    struct trees *t = (struct trees *)analysis;
    for (size_t i = 0; i < t->size_count; i++)
        mem_free(&t->sizes[i].distinct);
    mem_free(&t->sizes);
    mem_free(&t->selected);
    mem_free(&t->seen);
    mem_free(&t);
}

static int open_trees(struct analysis **out, const struct analysis_setup *setup, const struct stream_model *model,
                      struct err *err)
{
    (void)setup;
    size_t cells = (size_t)model->moe_layers * (size_t)model->experts;
    struct trees *t = mem_alloc(1, sizeof *t, err);
    if (!t)
        return -1;
    t->moe_layers = model->moe_layers;
    t->experts = model->experts;
    t->top_k = model->top_k;
    if (!(t->selected = mem_alloc(cells, sizeof *t->selected, err)) ||
        !(t->seen = mem_alloc((size_t)model->experts, 1, err))) {
        free_trees(&t->base);
        return -1;
    }
    *out = &t->base;
    return 0;
}

static struct size_class *size_of(struct trees *t, int nodes, struct err *err)
{
    size_t at = 0;
    if (nodes > TREE_NODES_MAX) {
        err_set(err, ERR_INPUT, "a forward has %d nodes, but at most %d can be counted", nodes, TREE_NODES_MAX);
        return NULL;
    }
    while (at < t->size_count && t->sizes[at].nodes < nodes)
        at++;
    if (at < t->size_count && t->sizes[at].nodes == nodes)
        return &t->sizes[at];
    int64_t *distinct = mem_alloc((size_t)t->moe_layers, sizeof *distinct, err);
    if (!distinct)
        return NULL;
    if (mem_grow(&t->sizes, &t->size_room, t->size_count + 1, sizeof *t->sizes, err)) {
        mem_free(&distinct);
        return NULL;
    }
    memmove(t->sizes + at + 1, t->sizes + at, (t->size_count - at) * sizeof *t->sizes);
    t->sizes[at] = (struct size_class){ .nodes = nodes, .distinct = distinct };
    t->size_count++;
    return &t->sizes[at];
}

/* Returns the number of distinct experts of this layer, and counts the nodes that selected each. */
static int count_layer(struct trees *t, const struct route_tokens *record, int layer)
{
    size_t row = (size_t)t->moe_layers * (size_t)t->top_k, first = (size_t)layer * (size_t)t->top_k;
    int64_t *selected = t->selected + (size_t)layer * (size_t)t->experts;
    int distinct = 0;
    memset(t->seen, 0, (size_t)t->experts);
    for (int i = 0; i < record->n; i++)
        for (int s = 0; s < t->top_k; s++) {
            int e = record->experts[(size_t)i * row + first + (size_t)s];
            if (e < 0)
                continue;
            distinct += !t->seen[e];
            t->seen[e] = 1;
            selected[e]++;
        }
    return distinct;
}

static int add_tree(struct analysis *analysis, const struct route_tokens *record, struct err *err)
{
    struct trees *t = (struct trees *)analysis;
    if (record->phase == PHASE_PROMPT)
        return 0;
    struct size_class *size = size_of(t, record->n, err);
    if (!size)
        return -1;
    for (int layer = 0; layer < t->moe_layers; layer++)
        size->distinct[layer] += count_layer(t, record, layer);
    size->trees++;
    t->base.counted++;
    t->selecting++;
    t->nodes += record->n;
    return 0;
}

static int add_iteration(struct analysis *analysis, const struct decode_iter *iter, struct err *err)
{
    struct trees *t = (struct trees *)analysis;
    if (!iter->experts_loaded_layer)
        return err_set(err, ERR_INPUT, "the iteration lacks the number of experts loaded per layer; record it with moe-decode "
                       "--record route");
    struct size_class *size = size_of(t, iter->nodes, err);
    if (!size)
        return -1;
    for (int layer = 0; layer < t->moe_layers; layer++) {
        int loaded = iter->experts_loaded_layer[layer];
        if (loaded < 0 || loaded > t->experts)
            return err_set(err, ERR_INPUT, "layer %d loaded %d experts, but has only %d; the stream is damaged", layer, loaded,
                           t->experts);
        size->distinct[layer] += loaded;
    }
    size->trees++;
    t->base.counted++;
    t->nodes += iter->nodes;
    return 0;
}

int trees_sizes(const struct analysis *analysis) { return (int)((const struct trees *)analysis)->size_count; }

static double independent_union(const struct trees *t, int layer, int nodes)
{
    const int64_t *selected = t->selected + (size_t)layer * (size_t)t->experts;
    double sum = 0;
    if (t->selecting < t->base.counted)
        return NAN;
    for (int e = 0; e < t->experts; e++)
        sum += 1 - pow(1 - (double)selected[e] / (double)t->nodes, nodes);
    return sum;
}

void trees_layer(const struct analysis *analysis, int layer, struct tree_size *out)
{
    const struct trees *t = (const struct trees *)analysis;
    for (size_t i = 0; i < t->size_count; i++) {
        const struct size_class *size = &t->sizes[i];
        out[i] = (struct tree_size){ .nodes = size->nodes, .trees = size->trees,
                                     .distinct = (double)size->distinct[layer] / (double)size->trees,
                                     .independent = independent_union(t, layer, size->nodes),
                                     .alike = t->experts * (1 - pow(1 - (double)t->top_k / t->experts, size->nodes)) };
    }
}

static int put_union(const struct analysis *analysis, record_put *put, void *context, struct err *err)
{
    const struct trees *t = (const struct trees *)analysis;
    size_t count = t->size_count;
    struct tree_size *of = mem_alloc(count, sizeof *of, err);
    int32_t *width = mem_alloc(count, sizeof *width, err);
    int64_t *windows = mem_alloc(count, sizeof *windows, err);
    double *values = mem_alloc(3 * count, sizeof *values, err);
    int rc = of && width && windows && values ? 0 : -1;
    for (int layer = 0; !rc && layer < t->moe_layers; layer++) {
        trees_layer(analysis, layer, of);
        for (size_t i = 0; i < count; i++) {
            width[i] = of[i].nodes;
            windows[i] = of[i].trees;
            values[i] = of[i].distinct;
            values[count + i] = of[i].independent;
            values[2 * count + i] = of[i].alike;
        }
        struct coact_union record = { .layer = layer, .trees = true, .tokens = t->nodes, .points = (int)count, .width = width,
                                      .windows = windows, .distinct = values, .independent = values + count,
                                      .alike = values + 2 * count };
        rc = put(context, &coact_union_kind, &record, err);
    }
    mem_free(&of);
    mem_free(&width);
    mem_free(&windows);
    mem_free(&values);
    return rc;
}

const struct analysis_class trees_analysis = { .kind = &coact_union_kind,
    .empty = "the streams have no forwards that decode or verify; profile answers with -n, and drafts with --draft",
    .open = open_trees, .tokens = add_tree, .iteration = add_iteration, .put = put_union, .free = free_trees };

/* Prompt lookup (kernels/plain/ngram.h): proposes the tokens that followed an earlier occurrence of the last tokens. Needs
 * no forward; works well if answers repeat parts of their prompts. Children of a node are different tokens that followed,
 * ordered by the length of the matching suffix, then most recent first; their probabilities are estimated from counts. */
#include "common/draft/drafter.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/draft/history.h"
#include "kernels/plain/loop.h"

enum { NGRAM_DEFAULT = 4, SLOTS_FIRST = 1024, NGRAM_CHILDREN = 64 };

struct ngram {
    struct drafter base;
    int shortest, longest;
    struct draft_history history;
    struct ngram_index index;
    size_t earlier_room;
};

static void ngram_free(struct drafter *drafter)
{
    struct ngram *ngram = (struct ngram *)drafter;
    draft_history_free(&ngram->history);
    mem_free(&ngram->index.slot);
    mem_free(&ngram->index.earlier);
    mem_free(&ngram);
}

static int resize_index(struct ngram *ngram, uint32_t slots, struct err *err)
{
    struct ngram_index index = {
        .slots = slots, .slot = mem_alloc(slots, sizeof *index.slot, err), .earlier = ngram->index.earlier};
    if (!index.slot)
        return -1;
    for (int last = 1; last < ngram->history.length; last++)
        ngram_enter(&index, ngram->history.token, last, ngram->shortest, ngram->longest);
    mem_free(&ngram->index.slot);
    ngram->index = index;
    return 0;
}

static int ngram_open(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    struct ngram *ngram = mem_alloc(1, sizeof *ngram, err);
    (void)setup;
    if (!ngram)
        return -1;
    if (spec_int(spec, "n", NGRAM_DEFAULT, 1, NGRAM_LONGEST, &ngram->longest, err) ||
        spec_int(spec, "min", 1, 1, ngram->longest, &ngram->shortest, err) || resize_index(ngram, SLOTS_FIRST, err)) {
        ngram_free(&ngram->base);
        return -1;
    }
    *out = &ngram->base;
    return 0;
}

static int ngram_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct ngram *ngram = (struct ngram *)drafter;
    struct draft_history *history = &ngram->history;
    size_t need = (size_t)history->length + (size_t)count, sizes = (size_t)(ngram->longest - ngram->shortest + 1);
    if (mem_grow(&ngram->index.earlier, &ngram->earlier_room, need, sizes * sizeof *ngram->index.earlier, err))
        return -1;
    for (int at = 0; at < count; at++) {
        uint32_t slots = 2 * (ngram->index.used + (uint32_t)ngram->longest);
        if ((slots > ngram->index.slots && resize_index(ngram, 2 * ngram->index.slots, err)) ||
            draft_history_put(history, token + at, 1, err))
            return -1;
        ngram_enter(&ngram->index, history->token, history->length - 1, ngram->shortest, ngram->longest);
    }
    return 0;
}

static int ngram_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                         int tokens, struct err *err)
{
    struct ngram *ngram = (struct ngram *)drafter;
    const struct draft_history *history = &ngram->history;
    struct ngram_candidate found[NGRAM_CHILDREN];
    int32_t tail[NGRAM_LONGEST];
    int before = tree->nodes;
    (void)err;
    for (int which = 0; which < leaves && tokens > 0; which++) {
        int max = leaf[which].siblings < NGRAM_CHILDREN ? leaf[which].siblings : NGRAM_CHILDREN;
        int count = draft_history_tail(history, tree, leaf[which].node, tail, ngram->longest);
        int children = ngram_candidates(&ngram->index, history->token, tail, count, ngram->shortest, ngram->longest, max,
                                        found);
        for (int child = 0; child < children; child++) {
            int node = leaf[which].node, next = found[child].next;
            for (int at = 0; at < tokens; at++) {
                int32_t token = ngram_continued(history->token, history->length, next, at);
                int nodes = tree->nodes;
                node = draft_tree_add(tree, node, token, at ? NAN : (float)log(found[child].probability), ngram->base.number);
                if (node < 0)
                    return tree->nodes - before;
                if (node == nodes)
                    tree->match[node] = found[child].n + at;
            }
        }
    }
    return tree->nodes - before;
}

static int ngram_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct ngram *ngram = (struct ngram *)drafter;
    (void)text, (void)err;
    ngram->history.length = 0;
    ngram->index.used = 0;
    for (uint32_t at = 0; at < ngram->index.slots; at++)
        ngram->index.slot[at] = (struct ngram_slot){0, 0};
    return 0;
}

static bool ngram_device(const struct drafter *drafter, struct loop_rules *rules)
{
    const struct ngram *ngram = (const struct ngram *)drafter;
    rules->shortest = ngram->shortest;
    rules->longest = ngram->longest;
    return true;
}

const struct drafter_class drafter_ngram = {
    .name = "ngram",
    .summary = "what followed the last tokens when they were in the text before",
    .settings = "n=N,min=N",
    .looks_up = true,
    .open = ngram_open,
    .propose = ngram_propose,
    .commit = ngram_commit,
    .begin = ngram_begin,
    .device = ngram_device,
    .free = ngram_free,
};

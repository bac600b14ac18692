/* Prompt lookup (kernels/plain/ngram.h): what followed the last tokens when they stood in the text before. Costs no forward,
 * and guesses well where answers repeat their prompts.
 *
 * A continuation that reaches the end of the text goes on from its beginning: the text is taken to repeat itself. */
#include "common/draft/drafter.h"

#include <math.h>

#include "common/base/mem.h"
#include "kernels/plain/ngram.h"

enum { NGRAM_DEFAULT = 4, SLOTS_FIRST = 1024 };

struct ngram {
    struct drafter base;
    int shortest, longest;
    int32_t *text;
    size_t text_room;
    int length;
    struct ngram_index index;
};

static void ngram_free(struct drafter *drafter)
{
    struct ngram *ngram = (struct ngram *)drafter;
    mem_free(&ngram->text);
    mem_free(&ngram->index.slot);
    mem_free(&ngram);
}

static int resize_index(struct ngram *ngram, uint32_t slots, struct err *err)
{
    struct ngram_index index = {.slots = slots, .slot = mem_alloc(slots, sizeof *index.slot, err)};
    if (!index.slot)
        return -1;
    for (int last = 1; last < ngram->length; last++)
        ngram_enter(&index, ngram->text, last, ngram->shortest, ngram->longest);
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
    if (mem_grow(&ngram->text, &ngram->text_room, (size_t)ngram->length + (size_t)count, sizeof *ngram->text, err))
        return -1;
    for (int at = 0; at < count; at++) {
        uint32_t need = 2 * (ngram->index.used + (uint32_t)ngram->longest);
        if (need > ngram->index.slots && resize_index(ngram, 2 * ngram->index.slots, err))
            return -1;
        ngram->text[ngram->length] = token[at];
        ngram_enter(&ngram->index, ngram->text, ngram->length++, ngram->shortest, ngram->longest);
    }
    return 0;
}

static int ngram_propose(struct drafter *drafter, struct draft_tree *tree, int leaf, int tokens, int siblings, struct err *err)
{
    struct ngram *ngram = (struct ngram *)drafter;
    int32_t tail[NGRAM_LONGEST], path[NGRAM_LONGEST];
    int drafted = draft_tree_path(tree, leaf, path, ngram->longest);
    int kept = ngram->longest - drafted < ngram->length ? ngram->longest - drafted : ngram->length;
    int before = tree->nodes, node = leaf;
    (void)siblings, (void)err;
    for (int at = 0; at < kept; at++)
        tail[at] = ngram->text[ngram->length - kept + at];
    for (int at = 0; at < drafted; at++)
        tail[kept + at] = path[at];
    int32_t next = ngram_continuation(&ngram->index, ngram->text, tail, kept + drafted, ngram->shortest, ngram->longest);
    for (int at = 0; next >= 0 && at < tokens; at++) {
        int32_t token = ngram->text[next + at % (ngram->length - next)];
        node = draft_tree_add(tree, node, token, NAN, ngram->base.number);
        if (node < 0)
            break;
    }
    return tree->nodes - before;
}

static void ngram_reset(struct drafter *drafter)
{
    struct ngram *ngram = (struct ngram *)drafter;
    ngram->length = 0;
    ngram->index.used = 0;
    for (uint32_t at = 0; at < ngram->index.slots; at++)
        ngram->index.slot[at] = (struct ngram_slot){0, 0};
}

const struct drafter_class drafter_ngram = {
    .name = "ngram",
    .summary = "what followed the last tokens when they stood in the text before",
    .settings = "n=N,min=N",
    .open = ngram_open,
    .propose = ngram_propose,
    .commit = ngram_commit,
    .reset = ngram_reset,
    .free = ngram_free,
};

/* Prompt lookup as in its reference (Saxena, "Prompt lookup decoding", 2023, find_candidate_pred_tokens): searches prompt
 * and answer for the first earlier occurrence of the last n tokens, n = 3, 2, 1, after which as many tokens follow as
 * requested, 10. If fewer follow, shorter n-grams are tried, and then there is no draft; the reference then drafts token
 * 100, which costs a row and predicts nothing. With `cut=1` a continuation that reaches the text's end is truncated, as in
 * transformers' PromptLookupCandidateGenerator (whose default is n = 2). ngram.c instead uses the most recent occurrence,
 * and lets a continuation that reaches the end repeat itself.
 *
 * Later occurrences have fewer tokens after them than the first one, so the index stores only first occurrences. For a leaf,
 * the n-gram ends with the leaf's path; occurrences are searched in the text only. */
#include "common/draft/drafter.h"

#include <math.h>

#include "common/base/mem.h"
#include "common/draft/history.h"
#include "kernels/plain/ngram.h"

enum { LONGEST_DEFAULT = 3, TOKENS_DEFAULT = 10, TOKENS_MAX = 64, SLOTS_FIRST = 1024 };

struct pld {
    struct drafter base;
    int longest, tokens;                /* longest: n; tokens: how many tokens must follow */
    int cut;                            /* 1: one following token is enough, and up to `tokens` are drafted */
    struct draft_history history;
    struct ngram_index index;           /* first occurrences; unused with `earlier` */
};

static void pld_free(struct drafter *drafter)
{
    struct pld *pld = (struct pld *)drafter;
    draft_history_free(&pld->history);
    mem_free(&pld->index.slot);
    mem_free(&pld);
}

/* Enters the n-grams that end before text[last], unless they are known. Must be called after text[last] is written. */
static void enter(struct ngram_index *index, const int32_t *text, int last, int longest)
{
    for (int n = 1; n <= longest && n <= last; n++) {
        struct ngram_slot *slot = &index->slot[ngram_find(index, text, text + last - n, n)];
        if (slot->next)
            continue;
        *slot = (struct ngram_slot){last, n};
        index->used++;
    }
}

static int resize_index(struct pld *pld, uint32_t slots, struct err *err)
{
    struct ngram_index index = {.slots = slots, .slot = mem_alloc(slots, sizeof *index.slot, err)};
    if (!index.slot)
        return -1;
    for (int last = 1; last < pld->history.length; last++)
        enter(&index, pld->history.token, last, pld->longest);
    mem_free(&pld->index.slot);
    pld->index = index;
    return 0;
}

static int pld_open(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    struct pld *pld = mem_alloc(1, sizeof *pld, err);
    (void)setup;
    if (!pld)
        return -1;
    if (spec_int(spec, "n", LONGEST_DEFAULT, 1, NGRAM_LONGEST, &pld->longest, err) ||
        spec_int(spec, "tokens", TOKENS_DEFAULT, 1, TOKENS_MAX, &pld->tokens, err) ||
        spec_int(spec, "cut", 0, 0, 1, &pld->cut, err) || resize_index(pld, SLOTS_FIRST, err)) {
        pld_free(&pld->base);
        return -1;
    }
    *out = &pld->base;
    return 0;
}

static int pld_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct pld *pld = (struct pld *)drafter;
    (void)text, (void)err;
    pld->history.length = 0;
    pld->index.used = 0;
    for (uint32_t at = 0; at < pld->index.slots; at++)
        pld->index.slot[at] = (struct ngram_slot){0, 0};
    return 0;
}

static int pld_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct pld *pld = (struct pld *)drafter;
    for (int at = 0; at < count; at++) {
        uint32_t slots = 2 * (pld->index.used + (uint32_t)pld->longest);
        if ((slots > pld->index.slots && resize_index(pld, 2 * pld->index.slots, err)) ||
            draft_history_put(&pld->history, token + at, 1, err))
            return -1;
        enter(&pld->index, pld->history.token, pld->history.length - 1, pld->longest);
    }
    return 0;
}

/* Returns the position after a match of the tail, and the length of the matching n-gram in *n; 0: no match. */
static int find(const struct pld *pld, const int32_t *tail, int count, int length, int *n)
{
    for (*n = pld->longest < count ? pld->longest : count; *n > 0; --*n) {
        int next = ngram_position(&pld->index, pld->history.token, tail, count, *n);
        if (next && (pld->cut || (next + pld->tokens <= pld->history.length && next < length - *n)))
            return next;
    }
    return 0;
}

static int pld_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                       struct err *err)
{
    struct pld *pld = (struct pld *)drafter;
    int32_t tail[NGRAM_LONGEST];
    int before = tree->nodes;
    (void)err;
    for (int which = 0; which < leaves; which++) {
        int node = leaf[which].node, n;
        int length = pld->history.length + (node < 0 ? 0 : tree->depth[node]);
        int count = draft_history_tail(&pld->history, tree, node, tail, pld->longest);
        int next = leaf[which].siblings > 0 ? find(pld, tail, count, length, &n) : 0;
        const int left = next ? pld->history.length - next : 0;
        for (int at = 0; at < left && at < tokens && at < pld->tokens; at++) {
            int nodes = tree->nodes;
            node = draft_tree_add(tree, node, pld->history.token[next + at], NAN, pld->base.number);
            if (node < 0)
                return tree->nodes - before;
            if (node == nodes)
                tree->match[node] = n + at;
        }
    }
    return tree->nodes - before;
}

const struct drafter_class drafter_pld = {
    .name = "pld",
    .summary = "prompt lookup: what followed the last tokens where they first were in the text",
    .settings = "n=N,tokens=N,cut=0|1",
    .looks_up = true,
    .open = pld_open,
    .propose = pld_propose,
    .commit = pld_commit,
    .begin = pld_begin,
    .free = pld_free,
};

/* SuffixDecoding (Oliaro, Jia, Campos, Qiao, arXiv 2411.04975) after its authors' program ArcticInference (commit 9d46438),
 * with its defaults. The paper itself was not available.
 *
 * There are two suffix trees (suffix_tree.h): of prompt and answer, and of a corpus of earlier answers. For every p such
 * that the last p tokens occur in a tree, a draft of at most factor x p tokens continues them with the most probable tokens.
 * The probability of a token is the product, along the path to it, of its relative frequency among the tokens that followed
 * there; tokens with a probability below `min` are left out. The draft with the highest score is used. The score is the sum
 * of its probabilities, that is the expected number of correct tokens. Between equal scores the longer match wins, then the
 * answer's tree.
 *
 * Differences from ArcticInference: a token's relative frequency is among what followed the string before it;
 * ArcticInference divides by the number of occurrences of that string, including those at the end of a text, which nothing
 * follows (`divisor=occurrences`). Children of equal frequency are ordered by age, youngest first, and at most 64 children
 * of a node are considered. A finished answer joins the corpus when the next text begins (`grow=1`), not token by token, and
 * no answer is ever evicted.
 *
 * A tree of its own (DRAFT_OWN) is that of tree speculation in ArcticInference. A leaf with one requested child gets a chain
 * of the most frequent children: chains are compared at their full length and then cut to the requested length, so that a
 * shorter chain is a prefix of a longer one. With several children, a leaf gets a tree with that many children at the leaf
 * and one child per node below. */
#include "common/draft/drafter.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/draft/suffix_corpus.h"
#include "common/draft/suffix_tree.h"
#include "common/engine/engine.h"

enum { DEPTH_DEFAULT = 64, TOTAL_DEFAULT = 64 };

struct suffix {
    struct drafter base;
    double factor, min;
    int total, occurrences, grow;
    struct suffix_tree own;             /* suffix tree of the text */
    int prompt;                         /* number of tokens in the prompt; -1: not read yet */
    struct suffix_corpus *corpus;       /* NULL: none */
    int cursors;                        /* number of matches of the text's end in the corpus' tree */
    struct suffix_cursor cursor[SUFFIX_DEPTH_MAX + 1], below[SUFFIX_DEPTH_MAX + 1];
    struct suffix_draft draft[2];       /* the best draft so far, and the next candidate */
};

static void suffix_free(struct drafter *drafter)
{
    struct suffix *suffix = (struct suffix *)drafter;
    suffix_tree_free(&suffix->own);
    suffix_corpus_close(&suffix->corpus);
    mem_free(&suffix);
}

static int open_corpus(struct suffix *suffix, const char *file, const char *save, const struct drafter_setup *setup,
                       struct err *err)
{
    const struct suffix_corpus_setup corpus = {.model = setup->target ? engine_config(setup->target)->model : NULL,
                                               .vocab = setup->vocab, .depth = suffix->own.depth};
    if (!file && save)
        return err_set(err, ERR_INPUT, "suffix: save: there is no corpus to save; add corpus=FILE");
    if (!file && !suffix->grow)
        return 0;
    if (suffix_corpus_open(&suffix->corpus, file, &corpus, err) ||
        (save && suffix_corpus_save(suffix->corpus, save, err)) || (suffix->grow && suffix_corpus_grow(suffix->corpus, err)))
        return err_at(err, "suffix");
    suffix->base.learns = suffix->grow;
    if (file)
        suffix_corpus_describe(suffix->corpus, suffix->base.detail, sizeof suffix->base.detail);
    return 0;
}

static int suffix_open(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    static const char *const divisors[] = {"followed", "occurrences", NULL};
    struct suffix *suffix = mem_alloc(1, sizeof *suffix, err);
    const char *file, *save;
    int depth;
    if (!suffix)
        return -1;
    suffix->prompt = -1;
    if (spec_text(spec, "corpus", NULL, &file, err) || spec_text(spec, "save", NULL, &save, err) ||
        spec_int(spec, "depth", DEPTH_DEFAULT, 2, SUFFIX_DEPTH_MAX, &depth, err) ||
        spec_int(spec, "total", TOTAL_DEFAULT, 1, SUFFIX_DRAFT_MAX, &suffix->total, err) ||
        spec_float(spec, "factor", 1, 0.1, 64, &suffix->factor, err) ||
        spec_float(spec, "min", 0.1, SUFFIX_MIN, 1, &suffix->min, err) ||
        spec_choice(spec, "divisor", 0, divisors, &suffix->occurrences, err) ||
        spec_int(spec, "grow", 0, 0, 1, &suffix->grow, err) || spec_end(spec, err) ||
        suffix_tree_init(&suffix->own, depth, err) || open_corpus(suffix, file, save, setup, err)) {
        suffix_free(&suffix->base);
        return -1;
    }
    *out = &suffix->base;
    return 0;
}

static int suffix_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct suffix *suffix = (struct suffix *)drafter;
    (void)text;
    if (suffix->grow && suffix->prompt >= 0 && suffix->own.tokens > suffix->prompt &&
        suffix_corpus_add(suffix->corpus, suffix->own.token + suffix->prompt, suffix->own.tokens - suffix->prompt, err))
        return err_at(err, "suffix: grow");
    suffix_tree_clear(&suffix->own);
    suffix->cursors = 0;
    suffix->prompt = -1;
    return 0;
}

static int suffix_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct suffix *suffix = (struct suffix *)drafter;
    suffix->prompt = suffix->prompt < 0 ? count : suffix->prompt;
    for (int at = 0; at < count; at++) {
        if (suffix_tree_put(&suffix->own, token[at], err))
            return -1;
        if (suffix->corpus)
            suffix->cursors = suffix_tree_follow(suffix_corpus_tree(suffix->corpus), suffix->cursor, suffix->cursors,
                                                 token[at]);
    }
    return 0;
}

/* Compares the drafts after cursor[0 .. count), longest match first, with the best so far; *match: length of the match that
 * won. A draft's score is at most its number of tokens, and shorter matches give shorter drafts, so the loop can stop early. */
static void keep_better_draft(struct suffix *suffix, const struct suffix_tree *tree, const struct suffix_cursor *cursor,
                              int count, struct suffix_limits limits, int *best, int *match)
{
    const int max = limits.nodes;
    for (int which = 0; which < count; which++) {
        double wanted = suffix->factor * cursor[which].length;
        struct suffix_draft *next = &suffix->draft[!*best];
        limits.nodes = wanted < max ? (int)wanted : max;
        if (limits.nodes <= suffix->draft[*best].score)
            return;
        suffix_tree_expand(tree, &cursor[which], &limits, next);
        if (next->score > suffix->draft[*best].score) {
            *best = !*best;
            *match = cursor[which].length;
        }
    }
}

/* Finds the matches of the text's end plus the path to a leaf; writes them to suffix->below and returns their number. */
static int follow(struct suffix *suffix, const struct suffix_tree *tree, const struct suffix_cursor *cursor, int count,
                  const int32_t *path, int deep)
{
    memcpy(suffix->below, cursor, (size_t)count * sizeof *cursor);
    for (int at = 0; at < deep; at++)
        count = suffix_tree_follow(tree, suffix->below, count, path[at]);
    return count;
}

/* Adds `levels` levels of a draft below a leaf. Returns false if the tree is full. */
static bool add(struct suffix *suffix, struct draft_tree *tree, int leaf, const struct suffix_draft *draft, int levels,
                int match)
{
    int32_t node[SUFFIX_DRAFT_MAX];
    for (int at = 0; at < draft->nodes; at++) {
        if (draft->level[at] > levels)
            continue;
        int nodes = tree->nodes;
        node[at] = draft_tree_add(tree, draft->parent[at] < 0 ? leaf : node[draft->parent[at]], draft->token[at],
                                  (float)log(draft->share[at]), suffix->base.number);
        if (node[at] < 0)
            return false;
        if (node[at] == nodes)
            tree->match[nodes] = match + draft->level[at] - 1;
    }
    return true;
}

/* Drafts below a leaf. For one child a draft of full size is computed and then cut to `tokens` levels, so that the choice of
 * draft does not depend on the requested length. */
static int suffix_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                          int tokens, struct err *err)
{
    struct suffix *suffix = (struct suffix *)drafter;
    const struct suffix_tree *corpus = suffix->corpus ? suffix_corpus_tree(suffix->corpus) : NULL;
    const int before = tree->nodes;
    int32_t path[SUFFIX_DEPTH_MAX];
    (void)err;
    for (int which = 0; which < leaves; which++) {
        const int siblings = leaf[which].siblings;
        const bool own = siblings == DRAFT_OWN;
        const struct suffix_limits limits = {
            .nodes = suffix->total, .levels = siblings == 1 ? suffix->total : tokens,
            .first = own ? SUFFIX_DRAFT_MAX : siblings, .below = own ? SUFFIX_DRAFT_MAX : 1, .min = suffix->min,
            .occurrences = suffix->occurrences};
        int deep = draft_tree_path(tree, leaf[which].node, path, SUFFIX_DEPTH_MAX), best = 0, match = 0;
        suffix->draft[0].nodes = 0;
        suffix->draft[0].score = 0;
        int count = follow(suffix, &suffix->own, suffix->own.cursor, suffix->own.cursors, path, deep);
        keep_better_draft(suffix, &suffix->own, suffix->below, count, limits, &best, &match);
        if (corpus) {
            count = follow(suffix, corpus, suffix->cursor, suffix->cursors, path, deep);
            keep_better_draft(suffix, corpus, suffix->below, count, limits, &best, &match);
        }
        if (!add(suffix, tree, leaf[which].node, &suffix->draft[best], tokens, match))
            break;
    }
    return tree->nodes - before;
}

const struct drafter_class drafter_suffix = {
    .name = "suffix",
    .summary = "what often followed the last tokens, in the text and in earlier answers",
    .settings = "corpus=FILE,save=FILE,grow=0|1,depth=N,factor=X,min=P,total=N,divisor=followed|occurrences",
    .looks_up = true,
    .own_trees = true,
    .open = suffix_open,
    .propose = suffix_propose,
    .commit = suffix_commit,
    .begin = suffix_begin,
    .free = suffix_free,
};

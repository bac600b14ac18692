/* Lookahead decoding (Fu, Bailis, Stoica, Zhang, arXiv 2402.02057) after its reference (hao-ai-lab/LookaheadDecoding,
 * jacobi_greedy_search_multilevel, one worker). The target guesses its own future tokens by Jacobi iteration in a window of
 * W columns and N - 1 levels. Each verification also computes the rows of the window. The most likely tokens after the rows
 * of its last level become a new level, and the oldest level is dropped. Each column then forms an n-gram of N tokens for
 * the pool: the pool stores up to G continuations (N - 1 tokens) of each first token, and replaces the one not seen for
 * longest. All continuations of the text's last token are verified, each as a branch.
 *
 * Rows: level 0 is a chain of W - 1 tokens below the root; row j of level 1 follows the root and j tokens of that chain; row
 * j of a later level follows row j of the level before it. Level 0 begins with W + N - 3 random tokens of the text. Each
 * iteration adds a level and shortens the levels by one column, until there are N - 1 levels. The random numbers are those
 * of the text, so a run is reproducible. The window advances by one token per iteration, however many were accepted
 * (ALWAYS_FWD_ONE, the reference's default).
 *
 * Differences from the reference: the pool is used as soon as it has an entry, not only when the window is full; and with
 * `prompt=yes` each n-gram of the answer enters the pool as it is (the reference enters the last token of an accepted run
 * once for each token of the run).
 *
 * A leaf with one requested child gets the continuation seen last. With several children it gets that many continuations
 * with different first tokens; with a tree of its own (DRAFT_OWN) it gets all of them, as in the reference. */
#include "common/draft/drafter.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/draft/history.h"
#include "kernels/plain/propose.h"

enum { LEVEL_MAX = 16, WINDOW_MAX = 64, GUESS_MAX = 64, COPIED = 0x6c6f6f6b };

struct guesses { int32_t token; int count; };           /* `count` continuations of `token`: rows of pool.gram, ordered by
                                                         * time last seen, newest last */

struct pool {
    int32_t *entry;                     /* [vocab] index of the token's guesses + 1; 0: none */
    struct guesses *item;
    int32_t *gram;                      /* [items][guess][level - 1] */
    size_t item_room, gram_room;
    int items;
};

struct lookahead {
    struct drafter base;
    int level, window, guess, from_text, vocab;         /* N, W, G */
    struct draft_history history;
    struct pool pool;
    struct sample_draw draw;
    bool begun;                         /* the window has its first level */
    int filled;                         /* number of levels after the first */
    int length[LEVEL_MAX];              /* tokens of each level */
    int32_t past[LEVEL_MAX][WINDOW_MAX + LEVEL_MAX];
    int32_t root;                       /* token after which the window begins */
    int32_t token[RIDERS_MAX], parent[RIDERS_MAX];
};

static void lookahead_free(struct drafter *drafter)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    draft_history_free(&mine->history);
    mem_free(&mine->pool.entry);
    mem_free(&mine->pool.item);
    mem_free(&mine->pool.gram);
    mem_free(&mine);
}

/* Returns the maximum rows of the window in any iteration. While the window is filled, each new level makes the levels one
 * token shorter. */
static int rows_needed(int level, int window)
{
    int max = 0;
    for (int filled = 0; filled <= level - 2; filled++) {
        int first = window + level - 3 - filled, rows = first + filled * (first + 1);
        max = rows > max ? rows : max;
    }
    return max;
}

static int lookahead_open(struct drafter **out, struct spec *spec, const struct drafter_setup *setup, struct err *err)
{
    static const char *const answers[] = {"no", "yes", NULL};
    struct lookahead *mine = mem_alloc(1, sizeof *mine, err);
    if (!mine)
        return -1;
    mine->vocab = setup->vocab;
    if (spec_int(spec, "level", 5, 3, LEVEL_MAX, &mine->level, err) ||
        spec_int(spec, "window", 7, 1, WINDOW_MAX, &mine->window, err) ||
        spec_int(spec, "guess", 7, 1, GUESS_MAX, &mine->guess, err) ||
        spec_choice(spec, "prompt", 0, answers, &mine->from_text, err))
        goto failed;
    mine->base.riders = rows_needed(mine->level, mine->window);
    if (mine->base.riders > RIDERS_MAX) {
        err_set(err, ERR_INPUT, "lookahead: a window of %d with %d levels needs %d rows, more than the maximum of %d; give a "
                "smaller window or level",
                mine->window, mine->level, mine->base.riders, RIDERS_MAX);
        goto failed;
    }
    mine->pool.entry = mem_alloc((size_t)mine->vocab, sizeof *mine->pool.entry, err);
    if (!mine->pool.entry)
        goto failed;
    *out = &mine->base;
    return 0;
failed:
    lookahead_free(&mine->base);
    return -1;
}

static int lookahead_begin(struct drafter *drafter, const struct draft_text *text, struct err *err)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    (void)err;
    mine->draw = propose_apart(&text->draw, COPIED);
    mine->history.length = mine->pool.items = mine->filled = 0;
    mine->begun = false;
    memset(mine->pool.entry, 0, (size_t)mine->vocab * sizeof *mine->pool.entry);
    return 0;
}

/* ---- the pool ---- */

static int32_t *gram_of(const struct lookahead *mine, int item, int which)
{
    return mine->pool.gram + ((size_t)item * (size_t)mine->guess + (size_t)which) * (size_t)(mine->level - 1);
}

/* Enters the `level` - 1 tokens that followed `key`. */
static int pool_put(struct lookahead *mine, int32_t key, const int32_t *gram, struct err *err)
{
    struct pool *pool = &mine->pool;
    const size_t size = (size_t)(mine->level - 1), bytes = size * sizeof *gram;
    int item = pool->entry[key] - 1, which = 0;
    if (item < 0) {
        size_t items = (size_t)pool->items + 1;
        if (mem_grow(&pool->item, &pool->item_room, items, sizeof *pool->item, err) ||
            mem_grow(&pool->gram, &pool->gram_room, items * (size_t)mine->guess * size, sizeof *pool->gram, err))
            return -1;
        item = pool->items++;
        pool->item[item] = (struct guesses){key, 0};
        pool->entry[key] = item + 1;
    }
    struct guesses *guesses = &pool->item[item];
    while (which < guesses->count && memcmp(gram_of(mine, item, which), gram, bytes))
        which++;
    if (which == guesses->count && which < mine->guess)
        guesses->count++;
    else                                /* moves a known continuation to the end, or replaces the oldest one */
        which = which < guesses->count ? which : 0;
    memmove(gram_of(mine, item, which), gram_of(mine, item, which + 1), (size_t)(guesses->count - 1 - which) * bytes);
    memcpy(gram_of(mine, item, guesses->count - 1), gram, bytes);
    return 0;
}

static int lookahead_commit(struct drafter *drafter, const int32_t *token, int count, struct err *err)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    struct draft_history *history = &mine->history;
    for (int at = 0; at < count; at++) {
        if (draft_history_put(history, token + at, 1, err))
            return -1;
        const int first = history->length - mine->level;
        if (mine->from_text && first >= 0 && pool_put(mine, history->token[first], history->token + first + 1, err))
            return -1;
    }
    return 0;
}

/* Adds a continuation below a leaf. Returns false if the tree is full. */
static bool add(struct lookahead *mine, struct draft_tree *tree, int node, const int32_t *gram, int tokens)
{
    for (int at = 0; at < tokens && at < mine->level - 1; at++) {
        int nodes = tree->nodes;
        node = draft_tree_add(tree, node, gram[at], NAN, mine->base.number);
        if (node < 0)
            return false;
        if (node == nodes)
            tree->match[node] = 1 + at;
    }
    return true;
}

static int lookahead_propose(struct drafter *drafter, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves,
                             int tokens, struct err *err)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    const int before = tree->nodes;
    int32_t tail[1];
    (void)err;
    for (int which = 0; which < leaves && tokens > 0; which++) {
        const int node = leaf[which].node, siblings = leaf[which].siblings;
        int32_t first[GUESS_MAX];
        int item = draft_history_tail(&mine->history, tree, node, tail, 1) ? mine->pool.entry[tail[0]] - 1 : -1, found = 0;
        for (int at = item < 0 ? 0 : mine->pool.item[item].count; at-- > 0 && (siblings == DRAFT_OWN || found < siblings);) {
            const int32_t *gram = gram_of(mine, item, at);
            int same = 0;
            while (same < found && first[same] != gram[0])
                same++;
            if (same < found && siblings != DRAFT_OWN)
                continue;
            first[found++] = gram[0];
            if (!add(mine, tree, node, gram, tokens))
                return tree->nodes - before;
        }
    }
    return tree->nodes - before;
}

/* ---- the window ---- */

static void copy_from_text(struct lookahead *mine)
{
    mine->length[0] = mine->window + mine->level - 3;
    for (int at = 0; at < mine->length[0]; at++) {
        const struct philox counter = {{(uint32_t)at, 0, mine->draw.ordinal, mine->draw.sample}};
        uint64_t drawn = philox(counter, mine->draw.key).word[0];
        mine->past[0][at] = mine->history.token[drawn * (uint64_t)mine->history.length >> 32];
    }
    mine->begun = true;
}

static int lookahead_request_riders(struct drafter *drafter, const struct draft_tree *tree, struct rider_rows *out,
                                    struct err *err)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    const int own = 1 + tree->nodes;
    int rows = 0, above = 0;
    (void)err;
    if (!mine->history.length)
        return 0;
    if (!mine->begun)
        copy_from_text(mine);
    for (int level = 0; level <= mine->filled; level++) {
        const int first = rows;
        for (int at = 0; at < mine->length[level]; at++) {
            /* Level 1 has one row more than level 0, because its first row follows the root. */
            int after = level > 1 ? above + at : at - 1;
            mine->token[rows] = mine->past[level][at];
            mine->parent[rows++] = after < 0 ? 0 : own + after;
        }
        above = first;
    }
    mine->root = mine->history.token[mine->history.length - 1];
    *out = (struct rider_rows){rows, mine->token, mine->parent};
    return 0;
}

static void drop_first(struct lookahead *mine, int level)
{
    mine->length[level]--;
    memmove(mine->past[level], mine->past[level] + 1, (size_t)mine->length[level] * sizeof *mine->past[level]);
}

static void set_level(struct lookahead *mine, int level, const int32_t *token, int count)
{
    mine->length[level] = count;
    memcpy(mine->past[level], token, (size_t)count * sizeof *token);
}

/* Enters into the pool the n-grams that the columns of a full window form with the newest level at their end. */
static int pool_window(struct lookahead *mine, const int32_t *newest, struct err *err)
{
    int32_t gram[LEVEL_MAX];
    for (int at = 0; at < mine->window; at++) {
        for (int level = 1; level < mine->level - 1; level++)
            gram[level - 1] = mine->past[level][at];
        gram[mine->level - 2] = newest[at];
        if (pool_put(mine, at ? mine->past[0][at - 1] : mine->root, gram, err))
            return -1;
    }
    return 0;
}

/* Reads the new level from the logits of the last level's rows. While the window is not full, the level is added and each
 * older level loses its first column; once it is full, the columns enter the pool, and each level is replaced by the next
 * one. */
static int lookahead_return_riders(struct drafter *drafter, const float *logits, struct err *err)
{
    struct lookahead *mine = (struct lookahead *)drafter;
    const int last = mine->filled, count = mine->length[last];
    int32_t newest[WINDOW_MAX + LEVEL_MAX];
    size_t row = 0;
    for (int level = 0; level < last; level++)
        row += (size_t)mine->length[level];
    for (int at = 0; at < count; at++) {
        newest[at] = sample_best(logits + (row + (size_t)at) * (size_t)mine->vocab, mine->vocab);
        if (newest[at] < 0)
            return err_set(err, ERR_INPUT, "lookahead: logits are not finite; the model's weights are damaged");
    }
    if (last < mine->level - 2) {
        for (int level = 0; level <= last; level++)
            drop_first(mine, level);
        set_level(mine, last + 1, last ? newest + 1 : newest, last ? count - 1 : count);
        mine->filled++;
        return 0;
    }
    if (pool_window(mine, newest, err))
        return -1;
    set_level(mine, 0, mine->past[1] + 1, mine->length[1] - 1);
    for (int level = 1; level < last; level++)
        set_level(mine, level, mine->past[level + 1], mine->length[level + 1]);
    set_level(mine, last, newest, count);
    return 0;
}

const struct drafter_class drafter_lookahead = {
    .name = "lookahead",
    .summary = "n-grams that the model makes ahead of the text, in a window that rides on verifications",
    .settings = "level=N,window=N,guess=N,prompt=yes|no",
    .own_trees = true,
    .open = lookahead_open,
    .propose = lookahead_propose,
    .request_riders = lookahead_request_riders,
    .return_riders = lookahead_return_riders,
    .commit = lookahead_commit,
    .begin = lookahead_begin,
    .free = lookahead_free,
};

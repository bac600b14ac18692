#include "common/draft/guess.h"

#include <string.h>

#include "common/base/mem.h"

static bool sees_tokens(const struct guess *guess) { return head_description(guess->head)->kind == HEAD_HYDRA; }

static size_t words(const struct guess *guess) { return (size_t)head_description(guess->head)->draft_vocab; }

int guess_open(struct guess *guess, struct head *head, struct err *err)
{
    guess->head = head;
    guess->heads = head_description(head)->heads;
    guess->logits = sees_tokens(guess) ? NULL : mem_alloc((size_t)guess->heads * words(guess), sizeof *guess->logits, err);
    return sees_tokens(guess) || guess->logits ? 0 : -1;
}

void guess_close(struct guess *guess)
{
    mem_free(&guess->logits);
    guess->head = NULL;
}

/* Medusa's first `heads` heads, as far as they have not been run yet. */
static int know(struct guess *guess, int heads, int64_t *bytes, struct err *err)
{
    const int first = guess->known, wanted = heads < guess->heads ? heads : guess->heads;
    const struct head_guesses ask = {.first = first, .heads = wanted - first, .rows = 1};
    struct head_forward forward;
    if (wanted <= first)
        return 0;
    if (head_guess(guess->head, &ask, &forward, err))
        return -1;
    for (int i = first; i < wanted; i++)
        memcpy(guess->logits + (size_t)i * words(guess), forward.logits[i - first], words(guess) * sizeof *guess->logits);
    guess->known = wanted;
    *bytes += forward.bytes;
    return 0;
}

int guess_root(struct guess *guess, int32_t token, int levels, const float **logits, int64_t *bytes, struct err *err)
{
    const struct head_guesses ask = {.heads = 1, .rows = 1, .token = &token};
    struct head_forward forward;
    guess->root = token;
    guess->known = 0;
    if (sees_tokens(guess) ? head_guess(guess->head, &ask, &forward, err) : know(guess, levels > 1 ? levels : 1, bytes, err))
        return -1;
    *bytes += sees_tokens(guess) ? forward.bytes : 0;
    *logits = sees_tokens(guess) ? forward.logits[0] : guess->logits;
    return 0;
}

/* The root's token, then those on the way to a node. */
static void write_way(const struct guess *guess, int node, int32_t *token)
{
    for (int at = guess->depth[node]; at > 0; at--, node = guess->parent[node])
        token[at] = guess->token[node];
    token[0] = guess->root;
}

/* Logits of Hydra's head `depth` after those nodes at this depth that want them. */
static int read_depth(struct guess *guess, const struct draft_reading *reading, int first, int depth, int64_t *bytes,
                      struct err *err)
{
    int32_t token[DRAFT_ASKED_MAX * (1 + HEAD_HEADS_MAX)];
    struct head_guesses ask = {.first = depth, .heads = 1, .token = token};
    struct head_forward forward;
    int which[DRAFT_ASKED_MAX];
    for (int at = 0; at < reading->logit_rows; at++)
        if (guess->depth[first + reading->logit_row[at]] == depth) {
            write_way(guess, first + reading->logit_row[at], token + ask.rows * (1 + depth));
            which[ask.rows++] = at;
        }
    if (!ask.rows)
        return 0;
    if (head_guess(guess->head, &ask, &forward, err))
        return -1;
    *bytes += forward.bytes;
    for (int row = 0; row < ask.rows; row++) {
        const float *logits[DRAFT_BRANCHES_MAX] = {forward.logits[0] + (size_t)row * words(guess), NULL};
        if (reading->take(reading->context, which[row], logits, err))
            return -1;
    }
    return 0;
}

static int read_known(struct guess *guess, const struct draft_reading *reading, int first, int64_t *bytes, struct err *err)
{
    for (int at = 0; at < reading->logit_rows; at++) {
        const int depth = guess->depth[first + reading->logit_row[at]];
        if (know(guess, depth + 1, bytes, err))
            return -1;
        const float *logits[DRAFT_BRANCHES_MAX] = {guess->logits + (size_t)depth * words(guess), NULL};
        if (reading->take(reading->context, at, logits, err))
            return -1;
    }
    return 0;
}

int guess_read(struct guess *guess, const struct draft_reading *reading, int first, int64_t *bytes, struct err *err)
{
    int deepest = 0;
    for (int row = 0; row < reading->rows; row++) {
        const int node = first + row, parent = reading->parent[row];
        guess->token[node] = reading->token[row];
        guess->parent[node] = parent;
        guess->depth[node] = parent < 0 ? 1 : guess->depth[parent] + 1;
        deepest = guess->depth[node] > deepest ? guess->depth[node] : deepest;
    }
    if (!sees_tokens(guess))
        return read_known(guess, reading, first, bytes, err);
    for (int depth = 1; depth <= deepest; depth++)
        if (read_depth(guess, reading, first, depth, bytes, err))
            return -1;
    return 0;
}

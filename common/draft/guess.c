#include "common/draft/guess.h"

#include <string.h>

#include "common/base/mem.h"

static bool sees_tokens(const struct guess *guess) { return head_description(guess->head)->kind == HEAD_HYDRA; }

/* Returns how many values an answer has: `ranked` tokens, or the logits of the draft vocabulary. */
static size_t width(const struct guess *guess)
{
    return (size_t)(guess->ranked ? guess->ranked : head_description(guess->head)->draft_vocab);
}

int guess_open(struct guess *guess, struct head *head, int ranked, struct err *err)
{
    guess->head = head;
    guess->heads = head_description(head)->heads;
    guess->ranked = ranked;
    if (sees_tokens(guess))
        return 0;
    const size_t count = (size_t)guess->heads * width(guess);
    return !(guess->logits = mem_alloc(count, sizeof *guess->logits, err)) ||
           (ranked && !(guess->best = mem_alloc(count, sizeof *guess->best, err))) ? -1 : 0;
}

void guess_close(struct guess *guess)
{
    mem_free(&guess->logits);
    mem_free(&guess->best);
    guess->head = NULL;
}

/* Runs those of Medusa's first `heads` heads that have not been run for this draft, in one forward. */
static int compute_heads(struct guess *guess, int heads, int64_t *bytes, struct err *err)
{
    const int first = guess->known, wanted = heads < guess->heads ? heads : guess->heads;
    const struct head_guesses ask = {.first = first, .heads = wanted - first, .rows = 1, .best = guess->ranked};
    const size_t each = width(guess);
    struct head_forward forward;
    if (wanted <= first)
        return 0;
    if (head_guess(guess->head, &ask, &forward, err))
        return -1;
    for (int i = first; i < wanted; i++) {
        const struct head_best *best = &forward.best[i - first];
        if (guess->ranked)
            memcpy(guess->best + (size_t)i * each, best->token, each * sizeof *guess->best);
        memcpy(guess->logits + (size_t)i * each, guess->ranked ? best->log_probability : forward.logits[i - first],
               each * sizeof *guess->logits);
    }
    guess->known = wanted;
    *bytes += forward.bytes;
    return 0;
}

int guess_root(struct guess *guess, int32_t token, int levels, struct head_forward *out, int64_t *bytes, struct err *err)
{
    const struct head_guesses ask = {.heads = 1, .rows = 1, .token = &token, .best = guess->ranked};
    struct head_forward forward = {.bytes = 0};
    guess->root = token;
    guess->known = 0;
    if (sees_tokens(guess) ? head_guess(guess->head, &ask, &forward, err)
                           : compute_heads(guess, levels > 1 ? levels : 1, bytes, err))
        return -1;
    *bytes += forward.bytes;
    if (!sees_tokens(guess) && guess->ranked)
        forward.best[0] = (struct head_best){guess->best, guess->logits};
    else if (!sees_tokens(guess))
        forward.logits[0] = guess->logits;
    *out = forward;
    return 0;
}

/* Passes the answer for a row to the reader's callback: logits, or tokens with their log-probabilities. */
static int deliver_row(const struct guess *guess, const struct draft_reading *reading, int which, const float *logits,
                       const int32_t *token, struct err *err)
{
    const struct draft_best best = {token, logits};
    const float *const all[DRAFT_BRANCHES_MAX] = {logits, NULL};
    return guess->ranked ? reading->take_best(reading->context, which, &best, reading->best, err)
                         : reading->take(reading->context, which, all, err);
}

/* Writes the root's token, then the tokens on the path to a node. */
static void write_path(const struct guess *guess, int node, int32_t *token)
{
    for (int at = guess->depth[node]; at > 0; at--, node = guess->parent[node])
        token[at] = guess->token[node];
    token[0] = guess->root;
}

/* Runs Hydra's head `depth` for those requested rows of a reading that are at this depth. */
static int read_depth(struct guess *guess, const struct draft_reading *reading, int first, int depth, int64_t *bytes,
                      struct err *err)
{
    int32_t token[DRAFT_ASKED_MAX * (1 + HEAD_HEADS_MAX)];
    struct head_guesses ask = {.first = depth, .heads = 1, .token = token, .best = reading->best};
    struct head_forward forward;
    int which[DRAFT_ASKED_MAX];
    for (int at = 0; at < reading->logit_rows; at++)
        if (guess->depth[first + reading->logit_row[at]] == depth) {
            write_path(guess, first + reading->logit_row[at], token + ask.rows * (1 + depth));
            which[ask.rows++] = at;
        }
    if (!ask.rows)
        return 0;
    if (head_guess(guess->head, &ask, &forward, err))
        return -1;
    *bytes += forward.bytes;
    for (int row = 0; row < ask.rows; row++) {
        const size_t from = (size_t)row * (ask.best ? (size_t)ask.best : width(guess));
        const struct head_best *best = &forward.best[0];
        if (deliver_row(guess, reading, which[row], (ask.best ? best->log_probability : forward.logits[0]) + from,
                        ask.best ? best->token + from : NULL, err))
            return -1;
    }
    return 0;
}

static int read_known(struct guess *guess, const struct draft_reading *reading, int first, int64_t *bytes, struct err *err)
{
    for (int at = 0; at < reading->logit_rows; at++) {
        const int depth = guess->depth[first + reading->logit_row[at]];
        if (compute_heads(guess, depth + 1, bytes, err))
            return -1;
        const size_t from = (size_t)depth * width(guess);
        if (deliver_row(guess, reading, at, guess->logits + from, guess->best ? guess->best + from : NULL, err))
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

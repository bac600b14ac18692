/* How well a draft head guesses: acceptance by position, and tokens an iteration, of chains and of trees.
 *
 * A text is a prompt and its answer. At committed length n its first n tokens are decided, the target has read all but the
 * last, the ROOT, and the head drafts tokens n, n + 1, ... What is drafted is right as far as it is the text. Drafts begin
 * where the root and the token after it are of one answer.
 *
 *     by the text     (evaluation_text) without decoding: the target's states of the whole text are there, and the head drafts
 *                     from true states at every n. `all` counts chains at every n, `chain` and `tree` those from which
 *                     iterations would begin: one that keeps k drafted tokens gives k + 1, and the next begins there
 *     by decoding     (evaluation_prompt) the target answers the prompt, at temperature 0, with drafts of the head; `chain` and
 *                     `tree` count its iterations
 *
 * Where a text's answer is what the target says itself, both give the same `chain` and `tree`, number by number. A text is cut
 * at the limit; its drafts are not. */
#ifndef MOE_INSTRUMENTS_EVALUATION_H
#define MOE_INSTRUMENTS_EVALUATION_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"
#include "common/base/stop.h"
#include "common/engine/engine.h"
#include "common/tokenizer/tokenizer.h"
#include "common/stream/train.h"

enum { EVALUATION_LENGTH_MAX = 64 };

struct evaluation;

struct evaluation_setup {
    struct engine *engine;              /* these stay open, or as they are, as long as the evaluation */
    const struct tokenizer *tokenizer;  /* for decoding; NULL: ids only */
    const char *head;                   /* a head file */
    const char *drafting;               /* further settings of the drafter: "stop=0.6"; NULL: none */
    int length;                         /* of chains, 1 .. EVALUATION_LENGTH_MAX */
    const char *tree;                   /* a shape of drafts; NULL: no trees are drafted */
    int limit;                          /* only so many tokens of a text; 0: all that there is room for */
    bool decoding;                      /* evaluation_prompt, else evaluation_text, will be asked */
    const struct stop *stop;            /* decoding ends with ERR_SIGNAL; NULL: never */
};

/* Of drafts where the answer goes on for i + 1 tokens at least: how many there were, those right up to token i, and those right
 * up to token i + 1. */
struct evaluation_drafts {
    int64_t tried[EVALUATION_LENGTH_MAX], reached[EVALUATION_LENGTH_MAX], right[EVALUATION_LENGTH_MAX];
};

struct evaluation_walk {
    int64_t iterations;
    struct evaluation_drafts begun;     /* where iterations began */
};

/* Sums over texts; begins as {0}. */
struct evaluation_counts {
    int64_t texts, tokens;              /* tokens: of answers after the first of each, which iterations gave */
    struct evaluation_drafts all;       /* chains at every n; 0: by decoding */
    struct evaluation_walk chain, tree;
};

struct evaluation_text {
    const int32_t *token;               /* [tokens] */
    const uint8_t *mask;                /* [tokens] 1: of an answer */
    int tokens;                         /* at most evaluation_limit */
    const float *const *state;          /* [tokens][hidden] each, in the order of evaluation_states */
};

/* Rows that an engine must take in a forward, and give logits of, to decode with such trees. */
int evaluation_rows(const char *tree, int *rows, struct err *err);

int evaluation_open(struct evaluation **out, const struct evaluation_setup *setup, struct err *err);
void evaluation_close(struct evaluation **evaluation);

/* Which states of the target a text must have. */
const struct feature_request *evaluation_states(const struct evaluation *evaluation);
int evaluation_limit(const struct evaluation *evaluation);
int evaluation_positions(const struct evaluation *evaluation);         /* of chains: as long as asked for, or as the head can */

/* Add to the counts. */
int evaluation_text(struct evaluation *evaluation, const struct evaluation_text *text, struct evaluation_counts *counts,
                    struct err *err);
/* max_tokens: of the answer; 1 or more. */
int evaluation_prompt(struct evaluation *evaluation, const int32_t *token, int tokens, int max_tokens,
                      struct evaluation_counts *counts, struct err *err);

/* What the counts say, in the words of a train stream: fills what of *out follows from them, with the arrays of *shares. */
struct evaluation_shares {
    int32_t position[EVALUATION_LENGTH_MAX];
    double acceptance[EVALUATION_LENGTH_MAX], conditional[EVALUATION_LENGTH_MAX], begun[EVALUATION_LENGTH_MAX];
};
void evaluation_record(const struct evaluation *evaluation, const struct evaluation_counts *counts,
                       struct evaluation_shares *shares, struct train_eval *out);

#endif

/* Measures how well a draft head predicts: acceptance rate by position, and tokens per iteration, of chains and of trees.
 *
 * A text is a prompt and its answer. At committed length n its first n tokens are decided; the target has read all of them
 * but the last, the ROOT; the head drafts tokens n, n + 1, ... A drafted token is correct if it and all before it equal the
 * text. Only drafts are counted whose root and next token belong to the same answer.
 *
 *     by the text     (evaluation_text) without decoding: the target's states of the whole text are given, and the head
 *     drafts from true states at every n. `all` counts chains at every n; `chain` and `tree` count drafts where iterations
 *     would begin: an iteration that keeps k drafted tokens emits k + 1, and the next begins there
 *     by decoding     (evaluation_prompt) the target answers the prompt at temperature 0 with drafts of the head; `chain`
 *                     and `tree` count its iterations
 *
 * If a text's answer is the target's own, both give the same `chain` and `tree`. A text is truncated at the limit; its
 * drafts are not. */
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
    struct engine *engine;              /* this and the members below must stay valid and unchanged */
    const struct tokenizer *tokenizer;  /* for decoding; NULL: ids only */
    const char *head;                   /* a head file */
    const char *drafting;               /* further drafter settings: "stop=0.6"; NULL: none */
    int length;                         /* of chains, 1 .. EVALUATION_LENGTH_MAX */
    const char *tree;                   /* shape of draft trees; NULL: no trees are drafted */
    int limit;                          /* maximum tokens used per text; 0: as many as the context allows */
    bool decoding;                      /* evaluation_prompt will be used, else evaluation_text */
    const struct stop *stop;            /* stops decoding with ERR_SIGNAL; NULL: never */
};

/* Counters of drafts, by index i of the drafted token, over drafts after which the answer has at least i + 1 more tokens:
 * number of drafts, drafts correct before token i, drafts correct including token i. */
struct evaluation_drafts {
    int64_t tried[EVALUATION_LENGTH_MAX], reached[EVALUATION_LENGTH_MAX], right[EVALUATION_LENGTH_MAX];
};

struct evaluation_walk {
    int64_t iterations;
    struct evaluation_drafts begun;     /* drafts where iterations began */
};

/* Sums over texts; initialise with {0}. */
struct evaluation_counts {
    int64_t texts, tokens;              /* tokens: number of tokens emitted by iterations, without the first of each answer */
    struct evaluation_drafts all;       /* chains at every n; 0: when decoding */
    struct evaluation_walk chain, tree;
};

struct evaluation_text {
    const int32_t *token;               /* [tokens] */
    const uint8_t *mask;                /* [tokens] 1: token of an answer */
    int tokens;                         /* at most evaluation_limit */
    const float *const *state;          /* each [tokens][hidden], in the order of evaluation_states */
};

/* Sets *rows to the maximum rows, and rows with logits, per forward that decoding with such trees requires. */
int evaluation_rows(const char *tree, int *rows, struct err *err);

/* Opens the head and everything that the evaluation needs. */
int evaluation_open(struct evaluation **out, const struct evaluation_setup *setup, struct err *err);
void evaluation_close(struct evaluation **evaluation);

/* Returns which states of the target a text must provide. */
const struct feature_request *evaluation_states(const struct evaluation *evaluation);
int evaluation_limit(const struct evaluation *evaluation);

/* Each of these functions adds the drafts of one text to the counts. */
int evaluation_text(struct evaluation *evaluation, const struct evaluation_text *text, struct evaluation_counts *counts,
                    struct err *err);
/* max_tokens: maximum length of the answer; at least 1. */
int evaluation_prompt(struct evaluation *evaluation, const int32_t *token, int tokens, int max_tokens,
                      struct evaluation_counts *counts, struct err *err);

/* Computes the figures of a train stream from the counts: fills the corresponding members of *out, with the arrays of
 * *shares. */
struct evaluation_shares {
    int32_t position[EVALUATION_LENGTH_MAX];
    double acceptance[EVALUATION_LENGTH_MAX], conditional[EVALUATION_LENGTH_MAX], begun[EVALUATION_LENGTH_MAX];
};
void evaluation_record(const struct evaluation *evaluation, const struct evaluation_counts *counts,
                       struct evaluation_shares *shares, struct train_eval *out);

#endif

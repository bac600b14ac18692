/* A running draft head: the network of a head file (common/model/head.h has the kinds and their formulas) on its target's
 * device. It computes logits; common/draft chooses the tokens to draft.
 *
 * A head with a layer has its own keys and values of one text, one ROW per token, like a sequence of the engine: `length`
 * committed rows, then pending nodes. The input of a row depends on the kind:
 *
 *     eagle1, eagle3, jakiro, jakiro_star
 *                row i is the target's state at position i with the embedding of token i + 1. The target has read n - 1 of n
 *                tokens, so rows 0 .. n - 2 are TRUE rows, with the target's own states; row n - 2 proposes token n. A row
 *                after them reads the embedding of a drafted token, and the head's own output for the parent row instead of a
 *     state mtp        as eagle1; mtp.c describes models with several predictors. Only true rows can be committed, and only
 *                before other rows are added
 *     kangaroo   row i is the target's early state at position i, so rows of drafted tokens have true states, too
 *     medusa, hydra    row i is the target's state at position i; drafted tokens have no rows. The heads guess from the newest
 *                row (head_guess)
 *
 * Everything stays on the device, except logits or the most probable tokens, which are copied to the host. A head can process
 * only one text at a time. */
#ifndef MOE_HEAD_HEAD_H
#define MOE_HEAD_HEAD_H

#include "common/engine/engine.h"
#include "common/model/head.h"
#include "kernels/top.h"

enum { HEAD_ROWS_MAX = ENGINE_ROWS_MAX, HEAD_NODES_MAX = 1 + ENGINE_ROWS_MAX, HEAD_BRANCHES_MAX = 2,
       HEAD_LOGITS_MAX = HEAD_HEADS_MAX, HEAD_BEST_MAX = TOP_MAX };

struct head;

struct head_setup {
    const struct model *model;           /* the head's file, or the target for its own predictors */
    struct engine *target;               /* model and target must outlive the head */
    const struct head_params *params;    /* replaces the file's description, for the same tensors; copied; NULL: uses the
                                          * file's */
    int max_rows;                        /* max rows of a forward, 1 .. HEAD_ROWS_MAX */
    int max_logit_rows;                  /* max rows of a forward whose logits are requested */
};

struct head_batch {
    int rows;
    const int32_t *token;                /* [rows] tokens whose embeddings are read; NULL: none */
    const int32_t *parent;               /* [rows] pending node, or -1: the newest committed row; NULL: a chain after the newest
                                          * pending node */
    /* True states, as in batch.features after a forward of the target: [states][state_rows][target hidden] in the order of
     * head_params.state; row r reads row state_row[r]. Address 0: each row reads the head's output for its parent instead,
     * which must then belong to an earlier batch. */
    struct buffer state;
    int state_rows;
    const int32_t *state_row;            /* [rows] */
    const int32_t *logit_row;            /* [logit_rows] rows whose logits are requested; NULL: the first logit_rows rows */
    int logit_rows;
    /* Requested branches, the first of head_branches. 0 or 1: only the distribution of the next token; in jakiro_star that is
     * the log of the sum of exp of both branches' logits (one softmax over both). */
    int branches;
    int best;                            /* number of most probable tokens requested instead of logits, at most HEAD_BEST_MAX
                                          * and the draft vocabulary; requires head_ranks; 0: logits */
};

/* The target's tokens in descending order of logits, the lower id first among equals, with their log-probabilities: each
 * [logit_rows][best]. kernels/top.h specifies rows with too few tokens or without finite logits. */
struct head_best {
    const int32_t *token;
    const float *log_probability;
};

/* Result of a forward. The head owns the arrays; they are valid until its next forward. */
struct head_forward {
    int rows, logit_rows, vocab;         /* vocab: head_params.draft_vocab */
    int first_node;                      /* pending node of row 0; the other rows have the following nodes */
    const float *logits[HEAD_LOGITS_MAX];        /* each [logit_rows][vocab]; NULL for branches that were not requested */
    struct head_best best[HEAD_LOGITS_MAX];      /* set if `best` was requested */
    int64_t bytes;                       /* nominal bytes read: weights, output head and KV cache */
};

int head_open(struct head **out, const struct head_setup *setup, struct err *err);
void head_close(struct head **head);
const struct head_params *head_description(const struct head *head);
bool head_ranks(const struct head *head);        /* Returns whether head_batch.best is supported. */
/* Returns the number of distributions per row. jakiro: 2, of the next token and of the one after it (see head_params.second);
 * jakiro_star: 2, left and right; medusa: one per head; all others 1. */
int head_branches(const struct head *head);

/* Begins a text of up to `tokens` tokens, without rows. */
int head_begin(struct head *head, int tokens, struct err *err);
int head_length(const struct head *head);        /* Returns the number of committed rows. */
int head_pending(const struct head *head);
int head_capacity(const struct head *head);      /* Returns the max number of rows, committed and pending together. */

/* Adds rows as pending nodes and computes their logits. Adds nothing on failure. NaNs in states become NaNs in logits. */
int head_run(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err);

/* A request for guesses of medusa's or hydra's heads. t is the text's newest token, at position n - 1, which the target has not
 * read, and f the state at n - 2. Head i guesses the token at n + i. Medusa's heads read only f; hydra's head i reads f, t, and
 * the i drafted tokens after t. */
struct head_guesses {
    int first, heads;                    /* heads first .. first + heads - 1; hydra computes one per call */
    int rows;                            /* 1 .. max_logit_rows */
    const int32_t *node;           /* [rows] pending node whose state is read, -1: the newest committed row; NULL: -1 for all */
    const int32_t *token;                /* [rows][1 + first] hydra: t, then the drafted tokens, oldest first */
    int best;                            /* number of most probable tokens requested, as head_batch.best */
};

/* Runs one forward of these heads. Branch i of *out is that of head first + i. Adds nothing to the text. */
int head_guess(struct head *head, const struct head_guesses *ask, struct head_forward *out, struct err *err);

/* Commits the path node[0], node[1], ... of pending nodes, like sequence_commit. Later rows with parent -1 continue from the
 * head's output for the last of them. */
int head_commit(struct head *head, const int32_t *node, int count, struct err *err);
/* Removes all pending nodes. */
void head_rollback(struct head *head);

#endif

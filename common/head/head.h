/* A draft head at work: the network of a head file (common/model/head.h has the kinds and their formulas) on its target's
 * device. It decides nothing: what is drafted from its logits is common/draft's.
 *
 * A head that has a layer keeps keys and values of one text, one ROW a token, as a sequence of the engine does: `length`
 * committed rows, pending nodes after them. What a row is made of:
 *
 *     eagle1, eagle3, jakiro, jakiro_star
 *                row i is the target's state at position i with the embedding of token i + 1. So of n tokens, of which the
 *                target has read n - 1, rows 0 .. n - 2 are true; row n - 2 proposes token n. A row after them takes the
 *                embedding of a drafted token, and what the head itself made of the row's parent in place of a state
 *     mtp        as eagle1; more about a model with several predictors in mtp.c. Only true rows can be committed, and before
 *                there are others
 *     kangaroo   row i is the target's early state at position i; so rows of drafted tokens have true states, too
 *     medusa, hydra    row i is the target's state at position i; there are none of drafted tokens. Their heads guess from the
 *                newest row (head_guess)
 *
 * All on the device, but logits, or the likeliest tokens by them, which come to the host. Not for two texts at once. */
#ifndef MOE_HEAD_HEAD_H
#define MOE_HEAD_HEAD_H

#include "common/engine/engine.h"
#include "common/model/head.h"
#include "kernels/top.h"

enum { HEAD_ROWS_MAX = ENGINE_ROWS_MAX, HEAD_NODES_MAX = 1 + ENGINE_ROWS_MAX, HEAD_BRANCHES_MAX = 2,
       HEAD_LOGITS_MAX = HEAD_HEADS_MAX, HEAD_BEST_MAX = TOP_MAX };

struct head;

struct head_setup {
    const struct model *model;           /* of the head's file, or the target's own for its predictors */
    struct engine *target;               /* both stay open as long as the head */
    const struct head_params *params;    /* in place of the file's description, of the same tensors; copied; NULL: that */
    int max_rows;                        /* of one forward, 1 .. HEAD_ROWS_MAX */
    int max_logit_rows;                  /* and those of them whose logits may be asked for */
};

struct head_batch {
    int rows;
    const int32_t *token;                /* [rows] whose embeddings are taken; NULL: none are */
    const int32_t *parent;               /* [rows] pending node or -1, the newest committed row; NULL: a chain after the
                                          * newest pending node */
    /* True states, as a forward of the target leaves them (batch.features): [states][state_rows][target hidden] in the order
     * of head_params.state, of which row r takes state_row[r]. Address 0: each row goes on from what the head made of its
     * parent, which therefore is no row of this batch. */
    struct buffer state;
    int state_rows;
    const int32_t *state_row;            /* [rows] */
    const int32_t *logit_row;            /* [logit_rows] rows whose logits are wanted; NULL: the first logit_rows */
    int logit_rows;
    /* Of logits, the first so many of head_branches. One, or 0: what the next token is drawn from; with jakiro_star that is
     * log of the sum of exp of both branches' (one softmax over both). */
    int branches;
    int best;                            /* so many of the likeliest tokens are wanted in place of logits, at most
                                          * HEAD_BEST_MAX and the draft vocabulary, of a head that ranks; 0: logits */
};

/* The target's tokens in descending order of logits, of equal ones the lower id first, with their log-probabilities: each
 * [logit_rows][best]. Where there are no more tokens, or logits are not finite: as kernels/top.h says. */
struct head_best {
    const int32_t *token;
    const float *log_probability;
};

/* Arrays are the head's and stay until its next forward. */
struct head_forward {
    int rows, logit_rows, vocab;         /* vocab: head_params.draft_vocab */
    int first_node;                      /* pending node of row 0; those of the others follow */
    const float *logits[HEAD_LOGITS_MAX];        /* each [logit_rows][vocab]; of branches not asked for NULL */
    struct head_best best[HEAD_LOGITS_MAX];      /* where these were wanted */
    int64_t bytes;                       /* nominal: weights, output head and KV read */
};

int head_open(struct head **out, const struct head_setup *setup, struct err *err);
void head_close(struct head **head);
const struct head_params *head_description(const struct head *head);
const struct hparams *head_shape(const struct head *head);
bool head_ranks(const struct head *head);        /* can be asked for the likeliest tokens alone */
int head_branches(const struct head *head);      /* how many distributions a row has; jakiro: of the next token, and of the one
                                                  * after it (see head_params.second); jakiro_star: left and right; medusa:
                                                  * those of all its heads; all others one */

/* A new text of up to `tokens` tokens: no rows. */
int head_begin(struct head *head, int tokens, struct err *err);
int head_length(const struct head *head);        /* committed rows */
int head_pending(const struct head *head);
int head_capacity(const struct head *head);      /* rows, committed and pending together */

/* Adds rows as pending nodes. On failure nothing was added. NaN in states comes out as NaN in logits. */
int head_run(struct head *head, const struct head_batch *batch, struct head_forward *out, struct err *err);

/* What medusa's and hydra's heads guess: with t the text's newest token at position n - 1, which the target has not read, and f
 * the state at n - 2, head i guesses the token at n + i. Of medusa's all read f alone; hydra's head i reads f, t, and i drafted
 * tokens after it. */
struct head_guesses {
    int first, heads;                    /* heads first .. first + heads - 1, of which hydra takes one at once */
    int rows;                            /* 1 .. max_logit_rows */
    const int32_t *node;                 /* [rows] pending node whose state is read, -1: the newest committed row; NULL: that */
    const int32_t *token;                /* [rows][1 + first] hydra: t, then what was drafted, oldest first */
    int best;                            /* as head_batch.best */
};

/* One forward. Logits, or the likeliest tokens, of branch i are those of head first + i. Nothing is added to the text. */
int head_guess(struct head *head, const struct head_guesses *ask, struct head_forward *out, struct err *err);

/* Keeps the path node[0], node[1], ... of pending nodes, as sequence_commit; what the head made of the last of them is what
 * rows with parent -1 go on from. */
int head_commit(struct head *head, const int32_t *node, int count, struct err *err);
void head_rollback(struct head *head);

#endif

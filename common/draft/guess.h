/* What Medusa's and Hydra's heads guess below the nodes of a draft: children of the root by head 0, of a node at depth d by
 * head d, and none where there is no such head. Medusa's heads do not see the way to a node: each is run once a draft, as many
 * as are needed in one forward. Hydra's do: each level is one forward. */
#ifndef MOE_DRAFT_GUESS_H
#define MOE_DRAFT_GUESS_H

#include "common/draft/rows.h"
#include "common/head/head.h"

struct guess {
    struct head *head;                  /* NULL: not in use */
    int heads, known;                   /* of medusa: whose answers of this draft are there */
    int ranked;                         /* answers are so many of the likeliest tokens; 0: logits */
    float *logits;                      /* medusa: [heads][vocab], or of these tokens the log-probabilities: [heads][ranked] */
    int32_t *best;                      /* and they: [heads][ranked] */
    int32_t root;                       /* the text's newest token */
    /* Nodes of the draft, by number: */
    int32_t token[DRAFT_ROWS_MAX];
    int parent[DRAFT_ROWS_MAX], depth[DRAFT_ROWS_MAX];
};

/* For a head of either kind; close it also when opening has failed. */
int guess_open(struct guess *guess, struct head *head, int ranked, struct err *err);
void guess_close(struct guess *guess);

/* A new draft after a text that ends with this token, of which `levels` are asked for: the answer for the first is branch 0 of
 * *out, valid until the next call. */
int guess_root(struct guess *guess, int32_t token, int levels, struct head_forward *out, int64_t *bytes, struct err *err);

/* As draft_source.read; the first row is node number `first`, and none is deeper than there are heads. */
int guess_read(struct guess *guess, const struct draft_reading *reading, int first, int64_t *bytes, struct err *err);

#endif

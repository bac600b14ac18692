/* Runs Medusa's and Hydra's heads for the nodes of a draft. Head 0 predicts the children of the root, head d those of a node
 * at depth d; a node deeper than the last head has no children. Medusa's heads do not depend on the path to a node: each
 * runs once per draft, all needed ones in one forward. Hydra's heads do depend on it: each level of the draft is one
 * forward. */
#ifndef MOE_DRAFT_GUESS_H
#define MOE_DRAFT_GUESS_H

#include "common/draft/rows.h"
#include "common/head/head.h"

struct guess {
    struct head *head;                  /* NULL: unused */
    int heads, known;                   /* known: number of Medusa heads already run for this draft */
    int ranked;                         /* answers are this many most likely tokens; 0: logits */
    float *logits;                      /* Medusa: [heads][vocab] logits; if ranked, [heads][ranked] log-probabilities */
    int32_t *best;                      /* if ranked: [heads][ranked] the tokens of these log-probabilities */
    int32_t root;                       /* the last token of the text */
    /* Nodes of the draft, by number: */
    int32_t token[DRAFT_ROWS_MAX];
    int parent[DRAFT_ROWS_MAX], depth[DRAFT_ROWS_MAX];
};

/* Opens a Medusa or Hydra head. guess_close must be called also if opening failed. */
int guess_open(struct guess *guess, struct head *head, int ranked, struct err *err);
void guess_close(struct guess *guess);

/* Begins a new draft of `levels` levels after a text that ends with `token`. The answer for level 1 is branch 0 of *out,
 * valid until the next call. */
int guess_root(struct guess *guess, int32_t token, int levels, struct head_forward *out, int64_t *bytes, struct err *err);

/* Implements draft_source.read. The first row is node number `first`; no row may be deeper than there are heads. */
int guess_read(struct guess *guess, const struct draft_reading *reading, int first, int64_t *bytes, struct err *err);

#endif

/* What a drafter that runs a model has read of drafts: ROWS after a text, a tree by tokens, so that a row is found again
 * whatever becomes of the draft's own nodes, and is read once. Row 0 is the root. Each row that was asked for its children
 * has them ranked as the setup chooses (drafter.h). Leaves of a level are read in one forward.
 *
 * A source of two branches gives the last two levels of a draft by one reading, where a tree tells how many levels it gets:
 * children of a row on the last level but one come from the second branch of its parent's row, and it is not read itself. One
 * whose second branch is of the next token, too, gives the nodes of the last level but one by that.
 *
 * Every row but the root is a node of the source, and the root is, too, where the source has not read it (root_pends):
 * whoever owns the source drops or commits them. */
#ifndef MOE_DRAFT_ROWS_H
#define MOE_DRAFT_ROWS_H

#include "common/draft/drafter.h"
#include "common/draft/source.h"

enum { DRAFT_ROWS_MAX = 1 + ENGINE_ROWS_MAX, DRAFT_CHILDREN_MAX = 64, DRAFT_UNREAD = -2 };

struct draft_row {
    int32_t token;
    int parent, child, sibling;         /* rows; child: the newest, sibling: the one before it; 0: none */
    int depth;                          /* the root's is 0 */
    int node;                           /* of the source; -1: committed; DRAFT_UNREAD */
    uint64_t key;                       /* of the random numbers that its children are drawn with, under DRAFT_DRAWN */
    int asked, found;                   /* children: asked for, 0: no logits were wanted; and what there is of them */
    int ranked;                         /* as many as were asked for when its logits were last looked at */
    bool doubtful;                      /* its likeliest token is less likely than `stop`; known with its children */
    int32_t best[DRAFT_CHILDREN_MAX];
    float log_probability[DRAFT_CHILDREN_MAX];
};

/* Children of a row, the likeliest first. */
struct draft_ranking {
    int found;
    int32_t best[DRAFT_CHILDREN_MAX];
    float log_probability[DRAFT_CHILDREN_MAX];
};

struct draft_rows {
    struct drafter *drafter;            /* whose bytes are counted */
    struct drafter_setup setup;
    struct draft_source *source;
    bool root_pends;
    double stop;                        /* below a token that is less probable nothing is added; 0: goes on */
    struct sample_draw draw;            /* the target's, but for the position */
    int vocab;                          /* of target and source the smaller; with a map of the source the target's */
    int length;                         /* of the text, the root included */
    struct draft_row *row;              /* [DRAFT_ROWS_MAX] */
    int rows;                           /* 0: the root was not read yet */
    float *proposal[DRAFT_ROWS_MAX];    /* each [setup.vocab], made when first needed; for setup.proposals */
    float *root;                        /* [vocab] logits after the root, in case it is asked again */
    float *second[DRAFT_ROWS_MAX];      /* each [vocab], made when first needed: logits of the second branch */
    uint8_t has_second[DRAFT_ROWS_MAX];
    /* Drafting greedily from a source that ranks needs no logits; then the root and second branches have as many children as
     * may ever be asked for. 0: logits are read. */
    int ranked;
    struct draft_ranking *second_ranking;        /* [DRAFT_ROWS_MAX], ranked and with a second branch */
    int levels;                         /* that the draft gets from here on; 0: not known */
    float *spread;                      /* scratch: [vocab] logits in the target's order, for a source with a map */
    int32_t *kept;                      /* scratch: [vocab], of both branches twice as many */
    double *value;                      /* [vocab], or twice as many, and proposals [setup.vocab] */
    float *both;                        /* [2 * vocab] of a source with branches beside each other */
    /* The forward that is being put together. */
    int32_t batch_token[DRAFT_ROWS_MAX], batch_parent[DRAFT_ROWS_MAX], logit_row[DRAFT_ASKED_MAX];
    int batch_rows, logit_rows;
};

/* Free it also when this has failed. The source stays open as long as the rows. */
int draft_rows_init(struct draft_rows *rows, struct drafter *drafter, const struct drafter_setup *setup,
                    struct draft_source *source, struct err *err);
void draft_rows_free(struct draft_rows *rows);

/* Row 0 is the token at the end of the text: its logits are these, as the source answers them, and it is committed; or, with
 * root_pends, NULL: they are read with the first leaves. _second: those of the second branch. */
void draft_rows_root(struct draft_rows *rows, int32_t token, const float *logits);
int draft_rows_root_second(struct draft_rows *rows, const float *logits, struct err *err);
/* The same where rows are ranked: `ranked` tokens of each branch of the source. */
int draft_rows_root_best(struct draft_rows *rows, int32_t token, const struct draft_best *branch, struct err *err);
void draft_rows_forget(struct draft_rows *rows);                /* all rows; the text goes on */

/* The child of a row that carries the token; 0: none was read. */
int draft_rows_child(const struct draft_rows *rows, int row, int32_t token);

/* As drafter_class.propose and .review say; there is a root. */
int draft_rows_propose(struct draft_rows *rows, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                       struct err *err);
int draft_rows_review(struct draft_rows *rows, struct draft_tree *tree, int leaf, int *agreed, struct err *err);

#endif

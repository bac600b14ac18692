/* The rows that a drafter with a model has computed for drafts: a tree of ROWS after a text, keyed by tokens. A row is found
 * again even if the draft's own nodes are dropped, so it is computed only once. Row 0 is the root. The requested children of
 * a row are ranked by the rule in the setup (drafter.h). All leaves of a level are read in one forward.
 *
 * A source with two branches predicts the last two levels of a draft in one reading, if the tree states how many levels it
 * will get: children of a row on the last level but one come from the second branch of its parent's row, and the row itself
 * is not read. If the second branch predicts the next token, too, it predicts the nodes of the last level but one.
 *
 * Every row except the root is a node of the source. The root is one, too, if the source has not read it yet. The owner of
 * the source drops or commits these nodes. */
#ifndef MOE_DRAFT_ROWS_H
#define MOE_DRAFT_ROWS_H

#include "common/draft/drafter.h"
#include "common/draft/source.h"

enum { DRAFT_ROWS_MAX = 1 + ENGINE_ROWS_MAX, DRAFT_CHILDREN_MAX = 64, DRAFT_UNREAD = -2 };

struct draft_row {
    int32_t token;
    int parent, child, sibling;         /* row indices; child: the newest child, sibling: the next older one; 0: none */
    int depth;                          /* 0: the root */
    int node;                           /* node of the source; -1: committed; or DRAFT_UNREAD */
    uint64_t key;                       /* key of the random numbers for its children, with DRAFT_DRAWN */
    int asked, found;                   /* children requested (0: no logits wanted), and children found */
    int ranked;                         /* number requested when its logits were last ranked */
    bool doubtful;                      /* the most likely token is less probable than `stop`; known once the children are */
    int32_t best[DRAFT_CHILDREN_MAX];
    float log_probability[DRAFT_CHILDREN_MAX];
};

/* Children of a row, the most likely first. */
struct draft_ranking {
    int found;
    int32_t best[DRAFT_CHILDREN_MAX];
    float log_probability[DRAFT_CHILDREN_MAX];
};

struct draft_rows {
    struct drafter *drafter;            /* the drafter, whose byte counter is updated */
    struct drafter_setup setup;
    struct draft_source *source;
    double stop;                        /* nothing is added below a token less probable than this; 0: no limit */
    struct sample_draw draw;            /* draw of the target, without the position */
    int vocab;                          /* smaller vocabulary of target and source; if the source has a map, the target's */
    int length;                         /* length of the text, including the root */
    struct draft_row *row;              /* [DRAFT_ROWS_MAX] */
    int rows;                           /* 0: the root was not read yet */
    float *proposal[DRAFT_ROWS_MAX];    /* each [setup.vocab], allocated on demand; with setup.proposals */
    float *root;                        /* [vocab] logits after the root, in case it is requested again */
    float *second[DRAFT_ROWS_MAX];      /* each [vocab], allocated on demand: logits of the second branch */
    uint8_t has_second[DRAFT_ROWS_MAX];
    /* Greedy drafting from a source that ranks needs no logits; the root and second branches then get this many children,
     * the maximum that may be requested. 0: logits are read. */
    int ranked;
    struct draft_ranking *second_ranking;        /* [DRAFT_ROWS_MAX], if ranked and with a second branch */
    int levels;                         /* levels left in this draft; 0: unknown */
    float *spread;                      /* scratch: [vocab] logits in the target's order, for a source with a map */
    int32_t *kept;                      /* scratch: [vocab], or [2 * vocab] for both branches */
    double *value;                      /* scratch: [setup.vocab], or twice that for both branches */
    float *both;                        /* [2 * vocab], for a source whose branches are drawn from together */
    /* The batch of the next forward. */
    int32_t batch_token[DRAFT_ROWS_MAX], batch_parent[DRAFT_ROWS_MAX], logit_row[DRAFT_ASKED_MAX];
    int batch_rows, logit_rows;
};

/* Initialises the rows. The source must stay open as long as the rows. They must be freed also if this failed. */
int draft_rows_init(struct draft_rows *rows, struct drafter *drafter, const struct drafter_setup *setup,
                    struct draft_source *source, struct err *err);
void draft_rows_free(struct draft_rows *rows);

/* Sets row 0, the token at the end of the text. logits: those after it, as the source answers them; the row is committed.
 * If logits is NULL, the source has not read the root, which is then read with the first leaves. draft_rows_root_second sets
 * the logits of the second branch. */
void draft_rows_root(struct draft_rows *rows, int32_t token, const float *logits);
int draft_rows_root_second(struct draft_rows *rows, const float *logits, struct err *err);
/* Sets row 0 if rows are ranked: `ranked` tokens of each branch of the source. */
int draft_rows_root_best(struct draft_rows *rows, int32_t token, const struct draft_best *branch, struct err *err);
void draft_rows_forget(struct draft_rows *rows);                /* forgets all rows; the text is unchanged */

/* Returns the child of a row that carries the token; 0: none was read. */
int draft_rows_child(const struct draft_rows *rows, int row, int32_t token);

/* Implement drafter_class.propose and .review. The root must be set. */
int draft_rows_propose(struct draft_rows *rows, struct draft_tree *tree, const struct draft_leaf *leaf, int leaves, int tokens,
                       struct err *err);
int draft_rows_review(struct draft_rows *rows, struct draft_tree *tree, int leaf, int *agreed, struct err *err);

#endif

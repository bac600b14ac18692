/* A draft: the tokens that a forward is asked to verify, as a tree. A chain is a tree in which each node is the parent of
 * the next.
 *
 * The ROOT is the last token of the text; it is not a node and is written as -1. Nodes are in the order in which they were
 * added, so a parent comes before its children, and a tree cut to its first n nodes is a tree. No two children of a node
 * carry the same token. Arrays belong to the tree; plain data, so that what runs on a GPU can hold the same ones. */
#ifndef MOE_DRAFT_TREE_H
#define MOE_DRAFT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct draft_tree {
    int nodes, capacity;
    int levels;                 /* that the tree would get from here on, those that are being added among them, if there was
                                 * room; 0: not known */
    int32_t *token;             /* [nodes] */
    int32_t *parent;            /* [nodes] an earlier node, or -1 */
    int32_t *depth;             /* [nodes] 1: a child of the root */
    float *log_probability;     /* [nodes] of the token after its parent, as its drafter sees it; NaN: it cannot say */
    int32_t *drafter;           /* [nodes] number of its drafter among those in use */
    int32_t *reviewer;          /* [nodes] number of the drafter that reviewed it last and kept it; -1: none */
    int32_t *match;             /* [nodes] tokens before it that its drafter found in a text, which went on with it; 0: none */
    const float **proposal;     /* [nodes] the distribution [vocab] that the token was drawn from; NULL: it was not drawn */
};

enum { DRAFT_OWN = 0 };

/* Where a tree is to grow, and by how many children. DRAFT_OWN: by a tree that its drafter makes as it likes, if it does. */
struct draft_leaf {
    int32_t node;               /* -1: the root */
    int32_t siblings;
};

int draft_tree_init(struct draft_tree *tree, int capacity, struct err *err);       /* *tree holds nothing before */
void draft_tree_free(struct draft_tree *tree);                                      /* and back to {0} */
void draft_tree_clear(struct draft_tree *tree);

/* The new node, or the one that is there already (same parent and token), as it is; -1 when the tree is full.
 *
 * A token that two drafters drew stays as the first one drew it. Acceptance by rejection is exact so: it judges a drawn node
 * by its proposal without the tokens of all its earlier siblings (kernels/plain/reject.h), and what the second one draws, when
 * it is not there yet, has just that distribution. */
int draft_tree_add(struct draft_tree *tree, int parent, int32_t token, float log_probability, int drafter);

/* Keeps the nodes node[0] < node[1] < ..., which hold the parents of all of them; they are 0, 1, ... then. -1, with the tree
 * as it was: they do not. */
int draft_tree_keep(struct draft_tree *tree, const int32_t *node, int count);

/* Drops what is below `leaf` (-1: the root) but for way[0], a child of it, way[1], a child of that one, ... *last is the
 * number that the last of these has then, or the leaf's for none of them. */
int draft_tree_follow(struct draft_tree *tree, int leaf, const int32_t *way, int count, int *last, struct err *err);

/* Writes the tokens on the way from the root (not included) to `node`, at most `room` of them and then the last ones;
 * returns their number. */
int draft_tree_path(const struct draft_tree *tree, int node, int32_t *token, int room);

/* The node to which these tokens lead from the root: -1, the root itself, for none of them; -2: there is no such way. */
int draft_tree_find(const struct draft_tree *tree, const int32_t *token, int count);

int draft_tree_depth(const struct draft_tree *tree);        /* of the deepest node; 0: empty */
bool draft_tree_is_below(const struct draft_tree *tree, int node, int leaf);        /* at any depth */

#endif

/* A draft: the tokens that a forward verifies, as a tree. A chain is a tree in which each node is the parent of the next.
 *
 * The ROOT is the last token of the text; it is not a node and is written as -1. Nodes are in the order in which they were
 * added: a parent comes before its children, and the first n nodes of a tree are a tree. Children of a node carry distinct
 * tokens. The tree owns its arrays; they are plain data, so that a GPU can use the same layout. */
#ifndef MOE_DRAFT_TREE_H
#define MOE_DRAFT_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/err.h"

struct draft_tree {
    int nodes, capacity;
    int levels;                 /* number of levels that the tree would still get if there were room, including the current
                                 * one; 0: unknown */
    int32_t *token;             /* [nodes] */
    int32_t *parent;            /* [nodes] an earlier node, or -1 */
    int32_t *depth;             /* [nodes] 1: a child of the root */
    float *log_probability;     /* [nodes] log-probability of the token after its parent, by its drafter; NaN: unknown */
    int32_t *drafter;           /* [nodes] number of its drafter among those in use */
    int32_t *reviewer;          /* [nodes] number of the drafter that reviewed it last and kept it; -1: none */
    int32_t *match;             /* [nodes] length of the match in a text that this token continued; 0: none */
    const float **proposal;     /* [nodes] the distribution [vocab] that the token was drawn from; NULL: it was not drawn */
};

enum { DRAFT_OWN = 0 };

/* A leaf to extend, and its number of children. DRAFT_OWN: by a tree of the drafter's own shape, if it has one. */
struct draft_leaf {
    int32_t node;               /* -1: the root */
    int32_t siblings;
};

int draft_tree_init(struct draft_tree *tree, int capacity, struct err *err);       /* *tree is uninitialised before */
void draft_tree_free(struct draft_tree *tree);                                      /* *tree is {0} afterwards */
void draft_tree_clear(struct draft_tree *tree);

/* Returns the new node, or the existing one with the same parent and token, unchanged; -1 if the tree is full.
 *
 * A token that two drafters drew keeps the proposal of the first. Acceptance by rejection stays exact: it judges a drawn node
 * by its proposal without the tokens of all earlier siblings (kernels/plain/reject.h), and a token that the second drafter
 * draws and that is not in the tree yet has exactly that distribution. */
int draft_tree_add(struct draft_tree *tree, int parent, int32_t token, float log_probability, int drafter);

/* Keeps the nodes node[0] < node[1] < ... and renumbers them 0, 1, .... Their parents must be among them; otherwise returns
 * -1 and leaves the tree unchanged. */
int draft_tree_keep(struct draft_tree *tree, const int32_t *node, int count);

/* Drops all nodes below `leaf` (-1: the root) except the path way[0], way[1], ... of children. *last is the new number of the
 * path's last node, or the leaf's number for an empty path. */
int draft_tree_follow(struct draft_tree *tree, int leaf, const int32_t *way, int count, int *last, struct err *err);

/* Writes the tokens on the path from the root (excluded) to `node`, the last `room` ones at most; returns their number. */
int draft_tree_path(const struct draft_tree *tree, int node, int32_t *token, int room);

/* Returns the node reached from the root by these tokens; -1, the root, for no tokens; -2 if there is no such path. */
int draft_tree_find(const struct draft_tree *tree, const int32_t *token, int count);

int draft_tree_depth(const struct draft_tree *tree);        /* depth of the deepest node; 0: empty */
bool draft_tree_is_below(const struct draft_tree *tree, int node, int leaf);        /* at any depth */

#endif

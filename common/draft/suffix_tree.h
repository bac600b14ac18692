/* A suffix tree of tokens with counts, limited to a maximum depth: how often each token followed each string.
 *
 * A node is a string with several continuations, or one at which a text ends; its edge is the last part of the string, stored
 * as a range of the text. The tree grows one token at a time. CURSORS are the suffixes of the text that have occurred before,
 * longest first; look-ups start there. Adding a token takes time proportional to the longest cursor, at most the depth. A node
 * takes 32 bytes, and there are fewer than two nodes per token.
 *
 * (A suffix automaton adds a token faster, but in a repetitive text it updates counts along chains of links as long as the
 * text; a suffix array cannot grow.) */
#ifndef MOE_DRAFT_SUFFIX_TREE_H
#define MOE_DRAFT_SUFFIX_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/err.h"

enum { SUFFIX_DEPTH_MAX = 128, SUFFIX_TOKENS_MAX = 1 << 29, SUFFIX_DRAFT_MAX = 512, SUFFIX_SHARES_MAX = 1000 };

#define SUFFIX_MIN (1.0 / SUFFIX_SHARES_MAX)              /* the smallest limit of probabilities */

struct suffix_node {
    int32_t parent, start, end;         /* the edge: token[start .. end), in the text as far as there is one */
    int32_t count;                      /* how often the edge's first token followed the parent */
    int32_t followed;                   /* sum of the children's counts */
    int32_t child;                      /* the youngest one, or once sorted the most frequent; 0: none */
    int32_t sibling, before;            /* the next one and the one before; 0: none */
};

/* After `at` tokens of the node's edge, `length` after the root. */
struct suffix_cursor { int32_t node, at, length; };

struct suffix_tree {
    int depth;
    const int32_t *token;               /* [tokens] */
    const struct suffix_node *node;     /* [nodes] the root is 0 */
    int tokens, nodes;
    int32_t *slot;                      /* [slots] a node by parent and first token; 0: empty */
    uint32_t slots;                     /* a power of two */
    bool sorted;                        /* by count, equals the younger first; it does not grow any more */
    int32_t *own_token;                 /* what is above, where it is the tree's own and not mapped */
    struct suffix_node *own_node;
    size_t token_room, node_room;
    int limit;                          /* where the text ends that is being added */
    int cursors;
    struct suffix_cursor cursor[SUFFIX_DEPTH_MAX + 1];
};

int suffix_tree_init(struct suffix_tree *tree, int depth, struct err *err);       /* *tree holds nothing before */
void suffix_tree_free(struct suffix_tree *tree);                                  /* and back to {0} */
void suffix_tree_clear(struct suffix_tree *tree);                                 /* of texts; memory is kept */

/* Adds one more token of a text that goes on; adds a whole text, and ends it. */
int suffix_tree_put(struct suffix_tree *tree, int32_t token, struct err *err);
int suffix_tree_add(struct suffix_tree *tree, const int32_t *token, int count, struct err *err);

/* Sorts all children; nothing is added from now on. */
int suffix_tree_sort(struct suffix_tree *tree, struct err *err);

/* Makes a sorted tree grow again: one that is mapped is copied. Its equals among children keep their order, and new ones come
 * before them. */
int suffix_tree_thaw(struct suffix_tree *tree, struct err *err);

/* A sorted tree whose token and node are set by the caller, who keeps them; false: they are no tree. */
int suffix_tree_adopt(struct suffix_tree *tree, int vocab, bool *sound, struct err *err);

size_t suffix_tree_bytes(const struct suffix_tree *tree);

/* Where the strings of cursor[0 .. count), longest first, and the empty one are, gone on with by a token; those that do not
 * occur are left out. cursor[] has room for one more than the depth. Returns their number. */
int suffix_tree_follow(const struct suffix_tree *tree, struct suffix_cursor *cursor, int count, int32_t token);

/* What is likely to follow: a tree whose nodes are taken in the order of their probability, which is the product of the
 * shares that each token on the way had among those which followed there (or of what `occurrences` says). */
struct suffix_limits {
    int nodes;                          /* at most SUFFIX_DRAFT_MAX */
    int levels;
    int first, below;                   /* children of the root, and of a node, at most */
    double min;                         /* probability, SUFFIX_MIN or more */
    bool occurrences;                   /* shares are of how often the string before a token occurs, also at a text's end; else
                                         * of what followed it */
};

struct suffix_draft {
    int nodes;
    double score;                       /* the sum of probabilities: tokens that are expected to be right */
    int32_t token[SUFFIX_DRAFT_MAX];
    int32_t parent[SUFFIX_DRAFT_MAX];   /* -1: the root */
    int32_t level[SUFFIX_DRAFT_MAX];    /* 1: a child of the root */
    double share[SUFFIX_DRAFT_MAX];     /* among those which followed its parent */
};

/* Writes the draft after a cursor. */
void suffix_tree_expand(const struct suffix_tree *tree, const struct suffix_cursor *from, const struct suffix_limits *limits,
                        struct suffix_draft *out);

#endif

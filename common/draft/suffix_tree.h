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

#define SUFFIX_MIN (1.0 / SUFFIX_SHARES_MAX)              /* smallest limit of probabilities */

struct suffix_node {
    int32_t parent, start, end;         /* the edge: token[start .. end), cut at the end of the text */
    int32_t count;                      /* how often the edge's first token followed the parent */
    int32_t followed;                   /* sum of the children's counts */
    int32_t child;                      /* the youngest child, or once sorted the most frequent one; 0: none */
    int32_t sibling, before;            /* next and previous sibling; 0: none */
};

/* A position in the tree: after `at` tokens of the node's edge, `length` tokens from the root. */
struct suffix_cursor { int32_t node, at, length; };

struct suffix_tree {
    int depth;
    const int32_t *token;               /* [tokens] */
    const struct suffix_node *node;     /* [nodes] the root is 0 */
    int tokens, nodes;
    int32_t *slot;                      /* [slots] hash table of nodes by parent and first token; 0: empty */
    uint32_t slots;                     /* a power of two */
    bool sorted;                        /* children are ordered by count, equal ones youngest first; the tree cannot grow */
    int32_t *own_token;                 /* the arrays above if the tree owns them; NULL if mapped */
    struct suffix_node *own_node;
    size_t token_room, node_room;
    int limit;                          /* number of tokens at which the text being added ends */
    int cursors;
    struct suffix_cursor cursor[SUFFIX_DEPTH_MAX + 1];
};

int suffix_tree_init(struct suffix_tree *tree, int depth, struct err *err);       /* *tree is uninitialised before */
void suffix_tree_free(struct suffix_tree *tree);                                  /* *tree is {0} afterwards */
void suffix_tree_clear(struct suffix_tree *tree);                                 /* removes all texts; memory is kept */

/* suffix_tree_put adds one token of an unfinished text; suffix_tree_add adds a whole text and ends it. */
int suffix_tree_put(struct suffix_tree *tree, int32_t token, struct err *err);
int suffix_tree_add(struct suffix_tree *tree, const int32_t *token, int count, struct err *err);

/* Sorts all children. Nothing can be added afterwards. */
int suffix_tree_sort(struct suffix_tree *tree, struct err *err);

/* Makes a sorted tree growable again; a mapped tree is copied. Equally frequent children keep their order, and new ones come
 * before them. */
int suffix_tree_thaw(struct suffix_tree *tree, struct err *err);

/* Validates a sorted tree whose `token` and `node` are set and owned by the caller. *sound: it is consistent. */
int suffix_tree_adopt(struct suffix_tree *tree, int vocab, bool *sound, struct err *err);

/* Returns the memory of tokens, nodes and hash table in bytes. */
size_t suffix_tree_bytes(const struct suffix_tree *tree);

/* Advances cursor[0 .. count), longest first, and a new cursor of length 0 by one token, and removes the cursors of strings
 * that do not occur. cursor[] must have room for one more than the depth. Returns the number of cursors. */
int suffix_tree_follow(const struct suffix_tree *tree, struct suffix_cursor *cursor, int count, int32_t token);

/* Limits of a draft. A draft is a tree of nodes in decreasing order of probability, which is the product along the path of each
 * token's relative frequency among the tokens that followed there (or among `occurrences`). */
struct suffix_limits {
    int nodes;                          /* at most SUFFIX_DRAFT_MAX */
    int levels;
    int first, below;                   /* first: maximum children of the root; below: of any other node */
    double min;                         /* minimum probability, SUFFIX_MIN or more */
    bool occurrences;                   /* relative frequencies divide by the occurrences of the string before a token,
                                         * including those at a text's end; false: by the number of tokens that followed it */
};

struct suffix_draft {
    int nodes;
    double score;                       /* sum of probabilities: expected number of correct tokens */
    int32_t token[SUFFIX_DRAFT_MAX];
    int32_t parent[SUFFIX_DRAFT_MAX];   /* -1: the root */
    int32_t level[SUFFIX_DRAFT_MAX];    /* 1: a child of the root */
    double share[SUFFIX_DRAFT_MAX];     /* relative frequency among the tokens that followed its parent */
};

/* Writes the most probable draft after a cursor. */
void suffix_tree_expand(const struct suffix_tree *tree, const struct suffix_cursor *from, const struct suffix_limits *limits,
                        struct suffix_draft *out);

#endif

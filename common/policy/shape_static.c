/* A tree of ranks that is the same in every iteration, read from a file: a JSON list of paths, each a list of ranks from the
 * root down. [[0],[1],[0,0],[0,1]] requests the two best tokens after the root, and the two best after the first of these.
 * Medusa and EAGLE-1 publish their trees in this form (Cai et al., arXiv 2401.10774, section 2.3.3; published trees are in
 * trees/).
 *
 * Every prefix of a path must be a path itself; the order of paths does not matter. A drafter adds the best tokens after a
 * node, so a rank that the file skips below a larger one is drafted and dropped at once.
 *
 * Without a file: `depth` levels of `width` nodes each, below the best node of the level above. This covers every request of a
 * chain with further leaves (tr), and is what is recorded for replays of tr. */
#include "common/policy/shape.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/mem.h"

enum { FILE_LIMIT = 1 << 20 };

struct path {
    int count, given;                   /* number of ranks; index in the file */
    uint8_t rank[SHAPE_DEPTH_MAX];
};

/* Nodes level by level, those of a level in the order of their paths: siblings are adjacent and in the order of ranks. */
struct static_tree {
    struct shape base;
    int32_t first[SHAPE_DEPTH_MAX + 2];     /* first node of each level; first[1] is 0 */
    int32_t *parent;                        /* [nodes] or -1 */
    int32_t *rank;                          /* [nodes] */
    int32_t *children;                      /* [nodes] children to draft: largest requested rank + 1 */
    int root_children;
    int level;                              /* last level grown in this iteration */
    bool found;                             /* node[] includes that level */
    int32_t *node;                          /* [nodes] node of this iteration's draft, or -1 */
    struct draft_leaf *leaf;                /* [nodes] */
    int32_t *keep;                          /* [room] */
};

static void static_tree_free(struct shape *shape)
{
    struct static_tree *tree = (struct static_tree *)shape;
    mem_free(&tree->parent);
    mem_free(&tree->rank);
    mem_free(&tree->children);
    mem_free(&tree->node);
    mem_free(&tree->leaf);
    mem_free(&tree->keep);
    mem_free(&tree);
}

static int compare_paths(const void *a, const void *b)
{
    const struct path *left = a, *right = b;
    if (left->count != right->count)
        return left->count < right->count ? -1 : 1;
    return memcmp(left->rank, right->rank, (size_t)left->count);
}

static int read_path(const json_t *item, int given, struct path *out, struct err *err)
{
    size_t count = json_array_size(item);
    if (count < 1 || count > SHAPE_DEPTH_MAX)
        return err_set(err, ERR_INPUT, "path %d: expected a list of 1 to %d ranks", given, SHAPE_DEPTH_MAX);
    for (size_t at = 0; at < count; at++) {
        const json_t *rank = json_array_get(item, at);
        json_int_t value = json_integer_value(rank);
        if (!json_is_integer(rank) || value < 0 || value >= SHAPE_SIBLINGS_MAX)
            return err_set(err, ERR_INPUT, "path %d: each rank must be a whole number from 0 to %d", given,
                           SHAPE_SIBLINGS_MAX - 1);
        out->rank[at] = (uint8_t)value;
    }
    out->count = (int)count;
    out->given = given;
    return 0;
}

/* Returns the index in path[count] of the prefix of `whole` with `length` ranks, or -1. */
static int find_path(const struct path *path, int count, const struct path *whole, int length)
{
    struct path wanted = *whole;
    wanted.count = length;
    const struct path *found = bsearch(&wanted, path, (size_t)count, sizeof *path, compare_paths);
    return found ? (int)(found - path) : -1;
}

/* Makes nodes from sorted paths. */
static int link_paths(struct static_tree *tree, const struct path *path, int count, struct err *err)
{
    for (int at = 0; at < count; at++) {
        int above = path[at].count > 1 ? find_path(path, at, &path[at], path[at].count - 1) : -1;
        int32_t *children = above < 0 ? &tree->root_children : &tree->children[above];
        if (path[at].count > 1 && above < 0)
            return err_set(err, ERR_INPUT, "path %d: the path of its parent node is missing; list it, too", path[at].given);
        tree->parent[at] = above;
        tree->rank[at] = path[at].rank[path[at].count - 1];
        if (tree->rank[at] < *children)
            return err_set(err, ERR_INPUT, "path %d occurs twice; list it once", path[at].given);
        *children = tree->rank[at] + 1;
        tree->base.depth = path[at].count;
        tree->first[path[at].count + 1] = at + 1;
    }
    return 0;
}

/* Computes the capacity that a draft needs, including ranks that are dropped at once. */
static void measure(struct static_tree *tree, int count)
{
    struct shape *shape = &tree->base;
    int level = 1, asked = tree->root_children;
    shape->nodes = count;
    for (; level <= shape->depth; level++) {
        int kept = tree->first[level];
        shape->room = kept + asked > shape->room ? kept + asked : shape->room;
        shape->added += asked;
        asked = 0;
        for (int at = kept; at < tree->first[level + 1]; at++)
            asked += tree->children[at];
    }
    shape->trims = shape->added > count;
}

/* Makes the tree from the nodes' paths, which may be in any order. */
static int make_tree(struct static_tree *tree, struct path *path, size_t count, struct err *err)
{
    tree->parent = mem_alloc(count, sizeof *tree->parent, err);
    tree->rank = mem_alloc(count, sizeof *tree->rank, err);
    tree->children = mem_alloc(count, sizeof *tree->children, err);
    tree->node = mem_alloc(count, sizeof *tree->node, err);
    tree->leaf = mem_alloc(count, sizeof *tree->leaf, err);
    if (!tree->parent || !tree->rank || !tree->children || !tree->node || !tree->leaf)
        return -1;
    qsort(path, count, sizeof *path, compare_paths);
    if (link_paths(tree, path, (int)count, err))
        return -1;
    measure(tree, (int)count);
    tree->keep = mem_alloc((size_t)tree->base.room, sizeof *tree->keep, err);
    return tree->keep ? 0 : -1;
}

static int read_tree(struct static_tree *tree, const json_t *list, struct err *err)
{
    size_t count = json_array_size(list), at;
    json_t *item;
    if (count < 1 || count > SHAPE_NODES_MAX)
        return err_set(err, ERR_INPUT, "expected a list of 1 to %d paths, such as [[0],[0,0],[1]]", SHAPE_NODES_MAX);
    struct path *path = mem_alloc(count, sizeof *path, err);
    int rc = path ? 0 : -1;
    json_array_foreach((json_t *)(uintptr_t)list, at, item)
        if (!rc)
            rc = read_path(item, (int)at + 1, &path[at], err);
    if (!rc)
        rc = make_tree(tree, path, count, err);
    mem_free(&path);
    return rc;
}

static int read_file(struct static_tree *tree, const char *file, struct err *err)
{
    json_t *list = json_file(file, FILE_LIMIT, "a list of paths, such as [[0],[0,0],[1]]", err);
    int rc = list ? read_tree(tree, list, err) : -1;
    if (list && rc)
        err_at(err, "%s", file);
    json_decref(list);
    return rc;
}

static int make_levels(struct static_tree *tree, int width, int depth, struct err *err)
{
    if (width * depth > SHAPE_NODES_MAX)
        return err_set(err, ERR_INPUT, "static: %d levels of %d nodes make %d nodes, more than the maximum of %d; give a "
                       "smaller width or depth",
                       depth, width, width * depth, SHAPE_NODES_MAX);
    struct path *path = mem_alloc((size_t)(width * depth), sizeof *path, err);
    for (int at = 0; path && at < width * depth; at++) {
        path[at].count = at / width + 1;
        path[at].rank[at / width] = (uint8_t)(at % width);
    }
    int rc = path ? make_tree(tree, path, (size_t)(width * depth), err) : -1;
    mem_free(&path);
    return rc;
}

static int static_tree_open(struct shape **out, struct spec *spec, struct err *err)
{
    struct static_tree *tree = NULL;
    const char *file;
    int width, depth;
    if (spec_text(spec, "file", NULL, &file, err) || spec_int(spec, "width", 0, 1, SHAPE_SIBLINGS_MAX, &width, err) ||
        spec_int(spec, "depth", 0, 1, SHAPE_DEPTH_MAX, &depth, err))
        return -1;
    if (file ? width || depth : !width || !depth)
        return err_set(err, ERR_INPUT, "static: no tree is given; write static:file=FILE or static:width=N,depth=N");
    if (!(tree = mem_alloc(1, sizeof *tree, err)))
        return -1;
    if (file ? read_file(tree, file, err) : make_levels(tree, width, depth, err)) {
        static_tree_free(&tree->base);
        return -1;
    }
    *out = &tree->base;
    return 0;
}

/* Returns the child of `parent` with this rank, in order of addition, or -1. */
static int nth_child(const struct draft_tree *draft, int parent, int rank)
{
    for (int node = parent + 1; node < draft->nodes; node++)
        if (draft->parent[node] == parent && rank-- == 0)
            return node;
    return -1;
}

/* Finds the nodes of the last level, and stores the step that drops other nodes. Returns whether there are other nodes. */
static bool find_level(struct static_tree *tree, const struct draft_tree *draft, struct step *step)
{
    int kept = 0, wanted = 0;
    for (int at = tree->first[tree->level]; at < tree->first[tree->level + 1]; at++) {
        int above = tree->parent[at], parent = above < 0 ? -1 : tree->node[above];
        tree->node[at] = above >= 0 && parent < 0 ? -1 : nth_child(draft, parent, tree->rank[at]);
    }
    tree->found = true;
    for (int at = 0; at < tree->first[tree->level + 1]; at++)
        wanted += tree->node[at] >= 0;
    if (wanted == draft->nodes)
        return false;
    for (int node = 0; node < draft->nodes; node++)
        for (int at = 0; at < tree->first[tree->level + 1]; at++)
            if (tree->node[at] == node) {
                tree->node[at] = kept;
                tree->keep[kept++] = node;
                break;
            }
    *step = (struct step){.kind = STEP_KEEP, .keep = tree->keep, .kept = kept};
    return true;
}

static struct step static_tree_next(struct shape *shape, const struct draft_view *view, int depth)
{
    struct static_tree *tree = (struct static_tree *)shape;
    struct step step;
    int leaves = 0;
    depth = depth < shape->depth ? depth : shape->depth;
    if (!view->steps)
        tree->level = tree->found = 0;
    if (tree->level && !tree->found && find_level(tree, view->tree, &step))
        return step;
    if (tree->level >= depth || tree->level == view->room)
        return (struct step){.kind = STEP_STOP};
    if (!tree->level)
        tree->leaf[leaves++] = (struct draft_leaf){-1, tree->root_children};
    for (int at = tree->level ? tree->first[tree->level] : 0; tree->level && at < tree->first[tree->level + 1]; at++)
        if (tree->node[at] >= 0 && tree->children[at])
            tree->leaf[leaves++] = (struct draft_leaf){tree->node[at], tree->children[at]};
    if (!leaves)
        return (struct step){.kind = STEP_STOP};
    const int levels = depth - tree->level++;
    tree->found = false;
    return (struct step){.kind = STEP_EXTEND, .tokens = 1, .levels = levels, .leaf = tree->leaf, .leaves = leaves};
}

static void static_tree_state(const struct shape *shape, struct values *out)
{
    values_int(out, "nodes", shape->nodes);
}

const struct shape_class shape_static = {
    .name = "static",
    .summary = "the tree of ranks that a file holds, or levels below the likeliest token of each",
    .settings = "file=FILE|width=N,depth=N",
    .open = static_tree_open,
    .next = static_tree_next,
    .state = static_tree_state,
    .free = static_tree_free,
};

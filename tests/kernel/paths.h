/* Shared by tests of attention and of its indexer: rows that are nodes of a random tree, and values of a cache. */
#ifndef MOE_TESTS_KERNEL_PATHS_H
#define MOE_TESTS_KERNEL_PATHS_H

#include "common/base/float.h"
#include "tests/kernel/support.h"

struct paths { struct buffer prefix, start, path; };

/* Rows are nodes of a random tree after `committed` tokens: a node's path is its ancestors and itself. The parent of row 0, and
 * of some others, is the last committed token. */
static struct paths draw_paths(struct arena *arena, int rows, int committed, uint64_t *seed)
{
    const size_t count = (size_t)rows;
    int32_t *parent = calloc(count, sizeof *parent), *start = calloc(count + 1, sizeof *start);
    int32_t *prefix = calloc(count, sizeof *prefix), *path = calloc(count * count, sizeof *path);
    for (int r = 0; r < rows; r++) {
        int depth = 0;
        prefix[r] = committed;
        parent[r] = r == 0 ? -1 : draw_below(seed, r + 1) - 1;
        for (int node = r; node >= 0; node = parent[node])
            depth++;
        start[r + 1] = start[r] + depth;
        for (int node = r; node >= 0; node = parent[node])
            path[start[r] + --depth] = committed + node;
    }
    const struct paths drawn = {take_integers(arena, prefix, count), take_integers(arena, start, count + 1),
                                take_integers(arena, path, (size_t)start[rows])};
    free(parent);
    free(start);
    free(prefix);
    free(path);
    return drawn;
}

/* Stores a value in a cache of floats of 32 or 16 bits. */
static void put(enum cache_format format, void *cache, size_t at, float value)
{
    if (format == CACHE_F32)
        ((float *)cache)[at] = value;
    else
        ((uint16_t *)cache)[at] = format == CACHE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
}

#endif

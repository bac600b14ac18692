/* Sparse attention: an indexer chooses the positions that a row attends to (DeepSeek-V3.2, "lightning indexer").
 *
 * A row's sequence of slots is that of kernels/attention.h: slots 0 .. prefix[r]-1, then path[path_start[r]] ..
 * path[path_start[r+1]-1], in logical order; n[r] is its length. The result is a sequence of the same form, for attention:
 *
 *     score[r][j] = sum over heads h of weight[r][h] * max(0, scale * q[r][h] . k[slot_j]),   j < n[r]
 *     chosen      the slots of the top_k positions with the largest scores, the lower position first among equals, in logical
 *                 order; all slots if n[r] <= top_k
 *
 * A NaN is smaller than every other score. A row's result depends on its own sequence only.
 *
 * q             [rows] of q_stride floats, heads*dim used;   weight [rows][heads] f32
 * k             [capacity] of key_stride values in the cache's format, dim used
 * score         scratch, [rows][longest] f32;   longest: upper bound of n[r]
 * chosen        [rows*top_k] i32;   chosen_start [rows+1] i32: row r has chosen[chosen_start[r]] .. chosen[chosen_start[r+1]-1]
 * chosen_prefix [rows] i32, set to 0: no slots precede those in `chosen`
 *
 * Order:  the sum over heads begins with 0 and goes up by fused multiply-add; a dot product has the order of attention.h and is
 *         multiplied by scale before max. */
#ifndef MOE_KERNELS_INDEX_H
#define MOE_KERNELS_INDEX_H

#include "kernels/attention.h"

struct index_args {
    struct buffer q, weight, k, prefix, path_start, path, score, chosen, chosen_start, chosen_prefix;
    float scale;
    enum cache_format format;
    int rows, heads, dim, q_stride, key_stride, capacity, top_k, longest;
};

#endif

/* The most probable tokens of rows of logits, with their log-probabilities: for greedy and tree drafts, without copying all
 * logits to the host.
 *
 * A row's bits depend on that row only, and every step is rounded as written, so all devices give the same bits. */
#ifndef MOE_KERNELS_TOP_H
#define MOE_KERNELS_TOP_H

#include <stddef.h>

#include "kernels/buffer.h"

enum { TOP_MAX = 64, TOP_VOCAB_MAX = 1 << 20, TOP_CHUNK = 2048, TOP_LANES = 256 };

/* For i < k, in descending order of logits, the lower id first among equals (-0 equals +0):
 *     token[r][i] = id, or map[id] if there is a map
 *     logp[r][i]  = logits[r][id] - log sum over all v of exp(logits[r][v])
 * logits   [rows] of stride (0: vocab), the first `vocab` floats
 * map      [vocab] i32, the target's token for each token of a draft vocabulary; none: ids are returned unchanged
 * token    [rows][k] i32;  logp [rows][k] f32
 * log_sum  [rows] f32, the logarithm of the sum, from which the log-probability of any other token follows; may be none
 * scratch  top_scratch_bytes(rows, vocab, k), aligned to 16 bytes
 *
 * rows: at most 512; k: at most TOP_MAX and vocab; vocab: at most TOP_VOCAB_MAX.
 *
 * A logit of -inf has probability 0 and is among the k only if there are too few others. A row with a NaN or +inf, or with only
 * -inf, has no distribution: its tokens are -1, its logp and log_sum NaN.
 *
 * Order:  A row is divided into chunks of TOP_CHUNK tokens. In each, lane j of TOP_LANES processes the tokens j,
 *         j + TOP_LANES, .., ascending. Maximum: x > lane ? x : lane, from -inf on; then halves,
 *         lane[j + h] > lane[j] ? lane[j + h] : lane[j] for h = TOP_LANES / 2, .., 1. Sum: lane + plain_exp(x - base), from 0
 *         on, where base is the chunk's maximum, or 0 if that is -inf; then halves added. The row's maximum is that of the
 *         chunks, from the first on; its sum starts with 0 and is fma(chunk's sum, plain_exp(chunk's maximum - the row's),
 *         sum), chunk after chunk. With l = plain_log(sum): logp = (logit - the row's maximum) - l; log_sum = the row's maximum
 * + l. Cost:   the logits are read once from memory. */
struct top_args {
    struct buffer logits, map, token, logp, log_sum, scratch;
    int rows, vocab, k, stride;
};

static inline size_t top_chunks(int vocab) { return ((size_t)vocab + TOP_CHUNK - 1) / TOP_CHUNK; }

/* Returns the bytes of scratch: maximum and sum of each chunk; on a GPU also the keys of its best tokens. */
static inline size_t top_scratch_bytes(int rows, int vocab, int k)
{
    return (size_t)rows * top_chunks(vocab) * (2 * sizeof(float) + (size_t)k * sizeof(uint64_t));
}

#endif

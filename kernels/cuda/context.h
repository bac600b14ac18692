/* One open device: the state of a queue points to it. The plug-in opens and closes it; kernels only read it. */
#ifndef MOE_KERNELS_CUDA_CONTEXT_H
#define MOE_KERNELS_CUDA_CONTEXT_H

#include "kernels/buffer.h"
#include "kernels/cuda/dev.h"

struct slab;
struct cuda_kept;

enum { CONTEXT_TICKETS = 256 };

/* Parts that MOE_CUDA_NO_NAME turns off, to locate faults and to measure each part. No bit of the results changes. */
enum cuda_switch {
    CUDA_FEW = 1,                   /* FEW: separate kernels for products of 1 and 2 rows (tile.h) */
    CUDA_AHEAD = 2,                 /* AHEAD: prefetching of weights that a later launch reads (linear.h) */
    CUDA_TREE = 4,                  /* TREE: blocks of attention that read a chunk once for several rows (attention.cu) */
    CUDA_SUM = 8,                   /* SUM: the sum over slots in the launch of the down product (expert_ffn.cu) */
    CUDA_ROUTE = 32,                /* ROUTE: scores, choice and grouping in one launch (routed_ffn.cu) */
    CUDA_NORM = 64,                 /* NORM: norms in the launch of the product that follows (norm_linear.cu, routed_ffn.cu) */
    CUDA_LOGITS = 128,              /* LOGITS: the router's product in the launch of scores and choice (routed_ffn.cu) */
    CUDA_CHOICE = 16,               /* CHOICE: choosing and ranking tokens for the host's loop (plugin.h) */
};

struct cuda_context {
    int device;
    dev_stream stream;
    struct buffer scratch;          /* shared by blocks of one operation: attention (at least two chunks of a row; more
                                     * memory saves launches), the choice of tokens (choose.cu, at least one row), products
                                     * of narrow matrices (optional) */
    unsigned *tickets;              /* on the device: CONTEXT_TICKETS zeros, counters of finished blocks; NULL: scratch is
                                     * treated as too small */
    int blocks;                     /* blocks of attention that run at a time; 0: as many as on a large GPU */
    const int32_t *live;            /* on the device: the number of rows to process, 1 or more; NULL: all rows. Grids cover
                                     * all rows, and blocks without a live row return at once */
    struct slab *slab;              /* slab.h; NULL: products of slabs are computed by tiles, like all others */
    unsigned off;                   /* the parts that are turned off: bits of enum cuda_switch */
    bool no_while;                  /* a loop is one graph launch per iteration, as with a driver without WHILE nodes */
    struct cuda_kept *kept;         /* repeat.cu: the graph of the last loop, reused by the next one; NULL: none */
    int32_t *ran_on;                /* repeat.cu: shared with the host; 1: a loop continued after its end. NULL: no loop was
                                     * opened yet */
};

#endif

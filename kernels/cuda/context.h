/* One device in use: what the state of a queue points to. The plug-in opens and closes it; kernels only read it. */
#ifndef MOE_KERNELS_CUDA_CONTEXT_H
#define MOE_KERNELS_CUDA_CONTEXT_H

#include "kernels/buffer.h"
#include "kernels/cuda/dev.h"

struct slab;
struct cuda_kept;

enum { CONTEXT_TICKETS = 256 };

struct cuda_context {
    int device;
    dev_stream stream;
    struct buffer scratch;          /* for what several blocks do together: attention, of which it must hold two chunks of a
                                     * row, and the more it holds the fewer are the launches; the choice of tokens (choose.cu),
                                     * of one row at least; products of narrow matrices, which do without if it is too small */
    unsigned *tickets;              /* on the device, CONTEXT_TICKETS zeros, for them; NULL: as if scratch were too small */
    const int32_t *live;            /* on the device: how many of an operation's rows are treated, 1 or more; NULL: all of them.
                                     * Grids are those of all rows; blocks without one end at once */
    struct slab *slab;              /* slab.h; NULL: products of slabs go by tiles, like all others */
    bool no_while;                  /* a loop is a graph for each iteration, as with a driver that knows no WHILE nodes */
    struct cuda_kept *kept;         /* repeat.cu: what the last loop left for the next one; NULL: nothing */
    int32_t *ran_on;                /* repeat.cu: shared with the host; 1: a loop went on after its end. NULL: there was none */
};

#endif

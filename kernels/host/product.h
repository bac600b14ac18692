/* Products of f32 matrices on the host, by OpenBLAS.
 *
 * A product is cut into blocks of the result, each of them one call of one thread of the library. Where the cuts are follows
 * from the shape alone, and a block's sums are in the library's order for it: so the bytes do not depend on the number of
 * threads. Matrices are row-major, `stride` floats from a row to the next. */
#ifndef MOE_KERNELS_HOST_PRODUCT_H
#define MOE_KERNELS_HOST_PRODUCT_H

#include "common/base/thread_pool.h"
#include "kernels/learn.h"

struct matrix {
    const float *data;
    int stride;
};

struct product {
    enum learn_product kind;    /* what a, b and c are */
    int rows, columns, depth;
    struct matrix a, b;
    float *c;
    int stride;             /* of c */
    bool add;               /* to what is in c, else in place of it */
};

void product_open(void);        /* host_learn_open (learn.h) */
void product_run(struct thread_pool *pool, const struct product *product);
void product_here(const struct product *product);       /* the same as one block, in the caller's thread */

#endif

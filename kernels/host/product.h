/* Products of f32 matrices on the host, by OpenBLAS.
 *
 * A product is divided into blocks of the result; each block is one single-threaded call of the library. The division depends
 * on the shape only, and the library's order of sums within a block is fixed, so the bytes do not depend on the number of
 * threads. Matrices are row-major, with `stride` floats from one row to the next. */
#ifndef MOE_KERNELS_HOST_PRODUCT_H
#define MOE_KERNELS_HOST_PRODUCT_H

#include "common/base/thread_pool.h"
#include "kernels/learn.h"

struct matrix {
    const float *data;
    int stride;
};

struct product {
    enum learn_product kind;    /* shapes of a, b and c */
    int rows, columns, depth;
    struct matrix a, b;
    float *c;
    int stride;             /* of c */
    bool add;               /* adds to c instead of replacing it */
};

void product_open(void);        /* called by host_learn_open (learn.h) */
void product_run(struct thread_pool *pool, const struct product *product);
void product_here(const struct product *product);       /* computes the product as one block in the calling thread */

#endif

/* Products of f32 matrices on the host, by OpenBLAS.
 *
 * A product is cut into blocks of the result, each of them one call of one thread of the library. Where the cuts are follows
 * from the shape alone, and a block's sums are in the library's order for it: so the bytes do not depend on the number of
 * threads. Matrices are row-major, `stride` floats from a row to the next. */
#ifndef MOE_TRAIN_PRODUCT_H
#define MOE_TRAIN_PRODUCT_H

#include <stdbool.h>

#include "common/base/thread_pool.h"

struct matrix {
    const float *data;
    int stride;
};

enum product_kind {
    PRODUCT_ROWS,           /* c = a b^T:  a [rows][depth], b [columns][depth]       y = x W^T */
    PRODUCT_PLAIN,          /* c = a b:    a [rows][depth], b [depth][columns]       dx = dy W */
    PRODUCT_OUTER           /* c = a^T b:  a [depth][rows], b [depth][columns]       dW = dy^T x */
};

struct product {
    enum product_kind kind;
    int rows, columns, depth;
    struct matrix a, b;
    float *c;               /* [rows][columns] */
    int stride;             /* of c */
    bool add;               /* to what is in c, else in place of it */
};

/* Before the first product of a process: one thread of the library a call. */
void product_open(void);

void product_run(struct thread_pool *pool, const struct product *product);
void product_here(const struct product *product);       /* the same as one block, in the caller's thread */

#endif

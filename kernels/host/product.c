#include "kernels/host/product.h"

#include <stdatomic.h>

#include <cblas.h>

/* Max rows and columns per block, times LARGER in large products, where packing then costs less. Other products have smaller
 * blocks, so that each thread gets some. */
enum { BLOCK_ROWS = 256, BLOCK_COLUMNS = 512, LARGER = 2, BLOCKS_MIN = 16 };

void product_open(void) { openblas_set_num_threads(1); }

static void run_block(const struct product *p, int row, int rows, int column, int columns)
{
    const bool outer = p->kind == LEARN_OUTER, by_rows = p->kind == LEARN_ROWS;
    const float *a = p->a.data + (outer ? (size_t)row : (size_t)row * (size_t)p->a.stride);
    const float *b = p->b.data + (by_rows ? (size_t)column * (size_t)p->b.stride : (size_t)column);
    cblas_sgemm(CblasRowMajor, outer ? CblasTrans : CblasNoTrans, by_rows ? CblasTrans : CblasNoTrans, rows, columns,
                p->depth, 1, a, p->a.stride, b, p->b.stride, p->add ? 1 : 0,
                p->c + (size_t)row * (size_t)p->stride + (size_t)column, p->stride);
}

void product_here(const struct product *product) { run_block(product, 0, product->rows, 0, product->columns); }

struct blocks {
    const struct product *product;
    int rows, columns;          /* of one block */
    int down, count;
    atomic_int next;
};

static void run_blocks(void *argument, int member, int members)
{
    struct blocks *blocks = argument;
    const struct product *p = blocks->product;
    (void)member, (void)members;
    for (int i; (i = atomic_fetch_add(&blocks->next, 1)) < blocks->count;) {
        /* Columns of blocks are processed from top to bottom, because these blocks share a part of b, which stays in a
         * cache. */
        const int row = i % blocks->down * blocks->rows, column = i / blocks->down * blocks->columns;
        const int rows = p->rows - row, columns = p->columns - column;
        run_block(p, row, rows < blocks->rows ? rows : blocks->rows, column,
                  columns < blocks->columns ? columns : blocks->columns);
    }
}

static void cut(struct blocks *blocks, int times)
{
    const struct product *p = blocks->product;
    blocks->rows = BLOCK_ROWS * times;
    blocks->columns = BLOCK_COLUMNS * times;
    blocks->down = (p->rows + blocks->rows - 1) / blocks->rows;
    blocks->count = blocks->down * ((p->columns + blocks->columns - 1) / blocks->columns);
}

void product_run(struct thread_pool *pool, const struct product *product)
{
    struct blocks blocks = {.product = product};
    if (product->rows < 1 || product->columns < 1)
        return;
    cut(&blocks, LARGER);
    if (blocks.count < BLOCKS_MIN)
        cut(&blocks, 1);
    thread_pool_run(pool, run_blocks, &blocks);
}
